// The end of collectives and of registrations while kernels are queued, and while graphs live on.
#include <thread>

extern "C" {
#include "src/host/comm/leave.h"
}
#include "test/collective/operations.h"
#include "test/harness/checks.h"
#include "test/harness/stage_test.h"

namespace {

WEIRT_STAGE_SUITE(CollectiveLife);

// With host_ranks 1 each rank is a host.
weir_collective_opts opts_for(const weirt_rank *rank, uint32_t host_ranks = 0)
{
    weir_collective_opts opts = WEIR_OPTS(weir_collective_opts);
    opts.staging_bytes = 1 << 20;
    opts.host_ranks = host_ranks;
    if (std::strcmp(rank->stage->kind, "cpu") == 0) {
        opts.blocks = 2;
        opts.threads = 2;
    }
    return opts;
}

Operation operation(Kind kind, uint64_t count, uint64_t seed)
{
    return { kind, WEIR_I32, WEIR_SUM, count, 0, 0, false, false, seed };
}

// An allgather may be made as two parts.
weir_status call_as(const Bench *b, const Operation &o, bool as_parts, const Places &at)
{
    const uint32_t ranks = weir_collective_size(b->collective);
    const uint64_t half = o.count / 2;
    std::vector<weir_extent> firsts(ranks);
    std::vector<weir_extent> seconds(ranks);
    for (uint32_t k = 0; k < ranks; k++) {
        firsts[k] = { k * o.count, half };
        seconds[k] = { k * o.count + half, o.count - half };
    }
    const weir_part parts[] = { { at.send, at.recv, firsts.data(), o.dtype },
                                { at.send + half * weir_dtype_bytes(o.dtype), at.recv, seconds.data(), o.dtype } };
    return as_parts ? weir_allgather_parts(b->collective, parts, 2, b->stream) : call(b, o, at.send, at.recv);
}

// Records the operation into a graph, and runs it once.
bool record(const Bench *b, const Operation &o, void **graph, bool as_parts = false)
{
    const Places at = places_of(b, o);
    return prepare(b, o, at) && WEIRT_OK(b->rank, weir_graph_begin(b->comm.device, b->stream)) &&
           WEIRT_OK(b->rank, call_as(b, o, as_parts, at)) &&
           WEIRT_OK(b->rank, weir_graph_end(b->comm.device, b->stream, graph)) &&
           WEIRT_OK(b->rank, weir_graph_launch(b->comm.device, *graph, b->stream)) && finish(b, o) && check(b, o, at);
}

// The graph ends, and stores nothing.
bool launch_ends(const Bench *b, void *graph)
{
    Bytes have(weir_memory_bytes(b->out));
    return WEIRT_OK(b->rank, weir_device_fill(b->comm.device, weir_memory_pointer(b->out), 0x77, have.size())) &&
           WEIRT_OK(b->rank, weir_graph_launch(b->comm.device, graph, b->stream)) &&
           WEIRT_OK(b->rank, weir_stream_wait(b->comm.device, b->stream, 0)) &&
           WEIRT_OK(b->rank, weir_device_copy(b->comm.device, have.data(), weir_memory_pointer(b->out), have.size())) &&
           WEIRT_EXPECT(b->rank, have == Bytes(have.size(), 0x77));
}

// Rank 0 launches the graph first: its kernel is the first to fail.
void launch_fails(const Bench *b, void *graph, const char *why)
{
    if (b->rank->rank == 0) {
        (void)launch_ends(b, graph);
        WEIRT_STATUS(b->rank, WEIR_ERR_INVALID, weir_comm_status(b->comm.comm));
        WEIRT_TEXT(b->rank, why);
    }
    if (weirt_barrier(b->rank) && b->rank->rank != 0) {
        (void)launch_ends(b, graph);
        WEIRT_EXPECT(b->rank, weir_comm_status(b->comm.comm) != WEIR_OK);
        WEIRT_TEXT(b->rank, why);
    }
}

void graph_after_abandon(weirt_rank *rank)
{
    static const struct {
        Kind kind;
        weir_collective_form form;
        uint32_t host_ranks;
        bool as_parts;
    } all[] = { { ALLREDUCE, WEIR_FORM_ONCE, 0, false },    { ALLREDUCE, WEIR_FORM_PACKETS, 0, false },
                { ALLREDUCE, WEIR_FORM_LINES, 0, false },   { ALLREDUCE, WEIR_FORM_SLOTS, 0, false },
                { ALLGATHER, WEIR_FORM_PACKETS, 0, false }, { ALLGATHER, WEIR_FORM_LINES, 0, false },
                { ALLGATHER, WEIR_FORM_SLOTS, 0, false },   { MESSAGES, WEIR_FORM_AUTO, 0, false },
                { ALLREDUCE, WEIR_FORM_AUTO, 1, false },    { ALLGATHER, WEIR_FORM_AUTO, 1, true } };
    for (const auto &one : all) {
        const weir_collective_opts opts = opts_for(rank, one.host_ranks);
        Bench b;
        void *graph = nullptr;
        if (bench_open(rank, &opts, 16 << 10, 0, &b) &&
            WEIRT_OK(rank, weir_collective_force(b.collective, one.form, 0)) &&
            record(&b, operation(one.kind, 900, 1), &graph, one.as_parts)) {
            const uint32_t before = weirt_count_mappings(true);
            (void)weirt_barrier(rank);
            weir_collective_abandon(b.collective);
            weir_collective_abandon(b.collective);
            b.collective = nullptr;
            // The memory goes, while the graph lives.
            for (uint32_t i = 0; weirt_count_mappings(true) >= before && i < weirt_timeout_ms(); i++) {
                weirt_sleep_ms(1);
            }
            WEIRT_EXPECT(rank, rank->stage->kind[0] == 'g' || weirt_count_mappings(true) < before);
            (void)weirt_barrier(rank);
            launch_fails(&b, graph, "whose collective was abandoned");
        }
        weir_graph_destroy(b.comm.device, graph);
        bench_close(&b);
    }
}

// Calls of both ranks that no other test abandons.
enum More { PARTS, GATHER_V, COPIES, TRANSFERS, MORE };

bool call_more(const Bench *b, uint32_t what)
{
    char *in = static_cast<char *>(weir_memory_pointer(b->in));
    char *out = static_cast<char *>(weir_memory_pointer(b->out));
    const weir_extent extents[] = { { 300, 300 }, { 0, 300 } };
    const weir_part parts[] = { { in, out, extents, WEIR_I32 }, { in + 2048, out + 4096, extents, WEIR_U8 } };
    weir_transfer transfers[2 * 40]; // more than a launch takes
    switch (what) {
    case PARTS:
        return WEIRT_OK(b->rank, weir_allgather_parts(b->collective, parts, 2, b->stream)) &&
               WEIRT_OK(b->rank, weir_reduce_scatter_parts(b->collective, parts, 2, WEIR_SUM, b->stream));
    case GATHER_V:
        return WEIRT_OK(b->rank, weir_gather_v(b->collective, in, out, extents, WEIR_I32, 0, b->stream)) &&
               WEIRT_OK(b->rank, weir_scatter_v(b->collective, in, out, extents, WEIR_I32, 1, b->stream));
    case COPIES:
        return WEIRT_OK(b->rank, weir_collective_force(b->collective, WEIR_FORM_COPIES, 0)) &&
               WEIRT_OK(b->rank, weir_allgather(b->collective, in, out, 300, WEIR_I32, b->stream));
    default:
        for (uint32_t i = 0; i < 80; i++) {
            char *at = (i % 2 == 0 ? in : out) + 400 * (i / 2);
            transfers[i] = { at, 100, WEIR_I32, 1 - b->rank->rank, i % 2 != 0 };
        }
        return WEIRT_OK(b->rank, weir_exchange(b->collective, transfers, 80, b->stream));
    }
}

// Rank 1 comes late: kernels of rank 0 have begun, or are queued.
void abandon_with_calls_queued(weirt_rank *rank, uint32_t host_ranks, const std::function<bool(const Bench *)> &calls)
{
    const weir_collective_opts opts = opts_for(rank, host_ranks);
    Bench b;
    const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
    // A GPU frees the memory of the round before when no kernel runs, and holds up later copies until then.
    while (!weiri_leave_is_done() && weirt_now_ms() < end) {
        weirt_sleep_ms(1);
    }
    if (bench_open(rank, &opts, 16 << 10, 0, &b) && WEIRT_OK(rank, weir_collective_register(b.collective, b.out)) &&
        calls(&b) && WEIRT_OK(rank, weir_comm_wait(b.comm.comm, b.stream, 0)) && weirt_barrier(rank)) {
        for (int i = 0; i < 3 && rank->rank == 0; i++) {
            (void)calls(&b);
        }
        (void)weirt_barrier(rank);
        const uint64_t since = weirt_now_ms();
        std::thread other([&] { weir_collective_abandon(b.collective); });
        weir_collective_abandon(b.collective);
        other.join();
        b.collective = nullptr;
        WEIRT_EXPECT(rank, weirt_now_ms() - since < weirt_slack_ms());
        (void)weirt_barrier(rank);
        if (rank->rank == 1) {
            weir_comm_abort(b.comm.comm);
        }
        WEIRT_OK(rank, weir_stream_wait(b.comm.device, b.stream, 0));
        WEIRT_EXPECT(rank, weir_comm_status(b.comm.comm) != WEIR_OK);
    }
    bench_close(&b);
}

void abandon_during_each(weirt_rank *rank, uint32_t host_ranks)
{
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        const Operation o = operation(static_cast<Kind>(kind), 900, kind);
        abandon_with_calls_queued(rank, host_ranks, [&o](const Bench *b) {
            const Places at = places_of(b, o);
            return WEIRT_OK(b->rank, call(b, o, at.send, at.recv));
        });
    }
    for (uint32_t what = 0; what < MORE; what++) {
        if (host_ranks == 0 || what != COPIES) {
            abandon_with_calls_queued(rank, host_ranks, [what](const Bench *b) { return call_more(b, what); });
        }
    }
}

