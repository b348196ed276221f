/* weir/device/impl/collective_call.h - parts that all forms of a collective share: places, mailboxes, words.
 *
 * Each rank of a collective has one memory, of the same layout on all ranks, which the others map. It holds packets;
 * lines; mailboxes; cells of semaphores; slots; rings and message slots of exchanges. Packets and lines have two
 * halves, which calls use in turn. A half has two sections, for data and for results, with room for each rank. A cell
 * that belongs to this rank alone has the epoch, a word that is set when a call by slots has failed, two words of
 * exchanges, the counter of draws, and a word that is set when the collective is abandoned. The cells behind it have
 * the counts of exchanges. All these cells stay when the collective is abandoned, so a kernel may read them at once.
 *
 * In each call a rank writes its call into a mailbox of each other rank, as packets beside the data, and compares the
 * contents of its own mailboxes. This finds ranks that call different operations. It also keeps two ranks within one
 * call of each other: a rank that finds another rank's entry for a call knows that the other has ended the call before.
 * Therefore two halves are enough. */
#ifndef WEIR_DEVICE_IMPL_COLLECTIVE_CALL_H
#define WEIR_DEVICE_IMPL_COLLECTIVE_CALL_H

#include "weir/device/memory_channel.h"
#include "weir/device/reduce.h"

#undef WEIR_DEV_USED_collective
#define WEIR_DEV_USED_collective weir_dev_version_collective

/* Bytes behind the handle that share its last cache line on sm_90 (weir_dev_collective). The arguments of a call have
 * there what a kernel needs before it sends. */
#define WEIR_ARGS_HEAD 48u

#define WEIR_MAILBOX_BYTES 64u
#define WEIR_MAILBOX_WORDS 3u
#define WEIR_CALL_COUNTED ((uint64_t)1 << 47) /* in the first word: the third one is the count for one peer */

#define WEIR_COLLECTIVE_ABANDONED 8u  /* of the epoch's cell, the word that is 1 once the collective is abandoned */
#define WEIR_COLLECTIVE_LANE_WORDS 4u /* of counts, for each peer and direction */
#define WEIR_COLLECTIVE_LANES_AT (WEIR_CELL_BYTES / 8)
#define WEIR_COLLECTIVE_CELLS (1 + 2 * WEIR_COLLECTIVE_RANKS * WEIR_COLLECTIVE_LANE_WORDS * 8 / WEIR_CELL_BYTES)

WEIR_STATIC_ASSERT(2 * WEIR_COLLECTIVE_RANKS * WEIR_COLLECTIVE_LANE_WORDS * 8 % WEIR_CELL_BYTES == 0,
                   "counts of exchanges fill cells");

/* Kinds of semaphores for each peer: one for each column by slots, one for each block that reads its peers' memory.
 * Cells of WEIR_CELL_COPIED have the words of copy engines. */
enum {
    WEIR_CELL_DATA = 0,
    WEIR_CELL_TAKEN = 1,
    WEIR_CELL_COPIED = 2,
    WEIR_CELL_MESSAGE = 3, /* for exchanges */
    WEIR_CELL_MESSAGE_TAKEN = 4,
    WEIR_CELL_KINDS = 5
};

/* A piece of the user's data. */
typedef struct weir_collective_piece {
    uint64_t at; /* byte in the buffer */
    uint64_t bytes;
} weir_collective_piece;

/* The piece that goes to a rank, and the piece that comes from it. */
typedef struct weir_collective_pieces {
    weir_collective_piece send;
    weir_collective_piece recv;
} weir_collective_pieces;

/* ---- places ---------------------------------------------------------------------------------------------- */

WEIR_FN uint64_t weir_collective_mailbox(const weir_dev_collective *c, uint32_t half, uint32_t block, uint32_t from)
{
    uint64_t index = ((uint64_t)half * c->blocks + block) * WEIR_COLLECTIVE_RANKS + from;
    return c->mailboxes + index * WEIR_MAILBOX_BYTES;
}

WEIR_FN uint64_t weir_collective_cell(const weir_dev_collective *c, uint32_t kind, uint32_t block, uint32_t from)
{
    uint64_t index = ((uint64_t)kind * c->blocks + block) * WEIR_COLLECTIVE_RANKS + from;
    return weir_collective_mailbox(c, 2, 0, 0) + index * WEIR_CELL_BYTES;
}

