// Fifos: every request arrives once, whole and in order, for any number of slots and pushing threads.
#include <atomic>
#include <thread>
#include <vector>

#include "queue.h"

namespace {

struct plan {
    uint32_t slots;
    uint32_t pushes;
    uint32_t wait;
};

weir_fifo *make_fifo(weirt_rank *rank, const queue_bench *bench, weir_fifo_end end, uint32_t slots)
{
    weir_fifo *fifo = nullptr;
    weir_fifo_opts opts = { sizeof opts, end, slots };
    WEIRT_OK(rank, weir_fifo_create(bench->comm.comm, &opts, &fifo));
    return fifo;
}

// Takes `count` requests, completing after every `batch`.
bool poll_all(weirt_rank *rank, weir_fifo *fifo, uint64_t count, uint32_t batch, queue_account *account)
{
    weir_request request;
    uint64_t end = weirt_now_ms() + weirt_timeout_ms();
    uint32_t open = 0;
    for (uint32_t idle = 0; account->total < count && idle < 1000000000;) {
        weir_status status = weir_fifo_poll(fifo, &request);
        if (status == WEIR_OK) {
            account->take(&request, nullptr);
            idle = 0;
            open++;
        } else if (!WEIRT_EXPECT(rank, status == WEIR_PENDING)) {
            return false;
        } else {
            weir_cpu_relax(++idle);
        }
        if (open == batch || (open != 0 && status == WEIR_PENDING)) {
            weir_fifo_complete(fifo);
            open = 0;
        }
        if (idle % 1024 == 1023 && weirt_now_ms() > end) {
            break;
        }
    }
    weir_fifo_complete(fifo);
    return WEIRT_EXPECT(rank, account->total == count) && WEIRT_EXPECT(rank, account->wrong == 0) &&
           WEIRT_STATUS(rank, WEIR_PENDING, weir_fifo_poll(fifo, &request));
}

// All threads push into a fifo in two launches: the second continues where the first has ended.
void all_arrive(weirt_rank *rank)
{
    const plan *what = static_cast<const plan *>(rank->arg);
    queue_bench bench;
    queue_account account;
    weir_fifo *fifo = nullptr;
    if (queue_open(rank, 0, &bench) && (fifo = make_fifo(rank, &bench, WEIR_FIFO_DEVICE, what->slots)) != nullptr) {
        queue_args args = queue_args_of(&bench);
        args.pushes = what->pushes;
        args.wait = what->wait;
        WEIRT_OK(rank, weir_fifo_device(fifo, &args.fifo));
        for (uint32_t launch = 1; launch <= 2; launch++) {
            uint64_t pushed = static_cast<uint64_t>(what->pushes) * bench.threads;
            if (!queue_launch(rank, &bench, &args, bench.shape) ||
                !poll_all(rank, fifo, launch * pushed, launch == 1 ? 1 : 7, &account) || !queue_finish(rank, &bench)) {
                break;
            }
            queue_statuses(rank, &bench, bench.threads, WEIR_OK, WEIR_OK);
            WEIRT_EXPECT(rank, queue_sum(bench.report->pushed) == pushed);
            WEIRT_EXPECT(rank, queue_sum(bench.report->undone) == 0);
            args.first += what->pushes;
        }
        WEIRT_OK(rank, weir_comm_status(bench.comm.comm));
    }
    weir_fifo_destroy(fifo);
    queue_close(&bench);
}

// No thread takes requests: of six threads, four get slots and two reach their deadline. They leave four whole
// requests, and later pushes follow directly behind.
void full_times_out(weirt_rank *rank)
{
    queue_bench bench;
    weir_fifo *fifo = nullptr;
    weir_request request;
    weirt_log_allow("deadline");
    if (queue_open(rank, QUEUE_SHORT_MS, &bench) && (fifo = make_fifo(rank, &bench, WEIR_FIFO_DEVICE, 4)) != nullptr) {
        queue_args args = queue_args_of(&bench);
        WEIRT_OK(rank, weir_fifo_device(fifo, &args.fifo));
        if (queue_launch(rank, &bench, &args, weir_shape{ 1, 6 }) && queue_finish(rank, &bench)) {
            uint32_t pushed = 0;
            for (uint32_t i = 0; i < 6; i++) {
                pushed += bench.report->push[i] == WEIR_OK;
                WEIRT_EXPECT(rank, bench.report->push[i] == WEIR_OK || bench.report->push[i] == WEIR_ERR_TIMEOUT);
            }
            WEIRT_EXPECT(rank, pushed == 4);
            WEIRT_EXPECT(rank, queue_late_enough(queue_longest_ms(&bench, 6)));
        }
        // By then the communicator has failed, and waiting pushes end at once. Pushes with room do not check it.
        args.first = 1;
        args.tries = 1;
        if (queue_launch(rank, &bench, &args, weir_shape{ 1, 6 }) && queue_finish(rank, &bench)) {
            queue_statuses(rank, &bench, 6, WEIR_ERR_TIMEOUT, WEIR_OK);
        }
        queue_account account;
        std::memset(account.next, 0, sizeof account.next);
        uint32_t threads = 0;
        for (uint32_t i = 0; i < 4; i++) {
            WEIRT_OK(rank, weir_fifo_poll(fifo, &request));
            account.take(&request, nullptr);
            threads |= 1u << (request.value >> 40);
        }
        WEIRT_EXPECT(rank, account.total == 4 && account.wrong == 0 && __builtin_popcount(threads) == 4);
        WEIRT_EXPECT(rank, weir_fifo_poll(fifo, &request) != WEIR_OK);
        weir_fifo_complete(fifo);
        args.first = 2;
        args.tries = 0;
        args.wait = QUEUE_WAIT_NEVER;
        if (queue_launch(rank, &bench, &args, weir_shape{ 1, 4 }) && queue_finish(rank, &bench)) {
            queue_statuses(rank, &bench, 4, WEIR_OK, WEIR_OK);
        }
        for (uint64_t &next : account.next) {
            next = 2;
        }
        for (uint32_t i = 0; i < 4; i++) {
            WEIRT_OK(rank, weir_fifo_poll(fifo, &request));
            account.take(&request, nullptr);
        }
        WEIRT_EXPECT(rank, account.total == 8 && account.wrong == 0);
        WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_comm_status(bench.comm.comm));
    }
    weir_fifo_destroy(fifo);
    queue_close(&bench);
}

