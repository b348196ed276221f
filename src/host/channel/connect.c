/* connect.c - the calls of two ranks that make a connection, a semaphore and a channel in one step.
 *
 * The ranks first exchange what they ask for, and compare it. This is the first operation of the call on (peer, tag).
 * If the peer makes another call, or asks for something else, both ranks have used one operation of the sequence, and
 * the tag stays usable. All that follows are the operations of the public calls, on the same (peer, tag). The
 * connection comes first, because a transport can name memory only once it has a connection. The memories and the
 * semaphore follow, begun together. */
#include <string.h>

#include "src/host/base/clock.h"
#include "src/host/base/error.h"
#include "src/host/base/wire.h"
#include "src/host/channel/proxy.h"
#include "src/host/comm/comm.h"
#include "src/host/comm/exchange.h"
#include "src/host/comm/semaphore.h"
#include "weir/memory_channel.h"
#include "weir/port_channel.h"

#define PENDING_MAX 3

typedef struct connect_request {
    const char *call; /* the public function, for error texts */
    weiri_op op;      /* its operation; the peer's must be the same */
    weir_comm *comm;
    uint32_t peer;
    uint64_t tag;
    weir_connection *connection; /* NULL: make a new one, */
    const char *transport;       /* over this transport, NULL for the best */
    weir_semaphore_opts semaphore;
    uint64_t packet_bytes;    /* of this rank's packet buffer, 0 without one; both ranks must give the same */
    weir_memory *memories[2]; /* memories for the peer; both ranks give the same number */
    uint32_t memory_count;
} connect_request;

typedef struct connect_parts {
    weir_connection *connection;
    weir_semaphore *semaphore;
    weir_memory *memories[2]; /* the peer's */
} connect_parts;

/* Drops the references; NULL members are allowed. */
static void release(connect_parts *parts)
{
    weir_memory_destroy(parts->memories[0]);
    weir_memory_destroy(parts->memories[1]);
    weir_semaphore_destroy(parts->semaphore);
    weir_connection_destroy(parts->connection);
}

static weir_status mismatch(const connect_request *request, const char *what, uint64_t here, uint64_t there)
{
    return weiri_fail(WEIR_ERR_MISMATCH, "%s: %s: %llu on rank %u, %llu on rank %u", request->call, what,
                      (unsigned long long)here, request->comm->rank, (unsigned long long)there, request->peer);
}

static weir_status check(const connect_request *request)
{
    const weir_comm *comm = request->comm;
    if (request->peer >= comm->size) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: peer %u does not exist; there are %u ranks", request->call,
                          request->peer, comm->size);
    }
    for (uint32_t i = 0; i < request->memory_count; i++) {
        if (request->memories[i]->comm != comm || request->memories[i]->imported) {
            return weiri_fail(WEIR_ERR_INVALID, "%s: local and packets must be memory of this rank and communicator",
                              request->call);
        }
    }
    const weir_connection *connection = request->connection;
    if (connection != NULL && (connection->comm != comm || connection->peer != request->peer)) {
        return weiri_fail(WEIR_ERR_INVALID,
                          "%s: the connection is of another communicator, or to rank %u instead of %u", request->call,
                          connection->peer, request->peer);
    }
    if (connection != NULL && request->transport != NULL) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: both connection and transport are given", request->call);
    }
    return WEIR_OK;
}

/* Compares the peer's request with this rank's. */
static weir_status finish(weir_future *future)
{
    const connect_request *request = (const connect_request *)future->out;
    weiri_reader r = weiri_reader_init(future->payload, future->payload_bytes);
    const uint32_t connections = weiri_read_u32(&r);
    const uint32_t semaphores = weiri_read_u32(&r);
    const uint64_t packet_bytes = weiri_read_u64(&r);
    if (!weiri_reader_done(&r) || future->handle_count != 0) {
        return weiri_fail(WEIR_ERR_CORRUPT, "%s: malformed message of rank %u", request->call, request->peer);
    }
    if (connections != (request->connection != NULL)) {
        return mismatch(request, "connections given", request->connection != NULL, connections);
    }
    if (semaphores != request->semaphore.count) {
        return mismatch(request, "semaphores", request->semaphore.count, semaphores);
    }
    if (packet_bytes != request->packet_bytes) {
        return mismatch(request, "bytes of packets", request->packet_bytes, packet_bytes);
    }
    return WEIR_OK;
}

