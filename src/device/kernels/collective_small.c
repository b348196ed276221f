/* collective_small.c - reductions of integers of 8 bits; see collective.h. */
#define REDUCE_NAME(form) weiri_##form##_i8_any
#define REDUCE_DTYPE WEIR_I8
#define REDUCE_OP args->op
#include "src/device/kernels/collective_reduce.h"

#define REDUCE_NAME(form) weiri_##form##_u8_any
#define REDUCE_DTYPE WEIR_U8
#define REDUCE_OP args->op
#include "src/device/kernels/collective_reduce.h"

const weir_kernel *const weiri_collective_small_kernels[] = { &weiri_once_i8_any,
                                                              &weiri_packets_i8_any,
                                                              &weiri_lines_i8_any,
                                                              &weiri_slots_i8_any,
                                                              &weiri_zero_copy_i8_any,
                                                              &weiri_two_i8_any,
                                                              &weiri_once_u8_any,
                                                              &weiri_packets_u8_any,
                                                              &weiri_lines_u8_any,
                                                              &weiri_slots_u8_any,
                                                              &weiri_zero_copy_u8_any,
                                                              &weiri_two_u8_any,
                                                              NULL };
