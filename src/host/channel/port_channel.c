/* port_channel.c - a channel of a proxy whose handler posts to a queue of a transport.
 *
 * The queue moves the data: by a NIC, by copy engines of GPUs, or between CPU devices by copies of the proxy's thread.
 * Each channel takes a queue from its connection's endpoint and shares it with no other channel. So an error of the
 * transport ends one channel only, and large transfers of one channel do not delay those of another. A request is
 * checked, then posted, and is under way until the queue has completed its last post. A signal stores the count of
 * signals so far into the second token of the peer's cell, so no NIC needs atomics for it. Kernels that signal by
 * themselves use the first token.
 *
 * If kernels post to the NIC by themselves (port_line.c), only requests of the host go through the proxy.
 *
 * The handler runs with the mutex of the proxy's thread, which guards all that changes here. */
#include "weir/port_channel.h"

#include <stdio.h>
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/base/log.h"
#include "src/host/boot/boot.h"
#include "src/host/channel/port_line.h"
#include "src/host/channel/proxy.h"
#include "src/host/comm/domain.h"
#include "src/host/comm/endpoint.h"
#include "src/host/comm/memory.h"
#include "weir/device/impl/request_check.h"

#define DIRECT_BYTES 4096u
#define VITAL_CHECK_MS 400
#define LINE_CHECK_MS 500 /* how long the peer may not know that kernels' posts have ended */
#define MEMORIES_MAX (1u << 24)

struct weir_port_channel {
    weir_proxy *proxy; /* kept by the reference of `requests` */
    uint32_t number;   /* counts this rank's port channels in the order of their creation */
    weir_semaphore *semaphore;
    weir_proxy_channel *requests;
    weiri_queue *queue;
    weiri_remote *token;
    uint64_t token_offset;
    uint64_t signals; /* posted so far */
    weiri_port_memory *memories;
    uint32_t memory_count;
    uint32_t memory_room;
    uint32_t
        left; /* verb and modifiers of the request in progress that are not posted yet; 0: no request is in progress */
    uint64_t *numbers; /* for each request under way its last post; a ring of mask + 1 */
    uint64_t mask;
    uint64_t first;
    uint64_t last;
    bool has_epochs;
    uint64_t epochs; /* offset of the cell in the device's slab, for a channel with packets */
    weiri_port_line line;
    weiri_watch *line_watch;  /* runs while the line is open: checks whether kernels' posts have ended, */
    bool line_reported;       /* until that was reported */
    weiri_watch *vital_watch; /* of a vital channel: checks whether it has failed */
    bool vital_failed;        /* result of the last check */
    weir_dev_port_channel device;
};

static weir_comm *comm_of(const weir_port_channel *channel) { return channel->semaphore->connection->comm; }

weir_comm *weiri_port_channel_comm(const weir_port_channel *channel) { return comm_of(channel); }

static const weiri_queue_ops *ops_of(const weir_port_channel *channel)
{
    return channel->semaphore->connection->transport->queue;
}

/* Number of the last completed post. The service thread may be polling the queue at the same time. */
static uint64_t completed(const weir_port_channel *channel)
{
    return __atomic_load_n(&channel->queue->completed, __ATOMIC_ACQUIRE);
}

/* ---- the proxy's thread ------------------------------------------------------------------------------------ */

/* Memory `id`, or an empty one if the id is not valid. */
static const weiri_port_memory *find(const weir_port_channel *channel, uint32_t id)
{
    static const weiri_port_memory none;
    return id < channel->memory_count ? &channel->memories[id] : &none;
}

/* Describes a memory for the check of a request. */
static weir_dev_port_memory side_of(const weir_port_channel *channel, const weiri_port_memory *memory)
{
    return (weir_dev_port_memory){ .bytes = memory->size,
                                   .kinds = (memory->region != NULL ? WEIR_PORT_MEMORY_LOCAL : 0) |
                                            (memory->remote != NULL ? WEIR_PORT_MEMORY_REMOTE : 0) |
                                            (ops_of(channel)->add != NULL ? WEIR_PORT_MEMORY_ADDS : 0) };
}

static weir_status check_request(const weir_port_channel *channel, const weir_request *request)
{
    const weir_dev_port_memory remote = side_of(channel, find(channel, request->remote));
    const weir_dev_port_memory local = side_of(channel, find(channel, request->local));
    return weir_request_check(request, &remote, &local);
}

/* ---- errors of requests ------------------------------------------------------------------------------------ */

/* Puts the channel and `what` in front of the error's text. */
static weir_status explain(const weir_port_channel *channel, const char *what, weir_status status)
{
    return weiri_fail(status, "port channel %u to rank %u failed: %s: %s", channel->number,
                      channel->semaphore->connection->peer, what, weir_last_error());
}

