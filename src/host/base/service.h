/* service.h - a thread that runs callbacks: when a descriptor is ready, when a period has passed, once.
 *
 * Everything that weir does in the background runs on such a thread, one per bootstrap: socket work, delivery
 * of messages, serving of file descriptors. Callbacks run one at a time and never block.
 *
 * Threads:   all functions may be called by any thread, callbacks included, except destroy (not a callback).
 * Blocking:  unwatch, until a running callback of that watch has returned (at once when called by a callback);
 *            destroy, until the thread has ended.
 * Ownership: a watch belongs to the service; its descriptor stays the caller's, to be closed after unwatch.
 * Errors:    WEIR_ERR_SYSTEM, WEIR_ERR_NOMEM, WEIR_ERR_INVALID. */
#ifndef WEIRI_SERVICE_H
#define WEIRI_SERVICE_H

#include "weir/base.h"

typedef struct weiri_service weiri_service;
typedef struct weiri_watch weiri_watch;

weir_status weiri_service_create(const char *name, weiri_service **out);
void weiri_service_destroy(weiri_service *service);
/* For the child of a fork, which has no such thread: frees the service, or leaks it when a thread of the parent held
 * its mutex. */
void weiri_service_abandon(weiri_service *service);

/* `events` as of epoll (EPOLLIN, EPOLLOUT), level-triggered. */
weir_status weiri_service_watch_fd(weiri_service *service, int fd, uint32_t events,
                                   void (*ready)(void *context, uint32_t events), void *context, weiri_watch **out);
/* Changes the events of a descriptor's watch. */
weir_status weiri_service_set_events(weiri_service *service, weiri_watch *watch, uint32_t events);
/* Stops watching the descriptor, for one that stays ready. The watch stays until unwatch. */
void weiri_service_mute(weiri_service *service, weiri_watch *watch);
/* The first run is one period from now; `period_ms` is 1 or more. Runs that are missed are skipped. */
weir_status weiri_service_watch_time(weiri_service *service, uint32_t period_ms, void (*run)(void *context),
                                     void *context, weiri_watch **out);
/* NULL is ignored. */
void weiri_service_unwatch(weiri_service *service, weiri_watch *watch);

/* Runs `run` once on the service thread. Everything posted before destroy, and by these posts in turn, runs before the
 * thread ends. */
weir_status weiri_service_post(weiri_service *service, void (*run)(void *context), void *context);

bool weiri_service_is_self(const weiri_service *service);

#endif
