/* weir/device/impl/collective_slots.h - collectives by plain stores and signals: the fastest for large data.
 *
 * Two blocks are a column. A column has its range of every piece, and meets only the same column of each peer. One of
 * its blocks stores data into slots of the peers, then signals. The other block joins or takes the data that arrives;
 * the link does not wait for that. Both go round by round and use two slots in turn. A block that is alone in its grid
 * does both, and so does each block of a reduction of two ranks by few blocks. If the receiving user's memory is mapped
 * here, results go directly into it (zero-copy).
 *
 * If one of two ranks sends more than the other, the host may split a call. Each direction then has blocks in
 * proportion to its bytes: what a rank sends has a column for each block that sends it, and as many blocks of the other
 * rank take it. `split` is one more than the number of blocks that send here; 0: the call is not split. */
#ifndef WEIR_DEVICE_IMPL_COLLECTIVE_SLOTS_H
#define WEIR_DEVICE_IMPL_COLLECTIVE_SLOTS_H

#include "weir/device/impl/collective_draws.h"
#include "weir/device/impl/collective_join.h"

/* The work of the calling block. */
typedef struct weir_slots_duty {
    uint32_t column;
    uint32_t columns;
    int sends;
    int takes;
} weir_slots_duty;

WEIR_FN weir_slots_duty weir_slots_duty_of(weir_coop coop)
{
    weir_slots_duty duty;
    duty.columns = weir_slots_columns(coop.blocks);
    duty.sends = coop.block < duty.columns;
    duty.takes = !duty.sends || coop.blocks == 1;
    duty.column = duty.sends ? coop.block : coop.block - duty.columns;
    return duty;
}

/* The same where the call may be split. */
WEIR_FN weir_slots_duty weir_split_duty_of(uint32_t split, weir_coop coop)
{
    weir_slots_duty duty = weir_slots_duty_of(coop);
    if (split != 0) {
        const uint32_t sending = split - 1;
        duty.sends = coop.block < sending;
        duty.takes = !duty.sends;
        duty.column = duty.sends ? coop.block : coop.block - sending;
        duty.columns = duty.sends ? sending : coop.blocks - sending;
    }
    return duty;
}

/* The same in a reduction. */
WEIR_FN weir_slots_duty weir_reduce_duty_of(const weir_dev_collective *c, weir_coop coop)
{
    weir_slots_duty duty = weir_slots_duty_of(coop);
    if (weir_reduce_columns(c, coop.blocks) == coop.blocks) {
        duty.column = coop.block;
        duty.columns = coop.blocks;
        duty.sends = 1;
        duty.takes = 1;
    }
    return duty;
}

/* A column's range of `bytes`. It has the same length for all columns, except where the data ends. */
WEIR_FN uint64_t weir_slots_range(uint64_t bytes, uint32_t columns)
{
    uint64_t range = (bytes + columns - 1) / columns;
    return (range + 127) / 128 * 128;
}

/* Rounds of `chunk` bytes each. */
WEIR_FN uint64_t weir_slots_rounds(uint64_t bytes, uint32_t column, uint32_t columns, uint64_t chunk)
{
    uint64_t range = weir_slots_range(bytes, columns);
    int64_t left = weir_least((int64_t)range, weir_left(bytes, column * range));
    return left <= 0 ? 0 : ((uint64_t)left + chunk - 1) / chunk;
}

/* Bytes of round `round` of a column's range. */
WEIR_FN int64_t weir_slots_left(uint64_t range, uint64_t round, uint64_t chunk)
{
    return weir_least((int64_t)chunk, weir_left(range, round * chunk));
}

WEIR_FN char *weir_slot_at(const weir_dev_collective *c, uint32_t peer, uint32_t section, uint64_t round,
                           uint32_t column)
{
    return c->memory[peer] + weir_collective_slot(c, section, (uint32_t)(round % 2), column, c->rank);
}

/* The slots that this rank receives: that of rank k lies k slots behind the result. Of two ranks there is only the
 * other one's. */