/* Puts the names of the request's verb and modifiers in front of the error's text. */
static weir_status explain_request(const weir_port_channel *channel, uint32_t type, weir_status status)
{
    static const char *const verb_names[] = {
#define ROW(name, text, check) [WEIR_REQUEST_##name] = text,
        WEIR_REQUEST_VERBS(ROW)
#undef ROW
    };
    static const char *const modifier_names[] = {
#define ROW(name, text) [WEIR_REQUEST_INDEX_##name] = text,
        WEIR_REQUEST_MODIFIERS(ROW)
#undef ROW
    };
    char name[96] = "";
    size_t length = 0;
    if (!weir_request_is_type(type)) {
        return explain(channel, "request", status);
    }
    if ((type & WEIR_REQUEST_VERB) != WEIR_REQUEST_NONE) {
        length = (size_t)snprintf(name, sizeof name, "%s", verb_names[type & WEIR_REQUEST_VERB]);
    }
    for (uint32_t i = 0; i < WEIR_REQUEST_MODIFIER_COUNT && length < sizeof name; i++) {
        if ((type & (16u << i)) != 0) {
            length += (size_t)snprintf(name + length, sizeof name - length, "%s%s", length != 0 ? "_" : "",
                                       modifier_names[i]);
        }
    }
    return explain(channel, name, status);
}

/* Explains what is wrong with one side of a request; WEIR_OK if the side is right. */
static weir_status explain_side(const weir_port_channel *channel, const char *side, uint32_t id, uint32_t kind,
                                uint64_t offset, uint64_t bytes)
{
    const weir_dev_port_memory memory = side_of(channel, find(channel, id));
    if ((memory.kinds & kind) == 0) {
        return weiri_fail(WEIR_ERR_RANGE, "%s: memory %u is no memory of %s", side, id,
                          kind == WEIR_PORT_MEMORY_REMOTE ? "the peer" : "this rank");
    }
    return weir_request_fits(&memory, kind, offset, bytes)
               ? WEIR_OK
               : weiri_fail(WEIR_ERR_RANGE, "%s: %llu bytes at %llu of memory %u, which has %llu", side,
                            (unsigned long long)bytes, (unsigned long long)offset, id,
                            (unsigned long long)memory.bytes);
}

static weir_status explain_MOVE(const weir_port_channel *channel, const weir_request *request)
{
    weir_status status = explain_side(channel, "remote", request->remote, WEIR_PORT_MEMORY_REMOTE,
                                      request->remote_offset, request->bytes);
    return status != WEIR_OK ? status
                             : explain_side(channel, "local", request->local, WEIR_PORT_MEMORY_LOCAL,
                                            request->local_offset, request->bytes);
}

static weir_status explain_VALUE(const weir_port_channel *channel, const weir_request *request)
{
    return !weir_request_is_word(request->remote_offset, request->bytes)
               ? weiri_fail(WEIR_ERR_RANGE, "%llu bytes at %llu; 1 to 8 are possible, not over an 8-byte boundary",
                            (unsigned long long)request->bytes, (unsigned long long)request->remote_offset)
               : explain_side(channel, "remote", request->remote, WEIR_PORT_MEMORY_REMOTE, request->remote_offset,
                              request->bytes);
}

static weir_status explain_ADD(const weir_port_channel *channel, const weir_request *request)
{
    if (request->remote_offset % 8 != 0) {
        return weiri_fail(WEIR_ERR_RANGE, "remote_offset %llu is not a multiple of 8",
                          (unsigned long long)request->remote_offset);
    }
    weir_status status =
        explain_side(channel, "remote", request->remote, WEIR_PORT_MEMORY_REMOTE, request->remote_offset, 8);
    if (status != WEIR_OK) {
        return status;
    }
    return ops_of(channel)->add == NULL
               ? weiri_fail(WEIR_ERR_UNSUPPORTED, "transport %s does not support add",
                            channel->semaphore->connection->transport->name)
               : weiri_fail(WEIR_ERR_UNSUPPORTED, "the NIC here, or the peer's, has no atomic operations");
}

/* Explains the error that weir_request_check has found, here or in a kernel that posts by itself. */
static weir_status explain_wrong(const weir_port_channel *channel, const weir_request *request)
{
    if (!weir_request_is_type(request->type)) {
        return weiri_fail(WEIR_ERR_INVALID, "unknown request type %u", request->type);
    }
    switch (request->type & WEIR_REQUEST_VERB) {
#define ROW(name, text, check) \
    case WEIR_REQUEST_##name:  \
        return explain_##check(channel, request);
        WEIR_REQUEST_VERBS(ROW)
#undef ROW
    default:
        return WEIR_OK;
    }
}

/* ---- posting ----------------------------------------------------------------------------------------------- */

/* Bodies of the verbs. */

static weir_status post_PUT(weir_port_channel *channel, const weir_request *request)
{
    return ops_of(channel)->put(channel->queue, find(channel, request->remote)->remote, request->remote_offset,
                                find(channel, request->local)->region, request->local_offset, request->bytes);
}

static weir_status post_GET(weir_port_channel *channel, const weir_request *request)
{
    return ops_of(channel)->get(channel->queue, find(channel, request->local)->region, request->local_offset,
                                find(channel, request->remote)->remote, request->remote_offset, request->bytes);
}

