/* weir/device/impl/collective_exchange.h - transfers between pairs of ranks: exchange, send and recv.
 *
 * A lane is all that a rank sends to one peer, or receives from it, in the order of its calls. Each lane has `columns`
 * columns, and each column has two message slots in the receiver's memory, with a semaphore each way. A transfer is
 * cut into pieces of at least WEIR_EXCHANGE_PIECE bytes. They go into different columns, from a first column on that
 * follows from the number of the transfer. Both ends know it without an agreement. The first columns of transfers that
 * follow each other are a few columns apart, so the pieces of short transfers spread over all columns.
 *
 * A small transfer goes through the lane's ring, as packets: it needs no signal and no fence. It takes as many units of
 * the ring as its bytes need. The receiver stores how many units it has taken into the sender's memory. Which transfers
 * take the ring, and how much of it, follows from their bytes alone, so both ends agree. A block may pass transfers of
 * up to half of the units at once. A sender begins when half of the ring is free. So a receiver may wait for all that
 * it takes at once: no sender waits for it meanwhile.
 *
 * If the links keep lines, slots begin with a part for lines: messages are lines behind the sender's call as packets.
 * Their flags are the message's number, so the receiver waits for neither a fence nor the signal, which only counts and
 * orders nothing. No other data may go there, because it could look like a flag. A short slot has no other part. A
 * transfer that takes up to WEIR_LINED_MESSAGES messages in each column goes as lines. Longer ones use the other part,
 * where the signal follows the data.
 *
 * With the default staging a transfer of more than one message in a column takes long slots, in a memory that the
 * receiver allocates at its first receive of this kind. Which transfers do so follows from their bytes alone. A
 * sender's kernel waits until its host has mapped that memory. Semaphores stay in the collective's memory. A slot is
 * free when the messages before it have been taken, in whichever memory they were.
 *
 * Before a piece that is not for lines, its ends agree on the way. The sender writes its call as packets, and the
 * receiver offers the place of its buffer in registered memory, or none. If it offers one, the sender stores the whole
 * piece there as one message. A receiver that was recorded before the registration offers none, and a sender that was
 * recorded before it takes none: the call behind the data says which way the sender took. Where links keep no lines
 * there are no offers. Memory that senders have mapped for a recorded receive counts as registered here.
 *
 * Between hosts a lane has its own columns and slots, in the memories of the rails. The sender copies a message into a
 * slot of its own memory. Its rail moves it into the memory of the rank of the same place on the receiver's host, and
 * the message's number behind it. The receiver, which maps that memory, takes the message from there. Over its own
 * rail it says to the sender's host which messages it has taken. So no rank but the two takes part.
 *
 * A block serves one column of several lanes at once, or the rings of several lanes. It takes the lanes in the order in
 * which they become ready, so no lane waits for another one. Neither the order nor the size of transfers can make ranks
 * wait for each other. If there are enough blocks, each serves one lane at a time: see
 * impl/collective_exchange_alone.h. By few blocks all may send: see impl/collective_exchange_shared.h.
 *
 * The first message of a piece carries the sender's call. The receiver compares it with its own. If the two ends differ
 * in the count, one may use the ring and the other a column: a receiver that waits looks for its transfer there too. */
#ifndef WEIR_DEVICE_IMPL_COLLECTIVE_EXCHANGE_H
#define WEIR_DEVICE_IMPL_COLLECTIVE_EXCHANGE_H

#include "weir/device/impl/collective_exchange_places.h"

/* ---- a lane in one column ------------------------------------------------------------------------------------- */

/* Whether units are free for what a block passes at once, when the receiver has taken `taken` units. */
WEIR_FN int weir_ring_is_free(const weir_dev_collective *c, uint64_t number, uint64_t taken)
{
    return number <= taken + weir_ring_turn(c->ring_units);
}

/* Whether a small transfer has come, or (of a lane that sends) units of the ring are free. What the receiver has taken
 * it has read: packets need no more order than that. */
WEIR_FN uint32_t weir_ring_ready(const weir_dev_collective *c, const weir_exchange_lane *lane, uint64_t number)
{
    if (lane->receives) {
        return (uint32_t)weir_ll16_there(
            weir_arch_load_relaxed_sys_pair(weir_ring_slot(c, lane->peer, c->rank, number)), weir_ring_flag(number));
    }
    return (uint32_t)weir_ring_is_free(c, number,
                                       weir_arch_load_relaxed_sys_u64(weir_ring_taken(c, c->rank, lane->peer)));
}

/* ---- the way of a piece ---------------------------------------------------------------------------------------- */

/* Fills this rank's call of a transfer, which the ends compare. The lower half of the second word is for the text. */
WEIR_FN void weir_exchange_what(const weir_collective_exchange *x, uint32_t lane, weir_exchange_turn turn,
                                uint64_t *words)
{
    const weir_exchange_transfer *t = &x->transfers[x->lane[lane].first + turn.next];
    words[0] = x->call | (uint64_t)weir_exchange_dtype(t) << 8;
    words[1] = (uint64_t)turn.number << 32 | (x->lane[lane].index + turn.next);
    words[2] = weir_exchange_count(t);
}

/* Writes this rank's call to the head of a slot, as packets. */
WEIR_FN void weir_ring_write_call(const weir_collective_exchange *x, uint32_t lane, const weir_exchange_state *s,
                                  char *head)
{
    uint64_t words[WEIR_MAILBOX_WORDS];
    weir_exchange_what(x, lane, weir_exchange_turn_of(s), words);
    for (uint32_t k = 0; k < WEIR_MAILBOX_WORDS; k++) {
        weir_ll16_store(head + 16 * k, words[k], weir_ring_flag(s->messages));
    }
}

/* Whether the ends of the lane's transfer agree on its way before each piece. */
WEIR_FN int weir_exchange_agrees(const weir_collective_exchange *x, uint32_t lane, const weir_exchange_state *s)
{
    return x->lined != 0 && !weir_exchange_is_lined(x, x->lane[lane].first + (uint32_t)s->next);
}

/* Opens such a piece: the sender writes its call into the free slot, and the receiver its offer; called by one thread.
 * The offer is a release: what earlier kernels did with the buffer is done when the sender acquires it. */
WEIR_FN void weir_exchange_open(const weir_dev_collective *c, const weir_collective_exchange *x, uint32_t lane,
                                uint32_t column, const weir_exchange_state *s)
{
    const weir_exchange_lane *l = &x->lane[lane];
    if (!l->receives) {
        weir_ring_write_call(x, lane, s, weir_message_slot(c, c->rank, l->peer, s->messages, column));
        return;
    }
    const uint32_t index = l->first + s->next;
    const uint32_t memory = x->notes[index] & ~WEIR_EXCHANGE_MET;
    char *offer = weir_message_offer(c, l->peer, c->rank, column);
    uint64_t place = 0;
    if (memory != 0) {
        const uint64_t row = x->rows[memory - 1];
        const uint64_t base = weir_arch_load_relaxed_dev_u64(x->bases + (row - 1) * WEIR_COLLECTIVE_RANKS + c->rank);
        place = base == 0 ? 0 : row << WEIR_OFFER_SHIFT | ((uint64_t)(uintptr_t)s->data - base);
    }
    weir_ll16_store(offer + 16, x->transfers[index].count, weir_ring_flag(s->messages));
    weir_ll16_store_release(offer, place, weir_ring_flag(s->messages));
}

