// Kernels that post and take notices (weir/device/rdma_notice.h): each arrives once, in the order of its poster, with
// all its data.
#include "notice_kernels.h"
#include "queue.h"

#include "test/harness/checks.h"

using weirt::Nic;
using weirt::Options;

WEIRT_NIC_SUITE(SwnicNotice);
WEIRT_NIC_STAGES(SwnicNoticeTrouble, 0);

namespace {

constexpr uint32_t receives = 16;

struct Plan {
    uint32_t threads = 1;
    uint64_t rounds = 200;
    uint32_t pairs = 1;
    bool exclusive = false;
    bool together = false;
    const char *script = ""; // at both ends
    uint8_t timeout = 18;    // 1.07 s
};

uint32_t scaled(uint32_t count) { return weirt_sanitizer()[0] == 0 ? count : count / 4; }

Options options_of(const Plan &plan)
{
    Options options;
    options.pairs = plan.pairs;
    options.apart = plan.pairs == 2;
    options.receives = receives;
    options.not_ready = 7; // for ever
    options.retries = 7;
    options.timeout = plan.timeout;
    options.script = plan.script;
    return options;
}

// Objects of the kernels of one rank.
struct Side : weirt::Kernels {
    bool open(Nic *nic, const Plan &plan, const weir_kernel *what)
    {
        bool fine = Kernels::open(nic->rank, what) && weirt::describe(nic, &control, &taken, &args.inbox);
        for (uint32_t i = 0; i < plan.pairs && fine; i++) {
            fine = weirt::describe(nic, i, &control, &state[i], &args.queue[i]) &&
                   weirt::describe(nic, i, &posted[i], &args.receives[i]);
            args.queue[i].exclusive = plan.exclusive;
        }
        args.memory = reinterpret_cast<uint64_t *>(nic->memory.data());
        args.local = { nic->here(0), nic->mr->lkey, 0 };
        args.remote = { nic->there(0), nic->key(), 0 };
        args.report = &report;
        args.rounds = plan.rounds;
        args.posted = receives;
        args.batch = 4;
        args.queues = plan.pairs;
        args.threads = plan.threads;
        args.flags = WEIR_RDMA_RING;
        args.together = plan.together;
        return fine;
    }

    alignas(128) weir_dev_rdma_state state[2] = {};
    uint64_t posted[2] = {}, taken = 0;
    notice_report report = {};
    notice_args args = {};
};

// All threads of rank 0 post notices, and the thread of rank 1 takes them.
void notices(weirt_rank *rank, const Plan &plan)
{
    Nic nic(rank, options_of(plan));
    Side side;
    if (!nic.open() || !side.open(&nic, plan, rank->rank == 0 ? notice_poster() : notice_taker())) {
        return;
    }
    if (plan.script[0] == 'c') {
        WEIRT_EXPECT(rank, side.posted[0] > 60000 && side.taken > 16000000);
    }
    const uint64_t before = side.taken;
    side.run(rank->rank == 0 ? plan.threads : 1, &side.args);
    for (uint32_t i = 0; i < plan.threads; i++) {
        WEIRT_EXPECT(rank, side.report.status[i] == WEIR_OK && side.report.done[i] == plan.rounds);
    }
    WEIRT_EXPECT(rank, side.report.wrong == 0);
    nic.meet();
    if (rank->rank == 1) {
        weir_dev_rdma_notice none;
        WEIRT_EXPECT(rank, side.taken - before == plan.threads * plan.rounds);
        WEIRT_EXPECT(rank, weir_dev_rdma_poll_notice(&side.args.inbox, &none) == WEIR_PENDING);
    }
}

uint32_t posters() { return std::strcmp(weirt_sanitizer(), "thread") == 0 ? 4 : 8; }

void of_many_threads(weirt_rank *rank)
{
    Plan plan;
    plan.threads = posters();
    plan.rounds = scaled(400);
    notices(rank, plan);
}

void of_one_thread(weirt_rank *rank)
{
    Plan plan;
    plan.rounds = scaled(1200);
    plan.exclusive = true;
    notices(rank, plan);
}

void of_a_group(weirt_rank *rank)
{
    Plan plan;
    plan.threads = posters();
    plan.rounds = scaled(200);
    plan.together = true;
    notices(rank, plan);
}

void of_a_group_with_its_own_queue(weirt_rank *rank)
{
    Plan plan;
    plan.threads = posters();
    plan.rounds = scaled(200);
    plan.together = true;
    plan.exclusive = true;
    notices(rank, plan);
}

void of_two_queues(weirt_rank *rank)
{
    Plan plan;
    plan.threads = 4;
    plan.rounds = scaled(400);
    plan.pairs = 2;
    notices(rank, plan);
}

// Past the 16 bits of a position, and the 24 of a completion's number.
void past_all_counters(weirt_rank *rank)
{
    Plan plan;
    plan.threads = 4;
    plan.rounds = 100;
    plan.script = "counters:65500,16777200";
    notices(rank, plan);
}

void with_losses(weirt_rank *rank)
{
    Plan plan;
    plan.rounds = 100;
    plan.script = "lost-request:1,1000000,30;lost-response:1,1000000,30";
    plan.timeout = 14; // 67 ms
    notices(rank, plan);
}

} // namespace

