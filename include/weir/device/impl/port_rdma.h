/* weir/device/impl/port_rdma.h - the requests of a port channel whose kernels post to a NIC themselves.
 *
 * Kernels include weir/device/port_channel.h, which calls this header if a handle says so. Each request becomes one or
 * more entries of the channel's queue pair (weir/device/rdma.h), with a ring. The position of the last entry is its
 * ticket. That entry is signalled if the caller wants a ticket.
 *
 * Signals and values are fenced: earlier gets and adds are done before them. If the peer's memory belongs to a device,
 * data written there is visible only after a read of it (src/transport/ib/ib.c says why). Such a read comes before each
 * signal, value and add, and before the entry that ends a ticket.
 *
 * A request that cannot be carried out is reported to the host, and nothing is posted behind it. The channel then fails
 * in the order of its requests, as with a proxy, and the peer's posts go on.
 *
 * Order, Threads, Blocking: as weir/device/port_channel.h.
 * Errors:    of posts: WEIR_ERR_TIMEOUT, or the communicator's sticky error; of tickets the same, or the channel's. */
#ifndef WEIR_DEVICE_IMPL_PORT_RDMA_H
#define WEIR_DEVICE_IMPL_PORT_RDMA_H

#include "weir/device/fifo.h"
#include "weir/device/impl/rdma_close.h"
#include "weir/device/impl/request_check.h"
#include "weir/device/rdma.h"

/* The ids of a port channel's packet buffers, the peer's and this rank's, if it has them. */
#define WEIR_PORT_PACKETS_REMOTE 2u
#define WEIR_PORT_PACKETS_LOCAL 3u

/* The ticket of a request that can never be done, because its channel has failed. */
#define WEIR_TICKET_LOST (UINT64_MAX - 1)

/* ---- memories ---------------------------------------------------------------------------------------------- */

WEIR_FN weir_dev_rdma_memory weir_dev_port_memory_there(const weir_dev_port_memory *memory, uint64_t offset)
{
    weir_dev_rdma_memory there;
    there.address = memory->remote + offset;
    there.key = memory->rkey;
    there.reserved = 0;
    return there;
}

WEIR_FN weir_dev_rdma_memory weir_dev_port_memory_here(const weir_dev_port_memory *memory, uint64_t offset)
{
    weir_dev_rdma_memory here;
    here.address = memory->local + offset;
    here.key = memory->lkey;
    here.reserved = 0;
    return here;
}

/* Attached memory `index`, from 0; its kinds are 0 if there is none. */
WEIR_FN_COLD weir_dev_port_memory weir_dev_port_rdma_attached(const weir_dev_port_board *board, uint32_t index)
{
    weir_dev_port_memory memory = { 0, 0, 0, 0, 0, 0, 0 };
    if (index < weir_arch_load_acquire_sys_u64(&board->count)) {
        const uint64_t *words = (const uint64_t *)(uintptr_t)weir_arch_load_relaxed_sys_u64(&board->memories);
        words += (uint64_t)index * (sizeof memory / sizeof *words);
        const uint64_t keys = weir_arch_load_relaxed_sys_u64(words + 3);
        memory.remote = weir_arch_load_relaxed_sys_u64(words);
        memory.local = weir_arch_load_relaxed_sys_u64(words + 1);
        memory.bytes = weir_arch_load_relaxed_sys_u64(words + 2);
        memory.rkey = (uint32_t)keys;
        memory.lkey = (uint32_t)(keys >> 32);
        memory.kinds = (uint32_t)weir_arch_load_relaxed_sys_u64(words + 4);
    }
    return memory;
}

WEIR_FN weir_dev_port_memory weir_dev_port_rdma_memory(const weir_dev_port_rdma *rdma, uint32_t id)
{
    if (id == WEIR_PORT_REMOTE) {
        return rdma->remote;
    }
    return id == WEIR_PORT_LOCAL ? rdma->local : weir_dev_port_rdma_attached(rdma->board, id - WEIR_PORT_LOCAL - 1);
}

/* ---- requests that fail ------------------------------------------------------------------------------------- */

