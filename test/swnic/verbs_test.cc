// The software NIC through verbs: each operation with data that depends on its position, each order, each error.
#include "nic.h"

using weirt::fill;
using weirt::Nic;
using weirt::opened;
using weirt::Options;
using weirt::wrong;

WEIRT_NIC_STAGES(SwnicVerbs, 0);
WEIRT_NIC_SUITE(SwnicBetween);
WEIRT_NIC_STAGES(SwnicProcess, 1);

static void each_operation(weirt_rank *rank)
{
    const uint32_t sizes[] = { 1, 7, 8, 64, 4095, 4096, 4097, 100000, 524288 };
    Nic nic(rank, Options());
    if (!nic.open()) {
        return;
    }
    uint64_t *words = reinterpret_cast<uint64_t *>(nic.memory.data());
    if (rank->rank == 0) {
        for (uint32_t i = 0; i < 9; i++) {
            // Reads the written data from the peer.
            fill(nic.memory.data() + i, sizes[i], i);
            WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, i, 3 * i, sizes[i], 0) == 0);
            WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_READ, 524288, 3 * i, sizes[i]) == 0);
            ibv_wc wc = {};
            if (!nic.next(&wc) || !nic.expect(wc, IBV_WC_SUCCESS)) {
                return;
            }
            WEIRT_EXPECT(rank, wc.opcode == IBV_WC_RDMA_READ && wc.byte_len == sizes[i]);
            WEIRT_EXPECT(rank, wrong(nic.memory.data() + 524288, sizes[i], i) == 0);
        }
        // Inline data is copied at the post; 50 bytes are more than a block.
        fill(nic.memory.data(), 50, 77);
        WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, 600000, 50, IBV_SEND_SIGNALED | IBV_SEND_INLINE) == 0);
        std::memset(nic.memory.data(), 0, 50);
        nic.done();
        words[0] = 5;
        WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, 700000, 8) == 0);
        nic.done();
        WEIRT_EXPECT(rank, nic.post_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 700000, 37, 0) == 0);
        WEIRT_EXPECT(rank, nic.post_atomic(IBV_WR_ATOMIC_CMP_AND_SWP, 16, 700000, 42, 1000) == 0);
        WEIRT_EXPECT(rank, nic.post_atomic(IBV_WR_ATOMIC_CMP_AND_SWP, 24, 700000, 42, 2000) == 0);
        nic.done();
        nic.done();
        nic.done();
        WEIRT_EXPECT(rank, words[1] == 5 && words[2] == 42 && words[3] == 1000);
        // Without bytes, address and key do not matter.
        WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, UINT64_C(1) << 40, 0) == 0);
        nic.done();
    }
    nic.meet();
    if (rank->rank == 1) {
        WEIRT_EXPECT(rank, wrong(nic.memory.data() + 3 * 8, 524288, 8) == 0);
        WEIRT_EXPECT(rank, wrong(nic.memory.data() + 600000, 50, 77) == 0);
        WEIRT_EXPECT(rank, words[700000 / 8] == 1000);
    }
}

TEST_P(SwnicBetween, EachOperation) { run(each_operation); }

// Words of rank 1 are read while it stores to them: each is old or new, never a mixture. The thread sanitizer also
// checks how they are read.
static void words_under_stores(weirt_rank *rank)
{
    constexpr uint32_t bytes = 4096;
    constexpr uint32_t words = bytes / 8;
    Nic nic(rank, Options());
    const bool open = nic.open();
    const uint32_t next = nic.step + 1;
    auto *memory = reinterpret_cast<uint64_t *>(nic.memory.data());
    if (open && rank->rank == 1) {
        const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
        for (uint64_t value = 1; weirt_step_now(rank, 0) < next && weirt_now_ms() < end; value++) {
            for (uint32_t i = 0; i < words; i++) {
                __atomic_store_n(memory + i, value << 32 | value, __ATOMIC_RELAXED);
            }
            weirt_step(rank, next);
        }
    } else if (open && weirt_step_wait(rank, 1, next)) {
        for (uint32_t round = 0; round < 50; round++) {
            uint64_t torn = 0;
            if (!WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_READ, 8 * words, 0, bytes) == 0)) {
                break;
            }
            nic.done();
            for (uint32_t i = 0; i < words; i++) {
                const uint64_t word = memory[words + i];
                torn += word == 0 || word >> 32 != (word & UINT32_MAX);
            }
            WEIRT_EXPECT(rank, torn == 0);
        }
    }
    weirt_step(rank, next);
    nic.step = next;
    nic.meet();
}

