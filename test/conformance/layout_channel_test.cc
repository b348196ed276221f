// Layouts through memory channels: put, get and packets, beside a loop over single bytes, and their refusals.
#include <numeric>
#include <string>
#include <vector>

#include "test/conformance/layout_channel_kernels.h"
#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

namespace {

WEIRT_STAGE_SUITE(LayoutChannel);

constexpr char GUARD = 0x5a;
constexpr uint64_t HALF = 32 << 10; // the source; the destination has the same size and lies behind it
constexpr uint64_t CENTRE = HALF / 2;
constexpr uint32_t ROUNDS = 100;
constexpr uint32_t WITHOUT_TO = 1;
constexpr uint32_t WITHOUT_FROM = 2;

char byte_of(uint32_t rank, uint64_t i) { return static_cast<char>(i * 131 + i / 251 + rank * 77 + 1); }

// `count` items of a layout, and where their bytes lie, in packed order.
struct Items {
    weir_layout *layout = nullptr;
    uint64_t count = 1;
    std::vector<int64_t> bytes;
};

Items at_places(weirt_rank *rank, const Items &of, const std::vector<int64_t> &places)
{
    Items items;
    WEIRT_OK(rank, weir_layout_create_hindexed_block(places.size(), 1, places.data(), of.layout, &items.layout));
    weir_layout_destroy(of.layout);
    for (const int64_t place : places) {
        for (const int64_t byte : of.bytes) {
            items.bytes.push_back(place + byte);
        }
    }
    return items;
}

struct Dim {
    uint64_t count;
    int64_t stride;
};

// The innermost dim comes first.
Items nest(weirt_rank *rank, uint64_t run, const std::vector<Dim> &dims)
{
    Items items;
    WEIRT_OK(rank, weir_layout_create_bytes(run, &items.layout));
    items.bytes.resize(run);
    std::iota(items.bytes.begin(), items.bytes.end(), 0);
    for (const Dim &dim : dims) {
        std::vector<int64_t> places(dim.count);
        for (uint64_t i = 0; i < dim.count; i++) {
            places[i] = static_cast<int64_t>(i) * dim.stride;
        }
        items = at_places(rank, items, places);
    }
    return items;
}

Items times(uint64_t count, Items items)
{
    weir_layout_info info;
    weir_layout_get_info(items.layout, &info);
    const std::vector<int64_t> one = items.bytes;
    for (uint64_t i = 1; i < count; i++) {
        for (const int64_t byte : one) {
            items.bytes.push_back(static_cast<int64_t>(i) * info.extent + byte);
        }
    }
    items.count = count;
    return items;
}

struct Sides {
    Items to;
    Items from;
    uint32_t without;
};

// Pairs of one size: words of 8 and 4 bytes, odd runs, both signs, several items, piece lists, and packed sides.
std::vector<Sides> all_sides(weirt_rank *rank)
{
    const auto two = [&](uint64_t to, const std::vector<Dim> &to_dims, uint64_t from, const std::vector<Dim> &from_dims,
                         uint32_t without) {
        return Sides{ nest(rank, to, to_dims), nest(rank, from, from_dims), without };
    };
    std::vector<Sides> all;
    all.push_back(two(8, { { 10, 24 } }, 16, { { 5, -48 } }, 0));
    all.push_back(two(8, { { 2, 24 }, { 2, 104 } }, 16, { { 2, -48 } }, 0)); // a packet for each thread
    all.push_back(two(32, {}, 8, { { 4, 40 } }, WITHOUT_TO));
    all.push_back(two(16, { { 64, 32 } }, 8, { { 16, 16 }, { 8, 512 } }, 0));
    all.push_back(two(4, { { 11, 12 } }, 4, { { 11, -8 } }, 0));
    all.push_back(two(13, { { 19, 53 } }, 19, { { 13, -31 } }, 0));
    all.push_back(two(1, { { 10, 3 }, { 7, 100 } }, 7, { { 10, 64 } }, 0));
    all.push_back(two(247, {}, 13, { { 19, -53 } }, WITHOUT_TO));
    all.push_back(two(4, { { 6, -20 }, { 3, 200 } }, 72, {}, WITHOUT_FROM));
    all.push_back({ times(3, nest(rank, 6, { { 4, 10 } })), times(2, nest(rank, 12, { { 3, -40 } })), 0 });
    all.push_back({ at_places(rank, nest(rank, 5, {}), { 300, 0, -77, 1000, -399, 44, 91 }),
                    at_places(rank, nest(rank, 1, { { 5, 9 } }), { 0, 60, 700, -200, 1300, 2000, 133 }), 0 });
    return all;
}

void destroy(const Sides &sides)
{
    weir_layout_destroy(sides.to.layout);
    weir_layout_destroy(sides.from.layout);
}

bool handle_of(weirt_rank *rank, weir_device *device, const Items &items, weir_dev_layout *out)
{
    return WEIRT_OK(rank, weir_layout_commit(items.layout, device)) &&
           WEIRT_OK(rank, weir_layout_device(items.layout, device, items.count, out));
}

// Makes the call on both ranks, and returns the status of a thread that failed, or WEIR_OK.
weir_status call(weirt_rank *rank, const weirt_pair *pair, layout_channel_args args)
{
    args.status = &pair->device_report->status[0][0];
    pair->report->status[0][0] = WEIR_OK;
    if (!weirt_launch(rank, pair, layout_channel_kernel, &args) || !weirt_finish(rank, pair)) {
        return WEIR_ERR_DEVICE;
    }
    return static_cast<weir_status>(pair->report->status[0][0]);
}

// Fills this rank's memory, makes the call, and compares the memory byte by byte.
void check(weirt_rank *rank, const weirt_pair *pair, const Sides &sides, const layout_channel_args &args)
{
    weir_device *device = weir_comm_device(pair->comm);
    void *memory = weir_memory_pointer(pair->local);
    std::vector<char> wanted(2 * HALF, GUARD);
    for (uint64_t i = 0; i < HALF; i++) {
        wanted[i] = byte_of(rank->rank, i);
    }
    WEIRT_OK(rank, weir_device_copy(device, memory, wanted.data(), wanted.size()));
    weirt_barrier(rank);
    const weir_status status = call(rank, pair, args);
    weirt_barrier(rank);
    std::vector<char> found(2 * HALF);
    WEIRT_OK(rank, weir_device_copy(device, found.data(), memory, found.size()));
    for (uint64_t round = 0; round < args.rounds; round++) {
        for (uint64_t i = 0; i < sides.to.bytes.size(); i++) {
            const uint64_t to = args.to_offset + round * args.step + static_cast<uint64_t>(sides.to.bytes[i]);
            const uint64_t from = args.from_offset + round * args.step + static_cast<uint64_t>(sides.from.bytes[i]);
            wanted[to] = byte_of(pair->peer, from);
        }
    }
    for (uint64_t i = 0; i < wanted.size() && status == WEIR_OK; i++) {
        if (wanted[i] != found[i]) {
            weirt_fail(rank, __FILE__, __LINE__, "call %d, %zu bytes: byte %llu is wrong", static_cast<int>(args.call),
                       sides.to.bytes.size(), static_cast<unsigned long long>(i));
            return;
        }
    }
    if (status != WEIR_OK) {
        weirt_fail(rank, __FILE__, __LINE__, "call %d: %s", static_cast<int>(args.call), weir_status_name(status));
    }
}

// Bytes of the packet buffers that have held lines cannot hold packets.
void each_call_with_lines(weirt_rank *rank, const weirt_pair *pair, const Sides &sides, layout_channel_args args,
                          uint64_t shift)
{
    if (!args.channel.lines) {
        return;
    }
    args.call = LAYOUT_CHANNEL_EXCHANGE_LINES;
    args.packet_offset = HALF + WEIR_LINE_BYTES * shift;
    check(rank, pair, sides, args);
    args.call = LAYOUT_CHANNEL_PUT_UNPACK_LINES;
    args.packet_offset = 3 * HALF;
    if (sides.without == 0) {
        check(rank, pair, sides, args);
    }
}

void each_call(weirt_rank *rank)
{
    weirt_channel channel;
    if (weirt_channel_open(rank, 0, HALF, &channel)) {
        const weirt_pair *pair = &channel.pair;
        for (const Sides &sides : all_sides(rank)) {
            layout_channel_args args = {};
            const bool ready = handle_of(rank, channel.comm.device, sides.to, &args.to) &&
                               handle_of(rank, channel.comm.device, sides.from, &args.from);
            args.without = sides.without;
            args.rounds = ready ? 1 : 0;
            for (uint64_t shift = 0; shift < 3; shift++) {
                args.grid = shift != 1;
                args.to_offset = HALF + CENTRE + shift;
                args.from_offset = CENTRE + shift * 8;
                weir_memory_channel_device(pair->data, &args.channel);
                for (const layout_channel_call plain : { LAYOUT_CHANNEL_PUT, LAYOUT_CHANNEL_GET }) {
                    args.call = plain;
                    check(rank, pair, sides, args);
                }
                weir_memory_channel_device(pair->packet, &args.channel);
                args.call = LAYOUT_CHANNEL_EXCHANGE_LL16;
                args.packet_offset = 16 * (1 + shift);
                check(rank, pair, sides, args);
                args.call = LAYOUT_CHANNEL_PUT_UNPACK_LL16;
                args.packet_offset = 2 * HALF;
                if (sides.without == 0) { // a layout gives the number of packets
                    check(rank, pair, sides, args);
                }
                each_call_with_lines(rank, pair, sides, args, shift);
            }
            destroy(sides);
        }
        WEIRT_OK(rank, weir_comm_status(channel.comm.comm));
    }
    weirt_channel_close(rank, &channel);
}

TEST_P(LayoutChannel, EachCallMovesTheBytesOfBothLayouts) { run(2, each_call); }

// Many rounds in one kernel, with other data and other alignments each time. Calls that use the same packets again have
// a signal between them; only a layout on both sides gives them the number of packets.
template <layout_channel_call Call, bool Meets = false> void rounds(weirt_rank *rank)
{
    weirt_channel channel;
    if (weirt_channel_open(rank, 0, HALF, &channel)) {
        for (const Sides &sides : all_sides(rank)) {
            layout_channel_args args = {};
            if (handle_of(rank, channel.comm.device, sides.to, &args.to) &&
                handle_of(rank, channel.comm.device, sides.from, &args.from)) {
                weir_memory_channel_device(Call == LAYOUT_CHANNEL_PUT ? channel.pair.data : channel.pair.packet,
                                           &args.channel);
                args.call = Call;
                args.without = sides.without;
                args.to_offset = HALF + CENTRE;
                args.from_offset = CENTRE;
                args.step = 37;
                args.rounds = Meets && sides.without != 0 ? 0 : ROUNDS;
                args.meets = Meets;
                check(rank, &channel.pair, sides, args);
            }
            destroy(sides);
        }
        WEIRT_OK(rank, weir_comm_status(channel.comm.comm));
    }
    weirt_channel_close(rank, &channel);
}

TEST_P(LayoutChannel, HundredExchangesInOneKernel) { run(2, rounds<LAYOUT_CHANNEL_EXCHANGE_LL16>); }
TEST_P(LayoutChannel, HundredExchangesOfLinesInOneKernel) { run(2, rounds<LAYOUT_CHANNEL_EXCHANGE_LINES>); }
TEST_P(LayoutChannel, HundredPutsWithSignals) { run(2, rounds<LAYOUT_CHANNEL_PUT, true>); }
TEST_P(LayoutChannel, PacketsAreUsedAgainAfterASignal) { run(2, rounds<LAYOUT_CHANNEL_PUT_UNPACK_LL16, true>); }
TEST_P(LayoutChannel, LinesAreUsedAgainAfterASignal) { run(2, rounds<LAYOUT_CHANNEL_PUT_UNPACK_LINES, true>); }

// ---- refusals ----------------------------------------------------------------------------------------------

constexpr uint64_t SMALL = 1024; // `half` of the pair
constexpr uint64_t MEMORY = 2 * SMALL;
constexpr uint64_t PACKETS = 4 * SMALL;

enum Which { BACKWARD, AHEAD, LARGER, NONE };

struct Refusal {
    const char *what;
    layout_channel_call call;
    Which to;
    uint64_t to_offset;
    Which from;
    uint64_t from_offset;
    uint64_t packet_offset;
    weir_status status;
};

// BACKWARD has 32 bytes at [-48, 8), AHEAD 32 bytes at [64, 96).
const Refusal refusals[] = {
    { "put that just fits", LAYOUT_CHANNEL_PUT, BACKWARD, 48, AHEAD, MEMORY - 96, 0, WEIR_OK },
    { "put to before the memory", LAYOUT_CHANNEL_PUT, BACKWARD, 47, AHEAD, 0, 0, WEIR_ERR_RANGE },
    { "put to beyond", LAYOUT_CHANNEL_PUT, BACKWARD, MEMORY - 7, AHEAD, 0, 0, WEIR_ERR_RANGE },
    { "put from before the memory", LAYOUT_CHANNEL_PUT, AHEAD, 0, BACKWARD, 0, 0, WEIR_ERR_RANGE },
    { "put from beyond", LAYOUT_CHANNEL_PUT, AHEAD, 0, BACKWARD, MEMORY - 7, 0, WEIR_ERR_RANGE },
    { "put whose offset wraps", LAYOUT_CHANNEL_PUT, AHEAD, UINT64_MAX - 63, AHEAD, 0, 0, WEIR_ERR_RANGE },
    { "put to packed bytes beyond", LAYOUT_CHANNEL_PUT, NONE, MEMORY - 31, AHEAD, 0, 0, WEIR_ERR_RANGE },
    { "put of unequal sizes", LAYOUT_CHANNEL_PUT, LARGER, 0, AHEAD, 0, 0, WEIR_ERR_INVALID },
    { "put without layouts", LAYOUT_CHANNEL_PUT, NONE, 0, NONE, 0, 0, WEIR_ERR_INVALID },
    { "get from before the memory", LAYOUT_CHANNEL_GET, AHEAD, 0, BACKWARD, 47, 0, WEIR_ERR_RANGE },
    { "get to beyond", LAYOUT_CHANNEL_GET, AHEAD, MEMORY - 95, BACKWARD, 48, 0, WEIR_ERR_RANGE },
    { "packets beyond", LAYOUT_CHANNEL_PUT_LL16, NONE, 0, AHEAD, 0, PACKETS - 48, WEIR_ERR_RANGE },
    { "packets from before the memory", LAYOUT_CHANNEL_PUT_LL16, NONE, 0, BACKWARD, 47, 0, WEIR_ERR_RANGE },
    { "packets misaligned", LAYOUT_CHANNEL_PUT_LL16, NONE, 0, AHEAD, 0, 8, WEIR_ERR_INVALID },
    { "packets without a layout", LAYOUT_CHANNEL_PUT_LL16, NONE, 0, NONE, 0, 0, WEIR_ERR_INVALID },
    { "unpack to beyond", LAYOUT_CHANNEL_UNPACK_LL16, BACKWARD, MEMORY - 7, NONE, 0, 0, WEIR_ERR_RANGE },
    { "unpack of packets beyond", LAYOUT_CHANNEL_UNPACK_LL16, AHEAD, 0, NONE, 0, PACKETS, WEIR_ERR_RANGE },
    { "exchange without room for the second half", LAYOUT_CHANNEL_EXCHANGE_LL16, AHEAD, 0, AHEAD, 0, PACKETS - 112,
      WEIR_ERR_RANGE },
    { "exchange to before the memory", LAYOUT_CHANNEL_EXCHANGE_LL16, BACKWARD, 47, AHEAD, 0, 0, WEIR_ERR_RANGE },
    { "exchange of unequal sizes", LAYOUT_CHANNEL_EXCHANGE_LL16, LARGER, 0, AHEAD, 0, 0, WEIR_ERR_INVALID },
    { "line that just fits", LAYOUT_CHANNEL_PUT_LINES, NONE, 0, BACKWARD, 48, PACKETS - 128, WEIR_OK },
    { "lines beyond", LAYOUT_CHANNEL_PUT_LINES, NONE, 0, AHEAD, 0, PACKETS, WEIR_ERR_RANGE },
    { "lines from before the memory", LAYOUT_CHANNEL_PUT_LINES, NONE, 0, BACKWARD, 47, 0, WEIR_ERR_RANGE },
    { "lines misaligned", LAYOUT_CHANNEL_PUT_LINES, NONE, 0, AHEAD, 0, 64, WEIR_ERR_INVALID },
    { "lines without a layout", LAYOUT_CHANNEL_PUT_LINES, NONE, 0, NONE, 0, 0, WEIR_ERR_INVALID },
    { "unpack of lines to beyond", LAYOUT_CHANNEL_UNPACK_LINES, BACKWARD, MEMORY - 7, NONE, 0, 0, WEIR_ERR_RANGE },
    { "exchange of lines without room for the second half", LAYOUT_CHANNEL_EXCHANGE_LINES, AHEAD, 0, AHEAD, 0,
      PACKETS - 128, WEIR_ERR_RANGE },
    { "exchange of lines of unequal sizes", LAYOUT_CHANNEL_EXCHANGE_LINES, LARGER, 0, AHEAD, 0, 0, WEIR_ERR_INVALID },
};

bool holds(weirt_rank *rank, weir_device *device, const weir_memory *memory, char value)
{
    std::vector<char> bytes(weir_memory_bytes(memory));
    WEIRT_OK(rank, weir_device_copy(device, bytes.data(), weir_memory_pointer(memory), bytes.size()));
    return bytes == std::vector<char>(bytes.size(), value);
}

// The ranks take turns with the calls, because the error of one ends the communicator of the other. The source has
// other bytes than the destination: the memories of both ranks differ.
void refused(weirt_rank *rank, const weirt_comm *base, const Refusal &row, const weir_dev_layout *handles, bool turn)
{
    weir_comm *comm = nullptr;
    weirt_pair pair = {};
    if (WEIRT_OK(rank, weir_comm_create(base->boot, base->device, nullptr, &comm)) &&
        weirt_pair_open(rank, comm, SMALL, 3, &pair)) {
        const char mine = static_cast<char>(1 + rank->rank);
        layout_channel_args args = {};
        const bool packets = row.call >= LAYOUT_CHANNEL_PUT_LL16;
        WEIRT_OK(rank,
                 weir_device_fill(base->device, weir_memory_pointer(pair.local), static_cast<uint8_t>(mine), MEMORY));
        weirt_barrier(rank);
        weir_memory_channel_device(packets ? pair.packet : pair.data, &args.channel);
        args.call = row.call;
        args.without = (row.to == NONE ? WITHOUT_TO : 0) | (row.from == NONE ? WITHOUT_FROM : 0);
        args.to = handles[row.to];
        args.from = handles[row.from];
        args.to_offset = row.to_offset;
        args.from_offset = row.from_offset;
        args.packet_offset = row.packet_offset;
        args.rounds = 1;
        const weir_status status = turn ? call(rank, &pair, args) : row.status;
        const weir_status sticky = turn ? weir_comm_status(comm) : row.status;
        weirt_barrier(rank);
        const bool kept = row.status == WEIR_OK ||
                          (holds(rank, base->device, pair.local, mine) && holds(rank, base->device, pair.packets, 0));
        if (status != row.status || sticky != row.status || !kept) {
            weirt_fail(rank, __FILE__, __LINE__, "%s: status %s, sticky %s%s", row.what, weir_status_name(status),
                       weir_status_name(sticky), kept ? "" : ", and something was written");
        }
    }
    weirt_pair_close(rank, &pair, true);
    weir_comm_destroy(comm);
}

void all_refusals(weirt_rank *rank)
{
    weirt_comm base;
    if (weirt_comm_open(rank, 0, &base)) {
        const Items items[] = { nest(rank, 8, { { 4, -16 } }), at_places(rank, nest(rank, 32, {}), { 64 }),
                                nest(rank, 33, {}) };
        weir_dev_layout handles[4] = {};
        bool turn = rank->rank == 0;
        for (const Which which : { BACKWARD, AHEAD, LARGER }) {
            handle_of(rank, base.device, items[which], &handles[which]);
        }
        for (const Refusal &row : refusals) {
            refused(rank, &base, row, handles, turn);
            turn = !turn;
        }
        for (const Items &item : items) {
            weir_layout_destroy(item.layout);
        }
    }
    weirt_comm_close(&base);
}

TEST_P(LayoutChannel, RefusalsMoveNothing) { run(2, all_refusals); }

} // namespace