/* The place of the lines. The packets begin at 0, and the lines lie behind them. */
WEIR_FN uint64_t weir_collective_lines(const weir_dev_collective *c)
{
    return (uint64_t)(2 * 2 * c->ranks) * c->packet_room;
}

/* Room of rank `from` in a section of packets or lines, which begin at `base`. Between two ranks, lines may go on
 * behind their room: no rank sends to itself, so the next room is free. If a call does not use the second section, its
 * two rooms are free, too. The lines of rank 1 begin a room later, so one more room lies at the end. */
WEIR_FN uint64_t weir_collective_room(const weir_dev_collective *c, uint64_t base, uint64_t room, uint32_t section,
                                      uint32_t half, uint32_t from)
{
    return base + (((uint64_t)half * 2 + section) * c->ranks + from) * room;
}

/* The columns of a grid, of two blocks each. With an odd number of blocks the last block has a column without data. */
WEIR_FN uint32_t weir_slots_columns(uint32_t blocks) { return blocks < 2 ? 1 : blocks / 2; }

/* The columns of a reduction. Of two ranks, up to so many blocks are a column each. Joining takes longer than sending,
 * and by few blocks it limits the call. So all of them join: by 8 blocks 16 to 256 MiB take 4 to 10 % less, by 4 blocks
 * 4 to 13 %, by 16 up to 16 % more (two H200, 2026-11-30, docs/data/slots-both-2xh200.csv). */
#define WEIR_REDUCE_FEW 8u
WEIR_FN uint32_t weir_reduce_columns(const weir_dev_collective *c, uint32_t blocks)
{
    return c->ranks == 2 && blocks <= WEIR_REDUCE_FEW ? blocks : weir_slots_columns(blocks);
}

/* The slots that a column has for one turn in each section: one for each rank, or one for the other rank of two. */
WEIR_FN uint32_t weir_collective_sources(uint32_t ranks) { return ranks == 2 ? 1 : ranks; }

WEIR_FN uint64_t weir_collective_slot(const weir_dev_collective *c, uint32_t section, uint32_t turn, uint32_t column,
                                      uint32_t from)
{
    uint64_t index = ((uint64_t)section * 2 + turn) * c->slot_columns + column;
    return c->slots + (c->ranks == 2 ? index : index * c->ranks + from) * c->slot_bytes;
}

/* The semaphore of `kind` between a column and the same one of `peer`, which may be the calling rank. */
WEIR_FN weir_dev_semaphore weir_collective_semaphore(const weir_dev_collective *c, uint32_t kind, uint32_t column,
                                                     uint32_t peer)
{
    weir_dev_semaphore semaphore;
    char *mine = c->memory[c->rank] + weir_collective_cell(c, kind, column, peer);
    semaphore.control = c->control;
    semaphore.inbound = (uint64_t *)mine;
    semaphore.outbound = (uint64_t *)(c->memory[peer] + weir_collective_cell(c, kind, column, c->rank));
    semaphore.expected = (uint64_t *)(mine + 64);
    semaphore.sent = (uint64_t *)(mine + 72);
    semaphore.count = 1;
    semaphore.to_host = 0;
    semaphore.peer = c->peers[peer];
    semaphore.size = 1;
    semaphore.id = 0;
    return semaphore;
}

/* The note of a wait for `peer`. */
WEIR_FN weir_dev_note weir_collective_note(const weir_dev_collective *c, uint32_t peer)
{
    return weir_dev_note_of(WEIR_DOING_COLLECTIVE, c->peers[peer], c->call, c->count, 0);
}

/* Ends a wait for `peer`. */
WEIR_FN weir_status weir_collective_end_wait(const weir_dev_collective *c, uint32_t peer, weir_status status)
{
    return WEIR_SLOW(weir_dev_control_end_wait(c->control, status, weir_collective_note(c, peer)));
}

/* A call may be in a graph that is launched after its collective was abandoned, or after memory that it uses was
 * deregistered. It then accesses nothing but the collective's state, which stays, and becomes an error. */
WEIR_FN_COLD weir_status weir_collective_gone(const weir_dev_collective *c, uint32_t doing)
{
    return weir_dev_control_fail_in(c->control, WEIR_ERR_INVALID,
                                    weir_dev_note_of(doing, WEIR_NO_PEER, c->call, c->count, 0));
}

/* A collective's own state, which each thread of a call by packets or lines loads first. */
typedef struct weir_collective_state {
    uint64_t abandoned;
    uint64_t epoch;
} weir_collective_state;

