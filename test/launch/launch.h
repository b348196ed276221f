// launch.h - shared by launcher tests: a clean environment, a temporary folder, and running programs; C++.
#ifndef WEIRT_LAUNCH_H
#define WEIRT_LAUNCH_H

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include <sys/stat.h>

#include "test/harness/bootstrap_ranks.h"

extern "C" {
#include "src/host/base/env.h"
}

typedef std::map<std::string, std::string> Variables;

// A fixture with a temporary folder and without the variables of launchers.
class LaunchTest : public BootstrapTest {
protected:
    void SetUp() override
    {
        char name[] = "/tmp/weir-launch-XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        folder_ = name;
        weir_env_row row;
        for (uint32_t i = 0; weir_env_get(i, &row) == WEIR_OK; i++) {
            forget(row.name);
        }
        for (int i = 0; i < WEIRI_LAUNCH_COUNT; i++) {
            forget(weiri_env_launch_name(static_cast<weiri_launch_variable>(i)));
        }
        BootstrapTest::SetUp();
    }

    void TearDown() override
    {
        BootstrapTest::TearDown();
        EXPECT_EQ(std::system(("rm -rf " + folder_).c_str()), 0);
        for (const auto &variable : saved_) {
            setenv(variable.first.c_str(), variable.second.c_str(), 1);
        }
    }

    std::string path(const char *name = "rendezvous") const { return folder_ + "/" + name; }

    const std::string &folder() const { return folder_; }

private:
    void forget(const char *name)
    {
        const char *value = getenv(name);
        if (value != nullptr) {
            saved_[name] = value;
        }
        unsetenv(name);
    }

    std::string folder_;
    Variables saved_;
};

// The output of a command and its exit status as in a shell: 128 and more for a signal.
struct Ended {
    int status;
    std::string text;
    uint64_t ms;

    size_t count(const std::string &part) const
    {
        size_t times = 0;
        for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
            times++;
        }
        return times;
    }
    bool has(const std::string &part) const { return count(part) > 0; }
};

inline Ended weirt_command(const std::string &command, const Variables &variables = {})
{
    Ended ended = { -1, "", weirt_now_ms() };
    std::string line = "exec env";
    for (const auto &variable : variables) {
        line += " '" + variable.first + "=" + variable.second + "'";
    }
    line += " timeout -k 5 " + std::to_string(weirt_timeout_ms() / 1000) + " " + command + " 2>&1 </dev/null";
    FILE *output = popen(line.c_str(), "re");
    if (output == nullptr) {
        return ended;
    }
    char buffer[4096];
    size_t bytes;
    while ((bytes = fread(buffer, 1, sizeof buffer, output)) > 0) {
        ended.text.append(buffer, bytes);
    }
    const int status = pclose(output);
    ended.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    ended.ms = weirt_now_ms() - ended.ms;
    return ended;
}

// The path of a file beside this program, or "" if it is missing.
inline std::string weirt_beside(const std::string &name)
{
    char self[4096];
    const ssize_t bytes = readlink("/proc/self/exe", self, sizeof self);
    if (bytes <= 0) {
        return "";
    }
    const std::string program(self, static_cast<size_t>(bytes));
    const std::string found = program.substr(0, program.rfind('/') + 1) + name;
    return access(found.c_str(), F_OK) == 0 ? found : "";
}

// Why a transport cannot be used here; "" if it can.
inline std::string weirt_transport_missing(const std::string &name)
{
    weir_transport_info info;
    for (uint32_t i = 0; weir_transport_get(i, &info) == WEIR_OK; i++) {
        if (info.name == name) {
            const bool foreign = name != "ipc" && std::string(weirt_sanitizer()) == "thread";
            return foreign ? "its library is not built with the thread sanitizer" : info.works ? "" : info.reason;
        }
    }
    return "this build has no transport " + name;
}

inline std::string weirt_tutorial(const std::string &name)
{
    const std::string found = weirt_beside("../examples/tutorials/" + name);
    EXPECT_NE(found, "") << name;
    return found;
}

#endif