TEST_P(SwnicNotice, OfManyThreads) { run(of_many_threads); }
TEST_P(SwnicNotice, OfOneThread) { run(of_one_thread); }
TEST_P(SwnicNotice, OfAGroup) { run(of_a_group); }
TEST_P(SwnicNotice, OfAGroupWithItsOwnQueue) { run(of_a_group_with_its_own_queue); }
TEST_P(SwnicNotice, OfTwoQueuesIntoOneInbox) { run(of_two_queues); }
TEST_P(SwnicNotice, PastAllCounters) { run(past_all_counters); }

TEST_P(SwnicNoticeTrouble, WhatIsLostComesOnce) { run(with_losses); }

// Receives are the credits: without one nothing arrives, and nothing is lost.
static void slow_taker(weirt_rank *rank)
{
    Plan plan;
    plan.rounds = 3 * receives;
    Nic nic(rank, options_of(plan));
    Side side;
    if (!nic.open() || !side.open(&nic, plan, rank->rank == 0 ? notice_poster() : notice_taker())) {
        return;
    }
    if (rank->rank == 0) {
        side.run(1, &side.args);
        WEIRT_EXPECT(rank, side.report.status[0] == WEIR_OK && side.report.done[0] == plan.rounds);
    } else {
        weir_dev_rdma_notice notice;
        for (uint32_t i = 0; i < plan.rounds; i++) {
            WEIRT_EXPECT(rank, weir_dev_rdma_poll_notice(&side.args.inbox, &notice) == WEIR_PENDING);
            weirt_sleep_ms(i % 16 == 0 ? 10 : 0);
            weir_dev_rdma_receive(&side.args.receives[0], 1);
            WEIRT_EXPECT(rank, weir_dev_rdma_wait_notice(&side.args.inbox, &notice) == WEIR_OK);
            WEIRT_EXPECT(rank, notice.immediate == i && notice.bytes == (i % 4 == 3 ? 0 : 8 * NOTICE_WORDS));
            WEIRT_EXPECT(rank, notice.qpn == nic.qps[0]->qp_num && notice.syndrome == 0);
        }
    }
    nic.meet();
}

