/* weir/device/proxy.h - push requests to a channel of a proxy, and wait until they are completed.
 *
 *     uint64_t ticket;
 *     weir_dev_proxy_channel_push(&args->channel, &request, &ticket);
 *     ...
 *     weir_dev_proxy_channel_wait(&args->channel, ticket);
 *
 * Many channels share a fifo. Each channel has its own credits, and takes one before it takes a slot. A channel whose
 * requests are not completed has at most that many in the queue, and never stops the others.
 *
 * A ticket is done when its request, and all requests of the channel with lower tickets, are completed. The handler
 * defines when a request is completed. Tickets of different channels do not compare.
 *
 * Order:     as weir/device/fifo.h; the requests of a channel are handed over and completed in the order of their
 *            tickets.
 * Threads:   any number may push, test and wait.
 * Blocking:  push while no credit or no slot is free, and wait, with the communicator's deadline.
 * Ownership: weir_proxy_channel_device gives the handle. Kernels must not use it after weir_proxy_channel_destroy.
 * Errors:    push: as weir/device/fifo.h. test and wait: the same, or the channel's error if that request failed. A
 *            failed channel takes requests and fails them at once; its error does not fail the communicator. Before
 *            weir_proxy_start a wait, and a push that would wait, returns WEIR_ERR_INVALID at once: the request is
 *            then not in the queue, and the communicator goes on. */
#ifndef WEIR_DEVICE_PROXY_H
#define WEIR_DEVICE_PROXY_H

#include "weir/device/fifo.h"
#include "weir/device/impl/proxy_progress.h"

#undef WEIR_DEV_USED_proxy
#define WEIR_DEV_USED_proxy weir_dev_version_proxy

/* The error with which waits of the communicator end, or WEIR_OK; see weir_dev_semaphore_status. */
WEIR_FN weir_status weir_dev_proxy_channel_status(const weir_dev_proxy_channel *channel)
{
    return weir_dev_fifo_status(&channel->fifo);
}

/* Waits for a credit and a slot, and pushes the request. It goes to this channel, whatever request->channel. */
WEIR_FN weir_status weir_dev_proxy_channel_push(const weir_dev_proxy_channel *channel, const weir_request *request,
                                                uint64_t *ticket)
{
    const weir_dev_fifo *fifo = &channel->fifo;
    weir_request mine = *request;
    mine.channel = channel->id;
    /* Both operations start together: a GPU then waits for one round trip to its memory instead of two. */
    uint64_t used = weir_arch_fetch_add_relaxed_dev_u64(&channel->credits->used, 1);
    uint64_t slots = weir_arch_fetch_add_relaxed_dev_u64(&fifo->credits->used, 1);
    if (WEIR_UNLIKELY(used >= channel->limit || slots >= fifo->count)) {
        weir_arch_add_relaxed_dev_u64(&fifo->credits->used, (uint64_t)-1);
        weir_arch_add_relaxed_dev_u64(&channel->credits->used, (uint64_t)-1);
        weir_status status = weir_dev_proxy_channel_await(channel);
        if (status != WEIR_OK) {
            return WEIR_SLOW(weir_dev_control_end_wait(
                fifo->control, status, weir_dev_proxy_channel_note(channel, WEIR_DOING_CHANNEL_PUSH, 0)));
        }
    }
    return weir_dev_fifo_write_checked(fifo, &mine, ticket);
}

/* WEIR_PENDING, with nothing pushed, if there is no credit or no slot. Errors are those of push. */
WEIR_FN weir_status weir_dev_proxy_channel_try_push(const weir_dev_proxy_channel *channel, const weir_request *request,
                                                    uint64_t *ticket)
{
    weir_request mine = *request;
    mine.channel = channel->id;
    if (WEIR_UNLIKELY(!weir_dev_credits_take(channel->credits, channel->limit))) {
        weir_dev_credits_refresh(channel->credits, &channel->progress->returned);
        if (!weir_dev_credits_take(channel->credits, channel->limit)) {
            weir_status status = weir_dev_control_status(channel->fifo.control);
            return status != WEIR_OK ? status : WEIR_PENDING;
        }
    }
    weir_status status = weir_dev_fifo_try_room(&channel->fifo);
    if (WEIR_UNLIKELY(status != WEIR_OK)) {
        weir_arch_add_relaxed_dev_u64(&channel->credits->used, (uint64_t)-1);
        return status;
    }
    return weir_dev_fifo_write_checked(&channel->fifo, &mine, ticket);
}

/* WEIR_OK, WEIR_PENDING, or the error. A test of a ticket that is done does not ask for the communicator's error. */
WEIR_FN weir_status weir_dev_proxy_channel_test(const weir_dev_proxy_channel *channel, uint64_t ticket)
{
    uint64_t done = weir_arch_load_acquire_sys_u64(&channel->progress->done);
    if (done > ticket) {
        return WEIR_UNLIKELY(done == WEIR_PROGRESS_FAILED) ? weir_dev_progress_outcome(channel->progress, ticket)
                                                           : WEIR_OK;
    }
    weir_status status = weir_dev_control_status(channel->fifo.control);
    return status != WEIR_OK ? status : WEIR_PENDING;
}

/* Waits until the request of that ticket is completed. */
WEIR_FN weir_status weir_dev_proxy_channel_wait(const weir_dev_proxy_channel *channel, uint64_t ticket)
{
    const uint64_t *word = &channel->progress->done;
    uint32_t reads = WEIR_ARCH_FAST_READS;
    uint64_t done;
    weir_arch_pause_for_host();
    WEIR_ROLLED
    while ((done = weir_arch_load_acquire_sys_u64(word)) <= ticket && !weir_spin_is_long(&reads)) {
    }
    if (WEIR_UNLIKELY((done <= ticket) | weir_spin_is_due_ticket(ticket))) {
        weir_status status =
            WEIR_SLOW(weir_dev_progress_spin(channel->progress, ticket, channel->fifo.control,
                                             weir_dev_proxy_channel_note(channel, WEIR_DOING_CHANNEL_WAIT, ticket)));
        if (status != WEIR_OK) {
            return status;
        }
        done = weir_arch_load_acquire_sys_u64(word);
    }
    return WEIR_UNLIKELY(done == WEIR_PROGRESS_FAILED) ? weir_dev_progress_outcome(channel->progress, ticket) : WEIR_OK;
}

#endif
