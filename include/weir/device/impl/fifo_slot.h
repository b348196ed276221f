/* weir/device/impl/fifo_slot.h - the slots of a fifo: their words, their room, and how they are written and read.
 *
 * A slot is WEIR_FIFO_WORDS words of 63 bits. The top bit of each word is the parity of the lap and marks the word's
 * arrival. So words may arrive in any order, slots need no clearing, and stores of 8 bytes are enough. Memory that was
 * never written holds no request.
 *
 * One thread at a time reads over PCIe how much room the host has given back. It reads only when half of the slots have
 * been used since the last read, or when no room is known.
 *
 * Order, Threads, Blocking, Errors: as weir/device/fifo.h. */
#ifndef WEIR_DEVICE_IMPL_FIFO_SLOT_H
#define WEIR_DEVICE_IMPL_FIFO_SLOT_H

#include "weir/device/impl/spin.h"
#include "weir/device/request.h"

#define WEIR_FIFO_WORDS 6u      /* words of a slot that are used */
#define WEIR_FIFO_SLOT_WORDS 8u /* distance of slots in words: requests do not share cache lines */
#define WEIR_FIFO_LAP ((uint64_t)1 << 63)

/* The six words of a request without the lap, 63 bits each. The first word holds the top bits of the 64-bit fields. */
WEIR_FN void weir_dev_request_encode(const weir_request *request, uint64_t *words)
{
    words[0] = request->type | (uint64_t)request->channel << 16 | request->remote_offset >> 63 << 48 |
               request->local_offset >> 63 << 49 | request->bytes >> 63 << 50 | request->value >> 63 << 51 |
               (uint64_t)(request->local >> 31) << 52;
    words[1] = request->remote | (uint64_t)(request->local & 0x7fffffffu) << 32;
    words[2] = request->remote_offset & ~WEIR_FIFO_LAP;
    words[3] = request->local_offset & ~WEIR_FIFO_LAP;
    words[4] = request->bytes & ~WEIR_FIFO_LAP;
    words[5] = request->value & ~WEIR_FIFO_LAP;
}

/* Ignores the laps. */
WEIR_FN void weir_dev_request_decode(const uint64_t *words, weir_request *request)
{
    uint64_t first = words[0];
    request->type = (uint16_t)first;
    request->reserved = 0;
    request->channel = (uint32_t)(first >> 16);
    request->remote = (uint32_t)words[1];
    request->local = (uint32_t)(words[1] >> 32 & 0x7fffffffu) | (uint32_t)(first >> 52 & 1) << 31;
    request->remote_offset = (words[2] & ~WEIR_FIFO_LAP) | (first >> 48 & 1) << 63;
    request->local_offset = (words[3] & ~WEIR_FIFO_LAP) | (first >> 49 & 1) << 63;
    request->bytes = (words[4] & ~WEIR_FIFO_LAP) | (first >> 50 & 1) << 63;
    request->value = (words[5] & ~WEIR_FIFO_LAP) | (first >> 51 & 1) << 63;
}

/* The lap bit of the request at `position`. */
WEIR_FN uint64_t weir_dev_fifo_lap(uint64_t position, uint32_t count)
{
    return (position & count) == 0 ? WEIR_FIFO_LAP : 0;
}

/* ---- room: slots of a fifo, and credits of a channel in weir/device/proxy.h --------------------------------- */

/* Takes one of `limit` if room is known. */
WEIR_FN int weir_dev_credits_take(weir_dev_credits *credits, uint64_t limit)
{
    if (WEIR_UNLIKELY(weir_arch_fetch_add_relaxed_dev_u64(&credits->used, 1) >= limit)) {
        weir_arch_add_relaxed_dev_u64(&credits->used, (uint64_t)-1);
        return 0;
    }
    return 1;
}

/* Reads how much the host has given back, unless another thread is reading it. */
WEIR_FN_COLD void weir_dev_credits_refresh(weir_dev_credits *credits, const uint64_t *returned)
{
    if (weir_arch_load_relaxed_dev_u64(&credits->refreshing) != 0 ||
        weir_arch_fetch_or_acquire_dev_u64(&credits->refreshing, 1) != 0) {
        return;
    }
    uint64_t seen = weir_arch_load_relaxed_dev_u64(&credits->seen);
    uint64_t now = weir_arch_load_acquire_sys_u64(returned);
    if (now != seen) {
        weir_arch_store_release_dev_u64(&credits->seen, now);
        /* A release: a thread that then finds room is ordered after the host, as this thread is. */
        (void)weir_arch_fetch_add_acq_rel_dev_u64(&credits->used, seen - now);
    }
    weir_arch_store_release_dev_u64(&credits->refreshing, 0);
}

