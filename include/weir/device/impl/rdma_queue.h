/* weir/device/impl/rdma_queue.h - what the posters to a queue pair share: reading completions, and ringing.
 *
 * Completions are read by one thread at a time, which publishes in the state how far the queue is done, and the first
 * error. All threads look there. The ring of a shared queue is made by one thread for all: it takes a lock, which the
 * others try only while the NIC does not know of their entries.
 *
 * Threads, Blocking, Errors: as weir/device/rdma.h. */
#ifndef WEIR_DEVICE_IMPL_RDMA_QUEUE_H
#define WEIR_DEVICE_IMPL_RDMA_QUEUE_H

#include "weir/device/impl/mlx5.h"
#include "weir/device/impl/spin.h"

/* Ends a wait for the queue, or a step of one. */
WEIR_FN weir_status weir_dev_rdma_end_wait(const weir_dev_rdma *queue, uint32_t doing, uint64_t position,
                                           weir_status status)
{
    return WEIR_SLOW(weir_dev_control_end_wait(queue->control, status,
                                               weir_dev_note_of(doing, WEIR_NO_PEER, queue->qpn, position, 0)));
}

/* ---- completions ------------------------------------------------------------------------------------------- */

/* weir_dev_rdma_take with collapsed completions: one read covers all, and the NIC gets no consumer index. The entry has
 * the low 16 bits of the last completed position. They give the whole position, because at most 32,768 blocks are under
 * way. After an error, entries of flushed requests overwrite it and do not say which earlier requests were done: those
 * count as failed too, unless they are known to be done. */
WEIR_FN void weir_dev_rdma_take_collapsed(const weir_dev_rdma *queue)
{
    weir_dev_rdma_state *state = queue->state;
    const uint32_t *entry = (const uint32_t *)queue->completions;
    const uint32_t tail = weir_arch_load_acquire_sys_u32(entry + 15);
    const uint64_t before = weir_arch_load_relaxed_dev_u64(&state->completed);
    uint64_t completed = before, failed = 0;
    if (weir_mlx5_kind(tail) == WEIR_MLX5_NONE || weir_arch_load_relaxed_dev_u64(&state->failed) != 0) {
        return;
    }
    if (weir_mlx5_kind(tail) == WEIR_MLX5_DONE) {
        completed = weir_mlx5_completed(tail, before - 1) + 1; /* the old position when nothing is new */
    } else {
        const uint32_t syndrome = weir_mlx5_syndrome(weir_arch_load_relaxed_sys_u32(entry + 13));
        completed = syndrome == WEIR_MLX5_FLUSHED ? before : weir_mlx5_completed(tail, before);
        failed = WEIR_RDMA_FAILED | syndrome;
    }
    if (completed != before) {
        weir_arch_store_release_dev_u64(&state->completed, completed);
    }
    if (failed != 0) {
        weir_arch_store_release_dev_u64(&state->failed, failed);
    }
}

/* Reads new completions. On a shared queue the caller holds the lock. */
WEIR_FN_COLD void weir_dev_rdma_take(const weir_dev_rdma *queue)
{
    if (queue->completion_count == WEIR_RDMA_COLLAPSED) {
        weir_dev_rdma_take_collapsed(queue);
        return;
    }
    weir_dev_rdma_state *state = queue->state;
    uint64_t taken = weir_arch_load_relaxed_dev_u64(&state->taken);
    uint64_t completed = weir_arch_load_relaxed_dev_u64(&state->completed);
    uint64_t failed = weir_arch_load_relaxed_dev_u64(&state->failed);
    const uint64_t before = taken;
    while (failed == 0) {
        const uint32_t *entry =
            (const uint32_t *)(queue->completions + (taken & (queue->completion_count - 1)) * WEIR_MLX5_BLOCK);
        const uint32_t tail = weir_arch_load_acquire_sys_u32(entry + 15);
        if (!weir_mlx5_is_new(tail, taken, queue->completion_count)) {
            break;
        }
        taken++;
        completed = weir_mlx5_completed(tail, completed); /* all earlier entries are done, too */
        if (weir_mlx5_kind(tail) != WEIR_MLX5_DONE) {
            failed = WEIR_RDMA_FAILED | weir_mlx5_syndrome(weir_arch_load_relaxed_sys_u32(entry + 13));
        } else {
            completed++;
        }
    }
    if (taken != before) {
        weir_arch_store_relaxed_dev_u64(&state->taken, taken);
        weir_arch_store_relaxed_sys_u32(queue->completion_record, weir_arch_swap_u32((uint32_t)(taken & 0xffffff)));
        weir_arch_store_release_dev_u64(&state->completed, completed);
        if (failed != 0) {
            weir_arch_store_release_dev_u64(&state->failed, failed);
        }
    }
}

/* Declared in weir/device/rdma.h, which says what it does. */
WEIR_FN void weir_dev_rdma_poll(const weir_dev_rdma *queue)
{
    if (queue->exclusive) {
        weir_dev_rdma_take(queue);
    } else if (weir_arch_load_relaxed_dev_u64(&queue->state->polling) == 0 &&
               weir_arch_fetch_or_acquire_dev_u64(&queue->state->polling, 1) == 0) {
        weir_dev_rdma_take(queue);
        weir_arch_store_release_dev_u64(&queue->state->polling, 0);
    }
}

