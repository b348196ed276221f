/* weir/device/impl/collective_exchange_alone.h - exchanges inside a host in which each block serves one lane at a time.
 *
 * The ways of the data are those of impl/collective_exchange.h, and the peer may use another kernel. A small transfer
 * takes little longer than the way over the link. So a block has its lane's numbers in registers, and loads them at
 * once. There are three kernels: one for transfers that go as packets or lines, with a block for each column and each
 * ring; one for lanes with several small transfers; and one for all others. With the code of all, the first would keep
 * registers in memory. */
#ifndef WEIR_DEVICE_IMPL_COLLECTIVE_EXCHANGE_ALONE_H
#define WEIR_DEVICE_IMPL_COLLECTIVE_EXCHANGE_ALONE_H

#include "weir/device/impl/collective_exchange.h"

/* The word that the lane waits for, and the number that the word must exceed. A lane that sends into the first slots
 * does not wait. */
typedef struct weir_exchange_bar {
    const uint64_t *word;
    uint64_t slots; /* of a lane that sends */
} weir_exchange_bar;

WEIR_FN weir_exchange_bar weir_exchange_bar_of(const weir_dev_collective *c, const weir_exchange_lane *lane,
                                               uint32_t column)
{
    weir_exchange_bar bar;
    const int ring = column == WEIR_EXCHANGE_RING;
    bar.word = ring ? weir_ring_taken(c, c->rank, lane->peer) : weir_exchange_word(c, NULL, lane, column);
    bar.slots = lane->receives != 0 ? 0 : ring ? weir_ring_turn(c->ring_units) + 1 : 2;
    return bar;
}

/* The slow part of a wait; called by one thread. */
WEIR_FN_COLD weir_status weir_exchange_spin(const weir_dev_collective *c, const weir_collective_exchange *x,
                                            uint32_t lane, uint32_t column, weir_exchange_state s,
                                            weir_exchange_bar bar)
{
    weir_arch_no_kernel();
    const weir_exchange_lane *l = &x->lane[lane];
    weir_spin spin = weir_spin_begin();
    while (weir_arch_load_relaxed_sys_u64(bar.word) + bar.slots <= s.messages ||
           weir_exchange_lacks_slots(c, x, lane, s.is_long)) {
        weir_status status = weir_spin_step(&spin, c->control);
        if (status == WEIR_OK && l->receives != 0 && spin.reads % WEIR_ARCH_SPIN_READS == 0) {
            status = weir_exchange_look_around(c, x, lane, column, weir_exchange_turn_of(&s));
        } else if (spin.reads % WEIR_ARCH_SPIN_READS == 0 && weir_exchange_lacks_slots(c, x, lane, s.is_long)) {
            weir_exchange_tell(c, x, lane, column, weir_exchange_turn_of(&s), s.messages);
        }
        if (WEIR_UNLIKELY(status != WEIR_OK)) {
            return weir_collective_end_wait(c, l->peer, status);
        }
    }
    return WEIR_OK;
}

/* Returns when a message has come, or a slot is free; called by one thread. It is no acquire. *known is a value that
 * the word has had. `turn` grows from wait to wait; weir_spin_is_due chooses by it which of them look for an error.
 * Before the first message for a peer's long slots it also waits for these. */
WEIR_FN weir_status weir_exchange_await(const weir_dev_collective *c, const weir_collective_exchange *x, uint32_t lane,
                                        uint32_t column, weir_exchange_state s, weir_exchange_bar bar, uint64_t turn,
                                        uint64_t *known)
{
    uint32_t reads = WEIR_ARCH_FAST_READS;
    const int lacks = column != WEIR_EXCHANGE_RING && weir_exchange_lacks_slots(c, x, lane, s.is_long);
    int is_slow = weir_spin_is_due(turn) | lacks;
    WEIR_ROLLED
    while ((*known + bar.slots <= s.messages) & !is_slow) {
        *known = weir_arch_load_relaxed_sys_u64(bar.word);
        is_slow = weir_spin_is_long(&reads);
    }
    if (WEIR_UNLIKELY(is_slow)) {
        const weir_status status = weir_spin_look_once(c->control);
        return status == WEIR_OK ? WEIR_SLOW(weir_exchange_spin(c, x, lane, column, s, bar)) : status;
    }
    return WEIR_OK;
}