TEST_P(SwnicVerbs, ReadsTakeWholeWords) { run(words_under_stores); }

static void two_pieces(weirt_rank *rank)
{
    Nic nic(rank, Options());
    if (!nic.open() || rank->rank == 1) {
        nic.meet();
        return;
    }
    fill(nic.memory.data(), 10000, 1);
    ibv_sge pieces[2] = { { nic.here(0), 5001, nic.mr->lkey }, { nic.here(5001), 4999, nic.mr->lkey } };
    ibv_sge back[2] = { { nic.here(20000), 1, nic.mr->lkey }, { nic.here(20001), 9999, nic.mr->lkey } };
    ibv_send_wr wr[2] = {}, *bad;
    for (int i = 0; i < 2; i++) {
        wr[i].sg_list = i == 0 ? pieces : back;
        wr[i].num_sge = 2;
        wr[i].opcode = i == 0 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
        wr[i].send_flags = IBV_SEND_SIGNALED;
        wr[i].wr.rdma.remote_addr = nic.there(0);
        wr[i].wr.rdma.rkey = nic.key();
    }
    wr[0].next = &wr[1];
    WEIRT_EXPECT(rank, ibv_post_send(nic.qps[0], wr, &bad) == 0);
    nic.done();
    nic.done();
    WEIRT_EXPECT(rank, wrong(nic.memory.data() + 20000, 10000, 1) == 0);
    nic.meet();
}

TEST_P(SwnicVerbs, SeveralPieces) { run(two_pieces); }

// Requests of all lengths through a small ring, across the wraps of all counters: the ring wraps inside requests.
static void counters_wrap(weirt_rank *rank)
{
    Options options;
    options.depth = 96; // gives 128 requests in 512 blocks
    options.inlined = 200;
    options.entries = 15;
    options.script = "counters:64000,16777200"; // of 16 bits and of 24
    Nic nic(rank, options);
    if (!nic.open()) {
        return;
    }
    const uint32_t rounds = 2880; // of 2.5 blocks on average
    if (rank->rank == 0) {
        uint32_t posted = 0, completed = 0;
        fill(nic.memory.data(), 4096, 3);
        while (completed < rounds) {
            ibv_wc wc;
            uint32_t bytes = 1 + (posted * 7) % 200;
            int flags = IBV_SEND_INLINE | (posted % 32 == 31 ? static_cast<int>(IBV_SEND_SIGNALED) : 0);
            uint64_t at = posted % 1000;
            int error = posted == rounds ? ENOMEM : nic.post(IBV_WR_RDMA_WRITE, at, at, bytes, flags, posted);
            posted += error == 0;
            if (error != 0 && (!nic.next(&wc) || !nic.expect(wc, IBV_WC_SUCCESS) ||
                               !WEIRT_EXPECT(rank, wc.wr_id == completed + 31))) {
                break;
            }
            completed += error != 0 ? 32 : 0;
        }
    }
    nic.meet();
    if (rank->rank == 1) {
        WEIRT_EXPECT(rank, wrong(nic.memory.data(), 1000, 3) == 0);
    }
}

TEST_P(SwnicVerbs, CountersAndRingsWrap) { run(counters_wrap); }

// A fenced write follows the reads before it: it sends their data.
static void fences(weirt_rank *rank, Nic &nic)
{
    constexpr uint32_t bytes = 20000;
    fill(nic.memory.data() + 500000, 20 * bytes, 9 + rank->rank);
    nic.meet();
    if (rank->rank == 0) {
        for (uint64_t at = 0; at < 20 * bytes; at += bytes) {
            WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_READ, at, 500000 + at, bytes, 0) == 0);
            WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, at, at, bytes, IBV_SEND_SIGNALED | IBV_SEND_FENCE) == 0);
            if (!nic.done()) {
                break;
            }
        }
    }
    nic.meet();
    if (rank->rank == 1) {
        WEIRT_EXPECT(rank, wrong(nic.memory.data(), 20 * bytes, 10) == 0);
    }
}

