// Streams of few multiprocessors in place of ordinary ones: kernels of two ranks, graphs, events, collectives, tables.
#include <vector>

#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

namespace {

WEIRT_STAGE_SUITE(StreamLimited);

constexpr uint64_t BYTES = 4000;
constexpr uint32_t ROWS = 500; // of BYTES / ROWS bytes

// Replaces the stream of the pair. False without a failure if the driver has no such streams.
bool limit(weirt_rank *rank, weirt_channel *c)
{
    void *limited = nullptr;
    const weir_stream_limits limits = { sizeof limits, 2, 0 };
    const weir_status status = weir_stream_create_limited(c->comm.device, &limits, &limited);
    if (status == WEIR_ERR_UNSUPPORTED) {
        (void)WEIRT_TEXT(rank, "multiprocessors");
        return false;
    }
    if (!WEIRT_STATUS(rank, WEIR_OK, status)) {
        return false;
    }
    weir_stream_destroy(c->comm.device, c->pair.stream);
    c->pair.stream = limited;
    return WEIRT_EXPECT(rank, weir_stream_multiprocessors(c->comm.device, limited) >= 1);
}

// Both ranks exchange packets, whose blocks meet at the grid barrier: once plainly, and twice as a graph.
bool exchange(weirt_rank *rank, const weirt_channel *c)
{
    void *graph = nullptr;
    void *events[2] = { nullptr, nullptr };
    double ms = -1;
    weirt_transfer_args args = weirt_transfer_of(rank, &c->pair);
    args.op = WEIRT_EXCHANGE_LL16;
    args.group = WEIRT_GRID;
    args.first = args.last = BYTES;
    bool good = WEIRT_OK(rank, weir_kernel_load(c->comm.device, weirt_transfer_kernel())) && weirt_barrier(rank);
    for (void *&event : events) {
        good = good && WEIRT_OK(rank, weir_event_create(c->comm.device, &event));
    }
    good = good && WEIRT_OK(rank, weir_event_record(c->comm.device, events[0], c->pair.stream)) &&
           weirt_launch(rank, &c->pair, weirt_transfer_kernel(), &args) &&
           WEIRT_OK(rank, weir_graph_begin(c->comm.device, c->pair.stream)) &&
           weirt_launch(rank, &c->pair, weirt_transfer_kernel(), &args) &&
           WEIRT_OK(rank, weir_graph_end(c->comm.device, c->pair.stream, &graph)) &&
           WEIRT_OK(rank, weir_graph_launch(c->comm.device, graph, c->pair.stream)) &&
           WEIRT_OK(rank, weir_graph_launch(c->comm.device, graph, c->pair.stream)) &&
           WEIRT_OK(rank, weir_event_record(c->comm.device, events[1], c->pair.stream)) &&
           weirt_finish(rank, &c->pair) &&
           WEIRT_OK(rank, weir_event_elapsed(c->comm.device, events[0], events[1], &ms)) &&
           WEIRT_EXPECT(rank, ms >= 0 && c->pair.report->iterations == 3 && c->pair.report->wrong == 0);
    weir_graph_destroy(c->comm.device, graph);
    weir_event_destroy(c->comm.device, events[0]);
    weir_event_destroy(c->comm.device, events[1]);
    return good;
}

// Every form of an allreduce, with as few blocks as the stream has multiprocessors.
bool sum(weirt_rank *rank, const weirt_channel *c, weir_memory *words)
{
    weir_collective *collective = nullptr;
    weir_collective_opts opts = WEIR_OPTS(weir_collective_opts);
    opts.blocks = 2;
    opts.staging_bytes = 1 << 20;
    float *host = static_cast<float *>(weir_memory_host_pointer(words));
    bool good = WEIRT_OK(rank, weir_collective_create(c->comm.comm, &opts, &collective));
    for (weir_collective_form form : { WEIR_FORM_ONCE, WEIR_FORM_LINES, WEIR_FORM_SLOTS }) {
        for (uint32_t i = 0; i < BYTES / 4; i++) {
            host[i] = static_cast<float>(i + rank->rank);
        }
        void *pointer = weir_memory_pointer(words);
        good = good && WEIRT_OK(rank, weir_collective_force(collective, form, 0)) &&
               WEIRT_OK(rank,
                        weir_allreduce(collective, pointer, pointer, BYTES / 4, WEIR_F32, WEIR_SUM, c->pair.stream)) &&
               weirt_finish(rank, &c->pair);
        for (uint32_t i = 0; i < BYTES / 4 && good; i++) {
            good = WEIRT_EXPECT(rank, host[i] == static_cast<float>(2 * i + 1));
        }
    }
    good = weirt_barrier(rank) && good;
    weir_collective_destroy(collective);
    return good;
}

// The rows of `words` in reverse order.
bool gather(weirt_rank *rank, const weirt_channel *c, weir_memory *words, weir_memory *out)
{
    weir_table *table = nullptr;
    uint32_t *host = static_cast<uint32_t *>(weir_memory_host_pointer(words));
    uint32_t *result = static_cast<uint32_t *>(weir_memory_host_pointer(out));
    int32_t *ids = reinterpret_cast<int32_t *>(result) + BYTES / 4;
    const weir_table_part part = { words, nullptr, 0, ROWS, 0 };
    for (uint32_t i = 0; i < BYTES / 4; i++) {
        host[i] = i * 7;
        ids[i] = static_cast<int32_t>(ROWS - 1 - i);
    }
    bool good =
        WEIRT_OK(rank, weir_table_create(c->comm.device, BYTES / ROWS, &part, 1, nullptr, &table)) &&
        WEIRT_OK(rank, weir_table_gather(table, static_cast<char *>(weir_memory_pointer(out)) + BYTES, WEIR_IDS_I32,
                                         ROWS, weir_memory_pointer(out), nullptr, c->pair.stream)) &&
        weirt_finish(rank, &c->pair) && WEIRT_OK(rank, weir_table_status(table));
    for (uint32_t i = 0; i < BYTES / 4 && good; i++) {
        good = WEIRT_EXPECT(rank, result[i] == (2 * (ROWS - 1 - i / 2) + i % 2) * 7);
    }
    weir_table_destroy(table);
    return good;
}

void in_place_of_ordinary(weirt_rank *rank)
{
    weirt_channel c;
    weir_memory *words = nullptr;
    weir_memory *out = nullptr;
    weir_memory_opts host = WEIR_OPTS(weir_memory_opts);
    host.kind = WEIR_MEMORY_HOST;
    if (weirt_channel_open(rank, 0, 2 * BYTES, &c) && limit(rank, &c) &&
        WEIRT_OK(rank, weir_memory_allocate(c.comm.comm, BYTES, &host, &words)) &&
        WEIRT_OK(rank, weir_memory_allocate(c.comm.comm, 2 * BYTES, &host, &out))) {
        WEIRT_EXPECT(rank, exchange(rank, &c) && sum(rank, &c, words) && gather(rank, &c, words, out));
    }
    weir_memory_destroy(out);
    weir_memory_destroy(words);
    weirt_channel_close(rank, &c);
}

TEST_P(StreamLimited, InPlaceOfOrdinaryOnes) { run(2, in_place_of_ordinary); }

} // namespace
