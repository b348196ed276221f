// Channels made by one call on each rank: their transfers, the objects that they own, and the errors of the call if the
// peer makes another call, makes no call, or dies.
#include <cstdio>
#include <string>

#include "port.h"

extern "C" {
#include "src/host/comm/exchange.h"
}

namespace {

constexpr uint64_t half = 4096;

weir_memory_channel_connect_opts memory_opts(weir_connection *connection, uint32_t semaphores, weir_memory *packets)
{
    weir_memory_channel_connect_opts opts = WEIR_OPTS(weir_memory_channel_connect_opts);
    opts.connection = connection;
    opts.semaphores = semaphores;
    opts.packets = packets;
    return opts;
}

/* ---- memory channels ------------------------------------------------------------------------------------- */

// A pair of the harness whose channels are made by connect and own all other objects.
bool open_pair(weirt_rank *rank, weir_comm *comm, uint32_t peer, weirt_pair *pair)
{
    const weir_memory_opts host = { sizeof host, WEIR_MEMORY_HOST, false, 0 };
    weir_device *device = weir_comm_device(comm);
    *pair = {};
    pair->comm = comm;
    pair->peer = peer;
    pair->half = half;
    if (!WEIRT_OK(rank, weir_kernel_load(device, weirt_transfer_kernel())) ||
        !WEIRT_OK(rank, weir_stream_create(device, &pair->stream)) ||
        !WEIRT_OK(rank, weir_memory_allocate(comm, 2 * half, nullptr, &pair->local)) ||
        !WEIRT_OK(rank, weir_memory_allocate(comm, 4 * half, nullptr, &pair->packets)) ||
        !WEIRT_OK(rank, weir_memory_allocate(comm, sizeof(weirt_report), &host, &pair->shared)) ||
        !WEIRT_OK(rank, weir_grid_barrier_create(comm, &pair->barrier))) {
        return false;
    }
    pair->report = static_cast<weirt_report *>(weir_memory_host_pointer(pair->shared));
    pair->device_report = static_cast<weirt_report *>(weir_memory_pointer(pair->shared));
    weir_memory_channel_connect_opts opts = memory_opts(nullptr, WEIRT_SET, nullptr);
    if (!WEIRT_OK(rank, weir_memory_channel_connect(comm, peer, 1, pair->local, &opts, &pair->data))) {
        return false;
    }
    weir_connection *connection = weir_semaphore_connection(weir_memory_channel_semaphore(pair->data));
    opts = memory_opts(connection, WEIRT_SET, pair->packets);
    return WEIRT_OK(rank, weir_memory_channel_connect(comm, peer, 1, pair->local, &opts, &pair->packet)) &&
           WEIRT_EXPECT(rank, connection == weir_semaphore_connection(weir_memory_channel_semaphore(pair->packet)));
}

// Sends `bytes` in each of several rounds and checks every byte.
bool transfer(weirt_rank *rank, const weirt_pair *pair, uint32_t op, uint64_t bytes)
{
    const uint64_t before = pair->report->iterations;
    weirt_transfer_args args = weirt_transfer_of(rank, pair);
    args.op = op;
    args.first = args.last = bytes;
    args.rounds = 3;
    return weirt_launch(rank, pair, weirt_transfer_kernel(), &args) && weirt_finish(rank, pair) &&
           WEIRT_EXPECT(rank, pair->report->wrong == 0) && WEIRT_EXPECT(rank, pair->report->status[0][0] == WEIR_OK) &&
           WEIRT_EXPECT(rank, pair->report->iterations == before + args.rounds);
}

// Also for a rank that is its own peer.
void one_call_each(weirt_rank *rank)
{
    const uint32_t peer = rank->size == 1 ? rank->rank : 1 - rank->rank;
    weirt_comm c;
    weirt_pair pair = {};
    if (weirt_comm_open(rank, 0, &c) && open_pair(rank, c.comm, peer, &pair) && weirt_barrier(rank)) {
        for (uint32_t op : { WEIRT_PUT, WEIRT_GET, WEIRT_LL16, WEIRT_EXCHANGE_LL16 }) {
            transfer(rank, &pair, op, 1003);
        }
        weir_memory *remote = weir_memory_channel_remote(pair.data);
        WEIRT_EXPECT(rank, weir_memory_rank(remote) == peer && weir_memory_bytes(remote) == 2 * half);
        WEIRT_EXPECT(rank, weir_memory_channel_local(pair.data) == pair.local);
        WEIRT_EXPECT(rank, weir_memory_channel_packets(pair.data) == nullptr);
        weir_memory *remote_packets = weir_memory_channel_remote(pair.packet);
        WEIRT_EXPECT(rank, weir_memory_rank(remote_packets) == peer && weir_memory_bytes(remote_packets) == 4 * half);
        WEIRT_EXPECT(rank, weir_memory_channel_local(pair.packet) == pair.local);
        WEIRT_EXPECT(rank, weir_memory_channel_packets(pair.packet) == pair.packets);
        weir_semaphore *semaphore = weir_memory_channel_semaphore(pair.data);
        weir_dev_semaphore device = {};
        WEIRT_OK(rank, weir_semaphore_device(semaphore, &device));
        WEIRT_EXPECT(rank, device.count == WEIRT_SET);
        weir_connection *connection = weir_semaphore_connection(semaphore);
        WEIRT_EXPECT(rank, weir_connection_peer(connection) == peer);
        WEIRT_EXPECT(rank, std::string(weir_connection_transport(connection)) == "ipc");
        WEIRT_OK(rank, weir_comm_status(c.comm));
    }
    weirt_barrier(rank);
    weirt_pair_close(rank, &pair, true);
    weirt_comm_close(&c);
}

// The ranks' memories have different sizes, and each side's channel knows the peer's.
void sizes_may_differ(weirt_rank *rank)
{
    const uint32_t peer = 1 - rank->rank;
    weirt_comm c;
    weir_memory *local = nullptr;
    weir_memory_channel *channel = nullptr;
    if (weirt_comm_open(rank, 0, &c) &&
        WEIRT_OK(rank, weir_memory_allocate(c.comm, 1000 + 24 * rank->rank, nullptr, &local)) &&
        WEIRT_OK(rank, weir_memory_channel_connect(c.comm, peer, 5, local, nullptr, &channel))) {
        weir_dev_memory_channel device;
        weir_memory_channel_device(channel, &device);
        WEIRT_EXPECT(rank, device.local_bytes == 1000 + 24u * rank->rank);
        WEIRT_EXPECT(rank, device.remote_bytes == 1000 + 24u * peer);
        WEIRT_EXPECT(rank, device.semaphore.count == 1 && device.packets == nullptr);
    }
    weirt_barrier(rank);
    weir_memory_channel_destroy(channel);
    weirt_barrier(rank);
    weir_memory_destroy(local);
    weirt_comm_close(&c);
}

// Every rank has a channel to each other rank and writes its word into each peer's memory.
void mesh(weirt_rank *rank)
{
    weirt_comm c;
    weirt_pair pair = {}; // without channels; only what launches need
    const weir_memory_opts host = { sizeof host, WEIR_MEMORY_HOST, false, 0 };
    weir_memory_channel *channels[WEIRT_RANKS_MAX] = {};
    bool good = weirt_comm_open(rank, 0, &c);
    pair.comm = c.comm;
    good = good && WEIRT_OK(rank, weir_kernel_load(c.device, weirt_access_kernel())) &&
           WEIRT_OK(rank, weir_stream_create(c.device, &pair.stream)) &&
           WEIRT_OK(rank, weir_memory_allocate(c.comm, 8 * rank->size, nullptr, &pair.local)) &&
           WEIRT_OK(rank, weir_memory_allocate(c.comm, sizeof(weirt_report), &host, &pair.shared));
    for (uint32_t peer = 0; peer < rank->size && good; peer++) {
        good = peer == rank->rank ||
               WEIRT_OK(rank, weir_memory_channel_connect(c.comm, peer, 0, pair.local, nullptr, &channels[peer]));
    }
    weirt_barrier(rank);
    if (good) {
        pair.report = static_cast<weirt_report *>(weir_memory_host_pointer(pair.shared));
        pair.device_report = static_cast<weirt_report *>(weir_memory_pointer(pair.shared));
    }
    for (uint32_t peer = 0; peer < rank->size && good; peer++) {
        weirt_access_args args = {};
        if (peer != rank->rank) {
            weir_memory_channel_device(channels[peer], &args.channel);
            args.op = WEIRT_DO_WRITE_U64;
            args.remote_offset = rank->rank;
            args.value = 1000 + 10 * rank->rank + peer;
            WEIRT_EXPECT(rank, weirt_access_run(rank, &pair, &args) == WEIR_OK);
        }
    }
    weirt_barrier(rank);
    if (good) {
        uint64_t words[WEIRT_RANKS_MAX] = {};
        WEIRT_OK(rank, weir_device_copy(c.device, words, weir_memory_pointer(pair.local), 8 * rank->size));
        for (uint32_t peer = 0; peer < rank->size; peer++) {
            WEIRT_EXPECT(rank, words[peer] == (peer == rank->rank ? 0 : 1000 + 10 * peer + rank->rank));
        }
    }
    for (weir_memory_channel *channel : channels) {
        weir_memory_channel_destroy(channel);
    }
    weirt_pair_close(rank, &pair, true);
    weirt_comm_close(&c);
}

/* ---- what the two ranks do differently ------------------------------------------------------------------- */

// The tag stays usable after each mismatch: the last call succeeds on both ranks.
void mismatches(weirt_rank *rank)
{
    const uint32_t peer = 1 - rank->rank;
    const bool first = rank->rank == 0;
    weirt_comm c;
    weir_memory *local = nullptr;
    weir_memory *small = nullptr;
    weir_memory *large = nullptr;
    weir_memory *never = nullptr;
    weir_connection *connection = nullptr;
    weir_proxy *proxy = nullptr;
    weir_memory_channel *channel = nullptr;
    weir_port_channel *port = nullptr;
    if (weirt_comm_open(rank, 0, &c) && WEIRT_OK(rank, weir_memory_allocate(c.comm, 1024, nullptr, &local)) &&
        WEIRT_OK(rank, weir_memory_allocate(c.comm, 1024, nullptr, &small)) &&
        WEIRT_OK(rank, weir_memory_allocate(c.comm, 2048, nullptr, &large)) &&
        WEIRT_OK(rank, weir_proxy_create(c.comm, nullptr, &proxy)) &&
        weirt_connect(rank, c.comm, peer, 8, &connection)) {
        struct {
            weir_memory_channel_connect_opts opts[2]; // of rank 0, of rank 1
            const char *text;
        } const rows[] = {
            { { memory_opts(nullptr, 2, nullptr), memory_opts(nullptr, 3, nullptr) },
              first ? "weir_memory_channel_connect: semaphores: 2 on rank 0, 3 on rank 1"
                    : "weir_memory_channel_connect: semaphores: 3 on rank 1, 2 on rank 0" },
            { { memory_opts(nullptr, 0, nullptr), memory_opts(nullptr, 0, small) },
              first ? "bytes of packets: 0 on rank 0, 1024 on rank 1"
                    : "bytes of packets: 1024 on rank 1, 0 on rank 0" },
            { { memory_opts(nullptr, 0, large), memory_opts(nullptr, 0, small) },
              first ? "packets: 2048 on rank 0, 1024 on rank 1" : "packets: 1024 on rank 1, 2048 on rank 0" },
            { { memory_opts(connection, 0, nullptr), memory_opts(nullptr, 0, nullptr) },
              first ? "connections given: 1 on rank 0, 0 on rank 1" : "connections given: 0 on rank 1, 1 on rank 0" },
        };
        for (auto &row : rows) {
            WEIRT_STATUS(rank, WEIR_ERR_MISMATCH,
                         weir_memory_channel_connect(c.comm, peer, 7, local, &row.opts[rank->rank], &channel));
            WEIRT_TEXT(rank, row.text);
        }
        // One of the ranks makes another call. A send expects nothing, so rank 1's next operation meets rank 0's call.
        if (first) {
            WEIRT_STATUS(rank, WEIR_ERR_MISMATCH,
                         weir_memory_channel_connect(c.comm, peer, 7, local, nullptr, &channel));
        } else {
            WEIRT_STATUS(rank, WEIR_ERR_MISMATCH, weir_port_channel_connect(proxy, peer, 7, local, nullptr, &port));
        }
        WEIRT_TEXT(rank, "weir_memory_channel_connect");
        WEIRT_TEXT(rank, "weir_port_channel_connect");
        WEIRT_TEXT(rank, "operation 4 with tag 7");
        if (first) {
            WEIRT_STATUS(rank, WEIR_ERR_MISMATCH,
                         weir_memory_channel_connect(c.comm, peer, 7, local, nullptr, &channel));
        } else {
            WEIRT_OK(rank, weir_memory_send(c.comm, local, peer, 7));
            WEIRT_STATUS(rank, WEIR_ERR_MISMATCH, weir_memory_recv(c.comm, peer, 7, &never));
        }
        WEIRT_TEXT(rank, first ? "rank 1 called weir_memory_send" : "rank 0 called weir_memory_channel_connect");
        WEIRT_EXPECT(rank, channel == nullptr && port == nullptr && never == nullptr);
        WEIRT_OK(rank, weir_memory_channel_connect(c.comm, peer, 7, local, nullptr, &channel));
        WEIRT_OK(rank, weir_comm_status(c.comm));
    }
    weirt_barrier(rank);
    weir_memory_channel_destroy(channel);
    weirt_barrier(rank);
    weir_proxy_destroy(proxy);
    weir_connection_destroy(connection);
    weir_memory_destroy(large);
    weir_memory_destroy(small);
    weir_memory_destroy(local);
    weirt_comm_close(&c);
}

void nobody_calls(weirt_rank *rank)
{
    weirt_comm c;
    weir_memory *local = nullptr;
    weir_proxy *proxy = nullptr;
    weir_memory_channel *channel = nullptr;
    weir_port_channel *port = nullptr;
    if (weirt_comm_open(rank, 150, &c) && rank->rank == 0 &&
        WEIRT_OK(rank, weir_memory_allocate(c.comm, 64, nullptr, &local)) &&
        WEIRT_OK(rank, weir_proxy_create(c.comm, nullptr, &proxy))) {
        const uint64_t begin = weirt_now_ms();
        WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_memory_channel_connect(c.comm, 1, 7, local, nullptr, &channel));
        const uint64_t took = weirt_now_ms() - begin;
        WEIRT_TEXT(rank, "weir_memory_channel_connect: rank 1 did not call weir_memory_channel_connect within 150 ms "
                         "(operation 0 with tag 7)");
        WEIRT_EXPECT(rank, took >= 150 && took < 150 + weirt_slack_ms());
        WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_port_channel_connect(proxy, 1, 8, local, nullptr, &port));
        WEIRT_TEXT(rank, "rank 1 did not call weir_port_channel_connect within 150 ms");
        WEIRT_EXPECT(rank, channel == nullptr && port == nullptr);
    }
    weirt_barrier(rank);
    weir_proxy_destroy(proxy);
    weir_memory_destroy(local);
    weirt_comm_close(&c);
}

