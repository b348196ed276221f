// Collectives: every operation, type and form, at odd sizes, on one to eight ranks.
extern "C" {
#include "src/host/collective/collective.h"
}
#include "test/collective/operations.h"
#include "test/harness/stage_test.h"

namespace {

enum Registered : uint32_t { NEITHER, RECV, BOTH };

struct Setting {
    weir_collective_form form;
    uint32_t blocks;
    uint32_t threads;
    Registered registered;
};

weir_collective_opts opts_of(const weirt_rank *rank, const Setting *setting)
{
    weir_collective_opts opts = {};
    opts.size = sizeof opts;
    opts.form = setting->form;
    if (std::strcmp(rank->stage->kind, "cpu") == 0) {
        opts.blocks = setting->blocks;
        opts.threads = setting->threads;
    } else {
        fit_together(rank, &opts);
    }
    // Slots get little memory, so operations take several rounds.
    opts.staging_bytes = setting->form == WEIR_FORM_SLOTS ? 128 << 10 : 4 << 20;
    return opts;
}

constexpr uint64_t rounds_bytes = 96 << 10;
constexpr uint32_t factor_types[] = { WEIR_DTYPES, WEIR_F64, WEIR_F32, WEIR_F16, WEIR_BF16 };

// All types and operations, at a few counts each, with all forms in turn.
void types(weirt_rank *rank)
{
    const Setting *setting = static_cast<const Setting *>(rank->arg);
    const weir_collective_opts opts = opts_of(rank, setting);
    Bench bench;
    bool fine = bench_open(rank, &opts, 16 << 10, 0, &bench);
    uint64_t seed = 0;
    for (uint32_t d = 0; d < WEIR_DTYPES && fine; d++) {
        for (uint32_t p = 0; p < WEIR_OPS && fine; p++) {
            for (uint64_t count : { 1, 61 }) {
                const weir_dtype dtype = static_cast<weir_dtype>(d);
                const weir_op op = static_cast<weir_op>(p);
                const Kind kind = static_cast<Kind>(seed % 3);
                const weir_collective_form form = static_cast<weir_collective_form>(1 + seed / 3 % 4);
                const uint32_t root = static_cast<uint32_t>(seed % rank->size);
                Operation o = { kind, dtype, op, count, root, 0, false, true, seed };
                seed++;
                o.factor_type = factor_types[(d + count) % 5];
                if (is_defined(dtype, op) && fine) {
                    fine = WEIRT_OK(rank, weir_collective_force(bench.collective, form, 0)) && run(&bench, o);
                }
            }
        }
    }
    bench_close(&bench);
}

// All operations in one form, at sizes around its units, aligned and not, in place and not.
void sizes(weirt_rank *rank)
{
    const Setting *setting = static_cast<const Setting *>(rank->arg);
    const weir_collective_opts opts = opts_of(rank, setting);
    const uint64_t counts[] = { 0, 1, 3, 61, 1021 };
    Bench bench;
    bool fine = bench_open(rank, &opts, 36 << 10, 0, &bench);
    uint64_t seed = 1000 * rank->size;
    if (fine && setting->registered != NEITHER) {
        fine = WEIRT_OK(rank, weir_collective_register(bench.collective, bench.in)) &&
               WEIRT_OK(rank, weir_collective_register(bench.collective, bench.out));
    }
    for (uint32_t k = 0; k < KINDS; k++) {
        for (uint64_t count : counts) {
            const Kind kind = static_cast<Kind>(k);
            seed++;
            const bool in_place = kind < ALL_TO_ALL_V && seed % 3 == 0;
            const weir_dtype dtype = seed % 2 != 0 ? WEIR_F16 : WEIR_F32;
            const weir_op op = seed % 5 == 0 ? WEIR_MAX : seed % 3 == 1 ? WEIR_AVG : WEIR_SUM;
            const uint32_t root = static_cast<uint32_t>(seed % rank->size);
            const uint32_t shift = seed % 7 < 4 ? 0 : static_cast<uint32_t>(seed % 7);
            const Operation o = { kind, dtype, op, count, root, shift, in_place, true, seed };
            if (kind == MESSAGES && rank->size == 1) {
                continue;
            }
            if (fine) {
                fine = run(&bench, o);
            }
        }
    }
    bench_close(&bench);
}

// Under an SM limit, an allreduce of much registered data among more than two ranks is a reduce_scatter and an
// allgather in one call. The bound is 1 KiB on the CPU device, and beyond the sizes of this test on GPUs.
void two_steps(weirt_rank *rank)
{
    const Setting *setting = static_cast<const Setting *>(rank->arg);
    const weir_collective_opts opts = opts_of(rank, setting);
    const bool cpu = std::strcmp(rank->stage->kind, "cpu") == 0;
    Bench bench;
    bool fine = bench_open(rank, &opts, 36 << 10, 0, &bench) &&
                WEIRT_OK(rank, weir_collective_register(bench.collective, bench.in)) &&
                WEIRT_OK(rank, weir_collective_register(bench.collective, bench.out)) &&
                WEIRT_OK(rank, weir_collective_force(bench.collective, WEIR_FORM_SLOTS, 1)); // a limit of one block
    for (const uint64_t count : { 200, 257, 1021, 7000 }) {
        for (const bool in_place : { false, true }) {
            const Operation o = { ALLREDUCE, WEIR_F32, WEIR_AVG, count, 0, 0, in_place, true, count };
            const uint64_t before = fine ? launches_of(&bench) : 0;
            fine = fine && run(&bench, o);
            const uint64_t steps = cpu && rank->size > 2 && count >= 256 ? 2 : 1;
            WEIRT_EXPECT(rank, !fine || launches_of(&bench) - before == steps);
        }
    }
    bench_close(&bench);
}

// Sums with a factor, by value and in memory, in all forms, captured: each launch of a graph reads another factor.
void factors(weirt_rank *rank)
{
    const Setting *setting = static_cast<const Setting *>(rank->arg);
    const weir_collective_opts opts = opts_of(rank, setting);
    Bench bench;
    bool fine = bench_open(rank, &opts, 8 << 10, 0, &bench);
    if (fine && setting->registered == BOTH) {
        fine = WEIRT_OK(rank, weir_collective_register(bench.collective, bench.in)) &&
               WEIRT_OK(rank, weir_collective_register(bench.collective, bench.out));
    }
    for (uint32_t n = 0; n < 4 * 5 && fine; n++) {
        const weir_collective_form form = static_cast<weir_collective_form>(1 + n % 4);
        const Kind kind = static_cast<Kind>(n % 3);
        const weir_dtype dtype = static_cast<weir_dtype>(n % 4);
        Operation o = { kind, dtype, WEIR_SCALED_SUM, 61, n % rank->size, 0, n % 2 != 0, true, 0 };
        o.factor_type = factor_types[n % 5];
        const Places at = places_of(&bench, o);
        fine = WEIRT_OK(rank, weir_collective_force(bench.collective, form, 0)) &&
               replay(&bench, o, at, 3, [&] { return WEIRT_OK(rank, call(&bench, o, at.send, at.recv)); });
    }
    bench_close(&bench);
}

// Sums whose parts are multiples of 16 bytes, directly between buffers: two ranks have kernels for them.
void aligned_sums(weirt_rank *rank)
{
    const Setting *setting = static_cast<const Setting *>(rank->arg);
    const weir_collective_opts opts = opts_of(rank, setting);
    Bench bench;
    bool fine = bench_open(rank, &opts, 36 << 10, 0, &bench) &&
                WEIRT_OK(rank, weir_collective_register(bench.collective, bench.in)) &&
                WEIRT_OK(rank, weir_collective_register(bench.collective, bench.out));
    uint64_t seed = 0;
    for (const weir_dtype dtype : { WEIR_F32, WEIR_F16, WEIR_BF16 }) {
        for (const weir_op op : { WEIR_SUM, WEIR_AVG, WEIR_SCALED_SUM }) {
            for (const uint64_t count : { 64, 72, 536 }) {
                for (const Kind kind : { ALLREDUCE, REDUCE_SCATTER }) {
                    const Operation o = { kind, dtype, op, count, 0, 0, ++seed % 3 == 0, true, seed };
                    fine = fine && (op != WEIR_SCALED_SUM || WEIRT_OK(rank, set_factor(&bench, o))) && run(&bench, o);
                }
            }
        }
    }
    bench_close(&bench);
}

// Operations through slots in many rounds.
void rounds(weirt_rank *rank)
{
    const Setting *setting = static_cast<const Setting *>(rank->arg);
    const weir_collective_opts opts = opts_of(rank, setting);
    const uint64_t count = rounds_bytes / 4 / rank->size - 3;
    Bench bench;
    bool fine = bench_open(rank, &opts, rounds_bytes, 0, &bench);
    if (fine && setting->registered == BOTH) {
        fine = WEIRT_OK(rank, weir_collective_register(bench.collective, bench.in));
    }
    if (fine && setting->registered != NEITHER) {
        fine = WEIRT_OK(rank, weir_collective_register(bench.collective, bench.out));
    }
    for (uint32_t k = 0; k < 2 * KINDS; k++) {
        const Kind kind = static_cast<Kind>(k / 2);
        const bool in_place = k % 2 != 0;
        Operation o = { kind, WEIR_F32, WEIR_SUM, count, rank->size - 1, 0, in_place, true, k };
        if (kind == ALL_TO_ALL_V) {
            o.count /= 2;
        }
        if (fine && (kind != MESSAGES || rank->size > 1) && (kind < ALL_TO_ALL_V || !in_place)) {
            fine = run(&bench, o);
        }
    }
    bench_close(&bench);
}

// The root of a broadcast by slots sends each other rank a part, which that rank passes on to the rest.
void passes_on(weirt_rank *rank)
{
    const Setting *setting = static_cast<const Setting *>(rank->arg);
    const weir_collective_opts opts = opts_of(rank, setting);
    Bench bench;
    bool fine = bench_open(rank, &opts, rounds_bytes, 0, &bench);
    const Operation o = { BROADCAST, WEIR_U8, WEIR_SUM, rounds_bytes - 5, 1, 0, false, false, 3 };
    fine = fine && run(&bench, o);
    for (uint32_t peer = 0; peer < rank->size && fine; peer++) {
        uint64_t sent = 0; // signals of data in the first column
        const weir_dev_collective *device = bench.collective->now;
        const weir_dev_semaphore data = weir_collective_semaphore(device, WEIR_CELL_DATA, 0, peer);
        fine = WEIRT_OK(rank, weir_device_copy(bench.comm.device, &sent, data.sent, sizeof sent));
        WEIRT_EXPECT(rank, !fine || (sent != 0) == (peer != rank->rank && peer != o.root));
    }
    bench_close(&bench);
}

// Between many blocks the root of a reduce of much data joins no part. On the CPU this is much data.
void large_reduces(weirt_rank *rank)
{
    const Setting *setting = static_cast<const Setting *>(rank->arg);
    const weir_collective_opts opts = opts_of(rank, setting);
    Bench bench;
    bool fine = bench_open(rank, &opts, 2 << 20, 0, &bench);
    for (uint32_t root = 0; root < rank->size && fine; root++) {
        const Operation o = { REDUCE, WEIR_U32, WEIR_SUM, (2 << 18) - 7, root, root, root % 2 != 0, false, root };
        fine = run(&bench, o);
    }
    bench_close(&bench);
}

WEIRT_STAGE_DATA_SUITE(Collective);

// On the CPU, threads run all numbers of ranks; processes run the first number.
void run_all(const weirt_stage *stage, std::vector<uint32_t> numbers, weirt_rank_fn body, Setting setting)
{
    if (stage->processes && std::strcmp(stage->kind, "cpu") == 0) {
        numbers.resize(1);
    }
    for (uint32_t ranks : numbers) {
        weirt_ranks_run(stage, ranks, body, &setting, sizeof setting);
    }
}

TEST_P(Collective, AllTypesAndOperations) { run_all(stage(), { 3, 1, 8 }, types, { WEIR_FORM_AUTO, 1, 2, NEITHER }); }
TEST_P(Collective, SizesOnce) { run_all(stage(), { 3, 1, 7 }, sizes, { WEIR_FORM_ONCE, 1, 2, NEITHER }); }
TEST_P(Collective, SizesPackets) { run_all(stage(), { 2, 5, 8 }, sizes, { WEIR_FORM_PACKETS, 2, 1, NEITHER }); }
TEST_P(Collective, SizesLines) { run_all(stage(), { 3, 2, 6 }, sizes, { WEIR_FORM_LINES, 1, 2, NEITHER }); }
TEST_P(Collective, SizesSlots) { run_all(stage(), { 2, 1, 4, 7 }, sizes, { WEIR_FORM_SLOTS, 2, 1, NEITHER }); }
TEST_P(Collective, SizesRegistered) { run_all(stage(), { 3, 2, 8 }, sizes, { WEIR_FORM_SLOTS, 2, 1, BOTH }); }

TEST_P(Collective, AlignedSumsGoDirectly)
{
    run_all(stage(), { 2, 4 }, aligned_sums, { WEIR_FORM_SLOTS, 2, 1, BOTH });
    run_all(stage(), { 2 }, aligned_sums, { WEIR_FORM_SLOTS, 1, 2, BOTH });
}

TEST_P(Collective, MuchRegisteredDataIsReducedInTwoSteps)
{
    run_all(stage(), { 4, 2, 3, 8 }, two_steps, { WEIR_FORM_SLOTS, 2, 1, BOTH });
}

TEST_P(Collective, FactorsAreReadAtEachLaunch)
{
    run_all(stage(), { 3, 1 }, factors, { WEIR_FORM_AUTO, 2, 1, NEITHER });
    run_all(stage(), { 2 }, factors, { WEIR_FORM_AUTO, 1, 2, BOTH });
}

TEST_P(Collective, ManyRounds)
{
    run_all(stage(), { 3, 2 }, rounds, { WEIR_FORM_SLOTS, 1, 2, NEITHER });
    run_all(stage(), { 2 }, rounds, { WEIR_FORM_SLOTS, 5, 1, NEITHER });
    run_all(stage(), { 2 }, rounds, { WEIR_FORM_SLOTS, 64, 1, NEITHER });
    run_all(stage(), { 2, 5 }, rounds, { WEIR_FORM_SLOTS, 2, 1, RECV });
    run_all(stage(), { 3, 2 }, rounds, { WEIR_FORM_SLOTS, 3, 1, BOTH });
    run_all(stage(), { 2 }, rounds, { WEIR_FORM_SLOTS, 64, 1, BOTH });
    run_all(stage(), { 3 }, rounds, { WEIR_FORM_SLOTS, 34, 1, RECV }); // enough columns that half of the blocks send
}

TEST_P(Collective, RanksPassABroadcastOn)
{
    run_all(stage(), { 3, 5, 8 }, passes_on, { WEIR_FORM_SLOTS, 2, 1, NEITHER });
    run_all(stage(), { 4 }, passes_on, { WEIR_FORM_SLOTS, 1, 2, NEITHER });
}

TEST_P(Collective, LargeReducesToEachRoot)
{
    run_all(stage(), { 3, 2, 4 }, large_reduces, { WEIR_FORM_SLOTS, 0, 1, NEITHER });
}

// Everything on every number of ranks.
WEIRT_STAGE_SUITE(LongCollective);

TEST_P(LongCollective, AllTypesOnAllNumbersOfRanks)
{
    run_all(stage(), { 1, 2, 3, 4, 5, 6, 7, 8 }, types, { WEIR_FORM_AUTO, 2, 1, NEITHER });
}

TEST_P(LongCollective, AllFormsOnAllNumbersOfRanks)
{
    for (uint32_t form = WEIR_FORM_AUTO; form <= WEIR_FORM_SLOTS; form++) {
        const weir_collective_form it = static_cast<weir_collective_form>(form);
        run_all(stage(), { 1, 2, 3, 4, 5, 6, 7, 8 }, sizes, { it, 2, 1, NEITHER });
        run_all(stage(), { 2, 3, 4, 5, 6, 7, 8 }, sizes, { it, 1, 2, BOTH });
    }
}

} // namespace
