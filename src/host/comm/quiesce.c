/* quiesce.c - ranks that are threads of one process agree that none of their kernels and transfers accesses the memory
 * of the others.
 *
 * A kernel of such a rank uses the addresses of the other ranks' memory directly, so it must end before an owner frees
 * that memory. Ranks in other processes have their own mappings, which stay.
 *
 * All communicators of the process are in one list, from before a rank's create meets the other ranks until the
 * communicator ends: a rank that is not in the list has ended. The lock is held during fork. */
#include <string.h>

#include "src/host/base/clock.h"
#include "src/host/base/error.h"
#include "src/host/boot/boot.h"
#include "src/host/comm/comm.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static weir_comm *first;

static void lock(void) { (void)pthread_mutex_lock(&mutex); }

static void unlock(void) { (void)pthread_mutex_unlock(&mutex); }

/* The threads that waited are the parent's. */
static void unlock_child(void)
{
    (void)weiri_cond_init(&changed);
    unlock();
}

static void prepare(void)
{
    (void)weiri_cond_init(&changed);
    (void)pthread_atfork(lock, unlock, unlock_child);
}

void weiri_quiesce_enter(weir_comm *comm)
{
    (void)pthread_once(&once, prepare);
    lock();
    comm->quiesce.next = first;
    first = comm;
    comm->quiesce.listed = true;
    unlock();
}

void weiri_quiesce_leave(weir_comm *comm)
{
    lock();
    for (weir_comm **link = &first; comm->quiesce.listed && *link != NULL; link = &(*link)->quiesce.next) {
        if (*link == comm) {
            *link = comm->quiesce.next;
            comm->quiesce.listed = false;
            break;
        }
    }
    (void)pthread_cond_broadcast(&changed);
    unlock();
}

/* A rank of the same communicator in this process that is not quiet; NULL when there is none. */
static const weir_comm *find_busy(const weir_comm *comm)
{
    const uint8_t *job = weiri_bootstrap_job(comm->bootstrap);
    const weir_comm *other = first;
    while (other != NULL && (other->end.pid != comm->end.pid || other->port != comm->port || other->quiesce.quiet ||
                             memcmp(weiri_bootstrap_job(other->bootstrap), job, 16) != 0)) {
        other = other->quiesce.next;
    }
    return other;
}

weir_status weir_comm_quiesce(weir_comm *comm, uint32_t timeout_ms)
{
    if (comm == NULL) {
        return weiri_fail_null("weir_comm_quiesce", "comm");
    }
    if (weiri_comm_forked(comm)) {
        return weiri_fail(WEIR_ERR_FORKED, "weir_comm_quiesce: the communicator belongs to the parent process");
    }
    const uint32_t longest_ms = timeout_ms != 0 ? timeout_ms : comm->timeout_ms;
    const uint64_t deadline = weiri_deadline(longest_ms);
    const weir_comm *busy;
    weir_status status = WEIR_OK;
    lock();
    comm->quiesce.quiet = true;
    (void)pthread_cond_broadcast(&changed);
    while ((busy = find_busy(comm)) != NULL && weiri_cond_wait(&changed, &mutex, deadline)) {
    }
    busy = find_busy(comm);
    if (busy != NULL) {
        status = weiri_fail(WEIR_ERR_TIMEOUT,
                            "weir_comm_quiesce: rank %u, a thread of this process, did not call it within %u ms",
                            busy->rank, longest_ms);
    }
    unlock();
    return status;
}