/* Whether the receiver's offer for a message has come. */
WEIR_FN int weir_exchange_offer_there(const weir_dev_collective *c, const weir_exchange_lane *l, uint32_t column,
                                      uint64_t message)
{
    const char *offer = weir_message_offer(c, c->rank, l->peer, column);
    const weir_vec16 place = weir_arch_load_relaxed_sys_pair(offer);
    const weir_vec16 count = weir_arch_load_relaxed_sys_pair(offer + 16);
    return weir_ll16_there(place, weir_ring_flag(message)) & weir_ll16_there(count, weir_ring_flag(message));
}

/* The place for the piece in the receiver's memory by the offer that has come, or NULL: through slots. If the counts of
 * the two ends differ the data must not go there. */
WEIR_FN char *weir_exchange_offered(const weir_dev_collective *c, const weir_collective_exchange *x, uint32_t lane,
                                    uint32_t column, const weir_exchange_state *s)
{
    const weir_exchange_lane *l = &x->lane[lane];
    const char *offer = weir_message_offer(c, c->rank, l->peer, column);
    const uint64_t place = weir_ll16_data(weir_arch_load_relaxed_sys_pair(offer));
    const uint64_t count = weir_ll16_data(weir_arch_load_relaxed_sys_pair(offer + 16));
    if (place == 0 || x->bases == NULL || count != x->transfers[l->first + s->next].count) {
        return NULL;
    }
    const uint64_t base =
        weir_arch_load_relaxed_dev_u64(x->bases + ((place >> WEIR_OFFER_SHIFT) - 1) * WEIR_COLLECTIVE_RANKS + l->peer);
    return base == 0 ? NULL : (char *)(uintptr_t)(base + (place & (((uint64_t)1 << WEIR_OFFER_SHIFT) - 1)));
}

/* Before the first message of a piece inside the host is passed: finds its way. Both ends find the same room. A long
 * slot is not filled by a short piece: a piece takes four messages or more, so that the receiver begins early. */
WEIR_FN void weir_exchange_place_inside(const weir_dev_collective *c, const weir_collective_exchange *x, uint32_t lane,
                                        uint32_t column, weir_exchange_state *s)
{
    const weir_exchange_lane *l = &x->lane[lane];
    const int stays = weir_exchange_is_lined(x, l->first + (uint32_t)s->next);
    if (l->receives && !stays) {
        const uint64_t call =
            weir_arch_load_relaxed_sys_u64(weir_message_head(c, l->peer, c->rank, s->messages, column));
        s->direct = (call & WEIR_EXCHANGE_DIRECT) != 0;
    } else {
        s->direct = weir_exchange_agrees(x, lane, s) && weir_exchange_offered(c, x, lane, column, s) != NULL;
    }
    const uint32_t slot = s->is_long ? x->long_bytes : (uint32_t)c->message_bytes;
    const uint32_t lined = weir_lined_of(x, s->is_long);
    const int64_t quarter = s->left / 4 / 128 * 128;
    const int64_t share = quarter > (int64_t)WEIR_MESSAGE_LEAST ? quarter : (int64_t)WEIR_MESSAGE_LEAST;
    s->lined = lined != 0 && s->direct == 0 && (stays || lined == slot);
    s->room = s->lined != 0 ? weir_lined_room(x, s->is_long) : (uint32_t)weir_least(share, (int64_t)slot - lined);
}

/* The same for any piece. Inlined, it would cost the kernel between hosts half of its registers. */
WEIR_FN_FLAT void weir_exchange_place(const weir_dev_collective *c, const weir_exchange_rails *r,
                                      const weir_collective_exchange *x, uint32_t lane, uint32_t column,
                                      weir_exchange_state *s)
{
    if (!weir_exchange_is_far(r, &x->lane[lane])) {
        weir_exchange_place_inside(c, x, lane, column, s);
        return;
    }
    s->room = (uint32_t)r->bytes;
    s->direct = 0;
    s->lined = 0;
}

/* The bytes of the piece's next message. */
WEIR_FN uint64_t weir_exchange_message_bytes(const weir_exchange_state *s)
{
    return (uint64_t)(s->direct ? s->left : weir_least(s->left, (int64_t)s->room));
}

/* Ends a wait for the lane's peer. */
WEIR_FN weir_status weir_exchange_end_wait(const weir_dev_collective *c, const weir_exchange_rails *r,
                                           const weir_exchange_lane *l, weir_status status)
{
    const uint32_t peer = weir_exchange_is_far(r, l) ? r->peers[weir_far_peer(c, l)] : c->peers[l->peer];
    return WEIR_SLOW(weir_dev_control_end_wait(c->control, status,
                                               weir_dev_note_of(WEIR_DOING_COLLECTIVE, peer, c->call, c->count, 0)));
}

/* Compares the sender's call `theirs` of the lane's next transfer; called by one thread. */
WEIR_FN weir_status weir_exchange_compare(const weir_dev_collective *c, const weir_exchange_rails *r,
                                          const weir_collective_exchange *x, uint32_t lane, weir_exchange_turn turn,
                                          uint64_t *theirs)
{
    const weir_exchange_lane *l = &x->lane[lane];
    uint64_t mine[WEIR_MAILBOX_WORDS];
    weir_exchange_what(x, lane, turn, mine);
    theirs[0] &= ~WEIR_EXCHANGE_DIRECT;
    if (mine[0] == theirs[0] && mine[2] == theirs[2]) {
        return WEIR_OK;
    }
    if (weir_arch_fetch_or_acquire_dev_u64(c->epoch + 3, 1) == 0) {
        weir_dev_difference *difference =
            c->differences +
            (weir_exchange_is_far(r, l) ? WEIR_DIFFERENCES_FAR + weir_far_peer(c, l) : (uint32_t)l->peer);
        return WEIR_SLOW(weir_collective_differ(difference, mine, theirs, c->control));
    }
    return weir_exchange_end_wait(c, r, l, weir_collective_await_error(c->control));
}

/* Reads the sender's call of transfer `number` from the head of a slot, if it has come there as packets of message
 * `message`. */
WEIR_FN int weir_ring_read_call(const char *head, uint64_t message, uint32_t number, uint64_t *words)
{
    int there = 1;
    for (uint32_t k = 0; k < WEIR_MAILBOX_WORDS; k++) {
        const weir_vec16 pair = weir_arch_load_relaxed_sys_pair(head + 16 * k);
        words[k] = weir_ll16_data(pair);
        there &= weir_ll16_there(pair, weir_ring_flag(message));
    }
    return there & (words[1] >> 32 == number);
}

