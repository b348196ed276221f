// Packets over port channels: one put and no signal, over transports with and without whole words.
#include <algorithm>
#include <vector>

#include "port.h"
#include "port_packets_kernels.h"

namespace {

PORT_DATA_SUITE(PortPackets, PORT_IPC, PORT_IB, PORT_OFI, PORT_STAGED, PORT_DEVICE, PORT_IB_STAGED);

constexpr uint64_t SIZES[PORT_PACKETS_SIZES] = { 1, 8, 7, 132, 1024, PORT_PACKETS_MOST };
constexpr uint64_t BUFFER = 2 * (2 * PORT_PACKETS_REGION + 256);
constexpr uint64_t ROOM = BUFFER / 2 / WEIR_PORT_PACKETS_TAIL * WEIR_PORT_PACKETS_TAIL - WEIR_PORT_PACKETS_TAIL;
static_assert(ROOM >= 2 * PORT_PACKETS_REGION, "two rounds");

// A bench whose channel has packet buffers.
struct packet_bench {
    port_bench b;
    weir_memory *packets = nullptr;
    weir_memory *peer_packets = nullptr;

    bool open_ends(weirt_rank *rank)
    {
        return b.open_ends(rank, 0, PORT_PACKETS_HALF, WEIR_SEMAPHORE_DEVICE) &&
               WEIRT_OK(rank, weir_memory_allocate(b.comm.comm, BUFFER, &b.data, &packets)) &&
               b.exchange(rank, packets, 4, &peer_packets) &&
               WEIRT_OK(rank, weir_kernel_load(b.comm.device, port_packets_kernel())) &&
               WEIRT_OK(rank, weir_kernel_load(b.comm.device, port_packets_wrong_kernel()));
    }

    weir_status create()
    {
        weir_port_channel_opts opts = WEIR_OPTS(weir_port_channel_opts);
        opts.direct_bytes = b.plan.direct_bytes;
        opts.packets = packets;
        opts.peer_packets = peer_packets;
        return weir_port_channel_create(b.proxy, b.semaphore, b.remote, b.local, &opts, &b.channel);
    }

    bool open(weirt_rank *rank)
    {
        return open_ends(rank) && WEIRT_OK(rank, create()) &&
               WEIRT_OK(rank, weir_port_channel_device(b.channel, &b.device)) &&
               WEIRT_OK(rank, weir_proxy_start(b.proxy)) && port_bench::all_ready(rank);
    }

