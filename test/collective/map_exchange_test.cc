// Recorded exchanges map the ordinary buffers of receives (opts.map_recorded): long transfers go directly into them.
extern "C" {
#include "src/host/base/wire.h"
#include "src/host/collective/collective.h"
#include "src/host/comm/exchange.h"
}
#include "test/collective/transfers.h"
#include "test/harness/checks.h"
#include "test/harness/stage_test.h"

namespace {

WEIRT_STAGE_DATA_SUITE(MapExchange);
WEIRT_PROCESS_SUITE(MapExchangeDeath);

constexpr uint64_t room = 1 << 20;
constexpr uint64_t most = 60000;

// Of four blocks, a transfer of `most` bytes is too long for lines. Lines could carry one of `medium` bytes, but its
// ends agree on another way. One of 200 bytes goes as lines.
constexpr uint64_t medium = 5000;

bool open(weirt_rank *rank, Bench *b, uint64_t staging = 128 << 10, uint32_t host_ranks = 0)
{
    weir_collective_opts opts = WEIR_OPTS(weir_collective_opts);
    opts.map_recorded = true;
    opts.staging_bytes = staging; // never grows: all slots are in one memory
    opts.host_ranks = host_ranks;
    opts.blocks = 4;
    opts.threads = std::strcmp(rank->stage->kind, "cpu") == 0 ? 1 : 128;
    return bench_open(rank, &opts, room, 0, b);
}

// Launches the graph of the list with new data, and compares what has come.
bool replay(const Bench *b, List *list, void *graph)
{
    for (Transfer &t : list->meant) {
        t.id += 1000;
    }
    return prepare_list(b, *list) && WEIRT_OK(b->rank, weir_graph_launch(b->comm.device, graph, b->stream)) &&
           ends_well(b, *list);
}

// Records the transfers, and replays them.
bool record_and_replay(const Bench *b, const Transfers &all, uint64_t seed)
{
    List list = list_of(b, all, seed);
    void *graph = nullptr;
    bool fine = record_exchange(b, list.transfers, &graph);
    for (uint32_t round = 0; round < 3 && fine; round++) {
        fine = replay(b, &list, graph);
    }
    weir_graph_destroy(b->comm.device, graph);
    return fine;
}

uint32_t mapped(const Bench &b) { return b.collective->map.receive_count; }

// Whether this rank has mapped a memory of rank k.
bool has_mapped(const Bench &b, uint32_t k) { return b.collective->map.receives[0].memory.remote[k] != nullptr; }

// The message slots of the first memory: their heads have calls, and what is behind them has data.
bool visit_slots(const Bench &b, bool clear)
{
    const weir_dev_collective &c = b.collective->device;
    bool unused = true;
    for (uint64_t slot = 0; slot < weiri_slots_number(&c); slot++) {
        char *data = c.memory[c.rank] + c.messages + slot * c.message_bytes + WEIR_RING_HEAD;
        Bytes bytes(c.message_bytes - WEIR_RING_HEAD);
        if (clear) {
            unused = WEIRT_OK(b.rank, weir_device_fill(b.comm.device, data, 0, bytes.size())) && unused;
        } else {
            unused = WEIRT_OK(b.rank, weir_device_copy(b.comm.device, bytes.data(), data, bytes.size())) && unused &&
                     std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte == 0; });
        }
    }
    return unused;
}

bool clear_slots(const Bench &b) { return visit_slots(b, true) && weirt_barrier(b.rank); }
bool slots_are_unused(const Bench &b) { return weirt_barrier(b.rank) && visit_slots(b, false); }

const Transfers ring_of_two = { { 0, 1, most, WEIR_U8, 1 }, { 1, 0, most, WEIR_U8, 2 } };

