/* exit.c - a process that exits while its kernels wait, and communicators that are abandoned.
 *
 * The driver of a GPU waits for its kernels when the process ends, and a kernel may wait for a signal that never comes.
 * A handler of atexit(3) first gives each communicator of the process its error, so that the waits end. Handlers run in
 * the reverse order of their registration. This one is registered when the first communicator is made, for which a
 * device is open, and so runs before the driver's handler. Peers learn of the end as of any death, when the kernel
 * closes the process's sockets.
 *
 * The list of communicators that are alive also shows whether one that is abandoned is still there. */
#include "src/host/comm/exit.h"

#include <stdlib.h>
#include <unistd.h>

#include "src/host/base/error.h"
#include "src/host/comm/comm.h"

/* Held during fork, so that the child finds it unlocked. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static weir_comm *alive;
static int registered; /* 0, or an error of the registration */

static void lock(void) { (void)pthread_mutex_lock(&mutex); }

static void unlock(void) { (void)pthread_mutex_unlock(&mutex); }

void weiri_exit_run(void)
{
    lock();
    for (weir_comm *comm = alive; comm != NULL; comm = comm->exit.next) {
        /* A forked child shares the memory of the parent's communicators, and leaves them alone. */
        if (!weiri_comm_forked(comm)) {
            (void)pthread_mutex_lock(&comm->mutex);
            weiri_comm_fail_locked(comm, WEIR_ERR_ABORTED, "communicator: the process ends");
            (void)pthread_mutex_unlock(&comm->mutex);
        }
    }
    unlock();
}

static void begin(void)
{
    registered = pthread_atfork(lock, unlock, unlock);
    registered = registered != 0 || atexit(weiri_exit_run) != 0;
}

weir_status weiri_exit_add(weir_comm *comm)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, begin);
    if (registered != 0) {
        return weiri_fail_nomem("weir_comm_create: handler for the end of the process");
    }
    lock();
    comm->exit.next = alive;
    alive = comm;
    unlock();
    return WEIR_OK;
}

void weiri_exit_remove(weir_comm *comm)
{
    lock();
    for (weir_comm **at = &alive; *at != NULL; at = &(*at)->exit.next) {
        if (*at == comm) {
            *at = comm->exit.next;
            break;
        }
    }
    unlock();
}

/* False if the communicator was marked before, is gone, or belongs to the parent of a forked process. Memory of a
 * communicator that is gone is not read. */
static bool mark_abandoned(weir_comm *comm)
{
    lock();
    weir_comm *at = alive;
    while (at != NULL && at != comm) {
        at = at->exit.next;
    }
    const bool marked = at != NULL && !at->exit.abandoned && !weiri_comm_forked(at);
    if (marked) {
        at->exit.abandoned = true;
        weiri_slabs_keep(at);
    }
    unlock();
    return marked;
}

static bool may_end(void *context)
{
    (void)context;
    return true;
}

static void end(void *context) { weiri_comm_put((weir_comm *)context); }

void weir_comm_abandon(weir_comm *comm)
{
    if (comm == NULL || !mark_abandoned(comm)) { /* after an earlier call its memory may be gone */
        return;
    }
    pthread_mutex_lock(&comm->mutex);
    weiri_comm_fail_locked(comm, WEIR_ERR_ABORTED, "communicator: it was abandoned (weir_comm_abandon)");
    pthread_mutex_unlock(&comm->mutex);
    comm->exit.leaver.may_end = may_end;
    comm->exit.leaver.end = end;
    comm->exit.leaver.context = comm;
    weiri_leave(&comm->exit.leaver);
}
