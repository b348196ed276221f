// Exchanges: random transfers among one to eight ranks, their errors, and send and recv beside them.
extern "C" {
#include "src/host/collective/collective.h"
}
#include "test/collective/transfers.h"
#include "test/harness/checks.h"
#include "test/harness/stage_test.h"

namespace {

struct Setting {
    uint32_t blocks;
    uint32_t transfers; // of an exchange; 0: one from each rank to each other one
    uint64_t most;      // elements of the largest
    uint32_t exchanges;
    uint64_t staging; // bytes; 0: so few that large transfers take many rounds
    bool registered = false;
    bool copies = false;
    uint32_t threads = 0; // of a block on the CPU device; 0: the usual number
};

constexpr uint64_t room = 1 << 20;

enum ReceiveMemory { ORDINARY, FOR_COPIES, REGISTERED };

weir_collective_opts opts_of(const weirt_rank *rank, uint32_t blocks, uint64_t staging = 0)
{
    weir_collective_opts opts = {};
    opts.size = sizeof opts;
    opts.staging_bytes = staging != 0 ? staging : 128 << 10;
    if (std::strcmp(rank->stage->kind, "cpu") == 0) {
        opts.blocks = blocks;
        opts.threads = 3 - std::min(blocks, 2u);
    } else {
        fit_together(rank, &opts);
    }
    return opts;
}

// Opens a bench of `bytes` bytes. With copies, the memory of receives is registered.
bool open_bench(weirt_rank *rank, weir_collective_opts opts, uint64_t bytes, bool copies, Bench *bench,
                uint32_t timeout_ms = 0)
{
    opts.form = copies ? WEIR_FORM_COPIES : WEIR_FORM_AUTO;
    return bench_open(rank, &opts, bytes, timeout_ms, bench) &&
           (!copies || WEIRT_OK(rank, weir_collective_register(bench->collective, bench->out)));
}

bool flag_of(const weirt_rank *rank) { return rank->arg != nullptr && *static_cast<const bool *>(rank->arg); }

void exchanges(weirt_rank *rank)
{
    const Setting *setting = static_cast<const Setting *>(rank->arg);
    weir_collective_opts opts = opts_of(rank, setting->blocks, setting->staging);
    if (setting->registered) {
        opts.blocks = setting->blocks; // among more, the transfers would be short enough for lines
    }
    if (setting->threads != 0 && std::strcmp(rank->stage->kind, "cpu") == 0) {
        opts.threads = setting->threads;
    }
    Bench bench;
    const bool alive =
        open_bench(rank, opts, room, setting->copies, &bench) &&
        (!setting->registered || WEIRT_OK(rank, weir_collective_register(bench.collective, bench.out))) &&
        run_random(&bench, setting->transfers, setting->most, setting->exchanges);
    // Exchanges leave the operations of all ranks in step.
    const Operation o = { ALLREDUCE, WEIR_F32, WEIR_SUM, 100, 0, 0, false, true, 7 };
    (void)(alive && run(&bench, o));
    bench_close(&bench);
}

class Exchange : public StageDataTest {
protected:
    void random(std::vector<uint32_t> numbers, Setting setting)
    {
        if (stage()->processes && std::strcmp(stage()->kind, "cpu") == 0) {
            numbers.resize(1);
        }
        for (const uint32_t ranks : numbers) {
            weirt_ranks_run(stage(), ranks, exchanges, &setting, sizeof setting);
        }
    }
};
INSTANTIATE_TEST_SUITE_P(Stages, Exchange, ::testing::Values(0, 1, 2, 3), weirt_stage_name);

TEST_P(Exchange, RandomTransfers) { random({ 3, 1, 2, 8 }, { 2, 20, 3000, 6, 0 }); }
// Among 18 blocks a message slot has 128 bytes, which is too few for the sender's call and a line.
TEST_P(Exchange, SlotsTooShortForLines) { random({ 2, 3 }, { 18, 10, 3000, 4, 0 }); }
// A slot of 32 KiB or more has a part for lines, and another one for transfers of more than eight messages a column.
TEST_P(Exchange, LongSlotsHavePartsForLines) { random({ 3 }, { 2, 6, 60000, 12, (6 << 20) + (256 << 10) }); }
TEST_P(Exchange, RandomTransfersOfOneBlock)
{
    random({ 2, 5 }, { 1, 20, 3000, 6, 0 });
    random({ 2, 5 }, { 1, 30, 1200, 4, 4 << 20 });
    random({ 4 }, { 1, 0, 200, 4, 4 << 20 });
}
TEST_P(Exchange, ManyTransfersTakeSeveralLaunches) { random({ 2, 4 }, { 2, 400, 300, 1, 0 }); }
// With so much staging, transfers of up to 2 to 8 KiB take the rings, by the number of ranks.
TEST_P(Exchange, SmallTransfersTakeRings) { random({ 3, 2, 8 }, { 2, 40, 1200, 4, 4 << 20 }); }
TEST_P(Exchange, RingsHaveBlocksForEachLane) { random({ 2, 4 }, { 16, 40, 1200, 2, 4 << 20 }); }
TEST_P(Exchange, ARingCarriesManyTransfers) { random({ 2 }, { 4, 300, 40, 2, 4 << 20 }); }
TEST_P(Exchange, ARingPassesSeveralAtOnce) { random({ 2, 3 }, { 4, 300, 300, 2, 4 << 20, false, false, 8 }); }
// Transfers that are too long for lines go straight into registered memory.
// Rings lie between the slots of collectives and those of messages, with room behind their last unit for the rest of a
// transfer that begins there.
void rings_have_room(weirt_rank *rank)
{
    for (const uint64_t staging : { 128 << 10, 200 << 10, 1 << 20, 3 << 20, 8 << 20 }) {
        Bench bench;
        if (open_bench(rank, opts_of(rank, 8, staging), room, false, &bench)) {
            const weir_dev_collective &c = bench.collective->device;
            const uint64_t rings =
                c.messages - (c.slots + 4ull * weir_collective_sources(c.ranks) * c.slot_columns * c.slot_bytes);
            const uint64_t unit = 128 + 2 * (1ull << c.ring_shift); // the sender's call, and packets
            const uint64_t needed = c.ring_units == 0 ? 0 : (c.ring_units - 1 + c.ring_units / 4) * unit;
            WEIRT_EXPECT(rank, c.messages % 128 == 0 && rings == 128ull * c.ring_lines * c.ranks);
            WEIRT_EXPECT(rank, needed <= 128ull * c.ring_lines);
            WEIRT_EXPECT(rank, staging < 1 << 20 || c.ring_units != 0);
        }
        bench_close(&bench);
    }
}

TEST_P(Exchange, RingsHaveRoom)
{
    for (const uint32_t ranks : { 2, 3, 8 }) {
        run(ranks, rings_have_room);
    }
}

TEST_P(Exchange, RegisteredReceives) { random({ 3, 2, 8 }, { 2, 20, 6000, 6, 0, true }); }
TEST_P(Exchange, RegisteredReceivesOfBlocksAlone) { random({ 2, 3 }, { 12, 2, 20000, 8, 0, true }); }
TEST_P(Exchange, RegisteredReceivesOfOneBlock) { random({ 2, 5 }, { 1, 20, 3000, 6, 0, true }); }
// Blocks take the rings of several lanes in order, and a lane's blocks, fewer than its pieces, take these in order.
TEST_P(Exchange, EachOtherRankOnce)
{
    random({ 4, 8 }, { 3, 0, 200, 4, 4 << 20 });
    random({ 4, 3, 8 }, { 14, 0, 12000, 4, 0 });
    random({ 4 }, { 14, 0, 12000, 4, 4 << 20 });
    random({ 4 }, { 14, 0, 12000, 4, 0, true });
}
// Copy engines move the data. A call of two ranks has more transfers than a message of the host. Eight ranks that are
// threads and share a GPU have more streams with waiting kernels than the GPU has hardware queues.
TEST_P(Exchange, CopiesMoveRandomTransfers)
{
    const bool queues = std::strcmp(stage()->kind, "cpu") == 0 || stage()->processes;
    random({ 3, 1, 2, queues ? 8u : 4u }, { 2, 20, 3000, 6, 0, false, true });
    random({ 4 }, { 14, 0, 12000, 4, 0, false, true });
    random({ 2 }, { 2, 200, 300, 2, 0, false, true });
}
TEST_P(Exchange, LargeTransfersUseAllColumns) { random({ 2, 3 }, { 5, 6, 30000, 4, 0 }); }

// Two transfers from each rank to each other one. Odd ranks have them in one call, and even ranks in two.
void divided(weirt_rank *rank)
{
    Bench b;
    bool fine = open_bench(rank, opts_of(rank, 14), room, flag_of(rank), &b);
    for (uint64_t seed = 1; seed <= 3 && fine; seed++) {
        Transfers all = transfers_to_others(seed, rank->size, 12000);
        const Transfers second = transfers_to_others(seed + 10, rank->size, 12000);
        all.insert(all.end(), second.begin(), second.end());
        const List list = list_of(&b, all, seed);
        fine = prepare_list(&b, list);
        for (uint32_t call = 0; call < 2 && fine; call++) {
            std::vector<weir_transfer> part;
            for (size_t i = 0; i < list.transfers.size(); i++) {
                const uint32_t first = list.meant[i].id < (seed + 10) * 1000 ? 0 : 1;
                if (rank->rank % 2 != 0 ? call == 0 : call == first) {
                    part.push_back(list.transfers[i]);
                }
            }
            fine =
                WEIRT_OK(rank, weir_exchange(b.collective, part.data(), static_cast<uint32_t>(part.size()), b.stream));
        }
        fine = fine && WEIRT_OK(rank, weir_stream_wait(b.comm.device, b.stream, weirt_timeout_ms())) &&
               WEIRT_OK(rank, weir_comm_status(b.comm.comm)) && weirt_barrier(rank);
        const std::string found = fine ? wrong(&b, list) : "";
        if (!found.empty()) {
            weirt_fail(rank, __FILE__, __LINE__, "seed %llu: %s", static_cast<unsigned long long>(seed), found.c_str());
        }
    }
    bench_close(&b);
}

TEST_P(Exchange, CallsDivideTransfersInOtherWays)
{
    for (const bool copies : { false, true }) {
        weirt_ranks_run(stage(), 4, divided, &copies, sizeof copies);
    }
}

// One long transfer in each lane, into registered memory: to the next rank, and then from rank 0 to all others. All
// blocks send.
void all_blocks_send(weirt_rank *rank)
{
    weir_collective_opts opts = opts_of(rank, 2);
    opts.blocks = *static_cast<const uint32_t *>(rank->arg);
    Transfers ring;
    Transfers fan;
    for (uint32_t k = 0; k < rank->size; k++) {
        ring.push_back({ k, (k + 1) % rank->size, 70000 + 1001 * k, WEIR_U8, 1 + k });
        if (k != 0) {
            fan.push_back({ 0, k, 17000 + 100 * k, WEIR_F32, 10 + k });
        }
    }
    Bench b;
    bool alive = bench_open(rank, &opts, room, 0, &b) && WEIRT_OK(rank, weir_collective_register(b.collective, b.out));
    for (uint64_t seed = 1; seed <= 4 && alive; seed++) {
        const std::string found = run_list(&b, seed % 2 != 0 ? ring : fan, seed, &alive);
        WEIRT_EXPECT(rank, found.empty());
    }
    bench_close(&b);
}

TEST_P(Exchange, AllBlocksSendIntoRegisteredMemory)
{
    for (const uint32_t blocks : { 2u, 3u, 7u }) {
        weirt_ranks_run(stage(), 2, all_blocks_send, &blocks, sizeof blocks);
        weirt_ranks_run(stage(), 3, all_blocks_send, &blocks, sizeof blocks);
    }
}

// Rank 0 sends to ranks 1 and 2 in one call. Rank 1 receives it only after a transfer from rank 2, which that one sends
// only after it has received from rank 0. So no send of rank 0 may wait for the other one.
void in_a_chain(weirt_rank *rank)
{
    const Transfers all = { { 0, 1, 90000, WEIR_U8, 1 }, { 0, 2, 80000, WEIR_U8, 2 }, { 2, 1, 70000, WEIR_U8, 3 } };
    const uint32_t order[3][2] = { { 0, 1 }, { 2, 0 }, { 1, 2 } }; // of each rank's transfers, by their index
    const ReceiveMemory memory = *static_cast<const ReceiveMemory *>(rank->arg);
    weir_collective_opts opts = opts_of(rank, 14);
    opts.blocks = memory == REGISTERED ? 4 : opts.blocks; // among more, the transfers would be short enough for lines
    Bench b;
    if (open_bench(rank, opts, room, memory == FOR_COPIES, &b) &&
        (memory != REGISTERED || WEIRT_OK(rank, weir_collective_register(b.collective, b.out)))) {
        const List list = list_of(&b, all, 1);
        std::vector<weir_transfer> mine;
        (void)prepare_list(&b, list);
        for (const uint32_t i : order[rank->rank]) {
            for (size_t k = 0; k < list.meant.size(); k++) {
                if (list.meant[k].id == all[i].id) {
                    mine.push_back(list.transfers[k]);
                }
            }
        }
        for (uint32_t call = 0; call < (rank->rank == 0 ? 1u : 2u); call++) {
            WEIRT_OK(rank, weir_exchange(b.collective, &mine[call], rank->rank == 0 ? 2 : 1, b.stream));
        }
        WEIRT_OK(rank, weir_stream_wait(b.comm.device, b.stream, weirt_timeout_ms()));
        WEIRT_OK(rank, weir_comm_status(b.comm.comm));
        WEIRT_EXPECT(rank, wrong(&b, list).empty());
    }
    bench_close(&b);
}

TEST_P(Exchange, NoTransferWaitsForAnother)
{
    for (const ReceiveMemory memory : { ORDINARY, FOR_COPIES, REGISTERED }) {
        weirt_ranks_run(stage(), 3, in_a_chain, &memory, sizeof memory);
    }
}

// Two transfers of five pieces each take ten different columns of 10 or more.
void follow_each_other(weirt_rank *rank)
{
    weir_collective_opts opts = {};
    opts.size = sizeof opts;
    opts.staging_bytes = 16 << 20; // enough for 13 columns of short slots
    opts.blocks = 32;
    opts.threads = std::strcmp(rank->stage->kind, "cpu") == 0 ? 1 : 0;
    Bench bench;
    bool fine = bench_open(rank, &opts, room, 0, &bench);
    const uint64_t bytes = 5 * WEIR_EXCHANGE_PIECE;
    const Transfers all = { { 0, 1, bytes, WEIR_U8, 1 }, { 0, 1, bytes, WEIR_U8, 2 } };
    const List list = fine ? list_of(&bench, all, 1) : List();
    fine = fine && prepare_list(&bench, list) &&
           WEIRT_OK(rank, weir_exchange(bench.collective, list.transfers.data(),
                                        static_cast<uint32_t>(list.transfers.size()), bench.stream)) &&
           WEIRT_OK(rank, weir_stream_wait(bench.comm.device, bench.stream, weirt_timeout_ms())) &&
           WEIRT_EXPECT(rank, wrong(&bench, list).empty());
    uint32_t used = 0;
    for (uint32_t column = 0; fine && column < bench.collective->device.message_blocks; column++) {
        const weir_dev_semaphore data =
            weir_collective_semaphore(&bench.collective->device, WEIR_CELL_MESSAGE, column, 1 - rank->rank);
        uint64_t messages = 0; // sent, or taken
        fine = WEIRT_OK(rank, weir_device_copy(bench.comm.device, &messages,
                                               rank->rank == 0 ? data.sent : data.expected, sizeof messages));
        used += messages != 0;
    }
    WEIRT_EXPECT(rank, !fine || (bench.collective->device.message_blocks >= 10 && used == 10));
    bench_close(&bench);
}

TEST_P(Exchange, PiecesOfShortTransfersSpread) { run(2, follow_each_other); }

// ---- send and recv ------------------------------------------------------------------------------------------------

// The sends of an exchange meet the receives of three calls. Rank 2 takes no part, and is in step with the others in
// the operation of all ranks that follows.
void meets_calls(weirt_rank *rank)
{
    const Transfers all = { { 0, 1, 100, WEIR_F32, 1 },  { 0, 1, 0, WEIR_U8, 2 },  { 0, 1, 70000, WEIR_U8, 3 },
                            { 1, 0, 70000, WEIR_U8, 4 }, { 1, 0, 9, WEIR_F64, 5 }, { 1, 0, 33, WEIR_U8, 6 } };
    Bench bench;
    bool fine = open_bench(rank, opts_of(rank, 3), room, flag_of(rank), &bench);
    for (uint32_t round = 0; round < 3 && fine; round++) {
        const List list = list_of(&bench, all, round);
        fine = prepare_list(&bench, list);
        if (rank->rank == 0 && fine) {
            fine = WEIRT_OK(rank, weir_exchange(bench.collective, list.transfers.data(), 6, bench.stream));
        }
        // Rank 1 receives everything first, then sends: three calls each.
        for (uint32_t k = 0; k < 12 && rank->rank == 1 && fine; k++) {
            const weir_transfer &t = list.transfers[k % 6];
            if (t.receive && k < 6) {
                fine = WEIRT_OK(rank, weir_recv(bench.collective, t.buffer, t.count, t.dtype, 0, bench.stream));
            } else if (!t.receive && k >= 6) {
                fine = WEIRT_OK(rank, weir_send(bench.collective, t.buffer, t.count, t.dtype, 0, bench.stream));
            }
        }
        fine = fine && WEIRT_OK(rank, weir_stream_wait(bench.comm.device, bench.stream, weirt_timeout_ms())) &&
               WEIRT_OK(rank, weir_comm_status(bench.comm.comm));
        const std::string found = fine ? wrong(&bench, list) : "";
        WEIRT_EXPECT(rank, found.empty());
    }
    const Operation o = { ALLREDUCE, WEIR_F32, WEIR_SUM, 100, 0, 0, false, true, 7 };
    (void)(fine && run(&bench, o));
    bench_close(&bench);
}

TEST_P(Exchange, MeetsSendAndRecv)
{
    for (const bool copies : { false, true }) {
        weirt_ranks_run(stage(), 3, meets_calls, &copies, sizeof copies);
    }
}

void replays(weirt_rank *rank)
{
    Bench bench;
    void *graph = nullptr;
    bool fine = open_bench(rank, opts_of(rank, 2), room, flag_of(rank), &bench);
    Transfers all = random_transfers(5, rank->size, 12, 3000);
    List list = fine ? list_of(&bench, all, 5) : List();
    weir_device *device = bench.comm.device;
    fine = fine && WEIRT_OK(rank, weir_graph_begin(device, bench.stream)) &&
           WEIRT_OK(rank, weir_exchange(bench.collective, list.transfers.data(),
                                        static_cast<uint32_t>(list.transfers.size()), bench.stream)) &&
           WEIRT_OK(rank, weir_graph_end(device, bench.stream, &graph));
    for (uint32_t round = 0; round < 3 && fine; round++) {
        for (Transfer &t : list.meant) {
            t.id += 1000;
        }
        fine = prepare_list(&bench, list) && WEIRT_OK(rank, weir_graph_launch(device, graph, bench.stream)) &&
               WEIRT_OK(rank, weir_stream_wait(device, bench.stream, weirt_timeout_ms())) &&
               WEIRT_OK(rank, weir_comm_status(bench.comm.comm));
        const std::string found = fine ? wrong(&bench, list) : "";
        WEIRT_EXPECT(rank, found.empty());
    }
    if (graph != nullptr) {
        weir_graph_destroy(device, graph);
    }
    bench_close(&bench);
}

TEST_P(Exchange, ReplaysInAGraph)
{
    for (const bool copies : { false, true }) {
        weirt_ranks_run(stage(), 3, replays, &copies, sizeof copies);
    }
}

const Transfers one_transfer = { { 0, 1, 60000, WEIR_U8, 1 } };
const Transfers two_transfers = { { 0, 1, 20000, WEIR_U8, 1 }, { 0, 1, 4000, WEIR_F64, 2 } };

// Rank 0 records its sends, and rank 1 its receives, before or after the memory of the receives is registered. In the
// last round it is registered no more: a graph of sends goes on, and one of receives ends in an error.
void registers_between(weirt_rank *rank, bool sender_knows, bool receiver_knows, const Transfers &all)
{
    weir_collective_opts opts = opts_of(rank, 4);
    opts.blocks = 4; // among more, the transfers would be short enough for lines
    const bool knows = rank->rank == 0 ? sender_knows : receiver_knows;
    Bench bench;
    void *graph = nullptr;
    bool fine = bench_open(rank, &opts, room, 0, &bench);
    List list = fine ? list_of(&bench, all, 5) : List();
    weir_device *device = bench.comm.device;
    const auto record = [&] { return record_exchange(&bench, list.transfers, &graph); };
    const auto replay = [&](weir_status expected) {
        (void)prepare_list(&bench, list);
        WEIRT_OK(rank, weir_graph_launch(device, graph, bench.stream));
        WEIRT_STATUS(rank, WEIR_OK, weir_stream_wait(device, bench.stream, weirt_timeout_ms()));
        WEIRT_STATUS(rank, expected, weir_comm_status(bench.comm.comm));
    };
    fine = fine && (knows || record()) && WEIRT_OK(rank, weir_collective_register(bench.collective, bench.out)) &&
           (!knows || record());
    for (uint32_t round = 0; round < 2 && fine; round++) {
        for (Transfer &t : list.meant) {
            t.id += 1000;
        }
        replay(WEIR_OK);
        const std::string found = wrong(&bench, list);
        WEIRT_EXPECT(rank, found.empty());
    }
    if (fine && WEIRT_OK(rank, weir_collective_deregister(bench.collective, bench.out))) {
        if (receiver_knows) {
            weirt_log_allow("");
            replay(rank->rank == 1 ? WEIR_ERR_INVALID : WEIR_ERR_ABORTED);
            WEIRT_TEXT(rank, "on memory that was deregistered");
        } else {
            replay(WEIR_OK);
            WEIRT_EXPECT(rank, wrong(&bench, list).empty());
        }
    }
    weir_graph_destroy(device, graph);
    bench_close(&bench);
}

TEST_P(Exchange, EndsKnowOfARegistrationOrNot)
{
    run(2, [](weirt_rank *rank) { registers_between(rank, false, false, two_transfers); });
    run(2, [](weirt_rank *rank) { registers_between(rank, true, false, two_transfers); });
    run(2, [](weirt_rank *rank) { registers_between(rank, false, true, two_transfers); });
    run(2, [](weirt_rank *rank) { registers_between(rank, true, true, two_transfers); });
}

// Of one transfer all blocks send.
TEST_P(Exchange, AllBlocksSendIfBothEndsKnowOfARegistration)
{
    run(2, [](weirt_rank *rank) { registers_between(rank, false, true, one_transfer); });
    run(2, [](weirt_rank *rank) { registers_between(rank, true, false, one_transfer); });
    run(2, [](weirt_rank *rank) { registers_between(rank, true, true, one_transfer); });
}

// ---- errors --------------------------------------------------------------------------------------------------------

void refused(const Bench *b, const char *part, weir_status status, weir_status expected_status = WEIR_ERR_INVALID)
{
    if (status != expected_status) {
        weirt_fail(b->rank, __FILE__, __LINE__, "%s: status %d", part, status);
    }
    WEIRT_TEXT(b->rank, part);
}

void arguments(weirt_rank *rank)
{
    weir_collective_opts opts = opts_of(rank, 1);
    opts.check_pointers = true;
    Bench bench;
    if (bench_open(rank, &opts, 4096, 0, &bench)) {
        weir_collective *c = bench.collective;
        void *s = bench.stream;
        const uint32_t own = rank->rank;
        char *in = static_cast<char *>(weir_memory_pointer(bench.in));
        const auto call = [&](std::vector<weir_transfer> list) {
            return weir_exchange(c, list.data(), static_cast<uint32_t>(list.size()), s);
        };
        const weir_transfer good = { in, 1, WEIR_F32, 1 - own, false };
        refused(&bench, "transfers is NULL", weir_exchange(c, nullptr, 1, s));
        refused(&bench, "peer 2 does not exist; there are 2 ranks (transfer 1 of 2)",
                call({ good, { in, 1, WEIR_U8, 2, true } }));
        refused(&bench, "buffer is NULL (transfer 0 of 2)", call({ { nullptr, 1, WEIR_U8, 1 - own, true }, good }));
        refused(&bench, "not aligned", call({ good, { in + 1, 1, WEIR_F32, 1 - own, true } }));
        refused(&bench, "unknown type 12", call({ { in, 1, static_cast<weir_dtype>(12), 1 - own, false } }));
        refused(&bench, "count is 9223372036854775807; the limit is ",
                call({ { in, UINT64_MAX / 2, WEIR_F64, 1 - own, false } }));
        refused(&bench, "(transfer 0 of 1)", call({ { in, 1 << 20, WEIR_U8, 1 - own, false } }), WEIR_ERR_RANGE);
        refused(&bench, "sends itself transfer 1, which it does not receive",
                call({ good, { in, 1, WEIR_U8, own, false } }));
        refused(&bench, "receives from itself transfer 0, which it does not send",
                call({ { in, 1, WEIR_U8, own, true } }));
        refused(&bench, "sends itself 2 elements in transfer 0, but receives 3 in transfer 1",
                call({ { in, 2, WEIR_U8, own, false }, { in + 64, 3, WEIR_U8, own, true } }));
        refused(&bench, "of another type",
                call({ { in, 2, WEIR_U8, own, false }, { in + 64, 2, WEIR_I8, own, true } }));
        refused(&bench, "transfers 1 and 0, of this rank to itself, overlap",
                call({ { in + 1, 2, WEIR_U8, own, true }, { in, 2, WEIR_U8, own, false } }));
        // Nothing to do, and in place.
        WEIRT_OK(rank, weir_exchange(c, nullptr, 0, s));
        WEIRT_OK(rank, call({ { in, 2, WEIR_U8, own, true }, { in, 2, WEIR_U8, own, false } }));
        // Nothing was launched: the ranks are still in step.
        const Transfers all = { { 0, 1, 10, WEIR_U8, 1 }, { 1, 0, 20, WEIR_U8, 2 } };
        bool alive = true;
        WEIRT_EXPECT(rank, run_list(&bench, all, 1, &alive).empty());
    }
    bench_close(&bench);
}

TEST_P(Exchange, RefusesBadArguments) { run(2, arguments); }

struct Difference {
    uint64_t sent;
    uint64_t received;
    weir_dtype dtype; // of the receive
    char text[96];    // part of the error
    uint64_t later;   // bytes of a third transfer, in which the ends agree; 0: there is none
    bool copies;
};

// Ranks 1 and 2 differ in their second transfer. Rank 0 waits for both.
void differs(weirt_rank *rank)
{
    const Difference *what = static_cast<const Difference *>(rank->arg);
    Bench bench;
    weirt_log_allow("");
    if (open_bench(rank, opts_of(rank, 3), 2 * room, what->copies, &bench)) {
        char *in = static_cast<char *>(weir_memory_pointer(bench.in));
        char *out = static_cast<char *>(weir_memory_pointer(bench.out));
        std::vector<weir_transfer> list;
        if (rank->rank == 1) {
            list = { { in, 500, WEIR_U8, 2, false },
                     { in, what->sent, WEIR_U8, 2, false },
                     { in, 7, WEIR_U8, 0, false } };
        } else if (rank->rank == 2) {
            list = { { out, 500, WEIR_U8, 1, true }, { out + 512, what->received, what->dtype, 1, true } };
        } else {
            list = { { out, 7, WEIR_U8, 1, true }, { out, 8, WEIR_U8, 2, true } };
        }
        if (what->later != 0 && rank->rank != 0) {
            list.push_back({ rank->rank == 1 ? in : out + room + room / 2, what->later, WEIR_U8, 3 - rank->rank,
                             rank->rank == 2 });
        }
        (void)weirt_barrier(rank); // no rank finds the error in its setup
        const weir_status called =
            weir_exchange(bench.collective, list.data(), static_cast<uint32_t>(list.size()), bench.stream);
        expect_mismatch(&bench, called, what->text);
    }
    bench_close(&bench);
}

TEST_P(Exchange, DifferentCountsAreNamed)
{
    const Difference all[] = {
        { 100, 99, WEIR_U8, "its receive 1 from rank 1 is of 99 u8, but send 1 of rank 1 has 100 u8", 0, false },
        { 300000, 100, WEIR_U8, "its receive 1 from rank 1 is of 100 u8, but send 1 of rank 1 has 300000 u8", 0,
          false },
        { 0, 300000, WEIR_U8, "its receive 1 from rank 1 is of 300000 u8, but send 1 of rank 1 has 0 u8", 0, false },
        { 100, 100, WEIR_I8, "its receive 1 from rank 1 is of 100 i8, but send 1 of rank 1 has 100 u8", 0, false },
        // The receiver of a short transfer need not know the memory.
        { 100, 1200000, WEIR_U8, "its receive 1 from rank 1 is of 1200000 u8, but send 1 of rank 1 has 100 u8", 0,
          false },
        { 1200000, 100, WEIR_U8, "its receive 1 from rank 1 is of 100 u8, but send 1 of rank 1 has 1200000 u8", 0,
          false },
        // Transfers of up to 64 bytes take the ring here.
        { 40, 39, WEIR_U8, "its receive 1 from rank 1 is of 39 u8, but send 1 of rank 1 has 40 u8", 0, false },
        { 40, 100, WEIR_U8, "its receive 1 from rank 1 is of 100 u8, but send 1 of rank 1 has 40 u8", 0, false },
        { 100, 40, WEIR_U8, "its receive 1 from rank 1 is of 40 u8, but send 1 of rank 1 has 100 u8", 0, false },
        { 40, 40, WEIR_I8, "its receive 1 from rank 1 is of 40 i8, but send 1 of rank 1 has 40 u8", 0, false },
        // Where the receiver looks first, it finds the third transfer.
        { 100, 40, WEIR_U8, "its receive 1 from rank 1 is of 40 u8, but send 1 of rank 1 has 100 u8", 20, false },
        { 40, 100, WEIR_U8, "its receive 1 from rank 1 is of 100 u8, but send 1 of rank 1 has 40 u8", 500, false },
        // One of the two ends finds the difference first. Rank 0 waits for both.
        { 100, 99, WEIR_U8, " 99 u8", 0, true },
        { 100, 99, WEIR_U8, " 100 u8", 0, true },
        { 100, 100, WEIR_I8, " 100 i8", 0, true },
    };
    for (const Difference &what : all) {
        weirt_ranks_run(stage(), 3, differs, &what, sizeof what);
    }
}

// Rank 0 receives from rank 2, which does not send.
void nobody_sends(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_of(rank, 2);
    Bench bench;
    weirt_log_allow("");
    if (bench_open_kernels(rank, &opts, 4096, 300 * weirt_slow(), &bench)) {
        char *out = static_cast<char *>(weir_memory_pointer(bench.out));
        const weir_transfer list[] = { { out, 7, WEIR_U8, 1, true }, { out + 8, 7, WEIR_U8, 2, true } };
        const weir_transfer send = { out, 7, WEIR_U8, 0, false };
        if (rank->rank == 0) {
            WEIRT_OK(rank, weir_exchange(bench.collective, list, 2, bench.stream));
            WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_comm_wait(bench.comm.comm, bench.stream, weirt_timeout_ms()));
            WEIRT_TEXT(rank, "weir_exchange of 2 transfers");
            WEIRT_TEXT(rank, "rank 2");
        } else if (rank->rank == 1) {
            WEIRT_OK(rank, weir_exchange(bench.collective, &send, 1, bench.stream));
            WEIRT_OK(rank, weir_stream_wait(bench.comm.device, bench.stream, weirt_timeout_ms()));
        }
    }
    bench_close(&bench);
}

