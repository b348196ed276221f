// Collectives between hosts, simulated by ranks of this host, over each transport with port channels.
#include <cstdlib>

#include "test/collective/extents.h"
#include "test/collective/hosts.h"
#include "test/harness/checks.h"
#include "weir/device/collective.h"

namespace {

Operation operation(const weirt_rank *rank, Kind kind, weir_dtype dtype, weir_op op, uint64_t count, uint64_t seed)
{
    Operation o = { kind, dtype, op, count, 0, 0, false, true, seed };
    o.root = static_cast<uint32_t>(seed % rank->size);
    o.host_ranks = static_cast<const Setting *>(rank->arg)->host_ranks;
    return o;
}

// ---- what comes out ------------------------------------------------------------------------------------------------

void types(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_of(rank);
    Bench bench;
    bool fine = bench_open(rank, &opts, 16 << 10, 0, &bench);
    uint64_t seed = 0;
    for (uint32_t d = 0; d < WEIR_DTYPES; d++) {
        for (uint32_t p = 0; p < WEIR_OPS; p++) {
            Operation o = operation(rank, static_cast<Kind>(seed % 3), static_cast<weir_dtype>(d),
                                    static_cast<weir_op>(p), 61, seed);
            o.factor_type = d % 2 != 0 ? WEIR_DTYPES : static_cast<uint32_t>(WEIR_F32);
            seed++;
            fine = fine && (!is_defined(o.dtype, o.op) || run(&bench, o));
        }
    }
    bench_close(&bench);
}

void sizes(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_of(rank);
    Bench bench;
    bool fine = bench_open(rank, &opts, 128 << 10, 0, &bench);
    uint64_t seed = 100 * rank->size;
    for (uint32_t kind = 0; kind <= ALL_TO_ALL_V; kind++) {
        for (uint64_t count : { 0, 1, 61, 2041 }) {
            Operation o = operation(rank, static_cast<Kind>(kind), seed % 2 != 0 ? WEIR_F16 : WEIR_F32,
                                    seed % 5 == 0 ? WEIR_MAX : WEIR_SUM, count, seed);
            o.in_place = seed % 3 == 0 && kind != ALL_TO_ALL_V;
            o.shift = seed % 7 < 4 ? 0 : static_cast<uint32_t>(seed % 7);
            seed++;
            fine = fine && run(&bench, o);
        }
    }
    bench_close(&bench);
}

// Operations in several chunks.
void chunks(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_of(rank);
    Bench bench;
    bool fine = bench_open(rank, &opts, 160 << 10, 0, &bench);
    const Operation large[] = {
        operation(rank, ALLREDUCE, WEIR_F64, WEIR_SUM, 5001, 1),
        operation(rank, REDUCE, WEIR_I64, WEIR_MAX, 17001, 2),
        operation(rank, REDUCE_SCATTER, WEIR_F64, WEIR_SUM, 4501, 3),
        operation(rank, ALLREDUCE, WEIR_I32, WEIR_AVG, 9001, 6),
        operation(rank, REDUCE, WEIR_U8, WEIR_AVG, 9001, 7),
        operation(rank, REDUCE_SCATTER, WEIR_I8, WEIR_AVG, 2501, 8),
        operation(rank, ALL_TO_ALL, WEIR_F64, WEIR_SUM, 2101, 4),
        operation(rank, BROADCAST, WEIR_F64, WEIR_SUM, 5001, 5),
    };
    for (Operation o : large) {
        fine = fine && run(&bench, o);
        o.in_place = true;
        fine = fine && run(&bench, o);
    }
    bench_close(&bench);
}

// Pieces of random sizes, some of them empty. Pieces of `most` elements take several chunks.
void rooted(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_of(rank);
    Bench bench;
    bool fine = bench_open(rank, &opts, 2 * rooted_room(rank->size, 30000), 0, &bench);
    for (uint32_t i = 0; i < 12 && fine; i++) {
        fine = run_rooted(&bench, i % 2 != 0, i % 4 >= 2, i < 8 ? 700 : 30000, i + rank->size);
    }
    bench_close(&bench);
}

// An allgather or a reduce_scatter as three parts of different sizes.
weir_status call_in_parts(const Bench *b, const Operation &o, const Places &at)
{
    const uint32_t ranks = weir_collective_size(b->collective);
    const uint64_t bounds[] = { 0, o.count / 3, o.count / 2 + 1, o.count };
    const uint32_t size = weir_dtype_bytes(o.dtype);
    std::vector<weir_extent> extents[3];
    weir_part parts[3];
    for (uint32_t i = 0; i < 3; i++) {
        for (uint32_t k = 0; k < ranks; k++) {
            extents[i].push_back({ k * o.count + bounds[i], bounds[i + 1] - bounds[i] });
        }
        const uint64_t own = bounds[i] * size;
        parts[i] = { at.send + (o.kind == ALLGATHER ? own : 0), at.recv + (o.kind == ALLGATHER ? 0 : own),
                     extents[i].data(), o.dtype };
    }
    return o.kind == ALLGATHER ? weir_allgather_parts(b->collective, parts, 3, b->stream)
                               : weir_reduce_scatter_parts(b->collective, parts, 3, o.op, b->stream);
}

// Graphs of parts, replayed with new data: short ones, and some that are longer than a rail's slot or than its hold.
void replays_parts(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_of(rank);
    Bench bench;
    bool fine = bench_open(rank, &opts, 1 << 20, 0, &bench);
    for (const uint64_t count : { 77u, 2501u, 20001u }) {
        for (const Kind kind : { ALLGATHER, REDUCE_SCATTER }) {
            const Operation o =
                operation(rank, kind, kind == ALLGATHER ? WEIR_U8 : WEIR_F32, WEIR_SUM, count, count + kind);
            const Places at = places_of(&bench, o);
            fine = fine && replay(&bench, o, at, 3, [&] { return WEIRT_OK(rank, call_in_parts(&bench, o, at)); });
        }
    }
    bench_close(&bench);
}

// Graphs of sums with a factor in memory and of averages of integers, replayed with new data and another factor.
void replays_joined(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_of(rank);
    Bench bench;
    bool fine = bench_open(rank, &opts, 32 << 10, 0, &bench);
    Operation scaled = operation(rank, REDUCE_SCATTER, WEIR_F16, WEIR_SCALED_SUM, 500, 0);
    scaled.factor_type = WEIR_F32;
    for (const Operation &o : { scaled, operation(rank, REDUCE_SCATTER, WEIR_I8, WEIR_AVG, 500, 0) }) {
        const Places at = places_of(&bench, o);
        fine = fine && replay(&bench, o, at, 3, [&] { return WEIRT_OK(rank, call(&bench, o, at.send, at.recv)); });
    }
    bench_close(&bench);
}

// A graph of several operations, replayed with new data.
void replays(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_of(rank);
    Bench bench;
    if (bench_open(rank, &opts, 32 << 10, 0, &bench)) {
        const Operation o = operation(rank, ALLREDUCE, WEIR_F32, WEIR_SUM, 5000, 0);
        const Places at = places_of(&bench, o);
        (void)replay(&bench, o, at, 4, [&] {
            bool fine = true;
            for (uint32_t i = 0; i < 3 && fine; i++) {
                fine = WEIRT_OK(rank, call(&bench, o, at.send, at.recv));
            }
            return fine;
        });
    }
    bench_close(&bench);
}

// ---- trouble -------------------------------------------------------------------------------------------------------

void refused(const Bench *b, const char *part, weir_status status, weir_status expected_status)
{
    if (status != expected_status) {
        weirt_fail(b->rank, __FILE__, __LINE__, "%s: status %d", part, status);
    }
    WEIRT_TEXT(b->rank, part);
}

// Calls that are not supported between hosts.
void arguments(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_of(rank);
    Bench bench;
    if (bench_open(rank, &opts, 4096, 0, &bench)) {
        weir_collective *c = bench.collective;
        char *in = static_cast<char *>(weir_memory_pointer(bench.in));
        char *out = static_cast<char *>(weir_memory_pointer(bench.out));
        const uint32_t beside = rank->rank ^ 1;
        const weir_extent extents[4] = { { 0, 4 }, { 4, 4 }, { 8, 4 }, { 12, 4 } };
        const weir_collective_request request = { WEIR_ALLREDUCE, WEIR_F32, WEIR_SUM, 0, 1, in, out };
        weir_collective_reduce description;
        weir_shape shape;
        WEIRT_EXPECT(rank, weir_collective_rank(c) == rank->rank && weir_collective_size(c) == 4);
        const weir_extent over[4] = { { 0, 4 }, { 4, 4 }, { 8, 4 }, { 11, 4 } };
        refused(&bench, "recvs[2] and recvs[3] overlap",
                weir_all_to_all_v(c, in, extents, out, over, WEIR_U8, bench.stream), WEIR_ERR_INVALID);
        refused(&bench, "peer 4 does not exist; there are 4 ranks", weir_send(c, in, 1, WEIR_U8, 4, bench.stream),
                WEIR_ERR_INVALID);
        refused(&bench, "not supported between hosts",
                weir_collective_describe(c, &request, WEIR_FORM_ONCE, &description, sizeof description, &shape),
                WEIR_ERR_UNSUPPORTED);
        (void)run(&bench, operation(rank, ALLREDUCE, WEIR_F32, WEIR_SUM, 5, 1));
        // Inside the host send and recv work. The message may be longer than the slots, so one rank of two receives
        // first.
        const Operation o = operation(rank, MESSAGES, WEIR_U8, WEIR_SUM, 500, 2);
        const Places at = places_of(&bench, o);
        if (prepare(&bench, o, at)) {
            for (uint32_t k = 0; k < 2; k++) {
                WEIRT_OK(rank, k == rank->rank % 2 ? weir_send(c, at.send, 500, WEIR_U8, beside, bench.stream)
                                                   : weir_recv(c, at.recv, 500, WEIR_U8, beside, bench.stream));
            }
            Bytes have(500);
            if (finish(&bench, o)) {
                WEIRT_OK(rank, weir_device_copy(bench.comm.device, have.data(), at.recv, have.size()));
                WEIRT_EXPECT(rank, have == sent(o, beside, rank->size));
            }
        }
    }
    bench_close(&bench);
}

// One rank after the other calls alone with copies forced, and its stream is left without work.
void copies_refused(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_of(rank);
    Bench bench;
    bool fine = bench_open(rank, &opts, 4096, 0, &bench) &&
                WEIRT_OK(rank, weir_collective_force(bench.collective, WEIR_FORM_COPIES, 0));
    for (uint32_t turn = 0; turn < rank->size && fine; turn++) {
        for (uint32_t kind = 0; kind <= SCATTER && turn == rank->rank; kind++) {
            const Operation o = operation(rank, static_cast<Kind>(kind), WEIR_U8, WEIR_SUM, 20, 1);
            const Places at = places_of(&bench, o);
            refused(&bench, "copy engines carry nothing between hosts", call(&bench, o, at.send, at.recv),
                    WEIR_ERR_UNSUPPORTED);
            WEIRT_OK(rank, weir_stream_wait(bench.comm.device, bench.stream, weirt_timeout_ms()));
        }
        fine = weirt_barrier(rank);
    }
    if (fine) {
        const weir_collective_request request = { WEIR_ALLGATHER, WEIR_U8, WEIR_SUM, 0, 20, nullptr, nullptr };
        weir_collective_form form;
        weir_shape shape;
        refused(&bench, "copy engines carry nothing between hosts",
                weir_collective_choose(bench.collective, &request, &form, &shape), WEIR_ERR_UNSUPPORTED);
        WEIRT_OK(rank, weir_comm_status(bench.comm.comm));
        WEIRT_OK(rank, weir_collective_force(bench.collective, WEIR_FORM_AUTO, 0));
        (void)run(&bench, operation(rank, ALLGATHER, WEIR_U8, WEIR_SUM, 20, 1));
    }
    bench_close(&bench);
}

void creation(weirt_rank *rank)
{
    weirt_comm comm;
    weir_collective *collective = nullptr;
    if (weirt_comm_open(rank, 0, &comm)) {
        weir_collective_opts opts = opts_of(rank);
        opts.host_ranks = 3;
        WEIRT_STATUS(rank, WEIR_ERR_UNSUPPORTED, weir_collective_create(comm.comm, &opts, &collective));
        WEIRT_TEXT(rank, "4 ranks cannot be divided into hosts of 3");
        (void)weirt_barrier(rank);
        // Ranks with different arguments, or with one failing rank, all get an error.
        opts.host_ranks = rank->rank == 3 ? 1 : 2;
        WEIRT_STATUS(rank, WEIR_ERR_UNSUPPORTED, weir_collective_create(comm.comm, &opts, &collective));
        WEIRT_TEXT(rank, rank->rank == 3 ? "rank 0 found 2 ranks on its host, rank 3 found 1"
                                         : "rank 3 found 1 ranks on its host, rank ");
        (void)weirt_barrier(rank);
        opts = opts_of(rank);
        opts.staging_bytes = rank->rank == 3 ? 256 << 10 : 512 << 10;
        WEIRT_STATUS(rank, WEIR_ERR_MISMATCH, weir_collective_create(comm.comm, &opts, &collective));
        (void)weirt_barrier(rank);
        opts = opts_of(rank);
        opts.staging_bytes = rank->rank == 1 ? 1 : 512 << 10;
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_collective_create(comm.comm, &opts, &collective));
        WEIRT_TEXT(rank,
                   rank->rank == 1
                       ? "weir_collective_create: opts.staging_bytes is 1; "
                       : "weir_collective_create: rank 1 failed: weir_collective_create: opts.staging_bytes is 1; ");
        (void)weirt_barrier(rank);
        WEIRT_OK(rank, weir_comm_status(comm.comm));
    }
    (void)weirt_barrier(rank);
    weirt_comm_close(&comm);
}

