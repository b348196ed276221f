/* weir/device/port_channel.h - ask for transfers, signal the peer, and wait for its signals, in kernels.
 *
 *     weir_dev_port_channel_put_signal(&args->channel, offset, offset, bytes, coop, NULL);
 *     status = weir_dev_port_channel_wait(&args->channel);               the peer's data is here
 *
 * Offsets and sizes are bytes, of any value and alignment. `remote` is memory of the peer, `local` memory of this rank.
 * In put and in get, the remote offset comes before the local one. ..._post takes a request between any two memories
 * by their ids.
 *
 * What each call promises, and when: `done` is when its ticket is, or that of a later request or flush.
 *
 *     call      source may be reused    data is at its destination    a running kernel of the peer sees it
 *     put       when done               when done                     after the wait for a later signal
 *     get       -                       when done (here)              -
 *     value     at once                 when done                     when it reads the value; all puts and values
 *                                                                     before it are visible then
 *     add       at once                 when done                     as value
 *     signal    -                       -                             its wait returns; all puts, values, adds and
 *                                                                     signals before it are visible then
 *     flush     of all before, when done
 *
 * put_signal is a put and a signal in one request. Puts and gets are not ordered among themselves; a get is done, and
 * a put's source read, when their tickets say so, and not by a later signal.
 *
 * Transfers of up to direct_bytes, where the peer's memory is mapped here, are done by the calling threads themselves
 * while nothing of the channel is queued (channels of two ranks on one device do all so): what a thread does of one is
 * done when its call returns. So are signals. That the peer sees them in order does not depend on it. Groups that
 * cannot meet, and those whose blocks meet each by itself, ask for a transfer.
 *
 * The leader's put or get may return while others of its group still copy. A group of more than one thread calls
 * weir_coop_sync behind it, before signal or flush, before a ticket tells of all bytes, before the source is written
 * again, and before what a get has brought is read. put_signal and put_signal_flush signal behind all bytes by
 * themselves.
 *
 * Who posts what kernels ask for, the handle says: a thread of the proxy, or, over transport ib where WEIR_PORT_ENGINE
 * asks for it, the calling thread itself, which writes entries for the NIC and rings its doorbell
 * (weir/device/impl/port_rdma.h). The promises are the same.
 *
 * Adds over one transport are atomic to each other, over ipc also to atomics of kernels at system scope. Copy engines
 * cannot add: between GPUs the caller does itself, to memory of a GPU, when all that is queued is done, unless
 * direct_bytes is WEIR_PORT_DIRECT_NEVER. Any other add there, and one over a transport or a NIC that has none, fails
 * its channel with WEIR_ERR_UNSUPPORTED.
 *
 * Order:     the leader's push is a release: what it wrote, or had synchronized with, is what is sent. Data that other
 *            threads of the coop wrote needs a weir_coop_sync before the call. wait is an acquire.
 * Threads:   calls with a coop are made by all its threads with the same arguments; the leader pushes, and its status
 *            and ticket count: the others return WEIR_OK and leave *ticket alone. Calls without one are made by a
 *            single thread. Any number of coops and threads push at the same time; one waits for signals.
 * Blocking:  wait, flush with ticket NULL, adds by the caller, and pushes while the channel has no credit, or the NIC's
 *            queue no room, with the communicator's deadline.
 * Errors:    of pushes and waits: WEIR_ERR_TIMEOUT, the communicator's sticky error, or WEIR_ERR_INVALID while the
 *            proxy that they need was not started. Of tickets, adds by the caller and waits for signals: also the
 *            channel's own, of a request out of range say, which is no error of the communicator. Waits for signals
 *            return WEIR_ERR_REMOTE when the peer's channel has failed. */
#ifndef WEIR_DEVICE_PORT_CHANNEL_H
#define WEIR_DEVICE_PORT_CHANNEL_H

#include "weir/device/impl/port_rdma.h"
#include "weir/device/memory_channel.h"
#include "weir/device/proxy.h"

#undef WEIR_DEV_USED_port_channel
#define WEIR_DEV_USED_port_channel weir_dev_version_port_channel

/* Kernels that know who posts for all their channels may define this before they include the header, and are smaller:
 * WEIR_PORT_BY_PROXY or WEIR_PORT_BY_DEVICE. Handles of another engine end their posts with WEIR_ERR_INVALID. */
#if !defined(WEIR_PORT_ENGINE)
#define WEIR_PORT_ENGINE WEIR_PORT_BY_ANY
#endif
#define WEIR_PORT_BY_ANY 2u

/* The ticket of what was done without a request. */
#define WEIR_TICKET_DONE UINT64_MAX

/* ---- requests --------------------------------------------------------------------------------------------- */

