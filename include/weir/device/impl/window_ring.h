/* weir/device/impl/window_ring.h - the rings of notifications.
 *
 * A rank has a ring for each source device. A word of a ring is a notification: the parity of its lap in the top bit,
 * 31 bits of tag, 32 bits of source. The lap marks its arrival, as in a fifo's slot: words need no clearing, and memory
 * that was never written holds no notification.
 *
 * The source device draws positions from a counter in its own memory. Beside it lies the number of words that the
 * target has taken. A sender whose position is a whole lap ahead of that number waits. It reads the number by an
 * acquire: the slot's earlier word may come from another thread, and the new word must follow it. The target stores the
 * number when half of the ring has been taken since, and exactly before a long wait. Half of the ring is therefore
 * always free once the target has taken everything, and no thread polls another device's memory.
 *
 * The waiting thread polls by relaxed loads, because an acquire empties the first-level cache of its multiprocessor. It
 * loads each word that it takes once more, by an acquire. A word taken behind the head is replaced by
 * WEIR_WINDOW_TAKEN, which the head later steps over.
 *
 * A full ring without a match can never bring one: its rank has one waiting group at a time, and the source device
 * knows the head, because it has filled the ring up to one lap behind it. */
#ifndef WEIR_DEVICE_IMPL_WINDOW_RING_H
#define WEIR_DEVICE_IMPL_WINDOW_RING_H

#include "weir/device/coop.h"
#include "weir/device/impl/window_layout.h"

#define WEIR_ANY_RANK UINT32_MAX /* source of any rank */
#define WEIR_ANY_TAG UINT32_MAX

/* The source of a word that is taken. No rank has this number. */
#define WEIR_WINDOW_TAKEN ((uint64_t)UINT32_MAX)

/* Failed looks at the rings after which a waiting thread reports its exact heads. */
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

/* The notifications that a wait takes: a word matches if it equals `want` in the bits of `mask`. */
typedef struct weir_window_filter {
    uint64_t mask;
    uint64_t want;
} weir_window_filter;

WEIR_FN weir_window_filter weir_window_filter_of(uint32_t source, uint32_t tag)
{
    weir_window_filter filter;
    filter.mask = (source == WEIR_ANY_RANK ? 0 : (uint64_t)UINT32_MAX) |
                  (tag == WEIR_ANY_TAG ? 0 : (uint64_t)WEIR_WINDOW_TAG_MAX << 32);
    filter.want = ((uint64_t)tag << 32 | source) & filter.mask;
    return filter;
}

WEIR_FN int weir_window_matches(weir_window_filter filter, uint64_t word)
{
    return ((word ^ filter.want) & filter.mask) == 0 && weir_window_source(word) != WEIR_WINDOW_TAKEN;
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
    return weir_dev_control_end_wait(
        window->barrier.control, status,
        weir_dev_note_of(WEIR_DOING_WINDOW_NOTIFY, window->to[target / window->ranks].peer, number, target, tag));
}

/* Draws a position in the target's ring and waits until there is room for it. A caller that gets an error leaves the
 * position empty; the communicator has then failed, and nobody waits for the word. */
WEIR_FN weir_status weir_window_reserve(const weir_dev_window *window, uint32_t number, uint32_t target, uint32_t tag,
                                        uint64_t *position)
{
    *position = weir_arch_fetch_add_relaxed_dev_u64(window->sent + target, 1);
    const uint64_t taken = weir_arch_load_acquire_sys_u64(window->taken + target);
    return WEIR_UNLIKELY(*position - taken >= window->count)
               ? weir_window_await_room(window, number, target, tag, *position)
               : WEIR_OK;
}

/* A release store to memory of a device whose memory is mapped here. */
WEIR_FN void weir_window_store(uint32_t way, uint64_t *word, uint64_t value)
{
    if (way == WEIR_WINDOW_OWN) {
        weir_arch_store_release_dev_u64(word, value);
    } else {
        weir_arch_store_release_sys_u64(word, value);
    }
}

/* Sends the word of a position that weir_window_reserve returned. */
WEIR_FN void weir_window_send(const weir_dev_window *window, uint32_t number, uint32_t target, uint32_t tag,
                              uint64_t position)
{
    const uint32_t device = target / window->ranks;
    const uint32_t index = target - device * window->ranks;
    uint64_t *ring = (uint64_t *)(window->to[device].shared + weir_window_ring_at(window, index, window->device));
    weir_window_store(window->to[device].way, ring + (position & (window->count - 1)),
                      weir_window_word(position, window->count, number, tag));
}

/* ---- taking -------------------------------------------------------------------------------------------------- */

