/* weir/device/collective.h - collectives inside kernels.
 *
 *     typedef struct args { weir_dev_collective collective; weir_collective_reduce sum; } args;
 *
 *     WEIR_KERNEL(allreduce, args)
 *     {
 *         (void)weir_collective_reduce_once(&args->collective, &args->sum, WEIR_F16, WEIR_SUM, coop);
 *     }
 *
 * The host fills the handle (weir_collective_device) and the description (weir_collective_describe). What weir's own
 * kernels do is one call each:
 *
 *     weir_collective_reduce_once      packets, one trip over the link        (impl/collective_packets.h)
 *     weir_collective_reduce_packets   packets, two trips: less data
 *     weir_collective_reduce_lines     the same by 128-byte lines             (impl/collective_lines.h)
 *     weir_collective_reduce_slots     plain stores and signals               (impl/collective_slots.h)
 *     weir_collective_reduce_zero_copy loads from memory that all have registered: weir's own kernels alone
 *     weir_collective_move_packets, ..._lines, ..._slots                      pieces that go from each rank to each
 *
 * Kernels that do something to the data on its way are made of the parts of these: see tutorial 06.
 *
 * Threads:   all threads of the grid call with the same arguments; one call of a collective in a kernel, since the grid
 *            meets at its end alone. Calls of a collective follow each other in one order, the same on all ranks,
 *            whether weir or kernels of users make them.
 * Blocking:  until the other ranks have made the call, with the communicator's deadline.
 * Order:     the results are ordinary memory, visible at the end of the kernel; to the thread that stored them at once.
 * Errors:    WEIR_ERR_MISMATCH when ranks describe different calls, WEIR_ERR_INVALID (lines in blocks that are not
 *            whole warps), WEIR_ERR_TIMEOUT, or the communicator's sticky error; the status is the calling thread's. */
#ifndef WEIR_DEVICE_COLLECTIVE_H
#define WEIR_DEVICE_COLLECTIVE_H

#include "weir/device/impl/collective_lines.h"
#include "weir/device/impl/collective_slots.h"

#endif
