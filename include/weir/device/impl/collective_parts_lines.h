/* weir/device/impl/collective_parts_lines.h - parts by 128-byte lines, for data of middle size. The unit of the
 * sequences is a line (weir/device/impl/collective_parts.h), so a line has data of one part. */
#ifndef WEIR_DEVICE_IMPL_COLLECTIVE_PARTS_LINES_H
#define WEIR_DEVICE_IMPL_COLLECTIVE_PARTS_LINES_H

#include "weir/device/impl/collective_lines.h"
#include "weir/device/impl/collective_parts.h"

/* Lines of each rank that a thread has under way, if it has more than WEIR_PARTS_FEW_LINES. Otherwise one at a time is
 * faster: between two H200 an allgather of 64 parts of 4 MiB on all SMs, four lines of each thread, took 13.6 us, and
 * 14.3 with two under way, but one of 1 MiB by 8 blocks, 12 lines of each thread, took 27.8 us, and 24.9 with two. */
#define WEIR_PARTS_PLACES 2u
#define WEIR_PARTS_FEW_LINES 5u

/* The data of a line of a sequence. */
typedef struct weir_parts_line {
    const char *send;
    char *recv;
    int64_t left; /* bytes of its part from there on; 0 behind the end of the sequence */
    uint32_t dtype;
} weir_parts_line;

/* Like weir_parts_find, without branches that lanes of a warp could take alone: lanes that have come apart cannot store
 * a line at once. */
WEIR_FN uint32_t weir_parts_find_together(const weir_collective_parts *p, uint32_t rank, uint64_t at)
{
    uint32_t found = 0;
    if (p->of[rank].density == 0) {
        WEIR_ROLLED
        for (uint32_t step = WEIR_PARTS_STEP_MOST; step != 0; step /= 2) {
            const uint32_t next = found + step < p->count ? found + step : found;
            found = weir_parts_begin(p, next, rank, WEIR_LINE_BYTES) <= at ? next : found;
        }
        return found;
    }
    found = weir_parts_guess(p, rank, at, WEIR_LINE_BYTES);
    for (;;) {
        const int high = weir_parts_begin(p, found, rank, WEIR_LINE_BYTES) > at;
        const int low = weir_parts_end(p, found, rank, WEIR_LINE_BYTES) <= at;
        if (weir_arch_warp_all(!high && !low)) {
            return found;
        }
        found += low - high;
    }
}

/* A line of the sequence of `rank`. All lanes of the warp call. `exists` 0: the line has no data. */
WEIR_FN weir_parts_line weir_parts_line_of(const weir_collective_parts *p, int exists, uint32_t rank, uint64_t line,
                                           int joins)
{
    const uint64_t bytes = exists ? p->of[rank].bytes : 0;
    const int there = line * WEIR_LINE_BYTES < bytes;
    const uint64_t at = there ? line * WEIR_LINE_BYTES : 0;
    const uint32_t part = weir_parts_find_together(p, exists ? rank : 0, at);
    const weir_parts_piece piece = weir_parts_piece_of(p, part, exists ? rank : 0, joins, WEIR_LINE_BYTES);
    const uint64_t skipped = (at - piece.begin) / WEIR_LINE_BYTES * WEIR_LINE_DATA;
    weir_parts_line found;
    found.send = piece.send + skipped;
    found.recv = piece.recv + skipped;
    found.left = there ? (int64_t)(piece.bytes - skipped) : 0;
    found.dtype = piece.dtype;
    return found;
}

