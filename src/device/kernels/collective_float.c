/* collective_float.c - reductions of floats and doubles; see collective.h. */
#define REDUCE_NAME(form) weiri_##form##_f32_sum
#define REDUCE_DTYPE WEIR_F32
#define REDUCE_OP WEIR_SUM
#include "src/device/kernels/collective_reduce.h"

#define REDUCE_NAME(form) weiri_##form##_f32_any
#define REDUCE_DTYPE WEIR_F32
#define REDUCE_OP args->op
#include "src/device/kernels/collective_reduce.h"

#define REDUCE_NAME(form) weiri_##form##_f64_any
#define REDUCE_DTYPE WEIR_F64
#define REDUCE_OP args->op
#include "src/device/kernels/collective_reduce.h"

const weir_kernel *const weiri_collective_float_kernels[] = { &weiri_once_f32_sum,
                                                              &weiri_packets_f32_sum,
                                                              &weiri_lines_f32_sum,
                                                              &weiri_slots_f32_sum,
                                                              &weiri_zero_copy_f32_sum,
                                                              &weiri_two_f32_sum,
                                                              &weiri_once_f32_any,
                                                              &weiri_packets_f32_any,
                                                              &weiri_lines_f32_any,
                                                              &weiri_slots_f32_any,
                                                              &weiri_zero_copy_f32_any,
                                                              &weiri_two_f32_any,
                                                              &weiri_once_f64_any,
                                                              &weiri_packets_f64_any,
                                                              &weiri_lines_f64_any,
                                                              &weiri_slots_f64_any,
                                                              &weiri_zero_copy_f64_any,
                                                              &weiri_two_f64_any,
                                                              NULL };
