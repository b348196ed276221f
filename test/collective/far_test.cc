// Exchanges between hosts, simulated by ranks of this host, over each transport with port channels.
#include "test/collective/hosts.h"
#include "test/collective/transfers.h"

namespace {

constexpr uint64_t room = 512 << 10;

// Ranks end together: until then, the memory of a rank carries data of others.
void close(Bench *b)
{
    (void)weirt_barrier(b->rank);
    bench_close(b);
}

void exchanges(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_of(rank);
    Bench bench;
    if (bench_open(rank, &opts, room, 0, &bench) && run_random(&bench, 24, 3000, 4)) {
        // Exchanges leave the operations of all ranks in step.
        Operation o = { ALLREDUCE, WEIR_F32, WEIR_SUM, 100, 0, 0, false, true, 7 };
        o.host_ranks = opts.host_ranks;
        (void)run(&bench, o);
    }
    close(&bench);
}

void large(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_of(rank);
    Bench bench;
    (void)(bench_open(rank, &opts, room, 0, &bench) && run_random(&bench, 4, 9000, 2));
    close(&bench);
}

// More transfers of a lane than a launch takes.
void many(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_of(rank);
    Bench bench;
    (void)(bench_open(rank, &opts, room, 0, &bench) && run_random(&bench, 500, 50, 1));
    close(&bench);
}

// Rank 0 sends to rank 3, of the other host and another place, and gets an answer. Ranks 1 and 2 make no call.
void a_pair(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_of(rank);
    Bench bench;
    bool fine = bench_open(rank, &opts, room, 0, &bench);
    for (uint32_t round = 0; round < 3 && fine; round++) {
        const Transfers all = { { 0, 3, 30000, WEIR_U8, 2 * round }, { 3, 0, 700, WEIR_F32, 2 * round + 1 } };
        const List list = list_of(&bench, all, 1);
        fine = prepare_list(&bench, list);
        for (uint32_t k = 0; k < 2 && !list.transfers.empty() && fine; k++) {
            const bool receives = (k == 0) == (rank->rank == 3);
            const weir_transfer &t = list.transfers[list.transfers[0].receive == receives ? 0 : 1];
            fine = WEIRT_OK(rank, receives
                                      ? weir_recv(bench.collective, t.buffer, t.count, t.dtype, t.peer, bench.stream)
                                      : weir_send(bench.collective, t.buffer, t.count, t.dtype, t.peer, bench.stream));
        }
        fine = fine && WEIRT_OK(rank, weir_stream_wait(bench.comm.device, bench.stream, weirt_timeout_ms())) &&
               WEIRT_OK(rank, weir_comm_status(bench.comm.comm));
        const std::string found = fine ? wrong(&bench, list) : "";
        WEIRT_EXPECT(rank, found.empty());
        (void)weirt_barrier(rank);
    }
    close(&bench);
}

void replays(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_of(rank);
    Bench bench;
    void *graph = nullptr;
    bool fine = bench_open(rank, &opts, room, 0, &bench);
    weir_device *device = bench.comm.device;
    List list = fine ? list_of(&bench, random_transfers(5, rank->size, 12, 2000), 5) : List();
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
    close(&bench);
}

struct Difference {
    uint64_t sent;
    uint64_t received;
    char text[96]; // part of the error
};

constexpr Difference differences[] = {
    { 100, 99, "its receive 1 from rank 1 is of 99 u8, but send 1 of rank 1 has 100 u8" },
    { 0, 30000, "its receive 1 from rank 1 is of 30000 u8, but send 1 of rank 1 has 0 u8" },
};

// Rank 1 sends to rank 2, of the other host and another place. They differ in their second transfer.
void differs(weirt_rank *rank)
{
    const Difference &what = differences[static_cast<const Setting *>(rank->arg)->what];
    const weir_collective_opts opts = opts_of(rank);
    Bench bench;
    weirt_log_allow("");
    if (bench_open(rank, &opts, room, 0, &bench)) {
        char *in = static_cast<char *>(weir_memory_pointer(bench.in));
        char *out = static_cast<char *>(weir_memory_pointer(bench.out));
        std::vector<weir_transfer> list;
        if (rank->rank == 1) {
            list = { { in, 500, WEIR_U8, 2, false }, { in, what.sent, WEIR_U8, 2, false } };
        } else if (rank->rank == 2) {
            list = { { out, 500, WEIR_U8, 1, true }, { out + 512, what.received, WEIR_U8, 1, true } };
        } else {
            list = { { out, 7, WEIR_U8, 3 - rank->rank, true } };
        }
        (void)weirt_barrier(rank); // no rank finds the error in its setup
        const weir_status called =
            weir_exchange(bench.collective, list.data(), static_cast<uint32_t>(list.size()), bench.stream);
        expect_mismatch(&bench, called, what.text);
    }
    close(&bench);
}

// Rank 0 receives from rank 3, which does not send.
void nobody_sends(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_of(rank);
    Bench bench;
    weirt_log_allow("");
    if (bench_open_kernels(rank, &opts, 4096, 300 * weirt_slow(), &bench)) {
        (void)weirt_barrier(rank);
        if (rank->rank == 0) {
            WEIRT_OK(rank, weir_recv(bench.collective, weir_memory_pointer(bench.out), 7, WEIR_U8, 3, bench.stream));
            WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_comm_wait(bench.comm.comm, bench.stream, weirt_timeout_ms()));
            WEIRT_TEXT(rank, "weir_recv");
            WEIRT_TEXT(rank, "rank 3");
        }
    }
    close(&bench);
}

