/* weir/device/collective_slots.h - collectives by plain stores and signals: the fastest for large data.
 *
 * Each block takes its range of every piece and meets the same block of the peers alone. It goes round by round: what
 * is for a peer is stored into a slot of that peer's, then signalled. Two slots are used in turn, and the rounds of
 * storing, joining and taking are interleaved, so that the link is busy while a block waits. Where the receiver's own
 * memory is mapped here, results go straight there. */
#ifndef WEIR_DEVICE_COLLECTIVE_SLOTS_H
#define WEIR_DEVICE_COLLECTIVE_SLOTS_H

#include "weir/device/collective_packets.h"

/* A block's range of `bytes`: from `first` on, the same length for all blocks but where the end cuts it. */
WEIR_FN uint64_t weir_slots_range(uint64_t bytes, uint32_t blocks)
{
    uint64_t range = (bytes + blocks - 1) / blocks;
    return (range + 127) / 128 * 128;
}

WEIR_FN uint64_t weir_slots_rounds(uint64_t bytes, uint32_t block, uint32_t blocks, uint64_t slot_bytes)
{
    uint64_t range = weir_slots_range(bytes, blocks);
    int64_t left = weir_least((int64_t)range, weir_left(bytes, block * range));
    return left <= 0 ? 0 : ((uint64_t)left + slot_bytes - 1) / slot_bytes;
}

/* Bytes of round `round` of a range that ends at `end` of the block's piece. */
WEIR_FN int64_t weir_slots_left(const weir_dev_collective *c, uint64_t range, uint64_t round)
{
    return weir_least((int64_t)c->slot_bytes, weir_left(range, round * c->slot_bytes));
}

WEIR_FN char *weir_slot_at(const weir_dev_collective *c, uint32_t peer, uint32_t section, uint64_t round,
                           uint32_t block)
{
    return c->memory[peer] + weir_collective_slot(c, section, (uint32_t)(round % 2), block, c->rank);
}

/* The slots that this rank gets: that of rank 0. */
WEIR_FN const char *weir_slots_in(const weir_dev_collective *c, uint32_t section, uint64_t round, uint32_t block)
{
    return c->memory[c->rank] + weir_collective_slot(c, section, (uint32_t)(round % 2), block, 0);
}

/* By the calling block. */
WEIR_FN void weir_slots_copy(char *dst, const char *src, int64_t bytes, weir_coop coop)
{
    if (bytes > 0) {
        weir_copy(dst, src, (uint64_t)bytes, weir_coop_block(coop));
    }
}

/* ---- reductions -------------------------------------------------------------------------------------------- */

/* Bytes of part `rank` in a round that begins at `at` and has `span` of them at most. */
WEIR_FN int64_t weir_slots_part_left(const weir_collective_reduce *r, uint32_t rank, uint64_t at, int64_t span)
{
    return weir_least(span, weir_part_left(r, rank, at));
}

WEIR_FN void weir_slots_scatter(const weir_dev_collective *c, const weir_collective_reduce *r, uint64_t round,
                                uint64_t at, int64_t span, weir_coop coop)
{
    WEIR_ROLLED
    for (uint32_t k = 0; k + 1 < c->ranks; k++) {
        const uint32_t peer = weir_collective_peer(c, k);
        weir_slots_copy(weir_slot_at(c, peer, 0, round, coop.block), r->send + peer * r->part + at,
                        weir_slots_part_left(r, peer, at, span), coop);
    }
}

/* Of so many places of 16 bytes a thread joins the data at once, to have loads in flight. */
#define WEIR_SLOTS_JOINS 2u