static weir_status post_VALUE(weir_port_channel *channel, const weir_request *request)
{
    return ops_of(channel)->value(channel->queue, find(channel, request->remote)->remote, request->remote_offset,
                                  request->value, (uint32_t)request->bytes);
}

static weir_status post_ADD(weir_port_channel *channel, const weir_request *request)
{
    return ops_of(channel)->add(channel->queue, find(channel, request->remote)->remote, request->remote_offset,
                                request->value);
}

/* Bodies of the modifiers. */

static weir_status post_SIGNAL(weir_port_channel *channel, const weir_request *request)
{
    (void)request;
    weir_status status =
        ops_of(channel)->value(channel->queue, channel->token, channel->token_offset, channel->signals + 1, 8);
    channel->signals += status == WEIR_OK;
    return status;
}

/* Requests complete in order, so a flush posts nothing. */
static weir_status post_FLUSH(weir_port_channel *channel, const weir_request *request)
{
    (void)channel;
    (void)request;
    return WEIR_OK;
}

typedef weir_status (*post_body)(weir_port_channel *channel, const weir_request *request);

static const post_body verbs[] = {
#define ROW(name, text, check) [WEIR_REQUEST_##name] = post_##name,
    WEIR_REQUEST_VERBS(ROW)
#undef ROW
};

static const post_body modifiers[] = {
#define ROW(name, text) [WEIR_REQUEST_INDEX_##name] = post_##name,
    WEIR_REQUEST_MODIFIERS(ROW)
#undef ROW
};

/* Posts the rest of a valid request: its verb, then its modifiers. */
static weir_status post_left(weir_port_channel *channel, const weir_request *request)
{
    const uint32_t verb = channel->left & WEIR_REQUEST_VERB;
    weir_status status = verb != WEIR_REQUEST_NONE ? verbs[verb](channel, request) : WEIR_OK;
    if (status == WEIR_OK) {
        channel->left -= verb;
    }
    for (uint32_t i = 0; status == WEIR_OK && i < WEIR_REQUEST_MODIFIER_COUNT; i++) {
        const uint32_t modifier = channel->left & (16u << i);
        if (modifier != 0) {
            status = modifiers[i](channel, request);
            channel->left -= status == WEIR_OK ? modifier : 0;
        }
    }
    return status;
}

/* WEIR_ERR_BUSY: the queue had no room for a part. Offered again, the request continues there. */
static weir_status post(weir_port_channel *channel, const weir_request *request)
{
    if (channel->left == 0) {
        weir_status status = check_request(channel, request);
        if (status != WEIR_OK) {
            (void)explain_wrong(channel, request);
            return status;
        }
        channel->left = request->type;
    }
    return post_left(channel, request);
}

/* The channel or its kernels' posts have failed: ends the waits for signals on this rank and on the peer. */
static void end_waits(weir_port_channel *channel, weir_status status, const char *text)
{
    weiri_log(WEIR_LOG_WARN, "rank %u: %s", comm_of(channel)->rank, text);
    weiri_semaphore_fail(channel->semaphore, status, text);
    weiri_semaphore_report(channel->semaphore, text);
}

/* The proxy channel has failed. If the proxy was stopped or the communicator has failed, all its channels fail and
 * every rank knows. Then kernels that post by themselves go on, and only waits on this rank end. */
static void on_fail(void *context)
{
    weir_port_channel *channel = (weir_port_channel *)context;
    const weir_proxy_channel *requests = channel->requests;
    if (requests->worker->failed == WEIR_OK) {
        end_waits(channel, requests->failed, requests->text);
    } else if (!channel->line.open) {
        weiri_semaphore_fail(channel->semaphore, requests->failed, requests->text);
    }
}

/* Fails the proxy channel with the text of weir_last_error. */
static weir_status fail(weir_port_channel *channel, weir_status status)
{
    weir_proxy_channel_fail(channel->requests, status, weir_last_error());
    return status;
}

static weir_status handle(void *context, const weir_request *request)
{
    weir_port_channel *channel = (weir_port_channel *)context;
    weir_status status = post(channel, request);
    if (status != WEIR_OK && status != WEIR_ERR_BUSY) {
        return fail(channel, explain_request(channel, request->type, status));
    }
    if (status != WEIR_OK || channel->queue->posted == completed(channel)) {
        return status;
    }
    channel->numbers[channel->last++ & channel->mask] = channel->queue->posted;
    return WEIR_PENDING;
}

static weir_status progress(void *context)
{
    weir_port_channel *channel = (weir_port_channel *)context;
    if (channel->first == channel->last && !ops_of(channel)->passive_poll) {
        return WEIR_PENDING;
    }
    /* Posts that are complete stay complete if the queue fails after them. */
    weir_status status = ops_of(channel)->poll(channel->queue);
    uint32_t done = 0;
    const uint64_t last = completed(channel);
    while (channel->first != channel->last && channel->numbers[channel->first & channel->mask] <= last) {
        channel->first++;
        done++;
    }
    if (done != 0) {
        weir_proxy_channel_complete(channel->requests, done);
    }
    if (status != WEIR_OK && status != WEIR_PENDING) {
        return fail(channel, explain(channel, "completions", status));
    }
    return done != 0 ? WEIR_OK : status;
}