WEIR_FN const char *weir_slots_in(const weir_dev_collective *c, uint32_t section, uint64_t round, uint32_t column)
{
    const char *first = c->memory[c->rank] + weir_collective_slot(c, section, (uint32_t)(round % 2), column, 0);
    return c->ranks == 2 && c->rank == 0 ? first - c->slot_bytes : first;
}

/* If many blocks store to one peer at a time, its links limit them, and those of the other peers are idle. So a block
 * turns to the next peer after each piece, and columns begin with different peers. Four H200, all_to_all of 256 MiB by
 * 32 blocks: 799 us peer by peer, 723 in pieces of 16 KiB, 747 of 32, 677 of 64, 705 of 128; 663 with both.
 * Returns the bytes of `bytes` that a block stores to a peer before it turns to the next one. */
WEIR_FN uint64_t weir_slots_turn(const weir_dev_collective *c, uint64_t piece, uint64_t bytes)
{
    return c->ranks > 2 ? piece : bytes;
}

/* The k-th peer to which a column sends. The ranks are at least two. */
WEIR_FN uint32_t weir_slots_peer(const weir_dev_collective *c, uint32_t k, uint32_t column)
{
    return weir_collective_peer(c, (k + column) % (c->ranks - 1));
}

/* A copy by the calling block. */
WEIR_FN void weir_slots_copy(char *dst, const char *src, int64_t bytes, weir_coop coop)
{
    if (bytes > 0) {
        weir_copy(dst, src, (uint64_t)bytes, weir_coop_block(coop));
    }
}

/* ---- reductions -------------------------------------------------------------------------------------------- */

/* The number of the part that a rank joins. That of the rank that has none lies behind the data. */
WEIR_FN uint32_t weir_slots_part(const weir_collective_reduce *r, uint32_t rank)
{
    return rank + 1 == r->apart ? WEIR_COLLECTIVE_RANKS : rank - (r->apart != 0 && rank >= r->apart);
}

/* Bytes of the part of `rank` in a round that begins at `at` and has at most `span` bytes. */
WEIR_FN int64_t weir_slots_part_left(const weir_collective_reduce *r, uint32_t rank, uint64_t at, int64_t span)
{
    return weir_least(span, weir_part_left(r, weir_slots_part(r, rank), at));
}

WEIR_FN void weir_slots_scatter(const weir_dev_collective *c, const weir_collective_reduce *r, uint64_t round,
                                uint32_t column, uint64_t at, int64_t span, weir_coop coop)
{
    const uint64_t turn = weir_slots_turn(c, WEIR_ARCH_PEER_PIECE, (uint64_t)span);
    WEIR_ROLLED
    for (uint64_t done = 0; done < (uint64_t)span; done += turn) {
        WEIR_ROLLED
        for (uint32_t k = 0; k + 1 < c->ranks; k++) {
            const uint32_t peer = weir_slots_peer(c, k, column);
            weir_slots_copy(weir_slot_at(c, peer, 0, round, column) + done,
                            r->send + weir_slots_part(r, peer) * r->part + at + done,
                            weir_slots_part_left(r, peer, at + done, weir_least((int64_t)turn, span - (int64_t)done)),
                            coop);
        }
    }
}

/* The place in recv of the results of a range that begins at byte `at` of this rank's part. */
WEIR_FN uint64_t weir_slots_place(const weir_dev_collective *c, const weir_collective_reduce *r, uint64_t at)
{
    return r->to != 0 ? weir_slots_part(r, c->rank) * r->part + at : at;
}

/* Joins the data of one round that came through slots. */
WEIR_FN void weir_slots_join_round(const weir_dev_collective *c, const weir_collective_reduce *r, uint64_t round,
                                   uint32_t column, uint64_t at, int64_t span, uint32_t dtype, uint32_t op,
                                   weir_coop coop)
{
    weir_slots_work w;
    w.own = r->send + weir_slots_part(r, c->rank) * r->part + at;
    w.in = weir_slots_in(c, 0, round, column);
    w.pull = NULL;
    w.pulled = 0;
    w.place = weir_slots_place(c, r, at);
    w.out = r->to == 0 || (r->to >> c->rank & 1) != 0 ? r->recv + w.place : NULL;
    w.to = r->to;
    w.recv = r->peer_recv;
    w.slot = weir_collective_slot(c, 1, (uint32_t)(round % 2), column, c->rank);
    weir_slots_join(c, &w, weir_slots_part_left(r, c->rank, at, span), dtype, op, coop);
}