/* Whether kernels post by themselves. */
WEIR_FN int weir_dev_port_channel_is_rdma(const weir_dev_port_channel *channel)
{
    return WEIR_PORT_ENGINE == WEIR_PORT_BY_ANY ? channel->engine == WEIR_PORT_BY_DEVICE
                                                : WEIR_PORT_ENGINE == WEIR_PORT_BY_DEVICE;
}

/* Any request; its `channel` is not looked at. By one thread. */
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

/* WEIR_OK when the request is completed; WEIR_PENDING, or an error. */
WEIR_FN weir_status weir_dev_port_channel_test_ticket(const weir_dev_port_channel *channel, uint64_t ticket)
{
    if (ticket == WEIR_TICKET_DONE) {
        return WEIR_OK;
    }
    return weir_dev_port_channel_is_rdma(channel) ? weir_dev_port_rdma_test(&channel->rdma, ticket)
                                                  : weir_dev_proxy_channel_test(&channel->queue, ticket);
}

WEIR_FN weir_status weir_dev_port_channel_wait_ticket(const weir_dev_port_channel *channel, uint64_t ticket)
{
    if (ticket == WEIR_TICKET_DONE) {
        return WEIR_OK;
    }
    return weir_dev_port_channel_is_rdma(channel) ? weir_dev_port_rdma_wait(&channel->rdma, ticket)
                                                  : weir_dev_proxy_channel_wait(&channel->queue, ticket);
}

/* ---- the caller's own stores ------------------------------------------------------------------------------ */

/* Whether all requests of the channel are completed. A channel that has failed keeps a credit for ever, so that no
 * signal overtakes what was lost. */
WEIR_FN int weir_dev_port_channel_is_idle(const weir_dev_port_channel *channel)
{
    weir_dev_credits *credits = channel->queue.credits;
    if (WEIR_UNLIKELY(weir_arch_load_acquire_dev_u64(&credits->used) != 0)) {
        weir_dev_credits_refresh(credits, &channel->queue.progress->returned);
        return weir_arch_load_acquire_dev_u64(&credits->used) == 0;
    }
    return 1;
}

/* Whether the threads of the coop do a transfer of `bytes` themselves: the same answer for all of them, so that those
 * that decide by what is queued must be able to meet cheaply. The threads have met when it is yes and not `always`.
 * Blocks that meet each by itself do not know when the others have copied. */
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

/* The first of the whole group, also of one whose blocks meet each by itself. */
WEIR_FN int weir_dev_port_channel_leads(weir_coop coop)
{
    return coop.rank == 0;
}

/* ---- what kernels call ---------------------------------------------------------------------------------------- */

/* All requests before it are done when its ticket is. Waits for that when `ticket` is NULL. */
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

WEIR_FN weir_status weir_dev_port_channel_signal(const weir_dev_port_channel *channel, uint64_t *ticket)
{
    if (channel->direct_bytes != 0 && weir_dev_port_channel_is_idle(channel)) {
        weir_dev_semaphore_signal(&channel->semaphore);
        return weir_dev_port_channel_done(ticket);
    }
    return weir_dev_port_channel_ask(channel, WEIR_REQUEST_SIGNAL, 0, 0, 0, 0, ticket);
}

/* A put or a get, and modifiers, between remote and local. Where the group moves the bytes itself, it signals behind
 * all of them, and its ticket stands for requests that are still queued, too. */
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
        weir_copy(channel->remote + remote_offset, channel->local + local_offset, bytes, coop);
    }
    if ((type & WEIR_REQUEST_SIGNAL) == 0) {
        return ticket != NULL && leads ? weir_dev_port_channel_flush(channel, ticket) : WEIR_OK;
    }
    weir_status status = weir_coop_sync(coop);
    return leads && status == WEIR_OK ? weir_dev_port_channel_signal(channel, ticket) : status;
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

/* put_signal, whose ticket also stands for all requests before it. The leader waits for that when it is NULL. */
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

/* Stores the `bytes` (1 to 8, not over an 8-byte boundary) low bytes of `value` to `remote`, in one piece where it
 * begins at a multiple of 8. By one thread. */
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

/* Signals that have come so far: of the peer's kernels, and of its host thread. */
WEIR_FN uint64_t weir_dev_port_channel_signals(const weir_dev_semaphore *semaphore)
{
    return weir_arch_load_acquire_sys_u64(semaphore->inbound) + weir_arch_load_acquire_sys_u64(semaphore->inbound + 1);
}

/* Why no signal of the peer need be waited for: WEIR_OK, or the error of this channel, or WEIR_ERR_REMOTE, when the
 * peer's has failed. */
