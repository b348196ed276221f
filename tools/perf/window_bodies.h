/* window_bodies.h - what the kernels of weir-perf window do. A block is a rank.
 *
 * By hand means a flag in the target's memory for each sender, which the receiver knows: no rings, no matching, no
 * checks, no deadline. Copies are weir's in both. */
#ifndef TOOLS_PERF_WINDOW_BODIES_H
#define TOOLS_PERF_WINDOW_BODIES_H

#include "tools/perf/window.h"

#define TAG 7u /* of messages to the first side of a rank; the next one is of its second side */
#define ACK 9u
#define FLAG 16u /* words between two flags */
#define ROOTS 4u /* of a thread at once */

/* ---- the rank's side of both ways ---------------------------------------------------------------------- */

/* A rank has up to two peers. By hand it has a flag from each, and counts what it has sent and seen. */
typedef struct rank_side {
    weir_dev_window_rank self;
    uint32_t peers[2];
    uint32_t sides[2]; /* which peer of the peer this rank is */
    char *data;        /* of this rank: found once, as each lookup loads from tables */
    uint64_t *flags;   /* the same */
    char *remote[2];   /* by hand: data and flags of the peers */
    uint64_t *theirs[2];
    uint64_t sent[2];
    uint64_t seen[2];
} rank_side;

/* Where a rank keeps its counts between launches. */
WEIR_FN uint64_t *counts_of(rank_side *side, uint32_t which) { return side->flags + (4 + which) * FLAG; }

WEIR_FN void begin_peer(const window_args *args, rank_side *side, uint32_t which, uint32_t peer, uint32_t theirs,
                        int by_hand)
{
    const weir_dev_window *window = &args->window;
    side->peers[which] = peer;
    side->sides[which] = theirs;
    if (by_hand) {
        side->remote[which] =
            weir_dev_window_address(window, peer / window->ranks, peer % window->ranks, args->data, 0);
        side->theirs[which] =
            (uint64_t *)weir_dev_window_address(window, peer / window->ranks, peer % window->ranks, args->flags, 0) +
            theirs * FLAG;
        side->sent[which] = counts_of(side, which)[0];
        side->seen[which] = counts_of(side, which)[1];
    }
}

WEIR_FN void begin_rank(const window_args *args, rank_side *side, uint32_t index)
{
    side->self = weir_dev_window_at(&args->window, index);
    side->data = (char *)weir_dev_window_pointer(&side->self, args->data);
    side->flags = (uint64_t *)weir_dev_window_pointer(&side->self, args->flags);
}

WEIR_FN void end_peer(rank_side *side, uint32_t which, int by_hand, weir_coop block)
{
    (void)weir_coop_sync(block);
    if (by_hand && block.rank == 0) {
        counts_of(side, which)[0] = side->sent[which];
        counts_of(side, which)[1] = side->seen[which];
    }
}

/* Whether the peer's memory belongs to this rank's device: flags then need a smaller scope. */
WEIR_FN int is_own(const rank_side *side, uint32_t which)
{
    const weir_dev_window *window = side->self.window;
    return weir_window_device_of(window, side->peers[which]) == window->device;
}

WEIR_FN weir_status send_by_hand(rank_side *side, uint32_t which, uint64_t to, uint64_t from, uint64_t bytes,
                                 weir_coop block)
{
    (void)weir_coop_sync(block);
    if (bytes != 0) {
        weir_copy(side->remote[which] + to, side->data + from, bytes, block);
        (void)weir_coop_sync(block);
    }
    side->sent[which]++;
    if (block.rank == 0) {
        if (is_own(side, which)) {
            weir_arch_store_release_dev_u64(side->theirs[which], side->sent[which]);
        } else {
            weir_arch_store_release_sys_u64(side->theirs[which], side->sent[which]);
        }
    }
    return WEIR_OK;
}

/* Ends with an error when the communicator has one, which only a wait of another kind or the host can cause. */
WEIR_FN weir_status wait_by_hand(rank_side *side, uint32_t which, uint32_t count, weir_coop block)
{
    const uint64_t *flag = side->flags + which * FLAG;
    weir_status status = WEIR_OK;
    side->seen[which] += count;
    if (block.rank == 0) {
        uint32_t reads = 0;
        while (weir_arch_load_relaxed_sys_u64(flag) < side->seen[which] && status == WEIR_OK) {
            weir_arch_relax(++reads);
            status = reads % 65536 == 0 ? weir_dev_control_status(side->self.window->barrier.control) : WEIR_OK;
        }
        weir_arch_acquire_loaded_sys_u64(flag);
    }
    return weir_coop_agree(block, side->self.window->barrier.control, status);
}

