// Semaphores, and waits that end: by a signal, by the deadline, by an abort, on devices and on the host.
#include <algorithm>

#include "test/harness/checks.h"
#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

namespace {

constexpr uint32_t short_ms = 150;

uint32_t threads_of(const weir_comm *comm)
{
    weir_shape shape = weirt_shape(comm);
    return shape.blocks * shape.threads;
}

bool late_enough(uint64_t elapsed_ms) { return elapsed_ms >= short_ms && elapsed_ms < short_ms + 5000 * weirt_slow(); }

// Duration of the first wait since the first thread began: the deadline of any thread ends the waits of all.
uint64_t first_wait_ms(const weirt_pair *pair)
{
    const weirt_report *report = pair->report;
    uint64_t first = report->began_ns[0];
    for (uint32_t i = 1; i < threads_of(pair->comm); i++) {
        first = std::min(first, report->began_ns[i]);
    }
    return (report->began_ns[0] - first + report->elapsed_ns[0]) / 1000000;
}

uint32_t waiting_threads(const weirt_pair *pair)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < threads_of(pair->comm); i++) {
        count += weir_arch_load_relaxed_sys_u64(&pair->report->began_ns[i]) != 0;
    }
    return count;
}

// Whether all threads of the grid ended row `row` with `status`.
bool all_ended(weirt_rank *rank, const weirt_pair *pair, uint32_t row, weir_status status)
{
    for (uint32_t i = 0; i < threads_of(pair->comm); i++) {
        if (pair->report->status[row][i] != status) {
            weirt_fail(rank, __FILE__, __LINE__, "row %u: thread %u ended with %s, expected %s", row, i,
                       weir_status_name((weir_status)pair->report->status[row][i]), weir_status_name(status));
            return false;
        }
    }
    return true;
}

bool small_transfer(weirt_rank *rank, weirt_pair *pair)
{
    weirt_transfer_args args = weirt_transfer_of(rank, pair);
    args.op = WEIRT_LL16;
    args.first = args.last = 500;
    args.rounds = 3;
    return weirt_launch(rank, pair, weirt_transfer_kernel(), &args) && weirt_finish(rank, pair) &&
           WEIRT_EXPECT(rank, pair->report->wrong == 0) && all_ended(rank, pair, 0, WEIR_OK);
}

// Makes all objects again, as a program does after an error.
void work_again(weirt_rank *rank)
{
    weirt_channel channel;
    if (weirt_channel_open(rank, 0, 4096, &channel)) {
        small_transfer(rank, &channel.pair);
        WEIRT_OK(rank, weir_comm_status(channel.comm.comm));
    }
    weirt_channel_close(rank, &channel);
}

const uint32_t forms[] = { WEIRT_WAIT, WEIRT_WAIT_RELAXED, WEIRT_POLL, WEIRT_WAIT_COOP, WEIRT_WAIT_RELAXED_COOP };

void signals_arrive(weirt_rank *rank)
{
    weirt_channel channel;
    if (weirt_channel_open(rank, 0, 1024, &channel)) {
        for (uint32_t form : forms) {
            weirt_wait_args wait = weirt_wait_of(rank, &channel.pair);
            weirt_signal_args signal = { wait.semaphore, WEIRT_STATUS_ROWS - 1,
                                         form == WEIRT_WAIT_RELAXED || form == WEIRT_WAIT_RELAXED_COOP };
            wait.form = form;
            wait.waits = WEIRT_STATUS_ROWS - 1;
            if (!weirt_launch(rank, &channel.pair, weirt_signal_kernel(), &signal) ||
                !weirt_launch(rank, &channel.pair, weirt_wait_kernel(), &wait) || !weirt_finish(rank, &channel.pair)) {
                break;
            }
            for (uint32_t row = 0; row < WEIRT_STATUS_ROWS; row++) {
                all_ended(rank, &channel.pair, row, WEIR_OK);
            }
        }
        WEIRT_OK(rank, weir_comm_status(channel.comm.comm));
    }
    weirt_channel_close(rank, &channel);
}