// Rank 1 makes a different call.
void differences(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_of(rank);
    const bool odd = rank->rank == 1;
    const char *part = "";
    Bench bench;
    if (bench_open(rank, &opts, 64 << 10, 0, &bench)) {
        Operation o = operation(rank, ALLREDUCE, WEIR_F32, WEIR_SUM, 100, 7);
        (void)run(&bench, o);
        switch (static_cast<const Setting *>(rank->arg)->what) {
        case 0: // large against small
            o.count = odd ? 8000 : 100;
            part = "allreduce of 8000 f32, sum";
            break;
        case 1:
            o.kind = odd ? ALLGATHER : ALLREDUCE;
            part = "allgather of 100 f32";
            break;
        default:
            o.kind = BROADCAST;
            o.root = odd ? 1 : 0;
            part = "broadcast of 100 f32, root 1";
        }
        (void)weirt_barrier(rank);
        const Places at = places_of(&bench, o);
        expect_mismatch(&bench, call(&bench, o, at.send, at.recv), part);
    }
    bench_close(&bench);
}

// Extents of one rank, or of rail 1, differ in an offset or in a count. Nothing has any bytes except the last piece.
void extents_differ(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_of(rank);
    const uint32_t what = static_cast<const Setting *>(rank->arg)->what;
    const bool odd = what < rank->size ? rank->rank == what : rank->rank % 2 == 1;
    Bench bench;
    if (bench_open(rank, &opts, 64 << 10, 0, &bench)) {
        const weir_extent extents[] = { { 0, 0 }, { 0, 0 }, { 0, 0 }, { odd ? 9u : 8u, odd ? 5000u : 4u } };
        void *in = weir_memory_pointer(bench.in);
        void *out = weir_memory_pointer(bench.out);
        const bool gathers = what % 2 == 0;
        (void)weirt_barrier(rank);
        const weir_status called = gathers
                                       ? weir_gather_v(bench.collective, in, out, extents, WEIR_U8, 0, bench.stream)
                                       : weir_scatter_v(bench.collective, in, out, extents, WEIR_U8, 0, bench.stream);
        expect_mismatch(&bench, called, gathers ? "gather_v of u8, extents of digest" : "scatter_v of u8, extents of");
    }
    bench_close(&bench);
}