WEIR_FN void weir_slots_gather(const weir_dev_collective *c, const weir_collective_reduce *r, uint64_t round,
                               uint32_t column, uint64_t at, int64_t span, weir_coop coop)
{
    const char *in = weir_slots_in(c, 1, round, column);
    WEIR_ROLLED
    for (uint32_t k = 0; k + 1 < c->ranks; k++) {
        const uint32_t peer = weir_collective_peer(c, k);
        weir_slots_copy(r->recv + weir_slots_part(r, peer) * r->part + at, in + peer * c->slot_bytes,
                        weir_slots_part_left(r, peer, at, span), coop);
    }
}

/* A collective's own state, which each thread of a call by slots loads first. After a failed call no later call may
 * store into slots: a peer may still wait for data of the failed call, and would take the later data for it. The word
 * beside the epoch records the failure. */
typedef struct weir_slots_state {
    uint64_t abandoned;
    uint64_t failed;
    int deregistered; /* whether a registration that this launch uses has ended */
} weir_slots_state;

WEIR_FN weir_slots_state weir_slots_look(const weir_dev_collective *c)
{
    weir_slots_state state;
    state.abandoned = weir_arch_load_relaxed_dev_u64(c->epoch + WEIR_COLLECTIVE_ABANDONED);
    state.failed = weir_arch_load_relaxed_dev_u64(c->epoch + 1);
    state.deregistered = weir_collective_deregistered(c);
    return state;
}

/* All threads of the block go on, or end, together. Before it a kernel loads nothing but the collective's own cells:
 * other memory may be gone. It may prefetch. */
WEIR_FN weir_status weir_slots_check(const weir_dev_collective *c, const weir_slots_state *state, weir_coop coop)
{
    weir_status status = WEIR_OK;
    if (WEIR_UNLIKELY(state->abandoned != 0 || state->deregistered)) {
        status =
            WEIR_SLOW(weir_collective_gone(c, state->abandoned != 0 ? WEIR_DOING_ABANDONED : WEIR_DOING_DEREGISTERED));
    } else if (WEIR_UNLIKELY(state->failed != 0)) {
        status = weir_dev_control_error(c->control);
    }
    return weir_coop_agree(weir_coop_block(coop), c->control, status);
}

/* Both steps. */
WEIR_FN weir_status weir_slots_begin(const weir_dev_collective *c, weir_coop coop)
{
    const weir_slots_state state = weir_slots_look(c);
    return weir_slots_check(c, &state, coop);
}

WEIR_FN weir_status weir_slots_end(const weir_dev_collective *c, weir_status status)
{
    if (WEIR_UNLIKELY(status != WEIR_OK)) {
        weir_arch_store_relaxed_dev_u64(c->epoch + 1, 1);
    }
    return status;
}

/* The ranks exchange their calls. With `zero_copy`, each block meets the same block of the other ranks: what earlier
 * kernels of the others did with their memory is then done, and this block may read and write that memory. The epoch is
 * loaded together with the words of weir_slots_begin. */
WEIR_FN weir_status weir_slots_meet(const weir_dev_collective *c, const weir_collective_what *what,
                                    const weir_collective_pieces *pieces, int zero_copy, weir_coop coop)
{
    const uint32_t flag = weir_packet_flag(c->epoch);
    const weir_status begun = weir_slots_begin(c, coop);
    if (WEIR_UNLIKELY(begun != WEIR_OK)) {
        return begun;
    }
    const uint32_t mailbox = weir_collective_mailbox_of(coop, zero_copy);
    weir_collective_announce(c, what, pieces, flag, mailbox, zero_copy, coop);
    weir_packet_advance(c->epoch, 0, 0, coop);
    const weir_status status = weir_collective_compare(c, what, pieces, flag, mailbox, zero_copy, coop);
    return mailbox != WEIR_NO_MAILBOX ? weir_coop_agree(weir_coop_block(coop), c->control, status) : status;
}

