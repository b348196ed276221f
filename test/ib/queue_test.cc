// Queues over real verbs: two ends in one process, or in two, on the RDMA devices that are here; in the virtual machine
// of test/vm these are two of Soft-RoCE, which are joined.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

extern "C" {
#include "src/host/base/alloc.h"
#include "src/transport/transport.h"
}
#include "test/harness/checks.h"
#include "test/harness/ranks.h"
#include "weir/error.h"

namespace {

const weiri_queue_ops *const ops = weiri_ib_ops.queue;

bool says(const char *part)
{
    return strstr(weir_last_error(), part) != nullptr;
}

uint8_t pattern(uint64_t at, uint64_t round)
{
    return (uint8_t)(((at * 2654435761u) >> 13) + round * 31 + 1);
}

// What one end gives the other.
struct card {
    uint8_t address[WEIRI_ADDRESS_MAX];
    uint32_t bytes;
    weiri_key key;
};

// One end: a device with a domain, a block that is registered, and a queue.
struct end {
    weir_device *device = nullptr;
    weiri_domain *domain = nullptr;
    weiri_block *block = nullptr;
    weiri_region *region = nullptr;
    weiri_queue *queue = nullptr;
    weiri_remote *remote = nullptr;

    bool open(uint32_t index, uint64_t bytes)
    {
        const std::string name = "cpu:" + std::to_string(index);
        return weir_device_open(name.c_str(), nullptr, &device) == WEIR_OK &&
               ops->domain_open(device, &domain) == WEIR_OK &&
               weiri_device_allocate(device, WEIR_MEMORY_HOST, bytes, &block) == WEIR_OK &&
               ops->region_open(domain, block, &region) == WEIR_OK && ops->queue_open(domain, &queue) == WEIR_OK;
    }

    card own() const
    {
        card c = {};
        memcpy(c.address, queue->address, sizeof c.address);
        c.bytes = queue->address_bytes;
        c.key = region->key;
        return c;
    }

    bool join(const card &peer)
    {
        return ops->queue_connect(queue, peer.address, peer.bytes) == WEIR_OK &&
               ops->remote_open(domain, &peer.key, nullptr, &remote) == WEIR_OK;
    }

    void close()
    {
        ops->queue_close(queue);
        ops->remote_close(remote);
        ops->region_close(region);
        weiri_block_release(block);
        ops->domain_close(domain);
        weir_device_close(device);
        *this = end();
    }

    uint8_t *bytes() const { return (uint8_t *)block->host_pointer; }
    uint64_t *word(uint64_t offset) const { return (uint64_t *)(bytes() + offset); }

    // Until post `number` is complete; what poll says otherwise.
    weir_status wait(uint64_t number, uint32_t ms = weirt_patience_ms()) const
    {
        const uint64_t give_up = weirt_now_ms() + ms;
        while (__atomic_load_n(&queue->completed, __ATOMIC_ACQUIRE) < number) {
            const weir_status status = ops->poll(queue);
            if (status < 0) {
                return status;
            }
            if (weirt_now_ms() > give_up) {
                return WEIR_ERR_TIMEOUT;
            }
        }
        return WEIR_OK;
    }

    weir_status wait_all() const { return wait(queue->posted); }

    // Posts, and polls while there is no room.
    template <class Post> weir_status post(Post one) const
    {
        const uint64_t give_up = weirt_now_ms() + weirt_patience_ms();
        for (;;) {
            weir_status status = one();
            if (status != WEIR_ERR_BUSY) {
                return status;
            }
            status = ops->poll(queue);
            if (status < 0 || weirt_now_ms() > give_up) {
                return status < 0 ? status : WEIR_ERR_TIMEOUT;
            }
        }
    }

    weir_status put(uint64_t to, uint64_t from, uint64_t n) const
    {
        return post([&] { return ops->put(queue, remote, to, region, from, n); });
    }

    weir_status get(uint64_t to, uint64_t from, uint64_t n) const
    {
        return post([&] { return ops->get(queue, region, to, remote, from, n); });
    }

