// Layouts compared with an interpreter of type maps (harness/layout_tree.h): golden values of Open MPI
// (harness/layout_golden.h), one box in seven descriptions, and random trees of all constructors. WEIR_LAYOUT_SEED=N
// chooses other trees.

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "test/harness/layout_golden.h"

extern "C" {
#include "src/host/base/alloc.h"
#include "weir/error.h"
}

namespace {

// ---- checks ----------------------------------------------------------------------------------------------------

// Of the packed bytes of a source.
uint32_t crc32_of(const std::vector<int64_t> &offsets)
{
    std::vector<uint8_t> packed;
    packed.reserve(offsets.size());
    for (const int64_t offset : offsets) {
        packed.push_back(weirt_pattern(offset));
    }
    return weirt_crc32(packed);
}

// Contiguous runs in packed order, as start+length.
std::string runs_of(const std::vector<int64_t> &offsets)
{
    std::string out;
    for (size_t at = 0; at < offsets.size();) {
        size_t end = at + 1;
        while (end < offsets.size() && offsets[end] == offsets[end - 1] + 1) {
            end++;
        }
        out += (out.empty() ? "" : " ") + std::to_string(offsets[at]) + "+" + std::to_string(end - at);
        at = end;
    }
    return out;
}

// The runs as a hindexed layout.
weirt_tree runs_as_blocks(const std::vector<int64_t> &offsets)
{
    std::vector<uint64_t> lengths;
    std::vector<int64_t> places;
    for (size_t at = 0; at < offsets.size(); at++) {
        if (at != 0 && offsets[at] == offsets[at - 1] + 1) {
            lengths.back()++;
        } else {
            places.push_back(offsets[at]);
            lengths.push_back(1);
        }
    }
    return weirt_blocks(weirt_call::hindexed, lengths, places, weirt_bytes(1));
}

class LayoutTree : public ::testing::Test {
protected:
    void SetUp() override
    {
        alive = weiri_alloc_alive();
        ASSERT_EQ(weir_device_open("cpu:0", nullptr, &device), WEIR_OK) << weir_last_error();
    }
    void TearDown() override
    {
        weir_device_close(device);
        EXPECT_EQ(weiri_alloc_alive(), alive);
    }
    // The packed order of `count` items, by the handle's loops. Empty if a call fails.
    std::vector<int64_t> order_of(weir_layout *layout, uint64_t count)
    {
        weir_dev_layout handle;
        if (weir_layout_commit(layout, device) != WEIR_OK ||
            weir_layout_device(layout, device, count, &handle) != WEIR_OK) {
            return {};
        }
        return weirt_walk(handle);
    }
    // The mistake in the layout of a tree, or "".
    std::string wrong(const weirt_tree &tree, uint64_t count);
    void expect_golden(const weirt_golden &golden);
    int64_t alive = 0;
    weir_device *device = nullptr;
};

std::string LayoutTree::wrong(const weirt_tree &tree, uint64_t count)
{
    const weirt_map map = weirt_interpret(tree);
    const weirt_layout layout = weirt_build(tree);
    if (layout == nullptr) {
        return weir_last_error();
    }
    weir_layout_info info;
    weir_layout_get_info(layout.get(), &info);
    const std::array<std::pair<const char *, std::pair<int64_t, int64_t>>, 6> numbers = {
        { { "size", { static_cast<int64_t>(info.size), static_cast<int64_t>(map.bytes.size()) } },
          { "lb", { info.lb, map.lb } },
          { "extent", { info.extent, map.extent() } },
          { "true_lb", { info.true_lb, map.true_lb() } },
          { "true_extent", { static_cast<int64_t>(info.true_extent), map.true_ub() - map.true_lb() } },
          { "offset", { info.offset, map.bytes.empty() ? 0 : map.bytes[0] } } }
    };
    for (const auto &number : numbers) {
        if (number.second.first != number.second.second) {
            return std::string(number.first) + " is " + std::to_string(number.second.first) + ", not " +
                   std::to_string(number.second.second);
        }
    }
    weirt_map items;
    items.add_items(map, count, 0);
    weir_dev_layout handle;
    if (weir_layout_commit(layout.get(), device) != WEIR_OK ||
        weir_layout_device(layout.get(), device, count, &handle) != WEIR_OK) {
        return weir_last_error();
    }
    const std::vector<int64_t> order = weirt_walk(handle);
    if (order != items.bytes) {
        return "the order of " + std::to_string(count) + " items is " + runs_of(order) + ", not " +
               runs_of(items.bytes);
    }
    if (handle.nest.size != order.size() || handle.first > items.true_lb() || handle.last < items.true_ub()) {
        return "the handle has " + std::to_string(handle.nest.size) + " bytes from " + std::to_string(handle.first) +
               " to " + std::to_string(handle.last);
    }
    // The same bytes as a list of runs, and with the last byte moved.
    const weirt_tree runs = runs_as_blocks(map.bytes);
    if (!weir_layout_equal(layout.get(), weirt_build(runs).get())) {
        return "weir_layout_equal says that it is not " + runs_of(map.bytes);
    }
    if (!map.bytes.empty()) {
        weirt_map moved = map;
        moved.bytes.back() += 1;
        if (weir_layout_equal(layout.get(), weirt_build(runs_as_blocks(moved.bytes)).get())) {
            return "weir_layout_equal says that it is " + runs_of(moved.bytes);
        }
    }
    return "";
}

void LayoutTree::expect_golden(const weirt_golden &golden)
{
    const weirt_layout layout = weirt_build(golden.tree);
    ASSERT_NE(layout, nullptr) << weir_last_error();
    weir_layout_info info;
    weir_layout_get_info(layout.get(), &info);
    EXPECT_EQ(info.size, golden.size);
    EXPECT_EQ(info.extent, golden.extent);
    EXPECT_EQ(info.true_lb, golden.true_lb);
    uint64_t count = 1;
    for (const uint32_t crc : golden.crcs) {
        const std::vector<int64_t> order = order_of(layout.get(), count);
        if (count == 1) {
            EXPECT_EQ(runs_of(order).substr(0, golden.runs.size()), golden.runs);
        }
        EXPECT_TRUE(crc == 0 || crc == crc32_of(order)) << "count " << count << ": " << runs_of(order).substr(0, 400);
        count++;
    }
    EXPECT_EQ(weirt_interpret(golden.tree).bytes, order_of(layout.get(), 1));
}

// ---- cases -----------------------------------------------------------------------------------------------------

TEST_F(LayoutTree, GoldenValues)
{
    for (const weirt_golden &golden : weirt_golden_layouts()) {
        SCOPED_TRACE(weirt_text(golden.tree));
        expect_golden(golden);
    }
}

TEST_F(LayoutTree, SeedsBoxes)
{
    for (const auto &[x, crc] : weirt_golden_boxes) {
        const uint64_t rows = (1 << 20) / x;
        const uint64_t y = std::min<uint64_t>(rows, 1024);
        const weirt_layout layout =
            weirt_build(weirt_hvector(rows / y, 1, 1 << 20, weirt_vector(y, x, 1024, weirt_bytes(1))));
        ASSERT_NE(layout, nullptr) << weir_last_error();
        EXPECT_EQ(crc32_of(order_of(layout.get(), 1)), crc) << "x " << x;
    }
}

// Seven descriptions of one box have one form.
TEST_F(LayoutTree, OneBoxOneForm)
{
    const std::vector<std::array<uint64_t, 3>> shapes = { { 1, 1024, 16 }, { 100, 200, 30 }, { 3, 1, 7 },
                                                          { 5, 9, 1 },     { 1024, 8, 1 },   { 1024, 1024, 2 } };
    for (const auto &[x, y, z] : shapes) {
        const auto all = weirt_boxes(x, y, z);
        const weirt_layout one = weirt_build(all[0]);
        weir_layout_info first;
        weir_layout_get_info(one.get(), &first);
        EXPECT_EQ(first.pieces, 0u);
        EXPECT_EQ(first.size, x * y * z);
        for (size_t i = 1; i < all.size(); i++) {
            const weirt_layout other = weirt_build(all[i]);
            EXPECT_TRUE(weir_layout_equal(one.get(), other.get()));
            weir_layout_info info;
            weir_layout_get_info(other.get(), &info);
            info.lb = first.lb; // only subarray has the bounds of the array
            info.extent = first.extent;
            EXPECT_EQ(memcmp(&info, &first, sizeof info), 0) << "box " << x << " " << y << " " << z << ", form " << i;
        }
    }
}

TEST_F(LayoutTree, RandomTrees)
{
    const char *text = std::getenv("WEIR_LAYOUT_SEED");
    const uint64_t seed = text != nullptr ? std::strtoull(text, nullptr, 10) : 1;
    RecordProperty("seed", std::to_string(seed));
    weirt_trees trees(seed);
    std::array<int, weirt_calls> seen{};
    uint64_t with_pieces = 0;
    // Lists share its memory, so that the device allocates once.
    const weirt_layout kept =
        weirt_build(weirt_blocks(weirt_call::hindexed, { 1, 2, 1 }, { 0, 10, 30 }, weirt_bytes(4)));
    ASSERT_EQ(weir_layout_commit(kept.get(), device), WEIR_OK) << weir_last_error();
    for (int i = 0; i < 10000; i++) {
        const auto [tree, map] = trees.next(1 + static_cast<uint32_t>(trees.below(6)));
        const uint64_t count = trees.below(4);
        seen.at(static_cast<size_t>(tree.call))++;
        weir_layout_info info;
        weir_layout_get_info(weirt_build(tree).get(), &info);
        with_pieces += info.pieces != 0 ? 1 : 0;
        if (wrong(tree, count).empty()) {
            continue;
        }
        const weirt_tree least = weirt_shrink(tree, [&](const weirt_tree &t) { return !wrong(t, count).empty(); });
        FAIL() << "WEIR_LAYOUT_SEED=" << seed << ", tree " << i << ": " << weirt_text(least) << ": "
               << wrong(least, count);
    }
    for (const int calls : seen) {
        EXPECT_GT(calls, 100);
    }
    EXPECT_GT(with_pieces, 1000u);
}

} // namespace
