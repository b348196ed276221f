/* weir/proxy.h - host threads that carry out what kernels ask for.
 *
 *     static weir_status handle(void *context, const weir_request *request) { ... return WEIR_OK; }
 *
 *     weir_proxy_create(comm, NULL, &proxy);
 *     weir_proxy_channel_create(proxy, &handler, NULL, &channel);
 *     weir_proxy_channel_device(channel, &args.channel);           a plain struct for kernels
 *     weir_proxy_start(proxy);
 *     ...                                                          weir_dev_proxy_channel_push in kernels
 *     weir_proxy_drain(proxy, 0);
 *     weir_proxy_stop(proxy);
 *     weir_proxy_channel_destroy(channel); weir_proxy_destroy(proxy);
 *
 * Each channel belongs to one thread of the proxy. It has credits, separately for kernels and for the host: a request
 * holds one from its push until it is completed, and a push waits for one. So a slow channel does not hold up others.
 *
 * The thread calls a channel's handler, one call at a time, with the requests of kernels in the order of their tickets,
 * and with those of the host likewise. A handler must not block. It returns
 *
 *     WEIR_OK         the request is completed once all requests before it are
 *     WEIR_PENDING    the request is under way; weir_proxy_channel_complete, in a callback of the same thread, ends it
 *     WEIR_ERR_BUSY   not now: the handler gets it again in the next round, before later requests of the channel
 *     another error   the channel fails
 *
 * A progress callback is called once a round, even when there are no requests; handlers with the same function and
 * context share the call. It returns WEIR_OK if it got something done, WEIR_PENDING if not, and an error to fail all
 * channels that share it. weir_port_channel_try_put (weir/port_channel.h) shows how a handler pushes to other channels.
 * On a GPU, the context of the communicator's device is current when the thread starts.
 *
 * Create, start, stop and destroy are called once each, in this order. Before start, requests stay queued, and a wait,
 * or a push that finds no credit, returns WEIR_ERR_INVALID.
 *
 * Threads:   any, at the same time, except destroy; weir_proxy_channel_complete and _fail only in callbacks. Of their
 *            proxy, callbacks may also call weir_proxy_channel_try_push, weir_proxy_channel_test, and their
 *            counterparts of port channels. Other calls return WEIR_ERR_INVALID. A callback must not call any function
 *            of weir that blocks.
 * Blocking:  push, wait and drain, with a timeout in milliseconds; 0 stands for the communicator's. Create and destroy
 *            of a channel, stop, and get_usage block until the thread's current round has ended.
 * Ownership: a proxy keeps a reference on comm, a channel on its proxy. Contexts must live until the channel is
 *            destroyed; no callback for it runs after that. Kernels must not use handles after destroy.
 * Errors:    WEIR_ERR_INVALID, WEIR_ERR_LIMIT, WEIR_ERR_NOMEM, WEIR_ERR_DEVICE, WEIR_ERR_SYSTEM, WEIR_ERR_TIMEOUT,
 *            WEIR_ERR_FORKED, and the communicator's error, which fails all channels. A request to a channel that does
 *            not exist fails the communicator. One of an unknown type fails its channel with WEIR_ERR_CORRUPT. A failed
 *            channel completes nothing more, and others go on: waits and tests of its tickets return its error, and
 *            pushes still return WEIR_OK. */
#ifndef WEIR_PROXY_H
#define WEIR_PROXY_H

#include "weir/comm.h"
#include "weir/device/types.h"

WEIR_BEGIN_DECLS

typedef struct weir_proxy weir_proxy;
typedef struct weir_proxy_channel weir_proxy_channel;

#define WEIR_PROXY_THREADS_MAX 64u
#define WEIR_PROXY_CREDITS_MAX 65536u
#define WEIR_PROXY_CREDITS_DEFAULT 64u

typedef struct weir_proxy_opts {
    size_t size;
    uint32_t threads; /* default 1, at most WEIR_PROXY_THREADS_MAX */
    uint32_t slots;   /* of each fifo, as weir_fifo_opts.slots */
    uint32_t spin_us; /* how long an idle thread spins before it yields; default: 10,000 for a GPU; on the CPU device it
                         yields almost at once */
} weir_proxy_opts;

typedef struct weir_proxy_handler {
    weir_status (*request)(void *context, const weir_request *request);
    void *context;
    weir_status (*progress)(void *progress_context); /* or NULL */
    void *progress_context;
} weir_proxy_handler;

