/* turn.c - the turn is one word. A thread that takes it at once reads no clock, because the guarded calls take about a
 * microsecond each. The first thread that has to wait puts the time into the word. Later ones see from it whether the
 * call takes long. */
#include "src/host/base/turn.h"

#include <sched.h>

#include "src/host/base/clock.h"

#define UNSEEN 1u /* the turn is taken, and no other thread has seen it */

/* Replaces the word if it is *seen. Otherwise *seen becomes the word. */
static bool replace(weiri_turn *turn, uint64_t *seen, uint64_t by)
{
    return __atomic_compare_exchange_n(&turn->since, seen, by, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* `since` may be later than `now`: another thread read it. */
static bool long_before(uint64_t since, uint64_t now) { return now > since && now - since >= WEIRI_TURN_NS; }

static bool wait_for(weiri_turn *turn)
{
    const uint64_t begun = weiri_now_ns();
    uint64_t now = begun;
    for (;;) {
        uint64_t seen = UNSEEN;
        if (replace(turn, &seen, now)) {
            seen = now;
        } else if (seen == 0 && replace(turn, &seen, UNSEEN)) {
            return true;
        }
        if ((seen > UNSEEN && long_before(seen, now)) || long_before(begun, now)) {
            return false;
        }
        (void)sched_yield();
        now = weiri_now_ns();
    }
}

bool weiri_turn_begin(weiri_turn *turn)
{
    uint64_t seen = 0;
    return replace(turn, &seen, UNSEEN) || wait_for(turn);
}

void weiri_turn_end(weiri_turn *turn, bool taken)
{
    if (taken) {
        __atomic_store_n(&turn->since, 0, __ATOMIC_RELEASE);
    }
}