// One rank calls with other parts: without the last piece, or with a part where the others have none.
void parts_differ(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_of(rank);
    const uint32_t what = static_cast<const Setting *>(rank->arg)->what;
    const bool odd = rank->rank == what % rank->size;
    Bench bench;
    if (bench_open(rank, &opts, 4096, 0, &bench)) {
        const bool none = what >= rank->size;
        std::vector<weir_extent> extents(rank->size);
        for (uint32_t k = 0; k < rank->size; k++) {
            extents[k] = { 4 * k, k + 1 == rank->size && odd && !none ? 0u : 4u };
        }
        const weir_part part = { weir_memory_pointer(bench.in), weir_memory_pointer(bench.out), extents.data(),
                                 WEIR_U8 };
        (void)weirt_barrier(rank);
        const uint32_t n = none && !odd ? 0 : 1;
        expect_mismatch(&bench,
                        what % 2 == 0 ? weir_allgather_parts(bench.collective, &part, n, bench.stream)
                                      : weir_reduce_scatter_parts(bench.collective, &part, n, WEIR_MAX, bench.stream),
                        none ? "of 0 parts" : "with other extents or types");
    }
    bench_close(&bench);
}

constexpr uint64_t growing = 3 << 20; // bytes of an extent

// One rank calls with a part that takes other steps than that of the others; or one rank of each host, on another rail.
void steps_differ(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_of(rank);
    const uint32_t what = static_cast<const Setting *>(rank->arg)->what;
    const bool odd = what < 4 * rank->size ? rank->rank == what % rank->size : rank->rank % 3 == 0;
    Bench bench;
    if (bench_open(rank, &opts, 512 << 10, 0, &bench)) {
        const bool even = what < 2 * rank->size; // as one step, or in turns; otherwise each extent by itself
        std::vector<weir_extent> extents(rank->size);
        for (uint32_t k = 0; k < rank->size; k++) {
            extents[k] = { 50000 * k, odd && (even || k == 0) ? 50000u : 4u };
        }
        const weir_part part = { weir_memory_pointer(bench.in), weir_memory_pointer(bench.out), extents.data(),
                                 WEIR_U8 };
        (void)weirt_barrier(rank);
        expect_mismatch(&bench,
                        what / rank->size % 2 == 0
                            ? weir_allgather_parts(bench.collective, &part, 1, bench.stream)
                            : weir_reduce_scatter_parts(bench.collective, &part, 1, WEIR_MAX, bench.stream),
                        "with other extents or types");
    }
    bench_close(&bench);
}

