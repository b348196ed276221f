// The test programs' main, and failures of ranks as failures of the running test.
#include <gtest/gtest.h>

#include <cstdlib>

#include "test/harness/ranks.h"
#include "test/harness/stacks.h"

namespace {

class WatchCases : public ::testing::EmptyTestEventListener {
    void OnTestStart(const ::testing::TestInfo &) override { weirt_stacks_begin(); }
};

} // namespace

extern "C" void weirt_report_failure(const char *file, int line, const char *text)
{
    ADD_FAILURE_AT(file, line) << text;
}

int main(int argc, char **argv)
{
    // Ranks that share a GPU wait for each other on the GPU. With CUDA's eight queues some of their streams would share
    // a queue, and wait for each other there.
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    weirt_stacks_watch();
    int status = weirt_rank_main(argc, argv);
    if (status >= 0) {
        return status;
    }
    ::testing::InitGoogleTest(&argc, argv);
    ::testing::UnitTest::GetInstance()->listeners().Append(new WatchCases); // the list frees it
    return RUN_ALL_TESTS();
}
