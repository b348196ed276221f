// Whether kernels can post to a NIC by themselves: each step tells what it found, and the one that fails why.
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
            GTEST_SKIP() << "needs the software NIC, which is not used where there are others";
        }
        setenv("WEIR_PORT_ENGINE", "device", 1);
    }
    void TearDown() override
    {
        unsetenv("WEIR_PORT_ENGINE");
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
    const char *const names[] = { "NIC", "open", "memory of the device", "connection to itself", "queue for kernels",
                                  "put by a kernel" };
    const char *const texts[] = { "swnic0 port 1", "opened", "registered", "joined to itself",
                                  "mapped as the CPU's own", "arrived" };
    ASSERT_EQ(steps.size(), 6u);
    for (size_t i = 0; i < steps.size(); i++) {
        EXPECT_EQ(steps[i].name, names[i]);
        EXPECT_EQ(steps[i].status, WEIR_OK);
        EXPECT_NE(steps[i].text.find(texts[i]), std::string::npos) << steps[i].text;
    }
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
