/* proxy_worker.c - the thread of a proxy: takes requests from its fifos, passes them to handlers, completes them.
 *
 * A request that its handler finishes at once, on a channel that has no other, is never stored. Any other request
 * becomes an entry of its channel's ring. The entry is parked while the handler is busy or others are parked before it,
 * pending while it is under way, and done while it waits for those before it.
 *
 * A thread polls two fifos, one of kernels and one of host threads. A thread without work spins, then yields, then
 * sleeps for a 64th of its idle time, 1 ms at most. It runs on the CPUs near the device, if those are known and the
 * process may use them. The caller's threads are not moved. */
#include "src/host/channel/proxy.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "src/host/base/clock.h"
#include "src/host/base/cpus.h"
#include "src/host/base/error.h"
#include "weir/device/impl/request_check.h"

#define BATCH 32u           /* requests of one fifo in a round */
#define CHECK_ROUNDS 64u    /* rounds between two checks of the communicator */
#define SPIN_ROUNDS 16u     /* idle rounds between two reads of the clock */
#define GIVE_WAY_YIELDS 64u /* for a thread that wants the mutex, perhaps several times in a row */
#define SLEEP_AFTER_NS 10000000u
#define SLEEP_SHARE 64u /* of the idle time */
#define SLEEP_LEAST_NS 50000u
#define SLEEP_MOST_NS 1000000u

static _Thread_local const weiri_worker *inside; /* the worker whose thread this is */

/* ---- completion ----------------------------------------------------------------------------------------- */

/* Completes a request of a lane: publishes its ticket, and returns its credit. */
static void finish(weir_proxy_channel *channel, uint32_t lane_index, uint64_t ticket)
{
    weiri_channel_lane *lane = &channel->lanes[lane_index];
    lane->returned++;
    weir_arch_store_release_sys_u64(&lane->progress->returned, lane->returned);
    if (channel->failed == WEIR_OK) {
        lane->done = ticket + 1;
        weir_arch_store_release_sys_u64(&lane->progress->done, lane->done);
        channel->worker->usage.completed++;
    } else {
        channel->worker->usage.failed++;
    }
}

static void finish_first(weir_proxy_channel *channel)
{
    const weiri_entry *entry = &channel->ring[channel->first++ & channel->mask];
    channel->worker->queued--;
    finish(channel, entry->lane, entry->ticket);
}

/* Finishes the entries that no unfinished entry precedes. */
static void retire(weir_proxy_channel *channel)
{
    while (channel->first != channel->offered &&
           channel->ring[channel->first & channel->mask].state == WEIRI_ENTRY_DONE) {
        finish_first(channel);
    }
}

void weiri_channel_complete(weir_proxy_channel *channel, uint32_t count)
{
    if (channel->waiting < channel->first) {
        channel->waiting = channel->first;
    }
    for (; count != 0 && channel->waiting != channel->offered; channel->waiting++) {
        weiri_entry *entry = &channel->ring[channel->waiting & channel->mask];
        if (entry->state == WEIRI_ENTRY_PENDING) {
            entry->state = WEIRI_ENTRY_DONE;
            count--;
        }
    }
    retire(channel);
}

void weiri_channel_unlist(weir_proxy_channel *channel)
{
    weir_proxy_channel **link = &channel->worker->parked;
    while (channel->listed && *link != channel) {
        link = &(*link)->next_parked;
    }
    if (channel->listed) {
        *link = channel->next_parked;
        channel->listed = false;
    }
}

void weiri_channel_set_unstarted(weir_proxy_channel *channel, bool unstarted)
{
    for (uint32_t i = 0; i < WEIRI_LANES; i++) {
        __atomic_store_n(&channel->lanes[i].progress->unstarted, unstarted ? (int32_t)WEIR_ERR_INVALID : 0,
                         __ATOMIC_RELEASE);
    }
}

void weiri_channel_fail(weir_proxy_channel *channel, weir_status status, const char *text)
{
    if (channel->failed != WEIR_OK) {
        return;
    }
    (void)snprintf(channel->text, sizeof channel->text, "%s", text);
    __atomic_store_n(&channel->failed, status, __ATOMIC_RELEASE);
    /* Called before tickets fail. So a thread whose ticket fails finds this channel's error in its next wait for a
     * signal, and not the peer's. */
    if (channel->on_fail != NULL) {
        channel->on_fail(channel->handler.context);
    }
    for (uint32_t i = 0; i < WEIRI_LANES; i++) {
        weiri_channel_lane *lane = &channel->lanes[i];
        if (channel->keeps_credit) {
            lane->returned--;
            weir_arch_store_release_sys_u64(&lane->progress->returned, lane->returned);
        }
        weir_arch_store_relaxed_sys_u64(&lane->progress->failed_from, lane->done);
        weir_arch_store_relaxed_sys_u64((uint64_t *)&lane->progress->status, (uint64_t)(int64_t)status);
        weir_arch_store_release_sys_u64(&lane->progress->done, WEIR_PROGRESS_FAILED);
    }
    while (channel->first != channel->last) {
        finish_first(channel);
    }
    channel->waiting = channel->offered = channel->last;
    weiri_channel_unlist(channel);
    weiri_channel_set_unstarted(channel, false);
}