/* The first step of such a call. The second is to prefetch the user's data of the thread's first places: it and the
 * state are then on their way together. A load of that data must come later, behind weir_collective_begin, because a
 * graph may be launched after its buffers were freed. */
WEIR_FN weir_collective_state weir_collective_look(const weir_dev_collective *c)
{
    weir_collective_state state;
    state.abandoned = weir_arch_load_relaxed_dev_u64(c->epoch + WEIR_COLLECTIVE_ABANDONED);
    state.epoch = weir_arch_load_relaxed_dev_u64(c->epoch);
    return state;
}

/* The third step: sets the flag of the call. */
WEIR_FN weir_status weir_collective_begin(const weir_dev_collective *c, const weir_collective_state *state,
                                          uint32_t *flag)
{
    *flag = weir_packet_flag_of(state->epoch);
    return WEIR_UNLIKELY(state->abandoned != 0) ? WEIR_SLOW(weir_collective_gone(c, WEIR_DOING_ABANDONED)) : WEIR_OK;
}

/* The generation of a registration that this launch uses: the one of the launch where `life` names none. */
WEIR_FN uint64_t weir_collective_generation(const weir_dev_collective *c, uint64_t life)
{
    const uint64_t number = life & 0xff;
    return number != 0 ? weir_arch_load_relaxed_dev_u64(c->generations + number - 1) : life >> 8;
}

/* Whether the registrations that this launch uses have ended. Both loads are under way at once. */
WEIR_FN int weir_collective_deregistered(const weir_dev_collective *c)
{
    const uint64_t first = weir_collective_generation(c, c->lives);
    const uint64_t second = weir_collective_generation(c, c->lives >> 32);
    return (((first ^ c->lives >> 8) | (second ^ c->lives >> 40)) & 0xffffff) != 0;
}

/* The error with which waits of the communicator end, or WEIR_OK; see weir_dev_semaphore_status. */
WEIR_FN weir_status weir_dev_collective_status(const weir_dev_collective *c)
{
    return weir_dev_control_status(c->control);
}

/* weir_dev_semaphore_await on one of a collective's semaphores. It polls without acquires, which take longer. */
WEIR_FN weir_status weir_collective_await(const weir_dev_collective *c, const weir_dev_semaphore *semaphore,
                                          uint32_t peer, uint64_t consumed)
{
    uint32_t reads = WEIR_ARCH_FAST_READS;
    uint64_t count;
    WEIR_ROLLED
    while ((count = weir_arch_load_relaxed_sys_u64(semaphore->inbound)) <= consumed && !weir_spin_is_long(&reads)) {
    }
    if (WEIR_UNLIKELY((count <= consumed) | weir_spin_is_due(consumed))) {
        return WEIR_SLOW(weir_spin_above(semaphore->inbound, consumed, weir_spin_is_due(consumed), c->control,
                                         weir_collective_note(c, peer)));
    }
    weir_arch_acquire_loaded_sys_u64(semaphore->inbound);
    return WEIR_OK;
}

/* Consumes a signal of `peer`. */
WEIR_FN weir_status weir_collective_consume(const weir_dev_collective *c, const weir_dev_semaphore *semaphore,
                                            uint32_t peer)
{
    const uint64_t consumed = weir_arch_load_relaxed_dev_u64(semaphore->expected);
    const weir_status status = weir_collective_await(c, semaphore, peer, consumed);
    if (WEIR_UNLIKELY(status != WEIR_OK)) {
        return status;
    }
    weir_arch_store_relaxed_dev_u64(semaphore->expected, consumed + 1);
    return WEIR_OK;
}

/* The peers, from the rank after this one: ranks do not all send to the same peer at a time. k is 0 to ranks - 2. */
WEIR_FN uint32_t weir_collective_peer(const weir_dev_collective *c, uint32_t k)
{
    uint32_t peer = c->rank + 1 + k;
    return peer < c->ranks ? peer : peer - c->ranks;
}

WEIR_FN uint32_t weir_collective_everyone(const weir_dev_collective *c) { return ((uint32_t)1 << c->ranks) - 1; }

WEIR_FN uint32_t weir_collective_others(const weir_dev_collective *c)
{
    return weir_collective_everyone(c) & ~((uint32_t)1 << c->rank);
}

/* ---- the user's data: at any address, `left` bytes of it ---------------------------------------------------- */

WEIR_FN int64_t weir_left(uint64_t bytes, uint64_t at) { return (int64_t)bytes - (int64_t)at; }

