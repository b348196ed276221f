// Element types: conversions against tables of all numbers of a format, and operations on words.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "test/collective/numbers.h"
#include "weir/device/reduce.h"

namespace {

// Checks conversion to `format` against the nearest number in the table of all numbers.
void round_is_right(const Format &format, float value)
{
    const uint32_t expected = format.nearest(value);
    const uint32_t got = weir_element_of_float(format.dtype, value);
    ASSERT_EQ(got, expected) << format.name << " of " << value;
}

void all_midpoints(const Format &format)
{
    const float inf = std::numeric_limits<float>::infinity();
    for (size_t i = 0; i + 1 < format.positive.size(); i++) {
        const double middle = (format.positive[i] + format.positive[i + 1]) / 2;
        const float exact = static_cast<float>(middle);
        // f32 has no numbers between bf16's last binade and its denormals.
        for (float value : { static_cast<float>(format.positive[i]), exact, std::nextafterf(exact, inf),
                             std::nextafterf(exact, 0.0f) }) {
            round_is_right(format, value);
            round_is_right(format, -value);
        }
    }
}

void large_numbers(const Format &format)
{
    const float largest = static_cast<float>(format.positive.back());
    const float inf = std::numeric_limits<float>::infinity();
    const float step = static_cast<float>(format.positive.back() - format.positive[format.positive.size() - 2]);
    for (float value : { largest, largest + step / 4, largest + step / 2, largest + step, 2 * largest, inf,
                         std::numeric_limits<float>::max() }) {
        round_is_right(format, value);
        round_is_right(format, -value);
    }
    round_is_right(format, std::numeric_limits<float>::quiet_NaN());
    round_is_right(format, std::numeric_limits<float>::denorm_min());
    round_is_right(format, 0.0f);
    round_is_right(format, -0.0f);
}

class Formats : public ::testing::TestWithParam<int> {};

TEST_P(Formats, AllCodesAreReadAndWrittenBack)
{
    const Format format(static_cast<weir_dtype>(GetParam()));
    for (uint32_t code = 0; code < format.codes(); code++) {
        const float value = weir_element_float(format.dtype, code);
        const double expected = format.value(code);
        if (std::isnan(expected)) {
            ASSERT_TRUE(std::isnan(value)) << format.name << " code " << code;
            ASSERT_EQ(weir_element_of_float(format.dtype, value), format.nan) << format.name << " code " << code;
        } else {
            ASSERT_EQ(static_cast<double>(value), expected) << format.name << " code " << code;
            ASSERT_EQ(weir_element_of_float(format.dtype, value), code) << format.name << " code " << code;
        }
    }
}

TEST_P(Formats, RoundingIsToNearestTiesToEven)
{
    const Format format(static_cast<weir_dtype>(GetParam()));
    all_midpoints(format);
    large_numbers(format);
}

INSTANTIATE_TEST_SUITE_P(Types, Formats, ::testing::Values(WEIR_F16, WEIR_BF16, WEIR_F8E4M3, WEIR_F8E5M2),
                         [](const auto &info) {
                             return std::string(Format(static_cast<weir_dtype>(info.param)).name);
                         });

uint64_t joined(uint32_t dtype, uint32_t op, std::vector<uint64_t> words)
{
    weir_reduction all;
    weir_reduce_first(&all, dtype, words[0]);
    for (size_t i = 1; i < words.size(); i++) {
        weir_reduce_next(&all, dtype, op, words[i]);
    }
    return weir_reduce_last(&all, dtype, op, static_cast<uint32_t>(words.size()));
}

TEST(Reduce, IntegersWrapAndAveragesAreExact)
{
    EXPECT_EQ(joined(WEIR_I8, WEIR_SUM, { 0x7f80ff01, 0x01ff01ff }), 0x807f0000u);
    EXPECT_EQ(joined(WEIR_I8, WEIR_AVG, { 0x7f80fffd, 0x7f8000fe }), 0x7f8000feu); // -5 / 2 is -2, -1 / 2 is 0
    EXPECT_EQ(joined(WEIR_U8, WEIR_AVG, { 0xfffe, 0xffff }), 0xfffeu);
    EXPECT_EQ(joined(WEIR_I32, WEIR_AVG, { 0x7fffffff, 0x7fffffff }), 0x7fffffffu);
    EXPECT_EQ(joined(WEIR_I32, WEIR_AVG, { 0xfffffffd80000000, 0xfffffffe80000000 }), 0xfffffffe80000000u);
    EXPECT_EQ(joined(WEIR_U32, WEIR_PROD, { 0x00010001ffffffff, 0x0001000100000002 }), 0x00020001fffffffeu);
    EXPECT_EQ(joined(WEIR_I64, WEIR_AVG, { static_cast<uint64_t>(-7), 0 }), static_cast<uint64_t>(-3));
    EXPECT_EQ(joined(WEIR_U64, WEIR_AVG, { UINT64_MAX - 1, 0 }), UINT64_MAX / 2);
    EXPECT_EQ(joined(WEIR_U64, WEIR_SUM, { UINT64_MAX, 2 }), 1u);
}

TEST(Reduce, OrderIsThatOfTheSign)
{
    EXPECT_EQ(joined(WEIR_I8, WEIR_MIN, { 0xff01, 0x01ff }), 0xffffu);
    EXPECT_EQ(joined(WEIR_U8, WEIR_MIN, { 0xff01, 0x01ff }), 0x0101u);
    EXPECT_EQ(joined(WEIR_I32, WEIR_MAX, { 0xffffffff00000001, 0x0000000180000000 }), 0x0000000100000001u);
    EXPECT_EQ(joined(WEIR_U32, WEIR_MAX, { 0xffffffff00000001, 0x0000000180000000 }), 0xffffffff80000000u);
    EXPECT_EQ(joined(WEIR_I64, WEIR_MAX, { UINT64_MAX, 0 }), 0u);
    EXPECT_EQ(joined(WEIR_U64, WEIR_MAX, { UINT64_MAX, 0 }), UINT64_MAX);
}

TEST(Reduce, HalvesAreRoundedOnce)
{
    // 2048 + 1 + 1: rounded after each step it would stay 2048 in f16.
    EXPECT_EQ(joined(WEIR_F16, WEIR_SUM, { 0x6800, 0x3c00, 0x3c00 }), 0x6801u);
    EXPECT_EQ(joined(WEIR_BF16, WEIR_SUM, { 0x4380, 0x3f80, 0x3f80 }), 0x4381u);
    // f16 overflows to infinity, F8 stays at its largest number, which is not an infinity.
    EXPECT_EQ(joined(WEIR_F16, WEIR_SUM, { 0x7bff, 0x7bff }), 0x7c00u);
    EXPECT_EQ(joined(WEIR_F8E4M3, WEIR_SUM, { 0x7e, 0x7e }), 0x7eu);
    EXPECT_EQ(joined(WEIR_F8E5M2, WEIR_SUM, { 0xfb, 0xfb }), 0xfbu);
    EXPECT_EQ(joined(WEIR_F8E5M2, WEIR_SUM, { 0x7c, 0x01 }), 0x7cu);
}

TEST(Reduce, ProductsAndAveragesOfF8AreRoundedOnce)
{
    // 1.25^3 is nearest to 2, and 1.5^3 to 3.5. Rounded after each step they would be 1.875 and 3.
    EXPECT_EQ(joined(WEIR_F8E4M3, WEIR_PROD, { 0x3a, 0x3a, 0x3a }), 0x40u);
    EXPECT_EQ(joined(WEIR_F8E5M2, WEIR_PROD, { 0x3e, 0x3e, 0x3e }), 0x43u);
    // The sum is not cut to the largest number before it is divided.
    EXPECT_EQ(joined(WEIR_F8E4M3, WEIR_AVG, { 0x7e, 0x7e, 0x7e }), 0x7eu);
    EXPECT_EQ(joined(WEIR_F8E5M2, WEIR_AVG, { 0xfb, 0xfb, 0xfb }), 0xfbu);
    // A third of 1 lies between 0.328125 and 0.34375.
    EXPECT_EQ(joined(WEIR_F8E4M3, WEIR_AVG, { 0x38, 0x00, 0x00 }), 0x2bu);
    EXPECT_EQ(joined(WEIR_F8E4M3, WEIR_PROD, { 0x7e, 0xfe }), 0xfeu);
    EXPECT_EQ(joined(WEIR_F8E5M2, WEIR_PROD, { 0x7b, 0xfb }), 0xfbu);
    EXPECT_EQ(joined(WEIR_F8E5M2, WEIR_PROD, { 0x7c, 0x00 }), 0x7fu); // infinity by 0
}

TEST(Reduce, NaNIsLeastAndLargest)
{
    const uint64_t nan = 0x7fc00000;
    const uint64_t one = 0x3f800000;
    for (uint32_t op : { WEIR_MIN, WEIR_MAX, WEIR_SUM }) {
        for (const auto &words : { std::vector<uint64_t>{ nan, one }, std::vector<uint64_t>{ one, nan } }) {
            const float value = weir_arch_float_of_bits(static_cast<uint32_t>(joined(WEIR_F32, op, words)));
            EXPECT_TRUE(std::isnan(value)) << op;
        }
        EXPECT_EQ(joined(WEIR_F8E4M3, op, { 0x7f, 0x38 }) & 0xff, 0x7fu) << op;
    }
}

} // namespace
