// The default staging of a collective grows at the first eager call of all ranks that needs more.
#include <algorithm>

#include "test/collective/operations.h"
#include "test/harness/checks.h"
#include "test/harness/stage_test.h"

namespace {

WEIRT_STAGE_DATA_SUITE(CollectiveGrow);
WEIRT_PROCESS_SUITE(CollectiveGrowDeath);

bool is_gpu(const weirt_rank *rank) { return rank->stage->kind[0] == 'g'; }

// Elements that need more staging than a collective has at first.
uint64_t large(const weirt_rank *rank) { return is_gpu(rank) ? 400000 : 80000; }

Operation operation(Kind kind, uint64_t count, uint64_t seed)
{
    return { kind, WEIR_F32, WEIR_SUM, count, 0, 0, false, kind <= REDUCE_SCATTER, seed };
}

bool open(weirt_rank *rank, uint64_t staging, Bench *b, uint64_t room = 0)
{
    weir_collective_opts opts = WEIR_OPTS(weir_collective_opts);
    opts.staging_bytes = staging;
    if (!is_gpu(rank)) {
        opts.blocks = 2;
        opts.threads = 2;
    }
    fit_together(rank, &opts);
    return bench_open(rank, &opts, room != 0 ? room : 8 * large(rank) * rank->size, 0, b);
}

// Records the operation, whose data is that of `run`, and launches the graph.
bool record(const Bench *b, const Operation &o, void **graph)
{
    const Places at = places_of(b, o);
    return WEIRT_OK(b->rank, weir_graph_begin(b->comm.device, b->stream)) &&
           WEIRT_OK(b->rank, call(b, o, at.send, at.recv)) &&
           WEIRT_OK(b->rank, weir_graph_end(b->comm.device, b->stream, graph));
}

// The graph's operation with new data. The sums are rough: their bits depend on the order of the ranks and on where
// they are rounded.
bool replay(const Bench *b, Operation o, void *graph, uint64_t seed)
{
    o.seed = seed;
    const Places at = places_of(b, o);
    return prepare(b, o, at) && WEIRT_OK(b->rank, weir_graph_launch(b->comm.device, graph, b->stream)) &&
           finish(b, o) && check(b, o, at);
}

uint64_t bytes_of(const Bench &b) { return weir_collective_bytes(b.collective); }

void grows(weirt_rank *rank)
{
    Bench b;
    void *before = nullptr;
    void *after = nullptr;
    bool fine = open(rank, 0, &b);
    const uint64_t first = fine ? bytes_of(b) : 0;
    const Operation sum = operation(ALLREDUCE, large(rank), 1);
    WEIRT_EXPECT(rank, !fine || first <= 12 << 20);
    // Small operations and recorded calls need or get no more. Exchanges have their own memory.
    fine = fine && run(&b, operation(ALLREDUCE, 3000, 2)) && record(&b, sum, &before) && replay(&b, sum, before, 4) &&
           WEIRT_EXPECT(rank, bytes_of(b) == first) && run(&b, operation(MESSAGES, large(rank), 3));
    const uint64_t slots = fine ? bytes_of(b) : 0;
    fine = fine && run(&b, sum);
    const uint64_t second = fine ? bytes_of(b) : 0;
    fine = fine && WEIRT_EXPECT(rank, second > slots + first) && record(&b, sum, &after);
    fine = fine && replay(&b, sum, before, 5) && replay(&b, sum, after, 6) && run(&b, operation(ALLREDUCE, 3000, 7));
    for (uint32_t kind = 0; kind < KINDS && fine; kind++) {
        fine = run(&b, operation(static_cast<Kind>(kind), large(rank) / 4, kind));
    }
    fine = fine && replay(&b, sum, before, 8);
    WEIRT_EXPECT(rank, !fine || bytes_of(b) == second);
    weir_graph_destroy(b.comm.device, before);
    weir_graph_destroy(b.comm.device, after);
    bench_close(&b);
}

// Rank 0 has sent before the staging grows, and rank 1 receives afterwards; then the other way round.
void sends_before(weirt_rank *rank)
{
    Bench b;
    const Operation sum = operation(ALLREDUCE, large(rank), 1);
    std::vector<char> bytes(1000);
    bool fine = open(rank, 0, &b);
    char *out = fine ? static_cast<char *>(weir_memory_pointer(b.out)) : nullptr;
    for (uint32_t round = 0; round < 2; round++) {
        const uint32_t peer = 1 - rank->rank;
        if (fine && rank->rank == round) {
            bytes.assign(bytes.size(), static_cast<char>(7 + round));
            fine = WEIRT_OK(rank, weir_device_copy(b.comm.device, out, bytes.data(), bytes.size())) &&
                   WEIRT_OK(rank, weir_send(b.collective, out, bytes.size(), WEIR_U8, peer, b.stream)) &&
                   WEIRT_OK(rank, weir_stream_wait(b.comm.device, b.stream, weirt_timeout_ms()));
        }
        fine = fine && run(&b, sum); // grows it in the first round
        if (fine && rank->rank == 1 - round) {
            fine = WEIRT_OK(rank, weir_recv(b.collective, out, bytes.size(), WEIR_U8, peer, b.stream)) &&
                   WEIRT_OK(rank, weir_stream_wait(b.comm.device, b.stream, weirt_timeout_ms())) &&
                   WEIRT_OK(rank, weir_device_copy(b.comm.device, bytes.data(), out, bytes.size()));
            for (size_t i = 0; i < bytes.size() && fine; i++) {
                fine = WEIRT_EXPECT(rank, bytes[i] == static_cast<char>(7 + round));
            }
        }
    }
    bench_close(&b);
}

std::vector<uint8_t> pattern(uint32_t sender, uint32_t round, uint64_t bytes)
{
    std::vector<uint8_t> all(bytes);
    for (uint64_t i = 0; i < bytes; i++) {
        all[i] = static_cast<uint8_t>(mix(i / 8 + 1000000 * (round + 1) + 100000000 * static_cast<uint64_t>(sender)));
    }
    return all;
}

// Rank 0's receive waits in its kernel while the staging grows, and rank 1 sends afterwards. The kernels of both
// calls must run at the same time.
void grows_while_a_receive_waits(weirt_rank *rank)
{
    Bench b;
    void *stream = nullptr;
    const uint64_t bytes = 7 * large(rank) + 13;
    std::vector<uint8_t> data = pattern(1, 0, bytes);
    bool fine = open(rank, 0, &b) && WEIRT_OK(rank, weir_stream_create(b.comm.device, &stream)) &&
                WEIRT_OK(rank, weir_device_copy(b.comm.device, weir_memory_pointer(b.in), data.data(), bytes));
    // The allreduce that lets the staging grow has other buffers.
    std::vector<uint32_t> words(large(rank), 1);
    weir_memory *sums = nullptr;
    fine = fine && WEIRT_OK(rank, weir_memory_allocate(b.comm.comm, 4 * words.size(), nullptr, &sums)) &&
           WEIRT_OK(rank, weir_device_copy(b.comm.device, weir_memory_pointer(sums), words.data(), 4 * words.size()));
    if (fine && rank->rank == 0) {
        fine = WEIRT_OK(rank, weir_recv(b.collective, weir_memory_pointer(b.out), bytes, WEIR_U8, 1, stream));
    }
    fine = fine &&
           WEIRT_OK(rank, weir_allreduce(b.collective, weir_memory_pointer(sums), weir_memory_pointer(sums),
                                         words.size(), WEIR_U32, WEIR_SUM, b.stream)) &&
           WEIRT_OK(rank, weir_comm_wait(b.comm.comm, b.stream, 0));
    if (fine && rank->rank == 1) {
        fine = WEIRT_OK(rank, weir_send(b.collective, weir_memory_pointer(b.in), bytes, WEIR_U8, 0, stream));
    }
    std::vector<uint8_t> got(bytes);
    fine = fine && WEIRT_OK(rank, weir_comm_wait(b.comm.comm, stream, 0)) &&
           WEIRT_OK(rank, weir_device_copy(b.comm.device, got.data(), weir_memory_pointer(b.out), bytes));
    WEIRT_EXPECT(rank, !fine || rank->rank != 0 || got == data);
    weir_stream_destroy(b.comm.device, stream);
    weir_memory_destroy(sums);
    bench_close(&b);
}

// The first call that needs more is of each kind in turn, and by each form.
void every_kind_grows(weirt_rank *rank)
{
    for (uint32_t kind = 0; kind < MESSAGES; kind++) {
        Bench b;
        bool fine = open(rank, 0, &b);
        const uint64_t first = fine ? bytes_of(b) : 0;
        const Operation o = operation(static_cast<Kind>(kind), large(rank), kind);
        const weir_collective_form form = kind % 2 != 0 ? WEIR_FORM_SLOTS : WEIR_FORM_AUTO;
        fine = fine && WEIRT_OK(rank, weir_collective_force(b.collective, form, 0)) && run(&b, o) && run(&b, o);
        WEIRT_EXPECT(rank, !fine || bytes_of(b) > first);
        bench_close(&b);
    }
}

// Before growth there are slots for three of four columns.
void recorded_by_fewer_columns(weirt_rank *rank)
{
    Bench b;
    void *graph = nullptr;
    weir_collective_opts opts = WEIR_OPTS(weir_collective_opts);
    opts.blocks = is_gpu(rank) ? 0 : 8;
    opts.threads = is_gpu(rank) ? 0 : 1;
    const Operation o = operation(ALLREDUCE, 4 * large(rank), 1);
    bool fine = bench_open(rank, &opts, 4 * o.count, 0, &b) &&
                WEIRT_OK(rank, weir_collective_force(b.collective, WEIR_FORM_SLOTS, 0)) && record(&b, o, &graph);
    for (uint64_t seed = 2; seed < 5; seed++) {
        fine = fine && replay(&b, o, graph, seed);
    }
    (void)(fine && run(&b, o) && replay(&b, o, graph, 5));
    weir_graph_destroy(b.comm.device, graph);
    bench_close(&b);
}

weir_status gather_v(const Bench &b, const void *send, void *recv, const weir_extent *extents)
{
    return weir_allgather_v(b.collective, send, recv, extents, WEIR_F32, b.stream);
}

// Parts, and gather by extents: rank k has (k + 1) shares.
void calls_with_extents_grow(weirt_rank *rank)
{
    const uint64_t count = large(rank) / 4;
    weir_extent extents[WEIR_COLLECTIVE_RANKS] = {};
    for (uint32_t k = 0; k < rank->size; k++) {
        extents[k] = { count * k * (k + 1) / 2, count * (k + 1) };
    }
    std::vector<float> mine(extents[rank->rank].count, static_cast<float>(rank->rank + 1));
    std::vector<float> all(count * rank->size * (rank->size + 1) / 2);
    for (const bool parts : { true, false }) {
        Bench b;
        bool fine = open(rank, 0, &b);
        const uint64_t first = fine ? bytes_of(b) : 0;
        void *send = fine ? weir_memory_pointer(b.in) : nullptr;
        void *recv = fine ? weir_memory_pointer(b.out) : nullptr;
        fine = fine && WEIRT_OK(rank, weir_device_copy(b.comm.device, send, mine.data(), 4 * mine.size())) &&
               WEIRT_OK(rank, parts ? gather_v(b, send, recv, extents)
                                    : weir_gather_v(b.collective, send, recv, extents, WEIR_F32, 0, b.stream)) &&
               WEIRT_OK(rank, weir_comm_wait(b.comm.comm, b.stream, 0)) && WEIRT_EXPECT(rank, bytes_of(b) > first) &&
               WEIRT_OK(rank, weir_device_copy(b.comm.device, all.data(), recv, 4 * all.size()));
        for (uint32_t k = 0; k < rank->size && fine && (parts || rank->rank == 0); k++) {
            const auto at = all.begin() + static_cast<std::ptrdiff_t>(extents[k].at);
            const auto end = at + static_cast<std::ptrdiff_t>(extents[k].count);
            WEIRT_EXPECT(rank, std::count(at, end, static_cast<float>(k + 1)) == end - at);
        }
        bench_close(&b);
    }
}

// The kernels of an allreduce by copies join the data by slots.
void copies_grow(weirt_rank *rank)
{
    Bench b;
    bool fine = open(rank, 0, &b) && WEIRT_OK(rank, weir_collective_register(b.collective, b.out)) &&
                WEIRT_OK(rank, weir_collective_force(b.collective, WEIR_FORM_COPIES, 0));
    const uint64_t first = fine ? bytes_of(b) : 0;
    fine = fine && run(&b, operation(ALLGATHER, large(rank), 1)) && WEIRT_EXPECT(rank, bytes_of(b) == first) &&
           run(&b, operation(ALLREDUCE, large(rank), 2)) && WEIRT_EXPECT(rank, bytes_of(b) > first);
    (void)(fine && run(&b, operation(ALLGATHER, large(rank), 3)));
    bench_close(&b);
}

// A factor that is set after growth, or before it, holds for the calls that follow.
void factors_stay(weirt_rank *rank)
{
    Bench b;
    Operation o = operation(ALLREDUCE, 1000, 1);
    o.op = WEIR_SCALED_SUM;
    bool fine = open(rank, 0, &b) && run(&b, o);
    o.count = large(rank);
    fine = fine && run(&b, o);
    o.seed = 2;
    o.factor_type = WEIR_F32;
    (void)(fine && run(&b, o));
    bench_close(&b);
}

// Operations on two streams, one after the other. Kernels of the first are queued when the staging grows: rank 0 comes
// late.
void grows_behind_queued_kernels(weirt_rank *rank)
{
    weir_collective_opts opts = WEIR_OPTS(weir_collective_opts);
    Bench b;
    void *streams[2] = {};
    const uint64_t count = large(rank);
    opts.order_streams = true;
    opts.blocks = is_gpu(rank) ? 0 : 1;
    bool fine = bench_open(rank, &opts, 4 * count, 0, &b) &&
                WEIRT_OK(rank, weir_stream_create(b.comm.device, &streams[0])) &&
                WEIRT_OK(rank, weir_stream_create(b.comm.device, &streams[1]));
    std::vector<uint32_t> words(count, 1);
    char *data = fine ? static_cast<char *>(weir_memory_pointer(b.in)) : nullptr;
    fine = fine && WEIRT_OK(rank, weir_device_copy(b.comm.device, data, words.data(), 4 * count));
    if (rank->rank == 0) {
        weirt_sleep_ms(20);
    }
    const uint64_t first = fine ? bytes_of(b) : 0;
    const uint64_t counts[] = { 1000, 3000, count, 2000, count, 1000 };
    for (uint32_t i = 0; i < 6 && fine; i++) {
        fine =
            WEIRT_OK(rank, weir_allreduce(b.collective, data, data, counts[i], WEIR_U32, WEIR_SUM, streams[i % 2])) &&
            WEIRT_EXPECT(rank, (bytes_of(b) > first) == (i > 1));
    }
    fine = fine && WEIRT_OK(rank, weir_comm_wait(b.comm.comm, streams[0], 0)) &&
           WEIRT_OK(rank, weir_comm_wait(b.comm.comm, streams[1], 0)) &&
           WEIRT_OK(rank, weir_device_copy(b.comm.device, words.data(), data, 4 * count));
    for (uint64_t i = 0; i < count && fine; i++) {
        uint32_t expected = 1;
        for (const uint64_t n : counts) {
            expected *= i < n ? rank->size : 1;
        }
        fine = WEIRT_EXPECT(rank, words[i] == expected);
    }
    weir_stream_destroy(b.comm.device, streams[0]);
    weir_stream_destroy(b.comm.device, streams[1]);
    bench_close(&b);
}

// Two hosts of two ranks.
void grows_between_hosts(weirt_rank *rank)
{
    weir_collective_opts opts = WEIR_OPTS(weir_collective_opts);
    opts.host_ranks = 2;
    opts.blocks = 2;
    opts.threads = is_gpu(rank) ? 128 : 2;
    Bench b;
    bool fine = bench_open(rank, &opts, 8 * large(rank), 0, &b);
    const uint64_t first = fine ? bytes_of(b) : 0;
    Operation o = operation(BROADCAST, large(rank), 1);
    o.host_ranks = 2;
    o.root = 3;
    fine = fine && run(&b, o) && WEIRT_EXPECT(rank, bytes_of(b) > first);
    o.kind = ALLREDUCE;
    o.rough = true;
    fine = fine && run(&b, o);
    o.kind = MESSAGES;
    (void)(fine && run(&b, o));
    bench_close(&b);
    // An average of integers moves words of 64 bits.
    Bench words;
    fine = bench_open(rank, &opts, 8 * large(rank), 0, &words);
    o = { ALLREDUCE, WEIR_I8, WEIR_AVG, large(rank) / 2, 0, 0, false, false, 2, 2 };
    (void)(fine && run(&words, o) && WEIRT_EXPECT(rank, bytes_of(words) > first));
    bench_close(&words);
}

// The caller's number of bytes never changes.
void stays(weirt_rank *rank)
{
    const uint64_t staging = *static_cast<const uint64_t *>(rank->arg);
    Bench b;
    bool fine = open(rank, staging, &b);
    const uint64_t first = fine ? bytes_of(b) : 0;
    fine =
        fine && run(&b, operation(ALLREDUCE, large(rank), 1)) && run(&b, operation(ALL_TO_ALL_V, large(rank) / 4, 2));
    WEIRT_EXPECT(rank, !fine || bytes_of(b) == first);
    bench_close(&b);
}

// Data that goes straight between registered memories needs no staging.
void zero_copy_needs_none(weirt_rank *rank)
{
    Bench b;
    bool fine = open(rank, 0, &b) && WEIRT_OK(rank, weir_collective_register(b.collective, b.out)) &&
                WEIRT_OK(rank, weir_collective_force(b.collective, WEIR_FORM_SLOTS, 0));
    const uint64_t first = fine ? bytes_of(b) : 0;
    fine = fine && run(&b, operation(ALLGATHER, large(rank), 1)) && WEIRT_EXPECT(rank, bytes_of(b) == first);
    Operation swap = operation(ALL_TO_ALL, large(rank), 2);
    swap.in_place = true; // goes through slots
    fine = fine && run(&b, swap);
    WEIRT_EXPECT(rank, !fine || bytes_of(b) > first);
    bench_close(&b);
}

// ---- growth fails ------------------------------------------------------------------------------------------------

bool works_as_before(const Bench &b, uint64_t first)
{
    return run(&b, operation(ALLREDUCE, 3000, 1)) && run(&b, operation(ALLREDUCE, large(b.rank), 2)) &&
           run(&b, operation(ALL_TO_ALL_V, large(b.rank) / 4, 3)) && WEIRT_EXPECT(b.rank, bytes_of(b) == first);
}

// Rank 1 cannot get the memory: the first or second operation of its device, or its allocation, fails.
void one_fails(weirt_rank *rank)
{
    for (uint32_t what = 0; what < 4; what++) {
        Bench b;
        bool fine = open(rank, 0, &b) && run(&b, operation(ALLREDUCE, 3000, what));
        const uint64_t first = fine ? bytes_of(b) : 0;
        const Operation o = operation(ALLREDUCE, large(rank), 1);
        fine = fine && prepare(&b, o, places_of(&b, o));
        const Places at = fine ? places_of(&b, o) : Places{};
        if (fine && rank->rank == 1) {
            (void)(what < 2 ? weirt_fail_device(what + 1) : weirt_fail_allocation(what - 1));
            const weir_status status = call(&b, o, at.send, at.recv);
            (void)weirt_fail_device(0);
            (void)weirt_fail_allocation(0);
            WEIRT_EXPECT(rank, status == (what < 2 ? WEIR_ERR_DEVICE : WEIR_ERR_NOMEM));
            WEIRT_TEXT(rank, "weir_allreduce: the staging cannot grow: ");
        }
        fine = weirt_barrier(rank) && fine;
        if (fine && rank->rank != 1) {
            WEIRT_STATUS(rank, what < 2 ? WEIR_ERR_DEVICE : WEIR_ERR_NOMEM, call(&b, o, at.send, at.recv));
            WEIRT_TEXT(rank, "weir_allreduce: rank 1 failed: ");
        }
        (void)(fine && works_as_before(b, first));
        bench_close(&b);
    }
}

// The n-th operation of the device or the n-th allocation of either rank fails, until growth succeeds. Neither rank is
// left behind.
void nth_fails(weirt_rank *rank)
{
    const bool device = *static_cast<const bool *>(rank->arg);
    bool grown = false;
    weirt_log_allow(""); // the log depends on the failed operation
    for (uint32_t n = 1; n < 200 && !grown; n++) {
        Bench b;
        bool fine = open(rank, 0, &b);
        const uint64_t first = fine ? bytes_of(b) : 0;
        const Operation o = operation(ALLREDUCE, large(rank), n);
        const Places at = fine ? places_of(&b, o) : Places{};
        (void)weirt_barrier(rank);
        if (rank->rank == 0) {
            (void)(device ? weirt_fail_device(n) : weirt_fail_allocation(n));
        }
        fine = weirt_barrier(rank) && fine;
        const weir_status status = fine ? call(&b, o, at.send, at.recv) : WEIR_ERR_INVALID;
        const bool mine = bytes_of(b) > first;
        WEIRT_EXPECT(rank, mine || (status < 0 && weir_last_error()[0] != '\0'));
        weirt_step(rank, 2 * n + (mine ? 1 : 0));
        fine = weirt_barrier(rank) && fine;
        if (rank->rank == 0) {
            (void)weirt_fail_device(0);
            (void)weirt_fail_allocation(0);
        }
        const bool other = weirt_step_now(rank, 1 - rank->rank) == 2 * n + 1;
        fine = weirt_barrier(rank) && fine;
        grown = mine && other;
        if (grown ||
            !device) { // the launch may have failed on one rank; without memory for a message both fail for good
            weir_comm_abort(b.comm.comm);
        } else {
            (void)(fine && WEIRT_EXPECT(rank, mine == other) && works_as_before(b, first));
        }
        bench_close(&b);
    }
    WEIRT_EXPECT(rank, grown);
}

void killed(weirt_rank *rank)
{
    Bench b;
    if (open(rank, 0, &b) && run(&b, operation(ALLREDUCE, 1000, 1)) && weirt_barrier(rank)) {
        if (rank->rank == 2) {
            weirt_die(rank, WEIRT_KILL);
        }
        const Operation o = operation(ALLREDUCE, large(rank), 2);
        const Places at = places_of(&b, o);
        WEIRT_STATUS(rank, WEIR_ERR_REMOTE, call(&b, o, at.send, at.recv));
        WEIRT_STATUS(rank, WEIR_ERR_REMOTE, weir_comm_status(b.comm.comm));
    }
    bench_leave(&b);
}

// Only one rank's call needs more staging. It waits for the other rank on the host, and the other's kernel for it. One
// of the two deadlines comes first.
void one_grows_alone(weirt_rank *rank)
{
    Bench b;
    weir_collective_opts opts = WEIR_OPTS(weir_collective_opts);
    opts.blocks = is_gpu(rank) ? 0 : 1;
    if (bench_open(rank, &opts, 4 * large(rank), 1500 * weirt_slow(), &b)) {
        const Operation o = operation(ALLREDUCE, rank->rank == 0 ? 100 : large(rank), 1);
        const Places at = places_of(&b, o);
        const weir_status called = call(&b, o, at.send, at.recv);
        if (rank->rank == 0) {
            WEIRT_OK(rank, called);
        } else if (called == WEIR_ERR_ABORTED) {
            WEIRT_TEXT(rank, "rank 0: weir_allreduce of 400 bytes: nothing came from rank 1");
        } else {
            WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, called);
            WEIRT_TEXT(rank, "rank 0 did not call weir_collective_create, weir_collective_register or a call that "
                             "grows the staging or maps buffers within ");
        }
        WEIRT_OK(rank, weir_stream_wait(b.comm.device, b.stream, 0));
        WEIRT_EXPECT(rank, rank->rank == 1 || weir_comm_status(b.comm.comm) < 0); // its kernel met nobody
    }
    bench_close(&b);
}

