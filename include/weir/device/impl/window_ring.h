/* weir/device/impl/window_ring.h - the rings of notifications.
 *
 * A rank has a ring for each source device. A word of a ring is a notification: the parity of its lap in the top bit,
 * 31 bits of tag, 32 bits of source. The lap marks its arrival, as in a fifo's slot: words need no clearing, and memory
 * that was never written holds no notification.
 *
 * The source device draws positions from a counter in its own memory. Beside it lies the number of words that the
 * target has taken. A sender whose position is a whole lap ahead of that number waits. The slot's earlier word may come
 * from another thread, and the new word must follow it: on a GPU the fence between the load of the number and the store
 * of the word is a MEMBAR, which also waits for loads; on a CPU the load is an acquire. The target stores the number
 * when half of the ring has been taken since, and exactly before a long wait. Half of the ring is therefore free once
 * the target has taken everything, and no thread polls another device's memory.
 *
 * The waiting thread polls by relaxed loads, because an acquire empties the first-level cache of its multiprocessor.
 * One acquire follows for all words that a wait takes. A word taken behind the head is replaced by WEIR_WINDOW_TAKEN, a
 * hole, which the head later steps over. If the word at the head stays, the waiting thread closes the holes: it moves
 * the words that stay to the end of the ring. So half of the ring is free whenever at most the other half is not taken.
 *
 * A full ring without a match can never bring one: its rank has one waiting group at a time, and the source device
 * knows the head, because it has filled the ring up to one lap behind it. */
#ifndef WEIR_DEVICE_IMPL_WINDOW_RING_H
#define WEIR_DEVICE_IMPL_WINDOW_RING_H

#include "weir/device/coop.h"
#include "weir/device/impl/window_layout.h"
#include "weir/device/impl/window_port.h"

/* The source of a word that is taken. No rank has this number. */
#define WEIR_WINDOW_TAKEN UINT32_MAX

/* A word that no ring holds. */
#define WEIR_WINDOW_NONE UINT64_MAX

/* Looks in a row without a match after which a waiting thread reports its exact heads. */
#define WEIR_WINDOW_CREDIT_LOOKS 16u

WEIR_FN uint64_t weir_window_lap(uint64_t position, uint32_t count)
{
    return (position & count) == 0 ? (uint64_t)1 << 63 : 0;
}

WEIR_FN uint64_t weir_window_word(uint64_t position, uint32_t count, uint32_t source, uint32_t tag)
{
    return weir_window_lap(position, count) | (uint64_t)tag << 32 | source;
}

WEIR_FN uint32_t weir_window_source(uint64_t word) { return (uint32_t)word; }

WEIR_FN uint32_t weir_window_tag(uint64_t word) { return (uint32_t)(word >> 32) & WEIR_WINDOW_TAG_MAX; }

/* Whether a wait for `source` and `tag` takes the word. */
WEIR_FN int weir_window_matches(uint64_t word, uint32_t source, uint32_t tag)
{
    return (source == WEIR_ANY_RANK ? weir_window_source(word) != WEIR_WINDOW_TAKEN
                                    : weir_window_source(word) == source) &&
           (tag == WEIR_ANY_TAG || weir_window_tag(word) == tag);
}

/* Whether the word has arrived at a position. */
WEIR_FN int weir_window_arrived(uint64_t word, uint64_t position, uint32_t count)
{
    return ((word ^ weir_window_lap(position, count)) >> 63) == 0;
}

/* ---- sending ------------------------------------------------------------------------------------------------- */

WEIR_FN_COLD weir_status weir_window_await_room(const weir_dev_window *window, uint32_t number, uint32_t target,
                                                uint32_t tag, uint64_t position)
{
    const uint64_t *taken = window->taken + target;
    weir_spin spin = weir_spin_begin();
    weir_status status = WEIR_OK;
    while (status == WEIR_OK && position - weir_arch_load_acquire_sys_u64(taken) >= window->count) {
        status = weir_spin_step(&spin, window->barrier.control);
    }
    return weir_dev_control_end_wait(window->barrier.control, status,
                                     weir_dev_note_of(WEIR_DOING_WINDOW_NOTIFY,
                                                      window->to[weir_window_device_of(window, target)].peer, number,
                                                      target, tag));
}

