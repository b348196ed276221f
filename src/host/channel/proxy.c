/* proxy.c - proxies and their channels: create, destroy, and the calls of host threads. proxy_worker.c has the
 * threads. */
#include "weir/proxy.h"

#include <stdio.h>
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/clock.h"
#include "src/host/base/error.h"
#include "src/host/base/log.h"
#include "src/host/channel/proxy.h"

#define DEFAULT_SPIN_NS 10000000u
#define CHECK_READS 64u /* failed tries between two checks of clock and communicator */

/* Offsets in a channel's cell of host memory. Kernels and the host poll different cache lines. */
#define DEVICE_PROGRESS_OFFSET 0u
#define HOST_PROGRESS_OFFSET 64u
#define HOST_CREDITS_OFFSET 104u

/* WEIR_OK if the object is not NULL and belongs to this process. The communicator may have failed. */
static weir_status check_anywhere(const char *object, const weir_proxy *proxy, const char *call)
{
    if (proxy == NULL) {
        return weiri_fail_null(call, object);
    }
    return weiri_comm_forked(proxy->comm)
               ? weiri_fail(WEIR_ERR_FORKED, "%s: the communicator belongs to the parent process", call)
               : WEIR_OK;
}

/* The same for calls that callbacks must not make. */
static weir_status check(const char *object, const weir_proxy *proxy, const char *call)
{
    weir_status status = check_anywhere(object, proxy, call);
    if (status != WEIR_OK) {
        return status;
    }
    if (weiri_worker_is_inside(proxy)) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: called by a handler or progress callback of this proxy", call);
    }
    return WEIR_OK;
}

/* ---- proxies --------------------------------------------------------------------------------------------- */

static void close_workers(weir_proxy *proxy)
{
    for (uint32_t i = 0; i < proxy->worker_count; i++) {
        weiri_worker *worker = &proxy->workers[i];
        weiri_worker_join(worker);
        weir_fifo_destroy(worker->fifos[WEIR_FIFO_DEVICE]);
        weir_fifo_destroy(worker->fifos[WEIR_FIFO_HOST]);
        weiri_free(worker->rows);
        weiri_free(worker->progress);
        pthread_mutex_destroy(&worker->mutex);
    }
}

static weir_status open_workers(weir_proxy *proxy, uint32_t count, uint32_t slots)
{
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < count && status == WEIR_OK; i++) {
        weiri_worker *worker = &proxy->workers[proxy->worker_count++];
        worker->proxy = proxy;
        worker->index = i;
        pthread_mutex_init(&worker->mutex, NULL);
        for (uint32_t lane = 0; lane < WEIRI_LANES && status == WEIR_OK; lane++) {
            const weir_fifo_opts opts = { sizeof opts, (weir_fifo_end)lane, slots };
            status = weir_fifo_create(proxy->comm, &opts, &worker->fifos[lane]);
        }
    }
    return status;
}

weir_status weir_proxy_create(weir_comm *comm, const weir_proxy_opts *opts, weir_proxy **out)
{
    weir_proxy_opts options;
    weir_status status = weiri_comm_check("comm", comm, "weir_proxy_create");
    if (status != WEIR_OK) {
        return status;
    }
    if (out == NULL || !WEIRI_OPTS_OK(opts)) {
        return weiri_fail(WEIR_ERR_INVALID, "weir_proxy_create: %s",
                          out == NULL ? "out is NULL" : WEIRI_OPTS_ERROR(opts));
    }
    weiri_opts_copy(&options, sizeof options, opts);
    const uint32_t threads = options.threads != 0 ? options.threads : 1;
    if (threads > WEIR_PROXY_THREADS_MAX) {
        return weiri_fail(WEIR_ERR_LIMIT, "weir_proxy_create: %u threads; at most %u are possible", threads,
                          WEIR_PROXY_THREADS_MAX);
    }
    weir_proxy *proxy = (weir_proxy *)weiri_alloc(1, sizeof *proxy + threads * sizeof proxy->workers[0]);
    if (proxy == NULL) {
        return weiri_fail_nomem("weir_proxy_create");
    }
    weiri_refcount_init(&proxy->refs);
    proxy->comm = comm;
    proxy->spin_ns = (uint64_t)options.spin_us * 1000u;
    if (options.spin_us == 0 && comm->device->info.own_cores) {
        proxy->spin_ns = DEFAULT_SPIN_NS;
    }
    status = open_workers(proxy, threads, options.slots);
    if (status != WEIR_OK) {
        close_workers(proxy);
        weiri_free(proxy);
        return status;
    }
    weiri_comm_get(comm);
    *out = proxy;
    return WEIR_OK;
}