// Rank 1 dies before the call, or after agreement: it sends only the first operation of the call.
void peer_dies(weirt_rank *rank)
{
    const bool agreed = *static_cast<const bool *>(rank->arg);
    weirt_comm c;
    weir_memory *local = nullptr;
    weir_memory_channel *channel = nullptr;
    weirt_log_allow("");
    if (weirt_comm_open(rank, 0, &c) && WEIRT_OK(rank, weir_memory_allocate(c.comm, 64, nullptr, &local)) &&
        weirt_barrier(rank)) {
        if (rank->rank == 1 && agreed) {
            // The transport's first operation, that of the connection, fails; the peer waits for it.
            weirt_fail_transport(1);
            WEIRT_EXPECT(rank, weir_memory_channel_connect(c.comm, 0, 7, local, nullptr, &channel) != WEIR_OK);
            WEIRT_TEXT(rank, "weir_memory_channel_connect to rank 0: ");
        }
        if (rank->rank == 1) {
            weirt_die(rank, WEIRT_KILL);
        }
        WEIRT_STATUS(rank, WEIR_ERR_REMOTE, weir_memory_channel_connect(c.comm, 1, 7, local, nullptr, &channel));
        WEIRT_TEXT(rank, "rank 1");
        WEIRT_EXPECT(rank, channel == nullptr);
    }
    weir_memory_destroy(local);
    weirt_comm_close(&c);
}

