// Launched programs: detection of the launcher, the meeting of ranks, and error texts for missing settings. PMIx is
// fake_pmix.c here; programs_test.cc uses real launchers.
#include <cstdio>
#include <fstream>

#include "test/launch/launch.h"

namespace {

const Variables torch = { { "RANK", "1" },
                          { "WORLD_SIZE", "4" },
                          { "LOCAL_RANK", "1" },
                          { "LOCAL_WORLD_SIZE", "2" },
                          { "MASTER_ADDR", "127.0.0.1" },
                          { "MASTER_PORT", "29500" } };
const Variables open_mpi = { { "OMPI_COMM_WORLD_RANK", "2" },
                             { "OMPI_COMM_WORLD_SIZE", "5" },
                             { "OMPI_COMM_WORLD_LOCAL_RANK", "0" },
                             { "OMPI_COMM_WORLD_LOCAL_SIZE", "3" } };
const Variables slurm = { { "SLURM_PROCID", "3" }, { "SLURM_STEP_NUM_TASKS", "6" }, { "SLURM_LOCALID", "2" } };

void set(const Variables &variables)
{
    for (const auto &variable : variables) {
        setenv(variable.first.c_str(), variable.second.c_str(), 1);
    }
}

// Both sets of variables; the first one wins.
Variables with(const Variables &variables, const Variables &more)
{
    Variables all = variables;
    all.insert(more.begin(), more.end());
    return all;
}

class Launcher : public LaunchTest {
protected:
    // The result of weir_launcher_get with only these variables, or the error text.
    static std::string get(const Variables &variables)
    {
        set(variables);
        weir_launcher_info info = {};
        const weir_status status = weir_launcher_get(&info);
        for (const auto &variable : variables) {
            unsetenv(variable.first.c_str());
        }
        if (status != WEIR_OK) {
            return std::string(weir_status_name(status)) + ": " + weir_last_error();
        }
        return std::to_string(info.rank) + "/" + std::to_string(info.size) + " " + std::to_string(info.local_rank) +
               "/" + std::to_string(info.local_size) + " " + info.source;
    }

    static void expect_error(const Variables &variables, const char *part)
    {
        const std::string text = get(variables);
        EXPECT_EQ(text.rfind("WEIR_ERR_ENV: environment: ", 0), 0u) << text;
        EXPECT_NE(text.find(part), std::string::npos) << text;
    }

    static Outcome create()
    {
        const weir_bootstrap_opts opts = weirt_opts(weirt_timeout_ms());
        weir_bootstrap *boot = nullptr;
        const Outcome o = weirt_outcome([&] { return weir_bootstrap_create_launched(&opts, &boot); });
        weir_bootstrap_destroy(boot);
        return o;
    }

    static Outcome create(const Variables &variables)
    {
        set(variables);
        const Outcome o = create();
        for (const auto &variable : variables) {
            unsetenv(variable.first.c_str());
        }
        return o;
    }