/* Reports the request to the host, and closes the queue in its place. */
WEIR_FN_COLD weir_status weir_dev_port_rdma_refuse(const weir_dev_port_rdma *rdma, const weir_request *request,
                                                   weir_status why, uint64_t *ticket)
{
    weir_arch_no_kernel();
    weir_dev_port_board *board = rdma->board;
    uint64_t position;
    weir_status status = weir_dev_rdma_reserve_last(&rdma->queue, &position);
    if (status != WEIR_OK) {
        return status;
    }
    weir_arch_store_relaxed_sys_u64(&board->request[0], request->remote_offset);
    weir_arch_store_relaxed_sys_u64(&board->request[1], request->local_offset);
    weir_arch_store_relaxed_sys_u64(&board->request[2], request->bytes);
    weir_arch_store_relaxed_sys_u64(&board->request[3], (uint64_t)request->local << 32 | request->remote);
    weir_arch_store_relaxed_sys_u64(&board->request[4], request->type);
    weir_arch_store_release_sys_u64(&board->refused, (uint64_t)-why);
    weir_dev_rdma_refuse(&rdma->queue, position);
    if (ticket != NULL) {
        *ticket = position;
    }
    return WEIR_OK;
}

/* The error of a ticket of a channel whose queue has ended. */
WEIR_FN_COLD weir_status weir_dev_port_rdma_error(const weir_dev_port_rdma *rdma, uint64_t ticket)
{
    return weir_dev_rdma_is_refused(&rdma->queue, ticket)
               ? (weir_status)(-(int32_t)weir_arch_load_acquire_sys_u64(&rdma->board->refused))
               : weir_mlx5_status((uint32_t)weir_arch_load_acquire_dev_u64(&rdma->queue.state->failed));
}

/* WEIR_OK, or the error that has ended the queue, as far as the device knows it. */
WEIR_FN_COLD weir_status weir_dev_port_rdma_failed(const weir_dev_port_rdma *rdma)
{
    const uint64_t refused = weir_arch_load_acquire_sys_u64(&rdma->board->refused);
    const uint64_t failed = weir_arch_load_acquire_dev_u64(&rdma->queue.state->failed);
    if (refused != 0) {
        return (weir_status)(-(int32_t)refused);
    }
    return failed != 0 ? weir_mlx5_status((uint32_t)failed) : WEIR_OK;
}

/* The result of a post that was not taken: a failed channel takes requests and fails them. */
WEIR_FN_COLD weir_status weir_dev_port_rdma_lose(const weir_dev_port_rdma *rdma, weir_status status, uint64_t *ticket)
{
    if ((weir_arch_load_acquire_dev_u64(&rdma->queue.state->failed) == 0 &&
         !weir_dev_rdma_is_refused(&rdma->queue, WEIR_TICKET_LOST)) ||
        weir_dev_control_ended(rdma->queue.control) != WEIR_OK) {
        return status;
    }
    if (ticket != NULL) {
        *ticket = WEIR_TICKET_LOST;
    }
    return WEIR_OK;
}

/* ---- requests ---------------------------------------------------------------------------------------------- */

/* Makes data visible that was written to a device's memory. */
WEIR_FN weir_status weir_dev_port_rdma_settle(const weir_dev_port_rdma *rdma, const weir_dev_port_memory *memory,
                                              uint32_t flags, uint64_t *ticket)
{
    return weir_dev_rdma_get(&rdma->queue, weir_dev_port_memory_there(memory, 0), rdma->scratch, 1, flags, ticket);
}

/* A value or an add, after earlier data to remote is visible. */
WEIR_FN weir_status weir_dev_port_rdma_word(const weir_dev_port_rdma *rdma, const weir_request *request,
                                            const weir_dev_port_memory *remote, uint32_t flags, uint64_t *ticket)
{
    const weir_dev_rdma_memory there = weir_dev_port_memory_there(remote, request->remote_offset);
    const int before = (rdma->remote.kinds & WEIR_PORT_MEMORY_SETTLE) != 0;
    /* As in a put: later signals settle only remote. */
    const int after =
        (remote->kinds & WEIR_PORT_MEMORY_SETTLE) != 0 && (ticket != NULL || request->remote != WEIR_PORT_REMOTE);
    const uint32_t own = after ? 0 : flags;
    uint64_t *own_ticket = after ? NULL : ticket;
    weir_status status = before ? weir_dev_port_rdma_settle(rdma, &rdma->remote, 0, NULL) : WEIR_OK;
    if (status != WEIR_OK) {
        return status;
    }
    if ((request->type & WEIR_REQUEST_VERB) == WEIR_REQUEST_ADD) {
        const uint32_t fence =
            ((rdma->remote.kinds | remote->kinds) & WEIR_PORT_MEMORY_SETTLE) != 0 ? WEIR_RDMA_FENCE : 0;
        status = weir_dev_rdma_fetch_add(&rdma->queue, there, rdma->scratch, request->value, own | fence, own_ticket);
    } else {
        status = weir_dev_rdma_value(&rdma->queue, there, request->value, (uint32_t)request->bytes,
                                     own | WEIR_RDMA_FENCE, own_ticket);
    }
    return after && status == WEIR_OK ? weir_dev_port_rdma_settle(rdma, remote, flags, ticket) : status;
}

