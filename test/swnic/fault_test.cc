// Faults on demand: what is lost and comes again is not noticed, what does not come is an error in time.
#include "nic.h"

using weirt::fill;
using weirt::Nic;
using weirt::Options;
using weirt::wrong;

WEIRT_NIC_STAGES(SwnicFault, 0);
WEIRT_NIC_SUITE(SwnicFaultBetween);

namespace {

const uint64_t rounds = 60;

// Writes, reads and adds while `script` is at work on one side or both: all bytes are right, each add counts once.
void unnoticed(weirt_rank *rank, const char *script, bool both, uint8_t timeout)
{
    Options options;
    options.timeout = timeout;
    options.retries = 7;
    Nic nic(rank, options);
    if (!nic.open()) {
        return;
    }
    uint64_t *words = reinterpret_cast<uint64_t *>(nic.memory.data());
    if (rank->rank == 1 || both) {
        WEIRT_EXPECT(rank, swnic_inject(nic.context, script) == 0);
    }
    nic.meet();
    if (rank->rank == 0) {
        for (uint64_t round = 0; round < rounds; round++) {
            const uint32_t bytes = round % 10 == 9 ? 100000 : 100;
            fill(nic.memory.data() + 4096, bytes, round);
            WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 4096, 4096, bytes, 0) == 0);
            WEIRT_EXPECT(rank, nic.post_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8, 1, 0) == 0);
            WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_READ, 300000, 4096, bytes) == 0);
            if (!nic.done() || !nic.done() || !WEIRT_EXPECT(rank, words[0] == round) ||
                !WEIRT_EXPECT(rank, wrong(nic.memory.data() + 300000, bytes, round) == 0)) {
                break;
            }
        }
    }
    nic.meet();
    if (rank->rank == 1) {
        WEIRT_EXPECT(rank, words[1] == rounds);
    }
}

TEST_P(SwnicFaultBetween, LostRequestsComeAgain)
{
    run([](weirt_rank *rank) { unnoticed(rank, "lost-request:1,1000000,30", true, 14); });
}

TEST_P(SwnicFaultBetween, LostAnswersComeAgain)
{
    run([](weirt_rank *rank) { unnoticed(rank, "lost-response:1,1000000,30", true, 14); });
}

TEST_P(SwnicFault, ReceiverThatIsNotReady)
{
    run([](weirt_rank *rank) { unnoticed(rank, "not-ready:1,1000000,100", false, 18); });
}

TEST_P(SwnicFault, SlowDoorbells)
{
    run([](weirt_rank *rank) { unnoticed(rank, "slow-doorbell:500", true, 18); });
}

// The first write fails with `status`; the script is at work on the rank that posts, or on the other.
void fails(weirt_rank *rank, const char *script, uint32_t at, ibv_wc_status status)
{
    Options options;
    options.timeout = status == IBV_WC_RETRY_EXC_ERR ? 10 : 18; // 4 ms, 1.07 s
    options.retries = 2;
    options.not_ready = 3;
    Nic nic(rank, options);
    if (!nic.open()) {
        return;
    }
    if (rank->rank == at) {
        WEIRT_EXPECT(rank, swnic_inject(nic.context, script) == 0);
    }
    nic.meet();
    if (rank->rank == 0) {
        WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, 0, 8) == 0);
        nic.done(status);
    }
    nic.meet();
}

TEST_P(SwnicFault, NothingArrives)
{
    run([](weirt_rank *rank) { fails(rank, "lost-request:1,1000000", 0, IBV_WC_RETRY_EXC_ERR); });
}

TEST_P(SwnicFault, NothingIsAnswered)
{
    run([](weirt_rank *rank) { fails(rank, "lost-response:1,1000000", 1, IBV_WC_RETRY_EXC_ERR); });
}

TEST_P(SwnicFault, NeverReady)
{
    run([](weirt_rank *rank) { fails(rank, "not-ready:1,1000000", 1, IBV_WC_RNR_RETRY_EXC_ERR); });
}

TEST_P(SwnicFault, RefusedByThePeer)
{
    run([](weirt_rank *rank) { fails(rank, "remote-access:1", 1, IBV_WC_REM_ACCESS_ERR); });
}

TEST_P(SwnicFault, LinkDownForLong)
{
    run([](weirt_rank *rank) { fails(rank, "link-down:0,100000", 1, IBV_WC_RETRY_EXC_ERR); });
}

