/* weir/device/impl/collective_parts.h - allgather and reduce_scatter of many parts of uneven sizes in one call.
 *
 * A part has an extent for each rank. The sequence of rank k is the elements of extent k of all parts, one part after
 * the other. The elements of each part begin at a multiple of the launch's unit in the sequence: 16 bytes, or by lines
 * a line of 128, of which 120 are data. An allgather brings the sequence of each rank to all others. A reduce_scatter
 * brings each rank's data for the sequence of rank k to rank k, which joins it. Packets and slots carry sequences,
 * whatever the number of parts: the threads of a grid or of a block divide a sequence among them, and find the part of
 * a place by the beginnings of the parts. */
#ifndef WEIR_DEVICE_IMPL_COLLECTIVE_PARTS_H
#define WEIR_DEVICE_IMPL_COLLECTIVE_PARTS_H

#include "weir/device/impl/collective_slots.h"

#define WEIR_PARTS_MOST 104u     /* parts of a launch, and words of their rows */
#define WEIR_PARTS_STEP_MOST 64u /* the first step of a search among them, a power of two */
#define WEIR_PARTS_WORDS 416u
#define WEIR_PARTS_UNIT 16u

WEIR_STATIC_ASSERT(2 * WEIR_PARTS_STEP_MOST >= WEIR_PARTS_MOST, "a search reaches all parts");
WEIR_STATIC_ASSERT(WEIR_DTYPES < 16 && WEIR_PARTS_MOST % 2 == 0, "a byte has the types of two parts");

/* The sequence of a rank. */
typedef struct weir_parts_sequence {
    uint64_t bytes;
    float density; /* parts for each unit; 0: no guesses */
    uint32_t reserved;
} weir_parts_sequence;

/* The parts of a launch. The row of a part has `stride` words: send; recv; and for each rank the first element of its
 * extent and the place of the part in its sequence. The place is the first byte, plus the bytes of data that would fit
 * behind the elements up to the next part, which are fewer than a unit's. Both numbers are one word, or two if the
 * launch is `wide`. Functions that look a part up take the unit as a constant. */
typedef struct weir_collective_parts {
    uint32_t count;
    uint32_t stride;
    uint32_t wide;
    uint32_t dtype; /* of all parts; WEIR_DTYPES if they differ */
    uint32_t op;
    uint32_t split; /* for slots: how the blocks are divided (impl/collective_slots.h) */
    uint64_t most;  /* bytes of the longest sequence */
    uint64_t chunk; /* for slots: bytes of a round */
    char *base;
    weir_parts_sequence of[WEIR_COLLECTIVE_RANKS];
    weir_collective_what what;
    uint64_t range[WEIR_COLLECTIVE_RANKS];  /* for slots: weir_slots_range of each sequence */
    char *peer_recv[WEIR_COLLECTIVE_RANKS]; /* for zero-copy: mappings of `base` here; NULL without */
    uint8_t dtypes[WEIR_PARTS_MOST / 2];    /* if types differ: each byte has those of two parts, 4 bits each */
    uint64_t words[WEIR_PARTS_WORDS];
} weir_collective_parts;

WEIR_STATIC_ASSERT(offsetof(weir_collective_parts, of) == WEIR_ARGS_HEAD, "the head of weir_collective_parts");

/* The extent of one rank in one part. */
typedef struct weir_parts_piece {
    const char *send; /* this rank's data for the extent */
    char *recv;       /* place of the extent's results on this rank */
    uint64_t begin;   /* place in the sequence */
    uint64_t bytes;   /* of data: by lines fewer than it takes of the sequence */
    uint32_t dtype;
} weir_parts_piece;

WEIR_FN uint32_t weir_parts_dtype(const weir_collective_parts *p, uint32_t part)
{
    return p->dtype != WEIR_DTYPES ? p->dtype : p->dtypes[part / 2] >> part % 2 * 4 & 15u;
}

WEIR_FN uint64_t weir_parts_place(const weir_collective_parts *p, uint32_t part, uint32_t rank)
{
    const uint64_t *row = p->words + (uint64_t)part * p->stride + 2;
    return p->wide ? row[2 * rank + 1] : (uint32_t)row[rank];
}

WEIR_FN uint64_t weir_parts_begin(const weir_collective_parts *p, uint32_t part, uint32_t rank, uint32_t unit)
{
    return weir_parts_place(p, part, rank) / unit * unit;
}

