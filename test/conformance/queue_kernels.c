/* queue_kernels.c - kernels that push into fifos and channels of proxies; see queue_kernels.h. */
#include "queue_kernels.h"

WEIR_FN weir_status queue_push_one(const queue_args *args, uint32_t thread, const weir_request *request,
                                   uint64_t *ticket)
{
    if (args->channel_count == 0) {
        return args->tries ? weir_dev_fifo_try_push(&args->fifo, request, ticket)
                           : weir_dev_fifo_push(&args->fifo, request, ticket);
    }
    const weir_dev_proxy_channel *channel = &args->channels[thread % args->channel_count];
    return args->tries ? weir_dev_proxy_channel_try_push(channel, request, ticket)
                       : weir_dev_proxy_channel_push(channel, request, ticket);
}

WEIR_FN weir_status queue_wait_one(const queue_args *args, uint32_t thread, uint64_t ticket)
{
    return args->channel_count == 0
               ? weir_dev_fifo_wait(&args->fifo, ticket)
               : weir_dev_proxy_channel_wait(&args->channels[thread % args->channel_count], ticket);
}

WEIR_FN weir_status queue_test_one(const queue_args *args, uint32_t thread, uint64_t ticket)
{
    return args->channel_count == 0
               ? weir_dev_fifo_test(&args->fifo, ticket)
               : weir_dev_proxy_channel_test(&args->channels[thread % args->channel_count], ticket);
}

WEIR_KERNEL(queue_push, queue_args)
{
    uint32_t thread = coop.rank;
    uint64_t ticket = 0;
    uint64_t since = weir_arch_clock_ns();
    weir_status pushed = WEIR_OK;
    weir_status waited = WEIR_OK;
    weir_request request;
    uint64_t undone = 0;
    for (uint64_t i = 0; i < args->pushes && pushed == WEIR_OK && waited == WEIR_OK; i++) {
        queue_request(thread, args->first + i, args->type, &request);
        since = weir_arch_clock_ns();
        pushed = queue_push_one(args, thread, &request, &ticket);
        if (pushed != WEIR_OK) {
            break;
        }
        weir_arch_store_relaxed_sys_u64(&args->report->pushed[thread], i + 1);
        if (args->wait == QUEUE_WAIT_EACH || (args->wait == QUEUE_WAIT_LAST && i + 1 == args->pushes)) {
            since = weir_arch_clock_ns();
            waited = queue_wait_one(args, thread, ticket);
            undone += waited == WEIR_OK && queue_test_one(args, thread, ticket) != WEIR_OK;
        }
    }
    if (pushed != WEIR_OK || waited != WEIR_OK) {
        weir_arch_store_relaxed_sys_u64(&args->report->elapsed_ns[thread], weir_arch_clock_ns() - since);
    }
    weir_arch_store_relaxed_sys_u64(&args->report->undone[thread], undone);
    weir_arch_store_relaxed_sys_u32((uint32_t *)&args->report->push[thread], (uint32_t)pushed);
    weir_arch_store_relaxed_sys_u32((uint32_t *)&args->report->wait[thread], (uint32_t)waited);
}

const weir_kernel *queue_push_kernel(void) { return &queue_push; }
