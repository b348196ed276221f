// Streams that wait for events, recorded or not; the default streams; memory of a device without a communicator.
#include <cstring>
#include <string>
#include <vector>

#include "test/harness/checks.h"
#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

namespace {

WEIRT_STAGE_SUITE(Stream);

constexpr uint64_t WORDS = 1 << 18;

void *const LEGACY = reinterpret_cast<void *>(1);     // cudaStreamLegacy
void *const PER_THREAD = reinterpret_cast<void *>(2); // cudaStreamPerThread

// Three buffers of a rank, two streams, two events, and a collective of this rank alone, whose allgather copies.
struct bench {
    weirt_comm c = {};
    weir_collective *copies = nullptr;
    void *streams[2] = {};
    void *events[2] = {};
    void *data[3] = {};

    bool open(weirt_rank *rank)
    {
        const uint32_t me[] = { rank->rank };
        const weir_group group = { me, 1 };
        weir_collective_opts opts = WEIR_OPTS(weir_collective_opts);
        opts.group = &group;
        opts.staging_bytes = 128 << 10;
        bool good = weirt_comm_open(rank, 0, &c) && WEIRT_OK(rank, weir_collective_create(c.comm, &opts, &copies));
        for (int i = 0; i < 2 && good; i++) {
            good = WEIRT_OK(rank, weir_stream_create(c.device, &streams[i])) &&
                   WEIRT_OK(rank, weir_event_create(c.device, &events[i]));
        }
        for (void *&d : data) {
            good = good && WEIRT_OK(rank, weir_device_allocate(c.device, 4 * WORDS, &d));
        }
        return good;
    }
    void close()
    {
        for (void *d : data) {
            weir_device_free(c.device, d);
        }
        for (int i = 0; i < 2; i++) {
            weir_event_destroy(c.device, events[i]);
            weir_stream_destroy(c.device, streams[i]);
        }
        weir_collective_destroy(copies);
        weirt_comm_close(&c);
    }
    bool copy(weirt_rank *rank, int from, int to, void *stream) const
    {
        return WEIRT_OK(rank, weir_allgather(copies, data[from], data[to], WORDS, WEIR_U32, stream));
    }
    bool set(weirt_rank *rank, uint32_t seed) const
    {
        std::vector<uint32_t> words(WORDS);
        for (uint64_t i = 0; i < WORDS; i++) {
            words[i] = static_cast<uint32_t>(i * 2654435761u + seed);
        }
        return WEIRT_OK(rank, weir_device_copy(c.device, data[0], words.data(), 4 * WORDS));
    }
    bool has(weirt_rank *rank, int which, uint32_t seed) const
    {
        std::vector<uint32_t> words(WORDS);
        bool right = WEIRT_OK(rank, weir_device_copy(c.device, words.data(), data[which], 4 * WORDS));
        for (uint64_t i = 0; i < WORDS && right; i++) {
            right = WEIRT_EXPECT(rank, words[i] == static_cast<uint32_t>(i * 2654435761u + seed));
        }
        return right;
    }
};

// The second stream copies what the first one has copied, and so on in a circle.
void events_order_streams(weirt_rank *rank)
{
    bench b;
    bool good = b.open(rank) && WEIRT_OK(rank, weir_stream_wait_event(b.c.device, b.streams[1], b.events[0]));
    for (uint32_t round = 0; round < 10 && good; round++) {
        good = b.set(rank, round) && b.copy(rank, 0, 1, b.streams[0]) &&
               WEIRT_OK(rank, weir_event_record(b.c.device, b.events[0], b.streams[0])) &&
               WEIRT_OK(rank, weir_stream_wait_event(b.c.device, b.streams[1], b.events[0])) &&
               b.copy(rank, 1, 2, b.streams[1]) &&
               WEIRT_OK(rank, weir_event_record(b.c.device, b.events[1], b.streams[1])) &&
               WEIRT_OK(rank, weir_stream_wait_event(b.c.device, b.streams[0], b.events[1])) &&
               WEIRT_OK(rank, weir_stream_wait(b.c.device, b.streams[0], 0)) && b.has(rank, 2, round);
    }
    b.close();
}

// A stream that waits for an event of a graph records into the graph, until the graph has ended.
void events_join_graphs(weirt_rank *rank)
{
    bench b;
    void *graph = nullptr;
    bool good = b.open(rank) && b.set(rank, 1);
    for (void *stream : b.streams) { // kernels are loaded
        good = good && b.copy(rank, 0, 1, stream) && WEIRT_OK(rank, weir_stream_wait(b.c.device, stream, 0));
    }
    good = good && WEIRT_OK(rank, weir_graph_begin(b.c.device, b.streams[0])) && b.copy(rank, 0, 1, b.streams[0]) &&
           WEIRT_OK(rank, weir_event_record(b.c.device, b.events[0], b.streams[0])) &&
           WEIRT_OK(rank, weir_stream_wait_event(b.c.device, b.streams[1], b.events[0])) &&
           b.copy(rank, 1, 2, b.streams[1]) &&
           WEIRT_OK(rank, weir_event_record(b.c.device, b.events[1], b.streams[1])) &&
           WEIRT_OK(rank, weir_stream_wait_event(b.c.device, b.streams[0], b.events[1])) &&
           WEIRT_OK(rank, weir_graph_end(b.c.device, b.streams[0], &graph));
    for (uint32_t round = 2; round < 6 && good; round++) {
        good = b.set(rank, round) && WEIRT_OK(rank, weir_graph_launch(b.c.device, graph, b.streams[0])) &&
               WEIRT_OK(rank, weir_stream_wait(b.c.device, b.streams[0], 0)) && b.has(rank, 2, round);
    }
    // The second stream is free again.
    good = good && b.set(rank, 7) && b.copy(rank, 0, 2, b.streams[1]) &&
           WEIRT_OK(rank, weir_stream_wait(b.c.device, b.streams[1], 0)) && b.has(rank, 2, 7);
    weir_graph_destroy(b.c.device, graph);
    b.close();
}

// Copies on each default stream; then all ranks sum on it. Ranks that are threads may share a GPU and its default
// stream, where their kernels would wait for each other: they use the streams of their threads.
void default_streams(weirt_rank *rank)
{
    bench b;
    weir_collective *all = nullptr;
    weir_collective_opts opts = WEIR_OPTS(weir_collective_opts);
    opts.staging_bytes = 128 << 10;
    const bool own = rank->stage->processes || std::strcmp(rank->stage->kind, "cpu") == 0;
    uint32_t seed = 3;
    bool good = b.open(rank) && WEIRT_OK(rank, weir_collective_create(b.c.comm, &opts, &all));
    for (void *stream : { static_cast<void *>(nullptr), LEGACY, PER_THREAD }) {
        const bool sums = own || stream == PER_THREAD;
        good = good && b.set(rank, ++seed) && b.copy(rank, 0, 1, stream) && b.copy(rank, 1, 2, stream) &&
               WEIRT_OK(rank, weir_event_record(b.c.device, b.events[0], stream)) &&
               WEIRT_OK(rank, weir_stream_wait_event(b.c.device, b.streams[0], b.events[0])) &&
               WEIRT_OK(rank, weir_stream_wait(b.c.device, b.streams[0], 0)) && b.has(rank, 2, seed) &&
               (!sums || WEIRT_OK(rank, weir_allreduce(all, b.data[0], b.data[1], 1000, WEIR_U32, WEIR_MAX, stream))) &&
               WEIRT_OK(rank, weir_comm_wait(b.c.comm, stream, 0)) &&
               WEIRT_OK(rank, weir_device_fill(b.c.device, b.data[2], 0, 8)) &&
               WEIRT_EXPECT(rank, weir_stream_multiprocessors(b.c.device, stream) >= 1);
        weir_stream_destroy(b.c.device, stream);
    }
    for (void *stream : { static_cast<void *>(nullptr), LEGACY }) {
        good = good && WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_graph_begin(b.c.device, stream)) &&
               WEIRT_TEXT(rank, "the legacy default stream cannot record a graph");
    }
    (void)weirt_barrier(rank);
    weir_collective_destroy(all);
    b.close();
}

