// Halos of which one neighbour is killed, aborts, or never makes its exchange. The exchange of the other rank ends, and
// the text names that neighbour.
#include <cstring>
#include <string>

#include "test/harness/checks.h"
#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

namespace {

constexpr uint32_t SILENCE_MS = 150;
constexpr uint32_t CREATE_MS = 200; // of a create whose neighbour never calls

enum Moment : uint32_t { IN_CREATE, IN_EXCHANGE };
enum End : uint32_t { KILLED, ABORTS, SILENT };

struct Plan {
    Moment moment;
    End end;
    weir_halo_form form;
};

struct Bench {
    weirt_comm c = {};
    weir_memory *array = nullptr;
    weir_memory_channel *channel = nullptr;
    weir_layout *bytes = nullptr;
    weir_halo *halo = nullptr;
    void *stream = nullptr;

    bool open(weirt_rank *rank, End end)
    {
        const bool joined =
            end == SILENT ? weirt_comm_open_kernels(rank, SILENCE_MS, &c) : weirt_comm_open(rank, 0, &c);
        return joined && WEIRT_OK(rank, weir_memory_allocate(c.comm, 64, nullptr, &array)) &&
               WEIRT_OK(rank, weir_stream_create(c.device, &stream)) &&
               WEIRT_OK(rank, weir_layout_create_bytes(16, &bytes)) &&
               WEIRT_OK(rank, weir_memory_channel_connect(c.comm, 1 - rank->rank, 2, array, nullptr, &channel));
    }
    weir_status create(weir_halo_form form)
    {
        const weir_halo_part part = { channel, 7, bytes, bytes, 0, 32 };
        const weir_halo_opts opts = { sizeof opts, 0, form, nullptr };
        return weir_halo_create(c.comm, &part, 1, &opts, &halo);
    }
    void close()
    {
        weir_halo_destroy(halo);
        weir_memory_channel_destroy(channel);
        weir_layout_destroy(bytes);
        if (stream != nullptr) {
            weir_stream_destroy(c.device, stream);
        }
        weir_memory_destroy(array);
        weirt_comm_close(&c);
    }
};

// The kernel's error, and what its text says.
void expect_end(weirt_rank *rank, Bench *bench, const Plan *plan)
{
    const weir_status expected = plan->end == KILLED   ? WEIR_ERR_REMOTE
                                 : plan->end == ABORTS ? WEIR_ERR_ABORTED
                                                       : WEIR_ERR_TIMEOUT;
    WEIRT_OK(rank, weir_stream_wait(bench->c.device, bench->stream, weirt_timeout_ms()));
    WEIRT_STATUS(rank, expected, weir_comm_status(bench->c.comm));
    WEIRT_TEXT(rank, "rank 1");
    if (plan->end == SILENT) {
        WEIRT_TEXT(rank, plan->form == WEIR_HALO_STORES ? "halo: put to part 7 of rank 1: it was not ready for 150 ms"
                                                        : "halo: wait for part 7 of rank 1: nothing came for 150 ms");
    }
    WEIRT_STATUS(rank, expected, weir_halo_exchange(bench->halo, bench->stream));
}

void lose_neighbour(weirt_rank *rank)
{
    const Plan *plan = static_cast<const Plan *>(rank->arg);
    Bench bench;
    weirt_log_allow(""); // the log depends on the end
    bool fine = bench.open(rank, plan->end) && weirt_barrier(rank);
    if (fine && plan->moment == IN_EXCHANGE) {
        fine = WEIRT_OK(rank, bench.create(plan->form)) && weirt_barrier(rank);
    }
    if (fine && rank->rank == 0 && plan->moment == IN_EXCHANGE) {
        WEIRT_OK(rank, weir_halo_exchange(bench.halo, bench.stream));
        weirt_sleep_ms(30); // so that the kernel waits already
        weirt_step(rank, 1);
        expect_end(rank, &bench, plan);
        weirt_step(rank, 2);
    } else if (fine && rank->rank == 0) {
        weirt_step(rank, 1);
        WEIRT_STATUS(rank, WEIR_ERR_REMOTE, bench.create(plan->form));
        WEIRT_TEXT(rank, "rank 1");
        WEIRT_EXPECT(rank, bench.halo == nullptr);
    } else if (fine && weirt_step_wait(rank, 0, 1)) {
        if (plan->end == KILLED) {
            weirt_die(rank, WEIRT_KILL);
        }
        if (plan->end == ABORTS) {
            weir_comm_abort(bench.c.comm);
        }
        (void)weirt_step_wait(rank, 0, 2); // its memory stays until the other rank has ended
    }
    bench.close();
}

class HaloFault : public StageTest {
protected:
    void lose(Plan plan) const { weirt_ranks_run(stage(), 2, lose_neighbour, &plan, sizeof plan); }
};

INSTANTIATE_TEST_SUITE_P(Stages, HaloFault, ::testing::Values(1, 3), weirt_stage_name);

TEST_P(HaloFault, DeathEndsCreate) { lose({ IN_CREATE, KILLED, WEIR_HALO_AUTO }); }
TEST_P(HaloFault, DeathEndsAWaitForLines) { lose({ IN_EXCHANGE, KILLED, WEIR_HALO_LINES }); }
TEST_P(HaloFault, DeathEndsAPutWithStores) { lose({ IN_EXCHANGE, KILLED, WEIR_HALO_STORES }); }
TEST_P(HaloFault, AbortEndsAWaitForPackets) { lose({ IN_EXCHANGE, ABORTS, WEIR_HALO_PACKETS }); }
// The deadline of a create, which names the neighbour that has not called.
void create_alone(weirt_rank *rank)
{
    weirt_comm c;
    weirt_pair pair = {};
    weir_layout *bytes = nullptr;
    weir_halo *halo = nullptr;
    weirt_log_allow("");
    bool fine = weirt_comm_open(rank, CREATE_MS, &c) && weirt_pair_open(rank, c.comm, 64, 3, &pair) &&
                WEIRT_OK(rank, weir_layout_create_bytes(16, &bytes));
    if (weirt_barrier(rank) && fine && rank->rank == 0) {
        const weir_halo_part part = { pair.data, 7, bytes, bytes, 0, 32 };
        const uint64_t since = weirt_now_ms();
        WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_halo_create(c.comm, &part, 1, nullptr, &halo));
        const uint64_t took = weirt_now_ms() - since;
        WEIRT_TEXT(rank, "rank 1 did not call weir_memory_send within 200 ms (for a halo)");
        WEIRT_EXPECT(rank, took >= CREATE_MS && took < CREATE_MS + weirt_slack_ms());
        WEIRT_EXPECT(rank, halo == nullptr);
    }
    weir_layout_destroy(bytes);
    weirt_pair_close(rank, &pair, true);
    weirt_comm_close(&c);
}