typedef weir_status weir_window_room_function(const weir_dev_window *window, uint32_t number, uint32_t target,
                                              uint32_t tag, uint64_t position);
WEIR_WINDOW_POINTER(weir_window_room_function, weir_window_await_room, weir_window_await_room);

/* Where a sender writes. */
typedef struct weir_window_ticket {
    char *shared; /* the shared part of the target's device, mapped here; NULL behind a port channel */
    uint64_t position;
    uint64_t taken;
} weir_window_ticket;

/* Draws a position in the ring of a target on `device`. The loads are under way when this returns. */
WEIR_FN weir_window_ticket weir_window_draw(const weir_dev_window *window, uint32_t device, uint32_t target)
{
    weir_window_ticket ticket;
    ticket.shared = device == window->device ? (char *)window->rings : window->to[device].shared;
    ticket.position = weir_arch_fetch_add_relaxed_dev_u64(window->sent + target, 1);
    ticket.taken = weir_arch_load_before_fence_u64(window->taken + target);
    return ticket;
}

/* Waits until there is room for the ticket. A caller that gets an error leaves the position empty; the communicator has
 * then failed, and nobody waits for the word. */
WEIR_FN weir_status weir_window_room(const weir_dev_window *window, uint32_t number, uint32_t target, uint32_t tag,
                                     weir_window_ticket ticket)
{
    return WEIR_UNLIKELY(ticket.position - ticket.taken >= window->count)
               ? WEIR_SLOW(WEIR_WINDOW_APART(weir_window_await_room, weir_window_await_room)(window, number, target,
                                                                                             tag, ticket.position))
               : WEIR_OK;
}

/* The place of a ticket's word in the shared part of the target's device. */
WEIR_FN uint64_t weir_window_word_at(const weir_dev_window *window, uint32_t device, uint32_t target, uint64_t position)
{
    return weir_window_ring_at(window, target - device * window->ranks, window->device) +
           (position & (window->count - 1)) * sizeof(uint64_t);
}

/* A word and its place, in memory that is mapped. */
typedef struct weir_window_entry {
    uint64_t *place;
    uint64_t word;
} weir_window_entry;

/* The word that a ticket with room stores, and where; before the fence, which the arithmetic would otherwise follow. */
WEIR_FN weir_window_entry weir_window_entry_of(const weir_dev_window *window, uint32_t number, uint32_t device,
                                               uint32_t target, uint32_t tag, weir_window_ticket ticket)
{
    weir_window_entry entry;
    entry.place = (uint64_t *)(ticket.shared + weir_window_word_at(window, device, target, ticket.position));
    entry.word = weir_window_word(ticket.position, window->count, number, tag);
    return entry;
}

/* The fence between a ticket and its word. The loads of the ticket may be under way meanwhile. */
WEIR_FN void weir_window_fence(const weir_dev_window *window, uint32_t device)
{
    if (device == window->device) {
        weir_arch_fence_dev();
    } else {
        weir_arch_fence_sys();
    }
}

/* Stores the entry, behind weir_window_fence. */
WEIR_FN void weir_window_store(const weir_dev_window *window, uint32_t device, weir_window_entry entry)
{
    if (device == window->device) {
        weir_arch_store_behind_fence_dev_u64(entry.place, entry.word);
    } else {
        weir_arch_store_behind_fence_sys_u64(entry.place, entry.word);
    }
}

