// Layouts: the canonical form, its bounds, and what creates refuse. layout_tree_test.cc compares random layouts with an
// interpreter of type maps.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

extern "C" {
#include "src/device/device.h"
#include "src/host/base/alloc.h"
#include "src/host/layout/layout.h"
#include "weir/error.h"
}

namespace {

using dims = std::vector<std::pair<uint64_t, int64_t>>;

// A layout, destroyed at the end of its scope.
class layout {
public:
    layout() = default;
    template <typename Create, typename... Arguments> explicit layout(Create create, Arguments... arguments)
    {
        EXPECT_EQ(create(arguments..., &of), WEIR_OK) << weir_last_error();
    }
    layout(layout &&other) noexcept : of(other.of) { other.of = nullptr; }
    layout(const layout &) = delete;
    layout &operator=(const layout &) = delete;
    layout &operator=(layout &&other) noexcept
    {
        std::swap(of, other.of);
        return *this;
    }
    ~layout() { weir_layout_destroy(of); }
    operator const weir_layout *() const { return of; } // NOLINT: passed to calls as it is
    [[nodiscard]] weir_layout_info info() const
    {
        weir_layout_info out;
        weir_layout_get_info(of, &out);
        return out;
    }
    [[nodiscard]] dims all_dims() const
    {
        const weir_layout_info out = info();
        dims all;
        for (uint32_t i = 0; i < out.dims; i++) {
            all.emplace_back(out.dim[i].count, out.dim[i].stride);
        }
        return all;
    }
    weir_layout *of = nullptr;
};

layout bytes(uint64_t count) { return layout(weir_layout_create_bytes, count); }

void expect_form(const layout &l, int64_t offset, uint64_t run, const dims &want)
{
    EXPECT_EQ(l.info().offset, offset);
    EXPECT_EQ(l.info().run, run);
    EXPECT_EQ(l.info().pieces, 0u);
    EXPECT_EQ(l.all_dims(), want);
}

void expect_bounds(const layout &l, int64_t lb, int64_t extent, int64_t true_lb, uint64_t true_extent)
{
    EXPECT_EQ(l.info().lb, lb);
    EXPECT_EQ(l.info().extent, extent);
    EXPECT_EQ(l.info().true_lb, true_lb);
    EXPECT_EQ(l.info().true_extent, true_extent);
}

void expect_refused(weir_status status, weir_status want, const std::string &text)
{
    EXPECT_EQ(status, want);
    EXPECT_NE(std::string(weir_last_error()).find(text), std::string::npos) << weir_last_error();
}

// Lists of 4 runs; with nests, of columns.
layout irregular(uint64_t seed, bool nests)
{
    const layout item = bytes(4);
    const layout column(weir_layout_create_hvector, 3u, 1u, 8, static_cast<const weir_layout *>(item));
    const int64_t at = static_cast<int64_t>(seed) * 10;
    const int64_t places[] = { at, 100, 300 + at, 450 };
    const uint64_t lengths[] = { 1, 2, 1, 1 };
    return layout(weir_layout_create_hindexed, 4u, lengths, places,
                  static_cast<const weir_layout *>(nests ? column : item));
}

TEST(Layout, RunsAndVectors)
{
    const layout item = bytes(4);
    expect_form(item, 0, 4, {});
    expect_bounds(item, 0, 4, 0, 4);
    const layout none = bytes(0);
    expect_form(none, 0, 0, {});
    expect_bounds(layout(weir_layout_create_contiguous, 7u, static_cast<const weir_layout *>(none)), 0, 0, 0, 0);
    const layout vector(weir_layout_create_vector, 2u, 3u, 4, static_cast<const weir_layout *>(item));
    expect_form(vector, 0, 12, { { 2, 16 } });
    expect_bounds(vector, 0, 28, 0, 28);
    // A stride of the length is a run. A count of 1 leaves no dim.
    expect_form(layout(weir_layout_create_vector, 5u, 2u, 2, static_cast<const weir_layout *>(item)), 0, 40, {});
    expect_form(layout(weir_layout_create_vector, 1u, 2u, 9, static_cast<const weir_layout *>(item)), 0, 8, {});
    // Two dims merge where the outer stride is the inner count times the inner stride.
    const layout column(weir_layout_create_hvector, 4u, 1u, 16, static_cast<const weir_layout *>(item));
    expect_form(layout(weir_layout_create_hvector, 3u, 1u, 64, static_cast<const weir_layout *>(column)), 0, 4,
                { { 12, 16 } });
    // A transpose keeps its order.
    expect_form(layout(weir_layout_create_hvector, 4u, 1u, 4, static_cast<const weir_layout *>(column)), 0, 4,
                { { 4, 4 }, { 4, 16 } });
}

TEST(Layout, SignsAndBounds)
{
    const layout item = bytes(2);
    const layout down(weir_layout_create_hvector, 3u, 1u, -10, static_cast<const weir_layout *>(item));
    expect_form(down, 0, 2, { { 3, -10 } });
    expect_bounds(down, -20, 22, -20, 22);
    const layout resized(weir_layout_create_resized, -5, -30, static_cast<const weir_layout *>(down));
    expect_bounds(resized, -5, -30, -20, 22);
    const layout two(weir_layout_create_contiguous, 2u, static_cast<const weir_layout *>(resized));
    expect_form(two, 0, 2, { { 6, -10 } });
    expect_bounds(two, -35, 0, -50, 52);
    // Stride 0: the bytes overlap.
    expect_form(layout(weir_layout_create_hvector, 3u, 1u, 0, static_cast<const weir_layout *>(item)), 0, 2,
                { { 3, 0 } });
    // Of a struct with a resized part, only that part sets bounds.
    const uint64_t lengths[] = { 1, 1 };
    const int64_t places[] = { 100, 0 };
    const weir_layout *const parts[] = { item, resized };
    expect_bounds(layout(weir_layout_create_struct, 2u, lengths, places, parts), -5, -30, -20, 122);
}

TEST(Layout, Subarrays)
{
    const layout item = bytes(4);
    const uint64_t sizes[] = { 8, 8 };
    const uint64_t parts[] = { 4, 3 };
    const uint64_t starts[] = { 2, 5 };
    const layout c(weir_layout_create_subarray, 2u, sizes, parts, starts, WEIR_LAYOUT_C,
                   static_cast<const weir_layout *>(item));
    expect_form(c, (2 * 8 + 5) * 4, 12, { { 4, 32 } });
    expect_bounds(c, 0, 256, 84, 108);
    const layout fortran(weir_layout_create_subarray, 2u, sizes, parts, starts, WEIR_LAYOUT_FORTRAN,
                         static_cast<const weir_layout *>(item));
    expect_form(fortran, (5 * 8 + 2) * 4, 16, { { 3, 32 } });
    // A dropped dim of count 1 leaves its offset.
    const uint64_t one[] = { 1, 1 };
    expect_form(layout(weir_layout_create_subarray, 2u, sizes, one, starts, WEIR_LAYOUT_C,
                       static_cast<const weir_layout *>(item)),
                84, 4, {});
    const layout no_parts(weir_layout_create_struct, 0u, nullptr, nullptr, nullptr);
    expect_bounds(no_parts, 0, 0, 0, 0);
    const uint64_t nothing[] = { 0, 3 };
    const layout empty(weir_layout_create_subarray, 2u, sizes, nothing, starts, WEIR_LAYOUT_C,
                       static_cast<const weir_layout *>(item));
    EXPECT_EQ(empty.info().size, 0u);
    expect_bounds(empty, 0, 256, 0, 0);
}

TEST(Layout, RegularListsAreDims)
{
    const layout item = bytes(1);
    std::vector<int64_t> places;
    std::vector<uint64_t> lengths;
    for (int64_t z = 0; z < 3; z++) {
        for (int64_t y = 0; y < 4; y++) {
            places.push_back(7 + z * 1000 + y * 100);
            lengths.push_back(10);
        }
    }
    const dims want = { { 3, 1000 }, { 4, 100 } };
    const uint64_t count = places.size();
    const auto *of = static_cast<const weir_layout *>(item);
    expect_form(layout(weir_layout_create_hindexed, count, lengths.data(), places.data(), of), 7, 10, want);
    expect_form(layout(weir_layout_create_indexed_block, count, 10u, places.data(), of), 7, 10, want);
    const std::vector<const weir_layout *> ofs(count, of);
    expect_form(layout(weir_layout_create_struct, count, lengths.data(), places.data(), ofs.data()), 7, 10, want);
    // Rows in two halves, and an empty block between them.
    std::vector<int64_t> halves;
    lengths.clear();
    for (const int64_t place : places) {
        halves.insert(halves.end(), { place, place + 500, place + 5 });
        lengths.insert(lengths.end(), { 5, 0, 5 });
    }
    expect_form(layout(weir_layout_create_indexed, halves.size(), lengths.data(), halves.data(), of), 7, 10, want);
}

// Blocks of different lengths that continue each other are one nest.
TEST(Layout, PiecesThatContinueAreJoined)
{
    const layout item = bytes(4);
    const layout spaced(weir_layout_create_resized, 0, 10, static_cast<const weir_layout *>(item));
    const layout row(weir_layout_create_vector, 3u, 1u, 1, static_cast<const weir_layout *>(spaced));
    const layout plane(weir_layout_create_resized, 0, 100, static_cast<const weir_layout *>(row));
    const uint64_t lengths[] = { 1, 3, 2, 1 };
    const int64_t places[] = { 5, 6, 9, 11 };
    expect_form(layout(weir_layout_create_indexed, 4u, lengths, places, static_cast<const weir_layout *>(spaced)), 50,
                4, { { 7, 10 } });
    expect_form(layout(weir_layout_create_indexed, 4u, lengths, places, static_cast<const weir_layout *>(plane)), 500,
                4, { { 7, 100 }, { 3, 10 } });
    // Two blocks could be anything; the third one shows that they are steps.
    const uint64_t ones[] = { 1, 1, 5 };
    const int64_t touching[] = { 5, 6, 7 };
    expect_form(layout(weir_layout_create_indexed, 3u, ones, touching, static_cast<const weir_layout *>(spaced)), 50, 4,
                { { 7, 10 } });
}

TEST(Layout, IrregularListsArePieces)
{
    const layout item = bytes(4);
    const uint64_t lengths[] = { 1, 2, 2, 4, 0, 4 };
    const int64_t places[] = { 9, 18, 26, 36, 1, 40 };
    const layout list(weir_layout_create_indexed, 6u, lengths, places, static_cast<const weir_layout *>(item));
    EXPECT_EQ(list.info().size, 52u);
    EXPECT_EQ(list.info().pieces, 4u); // the last two touch
    EXPECT_EQ(list.info().runs, 4u);
    EXPECT_EQ(list.info().offset, 36);
    expect_bounds(list, 36, 140, 36, 140);
    ASSERT_NE(list.of->form.list, nullptr);
    EXPECT_EQ(list.of->form.list->nest_of, nullptr);
    const weir_layout_piece *pieces = list.of->form.list->pieces;
    EXPECT_EQ(pieces[0].place, 0);
    EXPECT_EQ(pieces[3].place, 108);
    EXPECT_EQ(pieces[3].prefix, 20u);
    EXPECT_EQ(pieces[4].prefix, 52u);
    EXPECT_EQ(weir_layout_piece_of(pieces, 4, 19), 2u);
    EXPECT_EQ(weir_layout_piece_of(pieces, 4, 20), 3u);
    // Dims enclose the list, and further layouts share it.
    const layout outer(weir_layout_create_hvector, 5u, 1u, 1000, static_cast<const weir_layout *>(list));
    EXPECT_EQ(outer.all_dims(), (dims{ { 5, 1000 } }));
    EXPECT_EQ(outer.of->form.list, list.of->form.list);
    // Equal nests of pieces are there once.
    const layout column(weir_layout_create_hvector, 3u, 1u, 8, static_cast<const weir_layout *>(item));
    const int64_t odd[] = { 0, 100, 300, 450 };
    const uint64_t of_columns[] = { 1, 1, 1, 1 };
    const weir_layout *const mixed[] = { column, column, item, column };
    const layout nests(weir_layout_create_struct, 4u, of_columns, odd, mixed);
    EXPECT_EQ(nests.info().pieces, 4u);
    EXPECT_EQ(nests.info().runs, 10u);
    EXPECT_EQ(nests.of->form.list->nest_count, 2u);
    EXPECT_EQ(nests.of->form.list->nest_of[3], nests.of->form.list->nest_of[0]);
}

TEST(Layout, MoreThanEightDims)
{
    layout l = bytes(1);
    for (int64_t i = 0; i < 17; i++) {
        weir_layout *next = nullptr;
        ASSERT_EQ(weir_layout_create_hvector(2, 1, static_cast<int64_t>(1) << (2 * i + 1), l.of, &next), WEIR_OK);
        weir_layout_destroy(l.of);
        l.of = next;
        EXPECT_EQ(l.info().size, static_cast<uint64_t>(2) << i);
        EXPECT_EQ(l.info().pieces, i < 8 ? 0u : i < 16 ? 1u : 2u) << i;
        EXPECT_EQ(l.info().runs, static_cast<uint64_t>(2) << i);
    }
}

TEST(Layout, Refusals)
{
    const layout item = bytes(8);
    weir_layout *out = nullptr;
    const int64_t most = static_cast<int64_t>(1) << 62;
    const uint64_t lengths[] = { 1, 1 };
    const int64_t places[] = { 0, most };
    expect_refused(weir_layout_create_bytes(static_cast<uint64_t>(most) + 1, &out), WEIR_ERR_RANGE, "2^62");
    expect_refused(weir_layout_create_contiguous(static_cast<uint64_t>(most), item, &out), WEIR_ERR_RANGE, "2^62");
    expect_refused(weir_layout_create_hvector(3, 1, most, item, &out), WEIR_ERR_RANGE, "weir_layout_create_hvector: ");
    expect_refused(weir_layout_create_vector(2, 1, INT64_MIN, item, &out), WEIR_ERR_RANGE, "2^62");
    expect_refused(weir_layout_create_hindexed(2, lengths, places, item, &out), WEIR_ERR_RANGE, "block 1 ");
    expect_refused(weir_layout_create_indexed(2, lengths, places, item, &out), WEIR_ERR_RANGE, "block 1 ");
    expect_refused(weir_layout_create_resized(most, 1, item, &out), WEIR_ERR_RANGE, "2^62");
    expect_refused(weir_layout_create_hvector(UINT64_MAX, 1, 0, item, &out), WEIR_ERR_RANGE, "more than 2^62 bytes");
    const uint64_t two[] = { 8, 8 };
    const uint64_t starts[] = { 0, 7 };
    expect_refused(weir_layout_create_subarray(2, two, lengths, two, WEIR_LAYOUT_C, item, &out), WEIR_ERR_INVALID,
                   "dimension 0: 1 items from 8 on");
    expect_refused(weir_layout_create_subarray(0, two, lengths, starts, WEIR_LAYOUT_C, item, &out), WEIR_ERR_INVALID,
                   "dims is 0");
    expect_refused(weir_layout_create_subarray(2, two, lengths, starts, static_cast<weir_layout_order>(7), item, &out),
                   WEIR_ERR_INVALID, "unknown order 7");
    expect_refused(weir_layout_create_hindexed(2, nullptr, places, item, &out), WEIR_ERR_INVALID, "lengths is NULL");
    expect_refused(weir_layout_create_indexed_block(2, 1, nullptr, item, &out), WEIR_ERR_INVALID, "places is NULL");
    const weir_layout *const ofs[] = { item, nullptr };
    expect_refused(weir_layout_create_struct(2, lengths, places, ofs, &out), WEIR_ERR_INVALID, "of[1] is NULL");
    // 2^33 pieces: an irregular list of two inside and nothing regular around it.
    const int64_t odd[] = { 0, 100, 300 };
    const uint64_t odd_lengths[] = { 1, 2, 1 };
    const layout list(weir_layout_create_hindexed, 3u, odd_lengths, odd, static_cast<const weir_layout *>(item));
    const layout many(weir_layout_create_hvector, static_cast<uint64_t>(1) << 33, 1u, 1000,
                      static_cast<const weir_layout *>(list));
    expect_refused(weir_layout_create_hindexed(3, odd_lengths, odd, many, &out), WEIR_ERR_LIMIT, "2^31 pieces");
    EXPECT_EQ(out, nullptr);
}

// Each allocation of a create fails once: the status says so, and nothing is left.
TEST(Layout, MemoryRunsShort)
{
    const layout item = bytes(4);
    const layout column(weir_layout_create_hvector, 3u, 1u, 8, static_cast<const weir_layout *>(item));
    std::vector<uint64_t> lengths(40);
    std::vector<int64_t> places(40);
    for (size_t i = 0; i < lengths.size(); i++) {
        lengths[i] = 1 + i % 19;
        places[i] = static_cast<int64_t>(i * i * 1000);
    }
    const int64_t alive = weiri_alloc_alive();
    uint64_t n = 1;
    for (weir_status status = WEIR_ERR_NOMEM; status != WEIR_OK; n++) {
        weir_layout *out = nullptr;
        (void)weiri_alloc_fail_nth(n);
        status = weir_layout_create_hindexed(lengths.size(), lengths.data(), places.data(), column, &out);
        (void)weiri_alloc_fail_nth(0);
        EXPECT_TRUE(status == WEIR_OK || status == WEIR_ERR_NOMEM);
        weir_layout_destroy(out);
        EXPECT_EQ(weiri_alloc_alive(), alive) << n;
    }
    EXPECT_GT(n, 6u);
}

TEST(Layout, Equal)
{
    const layout item = bytes(4);
    const auto *of = static_cast<const weir_layout *>(item);
    // Runs of 8 whose ends touch: a vector of pairs, and the runs that its bytes make.
    const layout pair(weir_layout_create_hvector, 2u, 1u, 10, of);
    const layout pairs(weir_layout_create_hvector, 3u, 1u, 14, static_cast<const weir_layout *>(pair));
    uint64_t lengths[] = { 4, 8, 8, 4 };
    int64_t places[] = { 0, 10, 24, 38 };
    const layout byte = bytes(1);
    const auto *of_byte = static_cast<const weir_layout *>(byte);
    const layout runs(weir_layout_create_hindexed, 4u, lengths, places, of_byte);
    EXPECT_EQ(pairs.info().pieces, 0u);
    EXPECT_EQ(runs.info().pieces, 4u);
    EXPECT_TRUE(weir_layout_equal(pairs, runs));
    EXPECT_TRUE(weir_layout_equal(runs, pairs));
    const layout bounded(weir_layout_create_resized, -9, 1000, static_cast<const weir_layout *>(runs));
    EXPECT_TRUE(weir_layout_equal(bounded, pairs));
    places[3] = 39;
    EXPECT_FALSE(weir_layout_equal(layout(weir_layout_create_hindexed, 4u, lengths, places, of_byte), pairs));
    lengths[3] = 3;
    EXPECT_FALSE(weir_layout_equal(layout(weir_layout_create_hindexed, 4u, lengths, places, of_byte), pairs));
    // 2^50 items are compared as one.
    const uint64_t many = static_cast<uint64_t>(1) << 50;
    places[3] = 38;
    lengths[3] = 4;
    const layout all_runs(
        weir_layout_create_hvector, many, 1u, 64,
        static_cast<const weir_layout *>(layout(weir_layout_create_hindexed, 4u, lengths, places, of_byte)));
    const layout all_pairs(weir_layout_create_hvector, many, 1u, 64, static_cast<const weir_layout *>(pairs));
    EXPECT_TRUE(weir_layout_equal(all_runs, all_pairs));
    // The same bytes in another order.
    const layout rows(weir_layout_create_hvector, 3u, 1u, 10,
                      static_cast<const weir_layout *>(layout(weir_layout_create_hvector, 2u, 1u, 100, of)));
    const layout columns(weir_layout_create_hvector, 2u, 1u, 100,
                         static_cast<const weir_layout *>(layout(weir_layout_create_hvector, 3u, 1u, 10, of)));
    EXPECT_FALSE(weir_layout_equal(rows, columns));
    EXPECT_TRUE(weir_layout_equal(irregular(2, true), irregular(2, true)));
    EXPECT_FALSE(weir_layout_equal(irregular(2, true), irregular(3, true)));
    EXPECT_FALSE(weir_layout_equal(irregular(2, true), irregular(2, false)));
    EXPECT_TRUE(weir_layout_equal(bytes(0), layout(weir_layout_create_contiguous, 0u, of)));
}

// Which byte goes where, as {place in to, place in from}, in order of the places in to.
std::vector<std::pair<int64_t, int64_t>> moves(const weir_layout_nest &to, const weir_layout_nest &from)
{
    std::vector<std::pair<int64_t, int64_t>> out;
    for (uint64_t at = 0; at < to.size; at++) {
        uint64_t in_to = 0;
        uint64_t in_from = 0;
        const int64_t place = weir_layout_nest_at(&to, at, &in_to);
        const int64_t source = weir_layout_nest_at(&from, at, &in_from);
        out.emplace_back(place + static_cast<int64_t>(in_to), source + static_cast<int64_t>(in_from));
    }
    std::sort(out.begin(), out.end());
    return out;
}

// A nest of 48 * 2^n bytes whose bytes do not overlap, with its dims in any order.
weir_layout_nest random_nest(std::mt19937_64 &random, uint64_t size)
{
    std::vector<uint64_t> counts;
    const uint64_t run = 1 + random() % 3;
    uint64_t rest = size / (run == 3 ? 3 : run);
    for (uint64_t count = 2; rest > 1; count = 2 + random() % 3) {
        counts.push_back(rest % count == 0 ? count : rest);
        rest /= counts.back();
    }
    std::shuffle(counts.begin(), counts.end(), random);
    weir_layout_nest nest = weiri_layout_form_of_run(run).nest;
    std::vector<std::pair<uint64_t, int64_t>> all;
    int64_t stride = static_cast<int64_t>(run + random() % 2);
    for (const uint64_t count : counts) {
        all.emplace_back(count, random() % 3 == 0 ? -stride : stride);
        stride *= static_cast<int64_t>(count + random() % 2);
    }
    std::shuffle(all.begin(), all.end(), random);
    nest.offset = static_cast<int64_t>(random() % 1000) - 500;
    for (const auto &[count, step] : all) {
        if (!weiri_layout_nest_repeat(&nest, false, count, step, WEIR_LAYOUT_DIMS + 1)) {
            return random_nest(random, size); // more dims than a nest has
        }
    }
    return nest;
}

TEST(Layout, RefinedCopiesMoveTheSameBytes)
{
    const uint64_t seed = std::random_device()();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    uint32_t refined = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        const uint64_t size = static_cast<uint64_t>(6) << random() % 6;
        weir_layout_nest to = random_nest(random, size);
        weir_layout_nest from = random_nest(random, size);
        ASSERT_EQ(to.size, size);
        const auto want = moves(to, from);
        refined += weiri_layout_refine(&to, &from) ? 1 : 0;
        ASSERT_EQ(to.size, size);
        ASSERT_EQ(from.size, size);
        ASSERT_EQ(moves(to, from), want) << i;
    }
    EXPECT_GT(refined, 100u);
    EXPECT_LT(refined, 1000u);
}

