// Meshes: every rank has a channel to each other rank, as kernels of collectives have. The handles lie in arrays in
// device memory. Each pair of ranks exchanges different bytes, so a mixed-up channel is found.
#include <thread>
#include <vector>

#include "mesh_kernels.h"
#include "port.h"

namespace {

constexpr uint64_t SIZES[] = { 1, 130, 4099, 20011 };
constexpr uint64_t SLOT = 20096;
constexpr uint64_t PACKET_SLOT = 2 * SLOT + 128;
static_assert(SLOT % 128 == 0 && PACKET_SLOT % 128 == 0, "lines");

const char *const op_names[MESH_OPS] = { "put",
                                         "put by blocks",
                                         "get",
                                         "LL16",
                                         "lines",
                                         "port channel by threads",
                                         "port channel by blocks",
                                         "port channel get" };

struct mesh_case {
    uint32_t transport; // port_variant, of the port channels
    weir_semaphore_end end;
};

// A rank's objects for one other rank.
struct mesh_link {
    uint32_t rank;
    weir_connection *connection; // over ipc
    weir_semaphore *meet;        // between the steps of kernels
    weir_semaphore *semaphore;   // of the memory channels
    weir_memory *remote;
    weir_memory *remote_packets;
    weir_memory_channel *data;
    weir_memory_channel *packets;
    weir_connection *port_connection;
    weir_semaphore *port_semaphore;
    weir_port_channel *port;
};

// Handles as kernels get them.
struct mesh_table {
    weir_dev_memory_channel data[MESH_PEERS];
    weir_dev_memory_channel packets[MESH_PEERS];
    weir_dev_semaphore semaphores[MESH_PEERS];
    weir_dev_port_channel ports[MESH_PEERS];
};

struct mesh_bench {
    weirt_comm comm = {};
    uint32_t peers = 0;
    mesh_link links[MESH_PEERS] = {};
    weir_memory *local = nullptr;
    weir_memory *packets = nullptr;
    weir_memory *shared = nullptr;
    weir_memory *table = nullptr;
    weir_grid_barrier *barrier = nullptr;
    weir_proxy *proxy = nullptr;
    void *stream = nullptr;
    mesh_report *report = nullptr;
    mesh_table handles = {};
    uint32_t launches = 0;

    bool open(weirt_rank *rank, weir_memory_kind kind, bool with_packets)
    {
        const weir_memory_opts host = { sizeof host, WEIR_MEMORY_HOST, false, 0 };
        const weir_memory_opts data = { sizeof data, kind, false, 0 };
        peers = rank->size - 1;
        for (uint32_t i = 0; i < peers; i++) {
            links[i].rank = i + (i >= rank->rank);
        }
        if (!weirt_comm_open(rank, 0, &comm) || !WEIRT_OK(rank, weir_kernel_load(comm.device, mesh_kernel())) ||
            !WEIRT_OK(rank, weir_stream_create(comm.device, &stream)) ||
            !WEIRT_OK(rank, weir_memory_allocate(comm.comm, 2 * rank->size * SLOT, &data, &local)) ||
            !WEIRT_OK(rank, weir_memory_allocate(comm.comm, sizeof(mesh_report), &host, &shared)) ||
            !WEIRT_OK(rank, weir_memory_allocate(comm.comm, sizeof(mesh_table), nullptr, &table)) ||
            !WEIRT_OK(rank, weir_grid_barrier_create(comm.comm, &barrier)) ||
            (with_packets &&
             !WEIRT_OK(rank, weir_memory_allocate(comm.comm, rank->size * PACKET_SLOT, nullptr, &packets)))) {
            return false;
        }
        report = static_cast<mesh_report *>(weir_memory_host_pointer(shared));
        for (uint32_t i = 0; i < peers; i++) {
            mesh_link *link = &links[i];
            if (!weirt_connect(rank, comm.comm, link->rank, 1, &link->connection) ||
                !weirt_semaphore(rank, link->connection, 2, WEIR_SEMAPHORE_DEVICE, &link->meet) ||
                !WEIRT_OK(rank, weir_semaphore_device(link->meet, &handles.semaphores[i]))) {
                return false;
            }
        }
        return true;
    }