void abandon_during_each_operation(weirt_rank *rank) { abandon_during_each(rank, 0); }
void abandon_during_each_between(weirt_rank *rank) { abandon_during_each(rank, 1); }

// The stream records a graph while an earlier kernel on it still waits: the memory stays until the stream is destroyed.
void abandon_while_recording(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_for(rank);
    const Operation o = operation(ALLREDUCE, 900, 1);
    Bench b;
    void *graph = nullptr;
    if (bench_open(rank, &opts, 16 << 10, 0, &b) && run(&b, o) && weirt_barrier(rank)) {
        const Places at = places_of(&b, o);
        if (rank->rank == 0) {
            WEIRT_OK(rank, call(&b, o, at.send, at.recv));
            WEIRT_OK(rank, weir_graph_begin(b.comm.device, b.stream));
            weir_collective_abandon(b.collective);
            b.collective = nullptr;
            const uint64_t since = weirt_now_ms();
            bool kept = true;
            while (kept && weirt_now_ms() - since < 100) {
                kept = !weiri_leave_is_done();
                weirt_sleep_ms(1);
            }
            WEIRT_EXPECT(rank, kept);
        }
        (void)weirt_barrier(rank);
        if (rank->rank == 1) {
            weir_comm_abort(b.comm.comm);
        } else {
            WEIRT_OK(rank, weir_graph_end(b.comm.device, b.stream, &graph));
            WEIRT_OK(rank, weir_stream_wait(b.comm.device, b.stream, 0));
            WEIRT_EXPECT(rank, !weiri_leave_is_done());
            weir_stream_destroy(b.comm.device, b.stream);
            b.stream = nullptr;
            for (uint32_t ms = 0; ms < weirt_timeout_ms() && !weiri_leave_is_done(); ms++) {
                weirt_sleep_ms(1);
            }
            WEIRT_EXPECT(rank, weiri_leave_is_done());
        }
        WEIRT_EXPECT(rank, weir_comm_status(b.comm.comm) != WEIR_OK);
    }
    weir_graph_destroy(b.comm.device, graph);
    bench_close(&b);
}