TEST_P(SwnicVerbs, FenceWaitsForReads) { run(opened<fences>); }

// Both ends send long writes and reads to each other over two pairs.
static void both_ways(weirt_rank *rank)
{
    Options options;
    options.pairs = 2;
    Nic nic(rank, options);
    if (!nic.open()) {
        return;
    }
    fill(nic.memory.data(), 300000, 20 + rank->rank);
    nic.meet();
    for (int i = 0; i < 10; i++) {
        for (uint32_t pair = 0; pair < 2; pair++) {
            WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, 300000, 300000, IBV_SEND_SIGNALED, 0, pair) == 0);
            WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_READ, 600000, 0, 300000, IBV_SEND_SIGNALED, 0, pair) == 0);
        }
        if (!nic.done() || !nic.done() || !nic.done() || !nic.done()) {
            return;
        }
    }
    nic.meet();
    WEIRT_EXPECT(rank, wrong(nic.memory.data() + 300000, 300000, 21 - rank->rank) == 0);
    WEIRT_EXPECT(rank, wrong(nic.memory.data() + 600000, 300000, 21 - rank->rank) == 0);
}

TEST_P(SwnicBetween, BothWaysAtOnce) { run(both_ways); }

// ---- errors --------------------------------------------------------------------------------------------------

// The failed request has the status; later ones are flushed, signalled or not; earlier ones are done.
static void fails_with(weirt_rank *rank, const Options &options, ibv_wc_status status, int (*post)(Nic *nic))
{
    Nic nic(rank, options);
    if (!nic.open()) {
        return;
    }
    nic.meet();
    if (rank->rank == 0) {
        WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, 0, 8, IBV_SEND_SIGNALED, 1) == 0);
        WEIRT_EXPECT(rank, post(&nic) == 0);
        WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, 0, 8, 0, 3) == 0);
        WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, 0, 8, IBV_SEND_SIGNALED, 4) == 0);
        const ibv_wc_status expected[4] = { IBV_WC_SUCCESS, status, IBV_WC_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR };
        for (uint64_t i = 0; i < 4; i++) {
            ibv_wc wc = {};
            if (!nic.next(&wc)) {
                break;
            }
            nic.expect(wc, expected[i]);
            WEIRT_EXPECT(rank, wc.wr_id == i + 1);
        }
        ibv_qp_attr attr;
        ibv_qp_init_attr init;
        WEIRT_EXPECT(rank, ibv_query_qp(nic.qps[0], &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == IBV_QPS_ERR);
        // Later posts are flushed too.
        WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, 0, 8, 0, 5) == 0);
        nic.done(IBV_WC_WR_FLUSH_ERR);
    }
    nic.meet();
}

#define FAILS_WITH(name, status, call)                                                                     \
    TEST_P(SwnicVerbs, name)                                                                               \
    {                                                                                                      \
        run([](weirt_rank *rank) { fails_with(rank, Options(), status, [](Nic *nic) { return call; }); }); \
    }

FAILS_WITH(OneByteTooFar, IBV_WC_REM_ACCESS_ERR, nic->post(IBV_WR_RDMA_WRITE, 0, (1 << 20) - 99, 100, 0, 2))
FAILS_WITH(ReadTooFar, IBV_WC_REM_ACCESS_ERR, nic->post(IBV_WR_RDMA_READ, 0, (1 << 20) - 99, 100, 0, 2))
FAILS_WITH(MisalignedAtomic, IBV_WC_REM_INV_REQ_ERR, nic->post_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 4, 1, 0, 2))
FAILS_WITH(LocalProtection, IBV_WC_LOC_PROT_ERR, nic->post(IBV_WR_RDMA_WRITE, (1 << 20) - 99, 0, 100, 0, 2))

static int post_with_key(Nic *nic, uint32_t key)
{
    nic->meeting->offer[1].key ^= key;
    int error = nic->post(IBV_WR_RDMA_WRITE, 0, 0, 100, 0, 2);
    nic->meeting->offer[1].key ^= key;
    return error;
}