TEST(Layout, RefinedCopiesFollowTheDestination)
{
    // Two transposed descriptions of 4 rows of 8 bytes become rows.
    const layout item = bytes(1);
    const layout column(weir_layout_create_hvector, 4u, 1u, 100, static_cast<const weir_layout *>(item));
    const layout columns(weir_layout_create_hvector, 8u, 1u, 1, static_cast<const weir_layout *>(column));
    const layout wide(weir_layout_create_hvector, 4u, 1u, -32, static_cast<const weir_layout *>(item));
    const layout wides(weir_layout_create_hvector, 8u, 1u, 1, static_cast<const weir_layout *>(wide));
    weir_layout_nest to = wides.of->form.nest;
    weir_layout_nest from = columns.of->form.nest;
    ASSERT_TRUE(weiri_layout_refine(&to, &from));
    EXPECT_EQ(to.run, 8u);
    EXPECT_EQ(from.run, 8u);
    ASSERT_EQ(to.dims, 1u);
    EXPECT_EQ(to.offset, -96);
    EXPECT_EQ(to.dim[0].stride, 32);
    EXPECT_EQ(from.offset, 300);
    EXPECT_EQ(from.dim[0].stride, -100);
    // Runs of 6 and of 4 do not divide.
    weir_layout_nest six =
        layout(weir_layout_create_hvector, 2u, 6u, 50, static_cast<const weir_layout *>(item)).of->form.nest;
    weir_layout_nest four =
        layout(weir_layout_create_hvector, 3u, 4u, 50, static_cast<const weir_layout *>(item)).of->form.nest;
    EXPECT_FALSE(weiri_layout_refine(&six, &four));
    EXPECT_EQ(six.run, 6u);
}