/* A callback has returned `status`, which is an error or no status at all. */
static void fail_by_callback(weir_proxy_channel *channel, weir_status status, const char *callback)
{
    char text[sizeof channel->text];
    (void)snprintf(text, sizeof text, "proxy: channel %u: its %s returned %s: %s", channel->id, callback,
                   weir_status_name(status), weir_last_error());
    weiri_channel_fail(channel, status < 0 ? status : WEIR_ERR_INVALID, text);
}

/* ---- requests --------------------------------------------------------------------------------------------- */

/* Handlers of users may receive requests of port channels too. */
static bool is_type(uint16_t type) { return weir_request_is_type(type) || type >= WEIR_REQUEST_USER; }

/* Passes a request to the handler and returns its new state. The channel may fail. */
static weir_status offer(weir_proxy_channel *channel, const weir_request *request)
{
    weir_status status = channel->handler.request(channel->handler.context, request);
    if (status == WEIR_ERR_BUSY) {
        channel->worker->usage.busy++;
    } else if (status != WEIR_OK && status != WEIR_PENDING) {
        fail_by_callback(channel, status, "handler");
    }
    return status;
}

static void append(weir_proxy_channel *channel, const weir_request *request, uint32_t lane, uint64_t ticket,
                   weiri_entry_state state)
{
    weiri_entry *entry = &channel->ring[channel->last++ & channel->mask];
    entry->request = *request;
    entry->lane = lane;
    entry->ticket = ticket;
    entry->state = state;
    channel->worker->queued++;
    if (state != WEIRI_ENTRY_PARKED) {
        channel->offered = channel->last;
    } else if (!channel->listed) {
        channel->listed = true;
        channel->next_parked = channel->worker->parked;
        channel->worker->parked = channel;
    }
}

static void dispatch(weir_proxy_channel *channel, const weir_request *request, uint32_t lane, uint64_t ticket)
{
    if (channel->failed == WEIR_OK && !is_type(request->type)) {
        char text[96];
        (void)snprintf(text, sizeof text, "proxy: channel %u: a request of type %u, which does not exist", channel->id,
                       request->type);
        weiri_channel_fail(channel, WEIR_ERR_CORRUPT, text);
    }
    if (channel->failed == WEIR_OK && channel->last - channel->first > channel->mask) {
        char text[96];
        (void)snprintf(text, sizeof text, "proxy: channel %u: more requests than its %u credits", channel->id,
                       channel->limit);
        weiri_channel_fail(channel, WEIR_ERR_LIMIT, text);
    }
    if (channel->failed != WEIR_OK) {
        finish(channel, lane, ticket);
        return;
    }
    if (channel->offered != channel->last) {
        append(channel, request, lane, ticket, WEIRI_ENTRY_PARKED);
        return;
    }
    weir_status status = offer(channel, request);
    if (channel->failed != WEIR_OK || (status == WEIR_OK && channel->first == channel->last)) {
        finish(channel, lane, ticket);
    } else {
        append(channel, request, lane, ticket,
               status == WEIR_OK        ? WEIRI_ENTRY_DONE
               : status == WEIR_PENDING ? WEIRI_ENTRY_PENDING
                                        : WEIRI_ENTRY_PARKED);
    }
}

/* Offers a channel's parked requests again until the handler is busy; true if it took one. */
static bool retry(weir_proxy_channel *channel)
{
    const uint64_t before = channel->offered;
    while (channel->failed == WEIR_OK && channel->offered != channel->last) {
        weiri_entry *entry = &channel->ring[channel->offered & channel->mask];
        weir_status status = offer(channel, &entry->request);
        if (status == WEIR_ERR_BUSY || channel->failed != WEIR_OK) {
            break;
        }
        entry->state = status == WEIR_OK ? WEIRI_ENTRY_DONE : WEIRI_ENTRY_PENDING;
        channel->offered++;
        retire(channel);
    }
    if (channel->offered == channel->last) {
        weiri_channel_unlist(channel);
    }
    return channel->offered != before;
}