WEIR_FN weir_status weir_dev_port_channel_ended(const weir_dev_port_channel *channel)
{
    weir_status status = weir_dev_port_channel_is_rdma(channel) ? weir_dev_port_rdma_failed(&channel->rdma) : WEIR_OK;
    return status != WEIR_OK ? status
                             : (weir_status)(int32_t)weir_arch_load_acquire_sys_u32(
                                   (const uint32_t *)&channel->queue.progress->ended);
}

/* The error with which waits for signals end, of the communicator or the channel, or WEIR_OK: for loops without waits;
 * see weir_dev_semaphore_status. */
WEIR_FN weir_status weir_dev_port_channel_status(const weir_dev_port_channel *channel)
{
    const weir_status status = weir_dev_semaphore_status(&channel->semaphore);
    return status != WEIR_OK ? status : weir_dev_port_channel_ended(channel);
}

/* The slow part of a wait for more than `consumed` signals, which begins with a look at the control block when the wait
 * is due. Each time it has looked at the control block it looks at the channel, too; a signal that came before the
 * channel failed still counts. */
WEIR_FN_COLD weir_status weir_dev_port_channel_await(const weir_dev_port_channel *channel, uint64_t consumed)
{
    const weir_dev_semaphore *semaphore = &channel->semaphore;
    weir_spin spin = weir_spin_begin();
    weir_status status = weir_spin_is_due(consumed) ? weir_dev_semaphore_status(semaphore) : WEIR_OK;
    weir_status ended = WEIR_OK;
    if (!weir_dev_port_channel_is_rdma(channel)) {
        ended = weir_dev_progress_unstarted(channel->queue.progress);
    }
    while (status == WEIR_OK && weir_dev_port_channel_signals(semaphore) <= consumed) {
        if (ended != WEIR_OK) {
            return ended;
        }
        status = weir_spin_step(&spin, semaphore->control);
        if (spin.reads % WEIR_ARCH_SPIN_READS == 0) {
            ended = weir_dev_port_channel_ended(channel);
        }
    }
    return weir_dev_control_end_wait(semaphore->control, status,
                                     weir_dev_semaphore_note(semaphore, WEIR_DOING_PORT_WAIT));
}

/* Consumes one signal. By one thread. */
WEIR_FN weir_status weir_dev_port_channel_wait(const weir_dev_port_channel *channel)
{
    const weir_dev_semaphore *semaphore = &channel->semaphore;
    uint64_t consumed = weir_arch_load_relaxed_dev_u64(semaphore->expected);
    uint32_t reads = WEIR_ARCH_FAST_READS;
    uint64_t signals;
    WEIR_ROLLED
    while ((signals = weir_dev_port_channel_signals(semaphore)) <= consumed && !weir_spin_is_long(&reads)) {
    }
    if (WEIR_UNLIKELY((signals <= consumed) | weir_spin_is_due(consumed))) {
        weir_status status = weir_dev_port_channel_await(channel, consumed);
        if (status != WEIR_OK) {
            return status;
        }
    }
    weir_arch_store_relaxed_dev_u64(semaphore->expected, consumed + 1);
    return WEIR_OK;
}

/* Consumes a signal if there is one: WEIR_OK, WEIR_PENDING, or the error of the communicator or the channel when there
 * is none. */