static void put_proxy(weir_proxy *proxy)
{
    if (weiri_refcount_put(&proxy->refs)) {
        weir_comm *comm = proxy->comm;
        close_workers(proxy);
        weiri_free(proxy);
        weiri_comm_put(comm);
    }
}

/* From here on, waits on the channels of the worker may block. */
static void report_started(weiri_worker *worker)
{
    weiri_worker_enter(worker);
    for (uint32_t i = 0; i < worker->row_count; i++) {
        if (worker->rows[i].channel != NULL) {
            weiri_channel_set_unstarted(worker->rows[i].channel, false);
        }
    }
    weiri_worker_leave(worker);
}

weir_status weir_proxy_start(weir_proxy *proxy)
{
    weir_status status = check("proxy", proxy, "weir_proxy_start");
    if (status == WEIR_OK) {
        status = weiri_comm_error(proxy->comm);
    }
    if (status != WEIR_OK) {
        return status;
    }
    if (__atomic_exchange_n(&proxy->started, 1, __ATOMIC_ACQ_REL) != 0) {
        return weiri_fail(WEIR_ERR_INVALID, "weir_proxy_start: the proxy was started, or stopped, before");
    }
    for (uint32_t i = 0; i < proxy->worker_count && status == WEIR_OK; i++) {
        status = weiri_worker_start(&proxy->workers[i]);
    }
    for (uint32_t i = 0; i < proxy->worker_count; i++) {
        if (status != WEIR_OK) {
            weiri_worker_join(&proxy->workers[i]);
        } else {
            report_started(&proxy->workers[i]);
        }
    }
    return status;
}

static void stop_workers(weir_proxy *proxy)
{
    __atomic_store_n(&proxy->started, 1, __ATOMIC_RELEASE);
    for (uint32_t i = 0; i < proxy->worker_count; i++) {
        weiri_worker_enter(&proxy->workers[i]);
        weiri_worker_fail(&proxy->workers[i], WEIR_ERR_ABORTED, "proxy: it was stopped");
        weiri_worker_leave(&proxy->workers[i]);
    }
}

weir_status weir_proxy_stop(weir_proxy *proxy)
{
    weir_status status = check("proxy", proxy, "weir_proxy_stop");
    if (status == WEIR_OK) {
        stop_workers(proxy);
    }
    return status;
}

void weir_proxy_destroy(weir_proxy *proxy)
{
    if (proxy != NULL && check("proxy", proxy, "weir_proxy_destroy") == WEIR_OK) {
        stop_workers(proxy);
        put_proxy(proxy);
    }
}

/* Runs between two tries of a call that waits. WEIR_OK: the call may try again. WEIR_PENDING: the deadline has passed.
 */
static weir_status try_later(weir_comm *comm, uint32_t tries, uint64_t deadline)
{
    weir_cpu_relax(tries);
    if (tries % CHECK_READS != 0) {
        return WEIR_OK;
    }
    const weir_status status = weiri_comm_error(comm);
    return status == WEIR_OK && weiri_left_ms(deadline) == 0 ? WEIR_PENDING : status;
}

static uint64_t deadline_in(const weir_comm *comm, uint32_t timeout_ms)
{
    return weiri_deadline(timeout_ms != 0 ? timeout_ms : comm->timeout_ms);
}

static bool is_quiet(weiri_worker *worker)
{
    weiri_worker_enter(worker);
    bool quiet = weiri_worker_is_quiet(worker);
    weiri_worker_leave(worker);
    return quiet;
}

