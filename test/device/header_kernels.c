/* header_kernels.c - kernels for header_test.cc. Each writes numbers to `out` that only a right run produces. */
#include "test/device/header_kernels.h"

/* Makes the calling thread's group; false if the thread is not in it. */
WEIR_FN int join_group(const header_args *args, weir_coop *coop)
{
    int in = 1;
    switch (args->group) {
    case GROUP_BLOCK:
        in = coop->block == 0;
        *coop = weir_coop_block(*coop);
        break;
    case GROUP_WARP:
        in = coop->block == 0 && coop->block_rank < weir_arch_warp_size();
        *coop = weir_coop_warp(*coop);
        break;
    case GROUP_THREAD:
        in = coop->rank == 0;
        *coop = weir_coop_thread(*coop);
        break;
    case GROUP_PART:
        in = args->part == 0 || coop->rank < args->part;
        *coop = weir_coop_part(coop->rank, args->part == 0 ? coop->size : args->part);
        break;
    default:
        break;
    }
    return in;
}

/* out: number of runs of the thread; slots: its position. */
WEIR_KERNEL(shape, header_args)
{
    args->out[coop.rank] += 1;
    args->slots[coop.rank] =
        (uint64_t)coop.block << 48 | (uint64_t)coop.block_rank << 32 | (uint64_t)coop.blocks << 16 | coop.block_size;
}

/* slots[0]: additions of all threads. */
WEIR_KERNEL(count, header_args)
{
    for (uint64_t i = 0; i < args->rounds; i++) {
        weir_arch_add_relaxed_dev_u64(args->slots, coop.rank + 1);
    }
}

/* out: rounds in which the thread saw the right OR and its neighbour's data from before the barrier. */
WEIR_KERNEL(block_rounds, header_args)
{
    uint64_t *mine = args->slots + coop.block * coop.block_size;
    uint64_t right = 0;
    for (uint64_t round = 0; round < args->rounds; round++) {
        uint32_t value = round % 3 != 0 && round % coop.block_size == coop.block_rank;
        mine[coop.block_rank] = round * 1000 + coop.block_rank;
        uint32_t any = weir_arch_block_or(coop.host, value);
        uint32_t neighbour = (uint32_t)((coop.block_rank + 1 + round) % coop.block_size);
        right += (any != 0) == (round % 3 != 0) && mine[neighbour] == round * 1000 + neighbour;
        weir_arch_block_sync(coop.host);
    }
    args->out[coop.rank] = right;
}

/* The same across blocks, at the grid barrier. */
WEIR_KERNEL(grid_rounds, header_args)
{
    uint64_t right = 0;
    coop.barrier = &args->barrier;
    for (uint64_t round = 0; round < args->rounds; round++) {
        args->slots[coop.rank] = round * 1000 + coop.rank;
        weir_status first = weir_coop_sync(coop);
        uint32_t neighbour = (uint32_t)((coop.rank + 1 + round) % coop.size);
        right += first == WEIR_OK && args->slots[neighbour] == round * 1000 + neighbour;
        (void)weir_coop_agree(coop, args->control, WEIR_OK);
    }
    args->out[coop.rank] = right;
}

/* Block `chosen` skips the barrier. out: each thread's status of the others' first and second barrier. */
WEIR_KERNEL(grid_absent, header_args)
{
    coop.barrier = &args->barrier;
    if (coop.block == args->chosen) {
        return;
    }
    weir_status first = weir_coop_agree(coop, args->control, WEIR_OK);
    weir_status second = weir_coop_agree(coop, args->control, WEIR_OK);
    args->out[coop.rank] = (uint64_t)(uint32_t)first << 32 | (uint32_t)second;
}

/* Thread `chosen` passes `status`, which becomes sticky if `side` is set. out: the result of agree. */
WEIR_KERNEL(agree, header_args)
{
    weir_status status = WEIR_OK;
    uint32_t rank = coop.rank;
    coop.barrier = &args->barrier;
    if (!join_group(args, &coop)) {
        return;
    }
    if (rank == args->chosen) {
        status = (weir_status)args->status;
        if (args->side != 0) {
            (void)weir_dev_control_fail(args->control, status);
        }
    }
    args->out[rank] = (uint64_t)(int64_t)weir_coop_agree(coop, args->control, status);
}

/* out: the result of sync for a group without a barrier. */
WEIR_KERNEL(sync_group, header_args)
{
    uint32_t rank = coop.rank;
    if (join_group(args, &coop)) {
        args->out[rank] = (uint64_t)(int64_t)weir_coop_sync(coop);
    }
}

WEIR_KERNEL(copy, header_args)
{
    if (join_group(args, &coop)) {
        weir_copy(args->channel.remote + args->remote_offset, args->channel.local + args->local_offset, args->bytes,
                  coop);
    }
}

