// Ranks in two network namespaces whose link goes down: no connection is closed, and heartbeats find it.
#include "test/launch/launch.h"

namespace {

class Unreachable : public LaunchTest {};

TEST_F(Unreachable, HostIsNamedByBothSides)
{
    const std::string probe = weirt_beside("weir-launch-probe");
    const std::string timeout = std::to_string(4000 * weirt_slow());
    const std::string script = "at=$(mktemp -d)\n"
                               "export WEIR_SIZE=2 WEIR_RENDEZVOUS_FILE=$at/meet WEIR_TIMEOUT_MS=" +
                               timeout + "\nWEIR_RANK=0 " + probe +
                               " lose >$at/0 &\n"
                               "WEIR_RANK=1 nsenter --net=$WEIR_TEST_NETWORK_1 " +
                               probe +
                               " lose >$at/1 &\n"
                               "for i in $(seq 100); do grep -q joined $at/0 && grep -q joined $at/1 && break; "
                               "sleep 0.1; done\n"
                               "ip link set weir0 down\n"
                               "wait\n"
                               "sed \"s/^/0: /\" $at/0; sed \"s/^/1: /\" $at/1; rm -r $at\n";
    const Ended ended = weirt_command(WEIRT_NETWORKS " bash -c '" + script + "'");
    if (ended.status == 77) {
        GTEST_SKIP() << ended.text;
    }
    EXPECT_TRUE(ended.has("0: joined")) << ended.text;
    const std::string tail = " does not answer (stopped, or its host is unreachable)";
    EXPECT_TRUE(ended.has("bootstrap: rank 1" + tail)) << ended.text;
    EXPECT_TRUE(ended.has("bootstrap: rank 0" + tail)) << ended.text;
    EXPECT_EQ(ended.count("WEIR_ERR_REMOTE after"), 2u) << ended.text;
}

} // namespace
