// Memory channels beyond 4 GiB: offsets of each operation, in memory whose untouched pages cost nothing; and on GPUs
// transfers of more than 4 GiB.
#include <cstring>
#include <string>
#include <vector>

#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

namespace {

constexpr uint64_t GIB = uint64_t{ 1 } << 30;
constexpr uint64_t HALF = 5 * GIB / 2; // of the local memory, and a quarter of the packet buffer

constexpr uint64_t SOURCE = 4 * GIB + 104;
constexpr uint64_t PACKETS = 6 * GIB; // where packets begin
constexpr uint64_t ARRIVE = 4 * GIB + 8192;
constexpr uint64_t STRIDE = 4096; // between the data of different operations
constexpr uint64_t BYTES = 1001;

// Checks the data that an operation brings to its place on this rank. The bytes at the low 32 bits of that place must
// be zero.
void expect_arrived(weirt_rank *rank, const weirt_pair *pair, const char *what, uint64_t place)
{
    std::vector<char> got(BYTES);
    std::vector<char> low(BYTES);
    const char *base = static_cast<const char *>(weir_memory_pointer(pair->local));
    if (WEIRT_OK(rank, weir_device_copy(weir_comm_device(pair->comm), got.data(), base + place, BYTES)) &&
        WEIRT_OK(rank, weir_device_copy(weir_comm_device(pair->comm), low.data(), base + place % (4 * GIB), BYTES))) {
        for (uint64_t i = 0; i < BYTES; i++) {
            if (got[i] != weirt_pattern(pair->peer, 4, i) || low[i] != 0) {
                weirt_fail(rank, __FILE__, __LINE__, "%s: byte %llu is wrong %s", what,
                           static_cast<unsigned long long>(i), low[i] != 0 ? "4 GiB below" : "");
                return;
            }
        }
    }
}

bool fill_source(weirt_rank *rank, const weirt_pair *pair)
{
    std::vector<char> data(BYTES);
    for (uint64_t i = 0; i < BYTES; i++) {
        data[i] = weirt_pattern(rank->rank, 4, i);
    }
    return WEIRT_OK(rank, weir_device_copy(weir_comm_device(pair->comm),
                                           static_cast<char *>(weir_memory_pointer(pair->local)) + SOURCE, data.data(),
                                           BYTES));
}

struct far_op {
    const char *name;
    uint32_t first;  // WEIRT_DO_..., on both ranks
    uint32_t second; // next operation; the same one: none
};

const far_op far_ops[] = { { "put", WEIRT_DO_PUT, WEIRT_DO_PUT },
                           { "get", WEIRT_DO_GET, WEIRT_DO_GET },
                           { "LL16", WEIRT_DO_PUT_LL16, WEIRT_DO_UNPACK_LL16 },
                           { "exchange of LL16", WEIRT_DO_EXCHANGE_LL16, WEIRT_DO_EXCHANGE_LL16 },
                           { "lines", WEIRT_DO_PUT_LINES, WEIRT_DO_UNPACK_LINES },
                           { "exchange of lines", WEIRT_DO_EXCHANGE_LINES, WEIRT_DO_EXCHANGE_LINES } };

bool is_packets(uint32_t op) { return op != WEIRT_DO_PUT && op != WEIRT_DO_GET; }

bool make_call(weirt_rank *rank, const weirt_pair *pair, uint32_t op, uint64_t packets_at, uint64_t place)
{
    const bool unpack = op == WEIRT_DO_UNPACK_LL16 || op == WEIRT_DO_UNPACK_LINES;
    weirt_access_args args = {};
    weir_memory_channel_device(is_packets(op) ? pair->packet : pair->data, &args.channel);
    args.op = op;
    args.bytes = BYTES;
    args.remote_offset = is_packets(op) ? packets_at : op == WEIRT_DO_GET ? SOURCE : place;
    args.local_offset = unpack || op == WEIRT_DO_GET ? place : SOURCE;
    args.value = place;
    return WEIRT_EXPECT(rank, weirt_access_run(rank, pair, &args) == WEIR_OK);
}

// Single values; their place is an index.
void far_values(weirt_rank *rank, const weirt_pair *pair)
{
    const uint64_t at = 4 * GIB + (64 << 10) + 64 * rank->rank; // the ranks write different words
    weirt_access_args args = {};
    weir_memory_channel_device(pair->data, &args.channel);
    args.op = WEIRT_DO_WRITE_U32;
    args.remote_offset = at / 4;
    args.value = 0x12345678u + rank->rank;
    WEIRT_EXPECT(rank, weirt_access_run(rank, pair, &args) == WEIR_OK);
    args.op = WEIRT_DO_WRITE_U64;
    args.remote_offset = at / 8 + 1;
    args.value = 0xfedcba9876543210u + rank->rank;
    WEIRT_EXPECT(rank, weirt_access_run(rank, pair, &args) == WEIR_OK);
    args.op = WEIRT_DO_READ_U64;
    WEIRT_EXPECT(rank, weirt_access_run(rank, pair, &args) == WEIR_OK);
    WEIRT_EXPECT(rank, pair->report->value == 0xfedcba9876543210u + rank->rank);
    weirt_barrier(rank);
    uint64_t got[2] = {};
    const char *base = static_cast<const char *>(weir_memory_pointer(pair->local));
    const uint64_t theirs = 4 * GIB + (64 << 10) + 64 * pair->peer;
    WEIRT_OK(rank, weir_device_copy(weir_comm_device(pair->comm), got, base + theirs, sizeof got));
    WEIRT_EXPECT(rank, got[0] == 0x12345678u + pair->peer && got[1] == 0xfedcba9876543210u + pair->peer);
}

void far_offsets(weirt_rank *rank)
{
    weirt_channel channel;
    if (weirt_channel_open(rank, 0, HALF, &channel) && fill_source(rank, &channel.pair) && weirt_barrier(rank)) {
        const weirt_pair *pair = &channel.pair;
        uint64_t index = 0;
        for (const far_op &op : far_ops) {
            const uint64_t place = ARRIVE + STRIDE * index;
            const uint64_t packets_at = PACKETS + STRIDE * index * 2;
            index++;
            (void)make_call(rank, pair, op.first, packets_at, place);
            if (op.second != op.first) {
                (void)make_call(rank, pair, op.second, packets_at, place);
            }
            weirt_barrier(rank);
            expect_arrived(rank, pair, op.name, place);
        }
        far_values(rank, pair);
        WEIRT_OK(rank, weir_comm_status(channel.comm.comm));
        weirt_barrier(rank);
        weirt_access_args beyond = {};
        weir_memory_channel_device(pair->data, &beyond.channel);
        beyond.op = WEIRT_DO_PUT;
        beyond.bytes = 4 * GIB + 8; // the low 32 bits would fit
        beyond.remote_offset = 2 * HALF - 4096;
        WEIRT_EXPECT(rank, rank->rank != 0 || weirt_access_run(rank, pair, &beyond) == WEIR_ERR_RANGE);
    }
    weirt_channel_close(rank, &channel);
}

WEIRT_STAGE_SUITE(Far);

TEST_P(Far, OffsetsBeyondFourGigabytes) { run(2, far_offsets); }

// ---- transfers of more than 4 GiB, in memory of GPUs -------------------------------------------------------------

// The kernel fills the data that it sends and checks every received byte.
void long_transfers(weirt_rank *rank)
{
    constexpr uint64_t bytes = 5 * GIB + 3;
    weirt_channel channel;
    bool right = weirt_channel_open(rank, 0, 5 * GIB + WEIRT_SLACK, &channel);
    for (uint32_t op = 0; op < WEIRT_OPS && right; op++) {
        const weirt_report *report = channel.pair.report;
        const uint64_t before = right ? report->iterations : 0;
        weirt_transfer_args args = weirt_transfer_of(rank, &channel.pair);
        args.op = op;
        args.first = args.last = bytes;
        const uint64_t since = weirt_now_ms();
        right = weirt_launch(rank, &channel.pair, weirt_transfer_kernel(), &args) && weirt_finish(rank, &channel.pair);
        std::printf("rank %u: op %u of %llu bytes: %llu ms with fill and comparison, %llu wrong\n", rank->rank, op,
                    static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(weirt_now_ms() - since),
                    static_cast<unsigned long long>(report->wrong));
        right = right && WEIRT_EXPECT(rank, report->wrong == 0) &&
                WEIRT_EXPECT(rank, report->status[0][0] == WEIR_OK) &&
                WEIRT_EXPECT(rank, report->iterations == before + 1);
    }
    WEIRT_OK(rank, weir_comm_status(channel.comm.comm));
    weirt_channel_close(rank, &channel);
}

class LongFar : public StageTest {};
INSTANTIATE_TEST_SUITE_P(Stages, LongFar, ::testing::Values(2, 3), weirt_stage_name);

TEST_P(LongFar, TransfersOfMoreThanFourGigabytes) { run(2, long_transfers); }

} // namespace