    // Sends a memory of this rank to all others, and receives theirs. The others' connections exist when it returns.
    bool exchange(weirt_rank *rank, weir_memory *mine, uint64_t tag, weir_memory *mesh_link::*theirs)
    {
        bool good = true;
        for (uint32_t i = 0; i < peers && good; i++) {
            good = WEIRT_OK(rank, weir_memory_send(comm.comm, mine, links[i].rank, tag));
        }
        for (uint32_t i = 0; i < peers && good; i++) {
            good = weirt_receive(rank, comm.comm, links[i].rank, tag, &(links[i].*theirs));
        }
        return good;
    }

    bool open_memory_channels(weirt_rank *rank)
    {
        weir_memory_channel_opts opts = { sizeof opts, packets };
        if (!exchange(rank, local, 3, &mesh_link::remote) || !exchange(rank, packets, 4, &mesh_link::remote_packets)) {
            return false;
        }
        for (uint32_t i = 0; i < peers; i++) {
            mesh_link *link = &links[i];
            if (!weirt_semaphore(rank, link->connection, 5, WEIR_SEMAPHORE_DEVICE, &link->semaphore) ||
                !WEIRT_OK(rank,
                          weir_memory_channel_create(link->semaphore, link->remote, local, nullptr, &link->data)) ||
                !WEIRT_OK(rank, weir_memory_channel_create(link->semaphore, link->remote_packets, local, &opts,
                                                           &link->packets))) {
                return false;
            }
            weir_memory_channel_device(link->data, &handles.data[i]);
            weir_memory_channel_device(link->packets, &handles.packets[i]);
        }
        return true;
    }

    // One channel to each peer, all of one proxy.
    bool open_ports(weirt_rank *rank, const mesh_case *what)
    {
        const weir_connection_opts opts = { sizeof opts, port_transports[what->transport] };
        const weir_port_channel_opts never = { sizeof never, WEIR_PORT_DIRECT_NEVER, 0, 0, nullptr, nullptr };
        if (!WEIRT_OK(rank, weir_proxy_create(comm.comm, nullptr, &proxy))) {
            return false;
        }
        for (uint32_t i = 0; i < peers; i++) {
            mesh_link *link = &links[i];
            weir_future *future = nullptr;
            if (!WEIRT_OK(rank, weir_connection_create_async(comm.comm, link->rank, 6, &opts, &link->port_connection,
                                                             &future)) ||
                !weirt_complete(rank, future) ||
                !weirt_semaphore(rank, link->port_connection, 7, what->end, &link->port_semaphore)) {
                return false;
            }
        }
        if (!exchange(rank, local, 3, &mesh_link::remote)) {
            return false;
        }
        for (uint32_t i = 0; i < peers; i++) {
            mesh_link *link = &links[i];
            if (!WEIRT_OK(rank, weir_port_channel_create(proxy, link->port_semaphore, link->remote, local, &never,
                                                         &link->port)) ||
                (what->end == WEIR_SEMAPHORE_DEVICE &&
                 !WEIRT_OK(rank, weir_port_channel_device(link->port, &handles.ports[i])))) {
                return false;
            }
        }
        return WEIRT_OK(rank, weir_proxy_start(proxy));
    }

    // Ends the set-up. Allocating and mapping GPU memory waits until earlier kernels of the process have ended there. A
    // kernel that waits for a rank whose set-up waits for that kernel would never end. So no rank launches before all
    // ranks are ready.
    bool ready(weirt_rank *rank)
    {
        const bool copied =
            WEIRT_OK(rank, weir_device_copy(comm.device, weir_memory_pointer(table), &handles, sizeof handles));
        return weirt_barrier(rank) && copied;
    }

