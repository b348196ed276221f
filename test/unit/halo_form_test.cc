// The plan of a halo's parts (src/host/halo/parts.c): the form that WEIR_HALO_AUTO takes, the fastest of those
// measured, and the number of shares.
#include <gtest/gtest.h>

extern "C" {
#include "src/host/halo/halo.h"
#include "weir/error.h"
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

// A part, planned behind others that have so many shares.
struct Planned {
    weir_comm comm = {};
    weiri_halo_part part = {};
    weir_halo halo = {};
    weir_layout *bytes = nullptr;
    char array[1] = {};
    uint64_t size;

    Planned(uint32_t shares, bool inside, uint64_t part_bytes = 1024 * KiB) : size(part_bytes)
    {
        EXPECT_EQ(weir_layout_create_bytes(size, &bytes), WEIR_OK);
        part.inside = inside;
        part.peer = 5;
        halo.comm = &comm;
        halo.parts = &part;
        halo.count = 1;
        halo.share_count = shares;
    }
    ~Planned()
    {
        weir_layout_destroy(part.from);
        weir_layout_destroy(part.to);
        weir_layout_destroy(bytes);
    }
    Planned(const Planned &) = delete;
    Planned &operator=(const Planned &) = delete;
    weir_status plan(weir_halo_form form)
    {
        const weir_halo_part given = { nullptr, 0, bytes, bytes, 0, size };
        weir_halo_opts opts = {};
        opts.form = form;
        opts.array = array;
        return weiri_halo_plan(&halo, &given, &opts);
    }
};

TEST(HaloPlan, SharesAreCountedIn32Bits)
{
    Planned most(UINT32_MAX - WEIRI_HALO_SHARES, true);
    EXPECT_EQ(most.plan(WEIR_HALO_AUTO), WEIR_OK) << weir_last_error();
    EXPECT_EQ(most.halo.share_count, UINT32_MAX);
    Planned more(UINT32_MAX - WEIRI_HALO_SHARES + 1, true);
    EXPECT_EQ(more.plan(WEIR_HALO_AUTO), WEIR_ERR_LIMIT);
    EXPECT_STREQ(weir_last_error(), "weir_halo_create: parts[0]: more than 4294967295 shares");
}

TEST(HaloPlan, SmallPartsHaveSmallShares)
{
    constexpr struct {
        uint64_t bytes;
        uint32_t shares;
    } CASES[] = {
        { 1, 1 },          { 4 * KiB, 1 },        { 4 * KiB + 1, 2 },        { 60 * KiB, 15 },
        { 64 * KiB, 16 },  { 128 * KiB, 16 },     { 128 * KiB + 1, 17 },     { 504 * KiB, 63 },
        { 512 * KiB, 64 }, { 512 * KiB + 1, 64 }, { UINT64_C(1) << 40, 64 },
    };
    for (const auto &c : CASES) {
        Planned planned(0, true, c.bytes);
        EXPECT_EQ(planned.plan(WEIR_HALO_STORES), WEIR_OK) << weir_last_error();
        EXPECT_EQ(planned.halo.share_count, c.shares) << c.bytes;
    }
}

TEST(HaloPlan, LinesNeedALinkThatKeepsThem)
{
    Planned without(0, false);
    EXPECT_EQ(without.plan(WEIR_HALO_LINES), WEIR_ERR_UNSUPPORTED);
    EXPECT_STREQ(weir_last_error(), "weir_halo_create: parts[0]: the link to rank 5 does not keep lines whole");
    Planned with(0, false);
    with.part.lines = true;
    EXPECT_EQ(with.plan(WEIR_HALO_LINES), WEIR_OK) << weir_last_error();
    EXPECT_EQ(with.part.wait.form, WEIR_HALO_LINES);
    EXPECT_EQ(with.halo.share_count, WEIRI_HALO_SHARES);
}

} // namespace
