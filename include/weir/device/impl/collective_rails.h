/* weir/device/impl/collective_rails.h - collectives between hosts: the exchange of a rank with the ranks of the same
 * index on the other hosts.
 *
 * The ranks of a collective that map each other's memory are a host. Rank i of a host has a rail to rank i of each
 * other host, which is a port channel. A step moves pieces over the rails, from each host to each. A piece that arrives
 * is copied to its place, or joined with this host's piece in the order of hosts; the result is then sent on.
 *
 * Blocks do not meet. Each block takes its range of every piece, slot_bytes at a time. In round i it copies the data
 * for each host into slots of this rank. The channel moves the data into slots of the other rank, and the message's
 * number behind it. In the same round the block takes the messages of round i - WEIR_RAIL_LAG and joins their data; the
 * results go with the next message. Both ends send the same number of messages, some of them empty. A message therefore
 * also shows that its sender has taken all messages that were sent more than WEIR_RAIL_LAG before it: their slots are
 * free.
 *
 * Each rank has one memory for this, of the same layout on all ranks. From its start it holds the number of messages of
 * each block so far; a word that is set when a step has failed, because later steps must not take its messages for
 * theirs; the number of messages that have arrived, for each block and host; slots, for each block and host, in and
 * out. */
#ifndef WEIR_DEVICE_IMPL_COLLECTIVE_RAILS_H
#define WEIR_DEVICE_IMPL_COLLECTIVE_RAILS_H

#include "weir/device/impl/collective_slots.h"
#include "weir/device/port_channel.h"

#undef WEIR_DEV_USED_rails
#define WEIR_DEV_USED_rails weir_dev_version_rails

#define WEIR_RAIL_LAG 2u
#define WEIR_RAIL_SLOTS (2u * WEIR_RAIL_LAG + 2u)

/* A slot: the sender's call, in the first message of a step; slot_bytes of data; slot_bytes of results. */
#define WEIR_RAIL_HEAD WEIR_CELL_BYTES

/* A piece of data. */
typedef struct weir_rail_piece {
    uint64_t send_at; /* where it lies in send, */
    uint64_t recv_at; /* and in recv */
    uint64_t bytes;
} weir_rail_piece;

/* One step. With `scatter` piece k is what host k gets from each other host: it lies at its send_at in their send, and
 * what comes from host j lies at the recv_at of piece j. Otherwise piece k is what host k sends to each other one. */
typedef struct weir_rail_step {
    weir_collective_what what;
    const char *send;
    char *recv;
    uint64_t part;   /* at least the bytes of the longest piece; the same on all hosts */
    uint64_t from;   /* a bit for each host that sends, */
    uint64_t to;     /* for each host that receives, */
    uint64_t spread; /* and for each host that gets all pieces after they are joined */
    uint32_t scatter;
    uint32_t joins; /* data is joined with this host's piece; then all hosts send and receive */
    uint32_t dtype;
    uint32_t op;
    weir_rail_piece pieces[WEIR_COLLECTIVE_HOSTS];
} weir_rail_step;

/* The work of a block. */
typedef struct weir_rail_walk {
    uint64_t first; /* number of its first message */
    uint64_t at;    /* start of its range in each piece */
    uint64_t range;
    uint64_t messages;
} weir_rail_walk;

/* ---- places ---------------------------------------------------------------------------------------------- */

WEIR_FN uint64_t weir_rail_count(uint32_t block) { return (uint64_t)block * WEIR_CELL_BYTES; }

/* The place of the count of messages from `from`. */
WEIR_FN uint64_t weir_rail_arrived(const weir_dev_rails *c, uint32_t block, uint32_t from)
{
    return (c->blocks + (uint64_t)block * c->hosts + from) * WEIR_CELL_BYTES;
}

WEIR_FN uint64_t weir_rail_slot_size(const weir_dev_rails *c) { return WEIR_RAIL_HEAD + 2 * c->slot_bytes; }