// One rank calls with a part for which the staging grows.
void growth_differs(weirt_rank *rank)
{
    weir_collective_opts opts = opts_of(rank);
    const uint32_t what = static_cast<const Setting *>(rank->arg)->what;
    const bool odd = rank->rank == what % rank->size;
    Bench bench;
    opts.staging_bytes = 0;
    if (bench_open(rank, &opts, rank->size * growing, 0, &bench)) {
        std::vector<weir_extent> extents(rank->size);
        for (uint32_t k = 0; k < rank->size; k++) {
            extents[k] = { growing * k, odd ? growing : 4u };
        }
        const weir_part part = { weir_memory_pointer(bench.in), weir_memory_pointer(bench.out), extents.data(),
                                 WEIR_U8 };
        (void)weirt_barrier(rank);
        expect_mismatch(&bench,
                        what < rank->size
                            ? weir_allgather_parts(bench.collective, &part, 1, bench.stream)
                            : weir_reduce_scatter_parts(bench.collective, &part, 1, WEIR_MAX, bench.stream),
                        "with other extents or types");
    }
    bench_close(&bench);
}

// One rank of gather_v gives a root on the other host.
void roots_differ(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_of(rank);
    const bool odd = rank->rank == static_cast<const Setting *>(rank->arg)->what;
    Bench bench;
    if (bench_open(rank, &opts, 64 << 10, 0, &bench)) {
        const weir_extent extents[] = { { 0, 4 }, { 4, 4 }, { 8, 4 }, { 12, 4 } };
        (void)weirt_barrier(rank);
        expect_mismatch(&bench,
                        weir_gather_v(bench.collective, weir_memory_pointer(bench.in), weir_memory_pointer(bench.out),
                                      extents, WEIR_U8, odd ? 2 : 0, bench.stream),
                        ", root 2");
    }
    bench_close(&bench);
}

