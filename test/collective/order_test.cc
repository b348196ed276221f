// opts.order_streams: operations on several streams and in graphs, each of which needs the result of the one before.
#include <thread>
#include <vector>

#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

namespace {

WEIRT_STAGE_SUITE(CollectiveOrder);

constexpr uint64_t COUNT = 20000;

struct Chain {
    weirt_comm c = {};
    weir_collective *collective = nullptr;
    weir_memory *memory = nullptr;
    void *streams[2] = {};
    void *graph = nullptr;
    uint64_t expected = 1;

    bool open(weirt_rank *rank)
    {
        weir_collective_opts opts = WEIR_OPTS(weir_collective_opts);
        opts.order_streams = true;
        opts.blocks = 1;
        opts.staging_bytes = 128 << 10;
        const std::vector<uint64_t> ones(COUNT, 1);
        return weirt_comm_open(rank, 0, &c) && WEIRT_OK(rank, weir_collective_create(c.comm, &opts, &collective)) &&
               WEIRT_OK(rank, weir_memory_allocate(c.comm, 8 * COUNT, nullptr, &memory)) &&
               WEIRT_OK(rank, weir_device_copy(c.device, weir_memory_pointer(memory), ones.data(), 8 * COUNT)) &&
               WEIRT_OK(rank, weir_stream_create(c.device, &streams[0])) &&
               WEIRT_OK(rank, weir_stream_create(c.device, &streams[1]));
    }
    void close(weirt_rank *rank)
    {
        (void)weirt_barrier(rank);
        weir_graph_destroy(c.device, graph);
        weir_stream_destroy(c.device, streams[0]);
        weir_stream_destroy(c.device, streams[1]);
        weir_collective_destroy(collective);
        weir_memory_destroy(memory);
        weirt_comm_close(&c);
    }
    // Doubles all elements of both ranks.
    bool twice(weirt_rank *rank, void *stream)
    {
        void *data = weir_memory_pointer(memory);
        return WEIRT_OK(rank, weir_allreduce(collective, data, data, COUNT, WEIR_U64, WEIR_SUM, stream));
    }
    bool eager(weirt_rank *rank, int stream)
    {
        expected *= 2;
        return twice(rank, streams[stream]);
    }
    bool replay(weirt_rank *rank, int stream, uint64_t factor)
    {
        expected *= factor;
        return WEIRT_OK(rank, weir_graph_launch(c.device, graph, streams[stream]));
    }
    bool check(weirt_rank *rank)
    {
        std::vector<uint64_t> words(COUNT);
        bool right = WEIRT_OK(rank, weir_comm_wait(c.comm, streams[0], 0)) &&
                     WEIRT_OK(rank, weir_comm_wait(c.comm, streams[1], 0)) &&
                     WEIRT_OK(rank, weir_device_copy(c.device, words.data(), weir_memory_pointer(memory), 8 * COUNT));
        for (uint64_t i = 0; i < COUNT && right; i++) {
            right = WEIRT_EXPECT(rank, words[i] == expected);
        }
        return right;
    }
};

void eager_calls(weirt_rank *rank)
{
    Chain chain;
    bool good = chain.open(rank);
    for (int i = 0; i < 20 && good; i++) {
        good = chain.eager(rank, i % 3 % 2);
    }
    (void)(good && chain.check(rank));
    chain.close(rank);
}

// The graph has an operation on each stream, and is launched on both, between eager calls.
void graphs(weirt_rank *rank)
{
    Chain chain;
    void *event = nullptr;
    bool good = chain.open(rank) && WEIRT_OK(rank, weir_event_create(chain.c.device, &event)) && chain.eager(rank, 0) &&
                chain.eager(rank, 1) && chain.check(rank) &&
                WEIRT_OK(rank, weir_graph_begin(chain.c.device, chain.streams[0])) &&
                chain.twice(rank, chain.streams[0]) && chain.twice(rank, chain.streams[0]) &&
                WEIRT_OK(rank, weir_event_record(chain.c.device, event, chain.streams[0])) &&
                WEIRT_OK(rank, weir_stream_wait_event(chain.c.device, chain.streams[1], event)) &&
                chain.twice(rank, chain.streams[1]) &&
                WEIRT_OK(rank, weir_event_record(chain.c.device, event, chain.streams[1])) &&
                WEIRT_OK(rank, weir_stream_wait_event(chain.c.device, chain.streams[0], event)) &&
                WEIRT_OK(rank, weir_graph_end(chain.c.device, chain.streams[0], &chain.graph));
    for (int i = 0; i < 5 && good; i++) {
        good = chain.eager(rank, 0) && chain.replay(rank, 1, 8) && chain.eager(rank, 0) && chain.eager(rank, 0) &&
               chain.replay(rank, 0, 8) && chain.eager(rank, 1);
    }
    (void)(good && chain.check(rank));
    weir_event_destroy(chain.c.device, event);
    chain.close(rank);
}

// Two threads that call in turn, on the default stream of the process and on that of each thread.
void default_streams(weirt_rank *rank)
{
    void *const of_thread = reinterpret_cast<void *>(static_cast<uintptr_t>(2)); // cudaStreamPerThread
    Chain chain;
    bool good = chain.open(rank);
    for (int i = 0; i < 24 && good; i++) {
        void *stream = i % 4 < 3 ? of_thread : nullptr;
        chain.expected *= 2;
        if (i % 2 == 0) {
            good = chain.twice(rank, stream);
        } else {
            std::thread other([&] { good = chain.twice(rank, stream); });
            other.join();
        }
    }
    // A call on a stream of the test comes after all of them.
    (void)(good && chain.eager(rank, 0) && chain.check(rank));
    chain.close(rank);
}

TEST_P(CollectiveOrder, EagerCalls) { run(2, eager_calls); }
TEST_P(CollectiveOrder, DefaultStreams)
{
    if (weirt_stage_shares_gpu(stage(), 2)) {
        GTEST_SKIP() << "ranks that share a GPU: their kernels would wait for each other on one default stream";
    }
    run(2, default_streams);
}
TEST_P(CollectiveOrder, Graphs) { run(2, graphs); }

// Threads of one process begin on idle streams at the same moment. Where they share a GPU, each kernel waits for those
// of the other threads: none may end up behind another in a hardware queue.
void new_streams(weirt_rank *rank)
{
    const uint64_t ranks = rank->size;
    const int rounds = rank->stage->processes ? 2 : 40;
    weirt_comm c = {};
    weir_collective *collective = nullptr;
    weir_memory *memory = nullptr;
    weir_collective_opts opts = WEIR_OPTS(weir_collective_opts);
    opts.blocks = 1;
    bool good = weirt_comm_open(rank, 0, &c) && WEIRT_OK(rank, weir_collective_create(c.comm, &opts, &collective)) &&
                WEIRT_OK(rank, weir_memory_allocate(c.comm, 4 * sizeof(uint64_t), nullptr, &memory));
    for (int round = 1; round <= rounds && good; round++) {
        auto *data = static_cast<uint64_t *>(weir_memory_pointer(memory));
        uint64_t words[4] = { static_cast<uint64_t>(round), 0, 0, 0 };
        void *stream = nullptr;
        good = WEIRT_OK(rank, weir_device_copy(c.device, data, words, sizeof words)) &&
               WEIRT_OK(rank, weir_stream_create(c.device, &stream)) && weirt_barrier(rank);
        for (uint64_t i = 0; i < 3 && good; i++) {
            good = WEIRT_OK(rank, weir_allreduce(collective, data + i, data + i + 1, 1, WEIR_U64, WEIR_SUM, stream));
        }
        good = good && WEIRT_OK(rank, weir_comm_wait(c.comm, stream, 0)) &&
               WEIRT_OK(rank, weir_device_copy(c.device, words, data, sizeof words)) &&
               WEIRT_EXPECT(rank, words[3] == static_cast<uint64_t>(round) * ranks * ranks * ranks);
        weir_stream_destroy(c.device, stream);
    }
    (void)weirt_barrier(rank);
    weir_collective_destroy(collective);
    weir_memory_destroy(memory);
    weirt_comm_close(&c);
}

TEST_P(CollectiveOrder, NewStreams) { run(6, new_streams); }

} // namespace
