/* weir/connection.h - two ranks joined by a transport.
 *
 *     weir_connection_create(comm, peer, tag, NULL, &connection);     on both ranks
 *     ...                                                             semaphores and channels over it
 *     weir_connection_destroy(connection);
 *
 * The communicator chooses the first transport that both ends have, in the order of the lower rank (WEIR_TRANSPORT).
 * weir-info shows which work, and why others do not. Inside a host it is `ipc`: loads and stores into the peer's
 * memory, over NVLink or PCIe between GPUs, through shared memory between CPU devices, and directly within a process.
 *
 * A rank may connect to itself, by one call: the two ends are then the same. Its signals end its own waits, and it
 * receives the memory that it sends.
 *
 * Threads:   as weir/comm.h.
 * Blocking:  create, until the peer has called it.
 * Ownership: keeps a reference on comm.
 * Errors:    WEIR_ERR_UNSUPPORTED (no transport joins the two, saying why for each), WEIR_ERR_MISMATCH (the two sides
 *            name different ones), WEIR_ERR_TIMEOUT, WEIR_ERR_REMOTE, WEIR_ERR_ABORTED, WEIR_ERR_INVALID,
 *            WEIR_ERR_LIMIT (the peer is 64 MiB behind with messages), WEIR_ERR_CORRUPT, WEIR_ERR_NOMEM,
 *            WEIR_ERR_DEVICE, WEIR_ERR_SYSTEM, WEIR_ERR_FORKED. */
#ifndef WEIR_CONNECTION_H
#define WEIR_CONNECTION_H

#include "weir/comm.h"

WEIR_BEGIN_DECLS

typedef struct weir_connection weir_connection;

typedef struct weir_connection_opts {
    size_t size;
    const char *transport; /* name of the only transport to try, the same on both sides; NULL for the best */
} weir_connection_opts;

WEIR_API WEIR_NODISCARD weir_status weir_connection_create(weir_comm *comm, uint32_t peer, uint64_t tag,
                                                           const weir_connection_opts *opts, weir_connection **out);
WEIR_API WEIR_NODISCARD weir_status weir_connection_create_async(weir_comm *comm, uint32_t peer, uint64_t tag,
                                                                 const weir_connection_opts *opts,
                                                                 weir_connection **out, weir_future **future);
WEIR_API void weir_connection_destroy(weir_connection *connection);

WEIR_API uint32_t weir_connection_peer(const weir_connection *connection);
/* True if 128-byte lines (weir/device/impl/line.h) can be sent over it: between CPU devices, inside a GPU, and over
 * NVLink between two GPUs that this process sees. */
WEIR_API bool weir_connection_keeps_lines(const weir_connection *connection);
/* "ipc", "ib" or "ofi". */
WEIR_API const char *weir_connection_transport(const weir_connection *connection);

WEIR_END_DECLS

#endif