FAILS_WITH(KeyOfNothing, IBV_WC_REM_ACCESS_ERR, post_with_key(nic, 0x70000000))
FAILS_WITH(KeyOfAnotherTime, IBV_WC_REM_ACCESS_ERR, post_with_key(nic, 3))

TEST_P(SwnicVerbs, RightsAreChecked)
{
    run([](weirt_rank *rank) {
        Options options;
        options.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
        fails_with(rank, options, IBV_WC_REM_ACCESS_ERR,
                   [](Nic *nic) { return nic->post(IBV_WR_RDMA_READ, 0, 0, 8, 0, 2); });
    });
}

// A region is deregistered while requests use it: one of them fails, and nothing touches the memory afterwards.
static void deregistered(weirt_rank *rank)
{
    Nic nic(rank, Options());
    if (!nic.open()) {
        return;
    }
    if (rank->rank == 1) {
        weirt_sleep_ms(5);
        WEIRT_EXPECT(rank, ibv_dereg_mr(nic.mr) == 0);
        nic.mr = nullptr;
        std::vector<uint8_t>().swap(nic.memory);
    } else {
        ibv_wc wc = {};
        do {
            if (!WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, 0, 500000) == 0) || !nic.next(&wc)) {
                break;
            }
        } while (wc.status == IBV_WC_SUCCESS);
        nic.expect(wc, IBV_WC_REM_ACCESS_ERR);
    }
    nic.meet();
}

TEST_P(SwnicBetween, DeregistrationUnderWay) { run(deregistered); }

// The responder of a refused request gets an event and is in the error state too.
static void responder_hears(weirt_rank *rank, Nic &nic)
{
    if (rank->rank == 0) {
        WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, UINT64_C(1) << 40, 8) == 0);
        nic.done(IBV_WC_REM_ACCESS_ERR);
    } else {
        ibv_async_event event;
        if (WEIRT_EXPECT(rank, ibv_get_async_event(nic.context, &event) == 0)) {
            WEIRT_EXPECT(rank, event.event_type == IBV_EVENT_QP_ACCESS_ERR && event.element.qp == nic.qps[0]);
            ibv_ack_async_event(&event);
        }
        WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, 0, 8, 0) == 0);
        nic.done(IBV_WC_WR_FLUSH_ERR);
    }
    nic.meet();
}

TEST_P(SwnicVerbs, ResponderHearsOfAnError) { run(opened<responder_hears>); }

static void peer_gone(weirt_rank *rank)
{
    Options options;
    options.timeout = 12; // 17 ms, three times
    options.retries = 2;
    Nic nic(rank, options);
    if (!nic.open()) {
        return;
    }
    if (rank->rank == 1) {
        nic.close();
        nic.meet();
    } else {
        nic.meet();
        const uint64_t before = weirt_now_ms();
        WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, 0, 8) == 0);
        nic.done(IBV_WC_RETRY_EXC_ERR);
        WEIRT_EXPECT(rank, weirt_now_ms() - before >= 49);
    }
}

TEST_P(SwnicBetween, PeerThatIsGone) { run(peer_gone); }

static void peer_killed(weirt_rank *rank)
{
    Options options;
    options.timeout = 12;
    options.retries = 2;
    Nic nic(rank, options);
    if (!nic.open()) {
        return;
    }
    if (rank->rank == 1) {
        weirt_die(rank, WEIRT_KILL);
    }
    ibv_wc wc = {};
    do {
        if (!WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, 0, 500000) == 0) || !nic.next(&wc)) {
            return;
        }
    } while (wc.status == IBV_WC_SUCCESS);
    nic.expect(wc, IBV_WC_RETRY_EXC_ERR);
}

TEST_P(SwnicProcess, PeerThatIsKilled) { run(peer_killed); }

// More completions than entries, without polls.
static void overrun(weirt_rank *rank)
{
    Options options;
    options.entries = 7;
    Nic nic(rank, options);
    if (!nic.open()) {
        return;
    }
    if (rank->rank == 0) {
        for (int i = 0; i < 9; i++) {
            WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, 0, 8) == 0);
        }
        ibv_async_event event;
        if (WEIRT_EXPECT(rank, ibv_get_async_event(nic.context, &event) == 0)) {
            WEIRT_EXPECT(rank, event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == nic.cq);
            ibv_ack_async_event(&event);
        }
    }
    nic.meet();
}

