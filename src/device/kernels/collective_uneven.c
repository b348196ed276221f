/* collective_uneven.c - reduce_scatters of one part by packets and lines: sums, without and with a factor; see
 * collective.h. Other operations and types go by the kernels of parts. */
#define UNEVEN_NAME(form) weiri_uneven_##form##_f32_sum
#define UNEVEN_DTYPE WEIR_F32
#define UNEVEN_OP WEIR_SUM
#include "src/device/kernels/collective_uneven.h"

#define UNEVEN_NAME(form) weiri_uneven_##form##_f16_sum
#define UNEVEN_DTYPE WEIR_F16
#define UNEVEN_OP WEIR_SUM
#include "src/device/kernels/collective_uneven.h"

#define UNEVEN_NAME(form) weiri_uneven_##form##_bf16_sum
#define UNEVEN_DTYPE WEIR_BF16
#define UNEVEN_OP WEIR_SUM
#include "src/device/kernels/collective_uneven.h"

#define UNEVEN_NAME(form) weiri_uneven_##form##_f32_scaled
#define UNEVEN_DTYPE WEIR_F32
#define UNEVEN_OP WEIR_SCALED_SUM
#include "src/device/kernels/collective_uneven.h"

#define UNEVEN_NAME(form) weiri_uneven_##form##_f16_scaled
#define UNEVEN_DTYPE WEIR_F16
#define UNEVEN_OP WEIR_SCALED_SUM
#include "src/device/kernels/collective_uneven.h"

#define UNEVEN_NAME(form) weiri_uneven_##form##_bf16_scaled
#define UNEVEN_DTYPE WEIR_BF16
#define UNEVEN_OP WEIR_SCALED_SUM
#include "src/device/kernels/collective_uneven.h"

const weir_kernel *const weiri_collective_uneven_kernels[] = { &weiri_uneven_packets_f32_sum,
                                                               &weiri_uneven_lines_f32_sum,
                                                               &weiri_uneven_two_f32_sum,
                                                               &weiri_uneven_packets_f16_sum,
                                                               &weiri_uneven_lines_f16_sum,
                                                               &weiri_uneven_two_f16_sum,
                                                               &weiri_uneven_packets_bf16_sum,
                                                               &weiri_uneven_lines_bf16_sum,
                                                               &weiri_uneven_two_bf16_sum,
                                                               &weiri_uneven_packets_f32_scaled,
                                                               &weiri_uneven_lines_f32_scaled,
                                                               &weiri_uneven_two_f32_scaled,
                                                               &weiri_uneven_packets_f16_scaled,
                                                               &weiri_uneven_lines_f16_scaled,
                                                               &weiri_uneven_two_f16_scaled,
                                                               &weiri_uneven_packets_bf16_scaled,
                                                               &weiri_uneven_lines_bf16_scaled,
                                                               &weiri_uneven_two_bf16_scaled,
                                                               NULL };
