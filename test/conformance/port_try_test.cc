// Calls of port channels that never block: transfers made by a handler of the proxy, and calls without room.
#include <atomic>

#include "port.h"
#include "port_try_kernels.h"

namespace {

PORT_SUITE(PortTry, PORT_IPC, PORT_IB, PORT_OFI);

// ---- handlers --------------------------------------------------------------------------------------------------

constexpr uint32_t PIECES = 6; // more than a channel has credits

// A rank's objects for one other rank.
struct try_link {
    weir_connection *connection = nullptr;
    weir_semaphore *semaphore = nullptr;
    weir_memory *remote = nullptr;
    weir_port_channel *channel = nullptr;
};

// Sends the data of one request to all peers, in pieces, with a signal behind them.
struct fan_out {
    try_link links[PORT_TRY_RANKS];
    weir_proxy_channel *pushes = nullptr;
    uint32_t rank = 0;
    uint32_t next = 0; // step of the current request
    bool under_way = false;
    uint64_t tickets[PORT_TRY_RANKS] = {}; // of the signals
    std::atomic<uint32_t> no_room{ 0 };
    std::atomic<uint32_t> wrong{ 0 };

    weir_status step(const weir_request *request)
    {
        const uint32_t peer = next / (PIECES + 1);
        const uint32_t piece = next % (PIECES + 1);
        const uint64_t bytes = request->bytes / PIECES;
        if (peer == rank) {
            return WEIR_OK;
        }
        return piece == PIECES ? weir_port_channel_try_signal(links[peer].channel, &tickets[peer])
                               : weir_port_channel_try_put(links[peer].channel, request->remote_offset + piece * bytes,
                                                           request->local_offset + piece * bytes, bytes, nullptr);
    }

    static weir_status handle(void *context, const weir_request *request)
    {
        fan_out *self = static_cast<fan_out *>(context);
        const uint32_t peer = self->rank == 0 ? 1 : 0;
        // A blocking call is refused here.
        self->wrong += weir_port_channel_put(self->links[peer].channel, 0, 0, 8, nullptr) != WEIR_ERR_INVALID;
        self->wrong += weir_port_channel_flush(self->links[peer].channel) != WEIR_ERR_INVALID;
        for (; self->next < PORT_TRY_RANKS * (PIECES + 1); self->next++) {
            weir_status status = self->step(request);
            if (status != WEIR_OK) {
                self->no_room += status == WEIR_PENDING;
                return status == WEIR_PENDING ? WEIR_ERR_BUSY : status;
            }
        }
        self->next = 0;
        self->under_way = true;
        return WEIR_PENDING;
    }

    static weir_status progress(void *context)
    {
        fan_out *self = static_cast<fan_out *>(context);
        for (uint32_t peer = 0; peer < PORT_TRY_RANKS && self->under_way; peer++) {
            if (peer != self->rank) {
                weir_status status = weir_port_channel_test(self->links[peer].channel, self->tickets[peer]);
                if (status != WEIR_OK) {
                    return status;
                }
            }
        }
        if (self->under_way) {
            self->under_way = false;
            weir_proxy_channel_complete(self->pushes, 1);
            return WEIR_OK;
        }
        return WEIR_PENDING;
    }
};

struct try_bench {
    weirt_comm comm = {};
    fan_out out;
    weir_memory *local = nullptr;
    weir_memory *shared = nullptr;
    weir_proxy *proxy = nullptr;
    void *stream = nullptr;
    port_try_args args = {};

    bool connect(weirt_rank *rank, uint32_t peer)
    {
        try_link *link = &out.links[peer];
        weir_future *future = nullptr;
        const weir_connection_opts opts = { sizeof opts, port_transports[port_bench::plan_of(rank)->transport] };
        return WEIRT_OK(rank, weir_connection_create_async(comm.comm, peer, 1, &opts, &link->connection, &future)) &&
               weirt_complete(rank, future) &&
               weirt_semaphore(rank, link->connection, 2, WEIR_SEMAPHORE_DEVICE, &link->semaphore);
    }

    bool open_channel(weirt_rank *rank, uint32_t peer)
    {
        try_link *link = &out.links[peer];
        const weir_port_channel_opts opts = { sizeof opts, WEIR_PORT_DIRECT_NEVER, 4, 0, nullptr, nullptr };
        return weirt_receive(rank, comm.comm, peer, 3, &link->remote) &&
               WEIRT_OK(rank,
                        weir_port_channel_create(proxy, link->semaphore, link->remote, local, &opts, &link->channel)) &&
               WEIRT_OK(rank, weir_port_channel_device(link->channel, &args.ports[peer]));
    }

