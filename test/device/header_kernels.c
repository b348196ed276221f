/* header_kernels.c - kernels for header_test.cc. Each writes numbers to `out` that only a right run produces. */
#include "test/device/header_kernels.h"

#include "weir/device/reduce.h"

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

/* weir_copy (side 0) or weir_copy_to_peer. */
WEIR_KERNEL(copy, header_args)
{
    if (join_group(args, &coop)) {
        char *to = args->channel.remote + args->remote_offset;
        const char *from = args->channel.local + args->local_offset;
        if (args->side == 0) {
            weir_copy(to, from, args->bytes, coop);
        } else {
            weir_copy_to_peer(to, from, args->bytes, coop);
        }
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

/* A half near `a`, far from it, or special. */
WEIR_FN uint32_t other_half(uint32_t a, uint32_t which)
{
    const uint32_t special[8] = { 0, 0x8000, 1, 0x8001, 0x7c00, 0xff80, 0x7bff, 0x7fff };
    return which < 8 ? special[which] : ((a ^ 0x8000u) + (which - 16) * 97u * (which % 3 + 1)) & 0xffffu;
}

/* bfloat16 by integers. */
WEIR_FN uint32_t bf16_of(uint32_t bits)
{
    return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fff : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

WEIR_FN uint64_t sum_by_floats(uint32_t dtype, uint64_t a, uint64_t b)
{
    uint64_t word = 0;
    for (uint32_t k = 0; k < 4; k++) {
        const float sum = weir_element_float(dtype, (uint32_t)(a >> 16 * k) & 0xffffu) +
                          weir_element_float(dtype, (uint32_t)(b >> 16 * k) & 0xffffu);
        const uint32_t code = dtype == WEIR_F16 ? weir_arch_f16_of_float(sum) : bf16_of(weir_arch_bits_of_float(sum));
        word |= (uint64_t)code << 16 * k;
    }
    return word;
}

/* slots: wrong sums of two words of f16; of bf16; wrong words that were read as floats and written again. A thread
 * takes one of `rounds` of its halves. */
WEIR_KERNEL(halves, header_args)
{
    float floats[8];
    for (uint32_t a = coop.rank; a < 65536; a += coop.size * (uint32_t)args->rounds) {
        const uint64_t word = a | (uint64_t)other_half(a, 9) << 16 | (uint64_t)(a ^ 1) << 32 | (uint64_t)a * 3 << 48;
        for (uint32_t dtype = WEIR_F16; dtype <= WEIR_BF16; dtype++) {
            for (uint32_t which = 0; which < 32; which++) {
                const uint64_t with = other_half(a, which) | (uint64_t)other_half(a, which ^ 5) << 16 |
                                      (uint64_t)(a * (which + 1) & 0xffffu) << 32 | (uint64_t)(a ^ which) << 48;
                weir_reduction all;
                weir_reduce_first(&all, dtype, word);
                weir_reduce_next(&all, dtype, WEIR_SUM, with);
                const uint64_t right = sum_by_floats(dtype, word, with);
                if (weir_reduce_two(dtype, word, with) != right ||
                    weir_reduce_last(&all, dtype, WEIR_SUM, 2) != right) {
                    weir_arch_add_relaxed_dev_u64(&args->slots[dtype - WEIR_F16], 1);
                }
            }
            weir_word_floats(dtype, word, floats);
            /* -0 changes no number. */
            if (weir_word_of_floats(dtype, floats) != sum_by_floats(dtype, word, 0x8000800080008000u)) {
                weir_arch_add_relaxed_dev_u64(&args->slots[2], 1);
            }
        }
    }
}

/* slots: wrong sums, products and maxima of two 8-bit floats of each type, which are converted in pairs; all codes are
 * joined with all codes. */
WEIR_KERNEL(bytes, header_args)
{
    for (uint32_t a = coop.rank; a < 256; a += coop.size) {
        for (uint32_t b = 0; b < 256; b++) {
            for (uint32_t which = 0; which < 6; which++) {
                const uint32_t dtype = which < 3 ? WEIR_F8E4M3 : WEIR_F8E5M2;
                const uint32_t op = which % 3 == 0 ? WEIR_SUM : which % 3 == 1 ? WEIR_PROD : WEIR_MAX;
                const uint64_t first = a | (uint64_t)b << 8 | (uint64_t)(a ^ 85) << 40 | (uint64_t)b << 48;
                const uint64_t second = b | (uint64_t)a << 8 | (uint64_t)b << 40 | (uint64_t)(b ^ 85) << 48;
                weir_reduction all;
                weir_reduce_first(&all, dtype, first);
                weir_reduce_next(&all, dtype, op, second);
                const uint64_t word = weir_reduce_last(&all, dtype, op, 2);
                for (uint32_t k = 0; k < 8; k++) {
                    const float x = weir_element_float(dtype, (uint32_t)(first >> 8 * k) & 0xffu);
                    const float y = weir_element_float(dtype, (uint32_t)(second >> 8 * k) & 0xffu);
                    const uint32_t right = weir_element_of_float(dtype, weir_join_float(op, x, y));
                    if ((word >> 8 * k & 0xffu) != right) {
                        weir_arch_add_relaxed_dev_u64(&args->slots[which], 1);
                    }
                }
            }
        }
    }
}

static const weir_kernel *const kernels[] = { &shape,     &count,      &block_rounds, &grid_rounds, &grid_absent,
                                              &agree,     &sync_group, &copy,         &transfer,    &packets,
                                              &ping_pong, &wait_once,  &values,       &halves,      &bytes };

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