// ---- the end -----------------------------------------------------------------------------------------------------

// Graphs with each memory end in an error once the collective is abandoned, and both memories go.
void abandoned(weirt_rank *rank)
{
    Bench b;
    void *graphs[2] = {};
    const Operation o = operation(ALLREDUCE, large(rank), 1);
    if (open(rank, 0, &b) && record(&b, o, &graphs[0]) && run(&b, o) && record(&b, o, &graphs[1]) &&
        replay(&b, o, graphs[0], 2) && replay(&b, o, graphs[1], 3)) {
        const uint32_t before = weirt_count_mappings(true);
        (void)weirt_barrier(rank);
        weir_collective_abandon(b.collective);
        b.collective = nullptr;
        for (uint32_t i = 0; weirt_count_mappings(true) + 1 >= before && i < weirt_timeout_ms(); i++) {
            weirt_sleep_ms(1);
        }
        WEIRT_EXPECT(rank, is_gpu(rank) || weirt_count_mappings(true) + 1 < before);
        (void)weirt_barrier(rank);
        for (void *graph : graphs) {
            WEIRT_OK(rank, weir_graph_launch(b.comm.device, graph, b.stream));
            WEIRT_OK(rank, weir_stream_wait(b.comm.device, b.stream, 0));
            WEIRT_EXPECT(rank, weir_comm_status(b.comm.comm) < 0);
            WEIRT_TEXT(rank, "whose collective was abandoned");
        }
    }
    weir_graph_destroy(b.comm.device, graphs[0]);
    weir_graph_destroy(b.comm.device, graphs[1]);
    bench_close(&b);
}

