/* collective_sums.c - sums of two ranks directly between buffers of users, without and with a factor; see collective.h.
 */
#include "src/device/kernels/collective.h"
#include "weir/device/impl/collective_direct.h"

WEIR_KERNEL_FOR(weiri_sum_f32, weiri_reduce_args, WEIRI_SLOT_THREADS)
{
    (void)weir_collective_sum_direct(&args->collective, &args->reduce, WEIR_F32, WEIR_SUM, coop);
}

WEIR_KERNEL_FOR(weiri_sum_f16, weiri_reduce_args, WEIRI_SLOT_THREADS)
{
    (void)weir_collective_sum_direct(&args->collective, &args->reduce, WEIR_F16, WEIR_SUM, coop);
}

WEIR_KERNEL_FOR(weiri_sum_bf16, weiri_reduce_args, WEIRI_SLOT_THREADS)
{
    (void)weir_collective_sum_direct(&args->collective, &args->reduce, WEIR_BF16, WEIR_SUM, coop);
}

WEIR_KERNEL_FOR(weiri_scaled_f32, weiri_reduce_args, WEIRI_SLOT_THREADS)
{
    (void)weir_collective_sum_direct(&args->collective, &args->reduce, WEIR_F32, WEIR_SCALED_SUM, coop);
}

WEIR_KERNEL_FOR(weiri_scaled_f16, weiri_reduce_args, WEIRI_SLOT_THREADS)
{
    (void)weir_collective_sum_direct(&args->collective, &args->reduce, WEIR_F16, WEIR_SCALED_SUM, coop);
}

WEIR_KERNEL_FOR(weiri_scaled_bf16, weiri_reduce_args, WEIRI_SLOT_THREADS)
{
    (void)weir_collective_sum_direct(&args->collective, &args->reduce, WEIR_BF16, WEIR_SCALED_SUM, coop);
}

const weir_kernel *const weiri_collective_sums_kernels[] = {
    &weiri_sum_f32, &weiri_sum_f16, &weiri_sum_bf16, &weiri_scaled_f32, &weiri_scaled_f16, &weiri_scaled_bf16, NULL
};
