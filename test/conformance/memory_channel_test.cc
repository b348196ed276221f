// Data through memory channels: every operation, group, size and alignment, checked byte by byte in the kernel
// that receives it and once more on the host.
#include <string>
#include <vector>

#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

namespace {

// Checks a kernel's report: all threads agree, and no byte is wrong.
bool transfer_is_right(weirt_rank *rank, const weirt_pair *pair, const weirt_transfer_args &args, uint64_t iterations)
{
    const weirt_report *report = pair->report;
    bool right = true;
    if (report->wrong != 0) {
        weirt_fail(rank, __FILE__, __LINE__,
                   "op %u, group %u: %llu wrong bytes, one in iteration %llu of %llu bytes at position %llu", args.op,
                   args.group, (unsigned long long)report->wrong, (unsigned long long)report->wrong_iteration,
                   (unsigned long long)report->wrong_bytes, (unsigned long long)report->wrong_position);
        right = false;
    }
    if (report->status[0][0] != WEIR_OK) {
        weirt_fail(rank, __FILE__, __LINE__, "op %u, group %u: %s", args.op, args.group,
                   weir_status_name((weir_status)report->status[0][0]));
        right = false;
    }
    return WEIRT_EXPECT(rank, report->iterations == iterations) && right;
}

bool run_transfer(weirt_rank *rank, const weirt_pair *pair, const weirt_transfer_args &args)
{
    uint64_t before = pair->report->iterations;
    uint64_t sizes = (args.last - args.first) / args.step + 1;
    return weirt_launch(rank, pair, weirt_transfer_kernel(), &args) && weirt_finish(rank, pair) &&
           transfer_is_right(rank, pair, args, before + sizes * args.rounds);
}

// Checks the bytes of the last iteration on the host.
bool host_sees(weirt_rank *rank, const weirt_pair *pair, const weirt_transfer_args &args)
{
    std::vector<char> bytes(args.last);
    char *arrived = (char *)weir_memory_pointer(pair->local) + pair->half + 64;
    if (!WEIRT_OK(rank, weir_device_copy(weir_comm_device(pair->comm), bytes.data(), arrived, args.last))) {
        return false;
    }
    uint64_t iteration = pair->report->iterations - 1;
    const uint64_t wrong = weirt_data_wrong(bytes.data(), args.last, args.peer, iteration);
    if (wrong < args.last) {
        weirt_fail(rank, __FILE__, __LINE__, "the host sees a wrong byte at %llu", (unsigned long long)wrong);
    }
    return wrong == args.last;
}

uint32_t rounds(uint32_t plain) { return weirt_sanitizer()[0] == 0 ? plain : (plain + 3) / 4; }

struct sweep {
    uint32_t op;
};

// Sizes 0 to 70 one by one at changing alignments by the whole grid, and some sizes by each other group. The CPU device
// makes fewer rounds, because its threads share few cores.
void small_sizes(weirt_rank *rank)
{
    const sweep *arg = (const sweep *)rank->arg;
    bool gpu = std::string(rank->stage->kind) == "gpu";
    weirt_channel channel;
    if (weirt_channel_open(rank, 0, 4096, &channel)) {
        bool right = true;
        for (uint32_t group = 0; group < WEIRT_GROUPS && right; group++) {
            weirt_transfer_args args = weirt_transfer_of(rank, &channel.pair);
            args.op = arg->op;
            args.group = group;
            args.last = 70;
            if (arg->op >= WEIRT_LINES && (group == WEIRT_PART || (gpu && group == WEIRT_THREAD))) {
                continue; // lines need whole warps
            }
            args.misaligned = 1;
            args.step = gpu || group == WEIRT_GRID ? 1 : 7;
            args.rounds = !gpu ? 3 : group == WEIRT_GRID ? 20 : 3;
            right = run_transfer(rank, &channel.pair, args);
        }
        WEIRT_OK(rank, weir_comm_status(channel.comm.comm));
    }
    weirt_channel_close(rank, &channel);
}

void large_sizes(weirt_rank *rank)
{
    const sweep *arg = (const sweep *)rank->arg;
    bool gpu = std::string(rank->stage->kind) == "gpu";
    struct {
        uint64_t bytes;
        uint32_t rounds;
    } const sizes[] = { { 4096, 20 },           { 4099, 20 },         { 65537, 20 }, { (1 << 20) - 1, rounds(8) },
                        { 1 << 20, rounds(8) }, { (64 << 20) + 3, 2 } };
    uint64_t largest = gpu ? (64 << 20) + 3 : 1 << 20;
    weirt_channel channel;
    if (weirt_channel_open(rank, 0, (largest + WEIRT_SLACK + 15) / 16 * 16, &channel)) {
        bool right = true;
        for (auto &size : sizes) {
            for (uint32_t misaligned = 0; misaligned < 2 && right && size.bytes <= largest; misaligned++) {
                weirt_transfer_args args = weirt_transfer_of(rank, &channel.pair);
                args.op = arg->op;
                args.first = args.last = size.bytes;
                args.misaligned = misaligned;
                args.rounds = misaligned ? (size.rounds + 1) / 2 : size.rounds;
                right = run_transfer(rank, &channel.pair, args) && (misaligned || host_sees(rank, &channel.pair, args));
            }
        }
        WEIRT_OK(rank, weir_comm_status(channel.comm.comm));
    }
    weirt_channel_close(rank, &channel);
}

// A kernel recorded once and replayed: packet epochs, tokens and barrier rounds continue.
void replays(weirt_rank *rank)
{
    weirt_channel channel;
    if (!weirt_channel_open(rank, 0, 4096, &channel)) {
        weirt_channel_close(rank, &channel);
        return;
    }
    weirt_pair *pair = &channel.pair;
    weir_device *device = channel.comm.device;
    for (uint32_t op = 0; op < WEIRT_OPS; op++) {
        weirt_transfer_args args = weirt_transfer_of(rank, pair);
        void *graph = nullptr;
        args.op = op;
        args.first = args.last = 1001;
        args.misaligned = 1;
        args.rounds = 2;
        uint64_t before = pair->report->iterations;
        if (!WEIRT_OK(rank, weir_graph_begin(device, pair->stream)) ||
            !weirt_launch(rank, pair, weirt_transfer_kernel(), &args) ||
            !WEIRT_OK(rank, weir_graph_end(device, pair->stream, &graph))) {
            break;
        }
        WEIRT_EXPECT(rank, pair->report->iterations == before);
        for (int i = 0; i < 20; i++) {
            WEIRT_OK(rank, weir_graph_launch(device, graph, pair->stream));
        }
        weirt_finish(rank, pair);
        transfer_is_right(rank, pair, args, before + 40);
        weir_graph_destroy(device, graph);
    }
    weirt_channel_close(rank, &channel);
}

// Each block has a channel of the set. Two kernels follow each other, and counts and epochs continue.
void sets(weirt_rank *rank)
{
    const uint32_t ops[] = { WEIRT_PUT, WEIRT_EXCHANGE_LL16, WEIRT_EXCHANGE_LINES };
    const uint64_t sizes[] = { 8, 1000, 1021 };
    weirt_channel channel;
    if (!weirt_channel_open(rank, 0, 16384, &channel)) {
        weirt_channel_close(rank, &channel);
        return;
    }
    weirt_pair *pair = &channel.pair;
    WEIRT_EXPECT(rank, weir_connection_keeps_lines(pair->connection));
    for (uint32_t run = 0; run < 18; run++) {
        weirt_set_args args = {};
        weir_memory_channel_device(pair->data, &args.data);
        weir_memory_channel_device(pair->packet, &args.packet);
        args.report = pair->device_report;
        args.local = (char *)weir_memory_pointer(pair->local);
        args.half = pair->half;
        args.op = ops[run / 6];
        args.bytes = sizes[run % 3];
        args.counted = run % 2;
        args.rounds = rounds(12);
        args.rank = rank->rank;
        args.peer = pair->peer;
        if (args.op == WEIRT_EXCHANGE_LL16) {
            args.bytes = (args.bytes + 7) / 8 * 8; // a block's part of the packet buffer has that many packets
        }
        // Bytes of the packet buffer belong to one index. Another size has other parts, which begin empty.
        weirt_barrier(rank);
        WEIRT_OK(rank, weir_device_fill(channel.comm.device, weir_memory_pointer(pair->packets), 0, 4 * pair->half));
        weirt_barrier(rank);
        if (!weirt_launch(rank, pair, weirt_set_kernel(), &args) || !weirt_finish(rank, pair)) {
            break;
        }
        for (uint32_t block = 0; block < weirt_shape(pair->comm).blocks; block++) {
            WEIRT_EXPECT(rank, pair->report->status[0][block] == WEIR_OK);
        }
        if (!WEIRT_EXPECT(rank, pair->report->wrong == 0)) {
            weirt_fail(rank, __FILE__, __LINE__, "op %u, %llu bytes: %llu wrong, one in round %llu at %llu", args.op,
                       (unsigned long long)args.bytes, (unsigned long long)pair->report->wrong,
                       (unsigned long long)pair->report->wrong_iteration,
                       (unsigned long long)pair->report->wrong_position);
            break;
        }
    }
    WEIRT_OK(rank, weir_comm_status(channel.comm.comm));
    weirt_channel_close(rank, &channel);
}

// Two communicators, and two pairs of channels on one of them, all working at the same time.
void several_at_once(weirt_rank *rank)
{
    weirt_comm first;
    weirt_comm second;
    weirt_pair pairs[3] = {};
    bool both = weirt_comm_open(rank, 0, &first);
    both = weirt_comm_open(rank, 0, &second) && both;
    if (both) {
        weir_comm *comms[] = { first.comm, first.comm, second.comm };
        bool open = true;
        for (uint32_t i = 0; i < 3 && open; i++) {
            open = weirt_pair_open(rank, comms[i], 8192, 10 + i, &pairs[i]);
        }
        weirt_transfer_args args[3];
        for (uint32_t i = 0; i < 3 && open; i++) {
            args[i] = weirt_transfer_of(rank, &pairs[i]);
            args[i].op = i == 2 ? WEIRT_PUT : WEIRT_LL16;
            args[i].group = WEIRT_BLOCK;
            args[i].first = args[i].last = 3000 + i;
            args[i].rounds = 20;
            weir_shape shape = weir_device_fit_shape(weir_comm_device(comms[i]), weir_shape{ 1, 2 });
            open = WEIRT_OK(rank, weir_launch(weir_comm_device(comms[i]), weirt_transfer_kernel(), shape, &args[i],
                                              nullptr, pairs[i].stream));
        }
        for (uint32_t i = 0; i < 3 && open; i++) {
            weirt_finish(rank, &pairs[i]);
            transfer_is_right(rank, &pairs[i], args[i], 20);
        }
        WEIRT_OK(rank, weir_comm_status(first.comm));
        WEIRT_OK(rank, weir_comm_status(second.comm));
    }
    for (auto &pair : pairs) {
        weirt_pair_close(rank, &pair, true);
    }
    weirt_comm_close(&second);
    weirt_comm_close(&first);
}

// A value goes back and forth beside the signal, and each end adds one.
void single_values(weirt_rank *rank)
{
    weirt_channel channel;
    if (weirt_channel_open(rank, 0, 4096, &channel)) {
        weirt_pair *pair = &channel.pair;
        weirt_pingpong_args args = {};
        weir_memory_channel_device(pair->data, &args.channel);
        args.inbox = (uint64_t *)weir_memory_pointer(pair->local);
        args.report = pair->device_report;
        args.first = rank->rank == 0;
        args.rounds = 50;
        // Kernels count in registers and in memory in turn: begin and end pass the counts on.
        for (uint32_t turn = 0; turn < 6; turn++) {
            args.counted = turn % 2;
            args.relaxed = turn / 2 == 1;
            uint64_t before = 0;
            WEIRT_OK(rank, weir_device_copy(channel.comm.device, args.inbox, &before, 8));
            weirt_barrier(rank);
            if (weirt_launch(rank, pair, weirt_pingpong_kernel(), &args) && weirt_finish(rank, pair)) {
                WEIRT_EXPECT(rank, pair->report->status[0][0] == WEIR_OK);
                WEIRT_EXPECT(rank, pair->report->value == (args.relaxed ? 0 : rank->rank == 0 ? 100u : 99u));
            }
            weirt_barrier(rank);
        }
        // Both ends of the memory, in both widths; the two ranks write different words.
        weirt_access_args access = {};
        weir_memory_channel_device(pair->data, &access.channel);
        weirt_barrier(rank);
        uint64_t last = 2 * pair->half / 4 - 1;
        access.op = WEIRT_DO_WRITE_U32;
        access.remote_offset = last;
        access.value = 0x12340000u + rank->rank;
        WEIRT_EXPECT(rank, weirt_access_run(rank, pair, &access) == WEIR_OK);
        access.op = WEIRT_DO_WRITE_U64;
        access.remote_offset = 1;
        access.value = 0xfedcba9876543210u + rank->rank;
        WEIRT_EXPECT(rank, weirt_access_run(rank, pair, &access) == WEIR_OK);
        weirt_barrier(rank);
        access.op = WEIRT_DO_READ_U32;
        access.remote_offset = last;
        WEIRT_EXPECT(rank, weirt_access_run(rank, pair, &access) == WEIR_OK);
        WEIRT_EXPECT(rank, pair->report->value == 0x12340000u + rank->rank);
        access.op = WEIRT_DO_READ_U64;
        access.remote_offset = 1;
        WEIRT_EXPECT(rank, weirt_access_run(rank, pair, &access) == WEIR_OK);
        WEIRT_EXPECT(rank, pair->report->value == 0xfedcba9876543210u + rank->rank);
        uint64_t arrived = 0;
        WEIRT_OK(rank,
                 weir_device_copy(channel.comm.device, &arrived, (char *)weir_memory_pointer(pair->local) + 8, 8));
        WEIRT_EXPECT(rank, arrived == 0xfedcba9876543210u + pair->peer);
    }
    weirt_channel_close(rank, &channel);
}

constexpr uint64_t most = UINT64_MAX;

// Accesses outside the memory, in all ways in which offset plus size can be wrong.
struct outside {
    const char *what;
    uint32_t op;
    uint64_t remote_offset;
    uint64_t local_offset;
    uint64_t bytes;
    weir_status status;
    uint64_t value = most;
};

constexpr uint64_t half = 1024;
constexpr uint64_t memory = 2 * half;
constexpr uint64_t packets = 4 * half;
constexpr uint64_t far = (uint64_t)1 << 46; // a load from there would end the process, or the kernel

const outside outsides[] = {
    { "put one byte too many", WEIRT_DO_PUT, 1, 0, memory, WEIR_ERR_RANGE },
    { "put from beyond", WEIRT_DO_PUT, 0, memory, 1, WEIR_ERR_RANGE },
    { "put to beyond", WEIRT_DO_PUT, memory + 1, 0, 0, WEIR_ERR_RANGE },
    { "put overflow of the remote offset", WEIRT_DO_PUT, most, 0, 2, WEIR_ERR_RANGE },
    { "put overflow of the local offset", WEIRT_DO_PUT, 0, most - 6, 8, WEIR_ERR_RANGE },
    { "put of the largest size", WEIRT_DO_PUT, 0, 0, most, WEIR_ERR_RANGE },
    { "put that wraps to zero", WEIRT_DO_PUT, 16, 16, most - 15, WEIR_ERR_RANGE },
    { "get one byte too many", WEIRT_DO_GET, memory - 7, 0, 8, WEIR_ERR_RANGE },
    { "get overflow", WEIRT_DO_GET, most - 3, 0, 4, WEIR_ERR_RANGE },
    { "get of the largest size", WEIRT_DO_GET, 1, 1, most, WEIR_ERR_RANGE },
    { "ll16 one packet too many", WEIRT_DO_PUT_LL16, packets - 16, 0, 9, WEIR_ERR_RANGE },
    { "ll16 size that overflows when rounded up", WEIRT_DO_PUT_LL16, 0, 0, most, WEIR_ERR_RANGE },
    { "ll16 overflow of the packet offset", WEIRT_DO_PUT_LL16, most - 15, 0, 8, WEIR_ERR_RANGE },
    { "ll16 from beyond", WEIRT_DO_PUT_LL16, 0, memory, 1, WEIR_ERR_RANGE },
    { "ll16 from far beyond", WEIRT_DO_PUT_LL16, 0, far, 8, WEIR_ERR_RANGE },
    { "ll16 misaligned", WEIRT_DO_PUT_LL16, 8, 0, 8, WEIR_ERR_INVALID },
    { "unpack ll16 beyond", WEIRT_DO_UNPACK_LL16, packets, 0, 1, WEIR_ERR_RANGE },
    { "unpack ll16 to beyond", WEIRT_DO_UNPACK_LL16, 0, memory - 1, 2, WEIR_ERR_RANGE },
    { "unpack ll16 misaligned", WEIRT_DO_UNPACK_LL16, 1, 0, 8, WEIR_ERR_INVALID },
    { "exchange ll16 without room for the second half", WEIRT_DO_EXCHANGE_LL16, packets - 48, 0, 9, WEIR_ERR_RANGE, 0 },
    { "exchange ll16 to beyond", WEIRT_DO_EXCHANGE_LL16, 0, 0, 8, WEIR_ERR_RANGE, memory - 7 },
    { "exchange ll16 of the largest size", WEIRT_DO_EXCHANGE_LL16, 0, 0, most, WEIR_ERR_RANGE, 0 },
    { "exchange ll16 from far beyond", WEIRT_DO_EXCHANGE_LL16, 0, far, 8, WEIR_ERR_RANGE, 0 },
    { "exchange ll16 misaligned", WEIRT_DO_EXCHANGE_LL16, 8, 0, 8, WEIR_ERR_INVALID, 0 },
    { "lines one too many", WEIRT_DO_PUT_LINES, packets - 128, 0, 121, WEIR_ERR_RANGE },
    { "lines from beyond", WEIRT_DO_PUT_LINES, 0, memory - 1, 2, WEIR_ERR_RANGE },
    { "lines from far beyond", WEIRT_DO_PUT_LINES, 0, far, 8, WEIR_ERR_RANGE },
    { "many lines from far beyond", WEIRT_DO_PUT_LINES, 0, far, memory, WEIR_ERR_RANGE },
    { "lines of the largest size", WEIRT_DO_PUT_LINES, 0, 0, most, WEIR_ERR_RANGE },
    { "lines misaligned", WEIRT_DO_PUT_LINES, 64, 0, 8, WEIR_ERR_INVALID },
    { "unpack lines beyond", WEIRT_DO_UNPACK_LINES, packets, 0, 1, WEIR_ERR_RANGE },
    { "unpack lines misaligned", WEIRT_DO_UNPACK_LINES, 16, 0, 1, WEIR_ERR_INVALID },
    { "exchange lines without room for the second half", WEIRT_DO_EXCHANGE_LINES, packets - 384, 0, 121, WEIR_ERR_RANGE,
      0 },
    { "exchange lines to beyond", WEIRT_DO_EXCHANGE_LINES, 0, 0, 8, WEIR_ERR_RANGE, most - 3 },
    { "exchange lines from far beyond", WEIRT_DO_EXCHANGE_LINES, 0, far, 8, WEIR_ERR_RANGE, 0 },
    { "lines by a part", WEIRT_DO_LINES_BY_PART, 0, 0, 8, WEIR_ERR_INVALID },
    { "beyond the set", WEIRT_DO_AT, WEIRT_SET, 0, 0, WEIR_ERR_RANGE },
    { "far beyond the set", WEIRT_DO_AT, UINT32_MAX, 0, 0, WEIR_ERR_RANGE },
    { "packets of one index by several blocks", WEIRT_DO_AT_BY_GRID, 1, 0, 8, WEIR_ERR_INVALID },
    { "read u32 beyond", WEIRT_DO_READ_U32, memory / 4, 0, 0, WEIR_ERR_RANGE },
    { "read u64 beyond", WEIRT_DO_READ_U64, memory / 8, 0, 0, WEIR_ERR_RANGE },
    { "read u64 of the largest index", WEIRT_DO_READ_U64, most, 0, 0, WEIR_ERR_RANGE },
    { "write u32 whose address wraps", WEIRT_DO_WRITE_U32, most / 4 + 1, 0, 0, WEIR_ERR_RANGE },
    { "write u64 beyond", WEIRT_DO_WRITE_U64, memory / 8, 0, 0, WEIR_ERR_RANGE },
};

bool all_zero(weirt_rank *rank, const weirt_pair *pair, const weir_memory *which)
{
    std::vector<char> bytes(weir_memory_bytes(which));
    WEIRT_OK(rank,
             weir_device_copy(weir_comm_device(pair->comm), bytes.data(), weir_memory_pointer(which), bytes.size()));
    for (char byte : bytes) {
        if (byte != 0) {
            return false;
        }
    }
    return true;
}

// Each access is a sticky error, so each has its own communicator on the shared bootstrap. The ranks take turns,
// because an error of one ends the communicator of the other.
void out_of_range(weirt_rank *rank)
{
    weirt_comm base;
    if (!weirt_comm_open(rank, 0, &base)) {
        weirt_comm_close(&base);
        return;
    }
    for (const outside &wrong : outsides) {
        weir_comm *comm = nullptr;
        weirt_pair pair = {};
        if (!WEIRT_OK(rank, weir_comm_create(base.boot, base.device, nullptr, &comm)) ||
            !weirt_pair_open(rank, comm, half, 3, &pair)) {
            weirt_pair_close(rank, &pair, false);
            weir_comm_destroy(comm);
            break;
        }
        bool zero = WEIRT_OK(rank, weir_device_fill(base.device, weir_memory_pointer(pair.local), 0, memory));
        weirt_barrier(rank);
        bool turn = (uint32_t)(&wrong - outsides) % 2 == rank->rank;
        weirt_access_args access = {};
        bool packet = wrong.op >= WEIRT_DO_PUT_LL16 && wrong.op <= WEIRT_DO_LINES_BY_PART;
        weir_memory_channel_device(packet ? pair.packet : pair.data, &access.channel);
        access.op = wrong.op;
        access.remote_offset = wrong.remote_offset;
        access.local_offset = wrong.local_offset;
        access.bytes = wrong.bytes;
        access.value = wrong.value;
        weir_status status = turn ? weirt_access_run(rank, &pair, &access) : wrong.status;
        weir_status sticky = turn ? weir_comm_status(comm) : wrong.status;
        weirt_barrier(rank);
        zero = zero && all_zero(rank, &pair, pair.local) && all_zero(rank, &pair, pair.packets);
        if (status != wrong.status || sticky != wrong.status || !zero) {
            weirt_fail(rank, __FILE__, __LINE__, "%s: status %s, sticky %s%s", wrong.what, weir_status_name(status),
                       weir_status_name(sticky), zero ? "" : ", and something was written");
        }
        weirt_pair_close(rank, &pair, true);
        weir_comm_destroy(comm);
    }
    weirt_comm_close(&base);
}

// A channel without a packet buffer cannot unpack.
void no_packet_buffer(weirt_rank *rank)
{
    weirt_channel channel;
    if (weirt_channel_open(rank, 0, 1024, &channel)) {
        weirt_access_args access = {};
        weir_memory_channel_device(channel.pair.data, &access.channel);
        WEIRT_EXPECT(rank, access.channel.packets == nullptr && access.channel.packets_bytes == 0);
        access.op = WEIRT_DO_UNPACK_LL16;
        access.bytes = 8;
        weirt_barrier(rank);
        if (rank->rank == 0) {
            WEIRT_EXPECT(rank, weirt_access_run(rank, &channel.pair, &access) == WEIR_ERR_RANGE);
            WEIRT_STATUS(rank, WEIR_ERR_RANGE, weir_comm_status(channel.comm.comm));
        }
    }
    weirt_channel_close(rank, &channel);
}

// An access exactly up to the end is no error.
void up_to_the_end(weirt_rank *rank)
{
    weirt_channel channel;
    if (weirt_channel_open(rank, 0, half, &channel)) {
        weirt_pair *pair = &channel.pair;
        weirt_access_args access = {};
        weir_memory_channel_device(pair->data, &access.channel);
        WEIRT_OK(rank, weir_device_fill(channel.comm.device, weir_memory_pointer(pair->local),
                                        (uint8_t)(1 + rank->rank), half));
        weirt_barrier(rank);
        access.op = WEIRT_DO_PUT;
        access.remote_offset = memory - 5;
        access.bytes = 5;
        WEIRT_EXPECT(rank, weirt_access_run(rank, pair, &access) == WEIR_OK);
        access.remote_offset = memory;
        access.bytes = 0;
        WEIRT_EXPECT(rank, weirt_access_run(rank, pair, &access) == WEIR_OK);
        weirt_barrier(rank);
        char tail[6];
        WEIRT_OK(rank,
                 weir_device_copy(channel.comm.device, tail, (char *)weir_memory_pointer(pair->local) + memory - 6, 6));
        for (int i = 0; i < 6; i++) {
            WEIRT_EXPECT(rank, tail[i] == (i == 0 ? 0 : (char)(1 + pair->peer)));
        }
        weir_memory_channel_device(pair->packet, &access.channel);
        access.op = WEIRT_DO_PUT_LL16;
        access.remote_offset = packets - 16;
        access.bytes = 8;
        WEIRT_EXPECT(rank, weirt_access_run(rank, pair, &access) == WEIR_OK);
        WEIRT_OK(rank, weir_comm_status(channel.comm.comm));
    }
    weirt_channel_close(rank, &channel);
}

void creation_misuse(weirt_rank *rank)
{
    weirt_channel channel;
    if (weirt_channel_open(rank, 0, 1024, &channel)) {
        weirt_pair *pair = &channel.pair;
        weir_memory_channel *made = nullptr;
        weir_memory *odd = nullptr;
        weir_memory_channel_opts opts = {};
        opts.size = sizeof opts;
        WEIRT_STATUS(rank, WEIR_ERR_INVALID,
                     weir_memory_channel_create(pair->semaphore, pair->local, pair->local, nullptr, &made));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID,
                     weir_memory_channel_create(pair->semaphore, pair->remote, pair->remote, nullptr, &made));
        opts.packets = pair->remote_packets;
        WEIRT_STATUS(rank, WEIR_ERR_INVALID,
                     weir_memory_channel_create(pair->semaphore, pair->remote, pair->local, &opts, &made));
        char *inside = (char *)weir_memory_pointer(pair->packets) + 8;
        if (WEIRT_OK(rank, weir_memory_register(channel.comm.comm, inside, 64, nullptr, &odd))) {
            opts.packets = odd;
            WEIRT_STATUS(rank, WEIR_ERR_INVALID,
                         weir_memory_channel_create(pair->semaphore, pair->remote, pair->local, &opts, &made));
        }
        WEIRT_STATUS(rank, WEIR_ERR_INVALID,
                     weir_memory_channel_create(nullptr, pair->remote, pair->local, nullptr, &made));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID,
                     weir_memory_channel_create(pair->semaphore, nullptr, pair->local, nullptr, &made));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID,
                     weir_memory_channel_create(pair->semaphore, pair->remote, nullptr, nullptr, &made));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID,
                     weir_memory_channel_create(pair->semaphore, pair->remote, pair->local, nullptr, nullptr));
        WEIRT_EXPECT(rank, made == nullptr);
        weir_memory_destroy(odd);
        weir_memory_channel_destroy(nullptr);
    }
    weirt_channel_close(rank, &channel);
}

