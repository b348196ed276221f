/* weir/device/impl/rdma_post.h - transfers of any size, signals, and posts of groups to a queue pair.
 *
 * weir/device/rdma.h declares these calls, and includes this header at its end. The bodies need what it defines.
 * No other file includes this header.
 *
 * Order, Threads, Blocking, Errors: as weir/device/rdma.h. */
#ifndef WEIR_DEVICE_IMPL_RDMA_POST_H
#define WEIR_DEVICE_IMPL_RDMA_POST_H

/* ---- messages -------------------------------------------------------------------------------------------- */

/* Any number of bytes, in messages of up to WEIR_RDMA_MESSAGE. Immediate, flags and ticket belong to the last message;
 * the others give no notice. */
WEIR_FN weir_status weir_dev_rdma_transfer_all(const weir_dev_rdma *queue, uint32_t opcode, uint32_t immediate,
                                               weir_dev_rdma_memory remote, weir_dev_rdma_memory local, uint64_t bytes,
                                               uint32_t flags, uint64_t *ticket)
{
    const uint32_t silent = opcode == WEIR_MLX5_WRITE_IMMEDIATE ? WEIR_MLX5_WRITE : opcode;
    weir_dev_rdma_entry entry;
    while (WEIR_UNLIKELY(bytes > WEIR_RDMA_MESSAGE)) {
        entry = weir_dev_rdma_transfer(silent, remote, local, WEIR_RDMA_MESSAGE);
        weir_status status = weir_dev_rdma_post(queue, &entry, flags & WEIR_RDMA_FENCE, NULL);
        if (status != WEIR_OK) {
            return status;
        }
        remote.address += WEIR_RDMA_MESSAGE;
        local.address += WEIR_RDMA_MESSAGE;
        bytes -= WEIR_RDMA_MESSAGE;
    }
    entry = weir_dev_rdma_transfer(opcode, remote, local, bytes);
    entry.immediate = immediate;
    return weir_dev_rdma_post(queue, &entry, flags, ticket);
}

WEIR_FN weir_status weir_dev_rdma_put(const weir_dev_rdma *queue, weir_dev_rdma_memory remote,
                                      weir_dev_rdma_memory local, uint64_t bytes, uint32_t flags, uint64_t *ticket)
{
    return weir_dev_rdma_transfer_all(queue, WEIR_MLX5_WRITE, 0, remote, local, bytes, flags, ticket);
}

WEIR_FN weir_status weir_dev_rdma_put_notify(const weir_dev_rdma *queue, weir_dev_rdma_memory remote,
                                             weir_dev_rdma_memory local, uint64_t bytes, uint32_t immediate,
                                             uint32_t flags, uint64_t *ticket)
{
    return weir_dev_rdma_transfer_all(queue, WEIR_MLX5_WRITE_IMMEDIATE, immediate, remote, local, bytes, flags, ticket);
}

WEIR_FN weir_status weir_dev_rdma_get(const weir_dev_rdma *queue, weir_dev_rdma_memory remote,
                                      weir_dev_rdma_memory local, uint64_t bytes, uint32_t flags, uint64_t *ticket)
{
    return weir_dev_rdma_transfer_all(queue, WEIR_MLX5_READ, 0, remote, local, bytes, flags, ticket);
}

/* ---- signals --------------------------------------------------------------------------------------------- */

/* Posts `entry`, if not NULL, and then writes the number of signals so far, including this one, to the peer's `token`.
 * A signal needs no atomic operation, because numbers are given in the order of the queue. */
WEIR_FN weir_status weir_dev_rdma_signal_after(const weir_dev_rdma *queue, const weir_dev_rdma_entry *entry,
                                               weir_dev_rdma_memory token, uint32_t flags, uint64_t *ticket)
{
    weir_dev_rdma_span span;
    weir_status status = weir_dev_rdma_reserve(queue, entry != NULL ? 2 : 1, &span);
    if (status == WEIR_OK && entry != NULL) {
        weir_dev_rdma_write(queue, &span, 0, entry, flags & WEIR_RDMA_FENCE);
    }
    if (status == WEIR_OK && !span.is_next) {
        status = WEIR_SLOW(weir_dev_rdma_await_turn(queue, span.first));
    }
    if (status != WEIR_OK) {
        return status;
    }
    span.is_next = 1;
    const uint64_t signals = weir_arch_load_relaxed_dev_u64(&queue->state->signals) + 1;
    weir_arch_store_relaxed_dev_u64(&queue->state->signals, signals);
    const weir_dev_rdma_entry signal = weir_dev_rdma_inline(token, signals, 8);
    weir_dev_rdma_write(queue, &span, span.count - 1, &signal, flags);
    return weir_dev_rdma_finish(queue, &span, flags, ticket);
}

