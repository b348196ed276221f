/* failure.c - the error that a communicator keeps.
 *
 * The first error stays. It comes from the host, from a peer's message, or from the control block, which every check
 * and the service thread read. It ends the waits of kernels and all futures. An error that only this rank knows is sent
 * to the other ranks. */
#include "src/host/comm/failure.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "src/host/base/error.h"
#include "src/host/boot/boot.h"
#include "src/host/comm/comm.h"
#include "weir/device/impl/spin.h"
#include "weir/stream.h"

#define KERNEL_GRACE_MS 2000 /* a kernel whose wait passes its deadline ends before the wait for its stream */
#define ERROR_CHECK_MS 500   /* how long an error of a kernel may be unknown to the other ranks */
/* For a kernel to complete the record of its error, about a second: */
#define RECORD_PAUSE_NS 50000
#define RECORD_LOOKS 10000u
#define RECORD_CHECKS 2u

void weiri_comm_fail_locked(weir_comm *comm, weir_status status, const char *text)
{
    if (comm->failure.status != WEIR_OK) {
        return;
    }
    __atomic_store_n(&comm->failure.status, status, __ATOMIC_RELAXED);
    snprintf(comm->failure.text, sizeof comm->failure.text, "%s", text);
    if (comm->slabs.control != NULL) {
        __atomic_store_n(&comm->slabs.control->abort_status, (int32_t)status, __ATOMIC_RELEASE);
        weir_dev_control_end(comm->slabs.control);
    }
    weiri_exchange_fail_locked(comm, true, 0, status, text);
    pthread_cond_broadcast(&comm->changed);
}

void weiri_comm_break_locked(weir_comm *comm, weir_status status, const char *cause)
{
    if (comm->failure.status == WEIR_OK) {
        char text[sizeof comm->failure.text];
        snprintf(text, sizeof text, "communicator: rank %u: %s", comm->rank, cause);
        weiri_comm_fail_locked(comm, status, text);
        weiri_exchange_abort(comm, status, cause);
    }
}

weir_status weiri_comm_break(weir_comm *comm, weir_status status, const char *cause)
{
    char text[256]; /* `cause` may be the thread's last error */
    snprintf(text, sizeof text, "%s", cause);
    pthread_mutex_lock(&comm->mutex);
    weiri_comm_break_locked(comm, status, text);
    pthread_mutex_unlock(&comm->mutex);
    return weiri_comm_error(comm);
}

/* The error that the communicator keeps. */
static weir_status kept_error(weir_comm *comm)
{
    char text[sizeof comm->failure.text];
    pthread_mutex_lock(&comm->mutex);
    const weir_status status = comm->failure.status;
    memcpy(text, comm->failure.text, sizeof text);
    pthread_mutex_unlock(&comm->mutex);
    return weiri_fail(status, "%s", text);
}

/* A kernel has failed. The communicator fails on all ranks, since they may wait for something that the kernel has not
 * done. Returns the communicator's error, which may be an earlier one. */
static weir_status fail_by_kernel(weir_comm *comm, weir_status status)
{
    char cause[224];
    pthread_mutex_lock(&comm->mutex);
    bool described = false;
    for (weiri_error_hook *hook = comm->failure.hooks; hook != NULL && !described; hook = hook->next) {
        described = hook->describe(hook->context, status, cause, sizeof cause);
    }
    if (!described) {
        weiri_record_text(comm, status, cause, sizeof cause);
    }
    weiri_comm_break_locked(comm, status, cause);
    pthread_mutex_unlock(&comm->mutex);
    return kept_error(comm);
}

void weiri_comm_set_call_text(weir_comm *comm, weiri_call_text_function *call_text)
{
    pthread_mutex_lock(&comm->mutex);
    comm->failure.call_text = call_text;
    pthread_mutex_unlock(&comm->mutex);
}

void weiri_comm_add_error_hook(weir_comm *comm, weiri_error_hook *hook)
{
    pthread_mutex_lock(&comm->mutex);
    hook->next = comm->failure.hooks;
    comm->failure.hooks = hook;
    pthread_mutex_unlock(&comm->mutex);
}

