/* weir/device/impl/collective_packets.h - collectives by LL16 packets: the fastest for small data.
 *
 * A word of 8 bytes is one packet. The thread that sends a word also receives, joins and stores the words of its place.
 * Threads need not meet, therefore, and input and output may be the same memory. */
#ifndef WEIR_DEVICE_IMPL_COLLECTIVE_PACKETS_H
#define WEIR_DEVICE_IMPL_COLLECTIVE_PACKETS_H

#include "weir/device/impl/collective_call.h"

/* The pieces from each rank to each: the pieces that this rank sends, and the places of those that it receives. */
typedef struct weir_collective_move {
    const char *send;
    char *recv;
    uint64_t most;     /* bytes of the largest piece */
    uint64_t chunk;    /* for slots: bytes of a round; for zero-copy: that a warp draws, or 0 */
    uint32_t counted;  /* the bytes of pieces are compared, not what.count */
    uint32_t in_place; /* received data overwrites sent data */
    uint32_t relay;    /* 1 and the root of a broadcast whose ranks pass parts on (impl/collective_relay.h); 0: none */
    uint32_t split;    /* for slots: how the blocks are divided (impl/collective_slots.h) */
    weir_collective_pieces pieces[WEIR_COLLECTIVE_RANKS];
    weir_collective_what what;
    uint64_t send_range[WEIR_COLLECTIVE_RANKS]; /* for slots: weir_slots_range of each piece */
    uint64_t recv_range[WEIR_COLLECTIVE_RANKS];
    uint64_t peer_recv_at;                  /* for zero-copy: place of this rank's piece in the peers' recv, */
    char *peer_recv[WEIR_COLLECTIVE_RANKS]; /* mapped here; NULL without */
} weir_collective_move;

WEIR_STATIC_ASSERT(offsetof(weir_collective_move, pieces) == WEIR_ARGS_HEAD, "the head of weir_collective_move");

/* The packet of a word of this rank in the memory of `peer`. */
WEIR_FN char *weir_packet_at(const weir_dev_collective *c, uint32_t peer, uint32_t section, uint32_t flag,
                             uint64_t word)
{
    return c->memory[peer] + weir_collective_room(c, 0, c->packet_room, section, flag % 2, c->rank) + 16 * word;
}

/* Sends one packet of `data` to each peer in `mask`. */
WEIR_FN void weir_packets_spread(const weir_dev_collective *c, uint32_t mask, uint32_t section, uint32_t flag,
                                 uint64_t word, uint32_t width, uint64_t data)
{
    WEIR_UNROLL
    for (uint32_t k = 0; k < width - 1; k++) {
        uint32_t peer = weir_collective_peer(c, k);
        if (k + 1 < c->ranks && (mask >> peer & 1) != 0) {
            weir_ll16_store(weir_packet_at(c, peer, section, flag, word), data, flag);
        }
    }
}

/* The packets that this rank receives, beginning with those of rank 0. */
WEIR_FN const char *weir_packets_in(const weir_dev_collective *c, uint32_t section, uint32_t flag)
{
    return c->memory[c->rank] + weir_collective_room(c, 0, c->packet_room, section, flag % 2, 0);
}

/* The packets of word `first` and of those `stride` apart that follow. */
WEIR_FN weir_batch weir_packets_batch(const weir_dev_collective *c, uint32_t section, uint32_t flag, uint64_t first,
                                      uint64_t stride, uint32_t width, uint32_t places)
{
    return weir_batch_of(c, weir_packets_in(c, section, flag) + 16 * first, c->packet_room, 16 * stride, width, places);
}

/* Whether each thread has at most one place of a call whose longest piece has `bytes` bytes. Code for one place is
 * shorter than code for batches, which such a call cannot fill: at 1 KiB it saves 2 to 3 %. */
WEIR_FN int weir_packets_are_few(uint64_t bytes, weir_coop coop) { return bytes <= 8 * (uint64_t)coop.size; }

/* The data that this rank joins: `bytes` bytes of its own, and the other ranks' packets of section 0. */
typedef struct weir_packets_part {
    const char *own;
    char *out; /* NULL: this rank does not keep the results */
    uint64_t bytes;
    uint32_t to; /* ranks that get the results, by packets of section 1 */
} weir_packets_part;