TEST_P(Exchange, ADeadlineNamesThePeer) { run(3, nobody_sends); }

// Rank 0 also waits for rank 2, which never calls. So its stream never lets rank 1 copy, whose kernel ends by the error
// of rank 0 or by its own deadline.
void nobody_copies(weirt_rank *rank)
{
    Bench bench;
    weirt_log_allow("");
    if (open_bench(rank, opts_of(rank, 2), 4096, true, &bench, 1500 * weirt_slow())) {
        char *out = static_cast<char *>(weir_memory_pointer(bench.out));
        const weir_transfer list[] = { { out, 7, WEIR_U8, 1, true }, { out + 8, 7, WEIR_U8, 2, true } };
        if (rank->rank == 0) {
            WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_exchange(bench.collective, list, 2, bench.stream));
            WEIRT_TEXT(rank,
                       "rank 2 did not call weir_exchange, weir_send or weir_recv, by copies or recorded, within");
            WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_comm_status(bench.comm.comm));
        } else if (rank->rank == 1) {
            WEIRT_OK(rank, weir_send(bench.collective, out, 7, WEIR_U8, 0, bench.stream));
            WEIRT_OK(rank, weir_stream_wait(bench.comm.device, bench.stream, weirt_timeout_ms()));
            WEIRT_EXPECT(rank, weir_comm_status(bench.comm.comm) != WEIR_OK);
        }
        (void)weirt_barrier(rank);
    }
    bench_close(&bench);
}