std::vector<char> exported(const layout &l)
{
    size_t length = 0;
    expect_refused(weir_layout_export(l, nullptr, &length), WEIR_ERR_RANGE, "bytes needed, 0 given");
    std::vector<char> out(length);
    EXPECT_EQ(weir_layout_export(l, out.data(), &length), WEIR_OK) << weir_last_error();
    EXPECT_EQ(length, out.size());
    return out;
}

TEST(Layout, ExportAndImport)
{
    const layout plain = irregular(1, false);
    const layout nests = irregular(1, true);
    const layout item = bytes(4);
    std::vector<layout> all;
    all.push_back(bytes(0));
    all.push_back(bytes(9));
    all.emplace_back(weir_layout_create_resized, -50, -9, static_cast<const weir_layout *>(item));
    all.emplace_back(weir_layout_create_hvector, 3u, 2u, -17, static_cast<const weir_layout *>(item));
    all.emplace_back(weir_layout_create_hvector, 3u, 2u, 5000, static_cast<const weir_layout *>(plain));
    all.emplace_back(weir_layout_create_resized, -5, 7000, static_cast<const weir_layout *>(nests));
    // A list whose joined pieces have left a nest that no piece uses.
    const layout spaced(weir_layout_create_resized, 0, 10, static_cast<const weir_layout *>(item));
    const uint64_t lengths[] = { 2, 1, 1, 5 };
    const int64_t places[] = { 50, 5, 6, 7 };
    all.emplace_back(weir_layout_create_indexed, 4u, lengths, places, static_cast<const weir_layout *>(spaced));
    EXPECT_EQ(all.back().info().pieces, 2u);
    EXPECT_EQ(all.back().of->form.list->nest_count, 3u);
    for (const layout &l : all) {
        const std::vector<char> data = exported(l);
        const layout again(weir_layout_import, static_cast<const void *>(data.data()), data.size());
        EXPECT_TRUE(weir_layout_equal(l, again));
        const weir_layout_info a = l.info();
        const weir_layout_info b = again.info();
        EXPECT_EQ(memcmp(&a, &b, sizeof a), 0);
        EXPECT_EQ(exported(again), data);
        weir_layout *out = nullptr;
        for (size_t length = 0; length < data.size(); length++) {
            expect_refused(weir_layout_import(data.data(), length, &out), WEIR_ERR_CORRUPT, "weir_layout_import: ");
        }
    }
}