// Rank 0 sends to rank 1, which sends to the last rank: only receivers have mappings, and only senders map them.
void goes_directly(weirt_rank *rank)
{
    Bench b;
    const uint64_t bytes = *static_cast<const uint64_t *>(rank->arg);
    const uint32_t last = rank->size - 1;
    const Transfers all = { { 0, 1, bytes, WEIR_U8, 1 }, { 1, last == 1 ? 0 : last, bytes / 8, WEIR_F64, 2 } };
    const uint32_t to = all[1].to;
    bool fine = open(rank, &b) && clear_slots(b) && record_and_replay(&b, all, 1);
    WEIRT_EXPECT(rank, !fine || slots_are_unused(b));
    WEIRT_EXPECT(rank, !fine || mapped(b) == (rank->rank == 1 || rank->rank == to ? 1u : 0u));
    for (uint32_t k = 0; k < rank->size && fine; k++) {
        const bool sends = (rank->rank == 0 && k == 1) || (rank->rank == 1 && k == to);
        WEIRT_EXPECT(rank, has_mapped(b, k) == sends);
    }
    // A short one goes as lines, and waits for nobody on the host: rank 0 records it before the others begin.
    const Transfers brief = { { 0, 1, 200, WEIR_U8, 3 } };
    List list = fine ? list_of(&b, brief, 1) : List();
    void *graph = nullptr;
    fine = fine && (rank->rank != 0 || record_exchange(&b, list.transfers, &graph)) && weirt_barrier(rank) &&
           (rank->rank == 0 || record_exchange(&b, list.transfers, &graph)) && replay(&b, &list, graph);
    WEIRT_EXPECT(rank, !fine || slots_are_unused(b) == (rank->rank != 1));
    weir_graph_destroy(b.comm.device, graph);
    bench_close(&b);
}

// An eager exchange maps nothing, and goes through the slots also where its buffers are mapped.
void eager_ones_map_nothing(weirt_rank *rank)
{
    Bench b;
    bool alive = true;
    bool fine = open(rank, &b) && WEIRT_EXPECT(rank, run_list(&b, ring_of_two, 1, &alive).empty()) &&
                WEIRT_EXPECT(rank, mapped(b) == 0) && record_and_replay(&b, ring_of_two, 1) && clear_slots(b) &&
                WEIRT_EXPECT(rank, run_list(&b, ring_of_two, 1, &alive).empty());
    WEIRT_EXPECT(rank, !fine || (mapped(b) == 1 && !slots_are_unused(b)));
    bench_close(&b);
}

// Random transfers, recorded and eager by turns. Long slots have a part for lines and another one.
void random_ones(weirt_rank *rank)
{
    Bench b;
    const bool slots_are_long = *static_cast<const bool *>(rank->arg);
    bool fine = open(rank, &b, slots_are_long ? 6 << 20 : 128 << 10);
    for (uint64_t seed = 1; seed <= 6 && fine; seed++) {
        bool alive = true;
        const Transfers all =
            seed % 2 != 0 ? random_transfers(seed, rank->size, 12, 8000) : transfers_to_others(seed, rank->size, 8000);
        fine = record_and_replay(&b, all, seed) && WEIRT_EXPECT(rank, run_list(&b, all, seed, &alive).empty());
    }
    bench_close(&b);
}