/* ---- kernels that post by themselves ------------------------------------------------------------------------ */

/* WEIR_OK, or the error that has ended kernels' posts. */
static weir_status check_line(weir_port_channel *channel)
{
    weir_request request;
    weir_status status = WEIR_OK;
    if (!channel->line.open) {
        return WEIR_OK;
    }
    if (weiri_port_line_refused(&channel->line, &request)) {
        weiri_worker_enter(channel->requests->worker);
        status = explain_request(channel, request.type, explain_wrong(channel, &request));
        weiri_worker_leave(channel->requests->worker);
        return status;
    }
    status = ops_of(channel)->engine->check(channel->queue);
    return status == WEIR_OK ? WEIR_OK : explain(channel, "kernels' posts", status);
}

/* Runs from time to time on the service thread, because kernels that do not wait for a ticket may not notice a
 * failure. */
static void report_line(void *context)
{
    weir_port_channel *channel = (weir_port_channel *)context;
    weir_status status = channel->line_reported ? WEIR_OK : check_line(channel);
    if (status != WEIR_OK) {
        char text[sizeof channel->requests->text];
        snprintf(text, sizeof text, "%s", weir_last_error());
        channel->line_reported = true;
        end_waits(channel, status, text);
    }
}

static weir_status watch_line(weir_port_channel *channel)
{
    return !channel->line.open ? WEIR_OK
                               : weiri_service_watch_time(weiri_bootstrap_service(comm_of(channel)->bootstrap),
                                                          LINE_CHECK_MS, report_line, channel, &channel->line_watch);
}

/* Fails the communicator if two checks in a row find the channel failed. When the peer dies, the transport may notice
 * before the news of the death arrives, which says more. */
static void check_vital(void *context)
{
    weir_port_channel *channel = (weir_port_channel *)context;
    weir_comm *comm = comm_of(channel);
    pthread_mutex_lock(&comm->mutex);
    const bool failed = channel->semaphore->failed_here;
    if (failed && channel->vital_failed) {
        weiri_comm_break_locked(comm, channel->semaphore->failed, channel->semaphore->failed_text);
    }
    channel->vital_failed = failed;
    pthread_mutex_unlock(&comm->mutex);
}

weir_status weiri_port_channel_make_vital(weir_port_channel *channel)
{
    return weiri_service_watch_time(weiri_bootstrap_service(comm_of(channel)->bootstrap), VITAL_CHECK_MS, check_vital,
                                    channel, &channel->vital_watch);
}

static void unwatch(const weir_port_channel *channel)
{
    weiri_service *service = weiri_bootstrap_service(comm_of(channel)->bootstrap);
    weiri_service_unwatch(service, channel->line_watch);
    weiri_service_unwatch(service, channel->vital_watch);
}

/* ---- memories --------------------------------------------------------------------------------------------- */

static void close_memories(weir_port_channel *channel)
{
    for (uint32_t i = 0; i < channel->memory_count; i++) {
        ops_of(channel)->remote_close(channel->memories[i].remote);
        weir_memory_destroy(channel->memories[i].memory);
    }
    weiri_free(channel->memories);
}

/* Opens the transport's view of a memory, and takes a reference. */
static weir_status open_memory(const weir_port_channel *channel, weir_memory *memory, const char *call,
                               weiri_port_memory *out)
{
    const weir_connection *connection = channel->semaphore->connection;
    weiri_port_memory made = { memory, NULL, NULL, weir_memory_bytes(memory) };
    weir_status status = WEIR_OK;
    if (memory->comm != connection->comm) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: a memory is of another communicator", call);
    }
    if (memory->rank != connection->peer && memory->imported) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: memory of rank %u; the semaphore joins rank %u", call, memory->rank,
                          connection->peer);
    }
    if (!memory->imported) {
        status = weiri_memory_region(memory, connection->domain, &made.region);
    }
    if (status == WEIR_OK && memory->rank == connection->peer) {
        if (!memory->imported) {
            weiri_memory_make_keys(memory);
        }
        status = weiri_memory_remote(memory, connection->domain, &made.remote);
    }
    if (status == WEIR_OK) {
        weiri_memory_get(memory);
        *out = made;
    }
    return status;
}

/* Appends to the table. The caller holds the mutex of the proxy's thread, or that thread does not know the channel
 * yet. */
static weir_status append(weir_port_channel *channel, const weiri_port_memory *memory, uint32_t *id)
{
    if (channel->memory_count == channel->memory_room) {
        const uint32_t room = channel->memory_room != 0 ? 2 * channel->memory_room : 4;
        weiri_port_memory *memories =
            room > MEMORIES_MAX
                ? NULL
                : (weiri_port_memory *)weiri_realloc(channel->memories, room * sizeof(weiri_port_memory));
        if (memories == NULL) {
            return room > MEMORIES_MAX
                       ? weiri_fail(WEIR_ERR_LIMIT, "weir_port_channel_attach: a channel has at most %u memories",
                                    MEMORIES_MAX)
                       : weiri_fail_nomem("weir_port_channel_attach");
        }
        channel->memories = memories;
        channel->memory_room = room;
    }
    channel->memories[channel->memory_count] = *memory;
    *id = channel->memory_count++;
    return WEIR_OK;
}