/* Tells the other ranks that this block no longer accesses their memory, and waits until theirs have said the same. */
WEIR_FN weir_status weir_zero_copy_end(const weir_dev_collective *c, weir_coop coop)
{
    const uint32_t others = weir_collective_others(c);
    weir_collective_signal(c, WEIR_CELL_DATA, others, coop.block, coop);
    return weir_collective_wait(c, WEIR_CELL_DATA, others, coop.block, coop);
}

/* Reads and writes the ranks' memory directly, after all ranks have met; `peer_send` describes the memory. Warps draw
 * chunks of this rank's part, or (r->chunk 0) each block has a range of it. */
WEIR_FN weir_status weir_collective_reduce_zero_copy(const weir_dev_collective *c, const weir_collective_reduce *r,
                                                     uint32_t dtype, uint32_t op, weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    const weir_status status = weir_slots_meet(c, &r->what, NULL, 1, coop);
    if (status != WEIR_OK) {
        return weir_slots_end(c, status);
    }
    const weir_coop group = r->chunk != 0 ? weir_draws_warp(coop) : coop;
    const uint64_t span = r->chunk != 0 ? r->chunk : weir_slots_range(r->length, coop.blocks);
    weir_draws draws = weir_draws_begin(r->length, r->chunk != 0 ? r->chunk : 1, coop);
    uint64_t n = coop.block;
    weir_slots_work w;
    w.in = NULL;
    w.pull = r->peer_send;
    w.to = r->to;
    w.recv = r->peer_recv;
    w.slot = 0;
    WEIR_ROLLED
    for (int more = r->chunk == 0 || weir_draws_next(c, &draws, coop, &n); more;
         more = r->chunk != 0 && weir_draws_next(c, &draws, coop, &n)) {
        const uint64_t at = n * span;
        w.own = r->send + c->rank * r->part + at;
        w.pulled = c->rank * r->part + at;
        w.place = weir_slots_place(c, r, at);
        w.out = r->recv + w.place;
        weir_slots_join(c, &w, weir_slots_part_left(r, c->rank, at, (int64_t)span), dtype, op, group);
    }
    return weir_slots_end(c, weir_zero_copy_end(c, coop));
}

/* ---- moves ------------------------------------------------------------------------------------------------- */

/* The start of the column's part of a piece in round `round`, and its length, which may be 0. */
WEIR_FN uint64_t weir_slots_piece(uint64_t bytes, uint64_t range, uint64_t round, uint64_t chunk, uint32_t column,
                                  int64_t *left)
{
    uint64_t at = column * range + round * chunk;
    *left = weir_least(weir_slots_left(range, round, chunk), weir_left(bytes, at));
    return at;
}

/* The bit of rank `k` if it is a peer and this column has data for it, or from it, in round `round`. */
WEIR_FN uint32_t weir_slots_bit(const weir_dev_collective *c, uint32_t k, uint64_t bytes, uint64_t range,
                                uint64_t round, uint64_t chunk, uint32_t column)
{
    int64_t left = 0;
    if (k < c->ranks && k != c->rank) {
        (void)weir_slots_piece(bytes, range, round, chunk, column, &left);
    }
    return (uint32_t)(left > 0) << k;
}

/* The peers to which this column sends data in round `round`; with `receives`, a constant, those it receives from. */
WEIR_FN uint32_t weir_slots_peers(const weir_dev_collective *c, const weir_collective_move *m, int receives,
                                  uint64_t round, uint32_t column)
{
    uint32_t mask = 0;
    WEIR_UNROLL
    for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS; k++) {
        const uint64_t bytes = receives ? m->pieces[k].recv.bytes : m->pieces[k].send.bytes;
        const uint64_t range = receives ? m->recv_range[k] : m->send_range[k];
        mask |= weir_slots_bit(c, k, bytes, range, round, m->chunk, column);
    }
    return mask;
}