/* The results of a round: kept, and stored for the ranks in `to`. */
WEIR_FN void weir_slots_join(const weir_dev_collective *c, const weir_collective_reduce *r, uint64_t round, uint64_t at,
                             int64_t span, uint32_t dtype, uint32_t op, weir_coop coop)
{
    const char *own = r->send + c->rank * r->part + at;
    const uint64_t place = r->to != 0 ? c->rank * r->part + at : at;
    const int keep = r->to == 0 || (r->to >> c->rank & 1) != 0;
    const char *in = weir_slots_in(c, 0, round, coop.block);
    const uint64_t stride = 16 * (uint64_t)coop.block_size;
    span = weir_slots_part_left(r, c->rank, at, span);
    for (uint64_t i = 16 * (uint64_t)coop.block_rank; (int64_t)i < span; i += WEIR_SLOTS_JOINS * stride) {
        uint64_t lo[WEIR_SLOTS_JOINS][WEIR_COLLECTIVE_RANKS];
        uint64_t hi[WEIR_SLOTS_JOINS][WEIR_COLLECTIVE_RANKS];
        WEIR_UNROLL
        for (uint32_t n = 0; n < WEIR_SLOTS_JOINS; n++) {
            const uint64_t j = i + n * stride;
            const int64_t left = span - (int64_t)j;
            WEIR_UNROLL
            for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS; k++) {
                weir_vec16 data = { 0, 0 };
                if (k < c->ranks && left > 0) {
                    data = k == c->rank ? weir_pair_load(own + j, left)
                                        : weir_arch_load_vec16((const weir_vec16 *)(in + k * c->slot_bytes + j));
                }
                lo[n][k] = data.lo;
                hi[n][k] = data.hi;
            }
        }
        WEIR_UNROLL
        for (uint32_t n = 0; n < WEIR_SLOTS_JOINS; n++) {
            const uint64_t j = i + n * stride;
            const int64_t left = span - (int64_t)j;
            weir_vec16 joined;
            if (left <= 0) {
                break;
            }
            joined.lo = weir_collective_join(lo[n], c->ranks, dtype, op);
            joined.hi = weir_collective_join(hi[n], c->ranks, dtype, op);
            WEIR_ROLLED
            for (uint32_t k = 0; k + 1 < c->ranks && r->to != 0; k++) {
                const uint32_t peer = weir_collective_peer(c, k);
                if ((r->to >> peer & 1) != 0 && r->direct[peer] != NULL) {
                    weir_pair_store(r->direct[peer] + place + j, left, joined);
                } else if ((r->to >> peer & 1) != 0) {
                    weir_arch_store_vec16((weir_vec16 *)(weir_slot_at(c, peer, 1, round, coop.block) + j), joined);
                }
            }
            if (keep) {
                weir_pair_store(r->recv + place + j, left, joined);
            }
        }
    }
}

WEIR_FN void weir_slots_gather(const weir_dev_collective *c, const weir_collective_reduce *r, uint64_t round,
                               uint64_t at, int64_t span, weir_coop coop)
{
    const char *in = weir_slots_in(c, 1, round, coop.block);
    WEIR_ROLLED
    for (uint32_t k = 0; k + 1 < c->ranks; k++) {
        const uint32_t peer = weir_collective_peer(c, k);
        weir_slots_copy(r->recv + peer * r->part + at, in + peer * c->slot_bytes,
                        weir_slots_part_left(r, peer, at, span), coop);
    }
}

/* As weir_collective_reduce_packets. A rank's results of a round reach the others before it stores into their slots the
 * next time, and its data of a round tells them that it has taken the results two rounds before. */
WEIR_FN weir_status weir_collective_reduce_slots(const weir_dev_collective *c, const weir_collective_reduce *r,
                                                 uint32_t dtype, uint32_t op, weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    const uint32_t flag = weir_packet_flag(c->epoch);
    const uint32_t all = weir_collective_everyone(c);
    const int direct = r->direct[c->rank] != NULL;
    const uint64_t range = weir_slots_range(r->length, coop.blocks);
    const uint64_t rounds = weir_slots_rounds(r->length, coop.block, coop.blocks, c->slot_bytes);
    const uint64_t first = coop.block * range;
    const uint32_t desk = weir_collective_desk(coop, direct);
    weir_collective_announce(c, &r->what, NULL, flag, desk, coop);
    weir_packet_advance(c->epoch, 0, 0, coop);
    /* First of all, where results go straight into memory of users. */
    weir_status status = weir_collective_compare(c, &r->what, NULL, flag, desk, coop);
    status = desk != WEIR_NO_MAILBOX ? weir_coop_agree(weir_coop_block(coop), c->control, status) : status;
    for (uint64_t i = 0; i < rounds + 2 && rounds != 0 && status == WEIR_OK; i++) {
        if (i >= 2) {
            status = weir_collective_wait(c, WEIR_CELL_TAKEN, all, coop);
            if (status == WEIR_OK && !direct && (r->to >> c->rank & 1) != 0) {
                weir_slots_gather(c, r, i, first + (i - 2) * c->slot_bytes, weir_slots_left(c, range, i - 2), coop);
            }
        }
        if (i < rounds && status == WEIR_OK) {
            weir_slots_scatter(c, r, i, first + i * c->slot_bytes, weir_slots_left(c, range, i), coop);
            weir_collective_signal(c, WEIR_CELL_DATA, all, coop);
        }
        if (i >= 1 && i <= rounds && status == WEIR_OK) {
            status = weir_collective_wait(c, WEIR_CELL_DATA, all, coop);
            if (status == WEIR_OK) {
                weir_slots_join(c, r, i - 1, first + (i - 1) * c->slot_bytes, weir_slots_left(c, range, i - 1), dtype,
                                op, coop);
                weir_collective_signal(c, WEIR_CELL_TAKEN, all, coop);
            }
        }
    }
    return status;
}

