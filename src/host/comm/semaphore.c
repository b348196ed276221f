/* semaphore.c - semaphores: create, the handle for kernels, signals and waits of the host, and failures of port
 * channels.
 *
 * Create takes a cell in both slabs and exchanges their offsets with the peer, because the kinds of both ends decide
 * where a token lives (semaphore.h). Cells whose offsets the peer may have got without this create succeeding are never
 * used again. A host end counts in its own memory what it has consumed, and adds to the peer's token to signal. A port
 * channel that fails writes its error into its semaphore and reports it to the peer's, and both end the waits for
 * signals. */
#include "weir/semaphore.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/clock.h"
#include "src/host/base/error.h"
#include "src/host/base/log.h"
#include "src/host/boot/boot.h"
#include "src/host/comm/comm.h"
#include "src/host/comm/endpoint.h"
#include "src/host/comm/exchange.h"
#include "src/host/comm/fd_pass.h"
#include "src/host/comm/semaphore.h"
#include "weir/device/proxy.h"

#define CONSUMED_OFFSET 64u /* the second cache line of a cell */
#define SENT_OFFSET 72u
#define UNUSED_OFFSET \
    80u                 /* target of signals of a semaphore that is not mapped, where they are not refused one by one */
#define CHECK_READS 64u /* failed reads between two checks of clock and communicator */

void weiri_semaphore_get(weir_semaphore *semaphore) { weiri_refcount_get(&semaphore->refs); }

/* ---- failures of port channels ------------------------------------------------------------------------------- */

#define REPORT_BYTES 224 /* most bytes of a text that a peer receives */

static void list(weir_semaphore *semaphore)
{
    weir_comm *comm = semaphore->connection->comm;
    pthread_mutex_lock(&comm->mutex);
    semaphore->id = ++comm->semaphores.last_id;
    semaphore->next = comm->semaphores.first;
    if (semaphore->next != NULL) {
        semaphore->next->prev = semaphore;
    }
    comm->semaphores.first = semaphore;
    pthread_mutex_unlock(&comm->mutex);
}

static void unlist(weir_semaphore *semaphore)
{
    weir_comm *comm = semaphore->connection->comm;
    pthread_mutex_lock(&comm->mutex);
    *(semaphore->prev != NULL ? &semaphore->prev->next : &comm->semaphores.first) = semaphore->next;
    if (semaphore->next != NULL) {
        semaphore->next->prev = semaphore->prev;
    }
    pthread_mutex_unlock(&comm->mutex);
}

/* Mutex held. */
static void publish(const weir_semaphore *semaphore)
{
    if (semaphore->ended != NULL) {
        __atomic_store_n(semaphore->ended, (int32_t)semaphore->failed, __ATOMIC_RELEASE);
    }
}

/* The first error stays, except that this rank's own comes before the peer's. Mutex held. */
static void fail_locked(weir_semaphore *semaphore, bool own, weir_status status, const char *text)
{
    if (semaphore->failed == WEIR_OK || (own && !semaphore->failed_here)) {
        semaphore->failed_here = own;
        semaphore->failed = status;
        snprintf(semaphore->failed_text, sizeof semaphore->failed_text, "%s", text);
        publish(semaphore);
    }
}

void weiri_semaphore_join_channel(weir_semaphore *semaphore, weir_dev_progress *progress)
{
    weir_comm *comm = semaphore->connection->comm;
    pthread_mutex_lock(&comm->mutex);
    semaphore->progress = progress;
    semaphore->ended = progress != NULL ? &progress->ended : NULL;
    publish(semaphore); /* the peer's channel may have failed already */
    pthread_mutex_unlock(&comm->mutex);
}

void weiri_semaphore_fail(weir_semaphore *semaphore, weir_status status, const char *text)
{
    weir_comm *comm = semaphore->connection->comm;
    pthread_mutex_lock(&comm->mutex);
    fail_locked(semaphore, true, status, text);
    pthread_mutex_unlock(&comm->mutex);
}

