/* weir/device/impl/grid_barrier_round.h - the rounds of a grid barrier.
 *
 * The word counts arrivals in its upper half and has the poison in its lowest bit. A round adds 2^52 in all: the upper
 * twelve bits count rounds, and a round is full when the lowest of these bits flips. Each block but block 0 adds a
 * single step, and block 0 adds the rest of 2^52. This needs neither a division nor a reset, and a grid may have up to
 * 2^20 blocks. A thread that brings an error, or whose wait ended with one, sets the poison, which stays.
 *
 * Blocking, Errors: as weir/device/grid_barrier.h. */
#ifndef WEIR_DEVICE_IMPL_GRID_BARRIER_ROUND_H
#define WEIR_DEVICE_IMPL_GRID_BARRIER_ROUND_H

#include "weir/device/impl/spin.h"

/* A block that waits for something else delays the others here. Its deadline must pass first, because its error names
 * the cause. So a wait at the barrier lasts this much longer. */
#define WEIR_GRID_BARRIER_GRACE_NS 250000000u

#define WEIR_GRID_BARRIER_ROUND ((uint64_t)1 << 52)
#define WEIR_GRID_BARRIER_STEP ((uint64_t)1 << 32)
#define WEIR_GRID_BARRIER_POISON ((uint64_t)1)

WEIR_STATIC_ASSERT(WEIR_ARCH_LOOK_WAITS <= 4096, "the word counts 4,096 rounds");

/* The check of a round that is due: poisons the barrier, for the next round of all blocks, if the communicator has
 * failed. */
WEIR_FN_COLD weir_status weir_grid_barrier_look(uint64_t *word, weir_dev_control *control)
{
    const weir_status status = weir_dev_control_status(control);
    if (status != WEIR_OK) {
        weir_arch_or_release_dev_u64(word, WEIR_GRID_BARRIER_POISON);
    }
    return status;
}

/* The slow part of a round. Returns the word once its top bit differs from that of `before`. If the wait ends with an
 * error, the word is poisoned: the arrivals are then incomplete, and a later round could seem to be full. */
WEIR_FN_COLD uint64_t weir_grid_barrier_spin(const weir_dev_grid_barrier *barrier, uint64_t before)
{
    weir_spin spin = weir_spin_begin();
    int graced = 0;
    for (;;) {
        uint64_t now = weir_arch_load_acquire_dev_u64(barrier->word);
        if (((before ^ now) & WEIR_GRID_BARRIER_ROUND) != 0) {
            return now;
        }
        const weir_status status = weir_spin_step(&spin, barrier->control);
        if (status == WEIR_SPIN_LATE && !graced) {
            spin.since_ns += WEIR_GRID_BARRIER_GRACE_NS;
            graced = 1;
        } else if (status != WEIR_OK) {
            (void)weir_dev_control_end_wait(barrier->control, status,
                                            weir_dev_note_of(WEIR_DOING_GRID_BARRIER, WEIR_NO_PEER, 0, 0, 0));
            weir_arch_or_release_dev_u64(barrier->word, WEIR_GRID_BARRIER_POISON);
            return now | WEIR_GRID_BARRIER_POISON;
        }
    }
}

/* One round, called by one thread of each block. Returns WEIR_OK. If the barrier is poisoned, returns the
 * communicator's error or WEIR_ERR_ABORTED. */
WEIR_FN weir_status weir_grid_barrier_round(const weir_dev_grid_barrier *barrier, uint32_t block, uint32_t blocks)
{
    const uint64_t steps =
        block == 0 ? WEIR_GRID_BARRIER_ROUND - (blocks - 1) * WEIR_GRID_BARRIER_STEP : WEIR_GRID_BARRIER_STEP;
    const uint64_t before = weir_arch_fetch_add_acq_rel_dev_u64(barrier->word, steps);
    uint64_t now = before + steps;
    uint32_t reads = WEIR_ARCH_FAST_READS;
    WEIR_ROLLED
    while (((before ^ now) & WEIR_GRID_BARRIER_ROUND) == 0) {
        if (weir_spin_is_long(&reads)) {
            now = WEIR_SLOW(weir_grid_barrier_spin(barrier, before));
            break;
        }
        now = weir_arch_load_relaxed_dev_u64(barrier->word);
    }
    weir_arch_acquire_loaded_dev_u64(barrier->word);
    if (WEIR_UNLIKELY((now & WEIR_GRID_BARRIER_POISON) != 0)) {
        return weir_dev_control_error(barrier->control);
    }
    /* All blocks know the number of their round, and block 0 checks for all. */
    const int due = block == 0 && weir_spin_is_due(before / WEIR_GRID_BARRIER_ROUND);
    return WEIR_UNLIKELY(due) ? weir_grid_barrier_look(barrier->word, barrier->control) : WEIR_OK;
}

/* The first thread of each block meets those of the other blocks; the rest of the block waits at its barrier. */
WEIR_FN weir_status weir_grid_barrier_meet(const weir_dev_grid_barrier *barrier, void *host, uint32_t block_rank,
                                           uint32_t block, uint32_t blocks)
{
    weir_status status = WEIR_OK;
    weir_arch_block_sync(host);
    if (block_rank == 0) {
        status = weir_grid_barrier_round(barrier, block, blocks);
    }
    return status;
}

#endif
