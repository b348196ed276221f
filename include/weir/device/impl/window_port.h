/* weir/device/impl/window_port.h - the way of a window to a device whose memory is not mapped: a port channel.
 *
 * A put is a request of the channel, and a notification is a value behind it: the word of the ring, at its place in the
 * device's shared part. Heads go back as values, too. Every engine orders a value behind earlier puts of its channel.
 * Memory 0 of the channel is the device's shared part, memory 1 that of this device. The channel's handle and the
 * descriptions of memories lie in device memory, so a kernel that posts to a NIC itself reads no host memory.
 *
 * Nothing here is inlined. With WEIR_WINDOW_NO_PORT (weir/device/window.h) nothing is posted.
 *
 * The caller fails the communicator for a request that cannot be posted (weir_window_port_fail): its window's rings
 * would otherwise miss a word for ever. */
#ifndef WEIR_DEVICE_IMPL_WINDOW_PORT_H
#define WEIR_DEVICE_IMPL_WINDOW_PORT_H

#include "weir/device/impl/spin.h"
#include "weir/device/impl/window_layout.h"

#if !defined(WEIR_WINDOW_NO_PORT)
#include "weir/device/port_channel.h"
#endif

/* The memory of a request that is no memory of the window but the shared parts. */
#define WEIR_WINDOW_SHARED UINT32_MAX

/* The calls of a kernel that posts to a port channel. */
#if defined(WEIR_WINDOW_NO_PORT)
#define WEIR_WINDOW_PORT_DOING WEIR_DOING_WINDOW_NO_PORT
#else
#define WEIR_WINDOW_PORT_DOING WEIR_DOING_CHANNEL_PUSH
#endif

/* Fails the communicator for a request to `device` that returned `status`, unless it has failed already. */
WEIR_FN_COLD weir_status weir_window_port_fail(const weir_dev_window *window, uint32_t device, weir_status status)
{
    weir_dev_control *control = window->barrier.control;
    const weir_status failed = weir_dev_control_status(control);
    return failed != WEIR_OK
               ? failed
               : weir_dev_control_fail_in(control, status,
                                          weir_dev_note_of(WEIR_WINDOW_PORT_DOING, window->to[device].peer, 0, 0, 0));
}

#if !defined(WEIR_WINDOW_NO_PORT)

/* The error that ended the queue of a channel to whose NIC kernels post, as far as the device knows; or WEIR_OK. */
WEIR_FN weir_status weir_window_port_ended(const weir_dev_port_rdma *rdma)
{
    const weir_dev_rdma_state *state = rdma->queue.state;
    return (weir_arch_load_relaxed_dev_u64(&state->failed) | weir_arch_load_relaxed_dev_u64(&state->refused)) != 0
               ? weir_dev_port_rdma_failed(rdma)
               : WEIR_OK;
}

/* weir_window_port_post, compiled by itself. */
WEIR_FN_COLD weir_status weir_window_port_carry_out(const weir_dev_window *window, uint32_t device, uint32_t type,
                                                    uint32_t remote_memory, uint64_t remote_offset,
                                                    uint32_t local_memory, uint64_t local_offset, uint64_t bytes,
                                                    uint64_t value, int more)
{
    const weir_dev_port_channel *channel = window->to[device].channel;
    const weir_dev_window_place *places = window->table->places;
    const weir_dev_window_place *remote = places + (remote_memory * window->devices + device);
    const weir_dev_window_place *local = places + (local_memory * window->devices + device);
    const int shared = remote_memory == WEIR_WINDOW_SHARED;
    uint64_t ticket = 0;
    weir_status status;
    weir_request request;
    request.remote_offset = remote_offset;
    request.local_offset = local_offset;
    request.bytes = bytes;
    request.value = value;
    request.remote = shared ? WEIR_PORT_REMOTE : remote->remote;
    request.local = shared ? WEIR_PORT_LOCAL : local->local;
    request.channel = 0;
    request.type = (uint16_t)type;
    request.reserved = 0;
    if (weir_dev_port_channel_is_rdma(channel)) {
        const weir_dev_port_rdma *rdma = &channel->rdma;
        status = weir_dev_port_rdma_verb(rdma, &request, shared ? &rdma->remote : &remote->port,
                                         shared ? &rdma->local : &local->port, more ? 0 : WEIR_RDMA_RING, NULL);
        const weir_status ended = weir_window_port_ended(rdma);
        status = ended != WEIR_OK ? ended : status;
    } else {
        status = weir_dev_proxy_channel_push(&channel->queue, &request, &ticket);
    }
    return status;
}

/* Behind several calls: its registers would make those of a wait 146. */
typedef weir_status weir_window_port_function(const weir_dev_window *window, uint32_t device, uint32_t type,
                                              uint32_t remote_memory, uint64_t remote_offset, uint32_t local_memory,
                                              uint64_t local_offset, uint64_t bytes, uint64_t value, int more);
WEIR_FN_POINTER(weir_window_port_function, weir_window_port, weir_window_port_carry_out);

/* Posts a put, a get or a value to the channel of `device`; by one thread. With `more` another request follows at once,
 * and the NIC's doorbell waits for it. */
WEIR_FN weir_status weir_window_port_post(const weir_dev_window *window, uint32_t device, uint32_t type,
                                          uint32_t remote_memory, uint64_t remote_offset, uint32_t local_memory,
                                          uint64_t local_offset, uint64_t bytes, uint64_t value, int more)
{
    return WEIR_FN_APART(weir_window_port, weir_window_port_carry_out)(
        window, device, type, remote_memory, remote_offset, local_memory, local_offset, bytes, value, more);
}

/* Stores a word in the shared part of `device`, behind all earlier puts to it. */
WEIR_FN weir_status weir_window_port_value(const weir_dev_window *window, uint32_t device, uint64_t place,
                                           uint64_t value)
{
    return weir_window_port_post(window, device, WEIR_REQUEST_VALUE, WEIR_WINDOW_SHARED, place, WEIR_WINDOW_SHARED, 0,
                                 sizeof value, value, 0);
}

/* Waits until all earlier requests to `device` are done. */
WEIR_FN_COLD weir_status weir_window_port_flush(const weir_dev_window *window, uint32_t device)
{
    const weir_dev_port_channel *channel = window->to[device].channel;
    uint64_t ticket = WEIR_TICKET_DONE;
    weir_status status = weir_dev_port_channel_ask(channel, WEIR_REQUEST_FLUSH, 0, 0, 0, 0, &ticket);
    if (status == WEIR_OK) {
        status = weir_dev_port_channel_wait_ticket(channel, ticket);
    }
    return status;
}

#else

WEIR_FN weir_status weir_window_port_post(const weir_dev_window *window, uint32_t device, uint32_t type,
                                          uint32_t remote_memory, uint64_t remote_offset, uint32_t local_memory,
                                          uint64_t local_offset, uint64_t bytes, uint64_t value, int more)
{
    (void)window, (void)device, (void)type, (void)remote_memory, (void)remote_offset, (void)local_memory;
    (void)local_offset, (void)bytes, (void)value, (void)more;
    return WEIR_ERR_UNSUPPORTED;
}

WEIR_FN weir_status weir_window_port_value(const weir_dev_window *window, uint32_t device, uint64_t place,
                                           uint64_t value)
{
    (void)window, (void)device, (void)place, (void)value;
    return WEIR_ERR_UNSUPPORTED;
}

WEIR_FN weir_status weir_window_port_flush(const weir_dev_window *window, uint32_t device)
{
    (void)window, (void)device;
    return WEIR_ERR_UNSUPPORTED;
}

#endif

#endif
