/* weir/device/impl/collective_lines.h - collectives by 128-byte lines: 15 of 16 bytes that cross the link are data, and
 * a line needs no signal. For data of middle size, over links that keep lines whole (weir/device/impl/line.h), by
 * blocks of whole warps. As with packets, the threads that send a line join and store the lines of its place. */
#ifndef WEIR_DEVICE_IMPL_COLLECTIVE_LINES_H
#define WEIR_DEVICE_IMPL_COLLECTIVE_LINES_H

#include "weir/device/impl/collective_packets.h"

/* One lane's part of a line of each rank. */
typedef struct weir_line_set {
    weir_vec16 of[WEIR_COLLECTIVE_RANKS][WEIR_ARCH_LINE_PARTS];
} weir_line_set;

/* Loads the lane's part of a line with `left` bytes of data, which may be none, without a branch: lanes that are
 * together stay together. Returns 0 if the line is unaligned, or its last word is cut off: it needs
 * weir_line_load_data. */
WEIR_FN int weir_line_load_words(weir_vec16 *parts, const char *data, int64_t left, uint64_t flag, uint32_t lane)
{
    const int aligned = ((uintptr_t)data & 7) == 0;
    WEIR_UNROLL
    for (uint32_t p = 0; p < WEIR_ARCH_LINE_PARTS; p++) {
        int64_t at = 8 * (int64_t)(lane * WEIR_ARCH_LINE_PARTS + p);
        parts[p].lo = aligned && at + 8 <= left ? weir_arch_load_u64((const weir_alias_u64 *)(data + at)) : 0;
        parts[p].hi = at == 56                     ? flag
                      : aligned && at + 72 <= left ? weir_arch_load_u64((const weir_alias_u64 *)(data + at + 64))
                                                   : 0;
    }
    return left <= 0 || (aligned && (left >= WEIR_LINE_DATA || left % 8 == 0));
}

/* Loads any line. The lanes may come apart. */
WEIR_FN void weir_line_load_data(weir_vec16 *parts, const char *data, int64_t left, uint64_t flag, uint32_t lane)
{
    if (WEIR_UNLIKELY(!weir_line_load_words(parts, data, left, flag, lane))) {
        WEIR_UNROLL
        for (uint32_t p = 0; p < WEIR_ARCH_LINE_PARTS; p++) {
            int64_t at = 8 * (int64_t)(lane * WEIR_ARCH_LINE_PARTS + p);
            parts[p].lo = at < left ? weir_word_load_any(data + at, left - at) : 0;
            parts[p].hi = at == 56 ? flag : at + 64 < left ? weir_word_load_any(data + at + 64, left - at - 64) : 0;
        }
    }
}

/* Loads and sends a line by lanes that may be apart. All lanes of the warp call; `mine`: the lane has a line, unless
 * `left` is 0 or less. */
WEIR_FN_COLD void weir_line_send_data(char *line, const char *data, int64_t left, uint64_t flag, uint32_t lane,
                                      int mine)
{
    weir_vec16 parts[WEIR_ARCH_LINE_PARTS];
    weir_line_load_data(parts, data, mine ? left : 0, flag, lane);
    weir_line_store_gathered(line, lane, parts, mine && left > 0);
}

WEIR_FN void weir_line_store_data(char *data, int64_t left, const weir_vec16 *parts, uint32_t lane)
{
    WEIR_UNROLL
    for (uint32_t p = 0; p < WEIR_ARCH_LINE_PARTS; p++) {
        int64_t at = 8 * (int64_t)(lane * WEIR_ARCH_LINE_PARTS + p);
        if (at < left) {
            weir_word_store(data + at, left - at, parts[p].lo);
        }
        if (at != 56 && at + 64 < left) {
            weir_word_store(data + at + 64, left - at - 64, parts[p].hi);
        }
    }
}