/* The distance from the slots of one host to those of the next. */
WEIR_FN uint64_t weir_rail_stride(const weir_dev_rails *c) { return 2 * WEIR_RAIL_SLOTS * weir_rail_slot_size(c); }

/* The slot of message `number` from host `host`, or (`out`) to it. */
WEIR_FN uint64_t weir_rail_slot(const weir_dev_rails *c, uint32_t block, uint32_t host, uint32_t out, uint64_t number)
{
    return c->slots + ((uint64_t)block * c->hosts + host) * weir_rail_stride(c) +
           (out * WEIR_RAIL_SLOTS + number % WEIR_RAIL_SLOTS) * weir_rail_slot_size(c);
}

/* Bytes of a rank's memory, up to the end of the slots. */
WEIR_FN uint64_t weir_rail_bytes(const weir_dev_rails *c) { return weir_rail_slot(c, c->blocks, 0, 0, 0); }

/* The other hosts in this host's order; k from 1 to hosts - 1. */
WEIR_FN uint32_t weir_rail_peer(const weir_dev_rails *c, uint32_t k)
{
    const uint32_t host = c->host + k;
    return host < c->hosts ? host : host - c->hosts;
}

/* ---- pieces ---------------------------------------------------------------------------------------------- */

WEIR_FN int64_t weir_rail_bytes_of(const weir_rail_step *s, uint32_t host) { return (int64_t)s->pieces[host].bytes; }

WEIR_FN int64_t weir_rail_goes(const weir_dev_rails *c, const weir_rail_step *s, uint32_t host)
{
    return (s->from >> c->host & s->to >> host & 1) != 0 ? weir_rail_bytes_of(s, s->scatter ? host : c->host) : 0;
}

WEIR_FN int64_t weir_rail_comes(const weir_dev_rails *c, const weir_rail_step *s, uint32_t host)
{
    return (s->from >> host & s->to >> c->host & 1) != 0 ? weir_rail_bytes_of(s, s->scatter ? c->host : host) : 0;
}

/* Bytes of the block's part of a piece in round `round`, which begins at *at of the piece. A result of 0 or less means
 * no bytes. */
WEIR_FN int64_t weir_rail_left(const weir_dev_rails *c, const weir_rail_walk *walk, uint64_t round, int64_t piece,
                               uint64_t *at)
{
    const uint64_t skipped = round * c->slot_bytes;
    *at = walk->at + skipped;
    return weir_least(weir_least((int64_t)c->slot_bytes, weir_left(walk->range, skipped)), piece - (int64_t)*at);
}

/* Bytes of the results that go with message `round` for `host`, or come with it from `host`; `piece` is theirs. */
WEIR_FN int64_t weir_rail_results(const weir_dev_rails *c, const weir_rail_step *s, const weir_rail_walk *walk,
                                  uint64_t round, uint32_t to, uint32_t piece, uint64_t *at)
{
    if (round <= WEIR_RAIL_LAG || (s->spread >> to & 1) == 0) {
        return 0;
    }
    return weir_rail_left(c, walk, round - WEIR_RAIL_LAG - 1, weir_rail_bytes_of(s, piece), at);
}

/* The first block sends a message even without data, with this rank's call. */
WEIR_FN weir_rail_walk weir_rail_walk_of(const weir_dev_rails *c, const weir_rail_step *s, weir_coop coop)
{
    weir_rail_walk walk;
    walk.first = weir_arch_load_relaxed_dev_u64((uint64_t *)(c->memory + weir_rail_count(coop.block)));
    walk.range = weir_slots_range(s->part, coop.blocks);
    walk.at = coop.block * walk.range;
    walk.messages = weir_slots_rounds(s->part, coop.block, coop.blocks, c->slot_bytes);
    if (coop.block == 0 && walk.messages == 0) {
        walk.messages = 1;
    }
    if (walk.messages != 0 && s->spread != 0) {
        walk.messages += WEIR_RAIL_LAG + 1;
    }
    return walk;
}