// Rank 2 dies; the others' exchanges end with an error that names it.
void killed(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_of(rank);
    Bench bench;
    weirt_log_allow(" failed: "); // the transport may notice first
    if (bench_open(rank, &opts, room, 0, &bench)) {
        const Transfers before = { { 0, 2, 10, WEIR_U8, 1 }, { 1, 2, 20, WEIR_U8, 2 }, { 2, 3, 20, WEIR_U8, 3 } };
        bool alive = true;
        WEIRT_EXPECT(rank, run_list(&bench, before, 1, &alive).empty());
        (void)weirt_barrier(rank);
        if (rank->rank == 2) {
            die_last(rank);
        }
        // Rank 0 waits for rank 2 to take its data, rank 1 for data of rank 2, and rank 3 for data that passes through
        // memory of rank 2.
        const Transfers all = { { 0, 2, 90000, WEIR_U8, 1 }, { 2, 1, 300, WEIR_U8, 2 }, { 0, 3, 90000, WEIR_U8, 3 } };
        const List list = list_of(&bench, all, 1);
        const weir_status called = weir_exchange(bench.collective, list.transfers.data(),
                                                 static_cast<uint32_t>(list.transfers.size()), bench.stream);
        expect_death(&bench, called); // rank 3 may have got its data nevertheless
    }
    bench_leave(&bench);
}

const auto everywhere = ::testing::Values(0, 1, 2, 3);
const auto over_all = ::testing::Values(0, 1, 2);
const auto over_ipc = ::testing::Values(0);
HOSTS_SUITE(FarExchange, everywhere, over_all);
HOSTS_SUITE(FarExchangeTrouble, everywhere, over_ipc);
HOSTS_SUITE(FarExchangeDeath, ::testing::Values(1, 3), over_all);
HOSTS_SUITE(LongFarExchange, everywhere, over_all);

TEST_P(FarExchange, RandomTransfers)
{
    run(exchanges, 2, 2, 2, 1);
    if (!stage()->processes) {
        run(exchanges, 3, 1, 1, 2);
    }
}

TEST_P(FarExchange, PairsNeedNoOtherRank) { run(a_pair, 2, 2, 1, 1); }
TEST_P(FarExchange, ReplaysInAGraph) { run(replays, 2, 2, 1, 1); }
TEST_P(FarExchangeTrouble, ManyTransfersTakeSeveralLaunches) { run(many, 2, 2, 1, 1); }

TEST_P(FarExchangeTrouble, DifferentCountsAreNamed)
{
    for (uint32_t what = 0; what < 2; what++) {
        run(differs, 2, 2, 1, 1, what);
    }
}

TEST_P(FarExchangeTrouble, ADeadlineNamesThePeer) { run(nobody_sends, 2, 2, 1, 1); }
TEST_P(FarExchangeDeath, EndsTheOthersExchanges) { run(killed, 2, 2, 1, 1); }

TEST_P(LongFarExchange, MoreHosts)
{
    const uint32_t hosts[][2] = { { 2, 3 }, { 3, 2 }, { 2, 4 }, { 5, 1 }, { 4, 2 } };
    for (const auto &of : hosts) {
        run(exchanges, of[0], of[1], of[0] * of[1] > 6 ? 1 : 2, 1);
    }
    run(large, 3, 2, 3, 1);
}

} // namespace