TEST(Layout, ImportRunsShortOfMemory)
{
    const std::vector<char> data = exported(irregular(1, true));
    const int64_t alive = weiri_alloc_alive();
    uint64_t failures = 0;
    for (weir_status status = WEIR_ERR_NOMEM; status != WEIR_OK; failures++) {
        weir_layout *out = nullptr;
        (void)weiri_alloc_fail_nth(failures + 1);
        status = weir_layout_import(data.data(), data.size(), &out);
        (void)weiri_alloc_fail_nth(0);
        EXPECT_TRUE(status == WEIR_OK || status == WEIR_ERR_NOMEM);
        weir_layout_destroy(out);
        EXPECT_EQ(weiri_alloc_alive(), alive) << failures;
    }
    EXPECT_EQ(failures, 6u); // of the layout, the list, its pieces, nests and indices; the last import succeeds
}

// Each single bit turned: the import refuses it, or makes another layout that exports to these bytes.
TEST(Layout, ImportOfOtherBits)
{
    const layout nests = irregular(1, true);
    const layout l(weir_layout_create_hvector, 3u, 2u, 5000, static_cast<const weir_layout *>(nests));
    const std::vector<char> data = exported(l);
    uint32_t refused = 0;
    for (size_t i = 0; i < data.size() * 8; i++) {
        std::vector<char> other = data;
        other[i / 8] = static_cast<char>(other[i / 8] ^ (1 << i % 8));
        weir_layout *out = nullptr;
        const weir_status status = weir_layout_import(other.data(), other.size(), &out);
        if (status != WEIR_OK) {
            EXPECT_EQ(status, i / 8 == 4 || i / 8 == 5 ? WEIR_ERR_VERSION : WEIR_ERR_CORRUPT) << i;
            refused++;
            continue;
        }
        layout made;
        made.of = out;
        EXPECT_EQ(exported(made), other);
        EXPECT_FALSE(weir_layout_equal(made, l)) << i;
    }
    EXPECT_GT(refused, 100u);
    // Lengths that are not there are refused before memory is taken.
    std::vector<char> huge = exported(irregular(1, false));
    const size_t count_at = 4 + 2 + 1 + 8 + 9;
    const uint32_t pieces = 1u << 30;
    memcpy(huge.data() + count_at, &pieces, sizeof pieces);
    weir_layout *out = nullptr;
    expect_refused(weir_layout_import(huge.data(), huge.size(), &out), WEIR_ERR_CORRUPT, "list of a wrong size");
}

