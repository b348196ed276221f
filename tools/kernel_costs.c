/* kernel_costs.c - one minimal kernel for each call of the device API. Only tools/kernel-costs uses it: it compiles
 * this file for a GPU and counts the registers and instructions of each kernel. The table shows the kernels' names. */
#include "weir/device/kernel.h"
#include "weir/device/port_channel.h"

typedef struct cost_args {
    weir_dev_memory_channel channel;
    weir_dev_grid_barrier barrier;
    weir_dev_fifo fifo;
    weir_dev_proxy_channel requests;
    weir_dev_port_channel port;
    weir_dev_rdma queue;
    weir_dev_rdma_memory remote;
    weir_dev_rdma_memory local;
    uint64_t offset;
    uint64_t bytes;
    uint64_t *value;
} cost_args;

/* The part that every kernel has. */
WEIR_KERNEL(nothing, cost_args)
{
    (void)args;
    (void)coop;
}

/* ---- data ----------------------------------------------------------------------------------------------- */

WEIR_KERNEL(put, cost_args)
{
    (void)weir_dev_memory_channel_put(&args->channel, args->offset, args->offset, args->bytes, coop);
}

WEIR_KERNEL(get, cost_args)
{
    (void)weir_dev_memory_channel_get(&args->channel, args->offset, args->offset, args->bytes, coop);
}

WEIR_KERNEL(put_ll16, cost_args)
{
    (void)weir_dev_memory_channel_put_ll16(&args->channel, 0, args->offset, args->bytes, coop);
}

WEIR_KERNEL(unpack_ll16, cost_args)
{
    (void)weir_dev_memory_channel_unpack_ll16(&args->channel, 0, args->offset, args->bytes, coop);
}

WEIR_KERNEL(exchange_ll16, cost_args)
{
    (void)weir_dev_memory_channel_exchange_ll16(&args->channel, 0, 0, args->offset, args->bytes, coop);
}

WEIR_KERNEL(put_lines, cost_args)
{
    (void)weir_dev_memory_channel_put_lines(&args->channel, 0, args->offset, args->bytes, coop);
}

WEIR_KERNEL(unpack_lines, cost_args)
{
    (void)weir_dev_memory_channel_unpack_lines(&args->channel, 0, args->offset, args->bytes, coop);
}

WEIR_KERNEL(exchange_lines, cost_args)
{
    (void)weir_dev_memory_channel_exchange_lines(&args->channel, 0, 0, args->offset, args->bytes, coop);
}

WEIR_KERNEL(read_u64, cost_args)
{
    (void)coop;
    (void)weir_dev_memory_channel_read_u64(&args->channel, args->offset, args->value);
}

WEIR_KERNEL(write_u64, cost_args)
{
    (void)coop;
    (void)weir_dev_memory_channel_write_u64(&args->channel, args->offset, args->bytes);
}

/* ---- signals; one thread of the grid makes the call ------------------------------------------------------- */

WEIR_KERNEL(signal, cost_args)
{
    if (coop.rank == 0) {
        weir_dev_memory_channel_signal(&args->channel);
    }
}

WEIR_KERNEL(signal_relaxed, cost_args)
{
    if (coop.rank == 0) {
        weir_dev_memory_channel_signal_relaxed(&args->channel);
    }
}

WEIR_KERNEL(wait, cost_args)
{
    if (coop.rank == 0) {
        (void)weir_dev_memory_channel_wait(&args->channel);
    }
}

WEIR_KERNEL(wait_relaxed, cost_args)
{
    if (coop.rank == 0) {
        (void)weir_dev_memory_channel_wait_relaxed(&args->channel);
    }
}

WEIR_KERNEL(poll, cost_args)
{
    if (coop.rank == 0) {
        *args->value = (uint64_t)weir_dev_memory_channel_poll(&args->channel);
    }
}

WEIR_KERNEL(wait_coop_block, cost_args)
{
    *args->value = (uint64_t)weir_dev_memory_channel_wait_coop(&args->channel, weir_coop_block(coop));
}

WEIR_KERNEL(begin_end, cost_args)
{
    if (coop.rank == 0) {
        weir_dev_semaphore_counts counts = weir_dev_semaphore_begin(&args->channel.semaphore);
        weir_dev_semaphore_end(&args->channel.semaphore, &counts);
    }
}

WEIR_KERNEL(begin_signal_end, cost_args)
{
    if (coop.rank == 0) {
        weir_dev_semaphore_counts counts = weir_dev_semaphore_begin(&args->channel.semaphore);
        weir_dev_semaphore_signal_counted(&args->channel.semaphore, &counts);
        weir_dev_semaphore_end(&args->channel.semaphore, &counts);
    }
}

WEIR_KERNEL(begin_wait_end, cost_args)
{
    if (coop.rank == 0) {
        weir_dev_semaphore_counts counts = weir_dev_semaphore_begin(&args->channel.semaphore);
        (void)weir_dev_semaphore_wait_counted(&args->channel.semaphore, &counts);
        weir_dev_semaphore_end(&args->channel.semaphore, &counts);
    }
}