/* The slow part of a sender's wait for an offer; called by one thread. */
WEIR_FN_COLD weir_status weir_exchange_spin_for_offer(const weir_dev_collective *c, const weir_exchange_lane *lane,
                                                      uint32_t column, uint64_t message)
{
    weir_arch_no_kernel();
    weir_spin spin = weir_spin_begin();
    while (!weir_exchange_offer_there(c, lane, column, message)) {
        const weir_status status = weir_spin_step(&spin, c->control);
        if (WEIR_UNLIKELY(status != WEIR_OK)) {
            return weir_collective_end_wait(c, lane->peer, status);
        }
    }
    return WEIR_OK;
}

/* Returns when the receiver's offer has come; called by one thread. */
WEIR_FN weir_status weir_exchange_await_offer(const weir_dev_collective *c, const weir_exchange_lane *lane,
                                              uint32_t column, uint64_t message)
{
    uint32_t reads = WEIR_ARCH_FAST_READS;
    weir_status status = WEIR_OK;
    WEIR_ROLLED
    while (!weir_exchange_offer_there(c, lane, column, message)) {
        if (weir_spin_is_long(&reads)) {
            status = WEIR_SLOW(weir_exchange_spin_for_offer(c, lane, column, message));
            break;
        }
    }
    weir_arch_acquire_loaded_sys_u64((const uint64_t *)weir_message_offer(c, c->rank, lane->peer, column));
    return status;
}

/* Before the next message of a piece: opens the piece, and waits for a message or for a free slot; called by one
 * thread.
 */
WEIR_FN weir_status weir_exchange_turn_to(const weir_dev_collective *c, const weir_collective_exchange *x,
                                          uint32_t lane, uint32_t column, const weir_exchange_state *s,
                                          weir_exchange_bar bar, uint64_t *known)
{
    const weir_exchange_lane *l = &x->lane[lane];
    const int opens = !s->begun && x->lined != 0;
    if (opens && l->receives) {
        weir_exchange_open(c, x, lane, column, s);
    }
    weir_status status = weir_exchange_await(c, x, lane, column, *s, bar, s->messages, known);
    weir_arch_acquire_loaded_sys_u64(bar.word);
    if (opens && !l->receives && status == WEIR_OK) {
        weir_exchange_open(c, x, lane, column, s);
        status = weir_exchange_await_offer(c, l, column, s->messages);
    }
    return status;
}

/* Passes a message that has come, or goes into a slot that is free, of a piece whose ends agree on its way, or that
 * goes by signals. All threads of the block end together. */
WEIR_FN weir_status weir_exchange_pass_message(const weir_dev_collective *c, const weir_collective_exchange *x,
                                               uint32_t lane, uint32_t column, weir_exchange_state *s, weir_coop coop)
{
    const uint64_t bytes = weir_exchange_message_bytes(s);
    const weir_status status = s->lined != 0 ? weir_lined_pass(c, x, lane, column, s, bytes, coop)
                               : x->lane[lane].receives != 0
                                   ? weir_exchange_take(c, NULL, x, lane, column, s, bytes, 1, coop)
                                   : weir_exchange_put(c, NULL, x, lane, column, s, bytes, 1, coop);
    weir_exchange_pass(s, bytes);
    return weir_coop_agree(weir_coop_block(coop), c->control, status);
}

/* Passes such a piece. All threads of the block end together. Not inlined, it would cost short transfers 0.5 us. */
WEIR_FN weir_status weir_exchange_pass_piece(const weir_dev_collective *c, const weir_collective_exchange *x,
                                             uint32_t lane, uint32_t column, weir_exchange_state *s,
                                             weir_exchange_bar bar, uint64_t *known, weir_coop coop)
{
    weir_status status = WEIR_OK;
    do {
        if (coop.block_rank == 0) {
            status = weir_exchange_turn_to(c, x, lane, column, s, bar, known);
        }
        status = weir_coop_agree(weir_coop_block(coop), c->control, status);
        if (status != WEIR_OK) {
            return status;
        }
        if (!s->begun) {
            weir_exchange_place_inside(c, x, lane, column, s);
        }
        status = weir_exchange_pass_message(c, x, lane, column, s, coop);
    } while (s->left > 0 && status == WEIR_OK);
    return status;
}

