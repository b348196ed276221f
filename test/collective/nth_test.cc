// The n-th allocation, device operation or transport operation of a collective fails: the call returns a status with a
// text, no rank waits for a failed one, and nothing leaks.
#include "test/collective/operations.h"
#include "test/harness/checks.h"
#include "test/harness/stage_test.h"

namespace {

enum Fault { ALLOCATION, DEVICE, TRANSPORT };
const char *const fault_names[] = { "allocation", "device operation", "transport operation" };

struct Plan {
    Fault fault;
    uint32_t stride;
    uint64_t least;      // minimum number of operations
    uint32_t host_ranks; // 0: one host; otherwise each rank is a host
};

const Plan *plan_of(const weirt_rank *rank) { return static_cast<const Plan *>(rank->arg); }

uint64_t arm(Fault fault, uint64_t n)
{
    return fault == ALLOCATION ? weirt_fail_allocation(n)
           : fault == DEVICE   ? weirt_fail_device(n)
                               : weirt_fail_transport(n);
}

// Each operation (between hosts there are no messages here) has its part of the buffers, so they are filled once.
constexpr uint64_t part_bytes = 512;

Operation operation(uint32_t kind)
{
    return { static_cast<Kind>(kind), WEIR_I32, WEIR_SUM, 20, 1, 0, false, false, kind };
}

uint32_t kinds(const weirt_rank *rank) { return plan_of(rank)->host_ranks != 0 ? MESSAGES : KINDS; }

// Further calls, in the parts of the buffers behind those of the operations. Those by copies are for one host.
enum More { EXCHANGE, PARTS, COPIES, COPIED_EXCHANGE, MORE };

uint32_t more_calls(const weirt_rank *rank) { return plan_of(rank)->host_ranks != 0 ? COPIES : MORE; }

Operation data_of(uint32_t more) { return { ALLGATHER, WEIR_I32, WEIR_SUM, 20, 0, 0, false, false, KINDS + more }; }

weir_status call_more(const Bench *b, uint32_t more, void *send, void *recv)
{
    const uint32_t peer = 1 - b->rank->rank;
    const weir_transfer both[] = { { send, 20, WEIR_I32, peer, false }, { recv, 20, WEIR_I32, peer, true } };
    const weir_extent extents[] = { { 0, 20 }, { 20, 20 } };
    if (more == EXCHANGE) {
        return weir_exchange(b->collective, both, 2, b->stream);
    }
    if (more == PARTS) {
        return weir_allgather_v(b->collective, send, recv, extents, WEIR_I32, b->stream);
    }
    const weir_status status = weir_collective_force(b->collective, WEIR_FORM_COPIES, 0);
    return status != WEIR_OK ? status
           : more == COPIES  ? weir_allgather(b->collective, send, recv, 20, WEIR_I32, b->stream)
                             : weir_exchange(b->collective, both, 2, b->stream);
}

Bytes expected_of(uint32_t more, uint32_t rank)
{
    return more == EXCHANGE || more == COPIED_EXCHANGE ? sent(data_of(more), 1 - rank, 2)
                                                       : expected(data_of(more), rank, 2);
}

char *part_of(weir_memory *memory, uint32_t kind)
{
    return static_cast<char *>(weir_memory_pointer(memory)) + kind * part_bytes;
}

// Set-up before faults.
bool set_up_alone(Bench *b)
{
    Bytes data((KINDS + MORE) * part_bytes);
    for (uint32_t kind = 0; kind < KINDS + MORE; kind++) {
        const Operation o = kind < KINDS ? operation(kind) : data_of(kind - KINDS);
        const Bytes send = sent(o, b->rank->rank, b->rank->size);
        std::copy(send.begin(), send.end(), data.begin() + kind * part_bytes);
    }
    return weirt_comm_open(b->rank, 0, &b->comm) &&
           WEIRT_OK(b->rank, weir_memory_allocate(b->comm.comm, data.size(), nullptr, &b->in)) &&
           WEIRT_OK(b->rank, weir_memory_allocate(b->comm.comm, data.size(), nullptr, &b->out)) &&
           WEIRT_OK(b->rank, weir_stream_create(b->comm.device, &b->stream)) &&
           WEIRT_OK(b->rank, weir_device_copy(b->comm.device, weir_memory_pointer(b->in), data.data(), data.size()));
}

// A rank that fails here need not do anything for the others.
weir_status set_up_together(Bench *b)
{
    weir_collective_opts opts = {};
    opts.size = sizeof opts;
    opts.check_pointers = true;
    opts.host_ranks = plan_of(b->rank)->host_ranks;
    opts.staging_bytes = opts.host_ranks != 0 ? 256 << 10 : 0; // the default grows
    if (std::strcmp(b->rank->stage->kind, "cpu") == 0) {
        opts.blocks = 1;
        opts.threads = 2;
    }
    weir_status status = weir_collective_create(b->comm.comm, &opts, &b->collective);
    if (status == WEIR_OK) {
        status = weir_collective_register(b->collective, b->in);
    }
    return status != WEIR_OK ? status : weir_collective_register(b->collective, b->out);
}

// The other ranks wait for operations that were not launched.
weir_status operate(Bench *b)
{
    weir_status status = WEIR_OK;
    Bytes have((KINDS + MORE) * part_bytes);
    const uint32_t mores = more_calls(b->rank);
    for (uint32_t kind = 0; kind < kinds(b->rank) && status == WEIR_OK; kind++) {
        const weir_collective_form form = static_cast<weir_collective_form>(WEIR_FORM_ONCE + kind % 4);
        status = weir_collective_force(b->collective, form, 0);
        if (status == WEIR_OK) {
            status = call(b, operation(kind), part_of(b->in, kind), part_of(b->out, kind));
        }
    }
    for (uint32_t more = 0; more < mores && status == WEIR_OK; more++) {
        status = call_more(b, more, part_of(b->in, KINDS + more), part_of(b->out, KINDS + more));
    }
    if (status == WEIR_OK) {
        status = weir_stream_wait(b->comm.device, b->stream, weirt_timeout_ms());
    }
    if (status == WEIR_OK) {
        status = weir_comm_status(b->comm.comm);
    }
    if (status == WEIR_OK) {
        status = weir_device_copy(b->comm.device, have.data(), weir_memory_pointer(b->out), have.size());
    }
    if (status != WEIR_OK) {
        // Earlier launches end on both ranks first. An abort stops kernels in the middle, and the kernels behind them
        // would then move data that is being written.
        const weir_status ended = weir_stream_wait(b->comm.device, b->stream, weirt_timeout_ms());
        weir_comm_abort(b->comm.comm);
        return ended != WEIR_OK ? ended : status;
    }
    for (uint32_t kind = 0; kind < kinds(b->rank); kind++) {
        const Bytes want = expected(operation(kind), b->rank->rank, b->rank->size);
        if (!std::equal(want.begin(), want.end(), have.begin() + kind * part_bytes)) {
            weirt_fail(b->rank, __FILE__, __LINE__, "%s: wrong data", kind_names[kind]);
        }
    }
    for (uint32_t more = 0; more < mores; more++) {
        const Bytes want = expected_of(more, b->rank->rank);
        if (!std::equal(want.begin(), want.end(), have.begin() + (KINDS + more) * part_bytes)) {
            weirt_fail(b->rank, __FILE__, __LINE__, "further call %u: wrong data", more);
        }
    }
    return WEIR_OK;
}

// Exchanges this rank's result with the peer. Returns whether both succeeded.
bool both_are_fine(weirt_rank *rank, weir_status status, uint32_t step)
{
    if (status != WEIR_OK) {
        const char *text = weir_last_error();
        WEIRT_EXPECT(rank, status < 0 && std::strstr(text, ": ") != nullptr);
    }
    weirt_step(rank, step + (status == WEIR_OK));
    (void)weirt_barrier(rank);
    const bool both = weirt_step_now(rank, 0) % 2 + weirt_step_now(rank, 1) % 2 == 2;
    (void)weirt_barrier(rank);
    return both;
}

// One n in its own job. Returns whether there may be more operations.
bool try_with_fault(weirt_rank *rank, Fault fault, uint64_t n)
{
    const uint32_t step = static_cast<uint32_t>(n) * 6;
    Bench bench = {};
    bench.rank = rank;
    (void)weirt_barrier(rank);
    const int64_t before = weirt_count_allocations();
    (void)weirt_barrier(rank);
    bool fine = set_up_alone(&bench);
    (void)weirt_barrier(rank);
    if (rank->rank == 0) {
        (void)arm(fault, n);
    }
    (void)weirt_barrier(rank);
    const uint64_t since = weirt_now_ms();
    fine = both_are_fine(rank, fine ? set_up_together(&bench) : WEIR_ERR_INVALID, step);
    fine = fine && both_are_fine(rank, operate(&bench), step + 2);
    const bool in_time = WEIRT_EXPECT(rank, weirt_now_ms() - since < 10000 * static_cast<uint64_t>(weirt_slow()));
    bench_close(&bench);
    (void)weirt_barrier(rank);
    if (rank->rank == 0) {
        const bool happened = arm(fault, 0) == 0;
        const int64_t left = weirt_count_allocations() - before;
        WEIRT_EXPECT(rank, happened || fine);
        if (left != 0) {
            weirt_fail(rank, __FILE__, __LINE__, "%s %llu failed: %lld allocations left behind", fault_names[fault],
                       static_cast<unsigned long long>(n), static_cast<long long>(left));
        }
        weirt_step(rank, step + 4 + (happened && in_time));
    }
    (void)weirt_barrier(rank);
    return weirt_step_now(rank, 0) % 2 == 1;
}

// Until there are fewer than n operations.
void nth_fails(weirt_rank *rank)
{
    const Plan *plan = plan_of(rank);
    uint64_t n = 1;
    weirt_log_allow(""); // the log depends on the failed operation
    while (n < 2000 && try_with_fault(rank, plan->fault, n)) {
        n += plan->stride;
    }
    WEIRT_EXPECT(rank, n > plan->least && n < 2000);
}

class CollectiveNth : public StageTest {};
INSTANTIATE_TEST_SUITE_P(Stages, CollectiveNth, ::testing::Values(0, 2), weirt_stage_name);

TEST_P(CollectiveNth, AllocationFails)
{
    const Plan plan = { ALLOCATION, std::string(weirt_sanitizer()) == "thread" ? 5u : 1u, 100, 0 };
    weirt_ranks_run(stage(), 2, nth_fails, &plan, sizeof plan);
}

TEST_P(CollectiveNth, DeviceOperationFails)
{
    const Plan plan = { DEVICE, 1, 30, 0 };
    weirt_ranks_run(stage(), 2, nth_fails, &plan, sizeof plan);
}

TEST_P(CollectiveNth, TransportOperationFails)
{
    const Plan plan = { TRANSPORT, 1, 6, 0 };
    weirt_ranks_run(stage(), 2, nth_fails, &plan, sizeof plan);
}

// Each rank is a host. After an error, kernels do not wait until the proxy has sent the data that they overwrite.
void between_hosts(const weirt_stage *stage, const Plan &plan)
{
    if (std::string(weirt_sanitizer()) == "thread") {
        GTEST_SKIP() << "data sent after an error may be old or new";
    }
    weirt_ranks_run(stage, 2, nth_fails, &plan, sizeof plan);
}

TEST_P(CollectiveNth, AllocationFailsBetweenHosts) { between_hosts(stage(), { ALLOCATION, 3, 100, 1 }); }
TEST_P(CollectiveNth, DeviceOperationFailsBetweenHosts) { between_hosts(stage(), { DEVICE, 1, 30, 1 }); }
TEST_P(CollectiveNth, TransportOperationFailsBetweenHosts) { between_hosts(stage(), { TRANSPORT, 1, 6, 1 }); }

} // namespace