TEST_P(SwnicVerbs, CompletionQueueOverrun) { run(overrun); }

// With overruns allowed, entries are overwritten before they are polled, and the queue pair goes on.
static void overrun_ignored(weirt_rank *rank)
{
    Options options;
    options.entries = 7; // gives 8
    options.overruns = true;
    Nic nic(rank, options);
    if (!nic.open()) {
        return;
    }
    if (rank->rank == 0) {
        mlx5dv_cq cq = {};
        mlx5dv_obj obj = {};
        obj.cq.in = nic.cq;
        obj.cq.out = &cq;
        WEIRT_EXPECT(rank, mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ) == 0 && cq.cqe_cnt == 8);
        for (uint64_t i = 0; i < 30; i++) {
            nic.memory[0] = static_cast<uint8_t>(i + 1);
            WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, 8 * i, 8, IBV_SEND_SIGNALED | IBV_SEND_INLINE) == 0);
        }
        // Entry 29 is the last, in the fourth pass.
        const mlx5_cqe64 *entries = static_cast<const mlx5_cqe64 *>(cq.buf);
        const uint32_t *tail = reinterpret_cast<const uint32_t *>(&entries[29 % 8].sop_drop_qpn) + 1;
        const uint64_t deadline = weirt_now_ms() + weirt_timeout_ms();
        uint32_t last = 0;
        while (weirt_now_ms() < deadline && be32toh(last) >> 16 != 29) {
            last = __atomic_load_n(tail, __ATOMIC_ACQUIRE);
            weirt_sleep_ms(0);
        }
        WEIRT_EXPECT(rank, be32toh(last) == (29u << 16 | (29 / 8 & 1)));
    }
    nic.meet();
    if (rank->rank == 1) {
        for (uint64_t i = 0; i < 30; i++) {
            WEIRT_EXPECT(rank, nic.memory[8 * i] == i + 1);
        }
    }
}

TEST_P(SwnicVerbs, CompletionQueueOverrunIgnored) { run(overrun_ignored); }

// ---- objects -------------------------------------------------------------------------------------------------

TEST(SwnicObjects, DeviceAndPort)
{
    int count = 0;
    ibv_device **devices = ibv_get_device_list(&count);
    ASSERT_NE(devices, nullptr);
    ASSERT_EQ(count, 1);
    EXPECT_STREQ(ibv_get_device_name(devices[0]), "swnic0");
    ibv_context *context = ibv_open_device(devices[0]);
    ibv_free_device_list(devices);
    ASSERT_NE(context, nullptr);
    ibv_device_attr limits;
    ibv_port_attr port;
    ibv_gid gid;
    ASSERT_EQ(ibv_query_device(context, &limits), 0);
    EXPECT_EQ(limits.atomic_cap, IBV_ATOMIC_HCA);
    ASSERT_EQ(ibv_query_port(context, 1, &port), 0);
    EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
    EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_INFINIBAND);
    EXPECT_EQ(port.lid, 1);
    EXPECT_NE(ibv_query_port(context, 2, &port), 0);
    EXPECT_EQ(ibv_query_gid(context, 1, 0, &gid), 0);
    EXPECT_NE(ibv_query_gid(context, 1, 1, &gid), 0);
    EXPECT_EQ(ibv_close_device(context), 0);
}

class SwnicObject : public ::testing::Test {
protected:
    void SetUp() override
    {
        ibv_device **devices = ibv_get_device_list(nullptr);
        context = ibv_open_device(devices[0]);
        ibv_free_device_list(devices);
        ASSERT_NE(context, nullptr);
        pd = ibv_alloc_pd(context);
        cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
        ASSERT_TRUE(pd != nullptr && cq != nullptr);
    }
    void TearDown() override
    {
        EXPECT_EQ(ibv_destroy_cq(cq), 0);
        EXPECT_EQ(ibv_dealloc_pd(pd), 0);
        EXPECT_EQ(ibv_close_device(context), 0);
    }
    ibv_qp *pair()
    {
        ibv_qp_init_attr attr = {};
        attr.send_cq = attr.recv_cq = cq;
        attr.cap.max_send_wr = 16;
        attr.cap.max_send_sge = 1;
        attr.qp_type = IBV_QPT_RC;
        return ibv_create_qp(pd, &attr);
    }
    ibv_context *context = nullptr;
    ibv_pd *pd = nullptr;
    ibv_cq *cq = nullptr;
};

