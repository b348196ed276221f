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

/* The lane's part of a line with `left` bytes of data. */
WEIR_FN void weir_line_load_data(weir_vec16 *parts, const char *data, int64_t left, uint64_t flag, uint32_t lane)
{
    WEIR_UNROLL
    for (uint32_t p = 0; p < WEIR_ARCH_LINE_PARTS; p++) {
        int64_t at = 8 * (int64_t)(lane * WEIR_ARCH_LINE_PARTS + p);
        parts[p].lo = at < left ? weir_word_load(data + at, left - at) : 0;
        parts[p].hi = at == 56 ? flag : at + 64 < left ? weir_word_load(data + at + 64, left - at - 64) : 0;
    }
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

/* Loads the lane's parts of the lines of the ranks in `mask`, once. Returns whether all have arrived. */
WEIR_FN int weir_lines_look(const char *lines, uint64_t room, uint32_t mask, uint64_t flag, uint32_t lane,
                            weir_line_set *set)
{
    int there = 1;
    WEIR_UNROLL
    for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS; k++) {
        if ((mask >> k & 1) != 0) {
            weir_arch_load_line(lines + k * room, lane, set->of[k]);
        }
    }
    WEIR_UNROLL
    for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS; k++) {
        if ((mask >> k & 1) != 0) {
            there &= weir_line_there(set->of[k], lane, flag);
        }
    }
    return there;
}

/* The first rank in `mask` whose line has not arrived for all lanes of the warp. */
WEIR_FN uint32_t weir_lines_missing(const char *lines, uint64_t room, uint32_t mask, uint64_t flag, uint32_t lane)
{
    uint32_t missing = WEIR_COLLECTIVE_RANKS;
    weir_line_set set;
    for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS; k++) {
        const int there = weir_lines_look(lines, room, mask & (uint32_t)1 << k, flag, lane, &set);
        missing = missing == WEIR_COLLECTIVE_RANKS && !weir_arch_warp_all(there) ? k : missing;
    }
    return missing;
}

/* The slow part of a wait; all lanes of the warp return together. Returns 0, or 64 times the negative status minus the
 * number of the rank whose line is missing. By values: with the collective's address as an argument, an allreduce of 1
 * MiB takes 8.9 us between two H100 in place of 8.3. */
WEIR_FN_COLD int32_t weir_lines_spin(const char *lines, uint64_t room, uint32_t mask, uint64_t flag, uint32_t lane,
                                     const weir_dev_control *control)
{
    weir_spin spin = weir_spin_begin();
    for (;;) {
        const uint32_t missing = weir_lines_missing(lines, room, mask, flag, lane);
        if (missing == WEIR_COLLECTIVE_RANKS) {
            return 0;
        }
        const weir_status status = weir_spin_step(&spin, control);
        if (weir_arch_warp_or(status != WEIR_OK) != 0) {
            return 64 * (int32_t)(status != WEIR_OK ? status : weir_line_end(control)) - (int32_t)missing;
        }
    }
}

/* Waits for the lines of the ranks in `mask`. Each group of lanes of a warp waits for its own line; all lanes return
 * together. */