// One call of rank 0 meets two calls of rank 1.
void calls_divide(weirt_rank *rank)
{
    Bench b;
    void *graph = nullptr;
    const Transfers all = { { 0, 1, most, WEIR_U8, 1 }, { 0, 1, most - 1, WEIR_U8, 2 }, { 1, 0, most, WEIR_U8, 3 } };
    bool fine = open(rank, &b) && clear_slots(b);
    List list = fine ? list_of(&b, all, 1) : List();
    if (rank->rank == 0) {
        fine = fine && record_exchange(&b, list.transfers, &graph);
    } else {
        fine = fine && WEIRT_OK(rank, weir_graph_begin(b.comm.device, b.stream));
        std::vector<weir_transfer> rest;
        for (const weir_transfer &t : list.transfers) {
            if (rest.empty() && t.receive) {
                rest.push_back(t);
            }
        }
        for (const weir_transfer &t : list.transfers) {
            if (t.buffer != rest[0].buffer) {
                rest.push_back(t);
            }
        }
        fine = fine && WEIRT_OK(rank, weir_exchange(b.collective, rest.data(), 1, b.stream)) &&
               WEIRT_OK(rank, weir_exchange(b.collective, rest.data() + 1, 2, b.stream)) &&
               WEIRT_OK(rank, weir_graph_end(b.comm.device, b.stream, &graph));
    }
    fine = fine && replay(&b, &list, graph) && replay(&b, &list, graph);
    WEIRT_EXPECT(rank, !fine || (slots_are_unused(b) && mapped(b) == 1));
    weir_graph_destroy(b.comm.device, graph);
    bench_close(&b);
}

// Rank 0 sends 60,000 bytes into each of `into`, which rank 1 has, in one recorded call. The data is right.
bool sends_into(const Bench *b, const std::vector<weir_memory *> &into)
{
    weirt_rank *rank = b->rank;
    void *graph = nullptr;
    std::vector<weir_transfer> all;
    const Bytes data = data_of({ 0, 1, most + 8 * into.size(), WEIR_U8, 7 });
    for (uint64_t i = 0; i < into.size(); i++) {
        char *in = static_cast<char *>(weir_memory_pointer(b->in)) + 8 * i;
        all.push_back(
            { rank->rank == 0 ? in : weir_memory_pointer(into[i]), most, WEIR_U8, 1 - rank->rank, rank->rank == 1 });
    }
    bool fine =
        WEIRT_OK(rank, weir_device_copy(b->comm.device, weir_memory_pointer(b->in), data.data(), data.size())) &&
        record_exchange(b, all, &graph) && WEIRT_OK(rank, weir_graph_launch(b->comm.device, graph, b->stream)) &&
        WEIRT_OK(rank, weir_stream_wait(b->comm.device, b->stream, weirt_timeout_ms())) &&
        WEIRT_OK(rank, weir_comm_status(b->comm.comm));
    for (uint64_t i = 0; i < into.size() && fine && rank->rank == 1; i++) {
        Bytes have(most);
        fine = WEIRT_OK(rank, weir_device_copy(b->comm.device, have.data(), all[i].buffer, most)) &&
               WEIRT_EXPECT(rank, std::equal(have.begin(), have.end(), data.begin() + 8 * i));
    }
    weir_graph_destroy(b->comm.device, graph);
    return fine;
}

// Rank 1 receives into `n` allocations, of which the first ones are registered.
void many_allocations(weirt_rank *rank, uint32_t n, uint32_t registered, uint32_t expected)
{
    Bench b;
    std::vector<weir_memory *> memories(n);
    bool fine = open(rank, &b);
    for (uint32_t i = 0; i < n && fine; i++) {
        fine = WEIRT_OK(rank, weir_memory_allocate(b.comm.comm, most, nullptr, &memories[i])) &&
               (i >= registered || WEIRT_OK(rank, weir_collective_register(b.collective, memories[i])));
    }
    fine = fine && sends_into(&b, memories);
    WEIRT_EXPECT(rank, !fine || mapped(b) == (rank->rank == 1 ? expected : 0));
    (void)weirt_barrier(rank);
    for (weir_memory *memory : memories) {
        weir_memory_destroy(memory);
    }
    bench_close(&b);
}

// A launch names eight memories; the others go through the slots. There are 64 mappings.
void ten_allocations(weirt_rank *rank) { many_allocations(rank, 10, 0, 10); }
void beyond_the_limit(weirt_rank *rank) { many_allocations(rank, WEIRI_MAPPINGS_MOST + 2, 0, WEIRI_MAPPINGS_MOST); }

