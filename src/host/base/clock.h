/* clock.h - monotonic time and deadlines, waits on condition variables by that time, and threads: all of weir's are
 * created here, so that they block signals. */
#ifndef WEIRI_CLOCK_H
#define WEIRI_CLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

uint64_t weiri_now_ns(void);

static inline uint64_t weiri_deadline(uint32_t timeout_ms) { return weiri_now_ns() + (uint64_t)timeout_ms * 1000000u; }

/* Milliseconds until the deadline, rounded up; 0 when it has passed. */
uint32_t weiri_left_ms(uint64_t deadline_ns);

/* A condition variable on the monotonic clock, and a wait on it. The wait returns false after the deadline. */
int weiri_cond_init(pthread_cond_t *cond);
bool weiri_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t deadline_ns);

/* Starts a thread named `name` (at most 15 characters). All signals are blocked in it except its own faults (SIGSEGV
 * and the like). Returns 0 or an errno value. */
int weiri_thread_create(pthread_t *thread, const char *name, void *(*run)(void *), void *context);

#endif
