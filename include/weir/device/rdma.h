/* weir/device/rdma.h - kernels write work queue entries and ring the doorbell of an RDMA NIC, without a CPU in the
 * path.
 *
 *     weir_dev_rdma_put(&args->queue, to, from, bytes, WEIR_RDMA_RING, NULL);
 *     ...
 *     weir_dev_rdma_put(&args->queue, to, from, bytes, WEIR_RDMA_RING | WEIR_RDMA_SIGNALLED, &ticket);
 *     status = weir_dev_rdma_wait(&args->queue, ticket);                all of them are done
 *
 * A post has four steps. It reserves blocks of the send queue. It writes its entries when there is room. It publishes
 * them in the order of the reservations. It rings the doorbell, which notifies the NIC of all published entries.
 * Without WEIR_RDMA_RING a later post, or weir_dev_rdma_ring, rings for many. Many entries may take the steps together:
 * weir_dev_rdma_reserve, a weir_dev_rdma_write for each, weir_dev_rdma_finish.
 *
 * An entry without WEIR_RDMA_SIGNALLED has no completion, except at each quarter of the queue, to free its room.
 * A thread that needs room, or that waits, reads the completions for all threads.
 *
 * impl/mlx5.h has the formats. impl/rdma_queue.h reads completions and rings, impl/rdma_room.h waits for room and for a
 * turn, and impl/rdma_post.h posts several entries, or for several threads. Entry, doorbell record and doorbell are
 * stored in this order, as libmlx5 of rdma-core does.
 *
 * Order:     entries are carried out in the order of their positions. The NIC sees memory that the poster wrote, or
 *            had synchronized with, before the ring. A signal is visible at the peer after all earlier puts and values.
 * Threads:   any number, on a shared queue. One thread at a time uses an exclusive queue, or the threads of one warp
 *            or block together (..._each); it needs no atomics.
 * Blocking:  posts while there is no room, ring while another thread rings, wait; with the communicator's deadline.
 * Ownership: the program owns the queue and all that the handle points to.
 * Errors:    WEIR_ERR_TIMEOUT or the communicator's sticky error. WEIR_ERR_REMOTE once the NIC has reported an error:
 *            of tickets from the failed entry on, and of posts that find no room; weir_dev_rdma_state.failed has the
 *            syndrome. Also WEIR_ERR_REMOTE for everything behind the last entry of a queue that weir has closed. With
 *            collapsed completions, entries before the failed one may have failed with it, and the syndrome may be
 *            that of a flushed one. WEIR_ERR_LIMIT for more than three quarters of the queue at once. */
#ifndef WEIR_DEVICE_RDMA_H
#define WEIR_DEVICE_RDMA_H

#include "weir/device/impl/rdma_room.h"

#undef WEIR_DEV_USED_rdma
#define WEIR_DEV_USED_rdma weir_dev_version_rdma

#define WEIR_RDMA_RING 1u      /* notify the NIC now */
#define WEIR_RDMA_SIGNALLED 2u /* has a ticket to wait for */
#define WEIR_RDMA_FENCE 4u     /* begins after all earlier gets and adds are done */

#define WEIR_RDMA_MESSAGE ((uint64_t)1 << 30) /* most bytes of one entry */

/* An entry of one block, without its control segment. */
typedef struct weir_dev_rdma_entry {
    weir_vec16 segments[3];
    uint32_t count; /* of segments, including the control segment */
    uint32_t opcode;
    uint32_t immediate; /* of a write with immediate; otherwise 0 */
} weir_dev_rdma_entry;

/* The place `offset` bytes behind that of `memory`. */
WEIR_FN weir_dev_rdma_memory weir_dev_rdma_at(weir_dev_rdma_memory memory, uint64_t offset)
{
    memory.address += offset;
    return memory;
}

/* ---- completions ------------------------------------------------------------------------------------------- */

/* Reads new completions, unless another thread is reading them. Its body is in impl/rdma_queue.h. */
WEIR_FN void weir_dev_rdma_poll(const weir_dev_rdma *queue);

/* Whether the signalled post with this ticket is done; all posts before it are then done as well. */
WEIR_FN weir_status weir_dev_rdma_test(const weir_dev_rdma *queue, uint64_t ticket)
{
    weir_status status = weir_dev_rdma_look(queue, ticket);
    if (status != WEIR_PENDING) {
        return status;
    }
    weir_dev_rdma_poll(queue);
    status = weir_dev_rdma_look(queue, ticket);
    if (status == WEIR_PENDING) {
        weir_status sticky = weir_dev_control_status(queue->control);
        return sticky != WEIR_OK ? sticky : WEIR_PENDING;
    }
    return status;
}