// Streams that live on, and a new stream for each step: the collective keeps events for a few of them.
void many_streams(weirt_rank *rank)
{
    constexpr uint32_t streams = 100;
    constexpr int64_t most = 40; // allocations
    const weir_collective_opts opts = opts_for(rank);
    const Operation o = operation(ALLREDUCE, 20, 1);
    std::vector<void *> made(streams, nullptr);
    Bench b;
    bool good = bench_open(rank, &opts, 4096, 0, &b);
    // The second collective finds streams that have all that kernels need.
    for (int pass = 0; pass < 2 && good; pass++) {
        weir_collective *first = b.collective;
        good = WEIRT_OK(rank, weir_collective_create(b.comm.comm, &opts, &b.collective)) && weirt_barrier(rank);
        const int64_t before = weirt_count_allocations();
        const Places at = places_of(&b, o);
        for (uint32_t i = 0; i < streams && good; i++) {
            good = (made[i] != nullptr || WEIRT_OK(rank, weir_stream_create(b.comm.device, &made[i]))) &&
                   WEIRT_OK(rank, weir_allreduce(b.collective, at.send, at.recv, 20, WEIR_I32, WEIR_SUM, made[i])) &&
                   WEIRT_OK(rank, weir_comm_wait(b.comm.comm, made[i], 0));
        }
        good = good && weirt_barrier(rank);
        const int64_t ranks = rank->stage->processes ? 1 : rank->size;
        WEIRT_EXPECT(rank, pass == 0 || weirt_count_allocations() - before <= ranks * most);
        for (uint32_t i = 0; i < streams && good && pass == 1; i++) {
            void *once = nullptr;
            good = WEIRT_OK(rank, weir_stream_create(b.comm.device, &once)) &&
                   WEIRT_OK(rank, weir_allreduce(b.collective, at.send, at.recv, 20, WEIR_I32, WEIR_SUM, once)) &&
                   WEIRT_OK(rank, weir_comm_wait(b.comm.comm, once, 0));
            weir_stream_destroy(b.comm.device, once);
        }
        good = good && weirt_barrier(rank);
        WEIRT_EXPECT(rank, pass == 0 || weirt_count_allocations() - before <= ranks * most);
        (void)weirt_barrier(rank);
        weir_collective_destroy(b.collective);
        b.collective = first;
    }
    for (void *stream : made) {
        weir_stream_destroy(b.comm.device, stream);
    }
    bench_close(&b);
}

