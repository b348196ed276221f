/* cases.h - the kernels that weir-perf measures: a table of ways to move data, each with the same kernel written by
 * hand, and a table of kernels that move no data.
 *
 * A way to do an operation is called a shape. A new shape needs a kernel and a row in perf/cases.c, and a kernel by
 * hand in perf/raw.h if there is no matching one. */
#ifndef WEIR_PERF_CASES_H
#define WEIR_PERF_CASES_H

#include "weir/device/kernel.h"
#include "weir/weir.h"

WEIR_BEGIN_DECLS

/* Arguments of all measured kernels. In the buffers at both ends of the channel, a rank sends the data at `mine` and
 * receives the peer's data at `theirs`. The peer has its data at the same offset. */
typedef struct perf_args {
    weir_dev_memory_channel channel;
    uint64_t mine;
    uint64_t theirs;
    uint64_t out_bytes; /* moved from this rank to the peer; 0 on one rank if data moves one way */
    uint64_t in_bytes;
    uint64_t slot;   /* distance of the two buffers that packets without a handshake use in turn */
    uint32_t number; /* of the node in its graph, from 1; graphs have an even number of nodes, 4 or more */
    uint32_t rank;
    uint32_t rounds; /* of a ping-pong */
    uint32_t reserved;
    weir_dev_grid_barrier barrier;
    weir_dev_semaphore by_hand; /* only for kernels by hand, which count differently */
    uint64_t *flags;            /* also for kernels by hand: PERF_FLAGS words for each block, written by the peer */
    uint64_t *peer_flags;
} perf_args;

#define PERF_FLAGS 64u /* four words, 128 bytes apart */
#define PERF_BLOCKS_MAX 512u

typedef enum perf_op { PERF_PUT, PERF_GET, PERF_PACKETS, PERF_SEMAPHORE, PERF_FLOOR } perf_op;
extern const char *const perf_op_names[]; /* by perf_op */

enum {
    PERF_COOPERATIVE = 1, /* the blocks have a grid barrier */
    PERF_BOTH_WAYS = 2,   /* no handshake, so data must move both ways or one rank would run ahead */
    PERF_LINES = 4,       /* needs whole warps and a link that keeps lines whole */
    PERF_SERIAL = 8       /* one thread of each rank takes part */
};

typedef struct perf_case {
    perf_op op;
    const char *shape;
    const weir_kernel *weir;
    const weir_kernel *raw; /* NULL: none, or not compiled for GPUs */
    uint32_t flags;
    /* The grid on a GPU: one block for each block_bytes, at most `blocks` (block_bytes 0: always `blocks`). A block has
     * one thread for each thread_bytes of its part, at most `threads`. */
    uint32_t blocks;
    uint32_t threads;
    uint32_t block_bytes;
    uint32_t thread_bytes;
    const char *help;
} perf_case;

extern const perf_case perf_cases[];
extern const uint32_t perf_case_count;

/* Arguments of filling and checking: the value of a byte depends on position and seed. */
typedef struct perf_data_args {
    char *sent;
    char *received;
    uint64_t sent_bytes;
    uint64_t received_bytes;
    uint64_t sent_seed;
    uint64_t received_seed;
    uint64_t *wrong; /* counts wrong bytes */
} perf_data_args;

/* Writes the data to send, and wrong bytes where data will be received. */
extern const weir_kernel *const perf_prepare;
extern const weir_kernel *const perf_compare;

/* Whether the kernels were compiled for GPUs. */
bool perf_has_gpu_kernels(void);
bool perf_checked_waits(void);
const char *perf_kernel_compiler(void);

WEIR_END_DECLS

#endif
