/* weir/comm.h - a communicator: this rank's device, joined with the devices of all other ranks.
 *
 *     weir_comm_create(bootstrap, device, NULL, &comm);
 *     ...                                          memories, connections, semaphores, channels
 *     weir_comm_destroy(comm);
 *
 * Setup operations between two ranks form sequences: the i-th operation that one side sends with a tag meets the i-th
 * that the other side expects with it. If the two differ, the side that expects fails with WEIR_ERR_MISMATCH, whose
 * text names both. The other side does not learn of it. If it expects an operation, too, and none is sent, its wait
 * ends with WEIR_ERR_TIMEOUT, or WEIR_ERR_REMOTE if this rank leaves before (docs/setup-order.md).
 *
 * A communicator fails as a whole: when a rank dies, when a kernel reports an error (a wait that passes its deadline,
 * a range beyond the memory), or at weir_comm_abort. From then on all its waits, on the host and in kernels, end with
 * an error, on all ranks within about a second. After a death that is WEIR_ERR_REMOTE. After an error of a kernel, its
 * own rank gets that error, and the other ranks get WEIR_ERR_ABORTED with a text that names the rank and its error;
 * WEIR_ERR_REMOTE, a loss that a kernel noticed first, and WEIR_ERR_MISMATCH are the error of all ranks. The
 * process goes on and may make a new bootstrap and communicator with the ranks that are left (docs/failure.md). After a
 * rank has destroyed its communicator, only operations that need that rank fail: WEIR_ERR_REMOTE.
 *
 * Threads:   several threads may make all calls at once, except destroy. They must agree on the order of operations
 *            with one (rank, tag).
 * Blocking:  create, until all ranks have called it; wait, until the stream is done; quiesce, until all ranks of this
 *            process have called it. After a kernel has failed, each call of the communicator or its objects waits for
 *            the record of the error. That takes the kernel microseconds. The call waits a second at most.
 * Ownership: keeps references on bootstrap and device.
 * Errors:    those of weir/bootstrap.h, WEIR_ERR_DEVICE, WEIR_ERR_NOMEM. */
#ifndef WEIR_COMM_H
#define WEIR_COMM_H

#include "weir/bootstrap.h"
#include "weir/device.h"
#include "weir/future.h"

WEIR_BEGIN_DECLS

typedef struct weir_comm weir_comm;

typedef struct weir_comm_opts {
    size_t size;
    uint32_t timeout_ms;        /* of set-up and of the host's waits; 0: the bootstrap's. WEIR_TIMEOUT_MS wins */
    uint32_t kernel_timeout_ms; /* of each wait in a kernel; 0: timeout_ms if that is given, else the bootstrap's, which
                                   is ten minutes by default. The second number of WEIR_TIMEOUT_MS wins */
} weir_comm_opts;

/* Memory that the communicator itself has allocated, in bytes; users' memories are not counted. */
typedef struct weir_comm_usage {
    uint64_t host_bytes;
    uint64_t device_bytes;
} weir_comm_usage;

WEIR_API WEIR_NODISCARD weir_status weir_comm_create(weir_bootstrap *bootstrap, weir_device *device,
                                                     const weir_comm_opts *opts, weir_comm **out);
/* Releases the caller's reference; the communicator ends when its last child is destroyed. No kernel that
 * uses it may be running, on this rank or, where ranks are threads of one process, on another (weir_comm_quiesce). */
WEIR_API void weir_comm_destroy(weir_comm *comm);

/* Destroys the communicator even while its kernels are queued, or are in graphs that live on. Returns at once; a thread
 * of the library ends it when its last child is destroyed. Waits of its kernels on this rank end with WEIR_ERR_ABORTED,
 * also in graphs that are launched later. The 4 MiB that those kernels read are freed when the device is closed, and a
 * graph keeps its device open. For the other ranks it is a destroyed communicator. A second call does nothing. */
WEIR_API void weir_comm_abandon(weir_comm *comm);

WEIR_API uint32_t weir_comm_rank(const weir_comm *comm);
WEIR_API uint32_t weir_comm_size(const weir_comm *comm);
WEIR_API weir_device *weir_comm_device(const weir_comm *comm);

/* WEIR_OK, or the first error of the communicator, which weir_last_error explains. */
WEIR_API WEIR_NODISCARD weir_status weir_comm_status(weir_comm *comm);

/* Waits until everything that was put on `stream`, a stream of the communicator's device, is done, and returns the
 * communicator's error: WEIR_OK says that the kernels have ended and that none of them reported an error.
 * timeout_ms: 0 is the deadline of kernels' waits and two seconds more. An error of the stream comes first:
 * WEIR_ERR_TIMEOUT (work on it goes on), WEIR_ERR_DEVICE. */
WEIR_API WEIR_NODISCARD weir_status weir_comm_wait(weir_comm *comm, void *stream, uint32_t timeout_ms);

/* Ends every wait of this communicator, here and on all other ranks, with WEIR_ERR_ABORTED. */
WEIR_API void weir_comm_abort(weir_comm *comm);

/* For ranks that are threads of one process, after an error of the communicator. Kernels of such ranks store into each
 * other's memory through the owner's mapping. The call reports that nothing of this rank accesses the others' memory
 * any more, and waits until the other ranks of this process have reported the same, or have destroyed their
 * communicators. Call it when this rank's streams are done (weir_comm_wait) and its proxies are stopped, and destroy
 * memory and communicator after it. It does not wait for ranks in other processes, whose mappings stay. timeout_ms: 0
 * is that of the host's waits. WEIR_ERR_TIMEOUT names a rank that did not call it, and whose kernels may still store
 * into memory of this rank: keep that memory. */
WEIR_API WEIR_NODISCARD weir_status weir_comm_quiesce(weir_comm *comm, uint32_t timeout_ms);

WEIR_API void weir_comm_get_usage(weir_comm *comm, weir_comm_usage *usage);

WEIR_END_DECLS

#endif
