/* weir/device/impl/reduce_word.h - the elements of a word of 8 bytes: their formats, and how two of them are joined.
 *
 * On the CPU conversions are plain C, with the same bits as a GPU's.
 *
 * Threads:   any. */
#ifndef WEIR_DEVICE_IMPL_REDUCE_WORD_H
#define WEIR_DEVICE_IMPL_REDUCE_WORD_H

#include "weir/device/dtype.h"
#include "weir/device/impl/arch_numbers.h"

/* ---- formats ------------------------------------------------------------------------------------------------ */

WEIR_FN float weir_float_of_f8e4m3(uint32_t code)
{
    uint32_t sign = (code & 0x80u) << 24;
    uint32_t rest = code & 0x7fu;
    if (rest == 0x7fu) {
        return weir_arch_float_of_bits(0x7fffffffu);
    }
    if (rest < 8) {
        return weir_arch_float_of_bits(weir_arch_bits_of_float((float)rest / 512.0f) | sign);
    }
    return weir_arch_float_of_bits(sign | ((rest << 20) + (120u << 23)));
}

WEIR_FN float weir_float_of_f8e5m2(uint32_t code) { return weir_arch_float_of_f16(code << 8); }

/* Conversion to both 8-bit formats. `largest` is the code of the largest finite number, `infinity` the code of an
 * infinite value. */
WEIR_FN uint32_t weir_f8_of_float(float value, uint32_t mantissa, int32_t least, uint32_t largest, uint32_t infinity)
{
    uint32_t bits = weir_arch_bits_of_float(value);
    uint32_t rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u) {
        return 0x7f;
    }
    uint32_t code = rest == 0x7f800000u ? infinity : weir_arch_narrow(value, mantissa, least);
    return (bits >> 24 & 0x80u) | (code <= largest || rest == 0x7f800000u ? code : largest);
}

WEIR_FN uint32_t weir_f8e4m3_of_float(float value) { return weir_f8_of_float(value, 3, -6, 0x7e, 0x7e); }

WEIR_FN uint32_t weir_f8e5m2_of_float(float value) { return weir_f8_of_float(value, 2, -14, 0x7b, 0x7c); }

/* ---- elements of a word ------------------------------------------------------------------------------------- */

/* One element of a floating-point type of at most 4 bytes. */
WEIR_FN float weir_element_float(uint32_t dtype, uint32_t code)
{
    switch (dtype) {
    case WEIR_F32:
        return weir_arch_float_of_bits(code);
    case WEIR_F16:
        return weir_arch_float_of_f16(code);
    case WEIR_BF16:
        return weir_arch_float_of_bits(code << 16);
    case WEIR_F8E4M3:
        return weir_float_of_f8e4m3(code);
    default:
        return weir_float_of_f8e5m2(code);
    }
}

WEIR_FN uint32_t weir_element_of_float(uint32_t dtype, float value)
{
    switch (dtype) {
    case WEIR_F32:
        return weir_arch_bits_of_float(value);
    case WEIR_F16:
        return weir_arch_f16_of_float(value);
    case WEIR_BF16:
        return weir_arch_bf16_of_float(value);
    case WEIR_F8E4M3:
        return weir_f8e4m3_of_float(value);
    default:
        return weir_f8e5m2_of_float(value);
    }
}

/* Two elements of an 8-bit type. The codes of e5m2 are the upper bytes of those of f16. */
WEIR_FN void weir_floats_of_f8x2(uint32_t dtype, uint32_t pair, float *out)
{
    if (dtype == WEIR_F8E5M2) {
        weir_arch_floats_of_f16x2((pair & 0xffu) << 8 | (pair & 0xff00u) << 16, out);
        return;
    }
#if WEIR_ARCH_CONVERTS_F8
    weir_arch_floats_of_f16x2(weir_arch_f16x2_of_e4m3x2(pair), out);
#else
    out[0] = weir_float_of_f8e4m3(pair & 0xffu);
    out[1] = weir_float_of_f8e4m3(pair >> 8 & 0xffu);
#endif
}

/* The instruction stores the largest number for an infinite value. e5m2 has a code for infinity, which is the next one.
 */
WEIR_FN uint32_t weir_f8x2_of_floats(uint32_t dtype, const float *values)
{
#if WEIR_ARCH_CONVERTS_F8
    if (dtype == WEIR_F8E4M3) {
        return weir_arch_e4m3x2_of_floats(values);
    }
    uint32_t pair = weir_arch_e5m2x2_of_floats(values);
    WEIR_UNROLL
    for (uint32_t k = 0; k < 2; k++) {
        const int infinite = (weir_arch_bits_of_float(values[k]) & 0x7fffffffu) == 0x7f800000u;
        pair += (uint32_t)infinite << 8 * k;
    }
    return pair;
#else
    return weir_element_of_float(dtype, values[0]) | weir_element_of_float(dtype, values[1]) << 8;
#endif
}

