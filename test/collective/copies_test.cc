// WEIR_FORM_COPIES: copy engines move the data of registered memory.
extern "C" {
#include "src/host/collective/collective.h"
#include "src/host/comm/exchange.h"
}
#include "test/collective/transfers.h"
#include "test/harness/checks.h"
#include "test/harness/stage_test.h"
#include "test/harness/staged.h"

namespace {

const Kind moves[] = { ALLGATHER, BROADCAST, ALL_TO_ALL, GATHER, SCATTER, ALLREDUCE };

bool copies_open(weirt_rank *rank, uint32_t kernel_timeout_ms, Bench *bench)
{
    weir_collective_opts opts = {};
    opts.size = sizeof opts;
    opts.staging_bytes = 128 << 10;
    opts.form = WEIR_FORM_COPIES;
    return bench_open_kernels(rank, &opts, 64 << 10, kernel_timeout_ms, bench) &&
           WEIRT_OK(rank, weir_collective_register(bench->collective, bench->out));
}

// Every rank gives recv.
weir_status copy(const Bench *b, const Operation &o, const Places &at)
{
    return o.kind == GATHER ? weir_gather(b->collective, at.send, at.recv, o.count, o.dtype, o.root, b->stream)
                            : call(b, o, at.send, at.recv);
}

Operation operation(Kind kind, uint64_t count, uint32_t root, bool in_place, uint64_t seed)
{
    return { kind, seed % 2 != 0 ? WEIR_U8 : WEIR_F64, WEIR_SUM, count, root, 0, in_place, false, seed };
}

void sizes(weirt_rank *rank)
{
    Bench bench;
    bool fine = copies_open(rank, 0, &bench);
    uint64_t seed = 10;
    for (const Kind kind : moves) {
        for (const uint64_t count : { 0, 1, 333, 1000 }) {
            const uint32_t root = static_cast<uint32_t>(seed % rank->size);
            const bool in_place = (kind == ALLGATHER || kind == BROADCAST || kind == ALLREDUCE) && seed % 3 == 0;
            const Operation o = operation(kind, count, root, in_place, seed++);
            const Places at = fine ? places_of(&bench, o) : Places();
            fine = fine && prepare(&bench, o, at) && WEIRT_OK(rank, copy(&bench, o, at)) && finish(&bench, o) &&
                   check(&bench, o, at);
        }
    }
    // Other forms go on in step.
    fine = fine && WEIRT_OK(rank, weir_collective_force(bench.collective, WEIR_FORM_SLOTS, 0)) &&
           run(&bench, operation(ALLGATHER, 100, 0, false, 3));
    bench_close(&bench);
}

WEIRT_STAGE_SUITE(Copies);

TEST_P(Copies, MoveAllSizes)
{
    for (const uint32_t ranks : { 3, 1, 2, 8 }) {
        weirt_ranks_run(stage(), ranks, sizes, nullptr, 0);
        if (stage()->processes && std::strcmp(stage()->kind, "cpu") == 0) {
            break;
        }
    }
}

// All moves in one graph, three times with new data: the words of the copies start at 0 each time.
void replays(weirt_rank *rank)
{
    Bench bench;
    bool fine = copies_open(rank, 0, &bench);
    for (const Kind kind : moves) {
        const Operation o = operation(kind, 300, 1, false, 1);
        const Places at = fine ? places_of(&bench, o) : Places();
        fine = fine && replay(&bench, { kind, WEIR_U8, WEIR_SUM, 300, 1, 0, false, false, 0 }, at, 3,
                              [&] { return WEIRT_OK(rank, copy(&bench, o, at)); });
    }
    bench_close(&bench);
}

TEST_P(Copies, ReplayInAGraph) { run(3, replays); }

// Two streams record graphs at once. The stream on which own parts are copied is in the first graph until that one
// ends.
void records_two(weirt_rank *rank)
{
    Bench bench;
    Bench other; // the same on another stream
    bool fine = copies_open(rank, 0, &bench);
    weir_device *device = bench.comm.device;
    void *graphs[2] = { nullptr, nullptr };
    const Operation o = operation(ALLGATHER, 300, 0, false, 1);
    const Places at = fine ? places_of(&bench, o) : Places();
    other = bench;
    other.stream = nullptr;
    fine = fine && WEIRT_OK(rank, weir_stream_create(device, &other.stream));
    const Bench *const both[] = { &bench, &other };
    for (const Bench *b : both) {
        fine = fine && WEIRT_OK(rank, weir_graph_begin(device, b->stream)) && WEIRT_OK(rank, copy(b, o, at));
    }
    for (uint32_t i = 0; i < 2 && fine; i++) {
        fine = WEIRT_OK(rank, weir_graph_end(device, both[i]->stream, &graphs[i]));
    }
    for (uint32_t i = 0; i < 4 && fine; i++) {
        const Bench *b = both[i % 2];
        const Operation now = operation(ALLGATHER, 300, 0, false, 2 * i + 1);
        fine = prepare(b, now, at) && WEIRT_OK(rank, weir_graph_launch(device, graphs[i % 2], b->stream)) &&
               finish(b, now) && check(b, now, at);
    }
    for (void *graph : graphs) {
        if (graph != nullptr) {
            weir_graph_destroy(device, graph);
        }
    }
    if (other.stream != nullptr) {
        weir_stream_destroy(device, other.stream);
    }
    bench_close(&bench);
}

TEST_P(Copies, TwoGraphsAreRecordedAtOnce) { run(3, records_two); }

void refused(const Bench *b, const char *part, weir_status status)
{
    if (status != WEIR_ERR_UNSUPPORTED) {
        weirt_fail(b->rank, __FILE__, __LINE__, "%s: status %d", part, status);
    }
    WEIRT_TEXT(b->rank, part);
}

void refuses(weirt_rank *rank)
{
    Bench bench;
    if (copies_open(rank, 0, &bench)) {
        weir_collective *c = bench.collective;
        char *in = static_cast<char *>(weir_memory_pointer(bench.in));
        char *out = static_cast<char *>(weir_memory_pointer(bench.out));
        void *s = bench.stream;
        const weir_transfer t = { in, 1, WEIR_U8, 1 - rank->rank, true };
        const weir_collective_request moved = { WEIR_ALLGATHER, WEIR_U8, WEIR_SUM, 0, 100, in, out };
        const weir_extent extents[] = { { 0, 4 }, { 4, 4 } };
        weir_collective_form form = WEIR_FORM_AUTO;
        weir_shape shape = { 0, 0 };
        refused(&bench, "WEIR_FORM_COPIES is forced, but copy engines cannot reduce",
                weir_reduce(c, in, out, 1, WEIR_F32, WEIR_SUM, 0, s));
        refused(&bench, "copies need recv in registered memory", weir_allreduce(c, out, in, 1, WEIR_F32, WEIR_SUM, s));
        refused(&bench, "WEIR_FORM_COPIES is forced, but copy engines cannot reduce",
                weir_reduce_scatter(c, in, out, 1, WEIR_F32, WEIR_SUM, s));
        refused(&bench, "registered memory", weir_allgather(c, out, in, 1, WEIR_F32, s));
        refused(&bench, "registered memory",
                weir_gather(c, in, rank->rank == 0 ? in + 64 : nullptr, 1, WEIR_F32, 0, s));
        refused(&bench, "not in place", weir_all_to_all(c, out, out, 1, WEIR_F32, s));
        refused(&bench, "copies need the buffer of a receive in registered memory", weir_exchange(c, &t, 1, s));
        refused(&bench, "pieces of different sizes", weir_gather_v(c, in, out, extents, WEIR_U8, 0, s));
        refused(&bench, "pieces of different sizes", weir_scatter_v(c, in, out, extents, WEIR_U8, 0, s));
        refused(&bench, "pieces of different sizes", weir_all_to_all_v(c, in, extents, out, extents, WEIR_U8, s));
        refused(&bench, "carry no parts", weir_allgather_v(c, in, out, extents, WEIR_U8, s));
        WEIRT_OK(rank, weir_collective_choose(c, &moved, &form, &shape));
        WEIRT_EXPECT(rank, form == WEIR_FORM_COPIES && shape.blocks == 1 && shape.threads <= 32);
        // Nothing was launched.
        const Operation o = operation(ALLGATHER, 10, 0, false, 1);
        const Places at = places_of(&bench, o);
        (void)(prepare(&bench, o, at) && WEIRT_OK(rank, copy(&bench, o, at)) && finish(&bench, o) &&
               check(&bench, o, at));
    }
    bench_close(&bench);
}

TEST_P(Copies, RefuseWhatTheyCannotDo) { run(2, refuses); }

// One rank after the other calls alone. Its device refuses the store, and the stream is left without work.
void stores_refused(weirt_rank *rank)
{
    Bench bench;
    void *graph = nullptr;
    if (copies_open(rank, 0, &bench)) {
        weir_device *device = bench.comm.device;
        for (uint32_t turn = 0; turn < rank->size; turn++) {
            for (const Kind kind : { ALLGATHER, ALLREDUCE }) {
                const Operation o = operation(kind, 100, 0, false, 1);
                const Places at = places_of(&bench, o);
                if (turn == rank->rank) {
                    weirt_refuse_stores(device, true);
                    refused(&bench, "is forced, but a device of a test stores nothing", copy(&bench, o, at));
                    WEIRT_OK(rank, weir_stream_wait(device, bench.stream, weirt_timeout_ms()));
                    WEIRT_OK(rank, weir_graph_begin(device, bench.stream));
                    refused(&bench, "is forced, but a device of a test stores nothing", copy(&bench, o, at));
                    (void)(WEIRT_OK(rank, weir_graph_end(device, bench.stream, &graph)) &&
                           WEIRT_OK(rank, weir_graph_launch(device, graph, bench.stream)));
                    WEIRT_OK(rank, weir_stream_wait(device, bench.stream, weirt_timeout_ms()));
                    weir_graph_destroy(device, graph);
                    weirt_refuse_stores(device, false);
                }
                (void)weirt_barrier(rank);
                WEIRT_OK(rank, weir_comm_status(bench.comm.comm));
            }
        }
        const Operation o = operation(ALLGATHER, 100, 0, false, 2);
        const Places at = places_of(&bench, o);
        (void)(prepare(&bench, o, at) && WEIRT_OK(rank, copy(&bench, o, at)) && finish(&bench, o) &&
               check(&bench, o, at));
    }
    bench_close(&bench);
}

TEST_P(Copies, LaunchNothingIfStoresAreRefused)
{
    if (std::strcmp(stage()->kind, "cpu") != 0) {
        GTEST_SKIP() << "a GPU's driver stores";
    }
    run(2, stores_refused);
}

// Rank 1 holds its copies: the wait of rank 0 ends at its deadline, or as soon as rank 1 aborts.
void held(weirt_rank *rank)
{
    const bool aborts = *static_cast<const bool *>(rank->arg);
    Bench bench;
    weirt_log_allow("");
    if (copies_open(rank, aborts ? 0 : 150, &bench)) {
        const Operation o = operation(ALLGATHER, 100, 0, false, 2);
        const Places at = places_of(&bench, o);
        if (rank->rank == 1) {
            weirt_hold_copies(bench.comm.device);
        }
        (void)weirt_barrier(rank);
        const uint64_t since = weirt_now_ms();
        WEIRT_OK(rank, copy(&bench, o, at));
        while (rank->rank == 1 && weirt_copies_begun() == 0 && weirt_now_ms() - since < weirt_timeout_ms()) {
            weirt_sleep_ms(1);
        }
        if (aborts && rank->rank == 1) {
            weir_comm_abort(bench.comm.comm);
        }
        if (rank->rank == 0) {
            WEIRT_OK(rank, weir_stream_wait(bench.comm.device, bench.stream, weirt_timeout_ms()));
            WEIRT_EXPECT(rank, aborts || weirt_now_ms() - since >= 150);
            WEIRT_EXPECT(rank, weirt_now_ms() - since < 150 + weirt_slack_ms());
            WEIRT_STATUS(rank, aborts ? WEIR_ERR_ABORTED : WEIR_ERR_TIMEOUT, weir_comm_status(bench.comm.comm));
            WEIRT_TEXT(rank, aborts ? "rank 1" : "weir_allgather of 800 bytes: nothing came from rank 1");
        }
        (void)weirt_barrier(rank);
        weirt_release_copies();
        WEIRT_OK(rank, weir_stream_wait(bench.comm.device, bench.stream, weirt_timeout_ms()));
        WEIRT_EXPECT(rank, weir_comm_status(bench.comm.comm) != WEIR_OK);
    }
    bench_close(&bench);
}

TEST_P(Copies, WaitsEnd)
{
    if (std::strcmp(stage()->kind, "cpu") != 0) {
        GTEST_SKIP() << "copies of a GPU cannot be held";
    }
    for (const bool aborts : { false, true }) {
        weirt_ranks_run(stage(), 2, held, &aborts, sizeof aborts);
    }
}

// Rank 0 holds a copy on its stream, and then receives: rank 1 must not write the buffer before the copy has ended.
void receives_late(weirt_rank *rank)
{
    Bench b;
    if (copies_open(rank, 0, &b)) {
        weir_device *device = b.comm.device;
        const Transfers first = { { 0, 0, 300, WEIR_U8, 12 } };
        const Transfers second = { { 1, 0, 300, WEIR_U8, 2 }, { 1, 0, 2000, WEIR_U8, 3 } };
        const List lists[] = { list_of(&b, first, 1), list_of(&b, second, 1) };
        const char *out = static_cast<char *>(weir_memory_pointer(b.out));
        (void)prepare_list(&b, lists[1]);
        if (rank->rank == 0) {
            weirt_hold_copies(device);
        }
        (void)weirt_barrier(rank);
        for (const List &list : lists) {
            WEIRT_OK(rank, weir_exchange(b.collective, list.transfers.data(),
                                         static_cast<uint32_t>(list.transfers.size()), b.stream));
        }
        (void)weirt_barrier(rank);
        weirt_sleep_ms(50);
        if (rank->rank == 0) {
            Bytes have(weir_memory_bytes(b.out));
            WEIRT_OK(rank, weir_device_copy(device, have.data(), out, have.size()));
            WEIRT_EXPECT(rank, have == Bytes(have.size(), poison));
            weirt_release_copies();
        }
        WEIRT_OK(rank, weir_stream_wait(device, b.stream, weirt_timeout_ms()));
        WEIRT_OK(rank, weir_comm_status(b.comm.comm));
        WEIRT_EXPECT(rank, wrong(&b, lists[1]).empty()); // its first receive lies where the held copy wrote
    }
    bench_close(&b);
}

TEST_P(Copies, OfAnExchangeWaitForTheReceiver)
{
    if (std::strcmp(stage()->kind, "cpu") != 0) {
        GTEST_SKIP() << "copies of a GPU cannot be held";
    }
    run(2, receives_late);
}

// Rank 1 holds the copies of its call with two sends: the receiver's wait ends behind the second.
void holds_sends(weirt_rank *rank)
{
    Bench b;
    if (copies_open(rank, 0, &b)) {
        const Transfers all = { { 1, 0, 0, WEIR_U8, 1 }, { 1, 0, 2000, WEIR_U8, 2 } };
        const List list = list_of(&b, all, 1);
        (void)prepare_list(&b, list);
        if (rank->rank == 1) {
            weirt_hold_copies(b.comm.device);
        }
        (void)weirt_barrier(rank);
        WEIRT_OK(rank, weir_exchange(b.collective, list.transfers.data(), 2, b.stream));
        if (rank->rank == 0) {
            WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_stream_wait(b.comm.device, b.stream, 50));
        }
        (void)weirt_barrier(rank);
        weirt_release_copies();
        WEIRT_OK(rank, weir_stream_wait(b.comm.device, b.stream, weirt_timeout_ms()));
        WEIRT_OK(rank, weir_comm_status(b.comm.comm));
        WEIRT_EXPECT(rank, wrong(&b, list).empty());
    }
    bench_close(&b);
}

