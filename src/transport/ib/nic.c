/* nic.c - an open NIC: its limits, its port, what all its queues share, and its events.
 *
 * Open reads the limits of the device and the state of its port, finds the GID, and makes a protection domain and
 * registered scratch memory. Queues poll the NIC's asynchronous events by weiri_ib_look, one thread at a time and at
 * most every 5 ms. An event of a queue is noted in the word to which the queue's context points, where the queue finds
 * it. Events of the device and of its link are logged. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "src/host/base/clock.h"
#include "src/host/base/error.h"
#include "src/host/base/log.h"
#include "src/host/base/pages.h"
#include "src/transport/ib/ib.h"

#define LOOK_NS 5000000u

/* ---- events --------------------------------------------------------------------------------------------- */

/* Notes the event of a queue pair or completion queue whose context is `place`. */
static void note(void *place, const char *what) { __atomic_store_n((const char **)place, what, __ATOMIC_RELEASE); }

static void handle_event(weiri_ib_nic *nic, const struct ibv_async_event *event)
{
    const weiri_ib_port *port = &nic->port;
    switch (event->event_type) {
    case IBV_EVENT_QP_FATAL:
        note(event->element.qp->qp_context, "the device has put the queue pair into error");
        break;
    case IBV_EVENT_QP_REQ_ERR:
        note(event->element.qp->qp_context, "the peer sent a malformed request");
        break;
    case IBV_EVENT_QP_ACCESS_ERR:
        note(event->element.qp->qp_context,
             "the peer tried an access that this side's memory does not allow, or after it was deregistered");
        break;
    case IBV_EVENT_CQ_ERR:
        note(event->element.cq->cq_context, "the completion queue is in error");
        break;
    case IBV_EVENT_DEVICE_FATAL:
        if (!__atomic_exchange_n(&nic->broken, true, __ATOMIC_RELAXED)) {
            weiri_log(WEIR_LOG_ERROR, "ib: %s has failed; the kernel's log may say why", port->device);
        }
        break;
    case IBV_EVENT_PORT_ERR:
        if ((uint32_t)event->element.port_num == port->port) {
            weiri_log(WEIR_LOG_WARN, "ib: the link of %s port %u is down", port->device, port->port);
        }
        break;
    case IBV_EVENT_PORT_ACTIVE:
        if ((uint32_t)event->element.port_num == port->port) {
            weiri_log(WEIR_LOG_INFO, "ib: the link of %s port %u is up", port->device, port->port);
        }
        break;
    default:
        break;
    }
}

void weiri_ib_look(weiri_ib_nic *nic)
{
    struct ibv_async_event event;
    if (pthread_mutex_trylock(&nic->events) != 0) {
        return;
    }
    uint64_t now = weiri_now_ns();
    if (now - nic->looked_ns >= LOOK_NS) {
        nic->looked_ns = now;
        while (weiri_ib.f_get_async_event(nic->context, &event) == 0) {
            handle_event(nic, &event);
            weiri_ib.f_ack_async_event(&event);
        }
    }
    (void)pthread_mutex_unlock(&nic->events);
}

/* ---- open and close ------------------------------------------------------------------------------------- */

weir_status weiri_ib_fail(const weiri_ib_nic *nic, int error, const char *what)
{
    char limit[WEIRI_LOCK_LIMIT_BYTES] = "";
    if (error == ENOMEM || error == EPERM || error == EAGAIN) { /* NICs lock memory */
        weiri_pages_lock_limit(limit, sizeof limit);
    }
    return weiri_fail(error == ENOMEM ? WEIR_ERR_NOMEM : WEIR_ERR_SYSTEM, "ib: %s: %s: %s%s", nic->port.device, what,
                      strerror(error), limit);
}

/* Reads the GID of a port that sysfs does not list. */
static weir_status query_gid(weiri_ib_nic *nic, uint32_t index)
{
    union ibv_gid gid;
    if (weiri_ib.f_query_gid(nic->context, (uint8_t)nic->port.port, (int)index, &gid) != 0) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "ib: %s port %u has no GID with index %u (WEIR_IB_GID_INDEX)",
                          nic->port.device, nic->port.port, index);
    }
    nic->gid.index = index;
    memcpy(nic->gid.bytes, gid.raw, sizeof gid.raw);
    return WEIR_OK;
}

/* Queries the device and its port. */
static weir_status query(weiri_ib_nic *nic, const weiri_env *env)
{
    const char *name = nic->port.device;
    uint32_t index = (uint32_t)env->ib_gid_index;
    int error = weiri_ib.f_query_device(nic->context, &nic->limits);
    if (error != 0) {
        return weiri_fail_errno(error, "ib: %s: ask for its limits", name);
    }
    error = weiri_ib.f_query_port(nic->context, (uint8_t)nic->port.port, &nic->link);
    if (error != 0) {
        return weiri_fail_errno(error, "ib: %s port %u: ask for its state", name, nic->port.port);
    }
    nic->access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    if (nic->limits.atomic_cap != IBV_ATOMIC_NONE) {
        nic->access |= IBV_ACCESS_REMOTE_ATOMIC;
    }
    /* Posts must not block, so reading events must not either. */
    if (fcntl(nic->context->async_fd, F_SETFL, fcntl(nic->context->async_fd, F_GETFL) | O_NONBLOCK) != 0) {
        return weiri_fail_errno(errno, "ib: %s: make its events non-blocking", name);
    }
    return nic->port.unlisted
               ? query_gid(nic, env->ib_gid_index_set ? index : 0)
               : weiri_ib_find_gid(WEIRI_IB_SYSFS, &nic->port, env->ib_gid_index_set ? &index : NULL, &nic->gid);
}

static weir_status allocate_in_device(weiri_ib_nic *nic)
{
    nic->pd = weiri_ib.f_alloc_pd(nic->context);
    if (nic->pd == NULL) {
        return weiri_ib_fail(nic, errno, "allocate a protection domain");
    }
    nic->scratch_mr = weiri_ib.f_reg_mr(nic->pd, nic->scratch, sizeof nic->scratch, IBV_ACCESS_LOCAL_WRITE);
    if (nic->scratch_mr == NULL) {
        weir_status status = weiri_ib_fail(nic, errno, "register memory");
        (void)weiri_ib.f_dealloc_pd(nic->pd);
        return status;
    }
    return WEIR_OK;
}

weir_status weiri_ib_nic_open(weiri_ib_nic *nic, const weiri_ib_port *port, const weiri_env *env)
{
    nic->port = *port;
    nic->timeout = (uint8_t)env->ib_timeout;
    weir_status status = weiri_ib_open_device(port->device, &nic->context);
    if (status != WEIR_OK) {
        return status;
    }
    status = query(nic, env);
    if (status == WEIR_OK) {
        status = allocate_in_device(nic);
    }
    if (status != WEIR_OK) {
        (void)weiri_ib.f_close_device(nic->context);
        return status;
    }
    (void)pthread_mutex_init(&nic->events, NULL);
    return WEIR_OK;
}

void weiri_ib_nic_close(weiri_ib_nic *nic)
{
    (void)weiri_ib.f_dereg_mr(nic->scratch_mr);
    (void)weiri_ib.f_dealloc_pd(nic->pd);
    (void)weiri_ib.f_close_device(nic->context);
    (void)pthread_mutex_destroy(&nic->events);
}
