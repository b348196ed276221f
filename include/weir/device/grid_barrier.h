/* weir/device/grid_barrier.h - barrier over the blocks of a grid, with a deadline.
 *
 * Kernels meet through weir_coop_sync on a coop whose `barrier` points to a weir_dev_grid_barrier. The grid
 * must be resident as a whole: weir_launch with opts.cooperative checks that.
 *
 * The word holds arrivals in its upper half and the poison in its lowest bit. A round adds 2^31 to the upper
 * half in all, so that its top bit flips with the last arrival: block 0 adds what the single steps of the
 * others leave missing, and neither a division nor a reset is needed. The poison is set by a thread that
 * brings an error or whose wait ended with one, and stays. */
#ifndef WEIR_DEVICE_GRID_BARRIER_H
#define WEIR_DEVICE_GRID_BARRIER_H

#include "weir/device/spin.h"

#define WEIR_GRID_BARRIER_FLIP ((uint64_t)1 << 63)
#define WEIR_GRID_BARRIER_POISON ((uint64_t)1)

/* One round, called by one thread of each block. Returns WEIR_OK, WEIR_ERR_ABORTED when the barrier is
 * poisoned, or the error that ended the wait. */
WEIR_FN weir_status weir_grid_barrier_round(const weir_dev_grid_barrier *barrier, uint32_t block, uint32_t blocks)
{
    uint64_t steps = block == 0 ? 0x80000000u - (blocks - 1) : 1;
    uint64_t before = weir_arch_fetch_add_acq_rel_dev_u64(barrier->word, steps << 32);
    uint64_t now = before + (steps << 32);
    weir_spin spin = weir_spin_begin();
    while (((before ^ now) & WEIR_GRID_BARRIER_FLIP) == 0) {
        now = weir_arch_load_acquire_dev_u64(barrier->word);
        if (((before ^ now) & WEIR_GRID_BARRIER_FLIP) == 0) {
            weir_status status = weir_spin_next(&spin, barrier->control);
            if (WEIR_UNLIKELY(status != WEIR_OK)) {
                /* The arrivals are incomplete: a later round could seem to be full. */
                weir_arch_or_release_sys_u64(barrier->word, WEIR_GRID_BARRIER_POISON);
                return status;
            }
        }
    }
    return WEIR_UNLIKELY((now & WEIR_GRID_BARRIER_POISON) != 0) ? WEIR_ERR_ABORTED : WEIR_OK;
}

#endif
