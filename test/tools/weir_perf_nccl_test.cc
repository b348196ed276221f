// The meeting of weir-perf's ranks in NCCL, with fake_nccl.c: success, failure and timeout. The calls of NCCL.
#include <gtest/gtest.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <vector>

#include "test/harness/checks.h"
#include "test/harness/comm.h"
#include "tools/perf/nccl.h"

// Replace functions of other files of weir-perf.
extern "C" weir_status perf_fail(perf_rank *rank, weir_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    (void)vsnprintf(rank->error, sizeof rank->error, format, list);
    va_end(list);
    return status;
}

extern "C" bool perf_cuda_attach(const perf_cuda *) { return true; }

namespace {

const perf_nccl_settings kOwn = {}; // NCCL's

struct Meeting {
    uint32_t timeout_ms;
    struct {
        weir_status status;
        char text[96];
    } expected[2];
};

void meets(weirt_rank *rank)
{
    const Meeting *meeting = static_cast<const Meeting *>(rank->arg);
    const auto &expected = meeting->expected[rank->rank];
    weirt_comm comm;
    perf_nccl *nccl = nullptr;
    weirt_log_allow("abort");
    if (weirt_comm_open(rank, 0, &comm)) {
        perf_rank mine = {};
        mine.rank = rank->rank;
        mine.ranks = rank->size;
        mine.bootstrap = comm.boot;
        mine.comm = comm.comm;
        const uint64_t begin = weirt_now_ms();
        const weir_status status = perf_nccl_open(&mine, nullptr, WEIRT_FAKE_NCCL, &kOwn, meeting->timeout_ms, &nccl);
        const uint64_t took = weirt_now_ms() - begin;
        WEIRT_STATUS(rank, expected.status, status);
        weirt_expect_text(rank, __FILE__, __LINE__, mine.error, expected.text);
        WEIRT_EXPECT(rank, (nccl != nullptr) == (status == WEIR_OK));
        WEIRT_EXPECT(rank, status != WEIR_ERR_TIMEOUT || took >= meeting->timeout_ms);
        WEIRT_EXPECT(rank, took < 5000 * weirt_slow());
        if (status == WEIR_ERR_SYSTEM) {
            weir_comm_abort(comm.comm); // as weir-perf does
        }
        weirt_barrier(rank);
        perf_nccl_close(nccl);
    }
    weirt_comm_close(&comm);
}

// A function of the library, which stays loaded.
template <class Function> Function *found(const char *name, const char *path = WEIRT_FAKE_NCCL)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    void *symbol = library == nullptr ? nullptr : dlsym(library, name);
    if (library != nullptr) {
        dlclose(library);
    }
    return reinterpret_cast<Function *>(symbol);
}

void run(const char *how, const Meeting &meeting)
{
    setenv("FAKE_NCCL", how, 1);
    weirt_ranks_run(&weirt_stages[0], 2, meets, &meeting, sizeof meeting);
    unsetenv("FAKE_NCCL");
    // Abandoned threads end and free their memory.
    auto *end = found<void()>("fake_nccl_end");
    ASSERT_NE(end, nullptr);
    end();
}

TEST(WeirPerfNccl, RanksMeet) { run("meet", { weirt_timeout_ms(), { { WEIR_OK, "" }, { WEIR_OK, "" } } }); }

TEST(WeirPerfNccl, ARankThatFailsIsNotWaitedFor)
{
    run("fail", { weirt_timeout_ms(),
                  { { WEIR_ERR_ABORTED, "ncclCommInitRank: abandoned" },
                    { WEIR_ERR_SYSTEM, "ncclCommInitRank: unhandled system error: as it shall" } } });
}

TEST(WeirPerfNccl, RanksThatDoNotComeAreATimeout)
{
    run("wait", { 150,
                  { { WEIR_ERR_TIMEOUT, "not all ranks called it within 150 ms" },
                    { WEIR_ERR_TIMEOUT, "not all ranks called it within 150 ms" } } });
}

