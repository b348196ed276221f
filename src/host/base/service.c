/* service.c - the thread that runs callbacks: epoll for descriptors, a list of periods, a queue of posts.
 *
 * One mutex guards everything. The thread releases it only while it sleeps and while a callback runs. unwatch marks a
 * watch dead and unlinks it at once. The thread frees it before its next epoll_wait, because the watch may still be
 * among the events of the last one. `running` and `turn` show other threads which callback runs and when that run has
 * ended. */
#include "src/host/base/service.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "src/host/base/alloc.h"
#include "src/host/base/clock.h"
#include "src/host/base/error.h"

#define EVENTS_AT_ONCE 64

struct weiri_watch {
    weiri_watch *next;
    weiri_watch **link; /* the pointer to this watch */
    int fd;             /* -1: a period */
    uint32_t events;
    void (*ready)(void *context, uint32_t events);
    void (*run)(void *context);
    void *context;
    uint64_t period_ns;
    uint64_t due_ns;
    bool dead;
};

typedef struct post {
    struct post *next;
    void (*run)(void *context);
    void *context;
} post;

struct weiri_service {
    char name[16];
    pthread_t thread;
    int epoll;
    int wake; /* eventfd: ends the thread's sleep */
    pthread_mutex_t mutex;
    pthread_cond_t ended; /* a callback has returned */
    weiri_watch *fds;
    weiri_watch *periods;
    weiri_watch *dead;
    post *posts;
    post **posts_end;
    const weiri_watch *running;
    uint64_t turn; /* callbacks of watches that have returned */
    bool stopping;
};

/* The service whose thread this is. */
static _Thread_local const weiri_service *self;

bool weiri_service_is_self(const weiri_service *service) { return service == self; }

static void lock(weiri_service *service) { (void)pthread_mutex_lock(&service->mutex); }

static void unlock(weiri_service *service) { (void)pthread_mutex_unlock(&service->mutex); }

/* Under the mutex: the thread may next let another thread destroy the service. The thread itself needs no wake, since
 * it checks everything before it sleeps. */
static void wake(weiri_service *service)
{
    if (!weiri_service_is_self(service)) {
        uint64_t one = 1;
        ssize_t written = write(service->wake, &one, sizeof one);
        (void)written; /* fails only when the counter is full, and then the thread is awake */
    }
}

static void link_watch(weiri_watch **list, weiri_watch *watch)
{
    watch->next = *list;
    watch->link = list;
    if (watch->next != NULL) {
        watch->next->link = &watch->next;
    }
    *list = watch;
}

static void unlink_watch(weiri_watch *watch)
{
    *watch->link = watch->next;
    if (watch->next != NULL) {
        watch->next->link = watch->link;
    }
}

static void free_watches(weiri_watch **list)
{
    while (*list != NULL) {
        weiri_watch *watch = *list;
        unlink_watch(watch);
        weiri_free(watch);
    }
}

/* Runs one callback of `watch` without the mutex. The watch may be dead afterwards but is not freed. */
static void call_watch(weiri_service *service, const weiri_watch *watch, uint32_t events)
{
    service->running = watch;
    unlock(service);
    if (watch->fd >= 0) {
        watch->ready(watch->context, events);
    } else {
        watch->run(watch->context);
    }
    lock(service);
    service->running = NULL;
    service->turn++;
    (void)pthread_cond_broadcast(&service->ended);
}

static void run_ready(weiri_service *service, const struct epoll_event *event)
{
    const weiri_watch *watch = (const weiri_watch *)event->data.ptr;
    if (watch == NULL) {
        uint64_t count;
        ssize_t got = read(service->wake, &count, sizeof count);
        (void)got;
        return;
    }
    /* An earlier callback of this batch may have ended the watch, or its interest in these events. */
    uint32_t events = event->events & (watch->events | EPOLLERR | EPOLLHUP);
    if (!watch->dead && events != 0) {
        call_watch(service, watch, events);
    }
}

static weiri_watch *first_due(weiri_service *service, uint64_t now)
{
    for (weiri_watch *watch = service->periods; watch != NULL; watch = watch->next) {
        if (watch->due_ns <= now) {
            return watch;
        }
    }
    return NULL;
}

/* Runs each due period once. The list may change during a callback, so every search starts anew. It ends, because a
 * period that has run is due later than `now`. */
static void run_due(weiri_service *service)
{
    uint64_t now = weiri_now_ns();
    weiri_watch *watch;
    while ((watch = first_due(service, now)) != NULL) {
        watch->due_ns += watch->period_ns;
        if (watch->due_ns <= now) {
            watch->due_ns = now + watch->period_ns; /* a thread that is late skips runs */
        }
        call_watch(service, watch, 0);
    }
}

