/* weir/memory.h - memory that peers may access: registered here, or received from a peer.
 *
 *     weir_memory_allocate(comm, bytes, NULL, &local);             or weir_memory_register(comm, pointer, ...)
 *     weir_memory_send(comm, local, peer, tag);
 *     weir_memory_recv(comm, peer, tag, &remote);                  the peer's, mapped here
 *     ...                                                          channels over both
 *     weir_memory_destroy(remote); weir_memory_destroy(local);
 *
 * A part of an allocation can be registered. On a GPU, memory is the device's own or pinned host memory. Device memory
 * of weir_memory_allocate, of cudaMalloc and of exportable cuMem allocations can be mapped by other processes. On the
 * CPU device any memory can be registered: peers in the same process can use it, and memory of weir_memory_allocate can
 * be used by all processes of the host.
 *
 * A handle (export, import) is bytes: versioned, length-checked and authenticated with the job's key, so that
 * a truncated or altered one is refused. Each allocation has a unique identity: a new buffer at the address of a freed
 * one is never taken for it.
 *
 * Threads:   as weir/comm.h.
 * Blocking:  recv and import, with the communicator's timeout; the others never wait for a peer.
 * Ownership: registered memory stays the caller's and must outlive the object and every peer's use of it;
 *            allocated memory belongs to the object. Destroy imports before the exporter destroys its memory.
 * Errors:    WEIR_ERR_INVALID, WEIR_ERR_RANGE, WEIR_ERR_UNSUPPORTED (memory that cannot be shared, naming the
 *            setting to change; a rank on another host), WEIR_ERR_CORRUPT, WEIR_ERR_VERSION, WEIR_ERR_AUTH,
 *            WEIR_ERR_MISMATCH, WEIR_ERR_TIMEOUT, WEIR_ERR_REMOTE, WEIR_ERR_ABORTED, WEIR_ERR_LIMIT (send, when the
 *            peer is 64 MiB behind; opts.touch_threads), WEIR_ERR_NOMEM, WEIR_ERR_DEVICE,
 *            WEIR_ERR_SYSTEM, WEIR_ERR_FORKED. */
#ifndef WEIR_MEMORY_H
#define WEIR_MEMORY_H

#include "weir/comm.h"

WEIR_BEGIN_DECLS

typedef struct weir_memory weir_memory;

typedef struct weir_memory_opts {
    size_t size;
    weir_memory_kind kind; /* this and the next two are only for weir_memory_allocate */
    bool huge_pages;       /* needs WEIR_MEMORY_HOST; pages of 2 MiB if the system has enough (vm.nr_hugepages); the log
                              says at level info which pages it got */
    uint32_t touch_threads; /* needs WEIR_MEMORY_HOST; threads that write to all pages before allocate returns, at most
                               64; 0: none */
} weir_memory_opts;

/* Most bytes of a handle. */
#define WEIR_MEMORY_HANDLE_MAX 512

/* Allocates `bytes` (at least 1) of zeroed memory that peers can map, and registers it. */
WEIR_API WEIR_NODISCARD weir_status weir_memory_allocate(weir_comm *comm, uint64_t bytes, const weir_memory_opts *opts,
                                                         weir_memory **out);

/* Registers `bytes` at `pointer`, which the communicator's device can access. */
WEIR_API WEIR_NODISCARD weir_status weir_memory_register(weir_comm *comm, void *pointer, uint64_t bytes,
                                                         const weir_memory_opts *opts, weir_memory **out);

WEIR_API void weir_memory_destroy(weir_memory *memory);

/* Where kernels of this rank's device, and copies, access the memory. */
WEIR_API void *weir_memory_pointer(const weir_memory *memory);
/* Where the CPU of this process may access it; NULL for a GPU's own memory. */
WEIR_API void *weir_memory_host_pointer(const weir_memory *memory);
WEIR_API uint64_t weir_memory_bytes(const weir_memory *memory);
/* The rank that registered it. */
WEIR_API uint32_t weir_memory_rank(const weir_memory *memory);

/* Writes the handle to `handle`, of *bytes capacity, and its length to *bytes. WEIR_ERR_RANGE when it does not
 * fit; *bytes is then the length needed. */
WEIR_API WEIR_NODISCARD weir_status weir_memory_export(weir_memory *memory, void *handle, size_t *bytes);
WEIR_API WEIR_NODISCARD weir_status weir_memory_import(weir_comm *comm, const void *handle, size_t bytes,
                                                       weir_memory **out);

/* Sends a handle to `peer` (itself too) as the next operation of (peer, tag). */
WEIR_API WEIR_NODISCARD weir_status weir_memory_send(weir_comm *comm, weir_memory *memory, uint32_t peer, uint64_t tag);
/* Receives the memory that `peer` sends as its next operation on (this rank, tag). */
WEIR_API WEIR_NODISCARD weir_status weir_memory_recv(weir_comm *comm, uint32_t peer, uint64_t tag, weir_memory **out);
WEIR_API WEIR_NODISCARD weir_status weir_memory_recv_async(weir_comm *comm, uint32_t peer, uint64_t tag,
                                                           weir_memory **out, weir_future **future);

WEIR_END_DECLS

#endif
