/* boot.h - what communicators need of a bootstrap beyond its public calls.
 *
 * A port is a namespace of messages for one communicator. Messages of a port are delivered to its handler on
 * the service thread, in order per sender; what arrives before the port is opened is kept for it. */
#ifndef WEIRI_BOOT_BOOT_H
#define WEIRI_BOOT_BOOT_H

#include "src/host/base/service.h"
#include "weir/bootstrap.h"

#define WEIRI_KEY_BYTES 32

typedef struct weiri_port_handler {
    /* A message of `peer` (possibly this rank itself). `data` is valid during the call. An empty one says, perhaps in
     * answer to a message, that the peer's port is closed: nothing more will come from there. Service thread. */
    void (*message)(void *context, uint32_t peer, const uint8_t *data, size_t bytes);
    /* `rank` died or does not answer (status WEIR_ERR_REMOTE; text names it), or left. Called once a rank, also for
     * ranks that were gone when the port was opened. Service thread. */
    void (*gone)(void *context, uint32_t rank, bool died, const char *text);
    void *context;
} weiri_port_handler;

/* What begins a meeting point that is the path of a rendezvous file, which holds rank 0's unique id. */
#define WEIRI_FILE_PREFIX "file:"

/* Where and until when ranks meet. A meeting at a unique id may move: `moved`, unless NULL, is asked now and then
 * while rank 0 does not know this rank, without any lock. */
typedef struct weiri_meeting {
    const char *where;
    const char *hint; /* what follows the text of a timeout in which rank 0 could not be reached; "" for nothing */
    uint64_t deadline_ns;
    bool (*moved)(void *context);
    void *context;
} weiri_meeting;

/* As weir_bootstrap_create; `opts` are complete. WEIR_PENDING: the meeting has moved, and nothing was created. */
weir_status weiri_bootstrap_create_at(const weiri_meeting *meeting, uint32_t rank, uint32_t size,
                                      const weir_bootstrap_opts *opts, weir_bootstrap **out);

/* WEIR_ERR_INVALID for NULL, WEIR_ERR_FORKED in the child of a fork. Takes no lock. */
weir_status weiri_boot_check(const weir_bootstrap *bootstrap);

/* The service thread, for watches of the communicator's own. */
weiri_service *weiri_bootstrap_service(weir_bootstrap *bootstrap);
/* The job's key: WEIRI_KEY_BYTES, and the job's 16-byte identity, the same on all ranks, new for each job. */
const uint8_t *weiri_bootstrap_key(const weir_bootstrap *bootstrap);
const uint8_t *weiri_bootstrap_job(const weir_bootstrap *bootstrap);
uint32_t weiri_bootstrap_timeout(const weir_bootstrap *bootstrap);
uint32_t weiri_bootstrap_kernel_timeout(const weir_bootstrap *bootstrap);

void weiri_bootstrap_get(weir_bootstrap *bootstrap);
/* Gives up a reference; the last one leaves, as weir_bootstrap_destroy. */
void weiri_bootstrap_put(weir_bootstrap *bootstrap);

/* Takes part in the next collective of all ranks by failing it: everyone gets `status` and `text`. */
void weiri_bootstrap_refuse(weir_bootstrap *bootstrap, weir_status status, const char *text);

/* A number for the next port, the same on all ranks if all call it in the same order. */
uint32_t weiri_bootstrap_next_port(weir_bootstrap *bootstrap);
weir_status weiri_bootstrap_open_port(weir_bootstrap *bootstrap, uint32_t port, const weiri_port_handler *handler);
/* No handler of the port runs or will run after this. Every number that was drawn is closed at last, also when its port
 * was never opened. Not from a callback. */
void weiri_bootstrap_close_port(weir_bootstrap *bootstrap, uint32_t port);

/* Queues a message, of at least one byte unless it says that the port is closed here; never blocks; any thread.
 * WEIR_ERR_REMOTE when the peer is gone,
 * WEIR_ERR_LIMIT when it has stopped handling what is sent to it. */
weir_status weiri_bootstrap_post(weir_bootstrap *bootstrap, uint32_t peer, uint32_t port, const void *data,
                                 size_t bytes);

#endif