/* Loads the lane's parts of the lines in `mask`, once. Returns whether all have arrived. */
WEIR_FN int weir_lines_look(const weir_batch *lines, uint32_t mask, uint64_t flag, uint32_t lane, weir_line_set *set)
{
    int there = 1;
    WEIR_UNROLL
    for (uint32_t j = 0; j < lines->count; j++) {
        if ((mask >> j & 1) != 0) {
            weir_arch_load_line(weir_batch_at(lines, j), lane, set->of[j]);
        }
    }
    WEIR_UNROLL
    for (uint32_t j = 0; j < lines->count; j++) {
        if ((mask >> j & 1) != 0) {
            there &= weir_line_there(set->of[j], lane, flag);
        }
    }
    return there;
}

/* The first line in `mask` that has not arrived for all lanes of the warp. */
WEIR_FN uint32_t weir_lines_missing(const weir_batch *lines, uint32_t mask, uint64_t flag, uint32_t lane)
{
    uint32_t missing = WEIR_COLLECTIVE_RANKS;
    for (uint32_t j = 0; j < WEIR_COLLECTIVE_RANKS; j++) {
        weir_vec16 parts[WEIR_ARCH_LINE_PARTS];
        int there = 1;
        if ((mask >> j & 1) != 0) {
            weir_arch_load_line(weir_batch_at(lines, j), lane, parts);
            there = weir_line_there(parts, lane, flag);
        }
        missing = missing == WEIR_COLLECTIVE_RANKS && !weir_arch_warp_all(there) ? j : missing;
    }
    return missing;
}

/* The slow part of a wait; all lanes of the warp return together. Returns 0, or 64 times the negative status minus the
 * number of the rank whose line is missing. By values: with the collective's address as an argument, an allreduce of 1
 * MiB takes 8.9 us between two H100 in place of 8.3. */
WEIR_FN_COLD int32_t weir_lines_spin(const char *lines, uint64_t room, uint64_t stride, uint32_t skipped,
                                     uint32_t others, uint32_t mask, uint64_t flag, uint32_t lane,
                                     weir_dev_control *control)
{
    const weir_batch batch = { lines, room, stride, skipped, others, 0 };
    weir_spin spin = weir_spin_begin();
    for (;;) {
        const uint32_t missing = weir_lines_missing(&batch, mask, flag, lane);
        if (missing == WEIR_COLLECTIVE_RANKS) {
            return 0;
        }
        const weir_status status = weir_spin_step(&spin, control);
        if (weir_arch_warp_or(status != WEIR_OK) != 0) {
            return 64 * (int32_t)(status != WEIR_OK ? status : weir_line_end(control)) -
                   (int32_t)weir_batch_rank(skipped, others, missing);
        }
    }
}

/* Waits for the lines in `mask`. Each group of lanes of a warp waits for its own line; all lanes return
 * together. */
WEIR_FN weir_status weir_lines_await(const weir_dev_collective *c, const weir_batch *lines, uint32_t mask,
                                     uint64_t flag, uint32_t lane, weir_line_set *set)
{
    uint32_t reads = WEIR_ARCH_FAST_READS;
    weir_arch_warp_converge();
    WEIR_ROLLED
    while (!weir_arch_warp_all(weir_lines_look(lines, mask, flag, lane, set))) {
        if (weir_spin_is_long(&reads)) {
            const int32_t ended = weir_lines_spin(lines->first, lines->room, lines->stride, lines->skipped,
                                                  lines->others, mask, flag, lane, c->control);
            if (ended != 0) {
                return weir_collective_end_wait(c, (uint32_t)(-ended % 64), (weir_status)(ended / 64));
            }
            reads = WEIR_ARCH_FAST_READS;
        }
    }
    return WEIR_OK;
}

/* Gives all lanes of a warp the error of one: whole warps wait for the lines that follow. */
WEIR_FN weir_status weir_lines_agree(weir_status status, weir_dev_control *control)
{
    if (WEIR_UNLIKELY(weir_arch_warp_or(status != WEIR_OK) != 0)) {
        return status != WEIR_OK ? status : weir_dev_control_error(control);
    }
    return WEIR_OK;
}

/* The division of lines among the threads of a grid. The warp's first line decides how often its lanes go round. */
typedef struct weir_line_walk {
    uint32_t lane;
    uint32_t mine; /* index among the lines of a warp */
    uint64_t first;
    uint64_t stride;
} weir_line_walk;

