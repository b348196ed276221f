/* rank_kernels.h - kernels that tests of several ranks share, and their arguments. */
#ifndef WEIRT_RANK_KERNELS_H
#define WEIRT_RANK_KERNELS_H

#include "test/harness/pattern.h"
#include "weir/device/kernel.h"

#if defined(__cplusplus)
extern "C" {
#endif

#define WEIRT_STATUS_ROWS 8
#define WEIRT_STATUS_THREADS 1024

/* A kernel's report, in memory that host and device share. */
typedef struct weirt_report {
    uint64_t iterations; /* made so far, by all launches */
    uint64_t wrong;      /* bytes with a wrong value */
    uint64_t wrong_iteration;
    uint64_t wrong_bytes;
    uint64_t wrong_position;
    uint64_t value;
    uint64_t apart; /* steps that lanes made by themselves */
    uint64_t elapsed_ns[WEIRT_STATUS_ROWS];
    uint64_t began_ns[WEIRT_STATUS_THREADS]; /* when each thread began its first wait; 0 before */
    int32_t status[WEIRT_STATUS_ROWS][WEIRT_STATUS_THREADS];
} weirt_report;

/* Lines come last: a packet buffer that held lines cannot serve packets afterwards. */
enum { WEIRT_PUT, WEIRT_GET, WEIRT_LL16, WEIRT_EXCHANGE_LL16, WEIRT_LINES, WEIRT_EXCHANGE_LINES, WEIRT_OPS };
enum { WEIRT_GRID, WEIRT_BLOCK, WEIRT_WARP, WEIRT_BLOCKS, WEIRT_THREAD, WEIRT_PART, WEIRT_GROUPS };

#define WEIRT_SET 8 /* semaphores of a pair, equal to the most blocks of weirt_shape */

/* Bytes before and after the data of an iteration that must not change. */
#define WEIRT_GUARD 16
/* Room that `half` needs beyond the largest size: the start, the misalignment and two guards. */
#define WEIRT_SLACK 256

/* Both ranks exchange `first`, `first + step`, ... up to `last` bytes, `rounds` times each. */
typedef struct weirt_transfer_args {
    weir_dev_memory_channel data;   /* local to remote memory; the first half of each is sent, the second received */
    weir_dev_memory_channel packet; /* local memory to the peer's packet buffer */
    weir_dev_grid_barrier barrier;
    weirt_report *report;
    char *local;
    uint64_t half;
    uint64_t first;
    uint64_t last;
    uint64_t step;
    uint32_t rounds;
    uint32_t op;
    uint32_t group;
    uint32_t misaligned; /* 1: offsets of both ends vary from round to round */
    uint32_t rank;
    uint32_t peer;
} weirt_transfer_args;

enum { WEIRT_WAIT, WEIRT_WAIT_RELAXED, WEIRT_POLL, WEIRT_WAIT_COOP, WEIRT_WAIT_RELAXED_COOP };

/* Waits `waits` times (at most WEIRT_STATUS_ROWS - 1), then meets the grid. Each wait has a row of statuses. */
typedef struct weirt_wait_args {
    weir_dev_semaphore semaphore;
    weir_dev_grid_barrier barrier;
    weirt_report *report;
    uint32_t form;
    uint32_t waits;
} weirt_wait_args;

typedef struct weirt_signal_args {
    weir_dev_semaphore semaphore;
    uint32_t signals;
    uint32_t relaxed;
} weirt_signal_args;

/* Repeats `rounds` times: waits, adds one to the value that the peer wrote beside the signal, writes it there, and
 * signals. The rank that starts skips its first wait. */
typedef struct weirt_pingpong_args {
    weir_dev_memory_channel channel;
    uint64_t *inbox; /* start of the local memory */
    weirt_report *report;
    uint32_t first;
    uint32_t rounds;
    uint32_t counted; /* between begin and end */
    uint32_t relaxed; /* both ways by relaxed forms, without values */
} weirt_pingpong_args;

/* Each block exchanges `bytes` with the same block of the peer, `rounds` times, over its own channel of the set and in
 * its own part of the memories: a block never waits for another block of its grid. */
typedef struct weirt_set_args {
    weir_dev_memory_channel data;
    weir_dev_memory_channel packet;
    weirt_report *report;
    char *local;
    uint64_t half;
    uint64_t bytes;
    uint32_t rounds;
    uint32_t op; /* WEIRT_PUT, or an exchange */
    uint32_t counted;
    uint32_t rank;
    uint32_t peer;
} weirt_set_args;

enum {
    WEIRT_DO_PUT,
    WEIRT_DO_GET,
    WEIRT_DO_PUT_LL16,
    WEIRT_DO_UNPACK_LL16,
    WEIRT_DO_EXCHANGE_LL16, /* sends from local_offset, receives at `value` */
    WEIRT_DO_PUT_LINES,
    WEIRT_DO_UNPACK_LINES,
    WEIRT_DO_EXCHANGE_LINES,
    WEIRT_DO_AT,         /* semaphore remote_offset of the set */
    WEIRT_DO_AT_BY_GRID, /* packets over it by a group of several blocks */
    WEIRT_DO_LINES_BY_PART,
    WEIRT_DO_READ_U32,
    WEIRT_DO_READ_U64,
    WEIRT_DO_WRITE_U32,
    WEIRT_DO_WRITE_U64
};

/* One call by one thread, or by one warp for lines. Row 0 of the report gets the status, `value` the data read. */
typedef struct weirt_access_args {
    weir_dev_memory_channel channel;
    weirt_report *report;
    uint64_t remote_offset; /* also the packet offset, and the index */
    uint64_t local_offset;
    uint64_t bytes;
    uint64_t value;
    uint32_t op;
} weirt_access_args;

const weir_kernel *weirt_transfer_kernel(void);
const weir_kernel *weirt_wait_kernel(void);
const weir_kernel *weirt_signal_kernel(void);
const weir_kernel *weirt_pingpong_kernel(void);
const weir_kernel *weirt_access_kernel(void);
const weir_kernel *weirt_set_kernel(void);

#if defined(__cplusplus)
}
#endif

#endif