/* Sends the word of position `position` through a port channel, once there is room. `taken` is as in a ticket. */
WEIR_FN_COLD weir_status weir_window_send_far(const weir_dev_window *window, uint32_t number, uint32_t target,
                                              uint32_t tag, uint64_t position, uint64_t taken)
{
    weir_arch_no_kernel();
    const uint32_t device = weir_window_device_of(window, target);
    const weir_window_ticket ticket = { NULL, position, taken };
    weir_status status = weir_window_room(window, number, target, tag, ticket);
    if (status != WEIR_OK) {
        return status;
    }
    status = weir_window_port_value(window, device, weir_window_word_at(window, device, target, position),
                                    weir_window_word(position, window->count, number, tag));
    return status == WEIR_OK ? WEIR_OK : weir_window_port_fail(window, device, status);
}

/* ---- taking -------------------------------------------------------------------------------------------------- */

/* The first 16 bytes of a weir_dev_window_ring: lo is the head, hi the unreported words, and a WEIR_WINDOW_HOLE for
 * each hole. */
#define WEIR_WINDOW_HOLE ((uint64_t)1 << 32)

/* Words of a ring that are taken and that the source device does not know to be free, before the head or behind it. */
WEIR_FN uint32_t weir_window_unknown(weir_vec16 head) { return (uint32_t)head.hi + (uint32_t)(head.hi >> 32); }

/* The first ring that may hold a match, and the number after the last one. */
WEIR_FN uint32_t weir_window_first_ring(const weir_dev_window *window, uint32_t source)
{
    return source == WEIR_ANY_RANK ? 0 : weir_window_device_of(window, source);
}

WEIR_FN uint32_t weir_window_end_ring(const weir_dev_window *window, uint32_t source, uint32_t first)
{
    return source == WEIR_ANY_RANK ? window->devices : first + 1;
}

/* What a look at the rings finds beside matches. */
#define WEIR_WINDOW_DUE 1u    /* the control block is to be checked */
#define WEIR_WINDOW_STUCK 2u  /* every ring is full and holds no match */
#define WEIR_WINDOW_REPORT 4u /* half of a ring is taken, and its source does not know it */
#define WEIR_WINDOW_MATCH 8u  /* a word was taken */

/* Words that a look loads at once. */
#define WEIR_WINDOW_BATCH 2

/* Takes matches out of the rings, the oldest of each first, until none of `*missing` is missing or no word is left to
 * look at. `bits` is the result of the wait's last look. `again`: the wait has looked before, and goes on in each ring
 * where it ended. weir_window_end_look follows the look that has found all. A look calls no function: its many
 * registers would add to those of the function. */
