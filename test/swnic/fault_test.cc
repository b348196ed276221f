// Faults on demand: lost packets that are repeated have no effect; permanent losses end in errors in time.
#include <poll.h>

#include "nic.h"

using weirt::fill;
using weirt::Nic;
using weirt::opened;
using weirt::Options;
using weirt::wrong;

WEIRT_NIC_STAGES(SwnicFault, 0);
WEIRT_NIC_SUITE(SwnicFaultBetween);

namespace {

const uint64_t rounds = 60;

// Writes, reads and adds with the faults of `script` on one side or both: all bytes are right, and each add counts
// once.
void unnoticed(weirt_rank *rank, const char *script, bool both, uint8_t timeout, const char *begin = "")
{
    Options options;
    options.timeout = timeout;
    options.retries = 7;
    options.script = begin;
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

// An add whose answer is lost was carried out: it is repeated but counts once.
void lost_answer_of_an_add(weirt_rank *rank)
{
    Options options;
    options.timeout = 14; // 67 ms
    options.retries = 7;
    options.script = rank->rank == 1 ? "lost-response:1" : "";
    Nic nic(rank, options);
    if (!nic.open()) {
        return;
    }
    const uint64_t *words = reinterpret_cast<const uint64_t *>(nic.memory.data());
    if (rank->rank == 0) {
        WEIRT_EXPECT(rank, nic.post_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8, 5, 0) == 0);
        WEIRT_EXPECT(rank, nic.done() && words[0] == 0);
    }
    nic.meet();
    if (rank->rank == 1) {
        WEIRT_EXPECT(rank, words[1] == 5);
    }
}

TEST_P(SwnicFault, LostAnswerOfAnAdd) { run(lost_answer_of_an_add); }

TEST_P(SwnicFault, ReceiverThatIsNotReady)
{
    run([](weirt_rank *rank) { unnoticed(rank, "not-ready:1,1000000,100", false, 18); });
}

TEST_P(SwnicFault, SlowDoorbells)
{
    run([](weirt_rank *rank) { unnoticed(rank, "slow-doorbell:500", true, 18); });
}

TEST_P(SwnicFault, LateCompletions)
{
    run([](weirt_rank *rank) { unnoticed(rank, "late-completion:1,1000000,300,2", true, 18); });
}

// Requests and completions have numbers that wrap at once, in 16, 24 and 32 bits.
TEST_P(SwnicFault, CountersThatWrapAtOnce)
{
    run([](weirt_rank *rank) { unnoticed(rank, "", true, 18, "counters:65500,16777200"); });
    run([](weirt_rank *rank) { unnoticed(rank, "", true, 18, "counters:4294967200,4294967250"); });
}

// The first write fails with `status`; the faults are on the posting rank or on the other one.
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

TEST_P(SwnicFault, LinkDownForLong)
{
    run([](weirt_rank *rank) { fails(rank, "link-down:0,100000", 1, IBV_WC_RETRY_EXC_ERR); });
}

// The third of five requests gets the syndrome, and those behind it are flushed.
void nth_fails(weirt_rank *rank, Nic &nic)
{
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

TEST_P(SwnicFault, TheThirdRequestFails) { run(opened<nth_fails>); }

// A link that is down for less than all retries shows only in its events.
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

TEST_P(SwnicFaultBetween, LinkFlap) { run(flaps); }

void no_atomics(weirt_rank *rank, Nic &nic)
{
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

TEST_P(SwnicFault, NoAtomics) { run(opened<no_atomics>); }

void device_fails(weirt_rank *rank, Nic &nic)
{
    ibv_async_event event;
    WEIRT_EXPECT(rank, swnic_inject(nic.context, "device:0") == 0);
    WEIRT_EXPECT(rank, ibv_get_async_event(nic.context, &event) == 0 && event.event_type == IBV_EVENT_DEVICE_FATAL);
    ibv_ack_async_event(&event);
    nic.meet();
}

TEST_P(SwnicFault, DeviceFails) { run(opened<device_fails>); }

// The first write fails with `status` and does nothing, and another queue pair goes on.
void fails_alone(weirt_rank *rank, const char *script, uint32_t at, ibv_wc_status status)
{
    Options options;
    options.pairs = 2;
    options.script = rank->rank == at ? script : "";
    Nic nic(rank, options);
    if (!nic.open()) {
        return;
    }
    if (rank->rank == 0) {
        fill(nic.memory.data(), 10000, 1);
        WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, 0, 10000) == 0);
        nic.done(status);
        WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, 50000, 10000, IBV_SEND_SIGNALED, 0, 1) == 0);
        nic.done();
    }
    nic.meet();
    if (rank->rank == 1) {
        const std::vector<uint8_t> nothing(10000);
        WEIRT_EXPECT(rank, std::memcmp(nic.memory.data(), nothing.data(), 10000) == 0);
        WEIRT_EXPECT(rank, wrong(nic.memory.data() + 50000, 10000, 1) == 0);
    }
}

