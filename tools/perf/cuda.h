/* cuda.h - functions of the CUDA driver that the comparison with NCCL needs and weir does not offer. */
#ifndef WEIR_PERF_CUDA_H
#define WEIR_PERF_CUDA_H

#include "tools/perf/common.h"

WEIR_BEGIN_DECLS

typedef struct perf_cuda perf_cuda;

/* The kernels that a call puts on a stream. */
typedef struct perf_launched {
    uint32_t blocks; /* of the kernel with the most; 0: unknown */
    char kernel[160];
} perf_launched;

/* A function to look up: `function` points to the pointer that receives it, which stays NULL if an optional function is
 * missing. */
typedef struct perf_cuda_function {
    const char *name;
    void *function;
    bool needed;
} perf_cuda_function;

/* Makes the context of rank->stream (of a GPU) current for this thread. */
weir_status perf_cuda_open(perf_rank *rank, perf_cuda **out);
void perf_cuda_close(perf_cuda *cuda);
weir_status perf_cuda_find(const perf_cuda *cuda, const perf_cuda_function *functions, uint32_t count);
/* Makes that context current for the calling thread. */
bool perf_cuda_attach(const perf_cuda *cuda);

/* Allocates memory as cudaMalloc does. */
weir_status perf_cuda_allocate(perf_cuda *cuda, uint64_t bytes, void **out);
void perf_cuda_free(perf_cuda *cuda, void *pointer);

/* Records one call, reads its kernels and discards the recording. All ranks call it together. */
weir_status perf_cuda_look(perf_cuda *cuda, const perf_calls *calls, perf_launched *out);

WEIR_END_DECLS

#endif