WEIR_FN uint64_t weir_parts_end(const weir_collective_parts *p, uint32_t part, uint32_t rank, uint32_t unit)
{
    return part + 1 < p->count ? weir_parts_begin(p, part + 1, rank, unit) : p->of[rank].bytes;
}

/* The first element of an extent. */
WEIR_FN uint64_t weir_parts_first(const weir_collective_parts *p, uint32_t part, uint32_t rank)
{
    const uint64_t *row = p->words + (uint64_t)part * p->stride + 2;
    return p->wide ? row[2 * rank] : row[rank] >> 32;
}

/* Bytes of data of a unit. */
WEIR_FN uint32_t weir_parts_data(uint32_t unit) { return unit == WEIR_LINE_BYTES ? WEIR_LINE_DATA : unit; }

/* With `joins` the extents lie in send, otherwise in recv. */
WEIR_FN weir_parts_piece weir_parts_piece_of(const weir_collective_parts *p, uint32_t part, uint32_t rank, int joins,
                                             uint32_t unit)
{
    const uint64_t *row = p->words + (uint64_t)part * p->stride;
    const uint64_t place = weir_parts_place(p, part, rank);
    const uint64_t first = weir_parts_first(p, part, rank);
    const uint64_t end = weir_parts_end(p, part, rank, unit);
    weir_parts_piece piece;
    piece.dtype = weir_parts_dtype(p, part);
    piece.begin = place / unit * unit;
    piece.bytes =
        unit == weir_parts_data(unit) ? end - place : (end - piece.begin) / unit * weir_parts_data(unit) - place % unit;
    piece.send = (const char *)(uintptr_t)row[0];
    piece.recv = (char *)(uintptr_t)row[1];
    if (joins) {
        piece.send += first * weir_dtype_bytes(piece.dtype);
    } else {
        piece.recv += first * weir_dtype_bytes(piece.dtype);
    }
    return piece;
}

/* The part at byte `at` of a sequence: part `part` or one of the next. */
WEIR_FN uint32_t weir_parts_forward(const weir_collective_parts *p, uint32_t rank, uint64_t at, uint32_t part)
{
    WEIR_ROLLED
    while (part + 1 < p->count && weir_parts_begin(p, part + 1, rank, WEIR_PARTS_UNIT) <= at) {
        part++;
    }
    return part;
}

/* A likely part of byte `at`, which is below 4 GiB: wide launches have no guesses. */
WEIR_FN uint32_t weir_parts_guess(const weir_collective_parts *p, uint32_t rank, uint64_t at, uint32_t unit)
{
    const uint32_t guess = (uint32_t)((float)(uint32_t)(at / unit) * p->of[rank].density);
    return guess < p->count ? guess : p->count - 1;
}

/* The part at byte `at` of a sequence, which is longer. A look at a part takes a GPU up to 0.1 us: a search by halves
 * among 64 parts made an allgather of 1 MiB 3 us longer than one of one part. */
WEIR_FN uint32_t weir_parts_find(const weir_collective_parts *p, uint32_t rank, uint64_t at)
{
    if (p->count > 1 && p->of[rank].density != 0) {
        uint32_t near = weir_parts_guess(p, rank, at, WEIR_PARTS_UNIT);
        WEIR_ROLLED
        while (weir_parts_begin(p, near, rank, WEIR_PARTS_UNIT) > at) {
            near--;
        }
        return weir_parts_forward(p, rank, at, near);
    }
    uint32_t found = 0;
    uint32_t end = p->count;
    WEIR_ROLLED
    while (end - found > 1) {
        const uint32_t middle = found + (end - found) / 2;
        if (weir_parts_begin(p, middle, rank, WEIR_PARTS_UNIT) <= at) {
            found = middle;
        } else {
            end = middle;
        }
    }
    return found;
}

/* ---- packets ------------------------------------------------------------------------------------------------- */

/* The piece at word `word` of a sequence, from there on. *left is 0 or less for a word without elements. */
WEIR_FN weir_parts_piece weir_parts_at_word(const weir_collective_parts *p, uint32_t rank, uint64_t word, int joins,
                                            int64_t *left)
{
    const uint32_t part = weir_parts_find(p, rank, 8 * word);
    weir_parts_piece piece = weir_parts_piece_of(p, part, rank, joins, WEIR_PARTS_UNIT);
    const uint64_t skipped = 8 * word - piece.begin;
    *left = weir_left(piece.bytes, skipped);
    if (*left > 0) {
        piece.send += skipped;
        piece.recv += skipped;
    }
    return piece;
}