    weir_status value(uint64_t to, uint64_t v, uint32_t n = 8) const
    {
        return post([&] { return ops->value(queue, remote, to, v, n); });
    }

    // Until the word at `offset` is `v`: what a peer posts comes without polling.
    bool await(uint64_t offset, uint64_t v) const
    {
        const uint64_t give_up = weirt_now_ms() + weirt_patience_ms();
        while (__atomic_load_n(word(offset), __ATOMIC_ACQUIRE) != v) {
            if (weirt_now_ms() > give_up) {
                return false;
            }
        }
        return true;
    }

    void fill(uint64_t from, uint64_t n, uint64_t round) const
    {
        for (uint64_t i = 0; i < n; i++) {
            bytes()[from + i] = pattern(i, round);
        }
    }

    // Bytes of [from, from + n) that are not of this round.
    uint64_t wrong(uint64_t from, uint64_t n, uint64_t round) const
    {
        uint64_t count = 0;
        for (uint64_t i = 0; i < n; i++) {
            count += bytes()[from + i] != pattern(i, round);
        }
        return count;
    }

    uint64_t nonzero(uint64_t from, uint64_t n) const
    {
        uint64_t count = 0;
        for (uint64_t i = 0; i < n; i++) {
            count += bytes()[from + i] != 0;
        }
        return count;
    }
};

class IbQueue : public ::testing::Test {
protected:
    void SetUp() override
    {
        char reason[256];
        // Emulation on a busy machine stands still at times.
        setenv("WEIR_IB_TIMEOUT", "18", 1);
        if (!weiri_ib_ops.probe(reason)) {
            ASSERT_NE(strstr(reason, "no RDMA device"), nullptr) << reason;
            GTEST_SKIP() << reason;
        }
        weirt_checks_begin(&checks);
        checking = true;
    }

    void TearDown() override
    {
        a.close();
        b.close();
        if (checking) {
            weirt_checks_end(&checks, false, [](void *, const char *text) { ADD_FAILURE() << text; }, nullptr);
        }
        unsetenv("WEIR_IB_TIMEOUT");
    }

    void open(uint64_t bytes)
    {
        ASSERT_TRUE(a.open(0, bytes)) << weir_last_error();
        ASSERT_TRUE(b.open(1, bytes)) << weir_last_error();
        ASSERT_TRUE(a.join(b.own())) << weir_last_error();
        ASSERT_TRUE(b.join(a.own())) << weir_last_error();
    }

