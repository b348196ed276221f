/* turn.c - the turn is one word: the time at which the thread in the call began. A waiting thread sees from it whether
 * the call takes long. */
#include "src/host/base/turn.h"

#include <sched.h>
#include <stdbool.h>

#include "src/host/base/clock.h"

static bool take(weiri_turn *turn, uint64_t now, uint64_t *since)
{
    *since = 0;
    return __atomic_compare_exchange_n(&turn->since, since, now, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* A thread that began after `now` was read has been in the call for no time. */
static bool long_before(uint64_t since, uint64_t now) { return now > since && now - since >= WEIRI_TURN_NS; }

uint64_t weiri_turn_begin(weiri_turn *turn)
{
    const uint64_t begun = weiri_now_ns();
    uint64_t now = begun;
    uint64_t since = 0;
    if (take(turn, now, &since)) {
        return now;
    }
    bool taken = false;
    do {
        sched_yield();
        now = weiri_now_ns();
        taken = take(turn, now, &since);
    } while (!taken && !long_before(since, now) && !long_before(begun, now));
    return taken ? now : 0;
}

void weiri_turn_end(weiri_turn *turn, uint64_t taken)
{
    if (taken != 0) {
        __atomic_store_n(&turn->since, 0, __ATOMIC_RELEASE);
    }
}