WEIR_FN uint32_t weir_window_look(const weir_dev_window *window, uint32_t index, uint32_t source, uint32_t tag,
                                  uint64_t *missing, uint32_t bits, int again)
{
    const uint32_t count = window->count;
    const uint32_t first = weir_window_first_ring(window, source);
    const uint32_t end = weir_window_end_ring(window, source, first);
    uint64_t left = *missing;
    bits = (bits & WEIR_WINDOW_DUE) | WEIR_WINDOW_STUCK;
    WEIR_ROLLED
    for (uint32_t device = first; device < end && left != 0; device++) {
        uint64_t *ring = (uint64_t *)((char *)window->rings + weir_window_ring_at(window, index, device));
        weir_vec16 *state = (weir_vec16 *)(weir_window_states(window, index) + device);
        weir_vec16 words = weir_arch_load_vec16(state);
        /* The next word, counted from the head. */
        uint32_t ahead = again ? (uint32_t)(weir_arch_load_u64((const weir_alias_u64 *)state + 2) - words.lo) : 0;
        int changed = !again;
        int ends = 0;
        WEIR_ROLLED
        while (!ends && ahead < count) {
            const uint32_t start = (uint32_t)words.lo + ahead;
            uint64_t batch[WEIR_WINDOW_BATCH];
            WEIR_UNROLL
            for (uint32_t k = 0; k < WEIR_WINDOW_BATCH; k++) {
                batch[k] = weir_arch_load_before_acquire_sys_u64(ring + ((start + k) & (count - 1)));
            }
            WEIR_UNROLL
            for (uint32_t k = 0; k < WEIR_WINDOW_BATCH; k++) {
                const uint64_t word = batch[k];
                const int is_hole = ahead == 0 && weir_window_source(word) == WEIR_WINDOW_TAKEN;
                /* A word one lap ahead of the head has not arrived: its slot has that of the head. */
                ends = ends || !weir_window_arrived(word, start + k, count) || (left == 0 && !is_hole);
                if (ends) {
                    continue;
                }
                changed = 1;
                if (is_hole) {
                    words.lo++;
                    words.hi -= WEIR_WINDOW_HOLE - 1;
                } else if (!weir_window_matches(word, source, tag)) {
                    ahead++;
                } else {
                    weir_arch_store_u64((weir_alias_u64 *)weir_window_passed(window, index), word);
                    left--;
                    bits |= WEIR_WINDOW_MATCH | (weir_spin_is_due(start + k) ? WEIR_WINDOW_DUE : 0);
                    if (ahead == 0) {
                        words.lo++;
                        words.hi++;
                    } else {
                        weir_arch_store_relaxed_sys_u64(ring + ((start + k) & (count - 1)),
                                                        weir_window_lap(start + k, count) | WEIR_WINDOW_TAKEN);
                        words.hi += WEIR_WINDOW_HOLE;
                        ahead++;
                    }
                }
            }
        }
        if (ahead != count || words.hi >= WEIR_WINDOW_HOLE) {
            bits &= ~WEIR_WINDOW_STUCK;
        }
        if (changed) {
            bits |= weir_window_unknown(words) >= count / 2 ? WEIR_WINDOW_REPORT : 0;
            weir_arch_store_vec16(state, words);
            weir_arch_store_u64((weir_alias_u64 *)state + 2, words.lo + ahead);
        }
    }
    *missing = left;
    return bits;
}

/* Reports to the source device that this device's rank `index` has taken all words before `head`. A report that cannot
 * be posted fails the communicator: the device's senders would otherwise wait for room until the deadline. */
WEIR_FN void weir_window_credit(const weir_dev_window *window, uint32_t index, uint32_t device, uint64_t head)
{
    const uint64_t place = window->taken_at + (window->device * window->ranks + index) * sizeof(uint64_t);
    char *shared = window->to[device].shared;
    if (device == window->device) {
        weir_arch_store_release_dev_u64((uint64_t *)(shared + place), head);
    } else if (WEIR_UNLIKELY(shared == NULL)) {
        const weir_status status = weir_window_port_value(window, device, place, head);
        if (status != WEIR_OK) {
            (void)WEIR_SLOW(weir_window_port_fail(window, device, status));
        }
    } else {
        weir_arch_store_release_sys_u64((uint64_t *)(shared + place), head);
    }
}

/* Moves the words of a ring that are not taken behind its holes, in their order, and the head to the first of them.
 * Returns the new head, which it stores, too. A wait looks at them again. The word that a sender has stored becomes one
 * that this thread has stored, so an acquire comes before. 32 bits of a position are enough to find a word and its lap:
 * a ring has at most 2^21 words. */
WEIR_FN weir_vec16 weir_window_close_holes(const weir_dev_window *window, uint32_t index, uint32_t device,
                                           weir_vec16 head)
{
    const uint32_t count = window->count;
    uint64_t *ring = (uint64_t *)((char *)window->rings + weir_window_ring_at(window, index, device));
    weir_vec16 *state = (weir_vec16 *)(weir_window_states(window, index) + device);
    const uint32_t first = (uint32_t)head.lo;
    uint32_t words = 0;
    WEIR_ROLLED
    while (words < count &&
           weir_window_arrived(weir_arch_load_before_acquire_sys_u64(ring + ((first + words) & (count - 1))),
                               first + words, count)) {
        words++;
    }
    weir_arch_fence_acquire_sys();
    uint32_t moved = words;
    WEIR_ROLLED
    while (words-- != 0) {
        const uint64_t word = weir_arch_load_relaxed_sys_u64(ring + ((first + words) & (count - 1)));
        if (weir_window_source(word) != WEIR_WINDOW_TAKEN) {
            moved--;
            weir_arch_store_relaxed_sys_u64(
                ring + ((first + moved) & (count - 1)),
                weir_window_word(first + moved, count, weir_window_source(word), weir_window_tag(word)));
        }
    }
    head.hi = (uint32_t)head.hi + moved;
    head.lo += moved;
    weir_arch_store_vec16(state, head);
    weir_arch_store_u64((weir_alias_u64 *)state + 2, head.lo);
    return head;
}

