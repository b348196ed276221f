/* weir/device/impl/window_port.h - the way of a window to a device whose memory is not mapped: a port channel.
 *
 * A put is a request of the channel, and a notification is a value behind it: the word of the ring, at its place in the
 * device's shared part. Heads go back as values, too. Every engine orders a value behind earlier puts of its channel.
 * Memory 0 of the channel is the device's shared part, memory 1 that of this device. The channel's handle and the
 * descriptions of memories lie in device memory, so a kernel that posts to a NIC itself reads no host memory.
 *
 * Kernels call all of this through pointers, so that it has registers for itself (WEIR_FN_APART). It consists of small
 * functions: the largest number of registers of one of them is also the smallest of the kernel. With
 * WEIR_WINDOW_NO_PORT (weir/device/window.h) nothing is posted.
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

/* The calls of a kernel that posts to a port channel. */
#if defined(WEIR_WINDOW_NO_PORT)
#define WEIR_WINDOW_PORT_DOING WEIR_DOING_WINDOW_NO_PORT
#else
#define WEIR_WINDOW_PORT_DOING WEIR_DOING_CHANNEL_PUSH
#endif

/* WEIR_FN_APART for a slow part of a window's call, which shares functions with the port's part. Functions behind
 * pointers and those that they call keep only about half of the registers, and the values of all callers up to the
 * kernel must be in that half. Behind a pointer, the slow part keeps its caller's values itself. Without the port's
 * part it needs no pointer. */
#if defined(WEIR_WINDOW_NO_PORT)
#define WEIR_WINDOW_POINTER(type, name, function) WEIR_STATIC_ASSERT(sizeof(type *) != 0, "no pointer is needed")
#define WEIR_WINDOW_APART(name, function) (function)
#else
#define WEIR_WINDOW_POINTER(type, name, function) WEIR_FN_POINTER(type, name, function)
#define WEIR_WINDOW_APART(name, function) WEIR_FN_APART(name, function)
#endif

/* Fails the communicator for a request to `device` that returned `status`, unless it has failed already. */
WEIR_FN_COLD weir_status weir_window_port_fail(const weir_dev_window *window, uint32_t device, weir_status status)
{
    weir_dev_control *control = window->barrier.control;
    const weir_status failed = weir_dev_control_ended(control);
    return failed != WEIR_OK
               ? failed
               : weir_dev_control_fail_in(control, status,
                                          weir_dev_note_of(WEIR_WINDOW_PORT_DOING, window->to[device].peer, 0, 0, 0));
}

#if !defined(WEIR_WINDOW_NO_PORT)

/* ---- posts ----------------------------------------------------------------------------------------------------- */

/* These functions return a ticket, or a negative status. */

/* Posts an entry to a NIC's queue: one that transfers nothing, or one whose data `lo` and `hi` describe. */
WEIR_FN_COLD int64_t weir_window_port_entry(const weir_dev_rdma *queue, uint64_t remote, uint64_t lo, uint64_t hi,
                                            uint32_t rkey, uint32_t opcode, uint32_t flags)
{
    weir_arch_no_kernel();
    uint64_t ticket = 0;
    weir_dev_rdma_entry entry;
    entry.opcode = opcode;
    entry.immediate = 0;
    entry.count = opcode == WEIR_MLX5_NOP ? 1 : 3;
    entry.segments[0] = weir_mlx5_remote(remote, rkey);
    entry.segments[1].lo = lo;
    entry.segments[1].hi = hi;
    entry.segments[2] = entry.segments[1];
    const weir_status status = weir_dev_rdma_post(queue, &entry, flags, &ticket);
    return status == WEIR_OK ? (int64_t)ticket : (int64_t)status;
}

/* Posts a transfer of up to WEIR_RDMA_MESSAGE bytes to a NIC's queue. */
WEIR_FN int64_t weir_window_port_message(const weir_dev_rdma *queue, uint32_t opcode, weir_dev_rdma_memory remote,
                                         weir_dev_rdma_memory local, uint32_t bytes, uint32_t flags)
{
    const weir_vec16 data = weir_mlx5_data(local.address, local.key, bytes);
    return WEIR_SLOW(weir_window_port_entry(queue, remote.address, data.lo, data.hi, remote.key, opcode, flags));
}

/* Posts a transfer of any size to a NIC's queue. */
WEIR_FN int64_t weir_window_port_transfer(const weir_dev_rdma *queue, uint32_t opcode, weir_dev_rdma_memory remote,
                                          weir_dev_rdma_memory local, uint64_t bytes, uint32_t flags)
{
    WEIR_ROLLED
    while (WEIR_UNLIKELY(bytes > WEIR_RDMA_MESSAGE)) {
        const int64_t ticket = weir_window_port_message(queue, opcode, remote, local, WEIR_RDMA_MESSAGE, 0);
        if (ticket < 0) {
            return ticket;
        }
        remote.address += WEIR_RDMA_MESSAGE;
        local.address += WEIR_RDMA_MESSAGE;
        bytes -= WEIR_RDMA_MESSAGE;
    }
    return weir_window_port_message(queue, opcode, remote, local, (uint32_t)bytes, flags);
}

