/* beside_kernels.c - the kernel of multiplications for weir-perf gather --beside. */
#include "tools/perf/gather.h"

WEIR_KERNEL_FOR(multiply, beside_args, 256)
{
    float value = (float)(coop.rank & 0xff);
    for (uint32_t i = 0; i < args->work; i++) {
        value = value * 0.5f + 1.0f;
    }
    args->out[coop.rank] = value;
}

const weir_kernel *const beside_multiply = &multiply;