TEST_P(HaloFault, ANeighbourThatNeverCallsEndsCreate) { weirt_ranks_run(stage(), 2, create_alone, nullptr, 0); }

TEST_P(HaloFault, ANeighbourThatNeverCallsEndsAPut) { lose({ IN_EXCHANGE, SILENT, WEIR_HALO_STORES }); }
TEST_P(HaloFault, ANeighbourThatNeverCallsEndsAWait) { lose({ IN_EXCHANGE, SILENT, WEIR_HALO_LINES }); }

// ---- the n-th allocation or device operation of a create fails ---------------------------------------------

// One n in its own job. Returns whether there may be more operations.
bool try_with_fault(weirt_rank *rank, bool device, uint64_t n)
{
    auto *arm = device ? weirt_fail_device : weirt_fail_allocation;
    const uint32_t step = 3 * static_cast<uint32_t>(n);
    Bench bench;
    (void)weirt_barrier(rank);
    const int64_t before = weirt_count_allocations();
    (void)weirt_barrier(rank);
    const bool open = bench.open(rank, ABORTS);
    (void)weirt_barrier(rank);
    if (rank->rank == 0) {
        (void)arm(n);
    }
    (void)weirt_barrier(rank);
    const uint64_t since = weirt_now_ms();
    const weir_status status = open ? bench.create(n % 2 == 0 ? WEIR_HALO_STORES : WEIR_HALO_LINES) : WEIR_ERR_INVALID;
    const bool in_time = WEIRT_EXPECT(rank, weirt_now_ms() - since < 10000 * static_cast<uint64_t>(weirt_slow()));
    WEIRT_EXPECT(rank, status == WEIR_OK || std::string(weir_last_error()).find(": ") != std::string::npos);
    (void)weirt_barrier(rank);
    bool happened = false;
    if (rank->rank == 0) {
        happened = arm(0) == 0;
        WEIRT_EXPECT(rank, happened || status == WEIR_OK);
    }
    bench.close();
    (void)weirt_barrier(rank);
    if (rank->rank == 0) {
        const int64_t left = weirt_count_allocations() - before;
        if (left != 0) {
            weirt_fail(rank, __FILE__, __LINE__, "%s %llu failed: %lld allocations left behind",
                       device ? "device operation" : "allocation", static_cast<unsigned long long>(n),
                       static_cast<long long>(left));
        }
        weirt_step(rank, step + (happened && in_time ? 1 : 2));
    }
    (void)weirt_barrier(rank);
    return weirt_step_now(rank, 0) == step + 1;
}