// Rank 1 sends data that no call of weir would send.
void malformed(weirt_rank *rank)
{
    weirt_comm c;
    weir_memory *local = nullptr;
    weir_memory_channel *channel = nullptr;
    const uint8_t payload[20] = {};
    if (weirt_comm_open(rank, 0, &c) && WEIRT_OK(rank, weir_memory_allocate(c.comm, 64, nullptr, &local))) {
        const struct {
            size_t bytes;
            uint32_t handles;
        } messages[] = { { 0, 0 }, { 15, 0 }, { 17, 0 }, { 16, 1 } };
        for (auto &sent : messages) {
            const weiri_op_message message = {
                WEIRI_OP_MEMORY_CHANNEL, payload, sent.bytes, { local, nullptr }, sent.handles
            };
            if (rank->rank == 1) {
                WEIRT_OK(rank, weiri_exchange_send(c.comm, 0, 3, &message));
            } else {
                WEIRT_STATUS(rank, WEIR_ERR_CORRUPT,
                             weir_memory_channel_connect(c.comm, 1, 3, local, nullptr, &channel));
                WEIRT_TEXT(rank, "malformed message of rank 1");
            }
        }
        WEIRT_EXPECT(rank, channel == nullptr);
        WEIRT_OK(rank, weir_comm_status(c.comm));
    }
    weirt_barrier(rank);
    weir_memory_destroy(local);
    weirt_comm_close(&c);
}

