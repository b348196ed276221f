/* weir/device/semaphore.h - signal a peer, and wait for its signal.
 *
 * A semaphore counts: each signal by one side lets one wait of the other side return. Tokens only grow and are never
 * reset: a kernel can be replayed without preparation.
 *
 * A set of semaphores, for example one for each block, is one handle: weir_dev_semaphore_at gives the others.
 *
 * Order:     signal is a release and wait an acquire at system scope: data that the signalling thread wrote, or had
 *            synchronized with, before signal is visible to the waiting thread after wait. The relaxed forms order only
 *            execution, not data.
 * Threads:   any number may signal; one at a time may wait or poll.
 * Blocking:  wait has the communicator's deadline; the others never block.
 * Ownership: weir_semaphore_device gives the handle. Kernels must not use it after weir_semaphore_destroy.
 * Errors:    wait returns WEIR_OK, WEIR_ERR_TIMEOUT, or the communicator's sticky error. A signal, or begin, on a
 *            semaphore whose peer's memory is not mapped (another host) makes WEIR_ERR_UNSUPPORTED the sticky error:
 *            such a semaphore is for a port channel.
 *
 * After the communicator has failed, a loop of waits ends even if each wait finds a signal: on a GPU one such wait in
 * 64 asks for the error. The loop ends within a second if one of its rounds takes less than 15 ms. Loops with more
 * work between their waits, loops of polls that find signals, and loops without waits, for example of signals, should
 * call weir_dev_semaphore_status from time to time. */
#ifndef WEIR_DEVICE_SEMAPHORE_H
#define WEIR_DEVICE_SEMAPHORE_H

#include "weir/device/coop.h"
#include "weir/device/impl/semaphore_token.h"

#undef WEIR_DEV_USED_semaphore
#define WEIR_DEV_USED_semaphore weir_dev_version_semaphore

/* The error with which waits of the communicator end, or WEIR_OK. On a GPU it takes about 0.3 us, and may learn of an
 * error 4 ms late. */
WEIR_FN weir_status weir_dev_semaphore_status(const weir_dev_semaphore *semaphore)
{
    return weir_dev_control_status(semaphore->control);
}

/* Lets one wait of the peer return. */
WEIR_FN void weir_dev_semaphore_signal(const weir_dev_semaphore *semaphore)
{
    if (WEIR_UNLIKELY(semaphore->to_host)) {
        WEIR_SLOW(weir_dev_semaphore_signal_host(semaphore->sent, semaphore->outbound, semaphore->to_host,
                                                 semaphore->control, semaphore->inbound));
        return;
    }
    weir_arch_add_release_sys_u64(semaphore->outbound, 1);
    weir_arch_add_relaxed_dev_u64(semaphore->sent, 1);
}

/* A signal that orders only execution, not data. */
WEIR_FN void weir_dev_semaphore_signal_relaxed(const weir_dev_semaphore *semaphore)
{
    if (WEIR_UNLIKELY(semaphore->to_host)) {
        WEIR_SLOW(weir_dev_semaphore_signal_host(semaphore->sent, semaphore->outbound, semaphore->to_host,
                                                 semaphore->control, semaphore->inbound));
        return;
    }
    weir_arch_add_relaxed_sys_u64(semaphore->outbound, 1);
    weir_arch_add_relaxed_dev_u64(semaphore->sent, 1);
}

/* Waits for a signal and consumes it. */
WEIR_FN weir_status weir_dev_semaphore_wait(const weir_dev_semaphore *semaphore)
{
    uint64_t consumed = weir_arch_load_relaxed_dev_u64(semaphore->expected);
    weir_status status = weir_dev_semaphore_await_loading(semaphore, consumed);
    if (WEIR_UNLIKELY(status != WEIR_OK)) {
        return status;
    }
    weir_arch_store_relaxed_dev_u64(semaphore->expected, consumed + 1);
    return WEIR_OK;
}

/* A wait that orders only execution, not data. */
WEIR_FN weir_status weir_dev_semaphore_wait_relaxed(const weir_dev_semaphore *semaphore)
{
    uint64_t consumed = weir_arch_load_relaxed_dev_u64(semaphore->expected);
    weir_status status = weir_dev_semaphore_await_loading_relaxed(semaphore, consumed);
    if (WEIR_UNLIKELY(status != WEIR_OK)) {
        return status;
    }
    weir_arch_store_relaxed_dev_u64(semaphore->expected, consumed + 1);
    return WEIR_OK;
}

/* Consumes a signal if there is one: WEIR_OK, WEIR_PENDING, or the communicator's sticky error if there is no signal
 * and there will be none. A loop around poll must end on any status but WEIR_PENDING; then it needs no deadline. A poll
 * that finds a signal does not ask for the error (weir_dev_semaphore_status does). */
WEIR_FN weir_status weir_dev_semaphore_poll(const weir_dev_semaphore *semaphore)
{
    uint64_t consumed = weir_arch_load_relaxed_dev_u64(semaphore->expected);
    if (weir_arch_load_acquire_sys_u64(semaphore->inbound) > consumed) {
        weir_arch_store_relaxed_dev_u64(semaphore->expected, consumed + 1);
        return WEIR_OK;
    }
    weir_status status = weir_dev_control_status(semaphore->control);
    return status != WEIR_OK ? status : WEIR_PENDING;
}