static weir_status agree(const connect_request *request)
{
    uint8_t payload[16];
    weir_future *future;
    weiri_writer w = weiri_writer_init(payload, sizeof payload);
    weiri_write_u32(&w, request->connection != NULL);
    weiri_write_u32(&w, request->semaphore.count);
    weiri_write_u64(&w, request->packet_bytes);
    const weiri_op_message message = { request->op, payload, w.size, { NULL, NULL }, 0 };
    weir_status status = weiri_exchange_expect(request->comm, request->peer, request->tag, request->op, finish, NULL,
                                               NULL, (void *)request, &future);
    if (status != WEIR_OK) {
        return status;
    }
    status = weiri_exchange_send(request->comm, request->peer, request->tag, &message);
    if (status != WEIR_OK) {
        weir_future_destroy(future);
        return status;
    }
    return weiri_exchange_complete(future);
}

/* Waits until `deadline` for a future whose begin returned `begun`, and destroys it. Returns `begun` if it is an
 * error. */
static weir_status complete(weir_status begun, weir_future *future, uint64_t deadline)
{
    weir_status status = begun;
    if (status == WEIR_OK && future != NULL) {
        const uint64_t left = weiri_left_ms(deadline);
        status = weir_future_wait(future, left != 0 ? (uint32_t)left : 1);
    }
    weir_future_destroy(future);
    return status;
}

static weir_status connect(const connect_request *request, uint64_t deadline, connect_parts *parts)
{
    if (request->connection != NULL) {
        weiri_connection_get(request->connection);
        parts->connection = request->connection;
        return WEIR_OK;
    }
    const weir_connection_opts opts = { sizeof opts, request->transport };
    weir_future *future = NULL;
    const weir_status status =
        weir_connection_create_async(request->comm, request->peer, request->tag, &opts, &parts->connection, &future);
    return complete(status, future, deadline);
}

/* Both ranks begin the same operations in the same order. */
static weir_status exchange(const connect_request *request, uint64_t deadline, connect_parts *parts)
{
    weir_future *futures[PENDING_MAX] = { NULL, NULL, NULL };
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < request->memory_count && status == WEIR_OK; i++) {
        status = weir_memory_send(request->comm, request->memories[i], request->peer, request->tag);
        if (status == WEIR_OK) {
            status =
                weir_memory_recv_async(request->comm, request->peer, request->tag, &parts->memories[i], &futures[i]);
        }
    }
    if (status == WEIR_OK) {
        status = weir_semaphore_create_async(parts->connection, request->tag, &request->semaphore, &parts->semaphore,
                                             &futures[PENDING_MAX - 1]);
    }
    for (uint32_t i = 0; i < PENDING_MAX; i++) {
        status = complete(status, futures[i], deadline);
    }
    return status;
}

/* Waits for the peer's call, for the communicator's timeout at most. On failure *out needs no release. */
static weir_status make_parts(const connect_request *request, connect_parts *out)
{
    connect_parts parts = { NULL, NULL, { NULL, NULL } };
    const uint64_t deadline = weiri_deadline(request->comm->timeout_ms);
    weir_status status = check(request);
    if (status == WEIR_OK) {
        status = agree(request);
    }
    if (status != WEIR_OK) {
        return status; /* the text names the call already */
    }
    status = connect(request, deadline, &parts);
    if (status == WEIR_OK) {
        status = exchange(request, deadline, &parts);
    }
    if (status != WEIR_OK) {
        release(&parts);
        return weiri_fail(status, "%s to rank %u: %s", request->call, request->peer, weir_last_error());
    }
    *out = parts;
    return WEIR_OK;
}

