/* weir/semaphore.h - signals between two ranks, counted, from kernels and from the host.
 *
 *     weir_semaphore_create(connection, tag, NULL, &semaphore);       on both ranks
 *     weir_semaphore_device(semaphore, &args.semaphore);              a plain struct for kernels
 *     ...
 *     weir_semaphore_destroy(semaphore);
 *
 * Each end states whether kernels or the host signal and wait there. All pairs work: device to device,
 * host to device, host to host. Each signal of one end lets one wait of the other end return. Data
 * that was written before a signal is visible after the wait that the signal ends.
 *
 * A set is `count` semaphores made at once, for kernels in which each block signals and waits by itself
 * (weir_dev_semaphore_at). Ends on the host have one semaphore.
 *
 * Threads:   any number of threads may signal; one at a time may wait or poll.
 * Blocking:  create, until the peer has called it; wait.
 * Ownership: keeps a reference on connection. Kernels must not use the handle after destroy.
 *            Before destroy every signal of the peer has been waited for, or can no longer come: a later semaphore may
 *            get the same memory, and would mistake a late signal for its own.
 * Errors:    WEIR_ERR_INVALID (a host call on a device end, and the reverse), WEIR_ERR_LIMIT (16,000 semaphores,
 *            channels and barriers a communicator), WEIR_ERR_MISMATCH (of kinds and counts), WEIR_ERR_TIMEOUT,
 *            WEIR_ERR_REMOTE, WEIR_ERR_ABORTED, WEIR_ERR_DEVICE. */
#ifndef WEIR_SEMAPHORE_H
#define WEIR_SEMAPHORE_H

#include "weir/connection.h"
#include "weir/device/types.h"

WEIR_BEGIN_DECLS

typedef struct weir_semaphore weir_semaphore;

typedef enum weir_semaphore_end {
    WEIR_SEMAPHORE_DEVICE = 0, /* kernels signal and wait at this rank */
    WEIR_SEMAPHORE_HOST = 1    /* the host signals and waits at this rank */
} weir_semaphore_end;

typedef struct weir_semaphore_opts {
    size_t size;
    weir_semaphore_end end; /* of this rank */
    uint32_t count;         /* semaphores of a set, the same on both ranks; 0: one */
} weir_semaphore_opts;

WEIR_API WEIR_NODISCARD weir_status weir_semaphore_create(weir_connection *connection, uint64_t tag,
                                                          const weir_semaphore_opts *opts, weir_semaphore **out);
WEIR_API WEIR_NODISCARD weir_status weir_semaphore_create_async(weir_connection *connection, uint64_t tag,
                                                                const weir_semaphore_opts *opts, weir_semaphore **out,
                                                                weir_future **future);
WEIR_API void weir_semaphore_destroy(weir_semaphore *semaphore);

/* The connection that it was made over; valid until the semaphore is destroyed. */
WEIR_API weir_connection *weir_semaphore_connection(const weir_semaphore *semaphore);

/* The handle for kernels, for a device end. */
WEIR_API WEIR_NODISCARD weir_status weir_semaphore_device(const weir_semaphore *semaphore, weir_dev_semaphore *out);

/* For a host end. */
WEIR_API WEIR_NODISCARD weir_status weir_semaphore_signal(weir_semaphore *semaphore);
WEIR_API WEIR_NODISCARD weir_status weir_semaphore_wait(weir_semaphore *semaphore, uint32_t timeout_ms);
/* WEIR_OK when a signal was there and is consumed, WEIR_PENDING otherwise. */
WEIR_API WEIR_NODISCARD weir_status weir_semaphore_poll(weir_semaphore *semaphore);

WEIR_END_DECLS

#endif
