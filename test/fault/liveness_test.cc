// Kernels that never run out of signals: ranks 0 and 1 pass a signal back and forth forever, while rank 2, which has no
// channel to them, aborts, is killed, or is stopped. Both kernels must end soon, and the text must name rank 2. The
// same for a rank that is stopped inside each operation of a collective. On two GPUs the ranks are on gpu:0, gpu:1 and
// gpu:0.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "liveness_kernels.h"
#include "test/harness/checks.h"
#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

namespace {

struct liveness_case {
    weirt_death death; // WEIRT_ALIVE: rank 2 aborts
    uint32_t end_ms;   // time limit of both kernels' ends
    uint64_t pause_ns; // of rank 0, before each signal
    bool ahead;        // all signals have arrived already, and rank 1 pauses, too
};

constexpr uint64_t TRIPS = 1000;        // before rank 2 fails
constexpr uint64_t FEW_TRIPS = 50;      // with pauses of AHEAD_ROUND_NS
constexpr uint32_t STOP_TIMEOUT = 5000; // WEIR_TIMEOUT_MS, ms
constexpr uint64_t SLOW_ROUND_NS = 250000;
constexpr uint64_t AHEAD_ROUND_NS = 10000000;
constexpr uint64_t AHEAD = 1ull << 40; // signals

struct liveness_pair {
    weir_connection *connection = nullptr;
    weir_semaphore *semaphore = nullptr;
    weir_memory *shared = nullptr;
    liveness_report *report = nullptr;
    void *stream = nullptr;

