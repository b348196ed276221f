// How calls of host tables are launched on a GPU: which kernels, in which order, with which shapes and lanes. The
// device is the CPU with the features of a GPU, and keeps what it gets instead of running it.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

extern "C" {
#include "src/device/device.h"
#include "src/host/table/table.h"
#include "weir/weir.h"
}

namespace {

struct Launch {
    int kernel; // of weiri_table_kernels
    weir_shape shape;
    weir_table_call call; // of the kernels that move rows
    bool operator==(const Launch &other) const
    {
        return kernel == other.kernel && shape.blocks == other.shape.blocks && shape.threads == other.shape.threads;
    }
};

std::vector<Launch> launched;

weir_status keep_launch(weir_device * /*device*/, const weir_kernel *kernel, weir_shape shape, const void *args,
                        bool /*cooperative*/, void * /*stream*/)
{
    Launch launch = { 0, shape, {} };
    while (weiri_table_kernels[launch.kernel] != kernel) {
        launch.kernel++;
    }
    std::memcpy(&launch.call, args, sizeof launch.call); // the arguments of all kernels begin with a call
    launched.push_back(launch);
    return WEIR_OK;
}

weir_shape any_shape(const weir_device * /*device*/, weir_shape wanted) { return wanted; }

class TableLaunch : public ::testing::Test {
protected:
    static constexpr uint64_t MANY = 4096; // ids that are divided into those with copies and the others
    static constexpr uint32_t SMS = 132;

    void SetUp() override
    {
        ASSERT_EQ(weir_device_open("cpu:0", nullptr, &device), WEIR_OK);
        ops = *device->ops;
        info = device->info;
        ops.launch = keep_launch;
        ops.fit_shape = any_shape;
        device->ops = &ops;
        device->info.warps = true;
        device->info.multiprocessors = SMS;
    }
    void TearDown() override
    {
        weir_table_destroy(table);
        device->ops = &weiri_cpu_ops;
        device->info = info;
        weir_device_close(device);
    }
    // A table of ten rows from `offset` on.
    void create(uint64_t row_bytes, uint64_t pitch, uint64_t offset, uint32_t blocks = 0)
    {
        weir_table_part part = {};
        weir_table_opts opts = WEIR_OPTS(weir_table_opts);
        part.rows = rows;
        part.offset = offset;
        part.count = 10;
        part.pitch = pitch;
        opts.order_ids = MANY;
        opts.cache_rows = 4;
        opts.blocks = blocks;
        weir_table_destroy(table);
        table = nullptr;
        ASSERT_EQ(weir_table_create(device, row_bytes, &part, 1, &opts, &table), WEIR_OK) << weir_last_error();
        launched.clear();
    }
    std::vector<Launch> gather(uint64_t count, const weir_table_call_opts &opts)
    {
        launched.clear();
        EXPECT_EQ(weir_table_gather(table, ids, WEIR_IDS_I32, count, out, &opts, nullptr), WEIR_OK)
            << weir_last_error();
        return launched;
    }
    std::vector<Launch> gather(uint64_t count, weir_table_order order)
    {
        weir_table_call_opts opts = WEIR_OPTS(weir_table_call_opts);
        opts.order = order;
        return gather(count, opts);
    }
    std::vector<Launch> scatter(const weir_table_call_opts &opts)
    {
        launched.clear();
        EXPECT_EQ(weir_table_scatter(table, ids, WEIR_IDS_I32, 10, out, &opts, nullptr), WEIR_OK) << weir_last_error();
        return launched;
    }
    static Launch of(int kernel, uint32_t blocks, uint32_t threads = 1024)
    {
        return { kernel, { blocks, threads }, {} };
    }