/* out: each thread's status of a put (side 0) or get. */
WEIR_KERNEL(transfer, header_args)
{
    uint32_t rank = coop.rank;
    if (join_group(args, &coop)) {
        weir_status status = args->side == 0 ? weir_dev_memory_channel_put(&args->channel, args->remote_offset,
                                                                           args->local_offset, args->bytes, coop)
                                             : weir_dev_memory_channel_get(&args->channel, args->remote_offset,
                                                                           args->local_offset, args->bytes, coop);
        args->out[rank] = (uint64_t)(int64_t)status;
    }
}

/* `rounds` calls of one packet operation, for grids with a barrier between calls. out: the thread's first error, or
 * WEIR_OK. */
WEIR_KERNEL(packets, header_args)
{
    uint32_t rank = coop.rank;
    weir_status status = WEIR_OK;
    coop.barrier = &args->barrier;
    if (!join_group(args, &coop)) {
        return;
    }
    const weir_dev_memory_channel *channel = &args->channel;
    uint64_t at = args->remote_offset;
    uint64_t from = args->local_offset;
    for (uint64_t round = 0; round < args->rounds && status == WEIR_OK; round++) {
        status = args->operation == PACKETS_PUT
                     ? weir_dev_memory_channel_put_ll16(channel, at, from, args->bytes, coop)
                     : weir_dev_memory_channel_unpack_ll16(channel, at, from, args->bytes, coop);
        if (args->group == GROUP_GRID) {
            (void)weir_coop_agree(coop, args->control, WEIR_OK);
        }
    }
    args->out[rank] = (uint64_t)(int64_t)status;
}

/* Two launches; side 0 serves. In each round a side writes the peer's memory and signals; when it receives the peer's
 * signal, it checks its memory. out: right rounds of each thread. */
WEIR_KERNEL(ping_pong, header_args)
{
    uint64_t right = 0;
    weir_coop block = weir_coop_block(coop);
    uint64_t *to = (uint64_t *)args->channel.remote;
    const uint64_t *from = (const uint64_t *)args->channel.local;
    for (uint64_t round = 0; round < args->rounds; round++) {
        if (args->side == 0) {
            to[block.rank] = round * 1000 + block.rank;
            weir_coop_sync(block);
            if (block.rank == 0) {
                weir_dev_memory_channel_signal(&args->channel);
            }
        }
        weir_status status = weir_dev_memory_channel_wait_coop(&args->channel, block);
        uint64_t other = (block.rank + 1) % block.size;
        right += status == WEIR_OK && from[other] == round * 1000 + other;
        weir_coop_sync(block);
        if (args->side != 0) {
            to[block.rank] = round * 1000 + block.rank;
            weir_coop_sync(block);
            if (block.rank == 0) {
                weir_dev_memory_channel_signal(&args->channel);
            }
        }
    }
    args->out[coop.rank] = right;
}

/* Thread 0 waits. out[0]: status of the wait, out[1]: of a poll after it, out[2]: the data read after the signal. */
WEIR_KERNEL(wait_once, header_args)
{
    if (coop.rank == 0) {
        args->out[0] = (uint64_t)(int64_t)weir_dev_memory_channel_wait(&args->channel);
        args->out[1] = (uint64_t)(int64_t)weir_dev_memory_channel_poll(&args->channel);
        args->out[2] = args->slots[0];
    }
}

/* One value each way. out: statuses of write and read of element `rounds`, and the value read. */
WEIR_KERNEL(values, header_args)
{
    if (coop.rank == 0) {
        uint64_t wide = 0;
        uint32_t narrow = 0;
        weir_dev_memory_channel channel = args->channel;
        args->out[0] = (uint64_t)(int64_t)weir_dev_memory_channel_write_u64(&channel, args->rounds, args->bytes);
        args->out[1] = (uint64_t)(int64_t)weir_dev_memory_channel_read_u64(&channel, args->rounds, &wide);
        args->out[2] = wide;
        args->out[3] = (uint64_t)(int64_t)weir_dev_memory_channel_read_u32(&channel, 2 * args->rounds + 1, &narrow);
        args->out[4] = narrow;
    }
}

static const weir_kernel *const kernels[] = { &shape,     &count,      &block_rounds, &grid_rounds, &grid_absent,
                                              &agree,     &sync_group, &copy,         &transfer,    &packets,
                                              &ping_pong, &wait_once,  &values };

const weir_kernel *header_kernel(const char *name)
{
    for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++) {
        const char *a = kernels[i]->name;
        const char *b = name;
        while (*a != '\0' && *a == *b) {
            a++;
            b++;
        }
        if (*a == *b) {
            return kernels[i];
        }
    }
    return NULL;
}
