/* exit.c - a process that exits while its kernels wait.
 *
 * The driver of a GPU waits for its kernels when the process ends, and a kernel may wait for a signal that never comes.
 * A handler of atexit(3) first gives each communicator of the process its error, so that the waits end. Handlers run in
 * the reverse order of their registration. This one is registered when the first communicator is made, for which a
 * device is open, and so runs before the driver's handler. Peers learn of the end as of any death, when the kernel
 * closes the process's sockets. */
#include "src/host/comm/exit.h"

#include <stdlib.h>
#include <unistd.h>

#include "src/host/base/error.h"

/* Held during fork, so that the child finds it unlocked. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static weir_comm *alive;
static int registered; /* 0, or an error of the registration */

static void lock(void) { (void)pthread_mutex_lock(&mutex); }

static void unlock(void) { (void)pthread_mutex_unlock(&mutex); }

void weiri_exit_run(void)
{
    lock();
    for (weir_comm *comm = alive; comm != NULL; comm = comm->next_alive) {
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
    comm->next_alive = alive;
    alive = comm;
    unlock();
    return WEIR_OK;
}

void weiri_exit_remove(weir_comm *comm)
{
    lock();
    for (weir_comm **at = &alive; *at != NULL; at = &(*at)->next_alive) {
        if (*at == comm) {
            *at = comm->next_alive;
            break;
        }
    }
    unlock();
}

bool weiri_exit_mark_abandoned(weir_comm *comm)
{
    lock();
    weir_comm *at = alive;
    while (at != NULL && at != comm) {
        at = at->next_alive;
    }
    const bool marked = at != NULL && !at->abandoned && !weiri_comm_forked(at);
    if (marked) {
        at->abandoned = true;
        __atomic_store_n(&at->keeps_slabs, true, __ATOMIC_RELAXED);
    }
    unlock();
    return marked;
}
