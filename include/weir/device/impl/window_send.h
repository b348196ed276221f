/* weir/device/impl/window_send.h - puts and gets of a window, and the notifications behind them.
 *
 * A transfer whose target is mapped here is a copy by the group. One thread requests any other from the port channel of
 * the target's device. A notification is the leader's: it draws a ticket, which is a position in the target's ring,
 * fences the puts before it, waits for room in the ring, and stores the word there.
 *
 * Order, Threads, Blocking, Errors: as weir/device/window.h. */
#ifndef WEIR_DEVICE_IMPL_WINDOW_SEND_H
#define WEIR_DEVICE_IMPL_WINDOW_SEND_H

#include "weir/device/impl/copy.h"
#include "weir/device/impl/window_ends.h"
#include "weir/device/request.h"

/* A put or a get. Equal ends need no copy. */
WEIR_FN weir_status weir_dev_window_transfer(const weir_dev_window_rank *self, uint32_t doing, uint32_t target,
                                             uint32_t remote_memory, uint64_t remote_offset, uint32_t local_memory,
                                             uint64_t local_offset, uint64_t bytes, weir_coop coop)
{
    const int gets = doing == WEIR_DOING_WINDOW_GET;
    if (WEIR_UNLIKELY(!weir_dev_window_is_group(coop))) {
        return WEIR_ERR_INVALID;
    }
    weir_status status = weir_dev_window_check_notify(self, target, 0);
    status = status == WEIR_OK ? weir_dev_window_check_ids(self, remote_memory, local_memory) : status;
    if (WEIR_UNLIKELY(status != WEIR_OK)) {
        return status;
    }
    const weir_dev_window_ends ends = weir_dev_window_find(self, weir_window_device_of(self->window, target), target,
                                                           remote_memory, remote_offset, local_memory, local_offset);
    status = weir_dev_window_check_ends(self->window, doing, target, remote_offset, local_offset, bytes, ends);
    if (WEIR_UNLIKELY(status != WEIR_OK)) {
        return status;
    }
    if (WEIR_UNLIKELY(ends.remote == NULL)) {
        return weir_coop_leads(coop)
                   ? weir_dev_window_far(self->window, target,
                                         WEIR_SLOW(weir_dev_window_request(self->window, self->index,
                                                                           gets ? WEIR_REQUEST_GET : WEIR_REQUEST_PUT,
                                                                           target, remote_memory, remote_offset,
                                                                           local_memory, local_offset, bytes, 0)))
                   : WEIR_OK;
    }
    if (ends.remote != ends.local) {
        weir_copy(gets ? ends.local : ends.remote, gets ? ends.remote : ends.local, bytes, coop);
    }
    return WEIR_OK;
}

/* Sends a notification without data, by the leader of a group that has met. `status` is the leader's so far. The fence
 * for a mapped target is behind the caller. */
WEIR_FN weir_status weir_dev_window_send_alone(const weir_dev_window_rank *self, uint32_t device, uint32_t target,
                                               uint32_t tag, weir_window_ticket ticket, weir_status status,
                                               weir_coop coop)
{
    const weir_dev_window *window = self->window;
    if (weir_coop_leads(coop) && status == WEIR_OK) {
        if (WEIR_UNLIKELY(ticket.shared == NULL)) {
            status = WEIR_SLOW(weir_window_send_far(window, self->number, target, tag, ticket.position, ticket.taken));
        } else {
            status = weir_window_room(window, self->number, target, tag, ticket);
            if (status == WEIR_OK) {
                weir_window_store(window, device,
                                  weir_window_entry_of(window, self->number, device, target, tag, ticket));
            }
        }
    }
    return weir_coop_agree(coop, window->barrier.control, status);
}

/* The check of a put_notify of 0 bytes, whose group meets here. No copy waits for the check, so the fence of the
 * notification runs while the rows of the tables and the ticket are under way. */
WEIR_FN weir_status weir_dev_window_check_nothing(const weir_dev_window_rank *self, uint32_t device, uint32_t target,
                                                  uint32_t remote_memory, uint64_t remote_offset, uint32_t local_memory,
                                                  uint64_t local_offset, weir_coop coop)
{
    const weir_dev_window *window = self->window;
    weir_dev_window_rows rows = { { 0, 0 }, { 0, 0 }, NULL, NULL };
    if (weir_coop_leads(coop)) {
        rows = weir_dev_window_load_rows(window, device, remote_memory, local_memory);
    }
    weir_status status = weir_coop_sync(coop);
    if (weir_coop_leads(coop)) {
        weir_window_fence(window, device);
        weir_arch_keep_behind();
    }
    if (weir_coop_leads(coop) && status == WEIR_OK) {
        status = weir_dev_window_check_ends(
            window, WEIR_DOING_WINDOW_PUT, target, remote_offset, local_offset, 0,
            weir_dev_window_ends_of(self, device, target, remote_offset, local_offset, rows));
    }
    return status;
}

/* A put and the notification of a ticket behind it through a port channel; by one thread. */
WEIR_FN_COLD weir_status weir_dev_window_put_notify_far(const weir_dev_window *window, uint32_t index, uint32_t target,
                                                        uint32_t remote_memory, uint64_t remote_offset,
                                                        uint32_t local_memory, uint64_t local_offset, uint64_t bytes,
                                                        uint32_t tag, uint64_t position, uint64_t taken)
{
    weir_arch_no_kernel();
    const uint32_t number = window->device * window->ranks + index;
    const weir_window_ticket ticket = { NULL, position, taken };
    weir_status status = weir_window_room(window, number, target, tag, ticket);
    if (status == WEIR_OK) {
        status = weir_dev_window_far(window, target,
                                     weir_dev_window_request(window, index, WEIR_REQUEST_PUT, target, remote_memory,
                                                             remote_offset, local_memory, local_offset, bytes, 1));
    }
    return status == WEIR_OK ? weir_window_send_far(window, number, target, tag, position, position) : status;
}

#endif
