/* rdma_kernels.c - kernels that post to a queue of a NIC. */
#include "rdma_kernels.h"

#define SPAN 8u

/* One round of a thread, for each kind. */

WEIR_FN weir_dev_rdma_entry rdma_put_entry(const rdma_args *args, uint64_t thread, uint64_t i)
{
    const uint64_t slot = 8 * (thread * args->rounds + i);
    const weir_dev_rdma_memory to = weir_dev_rdma_at(args->remote, slot);
    if (i % 2 == 0) {
        return weir_dev_rdma_inline(to, rdma_value(thread, i), 8);
    }
    weir_arch_store_relaxed_sys_u64(args->memory + slot / 8, rdma_value(thread, i));
    return weir_dev_rdma_transfer(WEIR_MLX5_WRITE, to, weir_dev_rdma_at(args->local, slot), 8);
}

WEIR_FN weir_status rdma_span(const rdma_args *args, uint64_t thread, uint64_t first)
{
    weir_dev_rdma_span span;
    weir_status status = weir_dev_rdma_reserve(&args->queue, SPAN, &span);
    for (uint32_t i = 0; i < SPAN && status == WEIR_OK; i++) {
        const weir_dev_rdma_entry entry = rdma_put_entry(args, thread, first + i);
        weir_dev_rdma_write(&args->queue, &span, i, &entry, 0);
    }
    return status == WEIR_OK ? weir_dev_rdma_finish(&args->queue, &span, args->flags, NULL) : status;
}

/* Rounds from a multiple of 50. */
WEIR_FN weir_status rdma_counted(const rdma_args *args, uint64_t first)
{
    weir_dev_rdma_counts counts = weir_dev_rdma_begin(&args->queue);
    weir_status status = WEIR_OK;
    for (uint64_t i = first; i < first + 50 && i < args->rounds && status == WEIR_OK; i++) {
        const weir_dev_rdma_entry entry = rdma_put_entry(args, 0, i);
        status = weir_dev_rdma_post_counted(&args->queue, &counts, &entry, i % 7 == 0 ? args->flags : 0, NULL);
    }
    weir_dev_rdma_end(&args->queue, &counts);
    return status;
}

WEIR_FN weir_status rdma_signal(const rdma_args *args, uint64_t i)
{
    for (uint64_t k = 0; k < args->bytes / 8; k++) {
        weir_arch_store_relaxed_sys_u64(args->memory + k, rdma_value(k, i));
    }
    uint64_t ticket = 0;
    weir_status status = weir_dev_rdma_put_signal(&args->queue, args->remote, args->local, args->bytes,
                                                  weir_dev_rdma_at(args->remote, args->token),
                                                  args->flags | WEIR_RDMA_SIGNALLED, &ticket);
    weir_spin spin = weir_spin_begin();
    while (status == WEIR_OK && weir_arch_load_acquire_sys_u64(args->answers) <= i) {
        status = weir_spin_next(&spin, args->queue.control);
    }
    return status == WEIR_OK ? weir_dev_rdma_wait(&args->queue, ticket) : status;
}

WEIR_FN weir_status rdma_add(const rdma_args *args, uint32_t thread, uint64_t *sum)
{
    const uint64_t scratch = args->scratch + 8 * (uint64_t)thread;
    uint64_t ticket = 0;
    weir_status status =
        weir_dev_rdma_fetch_add(&args->queue, weir_dev_rdma_at(args->remote, args->token),
                                weir_dev_rdma_at(args->local, scratch), 1, args->flags | WEIR_RDMA_SIGNALLED, &ticket);
    if (status == WEIR_OK) {
        status = weir_dev_rdma_wait(&args->queue, ticket);
    }
    *sum += weir_arch_load_relaxed_sys_u64(args->memory + scratch / 8);
    return status;
}

WEIR_FN weir_status rdma_get(const rdma_args *args, uint32_t thread, uint64_t i)
{
    const uint64_t scratch = args->scratch + 8 * (uint64_t)thread;
    uint64_t ticket = 0;
    weir_status status =
        weir_dev_rdma_get(&args->queue, weir_dev_rdma_at(args->remote, 8 * (thread * args->rounds + i)),
                          weir_dev_rdma_at(args->local, scratch), 8, args->flags | WEIR_RDMA_SIGNALLED, &ticket);
    if (status == WEIR_OK) {
        status = weir_dev_rdma_wait(&args->queue, ticket);
    }
    if (status == WEIR_OK && weir_arch_load_relaxed_sys_u64(args->memory + scratch / 8) != rdma_value(thread, i)) {
        status = WEIR_ERR_CORRUPT;
    }
    return status;
}

/* Round `i` of the calling thread. */
WEIR_FN weir_status rdma_round(const rdma_args *args, uint64_t i, weir_coop block, uint64_t *sum)
{
    weir_dev_rdma_entry entry;
    switch (args->what) {
    case RDMA_PUTS:
        entry = rdma_put_entry(args, block.rank, i);
        return weir_dev_rdma_post(&args->queue, &entry, args->flags, NULL);
    case RDMA_COUNTED:
        return i % 50 == 0 ? rdma_counted(args, i) : WEIR_OK;
    case RDMA_SPANS:
        return i % SPAN == 0 ? rdma_span(args, block.rank, i) : WEIR_OK;
    case RDMA_GROUPS:
        entry = rdma_put_entry(args, block.rank, i);
        return weir_dev_rdma_post_each(&args->queue, &entry, args->flags, block, NULL);
    case RDMA_SIGNALS:
        return rdma_signal(args, i);
    case RDMA_ADDS:
        return rdma_add(args, block.rank, sum);
    default:
        return rdma_get(args, block.rank, i);
    }
}

WEIR_KERNEL(rdma_posts, rdma_args)
{
    const weir_coop block = weir_coop_block(coop);
    weir_status status = WEIR_OK;
    uint64_t done = 0;
    uint64_t sum = 0;
    for (; done < args->rounds && status == WEIR_OK; done++) {
        status = rdma_round(args, done, block, &sum);
    }
    /* A last empty request is done after all earlier posts. */
    if (status == WEIR_OK && (args->what != RDMA_GROUPS || block.rank == 0)) {
        uint64_t ticket = 0;
        status = weir_dev_rdma_nop(&args->queue, WEIR_RDMA_RING | WEIR_RDMA_SIGNALLED, &ticket);
        if (status == WEIR_OK) {
            status = weir_dev_rdma_wait(&args->queue, ticket);
        }
    }
    args->report->status[block.rank] = status;
    args->report->done[block.rank] = status == WEIR_OK ? done : done - (done != 0);
    args->report->sum[block.rank] = sum;
}

const weir_kernel *rdma_kernel(void) { return &rdma_posts; }
