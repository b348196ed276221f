/* raw.h - the kernels of perf/cases.c written by hand, in CUDA C++ with PTX: raw pointers, no range and alignment
 * checks, no statuses, waits without a deadline. They show what the hardware gives to such kernels.
 *
 * Sizes are multiples of 16 bytes. Kernels that exchange flags compare them with the number of the node, an argument,
 * while weir counts in memory. This works because both ranks replay the same graphs and use two words in turn (a rank
 * is at most one node ahead), and a graph has an even number of nodes, at least 4.
 *
 * Included by perf/cases.c where nvcc compiles it. */
#ifndef WEIR_PERF_RAW_H
#define WEIR_PERF_RAW_H

#include "tools/perf/cases.h"

#define RAW_BATCH 4 /* 16-byte loads in flight in each thread */

/* A kernel for weir_launch without a CPU version. */
#define RAW_KERNEL(kernel)                                                                       \
    extern "C" __global__ void kernel##_gpu(const __grid_constant__ perf_args args);             \
    static int kernel##_resolve(void **function)                                                 \
    {                                                                                            \
        return (int)cudaGetFuncBySymbol((cudaFunction_t *)function, (const void *)kernel##_gpu); \
    }                                                                                            \
    static const weir_kernel kernel = { WEIR_DEV_VERSION, sizeof(perf_args), #kernel, NULL,      \
                                        kernel##_resolve, WEIR_DEV_USED };                       \
    extern "C" __global__ void kernel##_gpu(const __grid_constant__ perf_args args)

#define RAW_FN static __device__ __forceinline__

/* ---- signals ------------------------------------------------------------------------------------------ */

RAW_FN bool raw_first_thread(void) { return threadIdx.x == 0 && blockIdx.x == 0; }

RAW_FN void raw_store_relaxed(uint64_t *word, uint64_t value)
{
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

RAW_FN void raw_store_release(uint64_t *word, uint64_t value)
{
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

RAW_FN uint64_t raw_load_relaxed(const uint64_t *word)
{
    uint64_t value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

RAW_FN uint64_t raw_load_acquire(const uint64_t *word)
{
    uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

RAW_FN void raw_await_relaxed(const uint64_t *token, uint64_t least)
{
    while (raw_load_relaxed(token) < least) {
    }
}

RAW_FN void raw_await(const uint64_t *token, uint64_t least)
{
    while (raw_load_acquire(token) < least) {
    }
}

RAW_FN void raw_handshake_once(const weir_dev_semaphore *semaphore)
{
    asm volatile("red.relaxed.sys.global.add.u64 [%0], 1;" ::"l"(semaphore->outbound) : "memory");
    uint64_t next = *(volatile uint64_t *)semaphore->expected + 1;
    raw_await_relaxed(semaphore->inbound, next);
    *(volatile uint64_t *)semaphore->expected = next;
}

/* The other blocks add 1. Block 0 adds the rest up to 2^31, so the top bit flips when all have arrived. */
RAW_FN void raw_grid_sync(uint64_t *word)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t steps = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u;
        uint32_t before;
        asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(word), "r"(steps) : "memory");
        uint32_t now = before + steps;
        while (((before ^ now) & 0x80000000u) == 0) {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(word) : "memory");
        }
    }
    __syncthreads();
}

RAW_FN void raw_start_together(const perf_args *args)
{
    if (raw_first_thread()) {
        raw_handshake_once(&args->by_hand);
    }
    raw_grid_sync(args->barrier.word);
}

/* Word `which` (0: begin, 1: end) of the block, for this node. */
RAW_FN uint64_t raw_flag_index(const perf_args *args, uint32_t which)
{
    return (uint64_t)blockIdx.x * PERF_FLAGS + (which * 2 + args->number % 2) * (PERF_FLAGS / 4);
}

/* Waits until the same block of the peer has begun; gives no order. */
RAW_FN void raw_begin_block(const perf_args *args)
{
    if (threadIdx.x == 0) {
        uint64_t index = raw_flag_index(args, 0);
        raw_store_relaxed(args->peer_flags + index, args->number);
        while (raw_load_relaxed(args->flags + index) != args->number) {
        }
    }
    __syncthreads();
}

/* Waits until this block's writes are at the peer and the peer's are here. */
RAW_FN void raw_end_block(const perf_args *args)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        uint64_t index = raw_flag_index(args, 1);
        raw_store_release(args->peer_flags + index, args->number);
        while (raw_load_acquire(args->flags + index) != args->number) {
        }
    }
}