/* All elements of a word of such a type. */
WEIR_FN void weir_word_floats(uint32_t dtype, uint64_t word, float *out)
{
    WEIR_UNROLL
    for (uint32_t half = 0; half < 2; half++) {
        const uint32_t bits = (uint32_t)(word >> 32 * half);
        if (dtype == WEIR_F32) {
            out[half] = weir_arch_float_of_bits(bits);
        } else if (dtype == WEIR_F16) {
            weir_arch_floats_of_f16x2(bits, out + 2 * half);
        } else if (dtype == WEIR_BF16) {
            weir_arch_floats_of_bf16x2(bits, out + 2 * half);
        } else {
            WEIR_UNROLL
            for (uint32_t k = 0; k < 4; k += 2) {
                weir_floats_of_f8x2(dtype, bits >> (8 * k), out + 4 * half + k);
            }
        }
    }
}

WEIR_FN uint64_t weir_word_of_floats(uint32_t dtype, const float *values)
{
    uint64_t word = 0;
    WEIR_UNROLL
    for (uint32_t half = 0; half < 2; half++) {
        uint32_t bits = 0;
        if (dtype == WEIR_F32) {
            bits = weir_arch_bits_of_float(values[half]);
        } else if (dtype == WEIR_F16) {
            bits = weir_arch_f16x2_of_floats(values + 2 * half);
        } else if (dtype == WEIR_BF16) {
            bits = weir_arch_bf16x2_of_floats(values + 2 * half);
        } else {
            WEIR_UNROLL
            for (uint32_t k = 0; k < 4; k += 2) {
                bits |= weir_f8x2_of_floats(dtype, values + 4 * half + k) << (8 * k);
            }
        }
        word |= (uint64_t)bits << (32 * half);
    }
    return word;
}

/* An integer as 64 bits. */
WEIR_FN uint64_t weir_element_integer(uint32_t dtype, uint64_t word, uint32_t index)
{
    switch (dtype) {
    case WEIR_I8:
        return (uint64_t)(int64_t)(int8_t)(word >> (8 * index));
    case WEIR_U8:
        return word >> (8 * index) & 0xffu;
    case WEIR_I32:
        return (uint64_t)(int64_t)(int32_t)(word >> (32 * index));
    case WEIR_U32:
        return word >> (32 * index) & 0xffffffffu;
    default:
        return word;
    }
}

/* ---- operations --------------------------------------------------------------------------------------------- */

/* Returns `a` if both are equal. */
WEIR_FN float weir_join_float(uint32_t op, float a, float b)
{
    switch (op) {
    case WEIR_PROD:
        return a * b;
    case WEIR_MIN:
        return b < a || b != b ? b : a;
    case WEIR_MAX:
        return b > a || b != b ? b : a;
    default:
        return a + b;
    }
}

WEIR_FN double weir_join_double(uint32_t op, double a, double b)
{
    switch (op) {
    case WEIR_PROD:
        return a * b;
    case WEIR_MIN:
        return b < a || b != b ? b : a;
    case WEIR_MAX:
        return b > a || b != b ? b : a;
    default:
        return a + b;
    }
}

WEIR_FN uint64_t weir_join_integer(uint32_t op, uint64_t a, uint64_t b, int is_signed)
{
    int less = is_signed ? (int64_t)b < (int64_t)a : b < a;
    switch (op) {
    case WEIR_PROD:
        return a * b;
    case WEIR_MIN:
        return less ? b : a;
    case WEIR_MAX:
        return less ? a : b;
    default:
        return a + b;
    }
}

WEIR_FN_COLD uint64_t weir_divide_integer(uint64_t sum, uint32_t ranks, int is_signed)
{
    return is_signed ? (uint64_t)((int64_t)sum / (int64_t)ranks) : sum / ranks;
}

WEIR_FN double weir_double_of_word(uint64_t word)
{
    double value;
    __builtin_memcpy(&value, &word, sizeof value);
    return value;
}

WEIR_FN uint64_t weir_word_of_double(double value)
{
    uint64_t word;
    __builtin_memcpy(&word, &value, sizeof word);
    return word;
}

/* Whether two words of the type are summed without a weir_reduction, in a few instructions and with the same bits. */
WEIR_FN int weir_reduce_is_short(uint32_t dtype, uint32_t op)
{
    return op == WEIR_SUM && (dtype == WEIR_F16 || dtype == WEIR_BF16 || dtype == WEIR_F32);
}

/* The sums of the elements of two words of 4 bytes. */
WEIR_FN uint32_t weir_reduce_two_of_32(uint32_t dtype, uint32_t a, uint32_t b)
{
    return dtype == WEIR_F16    ? weir_arch_sum_f16x2(a, b)
           : dtype == WEIR_BF16 ? weir_arch_sum_bf16x2(a, b)
                                : weir_arch_bits_of_float(weir_arch_float_of_bits(a) + weir_arch_float_of_bits(b));
}

WEIR_FN uint64_t weir_reduce_two(uint32_t dtype, uint64_t a, uint64_t b)
{
    const uint32_t low = weir_reduce_two_of_32(dtype, (uint32_t)a, (uint32_t)b);
    const uint32_t high = weir_reduce_two_of_32(dtype, (uint32_t)(a >> 32), (uint32_t)(b >> 32));
    return low | (uint64_t)high << 32;
}

#endif
