// Shapes of collectives' kernels: all of their blocks fit on a GPU at the same time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

extern "C" {
#include "src/host/collective/collective.h"
#include "weir/error.h"
}

namespace {

constexpr uint32_t multiprocessor_threads = 1024; // with 64 registers each

// A collective on a GPU with that number of multiprocessors.
weir_collective make(uint32_t multiprocessors, uint32_t ranks, bool shared)
{
    weir_collective c = {};
    c.device.ranks = ranks;
    c.device.blocks = multiprocessors * (shared ? WEIRI_OVERSUBSCRIPTION : 1);
    c.device.slot_columns = ranks == 2 ? c.device.blocks : weir_slots_columns(c.device.blocks);
    c.device.packet_room = 1 << 20;
    c.device.line_room = 9 << 20;
    c.sm_limit = multiprocessors;
    c.warps = true;
    c.host.lines = true;
    c.most_threads = 1024;
    return c;
}

weiri_work work_of(weir_collective_kind kind, uint64_t bytes, uint64_t piece)
{
    weiri_work work = {};
    work.kind = kind;
    work.bytes = bytes;
    work.piece = piece;
    return work;
}

weir_shape choose(const weir_collective *c, weiri_work work, weir_collective_form form)
{
    weir_shape shape = {};
    work.device = &c->device;
    EXPECT_EQ(weiri_choose(c, &work, "test", &form, &shape), WEIR_OK);
    return shape;
}

void fits(const weir_collective *c, const weir_shape &shape)
{
    EXPECT_GE(shape.blocks, 1u);
    EXPECT_GE(shape.threads, 32u);
    if (shape.blocks <= c->sm_limit) {
        EXPECT_LE(shape.threads, multiprocessor_threads);
    } else {
        const uint32_t side_by_side = multiprocessor_threads / shape.threads;
        EXPECT_LE(shape.blocks, c->sm_limit * side_by_side) << shape.blocks << " of " << shape.threads;
        EXPECT_GE(shape.blocks * shape.threads, c->sm_limit * 512) << shape.blocks << " of " << shape.threads;
    }
}

TEST(CollectiveShape, BlocksFitSideBySide)
{
    for (uint32_t multiprocessors : { 1u, 2u, 7u, 10u, 22u, 31u, 40u, 58u, 63u, 64u, 66u, 108u, 132u, 148u }) {
        for (uint32_t ranks : { 2u, 3u, 8u }) {
            const weir_collective c = make(multiprocessors, ranks, ranks > 2);
            uint32_t most = 0;
            for (uint64_t piece = 1; piece <= (uint64_t)1 << 32; piece = piece * 3 / 2 + 1) {
                const weiri_work work = work_of(WEIR_ALL_TO_ALL, piece * ranks, piece);
                const weir_shape shape = choose(&c, work, WEIR_FORM_SLOTS);
                fits(&c, shape);
                EXPECT_GE(shape.blocks, most);
                most = shape.blocks;
            }
            EXPECT_EQ(most, c.device.blocks);
        }
    }
}

TEST(CollectiveShape, SomeHaveAMultiprocessorForEachBlock)
{
    const uint64_t piece = (uint64_t)64 << 20;
    weir_collective c = make(132, 4, true);
    weiri_work work = work_of(WEIR_ALLGATHER, 4 * piece, piece);
    work.zero_copy = true;
    const weir_shape zero_copy = choose(&c, work, WEIR_FORM_SLOTS);
    EXPECT_EQ(zero_copy.blocks, 132u);
    EXPECT_EQ(zero_copy.threads, 512u);
    work = work_of(WEIR_ALL_TO_ALL, 4 * piece, piece);
    work.zero_copy = true;
    EXPECT_EQ(choose(&c, work, WEIR_FORM_SLOTS).blocks, 132u);
    work.in_place = true; // through slots, though the memory is registered
    EXPECT_EQ(choose(&c, work, WEIR_FORM_SLOTS).blocks, 528u);
    work = work_of(WEIR_ALLREDUCE, 4 * piece, piece);
    work.alone = true;
    const weir_shape alone = choose(&c, work, WEIR_FORM_SLOTS);
    EXPECT_EQ(alone.blocks, 132u);
    const weir_shape lines = choose(&c, work_of(WEIR_ALLGATHER, 4 << 20, 1 << 20), WEIR_FORM_LINES);
    EXPECT_EQ(lines.blocks, 132u);
    for (uint32_t forced : { 1u, 16u, 131u, 132u }) {
        c.forced = forced;
        const weir_shape shape = choose(&c, work_of(WEIR_ALLGATHER, 4 * piece, piece), WEIR_FORM_SLOTS);
        EXPECT_EQ(shape.blocks, forced);
        EXPECT_EQ(shape.threads, forced < 64 ? 1024u : 512u);
    }
}

// Blocks that are too few for the data have more threads, except in a user's kernel, whose registers are unknown.
TEST(CollectiveShape, FewBlocksByPacketsHaveMoreThreads)
{
    weir_collective c = make(132, 2, false);
    const uint64_t bytes = 16 << 10; // 2,048 packets: eight blocks of 256 threads, and one warp
    weiri_work work = work_of(WEIR_ALLREDUCE, bytes, bytes / 2);
    const weir_shape enough = choose(&c, work, WEIR_FORM_ONCE);
    EXPECT_EQ(enough.blocks, 9u);
    EXPECT_EQ(enough.threads, 256u);
    c.forced = 8;
    const weir_shape few = choose(&c, work, WEIR_FORM_ONCE);
    EXPECT_EQ(few.blocks, 8u);
    EXPECT_EQ(few.threads, 384u);
    EXPECT_EQ(choose(&c, work_of(WEIR_REDUCE, 1 << 20, 1 << 19), WEIR_FORM_LINES).threads, 384u);
    EXPECT_EQ(choose(&c, work_of(WEIR_ALLREDUCE, 1 << 20, 1 << 19), WEIR_FORM_SLOTS).threads, 1024u);
    work.alone = true;
    EXPECT_EQ(choose(&c, work, WEIR_FORM_ONCE).threads, 256u);
    work.alone = false;
    c.threads = c.most_threads = 128; // opts.threads
    EXPECT_EQ(choose(&c, work, WEIR_FORM_ONCE).threads, 128u);
    c.threads = 0;
    c.most_threads = 1024;
    c.warps = false; // a CPU
    EXPECT_EQ(choose(&c, work, WEIR_FORM_ONCE).threads, 256u);
}

// Kernels by lines for two ranks: a thread for each lane of a line and one idle warp, 512 threads if that is more, and
// 1,024 in few blocks that take many rounds. An allreduce joins all data, the others half of it.
TEST(CollectiveShape, BlocksForTwoRanksFitTheirLines)
{
    const struct {
        weir_collective_kind kind;
        uint64_t kib;
        uint32_t limit;
        uint32_t threads;
    } rows[] = {
        { WEIR_REDUCE_SCATTER, 64, 8, 320 },    { WEIR_REDUCE_SCATTER, 2048, 16, 512 },
        { WEIR_ALLREDUCE, 64, 16, 320 },        { WEIR_REDUCE_SCATTER, 256, 24, 416 },
        { WEIR_ALLGATHER, 256, 8, 512 },        { WEIR_ALL_TO_ALL, 1024, 8, 512 },
        { WEIR_ALLREDUCE, 1024, 8, 1024 },      { WEIR_ALLREDUCE, 1024, 16, 512 },
        { WEIR_ALLREDUCE, 1024, 24, 512 },      { WEIR_REDUCE_SCATTER, 8192, 16, 1024 },
        { WEIR_REDUCE_SCATTER, 8192, 24, 512 }, { WEIR_REDUCE, 1024, 8, 384 },
    };
    for (const auto &row : rows) {
        weir_collective c = make(132, 2, false);
        c.limited = true;
        c.sm_limit = row.limit;
        const weir_shape shape = choose(&c, work_of(row.kind, row.kib << 10, row.kib << 9), WEIR_FORM_LINES);
        EXPECT_EQ(shape.blocks, row.limit) << row.kind << " of " << row.kib;
        EXPECT_EQ(shape.threads, row.threads) << row.kind << " of " << row.kib;
        weiri_work parts = work_of(row.kind, row.kib << 10, row.kib << 9);
        parts.parts = WEIRI_PARTS_MANY;
        EXPECT_LE(choose(&c, parts, WEIR_FORM_LINES).threads, 384u);
    }
}

// A staging that has not grown has slots for some columns only. Zero copies need no slots.
TEST(CollectiveShape, OnlyColumnsWithSlotsGoBySlots)
{
    const uint64_t piece = (uint64_t)64 << 20;
    weir_collective c = make(132, 4, true);
    c.device.slot_columns = 12;
    weiri_work work = work_of(WEIR_ALLGATHER, 4 * piece, piece);
    EXPECT_EQ(choose(&c, work, WEIR_FORM_SLOTS).blocks, 24u);
    c.forced = 132;
    EXPECT_EQ(choose(&c, work, WEIR_FORM_SLOTS).blocks, 24u);
    EXPECT_EQ(choose(&c, work_of(WEIR_ALLGATHER, 4 << 20, 1 << 20), WEIR_FORM_LINES).blocks, 132u);
    work.zero_copy = true;
    EXPECT_EQ(choose(&c, work, WEIR_FORM_SLOTS).blocks, 132u);
}

TEST(CollectiveShape, RowsAreBound)
{
    const uint64_t piece = (uint64_t)64 << 20;
    const weiri_work work = work_of(WEIR_ALLGATHER, 4 * piece, piece);
    for (bool shared : { false, true }) {
        for (uint32_t blocks : { 0u, 1u, 132u, 140u, 300u, 528u, 100000u }) {
            for (uint32_t threads : { 0u, 32u, 256u, 512u, 1024u }) {
                weir_collective c = make(132, 4, shared);
                weiri_row row = { 1u << WEIR_ALLGATHER, 4, UINT64_MAX, WEIR_FORM_SLOTS, blocks, threads, 0 };
                c.rows = &row;
                c.row_count = 1;
                const weir_shape shape = choose(&c, work, WEIR_FORM_AUTO);
                EXPECT_LE(shape.blocks, c.device.blocks);
                EXPECT_LE(shape.blocks <= 132 ? 0 : shape.blocks * shape.threads, 132u * multiprocessor_threads);
                if (blocks != 0 && blocks <= 132) {
                    EXPECT_EQ(shape.blocks, blocks);
                }
                if (threads != 0 && shape.blocks <= 132) {
                    EXPECT_EQ(shape.threads, threads);
                }
            }
        }
    }
}

weir_collective_form form_for(const weir_collective *c, weiri_work work)
{
    weir_collective_form form = WEIR_FORM_AUTO;
    weir_shape shape = {};
    work.device = &c->device;
    EXPECT_EQ(weiri_choose(c, &work, "test", &form, &shape), WEIR_OK);
    return form;
}

// Parts between two ranks go by lines up to a number of KiB for each block that depends on their kind. Among more ranks
// the bound is higher. Lines need room for padding.
TEST(CollectiveShape, PartsGoByLinesUpToABound)
{
    const struct {
        uint32_t parts;
        uint64_t kib;
    } rows[] = { { WEIRI_PARTS_MANY, 270 }, { WEIRI_PARTS_ONE_MISALIGNED, 150 }, { WEIRI_PARTS_MISALIGNED, 1024 } };
    for (const auto &row : rows) {
        for (const weir_collective_kind kind : { WEIR_REDUCE_SCATTER, WEIR_ALLGATHER }) {
            for (const uint64_t more : { 0, 1 }) {
                weir_collective c = make(132, 2, false);
                c.limited = true;
                c.sm_limit = 4;
                const uint64_t bytes = 4 * (row.kib + more) << 10;
                weiri_work work = work_of(kind, bytes, bytes / 2);
                work.parts = row.parts;
                EXPECT_EQ(form_for(&c, work), more == 0 ? WEIR_FORM_LINES : WEIR_FORM_SLOTS) << kind << " " << row.kib;
                work.padding = WEIRI_LINE_ROOMS_OF_TWO * c.device.line_room;
                EXPECT_NE(form_for(&c, work), WEIR_FORM_LINES);
                c.device.ranks = 4;
                work = work_of(kind, 4 * 290 << 10, 290 << 10);
                work.parts = row.parts;
                EXPECT_EQ(form_for(&c, work), WEIR_FORM_LINES);
            }
        }
    }
}

weir_collective_form form_of(const weir_collective *c, uint64_t bytes)
{
    return form_for(c, work_of(WEIR_ALLREDUCE, bytes, bytes / 2));
}

// The most bytes for each multiprocessor of an SM limit that lines carry, by operation and with registered memory.
// There the bound of reductions grows by 2 KiB with each multiprocessor, and that of broadcasts which ranks pass on
// everywhere by 10 KiB. Reduce_scatters have the same bound by all limits above 16. Lines carry at most 8 MiB, but of
// those broadcasts what they have room for, and between registered memories pieces of at most 1 MiB of reductions and 2
// of moves.
TEST(CollectiveShape, AnSmLimitLeavesLargeDataToSlots)
{
    const struct {
        weir_collective_kind kind;
        uint32_t ranks;
        bool zero_copy;
        uint64_t kib;
        uint64_t more; // KiB for each multiprocessor
    } rows[] = {
        { WEIR_REDUCE, 2, false, 300, 0 },       { WEIR_BROADCAST, 2, false, 300, 0 },
        { WEIR_GATHER, 2, false, 600, 0 },       { WEIR_ALLREDUCE, 4, false, 300, 0 },
        { WEIR_ALLGATHER, 4, false, 600, 0 },    { WEIR_ALLREDUCE, 4, true, 38, 2 },
        { WEIR_REDUCE_SCATTER, 4, true, 72, 2 }, { WEIR_ALLGATHER, 4, true, 70, 0 },
        { WEIR_ALL_TO_ALL, 4, true, 200, 0 },    { WEIR_BROADCAST, 4, false, 200, 10 },
        { WEIR_BROADCAST, 4, true, 60, 10 },
    };
    const uint64_t eight = 8 << 20;
    weir_collective c = make(132, 2, false);
    c.device.packet_room = 64 << 20;
    EXPECT_EQ(form_of(&c, 8 << 20), WEIR_FORM_LINES);
    c.forced = 132; // all
    EXPECT_EQ(form_of(&c, 8 << 20), WEIR_FORM_LINES);
    for (const auto &row : rows) {
        for (uint32_t limit : { 1u, 4u, 8u, 13u, 16u, 24u, 32u }) {
            for (bool forced : { false, true }) {
                c.forced = forced ? limit : 0;
                c.limited = !forced;
                c.sm_limit = forced ? 132 : limit;
                c.device.ranks = row.ranks;
                const bool passed_on = row.kind == WEIR_BROADCAST && row.ranks > 2;
                const bool reduces = row.kind == WEIR_ALLREDUCE || row.kind == WEIR_REDUCE_SCATTER;
                const uint64_t piece = (uint64_t)(reduces ? 1 : 2) << 20;
                const uint64_t lines = row.zero_copy ? std::min(eight, row.ranks * piece) : eight;
                const bool fixed = row.zero_copy && row.kind == WEIR_REDUCE_SCATTER && limit > 16;
                const uint64_t share = limit * ((fixed ? 140 : row.kib + row.more * limit) << 10);
                const uint64_t most = passed_on ? share : std::min(share, lines);
                weiri_work work = work_of(row.kind, most, most / row.ranks);
                work.zero_copy = row.zero_copy;
                EXPECT_EQ(form_for(&c, work), WEIR_FORM_LINES) << row.kind << " by " << limit;
                work = work_of(row.kind, most + row.ranks, most / row.ranks + 1);
                work.zero_copy = row.zero_copy;
                EXPECT_EQ(form_for(&c, work), WEIR_FORM_SLOTS) << row.kind << " by " << limit;
            }
        }
    }
}

// By up to eight blocks of two ranks each block of a reduction is a column.
TEST(CollectiveShape, FewBlocksOfTwoRanksAreColumns)
{
    weir_dev_collective c = {};
    c.ranks = 2;
    for (uint32_t blocks = 1; blocks <= 8; blocks++) {
        EXPECT_EQ(weir_reduce_columns(&c, blocks), blocks);
    }
    EXPECT_EQ(weir_reduce_columns(&c, 9), 4u);
    c.ranks = 3;
    EXPECT_EQ(weir_reduce_columns(&c, 6), 3u);
}

// Between two ranks lines go on behind their room: over two rooms in each section of a half, or over all four of a half
// whose second section has no data. Calls that follow each other use different halves.
TEST(CollectiveShape, LinesOfTwoRanksLieApart)
{
    weir_dev_collective c = {};
    c.ranks = 2;
    for (c.rank = 0; c.rank < 2; c.rank++) {
        uint32_t used[9] = {};
        for (uint32_t half = 0; half < 2; half++) {
            for (uint32_t section = 0; section < 2; section++) {
                const uint64_t room = weir_collective_room(&c, 0, 1, section, half, 1 - c.rank);
                ASSERT_LE(room + WEIRI_LINE_ROOMS_OF_TWO / 2, 9u);
                used[room]++;
                used[room + 1]++;
            }
            const uint64_t first = weir_collective_room(&c, 0, 1, 0, half, 1 - c.rank);
            EXPECT_EQ(weir_collective_room(&c, 0, 1, 1, half, 1 - c.rank), first + WEIRI_LINE_ROOMS_OF_TWO / 2);
        }
        for (uint32_t i = 0; i < 8; i++) {
            EXPECT_EQ(used[i + 1 - c.rank], 1u) << i;
        }
    }
}

// Two ranks have kernels by lines of their own, which carry what is measured for the next smaller limit, or without
// one. Counts that are not multiples of 8 bytes have the general kernels, and parts have theirs.
TEST(CollectiveShape, LinesOfTwoRanksCarryWhatIsMeasured)
{
    const struct {
        weir_collective_kind kind;
        uint32_t limit;
        uint64_t mib;
    } rows[] = {
        { WEIR_ALLREDUCE, 7, 8 },    { WEIR_ALLREDUCE, 8, 18 },       { WEIR_ALLREDUCE, 15, 18 },
        { WEIR_ALLREDUCE, 0, 24 },   { WEIR_REDUCE_SCATTER, 24, 36 }, { WEIR_REDUCE_SCATTER, 32, 64 },
        { WEIR_ALLGATHER, 40, 20 },  { WEIR_ALLGATHER, 0, 28 },       { WEIR_ALL_TO_ALL, 16, 64 },
        { WEIR_ALL_TO_ALL, 31, 36 },
    };
    for (const auto &row : rows) {
        weir_collective c = make(132, 2, false);
        c.device.packet_room = 64 << 20;
        c.device.line_room = 64 << 20;
        c.limited = row.limit != 0;
        c.sm_limit = row.limit != 0 ? row.limit : 132;
        const uint64_t most = row.mib << 20;
        EXPECT_EQ(form_for(&c, work_of(row.kind, most, most / 2)), WEIR_FORM_LINES) << row.kind << " by " << row.limit;
        EXPECT_EQ(form_for(&c, work_of(row.kind, most + 16, most / 2 + 8)), WEIR_FORM_SLOTS) << row.kind;
        EXPECT_EQ(form_for(&c, work_of(row.kind, most - 4, most / 2 - 2)), WEIR_FORM_SLOTS) << row.kind;
        weiri_work work = work_of(row.kind, most, most / 2);
        work.parts = WEIRI_PARTS_MANY;
        EXPECT_EQ(form_for(&c, work), WEIR_FORM_SLOTS) << row.kind;
    }
}

// Between registered memories the bounds are lower, and lower still of sums.
TEST(CollectiveShape, TwoRanksHaveBoundsOfTheirOwn)
{
    const struct {
        weir_collective_kind kind;
        uint32_t limit;
        uint64_t kib;
        bool sums;
    } rows[] = {
        { WEIR_ALLREDUCE, 4, 300, false },          { WEIR_ALLREDUCE, 7, 300, false },
        { WEIR_ALLREDUCE, 8, 750, false },          { WEIR_ALLREDUCE, 23, 5000, false },
        { WEIR_ALLREDUCE, 32, 5600, false },        { WEIR_REDUCE_SCATTER, 8, 2048, false },
        { WEIR_REDUCE_SCATTER, 100, 10000, false }, { WEIR_ALLGATHER, 16, 3700, false },
        { WEIR_ALLGATHER, 24, 8500, false },        { WEIR_ALL_TO_ALL, 4, 700, false },
        { WEIR_ALL_TO_ALL, 16, 8300, false },       { WEIR_ALL_TO_ALL, 31, 9500, false },
        { WEIR_ALLREDUCE, 3, 235, true },           { WEIR_ALLREDUCE, 15, 600, true },
        { WEIR_ALLREDUCE, 16, 4200, true },         { WEIR_REDUCE_SCATTER, 8, 1450, true },
        { WEIR_REDUCE_SCATTER, 20, 5600, true },    { WEIR_REDUCE_SCATTER, 40, 10000, true },
    };
    for (const auto &row : rows) {
        weir_collective c = make(132, 2, false);
        c.device.packet_room = 64 << 20;
        c.limited = true;
        c.sm_limit = row.limit;
        weiri_work work = work_of(row.kind, row.kib << 10, row.kib << 9);
        work.zero_copy = true;
        work.sums = row.sums;
        EXPECT_EQ(form_for(&c, work), WEIR_FORM_LINES) << row.kind << " by " << row.limit;
        work = work_of(row.kind, (row.kib << 10) + 16, (row.kib << 9) + 8);
        work.zero_copy = true;
        work.sums = row.sums;
        EXPECT_EQ(form_for(&c, work), WEIR_FORM_SLOTS) << row.kind << " by " << row.limit;
    }
    weir_collective c = make(132, 2, false);
    c.device.line_room = 256 << 10; // four rooms have all data of an allreduce at once
    for (uint64_t kib : { 900u, 960u, 961u }) {
        weiri_work work = work_of(WEIR_ALLREDUCE, kib << 10, kib << 9);
        work.device = &c.device;
        EXPECT_EQ(weiri_choice_at_once(&c, &work), kib <= 960) << kib;
        EXPECT_EQ(form_for(&c, work) == WEIR_FORM_LINES, kib <= 960) << kib;
    }
    weiri_work work = work_of(WEIR_ALLREDUCE, 900 << 10, 450 << 10);
    c.host.lines = false;
    work.device = &c.device;
    EXPECT_FALSE(weiri_choice_at_once(&c, &work));
    // Without lines, an SM limit leaves large data to slots.
    c.limited = true;
    c.sm_limit = 1;
    EXPECT_EQ(form_for(&c, work_of(WEIR_ALLREDUCE, 512 << 10, 256 << 10)), WEIR_FORM_SLOTS);
}

// Without a limit, pieces of registered memory up to these go by lines. No more than 8 MiB in all do, and 16 MiB of
// operations between two ranks in which each receives a half.
TEST(CollectiveShape, LargePiecesGoDirectlyBetweenRegisteredMemories)
{
    const struct {
        weir_collective_kind kind;
        uint32_t ranks;
        uint64_t kib;
    } rows[] = { { WEIR_ALLREDUCE, 2, 4096 },      { WEIR_ALLGATHER, 2, 8192 }, { WEIR_ALL_TO_ALL, 2, 8192 },
                 { WEIR_REDUCE_SCATTER, 2, 8192 }, { WEIR_BROADCAST, 2, 4096 }, { WEIR_REDUCE, 2, 1024 },
                 { WEIR_GATHER, 2, 2048 },         { WEIR_ALLREDUCE, 4, 1024 }, { WEIR_ALLGATHER, 4, 2048 },
                 { WEIR_REDUCE_SCATTER, 4, 1024 }, { WEIR_ALL_TO_ALL, 4, 2048 } };
    for (const auto &row : rows) {
        weir_collective c = make(132, row.ranks, false);
        weiri_work work = work_of(row.kind, row.ranks * row.kib << 10, row.kib << 10);
        work.zero_copy = true;
        EXPECT_EQ(form_for(&c, work), WEIR_FORM_LINES) << row.kind << " of " << row.ranks;
        work = work_of(row.kind, row.ranks * ((row.kib << 10) + 8), (row.kib << 10) + 8);
        work.zero_copy = true;
        EXPECT_EQ(form_for(&c, work), WEIR_FORM_SLOTS) << row.kind << " of " << row.ranks;
    }
}

// Under an SM limit packets carry what the threads read at once: 12 KiB for each block between two ranks. There an
// allreduce goes by lines from 32 KiB on.
TEST(CollectiveShape, AnSmLimitLeavesTheRestToLines)
{
    const auto reduce = [](uint64_t bytes) { return work_of(WEIR_REDUCE, bytes, bytes / 2); };
    weir_collective c = make(132, 2, false);
    EXPECT_EQ(form_for(&c, reduce(256 << 10)), WEIR_FORM_ONCE);
    EXPECT_EQ(form_of(&c, 32 << 10), WEIR_FORM_ONCE);
    EXPECT_EQ(form_of(&c, (32 << 10) + 16), WEIR_FORM_LINES);
    EXPECT_EQ(form_of(&c, (32 << 10) + 2), WEIR_FORM_ONCE); // the general kernel has other bounds
    c.limited = true;
    for (uint32_t limit : { 1u, 2u, 8u, 16u }) {
        c.sm_limit = limit;
        EXPECT_EQ(form_for(&c, reduce(limit * (12 << 10))), WEIR_FORM_ONCE) << limit;
        EXPECT_EQ(form_for(&c, reduce(limit * (12 << 10) + 2)), WEIR_FORM_LINES) << limit;
    }
    c.sm_limit = 22;
    EXPECT_EQ(form_for(&c, reduce(256 << 10)), WEIR_FORM_ONCE);
    c.sm_limit = 1;
    c.host.lines = false; // a link that does not keep 128-byte stores whole
    EXPECT_EQ(form_of(&c, 32 << 10), WEIR_FORM_ONCE);
    weir_collective_form form = WEIR_FORM_LINES;
    weir_shape shape = {};
    weiri_work work = work_of(WEIR_ALLGATHER, 32 << 10, 16 << 10);
    work.device = &c.device;
    EXPECT_EQ(weiri_choose(&c, &work, "test", &form, &shape), WEIR_ERR_LIMIT);
    EXPECT_STREQ(weir_last_error(),
                 "test: WEIR_FORM_LINES is forced, but the link does not keep 128-byte stores whole");
    c.host.lines = true;
    form = WEIR_FORM_AUTO;
    EXPECT_EQ(weiri_choose(&c, &work, "test", &form, &shape), WEIR_OK);
    EXPECT_EQ(form, WEIR_FORM_LINES);
    c.device.ranks = 4; // a thread has two places at once, not four
    c.sm_limit = 8;
    EXPECT_EQ(form_of(&c, 48 << 10), WEIR_FORM_ONCE);
    form = WEIR_FORM_AUTO;
    work = work_of(WEIR_ALLREDUCE, 64 << 10, 16 << 10); // a place for each thread, in two trips
    work.device = &c.device;
    EXPECT_EQ(weiri_choose(&c, &work, "test", &form, &shape), WEIR_OK);
    EXPECT_EQ(form, WEIR_FORM_PACKETS);
}

TEST(CollectiveShape, RowsOfTheNextSmallerLimitCount)
{
    const uint32_t kinds = 1u << WEIR_ALLREDUCE;
    weiri_row rows[] = {
        { kinds, 2, 4096, WEIR_FORM_LINES, 0, 0, 0 },          { kinds, 2, 4096, WEIR_FORM_PACKETS, 0, 0, 16 },
        { kinds, 2, UINT64_MAX, WEIR_FORM_SLOTS, 0, 0, 8 },    { kinds, 2, 4096, WEIR_FORM_ONCE, 0, 0, 16 },
        { kinds, 2, UINT64_MAX, WEIR_FORM_PACKETS, 0, 0, 32 },
    };
    weir_collective c = make(132, 2, false);
    c.rows = rows;
    c.row_count = sizeof rows / sizeof rows[0];
    EXPECT_EQ(form_of(&c, 4096), WEIR_FORM_LINES); // without a limit
    c.limited = true;
    const struct {
        uint32_t limit;
        weir_collective_form form;
    } cases[] = { { 4, WEIR_FORM_LINES },    { 8, WEIR_FORM_SLOTS },    { 15, WEIR_FORM_SLOTS },
                  { 16, WEIR_FORM_PACKETS }, { 31, WEIR_FORM_PACKETS }, { 32, WEIR_FORM_PACKETS } };
    for (const auto &one : cases) {
        c.sm_limit = one.limit;
        EXPECT_EQ(form_of(&c, 4096), one.form) << one.limit;
    }
    c.sm_limit = 24; // the row for 16 ends at 4,096 bytes
    EXPECT_EQ(form_of(&c, 8192), WEIR_FORM_SLOTS);
    c.sm_limit = 64;
    EXPECT_EQ(form_of(&c, 8192), WEIR_FORM_PACKETS);
}

} // namespace
