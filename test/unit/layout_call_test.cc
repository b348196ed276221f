// Calls of layouts: refusals and their texts, no allocations, and memory of more than 4 GiB.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <sys/mman.h>

extern "C" {
#include "src/host/base/alloc.h"
#include "weir/weir.h"
}

namespace {

class LayoutCall : public ::testing::Test {
protected:
    void SetUp() override
    {
        ASSERT_EQ(weir_device_open("cpu:0", nullptr, &device), WEIR_OK);
        ASSERT_EQ(weir_stream_create(device, &stream), WEIR_OK);
        ASSERT_EQ(weir_layout_create_bytes(8, &run), WEIR_OK);
        ASSERT_EQ(weir_layout_create_hvector(10, 1, 24, run, &rows), WEIR_OK);
        const int64_t places[] = { 0, 9, 100 };
        ASSERT_EQ(weir_layout_create_hindexed_block(3, 1, places, run, &irregular), WEIR_OK);
    }
    void TearDown() override
    {
        weir_layout_destroy(irregular);
        weir_layout_destroy(rows);
        weir_layout_destroy(run);
        weir_stream_destroy(device, stream);
        weir_device_close(device);
    }
    weir_status pack(const weir_layout *layout, uint64_t count, uint64_t offset, uint64_t bytes)
    {
        weir_layout_opts opts = WEIR_OPTS(weir_layout_opts);
        opts.offset = offset;
        opts.bytes = bytes;
        return weir_layout_pack(device, layout, count, wide, packed, &opts, stream);
    }
    static void expect_text(const char *part)
    {
        EXPECT_NE(std::string(weir_last_error()).find(part), std::string::npos) << weir_last_error();
    }
    void finish() { ASSERT_EQ(weir_stream_wait(device, stream, 0), WEIR_OK); }

    weir_device *device = nullptr;
    void *stream = nullptr;
    weir_layout *run = nullptr;
    weir_layout *rows = nullptr; // 80 packed bytes
    weir_layout *irregular = nullptr;
    char wide[512] = {};
    char packed[512] = {};
};

TEST_F(LayoutCall, APartBeyondThePackedBytesIsRefused)
{
    EXPECT_EQ(pack(rows, 1, 80, 1), WEIR_ERR_RANGE);
    expect_text("weir_layout_pack: 1 bytes from 80 on, of 80 packed bytes");
    EXPECT_EQ(pack(rows, 2, 161, 0), WEIR_ERR_RANGE);
    EXPECT_EQ(pack(rows, 1, 8, UINT64_MAX), WEIR_ERR_RANGE);
    EXPECT_EQ(pack(rows, UINT64_MAX, 0, 1), WEIR_ERR_RANGE);
}

TEST_F(LayoutCall, NothingIsLaunchedForNoBytes)
{
    EXPECT_EQ(weir_layout_pack(device, rows, 0, nullptr, nullptr, nullptr, stream), WEIR_OK);
    EXPECT_EQ(pack(rows, 1, 80, 0), WEIR_OK);
    weir_layout *none = nullptr;
    ASSERT_EQ(weir_layout_create_bytes(0, &none), WEIR_OK);
    EXPECT_EQ(weir_layout_unpack(device, none, 7, nullptr, nullptr, nullptr, stream), WEIR_OK);
    EXPECT_EQ(weir_layout_copy(device, none, 7, nullptr, none, 1, nullptr, nullptr, stream), WEIR_OK);
    weir_layout_destroy(none);
}

TEST_F(LayoutCall, PointersThatAreNullAreNamed)
{
    EXPECT_EQ(weir_layout_pack(device, rows, 1, nullptr, packed, nullptr, stream), WEIR_ERR_INVALID);
    expect_text("weir_layout_pack: src is NULL");
    EXPECT_EQ(weir_layout_unpack(device, rows, 1, wide, nullptr, nullptr, stream), WEIR_ERR_INVALID);
    expect_text("weir_layout_unpack: packed is NULL");
    EXPECT_EQ(weir_layout_copy(device, rows, 1, nullptr, rows, 1, wide, nullptr, stream), WEIR_ERR_INVALID);
    expect_text("weir_layout_copy: dst is NULL");
    EXPECT_EQ(weir_layout_copy(device, rows, 1, wide, nullptr, 1, wide, nullptr, stream), WEIR_ERR_INVALID);
    expect_text("weir_layout_copy: from is NULL");
}

TEST_F(LayoutCall, LayoutsOfUnequalSizesAreNotCopied)
{
    EXPECT_EQ(weir_layout_copy(device, rows, 3, wide, run, 29, wide, nullptr, stream), WEIR_ERR_INVALID);
    expect_text("weir_layout_copy: to has 240 packed bytes, but from has 232");
}

TEST_F(LayoutCall, AnIrregularLayoutMustBeCommitted)
{
    EXPECT_EQ(pack(irregular, 1, 0, 0), WEIR_ERR_INVALID);
    expect_text("not committed to");
    ASSERT_EQ(weir_layout_commit(irregular, device), WEIR_OK);
    std::memcpy(wide + 9, "abcdefgh", 8);
    EXPECT_EQ(pack(irregular, 1, 0, 0), WEIR_OK);
    finish();
    EXPECT_EQ(std::string(packed + 8, 8), "abcdefgh");
}

// The CPU device allocates the launch in its queue, which is the first and only allocation.
TEST_F(LayoutCall, ACallAllocatesNothing)
{
    ASSERT_EQ(weir_layout_commit(irregular, device), WEIR_OK);
    weir_layout_opts opts = WEIR_OPTS(weir_layout_opts);
    opts.offset = 3;
    opts.bytes = 17;
    const std::function<weir_status()> calls[] = {
        [&] { return weir_layout_pack(device, rows, 1, wide, packed, &opts, stream); },
        [&] { return weir_layout_pack(device, irregular, 1, wide, packed, &opts, stream); },
        [&] { return weir_layout_unpack(device, rows, 1, wide, packed, &opts, stream); },
        [&] { return weir_layout_unpack(device, irregular, 1, wide, packed, &opts, stream); },
        [&] { return weir_layout_copy(device, run, 10, packed, rows, 1, wide, &opts, stream); },
        [&] { return weir_layout_copy(device, irregular, 1, wide, run, 3, packed, &opts, stream); },
    };
    for (const auto &call : calls) {
        ASSERT_EQ(call(), WEIR_OK) << weir_last_error(); // the first launch loads the kernel
        finish();
        weiri_alloc_fail_nth(1);
        EXPECT_EQ(call(), WEIR_ERR_NOMEM);
        expect_text("weir_launch");
        weiri_alloc_fail_nth(2);
        const weir_status status = call();
        weiri_alloc_fail_nth(0);
        EXPECT_EQ(status, WEIR_OK) << weir_last_error();
        finish();
    }
}

// Memory of which only the touched pages exist.
class Sparse {
public:
    explicit Sparse(uint64_t bytes)
        : size(bytes),
          memory(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))
    {
    }
    ~Sparse() { munmap(memory, size); }
    Sparse(const Sparse &) = delete;
    Sparse &operator=(const Sparse &) = delete;
    [[nodiscard]] bool ready() const { return memory != MAP_FAILED; }
    [[nodiscard]] char *data() const { return static_cast<char *>(memory); }

private:
    uint64_t size;
    void *memory;
};

