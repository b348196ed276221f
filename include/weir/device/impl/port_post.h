/* weir/device/impl/port_post.h - who posts the requests of a port channel: the proxy, or the calling thread.
 *
 * Order, Threads, Blocking, Errors: as weir/device/port_channel.h. */
#ifndef WEIR_DEVICE_IMPL_PORT_POST_H
#define WEIR_DEVICE_IMPL_PORT_POST_H

#include "weir/device/impl/port_rdma.h"
#include "weir/device/proxy.h"

/* The poster of all channels of a kernel file; see weir/device/port_channel.h. */
#define WEIR_PORT_BY_ANY 2u
#if !defined(WEIR_PORT_ENGINE)
#define WEIR_PORT_ENGINE WEIR_PORT_BY_ANY
#endif

/* Whether kernels post themselves. */
WEIR_FN int weir_dev_port_channel_is_rdma(const weir_dev_port_channel *channel)
{
    return WEIR_PORT_ENGINE == WEIR_PORT_BY_ANY ? channel->engine == WEIR_PORT_BY_DEVICE
                                                : WEIR_PORT_ENGINE == WEIR_PORT_BY_DEVICE;
}

/* Declared in weir/device/port_channel.h, which says what it does. */
WEIR_FN weir_status weir_dev_port_channel_post(const weir_dev_port_channel *channel, const weir_request *request,
                                               uint64_t *ticket)
{
    uint64_t position = 0;
    if (WEIR_PORT_ENGINE != WEIR_PORT_BY_ANY && WEIR_UNLIKELY(channel->engine != WEIR_PORT_ENGINE)) {
        return WEIR_ERR_INVALID;
    }
    if (weir_dev_port_channel_is_rdma(channel)) {
        return weir_dev_port_rdma_post(&channel->rdma, request, ticket);
    }
    weir_status status = weir_dev_proxy_channel_push(&channel->queue, request, &position);
    if (ticket != NULL && status == WEIR_OK) {
        *ticket = position;
    }
    return status;
}

/* Posts a request between the channel's own memories. By one thread. */
WEIR_FN weir_status weir_dev_port_channel_ask(const weir_dev_port_channel *channel, uint32_t type,
                                              uint64_t remote_offset, uint64_t local_offset, uint64_t bytes,
                                              uint64_t value, uint64_t *ticket)
{
    weir_request request;
    request.remote_offset = remote_offset;
    request.local_offset = local_offset;
    request.bytes = bytes;
    request.value = value;
    request.remote = WEIR_PORT_REMOTE;
    request.local = WEIR_PORT_LOCAL;
    request.channel = 0;
    request.type = (uint16_t)type;
    request.reserved = 0;
    return weir_dev_port_channel_post(channel, &request, ticket);
}

#endif
