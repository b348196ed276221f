/* weak.h - runs a few threads in a simulated weak memory, in an order that a seed decides.
 *
 * Every word of memory keeps the history of its values, in coherence order. A store may take any place there that is
 * not before what its thread knows, and a load may return any value that is not older than that: so stores to
 * different words become visible in any order, and loads return stale values, as with store buffers and caches. A
 * thread knows what it did itself, and what was known to a release whose value it read with an acquire, both in a
 * scope that holds the other's device; and what was known to all threads at a barrier of its block. A value that was
 * overwritten long ago is forgotten, so that spins end.
 *
 * Beside that, accesses that conflict and are neither ordered nor both atomic in a scope that holds the other's
 * device are counted as races. Loads are not delayed: that a later store of the same thread could be seen before a
 * load is done is found as a race with the store that answers.
 *
 * One thread runs at a time; at each access the seed decides who is next. Time is simulated too, so a run depends on
 * its seed alone. */
#ifndef WEIRT_WEAK_H
#define WEIRT_WEAK_H

#include <stdint.h>

#if defined(__cplusplus)
extern "C" {
#endif

enum { WEIRT_WEAK_THREADS = 8, WEIRT_WEAK_DEVICES = 4 };

/* Orders that a run leaves out, to see that a program needs them. */
enum {
    WEIRT_WEAK_NO_RELEASE = 1, /* releases are relaxed */
    WEIRT_WEAK_NO_ACQUIRE = 2, /* acquires are relaxed */
    WEIRT_WEAK_NO_SYSTEM = 4,  /* scope SYS is DEV */
    WEIRT_WEAK_NO_BARRIER = 8, /* a block's barrier orders execution alone */
    WEIRT_WEAK_NO_ATOMIC = 16  /* a read-modify-write is a load and a store */
};

typedef struct weirt_weak_options {
    uint64_t seed;
    uint32_t without;                    /* WEIRT_WEAK_NO_... */
    uint32_t threads;                    /* 1 to WEIRT_WEAK_THREADS */
    uint32_t device[WEIRT_WEAK_THREADS]; /* of each thread, below WEIRT_WEAK_DEVICES */
} weirt_weak_options;

typedef struct weirt_weak_report {
    uint64_t races;
    uint64_t steps;
    int stuck;      /* all threads waited at barriers */
    char race[160]; /* the first */
} weirt_weak_report;

/* The threads of one block, for weir_coop.host. Zero all but `threads`. */
typedef struct weirt_weak_block {
    uint32_t threads;
    uint32_t arrived;
    uint32_t value;
    uint32_t result;
    uint64_t round;
    uint32_t arriving[WEIRT_WEAK_THREADS]; /* what the threads that have arrived know */
    uint32_t known[WEIRT_WEAK_THREADS];    /* what all knew at the last barrier */
} weirt_weak_block;

/* Calls thread(arg, index) in options->threads threads and returns when all have. One run at a time in a process.
 * Memory holds afterwards what is newest in each history. Non-zero when threads cannot be made. */
int weirt_weak_run(const weirt_weak_options *options, void (*thread)(void *arg, uint32_t index), void *arg,
                   weirt_weak_report *report);

#if defined(__cplusplus)
}
#endif

#endif