weir_status weir_memory_channel_connect(weir_comm *comm, uint32_t peer, uint64_t tag, weir_memory *local,
                                        const weir_memory_channel_connect_opts *opts, weir_memory_channel **out)
{
    const char *const call = "weir_memory_channel_connect";
    weir_memory_channel_connect_opts options;
    connect_parts parts;
    weir_status status = weiri_comm_check("comm", comm, call);
    if (status != WEIR_OK) {
        return status;
    }
    if (local == NULL || out == NULL || !WEIRI_OPTS_OK(opts)) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: %s", call,
                          local == NULL ? "local is NULL"
                          : out == NULL ? "out is NULL"
                                        : WEIRI_OPTS_ERROR(opts));
    }
    weiri_opts_copy(&options, sizeof options, opts);
    if (local->comm != comm || local->imported) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: local is not memory of this rank and communicator", call);
    }
    if (options.packets != NULL && (uintptr_t)weir_memory_pointer(options.packets) % 16 != 0) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: packets is not 16-byte aligned", call);
    }
    const weir_memory_channel_opts channel = { .size = sizeof channel, .packets = options.packets };
    const connect_request request = {
        .call = call,
        .op = WEIRI_OP_MEMORY_CHANNEL,
        .comm = comm,
        .peer = peer,
        .tag = tag,
        .connection = options.connection,
        .semaphore = { .size = sizeof request.semaphore, .count = options.semaphores != 0 ? options.semaphores : 1 },
        .packet_bytes = weir_memory_bytes(options.packets),
        .memories = { options.packets != NULL ? options.packets : local },
        .memory_count = 1,
    };
    status = make_parts(&request, &parts);
    if (status == WEIR_OK) {
        status = weir_memory_channel_create(parts.semaphore, parts.memories[0], local, &channel, out);
        release(&parts); /* the channel holds its own references */
    }
    return status;
}

weir_status weir_port_channel_connect(weir_proxy *proxy, uint32_t peer, uint64_t tag, weir_memory *local,
                                      const weir_port_channel_connect_opts *opts, weir_port_channel **out)
{
    const char *const call = "weir_port_channel_connect";
    weir_port_channel_connect_opts options;
    weir_port_channel_opts channel;
    connect_parts parts;
    weir_status status = weiri_comm_check("proxy", proxy == NULL ? NULL : proxy->comm, call);
    if (status != WEIR_OK) {
        return status;
    }
    if (local == NULL || out == NULL || !WEIRI_OPTS_OK(opts)) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: %s", call,
                          local == NULL ? "local is NULL"
                          : out == NULL ? "out is NULL"
                                        : WEIRI_OPTS_ERROR(opts));
    }
    weiri_opts_copy(&options, sizeof options, opts);
    if (!WEIRI_OPTS_OK(options.channel)) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: channel: %s", call, WEIRI_OPTS_ERROR(options.channel));
    }
    weiri_opts_copy(&channel, sizeof channel, options.channel);
    channel.size = sizeof channel;
    if (channel.peer_packets != NULL) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: channel->peer_packets is set; it is received from the peer", call);
    }
    if (options.end != WEIR_SEMAPHORE_DEVICE && options.end != WEIR_SEMAPHORE_HOST) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: unknown end %d", call, (int)options.end);
    }
    if (weiri_worker_is_inside(proxy)) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: called by a callback of the proxy", call);
    }
    const connect_request request = {
        .call = call,
        .op = WEIRI_OP_PORT_CHANNEL,
        .comm = proxy->comm,
        .peer = peer,
        .tag = tag,
        .connection = options.connection,
        .transport = options.transport,
        .semaphore = { .size = sizeof request.semaphore, .end = options.end, .count = 1 },
        .packet_bytes = weir_memory_bytes(channel.packets),
        .memories = { local, channel.packets },
        .memory_count = channel.packets != NULL ? 2 : 1,
    };
    status = make_parts(&request, &parts);
    if (status == WEIR_OK) {
        channel.peer_packets = parts.memories[1];
        status = weir_port_channel_create(proxy, parts.semaphore, parts.memories[0], local, &channel, out);
        release(&parts); /* the channel holds its own references */
    }
    return status;
}
