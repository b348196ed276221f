// The device side of notified windows, on structures made by hand.
#include <algorithm>
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "weir/device/window.h"

#include "test/harness/ranks.h"
#include "test/harness/window.h"

namespace {

using windows::World;

constexpr uint64_t TIMEOUT_NS = 100000000;
constexpr uint32_t ANY = WEIR_ANY_RANK;

weir_coop alone() { return weir_coop_thread(weir_coop_part(0, 1)); }

weir_status notify(const World &world, uint32_t source, uint32_t target, uint32_t tag)
{
    const weir_dev_window_rank self = world.rank(source);
    return weir_dev_window_notify(&self, target, tag, alone());
}

weir_status wait(const World &world, uint32_t number, uint32_t source, uint32_t tag, uint64_t count = 1)
{
    const weir_dev_window_rank self = world.rank(number);
    return weir_dev_window_wait(&self, source, tag, count, alone());
}

weir_status poll(const World &world, uint32_t number, uint32_t source, uint32_t tag, uint64_t count = 1)
{
    const weir_dev_window_rank self = world.rank(number);
    return weir_dev_window_poll(&self, source, tag, count, alone());
}

// Source and tag of what a take gets, or its status.
std::string take(const World &world, uint32_t number, uint32_t source, uint32_t tag)
{
    const weir_dev_window_rank self = world.rank(number);
    weir_dev_notification taken = {};
    const weir_status status = weir_dev_window_take(&self, source, tag, &taken, alone());
    return status != WEIR_OK ? "status " + std::to_string(status)
                             : std::to_string(taken.source) + ":" + std::to_string(taken.tag);
}

// The parts follow each other in order, do not overlap, and are aligned.
TEST(WindowLayout, PlacesFollowEachOther)
{
    const uint32_t shapes[][3] = { { 1, 1, 2 }, { 2, 132, 256 }, { 3, 5, 4 }, { 64, 2112, 256 }, { 64, 16777216, 2 } };
    for (const uint32_t *shape : shapes) {
        const uint64_t devices = shape[0];
        const uint64_t ranks = shape[1];
        const uint64_t count = shape[2];
        const weir_window_layout at = weir_window_layout_of(shape[0], shape[1], shape[2]);
        EXPECT_GE(at.taken, devices * ranks * count * 8);
        EXPECT_GE(at.arrived, at.taken + devices * ranks * 8);
        EXPECT_GE(at.shared_bytes, at.arrived + devices * 8);
        EXPECT_GE(at.rounds, 8u);
        EXPECT_EQ(at.blocks, at.rounds + WEIR_CELL_BYTES);
        EXPECT_GE(at.sent, at.blocks + ranks * 16);
        EXPECT_GE(at.lines, at.sent + devices * ranks * 8);
        EXPECT_GE(at.line_bytes, WEIR_WINDOW_LINE_HEAD + devices * sizeof(weir_dev_window_ring));
        EXPECT_GE(at.devices, at.lines + ranks * at.line_bytes);
        EXPECT_GE(at.channels, at.devices + devices * sizeof(weir_dev_window_device));
        EXPECT_GE(at.table, at.channels + devices * sizeof(weir_dev_port_channel));
        EXPECT_GE(at.private_bytes,
                  at.table + offsetof(weir_dev_window_table, places) + 64 * devices * sizeof(weir_dev_window_place));
        for (uint64_t place :
             { at.taken, at.arrived, at.rounds, at.sent, at.lines, at.devices, at.channels, at.table }) {
            EXPECT_EQ(place % WEIR_CELL_BYTES, 0u);
        }
    }
}

TEST(WindowLayout, RingsOfAHandleAreInOrder)
{
    std::vector<char> shared(1 << 16);
    std::vector<char> own(1 << 17);
    weir_dev_window window = {};
    weir_window_place(&window, 1, 3, 5, 4, shared.data(), own.data());
    EXPECT_EQ(weir_window_ring_at(&window, 0, 1), 4 * 8u);
    EXPECT_EQ(weir_window_ring_at(&window, 1, 0), 3 * 4 * 8u);
    EXPECT_EQ(weir_window_ring_at(&window, 4, 2), 14 * 4 * 8u);
    char *last = reinterpret_cast<char *>(weir_window_states(&window, 4) + 3);
    EXPECT_LE(last, reinterpret_cast<const char *>(window.to));
    EXPECT_LE(weir_window_block(&window, 4) + 2, window.sent);
    EXPECT_EQ(reinterpret_cast<char *>(window.taken), shared.data() + window.taken_at);
}

// ---- rings ------------------------------------------------------------------------------------------------------

TEST(WindowRing, OneSourceIsInOrderWhateverItsTags)
{
    World world(2, 2, 8, 64, 64, TIMEOUT_NS);
    for (uint32_t tag : { 5u, 0u, WEIR_WINDOW_TAG_MAX, 5u }) {
        ASSERT_EQ(notify(world, 1, 2, tag), WEIR_OK);
    }
    EXPECT_EQ(take(world, 2, 1, WEIR_ANY_TAG), "1:5");
    EXPECT_EQ(take(world, 2, ANY, WEIR_ANY_TAG), "1:0");
    EXPECT_EQ(take(world, 2, ANY, WEIR_WINDOW_TAG_MAX), "1:2147483647");
    EXPECT_EQ(take(world, 2, 1, 5), "1:5");
    EXPECT_EQ(poll(world, 2, ANY, WEIR_ANY_TAG), WEIR_PENDING);
}

TEST(WindowRing, WhatDoesNotMatchStays)
{
    World world(2, 2, 8, 64, 64, TIMEOUT_NS);
    ASSERT_EQ(notify(world, 0, 3, 1), WEIR_OK);
    ASSERT_EQ(notify(world, 1, 3, 1), WEIR_OK);
    ASSERT_EQ(notify(world, 1, 3, 2), WEIR_OK);
    ASSERT_EQ(notify(world, 2, 3, 1), WEIR_OK);
    ASSERT_EQ(notify(world, 3, 3, 9), WEIR_OK); /* to itself */
    EXPECT_EQ(poll(world, 3, 0, 2), WEIR_PENDING);
    EXPECT_EQ(poll(world, 2, ANY, WEIR_ANY_TAG), WEIR_PENDING);
    EXPECT_EQ(take(world, 3, 3, WEIR_ANY_TAG), "3:9");
    EXPECT_EQ(take(world, 3, ANY, 2), "1:2");
    EXPECT_EQ(poll(world, 3, 1, 2), WEIR_PENDING);
    EXPECT_EQ(wait(world, 3, 1, 1), WEIR_OK);
    EXPECT_EQ(take(world, 3, 0, WEIR_ANY_TAG), "0:1");
    EXPECT_EQ(take(world, 3, ANY, 1), "2:1");
    EXPECT_EQ(poll(world, 3, ANY, WEIR_ANY_TAG), WEIR_PENDING);
}

TEST(WindowRing, CountsAreTakenTogether)
{
    World world(2, 1, 8, 64, 64, TIMEOUT_NS);
    EXPECT_EQ(wait(world, 0, ANY, 4, 0), WEIR_OK);
    EXPECT_EQ(poll(world, 0, ANY, 4, 0), WEIR_OK);
    for (uint32_t i = 0; i < 3; i++) {
        ASSERT_EQ(notify(world, 0, 0, 4), WEIR_OK);
        ASSERT_EQ(notify(world, 1, 0, 4), WEIR_OK);
        ASSERT_EQ(notify(world, 1, 0, 5), WEIR_OK);
    }
    EXPECT_EQ(poll(world, 0, ANY, 4, 7), WEIR_PENDING); /* and takes none of the six */
    EXPECT_EQ(poll(world, 0, 1, 5, 4), WEIR_PENDING);
    EXPECT_EQ(wait(world, 0, ANY, 4, 5), WEIR_OK);
    EXPECT_EQ(poll(world, 0, ANY, 4, 2), WEIR_PENDING);
    EXPECT_EQ(poll(world, 0, ANY, 4, 1), WEIR_OK);
    EXPECT_EQ(wait(world, 0, 1, WEIR_ANY_TAG, 3), WEIR_OK);
    EXPECT_EQ(poll(world, 0, ANY, WEIR_ANY_TAG, 1), WEIR_PENDING);
}

// Notifications that nobody has taken yet keep their order, and take no more room than their own: half of the ring
// always fits, however many others were taken behind them, by each way to take one.
TEST(WindowRing, WhatStaysTakesNoMoreRoomThanItsOwn)
{
    for (uint32_t count : { 4u, 8u, 32u }) {
        for (uint32_t way = 0; way < 4; way++) {
            World world(2, 1, count, 64, 64, TIMEOUT_NS);
            const weir_dev_window *window = world.window(1);
            const uint32_t stay = count / 2 - 1;
            for (uint32_t i = 0; i < stay; i++) {
                ASSERT_EQ(notify(world, 1, 0, 100 + i), WEIR_OK);
            }
            for (uint32_t i = 0; i < 5 * count; i++) {
                ASSERT_LT(window->sent[0] - window->taken[0], count) << "no room after " << i; /* notify would wait */
                ASSERT_EQ(notify(world, 1, 0, i % 2), WEIR_OK);
                if (way == 0) {
                    ASSERT_EQ(wait(world, 0, 1, i % 2), WEIR_OK);
                } else if (way == 1) {
                    ASSERT_EQ(wait(world, 0, ANY, i % 2), WEIR_OK);
                } else if (way == 2) {
                    ASSERT_EQ(poll(world, 0, 1, i % 2), WEIR_OK);
                } else {
                    ASSERT_EQ(take(world, 0, 1, i % 2), "1:" + std::to_string(i % 2));
                }
            }
            ASSERT_EQ(poll(world, 0, ANY, 0), WEIR_PENDING);
            for (uint32_t i = 0; i < stay; i++) {
                ASSERT_EQ(take(world, 0, ANY, WEIR_ANY_TAG), "1:" + std::to_string(100 + i));
            }
            ASSERT_EQ(poll(world, 0, ANY, WEIR_ANY_TAG), WEIR_PENDING);
        }
    }
}

// Later looks do not pass words that are taken: the head steps over them, in waits for one rank and for any.
TEST(WindowRing, TheHeadStepsOverTakenWords)
{
    for (uint32_t source : { 1u, ANY }) {
        World world(2, 1, 16, 64, 64, TIMEOUT_NS);
        for (uint32_t i = 0; i < 5; i++) {
            ASSERT_EQ(notify(world, 1, 0, i), WEIR_OK);
        }
        for (uint32_t tag : { 2u, 1u, 3u, 0u }) {
            ASSERT_EQ(weir_window_states(world.window(0), 0)[1].head, 0u);
            ASSERT_EQ(wait(world, 0, source, tag), WEIR_OK);
        }
        ASSERT_EQ(weir_window_states(world.window(0), 0)[1].head, 4u);
    }
}

// A wait without a match gives the room of what was taken behind the head back to senders that wait for it.
TEST(WindowRing, TakenWordsBehindTheHeadGiveRoom)
{
    const uint32_t count = 8;
    World world(1, 1, count, 64, 64, TIMEOUT_NS);
    for (uint32_t lap = 0; lap < 5; lap++) {
        for (uint32_t i = 0; i < count; i++) {
            ASSERT_EQ(notify(world, 0, 0, i == 1 ? 2 : 1), WEIR_OK);
        }
        ASSERT_EQ(poll(world, 0, 0, 3), WEIR_ERR_LIMIT);
        ASSERT_EQ(wait(world, 0, 0, 2), WEIR_OK);
        ASSERT_EQ(world.window(0)->taken[0], lap * (count + 1)); /* one word is less than half of the ring */
        ASSERT_EQ(poll(world, 0, 0, 3), WEIR_PENDING);
        ASSERT_EQ(world.window(0)->taken[0], lap * (count + 1) + 1);
        ASSERT_EQ(notify(world, 0, 0, 3), WEIR_OK);
        ASSERT_EQ(poll(world, 0, 0, 2), WEIR_ERR_LIMIT);
        ASSERT_EQ(wait(world, 0, 0, 1, count - 1), WEIR_OK);
        ASSERT_EQ(take(world, 0, 0, WEIR_ANY_TAG), "0:3");
        ASSERT_EQ(poll(world, 0, 0, WEIR_ANY_TAG), WEIR_PENDING);
    }
    for (uint32_t i = 0; i < count; i++) {
        ASSERT_EQ(notify(world, 0, 0, i == 1 ? 2 : 1), WEIR_OK);
    }
    ASSERT_EQ(wait(world, 0, 0, 2), WEIR_OK);
    EXPECT_EQ(wait(world, 0, 0, 3), WEIR_ERR_TIMEOUT); /* a match has room */
}

// The smallest ring, and rings whose positions are beyond 32 bits, over many laps.
TEST(WindowRing, LapsGoOn)
{
    for (uint32_t count : { 2u, 4u, 256u }) {
        for (uint64_t start : { (uint64_t)0, (uint64_t)UINT32_MAX - 5, (uint64_t)1 << 62 }) {
            World world(2, 1, count, 64, 64, TIMEOUT_NS);
            start -= start % (2 * count);
            world.window(0)->sent[1] = start;
            world.window(0)->taken[1] = start;
            weir_window_states(world.window(1), 0)[0].head = start;
            for (uint32_t i = 0; i < 5 * count; i++) {
                ASSERT_EQ(notify(world, 0, 1, 2 * i), WEIR_OK);
                if (count > 2) {
                    ASSERT_EQ(notify(world, 0, 1, 2 * i + 1), WEIR_OK);
                    ASSERT_EQ(take(world, 1, ANY, 2 * i + 1), "0:" + std::to_string(2 * i + 1));
                }
                ASSERT_EQ(take(world, 1, ANY, WEIR_ANY_TAG), "0:" + std::to_string(2 * i));
            }
            EXPECT_EQ(world.window(0)->sent[1], start + 5 * count * (count > 2 ? 2 : 1));
        }
    }
}

// ---- full rings, deadlines and failed communicators ----------------------------------------------------------------

TEST(WindowRing, AFullRingWithoutAMatchIsReported)
{
    World world(2, 2, 4, 64, 64, TIMEOUT_NS);
    for (uint32_t i = 0; i < 4; i++) {
        EXPECT_EQ(poll(world, 0, 2, 7), WEIR_PENDING);
        ASSERT_EQ(notify(world, i % 2 + 2, 0, i), WEIR_OK);
    }
    EXPECT_EQ(poll(world, 0, ANY, 7), WEIR_PENDING); /* the ring of device 0 has room */
    EXPECT_EQ(poll(world, 0, 2, 7), WEIR_ERR_LIMIT);
    EXPECT_EQ(poll(world, 0, 3, WEIR_ANY_TAG, 3), WEIR_ERR_LIMIT);
    EXPECT_EQ(poll(world, 0, 3, WEIR_ANY_TAG, 2), WEIR_OK); /* a poll's error is not sticky */
    EXPECT_EQ(poll(world, 0, 3, WEIR_ANY_TAG), WEIR_PENDING);
    EXPECT_EQ(take(world, 0, 2, WEIR_ANY_TAG), "2:0");
    ASSERT_EQ(notify(world, 3, 0, 8), WEIR_OK);
    EXPECT_EQ(take(world, 0, ANY, WEIR_ANY_TAG), "2:2");
    EXPECT_EQ(take(world, 0, ANY, WEIR_ANY_TAG), "3:8");
    EXPECT_EQ(world.device(0).control.error_status, WEIR_OK);
}

TEST(WindowRing, AWaitThatCanNeverEndFailsAtOnce)
{
    World world(2, 2, 4, 64, 64, uint64_t{ 3600 } * 1000000000);
    for (uint32_t i = 0; i < 4; i++) {
        ASSERT_EQ(notify(world, 3, 1, 5), WEIR_OK);
    }
    EXPECT_EQ(wait(world, 1, 3, 6, 2), WEIR_ERR_LIMIT);
    const weir_dev_record &record = world.device(0).control.record;
    EXPECT_EQ(world.device(0).control.error_status, WEIR_ERR_LIMIT);
    EXPECT_EQ(record.note.doing, WEIR_DOING_WINDOW_WAIT);
    EXPECT_EQ(record.note.peer, 11u);
    EXPECT_EQ(record.note.numbers[0], 1u);
    EXPECT_EQ(record.note.numbers[1], 3u);
    EXPECT_EQ(record.note.numbers[2], 6u);
}

TEST(WindowRing, AWaitForAnyRankNeedsAllRingsFull)
{
    World world(2, 1, 2, 64, 64, TIMEOUT_NS);
    ASSERT_EQ(notify(world, 1, 0, 5), WEIR_OK);
    ASSERT_EQ(notify(world, 1, 0, 5), WEIR_OK);
    EXPECT_EQ(wait(world, 0, ANY, 6), WEIR_ERR_TIMEOUT);
    EXPECT_EQ(world.device(0).control.record.note.peer, WEIR_NO_PEER);
    EXPECT_EQ(world.device(0).control.record.note.numbers[1], WEIR_ANY_RANK);
    World full(2, 1, 2, 64, 64, uint64_t{ 3600 } * 1000000000);
    for (uint32_t i = 0; i < 4; i++) {
        ASSERT_EQ(notify(full, i % 2, 0, 5), WEIR_OK);
    }
    EXPECT_EQ(wait(full, 0, ANY, 6), WEIR_ERR_LIMIT);
    EXPECT_EQ(full.device(0).control.record.note.peer, WEIR_NO_PEER); /* no ring alone is the reason */
    EXPECT_EQ(full.device(0).control.record.note.numbers[1], WEIR_ANY_RANK);
}

// A count above the ring: a wait takes as it goes, a poll can never find so many.
TEST(WindowRing, CountsAboveTheRing)
{
    World world(1, 2, 4, 64, 64, TIMEOUT_NS);
    for (uint32_t i = 0; i < 3; i++) {
        ASSERT_EQ(notify(world, 1, 0, 5), WEIR_OK);
    }
    EXPECT_EQ(poll(world, 0, 1, 5, 5), WEIR_ERR_LIMIT);
    EXPECT_EQ(poll(world, 0, 1, 5, UINT64_MAX), WEIR_ERR_LIMIT);
    EXPECT_EQ(poll(world, 0, 1, 5, 4), WEIR_PENDING);
    EXPECT_EQ(world.device(0).control.error_status, WEIR_OK);
    EXPECT_EQ(wait(world, 0, 1, 5, 5), WEIR_ERR_TIMEOUT);
    EXPECT_EQ(world.device(0).control.record.note.peer, 10u);
    EXPECT_EQ(weir_window_states(world.window(0), 0)->head, 3u);
}

TEST(WindowRing, ASenderWaitsForRoomUntilTheDeadline)
{
    World world(2, 2, 2, 64, 64, TIMEOUT_NS);
    ASSERT_EQ(notify(world, 2, 1, 5), WEIR_OK);
    ASSERT_EQ(notify(world, 3, 1, 5), WEIR_OK);
    EXPECT_EQ(notify(world, 2, 0, 5), WEIR_OK); /* another rank has its own ring */
    EXPECT_EQ(notify(world, 2, 1, 6), WEIR_ERR_TIMEOUT);
    const weir_dev_record &record = world.device(1).control.record;
    EXPECT_EQ(record.note.doing, WEIR_DOING_WINDOW_NOTIFY);
    EXPECT_EQ(record.note.peer, 10u);
    EXPECT_EQ(record.note.numbers[0], 2u);
    EXPECT_EQ(record.note.numbers[1], 1u);
    EXPECT_EQ(record.note.numbers[2], 6u);
    EXPECT_EQ(record.waited_ns, TIMEOUT_NS);
    EXPECT_EQ(take(world, 1, ANY, WEIR_ANY_TAG), "2:5"); /* nothing was overwritten */
    EXPECT_EQ(take(world, 1, ANY, WEIR_ANY_TAG), "3:5");
}

// The looks of a wait are counted in 32 bits. A deadline of hours outlasts 2^32 of them.
TEST(WindowRing, ADeadlineOutlastsTheNumbersOfItsLooks)
{
    World world(2, 1, 2, 64, 64, TIMEOUT_NS);
    const weir_dev_window *window = world.window(0);
    weir_alias_u64 *since = weir_window_since(window, 0);
    for (uint32_t looks : { WEIR_ARCH_SPIN_READS * 9, 0u, WEIR_ARCH_SPIN_READS }) { /* the last two have wrapped */
        *since = 1; /* this machine started longer ago than the deadline */
        EXPECT_EQ(weir_window_step(window, 0, looks), WEIR_SPIN_LATE) << looks;
    }
    *since = 0;
    EXPECT_EQ(weir_window_step(window, 0, WEIR_ARCH_SPIN_READS), WEIR_OK);
    EXPECT_GT(*since, 1u);

    ASSERT_EQ(notify(world, 1, 0, 7), WEIR_OK);
    EXPECT_EQ(weir_window_collect_any(window, 0, 1, 7, 1), WEIR_OK);
    EXPECT_EQ(*since, 0u); /* each wait has a deadline of its own */
}

// Before it waits for long, a rank reports what it has taken, from all its rings.
TEST(WindowRing, ALongWaitAndAPollReportExactHeads)
{
    World world(2, 1, 16, 64, 64, TIMEOUT_NS);
    for (uint32_t source : { 0u, 1u }) {
        ASSERT_EQ(notify(world, source, 0, 5), WEIR_OK);
    }
    ASSERT_EQ(wait(world, 0, ANY, 5, 2), WEIR_OK);
    EXPECT_EQ(world.window(0)->taken[0], 0u);
    EXPECT_EQ(world.window(1)->taken[0], 0u);
    EXPECT_EQ(poll(world, 0, 0, 5), WEIR_PENDING);
    EXPECT_EQ(world.window(0)->taken[0], 1u);
    EXPECT_EQ(world.window(1)->taken[0], 1u);
    ASSERT_EQ(notify(world, 1, 0, 5), WEIR_OK);
    ASSERT_EQ(wait(world, 0, ANY, 5), WEIR_OK);
    EXPECT_EQ(world.window(1)->taken[0], 1u);
    EXPECT_EQ(wait(world, 0, 0, 5), WEIR_ERR_TIMEOUT);
    EXPECT_EQ(world.window(1)->taken[0], 2u);
}

// A wait that goes on reports what it takes after its first report, too: a sender must not wait for room that there is.
TEST(WindowRing, ALongWaitReportsWhatItTakesLater)
{
    World world(2, 1, 4, 64, 64, weirt_timeout_ms() * uint64_t{ 1000000 });
    ASSERT_EQ(notify(world, 1, 0, 5), WEIR_OK);
    ASSERT_EQ(wait(world, 0, 1, 5), WEIR_OK);
    EXPECT_EQ(world.window(1)->taken[0], 0u);
    weir_status waited = WEIR_PENDING;
    std::thread waiter([&] { waited = wait(world, 0, 1, 5, 2); });
    while (weir_arch_load_acquire_sys_u64(world.window(1)->taken) != 1 && // it has not reported the first word
           weir_dev_control_status(&world.device(0).control) == WEIR_OK) {
        std::this_thread::yield();
    }
    weir_status sent = WEIR_OK;
    for (uint32_t tag : { 5u, 7u, 7u, 7u, 5u }) { // the last one needs the place of the first
        sent = sent == WEIR_OK ? notify(world, 1, 0, tag) : sent;
    }
    waiter.join();
    EXPECT_EQ(sent, WEIR_OK);
    EXPECT_EQ(waited, WEIR_OK);
    EXPECT_EQ(weir_window_states(world.window(0), 0)[1].head, 2u);
}

// A loop whose waits all find their notification ends after the communicator has failed.
TEST(WindowRing, WaitsThatSucceedAtOnceEndToo)
{
    World world(1, 1, 4, 64, 64, TIMEOUT_NS);
    world.device(0).control.abort_status = WEIR_ERR_REMOTE;
    weir_dev_control_end(&world.device(0).control);
    weir_status waited = WEIR_OK;
    weir_status polled = WEIR_OK;
    for (uint32_t i = 0; i < 2 * WEIR_ARCH_LOOK_WAITS && waited == WEIR_OK; i++) {
        ASSERT_EQ(notify(world, 0, 0, 5), WEIR_OK);
        waited = wait(world, 0, 0, 5);
    }
    for (uint32_t i = 0; i < 2 * WEIR_ARCH_LOOK_WAITS && polled == WEIR_OK; i++) {
        ASSERT_EQ(notify(world, 0, 0, 5), WEIR_OK);
        polled = poll(world, 0, 0, 5);
    }
    EXPECT_EQ(waited, WEIR_ERR_REMOTE);
    EXPECT_EQ(polled, WEIR_ERR_REMOTE);
}

// ---- arguments ----------------------------------------------------------------------------------------------------

struct Refused : ::testing::Test {
    World world{ 2, 2, 4, 64, 48, TIMEOUT_NS };
    weir_dev_window_rank self = world.at(0, 1);