WEIR_FN weir_status weir_dev_rdma_signal(const weir_dev_rdma *queue, weir_dev_rdma_memory token, uint32_t flags,
                                         uint64_t *ticket)
{
    return weir_dev_rdma_signal_after(queue, NULL, token, flags, ticket);
}

WEIR_FN weir_status weir_dev_rdma_put_signal(const weir_dev_rdma *queue, weir_dev_rdma_memory remote,
                                             weir_dev_rdma_memory local, uint64_t bytes, weir_dev_rdma_memory token,
                                             uint32_t flags, uint64_t *ticket)
{
    if (WEIR_UNLIKELY(bytes > WEIR_RDMA_MESSAGE)) {
        weir_status status = weir_dev_rdma_put(queue, remote, local, bytes, flags & WEIR_RDMA_FENCE, NULL);
        return status == WEIR_OK ? weir_dev_rdma_signal(queue, token, flags, ticket) : status;
    }
    weir_dev_rdma_entry entry = weir_dev_rdma_transfer(WEIR_MLX5_WRITE, remote, local, bytes);
    return weir_dev_rdma_signal_after(queue, &entry, token, flags, ticket);
}

/* ---- groups ---------------------------------------------------------------------------------------------- */

/* A block for each lane of a warp on a shared queue. */
WEIR_FN weir_status weir_dev_rdma_reserve_warp(const weir_dev_rdma *queue, weir_coop warp, weir_dev_rdma_span *span)
{
    uint32_t high = 0;
    span->first = 0;
    span->is_next = 0;
    if (warp.rank == 0) {
        weir_status status = weir_dev_rdma_reserve(queue, warp.size, span);
        high = status == WEIR_OK ? (uint32_t)(span->first >> 32) : 0x80000000u | (uint32_t)-status;
    }
    high = weir_arch_warp_or(high);
    span->first = (uint64_t)high << 32 | weir_arch_warp_or((uint32_t)span->first);
    span->count = warp.size;
    return high >> 31 == 0 ? WEIR_OK : (weir_status)(-(int32_t)(high & 0x7fffffffu));
}

WEIR_FN weir_status weir_dev_rdma_post_each(const weir_dev_rdma *queue, const weir_dev_rdma_entry *entry,
                                            uint32_t flags, weir_coop coop, uint64_t *ticket)
{
    const weir_coop group = queue->exclusive ? coop : weir_coop_warp(coop);
    weir_dev_rdma_span span;
    if (coop.scope != WEIR_COOP_WARP && coop.scope != WEIR_COOP_BLOCK) {
        return WEIR_ERR_INVALID;
    }
    if (!weir_dev_rdma_fits(queue, group.size)) {
        return WEIR_ERR_LIMIT;
    }
    weir_status status = queue->exclusive
                             ? weir_dev_rdma_reserve_group(queue, group, &span.first, &span.count, &span.is_next)
                             : weir_dev_rdma_reserve_warp(queue, group, &span);
    if (status == WEIR_OK) {
        const int last = group.rank + 1 == group.size;
        weir_dev_rdma_write(queue, &span, group.rank, entry, last ? flags : flags & ~WEIR_RDMA_SIGNALLED);
        if (ticket != NULL) {
            *ticket = span.first + span.count - 1;
        }
        status = weir_coop_sync(group);
    }
    if (status == WEIR_OK && group.rank == 0) {
        if (queue->exclusive) {
            weir_arch_store_u64(&queue->state->reserved, span.first + span.count);
        }
        status = weir_dev_rdma_publish(queue, span.first, span.count, span.is_next, 0);
    }
    status = weir_coop_agree(coop, queue->control, status);
    if (status == WEIR_OK && (flags & WEIR_RDMA_RING) != 0) {
        if (coop.rank == 0) {
            status = weir_dev_rdma_ring(queue);
        }
        status = weir_coop_agree(coop, queue->control, status);
    }
    return status;
}

#endif
