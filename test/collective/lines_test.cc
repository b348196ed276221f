// Collectives by lines of buffers at odd addresses and of odd lengths: many calls in one graph, each with buffers of
// its own, replayed with new data. On GPUs the ranks are then in step, so receivers poll while the lines arrive.
extern "C" {
#include "src/host/collective/collective.h"
}
#include "test/collective/operations.h"
#include "test/harness/stage_test.h"

namespace {

struct Load {
    Kind kind;
    bool parts;        // the operation of parts that moves the same data
    uint64_t most;     // elements of one call
    uint32_t calls;    // in a graph
    uint32_t launches; // of each graph
};

struct Row {
    Operation o;
    Places at;
};

uint64_t bytes_of(const Operation &o, uint32_t ranks)
{
    return (o.count * ranks * weir_dtype_bytes(o.dtype) + 2 * guard) / guard * guard + 2 * guard;
}

// Call `k` of a graph: its buffers lie behind those of the calls before it, `shift` elements off a multiple of 64.
std::vector<Row> rows_of(const Bench *b, const Load &load, weir_dtype dtype, uint64_t count, bool in_place)
{
    const uint32_t ranks = weir_collective_size(b->collective);
    std::vector<Row> rows;
    uint64_t at = 0;
    for (uint32_t k = 0; k < load.calls; k++) {
        const uint32_t shift = k % (8 / weir_dtype_bytes(dtype));
        const Operation o = { load.kind, dtype, WEIR_SUM, count + k, k % ranks, shift, in_place, true, 0 };
        Places places = places_of(b, o);
        places.send += at;
        places.recv += at;
        rows.push_back({ o, places });
        at += bytes_of(o, ranks);
    }
    return rows;
}

bool fill_all(const Bench *b, const std::vector<Row> &rows)
{
    const uint32_t rank = weir_collective_rank(b->collective);
    const uint32_t ranks = weir_collective_size(b->collective);
    const bool in_place = rows[0].o.in_place;
    bool fine = WEIRT_OK(
        b->rank, weir_device_fill(b->comm.device, weir_memory_pointer(b->out), poison, weir_memory_bytes(b->out)));
    Bytes all(weir_memory_bytes(b->in), poison);
    const weir_memory *memory = in_place ? b->out : b->in;
    char *base = static_cast<char *>(weir_memory_pointer(memory));
    for (const Row &row : rows) {
        const Bytes send = sent(row.o, rank, ranks);
        if (!send.empty()) {
            std::memcpy(all.data() + (row.at.send - base), send.data(), send.size());
        }
    }
    return fine && WEIRT_OK(b->rank, weir_device_copy(b->comm.device, base, all.data(), all.size())) &&
           weirt_barrier(b->rank);
}

void check_all(const Bench *b, const std::vector<Row> &rows)
{
    const uint32_t rank = weir_collective_rank(b->collective);
    const uint32_t ranks = weir_collective_size(b->collective);
    const char *base = static_cast<char *>(weir_memory_pointer(b->out));
    Bytes want(weir_memory_bytes(b->out), poison);
    Bytes have(want.size());
    for (const Row &row : rows) {
        const Bytes send = sent(row.o, rank, ranks);
        const Bytes recv = expected(row.o, rank, ranks);
        if (row.o.in_place && !send.empty()) {
            std::memcpy(want.data() + (row.at.send - base), send.data(), send.size());
        }
        if (!recv.empty()) {
            std::memcpy(want.data() + (row.at.recv - base), recv.data(), recv.size());
        }
    }
    if (!WEIRT_OK(b->rank, weir_device_copy(b->comm.device, have.data(), base, have.size()))) {
        return;
    }
    const size_t wrong = first_difference(have, want);
    size_t count = 0; // in all calls
    for (size_t i = wrong; i < have.size(); i++) {
        count += have[i] != want[i] ? 1 : 0;
    }
    for (size_t k = 0; k < rows.size() && wrong < have.size(); k++) {
        const char *end = k + 1 < rows.size() ? rows[k + 1].at.recv : base + have.size();
        if (base + wrong < end) {
            weirt_fail(b->rank, __FILE__, __LINE__,
                       "call %zu: %s: byte %lld of recv is %02x, expected %02x; %zu are wrong", k,
                       text_of(rows[k].o).c_str(), static_cast<long long>(base + wrong - rows[k].at.recv), have[wrong],
                       want[wrong], count);
            break;
        }
    }
}

weir_status call_row(const Bench *b, const Load &load, const Row &row)
{
    weir_extent extents[WEIR_COLLECTIVE_RANKS];
    for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS; k++) {
        extents[k] = { k * row.o.count, row.o.count };
    }
    return !load.parts ? call(b, row.o, row.at.send, row.at.recv)
           : load.kind == ALLGATHER
               ? weir_allgather_v(b->collective, row.at.send, row.at.recv, extents, row.o.dtype, b->stream)
               : weir_reduce_scatter_v(b->collective, row.at.send, row.at.recv, extents, row.o.dtype, row.o.op,
                                       b->stream);
}