// A registration from before growth ends after it.
void deregistered(weirt_rank *rank)
{
    Bench b;
    void *graph = nullptr;
    const Operation o = operation(ALLGATHER, large(rank), 1);
    if (open(rank, 0, &b) && WEIRT_OK(rank, weir_collective_register(b.collective, b.out)) &&
        run(&b, operation(ALL_TO_ALL_V, large(rank) / 4, 2)) && // grows
        WEIRT_OK(rank, weir_collective_force(b.collective, WEIR_FORM_SLOTS, 0)) && record(&b, o, &graph) &&
        replay(&b, o, graph, 3) && WEIRT_OK(rank, weir_collective_deregister(b.collective, b.out)) && run(&b, o) &&
        weirt_barrier(rank)) {
        WEIRT_OK(rank, weir_graph_launch(b.comm.device, graph, b.stream));
        WEIRT_OK(rank, weir_stream_wait(b.comm.device, b.stream, 0));
        WEIRT_EXPECT(rank, weir_comm_status(b.comm.comm) < 0);
        WEIRT_TEXT(rank, "on memory that was deregistered");
    }
    weir_graph_destroy(b.comm.device, graph);
    bench_close(&b);
}

// The staging grows, and the operation finds the difference.
void counts_differ(weirt_rank *rank)
{
    Bench b;
    const bool fine = open(rank, 0, &b);
    const Operation o = operation(ALLREDUCE, large(rank) + rank->rank, 1);
    weirt_log_allow("");
    if (fine) {
        expect_mismatch(&b, call(&b, o, places_of(&b, o).send, places_of(&b, o).recv), "it called allreduce of");
    }
    bench_close(&b);
}