// A rank's channel to itself: sent and received data share token, packet buffer and memory.
void to_itself(weirt_rank *rank)
{
    const uint64_t most = weirt_sanitizer()[0] == 0 ? 4 << 20 : 1 << 16;
    const uint64_t sizes[] = { 1, 4099, most };
    const weir_semaphore_opts on_host = { sizeof on_host, WEIR_SEMAPHORE_HOST, 0 };
    weirt_comm c;
    weirt_pair pair = {};
    weir_semaphore *host = nullptr;
    bool right = weirt_comm_open(rank, 0, &c) &&
                 weirt_pair_open_to(rank, c.comm, rank->rank, most + WEIRT_SLACK, 1, &pair) &&
                 WEIRT_EXPECT(rank, weir_connection_peer(pair.connection) == rank->rank) &&
                 WEIRT_EXPECT(rank, weir_memory_rank(pair.remote) == rank->rank);
    for (uint32_t op = 0; op < WEIRT_OPS && right; op++) {
        for (uint64_t bytes : sizes) {
            weirt_transfer_args args = weirt_transfer_of(rank, &pair);
            args.op = op;
            args.peer = rank->rank;
            args.first = args.last = bytes;
            args.misaligned = bytes == 4099;
            args.rounds = 2;
            right = right && run_transfer(rank, &pair, args) && (args.misaligned || host_sees(rank, &pair, args));
        }
    }
    if (right && WEIRT_OK(rank, weir_semaphore_create(pair.connection, 9, &on_host, &host))) {
        WEIRT_STATUS(rank, WEIR_PENDING, weir_semaphore_poll(host));
        WEIRT_OK(rank, weir_semaphore_signal(host));
        WEIRT_OK(rank, weir_semaphore_signal(host));
        WEIRT_OK(rank, weir_semaphore_wait(host, weirt_timeout_ms()));
        WEIRT_OK(rank, weir_semaphore_poll(host));
        WEIRT_STATUS(rank, WEIR_PENDING, weir_semaphore_poll(host));
    }
    weir_semaphore_destroy(host);
    WEIRT_OK(rank, weir_comm_status(c.comm));
    weirt_pair_close(rank, &pair, false);
    weirt_comm_close(&c);
}

