/* copies.c - many copies by the CUDA driver, in a batch or one by one. */
#include "tools/perf/copies.h"

#include <stdlib.h>
#include <string.h>

weir_status perf_copies_open(perf_rank *rank, uint64_t most, perf_copies *out)
{
    memset(out, 0, sizeof *out);
    out->rank = rank;
    out->to = (unsigned long long *)malloc(most * sizeof *out->to);
    out->from = (unsigned long long *)malloc(most * sizeof *out->from);
    out->sizes = (size_t *)malloc(most * sizeof *out->sizes);
    if (out->to == NULL || out->from == NULL || out->sizes == NULL) {
        return perf_fail(rank, WEIR_ERR_NOMEM, "%s: no memory for %llu copies", rank->command,
                         (unsigned long long)most);
    }
    if (!rank->gpu) {
        return WEIR_OK;
    }
    const perf_cuda_function functions[] = {
        { "cuMemcpyAsync", &out->copy, true },
        { "cuMemcpyBatchAsync_v2", &out->batch, false },
    };
    const weir_status status = perf_cuda_open(rank, &out->cuda);
    return status == WEIR_OK ? perf_cuda_find(out->cuda, functions, ROWS(functions)) : status;
}

void perf_copies_close(perf_copies *copies)
{
    perf_cuda_close(copies->cuda);
    free(copies->sizes);
    free(copies->from);
    free(copies->to);
}

bool perf_copies_can(const perf_copies *copies, perf_copying how)
{
    return copies->cuda == NULL || how != PERF_COPY_BATCH || copies->batch != NULL; /* an older driver */
}

/* The CPU device, in the order of the stream. */
static weir_status copy_on_host(const perf_copies *copies, const unsigned long long *to, const unsigned long long *from,
                                const size_t *sizes, uint64_t count)
{
    const weir_status status = weir_stream_wait(copies->rank->device, copies->rank->stream, 0);
    for (uint64_t i = 0; i < count && status == WEIR_OK; i++) {
        memcpy((void *)(uintptr_t)to[i], (const void *)(uintptr_t)from[i], sizes[i]);
    }
    return status;
}

static weir_status check(const perf_copies *copies, const char *what, int result)
{
    return result == 0
               ? WEIR_OK
               : perf_fail(copies->rank, WEIR_ERR_DEVICE, "%s: %s: CUDA error %d", copies->rank->command, what, result);
}

weir_status perf_copies_put(const perf_copies *copies, perf_copying how, uint64_t count)
{
    int result = 0;
    if (copies->cuda == NULL) {
        return copy_on_host(copies, copies->to, copies->from, copies->sizes, count);
    }
    if (how == PERF_COPY_BATCH) {
        unsigned attributes[6] = { 1, 0, 0, 0, 0, 0 }; /* CUmemcpyAttributes: in the order of the stream */
        size_t first = 0;
        return check(
            copies, "cuMemcpyBatchAsync",
            copies->batch(copies->to, copies->from, copies->sizes, count, attributes, &first, 1, copies->rank->stream));
    }
    for (uint64_t i = 0; i < count && result == 0; i++) {
        result = copies->copy(copies->to[i], copies->from[i], copies->sizes[i], copies->rank->stream);
    }
    return check(copies, "cuMemcpyAsync", result);
}

weir_status perf_copies_bulk(const perf_copies *copies, void *to, const void *from, uint64_t bytes)
{
    const unsigned long long dst = (unsigned long long)(uintptr_t)to;
    const unsigned long long src = (unsigned long long)(uintptr_t)from;
    const size_t size = bytes;
    return copies->cuda == NULL ? copy_on_host(copies, &dst, &src, &size, 1)
                                : check(copies, "cuMemcpyAsync", copies->copy(dst, src, size, copies->rank->stream));
}