WEIR_FN void weir_slots_send(const weir_dev_collective *c, const weir_collective_move *m, uint64_t round,
                             uint32_t column, weir_coop coop)
{
    const uint64_t turn = weir_slots_turn(c, WEIR_ARCH_PEER_PIECE, m->chunk);
    WEIR_ROLLED
    for (uint64_t done = 0; done < m->chunk; done += turn) {
        WEIR_ROLLED
        for (uint32_t k = 0; k + 1 < c->ranks; k++) {
            const uint32_t peer = weir_slots_peer(c, k, column);
            int64_t left;
            const uint64_t at =
                weir_slots_piece(m->pieces[peer].send.bytes, m->send_range[peer], round, m->chunk, column, &left) +
                done;
            weir_slots_copy(weir_slot_at(c, peer, 0, round, column) + done, m->send + m->pieces[peer].send.at + at,
                            weir_least((int64_t)turn, left - (int64_t)done), coop);
        }
    }
}

/* Copies the piece that stays here, from byte `at` on. */
WEIR_FN void weir_slots_keep_bytes(const weir_dev_collective *c, const weir_collective_move *m, uint64_t at,
                                   int64_t bytes, weir_coop coop)
{
    const char *from = m->send + m->pieces[c->rank].send.at;
    char *to = m->recv + m->pieces[c->rank].recv.at;
    if (to != from) {
        weir_slots_copy(to + at, from + at, bytes, coop);
    }
}

/* Where a call is split, each block keeps a share of the `bytes` bytes that stay here. Its place in a round. */
WEIR_FN uint64_t weir_slots_share(uint64_t bytes, uint64_t round, uint64_t rounds, int64_t *left, weir_coop coop)
{
    const uint64_t range = weir_slots_range(bytes, coop.blocks);
    const uint64_t each = (range / 128 + rounds - 1) / rounds * 128;
    return weir_slots_piece(bytes, range, round, each, coop.block, left);
}

/* With few columns the sending block copies half of the piece, if the receiving block takes data from peers. With many,
 * the receiving blocks have time to copy all of it. */
#define WEIR_SLOTS_MANY 32u
WEIR_FN void weir_slots_keep(const weir_dev_collective *c, const weir_collective_move *m, uint64_t round,
                             uint64_t rounds, uint32_t column, int divides, int second, weir_coop coop)
{
    const uint64_t bytes = m->pieces[c->rank].recv.bytes;
    int64_t left;
    if (m->split != 0) {
        const uint64_t share = weir_slots_share(bytes, round, rounds, &left, coop);
        weir_slots_keep_bytes(c, m, share, left, coop);
        return;
    }
    const uint64_t at = weir_slots_piece(bytes, m->recv_range[c->rank], round, m->chunk, column, &left);
    const int64_t half = divides ? left / 2 / 128 * 128 : 0;
    weir_slots_keep_bytes(c, m, second ? at + (uint64_t)half : at, second ? left - half : half, coop);
}

WEIR_FN void weir_slots_take(const weir_dev_collective *c, const weir_collective_move *m, uint64_t round,
                             uint32_t column, weir_coop coop)
{
    const char *in = weir_slots_in(c, 0, round, column);
    WEIR_ROLLED
    for (uint32_t k = 0; k + 1 < c->ranks; k++) {
        const uint32_t peer = weir_collective_peer(c, k);
        int64_t left;
        const uint64_t at =
            weir_slots_piece(m->pieces[peer].recv.bytes, m->recv_range[peer], round, m->chunk, column, &left);
        weir_slots_copy(m->recv + m->pieces[peer].recv.at + at, in + peer * c->slot_bytes, left, coop);
    }
}

/* Whether this rank receives data from a peer. */
WEIR_FN int weir_slots_receives(const weir_dev_collective *c, const weir_collective_move *m)
{
    int some = 0;
    WEIR_ROLLED
    for (uint32_t k = 0; k + 1 < c->ranks; k++) {
        some |= m->pieces[weir_collective_peer(c, k)].recv.bytes != 0;
    }
    return some;
}

