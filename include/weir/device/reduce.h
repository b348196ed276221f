/* weir/device/reduce.h - join the elements of several ranks (types and operations: weir/device/dtype.h).
 *
 *     weir_reduction sum;
 *     weir_reduce_first(&sum, WEIR_F16, word_of_rank_0);
 *     weir_reduce_next(&sum, WEIR_F16, WEIR_SUM, word_of_rank_1);
 *     word = weir_reduce_last(&sum, WEIR_F16, WEIR_SUM, 2);
 *
 * Elements are handled in words of 8 bytes. With constant type and operation these calls compile to the few
 * instructions that they need. On the CPU conversions are plain C, with the same bits as a GPU's.
 *
 * Halves (F16, BF16) and F8 are accumulated as floats and rounded once, to nearest, ties to even. Integers are
 * accumulated in 64 bits and cut: sums and products wrap, and averages of 8 and 32 bits are exact. An average is the
 * sum divided by the number of ranks; for integers the quotient is rounded towards zero. WEIR_SCALED_SUM needs
 * weir_reduce_scale before weir_reduce_last. WEIR_MIN and WEIR_MAX are NaN if an element is NaN. F8E4M3 has no
 * infinities, and its NaN is 0x7f; F8E5M2 has infinities. A finite result beyond the largest F8 becomes the largest F8.
 *
 * Threads:   any. Nothing here blocks or fails. */
#ifndef WEIR_DEVICE_REDUCE_H
#define WEIR_DEVICE_REDUCE_H

#include "weir/device/impl/reduce_word.h"

/* The accumulated elements of a word. The type decides which member is used. */
typedef struct weir_reduction {
    float f[8];
    double d;
    uint64_t i[8];
} weir_reduction;

/* Begins with the elements of rank 0. */
WEIR_FN void weir_reduce_first(weir_reduction *all, uint32_t dtype, uint64_t word)
{
    const uint32_t count = 8 / weir_dtype_bytes(dtype);
    if (dtype == WEIR_F64) {
        all->d = weir_double_of_word(word);
        return;
    }
    if (dtype <= WEIR_F8E5M2) {
        weir_word_floats(dtype, word, all->f);
        return;
    }
    WEIR_UNROLL
    for (uint32_t k = 0; k < count; k++) {
        all->i[k] = weir_element_integer(dtype, word, k);
    }
}

/* Joins the elements of the next rank. */
WEIR_FN void weir_reduce_next(weir_reduction *all, uint32_t dtype, uint32_t op, uint64_t word)
{
    const uint32_t count = 8 / weir_dtype_bytes(dtype);
    if (dtype == WEIR_F64) {
        all->d = weir_join_double(op, all->d, weir_double_of_word(word));
        return;
    }
    float values[8];
    if (dtype <= WEIR_F8E5M2) {
        weir_word_floats(dtype, word, values);
    }
    WEIR_UNROLL
    for (uint32_t k = 0; k < count; k++) {
        if (dtype <= WEIR_F8E5M2) {
            all->f[k] = weir_join_float(op, all->f[k], values[k]);
        } else {
            all->i[k] =
                weir_join_integer(op, all->i[k], weir_element_integer(dtype, word, k), weir_dtype_is_signed(dtype));
        }
    }
}

/* Multiplies the accumulated elements, which are floating-point, by a factor. For WEIR_SCALED_SUM, before the result.
 */
WEIR_FN void weir_reduce_scale(weir_reduction *all, uint32_t dtype, double factor)
{
    const uint32_t count = 8 / weir_dtype_bytes(dtype);
    if (dtype == WEIR_F64) {
        all->d *= factor;
        return;
    }
    WEIR_UNROLL
    for (uint32_t k = 0; k < count; k++) {
        all->f[k] *= (float)factor;
    }
}

/* The result, after all `ranks` are joined. */
WEIR_FN uint64_t weir_reduce_last(const weir_reduction *all, uint32_t dtype, uint32_t op, uint32_t ranks)
{
    const uint32_t bytes = weir_dtype_bytes(dtype);
    const uint32_t count = 8 / bytes;
    uint64_t word = 0;
    if (dtype == WEIR_F64) {
        return weir_word_of_double(op == WEIR_AVG ? all->d / (double)ranks : all->d);
    }
    if (dtype <= WEIR_F8E5M2) {
        float values[8];
        WEIR_UNROLL
        for (uint32_t k = 0; k < count; k++) {
            values[k] = op == WEIR_AVG ? all->f[k] / (float)ranks : all->f[k];
        }
        return weir_word_of_floats(dtype, values);
    }
    WEIR_UNROLL
    for (uint32_t k = 0; k < count; k++) {
        uint64_t value =
            op == WEIR_AVG ? weir_divide_integer(all->i[k], ranks, weir_dtype_is_signed(dtype)) : all->i[k];
        word |= (bytes == 8 ? value : value & (((uint64_t)1 << (8 * bytes % 64)) - 1)) << (8 * bytes * k % 64);
    }
    return word;
}

#endif