/* Reports the heads of the rings of this device's rank `index` whose source devices do not know at least `least` taken
 * words, after closing the holes. A long wait reports all heads: a ring without a match counts too, because its senders
 * may be the ones that the awaited source waits for. */
WEIR_FN_COLD void weir_window_credit_all(const weir_dev_window *window, uint32_t index, uint32_t least)
{
    weir_arch_no_kernel();
    WEIR_ROLLED
    for (uint32_t device = 0; device < window->devices; device++) {
        weir_vec16 *state = (weir_vec16 *)(weir_window_states(window, index) + device);
        weir_vec16 words = weir_arch_load_vec16(state);
        if (weir_window_unknown(words) >= least) {
            if (words.hi >= WEIR_WINDOW_HOLE) {
                words = weir_window_close_holes(window, index, device, words);
            }
            words.hi = 0;
            weir_arch_store_vec16(state, words);
            weir_window_credit(window, index, device, words.lo);
        }
    }
}

/* The note of a wait of this device's rank `index`; `peer` is a rank of the communicator, or WEIR_NO_PEER. */
WEIR_FN weir_dev_note weir_window_wait_note(const weir_dev_window *window, uint32_t peer, uint32_t index,
                                            uint32_t source, uint32_t tag)
{
    return weir_dev_note_of(WEIR_DOING_WINDOW_WAIT, peer, window->device * window->ranks + index, source, tag);
}

/* The end of a wait that takes no more words: with WEIR_ERR_LIMIT all its rings are full and hold no match. */
WEIR_FN_COLD weir_status weir_window_end_wait(const weir_dev_window *window, uint32_t index, uint32_t source,
                                              uint32_t tag, weir_status status)
{
    weir_dev_control *control = window->barrier.control;
    const uint32_t peer =
        source == WEIR_ANY_RANK ? WEIR_NO_PEER : window->to[weir_window_first_ring(window, source)].peer;
    const weir_dev_note note = weir_window_wait_note(window, peer, index, source, tag);
    return status == WEIR_ERR_LIMIT ? weir_dev_control_fail_in(control, status, note)
                                    : weir_dev_control_end_wait(control, status, note);
}

/* The end of a look that has found all matches. One acquire is enough for all words that the wait has taken. */
WEIR_FN weir_status weir_window_end_look(const weir_dev_window *window, uint32_t index, uint32_t bits)
{
    weir_arch_fence_acquire_sys();
    if (WEIR_UNLIKELY((bits & WEIR_WINDOW_REPORT) != 0)) {
        WEIR_SLOW(weir_window_credit_all(window, index, window->count / 2));
    }
    return WEIR_UNLIKELY((bits & WEIR_WINDOW_DUE) != 0) ? weir_spin_look_once(window->barrier.control) : WEIR_OK;
}

/* The time of the first check of a wait, in the rank's line: in a register it would add to those of every kernel that
 * waits. */
WEIR_FN weir_alias_u64 *weir_window_since(const weir_dev_window *window, uint32_t index)
{
    return (weir_alias_u64 *)weir_window_passed(window, index) + 2;
}

/* After failed look number `looks` of a wait, whose weir_window_since was 0 before the first one. Returns as
 * weir_spin_step. The number may wrap. */
