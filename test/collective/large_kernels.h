/* large_kernels.h - kernels that write the data to send and check the results, because the host would take too long;
 * for large_test.cc. */
#ifndef WEIRT_LARGE_KERNELS_H
#define WEIRT_LARGE_KERNELS_H

#include "weir/device/kernel.h"

#if defined(__cplusplus)
extern "C" {
#endif

enum { LARGE_ALLREDUCE, LARGE_REDUCE_SCATTER, LARGE_ALLGATHER, LARGE_ALL_TO_ALL, LARGE_OPS };

typedef struct large_report {
    uint64_t compared;
    uint64_t wrong;
    uint64_t wrong_index; /* index of a wrong word */
} large_report;

typedef struct large_args {
    uint64_t *words;
    large_report *report; /* NULL: fill the words */
    uint64_t count;       /* of words; for checks the count of the operation */
    uint32_t rank;
    uint32_t ranks;
    uint32_t op;
    uint32_t seed;
} large_args;

/* Word `index` of the data that `rank` sends. */
WEIR_FN uint64_t large_word(uint32_t seed, uint32_t rank, uint64_t index)
{
    uint64_t x = (index + 1) * 0x9e3779b97f4a7c15u + rank * 0x165667b19e3779f9u + seed;
    x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9u;
    return x ^ (x >> 29);
}

const weir_kernel *large_kernel(void);

#if defined(__cplusplus)
}
#endif

#endif
