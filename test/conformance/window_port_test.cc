// Windows between devices whose memory is not mapped: port channels over each transport and engine.
#include <string>

#include "port.h"
#include "window_port_kernels.h"

namespace {

PORT_SUITE(WindowPort, PORT_IPC, PORT_IB, PORT_OFI, PORT_STAGED, PORT_DEVICE, PORT_DEVICE_STAGED, PORT_IB_STAGED);
PORT_SUITE(WindowPortFault, PORT_IB, PORT_DEVICE);

// A thread does not die alone.
#define PORT_PROCESS_SUITE(Suite, ...)                                                                    \
    class Suite : public PortTest {};                                                                     \
    INSTANTIATE_TEST_SUITE_P(Transports, Suite,                                                           \
                             ::testing::Combine(::testing::Values(1, 3), ::testing::Values(__VA_ARGS__)), \
                             port_case_name)
PORT_PROCESS_SUITE(WindowPortLoss, PORT_IPC, PORT_IB, PORT_OFI, PORT_STAGED, PORT_DEVICE, PORT_DEVICE_STAGED,
                   PORT_IB_STAGED);
PORT_PROCESS_SUITE(WindowPortSilence, PORT_OFI, PORT_DEVICE);

constexpr uint32_t STOP_TIMEOUT = 5000; // WEIR_TIMEOUT_MS, ms

// A run. host_ranks: devices that map each other's memory; 0: WEIR_TRANSPORT names only the transport.
struct Plan {
    uint32_t variant;
    uint32_t devices;
    uint32_t host_ranks;
    uint32_t ranks;
    uint32_t notifications;
    uint32_t op;
    uint32_t rounds;
    uint64_t bytes;
    weirt_death death = WEIRT_ALIVE; // of the last device
    weir_memory_kind rings = WEIR_MEMORY_DEVICE;
};

const char *transport_of(const Plan &plan) { return port_transports[plan.variant]; }

// A window with two memories on each device, and a kernel's arguments.
struct Bench {
    weirt_comm c = {};
    Plan plan = {};
    weir_window *window = nullptr;
    weir_memory *arrived = nullptr;
    weir_memory *leaves = nullptr;
    weir_memory *shared = nullptr;
    window_port_report *report = nullptr;
    void *stream = nullptr;
    window_port_args args = {};
    bool few = false; // set before open: not all ranks of the harness have such a window

    weir_window_opts opts() const
    {
        weir_window_opts opts = {};
        opts.size = sizeof opts;
        opts.ranks = plan.ranks;
        opts.notifications = plan.notifications;
        opts.kind = plan.rings;
        opts.host_ranks = plan.host_ranks;
        opts.transport = plan.host_ranks != 0 ? transport_of(plan) : nullptr;
        return opts;
    }

    bool open(weirt_rank *rank)
    {
        plan = *static_cast<const Plan *>(rank->arg);
        rank->staged = std::strstr(port_suffixes[plan.variant], "staged") != nullptr;
        const uint64_t slot = plan.bytes + 16;
        const uint64_t part = slot * (rank->size * plan.ranks + 1);
        weir_window_opts window_opts = opts();
        weir_memory_opts data = { sizeof data, WEIR_MEMORY_DEVICE, false, 0 };
        weir_memory_opts host = { sizeof host, WEIR_MEMORY_HOST, false, 0 };
        if (std::strcmp(rank->stage->kind, "gpu") == 0 && std::strcmp(transport_of(plan), "ib") == 0 &&
            weirt_use_software_nic()) {
            data.kind = WEIR_MEMORY_HOST; // the software NIC reaches no memory of a GPU
            window_opts.kind = plan.rings = WEIR_MEMORY_HOST;
        }
        const bool made = weirt_comm_open(rank, 0, &c) &&
                          WEIRT_OK(rank, weir_window_create(c.comm, &window_opts, &window)) &&
                          WEIRT_OK(rank, weir_memory_allocate(c.comm, part * plan.ranks, &data, &arrived)) &&
                          WEIRT_OK(rank, weir_memory_allocate(c.comm, slot * plan.ranks, &data, &leaves)) &&
                          WEIRT_OK(rank, weir_memory_allocate(c.comm, sizeof *report, &host, &shared)) &&
                          WEIRT_OK(rank, weir_window_register(window, arrived, part, part, &args.arrived)) &&
                          WEIRT_OK(rank, weir_window_register(window, leaves, slot, slot, &args.leaves)) &&
                          WEIRT_OK(rank, weir_stream_create(c.device, &stream)) &&
                          WEIRT_OK(rank, weir_kernel_load(c.device, window_port_kernel())) &&
                          WEIRT_OK(rank, weir_kernel_load(c.device, window_near_kernel()));
        if (made) {
            weir_window_device(window, &args.window);
            report = static_cast<window_port_report *>(weir_memory_host_pointer(shared));
            args.report = static_cast<window_port_report *>(weir_memory_pointer(shared));
            args.slot = slot;
            args.bytes = plan.bytes;
            args.rounds = plan.rounds;
            args.op = plan.op;
        }
        return meet(rank) && made;
    }
    bool meet(weirt_rank *rank)
    {
        return few ? WEIRT_OK(rank, weir_bootstrap_barrier(c.boot, nullptr)) : weirt_barrier(rank);
    }