// One rank has a memory channel, the other one plain pointers and a semaphore with its end on the host. A value goes
// back and forth, and each rank adds one. The argument is the rank with the host's end; rank 0 begins.
constexpr uint32_t host_rounds = 100;

// The kernel's part, by a host thread.
void host_pingpong(weirt_rank *rank, weir_semaphore *semaphore, weir_memory *local, weir_memory *remote)
{
    const bool first = rank->rank == 0;
    auto *mine = (uint64_t *)weir_memory_host_pointer(local);
    auto *theirs = (uint64_t *)weir_memory_host_pointer(remote);
    bool good = WEIRT_EXPECT(rank, mine != nullptr && theirs != nullptr);
    uint64_t value = 0;
    for (uint32_t round = 0; round < host_rounds && good; round++) {
        if (!first || round != 0) {
            good = WEIRT_OK(rank, weir_semaphore_wait(semaphore, weirt_timeout_ms()));
            value = __atomic_load_n(mine, __ATOMIC_RELAXED);
        }
        __atomic_store_n(theirs, value + 1, __ATOMIC_RELAXED);
        good = good && WEIRT_OK(rank, weir_semaphore_signal(semaphore));
    }
    if (good && first && WEIRT_OK(rank, weir_semaphore_wait(semaphore, weirt_timeout_ms()))) {
        value = __atomic_load_n(mine, __ATOMIC_RELAXED);
    }
    WEIRT_EXPECT(rank, value == (first ? 2 * host_rounds : 2 * host_rounds - 1));
}

