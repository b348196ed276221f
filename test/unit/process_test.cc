// The id of this process: as getpid, in threads and in the children of a fork, with and without handlers of
// pthread_atfork.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

extern "C" {
#include "src/host/base/process.h"
}

namespace {

pid_t fork_by_the_c_library() { return fork(); }

// No handler of pthread_atfork runs.
pid_t fork_by_the_kernel() { return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)); }

// The child asks twice, and so does its own child: 0 if all have their own ids.
int ask_in_children(pid_t (*fork_once)(), int generations)
{
    if (weiri_process_id() != getpid() || weiri_process_id() != getpid()) {
        return 1;
    }
    if (generations == 0) {
        return 0;
    }
    const pid_t child = fork_once();
    if (child == 0) {
        _exit(ask_in_children(fork_once, generations - 1));
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) {
        return 2;
    }
    return weiri_process_id() == getpid() ? WEXITSTATUS(status) : 3;
}

TEST(Process, ChildrenOfAForkHaveTheirOwnIds) { EXPECT_EQ(ask_in_children(fork_by_the_c_library, 2), 0); }

TEST(Process, ForksThatRunNoHandlersCount) { EXPECT_EQ(ask_in_children(fork_by_the_kernel, 2), 0); }

// In a process whose threads all ask for the first time, at the same moment.
TEST(Process, AllThreadsHaveOneId)
{
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        std::atomic<int> wrong = 0;
        std::atomic<int> waiting = 0;
        std::thread threads[4];
        for (std::thread &thread : threads) {
            thread = std::thread([&] {
                waiting++;
                while (waiting < 4) {
                    std::this_thread::yield();
                }
                wrong += weiri_process_id() != getpid();
            });
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
        _exit(wrong);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

bool pages_are_wiped()
{
    void *page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const bool wiped = madvise(page, 4096, -1) != 0 && madvise(page, 4096, MADV_WIPEONFORK) == 0;
    munmap(page, 4096);
    return wiped;
}

// A filter of system calls refuses getpid from here on.
bool refuse_getpid()
{
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter = { sizeof program / sizeof program[0], program };
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(Process, TheKernelIsAskedOnce)
{
    if (!pages_are_wiped()) {
        GTEST_SKIP() << "this kernel wipes no pages at a fork";
    }
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        const pid_t id = weiri_process_id();
        if (!refuse_getpid() || getpid() == id) {
            _exit(2);
        }
        _exit(weiri_process_id() == id ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    if (WEXITSTATUS(status) == 2) {
        GTEST_SKIP() << "no filters of system calls here";
    }
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

} // namespace