WEIR_FN weir_line_walk weir_line_walk_of(weir_coop coop)
{
    weir_line_walk walk;
    uint32_t warp_lines = weir_arch_warp_size() / WEIR_ARCH_LINE_LANES;
    walk.lane = coop.rank % WEIR_ARCH_LINE_LANES;
    walk.first = (uint64_t)(coop.rank / weir_arch_warp_size()) * warp_lines;
    walk.mine = coop.rank / WEIR_ARCH_LINE_LANES - (uint32_t)walk.first;
    walk.stride = coop.size / WEIR_ARCH_LINE_LANES;
    return walk;
}

/* The lane's first byte of the data. */
WEIR_FN uint64_t weir_line_first_byte(const weir_line_walk *walk)
{
    return (walk->first + walk->mine) * WEIR_LINE_DATA + 8 * (uint64_t)(walk->lane * WEIR_ARCH_LINE_PARTS);
}

WEIR_FN char *weir_line_at(const weir_dev_collective *c, uint32_t peer, uint32_t section, uint32_t flag, uint64_t line)
{
    return c->memory[peer] +
           weir_collective_room(c, weir_collective_lines(c), c->line_room, section, flag % 2, c->rank) +
           WEIR_LINE_BYTES * line;
}

/* The lines that this rank receives: a batch of line `line` and of those `stride` apart that follow, `places` in all.
 */
WEIR_FN weir_batch weir_lines_batch(const weir_dev_collective *c, uint32_t section, uint32_t flag, uint64_t line,
                                    uint64_t stride, uint32_t width, uint32_t places)
{
    const char *in =
        c->memory[c->rank] + weir_collective_room(c, weir_collective_lines(c), c->line_room, section, flag % 2, 0);
    return weir_batch_of(c, in + WEIR_LINE_BYTES * line, c->line_room, WEIR_LINE_BYTES * stride, width, places);
}

/* Sends each other rank its part of this rank's data. The lines of a batch are loaded before the first of them is
 * stored. */
WEIR_FN void weir_lines_scatter(const weir_dev_collective *c, const weir_collective_reduce *r,
                                const weir_collective_piece *extents, uint32_t flag, uint32_t width,
                                const weir_line_walk *walk)
{
    const uint32_t places = weir_batch_places(width);
    uint32_t apart = 0; /* all ones once the lanes have come apart: then all further lines are loaded behind branches */
    WEIR_ROLLED
    for (uint64_t i = walk->first; i < weir_line_count(r->length); i += places * walk->stride) {
        weir_line_set data;
        uint32_t rest = apart;
        WEIR_UNROLL
        for (uint32_t j = 0; j < (width - 1) * places; j++) {
            const uint32_t k = j % (width - 1);
            const uint32_t peer = weir_collective_peer(c, k);
            const uint64_t at = (i + j / (width - 1) * walk->stride + walk->mine) * WEIR_LINE_DATA;
            const int64_t left = k + 1 < c->ranks ? weir_extent_left(r, extents, peer, at) : 0;
            rest |= (uint32_t)!weir_line_load_words(data.of[j], r->send + weir_extent_at(r, extents, peer) + at, left,
                                                    weir_line_flag(flag), walk->lane)
                    << j;
        }
        apart = weir_arch_warp_all(rest == 0) ? 0 : ~(uint32_t)0;
        WEIR_UNROLL
        for (uint32_t j = 0; j < (width - 1) * places; j++) {
            const uint32_t k = j % (width - 1);
            const uint32_t peer = weir_collective_peer(c, k);
            const uint64_t line = i + j / (width - 1) * walk->stride + walk->mine;
            if (k + 1 < c->ranks && weir_extent_left(r, extents, peer, line * WEIR_LINE_DATA) > 0 &&
                (rest >> j & 1) == 0) {
                weir_arch_store_line(weir_line_at(c, peer, 0, flag, line), walk->lane, data.of[j]);
            }
        }
        WEIR_ROLLED
        for (uint32_t n = 0; apart != 0 && n < places; n++) {
            const uint64_t line = i + n * walk->stride + walk->mine;
            const uint64_t at = line * WEIR_LINE_DATA;
            WEIR_ROLLED
            for (uint32_t k = 0; k + 1 < c->ranks; k++) {
                const uint32_t peer = weir_collective_peer(c, k);
                weir_line_send_data(weir_line_at(c, peer, 0, flag, line),
                                    r->send + weir_extent_at(r, extents, peer) + at,
                                    weir_extent_left(r, extents, peer, at), weir_line_flag(flag), walk->lane,
                                    (rest >> (n * (width - 1) + k) & 1) != 0);
            }
        }
    }
}