// One registered memory, or two, beside ordinary ones in a launch.
void beside_registered_memory(weirt_rank *rank)
{
    many_allocations(rank, 3, 1, 2);
    many_allocations(rank, 3, 2, 1);
}

// Rank 0 records sends, and rank 1 receives, in calls of weir_send and weir_recv.
void send_and_recv(weirt_rank *rank)
{
    Bench b;
    void *graph = nullptr;
    const Transfers all = { { 0, 1, most, WEIR_U8, 1 }, { 0, 1, medium, WEIR_U8, 2 }, { 0, 1, 200, WEIR_U8, 3 } };
    bool fine = open(rank, &b) && clear_slots(b);
    List list = fine ? list_of(&b, all, 1) : List();
    fine = fine && WEIRT_OK(rank, weir_graph_begin(b.comm.device, b.stream));
    for (const weir_transfer &t : list.transfers) {
        fine =
            fine && WEIRT_OK(rank, rank->rank == 0 ? weir_send(b.collective, t.buffer, t.count, t.dtype, 1, b.stream)
                                                   : weir_recv(b.collective, t.buffer, t.count, t.dtype, 0, b.stream));
    }
    fine = fine && WEIRT_OK(rank, weir_graph_end(b.comm.device, b.stream, &graph)) && replay(&b, &list, graph);
    WEIRT_EXPECT(rank, !fine || mapped(b) == rank->rank);
    weir_graph_destroy(b.comm.device, graph);
    bench_close(&b);
}

// Between hosts nothing is mapped.
void several_hosts(weirt_rank *rank)
{
    Bench b;
    bool fine = open(rank, &b, 1 << 20, 1) && record_and_replay(&b, ring_of_two, 1);
    WEIRT_EXPECT(rank, !fine || mapped(b) == 0);
    bench_close(&b);
}

// Rank 1 receives into memory of an unknown allocation, and into registered memory.
void others_are_not_mapped(weirt_rank *rank)
{
    Bench b;
    bool fine = open(rank, &b);
    weir_memory *const out = b.out;
    Bytes unknown(fine ? room : 0);
    if (fine && rank->rank == 1 && std::strcmp(rank->stage->kind, "cpu") == 0) {
        fine = WEIRT_OK(rank, weir_memory_register(b.comm.comm, unknown.data() + 64, room - 64, nullptr, &b.out));
        fine = fine && record_and_replay(&b, { { 0, 1, most, WEIR_U8, 1 } }, 1) && WEIRT_EXPECT(rank, mapped(b) == 0);
        weir_memory_destroy(b.out);
        b.out = out;
    } else if (fine && std::strcmp(rank->stage->kind, "cpu") == 0) {
        fine = record_and_replay(&b, { { 0, 1, most, WEIR_U8, 1 } }, 1);
        WEIRT_EXPECT(rank, !fine || !has_mapped(b, 1));
    }
    fine = fine && WEIRT_OK(rank, weir_collective_register(b.collective, b.out)) && clear_slots(b) &&
           record_and_replay(&b, ring_of_two, 1);
    WEIRT_EXPECT(rank, !fine || (mapped(b) == 0 && slots_are_unused(b)));
    bench_close(&b);
}

// Ends that differ are found while they record.
void different_counts(weirt_rank *rank)
{
    Bench b;
    void *graph = nullptr;
    weirt_log_allow("");
    if (open(rank, &b) && WEIRT_OK(rank, weir_graph_begin(b.comm.device, b.stream))) {
        char *in = static_cast<char *>(weir_memory_pointer(b.in));
        const bool receives = rank->rank == 1;
        const weir_transfer both[] = { { in, 8, WEIR_U8, 1 - rank->rank, receives },
                                       { in + 64, most - rank->rank, WEIR_U8, 1 - rank->rank, receives } };
        const weir_status status = weir_exchange(b.collective, both, 2, b.stream);
        WEIRT_EXPECT(rank, status == WEIR_ERR_MISMATCH || status == WEIR_ERR_ABORTED);
        // One rank finds it, and the other gets its text.
        const std::string text = weir_last_error();
        WEIRT_EXPECT(rank, text.find("receive 1 from rank 0 is of 59999 u8, but send 1 of") != std::string::npos ||
                               text.find("send 1 to rank 1 is of 60000 u8, but receive 1 of") != std::string::npos);
        WEIRT_OK(rank, weir_graph_end(b.comm.device, b.stream, &graph));
        weir_graph_destroy(b.comm.device, graph);
    }
    bench_close(&b);
}