/* ---- moves ------------------------------------------------------------------------------------------------- */

/* Where the block's part of a piece is in round `round`, and how much, or nothing. */
WEIR_FN uint64_t weir_slots_piece(const weir_dev_collective *c, uint64_t bytes, uint64_t range, uint64_t round,
                                  weir_coop coop, int64_t *left)
{
    uint64_t at = coop.block * range + round * c->slot_bytes;
    *left = weir_least(weir_slots_left(c, range, round), weir_left(bytes, at));
    return at;
}

/* The peers to which this block sends, or from which it gets, something in round `round`. */
WEIR_FN uint32_t weir_slots_busy(const weir_dev_collective *c, const uint64_t *bytes, const uint64_t *ranges,
                                 uint64_t round, weir_coop coop)
{
    uint32_t mask = 0;
    WEIR_UNROLL
    for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS; k++) {
        int64_t left = 0;
        if (k < c->ranks && k != c->rank) {
            (void)weir_slots_piece(c, bytes[k], ranges[k], round, coop, &left);
        }
        mask |= (uint32_t)(left > 0) << k;
    }
    return mask;
}

WEIR_FN void weir_slots_send(const weir_dev_collective *c, const weir_collective_move *m, uint64_t round,
                             weir_coop coop)
{
    WEIR_ROLLED
    for (uint32_t k = 0; k + 1 < c->ranks; k++) {
        const uint32_t peer = weir_collective_peer(c, k);
        int64_t left;
        const uint64_t at = weir_slots_piece(c, m->send_bytes[peer], m->send_range[peer], round, coop, &left);
        weir_slots_copy(weir_slot_at(c, peer, 0, round, coop.block), m->send + m->send_at[peer] + at, left, coop);
    }
}

WEIR_FN void weir_slots_take(const weir_dev_collective *c, const weir_collective_move *m, uint64_t round,
                             weir_coop coop)
{
    const char *in = weir_slots_in(c, 0, round, coop.block);
    WEIR_ROLLED
    for (uint32_t k = 0; k + 1 < c->ranks; k++) {
        const uint32_t peer = weir_collective_peer(c, k);
        int64_t left;
        const uint64_t at = weir_slots_piece(c, m->recv_bytes[peer], m->recv_range[peer], round, coop, &left);
        weir_slots_copy(m->recv + m->recv_at[peer] + at, in + peer * c->slot_bytes, left, coop);
    }
}

/* Through slots. */
WEIR_FN weir_status weir_slots_move(const weir_dev_collective *c, const weir_collective_move *m, weir_coop coop)
{
    const uint64_t rounds = weir_slots_rounds(m->most, 0, coop.blocks, c->slot_bytes);
    weir_status status = WEIR_OK;
    for (uint64_t i = 0; i < rounds + 2 && rounds != 0 && status == WEIR_OK; i++) {
        if (i >= 2) {
            uint32_t to = weir_slots_busy(c, m->send_bytes, m->send_range, i - 2, coop);
            status = weir_collective_wait(c, WEIR_CELL_TAKEN, to, coop);
        }
        if (i < rounds && status == WEIR_OK) {
            uint32_t to = weir_slots_busy(c, m->send_bytes, m->send_range, i, coop);
            weir_slots_send(c, m, i, coop);
            weir_collective_signal(c, WEIR_CELL_DATA, to, coop);
        }
        if (i >= 1 && i <= rounds && status == WEIR_OK) {
            uint32_t from = weir_slots_busy(c, m->recv_bytes, m->recv_range, i - 1, coop);
            status = weir_collective_wait(c, WEIR_CELL_DATA, from, coop);
            if (status == WEIR_OK) {
                weir_slots_take(c, m, i - 1, coop);
                weir_collective_signal(c, WEIR_CELL_TAKEN, from, coop);
            }
        }
    }
    return status;
}

