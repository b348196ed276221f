// Deadlines, waits with deadlines, and weir's threads.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdint>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/harness/ranks.h"

extern "C" {
#include "src/host/base/clock.h"
}

namespace {

const uint64_t ms = 1000000;
const uint64_t slack = weirt_slack_ms() * ms;

TEST(Clock, LeftIsRoundedUpAndEndsAtZero)
{
    EXPECT_EQ(weiri_left_ms(0), 0u);
    EXPECT_EQ(weiri_left_ms(weiri_now_ns()), 0u);
    const uint32_t left = weiri_left_ms(weiri_deadline(60000));
    EXPECT_LE(left, 60000u);
    EXPECT_GT(left, 30000u);
    EXPECT_EQ(weiri_left_ms(UINT64_MAX), UINT32_MAX);
    /* Zero means passed, so the remaining time of a future deadline is at least 1. */
    const uint64_t deadline = weiri_now_ns() + 20 * ms;
    while (weiri_left_ms(deadline) != 0) {
    }
    EXPECT_GE(weiri_now_ns(), deadline);
}

TEST(Clock, CondWaitEndsAtTheDeadline)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond;
    ASSERT_EQ(weiri_cond_init(&cond), 0);
    const uint64_t start = weiri_now_ns();
    const uint64_t deadline = start + 150 * ms;
    pthread_mutex_lock(&mutex);
    while (weiri_cond_wait(&cond, &mutex, deadline)) {
    }
    EXPECT_FALSE(weiri_cond_wait(&cond, &mutex, start));
    pthread_mutex_unlock(&mutex);
    const uint64_t took = weiri_now_ns() - start;
    EXPECT_GE(took, 150 * ms);
    EXPECT_LT(took, 150 * ms + slack);
    pthread_cond_destroy(&cond);
}

struct shared {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool ready;
};

TEST(Clock, CondWaitIsEndedByASignal)
{
    shared s;
    s.ready = false;
    pthread_mutex_init(&s.mutex, nullptr);
    ASSERT_EQ(weiri_cond_init(&s.cond), 0);
    pthread_t thread;
    ASSERT_EQ(weiri_thread_create(
                  &thread, "signaller",
                  [](void *context) -> void * {
                      shared *me = static_cast<shared *>(context);
                      pthread_mutex_lock(&me->mutex);
                      me->ready = true;
                      pthread_cond_signal(&me->cond);
                      pthread_mutex_unlock(&me->mutex);
                      return nullptr;
                  },
                  &s),
              0);
    const uint64_t deadline = weiri_deadline(30000);
    pthread_mutex_lock(&s.mutex);
    while (!s.ready && weiri_cond_wait(&s.cond, &s.mutex, deadline)) {
    }
    EXPECT_TRUE(s.ready);
    pthread_mutex_unlock(&s.mutex);
    pthread_join(thread, nullptr);
    pthread_cond_destroy(&s.cond);
    pthread_mutex_destroy(&s.mutex);
}

// Signals that a thread's own faults raise.
bool of_a_fault(int signal)
{
    return signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE || signal == SIGILL || signal == SIGTRAP ||
           signal == SIGSYS;
}

TEST(Clock, ThreadsOfOursBlockAllSignalsButThoseOfFaultsAndLeaveTheCallersMask)
{
    sigset_t before;
    sigset_t after;
    sigset_t inside;
    pthread_sigmask(SIG_SETMASK, nullptr, &before);
    pthread_t thread;
    ASSERT_EQ(weiri_thread_create(
                  &thread, "a name that is too long",
                  [](void *context) -> void * {
                      pthread_sigmask(SIG_SETMASK, nullptr, static_cast<sigset_t *>(context));
                      return nullptr;
                  },
                  &inside),
              0);
    pthread_join(thread, nullptr);
    pthread_sigmask(SIG_SETMASK, nullptr, &after);
    for (int signal = 1; signal < 32; signal++) {
        if (signal != SIGKILL && signal != SIGSTOP) {
            EXPECT_EQ(sigismember(&inside, signal), of_a_fault(signal) ? 0 : 1) << signal;
        }
        EXPECT_EQ(sigismember(&after, signal), sigismember(&before, signal)) << signal;
    }
}

// A handler of the program, for example a crash reporter's, sees a fault of weir's thread.
TEST(Clock, AFaultOfAThreadOfOursReachesTheProgramsHandler)
{
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        struct sigaction action = {};
        action.sa_handler = [](int) { _exit(42); };
        (void)sigaction(SIGSEGV, &action, nullptr);
        void *page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        pthread_t thread;
        if (weiri_thread_create(
                &thread, "faulty",
                [](void *at) -> void * {
                    *static_cast<volatile char *>(at) = 1;
                    return nullptr;
                },
                page) == 0) {
            (void)pthread_join(thread, nullptr);
        }
        _exit(1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 42);
}

TEST(Clock, ThreadsOfOursAreNamed)
{
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&gate);
    pthread_t thread;
    ASSERT_EQ(weiri_thread_create(
                  &thread, "weir-name-cut-at-15",
                  [](void *context) -> void * {
                      pthread_mutex_t *mutex = static_cast<pthread_mutex_t *>(context);
                      pthread_mutex_lock(mutex);
                      pthread_mutex_unlock(mutex);
                      return nullptr;
                  },
                  &gate),
              0);
    char name[16] = "";
    EXPECT_EQ(pthread_getname_np(thread, name, sizeof name), 0);
    EXPECT_STREQ(name, "weir-name-cut-a");
    pthread_mutex_unlock(&gate);
    pthread_join(thread, nullptr);
}

} // namespace
