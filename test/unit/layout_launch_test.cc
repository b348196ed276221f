// How layouts are launched on a GPU: the kernel, its shape, and the memory that a call asks about. The device is the
// CPU with the features of a GPU, and keeps what it gets instead of running it.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

extern "C" {
#include "src/device/device.h"
#include "src/device/kernels/layout.h"
#include "weir/weir.h"
}

namespace {

constexpr uint64_t GiB = uint64_t{ 1 } << 30;

struct Launch {
    const weir_kernel *kernel = nullptr;
    weir_shape shape = {};
    int count = 0;
};

struct Asked {
    const void *memory;
    uint64_t bytes;
    bool operator==(const Asked &other) const { return memory == other.memory && bytes == other.bytes; }
};

Launch launched;
std::vector<Asked> asked;
size_t refused; // the number of the question that is refused; 0: none

weir_status keep_launch(weir_device * /*device*/, const weir_kernel *kernel, weir_shape shape, const void * /*args*/,
                        bool /*cooperative*/, void * /*stream*/)
{
    launched = { kernel, shape, launched.count + 1 };
    return WEIR_OK;
}

weir_status keep_question(weir_device *device, void *pointer, uint64_t bytes, weiri_block **out)
{
    static char memory[1];
    asked.push_back({ pointer, bytes });
    return asked.size() == refused ? WEIR_ERR_INVALID : weiri_cpu_ops.wrap(device, memory, sizeof memory, out);
}

class LayoutLaunch : public ::testing::Test {
protected:
    void SetUp() override
    {
        ASSERT_EQ(weir_device_open("cpu:0", nullptr, &device), WEIR_OK);
        ops = *device->ops;
        info = device->info;
        ops.launch = keep_launch;
        ops.wrap = keep_question;
        device->ops = &ops;
        device->info.warps = true;
        launched = {};
        asked.clear();
        refused = 0;
    }
    void TearDown() override
    {
        for (weir_layout *layout : layouts) {
            weir_layout_destroy(layout);
        }
        device->ops = &weiri_cpu_ops;
        device->info = info;
        weir_device_close(device);
    }
    const weir_layout *bytes(uint64_t count)
    {
        layouts.push_back(nullptr);
        EXPECT_EQ(weir_layout_create_bytes(count, &layouts.back()), WEIR_OK);
        return layouts.back();
    }
    const weir_layout *rows(uint64_t count, int64_t stride, const weir_layout *of)
    {
        layouts.push_back(nullptr);
        EXPECT_EQ(weir_layout_create_hvector(count, 1, stride, of, &layouts.back()), WEIR_OK);
        return layouts.back();
    }
    weir_shape pack(const weir_layout *layout, uint32_t blocks = 0)
    {
        weir_layout_opts opts = WEIR_OPTS(weir_layout_opts);
        opts.blocks = blocks;
        EXPECT_EQ(weir_layout_pack(device, layout, 1, wide, packed, &opts, nullptr), WEIR_OK) << weir_last_error();
        return launched.shape;
    }
    weir_shape copy(const weir_layout *to, const weir_layout *from)
    {
        EXPECT_EQ(weir_layout_copy(device, to, 1, packed, from, 1, wide, nullptr, nullptr), WEIR_OK)
            << weir_last_error();
        return launched.shape;
    }
    static void expect_shape(weir_shape shape, uint32_t blocks, uint32_t threads)
    {
        EXPECT_EQ(shape.blocks, blocks);
        EXPECT_EQ(shape.threads, threads);
    }
    static const weir_kernel *kernel_of(uint32_t direction, uint32_t word)
    {
        return weiri_layout_kernels[direction * WEIRI_LAYOUT_WORDS + word];
    }
    weir_device *device = nullptr;
    weiri_device_ops ops = {};
    weir_device_info info = {};
    std::vector<weir_layout *> layouts;
    alignas(16) char wide[64] = {};
    alignas(16) char packed[64] = {};
};

TEST_F(LayoutLaunch, AThreadForEachUnit)
{
    expect_shape(pack(bytes(4096)), 2, 256); // and a thread for bytes beside the units
    EXPECT_EQ(launched.kernel, kernel_of(WEIRI_LAYOUT_PACK, 4));
    expect_shape(pack(rows(4096, 48, bytes(16))), 17, 256);
    expect_shape(pack(rows(4096, 3, bytes(1))), 5, 256); // of 4 words each
    EXPECT_EQ(launched.kernel, kernel_of(WEIRI_LAYOUT_PACK, 0));
}

// Lists of runs and lists of nests have kernels of their own. A copy between two layouts goes by pieces.
TEST_F(LayoutLaunch, AListOfRunsGoesByRuns)
{
    const uint64_t sizes[] = { 100, 7, 500 };
    const int64_t places[] = { 0, 333, 1000 };
    weir_layout *list = nullptr;
    ASSERT_EQ(weir_layout_create_hindexed(3, sizes, places, bytes(1), &list), WEIR_OK) << weir_last_error();
    layouts.push_back(list);
    ASSERT_EQ(weir_layout_commit(list, device), WEIR_OK) << weir_last_error();
    expect_shape(pack(list), 1, 256);
    EXPECT_EQ(launched.kernel, kernel_of(WEIRI_LAYOUT_PACK, WEIRI_LAYOUT_RUNS));
    EXPECT_EQ(weir_layout_unpack(device, list, 1, wide, packed, nullptr, nullptr), WEIR_OK);
    EXPECT_EQ(launched.kernel, kernel_of(WEIRI_LAYOUT_UNPACK, WEIRI_LAYOUT_RUNS));
    copy(list, bytes(607));
    EXPECT_EQ(launched.kernel, kernel_of(WEIRI_LAYOUT_COPY, WEIRI_LAYOUT_PIECES));
}

// The word of a kernel as log2, or WEIRI_LAYOUT_PIECES.
TEST_F(LayoutLaunch, AWordDividesRunsStridesPointersAndTheStartOfAPart)
{
    struct Case {
        uint64_t run;
        int64_t stride;
        uint32_t wide; // distances of the pointers from aligned places
        uint32_t packed;
        uint64_t offset;
        uint32_t word;
    };
    const Case cases[] = {
        { 16, 48, 0, 0, 0, 4 },     { 16, 40, 0, 0, 0, 3 },
        { 16, 36, 0, 0, 0, 2 },     { 16, 34, 0, 0, 0, 1 },
        { 16, 33, 0, 0, 0, 0 },     { 24, 48, 0, 0, 0, 3 },
        { 12, 48, 0, 0, 0, 2 },     { 6, 48, 0, 0, 0, 1 },
        { 5, 48, 0, 0, 0, 0 },      { 16, -40, 0, 0, 0, 3 }, // runs and strides
        { 16, 48, 8, 0, 0, 3 },     { 16, 48, 4, 0, 0, 2 },
        { 16, 48, 2, 0, 0, 1 },     { 16, 48, 1, 0, 0, 0 },
        { 16, 48, 0, 8, 0, 3 },     { 16, 48, 0, 12, 0, 2 },
        { 16, 48, 0, 14, 0, 1 },    { 16, 48, 0, 1, 0, 0 },
        { 16, 48, 0, 0, 8, 3 },     { 16, 48, 0, 0, 12, 2 },
        { 16, 48, 0, 0, 2, 1 },     { 16, 48, 0, 0, 5, 0 },
        { 16, 48, 0, 8, 8, 4 },     { 16, 48, 0, 12, 12, 4 }, // the first whole unit of the packed side
        { 1020, 1026, 0, 0, 0, 1 }, { 1024, 1026, 0, 0, 0, WEIRI_LAYOUT_PIECES },
        { 1024, 1028, 0, 0, 0, 2 },
    };
    for (const Case &c : cases) {
        SCOPED_TRACE(::testing::Message()
                     << c.run << " of " << c.stride << ", " << c.wide << " " << c.packed << " " << c.offset);
        const weir_layout *layout = rows(64, c.stride, bytes(c.run));
        weir_layout_opts opts = WEIR_OPTS(weir_layout_opts);
        opts.offset = c.offset;
        EXPECT_EQ(weir_layout_pack(device, layout, 1, wide + c.wide, packed + c.packed, &opts, nullptr), WEIR_OK);
        EXPECT_EQ(launched.kernel, kernel_of(WEIRI_LAYOUT_PACK, c.word));
        EXPECT_EQ(weir_layout_unpack(device, layout, 1, wide + c.wide, packed + c.packed, &opts, nullptr), WEIR_OK);
        EXPECT_EQ(launched.kernel, kernel_of(WEIRI_LAYOUT_UNPACK, c.word));
    }
    pack(bytes(2 * GiB - 16));
    EXPECT_EQ(launched.kernel, kernel_of(WEIRI_LAYOUT_PACK, 4));
    pack(bytes(2 * GiB));
    EXPECT_EQ(launched.kernel, kernel_of(WEIRI_LAYOUT_PACK, WEIRI_LAYOUT_PIECES));
}

TEST_F(LayoutLaunch, CopiesByPiecesHaveAThreadForEachUnit)
{
    expect_shape(copy(rows(4096, 3, bytes(1)), rows(4096, 5, bytes(1))), 2, 256);
    EXPECT_EQ(launched.kernel, kernel_of(WEIRI_LAYOUT_COPY, WEIRI_LAYOUT_PIECES));
    expect_shape(copy(rows(4096, 6, bytes(2)), rows(4096, 10, bytes(2))), 3, 256);
    EXPECT_EQ(launched.kernel, kernel_of(WEIRI_LAYOUT_COPY, WEIRI_LAYOUT_PIECES));
    expect_shape(copy(rows(4096, 12, bytes(4)), rows(4096, 20, bytes(4))), 9, 256); // of 2 words each
    EXPECT_EQ(launched.kernel, kernel_of(WEIRI_LAYOUT_COPY, 2));
}

TEST_F(LayoutLaunch, BlocksAreLimited)
{
    const weir_layout *layout = rows(4096, 48, bytes(16));
    expect_shape(pack(layout, 17), 17, 256);
    expect_shape(pack(layout, 16), 5, 1024);
    expect_shape(pack(layout, 5), 5, 1024);
    expect_shape(pack(layout, 3), 3, 1024);
    expect_shape(pack(layout, UINT32_MAX), 17, 256);
}

// Kernels count the threads of a grid in 32 bits.
TEST_F(LayoutLaunch, AGridHasAtMost1GiThreads)
{
    for (const uint64_t size : { 64 * GiB, 65 * GiB, uint64_t{ 1 } << 60 }) {
        expect_shape(pack(bytes(size)), 1 << 22, 256);
        EXPECT_EQ(launched.kernel, kernel_of(WEIRI_LAYOUT_PACK, WEIRI_LAYOUT_PIECES));
        expect_shape(pack(bytes(size), 1 << 21), 1 << 20, 1024);
        expect_shape(pack(bytes(size), 100), 100, 1024);
        expect_shape(copy(bytes(size), rows(2, INT64_C(1) << 60, bytes(size / 2))), 1 << 22, 256);
    }
    expect_shape(pack(bytes(4 * GiB)), (1 << 20) + 1, 256);
}

// Neighbouring runs in the steps of the outermost dim, as in a transpose, but 2^32 of them.
TEST_F(LayoutLaunch, MoreStepsThan32BitsCount)
{
    expect_shape(pack(rows(4 * GiB, 1, rows(2, INT64_C(8) << 30, bytes(1)))), (1 << 21) + 1, 256);
    EXPECT_EQ(launched.kernel, kernel_of(WEIRI_LAYOUT_PACK, WEIRI_LAYOUT_PIECES));
}

// All of the items' memory and all of the packed part are asked about before the launch.
TEST_F(LayoutLaunch, PointersAreCheckedIfAsked)
{
    const weir_layout *down = rows(3, -10, bytes(4)); // from -20 to 4
    const weir_layout *up = rows(6, 5, bytes(2));     // from 0 to 27
    weir_layout_opts opts = WEIR_OPTS(weir_layout_opts);
    opts.check_pointers = true;
    const auto pack_down = [&] { return weir_layout_pack(device, down, 2, wide + 40, packed, &opts, nullptr); };
    const auto unpack_up = [&] { return weir_layout_unpack(device, up, 1, wide, packed, &opts, nullptr); };
    const auto copy_both = [&] { return weir_layout_copy(device, up, 1, wide, down, 1, packed + 30, &opts, nullptr); };

    opts.offset = 5;
    EXPECT_EQ(pack_down(), WEIR_OK) << weir_last_error();
    EXPECT_EQ(asked, (std::vector<Asked>{ { packed, 19 }, { wide + 20, 48 } }));
    asked.clear();
    opts.bytes = 3;
    EXPECT_EQ(unpack_up(), WEIR_OK) << weir_last_error();
    EXPECT_EQ(asked, (std::vector<Asked>{ { wide, 27 }, { packed, 3 } }));
    asked.clear();
    EXPECT_EQ(copy_both(), WEIR_OK) << weir_last_error();
    EXPECT_EQ(asked, (std::vector<Asked>{ { wide, 27 }, { packed + 10, 24 } }));
    EXPECT_EQ(launched.count, 3);

    const auto expect_refused = [&](size_t number, auto call, const std::string &text) {
        asked.clear();
        refused = number;
        EXPECT_EQ(call(), WEIR_ERR_INVALID);
        EXPECT_EQ(std::string(weir_last_error()).rfind(text, 0), 0U) << weir_last_error();
    };
    expect_refused(1, pack_down, "weir_layout_pack: packed: ");
    expect_refused(2, pack_down, "weir_layout_pack: src: ");
    expect_refused(1, unpack_up, "weir_layout_unpack: dst: ");
    expect_refused(2, unpack_up, "weir_layout_unpack: packed: ");
    expect_refused(1, copy_both, "weir_layout_copy: dst: ");
    expect_refused(2, copy_both, "weir_layout_copy: src: ");
    EXPECT_EQ(launched.count, 3);

    asked.clear();
    opts.check_pointers = false;
    EXPECT_EQ(pack_down(), WEIR_OK);
    EXPECT_EQ(asked.size(), 0U);
}

// A GPU does not register memory of another GPU, but it accesses that of a peer once it is mapped.
TEST_F(LayoutLaunch, MappedMemoryOfAPeerIsNotRefused)
{
    weir_device *other = nullptr;
    weiri_block *whole = nullptr;
    weiri_block *mapped = nullptr;
    ASSERT_EQ(weir_device_open("cpu:1", nullptr, &other), WEIR_OK);
    ASSERT_EQ(weiri_device_allocate(other, WEIR_MEMORY_DEVICE, 4096, &whole), WEIR_OK) << weir_last_error();
    ASSERT_EQ(weiri_device_import(device, &whole->export_, true, -1, &mapped), WEIR_OK) << weir_last_error();
    char *memory = static_cast<char *>(mapped->pointer);
    const weir_layout *up = rows(6, 5, bytes(2)); // from 0 to 27
    weir_layout_opts opts = WEIR_OPTS(weir_layout_opts);
    opts.check_pointers = true;
    const auto pack_to = [&](char *to) {
        asked.clear();
        refused = 1;
        return weir_layout_pack(device, up, 1, memory, to, &opts, nullptr);
    };
    EXPECT_EQ(pack_to(memory + 4096 - 12), WEIR_OK) << weir_last_error();
    EXPECT_EQ(asked.size(), 0U);
    EXPECT_EQ(launched.count, 1);
    EXPECT_EQ(pack_to(memory + 4096 - 11), WEIR_ERR_INVALID); // one byte lies outside
    EXPECT_EQ(asked, (std::vector<Asked>{ { memory + 4096 - 11, 12 } }));
    EXPECT_EQ(pack_to(memory - 1), WEIR_ERR_INVALID);
    weiri_block_release(mapped);
    EXPECT_EQ(pack_to(memory + 1024), WEIR_ERR_INVALID); // no longer mapped
    EXPECT_EQ(launched.count, 1);
    weiri_block_release(whole);
    weir_device_close(other);
}

} // namespace
