/* weir/device/impl/proxy_progress.h - how far a proxy has carried out the requests of a channel, and the waits for it.
 *
 * The slow parts of a push and of a wait are not inlined: a push without a free credit or slot, a ticket that is not
 * done, a ticket of a failed channel. They end at once while the proxy is not started.
 *
 * Order, Threads, Blocking, Errors: as weir/device/proxy.h. */
#ifndef WEIR_DEVICE_IMPL_PROXY_PROGRESS_H
#define WEIR_DEVICE_IMPL_PROXY_PROGRESS_H

#include "weir/device/impl/fifo_slot.h"

/* WEIR_ERR_INVALID while no thread carries out the channel's requests, because its proxy was not started. */
WEIR_FN weir_status weir_dev_progress_unstarted(const weir_dev_progress *progress)
{
    return (weir_status)(int32_t)weir_arch_load_relaxed_sys_u32((const uint32_t *)&progress->unstarted);
}

/* The note of a failing call on the channel. */
WEIR_FN weir_dev_note weir_dev_proxy_channel_note(const weir_dev_proxy_channel *channel, uint32_t doing,
                                                  uint64_t ticket)
{
    return weir_dev_note_of(doing, channel->peer, channel->id, ticket, 0);
}

/* The slow part of a push whose credit or slot is not free at once. WEIR_OK, or as weir_spin_step. */
WEIR_FN_COLD weir_status weir_dev_proxy_channel_await(const weir_dev_proxy_channel *channel)
{
    const weir_dev_fifo *fifo = &channel->fifo;
    weir_status status = weir_dev_progress_unstarted(channel->progress);
    if (status == WEIR_OK) {
        status = weir_dev_credits_await(channel->credits, &channel->progress->returned, channel->limit, fifo->control);
    }
    if (status != WEIR_OK) {
        return status;
    }
    status = weir_dev_credits_await(fifo->credits, fifo->tail, fifo->count, fifo->control);
    if (status != WEIR_OK) {
        weir_arch_add_relaxed_dev_u64(&channel->credits->used, (uint64_t)-1);
    }
    return status;
}

/* The result of a ticket of a failed channel. */
WEIR_FN_COLD weir_status weir_dev_progress_outcome(const weir_dev_progress *progress, uint64_t ticket)
{
    if (ticket < weir_arch_load_relaxed_sys_u64(&progress->failed_from)) {
        return WEIR_OK;
    }
    return (weir_status)(int64_t)weir_arch_load_relaxed_sys_u64((const uint64_t *)&progress->status);
}

/* The slow part of a wait: the ticket is not done yet, or the wait is due to check the control block. WEIR_OK when the
 * count of completions is beyond the ticket. */
WEIR_FN_COLD weir_status weir_dev_progress_spin(const weir_dev_progress *progress, uint64_t ticket,
                                                weir_dev_control *control, weir_dev_note note)
{
    const weir_status status = weir_dev_progress_unstarted(progress);
    if (status != WEIR_OK && weir_arch_load_acquire_sys_u64(&progress->done) <= ticket) {
        return status;
    }
    return weir_spin_above(&progress->done, ticket, weir_spin_is_due_ticket(ticket), control, note);
}

#endif
