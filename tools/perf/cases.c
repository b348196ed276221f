/* cases.c - kernels with weir's device API, and the table of all cases of weir-perf.
 *
 * Kernels ignore statuses: errors are sticky, and the host checks after each run. These kernels also serve as examples
 * of the fast way to use weir. */
#include "tools/perf/cases.h"

#if defined(__CUDACC__)
#include "tools/perf/raw.h"
#define BY_HAND(kernel) (&kernel)
#else
#define BY_HAND(kernel) NULL
#endif

/* ---- the whole grid synchronizes with the peer ------------------------------------------------------------ */

/* Waits until both ranks' kernels run: one thread exchanges signals with the peer, then the grid synchronizes. */
WEIR_FN void start_together(const perf_args *args, weir_coop coop)
{
    if (coop.rank == 0) {
        weir_dev_memory_channel_signal_relaxed(&args->channel);
        (void)weir_dev_memory_channel_wait_relaxed(&args->channel);
    }
    (void)weir_coop_sync(coop);
}

WEIR_KERNEL(perf_put_grid, perf_args)
{
    coop.barrier = &args->barrier;
    start_together(args, coop);
    (void)weir_dev_memory_channel_put(&args->channel, args->mine, args->mine, args->out_bytes, coop);
    (void)weir_coop_sync(coop);
    if (coop.rank == 0) {
        weir_dev_memory_channel_signal(&args->channel);
        (void)weir_dev_memory_channel_wait(&args->channel);
    }
}

WEIR_KERNEL(perf_get_grid, perf_args)
{
    coop.barrier = &args->barrier;
    start_together(args, coop);
    (void)weir_dev_memory_channel_get(&args->channel, args->theirs, args->theirs, args->in_bytes, coop);
}

WEIR_KERNEL(perf_ll16_grid, perf_args)
{
    coop.barrier = &args->barrier;
    start_together(args, coop);
    (void)weir_dev_memory_channel_put_ll16(&args->channel, 0, args->mine, args->out_bytes, coop);
    (void)weir_dev_memory_channel_unpack_ll16(&args->channel, 0, args->theirs, args->in_bytes, coop);
}

/* ---- each block meets the same block of the peer: the fast path of put and get -------------------------------
 *
 * Blocks of a grid do not wait for each other, so that these are plain launches, which are faster. */

WEIR_FN void start_block(const weir_dev_memory_channel *channel, weir_coop blocks)
{
    if (weir_coop_leads(blocks)) {
        weir_dev_memory_channel_signal_relaxed(channel);
        (void)weir_dev_memory_channel_wait_relaxed(channel);
    }
    (void)weir_coop_sync(blocks);
}

WEIR_KERNEL(perf_put_blocks, perf_args)
{
    weir_coop blocks = weir_coop_blocks(coop);
    weir_dev_memory_channel channel = weir_dev_memory_channel_at(&args->channel, coop.block);
    start_block(&channel, blocks);
    (void)weir_dev_memory_channel_put(&channel, args->mine, args->mine, args->out_bytes, blocks);
    (void)weir_coop_sync(blocks);
    if (weir_coop_leads(blocks)) {
        weir_dev_memory_channel_signal(&channel);
        (void)weir_dev_memory_channel_wait(&channel);
    }
}

WEIR_KERNEL(perf_get_blocks, perf_args)
{
    weir_coop blocks = weir_coop_blocks(coop);
    weir_dev_memory_channel channel = weir_dev_memory_channel_at(&args->channel, coop.block);
    start_block(&channel, blocks);
    (void)weir_dev_memory_channel_get(&channel, args->theirs, args->theirs, args->in_bytes, blocks);
}

/* ---- packets and lines without a handshake: two buffers in turn ----------------------------------------------- */

WEIR_KERNEL(perf_ll16, perf_args)
{
    (void)weir_dev_memory_channel_exchange_ll16(&args->channel, 0, args->mine, args->theirs, args->in_bytes, coop);
}

WEIR_KERNEL(perf_lines, perf_args)
{
    (void)weir_dev_memory_channel_exchange_lines(&args->channel, 0, args->mine, args->theirs, args->in_bytes, coop);
}

/* ---- cases that move no data --------------------------------------------------------------------------------- */

WEIR_KERNEL(perf_empty, perf_args)
{
    (void)args;
    (void)coop;
}

WEIR_KERNEL(perf_handshake, perf_args)
{
    if (coop.rank == 0) {
        weir_dev_memory_channel_signal_relaxed(&args->channel);
        (void)weir_dev_memory_channel_wait_relaxed(&args->channel);
    }
}

