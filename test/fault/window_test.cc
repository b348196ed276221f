// Windows of which one device aborts, is killed, or is stopped, while ranks of the others wait for its notification,
// for room in its ring, or in the barrier. All waits end, the text names that device, and the others build a new
// communicator with a window.
#include <cstdlib>
#include <cstring>
#include <string>

#include "test/harness/checks.h"
#include "test/harness/stage_test.h"
#include "test/harness/window_bench.h"

namespace {

using windows::Bench;
using windows::Script;
using windows::Way;

const Way mapped = { "mapped", 0, nullptr };
constexpr uint32_t LOST = 2;            // the device that fails
constexpr uint32_t RANKS = 2;           // of each device
constexpr uint32_t STOP_TIMEOUT = 5000; // WEIR_TIMEOUT_MS, ms

enum Activity : uint32_t { WAITS, WAITS_FOR_ANY, WAITS_FOR_ROOM, IN_BARRIER };

struct Plan {
    Activity activity;
    weirt_death death; // WEIRT_ALIVE: the device aborts
    uint32_t end_ms;   // time limit of the kernels' ends
};

// The rings have two words. Both ranks of a device make the call.
Script script_of(const Plan *plan)
{
    const uint32_t lost = LOST * RANKS;
    switch (plan->activity) {
    case WAITS:
        return { { windows::wait(lost, 5) }, { windows::wait(lost + 1, 5) } };
    case WAITS_FOR_ANY:
        return { { windows::wait(WEIR_ANY_RANK, 5) }, { windows::take(WEIR_ANY_RANK, WEIR_ANY_TAG, 0) } };
    case WAITS_FOR_ROOM:
        return { { windows::notify(lost, 5, 9) }, { windows::notify(lost + 1, 5, 9) } };
    default: {
        const weirt_window_step barrier = windows::step_of(WEIRT_CALL_BARRIER, 0, 0);
        return { { barrier }, { barrier } };
    }
    }
}

void wait_until_lost(weirt_rank *rank, Bench *bench, const Plan *plan)
{
    const weir_status expected = plan->death == WEIRT_ALIVE ? WEIR_ERR_ABORTED : WEIR_ERR_REMOTE;
    if (!WEIRT_OK(rank, bench->launch_script(rank, script_of(plan)))) {
        return;
    }
    weirt_sleep_ms(30); // so that the kernel waits already
    weirt_step(rank, 1);
    if (!weirt_step_wait(rank, LOST, 1) ||
        !WEIRT_OK(rank, weir_stream_wait(bench->c.device, bench->stream, plan->end_ms))) {
        return;
    }
    WEIRT_STATUS(rank, expected, weir_comm_status(bench->c.comm));
    WEIRT_TEXT(rank, "rank 2");
    for (uint32_t i = 0; i < RANKS; i++) {
        const weirt_window_result &got = bench->result(i, 0);
        WEIRT_EXPECT(rank, got.status[0] == expected && got.status[1] == expected);
        WEIRT_EXPECT(rank, got.done <= (plan->activity == WAITS_FOR_ROOM ? 2u : 0u));
    }
    weir_window *window = nullptr;
    WEIRT_STATUS(rank, expected, weir_window_create(bench->c.comm, nullptr, &window));
    uint32_t id = 77;
    WEIRT_STATUS(rank, expected, weir_window_register(bench->windows[0], bench->memories[0], 0, 8, &id));
}

// Ranks 0 and 1 go on without the other one.
void go_on(const weirt_rank *rank)
{
    constexpr uint64_t SLOT = 64;
    weirt_rank two = *rank;
    Bench bench;
    two.size = LOST;
    const uint64_t bytes = 2 * LOST * RANKS * SLOT;
    if (bench.join(&two, 0) && bench.open(&two, mapped, RANKS, 0, bytes, bytes, 1) &&
        WEIRT_OK(&two, bench.launch_exchange(&two, bench.exchange(SLOT, 60, 10, WEIRT_WINDOW_PUT_NOTIFY), RANKS)) &&
        WEIRT_OK(&two, bench.finish())) {
        for (uint32_t i = 0; i < RANKS; i++) {
            WEIRT_EXPECT(&two, bench.report()->status[i] == WEIR_OK && bench.report()->rounds[i] == 10);
        }
        WEIRT_EXPECT(&two, bench.report()->wrong == 0);
        WEIRT_OK(&two, weir_comm_status(bench.c.comm));
    }
    weirt_step(&two, 2);
    (void)weirt_step_wait(&two, 1 - two.rank, 2);
    bench.close();
}

void lose_one(weirt_rank *rank)
{
    const Plan *plan = static_cast<const Plan *>(rank->arg);
    Bench bench;
    weirt_log_allow(""); // the log depends on the death
    const bool open = bench.join(rank, 0) && bench.open(rank, mapped, RANKS, 1, 256, 256, 1) && weirt_barrier(rank);
    if (open && rank->rank != LOST) {
        wait_until_lost(rank, &bench, plan);
        bench.close();
        go_on(rank);
        return;
    }
    if (open && weirt_step_wait(rank, 0, 1) && weirt_step_wait(rank, 1, 1)) {
        weirt_step(rank, 1);
        if (plan->death != WEIRT_ALIVE) {
            weirt_die(rank, plan->death);
        }
        weir_comm_abort(bench.c.comm);
        WEIRT_STATUS(rank, WEIR_ERR_ABORTED, weir_comm_status(bench.c.comm));
        // Its memory stays until the others have ended.
        (void)weirt_step_wait(rank, 0, 2);
        (void)weirt_step_wait(rank, 1, 2);
    }
    bench.close();
}

class WindowFault : public StageTest {
protected:
    void lose(Activity activity, weirt_death death, uint32_t end_ms) const
    {
        // A GPU does nothing else at this time, but other programs share the processor.
        const bool gpu = std::strcmp(stage()->kind, "gpu") == 0;
        const Plan plan = { activity, death, end_ms + (gpu ? 0 : 5000 * weirt_slow()) };
        weirt_ranks_run(stage(), 3, lose_one, &plan, sizeof plan);
    }
    void stop(Activity activity) const
    {
        const uint32_t timeout = STOP_TIMEOUT * weirt_slow();
        // Silence ends the waits; on a busy machine the kernels' own deadline must not come first.
        setenv("WEIR_TIMEOUT_MS", (std::to_string(timeout) + "," + std::to_string(3 * timeout)).c_str(), 1);
        lose(activity, WEIRT_STOP, 2 * timeout);
        unsetenv("WEIR_TIMEOUT_MS");
    }
};

INSTANTIATE_TEST_SUITE_P(Stages, WindowFault, ::testing::Values(1, 3), weirt_stage_name);

TEST_P(WindowFault, AbortEndsAWait) { lose(WAITS, WEIRT_ALIVE, 1000); }
TEST_P(WindowFault, AbortEndsAWaitForRoom) { lose(WAITS_FOR_ROOM, WEIRT_ALIVE, 1000); }
TEST_P(WindowFault, AbortEndsTheBarrier) { lose(IN_BARRIER, WEIRT_ALIVE, 1000); }
TEST_P(WindowFault, DeathEndsAWait) { lose(WAITS, WEIRT_KILL, 1000); }
TEST_P(WindowFault, DeathEndsAWaitForAnyRank) { lose(WAITS_FOR_ANY, WEIRT_KILL, 1000); }
TEST_P(WindowFault, DeathEndsAWaitForRoom) { lose(WAITS_FOR_ROOM, WEIRT_KILL, 1000); }
TEST_P(WindowFault, DeathEndsTheBarrier) { lose(IN_BARRIER, WEIRT_KILL, 1000); }
TEST_P(WindowFault, SilenceEndsAWait) { stop(WAITS); }
TEST_P(WindowFault, SilenceEndsAWaitForRoom) { stop(WAITS_FOR_ROOM); }
TEST_P(WindowFault, SilenceEndsTheBarrier) { stop(IN_BARRIER); }

} // namespace