void destroy_with_kernels_queued(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_for(rank);
    const Operation o = operation(ALLREDUCE, 3000, 1);
    Bench b;
    weirt_log_allow("the collective is abandoned");
    if (bench_open(rank, &opts, 16 << 10, 0, &b) && run(&b, o)) {
        const Places at = places_of(&b, o);
        if (rank->rank == 0) {
            WEIRT_OK(rank, call(&b, o, at.send, at.recv));
            weir_collective_destroy(b.collective);
            WEIRT_EXPECT(rank, weirt_log_count("the collective is abandoned") == 1);
        }
        (void)weirt_barrier(rank);
        if (rank->rank == 1) {
            weir_comm_abort(b.comm.comm);
            weir_collective_destroy(b.collective);
        }
        b.collective = nullptr;
        WEIRT_OK(rank, weir_stream_wait(b.comm.device, b.stream, 0));
        WEIRT_EXPECT(rank, weir_comm_status(b.comm.comm) != WEIR_OK);
    }
    bench_close(&b);
}

// A stream records a call, and is idle otherwise: its graph ends in an error when it is launched later.
void destroy_while_recording(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_for(rank);
    const Operation o = operation(ALLREDUCE, 3000, 1);
    Bench b;
    void *graph = nullptr;
    weirt_log_allow("the collective is abandoned");
    if (bench_open(rank, &opts, 16 << 10, 0, &b) && run(&b, o) && weirt_barrier(rank)) {
        const Places at = places_of(&b, o);
        WEIRT_OK(rank, weir_graph_begin(b.comm.device, b.stream));
        WEIRT_OK(rank, call(&b, o, at.send, at.recv));
        weir_collective_destroy(b.collective);
        b.collective = nullptr;
        WEIRT_OK(rank, weir_graph_end(b.comm.device, b.stream, &graph));
        (void)weirt_barrier(rank);
        WEIRT_EXPECT(rank, weirt_log_count("a stream of its operations records a graph; the collective is abandoned") ==
                               (rank->stage->processes ? 1 : rank->size));
        // The memory goes with the stream, while the graph lives.
        WEIRT_EXPECT(rank, !weiri_leave_is_done());
        (void)weirt_barrier(rank);
        weir_stream_destroy(b.comm.device, b.stream);
        b.stream = nullptr;
        for (uint32_t ms = 0; ms < weirt_timeout_ms() && !weiri_leave_is_done(); ms++) {
            weirt_sleep_ms(1);
        }
        WEIRT_EXPECT(rank, weiri_leave_is_done());
        (void)weirt_barrier(rank);
        if (WEIRT_OK(rank, weir_stream_create(b.comm.device, &b.stream))) {
            launch_fails(&b, graph, "whose collective was abandoned");
        }
    }
    weir_graph_destroy(b.comm.device, graph);
    bench_close(&b);
}

