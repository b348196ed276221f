/* weir/device/port_channel.h - request transfers, signal the peer, and wait for its signals, in kernels.
 *
 *     weir_dev_port_channel_put_signal(&args->channel, offset, offset, bytes, coop, NULL);
 *     status = weir_dev_port_channel_wait(&args->channel);               the peer's data is here
 *
 * Offsets and sizes are bytes, of any value and alignment. `remote` is memory of the peer, `local` memory of this rank.
 * In put and in get, the remote offset comes before the local one. ..._post takes a request between any two memories by
 * their ids.
 *
 * This table says what each call guarantees, and when. A request is `done` when its ticket, or the ticket of a later
 * request or flush, is done.
 *
 *     call      source may be reused    data is at its destination    a running kernel of the peer sees it
 *     put       when done               when done                     after the wait for a later signal
 *     get       -                       when done (here)              -
 *     value     at once                 when done                     when it reads the value; all earlier puts and
 *                                                                     values are visible then
 *     add       at once                 when done                     as value
 *     signal    -                       -                             its wait returns; all earlier puts, values, adds
 *                                                                     and signals are visible then
 *     flush     of all before, when done
 *
 * put_signal is a put and a signal in one request. Puts and gets are not ordered among themselves. Only a ticket shows
 * that a get is done, or that a put's source has been read; a later signal does not.
 *
 * If the peer's memory is mapped here, the calling threads do transfers of up to direct_bytes themselves while no
 * request of the channel is queued (channels of two ranks on one device do so for all transfers). The part of a thread
 * is then done when its call returns. The calling threads send signals themselves, too. Either way the peer sees the
 * same order. Groups that cannot meet, and groups of weir_coop_blocks, always request transfers.
 *
 * The leader's put or get may return while other threads of its group still copy. A group of more than one thread
 * therefore calls weir_coop_sync after it: before signal or flush, before a ticket covers all bytes, before the source
 * is written again, and before data of a get is read. put_signal and put_signal_flush signal only after all bytes.
 *
 * The handle says who posts the requests of kernels. Usually this is a thread of the proxy. Over transport ib, if the
 * environment variable WEIR_PORT_ENGINE asks for it, the calling thread itself writes entries for the NIC and rings its
 * doorbell (weir/device/impl/port_rdma.h). The guarantees are the same.
 *
 * A kernel file whose channels all have one poster may define the macro WEIR_PORT_ENGINE before it includes this
 * header, as WEIR_PORT_BY_PROXY or WEIR_PORT_BY_DEVICE. Its kernels are then smaller. Posts to a handle of another
 * engine end with WEIR_ERR_INVALID.
 *
 * Adds over one transport are atomic to each other, and over ipc also to atomics of kernels at system scope. Copy
 * engines cannot add. Between GPUs the caller itself therefore adds to memory of a GPU, after all queued requests are
 * done, unless direct_bytes is WEIR_PORT_DIRECT_NEVER. Any other add between GPUs, and an add over a transport or a NIC
 * without adds, fails its channel with WEIR_ERR_UNSUPPORTED.
 *
 * Order:     the leader's push is a release: the transfer reads data that it wrote, or had synchronized with. Data of
 *            other threads of the coop needs a weir_coop_sync before the call. wait is an acquire.
 * Threads:   all threads of a coop make calls with a coop, with the same arguments. The leader pushes; its status and
 *            ticket count. The others return WEIR_OK and leave *ticket alone. A single thread makes calls without a
 *            coop. Any number of coops and threads push at the same time; one waits for signals.
 * Blocking:  wait, flush with ticket NULL, adds by the caller, and pushes while the channel has no credit, or the NIC's
 *            queue no room, with the communicator's deadline.
 * Ownership: weir_port_channel_device gives the handle. Kernels must not use it after weir_port_channel_destroy.
 * Errors:    of pushes and waits: WEIR_ERR_TIMEOUT, the communicator's sticky error, or WEIR_ERR_INVALID while the
 *            proxy that they need is not started. Tickets, adds by the caller and waits for signals also return the
 *            channel's error, for example of a request out of range; it does not fail the communicator. Waits for
 *            signals return WEIR_ERR_REMOTE if the peer's channel has failed. */
#ifndef WEIR_DEVICE_PORT_CHANNEL_H
#define WEIR_DEVICE_PORT_CHANNEL_H

#include "weir/device/impl/port_direct.h"
#include "weir/device/impl/port_packets.h"
#include "weir/device/memory_channel.h"

#undef WEIR_DEV_USED_port_channel
#define WEIR_DEV_USED_port_channel weir_dev_version_port_channel

/* ---- requests --------------------------------------------------------------------------------------------- */