    // The call fails, the communicator has its error, and nothing was sent or copied.
    void expect(weir_status status, weir_status expected, uint32_t doing, uint32_t peer, uint64_t first,
                uint64_t second)
    {
        weir_dev_control &control = world.device(0).control;
        EXPECT_EQ(status, expected);
        EXPECT_EQ(control.error_status, expected);
        EXPECT_EQ(control.record.note.doing, doing);
        EXPECT_EQ(control.record.note.peer, peer);
        EXPECT_EQ(control.record.note.numbers[0], first);
        EXPECT_EQ(control.record.note.numbers[1], second);
        for (uint32_t k = 0; k < 2; k++) {
            const uint64_t *rings = world.window(k)->rings;
            EXPECT_EQ(std::count(rings, rings + 2 * 2 * 4, 0u), 2 * 2 * 4);
            EXPECT_EQ(world.word(k, 0, 0), 0u);
        }
        std::memset(static_cast<void *>(&control), 0, sizeof control);
        weir_dev_control_begin(&control, TIMEOUT_NS);
    }
    weir_status put_notify(uint32_t target, uint32_t remote, uint64_t remote_offset, uint32_t local,
                           uint64_t local_offset, uint64_t bytes, uint32_t tag = 1)
    {
        return weir_dev_window_put_notify(&self, target, remote, remote_offset, local, local_offset, bytes, tag,
                                          alone());
    }
    weir_status put(uint32_t target, uint32_t remote, uint64_t remote_offset, uint32_t local, uint64_t local_offset,
                    uint64_t bytes)
    {
        return weir_dev_window_put(&self, target, remote, remote_offset, local, local_offset, bytes, alone());
    }
};

TEST_F(Refused, RanksThatDoNotExist)
{
    weir_dev_notification taken;
    for (uint32_t target : { 4u, ANY }) {
        expect(weir_dev_window_notify(&self, target, 1, alone()), WEIR_ERR_RANGE, WEIR_DOING_WINDOW_RANK, WEIR_NO_PEER,
               target, 4);
        expect(put(target, 0, 0, 0, 0, 8), WEIR_ERR_RANGE, WEIR_DOING_WINDOW_RANK, WEIR_NO_PEER, target, 4);
        expect(put_notify(target, 0, 0, 0, 0, 8), WEIR_ERR_RANGE, WEIR_DOING_WINDOW_RANK, WEIR_NO_PEER, target, 4);
        expect(weir_dev_window_get(&self, target, 0, 0, 0, 0, 8, alone()), WEIR_ERR_RANGE, WEIR_DOING_WINDOW_RANK,
               WEIR_NO_PEER, target, 4);
    }
    expect(weir_dev_window_wait(&self, 4, 1, 1, alone()), WEIR_ERR_RANGE, WEIR_DOING_WINDOW_RANK, WEIR_NO_PEER, 4, 4);
    expect(weir_dev_window_poll(&self, 5, 1, 1, alone()), WEIR_ERR_RANGE, WEIR_DOING_WINDOW_RANK, WEIR_NO_PEER, 5, 4);
    expect(weir_dev_window_take(&self, 6, 1, &taken, alone()), WEIR_ERR_RANGE, WEIR_DOING_WINDOW_RANK, WEIR_NO_PEER, 6,
           4);
    expect(weir_dev_window_flush(&self, 7, alone()), WEIR_ERR_RANGE, WEIR_DOING_WINDOW_RANK, WEIR_NO_PEER, 7, 4);
    EXPECT_EQ(weir_dev_window_flush(&self, WEIR_ANY_RANK, alone()), WEIR_OK);
}

TEST_F(Refused, AnIndexBeyondTheDevice)
{
    const weir_dev_window_rank none = weir_dev_window_at(world.window(0), 2);
    expect(WEIR_ERR_RANGE, WEIR_ERR_RANGE, WEIR_DOING_WINDOW_AT, WEIR_NO_PEER, 2, 2);
    EXPECT_EQ(none.number, WEIR_ANY_RANK);
    expect(weir_dev_window_notify(&none, 0, 1, alone()), WEIR_ERR_RANGE, WEIR_DOING_WINDOW_RANK, WEIR_NO_PEER,
           WEIR_ANY_RANK, 4);
    expect(weir_dev_window_put(&none, 0, 0, 0, 0, 0, 8, alone()), WEIR_ERR_RANGE, WEIR_DOING_WINDOW_RANK, WEIR_NO_PEER,
           WEIR_ANY_RANK, 4);
    expect(weir_dev_window_wait(&none, 0, 1, 1, alone()), WEIR_ERR_RANGE, WEIR_DOING_WINDOW_RANK, WEIR_NO_PEER,
           WEIR_ANY_RANK, 4);
    EXPECT_EQ(weir_dev_window_pointer(&none, 0), nullptr);
    const weir_dev_window_rank last = weir_dev_window_at(world.window(1), 1);
    EXPECT_EQ(last.number, 3u);
    EXPECT_EQ(weir_dev_window_pointer(&last, 1), &world.word(1, 1, 8));
}

TEST_F(Refused, UnknownMemories)
{
    expect(put(0, 2, 0, 0, 0, 8), WEIR_ERR_RANGE, WEIR_DOING_WINDOW_MEMORY, WEIR_NO_PEER, 2, 2);
    expect(put(0, 0, 0, UINT32_MAX, 0, 8), WEIR_ERR_RANGE, WEIR_DOING_WINDOW_MEMORY, WEIR_NO_PEER, UINT32_MAX, 2);
    EXPECT_EQ(weir_dev_window_pointer(&self, 2), nullptr);
    expect(WEIR_ERR_RANGE, WEIR_ERR_RANGE, WEIR_DOING_WINDOW_MEMORY, WEIR_NO_PEER, 2, 2);
    world.device(0).window.memories = 1; /* a handle older than memory 1 */
    expect(put_notify(0, 0, 0, 1, 0, 8), WEIR_ERR_RANGE, WEIR_DOING_WINDOW_MEMORY, WEIR_NO_PEER, 1, 1);
}

TEST_F(Refused, RangesBeyondAPart)
{
    world.word(0, 1, 8) = 1; /* self's part of memory 1 */
    expect(put(2, 0, 41, 1, 0, 8), WEIR_ERR_RANGE, WEIR_DOING_WINDOW_PUT, 11, 41, 8);
    expect(put(2, 0, 0, 1, 41, 8), WEIR_ERR_RANGE, WEIR_DOING_WINDOW_PUT, 11, 41, 8);
    expect(put(0, 0, 0, 1, 0, 49), WEIR_ERR_RANGE, WEIR_DOING_WINDOW_PUT, 10, 0, 49);
    expect(put(0, 0, UINT64_MAX - 3, 1, 0, 8), WEIR_ERR_RANGE, WEIR_DOING_WINDOW_PUT, 10, UINT64_MAX - 3, 8);
    expect(put_notify(0, 0, 0, 1, 8, UINT64_MAX - 4), WEIR_ERR_RANGE, WEIR_DOING_WINDOW_PUT, 10, 0, UINT64_MAX - 4);
    expect(weir_dev_window_get(&self, 3, 0, 48, 1, 0, 1, alone()), WEIR_ERR_RANGE, WEIR_DOING_WINDOW_GET, 11, 48, 1);
    EXPECT_EQ(put(2, 0, 48, 1, 48, 0), WEIR_OK);
    EXPECT_EQ(put(3, 0, 40, 1, 0, 8), WEIR_OK);
    EXPECT_EQ(world.word(1, 0, 13), 1u);
}

TEST_F(Refused, TagsThatAreTooLarge)
{
    expect(weir_dev_window_notify(&self, 0, WEIR_WINDOW_TAG_MAX + 1, alone()), WEIR_ERR_INVALID, WEIR_DOING_WINDOW_TAG,
           WEIR_NO_PEER, 0x80000000u, 1);
    expect(put_notify(0, 0, 0, 1, 0, 8, WEIR_ANY_TAG), WEIR_ERR_INVALID, WEIR_DOING_WINDOW_TAG, WEIR_NO_PEER,
           WEIR_ANY_TAG, 1);
    expect(weir_dev_window_wait(&self, 0, 0x80000000u, 1, alone()), WEIR_ERR_INVALID, WEIR_DOING_WINDOW_TAG,
           WEIR_NO_PEER, 0x80000000u, 1);
}

// Parts of 48 bytes that lie 64 bytes apart; and those of a window in which they overlap.
TEST_F(Refused, PartialOverlaps)
{
    expect(put(1, 0, 0, 0, 4, 8), WEIR_ERR_INVALID, WEIR_DOING_WINDOW_OVERLAP, WEIR_NO_PEER, 0, 4);
    expect(put_notify(1, 0, 7, 0, 0, 8), WEIR_ERR_INVALID, WEIR_DOING_WINDOW_OVERLAP, WEIR_NO_PEER, 7, 0);
    EXPECT_EQ(put(1, 0, 8, 0, 0, 8), WEIR_OK);
}

TEST_F(Refused, NumbersOfMoreBlocksThanRanks)
{
    weir_coop coop = weir_coop_part(0, 1);
    uint32_t index = 77;
    coop.block_size = 1;
    coop.blocks = 1;
    EXPECT_EQ(weir_dev_window_index(world.window(0), &index, coop), WEIR_ERR_INVALID);
    EXPECT_EQ(index, world.window(0)->ranks);
    EXPECT_EQ(weir_dev_control_status(&world.device(0).control), WEIR_OK);
    coop.scope = WEIR_COOP_BLOCK;
    EXPECT_EQ(weir_dev_window_index(world.window(0), &index, coop), WEIR_OK);
    EXPECT_EQ(index, 0u);
    coop.blocks = world.window(0)->ranks + 1;
    expect(weir_dev_window_index(world.window(0), &index, coop), WEIR_ERR_RANGE, WEIR_DOING_WINDOW_AT, WEIR_NO_PEER, 2,
           2);
    EXPECT_EQ(index, world.window(0)->ranks);
}

TEST_F(Refused, OtherGroups)
{
    weir_coop part = weir_coop_part(0, 1);
    weir_coop grid = part;
    grid.scope = WEIR_COOP_GRID;
    weir_dev_notification taken;
    ASSERT_EQ(notify(world, 0, 1, 3), WEIR_OK);
    for (weir_coop coop : { part, weir_coop_blocks(part), grid }) {
        EXPECT_EQ(weir_dev_window_notify(&self, 0, 1, coop), WEIR_ERR_INVALID);
        EXPECT_EQ(weir_dev_window_put_notify(&self, 0, 0, 0, 1, 0, 8, 1, coop), WEIR_ERR_INVALID);
        EXPECT_EQ(weir_dev_window_put(&self, 0, 0, 0, 1, 0, 8, coop), WEIR_ERR_INVALID);
        EXPECT_EQ(weir_dev_window_get(&self, 0, 0, 0, 1, 0, 8, coop), WEIR_ERR_INVALID);
        EXPECT_EQ(weir_dev_window_wait(&self, 0, 3, 1, coop), WEIR_ERR_INVALID);
        EXPECT_EQ(weir_dev_window_poll(&self, 0, 3, 1, coop), WEIR_ERR_INVALID);
        EXPECT_EQ(weir_dev_window_take(&self, 0, 3, &taken, coop), WEIR_ERR_INVALID);
        EXPECT_EQ(weir_dev_window_flush(&self, 0, coop), WEIR_ERR_INVALID);
    }
    EXPECT_EQ(weir_dev_window_barrier(world.window(0), part), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_dev_window_barrier(world.window(0), alone()), WEIR_ERR_INVALID);
    EXPECT_EQ(world.device(0).control.error_status, WEIR_OK); /* not sticky, and nothing is consumed */
    EXPECT_EQ(world.window(0)->sent[0], 0u);
    EXPECT_EQ(take(world, 1, 0, 3), "0:3");
}

// ---- transfers ----------------------------------------------------------------------------------------------------

TEST(WindowMove, PutsAndGetsOfAnySizeBetweenAnyMemories)
{
    for (uint64_t bytes : { 0, 1, 7, 8, 15, 16, 40, 100 }) {
        for (uint32_t target : { 0u, 1u, 2u, 3u }) {
            World world(2, 2, 4, 128, 128, TIMEOUT_NS);
            const weir_dev_window_rank self = world.rank(1);
            char *source = static_cast<char *>(weir_dev_window_pointer(&self, 0)) + 3;
            char *back = static_cast<char *>(weir_dev_window_pointer(&self, 0));
            const weir_dev_window_rank there = world.rank(target);
            char *sink = static_cast<char *>(weir_dev_window_pointer(&there, 1));
            for (uint64_t i = 0; i < bytes; i++) {
                source[i] = static_cast<char>(i + 1);
            }
            ASSERT_EQ(weir_dev_window_put(&self, target, 1, 5, 0, 3, bytes, alone()), WEIR_OK);
            for (uint64_t i = 0; i < 123; i++) {
                ASSERT_EQ(sink[5 + i], i < bytes ? static_cast<char>(i + 1) : 0) << bytes << " bytes, byte " << i;
            }
            ASSERT_EQ(sink[4], 0);
            std::memset(source, 0, bytes);
            ASSERT_EQ(weir_dev_window_get(&self, target, 1, 5, 0, 0, bytes, alone()), WEIR_OK);
            for (uint64_t i = 0; i < 128; i++) {
                ASSERT_EQ(back[i], i < bytes ? static_cast<char>(i + 1) : 0) << bytes << " bytes, byte " << i;
            }
        }
    }
}

// Ranks of one device whose parts overlap by 16 bytes: their common bytes are not copied, and the notification goes.
TEST(WindowMove, EqualAddressesOnlyNotify)
{
    World world(1, 3, 4, 48, 64, TIMEOUT_NS);
    const weir_dev_window_rank self = world.rank(1);
    world.word(0, 0, 12) = 77; /* byte 96: at 48 in rank 1's part, at 0 in rank 2's */
    EXPECT_EQ(weir_dev_window_put_notify(&self, 2, 0, 0, 0, 48, 16, 5, alone()), WEIR_OK);
    EXPECT_EQ(world.word(0, 0, 12), 77u);
    EXPECT_EQ(take(world, 2, 1, 5), "1:5");
    EXPECT_EQ(weir_dev_window_put_notify(&self, 1, 0, 8, 0, 8, 40, 6, alone()), WEIR_OK); /* to itself */
    EXPECT_EQ(take(world, 1, 1, 6), "1:6");
    EXPECT_EQ(weir_dev_window_put(&self, 2, 0, 0, 0, 40, 16, alone()), WEIR_ERR_INVALID);
}

// ---- random scripts -----------------------------------------------------------------------------------------------

// A notification that a ring should hold.
struct Entry {
    uint32_t source;
    uint32_t tag;
};

struct Reference {
    World world;
    uint32_t devices;
    uint32_t ranks;
    uint32_t count;
    std::vector<std::deque<Entry>> rings; /* of rank r and device d: r * devices + d */

