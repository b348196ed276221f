// Port channels as users start them: tutorial 04 over each transport of this machine, and between network namespaces;
// tutorial 05 over the software NIC.
#include "test/harness/software_nic.h"
#include "test/launch/launch.h"

namespace {

const char *const tutorial04 = "04-port-channel/bidir_port_channel";
const char *const tutorial05 = "05-device-posted-rdma/device_posted_rdma";

class PortTutorial : public LaunchTest, public ::testing::WithParamInterface<const char *> {};

TEST_P(PortTutorial, Succeeds)
{
    const std::string missing = weirt_transport_missing(GetParam());
    if (!missing.empty()) {
        GTEST_SKIP() << GetParam() << ": " << missing;
    }
    const Ended ended =
        weirt_command(weirt_tutorial(tutorial04), { { "WEIR_TRANSPORT", GetParam() }, { "WEIR_CPU_THREADS", "4" } });
    EXPECT_EQ(ended.status, 0) << ended.text;
    EXPECT_EQ(ended.count("Succeed!\n"), 1u) << ended.text;
}

INSTANTIATE_TEST_SUITE_P(Over, PortTutorial, ::testing::Values("ipc", "ib", "ofi"),
                         [](const ::testing::TestParamInfo<const char *> &info) { return info.param; });

// One kernel, with each of the engines.
class Tutorial05 : public LaunchTest {
protected:
    void SetUp() override
    {
        LaunchTest::SetUp();
        if (std::string(weirt_sanitizer()) == "thread") {
            GTEST_SKIP() << "the thread sanitizer does not see that another process orders this one's accesses";
        }
        if (!weirt_use_software_nic()) {
            GTEST_SKIP() << "this host has an RDMA device, or this build has no software NIC";
        }
    }
    static void expect_engine(const std::string &engine, const Variables &variables)
    {
        const Ended ended = weirt_command(weirt_tutorial(tutorial05), variables);
        EXPECT_EQ(ended.status, 0) << ended.text;
        EXPECT_EQ(ended.count("transport ib, engine " + engine + "\n"), 2u) << ended.text;
        EXPECT_EQ(ended.count("Succeed!\n"), 1u) << ended.text;
    }
};

TEST_F(Tutorial05, KernelsPostByThemselves) { expect_engine("device", {}); }
TEST_F(Tutorial05, ProxyPosts) { expect_engine("proxy", { { "WEIR_PORT_ENGINE", "proxy" } }); }

TEST_F(Tutorial05, SaysHowToHaveANic)
{
    const Ended ended = weirt_command(weirt_tutorial(tutorial05), { { "WEIR_IB_VERBS_LIBRARY", "" } });
    EXPECT_EQ(ended.status, 1) << ended.text;
    EXPECT_TRUE(ended.has("set WEIR_IB_VERBS_LIBRARY to tools/swnic/libswnic.so")) << ended.text;
}

class Networks : public LaunchTest {
protected:
    void SetUp() override
    {
        LaunchTest::SetUp();
        const std::string missing = weirt_transport_missing("ofi");
        if (!missing.empty()) {
            GTEST_SKIP() << "ofi: " << missing;
        }
        const Ended ended = networks("true");
        if (ended.status == 77) {
            GTEST_SKIP() << ended.text;
        }
        ASSERT_EQ(ended.status, 0) << ended.text;
    }
    static Ended networks(const std::string &command)
    {
        return weirt_command(WEIRT_NETWORKS " " + command, { { "WEIR_KEY", "of a test" } });
    }
};

TEST_F(Networks, Tutorial04)
{
    const std::string rank = "env WEIR_CPU_THREADS=4 " + weirt_tutorial(tutorial04) + " 10.78.0.1:4711 ";
    const Ended ended = networks("bash -c '" + rank + "0 cpu:0 ofi & nsenter --net=$WEIR_TEST_NETWORK_1 " + rank +
                                 "1 cpu:1 ofi && wait $!'");
    EXPECT_EQ(ended.status, 0) << ended.text;
    EXPECT_EQ(ended.count("Succeed!\n"), 1u) << ended.text;
}

TEST_F(Networks, PortChannels)
{
    const Ended ended = networks(weirt_beside("weir-test-conformance") +
                                 " '--gtest_filter=*PortChannel.MovesBytesByPutSignal/cpu_processes_ofi:"
                                 "*PortChannel.MovesBytesByGet/cpu_processes_ofi:"
                                 "*PortChannel.HostThreadsMoveBytes/cpu_processes_ofi'");
    EXPECT_EQ(ended.status, 0) << ended.text;
    EXPECT_TRUE(ended.has("[  PASSED  ] 3 tests.")) << ended.text;
}

TEST_F(Networks, Collectives)
{
    const Ended ended = networks("env WEIR_TRANSPORT=ofi " + weirt_beside("weir-test-collective") +
                                 " '--gtest_filter=*CollectiveHosts.Sizes/cpu_processes_ofi:"
                                 "*CollectiveHosts.GraphsAreReplayed/cpu_processes_ofi'");
    EXPECT_EQ(ended.status, 0) << ended.text;
    EXPECT_TRUE(ended.has("[  PASSED  ] 2 tests.")) << ended.text;
}

} // namespace