/* Waits until the signalled post with this ticket is done. */
WEIR_FN_COLD weir_status weir_dev_rdma_wait(const weir_dev_rdma *queue, uint64_t ticket)
{
    weir_arch_no_kernel();
    weir_spin spin = weir_spin_begin();
    weir_status status = weir_spin_is_due_ticket(ticket) ? weir_dev_control_status(queue->control) : WEIR_OK;
    while (status == WEIR_OK) {
        status = weir_dev_rdma_look(queue, ticket);
        if (status != WEIR_PENDING) {
            return status;
        }
        weir_dev_rdma_poll(queue);
        status = weir_spin_step(&spin, queue->control);
    }
    return weir_dev_rdma_end_wait(queue, WEIR_DOING_NIC_WAIT, ticket, status);
}

/* ---- ring ------------------------------------------------------------------------------------------------ */

/* Notifies the NIC of all posts. Its body is in impl/rdma_queue.h. */
WEIR_FN weir_status weir_dev_rdma_ring(const weir_dev_rdma *queue);

/* ---- posts ----------------------------------------------------------------------------------------------- */

/* Blocks of the queue that belong to one post. */
typedef struct weir_dev_rdma_span {
    uint64_t first;
    uint32_t count;
    int is_next; /* all blocks before them are published */
} weir_dev_rdma_span;

/* Takes 1 to three quarters of the queue's blocks in a row. The caller must write and publish all of them, or none
 * after an error: no post succeeds any more then. */
WEIR_FN weir_status weir_dev_rdma_reserve(const weir_dev_rdma *queue, uint32_t blocks, weir_dev_rdma_span *span)
{
    weir_dev_rdma_state *state = queue->state;
    uint64_t completed;
    weir_status status = WEIR_OK;
    if (WEIR_UNLIKELY(!weir_dev_rdma_fits(queue, blocks))) {
        return WEIR_ERR_LIMIT;
    }
    span->count = blocks;
    if (queue->exclusive) {
        span->first = weir_arch_load_u64(&state->reserved);
        span->is_next = 1;
        completed = weir_arch_load_u64(&state->completed);
    } else {
        span->first = weir_arch_fetch_add_relaxed_dev_u64(&state->reserved, blocks);
        const weir_vec16 known = weir_arch_load_acquire_dev_pair(&state->ready); /* `ready` and `completed` */
        span->is_next = known.lo == span->first;
        completed = known.hi;
    }
    if (WEIR_UNLIKELY(span->first + blocks - completed > queue->count)) {
        status = WEIR_SLOW(weir_dev_rdma_await_room(queue, span->first, blocks));
    }
    if (queue->exclusive && status == WEIR_OK) {
        weir_arch_store_u64(&state->reserved, span->first + blocks);
    }
    return status;
}

/* Entry `index` of the span. */
WEIR_FN void weir_dev_rdma_write(const weir_dev_rdma *queue, const weir_dev_rdma_span *span, uint32_t index,
                                 const weir_dev_rdma_entry *entry, uint32_t flags)
{
    const uint64_t position = span->first + index;
    const uint32_t last = queue->count / 4 - 1; /* of a quarter */
    weir_vec16 *block = (weir_vec16 *)(queue->queue + (position & (queue->count - 1)) * WEIR_MLX5_BLOCK);
    uint32_t control =
        ((uint32_t)position & last) == last || (flags & WEIR_RDMA_SIGNALLED) != 0 ? WEIR_MLX5_COMPLETE : 0;
    control |= (flags & WEIR_RDMA_FENCE) != 0 ? WEIR_MLX5_FENCE : 0;
    weir_arch_store_apart_vec16(
        block, weir_mlx5_with_immediate(weir_mlx5_control(entry->opcode, position, queue->qpn, entry->count, control),
                                        entry->immediate));
    WEIR_UNROLL
    for (uint32_t i = 0; i < 3; i++) {
        if (i + 1 < entry->count) {
            weir_arch_store_apart_vec16(block + i + 1, entry->segments[i]);
        }
    }
}

/* Called after the last entry of a span is written. */
WEIR_FN weir_status weir_dev_rdma_finish(const weir_dev_rdma *queue, const weir_dev_rdma_span *span, uint32_t flags,
                                         uint64_t *ticket)
{
    weir_status status =
        weir_dev_rdma_publish(queue, span->first, span->count, span->is_next, (flags & WEIR_RDMA_RING) != 0);
    if (status == WEIR_OK && (flags & WEIR_RDMA_RING) != 0) {
        status = queue->exclusive ? weir_dev_rdma_ring(queue)
                                  : weir_dev_rdma_ring_shared(queue, span->first + span->count, 1);
    }
    if (status == WEIR_OK && ticket != NULL) {
        *ticket = span->first + span->count - 1;
    }
    return status;
}