// Rank 2 dies; the others' gather_v and scatter_v end with an error that names it.
void rooted_killed(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_of(rank);
    const bool gathers = static_cast<const Setting *>(rank->arg)->what == 0;
    Bench bench;
    weirt_log_allow(" failed: "); // the transport may notice first
    if (bench_open(rank, &opts, 64 << 10, 0, &bench)) {
        (void)run_rooted(&bench, gathers, false, 700, 1);
        (void)weirt_barrier(rank);
        if (rank->rank == 2) {
            die_last(rank);
        }
        const weir_extent extents[] = { { 0, 100 }, { 100, 100 }, { 200, 100 }, { 300, 100 } };
        void *in = weir_memory_pointer(bench.in);
        void *out = weir_memory_pointer(bench.out);
        const weir_status called = gathers
                                       ? weir_gather_v(bench.collective, in, out, extents, WEIR_U8, 0, bench.stream)
                                       : weir_scatter_v(bench.collective, in, out, extents, WEIR_U8, 2, bench.stream);
        expect_death(&bench, called);
    }
    bench_leave(&bench);
}

void killed(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_of(rank);
    Bench bench;
    weirt_log_allow(" failed: "); // the transport may notice first
    if (bench_open(rank, &opts, 64 << 10, 0, &bench)) {
        die_in_rank_two(&bench, operation(rank, ALLREDUCE, WEIR_F32, WEIR_SUM, 10000, 3));
    }
    bench_leave(&bench);
}

