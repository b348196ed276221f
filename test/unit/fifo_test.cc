// Requests as words: every bit of every field is kept, and no bit changes the lap.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "weir/device/fifo.h"

namespace {

constexpr uint32_t REQUEST_BITS = 4 * 64 + 3 * 32 + 16;

// A request with only bit `bit` of all fields set.
weir_request with_bit(uint32_t bit)
{
    weir_request r = {};
    uint64_t *const longs[] = { &r.remote_offset, &r.local_offset, &r.bytes, &r.value };
    uint32_t *const words[] = { &r.remote, &r.local, &r.channel };
    if (bit < 256) {
        *longs[bit / 64] = uint64_t{ 1 } << bit % 64;
    } else if (bit < 352) {
        *words[(bit - 256) / 32] = 1u << bit % 32;
    } else {
        r.type = static_cast<uint16_t>(1u << (bit - 352));
    }
    return r;
}

weir_request inverse(weir_request r)
{
    r.remote_offset = ~r.remote_offset;
    r.local_offset = ~r.local_offset;
    r.bytes = ~r.bytes;
    r.value = ~r.value;
    r.remote = ~r.remote;
    r.local = ~r.local;
    r.channel = ~r.channel;
    r.type = static_cast<uint16_t>(~r.type);
    return r;
}

// Checks that the request is decoded as it was encoded, with the lap bits set and clear.
void expect_whole(const weir_request &request)
{
    uint64_t words[WEIR_FIFO_WORDS];
    weir_request back;
    weir_dev_request_encode(&request, words);
    for (uint64_t lap : { uint64_t{ 0 }, WEIR_FIFO_LAP }) {
        for (uint64_t &word : words) {
            EXPECT_EQ(word & WEIR_FIFO_LAP, 0u);
            word |= lap;
        }
        std::memset(static_cast<void *>(&back), 0xa5, sizeof back);
        weir_dev_request_decode(words, &back);
        EXPECT_EQ(std::memcmp(&request, &back, sizeof back), 0);
        for (uint64_t &word : words) {
            word &= ~WEIR_FIFO_LAP;
        }
    }
}

TEST(Request, EveryBitTravels)
{
    std::set<std::pair<uint32_t, uint64_t>> places;
    for (uint32_t bit = 0; bit < REQUEST_BITS; bit++) {
        SCOPED_TRACE(bit);
        weir_request request = with_bit(bit);
        expect_whole(request);
        expect_whole(inverse(request));
        uint64_t words[WEIR_FIFO_WORDS];
        uint32_t used = 0;
        weir_dev_request_encode(&request, words);
        for (uint32_t i = 0; i < WEIR_FIFO_WORDS; i++) {
            used += words[i] != 0;
            if (words[i] != 0) {
                EXPECT_EQ(words[i] & (words[i] - 1), 0u);
                EXPECT_TRUE(places.insert({ i, words[i] }).second);
            }
        }
        EXPECT_EQ(used, 1u);
    }
    expect_whole(weir_request{});
    expect_whole(inverse(weir_request{}));
}

// A slot is valid once all its words are written, each checked separately, whatever the lap before left.
TEST(Request, SlotsValidateThemselves)
{
    constexpr uint32_t count = 2;
    uint64_t slots[count * WEIR_FIFO_SLOT_WORDS] = {};
    uint64_t words[WEIR_FIFO_WORDS];
    weir_request out;
    for (uint64_t position = 0; position < 9; position++) {
        weir_request request = position % 3 == 0 ? weir_request{} : inverse(with_bit(static_cast<uint32_t>(position)));
        uint64_t *slot = slots + position % count * WEIR_FIFO_SLOT_WORDS;
        weir_dev_request_encode(&request, words);
        for (uint32_t i = 0; i < WEIR_FIFO_WORDS; i++) {
            // The words arrive in an order that depends on the position.
            uint32_t word = (i * 5 + static_cast<uint32_t>(position)) % WEIR_FIFO_WORDS;
            EXPECT_FALSE(weir_dev_fifo_read(slots, count, position, &out));
            slot[word] = words[word] | weir_dev_fifo_lap(position, count);
        }
        ASSERT_TRUE(weir_dev_fifo_read(slots, count, position, &out));
        EXPECT_EQ(std::memcmp(&request, &out, sizeof out), 0);
        EXPECT_FALSE(weir_dev_fifo_read(slots, count, position + count, &out));
    }
}

} // namespace