/* The work of a block: a lane and its columns `first`, `first` + x->posts and so on, or the rings of some lanes. */
typedef struct weir_exchange_post {
    uint32_t lane;
    uint32_t first;
    uint32_t column;           /* of the piece that has its turn, or the ring */
    uint32_t piece;            /* the first piece of the transfer that may have the next turn */
    weir_exchange_start start; /* of that transfer */
    int idle;
} weir_exchange_post;

/* Whether a block with rings has its last lane. */
WEIR_FN int weir_exchange_is_last(const weir_collective_exchange *x, weir_exchange_post post)
{
    return post.column != WEIR_EXCHANGE_RING || post.lane < x->rings;
}

/* The first piece from post->piece on in one of the block's columns, of a transfer that begins in column `first`. The
 * transfer may have fewer pieces. Returns UINT32_MAX if the block has no column left. */
WEIR_FN uint32_t weir_exchange_piece_of(const weir_collective_exchange *x, const weir_exchange_post *post,
                                        uint32_t first)
{
    uint32_t next = UINT32_MAX;
    WEIR_ROLLED
    for (uint32_t column = post->first; column < x->columns; column += x->posts) {
        const uint32_t piece = column >= first ? column - first : column + x->columns - first;
        next = piece >= post->piece && piece < next ? piece : next;
    }
    return next;
}

/* Finds the next piece in the block's columns: of the transfers in their order, and of a transfer in the order of its
 * pieces. The peer's blocks take them in the same order, also if its launches divide the transfers in another way. So
 * the first piece that has not passed can always go on. Returns 0 at the end. */
WEIR_FN uint32_t weir_exchange_find_piece(const weir_collective_exchange *x, weir_exchange_post *post,
                                          weir_exchange_state *s)
{
    const weir_exchange_lane *lane = &x->lane[post->lane];
    s->begun = 0;
    s->opened = 0;
    WEIR_ROLLED
    for (; s->next < lane->count; s->next++) {
        const uint32_t piece = weir_exchange_piece_of(x, post, post->start.column);
        if (piece < lane->most) {
            const weir_exchange_transfer *t = &x->transfers[lane->first + s->next];
            const uint64_t bytes = weir_exchange_bytes(t);
            if (!weir_exchange_is_small(x, post->lane, bytes) && weir_exchange_cut(x, t, bytes, piece, x->columns, s)) {
                const uint32_t column = post->start.column + piece;
                post->column = column >= x->columns ? column - x->columns : column;
                post->piece = piece + 1;
                return 1;
            }
        }
        post->piece = 0;
        post->start = weir_exchange_start_after(post->start, x->step, x->columns);
    }
    return 0;
}

/* Reads the counts of the block's lane in its column. Returns a value that the word that the lane waits for has had. */
WEIR_FN uint64_t weir_exchange_read(const weir_dev_collective *c, const weir_collective_exchange *x,
                                    weir_exchange_post post, weir_exchange_state *s)
{
    const weir_exchange_lane *lane = &x->lane[post.lane];
    s->messages = weir_arch_load_relaxed_dev_u64(weir_exchange_messages(c, NULL, lane, post.column));
    return post.column == WEIR_EXCHANGE_RING
               ? weir_arch_load_relaxed_dev_u64(weir_exchange_counts(c, lane) + WEIR_LANE_TAKEN)
               : weir_arch_load_relaxed_sys_u64(weir_exchange_word(c, NULL, lane, post.column));
}

/* Keeps what a block has read of the word of weir_ring_taken. The next launch may then not have to look whether a slot
 * is free. */
