// Writes with immediate and their receives, by verbs and by the rings: each arrives once, in order, behind its data.
#include <weir/device/impl/mlx5.h>

#include "nic.h"

using weirt::fill;
using weirt::Nic;
using weirt::Options;
using weirt::wrong;

WEIRT_NIC_STAGES(SwnicReceive, 0);
WEIRT_NIC_SUITE(SwnicReceiveBetween);

namespace {

constexpr uint32_t receives = 8;
constexpr uint32_t slot_bytes = 12000;

// The 32 bits of notice `i` of a pair, and its bytes: 0, a word, two packets or three.
uint32_t immediate(uint64_t i, uint32_t pair) { return static_cast<uint32_t>((i * 2 + pair + 1) * 0x9e3779b1u); }

uint32_t bytes_of(uint64_t i)
{
    const uint32_t sizes[] = { 0, 8, 5000, slot_bytes };
    return sizes[i % 4];
}

Options with_receives()
{
    Options options;
    options.receives = receives;
    options.not_ready = 7; // for ever
    return options;
}

// All but the last packet of a write that waits for its receive may have arrived, so there are twice as many slots as
// receives.
uint64_t slot(uint64_t i, uint32_t pair) { return (i % (2 * receives) + pair * 2 * receives) * slot_bytes; }

// Rank 0 posts notice `i` of a pair once there is room.
void send(Nic *nic, uint64_t i, uint32_t pair)
{
    const uint32_t bytes = bytes_of(i);
    fill(nic->memory.data() + slot(i, pair), bytes, i * 2 + pair);
    const int flags = IBV_SEND_SIGNALED | (bytes == 8 ? IBV_SEND_INLINE : 0);
    WEIRT_EXPECT(nic->rank,
                 nic->post_immediate(slot(i, pair), slot(i, pair), bytes, immediate(i, pair), flags, pair) == 0);
}

// Rank 1 takes the next notice of any pair, checks all its data, and posts its receive again.
bool take(Nic *nic, uint64_t *taken)
{
    ibv_wc wc;
    if (!nic->next(&wc, nic->inbox) || !nic->expect(wc, IBV_WC_SUCCESS)) {
        return false;
    }
    const uint32_t pair = nic->options.pairs == 2 && wc.qp_num == nic->qps[1]->qp_num;
    const uint64_t i = taken[pair]++;
    return WEIRT_EXPECT(nic->rank, wc.qp_num == nic->qps[pair]->qp_num) &&
           WEIRT_EXPECT(nic->rank, wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.wc_flags == IBV_WC_WITH_IMM) &&
           WEIRT_EXPECT(nic->rank, wc.imm_data == htobe32(immediate(i, pair)) && wc.byte_len == bytes_of(i)) &&
           WEIRT_EXPECT(nic->rank, wc.wr_id == 100 + i) &&
           WEIRT_EXPECT(nic->rank, wrong(nic->memory.data() + slot(i, pair), bytes_of(i), i * 2 + pair) == 0) &&
           WEIRT_EXPECT(nic->rank, nic->receive(100 + i + receives, pair) == 0);
}

// `count` notices of each pair; a pair has one under way for each receive.
void notices(weirt_rank *rank, const Options &options, uint64_t count, const char *script)
{
    Nic nic(rank, options);
    if (!nic.open()) {
        return;
    }
    WEIRT_EXPECT(rank, swnic_inject(nic.context, script) == 0);
    if (rank->rank == 1) {
        for (uint32_t k = 0; k < receives * options.pairs; k++) {
            WEIRT_EXPECT(rank, nic.receive(100 + k / options.pairs, k % options.pairs) == 0);
        }
    }
    nic.meet();
    if (rank->rank == 0) {
        for (uint64_t i = 0; i < count; i++) {
            for (uint32_t pair = 0; pair < options.pairs; pair++) {
                if (i >= receives && !nic.done()) {
                    return;
                }
                send(&nic, i, pair);
            }
        }
        for (uint64_t i = 0; i < options.pairs * (count < receives ? count : receives); i++) {
            nic.done();
        }
    } else {
        uint64_t taken[2] = { 0, 0 };
        for (uint64_t i = 0; i < count * options.pairs && take(&nic, taken); i++) {
        }
        WEIRT_EXPECT(rank, taken[0] == count && taken[1] == (options.pairs == 2 ? count : 0));
    }
    nic.meet();
    ibv_wc wc;
    WEIRT_EXPECT(rank, ibv_poll_cq(nic.inbox, 1, &wc) == 0);
    WEIRT_EXPECT(rank, nic.memory[options.bytes - 64] == 0);
}

void lossy(weirt_rank *rank, const char *script)
{
    Options options = with_receives();
    options.timeout = 14; // 67 ms
    options.retries = 7;
    notices(rank, options, 60, script);
}

// Without a receive only the packets before the last one arrive, and nothing behind them. With a receive, everything
// arrives.
void waits_for_receives(weirt_rank *rank)
{
    constexpr uint32_t count = 3;
    Nic nic(rank, with_receives());
    if (!nic.open()) {
        return;
    }
    uint64_t *words = reinterpret_cast<uint64_t *>(nic.memory.data());
    ibv_wc wc;
    if (rank->rank == 0) {
        words[0] = 77;
        WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, 8, 8) == 0);
        nic.done();
        for (uint32_t i = 0; i < count; i++) {
            fill(nic.memory.data() + 4096 + i * slot_bytes, slot_bytes, i);
            WEIRT_EXPECT(rank, nic.post_immediate(4096 + i * slot_bytes, 4096 + i * slot_bytes, slot_bytes, i) == 0);
        }
        WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, 0, 8) == 0);
        nic.meet();
        WEIRT_EXPECT(rank, ibv_poll_cq(nic.cq, 1, &wc) == 0);
        nic.meet();
        for (uint32_t i = 0; i <= count; i++) {
            nic.done();
        }
    } else {
        WEIRT_EXPECT(rank, nic.await_word(8, 77));
        weirt_sleep_ms(20);
        WEIRT_EXPECT(rank, ibv_poll_cq(nic.inbox, 1, &wc) == 0 && nic.memory[4096 + slot_bytes - 1] == 0);
        nic.meet();
        nic.meet();
        for (uint32_t i = 0; i < count; i++) {
            WEIRT_EXPECT(rank, __atomic_load_n(words, __ATOMIC_ACQUIRE) == 0 && nic.receive(i) == 0);
            WEIRT_EXPECT(rank, nic.next(&wc, nic.inbox) && wc.imm_data == htobe32(i) && wc.byte_len == slot_bytes);
            WEIRT_EXPECT(rank, wrong(nic.memory.data() + 4096 + i * slot_bytes, slot_bytes, i) == 0);
        }
        WEIRT_EXPECT(rank, nic.await_word(0, 77));
    }
    nic.meet();
}

