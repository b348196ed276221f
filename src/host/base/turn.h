/* turn.h - threads take turns at a call that may block, and none waits long for another.
 *
 *     const bool taken = weiri_turn_begin(&turn);
 *     the call
 *     weiri_turn_end(&turn, taken);
 *
 * Calls of two threads overlap only if a thread had waited for one of them for WEIRI_TURN_NS: then the thread in that
 * call may be blocked until another makes its own. So a turn is no lock, and must not protect data. All bytes zero is a
 * turn that nobody has. */
#ifndef WEIRI_TURN_H
#define WEIRI_TURN_H

#include <stdbool.h>
#include <stdint.h>

#define WEIRI_TURN_NS 1000000u

typedef struct weiri_turn {
    uint64_t since; /* when a waiting thread first saw the call in progress, by weiri_now_ns; 1: no thread has; 0: there
                       is no call */
    char line[56];  /* turns of an array do not share a line of the cache */
} weiri_turn;

/* Waits for the turn, for at most WEIRI_TURN_NS. False if the caller did not get it, and goes on all the same. */
bool weiri_turn_begin(weiri_turn *turn);
void weiri_turn_end(weiri_turn *turn, bool taken);

#endif