weir_status weir_proxy_drain(weir_proxy *proxy, uint32_t timeout_ms)
{
    weir_status status = check("proxy", proxy, "weir_proxy_drain");
    if (status != WEIR_OK) {
        return status;
    }
    const uint64_t deadline = deadline_in(proxy->comm, timeout_ms);
    for (uint32_t i = 0; i < proxy->worker_count; i++) {
        for (uint32_t tries = 1; !is_quiet(&proxy->workers[i]); tries++) {
            status = try_later(proxy->comm, tries, deadline);
            if (status == WEIR_PENDING) {
                return weiri_fail(WEIR_ERR_TIMEOUT,
                                  "%s: thread %u: requests were still queued when the deadline passed", __func__, i);
            }
            if (status != WEIR_OK) {
                return status;
            }
        }
    }
    return WEIR_OK;
}

void weir_proxy_get_usage(weir_proxy *proxy, weir_proxy_usage *usage)
{
    if (usage == NULL) {
        return;
    }
    memset(usage, 0, sizeof *usage);
    if (check("proxy", proxy, "weir_proxy_get_usage") != WEIR_OK) {
        return;
    }
    for (uint32_t i = 0; i < proxy->worker_count; i++) {
        weiri_worker *worker = &proxy->workers[i];
        weiri_worker_enter(worker);
        usage->requests += worker->usage.requests;
        usage->completed += worker->usage.completed;
        usage->failed += worker->usage.failed;
        usage->busy += worker->usage.busy;
        usage->rounds += worker->usage.rounds;
        weiri_worker_leave(worker);
    }
}

/* ---- channels ----------------------------------------------------------------------------------------------- */

/* Takes the worker that the caller asked for, or the one with the fewest channels. */
static weiri_worker *choose_worker(weir_proxy *proxy, uint32_t thread)
{
    if (thread != 0) {
        return &proxy->workers[thread - 1];
    }
    weiri_worker *best = NULL;
    uint32_t fewest = UINT32_MAX;
    for (uint32_t i = 0; i < proxy->worker_count; i++) {
        weiri_worker_enter(&proxy->workers[i]);
        const uint32_t count = proxy->workers[i].channel_count;
        weiri_worker_leave(&proxy->workers[i]);
        if (count < fewest) {
            fewest = count;
            best = &proxy->workers[i];
        }
    }
    return best;
}

/* Finds a row without a channel, and makes more rows if there is none. */
static weir_status find_row(weiri_worker *worker, uint32_t *out)
{
    uint32_t index = 0;
    while (index < worker->row_count && worker->rows[index].channel != NULL) {
        index++;
    }
    if (index == worker->row_count) {
        const uint32_t count = worker->row_count != 0 ? 2 * worker->row_count : 8;
        if (count > 1u << WEIRI_CHANNEL_INDEX_BITS) {
            return weiri_fail(WEIR_ERR_LIMIT, "weir_proxy_channel_create: a thread has at most %u channels",
                              worker->row_count);
        }
        weiri_channel_row *rows = (weiri_channel_row *)weiri_realloc(worker->rows, count * sizeof(weiri_channel_row));
        if (rows == NULL) {
            return weiri_fail_nomem("weir_proxy_channel_create");
        }
        memset(rows + worker->row_count, 0, (count - worker->row_count) * sizeof(weiri_channel_row));
        worker->rows = rows;
        worker->row_count = count;
    }
    *out = index;
    return WEIR_OK;
}

static weiri_progress_row *find_progress(const weiri_worker *worker, const weir_proxy_handler *handler)
{
    for (uint32_t i = 0; i < worker->progress_count; i++) {
        weiri_progress_row *row = &worker->progress[i];
        if (row->run == handler->progress && row->context == handler->progress_context) {
            return row;
        }
    }
    return NULL;
}