WEIR_FN weir_status weir_packets_join(const weir_dev_collective *c, const weir_packets_part *part, uint32_t flag,
                                      uint32_t width, uint32_t places, uint32_t dtype, uint32_t op, weir_coop coop)
{
    const uint64_t stride = coop.size;
    const uint64_t count = (part->bytes + 7) / 8;
    WEIR_ROLLED
    for (uint64_t i = coop.rank; i < count; i += places * stride) {
        const weir_batch batch = weir_packets_batch(c, 0, flag, i, stride, width, places);
        uint64_t own[WEIR_BATCH_PLACES];
        uint64_t words[WEIR_COLLECTIVE_RANKS];
        uint32_t mask = 0;
        weir_words_load(part->own, part->bytes, 8 * i, 8 * stride, places, own);
        WEIR_UNROLL
        for (uint32_t n = 0; n < places; n++) {
            mask |= i + n * stride < count ? weir_batch_others(c) << n * (width - 1) : 0;
        }
        const weir_status status = weir_packets_await(c, &batch, mask, WEIR_NO_PEER, flag, words);
        if (WEIR_UNLIKELY(status != WEIR_OK)) {
            return status;
        }
        WEIR_ROLLED
        for (uint32_t n = 0; n < places && i + n * stride < count; n++) {
            const uint64_t word = i + n * stride;
            uint64_t others[WEIR_COLLECTIVE_RANKS];
            uint64_t ranks[WEIR_COLLECTIVE_RANKS];
            WEIR_UNROLL
            for (uint32_t k = 0; k < width - 1; k++) {
                others[k] = weir_batch_word(words + k, n, width - 1, places);
            }
            weir_batch_ordered(c, others, weir_batch_word(own, n, 1, places), width, ranks);
            const uint64_t joined = weir_collective_join(c, ranks, width, dtype, op);
            weir_packets_spread(c, part->to, 1, flag, word, width, joined);
            if (part->out != NULL) {
                weir_word_store(part->out + 8 * word, weir_left(part->bytes, 8 * word), joined);
            }
        }
    }
    return WEIR_OK;
}

/* Sends this rank's data to the ranks in `to`. The words of a batch are loaded before the first of them is stored. */
WEIR_FN void weir_once_send(const weir_dev_collective *c, const weir_collective_reduce *r, uint32_t flag,
                            uint32_t width, uint32_t places, weir_coop coop)
{
    const uint64_t stride = coop.size;
    const uint64_t count = (r->bytes + 7) / 8;
    WEIR_ROLLED
    for (uint64_t i = coop.rank; i < count; i += places * stride) {
        uint64_t data[WEIR_BATCH_PLACES];
        weir_words_load(r->send, r->bytes, 8 * i, 8 * stride, places, data);
        WEIR_UNROLL
        for (uint32_t n = 0; n < places; n++) {
            if (i + n * stride < count) {
                weir_packets_spread(c, r->to, 0, flag, i + n * stride, width, data[n]);
            }
        }
    }
}

WEIR_FN weir_status weir_reduce_once(const weir_dev_collective *c, const weir_collective_reduce *r, uint32_t width,
                                     uint32_t places, uint32_t dtype, uint32_t op, weir_coop coop)
{
    const weir_collective_state state = weir_collective_look(c);
    uint32_t flag;
    weir_words_prefetch(r->send, r->bytes, 8 * (uint64_t)coop.rank, 8 * (uint64_t)coop.size, places);
    const weir_status begun = weir_collective_begin(c, &state, &flag);
    if (WEIR_UNLIKELY(begun != WEIR_OK)) {
        return begun;
    }
    const uint32_t mailbox = weir_collective_mailbox_of(coop, 0);
    weir_once_send(c, r, flag, width, places, coop);
    weir_collective_announce(c, &r->what, NULL, flag, mailbox, 0, coop);
    weir_packet_advance(c->epoch, 0, 0, coop);
    const weir_status status = weir_collective_compare(c, &r->what, NULL, flag, mailbox, 0, coop);
    if (WEIR_UNLIKELY(status != WEIR_OK) || (r->to >> c->rank & 1) == 0) {
        return status;
    }
    const weir_packets_part all = { r->send, r->recv, r->bytes, 0 };
    return weir_packets_join(c, &all, flag, width, places, dtype, op, coop);
}

/* Bytes of part `rank` from `at` on. A result of 0 or less means no bytes. */
WEIR_FN int64_t weir_part_left(const weir_collective_reduce *r, uint32_t rank, uint64_t at)
{
    return weir_least(weir_left(r->length, at), weir_left(r->bytes, rank * r->part + at));
}

/* The first byte of part `rank`. `extents` is the constant NULL, or the parts of a reduce_scatter whose parts may
 * differ in size. With extents r->part and r->bytes are not used, and r->length is that of the longest part. */
WEIR_FN uint64_t weir_extent_at(const weir_collective_reduce *r, const weir_collective_piece *extents, uint32_t rank)
{
    return extents != NULL ? extents[rank].at : rank * r->part;
}