    bool checking = false;
    weirt_checks checks = {};
    end a, b;
};

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

// Each width at each place in a word: the low bytes arrive there, and nothing else changes.
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

// Rounds of puts and a value after them; the receiver looks at all data when it sees the value, and answers likewise.
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

// The key's flag of device memory: what is written is read before a value follows, and before a post is complete.
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

// What a get brought is here before the value that tells the peer.
TEST_F(IbQueue, GetBeforeValue)
{
    open(1 << 20);
    const uint64_t n = 300000;
    for (uint64_t r = 1; r <= 10; r++) {
        b.fill(4096, n, r);
        ASSERT_EQ(a.get(4096, 4096, n), WEIR_OK) << weir_last_error();
        ASSERT_EQ(a.value(0, r), WEIR_OK) << weir_last_error();
        ASSERT_TRUE(b.await(0, r));
        ASSERT_EQ(a.wrong(4096, n, r), 0u) << r;
        ASSERT_EQ(a.wait_all(), WEIR_OK) << weir_last_error();
    }
}

TEST_F(IbQueue, MorePostsThanRoom)
{
    open(65536);
    uint32_t busy = 0;
    // Without a poll there is no room at some time, and nothing happens then.
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

// A transfer of several messages that finds room for one: the rest follows by polling, and only then other posts.
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
    peer.address[1] ^= 1;
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

// Wherever a bit of an address or a key is wrong, it is an error in words and no crash.
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

// A pair of queues beside a and b, in the same domains.
struct pair {
    weiri_queue *left = nullptr, *right = nullptr;

    void open(const end &a, const end &b)
    {
        ASSERT_EQ(ops->queue_open(a.domain, &left), WEIR_OK) << weir_last_error();
        ASSERT_EQ(ops->queue_open(b.domain, &right), WEIR_OK) << weir_last_error();
        ASSERT_EQ(ops->queue_connect(left, right->address, right->address_bytes), WEIR_OK) << weir_last_error();
        ASSERT_EQ(ops->queue_connect(right, left->address, left->address_bytes), WEIR_OK) << weir_last_error();
    }

    void close()
    {
        ops->queue_close(left);
        ops->queue_close(right);
    }
};

// Polls until the queue fails; returns how.
weir_status wait_failure(weiri_queue *queue)
{
    const uint64_t give_up = weirt_now_ms() + weirt_patience_ms();
    weir_status status = WEIR_OK;
    while (status >= 0 && weirt_now_ms() < give_up) {
        status = ops->poll(queue);
    }
    return status;
}

TEST_F(IbQueue, WrongKeyFailsOneQueueAlone)
{
    open(4096);
    pair other;
    ASSERT_NO_FATAL_FAILURE(other.open(a, b));
    weiri_key key = b.region->key;
    key.bytes[4] ^= 0x5a; // of the rkey
    weiri_remote *wrong = nullptr;
    ASSERT_EQ(ops->remote_open(a.domain, &key, nullptr, &wrong), WEIR_OK);
    ASSERT_EQ(ops->put(other.left, wrong, 0, a.region, 0, 8), WEIR_OK) << weir_last_error();
    EXPECT_EQ(wait_failure(other.left), WEIR_ERR_REMOTE);
    EXPECT_TRUE(says("remote access error")) << weir_last_error();
    EXPECT_EQ(other.left->completed, 0u);
    // It stays failed, with the same words.
    EXPECT_EQ(ops->value(other.left, a.remote, 0, 1, 8), WEIR_ERR_REMOTE);
    EXPECT_TRUE(says("remote access error")) << weir_last_error();
    EXPECT_EQ(ops->poll(other.left), WEIR_ERR_REMOTE);
    a.fill(64, 1000, 5);
    EXPECT_EQ(a.put(64, 64, 1000), WEIR_OK) << weir_last_error();
    EXPECT_EQ(a.wait_all(), WEIR_OK) << weir_last_error();
    EXPECT_EQ(b.wrong(64, 1000, 5), 0u);
    ops->remote_close(wrong);
    other.close();
}

TEST_F(IbQueue, MemoryOfThePeerIsDeregistered)
{
    open(4096);
    ASSERT_EQ(a.put(0, 0, 100), WEIR_OK) << weir_last_error();
    ASSERT_EQ(a.wait_all(), WEIR_OK) << weir_last_error();
    ops->region_close(b.region);
    b.region = nullptr;
    ASSERT_EQ(a.put(0, 0, 100), WEIR_OK) << weir_last_error();
    EXPECT_EQ(wait_failure(a.queue), WEIR_ERR_REMOTE);
    EXPECT_TRUE(says("deregistered")) << weir_last_error();
    EXPECT_EQ(a.queue->completed, 1u);
}

TEST_F(IbQueue, OwnMemoryIsDeregisteredInATransfer)
{
    const uint64_t n = 4u << 20;
    open(n);
    a.fill(0, n, 3);
    ASSERT_EQ(a.put(0, 0, n), WEIR_OK) << weir_last_error();
    ops->region_close(a.region);
    a.region = nullptr;
    const weir_status status = a.wait_all();
    if (status == WEIR_OK) {
        EXPECT_EQ(b.wrong(0, n, 3), 0u);
    } else {
        // Soft-RoCE calls it a local error of the queue pair, others one of protection.
        EXPECT_TRUE(status == WEIR_ERR_INVALID || status == WEIR_ERR_DEVICE) << weir_last_error();
        EXPECT_TRUE(says("local ")) << weir_last_error();
    }
}

TEST_F(IbQueue, PeerClosed)
{
    setenv("WEIR_IB_TIMEOUT", "12", 1);
    open(4096);
    ops->queue_close(b.queue);
    b.queue = nullptr;
    const uint64_t start = weirt_now_ms();
    ASSERT_EQ(a.put(0, 0, 100), WEIR_OK) << weir_last_error();
    EXPECT_EQ(wait_failure(a.queue), WEIR_ERR_REMOTE);
    EXPECT_TRUE(says("no answer")) << weir_last_error();
    EXPECT_LT(weirt_now_ms() - start, 5000u * weirt_slow());
}

TEST_F(IbQueue, ClosedWithWorkInFlight)
{
    const uint64_t n = 1u << 20;
    for (int i = 0; i < 5; i++) {
        ASSERT_NO_FATAL_FAILURE(open(4 * n));
        for (uint64_t k = 0; k < 4; k++) {
            ASSERT_EQ(a.put(k * n, k * n, n), WEIR_OK) << weir_last_error();
            ASSERT_EQ(b.get(k * n, k * n, n), WEIR_OK) << weir_last_error();
        }
        (void)ops->poll(a.queue);
        (void)ops->poll(b.queue);
        a.close();
        b.close();
    }
}

TEST_F(IbQueue, EachAllocationFailsOnce)
{
    open(4096);
    uint64_t n = 0;
    for (bool good = false; !good; n++) {
        ASSERT_LT(n, 20u);
        const int64_t before = weiri_alloc_alive();
        weiri_domain *domain = nullptr;
        weiri_region *region = nullptr;
        weiri_remote *remote = nullptr;
        weiri_queue *queue = nullptr;
        weiri_alloc_fail_nth(n + 1);
        weir_status status = ops->domain_open(a.device, &domain);
        status = status == WEIR_OK ? ops->region_open(domain, a.block, &region) : status;
        status = status == WEIR_OK ? ops->remote_open(domain, &b.region->key, nullptr, &remote) : status;
        status = status == WEIR_OK ? ops->queue_open(domain, &queue) : status;
        good = weiri_alloc_fail_nth(0) != 0;
        EXPECT_EQ(status, good ? WEIR_OK : WEIR_ERR_NOMEM) << weir_last_error();
        ops->queue_close(queue);
        ops->remote_close(remote);
        ops->region_close(region);
        ops->domain_close(domain);
        EXPECT_EQ(weiri_alloc_alive(), before) << n;
    }
    EXPECT_EQ(n, 7u); // 6 fail
}

// ---- two processes ------------------------------------------------------------------------------------------

bool swap_cards(int socket, const card &own, card *peer)
{
    return write(socket, &own, sizeof own) == (ssize_t)sizeof own &&
           recv(socket, peer, sizeof *peer, MSG_WAITALL) == (ssize_t)sizeof *peer;
}

// Runs `body` as a process of its own; its status is what that returns.
template <class Body> pid_t start(Body body)
{
    const pid_t child = fork();
    if (child == 0) {
        _exit(body());
    }
    return child;
}

int status_of(pid_t child)
{
    int status = -1;
    return waitpid(child, &status, 0) == child ? status : -1;
}

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

// A peer is killed while both sides write as much as they can.
TEST_F(IbQueue, PeerKilledUnderLoad)
{
    int sockets[2];
    setenv("WEIR_IB_TIMEOUT", "12", 1);
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    const pid_t child = start([&] {
        end e;
        card peer;
        if (!e.open(1, 1 << 20) || !swap_cards(sockets[1], e.own(), &peer) || !e.join(peer)) {
            return 1;
        }
        for (uint64_t r = 1;; r++) {
            if (e.put(4096, 4096, 65536) != WEIR_OK || e.value(0, r) != WEIR_OK) {
                return 2;
            }
        }
    });
    card peer;
    EXPECT_TRUE(a.open(0, 1 << 20)) << weir_last_error();
    EXPECT_TRUE(swap_cards(sockets[0], a.own(), &peer));
    EXPECT_TRUE(a.join(peer)) << weir_last_error();
    weir_status status = WEIR_OK;
    const uint64_t give_up = weirt_now_ms() + weirt_patience_ms();
    bool killed = false;
    for (uint64_t r = 1; status == WEIR_OK && weirt_now_ms() < give_up; r++) {
        status = a.put(4096, 4096, 65536);
        if (!killed && r >= 20 && __atomic_load_n(a.word(0), __ATOMIC_ACQUIRE) >= 5) {
            killed = true;
            EXPECT_EQ(kill(child, SIGKILL), 0);
        }
    }
    EXPECT_TRUE(killed);
    EXPECT_EQ(status, WEIR_ERR_REMOTE) << weir_last_error();
    EXPECT_LT(a.queue->completed, a.queue->posted);
    if (!killed) {
        (void)kill(child, SIGKILL);
    }
    EXPECT_TRUE(WIFSIGNALED(status_of(child)));
    (void)close(sockets[0]);
    (void)close(sockets[1]);
}

// ---- two hosts ----------------------------------------------------------------------------------------------

// A socket to the other guest of test/vm/run --two; -1 when there is none in time.
int meet_other_guest(bool server, const char *address)
{
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_port = htons(20100);
    if (inet_pton(AF_INET, address, &at.sin_addr) != 1) {
        return -1;
    }
    const uint64_t give_up = weirt_now_ms() + weirt_patience_ms();
    if (server) {
        const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        pollfd coming = { listener, POLLIN, 0 };
        int peer = -1;
        if (bind(listener, (const sockaddr *)&at, sizeof at) == 0 && listen(listener, 1) == 0 &&
            poll(&coming, 1, (int)weirt_patience_ms()) == 1) {
            peer = accept(listener, nullptr, nullptr);
        }
        (void)close(listener);
        return peer;
    }
    while (weirt_now_ms() < give_up) {
        const int peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(peer, (const sockaddr *)&at, sizeof at) == 0) {
            return peer;
        }
        (void)close(peer);
        weirt_sleep_ms(100);
    }
    return -1;
}

// In both of two guests: test/vm/run --two PROGRAM --gtest_also_run_disabled_tests --gtest_filter=IbHosts.*
class IbHosts : public IbQueue {};

TEST_F(IbHosts, DISABLED_DataBeforeValue)
{
    const char *rank = getenv("WEIR_TEST_VM_RANK"), *own = getenv("WEIR_TEST_VM_ADDRESS"),
               *other = getenv("WEIR_TEST_VM_PEER");
    ASSERT_TRUE(rank != nullptr && own != nullptr && other != nullptr) << "these are not two guests";
    const bool first = strcmp(rank, "0") == 0;
    const uint64_t rounds = 50, n = 50000;
    const int peer_socket = meet_other_guest(first, first ? own : other);
    card peer;
    char byte = 0;
    ASSERT_GE(peer_socket, 0);
    ASSERT_TRUE(a.open(0, 1 << 20)) << weir_last_error();
    ASSERT_TRUE(swap_cards(peer_socket, a.own(), &peer));
    ASSERT_TRUE(a.join(peer)) << weir_last_error();
    ASSERT_EQ(write(peer_socket, &byte, 1), 1);
    ASSERT_EQ(read(peer_socket, &byte, 1), 1);
    for (uint64_t r = 1; r <= 2 * rounds; r++) {
        if ((r % 2 == 0) == first) {
            ASSERT_TRUE(a.await(0, r)) << r;
            ASSERT_EQ(a.wrong(4096, n, r), 0u) << r;
        } else {
            a.fill(4096 + n, n, r);
            ASSERT_EQ(a.put(4096, 4096 + n, n), WEIR_OK) << weir_last_error();
            ASSERT_EQ(a.value(0, r), WEIR_OK) << weir_last_error();
            ASSERT_EQ(a.wait_all(), WEIR_OK) << weir_last_error();
        }
    }
    // Both have all before one closes.
    ASSERT_EQ(write(peer_socket, &byte, 1), 1);
    ASSERT_EQ(read(peer_socket, &byte, 1), 1);
    (void)close(peer_socket);
}

// ---- limits and links ---------------------------------------------------------------------------------------

TEST_F(IbQueue, LimitOfLockedMemory)
{
    if (geteuid() != 0) {
        GTEST_SKIP() << "only root can become somebody without rights";
    }
    const pid_t child = start([] {
        const rlimit limit = { 1 << 20, 1 << 20 };
        if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || setgid(65534) != 0 || setuid(65534) != 0) {
            return 1;
        }
        end e;
        if (e.open(0, 4 << 20)) {
            return 2;
        }
        if (e.region != nullptr || e.domain == nullptr) {
            return 3;
        }
        if (!says("RLIMIT_MEMLOCK allows 1024 KiB") || !says("ulimit -l unlimited") || !says("4194304 bytes")) {
            fprintf(stderr, "%s\n", weir_last_error());
            return 4;
        }
        e.close();
        return 0;
    });
    EXPECT_EQ(status_of(child), 0);
}