/* Sets the first ids: remote and local, and the packet buffers if there are any. */
static weir_status open_ends(weir_port_channel *channel, weir_memory *remote, weir_memory *local,
                             const weir_port_channel_opts *options)
{
    weir_memory *ends[] = { remote, local, options->peer_packets, options->packets };
    const uint32_t count = options->packets != NULL ? 4 : 2;
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < count && status == WEIR_OK; i++) {
        weiri_port_memory made = { NULL, NULL, NULL, 0 };
        uint32_t id;
        if (ends[i] != NULL) {
            status = open_memory(channel, ends[i], "weir_port_channel_create", &made);
        }
        if (status == WEIR_OK) {
            status = append(channel, &made, &id);
            if (status != WEIR_OK) {
                ops_of(channel)->remote_close(made.remote);
                weir_memory_destroy(made.memory);
            }
        }
    }
    return status;
}

weir_status weir_port_channel_attach(weir_port_channel *channel, weir_memory *memory, uint32_t *id)
{
    weir_status status =
        weiri_comm_check("channel", channel == NULL ? NULL : comm_of(channel), "weir_port_channel_attach");
    if (status != WEIR_OK) {
        return status;
    }
    if (memory == NULL || id == NULL) {
        return weiri_fail_null("weir_port_channel_attach", memory == NULL ? "memory" : "id");
    }
    if (weiri_worker_is_inside(channel->proxy)) {
        return weiri_fail(WEIR_ERR_INVALID, "weir_port_channel_attach: called by a callback of the proxy");
    }
    weiri_port_memory made;
    uint32_t added;
    status = open_memory(channel, memory, "weir_port_channel_attach", &made);
    if (status != WEIR_OK) {
        return status;
    }
    weiri_worker_enter(channel->requests->worker);
    status = append(channel, &made, &added);
    if (status == WEIR_OK && channel->line.open) {
        status = weiri_port_line_add(&channel->line, added, &channel->memories[added]);
        channel->memory_count -= status != WEIR_OK;
    }
    weiri_worker_leave(channel->requests->worker);
    if (status == WEIR_OK) {
        *id = added;
    } else {
        ops_of(channel)->remote_close(made.remote);
        weir_memory_destroy(made.memory);
    }
    return status;
}

void weiri_port_channel_describe(weir_port_channel *channel, uint32_t remote, uint32_t local, weir_dev_port_memory *out)
{
    memset(out, 0, sizeof *out);
    if (!channel->line.open) {
        return;
    }
    weiri_worker_enter(channel->requests->worker);
    const weir_dev_port_memory here = weiri_port_line_describe(&channel->line, find(channel, local));
    *out = weiri_port_line_describe(&channel->line, find(channel, remote));
    weiri_worker_leave(channel->requests->worker);
    out->local = here.local;
    out->lkey = here.lkey;
    out->kinds |= here.kinds & WEIR_PORT_MEMORY_LOCAL;
}

/* ---- create and destroy -------------------------------------------------------------------------------------- */

static weir_status invalid(const char *what)
{
    return weiri_fail(WEIR_ERR_INVALID, "weir_port_channel_create: %s", what);
}

static weir_status check(const weir_proxy *proxy, const weir_semaphore *semaphore, const weir_memory *remote,
                         const weir_memory *local)
{
    const weir_connection *connection = semaphore->connection;
    if (proxy->comm != connection->comm) {
        return invalid("the proxy is of another communicator than the semaphore");
    }
    if (connection->domain == NULL) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED,
                          "weir_port_channel_create: the connection to rank %u is over transport %s, which carries out "
                          "no transfers",
                          connection->peer, connection->transport->name);
    }
    if (semaphore->count != 1) {
        return weiri_fail(WEIR_ERR_INVALID, "weir_port_channel_create: a set of %u semaphores; one is needed",
                          semaphore->count);
    }
    if (remote != NULL && remote->rank != connection->peer) {
        return weiri_fail(WEIR_ERR_INVALID,
                          "weir_port_channel_create: remote is memory of rank %u, the semaphore joins rank %u",
                          remote->rank, connection->peer);
    }
    if (local != NULL && local->imported) {
        return weiri_fail(WEIR_ERR_INVALID, "weir_port_channel_create: local is memory of rank %u, not of this rank",
                          local->rank);
    }
    return WEIR_OK;
}