TEST_P(Exchange, ADeadlineOfCopiesNamesThePeer) { run(3, nobody_copies); }

WEIRT_PROCESS_SUITE(ExchangeDeath);

void killed(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_of(rank, 2);
    Bench bench;
    if (bench_open(rank, &opts, room, 0, &bench)) {
        const Transfers before = { { 0, 1, 10, WEIR_U8, 1 }, { 1, 2, 20, WEIR_U8, 2 }, { 2, 0, 20, WEIR_U8, 3 } };
        bool alive = true;
        WEIRT_EXPECT(rank, run_list(&bench, before, 1, &alive).empty());
        (void)weirt_barrier(rank);
        if (rank->rank == 2) {
            die_last(rank);
        }
        const Transfers all = { { 0, 1, 90000, WEIR_U8, 1 }, { 1, 2, 300000, WEIR_U8, 2 }, { 2, 0, 20, WEIR_U8, 3 } };
        const List list = list_of(&bench, all, 1);
        const weir_status called = weir_exchange(bench.collective, list.transfers.data(),
                                                 static_cast<uint32_t>(list.transfers.size()), bench.stream);
        expect_death(&bench, called);
    }
    bench_leave(&bench);
}

TEST_P(ExchangeDeath, EndsTheOthersExchanges) { run(3, killed); }

} // namespace
