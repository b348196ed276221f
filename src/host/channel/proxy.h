/* proxy.h - a proxy's threads, called workers, and its channels.
 *
 * A worker's mutex guards all that is below it. The worker's thread holds the mutex while it works, and checks each
 * round whether another thread wants it. So its hot path takes no lock. */
#ifndef WEIRI_CHANNEL_PROXY_H
#define WEIRI_CHANNEL_PROXY_H

#include "src/host/channel/fifo.h"
#include "weir/device/proxy.h"
#include "weir/proxy.h"

/* Where requests come from: lanes[WEIR_FIFO_DEVICE], lanes[WEIR_FIFO_HOST]. */
#define WEIRI_LANES 2u

typedef enum weiri_entry_state {
    WEIRI_ENTRY_PARKED = 0,  /* not taken by the handler yet */
    WEIRI_ENTRY_PENDING = 1, /* under way */
    WEIRI_ENTRY_DONE = 2     /* complete, but a request before it is not */
} weiri_entry_state;

/* A request that was taken from its fifo and is not completed. */
typedef struct weiri_entry {
    weir_request request;
    uint64_t ticket;
    uint32_t lane;
    uint32_t state; /* weiri_entry_state */
} weiri_entry;

typedef struct weiri_channel_lane {
    weir_dev_proxy_channel device; /* handle for pushers */
    weir_dev_progress *progress;   /* mapped for the CPU */
    uint64_t done;                 /* last published count */
    uint64_t returned;
} weiri_channel_lane;

typedef struct weiri_worker weiri_worker;

struct weir_proxy_channel {
    weir_proxy *proxy;
    weiri_worker *worker;
    weir_proxy_handler handler;
    uint32_t id; /* generation and index in the worker's table */
    uint32_t limit;
    uint64_t device_cell; /* credits of kernels */
    uint64_t host_cell;   /* progress of both lanes, credits of the host */
    weiri_channel_lane lanes[WEIRI_LANES];
    /* Entries [first, offered) were passed to the handler, [offered, last) are parked; no entry before `waiting` is
     * pending. Positions are those of a ring of `mask` + 1, which has room for all credits. */
    weiri_entry *ring;
    uint64_t mask;
    uint64_t first;
    uint64_t waiting;
    uint64_t offered;
    uint64_t last;
    bool keeps_credit; /* a failed channel keeps a credit, so that pushers see that not all have come back */
    void (*on_fail)(void *context); /* of a port channel; called once when the channel fails, with the mutex held */
    bool listed;                    /* in the worker's list of channels with parked requests */
    weir_proxy_channel *next_parked;
    weir_status failed; /* atomic: other threads read it, and then the text, without the mutex */
    char text[256];
};

/* A row of a worker's table. The generation distinguishes the channels that use the row one after the other. */
typedef struct weiri_channel_row {
    weir_proxy_channel *channel;
    uint32_t generation;
} weiri_channel_row;

/* A progress callback and the channels that share it. */
typedef struct weiri_progress_row {
    weir_status (*run)(void *context);
    void *context;
    uint32_t channels;
    bool failed; /* it has returned an error, and is not called again */
} weiri_progress_row;

struct weiri_worker {
    weir_proxy *proxy;
    uint32_t index;
    pthread_t thread;
    bool running;
    pthread_mutex_t mutex;
    uint32_t wanted; /* threads that want the mutex; atomic, not guarded by it */
    bool quit;
    weir_fifo *fifos[WEIRI_LANES];
    weiri_channel_row *rows;
    uint32_t row_count;
    uint32_t channel_count;
    weiri_progress_row *progress;
    uint32_t progress_count;
    weir_proxy_channel *parked;
    uint64_t queued;    /* entries of all channels */
    weir_status failed; /* the communicator's error, or WEIR_ERR_ABORTED after stop */
    char text[256];
    weir_proxy_usage usage;
};

struct weir_proxy {
    weiri_refcount refs;
    weir_comm *comm;
    uint64_t spin_ns;
    uint32_t worker_count;
    uint32_t started; /* atomic */
    weiri_worker workers[];
};

#define WEIRI_CHANNEL_INDEX_BITS 20u

/* The public calls of the same names; error texts begin with `call`. `channel` may be NULL. */
weir_status weiri_channel_status(weir_proxy_channel *channel, const char *call);
weir_status weiri_channel_try_push(weir_proxy_channel *channel, const char *call, const weir_request *request,
                                   uint64_t *ticket);
weir_status weiri_channel_push(weir_proxy_channel *channel, const char *call, const weir_request *request,
                               uint32_t timeout_ms, uint64_t *ticket);
weir_status weiri_channel_test(weir_proxy_channel *channel, const char *call, uint64_t ticket);
weir_status weiri_channel_wait(weir_proxy_channel *channel, const char *call, uint64_t ticket, uint32_t timeout_ms);

/* A thread other than the worker's takes the mutex, and releases it. */
void weiri_worker_enter(weiri_worker *worker);
void weiri_worker_leave(weiri_worker *worker);
/* True if the calling thread runs a callback of the proxy. */
bool weiri_worker_is_inside(const weir_proxy *proxy);

weir_status weiri_worker_start(weiri_worker *worker);
/* Ends the thread, if it was started. */
void weiri_worker_join(weiri_worker *worker);

/* The functions below need the mutex. */

/* Fails a channel and its requests. The first error counts. */
void weiri_channel_fail(weir_proxy_channel *channel, weir_status status, const char *text);
void weiri_channel_complete(weir_proxy_channel *channel, uint32_t count);
/* Reports to pushers whether the channel's proxy has been started. */
void weiri_channel_set_unstarted(weir_proxy_channel *channel, bool unstarted);
/* Removes the channel from the list of channels with parked requests. */
void weiri_channel_unlist(weir_proxy_channel *channel);
/* Fails all channels, and the requests in the fifos. */
void weiri_worker_fail(weiri_worker *worker, weir_status status, const char *text);
/* True if nothing is queued. */
bool weiri_worker_is_quiet(const weiri_worker *worker);

#endif