/* ---- put and get -------------------------------------------------------------------------------------- */

RAW_FN void raw_copy(char *dst, const char *src, uint64_t bytes)
{
    ulonglong2 *to = (ulonglong2 *)dst;
    const ulonglong2 *from = (const ulonglong2 *)src;
    uint64_t count = bytes / 16;
    uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + (RAW_BATCH - 1) * stride < count; i += RAW_BATCH * stride) {
        ulonglong2 batch[RAW_BATCH];
#pragma unroll
        for (int k = 0; k < RAW_BATCH; k++) {
            batch[k] = from[i + k * stride];
        }
#pragma unroll
        for (int k = 0; k < RAW_BATCH; k++) {
            to[i + k * stride] = batch[k];
        }
    }
    for (; i < count; i += stride) {
        to[i] = from[i];
    }
}

RAW_KERNEL(raw_put_grid)
{
    raw_start_together(&args);
    raw_copy(args.channel.remote + args.mine, args.channel.local + args.mine, args.out_bytes);
    raw_grid_sync(args.barrier.word);
    if (raw_first_thread()) {
        const weir_dev_semaphore *semaphore = &args.by_hand;
        asm volatile("red.release.sys.global.add.u64 [%0], 1;" ::"l"(semaphore->outbound) : "memory");
        uint64_t next = *(volatile uint64_t *)semaphore->expected + 1;
        raw_await(semaphore->inbound, next);
        *(volatile uint64_t *)semaphore->expected = next;
    }
}

RAW_KERNEL(raw_get_grid)
{
    raw_start_together(&args);
    raw_copy(args.channel.local + args.theirs, args.channel.remote + args.theirs, args.in_bytes);
}

RAW_KERNEL(raw_put_blocks)
{
    raw_begin_block(&args);
    raw_copy(args.channel.remote + args.mine, args.channel.local + args.mine, args.out_bytes);
    raw_end_block(&args);
}

RAW_KERNEL(raw_get_blocks)
{
    raw_begin_block(&args);
    raw_copy(args.channel.local + args.theirs, args.channel.remote + args.theirs, args.in_bytes);
}

/* ---- packets; their flag is the number of the node -------------------------------------------------------- */

RAW_FN void raw_ll16(const perf_args *args, uint64_t offset)
{
    uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    uint64_t first = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const uint2 *from = (const uint2 *)(args->channel.local + args->mine);
    uint2 *to = (uint2 *)(args->channel.local + args->theirs);
    uint32_t flag = args->number;
    for (uint64_t i = first; i < args->out_bytes / 8; i += stride) {
        uint2 data = from[i];
        asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(args->channel.remote + offset + 16 * i),
                     "r"(data.x), "r"(flag), "r"(data.y)
                     : "memory");
    }
    for (uint64_t i = first; i < args->in_bytes / 8; i += stride) {
        uint2 data;
        uint32_t flag_x;
        uint32_t flag_y;
        do {
            asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(data.x), "=r"(flag_x), "=r"(data.y), "=r"(flag_y)
                         : "l"(args->channel.packets + offset + 16 * i)
                         : "memory");
        } while (flag_x != flag || flag_y != flag);
        to[i] = data;
    }
}

RAW_KERNEL(raw_ll16_grid)
{
    raw_start_together(&args);
    raw_ll16(&args, 0);
}

RAW_KERNEL(raw_ll16_free) { raw_ll16(&args, args.number % 2 * args.slot); }

/* ---- lines; their flag is the number of the node -------------------------------------------------------------- */

/* Lane l of eight has words l and l + 8 of a line's data; word 15 is the flag. Lines of a batch lie `stride` apart. */
RAW_FN void raw_put_lines(char *out, const uint64_t *src, uint64_t words, uint64_t line, uint64_t stride, uint64_t flag)
{
    uint32_t lane = threadIdx.x % 8;
    uint64_t low[RAW_BATCH];
    uint64_t high[RAW_BATCH];
#pragma unroll
    for (int k = 0; k < RAW_BATCH; k++) {
        uint64_t word = (line + k * stride) * 15 + lane;
        low[k] = word < words ? src[word] : 0;
        high[k] = lane == 7 ? flag : word + 8 < words ? src[word + 8] : 0;
    }
#pragma unroll
    for (int k = 0; k < RAW_BATCH; k++) {
        if ((line + k * stride) * 15 < words) {
            asm volatile(
                "st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(out + (line + k * stride) * 128 + 16 * lane),
                "l"(low[k]), "l"(high[k])
                : "memory");
        }
    }
}

