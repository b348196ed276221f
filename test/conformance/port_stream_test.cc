// Calls of port channels in the order of a stream: between kernels, and recorded in graphs.
#include "port.h"
#include "port_stream_kernels.h"

namespace {

PORT_DATA_SUITE(PortStream, PORT_IPC, PORT_IB, PORT_OFI, PORT_DEVICE);

// Whether the bench's channel can add.
bool has_adds(const port_bench &b, const weirt_rank *rank)
{
    weir_transport_info info;
    if (std::strcmp(rank->stage->kind, "gpu") == 0 && std::strcmp(port_transports[b.plan.transport], "ofi") == 0) {
        return false; // not to GPU memory
    }
    for (uint32_t i = 0; weir_transport_get(i, &info) == WEIR_OK; i++) {
        if (std::strcmp(info.name, port_transports[b.plan.transport]) == 0 && info.adds) {
            return b.plan.direct_bytes != WEIR_PORT_DIRECT_NEVER || std::strcmp(rank->stage->kind, "cpu") == 0;
        }
    }
    return false;
}

bool launch_round(weirt_rank *rank, port_bench *b, bool compare)
{
    port_round_args args = {};
    args.channel = b->device;
    args.report = b->device_report();
    args.local = static_cast<char *>(weir_memory_pointer(b->local));
    args.compare = compare;
    args.adds = has_adds(*b, rank);
    args.rank = rank->rank;
    args.peer = b->peer;
    return b->launch(rank, port_round_kernel(), weir_shape{ 1, 1 }, &args, false);
}

// Each call once, between the kernel that writes the data and the kernel that checks it.
bool enqueue_round(weirt_rank *rank, port_bench *b)
{
    weir_port_channel *channel = b->channel;
    void *stream = b->stream;
    const uint64_t to = STREAM_HALF;
    const uint64_t part = 2000; // of the large put
    return launch_round(rank, b, false) &&
           WEIRT_OK(rank, weir_port_channel_put_on_stream(channel, to + STREAM_PUT, STREAM_PUT, part, stream)) &&
           WEIRT_OK(rank,
                    weir_port_channel_value_on_stream(channel, to + STREAM_VALUE, STREAM_VALUE_NUMBER, 8, stream)) &&
           (!has_adds(*b, rank) ||
            WEIRT_OK(rank, weir_port_channel_add_on_stream(channel, to + STREAM_WORD, STREAM_ADDEND, stream))) &&
           WEIRT_OK(rank, weir_port_channel_put_signal_on_stream(channel, to + STREAM_PUT + part, STREAM_PUT + part,
                                                                 STREAM_PUT_BYTES - part, stream)) &&
           WEIRT_OK(rank,
                    weir_port_channel_get_on_stream(channel, STREAM_GET, to + STREAM_GET, STREAM_GET_BYTES, stream)) &&
           WEIRT_OK(rank, weir_port_channel_put_signal_flush_on_stream(channel, to + STREAM_SMALL, STREAM_SMALL,
                                                                       STREAM_SMALL_BYTES, stream)) &&
           WEIRT_OK(rank, weir_port_channel_wait_on_stream(channel, stream)) &&
           WEIRT_OK(rank, weir_port_channel_wait_on_stream(channel, stream)) &&
           WEIRT_OK(rank, weir_port_channel_flush_on_stream(channel, stream)) && launch_round(rank, b, true) &&
           // Wait for each other before either overwrites data of a get.
           WEIRT_OK(rank, weir_port_channel_signal_on_stream(channel, stream)) &&
           WEIRT_OK(rank, weir_port_channel_wait_on_stream(channel, stream));
}

void rounds(weirt_rank *rank)
{
    constexpr uint32_t plain = 3;
    constexpr uint32_t replays = 12;
    port_bench b;
    void *graph = nullptr;
    bool open = b.open(rank, 0, STREAM_HALF) && WEIRT_OK(rank, weir_kernel_load(b.comm.device, port_round_kernel())) &&
                port_bench::all_ready(rank);
    for (uint32_t i = 0; i < plain && open; i++) {
        open = enqueue_round(rank, &b);
    }
    open = open && b.finish(rank) && WEIRT_EXPECT(rank, b.report->iterations == plain && b.report->wrong == 0) &&
           WEIRT_OK(rank, weir_graph_begin(b.comm.device, b.stream)) && enqueue_round(rank, &b) &&
           WEIRT_OK(rank, weir_graph_end(b.comm.device, b.stream, &graph)) &&
           WEIRT_EXPECT(rank, b.report->iterations == plain);
    for (uint32_t i = 0; i < replays && open; i++) {
        open = WEIRT_OK(rank, weir_graph_launch(b.comm.device, graph, b.stream));
    }
    open = open && b.finish(rank);
    if (open && (b.report->iterations != plain + replays || b.report->wrong != 0)) {
        weirt_fail(rank, __FILE__, __LINE__, "%llu rounds; wrong in round %llu, as at %llu",
                   static_cast<unsigned long long>(b.report->iterations),
                   static_cast<unsigned long long>(b.report->value),
                   static_cast<unsigned long long>(b.report->wrong_position));
    }
    WEIRT_EXPECT(rank, !open || (b.report->status[0] == WEIR_OK && b.report->status[1] == WEIR_OK));
    WEIRT_OK(rank, weir_port_channel_status(b.channel));
    WEIRT_OK(rank, weir_comm_status(b.comm.comm));
    if (graph != nullptr) {
        weir_graph_destroy(b.comm.device, graph);
    }
    b.close(rank, true);
}

TEST_P(PortStream, CallsAndTheirReplaysAreInOrder) { run(rounds, plan()); }

TEST_P(PortStream, CallsAndTheirReplaysAreInOrderWhenAllAreQueued)
{
    port_case what = plan();
    what.direct_bytes = WEIR_PORT_DIRECT_NEVER;
    run(rounds, what);
}

// A failed request is its channel's error: later work on the stream and the other channel go on.
void failing_request(weirt_rank *rank)
{
    weirt_log_allow(" failed: ");
    port_bench b;
    weir_semaphore *semaphore = nullptr;
    weir_port_channel *other = nullptr;
    if (b.open(rank, 0, 4096) && b.add(rank, 10, WEIR_SEMAPHORE_DEVICE, &semaphore, &other) &&
        port_bench::all_ready(rank)) {
        WEIRT_OK(rank, weir_port_channel_put_on_stream(b.channel, 8192 - 3, 0, 4, b.stream));
        WEIRT_OK(rank, weir_port_channel_flush_on_stream(b.channel, b.stream));
        WEIRT_OK(rank, weir_port_channel_put_signal_flush_on_stream(other, 4096, 0, 1000, b.stream));
        WEIRT_OK(rank, weir_port_channel_wait_on_stream(other, b.stream));
        b.finish(rank);
        WEIRT_STATUS(rank, WEIR_ERR_RANGE, weir_port_channel_status(b.channel));
        WEIRT_OK(rank, weir_port_channel_status(other));
        WEIRT_OK(rank, weir_comm_status(b.comm.comm));
    }
    weirt_barrier(rank);
    weir_port_channel_destroy(other);
    weir_semaphore_destroy(semaphore);
    b.close(rank, true);
}

TEST_P(PortStream, RequestThatFailsIsTheChannelsError) { run(failing_request, plan()); }

// A wait for a missing signal ends by its deadline with an error of the communicator.
void failing_wait(weirt_rank *rank)
{
    constexpr uint64_t timeout_ms = 200;
    port_bench b;
    b.kernel_timeout_ms = timeout_ms;
    if (b.open(rank, 0, 4096) && rank->rank == 0) {
        uint64_t start = weirt_now_ms();
        WEIRT_OK(rank, weir_port_channel_wait_on_stream(b.channel, b.stream));
        WEIRT_OK(rank, weir_port_channel_wait_on_stream(b.channel, b.stream));
        b.finish(rank);
        uint64_t took = weirt_now_ms() - start;
        WEIRT_EXPECT(rank, took >= timeout_ms && took < timeout_ms + weirt_slack_ms());
        WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_comm_status(b.comm.comm));
    }
    b.close(rank, true);
}

TEST_P(PortStream, WaitThatFailsIsTheCommunicatorsError) { run(failing_wait, plan()); }

void misuse(weirt_rank *rank)
{
    port_bench b;
    weir_semaphore *semaphore = nullptr;
    weir_port_channel *host = nullptr;
    if (b.open(rank, 0, 4096) && b.add(rank, 10, WEIR_SEMAPHORE_HOST, &semaphore, &host)) {
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_port_channel_signal_on_stream(nullptr, b.stream));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_port_channel_signal_on_stream(host, b.stream));
        WEIRT_TEXT(rank, "host");
        b.finish(rank);
        WEIRT_OK(rank, weir_port_channel_status(b.channel));
        WEIRT_OK(rank, weir_port_channel_status(host));
    }
    weirt_barrier(rank);
    weir_port_channel_destroy(host);
    weir_semaphore_destroy(semaphore);
    b.close(rank, true);
}

TEST_P(PortStream, MisuseIsRefused) { run(misuse, plan()); }

} // namespace
