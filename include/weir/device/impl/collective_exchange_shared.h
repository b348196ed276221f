/* weir/device/impl/collective_exchange_shared.h - exchanges into registered memory, in which all blocks send.
 *
 * A block that receives into registered memory only waits. In the kernel of impl/collective_exchange_alone.h half of
 * the blocks may do so, and few others cannot fill the link. Here each block that receives helps one that sends: it
 * copies a part of each piece that goes into the peer's buffer. Blocks without a lane help, too.
 *
 * A helper waits for neither of its two tasks. It copies its part when the peer's offer is there, and takes a message
 * when that is there. So transfers still do not wait for each other. The block that sends a piece waits until all its
 * helpers have copied their parts, or have seen that the piece goes through slots. Before that it counts no message of
 * the piece, so a helper that begins late reads the same count.
 *
 * Each lane of the launch has one transfer, and no transfer is a small one or goes as lines. The ways of the data are
 * those of impl/collective_exchange.h, and the peer may use another kernel. */
#ifndef WEIR_DEVICE_IMPL_COLLECTIVE_EXCHANGE_SHARED_H
#define WEIR_DEVICE_IMPL_COLLECTIVE_EXCHANGE_SHARED_H

#include "weir/device/impl/collective_exchange_alone.h"

/* The blocks of the grid: `receivers`, then `senders`, then the rest. Helper h, among all blocks that do not send,
 * helps sender h % senders. */
typedef struct weir_exchange_crew {
    uint32_t receivers;
    uint32_t senders;
} weir_exchange_crew;

WEIR_FN weir_exchange_crew weir_exchange_crew_of(const weir_collective_exchange *x)
{
    weir_exchange_crew crew = { 0, 0 };
    WEIR_ROLLED
    for (uint32_t lane = 0; lane < x->lanes; lane++) {
        crew.receivers += x->lane[lane].receives != 0 ? x->posts : 0;
    }
    crew.senders = x->lanes * x->posts - crew.receivers;
    return crew;
}

WEIR_FN uint32_t weir_exchange_helpers(weir_exchange_crew crew, uint32_t sender, weir_coop coop)
{
    const uint32_t all = coop.blocks - crew.senders;
    return all / crew.senders + (sender < all % crew.senders);
}

