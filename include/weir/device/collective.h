/* weir/device/collective.h - collectives inside kernels.
 *
 *     typedef struct args { weir_dev_collective collective; weir_collective_reduce sum; } args;
 *
 *     WEIR_KERNEL(allreduce, args)
 *     {
 *         (void)weir_collective_reduce_once(&args->collective, &args->sum, WEIR_F16, WEIR_SUM, coop);
 *     }
 *
 * The host fills the handle (weir_collective_device) and the description (weir_collective_describe). Each of weir's own
 * kernels is one of these calls:
 *
 *     weir_collective_reduce_once      packets, one trip over the link        (impl/collective_packets.h)
 *     weir_collective_reduce_packets   packets, two trips: less data
 *     weir_collective_reduce_lines     the same by 128-byte lines             (impl/collective_lines.h)
 *     weir_collective_reduce_slots     plain stores and signals               (impl/collective_slots.h)
 *     weir_collective_reduce_zero_copy loads from memory that all ranks have registered; only for weir's own kernels
 *     weir_collective_move_packets, ..._lines, ..._slots                      pieces from each rank to each
 *
 * Kernels that change the data on its way use the parts of these calls: see tutorial 06.
 *
 * Threads:   all threads of the grid call with the same arguments. A kernel makes one call of a collective, because the
 *            grid meets only at its end. Calls of a collective have the same order on all ranks, whether weir's kernels
 *            or users' kernels make them.
 * Blocking:  until the other ranks have made the call, with the communicator's deadline.
 * Order:     a result is visible at once to the thread that stored it, and to all others when the kernel has ended.
 * Errors:    WEIR_ERR_MISMATCH if ranks describe different calls, WEIR_ERR_INVALID (lines in blocks that are not
 *            whole warps), WEIR_ERR_TIMEOUT, or the communicator's sticky error. Threads may get different statuses. */
#ifndef WEIR_DEVICE_COLLECTIVE_H
#define WEIR_DEVICE_COLLECTIVE_H

#include "weir/device/impl/collective_lines.h"
#include "weir/device/impl/collective_slots.h"

#endif
