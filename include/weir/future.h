/* weir/future.h - an operation that needs a peer and has not completed yet.
 *
 *     weir_memory *remote;
 *     weir_future *future;
 *     weir_memory_recv_async(comm, peer, tag, &remote, &future);
 *     ...                                        other work
 *     status = weir_future_wait(future, 0);      `remote` is set when this is WEIR_OK
 *     weir_future_destroy(future);
 *
 * The communicator's service thread progresses futures; the calling thread of test or wait finishes them
 * (maps memory, for example) and sets the output that was given to the ..._async call, which must stay valid
 * until then. A future completes once: later calls return the same status.
 *
 * Destroying a pending future cancels the caller's interest, not the operation's place in the sequence of its
 * (rank, tag). A wait that times out fails the future for good and poisons that sequence: later operations on
 * it return WEIR_ERR_TIMEOUT at once.
 *
 * Threads:   one thread at a time per future.
 * Blocking:  wait, until completion, error or timeout.
 * Ownership: the caller destroys the future, before or after its communicator.
 * Errors:    those of the operation; WEIR_PENDING from test; WEIR_ERR_TIMEOUT from wait. */
#ifndef WEIR_FUTURE_H
#define WEIR_FUTURE_H

#include "weir/base.h"

WEIR_BEGIN_DECLS

typedef struct weir_future weir_future;

WEIR_API WEIR_NODISCARD weir_status weir_future_test(weir_future *future);
/* timeout_ms: 0 is the communicator's. */
WEIR_API WEIR_NODISCARD weir_status weir_future_wait(weir_future *future, uint32_t timeout_ms);
WEIR_API void weir_future_destroy(weir_future *future);

WEIR_END_DECLS

#endif
