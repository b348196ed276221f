// Files beyond the limit of file sizes (ulimit -f) are errors, and the process goes on.
#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
#include "src/host/base/error.h"
#include "src/host/base/file.h"
}

namespace {

constexpr uint64_t LIMIT = 65536;

void limit_files()
{
    struct rlimit limit = { LIMIT, LIMIT };
    (void)setrlimit(RLIMIT_FSIZE, &limit);
}

bool xfsz_pending()
{
    sigset_t pending;
    return sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
}

bool xfsz_blocked()
{
    sigset_t mask;
    return pthread_sigmask(SIG_SETMASK, nullptr, &mask) == 0 && sigismember(&mask, SIGXFSZ) == 1;
}

// Runs `body` in a child with the limit; it returns 0 or the number of the failed check.
void in_a_limited_child(int (*body)())
{
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        limit_files();
        _exit(body());
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

int allocate_memfds()
{
    int fd = -1;
    if (weiri_memfd_create("memory", LIMIT + 1, F_SEAL_SHRINK, &fd) != WEIR_ERR_SYSTEM) {
        return 1;
    }
    if (std::strcmp(weir_last_error(), "memory: files of this process may have 65536 bytes at most (ulimit -f)") != 0) {
        return 2;
    }
    if (xfsz_pending() || xfsz_blocked()) {
        return 3;
    }
    struct stat info;
    if (weiri_memfd_create("memory", LIMIT, F_SEAL_SHRINK, &fd) != WEIR_OK || fstat(fd, &info) != 0 ||
        info.st_size != (off_t)LIMIT || fcntl(fd, F_GET_SEALS) != F_SEAL_SHRINK) {
        return 4;
    }
    return 0;
}

int write_files()
{
    char name[] = "/tmp/weir-file-test-XXXXXX";
    int fd = mkstemp(name);
    (void)unlink(name);
    static char data[LIMIT + 100];
    if (weiri_file_write(fd, data, sizeof data) != (ssize_t)LIMIT) {
        return 1; // as much as fits
    }
    if (weiri_file_write(fd, data, 1) != -1 || errno != EFBIG) {
        return 2;
    }
    return xfsz_pending() || xfsz_blocked() ? 3 : 0;
}

// A signal that was pending before belongs to the program and stays pending.
int keep_the_programs_own()
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    raise(SIGXFSZ);
    int fd = -1;
    if (weiri_memfd_create("memory", LIMIT + 1, 0, &fd) != WEIR_ERR_SYSTEM) {
        return 1;
    }
    return xfsz_pending() && xfsz_blocked() ? 0 : 2;
}

TEST(File, MemoryBeyondTheLimitIsAnError) { in_a_limited_child(allocate_memfds); }
TEST(File, AWriteBeyondTheLimitIsAnError) { in_a_limited_child(write_files); }
TEST(File, ASignalOfTheProgramStays) { in_a_limited_child(keep_the_programs_own); }

} // namespace