// Without a receive, the write and later ones fail; the other queue pair goes on.
void finds_no_receive(weirt_rank *rank)
{
    Options options = with_receives();
    options.not_ready = 3;
    options.pairs = 2;
    Nic nic(rank, options);
    if (!nic.open()) {
        return;
    }
    if (rank->rank == 1) {
        WEIRT_EXPECT(rank, nic.receive(5, 1) == 0);
    }
    nic.meet();
    if (rank->rank == 0) {
        nic.memory[0] = 7;
        WEIRT_EXPECT(rank, nic.post_immediate(0, 0, 8, 1) == 0);
        WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, 8, 8) == 0);
        nic.done(IBV_WC_RNR_RETRY_EXC_ERR);
        nic.done(IBV_WC_WR_FLUSH_ERR);
        WEIRT_EXPECT(rank, nic.post_immediate(0, 16, 8, 2, IBV_SEND_SIGNALED, 1) == 0);
        nic.done();
    } else {
        ibv_wc wc;
        WEIRT_EXPECT(rank, nic.next(&wc, nic.inbox));
        WEIRT_EXPECT(rank, wc.wr_id == 5 && wc.imm_data == htobe32(2) && wc.qp_num == nic.qps[1]->qp_num);
        WEIRT_EXPECT(rank, nic.memory[0] == 0 && nic.memory[8] == 0 && nic.memory[16] == 7);
    }
    nic.meet();
}

// A failed queue pair completes its receives, also those posted afterwards, and no others.
void flushes(weirt_rank *rank)
{
    Options options = with_receives();
    options.pairs = 2;
    Nic nic(rank, options);
    if (!nic.open()) {
        return;
    }
    if (rank->rank == 1) {
        ibv_wc wc;
        ibv_sge pieces[2] = {};
        ibv_recv_wr wr = {}, *bad = nullptr;
        wr.sg_list = pieces;
        wr.num_sge = 2;
        WEIRT_EXPECT(rank, ibv_post_recv(nic.qps[0], &wr, &bad) == EINVAL && bad == &wr);
        for (uint64_t i = 0; i < receives; i++) {
            WEIRT_EXPECT(rank, nic.receive(i) == 0);
        }
        WEIRT_EXPECT(rank, nic.receive(receives) == ENOMEM && ibv_poll_cq(nic.inbox, 1, &wc) == 0);
        ibv_qp_attr attr = {};
        attr.qp_state = IBV_QPS_ERR;
        WEIRT_EXPECT(rank, ibv_modify_qp(nic.qps[0], &attr, IBV_QP_STATE) == 0);
        for (uint64_t i = 0; i < receives + 3; i++) {
            WEIRT_EXPECT(rank, nic.next(&wc, nic.inbox) && nic.expect(wc, IBV_WC_WR_FLUSH_ERR) && wc.wr_id == i);
            WEIRT_EXPECT(rank, i >= 3 || nic.receive(receives + i) == 0);
        }
        WEIRT_EXPECT(rank, nic.receive(7, 1) == 0);
    }
    nic.meet();
    if (rank->rank == 0) {
        WEIRT_EXPECT(rank, nic.post_immediate(0, 0, 8, 3, IBV_SEND_SIGNALED, 1) == 0);
        nic.done();
    } else {
        ibv_wc wc;
        WEIRT_EXPECT(rank, nic.next(&wc, nic.inbox) && nic.expect(wc, IBV_WC_SUCCESS) && wc.wr_id == 7);
    }
    nic.meet();
}