// Devices of Soft-RoCE over the virtual Ethernet of test/vm.
class IbLink : public IbQueue {
protected:
    void SetUp() override
    {
        IbQueue::SetUp();
        if (checking && access("/sys/class/infiniband/rxe1", F_OK) != 0) {
            checking = false;
            GTEST_SKIP() << "takes the link of a Soft-RoCE device down";
        }
    }

    bool set(const char *state)
    {
        return system((std::string("ip link set rdma1 ") + state).c_str()) == 0;
    }
};

TEST_F(IbLink, DownAndUpWithinTheRetries)
{
    open(65536);
    a.fill(0, 50000, 1);
    weirt_log_allow("the link of rxe");
    ASSERT_TRUE(set("down"));
    EXPECT_EQ(a.put(0, 0, 50000), WEIR_OK) << weir_last_error();
    EXPECT_EQ(a.wait(1, 300), WEIR_ERR_TIMEOUT) << weir_last_error();
    ASSERT_TRUE(set("up"));
    EXPECT_EQ(a.wait(1), WEIR_OK) << weir_last_error();
    EXPECT_EQ(b.wrong(0, 50000, 1), 0u);
}

TEST_F(IbLink, DownForLonger)
{
    char reason[256];
    setenv("WEIR_IB_TIMEOUT", "12", 1);
    open(65536);
    weirt_log_allow("the link of rxe");
    ASSERT_TRUE(set("down"));
    EXPECT_EQ(a.put(0, 0, 50000), WEIR_OK) << weir_last_error();
    EXPECT_EQ(wait_failure(a.queue), WEIR_ERR_REMOTE);
    EXPECT_TRUE(says("the link is down")) << weir_last_error();
    // What is down is not chosen.
    setenv("WEIR_IB_DEVICE", "rxe1", 1);
    EXPECT_FALSE(weiri_ib_ops.probe(reason));
    EXPECT_NE(strstr(reason, "rxe1 port 1 is DOWN"), nullptr) << reason;
    ASSERT_TRUE(set("up"));
    EXPECT_TRUE(weiri_ib_ops.probe(reason)) << reason;
    EXPECT_NE(strstr(reason, "rxe1 port 1, RoCE"), nullptr) << reason;
    unsetenv("WEIR_IB_DEVICE");
    // A new queue goes on where the old one cannot.
    pair other;
    ASSERT_NO_FATAL_FAILURE(other.open(a, b));
    ASSERT_EQ(ops->value(other.left, a.remote, 8, 99, 8), WEIR_OK) << weir_last_error();
    EXPECT_TRUE(b.await(8, 99));
    other.close();
}

} // namespace