/* Straight into the peers' memory, when all are ready for it. */
WEIR_FN weir_status weir_direct_move(const weir_dev_collective *c, const weir_collective_move *m, weir_coop coop)
{
    const uint32_t all = weir_collective_everyone(c);
    weir_collective_signal(c, WEIR_CELL_READY, all, coop);
    weir_status status = weir_collective_wait(c, WEIR_CELL_READY, all, coop);
    if (status != WEIR_OK) {
        return status;
    }
    const uint64_t range = weir_slots_range(m->most, coop.blocks);
    const uint64_t first = coop.block * range;
    WEIR_ROLLED
    for (uint32_t k = 0; k + 1 < c->ranks; k++) {
        const uint32_t peer = weir_collective_peer(c, k);
        weir_slots_copy(m->direct[peer] + m->direct_at + first, m->send + m->send_at[peer] + first,
                        weir_least((int64_t)range, weir_left(m->send_bytes[peer], first)), coop);
    }
    weir_collective_signal(c, WEIR_CELL_DATA, all, coop);
    return weir_collective_wait(c, WEIR_CELL_DATA, all, coop);
}

/* As weir_collective_move_packets. */
WEIR_FN weir_status weir_collective_move_slots(const weir_dev_collective *c, const weir_collective_move *m,
                                               weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    const uint32_t flag = weir_packet_flag(c->epoch);
    const int direct = m->direct[c->rank] != NULL;
    const uint32_t desk = weir_collective_desk(coop, direct);
    weir_collective_announce(c, &m->what, m->counted ? m->send_bytes : NULL, flag, desk, coop);
    weir_packet_advance(c->epoch, 0, 0, coop);
    weir_status status = weir_collective_keep(c, m, flag, desk, coop);
    status = desk != WEIR_NO_MAILBOX ? weir_coop_agree(weir_coop_block(coop), c->control, status) : status;
    if (status != WEIR_OK) {
        return status;
    }
    return direct ? weir_direct_move(c, m, coop) : weir_slots_move(c, m, coop);
}

/* ---- two ranks alone --------------------------------------------------------------------------------------- */

/* What one rank sends, or the other gets. */
typedef struct weir_collective_letter {
    weir_collective_what what;
    char *data;
    uint64_t bytes;
    uint32_t peer;
    uint32_t reserved;
} weir_collective_letter;

/* The slot of letter number `number` from `from` in the memory of `to`, and, in its cell, what it is of. */
WEIR_FN char *weir_letter_slot(const weir_dev_collective *c, uint32_t from, uint32_t to, uint64_t number,
                               uint32_t block)
{
    uint64_t index = ((number % 2) * c->columns + block) * WEIR_COLLECTIVE_RANKS + from;
    return c->memory[to] + c->letters + index * c->slot_bytes;
}

WEIR_FN uint64_t *weir_letter_head(const weir_dev_collective *c, uint32_t from, uint32_t to, uint64_t number,
                                   uint32_t block)
{
    return (uint64_t *)(c->memory[to] + weir_collective_cell(c, WEIR_CELL_LETTER, block, from) + 8 + 24 * (number % 2));
}

/* Rounds of a block; one that sends nothing at all says so. */
WEIR_FN uint64_t weir_letter_rounds(const weir_dev_collective *c, const weir_collective_letter *l, weir_coop coop)
{
    uint64_t rounds = weir_slots_rounds(l->bytes, coop.block, coop.blocks, c->slot_bytes);
    return rounds == 0 && coop.block == 0 ? 1 : rounds;
}