void nth_fails(weirt_rank *rank)
{
    const bool device = *static_cast<const uint32_t *>(rank->arg) != 0;
    uint64_t n = 1;
    weirt_log_allow(""); // the log depends on the failed operation
    while (n < 500 && try_with_fault(rank, device, n)) {
        n++;
    }
    WEIRT_EXPECT(rank, n > (device ? 4 : 20) && n < 500);
}

TEST(HaloNth, AllocationFails)
{
    const uint32_t device = 0;
    weirt_ranks_run(&weirt_stages[0], 2, nth_fails, &device, sizeof device);
}
TEST(HaloNth, DeviceOperationFails)
{
    const uint32_t device = 1;
    weirt_ranks_run(&weirt_stages[0], 2, nth_fails, &device, sizeof device);
}

// The CPU device allocates the launch in its queue, which is the first and only allocation of an exchange. Without it
// the exchange fails alone.
void allocates_nothing(weirt_rank *rank)
{
    weirt_comm c;
    weir_memory *array = nullptr;
    weir_layout *bytes = nullptr;
    weir_halo *halo = nullptr;
    void *stream = nullptr;
    weir_memory_opts host = WEIR_OPTS(weir_memory_opts);
    weir_halo_opts opts = WEIR_OPTS(weir_halo_opts);
    host.kind = WEIR_MEMORY_HOST;
    if (weirt_comm_open(rank, 0, &c) && WEIRT_OK(rank, weir_memory_allocate(c.comm, 64, &host, &array)) &&
        WEIRT_OK(rank, weir_stream_create(c.device, &stream)) && WEIRT_OK(rank, weir_layout_create_bytes(16, &bytes))) {
        const weir_halo_part part = { nullptr, 7, bytes, bytes, 0, 32 };
        opts.array = weir_memory_pointer(array);
        WEIRT_OK(rank, weir_halo_create(c.comm, &part, 1, &opts, &halo));
        WEIRT_OK(rank, weir_halo_exchange(halo, stream)); // the first launch loads the kernel
        WEIRT_OK(rank, weir_comm_wait(c.comm, stream, weirt_timeout_ms()));
        (void)weirt_fail_allocation(1);
        WEIRT_STATUS(rank, WEIR_ERR_NOMEM, weir_halo_exchange(halo, stream));
        char *memory = static_cast<char *>(weir_memory_host_pointer(array));
        std::memcpy(memory, "what this rank sends to itself", 16);
        (void)weirt_fail_allocation(2);
        WEIRT_OK(rank, weir_halo_exchange(halo, stream));
        WEIRT_EXPECT(rank, weirt_fail_allocation(0) == 1);
        WEIRT_OK(rank, weir_comm_wait(c.comm, stream, weirt_timeout_ms()));
        WEIRT_EXPECT(rank, std::memcmp(memory + 32, "what this rank sends to itself", 16) == 0 && memory[48] == 0);
    }
    weir_halo_destroy(halo);
    weir_layout_destroy(bytes);
    if (stream != nullptr) {
        weir_stream_destroy(c.device, stream);
    }
    weir_memory_destroy(array);
    weirt_comm_close(&c);
}

TEST(HaloNth, AnExchangeAllocatesNothing) { weirt_ranks_run(&weirt_stages[0], 1, allocates_nothing, nullptr, 0); }

} // namespace
