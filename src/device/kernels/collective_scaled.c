/* collective_scaled.c - sums with a factor: WEIR_SCALED_SUM, and averages of 2, 4 and 8 ranks; see collective.h. */
#define REDUCE_NAME(form) weiri_##form##_f32_scaled
#define REDUCE_DTYPE WEIR_F32
#define REDUCE_OP WEIR_SCALED_SUM
#include "src/device/kernels/collective_reduce.h"

#define REDUCE_NAME(form) weiri_##form##_f16_scaled
#define REDUCE_DTYPE WEIR_F16
#define REDUCE_OP WEIR_SCALED_SUM
#include "src/device/kernels/collective_reduce.h"

#define REDUCE_NAME(form) weiri_##form##_bf16_scaled
#define REDUCE_DTYPE WEIR_BF16
#define REDUCE_OP WEIR_SCALED_SUM
#include "src/device/kernels/collective_reduce.h"

const weir_kernel *const weiri_collective_scaled_kernels[] = { &weiri_once_f32_scaled,
                                                               &weiri_packets_f32_scaled,
                                                               &weiri_lines_f32_scaled,
                                                               &weiri_slots_f32_scaled,
                                                               &weiri_zero_copy_f32_scaled,
                                                               &weiri_two_f32_scaled,
                                                               &weiri_once_f16_scaled,
                                                               &weiri_packets_f16_scaled,
                                                               &weiri_lines_f16_scaled,
                                                               &weiri_slots_f16_scaled,
                                                               &weiri_zero_copy_f16_scaled,
                                                               &weiri_two_f16_scaled,
                                                               &weiri_once_bf16_scaled,
                                                               &weiri_packets_bf16_scaled,
                                                               &weiri_lines_bf16_scaled,
                                                               &weiri_slots_bf16_scaled,
                                                               &weiri_zero_copy_bf16_scaled,
                                                               &weiri_two_bf16_scaled,
                                                               NULL };