static weir_status check_packets(const weir_semaphore *semaphore, const weir_port_channel_opts *options)
{
    const weir_memory *here = options->packets;
    const weir_memory *there = options->peer_packets;
    if (here == NULL && there == NULL) {
        return WEIR_OK;
    }
    if (here == NULL || there == NULL) {
        return invalid("packets and peer_packets must both be set");
    }
    if (semaphore->end != WEIR_SEMAPHORE_DEVICE) {
        return invalid("packets are for kernels, and the semaphore's end is on the host");
    }
    if (here->imported || there->rank != semaphore->connection->peer) {
        return invalid("packets must be memory of this rank, and peer_packets of the semaphore's peer");
    }
    const uint64_t bytes = weir_memory_bytes(here);
    if (bytes != weir_memory_bytes(there) || bytes < 4 * WEIR_PORT_PACKETS_TAIL) {
        return weiri_fail(WEIR_ERR_INVALID,
                          "weir_port_channel_create: packets has %llu bytes, peer_packets %llu; they must be the same, "
                          "and at least %u",
                          (unsigned long long)bytes, (unsigned long long)weir_memory_bytes(there),
                          4 * WEIR_PORT_PACKETS_TAIL);
    }
    const bool mapped = semaphore->connection->transport->map != NULL;
    const uintptr_t place = (uintptr_t)weir_memory_pointer(here);
    const uintptr_t peers = mapped ? (uintptr_t)weir_memory_pointer(there) : 0;
    if ((place | peers) % 16 != 0 || (mapped && weir_memory_pointer(there) == NULL)) {
        return invalid("the packet buffers must be mapped and 16-byte aligned");
    }
    return WEIR_OK;
}

/* If the peer's buffer is mapped, kernels store packets there, whatever direct_bytes says: packets need no order. */
static void fill_packets(weir_port_channel *channel)
{
    const weir_connection *connection = channel->semaphore->connection;
    weir_dev_port_channel *device = &channel->device;
    if (channel->has_epochs) {
        const weiri_port_memory *here = &channel->memories[WEIR_PORT_PACKETS_LOCAL];
        device->packets = (char *)weir_memory_pointer(here->memory);
        device->packets_half = here->size / 2 / WEIR_PORT_PACKETS_TAIL * WEIR_PORT_PACKETS_TAIL;
        device->packets_whole = ops_of(channel)->keeps_words;
        device->epochs = (uint64_t *)weiri_slab_device(connection->comm->slabs.device.memory, channel->epochs);
        if (connection->transport->map != NULL) {
            device->peer_packets = (char *)weir_memory_pointer(channel->memories[WEIR_PORT_PACKETS_REMOTE].memory);
        }
    }
}

/* Gives kernels that post by themselves the packet buffers, and takes a cell for the counts of packets. */
static weir_status open_packets(weir_port_channel *channel)
{
    weir_comm *comm = comm_of(channel);
    if (channel->memory_count <= WEIR_PORT_PACKETS_LOCAL) {
        return WEIR_OK;
    }
    weir_status status = weiri_cells_allocate(comm, &comm->slabs.device, 1, &channel->epochs);
    channel->has_epochs = status == WEIR_OK;
    for (uint32_t id = WEIR_PORT_PACKETS_REMOTE; id <= WEIR_PORT_PACKETS_LOCAL && status == WEIR_OK; id++) {
        status = channel->line.open ? weiri_port_line_add(&channel->line, id, &channel->memories[id]) : WEIR_OK;
    }
    return status;
}

static void close_packets(const weir_port_channel *channel)
{
    if (channel->has_epochs) {
        weiri_cells_free(comm_of(channel), &comm_of(channel)->slabs.device, 1, channel->epochs);
    }
}

static void fill_device(weir_port_channel *channel, uint64_t direct_bytes)
{
    const weir_connection *connection = channel->semaphore->connection;
    const weiri_port_memory *remote = &channel->memories[WEIR_PORT_REMOTE];
    const weiri_port_memory *local = &channel->memories[WEIR_PORT_LOCAL];
    const weiri_end *peer = &connection->comm->peers[connection->peer].end;
    weir_dev_port_channel *device = &channel->device;
    for (uint32_t i = 0; i < WEIRI_LANES; i++) {
        channel->requests->lanes[i].device.peer = connection->peer;
    }
    device->queue = channel->requests->lanes[WEIR_FIFO_DEVICE].device;
    device->semaphore = channel->semaphore->device;
    if (remote->memory != NULL) {
        device->remote = (char *)weir_memory_pointer(remote->memory);
        device->remote_bytes = device->remote != NULL ? remote->size : 0;
    }
    if (local->memory != NULL) {
        device->local = (char *)weir_memory_pointer(local->memory);
        device->local_bytes = local->size;
    }
    if (connection->transport->map != NULL && direct_bytes != WEIR_PORT_DIRECT_NEVER) {
        device->direct_always = memcmp(peer->device_uuid, connection->comm->end.device_uuid, 16) == 0;
        device->direct_bytes = device->direct_always ? UINT64_MAX : direct_bytes != 0 ? direct_bytes : DIRECT_BYTES;
        device->direct_adds = connection->comm->device->info.atomic_to_host ||
                              (remote->memory != NULL && weir_memory_host_pointer(remote->memory) == NULL);
    }
    if (channel->line.open) {
        weiri_port_line_fill(&channel->line, channel->token, remote, local, device);
    }
    fill_packets(channel);
}

