// What kernels of a window post to a NIC by themselves (weir/device/impl/window_port.h), in a queue without a NIC.
#include <gtest/gtest.h>

#include <string>

#include "weir/device/window.h"

#include "test/harness/window.h"

namespace {

constexpr uint64_t STRIDE = uint64_t{ 4 } << 30; // of the parts of a memory, which are as large
constexpr uint64_t REMOTE = uint64_t{ 1 } << 40; // address of memory 0 at the other device; memory m is m << 36 further
constexpr uint64_t LOCAL = uint64_t{ 1 } << 41;  // and here
constexpr uint32_t SHARED_PARTS = 2;             // the number of the shared parts in this order
constexpr uint32_t REMOTE_KEY = 0x10;            // of memory 0; the next ones follow
constexpr uint32_t LOCAL_KEY = 0x20;
constexpr weir_dev_rdma_memory SCRATCH = { uint64_t{ 1 } << 42, 0x30, 0 };
constexpr uint32_t PAIR = 0xabc;
constexpr uint32_t BLOCKS = 16;
constexpr uint32_t WORDS = 4;  // of a ring
constexpr uint32_t TARGET = 3; // rank 1 of device 1

weir_dev_port_memory memory_of(uint64_t m, uint32_t kinds)
{
    weir_dev_port_memory memory = {};
    memory.remote = REMOTE + (m << 36);
    memory.local = LOCAL + (m << 36);
    memory.bytes = 2 * STRIDE;
    memory.rkey = REMOTE_KEY + static_cast<uint32_t>(m);
    memory.lkey = LOCAL_KEY + static_cast<uint32_t>(m);
    memory.kinds = WEIR_PORT_MEMORY_REMOTE | WEIR_PORT_MEMORY_LOCAL | kinds;
    return memory;
}

weir_vec16 there(uint64_t m, uint64_t offset)
{
    return weir_mlx5_remote(memory_of(m, 0).remote + offset, memory_of(m, 0).rkey);
}

weir_vec16 here(uint64_t m, uint64_t offset, uint32_t bytes)
{
    return weir_mlx5_data(memory_of(m, 0).local + offset, memory_of(m, 0).lkey, bytes);
}

// Rank 0 of a window of two devices with two ranks each. Its kernels post to device 1. `settle` is 0 or
// WEIR_PORT_MEMORY_SETTLE: data of a put is visible there only after a read.
struct Far : windows::World {
    alignas(64) weir_vec16 blocks[BLOCKS][4] = {};
    alignas(64) uint32_t completions[BLOCKS][16] = {};
    uint64_t doorbell = 0;
    uint32_t records[2] = {};
    weir_dev_rdma_state state = {};
    weir_dev_port_board board = {};
    weir_dev_port_channel channel = {};
    weir_dev_window_rank self = {};
    weir_coop alone = weir_coop_thread(weir_coop_part(0, 1));

    explicit Far(uint32_t settle) : World(2, 2, WORDS, 64, 64, 100000000)
    {
        auto *to = const_cast<weir_dev_window_device *>(device(0).window.to);
        auto *table = const_cast<weir_dev_window_table *>(device(0).window.table);
        to[1].way = WEIR_WINDOW_PORT;
        to[1].shared = nullptr;
        to[1].channel = &channel;
        for (uint32_t m = 0; m < 2; m++) {
            table->memories[m] = { STRIDE, STRIDE };
            weir_dev_window_place &place = table->places[m * 2 + 1];
            place.base = nullptr;
            place.port = memory_of(m, settle);
            place.remote = WEIR_PORT_LOCAL + 1 + 2 * m;
            place.local = place.remote + 1;
        }
        for (uint32_t(&completion)[16] : completions) {
            completion[15] = WEIR_MLX5_NONE << 28;
        }
        weir_dev_rdma &queue = channel.rdma.queue;
        queue.control = &device(0).control;
        queue.state = &state;
        queue.queue = reinterpret_cast<char *>(blocks);
        queue.record = &records[0];
        queue.doorbell = &doorbell;
        queue.completions = reinterpret_cast<const char *>(completions);
        queue.completion_record = &records[1];
        queue.count = queue.completion_count = BLOCKS;
        queue.qpn = PAIR;
        channel.engine = WEIR_PORT_BY_DEVICE;
        channel.rdma.board = &board;
        channel.rdma.remote = memory_of(SHARED_PARTS, settle);
        channel.rdma.local = memory_of(SHARED_PARTS, 0);
        channel.rdma.scratch = SCRATCH;
        self = rank(0);
    }

