// Stripes over several queue pairs of one NIC or of two, at one end or at both.
#include <atomic>
#include <thread>
#include <vector>

#include "test/ib/ends.h"

using namespace weirt_ib;

namespace {

const uint64_t threshold = 256 << 10; // shorter transfers are not cut

// WEIR_IB_RAILS of the two ends.
struct rails {
    const char *a, *b;
};

class IbStripe : public IbQueue, public ::testing::WithParamInterface<rails> {
protected:
    void open(uint64_t bytes)
    {
        setenv("WEIR_IB_RAILS", GetParam().a, 1);
        ASSERT_TRUE(a.open(0, bytes)) << weir_last_error();
        setenv("WEIR_IB_RAILS", GetParam().b, 1);
        ASSERT_TRUE(b.open(1, bytes)) << weir_last_error();
        ASSERT_TRUE(a.join(b.own())) << weir_last_error();
        ASSERT_TRUE(b.join(a.own())) << weir_last_error();
    }
};

std::string rails_name(const ::testing::TestParamInfo<rails> &info)
{
    return std::string(info.param.a) + "_" + info.param.b;
}

INSTANTIATE_TEST_SUITE_P(Rails, IbStripe,
                         ::testing::Values(rails{ "1x4", "1x4" }, rails{ "2x2", "2x2" }, rails{ "2x2", "1x3" },
                                           rails{ "2x1", "1x1" }),
                         rails_name);

// Sizes around the threshold, by put and by get, from and to unaligned addresses.
TEST_P(IbStripe, TransfersOfAllSizes)
{
    const uint64_t most = 1000003;
    open(most + 8192);
    uint64_t round = 0;
    for (uint64_t n : { uint64_t(0), uint64_t(1), threshold - 1, threshold, threshold + 1, most }) {
        const uint64_t from = 13 * round, to = 4096 - 7 * round;
        for (const bool put : { true, false }) {
            round++;
            const end &source = put ? a : b, &target = put ? b : a;
            source.fill(from, n, round);
            memset(target.bytes(), 0, n + 8192);
            ASSERT_EQ(put ? a.put(to, from, n) : a.get(to, from, n), WEIR_OK) << weir_last_error();
            ASSERT_EQ(a.queue->posted, round);
            ASSERT_EQ(a.wait(round), WEIR_OK) << weir_last_error();
            ASSERT_EQ(target.wrong(to, n, round), 0u) << n;
            ASSERT_EQ(target.nonzero(0, to) + target.nonzero(to + n, 64), 0u) << n;
        }
    }
}

// A stream of messages into a ring of slots: each is a long put, a short put and a signal. The receiver checks every
// byte when it sees the signal. The sender does not wait between them, so signals are held while puts go on.
TEST_P(IbStripe, DataBeforeSignal)
{
    // The longest give each queue pair more than Soft-RoCE sends at once.
    const uint64_t slots = 3, slot = 3 << 20, ring = 4096, rounds = 12;
    open(ring + slots * slot);
    std::atomic<uint64_t> wrong{ 0 }, lost{ 0 };
    auto long_bytes = [&](uint64_t r) {
        return r * 7919 + (r % 4 == 0 ? 1 : r % 4 == 1 ? threshold : uint64_t(5) << 19);
    };
    std::thread receiver([&] {
        for (uint64_t r = 1; r <= rounds && lost == 0; r++) {
            const uint64_t at = ring + r % slots * slot;
            if (!b.await(0, r)) {
                lost = r;
                return;
            }
            wrong += b.wrong(at, long_bytes(r), r) + b.wrong(at + slot - 5000, 4999, r + 1);
            if (b.value(8, r) != WEIR_OK || b.wait_all() != WEIR_OK) {
                lost = r;
            }
        }
    });
    uint64_t before = 0;
    for (uint64_t r = 1; r <= rounds && lost == 0; r++) {
        const uint64_t at = ring + r % slots * slot, give_up = weirt_now_ms() + weirt_timeout_ms();
        while (__atomic_load_n(a.word(8), __ATOMIC_ACQUIRE) + slots < r && lost == 0) {
            EXPECT_GE(ops->poll(a.queue), 0) << weir_last_error();
            EXPECT_GE(a.queue->completed, before);
            before = a.queue->completed;
            lost = weirt_now_ms() > give_up ? r : lost.load();
        }
        a.fill(at, long_bytes(r), r);
        a.fill(at + slot - 5000, 4999, r + 1);
        EXPECT_EQ(a.put(at, at, long_bytes(r)), WEIR_OK) << weir_last_error();
        EXPECT_EQ(a.put(at + slot - 5000, at + slot - 5000, 4999), WEIR_OK) << weir_last_error();
        EXPECT_EQ(a.value(0, r), WEIR_OK) << weir_last_error();
    }
    EXPECT_EQ(a.wait_all(), WEIR_OK) << weir_last_error();
    receiver.join();
    EXPECT_EQ(lost, 0u);
    EXPECT_EQ(wrong, 0u);
    EXPECT_EQ(a.queue->posted, 3 * rounds);
    EXPECT_EQ(a.queue->completed, 3 * rounds);
}

// Behind a stripe, values and adds keep their order among each other, while short puts go on and are counted in order.
TEST_P(IbStripe, ValuesAndAddsBehindAStripe)
{
    open(2 * threshold);
    for (uint64_t r = 1; r <= 3; r++) {
        const uint64_t first = a.queue->posted;
        a.fill(4096, threshold, r);
        ASSERT_EQ(a.put(4096, 4096, threshold), WEIR_OK) << weir_last_error();
        for (uint64_t i = 1; i <= 20; i++) {
            ASSERT_EQ(a.value(0, 100 * r + i), WEIR_OK) << weir_last_error();
            ASSERT_EQ(a.add(8, i), WEIR_OK) << weir_last_error();
            ASSERT_EQ(a.put(64 + 8 * i, 0, 8), WEIR_OK) << weir_last_error();
        }
        ASSERT_EQ(a.value(16, r), WEIR_OK) << weir_last_error();
        ASSERT_EQ(a.queue->posted, first + 62);
        ASSERT_TRUE([&] {
            const uint64_t give_up = weirt_now_ms() + weirt_timeout_ms();
            while (__atomic_load_n(b.word(16), __ATOMIC_ACQUIRE) != r && weirt_now_ms() < give_up) {
                (void)ops->poll(a.queue);
            }
            return *b.word(16) == r;
        }());
        EXPECT_EQ(b.wrong(4096, threshold, r), 0u);
        EXPECT_EQ(*b.word(0), 100 * r + 20);
        EXPECT_EQ(*b.word(8), r * 210);
        ASSERT_EQ(a.wait_all(), WEIR_OK) << weir_last_error();
        ASSERT_EQ(a.queue->completed, first + 62);
    }
}

TEST_P(IbStripe, MorePostsThanRoom)
{
    open(2 * threshold);
    uint32_t busy = 0;
    ASSERT_EQ(a.put(4096, 4096, threshold), WEIR_OK) << weir_last_error();
    for (uint32_t i = 0; i < 5000 && busy == 0; i++) {
        const uint64_t before = a.queue->posted;
        const weir_status status = ops->value(a.queue, a.remote, 8 * (i % 100), i, 8);
        busy += status == WEIR_ERR_BUSY;
        ASSERT_TRUE(status == WEIR_OK || status == WEIR_ERR_BUSY) << weir_last_error();
        ASSERT_EQ(a.queue->posted, before + (status == WEIR_OK));
    }
    ASSERT_EQ(busy, 1u);
    for (uint64_t i = 0; i < 1000; i++) {
        ASSERT_EQ(a.value(8 * (i % 100), i), WEIR_OK) << weir_last_error();
    }
    ASSERT_EQ(a.wait_all(), WEIR_OK) << weir_last_error();
    for (uint64_t i = 0; i < 100; i++) {
        ASSERT_EQ(*b.word(8 * i), 900 + i);
    }
}

class IbStripes : public IbStripe {};
INSTANTIATE_TEST_SUITE_P(Rails, IbStripes, ::testing::Values(rails{ "2x2", "2x2" }), rails_name);

// One thread posts, another polls.
TEST_P(IbStripes, PolledByAnother)
{
    open(2 * threshold);
    std::atomic<bool> stop{ false };
    std::atomic<int> failures{ 0 };
    std::thread poller([&] {
        while (!stop) {
            failures += ops->poll(a.queue) < 0;
        }
    });
    a.fill(4096, threshold, 1);
    for (uint64_t i = 1; i <= 10; i++) {
        EXPECT_EQ(a.put(4096, 4096, threshold), WEIR_OK) << weir_last_error();
        EXPECT_EQ(a.value(0, i), WEIR_OK) << weir_last_error();
    }
    EXPECT_EQ(a.wait_all(), WEIR_OK) << weir_last_error();
    stop = true;
    poller.join();
    EXPECT_EQ(failures, 0);
    EXPECT_EQ(*b.word(0), 10u);
    EXPECT_EQ(b.wrong(4096, threshold, 1), 0u);
}

// A failed queue pair fails its queue, with the error text of the pair.
TEST_P(IbStripes, OneRailFails)
{
    open(2 * threshold);
    pair other;
    ASSERT_NO_FATAL_FAILURE(other.open(a, b));
    weiri_key key = b.region->key;
    key.bytes[8] ^= 0x5a; // of the second NIC's rkey
    weiri_remote *wrong = nullptr;
    ASSERT_EQ(ops->remote_open(a.domain, &key, nullptr, &wrong), WEIR_OK);
    // Short transfers use only the first queue pair.
    ASSERT_EQ(ops->put(other.left, wrong, 0, a.region, 0, 8), WEIR_OK) << weir_last_error();
    ASSERT_EQ(ops->put(other.left, wrong, 0, a.region, 0, threshold), WEIR_OK) << weir_last_error();
    ASSERT_EQ(ops->value(other.left, a.remote, 8, 1, 8), WEIR_OK) << weir_last_error();
    EXPECT_EQ(wait_failure(other.left), WEIR_ERR_REMOTE);
    EXPECT_TRUE(says("rxe1 port 1") && says("remote access error")) << weir_last_error();
    EXPECT_LE(other.left->completed, 1u);
    EXPECT_EQ(ops->put(other.left, a.remote, 0, a.region, 0, 8), WEIR_ERR_REMOTE);
    EXPECT_TRUE(says("remote access error")) << weir_last_error();
    EXPECT_EQ(ops->poll(other.left), WEIR_ERR_REMOTE);
    // Held words were never posted, and other queues go on.
    EXPECT_EQ(*b.word(8), 0u);
    a.fill(64, threshold, 5);
    EXPECT_EQ(a.put(64, 64, threshold), WEIR_OK) << weir_last_error();
    EXPECT_EQ(a.wait_all(), WEIR_OK) << weir_last_error();
    EXPECT_EQ(b.wrong(64, threshold, 5), 0u);
    ops->remote_close(wrong);
    other.close();
}

TEST_P(IbStripes, WhatIsNoNumberOfRails)
{
    for (const char *text : { "1", "0x1", "1x0", "5x1", "1x9", "3x3", "4x4", "2*2", "x", "1x10" }) {
        weir_device *device = nullptr;
        weiri_domain *domain = nullptr;
        setenv("WEIR_IB_RAILS", text, 1);
        ASSERT_EQ(weir_device_open("cpu:0", nullptr, &device), WEIR_OK);
        EXPECT_EQ(ops->domain_open(device, &domain), WEIR_ERR_ENV) << text;
        EXPECT_TRUE(says("WEIR_IB_RAILS=") && says(text)) << weir_last_error();
        weir_device_close(device);
    }
}

TEST_P(IbStripes, EachAllocationFailsOnce)
{
    open(4096);
    bool good = false;
    for (uint64_t n = 1; !good; n++) {
        ASSERT_LT(n, 30u);
        const int64_t before = weirt_count_allocations();
        weiri_queue *queue = nullptr;
        weirt_fail_allocation(n);
        const weir_status status = ops->queue_open(a.domain, &queue);
        good = weirt_fail_allocation(0) != 0;
        EXPECT_EQ(status, good ? WEIR_OK : WEIR_ERR_NOMEM) << weir_last_error();
        ops->queue_close(queue);
        EXPECT_EQ(weirt_count_allocations(), before) << n;
    }
}

} // namespace