/* Reads the sender's call of a message that has come, if that message begins a piece of transfer `number`. The call
 * lies before data that comes over a rail, or in the cell of the signal, or as packets before lines, whose signal may
 * come before them. A message that does not begin a piece leaves an earlier call in the cell, or no call. */
WEIR_FN int weir_exchange_read_call(const weir_dev_collective *c, const weir_exchange_rails *r,
                                    const weir_collective_exchange *x, const weir_exchange_lane *l, uint32_t column,
                                    uint64_t message, uint32_t number, uint64_t *words)
{
    const uint64_t *head = weir_exchange_is_far(r, l) ? (const uint64_t *)weir_far_message(c, r, l, message, column)
                                                      : weir_message_head(c, l->peer, c->rank, message, column);
    for (uint32_t k = 0; k < WEIR_MAILBOX_WORDS; k++) {
        words[k] = weir_arch_load_relaxed_sys_u64(head + k);
    }
    return (words[0] != 0 && words[1] >> 32 == number && (words[1] & WEIR_EXCHANGE_EARLY) == 0) ||
           (r == NULL && x->lined != 0 &&
            weir_ring_read_call(weir_message_slot(c, l->peer, c->rank, message, column), message, number, words));
}

/* For a sender that waits in vain for long slots; called by one thread. Looks whether the host has mapped them. The
 * peer may have none, because it expects another transfer. So tells the peer of the call, for
 * weir_exchange_look_around, if the column has a free slot. */
WEIR_FN_COLD void weir_exchange_tell(const weir_dev_collective *c, const weir_collective_exchange *x, uint32_t lane,
                                     uint32_t column, weir_exchange_turn turn, uint64_t message)
{
    const weir_exchange_lane *l = &x->lane[lane];
    uint64_t *head = weir_message_head(c, c->rank, l->peer, message, column);
    uint64_t words[WEIR_MAILBOX_WORDS];
    const uint64_t mapped = weir_arch_load_acquire_sys_u64(weir_message_mapped(c, l->peer));
    if (mapped != 0) {
        weir_arch_store_release_sys_u64(weir_message_long(c, l->peer), mapped);
        return;
    }
    if (message >= 2 && weir_arch_load_acquire_sys_u64(weir_exchange_word(c, NULL, l, column)) <= message - 2) {
        return;
    }
    weir_exchange_what(x, lane, turn, words);
    weir_arch_store_relaxed_sys_u64(head, words[0]);
    weir_arch_store_relaxed_sys_u64(head + 2, words[2]);
    weir_arch_store_release_sys_u64(head + 1, words[1] | WEIR_EXCHANGE_EARLY);
}

/* Reads the call of transfer `number` if the sender of the column's message has told of it so. */
WEIR_FN int weir_exchange_read_early(const weir_dev_collective *c, const weir_exchange_lane *l, uint32_t column,
                                     uint64_t message, uint32_t number, uint64_t *words)
{
    const uint64_t *head = weir_message_head(c, l->peer, c->rank, message, column);
    const uint64_t second = weir_arch_load_acquire_sys_u64(head + 1);
    words[0] = weir_arch_load_relaxed_sys_u64(head);
    words[1] = second & ~WEIR_EXCHANGE_EARLY;
    words[2] = weir_arch_load_relaxed_sys_u64(head + 2);
    return (second & WEIR_EXCHANGE_EARLY) != 0 && second >> 32 == number;
}

/* Reads the sender's call of transfer `number` in the next message of a column, if that message begins a piece of it.
 * The call may have come as packets without the signal, or alone. */
WEIR_FN int weir_exchange_find_call(const weir_dev_collective *c, const weir_collective_exchange *x, uint32_t lane,
                                    uint32_t column, uint32_t number, uint64_t *words)
{
    const weir_exchange_lane *l = &x->lane[lane];
    const uint64_t *messages = weir_exchange_messages(c, NULL, l, column);
    const uint64_t taken = weir_arch_load_relaxed_dev_u64(messages);
    const char *slot = weir_message_slot(c, l->peer, c->rank, taken, column);
    int there = weir_arch_load_acquire_sys_u64(weir_exchange_word(c, NULL, l, column)) > taken
                    ? weir_exchange_read_call(c, NULL, x, l, column, taken, number, words)
                    : x->lined != 0 && weir_ring_read_call(slot, taken, number, words);
    if (!there && x->lined != 0 && weir_message_long_slots(c, l) != NULL) {
        slot = weir_message_place(c, x, lane, 1, taken, column);
        there = weir_ring_read_call(slot, taken, number, words);
    }
    return (there || weir_exchange_read_early(c, l, column, taken, number, words)) &&
           weir_arch_load_relaxed_dev_u64(messages) == taken; /* or another block has taken that message */
}

/* For a receiver that waits in vain for the lane's next transfer, or finds a later one: looks whether the sender's call
 * has come, in the column, or in a column in place of the ring, or in the ring in place of a column. Compares it. */
WEIR_FN_COLD weir_status weir_exchange_look_around(const weir_dev_collective *c, const weir_collective_exchange *x,
                                                   uint32_t lane, uint32_t column, weir_exchange_turn turn)
{
    weir_arch_no_kernel();
    const weir_exchange_lane *l = &x->lane[lane];
    const uint32_t of = column != WEIR_EXCHANGE_RING ? column : weir_exchange_start_of(c, x, lane, turn.number).column;
    uint64_t theirs[WEIR_MAILBOX_WORDS] = { 0, 0, 0 };
    int there = weir_exchange_find_call(c, x, lane, of, turn.number, theirs);
    if (!there && column != WEIR_EXCHANGE_RING && x->small != 0) {
        const uint64_t next = weir_arch_load_relaxed_dev_u64(weir_exchange_messages(c, NULL, l, WEIR_EXCHANGE_RING));
        there = weir_ring_read_call(weir_ring_slot(c, l->peer, c->rank, next), next, turn.number, theirs);
    }
    return there ? weir_exchange_compare(c, NULL, x, lane, turn, theirs) : WEIR_OK;
}

/* A step of a wait for the sender's call in a message that has come; called by one thread. A call of another transfer
 * may have come: then the two ends of this transfer or of an earlier one differ, and a block of that one finds it. */
WEIR_FN_COLD weir_status weir_exchange_call_step(const weir_dev_collective *c, const weir_exchange_rails *r,
                                                 const weir_collective_exchange *x, uint32_t lane, uint32_t column,
                                                 weir_exchange_turn turn, weir_spin *spin)
{
    weir_arch_no_kernel();
    const weir_exchange_lane *l = &x->lane[lane];
    weir_status status = weir_spin_step(spin, c->control);
    if (status == WEIR_OK && spin->reads % WEIR_ARCH_SPIN_READS == 0 && !weir_exchange_is_far(r, l)) {
        status = weir_exchange_look_around(c, x, lane, column, turn);
    }
    return weir_exchange_end_wait(c, r, l, status);
}

