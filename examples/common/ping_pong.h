/* ping_pong.h - the kernel of tutorials 01 and 02: two ranks pass a signal back and forth. */
#ifndef EXAMPLES_COMMON_PING_PONG_H
#define EXAMPLES_COMMON_PING_PONG_H

#include <weir/device/kernel.h>

/* Counters that the kernel reports: rounds that were played, and signals that came out of turn. */
typedef struct score {
    uint64_t rounds;
    uint64_t out_of_turn;
} score;

/* All that a kernel needs comes in one struct, which weir_launch copies. */
typedef struct ping_pong_args {
    weir_dev_semaphore semaphore;
    uint64_t rank;
    uint64_t rounds;
    score *result;
} ping_pong_args;

/* The rank that has the ball polls a few times: the peer must not signal, because it is not its turn. */
WEIR_FN uint64_t count_early_signals(const weir_dev_semaphore *semaphore, uint64_t polls)
{
    uint64_t early = 0;
    for (uint64_t i = 0; i < polls; i++) {
        early += weir_dev_semaphore_poll(semaphore) == WEIR_OK;
    }
    return early;
}

/* Rank 0 serves: signal, wait, signal, wait ... Rank 1 returns: wait, signal, wait, signal ... Only the order of
 * execution matters. No data goes with the signals, so the cheaper relaxed forms are enough.
 *
 * A rank holds the ball for zero to three polls. If its peer signals without waiting for its turn, a poll finds the
 * signal. */
WEIR_KERNEL(ping_pong, ping_pong_args)
{
    const weir_dev_semaphore *semaphore = &args->semaphore;
    uint64_t early = 0;
    uint64_t round = 0;
    if (coop.rank != 0) {
        return; /* one thread plays */
    }
    for (; round < args->rounds; round++) {
        if (args->rank == 1 && weir_dev_semaphore_wait_relaxed(semaphore) != WEIR_OK) {
            break; /* the deadline passed, or the communicator failed: every wait ends */
        }
        early = count_early_signals(semaphore, (round + args->rank) % 4);
        if (early != 0) {
            break; /* the host sees it, and ends the peer's wait */
        }
        weir_dev_semaphore_signal_relaxed(semaphore);
        if (args->rank == 0 && weir_dev_semaphore_wait_relaxed(semaphore) != WEIR_OK) {
            break;
        }
    }
    args->result->rounds = round;
    args->result->out_of_turn = early;
}

#endif