void misuse(weirt_rank *rank)
{
    weirt_comm c;
    weirt_comm other;
    weir_memory *local = nullptr;
    weir_memory *foreign = nullptr;
    weir_memory *remote = nullptr;
    weir_memory *odd = nullptr;
    weir_connection *connection = nullptr;
    weir_proxy *proxy = nullptr;
    weir_memory_channel *channel = nullptr;
    weir_port_channel *port = nullptr;
    const uint32_t peer = 1 - rank->rank;
    if (weirt_comm_open(rank, 0, &c) && weirt_comm_open_alone(rank, &other) &&
        WEIRT_OK(rank, weir_memory_allocate(c.comm, 1024, nullptr, &local)) &&
        WEIRT_OK(rank, weir_memory_register(c.comm, static_cast<char *>(weir_memory_pointer(local)) + 8, 512, nullptr,
                                            &odd)) &&
        WEIRT_OK(rank, weir_memory_allocate(other.comm, 1024, nullptr, &foreign)) &&
        WEIRT_OK(rank, weir_memory_send(c.comm, local, peer, 1)) && weirt_receive(rank, c.comm, peer, 1, &remote) &&
        weirt_connect(rank, c.comm, peer, 2, &connection) &&
        WEIRT_OK(rank, weir_proxy_create(c.comm, nullptr, &proxy))) {
        const weir_memory_channel_connect_opts unsized = {};
        const weir_memory_channel_connect_opts reused = memory_opts(connection, 0, nullptr);
        const weir_memory_channel_connect_opts unaligned = memory_opts(nullptr, 0, odd);
        const weir_memory_channel_connect_opts not_ours = memory_opts(nullptr, 0, foreign);
        struct {
            weir_comm *comm;
            uint32_t peer;
            weir_memory *local;
            const weir_memory_channel_connect_opts *opts;
            weir_memory_channel **out;
            const char *text;
        } const rows[] = {
            { nullptr, peer, local, nullptr, &channel, "weir_memory_channel_connect" },
            { c.comm, 2, local, nullptr, &channel, "peer 2 does not exist; there are 2 ranks" },
            { c.comm, UINT32_MAX, local, nullptr, &channel, "peer 4294967295 does not exist" },
            { c.comm, peer, nullptr, nullptr, &channel, "local is NULL" },
            { c.comm, peer, local, nullptr, nullptr, "out is NULL" },
            { c.comm, peer, local, &unsized, &channel, "size" },
            { c.comm, peer, foreign, nullptr, &channel, "local" },
            { c.comm, peer, remote, nullptr, &channel, "local" },
            { c.comm, peer, local, &not_ours, &channel, "packets" },
            { c.comm, peer, local, &unaligned, &channel, "packets is not 16-byte aligned" },
            { c.comm, rank->rank, local, &reused, &channel, "the connection" },
        };
        for (auto &row : rows) {
            WEIRT_STATUS(rank, WEIR_ERR_INVALID,
                         weir_memory_channel_connect(row.comm, row.peer, 9, row.local, row.opts, row.out));
            WEIRT_TEXT(rank, row.text);
        }
        weir_port_channel_opts with_peers = WEIR_OPTS(weir_port_channel_opts);
        with_peers.peer_packets = remote;
        const weir_port_channel_opts unsized_channel = {};
        weir_port_channel_connect_opts opts = WEIR_OPTS(weir_port_channel_connect_opts);
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_port_channel_connect(nullptr, peer, 9, local, nullptr, &port));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_port_channel_connect(proxy, peer, 9, nullptr, nullptr, &port));
        WEIRT_TEXT(rank, "local is NULL");
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_port_channel_connect(proxy, peer, 9, local, nullptr, nullptr));
        WEIRT_TEXT(rank, "out is NULL");
        opts.channel = &with_peers;
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_port_channel_connect(proxy, peer, 9, local, &opts, &port));
        WEIRT_TEXT(rank, "peer_packets");
        opts.channel = &unsized_channel;
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_port_channel_connect(proxy, peer, 9, local, &opts, &port));
        WEIRT_TEXT(rank, "channel: ");
        opts.channel = nullptr;
        opts.end = static_cast<weir_semaphore_end>(2);
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_port_channel_connect(proxy, peer, 9, local, &opts, &port));
        WEIRT_TEXT(rank, "unknown end 2");
        opts.end = WEIR_SEMAPHORE_DEVICE;
        opts.connection = connection;
        opts.transport = "ipc";
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_port_channel_connect(proxy, peer, 9, local, &opts, &port));
        WEIRT_TEXT(rank, "both connection and transport");
        WEIRT_EXPECT(rank, channel == nullptr && port == nullptr);
        // The failed calls have not used the tag.
        WEIRT_OK(rank, weir_memory_channel_connect(c.comm, peer, 9, local, nullptr, &channel));
    }
    weirt_barrier(rank);
    weir_memory_channel_destroy(channel);
    weir_proxy_destroy(proxy);
    weir_connection_destroy(connection);
    weir_memory_destroy(remote);
    weirt_barrier(rank);
    weir_memory_destroy(foreign);
    weir_memory_destroy(odd);
    weir_memory_destroy(local);
    weirt_comm_close(&other);
    weirt_comm_close(&c);
}

