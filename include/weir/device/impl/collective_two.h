/* weir/device/impl/collective_two.h - collectives between two ranks by lines: one peer, data at multiples of 8 bytes.
 *
 * The general kernels (impl/collective_lines.h) have more than 128 registers a thread, and send everything before they
 * receive. Here a thread has 64, so a block has up to 1,024 of them. Each warp sends the next batch of lines before it
 * receives the current one, so that both directions of the link are busy. The lines are those of the general kernels:
 * one rank may take these and the other those.
 *
 * Only the first batch is sent in front of the block's barrier. Between the two, threads copy and wait by themselves,
 * and the lanes of a warp may come apart. The barrier behind that joins them again, because eight lanes must store a
 * line with one instruction (docs/notes/2026-11-25-two-h100.md). Calls of one batch need no barrier. */
#ifndef WEIR_DEVICE_IMPL_COLLECTIVE_TWO_H
#define WEIR_DEVICE_IMPL_COLLECTIVE_TWO_H

#include "weir/device/impl/collective_lines.h"

#define WEIR_TWO_BATCH 2u /* lines that a lane has in flight */

/* One direction: its lines, and the data of this rank that it sends, or joins with what comes. */
typedef struct weir_two_way {
    const char *data;
    char *lines;
    uint64_t words;
} weir_two_way;

WEIR_FN weir_two_way weir_two_way_of(const char *data, char *lines, uint64_t bytes)
{
    const weir_two_way way = { data, lines, bytes / 8 };
    return way;
}

/* The lines that come from the other rank. */
WEIR_FN char *weir_two_lines_in(const weir_dev_collective *c, uint32_t flag)
{
    const uint32_t peer = weir_collective_peer(c, 0);
    return c->memory[c->rank] + weir_collective_room(c, weir_collective_lines(c), c->line_room, 0, flag % 2, peer);
}

/* Whether the warp whose first line is `first` has a part of the direction. Its lanes take the same branches. */
WEIR_FN int weir_two_has(const weir_two_way *way, uint64_t first) { return first * WEIR_LINE_WORDS < way->words; }

/* Sends the warp's batch that begins with line `first`. Lanes that are apart in spite of the barrier send line by line
 * with fences, which takes long but is right. */
WEIR_FN void weir_two_send(const weir_two_way *to, uint64_t first, uint32_t flag, const weir_line_walk *walk)
{
    const uint64_t line = first + walk->mine;
    const uint32_t stride = (uint32_t)walk->stride;
    const int32_t left = weir_line_left(to->words, line);
    char *lines = to->lines + line * WEIR_LINE_BYTES;
    weir_vec16 parts[WEIR_TWO_BATCH][WEIR_ARCH_LINE_PARTS];
    if (!weir_two_has(to, first)) {
        return;
    }
    weir_line_load_batch(parts, to->data + line * WEIR_LINE_DATA, left, stride, WEIR_TWO_BATCH, walk->lane);
    weir_arch_warp_converge();
    const int joined = WEIR_ARCH_WARP_JOINED();
    if (joined) {
        weir_line_store_batch(lines, parts, left, weir_line_flag(flag), stride, WEIR_TWO_BATCH, walk->lane);
    }
    WEIR_UNROLL
    for (uint32_t k = 0; k < WEIR_TWO_BATCH && !joined; k++) {
        weir_line_set_flag(parts[k], weir_line_flag(flag), walk->lane);
        weir_line_store_gathered(lines + k * stride * WEIR_LINE_BYTES, walk->lane, parts[k],
                                 left > (int32_t)(k * stride * WEIR_LINE_WORDS));
    }
}

/* Joins the lanes of the block's warps again, if the call has more than the batch of `step` lines that each has sent.
 * All threads of the block call. */
WEIR_FN void weir_two_join_lanes(const weir_two_way *to, const weir_two_way *from, uint64_t step, weir_coop coop)
{
    if (weir_two_has(to, step) || weir_two_has(from, step)) {
        weir_arch_block_sync(coop.host);
    }
}

/* Loads the lane's parts of a batch of lines, once. Returns whether all have arrived. `left`: words from the lane's
 * first line on. */
WEIR_FN int weir_two_look(const char *lines, int32_t left, uint32_t stride, uint64_t flag, uint32_t lane,
                          weir_vec16 (*come)[WEIR_ARCH_LINE_PARTS])
{
    int there = 1;
    WEIR_UNROLL
    for (uint32_t k = 0; k < WEIR_TWO_BATCH; k++) {
        if (left > 0) {
            weir_arch_load_line(lines, lane, come[k]);
            there &= weir_line_there(come[k], lane, flag);
        }
        lines += stride * WEIR_LINE_BYTES;
        left -= (int32_t)(stride * WEIR_LINE_WORDS);
    }
    return there;
}