WEIR_FN void weir_exchange_keep_taken(const weir_dev_collective *c, const weir_exchange_lane *lane, uint64_t known)
{
    weir_arch_store_relaxed_dev_u64(weir_exchange_counts(c, lane) + WEIR_LANE_TAKEN, known);
}

/* Finds the next piece or small transfer when all of the one before has passed. Reads the counts if it has another
 * column or lane. Returns 0 at the end. */
WEIR_FN uint32_t weir_exchange_go_on(const weir_dev_collective *c, const weir_collective_exchange *x,
                                     weir_exchange_post *post, weir_exchange_state *s, uint64_t *known)
{
    const uint32_t column = post->column;
    if (s->left > 0) {
        return 1;
    }
    if (column != WEIR_EXCHANGE_RING) {
        const uint32_t open = weir_exchange_find_piece(x, post, s);
        *known = open != 0 && post->column != column ? weir_exchange_read(c, x, *post, s) : *known;
        return open;
    }
    WEIR_ROLLED
    while (weir_exchange_find(c, x, post->lane, column, s) == 0) {
        if (weir_exchange_is_last(x, *post)) {
            return 0;
        }
        post->lane -= x->rings;
        s->next = 0;
        s->number = (uint32_t)weir_arch_load_relaxed_dev_u64(weir_exchange_number(c, NULL, &x->lane[post->lane]));
        *known = weir_exchange_read(c, x, *post, s);
    }
    return 1;
}

/* Finds the next piece of the column, or the next small transfer, from transfer `next` on. The block has no other
 * column. Returns 0 at the end. */
WEIR_FN uint32_t weir_exchange_find_brief(const weir_collective_exchange *x, weir_exchange_post *post,
                                          weir_exchange_state *s)
{
    s->begun = 0;
    s->opened = 0;
    return post->column == WEIR_EXCHANGE_RING
               ? weir_exchange_find_small(x, post->lane, s)
               : weir_exchange_find_in_column(x, post->lane, post->column, &post->start, s);
}

/* The same when all of the one before has passed. */
WEIR_FN uint32_t weir_exchange_find_next_brief(const weir_collective_exchange *x, weir_exchange_post *post,
                                               weir_exchange_state *s)
{
    if (s->left > 0) {
        return 1;
    }
    if (x->lane[post->lane].count == 1) {
        return 0;
    }
    s->next++;
    post->start = weir_exchange_start_after(post->start, x->step, x->columns);
    return weir_exchange_find_brief(x, post, s);
}

/* Finds the block's part of the lane's only transfer: the piece with the block's number, or a small transfer. It needs
 * nothing but the launch's arguments. Begins to fetch the data of a part that is sent, a cache line for each thread.
 * Returns 0 if there is no part. */
WEIR_FN uint32_t weir_exchange_find_only(const weir_collective_exchange *x, const weir_exchange_post *post,
                                         weir_exchange_state *s, weir_coop coop)
{
    const weir_exchange_lane *lane = &x->lane[post->lane];
    const weir_exchange_transfer *t = &x->transfers[lane->first];
    const uint64_t bytes = weir_exchange_bytes(t);
    const int ring = post->column == WEIR_EXCHANGE_RING;
    if (ring != weir_exchange_is_small(x, post->lane, bytes)) {
        return 0;
    }
    if (ring) {
        s->data = t->data;
        s->left = (int64_t)bytes;
    } else if (!weir_exchange_cut(x, t, bytes, post->first, x->columns, s)) {
        return 0;
    }
    const int64_t at = (int64_t)coop.block_rank * WEIR_LINE_BYTES;
    if (!lane->receives && at < s->left) {
        weir_arch_prefetch(s->data + at);
    }
    return 1;
}

/* Carries out the transfers of the lane in the block's columns, or those of its lanes in their rings. All threads of
 * the block end together. With `counts` the block counts the launch behind the first message of its last lane. Before
 * it, the thread that counts would fall behind its warp, and store its part of a line later than the other lanes.
 * `brief`, a constant: the block has one lane and one column or ring, and all transfers go as packets or lines. Then
 * `open` says whether the block has a piece or a small transfer, and `s` describes it. */
