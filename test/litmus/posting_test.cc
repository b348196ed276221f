// Promises of posts to a NIC; docs/memory-ordering.md. The programs are in test/harness/posting.h.
#include "test/harness/posting.h"
#include "test/litmus/litmus.h"

namespace {

using namespace litmus;

constexpr uint32_t POST_ORDERS = WEIRT_WEAK_NO_RELEASE | WEIRT_WEAK_NO_ACQUIRE | WEIRT_WEAK_NO_SYSTEM;

TEST(LitmusPosting, EntriesComeOnceAndWholeInOrder) { holds<posting::Laps<2>>(POST_ORDERS | WEIRT_WEAK_NO_ATOMIC); }
TEST(LitmusPosting, OfThreePostersToo) { holds<posting::Laps<3>>(0); }

TEST(LitmusPosting, AnOwnQueueNeedsNoAtomics)
{
    holds<posting::Own>(POST_ORDERS);
    holds<posting::Counted>(POST_ORDERS);
}

// A block of two threads with its own queue. After one thread's wait and a barrier, both see the results.
struct Group : posting::Queue {
    static constexpr uint32_t threads = 3;
    static uint32_t device(uint32_t i) { return i == 2; }
    Rank rank;

    Group()
    {
        std::memset(static_cast<void *>(&rank), 0, sizeof rank);
        queue.exclusive = 1;
    }
    void thread(uint32_t i)
    {
        if (i == 2) {
            serve(6);
            return;
        }
        weir_coop block = weir_coop_block(grid_coop(rank, i, 1, 2));
        uint64_t ticket = 0;
        for (uint64_t k = 1; k <= 3; k++) {
            const weir_dev_rdma_entry entry = put(i, k);
            check(i, weir_dev_rdma_post_each(&queue, &entry, WEIR_RDMA_RING | WEIR_RDMA_SIGNALLED, block, &ticket) ==
                         WEIR_OK);
        }
        if (i == 0) {
            check(i, weir_dev_rdma_wait(&queue, ticket) == WEIR_OK);
        }
        check(i, weir_coop_sync(block) == WEIR_OK && read(peer[i]) == 3);
    }
    bool right() const { return fine() && peer[0] == 3 && peer[1] == 3; }
};

TEST(LitmusPosting, AGroupPostsTogether) { holds<Group>(POST_ORDERS | WEIRT_WEAK_NO_BARRIER); }
TEST(LitmusPosting, SignalsAreNumberedInTheirOrder) { holds<posting::Signals<2>>(POST_ORDERS | WEIRT_WEAK_NO_ATOMIC); }
TEST(LitmusPosting, ARingTellsOfAllThatItsThreadKnowsOf) { holds<posting::RungByAnother>(POST_ORDERS); }

TEST(LitmusPosting, AnErrorIsToldAfterWhatWasDoneBeforeIt)
{
    holds<posting::Failure<2>>(POST_ORDERS | WEIRT_WEAK_NO_ATOMIC);
}

TEST(LitmusPosting, AnErrorEndsThreePosters) { holds<posting::Failure<3>>(0); }
TEST(LitmusPosting, NoticesFollowTheirData) { holds<posting::Notices>(POST_ORDERS); }

TEST(LitmusPosting, CollapsedCompletionsTellTheSame)
{
    holds<posting::Collapsed<posting::Laps<2>>>(POST_ORDERS | WEIRT_WEAK_NO_ATOMIC);
    holds<posting::Collapsed<posting::Own>>(POST_ORDERS);
}

TEST(LitmusPosting, AnErrorThatIsWrittenOverEndsAll)
{
    holds<posting::Collapsed<posting::Failure<2>>>(POST_ORDERS | WEIRT_WEAK_NO_ATOMIC);
    holds<posting::Collapsed<posting::Failure<3>>>(0);
}

TEST(LitmusPosting, ARefusalIsToldWithItsReason)
{
    holds<posting::Refusal<2>>(POST_ORDERS | WEIRT_WEAK_NO_ATOMIC);
    holds<posting::Refusal<3>>(0);
}

} // namespace
