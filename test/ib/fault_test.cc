// Failures of queues over real verbs: keys, memory, peers, links, limits.
#include <sys/resource.h>

#include <csignal>

extern "C" {
#include "src/host/base/alloc.h"
}
#include "test/ib/ends.h"

using namespace weirt_ib;

namespace {

class IbFault : public IbQueue {};

TEST_F(IbFault, WrongKeyFailsOneQueueAlone)
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
    // It stays failed, with the same text.
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

TEST_F(IbFault, MemoryOfThePeerIsDeregistered)
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

TEST_F(IbFault, OwnMemoryIsDeregisteredInATransfer)
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
        // Soft-RoCE reports a local error of the queue pair, other devices a protection error.
        EXPECT_TRUE(status == WEIR_ERR_INVALID || status == WEIR_ERR_DEVICE) << weir_last_error();
        EXPECT_TRUE(says("local ")) << weir_last_error();
    }
}

TEST_F(IbFault, PeerClosed)
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

TEST_F(IbFault, ClosedWithWorkInFlight)
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

TEST_F(IbFault, EachAllocationFailsOnce)
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
    EXPECT_EQ(n, 6u); // 5 fail
}

// ---- devices that lack something ----------------------------------------------------------------------------

// Runs a test of this program in its own process, with verbs_faults.c instead of libibverbs.
int status_with(const char *what, const char *test)
{
    return status_of(start([&] {
        const std::string filter = std::string("--gtest_filter=") + test;
        setenv("WEIR_IB_VERBS_LIBRARY", WEIRT_VERBS_FAULTS, 1);
        setenv("WEIR_TEST_VERBS", what, 1);
        (void)execl("/proc/self/exe", "weir-test-ib", filter.c_str(), "--gtest_also_run_disabled_tests", nullptr);
        return 127;
    }));
}

// Everything except adds works, and a queue that has refused an add goes on.
TEST_F(IbFault, DISABLED_WithoutAtomics)
{
    open(65536);
    EXPECT_EQ(ops->add(a.queue, a.remote, 8, 1), WEIR_ERR_UNSUPPORTED);
    EXPECT_TRUE(says("ib: rxe0 cannot add: it has no atomic operations")) << weir_last_error();
    EXPECT_EQ(a.queue->posted, 0u);
    a.fill(4096, 30000, 1);
    ASSERT_EQ(a.put(4096, 4096, 30000), WEIR_OK) << weir_last_error();
    ASSERT_EQ(a.value(0, 1), WEIR_OK) << weir_last_error();
    ASSERT_TRUE(b.await(0, 1));
    EXPECT_EQ(b.wrong(4096, 30000, 1), 0u);
    memset(b.bytes() + 4096, 0, 30000);
    ASSERT_EQ(b.get(4096, 4096, 30000), WEIR_OK) << weir_last_error();
    ASSERT_EQ(b.wait_all(), WEIR_OK) << weir_last_error();
    EXPECT_EQ(b.wrong(4096, 30000, 1), 0u);
    ASSERT_EQ(a.wait_all(), WEIR_OK) << weir_last_error();
}

TEST_F(IbFault, NicWithoutAtomics) { EXPECT_EQ(status_with("no-atomics", "IbFault.DISABLED_WithoutAtomics"), 0); }

TEST_F(IbFault, DISABLED_NotReady)
{
    open(65536);
    const uint64_t start = weirt_now_ms();
    ASSERT_EQ(a.put(0, 0, 1000), WEIR_OK) << weir_last_error();
    EXPECT_EQ(wait_failure(a.queue), WEIR_ERR_REMOTE);
    EXPECT_TRUE(says("receiver not ready")) << weir_last_error();
    EXPECT_EQ(a.queue->completed, 0u);
    EXPECT_LT(weirt_now_ms() - start, 5000u * weirt_slow());
}

TEST_F(IbFault, ReceiverNotReady) { EXPECT_EQ(status_with("unexpected", "IbFault.DISABLED_NotReady"), 0); }

// ---- the peer's end ------------------------------------------------------------------------------------------

// A peer is killed while both sides write at full rate.
TEST_F(IbFault, PeerKilledUnderLoad)
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
    const uint64_t give_up = weirt_now_ms() + weirt_timeout_ms();
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

// ---- limits and links ---------------------------------------------------------------------------------------

TEST_F(IbFault, LimitOfLockedMemory)
{
    if (geteuid() != 0) {
        GTEST_SKIP() << "only root can become a user without rights";
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

    bool set(const char *state) { return system((std::string("ip link set rdma1 ") + state).c_str()) == 0; }
};

TEST_F(IbLink, DownAndUpWithinTheRetries)
{
    const uint64_t n = 300000;
    for (const char *rails : { "1x1", "1x4" }) {
        setenv("WEIR_IB_RAILS", rails, 1);
        open(n);
        a.fill(0, n, 1);
        weirt_log_allow("the link of rxe");
        ASSERT_TRUE(set("down"));
        EXPECT_EQ(a.put(0, 0, n), WEIR_OK) << weir_last_error();
        EXPECT_EQ(a.wait(1, 300), WEIR_ERR_TIMEOUT) << weir_last_error();
        ASSERT_TRUE(set("up"));
        EXPECT_EQ(a.wait(1), WEIR_OK) << weir_last_error();
        EXPECT_EQ(b.wrong(0, n, 1), 0u);
        a.close();
        b.close();
    }
}

TEST_F(IbLink, DownForLongerEndsAllRails)
{
    const uint64_t n = 300000;
    setenv("WEIR_IB_TIMEOUT", "12", 1);
    setenv("WEIR_IB_RAILS", "1x4", 1);
    open(n + 8);
    weirt_log_allow("the link of rxe");
    ASSERT_TRUE(set("down"));
    EXPECT_EQ(a.put(8, 0, n), WEIR_OK) << weir_last_error();
    EXPECT_EQ(a.value(0, 1), WEIR_OK) << weir_last_error();
    EXPECT_EQ(wait_failure(a.queue), WEIR_ERR_REMOTE);
    EXPECT_TRUE(says("ib: rxe0 port 1") && says("the link is down")) << weir_last_error();
    EXPECT_EQ(a.queue->completed, 0u);
    ASSERT_TRUE(set("up"));
    EXPECT_EQ(*b.word(0), 0u);
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
    // A device whose link is down is not chosen.
    setenv("WEIR_IB_DEVICE", "rxe1", 1);
    EXPECT_FALSE(weiri_ib_ops.probe(reason));
    EXPECT_NE(strstr(reason, "rxe1 port 1 is DOWN"), nullptr) << reason;
    ASSERT_TRUE(set("up"));
    EXPECT_TRUE(weiri_ib_ops.probe(reason)) << reason;
    EXPECT_NE(strstr(reason, "rxe1 port 1, RoCE"), nullptr) << reason;
    unsetenv("WEIR_IB_DEVICE");
    // A new queue works; the old one stays failed.
    pair other;
    ASSERT_NO_FATAL_FAILURE(other.open(a, b));
    ASSERT_EQ(ops->value(other.left, a.remote, 8, 99, 8), WEIR_OK) << weir_last_error();
    EXPECT_TRUE(b.await(8, 99));
    other.close();
}

} // namespace