/* Joins the lines of a batch with this rank's data in the order of the ranks, and stores the results. */
WEIR_FN void weir_two_store(const weir_dev_collective *c, char *out, int32_t left, uint32_t stride,
                            weir_vec16 (*own)[WEIR_ARCH_LINE_PARTS], weir_vec16 (*come)[WEIR_ARCH_LINE_PARTS],
                            uint32_t dtype, uint32_t op, uint32_t lane)
{
    WEIR_UNROLL
    for (uint32_t k = 0; k < WEIR_TWO_BATCH; k++) {
        weir_alias_u64 *words = (weir_alias_u64 *)out;
        WEIR_UNROLL
        for (uint32_t p = 0; p < WEIR_ARCH_LINE_PARTS; p++) {
            const int32_t word = (int32_t)(lane * WEIR_ARCH_LINE_PARTS + p);
            uint64_t ranks[2];
            weir_batch_ordered(c, &come[k][p].lo, own[k][p].lo, 2, ranks);
            const uint64_t lo = weir_collective_join(c, ranks, 2, dtype, op);
            weir_batch_ordered(c, &come[k][p].hi, own[k][p].hi, 2, ranks);
            const uint64_t hi = weir_collective_join(c, ranks, 2, dtype, op); /* of a flag, it is not used */
            if (word < left) {
                weir_arch_store_u64(words + word, lo);
            }
            if (word != 7 && word + 8 < left) {
                weir_arch_store_u64(words + word + 8, hi);
            }
        }
        out += stride * WEIR_LINE_DATA;
        left -= (int32_t)(stride * WEIR_LINE_WORDS);
    }
}

/* Receives the warp's batch that begins with line `first`, joins it, and stores the results to `out`. */
WEIR_FN weir_status weir_two_join(const weir_dev_collective *c, const weir_two_way *from, char *out, uint64_t first,
                                  uint32_t flag, const weir_line_walk *walk, uint32_t dtype, uint32_t op)
{
    const uint32_t stride = (uint32_t)walk->stride;
    const uint64_t line = first + walk->mine;
    const int32_t left = weir_line_left(from->words, line);
    const char *lines = from->lines + line * WEIR_LINE_BYTES;
    uint32_t reads = WEIR_ARCH_FAST_READS;
    weir_vec16 own[WEIR_TWO_BATCH][WEIR_ARCH_LINE_PARTS];
    weir_vec16 come[WEIR_TWO_BATCH][WEIR_ARCH_LINE_PARTS];
    WEIR_PARTLY_SET(come);
    weir_line_load_batch(own, from->data + line * WEIR_LINE_DATA, left, stride, WEIR_TWO_BATCH, walk->lane);
    weir_arch_warp_converge();
    WEIR_ROLLED
    while (!weir_arch_warp_all(weir_two_look(lines, left, stride, weir_line_flag(flag), walk->lane, come))) {
        if (weir_spin_is_long(&reads)) {
            const weir_status status =
                weir_line_spin(lines, stride, WEIR_TWO_BATCH, left, flag, walk->lane, c->control);
            if (status != WEIR_OK) {
                return weir_collective_end_wait(c, weir_collective_peer(c, 0), status);
            }
            reads = WEIR_ARCH_FAST_READS;
        }
    }
    weir_two_store(c, out + line * WEIR_LINE_DATA, left, stride, own, come, dtype, op, walk->lane);
    return WEIR_OK;
}

/* A reduction in which a rank keeps what it joins (`to` is 0), in one trip. All of send, recv, part, length, bytes and
 * extents are multiples of 8. */