typedef struct weir_proxy_channel_opts {
    size_t size;
    uint32_t credits; /* of kernels, and separately of the host; at most WEIR_PROXY_CREDITS_MAX */
    uint32_t thread;  /* 1 to opts.threads: that thread; default: the one with the fewest channels */
} weir_proxy_channel_opts;

/* Counters of a proxy since its creation. */
typedef struct weir_proxy_usage {
    uint64_t requests;  /* taken from the fifos */
    uint64_t completed; /* among them */
    uint64_t failed;    /* among them */
    uint64_t busy;      /* times that a handler returned WEIR_ERR_BUSY */
    uint64_t rounds;    /* of all threads */
} weir_proxy_usage;

WEIR_API WEIR_NODISCARD weir_status weir_proxy_create(weir_comm *comm, const weir_proxy_opts *opts, weir_proxy **out);
/* Releases the caller's reference. Stops the proxy if it still runs; its threads end with its last channel. */
WEIR_API void weir_proxy_destroy(weir_proxy *proxy);

WEIR_API WEIR_NODISCARD weir_status weir_proxy_start(weir_proxy *proxy);
/* Fails all channels with WEIR_ERR_ABORTED. When it returns, all requests that were in the queues have failed, and no
 * callback runs any more. A proxy that was never started, or was stopped before, may be stopped too. */
WEIR_API WEIR_NODISCARD weir_status weir_proxy_stop(weir_proxy *proxy);
/* Waits until everything that was pushed before the call is completed or has failed. Requests may be pushed meanwhile,
 * but if the queue never becomes empty, the call times out. */
WEIR_API WEIR_NODISCARD weir_status weir_proxy_drain(weir_proxy *proxy, uint32_t timeout_ms);
WEIR_API void weir_proxy_get_usage(weir_proxy *proxy, weir_proxy_usage *usage);

/* *handler is copied. Channels may be created and destroyed while the proxy runs. */
WEIR_API WEIR_NODISCARD weir_status weir_proxy_channel_create(weir_proxy *proxy, const weir_proxy_handler *handler,
                                                              const weir_proxy_channel_opts *opts,
                                                              weir_proxy_channel **out);
/* Drops queued requests. After it, no thread may push to the channel or wait for its tickets. */
WEIR_API void weir_proxy_channel_destroy(weir_proxy_channel *channel);

/* The handle for kernels. */
WEIR_API WEIR_NODISCARD weir_status weir_proxy_channel_device(const weir_proxy_channel *channel,
                                                              weir_dev_proxy_channel *out);

/* What kernels call, for host threads. Kernels and the host have separate tickets. A push that times out pushes
 * nothing, and the communicator goes on. `ticket` may be NULL. */
WEIR_API WEIR_NODISCARD weir_status weir_proxy_channel_push(weir_proxy_channel *channel, const weir_request *request,
                                                            uint32_t timeout_ms, uint64_t *ticket);
/* WEIR_PENDING, and nothing is pushed, when no credit or no slot is free. Never blocks; callbacks may call it. */
WEIR_API WEIR_NODISCARD weir_status weir_proxy_channel_try_push(weir_proxy_channel *channel,
                                                                const weir_request *request, uint64_t *ticket);
WEIR_API WEIR_NODISCARD weir_status weir_proxy_channel_test(weir_proxy_channel *channel, uint64_t ticket);
WEIR_API WEIR_NODISCARD weir_status weir_proxy_channel_wait(weir_proxy_channel *channel, uint64_t ticket,
                                                            uint32_t timeout_ms);

/* In callbacks: the `count` oldest requests of the channel that are under way (WEIR_PENDING) are completed. */
WEIR_API void weir_proxy_channel_complete(weir_proxy_channel *channel, uint32_t count);
/* In callbacks: fails the channel; `text` says why, for weir_last_error. */
WEIR_API void weir_proxy_channel_fail(weir_proxy_channel *channel, weir_status status, const char *text);

/* WEIR_OK, or the channel's error, which weir_last_error explains. */
WEIR_API WEIR_NODISCARD weir_status weir_proxy_channel_status(weir_proxy_channel *channel);
/* The id that requests carry. */
WEIR_API uint32_t weir_proxy_channel_id(const weir_proxy_channel *channel);

WEIR_END_DECLS

#endif
