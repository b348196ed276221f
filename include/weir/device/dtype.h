/* weir/device/dtype.h - types of elements, and operations that join the elements of several ranks.
 *
 * weir/device/reduce.h says how they are joined.
 *
 * Threads:   any. Nothing here blocks or changes memory. */
#ifndef WEIR_DEVICE_DTYPE_H
#define WEIR_DEVICE_DTYPE_H

#include "weir/device/arch.h"

typedef enum weir_dtype {
    WEIR_F64 = 0,
    WEIR_F32 = 1,
    WEIR_F16 = 2,
    WEIR_BF16 = 3,
    WEIR_F8E4M3 = 4,
    WEIR_F8E5M2 = 5,
    WEIR_I8 = 6,
    WEIR_U8 = 7,
    WEIR_I32 = 8,
    WEIR_U32 = 9,
    WEIR_I64 = 10,
    WEIR_U64 = 11
} weir_dtype;

#define WEIR_DTYPES 12u

typedef enum weir_op {
    WEIR_SUM = 0,
    WEIR_PROD = 1,
    WEIR_MIN = 2,
    WEIR_MAX = 3,
    WEIR_AVG = 4,
    WEIR_SCALED_SUM = 5 /* a sum, multiplied by a factor (weir_collective_set_factor); F64, F32, F16, BF16 */
} weir_op;

#define WEIR_OPS 6u

/* The size of an element. It has no branches, because kernels ask for it between messages: hexadecimal digit i from the
 * right is the logarithm of the size of type i. */
WEIR_FN uint32_t weir_dtype_bytes(uint32_t dtype)
{
    return dtype < WEIR_DTYPES ? 1u << (uint32_t)(UINT64_C(0x332200001123) >> 4 * dtype & 3) : 1;
}

/* Whether it is an integer with a sign. */
WEIR_FN int weir_dtype_is_signed(uint32_t dtype) { return dtype == WEIR_I8 || dtype == WEIR_I32 || dtype == WEIR_I64; }

#endif