void host_at_one_end(weirt_rank *rank)
{
    const bool host = *(const uint32_t *)rank->arg == rank->rank;
    const bool first = rank->rank == 0;
    const uint32_t peer = 1 - rank->rank;
    const weir_memory_opts shared = { sizeof shared, WEIR_MEMORY_HOST, false, 0 };
    weirt_comm c;
    weir_connection *connection = nullptr;
    weir_semaphore *semaphore = nullptr;
    weir_memory *local = nullptr;
    weir_memory *remote = nullptr;
    weir_memory *report = nullptr;
    weir_memory_channel *channel = nullptr;
    void *stream = nullptr;
    const weir_shape one = { 1, 1 };
    const bool open =
        weirt_comm_open(rank, 0, &c) && WEIRT_OK(rank, weir_memory_allocate(c.comm, 64, &shared, &local)) &&
        WEIRT_OK(rank, weir_memory_allocate(c.comm, sizeof(weirt_report), &shared, &report)) &&
        WEIRT_OK(rank, weir_memory_send(c.comm, local, peer, 1)) && weirt_receive(rank, c.comm, peer, 1, &remote) &&
        weirt_connect(rank, c.comm, peer, 2, &connection) &&
        weirt_semaphore(rank, connection, 3, host ? WEIR_SEMAPHORE_HOST : WEIR_SEMAPHORE_DEVICE, &semaphore);
    if (open && host) {
        host_pingpong(rank, semaphore, local, remote);
    } else if (open && WEIRT_OK(rank, weir_memory_channel_create(semaphore, remote, local, nullptr, &channel)) &&
               WEIRT_OK(rank, weir_stream_create(c.device, &stream))) {
        const auto *result = (const weirt_report *)weir_memory_host_pointer(report);
        weirt_pingpong_args args = {};
        weir_memory_channel_device(channel, &args.channel);
        args.inbox = (uint64_t *)weir_memory_pointer(local);
        args.report = (weirt_report *)weir_memory_pointer(report);
        args.first = first;
        args.rounds = host_rounds;
        if (WEIRT_OK(rank, weir_launch(c.device, weirt_pingpong_kernel(), one, &args, nullptr, stream)) &&
            WEIRT_OK(rank, weir_stream_wait(c.device, stream, weirt_timeout_ms()))) {
            WEIRT_EXPECT(rank, result->status[0][0] == WEIR_OK);
            WEIRT_EXPECT(rank, result->value == (first ? 2 * host_rounds : 2 * host_rounds - 1));
        }
    }
    weirt_barrier(rank);
    if (stream != nullptr) {
        weir_stream_destroy(c.device, stream);
    }
    weir_memory_channel_destroy(channel);
    weir_semaphore_destroy(semaphore);
    weir_connection_destroy(connection);
    weir_memory_destroy(remote);
    weirt_barrier(rank);
    weir_memory_destroy(report);
    weir_memory_destroy(local);
    weirt_comm_close(&c);
}

