/* notice_kernels.c - kernels that take notices of a queue pair. */
#include "notice_kernels.h"

/* Word `word` of notice `i` of a thread. */
WEIR_FN uint64_t notice_value(uint64_t thread, uint64_t i, uint64_t word)
{
    uint64_t v = (thread << 40 ^ (i + 1) << 8 ^ (word + 1)) * 0x9e3779b97f4a7c15u;
    return v ^ v >> 29;
}

/* Source and tag. */
WEIR_FN uint32_t notice_immediate(uint64_t thread, uint64_t i) { return (uint32_t)(thread << 24 | i); }

/* One notice in four has no data. */
WEIR_FN uint64_t notice_bytes(uint64_t i) { return i % 4 == 3 ? 0 : 8 * NOTICE_WORDS; }

WEIR_FN uint64_t notice_slot(const notice_args *args, uint64_t thread, uint64_t i)
{
    return 8 * NOTICE_WORDS * (thread * args->rounds + i);
}

WEIR_FN weir_status notice_post(const notice_args *args, weir_coop block, uint64_t i)
{
    const weir_dev_rdma *queue = &args->queue[block.rank % args->queues];
    const uint64_t slot = notice_slot(args, block.rank, i);
    const weir_dev_rdma_memory local = weir_dev_rdma_at(args->local, slot);
    const weir_dev_rdma_memory remote = weir_dev_rdma_at(args->remote, slot);
    const uint32_t immediate = notice_immediate(block.rank, i);
    for (uint64_t k = 0; k < NOTICE_WORDS; k++) {
        weir_arch_store_relaxed_sys_u64(args->memory + slot / 8 + k, notice_value(block.rank, i, k));
    }
    if (!args->together) {
        return weir_dev_rdma_put_notify(queue, remote, local, notice_bytes(i), immediate, args->flags, NULL);
    }
    const weir_dev_rdma_entry entry = weir_dev_rdma_notify(remote, local, notice_bytes(i), immediate);
    return weir_dev_rdma_post_each(queue, &entry, args->flags, block, NULL);
}

WEIR_KERNEL(notice_posts, notice_args)
{
    const weir_coop block = weir_coop_block(coop);
    const weir_dev_rdma *queue = &args->queue[block.rank % args->queues];
    weir_status status = WEIR_OK;
    uint64_t i = 0;
    for (; i < args->rounds && status == WEIR_OK; i++) {
        status = notice_post(args, block, i);
    }
    /* A last empty request is done after all earlier posts. */
    if (status == WEIR_OK && (!args->together || block.rank == 0)) {
        uint64_t ticket = 0;
        status = weir_dev_rdma_nop(queue, WEIR_RDMA_RING | WEIR_RDMA_SIGNALLED, &ticket);
        if (status == WEIR_OK) {
            status = weir_dev_rdma_wait(queue, ticket);
        }
    }
    args->report->status[block.rank] = status;
    args->report->done[block.rank] = i;
}

/* Whether the notice is the next one of its thread, with all its data. */
WEIR_FN int notice_is_right(const notice_args *args, const weir_dev_rdma_notice *notice)
{
    const uint64_t thread = notice->immediate >> 24, i = notice->immediate & 0xffffff;
    if (thread >= args->threads || i != args->report->done[thread] || notice->bytes != notice_bytes(i)) {
        return 0;
    }
    for (uint64_t k = 0; k < notice->bytes / 8; k++) {
        const uint64_t *word = args->memory + notice_slot(args, thread, i) / 8 + k;
        if (weir_arch_load_relaxed_sys_u64(word) != notice_value(thread, i, k)) {
            return 0;
        }
    }
    return 1;
}

WEIR_KERNEL(notice_takes, notice_args)
{
    weir_dev_rdma_notice *notice = &args->report->last;
    uint64_t due[2] = { 0, 0 };
    weir_status status = WEIR_OK;
    if (coop.rank != 0) {
        return;
    }
    for (uint32_t i = 0; i < args->queues; i++) {
        weir_dev_rdma_receive(&args->receives[i], (uint32_t)args->posted);
    }
    for (uint64_t i = 0; i < args->threads * args->rounds; i++) {
        status = weir_dev_rdma_wait_notice(&args->inbox, notice);
        if (status != WEIR_OK) {
            break;
        }
        const uint32_t thread = notice->immediate >> 24, ring = thread % args->queues;
        args->report->wrong += !notice_is_right(args, notice);
        args->report->done[thread % NOTICE_THREADS]++;
        if (args->batch != 0 && ++due[ring] == args->batch) {
            weir_dev_rdma_receive(&args->receives[ring], (uint32_t)due[ring]);
            due[ring] = 0;
        }
    }
    args->report->status[0] = status;
}

const weir_kernel *notice_poster(void) { return &notice_posts; }

const weir_kernel *notice_taker(void) { return &notice_takes; }
