/* weir/device/impl/collective_direct.h - sums of two ranks directly between buffers of users.
 *
 * The blocks wait for their loads from the peer, and few blocks most of all. The general kernel
 * (weir_collective_reduce_zero_copy) has four loads of a thread under way: it has code for any number of ranks, any
 * operation and any alignment, and 64 registers. Here the data is aligned, and a thread has eight loads under way. The
 * ranks meet as in the general kernel, so one rank may take that one and the other this one. */
#ifndef WEIR_DEVICE_IMPL_COLLECTIVE_DIRECT_H
#define WEIR_DEVICE_IMPL_COLLECTIVE_DIRECT_H

#include "weir/device/impl/collective_slots.h"

#define WEIR_DIRECT_UNITS 4u /* units of 16 bytes of each rank that a thread has under way */

/* The bytes at which a range of this rank's part begins: in the ranks' send, and of its results in their recv. */
typedef struct weir_direct_range {
    uint64_t from;
    uint64_t place;
} weir_direct_range;

/* Stores a sum to byte `place` of recv, here and, if `to` is not 0, at the other rank. */
WEIR_FN void weir_direct_store(const weir_collective_reduce *r, uint64_t place, weir_vec16 sum)
{
    if (r->to == 0) {
        weir_arch_store_vec16((weir_vec16 *)(r->recv + place), sum);
    } else {
        weir_arch_store_vec16((weir_vec16 *)(r->peer_recv[0] + place), sum);
        weir_arch_store_vec16((weir_vec16 *)(r->peer_recv[1] + place), sum);
    }
}

/* The sum of a unit of each rank, times the factor if `op` is WEIR_SCALED_SUM. */
WEIR_FN weir_vec16 weir_direct_sum(weir_vec16 first, weir_vec16 second, uint32_t dtype, uint32_t op, double factor)
{
    weir_vec16 sum;
    if (weir_reduce_is_short(dtype, op)) {
        sum.lo = weir_reduce_two(dtype, first.lo, second.lo);
        sum.hi = weir_reduce_two(dtype, first.hi, second.hi);
        return sum;
    }
    weir_reduction lo;
    weir_reduction hi;
    weir_reduce_first(&lo, dtype, first.lo);
    weir_reduce_first(&hi, dtype, first.hi);
    weir_reduce_next(&lo, dtype, op, second.lo);
    weir_reduce_next(&hi, dtype, op, second.hi);
    sum.lo = weir_collective_last(&lo, dtype, op, 2, factor);
    sum.hi = weir_collective_last(&hi, dtype, op, 2, factor);
    return sum;
}

/* Joins the units at byte `at` of the range and each `step` bytes behind it. The first one, and those that begin within
 * `left` bytes, have data. The loads of the others repeat the first one, so that all loads go out together. */
WEIR_FN void weir_direct_join_units(const weir_collective_reduce *r, const weir_direct_range *range, uint64_t at,
                                    uint32_t step, uint64_t left, uint32_t dtype, uint32_t op, double factor)
{
    weir_vec16 sums[WEIR_DIRECT_UNITS];
    weir_vec16 second[WEIR_DIRECT_UNITS];
    WEIR_UNROLL
    for (uint32_t k = 0; k < WEIR_DIRECT_UNITS; k++) {
        const uint64_t place = range->from + at + (k * (uint64_t)step < left ? k * (uint64_t)step : 0);
        sums[k] = weir_arch_load_vec16((const weir_vec16 *)(r->peer_send[0] + place));
        second[k] = weir_arch_load_vec16((const weir_vec16 *)(r->peer_send[1] + place));
    }
    WEIR_UNROLL
    for (uint32_t k = 0; k < WEIR_DIRECT_UNITS; k++) {
        sums[k] = weir_direct_sum(sums[k], second[k], dtype, op, factor);
        if (k * (uint64_t)step < left) {
            weir_direct_store(r, range->place + at + k * (uint64_t)step, sums[k]);
        }
    }
}

/* Joins the last `left` bytes, fewer than 16, at byte `at` of the range. */
WEIR_FN_COLD void weir_direct_join_end(const weir_collective_reduce *r, weir_direct_range range, uint64_t at,
                                       int64_t left, uint32_t dtype, uint32_t op, double factor)
{
    const weir_vec16 first = weir_pair_load(r->peer_send[0] + range.from + at, left);
    const weir_vec16 second = weir_pair_load(r->peer_send[1] + range.from + at, left);
    const weir_vec16 sum = weir_direct_sum(first, second, dtype, op, factor);
    WEIR_ROLLED
    for (uint32_t k = 0; k < (r->to == 0 ? 1 : 2); k++) {
        weir_pair_store((r->to == 0 ? r->recv : r->peer_recv[k]) + range.place + at, left, sum);
    }
}

/* Joins `left` bytes by the calling block. */
WEIR_FN void weir_direct_join(const weir_collective_reduce *r, const weir_direct_range *range, int64_t left,
                              uint32_t dtype, uint32_t op, double factor, weir_coop coop)
{
    const uint32_t step = 16 * coop.block_size;
    const uint64_t bytes = left < 0 ? 0 : (uint64_t)left / 16 * 16;
    uint64_t at = 16 * (uint64_t)coop.block_rank;
    WEIR_ROLLED
    for (; at < bytes; at += WEIR_DIRECT_UNITS * (uint64_t)step) {
        weir_direct_join_units(r, range, at, step, bytes - at, dtype, op, factor);
    }
    if (WEIR_UNLIKELY(left % 16 > 0 && coop.block_rank == 0)) {
        weir_direct_join_end(r, *range, bytes, left % 16, dtype, op, factor);
    }
}

/* Like weir_collective_reduce_zero_copy, of a sum of two ranks, in which each block has a range. `dtype` and `op`,
 * WEIR_SUM or WEIR_SCALED_SUM, are constants. All of send, recv, part, and the ranks' memory in peer_send and peer_recv
 * are multiples of 16. `to` is 0, or both ranks. */
WEIR_FN weir_status weir_collective_sum_direct(const weir_dev_collective *c, const weir_collective_reduce *r,
                                               uint32_t dtype, uint32_t op, weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    const weir_status status = weir_slots_meet(c, &r->what, NULL, 1, coop);
    if (status != WEIR_OK) {
        return weir_slots_end(c, status);
    }
    const uint64_t each = weir_slots_range(r->length, coop.blocks);
    const uint64_t at = coop.block * each;
    const weir_direct_range range = { c->rank * r->part + at, weir_slots_place(c, r, at) };
    weir_direct_join(r, &range, weir_slots_part_left(r, c->rank, at, (int64_t)each), dtype, op,
                     weir_factor_value(&c->factor, dtype, op), coop);
    return weir_slots_end(c, weir_zero_copy_end(c, coop));
}

#endif