// ---- tests -------------------------------------------------------------------------------------------------------

TEST_P(CollectiveGrow, AtTheFirstCallThatNeedsMore)
{
    for (uint32_t ranks : { 2u, 4u }) {
        weirt_ranks_run(stage(), ranks, grows, nullptr, 0);
    }
}

TEST_P(CollectiveGrow, EveryOperationOfAllRanks) { weirt_ranks_run(stage(), 3, every_kind_grows, nullptr, 0); }

TEST_P(CollectiveGrow, FewerColumnsThanBlocks) { weirt_ranks_run(stage(), 2, recorded_by_fewer_columns, nullptr, 0); }

TEST_P(CollectiveGrow, CallsWithExtents) { weirt_ranks_run(stage(), 3, calls_with_extents_grow, nullptr, 0); }

TEST_P(CollectiveGrow, AllreduceByCopies) { weirt_ranks_run(stage(), 2, copies_grow, nullptr, 0); }

TEST_P(CollectiveGrow, FactorsStay) { weirt_ranks_run(stage(), 2, factors_stay, nullptr, 0); }

TEST_P(CollectiveGrow, BehindQueuedKernels) { weirt_ranks_run(stage(), 2, grows_behind_queued_kernels, nullptr, 0); }

TEST_P(CollectiveGrow, SendsBeforeItMeetTheirReceives) { weirt_ranks_run(stage(), 2, sends_before, nullptr, 0); }