TEST_P(SwnicFault, RefusedByThePeer)
{
    run([](weirt_rank *rank) { fails_alone(rank, "remote-access:1", 1, IBV_WC_REM_ACCESS_ERR); });
}

// SWNIC_SEED decides the missing part.
TEST_P(SwnicFault, TornRequest)
{
    for (const char *seed : { "0", "1", "2", "3", "4", "5" }) {
        setenv("SWNIC_SEED", seed, 1);
        run([](weirt_rank *rank) { fails_alone(rank, "torn:1", 0, IBV_WC_LOC_QP_OP_ERR); });
    }
    unsetenv("SWNIC_SEED");
}

// One of two doorbells of two queue pairs is lost: its request is carried out with the next one of the same pair.
void lost_doorbell(weirt_rank *rank)
{
    Options options;
    options.pairs = 2;
    Nic nic(rank, options);
    if (!nic.open()) {
        return;
    }
    if (rank->rank == 0) {
        ibv_wc wc = {};
        WEIRT_EXPECT(rank, swnic_inject(nic.context, "lost-doorbell:1") == 0);
        for (uint32_t pair = 0; pair < 2; pair++) {
            fill(nic.memory.data(), 100, 1);
            WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, 100 * pair, 100, IBV_SEND_SIGNALED, 1, pair) == 0);
        }
        if (nic.next(&wc) && nic.expect(wc, IBV_WC_SUCCESS)) {
            const uint32_t other = wc.qp_num == nic.qps[0]->qp_num ? 1 : 0;
            weirt_sleep_ms(100);
            WEIRT_EXPECT(rank, ibv_poll_cq(nic.cq, 1, &wc) == 0);
            WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, 200, 100, IBV_SEND_SIGNALED, 2, other) == 0);
            for (uint64_t i = 1; i <= 2 && nic.next(&wc); i++) {
                nic.expect(wc, IBV_WC_SUCCESS);
                WEIRT_EXPECT(rank, wc.wr_id == i && wc.qp_num == nic.qps[other]->qp_num);
            }
        }
    }
    nic.meet();
    if (rank->rank == 1) {
        for (uint64_t i = 0; i < 3; i++) {
            WEIRT_EXPECT(rank, wrong(nic.memory.data() + 100 * i, 100, 1) == 0);
        }
    }
}

TEST_P(SwnicFault, LostDoorbell) { run(lost_doorbell); }

// The first request completes last: each pair's completions are in order, those of two pairs are not.
void late_completion(weirt_rank *rank)
{
    Options options;
    options.pairs = 2;
    Nic nic(rank, options);
    if (!nic.open()) {
        return;
    }
    if (rank->rank == 0) {
        WEIRT_EXPECT(rank, swnic_inject(nic.context, "late-completion:1,1,1000,3600000") == 0);
        nic.memory[0] = 1;
        WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, 0, 8, IBV_SEND_SIGNALED, 1) == 0);
        WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, 8, 8, IBV_SEND_SIGNALED, 2) == 0);
        nic.meet(); // both ranks are done
        WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, 16, 8, IBV_SEND_SIGNALED, 3, 1) == 0);
        for (uint64_t id : { 3, 1, 2 }) {
            ibv_wc wc = {};
            WEIRT_EXPECT(rank, nic.next(&wc) && nic.expect(wc, IBV_WC_SUCCESS) && wc.wr_id == id);
        }
    } else {
        WEIRT_EXPECT(rank, nic.await_word(0, 1) && nic.await_word(8, 1));
        nic.meet();
    }
    nic.meet();
}

TEST_P(SwnicFaultBetween, CompletionsOfTwoPairsInAnotherOrder) { run(late_completion); }