/* Sends this rank's sequence to all others, and keeps it. */
WEIR_FN void weir_parts_spread(const weir_dev_collective *c, const weir_collective_parts *p, uint32_t flag,
                               uint32_t width, weir_coop coop)
{
    const uint64_t words = p->of[c->rank].bytes / 8;
    for (uint64_t i = coop.rank; i < words; i += coop.size) {
        int64_t left;
        const weir_parts_piece piece = weir_parts_at_word(p, c->rank, i, 0, &left);
        if (left > 0) {
            const uint64_t word = weir_word_load(piece.send, left);
            weir_packets_spread(c, weir_collective_others(c), 0, flag, i, width, word);
            if (piece.recv != piece.send) {
                weir_word_store(piece.recv, left, word);
            }
        }
    }
}

/* Takes the sequences of the other ranks. A thread has a word of one rank at a time. */
WEIR_FN weir_status weir_parts_take(const weir_dev_collective *c, const weir_collective_parts *p, uint32_t flag,
                                    weir_coop coop)
{
    const char *in = weir_packets_in(c, 0, flag);
    uint64_t i = coop.rank;
    WEIR_ROLLED
    for (uint32_t k = 0; k + 1 < c->ranks; k++) {
        const uint32_t peer = weir_collective_peer(c, k);
        const uint64_t words = p->of[peer].bytes / 8;
        WEIR_ROLLED
        for (; i < words; i += coop.size) {
            int64_t left;
            const weir_parts_piece piece = weir_parts_at_word(p, peer, i, 0, &left);
            uint64_t data[WEIR_COLLECTIVE_RANKS];
            if (left > 0) {
                const weir_batch packet = { in + (uint64_t)peer * c->packet_room + 16 * i, 0, 0, 1, 1, 1 };
                const weir_status status = weir_packets_await(c, &packet, 1, peer, flag, data);
                if (WEIR_UNLIKELY(status != WEIR_OK)) {
                    return status;
                }
                weir_word_store(piece.recv, left, data[0]);
            }
        }
        i -= words;
    }
    return WEIR_OK;
}

/* Sends each other rank the data for its sequence. */
WEIR_FN void weir_parts_scatter(const weir_dev_collective *c, const weir_collective_parts *p, uint32_t flag,
                                weir_coop coop)
{
    uint64_t i = coop.rank;
    WEIR_ROLLED
    for (uint32_t k = 0; k + 1 < c->ranks; k++) {
        const uint32_t peer = weir_collective_peer(c, k);
        const uint64_t words = p->of[peer].bytes / 8;
        WEIR_ROLLED
        for (; i < words; i += coop.size) {
            int64_t left;
            const weir_parts_piece piece = weir_parts_at_word(p, peer, i, 1, &left);
            if (left > 0) {
                weir_ll16_store(weir_packet_at(c, peer, 0, flag, i), weir_word_load(piece.send, left), flag);
            }
        }
        i -= words;
    }
}

/* One result of a word of each rank. The type becomes a constant here: the parts of a launch may differ in type. */
WEIR_FN uint64_t weir_parts_join_words(const weir_dev_collective *c, const uint64_t *words, uint32_t width,
                                       uint32_t dtype, uint32_t op)
{
    switch (dtype) {
    case WEIR_F64:
        return weir_collective_join(c, words, width, WEIR_F64, op);
    case WEIR_F32:
        return weir_collective_join(c, words, width, WEIR_F32, op);
    case WEIR_F16:
        return weir_collective_join(c, words, width, WEIR_F16, op);
    case WEIR_BF16:
        return weir_collective_join(c, words, width, WEIR_BF16, op);
    case WEIR_F8E4M3:
        return weir_collective_join(c, words, width, WEIR_F8E4M3, op);
    case WEIR_F8E5M2:
        return weir_collective_join(c, words, width, WEIR_F8E5M2, op);
    case WEIR_I8:
        return weir_collective_join(c, words, width, WEIR_I8, op);
    case WEIR_U8:
        return weir_collective_join(c, words, width, WEIR_U8, op);
    case WEIR_I32:
        return weir_collective_join(c, words, width, WEIR_I32, op);
    case WEIR_U32:
        return weir_collective_join(c, words, width, WEIR_U32, op);
    case WEIR_I64:
        return weir_collective_join(c, words, width, WEIR_I64, op);
    default:
        return weir_collective_join(c, words, width, WEIR_U64, op);
    }
}