/* Reports to the source device that this device's rank `index` has taken all words before `head`. */
WEIR_FN void weir_window_credit(const weir_dev_window *window, uint32_t index, uint32_t device, uint64_t head)
{
    const weir_dev_window_device *to = window->to + device;
    uint64_t *taken = (uint64_t *)(to->shared + window->taken_at);
    weir_window_store(to->way, taken + (window->device * window->ranks + index), head);
}

/* What a look at the rings has found. */
typedef struct weir_window_found {
    uint64_t left; /* matches that are missing */
    uint32_t full; /* rings that are full and hold no match */
    uint32_t due;  /* the control block is to be checked */
} weir_window_found;

/* Takes matches out of the ring of source device `device`, the oldest first, until none is missing or no word is left
 * to look at. `again`: the wait has looked at this ring before, and goes on where it ended. */
WEIR_FN void weir_window_scan(const weir_dev_window *window, uint32_t index, uint32_t device, weir_window_filter filter,
                              int again, weir_window_found *found)
{
    const uint32_t count = window->count;
    uint64_t *ring = (uint64_t *)((char *)window->rings + weir_window_ring_at(window, index, device));
    weir_vec16 *state = (weir_vec16 *)(weir_window_states(window, index) + device);
    weir_vec16 heads = weir_arch_load_vec16(state);     /* head, credited */
    weir_vec16 looks = weir_arch_load_vec16(state + 1); /* looked, holes */
    uint64_t at = again ? looks.lo : heads.lo;
    const uint64_t start = at;
    WEIR_ROLLED
    while (found->left != 0 && at - heads.lo < count) {
        uint64_t *slot = ring + (at & (count - 1));
        uint64_t word = weir_arch_load_relaxed_sys_u64(slot);
        if (((word ^ weir_window_lap(at, count)) >> 63) != 0) {
            break;
        }
        if (weir_window_matches(filter, word)) {
            word = weir_arch_load_acquire_sys_u64(slot);
            weir_arch_store_u64((weir_alias_u64 *)weir_window_passed(window, index), word);
            found->left--;
            found->due |= (uint32_t)weir_spin_is_due(at);
            if (at == heads.lo) {
                heads.lo++;
            } else {
                weir_arch_store_relaxed_sys_u64(slot, weir_window_lap(at, count) | WEIR_WINDOW_TAKEN);
                looks.hi++;
            }
        }
        at++;
    }
    WEIR_ROLLED
    while (WEIR_UNLIKELY(looks.hi != 0) &&
           weir_window_source(weir_arch_load_relaxed_sys_u64(ring + (heads.lo & (count - 1)))) == WEIR_WINDOW_TAKEN) {
        heads.lo++;
        looks.hi--;
    }
    found->full += at - heads.lo == count;
    if (at == start && again) {
        return;
    }
    if (WEIR_UNLIKELY(heads.lo - heads.hi >= count / 2)) {
        weir_window_credit(window, index, device, heads.lo);
        heads.hi = heads.lo;
    }
    looks.lo = at;
    weir_arch_store_vec16(state, heads);
    weir_arch_store_vec16(state + 1, looks);
}

/* Reports the exact heads of all rings of this device's rank `index`. A ring without a match counts too: its senders
 * may be the ones that the awaited source waits for. */
WEIR_FN_COLD void weir_window_credit_all(const weir_dev_window *window, uint32_t index)
{
    WEIR_ROLLED
    for (uint32_t device = 0; device < window->devices; device++) {
        weir_vec16 *state = (weir_vec16 *)(weir_window_states(window, index) + device);
        weir_vec16 heads = weir_arch_load_vec16(state);
        if (heads.lo != heads.hi) {
            weir_window_credit(window, index, device, heads.lo);
            heads.hi = heads.lo;
            weir_arch_store_vec16(state, heads);
        }
    }
}

/* The first ring that may hold a match, and the number after the last one. */
WEIR_FN uint32_t weir_window_first_ring(const weir_dev_window *window, uint32_t source)
{
    return source == WEIR_ANY_RANK ? 0 : source / window->ranks;
}

WEIR_FN uint32_t weir_window_end_ring(const weir_dev_window *window, uint32_t source, uint32_t first)
{
    return source == WEIR_ANY_RANK ? window->devices : first + 1;
}

/* The note of a wait of this device's rank `index`; `peer` is a rank of the communicator, or WEIR_NO_PEER. */
WEIR_FN weir_dev_note weir_window_wait_note(const weir_dev_window *window, uint32_t peer, uint32_t index,
                                            uint32_t source, uint32_t tag)
{
    return weir_dev_note_of(WEIR_DOING_WINDOW_WAIT, peer, window->device * window->ranks + index, source, tag);
}

