// The form that WEIR_HALO_AUTO takes for a part: the fastest of those measured (src/host/halo/parts.c).
#include <gtest/gtest.h>

extern "C" {
#include "src/host/halo/halo.h"
}

namespace {

constexpr uint64_t KiB = 1024;

weir_halo_form automatic(uint64_t bytes, uint64_t run, bool lines = true)
{
    return weiri_halo_choose(WEIR_HALO_AUTO, bytes, bytes / run, lines);
}

TEST(HaloForm, AutoFollowsBytesAndRuns)
{
    EXPECT_EQ(automatic(8, 8), WEIR_HALO_PACKETS);
    EXPECT_EQ(automatic(32 * KiB, 512), WEIR_HALO_PACKETS);
    EXPECT_EQ(automatic(256 * KiB, KiB), WEIR_HALO_PACKETS);
    EXPECT_EQ(automatic(256 * KiB + 8, 8), WEIR_HALO_LINES);
    EXPECT_EQ(automatic(512 * KiB, 2 * KiB), WEIR_HALO_LINES);
    EXPECT_EQ(automatic(512 * KiB, 8), WEIR_HALO_LINES);
    EXPECT_EQ(automatic(1024 * KiB, 16), WEIR_HALO_LINES);
    EXPECT_EQ(automatic(1024 * KiB, 32), WEIR_HALO_STORES);
    EXPECT_EQ(automatic(2048 * KiB, 2 * KiB), WEIR_HALO_STORES);
}

TEST(HaloForm, PacketsWhereLinesAreNotKept)
{
    EXPECT_EQ(automatic(512 * KiB, 2 * KiB, false), WEIR_HALO_PACKETS);
    EXPECT_EQ(automatic(8192 * KiB, 8, false), WEIR_HALO_PACKETS);
    EXPECT_EQ(automatic(2048 * KiB, 2 * KiB, false), WEIR_HALO_STORES);
}

TEST(HaloForm, AFormThatIsAskedForIsTaken)
{
    for (const weir_halo_form form : { WEIR_HALO_STORES, WEIR_HALO_PACKETS, WEIR_HALO_LINES }) {
        EXPECT_EQ(weiri_halo_choose(form, 8, 1, true), form);
        EXPECT_EQ(weiri_halo_choose(form, (uint64_t)1 << 30, 1, true), form);
    }
}

} // namespace