    // Runs each rank in a process with its own variables.
    static void expect_job(uint32_t ranks, const std::function<Variables(uint32_t)> &variables)
    {
        std::vector<pid_t> pids;
        for (uint32_t i = 0; i < ranks; i++) {
            pids.push_back(weirt_fork(i, [&](uint32_t rank) { _exit(run_rank(rank, ranks, variables(rank))); }));
        }
        for (uint32_t i = 0; i < ranks; i++) {
            EXPECT_EQ(weirt_wait(pids[i]), 0) << "rank " << i;
        }
    }

private:
    static int run_rank(uint32_t rank, uint32_t ranks, const Variables &variables)
    {
        set(variables);
        const weir_bootstrap_opts opts = weirt_opts(weirt_timeout_ms());
        weir_bootstrap *boot = nullptr;
        if (weir_bootstrap_create_launched(&opts, &boot) != WEIR_OK) {
            (void)fprintf(stderr, "rank %u: %s\n", rank, weir_last_error());
            return 1;
        }
        std::vector<uint32_t> table(ranks);
        bool good = weir_bootstrap_rank(boot) == rank && weir_bootstrap_size(boot) == ranks;
        table[rank] = 50 + rank;
        good = good && weir_bootstrap_allgather(boot, nullptr, table.data(), sizeof table[0]) == WEIR_OK;
        for (uint32_t i = 0; good && i < ranks; i++) {
            good = table[i] == 50 + i;
        }
        weir_bootstrap_destroy(boot);
        return good ? 0 : 2;
    }
};

TEST_F(Launcher, EachIsSeen)
{
    EXPECT_EQ(get({}), "0/0 0/0 none");
    EXPECT_EQ(get({ { "WEIR_RANK", "0" }, { "WEIR_SIZE", "65536" } }), "0/65536 0/0 WEIR_RANK and WEIR_SIZE");
    EXPECT_EQ(get(torch), "1/4 1/2 RANK and WORLD_SIZE");
    EXPECT_EQ(get(with(torch, { { "TORCHELASTIC_RUN_ID", "x" } })), "1/4 1/2 torchrun");
    EXPECT_EQ(get(open_mpi), "2/5 0/3 Open MPI");
    EXPECT_EQ(get(slurm), "3/6 2/0 Slurm");
    EXPECT_EQ(weir_launcher_get(nullptr), WEIR_ERR_INVALID);
}

TEST_F(Launcher, TheFirstThatIsCompleteCounts)
{
    const Variables own = { { "WEIR_RANK", "7" }, { "WEIR_SIZE", "8" } };
    Variables all = with(with(torch, open_mpi), slurm);
    EXPECT_EQ(get(with(own, all)), "7/8 0/0 WEIR_RANK and WEIR_SIZE");
    EXPECT_EQ(get(all), "1/4 1/2 RANK and WORLD_SIZE");
    all["WORLD_SIZE"] = "";
    EXPECT_EQ(get(all), "2/5 0/3 Open MPI");
    all.erase("OMPI_COMM_WORLD_SIZE");
    EXPECT_EQ(get(all), "3/6 2/0 Slurm");
    all.erase("SLURM_STEP_NUM_TASKS");
    EXPECT_EQ(get(all), "0/0 0/0 none");
}

TEST_F(Launcher, LocalRanksAreOptional)
{
    EXPECT_EQ(get({ { "RANK", "0" }, { "WORLD_SIZE", "1" }, { "MASTER_ADDR", "x" } }), "0/1 0/0 RANK and WORLD_SIZE");
    EXPECT_EQ(get({ { "SLURM_PROCID", "0" }, { "SLURM_STEP_NUM_TASKS", "1" } }), "0/1 0/0 Slurm");
}

TEST_F(Launcher, MalformedVariablesAreNamed)
{
    for (const char *bad : { "x", "-1", "4", " 1", "1.5", "18446744073709551617" }) {
        expect_error(with({ { "RANK", bad } }, torch), (std::string("RANK=") + bad).c_str());
        expect_error(with({ { "OMPI_COMM_WORLD_RANK", std::string(bad) + "9" } }, open_mpi), "OMPI_COMM_WORLD_RANK=");
        expect_error(with({ { "SLURM_PROCID", std::string(bad) + "9" } }, slurm), "SLURM_PROCID=");
    }
    expect_error(with({ { "WORLD_SIZE", "0" } }, torch), "WORLD_SIZE=0");
    expect_error(with({ { "WORLD_SIZE", "65537" } }, torch), "WORLD_SIZE=65537");
    expect_error(with({ { "LOCAL_RANK", "2" } }, torch), "LOCAL_RANK=2");
    expect_error(with({ { "LOCAL_WORLD_SIZE", "5" } }, torch), "LOCAL_WORLD_SIZE=5");
    expect_error({ { "WEIR_RANK", "1" } }, "WEIR_RANK is set, but WEIR_SIZE is not");
    expect_error({ { "WEIR_SIZE", "1" } }, "WEIR_SIZE is set, but WEIR_RANK is not");
    expect_error({ { "WEIR_RANK", "2" }, { "WEIR_SIZE", "2" } }, "WEIR_RANK=2");
    const Outcome o = create(with({ { "RANK", "x" } }, torch));
    EXPECT_EQ(o.status, WEIR_ERR_ENV);
    EXPECT_TRUE(weirt_has(o, "RANK=x")) << o.text;
}

TEST_F(Launcher, WithoutOneTheErrorSaysWhatWasLookedFor)
{
    const Outcome o = create();
    EXPECT_EQ(o.status, WEIR_ERR_ENV);
    for (const char *part :
         { "WEIR_RANK", "WEIR_SIZE", "PMIX_RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "mpirun -n N",
           "srun --mpi=pmix -n N", "torchrun", "WEIR_RENDEZVOUS_FILE" }) {
        EXPECT_TRUE(weirt_has(o, part)) << part << ": " << o.text;
    }
    weir_bootstrap *boot = nullptr;
    weir_bootstrap_opts opts = {};
    EXPECT_EQ(weir_bootstrap_create_launched(nullptr, nullptr), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_bootstrap_create_launched(&opts, &boot), WEIR_ERR_INVALID);
}

TEST_F(Launcher, WithoutAMeetingPointTheErrorNamesTheWays)
{
    for (const Variables &variables : { Variables{ { "WEIR_RANK", "1" }, { "WEIR_SIZE", "2" } }, open_mpi, slurm }) {
        const Outcome o = create(variables);
        EXPECT_EQ(o.status, WEIR_ERR_ENV);
        for (const char *part : { "WEIR_UNIQUE_ID", "WEIR_RENDEZVOUS_FILE", "MASTER_ADDR", "srun --mpi=pmix" }) {
            EXPECT_TRUE(weirt_has(o, part)) << part << ": " << o.text;
        }
    }
}

TEST_F(Launcher, MeetsAtAUniqueId)
{
    const weir_unique_id id = weirt_new_id();
    weir_unique_id_discard(&id);
    expect_job(3, [&](uint32_t rank) {
        return Variables{ { "WEIR_UNIQUE_ID", id.text },
                          { "WEIR_RANK", std::to_string(rank) },
                          { "WEIR_SIZE", "3" },
                          { "WEIR_RENDEZVOUS_FILE", "/nonexistent/file" } };
    });
}

TEST_F(Launcher, MeetsThroughAFile)
{
    const auto job = [&](const char *rank_name, const char *size_name) {
        expect_job(3, [&](uint32_t rank) {
            return Variables{ { "WEIR_RENDEZVOUS_FILE", path() },
                              { rank_name, std::to_string(rank) },
                              { size_name, "3" },
                              { "MASTER_ADDR", "192.0.2.1" } };
        });
        EXPECT_NE(access(path().c_str(), F_OK), 0);
    };
    job("WEIR_RANK", "WEIR_SIZE");
    job("RANK", "WORLD_SIZE");
    job("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
    job("SLURM_PROCID", "SLURM_STEP_NUM_TASKS");
}

// Variables as torchrun sets them, by address and by name; the port follows torch's port or is given.
TEST_F(Launcher, MeetsAtTheMasterAddress)
{
    for (const char *host : { "127.0.0.1", "localhost" }) {
        const std::string address = weirt_free_address();
        const int port = atoi(address.c_str() + address.rfind(':') + 1);
        expect_job(2, [&](uint32_t rank) {
            return Variables{
                { "TORCHELASTIC_RUN_ID", "none" },          { "RANK", std::to_string(rank) }, { "WORLD_SIZE", "2" },
                { "LOCAL_RANK", std::to_string(rank) },     { "LOCAL_WORLD_SIZE", "2" },      { "MASTER_ADDR", host },
                { "MASTER_PORT", std::to_string(port - 1) }
            };
        });
        expect_job(2, [&](uint32_t rank) {
            return Variables{ { "SLURM_PROCID", std::to_string(rank) },
                              { "SLURM_STEP_NUM_TASKS", "2" },
                              { "MASTER_ADDR", host },
                              { "WEIR_PORT", std::to_string(port) },
                              { "WEIR_KEY", "k" } };
        });
    }
}

TEST_F(Launcher, MasterAddressThatCannotServeIsRefused)
{
    Outcome o = create(with({ { "MASTER_ADDR", "192.0.2.1" } }, torch));
    EXPECT_EQ(o.status, WEIR_ERR_AUTH);
    EXPECT_TRUE(weirt_has(o, "192.0.2.1:29501") && weirt_has(o, "WEIR_KEY")) << o.text;
    o = create(with({ { "MASTER_ADDR", "localhost" } }, torch));
    EXPECT_EQ(o.status, WEIR_ERR_SYSTEM);
    EXPECT_TRUE(weirt_has(o, "MASTER_ADDR=localhost is the loopback")) << o.text;
    for (const char *bad : { "65535", "0", "x" }) {
        o = create(with({ { "MASTER_PORT", bad } }, torch));
        EXPECT_EQ(o.status, WEIR_ERR_ENV);
        EXPECT_TRUE(weirt_has(o, (std::string("MASTER_PORT=") + bad).c_str())) << o.text;
    }
    o = create(with({ { "MASTER_PORT", "" } }, torch));
    EXPECT_EQ(o.status, WEIR_ERR_ENV);
    EXPECT_TRUE(weirt_has(o, "MASTER_PORT is not set")) << o.text;
}

class LauncherPmix : public LaunchTest {
protected:
    void SetUp() override
    {
        LaunchTest::SetUp();
        probe_ = weirt_beside("weir-launch-probe");
        library_ = weirt_beside("fake_pmix");
        if (probe_.empty() || library_.empty()) {
            GTEST_SKIP() << "weir-launch-probe and fake_pmix are not beside this program";
        }
    }

    // Runs the probe, which loads fake_pmix.
    Ended run(const std::string &arguments, const Variables &more, uint32_t rank = 0, uint32_t size = 1) const
    {
        return weirt_command(probe_ + " " + arguments, with(more, { { "PMIX_NAMESPACE", "fake" },
                                                                    { "PMIX_RANK", std::to_string(rank) },
                                                                    { "LD_LIBRARY_PATH", library_ },
                                                                    { "WEIR_TEST_PMIX_DIR", folder() },
                                                                    { "WEIR_TEST_PMIX_SIZE", std::to_string(size) } }));
    }

    void expect_failure(const std::string &fault, const char *status, const char *part) const
    {
        const Ended ended = run("", { { "WEIR_TEST_PMIX", fault } });
        EXPECT_EQ(ended.status, 1) << ended.text;
        EXPECT_EQ(ended.text.rfind(status, 0), 0u) << fault << ": " << ended.text;
        EXPECT_TRUE(ended.has(part)) << fault << ": " << ended.text;
    }

    std::string library_;

private:
    std::string probe_;
};

TEST_F(LauncherPmix, RanksMeetAgainAndAgain)
{
    std::vector<Ended> ended(3);
    weirt_threads(3, [&](uint32_t rank) { ended[rank] = run("times 2", {}, rank, 3); });
    for (uint32_t rank = 0; rank < 3; rank++) {
        const std::string r = std::to_string(rank);
        EXPECT_EQ(ended[rank].status, 0) << ended[rank].text;
        EXPECT_EQ(ended[rank].count("rank " + r + " of 3 by PMIx, " + r + " of 3 here: right"), 2u) << ended[rank].text;
    }
}

TEST_F(LauncherPmix, PlaceOnTheHostIsOptional)
{
    for (const char *fault :
         { "pmix.lrank:", "pmix.local.size:", "pmix.lrank:type", "pmix.lrank:1", "pmix.local.size:2" }) {
        const Ended ended = run("", { { "WEIR_TEST_PMIX", fault } });
        EXPECT_EQ(ended.status, 0) << ended.text;
        EXPECT_TRUE(ended.has("rank 0 of 1 by PMIx, 0 of 0 here: right")) << fault << ": " << ended.text;
    }
}

TEST_F(LauncherPmix, FailuresAreNamed)
{
    expect_failure("PMIx_Init:-25", "WEIR_ERR_SYSTEM", "PMIx_Init: FAKE-ERROR (-25)");
    expect_failure("PMIx_Get:-1", "WEIR_ERR_SYSTEM", "number of ranks");
    expect_failure("pmix.job.size:", "WEIR_ERR_SYSTEM", "number of ranks");
    expect_failure("pmix.job.size:type", "WEIR_ERR_SYSTEM", "number of ranks");
    expect_failure("pmix.job.size:0", "WEIR_ERR_CORRUPT", "rank 0 of 0");
    expect_failure("pmix.job.size:65537", "WEIR_ERR_CORRUPT", "rank 0 of 65537");
    expect_failure("PMIx_Put:-5", "WEIR_ERR_SYSTEM", "FAKE-ERROR (-5)");
    expect_failure("PMIx_Commit:-6", "WEIR_ERR_SYSTEM", "FAKE-ERROR (-6)");
    expect_failure("PMIx_Fence:-7", "WEIR_ERR_SYSTEM", "PMIx_Fence: FAKE-ERROR (-7)");
}

// Rank 1 gets a malformed unique id; rank 0 has passed the fence before.
TEST_F(LauncherPmix, BadIdsAreRefused)
{
    const struct {
        std::string id;
        const char *fault;
        const char *status;
        const char *part;
    } cases[] = {
        { "x", "weir.id.0:type", "WEIR_ERR_CORRUPT", "weir.id.0 in PMIx is not a unique id" },
        { std::string(256, 'x'), "", "WEIR_ERR_CORRUPT", "weir.id.0 in PMIx is not a unique id" },
        { "x", "weir.id.0:", "WEIR_ERR_SYSTEM", "NOT-FOUND" },
        { "", "", "WEIR_ERR_REMOTE", "rank 0 could not create" },
        { "weir1:zz", "", "WEIR_ERR_INVALID", "unique id" },
    };
    std::ofstream(path("fence0.0")) << "";
    for (const auto &c : cases) {
        std::ofstream(path("weir.id.0.0")) << c.id;
        const Ended ended = run("", { { "WEIR_TEST_PMIX", c.fault } }, 1, 2);
        EXPECT_EQ(ended.text.rfind(c.status, 0), 0u) << ended.text;
        EXPECT_TRUE(ended.has(c.part)) << ended.text;
    }
}

TEST_F(LauncherPmix, RankZeroWithoutAnIdTellsTheOthers)
{
    std::vector<Ended> ended(2);
    weirt_threads(2, [&](uint32_t rank) {
        ended[rank] = run("", rank == 0 ? Variables{ { "WEIR_INTERFACE", "nosuch0" } } : Variables{}, rank, 2);
    });
    EXPECT_TRUE(ended[0].has("WEIR_ERR_INVALID") && ended[0].has("nosuch0")) << ended[0].text;
    EXPECT_TRUE(ended[1].has("WEIR_ERR_REMOTE") && ended[1].has("rank 0 could not create")) << ended[1].text;
}

// A server or a rank hangs: PMIx calls have no deadline, weir's have. Earlier calls need their time.
TEST_F(LauncherPmix, HangingCallsTimeOut)
{
    const uint32_t timeout_ms = 1000 * weirt_slow();
    for (const char *call : { "PMIx_Init", "PMIx_Get", "PMIx_Fence", "PMIx_Finalize" }) {
        const Ended ended = run("", { { "WEIR_TEST_PMIX", std::string(call) + ":hang" },
                                      { "WEIR_TIMEOUT_MS", std::to_string(timeout_ms) } });
        EXPECT_EQ(ended.status, 1) << ended.text;
        EXPECT_EQ(ended.text.rfind("WEIR_ERR_TIMEOUT", 0), 0u) << ended.text;
        EXPECT_TRUE(ended.has(std::string("timeout in ") + call)) << ended.text;
        // The call's own time: the loader of the process may wait for a disk.
        unsigned long call_ms = 0;
        ASSERT_EQ(std::sscanf(ended.text.c_str(), "WEIR_ERR_TIMEOUT after %lu ms", &call_ms), 1) << ended.text;
        EXPECT_GE(call_ms, timeout_ms) << "of " << ended.ms;
        EXPECT_LT(call_ms, timeout_ms + weirt_slack_ms()) << "of " << ended.ms;
    }
}

TEST_F(LauncherPmix, FileWinsOverTheExchange)
{
    const Ended ended = run("", { { "WEIR_RENDEZVOUS_FILE", path() }, { "WEIR_TEST_PMIX", "PMIx_Fence:hang" } });
    EXPECT_EQ(ended.status, 0) << ended.text;
    EXPECT_TRUE(ended.has("rank 0 of 1 by PMIx, 0 of 1 here: right")) << ended.text;
}

// Other variables give rank and size. The missing library is an error only when it is needed.
TEST_F(LauncherPmix, MissingLibrary)
{
    const std::string broken = path("libpmix.so.2");
    ASSERT_EQ(weirt_command("touch " + broken).status, 0);
    library_ = folder();
    const Variables mpi = { { "OMPI_COMM_WORLD_RANK", "0" }, { "OMPI_COMM_WORLD_SIZE", "1" } };
    Ended ended = run("get", {});
    EXPECT_EQ(ended.text.rfind("WEIR_ERR_UNSUPPORTED", 0), 0u) << ended.text;
    EXPECT_TRUE(ended.has("libpmix.so.2") && ended.has("install libpmix2")) << ended.text;
    ended = run("get", mpi);
    EXPECT_TRUE(ended.has("rank 0 of 1 by Open MPI")) << ended.text;
    ended = run("", mpi);
    EXPECT_EQ(ended.text.rfind("WEIR_ERR_ENV", 0), 0u) << ended.text;
    EXPECT_TRUE(ended.has("install libpmix2") && ended.has("WEIR_RENDEZVOUS_FILE")) << ended.text;
    ended = run("", with(mpi, { { "WEIR_RENDEZVOUS_FILE", path() } }));
    EXPECT_TRUE(ended.has("rank 0 of 1 by Open MPI, 0 of 0 here: right")) << ended.text;
}

// A torchrun inside srun passes on PMIX_RANK; the inner launcher's and the user's variables win.
TEST_F(LauncherPmix, InnerLaunchersWin)
{
    EXPECT_TRUE(run("get", torch, 3, 9).has("rank 3 of 9 by PMIx"));
    EXPECT_TRUE(run("get", with(torch, { { "TORCHELASTIC_RUN_ID", "x" } }), 3, 9).has("rank 1 of 4 by torchrun"));
    EXPECT_TRUE(run("get", { { "WEIR_RANK", "0" }, { "WEIR_SIZE", "1" } }, 3, 9).has("rank 0 of 1 by WEIR_RANK"));
    EXPECT_TRUE(run("get", { { "PMIX_NAMESPACE", "" } }, 3, 9).has("rank 0 of 0 by none"));
}

} // namespace
