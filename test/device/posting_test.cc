// The programs of test/harness/posting.h as threads of this machine, mainly for the thread sanitizer. test/litmus runs
// them in a weaker memory.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "test/harness/posting.h"
#include "test/harness/ranks.h"

namespace {

constexpr int ROUNDS = 50;

template <class Program> void holds()
{
    for (int round = 0; round < ROUNDS; round++) {
        Program program;
        weir_dev_control_begin(&program.control, 1000000u * static_cast<uint64_t>(weirt_timeout_ms()));
        std::vector<std::thread> threads;
        for (uint32_t i = 0; i < Program::threads; i++) {
            threads.emplace_back([&program, i] { program.thread(i); });
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
        ASSERT_TRUE(program.right()) << "round " << round;
    }
}

TEST(Posting, EntriesComeOnceAndWholeInOrder)
{
    holds<posting::Laps<2>>();
    holds<posting::Laps<3>>();
}

TEST(Posting, AnOwnQueueNeedsNoAtomics)
{
    holds<posting::Own>();
    holds<posting::Counted>();
}

TEST(Posting, SignalsAreNumberedInTheirOrder) { holds<posting::Signals<2>>(); }
TEST(Posting, ARingTellsOfAllThatItsThreadKnowsOf) { holds<posting::RungByAnother>(); }

TEST(Posting, AnErrorIsToldAfterWhatWasDoneBeforeIt)
{
    holds<posting::Failure<2>>();
    holds<posting::Failure<3>>();
}

TEST(Posting, NoticesFollowTheirData) { holds<posting::Notices>(); }

TEST(Posting, CollapsedCompletionsTellTheSame)
{
    holds<posting::Collapsed<posting::Laps<3>>>();
    holds<posting::Collapsed<posting::Own>>();
    holds<posting::Collapsed<posting::Failure<3>>>();
}

TEST(Posting, ARefusalIsToldWithItsReason)
{
    holds<posting::Refusal<2>>();
    holds<posting::Refusal<3>>();
}

} // namespace
