/* weir/device/impl/port_direct.h - when the calling threads carry out a request of a port channel by their own stores.
 *
 * They do so while no request of the channel is queued, because their stores would overtake it.
 *
 * Order, Threads, Errors: as weir/device/port_channel.h. */
#ifndef WEIR_DEVICE_IMPL_PORT_DIRECT_H
#define WEIR_DEVICE_IMPL_PORT_DIRECT_H

#include "weir/device/impl/channel_check.h"
#include "weir/device/impl/fifo_slot.h"

/* Whether all requests of the channel are completed. A failed channel keeps a credit for ever: no signal overtakes lost
 * requests. */
WEIR_FN int weir_dev_port_channel_is_idle(const weir_dev_port_channel *channel)
{
    weir_dev_credits *credits = channel->queue.credits;
    if (WEIR_UNLIKELY(weir_arch_load_acquire_dev_u64(&credits->used) != 0)) {
        weir_dev_credits_refresh(credits, &channel->queue.progress->returned);
        return weir_arch_load_acquire_dev_u64(&credits->used) == 0;
    }
    return 1;
}

/* Whether the threads of the coop do a transfer of `bytes` themselves. All threads get the same answer: a coop whose
 * answer depends on queued requests must be able to meet cheaply. The threads have met if the answer is yes and
 * `always` is not set. Blocks that meet each by itself do not know when the others have copied. */
WEIR_FN int weir_dev_port_channel_is_direct(const weir_dev_port_channel *channel, uint64_t remote_offset,
                                            uint64_t local_offset, uint64_t bytes, weir_coop coop)
{
    uint32_t queued;
    if (bytes > channel->direct_bytes || channel->direct_bytes == 0 ||
        WEIR_UNLIKELY(!weir_dev_in_range(remote_offset, bytes, channel->remote_bytes) ||
                      !weir_dev_in_range(local_offset, bytes, channel->local_bytes))) {
        return 0; /* out of range, the request fails its channel */
    }
    if (channel->direct_always) {
        return weir_coop_can_meet(coop) && coop.scope != WEIR_COOP_BLOCKS;
    }
    queued = weir_coop_leads(coop) && !weir_dev_port_channel_is_idle(channel);
    switch (coop.scope) {
    case WEIR_COOP_THREAD:
        return !queued;
    case WEIR_COOP_WARP:
        return !weir_arch_warp_or(queued);
    case WEIR_COOP_BLOCK:
        return !weir_arch_block_or(coop.host, queued);
    default:
        return 0;
    }
}

WEIR_FN weir_status weir_dev_port_channel_done(uint64_t *ticket)
{
    if (ticket != NULL) {
        *ticket = WEIR_TICKET_DONE;
    }
    return WEIR_OK;
}

/* Whether the thread is the first of the whole group, even if the group's blocks meet each by itself. */
WEIR_FN int weir_dev_port_channel_leads(weir_coop coop) { return coop.rank == 0; }

#endif