    bool open(weirt_rank *rank)
    {
        const weir_proxy_handler handler = { fan_out::handle, &out, fan_out::progress, &out };
        const weir_memory_opts host = { sizeof host, WEIR_MEMORY_HOST, false, 0 };
        weir_memory_opts data = WEIR_OPTS(weir_memory_opts);
        data.kind = std::strcmp(rank->stage->kind, "gpu") == 0 ? WEIR_MEMORY_HOST : WEIR_MEMORY_DEVICE;
        out.rank = rank->rank;
        bool good =
            weirt_comm_open(rank, 0, &comm) && WEIRT_OK(rank, weir_stream_create(comm.device, &stream)) &&
            WEIRT_OK(rank, weir_kernel_load(comm.device, port_try_kernel())) &&
            WEIRT_OK(rank, weir_memory_allocate(comm.comm, PORT_TRY_MEMORY * sizeof(uint64_t), &data, &local)) &&
            WEIRT_OK(rank, weir_memory_allocate(comm.comm, sizeof(port_try_report), &host, &shared)) &&
            WEIRT_OK(rank, weir_proxy_create(comm.comm, nullptr, &proxy));
        for (uint32_t peer = 0; peer < rank->size && good; peer++) {
            good = peer == rank->rank || connect(rank, peer);
        }
        for (uint32_t peer = 0; peer < rank->size && good; peer++) {
            good = peer == rank->rank || WEIRT_OK(rank, weir_memory_send(comm.comm, local, peer, 3));
        }
        for (uint32_t peer = 0; peer < rank->size && good; peer++) {
            good = peer == rank->rank || open_channel(rank, peer);
        }
        return good && WEIRT_OK(rank, weir_proxy_channel_create(proxy, &handler, nullptr, &out.pushes)) &&
               WEIRT_OK(rank, weir_proxy_channel_device(out.pushes, &args.push)) &&
               WEIRT_OK(rank, weir_proxy_start(proxy)) && port_bench::all_ready(rank);
    }

