// Log lines: sinks, levels, one line for each event.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <weir/log.h>

extern "C" {
#include "src/host/base/log.h"
}

namespace {

struct lines {
    std::vector<std::string> texts;
    std::vector<weir_log_level> levels;
};

void collect(void *context, weir_log_level level, const char *text)
{
    lines *to = static_cast<lines *>(context);
    to->texts.push_back(text);
    to->levels.push_back(level);
}

// The level is read once in a process, so its tests run in separate processes.
class Log : public testing::Test {
protected:
    void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
    void TearDown() override { weir_log_set_sink(nullptr, nullptr); }
};

void log_at_every_level(const char *setting)
{
    if (setting != nullptr) {
        setenv("WEIR_LOG", setting, 1);
    } else {
        unsetenv("WEIR_LOG");
    }
    for (int level = WEIR_LOG_ERROR; level <= WEIR_LOG_DEBUG; level++) {
        weiri_log(static_cast<weir_log_level>(level), "event %d", level);
    }
    std::_Exit(0);
}

TEST_F(Log, LevelIsThatOfTheEnvironment)
{
    const std::string all[] = { "weir: error: event 0\n", "weir: warn: event 1\n", "weir: info: event 2\n",
                                "weir: debug: event 3\n" };
    const auto upto = [&](int level) {
        std::string expected = "^";
        for (int i = 0; i <= level; i++) {
            expected += all[i];
        }
        return expected + "$";
    };
    EXPECT_EXIT(log_at_every_level(nullptr), testing::ExitedWithCode(0), upto(1));
    EXPECT_EXIT(log_at_every_level("error"), testing::ExitedWithCode(0), upto(0));
    EXPECT_EXIT(log_at_every_level("warn"), testing::ExitedWithCode(0), upto(1));
    EXPECT_EXIT(log_at_every_level("info"), testing::ExitedWithCode(0), upto(2));
    EXPECT_EXIT(log_at_every_level("debug"), testing::ExitedWithCode(0), upto(3));
    EXPECT_EXIT(log_at_every_level("loud"), testing::ExitedWithCode(0), upto(1));
}

TEST_F(Log, SinkGetsLevelAndTextUntilItIsReplaced)
{
    lines first;
    lines second;
    weir_log_set_sink(collect, &first);
    weiri_log(WEIR_LOG_ERROR, "peer %d %s", 3, "died");
    weir_log_set_sink(collect, &second);
    weiri_log(WEIR_LOG_ERROR, "next");
    ASSERT_EQ(first.texts, std::vector<std::string>{ "peer 3 died" });
    EXPECT_EQ(first.levels[0], WEIR_LOG_ERROR);
    ASSERT_EQ(second.texts, std::vector<std::string>{ "next" });
    EXPECT_EQ(second.levels[0], WEIR_LOG_ERROR);
}

TEST_F(Log, NullRestoresStandardError)
{
    const auto body = [] {
        lines got;
        unsetenv("WEIR_LOG");
        weir_log_set_sink(collect, &got);
        weiri_log(WEIR_LOG_WARN, "to the sink");
        weir_log_set_sink(nullptr, nullptr);
        weiri_log(WEIR_LOG_ERROR, "to standard error");
        std::_Exit(got.levels == std::vector<weir_log_level>{ WEIR_LOG_WARN } ? 0 : 1);
    };
    EXPECT_EXIT(body(), testing::ExitedWithCode(0), "^weir: error: to standard error\n$");
}

TEST_F(Log, AnEventIsOneLine)
{
    lines got;
    weir_log_set_sink(collect, &got);
    weiri_log(WEIR_LOG_ERROR, "a%sb", "\nweir: error: forged\r\x1b[2J\x7f\t\xc3\xa4");
    ASSERT_EQ(got.texts, std::vector<std::string>{ "a weir: error: forged  [2J  \xc3\xa4"
                                                   "b" });
}

TEST_F(Log, LongTextIsCutWithDots)
{
    lines got;
    weir_log_set_sink(collect, &got);
    weiri_log(WEIR_LOG_ERROR, "%s", std::string(1023, 'x').c_str());
    weiri_log(WEIR_LOG_ERROR, "%s", std::string(1024, 'x').c_str());
    weiri_log(WEIR_LOG_ERROR, "%s", std::string(9000, 'x').c_str());
    const std::string cut = std::string(1020, 'x') + "...";
    EXPECT_EQ(got.texts, (std::vector<std::string>{ std::string(1023, 'x'), cut, cut }));
}

TEST_F(Log, ErrnoIsKept)
{
    weir_log_set_sink([](void *, weir_log_level, const char *) { errno = EIO; }, nullptr);
    errno = EXDEV;
    weiri_log(WEIR_LOG_ERROR, "event");
    EXPECT_EQ(errno, EXDEV);
}

// The thread that is in the sink at a fork does not exist in the child, but the child can log.
TEST_F(Log, AChildLogsWhileTheParentIsInTheSink)
{
    static std::atomic<bool> entered;
    static std::atomic<bool> released;
    weir_log_set_sink(
        [](void *, weir_log_level, const char *) {
            entered = true;
            while (!released) {
                usleep(1000);
            }
        },
        nullptr);
    std::thread logger([] { weiri_log(WEIR_LOG_ERROR, "event"); });
    while (!entered) {
        usleep(1000);
    }
    const pid_t child = fork();
    if (child == 0) {
        alarm(30);
        released = true;
        weiri_log(WEIR_LOG_ERROR, "event of the child");
        weir_log_set_sink(nullptr, nullptr);
        _exit(0);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    released = true;
    logger.join();
}

// The sink has no lock, so the thread sanitizer finds overlapping calls.
TEST_F(Log, SinkIsCalledOneAtATime)
{
    const int threads = 8;
    const int each = 100;
    lines got;
    weir_log_set_sink(collect, &got);
    std::vector<std::thread> pool;
    for (int t = 0; t < threads; t++) {
        pool.emplace_back([t] {
            for (int i = 0; i < each; i++) {
                weiri_log(WEIR_LOG_ERROR, "thread %d event %d", t, i);
            }
        });
    }
    for (std::thread &thread : pool) {
        thread.join();
    }
    weir_log_set_sink(nullptr, nullptr);
    std::set<std::string> distinct(got.texts.begin(), got.texts.end());
    EXPECT_EQ(got.texts.size(), static_cast<size_t>(threads * each));
    EXPECT_EQ(distinct.size(), static_cast<size_t>(threads * each));
    EXPECT_EQ(distinct.count("thread 7 event 99"), 1u);
}

} // namespace
