// Bounded reading and writing: exact bytes, every cut, garbled input.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

extern "C" {
#include "src/host/base/wire.h"
}

namespace {

// A message with a field of every kind.
struct message {
    uint8_t a = 0;
    uint16_t b = 0;
    uint32_t c = 0;
    uint64_t d = 0;
    uint8_t bytes[5] = {};
    char text[16] = {};
    uint16_t last = 0;
};

const size_t field_ends[] = { 1, 3, 7, 15, 20, 27, 29 }; // of `example`, whose text has 5 characters

message example()
{
    message m;
    m.a = 0x81;
    m.b = 0x8283;
    m.c = 0x84858687;
    m.d = 0x88898a8b8c8d8e8f;
    std::memcpy(m.bytes, "\x90\x91\x92\x93\x94", 5);
    std::strcpy(m.text, "hello");
    m.last = 0xa1a2;
    return m;
}

void write_message(weiri_writer *w, const message &m)
{
    weiri_write_u8(w, m.a);
    weiri_write_u16(w, m.b);
    weiri_write_u32(w, m.c);
    weiri_write_u64(w, m.d);
    weiri_write_bytes(w, m.bytes, sizeof m.bytes);
    weiri_write_string(w, m.text);
    weiri_write_u16(w, m.last);
}

message read_message(weiri_reader *r)
{
    message m;
    std::memset(m.bytes, 0xee, sizeof m.bytes);
    std::memset(m.text, 0xee, sizeof m.text);
    m.a = weiri_read_u8(r);
    m.b = weiri_read_u16(r);
    m.c = weiri_read_u32(r);
    m.d = weiri_read_u64(r);
    weiri_read_bytes(r, m.bytes, sizeof m.bytes);
    weiri_read_string(r, m.text, sizeof m.text);
    m.last = weiri_read_u16(r);
    return m;
}

std::vector<uint8_t> encode(const message &m)
{
    std::vector<uint8_t> out(100);
    weiri_writer w = weiri_writer_init(out.data(), out.size());
    write_message(&w, m);
    EXPECT_FALSE(w.failed);
    out.resize(w.size);
    return out;
}

// A copy of exactly `size` bytes on the heap, so the address sanitizer finds reads beyond it.
std::unique_ptr<uint8_t[]> exact(const std::vector<uint8_t> &data, size_t size)
{
    std::unique_ptr<uint8_t[]> copy(new uint8_t[size]);
    if (size != 0) {
        std::memcpy(copy.get(), data.data(), size);
    }
    return copy;
}

TEST(Wire, BytesAreLittleEndianAndPacked)
{
    const std::vector<uint8_t> expected = { 0x81, 0x83, 0x82, 0x87, 0x86, 0x85, 0x84, 0x8f, 0x8e, 0x8d,
                                            0x8c, 0x8b, 0x8a, 0x89, 0x88, 0x90, 0x91, 0x92, 0x93, 0x94,
                                            5,    0,    'h',  'e',  'l',  'l',  'o',  0xa2, 0xa1 };
    EXPECT_EQ(encode(example()), expected);
}

TEST(Wire, ReadGivesWhatWasWritten)
{
    const message m = example();
    const std::vector<uint8_t> data = encode(m);
    weiri_reader r = weiri_reader_init(data.data(), data.size());
    const message got = read_message(&r);
    EXPECT_TRUE(weiri_reader_done(&r));
    EXPECT_EQ(got.a, m.a);
    EXPECT_EQ(got.b, m.b);
    EXPECT_EQ(got.c, m.c);
    EXPECT_EQ(got.d, m.d);
    EXPECT_EQ(std::memcmp(got.bytes, m.bytes, sizeof m.bytes), 0);
    EXPECT_STREQ(got.text, m.text);
    EXPECT_EQ(got.last, m.last);
}

TEST(Wire, EveryCutFailsAndZeroesWhatIsMissing)
{
    const message m = example();
    const std::vector<uint8_t> data = encode(m);
    const uint8_t zero[5] = {};
    ASSERT_EQ(data.size(), field_ends[6]);
    for (size_t cut = 0; cut < data.size(); cut++) {
        const std::unique_ptr<uint8_t[]> part = exact(data, cut);
        weiri_reader r = weiri_reader_init(part.get(), cut);
        const message got = read_message(&r);
        EXPECT_TRUE(r.failed) << cut;
        EXPECT_FALSE(weiri_reader_done(&r)) << cut;
        EXPECT_LE(r.at, cut);
        EXPECT_EQ(got.a, cut >= field_ends[0] ? m.a : 0) << cut;
        EXPECT_EQ(got.b, cut >= field_ends[1] ? m.b : 0) << cut;
        EXPECT_EQ(got.c, cut >= field_ends[2] ? m.c : 0) << cut;
        EXPECT_EQ(got.d, cut >= field_ends[3] ? m.d : 0) << cut;
        EXPECT_EQ(std::memcmp(got.bytes, cut >= field_ends[4] ? m.bytes : zero, 5), 0) << cut;
        EXPECT_STREQ(got.text, cut >= field_ends[5] ? m.text : "") << cut;
        EXPECT_EQ(got.last, 0) << cut;
    }
}

TEST(Wire, BytesLeftOverAreNotDone)
{
    std::vector<uint8_t> data = encode(example());
    data.push_back(0);
    weiri_reader r = weiri_reader_init(data.data(), data.size());
    (void)read_message(&r);
    EXPECT_FALSE(r.failed);
    EXPECT_FALSE(weiri_reader_done(&r));
}

TEST(Wire, EmptyInputIsDoneUntilItIsRead)
{
    weiri_reader r = weiri_reader_init(nullptr, 0);
    EXPECT_TRUE(weiri_reader_done(&r));
    weiri_read_bytes(&r, nullptr, 0);
    EXPECT_TRUE(weiri_reader_done(&r));
    EXPECT_EQ(weiri_read_u8(&r), 0);
    EXPECT_FALSE(weiri_reader_done(&r));
}

TEST(Wire, FailureOfAReadIsSticky)
{
    const uint8_t data[3] = { 1, 2, 3 };
    weiri_reader r = weiri_reader_init(data, sizeof data);
    EXPECT_EQ(weiri_read_u32(&r), 0u);
    EXPECT_EQ(weiri_read_u8(&r), 0); // a byte would fit
    EXPECT_TRUE(r.failed);
}

TEST(Wire, EveryShortBufferFailsAndIsNotOverrun)
{
    const message m = example();
    const std::vector<uint8_t> data = encode(m);
    for (size_t capacity = 0; capacity < data.size(); capacity++) {
        const std::unique_ptr<uint8_t[]> buffer(new uint8_t[capacity]);
        weiri_writer w = weiri_writer_init(buffer.get(), capacity);
        write_message(&w, m);
        EXPECT_TRUE(w.failed) << capacity;
        ASSERT_LE(w.size, capacity);
        EXPECT_TRUE(std::equal(buffer.get(), buffer.get() + w.size, data.begin())) << capacity;
        const size_t size = w.size;
        weiri_write_u8(&w, 1);
        EXPECT_EQ(w.size, size) << capacity;
    }
}

TEST(Wire, StringsKeepTheirLimits)
{
    std::vector<uint8_t> data(2 + 65535);
    weiri_writer w = weiri_writer_init(data.data(), data.size());
    const std::string longer(70000, 'y');
    weiri_write_string(&w, longer.c_str());
    EXPECT_FALSE(w.failed);
    EXPECT_EQ(w.size, data.size());

    std::vector<char> text(65536, 'n');
    weiri_reader r = weiri_reader_init(data.data(), data.size());
    weiri_read_string(&r, text.data(), 65536);
    EXPECT_TRUE(weiri_reader_done(&r));
    EXPECT_EQ(std::string(text.data()), std::string(65535, 'y'));

    text.assign(65535, 'n');
    r = weiri_reader_init(data.data(), data.size());
    weiri_read_string(&r, text.data(), 65535);
    EXPECT_TRUE(r.failed);
    EXPECT_STREQ(text.data(), "");
}

TEST(Wire, EmptyStringNeedsRoomForItsNul)
{
    const uint8_t data[2] = { 0, 0 };
    char text[2] = { 'n', 'n' };
    weiri_reader r = weiri_reader_init(data, sizeof data);
    weiri_read_string(&r, text, 1);
    EXPECT_TRUE(weiri_reader_done(&r));
    EXPECT_EQ(text[0], '\0');
    EXPECT_EQ(text[1], 'n');
    r = weiri_reader_init(data, sizeof data);
    weiri_read_string(&r, text + 1, 0);
    EXPECT_TRUE(r.failed);
    EXPECT_EQ(text[1], 'n');
}

TEST(Wire, StringWithANulInsideFails)
{
    for (size_t at = 0; at < 3; at++) {
        uint8_t data[5] = { 3, 0, 'a', 'b', 'c' };
        data[2 + at] = 0;
        char text[8] = "old";
        weiri_reader r = weiri_reader_init(data, sizeof data);
        weiri_read_string(&r, text, sizeof text);
        EXPECT_TRUE(r.failed) << at;
        EXPECT_STREQ(text, "") << at;
    }
}

// Each message has one encoding: an accepted message must encode to the same bytes.
TEST(Wire, GarbledInputIsRefusedOrReadExactly)
{
    std::mt19937 random(20240607);
    const std::vector<uint8_t> good = encode(example());
    int accepted = 0;
    int refused = 0;
    for (int round = 0; round < 20000; round++) {
        std::vector<uint8_t> data = good;
        for (uint32_t n = random() % 4; n > 0; n--) {
            data[random() % data.size()] = static_cast<uint8_t>(random());
        }
        if (random() % 2 != 0) {
            data[20] = static_cast<uint8_t>(random() % 24); // the string's length
            data[21] = random() % 8 == 0 ? 0xff : 0;
        }
        data.resize(random() % 4 == 0 ? random() % 40 : 22u + data[20] + 2u, 'z');
        const std::unique_ptr<uint8_t[]> bytes = exact(data, data.size());
        weiri_reader r = weiri_reader_init(bytes.get(), data.size());
        const message got = read_message(&r);
        ASSERT_LE(r.at, data.size());
        ASSERT_LT(strnlen(got.text, sizeof got.text), sizeof got.text);
        if (weiri_reader_done(&r)) {
            accepted++;
            ASSERT_EQ(encode(got), data);
        } else {
            refused++;
        }
    }
    EXPECT_GT(accepted, 1000);
    EXPECT_GT(refused, 1000);
}

TEST(Wire, AnyBytesAreReadSafely)
{
    std::mt19937 random(7);
    for (int round = 0; round < 20000; round++) {
        std::vector<uint8_t> data(random() % 64);
        for (uint8_t &b : data) {
            b = static_cast<uint8_t>(random() % 4 == 0 ? random() : random() % 20);
        }
        const std::unique_ptr<uint8_t[]> bytes = exact(data, data.size());
        weiri_reader r = weiri_reader_init(bytes.get(), data.size());
        while (!r.failed) {
            char text[16];
            uint8_t raw[9];
            const size_t before = r.at;
            switch (random() % 6) {
            case 0:
                (void)weiri_read_u8(&r);
                break;
            case 1:
                (void)weiri_read_u16(&r);
                break;
            case 2:
                (void)weiri_read_u32(&r);
                break;
            case 3:
                (void)weiri_read_u64(&r);
                break;
            case 4:
                weiri_read_bytes(&r, raw, sizeof raw);
                break;
            default:
                weiri_read_string(&r, text, sizeof text);
                ASSERT_LT(strnlen(text, sizeof text), sizeof text);
            }
            ASSERT_LE(r.at, data.size());
            ASSERT_TRUE(r.failed || r.at > before);
        }
    }
}

} // namespace