WEIR_FN_COLD weir_status weir_window_step(const weir_dev_window *window, uint32_t index, uint32_t looks)
{
    weir_alias_u64 *since = weir_window_since(window, index);
    weir_spin spin;
    spin.reads = looks - 1;
    spin.since_ns = weir_arch_load_u64(since);
    const weir_status status = weir_spin_step(&spin, window->barrier.control);
    if (looks % WEIR_ARCH_SPIN_READS == 0) {
        weir_arch_store_u64(since, spin.since_ns);
    }
    return status;
}

/* weir_window_collect in all its cases. */
WEIR_FN_COLD weir_status weir_window_collect_any(const weir_dev_window *window, uint32_t index, uint32_t source,
                                                 uint32_t tag, uint64_t count)
{
    weir_arch_no_kernel();
    uint32_t bits = 0;
    uint32_t looks = 0;
    uint32_t idle = 0; /* looks since the last match */
    weir_status status = WEIR_OK;
    weir_arch_store_u64(weir_window_since(window, index), 0);
    while (status == WEIR_OK) {
        bits = weir_window_look(window, index, source, tag, &count, bits, looks != 0);
        if (count == 0) {
            return weir_window_end_look(window, index, bits);
        }
        looks++;
        idle = (bits & WEIR_WINDOW_MATCH) != 0 ? 0 : idle + 1;
        if (WEIR_UNLIKELY(idle == WEIR_WINDOW_CREDIT_LOOKS || (bits & WEIR_WINDOW_REPORT) != 0)) {
            weir_window_credit_all(window, index, idle == WEIR_WINDOW_CREDIT_LOOKS ? 1 : window->count / 2);
        }
        status = (bits & WEIR_WINDOW_STUCK) != 0 ? WEIR_ERR_LIMIT : weir_window_step(window, index, looks);
    }
    return weir_window_end_wait(window, index, source, tag, status);
}

typedef weir_status weir_window_collect_function(const weir_dev_window *window, uint32_t index, uint32_t source,
                                                 uint32_t tag, uint64_t count);
WEIR_WINDOW_POINTER(weir_window_collect_function, weir_window_collect_any, weir_window_collect_any);

/* Behind a word that was taken: steps over taken words at the head, closes holes and reports the head if half of the
 * ring has been taken since the last report, and checks the control block if the wait is due. */
WEIR_FN_COLD weir_status weir_window_after_take(const weir_dev_window *window, uint32_t index, uint32_t device, int due)
{
    weir_arch_no_kernel();
    const uint64_t *ring = (const uint64_t *)((char *)window->rings + weir_window_ring_at(window, index, device));
    weir_vec16 *state = (weir_vec16 *)(weir_window_states(window, index) + device);
    weir_vec16 head = weir_arch_load_vec16(state);
    WEIR_ROLLED
    while (head.hi >= WEIR_WINDOW_HOLE && weir_window_source(weir_arch_load_relaxed_sys_u64(
                                              ring + (head.lo & (window->count - 1)))) == WEIR_WINDOW_TAKEN) {
        head.lo++;
        head.hi -= WEIR_WINDOW_HOLE - 1;
    }
    if (weir_window_unknown(head) >= window->count / 2) {
        if (head.hi >= WEIR_WINDOW_HOLE) {
            head = weir_window_close_holes(window, index, device, head);
        }
        head.hi = 0;
        weir_window_credit(window, index, device, head.lo);
    }
    weir_arch_store_vec16(state, head);
    return due ? weir_spin_look_once(window->barrier.control) : WEIR_OK;
}

/* Whether a wait that moved the head from `from` to `to` checks the control block: weir_spin_is_due is for numbers that
 * grow by one. */
WEIR_FN int weir_window_is_due(uint64_t from, uint64_t to)
{
#if defined(WEIR_UNCHECKED_WAITS)
    (void)from, (void)to;
    return 0;
#else
    return from / WEIR_ARCH_LOOK_WAITS != to / WEIR_ARCH_LOOK_WAITS;
#endif
}