// The peer never signals: the first wait ends by the deadline, later waits end at once, all with the same error.
void deadline_passes(weirt_rank *rank)
{
    uint32_t form = *(const uint32_t *)rank->arg;
    weirt_channel channel;
    weirt_log_allow("deadline");
    weirt_log_allow("TIMEOUT");
    if (weirt_channel_open(rank, short_ms, 1024, &channel) && rank->rank == 0) {
        weirt_pair *pair = &channel.pair;
        weirt_wait_args wait = weirt_wait_of(rank, pair);
        wait.form = form;
        wait.waits = 3;
        if (weirt_launch(rank, pair, weirt_wait_kernel(), &wait) && weirt_finish(rank, pair)) {
            bool together = form == WEIRT_WAIT_COOP || form == WEIRT_WAIT_RELAXED_COOP;
            WEIRT_EXPECT(rank, late_enough(first_wait_ms(pair)));
            for (uint32_t row = 0; row < 3; row++) {
                WEIRT_EXPECT(rank, pair->report->status[row][0] == WEIR_ERR_TIMEOUT);
                WEIRT_EXPECT(rank, row == 0 || pair->report->elapsed_ns[row] < 1000000000u * weirt_slow());
                if (together) {
                    all_ended(rank, pair, row, WEIR_ERR_TIMEOUT);
                }
            }
            // If only one thread waited, its late arrival may still complete the barrier.
            if (together) {
                all_ended(rank, pair, 3, WEIR_ERR_TIMEOUT);
            }
            WEIRT_EXPECT(rank, pair->report->elapsed_ns[3] < 1000000000u * weirt_slow());
        }
        WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_comm_status(channel.comm.comm));
        WEIRT_EXPECT(rank, weir_last_error()[0] != 0);
        weir_memory *none = nullptr;
        WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_memory_recv(channel.comm.comm, 1, 77, &none));
    }
    weirt_channel_close(rank, &channel);
    work_again(rank);
}

// Opens a communicator of two ranks with two timeouts, and the objects that kernels need.
bool open_with(weirt_rank *rank, uint32_t host_ms, uint32_t kernel_ms, weirt_channel *out)
{
    *out = {};
    weir_unique_id id;
    weir_bootstrap_opts boot = {};
    boot.size = sizeof boot;
    boot.timeout_ms = weirt_timeout_ms();
    weir_comm_opts opts = {};
    opts.size = sizeof opts;
    opts.timeout_ms = host_ms;
    opts.kernel_timeout_ms = kernel_ms;
    return weirt_id(rank, &id) && WEIRT_OK(rank, weir_device_open(rank->device, nullptr, &out->comm.device)) &&
           WEIRT_OK(rank, weir_bootstrap_create(id.text, rank->rank, rank->size, &boot, &out->comm.boot)) &&
           WEIRT_OK(rank, weir_comm_create(out->comm.boot, out->comm.device, &opts, &out->comm.comm)) &&
           weirt_pair_open(rank, out->comm.comm, 1024, 0, &out->pair);
}