/* Joins the ranks' data for this rank's sequence. */
WEIR_FN weir_status weir_parts_join(const weir_dev_collective *c, const weir_collective_parts *p, uint32_t flag,
                                    uint32_t width, weir_coop coop)
{
    const char *in = weir_packets_in(c, 0, flag);
    const uint64_t words = p->of[c->rank].bytes / 8;
    for (uint64_t i = coop.rank; i < words; i += coop.size) {
        int64_t left;
        const weir_parts_piece piece = weir_parts_at_word(p, c->rank, i, 1, &left);
        uint64_t data[WEIR_COLLECTIVE_RANKS];
        uint64_t ranks[WEIR_COLLECTIVE_RANKS];
        if (left <= 0) {
            continue;
        }
        const weir_batch batch = weir_batch_of(c, in + 16 * i, c->packet_room, 0, width, 1);
        const uint64_t own = weir_word_load(piece.send, left);
        const weir_status status = weir_packets_await(c, &batch, weir_batch_others(c), WEIR_NO_PEER, flag, data);
        if (WEIR_UNLIKELY(status != WEIR_OK)) {
            return status;
        }
        weir_batch_ordered(c, data, own, width, ranks);
        weir_word_store(piece.recv, left, weir_parts_join_words(c, ranks, width, piece.dtype, p->op));
    }
    return WEIR_OK;
}

/* The ranks exchange their calls after the packets of this rank are on their way. */
WEIR_FN weir_status weir_parts_meet(const weir_dev_collective *c, const weir_collective_parts *p, uint32_t flag,
                                    weir_coop coop)
{
    const uint32_t mailbox = weir_collective_mailbox_of(coop, 0);
    weir_collective_announce(c, &p->what, NULL, flag, mailbox, 0, coop);
    weir_packet_advance(c->epoch, 0, 0, coop);
    return weir_collective_compare(c, &p->what, NULL, flag, mailbox, 0, coop);
}

WEIR_FN weir_status weir_parts_packets(const weir_dev_collective *c, const weir_collective_parts *p, int joins,
                                       uint32_t width, weir_coop coop)
{
    const weir_collective_state state = weir_collective_look(c);
    uint32_t flag;
    const weir_status begun = weir_collective_begin(c, &state, &flag);
    if (WEIR_UNLIKELY(begun != WEIR_OK)) {
        return begun;
    }
    if (joins) {
        weir_parts_scatter(c, p, flag, coop);
    } else {
        weir_parts_spread(c, p, flag, width, coop);
    }
    const weir_status status = weir_parts_meet(c, p, flag, coop);
    return WEIR_UNLIKELY(status != WEIR_OK) ? status
           : joins                          ? weir_parts_join(c, p, flag, width, coop)
                                            : weir_parts_take(c, p, flag, coop);
}

/* Allgather, or with `joins` reduce_scatter of parts of any types, by packets; like weir_collective_move_packets. */
WEIR_FN weir_status weir_collective_parts_packets(const weir_dev_collective *c, const weir_collective_parts *p,
                                                  int joins, weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    return c->ranks <= 2   ? weir_parts_packets(c, p, joins, 2, coop)
           : c->ranks <= 4 ? weir_parts_packets(c, p, joins, 4, coop)
                           : weir_parts_packets(c, p, joins, WEIR_COLLECTIVE_RANKS, coop);
}

/* ---- slots --------------------------------------------------------------------------------------------------- */

/* The bytes of parts that a block stores to a peer before it turns to the next peer. The pieces are longer than those
 * of one part, because a block looks up its parts for each piece. Reduce_scatter of 64 and 256 MiB in 64 parts by 24
 * blocks took 209 and 759 us peer by peer on four H200, 245 and 750 in pieces of 64 KiB, 215 and 700 of 128, 211 and
 * 728 of 256. */
#define WEIR_PARTS_PIECE (2 * WEIR_ARCH_PEER_PIECE)