RAW_FN void raw_unpack_lines(uint64_t *dst, const char *in, uint64_t words, uint64_t line, uint64_t stride,
                             uint64_t flag)
{
    uint32_t lane = threadIdx.x % 8;
    uint64_t low[RAW_BATCH];
    uint64_t high[RAW_BATCH];
    bool there;
    do {
        there = true;
#pragma unroll
        for (int k = 0; k < RAW_BATCH; k++) {
            if ((line + k * stride) * 15 < words) {
                asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                             : "=l"(low[k]), "=l"(high[k])
                             : "l"(in + (line + k * stride) * 128 + 16 * lane)
                             : "memory");
                there = there && (lane != 7 || high[k] == flag);
            }
        }
    } while (!__all_sync(0xffffffffu, there));
#pragma unroll
    for (int k = 0; k < RAW_BATCH; k++) {
        uint64_t word = (line + k * stride) * 15 + lane;
        if (word < words) {
            dst[word] = low[k];
        }
        if (lane != 7 && word + 8 < words) {
            dst[word + 8] = high[k];
        }
    }
}

/* Sends each batch before it waits for the previous one. The four lines of a warp are sent and received together. */
RAW_KERNEL(raw_lines)
{
    uint64_t offset = args.number % 2 * args.slot;
    uint64_t words = args.in_bytes / 8;
    uint64_t count = (words + 14) / 15;
    uint64_t stride = (uint64_t)gridDim.x * blockDim.x / 8;
    uint64_t thread = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    uint64_t in_warp = thread % 32 / 8;
    uint64_t first = thread / 32 * 4;
    const uint64_t *src = (const uint64_t *)(args.channel.local + args.mine);
    uint64_t *dst = (uint64_t *)(args.channel.local + args.theirs);
    for (uint64_t next = first; next < count + RAW_BATCH * stride; next += RAW_BATCH * stride) {
        if (next < count) {
            raw_put_lines(args.channel.remote + offset, src, words, next + in_warp, stride, args.number);
        }
        if (next >= first + RAW_BATCH * stride) {
            raw_unpack_lines(dst, args.channel.packets + offset, words, next - RAW_BATCH * stride + in_warp, stride,
                             args.number);
        }
    }
}

/* ---- kernels that move no data --------------------------------------------------------------------------------- */

RAW_KERNEL(raw_empty) {}

RAW_KERNEL(raw_handshake)
{
    if (raw_first_thread()) {
        raw_handshake_once(&args.by_hand);
    }
}

RAW_KERNEL(raw_barrier) { raw_start_together(&args); }

/* Flags are stored instead of added, and counted in a register. They continue from the consumed signals. At the start
 * of every kernel these equal the sent ones, so the semaphore stays valid. */
RAW_KERNEL(raw_ping_relaxed)
{
    if (raw_first_thread()) {
        const weir_dev_semaphore *semaphore = &args.by_hand;
        uint64_t value = *(volatile uint64_t *)semaphore->expected;
        for (uint32_t i = 0; i < args.rounds; i++) {
            value++;
            if (args.rank != 0) {
                raw_await_relaxed(semaphore->inbound, value);
            }
            raw_store_relaxed(semaphore->outbound, value);
            if (args.rank == 0) {
                raw_await_relaxed(semaphore->inbound, value);
            }
        }
        *(volatile uint64_t *)semaphore->expected = value;
    }
}

RAW_KERNEL(raw_ping)
{
    if (raw_first_thread()) {
        const weir_dev_semaphore *semaphore = &args.by_hand;
        uint64_t value = *(volatile uint64_t *)semaphore->expected;
        for (uint32_t i = 0; i < args.rounds; i++) {
            value++;
            if (args.rank != 0) {
                raw_await(semaphore->inbound, value);
            }
            raw_store_release(semaphore->outbound, value);
            if (args.rank == 0) {
                raw_await(semaphore->inbound, value);
            }
        }
        *(volatile uint64_t *)semaphore->expected = value;
    }
}

#endif