// A poster fails when its peer has no receives any more; earlier notices arrive. The peer's wait ends by its deadline.
static void no_more_receives(weirt_rank *rank)
{
    Plan plan;
    plan.rounds = 3 * receives;
    Options options = options_of(plan);
    options.not_ready = 3;
    Nic nic(rank, options);
    Side side;
    if (!nic.open() || !side.open(&nic, plan, rank->rank == 0 ? notice_poster() : notice_taker())) {
        return;
    }
    if (rank->rank == 1) {
        weir_dev_rdma_receive(&side.args.receives[0], receives);
    }
    nic.meet();
    if (rank->rank == 0) {
        side.run(1, &side.args);
        WEIRT_EXPECT(rank, side.report.status[0] == WEIR_ERR_REMOTE);
        WEIRT_EXPECT(rank, side.state[0].failed == (WEIR_RDMA_FAILED | WEIR_MLX5_NOT_READY));
        WEIRT_EXPECT(rank, side.state[0].completed == receives);
    } else {
        weir_dev_rdma_notice none;
        side.args.posted = 0; // they are posted already
        side.args.batch = 0;
        side.args.rounds = receives;
        side.run(1, &side.args);
        WEIRT_EXPECT(rank, side.report.status[0] == WEIR_OK && side.report.wrong == 0);
        weir_dev_control_begin(&side.control, 150000000);
        const uint64_t begun = weirt_now_ms();
        WEIRT_EXPECT(rank, weir_dev_rdma_wait_notice(&side.args.inbox, &none) == WEIR_ERR_TIMEOUT);
        WEIRT_EXPECT(rank, weirt_now_ms() - begun >= 150 && weirt_now_ms() - begun < 150 + weirt_slack_ms());
        WEIRT_EXPECT(rank, side.control.error_status == WEIR_ERR_TIMEOUT);
        WEIRT_EXPECT(rank, weir_dev_rdma_poll_notice(&side.args.inbox, &none) == WEIR_ERR_TIMEOUT);
    }
    nic.meet();
}

// One of two queue pairs fails: earlier notices are taken, then each wait ends with its name.
static void failure(weirt_rank *rank)
{
    Plan plan;
    plan.pairs = 2;
    Nic nic(rank, options_of(plan));
    Side side;
    if (!nic.open() || !side.open(&nic, plan, notice_taker())) {
        return;
    }
    if (rank->rank == 1) {
        weir_dev_rdma_receive(&side.args.receives[0], 3);
        weir_dev_rdma_receive(&side.args.receives[1], 3);
    }
    nic.meet();
    if (rank->rank == 0) {
        WEIRT_EXPECT(rank, nic.post_immediate(0, 0, 8, 5) == 0);
        nic.done();
    }
    nic.meet();
    if (rank->rank == 1) {
        weir_dev_rdma_notice notice = {};
        ibv_qp_attr attr = {};
        attr.qp_state = IBV_QPS_ERR;
        WEIRT_EXPECT(rank, ibv_modify_qp(nic.qps[1], &attr, IBV_QP_STATE) == 0);
        WEIRT_EXPECT(rank, weir_dev_rdma_wait_notice(&side.args.inbox, &notice) == WEIR_OK && notice.immediate == 5);
        for (uint32_t i = 0; i < 2; i++) {
            WEIRT_EXPECT(rank, weir_dev_rdma_wait_notice(&side.args.inbox, &notice) == WEIR_ERR_REMOTE);
            WEIRT_EXPECT(rank, notice.qpn == nic.qps[1]->qp_num && notice.syndrome == WEIR_MLX5_FLUSHED);
        }
        WEIRT_EXPECT(rank, weir_dev_rdma_poll_notice(&side.args.inbox, &notice) == WEIR_ERR_REMOTE);
        WEIRT_EXPECT(rank, side.taken == 1 && side.control.error_status == 0); // only the inbox has the error
    }
    nic.meet();
}

// The test detects data that arrives after its notice.
static void overtakes(weirt_rank *rank)
{
    Plan plan;
    plan.rounds = 2;
    Options options = options_of(plan);
    options.script = rank->rank == 1 ? "flag-first:1,1,1000,3600000" : "";
    Nic nic(rank, options);
    Side side;
    if (!nic.open() || !side.open(&nic, plan, rank->rank == 0 ? notice_poster() : notice_taker())) {
        return;
    }
    side.run(1, &side.args);
    WEIRT_EXPECT(rank, side.report.status[0] == WEIR_OK && side.report.wrong == (rank->rank == 1 ? 1 : 0));
    nic.meet();
}

TEST_P(SwnicNoticeTrouble, SlowTakerLosesNothing) { run(slow_taker); }
TEST_P(SwnicNoticeTrouble, PostersFailWithoutReceives) { run(no_more_receives); }
TEST_P(SwnicNoticeTrouble, FailedQueuePairEndsWaits) { run(failure); }
TEST_P(SwnicNoticeTrouble, NoticeThatOvertakesItsDataIsNoticed) { run(overtakes); }
