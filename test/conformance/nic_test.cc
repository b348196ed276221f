// The report whether kernels can post to a NIC: each step reports its result, and a failed step its cause.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "test/harness/ranks.h"
#include "test/harness/software_nic.h"
#include "weir/weir.h"

namespace {

struct Step {
    std::string name, text;
    weir_status status;
};

class Nic : public ::testing::Test {
protected:
    void SetUp() override
    {
        if (!weirt_use_software_nic()) {
            GTEST_SKIP() << "needs the software NIC, which is not used on a host with RDMA devices";
        }
        setenv("WEIR_PORT_ENGINE", "device", 1);
    }
    void TearDown() override
    {
        unsetenv("WEIR_PORT_ENGINE");
        unsetenv("WEIR_IB_QUEUES");
        unsetenv("SWNIC_FAULT");
        weir_device_close(device);
    }
    weir_status check(uint32_t timeout_ms)
    {
        setenv("WEIR_TIMEOUT_MS", std::to_string(timeout_ms).c_str(), 1);
        const weir_status status = weir_device_open("cpu:0", nullptr, &device);
        unsetenv("WEIR_TIMEOUT_MS");
        return status != WEIR_OK ? status : weir_nic_check(device, note, &steps);
    }
    static void note(void *context, const weir_nic_step *step)
    {
        static_cast<std::vector<Step> *>(context)->push_back({ step->name, step->text, step->status });
    }
    weir_device *device = nullptr;
    std::vector<Step> steps;
};

TEST_F(Nic, EachStepTellsWhatItFound)
{
    ASSERT_EQ(check(30000 * weirt_slow()), WEIR_OK) << weir_last_error();
    const char *const names[] = {
        "NIC", "open", "memory of the device", "connection to itself", "queue for kernels", "put by a kernel"
    };
    const char *const texts[] = { "swnic0 port 1",           "opened", "registered", "joined to itself",
                                  "mapped as the CPU's own", "arrived" };
    ASSERT_EQ(steps.size(), 6u);
    for (size_t i = 0; i < steps.size(); i++) {
        EXPECT_EQ(steps[i].name, names[i]);
        EXPECT_EQ(steps[i].status, WEIR_OK);
        EXPECT_NE(steps[i].text.find(texts[i]), std::string::npos) << steps[i].text;
    }
}

// The report says what made the queues, in which memory, and why the requested way failed.
TEST_F(Nic, QueuesByCommandsAreReportedToo)
{
    const struct {
        const char *fault;
        std::vector<const char *> texts;
    } rows[] = {
        { "", { "by DevX: 256 blocks, and completions in one entry, in memory of ", "registers: NC_DEDICATED" } },
        { "no-umem:1;no-uar:1", { "in pinned memory of the host (", "umem", "Cannot allocate", "registers: NC;" } },
        { "no-umem:1,2", { "completions in host memory", "by verbs because: ", "umem" } },
        { "no-uar:1,3", { "by verbs because: ", "UAR" } },
        { "no-devx", { "by verbs because: ", "CAP_NET_RAW" } },
        { "command:1", { "by DevX" } }, // only RoCE has the queried capability
        { "command:2", { "by verbs because: ", "CREATE_CQ", "internal error (status 0x1, syndrome 0x53570000)" } },
        { "command:3", { "by verbs because: ", "CREATE_QP", "internal error (status 0x1, syndrome 0x53570000)" } },
        { "command:4", { "by verbs because: ", "RST2INIT_QP", "status 0x1" } },
    };
    setenv("WEIR_IB_QUEUES", "devx", 1);
    for (const auto &row : rows) {
        setenv("SWNIC_FAULT", row.fault, 1);
        steps.clear();
        ASSERT_EQ(check(30000 * weirt_slow()), WEIR_OK) << row.fault << ": " << weir_last_error();
        ASSERT_EQ(steps.size(), 6u);
        for (const char *text : row.texts) {
            EXPECT_NE(steps[4].text.find(text), std::string::npos) << row.fault << ": " << steps[4].text;
        }
        weir_device_close(device);
        device = nullptr;
    }
}

// Without a fallback there is no queue, also if connecting to the peer fails.
TEST_F(Nic, QueuesByCommandsAloneAreNotMadeByVerbs)
{
    setenv("WEIR_IB_QUEUES", "devx-only", 1);
    for (const char *fault : { "command:3", "command:5", "command:6" }) {
        setenv("SWNIC_FAULT", fault, 1);
        steps.clear();
        ASSERT_EQ(check(150), WEIR_ERR_UNSUPPORTED);
        ASSERT_EQ(steps.size(), 5u);
        EXPECT_NE(steps[4].text.find("syndrome 0x53570000"), std::string::npos) << steps[4].text;
        weir_device_close(device);
        device = nullptr;
    }
    setenv("WEIR_IB_QUEUES", "anything", 1);
    EXPECT_EQ(check(150), WEIR_ERR_ENV);
}

TEST_F(Nic, DoorbellsThatNobodySeesAreNamed)
{
    setenv("SWNIC_FAULT", "lost-doorbell:1,1000000", 1);
    EXPECT_EQ(check(150), WEIR_ERR_TIMEOUT);
    ASSERT_EQ(steps.size(), 6u);
    EXPECT_EQ(steps[5].status, WEIR_ERR_TIMEOUT);
    EXPECT_NE(steps[5].text.find("does not see the doorbell"), std::string::npos) << steps[5].text;
}

TEST_F(Nic, DevicesThatAreNotThereAreNamed)
{
    setenv("WEIR_IB_DEVICE", "mlx5_7", 1);
    EXPECT_EQ(check(150), WEIR_ERR_UNSUPPORTED);
    unsetenv("WEIR_IB_DEVICE");
    ASSERT_EQ(steps.size(), 1u);
    EXPECT_NE(steps[0].text.find("mlx5_7"), std::string::npos) << steps[0].text;
}

TEST_F(Nic, MisuseIsRefused)
{
    ASSERT_EQ(check(30000 * weirt_slow()), WEIR_OK);
    EXPECT_EQ(weir_nic_check(nullptr, note, nullptr), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_nic_check(device, nullptr, nullptr), WEIR_ERR_INVALID);
    setenv("WEIR_PORT_ENGINE", "proxy", 1);
    EXPECT_EQ(weir_nic_check(device, note, &steps), WEIR_ERR_INVALID);
    setenv("WEIR_PORT_ENGINE", "nobody", 1);
    EXPECT_EQ(weir_nic_check(device, note, &steps), WEIR_ERR_ENV);
    EXPECT_NE(std::string(weir_last_error()).find("proxy, device, device-only"), std::string::npos);
}

} // namespace
