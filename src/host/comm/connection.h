/* connection.h - the connection as the other nouns of this folder see it: the transport between two ranks, the peer's
 * slabs, and the queues of its endpoint. Other folders reach it through a semaphore. */
#ifndef WEIRI_COMM_CONNECTION_H
#define WEIRI_COMM_CONNECTION_H

#include "src/host/base/refcount.h"
#include "src/transport/transport.h"
#include "weir/connection.h"
#include "weir/memory.h"

typedef struct weiri_endpoint_queue weiri_endpoint_queue;

struct weir_connection {
    weiri_refcount refs;
    weir_comm *comm;
    uint32_t peer;
    const weiri_transport_ops *transport;
    weiri_domain *domain;     /* NULL for a transport without queues */
    weir_memory *device_slab; /* the peer's, mapped here if the transport maps memory */
    weir_memory *host_slab;
    weiri_remote *device_remote; /* the slab as target of posts; NULL before the first port channel that needs it */
    weiri_remote *host_remote;
    bool lines;                   /* 128-byte stores arrive whole, both ways */
    weiri_endpoint_queue *queues; /* of this end; see endpoint.c */
};

void weiri_connection_get(weir_connection *connection);
/* The peer's slab as a target of posts. */
weir_status weiri_connection_remote(weir_connection *connection, bool host, weiri_remote **out);

#endif