/* Waits for the call of the message that has come, and compares it; called by one thread. */
WEIR_FN weir_status weir_exchange_compare_message(const weir_dev_collective *c, const weir_exchange_rails *r,
                                                  const weir_collective_exchange *x, uint32_t lane, uint32_t column,
                                                  const weir_exchange_state *s)
{
    const weir_exchange_lane *l = &x->lane[lane];
    const weir_exchange_turn turn = weir_exchange_turn_of(s);
    uint64_t theirs[WEIR_MAILBOX_WORDS];
    weir_spin spin = weir_spin_begin();
    WEIR_ROLLED
    while (WEIR_UNLIKELY(!weir_exchange_read_call(c, r, x, l, column, s->messages, turn.number, theirs))) {
        if (spin.reads % WEIR_ARCH_SPIN_READS == WEIR_ARCH_SPIN_READS - 1) { /* the next step may end the wait */
            weir_arch_show_kernel();
        }
        const weir_status status = weir_exchange_call_step(c, r, x, lane, column, turn, &spin);
        if (status != WEIR_OK) {
            return status;
        }
    }
    return weir_exchange_compare(c, r, x, lane, turn, theirs);
}

/* Signals a message, behind the sender's call if the message begins a piece. Without `ordered` the signal only counts,
 * and the call has gone as packets. */
WEIR_FN void weir_exchange_announce(const weir_dev_collective *c, const weir_collective_exchange *x, uint32_t lane,
                                    uint32_t column, const weir_exchange_state *s, int ordered)
{
    const weir_exchange_lane *l = &x->lane[lane];
    const weir_dev_semaphore data = weir_collective_semaphore(c, WEIR_CELL_MESSAGE, column, l->peer);
    if (!ordered) {
        weir_dev_semaphore_signal_relaxed(&data);
        return;
    }
    uint64_t *head = weir_message_head(c, c->rank, l->peer, s->messages, column);
    uint64_t words[WEIR_MAILBOX_WORDS];
    weir_exchange_what(x, lane, weir_exchange_turn_of(s), words);
    words[0] |= s->direct != 0 ? WEIR_EXCHANGE_DIRECT : 0;
    for (uint32_t k = 0; k < WEIR_MAILBOX_WORDS && !s->begun; k++) {
        weir_arch_store_relaxed_sys_u64(head + k, words[k]);
    }
    weir_dev_semaphore_signal(&data);
}

/* ---- the ring ------------------------------------------------------------------------------------------------- */

/* The thread that carries the sender's call: one without data in most small transfers. */
WEIR_FN int weir_ring_leads(weir_coop coop) { return coop.block_rank == coop.block_size / 2; }

/* Waits for the sender's call in `slot`, of the ring or of a column with lines, and compares it; called by one thread.
 */
WEIR_FN weir_status weir_ring_compare(const weir_dev_collective *c, const weir_collective_exchange *x, uint32_t lane,
                                      uint32_t column, const weir_exchange_state *s, const char *slot)
{
    const weir_exchange_turn turn = weir_exchange_turn_of(s);
    uint64_t theirs[WEIR_MAILBOX_WORDS];
    weir_spin spin = weir_spin_begin();
    while (!weir_ring_read_call(slot, s->messages, turn.number, theirs)) {
        weir_status status = weir_spin_step(&spin, c->control);
        if (status == WEIR_OK && spin.reads % WEIR_ARCH_SPIN_READS == 0) {
            status = WEIR_SLOW(weir_exchange_look_around(c, x, lane, column, turn));
        }
        if (WEIR_UNLIKELY(status != WEIR_OK)) {
            return weir_collective_end_wait(c, x->lane[lane].peer, status);
        }
    }
    return weir_exchange_compare(c, NULL, x, lane, turn, theirs);
}

/* Reads a small transfer when it has come. The status is the calling thread's. */
WEIR_FN weir_status weir_ring_read(const weir_dev_collective *c, const weir_collective_exchange *x, uint32_t lane,
                                   const weir_exchange_state *s, weir_coop coop)
{
    const weir_exchange_lane *l = &x->lane[lane];
    const char *slot = weir_ring_slot(c, l->peer, c->rank, s->messages);
    weir_status status = weir_ring_leads(coop) ? weir_ring_compare(c, x, lane, WEIR_EXCHANGE_RING, s, slot) : WEIR_OK;
    if (status == WEIR_OK) {
        status = weir_ll16_unpack(s->data, slot + WEIR_RING_HEAD, (uint64_t)s->left, weir_ring_flag(s->messages),
                                  weir_coop_block(coop), c->control);
        if (WEIR_UNLIKELY(status != WEIR_OK)) {
            status = weir_collective_end_wait(c, l->peer, status);
        }
    }
    return status;
}

/* Writes a small transfer into free units, by the calling thread with the others of its block. */
WEIR_FN void weir_ring_write(const weir_dev_collective *c, const weir_collective_exchange *x, uint32_t lane,
                             const weir_exchange_state *s, weir_coop coop)
{
    char *slot = weir_ring_slot(c, c->rank, x->lane[lane].peer, s->messages);
    if (weir_ring_leads(coop)) {
        weir_ring_write_call(x, lane, s, slot);
    }
    weir_ll16_put(slot + WEIR_RING_HEAD, s->data, (uint64_t)s->left, weir_ring_flag(s->messages),
                  weir_coop_block(coop));
}

/* Counts units, up to `end`, that have been sent or, with `status` of all threads, taken. The block meets if it
 * receives, so that all its threads have read them. */
WEIR_FN void weir_ring_count(const weir_dev_collective *c, const weir_exchange_lane *l, uint64_t end,
                             weir_status status, int leads, weir_coop coop)
{
    const uint32_t failed = l->receives ? weir_arch_block_or(coop.host, (uint32_t)(status != WEIR_OK)) : 0;
    if (failed == 0 && leads) {
        weir_arch_store_relaxed_dev_u64(weir_exchange_messages(c, NULL, l, WEIR_EXCHANGE_RING), end);
        if (l->receives) {
            weir_arch_store_relaxed_sys_u64(weir_ring_taken(c, l->peer, c->rank), end);
        }
    }
}

/* The unit behind a small transfer. */
WEIR_FN uint64_t weir_ring_end(const weir_dev_collective *c, const weir_exchange_state *s)
{
    return s->messages + weir_ring_units(c, (uint64_t)s->left);
}

/* ---- a piece in a column, as lines ---------------------------------------------------------------------------- */

/* The thread that carries the sender's call is the block's last one, and the thread that counts the launch is in the
 * warp before. In a large block these two warps move no data of a piece that is one message, and the last one none of
 * longer pieces. */
WEIR_FN int weir_lined_leads(weir_coop coop) { return coop.block_rank + 1 == coop.block_size; }