// The NIC of each peer refuses the requests of the rails: the call ends at once on all ranks, with the NIC's error.
void refused(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_of(rank);
    Bench bench;
    weirt_log_allow(" failed: ");
    if (bench_open(rank, &opts, 64 << 10, 0, &bench)) {
        const Operation o = operation(rank, ALLREDUCE, WEIR_F32, WEIR_SUM, 10000, 3);
        const Places at = places_of(&bench, o);
        (void)!call(&bench, o, at.send, at.recv);
        WEIRT_OK(rank, weir_stream_wait(bench.comm.device, bench.stream, weirt_timeout_ms()));
        const weir_status status = weir_comm_status(bench.comm.comm);
        WEIRT_EXPECT(rank, status == WEIR_ERR_REMOTE || status == WEIR_ERR_ABORTED);
        WEIRT_TEXT(rank, "port channel 0 to rank ");
    }
    bench_close(&bench);
}

// ---- cases ---------------------------------------------------------------------------------------------------------

const auto everywhere = ::testing::Values(0, 1, 2, 3);
const auto over_all = ::testing::Values(0, 1, 2);
const auto over_ipc = ::testing::Values(0);
HOSTS_SUITE(CollectiveHosts, everywhere, over_all);
HOSTS_SUITE(CollectiveHostsChunks, ::testing::Values(0, 2), over_all);
HOSTS_SUITE(CollectiveHostsTrouble, everywhere, over_ipc);
HOSTS_SUITE(CollectiveHostsDeath, ::testing::Values(1, 3), over_all);
HOSTS_SUITE(CollectiveHostsRefused, ::testing::Values(0, 1), ::testing::Values(2));
HOSTS_SUITE(LongCollectiveHosts, everywhere, over_all);

TEST_P(CollectiveHosts, AllTypesAndOperations) { run(types, 2, 2, 1, 2); }

TEST_P(CollectiveHosts, Sizes)
{
    if (stage()->processes) {
        run(sizes, 2, 1, 2, 1);
    } else {
        run(sizes, 2, 2, 2, 1);
        run(sizes, 3, 1, 1, 2);
    }
}

TEST_P(CollectiveHostsChunks, FollowEachOther) { run(chunks, 2, 2, 1, 1); }

TEST_P(CollectiveHosts, PiecesOfRandomSizes)
{
    run(rooted, 2, 2, 2, 1);
    if (!stage()->processes) {
        run(rooted, 3, 1, 1, 2);
        run(rooted, 3, 2, 1, 1);
    }
}