/* The bytes of the longest piece that the columns of a block divide. */
WEIR_FN uint64_t weir_slots_most(const weir_dev_collective *c, const weir_collective_move *m, int sends)
{
    if (m->split == 0) {
        return m->most;
    }
    const weir_collective_pieces *pieces = &m->pieces[weir_collective_peer(c, 0)];
    return sends ? pieces->send.bytes : pieces->recv.bytes;
}

/* A move through slots. If received data overwrites sent data, the two blocks of a column meet, too: the sender signals
 * its own rank. A rank that is alone receives nothing. */
WEIR_FN weir_status weir_slots_move(const weir_dev_collective *c, const weir_collective_move *m, weir_coop coop)
{
    const weir_slots_duty duty = weir_split_duty_of(m->split, coop);
    const uint32_t column = duty.column;
    const uint32_t self = m->in_place && c->ranks > 1 ? (uint32_t)1 << c->rank : 0;
    const uint64_t rounds =
        column < duty.columns ? weir_slots_rounds(weir_slots_most(c, m, duty.sends), 0, duty.columns, m->chunk) : 0;
    const int divides = duty.columns < WEIR_SLOTS_MANY && weir_slots_receives(c, m);
    weir_status status = WEIR_OK;
    for (uint64_t i = 0; i < rounds + 2 && rounds != 0 && status == WEIR_OK; i++) {
        if (duty.sends && i >= 2) {
            status = weir_collective_wait(c, WEIR_CELL_TAKEN, weir_slots_peers(c, m, 0, i - 2, column), column, coop);
        }
        if (duty.sends && i < rounds && status == WEIR_OK) {
            const uint32_t to = weir_slots_peers(c, m, 0, i, column);
            weir_slots_send(c, m, i, column, coop);
            weir_collective_signal(c, WEIR_CELL_DATA, to | self, column, coop);
            weir_slots_keep(c, m, i, rounds, column, divides, 0, coop);
        }
        if (duty.takes && i >= 1 && i <= rounds && status == WEIR_OK) {
            const uint32_t from = weir_slots_peers(c, m, 1, i - 1, column);
            weir_slots_keep(c, m, i - 1, rounds, column, divides, 1, coop);
            status = weir_collective_wait(c, WEIR_CELL_DATA, from | self, column, coop);
            if (status == WEIR_OK) {
                weir_slots_take(c, m, i - 1, column, coop);
                weir_collective_signal(c, WEIR_CELL_TAKEN, from, column, coop);
            }
        }
    }
    return status;
}

/* Whether all ranks, this one too, get the same bytes: then each byte is loaded once. */
WEIR_FN int weir_zero_copy_spreads(const weir_dev_collective *c, const weir_collective_move *m)
{
    const uint32_t own = c->rank;
    int same = m->recv + m->pieces[own].recv.at != m->send + m->pieces[own].send.at;
    for (uint32_t k = 0; k < c->ranks; k++) {
        same &= k == own || (m->pieces[k].send.at == m->pieces[own].send.at &&
                             m->pieces[k].send.bytes == m->pieces[own].recv.bytes);
    }
    return same;
}

/* Where this rank's piece goes at `to`. */
WEIR_FN char *weir_zero_copy_place(const weir_dev_collective *c, const weir_collective_move *m, uint32_t to)
{
    return to == c->rank ? m->recv + m->pieces[to].recv.at : m->peer_recv[to] + m->peer_recv_at;
}

/* Stores a thread's units of 16 bytes, `step` bytes apart, to byte `at` of this rank's piece at all ranks, the
 * peers first. The piece ends after `left` bytes. */