WEIR_FN_COLD uint64_t weir_word_load_any(const char *at, int64_t left)
{
    return weir_packet_gather(at, left < 0 ? 0 : (uint64_t)left, 8);
}

WEIR_FN_COLD void weir_word_store_any(char *at, int64_t left, uint64_t word)
{
    weir_packet_scatter(at, left < 0 ? 0 : (uint64_t)left, 8, word);
}

WEIR_FN uint64_t weir_word_load(const char *at, int64_t left)
{
    return WEIR_UNLIKELY(left < 8 || ((uintptr_t)at & 7) != 0) ? weir_word_load_any(at, left)
                                                               : weir_arch_load_u64((const weir_alias_u64 *)at);
}

/* Loads the words at byte `at` of `bytes` bytes of data and at each further step, 0 beyond the end. `places`: a
 * constant. Nothing but the rare words, unaligned or cut off, comes from behind a branch: the others are under way at
 * once. */
WEIR_FN void weir_words_load(const char *data, uint64_t bytes, uint64_t at, uint64_t step, uint32_t places,
                             uint64_t *words)
{
    const int aligned = ((uintptr_t)data & 7) == 0;
    int rare = 0;
    WEIR_UNROLL
    for (uint32_t n = 0; n < places; n++) {
        const int64_t left = weir_left(bytes, at + n * step);
        words[n] = aligned && left >= 8 ? weir_arch_load_u64((const weir_alias_u64 *)(data + at + n * step)) : 0;
        rare |= left > 0 && (!aligned || left < 8);
    }
    if (WEIR_UNLIKELY(rare)) {
        WEIR_UNROLL
        for (uint32_t n = 0; n < places; n++) {
            const int64_t left = weir_left(bytes, at + n * step);
            if (left > 0 && (!aligned || left < 8)) {
                words[n] = weir_word_load_any(data + at + n * step, left);
            }
        }
    }
}

/* Prefetches what weir_words_load would load. */
WEIR_FN void weir_words_prefetch(const char *data, uint64_t bytes, uint64_t at, uint64_t step, uint32_t places)
{
    WEIR_UNROLL
    for (uint32_t n = 0; n < places; n++) {
        if (at + n * step < bytes) {
            weir_arch_prefetch(data + at + n * step);
        }
    }
}

WEIR_FN void weir_word_store(char *at, int64_t left, uint64_t word)
{
    if (WEIR_UNLIKELY(left < 8 || ((uintptr_t)at & 7) != 0)) {
        weir_word_store_any(at, left, word);
    } else {
        weir_arch_store_u64((weir_alias_u64 *)at, word);
    }
}

WEIR_FN weir_vec16 weir_pair_load(const char *at, int64_t left)
{
    weir_vec16 pair;
    if (WEIR_UNLIKELY(left < 16 || ((uintptr_t)at & 15) != 0)) {
        pair.lo = weir_word_load_any(at, left);
        pair.hi = weir_word_load_any(at + 8, left - 8);
        return pair;
    }
    return weir_arch_load_vec16((const weir_vec16 *)at);
}

/* weir_word_store_any with the fewest registers, for kernels that have none left: byte by byte. Otherwise a
 * reduce_scatter of 64 parts would take up to 7 % longer, also of aligned data. */
WEIR_FN_COLD void weir_word_store_bytes(char *at, int64_t left, uint64_t word)
{
    for (int64_t i = 0; i < 8 && i < left; i++) {
        weir_arch_store_byte(at + i, (char)(word >> (8 * i)));
    }
}

WEIR_FN void weir_pair_store(char *at, int64_t left, weir_vec16 pair)
{
    if (WEIR_UNLIKELY(left < 16 || ((uintptr_t)at & 15) != 0)) {
        weir_word_store_bytes(at, left, pair.lo);
        weir_word_store_bytes(at + 8, left - 8, pair.hi);
    } else {
        weir_arch_store_vec16((weir_vec16 *)at, pair);
    }
}

WEIR_FN int64_t weir_least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The factor of WEIR_SCALED_SUM; 1 for other operations. */
WEIR_FN double weir_factor_value(const weir_dev_factor *factor, uint32_t dtype, uint32_t op)
{
    if (op != WEIR_SCALED_SUM || dtype > WEIR_BF16) {
        return 1;
    }
    if (factor->memory == NULL) {
        return factor->value;
    }
    switch (factor->dtype) {
    case WEIR_F64:
        return weir_double_of_word(weir_arch_load_u64((const weir_alias_u64 *)factor->memory));
    case WEIR_F32:
        return (double)weir_arch_float_of_bits(weir_arch_load_u32((const weir_alias_u32 *)factor->memory));
    default:
        return (double)weir_element_float(factor->dtype, weir_arch_load_u16((const weir_alias_u16 *)factor->memory));
    }
}