/* ---- sending ----------------------------------------------------------------------------------------------- */

/* Puts `bytes` at `at` of the message's slot into that of `host`. One thread calls this and the next function. */
WEIR_FN_COLD weir_status weir_rail_put(const weir_dev_rails *c, uint32_t block, uint32_t host, uint64_t number,
                                       uint64_t at, uint64_t bytes)
{
    weir_arch_no_kernel();
    return weir_dev_port_channel_ask(c->channels + host, WEIR_REQUEST_PUT,
                                     weir_rail_slot(c, block, c->host, 0, number) + at,
                                     weir_rail_slot(c, block, host, 1, number) + at, bytes, 0, NULL);
}

WEIR_FN_COLD weir_status weir_rail_announce(const weir_dev_rails *c, uint32_t block, uint32_t host, uint64_t number)
{
    weir_arch_no_kernel();
    return weir_dev_port_channel_ask(c->channels + host, WEIR_REQUEST_VALUE, weir_rail_arrived(c, block, c->host), 0, 8,
                                     number + 1, NULL);
}

/* Sends the contents of the slot for `host`. By one thread. */
WEIR_FN weir_status weir_rail_post(const weir_dev_rails *c, const weir_rail_step *s, const weir_rail_walk *walk,
                                   uint64_t round, uint32_t block, uint32_t host)
{
    const uint64_t number = walk->first + round;
    const uint64_t skip = round == 0 && block == 0 ? 0 : WEIR_RAIL_HEAD;
    uint64_t at = 0;
    const int64_t data = weir_rail_left(c, walk, round, weir_rail_goes(c, s, host), &at);
    const int64_t results = weir_rail_results(c, s, walk, round, host, c->host, &at);
    const uint64_t bytes = WEIR_RAIL_HEAD - skip + (data > 0 ? (uint64_t)data : 0);
    weir_status status = bytes != 0 ? weir_rail_put(c, block, host, number, skip, bytes) : WEIR_OK;
    if (status == WEIR_OK && results > 0) {
        status = weir_rail_put(c, block, host, number, WEIR_RAIL_HEAD + c->slot_bytes, (uint64_t)results);
    }
    return status == WEIR_OK ? weir_rail_announce(c, block, host, number) : status;
}

/* Sends the messages of round `round`. The status, passed on from before, is the calling thread's. */
WEIR_FN weir_status weir_rail_send(const weir_dev_rails *c, const weir_rail_step *s, const weir_rail_walk *walk,
                                   uint64_t round, weir_status status, weir_coop coop)
{
    uint64_t at = 0;
    for (uint32_t k = 1; k < c->hosts; k++) {
        const uint32_t host = weir_rail_peer(c, k);
        const int64_t left = weir_rail_left(c, walk, round, weir_rail_goes(c, s, host), &at);
        char *slot = c->memory + weir_rail_slot(c, coop.block, host, 1, walk->first + round);
        weir_slots_copy(slot + WEIR_RAIL_HEAD, s->send + s->pieces[s->scatter ? host : c->host].send_at + at, left,
                        coop);
        if (round == 0 && coop.rank == 0) {
            weir_arch_store_relaxed_sys_u64((uint64_t *)slot, s->what.call);
            weir_arch_store_relaxed_sys_u64((uint64_t *)slot + 1, s->what.where);
            weir_arch_store_relaxed_sys_u64((uint64_t *)slot + 2, s->what.count);
        }
    }
    weir_arch_block_sync(coop.host);
    for (uint32_t k = 1 + coop.block_rank; k < c->hosts && status == WEIR_OK; k += coop.block_size) {
        status = weir_rail_post(c, s, walk, round, coop.block, weir_rail_peer(c, k));
    }
    return status;
}

/* ---- receiving --------------------------------------------------------------------------------------------- */