static weir_status share_progress(weiri_worker *worker, const weir_proxy_handler *handler)
{
    if (handler->progress == NULL) {
        return WEIR_OK;
    }
    weiri_progress_row *row = find_progress(worker, handler);
    if (row == NULL) {
        row = (weiri_progress_row *)weiri_realloc(worker->progress,
                                                  (worker->progress_count + 1) * sizeof(weiri_progress_row));
        if (row == NULL) {
            return weiri_fail_nomem("weir_proxy_channel_create");
        }
        worker->progress = row;
        row += worker->progress_count++;
        memset(row, 0, sizeof *row);
        row->run = handler->progress;
        row->context = handler->progress_context;
    }
    row->channels++;
    row->failed = false;
    return WEIR_OK;
}

static void leave_progress(weiri_worker *worker, const weir_proxy_handler *handler)
{
    weiri_progress_row *row = handler->progress != NULL ? find_progress(worker, handler) : NULL;
    if (row != NULL && --row->channels == 0) {
        *row = worker->progress[--worker->progress_count];
    }
}

/* Makes the channel known to its worker. */
static weir_status join_worker(weir_proxy_channel *channel)
{
    weiri_worker *worker = channel->worker;
    uint32_t index = 0;
    weir_status status = WEIR_OK;
    weiri_worker_enter(worker);
    if (worker->failed != WEIR_OK) {
        status = weiri_fail(worker->failed, "weir_proxy_channel_create: %s", worker->text);
    }
    if (status == WEIR_OK) {
        status = find_row(worker, &index);
    }
    if (status == WEIR_OK) {
        status = share_progress(worker, &channel->handler);
    }
    if (status == WEIR_OK) {
        channel->id = index | worker->rows[index].generation << WEIRI_CHANNEL_INDEX_BITS;
        worker->rows[index].channel = channel;
        worker->channel_count++;
        for (uint32_t lane = 0; lane < WEIRI_LANES; lane++) {
            channel->lanes[lane].device.id = channel->id;
        }
        weiri_channel_set_unstarted(channel, __atomic_load_n(&channel->proxy->started, __ATOMIC_ACQUIRE) == 0);
    }
    weiri_worker_leave(worker);
    return status;
}

static void leave_worker(weir_proxy_channel *channel)
{
    weiri_worker *worker = channel->worker;
    weiri_channel_row *row;
    weiri_worker_enter(worker);
    row = &worker->rows[channel->id & ((1u << WEIRI_CHANNEL_INDEX_BITS) - 1)];
    row->channel = NULL;
    row->generation++;
    worker->channel_count--;
    worker->queued -= channel->last - channel->first;
    weiri_channel_unlist(channel);
    leave_progress(worker, &channel->handler);
    weiri_worker_leave(worker);
}

static void set_handles(weir_proxy_channel *channel)
{
    const weir_comm *comm = channel->proxy->comm;
    const weir_memory *host = comm->slabs.host.memory;
    const uint64_t cell = channel->host_cell;
    weiri_channel_lane *device = &channel->lanes[WEIR_FIFO_DEVICE];
    device->progress = (weir_dev_progress *)weiri_slab_host(host, cell + DEVICE_PROGRESS_OFFSET);
    device->device.progress = (weir_dev_progress *)weiri_slab_device(host, cell + DEVICE_PROGRESS_OFFSET);
    device->device.credits = (weir_dev_credits *)weiri_slab_device(comm->slabs.device.memory, channel->device_cell);
    weiri_channel_lane *ours = &channel->lanes[WEIR_FIFO_HOST];
    ours->progress = (weir_dev_progress *)weiri_slab_host(host, cell + HOST_PROGRESS_OFFSET);
    ours->device.progress = ours->progress;
    ours->device.credits = (weir_dev_credits *)weiri_slab_host(host, cell + HOST_CREDITS_OFFSET);
    for (uint32_t i = 0; i < WEIRI_LANES; i++) {
        channel->lanes[i].device.fifo = channel->worker->fifos[i]->device;
        channel->lanes[i].device.limit = channel->limit;
        channel->lanes[i].device.peer = WEIR_NO_PEER;
    }
}