// The third of five requests gets the syndrome, and those behind it are flushed.
void nth_fails(weirt_rank *rank)
{
    Nic nic(rank, Options());
    if (!nic.open()) {
        return;
    }
    if (rank->rank == 0) {
        WEIRT_EXPECT(rank, swnic_inject(nic.context, "error:3,16") == 0);
        for (uint64_t i = 1; i <= 5; i++) {
            WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, 0, 8, IBV_SEND_SIGNALED, i) == 0);
        }
        for (uint64_t i = 1; i <= 5; i++) {
            ibv_wc wc = {};
            if (!nic.next(&wc)) {
                break;
            }
            nic.expect(wc, i < 3 ? IBV_WC_SUCCESS : i == 3 ? IBV_WC_BAD_RESP_ERR : IBV_WC_WR_FLUSH_ERR);
            WEIRT_EXPECT(rank, wc.wr_id == i);
        }
    }
    nic.meet();
}

TEST_P(SwnicFault, TheThirdRequestFails)
{
    run(nth_fails);
}

// A link that is down for less than the retries take is seen by its events alone.
void flaps(weirt_rank *rank)
{
    Options options;
    options.timeout = 14; // 67 ms
    options.retries = 7;
    Nic nic(rank, options);
    if (!nic.open()) {
        return;
    }
    if (rank->rank == 0) {
        ibv_port_attr port;
        ibv_async_event event;
        WEIRT_EXPECT(rank, swnic_inject(nic.context, "link-down:0,60") == 0);
        WEIRT_EXPECT(rank, ibv_query_port(nic.context, 1, &port) == 0 && port.state == IBV_PORT_DOWN);
        fill(nic.memory.data(), 50000, 4);
        WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, 0, 50000) == 0);
        nic.done();
        WEIRT_EXPECT(rank, ibv_query_port(nic.context, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE);
        for (ibv_event_type type : { IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE }) {
            WEIRT_EXPECT(rank, ibv_get_async_event(nic.context, &event) == 0 && event.event_type == type);
            ibv_ack_async_event(&event);
        }
    }
    nic.meet();
    if (rank->rank == 1) {
        WEIRT_EXPECT(rank, wrong(nic.memory.data(), 50000, 4) == 0);
    }
}

TEST_P(SwnicFaultBetween, LinkFlap)
{
    run(flaps);
}

void no_atomics(weirt_rank *rank)
{
    Nic nic(rank, Options());
    if (!nic.open()) {
        return;
    }
    WEIRT_EXPECT(rank, swnic_inject(nic.context, "no-atomics") == 0);
    ibv_device_attr limits;
    WEIRT_EXPECT(rank, ibv_query_device(nic.context, &limits) == 0 && limits.atomic_cap == IBV_ATOMIC_NONE);
    nic.meet();
    if (rank->rank == 0) {
        WEIRT_EXPECT(rank, nic.post_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 0, 1, 0) == 0);
        nic.done(IBV_WC_REM_INV_REQ_ERR);
    }
    nic.meet();
}

TEST_P(SwnicFault, NoAtomics)
{
    run(no_atomics);
}

void device_fails(weirt_rank *rank)
{
    Nic nic(rank, Options());
    if (!nic.open()) {
        return;
    }
    ibv_async_event event;
    WEIRT_EXPECT(rank, swnic_inject(nic.context, "device:0") == 0);
    WEIRT_EXPECT(rank, ibv_get_async_event(nic.context, &event) == 0 && event.event_type == IBV_EVENT_DEVICE_FATAL);
    ibv_ack_async_event(&event);
    nic.meet();
}

TEST_P(SwnicFault, DeviceFails)
{
    run(device_fails);
}

TEST(SwnicScript, MalformedOnesAreRefused)
{
    ibv_device **devices = ibv_get_device_list(nullptr);
    ibv_context *context = ibv_open_device(devices[0]);
    ibv_free_device_list(devices);
    ASSERT_NE(context, nullptr);
    for (const char *script : { "x", "error:", "error:a", "error:1,2,3,4", "error:1;x", "link-down:1,", "error:-1" }) {
        EXPECT_EQ(swnic_inject(context, script), EINVAL) << script;
    }
    EXPECT_EQ(swnic_inject(context, "error:100,5;link-down:100000,5"), 0);
    EXPECT_EQ(ibv_close_device(context), 0);
}

} // namespace