WEIRT_STAGE_SUITE(MemoryChannel);

class Transfer : public ::testing::TestWithParam<std::tuple<int, int>> {
protected:
    void SetUp() override { weirt_require_data_stage(stage()); }
    const weirt_stage *stage() const { return &weirt_stages[std::get<0>(GetParam())]; }
    void run(weirt_rank_fn body)
    {
        sweep arg = { (uint32_t)std::get<1>(GetParam()) };
        weirt_ranks_run(stage(), 2, body, &arg, sizeof arg);
    }
};

TEST_P(Transfer, SmallSizesInAllGroups) { run(small_sizes); }
TEST_P(Transfer, LargeSizes) { run(large_sizes); }

std::string transfer_name(const ::testing::TestParamInfo<std::tuple<int, int>> &param)
{
    const char *ops[] = { "put", "get", "ll16", "exchange_ll16", "lines", "exchange_lines" };
    return std::string(weirt_stages[std::get<0>(param.param)].name) + "_" + ops[std::get<1>(param.param)];
}

INSTANTIATE_TEST_SUITE_P(Stages, Transfer,
                         ::testing::Combine(::testing::Range(0, WEIRT_STAGES), ::testing::Range(0, (int)WEIRT_OPS)),
                         transfer_name);

TEST_P(MemoryChannel, GraphReplaysGoOnWhereTheyWere) { run(2, replays); }
TEST_P(MemoryChannel, BlocksOfASetGoTheirOwnWay) { run(2, sets); }
TEST_P(MemoryChannel, SeveralAtOnce) { run(2, several_at_once); }
TEST_P(MemoryChannel, SingleValues) { run(2, single_values); }

TEST_P(MemoryChannel, HostAtOneEndKernelAtTheOther)
{
    for (uint32_t host : { 0, 1 }) {
        weirt_ranks_run(stage(), 2, host_at_one_end, &host, sizeof host);
    }
}

TEST_P(MemoryChannel, RankToItself)
{
    for (uint32_t ranks : { 1, 2 }) {
        run(ranks, to_itself);
    }
}

TEST_P(MemoryChannel, OutOfRangeWritesNothingAndSticks) { run(2, out_of_range); }
TEST_P(MemoryChannel, NoPacketBufferIsOutOfRange) { run(2, no_packet_buffer); }
TEST_P(MemoryChannel, UpToTheEndIsInRange) { run(2, up_to_the_end); }
TEST_P(MemoryChannel, CreationMisuseIsInvalid) { run(2, creation_misuse); }

} // namespace
