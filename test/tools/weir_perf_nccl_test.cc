// The meeting of weir-perf's ranks in NCCL, with fake_nccl.c: success, failure and timeout.
#include <gtest/gtest.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>

#include "test/harness/checks.h"
#include "test/harness/comm.h"
#include "tools/perf/nccl.h"

// Replace functions of other files of weir-perf.
weir_status perf_fail(perf_rank *rank, weir_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    (void)vsnprintf(rank->error, sizeof rank->error, format, list);
    va_end(list);
    return status;
}

bool perf_cuda_attach(const perf_cuda *) { return true; }

namespace {

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
        const weir_status status = perf_nccl_open(&mine, nullptr, WEIRT_FAKE_NCCL, meeting->timeout_ms, &nccl);
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

void run(const char *how, const Meeting &meeting)
{
    setenv("FAKE_NCCL", how, 1);
    weirt_ranks_run(&weirt_stages[0], 2, meets, &meeting, sizeof meeting);
    unsetenv("FAKE_NCCL");
    // Abandoned threads end and free their memory.
    void *library = dlopen(WEIRT_FAKE_NCCL, RTLD_NOW | RTLD_NOLOAD);
    ASSERT_NE(library, nullptr);
    reinterpret_cast<void (*)()>(dlsym(library, "fake_nccl_end"))();
    dlclose(library);
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

} // namespace