/* Compares the call of `host`, from its first message. By one thread. */
WEIR_FN_COLD weir_status weir_rail_compare(const weir_dev_rails *c, const weir_rail_step *s, uint32_t host,
                                           uint64_t number)
{
    const uint64_t *head = (const uint64_t *)(c->memory + weir_rail_slot(c, 0, host, 0, number));
    const uint64_t mine[WEIR_MAILBOX_WORDS] = { s->what.call, s->what.where, s->what.count };
    uint64_t theirs[WEIR_MAILBOX_WORDS];
    uint64_t differ = 0;
    for (uint32_t i = 0; i < WEIR_MAILBOX_WORDS; i++) {
        theirs[i] = weir_arch_load_relaxed_sys_u64(head + i);
        differ |= mine[i] ^ theirs[i];
    }
    return differ == 0 ? WEIR_OK : weir_collective_differ(c->differences + host, mine, theirs, c->control);
}

/* Waits for message `number` of `host`. */
WEIR_FN weir_status weir_rail_await(const weir_dev_rails *c, const weir_rail_step *s, uint32_t block, uint32_t host,
                                    uint64_t number)
{
    return WEIR_SLOW(weir_spin_above(
        (const uint64_t *)(c->memory + weir_rail_arrived(c, block, host)), number, weir_spin_is_due(number), c->control,
        weir_dev_note_of(WEIR_DOING_COLLECTIVE, c->channels[host].semaphore.peer, s->what.call, s->what.count, 0)));
}

/* Waits for the messages of round `round` of all hosts; all threads of the block go on, or end, together. */
WEIR_FN weir_status weir_rail_wait(const weir_dev_rails *c, const weir_rail_step *s, const weir_rail_walk *walk,
                                   uint64_t round, weir_status status, weir_coop coop)
{
    const uint64_t number = walk->first + round;
    for (uint32_t k = 1 + coop.block_rank; k < c->hosts && status == WEIR_OK; k += coop.block_size) {
        const uint32_t host = weir_rail_peer(c, k);
        status = weir_rail_await(c, s, coop.block, host, number);
        if (status == WEIR_OK && round == 0 && coop.block == 0) {
            status = WEIR_SLOW(weir_rail_compare(c, s, host, number));
        }
    }
    return weir_coop_agree(weir_coop_block(coop), c->control, status);
}

/* The data of a round that is joined. */
typedef struct weir_rail_join {
    const char *in; /* host 0's; the next host's is a stride away */
    const char *own;
    char *out;
    char *results; /* in the slots for host 0, at the same distance */
    uint64_t spread;
    int64_t left;
} weir_rail_join;

WEIR_FN weir_vec16 weir_rail_load(const weir_dev_rails *c, const weir_rail_join *j, uint32_t host, int64_t at)
{
    return host == c->host ? weir_pair_load(j->own + at, j->left - at)
                           : weir_arch_load_vec16((const weir_vec16 *)(j->in + host * weir_rail_stride(c) + at));
}

WEIR_FN void weir_rail_join_as(const weir_dev_rails *c, const weir_rail_join *j, uint32_t dtype, uint32_t op,
                               weir_coop coop)
{
    const int64_t stride = 16 * (int64_t)coop.block_size;
    const double factor = weir_factor_value(&c->factor, dtype, op);
    WEIR_ROLLED
    for (int64_t at = 16 * (int64_t)coop.block_rank; at < j->left; at += stride) {
        weir_vec16 pair = weir_rail_load(c, j, 0, at);
        weir_reduction lo = { { 0 }, 0, { 0 } };
        weir_reduction hi = { { 0 }, 0, { 0 } };
        weir_reduce_first(&lo, dtype, pair.lo);
        weir_reduce_first(&hi, dtype, pair.hi);
        WEIR_ROLLED
        for (uint32_t host = 1; host < c->hosts; host++) {
            pair = weir_rail_load(c, j, host, at);
            weir_reduce_next(&lo, dtype, op, pair.lo);
            weir_reduce_next(&hi, dtype, op, pair.hi);
        }
        pair.lo = weir_collective_last(&lo, dtype, op, c->hosts, factor);
        pair.hi = weir_collective_last(&hi, dtype, op, c->hosts, factor);
        weir_pair_store(j->out + at, j->left - at, pair);
        WEIR_ROLLED
        for (uint32_t host = 0; j->spread != 0 && host < c->hosts; host++) {
            if ((j->spread >> host & 1) != 0) {
                weir_arch_store_vec16((weir_vec16 *)(j->results + host * weir_rail_stride(c) + at), pair);
            }
        }
    }
}