/* Runs the posts made before this call. Posts that they make wait for the next call, which keeps descriptors served. */
static void run_posts(weiri_service *service)
{
    post *posts = service->posts;
    service->posts = NULL;
    service->posts_end = &service->posts;
    unlock(service);
    while (posts != NULL) {
        post *p = posts;
        posts = p->next;
        p->run(p->context);
        weiri_free(p);
    }
    lock(service);
}

/* Milliseconds that the thread may sleep; -1: until woken. */
static int sleep_ms(const weiri_service *service)
{
    if (service->posts != NULL) {
        return 0;
    }
    uint64_t due = UINT64_MAX;
    for (const weiri_watch *watch = service->periods; watch != NULL; watch = watch->next) {
        due = watch->due_ns < due ? watch->due_ns : due;
    }
    if (due == UINT64_MAX) {
        return -1;
    }
    uint32_t ms = weiri_left_ms(due);
    return ms < INT32_MAX ? (int)ms : INT32_MAX;
}

static void *service_main(void *context)
{
    weiri_service *service = (weiri_service *)context;
    struct epoll_event events[EVENTS_AT_ONCE];
    self = service;
    lock(service);
    while (!service->stopping) {
        free_watches(&service->dead);
        int timeout = sleep_ms(service);
        unlock(service);
        int count = epoll_wait(service->epoll, events, EVENTS_AT_ONCE, timeout);
        lock(service);
        for (int i = 0; i < count; i++) {
            run_ready(service, &events[i]);
        }
        run_due(service);
        run_posts(service);
    }
    while (service->posts != NULL) {
        run_posts(service);
    }
    unlock(service);
    return NULL;
}

/* The eventfd is the one descriptor without a watch. */
static weir_status open_descriptors(weiri_service *service)
{
    service->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (service->epoll < 0) {
        return weiri_fail_errno(errno, "service %s: create epoll", service->name);
    }
    service->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (service->wake < 0) {
        weir_status status = weiri_fail_errno(errno, "service %s: create eventfd", service->name);
        (void)close(service->epoll);
        return status;
    }
    struct epoll_event event = { .events = EPOLLIN, .data = { .ptr = NULL } };
    if (epoll_ctl(service->epoll, EPOLL_CTL_ADD, service->wake, &event) != 0) {
        weir_status status = weiri_fail_errno(errno, "service %s: watch eventfd", service->name);
        (void)close(service->wake);
        (void)close(service->epoll);
        return status;
    }
    return WEIR_OK;
}

weir_status weiri_service_create(const char *name, weiri_service **out)
{
    weiri_service *service = (weiri_service *)weiri_alloc(1, sizeof *service);
    if (service == NULL) {
        return weiri_fail_nomem("service");
    }
    (void)snprintf(service->name, sizeof service->name, "%s", name);
    service->posts_end = &service->posts;
    weir_status status = open_descriptors(service);
    if (status != WEIR_OK) {
        goto free_service;
    }
    int error = pthread_mutex_init(&service->mutex, NULL);
    if (error != 0) {
        status = weiri_fail_errno(error, "service %s: create mutex", service->name);
        goto close_descriptors;
    }
    error = weiri_cond_init(&service->ended);
    if (error != 0) {
        status = weiri_fail_errno(error, "service %s: create condition variable", service->name);
        goto destroy_mutex;
    }
    error = weiri_thread_create(&service->thread, service->name, service_main, service);
    if (error != 0) {
        status = weiri_fail_errno(error, "service %s: create thread", service->name);
        goto destroy_cond;
    }
    *out = service;
    return WEIR_OK;

destroy_cond:
    (void)pthread_cond_destroy(&service->ended);
destroy_mutex:
    (void)pthread_mutex_destroy(&service->mutex);
close_descriptors:
    (void)close(service->wake);
    (void)close(service->epoll);
free_service:
    weiri_free(service);
    return status;
}

void weiri_service_destroy(weiri_service *service)
{
    if (service == NULL) {
        return;
    }
    lock(service);
    service->stopping = true;
    wake(service);
    unlock(service);
    (void)pthread_join(service->thread, NULL);
    free_watches(&service->fds);
    free_watches(&service->periods);
    free_watches(&service->dead);
    (void)pthread_cond_destroy(&service->ended);
    (void)pthread_mutex_destroy(&service->mutex);
    (void)close(service->wake);
    (void)close(service->epoll);
    weiri_free(service);
}