/* ---- the n-th operation fails ---------------------------------------------------------------------------- */

enum fault { ALLOCATION, DEVICE, TRANSPORT };

uint64_t arm(uint32_t what, uint64_t n)
{
    return what == ALLOCATION ? weirt_fail_allocation(n)
           : what == DEVICE   ? weirt_fail_device(n)
                              : weirt_fail_transport(n);
}

// A rank that is its own peer: both halves of the calls fail in turn, and nothing waits for another rank. Returns
// whether the n-th operation was reached.
bool try_with_fault(weirt_rank *rank, uint32_t what, uint64_t n)
{
    weirt_comm c;
    weir_memory *local = nullptr;
    weir_memory *packets = nullptr;
    weir_proxy *proxy = nullptr;
    weir_memory_channel *channel = nullptr;
    weir_port_channel *port = nullptr;
    bool reached = true;
    const int64_t before = weirt_count_allocations();
    if (weirt_comm_open(rank, 500 * weirt_slow(), &c) &&
        WEIRT_OK(rank, weir_memory_allocate(c.comm, 1024, nullptr, &local)) &&
        WEIRT_OK(rank, weir_memory_allocate(c.comm, 4096, nullptr, &packets)) &&
        WEIRT_OK(rank, weir_proxy_create(c.comm, nullptr, &proxy))) {
        const weir_memory_channel_connect_opts opts = memory_opts(nullptr, 0, packets);
        weir_port_channel_opts with_packets = WEIR_OPTS(weir_port_channel_opts);
        with_packets.packets = packets;
        weir_port_channel_connect_opts port_opts = WEIR_OPTS(weir_port_channel_connect_opts);
        port_opts.channel = &with_packets;
        (void)arm(what, n);
        const weir_status made = weir_memory_channel_connect(c.comm, 0, 1, local, &opts, &channel);
        const weir_status port_made = weir_port_channel_connect(proxy, 0, 2, local, &port_opts, &port);
        reached = arm(what, 0) == 0;
        WEIRT_EXPECT(rank, (made == WEIR_OK) == (channel != nullptr) && made <= 0);
        WEIRT_EXPECT(rank, (port_made == WEIR_OK) == (port != nullptr) && port_made <= 0);
        WEIRT_EXPECT(rank, reached || (made == WEIR_OK && port_made == WEIR_OK));
    }
    weir_port_channel_destroy(port);
    weir_memory_channel_destroy(channel);
    weir_proxy_destroy(proxy);
    weir_memory_destroy(packets);
    weir_memory_destroy(local);
    weirt_comm_close(&c);
    if (weirt_count_allocations() != before) {
        weirt_fail(rank, __FILE__, __LINE__, "operation %llu of kind %u failed: %lld allocations left behind",
                   (unsigned long long)n, what, (long long)(weirt_count_allocations() - before));
    }
    return reached;
}