WEIR_FN weir_status weir_reduce_lines_two(const weir_dev_collective *c, const weir_collective_reduce *r,
                                          const weir_collective_piece *extents, uint32_t dtype, uint32_t op,
                                          weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    if (WEIR_UNLIKELY(!weir_line_fits(coop))) {
        return weir_dev_control_fail(c->control, WEIR_ERR_INVALID);
    }
    const weir_line_walk walk = weir_line_walk_of(coop);
    const uint32_t peer = weir_collective_peer(c, 0);
    const uint64_t step = WEIR_TWO_BATCH * walk.stride;
    const weir_collective_state state = weir_collective_look(c);
    uint32_t flag;
    weir_parts_prefetch(c, r, extents, weir_line_first_byte(&walk), walk.stride * WEIR_LINE_DATA, 2, WEIR_TWO_BATCH);
    const weir_status begun = weir_collective_begin(c, &state, &flag);
    if (WEIR_UNLIKELY(begun != WEIR_OK)) {
        return begun;
    }
    const uint32_t mailbox = weir_collective_mailbox_of(coop, 0);
    const weir_two_way to = weir_two_way_of(r->send + weir_extent_at(r, extents, peer),
                                            weir_line_at(c, peer, 0, flag, 0), weir_extent_bytes(r, extents, peer));
    weir_two_send(&to, walk.first, flag, &walk);
    weir_collective_announce(c, &r->what, NULL, flag, mailbox, 0, coop);
    weir_packet_advance(c->epoch, 0, 0, coop);
    const weir_two_way from = weir_two_way_of(r->send + weir_extent_at(r, extents, c->rank), weir_two_lines_in(c, flag),
                                              weir_extent_bytes(r, extents, c->rank));
    weir_status status = weir_collective_compare(c, &r->what, NULL, flag, mailbox, 0, coop);
    weir_two_join_lanes(&to, &from, step, coop);
    status = weir_lines_agree(status, c->control);
    WEIR_ROLLED
    for (uint64_t i = walk.first; status == WEIR_OK && (weir_two_has(&from, i) || weir_two_has(&to, i + step));
         i += step) {
        weir_two_send(&to, i + step, flag, &walk);
        status = weir_two_has(&from, i) ? weir_two_join(c, &from, r->recv, i, flag, &walk, dtype, op) : WEIR_OK;
    }
    return status;
}

/* Receives the warp's batch that begins with line `first`. */
WEIR_FN weir_status weir_two_receive(const weir_dev_collective *c, const weir_two_way *from, char *out, uint64_t first,
                                     uint32_t flag, const weir_line_walk *walk)
{
    const uint64_t line = first + walk->mine;
    const weir_status status = weir_line_unpack_batch(out + line * WEIR_LINE_DATA, from->lines + line * WEIR_LINE_BYTES,
                                                      weir_line_left(from->words, line), weir_line_flag(flag),
                                                      (uint32_t)walk->stride, WEIR_TWO_BATCH, walk->lane, c->control);
    return WEIR_UNLIKELY(status != WEIR_OK) ? weir_collective_end_wait(c, weir_collective_peer(c, 0), status) : WEIR_OK;
}

/* A move. All places and sizes of pieces are multiples of 8, and so are send and recv. */
WEIR_FN weir_status weir_move_lines_two(const weir_dev_collective *c, const weir_collective_move *m, weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    if (WEIR_UNLIKELY(!weir_line_fits(coop))) {
        return weir_dev_control_fail(c->control, WEIR_ERR_INVALID);
    }
    const weir_line_walk walk = weir_line_walk_of(coop);
    const uint32_t peer = weir_collective_peer(c, 0);
    const uint64_t step = WEIR_TWO_BATCH * walk.stride;
    const weir_collective_state state = weir_collective_look(c);
    uint32_t flag;
    weir_pieces_prefetch(c, m, weir_line_first_byte(&walk), walk.stride * WEIR_LINE_DATA, 2, WEIR_TWO_BATCH);
    const weir_status begun = weir_collective_begin(c, &state, &flag);
    if (WEIR_UNLIKELY(begun != WEIR_OK)) {
        return begun;
    }
    const uint32_t mailbox = weir_collective_mailbox_of(coop, 0);
    const weir_two_way to = weir_two_way_of(m->send + m->pieces[peer].send.at, weir_line_at(c, peer, 0, flag, 0),
                                            m->pieces[peer].send.bytes);
    weir_two_send(&to, walk.first, flag, &walk);
    weir_collective_announce(c, &m->what, m->counted ? m->pieces : NULL, flag, mailbox, 0, coop);
    weir_packet_advance(c->epoch, 0, 0, coop);
    const weir_two_way from = weir_two_way_of(NULL, weir_two_lines_in(c, flag), m->pieces[peer].recv.bytes);
    char *out = m->recv + m->pieces[peer].recv.at;
    weir_status status = weir_collective_keep(c, m, flag, mailbox, coop);
    weir_two_join_lanes(&to, &from, step, coop);
    status = weir_lines_agree(status, c->control);
    WEIR_ROLLED
    for (uint64_t i = walk.first; status == WEIR_OK && (weir_two_has(&from, i) || weir_two_has(&to, i + step));
         i += step) {
        weir_two_send(&to, i + step, flag, &walk);
        status = weir_two_has(&from, i) ? weir_two_receive(c, &from, out, i, flag, &walk) : WEIR_OK;
    }
    return status;
}

#endif