/* weir_reduce_last for any operation. The factor is multiplied before the one rounding. */
WEIR_FN uint64_t weir_collective_last(weir_reduction *all, uint32_t dtype, uint32_t op, uint32_t ranks, double factor)
{
    if (op == WEIR_SCALED_SUM && dtype <= WEIR_BF16) {
        weir_reduce_scale(all, dtype, factor);
    }
    return weir_reduce_last(all, dtype, op, ranks);
}

/* One result of a word of each rank, in the order of ranks. `width` is a constant, at least the number of ranks. */
WEIR_FN uint64_t weir_collective_join(const weir_dev_collective *c, const uint64_t *words, uint32_t width,
                                      uint32_t dtype, uint32_t op)
{
    const uint32_t ranks = c->ranks;
    weir_reduction all = { { 0 }, 0, { 0 } };
    weir_reduce_first(&all, dtype, words[0]);
    WEIR_UNROLL
    for (uint32_t k = 1; k < width; k++) {
        if (k < ranks) {
            weir_reduce_next(&all, dtype, op, words[k]);
        }
    }
    return weir_collective_last(&all, dtype, op, ranks, weir_factor_value(&c->factor, dtype, op));
}

/* ---- batches ------------------------------------------------------------------------------------------------- */

/* Packets or lines that a thread reads at once. A thread takes a batch of its places together: with few ranks several
 * places, so that the time from a read to its result is spent once for all of them. Entry j is of place j / others, and
 * of the other rank j % others, in the order of ranks. `others` and `count` are constants: then entries stay in
 * registers, and a batch for two ranks has no instructions for eight. */
typedef struct weir_batch {
    const char *first; /* of rank 0 */
    uint64_t room;     /* bytes from one rank to the next */
    uint64_t stride;   /* bytes from one place to the next */
    uint32_t skipped;  /* the rank that is not one of the others */
    uint32_t others;
    uint32_t count; /* entries */
} weir_batch;

/* Places in a batch, for up to `width` ranks: 2, 4 or 8. */
WEIR_FN uint32_t weir_batch_places(uint32_t width) { return WEIR_COLLECTIVE_RANKS / width; }

#define WEIR_BATCH_PLACES (WEIR_COLLECTIVE_RANKS / 2) /* the most */

WEIR_FN weir_batch weir_batch_of(const weir_dev_collective *c, const char *first, uint64_t room, uint64_t stride,
                                 uint32_t width, uint32_t places)
{
    const weir_batch batch = { first, room, stride, weir_arch_fresh(c->rank), width - 1, (width - 1) * places };
    return batch;
}

/* The rank of an entry. */
WEIR_FN uint32_t weir_batch_rank(uint32_t skipped, uint32_t others, uint32_t j)
{
    return j % others + (j % others >= skipped);
}

WEIR_FN const char *weir_batch_at(const weir_batch *batch, uint32_t j)
{
    return batch->first + weir_batch_rank(batch->skipped, batch->others, j) * batch->room +
           j / batch->others * batch->stride;
}

/* The other ranks' entries of the first place. */
WEIR_FN uint32_t weir_batch_others(const weir_dev_collective *c) { return ((uint32_t)1 << (c->ranks - 1)) - 1; }

/* words[place * step], for one of the first `places`. The array stays in registers, which have no index. */
WEIR_FN uint64_t weir_batch_word(const uint64_t *words, uint32_t place, uint32_t step, uint32_t places)
{
    uint64_t word = words[0];
    WEIR_UNROLL
    for (uint32_t n = 1; n < places; n++) {
        word = n == place ? words[n * step] : word;
    }
    return word;
}

/* The words of a place in the order of ranks: those of the others, and `own`. */
WEIR_FN void weir_batch_ordered(const weir_dev_collective *c, const uint64_t *others, uint64_t own, uint32_t width,
                                uint64_t *ranks)
{
    WEIR_UNROLL
    for (uint32_t k = 0; k < width; k++) {
        const uint64_t above = k < width - 1 ? others[k] : 0;
        const uint64_t below = k > 0 ? others[k - 1] : 0;
        ranks[k] = k < c->rank ? above : k == c->rank ? own : below;
    }
}

