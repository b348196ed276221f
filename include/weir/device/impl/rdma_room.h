/* weir/device/impl/rdma_room.h - the steps of a post that may wait: for room in the queue, and for its turn.
 *
 * A post takes blocks of the send queue when those one lap earlier are done. It publishes them after all earlier
 * blocks. A queue that one thread or one group uses needs no turn.
 *
 * Threads, Blocking, Errors: as weir/device/rdma.h. */
#ifndef WEIR_DEVICE_IMPL_RDMA_ROOM_H
#define WEIR_DEVICE_IMPL_RDMA_ROOM_H

#include "weir/device/coop.h"
#include "weir/device/impl/rdma_queue.h"

/* Whether this many blocks can be free at once. One of the blocks before them must have a completion. */
WEIR_FN int weir_dev_rdma_fits(const weir_dev_rdma *queue, uint32_t blocks) { return blocks <= queue->count / 4 * 3; }

/* Waits until `blocks` blocks from `first` on are free: those one lap earlier are done. Rings for published entries
 * first, because otherwise they might never complete. */
WEIR_FN_COLD weir_status weir_dev_rdma_await_room(const weir_dev_rdma *queue, uint64_t first, uint32_t blocks)
{
    weir_arch_no_kernel();
    weir_spin spin = weir_spin_begin();
    for (;;) {
        weir_status status = weir_dev_rdma_ring(queue);
        if (status == WEIR_OK) {
            weir_dev_rdma_poll(queue);
            status = weir_dev_rdma_look(queue, first + blocks - queue->count - 1);
        }
        if (status != WEIR_PENDING) {
            return status;
        }
        status = weir_spin_step(&spin, queue->control);
        if (status != WEIR_OK) {
            return weir_dev_rdma_end_wait(queue, WEIR_DOING_NIC_POST, first, status);
        }
    }
}

WEIR_FN_COLD weir_status weir_dev_rdma_await_turn(const weir_dev_rdma *queue, uint64_t position)
{
    weir_arch_no_kernel();
    weir_spin spin = weir_spin_begin();
    while (weir_arch_load_acquire_dev_u64(&queue->state->ready) != position) {
        weir_status status =
            weir_dev_rdma_is_refused(queue, position) ? WEIR_ERR_REMOTE : weir_spin_step(&spin, queue->control);
        if (status != WEIR_OK) {
            return weir_dev_rdma_end_wait(queue, WEIR_DOING_NIC_POST, position, status);
        }
    }
    return WEIR_OK;
}

/* Publishes blocks after all earlier ones. `rings`: the caller rings next, and this uses the fence that the doorbell
 * record needs. */
WEIR_FN weir_status weir_dev_rdma_publish(const weir_dev_rdma *queue, uint64_t first, uint32_t blocks, int is_next,
                                          int rings)
{
    if (queue->exclusive) {
        weir_arch_store_u64(&queue->state->ready, first + blocks);
        return WEIR_OK;
    }
    weir_status status = is_next ? WEIR_OK : WEIR_SLOW(weir_dev_rdma_await_turn(queue, first));
    if (status != WEIR_OK) {
        return status;
    }
    if (rings) {
        weir_arch_store_fenced_sys_u64(&queue->state->ready, first + blocks);
    } else {
        weir_arch_store_release_dev_u64(&queue->state->ready, first + blocks);
    }
    return WEIR_OK;
}

/* A block for each thread of a group on an exclusive queue: *count blocks from *first on. All threads read the state,
 * none writes it. */
WEIR_FN weir_status weir_dev_rdma_reserve_group(const weir_dev_rdma *queue, weir_coop coop, uint64_t *first,
                                                uint32_t *count, int *is_next)
{
    weir_status status = WEIR_OK;
    *first = weir_arch_load_u64(&queue->state->reserved);
    *count = coop.size;
    *is_next = 1;
    if (WEIR_UNLIKELY(*first + coop.size - weir_arch_load_u64(&queue->state->completed) > queue->count)) {
        status = weir_coop_sync(coop); /* all have read the state */
        if (status == WEIR_OK && coop.rank == 0) {
            status = WEIR_SLOW(weir_dev_rdma_await_room(queue, *first, coop.size));
        }
        status = weir_coop_agree(coop, queue->control, status);
    }
    return status;
}

#endif
