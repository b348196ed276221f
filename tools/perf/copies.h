/* copies.h - many copies by the CUDA driver, in a batch or one by one: what programs without a kernel of their own do
 * with scattered rows. */
#ifndef WEIR_PERF_COPIES_H
#define WEIR_PERF_COPIES_H

#include "tools/perf/cuda.h"

WEIR_BEGIN_DECLS

/* cuMemcpyBatchAsync (CUDA 13), or a cuMemcpyAsync for each copy. */
typedef enum perf_copying { PERF_COPY_BATCH, PERF_COPY_EACH } perf_copying;

/* On the CPU device memcpy takes the driver's place, so that tests see lists and places. */
typedef struct perf_copies {
    perf_rank *rank;
    perf_cuda *cuda; /* NULL on the CPU */
    int (*copy)(unsigned long long dst, unsigned long long src, size_t bytes, void *stream);
    int (*batch)(unsigned long long *dst, unsigned long long *src, size_t *sizes, size_t count, void *attributes,
                 size_t *first, size_t attribute_count, void *stream);
    unsigned long long *to; /* the list of copies, which the caller fills */
    unsigned long long *from;
    size_t *sizes;
} perf_copies;

/* With room for `most` copies. close also undoes a part of open. */
weir_status perf_copies_open(perf_rank *rank, uint64_t most, perf_copies *out);
void perf_copies_close(perf_copies *copies);
/* Whether the driver has a function for it. */
bool perf_copies_can(const perf_copies *copies, perf_copying how);
/* Puts the first `count` copies of the list on the stream. */
weir_status perf_copies_put(const perf_copies *copies, perf_copying how, uint64_t count);
/* Puts one copy on the stream. */
weir_status perf_copies_bulk(const perf_copies *copies, void *to, const void *from, uint64_t bytes);

WEIR_END_DECLS

#endif