// Waits of the host and of kernels have separate deadlines. weir_comm_wait returns an error that weir_stream_wait does
// not.
void two_deadlines(weirt_rank *rank)
{
    for (bool long_kernels : { false, true }) {
        const uint32_t host_ms = long_kernels ? short_ms : weirt_timeout_ms();
        const uint32_t kernel_ms = long_kernels ? 10 * short_ms : short_ms;
        weirt_channel channel;
        weir_semaphore *host = nullptr;
        weirt_log_allow("deadline");
        weirt_log_allow("TIMEOUT");
        if (open_with(rank, host_ms, kernel_ms, &channel) &&
            weirt_semaphore(rank, channel.pair.connection, 5, WEIR_SEMAPHORE_HOST, &host) && rank->rank == 0) {
            weirt_wait_args wait = weirt_wait_of(rank, &channel.pair);
            wait.form = WEIRT_WAIT_COOP;
            wait.waits = 1;
            uint64_t start = weirt_now_ms();
            weirt_launch(rank, &channel.pair, weirt_wait_kernel(), &wait);
            if (long_kernels) {
                WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_semaphore_wait(host, 0));
                WEIRT_EXPECT(rank, late_enough(weirt_now_ms() - start));
                WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_comm_wait(channel.comm.comm, channel.pair.stream, 1));
            }
            WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_comm_wait(channel.comm.comm, channel.pair.stream, 0));
            WEIRT_TEXT(rank, "communicator: rank 0: ");
            uint64_t took = weirt_now_ms() - start;
            WEIRT_EXPECT(rank, took >= kernel_ms && took < kernel_ms + 5000 * weirt_slow());
            WEIRT_OK(rank, weir_stream_wait(channel.comm.device, channel.pair.stream, 0));
            all_ended(rank, &channel.pair, 0, WEIR_ERR_TIMEOUT);
        }
        weir_semaphore_destroy(host);
        weirt_channel_close(rank, &channel);
    }
}

// One rank aborts while kernels of both ranks wait, and a future and a host wait are pending.
void abort_ends_all(weirt_rank *rank)
{
    weirt_channel channel;
    weir_semaphore *host = nullptr;
    weir_memory *none = nullptr;
    weir_future *future = nullptr;
    weirt_log_allow("abort");
    bool open = weirt_channel_open(rank, 0, 1024, &channel) &&
                weirt_semaphore(rank, channel.pair.connection, 5, WEIR_SEMAPHORE_HOST, &host) &&
                WEIRT_OK(rank, weir_memory_recv_async(channel.comm.comm, channel.pair.peer, 6, &none, &future));
    if (open) {
        weirt_pair *pair = &channel.pair;
        weirt_wait_args wait = weirt_wait_of(rank, pair);
        wait.form = WEIRT_WAIT_COOP;
        wait.waits = 2;
        weirt_launch(rank, pair, weirt_wait_kernel(), &wait);
        uint64_t end = weirt_now_ms() + weirt_timeout_ms();
        while (waiting_threads(pair) < threads_of(pair->comm) && weirt_now_ms() < end) {
            weirt_sleep_ms(1);
        }
        weirt_barrier(rank);
        uint64_t since = weirt_now_ms();
        if (rank->rank == 0) {
            weirt_sleep_ms(50);
            weir_comm_abort(channel.comm.comm);
        } else {
            WEIRT_STATUS(rank, WEIR_ERR_ABORTED, weir_semaphore_wait(host, weirt_timeout_ms()));
        }
        weirt_finish(rank, pair);
        WEIRT_STATUS(rank, WEIR_ERR_ABORTED, weir_future_wait(future, weirt_timeout_ms()));
        WEIRT_EXPECT(rank, weirt_now_ms() - since < 5000 * weirt_slow());
        for (uint32_t row = 0; row < 3; row++) {
            all_ended(rank, pair, row, WEIR_ERR_ABORTED);
        }
        WEIRT_STATUS(rank, WEIR_ERR_ABORTED, weir_comm_status(channel.comm.comm));
        WEIRT_STATUS(rank, WEIR_ERR_ABORTED, weir_semaphore_wait(host, weirt_timeout_ms()));
        WEIRT_STATUS(rank, WEIR_ERR_ABORTED, weir_memory_recv(channel.comm.comm, pair->peer, 7, &none));
        work_again(rank);
    }
    weir_future_destroy(future);
    weir_semaphore_destroy(host);
    weirt_channel_close(rank, &channel);
}

struct ends {
    weir_semaphore_end end[2];
};

