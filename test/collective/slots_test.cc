// With the default staging, a rank gets long slots for exchanges at its first receive that needs them.
extern "C" {
#include "src/host/base/wire.h"
#include "src/host/collective/collective.h"
#include "src/host/comm/exchange.h"
}

#include "test/collective/transfers.h"
#include "test/harness/checks.h"
#include "test/harness/stage_test.h"

namespace {

WEIRT_STAGE_DATA_SUITE(CollectiveSlots);
WEIRT_PROCESS_SUITE(CollectiveSlotsDeath);

bool is_gpu(const weirt_rank *rank) { return std::strcmp(rank->stage->kind, "cpu") != 0; }

// Bytes of a transfer that takes long slots as lines, of one that is too long for lines, and of one that takes short
// slots. The last two are those of four blocks.
uint64_t lined(const weirt_rank *rank) { return is_gpu(rank) ? 900001 : 90001; }
uint64_t longest(const weirt_rank *rank) { return is_gpu(rank) ? 5 << 20 : 700003; }
constexpr uint64_t brief = 9000;

bool open(weirt_rank *rank, uint32_t blocks, Bench *b, uint64_t room = 4 << 20, uint32_t host_ranks = 0)
{
    weir_collective_opts opts = WEIR_OPTS(weir_collective_opts);
    opts.blocks = is_gpu(rank) && blocks > 4 ? 0 : blocks;
    opts.threads = is_gpu(rank) ? 0 : 2;
    opts.host_ranks = host_ranks;
    if (is_gpu(rank)) {
        fit_together(rank, &opts);
    }
    return bench_open(rank, &opts, room, 0, b);
}

uint64_t bytes_of(const Bench &b) { return weir_collective_bytes(b.collective); }

// Only a rank that receives long transfers gets the memory, and only once.
void receivers_have_them(weirt_rank *rank)
{
    Bench b;
    bool alive = true;
    bool fine = open(rank, 4, &b);
    const uint64_t first = fine ? bytes_of(b) : 0;
    const Transfers few = { { 0, 1, brief, WEIR_U8, 1 }, { 1, 2, 30, WEIR_U8, 2 }, { 2, 0, 0, WEIR_U8, 3 } };
    const Transfers all = { { 0, 1, lined(rank), WEIR_U8, 4 }, { 2, 1, lined(rank) / 8, WEIR_F64, 5 } };
    fine = fine && WEIRT_EXPECT(rank, run_list(&b, few, 1, &alive).empty() && bytes_of(b) == first);
    fine = fine && WEIRT_EXPECT(rank, run_list(&b, all, 2, &alive).empty());
    const uint64_t second = fine ? bytes_of(b) : 0;
    WEIRT_EXPECT(rank, !fine || rank->rank == 1 || second == first);
    WEIRT_EXPECT(rank, !fine || rank->rank != 1 || second >= first + (is_gpu(rank) ? 8 << 20 : 300 << 10));
    for (uint64_t seed = 3; seed < 6 && fine; seed++) {
        fine = WEIRT_EXPECT(rank, run_list(&b, all, seed, &alive).empty() && bytes_of(b) == second);
    }
    // The long slots belong to exchanges alone: other operations go on.
    const Operation sum = { ALLREDUCE, WEIR_F32, WEIR_SUM, 1000, 0, 0, false, true, 7 };
    (void)(fine && run(&b, sum));
    bench_close(&b);
}

// The sender launches its kernel long before its peer calls, and then the other way round; no call waits for the peer.
void either_end_is_first(weirt_rank *rank)
{
    for (uint32_t early = 0; early < 4; early++) {
        Bench b;
        bool fine = open(rank, 4, &b, 2 * longest(rank));
        const uint64_t bytes = early < 2 ? lined(rank) : longest(rank);
        const List list = fine ? list_of(&b, { { 0, 1, bytes, WEIR_U8, early + 1 } }, 1) : List();
        fine = fine && prepare_list(&b, list);
        for (uint32_t turn = 0; turn < 2 && fine; turn++) {
            if ((rank->rank == early % 2) == (turn == 0)) {
                fine = WEIRT_OK(rank, weir_exchange(b.collective, list.transfers.data(), 1, b.stream));
            }
            fine = fine && WEIRT_STATUS(rank, turn == 0 && rank->rank == early % 2 ? WEIR_ERR_TIMEOUT : WEIR_OK,
                                        weir_stream_wait(b.comm.device, b.stream, turn == 0 ? 30 : weirt_timeout_ms()));
            fine = weirt_barrier(rank) && fine;
        }
        (void)(fine && ends_well(&b, list));
        bench_close(&b);
    }
}

// Each end was recorded before the slots were there, or is launched after it, in all pairs. The transfers go as lines,
// or by signals, or partly as packets.
void recorded_ends_meet(weirt_rank *rank)
{
    Bench b;
    void *graph = nullptr;
    const bool many = *static_cast<const bool *>(rank->arg);
    const uint64_t bytes = many ? lined(rank) : longest(rank);
    bool fine = open(rank, many ? 8 : 4, &b, 2 * longest(rank));
    Transfers all = { { 0, 1, bytes, WEIR_U8, 1 }, { 1, 0, 7 * bytes / 8, WEIR_U8, 2 } };
    for (uint32_t i = 0; i < (many ? 5u : 0u); i++) {
        all.push_back({ i % 2, 1 - i % 2, 10 + brief * i / 4, WEIR_U8, 3 + i });
    }
    List list = fine ? list_of(&b, all, 1) : List();
    const uint64_t first = fine ? bytes_of(b) : 0;
    fine = fine && record_exchange(&b, list.transfers, &graph) && WEIRT_EXPECT(rank, bytes_of(b) > first);
    for (uint32_t round = 0; round < 8 && fine; round++) {
        const bool replays = (round >> rank->rank & 1) != 0;
        for (Transfer &t : list.meant) {
            t.id += 1000;
        }
        fine = prepare_list(&b, list) &&
               (replays ? WEIRT_OK(rank, weir_graph_launch(b.comm.device, graph, b.stream))
                        : WEIRT_OK(rank, weir_exchange(b.collective, list.transfers.data(),
                                                       static_cast<uint32_t>(list.transfers.size()), b.stream))) &&
               ends_well(&b, list);
    }
    weir_graph_destroy(b.comm.device, graph);
    bench_close(&b);
}

void random_ones(weirt_rank *rank)
{
    Bench b;
    const uint32_t blocks = *static_cast<const uint32_t *>(rank->arg);
    if (open(rank, blocks, &b, is_gpu(rank) ? 24 << 20 : 4 << 20)) {
        (void)(run_random(&b, 12, lined(rank) / 4, 5) && run_random(&b, 0, lined(rank) / 4, 4));
    }
    bench_close(&b);
}

// Two hosts of two ranks, whose transfers inside a host take no lines. The last ones are more small ones than a ring
// holds, and their receiver is late.
void several_hosts(weirt_rank *rank)
{
    Bench b;
    bool alive = true;
    bool fine = open(rank, 4, &b, 4 << 20, 2);
    const uint64_t bytes = lined(rank);
    Transfers all = { { 0, 1, bytes, WEIR_U8, 1 }, { 1, 2, bytes, WEIR_U8, 2 }, { 3, 2, bytes, WEIR_U8, 3 } };
    for (uint64_t seed = 1; seed < 3 && fine; seed++) {
        fine = WEIRT_EXPECT(rank, run_list(&b, all, seed, &alive).empty());
    }
    for (uint32_t i = 0; i < 40; i++) {
        all.push_back({ 0, 1, 30, WEIR_U8, 4 + i });
    }
    const List list = fine ? list_of(&b, all, 3) : List();
    fine = fine && prepare_list(&b, list);
    if (rank->rank == 1) {
        weirt_sleep_ms(30);
    }
    (void)(fine &&
           WEIRT_OK(rank, weir_exchange(b.collective, list.transfers.data(),
                                        static_cast<uint32_t>(list.transfers.size()), b.stream)) &&
           ends_well(&b, list));
    bench_close(&b);
}

// Each rank sends, and then receives, on one stream. The slots come while the kernels of both wait for them.
void both_send_first(weirt_rank *rank)
{
    Bench b;
    bool fine = open(rank, 4, &b);
    const uint32_t peer = 1 - rank->rank;
    for (uint32_t round = 0; round < 3 && fine; round++) {
        List list = list_of(
            &b, { { 0, 1, lined(rank), WEIR_U8, 2 * round }, { 1, 0, lined(rank), WEIR_U8, 2 * round + 1 } }, 1);
        fine = prepare_list(&b, list);
        for (const bool receives : { false, true }) {
            for (const weir_transfer &t : list.transfers) {
                fine = fine &&
                       (t.receive != receives ||
                        WEIRT_OK(rank, receives ? weir_recv(b.collective, t.buffer, t.count, t.dtype, peer, b.stream)
                                                : weir_send(b.collective, t.buffer, t.count, t.dtype, peer, b.stream)));
            }
        }
        fine = fine && ends_well(&b, list);
    }
    bench_close(&b);
}

// The sender's transfer takes long slots, and the receiver expects one that takes short ones or the ring: it has no
// long slots, and finds the difference all the same. Then the other way round.
void different_counts(weirt_rank *rank)
{
    const uint32_t host_ranks = *static_cast<const uint32_t *>(rank->arg);
    const uint64_t pairs[][2] = { { lined(rank), brief }, { lined(rank), 30 }, { lined(rank), 0 },
                                  { brief, lined(rank) }, { 30, lined(rank) }, { longest(rank), lined(rank) } };
    weirt_log_allow("");
    for (const uint64_t *counts : pairs) {
        Bench b;
        const bool sends = rank->rank == 0;
        bool fine = open(rank, 4, &b, 2 * longest(rank), host_ranks);
        fine = weirt_barrier(rank) && fine;
        if (fine && rank->rank < 2) {
            char text[64];
            snprintf(text, sizeof text, "%llu", static_cast<unsigned long long>(counts[rank->rank]));
            const weir_transfer t = { weir_memory_pointer(sends ? b.in : b.out), counts[rank->rank], WEIR_U8,
                                      1 - rank->rank, !sends };
            WEIRT_OK(rank, weir_exchange(b.collective, &t, 1, b.stream));
            WEIRT_OK(rank, weir_stream_wait(b.comm.device, b.stream, weirt_timeout_ms()));
            weir_status status = WEIR_OK; // the news of it may come after a send has ended
            for (const uint64_t end = weirt_now_ms() + weirt_timeout_ms(); status == WEIR_OK && weirt_now_ms() < end;) {
                status = weir_comm_status(b.comm.comm);
            }
            WEIRT_STATUS(rank, WEIR_ERR_MISMATCH, status);
            WEIRT_TEXT(rank, text);
        }
        (void)weirt_barrier(rank);
        bench_close(&b);
    }
}

// Rank 1 sends a handle of other memory, or a payload, or no handle.
void malformed(weirt_rank *rank)
{
    weirt_log_allow("");
    for (uint32_t round = 0; round < 3; round++) {
        Bench b;
        bool fine = open(rank, 4, &b);
        if (fine && rank->rank == 1) {
            const uint8_t payload[1] = { 1 };
            const weiri_op_message message = {
                WEIRI_OP_SLOTS, payload, round == 1 ? 1u : 0u, { b.out, nullptr }, round == 2 ? 0u : 1u
            };
            WEIRT_OK(rank, weiri_exchange_send(b.comm.comm, 0, weiri_collective_tag(b.collective, WEIRI_TAG_SLOTS),
                                               &message));
        } else if (fine) {
            const weir_transfer t = { weir_memory_pointer(b.in), lined(rank), WEIR_U8, 1, false };
            const weir_status status = weir_exchange(b.collective, &t, 1, b.stream); // perhaps it is there already
            WEIRT_EXPECT(rank, status == WEIR_OK || status == WEIR_ERR_CORRUPT);
            WEIRT_OK(rank, weir_stream_wait(b.comm.device, b.stream, weirt_timeout_ms()));
            WEIRT_STATUS(rank, WEIR_ERR_CORRUPT, weir_comm_status(b.comm.comm));
            WEIRT_TEXT(rank, "malformed long slots of rank 1");
        }
        (void)weirt_barrier(rank);
        bench_close(&b);
    }
}

// The receiver cannot allocate: its call says so, and can be repeated. The sender waits in its kernel meanwhile.
void no_memory(weirt_rank *rank)
{
    Bench b;
    bool fine = open(rank, 4, &b);
    const List list = fine ? list_of(&b, { { 0, 1, lined(rank), WEIR_U8, 1 } }, 1) : List();
    const uint64_t first = fine ? bytes_of(b) : 0;
    fine = fine && prepare_list(&b, list);
    if (fine && rank->rank == 1) {
        (void)weirt_fail_allocation(1);
        WEIRT_STATUS(rank, WEIR_ERR_NOMEM, weir_exchange(b.collective, list.transfers.data(), 1, b.stream));
        WEIRT_TEXT(rank, "weir_exchange: no long slots: ");
        WEIRT_EXPECT(rank, weirt_fail_allocation(0) == 0 && bytes_of(b) == first);
        uint32_t refused = 0;
        for (uint64_t n = 1; n < 4; n++) { // a device operation fails, perhaps behind the allocation
            (void)weirt_fail_device(n);
            if (weir_exchange(b.collective, list.transfers.data(), 1, b.stream) == WEIR_OK) {
                (void)weirt_fail_device(0);
                weirt_fail(rank, __FILE__, __LINE__, "device operation %llu of a call that allocates did not fail",
                           static_cast<unsigned long long>(n));
                break;
            }
            (void)weirt_fail_device(0);
            refused += std::strstr(weir_last_error(), "no long slots") != nullptr;
            WEIRT_EXPECT(rank, refused != n || bytes_of(b) == first);
        }
        WEIRT_EXPECT(rank, refused >= 2);
    }
    (void)(fine && WEIRT_OK(rank, weir_exchange(b.collective, list.transfers.data(), 1, b.stream)) &&
           ends_well(&b, list));
    bench_close(&b);
}

// The n-th allocation of one rank fails in its call, or in the thread that maps the slots: the data arrives, or both
// ranks end with an error.
void nth_allocation_fails(weirt_rank *rank)
{
    weirt_log_allow("");
    uint32_t step = 0;
    for (uint32_t failing = 0; failing < 2; failing++) {
        bool failed = true;
        for (uint64_t n = 1; failed && n < 200; n++) {
            Bench b;
            bool fine = open(rank, 4, &b);
            const List list = fine ? list_of(&b, { { 0, 1, lined(rank), WEIR_U8, 1 } }, 1) : List();
            fine = fine && prepare_list(&b, list);
            const uint64_t since = weirt_now_ms();
            (void)(rank->rank == failing && weirt_fail_allocation(n));
            if (fine && weir_exchange(b.collective, list.transfers.data(), 1, b.stream) != WEIR_OK) {
                WEIRT_EXPECT(rank, *weir_last_error() != '\0');
                weir_comm_abort(b.comm.comm);
            }
            fine = fine && WEIRT_OK(rank, weir_stream_wait(b.comm.device, b.stream, weirt_timeout_ms()));
            WEIRT_EXPECT(rank, weirt_now_ms() - since < 10000 * static_cast<uint64_t>(weirt_slow()));
            const bool left = rank->rank != failing || weirt_fail_allocation(0) != 0;
            const bool both = all_fine(rank, &step, fine && weir_comm_status(b.comm.comm) == WEIR_OK);
            WEIRT_EXPECT(rank, !both || wrong(&b, list).empty());
            failed = !all_fine(rank, &step, left);
            bench_close(&b);
        }
        WEIRT_EXPECT(rank, !failed);
    }
}

// A sender that waits for long slots abandons its collective, and its kernel goes on. A collective also ends before a
// handle comes that it expects.
void abandoned(weirt_rank *rank)
{
    Bench b;
    bool fine = open(rank, 4, &b);
    const List list = fine ? list_of(&b, { { 0, 1, lined(rank), WEIR_U8, 1 } }, 1) : List();
    fine = fine && prepare_list(&b, list);
    if (fine && rank->rank == 0) {
        fine = WEIRT_OK(rank, weir_exchange(b.collective, list.transfers.data(), 1, b.stream)) &&
               WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_stream_wait(b.comm.device, b.stream, 100)); // it has begun
        weir_collective_abandon(b.collective);
        b.collective = nullptr;
    }
    fine = weirt_barrier(rank) && fine;
    if (fine && rank->rank == 1) {
        fine = WEIRT_OK(rank, weir_exchange(b.collective, list.transfers.data(), 1, b.stream));
    }
    (void)(fine && ends_well(&b, list));
    bench_close(&b);