/* ---- messages ------------------------------------------------------------------------------------------ */

WEIR_FN uint64_t word_of(uint32_t source, uint32_t round, uint64_t index)
{
    uint64_t word = (index + 1) * 0x9e3779b97f4a7c15u + ((uint64_t)source << 32 | round) * 0xd1342543de82ef95u;
    return word ^ word >> 29;
}

/* Writes the data of a round. */
WEIR_FN void fill(const window_args *args, const rank_side *side, uint32_t round, weir_coop block)
{
    uint64_t *data = (uint64_t *)(void *)side->data;
    for (uint64_t i = block.rank; args->check != 0 && i < args->batch * args->bytes / 8; i += block.size) {
        data[i] = word_of(side->self.number, round, i);
    }
}

/* Where messages of a round from peer `which` arrive. */
WEIR_FN uint64_t place_of(const window_args *args, uint32_t which, uint32_t round)
{
    return args->region * (1 + which * 2 + round % 2);
}

/* Counts the words of a round from peer `which` that are wrong. */
WEIR_FN void compare(const window_args *args, const rank_side *side, uint32_t which, uint32_t round, weir_coop block)
{
    const uint64_t *data = (const uint64_t *)(const void *)(side->data + place_of(args, which, round));
    uint64_t wrong = 0;
    for (uint64_t i = block.rank; args->check != 0 && i < args->batch * args->bytes / 8; i += block.size) {
        wrong += data[i] != word_of(side->peers[which], round, i);
    }
    if (wrong != 0) {
        weir_arch_add_relaxed_sys_u64(args->wrong, wrong);
    }
}

WEIR_FN weir_status send(const window_args *args, rank_side *side, uint32_t which, uint32_t round, uint32_t message,
                         int by_hand, weir_coop block)
{
    const uint64_t from = message * args->bytes;
    const uint64_t to = place_of(args, side->sides[which], round) + from;
    return by_hand ? send_by_hand(side, which, to, from, args->bytes, block)
                   : weir_dev_window_put_notify(&side->self, side->peers[which], args->data, to, args->data, from,
                                                args->bytes, TAG + side->sides[which], block);
}

WEIR_FN weir_status receive(rank_side *side, uint32_t which, uint32_t count, int by_hand, weir_coop block)
{
    return by_hand ? wait_by_hand(side, which, count, block)
                   : weir_dev_window_wait(&side->self, side->peers[which], TAG + which, count, block);
}

/* Ranks of the two halves are pairs. */
WEIR_FN void begin_pair(const window_args *args, rank_side *side, uint32_t index, int by_hand)
{
    begin_rank(args, side, index);
    begin_peer(args, side, 0, (side->self.number + args->all / 2) % args->all, 0, by_hand);
}

/* ---- latency: a ping-pong ------------------------------------------------------------------------------ */

WEIR_FN void trip(const window_args *args, int by_hand, weir_coop block, uint32_t index)
{
    rank_side side;
    begin_pair(args, &side, index, by_hand);
    const int begins = side.self.number < args->all / 2;
    for (uint32_t i = 0; i < 2 * args->rounds; i++) {
        if ((i % 2 == 0) == begins) {
            fill(args, &side, i / 2, block);
            if (send(args, &side, 0, i / 2, 0, by_hand, block) != WEIR_OK) {
                return;
            }
        } else {
            if (receive(&side, 0, 1, by_hand, block) != WEIR_OK) {
                return;
            }
            compare(args, &side, 0, i / 2, block);
        }
    }
    end_peer(&side, 0, by_hand, block);
}

/* ---- bandwidth and rate: a batch of messages, then a wait for the peer's ------------------------------- */