// An exported run of one byte inside `dims` dims of {count, stride}; the encoding is that of export.c.
std::vector<char> nest_image(uint8_t dims, uint64_t count, int64_t stride)
{
    std::vector<char> image = exported(layout(weir_layout_create_bytes, 1u));
    image.back() = static_cast<char>(dims); // a run without dims ends with their number
    for (uint8_t i = 0; i < dims; i++) {
        const int64_t place = stride * (2 * (dims - i) - 1); // two dims of 2 are not joined
        const char *words[] = { reinterpret_cast<const char *>(&count), reinterpret_cast<const char *>(&place) };
        for (const char *word : words) {
            image.insert(image.end(), word, word + 8);
        }
    }
    return image;
}

TEST(Layout, ImportOfDimsOutOfBounds)
{
    const auto import = [](const std::vector<char> &image) {
        weir_layout *out = nullptr;
        const weir_status status = weir_layout_import(image.data(), image.size(), &out);
        weir_layout_destroy(out);
        return status;
    };
    EXPECT_EQ(import(nest_image(WEIR_LAYOUT_DIMS, 2, 1000)), WEIR_OK) << weir_last_error();
    expect_refused(import(nest_image(WEIR_LAYOUT_DIMS + 1, 2, 1000)), WEIR_ERR_CORRUPT, "a run of a wrong size");
    expect_refused(import(nest_image(255, 2, 1000)), WEIR_ERR_CORRUPT, "a run of a wrong size");
    expect_refused(import(nest_image(1, 0, 1000)), WEIR_ERR_CORRUPT, "wrong dims");
    expect_refused(import(nest_image(1, 1, 1000)), WEIR_ERR_CORRUPT, "wrong dims");
    expect_refused(import(nest_image(2, UINT64_C(1) << 32, 1000)), WEIR_ERR_CORRUPT, "wrong dims"); // 2^64 bytes
    expect_refused(import(nest_image(1, (UINT64_C(1) << 62) + 1, 0)), WEIR_ERR_CORRUPT, "wrong dims");
    expect_refused(import(nest_image(1, 2, INT64_C(1) << 62)), WEIR_ERR_CORRUPT, "wrong place");
    expect_refused(import(nest_image(1, 2, (INT64_C(1) << 62) + 1)), WEIR_ERR_CORRUPT, "wrong dims");
}

