/* weir/device/impl/collective_packets.h - collectives by LL16 packets: the fastest for small data.
 *
 * A word of 8 bytes is one packet. The thread that sends a word also receives, joins and stores the words of its place.
 * Threads need not meet, therefore, and input and output may be the same memory. */
#ifndef WEIR_DEVICE_IMPL_COLLECTIVE_PACKETS_H
#define WEIR_DEVICE_IMPL_COLLECTIVE_PACKETS_H

#include "weir/device/impl/collective_call.h"

/* The pieces from each rank to each: the pieces that this rank sends, and the places of those that it receives. */
typedef struct weir_collective_move {
    weir_collective_what what;
    const char *send;
    char *recv;
    uint64_t send_at[WEIR_COLLECTIVE_RANKS];
    uint64_t send_bytes[WEIR_COLLECTIVE_RANKS];
    uint64_t recv_at[WEIR_COLLECTIVE_RANKS];
    uint64_t recv_bytes[WEIR_COLLECTIVE_RANKS];
    uint64_t send_range[WEIR_COLLECTIVE_RANKS]; /* for slots: weir_slots_range of each piece */
    uint64_t recv_range[WEIR_COLLECTIVE_RANKS];
    uint64_t most;                          /* the largest of send_bytes and recv_bytes */
    uint64_t chunk;                         /* for slots: bytes of a round */
    uint64_t peer_recv_at;                  /* for zero-copy: place of this rank's piece in the peers' recv, */
    char *peer_recv[WEIR_COLLECTIVE_RANKS]; /* mapped here; NULL without */
    uint32_t counted;                       /* send_bytes and recv_bytes are compared, not what.count */
    uint32_t in_place;                      /* received data overwrites sent data */
} weir_collective_move;

/* Waits for the packets of place `at` of all other ranks, and joins them with `own`. */
WEIR_FN weir_status weir_packets_join(const weir_dev_collective *c, const char *packets, uint64_t own, uint32_t flag,
                                      uint32_t dtype, uint32_t op, uint64_t *word)
{
    uint64_t words[WEIR_COLLECTIVE_RANKS];
    uint32_t others = weir_collective_others(c);
    weir_status status = weir_packets_await(c, packets, c->packet_room, others, WEIR_NO_PEER, flag, words);
    if (WEIR_UNLIKELY(status != WEIR_OK)) {
        return status;
    }
    WEIR_UNROLL
    for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS; k++) {
        words[k] = k == c->rank ? own : words[k];
    }
    *word = weir_collective_join(c, words, dtype, op);
    return WEIR_OK;
}

/* The packet of a word of this rank in the memory of `peer`. */
WEIR_FN char *weir_packet_at(const weir_dev_collective *c, uint32_t peer, uint32_t section, uint32_t flag,
                             uint64_t word)
{
    return c->memory[peer] + weir_collective_room(c, c->packets, c->packet_room, section, flag % 2, c->rank) +
           16 * word;
}

/* Sends one packet of `data` to each peer in `mask`. */
WEIR_FN void weir_packets_spread(const weir_dev_collective *c, uint32_t mask, uint32_t section, uint32_t flag,
                                 uint64_t word, uint64_t data)
{
    WEIR_UNROLL
    for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS - 1; k++) {
        uint32_t peer = weir_collective_peer(c, k);
        if (k + 1 < c->ranks && (mask >> peer & 1) != 0) {
            weir_ll16_store(weir_packet_at(c, peer, section, flag, word), data, flag);
        }
    }
}

/* The packets that this rank receives, beginning with those of rank 0. */
WEIR_FN const char *weir_packets_in(const weir_dev_collective *c, uint32_t section, uint32_t flag)
{
    return c->memory[c->rank] + weir_collective_room(c, c->packets, c->packet_room, section, flag % 2, 0);
}