// A try_push without room returns a status, and a ticket is done only after the host completes it.
void tries_and_tickets(weirt_rank *rank)
{
    queue_bench bench;
    weir_fifo *fifo = nullptr;
    weir_request request;
    if (queue_open(rank, 0, &bench) && (fifo = make_fifo(rank, &bench, WEIR_FIFO_DEVICE, 2)) != nullptr) {
        queue_args args = queue_args_of(&bench);
        args.pushes = 3;
        args.tries = 1;
        WEIRT_OK(rank, weir_fifo_device(fifo, &args.fifo));
        for (uint32_t lap = 0; lap < 3; lap++) {
            if (!queue_launch(rank, &bench, &args, weir_shape{ 1, 1 }) || !queue_finish(rank, &bench)) {
                break;
            }
            queue_statuses(rank, &bench, 1, WEIR_PENDING, WEIR_OK);
            WEIRT_EXPECT(rank, queue_sum(bench.report->pushed) == 2);
            queue_account account;
            for (uint32_t i = 0; i < 2; i++) {
                WEIRT_OK(rank, weir_fifo_poll(fifo, &request));
                account.take(&request, nullptr);
            }
            WEIRT_STATUS(rank, WEIR_PENDING, weir_fifo_poll(fifo, &request));
            WEIRT_EXPECT(rank, account.wrong == 0);
            weir_fifo_complete(fifo);
        }
    }
    weir_fifo_destroy(fifo);
    queue_close(&bench);
}

// Host threads push, test and wait; their deadlines are separate from the communicator's.
void host_pushes(weirt_rank *rank)
{
    constexpr uint32_t threads = 4;
    constexpr uint32_t pushes = 500;
    queue_bench bench;
    weir_fifo *fifo = nullptr;
    if (queue_open(rank, 0, &bench) && (fifo = make_fifo(rank, &bench, WEIR_FIFO_HOST, 8)) != nullptr) {
        std::vector<std::thread> pushers;
        std::atomic<uint32_t> failures{ 0 };
        for (uint32_t t = 0; t < threads; t++) {
            pushers.emplace_back([&, t] {
                uint64_t ticket = 0;
                weir_request request;
                for (uint64_t i = 0; i < pushes; i++) {
                    queue_request(t, i, WEIR_REQUEST_USER, &request);
                    failures += weir_fifo_push(fifo, &request, weirt_timeout_ms(), &ticket) != WEIR_OK;
                }
                failures += weir_fifo_wait(fifo, ticket, weirt_timeout_ms()) != WEIR_OK;
                failures += weir_fifo_test(fifo, ticket) != WEIR_OK;
            });
        }
        queue_account account;
        poll_all(rank, fifo, static_cast<uint64_t>(threads) * pushes, 3, &account);
        for (std::thread &pusher : pushers) {
            pusher.join();
        }
        WEIRT_EXPECT(rank, failures == 0);
        weir_request request;
        uint64_t ticket = 0;
        queue_request(0, pushes, WEIR_REQUEST_USER, &request);
        for (uint32_t i = 0; i < 8; i++) {
            WEIRT_OK(rank, weir_fifo_push(fifo, &request, 0, &ticket));
        }
        WEIRT_EXPECT(rank, ticket == threads * pushes + 7);
        WEIRT_STATUS(rank, WEIR_PENDING, weir_fifo_test(fifo, ticket));
        uint64_t start = weirt_now_ms();
        WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_fifo_push(fifo, &request, QUEUE_SHORT_MS, nullptr));
        WEIRT_TEXT(rank, "weir_fifo_push: no slot had come free in rank 0's fifo of 8 slots when the deadline passed");
        WEIRT_EXPECT(rank, queue_late_enough(weirt_now_ms() - start + 1));
        start = weirt_now_ms();
        WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_fifo_wait(fifo, ticket, QUEUE_SHORT_MS));
        WEIRT_TEXT(rank, "weir_fifo_wait: request 2007 was not completed in rank 0's fifo of 8 slots when the deadline "
                         "passed");
        WEIRT_EXPECT(rank, queue_late_enough(weirt_now_ms() - start + 1));
        WEIRT_OK(rank, weir_comm_status(bench.comm.comm));
    }
    weir_fifo_destroy(fifo);
    queue_close(&bench);
}