class LayoutDevice : public ::testing::Test {
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
    // The handle has the list, in memory of the device.
    void expect_list(const layout &l)
    {
        weir_dev_layout handle;
        ASSERT_EQ(weir_layout_device(l, device, 1, &handle), WEIR_OK) << weir_last_error();
        const weiri_layout_list *list = l.of->form.list;
        ASSERT_EQ(handle.piece_count, list->count);
        EXPECT_NE(handle.pieces, list->pieces);
        EXPECT_EQ(memcmp(handle.pieces, list->pieces, (list->count + 1u) * sizeof *list->pieces), 0);
        EXPECT_EQ(handle.nest_count, list->nest_count);
        EXPECT_EQ(handle.nest_of == nullptr, list->nest_of == nullptr);
        if (list->nest_of != nullptr) {
            EXPECT_EQ(memcmp(handle.nests, list->nests, list->nest_count * sizeof *list->nests), 0);
            EXPECT_EQ(memcmp(handle.nest_of, list->nest_of, list->count * sizeof *list->nest_of), 0);
        }
    }
    int64_t alive = 0;
    weir_device *device = nullptr;
};

TEST_F(LayoutDevice, HandlesOfItems)
{
    const layout item = bytes(4);
    const layout vector(weir_layout_create_hvector, 3u, 1u, 16, static_cast<const weir_layout *>(item));
    weir_dev_layout handle;
    ASSERT_EQ(weir_layout_device(vector, device, 5, &handle), WEIR_OK);
    EXPECT_EQ(handle.nest.dims, 2u);
    EXPECT_EQ(handle.nest.dim[0].count, 5u);
    EXPECT_EQ(handle.nest.dim[0].stride, 36); // item 2 begins one extent later
    EXPECT_EQ(handle.nest.size, 60u);
    EXPECT_EQ(handle.first, 0);
    EXPECT_EQ(handle.last, 4 * 36 + 36);
    EXPECT_EQ(handle.pieces, nullptr);
    uint64_t into = 0;
    EXPECT_EQ(weir_layout_nest_at(&handle.nest, 12 + 4 + 3, &into), 36 + 16);
    EXPECT_EQ(into, 3u);
    ASSERT_EQ(weir_layout_device(item, device, 5, &handle), WEIR_OK);
    EXPECT_EQ(handle.nest.run, 20u);
    ASSERT_EQ(weir_layout_device(vector, device, 0, &handle), WEIR_OK);
    EXPECT_EQ(handle.nest.size, 0u);
    expect_refused(weir_layout_device(vector, device, static_cast<uint64_t>(1) << 60, &handle), WEIR_ERR_RANGE,
                   "weir_layout_device: ");
    // Eight dims and one for the items.
    layout deep = bytes(1);
    for (int64_t i = 0; i < 8; i++) {
        weir_layout *next = nullptr;
        ASSERT_EQ(weir_layout_create_hvector(2, 1, static_cast<int64_t>(1) << (2 * i + 1), deep.of, &next), WEIR_OK);
        weir_layout_destroy(deep.of);
        deep.of = next;
    }
    ASSERT_EQ(weir_layout_device(deep, device, 3, &handle), WEIR_OK);
    EXPECT_EQ(handle.nest.dims, 9u);
    EXPECT_EQ(handle.nest.dim[0].count, 3u);
    EXPECT_EQ(handle.nest.size, 768u);
}

