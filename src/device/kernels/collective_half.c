/* collective_half.c - reductions of halves; see collective.h. */
#define REDUCE_NAME(form) weiri_##form##_f16_sum
#define REDUCE_DTYPE WEIR_F16
#define REDUCE_OP WEIR_SUM
#include "src/device/kernels/collective_reduce.h"

#define REDUCE_NAME(form) weiri_##form##_f16_any
#define REDUCE_DTYPE WEIR_F16
#define REDUCE_OP args->op
#include "src/device/kernels/collective_reduce.h"

#define REDUCE_NAME(form) weiri_##form##_bf16_sum
#define REDUCE_DTYPE WEIR_BF16
#define REDUCE_OP WEIR_SUM
#include "src/device/kernels/collective_reduce.h"

#define REDUCE_NAME(form) weiri_##form##_bf16_any
#define REDUCE_DTYPE WEIR_BF16
#define REDUCE_OP args->op
#include "src/device/kernels/collective_reduce.h"

const weir_kernel *const weiri_collective_half_kernels[] = { &weiri_once_f16_sum,
                                                             &weiri_packets_f16_sum,
                                                             &weiri_lines_f16_sum,
                                                             &weiri_slots_f16_sum,
                                                             &weiri_zero_copy_f16_sum,
                                                             &weiri_two_f16_sum,
                                                             &weiri_once_f16_any,
                                                             &weiri_packets_f16_any,
                                                             &weiri_lines_f16_any,
                                                             &weiri_slots_f16_any,
                                                             &weiri_zero_copy_f16_any,
                                                             &weiri_two_f16_any,
                                                             &weiri_once_bf16_sum,
                                                             &weiri_packets_bf16_sum,
                                                             &weiri_lines_bf16_sum,
                                                             &weiri_slots_bf16_sum,
                                                             &weiri_zero_copy_bf16_sum,
                                                             &weiri_two_bf16_sum,
                                                             &weiri_once_bf16_any,
                                                             &weiri_packets_bf16_any,
                                                             &weiri_lines_bf16_any,
                                                             &weiri_slots_bf16_any,
                                                             &weiri_zero_copy_bf16_any,
                                                             &weiri_two_bf16_any,
                                                             NULL };
