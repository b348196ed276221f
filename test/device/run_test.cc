// Moves of one run (weir/device/impl/run.h): exactly the run is written, and no byte outside the given memory is read.
#include <gtest/gtest.h>

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "weir/device/impl/run.h"

namespace {

constexpr char GUARD = 0x5a;

char byte_of(size_t i) { return static_cast<char>(i * 131 + i / 251 + 1); }

// Two pages between unreadable ones.
class Pages {
public:
    Pages()
    {
        page_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        map_ =
            static_cast<char *>(mmap(nullptr, 4 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        EXPECT_EQ(mprotect(map_, page_, PROT_NONE), 0);
        EXPECT_EQ(mprotect(map_ + 3 * page_, page_, PROT_NONE), 0);
        for (size_t i = 0; i < bytes(); i++) {
            begin()[i] = byte_of(i);
        }
    }
    ~Pages() { munmap(map_, 4 * page_); }
    Pages(const Pages &) = delete;
    Pages &operator=(const Pages &) = delete;
    char *begin() { return map_ + page_; }
    char *end() { return begin() + bytes(); }
    size_t bytes() const { return 2 * page_; }

private:
    size_t page_ = 0;
    char *map_ = nullptr;
};

enum Way { MOVE, UNITS, PUT };

// Copies by all lanes, one after the other, between guards. Returns what is wrong, or "".
std::string copies(Way way, Pages &pages, size_t from, size_t bytes, size_t shift, uint32_t lanes)
{
    alignas(128) static char room[128 + 8192 + 256];
    std::memset(room, GUARD, bytes + 512);
    char *dst = room + 128 + shift;
    const char *src = pages.begin() + from;
    for (uint32_t lane = 0; lane < lanes; lane++) {
        if (way == MOVE) {
            weir_run_move(dst, src, bytes, pages.begin(), pages.end(), lane, lanes);
        } else if (way == UNITS) {
            weir_run_move_units(dst, src, bytes, pages.begin(), pages.end(), lane, lanes);
        } else {
            weir_run_put(dst, src, bytes, lane, lanes);
        }
    }
    const std::string name = "run of " + std::to_string(bytes) + " from " + std::to_string(from) + " to " +
                             std::to_string(shift) + " by " + std::to_string(lanes) + " lanes: ";
    for (const char *at = room; at < dst + bytes + 128; at++) {
        const bool inside = at >= dst && at < dst + bytes;
        const char wanted = inside ? byte_of(from + static_cast<size_t>(at - dst)) : GUARD;
        if (*at != wanted) {
            return name + (inside ? "wrong byte" : "byte outside") + " at " + std::to_string(at - dst);
        }
    }
    return "";
}

class Runs : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Ways, Runs, ::testing::Values(MOVE, UNITS, PUT), [](const auto &info) {
    return std::string(info.param == MOVE ? "move" : info.param == UNITS ? "units" : "put");
});

TEST_P(Runs, EverySizeAndAlignment)
{
    Pages pages;
    for (size_t bytes = 1; bytes <= 4097; bytes += bytes < 150 ? 1 : 131) {
        for (size_t from = 0; from < 128; from += bytes < 40 ? 1 : 5) {
            const size_t shift = (from * 7 + bytes) % 32;
            const uint32_t lanes = 1u << ((from + bytes) % 6);
            ASSERT_EQ(copies(GetParam(), pages, from, bytes, shift, lanes), "");
        }
    }
}

TEST_P(Runs, EveryPairOfAlignments)
{
    Pages pages;
    for (const size_t bytes : { 1, 4, 15, 16, 17, 31, 33, 100, 128, 700 }) {
        for (size_t from = 0; from < 16; from++) {
            for (size_t shift = 0; shift < 16; shift++) {
                ASSERT_EQ(copies(GetParam(), pages, from, bytes, shift, 8), "");
            }
        }
    }
}

// The first and the last bytes of memory between unreadable pages.
TEST_P(Runs, StayInsideTheMemory)
{
    Pages pages;
    for (size_t bytes = 1; bytes < 300; bytes++) {
        ASSERT_EQ(copies(GetParam(), pages, 0, bytes, bytes % 16, 32), "");
        ASSERT_EQ(copies(GetParam(), pages, pages.bytes() - bytes, bytes, bytes % 16, 32), "");
    }
}

// Memory that begins and ends inside units. It ends where its allocation does, so that an address sanitizer notices a
// read behind it.
TEST(Run, TakesNoByteBesideTheMemory)
{
    for (size_t begin = 0; begin < 16; begin++) {
        for (size_t end = 33; end < 48; end++) {
            const std::unique_ptr<char[]> memory(new char[end]);
            for (size_t i = 0; i < end; i++) {
                memory[i] = i < begin ? GUARD : byte_of(i);
            }
            char dst[64] = {};
            const char *src = memory.get() + begin;
            for (uint32_t lane = 0; lane < 2; lane++) {
                weir_run_move_units(dst, src, end - begin, src, memory.get() + end, lane, 2);
            }
            ASSERT_EQ(std::memcmp(dst, src, end - begin), 0);
            ASSERT_EQ(dst[end - begin], 0);
        }
    }
}

} // namespace