/* Whether weir_dev_rdma_refuse (impl/rdma_close.h) has closed the queue before this position. */
WEIR_FN int weir_dev_rdma_is_refused(const weir_dev_rdma *queue, uint64_t position)
{
    const uint64_t refused = weir_arch_load_acquire_dev_u64(&queue->state->refused);
    return refused != 0 && position >= refused - 1;
}

/* WEIR_OK when all blocks up to `position` are done, WEIR_PENDING, or WEIR_ERR_REMOTE if they never will be. */
WEIR_FN weir_status weir_dev_rdma_look(const weir_dev_rdma *queue, uint64_t position)
{
    /* Read before `completed`, which was stored first: a thread that sees the error also sees all completions before
     * it. */
    uint64_t failed = weir_arch_load_acquire_dev_u64(&queue->state->failed);
    if (weir_arch_load_acquire_dev_u64(&queue->state->completed) > position) {
        return WEIR_OK;
    }
    return failed != 0 || weir_dev_rdma_is_refused(queue, position) ? WEIR_ERR_REMOTE : WEIR_PENDING;
}

/* ---- ring ------------------------------------------------------------------------------------------------ */

WEIR_FN void weir_dev_rdma_tell(const weir_dev_rdma *queue, uint64_t next)
{
    weir_arch_store_release_sys_u32(queue->record, weir_mlx5_record(next));
    weir_arch_store_register(queue->doorbell, weir_mlx5_doorbell(next, queue->qpn));
}

/* Waits while another thread rings: until some thread has notified the NIC of everything below `mine`, or until the
 * caller may ring (*may is then 1). */
WEIR_FN_COLD weir_status weir_dev_rdma_await_ring(const weir_dev_rdma *queue, uint64_t mine, int *may)
{
    weir_arch_no_kernel();
    weir_dev_rdma_state *state = queue->state;
    weir_spin spin = weir_spin_begin();
    *may = 0;
    while (weir_arch_load_acquire_dev_u64(&state->rung) < mine) {
        if (weir_arch_load_relaxed_dev_u64(&state->ringing) == 0 &&
            weir_arch_fetch_or_acquire_dev_u64(&state->ringing, 1) == 0) {
            *may = 1;
            return WEIR_OK;
        }
        weir_status status = weir_spin_step(&spin, queue->control);
        if (status != WEIR_OK) {
            return weir_dev_rdma_end_wait(queue, WEIR_DOING_NIC_POST, mine, status);
        }
    }
    return WEIR_OK;
}

/* The ring of a shared queue: one thread rings for all published entries, which are at least those below `mine`.
 * `fenced`: this thread has published up to `mine` with a fence, and the doorbell record needs no second fence. */
WEIR_FN weir_status weir_dev_rdma_ring_shared(const weir_dev_rdma *queue, uint64_t mine, int fenced)
{
    weir_dev_rdma_state *state = queue->state;
    if (WEIR_UNLIKELY(weir_arch_fetch_or_acquire_dev_u64(&state->ringing, 1) != 0)) {
        int may;
        weir_status status = WEIR_SLOW(weir_dev_rdma_await_ring(queue, mine, &may));
        if (status != WEIR_OK || !may) {
            return status;
        }
    }
    const uint64_t rung = weir_arch_load_relaxed_dev_u64(&state->rung);
    const uint64_t ready = weir_arch_load_acquire_dev_u64(&state->ready);
    if (rung < ready) {
        if (fenced && ready == mine) {
            weir_arch_store_behind_sys_u32(queue->record, weir_mlx5_record(ready));
        } else {
            weir_arch_store_release_sys_u32(queue->record, weir_mlx5_record(ready));
        }
        weir_arch_store_register(queue->doorbell, weir_mlx5_doorbell(ready, queue->qpn));
        weir_arch_store_relaxed_dev_u64(&state->rung, ready);
    }
    weir_arch_store_release_dev_u64(&state->ringing, 0);
    return WEIR_OK;
}

/* Declared in weir/device/rdma.h, which says what it does. */
WEIR_FN weir_status weir_dev_rdma_ring(const weir_dev_rdma *queue)
{
    weir_dev_rdma_state *state = queue->state;
    if (!queue->exclusive) {
        const uint64_t mine = weir_arch_load_acquire_dev_u64(&state->ready);
        const uint64_t rung = weir_arch_load_acquire_dev_u64(&state->rung);
        return rung < mine ? weir_dev_rdma_ring_shared(queue, mine, 0) : WEIR_OK;
    }
    const uint64_t ready = weir_arch_load_u64(&state->ready);
    if (ready != weir_arch_load_u64(&state->rung)) {
        weir_dev_rdma_tell(queue, ready);
        weir_arch_store_u64(&state->rung, ready);
    }
    return WEIR_OK;
}

#endif