WEIR_FN void weir_zero_copy_store(const weir_dev_collective *c, const weir_collective_move *m, uint64_t at,
                                  int64_t step, int64_t left, const weir_vec16 *units)
{
    WEIR_ROLLED
    for (uint32_t n = 0; n < c->ranks; n++) {
        const uint32_t to = n + 1 < c->ranks ? weir_collective_peer(c, n) : c->rank;
        char *out = weir_zero_copy_place(c, m, to) + at;
        WEIR_UNROLL
        for (int64_t k = 0; k < WEIR_COPY_DEEP; k++) {
            if (k * step < left) {
                weir_arch_store_vec16((weir_vec16 *)(out + k * step), units[k]);
            }
        }
    }
}

/* Copies `bytes` bytes from byte `at` of this rank's piece on to all ranks, by the calling block. */
WEIR_FN void weir_zero_copy_spread(const weir_dev_collective *c, const weir_collective_move *m, uint64_t at,
                                   int64_t bytes, weir_coop coop)
{
    const char *from = m->send + m->pieces[c->rank].send.at + at;
    const int64_t step = (int64_t)coop.block_size * 16;
    uintptr_t ends = (uintptr_t)from | (uintptr_t)bytes;
    WEIR_ROLLED
    for (uint32_t to = 0; to < c->ranks; to++) {
        ends |= (uintptr_t)weir_zero_copy_place(c, m, to) + at;
    }
    WEIR_ROLLED
    for (uint32_t to = 0; to < c->ranks && WEIR_UNLIKELY(ends % 16 != 0); to++) {
        weir_slots_copy(weir_zero_copy_place(c, m, to) + at, from, bytes, coop);
    }
    if (WEIR_UNLIKELY(ends % 16 != 0)) {
        return;
    }
    int64_t i = (int64_t)coop.block_rank * 16;
    weir_vec16 units[WEIR_COPY_DEEP];
    WEIR_PARTLY_SET(units);
    WEIR_ROLLED
    for (; i + (WEIR_COPY_DEEP - 1) * step < bytes; i += WEIR_COPY_DEEP * step) {
        WEIR_UNROLL
        for (int64_t k = 0; k < WEIR_COPY_DEEP; k++) {
            units[k] = weir_arch_load_vec16((const weir_vec16 *)(from + i + k * step));
        }
        weir_zero_copy_store(c, m, at + (uint64_t)i, step, WEIR_COPY_DEEP * step, units);
    }
    if (i < bytes) {
        WEIR_UNROLL
        for (int64_t k = 0; k + 1 < WEIR_COPY_DEEP; k++) {
            units[k] = weir_arch_load_vec16((const weir_vec16 *)(from + (i + k * step < bytes ? i + k * step : i)));
        }
        weir_zero_copy_store(c, m, at + (uint64_t)i, step, bytes - i, units);
    }
}

/* An allgather or a broadcast by few blocks into the peers' memory, in a kernel with many registers: all ranks get the
 * same bytes. Warps draw chunks of this rank's piece, or (m->chunk 0) each block has a range of it. */
WEIR_FN weir_status weir_collective_spread(const weir_dev_collective *c, const weir_collective_move *m, weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    const uint64_t piece = m->pieces[c->rank].recv.bytes;
    const weir_status status = weir_slots_meet(c, &m->what, NULL, 1, coop);
    if (status != WEIR_OK) {
        return weir_slots_end(c, status);
    }
    if (m->chunk == 0) {
        const uint64_t range = weir_slots_range(m->most, coop.blocks);
        const uint64_t first = coop.block * range;
        weir_zero_copy_spread(c, m, first, weir_least((int64_t)range, weir_left(piece, first)), coop);
    } else {
        weir_draws draws = weir_draws_begin(piece, m->chunk, coop);
        uint64_t n;
        while (weir_draws_next(c, &draws, coop, &n)) {
            const uint64_t at = n * m->chunk;
            weir_zero_copy_spread(c, m, at, weir_least((int64_t)m->chunk, weir_left(piece, at)), weir_draws_warp(coop));
        }
    }
    return weir_slots_end(c, weir_zero_copy_end(c, coop));
}

/* Between two H100, half of 32 blocks sent an all_to_all of 64 MiB in 115 us, and all of them in 131. Of 9 blocks all
 * sent an allgather faster. */