    void close(weirt_rank *rank)
    {
        (void)weirt_barrier(rank);
        if (stream != nullptr) {
            weir_stream_destroy(comm.device, stream);
        }
        for (mesh_link &link : links) {
            weir_port_channel_destroy(link.port);
            weir_memory_channel_destroy(link.packets);
            weir_memory_channel_destroy(link.data);
        }
        weir_proxy_destroy(proxy);
        for (mesh_link &link : links) {
            weir_semaphore_destroy(link.port_semaphore);
            weir_semaphore_destroy(link.semaphore);
            weir_semaphore_destroy(link.meet);
            weir_connection_destroy(link.port_connection);
            weir_connection_destroy(link.connection);
            weir_memory_destroy(link.remote_packets);
            weir_memory_destroy(link.remote);
        }
        weir_grid_barrier_destroy(barrier);
        (void)weirt_barrier(rank); // peers have unmapped them
        weir_memory_destroy(table);
        weir_memory_destroy(shared);
        weir_memory_destroy(packets);
        weir_memory_destroy(local);
        weirt_comm_close(&comm);
    }

    // At most 64 threads spin in all ranks together, 16 under the thread sanitizer, including proxies.
    weir_shape shape(const weirt_rank *rank) const
    {
        const uint32_t most = std::strcmp(weirt_sanitizer(), "thread") == 0 ? 16 : 64;
        const uint32_t each = most / rank->size - (proxy != nullptr ? 1 : 0);
        if (std::strcmp(rank->stage->kind, "gpu") == 0) {
            return weir_device_fit_shape(comm.device, weir_shape{ 8, 128 });
        }
        return each >= 6 ? weir_shape{ 2, 3 } : weir_shape{ each >= 2 ? 2u : 1u, 1 };
    }

    // Exchanges each size in two rounds of one kernel.
    bool exchange_all(weirt_rank *rank, uint32_t op)
    {
        mesh_args args = {};
        auto *device = static_cast<mesh_table *>(weir_memory_pointer(table));
        args.data = device->data;
        args.packets = device->packets;
        args.semaphores = device->semaphores;
        args.ports = device->ports;
        weir_grid_barrier_device(barrier, &args.barrier);
        args.report = static_cast<mesh_report *>(weir_memory_pointer(shared));
        args.local = static_cast<char *>(weir_memory_pointer(local));
        args.slot = SLOT;
        args.packet_slot = PACKET_SLOT;
        args.rank = rank->rank;
        args.ranks = rank->size;
        args.rounds = 2;
        args.op = op;
        for (uint64_t bytes : SIZES) {
            args.bytes = bytes;
            args.seed = ++launches;
            if (!launch(rank, &args)) {
                return false;
            }
        }
        return true;
    }

    bool launch(weirt_rank *rank, const mesh_args *args)
    {
        const weir_shape threads = shape(rank);
        const weir_launch_opts opts = { sizeof opts, true };
        std::memset(static_cast<void *>(report), 0, sizeof *report);
        if (!WEIRT_OK(rank, weir_launch(comm.device, mesh_kernel(), threads, args, &opts, stream)) ||
            !WEIRT_OK(rank, weir_stream_wait(comm.device, stream, weirt_timeout_ms()))) {
            return false;
        }
        for (uint32_t i = 0; i < threads.blocks * threads.threads; i++) {
            if (report->status[i] != WEIR_OK) {
                weirt_fail(rank, __FILE__, __LINE__, "%s of %llu bytes: thread %u: %s (%s)", op_names[args->op],
                           static_cast<unsigned long long>(args->bytes), i,
                           weir_status_name(static_cast<weir_status>(report->status[i])),
                           weir_comm_status(comm.comm) == WEIR_OK ? "communicator fine" : weir_last_error());
                return false;
            }
        }
        if (report->wrong != 0 || report->rounds != args->rounds) {
            weirt_fail(rank, __FILE__, __LINE__,
                       "%s of %llu bytes: %llu rounds, %llu wrong bytes, one at %llu of rank %llu", op_names[args->op],
                       static_cast<unsigned long long>(args->bytes), static_cast<unsigned long long>(report->rounds),
                       static_cast<unsigned long long>(report->wrong),
                       static_cast<unsigned long long>(report->wrong_position),
                       static_cast<unsigned long long>(report->wrong_peer));
            return false;
        }
        return true;
    }

