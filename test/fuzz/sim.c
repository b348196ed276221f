/* sim.c - see sim.h. */
#include "test/fuzz/sim.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/clock.h"
#include "src/host/base/error.h"
#include "src/host/base/service.h"
#include "test/fuzz/fuzz.h"

#define NS_PER_MS 1000000u
#define START_NS 1000000000000u
#define ROUNDS_MAX 20000 /* callbacks without time passing; more mean that weir spins */
#define WATCHES_MAX 64

struct weiri_watch {
    weiri_watch *next;
    int fd; /* -1: a period */
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
    weiri_watch *watches;
    post *posts;
    bool running;
};

static weiri_service *the_service;
static uint64_t now_ns = START_NS;
static bool (*the_peers)(void);

void sim_begin(bool (*peers)(void))
{
    FUZZ_CHECK(the_service == NULL);
    now_ns = START_NS;
    the_peers = peers;
}

/* ---- service ---------------------------------------------------------------------------------------- */

weir_status weiri_service_create(const char *name, weiri_service **out)
{
    (void)name;
    FUZZ_CHECK(the_service == NULL);
    the_service = (weiri_service *)weiri_alloc(1, sizeof *the_service);
    FUZZ_CHECK(the_service != NULL);
    *out = the_service;
    return WEIR_OK;
}

static weir_status add_watch(weiri_service *service, const weiri_watch *watch, weiri_watch **out)
{
    weiri_watch *copy = (weiri_watch *)weiri_alloc(1, sizeof *copy);
    if (copy == NULL) {
        return weiri_fail_nomem("service");
    }
    *copy = *watch;
    copy->next = service->watches;
    service->watches = copy;
    *out = copy;
    return WEIR_OK;
}

weir_status weiri_service_watch_fd(weiri_service *service, int fd, uint32_t events,
                                   void (*ready)(void *context, uint32_t events), void *context, weiri_watch **out)
{
    const weiri_watch watch = { .fd = fd, .events = events, .ready = ready, .context = context };
    FUZZ_CHECK(fd >= 0);
    return add_watch(service, &watch, out);
}

weir_status weiri_service_set_events(weiri_service *service, weiri_watch *watch, uint32_t events)
{
    (void)service;
    FUZZ_CHECK(!watch->dead && watch->fd >= 0);
    watch->events = events;
    return WEIR_OK;
}

void weiri_service_mute(weiri_service *service, weiri_watch *watch)
{
    (void)service;
    FUZZ_CHECK(!watch->dead && watch->fd >= 0);
    watch->fd = -1;
    watch->events = 0;
    watch->due_ns = UINT64_MAX;
}

weir_status weiri_service_watch_time(weiri_service *service, uint32_t period_ms, void (*run)(void *context),
                                     void *context, weiri_watch **out)
{
    const uint64_t period_ns = (uint64_t)period_ms * NS_PER_MS;
    const weiri_watch watch = {
        .fd = -1, .run = run, .context = context, .period_ns = period_ns, .due_ns = now_ns + period_ns
    };
    FUZZ_CHECK(period_ms > 0);
    return add_watch(service, &watch, out);
}

/* Frees removed watches that no callback holds. */
static void sweep(weiri_service *service)
{
    for (weiri_watch **link = &service->watches; *link != NULL;) {
        weiri_watch *watch = *link;
        if (watch->dead) {
            *link = watch->next;
            weiri_free(watch);
        } else {
            link = &watch->next;
        }
    }
}

void weiri_service_unwatch(weiri_service *service, weiri_watch *watch)
{
    if (watch != NULL) {
        FUZZ_CHECK(!watch->dead);
        watch->dead = true;
        if (!service->running) {
            sweep(service);
        }
    }
}

weir_status weiri_service_post(weiri_service *service, void (*run)(void *context), void *context)
{
    post *p = (post *)weiri_alloc(1, sizeof *p);
    if (p == NULL) {
        return weiri_fail_nomem("service");
    }
    p->run = run;
    p->context = context;
    post **end = &service->posts;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = p;
    return WEIR_OK;
}

bool weiri_service_is_self(const weiri_service *service) { return service->running; }

static bool run_post(weiri_service *service)
{
    post *p = service->posts;
    if (p == NULL) {
        return false;
    }
    service->posts = p->next;
    p->run(p->context);
    weiri_free(p);
    return true;
}

