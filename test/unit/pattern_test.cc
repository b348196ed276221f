// The pattern of tests' data (harness/pattern.h): words and bytes agree, and no wrong byte goes unseen.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "test/harness/pattern.h"

namespace {

// The least of what three threads find in `bytes` bytes.
template <typename Wrong> uint64_t least(uint64_t bytes, Wrong wrong)
{
    uint64_t found = bytes;
    for (uint32_t thread = 0; thread < 3; thread++) {
        found = std::min(found, wrong(weir_coop_part(thread, 3)));
    }
    return found;
}

TEST(Pattern, EveryWrongByteIsFound)
{
    const uint64_t seed = weirt_pattern_seed(3, 1000);
    for (uint64_t bytes = 0; bytes <= 50; bytes++) {
        const uint64_t at = 8 + bytes % 8;
        std::vector<char> data(at + bytes + 8, 0x33);
        for (uint32_t thread = 0; thread < 3; thread++) {
            weirt_pattern_fill(&data[at], bytes, seed, 0, weir_coop_part(thread, 3));
        }
        const auto wrong = [&](weir_coop team) { return weirt_pattern_wrong(&data[at], bytes, seed, team); };
        for (uint64_t i = 0; i < data.size(); i++) {
            const bool inside = i >= at && i < at + bytes;
            ASSERT_EQ(data[i], inside ? weirt_pattern(3, 1000, i - at) : 0x33) << i << " of " << bytes;
        }
        ASSERT_EQ(least(bytes, wrong), bytes);
        for (uint64_t i = 0; i < bytes; i++) {
            for (uint32_t bit = 0; bit < 8; bit++) {
                data[at + i] = static_cast<char>(data[at + i] ^ 1 << bit);
                ASSERT_EQ(least(bytes, wrong), i) << "bit " << bit << " of " << bytes;
                ASSERT_EQ(weirt_data_wrong(&data[at], bytes, 3, 1000), i);
                data[at + i] = static_cast<char>(data[at + i] ^ 1 << bit);
            }
        }
        data[at - 1] = data[at + bytes] = 0x44; // not part of what is compared
        ASSERT_EQ(least(bytes, wrong), bytes);
    }
}

TEST(Pattern, EveryByteThatIsNotTheSameIsFound)
{
    for (uint64_t bytes = 0; bytes <= 50; bytes++) {
        const uint64_t at = 8 + bytes % 8;
        std::vector<char> data(at + bytes + 8, 0x33);
        for (uint32_t thread = 0; thread < 3; thread++) {
            weirt_same_fill(&data[at], bytes, static_cast<char>(0xa5), weir_coop_part(thread, 3));
        }
        const auto wrong = [&](weir_coop team) {
            return weirt_same_wrong(&data[at], bytes, static_cast<char>(0xa5), team);
        };
        ASSERT_EQ(static_cast<uint64_t>(std::count(data.begin(), data.end(), static_cast<char>(0xa5))), bytes);
        ASSERT_EQ(least(bytes, wrong), bytes);
        for (uint64_t i = 0; i < bytes; i++) {
            data[at + i] ^= 0x40;
            ASSERT_EQ(least(bytes, wrong), i) << bytes;
            data[at + i] ^= 0x40;
        }
    }
}

// Senders, iterations and positions that are mixed up show in nearly every byte.
TEST(Pattern, OtherDataDiffers)
{
    const auto equal = [](uint32_t rank, uint64_t iteration, uint64_t shift) {
        int count = 0;
        for (uint64_t i = 0; i < 4096; i++) {
            count += weirt_pattern(0, 7, i) == weirt_pattern(rank, iteration, i + shift) ? 1 : 0;
        }
        return count;
    };
    EXPECT_EQ(equal(0, 7, 0), 4096);
    for (uint64_t by : { 1, 2, 7, 8, 9, 64, 256, 4096 }) {
        EXPECT_LT(equal(static_cast<uint32_t>(by), 7, 0), 64) << "rank";
        EXPECT_LT(equal(0, 7 + by, 0), 64) << "iteration";
        EXPECT_LT(equal(0, 7, by), 64) << "position";
    }
    std::vector<char> data(64);
    weirt_pattern_fill(data.data(), data.size(), weirt_pattern_seed(0, 7), UINT64_MAX, weir_coop_part(0, 1));
    for (uint64_t i = 0; i < data.size(); i++) {
        EXPECT_EQ(data[i], static_cast<char>(~weirt_pattern(0, 7, i)));
    }
}

} // namespace
