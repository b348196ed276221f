/* algorithm_kernels.h - an allreduce as a user would write it. */
#ifndef WEIRT_ALGORITHM_KERNELS_H
#define WEIRT_ALGORITHM_KERNELS_H

#include "weir/device/collective.h"
#include "weir/device/kernel.h"

#if defined(__cplusplus)
extern "C" {
#endif

/* Sums 32-bit integers, and adds one to each sum. */
typedef struct weirt_sum_args {
    weir_dev_collective collective;
    weir_collective_reduce sum;
    uint32_t *recv;
    uint64_t count;
} weirt_sum_args;

const weir_kernel *weirt_sum_kernel(void);

#if defined(__cplusplus)
}
#endif

#endif