    bool open(weirt_rank *rank, const weirt_comm *comm)
    {
        const weir_memory_opts host = { sizeof host, WEIR_MEMORY_HOST, false, 0 };
        if (!weirt_connect(rank, comm->comm, 1 - rank->rank, 1, &connection) ||
            !weirt_semaphore(rank, connection, 2, WEIR_SEMAPHORE_DEVICE, &semaphore) ||
            !WEIRT_OK(rank, weir_memory_allocate(comm->comm, sizeof(liveness_report), &host, &shared)) ||
            !WEIRT_OK(rank, weir_kernel_load(comm->device, liveness_kernel())) ||
            !WEIRT_OK(rank, weir_stream_create(comm->device, &stream))) {
            return false;
        }
        report = static_cast<liveness_report *>(weir_memory_host_pointer(shared));
        return true;
    }
    void close(weir_device *device)
    {
        if (stream != nullptr) {
            weir_stream_destroy(device, stream);
        }
        weir_semaphore_destroy(semaphore);
        weir_connection_destroy(connection);
        weir_memory_destroy(shared);
    }
};

// Waits until the kernel has made many trips.
bool is_under_way(weirt_rank *rank, const liveness_pair *pair, uint64_t trips)
{
    const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
    while (weir_arch_load_relaxed_sys_u64(&pair->report->trips) < trips) {
        if (weirt_now_ms() > end) {
            weirt_fail(rank, __FILE__, __LINE__, "no %llu trips", static_cast<unsigned long long>(trips));
            return false;
        }
        weirt_sleep_ms(1);
    }
    return true;
}

void pass_signals(weirt_rank *rank, const weirt_comm *comm, liveness_pair *pair, const liveness_case *what)
{
    liveness_args args = {};
    args.report = static_cast<liveness_report *>(weir_memory_pointer(pair->shared));
    args.pause_ns = rank->rank == 0 || what->ahead ? what->pause_ns : 0;
    if (!WEIRT_OK(rank, weir_semaphore_device(pair->semaphore, &args.semaphore)) ||
        (what->ahead &&
         !WEIRT_OK(rank, weir_device_copy(comm->device, args.semaphore.inbound, &AHEAD, sizeof AHEAD))) ||
        !WEIRT_OK(rank,
                  weir_launch(comm->device, liveness_kernel(), weir_shape{ 1, 1 }, &args, nullptr, pair->stream)) ||
        !is_under_way(rank, pair, what->ahead ? FEW_TRIPS : TRIPS)) {
        return;
    }
    weirt_step(rank, 1);
    if (!weirt_step_wait(rank, 2, 1)) {
        return;
    }
    const uint64_t since = weirt_now_ms();
    const weir_status ended = weir_stream_wait(comm->device, pair->stream, what->end_ms);
    const uint64_t took = weirt_now_ms() - since;
    const weir_status expected = what->death == WEIRT_ALIVE ? WEIR_ERR_ABORTED : WEIR_ERR_REMOTE;
    const weir_status status = weir_comm_status(comm->comm);
    const bool named = std::strstr(weir_last_error(), "rank 2") != nullptr;
    std::printf("rank %u on %s: the kernel %s after %llu ms; %s: %s\n", rank->rank, rank->device,
                ended == WEIR_OK ? "ended" : "had not ended", static_cast<unsigned long long>(took),
                weir_status_name(status), status != WEIR_OK ? weir_last_error() : "");
    (void)std::fflush(stdout);
    WEIRT_EXPECT(rank, ended == WEIR_OK);
    WEIRT_EXPECT(rank, status == expected);
    WEIRT_EXPECT(rank, named);
    if (ended == WEIR_OK) {
        WEIRT_EXPECT(rank, pair->report->ended == 1 && pair->report->status == expected);
    }
}

void three_ranks(weirt_rank *rank)
{
    const auto *what = static_cast<const liveness_case *>(rank->arg);
    weirt_comm comm;
    liveness_pair pair;
    weirt_log_allow(""); // the log depends on the death
    const bool open = weirt_comm_open(rank, 0, &comm);
    if (open && rank->rank < 2 && pair.open(rank, &comm)) {
        pass_signals(rank, &comm, &pair, what);
    } else if (open && rank->rank == 2 && weirt_step_wait(rank, 0, 1) && weirt_step_wait(rank, 1, 1)) {
        weirt_step(rank, 1);
        if (what->death != WEIRT_ALIVE) {
            weirt_die(rank, what->death);
        }
        weir_comm_abort(comm.comm);
        WEIRT_STATUS(rank, WEIR_ERR_ABORTED, weir_comm_status(comm.comm));
    }
    if (rank->rank < 2) {
        pair.close(comm.device);
    }
    weirt_comm_close(&comm);
}

constexpr uint32_t CALLS = 20;      // before rank 2 stops
constexpr uint64_t COUNT = 1 << 12; // values of a part
constexpr uint32_t RANKS = 3;

// What a call of a collective needs: buffers with a part for each rank, and the places of these parts.
struct Call {
    weir_collective *collective;
    uint32_t rank;
    float *in;
    float *out;
    void *stream;
    weir_extent extents[RANKS];
};

using Operation = weir_status (*)(const Call &);

weir_status all_parts(const Call &c, bool gathers)
{
    const weir_part parts[2] = { { c.in, c.out, c.extents, WEIR_F32 },
                                 { c.in + RANKS * COUNT, c.out + RANKS * COUNT, c.extents, WEIR_F32 } };
    return gathers ? weir_allgather_parts(c.collective, parts, 2, c.stream)
                   : weir_reduce_scatter_parts(c.collective, parts, 2, WEIR_SUM, c.stream);
}

weir_status exchange(const Call &c)
{
    weir_transfer transfers[2 * RANKS];
    for (uint32_t k = 0; k < RANKS; k++) {
        transfers[2 * k] = { c.in + k * COUNT, COUNT, WEIR_F32, k, false };
        transfers[2 * k + 1] = { c.out + k * COUNT, COUNT, WEIR_F32, k, true };
    }
    return weir_exchange(c.collective, transfers, 2 * RANKS, c.stream);
}

// Data goes around all ranks.
weir_status send_and_recv(const Call &c)
{
    const uint32_t next = (c.rank + 1) % RANKS;
    const uint32_t previous = (c.rank + RANKS - 1) % RANKS;
    weir_status status = c.rank == 0 ? WEIR_OK : weir_recv(c.collective, c.out, COUNT, WEIR_F32, previous, c.stream);
    status = status == WEIR_OK ? weir_send(c.collective, c.in, COUNT, WEIR_F32, next, c.stream) : status;
    return status == WEIR_OK && c.rank == 0 ? weir_recv(c.collective, c.out, COUNT, WEIR_F32, previous, c.stream)
                                            : status;
}

// clang-format off
const struct {
    const char *name;
    Operation call;
} operations[] = {
    { "allreduce", [](const Call &c) {
          return weir_allreduce(c.collective, c.in, c.out, COUNT, WEIR_F32, WEIR_SUM, c.stream); } },
    { "reduce", [](const Call &c) {
          return weir_reduce(c.collective, c.in, c.out, COUNT, WEIR_F32, WEIR_SUM, 0, c.stream); } },
    { "reduce_scatter", [](const Call &c) {
          return weir_reduce_scatter(c.collective, c.in, c.out, COUNT, WEIR_F32, WEIR_SUM, c.stream); } },
    { "allgather", [](const Call &c) {
          return weir_allgather(c.collective, c.in, c.out, COUNT, WEIR_F32, c.stream); } },
    { "broadcast", [](const Call &c) {
          return weir_broadcast(c.collective, c.in, c.out, COUNT, WEIR_F32, 2, c.stream); } },
    { "all_to_all", [](const Call &c) {
          return weir_all_to_all(c.collective, c.in, c.out, COUNT, WEIR_F32, c.stream); } },
    { "gather", [](const Call &c) {
          return weir_gather(c.collective, c.in, c.out, COUNT, WEIR_F32, 0, c.stream); } },
    { "scatter", [](const Call &c) {
          return weir_scatter(c.collective, c.in, c.out, COUNT, WEIR_F32, 2, c.stream); } },
    { "all_to_all_v", [](const Call &c) {
          return weir_all_to_all_v(c.collective, c.in, c.extents, c.out, c.extents, WEIR_F32, c.stream); } },
    { "allgather_parts", [](const Call &c) { return all_parts(c, true); } },
    { "reduce_scatter_parts", [](const Call &c) { return all_parts(c, false); } },
    { "allgather_v", [](const Call &c) {
          return weir_allgather_v(c.collective, c.in, c.out, c.extents, WEIR_F32, c.stream); } },
    { "reduce_scatter_v", [](const Call &c) {
          return weir_reduce_scatter_v(c.collective, c.in, c.out, c.extents, WEIR_F32, WEIR_SUM, c.stream); } },
    { "gather_v", [](const Call &c) {
          return weir_gather_v(c.collective, c.in, c.out, c.extents, WEIR_F32, 0, c.stream); } },
    { "scatter_v", [](const Call &c) {
          return weir_scatter_v(c.collective, c.in, c.out, c.extents, WEIR_F32, 2, c.stream); } },
    { "exchange", exchange },
    { "send and recv", send_and_recv }
};
// clang-format on
constexpr uint32_t OPERATIONS = sizeof operations / sizeof operations[0];

// All ranks make the same calls without end, and rank 2 stops after it has launched one more. The others wait in
// kernels, for rank 2 or for each other.
void call_without_end(weirt_rank *rank)
{
    const auto &operation = operations[*static_cast<const uint32_t *>(rank->arg)];
    weirt_comm comm;
    weir_memory *memory = nullptr;
    Call c = {};
    weirt_log_allow("");
    if (weirt_comm_open(rank, 0, &comm) && WEIRT_OK(rank, weir_collective_create(comm.comm, nullptr, &c.collective)) &&
        WEIRT_OK(rank, weir_memory_allocate(comm.comm, 4 * RANKS * COUNT * sizeof(float), nullptr, &memory)) &&
        WEIRT_OK(rank, weir_stream_create(comm.device, &c.stream))) {
        c.rank = rank->rank;
        c.in = static_cast<float *>(weir_memory_pointer(memory));
        c.out = c.in + 2 * RANKS * COUNT;
        for (uint32_t k = 0; k < RANKS; k++) {
            c.extents[k] = { k * COUNT, COUNT };
        }
        weir_status status = WEIR_OK;
        uint32_t calls = 0;
        for (; status == WEIR_OK; calls++) {
            status = operation.call(c);
            if (rank->rank == 2 && calls == CALLS) {
                weirt_die(rank, WEIRT_STOP);
            }
            status = status == WEIR_OK ? weir_comm_wait(comm.comm, c.stream, 0) : status;
        }
        const bool named =
            std::strstr(weir_last_error(), "rank 2 does not answer (stopped, or its host is unreachable)") != nullptr;
        if (!named || status != WEIR_ERR_REMOTE || calls < CALLS) {
            weirt_fail(rank, __FILE__, __LINE__, "%s: %s after %u calls: %s", operation.name, weir_status_name(status),
                       calls, weir_last_error());
        }
    }
    weir_collective_destroy(c.collective);
    if (c.stream != nullptr) {
        weir_stream_destroy(comm.device, c.stream);
    }
    weir_memory_destroy(memory);
    weirt_comm_close(&comm);
}

class Liveness : public StageTest {
protected:
    void run(weirt_death death, uint32_t end_ms, uint64_t pause_ns = 0, bool ahead = false) const
    {
        // A GPU does nothing else at this time, but other programs share the processor.
        const bool gpu = std::strcmp(stage()->kind, "gpu") == 0;
        const liveness_case what = { death, end_ms + (gpu ? 0 : 5000 * weirt_slow()), pause_ns, ahead };
        weirt_ranks_run(stage(), 3, three_ranks, &what, sizeof what);
    }
};

INSTANTIATE_TEST_SUITE_P(Stages, Liveness, ::testing::Values(1, 3), weirt_stage_name);

TEST_P(Liveness, AbortEndsKernelsWhoseWaitsSucceed) { run(WEIRT_ALIVE, 1000); }
TEST_P(Liveness, DeathEndsKernelsWhoseWaitsSucceed) { run(WEIRT_KILL, 1000); }

// In each round rank 1 waits a quarter of a millisecond, by the slow part of the wait.
TEST_P(Liveness, AbortEndsKernelsWhoseRoundsAreSlow) { run(WEIRT_ALIVE, 1000, SLOW_ROUND_NS); }
TEST_P(Liveness, DeathEndsKernelsWhoseRoundsAreSlow) { run(WEIRT_KILL, 1000, SLOW_ROUND_NS); }

// No wait lasts, and a round takes 10 ms: on a GPU the check of each 64th wait ends the kernel.
TEST_P(Liveness, AbortEndsKernelsThatNeverWait) { run(WEIRT_ALIVE, 1000, AHEAD_ROUND_NS, true); }
TEST_P(Liveness, DeathEndsKernelsThatNeverWait) { run(WEIRT_KILL, 1000, AHEAD_ROUND_NS, true); }

TEST_P(Liveness, SilenceEndsKernelsWhoseWaitsSucceed)
{
    const uint32_t timeout = STOP_TIMEOUT * weirt_slow();
    setenv("WEIR_TIMEOUT_MS", std::to_string(timeout).c_str(), 1);
    run(WEIRT_STOP, 2 * timeout);
    unsetenv("WEIR_TIMEOUT_MS");
}

// Silence ends the kernels, long before their own deadline. Several operations are tried at the same time: nearly all
// of the time is spent waiting for the silence.
TEST_P(Liveness, AStoppedRankIsNamedInEachCollective)
{
    const bool gpu = std::strcmp(stage()->kind, "gpu") == 0;
    const std::string timeouts = std::to_string(STOP_TIMEOUT * weirt_slow()) + "," + std::to_string(weirt_timeout_ms());
    std::atomic<uint32_t> next{ 0 };
    std::vector<std::thread> threads;
    setenv("WEIR_TIMEOUT_MS", timeouts.c_str(), 1);
    for (uint32_t i = 0; i < (gpu || weirt_sanitizer()[0] != '\0' ? 2u : 6u); i++) {
        threads.emplace_back([&] {
            for (uint32_t at = next++; at < OPERATIONS && !HasFailure(); at = next++) {
                weirt_ranks_run(stage(), RANKS, call_without_end, &at, sizeof at);
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    unsetenv("WEIR_TIMEOUT_MS");
}

} // namespace
