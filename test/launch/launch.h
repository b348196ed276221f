// launch.h - shared by launcher tests: a clean environment and a temporary folder; C++.
#ifndef WEIRT_LAUNCH_H
#define WEIRT_LAUNCH_H

#include <cstdlib>
#include <string>
#include <vector>

#include <sys/stat.h>

#include "test/harness/bootstrap_ranks.h"
#include "test/harness/command.h"

extern "C" {
#include "src/host/base/env.h"
}

// A fixture with a temporary folder and without the variables of launchers.
class LaunchTest : public BootstrapTest {
protected:
    void SetUp() override
    {
        char name[] = "/tmp/weir-launch-XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        folder_ = name;
        weir_env_row row;
        for (uint32_t i = 0; weir_env_get(i, &row) == WEIR_OK; i++) {
            forget(row.name);
        }
        for (int i = 0; i < WEIRI_LAUNCH_COUNT; i++) {
            forget(weiri_env_launch_name(static_cast<weiri_launch_variable>(i)));
        }
        BootstrapTest::SetUp();
    }

    void TearDown() override
    {
        BootstrapTest::TearDown();
        EXPECT_EQ(std::system(("rm -rf " + folder_).c_str()), 0);
        for (const auto &variable : saved_) {
            setenv(variable.first.c_str(), variable.second.c_str(), 1);
        }
    }

    std::string path(const char *name = "rendezvous") const { return folder_ + "/" + name; }

    const std::string &folder() const { return folder_; }

private:
    void forget(const char *name)
    {
        const char *value = getenv(name);
        if (value != nullptr) {
            saved_[name] = value;
        }
        unsetenv(name);
    }

    std::string folder_;
    Variables saved_;
};

// Why a transport cannot be used here; "" if it can.
inline std::string weirt_transport_missing(const std::string &name)
{
    weir_transport_info info;
    for (uint32_t i = 0; weir_transport_get(i, &info) == WEIR_OK; i++) {
        if (info.name == name) {
            const bool foreign = name != "ipc" && std::string(weirt_sanitizer()) == "thread";
            return foreign ? "its library is not built with the thread sanitizer" : info.works ? "" : info.reason;
        }
    }
    return "this build has no transport " + name;
}

inline std::string weirt_tutorial(const std::string &name)
{
    const std::string found = weirt_beside("../examples/tutorials/" + name);
    EXPECT_NE(found, "") << name;
    return found;
}

#endif