WEIR_KERNEL(perf_barrier, perf_args)
{
    coop.barrier = &args->barrier;
    start_together(args, coop);
}

/* Ping-pong: rank 0 signals and waits, rank 1 waits and signals. One thread of each rank takes part. */
WEIR_KERNEL(perf_ping_relaxed, perf_args)
{
    for (uint32_t i = 0; coop.rank == 0 && i < args->rounds; i++) {
        if (args->rank != 0 && weir_dev_memory_channel_wait_relaxed(&args->channel) != WEIR_OK) {
            return;
        }
        weir_dev_memory_channel_signal_relaxed(&args->channel);
        if (args->rank == 0 && weir_dev_memory_channel_wait_relaxed(&args->channel) != WEIR_OK) {
            return;
        }
    }
}

WEIR_KERNEL(perf_ping, perf_args)
{
    for (uint32_t i = 0; coop.rank == 0 && i < args->rounds; i++) {
        if (args->rank != 0 && weir_dev_memory_channel_wait(&args->channel) != WEIR_OK) {
            return;
        }
        weir_dev_memory_channel_signal(&args->channel);
        if (args->rank == 0 && weir_dev_memory_channel_wait(&args->channel) != WEIR_OK) {
            return;
        }
    }
}

/* The same with counts in registers, between begin and end. */
WEIR_KERNEL(perf_ping_counted_relaxed, perf_args)
{
    if (coop.rank == 0) {
        const weir_dev_semaphore *semaphore = &args->channel.semaphore;
        weir_dev_semaphore_counts counts = weir_dev_semaphore_begin(semaphore);
        for (uint32_t i = 0; i < args->rounds; i++) {
            if (args->rank != 0 && weir_dev_semaphore_wait_counted_relaxed(semaphore, &counts) != WEIR_OK) {
                break;
            }
            weir_dev_semaphore_signal_counted_relaxed(semaphore, &counts);
            if (args->rank == 0 && weir_dev_semaphore_wait_counted_relaxed(semaphore, &counts) != WEIR_OK) {
                break;
            }
        }
        weir_dev_semaphore_end(semaphore, &counts);
    }
}

WEIR_KERNEL(perf_ping_counted, perf_args)
{
    if (coop.rank == 0) {
        const weir_dev_semaphore *semaphore = &args->channel.semaphore;
        weir_dev_semaphore_counts counts = weir_dev_semaphore_begin(semaphore);
        for (uint32_t i = 0; i < args->rounds; i++) {
            if (args->rank != 0 && weir_dev_semaphore_wait_counted(semaphore, &counts) != WEIR_OK) {
                break;
            }
            weir_dev_semaphore_signal_counted(semaphore, &counts);
            if (args->rank == 0 && weir_dev_semaphore_wait_counted(semaphore, &counts) != WEIR_OK) {
                break;
            }
        }
        weir_dev_semaphore_end(semaphore, &counts);
    }
}

/* ---- data to check ---------------------------------------------------------------------------------------- */

WEIR_FN uint64_t data_word(uint64_t seed, uint64_t index)
{
    uint64_t word = (index + 1) * 0x9e3779b97f4a7c15u + seed * 0xd1342543de82ef95u;
    word = (word ^ word >> 31) * 0xaf251af3b0f025b5u;
    return word ^ word >> 29;
}

WEIR_FN void store_bytes(char *to, uint64_t word, uint64_t bytes)
{
    if (bytes >= 8) {
        *(weir_alias_u64 *)to = word;
        return;
    }
    for (uint64_t i = 0; i < bytes; i++) {
        to[i] = (char)(word >> 8 * i);
    }
}

WEIR_KERNEL(prepare, perf_data_args)
{
    for (uint64_t i = coop.rank; i * 8 < args->sent_bytes; i += coop.size) {
        store_bytes(args->sent + i * 8, data_word(args->sent_seed, i), args->sent_bytes - i * 8);
    }
    for (uint64_t i = coop.rank; i * 8 < args->received_bytes; i += coop.size) {
        store_bytes(args->received + i * 8, ~data_word(args->received_seed, i), args->received_bytes - i * 8);
    }
}

WEIR_KERNEL(compare, perf_data_args)
{
    uint64_t wrong = 0;
    for (uint64_t i = coop.rank; i * 8 < args->received_bytes; i += coop.size) {
        uint64_t word = data_word(args->received_seed, i);
        for (uint64_t k = 0; k < 8 && i * 8 + k < args->received_bytes; k++) {
            wrong += args->received[i * 8 + k] != (char)(word >> 8 * k);
        }
    }
    if (wrong != 0) {
        weir_arch_add_relaxed_dev_u64(args->wrong, wrong);
    }
}

