// weir_gather_v and weir_scatter_v: pieces of random sizes and places, in all forms.
#include "test/collective/extents.h"
#include "test/harness/stage_test.h"

namespace {

constexpr uint64_t room = rooted_room(8, 700);

weir_collective_opts gather_opts(const weirt_rank *rank)
{
    weir_collective_opts opts = {};
    opts.size = sizeof opts;
    opts.staging_bytes = 4 << 20;
    if (std::strcmp(rank->stage->kind, "cpu") != 0) {
        fit_together(rank, &opts);
    }
    return opts;
}

void random_calls(weirt_rank *rank)
{
    const weir_collective_opts opts = gather_opts(rank);
    Bench bench;
    bool fine = bench_open(rank, &opts, 2 * room, 0, &bench);
    uint64_t seed = 1;
    for (const weir_collective_form form : { WEIR_FORM_AUTO, WEIR_FORM_PACKETS, WEIR_FORM_LINES, WEIR_FORM_SLOTS }) {
        fine = fine && WEIRT_OK(rank, weir_collective_force(bench.collective, form, 0));
        for (uint32_t i = 0; i < 4 && fine; i++) {
            fine = run_rooted(&bench, i % 2 != 0, i >= 2, 700, seed++);
        }
    }
    bench_close(&bench);
}

WEIRT_STAGE_SUITE(GatherV);

TEST_P(GatherV, AndScatterVOfRandomExtents)
{
    for (const uint32_t ranks : { 3, 1, 2, 8 }) {
        weirt_ranks_run(stage(), ranks, random_calls, nullptr, 0);
        if (stage()->processes && std::strcmp(stage()->kind, "cpu") == 0) {
            break;
        }
    }
}

uint8_t byte_of(uint32_t from, uint64_t at) { return static_cast<uint8_t>(1 + from * 101 + at * 7 + at / 251); }

// Whether `count` bytes at byte `at` of out are those of `from`.
bool received(const Bench &b, uint32_t from, uint64_t at, uint64_t count)
{
    std::vector<uint8_t> have(count);
    const char *out = static_cast<const char *>(weir_memory_pointer(b.out)) + at;
    bool fine = WEIRT_OK(b.rank, weir_device_copy(b.comm.device, have.data(), out, count));
    for (uint64_t i = 0; i < count && fine; i++) {
        fine = WEIRT_EXPECT(b.rank, have[i] == byte_of(from, at + i));
    }
    return fine;
}

// Through slots one of two ranks sends a few bytes, and the other one none, beside much that stays where it is: all
// blocks keep a share of that.
void tiny_pieces(weirt_rank *rank)
{
    constexpr uint64_t large = 100000, far = 200000;
    weir_collective_opts opts = gather_opts(rank);
    opts.form = WEIR_FORM_SLOTS;
    if (std::strcmp(rank->stage->kind, "cpu") == 0) {
        opts.blocks = *static_cast<const uint32_t *>(rank->arg);
        opts.threads = 1;
    }
    Bench b;
    bool fine = bench_open(rank, &opts, 2 * far, 0, &b);
    const bool first = rank->rank == 0;
    const char *in = fine ? static_cast<const char *>(weir_memory_pointer(b.in)) : nullptr;
    char *out = fine ? static_cast<char *>(weir_memory_pointer(b.out)) : nullptr;
    std::vector<uint8_t> mine(2 * far);
    for (uint64_t i = 0; i < mine.size(); i++) {
        mine[i] = byte_of(rank->rank, i);
    }
    fine = fine && WEIRT_OK(rank, weir_device_copy(b.comm.device, weir_memory_pointer(b.in), mine.data(), mine.size()));
    for (const uint64_t tiny : { 1, 15, 100, 449 }) {
        for (uint32_t turn = 0; turn < 3 && fine; turn++) {
            const weir_extent gathered[] = { { far, tiny }, { 0, large } };
            const weir_extent scattered[] = { { 0, large }, { far, tiny } };
            const weir_extent sends[][2] = { { { 0, large }, { far, tiny } }, { { far, 0 }, { 0, large } } };
            const weir_extent recvs[][2] = { { { 0, large }, { far, 0 } }, { { far, tiny }, { 0, large } } };
            fine = WEIRT_OK(rank, weir_device_fill(b.comm.device, out, 0, 2 * far));
            const weir_status called =
                turn == 0 ? weir_gather_v(b.collective, first ? in + far : in, out, gathered, WEIR_U8, 1, b.stream)
                : turn == 1
                    ? weir_scatter_v(b.collective, in, first ? out : out + far, scattered, WEIR_U8, 0, b.stream)
                    : weir_all_to_all_v(b.collective, in, sends[rank->rank], out, recvs[rank->rank], WEIR_U8, b.stream);
            fine = fine && WEIRT_OK(rank, called) &&
                   WEIRT_OK(rank, weir_stream_wait(b.comm.device, b.stream, weirt_timeout_ms()));
            const bool keeps = turn == 0 ? !first : turn == 1 ? first : true;
            fine = fine && (!keeps || received(b, rank->rank, 0, large)) && (first || received(b, 0, far, tiny));
        }
    }
    bench_close(&b);
}

TEST_P(GatherV, TinyPiecesBesideLargeOnes)
{
    for (const uint32_t blocks : { 2u, 8u, 24u }) {
        weirt_ranks_run(stage(), 2, tiny_pieces, &blocks, sizeof blocks);
    }
}

void refused(const Bench *b, const char *part, weir_status status, weir_status expected_status = WEIR_ERR_INVALID)
{
    WEIRT_EXPECT(b->rank, status == expected_status);
    WEIRT_TEXT(b->rank, part);
}

void arguments(weirt_rank *rank)
{
    const weir_collective_opts opts = gather_opts(rank);
    Bench bench;
    if (bench_open(rank, &opts, 2 * room, 0, &bench)) {
        weir_collective *c = bench.collective;
        char *in = static_cast<char *>(weir_memory_pointer(bench.in));
        char *out = static_cast<char *>(weir_memory_pointer(bench.out));
        void *s = bench.stream;
        const weir_extent good[] = { { 0, 4 }, { 4, 4 } };
        const weir_extent overlap[] = { { 0, 4 }, { 3, 4 } };
        const weir_extent far[] = { { 0, 4 }, { UINT64_MAX / 2, 4 } };
        refused(&bench, "extents is NULL", weir_gather_v(c, in, out, nullptr, WEIR_F32, 0, s));
        refused(&bench, "root 2 does not exist; the collective has 2 ranks",
                weir_scatter_v(c, in, out, good, WEIR_F32, 2, s));
        refused(&bench, "extents[0] and extents[1] overlap", weir_gather_v(c, in, out, overlap, WEIR_F32, 0, s));
        refused(&bench, "extents[1] has 4 elements", weir_scatter_v(c, in, out, far, WEIR_F32, 0, s));
        refused(&bench, "send is NULL", weir_gather_v(c, nullptr, out, good, WEIR_F32, 0, s));
        refused(&bench, "recv is NULL", weir_gather_v(c, in, nullptr, good, WEIR_F32, rank->rank, s));
        refused(&bench, "not aligned", weir_scatter_v(c, in, out + 1, good, WEIR_F32, 0, s));
        refused(&bench, "send and recv overlap", weir_scatter_v(c, in, in + 8, good, WEIR_F32, rank->rank, s));
        // Nothing was launched.
        (void)run_rooted(&bench, true, false, 700, 5);
    }
    bench_close(&bench);
}

TEST_P(GatherV, RefusesBadArguments) { run(2, arguments); }

void differs(weirt_rank *rank)
{
    const weir_collective_opts opts = gather_opts(rank);
    Bench bench;
    if (bench_open(rank, &opts, 4096, 0, &bench)) {
        const weir_extent extents[] = { { 0, 4 }, { 4, 4 }, { rank->rank == 1 ? 9u : 8u, 4 } };
        (void)weirt_barrier(rank); // no rank finds the error in its setup
        const weir_status called = weir_gather_v(bench.collective, weir_memory_pointer(bench.in),
                                                 weir_memory_pointer(bench.out), extents, WEIR_U8, 0, bench.stream);
        expect_mismatch(&bench, called, "gather_v of u8, extents of digest");
    }
    bench_close(&bench);
}

TEST_P(GatherV, NamesDifferentExtents) { run(3, differs); }

WEIRT_PROCESS_SUITE(GatherVDeath);

// Rank 2 dies: the root of gather_v misses its piece, and the others miss all pieces of scatter_v.
void killed(weirt_rank *rank)
{
    const bool gathers = *static_cast<const bool *>(rank->arg);
    const weir_collective_opts opts = gather_opts(rank);
    Bench bench;
    if (bench_open(rank, &opts, 2 * room, 0, &bench) && run_rooted(&bench, gathers, false, 700, 1)) {
        const weir_extent extents[] = { { 0, 1500 }, { 1500, 20 }, { 1520, 1500 } };
        const void *in = weir_memory_pointer(bench.in);
        void *out = weir_memory_pointer(bench.out);
        (void)weirt_barrier(rank);
        if (rank->rank == 2) {
            die_last(rank);
        }
        const weir_status called = gathers
                                       ? weir_gather_v(bench.collective, in, out, extents, WEIR_U32, 0, bench.stream)
                                       : weir_scatter_v(bench.collective, in, out, extents, WEIR_U32, 2, bench.stream);
        expect_death(&bench, called);
    }
    bench_leave(&bench);
}

TEST_P(GatherVDeath, OthersEnd)
{
    for (const bool gathers : { true, false }) {
        weirt_ranks_run(stage(), 3, killed, &gathers, sizeof gathers);
    }
}

} // namespace
