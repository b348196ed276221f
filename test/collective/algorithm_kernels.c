/* algorithm_kernels.c - see algorithm_kernels.h. */
#include "test/collective/algorithm_kernels.h"

WEIR_KERNEL(weirt_sum, weirt_sum_args)
{
    if (weir_collective_reduce_once(&args->collective, &args->sum, WEIR_U32, WEIR_SUM, coop) != WEIR_OK) {
        return;
    }
    /* A thread sums the 8-byte words that it has stored. */
    for (uint64_t i = 2 * (uint64_t)coop.rank; i < args->count; i += 2 * (uint64_t)coop.size) {
        args->recv[i]++;
        if (i + 1 < args->count) {
            args->recv[i + 1]++;
        }
    }
}

const weir_kernel *weirt_sum_kernel(void) { return &weirt_sum; }
