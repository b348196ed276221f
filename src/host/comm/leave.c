/* leave.c - one thread of the process asks all leaving objects, in turn, whether they may end. It exists while there
 * are such objects. If it cannot be started, the next object that leaves tries again. */
#include "src/host/comm/leave.h"

#include <pthread.h>
#include <time.h>

#include "src/host/base/clock.h"

#define PAUSE_LEAST_NS 1000000
#define PAUSE_MOST_NS 50000000

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static weiri_leaver *leaving;
static bool running;

/* Takes an object that may end off the list; NULL if there is none. */
static weiri_leaver *take(void)
{
    weiri_leaver **link = &leaving;
    while (*link != NULL && !(*link)->may_end((*link)->context)) {
        link = &(*link)->next;
    }
    weiri_leaver *found = *link;
    if (found != NULL) {
        *link = found->next;
    }
    return found;
}

static void *end_all(void *context)
{
    struct timespec pause = { .tv_nsec = PAUSE_LEAST_NS };
    (void)context;
    (void)pthread_mutex_lock(&mutex);
    while (leaving != NULL) {
        weiri_leaver *found = take();
        (void)pthread_mutex_unlock(&mutex);
        if (found != NULL) {
            found->end(found->context);
            pause.tv_nsec = PAUSE_LEAST_NS;
        } else {
            (void)nanosleep(&pause, NULL);
            pause.tv_nsec = pause.tv_nsec < PAUSE_MOST_NS / 2 ? 2 * pause.tv_nsec : PAUSE_MOST_NS;
        }
        (void)pthread_mutex_lock(&mutex);
    }
    running = false;
    (void)pthread_mutex_unlock(&mutex);
    return NULL;
}

void weiri_leave(weiri_leaver *leaver)
{
    pthread_t thread;
    (void)pthread_mutex_lock(&mutex);
    leaver->next = leaving;
    leaving = leaver;
    if (!running && weiri_thread_create(&thread, "weir-leave", end_all, NULL) == 0) {
        running = true;
        (void)pthread_detach(thread);
    }
    (void)pthread_mutex_unlock(&mutex);
}

bool weiri_leave_is_done(void)
{
    (void)pthread_mutex_lock(&mutex);
    const bool done = leaving == NULL && !running;
    (void)pthread_mutex_unlock(&mutex);
    return done;
}