    void *graph = nullptr;
    fine = open(rank, 4, &b);
    const List never = fine ? list_of(&b, { { 0, 1, lined(rank), WEIR_U8, 1 } }, 1) : List();
    (void)(fine && rank->rank == 0 && record_exchange(&b, never.transfers, &graph)); // rank 1 does not receive it
    weir_graph_destroy(b.comm.device, graph);
    bench_close(&b);
}

// The receiver dies before it calls. The sender, which waits for its slots, names it.
void receiver_dies(weirt_rank *rank)
{
    Bench b;
    if (open(rank, 4, &b)) {
        const weir_transfer t = { weir_memory_pointer(b.in), lined(rank), WEIR_U8, 1, false };
        (void)(rank->rank == 0 && WEIRT_OK(rank, weir_exchange(b.collective, &t, 1, b.stream)));
        (void)weirt_barrier(rank);
        if (rank->rank == 1) {
            weirt_die(rank, WEIRT_KILL);
        }
        const uint64_t since = weirt_now_ms();
        WEIRT_OK(rank, weir_stream_wait(b.comm.device, b.stream, weirt_timeout_ms()));
        WEIRT_STATUS(rank, WEIR_ERR_REMOTE, weir_comm_wait(b.comm.comm, b.stream, 0));
        WEIRT_TEXT(rank, "rank 1");
        WEIRT_EXPECT(rank, weirt_now_ms() - since < 2000 * static_cast<uint64_t>(weirt_slow()));
    }
    bench_leave(&b);
}