char value_of(uint64_t i) { return static_cast<char>(i * 37 + i / 200 + 1); }

TEST_F(LayoutCall, StridesOfMoreThan4GiB)
{
    constexpr int64_t STRIDE = (int64_t{ 5 } << 30) + 3;
    const Sparse memory(static_cast<uint64_t>(STRIDE) * 3 + 4096);
    weir_layout *far = nullptr;
    ASSERT_TRUE(memory.ready());
    ASSERT_EQ(weir_layout_create_hvector(4, 1, -STRIDE, rows, &far), WEIR_OK);
    char *last = memory.data() + 3 * STRIDE;
    std::vector<char> wanted;
    for (uint64_t i = 0; i < 320; i++) {
        last[static_cast<int64_t>(i % 80 / 8 * 24 + i % 8) - static_cast<int64_t>(i / 80) * STRIDE] = value_of(i);
        wanted.push_back(value_of(i));
    }
    ASSERT_EQ(weir_layout_pack(device, far, 1, last, packed, nullptr, stream), WEIR_OK) << weir_last_error();
    finish();
    EXPECT_EQ(std::vector<char>(packed, packed + 320), wanted);
    std::memset(packed, 'x', 320);
    ASSERT_EQ(weir_layout_unpack(device, far, 1, last, packed, nullptr, stream), WEIR_OK) << weir_last_error();
    finish();
    EXPECT_EQ(last[-3 * STRIDE + 9 * 24 + 7], 'x');
    EXPECT_EQ(last[-3 * STRIDE + 9 * 24 + 8], '\0');
    weir_layout_destroy(far);
}

// Parts of more than 4 GiB of packed bytes by each call, beside the contiguous memory that these bytes make.
class LayoutFar : public LayoutCall {
protected:
    static constexpr uint64_t PART = 2500;
    using place_of = std::function<uint64_t(uint64_t)>;

