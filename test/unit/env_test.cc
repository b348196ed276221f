// The environment table: parsing, ranges, precedence, secrets, unknown names.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <unistd.h>
#include <vector>

#include <weir/env.h>
#include <weir/error.h>
#include <weir/log.h>

extern "C" {
#include "src/host/base/env.h"
#include "src/host/base/log.h"
}

namespace {

// Each test begins without WEIR_ variables, and restores them at its end.
class Env : public testing::Test {
protected:
    void SetUp() override
    {
        GTEST_FLAG_SET(death_test_style, "threadsafe");
        for (char **entry = environ; *entry != nullptr; entry++) {
            const char *equals = std::strchr(*entry, '=');
            if (std::strncmp(*entry, "WEIR_", 5) == 0 && equals != nullptr) {
                saved_[std::string(*entry, std::strcspn(*entry, "="))] = equals + 1;
            }
        }
        clear();
    }

    void TearDown() override
    {
        clear();
        for (const auto &variable : saved_) {
            setenv(variable.first.c_str(), variable.second.c_str(), 1);
        }
    }

    // Reads `name`=`value` and expects WEIR_ERR_ENV with both in the text.
    void expect_refused(const char *name, const char *value)
    {
        weiri_env env;
        setenv(name, value, 1);
        EXPECT_EQ(weiri_env_read(&env), WEIR_ERR_ENV) << name << "=" << value;
        const std::string text = weir_last_error();
        EXPECT_NE(text.find(std::string(name) + "=" + value), std::string::npos) << text;
        unsetenv(name);
    }

    weiri_env read()
    {
        weiri_env env;
        std::memset(&env, 0xee, sizeof env);
        const weir_status status = weiri_env_read(&env);
        EXPECT_EQ(status, WEIR_OK) << weir_last_error();
        return env;
    }

private:
    static void clear()
    {
        std::vector<std::string> names;
        for (char **entry = environ; *entry != nullptr; entry++) {
            if (std::strncmp(*entry, "WEIR_", 5) == 0) {
                names.emplace_back(*entry, std::strcspn(*entry, "="));
            }
        }
        for (const std::string &name : names) {
            unsetenv(name.c_str());
        }
    }