    void close(weirt_rank *rank)
    {
        (void)weirt_barrier(rank);
        if (stream != nullptr) {
            weir_stream_destroy(comm.device, stream);
        }
        weir_proxy_channel_destroy(out.pushes);
        for (try_link &link : out.links) {
            weir_port_channel_destroy(link.channel);
        }
        weir_proxy_destroy(proxy);
        for (try_link &link : out.links) {
            weir_semaphore_destroy(link.semaphore);
            weir_connection_destroy(link.connection);
            weir_memory_destroy(link.remote);
        }
        (void)weirt_barrier(rank);
        weir_memory_destroy(shared);
        weir_memory_destroy(local);
        weirt_comm_close(&comm);
    }
};

// One push of a kernel becomes puts and signals to all other ranks.
void handler_sends(weirt_rank *rank)
{
    constexpr uint32_t rounds = 20;
    try_bench b;
    if (b.open(rank)) {
        auto *report = static_cast<port_try_report *>(weir_memory_host_pointer(b.shared));
        b.args.report = static_cast<port_try_report *>(weir_memory_pointer(b.shared));
        b.args.memory = static_cast<uint64_t *>(weir_memory_pointer(b.local));
        b.args.rank = rank->rank;
        b.args.rounds = rounds;
        if (WEIRT_OK(rank,
                     weir_launch(b.comm.device, port_try_kernel(), weir_shape{ 1, 1 }, &b.args, nullptr, b.stream)) &&
            WEIRT_OK(rank, weir_stream_wait(b.comm.device, b.stream, weirt_timeout_ms()))) {
            WEIRT_STATUS(rank, WEIR_OK, static_cast<weir_status>(report->status));
            WEIRT_EXPECT(rank, report->rounds == rounds && report->wrong == 0);
            WEIRT_EXPECT(rank, b.out.wrong == 0);
            // PIECES and a signal need more than four credits: in each round, each peer had no room once.
            WEIRT_EXPECT(rank, b.out.no_room >= 2 * rounds);
        }
        WEIRT_OK(rank, weir_comm_status(b.comm.comm));
    }
    b.close(rank);
}

TEST_P(PortTry, HandlerSendsToAll)
{
    const port_case what = plan();
    weirt_ranks_run(stage(), PORT_TRY_RANKS, handler_sends, &what, sizeof what);
}

// ---- room ------------------------------------------------------------------------------------------------------

// Calls without a credit post nothing. With room, all calls do the same as the blocking ones.
void room(weirt_rank *rank)
{
    constexpr uint64_t half = 4096;
    const weir_port_channel_opts opts = { sizeof opts, WEIR_PORT_DIRECT_NEVER, 2, 0, nullptr, nullptr };
    port_bench b;
    uint64_t words[4] = { port_word(rank->rank, 0), port_word(rank->rank, 1), port_word(rank->rank, 2), 0 };
    uint64_t tickets[3] = { 77, 77, 77 };
    if (b.open_ends(rank, 0, half, WEIR_SEMAPHORE_HOST) && b.write(rank, 0, words, sizeof words) &&
        WEIRT_OK(rank, weir_port_channel_create(b.proxy, b.semaphore, b.remote, b.local, &opts, &b.channel))) {
        WEIRT_OK(rank, weir_port_channel_try_put(b.channel, half, 0, 8, &tickets[0]));
        WEIRT_OK(rank, weir_port_channel_try_put_signal(b.channel, half + 8, 8, 8, &tickets[1]));
        WEIRT_STATUS(rank, WEIR_PENDING, weir_port_channel_try_put(b.channel, half, 16, 8, &tickets[2]));
        WEIRT_STATUS(rank, WEIR_PENDING, weir_port_channel_try_signal(b.channel, &tickets[2]));
        WEIRT_EXPECT(rank, tickets[0] == 0 && tickets[1] == 1 && tickets[2] == 77);
        weirt_barrier(rank);
        WEIRT_OK(rank, weir_proxy_start(b.proxy));
        WEIRT_OK(rank, weir_port_channel_wait(b.channel, tickets[1], weirt_timeout_ms()));
        WEIRT_OK(rank, weir_semaphore_wait(b.semaphore, weirt_timeout_ms()));
        WEIRT_STATUS(rank, WEIR_PENDING, weir_semaphore_poll(b.semaphore)); // a call without room has not signalled
        weirt_barrier(rank);
        WEIRT_EXPECT(rank, b.read(rank, half, words, 16) && words[0] == port_word(b.peer, 0) &&
                               words[1] == port_word(b.peer, 1));
        WEIRT_OK(rank, weir_port_channel_try_value(b.channel, half + 16, 4711, 8, nullptr));
        WEIRT_OK(rank, weir_port_channel_flush(b.channel));
        WEIRT_OK(rank, weir_port_channel_try_get(b.channel, 16, 24, 8, nullptr));
        WEIRT_OK(rank, weir_port_channel_try_signal(b.channel, nullptr));
        WEIRT_OK(rank, weir_port_channel_flush(b.channel));
        WEIRT_OK(rank, weir_semaphore_wait(b.semaphore, weirt_timeout_ms()));
        weirt_barrier(rank);
        WEIRT_EXPECT(rank, b.read(rank, half + 16, words, 8) && words[0] == 4711);
        WEIRT_EXPECT(rank, b.read(rank, 24, words, 8) && words[0] == port_word(b.peer, 2));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_port_channel_try_put(nullptr, 0, 0, 8, nullptr));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_port_channel_try_post(b.channel, nullptr, nullptr));
        WEIRT_OK(rank, weir_port_channel_status(b.channel));
        weirt_barrier(rank);
        weir_comm_abort(b.comm.comm);
        WEIRT_STATUS(rank, WEIR_ERR_ABORTED, weir_port_channel_try_put(b.channel, 0, 0, 8, nullptr));
    }
    b.close(rank, true);
}

TEST_P(PortTry, WithoutRoomNothingIsAskedFor) { run(room, plan()); }

// Adds, by copies of the CPU and by NICs.
void adds(weirt_rank *rank)
{
    port_bench b;
    uint64_t word = 1000;
    if (b.open(rank, 0, 4096) && b.write(rank, 8, &word, 8) && weirt_barrier(rank)) {
        WEIRT_OK(rank, weir_port_channel_try_add(b.channel, 8, 5 + rank->rank, nullptr));
        WEIRT_OK(rank, weir_port_channel_flush(b.channel));
        weirt_barrier(rank);
        WEIRT_EXPECT(rank, b.read(rank, 8, &word, 8) && word == 1005 + b.peer);
    }
    b.close(rank, true);
}

TEST_P(PortTry, Adds)
{
    const int way = plan().transport;
    run_unless(gpu() && (way == PORT_IPC || way == PORT_OFI), "neither copy engines nor a CPU add to a GPU's memory",
               adds);
}

} // namespace