WEIR_FN uint32_t weir_lined_counter(weir_coop coop)
{
    const uint32_t idle = 2 * weir_arch_warp_size();
    return coop.block_size - (coop.block_size > idle ? idle : 1);
}

/* Whether the warps of these two threads move data as well. */
WEIR_FN int weir_lined_is_small(weir_coop coop) { return coop.block_size <= 2 * weir_arch_warp_size(); }

WEIR_FN uint32_t weir_lined_movers(const weir_exchange_state *s, uint64_t bytes, weir_coop coop)
{
    const uint32_t warp = weir_arch_warp_size();
    const int one = !s->begun && s->left <= (int64_t)bytes;
    return coop.block_size - (weir_lined_is_small(coop) ? 0 : one ? 2 * warp : warp);
}

/* Sends or receives the data of a message as lines, by the calling thread with the other movers. One of `out` and `in`
 * is NULL. Any addresses. Ends as weir_spin_step does. */
WEIR_FN weir_status weir_lined_move(const weir_dev_collective *c, char *out, const char *in,
                                    const weir_exchange_state *s, uint64_t bytes, weir_coop coop)
{
    const uint32_t flag = weir_ring_flag(s->messages);
    const uint32_t movers = weir_lined_movers(s, bytes, coop);
    if (coop.block_rank >= movers || bytes == 0) {
        return WEIR_OK;
    }
    weir_arch_warp_converge();
    if (WEIR_UNLIKELY(((uintptr_t)s->data & 7) != 0)) {
        return weir_line_run_any(out, s->data, flag, s->data, in, flag, bytes, coop.block_rank, movers, c->control);
    }
    const uint32_t last = WEIR_UNLIKELY((bytes & 7) != 0) ? (uint32_t)(bytes % WEIR_LINE_DATA) : 0;
    const uint64_t whole = bytes - last;
    const weir_status status = weir_line_run(out, s->data, weir_line_flag(flag), s->data, in, weir_line_flag(flag),
                                             whole, coop.block_rank, movers, c->control);
    if (WEIR_UNLIKELY(last != 0) && status == WEIR_OK) { /* the last line ends within a word */
        const uint64_t lines = whole / WEIR_LINE_DATA * WEIR_LINE_BYTES;
        return weir_line_run_any(out != NULL ? out + lines : NULL, s->data + whole, flag, s->data + whole,
                                 in != NULL ? in + lines : NULL, flag, last, coop.block_rank, movers, c->control);
    }
    return status;
}

/* Takes a message whose lines come, or have come. The status is the calling thread's. */
WEIR_FN weir_status weir_lined_take(const weir_dev_collective *c, const weir_collective_exchange *x, uint32_t lane,
                                    uint32_t column, const weir_exchange_state *s, uint64_t bytes, weir_coop coop)
{
    const weir_exchange_lane *l = &x->lane[lane];
    const char *in = weir_message_place(c, x, lane, s->is_long, s->messages, column);
    weir_status status = weir_lined_leads(coop) && !s->begun ? weir_ring_compare(c, x, lane, column, s, in) : WEIR_OK;
    const uint32_t failed = status != WEIR_OK;
    /* The lanes of a warp move data together. */
    if ((weir_lined_is_small(coop) ? weir_arch_block_or(coop.host, failed) : weir_arch_warp_or(failed)) == 0) {
        status = weir_lined_move(c, NULL, in + WEIR_RING_HEAD, s, bytes, coop);
        if (WEIR_UNLIKELY(status != WEIR_OK)) {
            status = weir_collective_end_wait(c, l->peer, status);
        }
    }
    if (weir_arch_block_or(coop.host, (uint32_t)(status != WEIR_OK)) == 0 && coop.block_rank == 0) {
        const weir_dev_semaphore taken = weir_collective_semaphore(c, WEIR_CELL_MESSAGE_TAKEN, column, l->peer);
        weir_arch_store_relaxed_dev_u64(weir_exchange_messages(c, NULL, l, column), s->messages + 1);
        weir_dev_semaphore_signal_relaxed(&taken); /* what the block has taken it has read, as with rings */
    }
    return status;
}

/* Fills the free slot with lines. If its size does not make a transfer one of lines, the receiver reads from the call
 * that it is one. */
WEIR_FN void weir_lined_put(const weir_dev_collective *c, const weir_collective_exchange *x, uint32_t lane,
                            uint32_t column, const weir_exchange_state *s, uint64_t bytes, weir_coop coop)
{
    char *slot = weir_message_place(c, x, lane, s->is_long, s->messages, column);
    if (weir_lined_leads(coop)) {
        const uint32_t transfer = x->lane[lane].first + (uint32_t)s->next;
        if (!s->begun) {
            weir_ring_write_call(x, lane, s, slot);
        }
        weir_exchange_announce(c, x, lane, column, s, !s->begun && !weir_exchange_is_lined(x, transfer));
    }
    if (weir_lined_is_small(coop)) {
        weir_arch_block_sync(coop.host); /* lanes of a warp store a line together */
    }
    (void)weir_lined_move(c, slot + WEIR_RING_HEAD, NULL, s, bytes, coop);
}

/* ---- a piece in a column ---------------------------------------------------------------------------------------- */

/* The place of a message that is not lines. */
WEIR_FN char *weir_exchange_slot(const weir_dev_collective *c, const weir_collective_exchange *x, uint32_t lane,
                                 const weir_exchange_state *s, uint32_t column)
{
    return weir_message_place(c, x, lane, s->is_long, s->messages, column) + weir_lined_of(x, s->is_long);
}

/* Copies a message's data by the block. */
WEIR_FN void weir_exchange_copy_data(char *to, const char *from, uint64_t bytes, int alone, weir_coop coop)
{
    if (alone) {
        weir_copy_deep(to, from, bytes, weir_coop_block(coop));
    } else {
        weir_copy(to, from, bytes, weir_coop_block(coop));
    }
}

/* Takes the message that has come. The status is the calling thread's. */
WEIR_FN weir_status weir_exchange_take(const weir_dev_collective *c, const weir_exchange_rails *r,
                                       const weir_collective_exchange *x, uint32_t lane, uint32_t column,
                                       const weir_exchange_state *s, uint64_t bytes, int alone, weir_coop coop)
{
    const weir_exchange_lane *l = &x->lane[lane];
    const int far = weir_exchange_is_far(r, l);
    weir_status status =
        coop.block_rank == 0 && !s->begun ? weir_exchange_compare_message(c, r, x, lane, column, s) : WEIR_OK;
    if (bytes != 0 && !s->direct) {
        weir_exchange_copy_data(s->data,
                                far ? weir_far_message(c, r, l, s->messages, column) + WEIR_RAIL_HEAD
                                    : weir_exchange_slot(c, x, lane, s, column),
                                bytes, alone, coop);
    }
    weir_arch_block_sync(coop.host);
    if (coop.block_rank == 0 && status == WEIR_OK) {
        weir_arch_store_relaxed_dev_u64(weir_exchange_messages(c, r, l, column), s->messages + 1);
        if (far) {
            const uint64_t taken = weir_far_cell(r, WEIR_FAR_TAKEN, weir_far_there(c, r, l), column);
            status = weir_dev_port_channel_ask(r->rails.channels + l->host, WEIR_REQUEST_VALUE, taken, 0, 8,
                                               s->messages + 1, NULL);
        } else {
            const weir_dev_semaphore taken = weir_collective_semaphore(c, WEIR_CELL_MESSAGE_TAKEN, column, l->peer);
            weir_dev_semaphore_signal(&taken);
        }
    }
    return status;
}