TEST_P(Copies, OfAnExchangeEndBehindTheLast)
{
    if (std::strcmp(stage()->kind, "cpu") != 0) {
        GTEST_SKIP() << "copies of a GPU cannot be held";
    }
    run(2, holds_sends);
}

// Rank 1 sends a message that no call sends: rank 0's call ends in an error, and copies nothing. The last message is
// one of a call.
void malformed(weirt_rank *rank)
{
    struct Message {
        uint8_t receive;
        uint8_t posts;
        uint32_t place;
        uint32_t total;
        uint64_t count;
        uint8_t dtype;
        uint64_t offset;
        uint16_t row;
        size_t cut; // bytes that are missing
    };
    const Message messages[] = {
        { 2, 1, 0, 1, 8, WEIR_U8, 0, 1, 0 },
        { 1, 0, 0, 1, 8, WEIR_U8, 0, 1, 0 },
        { 1, 2, 0, 2, 8, WEIR_U8, 0, 1, 0 },
        { 1, 1, 1, 1, 8, WEIR_U8, 0, 1, 0 },
        { 1, 1, 0, 1, 8, WEIR_DTYPES, 0, 1, 0 },
        { 1, 1, 0, 1, 8, WEIR_U8, 0, 0, 0 },
        { 1, 1, 0, 1, 8, WEIR_U8, 0, 2, 0 },
        { 1, 1, 0, 1, 8, WEIR_U8, UINT64_MAX, 1, 0 },
        { 1, 1, 0, 1, 8, WEIR_U8, 1 << 17, 1, 0 },
        { 1, 1, 0, 1, UINT64_MAX, WEIR_U8, 0, 1, 0 },
        { 1, 1, 0, 1, 8, WEIR_U8, 0, 1, 1 },
        { 1, 1, UINT32_MAX, 1, 8, WEIR_U8, 0, 1, 0 },
        { 1, 1, 0, 1, 200000, WEIR_U8, 0, 1, 0 },
        { 1, 1, 0, 1, 8, WEIR_U8, 0, WEIRI_REGISTERED_MOST + 1, 0 },
        { 1, 1, 0, 1, 8, WEIR_U8, 0, WEIRI_ROWS + 1, 0 },
        { 1, 1, 0, 1, 8, WEIR_U8, 0, 1, 0 },
    };
    weirt_log_allow("");
    for (const Message &m : messages) {
        Bench b;
        if (copies_open(rank, 0, &b)) {
            char *in = static_cast<char *>(weir_memory_pointer(b.in));
            (void)weirt_barrier(rank);
            if (rank->rank == 1) {
                uint8_t payload[64];
                weiri_writer w = weiri_writer_init(payload, sizeof payload);
                weiri_write_u8(&w, m.receive);
                weiri_write_u8(&w, m.posts);
                weiri_write_u32(&w, m.total);
                weiri_write_u32(&w, m.place);
                weiri_write_u64(&w, m.count);
                weiri_write_u8(&w, m.dtype);
                weiri_write_u64(&w, m.offset);
                weiri_write_u16(&w, m.row);
                const weiri_op_message message = { WEIRI_OP_TRANSFERS, payload, w.size - m.cut, {}, 0 };
                WEIRT_OK(rank, weiri_exchange_send(b.comm.comm, 0,
                                                   weiri_collective_tag(b.collective, WEIRI_TAG_TRANSFERS), &message));
            } else {
                const bool good = &m == std::end(messages) - 1;
                WEIRT_STATUS(rank, good ? WEIR_OK : WEIR_ERR_CORRUPT,
                             weir_send(b.collective, in, 8, WEIR_U8, 1, b.stream));
                if (good) {
                    weir_comm_abort(b.comm.comm); // rank 1 never lets the copy begin
                } else {
                    WEIRT_TEXT(rank, "malformed transfers of rank 1");
                }
            }
            (void)weirt_barrier(rank);
        }
        bench_close(&b);
    }
}