/* Bodies of the verbs. */

WEIR_FN weir_status weir_dev_port_rdma_PUT(const weir_dev_port_rdma *rdma, const weir_request *request,
                                           const weir_dev_port_memory *remote, const weir_dev_port_memory *local,
                                           uint32_t flags, uint64_t *ticket)
{
    const weir_dev_rdma_memory there = weir_dev_port_memory_there(remote, request->remote_offset);
    const weir_dev_rdma_memory here = weir_dev_port_memory_here(local, request->local_offset);
    /* Signals settle only remote. */
    if ((remote->kinds & WEIR_PORT_MEMORY_SETTLE) == 0 || (ticket == NULL && request->remote == WEIR_PORT_REMOTE)) {
        return weir_dev_rdma_put(&rdma->queue, there, here, request->bytes, flags, ticket);
    }
    weir_status status = weir_dev_rdma_put(&rdma->queue, there, here, request->bytes, 0, NULL);
    return status == WEIR_OK ? weir_dev_port_rdma_settle(rdma, remote, flags, ticket) : status;
}

WEIR_FN weir_status weir_dev_port_rdma_GET(const weir_dev_port_rdma *rdma, const weir_request *request,
                                           const weir_dev_port_memory *remote, const weir_dev_port_memory *local,
                                           uint32_t flags, uint64_t *ticket)
{
    return weir_dev_rdma_get(&rdma->queue, weir_dev_port_memory_there(remote, request->remote_offset),
                             weir_dev_port_memory_here(local, request->local_offset), request->bytes, flags, ticket);
}

WEIR_FN weir_status weir_dev_port_rdma_VALUE(const weir_dev_port_rdma *rdma, const weir_request *request,
                                             const weir_dev_port_memory *remote, const weir_dev_port_memory *local,
                                             uint32_t flags, uint64_t *ticket)
{
    (void)local;
    return weir_dev_port_rdma_word(rdma, request, remote, flags, ticket);
}

WEIR_FN weir_status weir_dev_port_rdma_ADD(const weir_dev_port_rdma *rdma, const weir_request *request,
                                           const weir_dev_port_memory *remote, const weir_dev_port_memory *local,
                                           uint32_t flags, uint64_t *ticket)
{
    (void)local;
    return weir_dev_port_rdma_word(rdma, request, remote, flags, ticket);
}

/* Bodies of the modifiers. */

WEIR_FN weir_status weir_dev_port_rdma_SIGNAL(const weir_dev_port_rdma *rdma, uint32_t flags, uint64_t *ticket)
{
    const int settles = (rdma->remote.kinds & WEIR_PORT_MEMORY_SETTLE) != 0;
    weir_status status = settles ? weir_dev_port_rdma_settle(rdma, &rdma->remote, 0, NULL) : WEIR_OK;
    return status == WEIR_OK ? weir_dev_rdma_signal(&rdma->queue, rdma->token, flags | WEIR_RDMA_FENCE, ticket)
                             : status;
}

/* Entries complete in order: the last entry stands for all earlier ones, once their data is visible. */
WEIR_FN weir_status weir_dev_port_rdma_FLUSH(const weir_dev_port_rdma *rdma, uint32_t flags, uint64_t *ticket)
{
    return (rdma->remote.kinds & WEIR_PORT_MEMORY_SETTLE) != 0
               ? weir_dev_port_rdma_settle(rdma, &rdma->remote, flags, ticket)
               : weir_dev_rdma_nop(&rdma->queue, flags, ticket);
}

/* Whether the request is a put and a signal with nothing to settle between them: one reservation serves both. */
WEIR_FN int weir_dev_port_rdma_is_put_signal(const weir_dev_port_rdma *rdma, uint32_t type,
                                             const weir_dev_port_memory *remote)
{
    return type == WEIR_REQUEST_PUT_SIGNAL && ((rdma->remote.kinds | remote->kinds) & WEIR_PORT_MEMORY_SETTLE) == 0;
}

/* The request's type without a flush that needs no entry: a signal settles as a flush does, and a verb with nothing to
 * settle serves as its own flush. */