WEIR_FN weir_status weir_exchange_serve(const weir_dev_collective *c, const weir_collective_exchange *x,
                                        weir_exchange_post post, weir_exchange_state s, uint32_t open, uint64_t known,
                                        int counts, int brief, weir_coop coop)
{
    weir_exchange_bar bar = weir_exchange_bar_of(c, &x->lane[post.lane], post.column);
    weir_status status = WEIR_OK;
    WEIR_ROLLED
    while (open != 0 && (brief || status == WEIR_OK)) {
        if (!brief) {
            open = weir_exchange_go_on(c, x, &post, &s, &known);
            bar = weir_exchange_bar_of(c, &x->lane[post.lane], post.column);
        }
        if (open == 0) {
            break;
        }
        const uint32_t lane = post.lane;
        const uint32_t column = post.column;
        const int ring = column == WEIR_EXCHANGE_RING;
        const uint32_t transfer = x->lane[lane].first + (uint32_t)s.next;
        if (!brief && WEIR_UNLIKELY(!ring && !weir_exchange_is_lined(x, transfer))) {
            status = weir_exchange_pass_piece(c, x, lane, column, &s, bar, &known, coop);
        } else {
            /* All threads of a receiver wait for packets or lines by themselves. What it has taken it has read: a
             * sender needs no acquire. */
            if (coop.block_rank == 0 && !x->lane[lane].receives) {
                const uint64_t turn = ring ? weir_exchange_turn_of(&s).number : s.messages;
                status = weir_exchange_await(c, x, lane, column, s, bar, turn, &known);
                if (!brief && ring) {
                    weir_exchange_keep_taken(c, &x->lane[lane], known);
                }
            }
            status = weir_coop_agree(weir_coop_block(coop), c->control, status);
            if (status != WEIR_OK) {
                return status;
            }
            if (ring) {
                status = weir_ring_pass(c, x, lane, &s, coop);
            } else {
                const uint64_t bytes = (uint64_t)weir_least(s.left, (int64_t)weir_lined_room(x, s.is_long));
                status = weir_lined_pass(c, x, lane, column, &s, bytes, coop);
                weir_exchange_pass(&s, bytes);
            }
        }
        if (brief) {
            open = weir_exchange_find_next_brief(x, &post, &s);
        } else {
            s.next += ring;
        }
        if (counts && (brief || weir_exchange_is_last(x, post))) {
            weir_exchange_count_launch(c, NULL, x, weir_lined_counter(coop), coop);
            counts = 0;
        }
        if (!brief) {
            status = weir_coop_agree(weir_coop_block(coop), c->control, status);
        }
    }
    if (brief) {
        status = weir_coop_agree(weir_coop_block(coop), c->control, status);
    }
    if (brief && post.column == WEIR_EXCHANGE_RING && coop.block_rank == 0 && !x->lane[post.lane].receives) {
        weir_exchange_keep_taken(c, &x->lane[post.lane], known);
    }
    if (counts && status == WEIR_OK) {
        weir_exchange_count_launch(c, NULL, x, weir_lined_counter(coop), coop);
    }
    return status;
}

/* Small transfers that a block passes at once: transfers of a lane that follow each other, each by `threads` threads of
 * the block. */
typedef struct weir_ring_batch {
    uint32_t count;
    uint32_t threads;
    uint32_t mine;           /* the calling thread's one, if it is less than `count` */
    weir_exchange_state own; /* describes it */
    uint64_t end;            /* the unit behind the batch */
    uint32_t turn;           /* one of its transfers: if there is one whose wait looks for an error, that one */
} weir_ring_batch;

/* The next batch of the lane, from transfer s->next on, which is small. In a lane with long transfers it is one: the
 * receiver of a long one finds in the ring what the sender takes for small, as long as those before it were taken. */