WEIR_FN int64_t weir_extent_left(const weir_collective_reduce *r, const weir_collective_piece *extents, uint32_t rank,
                                 uint64_t at)
{
    return extents != NULL ? weir_left(extents[rank].bytes, at) : weir_part_left(r, rank, at);
}

WEIR_FN uint64_t weir_extent_bytes(const weir_collective_reduce *r, const weir_collective_piece *extents, uint32_t rank)
{
    const int64_t bytes = weir_extent_left(r, extents, rank, 0);
    return bytes > 0 ? (uint64_t)bytes : 0;
}

/* Prefetches the data that a thread sends first: byte `at` of each other rank's part, and at each further step. */
WEIR_FN void weir_parts_prefetch(const weir_dev_collective *c, const weir_collective_reduce *r,
                                 const weir_collective_piece *extents, uint64_t at, uint64_t step, uint32_t width,
                                 uint32_t places)
{
    WEIR_UNROLL
    for (uint32_t k = 0; k < width - 1; k++) {
        const uint32_t peer = weir_collective_peer(c, k);
        const uint64_t bytes = k + 1 < c->ranks ? weir_extent_bytes(r, extents, peer) : 0;
        weir_words_prefetch(r->send + weir_extent_at(r, extents, peer), bytes, at, step, places);
    }
}

/* Sends each other rank its part of this rank's data. The words of a batch are loaded before the first of them is
 * stored. */
WEIR_FN void weir_packets_scatter(const weir_dev_collective *c, const weir_collective_reduce *r,
                                  const weir_collective_piece *extents, uint32_t flag, uint32_t width, uint32_t places,
                                  weir_coop coop)
{
    const uint64_t stride = coop.size;
    const uint64_t count = (r->length + 7) / 8;
    WEIR_ROLLED
    for (uint64_t i = coop.rank; i < count; i += places * stride) {
        uint64_t data[WEIR_COLLECTIVE_RANKS][WEIR_BATCH_PLACES];
        WEIR_UNROLL
        for (uint32_t k = 0; k < width - 1; k++) {
            const uint32_t peer = weir_collective_peer(c, k);
            const uint64_t bytes = k + 1 < c->ranks ? weir_extent_bytes(r, extents, peer) : 0;
            weir_words_load(r->send + weir_extent_at(r, extents, peer), bytes, 8 * i, 8 * stride, places, data[k]);
        }
        WEIR_UNROLL
        for (uint32_t k = 0; k < width - 1; k++) {
            const uint32_t peer = weir_collective_peer(c, k);
            const uint64_t bytes = k + 1 < c->ranks ? weir_extent_bytes(r, extents, peer) : 0;
            WEIR_UNROLL
            for (uint32_t n = 0; n < places; n++) {
                const uint64_t word = i + n * stride;
                if (8 * word < bytes) {
                    weir_ll16_store(weir_packet_at(c, peer, 0, flag, word), data[k][n], flag);
                }
            }
        }
    }
}

/* Receives the results of the other ranks' parts. */
WEIR_FN weir_status weir_packets_gather(const weir_dev_collective *c, const weir_collective_reduce *r, uint32_t flag,
                                        uint32_t width, uint32_t places, weir_coop coop)
{
    const uint64_t stride = coop.size;
    const uint64_t count = (r->length + 7) / 8;
    WEIR_ROLLED
    for (uint64_t i = coop.rank; i < count; i += places * stride) {
        const weir_batch batch = weir_packets_batch(c, 1, flag, i, stride, width, places);
        uint64_t data[WEIR_COLLECTIVE_RANKS];
        uint32_t mask = 0;
        WEIR_UNROLL
        for (uint32_t j = 0; j < batch.count; j++) {
            const uint32_t from = weir_batch_rank(batch.skipped, width - 1, j);
            const uint64_t at = 8 * (i + j / (width - 1) * stride);
            mask |= (uint32_t)(from < c->ranks && weir_part_left(r, from, at) > 0) << j;
        }
        const weir_status status = weir_packets_await(c, &batch, mask, WEIR_NO_PEER, flag, data);
        if (WEIR_UNLIKELY(status != WEIR_OK)) {
            return status;
        }
        WEIR_UNROLL
        for (uint32_t j = 0; j < batch.count; j++) {
            const uint32_t from = weir_batch_rank(batch.skipped, width - 1, j);
            const uint64_t at = 8 * (i + j / (width - 1) * stride);
            if ((mask >> j & 1) != 0) {
                weir_word_store(r->recv + from * r->part + at, weir_part_left(r, from, at), data[j]);
            }
        }
    }
    return WEIR_OK;
}