// After an unmap buffers are mapped anew. The older graph of the receiver ends in an error.
void unmapped(weirt_rank *rank)
{
    Bench b;
    void *graph = nullptr;
    const Transfers all = { { 0, 1, most, WEIR_U8, 1 } }; // a third rank has no part
    bool fine = open(rank, &b);
    List list = fine ? list_of(&b, all, 1) : List();
    fine = fine && record_exchange(&b, list.transfers, &graph) && replay(&b, &list, graph) &&
           WEIRT_OK(rank, weir_collective_unmap(b.collective)) && WEIRT_EXPECT(rank, mapped(b) == 0) &&
           WEIRT_EXPECT(rank, !has_mapped(b, rank->rank == 1 ? 0 : 1)) && clear_slots(b) &&
           record_and_replay(&b, all, 1);
    WEIRT_EXPECT(rank, !fine || (mapped(b) == (rank->rank == 1 ? 1u : 0u) && slots_are_unused(b)));
    if (fine) {
        weirt_log_allow("");
        (void)prepare_list(&b, list);
        WEIRT_OK(rank, weir_graph_launch(b.comm.device, graph, b.stream));
        WEIRT_OK(rank, weir_stream_wait(b.comm.device, b.stream, weirt_timeout_ms()));
        if (rank->rank < 2) { // the third rank may not know yet
            WEIRT_STATUS(rank, rank->rank == 1 ? WEIR_ERR_INVALID : WEIR_ERR_ABORTED, weir_comm_status(b.comm.comm));
            WEIRT_TEXT(rank, "on memory that was deregistered or unmapped");
        }
    }
    weir_graph_destroy(b.comm.device, graph);
    bench_close(&b);
}

// The n-th operation of one rank's device fails while it records: rank 1's when it registers the buffer, or rank 0's
// when it maps it. The data goes through the slots, and a later call does not try again.
void one_rank_fails(weirt_rank *rank)
{
    weirt_log_allow(""); // the log says what failed
    for (uint32_t k = 0; k < 8; k++) {
        const Transfers all = { { 0, 1, k < 4 ? most : medium, WEIR_U8, 1 } };
        const uint32_t failing = k % 2;
        Bench b;
        void *graph = nullptr;
        bool fine = open(rank, &b) && clear_slots(b);
        List list = fine ? list_of(&b, all, 1) : List();
        fine = fine && WEIRT_OK(rank, weir_graph_begin(b.comm.device, b.stream));
        (void)(fine && rank->rank == failing && weirt_fail_device(2 + k / 2 % 2) != 0);
        for (uint32_t calls = 0; calls < 2 && fine; calls++) {
            fine = WEIRT_OK(rank, weir_exchange(b.collective, list.transfers.data(), 1, b.stream)) &&
                   WEIRT_EXPECT(rank, weirt_fail_device(0) == 0);
        }
        fine = WEIRT_OK(rank, weir_graph_end(b.comm.device, b.stream, &graph)) && fine && replay(&b, &list, graph);
        WEIRT_EXPECT(rank, !fine || (!has_mapped(b, 1) && !slots_are_unused(b) == (rank->rank == 1)));
        weir_graph_destroy(b.comm.device, graph);
        bench_close(&b);
    }
}