void misuse(weirt_rank *rank)
{
    queue_bench bench;
    weir_dev_fifo handle;
    weir_request request = {};
    weir_fifo *kernels = nullptr;
    weir_fifo *hosts = nullptr;
    weir_fifo *none = nullptr;
    uint64_t ticket = 0;
    if (queue_open(rank, 0, &bench) && (kernels = make_fifo(rank, &bench, WEIR_FIFO_DEVICE, 3)) != nullptr &&
        (hosts = make_fifo(rank, &bench, WEIR_FIFO_HOST, 0)) != nullptr) {
        weir_comm *comm = bench.comm.comm;
        weir_fifo_opts opts = { sizeof opts, WEIR_FIFO_DEVICE, 1 };
        WEIRT_STATUS(rank, WEIR_ERR_LIMIT, weir_fifo_create(comm, &opts, &none));
        opts.slots = WEIR_FIFO_SLOTS_MAX + 1;
        WEIRT_STATUS(rank, WEIR_ERR_LIMIT, weir_fifo_create(comm, &opts, &none));
        WEIRT_TEXT(rank, "slots");
        opts = { sizeof opts, static_cast<weir_fifo_end>(2), 0 };
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_fifo_create(comm, &opts, &none));
        opts.size = 0;
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_fifo_create(comm, &opts, &none));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_fifo_create(nullptr, nullptr, &none));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_fifo_create(comm, nullptr, nullptr));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_fifo_device(hosts, &handle));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_fifo_push(kernels, &request, 0, &ticket));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_fifo_wait(kernels, 0, 0));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_fifo_test(kernels, 0));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_fifo_push(hosts, nullptr, 0, &ticket));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_fifo_poll(hosts, nullptr));
        WEIRT_OK(rank, weir_fifo_device(kernels, &handle));
        WEIRT_EXPECT(rank, handle.count == 4);
        weir_fifo_destroy(nullptr);
        weir_fifo_complete(nullptr);
        // Polls return the error of an aborted communicator.
        weirt_log_allow("abort");
        weir_comm_abort(comm);
        WEIRT_STATUS(rank, WEIR_ERR_ABORTED, weir_fifo_push(hosts, &request, 0, &ticket));
        weir_status status = WEIR_PENDING;
        for (uint32_t i = 0; i < 1000 && status == WEIR_PENDING; i++) {
            status = weir_fifo_poll(hosts, &request);
        }
        WEIRT_EXPECT(rank, status == WEIR_ERR_ABORTED);
    }
    weir_fifo_destroy(kernels);
    weir_fifo_destroy(hosts);
    queue_close(&bench);
}

// Ranks as threads; two ranks as processes show that each process has its own fifo.
class Fifo : public StageTest {};
INSTANTIATE_TEST_SUITE_P(Stages, Fifo, ::testing::Values(0, 2), weirt_stage_name);
WEIRT_PROCESS_SUITE(FifoProcess);

void run_plan(const weirt_stage *stage, plan what)
{
    weirt_ranks_run(stage, stage->processes ? 2 : 1, all_arrive, &what, sizeof what);
}

TEST_P(FifoProcess, ManyThreadsManyLaps) { run_plan(stage(), { 16, 50, QUEUE_WAIT_LAST }); }

TEST_P(Fifo, TwoSlotsManyThreads) { run_plan(stage(), { 2, 8, QUEUE_WAIT_NEVER }); }
TEST_P(Fifo, ManyThreadsManyLaps) { run_plan(stage(), { 64, 100, QUEUE_WAIT_LAST }); }
TEST_P(Fifo, EachRequestIsWaitedFor) { run_plan(stage(), { 0, 20, QUEUE_WAIT_EACH }); }
TEST_P(Fifo, FullIsATimeoutAndLeavesNoHole) { run(1, full_times_out); }
TEST_P(Fifo, TriesAndTickets) { run(1, tries_and_tickets); }
TEST_P(Fifo, HostThreadsPush) { run(1, host_pushes); }
TEST_P(Fifo, Misuse) { run(1, misuse); }

} // namespace