/* Posts any request; ignores its `channel`. By one thread. Its body is in impl/port_post.h. */
WEIR_FN weir_status weir_dev_port_channel_post(const weir_dev_port_channel *channel, const weir_request *request,
                                               uint64_t *ticket);

/* WEIR_OK if the request is completed; WEIR_PENDING, or an error. */
WEIR_FN weir_status weir_dev_port_channel_test_ticket(const weir_dev_port_channel *channel, uint64_t ticket)
{
    if (ticket == WEIR_TICKET_DONE) {
        return WEIR_OK;
    }
    return weir_dev_port_channel_is_rdma(channel) ? weir_dev_port_rdma_test(&channel->rdma, ticket)
                                                  : weir_dev_proxy_channel_test(&channel->queue, ticket);
}

/* Waits until the request of the ticket, and all before it, are completed. */
WEIR_FN weir_status weir_dev_port_channel_wait_ticket(const weir_dev_port_channel *channel, uint64_t ticket)
{
    if (ticket == WEIR_TICKET_DONE) {
        return WEIR_OK;
    }
    return weir_dev_port_channel_is_rdma(channel) ? weir_dev_port_rdma_wait(&channel->rdma, ticket)
                                                  : weir_dev_proxy_channel_wait(&channel->queue, ticket);
}

/* ---- calls of kernels ------------------------------------------------------------------------------------------ */

/* Its ticket is done when all earlier requests are done. With `ticket` NULL the call waits for that. */
WEIR_FN weir_status weir_dev_port_channel_flush(const weir_dev_port_channel *channel, uint64_t *ticket)
{
    uint64_t position = WEIR_TICKET_DONE;
    weir_status status = WEIR_OK;
    if (channel->direct_bytes == 0 || !weir_dev_port_channel_is_idle(channel)) {
        status = weir_dev_port_channel_ask(channel, WEIR_REQUEST_FLUSH, 0, 0, 0, 0, &position);
    }
    if (status == WEIR_OK && ticket != NULL) {
        *ticket = position;
    }
    return status == WEIR_OK && ticket == NULL ? weir_dev_port_channel_wait_ticket(channel, position) : status;
}

/* Signals the peer, behind all earlier requests. By one thread. */
WEIR_FN weir_status weir_dev_port_channel_signal(const weir_dev_port_channel *channel, uint64_t *ticket)
{
    if (channel->direct_bytes != 0 && weir_dev_port_channel_is_idle(channel)) {
        weir_dev_semaphore_signal(&channel->semaphore);
        return weir_dev_port_channel_done(ticket);
    }
    return weir_dev_port_channel_ask(channel, WEIR_REQUEST_SIGNAL, 0, 0, 0, 0, ticket);
}

/* Copies `bytes` of local at local_offset to remote at remote_offset. */
WEIR_FN weir_status weir_dev_port_channel_put(const weir_dev_port_channel *channel, uint64_t remote_offset,
                                              uint64_t local_offset, uint64_t bytes, weir_coop coop, uint64_t *ticket);

/* Copies `bytes` of remote at remote_offset to local at local_offset. */
WEIR_FN weir_status weir_dev_port_channel_get(const weir_dev_port_channel *channel, uint64_t remote_offset,
                                              uint64_t local_offset, uint64_t bytes, weir_coop coop, uint64_t *ticket);

/* A put, and a signal behind it. */
WEIR_FN weir_status weir_dev_port_channel_put_signal(const weir_dev_port_channel *channel, uint64_t remote_offset,
                                                     uint64_t local_offset, uint64_t bytes, weir_coop coop,
                                                     uint64_t *ticket);

/* put_signal with a ticket that also covers all earlier requests. With `ticket` NULL the leader waits for it. */
WEIR_FN weir_status weir_dev_port_channel_put_signal_flush(const weir_dev_port_channel *channel, uint64_t remote_offset,
                                                           uint64_t local_offset, uint64_t bytes, weir_coop coop,
                                                           uint64_t *ticket);

/* Stores the `bytes` (1 to 8, not over an 8-byte boundary) low bytes of `value` to `remote`, as one store if the offset
 * is a multiple of 8. By one thread. */
WEIR_FN weir_status weir_dev_port_channel_value(const weir_dev_port_channel *channel, uint64_t remote_offset,
                                                uint64_t value, uint32_t bytes, uint64_t *ticket)
{
    return weir_dev_port_channel_ask(channel, WEIR_REQUEST_VALUE, remote_offset, 0, bytes, value, ticket);
}