WEIR_FN uint32_t weir_dev_port_rdma_entries(const weir_dev_port_rdma *rdma, uint32_t type)
{
    const int settles = (rdma->remote.kinds & WEIR_PORT_MEMORY_SETTLE) != 0;
    const int serves = (type & WEIR_REQUEST_SIGNAL) != 0 || ((type & WEIR_REQUEST_VERB) != 0 && !settles);
    return serves ? type & ~(uint32_t)WEIR_REQUEST_FLUSH : type;
}

/* Posts the verb, then the modifiers. The last entry rings and has the ticket. */
WEIR_FN weir_status weir_dev_port_rdma_carry_out(const weir_dev_port_rdma *rdma, const weir_request *request,
                                                 const weir_dev_port_memory *remote, const weir_dev_port_memory *local,
                                                 uint64_t *ticket)
{
    const uint32_t flags = WEIR_RDMA_RING | (ticket != NULL ? WEIR_RDMA_SIGNALLED : 0);
    const uint32_t type = weir_dev_port_rdma_entries(rdma, request->type);
    uint32_t left = type & ~WEIR_REQUEST_VERB; /* modifiers that are still to post */
    weir_status status = WEIR_OK;
    if (weir_dev_port_rdma_is_put_signal(rdma, type, remote)) {
        return weir_dev_rdma_put_signal(&rdma->queue, weir_dev_port_memory_there(remote, request->remote_offset),
                                        weir_dev_port_memory_here(local, request->local_offset), request->bytes,
                                        rdma->token, flags | WEIR_RDMA_FENCE, ticket);
    }
    switch (type & WEIR_REQUEST_VERB) {
#define WEIR_REQUEST_ROW(name, text, check)                                                                            \
    case WEIR_REQUEST_##name:                                                                                          \
        status =                                                                                                       \
            weir_dev_port_rdma_##name(rdma, request, remote, local, left == 0 ? flags : 0, left == 0 ? ticket : NULL); \
        break;
        WEIR_REQUEST_VERBS(WEIR_REQUEST_ROW)
#undef WEIR_REQUEST_ROW
    default:
        break;
    }
#define WEIR_REQUEST_ROW(name, text)                                                                \
    if (status == WEIR_OK && (left & WEIR_REQUEST_##name) != 0) {                                   \
        left &= ~(uint32_t)WEIR_REQUEST_##name;                                                     \
        status = weir_dev_port_rdma_##name(rdma, left == 0 ? flags : 0, left == 0 ? ticket : NULL); \
    }
    WEIR_REQUEST_MODIFIERS(WEIR_REQUEST_ROW)
#undef WEIR_REQUEST_ROW
    return status;
}

/* Any request; by one thread. `ticket` may be NULL. */
WEIR_FN weir_status weir_dev_port_rdma_post(const weir_dev_port_rdma *rdma, const weir_request *request,
                                            uint64_t *ticket)
{
    const weir_dev_port_memory remote = weir_dev_port_rdma_memory(rdma, request->remote);
    const weir_dev_port_memory local = weir_dev_port_rdma_memory(rdma, request->local);
    weir_status status = weir_request_check(request, &remote, &local);
    status = WEIR_UNLIKELY(status != WEIR_OK) ? WEIR_SLOW(weir_dev_port_rdma_refuse(rdma, request, status, ticket))
                                              : weir_dev_port_rdma_carry_out(rdma, request, &remote, &local, ticket);
    return WEIR_UNLIKELY(status != WEIR_OK) ? weir_dev_port_rdma_lose(rdma, status, ticket) : WEIR_OK;
}

/* ---- tickets ----------------------------------------------------------------------------------------------- */

WEIR_FN weir_status weir_dev_port_rdma_outcome(const weir_dev_port_rdma *rdma, uint64_t ticket, weir_status status)
{
    return WEIR_UNLIKELY(status == WEIR_ERR_REMOTE) ? weir_dev_port_rdma_error(rdma, ticket) : status;
}

WEIR_FN weir_status weir_dev_port_rdma_test(const weir_dev_port_rdma *rdma, uint64_t ticket)
{
    return weir_dev_port_rdma_outcome(rdma, ticket, weir_dev_rdma_test(&rdma->queue, ticket));
}

WEIR_FN weir_status weir_dev_port_rdma_wait(const weir_dev_port_rdma *rdma, uint64_t ticket)
{
    return weir_dev_port_rdma_outcome(rdma, ticket, WEIR_SLOW(weir_dev_rdma_wait(&rdma->queue, ticket)));
}

#endif