/* Makes everything between the queue and the first request. */
static weir_status open_channel(weir_port_channel *channel, const weir_port_channel_opts *options)
{
    const weir_proxy_handler handler = { handle, channel, progress, channel };
    const weir_proxy_channel_opts opts = { sizeof opts, options->credits, options->thread };
    weir_semaphore *semaphore = channel->semaphore;
    weir_status status = weiri_connection_remote(semaphore->connection, semaphore->peer_in_host, &channel->token);
    channel->token_offset = semaphore->peer_cell + WEIRI_STORED_OFFSET;
    if (status == WEIR_OK) {
        status = weiri_port_line_open(&channel->line, semaphore, channel->queue);
    }
    if (status == WEIR_OK) {
        status = open_packets(channel);
    }
    if (status == WEIR_OK) {
        status = watch_line(channel);
    }
    if (status == WEIR_OK) {
        status = weir_proxy_channel_create(channel->proxy, &handler, &opts, &channel->requests);
    }
    if (status != WEIR_OK) {
        return status;
    }
    weiri_semaphore_join_channel(semaphore, channel->requests->lanes[WEIR_FIFO_DEVICE].progress);
    weiri_worker_enter(channel->requests->worker);
    channel->requests->keeps_credit = true;
    channel->requests->on_fail = on_fail;
    if (channel->requests->failed != WEIR_OK) { /* the proxy was stopped meanwhile */
        on_fail(channel);
    }
    weiri_worker_leave(channel->requests->worker);
    fill_device(channel, options->direct_bytes);
    return WEIR_OK;
}

/* Makes room for the numbers of all requests that may be under way: kernels' and the host's credits. */
static weir_status make_numbers(weir_port_channel *channel, uint32_t credits)
{
    uint64_t room = 2;
    while (room < 2 * (uint64_t)(credits != 0 ? credits : WEIR_PROXY_CREDITS_DEFAULT)) {
        room *= 2;
    }
    channel->numbers = (uint64_t *)weiri_alloc((size_t)room, sizeof(uint64_t));
    channel->mask = room - 1;
    return channel->numbers != NULL ? WEIR_OK : weiri_fail_nomem("weir_port_channel_create");
}

static uint32_t next_number(weir_comm *comm)
{
    pthread_mutex_lock(&comm->mutex);
    const uint32_t number = comm->port_channels++;
    pthread_mutex_unlock(&comm->mutex);
    return number;
}

static weir_status new_channel(weir_proxy *proxy, weir_semaphore *semaphore, weir_memory *remote, weir_memory *local,
                               const weir_port_channel_opts *options, weir_port_channel **out)
{
    weir_port_channel *channel = (weir_port_channel *)weiri_alloc(1, sizeof *channel);
    if (channel == NULL) {
        return weiri_fail_nomem("weir_port_channel_create");
    }
    channel->proxy = proxy;
    channel->semaphore = semaphore;
    channel->number = next_number(comm_of(channel));
    weir_status status = make_numbers(channel, options->credits);
    if (status == WEIR_OK) {
        status = open_ends(channel, remote, local, options);
    }
    if (status == WEIR_OK) {
        status = weiri_endpoint_take(semaphore->connection, semaphore->id, semaphore->peer_id,
                                     "weir_port_channel_create", &channel->queue);
    }
    if (status != WEIR_OK) {
        goto undo_memories;
    }
    /* If the rest fails, the queue stays with the endpoint, because the peer's queue may be joined to it. */
    status = open_channel(channel, options);
    if (status != WEIR_OK) {
        goto undo_channel;
    }
    *out = channel;
    return WEIR_OK;

undo_channel:
    unwatch(channel);
    close_packets(channel);
    weiri_port_line_close(&channel->line);
undo_memories:
    close_memories(channel);
    weiri_free(channel->numbers);
    weiri_free(channel);
    return status;
}

weir_status weir_port_channel_create(weir_proxy *proxy, weir_semaphore *semaphore, weir_memory *remote,
                                     weir_memory *local, const weir_port_channel_opts *opts, weir_port_channel **out)
{
    weir_port_channel_opts options;
    weir_status status = weiri_comm_check("semaphore", semaphore == NULL ? NULL : semaphore->connection->comm,
                                          "weir_port_channel_create");
    if (status != WEIR_OK) {
        return status;
    }
    if (proxy == NULL || out == NULL) {
        return weiri_fail_null("weir_port_channel_create", proxy == NULL ? "proxy" : "out");
    }
    if (!WEIRI_OPTS_OK(opts)) {
        return invalid(WEIRI_OPTS_ERROR(opts));
    }
    weiri_opts_copy(&options, sizeof options, opts);
    if (options.credits > WEIR_PROXY_CREDITS_MAX) {
        return weiri_fail(WEIR_ERR_LIMIT, "weir_port_channel_create: %u credits; at most %u are possible",
                          options.credits, WEIR_PROXY_CREDITS_MAX);
    }
    options.credits = options.credits == 1 ? 2 : options.credits; /* a failed channel keeps one credit */
    status = check(proxy, semaphore, remote, local);
    if (status == WEIR_OK) {
        status = check_packets(semaphore, &options);
    }
    if (status == WEIR_OK) {
        status = weiri_semaphore_claim(semaphore, true, "weir_port_channel_create");
    }
    if (status != WEIR_OK) {
        return status;
    }
    weiri_semaphore_get(semaphore);
    status = new_channel(proxy, semaphore, remote, local, &options, out);
    if (status != WEIR_OK) {
        weiri_semaphore_unclaim(semaphore, true);
        weir_semaphore_destroy(semaphore);
    }
    return status;
}