/* ---- packets ------------------------------------------------------------------------------------------------- */

/* The slow part of a wait for the packets in `mask`. With `one`, all packets are that rank's. */
WEIR_FN_COLD weir_status weir_packets_spin(const weir_dev_collective *c, const char *packets, uint64_t room,
                                           uint64_t stride, uint32_t skipped, uint32_t others, uint32_t mask,
                                           uint32_t one, uint32_t flag)
{
    weir_arch_no_kernel();
    const weir_batch batch = { packets, room, stride, skipped, others, 0 };
    for (uint32_t j = 0; j < WEIR_COLLECTIVE_RANKS; j++) {
        weir_status status =
            (mask >> j & 1) != 0 ? weir_ll16_spin(weir_batch_at(&batch, j), 0, 1, flag, c->control) : WEIR_OK;
        if (status != WEIR_OK) {
            return weir_collective_end_wait(c, one != WEIR_NO_PEER ? one : weir_batch_rank(skipped, others, j), status);
        }
    }
    return WEIR_OK;
}

/* Waits for the entries in `mask` and puts their data into words[]; the words of other entries are 0. If `one` is not
 * WEIR_NO_PEER, all packets are that rank's. All reads are under way at once. */
WEIR_FN weir_status weir_packets_await(const weir_dev_collective *c, const weir_batch *batch, uint32_t mask,
                                       uint32_t one, uint32_t flag, uint64_t *words)
{
    weir_vec16 pairs[WEIR_COLLECTIVE_RANKS];
    uint32_t reads = WEIR_ARCH_FAST_READS;
    WEIR_PARTLY_SET(pairs);
    WEIR_ROLLED
    for (;;) {
        int there = 1;
        WEIR_UNROLL
        for (uint32_t k = 0; k < batch->count; k++) {
            if ((mask >> k & 1) != 0) {
                pairs[k] = weir_arch_load_relaxed_sys_pair(weir_batch_at(batch, k));
            }
        }
        WEIR_UNROLL
        for (uint32_t k = 0; k < batch->count; k++) {
            if ((mask >> k & 1) != 0) {
                there &= weir_ll16_there(pairs[k], flag);
            }
        }
        if (there) {
            break;
        }
        if (weir_spin_is_long(&reads)) {
            weir_status status = WEIR_SLOW(weir_packets_spin(c, batch->first, batch->room, batch->stride,
                                                             batch->skipped, batch->others, mask, one, flag));
            if (status != WEIR_OK) {
                return status;
            }
            reads = WEIR_ARCH_FAST_READS;
        }
    }
    WEIR_UNROLL
    for (uint32_t k = 0; k < batch->count; k++) {
        words[k] = (mask >> k & 1) != 0 ? (pairs[k].lo & 0xffffffffu) | pairs[k].hi << 32 : 0;
    }
    return WEIR_OK;
}

/* ---- mailboxes --------------------------------------------------------------------------------------------- */

/* The mailbox that a block compares. With zero-copy results each block has a mailbox. Otherwise the last block, which
 * has the least work, compares mailbox 0. */
#define WEIR_NO_MAILBOX 0xffffffffu

WEIR_FN uint32_t weir_collective_mailbox_of(weir_coop coop, int zero_copy)
{
    return zero_copy ? coop.block : coop.block + 1 == coop.blocks ? 0 : WEIR_NO_MAILBOX;
}

/* The mailbox threads of a block write and read mailboxes. They are the block's last threads, which have the least
 * work. The result is the first peer of each; its other peers follow block_size apart. */
WEIR_FN uint32_t weir_collective_mailbox_thread(weir_coop coop) { return coop.block_size - 1 - coop.block_rank; }

/* Writes this rank's call into mailbox `mailbox` of each other rank. With `pieces` the count for a peer is the
 * bytes that go to it. If `pieces` is NULL, what->count is for all. With `ordered` a peer that has compared the call
 * also sees what came before it here. The first packet is then a release: a fence in front of it has no store to wait
 * for. */
