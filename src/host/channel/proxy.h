/* proxy.h - a proxy's threads, called workers, and its channels.
 *
 * A worker's mutex guards all that is below it. Its thread holds the mutex as long as it has work, and looks each round
 * whether somebody else wants it: what takes no lock in the common case is then as simple as what does. */
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
    WEIRI_ENTRY_DONE = 2     /* needs nothing more than that those before it are done */
} weiri_entry_state;

/* A request that was taken from its fifo and is not completed. */
typedef struct weiri_entry {
    weir_request request;
    uint64_t ticket;
    uint32_t lane;
    uint32_t state; /* weiri_entry_state */
} weiri_entry;

typedef struct weiri_channel_lane {
    weir_dev_proxy_channel device; /* what pushers use */
    weir_dev_progress *progress;   /* for the CPU */
    uint64_t done;                 /* as published last */
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
    /* Entries [first, offered) were handed over, [offered, last) are parked; those before `waiting` are not pending.
     * Positions of a ring of `mask` + 1, which has room for all credits. */
    weiri_entry *ring;
    uint64_t mask;
    uint64_t first;
    uint64_t waiting;
    uint64_t offered;
    uint64_t last;
    bool keeps_credit;              /* once it has failed, so that its pushers see that not all came back */
    void (*on_fail)(void *context); /* of a port channel: it has failed; called once, with the mutex held */
    bool listed;                    /* in the worker's list of channels with parked requests */
    weir_proxy_channel *next_parked;
    weir_status failed; /* atomic: other threads read it, and then the text, without the mutex */
    char text[256];
};

/* A row of a worker's table: ids of a channel that was destroyed are not those of the next one in its row. */
typedef struct weiri_channel_row {
    weir_proxy_channel *channel;
    uint32_t generation;
} weiri_channel_row;

/* A progress callback and the channels that share it. */
typedef struct weiri_progress_row {
    weir_status (*run)(void *context);
    void *context;
    uint32_t channels;
    bool failed; /* it has returned an error, and is not called any more */
} weiri_progress_row;

struct weiri_worker {
    weir_proxy *proxy;
    uint32_t index;
    pthread_t thread;
    bool running;
    pthread_mutex_t mutex;
    uint32_t wanted; /* threads that want the mutex; atomic, not guarded */
    bool quit;
    weir_fifo *fifos[WEIRI_LANES];
    weiri_channel_row *rows;
    uint32_t row_count;
    uint32_t channel_count;
    weiri_progress_row *progress;
    uint32_t progress_count;
    weir_proxy_channel *parked;
    uint64_t queued;    /* entries of all channels */
    weir_status failed; /* of the communicator, or WEIR_ERR_ABORTED once stopped */
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

/* Takes and gives back the mutex of a worker, from another thread than the worker's. */
void weiri_worker_enter(weiri_worker *worker);
void weiri_worker_leave(weiri_worker *worker);
/* Whether the calling thread is running a callback of the proxy. */
bool weiri_worker_is_inside(const weir_proxy *proxy);

weir_status weiri_worker_start(weiri_worker *worker);
/* Ends the thread, if there is one. */
void weiri_worker_join(weiri_worker *worker);

/* The rest with the mutex held. */

/* Fails a channel and what it has; later errors do not count. */
void weiri_channel_fail(weir_proxy_channel *channel, weir_status status, const char *text);
void weiri_channel_complete(weir_proxy_channel *channel, uint32_t count);
/* Tells pushers whether the channel's proxy has been started. */
void weiri_channel_set_unstarted(weir_proxy_channel *channel, bool unstarted);
/* Takes the channel out of the list of those with parked requests. */
void weiri_channel_unlist(weir_proxy_channel *channel);
/* Fails all channels, and what is in the fifos. */
void weiri_worker_fail(weiri_worker *worker, weir_status status, const char *text);
/* Whether nothing is queued. */
bool weiri_worker_is_quiet(const weiri_worker *worker);

#endif