// An acknowledgement is lost and the write is repeated: it takes no second receive.
void lost_answer(weirt_rank *rank)
{
    Options options = with_receives();
    options.timeout = 14; // 67 ms
    options.script = rank->rank == 1 ? "lost-response:1" : "";
    Nic nic(rank, options);
    if (!nic.open()) {
        return;
    }
    ibv_wc wc;
    WEIRT_EXPECT(rank, nic.receive(1) == 0 && nic.receive(2) == 0);
    nic.meet();
    if (rank->rank == 0) {
        WEIRT_EXPECT(rank, nic.post_immediate(0, 0, 8, 5) == 0);
        nic.done();
    }
    nic.meet();
    if (rank->rank == 1) {
        WEIRT_EXPECT(rank, ibv_poll_cq(nic.inbox, 1, &wc) == 1 && wc.wr_id == 1 && wc.imm_data == htobe32(5));
        WEIRT_EXPECT(rank, ibv_poll_cq(nic.inbox, 1, &wc) == 0);
    }
}

// A queue pair's receive ring, without the driver.
class Ring {
public:
    explicit Ring(Nic *nic) : nic(nic)
    {
        mlx5dv_obj both = {};
        both.qp.in = nic->qps[0];
        both.qp.out = &qp;
        both.cq.in = nic->inbox;
        both.cq.out = &cq;
        WEIRT_EXPECT(nic->rank, mlx5dv_init_obj(&both, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ) == 0);
        WEIRT_EXPECT(nic->rank, qp.rq.wqe_cnt == receives && qp.rq.stride == sizeof(weir_vec16));
    }
    // Entries without memory, and with 64 bytes, in turn.
    void fill(uint32_t count)
    {
        for (uint32_t i = 0; i < count; i++) {
            static_cast<weir_vec16 *>(qp.rq.buf)[i] =
                i % 2 == 0 ? weir_mlx5_data_end() : weir_mlx5_data(nic->here(4096), nic->mr->lkey, 64);
        }
    }
    void post(uint32_t count)
    {
        posted += count;
        __atomic_store_n(&qp.dbrec[MLX5_RCV_DBR], weir_mlx5_record(posted), __ATOMIC_RELEASE);
    }
    // Waits for the next completion and returns its word at byte 4 * index; a failure of the test if it does not
    // arrive.
    uint32_t wait()
    {
        entry = static_cast<const uint32_t *>(cq.buf) + taken % cq.cqe_cnt * 16;
        const uint64_t deadline = weirt_now_ms() + weirt_timeout_ms();
        uint32_t tail = 0;
        while (!weir_mlx5_is_new(tail = __atomic_load_n(entry + 15, __ATOMIC_ACQUIRE), taken, cq.cqe_cnt)) {
            if (weirt_now_ms() >= deadline) {
                weirt_fail(nic->rank, __FILE__, __LINE__, "no completion");
                return 0;
            }
            weirt_sleep_ms(0);
        }
        taken++;
        __atomic_store_n(&cq.dbrec[0], htobe32(taken & 0xffffff), __ATOMIC_RELEASE);
        return tail;
    }
    uint32_t word(uint32_t index) const { return __atomic_load_n(entry + index, __ATOMIC_RELAXED); }

    Nic *nic;
    mlx5dv_qp qp = {};
    mlx5dv_cq cq = {};
    const uint32_t *entry = nullptr;
    uint64_t posted = 0, taken = 0;
};