// Signals `count` times from this end of the semaphore.
bool signal_by(weirt_rank *rank, const weirt_pair *pair, weir_semaphore *semaphore, weir_semaphore_end end,
               uint32_t count)
{
    if (end == WEIR_SEMAPHORE_HOST) {
        for (uint32_t i = 0; i < count; i++) {
            if (!WEIRT_OK(rank, weir_semaphore_signal(semaphore))) {
                return false;
            }
        }
        return true;
    }
    weirt_signal_args signal = {};
    signal.signals = count;
    return WEIRT_OK(rank, weir_semaphore_device(semaphore, &signal.semaphore)) &&
           weirt_launch(rank, pair, weirt_signal_kernel(), &signal) && weirt_finish(rank, pair);
}

bool wait_by(weirt_rank *rank, const weirt_pair *pair, weir_semaphore *semaphore, weir_semaphore_end end,
             uint32_t count)
{
    if (end == WEIR_SEMAPHORE_HOST) {
        for (uint32_t i = 0; i < count; i++) {
            if (!WEIRT_OK(rank, weir_semaphore_wait(semaphore, 0))) {
                return false;
            }
        }
        return true;
    }
    weirt_wait_args wait = weirt_wait_of(rank, pair);
    wait.waits = count;
    return WEIRT_OK(rank, weir_semaphore_device(semaphore, &wait.semaphore)) &&
           weirt_launch(rank, pair, weirt_wait_kernel(), &wait) && weirt_finish(rank, pair) &&
           WEIRT_EXPECT(rank, pair->report->status[0][0] == WEIR_OK && pair->report->status[count - 1][0] == WEIR_OK);
}

bool wrong_end_is_refused(weirt_rank *rank, const weirt_pair *pair, weir_semaphore *semaphore, weir_semaphore_end end)
{
    weir_dev_semaphore handle;
    weir_memory_channel *channel = nullptr;
    if (end == WEIR_SEMAPHORE_HOST) {
        return WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_semaphore_device(semaphore, &handle)) &&
               WEIRT_STATUS(rank, WEIR_ERR_INVALID,
                            weir_memory_channel_create(semaphore, pair->remote, pair->local, nullptr, &channel));
    }
    return WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_semaphore_signal(semaphore)) &&
           WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_semaphore_wait(semaphore, 100)) &&
           WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_semaphore_poll(semaphore));
}

void pairs_of_ends(weirt_rank *rank)
{
    weir_semaphore_end end = ((const ends *)rank->arg)->end[rank->rank];
    weirt_channel channel;
    weir_semaphore *semaphore = nullptr;
    if (weirt_channel_open(rank, 0, 1024, &channel) &&
        weirt_semaphore(rank, channel.pair.connection, 5, end, &semaphore)) {
        const weirt_pair *pair = &channel.pair;
        wrong_end_is_refused(rank, pair, semaphore, end);
        if (end == WEIR_SEMAPHORE_HOST) {
            WEIRT_STATUS(rank, WEIR_PENDING, weir_semaphore_poll(semaphore));
            uint64_t since = weirt_now_ms();
            WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_semaphore_wait(semaphore, short_ms));
            WEIRT_EXPECT(rank, late_enough(weirt_now_ms() - since));
        }
        weirt_barrier(rank);
        for (uint32_t round = 0; round < 3; round++) {
            uint32_t ours = rank->rank == 0 ? 4 : 3;
            signal_by(rank, pair, semaphore, end, ours);
            wait_by(rank, pair, semaphore, end, 7 - ours);
        }
        weirt_barrier(rank);
        if (end == WEIR_SEMAPHORE_HOST) {
            WEIRT_STATUS(rank, WEIR_PENDING, weir_semaphore_poll(semaphore));
        }
        weirt_barrier(rank);
        signal_by(rank, pair, semaphore, end, 1);
        weirt_barrier(rank);
        if (end == WEIR_SEMAPHORE_HOST) {
            WEIRT_OK(rank, weir_semaphore_poll(semaphore));
            WEIRT_STATUS(rank, WEIR_PENDING, weir_semaphore_poll(semaphore));
        }
        WEIRT_OK(rank, weir_comm_status(channel.comm.comm));
    }
    weir_semaphore_destroy(semaphore);
    weirt_channel_close(rank, &channel);
}