/* A range of a sequence: `left` bytes from byte `at` on, which may be no bytes. */
typedef struct weir_parts_range {
    uint32_t rank; /* whose sequence it is */
    uint64_t at;
    int64_t left;
} weir_parts_range;

/* The column's range of a sequence in one round. */
WEIR_FN weir_parts_range weir_parts_round(const weir_collective_parts *p, uint32_t rank, uint64_t round,
                                          uint32_t column)
{
    weir_parts_range range;
    range.rank = rank;
    range.at = weir_slots_piece(p->of[rank].bytes, p->range[rank], round, p->chunk, column, &range.left);
    return range;
}

/* Bytes that a piece and a range share; they begin *skip bytes after the piece and *to bytes after the range. */
WEIR_FN int64_t weir_parts_shared(const weir_parts_piece *piece, const weir_parts_range *range, uint64_t *skip,
                                  uint64_t *to)
{
    *skip = range->at > piece->begin ? range->at - piece->begin : 0;
    *to = range->at > piece->begin ? 0 : piece->begin - range->at;
    return weir_least(weir_left(piece->bytes, *skip), range->left - (int64_t)*to);
}

/* The block with its threads turned by the units of 16 bytes that lie before byte `to` of a range: short pieces that
 * follow each other occupy different threads. */
WEIR_FN weir_coop weir_parts_turned(weir_coop coop, uint64_t to)
{
    const uint32_t units = (uint32_t)(to / WEIR_PARTS_UNIT) % coop.block_size;
    coop = weir_coop_block(coop);
    coop.block_rank = (coop.block_rank + coop.block_size - units) % coop.block_size;
    coop.rank = coop.block_rank;
    return coop;
}

enum { WEIR_PARTS_TO_SLOT, WEIR_PARTS_FROM_SLOT, WEIR_PARTS_KEEP, WEIR_PARTS_TO_PEER };

/* Copies a range, by the calling block: from send to `there`, which is a slot, or a peer's mapping of `base`; from the
 * slot `there` to recv; or from send to recv. */
WEIR_FN void weir_parts_copy(const weir_collective_parts *p, const weir_parts_range *range, int joins, int way,
                             char *there, weir_coop coop)
{
    uint32_t part = range->left > 0 ? weir_parts_find(p, range->rank, range->at) : p->count;
    WEIR_ROLLED
    for (;
         part < p->count && weir_left(weir_parts_begin(p, part, range->rank, WEIR_PARTS_UNIT), range->at) < range->left;
         part++) {
        const weir_parts_piece piece = weir_parts_piece_of(p, part, range->rank, joins, WEIR_PARTS_UNIT);
        uint64_t skip;
        uint64_t to;
        const int64_t bytes = weir_parts_shared(&piece, range, &skip, &to);
        if (bytes <= 0 || (way == WEIR_PARTS_KEEP && piece.send == piece.recv)) {
            continue;
        }
        const char *src = way == WEIR_PARTS_FROM_SLOT ? there + to : piece.send + skip;
        char *dst = way == WEIR_PARTS_TO_SLOT   ? there + to
                    : way == WEIR_PARTS_TO_PEER ? there + (piece.recv - p->base) + skip
                                                : piece.recv + skip;
        weir_copy(dst, src, (uint64_t)bytes, weir_parts_turned(coop, to));
    }
}

/* weir_slots_join with a constant type. */
WEIR_FN void weir_parts_join_piece(const weir_dev_collective *c, const weir_slots_work *w, int64_t bytes,
                                   uint32_t dtype, uint32_t op, weir_coop coop)
{
    switch (dtype) {
    case WEIR_F64:
        weir_slots_join(c, w, bytes, WEIR_F64, op, coop);
        break;
    case WEIR_F32:
        weir_slots_join(c, w, bytes, WEIR_F32, op, coop);
        break;
    case WEIR_F16:
        weir_slots_join(c, w, bytes, WEIR_F16, op, coop);
        break;
    case WEIR_BF16:
        weir_slots_join(c, w, bytes, WEIR_BF16, op, coop);
        break;
    case WEIR_F8E4M3:
        weir_slots_join(c, w, bytes, WEIR_F8E4M3, op, coop);
        break;
    case WEIR_F8E5M2:
        weir_slots_join(c, w, bytes, WEIR_F8E5M2, op, coop);
        break;
    case WEIR_I8:
        weir_slots_join(c, w, bytes, WEIR_I8, op, coop);
        break;
    case WEIR_U8:
        weir_slots_join(c, w, bytes, WEIR_U8, op, coop);
        break;
    case WEIR_I32:
        weir_slots_join(c, w, bytes, WEIR_I32, op, coop);
        break;
    case WEIR_U32:
        weir_slots_join(c, w, bytes, WEIR_U32, op, coop);
        break;
    case WEIR_I64:
        weir_slots_join(c, w, bytes, WEIR_I64, op, coop);
        break;
    default:
        weir_slots_join(c, w, bytes, WEIR_U64, op, coop);
    }
}