void nth_fails(weirt_rank *rank)
{
    weirt_log_allow(""); // the log depends on the failed operation
    const uint32_t least[] = { 15, 1, 3 };
    for (uint32_t what = ALLOCATION; what <= TRANSPORT; what++) {
        uint64_t n = 1;
        while (n < 500 && try_with_fault(rank, what, n)) {
            n++;
        }
        WEIRT_EXPECT(rank, n > least[what] && n < 500);
    }
}

WEIRT_STAGE_SUITE(MemoryConnect);
WEIRT_PROCESS_SUITE(MemoryConnectProcess);

TEST_P(MemoryConnect, OneCallOfEachRankMakesAChannel) { run(2, one_call_each); }
TEST_P(MemoryConnect, ARankMayConnectToItself) { run(1, one_call_each); }
TEST_P(MemoryConnect, MemoriesMayHaveDifferentSizes) { run(2, sizes_may_differ); }
TEST_P(MemoryConnect, PeersInAscendingOrderMakeAMesh) { run(4, mesh); }
TEST_P(MemoryConnect, DifferentRequestsAreAMismatchOnBothSides) { run(2, mismatches); }
TEST_P(MemoryConnect, APeerThatDoesNotCallIsATimeout) { run(2, nobody_calls); }
TEST_P(MemoryConnect, AMalformedMessageIsRefused) { run(2, malformed); }
TEST_P(MemoryConnect, MisuseIsInvalid) { run(2, misuse); }
TEST_P(MemoryConnect, NthOperationFails) { run(1, nth_fails); }