    // The bytes of the part, beside those in front of it and behind it, which are 0.
    static std::vector<char> around(const Sparse &memory, uint64_t offset, const place_of &place)
    {
        std::vector<char> out;
        for (uint64_t i = 0; i < PART; i++) {
            const uint64_t at = place(offset + i);
            out.push_back(memory.data()[at]);
            if (i == 0 || at != place(offset + i - 1) + 1) {
                out.push_back(at == 0 ? '\0' : memory.data()[at - 1]);
            }
            if (i + 1 == PART || at + 1 != place(offset + i + 1)) {
                out.push_back(memory.data()[at + 1]);
            }
        }
        return out;
    }
    static void fill(const Sparse &memory, uint64_t offset, const place_of &place, uint64_t seed)
    {
        for (uint64_t i = 0; i < PART; i++) {
            memory.data()[place(offset + i)] = seed == 0 ? '\0' : value_of(i + seed);
        }
    }
    void expect_parts(weir_layout *layout, uint64_t span, const std::vector<uint64_t> &offsets, const place_of &place)
    {
        weir_layout_info info;
        weir_layout_get_info(layout, &info);
        const Sparse wide(span + 1);
        const Sparse dense(info.size + 1);
        const auto same = [](uint64_t at) { return at; };
        weir_layout *row = nullptr;
        ASSERT_TRUE(wide.ready() && dense.ready());
        ASSERT_EQ(weir_layout_create_bytes(info.size, &row), WEIR_OK);
        ASSERT_EQ(weir_layout_commit(layout, device), WEIR_OK) << weir_last_error();
        for (const uint64_t offset : offsets) {
            SCOPED_TRACE(offset);
            weir_layout_opts opts = WEIR_OPTS(weir_layout_opts);
            opts.offset = offset;
            opts.bytes = PART;
            const auto moves = [&](const Sparse &from, const place_of &from_place, const Sparse &to,
                                   const place_of &to_place, auto call) {
                fill(from, offset, from_place, 0);
                fill(to, offset, to_place, 7);
                const std::vector<char> wanted = around(to, offset, to_place);
                fill(to, offset, to_place, 0);
                fill(from, offset, from_place, 7);
                EXPECT_EQ(call(), WEIR_OK) << weir_last_error();
                finish();
                EXPECT_EQ(around(to, offset, to_place), wanted);
            };
            char *all = wide.data();
            char *part = dense.data() + offset;
            moves(wide, place, dense, same,
                  [&] { return weir_layout_pack(device, layout, 1, all, part, &opts, stream); });
            moves(dense, same, wide, place,
                  [&] { return weir_layout_unpack(device, layout, 1, all, part, &opts, stream); });
            moves(wide, place, dense, same,
                  [&] { return weir_layout_copy(device, row, 1, dense.data(), layout, 1, all, &opts, stream); });
            moves(dense, same, wide, place,
                  [&] { return weir_layout_copy(device, layout, 1, all, row, 1, dense.data(), &opts, stream); });
        }
        weir_layout_destroy(row);
    }
};

constexpr uint64_t GiB = uint64_t{ 1 } << 30;

TEST_F(LayoutFar, PartsOfRows)
{
    constexpr uint64_t RUN = 1000;
    constexpr uint64_t STRIDE = 1030;
    constexpr uint64_t COUNT = 5 * GiB / RUN;
    weir_layout *row = nullptr;
    weir_layout *large = nullptr;
    ASSERT_EQ(weir_layout_create_bytes(RUN, &row), WEIR_OK);
    ASSERT_EQ(weir_layout_create_hvector(COUNT, 1, STRIDE, row, &large), WEIR_OK);
    expect_parts(large, COUNT * STRIDE, { 0, 2 * GiB - 700, 4 * GiB - 5, COUNT * RUN - PART },
                 [](uint64_t at) { return at / RUN * STRIDE + at % RUN; });
    weir_layout_destroy(large);
    weir_layout_destroy(row);
}

TEST_F(LayoutFar, PartsOfAPieceList)
{
    const uint64_t lengths[] = { 2 * GiB + 5, 9, 2 * GiB - 3, GiB };
    const int64_t places[] = { 3 * GiB + 77, 0, 100, 5 * GiB + 90 };
    weir_layout *byte = nullptr;
    weir_layout *list = nullptr;
    weir_layout_info info;
    ASSERT_EQ(weir_layout_create_bytes(1, &byte), WEIR_OK);
    ASSERT_EQ(weir_layout_create_hindexed(4, lengths, places, byte, &list), WEIR_OK);
    weir_layout_get_info(list, &info);
    ASSERT_EQ(info.pieces, 4U);
    expect_parts(list, 6 * GiB + 90, { 0, 2 * GiB - 700, 4 * GiB - 5, 5 * GiB + 11 - PART }, [&](uint64_t at) {
        size_t piece = 0;
        while (at >= lengths[piece]) {
            at -= lengths[piece++];
        }
        return static_cast<uint64_t>(places[piece]) + at;
    });
    weir_layout_destroy(list);
    weir_layout_destroy(byte);
}

} // namespace
