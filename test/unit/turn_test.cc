// Turns: calls of several threads do not overlap, and a call that blocks does not hold up the others.
#include <gtest/gtest.h>

#include <sched.h>

#include <atomic>
#include <thread>
#include <vector>

extern "C" {
#include "src/host/base/clock.h"
#include "src/host/base/turn.h"
}

namespace {

constexpr uint64_t ms = 1000000;

TEST(Turn, CallsDoNotOverlap)
{
    constexpr int THREADS = 4;
    constexpr int CALLS = 2000;
    weiri_turn turn = {};
    std::atomic<int> inside = 0;
    std::atomic<int> overlaps = 0;
    std::atomic<int> taken = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < THREADS; t++) {
        threads.emplace_back([&] {
            for (int i = 0; i < CALLS; i++) {
                const bool mine = weiri_turn_begin(&turn);
                if (mine) { // else another thread lost the processor for long
                    taken++;
                    overlaps += inside++ != 0;
                    sched_yield();
                    inside--;
                }
                weiri_turn_end(&turn, mine);
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(overlaps, 0);
    EXPECT_GT(taken, 0);
    EXPECT_EQ(turn.since, 0u);
}

TEST(Turn, ABlockedCallHoldsUpNobodyForLong)
{
    weiri_turn turn = {};
    ASSERT_TRUE(weiri_turn_begin(&turn));
    const uint64_t blocked = weiri_now_ns();
    std::thread other([&] {
        // The first waits until the call in progress has taken long, later ones not at all.
        for (int i = 0; i < 60000; i++) {
            const bool mine = weiri_turn_begin(&turn);
            EXPECT_FALSE(mine);
            weiri_turn_end(&turn, mine);
        }
    });
    other.join();
    EXPECT_GE(weiri_now_ns() - blocked, WEIRI_TURN_NS);
    EXPECT_LT(weiri_now_ns() - blocked, 30000 * ms); // 60,000 waits of WEIRI_TURN_NS are 60 s
    EXPECT_GE(turn.since, blocked);
    EXPECT_LE(turn.since, weiri_now_ns());
    weiri_turn_end(&turn, true);
    EXPECT_EQ(turn.since, 0u);
    const bool next = weiri_turn_begin(&turn);
    EXPECT_TRUE(next);
    weiri_turn_end(&turn, next);
}

} // namespace