void weiri_comm_remove_error_hook(weir_comm *comm, weiri_error_hook *hook)
{
    pthread_mutex_lock(&comm->mutex);
    weiri_error_hook **at = &comm->failure.hooks;
    while (*at != hook) {
        at = &(*at)->next;
    }
    *at = hook->next;
    pthread_mutex_unlock(&comm->mutex);
}

/* Acquire: the kernel wrote its record before this word. */
static weir_status kernel_error(const weir_comm *comm)
{
    return (weir_status)__atomic_load_n(&comm->slabs.control->error_status, __ATOMIC_ACQUIRE);
}

/* The status of a thread of a kernel that has failed, and has stored its error or is about to do so. */
static weir_status claimed_error(const weir_comm *comm)
{
    return (weir_status)(int32_t)__atomic_load_n(&comm->slabs.control->claimed, __ATOMIC_RELAXED);
}

/* Returns when the thread that has failed has stored its error, or when the communicator has failed otherwise. After
 * about a second it returns anyway, and the error has no record. It counts looks and not time: on a busy machine the
 * other thread is slow, too. */
static void await_record(weir_comm *comm)
{
    const struct timespec pause = { 0, RECORD_PAUSE_NS };
    for (uint32_t look = 0; look < RECORD_LOOKS && kernel_error(comm) == WEIR_OK &&
                            __atomic_load_n(&comm->failure.status, __ATOMIC_RELAXED) == WEIR_OK;
         look++) {
        (void)nanosleep(&pause, NULL);
    }
}

weir_status weiri_comm_error(weir_comm *comm)
{
    /* Every call of weir comes here. It takes the mutex only if there is an error. */
    if (__atomic_load_n(&comm->failure.status, __ATOMIC_RELAXED) != WEIR_OK) {
        return kept_error(comm);
    }
    const weir_status status = claimed_error(comm);
    if (status == WEIR_OK) {
        return WEIR_OK;
    }
    await_record(comm);
    return fail_by_kernel(comm, status);
}

/* On the service thread, which does not wait for a record, but counts the checks without it. */
static void check_for_error(void *context)
{
    weir_comm *comm = (weir_comm *)context;
    const weir_status status = claimed_error(comm);
    if (status != WEIR_OK && (kernel_error(comm) != WEIR_OK || ++comm->failure.claims > RECORD_CHECKS)) {
        (void)fail_by_kernel(comm, status);
    }
}

weir_status weiri_failure_start(weir_comm *comm)
{
    return weiri_service_watch_time(weiri_bootstrap_service(comm->bootstrap), ERROR_CHECK_MS, check_for_error, comm,
                                    &comm->failure.watch);
}

void weiri_failure_stop(weir_comm *comm)
{
    weiri_service_unwatch(weiri_bootstrap_service(comm->bootstrap), comm->failure.watch);
}

weir_status weir_comm_status(weir_comm *comm) { return weiri_comm_check("comm", comm, "weir_comm_status"); }

weir_status weir_comm_wait(weir_comm *comm, void *stream, uint32_t timeout_ms)
{
    if (comm == NULL) {
        return weiri_fail_null("weir_comm_wait", "comm");
    }
    if (weiri_comm_forked(comm)) {
        return weiri_fail(WEIR_ERR_FORKED, "weir_comm_wait: the communicator belongs to the parent process");
    }
    const uint32_t longest = timeout_ms != 0 ? timeout_ms : comm->kernel_timeout_ms + KERNEL_GRACE_MS;
    weir_status status = weir_stream_wait(comm->device, stream, longest);
    return status != WEIR_OK ? status : weiri_comm_error(comm);
}

void weir_comm_abort(weir_comm *comm)
{
    if (comm == NULL || weiri_comm_forked(comm)) {
        return;
    }
    pthread_mutex_lock(&comm->mutex);
    weiri_comm_break_locked(comm, WEIR_ERR_ABORTED, "weir_comm_abort");
    pthread_mutex_unlock(&comm->mutex);
}