void scales(weirt_rank *rank)
{
    weirt_comm comm;
    perf_nccl *nccl = nullptr;
    if (weirt_comm_open(rank, 0, &comm)) {
        perf_rank mine = {};
        mine.rank = rank->rank;
        mine.ranks = rank->size;
        mine.bootstrap = comm.boot;
        mine.comm = comm.comm;
        WEIRT_OK(rank, perf_nccl_open(&mine, nullptr, WEIRT_FAKE_NCCL, &kOwn, weirt_timeout_ms(), &nccl));
        if (nccl != nullptr) {
            weir_collective_request request = {};
            request.kind = WEIR_ALLREDUCE;
            request.count = 40;
            request.dtype = WEIR_F16;
            request.op = WEIR_SCALED_SUM;
            WEIRT_OK(rank, perf_nccl_create_scaled_sum(nccl, WEIR_F16));
            WEIRT_OK(rank, perf_nccl_call(nccl, &request, nullptr));
            request.op = WEIR_MAX;
            WEIRT_OK(rank, perf_nccl_call(nccl, &request, nullptr));
        }
        weirt_barrier(rank);
        perf_nccl_close(nccl);
    }
    weirt_comm_close(&comm);
}

// The factor is 1.5 in f16, and NCCL's operation is that of the call.
TEST(WeirPerfNccl, ASumWithAFactorIsAnOperationOfNccl)
{
    setenv("FAKE_NCCL", "meet", 1);
    weirt_ranks_run(&weirt_stages[0], 2, scales, nullptr, 0);
    unsetenv("FAKE_NCCL");
    auto *count = found<unsigned(const char *)>("fake_nccl_count");
    ASSERT_NE(count, nullptr);
    for (const char *call : { "PreMulSum 3e00, type 6, residence 1", "AllReduce 40, type 6, op 5",
                              "AllReduce 40, type 6, op 2", "RedOpDestroy 5" }) {
        EXPECT_EQ(count(call), 2u) << call;
    }
}

void broadcasts(weirt_rank *rank)
{
    weirt_comm comm;
    perf_nccl *nccl = nullptr;
    if (weirt_comm_open(rank, 0, &comm)) {
        perf_rank mine = {};
        mine.rank = rank->rank;
        mine.ranks = rank->size;
        mine.bootstrap = comm.boot;
        mine.comm = comm.comm;
        WEIRT_OK(rank, perf_nccl_open(&mine, nullptr, WEIRT_FAKE_NCCL, &kOwn, weirt_timeout_ms(), &nccl));
        if (nccl != nullptr) {
            uint16_t data[2][40] = {};
            weir_collective_request request = {};
            request.kind = WEIR_BROADCAST;
            request.count = 40;
            request.dtype = WEIR_F16;
            request.root = 1;
            request.send = rank->rank == request.root ? data[0] : nullptr; // as for an extent of parts
            request.recv = data[1];
            WEIRT_OK(rank, perf_nccl_call(nccl, &request, nullptr));
        }
        weirt_barrier(rank);
        perf_nccl_close(nccl);
    }
    weirt_comm_close(&comm);
}

// With NULL on one rank, NCCL's kernel on symmetric windows never ends.
TEST(WeirPerfNccl, ABroadcastHasASendBufferOnAllRanks)
{
    setenv("FAKE_NCCL", "meet", 1);
    weirt_ranks_run(&weirt_stages[0], 2, broadcasts, nullptr, 0);
    unsetenv("FAKE_NCCL");
    auto *count = found<unsigned(const char *)>("fake_nccl_count");
    ASSERT_NE(count, nullptr);
    EXPECT_EQ(count("Broadcast 40, type 6, root 1: out of place"), 1u);
    EXPECT_EQ(count("Broadcast 40, type 6, root 1: in place"), 1u);
}

void configures(weirt_rank *rank)
{
    const perf_nccl_settings *settings = static_cast<const perf_nccl_settings *>(rank->arg);
    weirt_comm comm;
    perf_nccl *nccl = nullptr;
    if (weirt_comm_open(rank, 0, &comm)) {
        perf_rank mine = {};
        mine.rank = rank->rank;
        mine.ranks = rank->size;
        mine.bootstrap = comm.boot;
        mine.comm = comm.comm;
        WEIRT_OK(rank, perf_nccl_open(&mine, nullptr, WEIRT_FAKE_NCCL, settings, weirt_timeout_ms(), &nccl));
        weirt_barrier(rank);
        perf_nccl_close(nccl);
    }
    weirt_comm_close(&comm);
}