TEST_P(CollectiveSlots, ReceiversHaveThem) { weirt_ranks_run(stage(), 3, receivers_have_them, nullptr, 0); }

TEST_P(CollectiveSlots, EitherEndIsFirst) { weirt_ranks_run(stage(), 2, either_end_is_first, nullptr, 0); }

TEST_P(CollectiveSlots, RecordedEndsMeet)
{
    for (const bool many : { false, true }) {
        weirt_ranks_run(stage(), 2, recorded_ends_meet, &many, sizeof many);
    }
}

TEST_P(CollectiveSlots, RandomTransfers)
{
    for (const uint32_t ranks : { 2, 3, 5 }) {
        for (const uint32_t blocks : { 1, 4, 16 }) {
            weirt_ranks_run(stage(), ranks, random_ones, &blocks, sizeof blocks);
        }
    }
}

TEST_P(CollectiveSlots, BothSendFirst) { weirt_ranks_run(stage(), 2, both_send_first, nullptr, 0); }

TEST_P(CollectiveSlots, SeveralHosts) { weirt_ranks_run(stage(), 4, several_hosts, nullptr, 0); }

TEST_P(CollectiveSlots, DifferentCountsAreNamed)
{
    const uint32_t one_host = 0;
    const uint32_t two_hosts = 2;
    weirt_ranks_run(stage(), 2, different_counts, &one_host, sizeof one_host);
    weirt_ranks_run(stage(), 4, different_counts, &two_hosts, sizeof two_hosts);
}

TEST_P(CollectiveSlots, MalformedHandlesAreRefused) { weirt_ranks_run(stage(), 2, malformed, nullptr, 0); }

TEST_P(CollectiveSlots, AbandonedWhileItWaits) { weirt_ranks_run(stage(), 2, abandoned, nullptr, 0); }

// In threads the fault would hit any rank.
class CollectiveSlotsProcesses : public StageTest {};
INSTANTIATE_TEST_SUITE_P(Stages, CollectiveSlotsProcesses, ::testing::Values(1, 3), weirt_stage_name);

TEST_P(CollectiveSlotsProcesses, WithoutMemoryTheCallFails) { weirt_ranks_run(stage(), 2, no_memory, nullptr, 0); }

TEST_P(CollectiveSlotsProcesses, NthAllocationFails) { weirt_ranks_run(stage(), 2, nth_allocation_fails, nullptr, 0); }

TEST_P(CollectiveSlotsDeath, ReceiverDies) { weirt_ranks_run(stage(), 2, receiver_dies, nullptr, 0); }

} // namespace