TEST_P(Copies, OfAnExchangeRefuseMalformedMessages) { run(2, malformed); }

void differs(weirt_rank *rank)
{
    Bench bench;
    weirt_log_allow("");
    if (copies_open(rank, 0, &bench)) {
        const Operation o = operation(ALLGATHER, rank->rank == 1 ? 101 : 100, 0, false, 1);
        const Places at = places_of(&bench, o);
        (void)weirt_barrier(rank); // no rank finds the error in its setup
        expect_mismatch(&bench, copy(&bench, o, at), "allgather of 101 u8");
    }
    bench_close(&bench);
}

TEST_P(Copies, NameDifferentCounts)
{
    if (std::string(weirt_sanitizer()) == "thread") {
        GTEST_SKIP() << "copies of calls that differ may overlap";
    }
    run(3, differs);
}

WEIRT_PROCESS_SUITE(CopiesDeath);

// Rank 2 sends something: it is the root of what only a root sends.
Operation sent_by_two(const weirt_rank *rank, uint64_t seed)
{
    const Kind kind = *static_cast<const Kind *>(rank->arg);
    return operation(kind, 1000, kind == BROADCAST || kind == SCATTER ? 2 : 0, false, seed);
}

// Rank 2 dies before its call.
void killed(weirt_rank *rank)
{
    Bench bench;
    if (copies_open(rank, 0, &bench)) {
        const Operation o = sent_by_two(rank, 1);
        const Places at = places_of(&bench, o);
        (void)(prepare(&bench, o, at) && WEIRT_OK(rank, copy(&bench, o, at)) && finish(&bench, o) &&
               check(&bench, o, at));
        (void)weirt_barrier(rank);
        if (rank->rank == 2) {
            die_last(rank);
        }
        expect_death(&bench, copy(&bench, o, at));
    }
    bench_leave(&bench);
}

