/* weir/device/impl/arch_numbers.h - floating-point numbers in words, by a GPU's instructions or by plain C. */
#ifndef WEIR_DEVICE_IMPL_ARCH_NUMBERS_H
#define WEIR_DEVICE_IMPL_ARCH_NUMBERS_H

#include "weir/device/arch.h"

WEIR_FN float weir_arch_float_of_bits(uint32_t bits)
{
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

WEIR_FN uint32_t weir_arch_bits_of_float(float value)
{
    uint32_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* `value` without its sign in a binary format of fewer bits, rounded to nearest, ties to even. `mantissa` is the number
 * of bits after the point, `least` the exponent of the least normal number. A value that is too large or infinite gets
 * a code above all finite ones. `value` must not be NaN. */
WEIR_FN uint32_t weir_arch_narrow(float value, uint32_t mantissa, int32_t least)
{
    uint32_t bits = weir_arch_bits_of_float(value) & 0x7fffffffu;
    int32_t exponent = (int32_t)(bits >> 23) - 127;
    uint32_t digits = (bits & 0x7fffffu) | 0x800000u;
    if (exponent == -127) { /* denormal */
        exponent = -126;
        digits = bits;
    }
    uint32_t shift = 23 - mantissa + (exponent < least ? (uint32_t)(least - exponent) : 0);
    shift = shift < 25 ? shift : 25;
    uint32_t kept = digits >> shift;
    uint32_t rest = digits & (((uint32_t)1 << shift) - 1);
    uint32_t half = (uint32_t)1 << (shift - 1);
    kept += rest > half || (rest == half && (kept & 1) != 0);
    return kept + ((uint32_t)(exponent > least ? exponent - least : 0) << mantissa);
}

/* IEEE half precision. */
WEIR_FN float weir_arch_float_of_f16(uint32_t half)
{
#if defined(__CUDA_ARCH__)
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((unsigned short)half));
    return value;
#else
    uint32_t sign = (half & 0x8000u) << 16;
    uint32_t exponent = half >> 10 & 31u;
    uint32_t digits = half & 0x3ffu;
    if (exponent == 0) {
        return weir_arch_float_of_bits(weir_arch_bits_of_float((float)digits / 16777216.0f) | sign);
    }
    return weir_arch_float_of_bits(sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | digits << 13);
#endif
}

WEIR_FN uint32_t weir_arch_f16_of_float(float value)
{
#if defined(__CUDA_ARCH__)
    unsigned short half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
#else
    uint32_t bits = weir_arch_bits_of_float(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return 0x7fff;
    }
    uint32_t code = weir_arch_narrow(value, 10, -14);
    return (bits >> 16 & 0x8000u) | (code < 0x7c00u ? code : 0x7c00u);
#endif
}

/* bfloat16; NaN is 0x7fff. */
WEIR_FN uint32_t weir_arch_bf16_of_float(float value)
{
#if defined(__CUDA_ARCH__)
    unsigned short half;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
#else
    uint32_t bits = weir_arch_bits_of_float(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return 0x7fff;
    }
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
#endif
}

/* ---- pairs of halves in a word, the first in the lower half; a GPU takes one instruction for most of these --------
 */

WEIR_FN void weir_arch_floats_of_f16x2(uint32_t pair, float *out)
{
#if defined(__CUDA_ARCH__)
    asm("{ .reg .b16 first, second; mov.b32 {first, second}, %2; cvt.f32.f16 %0, first; cvt.f32.f16 %1, second; }"
        : "=f"(out[0]), "=f"(out[1])
        : "r"(pair));
#else
    out[0] = weir_arch_float_of_f16(pair & 0xffffu);
    out[1] = weir_arch_float_of_f16(pair >> 16);
#endif
}

WEIR_FN uint32_t weir_arch_f16x2_of_floats(const float *values)
{
#if defined(__CUDA_ARCH__)
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(values[1]), "f"(values[0]));
    return pair;
#else
    return weir_arch_f16_of_float(values[0]) | weir_arch_f16_of_float(values[1]) << 16;
#endif
}

WEIR_FN void weir_arch_floats_of_bf16x2(uint32_t pair, float *out)
{
    out[0] = weir_arch_float_of_bits(pair << 16);
    out[1] = weir_arch_float_of_bits(pair & 0xffff0000u);
}

WEIR_FN uint32_t weir_arch_bf16x2_of_floats(const float *values)
{
#if defined(__CUDA_ARCH__)
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(values[1]), "f"(values[0]));
    return pair;
#else
    return weir_arch_bf16_of_float(values[0]) | weir_arch_bf16_of_float(values[1]) << 16;
#endif
}

/* Sums of two, with the bits of a sum of floats that is rounded to a half: a float has at least twice the digits of a
 * half and two more, so the rounding of its sum changes nothing (Figueroa, When is double rounding innocuous?, 1995).
 */
WEIR_FN uint32_t weir_arch_sum_f16x2(uint32_t a, uint32_t b)
{
#if defined(__CUDA_ARCH__)
    uint32_t sum;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
    return sum;
#else
    float x[2];
    float y[2];
    weir_arch_floats_of_f16x2(a, x);
    weir_arch_floats_of_f16x2(b, y);
    x[0] += y[0];
    x[1] += y[1];
    return weir_arch_f16x2_of_floats(x);
#endif
}

WEIR_FN uint32_t weir_arch_sum_bf16x2(uint32_t a, uint32_t b)
{
#if defined(__CUDA_ARCH__)
    uint32_t sum;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(0x3f803f80u), "r"(b)); /* a * 1 + b */
    return sum;
#else
    float x[2];
    float y[2];
    weir_arch_floats_of_bf16x2(a, x);
    weir_arch_floats_of_bf16x2(b, y);
    x[0] += y[0];
    x[1] += y[1];
    return weir_arch_bf16x2_of_floats(x);
#endif
}

/* ---- pairs of 8-bit floats in the lower half of a word, by the instructions of sm_89 and later ---------------- */

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define WEIR_ARCH_CONVERTS_F8 1

WEIR_FN uint32_t weir_arch_f16x2_of_e4m3x2(uint32_t pair)
{
    uint32_t halves;
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, low; }" : "=r"(halves) : "r"(pair));
    return halves;
}

/* Values beyond the largest finite number, and infinite ones, become that number. */
WEIR_FN uint32_t weir_arch_e4m3x2_of_floats(const float *values)
{
    uint32_t pair;
    asm("{ .reg .b16 low; cvt.rn.satfinite.e4m3x2.f32 low, %1, %2; cvt.u32.u16 %0, low; }"
        : "=r"(pair)
        : "f"(values[1]), "f"(values[0]));
    return pair;
}

WEIR_FN uint32_t weir_arch_e5m2x2_of_floats(const float *values)
{
    uint32_t pair;
    asm("{ .reg .b16 low; cvt.rn.satfinite.e5m2x2.f32 low, %1, %2; cvt.u32.u16 %0, low; }"
        : "=r"(pair)
        : "f"(values[1]), "f"(values[0]));
    return pair;
}
#else
#define WEIR_ARCH_CONVERTS_F8 0
#endif

#endif
