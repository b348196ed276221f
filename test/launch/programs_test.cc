// Real launchers, if installed: mpirun of Open MPI. srun.sh does the same with Slurm.
#include "test/launch/launch.h"

#if __has_include(<pmix_common.h>)
#include <pmix_common.h>
#define HAVE_PMIX_HEADER 1
#endif

extern "C" {
#include "src/host/boot/pmix_abi.h"
}

namespace {

#ifdef HAVE_PMIX_HEADER
static_assert(sizeof(weiri_pmix_proc) == sizeof(pmix_proc_t), "");
static_assert(offsetof(weiri_pmix_proc, rank) == offsetof(pmix_proc_t, rank), "");
static_assert(sizeof(weiri_pmix_value) >= sizeof(pmix_value_t), "");
static_assert(offsetof(weiri_pmix_value, data) == offsetof(pmix_value_t, data), "");
static_assert(sizeof(weiri_pmix_value::type) == sizeof(pmix_value_t::type), "");
static_assert(offsetof(weiri_pmix_info, flags) == offsetof(pmix_info_t, flags), "");
static_assert(offsetof(weiri_pmix_info, value) == offsetof(pmix_info_t, value), "");
static_assert(static_cast<int>(WEIRI_PMIX_BOOL) == PMIX_BOOL && static_cast<int>(WEIRI_PMIX_STRING) == PMIX_STRING, "");
static_assert(static_cast<int>(WEIRI_PMIX_UINT16) == PMIX_UINT16, "");
static_assert(static_cast<int>(WEIRI_PMIX_UINT32) == PMIX_UINT32, "");
static_assert(WEIRI_PMIX_GLOBAL == PMIX_GLOBAL && PMIX_SUCCESS == 0, "");
static_assert(WEIRI_PMIX_RANK_WILDCARD == (PMIX_RANK_WILDCARD), "");
#endif

TEST(PmixAbi, IsThatOfTheHeader)
{
#ifdef HAVE_PMIX_HEADER
    EXPECT_STREQ(WEIRI_PMIX_JOB_SIZE, PMIX_JOB_SIZE);
    EXPECT_STREQ(WEIRI_PMIX_LOCAL_SIZE, PMIX_LOCAL_SIZE);
    EXPECT_STREQ(WEIRI_PMIX_LOCAL_RANK, PMIX_LOCAL_RANK);
    EXPECT_STREQ(WEIRI_PMIX_COLLECT_DATA, PMIX_COLLECT_DATA);
#else
    GTEST_SKIP() << "built without pmix_common.h; install libpmix-dev";
#endif
}

class Mpirun : public LaunchTest {
protected:
    void SetUp() override
    {
        LaunchTest::SetUp();
        if (weirt_sanitizer()[0] != '\0') {
            GTEST_SKIP() << "the launcher's library is not built with the sanitizer";
        }
        const Ended ended = mpirun(1, "true");
        if (ended.status != 0) {
            GTEST_SKIP() << "mpirun does not run here: " << ended.text.substr(0, 400);
        }
        if (mpirun(1, program("weir-launch-probe") + " get").has("install libpmix2")) {
            GTEST_SKIP() << "mpirun has its own PMIx, and libpmix.so.2 is not installed";
        }
    }

    static void expect_success(const std::string &tutorial, Variables variables = {})
    {
        variables["WEIR_CPU_THREADS"] = "1";
        const Ended ended = mpirun(2, tutorial, variables);
        EXPECT_EQ(ended.status, 0) << ended.text;
        EXPECT_EQ(ended.count("Succeed!\n"), 1u) << ended.text;
    }

    static void expect_tutorial(const char *name)
    {
        const std::string tutorial = weirt_tutorial(name);
        expect_success(tutorial);
        const Ended three = mpirun(3, tutorial);
        EXPECT_NE(three.status, 0);
        EXPECT_TRUE(three.has("This program has 2 ranks; PMIx started 3")) << three.text;
    }

    static Ended mpirun(uint32_t ranks, const std::string &command, const Variables &variables = {})
    {
        return weirt_mpirun("-n " + std::to_string(ranks) + " " + command, variables);
    }

