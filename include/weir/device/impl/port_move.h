/* weir/device/impl/port_move.h - puts and gets of a port channel, by a request or by the calling threads.
 *
 * weir/device/port_channel.h declares the calls, and includes this header at its end. The bodies need what it defines.
 * No other file includes this header.
 *
 * Order, Threads, Blocking, Errors: as weir/device/port_channel.h. */
#ifndef WEIR_DEVICE_IMPL_PORT_MOVE_H
#define WEIR_DEVICE_IMPL_PORT_MOVE_H

WEIR_STATIC_ASSERT(WEIR_REQUEST_MODIFIER_COUNT == 2, "weir_dev_port_channel_move knows signals and flushes alone");

/* A put or a get with modifiers, between remote and local. If the group moves the bytes itself, it signals after all of
 * them, and its ticket also covers requests that are still queued. */
WEIR_FN weir_status weir_dev_port_channel_move(const weir_dev_port_channel *channel, uint32_t type,
                                               uint64_t remote_offset, uint64_t local_offset, uint64_t bytes,
                                               weir_coop coop, uint64_t *ticket)
{
    const int leads = weir_dev_port_channel_leads(coop);
    if (!weir_dev_port_channel_is_direct(channel, remote_offset, local_offset, bytes, coop)) {
        return leads ? weir_dev_port_channel_ask(channel, type, remote_offset, local_offset, bytes, 0, ticket)
                     : WEIR_OK;
    }
    if ((type & WEIR_REQUEST_VERB) == WEIR_REQUEST_GET) {
        weir_copy(channel->local + local_offset, channel->remote + remote_offset, bytes, coop);
    } else {
        weir_copy_to_peer(channel->remote + remote_offset, channel->local + local_offset, bytes, coop);
    }
    /* Unless the group always moves its bytes, no earlier request is queued: is_direct has asked. */
    if ((type & WEIR_REQUEST_SIGNAL) == 0) {
        return ticket == NULL || !leads ? WEIR_OK
               : channel->direct_always ? weir_dev_port_channel_flush(channel, ticket)
                                        : weir_dev_port_channel_done(ticket);
    }
    weir_status status = weir_coop_sync(coop);
    if (!leads || status != WEIR_OK) {
        return status;
    }
    if (channel->direct_always) {
        return weir_dev_port_channel_signal(channel, ticket);
    }
    weir_dev_semaphore_signal(&channel->semaphore);
    return weir_dev_port_channel_done(ticket);
}

WEIR_FN weir_status weir_dev_port_channel_put(const weir_dev_port_channel *channel, uint64_t remote_offset,
                                              uint64_t local_offset, uint64_t bytes, weir_coop coop, uint64_t *ticket)
{
    return weir_dev_port_channel_move(channel, WEIR_REQUEST_PUT, remote_offset, local_offset, bytes, coop, ticket);
}

WEIR_FN weir_status weir_dev_port_channel_get(const weir_dev_port_channel *channel, uint64_t remote_offset,
                                              uint64_t local_offset, uint64_t bytes, weir_coop coop, uint64_t *ticket)
{
    return weir_dev_port_channel_move(channel, WEIR_REQUEST_GET, remote_offset, local_offset, bytes, coop, ticket);
}

WEIR_FN weir_status weir_dev_port_channel_put_signal(const weir_dev_port_channel *channel, uint64_t remote_offset,
                                                     uint64_t local_offset, uint64_t bytes, weir_coop coop,
                                                     uint64_t *ticket)
{
    return weir_dev_port_channel_move(channel, WEIR_REQUEST_PUT_SIGNAL, remote_offset, local_offset, bytes, coop,
                                      ticket);
}

WEIR_FN weir_status weir_dev_port_channel_put_signal_flush(const weir_dev_port_channel *channel, uint64_t remote_offset,
                                                           uint64_t local_offset, uint64_t bytes, weir_coop coop,
                                                           uint64_t *ticket)
{
    uint64_t position = WEIR_TICKET_DONE;
    weir_status status = weir_dev_port_channel_move(channel, WEIR_REQUEST_PUT_SIGNAL_FLUSH, remote_offset, local_offset,
                                                    bytes, coop, &position);
    if (status != WEIR_OK || !weir_dev_port_channel_leads(coop)) {
        return status;
    }
    if (ticket != NULL) {
        *ticket = position;
        return WEIR_OK;
    }
    return weir_dev_port_channel_wait_ticket(channel, position);
}

#endif
