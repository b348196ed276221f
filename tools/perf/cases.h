/* cases.h - the kernels that weir-perf measures: one table of ways to move data, each beside the same thing
 * written by hand, and one of what kernels cost that move nothing.
 *
 * A way of doing an operation is called a shape. A new one is a kernel and a row in perf/cases.c, and if there is
 * none yet that does the same by hand, a kernel in perf/raw.h. */
#ifndef WEIR_PERF_CASES_H
#define WEIR_PERF_CASES_H

#include "weir/device/kernel.h"
#include "weir/weir.h"

WEIR_BEGIN_DECLS

/* What all measured kernels get. In the buffer at both ends of the channel a rank sends what lies at `mine`, and
 * receives at `theirs`, which is where the peer has it, too. */
typedef struct perf_args {
    weir_dev_memory_channel channel;
    weir_dev_grid_barrier barrier;
    weir_dev_semaphore by_hand; /* for kernels by hand alone, which count in their own way */
    uint64_t *flags;            /* the same: PERF_FLAGS words for each block, written by the peer */
    uint64_t *peer_flags;
    uint64_t mine;
    uint64_t theirs;
    uint64_t out_bytes; /* moved from this rank to the peer; 0 on one rank when data moves one way */
    uint64_t in_bytes;
    uint64_t slot;   /* packets without a handshake go to two buffers in turn, this far apart */
    uint32_t number; /* of the node in its graph, from 1; graphs have an even number of nodes, 4 or more */
    uint32_t rank;
    uint32_t rounds; /* of a ping-pong */
    uint32_t reserved;
} perf_args;

#define PERF_FLAGS 64u /* four words, 128 bytes apart */
#define PERF_BLOCKS_MAX 512u

typedef enum perf_op { PERF_PUT, PERF_GET, PERF_PACKETS, PERF_SEMAPHORE, PERF_FLOOR } perf_op;
extern const char *const perf_op_names[]; /* by perf_op */

enum {
    PERF_COOPERATIVE = 1, /* its blocks meet at a grid barrier */
    PERF_BOTH_WAYS = 2,   /* has no handshake: a rank that received nothing would run ahead */
    PERF_LINES = 4,       /* needs a link that keeps lines whole, and whole warps */
    PERF_SERIAL = 8       /* one thread of each rank plays */
};

typedef struct perf_case {
    perf_op op;
    const char *shape;
    const weir_kernel *weir;
    const weir_kernel *raw; /* NULL where it was not compiled for GPUs, or there is none */
    uint32_t flags;
    /* The grid on a GPU: a block for each block_bytes, at most `blocks`; 0: always `blocks`. A block has a thread for
     * each thread_bytes of its part, at most `threads`. */
    uint32_t blocks;
    uint32_t threads;
    uint32_t block_bytes;
    uint32_t thread_bytes;
    const char *help;
} perf_case;

extern const perf_case perf_cases[];
extern const uint32_t perf_case_count;

/* For filling and checking: bytes whose values depend on position and seed. */
typedef struct perf_data_args {
    char *sent;
    char *received;
    uint64_t sent_bytes;
    uint64_t received_bytes;
    uint64_t sent_seed;
    uint64_t received_seed;
    uint64_t *wrong; /* counts wrong bytes */
} perf_data_args;

/* Writes what is sent, and makes every byte wrong where data will be received. */
extern const weir_kernel *const perf_prepare;
extern const weir_kernel *const perf_compare;

/* How the kernels were compiled. */
bool perf_has_gpu_kernels(void);
bool perf_checked_waits(void);
const char *perf_kernel_compiler(void);

WEIR_END_DECLS

#endif