// A graph is launched after its communicator is gone.
void abandoned_communicator(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_for(rank);
    Bench b;
    void *graph = nullptr;
    if (bench_open(rank, &opts, 16 << 10, 0, &b) && record(&b, operation(ALLREDUCE, 900, 1), &graph)) {
        weir_memory_destroy(b.in);
        weir_memory_destroy(b.out);
        b.in = b.out = nullptr;
        (void)weirt_barrier(rank);
        weir_collective_abandon(b.collective);
        weir_comm_abandon(b.comm.comm);
        weir_comm_abandon(b.comm.comm);
        for (uint32_t ms = 0; ms < weirt_timeout_ms() && !weiri_leave_is_done(); ms++) {
            weirt_sleep_ms(1);
        }
        WEIRT_EXPECT(rank, weiri_leave_is_done());
        weir_comm_abandon(b.comm.comm); /* its memory is free by now */
        b.collective = nullptr;
        b.comm.comm = nullptr;
        (void)weirt_barrier(rank);
        for (int i = 0; i < 3; i++) {
            WEIRT_OK(rank, weir_graph_launch(b.comm.device, graph, b.stream));
            WEIRT_OK(rank, weir_stream_wait(b.comm.device, b.stream, 0));
            weirt_sleep_ms(5);
        }
    }
    weir_graph_destroy(b.comm.device, graph);
    bench_close(&b);
}

// ---- registrations -----------------------------------------------------------------------------------------------

constexpr uint64_t LARGE = 40000; // elements

bool register_both(const Bench *b)
{
    return WEIRT_OK(b->rank, weir_collective_register(b->collective, b->in)) &&
           WEIRT_OK(b->rank, weir_collective_register(b->collective, b->out));
}

struct Registered {
    Kind kind;
    bool parts; // an allgather as two parts
};

bool run_registered(const Bench *b, const Operation &o, bool as_parts)
{
    const Places at = places_of(b, o);
    return prepare(b, o, at) && WEIRT_OK(b->rank, call_as(b, o, as_parts, at)) && finish(b, o) && check(b, o, at);
}

void deregister(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_for(rank);
    const Registered *what = static_cast<const Registered *>(rank->arg);
    const Operation o = operation(what->kind, LARGE, 1);
    Bench b;
    void *graph = nullptr;
    if (bench_open(rank, &opts, 4 * rank->size * LARGE, 0, &b) &&
        WEIRT_OK(rank, weir_collective_force(b.collective, WEIR_FORM_SLOTS, 0)) && register_both(&b) &&
        record(&b, o, &graph, what->parts) && weirt_barrier(rank)) {
        weir_memory *used = o.kind == REDUCE_SCATTER ? b.in : b.out; // by the kernel in the graph
        // Ranks that name different registrations, and a memory that has none.
        WEIRT_STATUS(rank, WEIR_ERR_MISMATCH, weir_collective_deregister(b.collective, rank->rank == 0 ? b.in : b.out));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID,
                     weir_collective_deregister(b.collective, rank->rank == 0 ? nullptr : used));
        WEIRT_TEXT(rank, "memory is NULL");
        (void)run_registered(&b, o, what->parts);
        WEIRT_OK(rank, weir_collective_deregister(b.collective, used));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_collective_deregister(b.collective, used));
        WEIRT_TEXT(rank, "is not registered");
        (void)run_registered(&b, o, what->parts); // staged
        // The place is used again, and the graph does not take the new registration for its own.
        WEIRT_OK(rank, weir_collective_register(b.collective, used));
        (void)run_registered(&b, o, what->parts);
        (void)weirt_barrier(rank);
        launch_fails(&b, graph, "on memory that was deregistered");
    }
    weir_graph_destroy(b.comm.device, graph);
    bench_close(&b);
}

// Rank 0 has a kernel that waits for rank 1: neither rank deregisters.
void deregister_while_busy(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_for(rank);
    const Operation o = operation(ALLGATHER, LARGE, 1);
    Bench b;
    if (bench_open(rank, &opts, 8 * LARGE, 0, &b) &&
        WEIRT_OK(rank, weir_collective_force(b.collective, WEIR_FORM_SLOTS, 0)) && register_both(&b)) {
        const Places at = places_of(&b, o);
        (void)prepare(&b, o, at);
        if (rank->rank == 0) {
            WEIRT_OK(rank, call(&b, o, at.send, at.recv));
        }
        WEIRT_STATUS(rank, WEIR_ERR_BUSY, weir_collective_deregister(b.collective, b.out));
        WEIRT_TEXT(rank, rank->rank == 0 ? "still has work" : "rank 0 failed");
        if (rank->rank == 1) {
            WEIRT_OK(rank, call(&b, o, at.send, at.recv));
        }
        (void)(finish(&b, o) && check(&b, o, at) && WEIRT_OK(rank, weir_collective_deregister(b.collective, b.out)) &&
               run(&b, o));
    }
    bench_close(&b);
}