/* The rails are far slower than this: one kernel serves all types, and only sums have a constant operation. */
WEIR_FN_FLAT void weir_rail_join_all(const weir_dev_rails *c, const weir_rail_join *j, uint32_t dtype, uint32_t op,
                                     weir_coop coop)
{
    switch (dtype) {
    case WEIR_F64:
        weir_rail_join_as(c, j, WEIR_F64, op, coop);
        break;
    case WEIR_F32:
        if (op == WEIR_SUM) {
            weir_rail_join_as(c, j, WEIR_F32, WEIR_SUM, coop);
        } else {
            weir_rail_join_as(c, j, WEIR_F32, op, coop);
        }
        break;
    case WEIR_F16:
        weir_rail_join_as(c, j, WEIR_F16, op, coop);
        break;
    case WEIR_BF16:
        weir_rail_join_as(c, j, WEIR_BF16, op, coop);
        break;
    case WEIR_F8E4M3:
        weir_rail_join_as(c, j, WEIR_F8E4M3, op, coop);
        break;
    case WEIR_F8E5M2:
        weir_rail_join_as(c, j, WEIR_F8E5M2, op, coop);
        break;
    case WEIR_I8:
        weir_rail_join_as(c, j, WEIR_I8, op, coop);
        break;
    case WEIR_U8:
        weir_rail_join_as(c, j, WEIR_U8, op, coop);
        break;
    case WEIR_I32:
        weir_rail_join_as(c, j, WEIR_I32, op, coop);
        break;
    case WEIR_U32:
        weir_rail_join_as(c, j, WEIR_U32, op, coop);
        break;
    case WEIR_I64:
        weir_rail_join_as(c, j, WEIR_I64, op, coop);
        break;
    default:
        weir_rail_join_as(c, j, WEIR_U64, op, coop);
    }
}

/* Joins the data of round `round`; the results go with a later message. */
WEIR_FN void weir_rail_take_joined(const weir_dev_rails *c, const weir_rail_step *s, const weir_rail_walk *walk,
                                   uint64_t round, weir_coop coop)
{
    const uint64_t number = walk->first + round;
    uint64_t at = 0;
    weir_rail_join join;
    join.left = weir_rail_left(c, walk, round, weir_rail_bytes_of(s, c->host), &at);
    join.in = c->memory + weir_rail_slot(c, coop.block, 0, 0, number) + WEIR_RAIL_HEAD;
    join.own = s->send + s->pieces[c->host].send_at + at;
    join.out = s->recv + s->pieces[c->host].recv_at + at;
    join.results =
        c->memory + weir_rail_slot(c, coop.block, 0, 1, number + WEIR_RAIL_LAG + 1) + WEIR_RAIL_HEAD + c->slot_bytes;
    join.spread = s->spread & ~((uint64_t)1 << c->host);
    weir_rail_join_all(c, &join, s->dtype, s->op, coop);
}

