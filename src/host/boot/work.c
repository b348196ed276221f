/* work.c - the work of the service thread: callbacks, ticks, and wakeups in both directions; see work.h. */
#include "src/host/boot/work.h"

#include "src/host/base/clock.h"
#include "src/host/boot/bootstrap.h"

#define TICKS 50u /* in the timeout; they date the news of a silent rank */
#define TICK_LEAST_MS 50u
#define TICK_MOST_MS 500u
#define HURRY_MS 10

void weiri_boot_signal(weir_bootstrap *boot)
{
    if (boot->work.stopped) {
        return; /* no thread waits; in the child of a fork the condition variable may be in any state */
    }
    if (boot->work.service != NULL && weiri_service_is_self(boot->work.service)) {
        boot->work.signalled = true;
    } else {
        (void)pthread_cond_broadcast(&boot->cond);
    }
}

void weiri_boot_enter(weir_bootstrap *boot) { (void)pthread_mutex_lock(&boot->mutex); }

void weiri_boot_leave(weir_bootstrap *boot)
{
    weiri_conn_bury(boot);
    if (!boot->work.stopped) {
        weiri_port_deliver(boot);
    }
    const bool signalled = boot->work.signalled;
    boot->work.signalled = false;
    (void)pthread_mutex_unlock(&boot->mutex);
    /* After the mutex is free, which the woken thread needs. The bootstrap outlives its service thread. */
    if (signalled) {
        (void)pthread_cond_broadcast(&boot->cond);
    }
}

/* Does the work that users' calls and other connections have left for the service thread. */
static void run(weir_bootstrap *boot, uint64_t now_ns)
{
    boot->work.woken = false;
    if (boot->closing && !boot->goodbyes_sent) {
        weiri_peer_goodbyes(boot);
    }
    while (boot->conns.dirty != NULL) {
        weiri_conn *conn = boot->conns.dirty;
        boot->conns.dirty = conn->next_dirty;
        conn->dirty = false;
        if (conn->state != WEIRI_CONN_IDLE) {
            weiri_conn_flush(conn);
        } else if (conn->retry_ns <= now_ns) {
            weiri_conn_open(conn);
        }
    }
}

static void run_work(void *context)
{
    weir_bootstrap *boot = (weir_bootstrap *)context;
    weiri_boot_enter(boot);
    if (!boot->work.stopped) {
        run(boot, weiri_now_ns());
    }
    weiri_boot_leave(boot);
}

/* If this fails, the next tick does the work. */
void weiri_boot_wake(weir_bootstrap *boot)
{
    if (!boot->work.woken && !boot->work.stopped) {
        boot->work.woken = weiri_service_post(boot->work.service, run_work, boot) == WEIR_OK;
    }
}

/* True when there is work that cannot wait for the next tick. */
static bool is_hurried(const weir_bootstrap *boot)
{
    bool hurried = boot->listener.paused || (boot->rank == 0 && !boot->join.over);
    for (const weiri_conn *conn = boot->conns.first; conn != NULL && !hurried; conn = conn->next) {
        hurried = conn->state == WEIRI_CONN_IDLE;
    }
    return hurried;
}

static void tick(void *context)
{
    weir_bootstrap *boot = (weir_bootstrap *)context;
    weiri_boot_enter(boot);
    if (!boot->work.stopped) {
        const uint64_t now = weiri_now_ns();
        for (weiri_conn *conn = boot->conns.first; conn != NULL;) {
            weiri_conn *next = conn->next;
            if (conn->state == WEIRI_CONN_IDLE && conn->retry_ns <= now) {
                weiri_conn_mark(conn);
            } else if (conn->deadline_ns != 0 && conn->deadline_ns <= now && weiri_conn_is_proving(conn)) {
                weiri_conn_expire(conn, now);
                next = boot->conns.first; /* the call may have closed other connections */
            }
            conn = next;
        }
        weiri_join_tick(boot, now);
        weiri_peer_tick(boot, now);
        weiri_beat_tick(boot, now);
        weiri_listener_resume(boot);
        run(boot, now);
        if (boot->work.hurry != NULL && !is_hurried(boot)) {
            weiri_service_unwatch(boot->work.service, boot->work.hurry);
            boot->work.hurry = NULL;
        }
    }
    weiri_boot_leave(boot);
}

/* If this fails, the next tick is soon enough. */
static uint32_t choose_tick_ms(uint32_t timeout_ms)
{
    const uint32_t tick_ms = timeout_ms / TICKS;
    return tick_ms < TICK_LEAST_MS ? TICK_LEAST_MS : tick_ms > TICK_MOST_MS ? TICK_MOST_MS : tick_ms;
}

void weiri_boot_hurry(weir_bootstrap *boot)
{
    if (boot->work.hurry == NULL && !boot->work.stopped &&
        weiri_service_watch_time(boot->work.service, HURRY_MS, tick, boot, &boot->work.hurry) != WEIR_OK) {
        boot->work.hurry = NULL;
    }
}

weir_status weiri_boot_work_start(weir_bootstrap *boot)
{
    weiri_boot_work *work = &boot->work;
    weir_status status = weiri_service_create("weir-bootstrap", &work->service);
    if (status == WEIR_OK) {
        status = weiri_service_watch_time(work->service, choose_tick_ms(boot->timeout_ms), tick, boot, &work->tick);
    }
    return status;
}

void weiri_boot_work_stop(weir_bootstrap *boot)
{
    weiri_service_destroy(boot->work.service);
    boot->work.service = NULL;
}