static weir_status new_channel(weir_proxy *proxy, const weir_proxy_handler *handler,
                               const weir_proxy_channel_opts *options, weir_proxy_channel **out)
{
    weir_comm *comm = proxy->comm;
    weir_status status = WEIR_ERR_NOMEM;
    weir_proxy_channel *channel = (weir_proxy_channel *)weiri_alloc(1, sizeof *channel);
    if (channel == NULL) {
        return weiri_fail_nomem("weir_proxy_channel_create");
    }
    uint64_t entries = 2;
    while (entries < (uint64_t)WEIRI_LANES * options->credits) {
        entries *= 2;
    }
    channel->ring = (weiri_entry *)weiri_alloc((size_t)entries, sizeof(weiri_entry));
    if (channel->ring == NULL) {
        (void)weiri_fail_nomem("weir_proxy_channel_create");
        goto undo_alloc;
    }
    status = weiri_cells_allocate(comm, &comm->slabs.device, 1, &channel->device_cell);
    if (status != WEIR_OK) {
        goto undo_ring;
    }
    status = weiri_cells_allocate(comm, &comm->slabs.host, 1, &channel->host_cell);
    if (status != WEIR_OK) {
        goto undo_device_cell;
    }
    channel->proxy = proxy;
    channel->worker = choose_worker(proxy, options->thread);
    channel->handler = *handler;
    channel->limit = options->credits;
    channel->mask = entries - 1;
    set_handles(channel);
    status = join_worker(channel);
    if (status != WEIR_OK) {
        goto undo_host_cell;
    }
    *out = channel;
    return WEIR_OK;

undo_host_cell:
    weiri_cells_free(comm, &comm->slabs.host, 1, channel->host_cell);
undo_device_cell:
    weiri_cells_free(comm, &comm->slabs.device, 1, channel->device_cell);
undo_ring:
    weiri_free(channel->ring);
undo_alloc:
    weiri_free(channel);
    return status;
}

weir_status weir_proxy_channel_create(weir_proxy *proxy, const weir_proxy_handler *handler,
                                      const weir_proxy_channel_opts *opts, weir_proxy_channel **out)
{
    weir_proxy_channel_opts options;
    weir_status status = check("proxy", proxy, "weir_proxy_channel_create");
    if (status == WEIR_OK) {
        status = weiri_comm_error(proxy->comm);
    }
    if (status != WEIR_OK) {
        return status;
    }
    if (handler == NULL || handler->request == NULL || out == NULL) {
        return weiri_fail_null("weir_proxy_channel_create", handler == NULL            ? "handler"
                                                            : handler->request == NULL ? "handler->request"
                                                                                       : "out");
    }
    if (!WEIRI_OPTS_OK(opts)) {
        return weiri_fail(WEIR_ERR_INVALID, "weir_proxy_channel_create: %s", WEIRI_OPTS_ERROR(opts));
    }
    weiri_opts_copy(&options, sizeof options, opts);
    options.credits = options.credits != 0 ? options.credits : WEIR_PROXY_CREDITS_DEFAULT;
    if (options.credits > WEIR_PROXY_CREDITS_MAX) {
        return weiri_fail(WEIR_ERR_LIMIT, "weir_proxy_channel_create: %u credits; at most %u are possible",
                          options.credits, WEIR_PROXY_CREDITS_MAX);
    }
    if (options.thread > proxy->worker_count) {
        return weiri_fail(WEIR_ERR_INVALID, "weir_proxy_channel_create: there is no thread %u, the proxy has %u",
                          options.thread, proxy->worker_count);
    }
    status = new_channel(proxy, handler, &options, out);
    if (status == WEIR_OK) {
        weiri_refcount_get(&proxy->refs);
    }
    return status;
}

void weir_proxy_channel_destroy(weir_proxy_channel *channel)
{
    if (channel == NULL || check("channel", channel->proxy, "weir_proxy_channel_destroy") != WEIR_OK) {
        return;
    }
    weir_proxy *proxy = channel->proxy;
    weir_comm *comm = proxy->comm;
    leave_worker(channel);
    weiri_cells_free(comm, &comm->slabs.host, 1, channel->host_cell);
    weiri_cells_free(comm, &comm->slabs.device, 1, channel->device_cell);
    weiri_free(channel->ring);
    weiri_free(channel);
    put_proxy(proxy);
}