void null_arguments(weirt_rank *rank)
{
    weirt_channel channel;
    if (weirt_channel_open(rank, 0, 1024, &channel)) {
        weir_semaphore *semaphore = nullptr;
        weir_grid_barrier *barrier = nullptr;
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_semaphore_create(nullptr, 0, nullptr, &semaphore));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_semaphore_create(channel.pair.connection, 9, nullptr, nullptr));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_semaphore_signal(nullptr));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_semaphore_wait(nullptr, 1));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_semaphore_poll(nullptr));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_grid_barrier_create(nullptr, &barrier));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_grid_barrier_create(channel.comm.comm, nullptr));
        weir_semaphore_destroy(nullptr);
        weir_grid_barrier_destroy(nullptr);
    }
    weirt_channel_close(rank, &channel);
}

void set_counts(weirt_rank *rank)
{
    weirt_channel channel;
    if (weirt_channel_open(rank, 0, 1024, &channel)) {
        weir_connection *connection = channel.pair.connection;
        weir_semaphore *semaphore = nullptr;
        weir_semaphore_opts opts = {};
        opts.size = sizeof opts;
        opts.count = 2 + rank->rank;
        WEIRT_STATUS(rank, WEIR_ERR_MISMATCH, weir_semaphore_create(connection, 20, &opts, &semaphore));
        opts.count = 20000;
        WEIRT_STATUS(rank, WEIR_ERR_LIMIT, weir_semaphore_create(connection, 21, &opts, &semaphore));
        opts.count = UINT32_MAX;
        WEIRT_STATUS(rank, WEIR_ERR_LIMIT, weir_semaphore_create(connection, 21, &opts, &semaphore));
        opts.count = 2;
        opts.end = WEIR_SEMAPHORE_HOST;
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_semaphore_create(connection, 21, &opts, &semaphore));
        opts.end = WEIR_SEMAPHORE_DEVICE;
        // Takes nearly all cells several times: they are returned and zeroed.
        const uint32_t counts[] = { 16000, 1, 15000, 300, 16000 };
        for (uint32_t count : counts) {
            opts.count = count;
            weir_dev_semaphore handle = {};
            if (!WEIRT_OK(rank, weir_semaphore_create(connection, 22, &opts, &semaphore))) {
                break;
            }
            WEIRT_OK(rank, weir_semaphore_device(semaphore, &handle));
            WEIRT_EXPECT(rank, handle.count == count);
            weir_dev_semaphore last = weir_dev_semaphore_at(&handle, count - 1);
            WEIRT_EXPECT(rank, last.count == 1);
            uint64_t token = 1;
            WEIRT_OK(rank, weir_device_copy(channel.comm.device, &token, last.inbound, 8));
            WEIRT_EXPECT(rank, token == 0);
            weirt_barrier(rank);
            token = 5;
            WEIRT_OK(rank, weir_device_copy(channel.comm.device, last.inbound, &token, 8));
            weirt_barrier(rank);
            weir_semaphore_destroy(semaphore);
            semaphore = nullptr;
        }
        WEIRT_OK(rank, weir_comm_status(channel.comm.comm));
    }
    weirt_channel_close(rank, &channel);
}

WEIRT_STAGE_SUITE(Wait);
WEIRT_STAGE_SUITE(Semaphore);

TEST_P(Wait, EndsBySignalInAllForms) { run(2, signals_arrive); }

TEST_P(Wait, EndsByDeadlineAndSticks)
{
    for (uint32_t form : forms) {
        weirt_ranks_run(stage(), 2, deadline_passes, &form, sizeof form);
    }
}