WEIR_FN void stream(const window_args *args, int by_hand, weir_coop block, uint32_t index)
{
    rank_side side;
    begin_pair(args, &side, index, by_hand);
    const int sends = side.self.number < args->all / 2 || !args->one_way;
    const int receives = side.self.number >= args->all / 2 || !args->one_way;
    for (uint32_t i = 0; i < args->rounds; i++) {
        weir_status status = WEIR_OK;
        if (sends) {
            fill(args, &side, i, block);
        }
        for (uint32_t k = 0; sends && k < args->batch && status == WEIR_OK; k++) {
            status = send(args, &side, 0, i, k, by_hand, block);
        }
        if (sends && args->check != 0 && !by_hand && status == WEIR_OK) {
            status = weir_dev_window_flush(&side.self, side.peers[0], block); /* the next round fills the source */
        }
        if (receives && status == WEIR_OK) {
            status = receive(&side, 0, args->batch, by_hand, block);
        }
        if (receives && status == WEIR_OK) {
            compare(args, &side, 0, i, block);
        }
        /* One way: the receiver answers each batch. */
        if (args->one_way && receives && status == WEIR_OK) {
            status = by_hand ? send_by_hand(&side, 0, 0, 0, 0, block)
                             : weir_dev_window_notify(&side.self, side.peers[0], ACK, block);
        } else if (args->one_way && status == WEIR_OK) {
            status = by_hand ? wait_by_hand(&side, 0, 1, block)
                             : weir_dev_window_wait(&side.self, side.peers[0], ACK, 1, block);
        }
        if (status != WEIR_OK) {
            return;
        }
    }
    end_peer(&side, 0, by_hand, block);
}

/* ---- barrier ------------------------------------------------------------------------------------------- */

WEIR_FN void barriers(const window_args *args, weir_coop block)
{
    for (uint32_t i = 0; i < args->rounds; i++) {
        if (weir_dev_window_barrier(&args->window, block) != WEIR_OK) {
            return;
        }
    }
}

/* ---- overlap: a step of work, then messages to two neighbours ------------------------------------------ */

WEIR_FN void work(const window_args *args, const rank_side *side, weir_coop block)
{
    char *data = side->data + WINDOW_REGIONS * args->region;
    if (args->work == WINDOW_NEWTON) {
        /* Inverse square roots, several of a thread at once and without divisions: the work is then limited by the
         * number of instructions, not by their latency. */
        float root[ROOTS];
        float half[ROOTS];
        float sum = 0;
        for (uint32_t k = 0; k < ROOTS; k++) {
            half[k] = 0.5f * (float)(block.rank + 2 + k);
            root[k] = 1.0f / (float)(block.rank + 2 + k);
        }
        for (uint64_t i = 0; i < args->amount; i++) {
            for (uint32_t k = 0; k < ROOTS; k++) {
                root[k] = root[k] * (1.5f - half[k] * root[k] * root[k]);
            }
        }
        for (uint32_t k = 0; k < ROOTS; k++) {
            sum += root[k];
        }
        if (sum < 0) { /* never: the compiler must keep the iterations */
            ((float *)data)[block.rank] = sum;
        }
    } else if (args->work == WINDOW_COPY) {
        for (uint64_t left = args->amount; left != 0;) {
            const uint64_t bytes = left < WINDOW_COPIED ? left : WINDOW_COPIED;
            weir_copy(data + WINDOW_COPIED, data, bytes, block);
            left -= bytes;
        }
    }
}

WEIR_FN void steps(const window_args *args, int by_hand, weir_coop block)
{
    rank_side side;
    uint32_t index;
    if (weir_dev_window_index(&args->window, &index, block) != WEIR_OK) {
        return;
    }
    begin_rank(args, &side, index);
    begin_peer(args, &side, 0, (side.self.number + args->all - 1) % args->all, 1, by_hand);
    begin_peer(args, &side, 1, (side.self.number + 1) % args->all, 0, by_hand);
    for (uint32_t i = 0; i < args->rounds; i++) {
        work(args, &side, block);
        if (args->exchange == 0) {
            (void)weir_coop_sync(block);
            continue;
        }
        fill(args, &side, i, block);
        WEIR_UNROLL /* a rank_side with an index of its peers would lie in local memory */
            for (uint32_t which = 0; which < 2; which++)
        {
            if (send(args, &side, which, i, 0, by_hand, block) != WEIR_OK) {
                return;
            }
        }
        WEIR_UNROLL
        for (uint32_t which = 0; which < 2; which++) {
            if (receive(&side, which, 1, by_hand, block) != WEIR_OK) {
                return;
            }
            compare(args, &side, which, i, block);
        }
    }
    end_peer(&side, 0, by_hand, block);
    end_peer(&side, 1, by_hand, block);
}

#endif
