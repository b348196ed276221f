/* comm.h - the communicator as the other nouns see it: this folder and all folders above include it.
 *
 * Offers references, the check with which a public call begins, the communicator's error and how to set it, and hooks
 * that describe errors. The struct is open: other nouns read what is constant after create (rank, size, device,
 * timeouts, peers' ends), and hold the mutex for all that it guards. Cells of slabs are taken by slab.h. A noun keeps a
 * reference while it exists, so the communicator outlives it. */
#ifndef WEIRI_COMM_COMM_H
#define WEIRI_COMM_COMM_H

#include <pthread.h>
#include <sys/types.h>

#include "src/host/base/refcount.h"
#include "src/host/base/service.h"
#include "src/host/comm/domain.h"
#include "src/host/comm/fd_pass.h"
#include "src/host/comm/leave.h"
#include "src/host/comm/quiesce.h"
#include "src/host/comm/slab.h"
#include "src/transport/transport.h"
#include "weir/comm.h"
#include "weir/memory.h"

#define WEIRI_CONTROL_BYTES 16384u /* at the start of the host slab, before its cells */
WEIR_STATIC_ASSERT(sizeof(weir_dev_control) <= WEIRI_CONTROL_BYTES, "the control block fits");

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

typedef struct weiri_sequence weiri_sequence; /* see exchange.c */

/* An object that may know more about a kernel's failure than the kernel's record says. */
typedef struct weiri_error_hook {
    /* Returns true and writes a clause to `text` if the object knows more. The communicator's mutex is held. */
    bool (*describe)(void *context, weir_status status, char *text, size_t bytes);
    void *context;
    struct weiri_error_hook *next;
} weiri_error_hook;

/* Writes a collective call as text, from the two words of a record of WEIR_DOING_COLLECTIVE. */
typedef void weiri_call_text_function(uint64_t word, uint64_t count, char *text, size_t bytes);

struct weir_comm {
    weiri_refcount refs;
    weir_bootstrap *bootstrap;
    weir_device *device;
    uint32_t rank;
    uint32_t size;
    uint32_t port;
    uint32_t timeout_ms;
    uint32_t kernel_timeout_ms;
    bool ordered;     /* WEIR_TRANSPORT is set */
    bool abandoned;   /* by weir_comm_abandon; guarded as next_alive */
    bool keeps_slabs; /* graphs may still name them: they end with the device */
    pid_t pid;
    weiri_end end;
    weiri_comm_peer *peers;
    weir_comm *next_alive; /* see exit.c, which guards it */
    weiri_leaver leaver;   /* of weir_comm_abandon */
    weiri_slab device_slab;
    weiri_slab host_slab;
    weir_dev_control *control;        /* for the CPU */
    weir_dev_control *control_device; /* for kernels */

    pthread_mutex_t mutex; /* guards what follows, the peers' `gone`, and all futures of this communicator */
    pthread_cond_t changed;
    bool port_open;
    weir_status failed; /* WEIR_OK, or the communicator's error */
    char failed_text[256];
    weiri_sequence *sequences;
    weir_memory *memories; /* registered here, for requests of their descriptors */
    uint64_t next_memory;
    weiri_error_hook *error_hooks;
    weiri_call_text_function *call_text; /* NULL before the first collective; kept after the last one */
    struct weir_semaphore *semaphores;   /* all that are not destroyed, for news of peers' port channels */
    uint64_t next_semaphore;
    uint32_t port_channels;            /* made so far: the next one's number */
    struct weiri_endpoints *endpoints; /* see endpoint.c; NULL before a peer asks for a queue */
    weiri_fd_pass fd_pass;
    weiri_watch *error_watch; /* checks the control block for errors of kernels */

    /* These have their own locks. */
    weiri_domains domains;
    weiri_passive_queues passive;
    weiri_quiesce quiesce;
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
/* The communicator's error, of the host or of a kernel, with its text in weir_last_error; WEIR_OK without. */
weir_status weiri_comm_error(weir_comm *comm);
/* Makes `status` the communicator's error unless it has one: ends kernels' waits and futures of this rank. For errors
 * that the other ranks notice by themselves, such as a death. Mutex held. */
void weiri_comm_fail_locked(weir_comm *comm, weir_status status, const char *text);
/* The same for an error that only this rank knows. The other ranks' communicators fail with WEIR_ERR_ABORTED, or with
 * WEIR_ERR_MISMATCH if that is `status`, and the same text, which names this rank and then `cause`. Mutex held. */
void weiri_comm_break_locked(weir_comm *comm, weir_status status, const char *cause);

/* Writes as a clause what the record of a kernel that failed with `status` says. `device` stands for a kernel without a
 * name. */
void weiri_record_text(const weir_comm *comm, weir_status status, char *text, size_t bytes);

/* The texts of collective calls come from `call_text` from now on. It outlives the collectives: a kernel's error may be
 * read after the last one is destroyed. */
void weiri_comm_set_call_text(weir_comm *comm, weiri_call_text_function *call_text);
void weiri_comm_add_error_hook(weir_comm *comm, weiri_error_hook *hook);
void weiri_comm_remove_error_hook(weir_comm *comm, weiri_error_hook *hook);

#endif