// Entries are written once, and posted again by the record alone.
void by_the_record(weirt_rank *rank)
{
    constexpr uint32_t count = 5 * receives;
    Nic nic(rank, with_receives());
    if (!nic.open()) {
        return;
    }
    if (rank->rank == 0) {
        for (uint32_t i = 0; i < count; i++) {
            WEIRT_EXPECT(rank, nic.post_immediate(0, 0, i, immediate(i, 0)) == 0);
            nic.done();
        }
    } else {
        Ring ring(&nic);
        ring.fill(receives);
        for (uint32_t i = 0; i < count; i++) {
            if (i % 4 == 0) {
                ring.post(4);
            }
            const uint32_t tail = ring.wait();
            WEIRT_EXPECT(rank, weir_mlx5_kind(tail) == WEIR_MLX5_RECEIVED && weir_mlx5_completed(tail, 0) == i);
            WEIRT_EXPECT(rank, weir_arch_swap_u32(ring.word(9)) == immediate(i, 0));
            WEIRT_EXPECT(rank, weir_arch_swap_u32(ring.word(11)) == i);
            WEIRT_EXPECT(rank, weir_mlx5_receiver(ring.word(14)) == nic.qps[0]->qp_num);
        }
        WEIRT_EXPECT(rank, nic.memory[4096] == 0);
    }
    nic.meet();
}

// An invalid receive fails both ends, but not another queue pair; the numbers are those of swnic.h.
void refuses_receive(weirt_rank *rank, uint32_t filled, uint32_t posted, uint32_t vendor, uint32_t flushed)
{
    Options options = with_receives();
    options.pairs = 2;
    Nic nic(rank, options);
    if (!nic.open()) {
        return;
    }
    Ring ring(&nic);
    if (rank->rank == 1) {
        ring.fill(filled);
        ring.post(posted);
    }
    nic.meet();
    if (rank->rank == 0) {
        nic.memory[0] = 7;
        WEIRT_EXPECT(rank, nic.post_immediate(0, 0, 8, 1) == 0);
        nic.done(IBV_WC_REM_OP_ERR);
    } else {
        const uint32_t tail = ring.wait();
        WEIRT_EXPECT(rank, weir_mlx5_kind(tail) == WEIR_MLX5_RECEIVE_FAILED && weir_mlx5_completed(tail, 0) == 0);
        WEIRT_EXPECT(rank, weir_mlx5_syndrome(ring.word(13)) == WEIR_MLX5_LOCAL_OPERATION);
        WEIRT_EXPECT(rank, weir_mlx5_vendor(ring.word(13)) == vendor && nic.memory[0] == 0);
        for (uint32_t i = 0; i < flushed; i++) {
            WEIRT_EXPECT(rank, weir_mlx5_kind(ring.wait()) == WEIR_MLX5_RECEIVE_FAILED);
            WEIRT_EXPECT(rank, weir_mlx5_syndrome(ring.word(13)) == WEIR_MLX5_FLUSHED);
        }
        WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, 16, 8, IBV_SEND_SIGNALED, 0, 1) == 0);
        nic.done();
    }
    nic.meet();
}

void not_written(weirt_rank *rank) { refuses_receive(rank, 0, 3, 15, 2); }

void too_many(weirt_rank *rank) { refuses_receive(rank, receives, receives + 1, 16, receives); }

} // namespace

TEST_P(SwnicReceiveBetween, NoticesFollowTheirData)
{
    run([](weirt_rank *rank) { notices(rank, with_receives(), 100, ""); });
}

TEST_P(SwnicReceiveBetween, TwoSendersIntoOneQueue)
{
    run([](weirt_rank *rank) {
        Options options = with_receives();
        options.pairs = 2;
        notices(rank, options, 60, "");
    });
}

// Past the 16 bits of an index and the 24 of a completion's number, and of 32 bits.
TEST_P(SwnicReceive, CountersThatWrap)
{
    run([](weirt_rank *rank) {
        Options options = with_receives();
        options.script = "counters:65500,16777200";
        notices(rank, options, 100, "");
    });
    run([](weirt_rank *rank) {
        Options options = with_receives();
        options.script = "counters:4294967270,4294967280";
        notices(rank, options, 100, "");
    });
}

// Lost requests and answers are repeated; each notice arrives once.
TEST_P(SwnicReceive, WhatComesAgainIsNoSecondNotice)
{
    run([](weirt_rank *rank) { lossy(rank, "lost-response:1,1000000,100"); });
    run([](weirt_rank *rank) { lossy(rank, "lost-request:1,1000000,50"); });
    run([](weirt_rank *rank) { lossy(rank, "not-ready:1,1000000,200"); });
}

TEST_P(SwnicReceiveBetween, WritesWaitForReceives) { run(waits_for_receives); }

TEST_P(SwnicReceive, WritesThatFindNoReceive) { run(finds_no_receive); }
TEST_P(SwnicReceive, FailedQueuePairsCompleteTheirReceives) { run(flushes); }
TEST_P(SwnicReceive, LostAnswerOfANotice) { run(lost_answer); }
TEST_P(SwnicReceive, EntriesArePostedByTheRecord) { run(by_the_record); }
TEST_P(SwnicReceive, EntryThatWasNeverWritten) { run(not_written); }
TEST_P(SwnicReceive, MoreReceivesThanTheRingHolds) { run(too_many); }