void weiri_semaphore_report(weir_semaphore *semaphore, const char *text)
{
    const weir_connection *connection = semaphore->connection;
    weir_comm *comm = connection->comm;
    uint8_t message[REPORT_BYTES + 16];
    char cut[REPORT_BYTES];
    weiri_writer w = weiri_writer_init(message, sizeof message);
    snprintf(cut, sizeof cut, "%s", text);
    weiri_write_u8(&w, WEIRI_PORT_CHANNEL_FAILED);
    weiri_write_u64(&w, semaphore->peer_id);
    weiri_write_string(&w, cut);
    if (connection->peer != comm->rank) {
        /* A peer that is gone needs no news. */
        (void)weiri_bootstrap_post(comm->bootstrap, connection->peer, comm->port, message, w.size);
        return;
    }
    weiri_reader r = weiri_reader_init(message + 1, w.size - 1);
    pthread_mutex_lock(&comm->mutex);
    (void)weiri_semaphore_reported_locked(comm, comm->rank, &r);
    pthread_mutex_unlock(&comm->mutex);
}

bool weiri_semaphore_reported_locked(weir_comm *comm, uint32_t peer, weiri_reader *message)
{
    char cause[REPORT_BYTES];
    char text[REPORT_BYTES + 32];
    const uint64_t id = weiri_read_u64(message);
    weiri_read_string(message, cause, sizeof cause);
    if (!weiri_reader_done(message)) {
        return false;
    }
    snprintf(text, sizeof text, "rank %u: %s", peer, cause);
    /* Without a match the semaphore is destroyed: nobody waits. Its cells may have another one by now. */
    for (weir_semaphore *at = comm->semaphores.first; at != NULL; at = at->next) {
        if (at->connection->peer == peer && at->id == id) {
            fail_locked(at, false, WEIR_ERR_REMOTE, text);
        }
    }
    return true;
}

weir_connection *weiri_semaphore_connection_locked(const weir_comm *comm, uint32_t peer, uint64_t id)
{
    for (weir_semaphore *at = comm->semaphores.first; at != NULL; at = at->next) {
        if (at->id == id) {
            return at->connection->peer == peer ? at->connection : NULL;
        }
    }
    return NULL;
}

weir_status weiri_semaphore_error(weir_semaphore *semaphore, bool blocks)
{
    weir_comm *comm = semaphore->connection->comm;
    char text[sizeof semaphore->failed_text];
    pthread_mutex_lock(&comm->mutex);
    const weir_status status = semaphore->failed;
    memcpy(text, semaphore->failed_text, sizeof text);
    const bool unstarted = blocks && status == WEIR_OK && semaphore->progress != NULL &&
                           weir_dev_progress_unstarted(semaphore->progress) != WEIR_OK;
    pthread_mutex_unlock(&comm->mutex);
    if (status != WEIR_OK) {
        return weiri_fail(status, "%s", text);
    }
    if (!unstarted) {
        return WEIR_OK;
    }
    const uint32_t peer = semaphore->connection->peer;
    if (weiri_comm_logs_first(comm, peer, WEIRI_LOGGED_UNSTARTED)) {
        weiri_log(WEIR_LOG_WARN, "rank %u: port channel to rank %u: weir_proxy_start was not called", comm->rank, peer);
    }
    return weiri_fail(WEIR_ERR_INVALID, "port channel to rank %u: weir_proxy_start was not called", peer);
}

/* ---- life ---------------------------------------------------------------------------------------------------- */

void weir_semaphore_destroy(weir_semaphore *semaphore)
{
    if (semaphore == NULL || weiri_comm_forked(semaphore->connection->comm) || !weiri_refcount_put(&semaphore->refs)) {
        return;
    }
    weir_connection *connection = semaphore->connection;
    unlist(semaphore);
    if (!semaphore->retired) {
        weiri_cells_free(connection->comm, &connection->comm->slabs.device, semaphore->count, semaphore->device_cell);
        weiri_cells_free(connection->comm, &connection->comm->slabs.host, semaphore->count, semaphore->host_cell);
    }
    weiri_endpoint_close(connection, semaphore->id); /* one that only the peer has asked for */
    weiri_free(semaphore);
    weir_connection_destroy(connection);
}

weir_status weiri_semaphore_claim(weir_semaphore *semaphore, bool port_channel, const char *call)
{
    weir_comm *comm = semaphore->connection->comm;
    pthread_mutex_lock(&comm->mutex);
    const bool fine = !semaphore->port_channel && !(port_channel && semaphore->memory_channels != 0);
    const bool by_port = semaphore->port_channel;
    if (fine && port_channel) {
        semaphore->port_channel = true;
    } else if (fine) {
        semaphore->memory_channels++;
    }
    pthread_mutex_unlock(&comm->mutex);
    return fine ? WEIR_OK
                : weiri_fail(WEIR_ERR_INVALID, "%s: the semaphore has a %s channel; create another one", call,
                             by_port ? "port" : "memory");
}