// The place of a pointer is the device that owns the memory, whatever the offset in it.
void memory_is_located(weirt_rank *rank)
{
    weir_device *device = nullptr;
    void *data = nullptr;
    void *host = nullptr;
    weir_device_place place;
    uint8_t byte = 0;
    if (WEIRT_OK(rank, weir_device_open(rank->device, nullptr, &device)) &&
        WEIRT_OK(rank, weir_device_allocate(device, 5000, &data)) &&
        WEIRT_OK(rank, weir_device_allocate_host(device, 5000, &host))) {
        for (uint32_t offset : { 0u, 4999u }) {
            (void)WEIRT_OK(rank, weir_device_locate(static_cast<char *>(data) + offset, &place));
            (void)WEIRT_EXPECT(rank, place.device == std::string(rank->device) && place.kind == WEIR_MEMORY_DEVICE);
            (void)WEIRT_OK(rank, weir_device_locate(static_cast<char *>(host) + offset, &place));
            (void)WEIRT_EXPECT(rank, place.device == std::string(rank->device) && place.kind == WEIR_MEMORY_HOST);
        }
        (void)WEIRT_OK(rank, weir_device_locate(&byte, &place));
        (void)WEIRT_EXPECT(rank, place.device[0] == '\0' && place.kind == WEIR_MEMORY_HOST);
        static_cast<uint8_t *>(host)[4999] = 77; // the CPU uses the pointer of the kernels
        (void)(WEIRT_OK(rank, weir_device_copy(device, data, static_cast<char *>(host) + 4999, 1)) &&
               WEIRT_OK(rank, weir_device_copy(device, &byte, data, 1)) && WEIRT_EXPECT(rank, byte == 77));
    }
    weir_device_free(device, data);
    weir_device_free(device, host);
    weir_device_close(device);
}