    static std::string program(const std::string &name)
    {
        const std::string found = weirt_beside(name);
        EXPECT_NE(found, "") << name;
        return found;
    }
};

TEST_F(Mpirun, RanksMeetAgainAndAgain)
{
    const Ended ended = mpirun(4, program("weir-launch-probe") + " times 2");
    EXPECT_EQ(ended.status, 0) << ended.text;
    for (int rank = 0; rank < 4; rank++) {
        const std::string r = std::to_string(rank);
        EXPECT_EQ(ended.count("rank " + r + " of 4 by PMIx, " + r + " of 4 here: right\n"), 2u) << ended.text;
    }
}

TEST_F(Mpirun, FileIsAnotherWay)
{
    const Ended ended = mpirun(3, program("weir-launch-probe"), { { "WEIR_RENDEZVOUS_FILE", path() } });
    EXPECT_EQ(ended.status, 0) << ended.text;
    EXPECT_EQ(ended.count("of 3 by PMIx"), 3u) << ended.text;
    EXPECT_EQ(ended.count("here: right\n"), 3u) << ended.text;
    EXPECT_NE(access(path().c_str(), F_OK), 0);
}

// mpirun ends the job as soon as it sees the death; every rank that still reports an error names the dead rank.
TEST_F(Mpirun, KilledRankEndsTheOthers)
{
    const std::string probe = path("probe"); /* a name that no other test's ranks have */
    ASSERT_EQ(symlink(program("weir-launch-probe").c_str(), probe.c_str()), 0);
    const Ended ended = mpirun(4, probe + " kill 2");
    EXPECT_NE(ended.status, 0) << ended.text;
    EXPECT_LT(ended.ms, weirt_timeout_ms());
    EXPECT_FALSE(ended.has("right")) << ended.text;
    EXPECT_EQ(ended.count("WEIR_ERR_"), ended.count("rank 2 died\n")) << ended.text;
    const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
    Ended alive;
    do {
        alive = weirt_command("pgrep -f '^" + probe + " kill 2$'");
    } while (alive.status == 0 && weirt_now_ms() < end);
    EXPECT_NE(alive.status, 0) << alive.text;
}

// A missing rank: the others wait no longer than their timeout.
TEST_F(Mpirun, MissingRankEndsTheWait)
{
    const std::string probe = program("weir-launch-probe");
    const Ended ended = mpirun(1, probe + " : -n 1 sleep 60", { { "WEIR_TIMEOUT_MS", "200" } });
    EXPECT_NE(ended.status, 0) << ended.text;
    EXPECT_TRUE(ended.has("WEIR_ERR_TIMEOUT") && ended.has("timeout in PMIx_")) << ended.text;
    EXPECT_LT(ended.ms, weirt_timeout_ms());
}

TEST_F(Mpirun, Tutorial00TakesAnyNumberOfRanks)
{
    const std::string tutorial = weirt_tutorial("00-allreduce/allreduce");
    for (uint32_t ranks : { 1u, 3u }) {
        const Ended ended = mpirun(ranks, tutorial, { { "WEIR_CPU_THREADS", "1" } });
        EXPECT_EQ(ended.status, 0) << ended.text;
        EXPECT_EQ(ended.count("1000 sums over " + std::to_string(ranks) + " ranks are right\n"), ranks) << ended.text;
        EXPECT_EQ(ended.count("Succeed!\n"), 1u) << ended.text;
    }
}

TEST_F(Mpirun, Tutorial02TakesNoArguments) { expect_tutorial("02-bootstrap/gpu_ping_pong_mp"); }
TEST_F(Mpirun, Tutorial03TakesNoArguments) { expect_tutorial("03-memory-channel/bidir_memory_channel"); }

TEST_F(Mpirun, Tutorial04OverEachTransportOfAHost)
{
    const std::string tutorial = weirt_tutorial("04-port-channel/bidir_port_channel");
    expect_success(tutorial, { { "WEIR_TRANSPORT", "ipc" } });
    if (weirt_transport_missing("ofi").empty()) {
        expect_success(tutorial, { { "WEIR_TRANSPORT", "ofi" } });
    }
}

// Ranks that query the launcher do not disturb others that already meet.
TEST_F(Mpirun, RanksMayAskBeforeTheyMeet)
{
    for (int i = 0; i < 5; i++) {
        const Ended ended = mpirun(4, program("weir-launch-probe") + " ask");
        EXPECT_EQ(ended.status, 0) << ended.text;
        EXPECT_EQ(ended.count("here: right\n"), 4u) << ended.text;
    }
    const Ended asked = mpirun(3, program("weir-launch-probe") + " get");
    EXPECT_EQ(asked.status, 0) << asked.text;
    EXPECT_EQ(asked.count("of 3 by PMIx"), 3u) << asked.text;
}

} // namespace