/* Looks for one match in a ring whose head does not match, for as long as a short wait lasts. Returns the word, whose
 * place is then taken, or WEIR_WINDOW_NONE. weir_window_after_take follows: taken words may lie at the head. */
WEIR_FN_COLD uint64_t weir_window_take_behind(const weir_dev_window *window, uint32_t index, uint32_t source,
                                              uint32_t tag, weir_vec16 head)
{
    const uint32_t device = weir_window_first_ring(window, source);
    const uint32_t size = window->count;
    uint64_t *ring = (uint64_t *)((char *)window->rings + weir_window_ring_at(window, index, device));
    uint32_t reads = WEIR_ARCH_FAST_READS;
    uint32_t ahead = 0;
    while (ahead < size) {
        uint64_t *slot = ring + ((head.lo + ahead) & (size - 1));
        uint64_t word = weir_arch_load_relaxed_sys_u64(slot);
        const uint64_t next = weir_arch_load_relaxed_sys_u64(ring + ((head.lo + ahead + 1) & (size - 1)));
        const int arrived = weir_window_arrived(word, head.lo + ahead, size);
        if (arrived && !weir_window_matches(word, source, tag)) {
            ahead++;
            slot = ring + ((head.lo + ahead) & (size - 1));
            word = next;
        } else if (!arrived && weir_spin_is_long(&reads)) {
            break;
        }
        if (!weir_window_arrived(word, head.lo + ahead, size) || ahead == size) {
            continue;
        }
        if (!weir_window_matches(word, source, tag)) {
            ahead++;
            continue;
        }
        weir_arch_acquire_loaded_sys_u64(slot);
        weir_arch_store_relaxed_sys_u64(slot, weir_window_lap(head.lo + ahead, size) | WEIR_WINDOW_TAKEN);
        head.hi += WEIR_WINDOW_HOLE;
        weir_arch_store_vec16((weir_vec16 *)(weir_window_states(window, index) + device), head);
        return word;
    }
    return WEIR_WINDOW_NONE;
}

/* Waits for `count` matches and takes them as they come. By one thread. With `pass` the last word is stored for the
 * group. The fast part takes one word of the only ring that can hold a match, at the head or behind it: two neighbours
 * may send in either order. It keeps the head in a register while it polls, and loads nothing after the words. */
WEIR_FN weir_status weir_window_collect(const weir_dev_window *window, uint32_t index, uint32_t source, uint32_t tag,
                                        uint64_t count, int pass)
{
    if (count == 1 && (source != WEIR_ANY_RANK || window->devices == 1)) {
        const uint32_t device = weir_window_first_ring(window, source);
        const uint32_t size = window->count;
        weir_vec16 *state = (weir_vec16 *)(weir_window_states(window, index) + device);
        weir_vec16 head = weir_arch_load_vec16(state);
        uint64_t *ring = (uint64_t *)((char *)window->rings + weir_window_ring_at(window, index, device));
        uint64_t *slot = ring + (head.lo & (size - 1));
        uint64_t *behind = ring + ((head.lo + 1) & (size - 1));
        uint32_t reads = WEIR_ARCH_FAST_READS;
        uint64_t first;
        uint64_t second;
        int hit;
        int miss;
        WEIR_ROLLED
        do {
            first = weir_arch_load_relaxed_sys_u64(slot);
            second = weir_arch_load_relaxed_sys_u64(behind);
            const int arrived = weir_window_arrived(first, head.lo, size);
            hit = arrived && weir_window_matches(first, source, tag);
            miss = arrived && !hit && weir_window_arrived(second, head.lo + 1, size);
        } while (!hit && !miss && !weir_spin_is_long(&reads));
        const uint64_t before = head.lo;
        uint64_t word = first;
        int rest = 0; /* taken words may lie at the head */
        if (hit) {
            const int is_hole = head.hi >= WEIR_WINDOW_HOLE && weir_window_source(second) == WEIR_WINDOW_TAKEN &&
                                weir_window_arrived(second, head.lo + 1, size);
            weir_arch_acquire_loaded_sys_u64(slot);
            head.lo += 1 + (uint64_t)is_hole;
            head.hi += is_hole ? 2 - WEIR_WINDOW_HOLE : 1;
            weir_arch_store_vec16(state, head);
            rest = is_hole && head.hi >= WEIR_WINDOW_HOLE;
        } else if (miss && weir_window_matches(second, source, tag)) {
            word = second;
            weir_arch_acquire_loaded_sys_u64(behind);
            weir_arch_store_relaxed_sys_u64(behind, weir_window_lap(head.lo + 1, size) | WEIR_WINDOW_TAKEN);
            head.hi += WEIR_WINDOW_HOLE;
            weir_arch_store_vec16(state, head);
        } else if (miss) {
            word = weir_window_take_behind(window, index, source, tag, head);
            rest = 1;
        } else {
            word = WEIR_WINDOW_NONE;
        }
        if (word != WEIR_WINDOW_NONE) {
            if (pass) {
                weir_arch_store_u64((weir_alias_u64 *)weir_window_passed(window, index), word);
            }
            const int due = weir_window_is_due(before, head.lo);
            return WEIR_UNLIKELY(weir_window_unknown(head) >= size / 2 || due || rest)
                       ? WEIR_SLOW(weir_window_after_take(window, index, device, due))
                       : WEIR_OK;
        }
    }
    return WEIR_SLOW(
        WEIR_WINDOW_APART(weir_window_collect_any, weir_window_collect_any)(window, index, source, tag, count));
}