weir_status weir_proxy_channel_device(const weir_proxy_channel *channel, weir_dev_proxy_channel *out)
{
    weir_status status = check("channel", channel == NULL ? NULL : channel->proxy, "weir_proxy_channel_device");
    if (status == WEIR_OK && out == NULL) {
        status = weiri_fail_null("weir_proxy_channel_device", "out");
    }
    if (status == WEIR_OK) {
        *out = channel->lanes[WEIR_FIFO_DEVICE].device;
    }
    return status;
}

uint32_t weir_proxy_channel_id(const weir_proxy_channel *channel) { return channel != NULL ? channel->id : 0; }

/* ---- requests of host threads ----------------------------------------------------------------------------- */

/* Fails with the channel's error, if it has one. */
static weir_status channel_error(weir_proxy_channel *channel)
{
    weir_status status = __atomic_load_n(&channel->failed, __ATOMIC_ACQUIRE);
    return status == WEIR_OK ? WEIR_OK : weiri_fail(status, "%s", channel->text);
}

/* Fails a call that waits for the proxy. */
static weir_status fail_wait(const weir_proxy_channel *channel, const char *call, weir_status status, const char *what)
{
    const uint32_t peer = channel->lanes[WEIR_FIFO_HOST].device.peer;
    return peer != WEIR_NO_PEER ? weiri_fail(status, "%s: port channel to rank %u: %s", call, peer, what)
                                : weiri_fail(status, "%s: channel %u: %s", call, channel->id, what);
}

/* Runs between two tries of a call that waits for the proxy. WEIR_OK: the call may try again. */
static weir_status try_channel_later(weir_proxy_channel *channel, const char *call, uint32_t tries, uint64_t deadline,
                                     const char *what)
{
    if (weir_dev_progress_unstarted(channel->lanes[WEIR_FIFO_HOST].progress) == WEIR_OK) {
        const weir_status status = try_later(channel->proxy->comm, tries, deadline);
        return status == WEIR_PENDING ? fail_wait(channel, call, WEIR_ERR_TIMEOUT, what) : status;
    }
    weir_comm *comm = channel->proxy->comm;
    const uint32_t peer = channel->lanes[WEIR_FIFO_HOST].device.peer;
    const weir_status status = fail_wait(channel, call, WEIR_ERR_INVALID, "weir_proxy_start was not called");
    if (weiri_comm_logs_first(comm, peer != WEIR_NO_PEER ? peer : comm->rank, WEIRI_LOGGED_UNSTARTED)) {
        weiri_log(WEIR_LOG_WARN, "rank %u: %s", comm->rank, weir_last_error());
    }
    return status;
}

weir_status weiri_channel_status(weir_proxy_channel *channel, const char *call)
{
    weir_status status = check("channel", channel == NULL ? NULL : channel->proxy, call);
    return status != WEIR_OK ? status : channel_error(channel);
}

weir_status weir_proxy_channel_status(weir_proxy_channel *channel) { return weiri_channel_status(channel, __func__); }

weir_status weiri_channel_try_push(weir_proxy_channel *channel, const char *call, const weir_request *request,
                                   uint64_t *ticket)
{
    uint64_t position;
    weir_status status = check_anywhere("channel", channel == NULL ? NULL : channel->proxy, call);
    if (status == WEIR_OK && request == NULL) {
        status = weiri_fail_null(call, "request");
    }
    if (status == WEIR_OK && weir_dev_control_status(channel->proxy->comm->slabs.control) != WEIR_OK) {
        status = weiri_comm_error(channel->proxy->comm);
    }
    if (status != WEIR_OK) {
        return status;
    }
    status = weir_dev_proxy_channel_try_push(&channel->lanes[WEIR_FIFO_HOST].device, request, &position);
    if (status == WEIR_OK && ticket != NULL) {
        *ticket = position;
    }
    return status < WEIR_OK ? weiri_comm_error(channel->proxy->comm) : status;
}

weir_status weir_proxy_channel_try_push(weir_proxy_channel *channel, const weir_request *request, uint64_t *ticket)
{
    return weiri_channel_try_push(channel, __func__, request, ticket);
}

