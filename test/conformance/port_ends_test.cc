// Waits for a port channel's signals: kernels that poll, and a kernel at one end with the host at the other.
#include <vector>

#include "port.h"

namespace {

PORT_DATA_SUITE(PortEnds, PORT_IPC, PORT_IB, PORT_OFI, PORT_DEVICE, PORT_DEVX);

// ---- polls -----------------------------------------------------------------------------------------------------

constexpr uint32_t ROUNDS = 50;
constexpr uint64_t POLL_HALF = 4096;

void polls(weirt_rank *rank)
{
    port_bench b;
    const bool open = b.open(rank, 0, POLL_HALF) &&
                      WEIRT_OK(rank, weir_kernel_load(b.comm.device, port_poll_kernel())) &&
                      port_bench::all_ready(rank);
    port_poll_args args = {};
    args.channel = b.device;
    args.report = open ? b.device_report() : nullptr;
    args.words = open ? static_cast<uint64_t *>(weir_memory_pointer(b.local)) : nullptr;
    args.half = POLL_HALF;
    args.first = rank->rank == 0;
    args.rounds = ROUNDS;
    args.rank = rank->rank;
    args.peer = b.peer;
    if (open && !args.first) {
        const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
        (void)b.launch(rank, port_poll_kernel(), weir_shape{ 1, 1 }, &args, false);
        while (weir_arch_load_acquire_sys_u64(&b.report->value) == 0 && weirt_now_ms() < end) {
            weirt_sleep_ms(1);
        }
        WEIRT_EXPECT(rank, b.report->status[1] == WEIR_PENDING);
    }
    weirt_barrier(rank);
    if (open && (!args.first || b.launch(rank, port_poll_kernel(), weir_shape{ 1, 1 }, &args, false)) &&
        b.finish(rank)) {
        WEIRT_EXPECT(rank, b.report->status[0] == WEIR_OK);
        WEIRT_EXPECT(rank, b.report->iterations == ROUNDS && b.report->wrong == 0);
        WEIRT_EXPECT(rank, b.report->status[2] == WEIR_PENDING); // each signal was consumed once
        WEIRT_OK(rank, weir_port_channel_status(b.channel));
        WEIRT_OK(rank, weir_comm_status(b.comm.comm));
    }
    b.close(rank, true);
}

TEST_P(PortEnds, KernelsPoll) { run(polls, plan()); }

TEST_P(PortEnds, KernelsPollWhenAllIsQueued)
{
    port_case what = plan();
    what.direct_bytes = WEIR_PORT_DIRECT_NEVER;
    run(polls, what);
}

// ---- a kernel and a host -----------------------------------------------------------------------------------------

constexpr uint64_t HALF = 1 << 16;
constexpr uint64_t BYTES = 50001;
constexpr uint64_t AT = 5;
constexpr uint64_t SIGNALS = 30;

void write_pattern(weirt_rank *rank, port_bench *b, uint64_t iteration)
{
    std::vector<char> data(BYTES);
    weirt_data_fill(data.data(), BYTES, rank->rank, iteration);
    (void)b->write(rank, AT, data.data(), BYTES);
}

// Checks the peer's data, and that the bytes around it have not changed.
void expect_pattern(weirt_rank *rank, port_bench *b, uint64_t iteration)
{
    std::vector<char> data(HALF);
    std::vector<char> right(HALF);
    weirt_data_fill(&right[AT], BYTES, b->peer, iteration);
    if (b->read(rank, HALF, data.data(), HALF)) {
        WEIRT_EXPECT(rank, data == right);
    }
}

// The bench with this rank's end on the host, or in kernels.
bool open_end(weirt_rank *rank, port_bench *b, weir_semaphore_end end)
{
    const weir_port_channel_opts opts = {
        sizeof opts, port_bench::plan_of(rank)->direct_bytes, 0, 0, nullptr, nullptr
    };
    return b->open_ends(rank, 0, HALF, end) &&
           WEIRT_OK(rank, weir_port_channel_create(b->proxy, b->semaphore, b->remote, b->local, &opts, &b->channel)) &&
           (end == WEIR_SEMAPHORE_HOST || WEIRT_OK(rank, weir_port_channel_device(b->channel, &b->device))) &&
           WEIRT_OK(rank, weir_proxy_start(b->proxy)) && port_bench::all_ready(rank);
}

// The kernel waits for the host's data and for more signals, and answers. Afterwards no signal is left.
void kernel_side(weirt_rank *rank, port_bench *b)
{
    const std::initializer_list<script_step> steps = {
        { SCRIPT_WAIT, 0, 0, 0, 0, 0 },         { SCRIPT_WAIT, 0, 0, 0, 0, SIGNALS },
        { SCRIPT_POLL, 0, 0, 0, 0, 0 },         { SCRIPT_PUT_SIGNAL, 0, HALF + AT, AT, BYTES, 0 },
        { SCRIPT_SIGNAL, 0, 0, 0, 0, SIGNALS }, { SCRIPT_FLUSH, 0, 0, 0, 0, 0 }
    };
    script_args args = {};
    args.channel = b->device;
    args.report = static_cast<script_report *>(weir_memory_pointer(b->shared));
    for (const script_step &step : steps) {
        args.steps[args.count++] = step;
    }
    write_pattern(rank, b, 2);
    const bool launched = b->launch(rank, script_kernel(), weir_shape{ 1, 1 }, &args, false);
    weirt_barrier(rank); // the kernel waits, or will
    if (launched && b->finish(rank) && b->ended(rank, { WEIR_OK, WEIR_OK, WEIR_PENDING, WEIR_OK, WEIR_OK, WEIR_OK })) {
        expect_pattern(rank, b, 1);
    }
}

void host_side(weirt_rank *rank, port_bench *b)
{
    write_pattern(rank, b, 1);
    WEIRT_STATUS(rank, WEIR_PENDING, weir_semaphore_poll(b->semaphore));
    weirt_barrier(rank);
    bool good = WEIRT_OK(rank, weir_port_channel_put_signal(b->channel, HALF + AT, AT, BYTES, nullptr));
    for (uint64_t i = 0; i < SIGNALS && good; i++) {
        good = WEIRT_OK(rank, weir_port_channel_signal(b->channel, nullptr));
    }
    good = good && WEIRT_OK(rank, weir_port_channel_flush(b->channel)) &&
           WEIRT_OK(rank, weir_semaphore_wait(b->semaphore, weirt_timeout_ms()));
    if (good) {
        expect_pattern(rank, b, 2);
    }
    for (uint64_t i = 0; i < SIGNALS && good; i++) {
        good = WEIRT_OK(rank, weir_semaphore_wait(b->semaphore, weirt_timeout_ms()));
    }
    WEIRT_STATUS(rank, WEIR_PENDING, weir_semaphore_poll(b->semaphore));
}

// plan.op: the rank whose end is on the host.
void kernel_and_host(weirt_rank *rank)
{
    const bool host = port_bench::plan_of(rank)->op == rank->rank;
    port_bench b;
    if (open_end(rank, &b, host ? WEIR_SEMAPHORE_HOST : WEIR_SEMAPHORE_DEVICE)) {
        host ? host_side(rank, &b) : kernel_side(rank, &b);
        WEIRT_OK(rank, weir_port_channel_status(b.channel));
        WEIRT_OK(rank, weir_comm_status(b.comm.comm));
    }
    b.close(rank, true);
}

TEST_P(PortEnds, HostAtOneEndKernelAtTheOther)
{
    for (uint32_t host : { 0, 1 }) {
        for (uint64_t direct : { uint64_t{ 0 }, WEIR_PORT_DIRECT_NEVER }) {
            port_case what = plan();
            what.op = host;
            what.direct_bytes = direct;
            run(kernel_and_host, what);
        }
    }
}

// Both ends are in kernels; host threads put and signal over the same channels, at the same time as kernels do.
void host_beside_kernels(weirt_rank *rank)
{
    port_bench b;
    if (b.open(rank, 0, HALF)) {
        const std::initializer_list<script_step> steps = { { SCRIPT_SIGNAL, 0, 0, 0, 0, SIGNALS },
                                                           { SCRIPT_WAIT, 0, 0, 0, 0, 2 * SIGNALS + 1 },
                                                           { SCRIPT_POLL, 0, 0, 0, 0, 0 } };
        script_args args = {};
        args.channel = b.device;
        args.report = static_cast<script_report *>(weir_memory_pointer(b.shared));
        for (const script_step &step : steps) {
            args.steps[args.count++] = step;
        }
        write_pattern(rank, &b, 3);
        bool good = b.launch(rank, script_kernel(), weir_shape{ 1, 1 }, &args, false);
        for (uint64_t i = 0; i < SIGNALS && good; i++) {
            good = WEIRT_OK(rank, weir_port_channel_signal(b.channel, nullptr));
        }
        good = good && WEIRT_OK(rank, weir_port_channel_put_signal(b.channel, HALF + AT, AT, BYTES, nullptr));
        if (good && b.finish(rank) && b.ended(rank, { WEIR_OK, WEIR_OK, WEIR_PENDING })) {
            expect_pattern(rank, &b, 3);
        }
        WEIRT_OK(rank, weir_port_channel_flush(b.channel));
        WEIRT_OK(rank, weir_port_channel_status(b.channel));
    }
    b.close(rank, true);
}

TEST_P(PortEnds, HostSignalsBesideKernels) { run(host_beside_kernels, plan()); }

} // namespace