// Rank 0 records a graph of its own: neither rank deregisters until the recording has ended.
void deregister_while_recording(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_for(rank);
    const Operation o = operation(ALLGATHER, LARGE, 1);
    Bench b;
    void *graph = nullptr;
    if (bench_open(rank, &opts, 8 * LARGE, 0, &b) &&
        WEIRT_OK(rank, weir_collective_force(b.collective, WEIR_FORM_SLOTS, 0)) && register_both(&b) && run(&b, o)) {
        if (rank->rank == 0) {
            WEIRT_OK(rank, weir_graph_begin(b.comm.device, b.stream));
        }
        WEIRT_STATUS(rank, WEIR_ERR_BUSY, weir_collective_deregister(b.collective, b.out));
        WEIRT_TEXT(rank, rank->rank == 0 ? "weir_collective_deregister: a stream of the collective's operations "
                                           "records a graph"
                                         : "rank 0 failed");
        if (rank->rank == 0) {
            WEIRT_OK(rank, weir_graph_end(b.comm.device, b.stream, &graph));
        }
        (void)(run(&b, o) && WEIRT_OK(rank, weir_collective_deregister(b.collective, b.out)) && run(&b, o));
    }
    weir_graph_destroy(b.comm.device, graph);
    bench_close(&b);
}

TEST_P(CollectiveLife, GraphAfterAbandon) { run(2, graph_after_abandon); }
TEST_P(CollectiveLife, AbandonWithKernelsQueued)
{
    if (weirt_stage_shares_gpu(stage(), 2)) {
        GTEST_SKIP() << "ranks that share a GPU: what abandon frees waits for the kernel of the other rank";
    }
    run(2, abandon_during_each_operation);
}
TEST_P(CollectiveLife, AbandonBetweenHosts)
{
    if (weirt_stage_shares_gpu(stage(), 2)) {
        GTEST_SKIP() << "ranks that share a GPU: what abandon frees waits for the kernel of the other rank";
    }
    if (stage()->processes && std::strcmp(weirt_sanitizer(), "thread") == 0) {
        GTEST_SKIP() << "the thread sanitizer does not see that another process orders this one's accesses";
    }
    run(2, abandon_during_each_between);
}
TEST_P(CollectiveLife, AbandonWhileAStreamRecords)
{
    if (weirt_stage_shares_gpu(stage(), 2)) {
        GTEST_SKIP() << "ranks that share a GPU: what abandon frees waits for the kernel of the other rank";
    }
    run(2, abandon_while_recording);
}
TEST_P(CollectiveLife, ManyStreams) { run(2, many_streams); }
TEST_P(CollectiveLife, DestroyWithKernelsQueued) { run(2, destroy_with_kernels_queued); }
TEST_P(CollectiveLife, DestroyWhileAStreamRecords) { run(2, destroy_while_recording); }
TEST_P(CollectiveLife, AbandonedCommunicator) { run(2, abandoned_communicator); }
TEST_P(CollectiveLife, Deregister)
{
    for (const Kind kind : { ALLGATHER, BROADCAST, ALL_TO_ALL, ALLREDUCE, REDUCE_SCATTER }) {
        const Registered what = { kind, false };
        weirt_ranks_run(stage(), 2, deregister, &what, sizeof what);
    }
}
TEST_P(CollectiveLife, DeregisterOfParts)
{
    const Registered what = { ALLGATHER, true };
    weirt_ranks_run(stage(), 2, deregister, &what, sizeof what);
}
TEST_P(CollectiveLife, DeregisterOfABroadcastThatIsPassedOn)
{
    const Registered what = { BROADCAST, false };
    weirt_ranks_run(stage(), 3, deregister, &what, sizeof what);
}
TEST_P(CollectiveLife, DeregisterWhileBusy) { run(2, deregister_while_busy); }
TEST_P(CollectiveLife, DeregisterWhileAStreamRecords) { run(2, deregister_while_recording); }

} // namespace
