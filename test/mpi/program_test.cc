// weir-mpi-program under mpirun: each case on two ranks.
#include <gtest/gtest.h>

#include "test/harness/command.h"

namespace {

// Also works as root, and with more ranks than cores. `exported` reaches the ranks alone.
Ended mpirun(const std::string &arguments, const Variables &exported = {})
{
    std::string line = "mpirun --oversubscribe -n 2";
    for (const auto &variable : exported) {
        line += " -x '" + variable.first + "=" + variable.second + "'";
    }
    return weirt_command(line + " " + weirt_beside("weir-mpi-program") + " " + arguments,
                         { { "OMPI_ALLOW_RUN_AS_ROOT", "1" },
                           { "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1" },
                           { "OMPI_MCA_pml", "ob1" },
                           { "OMPI_MCA_btl", "self,vader" } });
}

class MpiProgram : public ::testing::Test {
protected:
    void SetUp() override
    {
        if (weirt_sanitizer()[0] != '\0') {
            GTEST_SKIP() << "the MPI library is not built with the sanitizer";
        }
        const Ended ended = weirt_command("mpirun --version");
        if (ended.status != 0) {
            GTEST_SKIP() << "mpirun does not run here; install openmpi-bin";
        }
    }
};

class MpiCase : public MpiProgram, public ::testing::WithParamInterface<const char *> {};

TEST_P(MpiCase, IsRight)
{
    const std::string name = GetParam();
    const Ended ended = mpirun(name);
    EXPECT_EQ(ended.status, 0) << ended.text;
    EXPECT_TRUE(ended.has(name + ": right\n")) << ended.text;
}

const char *const cases[] = {
    "pack_golden",
    "pack_boxes",
    "pack_trees",
    "pack_alignments",
    "pack_positions",
    "pack_other_combiners",
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

TEST_F(MpiProgram, KilledRankEndsTheJob)
{
    const Ended ended = mpirun("killed");
    EXPECT_NE(ended.status, 0);
    EXPECT_TRUE(ended.has("signal 9")) << ended.text;
    EXPECT_FALSE(ended.has("right") || ended.has("has sent a message")) << ended.text;
    EXPECT_LT(ended.ms, weirt_timeout_ms());
}

} // namespace