/* Posts the read that makes earlier puts to a memory of the device visible. */
WEIR_FN int64_t weir_window_port_settle(const weir_dev_port_rdma *rdma, const weir_dev_port_memory *memory,
                                        uint32_t flags)
{
    return weir_window_port_message(&rdma->queue, WEIR_MLX5_READ, weir_dev_port_memory_there(memory, 0), rdma->scratch,
                                    1, flags);
}

/* Pushes a request to the proxy. */
WEIR_FN_COLD int64_t weir_window_port_push(const weir_dev_proxy_channel *queue, uint64_t remote_offset,
                                           uint64_t local_offset, uint64_t bytes, uint64_t value, uint32_t remote,
                                           uint32_t local, uint32_t type)
{
    weir_arch_no_kernel();
    uint64_t ticket = 0;
    weir_request request;
    request.remote_offset = remote_offset;
    request.local_offset = local_offset;
    request.bytes = bytes;
    request.value = value;
    request.remote = remote;
    request.local = local;
    request.channel = 0;
    request.type = (uint16_t)type;
    request.reserved = 0;
    const weir_status status = weir_dev_proxy_channel_push(queue, &request, &ticket);
    return status == WEIR_OK ? (int64_t)ticket : (int64_t)status;
}

/* ---- calls ----------------------------------------------------------------------------------------------------- */

/* The status of a post to a NIC's queue: the error that ended the queue, as far as the device knows it, comes first. */
WEIR_FN weir_status weir_window_port_status(const weir_dev_port_rdma *rdma, int64_t ticket)
{
    const weir_dev_rdma_state *state = rdma->queue.state;
    weir_status ended = WEIR_OK;
    if ((weir_arch_load_relaxed_dev_u64(&state->failed) | weir_arch_load_relaxed_dev_u64(&state->refused)) != 0) {
        ended = weir_dev_port_rdma_failed(rdma);
    }
    return ended != WEIR_OK ? ended : ticket < 0 ? (weir_status)ticket : WEIR_OK;
}

/* weir_window_port_move. The ids of both memories are in one number: twelve registers hold the arguments of a call. */
WEIR_FN_COLD weir_status weir_window_port_post_move(const weir_dev_window *window, uint64_t remote_offset,
                                                    uint64_t local_offset, uint64_t bytes, uint32_t device,
                                                    uint32_t type, uint32_t memories, int more)
{
    weir_arch_no_kernel();
    const weir_dev_port_channel *channel = window->to[device].channel;
    const weir_dev_window_place *places = window->table->places;
    const weir_dev_window_place *remote = places + (memories / WEIR_WINDOW_MEMORIES * window->devices + device);
    const weir_dev_window_place *local = places + (memories % WEIR_WINDOW_MEMORIES * window->devices + device);
    int64_t ticket;
    if (weir_dev_port_channel_is_rdma(channel)) {
        const weir_dev_port_rdma *rdma = &channel->rdma;
        const uint32_t flags = more ? 0 : WEIR_RDMA_RING;
        const int settles = type == WEIR_REQUEST_PUT && (remote->port.kinds & WEIR_PORT_MEMORY_SETTLE) != 0;
        ticket = weir_window_port_transfer(&rdma->queue, type == WEIR_REQUEST_PUT ? WEIR_MLX5_WRITE : WEIR_MLX5_READ,
                                           weir_dev_port_memory_there(&remote->port, remote_offset),
                                           weir_dev_port_memory_here(&local->port, local_offset), bytes,
                                           settles ? 0 : flags);
        if (settles && ticket >= 0) {
            ticket = weir_window_port_settle(rdma, &remote->port, flags);
        }
        return weir_window_port_status(rdma, ticket);
    }
    ticket = weir_window_port_push(&channel->queue, remote_offset, local_offset, bytes, 0, remote->remote, local->local,
                                   type);
    return ticket < 0 ? (weir_status)ticket : WEIR_OK;
}

/* weir_window_port_value. */
WEIR_FN_COLD weir_status weir_window_port_post_value(const weir_dev_window *window, uint32_t device, uint64_t place,
                                                     uint64_t value)
{
    weir_arch_no_kernel();
    const weir_dev_port_channel *channel = window->to[device].channel;
    int64_t ticket = 0;
    if (weir_dev_port_channel_is_rdma(channel)) {
        const weir_dev_port_rdma *rdma = &channel->rdma;
        const weir_vec16 data = weir_mlx5_inline_value(value, sizeof value);
        if ((rdma->remote.kinds & WEIR_PORT_MEMORY_SETTLE) != 0) {
            ticket = weir_window_port_settle(rdma, &rdma->remote, 0);
        }
        if (ticket >= 0) {
            ticket = weir_window_port_entry(&rdma->queue, rdma->remote.remote + place, data.lo, data.hi,
                                            rdma->remote.rkey, WEIR_MLX5_WRITE, WEIR_RDMA_RING | WEIR_RDMA_FENCE);
        }
        return weir_window_port_status(rdma, ticket);
    }
    ticket = weir_window_port_push(&channel->queue, place, 0, sizeof value, value, WEIR_PORT_REMOTE, WEIR_PORT_LOCAL,
                                   WEIR_REQUEST_VALUE);
    return ticket < 0 ? (weir_status)ticket : WEIR_OK;
}