TEST_F(SwnicObject, StatesNeedTheirAttributes)
{
    ibv_qp *qp = pair();
    ASSERT_NE(qp, nullptr);
    ibv_qp_attr attr = {};
    attr.port_num = 1;
    attr.qp_state = IBV_QPS_RTR;
    EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
    attr.qp_state = IBV_QPS_INIT;
    EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT), EINVAL);
    EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
    EXPECT_EQ(qp->state, IBV_QPS_INIT);
    attr.qp_state = IBV_QPS_RTS;
    EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
    attr.qp_state = IBV_QPS_ERR;
    EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), EBUSY);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(SwnicObject, RegionsMustBeMemoryOfTheCpu)
{
    uint8_t byte;
    EXPECT_EQ(ibv_reg_mr(pd, reinterpret_cast<void *>(16), 8, IBV_ACCESS_LOCAL_WRITE), nullptr);
    EXPECT_EQ(errno, EFAULT);
    EXPECT_EQ(ibv_reg_mr(pd, &byte, 1, IBV_ACCESS_REMOTE_WRITE), nullptr);
    EXPECT_EQ(errno, EINVAL);
    // Keys are not reused soon.
    ibv_mr *first = ibv_reg_mr(pd, &byte, 1, 0);
    uint32_t key = first->rkey;
    EXPECT_EQ(ibv_dereg_mr(first), 0);
    std::vector<ibv_mr *> regions;
    for (int i = 0; i < 200; i++) {
        regions.push_back(ibv_reg_mr(pd, &byte, 1, 0));
        ASSERT_NE(regions.back(), nullptr);
        EXPECT_NE(regions.back()->rkey, key);
    }
    for (ibv_mr *region : regions) {
        EXPECT_EQ(ibv_dereg_mr(region), 0);
    }
}

// A pair connected to itself, and two of one context.
TEST_F(SwnicObject, OneContextAlone)
{
    uint64_t words[2] = { 0x1122334455667788u, 0 };
    ibv_mr *mr = ibv_reg_mr(pd, words, sizeof words, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    ibv_qp *qps[2] = { pair(), pair() };
    ASSERT_TRUE(mr != nullptr && qps[0] != nullptr && qps[1] != nullptr);
    for (int i = 0; i < 2; i++) {
        ibv_qp_attr attr = {};
        attr.port_num = attr.ah_attr.port_num = 1;
        attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
        attr.path_mtu = IBV_MTU_256;
        attr.dest_qp_num = qps[1 - i]->qp_num;
        attr.ah_attr.dlid = 1;
        attr.timeout = 18;
        const int masks[3] = { IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
                               IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                               IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                   IBV_QP_MAX_QP_RD_ATOMIC };
        for (int step = 0; step < 3; step++) {
            attr.qp_state = static_cast<ibv_qp_state>(IBV_QPS_INIT + step);
            ASSERT_EQ(ibv_modify_qp(qps[i], &attr, IBV_QP_STATE | masks[step]), 0);
        }
    }
    ibv_sge piece = { reinterpret_cast<uint64_t>(&words[0]), 8, mr->lkey };
    ibv_send_wr wr = {}, *bad;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(&words[1]);
    wr.wr.rdma.rkey = mr->rkey;
    ASSERT_EQ(ibv_post_send(qps[0], &wr, &bad), 0);
    ibv_wc wc = {};
    const uint64_t deadline = weirt_now_ms() + weirt_timeout_ms();
    while (ibv_poll_cq(cq, 1, &wc) == 0 && weirt_now_ms() < deadline) {
        weirt_sleep_ms(1);
    }
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.qp_num, qps[0]->qp_num);
    EXPECT_EQ(words[1], words[0]);
    EXPECT_EQ(ibv_destroy_qp(qps[0]), 0);
    EXPECT_EQ(ibv_destroy_qp(qps[1]), 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}