    Reference(uint32_t d, uint32_t r, uint32_t c)
        : world(d, r, c, 64, 64, TIMEOUT_NS), devices(d), ranks(r), count(c), rings(d * r * d)
    {
    }
    std::deque<Entry> &ring(uint32_t rank, uint32_t device) { return rings[rank * devices + device]; }
    static bool matches(const Entry &entry, uint32_t source, uint32_t tag)
    {
        return (source == ANY || entry.source == source) && (tag == WEIR_ANY_TAG || entry.tag == tag);
    }
    uint64_t matching(uint32_t rank, uint32_t source, uint32_t tag)
    {
        uint64_t found = 0;
        for (uint32_t d = 0; d < devices; d++) {
            for (const Entry &entry : ring(rank, d)) {
                found += matches(entry, source, tag);
            }
        }
        return found;
    }
    bool is_full(uint32_t rank, uint32_t source)
    {
        for (uint32_t d = 0; d < devices; d++) {
            if ((source == ANY || source / ranks == d) && ring(rank, d).size() != count) {
                return false;
            }
        }
        return true;
    }
    // Takes the oldest match of this very source; false without one.
    bool remove(uint32_t rank, uint32_t source, uint32_t tag, uint32_t *found)
    {
        std::deque<Entry> &of = ring(rank, source / ranks);
        const auto at =
            std::find_if(of.begin(), of.end(), [&](const Entry &entry) { return matches(entry, source, tag); });
        if (at == of.end()) {
            return false;
        }
        *found = at->tag;
        of.erase(at);
        return true;
    }
};

void run_script(uint64_t seed)
{
    std::mt19937_64 random(seed);
    auto draw = [&](uint32_t below) { return static_cast<uint32_t>(random() % below); };
    const uint32_t counts[] = { 2, 4, 8, 32 };
    Reference reference(1 + draw(3), 1 + draw(3), counts[draw(4)]);
    const World &world = reference.world;
    const uint32_t all = reference.devices * reference.ranks;
    for (uint32_t step = 0; step < 3000; step++) {
        const uint32_t rank = draw(all);
        const uint32_t source = draw(3) == 0 ? ANY : draw(all);
        const uint32_t tag = draw(3) == 0 ? WEIR_ANY_TAG : draw(3) * (WEIR_WINDOW_TAG_MAX / 2);
        uint32_t found = 0;
        SCOPED_TRACE("seed " + std::to_string(seed) + ", step " + std::to_string(step));
        switch (draw(7)) {
        default: {
            const uint32_t from = draw(all);
            const uint32_t sent_tag = draw(3) * (WEIR_WINDOW_TAG_MAX / 2);
            const weir_dev_window *window = world.window(from / reference.ranks);
            std::deque<Entry> &ring = reference.ring(rank, from / reference.ranks);
            if (window->sent[rank] - window->taken[rank] >= reference.count) {
                ASSERT_GT(ring.size(), reference.count / 2) << "half of a ring always fits"; /* it would wait */
                break;
            }
            ASSERT_EQ(notify(world, from, rank, sent_tag), WEIR_OK);
            ring.push_back({ from, sent_tag });
            ASSERT_LE(ring.size(), reference.count);
            break;
        }
        case 0: {
            const uint64_t count = 1 + draw(4);
            const uint64_t there = reference.matching(rank, source, tag);
            const uint64_t room = uint64_t{ reference.count } * (source == ANY ? reference.devices : 1);
            const uint64_t wanted = source == ANY ? there + draw(2) : count; /* all, so that no choice is left */
            const weir_status expected = there >= wanted                                    ? WEIR_OK
                                         : reference.is_full(rank, source) || wanted > room ? WEIR_ERR_LIMIT
                                                                                            : WEIR_PENDING;
            ASSERT_EQ(poll(world, rank, source, tag, wanted), expected);
            for (uint32_t from = 0; expected == WEIR_OK && from < all; from++) {
                uint64_t left = source == ANY ? UINT64_MAX : source == from ? wanted : 0;
                while (left-- != 0 && reference.remove(rank, from, tag, &found)) {
                }
            }
            break;
        }
        case 1: {
            const uint64_t there = source == ANY ? 0 : reference.matching(rank, source, tag);
            const uint64_t count = there == 0 ? 0 : 1 + draw(static_cast<uint32_t>(there));
            ASSERT_EQ(wait(world, rank, source, tag, count), WEIR_OK);
            for (uint64_t i = 0; i < count; i++) {
                ASSERT_TRUE(reference.remove(rank, source, tag, &found));
            }
            break;
        }
        case 2: {
            if (reference.matching(rank, source, tag) == 0) {
                break;
            }
            const weir_dev_window_rank self = world.rank(rank);
            weir_dev_notification taken = {};
            ASSERT_EQ(weir_dev_window_take(&self, source, tag, &taken, alone()), WEIR_OK);
            ASSERT_TRUE(source == ANY || taken.source == source);
            ASSERT_TRUE(reference.remove(rank, taken.source, tag, &found));
            ASSERT_EQ(taken.tag, found);
            break;
        }
        }
    }
    for (uint32_t rank = 0; rank < all; rank++) {
        uint32_t found = 0;
        while (reference.matching(rank, ANY, WEIR_ANY_TAG) != 0) {
            const weir_dev_window_rank self = world.rank(rank);
            weir_dev_notification taken = {};
            ASSERT_EQ(weir_dev_window_take(&self, ANY, WEIR_ANY_TAG, &taken, alone()), WEIR_OK) << "seed " << seed;
            ASSERT_TRUE(reference.remove(rank, taken.source, WEIR_ANY_TAG, &found)) << "seed " << seed;
            ASSERT_EQ(taken.tag, found) << "seed " << seed;
        }
        ASSERT_EQ(poll(world, rank, ANY, WEIR_ANY_TAG), WEIR_PENDING) << "seed " << seed;
    }
}

// WEIR_WINDOW_SEED=N in the environment runs seed N only.
TEST(WindowRing, RandomScriptsDoAsAReferenceQueue)
{
    const char *only = std::getenv("WEIR_WINDOW_SEED");
    const uint64_t first = only != nullptr ? std::strtoull(only, nullptr, 10) : 1;
    const uint64_t end = only != nullptr ? first + 1 : 201;
    for (uint64_t seed = first; seed < end && !HasFatalFailure(); seed++) {
        run_script(seed);
    }
}

} // namespace