/* The type of parts that may differ in type. */
#define WEIR_PARTS_ANY_TYPE WEIR_DTYPES

/* Joins a range of this rank's sequence, of which the others' data is in slots that begin at `in`, and with `aligns`
 * its own in the slot `own`. */
WEIR_FN void weir_parts_join_range(const weir_dev_collective *c, const weir_collective_parts *p,
                                   const weir_parts_range *range, const char *in, const char *own, uint32_t dtype,
                                   uint32_t op, uint32_t aligns, weir_coop coop)
{
    weir_slots_work w;
    w.pull = NULL;
    w.pulled = 0;
    w.to = 0;
    w.recv = NULL;
    w.place = 0;
    w.slot = 0;
    uint32_t part = range->left > 0 ? weir_parts_find(p, range->rank, range->at) : p->count;
    WEIR_ROLLED
    for (;
         part < p->count && weir_left(weir_parts_begin(p, part, range->rank, WEIR_PARTS_UNIT), range->at) < range->left;
         part++) {
        const weir_parts_piece piece = weir_parts_piece_of(p, part, range->rank, 1, WEIR_PARTS_UNIT);
        uint64_t skip;
        uint64_t to;
        const int64_t bytes = weir_parts_shared(&piece, range, &skip, &to);
        if (bytes <= 0) {
            continue;
        }
        w.own = aligns != 0 ? own + to : piece.send + skip;
        w.in = in + to;
        w.out = piece.recv + skip;
        if (dtype == WEIR_PARTS_ANY_TYPE) {
            weir_parts_join_piece(c, &w, bytes, piece.dtype, op, weir_parts_turned(coop, to));
        } else {
            weir_slots_join(c, &w, bytes, dtype, op, weir_parts_turned(coop, to));
        }
    }
}

/* The peers whose sequences have data for this column in a round. */
WEIR_FN uint32_t weir_parts_peers(const weir_dev_collective *c, const weir_collective_parts *p, uint64_t round,
                                  uint32_t column)
{
    uint32_t mask = 0;
    WEIR_UNROLL
    for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS; k++) {
        mask |= weir_slots_bit(c, k, p->of[k].bytes, p->range[k], round, p->chunk, column);
    }
    return mask;
}

/* The ranks to which this column sends in a round, or from which it receives. One sequence goes to all peers in an
 * allgather, and comes from all in a reduce_scatter. With `aligns` this rank's own goes to itself. */
WEIR_FN uint32_t weir_parts_busy(const weir_dev_collective *c, const weir_collective_parts *p, int one, uint32_t aligns,
                                 uint64_t round, uint32_t column)
{
    if (aligns != 0) {
        const int own = weir_parts_round(p, c->rank, round, column).left > 0;
        const uint32_t others = one ? (own ? weir_collective_others(c) : 0) : weir_parts_peers(c, p, round, column);
        return others | (uint32_t)own << c->rank;
    }
    if (!one) {
        return weir_parts_peers(c, p, round, column);
    }
    return weir_parts_round(p, c->rank, round, column).left > 0 ? weir_collective_others(c) : 0;
}

/* At most `turn` bytes of a range, from byte `done` on. */
WEIR_FN weir_parts_range weir_parts_piece_at(weir_parts_range range, uint64_t done, uint64_t turn)
{
    range.at += done;
    range.left = weir_least((int64_t)turn, range.left - (int64_t)done);
    return range;
}