/* The work of a block before its first piece, and the state of its lane. The launch has no rings. */
WEIR_FN weir_exchange_post weir_exchange_post_at(const weir_dev_collective *c, const weir_collective_exchange *x,
                                                 uint32_t block, weir_exchange_state *s)
{
    const weir_exchange_state fresh = { 0, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
    weir_exchange_post post = weir_exchange_post_of(x, block);
    *s = fresh;
    s->number = (uint32_t)weir_arch_load_relaxed_dev_u64(weir_exchange_number(c, NULL, &x->lane[post.lane]));
    post.start = weir_exchange_start_of(c, x, post.lane, s->number);
    post.column = x->columns; /* not one of them: the first piece finds it */
    return post;
}

/* Copies part `part` of `parts` of a piece into the buffer that the peer offers, by the block. */
WEIR_FN void weir_exchange_copy_part(const weir_dev_collective *c, const weir_collective_exchange *x,
                                     weir_exchange_post post, const weir_exchange_state *s, uint32_t part,
                                     uint32_t parts, weir_coop coop)
{
    const uint64_t range = weir_slots_range((uint64_t)s->left, parts);
    const int64_t bytes = weir_least((int64_t)range, weir_left((uint64_t)s->left, part * range));
    if (bytes > 0) {
        char *to = weir_exchange_offered(c, x, post.lane, post.column, s);
        weir_copy_deep(to + part * range, s->data + part * range, (uint64_t)bytes, weir_coop_block(coop));
    }
}

/* ---- a block that sends ----------------------------------------------------------------------------------------- */

/* Returns when `helpers` blocks have helped with the piece; called by one thread. */
WEIR_FN weir_status weir_exchange_await_helpers(const weir_dev_collective *c, uint32_t peer, uint32_t column,
                                                uint32_t helpers)
{
    uint64_t *helped = weir_message_helped(c, peer, column);
    weir_spin spin = weir_spin_begin();
    WEIR_ROLLED
    while (weir_arch_load_acquire_dev_u64(helped) != helpers) {
        const weir_status status = weir_spin_step(&spin, c->control);
        if (WEIR_UNLIKELY(status != WEIR_OK)) {
            return weir_collective_end_wait(c, peer, status);
        }
    }
    weir_arch_store_relaxed_dev_u64(helped, 0);
    return WEIR_OK;
}

/* Sends a piece. All threads of the block end together. */
WEIR_FN weir_status weir_exchange_send_piece(const weir_dev_collective *c, const weir_collective_exchange *x,
                                             weir_exchange_post post, weir_exchange_state *s, uint64_t *known,
                                             uint32_t helpers, weir_coop coop)
{
    const uint32_t peer = x->lane[post.lane].peer;
    const weir_exchange_bar bar = weir_exchange_bar_of(c, &x->lane[post.lane], post.column);
    weir_status status = WEIR_OK;
    if (coop.block_rank == 0) {
        status = weir_exchange_turn_to(c, x, post.lane, post.column, s, bar, known);
    }
    status = weir_coop_agree(weir_coop_block(coop), c->control, status);
    if (status != WEIR_OK) {
        return status;
    }
    weir_exchange_place_inside(c, x, post.lane, post.column, s);
    if (s->direct) {
        weir_exchange_copy_part(c, x, post, s, 0, helpers + 1, coop);
    }
    weir_arch_block_sync(coop.host);
    if (coop.block_rank == 0) {
        status = weir_exchange_await_helpers(c, peer, post.column, helpers);
        if (s->direct && status == WEIR_OK) {
            weir_exchange_announce(c, x, post.lane, post.column, s, 1);
        }
    }
    status = weir_coop_agree(weir_coop_block(coop), c->control, status);
    if (s->direct) {
        weir_exchange_pass(s, (uint64_t)s->left);
    } else if (status == WEIR_OK) {
        status = weir_exchange_pass_message(c, x, post.lane, post.column, s, coop);
    }
    return s->left > 0 && status == WEIR_OK
               ? weir_exchange_pass_piece(c, x, post.lane, post.column, s, bar, known, coop)
               : status;
}

/* Sends the pieces of the block's columns. */
WEIR_FN weir_status weir_exchange_send(const weir_dev_collective *c, const weir_collective_exchange *x,
                                       weir_exchange_post post, weir_exchange_state s, uint32_t helpers, weir_coop coop)
{
    uint64_t known = 0;
    weir_status status = WEIR_OK;
    WEIR_ROLLED
    while (status == WEIR_OK && weir_exchange_go_on(c, x, &post, &s, &known) != 0) {
        status = weir_exchange_send_piece(c, x, post, &s, &known, helpers, coop);
    }
    return status;
}

/* ---- a block that helps ----------------------------------------------------------------------------------------- */

/* The tasks of a helper, as bits: it takes the messages of its lane, and it helps a sender. */
#define WEIR_EXCHANGE_TAKES 1u
#define WEIR_EXCHANGE_HELPS 2u

/* A helper's two tasks. */
typedef struct weir_exchange_tasks {
    weir_exchange_post take; /* of its lane, if it has one */
    weir_exchange_post help; /* of the sender that it helps */
    uint32_t part;
    uint32_t parts;
    uint32_t open; /* tasks that have not ended */
} weir_exchange_tasks;

/* Looks once which tasks can go on; called by one thread. Opens the piece that the block receives. */
WEIR_FN uint32_t weir_exchange_look(const weir_dev_collective *c, const weir_collective_exchange *x,
                                    const weir_exchange_tasks *tasks, weir_exchange_state *take,
                                    const weir_exchange_state *help)
{
    uint32_t ready = 0;
    if ((tasks->open & WEIR_EXCHANGE_HELPS) != 0) {
        const weir_exchange_lane *lane = &x->lane[tasks->help.lane];
        ready |= weir_exchange_offer_there(c, lane, tasks->help.column, help->messages) ? WEIR_EXCHANGE_HELPS : 0u;
    }
    if ((tasks->open & WEIR_EXCHANGE_TAKES) != 0) {
        const weir_exchange_lane *lane = &x->lane[tasks->take.lane];
        if (!take->begun && !take->opened) {
            weir_exchange_open(c, x, tasks->take.lane, tasks->take.column, take);
            take->opened = 1;
        }
        const uint64_t *word = weir_exchange_word(c, NULL, lane, tasks->take.column);
        ready |= weir_arch_load_relaxed_sys_u64(word) > take->messages ? WEIR_EXCHANGE_TAKES : 0u;
    }
    return ready;
}

/* Returns when a task can go on; called by one thread. */
WEIR_FN weir_status weir_exchange_await_task(const weir_dev_collective *c, const weir_collective_exchange *x,
                                             const weir_exchange_tasks *tasks, weir_exchange_state *take,
                                             const weir_exchange_state *help, uint32_t *ready)
{
    weir_spin spin = weir_spin_begin();
    WEIR_ROLLED
    while ((*ready = weir_exchange_look(c, x, tasks, take, help)) == 0) {
        const int takes = (tasks->open & WEIR_EXCHANGE_TAKES) != 0;
        weir_status status = weir_spin_step(&spin, c->control);
        if (status == WEIR_OK && takes && spin.reads % WEIR_ARCH_SPIN_READS == 0) {
            status = WEIR_SLOW(
                weir_exchange_look_around(c, x, tasks->take.lane, tasks->take.column, weir_exchange_turn_of(take)));
        }
        if (WEIR_UNLIKELY(status != WEIR_OK)) {
            const uint32_t lane = takes ? tasks->take.lane : tasks->help.lane;
            return weir_collective_end_wait(c, x->lane[lane].peer, status);
        }
    }
    weir_arch_acquire_loaded_sys_u64(
        (*ready & WEIR_EXCHANGE_HELPS) != 0
            ? (const uint64_t *)weir_message_offer(c, c->rank, x->lane[tasks->help.lane].peer, tasks->help.column)
            : weir_exchange_word(c, NULL, &x->lane[tasks->take.lane], tasks->take.column));
    return WEIR_OK;
}

/* Copies the block's part of a piece whose offer is there, and counts it. */
WEIR_FN void weir_exchange_help_piece(const weir_dev_collective *c, const weir_collective_exchange *x,
                                      const weir_exchange_tasks *tasks, const weir_exchange_state *s, weir_coop coop)
{
    const weir_exchange_post post = tasks->help;
    if (weir_exchange_offered(c, x, post.lane, post.column, s) != NULL) {
        weir_exchange_copy_part(c, x, post, s, tasks->part, tasks->parts, coop);
    }
    weir_arch_block_sync(coop.host);
    if (coop.block_rank == 0) {
        (void)weir_arch_fetch_add_acq_rel_dev_u64(weir_message_helped(c, x->lane[post.lane].peer, post.column), 1);
    }
}

/* Carries out both tasks. */
WEIR_FN weir_status weir_exchange_help(const weir_dev_collective *c, const weir_collective_exchange *x,
                                       weir_exchange_tasks tasks, weir_exchange_state take, weir_exchange_state help,
                                       weir_coop coop)
{
    uint64_t known = 0;
    tasks.open = weir_exchange_go_on(c, x, &tasks.help, &help, &known) != 0 ? WEIR_EXCHANGE_HELPS : 0u;
    if (!tasks.take.idle && weir_exchange_go_on(c, x, &tasks.take, &take, &known) != 0) {
        tasks.open |= WEIR_EXCHANGE_TAKES;
    }
    while (tasks.open != 0) {
        uint32_t ready = 0;
        weir_status status = WEIR_OK;
        if (coop.block_rank == 0) {
            status = weir_exchange_await_task(c, x, &tasks, &take, &help, &ready);
        }
        status = weir_coop_agree(weir_coop_block(coop), c->control, status);
        if (status != WEIR_OK) {
            return status;
        }
        if (weir_arch_block_or(coop.host, ready & WEIR_EXCHANGE_HELPS) != 0) {
            weir_exchange_help_piece(c, x, &tasks, &help, coop);
            help.left = 0;
            help.messages++;
            tasks.open -= weir_exchange_go_on(c, x, &tasks.help, &help, &known) != 0 ? 0 : WEIR_EXCHANGE_HELPS;
            continue;
        }
        if (!take.begun) {
            weir_exchange_place_inside(c, x, tasks.take.lane, tasks.take.column, &take);
        }
        status = weir_exchange_pass_message(c, x, tasks.take.lane, tasks.take.column, &take, coop);
        if (status != WEIR_OK) {
            return status;
        }
        tasks.open -= weir_exchange_go_on(c, x, &tasks.take, &take, &known) != 0 ? 0 : WEIR_EXCHANGE_TAKES;
    }
    return WEIR_OK;
}

/* ---- the exchange ----------------------------------------------------------------------------------------------- */

/* An exchange inside a host of transfers that are neither small nor lines, one in each lane, at least one of them a
 * send. */
WEIR_FN weir_status weir_collective_exchange_shared(const weir_dev_collective *c, const weir_collective_exchange *x,
                                                    weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    const weir_status begun = weir_slots_begin(c, coop); /* nothing is read before: the memory may be gone */
    if (begun != WEIR_OK) {
        return weir_slots_end(c, begun);
    }
    const weir_exchange_crew crew = weir_exchange_crew_of(x);
    weir_exchange_state own;
    weir_exchange_state s; /* of the sender's lane */
    const weir_exchange_post post = weir_exchange_post_at(c, x, coop.block, &own);
    const int sends = !post.idle && x->lane[post.lane].receives == 0;
    const uint32_t helper = coop.block < crew.receivers ? coop.block : coop.block - crew.senders;
    const uint32_t sender = sends ? coop.block - crew.receivers : helper % crew.senders;
    const weir_exchange_post help = weir_exchange_post_at(c, x, crew.receivers + sender, &s);
    const uint32_t helpers = weir_exchange_helpers(crew, sender, coop);
    weir_status status;
    weir_arch_block_sync(coop.host); /* all have read the counts */
    weir_exchange_count_launch(c, NULL, x, weir_lined_counter(coop), coop);
    if (sends) {
        status = weir_exchange_send(c, x, help, s, helpers, coop);
    } else {
        const weir_exchange_tasks tasks = { post, help, 1 + helper / crew.senders, 1 + helpers, 0 };
        status = weir_exchange_help(c, x, tasks, own, s, coop);
    }
    if (status == WEIR_OK) {
        weir_exchange_copy(x, coop);
    }
    return weir_slots_end(c, status);
}

#endif
