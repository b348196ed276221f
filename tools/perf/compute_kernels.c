/* compute_kernels.c - the kernel of multiplications of weir-perf --beside. */
#include "tools/perf/compute.h"

WEIR_KERNEL_FOR(multiply, compute_args, 256)
{
    float value = (float)(coop.rank & 0xff);
    for (uint32_t i = 0; i < args->work; i++) {
        value = value * 0.5f + 1.0f;
    }
    args->out[coop.rank] = value;
}

const weir_kernel *const compute_multiply = &multiply;