// The flag arrives before its data; a read of the data waits for it.
void flag_first(weirt_rank *rank, Nic &nic)
{
    if (rank->rank == 1) {
        WEIRT_EXPECT(rank, swnic_inject(nic.context, "flag-first:2,1,1000,3600000") == 0);
    }
    nic.meet();
    if (rank->rank == 0) {
        fill(nic.memory.data() + 4096, 3 * 4096, 1);
        nic.memory[0] = 1;
        WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 4096, 4096, 3 * 4096) == 0);
        WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, 0, 8) == 0);
        WEIRT_EXPECT(rank, nic.done() && nic.done());
        nic.meet();
        WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_READ, 65536, 4096, 3 * 4096) == 0);
        WEIRT_EXPECT(rank, nic.done() && wrong(nic.memory.data() + 65536, 3 * 4096, 1) == 0);
    } else {
        WEIRT_EXPECT(rank, nic.await_word(0, 1));
        // The second of three packets is missing.
        const std::vector<uint8_t> nothing(4096);
        WEIRT_EXPECT(rank, std::memcmp(nic.memory.data() + 2 * 4096, nothing.data(), 4096) == 0);
        nic.meet();
    }
    nic.meet();
    if (rank->rank == 1) {
        WEIRT_EXPECT(rank, wrong(nic.memory.data() + 4096, 3 * 4096, 1) == 0);
    }
}

TEST_P(SwnicFaultBetween, FlagBeforeData) { run(opened<flag_first>); }

// A link that goes down repeatedly, each time for less than all retries.
void flaps_often(weirt_rank *rank)
{
    Options options;
    options.timeout = 14; // 67 ms
    options.retries = 7;
    Nic nic(rank, options);
    if (!nic.open()) {
        return;
    }
    if (rank->rank == 0) {
        WEIRT_EXPECT(rank, swnic_inject(nic.context, "link-down:0,5,1000000000,35") == 0);
        const uint64_t deadline = weirt_now_ms() + weirt_timeout_ms();
        pollfd events = { nic.context->async_fd, POLLIN, 0 };
        int changes = 0;
        for (uint64_t round = 0; changes < 6 && weirt_now_ms() < deadline; round++) {
            fill(nic.memory.data(), 1000, round);
            WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, 0, 1000, 0) == 0);
            WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_READ, 2000, 0, 1000) == 0);
            if (!nic.done() || !WEIRT_EXPECT(rank, wrong(nic.memory.data() + 2000, 1000, round) == 0)) {
                break;
            }
            while (poll(&events, 1, 0) == 1) {
                const ibv_event_type type = changes++ % 2 == 0 ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE;
                ibv_async_event event;
                WEIRT_EXPECT(rank, ibv_get_async_event(nic.context, &event) == 0 && event.event_type == type);
                ibv_ack_async_event(&event);
            }
        }
        WEIRT_EXPECT(rank, changes >= 6);
    }
    nic.meet();
}

TEST_P(SwnicFault, LinkFlapsOften) { run(flaps_often); }

// A shape's promises: nothing arrives before its time, and the rate stays below the limit.
void shaped(weirt_rank *rank, const char *script, uint32_t bytes, uint64_t least_ms)
{
    Options options;
    options.timeout = 20; // 4 s
    options.script = script;
    Nic nic(rank, options);
    if (!nic.open()) {
        return;
    }
    if (rank->rank == 0) {
        fill(nic.memory.data(), bytes, 1);
        const uint64_t begun = weirt_now_ms();
        WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, 0, bytes) == 0);
        nic.done();
        WEIRT_EXPECT(rank, weirt_now_ms() - begun + 1 >= least_ms);
    }
    nic.meet();
    if (rank->rank == 1) {
        WEIRT_EXPECT(rank, wrong(nic.memory.data(), bytes, 1) == 0);
    }
}

TEST_P(SwnicFaultBetween, Latency)
{
    // A round trip.
    run([](weirt_rank *rank) { shaped(rank, "shape:30000", 8, 60); });
}

TEST_P(SwnicFaultBetween, Bandwidth)
{
    // 8 Mb at 1 Gb/s, and a round trip.
    run([](weirt_rank *rank) { shaped(rank, "shape:1000,1", 1000000, 8 + 2); });
}

TEST(SwnicScript, MalformedOnesAreRefused)
{
    ibv_device **devices = ibv_get_device_list(nullptr);
    ibv_context *context = ibv_open_device(devices[0]);
    ibv_free_device_list(devices);
    ASSERT_NE(context, nullptr);
    for (const char *script : { "x", "error:", "error:a", "torn:1,2,3,4,5", "error:1;x", "link-down:1,", "error:-1" }) {
        EXPECT_EQ(swnic_inject(context, script), EINVAL) << script;
    }
    EXPECT_EQ(swnic_inject(context, "error:100,5;link-down:100000,5"), 0);
    EXPECT_EQ(ibv_close_device(context), 0);
}

} // namespace