/* Finds the channel of a request. NULL if the channel was destroyed. If it never existed, the communicator fails,
 * because no other object can report the error. */
static weir_proxy_channel *find_channel(weiri_worker *worker, uint32_t id)
{
    const uint32_t index = id & ((1u << WEIRI_CHANNEL_INDEX_BITS) - 1);
    const weiri_channel_row *row = index < worker->row_count ? &worker->rows[index] : NULL;
    if (row == NULL || (row->channel == NULL && row->generation == 0)) {
        char cause[96];
        (void)snprintf(cause, sizeof cause, "a request of channel %u, which proxy thread %u does not have", id,
                       worker->index);
        pthread_mutex_lock(&worker->proxy->comm->mutex);
        weiri_comm_break_locked(worker->proxy->comm, WEIR_ERR_CORRUPT, cause);
        pthread_mutex_unlock(&worker->proxy->comm->mutex);
        return NULL;
    }
    return row->channel != NULL && row->channel->id == id ? row->channel : NULL;
}

/* Takes up to `most` requests of a fifo, and returns their number. */
static uint32_t take(weiri_worker *worker, uint32_t lane, uint32_t most)
{
    weir_fifo *fifo = worker->fifos[lane];
    weir_request request;
    uint64_t ticket;
    uint32_t taken = 0;
    while (taken < most && weiri_fifo_take(fifo, &request, &ticket)) {
        weir_proxy_channel *channel = find_channel(worker, request.channel);
        taken++;
        worker->usage.requests++;
        if (channel != NULL) {
            dispatch(channel, &request, lane, ticket);
        } else {
            worker->usage.failed++;
        }
    }
    if (taken != 0) {
        weir_fifo_complete(fifo);
    }
    return taken;
}

/* ---- rounds --------------------------------------------------------------------------------------------- */

/* Runs a progress callback; true if it made progress. */
static bool run_progress(weiri_worker *worker, uint32_t index)
{
    const weiri_progress_row row = worker->progress[index];
    if (row.failed) {
        return false;
    }
    weir_status status = row.run(row.context);
    if (status != WEIR_OK && status != WEIR_PENDING) {
        worker->progress[index].failed = true;
        for (uint32_t i = 0; i < worker->row_count; i++) {
            weir_proxy_channel *channel = worker->rows[i].channel;
            if (channel != NULL && channel->handler.progress == row.run &&
                channel->handler.progress_context == row.context) {
                fail_by_callback(channel, status, "progress callback");
            }
        }
    }
    return status == WEIR_OK;
}

/* Runs one round; true if there was work. */
static bool run_round(weiri_worker *worker)
{
    bool worked = false;
    worker->usage.rounds++;
    for (uint32_t lane = 0; lane < WEIRI_LANES; lane++) {
        worked = take(worker, lane, BATCH) != 0 || worked;
    }
    weir_proxy_channel *next;
    for (weir_proxy_channel *channel = worker->parked; channel != NULL; channel = next) {
        next = channel->next_parked;
        worked = retry(channel) || worked;
    }
    for (uint32_t i = 0; i < worker->progress_count && worker->failed == WEIR_OK; i++) {
        worked = run_progress(worker, i) || worked;
    }
    return worked;
}

void weiri_worker_fail(weiri_worker *worker, weir_status status, const char *text)
{
    if (worker->failed == WEIR_OK) {
        worker->failed = status;
        (void)snprintf(worker->text, sizeof worker->text, "%s", text);
    }
    for (uint32_t i = 0; i < worker->row_count; i++) {
        if (worker->rows[i].channel != NULL) {
            weiri_channel_fail(worker->rows[i].channel, worker->failed, worker->text);
        }
    }
    for (uint32_t lane = 0; lane < WEIRI_LANES; lane++) {
        (void)take(worker, lane, worker->fifos[lane]->count);
    }
}

bool weiri_worker_is_quiet(const weiri_worker *worker)
{
    return worker->queued == 0 && weiri_fifo_is_empty(worker->fifos[WEIR_FIFO_DEVICE]) &&
           weiri_fifo_is_empty(worker->fifos[WEIR_FIFO_HOST]);
}

static void check_comm(weiri_worker *worker)
{
    weir_comm *comm = worker->proxy->comm;
    if (worker->failed == WEIR_OK && weir_dev_control_status(comm->slabs.control) != WEIR_OK) {
        weir_status status = weiri_comm_error(comm);
        if (status != WEIR_OK) {
            weiri_worker_fail(worker, status, weir_last_error());
        }
    }
}

/* ---- the thread --------------------------------------------------------------------------------------------- */