    // The entries so far, if the NIC has been told of all of them.
    uint64_t posts() const { return state.rung == state.ready ? state.ready : UINT64_MAX; }
    // Which segments of entry `index` are not as expected, or "".
    std::string differs(uint64_t index, uint32_t opcode, uint32_t flags, weir_vec16 remote, weir_vec16 data) const
    {
        const weir_vec16 expected[3] = { weir_mlx5_control(opcode, index, PAIR, 3, flags), remote, data };
        std::string text;
        for (uint32_t i = 0; i < 3; i++) {
            const weir_vec16 found = blocks[index][i];
            text += found.lo == expected[i].lo && found.hi == expected[i].hi ? "" : " segment " + std::to_string(i);
        }
        return text;
    }
    std::string differs_settle(uint64_t index, uint64_t m, uint32_t flags = 0) const
    {
        return differs(index, WEIR_MLX5_READ, flags, there(m, 0), weir_mlx5_data(SCRATCH.address, SCRATCH.key, 1));
    }
};

TEST(WindowPost, APutIsAWriteAndAReadWhereItMustSettle)
{
    for (const uint32_t settle : { 0u, WEIR_PORT_MEMORY_SETTLE }) {
        Far far(settle);
        ASSERT_EQ(weir_dev_window_put(&far.self, TARGET, 1, 8, 0, 24, 16, far.alone), WEIR_OK);
        EXPECT_EQ(far.posts(), settle != 0 ? 2u : 1u);
        EXPECT_EQ(far.differs(0, WEIR_MLX5_WRITE, 0, there(1, STRIDE + 8), here(0, 24, 16)), "");
        EXPECT_EQ(settle != 0 ? far.differs_settle(1, 1) : "", "");
    }
}

TEST(WindowPost, AGetIsARead)
{
    Far far(WEIR_PORT_MEMORY_SETTLE);
    ASSERT_EQ(weir_dev_window_get(&far.self, TARGET, 1, 8, 0, 24, 16, far.alone), WEIR_OK);
    EXPECT_EQ(far.posts(), 1u);
    EXPECT_EQ(far.differs(0, WEIR_MLX5_READ, 0, there(1, STRIDE + 8), here(0, 24, 16)), "");
}

TEST(WindowPost, LargeTransfersAreSeveralMessages)
{
    for (const uint64_t bytes : { WEIR_RDMA_MESSAGE, 2 * WEIR_RDMA_MESSAGE + 5 }) {
        Far far(0);
        ASSERT_EQ(weir_dev_window_put(&far.self, TARGET, 0, 8, 1, 24, bytes, far.alone), WEIR_OK);
        uint64_t done = 0;
        for (uint64_t i = 0; i < far.posts() && done < bytes; i++) {
            const uint64_t part = bytes - done < WEIR_RDMA_MESSAGE ? bytes - done : WEIR_RDMA_MESSAGE;
            EXPECT_EQ(far.differs(i, WEIR_MLX5_WRITE, 0, there(0, STRIDE + 8 + done),
                                  here(1, 24 + done, static_cast<uint32_t>(part))),
                      "")
                << i;
            done += part;
        }
        EXPECT_EQ(done, bytes);
        EXPECT_EQ(far.posts(), (bytes + WEIR_RDMA_MESSAGE - 1) / WEIR_RDMA_MESSAGE);
    }
}

// The word goes to ring 1 * 2 + 0 of the shared part: of rank 1 there, for words of device 0. Entry 3 ends a quarter of
// the queue.
TEST(WindowPost, ANotificationIsAFencedValueBehindItsPut)
{
    constexpr uint32_t tag = 0x1234567;
    const weir_vec16 word = weir_mlx5_inline_value(uint64_t{ 1 } << 63 | uint64_t{ tag } << 32, 8);
    const weir_vec16 place = there(SHARED_PARTS, uint64_t{ 2 } * WORDS * 8);
    Far plain(0);
    ASSERT_EQ(weir_dev_window_put_notify(&plain.self, TARGET, 1, 8, 0, 24, 16, tag, plain.alone), WEIR_OK);
    EXPECT_EQ(plain.posts(), 2u);
    EXPECT_EQ(plain.differs(0, WEIR_MLX5_WRITE, 0, there(1, STRIDE + 8), here(0, 24, 16)), "");
    EXPECT_EQ(plain.differs(1, WEIR_MLX5_WRITE, WEIR_MLX5_FENCE, place, word), "");

    Far settling(WEIR_PORT_MEMORY_SETTLE);
    ASSERT_EQ(weir_dev_window_put_notify(&settling.self, TARGET, 1, 8, 0, 24, 16, tag, settling.alone), WEIR_OK);
    EXPECT_EQ(settling.posts(), 4u);
    EXPECT_EQ(settling.differs(0, WEIR_MLX5_WRITE, 0, there(1, STRIDE + 8), here(0, 24, 16)), "");
    EXPECT_EQ(settling.differs_settle(1, 1), "");
    EXPECT_EQ(settling.differs_settle(2, SHARED_PARTS), "");
    EXPECT_EQ(settling.differs(3, WEIR_MLX5_WRITE, WEIR_MLX5_FENCE | WEIR_MLX5_COMPLETE, place, word), "");
}

// The queue counts its first block as done, so a wait for entry 0 ends at once, and a wait for any other at its
// deadline.
TEST(WindowPost, AFlushIsOneSignalledEntryThatItWaitsFor)
{
    Far settling(WEIR_PORT_MEMORY_SETTLE);
    settling.state.completed = 1;
    ASSERT_EQ(weir_dev_window_flush(&settling.self, TARGET, settling.alone), WEIR_OK);
    EXPECT_EQ(settling.posts(), 1u);
    EXPECT_EQ(settling.differs_settle(0, SHARED_PARTS, WEIR_MLX5_COMPLETE), "");
    EXPECT_EQ(weir_dev_window_flush(&settling.self, TARGET, settling.alone), WEIR_ERR_TIMEOUT);

    Far plain(0);
    plain.state.completed = 1;
    ASSERT_EQ(weir_dev_window_flush(&plain.self, TARGET, plain.alone), WEIR_OK);
    EXPECT_EQ(plain.posts(), 1u);
    const weir_vec16 control = weir_mlx5_control(WEIR_MLX5_NOP, 0, PAIR, 1, WEIR_MLX5_COMPLETE);
    EXPECT_EQ(plain.blocks[0][0].lo, control.lo);
    EXPECT_EQ(plain.blocks[0][0].hi, control.hi);
    EXPECT_EQ(plain.blocks[0][1].lo | plain.blocks[0][1].hi, 0u);
}

TEST(WindowPost, TheErrorOfTheQueueComesFirst)
{
    Far far(0);
    far.board.refused = static_cast<uint64_t>(-WEIR_ERR_INVALID);
    far.state.refused = 5;
    EXPECT_EQ(weir_dev_window_put(&far.self, TARGET, 1, 8, 0, 24, 16, far.alone), WEIR_ERR_INVALID);
}

} // namespace
