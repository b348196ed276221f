/* weir/device/impl/collective_join.h - joins the data of all ranks that a block finds in slots, or in the ranks'
 * memory: loads, reductions and stores of 16 bytes. */
#ifndef WEIR_DEVICE_IMPL_COLLECTIVE_JOIN_H
#define WEIR_DEVICE_IMPL_COLLECTIVE_JOIN_H

#include "weir/device/impl/collective_packets.h"

/* The data that a block joins, and the places of the results. */
typedef struct weir_slots_work {
    const char *own;   /* this rank's data */
    const char *in;    /* the others' data in slots, */
    char *const *pull; /* or the mapping of each rank's `send`; NULL with slots */
    uint64_t pulled;   /* first byte that is joined */
    char *out;         /* the results in this rank's recv; NULL: it keeps none */
    uint32_t to;       /* a bit for each rank that gets the results; this rank's is not used */
    char *const *recv; /* the mapping of each rank's recv, or NULL for a rank whose recv is not mapped here */
    uint64_t place;    /* of the results in the ranks' recv */
    uint64_t slot;     /* of the results in the memory of a rank whose recv is not mapped here */
} weir_slots_work;

/* The places of 16 bytes that a thread joins at once: `count` places from byte `at` of the work on, whose `left` bytes
 * from there on are data. The lanes of a warp take neighbouring places, so a thread's next place follows a warp later.
 */
typedef struct weir_slots_places {
    uint64_t at;
    int64_t left;
    uint32_t count;
    int whole; /* each of them is complete or behind the end, and aligned everywhere */
    int full;  /* none of them is behind the end */
} weir_slots_places;

/* As many loads in flight as registers allow: elements of 8 bits are wide while they are joined. */
#define WEIR_SLOTS_PLACES 2u

WEIR_FN uint32_t weir_slots_places_of(uint32_t dtype) { return weir_dtype_bytes(dtype) == 1 ? 1 : WEIR_SLOTS_PLACES; }

/* The data of a rank. */
WEIR_FN const char *weir_slots_from(const weir_dev_collective *c, const weir_slots_work *w, uint32_t rank)
{
    return rank == c->rank ? w->own : w->pull != NULL ? w->pull[rank] + w->pulled : w->in + rank * c->slot_bytes;
}

/* Whether place n has data. */
WEIR_FN int weir_slots_has(const weir_slots_places *p, uint32_t n)
{
    return n < p->count && (p->full || (int64_t)(n * 16 * weir_arch_warp_size()) < p->left);
}

WEIR_FN void weir_slots_load(const weir_slots_places *p, const char *from, weir_vec16 *data)
{
    const char *at = from + p->at;
    WEIR_UNROLL
    for (uint32_t n = 0; n < WEIR_SLOTS_PLACES; n++) {
        const uint32_t skipped = n * 16 * weir_arch_warp_size();
        if (weir_slots_has(p, n)) {
            data[n] = p->whole ? weir_arch_load_vec16((const weir_vec16 *)(at + skipped))
                               : weir_pair_load(at + skipped, p->left - (int64_t)skipped);
        }
    }
}

WEIR_FN void weir_slots_join_next(weir_reduction *lo, weir_reduction *hi, uint32_t count, uint32_t dtype, uint32_t op,
                                  const weir_vec16 *data)
{
    WEIR_UNROLL
    for (uint32_t n = 0; n < WEIR_SLOTS_PLACES; n++) {
        if (n < count) {
            weir_reduce_next(&lo[n], dtype, op, data[n].lo);
            weir_reduce_next(&hi[n], dtype, op, data[n].hi);
        }
    }
}

/* The places of two ranks are loaded before the first are joined. */
WEIR_FN void weir_slots_join_all(const weir_dev_collective *c, const weir_slots_work *w, const weir_slots_places *p,
                                 uint32_t dtype, uint32_t op, weir_vec16 *even, weir_vec16 *odd)
{
    weir_reduction lo[WEIR_SLOTS_PLACES];
    weir_reduction hi[WEIR_SLOTS_PLACES];
    WEIR_UNROLL
    for (uint32_t n = 0; n < WEIR_SLOTS_PLACES; n++) {
        if (n < p->count) {
            weir_reduce_first(&lo[n], dtype, even[n].lo);
            weir_reduce_first(&hi[n], dtype, even[n].hi);
        }
    }
    if (c->ranks > 1) {
        weir_slots_join_next(lo, hi, p->count, dtype, op, odd);
    }
    WEIR_ROLLED
    for (uint32_t k = 2; k < c->ranks; k += 2) {
        const int two = k + 1 < c->ranks;
        weir_slots_load(p, weir_slots_from(c, w, k), even);
        if (two) {
            weir_slots_load(p, weir_slots_from(c, w, k + 1), odd);
        }
        weir_slots_join_next(lo, hi, p->count, dtype, op, even);
        if (two) {
            weir_slots_join_next(lo, hi, p->count, dtype, op, odd);
        }
    }
    const double factor = weir_factor_value(&c->factor, dtype, op);
    WEIR_UNROLL
    for (uint32_t n = 0; n < WEIR_SLOTS_PLACES; n++) {
        if (n < p->count) {
            even[n].lo = weir_collective_last(&lo[n], dtype, op, c->ranks, factor);
            even[n].hi = weir_collective_last(&hi[n], dtype, op, c->ranks, factor);
        }
    }
}