TEST_P(CollectiveHosts, GraphsAreReplayed) { run(replays, 2, 1, 1, 2); }
TEST_P(CollectiveHosts, GraphsOfFactorsAndAveragesAreReplayed)
{
    run(replays_joined, 2, 2, 1, 1);
    run(replays_joined, 2, 1, 1, 1);
}

TEST_P(CollectiveHosts, GraphsOfPartsAreReplayed)
{
    run(replays_parts, 2, 2, 1, 1);
    run(replays_parts, 2, 1, 2, 1);
}

TEST_P(CollectiveHostsTrouble, ArgumentsAreChecked) { run(arguments, 2, 2, 1, 1); }
TEST_P(CollectiveHostsTrouble, CopiesAreRefused)
{
    run(copies_refused, 2, 2, 1, 1);
    run(copies_refused, 2, 1, 1, 1);
}

TEST_P(CollectiveHostsTrouble, DifferentPartsAreAMismatchOnAllRanks)
{
    for (uint32_t what = 0; what < 8; what++) {
        run(parts_differ, 2, 2, 1, 1, what);
    }
    for (uint32_t what = 0; what < 4; what++) {
        run(parts_differ, 2, 1, 1, 1, what);
    }
}

TEST_P(CollectiveHostsTrouble, PartsOfOtherStepsAreAMismatchOnAllRanks)
{
    for (uint32_t what = 0; what <= 20; what += what < 16 ? 1 : 4) {
        run(steps_differ, 2, 2, 1, 1, what);
    }
    for (uint32_t what = 0; what < 8; what++) {
        run(steps_differ, 2, 1, 1, 1, what);
    }
}

TEST_P(CollectiveHostsTrouble, PartsThatGrowTheStagingAreAMismatchOnAllRanks)
{
    for (const uint32_t what : { 0u, 3u, 5u, 6u }) {
        run(growth_differs, 2, 2, 1, 1, what);
    }
}

TEST_P(CollectiveHostsTrouble, CreationIsChecked) { run(creation, 2, 2, 1, 1); }

TEST_P(CollectiveHostsTrouble, DifferentCallsAreAMismatchOnAllRanks)
{
    for (uint32_t what = 0; what < 3; what++) {
        run(differences, 2, 2, 1, 1, what);
    }
    run(differences, 2, 1, 1, 1, 2);
}

TEST_P(CollectiveHostsTrouble, DifferentExtentsAreAMismatchOnAllRanks)
{
    for (uint32_t what = 0; what < 6; what++) {
        run(extents_differ, 2, 2, 1, 1, what);
    }
}

TEST_P(CollectiveHostsTrouble, DifferentRootsAreAMismatchOnAllRanks)
{
    for (uint32_t odd = 0; odd < 4; odd++) {
        run(roots_differ, 2, 2, 1, 1, odd);
    }
}

TEST_P(CollectiveHostsDeath, OthersEnd) { run(killed, 2, 2, 1, 1); }

TEST_P(CollectiveHostsDeath, OthersEndTheirPieces)
{
    for (uint32_t what = 0; what < 2; what++) {
        run(rooted_killed, 2, 2, 1, 1, what);
    }
}

TEST_P(CollectiveHostsRefused, RailThatFailsEndsTheCall)
{
    setenv("SWNIC_FAULT", "remote-access:1,1000000", 1);
    run(refused, 2, 1, 1, 1);
    unsetenv("SWNIC_FAULT");
}

TEST_P(LongCollectiveHosts, MoreHosts)
{
    if (weirt_stage_shares_gpu(stage(), 8) && std::strcmp(name(), "ipc") == 0) {
        GTEST_SKIP() << "ranks that share a GPU: copies of their proxies wait for kernels of other ranks";
    }
    const uint32_t hosts[][2] = { { 2, 1 }, { 2, 3 }, { 3, 2 }, { 2, 4 }, { 4, 2 }, { 5, 1 }, { 8, 1 } };
    for (const auto &of : hosts) {
        run(types, of[0], of[1], 1, 1);
        run(sizes, of[0], of[1], of[0] * of[1] > 6 ? 1 : 2, 1);
    }
    run(chunks, 3, 1, 2, 1);
    run(rooted, 3, 2, 1, 1);
    run(chunks, 2, 1, 1, 2);
}

} // namespace
