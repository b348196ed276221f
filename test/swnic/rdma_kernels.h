/* rdma_kernels.h - kernels that post to a queue pair; for rdma_test.cc. */
#ifndef WEIRT_RDMA_KERNELS_H
#define WEIRT_RDMA_KERNELS_H

#include "weir/device/kernel.h"
#include "weir/device/rdma.h"

#if defined(__cplusplus)
extern "C" {
#endif

#define RDMA_THREADS 64

enum {
    RDMA_PUTS,    /* each thread: put `i` carries its own 8 bytes, from memory or inline in turn */
    RDMA_COUNTED, /* the same, by a thread with counts in registers for some rounds, which rings from time to time */
    RDMA_SPANS,   /* the same, eight at a time */
    RDMA_GROUPS,  /* the same, all threads of the block together */
    RDMA_SIGNALS, /* the first thread: a put of `bytes` and a signal, then a wait for the peer's answer */
    RDMA_ADDS,    /* each thread adds 1 to a word of the peer and sums the old values */
    RDMA_GETS     /* each thread gets the data of its puts */
};

typedef struct rdma_report {
    int32_t status[RDMA_THREADS]; /* the first status other than WEIR_OK; the thread ends with it */
    uint64_t done[RDMA_THREADS];  /* rounds before that */
    uint64_t sum[RDMA_THREADS];
} rdma_report;

typedef struct rdma_args {
    weir_dev_rdma queue;
    weir_dev_rdma_memory local; /* the same size as the peer's; from `scratch` on it is for the threads' scratch
                                 * words */
    weir_dev_rdma_memory remote;
    uint64_t *memory;        /* the local memory */
    const uint64_t *answers; /* number of signals that the host has seen */
    rdma_report *report;
    uint64_t scratch; /* offset; 8 bytes for each thread */
    uint64_t token;   /* offset of the target of signals and adds */
    uint64_t bytes;
    uint64_t rounds;
    uint32_t what; /* RDMA_... */
    uint32_t flags;
} rdma_args;

/* The value that thread `thread` puts into slot thread * rounds + i. */
WEIR_FN uint64_t rdma_value(uint64_t thread, uint64_t i)
{
    uint64_t v = (thread << 32 ^ (i + 1)) * 0x9e3779b97f4a7c15u;
    return v ^ v >> 29;
}

const weir_kernel *rdma_kernel(void);

#if defined(__cplusplus)
}
#endif

#endif