/* Every rank sends all data to the ranks in `to`, which join it: one trip over the link. */
WEIR_FN weir_status weir_collective_reduce_once(const weir_dev_collective *c, const weir_collective_reduce *r,
                                                uint32_t dtype, uint32_t op, weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    uint32_t flag;
    weir_prefetch(r->send + 8 * (uint64_t)coop.rank, weir_left(r->bytes, 8 * (uint64_t)coop.rank));
    const weir_status begun = weir_collective_begin(c, &flag);
    if (WEIR_UNLIKELY(begun != WEIR_OK)) {
        return begun;
    }
    const uint32_t mailbox = weir_collective_mailbox_of(coop, 0);
    const uint64_t words = (r->bytes + 7) / 8;
    const char *in = weir_packets_in(c, 0, flag);
    for (uint64_t i = coop.rank; i < words; i += coop.size) {
        weir_packets_spread(c, r->to, 0, flag, i, weir_word_load(r->send + 8 * i, weir_left(r->bytes, 8 * i)));
    }
    weir_collective_announce(c, &r->what, NULL, flag, mailbox, coop);
    weir_packet_advance(c->epoch, 0, 0, coop);
    weir_status status = weir_collective_compare(c, &r->what, NULL, flag, mailbox, coop);
    if (WEIR_UNLIKELY(status != WEIR_OK)) {
        return status;
    }
    for (uint64_t i = coop.rank; i < words && (r->to >> c->rank & 1) != 0; i += coop.size) {
        uint64_t own = weir_word_load(r->send + 8 * i, weir_left(r->bytes, 8 * i));
        uint64_t word = 0;
        status = weir_packets_join(c, in + 16 * i, own, flag, dtype, op, &word);
        if (WEIR_UNLIKELY(status != WEIR_OK)) {
            return status;
        }
        weir_word_store(r->recv + 8 * i, weir_left(r->bytes, 8 * i), word);
    }
    return WEIR_OK;
}

/* Bytes of part `rank` from `at` on. A result of 0 or less means no bytes. */
WEIR_FN int64_t weir_part_left(const weir_collective_reduce *r, uint32_t rank, uint64_t at)
{
    return weir_least(weir_left(r->length, at), weir_left(r->bytes, rank * r->part + at));
}

/* Prefetches byte `at` of each other rank's part. */
WEIR_FN void weir_parts_prefetch(const weir_dev_collective *c, const weir_collective_reduce *r, uint64_t at)
{
    WEIR_UNROLL
    for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS - 1; k++) {
        uint32_t peer = weir_collective_peer(c, k);
        weir_prefetch(r->send + peer * r->part + at, k + 1 < c->ranks ? weir_part_left(r, peer, at) : 0);
    }
}

/* Each rank joins its part and sends the result to the ranks in `to`: two trips, with less data. */
WEIR_FN weir_status weir_collective_reduce_packets(const weir_dev_collective *c, const weir_collective_reduce *r,
                                                   uint32_t dtype, uint32_t op, weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    uint32_t flag;
    weir_parts_prefetch(c, r, 8 * (uint64_t)coop.rank);
    const weir_status begun = weir_collective_begin(c, &flag);
    if (WEIR_UNLIKELY(begun != WEIR_OK)) {
        return begun;
    }
    const uint32_t mailbox = weir_collective_mailbox_of(coop, 0);
    const uint64_t words = (r->length + 7) / 8;
    const char *mine = r->send + c->rank * r->part;
    char *out = r->recv + (r->to != 0 ? c->rank * r->part : 0);
    const char *in = weir_packets_in(c, 0, flag);
    const int keep = r->to == 0 || (r->to >> c->rank & 1) != 0;
    for (uint64_t i = coop.rank; i < words; i += coop.size) {
        uint64_t data[WEIR_COLLECTIVE_RANKS - 1];
        WEIR_UNROLL
        for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS - 1; k++) {
            uint32_t peer = weir_collective_peer(c, k);
            int64_t left = k + 1 < c->ranks ? weir_part_left(r, peer, 8 * i) : 0;
            data[k] = left > 0 ? weir_word_load(r->send + peer * r->part + 8 * i, left) : 0;
        }
        WEIR_UNROLL
        for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS - 1; k++) {
            uint32_t peer = weir_collective_peer(c, k);
            if (k + 1 < c->ranks && weir_part_left(r, peer, 8 * i) > 0) {
                weir_ll16_store(weir_packet_at(c, peer, 0, flag, i), data[k], flag);
            }
        }
    }
    weir_collective_announce(c, &r->what, NULL, flag, mailbox, coop);
    weir_packet_advance(c->epoch, 0, 0, coop);
    weir_status status = weir_collective_compare(c, &r->what, NULL, flag, mailbox, coop);
    if (WEIR_UNLIKELY(status != WEIR_OK)) {
        return status;
    }
    for (uint64_t i = coop.rank; i < words; i += coop.size) {
        int64_t left = weir_part_left(r, c->rank, 8 * i);
        if (left > 0) {
            uint64_t word = 0;
            status = weir_packets_join(c, in + 16 * i, weir_word_load(mine + 8 * i, left), flag, dtype, op, &word);
            if (WEIR_UNLIKELY(status != WEIR_OK)) {
                return status;
            }
            weir_packets_spread(c, r->to, 1, flag, i, word);
            if (keep) {
                weir_word_store(out + 8 * i, left, word);
            }
        }
    }
    in = weir_packets_in(c, 1, flag);
    for (uint64_t i = coop.rank; i < words && (r->to >> c->rank & 1) != 0; i += coop.size) {
        uint64_t data[WEIR_COLLECTIVE_RANKS];
        uint32_t mask = 0;
        WEIR_UNROLL
        for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS; k++) {
            mask |= (uint32_t)(k < c->ranks && k != c->rank && weir_part_left(r, k, 8 * i) > 0) << k;
        }
        status = weir_packets_await(c, in + 16 * i, c->packet_room, mask, WEIR_NO_PEER, flag, data);
        if (WEIR_UNLIKELY(status != WEIR_OK)) {
            return status;
        }
        WEIR_UNROLL
        for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS; k++) {
            if ((mask >> k & 1) != 0) {
                weir_word_store(r->recv + k * r->part + 8 * i, weir_part_left(r, k, 8 * i), data[k]);
            }
        }
    }
    return WEIR_OK;
}

