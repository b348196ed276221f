/* collective_f8.c - reductions of 8-bit floats; see collective.h. */
#define REDUCE_NAME(form) weiri_##form##_f8e4m3_sum
#define REDUCE_DTYPE WEIR_F8E4M3
#define REDUCE_OP WEIR_SUM
#include "src/device/kernels/collective_reduce.h"

#define REDUCE_NAME(form) weiri_##form##_f8e4m3_any
#define REDUCE_DTYPE WEIR_F8E4M3
#define REDUCE_OP args->op
#include "src/device/kernels/collective_reduce.h"

#define REDUCE_NAME(form) weiri_##form##_f8e5m2_sum
#define REDUCE_DTYPE WEIR_F8E5M2
#define REDUCE_OP WEIR_SUM
#include "src/device/kernels/collective_reduce.h"

#define REDUCE_NAME(form) weiri_##form##_f8e5m2_any
#define REDUCE_DTYPE WEIR_F8E5M2
#define REDUCE_OP args->op
#include "src/device/kernels/collective_reduce.h"

const weir_kernel *const weiri_collective_f8_kernels[] = { &weiri_once_f8e4m3_sum,
                                                           &weiri_packets_f8e4m3_sum,
                                                           &weiri_lines_f8e4m3_sum,
                                                           &weiri_slots_f8e4m3_sum,
                                                           &weiri_zero_copy_f8e4m3_sum,
                                                           &weiri_two_f8e4m3_sum,
                                                           &weiri_once_f8e4m3_any,
                                                           &weiri_packets_f8e4m3_any,
                                                           &weiri_lines_f8e4m3_any,
                                                           &weiri_slots_f8e4m3_any,
                                                           &weiri_zero_copy_f8e4m3_any,
                                                           &weiri_two_f8e4m3_any,
                                                           &weiri_once_f8e5m2_sum,
                                                           &weiri_packets_f8e5m2_sum,
                                                           &weiri_lines_f8e5m2_sum,
                                                           &weiri_slots_f8e5m2_sum,
                                                           &weiri_zero_copy_f8e5m2_sum,
                                                           &weiri_two_f8e5m2_sum,
                                                           &weiri_once_f8e5m2_any,
                                                           &weiri_packets_f8e5m2_any,
                                                           &weiri_lines_f8e5m2_any,
                                                           &weiri_slots_f8e5m2_any,
                                                           &weiri_zero_copy_f8e5m2_any,
                                                           &weiri_two_f8e5m2_any,
                                                           NULL };
