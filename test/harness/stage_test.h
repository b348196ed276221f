/* stage_test.h - GoogleTest suites whose cases run once a stage; C++ only.
 *
 *     WEIRT_STAGE_SUITE(Memory);
 *     TEST_P(Memory, Something) { weirt_ranks_run(stage(), 2, body, nullptr, 0); } */
#ifndef WEIRT_STAGE_TEST_H
#define WEIRT_STAGE_TEST_H

#include <gtest/gtest.h>

#include <string>

#include "test/harness/ranks.h"

class StageTest : public ::testing::TestWithParam<int> {
protected:
    void SetUp() override
    {
        const char *reason = weirt_stage_missing(stage());
        if (reason != nullptr) {
            GTEST_SKIP() << reason;
        }
    }
    const weirt_stage *stage() const { return &weirt_stages[GetParam()]; }
};

inline std::string weirt_stage_name(const ::testing::TestParamInfo<int> &info)
{
    return weirt_stages[info.param].name;
}

/* A suite on all stages, and a suite on the stages whose ranks are processes. */
#define WEIRT_STAGE_SUITE(Suite)       \
    class Suite : public StageTest {}; \
    INSTANTIATE_TEST_SUITE_P(Stages, Suite, ::testing::Values(0, 1, 2, 3), weirt_stage_name)
#define WEIRT_PROCESS_SUITE(Suite)     \
    class Suite : public StageTest {}; \
    INSTANTIATE_TEST_SUITE_P(Stages, Suite, ::testing::Values(1, 3), weirt_stage_name)

#endif