// The n-th allocation of one rank fails while it records. No rank waits for its deadline, and a call that both have
// recorded moves the data.
void nth_allocation_fails(weirt_rank *rank)
{
    const Transfers all = { { 0, 1, most, WEIR_U8, 1 } };
    weirt_log_allow("");
    uint32_t step = 0;
    for (uint32_t failing = 0; failing < 2; failing++) {
        bool failed = true;
        for (uint64_t n = 1; failed; n++) {
            Bench b;
            void *graph = nullptr;
            bool fine = open(rank, &b);
            List list = fine ? list_of(&b, all, 1) : List();
            fine = fine && WEIRT_OK(rank, weir_graph_begin(b.comm.device, b.stream)) && weirt_barrier(rank);
            const uint64_t since = weirt_now_ms();
            (void)(rank->rank == failing && weirt_fail_allocation(n));
            fine = fine && weir_exchange(b.collective, list.transfers.data(), 1, b.stream) == WEIR_OK;
            const bool left = rank->rank != failing || weirt_fail_allocation(0) != 0;
            WEIRT_EXPECT(rank, weirt_now_ms() - since < 10000 * static_cast<uint64_t>(weirt_slow()));
            WEIRT_EXPECT(rank, fine || *weir_last_error() != '\0');
            const weir_status ended = weir_graph_end(b.comm.device, b.stream, &graph);
            WEIRT_EXPECT(rank, !fine || ended == WEIR_OK);
            const bool both = all_fine(rank, &step, fine);
            WEIRT_EXPECT(rank, !both || replay(&b, &list, graph));
            failed = !all_fine(rank, &step, left);
            weir_graph_destroy(b.comm.device, graph);
            bench_close(&b);
        }
    }
}

// Rank 1 sends a handle for a row that is not one of mappings, or has a memory. Rank 0 refuses it.
void malformed(weirt_rank *rank)
{
    const uint32_t rows[] = { 0, 1, WEIRI_REGISTERED_MOST, WEIRI_ROWS + 1, UINT16_MAX, WEIRI_REGISTERED_MOST + 1 };
    weirt_log_allow("");
    for (const uint32_t row : rows) {
        Bench b;
        void *graph = nullptr;
        const Transfers all = { { 0, 1, most, WEIR_U8, 1 } };
        bool fine = open(rank, &b) && (row != WEIRI_REGISTERED_MOST + 1 || record_and_replay(&b, all, 1));
        fine = weirt_barrier(rank) && fine && WEIRT_OK(rank, weir_graph_begin(b.comm.device, b.stream));
        if (fine && rank->rank == 1) {
            uint8_t payload[64];
            weiri_writer w = weiri_writer_init(payload, sizeof payload);
            weiri_write_u8(&w, 1);
            weiri_write_u8(&w, 1);
            weiri_write_u32(&w, 1);
            weiri_write_u32(&w, 0);
            weiri_write_u64(&w, most);
            weiri_write_u8(&w, WEIR_U8);
            weiri_write_u64(&w, 0);
            weiri_write_u16(&w, static_cast<uint16_t>(row));
            const weiri_op_message message = { WEIRI_OP_TRANSFERS, payload, w.size, { b.out, nullptr }, 1 };
            WEIRT_OK(rank, weiri_exchange_send(b.comm.comm, 0, weiri_collective_tag(b.collective, WEIRI_TAG_TRANSFERS),
                                               &message));
        } else if (fine) {
            const List list = list_of(&b, all, 1);
            WEIRT_STATUS(rank, WEIR_ERR_CORRUPT, weir_exchange(b.collective, list.transfers.data(), 1, b.stream));
            WEIRT_TEXT(rank, "malformed mapping of rank 1");
        }
        (void)weirt_barrier(rank);
        (void)(fine && WEIRT_OK(rank, weir_graph_end(b.comm.device, b.stream, &graph)));
        weir_graph_destroy(b.comm.device, graph);
        bench_close(&b);
    }
}