/* The lane's part of the joined line at place `place` of a batch: the lines in `set` and this rank's own. */
WEIR_FN void weir_lines_join(const weir_dev_collective *c, const weir_line_set *set, const weir_line_set *own,
                             uint32_t place, uint32_t flag, uint32_t lane, uint32_t width, uint32_t dtype, uint32_t op,
                             weir_vec16 *joined)
{
    const uint32_t places = weir_batch_places(width);
    WEIR_UNROLL
    for (uint32_t p = 0; p < WEIR_ARCH_LINE_PARTS; p++) {
        uint64_t lo[WEIR_COLLECTIVE_RANKS];
        uint64_t hi[WEIR_COLLECTIVE_RANKS];
        uint64_t ranks[WEIR_COLLECTIVE_RANKS];
        weir_vec16 mine = own->of[0][p];
        WEIR_UNROLL
        for (uint32_t n = 1; n < places; n++) {
            mine = n == place ? own->of[n][p] : mine;
        }
        WEIR_UNROLL
        for (uint32_t k = 0; k < width - 1; k++) {
            lo[k] = set->of[k][p].lo;
            hi[k] = set->of[k][p].hi;
            WEIR_UNROLL
            for (uint32_t n = 1; n < places; n++) {
                lo[k] = n == place ? set->of[n * (width - 1) + k][p].lo : lo[k];
                hi[k] = n == place ? set->of[n * (width - 1) + k][p].hi : hi[k];
            }
        }
        weir_batch_ordered(c, lo, mine.lo, width, ranks);
        joined[p].lo = weir_collective_join(c, ranks, width, dtype, op);
        weir_batch_ordered(c, hi, mine.hi, width, ranks);
        joined[p].hi = lane * WEIR_ARCH_LINE_PARTS + p == 7 ? weir_line_flag(flag)
                                                            : weir_collective_join(c, ranks, width, dtype, op);
    }
}

/* Joins this rank's part, keeps it, and sends it to the ranks in `to`. Lanes of one warp may have lines within the data
 * and lines beyond its end. */
