// Layouts compared with an interpreter of type maps (harness/layout_tree.h): golden values of Open MPI, one box in
// seven descriptions, and random trees of all constructors. WEIR_LAYOUT_SEED=N chooses other trees.

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "test/harness/layout_tree.h"

extern "C" {
#include "src/host/base/alloc.h"
#include "weir/error.h"
}

namespace {

// ---- calls, as trees -----------------------------------------------------------------------------------------

weirt_tree bytes(uint64_t count)
{
    weirt_tree tree;
    tree.count = count;
    return tree;
}

weirt_tree around(weirt_call call, weirt_tree of)
{
    weirt_tree tree;
    tree.call = call;
    tree.of.push_back(std::move(of));
    return tree;
}

weirt_tree contiguous(uint64_t count, weirt_tree of)
{
    weirt_tree tree = around(weirt_call::contiguous, std::move(of));
    tree.count = count;
    return tree;
}

weirt_tree vector(uint64_t count, uint64_t length, int64_t stride, weirt_tree of)
{
    weirt_tree tree = around(weirt_call::vector, std::move(of));
    tree.count = count;
    tree.length = length;
    tree.stride = stride;
    return tree;
}

weirt_tree hvector(uint64_t count, uint64_t length, int64_t stride, weirt_tree of)
{
    weirt_tree tree = vector(count, length, stride, std::move(of));
    tree.call = weirt_call::hvector;
    return tree;
}

weirt_tree resized(int64_t lb, int64_t extent, weirt_tree of)
{
    weirt_tree tree = around(weirt_call::resized, std::move(of));
    tree.stride = lb;
    tree.extent = extent;
    return tree;
}

// Blocks; with one length for all, in a call that takes one.
weirt_tree blocks(weirt_call call, std::vector<uint64_t> lengths, std::vector<int64_t> places, weirt_tree of)
{
    weirt_tree tree = around(call, std::move(of));
    tree.count = places.size();
    tree.places = std::move(places);
    if (call == weirt_call::indexed_block || call == weirt_call::hindexed_block) {
        tree.length = lengths[0];
    } else {
        tree.lengths = std::move(lengths);
    }
    return tree;
}

weirt_tree subarray(std::vector<uint64_t> sizes, std::vector<uint64_t> parts, std::vector<int64_t> starts,
                    weirt_tree of, bool fortran = false)
{
    weirt_tree tree = around(weirt_call::subarray, std::move(of));
    tree.sizes = std::move(sizes);
    tree.lengths = std::move(parts);
    tree.places = std::move(starts);
    tree.fortran = fortran;
    return tree;
}

// The rows of a box of `rows` of 1024 x 1024 rows of a KiB, as the seed's loops place them.
std::vector<int64_t> row_places(uint64_t y_rows, uint64_t z_rows)
{
    std::vector<int64_t> places;
    for (uint64_t z = 0; z < z_rows; z++) {
        for (uint64_t y = 0; y < y_rows; y++) {
            places.push_back(static_cast<int64_t>(z * 1024 * 1024 + y * 1024));
        }
    }
    return places;
}

// Seven descriptions of a box of x bytes, y rows and z planes of 1024^3 bytes.
std::vector<weirt_tree> boxes(uint64_t x, uint64_t y, uint64_t z)
{
    const std::vector<int64_t> places = row_places(y, z);
    const std::vector<uint64_t> lengths(places.size(), x);
    weirt_tree structure;
    structure.call = weirt_call::structure;
    structure.count = places.size();
    structure.places = places;
    structure.lengths = lengths;
    structure.of.assign(places.size(), bytes(1));
    return { hvector(z, 1, 1 << 20, hvector(y, 1, 1024, vector(x, 1, 1, bytes(1)))),
             hvector(z, 1, 1 << 20, vector(y, x, 1024, bytes(1))),
             blocks(weirt_call::hindexed, lengths, places, bytes(1)),
             blocks(weirt_call::hindexed_block, lengths, places, bytes(1)),
             blocks(weirt_call::indexed, lengths, places, bytes(1)),
             subarray({ 1024, 1024, 1024 }, { z, y, x }, { 0, 0, 0 }, bytes(1)),
             structure };
}

// ---- checks ----------------------------------------------------------------------------------------------------

// zlib's.
uint32_t crc32_of(const std::vector<int64_t> &offsets)
{
    uint32_t crc = UINT32_MAX;
    for (const int64_t offset : offsets) {
        crc ^= (static_cast<uint32_t>(offset) * 2654435761u) >> 24;
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ (crc % 2 != 0 ? 0xedb88320u : 0);
        }
    }
    return ~crc;
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
    return blocks(weirt_call::hindexed, lengths, places, bytes(1));
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
    // What is wrong with the layout of a tree, or "".
    std::string wrong(const weirt_tree &tree, uint64_t count);
    void expect_golden(const weirt_tree &tree, uint64_t size, int64_t extent, int64_t true_lb, const std::string &runs,
                       std::initializer_list<uint32_t> crcs);
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

void LayoutTree::expect_golden(const weirt_tree &tree, uint64_t size, int64_t extent, int64_t true_lb,
                               const std::string &runs, std::initializer_list<uint32_t> crcs)
{
    const weirt_layout layout = weirt_build(tree);
    ASSERT_NE(layout, nullptr) << weir_last_error();
    weir_layout_info info;
    weir_layout_get_info(layout.get(), &info);
    EXPECT_EQ(info.size, size);
    EXPECT_EQ(info.extent, extent);
    EXPECT_EQ(info.true_lb, true_lb);
    uint64_t count = 1;
    for (const uint32_t crc : crcs) {
        const std::vector<int64_t> order = order_of(layout.get(), count);
        if (count == 1 && !runs.empty()) {
            EXPECT_EQ(runs_of(order).substr(0, runs.size()), runs);
        }
        EXPECT_TRUE(crc == 0 || crc == crc32_of(order)) << "count " << count << ": " << runs_of(order).substr(0, 400);
        count++;
    }
    EXPECT_EQ(weirt_interpret(tree).bytes, order_of(layout.get(), 1));
}

// ---- cases -----------------------------------------------------------------------------------------------------

// The values of MPI_Pack. A checksum is that of 1, 2, 3 items; 0 stands for one that is not known.
TEST_F(LayoutTree, GoldenValues)
{
    const weirt_tree four = bytes(4);
    expect_golden(vector(2, 3, 4, bytes(1)), 6, 7, 0, "0+3 4+3", { 0x816385b6, 0x8e3b8691 });
    expect_golden(subarray({ 2, 4 }, { 2, 3 }, { 0, 0 }, bytes(1)), 6, 8, 0, "0+3 4+3", { 0x816385b6, 0xa58d8034 });
    expect_golden(subarray({ 16, 16, 16 }, { 2, 3, 4 }, { 1, 1, 4 }, bytes(1)), 24, 4096, 276,
                  "276+4 292+4 308+4 532+4 548+4 564+4", { 0xfbad2c66, 0x9ded0db9 });
    for (const bool fortran : { false, true }) {
        expect_golden(subarray({ 8, 8 }, { 4, 4 }, { 4, 4 }, four, fortran), 64, 256, 144,
                      "144+16 176+16 208+16 240+16", { 0x495ec5bc });
    }
    expect_golden(vector(5, 2, 2, four), 40, 40, 0, "0+40", { 0x37616cd2 });
    expect_golden(hvector(4, 1, 4, vector(4, 1, 4, four)), 64, 64, 0, "0+4 16+4 32+4 48+4 4+4 20+4", { 0x82be8ebc });
    // Resized columns of a matrix of 8 x 8 items.
    expect_golden(contiguous(8, resized(0, 4, vector(8, 1, 8, four))), 256, 32, 0, "0+4 32+4 64+4", { 0x92d82c3c });
    expect_golden(vector(2, 8, 13, bytes(1)), 16, 21, 0, "0+8 13+8", { 0xa436fdfe });
    const std::vector<uint64_t> lengths = { 1, 2, 2, 4, 4, 4, 4 };
    const std::vector<int64_t> places = { 9, 18, 26, 36, 44, 52, 60 };
    std::vector<int64_t> places_bytes;
    for (const int64_t place : places) {
        places_bytes.push_back(place * 4);
    }
    const std::string seven = "36+4 72+8 104+8 144+16 176+16 208+16 240+16";
    expect_golden(blocks(weirt_call::indexed, lengths, places, four), 84, 220, 36, seven, { 0x9cd07787 });
    expect_golden(blocks(weirt_call::hindexed, lengths, places_bytes, four), 84, 220, 36, seven, { 0x9cd07787 });
    expect_golden(blocks(weirt_call::hindexed_block, { 4 }, { 16, 48, 80, 112, 128, 160, 192, 224 }, four), 128, 224,
                  16, "16+16 48+16 80+16 112+32 160+16", { 0x9f86ad14 });
    // Its source overlaps itself.
    expect_golden(blocks(weirt_call::indexed_block, { 2 }, { 2, 3, 4, 7, 10 }, bytes(8)), 80, 80, 16,
                  "16+16 24+16 32+16 56+16 80+16", { 0x18261807 });
    expect_golden(vector(5, 1, 10, vector(3, 2, 3, four)), 120, 1312, 0, "0+8 12+8 24+8 320+8", { 0x4eb1b64e });
    expect_golden(hvector(100, 1, 40000, vector(100, 100, 200, bytes(1))), 1000000, 3979900, 0, "0+100 200+100",
                  { 0x4426ad47, 0, 0xce064054 });
}

TEST_F(LayoutTree, SeedsBoxes)
{
    const std::pair<uint64_t, uint32_t> checksums[] = {
        { 1, 0xb3fa12f2 }, { 8, 0x3163cd89 }, { 64, 0xd7feddd1 }, { 1024, 0x158987c5 }
    };
    for (const auto &[x, crc] : checksums) {
        const uint64_t rows = (1 << 20) / x;
        const uint64_t y = std::min<uint64_t>(rows, 1024);
        const weirt_layout layout = weirt_build(hvector(rows / y, 1, 1 << 20, vector(y, x, 1024, bytes(1))));
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
        const auto all = boxes(x, y, z);
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
    const weirt_layout kept = weirt_build(blocks(weirt_call::hindexed, { 1, 2, 1 }, { 0, 10, 30 }, bytes(4)));
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