/* Waits for a ticket of the proxy that has just been pushed, as weir_dev_proxy_channel_wait does. That one calls a
 * function with more arguments than there are registers for them: behind a pointer they would be in memory, and so they
 * would be for every other call of that function. */
WEIR_FN weir_status weir_window_port_await(const weir_dev_proxy_channel *queue, uint64_t ticket)
{
    weir_spin spin = weir_spin_begin();
    uint64_t done;
    weir_arch_pause_for_host();
    while ((done = weir_arch_load_acquire_sys_u64(&queue->progress->done)) <= ticket) {
        const weir_status status = weir_spin_step(&spin, queue->fifo.control);
        if (status != WEIR_OK) {
            return WEIR_SLOW(weir_dev_control_end_wait(
                queue->fifo.control, status, weir_dev_proxy_channel_note(queue, WEIR_DOING_CHANNEL_WAIT, ticket)));
        }
    }
    return done == WEIR_PROGRESS_FAILED ? weir_dev_progress_outcome(queue->progress, ticket) : WEIR_OK;
}

/* weir_window_port_flush. */
WEIR_FN_COLD weir_status weir_window_port_post_flush(const weir_dev_window *window, uint32_t device)
{
    weir_arch_no_kernel();
    const weir_dev_port_channel *channel = window->to[device].channel;
    int64_t ticket;
    if (weir_dev_port_channel_is_rdma(channel)) {
        const weir_dev_port_rdma *rdma = &channel->rdma;
        const uint32_t flags = WEIR_RDMA_RING | WEIR_RDMA_SIGNALLED;
        ticket = (rdma->remote.kinds & WEIR_PORT_MEMORY_SETTLE) != 0
                     ? weir_window_port_settle(rdma, &rdma->remote, flags)
                     : weir_window_port_entry(&rdma->queue, 0, 0, 0, 0, WEIR_MLX5_NOP, flags);
        return ticket < 0 ? weir_window_port_status(rdma, ticket) : weir_dev_port_rdma_wait(rdma, (uint64_t)ticket);
    }
    ticket = weir_window_port_push(&channel->queue, 0, 0, 0, 0, WEIR_PORT_REMOTE, WEIR_PORT_LOCAL, WEIR_REQUEST_FLUSH);
    return ticket < 0 ? (weir_status)ticket : weir_window_port_await(&channel->queue, (uint64_t)ticket);
}

typedef weir_status weir_window_move_function(const weir_dev_window *window, uint64_t remote_offset,
                                              uint64_t local_offset, uint64_t bytes, uint32_t device, uint32_t type,
                                              uint32_t memories, int more);
typedef weir_status weir_window_value_function(const weir_dev_window *window, uint32_t device, uint64_t place,
                                               uint64_t value);
typedef weir_status weir_window_flush_function(const weir_dev_window *window, uint32_t device);
WEIR_FN_POINTER(weir_window_move_function, weir_window_port_move, weir_window_port_post_move);
WEIR_FN_POINTER(weir_window_value_function, weir_window_port_value, weir_window_port_post_value);
WEIR_FN_POINTER(weir_window_flush_function, weir_window_port_flush, weir_window_port_post_flush);

/* Posts a put or a get of at least one byte to the channel of `device`; by one thread. With `more` another request
 * follows at once, and the NIC's doorbell waits for it. */
WEIR_FN weir_status weir_window_port_move(const weir_dev_window *window, uint32_t device, uint32_t type,
                                          uint32_t remote_memory, uint64_t remote_offset, uint32_t local_memory,
                                          uint64_t local_offset, uint64_t bytes, int more)
{
    return WEIR_SLOW(WEIR_FN_APART(weir_window_port_move, weir_window_port_post_move)(
        window, remote_offset, local_offset, bytes, device, type, remote_memory * WEIR_WINDOW_MEMORIES + local_memory,
        more));
}

/* Stores a word in the shared part of `device`, behind all earlier puts to it. */
WEIR_FN weir_status weir_window_port_value(const weir_dev_window *window, uint32_t device, uint64_t place,
                                           uint64_t value)
{
    return WEIR_SLOW(WEIR_FN_APART(weir_window_port_value, weir_window_port_post_value)(window, device, place, value));
}

/* Waits until all earlier requests to `device` are done. */
WEIR_FN weir_status weir_window_port_flush(const weir_dev_window *window, uint32_t device)
{
    return WEIR_SLOW(WEIR_FN_APART(weir_window_port_flush, weir_window_port_post_flush)(window, device));
}

#else

WEIR_FN weir_status weir_window_port_move(const weir_dev_window *window, uint32_t device, uint32_t type,
                                          uint32_t remote_memory, uint64_t remote_offset, uint32_t local_memory,
                                          uint64_t local_offset, uint64_t bytes, int more)
{
    (void)window, (void)device, (void)type, (void)remote_memory, (void)remote_offset, (void)local_memory;
    (void)local_offset, (void)bytes, (void)more;
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