/* Adds `value` to the 8-byte word of `remote` at remote_offset, a multiple of 8. By one thread. */
WEIR_FN weir_status weir_dev_port_channel_add(const weir_dev_port_channel *channel, uint64_t remote_offset,
                                              uint64_t value, uint64_t *ticket)
{
    if (!channel->direct_adds || (((uintptr_t)channel->remote | remote_offset) & 7) != 0 ||
        !weir_dev_in_range(remote_offset, 8, channel->remote_bytes)) {
        return weir_dev_port_channel_ask(channel, WEIR_REQUEST_ADD, remote_offset, 0, 8, value, ticket);
    }
    weir_status status = weir_dev_port_channel_flush(channel, NULL);
    if (status != WEIR_OK) {
        return status;
    }
    weir_arch_add_release_sys_u64((uint64_t *)(channel->remote + remote_offset), value);
    return weir_dev_port_channel_done(ticket);
}

/* ---- the peer's signals --------------------------------------------------------------------------------------- */

/* The error with which waits for signals end, of the communicator or the channel, or WEIR_OK. For loops without waits;
 * see weir_dev_semaphore_status. */
WEIR_FN weir_status weir_dev_port_channel_status(const weir_dev_port_channel *channel)
{
    const weir_status status = weir_dev_semaphore_status(&channel->semaphore);
    return status != WEIR_OK ? status : weir_dev_port_channel_ended(channel);
}

/* Consumes one signal. By one thread. */
WEIR_FN weir_status weir_dev_port_channel_wait(const weir_dev_port_channel *channel)
{
    const weir_dev_semaphore *semaphore = &channel->semaphore;
    uint64_t consumed = weir_arch_load_relaxed_dev_u64(semaphore->expected);
    uint64_t signals = weir_dev_port_channel_signals(semaphore); /* while `consumed` is being loaded */
    uint32_t reads = WEIR_ARCH_FAST_READS;
    int is_long = weir_spin_is_due(consumed);
    WEIR_ROLLED
    while ((signals <= consumed) & !is_long) {
        signals = weir_dev_port_channel_signals(semaphore);
        is_long = weir_spin_is_long(&reads);
    }
    weir_arch_fence_acquire_sys();
    if (WEIR_UNLIKELY(is_long)) {
        weir_status status = WEIR_SLOW(weir_dev_port_channel_await(channel, consumed));
        if (status != WEIR_OK) {
            return status;
        }
    }
    weir_arch_store_relaxed_dev_u64(semaphore->expected, consumed + 1);
    return WEIR_OK;
}

/* Consumes a signal if there is one: WEIR_OK, WEIR_PENDING, or the error of the communicator or the channel if there is
 * none. A poll that finds a signal does not ask for the error. */
WEIR_FN weir_status weir_dev_port_channel_poll(const weir_dev_port_channel *channel)
{
    const weir_dev_semaphore *semaphore = &channel->semaphore;
    const uint64_t consumed = weir_arch_load_relaxed_dev_u64(semaphore->expected);
    weir_status ended = WEIR_OK;
    /* Reads once more after the channel has failed: a signal that arrived before counts. */
    for (;;) {
        if (weir_dev_port_channel_signals(semaphore) > consumed) {
            weir_arch_fence_acquire_sys();
            weir_arch_store_relaxed_dev_u64(semaphore->expected, consumed + 1);
            return WEIR_OK;
        }
        const weir_status status = ended != WEIR_OK ? ended : weir_dev_control_status(semaphore->control);
        if (status != WEIR_OK) {
            return status;
        }
        ended = weir_dev_port_channel_ended(channel);
        if (ended == WEIR_OK) {
            return WEIR_PENDING;
        }
    }
}

/* One thread of the group waits, all return its status, and all may read the peer's data. For groups that can meet;
 * WEIR_ERR_INVALID otherwise. */
WEIR_FN weir_status weir_dev_port_channel_wait_coop(const weir_dev_port_channel *channel, weir_coop coop)
{
    weir_status status = WEIR_OK;
    if (WEIR_UNLIKELY(!weir_coop_can_meet(coop) || coop.scope == WEIR_COOP_BLOCKS)) {
        return WEIR_ERR_INVALID; /* before a signal is consumed */
    }
    if (weir_coop_leads(coop)) {
        status = weir_dev_port_channel_wait(channel);
    }
    return weir_coop_agree(coop, channel->semaphore.control, status);
}

/* ---- packets --------------------------------------------------------------------------------------------------- */

/* Small data in one trip: packets of 16 bytes for 8 of data (LL16 of impl/packet.h), which carry the flag of their
 * arrival. put_packets writes them into this rank's packet buffer, and one put moves them into the peer's, without a
 * signal. If the peer's buffer is mapped, the threads store the packets there themselves.
 *
 * A receiver reads packets while they arrive, so the 8-byte words of a put must arrive whole. Over ipc they are stored
 * whole. Over ib NICs write aligned words whole, though no specification guarantees it. Over ofi bytes arrive in any
 * pieces: there a value follows each put of packets, and unpack_packets waits for it first.
 *
 * Both ranks make the same calls in the same order, one put_packets on one rank for each unpack_packets on the other,
 * with the same packet_offset and bytes. A place of the packet buffers may be used again after the peer has unpacked
 * its packets; packets or a signal of the peer's can show that. */

