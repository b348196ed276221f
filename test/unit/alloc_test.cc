// Zeroed, counted allocations that can be made to fail.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

extern "C" {
#include "src/host/base/alloc.h"
#include "src/host/base/refcount.h"
}

namespace {

TEST(Alloc, MemoryIsZeroedAndCounted)
{
    const int64_t before = weiri_alloc_alive();
    uint8_t *p = static_cast<uint8_t *>(weiri_alloc(100, 3));
    ASSERT_NE(p, nullptr);
    for (size_t i = 0; i < 300; i++) {
        EXPECT_EQ(p[i], 0u);
        p[i] = 0xff;
    }
    EXPECT_EQ(weiri_alloc_alive(), before + 1);
    weiri_free(p);
    EXPECT_EQ(weiri_alloc_alive(), before);
    weiri_free(nullptr);
    EXPECT_EQ(weiri_alloc_alive(), before);
}

TEST(Alloc, ZeroBytesAreNoFailure)
{
    const int64_t before = weiri_alloc_alive();
    void *a = weiri_alloc(0, 8);
    void *b = weiri_alloc(8, 0);
    void *c = weiri_realloc(nullptr, 0);
    EXPECT_NE(a, nullptr);
    EXPECT_NE(b, nullptr);
    ASSERT_NE(c, nullptr);
    c = weiri_realloc(c, 0);
    EXPECT_NE(c, nullptr);
    EXPECT_EQ(weiri_alloc_alive(), before + 3);
    weiri_free(a);
    weiri_free(b);
    weiri_free(c);
    EXPECT_EQ(weiri_alloc_alive(), before);
}

TEST(Alloc, OverflowAndImpossibleSizesFail)
{
    const int64_t before = weiri_alloc_alive();
    const size_t half = SIZE_MAX / 2 + 1;
    errno = 0;
    EXPECT_EQ(weiri_alloc(half, 2), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(weiri_alloc(half + 1, 2), nullptr); /* 2 bytes, if it wrapped */
    EXPECT_EQ(weiri_alloc(2, half + 1), nullptr);
    EXPECT_EQ(weiri_alloc(SIZE_MAX, SIZE_MAX), nullptr); /* 1 byte, if it wrapped */
    EXPECT_EQ(weiri_alloc(half, 1), nullptr);
    EXPECT_EQ(weiri_realloc(nullptr, SIZE_MAX), nullptr);
    EXPECT_EQ(weiri_alloc_alive(), before);
}

TEST(Alloc, ReallocKeepsContentAndCount)
{
    const int64_t before = weiri_alloc_alive();
    char *p = static_cast<char *>(weiri_realloc(nullptr, 4));
    ASSERT_NE(p, nullptr);
    std::memcpy(p, "abc", 4);
    p = static_cast<char *>(weiri_realloc(p, 100000));
    ASSERT_NE(p, nullptr);
    EXPECT_STREQ(p, "abc");
    EXPECT_EQ(weiri_alloc_alive(), before + 1);
    EXPECT_EQ(weiri_realloc(p, SIZE_MAX), nullptr);
    EXPECT_STREQ(p, "abc");
    EXPECT_EQ(weiri_alloc_alive(), before + 1);
    weiri_free(p);
    EXPECT_EQ(weiri_alloc_alive(), before);
}

TEST(Alloc, NthFailsOnceOfEveryKind)
{
    const int64_t before = weiri_alloc_alive();
    for (uint64_t n = 1; n <= 4; n++) {
        weiri_alloc_fail_nth(n);
        void *p[4] = { nullptr, nullptr, nullptr, nullptr };
        p[0] = weiri_alloc(1, 1);
        p[1] = weiri_realloc(nullptr, 10);
        p[2] = weiri_alloc(2, 2);
        p[3] = weiri_realloc(nullptr, 20);
        for (uint64_t i = 0; i < 4; i++) {
            EXPECT_EQ(p[i] == nullptr, i + 1 == n) << i << " of " << n;
            weiri_free(p[i]);
        }
        void *after = weiri_alloc(1, 1);
        EXPECT_NE(after, nullptr);
        weiri_free(after);
    }
    weiri_alloc_fail_nth(1);
    weiri_alloc_fail_nth(0);
    void *p = weiri_alloc(1, 1);
    EXPECT_NE(p, nullptr);
    weiri_free(p);
    EXPECT_EQ(weiri_alloc_alive(), before);
}

TEST(Alloc, FailedReallocLeavesTheOld)
{
    char *p = static_cast<char *>(weiri_alloc(1, 4));
    ASSERT_NE(p, nullptr);
    std::memcpy(p, "old", 4);
    weiri_alloc_fail_nth(1);
    EXPECT_EQ(weiri_realloc(p, 1000), nullptr);
    EXPECT_STREQ(p, "old");
    weiri_free(p);
}

TEST(Alloc, NthFailsOnceAmongThreads)
{
    const int64_t before = weiri_alloc_alive();
    const int threads = 4;
    const int each = 500;
    std::vector<int> failed(threads);
    weiri_alloc_fail_nth(threads * each / 2);
    std::vector<std::thread> pool;
    for (int t = 0; t < threads; t++) {
        pool.emplace_back([&failed, t] {
            for (int i = 0; i < each; i++) {
                void *p = weiri_alloc(1, 8);
                failed[t] += p == nullptr;
                weiri_free(p);
            }
        });
    }
    int sum = 0;
    for (int t = 0; t < threads; t++) {
        pool[t].join();
        sum += failed[t];
    }
    EXPECT_EQ(sum, 1);
    EXPECT_EQ(weiri_alloc_alive(), before);
}

TEST(Refcount, OnlyTheLastPutIsTheLast)
{
    weiri_refcount refs;
    weiri_refcount_init(&refs);
    weiri_refcount_get(&refs);
    weiri_refcount_get(&refs);
    EXPECT_FALSE(weiri_refcount_put(&refs));
    EXPECT_FALSE(weiri_refcount_put(&refs));
    EXPECT_TRUE(weiri_refcount_put(&refs));
}

} // namespace