WEIR_FN void weir_parts_send_round(const weir_dev_collective *c, const weir_collective_parts *p, int joins,
                                   uint32_t aligns, uint64_t round, uint32_t column, weir_coop coop)
{
    const uint64_t turn = weir_slots_turn(c, WEIR_PARTS_PIECE, p->chunk);
    WEIR_ROLLED
    for (uint64_t done = 0; done < p->chunk; done += turn) {
        WEIR_ROLLED
        for (uint32_t k = 0; k + 1 < c->ranks; k++) {
            const uint32_t peer = weir_slots_peer(c, k, column);
            const weir_parts_range range =
                weir_parts_piece_at(weir_parts_round(p, joins ? peer : c->rank, round, column), done, turn);
            weir_parts_copy(p, &range, joins, WEIR_PARTS_TO_SLOT, weir_slot_at(c, peer, 0, round, column) + done, coop);
        }
    }
    if (aligns != 0) {
        const weir_parts_range range = weir_parts_round(p, c->rank, round, column);
        weir_parts_copy(p, &range, joins, WEIR_PARTS_TO_SLOT, weir_slot_at(c, c->rank, 1, round, column), coop);
    }
}

WEIR_FN void weir_parts_take_round(const weir_dev_collective *c, const weir_collective_parts *p, uint64_t round,
                                   uint32_t column, weir_coop coop)
{
    const char *in = weir_slots_in(c, 0, round, column);
    WEIR_ROLLED
    for (uint32_t k = 0; k + 1 < c->ranks; k++) {
        const uint32_t peer = weir_collective_peer(c, k);
        const weir_parts_range range = weir_parts_round(p, peer, round, column);
        weir_parts_copy(p, &range, 0, WEIR_PARTS_FROM_SLOT, (char *)(uintptr_t)in + peer * c->slot_bytes, coop);
    }
}

WEIR_FN void weir_parts_join_round(const weir_dev_collective *c, const weir_collective_parts *p, uint64_t round,
                                   uint32_t column, uint32_t dtype, uint32_t op, uint32_t aligns, weir_coop coop)
{
    const weir_parts_range range = weir_parts_round(p, c->rank, round, column);
    weir_parts_join_range(c, p, &range, weir_slots_in(c, 0, round, column), weir_slot_at(c, c->rank, 1, round, column),
                          dtype, op, aligns, coop);
}

/* Copies half of the column's range of this rank's own sequence: each block of a column copies one half. Where the call
 * is split, each block copies its share of the sequence. */
WEIR_FN void weir_parts_keep(const weir_dev_collective *c, const weir_collective_parts *p, uint64_t round,
                             uint64_t rounds, uint32_t column, int second, weir_coop coop)
{
    weir_parts_range range;
    if (p->split != 0) {
        range.rank = c->rank;
        range.at = weir_slots_share(p->of[c->rank].bytes, round, rounds, &range.left, coop);
    } else {
        range = weir_parts_round(p, c->rank, round, column);
        const int64_t half = range.left / 2 / 128 * 128;
        range.at += second ? (uint64_t)half : 0;
        range.left = second ? range.left - half : half;
    }
    weir_parts_copy(p, &range, 0, WEIR_PARTS_KEEP, NULL, coop);
}

/* The bytes of the longest sequence that the columns of a block divide. A rank sends its own sequence in an allgather,
 * and takes it in a reduce_scatter. */
WEIR_FN uint64_t weir_parts_most(const weir_dev_collective *c, const weir_collective_parts *p, int joins, int sends)
{
    return p->split == 0 ? p->most : p->of[sends == !joins ? c->rank : weir_collective_peer(c, 0)].bytes;
}

/* Like weir_slots_move, or with `joins` a reduction, with its columns unless the call is split. With `aligns`, 0 or 1,
 * a rank sends its data for its own sequence to itself, too. */
