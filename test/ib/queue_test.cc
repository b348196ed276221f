// Queues over real verbs: two ends in one process or in two, on the RDMA devices of this machine. The virtual machine
// of test/vm has two connected Soft-RoCE devices.
#include <atomic>
#include <csignal>
#include <thread>
#include <vector>

#include "test/ib/ends.h"

using namespace weirt_ib;

namespace {

TEST_F(IbQueue, PutsOfAllSizes)
{
    const uint64_t most = 17u << 20; // more than two messages of Soft-RoCE
    open(most + 64);
    uint64_t round = 0;
    for (uint64_t n : { 0ul, 1ul, 7ul, 8ul, 9ul, 219ul, 220ul, 221ul, 512ul, 4095ul, 4096ul, 4097ul, 65536ul, 1000003ul,
                        (unsigned long)most }) {
        round++;
        a.fill(32, n, round);
        memset(b.bytes(), 0, n + 64);
        ASSERT_EQ(a.put(32, 32, n), WEIR_OK) << weir_last_error();
        ASSERT_EQ(a.queue->posted, round);
        ASSERT_EQ(a.wait(round), WEIR_OK) << weir_last_error();
        ASSERT_EQ(b.wrong(32, n, round), 0u) << n;
        ASSERT_EQ(b.nonzero(0, 32) + b.nonzero(32 + n, 32), 0u) << n;
    }
}

TEST_F(IbQueue, GetsOfAllSizes)
{
    const uint64_t most = 9u << 20;
    open(most + 64);
    uint64_t round = 0;
    for (uint64_t n : { 0ul, 1ul, 8ul, 9ul, 220ul, 4095ul, 4097ul, 65536ul, 1000003ul, (unsigned long)most }) {
        round++;
        b.fill(32, n, round);
        memset(a.bytes(), 0, n + 64);
        ASSERT_EQ(a.get(32, 32, n), WEIR_OK) << weir_last_error();
        ASSERT_EQ(a.wait(round), WEIR_OK) << weir_last_error();
        ASSERT_EQ(a.wrong(32, n, round), 0u) << n;
        ASSERT_EQ(a.nonzero(0, 32) + a.nonzero(32 + n, 32), 0u) << n;
    }
}

TEST_F(IbQueue, EveryAlignment)
{
    open(65536);
    uint64_t round = 0;
    for (uint64_t from = 0; from < 8; from++) {
        for (uint64_t to = 0; to < 8; to++) {
            for (uint64_t n : { 1, 5, 8, 17, 300 }) {
                round++;
                const bool put = round % 2 == 0;
                const end &source = put ? a : b, &target = put ? b : a;
                source.fill(from, n, round);
                memset(target.bytes() + 4096, 0, 1024);
                ASSERT_EQ(put ? a.put(4096 + to, from, n) : a.get(4096 + to, from, n), WEIR_OK) << weir_last_error();
                ASSERT_EQ(a.wait_all(), WEIR_OK) << weir_last_error();
                ASSERT_EQ(target.wrong(4096 + to, n, round), 0u) << from << " to " << to << ", " << n;
                ASSERT_EQ(target.nonzero(4096, to) + target.nonzero(4096 + to + n, 64), 0u) << from << " " << to;
            }
        }
    }
}

// Each width at each place in a word: only the low bytes arrive, and nothing else changes.
TEST_F(IbQueue, ValuesOfAllWidths)
{
    open(4096);
    const uint64_t v = 0x8877665544332211u;
    for (uint32_t n = 1; n <= 8; n++) {
        for (uint32_t at = 0; at + n <= 8; at++) {
            memset(b.bytes(), 0, 24);
            ASSERT_EQ(a.value(8 + at, v, n), WEIR_OK) << weir_last_error();
            ASSERT_EQ(a.wait_all(), WEIR_OK) << weir_last_error();
            const uint64_t expected = (n == 8 ? v : v & ((UINT64_C(1) << 8 * n) - 1)) << 8 * at;
            ASSERT_EQ(*b.word(8), expected) << n << " at " << at;
            ASSERT_EQ(*b.word(0) | *b.word(16), 0u);
        }
    }
}

// Rounds of puts with a value behind them. The receiver checks all data when it sees the value, and answers in the same
// way.
void run_rounds(const end &a, const end &b, uint32_t rounds)
{
    const uint64_t flag = 0, data = 4096, span = 24000;
    std::atomic<uint64_t> wrong{ 0 }, lost{ 0 };
    std::thread receiver([&] {
        for (uint64_t r = 1; r <= rounds && lost == 0; r++) {
            if (!b.await(flag, r)) {
                lost = r;
                return;
            }
            const uint64_t n = 1 + r * 7919 % span;
            wrong += b.wrong(data, n, r) + b.wrong(data + span, n / 3, r + 1);
            if (b.value(flag, r) != WEIR_OK || b.wait_all() != WEIR_OK) {
                lost = r;
            }
        }
    });
    for (uint64_t r = 1; r <= rounds && lost == 0; r++) {
        const uint64_t n = 1 + r * 7919 % span;
        a.fill(data, n, r);
        a.fill(data + span, n / 3, r + 1);
        EXPECT_EQ(a.put(data, data, n), WEIR_OK) << weir_last_error();
        EXPECT_EQ(a.put(data + span, data + span, n / 3), WEIR_OK) << weir_last_error();
        EXPECT_EQ(a.value(flag, r), WEIR_OK) << weir_last_error();
        EXPECT_EQ(a.wait_all(), WEIR_OK) << weir_last_error();
        if (!a.await(flag, r)) {
            lost = r;
        }
    }
    receiver.join();
    EXPECT_EQ(lost, 0u);
    EXPECT_EQ(wrong, 0u);
}

TEST_F(IbQueue, DataBeforeValue)
{
    open(65536);
    run_rounds(a, b, 150);
}

// The key's flag of device memory: a read follows writes before a value, and before a post is complete.
TEST_F(IbQueue, DataBeforeValueThroughReads)
{
    open(65536);
    card own_a = a.own(), own_b = b.own();
    own_a.key.bytes[1] = own_b.key.bytes[1] = 1;
    ops->remote_close(a.remote);
    ops->remote_close(b.remote);
    ASSERT_EQ(ops->remote_open(a.domain, &own_b.key, nullptr, &a.remote), WEIR_OK);
    ASSERT_EQ(ops->remote_open(b.domain, &own_a.key, nullptr, &b.remote), WEIR_OK);
    run_rounds(a, b, 50);
    // Also behind a post that completes by a read, and many at once.
    for (uint32_t i = 0; i < 1000; i++) {
        ASSERT_EQ(a.put(4096, 4096, i % 100), WEIR_OK) << weir_last_error();
    }
    ASSERT_EQ(a.wait_all(), WEIR_OK) << weir_last_error();
    ASSERT_EQ(a.queue->completed, a.queue->posted);
}

// A get's data has arrived before the value that notifies the peer.
TEST_F(IbQueue, GetBeforeValue)
{
    open(1 << 20);
    const uint64_t n = 300000;
    for (uint64_t r = 1; r <= 10; r++) {
        b.fill(4096, n, r);
        ASSERT_EQ(a.get(4096, 4096, n), WEIR_OK) << weir_last_error();
        ASSERT_EQ(a.value(0, r), WEIR_OK) << weir_last_error();
        ASSERT_TRUE(b.await(0, r, &a)) << weir_last_error();
        ASSERT_EQ(a.wrong(4096, n, r), 0u) << r;
        ASSERT_EQ(a.wait_all(), WEIR_OK) << weir_last_error();
    }
}

// Two queues add to one word: nothing is lost. A reader that sees the sum grow sees the data of earlier puts.
TEST_F(IbQueue, AddsOfTwoQueues)
{
    open(8192);
    pair other;
    ASSERT_NO_FATAL_FAILURE(other.open(a, b));
    *b.word(8) = UINT64_C(1) << 40;
    uint64_t sum = *b.word(8);
    for (uint64_t i = 1; i <= 500; i++) {
        ASSERT_EQ(a.add(8, i << 20), WEIR_OK) << weir_last_error();
        ASSERT_EQ(a.post([&] { return ops->add(other.left, a.remote, 8, UINT64_C(0) - i); }), WEIR_OK)
            << weir_last_error();
        sum += (i << 20) - i;
        while (other.left->posted - other.left->completed > 50) {
            ASSERT_GE(ops->poll(other.left), 0) << weir_last_error();
        }
    }
    ASSERT_EQ(a.value(16, 1), WEIR_OK) << weir_last_error();
    ASSERT_TRUE(b.await(16, 1, &a)) << weir_last_error();
    EXPECT_GE(*b.word(8), (UINT64_C(500 * 501 / 2) << 20));
    ASSERT_EQ(a.wait_all(), WEIR_OK) << weir_last_error();
    while (other.left->completed < other.left->posted) {
        ASSERT_GE(ops->poll(other.left), 0) << weir_last_error();
    }
    EXPECT_EQ(*b.word(8), sum);
    EXPECT_EQ(*b.word(0) | *b.word(24), 0u);
    other.close();
}

TEST_F(IbQueue, DataBeforeAdd)
{
    open(65536);
    const uint64_t n = 20000;
    for (uint64_t r = 1; r <= 20; r++) {
        const bool get = r % 2 == 0;
        const end &source = get ? b : a, &target = get ? a : b;
        source.fill(4096, n, r);
        ASSERT_EQ(get ? a.get(4096, 4096, n) : a.put(4096, 4096, n), WEIR_OK) << weir_last_error();
        ASSERT_EQ(a.add(8, 3), WEIR_OK) << weir_last_error();
        ASSERT_TRUE(b.await(8, 3 * r, &a)) << weir_last_error();
        ASSERT_EQ(target.wrong(4096, n, r), 0u) << r;
        ASSERT_EQ(a.wait_all(), WEIR_OK) << weir_last_error();
    }
    // The key says that the memory's NIC has no atomics: the queue does not fail.
    card peer = b.own();
    peer.key.bytes[1] &= (uint8_t)~2u;
    ops->remote_close(a.remote);
    ASSERT_EQ(ops->remote_open(a.domain, &peer.key, nullptr, &a.remote), WEIR_OK);
    EXPECT_EQ(ops->add(a.queue, a.remote, 8, 1), WEIR_ERR_UNSUPPORTED);
    EXPECT_TRUE(says("peer's NIC")) << weir_last_error();
    EXPECT_EQ(a.value(8, 500), WEIR_OK) << weir_last_error();
    EXPECT_TRUE(b.await(8, 500));
    EXPECT_EQ(a.wait_all(), WEIR_OK) << weir_last_error();
}

TEST_F(IbQueue, MorePostsThanRoom)
{
    open(65536);
    uint32_t busy = 0;
    // Without polls the room runs out, and then posts do nothing.
    for (uint32_t i = 0; i < 5000 && busy == 0; i++) {
        const uint64_t before = a.queue->posted;
        const weir_status status = ops->put(a.queue, a.remote, 8 * (i % 1000), a.region, 0, 8);
        busy += status == WEIR_ERR_BUSY;
        ASSERT_TRUE(status == WEIR_OK || status == WEIR_ERR_BUSY) << weir_last_error();
        ASSERT_EQ(a.queue->posted, before + (status == WEIR_OK));
    }
    ASSERT_EQ(busy, 1u);
    ASSERT_EQ(a.queue->completed, 0u);
    for (uint64_t i = 0; i < 3000; i++) {
        ASSERT_EQ(a.value(8 * (i % 1000), i), WEIR_OK) << weir_last_error();
    }
    ASSERT_EQ(a.wait_all(), WEIR_OK) << weir_last_error();
    for (uint64_t i = 0; i < 1000; i++) {
        ASSERT_EQ(*b.word(8 * i), 2000 + i);
    }
}

// A transfer of several messages with room for one: polls post the rest, and only then other posts are taken.
TEST_F(IbQueue, LongTransferInAFullQueue)
{
    const uint64_t n = 20u << 20;
    open(n + 4096);
    uint64_t small = 0;
    while (ops->value(a.queue, a.remote, 0, ++small, 8) == WEIR_OK) {
    }
    a.fill(4096, n, 1);
    ASSERT_EQ(ops->put(a.queue, a.remote, 4096, a.region, 4096, n), WEIR_OK) << weir_last_error();
    EXPECT_EQ(ops->value(a.queue, a.remote, 0, 77, 8), WEIR_ERR_BUSY);
    EXPECT_EQ(ops->put(a.queue, a.remote, 0, a.region, 0, 8), WEIR_ERR_BUSY);
    ASSERT_EQ(a.value(0, 12345), WEIR_OK) << weir_last_error();
    ASSERT_TRUE(b.await(0, 12345));
    EXPECT_EQ(b.wrong(4096, n, 1), 0u);
    ASSERT_EQ(a.wait_all(), WEIR_OK) << weir_last_error();
}

// One thread posts, two others poll.
TEST_F(IbQueue, PolledByOthers)
{
    open(65536);
    std::atomic<bool> stop{ false };
    std::atomic<int> failures{ 0 };
    std::vector<std::thread> pollers;
    for (int i = 0; i < 2; i++) {
        pollers.emplace_back([&] {
            while (!stop) {
                failures += ops->poll(a.queue) < 0;
            }
        });
    }
    for (uint64_t i = 1; i <= 2000; i++) {
        EXPECT_EQ(a.post([&] { return ops->value(a.queue, a.remote, 0, i, 8); }), WEIR_OK) << weir_last_error();
    }
    EXPECT_EQ(a.wait_all(), WEIR_OK) << weir_last_error();
    stop = true;
    for (auto &poller : pollers) {
        poller.join();
    }
    EXPECT_EQ(failures, 0);
    EXPECT_EQ(*b.word(0), 2000u);
}

TEST_F(IbQueue, WrongUse)
{
    open(4096);
    card peer = b.own();
    EXPECT_EQ(ops->queue_connect(a.queue, peer.address, peer.bytes), WEIR_ERR_INVALID);
    weiri_queue *other = nullptr;
    ASSERT_EQ(ops->queue_open(a.domain, &other), WEIR_OK) << weir_last_error();
    EXPECT_EQ(ops->queue_connect(other, peer.address, peer.bytes - 1), WEIR_ERR_CORRUPT);
    EXPECT_EQ(ops->put(other, a.remote, 0, a.region, 0, 8), WEIR_ERR_INVALID);
    EXPECT_EQ(ops->poll(other), WEIR_PENDING);
    peer.address[0] ^= 0x80;
    EXPECT_EQ(ops->queue_connect(other, peer.address, peer.bytes), WEIR_ERR_CORRUPT);
    peer = b.own();
    peer.address[3] ^= 1;
    EXPECT_EQ(ops->queue_connect(other, peer.address, peer.bytes), WEIR_ERR_UNSUPPORTED);
    EXPECT_TRUE(says("InfiniBand")) << weir_last_error();
    ops->queue_close(other);
    peer.key.bytes[0] = 0;
    weiri_remote *remote = nullptr;
    EXPECT_EQ(ops->remote_open(a.domain, &peer.key, nullptr, &remote), WEIR_ERR_CORRUPT);
    EXPECT_EQ(remote, nullptr);
    ops->queue_close(nullptr);
    ops->remote_close(nullptr);
    ops->region_close(nullptr);
    ops->domain_close(nullptr);
}

// Any wrong bit of an address or a key is an error with a text, not a crash.
TEST_F(IbQueue, GarbledAddressesAndKeys)
{
    setenv("WEIR_IB_TIMEOUT", "8", 1);
    open(4096);
    const card good = b.own();
    for (uint32_t bit = 0; bit < 8 * good.bytes; bit += 11) {
        weiri_queue *other = nullptr;
        card bad = good;
        bad.address[bit / 8] ^= (uint8_t)(1u << bit % 8);
        ASSERT_EQ(ops->queue_open(a.domain, &other), WEIR_OK) << weir_last_error();
        if (ops->queue_connect(other, bad.address, bad.bytes) == WEIR_OK) {
            EXPECT_EQ(ops->value(other, a.remote, 0, 1, 8), WEIR_OK) << weir_last_error();
            (void)ops->poll(other);
        } else {
            EXPECT_STRNE(weir_last_error(), "");
        }
        ops->queue_close(other);
    }
}

// ---- two processes ------------------------------------------------------------------------------------------

TEST_F(IbQueue, TwoProcesses)
{
    int sockets[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    const pid_t child = start([&] {
        end e;
        card peer;
        if (!e.open(1, 65536) || !swap_cards(sockets[1], e.own(), &peer) || !e.join(peer)) {
            return 1;
        }
        for (uint64_t r = 1; r <= 100; r++) {
            if (!e.await(0, r) || e.wrong(4096, 5000, r) != 0) {
                return 2;
            }
            e.fill(4096, 5000, r + 7);
            if (e.put(4096, 4096, 5000) != WEIR_OK || e.value(0, r) != WEIR_OK || e.wait_all() != WEIR_OK) {
                return 3;
            }
        }
        e.close();
        return 0;
    });
    card peer;
    EXPECT_TRUE(a.open(0, 65536)) << weir_last_error();
    EXPECT_TRUE(swap_cards(sockets[0], a.own(), &peer));
    EXPECT_TRUE(a.join(peer)) << weir_last_error();
    for (uint64_t r = 1; r <= 100 && !HasFailure(); r++) {
        a.fill(4096, 5000, r);
        EXPECT_EQ(a.put(4096, 4096, 5000), WEIR_OK) << weir_last_error();
        EXPECT_EQ(a.value(0, r), WEIR_OK) << weir_last_error();
        EXPECT_TRUE(a.await(0, r));
        EXPECT_EQ(a.wrong(4096, 5000, r + 7), 0u);
        EXPECT_EQ(a.wait_all(), WEIR_OK) << weir_last_error();
    }
    if (HasFailure()) {
        (void)kill(child, SIGKILL);
    }
    EXPECT_EQ(status_of(child), 0);
    (void)close(sockets[0]);
    (void)close(sockets[1]);
}

} // namespace
