// The id of this process: as getpid, in threads and in the children of a fork, with and without handlers of
// pthread_atfork.
#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <linux/filter.h>
#include <linux/seccomp.h>
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

TEST(Process, AllThreadsHaveOneId)
{
    pid_t found[4] = {};
    std::thread threads[4];
    for (int i = 0; i < 4; i++) {
        threads[i] = std::thread([&found, i] { found[i] = weiri_process_id(); });
    }
    for (int i = 0; i < 4; i++) {
        threads[i].join();
        EXPECT_EQ(found[i], getpid());
    }
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