// The memory is older than the communicators that share it, and outlives them.
void memory_without_communicator(weirt_rank *rank)
{
    weir_device *device = nullptr;
    void *data = nullptr;
    bool good = WEIRT_OK(rank, weir_device_open(rank->device, nullptr, &device)) &&
                WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_device_allocate(device, 0, &data)) &&
                WEIRT_TEXT(rank, "weir_device_allocate") &&
                WEIRT_STATUS(rank, WEIR_ERR_NOMEM, weir_device_allocate(device, INT64_MAX, &data)) &&
                WEIRT_OK(rank, weir_device_allocate(device, 5000, &data));
    for (uint64_t round = 1; round <= 2; round++) {
        weirt_comm c;
        weir_memory *local = nullptr;
        weir_memory *remote = nullptr;
        uint64_t words[2] = { round * 10 + rank->rank, 0 };
        const uint32_t peer = 1 - rank->rank;
        good = weirt_comm_open(rank, 0, &c) && good &&
               WEIRT_OK(rank, weir_memory_register(c.comm, static_cast<char *>(data) + 1000, 4000, nullptr, &local)) &&
               WEIRT_OK(rank, weir_memory_send(c.comm, local, peer, 1)) &&
               WEIRT_OK(rank, weir_memory_recv(c.comm, peer, 1, &remote)) &&
               WEIRT_OK(rank, weir_device_copy(c.device, weir_memory_pointer(remote), words, 8)) &&
               weirt_barrier(rank) &&
               WEIRT_OK(rank, weir_device_copy(c.device, words, static_cast<char *>(data) + 1000, 16)) &&
               WEIRT_EXPECT(rank, words[0] == round * 10 + peer && words[1] == 0);
        weir_memory_destroy(remote);
        good = weirt_barrier(rank) && good;
        weir_memory_destroy(local);
        weirt_comm_close(&c);
    }
    weir_device_close(device); // its memory keeps it open
    weir_device_free(device, data);
}

TEST_P(Stream, EventsOrderStreams) { run(1, events_order_streams); }
TEST_P(Stream, EventsJoinGraphs) { run(1, events_join_graphs); }
TEST_P(Stream, DefaultStreams) { run(2, default_streams); }
TEST_P(Stream, MemoryWithoutCommunicator) { run(2, memory_without_communicator); }
TEST_P(Stream, MemoryIsLocated) { run(1, memory_is_located); }

} // namespace