WEIR_FN weir_status weir_reduce_packets(const weir_dev_collective *c, const weir_collective_reduce *r,
                                        const weir_collective_piece *extents, uint32_t width, uint32_t places,
                                        uint32_t dtype, uint32_t op, weir_coop coop)
{
    const int gets_all = (r->to >> c->rank & 1) != 0;
    const weir_collective_state state = weir_collective_look(c);
    uint32_t flag;
    weir_parts_prefetch(c, r, extents, 8 * (uint64_t)coop.rank, 8 * (uint64_t)coop.size, width, places);
    const weir_status begun = weir_collective_begin(c, &state, &flag);
    if (WEIR_UNLIKELY(begun != WEIR_OK)) {
        return begun;
    }
    const uint32_t mailbox = weir_collective_mailbox_of(coop, 0);
    weir_packets_scatter(c, r, extents, flag, width, places, coop);
    weir_collective_announce(c, &r->what, NULL, flag, mailbox, 0, coop);
    weir_packet_advance(c->epoch, 0, 0, coop);
    weir_status status = weir_collective_compare(c, &r->what, NULL, flag, mailbox, 0, coop);
    if (WEIR_UNLIKELY(status != WEIR_OK)) {
        return status;
    }
    const weir_packets_part mine = { r->send + weir_extent_at(r, extents, c->rank),
                                     r->to == 0 ? r->recv
                                     : gets_all ? r->recv + c->rank * r->part
                                                : NULL,
                                     weir_extent_bytes(r, extents, c->rank), r->to };
    status = weir_packets_join(c, &mine, flag, width, places, dtype, op, coop);
    return WEIR_UNLIKELY(status != WEIR_OK) || !gets_all ? status
                                                         : weir_packets_gather(c, r, flag, width, places, coop);
}

/* The same by code for the number of ranks. */
WEIR_FN weir_status weir_reduce_by_packets(const weir_dev_collective *c, const weir_collective_reduce *r,
                                           const weir_collective_piece *extents, uint32_t dtype, uint32_t op,
                                           weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    const int few = weir_packets_are_few(r->length, coop);
    if (c->ranks <= 2) {
        return few ? weir_reduce_packets(c, r, extents, 2, 1, dtype, op, coop)
                   : weir_reduce_packets(c, r, extents, 2, weir_batch_places(2), dtype, op, coop);
    }
    if (c->ranks <= 4) {
        return few ? weir_reduce_packets(c, r, extents, 4, 1, dtype, op, coop)
                   : weir_reduce_packets(c, r, extents, 4, weir_batch_places(4), dtype, op, coop);
    }
    return weir_reduce_packets(c, r, extents, WEIR_COLLECTIVE_RANKS, 1, dtype, op, coop);
}

/* Copies the piece that stays here while this rank's mailboxes fill, then compares them. */
WEIR_FN weir_status weir_collective_keep(const weir_dev_collective *c, const weir_collective_move *m, uint32_t flag,
                                         uint32_t mailbox, weir_coop coop)
{
    const char *from = m->send + m->pieces[c->rank].send.at;
    char *to = m->recv + m->pieces[c->rank].recv.at;
    if (to != from && m->pieces[c->rank].recv.bytes != 0) {
        weir_copy(to, from, m->pieces[c->rank].recv.bytes, coop);
    }
    return weir_collective_compare(c, &m->what, m->counted ? m->pieces : NULL, flag, mailbox, 0, coop);
}

/* Prefetches the data that a thread sends first: byte `at` of the piece for each other rank, and at each further
 * step. */
WEIR_FN void weir_pieces_prefetch(const weir_dev_collective *c, const weir_collective_move *m, uint64_t at,
                                  uint64_t step, uint32_t width, uint32_t places)
{
    WEIR_UNROLL
    for (uint32_t k = 0; k < width - 1; k++) {
        const uint32_t peer = weir_collective_peer(c, k);
        const uint64_t bytes = k + 1 < c->ranks ? m->pieces[peer].send.bytes : 0;
        weir_words_prefetch(m->send + m->pieces[peer].send.at, bytes, at, step, places);
    }
}