WEIR_FN weir_status weir_dev_port_channel_poll(const weir_dev_port_channel *channel)
{
    const weir_dev_semaphore *semaphore = &channel->semaphore;
    const uint64_t consumed = weir_arch_load_relaxed_dev_u64(semaphore->expected);
    weir_status ended = WEIR_OK;
    /* Once more when the channel has failed: a signal that came before counts. */
    for (;;) {
        if (weir_dev_port_channel_signals(semaphore) > consumed) {
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

/* One thread of the group waits, all return its status, and all may read what the peer sent. For groups that can meet;
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

/* Small data in one trip: packets of 16 bytes for 8 of data (LL16 of impl/packet.h), which carry the flag that
 * says that they are there. put_packets writes them into this rank's packet buffer, from which one put moves them into
 * the peer's; no signal is sent. Where the peer's buffer is mapped, the threads store them there themselves.
 *
 * A receiver looks at packets while they arrive, so the 8-byte words of a put must arrive whole. Over ipc they are
 * stored so. Over ib NICs write aligned words whole; no specification promises that. Over ofi bytes arrive in any
 * pieces: a value comes behind each put of packets there, for which unpack_packets waits first.
 *
 * Both ranks make the same calls in the same order, put_packets on one for each unpack_packets on the other, with the
 * same packet_offset and bytes. A place of the packet buffers may be used again once the peer has unpacked what was
 * there, of which packets or a signal of its own tell. */

/* Bytes of packets that a buffer has room for. */
WEIR_FN uint64_t weir_dev_port_channel_packets_room(const weir_dev_port_channel *channel)
{
    return channel->packets != NULL ? channel->packets_half - WEIR_PORT_PACKETS_TAIL : 0;
}

/* `doing` is WEIR_DOING_PUT_PACKETS or WEIR_DOING_UNPACK. */
WEIR_FN weir_status weir_dev_port_channel_check_packets(const weir_dev_port_channel *channel, uint32_t doing,
                                                        uint64_t packet_offset, uint64_t local_offset, uint64_t bytes)
{
    const uint64_t needed = (bytes + 7) / 8 * 16;
    const uint64_t room = weir_dev_port_channel_packets_room(channel);
    const int fits = bytes <= channel->local_bytes && weir_dev_in_range(packet_offset, needed, room);
    if (WEIR_UNLIKELY(!fits || !weir_dev_in_range(local_offset, bytes, channel->local_bytes))) {
        weir_dev_note note = weir_dev_note_of(doing, channel->semaphore.peer, fits ? local_offset : packet_offset,
                                              fits ? bytes : needed, fits ? channel->local_bytes : room);
        note.index = fits || doing == WEIR_DOING_UNPACK ? WEIR_LOCAL_MEMORY : 0;
        return weir_dev_control_fail_in(channel->semaphore.control, WEIR_ERR_RANGE, note);
    }
    return WEIR_UNLIKELY(packet_offset % 16 != 0)
               ? weir_dev_control_fail_in(channel->semaphore.control, WEIR_ERR_INVALID,
                                          weir_dev_note_of(doing, channel->semaphore.peer, packet_offset, bytes, 0))
               : WEIR_OK;
}

/* Asks for the packets in this rank's buffer to be moved into the peer's; `count` is the number of the put. */
WEIR_FN weir_status weir_dev_port_channel_move_packets(const weir_dev_port_channel *channel, uint64_t packet_offset,
                                                       uint64_t bytes, uint32_t count, uint64_t *ticket)
{
    weir_request request;
    request.remote_offset = packet_offset;
    request.local_offset = channel->packets_half + packet_offset;
    request.bytes = bytes;
    request.value = 0;
    request.remote = WEIR_PORT_PACKETS_REMOTE;
    request.local = WEIR_PORT_PACKETS_LOCAL;
    request.channel = 0;
    request.type = WEIR_REQUEST_PUT;
    request.reserved = 0;
    if (channel->packets_whole) {
        return weir_dev_port_channel_post(channel, &request, ticket);
    }
    weir_status status = weir_dev_port_channel_post(channel, &request, NULL);
    request.remote_offset = channel->packets_half - WEIR_PORT_PACKETS_TAIL;
    request.bytes = sizeof(uint64_t);
    request.value = count;
    request.type = WEIR_REQUEST_VALUE;
    return status == WEIR_OK ? weir_dev_port_channel_post(channel, &request, ticket) : status;
}

/* Sends `bytes` of `local` at local_offset as packets to packet_offset, a multiple of 16, of the peer's packet buffer,
 * where they take 16 bytes for 8. For groups that can meet; WEIR_ERR_INVALID otherwise. A range or an offset that is
 * wrong is the communicator's sticky error. */
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

/* The slow part of a wait for a packet, or (`packet` NULL) for the value of the put whose packets have this flag. */
WEIR_FN_COLD weir_status weir_dev_port_channel_await_packet(const weir_dev_port_channel *channel, const char *packet,
                                                            uint32_t flag)
{
    const uint64_t *count = (const uint64_t *)(channel->packets + channel->packets_half - WEIR_PORT_PACKETS_TAIL);
    weir_spin spin = weir_spin_begin();
    weir_status status = WEIR_OK;
    weir_status ended = WEIR_OK;
    while (status == WEIR_OK &&
           (packet != NULL ? !weir_ll16_there(weir_arch_load_relaxed_sys_pair(packet), flag)
                           : !weir_packet_has_come((uint32_t)weir_arch_load_acquire_sys_u64(count), flag))) {
        if (ended != WEIR_OK) {
            return ended;
        }
        status = weir_spin_step(&spin, channel->semaphore.control);
        if (spin.reads % WEIR_ARCH_SPIN_READS == 0) {
            ended = weir_dev_port_channel_ended(channel);
        }
    }
    return status;
}

/* Waits for the packets of the peer's matching put at packet_offset, and stores exactly `bytes` of data to `local` at
 * local_offset. The status is the calling thread's; weir_coop_agree makes it the group's. Ends as a wait for a signal
 * does. A grid must meet, or the kernel end, before its next call. */
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
               ? weir_dev_control_end_wait(
                     channel->semaphore.control, status,
                     weir_dev_note_of(WEIR_DOING_UNPACK, channel->semaphore.peer, packet_offset, bytes, 0))
               : WEIR_OK;
}

#endif