WEIR_FN void weir_slots_join_places(const weir_dev_collective *c, const weir_slots_work *w, const weir_slots_places *p,
                                    uint32_t dtype, uint32_t op, weir_vec16 *joined)
{
    weir_vec16 odd[WEIR_SLOTS_PLACES];
    WEIR_PARTLY_SET(odd);
    weir_slots_load(p, weir_slots_from(c, w, 0), joined);
    if (c->ranks > 1) {
        weir_slots_load(p, weir_slots_from(c, w, 1), odd);
    }
    if (!weir_reduce_is_short(dtype, op) || c->ranks != 2) {
        weir_slots_join_all(c, w, p, dtype, op, joined, odd);
        return;
    }
    WEIR_UNROLL
    for (uint32_t n = 0; n < WEIR_SLOTS_PLACES; n++) {
        if (n < p->count) {
            joined[n].lo = weir_reduce_two(dtype, joined[n].lo, odd[n].lo);
            joined[n].hi = weir_reduce_two(dtype, joined[n].hi, odd[n].hi);
        }
    }
}

WEIR_FN void weir_slots_store(const weir_slots_places *p, char *to, const weir_vec16 *joined)
{
    char *at = to + p->at;
    WEIR_UNROLL
    for (uint32_t n = 0; n < WEIR_SLOTS_PLACES; n++) {
        const uint32_t skipped = n * 16 * weir_arch_warp_size();
        if (!weir_slots_has(p, n)) {
            continue;
        }
        if (p->whole) {
            weir_arch_store_vec16((weir_vec16 *)(at + skipped), joined[n]);
        } else {
            weir_pair_store(at + skipped, p->left - (int64_t)skipped, joined[n]);
        }
    }
}

WEIR_FN void weir_slots_join_and_store(const weir_dev_collective *c, const weir_slots_work *w,
                                       const weir_slots_places *p, uint32_t dtype, uint32_t op)
{
    weir_vec16 joined[WEIR_SLOTS_PLACES];
    WEIR_PARTLY_SET(joined);
    weir_slots_join_places(c, w, p, dtype, op, joined);
    WEIR_ROLLED
    for (uint32_t k = 0; k + 1 < c->ranks && w->to != 0; k++) {
        const uint32_t peer = weir_collective_peer(c, k);
        if ((w->to >> peer & 1) != 0) {
            weir_slots_store(p, w->recv[peer] != NULL ? w->recv[peer] + w->place : c->memory[peer] + w->slot, joined);
        }
    }
    if (w->out != NULL) {
        weir_slots_store(p, w->out, joined);
    }
}

/* The OR of the low bits of the addresses of all user memory that takes part: 0 if all of it is aligned. */
WEIR_FN uintptr_t weir_slots_bits(const weir_dev_collective *c, const weir_slots_work *w)
{
    uintptr_t bits = (uintptr_t)w->own | (uintptr_t)w->out;
    WEIR_ROLLED
    for (uint32_t k = 0; k < c->ranks; k++) {
        bits |= w->to != 0 && w->recv[k] != NULL ? (uintptr_t)w->recv[k] + w->place : 0;
        bits |= w->pull != NULL ? (uintptr_t)w->pull[k] + w->pulled : 0;
    }
    return bits & 15;
}

/* Joins `left` bytes, by the calling block: all places of all warps at once, and then, of data that is misaligned or
 * ends within 16 bytes, one place of each thread. */
WEIR_FN void weir_slots_join_as(const weir_dev_collective *c, const weir_slots_work *w, int64_t left, uint32_t dtype,
                                uint32_t op, weir_coop coop)
{
    const uint32_t lanes = weir_arch_warp_size();
    const uint32_t row = 16 * coop.block_size;
    const uint32_t step = row * weir_slots_places_of(dtype);
    weir_slots_places p;
    p.count = weir_slots_places_of(dtype);
    p.at = 16 * (uint64_t)(coop.block_rank / lanes * lanes * p.count + coop.block_rank % lanes);
    p.whole = 1;
    p.full = 1;
    uint64_t done = 0;
    if (coop.block_size % lanes == 0 && weir_slots_bits(c, w) == 0) {
        WEIR_ROLLED
        for (; left >= (int64_t)step; left -= step) {
            weir_slots_join_and_store(c, w, &p, dtype, op);
            p.at += step;
            done += step;
        }
        p.left = left / 16 * 16 + (int64_t)done - (int64_t)p.at;
        p.full = 0;
        if (left >= 16) {
            weir_slots_join_and_store(c, w, &p, dtype, op);
            done += (uint64_t)left / 16 * 16;
            left %= 16;
        }
    }
    p.at = done + 16 * (uint64_t)coop.block_rank;
    p.left = left - 16 * (int64_t)coop.block_rank;
    p.count = 1;
    p.whole = 0;
    p.full = 1;
    WEIR_ROLLED
    for (; p.left > 0; p.left -= row) {
        weir_slots_join_and_store(c, w, &p, dtype, op);
        p.at += row;
    }
}

/* Sums with a factor have a loop to themselves: the other operations keep their registers. */
WEIR_FN void weir_slots_join(const weir_dev_collective *c, const weir_slots_work *w, int64_t left, uint32_t dtype,
                             uint32_t op, weir_coop coop)
{
    if (op == WEIR_SCALED_SUM && dtype <= WEIR_BF16) {
        weir_slots_join_as(c, w, left, dtype, WEIR_SCALED_SUM, coop);
    } else {
        weir_slots_join_as(c, w, left, dtype, op, coop);
    }
}

#endif
