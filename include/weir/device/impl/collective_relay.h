/* weir/device/impl/collective_relay.h - a broadcast among three ranks or more whose ranks pass the data on.
 *
 * The root sends each byte once: every other rank gets a part of the data and passes it on to the rest. So the root's
 * links carry the data once, and not once for each rank. The move describes the parts: each entry of
 * `pieces` has the place and the length of a rank's part, and `most` is the longest length. The root has no part. Its
 * entry describes all data.
 *
 * By lines, the thread that receives a line passes it on before it stores the data.
 *
 * By slots, columns, rounds and slots are those of impl/collective_slots.h. At the root one block of a column sends,
 * and the other one copies the data into recv. At the other ranks the first block of a column passes the part on, round
 * by round, and the second one takes what the others pass on. In registered memory all data goes into recv at once.
 *
 * Lines and slots have two sections. Data from the root comes through the first one. Data that other ranks pass on
 * comes through the second one. */
#ifndef WEIR_DEVICE_IMPL_COLLECTIVE_RELAY_H
#define WEIR_DEVICE_IMPL_COLLECTIVE_RELAY_H

#include "weir/device/impl/collective_lines.h"
#include "weir/device/impl/collective_slots.h"

WEIR_FN uint32_t weir_relay_root(const weir_collective_move *m) { return m->relay - 1; }