WEIR_FN weir_status weir_lines_await(const weir_dev_collective *c, const char *lines, uint32_t mask, uint64_t flag,
                                     uint32_t lane, weir_line_set *set)
{
    uint32_t reads = WEIR_ARCH_FAST_READS;
    weir_arch_warp_converge();
    WEIR_ROLLED
    while (!weir_arch_warp_all(weir_lines_look(lines, c->line_room, mask, flag, lane, set))) {
        if (weir_spin_is_long(&reads)) {
            const int32_t ended = weir_lines_spin(lines, c->line_room, mask, flag, lane, c->control);
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
    return c->memory[peer] + weir_collective_room(c, c->lines, c->line_room, section, flag % 2, c->rank) +
           WEIR_LINE_BYTES * line;
}

WEIR_FN const char *weir_lines_in(const weir_dev_collective *c, uint32_t section, uint32_t flag)
{
    return c->memory[c->rank] + weir_collective_room(c, c->lines, c->line_room, section, flag % 2, 0);
}

/* Sends a line of each rank's part to that rank. */
WEIR_FN void weir_lines_scatter(const weir_dev_collective *c, const weir_collective_reduce *r, uint32_t flag,
                                uint64_t line, uint32_t lane)
{
    const uint64_t at = line * WEIR_LINE_DATA;
    weir_line_set set;
    WEIR_UNROLL
    for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS - 1; k++) {
        uint32_t peer = weir_collective_peer(c, k);
        int64_t left = k + 1 < c->ranks ? weir_part_left(r, peer, at) : 0;
        if (left > 0) {
            weir_line_load_data(set.of[k], r->send + peer * r->part + at, left, weir_line_flag(flag), lane);
        }
    }
    weir_arch_warp_converge();
    WEIR_UNROLL
    for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS - 1; k++) {
        uint32_t peer = weir_collective_peer(c, k);
        if (k + 1 < c->ranks && weir_part_left(r, peer, at) > 0) {
            weir_arch_store_line(weir_line_at(c, peer, 0, flag, line), lane, set.of[k]);
        }
    }
}

/* The lane's part of the joined line: the lines in `set` and this rank's own. */
WEIR_FN void weir_lines_join(const weir_dev_collective *c, const weir_line_set *set, const weir_vec16 *own,
                             uint32_t flag, uint32_t lane, uint32_t dtype, uint32_t op, weir_vec16 *joined)
{
    WEIR_UNROLL
    for (uint32_t p = 0; p < WEIR_ARCH_LINE_PARTS; p++) {
        uint64_t lo[WEIR_COLLECTIVE_RANKS];
        uint64_t hi[WEIR_COLLECTIVE_RANKS];
        WEIR_UNROLL
        for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS; k++) {
            lo[k] = k == c->rank ? own[p].lo : k < c->ranks ? set->of[k][p].lo : 0;
            hi[k] = k == c->rank ? own[p].hi : k < c->ranks ? set->of[k][p].hi : 0;
        }
        joined[p].lo = weir_collective_join(c, lo, WEIR_COLLECTIVE_RANKS, dtype, op);
        joined[p].hi = lane * WEIR_ARCH_LINE_PARTS + p == 7
                           ? weir_line_flag(flag)
                           : weir_collective_join(c, hi, WEIR_COLLECTIVE_RANKS, dtype, op);
    }
}

/* Joins line `line` of this rank's part, keeps it, and sends it to the ranks in `to`. Lanes of one warp may have lines
 * within the data and lines beyond its end. */
WEIR_FN weir_status weir_lines_reduce(const weir_dev_collective *c, const weir_collective_reduce *r, uint32_t flag,
                                      uint64_t line, uint32_t lane, uint32_t dtype, uint32_t op)
{
    const uint64_t at = line * WEIR_LINE_DATA;
    const int64_t left = weir_part_left(r, c->rank, at);
    const int keep = r->to == 0 || (r->to >> c->rank & 1) != 0;
    weir_line_set set;
    weir_vec16 own[WEIR_ARCH_LINE_PARTS];
    weir_vec16 joined[WEIR_ARCH_LINE_PARTS];
    uint32_t others = left > 0 ? weir_collective_others(c) : 0;
    weir_line_load_data(own, r->send + c->rank * r->part + at, left, 0, lane);
    weir_status status = weir_lines_await(c, weir_lines_in(c, 0, flag) + WEIR_LINE_BYTES * line, others,
                                          weir_line_flag(flag), lane, &set);
    if (WEIR_UNLIKELY(status != WEIR_OK)) {
        return status;
    }
    if (left > 0) {
        weir_lines_join(c, &set, own, flag, lane, dtype, op, joined);
    }
    weir_arch_warp_converge();
    WEIR_UNROLL
    for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS - 1; k++) {
        uint32_t peer = weir_collective_peer(c, k);
        if (left > 0 && k + 1 < c->ranks && (r->to >> peer & 1) != 0) {
            weir_arch_store_line(weir_line_at(c, peer, 1, flag, line), lane, joined);
        }
    }
    if (left > 0 && keep) {
        weir_line_store_data(r->recv + (r->to != 0 ? c->rank * r->part : 0) + at, left, joined, lane);
    }
    return WEIR_OK;
}