    // Launches a kernel of blocks with two threads each.
    bool launch(weirt_rank *rank, const weir_kernel *kernel, uint32_t blocks = 2)
    {
        const weir_launch_opts together = { sizeof together, true };
        return WEIRT_OK(rank, weir_launch(c.device, kernel, { blocks, 2 }, &args, &together, stream));
    }
    bool run(weirt_rank *rank, const weir_kernel *kernel)
    {
        return launch(rank, kernel) && WEIRT_OK(rank, weir_stream_wait(c.device, stream, weirt_timeout_ms()));
    }

    // `alone`: the other rank is dead.
    void close(weirt_rank *rank, bool alone = false)
    {
        if (!alone) {
            (void)meet(rank);
        }
        if (stream != nullptr) {
            weir_stream_destroy(c.device, stream);
        }
        weir_window_destroy(window);
        if (!alone) {
            (void)meet(rank);
        }
        weir_memory_destroy(arrived);
        weir_memory_destroy(leaves);
        weir_memory_destroy(shared);
        weirt_comm_close(&c);
    }
};

// ---- transfers -----------------------------------------------------------------------------------------------------

void check_info(weirt_rank *rank, const Bench &b, uint32_t device)
{
    const uint32_t hosts = b.plan.host_ranks != 0 ? b.plan.host_ranks : 1;
    const bool near = device / hosts == rank->rank / hosts;
    const bool by_kernels = std::strstr(port_suffixes[b.plan.variant], "device") != nullptr;
    weir_window_info info;
    if (!WEIRT_OK(rank, weir_window_get_info(b.window, device, &info))) {
        return;
    }
    WEIRT_EXPECT(rank, std::string(info.way) == (device == rank->rank ? "own" : near ? "mapped" : "port"));
    WEIRT_EXPECT(rank, std::string(info.engine) == (near ? "" : by_kernels ? "device" : "proxy"));
    WEIRT_EXPECT(rank, near || std::string(info.transport) == transport_of(b.plan));
    WEIRT_EXPECT(rank, std::string(info.reason) == (near                     ? ""
                                                    : b.plan.host_ranks != 0 ? "opts.host_ranks puts it on another host"
                                                                             : "ipc: WEIR_TRANSPORT does not name it"));
}

void goes_through(weirt_rank *rank)
{
    Bench b;
    if (b.open(rank)) {
        for (uint32_t k = 0; k < rank->size; k++) {
            check_info(rank, b, k);
        }
        WEIRT_EXPECT(rank, weir_window_bytes(b.window) > rank->size * sizeof(weir_dev_port_channel));
        weir_device_place place;
        WEIRT_OK(rank, weir_device_locate(b.args.window.rings, &place));
        WEIRT_EXPECT(rank, place.kind == b.plan.rings);
        if (b.run(rank, window_port_kernel())) {
            WEIRT_EXPECT(rank, b.report->wrong == 0);
            WEIRT_EXPECT(rank, b.plan.op != WINDOW_PORT_EXCHANGE || b.report->rounds == b.plan.rounds);
            for (uint32_t i = 0; i < b.plan.ranks; i++) {
                WEIRT_STATUS(rank, WEIR_OK, static_cast<weir_status>(b.report->status[i]));
            }
        }
        WEIRT_OK(rank, weir_comm_status(b.c.comm));
    }
    b.close(rank);
}

void run_plan(const weirt_stage *stage, const Plan &plan, weirt_rank_fn body)
{
    const bool staged = std::strstr(port_suffixes[plan.variant], "staged") != nullptr;
    if (staged && std::strcmp(weirt_sanitizer(), "thread") == 0) {
        GTEST_SKIP() << "the thread sanitizer takes the NIC's read behind a put for a race with notifications";
    }
    weirt_ranks_run(stage, plan.devices, body, &plan, sizeof plan);
}

TEST_P(WindowPort, AllRanksExchange)
{
    run_plan(stage(), { std::get<1>(GetParam()), 2, 1, 3, 0, WINDOW_PORT_EXCHANGE, 20, 1003 }, goes_through);
}

// One program in which a rank reaches others in all three ways.
TEST_P(WindowPort, HostsOfTwoDevices)
{
    run_plan(stage(), { std::get<1>(GetParam()), 4, 2, 2, 0, WINDOW_PORT_EXCHANGE, 5, 77 }, goes_through);
}

// Without ipc there is no other way to another device.
TEST_P(WindowPort, WithoutIpc)
{
    const uint32_t variant = std::get<1>(GetParam());
    if (variant == PORT_IPC) {
        GTEST_SKIP() << "ipc maps memory";
    }
    setenv("WEIR_TRANSPORT", name(), 1);
    run_plan(stage(), { variant, 3, 0, 1, 0, WINDOW_PORT_EXCHANGE, 3, 8 }, goes_through);
    unsetenv("WEIR_TRANSPORT");
}

TEST_P(WindowPort, RingsInHostMemory)
{
    run_plan(stage(),
             { std::get<1>(GetParam()), 2, 1, 2, 0, WINDOW_PORT_EXCHANGE, 5, 77, WEIRT_ALIVE, WEIR_MEMORY_HOST },
             goes_through);
}

// Rings of four words: a sender waits for heads that come back through the channel.
TEST_P(WindowPort, FloodsAreInOrder)
{
    run_plan(stage(), { std::get<1>(GetParam()), 2, 1, 2, 2, WINDOW_PORT_FLOOD, 500, 8 }, goes_through);
}

// ---- kernels without the port's part -------------------------------------------------------------------------------

void without_port(weirt_rank *rank)
{
    Bench b;
    if (b.open(rank)) {
        b.args.op = WINDOW_PORT_WAIT; // to itself
        if (b.run(rank, window_near_kernel())) {
            WEIRT_STATUS(rank, WEIR_OK, static_cast<weir_status>(b.report->status[0]));
        }
        (void)weirt_barrier(rank);
        b.args.op = WINDOW_PORT_ONE; // to device 1
        if (rank->rank == 0) {
            (void)b.run(rank, window_near_kernel());
            WEIRT_STATUS(rank, WEIR_ERR_UNSUPPORTED, static_cast<weir_status>(b.report->status[0]));
            WEIRT_STATUS(rank, WEIR_ERR_UNSUPPORTED, weir_comm_status(b.c.comm));
            WEIRT_TEXT(rank, "device 1 is behind a port channel, but the kernel is compiled with WEIR_WINDOW_NO_PORT");
        }
        (void)weirt_barrier(rank);
    }
    b.close(rank);
}

TEST_P(WindowPort, KernelsWithoutThePortsPartAreRefused)
{
    run_plan(stage(), { std::get<1>(GetParam()), 2, 1, 1, 0, WINDOW_PORT_ONE, 1, 8 }, without_port);
}

// Device 1 takes two notifications. Its report to device 0, which then has room again, is a request to a port channel.
void takes_without_port(weirt_rank *rank)
{
    Bench b;
    if (b.open(rank)) {
        const bool takes = rank->rank == 1;
        if (b.run(rank, takes ? window_near_kernel() : window_port_kernel())) {
            const weir_status status = static_cast<weir_status>(b.report->status[0]);
            // The error of device 1 may reach device 0 before its kernel has ended.
            WEIRT_EXPECT(rank,
                         takes ? status == WEIR_ERR_UNSUPPORTED : status == WEIR_OK || status == WEIR_ERR_ABORTED);
        }
        if (takes) {
            WEIRT_STATUS(rank, WEIR_ERR_UNSUPPORTED, weir_comm_status(b.c.comm));
            WEIRT_TEXT(rank, "device 0 is behind a port channel, but the kernel is compiled with WEIR_WINDOW_NO_PORT");
        }
        (void)weirt_barrier(rank);
    }
    b.close(rank);
}

TEST_P(WindowPort, WaitsWithoutThePortsPartEndInAnError)
{
    run_plan(stage(), { std::get<1>(GetParam()), 2, 1, 1, 2, WINDOW_PORT_SEND, 2, 8 }, takes_without_port);
}

// ---- trouble -------------------------------------------------------------------------------------------------------

// Runs the kernel until the communicator fails. Its ranks receive that error, and no timeout.
void run_until_broken(weirt_rank *rank, Bench *b)
{
    if (b->run(rank, window_port_kernel())) {
        const weir_status status = weir_comm_status(b->c.comm);
        WEIRT_EXPECT(rank, status != WEIR_OK && status != WEIR_ERR_TIMEOUT);
        for (uint32_t i = 0; i < b->plan.ranks; i++) {
            WEIRT_EXPECT(rank, b->report->status[i] != WEIR_OK && b->report->status[i] != WEIR_ERR_TIMEOUT);
        }
    }
}

// The NIC refuses a request of each device. The channel fails, and with it the communicator, whose text names the other
// device. The devices can then build another window.
void breaks(weirt_rank *rank)
{
    Bench b;
    weirt_log_allow("port channel");
    weirt_log_allow("failed");
    if (b.open(rank)) {
        run_until_broken(rank, &b);
        WEIRT_EXPECT(rank, weir_comm_status(b.c.comm) != WEIR_OK);
        WEIRT_TEXT(rank, ("rank " + std::to_string(1 - rank->rank)).c_str());
    }
    b.close(rank);
    Bench again;
    if (again.open(rank)) {
        again.args.rounds = 2;
        WEIRT_EXPECT(rank, again.run(rank, window_port_kernel()) && again.report->rounds == 2);
    }
    again.close(rank);
}

TEST_P(WindowPortFault, AFailedChannelBreaksTheCommunicator)
{
    port_fault fault("remote-access:100");
    run_plan(stage(), { std::get<1>(GetParam()), 2, 1, 2, 0, WINDOW_PORT_EXCHANGE, 100000, 64 }, breaks);
}

// The only requests of a device fail, and then all ranks wait. No post of a kernel meets the error.
void breaks_while_waiting(weirt_rank *rank)
{
    Bench b;
    weirt_log_allow("port channel");
    weirt_log_allow("failed");
    if (b.open(rank)) {
        run_until_broken(rank, &b);
        WEIRT_EXPECT(rank, weir_comm_status(b.c.comm) != WEIR_OK);
        WEIRT_TEXT(rank, "port channel"); // of either end: both learn of it
        WEIRT_TEXT(rank, ("rank " + std::to_string(1 - rank->rank)).c_str());
    }
    b.close(rank);
}

TEST_P(WindowPortFault, AFailedChannelEndsWaits)
{
    port_fault fault("remote-access:1,1000000");
    run_plan(stage(), { std::get<1>(GetParam()), 2, 1, 2, 0, WINDOW_PORT_ONE, 1, 64 }, breaks_while_waiting);
}

// The devices exchange data once, so the queues of both directions are connected.
bool exchanges_once(weirt_rank *rank, Bench *b)
{
    b->args.op = WINDOW_PORT_EXCHANGE;
    b->args.rounds = 1;
    const bool fine = b->run(rank, window_port_kernel()) && WEIRT_EXPECT(rank, b->report->rounds == 1);
    b->args.op = b->plan.op;
    b->args.rounds = b->plan.rounds;
    return weirt_barrier(rank) && fine;
}

constexpr uint32_t LOST = 2; // the device that fails

// Devices 0 and 1 go on without the other one.
void goes_on(const weirt_rank *rank)
{
    weirt_rank two = *rank;
    two.size = LOST;
    Bench b;
    b.few = true;
    if (b.open(&two)) {
        b.args.op = WINDOW_PORT_EXCHANGE;
        b.args.rounds = 3;
        WEIRT_EXPECT(&two, b.run(&two, window_port_kernel()) && b.report->rounds == 3 && b.report->wrong == 0);
        WEIRT_OK(&two, weir_comm_status(b.c.comm));
    }
    b.close(&two);
}

// Device 2 makes no further call. It aborts, dies or stops while device 1 is in the barrier, and ranks of device 0 wait
// for a notification, for room in a ring of four words, and for puts in a flush.
void loses(weirt_rank *rank)
{
    const Plan *plan = static_cast<const Plan *>(rank->arg);
    const bool aborts = plan->death == WEIRT_ALIVE;
    Bench b;
    weirt_log_allow("");
    const bool open = b.open(rank) && exchanges_once(rank, &b);
    if (open && rank->rank == LOST) {
        for (uint32_t k = 0; k < LOST; k++) {
            (void)weirt_step_wait(rank, k, 1);
        }
        if (!aborts) {
            weirt_die(rank, plan->death);
        }
        weir_comm_abort(b.c.comm);
    } else if (open) {
        b.args.op = rank->rank == 0 ? WINDOW_PORT_EACH : WINDOW_PORT_BARRIER;
        const bool launched = b.launch(rank, window_port_kernel(), plan->ranks);
        weirt_sleep_ms(30); // so that the kernel waits already
        weirt_step(rank, 1);
        const uint32_t limit = plan->death == WEIRT_STOP ? 2 * STOP_TIMEOUT * weirt_slow() : 1000 + weirt_slack_ms();
        WEIRT_EXPECT(rank, launched && WEIRT_OK(rank, weir_stream_wait(b.c.device, b.stream, limit)));
        WEIRT_STATUS(rank, aborts ? WEIR_ERR_ABORTED : WEIR_ERR_REMOTE, weir_comm_status(b.c.comm));
        WEIRT_TEXT(rank, "rank 2");
        for (uint32_t i = 0; i < plan->ranks; i++) {
            WEIRT_STATUS(rank, weir_comm_status(b.c.comm), static_cast<weir_status>(b.report->status[i]));
        }
    }
    b.close(rank, open && !aborts);
    if (open && rank->rank < LOST) {
        goes_on(rank);
    }
}

// The software NIC of a stopped process does not answer, so a flush may fail before the communicator does. There is
// none then.
void run_losses(const weirt_stage *stage, uint32_t variant, weirt_death death)
{
    const uint32_t ranks = death == WEIRT_STOP && variant == PORT_DEVICE ? 2 : 3;
    const Plan plan = { variant, LOST + 1, 1, ranks, 2, WINDOW_PORT_EXCHANGE, 100, 8, death };
    weirt_ranks_run(stage, plan.devices, loses, &plan, sizeof plan);
}

TEST_P(WindowPortLoss, AbortEndsWaits) { run_losses(stage(), std::get<1>(GetParam()), WEIRT_ALIVE); }
TEST_P(WindowPortLoss, DeathEndsWaits) { run_losses(stage(), std::get<1>(GetParam()), WEIRT_KILL); }
TEST_P(WindowPortSilence, EndsWaits)
{
    const uint32_t timeout = STOP_TIMEOUT * weirt_slow();
    // Silence ends the waits; on a busy machine the kernels' own deadline must not come first.
    setenv("WEIR_TIMEOUT_MS", (std::to_string(timeout) + "," + std::to_string(3 * timeout)).c_str(), 1);
    run_losses(stage(), std::get<1>(GetParam()), WEIRT_STOP);
    unsetenv("WEIR_TIMEOUT_MS");
}

} // namespace