// Rank 2 dies while its copies are under way: the first of those to others, and beside it that of its own part, which
// an allreduce and the sender of a gather do not have.
void killed_in_copies(weirt_rank *rank)
{
    Bench bench;
    if (copies_open(rank, 0, &bench)) {
        const Operation o = sent_by_two(rank, 2);
        const uint32_t copies = o.kind == ALLREDUCE || o.kind == GATHER ? 1 : 2;
        const Places at = places_of(&bench, o);
        (void)prepare(&bench, o, at);
        if (rank->rank == 2) {
            weirt_hold_copies(bench.comm.device);
        }
        const weir_status called = copy(&bench, o, at);
        if (rank->rank == 2) {
            const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
            while (weirt_copies_begun() < copies && weirt_now_ms() < end) {
                weirt_sleep_ms(1);
            }
            WEIRT_EXPECT(rank, called == WEIR_OK && weirt_copies_begun() == copies);
            die_last(rank);
        }
        expect_death(&bench, called);
    }
    bench_leave(&bench);
}

// Rank 2 dies before its call, for which rank 0 waits on the host; or while it copies, and rank 0 waits on its stream.
// Rank 1 waits for rank 0.
void killed_in_exchange(weirt_rank *rank)
{
    const bool copying = *static_cast<const bool *>(rank->arg);
    Bench b;
    if (copies_open(rank, 0, &b)) {
        const Transfers all = { { 0, 1, 300, WEIR_U8, 1 }, { 2, 0, 2000, WEIR_U8, 3 } };
        const List list = list_of(&b, all, 1);
        const uint32_t n = static_cast<uint32_t>(list.transfers.size());
        (void)weirt_barrier(rank);
        if (rank->rank == 2 && copying) {
            weirt_hold_copies(b.comm.device);
            WEIRT_OK(rank, weir_exchange(b.collective, list.transfers.data(), n, b.stream));
            const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
            while (weirt_copies_begun() == 0 && weirt_now_ms() < end) {
                weirt_sleep_ms(1);
            }
            WEIRT_EXPECT(rank, weirt_copies_begun() == 1);
            die_last(rank);
        } else if (rank->rank == 2) {
            weirt_die(rank, WEIRT_KILL);
        }
        expect_death(&b, weir_exchange(b.collective, list.transfers.data(), n, b.stream));
    }
    bench_leave(&b);
}

TEST_P(CopiesDeath, EndsTheOthersExchange)
{
    for (const bool copying : { false, true }) {
        if (!copying || std::strcmp(stage()->kind, "cpu") == 0) { // copies of a GPU cannot be held
            weirt_ranks_run(stage(), 3, killed_in_exchange, &copying, sizeof copying);
        }
    }
}

TEST_P(CopiesDeath, EndsTheOthersInTheirCopies)
{
    if (std::strcmp(stage()->kind, "cpu") != 0) {
        GTEST_SKIP() << "copies of a GPU cannot be held";
    }
    for (const Kind kind : moves) {
        weirt_ranks_run(stage(), 3, killed_in_copies, &kind, sizeof kind);
    }
}

TEST_P(CopiesDeath, EndsTheOthers)
{
    for (const Kind kind : moves) {
        weirt_ranks_run(stage(), 3, killed, &kind, sizeof kind);
    }
}

} // namespace