/* Receives line `line` of the results of each other rank. */
WEIR_FN weir_status weir_lines_gather(const weir_dev_collective *c, const weir_collective_reduce *r, uint32_t flag,
                                      uint64_t line, uint32_t lane)
{
    const uint64_t at = line * WEIR_LINE_DATA;
    weir_line_set set;
    uint32_t mask = 0;
    WEIR_UNROLL
    for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS; k++) {
        mask |= (uint32_t)(k < c->ranks && k != c->rank && weir_part_left(r, k, at) > 0) << k;
    }
    weir_status status =
        weir_lines_await(c, weir_lines_in(c, 1, flag) + WEIR_LINE_BYTES * line, mask, weir_line_flag(flag), lane, &set);
    if (WEIR_UNLIKELY(status != WEIR_OK)) {
        return status;
    }
    WEIR_UNROLL
    for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS; k++) {
        if ((mask >> k & 1) != 0) {
            weir_line_store_data(r->recv + k * r->part + at, weir_part_left(r, k, at), set.of[k], lane);
        }
    }
    return WEIR_OK;
}

/* Like weir_collective_reduce_packets. WEIR_ERR_INVALID for blocks that are not whole warps. */
WEIR_FN weir_status weir_collective_reduce_lines(const weir_dev_collective *c, const weir_collective_reduce *r,
                                                 uint32_t dtype, uint32_t op, weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    if (WEIR_UNLIKELY(!weir_line_fits(coop))) {
        return weir_dev_control_fail(c->control, WEIR_ERR_INVALID);
    }
    uint32_t flag;
    const weir_line_walk walk = weir_line_walk_of(coop);
    weir_parts_prefetch(c, r, weir_line_first_byte(&walk), 0, WEIR_COLLECTIVE_RANKS);
    const weir_status begun = weir_collective_begin(c, &flag);
    if (WEIR_UNLIKELY(begun != WEIR_OK)) {
        return begun;
    }
    const uint32_t mailbox = weir_collective_mailbox_of(coop, 0);
    const uint64_t count = weir_line_count(r->length);
    for (uint64_t i = walk.first; i < count; i += walk.stride) {
        weir_lines_scatter(c, r, flag, i + walk.mine, walk.lane);
    }
    weir_collective_announce(c, &r->what, NULL, flag, mailbox, coop);
    weir_packet_advance(c->epoch, 0, 0, coop);
    weir_status status = weir_lines_agree(weir_collective_compare(c, &r->what, NULL, flag, mailbox, coop), c->control);
    if (WEIR_UNLIKELY(status != WEIR_OK)) {
        return status;
    }
    for (uint64_t i = walk.first; i < count; i += walk.stride) {
        status = weir_lines_reduce(c, r, flag, i + walk.mine, walk.lane, dtype, op);
        if (WEIR_UNLIKELY(status != WEIR_OK)) {
            return status;
        }
    }
    for (uint64_t i = walk.first; i < count && (r->to >> c->rank & 1) != 0; i += walk.stride) {
        status = weir_lines_gather(c, r, flag, i + walk.mine, walk.lane);
        if (WEIR_UNLIKELY(status != WEIR_OK)) {
            return status;
        }
    }
    return WEIR_OK;
}

