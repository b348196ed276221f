// Collectives of more than 4 GiB on GPUs: kernels write the data and check every received word. On the CPU the same
// with less data.
#include "test/collective/large_kernels.h"
#include "test/collective/operations.h"
#include "test/harness/stage_test.h"

namespace {

struct LargeCase {
    uint64_t bytes;  // of each rank's part; a multiple of 8
    uint64_t offset; // of sent and received data in their memories; the memory before it stays untouched
    bool registered;
    uint32_t blocks; // limit on a GPU; 0: none
};

const char *const large_names[LARGE_OPS] = { "allreduce", "reduce_scatter", "allgather", "all_to_all" };

struct LargeBench {
    Bench bench;
    uint64_t offset;
    weir_memory *shared;
    uint32_t launches;
};

bool on_gpu(const weirt_rank *rank) { return std::strcmp(rank->stage->kind, "gpu") == 0; }

char *words_of(const LargeBench *b, weir_memory *memory)
{
    return static_cast<char *>(weir_memory_pointer(memory)) + b->offset + guard;
}

bool run_kernel(const LargeBench *b, const large_args &args)
{
    const weirt_rank *rank = b->bench.rank;
    const weir_shape shape = on_gpu(rank) ? weir_shape{ 512, 256 } : weir_shape{ 2, 2 };
    weir_device *device = b->bench.comm.device;
    return WEIRT_OK(b->bench.rank, weir_launch(device, large_kernel(), shape, &args, nullptr, b->bench.stream)) &&
           WEIRT_OK(b->bench.rank, weir_stream_wait(device, b->bench.stream, weirt_timeout_ms()));
}

weir_status call_large(const LargeBench *large, uint32_t op, uint64_t count)
{
    const Bench *b = &large->bench;
    const char *send = words_of(large, b->in);
    char *recv = words_of(large, b->out);
    switch (op) {
    case LARGE_ALLREDUCE:
        return weir_allreduce(b->collective, send, recv, count, WEIR_U64, WEIR_SUM, b->stream);
    case LARGE_REDUCE_SCATTER:
        return weir_reduce_scatter(b->collective, send, recv, count, WEIR_U64, WEIR_SUM, b->stream);
    case LARGE_ALLGATHER:
        return weir_allgather(b->collective, send, recv, count, WEIR_U64, b->stream);
    default:
        return weir_all_to_all(b->collective, send, recv, count, WEIR_U64, b->stream);
    }
}

// Checks the bytes before and behind the received data, and those at the low 32 bits of its offset.
bool guards_are_whole(const LargeBench *b, uint64_t received)
{
    const Bench &bench = b->bench;
    uint8_t bytes[2 * guard];
    const char *recv = words_of(b, bench.out);
    bool whole = WEIRT_OK(bench.rank, weir_device_copy(bench.comm.device, bytes, recv - guard, guard)) &&
                 WEIRT_OK(bench.rank, weir_device_copy(bench.comm.device, bytes + guard, recv + received, guard));
    for (const uint8_t byte : bytes) {
        whole = whole && byte == poison;
    }
    if (b->offset != 0) {
        const char *low = static_cast<const char *>(weir_memory_pointer(bench.out)) + static_cast<uint32_t>(b->offset);
        whole = whole && WEIRT_OK(bench.rank, weir_device_copy(bench.comm.device, bytes, low, sizeof bytes));
        for (const uint8_t byte : bytes) {
            whole = whole && byte == 0;
        }
    }
    return WEIRT_EXPECT(bench.rank, whole);
}

bool run_large(LargeBench *b, uint32_t op, uint64_t bytes)
{
    const Bench *bench = &b->bench;
    weirt_rank *rank = bench->rank;
    auto *report = static_cast<large_report *>(weir_memory_host_pointer(b->shared));
    const bool parts = op == LARGE_REDUCE_SCATTER || op == LARGE_ALL_TO_ALL;
    const bool gathers = op == LARGE_ALLGATHER || op == LARGE_ALL_TO_ALL;
    const uint64_t received = (gathers ? rank->size : 1) * bytes;
    large_args args = {};
    args.words = reinterpret_cast<uint64_t *>(words_of(b, bench->in));
    args.count = (parts ? rank->size : 1) * bytes / 8;
    args.rank = rank->rank;
    args.ranks = rank->size;
    args.op = op;
    args.seed = ++b->launches;
    *report = {};
    if (!run_kernel(b, args) ||
        !WEIRT_OK(rank, weir_device_fill(bench->comm.device, words_of(b, bench->out) - guard, poison,
                                         rank->size * bytes + 2 * guard)) ||
        !weirt_barrier(rank)) {
        return false;
    }
    const uint64_t since = weirt_now_ms();
    if (!WEIRT_OK(rank, call_large(b, op, bytes / 8)) ||
        !WEIRT_OK(rank, weir_stream_wait(bench->comm.device, bench->stream, weirt_timeout_ms())) ||
        !WEIRT_OK(rank, weir_comm_status(bench->comm.comm))) {
        return false;
    }
    const uint64_t took = weirt_now_ms() - since;
    args.words = reinterpret_cast<uint64_t *>(words_of(b, bench->out));
    args.report = static_cast<large_report *>(weir_memory_pointer(b->shared));
    args.count = bytes / 8;
    if (!run_kernel(b, args) || !guards_are_whole(b, received)) {
        return false;
    }
    if (on_gpu(rank) || report->wrong != 0) {
        std::printf("rank %u: %s of %llu bytes: %llu ms, %llu of %llu words wrong, as at %llu\n", rank->rank,
                    large_names[op], static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(took),
                    static_cast<unsigned long long>(report->wrong), static_cast<unsigned long long>(report->compared),
                    static_cast<unsigned long long>(report->wrong_index));
        (void)std::fflush(stdout);
    }
    return WEIRT_EXPECT(rank, report->wrong == 0) && WEIRT_EXPECT(rank, report->compared == received / 8);
}

void large_operations(weirt_rank *rank)
{
    const auto *what = static_cast<const LargeCase *>(rank->arg);
    const weir_memory_opts host = { sizeof host, WEIR_MEMORY_HOST, false, 0 };
    weir_collective_opts opts = {};
    opts.size = sizeof opts;
    const bool direct = what->offset != 0 || what->blocks != 0; // slots write directly to registered memory
    opts.form = direct ? WEIR_FORM_SLOTS : WEIR_FORM_AUTO;
    opts.blocks = what->blocks;
    if (!on_gpu(rank)) {
        opts.blocks = 2;
        opts.threads = 2;
    }
    LargeBench b = {};
    b.offset = what->offset;
    bool fine = bench_open(rank, &opts, what->offset + rank->size * what->bytes, 0, &b.bench) &&
                WEIRT_OK(rank, weir_memory_allocate(b.bench.comm.comm, sizeof(large_report), &host, &b.shared)) &&
                WEIRT_OK(rank, weir_kernel_load(b.bench.comm.device, large_kernel()));
    if (fine && what->registered) {
        fine = WEIRT_OK(rank, weir_collective_register(b.bench.collective, b.bench.in)) &&
               WEIRT_OK(rank, weir_collective_register(b.bench.collective, b.bench.out));
    }
    for (uint32_t op = 0; op < LARGE_OPS && fine; op++) {
        fine = run_large(&b, op, what->bytes);
        WEIRT_EXPECT(rank, fine);
    }
    weir_memory_destroy(b.shared);
    bench_close(&b.bench);
}

void run_both(const weirt_stage *stage, uint64_t bytes)
{
    for (bool registered : { false, true }) {
        const LargeCase what = { bytes, 0, registered, 0 };
        weirt_ranks_run(stage, 2, large_operations, &what, sizeof what);
    }
}

WEIRT_STAGE_SUITE(Large);

TEST_P(Large, KernelsCompareAMegabyte) { run_both(stage(), (1 << 20) + 8); }

TEST_P(Large, OffsetsBeyondFourGigabytes)
{
    const LargeCase what = { (1 << 20) + 8, (uint64_t{ 4 } << 30) + 4096, true, 0 };
    weirt_ranks_run(stage(), 2, large_operations, &what, sizeof what);
}

// By 16 to 32 blocks of a GPU warps draw chunks of registered memory, and on the CPU threads of odd ranks do. Each call
// leaves the counter as it found it.
TEST_P(Large, WarpsDrawChunks)
{
    const uint64_t bytes = std::strcmp(stage()->kind, "gpu") == 0 ? 16 << 20 : 64 << 10;
    for (const uint32_t blocks : { 16u, 17u, 32u }) {
        for (const uint64_t more : { 0, 8 }) {
            const LargeCase what = { bytes + more, 0, true, blocks };
            weirt_ranks_run(stage(), 2, large_operations, &what, sizeof what);
        }
    }
}

class LongLarge : public StageTest {};
INSTANTIATE_TEST_SUITE_P(Stages, LongLarge, ::testing::Values(2, 3), weirt_stage_name);

TEST_P(LongLarge, FiveGigabytes) { run_both(stage(), (uint64_t{ 5 } << 30) + 8); }

} // namespace