/* Sends all pieces of this rank, like weir_packets_scatter. */
WEIR_FN void weir_packets_send(const weir_dev_collective *c, const weir_collective_move *m, uint32_t flag,
                               uint32_t width, uint32_t places, weir_coop coop)
{
    const uint64_t stride = coop.size;
    const uint64_t count = (m->most + 7) / 8;
    WEIR_ROLLED
    for (uint64_t i = coop.rank; i < count; i += places * stride) {
        uint64_t data[WEIR_COLLECTIVE_RANKS][WEIR_BATCH_PLACES];
        WEIR_UNROLL
        for (uint32_t k = 0; k < width - 1; k++) {
            const uint32_t peer = weir_collective_peer(c, k);
            const uint64_t bytes = k + 1 < c->ranks ? m->pieces[peer].send.bytes : 0;
            weir_words_load(m->send + m->pieces[peer].send.at, bytes, 8 * i, 8 * stride, places, data[k]);
        }
        WEIR_UNROLL
        for (uint32_t k = 0; k < width - 1; k++) {
            const uint32_t peer = weir_collective_peer(c, k);
            const uint64_t bytes = k + 1 < c->ranks ? m->pieces[peer].send.bytes : 0;
            WEIR_UNROLL
            for (uint32_t n = 0; n < places; n++) {
                const uint64_t word = i + n * stride;
                if (8 * word < bytes) {
                    weir_ll16_store(weir_packet_at(c, peer, 0, flag, word), data[k][n], flag);
                }
            }
        }
    }
}

/* Receives all pieces for this rank. */
WEIR_FN weir_status weir_packets_receive(const weir_dev_collective *c, const weir_collective_move *m, uint32_t flag,
                                         uint32_t width, uint32_t places, weir_coop coop)
{
    const uint64_t stride = coop.size;
    const uint64_t count = (m->most + 7) / 8;
    WEIR_ROLLED
    for (uint64_t i = coop.rank; i < count; i += places * stride) {
        const weir_batch batch = weir_packets_batch(c, 0, flag, i, stride, width, places);
        uint64_t data[WEIR_COLLECTIVE_RANKS];
        uint32_t mask = 0;
        WEIR_UNROLL
        for (uint32_t j = 0; j < batch.count; j++) {
            const uint32_t from = weir_batch_rank(batch.skipped, width - 1, j);
            const uint64_t at = 8 * (i + j / (width - 1) * stride);
            mask |= (uint32_t)(from < c->ranks && m->pieces[from].recv.bytes > at) << j;
        }
        const weir_status status = weir_packets_await(c, &batch, mask, WEIR_NO_PEER, flag, data);
        if (WEIR_UNLIKELY(status != WEIR_OK)) {
            return status;
        }
        WEIR_UNROLL
        for (uint32_t j = 0; j < batch.count; j++) {
            const uint32_t from = weir_batch_rank(batch.skipped, width - 1, j);
            const uint64_t at = 8 * (i + j / (width - 1) * stride);
            if ((mask >> j & 1) != 0) {
                weir_word_store(m->recv + m->pieces[from].recv.at + at, weir_left(m->pieces[from].recv.bytes, at),
                                data[j]);
            }
        }
    }
    return WEIR_OK;
}

WEIR_FN weir_status weir_move_packets(const weir_dev_collective *c, const weir_collective_move *m, uint32_t width,
                                      uint32_t places, weir_coop coop)
{
    const weir_collective_state state = weir_collective_look(c);
    uint32_t flag;
    weir_pieces_prefetch(c, m, 8 * (uint64_t)coop.rank, 8 * (uint64_t)coop.size, width, places);
    const weir_status begun = weir_collective_begin(c, &state, &flag);
    if (WEIR_UNLIKELY(begun != WEIR_OK)) {
        return begun;
    }
    const uint32_t mailbox = weir_collective_mailbox_of(coop, 0);
    weir_packets_send(c, m, flag, width, places, coop);
    weir_collective_announce(c, &m->what, m->counted ? m->pieces : NULL, flag, mailbox, 0, coop);
    weir_packet_advance(c->epoch, 0, 0, coop);
    const weir_status status = weir_collective_keep(c, m, flag, mailbox, coop);
    return WEIR_UNLIKELY(status != WEIR_OK) ? status : weir_packets_receive(c, m, flag, width, places, coop);
}

WEIR_FN weir_status weir_collective_move_packets(const weir_dev_collective *c, const weir_collective_move *m,
                                                 weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    const int few = weir_packets_are_few(m->most, coop);
    if (c->ranks <= 2) {
        return few ? weir_move_packets(c, m, 2, 1, coop) : weir_move_packets(c, m, 2, weir_batch_places(2), coop);
    }
    if (c->ranks <= 4) {
        return few ? weir_move_packets(c, m, 4, 1, coop) : weir_move_packets(c, m, 4, weir_batch_places(4), coop);
    }
    return weir_move_packets(c, m, WEIR_COLLECTIVE_RANKS, 1, coop);
}

#endif