/* Sends the slot `slot` of this rank over the rail, from `skip` on; called by one thread. */
WEIR_FN weir_status weir_far_post(const weir_dev_collective *c, const weir_exchange_rails *r,
                                  const weir_exchange_lane *lane, uint32_t column, const weir_exchange_state *s,
                                  uint64_t slot, uint64_t skip, uint64_t bytes)
{
    const weir_dev_port_channel *channel = r->rails.channels + lane->host;
    const uint32_t there = weir_far_there(c, r, lane);
    weir_arch_store_relaxed_dev_u64(weir_far_own(c, r, lane, column), s->messages + 1);
    const weir_status status = weir_dev_port_channel_ask(
        channel, WEIR_REQUEST_PUT, weir_far_slot(r, 0, there, s->messages, column) + skip, slot + skip, bytes, 0, NULL);
    return status == WEIR_OK ? weir_dev_port_channel_ask(channel, WEIR_REQUEST_VALUE,
                                                         weir_far_cell(r, WEIR_FAR_ARRIVED, there, column), 0, 8,
                                                         s->messages + 1, NULL)
                             : status;
}

/* Fills the free slot. The status is the calling thread's. */
WEIR_FN weir_status weir_exchange_put(const weir_dev_collective *c, const weir_exchange_rails *r,
                                      const weir_collective_exchange *x, uint32_t lane, uint32_t column,
                                      const weir_exchange_state *s, uint64_t bytes, int alone, weir_coop coop)
{
    const weir_exchange_lane *l = &x->lane[lane];
    const int far = weir_exchange_is_far(r, l);
    const uint64_t own = far ? weir_far_slot(r, 1, weir_far_peer(c, l), s->messages, column) : 0;
    if (bytes != 0) {
        char *to = far         ? r->rails.memory + own + WEIR_RAIL_HEAD
                   : s->direct ? weir_exchange_offered(c, x, lane, column, s)
                               : weir_exchange_slot(c, x, lane, s, column);
        weir_exchange_copy_data(to, s->data, bytes, alone, coop);
    }
    weir_arch_block_sync(coop.host);
    if (coop.block_rank != 0) {
        return WEIR_OK;
    }
    if (!far) {
        weir_exchange_announce(c, x, lane, column, s, 1);
        return WEIR_OK;
    }
    uint64_t *head = (uint64_t *)(r->rails.memory + own);
    uint64_t words[WEIR_MAILBOX_WORDS];
    weir_exchange_what(x, lane, weir_exchange_turn_of(s), words);
    for (uint32_t k = 0; k < WEIR_MAILBOX_WORDS && !s->begun; k++) {
        weir_arch_store_relaxed_sys_u64(head + k, words[k]);
    }
    const uint64_t skip = s->begun ? WEIR_RAIL_HEAD : 0;
    return weir_far_post(c, r, l, column, s, own, skip, WEIR_RAIL_HEAD - skip + bytes);
}

/* ---- a message of any kind -------------------------------------------------------------------------------------- */

/* Passes one small transfer, and sets *s behind it. The status is the calling thread's. */
WEIR_FN weir_status weir_ring_pass(const weir_dev_collective *c, const weir_collective_exchange *x, uint32_t lane,
                                   weir_exchange_state *s, weir_coop coop)
{
    const weir_exchange_lane *l = &x->lane[lane];
    const uint64_t end = weir_ring_end(c, s);
    weir_status status = WEIR_OK;
    if (l->receives) {
        status = weir_ring_read(c, x, lane, s, coop);
    } else {
        weir_ring_write(c, x, lane, s, coop);
    }
    weir_ring_count(c, l, end, status, l->receives ? coop.block_rank == 0 : weir_ring_leads(coop), coop);
    s->messages = end;
    s->left = 0;
    return status;
}

/* Passes one message as lines. */
WEIR_FN weir_status weir_lined_pass(const weir_dev_collective *c, const weir_collective_exchange *x, uint32_t lane,
                                    uint32_t column, const weir_exchange_state *s, uint64_t bytes, weir_coop coop)
{
    if (x->lane[lane].receives) {
        return weir_lined_take(c, x, lane, column, s, bytes, coop);
    }
    weir_lined_put(c, x, lane, column, s, bytes, coop);
    return WEIR_OK;
}

/* A block with several lanes has few registers left. */
WEIR_FN_FLAT weir_status weir_ring_pass_of_many(const weir_dev_collective *c, const weir_collective_exchange *x,
                                                uint32_t lane, weir_exchange_state *s, weir_coop coop)
{
    weir_arch_no_kernel();
    return weir_ring_pass(c, x, lane, s, coop);
}

WEIR_FN_FLAT weir_status weir_lined_pass_of_many(const weir_dev_collective *c, const weir_collective_exchange *x,
                                                 uint32_t lane, uint32_t column, const weir_exchange_state *s,
                                                 uint64_t bytes, weir_coop coop)
{
    weir_arch_no_kernel();
    return weir_lined_pass(c, x, lane, column, s, bytes, coop);
}

WEIR_FN_FLAT weir_status weir_exchange_take_of_many(const weir_dev_collective *c, const weir_exchange_rails *r,
                                                    const weir_collective_exchange *x, uint32_t lane, uint32_t column,
                                                    const weir_exchange_state *s, uint64_t bytes, weir_coop coop)
{
    weir_arch_no_kernel();
    return weir_exchange_take(c, r, x, lane, column, s, bytes, 0, coop);
}

WEIR_FN_FLAT weir_status weir_exchange_put_of_many(const weir_dev_collective *c, const weir_exchange_rails *r,
                                                   const weir_collective_exchange *x, uint32_t lane, uint32_t column,
                                                   const weir_exchange_state *s, uint64_t bytes, weir_coop coop)
{
    weir_arch_no_kernel();
    return weir_exchange_put(c, r, x, lane, column, s, bytes, 0, coop);
}

/* A message of `bytes` bytes has passed. */
WEIR_FN void weir_exchange_pass(weir_exchange_state *s, uint64_t bytes)
{
    s->messages++;
    s->data += bytes;
    s->left -= (int64_t)bytes;
    s->begun = 1;
}

