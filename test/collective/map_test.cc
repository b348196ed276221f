// Recorded calls map ordinary buffers (opts.map_recorded): data goes directly between them, wherever they lie on each
// rank, and otherwise through the staging.
extern "C" {
#include "src/host/collective/collective.h"
}
#include "test/collective/operations.h"
#include "test/harness/checks.h"
#include "test/harness/cuda_foreign.h"
#include "test/harness/stage_test.h"

namespace {

WEIRT_STAGE_DATA_SUITE(CollectiveMap);
WEIRT_PROCESS_SUITE(CollectiveMapDeath);

constexpr uint64_t count = 5000;
constexpr uint64_t step = 128; // a rank's buffers lie this much further than those of the rank before it

Operation operation(Kind kind, uint64_t seed) { return { kind, WEIR_I32, WEIR_SUM, count, 1, 0, false, false, seed }; }

// On the CPU one block is an SM limit.
bool open(weirt_rank *rank, Bench *b, uint32_t blocks = 4)
{
    weir_collective_opts opts = WEIR_OPTS(weir_collective_opts);
    opts.map_recorded = true;
    opts.staging_bytes = 1 << 20; // never grows: all slots are in one memory
    opts.form = WEIR_FORM_SLOTS;
    opts.blocks = blocks;
    opts.threads = std::strcmp(rank->stage->kind, "cpu") == 0 ? 2 : 128;
    return bench_open(rank, &opts, 4 * count * rank->size + rank->size * step, 0, b);
}

// The buffers of a rank begin `apart` bytes behind those of the rank before it.
Places places(const Bench *b, const Operation &o, uint64_t apart = step)
{
    Places at = places_of(b, o);
    at.send += b->rank->rank * apart;
    at.recv += b->rank->rank * apart;
    return at;
}

uint32_t mappings(const Bench &b) { return b.collective->map.count; }

bool record(const Bench *b, const Operation &o, const Places &at, void **graph)
{
    return WEIRT_OK(b->rank, weir_graph_begin(b->comm.device, b->stream)) &&
           WEIRT_OK(b->rank, call(b, o, at.send, at.recv)) &&
           WEIRT_OK(b->rank, weir_graph_end(b->comm.device, b->stream, graph));
}

// The slots of the staging, which lie at its end.
char *slots_of(const Bench &b)
{
    return static_cast<char *>(weir_memory_pointer(b.collective->memory.local)) + b.collective->device.slots;
}

uint64_t slot_bytes(const Bench &b)
{
    return weir_memory_bytes(b.collective->memory.local) - b.collective->device.slots;
}

bool clear_slots(const Bench &b)
{
    return WEIRT_OK(b.rank, weir_device_fill(b.comm.device, slots_of(b), 0, slot_bytes(b)));
}

// Whether the slots have no data: what goes directly between buffers leaves them as they were.
bool slots_are_unused(const Bench &b)
{
    Bytes slots(slot_bytes(b));
    return WEIRT_OK(b.rank, weir_device_copy(b.comm.device, slots.data(), slots_of(b), slots.size())) &&
           std::all_of(slots.begin(), slots.end(), [](uint8_t byte) { return byte == 0; });
}

// Each operation, out of place and in place, between buffers at other places on each rank. Without an SM limit
// reductions do not go directly, and among three ranks no broadcast does.
void maps_each_kind(weirt_rank *rank)
{
    const Kind kinds[] = { ALLGATHER, rank->size == 2 ? BROADCAST : ALL_TO_ALL, ALL_TO_ALL, ALLREDUCE, REDUCE_SCATTER };
    const bool limits = *static_cast<const bool *>(rank->arg);
    const bool cpu = std::strcmp(rank->stage->kind, "cpu") == 0;
    Bench b;
    bool fine = open(rank, &b, !limits ? 0 : cpu ? 1 : 4);
    const uint32_t limit = fine ? weiri_choice_limit(b.collective) : 0;
    // Ranks may share a GPU. By more than 32 blocks reductions among three ranks do not go directly.
    const bool limited = limits || (limit != 0 && (rank->size == 2 || limit <= 32));
    WEIRT_EXPECT(rank, !fine || !cpu || limited == limits);
    const uint32_t direct = limited ? 5 : 3;
    const uint32_t needed = limited ? 2 : 1; // for memory that receives, and memory that reductions read
    for (uint32_t i = 0; i < 2 * direct && fine; i++) {
        Operation o = operation(kinds[i % direct], 1);
        o.in_place = i >= direct && o.kind != ALL_TO_ALL;
        const Places at = places(&b, o);
        fine = replay(&b, o, at, 3, [&] { return WEIRT_OK(rank, call(&b, o, at.send, at.recv)); });
    }
    WEIRT_EXPECT(rank, !fine || (mappings(b) == needed && slots_are_unused(b)));
    // These go through the slots, but for the allreduce under a limit, and the broadcast between two.
    Operation swap = operation(ALL_TO_ALL, 1);
    swap.in_place = true;
    for (const Operation &o : { swap, operation(REDUCE, 1), operation(BROADCAST, 1), operation(ALLREDUCE, 1) }) {
        const Places at = fine ? places(&b, o) : Places{};
        fine = fine && replay(&b, o, at, 2, [&] { return WEIRT_OK(rank, call(&b, o, at.send, at.recv)); });
    }
    WEIRT_EXPECT(rank, !fine || (mappings(b) == needed && !slots_are_unused(b)));
    bench_close(&b);
}

// An eager call maps nothing, and goes through the slots also where its buffers are mapped.
void eager_calls_map_nothing(weirt_rank *rank)
{
    Bench b;
    const Operation o = operation(ALLGATHER, 1);
    bool fine = open(rank, &b) && run(&b, o) && WEIRT_EXPECT(rank, mappings(b) == 0 && !slots_are_unused(b)) &&
                weirt_barrier(rank) && clear_slots(b) && weirt_barrier(rank);
    const Places at = fine ? places(&b, o) : Places{};
    fine = fine && replay(&b, o, at, 2, [&] { return WEIRT_OK(rank, call(&b, o, at.send, at.recv)); }) &&
           WEIRT_EXPECT(rank, mappings(b) == 1 && slots_are_unused(b)) && run(&b, o);
    WEIRT_EXPECT(rank, !fine || !slots_are_unused(b));
    bench_close(&b);
}

// A new allocation is never taken for a freed one, whatever its address. The freed one stays mapped.
void new_memory_is_mapped_anew(weirt_rank *rank)
{
    Bench b;
    const Operation o = operation(ALLGATHER, 1);
    bool fine = open(rank, &b);
    for (uint32_t i = 1; i <= 3 && fine; i++) {
        const Places at = places(&b, o);
        fine = replay(&b, o, at, 2, [&] { return WEIRT_OK(rank, call(&b, o, at.send, at.recv)); }) &&
               WEIRT_EXPECT(rank, mappings(b) == i);
        const uint64_t bytes = weir_memory_bytes(b.out);
        fine = weirt_barrier(rank) && fine;
        weir_memory_destroy(b.out);
        b.out = nullptr;
        fine = WEIRT_OK(rank, weir_memory_allocate(b.comm.comm, bytes, nullptr, &b.out)) && fine;
    }
    bench_close(&b);
}

// Rank 0 uses one allocation where the others use two, and then the reverse: each set is a mapping.
void sets_of_allocations(weirt_rank *rank)
{
    Bench b;
    void *graphs[4] = {};
    const Operation o = operation(ALLGATHER, 1);
    bool fine = open(rank, &b);
    weir_memory *const both[] = { b.out, b.in };
    for (uint32_t i = 0; i < 4 && fine; i++) {
        b.out = both[rank->rank == 0 ? i & 1 : i >> 1];
        b.in = both[rank->rank == 0 ? (i & 1) ^ 1 : (i >> 1) ^ 1];
        fine = record(&b, o, places(&b, o), &graphs[i]) && WEIRT_EXPECT(rank, mappings(b) == i + 1);
    }
    for (uint32_t i = 0; i < 8 && fine; i++) {
        b.out = both[rank->rank == 0 ? i & 1 : i >> 1 & 1];
        b.in = both[rank->rank == 0 ? (i & 1) ^ 1 : (i >> 1 & 1) ^ 1];
        const Operation data = operation(ALLGATHER, i);
        const Places at = places(&b, data);
        fine = prepare(&b, data, at) && WEIRT_OK(rank, weir_graph_launch(b.comm.device, graphs[i % 4], b.stream)) &&
               finish(&b, data) && check(&b, data, at);
    }
    for (void *graph : graphs) {
        weir_graph_destroy(b.comm.device, graph);
    }
    bench_close(&b);
}

// Buffers at different places of their lines, and memory of unknown allocations on one rank, go through the slots.
void others_are_not_mapped(weirt_rank *rank)
{
    Bench b;
    const Operation o = operation(ALLGATHER, 1);
    bool fine = open(rank, &b);
    const Places at = fine ? places(&b, o, 4) : Places{};
    fine = fine && replay(&b, o, at, 2, [&] { return WEIRT_OK(rank, call(&b, o, at.send, at.recv)); });
    WEIRT_EXPECT(rank, !fine || mappings(b) == 0);
    weir_memory *const out = b.out;
    Bytes unknown(fine ? weir_memory_bytes(out) + step : 0);
    if (fine && std::strcmp(rank->stage->kind, "cpu") == 0) {
        char *line = reinterpret_cast<char *>(unknown.data());
        line += (step - reinterpret_cast<uintptr_t>(line) % step) % step;
        fine = rank->rank != 1 ||
               WEIRT_OK(rank, weir_memory_register(b.comm.comm, line, weir_memory_bytes(out), nullptr, &b.out));
        const Places there = places(&b, o);
        fine = fine && replay(&b, o, there, 2, [&] { return WEIRT_OK(rank, call(&b, o, there.send, there.recv)); });
        WEIRT_EXPECT(rank, !fine || mappings(b) == 0);
    }
    if (b.out != out) {
        weir_memory_destroy(b.out);
        b.out = out;
    }
    bench_close(&b);
}

// Memory of a CUDA program on rank 0: that of cudaMalloc is mapped, once for each allocation, and other memory is not.
void foreign_memory(weirt_rank *rank)
{
    const weirt_foreign_kind kinds[] = { WEIRT_FOREIGN_MALLOC, WEIRT_FOREIGN_MALLOC, WEIRT_FOREIGN_POOL,
                                         WEIRT_FOREIGN_CUMEM };
    const uint32_t expected[] = { 1, 2, 2, 2 };
    Bench b;
    const Operation o = operation(ALLGATHER, 1);
    bool fine = open(rank, &b);
    weir_memory *const out = b.out;
    const uint64_t bytes = fine ? weir_memory_bytes(out) : 0;
    for (uint32_t i = 0; i < 4 && fine; i++) {
        void *pointer = nullptr;
        if (rank->rank == 0) {
            fine = WEIRT_EXPECT(rank, weirt_foreign_open());
            pointer = fine ? weirt_foreign_allocate(kinds[i], bytes) : nullptr;
            fine = WEIRT_EXPECT(rank, pointer != nullptr) &&
                   WEIRT_OK(rank, weir_memory_register(b.comm.comm, pointer, bytes, nullptr, &b.out));
        }
        const Places at = places(&b, o);
        fine = fine && replay(&b, o, at, 2, [&] { return WEIRT_OK(rank, call(&b, o, at.send, at.recv)); });
        WEIRT_EXPECT(rank, !fine || mappings(b) == expected[i]);
        fine = weirt_barrier(rank) && fine;
        if (rank->rank == 0) {
            weir_memory_destroy(b.out);
            b.out = out;
            weirt_foreign_free(kinds[i], pointer, bytes);
            weirt_foreign_close();
        }
    }
    bench_close(&b);
}

// Mappings have a limit, and calls beyond it go through the slots.
void beyond_the_limit(weirt_rank *rank)
{
    Bench b;
    const Operation o = operation(ALLGATHER, 1);
    bool fine = open(rank, &b);
    const uint64_t bytes = fine ? weir_memory_bytes(b.out) : 0;
    weir_memory *all[WEIRI_MAPPINGS_MOST + 2] = {};
    weir_memory *const first = b.out;
    for (uint32_t i = 0; i < WEIRI_MAPPINGS_MOST + 2 && fine; i++) {
        fine = WEIRT_OK(rank, weir_memory_allocate(b.comm.comm, bytes, nullptr, &all[i]));
        b.out = fine ? all[i] : first;
        const Places at = places(&b, o);
        fine = fine && replay(&b, o, at, 1, [&] { return WEIRT_OK(rank, call(&b, o, at.send, at.recv)); }) &&
               WEIRT_EXPECT(rank, mappings(b) == std::min(i + 1, WEIRI_MAPPINGS_MOST));
    }
    for (weir_memory *memory : all) {
        weir_memory_destroy(memory);
    }
    b.out = first;
    bench_close(&b);
}

// Registered memory is not mapped again.
void registered_memory_is_used(weirt_rank *rank)
{
    Bench b;
    const bool gpu = std::strcmp(rank->stage->kind, "gpu") == 0;
    bool fine = open(rank, &b, gpu ? 4 : 1) && WEIRT_OK(rank, weir_collective_register(b.collective, b.out));
    for (const Kind kind : { ALLGATHER, ALLREDUCE }) {
        const Operation o = operation(kind, 1);
        const Places at = fine ? places_of(&b, o) : Places{};
        fine = fine && replay(&b, o, at, 2, [&] { return WEIRT_OK(rank, call(&b, o, at.send, at.recv)); });
        WEIRT_EXPECT(rank, !fine || mappings(b) == (kind == ALLREDUCE ? 1 : 0)); // of the memory that is read
    }
    bench_close(&b);
}

// Ranks that record different calls get the same error at once.
void different_calls(weirt_rank *rank)
{
    Bench b;
    void *graph = nullptr;
    Operation o = operation(ALLGATHER, 1);
    bool fine = open(rank, &b);
    const Places at = fine ? places(&b, o) : Places{};
    o.count -= rank->rank;
    fine = fine && WEIRT_OK(rank, weir_graph_begin(b.comm.device, b.stream));
    WEIRT_STATUS(rank, WEIR_ERR_MISMATCH, fine ? call(&b, o, at.send, at.recv) : WEIR_ERR_MISMATCH);
    WEIRT_TEXT(rank, "weir_allgather: rank 1 is the first that differs: it called allgather of 4999 i32; rank 0 called "
                     "allgather of 5000 i32");
    (void)(fine && WEIRT_OK(rank, weir_graph_end(b.comm.device, b.stream, &graph)));
    weir_graph_destroy(b.comm.device, graph);
    o.count = count;
    (void)(fine && replay(&b, o, at, 2, [&] { return WEIRT_OK(rank, call(&b, o, at.send, at.recv)); }));
    bench_close(&b);
}

// After an unmap memory is mapped anew, and the older graph ends in an error. While a stream records, nothing changes.
void unmapped(weirt_rank *rank)
{
    Bench b;
    void *graph = nullptr;
    const Operation o = operation(ALLGATHER, 1);
    bool fine = open(rank, &b) && record(&b, o, places(&b, o), &graph);
    const Places at = fine ? places(&b, o) : Places{};
    fine = fine && replay(&b, o, at, 2, [&] {
               WEIRT_STATUS(rank, WEIR_ERR_BUSY, weir_collective_unmap(b.collective));
               WEIRT_TEXT(rank, "weir_collective_unmap: a stream of the collective's operations records a graph");
               return WEIRT_OK(rank, call(&b, o, at.send, at.recv)) && WEIRT_EXPECT(rank, mappings(b) == 1);
           });
    fine = fine && WEIRT_OK(rank, weir_collective_unmap(b.collective)) && WEIRT_EXPECT(rank, mappings(b) == 0);
    fine = fine && WEIRT_OK(rank, weir_collective_unmap(b.collective)); // there is nothing left
    const uint64_t bytes = fine ? weir_memory_bytes(b.out) : 0;
    weir_memory_destroy(b.out);
    b.out = nullptr;
    fine = fine && WEIRT_OK(rank, weir_memory_allocate(b.comm.comm, bytes, nullptr, &b.out));
    const Places now = fine ? places(&b, o) : Places{};
    fine = fine && replay(&b, o, now, 2, [&] { return WEIRT_OK(rank, call(&b, o, now.send, now.recv)); }) &&
           WEIRT_EXPECT(rank, mappings(b) == 1) && weirt_barrier(rank);
    if (fine) {
        WEIRT_OK(rank, weir_graph_launch(b.comm.device, graph, b.stream));
        WEIRT_OK(rank, weir_stream_wait(b.comm.device, b.stream, 0));
        WEIRT_EXPECT(rank, weir_comm_status(b.comm.comm) < 0);
        WEIRT_TEXT(rank, "on memory that was deregistered or unmapped");
    }
    weir_graph_destroy(b.comm.device, graph);
    bench_close(&b);
}

// Rank 1 takes a larger allocation for one that is mapped. All ranks refuse a buffer that ends, or begins, behind the
// mapped one.
void beyond_an_allocation(weirt_rank *rank)
{
    Bench b;
    void *graph = nullptr;
    weir_memory *larger = nullptr;
    weiri_allocation found = {};
    const Operation o = operation(ALLGATHER, 1);
    bool fine = open(rank, &b) && record(&b, o, places(&b, o), &graph);
    const uint64_t bytes = fine ? weir_memory_bytes(b.out) : 0;
    if (fine && rank->rank == 1) {
        fine = WEIRT_OK(rank, weir_memory_allocate(b.comm.comm, 3 * bytes, nullptr, &larger)) &&
               WEIRT_EXPECT(rank, weiri_device_identify(b.comm.device, weir_memory_pointer(larger), &found));
        b.collective->map.at[0].id = found.id;
    }
    weir_graph_destroy(b.comm.device, graph);
    for (const uint64_t behind : { bytes / 2, bytes }) {
        Places at = fine ? places(&b, o) : Places{};
        graph = nullptr;
        if (fine && rank->rank == 1) {
            at.recv += static_cast<char *>(weir_memory_pointer(larger)) + behind / step * step -
                       static_cast<char *>(weir_memory_pointer(b.out));
        }
        if (fine && WEIRT_OK(rank, weir_graph_begin(b.comm.device, b.stream))) {
            WEIRT_STATUS(rank, WEIR_ERR_CORRUPT, call(&b, o, at.send, at.recv));
            WEIRT_TEXT(rank, "weir_allgather: rank 1 gave ");
            WEIRT_OK(rank, weir_graph_end(b.comm.device, b.stream, &graph));
        }
        weir_graph_destroy(b.comm.device, graph);
    }
    weir_memory_destroy(larger);
    bench_close(&b);
}

void only_one_maps(weirt_rank *rank)
{
    weirt_comm comm;
    weir_collective *collective = nullptr;
    weir_collective_opts opts = WEIR_OPTS(weir_collective_opts);
    opts.map_recorded = rank->rank == 1;
    if (weirt_comm_open(rank, 0, &comm)) {
        WEIRT_STATUS(rank, WEIR_ERR_MISMATCH, weir_collective_create(comm.comm, &opts, &collective));
        WEIRT_TEXT(rank, "was given other opts");
    }
    (void)weirt_barrier(rank);
    weirt_comm_close(&comm);
}

// The n-th operation of rank 1's device fails while it registers or maps. The call goes through the slots on all ranks,
// and later calls do not try again.
void one_rank_fails(weirt_rank *rank)
{
    const Operation o = operation(ALLGATHER, 1);
    weirt_log_allow(""); // the log says what failed
    for (uint32_t n = 2; n <= 3; n++) {
        Bench b;
        bool fine = open(rank, &b);
        const Places at = fine ? places(&b, o) : Places{};
        for (uint32_t calls = 0; calls < 2 && fine; calls++) {
            fine = replay(&b, o, at, 2, [&] {
                (void)(rank->rank == 1 && calls == 0 && weirt_fail_device(n) != 0);
                const weir_status status = call(&b, o, at.send, at.recv);
                WEIRT_EXPECT(rank, weirt_fail_device(0) == 0);
                return WEIRT_OK(rank, status);
            });
            WEIRT_EXPECT(rank, !fine || (mappings(b) == 1 && b.collective->map.at[0].failed));
        }
        WEIRT_EXPECT(rank, !fine || !slots_are_unused(b));
        bench_close(&b);
    }
}

void killed(weirt_rank *rank)
{
    Bench b;
    const Operation o = operation(ALLGATHER, 1);
    if (open(rank, &b) && run(&b, o) && WEIRT_OK(rank, weir_graph_begin(b.comm.device, b.stream)) &&
        weirt_barrier(rank)) {
        if (rank->rank == 2) {
            weirt_die(rank, WEIRT_KILL);
        }
        const Places at = places(&b, o);
        void *graph = nullptr;
        WEIRT_STATUS(rank, WEIR_ERR_REMOTE, call(&b, o, at.send, at.recv));
        WEIRT_TEXT(rank, "rank 2");
        WEIRT_OK(rank, weir_graph_end(b.comm.device, b.stream, &graph));
        weir_graph_destroy(b.comm.device, graph);
    }
    bench_leave(&b);
}

// A graph with mapped buffers ends in an error once the collective is abandoned.
void abandoned(weirt_rank *rank)
{
    Bench b;
    void *graph = nullptr;
    const Operation o = operation(ALLGATHER, 1);
    bool fine = open(rank, &b) && record(&b, o, places(&b, o), &graph) && weirt_barrier(rank);
    weir_collective_abandon(b.collective);
    b.collective = nullptr;
    if (fine && weirt_barrier(rank)) {
        WEIRT_OK(rank, weir_graph_launch(b.comm.device, graph, b.stream));
        WEIRT_OK(rank, weir_stream_wait(b.comm.device, b.stream, 0));
        WEIRT_EXPECT(rank, weir_comm_status(b.comm.comm) < 0);
        WEIRT_TEXT(rank, "whose collective was abandoned");
    }
    weir_graph_destroy(b.comm.device, graph);
    bench_close(&b);
}

TEST_P(CollectiveMap, EachKind)
{
    for (const uint32_t ranks : { 2, 3 }) {
        for (const bool limited : { true, false }) {
            weirt_ranks_run(stage(), ranks, maps_each_kind, &limited, sizeof limited);
        }
    }
}

TEST_P(CollectiveMap, EagerCallsMapNothing) { weirt_ranks_run(stage(), 2, eager_calls_map_nothing, nullptr, 0); }

TEST_P(CollectiveMap, NewMemoryIsMappedAnew) { weirt_ranks_run(stage(), 2, new_memory_is_mapped_anew, nullptr, 0); }

TEST_P(CollectiveMap, SetsOfAllocations) { weirt_ranks_run(stage(), 2, sets_of_allocations, nullptr, 0); }

TEST_P(CollectiveMap, OthersAreNotMapped) { weirt_ranks_run(stage(), 2, others_are_not_mapped, nullptr, 0); }

TEST_P(CollectiveMap, BeyondTheLimit) { weirt_ranks_run(stage(), 2, beyond_the_limit, nullptr, 0); }

TEST_P(CollectiveMap, RegisteredMemoryIsUsed) { weirt_ranks_run(stage(), 2, registered_memory_is_used, nullptr, 0); }

TEST_P(CollectiveMap, DifferentCalls) { weirt_ranks_run(stage(), 3, different_calls, nullptr, 0); }

TEST_P(CollectiveMap, Unmapped) { weirt_ranks_run(stage(), 2, unmapped, nullptr, 0); }

TEST_P(CollectiveMap, OffsetsAreChecked) { weirt_ranks_run(stage(), 2, beyond_an_allocation, nullptr, 0); }

TEST_P(CollectiveMap, AllRanksMustAskForIt) { weirt_ranks_run(stage(), 2, only_one_maps, nullptr, 0); }

// In threads the fault would hit any rank.
class CollectiveMapProcesses : public StageTest {};
INSTANTIATE_TEST_SUITE_P(Stages, CollectiveMapProcesses, ::testing::Values(1, 3), weirt_stage_name);

TEST_P(CollectiveMapProcesses, OneRankFails) { weirt_ranks_run(stage(), 2, one_rank_fails, nullptr, 0); }

TEST_P(CollectiveMap, Abandoned) { weirt_ranks_run(stage(), 2, abandoned, nullptr, 0); }

class CollectiveMapGpu : public StageTest {};
INSTANTIATE_TEST_SUITE_P(Stages, CollectiveMapGpu, ::testing::Values(2, 3), weirt_stage_name);

TEST_P(CollectiveMapGpu, MemoryOfCuda) { weirt_ranks_run(stage(), 2, foreign_memory, nullptr, 0); }

TEST_P(CollectiveMapDeath, KilledWhileOthersRecord) { weirt_ranks_run(stage(), 3, killed, nullptr, 0); }

} // namespace