WEIR_FN weir_ring_batch weir_ring_batch_of(const weir_dev_collective *c, const weir_collective_exchange *x,
                                           uint32_t lane, const weir_exchange_state *s, weir_coop coop)
{
    const weir_exchange_lane *l = &x->lane[lane];
    const weir_exchange_transfer *transfers = x->transfers + l->first + s->next;
    const uint8_t *units = x->notes + l->first + s->next;
    const uint32_t warp = weir_arch_warp_size();
    const uint32_t warps = coop.block_size / warp / x->together;
    const uint32_t left = l->most == 0 ? l->count - (uint32_t)s->next : 1;
    weir_ring_batch batch;
    batch.threads = (warps == 0 ? 1 : warps) * warp;
    batch.count = (uint32_t)weir_least(weir_least(x->together, coop.block_size / batch.threads), left);
    batch.mine = coop.block_rank / batch.threads;
    batch.own = *s;
    if (batch.mine < batch.count) {
        batch.own.messages = s->messages + (uint8_t)(units[batch.mine] - units[0]);
        batch.own.data = transfers[batch.mine].data;
        batch.own.left = (int64_t)weir_exchange_bytes(&transfers[batch.mine]);
        batch.own.next = (uint16_t)(s->next + batch.mine);
    }
    const uint32_t number = weir_exchange_turn_of(s).number;
    const uint32_t looks = (number + batch.count) & ~(WEIR_ARCH_LOOK_WAITS - 1u);
    batch.turn = looks > number ? looks - 1 : number;
    batch.end = s->messages + (uint8_t)(units[batch.count - 1] - units[0]) +
                weir_ring_units(c, weir_exchange_bytes(&transfers[batch.count - 1]));
    return batch;
}

/* Carries out the small transfers of a lane, several at once. All threads of the block end together. With `counts` the
 * block counts the launch behind its first batch. */
WEIR_FN weir_status weir_ring_serve(const weir_dev_collective *c, const weir_collective_exchange *x, uint32_t lane,
                                    weir_exchange_state s, uint64_t known, int counts, weir_coop coop)
{
    const weir_exchange_lane *l = &x->lane[lane];
    const weir_exchange_bar bar = weir_exchange_bar_of(c, l, WEIR_EXCHANGE_RING);
    weir_status status = WEIR_OK;
    WEIR_ROLLED
    while (status == WEIR_OK && weir_exchange_find_small(x, lane, &s) != 0) {
        const weir_ring_batch batch = weir_ring_batch_of(c, x, lane, &s, coop);
        if (coop.block_rank == 0 && !l->receives) {
            status = weir_exchange_await(c, x, lane, WEIR_EXCHANGE_RING, s, bar, batch.turn, &known);
        }
        status = weir_coop_agree(weir_coop_block(coop), c->control, status);
        if (status != WEIR_OK) {
            return status;
        }
        weir_coop part = coop;
        part.block_rank = coop.block_rank % batch.threads;
        part.block_size = batch.threads;
        if (batch.mine < batch.count && l->receives) {
            status = weir_ring_read(c, x, lane, &batch.own, part);
        } else if (batch.mine < batch.count) {
            weir_ring_write(c, x, lane, &batch.own, part);
        }
        weir_ring_count(c, l, batch.end, status, coop.block_rank == 0, coop);
        s.messages = batch.end;
        s.next = (uint16_t)(s.next + batch.count);
        if (counts) {
            weir_exchange_count_launch(c, NULL, x, weir_lined_counter(coop), coop);
            counts = 0;
        }
        status = weir_coop_agree(weir_coop_block(coop), c->control, status);
    }
    if (coop.block_rank == 0 && !l->receives) {
        weir_exchange_keep_taken(c, l, known);
    }
    if (counts && status == WEIR_OK) {
        weir_exchange_count_launch(c, NULL, x, weir_lined_counter(coop), coop);
    }
    return status;
}

/* The first blocks have the rings of the lanes. A block with several of them sends before it receives: lanes that send
 * come last. Behind these blocks come the blocks of the first lane, then those of the next. Blocks of one lane in turn
 * with those of another would put the senders into half of a GPU's clusters: with 24 blocks of an H200, 256 MiB into
 * registered memory took 896 us so, and take 749. */