WEIR_FN weir_status weir_lines_reduce(const weir_dev_collective *c, const weir_collective_reduce *r,
                                      const weir_collective_piece *extents, uint32_t flag, uint32_t width,
                                      const weir_line_walk *walk, uint32_t dtype, uint32_t op)
{
    const uint32_t places = weir_batch_places(width);
    const uint64_t count = weir_line_count(r->length);
    const int keep = r->to == 0 || (r->to >> c->rank & 1) != 0;
    const char *own_data = r->send + weir_extent_at(r, extents, c->rank);
    char *out = r->recv + (r->to != 0 ? c->rank * r->part : 0);
    /* The lanes load their own words, or keep results, behind branches. */
    const uint64_t sizes = extents != NULL ? extents[c->rank].bytes : r->part | r->bytes;
    const int apart = (((uintptr_t)own_data | (uintptr_t)out | sizes) & 7) != 0;
    WEIR_ROLLED
    for (uint64_t i = walk->first; i < count; i += places * walk->stride) {
        const weir_batch lines =
            weir_lines_batch(c, 0, flag, i + walk->mine, walk->stride, width, weir_batch_places(width));
        weir_line_set set;
        weir_line_set own;
        uint32_t mask = 0;
        WEIR_PARTLY_SET(set);
        WEIR_UNROLL
        for (uint32_t n = 0; n < places; n++) {
            const uint64_t at = (i + n * walk->stride + walk->mine) * WEIR_LINE_DATA;
            const int64_t left = weir_extent_left(r, extents, c->rank, at);
            weir_line_load_data(own.of[n], own_data + at, left, 0, walk->lane);
            mask |= left > 0 ? weir_batch_others(c) << n * (width - 1) : 0;
        }
        const weir_status status = weir_lines_await(c, &lines, mask, weir_line_flag(flag), walk->lane, &set);
        if (WEIR_UNLIKELY(status != WEIR_OK)) {
            return status;
        }
        WEIR_ROLLED
        for (uint32_t n = 0; n < places && i + n * walk->stride < count; n++) {
            const uint64_t line = i + n * walk->stride + walk->mine;
            const int64_t left = weir_extent_left(r, extents, c->rank, line * WEIR_LINE_DATA);
            weir_vec16 joined[WEIR_ARCH_LINE_PARTS];
            WEIR_PARTLY_SET(joined);
            if (left > 0) {
                weir_lines_join(c, &set, &own, n, flag, walk->lane, width, dtype, op, joined);
            }
            if (WEIR_UNLIKELY(apart)) {
                WEIR_ROLLED
                for (uint32_t k = 0; k + 1 < c->ranks; k++) {
                    const uint32_t peer = weir_collective_peer(c, k);
                    weir_line_store_gathered(weir_line_at(c, peer, 1, flag, line), walk->lane, joined,
                                             left > 0 && (r->to >> peer & 1) != 0);
                }
            } else {
                weir_arch_warp_converge();
                WEIR_UNROLL
                for (uint32_t k = 0; k < width - 1; k++) {
                    uint32_t peer = weir_collective_peer(c, k);
                    if (left > 0 && k + 1 < c->ranks && (r->to >> peer & 1) != 0) {
                        weir_arch_store_line(weir_line_at(c, peer, 1, flag, line), walk->lane, joined);
                    }
                }
            }
            if (left > 0 && keep) {
                weir_line_store_data(out + line * WEIR_LINE_DATA, left, joined, walk->lane);
            }
        }
    }
    return WEIR_OK;
}

/* Receives the results of the other ranks' parts. */
WEIR_FN weir_status weir_lines_gather(const weir_dev_collective *c, const weir_collective_reduce *r, uint32_t flag,
                                      uint32_t width, const weir_line_walk *walk)
{
    WEIR_ROLLED
    for (uint64_t i = walk->first; i < weir_line_count(r->length); i += weir_batch_places(width) * walk->stride) {
        const weir_batch lines =
            weir_lines_batch(c, 1, flag, i + walk->mine, walk->stride, width, weir_batch_places(width));
        weir_line_set set;
        uint32_t mask = 0;
        WEIR_PARTLY_SET(set);
        WEIR_UNROLL
        for (uint32_t j = 0; j < lines.count; j++) {
            const uint32_t from = weir_batch_rank(lines.skipped, width - 1, j);
            const uint64_t at = (i + j / (width - 1) * walk->stride + walk->mine) * WEIR_LINE_DATA;
            mask |= (uint32_t)(from < c->ranks && weir_part_left(r, from, at) > 0) << j;
        }
        const weir_status status = weir_lines_await(c, &lines, mask, weir_line_flag(flag), walk->lane, &set);
        if (WEIR_UNLIKELY(status != WEIR_OK)) {
            return status;
        }
        WEIR_UNROLL
        for (uint32_t j = 0; j < lines.count; j++) {
            const uint32_t from = weir_batch_rank(lines.skipped, width - 1, j);
            const uint64_t at = (i + j / (width - 1) * walk->stride + walk->mine) * WEIR_LINE_DATA;
            if ((mask >> j & 1) != 0) {
                weir_line_store_data(r->recv + from * r->part + at, weir_part_left(r, from, at), set.of[j], walk->lane);
            }
        }
    }
    return WEIR_OK;
}

