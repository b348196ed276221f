/* weir/device/grid_barrier.h - barrier over the blocks of a grid, with a deadline.
 *
 * Kernels meet through weir_coop_sync on a coop whose `barrier` points to a weir_dev_grid_barrier. The whole grid must
 * be resident: weir_launch with opts.cooperative checks that. A grid may have up to 2^20 blocks.
 *
 * Threads:   all threads of the grid meet. One barrier serves one running kernel at a time.
 * Blocking:  meeting, with the communicator's deadline.
 * Ownership: weir_grid_barrier_device gives the handle. Kernels must not use it after weir_grid_barrier_destroy.
 * Errors:    WEIR_ERR_TIMEOUT, or the communicator's sticky error. After an error the barrier stays closed: all later
 *            meetings there return an error. */
#ifndef WEIR_DEVICE_GRID_BARRIER_H
#define WEIR_DEVICE_GRID_BARRIER_H

#include "weir/device/impl/grid_barrier_round.h"

#undef WEIR_DEV_USED_grid_barrier
#define WEIR_DEV_USED_grid_barrier weir_dev_version_grid_barrier

/* The error with which waits of the communicator end, or WEIR_OK; see weir_dev_semaphore_status. */
WEIR_FN weir_status weir_dev_grid_barrier_status(const weir_dev_grid_barrier *barrier)
{
    return weir_dev_control_status(barrier->control);
}

#endif