WEIR_FN weir_exchange_post weir_exchange_post_of(const weir_collective_exchange *x, uint32_t block)
{
    weir_exchange_post post;
    const int ring = block < x->rings;
    const uint32_t rest = block - x->rings;
    const uint32_t lane = ring ? x->lanes - 1 - block : rest / x->posts;
    post.idle = lane >= x->lanes;
    post.lane = post.idle ? 0 : lane;
    post.first = rest % x->posts;
    post.column = ring ? WEIR_EXCHANGE_RING : post.first;
    post.piece = 0;
    post.start.number = 0;
    post.start.column = 0;
    return post;
}

/* An exchange inside a host, in which each block has one lane, or the rings of several. `brief` and `together`,
 * constants: see weir_collective_exchange_brief and weir_collective_exchange_together. */
WEIR_FN weir_status weir_exchange_run_alone(const weir_dev_collective *c, const weir_collective_exchange *x, int brief,
                                            int together, weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    weir_exchange_post post = weir_exchange_post_of(x, coop.block);
    const weir_exchange_lane *lane = &x->lane[post.lane];
    const int ring = post.column == WEIR_EXCHANGE_RING;
    weir_exchange_state s = { 0, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
    uint64_t known = 0;
    uint32_t open = 1;
    const int only = brief && !post.idle && lane->count == 1;
    const weir_slots_state state = weir_slots_look(c);
    if (!post.idle) {
        s.number = (uint32_t)weir_arch_load_relaxed_dev_u64(weir_exchange_number(c, NULL, lane));
        known = ring ? weir_exchange_read(c, x, post, &s) : 0;
    }
    if (only) {
        open = weir_exchange_find_only(x, &post, &s, coop);
    }
    const weir_status begun = weir_slots_check(c, &state, coop); /* now all have read the number */
    if (begun != WEIR_OK) {
        return weir_slots_end(c, begun);
    }
    if (!post.idle && !ring) {
        post.start = weir_exchange_start_of(c, x, post.lane, s.number);
        if (only) { /* there may be no more blocks than pieces */
            const uint32_t column = post.column + post.start.column;
            post.column = column >= x->columns ? column - x->columns : column;
        }
        if (brief) {
            known = weir_exchange_read(c, x, post, &s);
        } else {
            post.column = x->columns; /* not one of them: the first piece finds it */
        }
    }
    weir_status status = WEIR_OK;
    /* A block that receives counts while its data is on the way to it, and one that sends when its data is on the way
     * to the peer. */
    const int later = !post.idle && (lane->receives == 0 || (!brief && !weir_exchange_is_last(x, post)));
    if (x->lanes != 0 && !later) {
        weir_exchange_count_launch(c, NULL, x, weir_lined_counter(coop), coop);
    }
    if (together && !post.idle && ring) {
        status = weir_ring_serve(c, x, post.lane, s, known, later, coop);
    } else if (!post.idle) {
        open = brief && !only ? weir_exchange_find_brief(x, &post, &s) : open;
        status = weir_exchange_serve(c, x, post, s, open, known, later, brief, coop);
    }
    if (status == WEIR_OK) {
        weir_exchange_copy(x, coop);
    }
    return weir_slots_end(c, status);
}

/* Each block has some columns of a lane, or the rings of some lanes. */
WEIR_FN weir_status weir_collective_exchange_alone(const weir_dev_collective *c, const weir_collective_exchange *x,
                                                   weir_coop coop)
{
    return weir_exchange_run_alone(c, x, 0, 0, coop);
}

/* Each block has some columns of a lane, or the ring of one, and passes up to x->together small transfers at once. With
 * this code too, the kernel of blocks with the rings of several lanes would take 0.3 us longer. */
WEIR_FN weir_status weir_collective_exchange_together(const weir_dev_collective *c, const weir_collective_exchange *x,
                                                      weir_coop coop)
{
    return weir_exchange_run_alone(c, x, 0, 1, coop);
}

/* Each block has one column or one ring, whose transfers it passes one at a time, and all go as packets or lines. */
WEIR_FN weir_status weir_collective_exchange_brief(const weir_dev_collective *c, const weir_collective_exchange *x,
                                                   weir_coop coop)
{
    return weir_exchange_run_alone(c, x, 1, 0, coop);
}

#endif