TEST_F(LayoutDevice, Commit)
{
    const layout plain = irregular(1, false);
    weir_dev_layout handle;
    expect_refused(weir_layout_device(plain, device, 1, &handle), WEIR_ERR_INVALID, "not committed to CPU");
    const layout derived(weir_layout_create_hvector, 3u, 1u, 5000, static_cast<const weir_layout *>(plain));
    ASSERT_EQ(weir_layout_commit(plain.of, device), WEIR_OK) << weir_last_error();
    expect_list(plain);
    expect_list(derived);
    ASSERT_EQ(weir_layout_commit(derived.of, device), WEIR_OK);
    std::vector<layout> more;
    weir_dev_layout first;
    ASSERT_EQ(weir_layout_device(plain, device, 1, &first), WEIR_OK);
    for (uint64_t i = 0; i < 20; i++) {
        more.push_back(irregular(i, i % 2 == 1));
        ASSERT_EQ(weir_layout_commit(more.back().of, device), WEIR_OK);
        ASSERT_EQ(weir_layout_device(more.back(), device, 1, &handle), WEIR_OK);
        EXPECT_LT(reinterpret_cast<uintptr_t>(handle.pieces) - reinterpret_cast<uintptr_t>(first.pieces), 2u << 20);
        if (i % 3 == 2) {
            more.erase(more.end() - 2); // leaves a gap for the next ones
        }
    }
    expect_list(plain);
    for (const layout &l : more) {
        expect_list(l);
    }
}