#define WEIR_ZERO_COPY_MANY 16u

/* Writes directly into the peers' memory, after all ranks have met. Few blocks all send, because what they copy
 * limits them. They copy the piece that stays here while the others' data arrives. Of many blocks, half fill the link,
 * and the others copy that piece meanwhile. */
WEIR_FN weir_status weir_zero_copy_move(const weir_dev_collective *c, const weir_collective_move *m, weir_coop coop)
{
    const weir_slots_duty half = weir_slots_duty_of(coop);
    const int few = half.columns < WEIR_ZERO_COPY_MANY;
    const uint32_t column = few ? coop.block : half.column;
    const uint32_t others = weir_collective_others(c);
    const uint64_t range = weir_slots_range(m->most, few ? coop.blocks : half.columns);
    const uint64_t first = column * range;
    const uint64_t turn = weir_slots_turn(c, WEIR_ARCH_PEER_PIECE, range);
    const int64_t kept = weir_least((int64_t)range, weir_left(m->pieces[c->rank].recv.bytes, first));
    const int sends = few || half.sends;
    WEIR_ROLLED
    for (uint64_t done = 0; done < range && sends; done += turn) {
        WEIR_ROLLED
        for (uint32_t k = 0; k + 1 < c->ranks; k++) {
            const uint32_t peer = weir_slots_peer(c, k, column);
            const uint64_t at = first + done;
            const int64_t most = weir_least((int64_t)turn, (int64_t)(range - done));
            weir_slots_copy(weir_zero_copy_place(c, m, peer) + at, m->send + m->pieces[peer].send.at + at,
                            weir_least(most, weir_left(m->pieces[peer].send.bytes, at)), coop);
        }
    }
    if (sends) {
        weir_collective_signal(c, WEIR_CELL_DATA, others, column, coop);
    }
    if (few || half.takes) {
        weir_slots_keep_bytes(c, m, first, kept, coop);
    }
    return sends ? weir_collective_wait(c, WEIR_CELL_DATA, others, column, coop) : WEIR_OK;
}

/* The same in chunks that warps draw. Those that stay here lie between those for the peers: the links are busy from the
 * first to the last. */
WEIR_FN weir_status weir_zero_copy_draw(const weir_dev_collective *c, const weir_collective_move *m, weir_coop coop)
{
    const weir_coop warp = weir_coop_warp(coop);
    const uint64_t chunks = (m->most + m->chunk - 1) / m->chunk; /* of the longest piece */
    weir_draws draws = weir_draws_begin(chunks * c->ranks, 1, coop);
    uint64_t n;
    while (weir_draws_next(c, &draws, coop, &n)) {
        const uint32_t to = (c->rank + 1 + (uint32_t)(n % c->ranks)) % c->ranks;
        const uint64_t at = n / c->ranks * m->chunk;
        const uint64_t piece = to == c->rank ? m->pieces[to].recv.bytes : m->pieces[to].send.bytes;
        const int64_t left = weir_least((int64_t)m->chunk, weir_left(piece, at));
        const char *from = m->send + m->pieces[to].send.at;
        char *out = weir_zero_copy_place(c, m, to);
        if (left > 0 && out != from) {
            weir_copy(out + at, from + at, (uint64_t)left, warp);
        }
    }
    return weir_zero_copy_end(c, coop);
}

/* Like weir_collective_move_packets. */
WEIR_FN weir_status weir_collective_move_slots(const weir_dev_collective *c, const weir_collective_move *m,
                                               weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    const int zero_copy = m->peer_recv[c->rank] != NULL;
    weir_status status = weir_slots_meet(c, &m->what, m->counted ? m->pieces : NULL, zero_copy, coop);
    if (status == WEIR_OK) {
        status = !zero_copy      ? weir_slots_move(c, m, coop)
                 : m->chunk == 0 ? weir_zero_copy_move(c, m, coop)
                                 : weir_zero_copy_draw(c, m, coop);
    }
    return weir_slots_end(c, status);
}

#endif
