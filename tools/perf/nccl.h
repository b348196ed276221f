/* nccl.h - NCCL, loaded at run time and measured beside weir, always without NVLS. */
#ifndef WEIR_PERF_NCCL_H
#define WEIR_PERF_NCCL_H

#include "tools/perf/cuda.h"

WEIR_BEGIN_DECLS

typedef struct perf_nccl perf_nccl;

/* Buffers registered with NCCL on all ranks; send is NULL if there are none. */
typedef struct perf_nccl_windows {
    void *send;
    void *recv;
    void *windows[2];
} perf_nccl_windows;

/* Settings of a communicator of NCCL. */
typedef struct perf_nccl_settings {
    uint32_t ctas; /* most blocks of a kernel; 0: NCCL's default */
    bool zero;     /* CTA policy zero: copy engines where NCCL has them */
} perf_nccl_settings;

/* Turns NVLS off. `pinned` also pins allreduce to a tree on one channel, for the same bits at every size. Call it
 * before any rank starts, while the process has one thread. */
bool perf_nccl_prepare(bool pinned);

/* All ranks call these together, with the device's context current. `library` NULL means libnccl.so.2. After an error
 * of another rank, or WEIR_ERR_TIMEOUT, a thread may stay in NCCL until the process ends. */
weir_status perf_nccl_open(perf_rank *rank, const perf_cuda *cuda, const char *library,
                           const perf_nccl_settings *settings, uint32_t timeout_ms, perf_nccl **out);
weir_status perf_nccl_open_windows(perf_nccl *nccl, uint64_t bytes, perf_nccl_windows *out);
void perf_nccl_close_windows(perf_nccl *nccl, perf_nccl_windows *windows);
void perf_nccl_close(perf_nccl *nccl);

/* Creates NCCL's operation in the place of WEIR_SCALED_SUM: each rank's data is multiplied by PERF_FACTOR before the
 * sum. It lasts until close. */
weir_status perf_nccl_create_scaled_sum(perf_nccl *nccl, weir_dtype dtype);

/* Begins or ends a group of operations. */
weir_status perf_nccl_group(perf_nccl *nccl, bool begin);
/* Puts a group of sends and receives on the stream. */
weir_status perf_nccl_exchange(perf_nccl *nccl, const weir_transfer *transfers, uint32_t n, void *stream);
/* Puts the operation on the stream. */
weir_status perf_nccl_call(perf_nccl *nccl, const weir_collective_request *request, void *stream);

WEIR_END_DECLS

#endif