const weir_kernel *const perf_prepare = &prepare;
const weir_kernel *const perf_compare = &compare;

/* ---- the tables ------------------------------------------------------------------------------------------- */

const char *const perf_op_names[] = { "put", "get", "packets", "semaphore", "floor" };

/* A row: operation, shape, weir's kernel, the kernel by hand, flags, grid, explanation. */
const perf_case perf_cases[] = {
    { PERF_PUT, "grid", &perf_put_grid, BY_HAND(raw_put_grid), PERF_COOPERATIVE, 32, 1024, 0, 0,
      "as in the tutorial: one handshake, grid barrier, copy, grid barrier, one signal and wait" },
    { PERF_PUT, "blocks", &perf_put_blocks, BY_HAND(raw_put_blocks), 0, 132, 512, 16 << 10, 16,
      "each block by itself: handshake, copy, release signal and wait" },
    { PERF_GET, "grid", &perf_get_grid, BY_HAND(raw_get_grid), PERF_COOPERATIVE, 32, 1024, 0, 0,
      "as in the tutorial: one handshake, grid barrier, copy" },
    { PERF_GET, "blocks", &perf_get_blocks, BY_HAND(raw_get_blocks), 0, 132, 512, 16 << 10, 16,
      "each block by itself: handshake, copy" },
    { PERF_PACKETS, "ll16-grid", &perf_ll16_grid, BY_HAND(raw_ll16_grid), PERF_COOPERATIVE, 32, 1024, 0, 0,
      "as in the tutorial: one handshake, grid barrier, LL16 packets" },
    { PERF_PACKETS, "ll16", &perf_ll16, BY_HAND(raw_ll16_free), PERF_BOTH_WAYS, 132, 256, 2 << 10, 8,
      "LL16 packets to two buffers in turn, without a handshake" },
    { PERF_PACKETS, "line", &perf_lines, BY_HAND(raw_lines), PERF_BOTH_WAYS | PERF_LINES, 132, 256, 3840, 15,
      "128-byte lines to two buffers in turn, without a handshake" },
    { PERF_SEMAPHORE, "relaxed", &perf_ping_relaxed, BY_HAND(raw_ping_relaxed), PERF_SERIAL, 1, 32, 0, 0,
      "relaxed signal and wait" },
    { PERF_SEMAPHORE, "relaxed-counted", &perf_ping_counted_relaxed, BY_HAND(raw_ping_relaxed), PERF_SERIAL, 1, 32, 0,
      0, "the same between begin and end, which keep the counts in registers" },
    { PERF_SEMAPHORE, "release", &perf_ping, BY_HAND(raw_ping), PERF_SERIAL, 1, 32, 0, 0,
      "release signal and acquire wait" },
    { PERF_SEMAPHORE, "release-counted", &perf_ping_counted, BY_HAND(raw_ping), PERF_SERIAL, 1, 32, 0, 0,
      "the same between begin and end" },
    { PERF_FLOOR, "empty", &perf_empty, BY_HAND(raw_empty), PERF_COOPERATIVE, 32, 1024, 0, 0,
      "an empty kernel, launched cooperatively" },
    { PERF_FLOOR, "empty-plain", &perf_empty, BY_HAND(raw_empty), 0, 32, 1024, 0, 0, "an empty kernel" },
    { PERF_FLOOR, "handshake", &perf_handshake, BY_HAND(raw_handshake), PERF_COOPERATIVE, 32, 1024, 0, 0,
      "one thread exchanges relaxed signals" },
    { PERF_FLOOR, "handshake-grid", &perf_barrier, BY_HAND(raw_barrier), PERF_COOPERATIVE, 32, 1024, 0, 0,
      "the same and a grid barrier" },
};
const uint32_t perf_case_count = sizeof(perf_cases) / sizeof(perf_cases[0]);

bool perf_has_gpu_kernels(void)
{
#if defined(__CUDACC__)
    return true;
#else
    return false;
#endif
}

bool perf_checked_waits(void)
{
#if defined(WEIR_UNCHECKED_WAITS)
    return false;
#else
    return true;
#endif
}

#define TEXT_OF(value) #value
#define VERSION_TEXT(major, minor) TEXT_OF(major) "." TEXT_OF(minor)

const char *perf_kernel_compiler(void)
{
#if defined(__CUDACC__)
    return "nvcc " VERSION_TEXT(__CUDACC_VER_MAJOR__, __CUDACC_VER_MINOR__);
#else
    return "C compiler " __VERSION__;
#endif
}