/* Copies the piece that stays here while this rank's mailboxes fill, then compares them. */
WEIR_FN weir_status weir_collective_keep(const weir_dev_collective *c, const weir_collective_move *m, uint32_t flag,
                                         uint32_t mailbox, weir_coop coop)
{
    const char *from = m->send + m->send_at[c->rank];
    char *to = m->recv + m->recv_at[c->rank];
    if (to != from && m->recv_bytes[c->rank] != 0) {
        weir_copy(to, from, m->recv_bytes[c->rank], coop);
    }
    return weir_collective_compare(c, &m->what, m->counted ? m->recv_bytes : NULL, flag, mailbox, coop);
}

/* Prefetches byte `at` of the piece for each other rank. */
WEIR_FN void weir_pieces_prefetch(const weir_dev_collective *c, const weir_collective_move *m, uint64_t at)
{
    WEIR_UNROLL
    for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS - 1; k++) {
        uint32_t peer = weir_collective_peer(c, k);
        weir_prefetch(m->send + m->send_at[peer] + at, k + 1 < c->ranks ? weir_left(m->send_bytes[peer], at) : 0);
    }
}

WEIR_FN weir_status weir_collective_move_packets(const weir_dev_collective *c, const weir_collective_move *m,
                                                 weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    uint32_t flag;
    weir_pieces_prefetch(c, m, 8 * (uint64_t)coop.rank);
    const weir_status begun = weir_collective_begin(c, &flag);
    if (WEIR_UNLIKELY(begun != WEIR_OK)) {
        return begun;
    }
    const uint32_t mailbox = weir_collective_mailbox_of(coop, 0);
    const uint64_t words = (m->most + 7) / 8;
    const char *in = weir_packets_in(c, 0, flag);
    for (uint64_t i = coop.rank; i < words; i += coop.size) {
        WEIR_UNROLL
        for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS - 1; k++) {
            uint32_t peer = weir_collective_peer(c, k);
            int64_t left = k + 1 < c->ranks ? weir_left(m->send_bytes[peer], 8 * i) : 0;
            if (left > 0) {
                weir_ll16_store(weir_packet_at(c, peer, 0, flag, i),
                                weir_word_load(m->send + m->send_at[peer] + 8 * i, left), flag);
            }
        }
    }
    weir_collective_announce(c, &m->what, m->counted ? m->send_bytes : NULL, flag, mailbox, coop);
    weir_packet_advance(c->epoch, 0, 0, coop);
    weir_status status = weir_collective_keep(c, m, flag, mailbox, coop);
    if (WEIR_UNLIKELY(status != WEIR_OK)) {
        return status;
    }
    for (uint64_t i = coop.rank; i < words; i += coop.size) {
        uint64_t data[WEIR_COLLECTIVE_RANKS];
        uint32_t mask = 0;
        WEIR_UNROLL
        for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS; k++) {
            mask |= (uint32_t)(k < c->ranks && k != c->rank && m->recv_bytes[k] > 8 * i) << k;
        }
        status = weir_packets_await(c, in + 16 * i, c->packet_room, mask, WEIR_NO_PEER, flag, data);
        if (WEIR_UNLIKELY(status != WEIR_OK)) {
            return status;
        }
        WEIR_UNROLL
        for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS; k++) {
            if ((mask >> k & 1) != 0) {
                weir_word_store(m->recv + m->recv_at[k] + 8 * i, weir_left(m->recv_bytes[k], 8 * i), data[k]);
            }
        }
    }
    return WEIR_OK;
}

#endif