/* Sends this rank's sequence to all others, and keeps it. */
WEIR_FN void weir_parts_spread_lines(const weir_dev_collective *c, const weir_collective_parts *p, uint32_t flag,
                                     uint32_t width, uint32_t places, const weir_line_walk *walk)
{
    WEIR_ROLLED
    for (uint64_t i = walk->first; i < p->of[c->rank].bytes / WEIR_LINE_BYTES; i += places * walk->stride) {
        weir_parts_line lines[WEIR_BATCH_PLACES];
        weir_line_set data;
        WEIR_UNROLL
        for (uint32_t n = 0; n < places; n++) {
            lines[n] = weir_parts_line_of(p, 1, c->rank, i + n * walk->stride + walk->mine, 0);
            weir_line_load_data(data.of[n], lines[n].send, lines[n].left, weir_line_flag(flag), walk->lane);
        }
        WEIR_UNROLL
        for (uint32_t j = 0; j < (width - 1) * places; j++) {
            const uint32_t n = j / (width - 1);
            const uint32_t peer = weir_collective_peer(c, j % (width - 1));
            weir_line_store_gathered(weir_line_at(c, peer, 0, flag, i + n * walk->stride + walk->mine), walk->lane,
                                     data.of[n], j % (width - 1) + 1 < c->ranks && lines[n].left > 0);
        }
        WEIR_UNROLL
        for (uint32_t n = 0; n < places; n++) {
            if (lines[n].recv != lines[n].send) {
                weir_line_store_data(lines[n].recv, lines[n].left, data.of[n], walk->lane);
            }
        }
    }
}

/* Takes the sequences of all other ranks. */
WEIR_FN weir_status weir_parts_take_lines(const weir_dev_collective *c, const weir_collective_parts *p, uint32_t flag,
                                          uint32_t width, uint32_t places, const weir_line_walk *walk)
{
    WEIR_ROLLED
    for (uint64_t i = walk->first; i < p->most / WEIR_LINE_BYTES; i += places * walk->stride) {
        const weir_batch batch = weir_lines_batch(c, 0, flag, i + walk->mine, walk->stride, width, places);
        weir_parts_line lines[WEIR_COLLECTIVE_RANKS];
        weir_line_set set;
        uint32_t mask = 0;
        WEIR_PARTLY_SET(set);
        WEIR_UNROLL
        for (uint32_t j = 0; j < batch.count; j++) {
            const uint32_t from = weir_batch_rank(batch.skipped, width - 1, j);
            const uint64_t line = i + j / (width - 1) * walk->stride + walk->mine;
            lines[j] = weir_parts_line_of(p, from < c->ranks, from, line, 0);
            mask |= (uint32_t)(lines[j].left > 0) << j;
        }
        const weir_status status = weir_lines_await(c, &batch, mask, weir_line_flag(flag), walk->lane, &set);
        if (WEIR_UNLIKELY(status != WEIR_OK)) {
            return status;
        }
        WEIR_UNROLL
        for (uint32_t j = 0; j < batch.count; j++) {
            if ((mask >> j & 1) != 0) {
                weir_line_store_data(lines[j].recv, lines[j].left, set.of[j], walk->lane);
            }
        }
    }
    return WEIR_OK;
}

