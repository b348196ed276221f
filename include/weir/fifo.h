/* weir/fifo.h - a queue of requests from kernels, or from host threads, to one host thread.
 *
 *     weir_fifo_create(comm, NULL, &fifo);
 *     weir_fifo_device(fifo, &args.fifo);                          a plain struct for kernels
 *     ...                                                          weir_dev_fifo_push in kernels
 *     while (running) {
 *         if (weir_fifo_poll(fifo, &request) == WEIR_OK) {
 *             ...                                                  what it asks for
 *             weir_fifo_complete(fifo);
 *         }
 *     }
 *     weir_fifo_destroy(fifo);
 *
 * The caller decides what requests mean. weir/proxy.h has threads that poll fifos.
 *
 * Any number of threads push at the same time, whatever the number of slots; requests carry ids of 32 bits and offsets,
 * sizes and values of 64 bits.
 *
 * Threads:   any number may push, test and wait; one at a time may poll and complete.
 * Blocking:  push while there is no room, and wait; with a timeout in milliseconds, 0 is the communicator's.
 * Ownership: keeps a reference on comm. Kernels must not use the handle after destroy.
 * Errors:    WEIR_ERR_INVALID (a host call on a fifo of kernels, and the reverse), WEIR_ERR_LIMIT, WEIR_ERR_NOMEM,
 *            WEIR_ERR_DEVICE, WEIR_ERR_TIMEOUT, WEIR_ERR_FORKED, and the communicator's error. */
#ifndef WEIR_FIFO_H
#define WEIR_FIFO_H

#include "weir/comm.h"
#include "weir/device/types.h"

WEIR_BEGIN_DECLS

typedef struct weir_fifo weir_fifo;

#define WEIR_FIFO_SLOTS_MAX (1u << 20)

typedef enum weir_fifo_end {
    WEIR_FIFO_DEVICE = 0, /* kernels push */
    WEIR_FIFO_HOST = 1    /* host threads of this process push */
} weir_fifo_end;

typedef struct weir_fifo_opts {
    size_t size;
    weir_fifo_end end; /* where the pushers run */
    uint32_t slots;    /* 2 to WEIR_FIFO_SLOTS_MAX, rounded up to a power of two; default 2,048. 64 bytes each */
} weir_fifo_opts;

WEIR_API WEIR_NODISCARD weir_status weir_fifo_create(weir_comm *comm, const weir_fifo_opts *opts, weir_fifo **out);
WEIR_API void weir_fifo_destroy(weir_fifo *fifo);

/* The handle for kernels, of a fifo into which kernels push. */
WEIR_API WEIR_NODISCARD weir_status weir_fifo_device(const weir_fifo *fifo, weir_dev_fifo *out);

/* Takes the next request; WEIR_PENDING if there is no request. After the communicator has failed, it returns that error
 * within some hundred empty polls. Requests that were pushed can still be polled. */
WEIR_API WEIR_NODISCARD weir_status weir_fifo_poll(weir_fifo *fifo, weir_request *out);
/* Completes all requests that were polled so far: their tickets are done and their slots free. Once after several
 * requests is cheaper than after each. */
WEIR_API void weir_fifo_complete(weir_fifo *fifo);

/* For a fifo into which host threads push. A push that times out leaves nothing behind, and is no error of the
 * communicator. `ticket` may be NULL. */
WEIR_API WEIR_NODISCARD weir_status weir_fifo_push(weir_fifo *fifo, const weir_request *request, uint32_t timeout_ms,
                                                   uint64_t *ticket);
/* WEIR_OK when the request of that ticket, and all before it, are completed; WEIR_PENDING when not yet. */
WEIR_API WEIR_NODISCARD weir_status weir_fifo_test(weir_fifo *fifo, uint64_t ticket);
WEIR_API WEIR_NODISCARD weir_status weir_fifo_wait(weir_fifo *fifo, uint64_t ticket, uint32_t timeout_ms);

WEIR_END_DECLS

#endif
