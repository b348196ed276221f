/* weir/device/collective.h - collectives inside kernels.
 *
 *     typedef struct args { weir_dev_collective collective; weir_collective_reduce sum; } args;
 *
 *     WEIR_KERNEL(allreduce, args)
 *     {
 *         (void)weir_collective_reduce_once(&args->collective, &args->sum, WEIR_F16, WEIR_SUM, coop);
 *     }
 *
 * The host fills the handle (weir_collective_device) and the description (weir_collective_describe). weir's own
 * kernels of reductions are calls of the same functions.
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

/* dtype, op: WEIR_F16, ..., WEIR_SUM, ...; the same that weir_collective_describe was called with. Constants give
 * faster code. */

/* Every rank sends all data to the ranks in `to`, which join it: packets, one trip over the link. */
WEIR_FN weir_status weir_collective_reduce_once(const weir_dev_collective *c, const weir_collective_reduce *r,
                                                uint32_t dtype, uint32_t op, weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    const int few = weir_packets_are_few(r->bytes, coop);
    if (c->ranks <= 2) {
        return few ? weir_reduce_once(c, r, 2, 1, dtype, op, coop)
                   : weir_reduce_once(c, r, 2, weir_batch_places(2), dtype, op, coop);
    }
    if (c->ranks <= 4) {
        return few ? weir_reduce_once(c, r, 4, 1, dtype, op, coop)
                   : weir_reduce_once(c, r, 4, weir_batch_places(4), dtype, op, coop);
    }
    return weir_reduce_once(c, r, WEIR_COLLECTIVE_RANKS, 1, dtype, op, coop);
}

/* Each rank joins its part and sends the result to the ranks in `to`: packets, two trips, with less data. */
WEIR_FN weir_status weir_collective_reduce_packets(const weir_dev_collective *c, const weir_collective_reduce *r,
                                                   uint32_t dtype, uint32_t op, weir_coop coop)
{
    return weir_reduce_by_packets(c, r, NULL, dtype, op, coop);
}

/* The same by 128-byte lines; one trip where `to` is 0. WEIR_ERR_INVALID for blocks that are not whole warps. */
WEIR_FN weir_status weir_collective_reduce_lines(const weir_dev_collective *c, const weir_collective_reduce *r,
                                                 uint32_t dtype, uint32_t op, weir_coop coop)
{
    return weir_reduce_by_lines(c, r, NULL, dtype, op, coop);
}

/* The same by plain stores and signals, in rounds. A rank's results of a round reach the others before it stores into
 * their slots again. Its data of a round shows that it has taken the results of two rounds before. */
WEIR_FN weir_status weir_collective_reduce_slots(const weir_dev_collective *c, const weir_collective_reduce *r,
                                                 uint32_t dtype, uint32_t op, weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    const uint32_t others = weir_collective_others(c);
    const int zero_copy = r->peer_recv[c->rank] != NULL;
    const int gathers = !zero_copy && (r->to >> c->rank & 1) != 0;
    const weir_slots_duty duty = weir_reduce_duty_of(c, coop);
    const uint64_t range = weir_slots_range(r->length, duty.columns);
    const uint64_t rounds = weir_slots_rounds(r->length, duty.column, duty.columns, r->chunk);
    const uint64_t first = duty.column * range;
    weir_status status = weir_slots_meet(c, &r->what, NULL, zero_copy, coop);
    for (uint64_t i = 0; i < rounds + 2 && rounds != 0 && status == WEIR_OK; i++) {
        if (duty.sends && i >= 2) {
            status = weir_collective_wait(c, WEIR_CELL_TAKEN, others, duty.column, coop);
            if (status == WEIR_OK && gathers) {
                weir_slots_gather(c, r, i, duty.column, first + (i - 2) * r->chunk,
                                  weir_slots_left(range, i - 2, r->chunk), coop);
            }
        }
        if (duty.sends && i < rounds && status == WEIR_OK) {
            weir_slots_scatter(c, r, i, duty.column, first + i * r->chunk, weir_slots_left(range, i, r->chunk), coop);
            weir_collective_signal(c, WEIR_CELL_DATA, others, duty.column, coop);
        }
        if (duty.takes && i >= 1 && i <= rounds && status == WEIR_OK) {
            status = weir_collective_wait(c, WEIR_CELL_DATA, others, duty.column, coop);
            if (status == WEIR_OK) {
                weir_slots_join_round(c, r, i - 1, duty.column, first + (i - 1) * r->chunk,
                                      weir_slots_left(range, i - 1, r->chunk), dtype, op, coop);
                weir_collective_signal(c, WEIR_CELL_TAKEN, others, duty.column, coop);
            }
        }
    }
    return weir_slots_end(c, status);
}

#endif
