/* connection.c - connections: two ranks choose the transport between them, and map each other's slabs. */
#include "weir/connection.h"

#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/base/log.h"
#include "src/host/comm/comm.h"
#include "src/host/comm/connection.h"
#include "src/host/comm/domain.h"
#include "src/host/comm/exchange.h"

#define NAME_BYTES 16

void weiri_connection_get(weir_connection *connection) { weiri_refcount_get(&connection->refs); }

void weir_connection_destroy(weir_connection *connection)
{
    if (connection != NULL && !weiri_comm_forked(connection->comm) && weiri_refcount_put(&connection->refs)) {
        weir_comm *comm = connection->comm;
        if (connection->domain != NULL) {
            const weiri_queue_ops *ops = connection->domain->transport->queue;
            ops->remote_close(connection->device_remote);
            ops->remote_close(connection->host_remote);
        }
        weir_memory_destroy(connection->device_slab);
        weir_memory_destroy(connection->host_slab);
        weiri_free(connection);
        weiri_comm_put(comm);
    }
}

weir_status weiri_connection_remote(weir_connection *connection, bool host, weiri_remote **out)
{
    weir_comm *comm = connection->comm;
    weiri_remote **kept = host ? &connection->host_remote : &connection->device_remote;
    weir_status status = WEIR_OK;
    pthread_mutex_lock(&comm->domains.mutex);
    if (*kept == NULL) {
        status = weiri_memory_remote(host ? connection->host_slab : connection->device_slab, connection->domain, kept);
    }
    pthread_mutex_unlock(&comm->domains.mutex);
    if (status == WEIR_OK) {
        *out = *kept;
    }
    return status;
}

static void discard(void *context) { weir_connection_destroy((weir_connection *)context); }

/* Maps one of the peer's slabs, unless an earlier connection has; *out is a reference. */
static weir_status map_slab(weir_comm *comm, weir_memory **slab, const weiri_handle *handle, int fd, weir_memory **out)
{
    weir_memory *memory = NULL;
    pthread_mutex_lock(&comm->mutex);
    bool mapped = *slab != NULL;
    pthread_mutex_unlock(&comm->mutex);
    weir_status status = mapped ? WEIR_OK : weiri_memory_map(comm, handle, fd, false, &memory);
    if (status != WEIR_OK) {
        return status;
    }
    pthread_mutex_lock(&comm->mutex);
    if (*slab == NULL) {
        *slab = memory;
        memory = NULL;
    }
    weiri_memory_get(*slab);
    *out = *slab;
    pthread_mutex_unlock(&comm->mutex);
    weir_memory_destroy(memory); /* another thread was faster */
    return WEIR_OK;
}

/* Maps the peer's slabs, or only describes them if the transport maps no memory. */
static weir_status take_slabs(weir_connection *connection, const weir_future *future)
{
    weir_comm *comm = connection->comm;
    weiri_comm_peer *peer = &comm->peers[connection->peer];
    if (connection->transport->map == NULL) {
        weir_status status = weiri_memory_describe(comm, &future->handles[0], false, &connection->device_slab);
        return status != WEIR_OK ? status
                                 : weiri_memory_describe(comm, &future->handles[1], false, &connection->host_slab);
    }
    weir_status status =
        map_slab(comm, &peer->device_slab, &future->handles[0], future->fds[0], &connection->device_slab);
    return status != WEIR_OK
               ? status
               : map_slab(comm, &peer->host_slab, &future->handles[1], future->fds[1], &connection->host_slab);
}

static weir_status finish(weir_future *future)
{
    weir_connection *connection = (weir_connection *)future->context;
    weir_comm *comm = connection->comm;
    char name[NAME_BYTES];
    weiri_reader r = weiri_reader_init(future->payload, future->payload_bytes);
    weiri_read_string(&r, name, sizeof name);
    uint32_t lines = weiri_read_u32(&r);
    if (!weiri_reader_done(&r) || future->handle_count != 2 || future->handles[0].rank != connection->peer ||
        future->handles[1].rank != connection->peer) {
        return weiri_fail(WEIR_ERR_CORRUPT, "weir_connection_create: malformed message of rank %u", connection->peer);
    }
    /* The peer's offsets of cells are checked against this rank's slabs, so the peer's slabs must not be smaller. */
    if (future->handles[0].block.size < weir_memory_bytes(comm->slabs.device.memory) ||
        future->handles[1].block.size < weir_memory_bytes(comm->slabs.host.memory)) {
        return weiri_fail(WEIR_ERR_CORRUPT, "weir_connection_create: slabs of rank %u are too small", connection->peer);
    }
    if (strcmp(name, connection->transport->name) != 0) {
        return weiri_fail(WEIR_ERR_MISMATCH, "weir_connection_create: rank %u uses transport %s, rank %u %s",
                          comm->rank, connection->transport->name, connection->peer, name);
    }
    weir_status status = take_slabs(connection, future);
    if (status == WEIR_OK) {
        connection->lines = connection->lines && lines != 0;
        *(weir_connection **)future->out = connection;
    }
    return status;
}