/* Sends `bytes` of `local` at local_offset as packets to packet_offset, a multiple of 16, of the peer's packet buffer,
 * where 8 bytes take 16. For groups that can meet; WEIR_ERR_INVALID otherwise. A wrong range or offset becomes the
 * communicator's sticky error. */
WEIR_FN weir_status weir_dev_port_channel_put_packets(const weir_dev_port_channel *channel, uint64_t packet_offset,
                                                      uint64_t local_offset, uint64_t bytes, weir_coop coop,
                                                      uint64_t *ticket)
{
    if (WEIR_UNLIKELY(!weir_coop_can_meet(coop) || coop.scope == WEIR_COOP_BLOCKS)) {
        return WEIR_ERR_INVALID;
    }
    weir_status status =
        weir_dev_port_channel_check_packets(channel, WEIR_DOING_PUT_PACKETS, packet_offset, local_offset, bytes);
    if (status != WEIR_OK) {
        return status;
    }
    const uint32_t flag = weir_packet_flag(channel->epochs + WEIR_EPOCH_PUT);
    const int stores = channel->peer_packets != NULL;
    char *packets = stores ? channel->peer_packets : channel->packets + channel->packets_half;
    weir_ll16_put(packets + packet_offset, channel->local + local_offset, bytes, flag, coop);
    status = weir_coop_sync(coop); /* all have read the flag, and written their packets */
    if (status == WEIR_OK && weir_coop_leads(coop)) {
        weir_arch_add_relaxed_dev_u64(channel->epochs + WEIR_EPOCH_PUT, WEIR_EPOCH_ONE);
        status = stores
                     ? weir_dev_port_channel_done(ticket)
                     : weir_dev_port_channel_move_packets(channel, packet_offset, (bytes + 7) / 8 * 16, flag, ticket);
    }
    const weir_status met = weir_coop_sync(coop); /* the next call finds the next flag */
    return status != WEIR_OK ? status : met;
}

/* Waits for the packets of the peer's matching put at packet_offset, and stores exactly `bytes` of data to `local` at
 * local_offset. The status is the calling thread's; weir_coop_agree makes it the group's. Ends as a wait for a signal
 * does. A grid must meet, or the kernel must end, before the next call. */
WEIR_FN weir_status weir_dev_port_channel_unpack_packets(const weir_dev_port_channel *channel, uint64_t packet_offset,
                                                         uint64_t local_offset, uint64_t bytes, weir_coop coop)
{
    weir_status status =
        weir_dev_port_channel_check_packets(channel, WEIR_DOING_UNPACK, packet_offset, local_offset, bytes);
    if (status != WEIR_OK) {
        return status;
    }
    const uint32_t flag = weir_packet_flag(channel->epochs + WEIR_EPOCH_UNPACK);
    status = weir_packet_look(flag, channel->semaphore.control);
    if (WEIR_UNLIKELY(status != WEIR_OK)) {
        return status;
    }
    weir_packet_advance(channel->epochs, WEIR_EPOCH_UNPACK, WEIR_EPOCH_UNPACK, coop);
    if (channel->peer_packets == NULL && !channel->packets_whole) {
        status = weir_dev_port_channel_await_packet(channel, NULL, flag);
    }
    WEIR_ROLLED
    for (uint64_t i = coop.rank; 8 * i < bytes && status == WEIR_OK; i += coop.size) {
        const char *packet = channel->packets + packet_offset + 16 * i;
        uint32_t reads = WEIR_ARCH_FAST_READS;
        weir_vec16 words = weir_arch_load_relaxed_sys_pair(packet);
        WEIR_ROLLED
        while (!weir_ll16_there(words, flag) && status == WEIR_OK) {
            if (weir_spin_is_long(&reads)) {
                status = weir_dev_port_channel_await_packet(channel, packet, flag);
                reads = WEIR_ARCH_FAST_READS;
            }
            words = weir_arch_load_relaxed_sys_pair(packet);
        }
        if (status == WEIR_OK) {
            weir_packet_scatter(channel->local + local_offset + 8 * i, bytes - 8 * i, 8,
                                (words.lo & 0xffffffffu) | words.hi << 32);
        }
    }
    return WEIR_UNLIKELY(status != WEIR_OK)
               ? WEIR_SLOW(weir_dev_control_end_wait(
                     channel->semaphore.control, status,
                     weir_dev_note_of(WEIR_DOING_UNPACK, channel->semaphore.peer, packet_offset, bytes, 0)))
               : WEIR_OK;
}

/* The bodies of the calls that are only declared above. */
#include "weir/device/impl/port_move.h"

#endif