/* Takes the messages of round `round`, which have arrived. */
WEIR_FN void weir_rail_take(const weir_dev_rails *c, const weir_rail_step *s, const weir_rail_walk *walk,
                            uint64_t round, weir_coop coop)
{
    uint64_t at = 0;
    if (s->joins) {
        weir_rail_take_joined(c, s, walk, round, coop);
    }
    for (uint32_t k = 1; k < c->hosts; k++) {
        const uint32_t host = weir_rail_peer(c, k);
        const char *slot = c->memory + weir_rail_slot(c, coop.block, host, 0, walk->first + round) + WEIR_RAIL_HEAD;
        const int64_t left = s->joins ? weir_rail_results(c, s, walk, round, c->host, host, &at)
                                      : weir_rail_left(c, walk, round, weir_rail_comes(c, s, host), &at);
        weir_slots_copy(s->recv + s->pieces[host].recv_at + at, slot + (s->joins ? c->slot_bytes : 0), left, coop);
    }
}

/* ---- steps ------------------------------------------------------------------------------------------------- */

/* Copies the piece that stays here, unless it is in place or is joined. */
WEIR_FN void weir_rail_keep(const weir_dev_rails *c, const weir_rail_step *s, const weir_rail_walk *walk,
                            weir_coop coop)
{
    const char *from = s->send + s->pieces[c->host].send_at;
    char *to = s->recv + s->pieces[c->host].recv_at;
    if (!s->joins && to != from) {
        weir_slots_copy(to + walk->at, from + walk->at,
                        weir_least((int64_t)walk->range, weir_rail_comes(c, s, c->host) - (int64_t)walk->at), coop);
    }
}

/* After a failed step, or if the collective was abandoned, the step does nothing. */
WEIR_FN weir_status weir_rail_begin(const weir_dev_rails *c, const weir_rail_step *s, const uint64_t *count)
{
    if (WEIR_UNLIKELY(weir_arch_load_relaxed_dev_u64(c->abandoned) != 0)) {
        return WEIR_SLOW(weir_dev_control_fail_in(
            c->control, WEIR_ERR_INVALID,
            weir_dev_note_of(WEIR_DOING_ABANDONED, WEIR_NO_PEER, s->what.call, s->what.count, 0)));
    }
    return weir_arch_load_relaxed_dev_u64(count + 1) != 0 ? weir_dev_control_error(c->control) : WEIR_OK;
}

/* All threads of the grid call it, in whole blocks: at most `blocks`, the same number on all ranks. A failure becomes
 * the communicator's error: WEIR_ERR_MISMATCH if ranks call different steps, WEIR_ERR_TIMEOUT, or an earlier error. */
WEIR_FN weir_status weir_rail_run(const weir_dev_rails *c, const weir_rail_step *s, weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    uint64_t *count = (uint64_t *)(c->memory + weir_rail_count(coop.block));
    weir_arch_show_kernel(); /* once for all messages */
    weir_status status = weir_coop_agree(weir_coop_block(coop), c->control, weir_rail_begin(c, s, count));
    if (status != WEIR_OK) {
        return status;
    }
    const weir_rail_walk walk = weir_rail_walk_of(c, s, coop);
    WEIR_ROLLED
    for (uint64_t i = 0; i < walk.messages + WEIR_RAIL_LAG; i++) {
        if (i < walk.messages) {
            status = weir_rail_send(c, s, &walk, i, status, coop);
        }
        if (i == 0) {
            weir_rail_keep(c, s, &walk, coop);
        }
        if (i < WEIR_RAIL_LAG) {
            continue;
        }
        status = weir_rail_wait(c, s, &walk, i - WEIR_RAIL_LAG, status, coop);
        if (status != WEIR_OK) {
            weir_arch_store_relaxed_dev_u64(count + 1, 1);
            return status;
        }
        weir_rail_take(c, s, &walk, i - WEIR_RAIL_LAG, coop);
    }
    weir_arch_block_sync(coop.host);
    if (coop.block_rank == 0) {
        weir_arch_store_relaxed_dev_u64(count, walk.first + walk.messages);
    }
    return WEIR_OK;
}

#endif
