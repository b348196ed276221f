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

} // namespace
