// What posts to a NIC promise; docs/memory-ordering.md. The programs are in test/harness/posting.h.
#include "test/harness/posting.h"
#include "test/litmus/litmus.h"

namespace {

using namespace litmus;

constexpr uint32_t POST_ORDERS = WEIRT_WEAK_NO_RELEASE | WEIRT_WEAK_NO_ACQUIRE | WEIRT_WEAK_NO_SYSTEM;

TEST(LitmusPosting, EntriesComeOnceAndWholeInOrder)
{
    holds<posting::Laps<2>>(POST_ORDERS | WEIRT_WEAK_NO_ATOMIC);
}

TEST(LitmusPosting, OfThreePostersToo)
{
    holds<posting::Laps<3>>(0);
}

TEST(LitmusPosting, AnOwnQueueNeedsNoAtomics)
{
    holds<posting::Own>(POST_ORDERS);
}

TEST(LitmusPosting, SignalsAreNumberedInTheirOrder)
{
    holds<posting::Signals<2>>(POST_ORDERS | WEIRT_WEAK_NO_ATOMIC);
}

TEST(LitmusPosting, ARingTellsOfAllThatItsThreadKnowsOf)
{
    holds<posting::RungByAnother>(POST_ORDERS);
}

TEST(LitmusPosting, AnErrorIsToldAfterWhatWasDoneBeforeIt)
{
    holds<posting::Failure<2>>(POST_ORDERS | WEIRT_WEAK_NO_ATOMIC);
}

TEST(LitmusPosting, AnErrorEndsThreePosters)
{
    holds<posting::Failure<3>>(0);
}

} // namespace