static bool run_period(weiri_service *service)
{
    for (weiri_watch *watch = service->watches; watch != NULL; watch = watch->next) {
        if (!watch->dead && watch->fd < 0 && watch->due_ns <= now_ns) {
            watch->due_ns = now_ns + watch->period_ns;
            watch->run(watch->context);
            return true;
        }
    }
    return false;
}

static bool run_ready(weiri_service *service)
{
    struct pollfd fds[WATCHES_MAX];
    weiri_watch *watches[WATCHES_MAX];
    nfds_t count = 0;
    for (weiri_watch *watch = service->watches; watch != NULL; watch = watch->next) {
        if (!watch->dead && watch->fd >= 0) {
            FUZZ_CHECK(count < WATCHES_MAX);
            /* The events of epoll and poll have the same values. */
            fds[count] = (struct pollfd){ .fd = watch->fd, .events = (short)watch->events };
            watches[count++] = watch;
        }
    }
    if (poll(fds, count, 0) <= 0) {
        return false;
    }
    for (nfds_t i = 0; i < count; i++) {
        FUZZ_CHECK((fds[i].revents & POLLNVAL) == 0); /* it was closed before it was unwatched */
        if (fds[i].revents != 0 && !watches[i]->dead) {
            watches[i]->ready(watches[i]->context, (uint32_t)fds[i].revents);
        }
    }
    return true;
}

static bool run_one(weiri_service *service)
{
    service->running = true;
    const bool ran = run_post(service) || run_period(service) || run_ready(service);
    service->running = false;
    sweep(service);
    return ran;
}

void sim_run(void)
{
    int rounds = 0;
    while (the_service != NULL && run_one(the_service)) {
        FUZZ_CHECK(++rounds < ROUNDS_MAX);
    }
}

static uint64_t next_due(uint64_t limit_ns)
{
    for (const weiri_watch *w = the_service == NULL ? NULL : the_service->watches; w != NULL; w = w->next) {
        if (w->fd < 0 && w->due_ns < limit_ns) {
            limit_ns = w->due_ns;
        }
    }
    return limit_ns > now_ns ? limit_ns : now_ns;
}

void sim_pass(uint64_t ns)
{
    const uint64_t limit = now_ns + ns;
    while (now_ns < limit) {
        now_ns = next_due(limit);
        sim_run();
    }
}

void weiri_service_destroy(weiri_service *service)
{
    if (service == NULL) {
        return;
    }
    service->running = true;
    while (run_post(service)) {
    }
    for (weiri_watch *watch = service->watches; watch != NULL; watch = watch->next) {
        watch->dead = true;
    }
    sweep(service);
    the_service = NULL;
    weiri_free(service);
}

void weiri_service_abandon(weiri_service *service) { weiri_service_destroy(service); }

/* ---- clock ------------------------------------------------------------------------------------------ */

uint64_t weiri_now_ns(void) { return now_ns; }

uint32_t weiri_left_ms(uint64_t deadline_ns)
{
    const uint64_t left = now_ns < deadline_ns ? (deadline_ns - now_ns - 1) / NS_PER_MS + 1 : 0;
    return left < UINT32_MAX ? (uint32_t)left : UINT32_MAX;
}

int weiri_cond_init(pthread_cond_t *cond) { return pthread_cond_init(cond, NULL); }

bool weiri_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t deadline_ns)
{
    (void)cond;
    /* The longest timeout that can be set is a day, with room. */
    FUZZ_CHECK(deadline_ns < START_NS + 10 * (uint64_t)86400000 * NS_PER_MS);
    FUZZ_CHECK(the_service == NULL || !the_service->running);
    if (now_ns >= deadline_ns) {
        return false;
    }
    FUZZ_CHECK(pthread_mutex_unlock(mutex) == 0);
    if (the_service == NULL || !run_one(the_service)) {
        if (!the_peers()) {
            now_ns = next_due(deadline_ns);
        }
    }
    FUZZ_CHECK(pthread_mutex_lock(mutex) == 0);
    return now_ns < deadline_ns;
}

int weiri_thread_create(pthread_t *thread, const char *name, void *(*run)(void *), void *context)
{
    (void)thread;
    (void)name;
    (void)run;
    (void)context;
    return EAGAIN;
}
