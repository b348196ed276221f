// weir-mpi-program on two ranks of mpirun, with libweir-mpi.so in front of MPI; its settings, report and symbols.
#include <cstdio>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "test/harness/command.h"

namespace {

// In front of MPI, in a build tree or beside the folder of the programs.
std::string library()
{
    const std::string built = weirt_beside("../src/mpi/libweir-mpi.so");
    return built.empty() ? weirt_beside("../lib/libweir-mpi.so") : built;
}

const Variables on_cpu = { { "WEIR_MPI_DEVICE", "cpu:0" } };

// Two ranks. `settings` reach the ranks alone. The library is in front of
// MPI unless `bare`. Under sanitizers the program is linked with it.
Ended mpirun(const std::string &cases, const Variables &settings = on_cpu, bool bare = false,
             const std::string &program = "weir-mpi-program")
{
    std::string line = "-n 2 -x WEIR_CPU_THREADS=4";
    const std::string sanitizer = weirt_sanitizer();
    if (sanitizer == "thread") {
        line += " -x TSAN_OPTIONS=suppressions=" WEIRT_TSAN_SUPPRESSIONS;
    } else if (sanitizer == "address") {
        // MPI's own leaks have no names: it has unloaded its components by then.
        line += " -x ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1";
    } else if (!bare) {
        line += " -x LD_PRELOAD=" + library();
    }
    for (const auto &variable : settings) {
        line += " -x '" + variable.first + "=" + variable.second + "'";
    }
    return weirt_mpirun(line + " " + weirt_beside(program) + " " + cases,
                        { { "OMPI_MCA_pml", "ob1" }, { "OMPI_MCA_btl", "self,vader" } });
}

void expect_right(const Ended &ended, const std::string &cases)
{
    EXPECT_EQ(ended.status, 0) << ended.text;
    std::istringstream names(cases);
    for (std::string name; names >> name;) {
        EXPECT_TRUE(ended.has(name + ": right\n")) << name << "\n" << ended.text;
    }
}

// The numbers of a row of the report of rank 0: calls, bytes, and how the buffers went.
struct row {
    unsigned long long calls, bytes, one_shot, on_device, by_host, by_mpi;
};

row row_of(const Ended &ended, const std::string &call)
{
    row out = {};
    const size_t at = ended.text.find("rank 0: " + call + " ");
    if (at == std::string::npos ||
        sscanf(ended.text.c_str() + at, "rank 0: %*s %llu %llu %llu %llu %llu %llu", &out.calls, &out.bytes,
               &out.one_shot, &out.on_device, &out.by_host, &out.by_mpi) != 6) {
        ADD_FAILURE() << "no row " << call << " in\n" << ended.text;
    }
    return out;
}

class MpiProgram : public ::testing::Test {
protected:
    // The thread sanitizer runs cases where threads of the program, or of a kernel and the program, have work at once.
    [[nodiscard]] virtual bool has_threads() const { return false; }
    void SetUp() override
    {
        if (weirt_sanitizer() == std::string("thread") && !has_threads()) {
            GTEST_SKIP() << "no threads of the case have work at once";
        }
        if (library().empty()) {
            GTEST_SKIP() << "there is no libweir-mpi.so";
        }
        if (weirt_command("mpirun --version").status != 0) {
            GTEST_SKIP() << "mpirun does not run here; install openmpi-bin";
        }
    }
};

class MpiCase : public MpiProgram, public ::testing::WithParamInterface<const char *> {
protected:
    [[nodiscard]] bool has_threads() const override
    {
        const std::set<std::string> names = { "threads", "isend_trees", "request_freed", "forks", "unfinished" };
        return names.count(GetParam()) != 0;
    }
};

// All memory counts as the device's.
TEST_P(MpiCase, IsRight)
{
    const Ended ended = mpirun(GetParam());
    expect_right(ended, GetParam());
}

// The buffers are GPU memory.
class MpiGpuCase : public MpiCase {
protected:
    void SetUp() override
    {
        uint32_t gpus = 0;
        if (weir_device_count("gpu", &gpus) != WEIR_OK || gpus == 0) {
            GTEST_SKIP() << "there is no GPU";
        }
        MpiCase::SetUp();
    }
};

TEST_P(MpiGpuCase, IsRight)
{
    const Ended ended = mpirun(GetParam(), { { "WEIRT_MPI_GPU", "1" } });
    expect_right(ended, GetParam());
}

const char *const cases[] = {
    "pack_golden",
    "pack_boxes",
    "pack_trees",
    "pack_alignments",
    "pack_positions",
    "pack_other_combiners",
    "pack_gaps",
    "pack_errors",
    "pack_types_freed",
    "pack_zero_sizes",
    "send_trees",
    "send_large",
    "sendrecv",
    "recv_shorter",
    "recv_truncated",
    "probe",
    "proc_null",
    "to_itself",
    "send_zero_sizes",
    "not_wrapped",
    "isend_trees",
    "irecv_unpacked_at_completion",
    "request_types_freed",
    "request_handles_again",
    "persistent",
    "persistent_type_freed",
    "request_freed",
    "request_cancelled",
    "requests_mixed",
    "threads",
    "error_handlers",
    "forks",
    "unfinished",
};
INSTANTIATE_TEST_SUITE_P(Mpirun, MpiCase, ::testing::ValuesIn(cases),
                         [](const auto &info) { return std::string(info.param); });
INSTANTIATE_TEST_SUITE_P(Mpirun, MpiGpuCase, ::testing::ValuesIn(cases),
                         [](const auto &info) { return std::string(info.param); });

// Without a GPU all memory is the host's, and MPI does everything. Nothing is logged.
TEST_F(MpiProgram, HostMemoryIsLeftToMpi)
{
    const std::string cases = "pack_positions sendrecv persistent";
    const Ended ended = mpirun(cases, { { "WEIR_MPI", "report" }, { "CUDA_VISIBLE_DEVICES", "" } });
    expect_right(ended, cases);
    const row packs = row_of(ended, "MPI_Pack");
    EXPECT_EQ(packs.calls, 3u);
    EXPECT_EQ(packs.by_mpi, 3u);
    const Ended quiet = mpirun("pack_other_combiners", { { "CUDA_VISIBLE_DEVICES", "" } });
    expect_right(quiet, "pack_other_combiners");
    EXPECT_FALSE(quiet.has("weir")) << quiet.text;
}

TEST_F(MpiProgram, OffLeavesEveryCallToMpi)
{
    const std::string cases = "pack_positions sendrecv requests_mixed request_cancelled";
    const Ended ended = mpirun(cases, { { "WEIR_MPI", "off" }, { "WEIR_MPI_DEVICE", "cpu:0" } });
    expect_right(ended, cases);
    EXPECT_FALSE(ended.has("weir-mpi:")) << ended.text;
}

TEST_F(MpiProgram, ReportHasCallsBytesAndWays)
{
    const std::string cases = "pack_positions persistent_type_freed";
    const Ended ended = mpirun(cases, { { "WEIR_MPI", "report" }, { "WEIR_MPI_DEVICE", "cpu:0" } });
    expect_right(ended, cases);
    for (const char *call : { "MPI_Pack", "MPI_Unpack" }) {
        const row row = row_of(ended, call);
        EXPECT_EQ(row.calls, 3u);
        EXPECT_EQ(row.bytes, 24u + 8u + 9u);
        EXPECT_EQ(row.one_shot + row.on_device, 3u) << ended.text;
        EXPECT_EQ(row.by_host + row.by_mpi, 0u) << ended.text;
    }
    const row sends = row_of(ended, "MPI_Send_init"); // one request, started three times
    EXPECT_EQ(sends.calls, 1u) << ended.text;
    EXPECT_EQ(sends.bytes, 3u * 15u) << ended.text;
    EXPECT_EQ(sends.one_shot, 3u) << ended.text;
    EXPECT_EQ(ended.count("rank 1: MPI_Recv_init "), 1u) << ended.text;
    EXPECT_EQ(ended.count("setting WEIR_MPI=report"), 2u) << ended.text;
    EXPECT_FALSE(ended.has("reason:")) << ended.text;
}

// Each rank logs the reason once, and the report counts it.
TEST_F(MpiProgram, UnknownTypesGoThroughTheHost)
{
    const std::string why = "weir does not know the datatype";
    const Ended ended = mpirun("pack_other_combiners", { { "WEIR_MPI", "report" }, { "WEIR_MPI_DEVICE", "cpu:0" } });
    expect_right(ended, "pack_other_combiners");
    EXPECT_EQ(ended.count(": " + why), 2u) << ended.text;
    EXPECT_EQ(ended.count("x " + why), 2u) << ended.text;
    EXPECT_GT(row_of(ended, "MPI_Pack").by_host + row_of(ended, "MPI_Pack").by_mpi, 0u) << ended.text;
}

// A message that an int cannot count is one item of runs of bytes; here with a smaller limit.
TEST_F(MpiProgram, LongMessagesAreRuns)
{
    const std::string cases = "send_large sendrecv recv_shorter recv_truncated probe to_itself isend_trees "
                              "persistent_type_freed request_freed request_cancelled";
    const Ended ended =
        mpirun(cases, { { "WEIR_MPI", "report" }, { "WEIR_MPI_DEVICE", "cpu:0" }, { "WEIR_MPI_RUN", "7" } });
    expect_right(ended, cases);
    EXPECT_GT(row_of(ended, "MPI_Isend").one_shot, 100u) << ended.text;
    EXPECT_EQ(ended.count("allocations left: 0\n"), 2u) << ended.text;
}

// An MPI library that takes memory of devices sends packed bytes from there, and receives them there.
TEST_F(MpiProgram, MessagesStayOnTheDeviceIfMpiTakesIt)
{
    const std::string cases = "send_trees sendrecv recv_shorter recv_truncated probe to_itself isend_trees "
                              "irecv_unpacked_at_completion persistent request_cancelled";
    Variables settings = { { "WEIR_MPI", "report" }, { "WEIR_MPI_DEVICE", "cpu:0" } };
    for (const bool takes : { false, true }) {
        if (takes) {
            settings["WEIRT_MPI_TAKES_DEVICES"] = "1";
        }
        const Ended ended = mpirun(cases, settings);
        expect_right(ended, cases);
        for (const char *call : { "MPI_Send", "MPI_Recv", "MPI_Isend", "MPI_Sendrecv" }) {
            const row row = row_of(ended, call);
            EXPECT_GT(takes ? row.on_device : row.one_shot, 0u) << call << "\n" << ended.text;
            EXPECT_EQ(takes ? row.one_shot : row.on_device, 0u) << call << "\n" << ended.text;
        }
        EXPECT_EQ(ended.count("allocations left: 0\n"), 2u) << ended.text;
    }
}

TEST_F(MpiProgram, DeviceThatIsNotThere)
{
    for (const char *device : { "gpu:77", "abacus", "a name that no device can have" }) {
        const Ended ended = mpirun("pack_positions", { { "WEIR_MPI_DEVICE", device } });
        expect_right(ended, "pack_positions");
        EXPECT_EQ(ended.count("weir-mpi: rank 0: "), 1u) << ended.text;
        EXPECT_EQ(ended.count("weir-mpi: rank 1: "), 1u) << ended.text;
    }
}

TEST_F(MpiProgram, WrongSettingIsLoggedOnce)
{
    const std::vector<std::pair<std::string, std::string>> settings = {
        { "WEIR_MPI", "maybe" },       { "WEIR_MPI_RUN", "0" },       { "WEIR_MPI_RUN", "1073741825" },
        { "WEIR_MPI_FAIL", "each:1" }, { "WEIR_MPI_FAIL", "alloc:" }, { "WEIR_MPI_FAIL", "each-device:1x" },
    };
    for (const auto &[name, value] : settings) {
        const Ended ended = mpirun("pack_positions", { { name, value } });
        expect_right(ended, "pack_positions");
        EXPECT_EQ(ended.count(name + "=" + value + " is not understood"), 2u) << ended.text;
    }
}

// One operation fails in each rank, and MPI does the rest.
TEST_F(MpiProgram, OneFailureLeavesTheWorkToMpi)
{
    const std::string cases = "pack_positions send_zero_sizes sendrecv persistent_type_freed request_cancelled";
    for (const char *fail : { "open:1", "alloc:5", "device:1", "device:5" }) {
        SCOPED_TRACE(fail);
        const Ended ended =
            mpirun(cases, { { "WEIR_MPI", "report" }, { "WEIR_MPI_FAIL", fail }, { "WEIR_MPI_DEVICE", "cpu:0" } });
        expect_right(ended, cases);
        EXPECT_EQ(ended.count("WEIR_MPI_FAIL: 1\n"), 2u) << ended.text;
    }
}

// The n-th operation of a kind fails in each wrapped call.
class MpiFailure : public MpiProgram, public ::testing::WithParamInterface<std::tuple<const char *, int>> {};

TEST_P(MpiFailure, OfEachCallIsMadeGood)
{
    const std::string fail =
        std::string("each-") + std::get<0>(GetParam()) + ":" + std::to_string(std::get<1>(GetParam()));
    const std::string cases =
        "pack_positions pack_other_combiners pack_gaps send_zero_sizes recv_shorter to_itself isend_trees "
        "irecv_unpacked_at_completion persistent_type_freed request_freed request_cancelled requests_mixed";
    const Ended ended =
        mpirun(cases, { { "WEIR_MPI", "report" }, { "WEIR_MPI_FAIL", fail }, { "WEIR_MPI_DEVICE", "cpu:0" } });
    expect_right(ended, cases);
    EXPECT_EQ(ended.count("WEIR_MPI_FAIL: "), 2u) << ended.text;
    EXPECT_LT(ended.count("WEIR_MPI_FAIL: 0\n"), 2u) << ended.text;
    EXPECT_EQ(ended.count("allocations left: 0\n"), 2u) << ended.text;
}

INSTANTIATE_TEST_SUITE_P(Mpirun, MpiFailure,
                         ::testing::Combine(::testing::Values("alloc", "device"), ::testing::Range(1, 8)),
                         [](const auto &info) {
                             return std::get<0>(info.param) + std::string("_") +
                                    std::to_string(std::get<1>(info.param));
                         });

// The n-th allocation or device operation of weir itself fails, for n = 1 and on.
class MpiInside : public MpiProgram, public ::testing::WithParamInterface<const char *> {};

TEST_P(MpiInside, FailuresOfWeirAreMadeGood)
{
    if (weirt_beside("weir-mpi-inside").empty()) {
        GTEST_SKIP() << "there is no weir-mpi-inside";
    }
    const std::string cases = "pack_positions pack_other_combiners recv_shorter to_itself irecv_unpacked_at_completion "
                              "persistent_type_freed request_cancelled requests_mixed";
    const Ended ended =
        mpirun(cases, { { "WEIRT_FAIL", GetParam() }, { "WEIR_MPI", "report" }, { "WEIR_MPI_DEVICE", "cpu:0" } }, true,
               "weir-mpi-inside");
    expect_right(ended, cases);
    EXPECT_EQ(ended.count("allocations left: 0\n"), 2u) << ended.text;
}

INSTANTIATE_TEST_SUITE_P(Mpirun, MpiInside, ::testing::Values("alloc", "device"),
                         [](const auto &info) { return std::string(info.param); });

// Neither memory of the library nor a stage, although requests are not completed.
TEST_F(MpiProgram, NothingIsLeftAfterFinalize)
{
    const std::string name = "unfinished";
    const Ended ended = mpirun(name, { { "WEIR_MPI", "report" }, { "WEIR_MPI_DEVICE", "cpu:0" } });
    expect_right(ended, name);
    EXPECT_EQ(ended.count("unfinished: with a stage\n"), 2u) << ended.text;
    EXPECT_EQ(ended.count("allocations left: 0\n"), 2u) << ended.text;
}

TEST_F(MpiProgram, ExportsTheWrappedCallsAlone)
{
    const Ended ended = weirt_command("nm -D --defined-only --format=posix " + library());
    ASSERT_EQ(ended.status, 0) << ended.text;
    std::istringstream lines(ended.text);
    std::set<std::string> found;
    for (std::string line; std::getline(lines, line);) {
        found.insert(line.substr(0, line.find(' ')));
    }
    const std::set<std::string> wrapped = { "MPI_Init",        "MPI_Init_thread",
                                            "MPI_Finalize",    "MPI_Type_commit",
                                            "MPI_Type_free",   "MPI_Pack",
                                            "MPI_Unpack",      "MPI_Send",
                                            "MPI_Ssend",       "MPI_Isend",
                                            "MPI_Recv",        "MPI_Irecv",
                                            "MPI_Sendrecv",    "MPI_Send_init",
                                            "MPI_Recv_init",   "MPI_Start",
                                            "MPI_Startall",    "MPI_Wait",
                                            "MPI_Waitall",     "MPI_Waitany",
                                            "MPI_Waitsome",    "MPI_Test",
                                            "MPI_Testall",     "MPI_Testany",
                                            "MPI_Testsome",    "MPI_Request_get_status",
                                            "MPI_Request_free" };
    EXPECT_EQ(found, wrapped);
}

TEST_F(MpiProgram, CallBeforeInitEndsTheProgram)
{
    const Ended ended = mpirun("before_init");
    EXPECT_NE(ended.status, 0);
    EXPECT_TRUE(ended.has("before MPI_INIT")) << ended.text;
    EXPECT_FALSE(ended.has("right")) << ended.text;
}

TEST_F(MpiProgram, CallAfterFinalizeEndsTheProgram)
{
    const Ended ended = mpirun("after_finalize");
    EXPECT_NE(ended.status, 0);
    EXPECT_TRUE(ended.has("after MPI_FINALIZE")) << ended.text;
    EXPECT_FALSE(ended.has("right")) << ended.text;
}

// A rank that ends early ends the job, with the library as without it. Open MPI sometimes loses its own text about the
// end, so the status counts.
class MpiEarlyEnd : public MpiProgram, public ::testing::WithParamInterface<const char *> {};

TEST_P(MpiEarlyEnd, EndsTheJob)
{
    const Ended bare = mpirun(GetParam(), {}, true);
    const Ended ended = mpirun(GetParam());
    EXPECT_NE(ended.status, 0);
    EXPECT_EQ(ended.status, bare.status) << ended.text << bare.text;
    EXPECT_FALSE(ended.has("right") || ended.has("has sent a message") || ended.has("weir-mpi:")) << ended.text;
    EXPECT_LT(ended.ms, weirt_timeout_ms());
}

INSTANTIATE_TEST_SUITE_P(Mpirun, MpiEarlyEnd, ::testing::Values("killed", "exits", "aborts"),
                         [](const auto &info) { return std::string(info.param); });

} // namespace