WEIR_FN weir_status weir_reduce_lines(const weir_dev_collective *c, const weir_collective_reduce *r,
                                      const weir_collective_piece *extents, uint32_t width, uint32_t dtype, uint32_t op,
                                      weir_coop coop)
{
    const weir_line_walk walk = weir_line_walk_of(coop);
    const int gets_all = (r->to >> c->rank & 1) != 0;
    const weir_collective_state state = weir_collective_look(c);
    uint32_t flag;
    weir_parts_prefetch(c, r, extents, weir_line_first_byte(&walk), walk.stride * WEIR_LINE_DATA, width,
                        weir_batch_places(width));
    const weir_status begun = weir_collective_begin(c, &state, &flag);
    if (WEIR_UNLIKELY(begun != WEIR_OK)) {
        return begun;
    }
    const uint32_t mailbox = weir_collective_mailbox_of(coop, 0);
    weir_lines_scatter(c, r, extents, flag, width, &walk);
    weir_collective_announce(c, &r->what, NULL, flag, mailbox, 0, coop);
    weir_packet_advance(c->epoch, 0, 0, coop);
    weir_status status =
        weir_lines_agree(weir_collective_compare(c, &r->what, NULL, flag, mailbox, 0, coop), c->control);
    if (WEIR_UNLIKELY(status != WEIR_OK)) {
        return status;
    }
    status = weir_lines_reduce(c, r, extents, flag, width, &walk, dtype, op);
    return WEIR_UNLIKELY(status != WEIR_OK) || !gets_all ? status : weir_lines_gather(c, r, flag, width, &walk);
}

/* The same by code for the number of ranks. */
WEIR_FN weir_status weir_reduce_by_lines(const weir_dev_collective *c, const weir_collective_reduce *r,
                                         const weir_collective_piece *extents, uint32_t dtype, uint32_t op,
                                         weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    if (WEIR_UNLIKELY(!weir_line_fits(coop))) {
        return weir_dev_control_fail(c->control, WEIR_ERR_INVALID);
    }
    return c->ranks <= 2   ? weir_reduce_lines(c, r, extents, 2, dtype, op, coop)
           : c->ranks <= 4 ? weir_reduce_lines(c, r, extents, 4, dtype, op, coop)
                           : weir_reduce_lines(c, r, extents, WEIR_COLLECTIVE_RANKS, dtype, op, coop);
}

/* Sends all pieces of this rank, like weir_lines_scatter. */
WEIR_FN void weir_lines_send(const weir_dev_collective *c, const weir_collective_move *m, uint32_t flag, uint32_t width,
                             const weir_line_walk *walk)
{
    const uint32_t places = weir_batch_places(width);
    uint32_t apart = 0; /* all ones once the lanes have come apart: then all further lines are loaded behind branches */
    WEIR_ROLLED
    for (uint64_t i = walk->first; i < weir_line_count(m->most); i += places * walk->stride) {
        weir_line_set data;
        uint32_t rest = apart;
        WEIR_UNROLL
        for (uint32_t j = 0; j < (width - 1) * places; j++) {
            const uint32_t k = j % (width - 1);
            const uint32_t peer = weir_collective_peer(c, k);
            const uint64_t at = (i + j / (width - 1) * walk->stride + walk->mine) * WEIR_LINE_DATA;
            const int64_t left = k + 1 < c->ranks ? weir_left(m->pieces[peer].send.bytes, at) : 0;
            rest |= (uint32_t)!weir_line_load_words(data.of[j], m->send + m->pieces[peer].send.at + at, left,
                                                    weir_line_flag(flag), walk->lane)
                    << j;
        }
        apart = weir_arch_warp_all(rest == 0) ? 0 : ~(uint32_t)0;
        WEIR_UNROLL
        for (uint32_t j = 0; j < (width - 1) * places; j++) {
            const uint32_t k = j % (width - 1);
            const uint32_t peer = weir_collective_peer(c, k);
            const uint64_t line = i + j / (width - 1) * walk->stride + walk->mine;
            if (k + 1 < c->ranks && m->pieces[peer].send.bytes > line * WEIR_LINE_DATA && (rest >> j & 1) == 0) {
                weir_arch_store_line(weir_line_at(c, peer, 0, flag, line), walk->lane, data.of[j]);
            }
        }
        WEIR_ROLLED
        for (uint32_t n = 0; apart != 0 && n < places; n++) {
            const uint64_t line = i + n * walk->stride + walk->mine;
            const uint64_t at = line * WEIR_LINE_DATA;
            WEIR_ROLLED
            for (uint32_t k = 0; k + 1 < c->ranks; k++) {
                const uint32_t peer = weir_collective_peer(c, k);
                weir_line_send_data(weir_line_at(c, peer, 0, flag, line), m->send + m->pieces[peer].send.at + at,
                                    weir_left(m->pieces[peer].send.bytes, at), weir_line_flag(flag), walk->lane,
                                    (rest >> (n * (width - 1) + k) & 1) != 0);
            }
        }
    }
}

