/* window_kernels.h - kernels for tests of windows: an exchange between all ranks, and any sequence of calls. */
#ifndef WEIRT_WINDOW_KERNELS_H
#define WEIRT_WINDOW_KERNELS_H

#include "test/harness/rank_kernels.h"
#include "weir/device/kernel.h"
#include "weir/device/window.h"

#if defined(__cplusplus)
extern "C" {
#endif

#define WEIRT_WINDOW_RANKS 64 /* most ranks of a window that exchanges, and of a device */
#define WEIRT_WINDOW_STEPS 64 /* most calls of a rank's script */

/* How the data of an exchange goes, and how a rank learns of it. */
enum {
    WEIRT_WINDOW_PUT_NOTIFY, /* put_notify; a wait by source and tag for each source */
    WEIRT_WINDOW_PUT,        /* put and notify; one wait for all sources */
    WEIRT_WINDOW_TAKE,       /* put_notify; a take for each source */
    WEIRT_WINDOW_POLL,       /* put_notify; polls by source and tag */
    WEIRT_WINDOW_GET,        /* notify; a get behind the wait; notify when it is done */
    WEIRT_WINDOW_BARRIER,    /* put; the barrier */
    WEIRT_WINDOW_FORMS
};

typedef struct weirt_window_report {
    uint64_t rounds[WEIRT_WINDOW_RANKS]; /* that each rank of the device has made, by all launches */
    int32_t status[WEIRT_WINDOW_RANKS];
    uint64_t wrong; /* bytes, or sources of takes */
    uint64_t wrong_round;
    uint64_t wrong_source;
    uint64_t wrong_target;
} weirt_window_report;

/* All ranks of all devices send `bytes` to each other, `rounds` times. The block's number and those that follow in
 * steps of the grid's size are its ranks. A part of memory 0 has a slot for each rank of the window; one of memory 1
 * has two, which rounds use in turn. */
typedef struct weirt_window_exchange_args {
    weir_dev_window window;
    weirt_window_report *report;
    uint64_t slot;
    uint64_t bytes;
    uint32_t rounds;
    uint32_t form;
} weirt_window_exchange_args;

enum {
    WEIRT_CALL_PUT,
    WEIRT_CALL_GET,
    WEIRT_CALL_NOTIFY,
    WEIRT_CALL_PUT_NOTIFY,
    WEIRT_CALL_WAIT,
    WEIRT_CALL_POLL,       /* once */
    WEIRT_CALL_POLL_UNTIL, /* until it is not pending */
    WEIRT_CALL_TAKE,
    WEIRT_CALL_FLUSH,
    WEIRT_CALL_BARRIER,
    WEIRT_CALL_INDEX /* the result has the multiprocessor in `source` and the index in `tag` */
};

/* The group that makes a call. */
enum {
    WEIRT_GROUP_BLOCK,
    WEIRT_GROUP_THREAD, /* the block's first thread */
    WEIRT_GROUP_WARP,   /* the block's first warp */
    WEIRT_GROUP_GRID,   /* all blocks: each has the same call at the same place of its script */
    WEIRT_GROUP_THREADS /* each thread of the block by itself; the result is that of the first one */
};

/* A call of a script. It is repeated `times` times (0: once) while it succeeds; each time a tag that is not
 * WEIR_ANY_TAG, and `first`, are one more. */
typedef struct weirt_window_step {
    uint32_t call;   /* WEIRT_CALL_... */
    uint32_t window; /* 0 or 1 */
    uint32_t peer;   /* target or source */
    uint32_t tag;
    uint32_t remote_memory;
    uint32_t local_memory;
    uint64_t remote_offset;
    uint64_t local_offset;
    uint64_t bytes;
    uint64_t count;
    uint32_t times;
    uint32_t first; /* the tag that the first take must get; WEIR_ANY_TAG: takes may get any */
    uint32_t group; /* WEIRT_GROUP_... */
    uint32_t as;    /* 0: the script's rank calls; otherwise rank `as` - 1 of the device */
} weirt_window_step;

typedef struct weirt_window_result {
    uint32_t done;     /* repetitions that succeeded */
    int32_t status[2]; /* of the last one, at the first and the last thread of the group; a grid's last thread stores it
                          in the result of its own block, and WEIR_ERR_CORRUPT there for a take with another tag */
    uint32_t source;   /* what the last take got */
    uint32_t tag;
    uint32_t wrong; /* takes with another tag than expected */
} weirt_window_result;

/* Rank i of the device makes the calls of script i; its results have the same places. */
typedef struct weirt_window_script_args {
    weir_dev_window windows[2];
    weir_dev_grid_barrier grid;
    const weirt_window_step *steps; /* [ranks][WEIRT_WINDOW_STEPS] */
    weirt_window_result *results;
    uint32_t counts[WEIRT_WINDOW_RANKS]; /* of calls */
    uint32_t ranks;
    uint32_t reserved;
} weirt_window_script_args;

const weir_kernel *weirt_window_exchange_kernel(void);
const weir_kernel *weirt_window_script_kernel(void);

#if defined(__cplusplus)
}
#endif

#endif