/* Subtracts the matches in the rings from `*missing`, up to all of it, and takes nothing. Returns whether the rings can
 * never hold `*missing` matches as they are: all are full, or together too small. */
WEIR_FN int weir_window_count(const weir_dev_window *window, uint32_t index, uint32_t source, uint32_t tag,
                              uint64_t *missing)
{
    const uint32_t count = window->count;
    const uint32_t first = weir_window_first_ring(window, source);
    const uint32_t end = weir_window_end_ring(window, source, first);
    uint64_t left = *missing;
    const int never = left > (uint64_t)count * (end - first);
    int full = 1;
    WEIR_ROLLED
    for (uint32_t device = first; device < end; device++) {
        const uint64_t *ring = (const uint64_t *)((char *)window->rings + weir_window_ring_at(window, index, device));
        const weir_vec16 state = weir_arch_load_vec16((weir_vec16 *)(weir_window_states(window, index) + device));
        const uint64_t head = state.lo;
        uint64_t at = head;
        WEIR_ROLLED
        for (; left != 0 && at - head < count; at++) {
            const uint64_t word = weir_arch_load_relaxed_sys_u64(ring + (at & (count - 1)));
            if (!weir_window_arrived(word, at, count)) {
                break;
            }
            left -= (uint64_t)weir_window_matches(word, source, tag);
        }
        full = full && at - head == count && state.hi < WEIR_WINDOW_HOLE;
    }
    *missing = left;
    return full || never;
}

/* Takes `count` matches if that many have arrived, otherwise none. By one thread. A poll may come before its caller
 * takes something else, so full rings are not the communicator's error. */
WEIR_FN_COLD weir_status weir_window_try(const weir_dev_window *window, uint32_t index, uint32_t source, uint32_t tag,
                                         uint64_t count)
{
    weir_arch_no_kernel();
    uint64_t missing = count;
    const int stuck = weir_window_count(window, index, source, tag, &missing);
    if (missing != 0) {
        /* The senders may be waiting for room: nobody else tells them about the words taken so far. */
        weir_window_credit_all(window, index, 1);
        if (stuck) {
            return WEIR_ERR_LIMIT;
        }
        const weir_status status = weir_dev_control_status(window->barrier.control);
        return status != WEIR_OK ? status : WEIR_PENDING;
    }
    return weir_window_end_look(window, index, weir_window_look(window, index, source, tag, &count, 0, 0));
}

#endif