void weiri_semaphore_unclaim(weir_semaphore *semaphore, bool port_channel)
{
    weir_comm *comm = semaphore->connection->comm;
    pthread_mutex_lock(&comm->mutex);
    if (port_channel) {
        semaphore->port_channel = false;
    } else {
        semaphore->memory_channels--;
    }
    pthread_mutex_unlock(&comm->mutex);
}

static void discard(void *context) { weir_semaphore_destroy((weir_semaphore *)context); }

static weir_status new_semaphore(weir_connection *connection, weir_semaphore_end end, uint32_t count,
                                 weir_semaphore **out)
{
    weir_comm *comm = connection->comm;
    weir_semaphore *semaphore = (weir_semaphore *)weiri_alloc(1, sizeof *semaphore);
    if (semaphore == NULL) {
        return weiri_fail_nomem("weir_semaphore_create");
    }
    weir_status status = weiri_cells_allocate(comm, &comm->slabs.device, count, &semaphore->device_cell);
    if (status != WEIR_OK) {
        goto undo_alloc;
    }
    status = weiri_cells_allocate(comm, &comm->slabs.host, count, &semaphore->host_cell);
    if (status != WEIR_OK) {
        goto undo_device_cell;
    }
    weiri_refcount_init(&semaphore->refs);
    semaphore->connection = connection;
    semaphore->end = end;
    semaphore->count = count;
    weiri_connection_get(connection);
    list(semaphore);
    *out = semaphore;
    return WEIR_OK;

undo_device_cell:
    weiri_cells_free(comm, &comm->slabs.device, count, semaphore->device_cell);
undo_alloc:
    weiri_free(semaphore);
    return status;
}

/* Whether `count` cells of a peer lie in its slab, as its message claims. */
static bool cells_ok(const weiri_slab *slab, uint32_t count, uint64_t offset)
{
    return offset >= slab->first && (offset - slab->first) % WEIR_CELL_BYTES == 0 &&
           (offset - slab->first) / WEIR_CELL_BYTES <= WEIRI_CELLS - count;
}

static weir_status malformed(const weir_semaphore *semaphore)
{
    return weiri_fail(WEIR_ERR_CORRUPT, "weir_semaphore_create: malformed message of rank %u",
                      semaphore->connection->peer);
}

/* Fills the handle that a device end gives to kernels. */
static void fill_device(weir_semaphore *semaphore, bool in_host)
{
    const weir_connection *connection = semaphore->connection;
    const weir_comm *comm = connection->comm;
    const weir_memory *counts = comm->slabs.device.memory;
    weir_dev_semaphore *device = &semaphore->device;
    device->control = comm->slabs.control_device;
    device->inbound = (uint64_t *)(in_host ? weiri_slab_device(comm->slabs.host.memory, semaphore->host_cell)
                                           : weiri_slab_device(comm->slabs.device.memory, semaphore->device_cell));
    device->expected = (uint64_t *)weiri_slab_device(counts, semaphore->device_cell + CONSUMED_OFFSET);
    device->sent = (uint64_t *)weiri_slab_device(counts, semaphore->device_cell + SENT_OFFSET);
    device->count = semaphore->count;
    device->size = semaphore->count;
    device->peer = connection->peer;
    device->id = semaphore->tag;
    if (connection->transport->map != NULL) {
        device->outbound = (uint64_t *)weiri_slab_device(in_host ? connection->host_slab : connection->device_slab,
                                                         semaphore->peer_cell);
        device->to_host = in_host;
    } else {
        device->outbound = (uint64_t *)weiri_slab_device(counts, semaphore->device_cell + UNUSED_OFFSET);
        device->to_host = WEIR_SEMAPHORE_UNMAPPED;
    }
}