/* One entry, by one thread; `ticket` may be NULL. */
WEIR_FN weir_status weir_dev_rdma_post(const weir_dev_rdma *queue, const weir_dev_rdma_entry *entry, uint32_t flags,
                                       uint64_t *ticket)
{
    weir_dev_rdma_span span;
    weir_status status = weir_dev_rdma_reserve(queue, 1, &span);
    if (status != WEIR_OK) {
        return status;
    }
    weir_dev_rdma_write(queue, &span, 0, entry, flags);
    return weir_dev_rdma_finish(queue, &span, flags, ticket);
}

/* ---- entries --------------------------------------------------------------------------------------------- */

/* A write or a read of up to WEIR_RDMA_MESSAGE bytes. */
WEIR_FN weir_dev_rdma_entry weir_dev_rdma_transfer(uint32_t opcode, weir_dev_rdma_memory remote,
                                                   weir_dev_rdma_memory local, uint64_t bytes)
{
    weir_dev_rdma_entry entry;
    entry.opcode = opcode;
    entry.immediate = 0;
    entry.count = bytes != 0 ? 3 : 2;
    entry.segments[0] = weir_mlx5_remote(remote.address, remote.key);
    entry.segments[1] = weir_mlx5_data(local.address, local.key, (uint32_t)bytes);
    entry.segments[2] = entry.segments[1];
    return entry;
}

/* A write of 0 to WEIR_RDMA_MESSAGE bytes that completes a receive of the peer; see weir/device/rdma_notice.h. */
WEIR_FN weir_dev_rdma_entry weir_dev_rdma_notify(weir_dev_rdma_memory remote, weir_dev_rdma_memory local,
                                                 uint64_t bytes, uint32_t immediate)
{
    weir_dev_rdma_entry entry = weir_dev_rdma_transfer(WEIR_MLX5_WRITE_IMMEDIATE, remote, local, bytes);
    entry.immediate = immediate;
    return entry;
}

/* A write of the `bytes` (1 to 8) low bytes of `value`. */
WEIR_FN weir_dev_rdma_entry weir_dev_rdma_inline(weir_dev_rdma_memory remote, uint64_t value, uint32_t bytes)
{
    weir_dev_rdma_entry entry;
    entry.opcode = WEIR_MLX5_WRITE;
    entry.immediate = 0;
    entry.count = 3;
    entry.segments[0] = weir_mlx5_remote(remote.address, remote.key);
    entry.segments[1] = weir_mlx5_inline_value(value, bytes);
    entry.segments[2] = entry.segments[1];
    return entry;
}

/* ---- calls of kernels --------------------------------------------------------------------------------------- */

/* `flags` are WEIR_RDMA_.... The caller may wait for a ticket if WEIR_RDMA_SIGNALLED is among them. By one thread. */

/* Writes `bytes` of `local` to `remote`. */
WEIR_FN weir_status weir_dev_rdma_put(const weir_dev_rdma *queue, weir_dev_rdma_memory remote,
                                      weir_dev_rdma_memory local, uint64_t bytes, uint32_t flags, uint64_t *ticket);

/* A put that gives the peer a notice with `immediate` behind its data. The notice of a put of more than
 * WEIR_RDMA_MESSAGE bytes has the byte count of the last message. */
WEIR_FN weir_status weir_dev_rdma_put_notify(const weir_dev_rdma *queue, weir_dev_rdma_memory remote,
                                             weir_dev_rdma_memory local, uint64_t bytes, uint32_t immediate,
                                             uint32_t flags, uint64_t *ticket);

/* Reads `bytes` of `remote` to `local`. */
WEIR_FN weir_status weir_dev_rdma_get(const weir_dev_rdma *queue, weir_dev_rdma_memory remote,
                                      weir_dev_rdma_memory local, uint64_t bytes, uint32_t flags, uint64_t *ticket);

/* Puts the `bytes` (1 to 8, not over an 8-byte boundary) low bytes of `value`, without a source in memory. */
WEIR_FN weir_status weir_dev_rdma_value(const weir_dev_rdma *queue, weir_dev_rdma_memory remote, uint64_t value,
                                        uint32_t bytes, uint32_t flags, uint64_t *ticket)
{
    weir_dev_rdma_entry entry = weir_dev_rdma_inline(remote, value, bytes);
    return weir_dev_rdma_post(queue, &entry, flags, ticket);
}

/* Adds `value` to an 8-byte word. `result`, 8 bytes of local memory, gets the old value when the request is done. */
WEIR_FN weir_status weir_dev_rdma_fetch_add(const weir_dev_rdma *queue, weir_dev_rdma_memory remote,
                                            weir_dev_rdma_memory result, uint64_t value, uint32_t flags,
                                            uint64_t *ticket)
{
    weir_dev_rdma_entry entry;
    entry.opcode = WEIR_MLX5_FETCH_ADD;
    entry.immediate = 0;
    entry.count = 4;
    entry.segments[0] = weir_mlx5_remote(remote.address, remote.key);
    entry.segments[1] = weir_mlx5_atomic(value);
    entry.segments[2] = weir_mlx5_data(result.address, result.key, 8);
    return weir_dev_rdma_post(queue, &entry, flags, ticket);
}