    mesh_bench() = default;
    mesh_bench(const mesh_bench &) = delete;
    mesh_bench &operator=(const mesh_bench &) = delete;
};

// ---- memory channels and semaphores --------------------------------------------------------------------------

void memory_channels(weirt_rank *rank)
{
    mesh_bench b;
    bool good = b.open(rank, WEIR_MEMORY_DEVICE, true) && b.open_memory_channels(rank) && b.ready(rank);
    for (uint32_t op = 0; op < MESH_MEMORY_OPS && good; op++) {
        const bool lines = b.handles.packets[0].lines != 0;
        good = (op == MESH_LINES && !lines) || b.exchange_all(rank, op);
    }
    WEIRT_OK(rank, weir_comm_status(b.comm.comm));
    b.close(rank);
}

WEIRT_STAGE_RANKS_SUITE(Mesh, 3, 5, 8);

TEST_P(Mesh, KernelsExchangeWithAllByMemoryChannels) { run(memory_channels); }

// ---- port channels: those of a rank belong to one proxy --------------------------------------------------------

weir_memory_kind kind_for(const weirt_rank *rank, const mesh_case *what)
{
    const bool gpu = std::strcmp(rank->stage->kind, "gpu") == 0;
    const bool ib = std::strcmp(port_transports[what->transport], "ib") == 0;
    return gpu && ib && weirt_use_software_nic() ? WEIR_MEMORY_HOST
                                                 : WEIR_MEMORY_DEVICE; // swnic cannot reach GPU memory
}

void port_channels(weirt_rank *rank)
{
    const auto *what = static_cast<const mesh_case *>(rank->arg);
    mesh_bench b;
    bool good = b.open(rank, kind_for(rank, what), false) && b.open_ports(rank, what) && b.ready(rank);
    for (uint32_t op = MESH_PORT_THREADS; op < MESH_OPS && good; op++) {
        good = b.exchange_all(rank, op);
    }
    for (uint32_t i = 0; i < b.peers; i++) {
        WEIRT_OK(rank, weir_port_channel_status(b.links[i].port));
    }
    WEIRT_OK(rank, weir_comm_status(b.comm.comm));
    b.close(rank);
}

uint64_t slot_at(uint64_t index) { return index * SLOT; }

// Host thread `part` of two puts its half of the data to each rank.
void put_to_all(weirt_rank *rank, mesh_bench *b, uint64_t bytes, uint64_t part)
{
    const uint64_t from = part == 0 ? 0 : bytes / 2;
    const uint64_t count = part == 0 ? bytes / 2 : bytes - bytes / 2;
    for (uint32_t i = 0; i < b->peers; i++) {
        const mesh_link &link = b->links[i];
        WEIRT_OK(rank, weir_port_channel_put_signal(link.port, slot_at(rank->rank) + from,
                                                    slot_at(rank->size + link.rank) + from, count, nullptr));
    }
    for (uint32_t i = 0; i < b->peers; i++) {
        WEIRT_OK(rank, weir_port_channel_flush(b->links[i].port));
    }
}

// Checks the data from each rank, and that nothing else has changed.
bool right_bytes(weirt_rank *rank, mesh_bench *b, uint64_t bytes)
{
    std::vector<char> got(rank->size * SLOT);
    if (!WEIRT_OK(rank, weir_device_copy(b->comm.device, got.data(), weir_memory_pointer(b->local), got.size()))) {
        return false;
    }
    for (uint32_t from = 0; from < rank->size; from++) {
        std::vector<char> right(SLOT, MESH_GUARD);
        if (from != rank->rank) {
            weirt_data_fill(right.data(), bytes, mesh_sender(from, rank->rank), bytes);
        }
        if (std::memcmp(&got[slot_at(from)], right.data(), SLOT) != 0) {
            weirt_fail(rank, __FILE__, __LINE__, "%llu bytes by host threads: those of rank %u are wrong",
                       static_cast<unsigned long long>(bytes), from);
            return false;
        }
    }
    return true;
}

bool host_round(weirt_rank *rank, mesh_bench *b, uint64_t bytes)
{
    std::vector<char> data(2 * rank->size * SLOT, MESH_GUARD);
    for (uint32_t to = 0; to < rank->size; to++) {
        weirt_data_fill(&data[slot_at(rank->size + to)], SLOT, mesh_sender(rank->rank, to), bytes);
    }
    bool good =
        WEIRT_OK(rank, weir_device_copy(b->comm.device, weir_memory_pointer(b->local), data.data(), data.size())) &&
        weirt_barrier(rank);
    if (good) {
        std::thread other([=] { put_to_all(rank, b, bytes, 1); });
        put_to_all(rank, b, bytes, 0);
        for (uint32_t i = 0; i < 2 * b->peers && good; i++) {
            good = WEIRT_OK(rank, weir_semaphore_wait(b->links[i / 2].port_semaphore, weirt_timeout_ms()));
        }
        other.join();
    }
    good = good && right_bytes(rank, b, bytes);
    return weirt_barrier(rank) && good;
}

void host_threads(weirt_rank *rank)
{
    const auto *what = static_cast<const mesh_case *>(rank->arg);
    mesh_bench b;
    bool good = b.open(rank, kind_for(rank, what), false) && b.open_ports(rank, what);
    for (uint64_t bytes : SIZES) {
        good = good && host_round(rank, &b, bytes);
    }
    WEIRT_OK(rank, weir_comm_status(b.comm.comm));
    b.close(rank);
}

// Eight ranks have 56 endpoints over TCP, or 8 software NICs, whose threads spin too.
bool eight_fit(const port_case &plan)
{
    const bool checked = std::strcmp(weirt_sanitizer(), "thread") == 0;
    return plan.transport != PORT_OFI && (plan.transport == PORT_IPC || !checked);
}

PORT_DATA_SUITE(PortMesh, PORT_IPC, PORT_IB, PORT_OFI, PORT_DEVICE);

TEST_P(PortMesh, KernelsExchangeWithAllOfThree)
{
    const mesh_case what = { plan().transport, WEIR_SEMAPHORE_DEVICE };
    weirt_ranks_run(stage(), 3, port_channels, &what, sizeof what);
}

TEST_P(PortMesh, KernelsExchangeWithAllOfFive)
{
    const mesh_case what = { plan().transport, WEIR_SEMAPHORE_DEVICE };
    weirt_ranks_run(stage(), 5, port_channels, &what, sizeof what);
}

TEST_P(PortMesh, KernelsExchangeWithAllOfEight)
{
    if (!eight_fit(plan())) {
        GTEST_SKIP() << "takes long; five ranks show the same";
    }
    const mesh_case what = { plan().transport, WEIR_SEMAPHORE_DEVICE };
    weirt_ranks_run(stage(), 8, port_channels, &what, sizeof what);
}

TEST_P(PortMesh, HostThreadsPutToAll)
{
    for (uint32_t ranks : { 3, 8 }) {
        if (ranks == 8 && !eight_fit(plan())) {
            continue;
        }
        const mesh_case what = { plan().transport, WEIR_SEMAPHORE_HOST };
        weirt_ranks_run(stage(), ranks, host_threads, &what, sizeof what);
    }
}

} // namespace