static weir_status finish(weir_future *future)
{
    weir_semaphore *semaphore = (weir_semaphore *)future->context;
    const weir_connection *connection = semaphore->connection;
    weir_comm *comm = connection->comm;
    weiri_reader r = weiri_reader_init(future->payload, future->payload_bytes);
    uint32_t peer_end = weiri_read_u32(&r);
    uint32_t peer_count = weiri_read_u32(&r);
    uint64_t device_cell = weiri_read_u64(&r);
    uint64_t host_cell = weiri_read_u64(&r);
    semaphore->peer_id = weiri_read_u64(&r);
    if (!weiri_reader_done(&r) || peer_end > WEIR_SEMAPHORE_HOST) {
        return malformed(semaphore);
    }
    if (peer_count != semaphore->count) {
        return weiri_fail(WEIR_ERR_MISMATCH, "weir_semaphore_create: count is %u on rank %u, %u on rank %u",
                          semaphore->count, comm->rank, peer_count, semaphore->connection->peer);
    }
    if (!cells_ok(&comm->slabs.device, peer_count, device_cell) ||
        !cells_ok(&comm->slabs.host, peer_count, host_cell)) {
        return malformed(semaphore);
    }
    const bool mapped = connection->transport->map != NULL;
    const bool in_host = !mapped || semaphore->end == WEIR_SEMAPHORE_HOST || peer_end == (uint32_t)WEIR_SEMAPHORE_HOST;
    semaphore->peer_in_host = in_host;
    semaphore->peer_cell = in_host ? host_cell : device_cell;
    if (semaphore->end == WEIR_SEMAPHORE_HOST) {
        semaphore->inbound = (uint64_t *)weiri_slab_host(comm->slabs.host.memory, semaphore->host_cell);
        semaphore->outbound = mapped ? (uint64_t *)weiri_slab_host(connection->host_slab, host_cell) : NULL;
    } else {
        fill_device(semaphore, in_host);
    }
    semaphore->retired = false;
    *(weir_semaphore **)future->out = semaphore;
    return WEIR_OK;
}

static weir_status join(weir_semaphore *semaphore, uint64_t tag, weir_semaphore **out, weir_future **future)
{
    const weir_connection *connection = semaphore->connection;
    uint8_t payload[WEIRI_PAYLOAD_MAX];
    weiri_writer w = weiri_writer_init(payload, sizeof payload);
    weiri_write_u32(&w, (uint32_t)semaphore->end);
    weiri_write_u32(&w, semaphore->count);
    weiri_write_u64(&w, semaphore->device_cell);
    weiri_write_u64(&w, semaphore->host_cell);
    weiri_write_u64(&w, semaphore->id);
    weiri_op_message message = { WEIRI_OP_SEMAPHORE, payload, w.size, { NULL, NULL }, 0 };
    weir_status status = weiri_exchange_expect(connection->comm, connection->peer, tag, WEIRI_OP_SEMAPHORE, finish,
                                               discard, semaphore, out, future);
    if (status != WEIR_OK) {
        weir_semaphore_destroy(semaphore);
        return status;
    }
    /* From here on the peer's create may succeed even if this one fails. */
    semaphore->retired = true;
    status = weiri_exchange_send(connection->comm, connection->peer, tag, &message);
    if (status != WEIR_OK) {
        semaphore->retired = false;
        weir_future_destroy(*future);
    }
    return status;
}

weir_status weir_semaphore_create_async(weir_connection *connection, uint64_t tag, const weir_semaphore_opts *opts,
                                        weir_semaphore **out, weir_future **future)
{
    weir_semaphore_opts options;
    weir_status status =
        weiri_comm_check("connection", connection == NULL ? NULL : connection->comm, "weir_semaphore_create");
    if (status != WEIR_OK) {
        return status;
    }
    if (out == NULL || future == NULL) {
        return weiri_fail_null("weir_semaphore_create", out == NULL ? "out" : "future");
    }
    if (!WEIRI_OPTS_OK(opts)) {
        return weiri_fail(WEIR_ERR_INVALID, "weir_semaphore_create: %s", WEIRI_OPTS_ERROR(opts));
    }
    weiri_opts_copy(&options, sizeof options, opts);
    if (options.end != WEIR_SEMAPHORE_DEVICE && options.end != WEIR_SEMAPHORE_HOST) {
        return weiri_fail(WEIR_ERR_INVALID, "weir_semaphore_create: unknown end %d", (int)options.end);
    }
    uint32_t count = options.count != 0 ? options.count : 1;
    if (options.end == WEIR_SEMAPHORE_HOST && count != 1) {
        return weiri_fail(WEIR_ERR_INVALID, "weir_semaphore_create: %u semaphores; a host end has one", count);
    }
    weir_semaphore *semaphore = NULL;
    weir_future *pending;
    status = new_semaphore(connection, options.end, count, &semaphore);
    if (status == WEIR_OK) {
        semaphore->tag = tag;
        status = join(semaphore, tag, out, &pending);
    }
    if (status == WEIR_OK) {
        *future = pending;
    }
    return status;
}

