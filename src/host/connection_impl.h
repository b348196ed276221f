/* connection_impl.h - the connection as the other nouns see it. */
#ifndef WEIRI_CONNECTION_IMPL_H
#define WEIRI_CONNECTION_IMPL_H

#include "src/host/comm_impl.h"
#include "weir/connection.h"

struct weir_connection {
    weiri_refcount refs;
    weir_comm *comm;
    uint32_t peer;
    const weiri_transport_ops *transport;
    bool lines; /* 128-byte stores arrive whole, both ways */
};

void weiri_connection_get(weir_connection *connection);

#endif