WEIR_FN void weir_collective_announce(const weir_dev_collective *c, const weir_collective_what *what,
                                      const weir_collective_pieces *pieces, uint32_t flag, uint32_t mailbox,
                                      int ordered, weir_coop coop)
{
    for (uint32_t peer = weir_collective_mailbox_thread(coop); mailbox != WEIR_NO_MAILBOX && peer < c->ranks;
         peer += coop.block_size) {
        char *box = c->memory[peer] + weir_collective_mailbox(c, flag % 2, mailbox, c->rank);
        if (peer != c->rank) {
            if (ordered) {
                weir_ll16_store_release(box, what->call, flag);
            } else {
                weir_ll16_store(box, what->call, flag);
            }
            weir_ll16_store(box + 16, what->where, flag);
            weir_ll16_store(box + 32, pieces != NULL ? pieces[peer].send.bytes : what->count, flag);
        }
    }
}

/* Stores both calls for the host's text. */
WEIR_FN void weir_collective_store_difference(weir_dev_difference *difference, uint64_t first, const uint64_t *mine,
                                              const uint64_t *theirs)
{
    for (uint32_t i = 0; i < WEIR_MAILBOX_WORDS; i++) {
        weir_arch_store_relaxed_sys_u64(&difference->mine[i], mine[i]);
        weir_arch_store_relaxed_sys_u64(&difference->theirs[i], theirs[i]);
    }
    weir_arch_store_relaxed_sys_u64(&difference->first, first);
    weir_arch_store_release_sys_u64(&difference->found, 1);
}

/* This rank and another one call different operations: records both calls. */
WEIR_FN_COLD weir_status weir_collective_differ(weir_dev_difference *difference, const uint64_t *mine,
                                                const uint64_t *theirs, weir_dev_control *control)
{
    weir_arch_no_kernel();
    weir_collective_store_difference(difference, 0, mine, theirs);
    return weir_dev_control_fail(control, WEIR_ERR_MISMATCH);
}

/* Waits for the call of rank `k` of the host in mailbox 0. Returns whether it has come. `spin` counts the waits for all
 * ranks, which last two seconds in all, or a quarter of the deadline. */
WEIR_FN int weir_collective_await_call(const weir_dev_collective *c, uint32_t k, uint32_t flag, weir_spin *spin,
                                       uint64_t *words)
{
    const char *box = c->memory[c->rank] + weir_collective_mailbox(c, flag % 2, 0, k);
    const uint64_t quarter = weir_arch_load_relaxed_sys_u64(&c->control->timeout_ns) / 4;
    const uint64_t most = quarter < 2000000000u ? quarter : 2000000000u;
    WEIR_ROLLED
    for (uint32_t i = 0; i < WEIR_MAILBOX_WORDS; i++) {
        weir_vec16 pair = weir_arch_load_relaxed_sys_pair(box + (uint64_t)16 * i);
        while (!weir_ll16_there(pair, flag)) {
            const int late = spin->since_ns != 0 && weir_arch_clock_ns() - spin->since_ns > most;
            if (late || weir_spin_step(spin, c->control) != WEIR_OK) {
                return 0;
            }
            pair = weir_arch_load_relaxed_sys_pair(box + (uint64_t)16 * i);
        }
        words[i] = (pair.lo & 0xffffffffu) | pair.hi << 32;
    }
    return 1;
}

/* This rank and `peer` call different operations. Records the first rank that differs from rank 0, and both calls, in
 * this rank's own entry, so that all ranks report the same. If a rank of the host sends no call, records the calls of
 * this rank and `peer`. If rank 0's operation has counts for each peer, counts do not differ. */
WEIR_FN_COLD weir_status weir_collective_differ_first(const weir_dev_collective *c, uint32_t peer, const uint64_t *mine,
                                                      const uint64_t *theirs, uint32_t flag)
{
    weir_arch_no_kernel();
    weir_dev_difference *difference = c->differences + peer;
    uint64_t calls[2][WEIR_MAILBOX_WORDS]; /* of rank 0 and of rank k */
    weir_spin spin = weir_spin_begin();
    int there = 1;
    WEIR_ROLLED
    for (uint32_t k = 0; k < c->ranks && there; k++) {
        uint64_t *words = calls[k != 0];
        if (k == c->rank) {
            for (uint32_t i = 0; i < WEIR_MAILBOX_WORDS; i++) {
                words[i] = mine[i];
            }
        } else {
            there = weir_collective_await_call(c, k, flag, &spin, words);
        }
        const int counted = (calls[0][0] & WEIR_CALL_COUNTED) != 0;
        const int other =
            k != 0 && (calls[0][0] != words[0] || calls[0][1] != words[1] || (!counted && calls[0][2] != words[2]));
        if (there && other) {
            weir_collective_store_difference(c->differences + c->rank, k + 1, words, calls[0]);
            return weir_dev_control_fail(c->control, WEIR_ERR_MISMATCH);
        }
    }
    const weir_status status = weir_dev_control_status(c->control); /* another thread may have found more */
    return status != WEIR_OK ? status : weir_collective_differ(difference, mine, theirs, c->control);
}

