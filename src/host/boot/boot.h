/* boot.h - the part of the bootstrap that other folders use beside its public calls.
 *
 * Offers ports, the job's key and identity, timeouts, the service thread, and meetings of ranks that a launcher
 * started. host/comm opens a port for each communicator; it and what is above use the rest.
 *
 * A port is a namespace of messages for one communicator. The service thread passes the messages of a port to its
 * handler, in order per sender. Messages that arrive before the port is opened are kept for it. */
#ifndef WEIRI_BOOT_BOOT_H
#define WEIRI_BOOT_BOOT_H

#include "src/host/base/service.h"
#include "weir/bootstrap.h"

#define WEIRI_KEY_BYTES 32

typedef struct weiri_port_handler {
    /* A message of `peer`, which may be this rank. `data` is valid during the call. An empty message reports, possibly
     * in answer to a message, that the peer's port is closed and nothing more will come. Service thread. */
    void (*message)(void *context, uint32_t peer, const uint8_t *data, size_t bytes);
    /* `rank` left, or it died or does not answer (`died`; `text` names it). Called once a rank, also for ranks that
     * were gone when the port was opened. Service thread. */
    void (*gone)(void *context, uint32_t rank, bool died, const char *text);
    void *context;
} weiri_port_handler;

/* The prefix of a meeting point that is a rendezvous file; the file holds rank 0's unique id. */
#define WEIRI_FILE_PREFIX "file:"

/* The meeting point of the ranks and the deadline. A meeting at a unique id may move: while rank 0 does not know this
 * rank, `moved` is called now and then, without a lock. It may be NULL. */
typedef struct weiri_meeting {
    const char *where;
    const char *hint; /* appended to the text of a timeout in which rank 0 could not be reached; may be "" */
    uint64_t deadline_ns;
    bool (*moved)(void *context);
    void *context;
} weiri_meeting;

/* As weir_bootstrap_create, with complete opts. WEIR_PENDING: the meeting has moved, and nothing was created. */
weir_status weiri_bootstrap_create_at(const weiri_meeting *meeting, uint32_t rank, uint32_t size,
                                      const weir_bootstrap_opts *opts, weir_bootstrap **out);

/* WEIR_ERR_INVALID for NULL, WEIR_ERR_FORKED in the child of a fork. Error texts begin with `call`. Takes no lock. */
weir_status weiri_boot_check(const weir_bootstrap *bootstrap, const char *call);

/* The service thread, for watches of the communicator. */
weiri_service *weiri_bootstrap_service(weir_bootstrap *bootstrap);
/* The job's key (WEIRI_KEY_BYTES) and its 16-byte identity. Both are the same on all ranks and new for each job. */
const uint8_t *weiri_bootstrap_key(const weir_bootstrap *bootstrap);
const uint8_t *weiri_bootstrap_job(const weir_bootstrap *bootstrap);
uint32_t weiri_bootstrap_timeout(const weir_bootstrap *bootstrap);
uint32_t weiri_bootstrap_kernel_timeout(const weir_bootstrap *bootstrap);

void weiri_bootstrap_get(weir_bootstrap *bootstrap);
/* Drops a reference; the last one leaves, as weir_bootstrap_destroy does. */
void weiri_bootstrap_put(weir_bootstrap *bootstrap);

/* Takes part in the next collective of all ranks by failing it: all ranks get `status` and `text`. */
void weiri_bootstrap_refuse(weir_bootstrap *bootstrap, weir_status status, const char *text);

/* A number for the next port, the same on all ranks if all call it in the same order. */
uint32_t weiri_bootstrap_next_port(weir_bootstrap *bootstrap);
weir_status weiri_bootstrap_open_port(weir_bootstrap *bootstrap, uint32_t port, const weiri_port_handler *handler);
/* After this no handler of the port runs. Each number must be closed in the end, also if its port was never opened. Not
 * for callbacks. */
void weiri_bootstrap_close_port(weir_bootstrap *bootstrap, uint32_t port);

/* Queues a message. An empty one reports that the port is closed here. Never blocks; any thread. WEIR_ERR_REMOTE when
 * the peer is gone, WEIR_ERR_LIMIT when its handler has fallen too far behind. */
weir_status weiri_bootstrap_post(weir_bootstrap *bootstrap, uint32_t peer, uint32_t port, const void *data,
                                 size_t bytes);

#endif