weir_status weiri_channel_push(weir_proxy_channel *channel, const char *call, const weir_request *request,
                               uint32_t timeout_ms, uint64_t *ticket)
{
    uint64_t position;
    weir_status status = check("channel", channel == NULL ? NULL : channel->proxy, call);
    if (status == WEIR_OK && request == NULL) {
        status = weiri_fail_null(call, "request");
    }
    if (status == WEIR_OK) {
        status = weiri_comm_error(channel->proxy->comm);
    }
    if (status != WEIR_OK) {
        return status;
    }
    const weir_dev_proxy_channel *lane = &channel->lanes[WEIR_FIFO_HOST].device;
    const uint64_t deadline = deadline_in(channel->proxy->comm, timeout_ms);
    for (uint32_t tries = 1; (status = weir_dev_proxy_channel_try_push(lane, request, &position)) != WEIR_OK; tries++) {
        status = status != WEIR_PENDING ? weiri_comm_error(channel->proxy->comm)
                                        : try_channel_later(channel, call, tries, deadline,
                                                            "no credit or slot had come free when the deadline passed");
        if (status != WEIR_OK) {
            return status;
        }
    }
    if (ticket != NULL) {
        *ticket = position;
    }
    return WEIR_OK;
}

weir_status weir_proxy_channel_push(weir_proxy_channel *channel, const weir_request *request, uint32_t timeout_ms,
                                    uint64_t *ticket)
{
    return weiri_channel_push(channel, __func__, request, timeout_ms, ticket);
}

/* Maps the status of the device's test to that of a test or wait of the host. */
static weir_status outcome(weir_proxy_channel *channel, weir_status status)
{
    weir_status error = status < 0 ? channel_error(channel) : WEIR_OK;
    return error != WEIR_OK ? error : status < 0 ? weiri_comm_error(channel->proxy->comm) : status;
}

weir_status weiri_channel_test(weir_proxy_channel *channel, const char *call, uint64_t ticket)
{
    weir_status status = check_anywhere("channel", channel == NULL ? NULL : channel->proxy, call);
    if (status == WEIR_OK) {
        status = outcome(channel, weir_dev_proxy_channel_test(&channel->lanes[WEIR_FIFO_HOST].device, ticket));
    }
    return status;
}

weir_status weir_proxy_channel_test(weir_proxy_channel *channel, uint64_t ticket)
{
    return weiri_channel_test(channel, __func__, ticket);
}

weir_status weiri_channel_wait(weir_proxy_channel *channel, const char *call, uint64_t ticket, uint32_t timeout_ms)
{
    weir_status status = check("channel", channel == NULL ? NULL : channel->proxy, call);
    if (status != WEIR_OK) {
        return status;
    }
    const weir_dev_proxy_channel *lane = &channel->lanes[WEIR_FIFO_HOST].device;
    const uint64_t deadline = deadline_in(channel->proxy->comm, timeout_ms);
    for (uint32_t tries = 1; (status = weir_dev_proxy_channel_test(lane, ticket)) == WEIR_PENDING; tries++) {
        status =
            try_channel_later(channel, call, tries, deadline, "the request was not completed when the deadline passed");
        if (status != WEIR_OK) {
            return status;
        }
    }
    return outcome(channel, status);
}

weir_status weir_proxy_channel_wait(weir_proxy_channel *channel, uint64_t ticket, uint32_t timeout_ms)
{
    return weiri_channel_wait(channel, __func__, ticket, timeout_ms);
}

/* ---- what callbacks call -------------------------------------------------------------------------------------- */

void weir_proxy_channel_complete(weir_proxy_channel *channel, uint32_t count)
{
    if (channel != NULL && channel->failed == WEIR_OK) {
        weiri_channel_complete(channel, count);
    }
}

void weir_proxy_channel_fail(weir_proxy_channel *channel, weir_status status, const char *text)
{
    if (channel != NULL) {
        weiri_channel_fail(channel, status < 0 ? status : WEIR_ERR_INVALID, text != NULL ? text : "");
    }
}