WEIR_KERNEL(channel_at_signal, cost_args)
{
    weir_dev_memory_channel channel = weir_dev_memory_channel_at(&args->channel, coop.block);
    if (coop.block_rank == 0) {
        weir_dev_memory_channel_signal(&channel);
    }
}

/* ---- groups ----------------------------------------------------------------------------------------------- */

WEIR_KERNEL(sync_warp, cost_args)
{
    (void)args;
    (void)weir_coop_sync(weir_coop_warp(coop));
}

WEIR_KERNEL(sync_block, cost_args)
{
    (void)args;
    (void)weir_coop_sync(weir_coop_block(coop));
}

WEIR_KERNEL(sync_grid, cost_args)
{
    coop.barrier = &args->barrier;
    (void)weir_coop_sync(coop);
}

WEIR_KERNEL(agree_block, cost_args)
{
    weir_coop block = weir_coop_block(coop);
    *args->value = (uint64_t)weir_coop_agree(block, args->channel.semaphore.control, (weir_status)args->bytes);
}

WEIR_KERNEL(agree_grid, cost_args)
{
    coop.barrier = &args->barrier;
    *args->value = (uint64_t)weir_coop_agree(coop, args->channel.semaphore.control, (weir_status)args->bytes);
}

/* ---- requests to the host ----------------------------------------------------------------------------------- */

/* All fields differ, and the compiler knows none of them. */
WEIR_FN weir_request cost_request(const cost_args *args)
{
    weir_request request;
    request.remote_offset = args->offset;
    request.local_offset = args->offset + args->bytes;
    request.bytes = args->bytes;
    request.value = args->bytes ^ args->offset;
    request.remote = (uint32_t)args->channel.remote_bytes;
    request.local = (uint32_t)args->channel.local_bytes;
    request.channel = 0;
    request.type = WEIR_REQUEST_PUT;
    request.reserved = 0;
    return request;
}

WEIR_KERNEL(fifo_push, cost_args)
{
    if (coop.rank == 0) {
        weir_request request = cost_request(args);
        (void)weir_dev_fifo_push(&args->fifo, &request, args->value);
    }
}

WEIR_KERNEL(fifo_wait, cost_args)
{
    if (coop.rank == 0) {
        (void)weir_dev_fifo_wait(&args->fifo, args->offset);
    }
}

WEIR_KERNEL(proxy_channel_push, cost_args)
{
    if (coop.rank == 0) {
        weir_request request = cost_request(args);
        (void)weir_dev_proxy_channel_push(&args->requests, &request, args->value);
    }
}

WEIR_KERNEL(proxy_channel_wait, cost_args)
{
    if (coop.rank == 0) {
        (void)weir_dev_proxy_channel_wait(&args->requests, args->offset);
    }
}

/* ---- port channels, and their posts to a NIC ---------------------------------------------------------------- */

WEIR_KERNEL(port_put, cost_args)
{
    (void)weir_dev_port_channel_put(&args->port, args->offset, args->offset, args->bytes, weir_coop_block(coop),
                                    args->value);
}

WEIR_KERNEL(port_put_signal, cost_args)
{
    (void)weir_dev_port_channel_put_signal(&args->port, args->offset, args->offset, args->bytes, weir_coop_block(coop),
                                           NULL);
}

WEIR_KERNEL(port_wait, cost_args)
{
    if (coop.rank == 0) {
        (void)weir_dev_port_channel_wait(&args->port);
    }
}

WEIR_KERNEL(port_wait_ticket, cost_args)
{
    if (coop.rank == 0) {
        (void)weir_dev_port_channel_wait_ticket(&args->port, args->offset);
    }
}

WEIR_FN weir_dev_rdma_entry cost_entry(const cost_args *args)
{
    return weir_dev_rdma_transfer(WEIR_MLX5_WRITE, args->remote, args->local, args->bytes);
}

WEIR_KERNEL(rdma_post, cost_args)
{
    if (coop.rank == 0) {
        const weir_dev_rdma_entry entry = cost_entry(args);
        (void)weir_dev_rdma_post(&args->queue, &entry, WEIR_RDMA_RING, NULL);
    }
}

WEIR_KERNEL(rdma_post_counted, cost_args)
{
    if (coop.rank == 0) {
        weir_dev_rdma_counts counts = weir_dev_rdma_begin(&args->queue);
        for (uint64_t i = 0; i < args->offset; i++) {
            const weir_dev_rdma_entry entry = cost_entry(args);
            (void)weir_dev_rdma_post_counted(&args->queue, &counts, &entry, 0, NULL);
        }
        weir_dev_rdma_end(&args->queue, &counts);
    }
}

WEIR_KERNEL(rdma_put_signal, cost_args)
{
    if (coop.rank == 0) {
        (void)weir_dev_rdma_put_signal(&args->queue, args->remote, args->local, args->bytes, args->remote,
                                       WEIR_RDMA_RING, NULL);
    }
}

WEIR_KERNEL(rdma_wait, cost_args)
{
    if (coop.rank == 0) {
        (void)weir_dev_rdma_wait(&args->queue, args->offset);
    }
}