// Threads commit layouts that share a list, and others, and destroy them.
TEST_F(LayoutDevice, CommitsOfSeveralThreads)
{
    const layout shared = irregular(7, true);
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 4; t++) {
        threads.emplace_back([&, t] {
            for (uint64_t i = 0; i < 50; i++) {
                const layout own = irregular(t * 50 + i, i % 2 == 0);
                const layout derived(weir_layout_create_dup, static_cast<const weir_layout *>(shared));
                EXPECT_EQ(weir_layout_commit(own.of, device), WEIR_OK);
                EXPECT_EQ(weir_layout_commit(derived.of, device), WEIR_OK);
                expect_list(own);
                expect_list(derived);
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    expect_list(shared);
}

// Each allocation and each operation of the device fails once: nothing is left, and the next commit succeeds.
TEST_F(LayoutDevice, CommitFails)
{
    for (const bool of_device : { false, true }) {
        const layout l = irregular(3, true);
        const int64_t before = weiri_alloc_alive();
        auto *arm = of_device ? weiri_device_fail_nth : weiri_alloc_fail_nth;
        uint64_t n = 1;
        for (weir_status status = WEIR_ERR_NOMEM; status != WEIR_OK; n++) {
            (void)arm(n);
            status = weir_layout_commit(l.of, device);
            (void)arm(0);
            if (status != WEIR_OK) {
                EXPECT_EQ(status, of_device ? WEIR_ERR_DEVICE : WEIR_ERR_NOMEM) << weir_last_error();
                EXPECT_EQ(weiri_alloc_alive(), before);
            }
        }
        EXPECT_GT(n, 3u);
        expect_list(l);
    }
}

} // namespace
