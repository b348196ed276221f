// numbers.h - a second implementation of element types, by tables of all numbers of a format; C++ only.
#ifndef WEIRT_NUMBERS_H
#define WEIRT_NUMBERS_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "weir/device/reduce.h"

// A floating-point format of 8 or 16 bits.
struct Format {
    weir_dtype dtype;
    const char *name;
    int exponent_bits;
    int mantissa_bits;
    uint32_t nan;
    bool infinite;                // has infinities
    bool saturates;               // finite values that are too large become the largest number
    std::vector<double> positive; // value of each code from 0 to the largest finite number
    uint32_t small[7];            // code of -3 to 3, of which most data consists

    explicit Format(weir_dtype type) : dtype(type)
    {
        switch (type) {
        case WEIR_F16:
            name = "f16", exponent_bits = 5, mantissa_bits = 10, nan = 0x7fff, infinite = true, saturates = false;
            break;
        case WEIR_BF16:
            name = "bf16", exponent_bits = 8, mantissa_bits = 7, nan = 0x7fff, infinite = true, saturates = false;
            break;
        case WEIR_F8E4M3:
            name = "f8e4m3", exponent_bits = 4, mantissa_bits = 3, nan = 0x7f, infinite = false, saturates = true;
            break;
        default:
            name = "f8e5m2", exponent_bits = 5, mantissa_bits = 2, nan = 0x7f, infinite = true, saturates = true;
        }
        for (uint32_t code = 0; code < sign(); code++) {
            const double number = value(code);
            if (!std::isfinite(number)) {
                break;
            }
            positive.push_back(number);
        }
        for (int number = -3; number <= 3; number++) {
            small[number + 3] = nearest(number);
        }
    }

    uint32_t sign() const { return 1u << (exponent_bits + mantissa_bits); }
    uint32_t codes() const { return 2 * sign(); }

    double value(uint32_t code) const
    {
        const int bias = (1 << (exponent_bits - 1)) - 1;
        const int exponent = static_cast<int>(code % sign()) >> mantissa_bits;
        const int digits = static_cast<int>(code % (1u << mantissa_bits));
        const double direction = code >= sign() ? -1 : 1;
        const bool last = exponent == (1 << exponent_bits) - 1;
        if (last && infinite) {
            return digits == 0 ? direction * std::numeric_limits<double>::infinity() : std::nan("");
        }
        if (last && digits == (1 << mantissa_bits) - 1) {
            return std::nan("");
        }
        return direction * (exponent == 0 ? std::ldexp(digits, 1 - bias - mantissa_bits)
                                          : std::ldexp(digits + (1 << mantissa_bits), exponent - bias - mantissa_bits));
    }

    // The code of the nearest number; of two equally near ones, the even code.
    uint32_t nearest(double number) const
    {
        if (std::isnan(number)) {
            return nan;
        }
        const uint32_t negative = std::signbit(number) ? sign() : 0;
        const double size = std::fabs(number);
        const uint32_t largest = static_cast<uint32_t>(positive.size() - 1);
        if (std::isinf(size)) {
            return negative | (infinite ? largest + 1 : largest);
        }
        // The first number that is not below. The calls in std::lower_bound would cost much without optimization.
        const double *numbers = positive.data();
        uint32_t up = 0;
        for (uint32_t end = largest + 1; up < end;) {
            const uint32_t middle = (up + end) / 2;
            up = numbers[middle] < size ? middle + 1 : up;
            end = numbers[middle] < size ? end : middle;
        }
        if (up > largest) {
            const double next = positive[largest] + (positive[largest] - positive[largest - 1]);
            const bool beyond = size - positive[largest] >= next - size; // the largest code is odd if there is a next
                                                                         // one
            return negative | (beyond && !saturates ? largest + 1 : largest);
        }
        if (numbers[up] == size || up == 0) {
            return negative | up;
        }
        const double from_below = size - numbers[up - 1];
        const double to_above = numbers[up] - size;
        const bool round_up = from_below > to_above || (from_below == to_above && up % 2 == 0);
        return negative | (round_up ? up : up - 1);
    }
};

#endif