/* The counts of a semaphore in one thread's registers, from begin to end. Meanwhile only this thread of this rank
 * signals and waits on it: a signal is then a store, and a wait only reads the token. This pays in kernels of many
 * rounds, where it saves 5 to 9 % of a trip. In a kernel of one put or get it is slower than the plain calls: begin
 * loads the counts, which takes longer than one signal and one wait save. */
typedef struct weir_dev_semaphore_counts {
    uint64_t sent;
    uint64_t consumed;
} weir_dev_semaphore_counts;

/* Loads the counts. */
WEIR_FN weir_dev_semaphore_counts weir_dev_semaphore_begin(const weir_dev_semaphore *semaphore)
{
    weir_dev_semaphore_counts counts;
    if (WEIR_UNLIKELY(semaphore->to_host == WEIR_SEMAPHORE_UNMAPPED)) {
        WEIR_SLOW(weir_dev_control_report(semaphore->control, WEIR_ERR_UNSUPPORTED,
                                          weir_dev_semaphore_token_note(semaphore->inbound, WEIR_DOING_SIGNAL)));
    }
    counts.sent = weir_arch_load_relaxed_dev_u64(semaphore->sent);
    counts.consumed = weir_arch_load_relaxed_dev_u64(semaphore->expected);
    return counts;
}

/* Stores the counts for the next user of the semaphore. Call it after an error, too. */
WEIR_FN void weir_dev_semaphore_end(const weir_dev_semaphore *semaphore, const weir_dev_semaphore_counts *counts)
{
    weir_arch_store_relaxed_dev_u64(semaphore->sent, counts->sent);
    weir_arch_store_relaxed_dev_u64(semaphore->expected, counts->consumed);
}

/* signal and wait with the counts of begin. */
WEIR_FN void weir_dev_semaphore_signal_counted(const weir_dev_semaphore *semaphore, weir_dev_semaphore_counts *counts)
{
    weir_arch_store_release_sys_u64(semaphore->outbound, ++counts->sent);
}

WEIR_FN void weir_dev_semaphore_signal_counted_relaxed(const weir_dev_semaphore *semaphore,
                                                       weir_dev_semaphore_counts *counts)
{
    weir_arch_store_relaxed_sys_u64(semaphore->outbound, ++counts->sent);
}

WEIR_FN weir_status weir_dev_semaphore_wait_counted(const weir_dev_semaphore *semaphore,
                                                    weir_dev_semaphore_counts *counts)
{
    weir_status status = weir_dev_semaphore_await(semaphore, counts->consumed);
    if (WEIR_UNLIKELY(status != WEIR_OK)) {
        return status;
    }
    counts->consumed++;
    return WEIR_OK;
}

WEIR_FN weir_status weir_dev_semaphore_wait_counted_relaxed(const weir_dev_semaphore *semaphore,
                                                            weir_dev_semaphore_counts *counts)
{
    weir_status status = weir_dev_semaphore_await_relaxed(semaphore, counts->consumed);
    if (WEIR_UNLIKELY(status != WEIR_OK)) {
        return status;
    }
    counts->consumed++;
    return WEIR_OK;
}

/* Semaphore `index` of the set. If the set is smaller, WEIR_ERR_RANGE becomes the communicator's sticky error, and the
 * set's first semaphore is returned. */
WEIR_FN weir_dev_semaphore weir_dev_semaphore_at(const weir_dev_semaphore *semaphore, uint32_t index)
{
    weir_dev_semaphore at = *semaphore;
    uint64_t offset = (uint64_t)index * WEIR_CELL_BYTES;
    if (WEIR_UNLIKELY(index >= semaphore->count)) {
        WEIR_SLOW(weir_dev_control_report(semaphore->control, WEIR_ERR_RANGE,
                                          weir_dev_note_of(WEIR_DOING_AT, semaphore->peer, semaphore->id,
                                                           (uint64_t)semaphore->size - semaphore->count + index,
                                                           semaphore->size)));
        return at;
    }
    at.inbound = (uint64_t *)((char *)at.inbound + offset);
    at.outbound = (uint64_t *)((char *)at.outbound + offset);
    at.expected = (uint64_t *)((char *)at.expected + offset);
    at.sent = (uint64_t *)((char *)at.sent + offset);
    at.count -= index;
    return at;
}

/* One thread of the group waits, all return its status, and all may read the peer's data. For groups that can meet
 * (weir/device/coop.h); WEIR_ERR_INVALID otherwise. */
WEIR_FN weir_status weir_dev_semaphore_wait_coop(const weir_dev_semaphore *semaphore, weir_coop coop)
{
    weir_status status = WEIR_OK;
    if (WEIR_UNLIKELY(!weir_coop_can_meet(coop))) {
        return WEIR_ERR_INVALID; /* before a signal is consumed */
    }
    if (weir_coop_leads(coop)) {
        status = weir_dev_semaphore_wait(semaphore);
    }
    return weir_coop_agree(coop, semaphore->control, status);
}

WEIR_FN weir_status weir_dev_semaphore_wait_relaxed_coop(const weir_dev_semaphore *semaphore, weir_coop coop)
{
    weir_status status = WEIR_OK;
    if (WEIR_UNLIKELY(!weir_coop_can_meet(coop))) {
        return WEIR_ERR_INVALID; /* before a signal is consumed */
    }
    if (weir_coop_leads(coop)) {
        status = weir_dev_semaphore_wait_relaxed(semaphore);
    }
    return weir_coop_agree(coop, semaphore->control, status);
}

#endif
