/* clock.c - monotonic time, condition variables on it, and threads. */
#define _GNU_SOURCE 1

#include "src/host/base/clock.h"

#include <signal.h>
#include <stdio.h>
#include <time.h>

#define NS_PER_S 1000000000u
#define NS_PER_MS 1000000u

uint64_t weiri_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

uint32_t weiri_left_ms(uint64_t deadline_ns)
{
    uint64_t now = weiri_now_ns();
    if (now >= deadline_ns) {
        return 0;
    }
    uint64_t ms = (deadline_ns - now - 1) / NS_PER_MS + 1;
    return ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
}

int weiri_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;
    int error = pthread_condattr_init(&attributes);
    if (error != 0) {
        return error;
    }
    error = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (error == 0) {
        error = pthread_cond_init(cond, &attributes);
    }
    (void)pthread_condattr_destroy(&attributes);
    return error;
}

bool weiri_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t deadline_ns)
{
    struct timespec deadline = {
        .tv_sec = (time_t)(deadline_ns / NS_PER_S),
        .tv_nsec = (long)(deadline_ns % NS_PER_S),
    };
    /* An error counts as a timeout, because a loop around the wait would spin on it. */
    return pthread_cond_timedwait(cond, mutex, &deadline) == 0;
}

int weiri_thread_create(pthread_t *thread, const char *name, void *(*run)(void *), void *context)
{
    /* A thread's own faults. If they were blocked, the kernel would kill the process without running its handler. */
    static const int own[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS };
    sigset_t blocked;
    sigset_t before;
    (void)sigfillset(&blocked);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        (void)sigdelset(&blocked, own[i]);
    }
    /* A new thread inherits the mask. */
    int error = pthread_sigmask(SIG_SETMASK, &blocked, &before);
    if (error != 0) {
        return error;
    }
    error = pthread_create(thread, NULL, run, context);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0) {
        char short_name[16];
        (void)snprintf(short_name, sizeof short_name, "%s", name);
        (void)pthread_setname_np(*thread, short_name); /* for debuggers only: a failure does not matter */
    }
    return error;
}
