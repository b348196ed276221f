// The device headers inside kernels, on the CPU and on a GPU if there is one: launches, barriers, copies, packets,
// semaphores. One device, one process; kernels are in header_kernels.c.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

extern "C" {
#include "src/device/device.h"
}
#include "test/device/header_kernels.h"
#include "test/harness/ranks.h"
#include "weir/error.h"

namespace {

constexpr uint64_t WAIT_NS = 30000000000u;
constexpr uint64_t EXPIRE_MS = 150;
constexpr uint64_t GUARD = 64;

uint64_t now_ms()
{
    auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

uint8_t pattern(uint64_t i) { return static_cast<uint8_t>(i * 37 + i / 251 + 11); }

class Headers : public ::testing::TestWithParam<const char *> {
protected:
    void SetUp() override
    {
        uint32_t count = 0;
        std::string name = GetParam();
        ASSERT_EQ(weir_device_count(name.substr(0, 3).c_str(), &count), WEIR_OK);
        if (count == 0) {
            GTEST_SKIP() << "no GPU";
        }
        ASSERT_EQ(weir_device_open(GetParam(), nullptr, &device), WEIR_OK) << weir_last_error();
        ASSERT_EQ(weir_stream_create(device, &stream), WEIR_OK) << weir_last_error();
        ASSERT_EQ(weir_stream_create(device, &other), WEIR_OK) << weir_last_error();
        shape = weir_device_fit_shape(device, { 3, 64 });
        threads = shape.blocks * shape.threads;
        control = memory<weir_dev_control>(1);
        weir_dev_control_begin(control, WAIT_NS);
        args = header_args();
        args.control = control;
        args.barrier.control = control;
        args.barrier.word = memory<uint64_t>(1);
        args.out = memory<uint64_t>(threads);
        args.slots = memory<uint64_t>(threads);
        args.channel.semaphore.control = control;
        args.channel.semaphore.inbound = memory<uint64_t>(1);
        args.channel.semaphore.outbound = memory<uint64_t>(1);
        args.channel.semaphore.expected = memory<uint64_t>(1);
        args.channel.semaphore.sent = memory<uint64_t>(1);
        args.channel.semaphore.count = args.channel.semaphore.size = 1;
        args.channel.epochs = memory<uint64_t>(WEIR_CELL_BYTES / 8);
    }

    void TearDown() override
    {
        weir_stream_destroy(device, other);
        weir_stream_destroy(device, stream);
        for (weiri_block *block : blocks) {
            weiri_block_release(block);
        }
        weir_device_close(device);
    }

    // Zeroed memory that kernels and the test access at the same address.
    template <typename T> T *memory(uint64_t count)
    {
        weiri_block *block = nullptr;
        weir_status status = weiri_device_allocate(device, WEIR_MEMORY_HOST, count * sizeof(T), &block);
        EXPECT_EQ(status, WEIR_OK) << weir_last_error();
        if (block == nullptr) {
            abort();
        }
        blocks.push_back(block);
        EXPECT_EQ(block->pointer, block->host_pointer);
        return static_cast<T *>(block->host_pointer);
    }

    weir_status launch(const char *name, void *on, const header_args &with, weir_shape as)
    {
        weir_launch_opts opts = {};
        opts.size = sizeof(opts);
        opts.cooperative = true;
        return weir_launch(device, header_kernel(name), as, &with, &opts, on);
    }

    void run(const char *name)
    {
        ASSERT_EQ(launch(name, stream, args, shape), WEIR_OK) << weir_last_error();
        ASSERT_EQ(weir_stream_wait(device, stream, 60000), WEIR_OK) << weir_last_error();
    }

    void expect_out(uint64_t value, uint32_t count)
    {
        for (uint32_t i = 0; i < count; i++) {
            EXPECT_EQ(args.out[i], value) << "thread " << i;
        }
    }

    static uint64_t word(weir_status status) { return static_cast<uint64_t>(static_cast<int64_t>(status)); }

    // The number of threads in `group`; they are the first of the grid.
    uint32_t group_threads(uint32_t group)
    {
        switch (group) {
        case GROUP_BLOCK:
            return shape.threads;
        case GROUP_WARP:
            return GetParam()[0] == 'g' ? 32 : 1;
        case GROUP_THREAD:
            return 1;
        default:
            return threads;
        }
    }

    // A channel from `near` to `far`; `far` is also the packet buffer of the channel back.
    void connect(char *near, uint64_t near_bytes, char *far, uint64_t far_bytes)
    {
        args.channel.local = near;
        args.channel.local_bytes = near_bytes;
        args.channel.remote = far;
        args.channel.remote_bytes = far_bytes;
        args.channel.packets = far;
        args.channel.packets_bytes = far_bytes;
        fill_cell();
    }

    // Fills the channel's cell as the host does.
    void fill_cell()
    {
        auto *cell = reinterpret_cast<weir_dev_channel_cell *>(args.channel.epochs);
        cell->remote_bytes = args.channel.remote_bytes;
        cell->local_bytes = args.channel.local_bytes;
        cell->packets_bytes = args.channel.packets_bytes;
    }

    weir_device *device = nullptr;
    void *stream = nullptr;
    void *other = nullptr;
    weir_shape shape = { 1, 1 };
    uint32_t threads = 1;
    weir_dev_control *control = nullptr;
    header_args args = {};
    std::vector<weiri_block *> blocks;
};

std::string kind_of(const ::testing::TestParamInfo<const char *> &device) { return std::string(device.param, 3); }

INSTANTIATE_TEST_SUITE_P(Devices, Headers, ::testing::Values("cpu:0", "gpu:0"), kind_of);

// ---- launches and barriers

TEST_P(Headers, EveryThreadRunsOnceAtItsPlace)
{
    for (weir_shape as : { weir_shape{ 1, 1 }, weir_shape{ 1, threads }, weir_shape{ threads, 1 }, shape }) {
        memset(args.out, 0, threads * 8);
        ASSERT_EQ(launch("shape", stream, args, as), WEIR_OK) << weir_last_error();
        ASSERT_EQ(weir_stream_wait(device, stream, 0), WEIR_OK);
        for (uint32_t i = 0; i < threads; i++) {
            EXPECT_EQ(args.out[i], i < as.blocks * as.threads ? 1u : 0u);
        }
        for (uint32_t i = 0; i < as.blocks * as.threads; i++) {
            EXPECT_EQ(args.slots[i], static_cast<uint64_t>(i / as.threads) << 48 |
                                         static_cast<uint64_t>(i % as.threads) << 32 |
                                         static_cast<uint64_t>(as.blocks) << 16 | as.threads);
        }
    }
}

// The number of blocks from weir_kernel_fit can use a grid barrier; one more is refused.
TEST_P(Headers, KernelFitIsTheLimitOfCooperativeLaunches)
{
    weir_device_info info;
    weir_device_get_info(device, &info, sizeof info);
    const weir_kernel *kernel = header_kernel("grid_rounds");
    for (uint32_t size : { 1u, 7u, 33u, 64u, info.block_threads }) {
        uint32_t fit = 0;
        ASSERT_EQ(weir_kernel_fit(device, kernel, size, &fit), WEIR_OK) << weir_last_error();
        ASSERT_GE(fit, 1u);
        ASSERT_EQ(fit % info.multiprocessors, 0u);
        if (GetParam()[0] == 'c') {
            ASSERT_EQ(fit, info.resident_threads / size);
        }
        args.rounds = 3;
        args.out = memory<uint64_t>(static_cast<uint64_t>(fit) * size);
        args.slots = memory<uint64_t>(static_cast<uint64_t>(fit) * size);
        ASSERT_EQ(launch("grid_rounds", stream, args, { fit, size }), WEIR_OK) << weir_last_error();
        ASSERT_EQ(weir_stream_wait(device, stream, 0), WEIR_OK) << weir_last_error();
        expect_out(3, fit * size);
        EXPECT_EQ(launch("grid_rounds", stream, args, { fit + 1, size }), WEIR_ERR_LIMIT);
    }
}

TEST_P(Headers, KernelFitRefuses)
{
    weir_device_info info;
    weir_device_get_info(device, &info, sizeof info);
    uint32_t fit = 99;
    const weir_kernel *kernel = header_kernel("shape");
    weir_kernel other_kernel = *kernel; // which the device has not loaded
    EXPECT_EQ(weir_kernel_fit(device, kernel, info.block_threads + 1, &fit), WEIR_ERR_LIMIT);
    EXPECT_NE(strstr(weir_last_error(), "kernel shape: "), nullptr) << weir_last_error();
    EXPECT_NE(strstr(weir_last_error(), ("at most " + std::to_string(info.block_threads)).c_str()), nullptr)
        << weir_last_error();
    EXPECT_EQ(weir_kernel_fit(device, kernel, UINT32_MAX, &fit), WEIR_ERR_LIMIT);
    EXPECT_EQ(weir_kernel_fit(device, kernel, 0, &fit), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_kernel_fit(device, kernel, 1, nullptr), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_kernel_fit(device, nullptr, 1, &fit), WEIR_ERR_INVALID);
    other_kernel.cpu = nullptr;
    other_kernel.gpu = nullptr;
    EXPECT_EQ(weir_kernel_fit(device, &other_kernel, 1, &fit), WEIR_ERR_UNSUPPORTED);
    other_kernel.version++;
    EXPECT_EQ(weir_kernel_fit(device, &other_kernel, 1, &fit), WEIR_ERR_VERSION);
    EXPECT_EQ(fit, 99u);
}

TEST_P(Headers, CountersAreExact)
{
    args.rounds = 1000;
    run("count");
    EXPECT_EQ(args.slots[0], 1000u * threads * (threads + 1) / 2);
}

// All halves with others near, far and special: pairs in one instruction have the bits of single floats.
TEST_P(Headers, PairsOfHalvesHaveTheBitsOfFloats)
{
    args.rounds = GetParam()[0] == 'g' ? 1 : 5; // the CPU has no such instructions
    run("halves");
    EXPECT_EQ(args.slots[0], 0u) << "sums of f16";
    EXPECT_EQ(args.slots[1], 0u) << "sums of bf16";
    EXPECT_EQ(args.slots[2], 0u) << "read and written";
}

// All 8-bit floats with all others: pairs in one instruction have the bits of single elements.
TEST_P(Headers, PairsOfBytesHaveTheBitsOfSingleOnes)
{
    run("bytes");
    const char *const what[] = { "sums of f8e4m3", "products of f8e4m3", "maxima of f8e4m3",
                                 "sums of f8e5m2", "products of f8e5m2", "maxima of f8e5m2" };
    for (size_t i = 0; i < 6; i++) {
        EXPECT_EQ(args.slots[i], 0u) << what[i];
    }
}

TEST_P(Headers, BlockBarrierManyRounds)
{
    args.rounds = 500;
    run("block_rounds");
    expect_out(500, threads);
}

TEST_P(Headers, GridBarrierManyRounds)
{
    args.rounds = 100;
    run("grid_rounds");
    run("grid_rounds");
    expect_out(100, threads);
    EXPECT_EQ(*args.barrier.word, 400 * WEIR_GRID_BARRIER_ROUND); // two barriers in each round of two launches
    EXPECT_EQ(control->error_status, 0);
}

TEST_P(Headers, AbsentBlockIsATimeoutForTheRest)
{
    weir_dev_control_begin(control, EXPIRE_MS * 1000000);
    args.chosen = 1;
    uint64_t begin = now_ms();
    run("grid_absent");
    uint64_t took = now_ms() - begin;
    EXPECT_GE(took, EXPIRE_MS);
    EXPECT_LT(took, EXPIRE_MS + weirt_slack_ms());
    uint64_t both = static_cast<uint64_t>(static_cast<uint32_t>(WEIR_ERR_TIMEOUT));
    for (uint32_t i = 0; i < threads; i++) {
        EXPECT_EQ(args.out[i], i / shape.threads == 1 ? 0 : both << 32 | both) << "thread " << i;
    }
    EXPECT_EQ(control->error_status, WEIR_ERR_TIMEOUT);
}

TEST_P(Headers, AgreeMakesOneErrorEveryones)
{
    for (uint32_t group : { GROUP_GRID, GROUP_BLOCK, GROUP_WARP, GROUP_THREAD }) {
        *args.barrier.word = 0;
        control->error_status = 0;
        control->claimed = 0;
        args.group = group;
        args.chosen = group_threads(group) - 1;
        args.status = WEIR_ERR_RANGE;
        args.side = 1;
        run("agree");
        expect_out(word(WEIR_ERR_RANGE), group_threads(group));
        EXPECT_EQ(*args.barrier.word & 1, group == GROUP_GRID ? 1u : 0u);
        EXPECT_EQ(control->error_status, WEIR_ERR_RANGE);
    }
    args.group = GROUP_PART;
    run("agree");
    expect_out(word(WEIR_ERR_INVALID), threads);
}

TEST_P(Headers, AgreeOnAnErrorThatIsNotSticky)
{
    args.group = GROUP_GRID;
    args.chosen = threads - 1;
    args.status = WEIR_ERR_RANGE;
    run("agree");
    expect_out(word(WEIR_ERR_ABORTED), threads);
}

TEST_P(Headers, GroupsWithoutBarrierAreRefused)
{
    args.group = GROUP_PART;
    run("sync_group");
    expect_out(word(WEIR_ERR_INVALID), threads);
    args.group = GROUP_GRID;
    run("sync_group");
    expect_out(word(WEIR_ERR_INVALID), threads);
    args.group = GROUP_THREAD;
    run("sync_group");
    EXPECT_EQ(args.out[0], word(WEIR_OK));
    EXPECT_EQ(control->error_status, 0);
}

// ---- copies

TEST_P(Headers, CopiesOfAllSizesAndAlignments)
{
    constexpr uint64_t SPAN = 2 * GUARD + 8192;
    char *src = memory<char>(SPAN);
    char *dst = memory<char>(SPAN);
    for (uint64_t i = 0; i < SPAN; i++) {
        src[i] = static_cast<char>(pattern(i));
    }
    connect(src, SPAN, dst, SPAN);
    std::vector<uint64_t> sizes;
    for (uint64_t i = 0; i <= 70; i++) {
        sizes.push_back(i);
    }
    sizes.insert(sizes.end(), { 127, 128, 129, 136, 143, 144, 159, 160, 177, 255, 1000, 1024, 4096, 4097, 8000 });
    uint32_t cases = 0;
    for (uint64_t bytes : sizes) {
        // Every alignment of both ends for small sizes, some for others.
        for (uint64_t at = 0; at < 16; at += bytes <= 177 ? 1 : 5) {
            uint64_t from = GUARD + (at * 7 + bytes) % 16;
            args.bytes = bytes;
            args.remote_offset = GUARD + at;
            args.local_offset = from;
            args.group = cases % 2 == 0 ? GROUP_GRID : GROUP_PART;
            args.part = 1 + cases % threads;
            cases++;
            for (args.side = 0; args.side < 2; args.side++) {
                memset(dst, 0xee, SPAN);
                run("copy");
                uint64_t wrong = 0;
                for (uint64_t i = 0; i < SPAN; i++) {
                    bool inside = i >= GUARD + at && i < GUARD + at + bytes;
                    uint8_t expected = inside ? pattern(from + i - GUARD - at) : 0xee;
                    wrong += static_cast<uint8_t>(dst[i]) != expected;
                }
                ASSERT_EQ(wrong, 0u) << bytes << " bytes from " << from << " to " << GUARD + at << ", part "
                                     << args.part << ", side " << args.side;
            }
        }
    }
}

TEST_P(Headers, AlignedCopiesByOddGroups)
{
    constexpr uint64_t SPAN = 65536;
    char *src = memory<char>(SPAN);
    char *dst = memory<char>(SPAN);
    for (uint64_t i = 0; i < SPAN; i++) {
        src[i] = static_cast<char>(pattern(i));
    }
    connect(src, SPAN, dst, SPAN);
    args.group = GROUP_PART;
    for (uint32_t part = 1; part <= threads; part += 2) {
        for (uint64_t bytes : { uint64_t(16), uint64_t(48), uint64_t(1024), SPAN - 32 }) {
            for (uint32_t side = 0; side < 2; side++) {
                memset(dst, 0, SPAN);
                args.side = side;
                args.part = part;
                args.bytes = bytes;
                args.remote_offset = 16;
                args.local_offset = 0;
                run("copy");
                ASSERT_EQ(memcmp(dst + 16, src, bytes), 0) << part << " threads, " << bytes << " bytes, side " << side;
                ASSERT_EQ(dst[15], 0);
                ASSERT_EQ(dst[16 + bytes], 0);
            }
        }
    }
}

TEST_P(Headers, TransfersStayInsideTheMemory)
{
    char *src = memory<char>(256);
    char *dst = memory<char>(512);
    memset(src, 1, 256);
    connect(src, 256, dst, 512);
    struct {
        uint64_t dst, src, bytes;
        weir_status status;
    } const cases[] = {
        { 0, 0, 256, WEIR_OK },
        { 256, 0, 256, WEIR_OK },
        { 512, 256, 0, WEIR_OK },
        { 257, 0, 256, WEIR_ERR_RANGE },
        { 0, 1, 256, WEIR_ERR_RANGE },
        { 0, 0, 257, WEIR_ERR_RANGE },
        { 513, 0, 0, WEIR_ERR_RANGE },
        { UINT64_MAX, 0, 2, WEIR_ERR_RANGE },
        { 0, UINT64_MAX - 7, 8, WEIR_ERR_RANGE },
        { 8, 8, UINT64_MAX - 4, WEIR_ERR_RANGE },
    };
    for (const auto &c : cases) {
        for (uint32_t side = 0; side < 2; side++) {
            control->error_status = 0;
            control->claimed = 0;
            args.side = side;
            args.remote_offset = c.dst;
            args.local_offset = c.src;
            args.bytes = c.bytes;
            run("transfer");
            expect_out(word(c.status), threads);
            EXPECT_EQ(control->error_status, c.status);
        }
    }
}

// ---- packets

TEST_P(Headers, PacketsOfAllSizes)
{
    constexpr uint64_t SPAN = 4096;
    char *src = memory<char>(SPAN);
    char *dst = memory<char>(SPAN);
    char *wire = memory<char>(4 * SPAN);
    std::vector<uint64_t> sizes;
    for (uint64_t i = 0; i <= 70; i++) {
        sizes.push_back(i);
    }
    sizes.insert(sizes.end(), { 512, 1000, 1024, 2047 });
    args.rounds = 1;
    uint64_t calls = 0;
    for (uint64_t bytes : sizes) {
        uint64_t at = GUARD + bytes % 5 * 5; // also multiples of 2 and 4 that are not multiples of 8
        for (uint64_t i = 0; i < SPAN; i++) {
            src[i] = static_cast<char>(pattern(i + calls));
        }
        memset(dst, 0xee, SPAN);
        args.bytes = bytes;
        args.remote_offset = 32;
        args.local_offset = at;
        args.operation = PACKETS_PUT;
        connect(src, SPAN, wire, 4 * SPAN);
        run("packets");
        expect_out(word(WEIR_OK), threads);
        args.operation = PACKETS_UNPACK;
        connect(dst, SPAN, wire, 4 * SPAN);
        run("packets");
        expect_out(word(WEIR_OK), threads);
        calls++;
        uint64_t wrong = 0;
        for (uint64_t i = 0; i < SPAN; i++) {
            bool inside = i >= at && i < at + bytes;
            wrong += dst[i] != (inside ? src[i] : static_cast<char>(0xee));
        }
        ASSERT_EQ(wrong, 0u) << bytes << " bytes";
        ASSERT_EQ(args.channel.epochs[0], calls << 32);
        ASSERT_EQ(args.channel.epochs[1], calls << 32);
    }
}

TEST_P(Headers, EpochAdvancesByOnePerCall)
{
    char *src = memory<char>(1024);
    char *wire = memory<char>(4096);
    connect(src, 1024, wire, 4096);
    args.bytes = 200;
    args.operation = PACKETS_PUT;
    uint64_t calls = 0;
    for (uint32_t group = 0; group < GROUPS; group++) {
        // A part has no barrier between two calls, so each call needs a new launch.
        args.rounds = group == GROUP_PART ? 1 : 7;
        args.group = group;
        for (int i = 0; i < 3; i++) {
            run("packets");
            calls += args.rounds;
            ASSERT_EQ(args.channel.epochs[0], calls << 32) << "group " << group;
        }
        const uint32_t *words = reinterpret_cast<const uint32_t *>(wire);
        for (uint32_t i = 0; i < 25; i++) {
            ASSERT_EQ(words[4 * i + 1], (calls - 1) | 0x80000000u) << "group " << group << ", packet " << i;
            ASSERT_EQ(words[4 * i + 3], (calls - 1) | 0x80000000u);
        }
    }
    args.group = GROUP_PART;
    args.rounds = 1;
    for (uint32_t part = 1; part <= threads; part += 2) {
        args.part = part;
        run("packets");
        calls++;
        ASSERT_EQ(args.channel.epochs[0], calls << 32) << part << " threads";
    }
}

TEST_P(Headers, MissingPacketIsATimeout)
{
    char *dst = memory<char>(64);
    char *wire = memory<char>(256);
    connect(dst, 64, wire, 256);
    weir_dev_control_begin(control, EXPIRE_MS * 1000000);
    args.rounds = 1;
    args.bytes = 64;
    args.operation = PACKETS_UNPACK;
    args.group = GROUP_THREAD;
    uint64_t begin = now_ms();
    run("packets");
    uint64_t took = now_ms() - begin;
    EXPECT_EQ(args.out[0], word(WEIR_ERR_TIMEOUT));
    EXPECT_GE(took, EXPIRE_MS);
    EXPECT_LT(took, EXPIRE_MS + weirt_slack_ms());
    EXPECT_EQ(control->error_status, WEIR_ERR_TIMEOUT);
}

TEST_P(Headers, PacketMisuse)
{
    char *src = memory<char>(256);
    char *wire = memory<char>(512);
    args.rounds = 1;
    struct {
        uint32_t operation;
        uint64_t wire_offset, local_offset, bytes;
        weir_status status;
    } const cases[] = {
        { PACKETS_PUT, 0, 0, 256, WEIR_OK },
        { PACKETS_PUT, 16, 0, 249, WEIR_ERR_RANGE },
        { PACKETS_PUT, 8, 0, 8, WEIR_ERR_INVALID },
        { PACKETS_PUT, 0, 255, 2, WEIR_ERR_RANGE },
        { PACKETS_PUT, 0, 0, UINT64_MAX, WEIR_ERR_RANGE },
        { PACKETS_UNPACK, UINT64_MAX - 15, 0, 8, WEIR_ERR_RANGE },
        { PACKETS_UNPACK, 496, 0, 9, WEIR_ERR_RANGE },
    };
    connect(src, 256, wire, 512);
    for (const auto &c : cases) {
        uint64_t epoch = args.channel.epochs[0];
        control->error_status = 0;
        control->claimed = 0;
        args.operation = c.operation;
        args.remote_offset = c.wire_offset;
        args.local_offset = c.local_offset;
        args.bytes = c.bytes;
        run("packets");
        expect_out(word(c.status), threads);
        EXPECT_EQ(control->error_status, c.status);
        EXPECT_EQ(args.channel.epochs[0] - epoch, c.status == WEIR_OK ? uint64_t(1) << 32 : 0);
    }
    args.channel.packets = nullptr;
    args.channel.packets_bytes = 0;
    fill_cell();
    args.operation = PACKETS_UNPACK;
    args.remote_offset = 0;
    args.local_offset = 0;
    args.bytes = 8;
    run("packets");
    expect_out(word(WEIR_ERR_RANGE), threads);
}

TEST_P(Headers, ValuesAreReadAndWritten)
{
    char *far = memory<char>(64);
    connect(far, 64, far, 64);
    args.rounds = 7;
    args.bytes = 0x1122334455667788;
    run("values");
    EXPECT_EQ(args.out[0], word(WEIR_OK));
    EXPECT_EQ(args.out[1], word(WEIR_OK));
    EXPECT_EQ(args.out[2], 0x1122334455667788u);
    EXPECT_EQ(args.out[3], word(WEIR_OK));
    EXPECT_EQ(args.out[4], 0x11223344u);
    args.rounds = 8;
    run("values");
    EXPECT_EQ(args.out[0], word(WEIR_ERR_RANGE));
    EXPECT_EQ(args.out[1], word(WEIR_ERR_RANGE));
    EXPECT_EQ(args.out[2], 0u);
    EXPECT_EQ(args.out[3], word(WEIR_ERR_RANGE));
    control->error_status = 0;
    control->claimed = 0;
    args.rounds = 0;
    connect(far, 64, far + 4, 60);
    run("values");
    EXPECT_EQ(args.out[0], word(WEIR_ERR_INVALID));
    EXPECT_EQ(control->error_status, WEIR_ERR_INVALID);
}

// ---- semaphores

TEST_P(Headers, TwoLaunchesPlayPingPong)
{
    weir_shape half = weir_device_fit_shape(device, { 1, 32 });
    half.threads = half.threads > 4 && GetParam()[0] == 'c' ? 4 : half.threads;
    uint64_t *memories[2] = { memory<uint64_t>(64), memory<uint64_t>(64) };
    uint64_t *tokens[2] = { memory<uint64_t>(1), memory<uint64_t>(1) };
    header_args sides[2];
    for (uint32_t side = 0; side < 2; side++) {
        sides[side] = args;
        sides[side].side = side;
        sides[side].rounds = 200;
        sides[side].out = memory<uint64_t>(64);
        sides[side].channel.local = reinterpret_cast<char *>(memories[side]);
        sides[side].channel.remote = reinterpret_cast<char *>(memories[1 - side]);
        sides[side].channel.local_bytes = sides[side].channel.remote_bytes = 512;
        sides[side].channel.semaphore.inbound = tokens[side];
        sides[side].channel.semaphore.outbound = tokens[1 - side];
        sides[side].channel.semaphore.expected = memory<uint64_t>(1);
        sides[side].channel.semaphore.sent = memory<uint64_t>(1);
        sides[side].channel.semaphore.to_host = 1; // the tokens are host memory
        ASSERT_EQ(weir_kernel_load(device, header_kernel("ping_pong")), WEIR_OK);
    }
    for (uint64_t replay = 1; replay <= 2; replay++) {
        ASSERT_EQ(launch("ping_pong", stream, sides[0], half), WEIR_OK) << weir_last_error();
        ASSERT_EQ(launch("ping_pong", other, sides[1], half), WEIR_OK) << weir_last_error();
        ASSERT_EQ(weir_stream_wait(device, stream, 60000), WEIR_OK) << weir_last_error();
        ASSERT_EQ(weir_stream_wait(device, other, 60000), WEIR_OK) << weir_last_error();
        for (uint32_t i = 0; i < half.threads; i++) {
            EXPECT_EQ(sides[0].out[i], 200u);
            EXPECT_EQ(sides[1].out[i], 200u);
        }
        EXPECT_EQ(*tokens[0], 200 * replay);
        EXPECT_EQ(*tokens[1], 200 * replay);
    }
    EXPECT_EQ(control->error_status, 0);
}

TEST_P(Headers, WaitEndsWithTheSignalOfTheHost)
{
    ASSERT_EQ(launch("wait_once", stream, args, shape), WEIR_OK);
    uint64_t begin = now_ms();
    EXPECT_EQ(weir_stream_wait(device, stream, EXPIRE_MS), WEIR_ERR_TIMEOUT);
    uint64_t took = now_ms() - begin;
    EXPECT_GE(took, EXPIRE_MS);
    EXPECT_LT(took, EXPIRE_MS + weirt_slack_ms());
    args.slots[0] = 4711;
    __atomic_store_n(args.channel.semaphore.inbound, 1, __ATOMIC_RELEASE);
    ASSERT_EQ(weir_stream_wait(device, stream, 60000), WEIR_OK) << weir_last_error();
    EXPECT_EQ(args.out[0], word(WEIR_OK));
    EXPECT_EQ(args.out[1], word(WEIR_PENDING));
    EXPECT_EQ(args.out[2], 4711u);
    EXPECT_EQ(*args.channel.semaphore.expected, 1u);
}

TEST_P(Headers, WaitEndsWithTheAbortWordAndTheStickyError)
{
    ASSERT_EQ(launch("wait_once", stream, args, shape), WEIR_OK);
    EXPECT_EQ(weir_stream_wait(device, stream, EXPIRE_MS), WEIR_ERR_TIMEOUT);
    __atomic_store_n(&control->abort_status, WEIR_ERR_REMOTE, __ATOMIC_RELAXED);
    weir_dev_control_end(control);
    ASSERT_EQ(weir_stream_wait(device, stream, 60000), WEIR_OK);
    EXPECT_EQ(args.out[0], word(WEIR_ERR_REMOTE));
    EXPECT_EQ(args.out[1], word(WEIR_ERR_REMOTE));
    EXPECT_EQ(control->error_status, 0);
    control->abort_status = 0;
    (void)weir_dev_control_fail(control, WEIR_ERR_RANGE);
    uint64_t begin = now_ms();
    run("wait_once");
    EXPECT_LT(now_ms() - begin, weirt_slack_ms());
    EXPECT_EQ(args.out[0], word(WEIR_ERR_RANGE));
    EXPECT_EQ(*args.channel.semaphore.expected, 0u);
}

// ---- graphs and events

TEST_P(Headers, GraphsRunAgainInOrder)
{
    void *graph = nullptr;
    void *from = nullptr;
    void *to = nullptr;
    double ms = -1;
    ASSERT_EQ(weir_event_create(device, &from), WEIR_OK);
    ASSERT_EQ(weir_event_create(device, &to), WEIR_OK);
    EXPECT_EQ(weir_event_elapsed(device, from, to, &ms), WEIR_ERR_INVALID);
    ASSERT_EQ(weir_kernel_load(device, header_kernel("count")), WEIR_OK);
    ASSERT_EQ(weir_kernel_load(device, header_kernel("shape")), WEIR_OK);
    ASSERT_EQ(weir_graph_begin(device, stream), WEIR_OK) << weir_last_error();
    args.rounds = 3;
    ASSERT_EQ(launch("count", stream, args, shape), WEIR_OK) << weir_last_error();
    header_args second = args;
    second.slots = memory<uint64_t>(threads);
    ASSERT_EQ(launch("shape", stream, second, shape), WEIR_OK) << weir_last_error();
    ASSERT_EQ(weir_graph_end(device, stream, &graph), WEIR_OK) << weir_last_error();
    ASSERT_EQ(weir_stream_wait(device, stream, 0), WEIR_OK);
    EXPECT_EQ(args.slots[0], 0u);
    args.rounds = 1000;
    ASSERT_EQ(weir_event_record(device, from, stream), WEIR_OK);
    for (int i = 0; i < 20; i++) {
        ASSERT_EQ(weir_graph_launch(device, graph, stream), WEIR_OK) << weir_last_error();
    }
    ASSERT_EQ(weir_event_record(device, to, stream), WEIR_OK);
    ASSERT_EQ(weir_stream_wait(device, stream, 60000), WEIR_OK);
    EXPECT_EQ(args.slots[0], 20u * 3 * threads * (threads + 1) / 2);
    expect_out(20, threads);
    ASSERT_EQ(weir_event_elapsed(device, from, to, &ms), WEIR_OK) << weir_last_error();
    EXPECT_GT(ms, 0);
    EXPECT_LT(ms, 60000);
    weir_graph_destroy(device, graph);
    weir_event_destroy(device, from);
    weir_event_destroy(device, to);
}

TEST_P(Headers, EventsArePendingUntilReached)
{
    void *from = nullptr;
    void *to = nullptr;
    double ms = -1;
    ASSERT_EQ(weir_event_create(device, &from), WEIR_OK);
    ASSERT_EQ(weir_event_create(device, &to), WEIR_OK);
    ASSERT_EQ(weir_event_record(device, from, stream), WEIR_OK);
    ASSERT_EQ(launch("wait_once", stream, args, shape), WEIR_OK);
    ASSERT_EQ(weir_event_record(device, to, stream), WEIR_OK);
    // A busy machine may reach the first event later than the wait below begins.
    double none = -1;
    const uint64_t end = now_ms() + weirt_timeout_ms();
    while (weir_event_elapsed(device, from, from, &none) == WEIR_PENDING && now_ms() < end) {
        weirt_sleep_ms(1);
    }
    EXPECT_EQ(none, 0);
    EXPECT_EQ(weir_stream_wait(device, stream, EXPIRE_MS), WEIR_ERR_TIMEOUT);
    EXPECT_EQ(weir_event_elapsed(device, from, to, &ms), WEIR_PENDING);
    EXPECT_EQ(ms, -1);
    __atomic_store_n(args.channel.semaphore.inbound, 1, __ATOMIC_RELEASE);
    ASSERT_EQ(weir_stream_wait(device, stream, 60000), WEIR_OK);
    ASSERT_EQ(weir_event_elapsed(device, from, to, &ms), WEIR_OK);
    EXPECT_GE(ms, EXPIRE_MS - 50.0);
    EXPECT_LT(ms, EXPIRE_MS + weirt_slack_ms());
    weir_event_destroy(device, from);
    weir_event_destroy(device, to);
}

} // namespace
