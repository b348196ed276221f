// Kernels end when a third rank aborts or dies, even if their waits never fail; and the texts of kernels' errors. How
// soon a kernel must end is a number of waits, which it counts itself, and not a time.
#include <string>
#include <tuple>

#include "test/conformance/ending_kernels.h"
#include "test/harness/checks.h"
#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

namespace {

constexpr uint64_t AHEAD = 1ull << 40;
constexpr uint64_t ROUNDS = 2000; // of a kernel before the third rank fails

struct Loop {
    uint32_t wait;
    uint32_t death; // weirt_death of rank 2; WEIRT_ALIVE: it aborts
};

constexpr uint32_t SLOTS = 8; // of the fifo that a kernel pushes to

// Words that kernel and host share: rounds, status and the request to end; a tail; progress; no progress of a port's
// queue; a fifo's slots and tail; and progress of a proxy's channel.
struct Words {
    uint64_t rounds[3];
    uint64_t tail;
    weir_dev_progress ahead;
    weir_dev_progress none;
    alignas(64) uint64_t slots[SLOTS * WEIR_FIFO_SLOT_WORDS];
    uint64_t pushed_tail;
    weir_dev_progress pushed;
};
static_assert(sizeof(Words) <= sizeof(weirt_report), "a report has room for the words");

// The cells of a fifo and of a channel, in this rank's memory.
weir_dev_proxy_channel pushed_of(weirt_rank *rank, const weirt_pair *pair, weir_dev_control *control)
{
    Words *words = reinterpret_cast<Words *>(pair->device_report);
    char *cells = static_cast<char *>(weir_memory_pointer(pair->local));
    const char zero[3 * WEIR_CELL_BYTES] = {};
    WEIRT_OK(rank, weir_device_copy(weir_comm_device(pair->comm), cells, zero, sizeof zero));
    weir_dev_proxy_channel pushed = {};
    pushed.fifo.control = control;
    pushed.fifo.credits = reinterpret_cast<weir_dev_credits *>(cells);
    pushed.fifo.head = reinterpret_cast<uint64_t *>(cells + WEIR_CELL_BYTES);
    pushed.fifo.slots = words->slots;
    pushed.fifo.tail = &words->pushed_tail;
    pushed.fifo.count = SLOTS;
    pushed.credits = reinterpret_cast<weir_dev_credits *>(cells + 2 * WEIR_CELL_BYTES);
    pushed.progress = &words->pushed;
    pushed.limit = SLOTS;
    return pushed;
}

// What a halo and a window read of this device's memory.
struct Peers {
    weir_dev_halo_part part;
    weir_dev_window_device devices[2];
    uint64_t arrived[2]; // of the window's barrier: device 1 is ahead
    uint64_t sent[2];    // what this device stores to device 1
};

// A window of one device with one rank, behind the peers.
void add_ring(weirt_rank *rank, const weirt_pair *pair, ending_args *args)
{
    const weir_window_layout at = weir_window_layout_of(1, 1, SLOTS);
    char *shared =
        static_cast<char *>(weir_memory_pointer(pair->local)) + pair->half + weir_window_whole_cells(sizeof(Peers));
    char *own = shared + at.shared_bytes;
    weir_dev_window_device device = {};
    WEIRT_EXPECT(rank, weir_window_whole_cells(sizeof(Peers)) + at.shared_bytes + at.private_bytes <= pair->half);
    device.shared = shared;
    device.way = WEIR_WINDOW_OWN;
    weir_window_place(&args->ring, 0, 1, 1, SLOTS, shared, own);
    args->ring.barrier.control = args->semaphore.control;
    WEIRT_OK(rank, weir_device_copy(weir_comm_device(pair->comm), own + at.devices, &device, sizeof device));
}

void add_peers(weirt_rank *rank, const weirt_pair *pair, const weir_layout *layout, ending_args *args)
{
    Peers *peers = reinterpret_cast<Peers *>(static_cast<char *>(weir_memory_pointer(pair->local)) + pair->half);
    Peers host = {};
    host.devices[1].shared = reinterpret_cast<char *>(peers->sent);
    host.devices[1].way = WEIR_WINDOW_MAPPED;
    host.arrived[1] = AHEAD;
    WEIRT_EXPECT(rank, sizeof host <= pair->half);
    WEIRT_OK(rank, weir_device_copy(weir_comm_device(pair->comm), peers, &host, sizeof host));
    args->port.packets = args->port.peer_packets = args->channel.packets; // a copy at the peer is not stored to
    args->port.packets_half = args->channel.packets_bytes;
    args->port.epochs = args->channel.epochs;
    args->port.local = args->channel.local;
    args->port.local_bytes = args->channel.local_bytes;
    args->collective.control = args->semaphore.control;
    args->halo.control = args->semaphore.control;
    args->halo.parts = &peers->part;
    args->window.barrier.control = args->semaphore.control;
    args->window.to = peers->devices;
    args->window.rings = peers->arrived;
    args->window.devices = 2;
    add_ring(rank, pair, args);
    WEIRT_OK(rank, weir_layout_device(layout, weir_comm_device(pair->comm), 1, &args->layout));
}

ending_args args_of(weirt_rank *rank, const weirt_pair *pair)
{
    ending_args args = {};
    Words *host = reinterpret_cast<Words *>(pair->report);
    Words *words = reinterpret_cast<Words *>(pair->device_report);
    *host = {};
    host->tail = UINT64_MAX;
    host->ahead.done = WEIR_PROGRESS_FAILED - 1;
    WEIRT_OK(rank, weir_semaphore_device(pair->semaphore, &args.semaphore));
    WEIRT_OK(rank, weir_device_copy(weir_comm_device(pair->comm), args.semaphore.inbound, &AHEAD, sizeof AHEAD));
    weir_memory_channel_device(pair->packet, &args.channel);
    weir_grid_barrier_device(pair->barrier, &args.barrier);
    args.fifo.control = args.semaphore.control;
    args.fifo.tail = &words->tail;
    args.proxy.fifo = args.fifo;
    args.proxy.progress = &words->ahead;
    args.port.queue.fifo = args.fifo;
    args.port.queue.progress = &words->none;
    args.port.semaphore = args.semaphore;
    args.pushed = pushed_of(rank, pair, args.semaphore.control);
    args.returned[0] = &words->pushed_tail;
    args.returned[1] = &words->pushed.returned;
    args.rounds = words->rounds;
    return args;
}

// The loops of ranks 0 and 1 share only the communicator with rank 2.
void runs_until_another_fails(weirt_rank *rank)
{
    const Loop *loop = static_cast<const Loop *>(rank->arg);
    weirt_comm c;
    weirt_pair pair = {};
    weir_layout *layout = nullptr;
    weirt_log_allow("rank 2");
    const bool open = weirt_comm_open(rank, 0, &c);
    const bool paired = open && rank->rank != 2 && weirt_pair_open(rank, c.comm, 16384, 1, &pair) &&
                        WEIRT_OK(rank, weir_kernel_load(c.device, ending_kernel())) &&
                        WEIRT_OK(rank, weir_layout_create_bytes(ENDING_DATA, &layout));
    ending_args args = {};
    if (paired) {
        args = args_of(rank, &pair); // sets the token that the peer's kernel may add to
        add_peers(rank, &pair, layout, &args);
        args.wait = loop->wait;
    }
    // Set-up on a GPU waits until earlier kernels of the process have ended there, and these kernels end only when rank
    // 2 fails. So no rank launches before all are ready.
    weirt_barrier(rank);
    if (open && rank->rank == 2) {
        weirt_step_wait(rank, 0, 1);
        weirt_step_wait(rank, 1, 1);
        if (loop->death != WEIRT_ALIVE) {
            weirt_die(rank, static_cast<weirt_death>(loop->death));
        }
        weir_comm_abort(c.comm);
        WEIRT_STATUS(rank, WEIR_ERR_ABORTED, weir_comm_status(c.comm));
    } else if (paired) {
        const weir_shape one = { 1, std::string(rank->stage->kind) == "gpu" ? 32u : 1u };
        const weir_launch_opts opts = { sizeof opts, true };
        WEIRT_OK(rank, weir_launch(c.device, ending_kernel(), one, &args, &opts, pair.stream));
        uint64_t *rounds = reinterpret_cast<Words *>(pair.report)->rounds;
        const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
        while (weir_arch_load_relaxed_sys_u64(rounds) < ROUNDS && weirt_now_ms() < end) {
            weirt_sleep_ms(1);
        }
        WEIRT_EXPECT(rank, weir_arch_load_relaxed_sys_u64(rounds) >= ROUNDS);
        weirt_step(rank, 1);
        const weir_status error = loop->death != WEIRT_ALIVE ? WEIR_ERR_REMOTE : WEIR_ERR_ABORTED;
        WEIRT_OK(rank, weir_stream_wait(c.device, pair.stream, weirt_timeout_ms()));
        weir_arch_store_relaxed_sys_u64(rounds + 2, 1);
        WEIRT_OK(rank, weir_stream_wait(c.device, pair.stream, weirt_timeout_ms()));
        WEIRT_EXPECT(rank, rounds[1] == static_cast<uint64_t>(static_cast<int64_t>(error)));
        WEIRT_STATUS(rank, error, weir_comm_status(c.comm));
        WEIRT_TEXT(rank, "rank 2");
        if (loop->death == WEIRT_ALIVE) {
            weirt_barrier(rank);
        }
        weir_layout_destroy(layout);
        weirt_pair_close(rank, &pair, false);
        weirt_comm_close(&c);
        return;
    }
    if (loop->death == WEIRT_ALIVE) {
        weirt_barrier(rank);
    }
    weirt_comm_close(&c);
}

const char *const names[] = { "Wait",     "WaitRelaxed", "Counted", "CountedRelaxed", "LL16",           "ExchangeLL16",
                              "Layout",   "PortPackets", "Lines",   "Barrier",        "Fifo",           "Proxy",
                              "Port",     "Push",        "TryPush", "ChannelPush",    "ChannelTryPush", "Collective",
                              "Exchange", "Halo",        "Window",  "Notify",         "Status" };
static_assert(sizeof names / sizeof names[0] == ENDING_WAITS, "each wait has a name");

class Ending : public ::testing::TestWithParam<std::tuple<int, int>> {
protected:
    void SetUp() override { weirt_require_stage(stage()); }
    const weirt_stage *stage() const { return &weirt_stages[std::get<0>(GetParam())]; }
    void run(weirt_death death)
    {
        if (death != WEIRT_ALIVE && !stage()->processes) {
            GTEST_SKIP() << "only a process can be killed";
        }
        const Loop arg = { static_cast<uint32_t>(std::get<1>(GetParam())), static_cast<uint32_t>(death) };
        weirt_ranks_run(stage(), 3, runs_until_another_fails, &arg, sizeof arg);
    }
};

std::string name_of(const ::testing::TestParamInfo<std::tuple<int, int>> &info)
{
    return std::string(weirt_stages[std::get<0>(info.param)].name) + "_" + names[std::get<1>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Stages, Ending,
                         ::testing::Combine(::testing::Values(0, 1, 2, 3), ::testing::Range(0, int(ENDING_WAITS))),
                         name_of);

TEST_P(Ending, KernelsEndWhenAThirdRankAborts) { run(WEIRT_ALIVE); }
TEST_P(Ending, KernelsEndWhenAThirdRankIsKilled) { run(WEIRT_KILL); }

// A call of a kernel of rank 0 that fails, and the text of its error.
struct Failure {
    weirt_access_args call;
    weir_status status;
    const char *text;
};

constexpr uint32_t DEADLINE_MS = 150;

weirt_access_args call_of(uint32_t op, uint64_t remote_offset, uint64_t local_offset, uint64_t bytes)
{
    weirt_access_args args = {};
    args.op = op;
    args.remote_offset = remote_offset;
    args.local_offset = local_offset;
    args.bytes = bytes;
    return args;
}

// Local and remote memory have 2,048 bytes, packet buffers 4,096.
const Failure failures[] = {
    { call_of(WEIRT_DO_PUT, 2000, 0, 100), WEIR_ERR_RANGE,
      "put of 100 bytes at offset 2000 to memory of rank 1, which has 2048 bytes" },
    { call_of(WEIRT_DO_PUT, 0, 2040, 16), WEIR_ERR_RANGE,
      "put of 16 bytes at offset 2040 of local memory, which has 2048 bytes" },
    { call_of(WEIRT_DO_GET, 1ull << 40, 0, 8), WEIR_ERR_RANGE,
      "get of 8 bytes at offset 1099511627776 of memory of rank 1, which has 2048 bytes" },
    { call_of(WEIRT_DO_READ_U64, 256, 0, 0), WEIR_ERR_RANGE,
      "read of 8 bytes at offset 2048 of memory of rank 1, which has 2048 bytes" },
    { call_of(WEIRT_DO_WRITE_U32, 512, 0, 0), WEIR_ERR_RANGE,
      "write of 4 bytes at offset 2048 to memory of rank 1, which has 2048 bytes" },
    { call_of(WEIRT_DO_PUT_LL16, 4096, 0, 8), WEIR_ERR_RANGE,
      "packet put of 16 bytes at offset 4096 to memory of rank 1, which has 4096 bytes" },
    { call_of(WEIRT_DO_PUT_LL16, 8, 0, 8), WEIR_ERR_INVALID,
      "packet put of 8 bytes at offset 8 to memory of rank 1: invalid argument" },
    { call_of(WEIRT_DO_UNPACK_LL16, 16, 0, 100), WEIR_ERR_TIMEOUT,
      "packet unpack of 100 bytes at offset 16: nothing came from rank 1 for 150 ms" },
    { call_of(WEIRT_DO_EXCHANGE_LINES, 0, 0, 120), WEIR_ERR_TIMEOUT,
      "packet exchange of 120 bytes at offset 0: nothing came from rank 1 for 150 ms" },
    { call_of(WEIRT_DO_AT, 9, 0, 0), WEIR_ERR_RANGE, "semaphore 9 of a set of 8 with rank 1" },
};

void says_what_failed(weirt_rank *rank)
{
    const Failure &failure = failures[*static_cast<const uint32_t *>(rank->arg)];
    weirt_channel channel;
    weir_memory *none = nullptr;
    weirt_log_allow("kernel weirt_access");
    const std::string text = std::string("rank 0: kernel weirt_access: ") + failure.text;
    if (weirt_channel_open(rank, rank->rank == 0 ? DEADLINE_MS : 0, 1024, &channel)) {
        weirt_access_args call = failure.call;
        if (rank->rank == 0) {
            weirt_step_wait(rank, 1, 1);
            const bool packets = call.op >= WEIRT_DO_PUT_LL16 && call.op <= WEIRT_DO_EXCHANGE_LINES;
            weir_memory_channel_device(packets ? channel.pair.packet : channel.pair.data, &call.channel);
            WEIRT_EXPECT(rank, weirt_access_run(rank, &channel.pair, &call) == failure.status);
            WEIRT_STATUS(rank, failure.status, weir_comm_status(channel.comm.comm));
        } else {
            weirt_step(rank, 1);
            WEIRT_STATUS(rank, WEIR_ERR_ABORTED, weir_memory_recv(channel.comm.comm, 0, 77, &none));
        }
        WEIRT_TEXT(rank, text.c_str());
    }
    weirt_channel_close(rank, &channel);
}

// A wait on the semaphore with the pair's tag, or on number 3 of its set.
void says_what_it_waited_for(weirt_rank *rank)
{
    const uint32_t index = *static_cast<const uint32_t *>(rank->arg);
    weirt_channel channel;
    weir_memory *none = nullptr;
    weirt_log_allow("kernel ending_loop");
    if (weirt_channel_open(rank, rank->rank == 0 ? DEADLINE_MS : 0, 1024, &channel)) {
        const weir_shape one = { 1, 1 };
        if (rank->rank == 0) {
            weirt_step_wait(rank, 1, 1);
            ending_args args = args_of(rank, &channel.pair);
            WEIRT_OK(rank, weir_semaphore_device(channel.pair.semaphore, &args.semaphore));
            args.semaphore = weir_dev_semaphore_at(&args.semaphore, index);
            uint64_t zero = 0;
            WEIRT_OK(rank, weir_device_copy(channel.comm.device, args.semaphore.inbound, &zero, sizeof zero));
            WEIRT_OK(rank, weir_kernel_load(channel.comm.device, ending_kernel()));
            WEIRT_OK(rank, weir_launch(channel.comm.device, ending_kernel(), one, &args, nullptr, channel.pair.stream));
            weirt_finish(rank, &channel.pair);
            WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_comm_status(channel.comm.comm));
        } else {
            weirt_step(rank, 1);
            WEIRT_STATUS(rank, WEIR_ERR_ABORTED, weir_memory_recv(channel.comm.comm, 0, 77, &none));
        }
        WEIRT_TEXT(rank, index == 0
                             ? "rank 0: kernel ending_loop: wait on semaphore 1 of rank 1: nothing came for 150 ms"
                             : "rank 0: kernel ending_loop: wait on semaphore 1, number 3 of its set, of rank 1: "
                               "nothing came for 150 ms");
    }
    weirt_channel_close(rank, &channel);
}

WEIRT_STAGE_SUITE(Blame);

TEST_P(Blame, CallsOfKernelsAreNamed)
{
    for (uint32_t i = 0; i < sizeof failures / sizeof failures[0]; i++) {
        weirt_ranks_run(stage(), 2, says_what_failed, &i, sizeof i);
    }
}

TEST_P(Blame, WaitsOfKernelsAreNamed)
{
    for (uint32_t index : { 0u, 3u }) {
        weirt_ranks_run(stage(), 2, says_what_it_waited_for, &index, sizeof index);
    }
}

} // namespace