// Between processes tsan does not see that the host writes before a kernel reads: the order goes through the other one.
class CollectiveGrowThreads : public StageTest {};
INSTANTIATE_TEST_SUITE_P(Stages, CollectiveGrowThreads, ::testing::Values(0), weirt_stage_name);

TEST_P(CollectiveGrowThreads, WhileAReceiveWaits)
{
    weirt_ranks_run(stage(), 2, grows_while_a_receive_waits, nullptr, 0);
}

TEST_P(CollectiveGrow, BetweenHosts) { weirt_ranks_run(stage(), 4, grows_between_hosts, nullptr, 0); }

TEST_P(CollectiveGrow, NotWhereTheCallerSetsIt)
{
    const uint64_t by_opts = 1 << 20;
    const uint64_t by_environment = 0;
    weirt_ranks_run(stage(), 2, stays, &by_opts, sizeof by_opts);
    weirt_ranks_run(stage(), 1, stays, &by_environment, sizeof by_environment); // one rank has no staging
    setenv("WEIR_STAGING", "1048576", 1);
    weirt_ranks_run(stage(), 2, stays, &by_environment, sizeof by_environment);
    unsetenv("WEIR_STAGING");
}

TEST_P(CollectiveGrow, NotForZeroCopies) { weirt_ranks_run(stage(), 2, zero_copy_needs_none, nullptr, 0); }