/* Waits for room and takes one of `limit`. WEIR_OK, or as weir_spin_step. */
WEIR_FN_COLD weir_status weir_dev_credits_await(weir_dev_credits *credits, const uint64_t *returned, uint64_t limit,
                                                weir_dev_control *control)
{
    weir_spin spin = weir_spin_begin();
    for (;;) {
        weir_dev_credits_refresh(credits, returned);
        if (weir_arch_load_relaxed_dev_u64(&credits->used) < limit && weir_dev_credits_take(credits, limit)) {
            return WEIR_OK;
        }
        weir_status status = weir_spin_step(&spin, control);
        if (status != WEIR_OK) {
            return status;
        }
    }
}

/* Takes room for a request. WEIR_OK; WEIR_PENDING if there is no room now; the communicator's sticky error if there is
 * no room and the communicator has failed. */
WEIR_FN weir_status weir_dev_fifo_try_room(const weir_dev_fifo *fifo)
{
    if (WEIR_UNLIKELY(!weir_dev_credits_take(fifo->credits, fifo->count))) {
        weir_dev_credits_refresh(fifo->credits, fifo->tail);
        if (!weir_dev_credits_take(fifo->credits, fifo->count)) {
            weir_status status = weir_dev_control_status(fifo->control);
            return status != WEIR_OK ? status : WEIR_PENDING;
        }
    }
    return WEIR_OK;
}

/* ---- push --------------------------------------------------------------------------------------------------- */

/* Waits until `seen` covers the slot of this position. Another thread may have learned of the room and taken an earlier
 * position. This thread must see the room too: otherwise its stores would not be ordered after the host's reads. The
 * wait is short, because the update is under way. */
WEIR_FN_COLD void weir_dev_fifo_await_seen(const weir_dev_fifo *fifo, uint64_t position)
{
    weir_spin spin = weir_spin_begin();
    weir_status status = WEIR_OK;
    while (status == WEIR_OK && position - weir_arch_load_acquire_dev_u64(&fifo->credits->seen) >= fifo->count) {
        status = weir_spin_step(&spin, fifo->control);
    }
    (void)weir_dev_control_end_wait(fifo->control, status,
                                    weir_dev_note_of(WEIR_DOING_FIFO_PUSH, WEIR_NO_PEER, 0, 0, 0));
}

/* Writes a request for which the caller has taken room; returns its ticket. */
WEIR_FN uint64_t weir_dev_fifo_write(const weir_dev_fifo *fifo, const weir_request *request)
{
    uint64_t words[WEIR_FIFO_WORDS];
    uint64_t position = weir_arch_fetch_add_relaxed_dev_u64(fifo->head, 1);
    uint64_t *slot = fifo->slots + (position & (fifo->count - 1)) * WEIR_FIFO_SLOT_WORDS;
    uint64_t lap = weir_dev_fifo_lap(position, fifo->count);
    weir_dev_request_encode(request, words);
    if (WEIR_UNLIKELY(position - weir_arch_load_acquire_dev_u64(&fifo->credits->seen) >= fifo->count)) {
        WEIR_SLOW(weir_dev_fifo_await_seen(fifo, position));
    }
    weir_arch_store_release_sys_pair(slot, words[0] | lap, words[1] | lap);
    weir_arch_store_relaxed_sys_pair(slot + 2, words[2] | lap, words[3] | lap);
    weir_arch_store_relaxed_sys_pair(slot + 4, words[4] | lap, words[5] | lap);
    if (WEIR_UNLIKELY((position & (fifo->count / 2 - 1)) == 0)) {
        weir_dev_credits_refresh(fifo->credits, fifo->tail);
    }
    return position;
}

/* weir_dev_fifo_write for the end of a push. A kernel whose pushes all find room must also end after the communicator
 * has failed, so some pushes check the control block, chosen by their tickets. */
WEIR_FN weir_status weir_dev_fifo_write_checked(const weir_dev_fifo *fifo, const weir_request *request,
                                                uint64_t *ticket)
{
    *ticket = weir_dev_fifo_write(fifo, request);
    return WEIR_UNLIKELY(weir_spin_is_due_ticket(*ticket)) ? weir_spin_look_once(fifo->control) : WEIR_OK;
}

/* ---- the taking side, on the host --------------------------------------------------------------------------- */

/* The request at `position`, if it has arrived completely. Costs one load if nothing has arrived. */
WEIR_FN int weir_dev_fifo_read(const uint64_t *slots, uint32_t count, uint64_t position, weir_request *request)
{
    const uint64_t *slot = slots + (position & (count - 1)) * WEIR_FIFO_SLOT_WORDS;
    uint64_t lap = weir_dev_fifo_lap(position, count);
    uint64_t words[WEIR_FIFO_WORDS];
    words[0] = weir_arch_load_acquire_sys_u64(slot);
    uint64_t missing = words[0] ^ lap;
    if (missing >> 63 != 0) {
        return 0;
    }
    for (uint32_t i = 1; i < WEIR_FIFO_WORDS; i++) {
        words[i] = weir_arch_load_relaxed_sys_u64(slot + i);
        missing |= words[i] ^ lap;
    }
    if (WEIR_UNLIKELY(missing >> 63 != 0)) {
        return 0;
    }
    weir_dev_request_decode(words, request);
    return 1;
}

#endif