void weiri_service_abandon(weiri_service *service)
{
    if (pthread_mutex_trylock(&service->mutex) != 0) {
        return;
    }
    (void)pthread_mutex_unlock(&service->mutex);
    free_watches(&service->fds);
    free_watches(&service->periods);
    free_watches(&service->dead);
    while (service->posts != NULL) {
        post *p = service->posts;
        service->posts = p->next;
        weiri_free(p);
    }
    (void)close(service->wake);
    (void)close(service->epoll);
    weiri_free(service);
}

weir_status weiri_service_watch_fd(weiri_service *service, int fd, uint32_t events,
                                   void (*ready)(void *context, uint32_t events), void *context, weiri_watch **out)
{
    weiri_watch *watch = (weiri_watch *)weiri_alloc(1, sizeof *watch);
    if (watch == NULL) {
        return weiri_fail_nomem("service: watch");
    }
    watch->fd = fd;
    watch->events = events;
    watch->ready = ready;
    watch->context = context;
    struct epoll_event event = { .events = events, .data = { .ptr = watch } };
    /* Under the mutex, so that *out is set before the first callback runs. */
    lock(service);
    if (epoll_ctl(service->epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        weir_status status = weiri_fail_errno(errno, "service %s: watch descriptor %d", service->name, fd);
        unlock(service);
        weiri_free(watch);
        return status;
    }
    link_watch(&service->fds, watch);
    *out = watch;
    unlock(service);
    return WEIR_OK;
}

weir_status weiri_service_set_events(weiri_service *service, weiri_watch *watch, uint32_t events)
{
    struct epoll_event event = { .events = events, .data = { .ptr = watch } };
    weir_status status = WEIR_OK;
    lock(service);
    if (epoll_ctl(service->epoll, EPOLL_CTL_MOD, watch->fd, &event) != 0) {
        status = weiri_fail_errno(errno, "service %s: change events of descriptor %d", service->name, watch->fd);
    } else {
        watch->events = events;
    }
    unlock(service);
    return status;
}

void weiri_service_mute(weiri_service *service, weiri_watch *watch)
{
    lock(service);
    (void)epoll_ctl(service->epoll, EPOLL_CTL_DEL, watch->fd, NULL);
    unlock(service);
}

weir_status weiri_service_watch_time(weiri_service *service, uint32_t period_ms, void (*run)(void *context),
                                     void *context, weiri_watch **out)
{
    if (period_ms == 0) {
        return weiri_fail(WEIR_ERR_INVALID, "service %s: watch time: a period of 0 ms", service->name);
    }
    weiri_watch *watch = (weiri_watch *)weiri_alloc(1, sizeof *watch);
    if (watch == NULL) {
        return weiri_fail_nomem("service: watch");
    }
    watch->fd = -1;
    watch->run = run;
    watch->context = context;
    watch->period_ns = (uint64_t)period_ms * 1000000u;
    watch->due_ns = weiri_deadline(period_ms);
    lock(service);
    link_watch(&service->periods, watch);
    *out = watch;
    wake(service);
    unlock(service);
    return WEIR_OK;
}

void weiri_service_unwatch(weiri_service *service, weiri_watch *watch)
{
    if (watch == NULL) {
        return;
    }
    lock(service);
    if (watch->fd >= 0) {
        (void)epoll_ctl(service->epoll, EPOLL_CTL_DEL, watch->fd, NULL);
    }
    if (service->dead == NULL) {
        wake(service); /* the thread frees it; an idle one would let dead watches pile up */
    }
    watch->dead = true;
    unlink_watch(watch);
    link_watch(&service->dead, watch);
    if (service->running == watch && !weiri_service_is_self(service)) {
        /* By its turn and not by the watch: a new watch may have its address by then. */
        uint64_t turn = service->turn;
        while (service->turn == turn) {
            (void)pthread_cond_wait(&service->ended, &service->mutex);
        }
    }
    unlock(service);
}

weir_status weiri_service_post(weiri_service *service, void (*run)(void *context), void *context)
{
    post *p = (post *)weiri_alloc(1, sizeof *p);
    if (p == NULL) {
        return weiri_fail_nomem("service: post");
    }
    p->run = run;
    p->context = context;
    lock(service);
    if (service->posts == NULL) {
        wake(service); /* later posts do not wake the thread */
    }
    *service->posts_end = p;
    service->posts_end = &p->next;
    unlock(service);
    return WEIR_OK;
}