// A graph of calls, launched several times with new data. A rank with wrong data goes on, because the others do.
bool replay_all(const Bench *b, const Load &load, std::vector<Row> rows)
{
    weir_device *device = b->comm.device;
    void *graph = nullptr;
    bool fine = WEIRT_OK(b->rank, weir_graph_begin(device, b->stream));
    for (const Row &row : rows) {
        fine = fine && WEIRT_OK(b->rank, call_row(b, load, row));
    }
    fine = fine && WEIRT_OK(b->rank, weir_graph_end(device, b->stream, &graph));
    for (uint32_t n = 0; n < load.launches && fine; n++) {
        for (uint32_t k = 0; k < load.calls; k++) {
            rows[k].o.seed = 1 + n * load.calls + k;
        }
        fine =
            fill_all(b, rows) && WEIRT_OK(b->rank, weir_graph_launch(device, graph, b->stream)) && finish(b, rows[0].o);
        if (fine) {
            check_all(b, rows);
        }
    }
    if (graph != nullptr) {
        weir_graph_destroy(device, graph);
    }
    return fine;
}

void odd_buffers(weirt_rank *rank)
{
    const Load load = *static_cast<const Load *>(rank->arg);
    const weir_dtype dtypes[] = { WEIR_U8, WEIR_F16, WEIR_F32 };
    weir_collective_opts opts = {};
    opts.size = sizeof opts;
    opts.staging_bytes = 32 << 20;
    if (std::strcmp(rank->stage->kind, "cpu") == 0) {
        opts.staging_bytes = 1 << 20;
        opts.blocks = 2;
        opts.threads = 2;
    } else {
        fit_together(rank, &opts);
    }
    const Operation most = { load.kind, WEIR_F32, WEIR_SUM, load.most + load.calls, 0, 0, false, true, 0 };
    Bench bench;
    bool fine = bench_open(rank, &opts, load.calls * bytes_of(most, rank->size), 0, &bench) &&
                WEIRT_OK(rank, weir_collective_force(bench.collective, WEIR_FORM_LINES, 0));
    for (const uint64_t count : { load.most, load.most / 13, load.most / 60 }) {
        for (const weir_dtype dtype : dtypes) {
            const bool in_place = (count + dtype) % 2 == 0 && load.kind != SCATTER && load.kind != MESSAGES;
            fine = fine && replay_all(&bench, load, rows_of(&bench, load, dtype, count, in_place));
        }
    }
    bench_close(&bench);
}