TEST_P(CollectiveGrow, OneRankHasNoMemory) { weirt_ranks_run(stage(), 2, one_fails, nullptr, 0); }

// In processes rank 0 would break only its own operations.
class CollectiveGrowNth : public StageTest {};
INSTANTIATE_TEST_SUITE_P(Stages, CollectiveGrowNth, ::testing::Values(0, 2), weirt_stage_name);

TEST_P(CollectiveGrowNth, OperationFails)
{
    for (const bool device : { true, false }) {
        weirt_ranks_run(stage(), 2, nth_fails, &device, sizeof device);
    }
}

TEST_P(CollectiveGrow, OnlyOneRankNeedsMore) { weirt_ranks_run(stage(), 2, one_grows_alone, nullptr, 0); }

TEST_P(CollectiveGrow, Abandoned) { weirt_ranks_run(stage(), 2, abandoned, nullptr, 0); }

TEST_P(CollectiveGrow, Deregistered) { weirt_ranks_run(stage(), 2, deregistered, nullptr, 0); }

TEST_P(CollectiveGrowDeath, OthersEnd) { weirt_ranks_run(stage(), 3, killed, nullptr, 0); }

TEST_P(CollectiveGrow, RanksThatDifferAreNamed) { weirt_ranks_run(stage(), 2, counts_differ, nullptr, 0); }

} // namespace