    std::map<std::string, std::string> saved_;
};

TEST_F(Env, DefaultsAreThoseOfTheTable)
{
    const weiri_env env = read();
    EXPECT_EQ(env.timeouts.host_ms, 30000u);
    EXPECT_EQ(env.timeouts.kernel_ms, 600000u);
    EXPECT_FALSE(env.timeouts_set);
    EXPECT_STREQ(env.log, "warn");
    EXPECT_FALSE(env.log_set);
    EXPECT_STREQ(env.unique_id, "");
    EXPECT_STREQ(env.key, "");
    EXPECT_FALSE(env.key_set);
    EXPECT_FALSE(env.allow_no_key);
    EXPECT_FALSE(env.allow_no_key_set);
    EXPECT_STREQ(env.interface, "");
    EXPECT_EQ(env.cpu_threads, 64u);
    EXPECT_STREQ(env.transport, "");
    EXPECT_FALSE(env.staging_set);
    EXPECT_STREQ(env.cuda_library, "libcuda.so.1");
}

TEST_F(Env, SetValuesAreRead)
{
    setenv("WEIR_TIMEOUT_MS", "1500", 1);
    setenv("WEIR_ALLOW_NO_KEY", "1", 1);
    setenv("WEIR_KEY", "a b", 1);
    setenv("WEIR_INTERFACE", "lo", 1);
    setenv("WEIR_LOG", "debug", 1);
    setenv("WEIR_RANK", "0", 1);
    const weiri_env env = read();
    EXPECT_EQ(env.timeouts.host_ms, 1500u);
    EXPECT_EQ(env.timeouts.kernel_ms, 1500u);
    EXPECT_TRUE(env.timeouts_set);
    EXPECT_TRUE(env.allow_no_key);
    EXPECT_TRUE(env.allow_no_key_set);
    EXPECT_STREQ(env.key, "a b");
    EXPECT_TRUE(env.key_set);
    EXPECT_STREQ(env.interface, "lo");
    EXPECT_TRUE(env.interface_set);
    EXPECT_EQ(env.rank, 0u);
    EXPECT_TRUE(env.rank_set);
    EXPECT_STREQ(env.log, "debug");
    EXPECT_FALSE(env.cpu_threads_set);
}

TEST_F(Env, EmptyIsNotSet)
{
    std::vector<std::string> names;
    weir_env_row row;
    for (uint32_t i = 0; weir_env_get(i, &row) == WEIR_OK; i++) {
        names.emplace_back(row.name);
    }
    for (const std::string &name : names) {
        setenv(name.c_str(), "", 1);
    }
    const weiri_env env = read();
    EXPECT_EQ(env.timeouts.host_ms, 30000u);
    EXPECT_EQ(env.timeouts.kernel_ms, 600000u);
    EXPECT_FALSE(env.timeouts_set);
    EXPECT_STREQ(env.log, "warn");
    EXPECT_FALSE(env.allow_no_key_set);
    EXPECT_FALSE(env.interface_set);
    EXPECT_FALSE(env.rank_set);
    EXPECT_FALSE(env.size_set);
    EXPECT_STREQ(env.cuda_library, "libcuda.so.1");
    EXPECT_EQ(weiri_log_read_level(), WEIR_LOG_WARN);
    for (uint32_t i = 0; weir_env_get(i, &row) == WEIR_OK; i++) {
        EXPECT_EQ(row.value, nullptr) << row.name;
    }
}

TEST_F(Env, LaunchersVariablesAreReadByNumber)
{
    uint64_t number = 7;
    unsetenv("SLURM_PROCID");
    EXPECT_STREQ(weiri_env_launch_name(WEIRI_LAUNCH_SLURM_PROCID), "SLURM_PROCID");
    EXPECT_EQ(weiri_env_launch_text(WEIRI_LAUNCH_SLURM_PROCID), nullptr);
    EXPECT_EQ(weiri_env_launch_number(WEIRI_LAUNCH_SLURM_PROCID, 0, 9, &number), WEIR_ERR_ENV);
    setenv("SLURM_PROCID", "", 1);
    EXPECT_EQ(weiri_env_launch_text(WEIRI_LAUNCH_SLURM_PROCID), nullptr);
    for (const char *bad : { "10", "-1", "x", "1 ", "18446744073709551616" }) {
        setenv("SLURM_PROCID", bad, 1);
        EXPECT_EQ(weiri_env_launch_number(WEIRI_LAUNCH_SLURM_PROCID, 0, 9, &number), WEIR_ERR_ENV) << bad;
        EXPECT_NE(std::strstr(weir_last_error(), (std::string("SLURM_PROCID=") + bad).c_str()), nullptr);
    }
    EXPECT_EQ(number, 7u);
    setenv("SLURM_PROCID", "9", 1);
    EXPECT_EQ(weiri_env_launch_number(WEIRI_LAUNCH_SLURM_PROCID, 0, 9, &number), WEIR_OK);
    EXPECT_EQ(number, 9u);
    unsetenv("SLURM_PROCID");
}

TEST_F(Env, EndsOfRangesAreAccepted)
{
    const struct {
        const char *text;
        uint64_t value;
    } timeouts[] = { { "1", 1 }, { "86400000", 86400000 }, { "00000000000000000000000000007", 7 } };
    for (const auto &timeout : timeouts) {
        setenv("WEIR_TIMEOUT_MS", timeout.text, 1);
        EXPECT_EQ(read().timeouts.host_ms, timeout.value);
    }
    for (uint64_t threads : { 1u, 1024u }) {
        setenv("WEIR_CPU_THREADS", std::to_string(threads).c_str(), 1);
        EXPECT_EQ(read().cpu_threads, threads);
    }
    for (uint64_t bytes : { uint64_t{ 128 } << 10, uint64_t{ 64 } << 30 }) {
        setenv("WEIR_STAGING", std::to_string(bytes).c_str(), 1);
        EXPECT_EQ(read().staging, bytes);
    }
}

TEST_F(Env, NumbersOutOfRangeAreRefused)
{
    expect_refused("WEIR_TIMEOUT_MS", "0");
    expect_refused("WEIR_TIMEOUT_MS", "86400001");
    expect_refused("WEIR_TIMEOUT_MS", "18446744073709551616"); // 0, if it wrapped
    expect_refused("WEIR_TIMEOUT_MS", "18446744073709551617"); // 1, if it wrapped
    expect_refused("WEIR_TIMEOUT_MS", "184467440737095516170");
    expect_refused("WEIR_CPU_THREADS", "0");
    expect_refused("WEIR_CPU_THREADS", "1025");
    expect_refused("WEIR_RANK", "65536");
    expect_refused("WEIR_SIZE", "0");
    expect_refused("WEIR_SIZE", "65537");
    expect_refused("WEIR_PORT", "0");
    expect_refused("WEIR_PORT", "65536");
    expect_refused("WEIR_STAGING", "131071");
    expect_refused("WEIR_STAGING", "68719476737");
}

TEST_F(Env, MalformedNumbersAreRefused)
{
    for (const char *value : { " ", " 5", "5 ", "5\n", "+5", "-5", "0x10", "1e3", "5.0", "5s", "five" }) {
        expect_refused("WEIR_TIMEOUT_MS", value);
        expect_refused("WEIR_CPU_THREADS", value);
        expect_refused("WEIR_RANK", value);
    }
}

TEST_F(Env, TimeoutsAreOneNumberOrTwo)
{
    const struct {
        const char *text;
        uint32_t host_ms;
        uint32_t kernel_ms;
    } timeouts[] = {
        { "70", 70, 70 }, { "30000,600000", 30000, 600000 }, { "9,1", 9, 1 }, { "1,86400000", 1, 86400000 }
    };
    for (const auto &timeout : timeouts) {
        setenv("WEIR_TIMEOUT_MS", timeout.text, 1);
        EXPECT_EQ(read().timeouts.host_ms, timeout.host_ms) << timeout.text;
        EXPECT_EQ(read().timeouts.kernel_ms, timeout.kernel_ms) << timeout.text;
    }
    for (const char *value : { "5,", ",5", ",", "5,0", "0,5", "5,86400001", "86400001,5", "5, 6", "5 ,6", "5,6,7",
                               "5,-6", "5,18446744073709551617" }) {
        expect_refused("WEIR_TIMEOUT_MS", value);
    }
    weiri_env env;
    setenv("WEIR_TIMEOUT_MS", "5;6", 1);
    EXPECT_EQ(weiri_env_read(&env), WEIR_ERR_ENV);
    EXPECT_STREQ(weir_last_error(), "environment: WEIR_TIMEOUT_MS=5;6: not one or two numbers from 1 to 86400000, as "
                                    "in 30000,600000");
}

TEST_F(Env, BoolsAreZeroOrOneOnly)
{
    setenv("WEIR_ALLOW_NO_KEY", "0", 1);
    EXPECT_FALSE(read().allow_no_key);
    EXPECT_TRUE(read().allow_no_key_set);
    for (const char *value : { "2", "10", "01", " 1", "yes", "true", "on", "-1" }) {
        expect_refused("WEIR_ALLOW_NO_KEY", value);
    }
}

TEST_F(Env, LogLevelIsOneOfFourWords)
{
    const struct {
        const char *text;
        weir_log_level level;
    } levels[] = {
        { "error", WEIR_LOG_ERROR }, { "warn", WEIR_LOG_WARN }, { "info", WEIR_LOG_INFO }, { "debug", WEIR_LOG_DEBUG }
    };
    EXPECT_EQ(weiri_log_read_level(), WEIR_LOG_WARN);
    for (const auto &level : levels) {
        setenv("WEIR_LOG", level.text, 1);
        EXPECT_STREQ(read().log, level.text);
        EXPECT_EQ(weiri_log_read_level(), level.level);
    }
    setenv("WEIR_LOG", "loud", 1);
    EXPECT_EQ(weiri_log_read_level(), WEIR_LOG_WARN);
    for (const char *value : { "WARN", "warning", "3", "info " }) {
        expect_refused("WEIR_LOG", value);
    }
}

TEST_F(Env, FailureLeavesTheOutputAlone)
{
    weiri_env env;
    weiri_env before;
    std::memset(&env, 0x5a, sizeof env);
    std::memset(&before, 0x5a, sizeof before);
    setenv("WEIR_CPU_THREADS", "many", 1);
    EXPECT_EQ(weiri_env_read(&env), WEIR_ERR_ENV);
    EXPECT_EQ(std::memcmp(&env, &before, sizeof env), 0);
}

TEST_F(Env, LongValueDoesNotCutTheCause)
{
    weiri_env env;
    setenv("WEIR_TIMEOUT_MS", std::string(10000, '9').c_str(), 1);
    EXPECT_EQ(weiri_env_read(&env), WEIR_ERR_ENV);
    EXPECT_NE(std::string(weir_last_error()).find("1 to 86400000"), std::string::npos);
}

TEST_F(Env, SetTimeoutWinsOverOptsOverDefault)
{
    weiri_env env = read();
    EXPECT_EQ(weiri_env_timeout(&env, 0), 30000u);
    EXPECT_EQ(weiri_env_timeout(&env, 5), 5u);
    EXPECT_EQ(weiri_env_kernel_timeout(&env, 0), 600000u);
    EXPECT_EQ(weiri_env_kernel_timeout(&env, 5), 5u);
    setenv("WEIR_TIMEOUT_MS", "70,80", 1);
    env = read();
    EXPECT_EQ(weiri_env_timeout(&env, 0), 70u);
    EXPECT_EQ(weiri_env_timeout(&env, 5), 70u);
    EXPECT_EQ(weiri_env_kernel_timeout(&env, 0), 80u);
    EXPECT_EQ(weiri_env_kernel_timeout(&env, 5), 80u);
}

TEST_F(Env, RowsListTheTable)
{
    std::map<std::string, weir_env_row> rows;
    weir_env_row row;
    uint32_t count = 0;
    setenv("WEIR_TIMEOUT_MS", "not checked here", 1);
    while (weir_env_get(count, &row) == WEIR_OK) {
        rows[row.name] = row;
        count++;
        ASSERT_LE(count, 24u);
        EXPECT_EQ(std::string(row.name).rfind("WEIR_", 0), 0u);
        EXPECT_NE(row.help[0], '\0');
    }
    EXPECT_EQ(rows.size(), count);
    EXPECT_EQ(weir_env_get(count, &row), WEIR_ERR_RANGE);
    EXPECT_EQ(weir_env_get(UINT32_MAX, &row), WEIR_ERR_RANGE);
    EXPECT_EQ(weir_env_get(0, nullptr), WEIR_ERR_INVALID);
    ASSERT_EQ(rows.count("WEIR_TIMEOUT_MS"), 1u);
    EXPECT_STREQ(rows["WEIR_TIMEOUT_MS"].type, "timeouts");
    EXPECT_STREQ(rows["WEIR_TIMEOUT_MS"].fallback, "30000,600000");
    EXPECT_STREQ(rows["WEIR_TIMEOUT_MS"].value, "not checked here");
    ASSERT_EQ(rows.count("WEIR_ALLOW_NO_KEY"), 1u);
    EXPECT_STREQ(rows["WEIR_ALLOW_NO_KEY"].type, "bool");
    EXPECT_EQ(rows["WEIR_ALLOW_NO_KEY"].value, nullptr);
}

TEST_F(Env, SecretsAreNotShown)
{
    for (bool set : { false, true }) {
        if (set) {
            setenv("WEIR_KEY", "hush", 1);
            setenv("WEIR_UNIQUE_ID", "hush", 1);
            setenv("WEIR_INTERFACE", "lo", 1);
        }
        int seen = 0;
        weir_env_row row;
        for (uint32_t i = 0; weir_env_get(i, &row) == WEIR_OK; i++) {
            const std::string name = row.name;
            if (name == "WEIR_KEY" || name == "WEIR_UNIQUE_ID") {
                seen++;
                EXPECT_STREQ(row.value, set ? "(secret)" : nullptr);
            } else if (name == "WEIR_INTERFACE") {
                seen++;
                EXPECT_STREQ(row.value, set ? "lo" : nullptr);
            }
        }
        EXPECT_EQ(seen, 3);
    }
}

// Runs in its own process, because a process warns once.
TEST_F(Env, UnknownVariablesAreWarnedOfOnce)
{
    const auto read_twice = [] {
        weiri_env env;
        setenv("WEIR_TIMEOUT", "1", 1); // a prefix of a known name
        setenv("WEIR_KEYS", "hush", 1); // a known name is a prefix
        setenv("WEIR_TEST_SLOW", "1", 1);
        setenv("WEIR_MPI", "report", 1);
        setenv("WEIR_MPI_DEVICE", "cpu:0", 1);
        setenv("WEIR_KEY", "hush", 1);
        setenv("WEIRD", "1", 1);
        static std::string lines;
        weir_log_set_sink(
            [](void *, weir_log_level level, const char *text) {
                lines += std::to_string(static_cast<int>(level)) + " " + text + "\n";
            },
            nullptr);
        const bool ok = weiri_env_read(&env) == WEIR_OK && weiri_env_read(&env) == WEIR_OK;
        std::string first = "1 environment: WEIR_TIMEOUT is set, but weir has no such variable\n";
        std::string second = "1 environment: WEIR_KEYS is set, but weir has no such variable\n";
        std::_Exit(ok && (lines == first + second || lines == second + first) ? 0 : 1);
    };
    EXPECT_EXIT(read_twice(), testing::ExitedWithCode(0), "");
}

} // namespace
