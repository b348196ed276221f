/* collective_sums.c - sums of two ranks directly between buffers of users; see collective.h. */
#include "src/device/kernels/collective.h"
#include "weir/device/impl/collective_direct.h"

WEIR_KERNEL_FOR(weiri_sum_f32, weiri_reduce_args, WEIRI_SLOT_THREADS)
{
    (void)weir_collective_sum_direct(&args->collective, &args->reduce, WEIR_F32, coop);
}

WEIR_KERNEL_FOR(weiri_sum_f16, weiri_reduce_args, WEIRI_SLOT_THREADS)
{
    (void)weir_collective_sum_direct(&args->collective, &args->reduce, WEIR_F16, coop);
}

WEIR_KERNEL_FOR(weiri_sum_bf16, weiri_reduce_args, WEIRI_SLOT_THREADS)
{
    (void)weir_collective_sum_direct(&args->collective, &args->reduce, WEIR_BF16, coop);
}

const weir_kernel *const weiri_collective_sums_kernels[] = { &weiri_sum_f32, &weiri_sum_f16, &weiri_sum_bf16, NULL };