/* The end of a wait that takes no more words. */
WEIR_FN_COLD weir_status weir_window_end_wait(const weir_dev_window *window, uint32_t index, uint32_t source,
                                              uint32_t tag, weir_status status)
{
    const uint32_t peer =
        source == WEIR_ANY_RANK ? WEIR_NO_PEER : window->to[weir_window_first_ring(window, source)].peer;
    return weir_dev_control_end_wait(window->barrier.control, status,
                                     weir_window_wait_note(window, peer, index, source, tag));
}

/* The error of a wait whose rings are all full and hold no match. */
WEIR_FN_COLD weir_status weir_window_overflow(const weir_dev_window *window, uint32_t index, uint32_t source,
                                              uint32_t tag)
{
    const uint32_t peer = window->to[weir_window_first_ring(window, source)].peer;
    return weir_dev_control_fail_in(window->barrier.control, WEIR_ERR_LIMIT,
                                    weir_window_wait_note(window, peer, index, source, tag));
}

/* Waits for `count` matches and takes them as they come. By one thread. */
WEIR_FN_COLD weir_status weir_window_collect(const weir_dev_window *window, uint32_t index, uint32_t source,
                                             uint32_t tag, uint64_t count)
{
    const weir_window_filter filter = weir_window_filter_of(source, tag);
    const uint32_t first = weir_window_first_ring(window, source);
    const uint32_t end = weir_window_end_ring(window, source, first);
    weir_spin spin = weir_spin_begin();
    weir_window_found found;
    found.left = count;
    found.due = 0;
    for (;;) {
        found.full = 0;
        WEIR_ROLLED
        for (uint32_t device = first; device < end && found.left != 0; device++) {
            weir_window_scan(window, index, device, filter, spin.reads != 0, &found);
        }
        if (found.left == 0) {
            return WEIR_UNLIKELY(found.due) ? weir_spin_look_once(window->barrier.control) : WEIR_OK;
        }
        if (WEIR_UNLIKELY(found.full == end - first)) {
            return weir_window_overflow(window, index, source, tag);
        }
        if (WEIR_UNLIKELY(spin.reads == WEIR_WINDOW_CREDIT_LOOKS)) {
            weir_window_credit_all(window, index);
        }
        const weir_status status = weir_spin_step(&spin, window->barrier.control);
        if (WEIR_UNLIKELY(status != WEIR_OK)) {
            return weir_window_end_wait(window, index, source, tag, status);
        }
    }
}

/* Counts the matches in a ring, up to those that are missing; takes nothing. */
WEIR_FN void weir_window_count(const weir_dev_window *window, uint32_t index, uint32_t device,
                               weir_window_filter filter, weir_window_found *found)
{
    const uint32_t count = window->count;
    const uint64_t *ring = (const uint64_t *)((char *)window->rings + weir_window_ring_at(window, index, device));
    const uint64_t head = weir_arch_load_vec16((weir_vec16 *)(weir_window_states(window, index) + device)).lo;
    uint64_t at = head;
    WEIR_ROLLED
    for (; found->left != 0 && at - head < count; at++) {
        const uint64_t word = weir_arch_load_relaxed_sys_u64(ring + (at & (count - 1)));
        if (((word ^ weir_window_lap(at, count)) >> 63) != 0) {
            break;
        }
        found->left -= (uint64_t)weir_window_matches(filter, word);
    }
    found->full += at - head == count;
}

/* Takes `count` matches if that many have arrived, otherwise none. By one thread. A poll may come before its caller
 * takes something else, so full rings are not the communicator's error. */
WEIR_FN_COLD weir_status weir_window_try(const weir_dev_window *window, uint32_t index, uint32_t source, uint32_t tag,
                                         uint64_t count)
{
    const weir_window_filter filter = weir_window_filter_of(source, tag);
    const uint32_t first = weir_window_first_ring(window, source);
    const uint32_t end = weir_window_end_ring(window, source, first);
    weir_window_found found;
    found.left = count;
    found.full = 0;
    found.due = 0;
    WEIR_ROLLED
    for (uint32_t device = first; device < end; device++) {
        weir_window_count(window, index, device, filter, &found);
    }
    if (found.left != 0) {
        /* The senders may be waiting for room: nobody else tells them about the words taken so far. */
        weir_window_credit_all(window, index);
        if (found.full == end - first || count > (uint64_t)window->count * (end - first)) {
            return WEIR_ERR_LIMIT;
        }
        const weir_status status = weir_dev_control_status(window->barrier.control);
        return status != WEIR_OK ? status : WEIR_PENDING;
    }
    found.left = count;
    WEIR_ROLLED
    for (uint32_t device = first; device < end && found.left != 0; device++) {
        weir_window_scan(window, index, device, filter, 0, &found);
    }
    return WEIR_UNLIKELY(found.due) ? weir_spin_look_once(window->barrier.control) : WEIR_OK;
}

#endif