/* Finds the next piece or small transfer when all of this one has passed. Returns 0 at the end. */
WEIR_FN uint32_t weir_exchange_find_next(const weir_dev_collective *c, const weir_collective_exchange *x, uint32_t lane,
                                         uint32_t column, weir_exchange_state *s)
{
    if (s->left > 0) {
        return 1;
    }
    s->next++;
    return weir_exchange_find(c, x, lane, column, s);
}

/* Passes one message, or one small transfer, by a block with several lanes. Returns 0 in *open when the column has no
 * more of the lane. The status is the calling thread's. */
WEIR_FN weir_status weir_exchange_step(const weir_dev_collective *c, const weir_exchange_rails *r,
                                       const weir_collective_exchange *x, uint32_t lane, uint32_t column,
                                       weir_exchange_state *s, uint32_t *open, weir_coop coop)
{
    weir_status status;
    if (column == WEIR_EXCHANGE_RING) {
        status = weir_ring_pass_of_many(c, x, lane, s, coop);
    } else {
        if (!s->begun) {
            weir_exchange_place(c, r, x, lane, column, s);
        }
        const uint64_t bytes = weir_exchange_message_bytes(s);
        status = r == NULL && s->lined != 0    ? weir_lined_pass_of_many(c, x, lane, column, s, bytes, coop)
                 : x->lane[lane].receives != 0 ? weir_exchange_take_of_many(c, r, x, lane, column, s, bytes, coop)
                                               : weir_exchange_put_of_many(c, r, x, lane, column, s, bytes, coop);
        weir_exchange_pass(s, bytes);
    }
    *open = weir_exchange_find_next(c, x, lane, column, s);
    return status;
}

/* ---- a column of all lanes -------------------------------------------------------------------------------------- */

/* Whether the lane can go on: a message has come, or a slot is free and the offer of the receiver has come. Opens the
 * piece. */
WEIR_FN uint32_t weir_exchange_ready(const weir_dev_collective *c, const weir_exchange_rails *r,
                                     const weir_collective_exchange *x, uint32_t lane, uint32_t column,
                                     weir_exchange_state *s)
{
    const weir_exchange_lane *l = &x->lane[lane];
    if (column == WEIR_EXCHANGE_RING) {
        return weir_ring_ready(c, l, s->messages);
    }
    const uint64_t *word = weir_exchange_word(c, r, l, column);
    const uint32_t slots = l->receives ? 0 : 2;
    const int opens = r == NULL && !s->begun && weir_exchange_agrees(x, lane, s);
    int ready = (s->messages < slots || weir_arch_load_acquire_sys_u64(word) > s->messages - slots) &&
                (weir_exchange_is_far(r, l) || !weir_exchange_lacks_slots(c, x, lane, s->is_long));
    if (opens && !s->opened && (ready || l->receives)) {
        weir_exchange_open(c, x, lane, column, s);
        s->opened = 1;
    }
    if (opens && ready && !l->receives) {
        ready = weir_exchange_offer_there(c, l, column, s->messages);
    }
    if (opens && ready && !l->receives) {
        weir_arch_acquire_loaded_sys_u64((const uint64_t *)weir_message_offer(c, c->rank, l->peer, column));
    }
    return (uint32_t)ready;
}

/* The lanes in `open` that the calling thread finds ready: the threads of the block divide the lanes. */
WEIR_FN uint32_t weir_exchange_poll(const weir_dev_collective *c, const weir_exchange_rails *r,
                                    const weir_collective_exchange *x, uint32_t open, uint32_t column,
                                    weir_exchange_state *states, weir_coop coop)
{
    uint32_t ready = 0;
    WEIR_ROLLED
    for (uint32_t lane = coop.block_rank; lane < x->lanes; lane += coop.block_size) {
        if ((open >> lane & 1) != 0) {
            ready |= weir_exchange_ready(c, r, x, lane, column, &states[lane]) << lane;
        }
    }
    return ready;
}

/* After a poll that found no lane ready; called by one thread. A timeout names the peer of the first open lane. */
WEIR_FN weir_status weir_exchange_pause(const weir_dev_collective *c, const weir_exchange_rails *r,
                                        const weir_collective_exchange *x, uint32_t open, uint32_t column,
                                        const weir_exchange_state *states, weir_spin *spin)
{
    weir_status status = weir_spin_step(spin, c->control);
    uint32_t lane = 0;
    if (spin->reads % WEIR_ARCH_SPIN_READS == 0) {
        WEIR_ROLLED
        for (uint32_t k = 0; k < x->lanes && status == WEIR_OK; k++) {
            if ((open >> k & 1) == 0 || x->lane[k].far != 0) {
                continue;
            }
            const weir_exchange_turn turn = weir_exchange_turn_of(&states[k]);
            if (x->lane[k].receives != 0) {
                status = WEIR_SLOW(weir_exchange_look_around(c, x, k, column, turn));
            } else if (weir_exchange_lacks_slots(c, x, k, states[k].is_long)) {
                weir_exchange_tell(c, x, k, column, turn, states[k].messages);
            }
        }
    }
    if (WEIR_UNLIKELY(status != WEIR_OK)) {
        while ((open >> lane & 1) == 0) {
            lane++;
        }
        return weir_exchange_end_wait(c, r, &x->lane[lane], status);
    }
    return WEIR_OK;
}

/* The lanes of the calling block, and its column. A block without lanes has no column. */
typedef struct weir_exchange_duty {
    uint32_t lanes;
    uint32_t column;
    uint32_t awaits; /* a lane that alone receives small transfers: its threads wait for the packets, without a poll */
} weir_exchange_duty;

/* Carries out the parts of the block's lanes in its column, or their small transfers. `ready`: the lanes that are known
 * to be ready. All threads of the block go on, or end, together. */
WEIR_FN weir_status weir_exchange_column(const weir_dev_collective *c, const weir_exchange_rails *r,
                                         const weir_collective_exchange *x, weir_exchange_duty duty, uint32_t ready,
                                         weir_exchange_state *states, weir_coop coop)
{
    const uint32_t column = duty.column;
    uint32_t open = duty.lanes;
    weir_spin spin = weir_spin_begin();
    weir_status status = WEIR_OK; /* of the calling thread */
    uint64_t turns = 0;
    weir_arch_show_kernel(); /* once for all steps */
    WEIR_ROLLED
    for (uint32_t lane = 0; lane < x->lanes; lane++) {
        if ((open >> lane & 1) != 0) {
            open &= ~((1u ^ weir_exchange_find(c, x, lane, column, &states[lane])) << lane);
        }
    }
    ready &= open;
    while (open != 0) {
        if (ready == 0 && status == WEIR_OK) {
            ready = duty.awaits != 0 ? open : weir_exchange_poll(c, r, x, open, column, states, coop);
        }
        if (weir_arch_block_or(coop.host, ready | (uint32_t)(status != WEIR_OK)) == 0) {
            status = coop.block_rank == 0 ? weir_exchange_pause(c, r, x, open, column, states, &spin) : WEIR_OK;
            continue;
        }
        if (coop.block_rank == 0 && status == WEIR_OK && weir_spin_is_due(turns++)) {
            status = weir_spin_look_once(c->control);
        }
        status = weir_coop_agree(weir_coop_block(coop), c->control, status);
        if (status != WEIR_OK) {
            return status;
        }
        spin = weir_spin_begin();
        WEIR_ROLLED
        for (uint32_t lane = 0; lane < x->lanes; lane++) {
            if ((open >> lane & 1) != 0 && weir_arch_block_or(coop.host, ready >> lane & 1) != 0) {
                uint32_t more;
                const weir_status step = weir_exchange_step(c, r, x, lane, column, &states[lane], &more, coop);
                status = status != WEIR_OK ? status : step;
                open &= ~((1u ^ more) << lane);
            }
        }
        ready = 0;
    }
    return weir_coop_agree(weir_coop_block(coop), c->control, status);
}

