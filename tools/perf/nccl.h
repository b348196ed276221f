/* nccl.h - NCCL, loaded at run time, to be measured beside weir. Never with NVLS. */
#ifndef WEIR_PERF_NCCL_H
#define WEIR_PERF_NCCL_H

#include "tools/perf/cuda.h"

WEIR_BEGIN_DECLS

typedef struct perf_nccl perf_nccl;

/* Buffers that NCCL knows on all ranks; send is NULL when there are none. */
typedef struct perf_nccl_windows {
    void *send;
    void *recv;
    void *windows[2];
} perf_nccl_windows;

/* Before any rank, while there is one thread: NCCL shall not take NVLS. */
bool perf_nccl_prepare(void);

/* All ranks call these together, with the context of the device current. library: NULL for libnccl.so.2. After an error
 * (one of another rank, or WEIR_ERR_TIMEOUT) a thread may be left in NCCL until the end of the process. */
weir_status perf_nccl_open(perf_rank *rank, const perf_cuda *cuda, const char *library, uint32_t timeout_ms,
                           perf_nccl **out);
weir_status perf_nccl_open_windows(perf_nccl *nccl, uint64_t bytes, perf_nccl_windows *out);
void perf_nccl_close_windows(perf_nccl *nccl, perf_nccl_windows *windows);
void perf_nccl_close(perf_nccl *nccl);

/* Puts the operation on the stream. */
weir_status perf_nccl_call(perf_nccl *nccl, const weir_collective_request *request, void *stream);

WEIR_END_DECLS

#endif
