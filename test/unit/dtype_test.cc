// The sizes of the types of elements.

#include <gtest/gtest.h>

#include "weir/device/dtype.h"

namespace {

TEST(Dtype, EachTypeHasItsSize)
{
    const struct {
        uint32_t dtype;
        uint32_t bytes;
    } sizes[] = { { WEIR_F64, 8 },    { WEIR_F32, 4 },    { WEIR_F16, 2 }, { WEIR_BF16, 2 },
                  { WEIR_F8E4M3, 1 }, { WEIR_F8E5M2, 1 }, { WEIR_I8, 1 },  { WEIR_U8, 1 },
                  { WEIR_I32, 4 },    { WEIR_U32, 4 },    { WEIR_I64, 8 }, { WEIR_U64, 8 } };
    static_assert(sizeof sizes / sizeof sizes[0] == WEIR_DTYPES, "each type");
    for (const auto &size : sizes) {
        EXPECT_EQ(weir_dtype_bytes(size.dtype), size.bytes) << size.dtype;
    }
}

} // namespace