/* Returns when all is in the peer's slots, two for each block, or in the peer's hands. */
WEIR_FN weir_status weir_collective_send_letter(const weir_dev_collective *c, const weir_collective_letter *l,
                                                weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    const uint64_t range = weir_slots_range(l->bytes, coop.blocks);
    const uint64_t rounds = weir_letter_rounds(c, l, coop);
    weir_dev_semaphore data = weir_collective_semaphore(c, WEIR_CELL_LETTER, coop.block, l->peer);
    weir_dev_semaphore taken = weir_collective_semaphore(c, WEIR_CELL_LETTER_TAKEN, coop.block, l->peer);
    const uint64_t sent = weir_arch_load_relaxed_dev_u64(data.sent);
    weir_arch_block_sync(coop.host);
    for (uint64_t i = 0; i < rounds; i++) {
        const uint64_t number = sent + i;
        weir_status status = WEIR_OK;
        int64_t left = 0;
        uint64_t at = weir_slots_piece(c, l->bytes, range, i, coop, &left);
        if (coop.block_rank == 0 && number >= 2) {
            status = weir_dev_semaphore_await(&taken, number - 2);
        }
        status = weir_coop_agree(weir_coop_block(coop), c->control, status);
        if (status != WEIR_OK) {
            return status;
        }
        if (left > 0) {
            char *slot = weir_letter_slot(c, c->rank, l->peer, number, coop.block);
            weir_copy(slot, l->data + at, (uint64_t)left, weir_coop_block(coop));
        }
        weir_arch_block_sync(coop.host);
        if (coop.block_rank == 0) {
            uint64_t *head = weir_letter_head(c, c->rank, l->peer, number, coop.block);
            weir_arch_store_relaxed_sys_u64(head, l->what.call);
            weir_arch_store_relaxed_sys_u64(head + 1, l->what.where);
            weir_arch_store_relaxed_sys_u64(head + 2, l->what.count);
            weir_dev_semaphore_signal(&data);
        }
    }
    return WEIR_OK;
}

/* Waits for the next letter; one thread. */
WEIR_FN weir_status weir_letter_await(const weir_dev_collective *c, const weir_collective_letter *l,
                                      const weir_dev_semaphore *data, uint32_t block)
{
    const uint64_t number = weir_arch_load_relaxed_dev_u64(data->expected);
    weir_status status = weir_dev_semaphore_wait(data);
    if (status != WEIR_OK) {
        return status;
    }
    const uint64_t *head = weir_letter_head(c, l->peer, c->rank, number, block);
    uint64_t mine[WEIR_MAILBOX_WORDS] = { l->what.call, l->what.where, l->what.count };
    uint64_t theirs[WEIR_MAILBOX_WORDS];
    uint64_t differ = 0;
    for (uint32_t k = 0; k < WEIR_MAILBOX_WORDS; k++) {
        theirs[k] = weir_arch_load_relaxed_sys_u64(head + k);
        differ |= mine[k] ^ theirs[k];
    }
    if (WEIR_UNLIKELY(differ != 0)) {
        return block != 0 ? weir_collective_await_error(c->control)
                          : weir_collective_differ(c->differences + l->peer, mine, theirs, c->control);
    }
    return WEIR_OK;
}

WEIR_FN weir_status weir_collective_receive_letter(const weir_dev_collective *c, const weir_collective_letter *l,
                                                   weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    const uint64_t range = weir_slots_range(l->bytes, coop.blocks);
    const uint64_t rounds = weir_letter_rounds(c, l, coop);
    weir_dev_semaphore data = weir_collective_semaphore(c, WEIR_CELL_LETTER, coop.block, l->peer);
    weir_dev_semaphore taken = weir_collective_semaphore(c, WEIR_CELL_LETTER_TAKEN, coop.block, l->peer);
    const uint64_t received = weir_arch_load_relaxed_dev_u64(data.expected);
    weir_arch_block_sync(coop.host);
    for (uint64_t i = 0; i < rounds; i++) {
        weir_status status = WEIR_OK;
        int64_t left = 0;
        uint64_t at = weir_slots_piece(c, l->bytes, range, i, coop, &left);
        if (coop.block_rank == 0) {
            status = weir_letter_await(c, l, &data, coop.block);
        }
        status = weir_coop_agree(weir_coop_block(coop), c->control, status);
        if (status != WEIR_OK) {
            return status;
        }
        if (left > 0) {
            const char *slot = weir_letter_slot(c, l->peer, c->rank, received + i, coop.block);
            weir_copy(l->data + at, slot, (uint64_t)left, weir_coop_block(coop));
        }
        weir_arch_block_sync(coop.host);
        if (coop.block_rank == 0) {
            weir_dev_semaphore_signal(&taken);
        }
    }
    return WEIR_OK;
}

#endif