WEIR_FN weir_status weir_parts_slots(const weir_dev_collective *c, const weir_collective_parts *p, int joins,
                                     uint32_t dtype, uint32_t op, uint32_t aligns, weir_coop coop)
{
    const weir_slots_duty duty =
        joins && p->split == 0 ? weir_reduce_duty_of(c, coop) : weir_split_duty_of(p->split, coop);
    const uint32_t column = duty.column;
    const uint64_t rounds = column < duty.columns
                                ? weir_slots_rounds(weir_parts_most(c, p, joins, duty.sends), 0, duty.columns, p->chunk)
                                : 0;
    weir_status status = WEIR_OK;
    for (uint64_t i = 0; i < rounds + 2 && rounds != 0 && status == WEIR_OK; i++) {
        if (duty.sends && i >= 2) {
            status = weir_collective_wait(c, WEIR_CELL_TAKEN, weir_parts_busy(c, p, !joins, aligns, i - 2, column),
                                          column, coop);
        }
        if (duty.sends && i < rounds && status == WEIR_OK) {
            weir_parts_send_round(c, p, joins, aligns, i, column, coop);
            weir_collective_signal(c, WEIR_CELL_DATA, weir_parts_busy(c, p, !joins, aligns, i, column), column, coop);
            if (!joins) {
                weir_parts_keep(c, p, i, rounds, column, 0, coop);
            }
        }
        if (duty.takes && i >= 1 && i <= rounds && status == WEIR_OK) {
            const uint32_t from = weir_parts_busy(c, p, joins, aligns, i - 1, column);
            if (!joins) {
                weir_parts_keep(c, p, i - 1, rounds, column, 1, coop);
            }
            status = weir_collective_wait(c, WEIR_CELL_DATA, from, column, coop);
            if (status == WEIR_OK) {
                if (joins) {
                    weir_parts_join_round(c, p, i - 1, column, dtype, op, aligns, coop);
                } else {
                    weir_parts_take_round(c, p, i - 1, column, coop);
                }
                weir_collective_signal(c, WEIR_CELL_TAKEN, from, column, coop);
            }
        }
    }
    return status;
}

/* An allgather that writes directly into the peers' memory, like weir_zero_copy_move. */
WEIR_FN weir_status weir_parts_zero_copy(const weir_dev_collective *c, const weir_collective_parts *p, weir_coop coop)
{
    const weir_slots_duty duty = weir_slots_duty_of(coop);
    const uint32_t others = weir_collective_others(c);
    const uint64_t each = p->range[c->rank];
    weir_parts_range range;
    range.rank = c->rank;
    range.at = duty.column * each;
    range.left = weir_least((int64_t)each, weir_left(p->of[c->rank].bytes, range.at));
    if (duty.takes) {
        weir_parts_copy(p, &range, 0, WEIR_PARTS_KEEP, NULL, coop);
    }
    if (!duty.sends) {
        return WEIR_OK;
    }
    const uint64_t turn = weir_slots_turn(c, WEIR_PARTS_PIECE, each);
    WEIR_ROLLED
    for (uint64_t done = 0; done < each; done += turn) {
        const weir_parts_range piece = weir_parts_piece_at(range, done, turn);
        WEIR_ROLLED
        for (uint32_t k = 0; k + 1 < c->ranks; k++) {
            char *to = p->peer_recv[weir_slots_peer(c, k, duty.column)];
            weir_parts_copy(p, &piece, 0, WEIR_PARTS_TO_PEER, to, coop);
        }
    }
    weir_collective_signal(c, WEIR_CELL_DATA, others, duty.column, coop);
    return weir_collective_wait(c, WEIR_CELL_DATA, others, duty.column, coop);
}

/* Allgather by slots, or directly between buffers of users. */
WEIR_FN weir_status weir_collective_gather_parts_slots(const weir_dev_collective *c, const weir_collective_parts *p,
                                                       weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    const int zero_copy = p->peer_recv[c->rank] != NULL;
    weir_status status = weir_slots_meet(c, &p->what, NULL, zero_copy, coop);
    if (status == WEIR_OK) {
        status = zero_copy ? weir_parts_zero_copy(c, p, coop) : weir_parts_slots(c, p, 0, 0, 0, 0, coop);
    }
    return weir_slots_end(c, status);
}

/* Reduce_scatter by slots, of parts that all have the type `dtype`, or of parts of WEIR_PARTS_ANY_TYPE. `aligns`: 1 if
 * the rank's own data is misaligned. A column's sending block then copies it into this rank's slots, because joins of
 * misaligned data are slow. Other ranks may pass 0. */
WEIR_FN weir_status weir_collective_reduce_parts_slots(const weir_dev_collective *c, const weir_collective_parts *p,
                                                       uint32_t dtype, uint32_t op, uint32_t aligns, weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    weir_status status = weir_slots_meet(c, &p->what, NULL, 0, coop);
    if (status == WEIR_OK) {
        status = weir_parts_slots(c, p, 1, dtype, op, aligns, coop);
    }
    return weir_slots_end(c, status);
}

#endif