/* Sends each other rank the data for its sequence, like weir_lines_scatter. */
WEIR_FN void weir_parts_scatter_lines(const weir_dev_collective *c, const weir_collective_parts *p, uint32_t flag,
                                      uint32_t width, uint32_t places, const weir_line_walk *walk)
{
    uint32_t apart = 0; /* all ones once the lanes have come apart: then all further lines are loaded behind branches */
    WEIR_ROLLED
    for (uint64_t i = walk->first; i < p->most / WEIR_LINE_BYTES; i += places * walk->stride) {
        weir_line_set data;
        uint32_t filled = 0;
        uint32_t rest = apart;
        WEIR_UNROLL
        for (uint32_t j = 0; j < (width - 1) * places; j++) {
            const uint32_t k = j % (width - 1);
            const weir_parts_line line = weir_parts_line_of(p, k + 1 < c->ranks, weir_collective_peer(c, k),
                                                            i + j / (width - 1) * walk->stride + walk->mine, 1);
            filled |= (uint32_t)(line.left > 0) << j;
            rest |= (uint32_t)!weir_line_load_words(data.of[j], line.send, line.left, weir_line_flag(flag), walk->lane)
                    << j;
        }
        apart = weir_arch_warp_all(rest == 0) ? 0 : ~(uint32_t)0;
        WEIR_UNROLL
        for (uint32_t j = 0; j < (width - 1) * places; j++) {
            const uint64_t line = i + j / (width - 1) * walk->stride + walk->mine;
            weir_line_store_gathered(weir_line_at(c, weir_collective_peer(c, j % (width - 1)), 0, flag, line),
                                     walk->lane, data.of[j], ((filled & ~rest) >> j & 1) != 0);
        }
        WEIR_ROLLED
        for (uint32_t n = 0; apart != 0 && n < places; n++) {
            const uint64_t line = i + n * walk->stride + walk->mine;
            WEIR_ROLLED
            for (uint32_t k = 0; k + 1 < c->ranks; k++) {
                const uint32_t peer = weir_collective_peer(c, k);
                const weir_parts_line found = weir_parts_line_of(p, 1, peer, line, 1);
                weir_line_send_data(weir_line_at(c, peer, 0, flag, line), found.send, found.left, weir_line_flag(flag),
                                    walk->lane, (rest >> (n * (width - 1) + k) & 1) != 0);
            }
        }
    }
}

/* weir_lines_join of a type that is not a constant. */
WEIR_FN void weir_parts_join_line(const weir_dev_collective *c, const weir_line_set *set, const weir_line_set *own,
                                  uint32_t place, uint32_t width, uint32_t places, uint32_t dtype, uint32_t op,
                                  weir_vec16 *joined)
{
    WEIR_UNROLL
    for (uint32_t i = 0; i < WEIR_ARCH_LINE_PARTS; i++) {
        WEIR_ROLLED
        for (uint32_t half = 0; half < 2; half++) {
            uint64_t others[WEIR_COLLECTIVE_RANKS];
            uint64_t ranks[WEIR_COLLECTIVE_RANKS];
            uint64_t mine = 0;
            WEIR_UNROLL
            for (uint32_t n = 0; n < places; n++) {
                mine = n == place ? (half == 0 ? own->of[n][i].lo : own->of[n][i].hi) : mine;
                WEIR_UNROLL
                for (uint32_t k = 0; k < width - 1; k++) {
                    const weir_vec16 *come = &set->of[n * (width - 1) + k][i];
                    others[k] = n == 0 || n == place ? (half == 0 ? come->lo : come->hi) : others[k];
                }
            }
            weir_batch_ordered(c, others, mine, width, ranks);
            const uint64_t word = weir_parts_join_words(c, ranks, width, dtype, op);
            joined[i].lo = half == 0 ? word : joined[i].lo;
            joined[i].hi = half == 0 ? joined[i].hi : word; /* of a flag, it is not used */
        }
    }
}

