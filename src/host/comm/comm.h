/* comm.h - the communicator as the other nouns see it: this folder and all folders above include it.
 *
 * Offers references and the check with which a public call begins. The struct is open. Other nouns read what is
 * constant after create (rank, size, device, timeouts, peers' ends). The state of each noun of this folder has its type
 * in the noun's header, and the noun's .c file changes it. A noun keeps a reference while it exists, so the
 * communicator outlives it. */
#ifndef WEIRI_COMM_COMM_H
#define WEIRI_COMM_COMM_H

#include <pthread.h>

#include "src/host/base/refcount.h"
#include "src/host/comm/domain.h"
#include "src/host/comm/exchange.h"
#include "src/host/comm/exit.h"
#include "src/host/comm/failure.h"
#include "src/host/comm/fd_pass.h"
#include "src/host/comm/memory.h"
#include "src/host/comm/quiesce.h"
#include "src/host/comm/semaphore.h"
#include "src/host/comm/slab.h"
#include "src/transport/transport.h"
#include "weir/comm.h"
#include "weir/memory.h"

typedef struct weiri_comm_peer {
    weiri_end end;
    const weiri_transport_ops *mapper; /* maps memory of this rank here; NULL when none does */
    bool heard; /* the peer has sent something: this rank reports the end of its communicator to it */
    bool gone;
    char gone_text[128];
    uint32_t logged;          /* one bit for each event of this peer that was logged: WEIRI_LOGGED_... */
    weir_memory *device_slab; /* the peer's slabs, mapped here; NULL before the first connection */
    weir_memory *host_slab;
} weiri_comm_peer;

/* Numbers of bits. The bit of transport i is WEIRI_LOGGED_TRANSPORT + i. */
enum {
    WEIRI_LOGGED_PROXY,
    WEIRI_LOGGED_FALLBACK,
    WEIRI_LOGGED_KERNELS,
    WEIRI_LOGGED_UNSTARTED,
    WEIRI_LOGGED_TRANSPORT
};

struct weir_comm {
    weiri_refcount refs;
    weir_bootstrap *bootstrap;
    weir_device *device;
    uint32_t rank;
    uint32_t size;
    uint32_t port; /* of the bootstrap; the same number on all ranks */
    uint32_t timeout_ms;
    uint32_t kernel_timeout_ms;
    bool ordered; /* WEIR_TRANSPORT is set */
    weiri_end end;
    weiri_comm_peer *peers;

    pthread_mutex_t mutex; /* guards what follows, the peers' `gone`, and all futures of this communicator */
    pthread_cond_t changed;
    weiri_failure failure;
    weiri_exchange_state exchange;
    weiri_fd_pass fd_pass;
    weiri_slabs slabs; /* the states of their cells */
    weiri_memories memories;
    weiri_semaphores semaphores;
    struct weiri_endpoints *endpoints; /* see endpoint.c; NULL before a peer asks for a queue */
    uint32_t port_channels;            /* made so far: the next one's number */

    /* These have their own locks. */
    weiri_domains domains;
    weiri_quiesce quiesce;
    weiri_exit_state exit;
};

void weiri_comm_get(weir_comm *comm);
/* True at the first call with this peer and `what` (WEIRI_LOGGED_...). */
bool weiri_comm_logs_first(weir_comm *comm, uint32_t peer, uint32_t what);
void weiri_comm_put(weir_comm *comm);

/* WEIR_OK when this process may use the communicator; WEIR_ERR_INVALID, "<call>: <object> is NULL", when it is NULL;
 * WEIR_ERR_FORKED; or the communicator's error with its own text. `object` names the argument that leads to it. */
weir_status weiri_comm_check(const char *object, weir_comm *comm, const char *call);
/* Whether this process is a child of the one that made the communicator: its objects are then left alone,
 * since their threads and perhaps their locks belong to the parent. */
bool weiri_comm_forked(const weir_comm *comm);

#endif