/* ---- the exchange ----------------------------------------------------------------------------------------------- */

WEIR_FN weir_exchange_duty weir_exchange_duty_of(const weir_collective_exchange *x, weir_coop coop)
{
    weir_exchange_duty duty;
    const uint32_t rest = coop.block - x->rings;
    uint32_t receives = 0;
    duty.lanes = 0;
    duty.column = coop.block < x->rings ? WEIR_EXCHANGE_RING : rest / x->sides;
    WEIR_ROLLED
    for (uint32_t lane = 0; lane < x->lanes; lane++) {
        const int mine = coop.block < x->rings ? lane % x->rings == coop.block
                         : x->only != 0        ? rest == 0
                                               : duty.column < weir_exchange_columns(x, lane) &&
                                              (x->sides == 1 || rest % 2 == (x->lane[lane].receives == 0));
        duty.lanes |= (uint32_t)mine << lane;
        receives |= (uint32_t)(mine && x->lane[lane].receives != 0) << lane;
    }
    duty.awaits = coop.block < x->rings && (duty.lanes & (duty.lanes - 1)) == 0 ? receives : 0;
    return duty;
}

/* The last block that has read the counts of its lanes adds the transfers of this launch, by the thread `counter` of
 * the block. The block meets before. */
WEIR_FN void weir_exchange_count_launch(const weir_dev_collective *c, const weir_exchange_rails *r,
                                        const weir_collective_exchange *x, uint32_t counter, weir_coop coop)
{
    if (coop.block_rank == counter && weir_arch_fetch_add_acq_rel_dev_u64(c->epoch + 2, 1) + 1 == coop.blocks) {
        WEIR_ROLLED
        for (uint32_t lane = 0; lane < x->lanes; lane++) {
            /* An addition waits for no load. */
            (void)weir_arch_fetch_add_relaxed_dev_u64(weir_exchange_number(c, r, &x->lane[lane]), x->lane[lane].count);
        }
        weir_arch_store_relaxed_dev_u64(c->epoch + 2, 0);
    }
}

/* Reads the counts of the block's lanes. Returns the lanes whose ring has room for the first small transfer. */
WEIR_FN uint32_t weir_exchange_begin(const weir_dev_collective *c, const weir_exchange_rails *r,
                                     const weir_collective_exchange *x, weir_exchange_duty duty,
                                     weir_exchange_state *states, weir_coop coop)
{
    uint32_t ready = 0;
    WEIR_ROLLED
    for (uint32_t lane = 0; lane < x->lanes; lane++) {
        const weir_exchange_lane *l = &x->lane[lane];
        if ((duty.lanes >> lane & 1) == 0) {
            continue;
        }
        /* All loads of a lane are under way at once. */
        const int sends = duty.column == WEIR_EXCHANGE_RING && l->receives == 0;
        const uint64_t number = weir_arch_load_relaxed_dev_u64(weir_exchange_number(c, r, l));
        const uint64_t messages = weir_arch_load_relaxed_dev_u64(weir_exchange_messages(c, r, l, duty.column));
        const uint64_t taken = sends ? weir_arch_load_relaxed_sys_u64(weir_ring_taken(c, c->rank, l->peer)) : 0;
        states[lane].number = (uint32_t)number;
        states[lane].messages = messages;
        states[lane].next = 0;
        ready |= (uint32_t)(sends && weir_ring_is_free(c, messages, taken)) << lane;
    }
    weir_arch_block_sync(coop.host);
    weir_exchange_count_launch(c, r, x, coop.block_size - 1, coop);
    return ready;
}

/* Carries out the transfers of this rank to itself. */
WEIR_FN void weir_exchange_copy(const weir_collective_exchange *x, weir_coop coop)
{
    WEIR_ROLLED
    for (uint32_t k = 0; k < x->copies; k++) {
        const weir_exchange_transfer *t = &x->transfers[x->copy + 2 * k];
        if (t[0].data != t[1].data) {
            weir_copy(t[1].data, t[0].data, weir_exchange_bytes(t), coop);
        }
    }
}

/* Carries out all transfers of the launch, with room for its lanes in `states`. A send may end before its peer has
 * received it. */
WEIR_FN weir_status weir_exchange_run(const weir_dev_collective *c, const weir_exchange_rails *r,
                                      const weir_collective_exchange *x, weir_exchange_state *states, weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    weir_status status = weir_slots_begin(c, coop);
    if (status == WEIR_OK && x->lanes != 0) {
        weir_exchange_duty duty = weir_exchange_duty_of(x, coop);
        const uint32_t ready = weir_exchange_begin(c, r, x, duty, states, coop);
        if (x->only != 0 && duty.lanes != 0) {
            duty.column = weir_exchange_start_of(c, x, 0, states[0].number).column;
            states[0].messages = weir_arch_load_relaxed_dev_u64(weir_exchange_messages(c, r, &x->lane[0], duty.column));
        }
        if (duty.lanes != 0) {
            status = weir_exchange_column(c, r, x, duty, ready, states, coop);
        }
    }
    if (status == WEIR_OK) {
        weir_exchange_copy(x, coop);
    }
    return weir_slots_end(c, status);
}

/* An exchange inside a host. */
WEIR_FN weir_status weir_collective_exchange_all(const weir_dev_collective *c, const weir_collective_exchange *x,
                                                 weir_coop coop)
{
    weir_exchange_state states[WEIR_EXCHANGE_LANES_INSIDE];
    return weir_exchange_run(c, NULL, x, states, coop);
}

/* An exchange between hosts, and inside them, without lines. */
WEIR_FN weir_status weir_collective_exchange_far(const weir_dev_collective *c, const weir_exchange_rails *r,
                                                 const weir_collective_exchange *x, weir_coop coop)
{
    weir_exchange_state states[WEIR_EXCHANGE_LANES];
    if (r == NULL) { /* never so: it keeps the code for lines out of this kernel */
        return WEIR_ERR_INVALID;
    }
    return weir_exchange_run(c, r, x, states, coop);
}

#endif