void weiri_worker_enter(weiri_worker *worker)
{
    (void)__atomic_fetch_add(&worker->wanted, 1, __ATOMIC_RELAXED);
    pthread_mutex_lock(&worker->mutex);
    (void)__atomic_fetch_sub(&worker->wanted, 1, __ATOMIC_RELAXED);
}

void weiri_worker_leave(weiri_worker *worker) { pthread_mutex_unlock(&worker->mutex); }

bool weiri_worker_is_inside(const weir_proxy *proxy) { return inside != NULL && inside->proxy == proxy; }

/* How long the thread sleeps after `idle_ns` without work: not at all at first, and never long while requests are under
 * way. */
static uint64_t sleep_time(const weiri_worker *worker, uint64_t idle_ns)
{
    if (idle_ns < SLEEP_AFTER_NS) {
        return 0;
    }
    uint64_t time = idle_ns / SLEEP_SHARE;
    uint64_t most = worker->queued != 0 ? SLEEP_LEAST_NS : SLEEP_MOST_NS;
    return time < SLEEP_LEAST_NS ? SLEEP_LEAST_NS : time < most ? time : most;
}

/* The state of a thread without work. */
typedef struct idleness {
    uint32_t rounds;
    bool tired;        /* it has spun long enough */
    uint64_t since_ns; /* time of the first read of the clock; 0 before */
} idleness;

/* Runs after a round that found no work. */
static void rest(weiri_worker *worker, idleness *idle)
{
    idle->rounds++;
    if (!idle->tired && idle->rounds % SPIN_ROUNDS == 0) {
        const uint64_t now = weiri_now_ns();
        idle->since_ns = idle->since_ns != 0 ? idle->since_ns : now;
        idle->tired = now - idle->since_ns >= worker->proxy->spin_ns;
    }
    if (!idle->tired) {
        weir_cpu_relax(1);
        return;
    }
    const uint64_t sleep_ns = sleep_time(worker, weiri_now_ns() - idle->since_ns);
    pthread_mutex_unlock(&worker->mutex);
    if (sleep_ns == 0) {
        (void)sched_yield();
    } else {
        const struct timespec pause = { .tv_sec = 0, .tv_nsec = (long)sleep_ns };
        (void)nanosleep(&pause, NULL);
    }
    pthread_mutex_lock(&worker->mutex);
    check_comm(worker);
}

/* Yields, so that other threads get the mutex, which the caller has released. */
static void give_way(const weiri_worker *worker)
{
    for (uint32_t i = 0; i < GIVE_WAY_YIELDS && __atomic_load_n(&worker->wanted, __ATOMIC_RELAXED) != 0; i++) {
        (void)sched_yield();
    }
}

static void *run(void *context)
{
    weiri_worker *worker = (weiri_worker *)context;
    weir_device *device = worker->proxy->comm->device;
    weiri_cpus near;
    idleness idle = { 0, false, 0 };
    inside = worker;
    if (weiri_cpus_near(device->pci, &near)) {
        (void)weiri_cpus_pin(&near);
    }
    if (device->ops->thread_enter != NULL) {
        device->ops->thread_enter(device);
    }
    pthread_mutex_lock(&worker->mutex);
    for (uint32_t round = 1; !worker->quit; round++) {
        if (__atomic_load_n(&worker->wanted, __ATOMIC_RELAXED) != 0) {
            pthread_mutex_unlock(&worker->mutex);
            give_way(worker);
            pthread_mutex_lock(&worker->mutex);
        }
        if (run_round(worker)) {
            idle = (idleness){ 0, false, 0 };
        } else {
            rest(worker, &idle);
        }
        if (round % CHECK_ROUNDS == 0) {
            check_comm(worker);
        }
    }
    pthread_mutex_unlock(&worker->mutex);
    if (device->ops->thread_leave != NULL) {
        device->ops->thread_leave(device);
    }
    inside = NULL;
    return NULL;
}

weir_status weiri_worker_start(weiri_worker *worker)
{
    char name[16];
    (void)snprintf(name, sizeof name, "weir-proxy-%u", worker->index);
    int error = weiri_thread_create(&worker->thread, name, run, worker);
    if (error != 0) {
        return weiri_fail_errno(error, "weir_proxy_start: thread %u", worker->index);
    }
    worker->running = true;
    return WEIR_OK;
}

void weiri_worker_join(weiri_worker *worker)
{
    if (worker->running) {
        weiri_worker_enter(worker);
        worker->quit = true;
        weiri_worker_leave(worker);
        (void)pthread_join(worker->thread, NULL);
        worker->running = false;
    }
}