/* Sends this side's half and expects the other's. */
static weir_status join(weir_connection *connection, uint64_t tag, weir_connection **out, weir_future **future)
{
    weir_comm *comm = connection->comm;
    uint8_t payload[8 + NAME_BYTES];
    weiri_writer w = weiri_writer_init(payload, sizeof payload);
    weiri_write_string(&w, connection->transport->name);
    weiri_write_u32(&w, connection->lines);
    weiri_memory_make_keys(comm->slabs.device.memory);
    weiri_memory_make_keys(comm->slabs.host.memory);
    weiri_op_message message = {
        WEIRI_OP_CONNECTION, payload, w.size, { comm->slabs.device.memory, comm->slabs.host.memory }, 2
    };
    weir_status status = weiri_exchange_expect(comm, connection->peer, tag, WEIRI_OP_CONNECTION, finish, discard,
                                               connection, out, future);
    if (status != WEIR_OK) {
        weir_connection_destroy(connection);
        return status;
    }
    status = weiri_exchange_send(comm, connection->peer, tag, &message);
    if (status != WEIR_OK) {
        weir_future_destroy(*future);
    }
    return status;
}

static void log_transport(weir_comm *comm, uint32_t peer, const weiri_transport_ops *transport, const char *reasons)
{
    uint32_t index = 0;
    while (weiri_transport_at(index) != transport) {
        index++;
    }
    if (weiri_comm_logs_first(comm, peer, WEIRI_LOGGED_TRANSPORT + index)) {
        weiri_log(WEIR_LOG_INFO, "connection of rank %u to rank %u: transport %s%s%s", comm->rank, peer,
                  transport->name, reasons[0] != '\0' ? "; why no other: " : "", reasons);
    }
}

weir_status weir_connection_create_async(weir_comm *comm, uint32_t peer, uint64_t tag, const weir_connection_opts *opts,
                                         weir_connection **out, weir_future **future)
{
    weir_connection_opts options;
    weir_status status = weiri_comm_check("comm", comm, "weir_connection_create");
    if (status != WEIR_OK) {
        return status;
    }
    if (out == NULL || future == NULL) {
        return weiri_fail_null("weir_connection_create", out == NULL ? "out" : "future");
    }
    if (peer >= comm->size) {
        return weiri_fail(WEIR_ERR_INVALID, "weir_connection_create: there is no rank %u among %u", peer, comm->size);
    }
    if (!WEIRI_OPTS_OK(opts)) {
        return weiri_fail(WEIR_ERR_INVALID, "weir_connection_create: %s", WEIRI_OPTS_ERROR(opts));
    }
    weiri_opts_copy(&options, sizeof options, opts);
    const weiri_transport_ops *transport;
    char reasons[WEIRI_REASONS_BYTES];
    const char *only = comm->ordered ? NULL : options.transport;
    status = weiri_transport_choose(comm->device, &comm->end, &comm->peers[peer].end, only, &transport, reasons);
    if (status != WEIR_OK) {
        return status;
    }
    log_transport(comm, peer, transport, reasons);
    weir_connection *connection = (weir_connection *)weiri_alloc(1, sizeof *connection);
    if (connection == NULL) {
        return weiri_fail_nomem("weir_connection_create");
    }
    weiri_refcount_init(&connection->refs);
    connection->comm = comm;
    connection->peer = peer;
    connection->transport = transport;
    connection->lines =
        transport->keeps_lines != NULL && transport->keeps_lines(comm->device, &comm->end, &comm->peers[peer].end);
    weiri_comm_get(comm);
    if (transport->queue != NULL) {
        status = weiri_domain_get(comm, transport, &connection->domain);
    }
    if (status != WEIR_OK) {
        weir_connection_destroy(connection);
        return status;
    }
    weir_future *pending;
    status = join(connection, tag, out, &pending);
    if (status == WEIR_OK) {
        *future = pending;
    }
    return status;
}

weir_status weir_connection_create(weir_comm *comm, uint32_t peer, uint64_t tag, const weir_connection_opts *opts,
                                   weir_connection **out)
{
    weir_future *future;
    weir_status status = weir_connection_create_async(comm, peer, tag, opts, out, &future);
    return status == WEIR_OK ? weiri_exchange_complete(future) : status;
}

uint32_t weir_connection_peer(const weir_connection *connection) { return connection != NULL ? connection->peer : 0; }

bool weir_connection_keeps_lines(const weir_connection *connection) { return connection != NULL && connection->lines; }

const char *weir_connection_transport(const weir_connection *connection)
{
    return connection != NULL ? connection->transport->name : NULL;
}