// As many lines as there is room for, in calls of one trip and of two, which use the rooms in other ways. Each call
// follows one that used the other half.
void full_rooms(weirt_rank *rank)
{
    weir_collective_opts opts = {};
    opts.size = sizeof opts;
    opts.form = WEIR_FORM_LINES;
    opts.staging_bytes = 512 << 10;
    if (std::strcmp(rank->stage->kind, "cpu") == 0) {
        opts.blocks = 2;
        opts.threads = 2;
    } else {
        fit_together(rank, &opts);
    }
    Bench b;
    bool fine = bench_open(rank, &opts, 8 << 20, 0, &b);
    const uint64_t room = fine ? b.collective->device.line_room / WEIR_LINE_BYTES * WEIR_LINE_DATA : 0;
    for (uint64_t turn = 0; turn < 10 && fine; turn++) {
        const Kind kinds[] = { REDUCE_SCATTER, REDUCE, ALLGATHER, ALLREDUCE, ALL_TO_ALL };
        const Kind kind = kinds[turn % 5];
        const bool two_trips = kind == REDUCE || (kind == ALLREDUCE && rank->size != 2);
        const uint64_t most = room * (rank->size != 2 ? 1 : two_trips ? 2 : 4);
        // Reductions in two trips have parts that are multiples of a unit of any form.
        const uint64_t fit = two_trips ? most / (WEIR_LINE_DATA * 16) * (WEIR_LINE_DATA * 16) * rank->size : most;
        const uint64_t count = fit / sizeof(double);
        const uint64_t more = (two_trips ? most * rank->size : most) / sizeof(double) + 1;
        const Operation o = { kind, WEIR_F64, WEIR_SUM, count, 1, 0, false, true, turn };
        const Operation longer = { kind, WEIR_F64, WEIR_SUM, more, 1, 0, false, true, turn };
        const Places at = places_of(&b, longer);
        fine = run(&b, o) && WEIRT_STATUS(rank, WEIR_ERR_LIMIT, call(&b, longer, at.send, at.recv)) &&
               WEIRT_TEXT(rank, "do not fit the forced form lines");
    }
    // What lies behind the lines is as it was: the mailboxes, the semaphores and the slots.
    fine = fine && WEIRT_OK(rank, weir_collective_force(b.collective, WEIR_FORM_SLOTS, 0));
    for (const Kind kind : { REDUCE_SCATTER, ALLREDUCE, ALLGATHER }) {
        fine = fine && run(&b, { kind, WEIR_F64, WEIR_SUM, 10000, 0, 0, false, true, 20 });
    }
    bench_close(&b);
}

WEIRT_STAGE_DATA_SUITE(Lines);

void run_all(const weirt_stage *stage, Kind kind, bool parts)
{
    const bool gpu = std::strcmp(stage->kind, "gpu") == 0;
    for (const uint32_t ranks : { 2, 3, 8 }) {
        const Load load = { kind, parts, gpu ? 200000u / ranks : 601u, gpu ? 12u : 6u, gpu ? 6u : 2u };
        weirt_ranks_run(stage, ranks, odd_buffers, &load, sizeof load);
        if (stage->processes && !gpu) {
            break;
        }
    }
}

TEST_P(Lines, FillTheirRooms)
{
    for (const uint32_t ranks : { 2, 3 }) {
        weirt_ranks_run(stage(), ranks, full_rooms, nullptr, 0);
    }
}

TEST_P(Lines, OfOddBuffersInAllreduce) { run_all(stage(), ALLREDUCE, false); }
TEST_P(Lines, OfOddBuffersInReduce) { run_all(stage(), REDUCE, false); }
TEST_P(Lines, OfOddBuffersInReduceScatter) { run_all(stage(), REDUCE_SCATTER, false); }
TEST_P(Lines, OfOddBuffersInAllgather) { run_all(stage(), ALLGATHER, false); }
TEST_P(Lines, OfOddBuffersInBroadcast) { run_all(stage(), BROADCAST, false); }
TEST_P(Lines, OfOddBuffersInAllToAll) { run_all(stage(), ALL_TO_ALL, false); }
TEST_P(Lines, OfOddBuffersInGather) { run_all(stage(), GATHER, false); }
TEST_P(Lines, OfOddBuffersInScatter) { run_all(stage(), SCATTER, false); }
TEST_P(Lines, OfOddBuffersInMessages) { run_all(stage(), MESSAGES, false); }
TEST_P(Lines, OfOddBuffersInPartsOfAllgather) { run_all(stage(), ALLGATHER, true); }
TEST_P(Lines, OfOddBuffersInPartsOfReduceScatter) { run_all(stage(), REDUCE_SCATTER, true); }

} // namespace