/* Waits for the error that another block is about to report. Ends as weir_spin_step. */
WEIR_FN_COLD weir_status weir_collective_await_error(weir_dev_control *control)
{
    weir_spin spin = weir_spin_begin();
    weir_status status = WEIR_OK;
    while (status == WEIR_OK) {
        status = weir_spin_step(&spin, control);
    }
    return status;
}

/* Waits until each other rank has written into mailbox `mailbox`, and compares. With `pieces` the count expected from
 * a peer is the bytes that come from it. `ordered`: as for weir_collective_announce. The status is the calling
 * thread's. */
WEIR_FN weir_status weir_collective_compare(const weir_dev_collective *c, const weir_collective_what *what,
                                            const weir_collective_pieces *pieces, uint32_t flag, uint32_t mailbox,
                                            int ordered, weir_coop coop)
{
    for (uint32_t peer = weir_collective_mailbox_thread(coop); mailbox != WEIR_NO_MAILBOX && peer < c->ranks;
         peer += coop.block_size) {
        const weir_status due = weir_packet_look(flag, c->control);
        if (WEIR_UNLIKELY(due != WEIR_OK)) {
            return due;
        }
        const char *box = c->memory[c->rank] + weir_collective_mailbox(c, flag % 2, mailbox, peer);
        uint64_t mine[WEIR_MAILBOX_WORDS] = { what->call, what->where,
                                              pieces != NULL ? pieces[peer].recv.bytes : what->count };
        const weir_batch words = { box, 16, 0, WEIR_MAILBOX_WORDS, WEIR_MAILBOX_WORDS, WEIR_MAILBOX_WORDS };
        uint64_t theirs[WEIR_MAILBOX_WORDS];
        if (peer == c->rank) {
            continue;
        }
        weir_status status = weir_packets_await(c, &words, ((uint32_t)1 << WEIR_MAILBOX_WORDS) - 1, peer, flag, theirs);
        if (WEIR_UNLIKELY(status != WEIR_OK)) {
            return status;
        }
        if (WEIR_UNLIKELY(((mine[0] ^ theirs[0]) | (mine[1] ^ theirs[1]) | (mine[2] ^ theirs[2])) != 0)) {
            return mailbox != 0     ? weir_collective_end_wait(c, peer, weir_collective_await_error(c->control))
                   : pieces != NULL ? WEIR_SLOW(weir_collective_differ(c->differences + peer, mine, theirs, c->control))
                                    : WEIR_SLOW(weir_collective_differ_first(c, peer, mine, theirs, flag));
        }
        if (ordered) {
            weir_arch_acquire_loaded_sys_u64((const uint64_t *)box);
        }
    }
    return WEIR_OK;
}

/* ---- semaphores of a column ---------------------------------------------------------------------------------- */

/* Signals the same column of the ranks in `mask`, after all threads of the block have arrived. */
WEIR_FN void weir_collective_signal(const weir_dev_collective *c, uint32_t kind, uint32_t mask, uint32_t column,
                                    weir_coop coop)
{
    weir_arch_block_sync(coop.host);
    for (uint32_t peer = coop.block_rank; peer < c->ranks; peer += coop.block_size) {
        if ((mask >> peer & 1) != 0) {
            weir_dev_semaphore semaphore = weir_collective_semaphore(c, kind, column, peer);
            weir_dev_semaphore_signal(&semaphore);
        }
    }
}

/* Waits for the signals of these ranks. All threads of the block go on, or end, together. */
WEIR_FN weir_status weir_collective_wait(const weir_dev_collective *c, uint32_t kind, uint32_t mask, uint32_t column,
                                         weir_coop coop)
{
    weir_status status = WEIR_OK;
    for (uint32_t peer = coop.block_rank; peer < c->ranks && status == WEIR_OK; peer += coop.block_size) {
        if ((mask >> peer & 1) != 0) {
            weir_dev_semaphore semaphore = weir_collective_semaphore(c, kind, column, peer);
            status = weir_collective_consume(c, &semaphore, peer);
        }
    }
    return weir_coop_agree(weir_coop_block(coop), c->control, status);
}

#endif