// Rank 1 dies before it records.
void killed(weirt_rank *rank)
{
    Bench b;
    if (open(rank, &b) && WEIRT_OK(rank, weir_graph_begin(b.comm.device, b.stream)) && weirt_barrier(rank)) {
        if (rank->rank == 1) {
            weirt_die(rank, WEIRT_KILL);
        }
        const List list = list_of(&b, { { 0, 1, most, WEIR_U8, 1 }, { 1, 2, most, WEIR_U8, 2 } }, 1);
        void *graph = nullptr;
        WEIRT_STATUS(rank, WEIR_ERR_REMOTE, weir_exchange(b.collective, list.transfers.data(), 1, b.stream));
        WEIRT_TEXT(rank, "rank 1");
        WEIRT_OK(rank, weir_graph_end(b.comm.device, b.stream, &graph));
        weir_graph_destroy(b.comm.device, graph);
    }
    bench_leave(&b);
}

TEST_P(MapExchange, GoesDirectly)
{
    for (const uint32_t ranks : { 2, 3 }) {
        for (const uint64_t bytes : { most, medium }) {
            weirt_ranks_run(stage(), ranks, goes_directly, &bytes, sizeof bytes);
        }
    }
}

TEST_P(MapExchange, EagerOnesMapNothing) { weirt_ranks_run(stage(), 2, eager_ones_map_nothing, nullptr, 0); }

TEST_P(MapExchange, RandomTransfers)
{
    for (const uint32_t ranks : { 2, 4 }) {
        for (const bool slots_are_long : { false, true }) {
            weirt_ranks_run(stage(), ranks, random_ones, &slots_are_long, sizeof slots_are_long);
        }
    }
}

TEST_P(MapExchange, SendAndRecv) { weirt_ranks_run(stage(), 2, send_and_recv, nullptr, 0); }

TEST_P(MapExchange, BesideRegisteredMemory) { weirt_ranks_run(stage(), 2, beside_registered_memory, nullptr, 0); }

TEST_P(MapExchange, SeveralHosts) { weirt_ranks_run(stage(), 2, several_hosts, nullptr, 0); }

TEST_P(MapExchange, CallsDivideTransfersInOtherWays) { weirt_ranks_run(stage(), 2, calls_divide, nullptr, 0); }

TEST_P(MapExchange, ReceivesOfALaunchInManyAllocations) { weirt_ranks_run(stage(), 2, ten_allocations, nullptr, 0); }

TEST_P(MapExchange, BeyondTheLimit) { weirt_ranks_run(stage(), 2, beyond_the_limit, nullptr, 0); }

TEST_P(MapExchange, OtherMemoryIsNotMapped) { weirt_ranks_run(stage(), 2, others_are_not_mapped, nullptr, 0); }

TEST_P(MapExchange, DifferentCountsAreNamed) { weirt_ranks_run(stage(), 2, different_counts, nullptr, 0); }

TEST_P(MapExchange, Unmapped)
{
    for (const uint32_t ranks : { 2, 3 }) {
        weirt_ranks_run(stage(), ranks, unmapped, nullptr, 0);
    }
}

TEST_P(MapExchange, MalformedMappingsAreRefused) { weirt_ranks_run(stage(), 2, malformed, nullptr, 0); }

// In threads the fault would hit any rank.
class MapExchangeProcesses : public StageTest {};
INSTANTIATE_TEST_SUITE_P(Stages, MapExchangeProcesses, ::testing::Values(1, 3), weirt_stage_name);

TEST_P(MapExchangeProcesses, OneRankFails) { weirt_ranks_run(stage(), 2, one_rank_fails, nullptr, 0); }

TEST_P(MapExchangeProcesses, NthAllocationFails) { weirt_ranks_run(stage(), 2, nth_allocation_fails, nullptr, 0); }

TEST_P(MapExchangeDeath, KilledWhileOthersRecord) { weirt_ranks_run(stage(), 3, killed, nullptr, 0); }

} // namespace