TEST_P(Wait, HostAndKernelsHaveDeadlinesOfTheirOwn) { run(2, two_deadlines); }
TEST_P(Wait, EndsByAbortOnAllRanks) { run(2, abort_ends_all); }

TEST_P(Semaphore, DeviceToDevice)
{
    ends arg = { { WEIR_SEMAPHORE_DEVICE, WEIR_SEMAPHORE_DEVICE } };
    weirt_ranks_run(stage(), 2, pairs_of_ends, &arg, sizeof arg);
}

TEST_P(Semaphore, HostToDevice)
{
    ends arg = { { WEIR_SEMAPHORE_HOST, WEIR_SEMAPHORE_DEVICE } };
    weirt_ranks_run(stage(), 2, pairs_of_ends, &arg, sizeof arg);
}

TEST_P(Semaphore, DeviceToHost)
{
    ends arg = { { WEIR_SEMAPHORE_DEVICE, WEIR_SEMAPHORE_HOST } };
    weirt_ranks_run(stage(), 2, pairs_of_ends, &arg, sizeof arg);
}

// A host thread sees the stores before a signal after its wait. On x86 only the thread sanitizer notices a signal or
// wait without order.
void host_signals_order_data(weirt_rank *rank)
{
    constexpr uint64_t ROUNDS = 100;
    constexpr uint64_t WORDS = 64;
    weirt_channel channel;
    weir_semaphore *host = nullptr;
    weir_memory *mine = nullptr;
    weir_memory *theirs = nullptr;
    const weir_memory_opts in_host = { sizeof in_host, WEIR_MEMORY_HOST, false, 0 };
    if (weirt_channel_open(rank, 0, 1024, &channel) &&
        weirt_semaphore(rank, channel.pair.connection, 5, WEIR_SEMAPHORE_HOST, &host) &&
        WEIRT_OK(rank, weir_memory_allocate(channel.comm.comm, WORDS * 8, &in_host, &mine)) &&
        WEIRT_OK(rank, weir_memory_send(channel.comm.comm, mine, channel.pair.peer, 6)) &&
        weirt_receive(rank, channel.comm.comm, channel.pair.peer, 6, &theirs)) {
        uint64_t *in = static_cast<uint64_t *>(weir_memory_host_pointer(mine));
        uint64_t *out = static_cast<uint64_t *>(weir_memory_host_pointer(theirs));
        uint64_t wrong = 0;
        for (uint64_t round = 1; round <= ROUNDS && wrong == 0; round++) {
            // The ranks take turns: data is read before it is overwritten.
            if ((round + rank->rank) % 2 == 0) {
                for (uint64_t i = 0; i < WORDS; i++) {
                    out[i] = round * WORDS + i;
                }
                wrong += !WEIRT_OK(rank, weir_semaphore_signal(host));
            } else {
                wrong += !WEIRT_OK(rank, weir_semaphore_wait(host, weirt_timeout_ms()));
                for (uint64_t i = 0; i < WORDS; i++) {
                    wrong += in[i] != round * WORDS + i;
                }
            }
        }
        WEIRT_EXPECT(rank, wrong == 0);
    }
    weirt_barrier(rank);
    weir_memory_destroy(theirs);
    weirt_barrier(rank);
    weir_memory_destroy(mine);
    weir_semaphore_destroy(host);
    weirt_channel_close(rank, &channel);
}

TEST_P(Semaphore, HostSignalsOrderData) { run(2, host_signals_order_data); }

TEST_P(Semaphore, HostToHost)
{
    ends arg = { { WEIR_SEMAPHORE_HOST, WEIR_SEMAPHORE_HOST } };
    weirt_ranks_run(stage(), 2, pairs_of_ends, &arg, sizeof arg);
}

TEST_P(Semaphore, CountsOfASetMustAgree) { run(2, set_counts); }
TEST_P(Semaphore, NullArgumentsAreInvalid) { run(2, null_arguments); }

} // namespace