weir_status weir_semaphore_create(weir_connection *connection, uint64_t tag, const weir_semaphore_opts *opts,
                                  weir_semaphore **out)
{
    weir_future *future;
    weir_status status = weir_semaphore_create_async(connection, tag, opts, out, &future);
    return status == WEIR_OK ? weiri_exchange_complete(future) : status;
}

weir_connection *weir_semaphore_connection(const weir_semaphore *semaphore)
{
    return semaphore != NULL ? semaphore->connection : NULL;
}

weir_status weir_semaphore_device(const weir_semaphore *semaphore, weir_dev_semaphore *out)
{
    if (semaphore == NULL || out == NULL) {
        return weiri_fail_null("weir_semaphore_device", semaphore == NULL ? "semaphore" : "out");
    }
    if (weiri_comm_forked(semaphore->connection->comm)) {
        return weiri_fail(WEIR_ERR_FORKED, "weir_semaphore_device: the communicator belongs to the parent process");
    }
    if (semaphore->end != WEIR_SEMAPHORE_DEVICE) {
        return weiri_fail(WEIR_ERR_INVALID, "weir_semaphore_device: this end signals and waits on the host");
    }
    *out = semaphore->device;
    return WEIR_OK;
}

static weir_status check_host(weir_semaphore *semaphore, const char *call)
{
    weir_status status = weiri_comm_check("semaphore", semaphore == NULL ? NULL : semaphore->connection->comm, call);
    if (status == WEIR_OK && semaphore->end != WEIR_SEMAPHORE_HOST) {
        status = weiri_fail(WEIR_ERR_INVALID, "%s: this end signals and waits in kernels", call);
    }
    return status;
}

weir_status weir_semaphore_signal(weir_semaphore *semaphore)
{
    weir_status status = check_host(semaphore, "weir_semaphore_signal");
    if (status == WEIR_OK && semaphore->outbound == NULL) {
        status = weiri_fail(WEIR_ERR_UNSUPPORTED,
                            "weir_semaphore_signal: transport %s maps no memory; signal by a port channel",
                            semaphore->connection->transport->name);
    }
    if (status == WEIR_OK) {
        (void)__atomic_fetch_add(semaphore->outbound, 1, __ATOMIC_RELEASE);
    }
    return status;
}

static bool consume(weir_semaphore *semaphore)
{
    const uint64_t *stored = semaphore->inbound + WEIRI_STORED_OFFSET / sizeof(uint64_t);
    if (__atomic_load_n(semaphore->inbound, __ATOMIC_ACQUIRE) + __atomic_load_n(stored, __ATOMIC_ACQUIRE) <=
        semaphore->consumed) {
        return false;
    }
    semaphore->consumed++;
    return true;
}

weir_status weir_semaphore_poll(weir_semaphore *semaphore)
{
    weir_status status = check_host(semaphore, "weir_semaphore_poll");
    if (status != WEIR_OK) {
        return status;
    }
    if (consume(semaphore)) {
        return WEIR_OK;
    }
    status = weiri_semaphore_error(semaphore, false);
    if (status == WEIR_OK) {
        return WEIR_PENDING;
    }
    return consume(semaphore) ? WEIR_OK : status; /* a signal that came before the error counts */
}

weir_status weir_semaphore_wait(weir_semaphore *semaphore, uint32_t timeout_ms)
{
    weir_status status = check_host(semaphore, "weir_semaphore_wait");
    if (status != WEIR_OK) {
        return status;
    }
    weir_comm *comm = semaphore->connection->comm;
    if (timeout_ms == 0) {
        timeout_ms = comm->timeout_ms;
    }
    uint64_t deadline = weiri_deadline(timeout_ms);
    for (uint32_t reads = 1; !consume(semaphore); reads++) {
        weir_cpu_relax(reads);
        if (reads % CHECK_READS != 0) {
            continue;
        }
        status = weiri_comm_error(comm);
        if (status != WEIR_OK) {
            return status;
        }
        status = weiri_semaphore_error(semaphore, true);
        if (status != WEIR_OK) {
            return consume(semaphore) ? WEIR_OK : status; /* a signal that came before the error counts */
        }
        if (weiri_left_ms(deadline) == 0) {
            return weiri_fail(WEIR_ERR_TIMEOUT,
                              "weir_semaphore_wait: semaphore %" PRIu64 " of rank %u: no signal came within %u ms",
                              semaphore->tag, semaphore->connection->peer, timeout_ms);
        }
    }
    return WEIR_OK;
}
