/* weak.h - runs a few threads in a simulated weak memory, in an order that a seed decides.
 *
 * Every word of memory keeps the history of its values, in coherence order. A store may go anywhere after the values
 * that its thread knows, and a load may return any value that is not older than those. So stores to different words
 * become visible in any order, and loads return stale values, as with store buffers and caches. A thread knows its own
 * accesses. An acquire that reads a release's value adds the knowledge of the releasing thread, if both scopes cover
 * the other's device. So do a store behind a release fence, with what its thread knew at the fence, and an acquire
 * fence, for the loads before it. A barrier of a block gives each of its threads the knowledge of all. A value that was
 * overwritten long ago is forgotten, which lets spins end.
 *
 * Conflicting accesses are counted as races unless they are ordered, or both are atomic in a scope that covers the
 * other's device. Loads are not delayed. If a later store of the same thread could be seen before a load is done, this
 * is found as a race with the store that answers.
 *
 * A device has two multiprocessors, which take pairs of threads in turn.
 *
 * One thread runs at a time; at each access the seed decides which thread is next. Time is simulated too: a run depends
 * only on its seed. */
#ifndef WEIRT_WEAK_H
#define WEIRT_WEAK_H

#include <stdint.h>

#if defined(__cplusplus)
extern "C" {
#endif

enum { WEIRT_WEAK_THREADS = 8, WEIRT_WEAK_DEVICES = 4 };

/* Orders that a run leaves out, to show that a program needs them. */
enum {
    WEIRT_WEAK_NO_RELEASE = 1, /* releases are relaxed */
    WEIRT_WEAK_NO_ACQUIRE = 2, /* acquires are relaxed */
    WEIRT_WEAK_NO_SYSTEM = 4,  /* scope SYS is DEV */
    WEIRT_WEAK_NO_BARRIER = 8, /* a block's barrier orders only execution */
    WEIRT_WEAK_NO_ATOMIC = 16  /* a read-modify-write is a load and a store */
};

typedef struct weirt_weak_options {
    uint64_t seed;
    uint32_t without;                    /* WEIRT_WEAK_NO_... */
    uint32_t threads;                    /* 1 to WEIRT_WEAK_THREADS */
    uint32_t device[WEIRT_WEAK_THREADS]; /* device of each thread, below WEIRT_WEAK_DEVICES */
} weirt_weak_options;

typedef struct weirt_weak_report {
    uint64_t races;
    uint64_t steps;
    int stuck;      /* all threads waited at barriers */
    char race[160]; /* the first race */
} weirt_weak_report;

/* The threads of one block, for weir_coop.host. All members but `threads` begin as zero. */
typedef struct weirt_weak_block {
    uint32_t threads;
    uint32_t arrived;
    uint32_t value;
    uint32_t result;
    uint64_t round;
    uint32_t arriving[WEIRT_WEAK_THREADS]; /* knowledge of the threads that have arrived */
    uint32_t known[WEIRT_WEAK_THREADS];    /* knowledge of all threads at the last barrier */
} weirt_weak_block;

/* Calls thread(arg, index) in options->threads threads and returns when all have ended. They take turns on the calling
 * thread, with a stack of 256 KiB each. One run at a time in a process. Afterwards memory holds the newest value of
 * each history. Returns non-zero if the number of threads is out of range. */
int weirt_weak_run(const weirt_weak_options *options, void (*thread)(void *arg, uint32_t index), void *arg,
                   weirt_weak_report *report);

#if defined(__cplusplus)
}
#endif

#endif