/* Sends line `line` of all pieces of this rank. */
WEIR_FN void weir_lines_send(const weir_dev_collective *c, const weir_collective_move *m, uint32_t flag, uint64_t line,
                             uint32_t lane)
{
    const uint64_t at = line * WEIR_LINE_DATA;
    weir_line_set set;
    WEIR_UNROLL
    for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS - 1; k++) {
        uint32_t peer = weir_collective_peer(c, k);
        int64_t left = k + 1 < c->ranks ? weir_left(m->send_bytes[peer], at) : 0;
        if (left > 0) {
            weir_line_load_data(set.of[k], m->send + m->send_at[peer] + at, left, weir_line_flag(flag), lane);
        }
    }
    weir_arch_warp_converge();
    WEIR_UNROLL
    for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS - 1; k++) {
        uint32_t peer = weir_collective_peer(c, k);
        if (k + 1 < c->ranks && weir_left(m->send_bytes[peer], at) > 0) {
            weir_arch_store_line(weir_line_at(c, peer, 0, flag, line), lane, set.of[k]);
        }
    }
}

/* Receives line `line` of all pieces for this rank. */
WEIR_FN weir_status weir_lines_receive(const weir_dev_collective *c, const weir_collective_move *m, uint32_t flag,
                                       uint64_t line, uint32_t lane)
{
    const uint64_t at = line * WEIR_LINE_DATA;
    weir_line_set set;
    uint32_t mask = 0;
    WEIR_UNROLL
    for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS; k++) {
        mask |= (uint32_t)(k < c->ranks && k != c->rank && m->recv_bytes[k] > at) << k;
    }
    weir_status status =
        weir_lines_await(c, weir_lines_in(c, 0, flag) + WEIR_LINE_BYTES * line, mask, weir_line_flag(flag), lane, &set);
    if (WEIR_UNLIKELY(status != WEIR_OK)) {
        return status;
    }
    WEIR_UNROLL
    for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS; k++) {
        if ((mask >> k & 1) != 0) {
            weir_line_store_data(m->recv + m->recv_at[k] + at, weir_left(m->recv_bytes[k], at), set.of[k], lane);
        }
    }
    return WEIR_OK;
}

/* Like weir_collective_move_packets. WEIR_ERR_INVALID for blocks that are not whole warps. */
WEIR_FN weir_status weir_collective_move_lines(const weir_dev_collective *c, const weir_collective_move *m,
                                               weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    if (WEIR_UNLIKELY(!weir_line_fits(coop))) {
        return weir_dev_control_fail(c->control, WEIR_ERR_INVALID);
    }
    uint32_t flag;
    const weir_line_walk walk = weir_line_walk_of(coop);
    weir_pieces_prefetch(c, m, weir_line_first_byte(&walk), 0, WEIR_COLLECTIVE_RANKS);
    const weir_status begun = weir_collective_begin(c, &flag);
    if (WEIR_UNLIKELY(begun != WEIR_OK)) {
        return begun;
    }
    const uint32_t mailbox = weir_collective_mailbox_of(coop, 0);
    const uint64_t count = weir_line_count(m->most);
    for (uint64_t i = walk.first; i < count; i += walk.stride) {
        weir_lines_send(c, m, flag, i + walk.mine, walk.lane);
    }
    weir_collective_announce(c, &m->what, m->counted ? m->send_bytes : NULL, flag, mailbox, coop);
    weir_packet_advance(c->epoch, 0, 0, coop);
    weir_status status = weir_lines_agree(weir_collective_keep(c, m, flag, mailbox, coop), c->control);
    if (WEIR_UNLIKELY(status != WEIR_OK)) {
        return status;
    }
    for (uint64_t i = walk.first; i < count; i += walk.stride) {
        status = weir_lines_receive(c, m, flag, i + walk.mine, walk.lane);
        if (WEIR_UNLIKELY(status != WEIR_OK)) {
            return status;
        }
    }
    return WEIR_OK;
}

#endif
