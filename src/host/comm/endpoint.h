/* endpoint.h - the queues of a connection's endpoint.
 *
 * A noun that posts takes a queue from the endpoint of its connection, and closes it when it posts no more. Queues are
 * opened when they are taken, never before: what does not post costs none. A queue has a key on each rank, by which the
 * two ends find each other; semaphores give their ids. Of the folders above, the port channel uses it.
 *
 * Threads:   any, at the same time, for different keys.
 * Blocking:  take, until the peer has opened its end, with the communicator's deadline; the peer's own calls are not
 *            needed for that. close, while the endpoint thread opens that queue, at most for the timeout of the
 *            communicator.
 * Errors:    a close that reaches the deadline logs the peer, and leaves the queue, the connection and the communicator
 *            to the endpoint thread: none of them is ever freed. */
#ifndef WEIRI_COMM_ENDPOINT_H
#define WEIRI_COMM_ENDPOINT_H

#include "src/host/base/wire.h"
#include "src/host/comm/connection.h"

/* Returns the queue of this rank's `key`. If the transport joins queues, it is joined to the queue of the peer's
 * `peer_key`. Until it is closed, a queue can be taken again. Error texts begin with `call`. WEIR_ERR_TIMEOUT and
 * WEIR_ERR_REMOTE name the peer; otherwise errors of the transport, on either rank. */
weir_status weiri_endpoint_take(weir_connection *connection, uint64_t key, uint64_t peer_key, const char *call,
                                weiri_queue **out);
/* Closes the queue of the key, if there is one; also one that only the peer has asked for. Keys are not used again. */
void weiri_endpoint_close(weir_connection *connection, uint64_t key);
/* Queues that are open. */
uint32_t weiri_endpoint_queues(const weir_connection *connection);

/* A message of `peer` that begins with `kind`, WEIRI_PORT_QUEUE or WEIRI_PORT_QUEUE_REFUSED. False when it is
 * malformed. Service thread, mutex held. */
bool weiri_endpoint_message_locked(weir_comm *comm, uint32_t peer, uint8_t kind, weiri_reader *message);
/* Ends the communicator's endpoint thread. No connection exists any more. */
void weiri_endpoint_stop(weir_comm *comm);

#endif