void weir_port_channel_destroy(weir_port_channel *channel)
{
    if (channel == NULL || weiri_comm_forked(comm_of(channel)) || weiri_worker_is_inside(channel->proxy)) {
        return;
    }
    weiri_semaphore_join_channel(channel->semaphore, NULL);
    unwatch(channel);
    weir_proxy_channel_destroy(channel->requests);
    weiri_endpoint_close(channel->semaphore->connection, channel->semaphore->id);
    weiri_port_line_close(&channel->line);
    close_packets(channel);
    close_memories(channel);
    weir_semaphore_destroy(channel->semaphore);
    weiri_free(channel->numbers);
    weiri_free(channel);
}

weir_status weiri_port_channel_handle(const weir_port_channel *channel, const char *call, weir_dev_port_channel *out)
{
    if (channel == NULL || out == NULL) {
        return weiri_fail_null(call, channel == NULL ? "channel" : "out");
    }
    if (weiri_comm_forked(comm_of(channel))) {
        return weiri_fail(WEIR_ERR_FORKED, "%s: the communicator belongs to the parent process", call);
    }
    if (channel->semaphore->end != WEIR_SEMAPHORE_DEVICE) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: the semaphore's end is on the host", call);
    }
    *out = channel->device;
    return WEIR_OK;
}

weir_status weir_port_channel_device(const weir_port_channel *channel, weir_dev_port_channel *out)
{
    return weiri_port_channel_handle(channel, __func__, out);
}

weir_semaphore *weir_port_channel_semaphore(const weir_port_channel *channel)
{
    return channel != NULL ? channel->semaphore : NULL;
}

weir_memory *weir_port_channel_memory(weir_port_channel *channel, uint32_t id)
{
    if (channel == NULL || weiri_worker_is_inside(channel->proxy)) {
        return NULL;
    }
    weiri_worker_enter(channel->requests->worker);
    const weiri_port_memory *memory = find(channel, id);
    weir_memory *found = memory != NULL ? memory->memory : NULL;
    weiri_worker_leave(channel->requests->worker);
    return found;
}

void weir_port_channel_get_info(const weir_port_channel *channel, weir_port_channel_info *info)
{
    if (info == NULL) {
        return;
    }
    memset(info, 0, sizeof *info);
    if (channel == NULL) {
        return;
    }
    info->transport = channel->semaphore->connection->transport->name;
    info->engine = channel->line.open ? "device" : "proxy";
    snprintf(info->reason, sizeof info->reason, "%s", channel->line.missing);
}

static weir_proxy_channel *requests_of(const weir_port_channel *channel)
{
    return channel != NULL ? channel->requests : NULL;
}

weir_status weir_port_channel_status(weir_port_channel *channel)
{
    weir_status status = weiri_channel_status(requests_of(channel), __func__);
    if (status == WEIR_OK) {
        status = check_line(channel);
    }
    return status == WEIR_OK ? weiri_semaphore_error(channel->semaphore, !channel->line.open) : status;
}

/* ---- requests of host threads ------------------------------------------------------------------------------- */

weir_status weiri_port_channel_post(weir_port_channel *channel, const char *call, const weir_request *request,
                                    uint32_t timeout_ms, uint64_t *ticket)
{
    return weiri_channel_push(requests_of(channel), call, request, timeout_ms, ticket);
}

weir_status weir_port_channel_post(weir_port_channel *channel, const weir_request *request, uint32_t timeout_ms,
                                   uint64_t *ticket)
{
    return weiri_port_channel_post(channel, __func__, request, timeout_ms, ticket);
}

weir_status weiri_port_channel_try_post(weir_port_channel *channel, const char *call, const weir_request *request,
                                        uint64_t *ticket)
{
    return weiri_channel_try_push(requests_of(channel), call, request, ticket);
}

weir_status weir_port_channel_try_post(weir_port_channel *channel, const weir_request *request, uint64_t *ticket)
{
    return weiri_port_channel_try_post(channel, __func__, request, ticket);
}

weir_status weir_port_channel_test(weir_port_channel *channel, uint64_t ticket)
{
    return weiri_channel_test(requests_of(channel), __func__, ticket);
}

weir_status weiri_port_channel_wait(weir_port_channel *channel, const char *call, uint64_t ticket, uint32_t timeout_ms)
{
    return weiri_channel_wait(requests_of(channel), call, ticket, timeout_ms);
}

weir_status weir_port_channel_wait(weir_port_channel *channel, uint64_t ticket, uint32_t timeout_ms)
{
    return weiri_port_channel_wait(channel, __func__, ticket, timeout_ms);
}