/* Receives the pieces of all ranks but `left_out` for this rank, out of the lines of a section. */
WEIR_FN weir_status weir_lines_receive(const weir_dev_collective *c, const weir_collective_move *m, uint32_t section,
                                       uint32_t left_out, uint32_t flag, uint32_t width, const weir_line_walk *walk)
{
    WEIR_ROLLED
    for (uint64_t i = walk->first; i < weir_line_count(m->most); i += weir_batch_places(width) * walk->stride) {
        const weir_batch lines =
            weir_lines_batch(c, section, flag, i + walk->mine, walk->stride, width, weir_batch_places(width));
        weir_line_set set;
        uint32_t mask = 0;
        WEIR_PARTLY_SET(set);
        WEIR_UNROLL
        for (uint32_t j = 0; j < lines.count; j++) {
            const uint32_t from = weir_batch_rank(lines.skipped, width - 1, j);
            const uint64_t at = (i + j / (width - 1) * walk->stride + walk->mine) * WEIR_LINE_DATA;
            mask |= (uint32_t)(from < c->ranks && from != left_out && m->pieces[from].recv.bytes > at) << j;
        }
        const weir_status status = weir_lines_await(c, &lines, mask, weir_line_flag(flag), walk->lane, &set);
        if (WEIR_UNLIKELY(status != WEIR_OK)) {
            return status;
        }
        WEIR_UNROLL
        for (uint32_t j = 0; j < lines.count; j++) {
            const uint32_t from = weir_batch_rank(lines.skipped, width - 1, j);
            const uint64_t at = (i + j / (width - 1) * walk->stride + walk->mine) * WEIR_LINE_DATA;
            if ((mask >> j & 1) != 0) {
                weir_line_store_data(m->recv + m->pieces[from].recv.at + at, weir_left(m->pieces[from].recv.bytes, at),
                                     set.of[j], walk->lane);
            }
        }
    }
    return WEIR_OK;
}

WEIR_FN weir_status weir_move_lines(const weir_dev_collective *c, const weir_collective_move *m, uint32_t width,
                                    weir_coop coop)
{
    const weir_line_walk walk = weir_line_walk_of(coop);
    const weir_collective_state state = weir_collective_look(c);
    uint32_t flag;
    weir_pieces_prefetch(c, m, weir_line_first_byte(&walk), walk.stride * WEIR_LINE_DATA, width,
                         weir_batch_places(width));
    const weir_status begun = weir_collective_begin(c, &state, &flag);
    if (WEIR_UNLIKELY(begun != WEIR_OK)) {
        return begun;
    }
    const uint32_t mailbox = weir_collective_mailbox_of(coop, 0);
    weir_lines_send(c, m, flag, width, &walk);
    weir_collective_announce(c, &m->what, m->counted ? m->pieces : NULL, flag, mailbox, 0, coop);
    weir_packet_advance(c->epoch, 0, 0, coop);
    const weir_status status = weir_lines_agree(weir_collective_keep(c, m, flag, mailbox, coop), c->control);
    return WEIR_UNLIKELY(status != WEIR_OK) ? status : weir_lines_receive(c, m, 0, WEIR_NO_PEER, flag, width, &walk);
}

/* Like weir_collective_move_packets. WEIR_ERR_INVALID for blocks that are not whole warps. */
WEIR_FN weir_status weir_collective_move_lines(const weir_dev_collective *c, const weir_collective_move *m,
                                               weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    if (WEIR_UNLIKELY(!weir_line_fits(coop))) {
        return weir_dev_control_fail(c->control, WEIR_ERR_INVALID);
    }
    return c->ranks <= 2   ? weir_move_lines(c, m, 2, coop)
           : c->ranks <= 4 ? weir_move_lines(c, m, 4, coop)
                           : weir_move_lines(c, m, WEIR_COLLECTIVE_RANKS, coop);
}

#endif