/* The other ranks, without the root. */
WEIR_FN uint32_t weir_relay_others(const weir_dev_collective *c, const weir_collective_move *m)
{
    return weir_collective_others(c) & ~((uint32_t)1 << weir_relay_root(m));
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

/* Receives this rank's part from the root, and passes it on to the others. */
WEIR_FN weir_status weir_relay_receive(const weir_dev_collective *c, const weir_collective_move *m, uint32_t flag,
                                       uint32_t width, const weir_line_walk *walk)
{
    const uint32_t root = weir_relay_root(m);
    const uint64_t bytes = m->pieces[c->rank].recv.bytes;
    WEIR_ROLLED
    for (uint64_t i = walk->first; i < weir_line_count(m->most); i += weir_batch_places(width) * walk->stride) {
        const weir_batch lines =
            weir_lines_batch(c, 0, flag, i + walk->mine, walk->stride, width, weir_batch_places(width));
        weir_line_set set;
        uint32_t mask = 0;
        WEIR_PARTLY_SET(set);
        WEIR_UNROLL
        for (uint32_t j = 0; j < lines.count; j++) {
            const uint64_t at = (i + j / (width - 1) * walk->stride + walk->mine) * WEIR_LINE_DATA;
            mask |= (uint32_t)(weir_batch_rank(lines.skipped, width - 1, j) == root && bytes > at) << j;
        }
        const weir_status status = weir_lines_await(c, &lines, mask, weir_line_flag(flag), walk->lane, &set);
        if (WEIR_UNLIKELY(status != WEIR_OK)) {
            return status;
        }
        WEIR_UNROLL
        for (uint32_t j = 0; j < lines.count; j++) {
            const uint64_t line = i + j / (width - 1) * walk->stride + walk->mine;
            WEIR_ROLLED
            for (uint32_t k = 0; k + 1 < c->ranks; k++) {
                const uint32_t peer = weir_collective_peer(c, k);
                if ((mask >> j & 1) != 0 && peer != root) {
                    weir_arch_store_line(weir_line_at(c, peer, 1, flag, line), walk->lane, set.of[j]);
                }
            }
        }
        WEIR_UNROLL
        for (uint32_t j = 0; j < lines.count; j++) {
            const uint64_t at = (i + j / (width - 1) * walk->stride + walk->mine) * WEIR_LINE_DATA;
            if ((mask >> j & 1) != 0) {
                weir_line_store_data(m->recv + m->pieces[c->rank].recv.at + at, weir_left(bytes, at), set.of[j],
                                     walk->lane);
            }
        }
    }
    return WEIR_OK;
}

WEIR_FN weir_status weir_relay_lines(const weir_dev_collective *c, const weir_collective_move *m, uint32_t width,
                                     weir_coop coop)
{
    const weir_line_walk walk = weir_line_walk_of(coop);
    const int is_root = c->rank == weir_relay_root(m);
    const weir_collective_state state = weir_collective_look(c);
    uint32_t flag;
    if (is_root) {
        weir_pieces_prefetch(c, m, weir_line_first_byte(&walk), walk.stride * WEIR_LINE_DATA, width,
                             weir_batch_places(width));
    }
    const weir_status begun = weir_collective_begin(c, &state, &flag);
    if (WEIR_UNLIKELY(begun != WEIR_OK)) {
        return begun;
    }
    const uint32_t mailbox = weir_collective_mailbox_of(coop, 0);
    if (is_root) {
        weir_lines_send(c, m, flag, width, &walk);
    }
    weir_collective_announce(c, &m->what, NULL, flag, mailbox, 0, coop);
    weir_packet_advance(c->epoch, 0, 0, coop);
    if (is_root) {
        return weir_collective_keep(c, m, flag, mailbox, coop);
    }
    weir_status status =
        weir_lines_agree(weir_collective_compare(c, &m->what, NULL, flag, mailbox, 0, coop), c->control);
    if (status == WEIR_OK) {
        status = weir_relay_receive(c, m, flag, width, &walk);
    }
    return status == WEIR_OK ? weir_lines_receive(c, m, 1, weir_relay_root(m), flag, width, &walk) : status;
}

/* A broadcast by lines. WEIR_ERR_INVALID for blocks that are not whole warps. */
WEIR_FN weir_status weir_collective_relay_lines(const weir_dev_collective *c, const weir_collective_move *m,
                                                weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    if (WEIR_UNLIKELY(!weir_line_fits(coop))) {
        return weir_dev_control_fail(c->control, WEIR_ERR_INVALID);
    }
    return c->ranks <= 4 ? weir_relay_lines(c, m, 4, coop) : weir_relay_lines(c, m, WEIR_COLLECTIVE_RANKS, coop);
}

/* ---- slots ------------------------------------------------------------------------------------------------------- */

/* A round of a column. */
typedef struct weir_relay_round {
    uint64_t round;
    uint64_t at;  /* of each part */
    int64_t most; /* bytes of a part */
    uint32_t column;
} weir_relay_round;

/* Bytes of the round of a rank's part. 0 or less: the part has ended. */
WEIR_FN int64_t weir_relay_left(const weir_collective_move *m, const weir_relay_round *now, uint32_t rank)
{
    return weir_least(now->most, weir_left(m->pieces[rank].recv.bytes, now->at));
}

/* Where a part goes at `to`, from this rank. */
WEIR_FN char *weir_relay_to(const weir_dev_collective *c, const weir_collective_move *m, const weir_relay_round *now,
                            uint32_t to, uint32_t part)
{
    return m->peer_recv[to] != NULL ? m->peer_recv[to] + m->pieces[part].recv.at + now->at
                                    : weir_slot_at(c, to, c->rank != weir_relay_root(m), now->round, now->column);
}

/* Stores the round of the root's data, each rank's part of it, or of this rank's part, which lies at `data`. */
WEIR_FN void weir_relay_store(const weir_dev_collective *c, const weir_collective_move *m, const weir_relay_round *now,
                              const char *data, weir_coop coop)
{
    const int is_root = c->rank == weir_relay_root(m);
    const uint32_t to = weir_relay_others(c, m);
    const int64_t turn = (int64_t)WEIR_ARCH_PEER_PIECE; /* see weir_slots_turn */
    WEIR_ROLLED
    for (int64_t done = 0; done < now->most; done += turn) {
        WEIR_ROLLED
        for (uint32_t k = 0; k + 1 < c->ranks; k++) {
            const uint32_t peer = weir_slots_peer(c, k, now->column);
            const uint32_t part = is_root ? peer : c->rank;
            if ((to >> peer & 1) != 0) {
                weir_slots_copy(weir_relay_to(c, m, now, peer, part) + done,
                                data + (is_root ? m->pieces[part].recv.at + now->at : 0) + done,
                                weir_least(turn, weir_relay_left(m, now, part) - done), coop);
            }
        }
    }
}

/* Copies the round of the others' parts into recv: out of `data`, or (NULL) of their slots. */
WEIR_FN void weir_relay_take(const weir_dev_collective *c, const weir_collective_move *m, const weir_relay_round *now,
                             const char *data, weir_coop coop)
{
    const uint32_t from = weir_relay_others(c, m);
    const char *slots = weir_slots_in(c, 1, now->round, now->column);
    WEIR_ROLLED
    for (uint32_t k = 0; k + 1 < c->ranks; k++) {
        const uint32_t peer = weir_collective_peer(c, k);
        const uint64_t at = m->pieces[peer].recv.at + now->at;
        if ((from >> peer & 1) != 0) {
            weir_slots_copy(m->recv + at, data != NULL ? data + at : slots + peer * c->slot_bytes,
                            weir_relay_left(m, now, peer), coop);
        }
    }
}

/* A round of the block that sends. A rank that is not the root passes its part on when it has come from there. */
WEIR_FN weir_status weir_relay_send_round(const weir_dev_collective *c, const weir_collective_move *m,
                                          const weir_relay_round *now, int zero_copy, weir_coop coop)
{
    const uint32_t root = weir_relay_root(m);
    const uint32_t others = weir_relay_others(c, m);
    if (c->rank == root) {
        weir_relay_store(c, m, now, m->send, coop);
        weir_collective_signal(c, WEIR_CELL_DATA, others, now->column, coop);
        return WEIR_OK;
    }
    const weir_status status = weir_collective_wait(c, WEIR_CELL_DATA, (uint32_t)1 << root, now->column, coop);
    if (status != WEIR_OK) {
        return status;
    }
    char *out = m->recv + m->pieces[c->rank].recv.at + now->at;
    const char *in = zero_copy ? out : weir_slots_in(c, 0, now->round, now->column) + root * c->slot_bytes;
    weir_relay_store(c, m, now, in, coop);
    weir_collective_signal(c, WEIR_CELL_DATA, others, now->column, coop);
    if (!zero_copy) {
        weir_slots_copy(out, in, weir_relay_left(m, now, c->rank), coop);
        weir_collective_signal(c, WEIR_CELL_TAKEN, (uint32_t)1 << root, now->column, coop);
    }
    return WEIR_OK;
}

/* A round of the block that takes what other ranks than the root pass on. At the root it copies the data into recv. */
WEIR_FN weir_status weir_relay_take_round(const weir_dev_collective *c, const weir_collective_move *m,
                                          const weir_relay_round *now, int zero_copy, weir_coop coop)
{
    const uint32_t others = weir_relay_others(c, m);
    if (c->rank == weir_relay_root(m)) {
        if (m->recv != m->send) {
            weir_relay_take(c, m, now, m->send, coop);
        }
        return WEIR_OK;
    }
    const weir_status status = weir_collective_wait(c, WEIR_CELL_DATA, others, now->column, coop);
    if (status == WEIR_OK && !zero_copy) {
        weir_relay_take(c, m, now, NULL, coop);
        weir_collective_signal(c, WEIR_CELL_TAKEN, others, now->column, coop);
    }
    return status;
}

/* Into registered memory few blocks all send, as in weir_zero_copy_move: their data needs nobody to take it. */
WEIR_FN weir_slots_duty weir_relay_duty_of(int zero_copy, weir_coop coop)
{
    weir_slots_duty duty = weir_slots_duty_of(coop);
    if (zero_copy && duty.columns < WEIR_ZERO_COPY_MANY) {
        duty.columns = coop.blocks;
        duty.column = coop.block;
        duty.sends = 1;
        duty.takes = 1;
    }
    return duty;
}

/* A broadcast by slots, or into registered memory. */
WEIR_FN weir_status weir_collective_relay_slots(const weir_dev_collective *c, const weir_collective_move *m,
                                                weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    const int zero_copy = m->peer_recv[c->rank] != NULL;
    const weir_slots_duty duty = weir_relay_duty_of(zero_copy, coop);
    const uint64_t range = weir_slots_range(m->most, duty.columns);
    const uint64_t rounds = weir_slots_rounds(m->most, duty.column, duty.columns, m->chunk);
    weir_status status = weir_slots_meet(c, &m->what, NULL, zero_copy, coop);
    WEIR_ROLLED
    for (uint64_t i = 0; i < rounds + 2 && rounds != 0 && status == WEIR_OK; i++) {
        weir_relay_round now;
        now.column = duty.column;
        now.round = i;
        now.at = duty.column * range + i * m->chunk;
        now.most = weir_slots_left(range, i, m->chunk);
        if (duty.sends && i >= 2 && !zero_copy) {
            status = weir_collective_wait(c, WEIR_CELL_TAKEN, weir_relay_others(c, m), duty.column, coop);
        }
        if (duty.sends && i < rounds && status == WEIR_OK) {
            status = weir_relay_send_round(c, m, &now, zero_copy, coop);
        }
        if (duty.takes && i >= 1 && i <= rounds && status == WEIR_OK) {
            now.round = i - 1;
            now.at -= m->chunk;
            now.most = weir_slots_left(range, i - 1, m->chunk);
            status = weir_relay_take_round(c, m, &now, zero_copy, coop);
        }
    }
    return weir_slots_end(c, status);
}

#endif
