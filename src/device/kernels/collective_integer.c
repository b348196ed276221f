/* collective_integer.c - reductions of integers of 32 and 64 bits; see collective.h. */
#define REDUCE_NAME(form) weiri_##form##_i32_any
#define REDUCE_DTYPE WEIR_I32
#define REDUCE_OP args->op
#include "src/device/kernels/collective_reduce.h"

#define REDUCE_NAME(form) weiri_##form##_u32_any
#define REDUCE_DTYPE WEIR_U32
#define REDUCE_OP args->op
#include "src/device/kernels/collective_reduce.h"

#define REDUCE_NAME(form) weiri_##form##_i64_any
#define REDUCE_DTYPE WEIR_I64
#define REDUCE_OP args->op
#include "src/device/kernels/collective_reduce.h"

#define REDUCE_NAME(form) weiri_##form##_u64_any
#define REDUCE_DTYPE WEIR_U64
#define REDUCE_OP args->op
#include "src/device/kernels/collective_reduce.h"

const weir_kernel *const weiri_collective_integer_kernels[] = { &weiri_once_i32_any,
                                                                &weiri_packets_i32_any,
                                                                &weiri_lines_i32_any,
                                                                &weiri_slots_i32_any,
                                                                &weiri_zero_copy_i32_any,
                                                                &weiri_two_i32_any,
                                                                &weiri_once_u32_any,
                                                                &weiri_packets_u32_any,
                                                                &weiri_lines_u32_any,
                                                                &weiri_slots_u32_any,
                                                                &weiri_zero_copy_u32_any,
                                                                &weiri_two_u32_any,
                                                                &weiri_once_i64_any,
                                                                &weiri_packets_i64_any,
                                                                &weiri_lines_i64_any,
                                                                &weiri_slots_i64_any,
                                                                &weiri_zero_copy_i64_any,
                                                                &weiri_two_i64_any,
                                                                &weiri_once_u64_any,
                                                                &weiri_packets_u64_any,
                                                                &weiri_lines_u64_any,
                                                                &weiri_slots_u64_any,
                                                                &weiri_zero_copy_u64_any,
                                                                &weiri_two_u64_any,
                                                                NULL };