/* Joins the ranks' data for this rank's sequence, of the type `dtype`, or of parts of WEIR_PARTS_ANY_TYPE. */
WEIR_FN weir_status weir_parts_join_lines(const weir_dev_collective *c, const weir_collective_parts *p, uint32_t flag,
                                          uint32_t width, uint32_t places, const weir_line_walk *walk, uint32_t dtype,
                                          uint32_t op)
{
    const uint64_t count = p->of[c->rank].bytes / WEIR_LINE_BYTES;
    WEIR_ROLLED
    for (uint64_t i = walk->first; i < count; i += places * walk->stride) {
        const weir_batch batch = weir_lines_batch(c, 0, flag, i + walk->mine, walk->stride, width, places);
        weir_parts_line lines[WEIR_BATCH_PLACES];
        weir_line_set set;
        weir_line_set own;
        uint32_t mask = 0;
        WEIR_PARTLY_SET(set);
        WEIR_UNROLL
        for (uint32_t n = 0; n < places; n++) {
            lines[n] = weir_parts_line_of(p, 1, c->rank, i + n * walk->stride + walk->mine, 1);
            weir_line_load_data(own.of[n], lines[n].send, lines[n].left, 0, walk->lane);
            mask |= lines[n].left > 0 ? weir_batch_others(c) << n * (width - 1) : 0;
        }
        const weir_status status = weir_lines_await(c, &batch, mask, weir_line_flag(flag), walk->lane, &set);
        if (WEIR_UNLIKELY(status != WEIR_OK)) {
            return status;
        }
        WEIR_UNROLL
        for (uint32_t n = 0; n < places && dtype != WEIR_PARTS_ANY_TYPE; n++) {
            weir_vec16 joined[WEIR_ARCH_LINE_PARTS];
            weir_lines_join(c, &set, &own, n, flag, walk->lane, width, dtype, op, joined);
            weir_line_store_data(lines[n].recv, lines[n].left, joined, walk->lane);
        }
        WEIR_ROLLED
        for (uint32_t n = 0; n < places && dtype == WEIR_PARTS_ANY_TYPE; n++) {
            const weir_parts_line line = weir_parts_line_of(p, 1, c->rank, i + n * walk->stride + walk->mine, 1);
            weir_vec16 joined[WEIR_ARCH_LINE_PARTS];
            WEIR_PARTLY_SET(joined);
            if (line.left > 0) {
                weir_parts_join_line(c, &set, &own, n, width, places, line.dtype, op, joined);
                weir_line_store_data(line.recv, line.left, joined, walk->lane);
            }
        }
    }
    return WEIR_OK;
}

WEIR_FN weir_status weir_parts_by_lines(const weir_dev_collective *c, const weir_collective_parts *p, int joins,
                                        uint32_t width, uint32_t places, uint32_t dtype, uint32_t op, weir_coop coop)
{
    const weir_collective_state state = weir_collective_look(c);
    const weir_line_walk walk = weir_line_walk_of(coop);
    uint32_t flag;
    const weir_status begun = weir_collective_begin(c, &state, &flag);
    if (WEIR_UNLIKELY(begun != WEIR_OK)) {
        return begun;
    }
    if (joins) {
        weir_parts_scatter_lines(c, p, flag, width, places, &walk);
    } else {
        weir_parts_spread_lines(c, p, flag, width, places, &walk);
    }
    const weir_status status = weir_lines_agree(weir_parts_meet(c, p, flag, coop), c->control);
    return WEIR_UNLIKELY(status != WEIR_OK) ? status
           : joins                          ? weir_parts_join_lines(c, p, flag, width, places, &walk, dtype, op)
                                            : weir_parts_take_lines(c, p, flag, width, places, &walk);
}

/* Allgather, or with `joins` reduce_scatter of parts of the type `dtype`, or of WEIR_PARTS_ANY_TYPE, by lines.
 * WEIR_ERR_INVALID for blocks that are not whole warps. */
WEIR_FN weir_status weir_collective_parts_lines(const weir_dev_collective *c, const weir_collective_parts *p, int joins,
                                                uint32_t dtype, uint32_t op, weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    if (WEIR_UNLIKELY(!weir_line_fits(coop))) {
        return weir_dev_control_fail(c->control, WEIR_ERR_INVALID);
    }
    const int few = p->most / WEIR_LINE_BYTES <= WEIR_PARTS_FEW_LINES * coop.size / WEIR_ARCH_LINE_LANES;
    if (c->ranks <= 2) {
        return few ? weir_parts_by_lines(c, p, joins, 2, 1, dtype, op, coop)
                   : weir_parts_by_lines(c, p, joins, 2, WEIR_PARTS_PLACES, dtype, op, coop);
    }
    if (c->ranks <= 4) {
        return few ? weir_parts_by_lines(c, p, joins, 4, 1, dtype, op, coop)
                   : weir_parts_by_lines(c, p, joins, 4, WEIR_PARTS_PLACES, dtype, op, coop);
    }
    return weir_parts_by_lines(c, p, joins, WEIR_COLLECTIVE_RANKS, 1, dtype, op, coop);
}

#endif