// -2147483648 leaves a field to NCCL.
TEST(WeirPerfNccl, SettingsGoIntoTheConfig)
{
    const struct {
        perf_nccl_settings settings;
        const char *call;
    } rows[] = {
        { { 16, false }, "config of 80 bytes, cafebeef, 22800: min -2147483648, max 16, policy -2147483648" },
        { { 0, true }, "config of 80 bytes, cafebeef, 22800: min -2147483648, max -2147483648, policy 2" },
    };
    for (const auto &row : rows) {
        setenv("FAKE_NCCL", "meet", 1);
        weirt_ranks_run(&weirt_stages[0], 2, configures, &row.settings, sizeof row.settings);
        unsetenv("FAKE_NCCL");
        auto *count = found<unsigned(const char *)>("fake_nccl_count");
        ASSERT_NE(count, nullptr);
        EXPECT_EQ(count(row.call), 2u) << row.call;
    }
}

struct Rooted {
    const char *library;
    perf_nccl_settings settings;
    weir_status status; // of the calls
};

// Gathers 40 elements on rank 1, and scatters 24 from there.
void calls_root(weirt_rank *rank)
{
    const Rooted *rooted = static_cast<const Rooted *>(rank->arg);
    weirt_comm comm;
    perf_nccl *nccl = nullptr;
    if (weirt_comm_open(rank, 0, &comm)) {
        perf_rank mine = {};
        mine.rank = rank->rank;
        mine.ranks = rank->size;
        mine.bootstrap = comm.boot;
        mine.comm = comm.comm;
        WEIRT_OK(rank, perf_nccl_open(&mine, nullptr, rooted->library, &rooted->settings, weirt_timeout_ms(), &nccl));
        for (const bool gathers : { true, false }) {
            uint16_t data[2][80] = {};
            weir_collective_request request = {};
            request.kind = gathers ? WEIR_GATHER : WEIR_SCATTER;
            request.count = gathers ? 40 : 24;
            request.dtype = WEIR_F16;
            request.root = 1;
            request.send = data[0];
            request.recv = data[1];
            WEIRT_STATUS(rank, rooted->status, nccl != nullptr ? perf_nccl_call(nccl, &request, nullptr) : WEIR_OK);
            weirt_expect_text(rank, __FILE__, __LINE__, mine.error,
                              rooted->status == WEIR_OK ? ""
                              : gathers ? "the NCCL library has no ncclGather, which --compare nccl-zero"
                                        : "the NCCL library has no ncclScatter, which --compare nccl-zero");
        }
        weirt_barrier(rank);
        perf_nccl_close(nccl);
    }
    weirt_comm_close(&comm);
}

// How often the functions were called: both, sends, receives.
std::vector<unsigned> count_rooted(const Rooted &rooted)
{
    setenv("FAKE_NCCL", "meet", 1);
    weirt_ranks_run(&weirt_stages[0], 2, calls_root, &rooted, sizeof rooted);
    unsetenv("FAKE_NCCL");
    auto *count = found<unsigned(const char *)>("fake_nccl_count", rooted.library);
    EXPECT_NE(count, nullptr);
    std::vector<unsigned> counts;
    for (const char *call : { "Gather 40, type 6, root 1", "Scatter 24, type 6, root 1", "Send 40, type 6, peer 1",
                              "Recv 40, type 6, peer 0", "Send 24, type 6, peer 0", "Recv 24, type 6, peer 1" }) {
        counts.push_back(count != nullptr ? count(call) : 99);
    }
    return counts;
}

// Both ranks call NCCL's functions, which have copy engines.
TEST(WeirPerfNccl, TheCtaPolicyZeroGathersAndScattersByNcclsFunctions)
{
    EXPECT_EQ(count_rooted({ WEIRT_FAKE_NCCL, { 0, true }, WEIR_OK }), (std::vector<unsigned>{ 2, 2, 0, 0, 0, 0 }));
}

// The root sends to and receives from itself, too.
TEST(WeirPerfNccl, OtherPoliciesGatherAndScatterAsFrameworksDo)
{
    EXPECT_EQ(count_rooted({ WEIRT_FAKE_NCCL, kOwn, WEIR_OK }), (std::vector<unsigned>{ 0, 0, 2, 1, 1, 2 }));
}

TEST(WeirPerfNccl, ALibraryWithoutThemIsNamed)
{
    EXPECT_EQ(count_rooted({ WEIRT_FAKE_NCCL_OLD, { 0, true }, WEIR_ERR_UNSUPPORTED }),
              (std::vector<unsigned>{ 0, 0, 0, 0, 0, 0 }));
}

} // namespace
