// Pages of host memory: huge ones or a log line that says why not, the first touch by threads, and its errors.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
#include "src/host/base/error.h"
#include "src/host/base/log.h"
#include "src/host/base/pages.h"
#include "test/harness/ranks.h"
#include "weir/log.h"
}

namespace {

constexpr uint64_t HUGE_BYTES = 2 << 20;

class Pages : public ::testing::Test {
protected:
    void SetUp() override
    {
        setenv("WEIR_LOG", "info", 1);
        weir_log_set_sink(
            [](void *context, weir_log_level level, const char *text) {
                EXPECT_EQ(level, WEIR_LOG_INFO);
                static_cast<std::vector<std::string> *>(context)->push_back(text);
            },
            &lines);
        weiri_log(WEIR_LOG_INFO, "probe");
        if (lines.empty()) {
            GTEST_SKIP() << "another case of this process has read WEIR_LOG; run by itself, this one sees the log";
        }
        lines.clear();
    }
    void TearDown() override
    {
        weir_log_set_sink(nullptr, nullptr);
        unsetenv("WEIR_LOG");
    }
    std::vector<std::string> lines;
};

uint64_t size_of(int fd)
{
    struct stat state;
    return fstat(fd, &state) == 0 ? static_cast<uint64_t>(state.st_size) : 0;
}

// How many of the system's pages of the mapping exist.
size_t resident(void *map, uint64_t bytes)
{
    const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> found((bytes + page - 1) / page);
    size_t count = 0;
    if (mincore(map, bytes, found.data()) == 0) {
        for (unsigned char one : found) {
            count += one & 1;
        }
    }
    return count;
}

TEST_F(Pages, OfTheSystemUnlessAsked)
{
    int fd = -1;
    uint64_t bytes = 5000;
    ASSERT_EQ(weiri_pages_create("memory", false, &bytes, F_SEAL_SHRINK, &fd), WEIR_OK) << weir_last_error();
    EXPECT_EQ(bytes, 8192u);
    EXPECT_EQ(size_of(fd), 8192u);
    EXPECT_EQ(fcntl(fd, F_GET_SEALS), F_SEAL_SHRINK);
    EXPECT_TRUE(lines.empty());
    close(fd);
}

// Either there are huge pages and the file is made of them, or a line names the reason and the file is an ordinary one.
TEST_F(Pages, HugeOrAReason)
{
    int fd = -1;
    uint64_t bytes = HUGE_BYTES + 1;
    ASSERT_EQ(weiri_pages_create("memory: allocate 2097153 bytes", true, &bytes, F_SEAL_SHRINK, &fd), WEIR_OK)
        << weir_last_error();
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_EQ(lines[0].find("memory: allocate 2097153 bytes: "), 0u) << lines[0];
    const bool huge = lines[0].find("no pages of 2 MiB") == std::string::npos;
    EXPECT_NE(lines[0].find(huge ? ": 2 pages of 2 MiB" : ": pages of 4096 bytes; no pages of 2 MiB: "),
              std::string::npos)
        << lines[0];
    EXPECT_EQ(bytes, huge ? 2 * HUGE_BYTES : HUGE_BYTES + 4096);
    EXPECT_EQ(size_of(fd), bytes);
    EXPECT_EQ(fcntl(fd, F_GET_SEALS), F_SEAL_SHRINK);
    void *map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ASSERT_NE(map, MAP_FAILED);
    memset(map, 1, bytes);
    munmap(map, bytes);
    close(fd);
}

// No system has 4 TiB of huge pages free.
TEST_F(Pages, TooManyHugePagesBecomeOrdinaryOnes)
{
    int fd = -1;
    uint64_t bytes = UINT64_C(4) << 40;
    ASSERT_EQ(weiri_pages_create("memory", true, &bytes, F_SEAL_SHRINK, &fd), WEIR_OK) << weir_last_error();
    EXPECT_EQ(bytes, UINT64_C(4) << 40);
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_NE(lines[0].find("no pages of 2 MiB: memory: "), std::string::npos) << lines[0];
    close(fd);
}

TEST_F(Pages, SizesThatNoFileHas)
{
    int fd = -1;
    for (uint64_t bytes : { UINT64_MAX, static_cast<uint64_t>(INT64_MAX) }) {
        for (bool huge : { false, true }) {
            uint64_t wanted = bytes;
            EXPECT_EQ(weiri_pages_create("memory", huge, &wanted, 0, &fd), WEIR_ERR_NOMEM);
            EXPECT_EQ(wanted, bytes);
        }
    }
    EXPECT_EQ(fd, -1);
}

TEST_F(Pages, ThreadsTouchEveryPage)
{
    for (uint32_t threads : { 0u, 1u, 2u, 7u, WEIRI_TOUCH_THREADS_MAX }) {
        for (uint64_t size : { UINT64_C(1), HUGE_BYTES, 9 * HUGE_BYTES + 4096 }) {
            int fd = -1;
            uint64_t bytes = size;
            ASSERT_EQ(weiri_pages_create("memory", false, &bytes, 0, &fd), WEIR_OK);
            char *map = static_cast<char *>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
            ASSERT_NE(static_cast<void *>(map), MAP_FAILED);
            ASSERT_EQ(weiri_pages_touch("memory", map, bytes, threads), WEIR_OK) << weir_last_error();
            EXPECT_EQ(resident(map, bytes), threads == 0 ? 0 : bytes / 4096) << threads << " threads, " << size;
            for (uint64_t i = 0; i < bytes; i++) {
                ASSERT_EQ(map[i], 0);
            }
            munmap(map, bytes);
            close(fd);
        }
    }
}

TEST_F(Pages, TouchOfWhatIsNotMappedFails)
{
    const uint64_t bytes = 3 * HUGE_BYTES;
    char *map = static_cast<char *>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(static_cast<void *>(map), MAP_FAILED);
    munmap(map + HUGE_BYTES, HUGE_BYTES);
    const weir_status status = weiri_pages_touch("memory: allocate 6 MiB", map, bytes, 3);
    EXPECT_EQ(status, WEIR_ERR_NOMEM) << "Linux before 5.14 ends the process here";
    EXPECT_EQ(std::string(weir_last_error()).find("memory: allocate 6 MiB: touch its pages: "), 0u)
        << weir_last_error();
    munmap(map, bytes);
}

// A thread that cannot be started leaves its part to the caller.
TEST_F(Pages, TouchWithoutThreads)
{
    if (weirt_sanitizer()[0] != '\0') {
        GTEST_SKIP() << "a sanitizer needs address space";
    }
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        const uint64_t bytes = 5 * HUGE_BYTES;
        void *map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        struct rlimit limit = { 1, 1 }; // no room for a thread's stack
        (void)setrlimit(RLIMIT_AS, &limit);
        _exit(weiri_pages_touch("memory", map, bytes, 5) == WEIR_OK && resident(map, 4096) == 1 ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST_F(Pages, LimitOfLockedMemoryIsNamed)
{
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        char text[WEIRI_LOCK_LIMIT_BYTES];
        struct rlimit limit = { 64 << 10, 64 << 10 };
        (void)setrlimit(RLIMIT_MEMLOCK, &limit);
        weiri_pages_lock_limit(text, sizeof text);
        _exit(strstr(text, "; RLIMIT_MEMLOCK allows 64 KiB ") == text && strstr(text, "memlock=-1") != nullptr ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

} // namespace