/* Takes a place in the order and transfers nothing. If signalled, it is done when all earlier posts are. */
WEIR_FN weir_status weir_dev_rdma_nop(const weir_dev_rdma *queue, uint32_t flags, uint64_t *ticket)
{
    weir_dev_rdma_entry entry;
    entry.opcode = WEIR_MLX5_NOP;
    entry.immediate = 0;
    entry.count = 1;
    return weir_dev_rdma_post(queue, &entry, flags, ticket);
}

/* A signal: the number of signals so far to the peer's `token`. */
WEIR_FN weir_status weir_dev_rdma_signal(const weir_dev_rdma *queue, weir_dev_rdma_memory token, uint32_t flags,
                                         uint64_t *ticket);

/* A put, and a signal behind it. */
WEIR_FN weir_status weir_dev_rdma_put_signal(const weir_dev_rdma *queue, weir_dev_rdma_memory remote,
                                             weir_dev_rdma_memory local, uint64_t bytes, weir_dev_rdma_memory token,
                                             uint32_t flags, uint64_t *ticket);

/* ---- one thread, many posts ------------------------------------------------------------------------------ */

/* Counts that the only thread of an exclusive queue keeps in registers between begin and end: a post then waits for no
 * round trip to device memory. No other thread may use the queue meanwhile. */
typedef struct weir_dev_rdma_counts {
    weir_dev_rdma queue; /* a copy: the compiler sees that no call changes it */
    uint64_t reserved;
    uint64_t completed;
    uint64_t rung;
} weir_dev_rdma_counts;

/* Loads the counts. */
WEIR_FN weir_dev_rdma_counts weir_dev_rdma_begin(const weir_dev_rdma *queue)
{
    weir_dev_rdma_counts counts;
    counts.queue = *queue;
    counts.reserved = weir_arch_load_u64(&queue->state->reserved);
    counts.completed = weir_arch_load_u64(&queue->state->completed);
    counts.rung = weir_arch_load_u64(&queue->state->rung);
    return counts;
}

/* Stores the counts for the next user of the queue. */
WEIR_FN void weir_dev_rdma_end(const weir_dev_rdma *queue, const weir_dev_rdma_counts *counts)
{
    weir_arch_store_u64(&queue->state->reserved, counts->reserved);
    weir_arch_store_u64(&queue->state->ready, counts->reserved);
    weir_arch_store_u64(&queue->state->rung, counts->rung);
}

/* weir_dev_rdma_post with counts. */
WEIR_FN weir_status weir_dev_rdma_post_counted(const weir_dev_rdma *queue, weir_dev_rdma_counts *counts,
                                               const weir_dev_rdma_entry *entry, uint32_t flags, uint64_t *ticket)
{
    if (WEIR_UNLIKELY(counts->reserved + 1 - counts->completed > counts->queue.count)) {
        weir_dev_rdma_end(queue, counts);
        weir_status status = WEIR_SLOW(weir_dev_rdma_await_room(queue, counts->reserved, 1));
        counts->completed = weir_arch_load_u64(&queue->state->completed);
        counts->rung = weir_arch_load_u64(&queue->state->rung);
        if (status != WEIR_OK) {
            return status;
        }
    }
    weir_dev_rdma_span span;
    span.first = counts->reserved++;
    span.count = 1;
    span.is_next = 1;
    weir_dev_rdma_write(&counts->queue, &span, 0, entry, flags);
    if ((flags & WEIR_RDMA_RING) != 0) {
        weir_dev_rdma_tell(&counts->queue, counts->reserved);
        counts->rung = counts->reserved;
    }
    if (ticket != NULL) {
        *ticket = span.first;
    }
    return WEIR_OK;
}

/* ---- groups ---------------------------------------------------------------------------------------------- */

/* Posts one entry of each thread of a warp or a block: one reservation (one for each warp on a shared queue) and, with
 * WEIR_RDMA_RING, one ring for all. With WEIR_RDMA_SIGNALLED each thread gets a ticket that covers at least the entries
 * of its warp. If one thread fails, all return an error. The group's size is a multiple of a warp's. */
WEIR_FN weir_status weir_dev_rdma_post_each(const weir_dev_rdma *queue, const weir_dev_rdma_entry *entry,
                                            uint32_t flags, weir_coop coop, uint64_t *ticket);

/* The bodies of the calls that are only declared above. */
#include "weir/device/impl/rdma_post.h"

#endif
