// Parts of the device headers that need no kernel: on the CPU they are functions like any other.
#include <gtest/gtest.h>

#include <weir/device/memory_channel.h>

namespace {

TEST(DeviceParts, FirstErrorIsKept)
{
    weir_dev_control control = {};
    EXPECT_EQ(weir_dev_control_status(&control), WEIR_OK);
    EXPECT_EQ(weir_dev_control_error(&control), WEIR_ERR_ABORTED);
    EXPECT_EQ(weir_dev_control_fail(&control, WEIR_ERR_RANGE), WEIR_ERR_RANGE);
    EXPECT_EQ(weir_dev_control_fail(&control, WEIR_ERR_TIMEOUT), WEIR_ERR_TIMEOUT);
    EXPECT_EQ(weir_dev_control_status(&control), WEIR_ERR_RANGE);
    EXPECT_EQ(weir_dev_control_error(&control), WEIR_ERR_RANGE);
}

TEST(DeviceParts, ErrorOfAKernelComesBeforeTheAbortWord)
{
    weir_dev_control control = {};
    control.abort_status = WEIR_ERR_REMOTE;
    EXPECT_EQ(weir_dev_control_status(&control), WEIR_ERR_REMOTE);
    EXPECT_EQ(weir_dev_control_fail(&control, WEIR_ERR_TIMEOUT), WEIR_ERR_TIMEOUT);
    EXPECT_EQ(weir_dev_control_status(&control), WEIR_ERR_TIMEOUT);
}

TEST(DeviceParts, BothHalvesOfAPacketMustBeThere)
{
    const uint32_t flag = 0x80000007u;
    const uint64_t there = static_cast<uint64_t>(flag) << 32 | 5;
    const uint64_t older = static_cast<uint64_t>(flag - 1) << 32 | 5;
    EXPECT_TRUE(weir_ll16_there(weir_vec16{there, there}, flag));
    EXPECT_FALSE(weir_ll16_there(weir_vec16{there, older}, flag));
    EXPECT_FALSE(weir_ll16_there(weir_vec16{older, there}, flag));
    EXPECT_FALSE(weir_ll16_there(weir_vec16{0, 0}, flag));
}

TEST(DeviceParts, RangesNeverWrapAround)
{
    const uint64_t most = UINT64_MAX;
    EXPECT_TRUE(weir_dev_in_range(0, 0, 0));
    EXPECT_TRUE(weir_dev_in_range(8, 8, 16));
    EXPECT_TRUE(weir_dev_in_range(16, 0, 16));
    EXPECT_FALSE(weir_dev_in_range(9, 8, 16));
    EXPECT_FALSE(weir_dev_in_range(17, 0, 16));
    EXPECT_FALSE(weir_dev_in_range(most, 1, 16));
    EXPECT_FALSE(weir_dev_in_range(1, most, 16));
    EXPECT_FALSE(weir_dev_in_range(most - 7, 8, 16));
    EXPECT_FALSE(weir_dev_in_range(8, most - 7, 16));
}

TEST(DeviceParts, FlagsOfFreshMemoryAreNone)
{
    uint64_t epoch = 0;
    EXPECT_NE(weir_packet_flag(&epoch), 0u);
    epoch = UINT64_MAX;
    EXPECT_EQ(weir_packet_flag(&epoch), UINT32_MAX);
}

}  // namespace