    void close(weirt_rank *rank)
    {
        weirt_barrier(rank);
        weir_port_channel_destroy(b.channel);
        b.channel = nullptr;
        weir_memory_destroy(peer_packets);
        weirt_barrier(rank);
        weir_memory_destroy(packets);
        b.close(rank, true);
    }
};

void moves(weirt_rank *rank)
{
    packet_bench p;
    if (p.open(rank)) {
        auto *report = static_cast<port_packets_report *>(weir_memory_host_pointer(p.b.shared));
        port_packets_args args = {};
        args.channel = p.b.device;
        weir_grid_barrier_device(p.b.barrier, &args.barrier);
        args.report = static_cast<port_packets_report *>(weir_memory_pointer(p.b.shared));
        args.local = static_cast<char *>(weir_memory_pointer(p.b.local));
        std::copy(SIZES, SIZES + PORT_PACKETS_SIZES, args.sizes);
        args.rank = rank->rank;
        args.peer = p.b.peer;
        args.rounds = 4 * PORT_PACKETS_SIZES;
        // Kernels follow each other; each continues the flags of the one before.
        for (uint32_t group : { PORT_THREAD, PORT_BLOCK, PORT_GRID }) {
            const weir_shape shape = group == PORT_GRID ? weir_shape{ 2, 3 } : weir_shape{ 1, 4 };
            args.group = group;
            std::memset(static_cast<void *>(report), 0, sizeof *report);
            if (!p.b.launch(rank, port_packets_kernel(), shape, &args, true) || !p.b.finish(rank)) {
                break;
            }
            WEIRT_STATUS(rank, WEIR_OK, static_cast<weir_status>(report->status));
            WEIRT_EXPECT(rank, report->rounds == args.rounds && report->wrong == 0);
            WEIRT_STATUS(rank, WEIR_PENDING, static_cast<weir_status>(report->polled));
            args.first += args.rounds;
        }
        WEIRT_OK(rank, weir_port_channel_status(p.b.channel));
        WEIRT_OK(rank, weir_comm_status(p.b.comm.comm));
    }
    p.close(rank);
}

TEST_P(PortPackets, MoveBytes) { run(moves, plan()); }

// Waits for packets of a failed channel return its error.
void failed(weirt_rank *rank)
{
    packet_bench p;
    weirt_log_allow(" failed: ");
    if (p.open(rank)) {
        port_packets_wrong_args args = {};
        args.channel = p.b.device;
        args.status = static_cast<int32_t *>(weir_memory_pointer(p.b.shared));
        args.bytes = 100;
        args.unpack = 1;
        p.b.launch(rank, port_packets_wrong_kernel(), weir_shape{ 1, 1 }, &args, false);
        weirt_barrier(rank);
        if (rank->rank == 0) {
            WEIRT_OK(rank, weir_port_channel_put(p.b.channel, 0, 2 * PORT_PACKETS_HALF, 1, nullptr));
        }
        p.b.finish(rank);
        WEIRT_STATUS(rank, rank->rank == 0 ? WEIR_ERR_RANGE : WEIR_ERR_REMOTE,
                     *static_cast<weir_status *>(weir_memory_host_pointer(p.b.shared)));
        WEIRT_OK(rank, weir_comm_status(p.b.comm.comm));
    }
    p.close(rank);
}

TEST_P(PortPackets, FailedChannelEndsTheirWaits) { run(failed, plan()); }

struct wrong_call {
    uint64_t packet_offset;
    uint64_t local_offset;
    uint64_t bytes;
    weir_status status;
};

// The first invalid call ends the communicator and sends nothing.
void wrong(weirt_rank *rank)
{
    static const wrong_call calls[] = {
        { ROOM - 16, 0, 9, WEIR_ERR_RANGE },
        { ROOM, 0, 1, WEIR_ERR_RANGE },
        { UINT64_MAX - 15, 0, 8, WEIR_ERR_RANGE },
        { 0, 2 * PORT_PACKETS_HALF, 1, WEIR_ERR_RANGE },
        { 0, UINT64_MAX, 8, WEIR_ERR_RANGE },
        { 0, 0, UINT64_MAX - 8, WEIR_ERR_RANGE },
        { 8, 0, 8, WEIR_ERR_INVALID },
    };
    const wrong_call &call = calls[port_bench::plan_of(rank)->op / 2];
    packet_bench p;
    if (p.open(rank)) {
        port_packets_wrong_args args = {};
        args.channel = p.b.device;
        args.status = static_cast<int32_t *>(weir_memory_pointer(p.b.shared));
        args.packet_offset = call.packet_offset;
        args.local_offset = call.local_offset;
        args.bytes = call.bytes;
        args.unpack = port_bench::plan_of(rank)->op % 2;
        weirt_barrier(rank);
        if (rank->rank == 0 && p.b.launch(rank, port_packets_wrong_kernel(), weir_shape{ 1, 1 }, &args, false)) {
            p.b.finish(rank);
            WEIRT_STATUS(rank, call.status, *static_cast<weir_status *>(weir_memory_host_pointer(p.b.shared)));
            WEIRT_STATUS(rank, call.status, weir_comm_status(p.b.comm.comm));
        }
        weirt_barrier(rank);
        std::vector<char> bytes(BUFFER / 2), zero(BUFFER / 2);
        (void)!weir_device_copy(p.b.comm.device, bytes.data(), weir_memory_pointer(p.packets), BUFFER / 2);
        WEIRT_EXPECT(rank, bytes == zero);
    }
    p.close(rank);
}

TEST_P(PortPackets, WrongCallsDoNothing)
{
    if (plan().transport != PORT_IPC && plan().transport != PORT_IB) {
        GTEST_SKIP() << "the checks are the same";
    }
    for (uint32_t i = 0; i < 14; i++) {
        port_case what = plan();
        what.op = i;
        run(wrong, what);
    }
}

// Invalid pairs of packet buffers; then a channel without packet buffers.
void misuse(weirt_rank *rank)
{
    packet_bench p;
    if (p.open_ends(rank)) {
        weir_memory *const right = p.packets;
        weir_memory *const peers = p.peer_packets;
        p.peer_packets = nullptr;
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, p.create());
        WEIRT_TEXT(rank, "packets and peer_packets must both be set");
        p.peer_packets = p.b.remote;
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, p.create());
        WEIRT_TEXT(rank, "they must be the same");
        p.packets = peers;
        p.peer_packets = right;
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, p.create());
        WEIRT_TEXT(rank, "packets must be memory of this rank");
        p.packets = p.peer_packets = nullptr;
        if (WEIRT_OK(rank, p.create()) && WEIRT_OK(rank, weir_port_channel_device(p.b.channel, &p.b.device)) &&
            WEIRT_OK(rank, weir_proxy_start(p.b.proxy)) && weirt_barrier(rank) && rank->rank == 0) {
            port_packets_wrong_args args = {};
            args.channel = p.b.device;
            args.status = static_cast<int32_t *>(weir_memory_pointer(p.b.shared));
            args.bytes = 8;
            p.b.launch(rank, port_packets_wrong_kernel(), weir_shape{ 1, 1 }, &args, false);
            p.b.finish(rank);
            WEIRT_STATUS(rank, WEIR_ERR_RANGE, weir_comm_status(p.b.comm.comm));
        }
        p.packets = right;
        p.peer_packets = peers;
    }
    p.close(rank);
}

TEST_P(PortPackets, BuffersAreChecked)
{
    run_unless(plan().transport != PORT_IPC && plan().transport != PORT_OFI, "the checks are the same", misuse);
}

} // namespace