TEST_P(MemoryConnectProcess, APeerThatDiesEndsTheCall)
{
    for (bool agreed : { false, true }) {
        weirt_ranks_run(stage(), 2, peer_dies, &agreed, sizeof agreed);
    }
}

/* ---- port channels --------------------------------------------------------------------------------------- */

PORT_SUITE(PortConnect, PORT_IPC, PORT_IB, PORT_OFI, PORT_DEVICE);

script_step step(uint32_t call, uint64_t remote_offset, uint64_t local_offset, uint64_t bytes)
{
    return { call, 0, remote_offset, local_offset, bytes, 0 };
}

// Each rank sends a part of its memory in a kernel. On rank 1 the host waits for the signal, over a second channel that
// uses the first one's connection.
void port_one_call_each(weirt_rank *rank)
{
    port_bench b;
    weir_memory *packets = nullptr;
    weir_port_channel *second = nullptr;
    weir_port_channel_connect_opts opts = WEIR_OPTS(weir_port_channel_connect_opts);
    weir_port_channel_opts channel = WEIR_OPTS(weir_port_channel_opts);
    bool good = b.open_ends(rank, 0, half, WEIR_SEMAPHORE_DEVICE) &&
                WEIRT_OK(rank, weir_memory_allocate(b.comm.comm, 4096, &b.data, &packets));
    channel.packets = packets;
    opts.transport = port_transports[b.plan.transport];
    opts.channel = &channel;
    good = good && WEIRT_OK(rank, weir_port_channel_connect(b.proxy, b.peer, 20, b.local, &opts, &b.channel));
    opts.connection = weir_semaphore_connection(weir_port_channel_semaphore(b.channel));
    opts.transport = nullptr;
    opts.end = rank->rank == 0 ? WEIR_SEMAPHORE_DEVICE : WEIR_SEMAPHORE_HOST;
    opts.channel = nullptr;
    good = good && WEIRT_OK(rank, weir_port_channel_connect(b.proxy, b.peer, 20, b.local, &opts, &second)) &&
           WEIRT_OK(rank, weir_port_channel_device(b.channel, &b.device)) &&
           WEIRT_OK(rank, weir_proxy_start(b.proxy)) && port_bench::all_ready(rank);
    if (good) {
        weir_port_channel_info info;
        weir_port_channel_get_info(b.channel, &info);
        WEIRT_EXPECT(rank, std::string(info.transport) == port_transports[b.plan.transport]);
        weir_memory *remote = weir_port_channel_memory(b.channel, WEIR_PORT_REMOTE);
        WEIRT_EXPECT(rank, weir_memory_rank(remote) == b.peer && weir_memory_bytes(remote) == 2 * half);
        WEIRT_EXPECT(rank, weir_port_channel_memory(b.channel, WEIR_PORT_LOCAL) == b.local);
        WEIRT_EXPECT(rank, weir_port_channel_memory(b.channel, WEIR_PORT_PACKETS_LOCAL) == packets);
        WEIRT_EXPECT(rank, weir_port_channel_memory(b.channel, 99) == nullptr);
        WEIRT_EXPECT(rank, weir_port_channel_memory(second, WEIR_PORT_PACKETS_LOCAL) == nullptr);
        uint64_t words[64] = {};
        for (uint64_t i = 0; i < 64; i++) {
            words[i] = port_word(rank->rank, i);
        }
        WEIRT_EXPECT(rank, b.write(rank, 0, words, sizeof words));
        if (b.call(rank, b.device, { step(SCRIPT_PUT_SIGNAL, half, 0, sizeof words), step(SCRIPT_WAIT, 0, 0, 0) })) {
            b.ended(rank, { WEIR_OK, WEIR_OK });
            WEIRT_EXPECT(rank, b.read(rank, half, words, sizeof words));
            for (uint64_t i = 0; i < 64; i++) {
                WEIRT_EXPECT(rank, words[i] == port_word(b.peer, i));
            }
        }
        const uint64_t word = port_word(7, 7);
        uint64_t came = 0;
        weirt_barrier(rank);
        if (rank->rank == 0) {
            WEIRT_EXPECT(rank, b.write(rank, 8, &word, sizeof word));
            WEIRT_OK(rank, weir_port_channel_put_signal_flush(second, half + 8, 8, sizeof word));
        } else {
            WEIRT_OK(rank, weir_semaphore_wait(weir_port_channel_semaphore(second), weirt_timeout_ms()));
            WEIRT_EXPECT(rank, b.read(rank, half + 8, &came, sizeof came) && came == word);
        }
        WEIRT_OK(rank, weir_port_channel_status(b.channel));
        WEIRT_OK(rank, weir_port_channel_status(second));
        WEIRT_OK(rank, weir_comm_status(b.comm.comm));
    }
    weirt_barrier(rank);
    weir_port_channel_destroy(second);
    weirt_barrier(rank);
    b.close(rank, true);
    weir_memory_destroy(packets);
}

TEST_P(PortConnect, OneCallOfEachRankMakesAChannel) { run(port_one_call_each, plan()); }

} // namespace
