// Bytes that the kernels of weir_layout_pack, unpack and copy move on the CPU device: golden checksums of Open MPI
// (harness/layout_golden.h), and random trees beside an interpreter of type maps (harness/layout_tree.h), at random
// alignments and parts. WEIR_LAYOUT_SEED=N chooses other trees.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "test/harness/layout_golden.h"
#include "test/harness/ranks.h"

extern "C" {
#include "weir/weir.h"
}

namespace {

constexpr int64_t REACH = 64 << 10; // offsets of the bytes of random trees lie between -REACH and REACH
constexpr char GUARD = 0x5a;
constexpr int TREES = 4000;

// Items of a layout, and the offset of each packed byte.
struct Items {
    const weir_layout *layout;
    uint64_t count;
    std::vector<int64_t> bytes;
};

struct Part {
    uint64_t offset;
    uint64_t bytes;
};

class LayoutMove : public ::testing::Test {
protected:
    void SetUp() override
    {
        ASSERT_EQ(weir_device_open("cpu:0", nullptr, &device), WEIR_OK) << weir_last_error();
        ASSERT_EQ(weir_stream_create(device, &stream), WEIR_OK);
    }
    void TearDown() override
    {
        weir_stream_destroy(device, stream);
        weir_device_close(device);
    }
    void finish() { EXPECT_EQ(weir_stream_wait(device, stream, 0), WEIR_OK); }
    static weir_layout_opts opts_of(Part part)
    {
        weir_layout_opts opts = WEIR_OPTS(weir_layout_opts);
        opts.offset = part.offset;
        opts.bytes = part.bytes;
        return opts;
    }
    bool pack(const Items &items, Part part, uint32_t skew);
    bool unpack(const Items &items, Part part, uint32_t skew);
    bool copy(const Items &to, const Items &from, Part part, uint32_t skew);
    bool arrived(const Items &items, Part part, char *at, const std::vector<char> &values);
    std::string wrong(const weirt_tree &tree, uint64_t count, uint64_t choices);
    uint32_t checksum(const weir_layout *layout, uint64_t count, const char *memory, uint64_t into);
    static std::vector<char> patterned(int64_t from, int64_t to);
    weir_device *device = nullptr;
    void *stream = nullptr;
    const std::vector<char> source = patterned(-REACH, REACH + 16); // byte REACH + i is that of offset i
    const std::vector<char> untouched = std::vector<char>(source.size(), GUARD);
    std::vector<char> target = untouched;                              // and stays so between moves
    std::vector<char> right = std::vector<char>(source.size(), false); // of `arrived`; false between calls of it
};

std::vector<char> LayoutMove::patterned(int64_t from, int64_t to)
{
    std::vector<char> out(static_cast<size_t>(to - from));
    for (int64_t i = from; i < to; i++) {
        out[static_cast<size_t>(i - from)] = static_cast<char>(weirt_pattern(i));
    }
    return out;
}

// Of the packed bytes, from `into` on, of items in memory whose byte i has the pattern of i.
uint32_t LayoutMove::checksum(const weir_layout *layout, uint64_t count, const char *memory, uint64_t into)
{
    weir_layout_info info;
    weir_layout_get_info(layout, &info);
    std::vector<uint8_t> packed(info.size * count + into);
    EXPECT_EQ(weir_layout_pack(device, layout, count, memory, packed.data() + into, nullptr, stream), WEIR_OK)
        << weir_last_error();
    finish();
    packed.erase(packed.begin(), packed.begin() + static_cast<std::ptrdiff_t>(into));
    return weirt_crc32(packed);
}

// `skew`: the distance of the pointers from aligned places, packed * 16 + items.
bool LayoutMove::pack(const Items &items, Part part, uint32_t skew)
{
    const weir_layout_opts opts = opts_of(part);
    const char *from = source.data() + REACH + skew % 16;
    std::vector<char> found(part.bytes + 48, GUARD);
    std::vector<char> wanted = found;
    for (uint64_t i = 0; i < part.bytes; i++) {
        wanted[16 + skew / 16 + i] = from[items.bytes[part.offset + i]];
    }
    const weir_status status =
        weir_layout_pack(device, items.layout, items.count, from, found.data() + 16 + skew / 16, &opts, stream);
    finish();
    return status == WEIR_OK && found == wanted;
}

// Whether the part of the items around `at` has these values, and nothing else has changed. A byte that several packed
// bytes go to has one of their values. Restores `target`.
bool LayoutMove::arrived(const Items &items, Part part, char *at, const std::vector<char> &values)
{
    const int64_t *places = items.bytes.data() + part.offset;
    char *const fits = right.data() + (at - target.data());
    for (uint64_t i = 0; i < part.bytes; i++) {
        fits[places[i]] = fits[places[i]] || at[places[i]] == values[i];
    }
    bool fine = true;
    for (uint64_t i = 0; i < part.bytes; i++) {
        fine = fine && fits[places[i]];
        at[places[i]] = GUARD;
    }
    for (uint64_t i = 0; i < part.bytes; i++) {
        fits[places[i]] = false;
    }
    if (target != untouched) {
        target = untouched;
        fine = false;
    }
    return fine;
}

// Whether threads may store to the same byte, which the thread sanitizer reports.
bool races(const Items &items, Part part)
{
    if (std::strcmp(weirt_sanitizer(), "thread") != 0) {
        return false;
    }
    const auto first = items.bytes.begin() + static_cast<std::ptrdiff_t>(part.offset);
    std::vector<int64_t> places(first, first + static_cast<std::ptrdiff_t>(part.bytes));
    std::sort(places.begin(), places.end());
    return std::adjacent_find(places.begin(), places.end()) != places.end();
}

bool LayoutMove::unpack(const Items &items, Part part, uint32_t skew)
{
    if (races(items, part)) {
        return true;
    }
    const weir_layout_opts opts = opts_of(part);
    char *to = target.data() + REACH + skew % 16;
    const std::vector<char> packed(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(part.bytes) + 16);
    const char *from = packed.data() + skew / 16;
    const weir_status status = weir_layout_unpack(device, items.layout, items.count, to, from, &opts, stream);
    finish();
    return arrived(items, part, to, std::vector<char>(from, from + part.bytes)) && status == WEIR_OK;
}

bool LayoutMove::copy(const Items &to, const Items &from, Part part, uint32_t skew)
{
    if (races(to, part)) {
        return true;
    }
    const weir_layout_opts opts = opts_of(part);
    const char *src = source.data() + REACH + skew % 16;
    char *dst = target.data() + REACH + skew / 16;
    std::vector<char> values;
    for (uint64_t i = 0; i < part.bytes; i++) {
        values.push_back(src[from.bytes[part.offset + i]]);
    }
    const weir_status status =
        weir_layout_copy(device, to.layout, to.count, dst, from.layout, from.count, src, &opts, stream);
    finish();
    return arrived(to, part, dst, values) && status == WEIR_OK;
}

// Rows that have as many bytes, the longest that `most` allows.
weirt_tree rows_of(uint64_t bytes, uint64_t most, int64_t gap)
{
    uint64_t run = most;
    while (bytes % run != 0) {
        run--;
    }
    return weirt_hvector(bytes / run, 1, static_cast<int64_t>(run) + gap, weirt_bytes(run));
}

// The move of `count` items of the tree that is wrong, or "". Calls of all bytes, and of a part.
std::string LayoutMove::wrong(const weirt_tree &tree, uint64_t count, uint64_t choices)
{
    const weirt_layout layout = weirt_build(tree);
    if (layout == nullptr || weir_layout_commit(layout.get(), device) != WEIR_OK) {
        return weir_last_error();
    }
    weirt_map map;
    map.add_items(weirt_interpret(tree), count, 0);
    const Items items = { layout.get(), count, map.bytes };
    const uint64_t size = items.bytes.size();
    const weirt_tree rows = rows_of(size, 1 + choices % 24, static_cast<int64_t>(choices / 24 % 8));
    const weirt_layout other = weirt_build(rows);
    const Items packed_rows = { other.get(), 1, weirt_interpret(rows).bytes };
    const uint64_t offset = choices % size;
    for (const Part part : { Part{ 0, size }, Part{ offset, 1 + choices / 64 % (size - offset) } }) {
        const auto skew = static_cast<uint32_t>(choices >> (part.offset == 0 ? 16 : 24)) % 256;
        const std::string of = " of " + std::to_string(part.bytes) + " bytes from " + std::to_string(part.offset) +
                               " on, skew " + std::to_string(skew);
        if (!pack(items, part, skew)) {
            return "pack" + of;
        }
        if (!unpack(items, part, skew)) {
            return "unpack" + of;
        }
        if (!copy(items, packed_rows, part, skew)) {
            return "copy from " + weirt_text(rows) + of;
        }
        if (!copy(packed_rows, items, part, skew)) {
            return "copy to " + weirt_text(rows) + of;
        }
    }
    return "";
}

// ---- cases -----------------------------------------------------------------------------------------------------

TEST_F(LayoutMove, RandomTrees)
{
    const char *text = std::getenv("WEIR_LAYOUT_SEED");
    const uint64_t seed = text != nullptr ? std::strtoull(text, nullptr, 10) : 1;
    RecordProperty("seed", std::to_string(seed));
    weirt_trees trees(seed);
    // Lists share its memory, so that the device allocates once.
    const weirt_layout kept =
        weirt_build(weirt_blocks(weirt_call::hindexed, { 1, 2, 1 }, { 0, 10, 30 }, weirt_bytes(4)));
    ASSERT_EQ(weir_layout_commit(kept.get(), device), WEIR_OK) << weir_last_error();
    const int most = std::strcmp(weirt_sanitizer(), "thread") == 0 ? TREES / 8 : TREES;
    for (int moved = 0; moved < most;) {
        const auto [tree, map] = trees.next(1 + static_cast<uint32_t>(trees.below(6)));
        const uint64_t count = 1 + trees.below(3);
        const uint64_t choices = trees.below(UINT64_MAX);
        weirt_map items;
        items.add_items(map, count, 0);
        if (items.bytes.empty() || items.true_lb() < -REACH || items.true_ub() > REACH) {
            continue;
        }
        moved++;
        if (wrong(tree, count, choices).empty()) {
            continue;
        }
        const auto fails = [&](const weirt_tree &t) {
            return !weirt_interpret(t).bytes.empty() && !wrong(t, count, choices).empty();
        };
        const weirt_tree least = weirt_shrink(tree, fails);
        FAIL() << "WEIR_LAYOUT_SEED=" << seed << ", tree " << moved << ": " << weirt_text(least) << ": "
               << wrong(least, count, choices);
    }
}

// Kernels divide numbers below 2^31 by a multiplication.
TEST(LayoutDivisor, QuotientsAreThoseOfADivision)
{
    constexpr uint32_t MOST = INT32_MAX;
    std::mt19937_64 random(3);
    const auto check = [](uint32_t number, uint32_t divisor) {
        ASSERT_EQ(weir_layout_divide(number, weir_layout_divisor_of(divisor)), number / divisor)
            << number << " / " << divisor;
    };
    for (int i = 0; i < 100000; i++) {
        const uint32_t divisor = 1 + static_cast<uint32_t>(random() >> (33 + random() % 31)) % MOST;
        const uint32_t multiple = MOST / divisor * divisor;
        for (const uint32_t number : { static_cast<uint32_t>(random() % MOST), multiple, multiple - 1, MOST }) {
            check(number, divisor);
        }
    }
    for (uint32_t bits = 0; bits < 31; bits++) {
        const uint32_t power = 1U << bits;
        for (const uint32_t divisor : { power, power + 1, power > 1 ? power - 1 : 1 }) {
            check(MOST, divisor);
            check(MOST / divisor * divisor - 1, divisor);
        }
    }
}

// Open MPI's checksums, of what the kernels pack, from aligned places and from 1 and 3 bytes behind them.
TEST_F(LayoutMove, GoldenChecksums)
{
    for (const uint32_t skew : { 0u, 1u, 3u }) {
        const std::vector<char> memory = patterned(-static_cast<int64_t>(skew), 16 << 20);
        for (const weirt_golden &golden : weirt_golden_layouts()) {
            const weirt_layout layout = weirt_build(golden.tree);
            ASSERT_NE(layout, nullptr) << weir_last_error();
            ASSERT_EQ(weir_layout_commit(layout.get(), device), WEIR_OK) << weir_last_error();
            uint64_t count = 0;
            for (const uint32_t crc : golden.crcs) {
                count++;
                EXPECT_TRUE(crc == 0 || checksum(layout.get(), count, memory.data() + skew, skew != 0 ? 1 : 0) == crc)
                    << weirt_text(golden.tree) << ", count " << count << ", skew " << skew;
            }
        }
    }
}

// 1 MiB of rows in a box of 1024^3 bytes: the two boxes of its first 16 MiB.
TEST_F(LayoutMove, SeedsBoxes)
{
    const std::vector<char> memory = patterned(0, 16 << 20);
    for (const auto &[x, crc] : weirt_golden_boxes) {
        const uint64_t planes = 1024 / x;
        if (x >= 64) {
            const weirt_layout layout =
                weirt_build(weirt_hvector(planes, 1, 1 << 20, weirt_vector(1024, x, 1024, weirt_bytes(1))));
            EXPECT_EQ(checksum(layout.get(), 1, memory.data(), 0), crc) << "x " << x;
        }
    }
}

} // namespace