    weir_device *device = nullptr;
    weiri_device_ops ops = {};
    weir_device_info info = {};
    weir_table *table = nullptr;
    alignas(128) char rows[65536] = {};
    alignas(128) char out[64] = {};
    int32_t ids[1] = {};
};

using Launches = std::vector<Launch>;

TEST_F(TableLaunch, OneKernelInTheGivenOrder)
{
    weir_table_call_opts opts = WEIR_OPTS(weir_table_call_opts);
    create(128, 0, 0);
    EXPECT_EQ(gather(10, opts), Launches{ of(WEIRI_TABLE_GATHER_SHORT, 8) });
    EXPECT_EQ(scatter(opts), Launches{ of(WEIRI_TABLE_SCATTER, 8) });
    EXPECT_TRUE(gather(0, opts).empty());
    opts.blocks = 3;
    EXPECT_EQ(gather(10, opts), Launches{ of(WEIRI_TABLE_GATHER_SHORT, 3) });
    EXPECT_EQ(scatter(opts), Launches{ of(WEIRI_TABLE_SCATTER, 3) });
    opts.form = WEIR_TABLE_FORM_FLAT;
    EXPECT_EQ(gather(10, opts), Launches{ of(WEIRI_TABLE_ELEMENTS, 3) });
    opts.form = WEIR_TABLE_FORM_CIRCULAR;
    EXPECT_EQ(scatter(opts), Launches{ of(WEIRI_TABLE_ELEMENTS, 3) });
    opts.form = WEIR_TABLE_FORM_LINES;
    EXPECT_EQ(gather(10, opts), Launches{ of(WEIRI_TABLE_LINES, 3) });
    create(512, 0, 0, 6);
    EXPECT_EQ(gather(10, WEIR_TABLE_ORDER_AUTO), Launches{ of(WEIRI_TABLE_GATHER_SHORT, 6) });
    create(513, 0, 0, 6);
    EXPECT_EQ(gather(10, WEIR_TABLE_ORDER_AUTO), Launches{ of(WEIRI_TABLE_GATHER, 6) });
}

// The pass takes the whole device, and the rows the blocks of the table.
TEST_F(TableLaunch, AnOrderIsAPassBeforeTheRows)
{
    create(1024, 0, 0);
    Launches wanted = { of(WEIRI_TABLE_COUNT, SMS), of(WEIRI_TABLE_SUM, 1, WEIRI_TABLE_SUM_THREADS),
                        of(WEIRI_TABLE_PLACE, SMS), of(WEIRI_TABLE_GATHER, 3) };
    const Launches grouped = gather(10, WEIR_TABLE_ORDER_GROUPED);
    EXPECT_EQ(grouped, wanted);
    EXPECT_EQ(grouped.back().call.order, table->order.order);
    EXPECT_EQ(grouped.back().call.count_at, table->order.placed);
    wanted.push_back(of(WEIRI_TABLE_COPY, SMS));
    EXPECT_EQ(gather(10, WEIR_TABLE_ORDER_UNIQUE), wanted);
}

// Rows that have copies are gathered by all multiprocessors, the others by the blocks of the table.
TEST_F(TableLaunch, ManyIdsWithCopiesAreDivided)
{
    create(1024, 0, 0);
    EXPECT_EQ(gather(MANY, WEIR_TABLE_ORDER_AUTO).size(), 1u); // no rows have copies
    launched.clear();
    ASSERT_EQ(weir_table_cache(table, ids, WEIR_IDS_I32, 1, nullptr), WEIR_OK) << weir_last_error();
    EXPECT_EQ(launched, (Launches{ of(WEIRI_TABLE_CLEAR_SLOTS, SMS), of(WEIRI_TABLE_GATHER, 3),
                                   of(WEIRI_TABLE_FILL_SLOTS, SMS) }));
    const Launches divided = gather(MANY, WEIR_TABLE_ORDER_AUTO);
    EXPECT_EQ(divided,
              (Launches{ of(WEIRI_TABLE_SPLIT, SMS), of(WEIRI_TABLE_GATHER, 2 * SMS), of(WEIRI_TABLE_GATHER, 3) }));
    EXPECT_NE(divided[1].call.table.slots, nullptr);
    EXPECT_EQ(divided[2].call.table.slots, nullptr);
    EXPECT_EQ(gather(MANY, WEIR_TABLE_ORDER_GROUPED),
              (Launches{ of(WEIRI_TABLE_SPLIT, SMS), of(WEIRI_TABLE_GATHER, 2 * SMS), of(WEIRI_TABLE_COUNT, SMS),
                         of(WEIRI_TABLE_SUM, 1, WEIRI_TABLE_SUM_THREADS), of(WEIRI_TABLE_PLACE, SMS),
                         of(WEIRI_TABLE_GATHER, 3) }));
    EXPECT_EQ(gather(MANY - 1, WEIR_TABLE_ORDER_AUTO), Launches{ of(WEIRI_TABLE_GATHER, 3) });
    EXPECT_EQ(gather(MANY, WEIR_TABLE_ORDER_GIVEN), Launches{ of(WEIRI_TABLE_GATHER, 3) });
}

// A row has a lane for each unit that it can lie in, up to 16. Words of 4 bytes need everything to be aligned so.
TEST_F(TableLaunch, LanesAndWordsFollowTheRow)
{
    const struct {
        uint64_t row_bytes;
        uint64_t offset;
        uint32_t lanes;
        uint32_t element;
    } cases[] = { { 1, 0, 1, 1 },    { 16, 0, 1, 4 },   { 16, 4, 2, 4 },    { 17, 0, 2, 1 },   { 32, 0, 2, 4 },
                  { 32, 4, 4, 4 },   { 100, 0, 8, 4 },  { 100, 2, 8, 1 },   { 128, 0, 8, 4 },  { 128, 8, 16, 4 },
                  { 256, 0, 16, 4 }, { 400, 0, 16, 4 }, { 1204, 4, 16, 4 }, { 4096, 0, 16, 4 } };
    for (const auto &c : cases) {
        create(c.row_bytes, 0, c.offset);
        const weir_table_call call = gather(10, WEIR_TABLE_ORDER_GIVEN)[0].call;
        EXPECT_EQ(call.lanes, c.lanes) << c.row_bytes << " bytes from " << c.offset << " on";
        EXPECT_EQ(call.element, c.element) << c.row_bytes << " bytes from " << c.offset << " on";
    }
    weir_table_call_opts opts = WEIR_OPTS(weir_table_call_opts);
    create(128, 0, 0);
    opts.bytes = 64;
    EXPECT_EQ(gather(10, opts)[0].call.lanes, 4u);
    opts.column = 8;
    EXPECT_EQ(gather(10, opts)[0].call.lanes, 8u);
    EXPECT_EQ(gather(10, opts)[0].call.element, 4u);
    opts.pitch = 66;
    EXPECT_EQ(gather(10, opts)[0].call.element, 1u);
    opts.form = WEIR_TABLE_FORM_LINES; // a warp for each row
    EXPECT_EQ(gather(10, opts)[0].call.lanes, 32u);
}

} // namespace
