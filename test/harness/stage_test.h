/* stage_test.h - GoogleTest suites whose cases run once a stage; C++ only.
 *
 *     WEIRT_STAGE_SUITE(Memory);
 *     TEST_P(Memory, Something) { run(2, body); } */
#ifndef WEIRT_STAGE_TEST_H
#define WEIRT_STAGE_TEST_H

#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "test/harness/ranks.h"

/* Skips the case if the machine cannot run the stage; for SetUp. */
inline void weirt_require_stage(const weirt_stage *stage)
{
    const char *reason = weirt_stage_missing(stage);
    if (reason != nullptr) {
        GTEST_SKIP() << reason;
    }
}

/* The same for cases whose ranks run the same code as threads and as processes: sanitizers check it between threads. */
inline void weirt_require_data_stage(const weirt_stage *stage)
{
    if (stage->processes && weirt_sanitizer()[0] != '\0') {
        GTEST_SKIP() << "sanitizers check the same code in the stage of threads";
    }
    weirt_require_stage(stage);
}

class StageTest : public ::testing::TestWithParam<int> {
protected:
    void SetUp() override { weirt_require_stage(stage()); }
    const weirt_stage *stage() const { return &weirt_stages[GetParam()]; }
    void run(uint32_t ranks, weirt_rank_fn body) const { weirt_ranks_run(stage(), ranks, body, nullptr, 0); }
    /* The whole of a case in which one rank meets no other: between processes it would show the same as between
     * threads. */
    void run_alone(weirt_rank_fn body) const
    {
        if (stage()->processes) {
            GTEST_SKIP() << "one rank: the same as in the stage of threads";
        }
        run(1, body);
    }
};

class StageDataTest : public StageTest {
protected:
    void SetUp() override { weirt_require_data_stage(stage()); }
};

/* Cases that run once a stage and number of ranks. */
class StageRanksTest : public ::testing::TestWithParam<std::tuple<int, uint32_t>> {
protected:
    void SetUp() override { weirt_require_stage(stage()); }
    const weirt_stage *stage() const { return &weirt_stages[std::get<0>(GetParam())]; }
    void run(weirt_rank_fn body) { weirt_ranks_run(stage(), std::get<1>(GetParam()), body, nullptr, 0); }
};

inline std::string weirt_stage_ranks_name(const ::testing::TestParamInfo<std::tuple<int, uint32_t>> &info)
{
    return std::string(weirt_stages[std::get<0>(info.param)].name) + "_" + std::to_string(std::get<1>(info.param)) +
           "_ranks";
}

inline std::string weirt_stage_name(const ::testing::TestParamInfo<int> &info) { return weirt_stages[info.param].name; }

/* A suite on all stages; one that sanitizers check between threads alone; one on all stages with each of the numbers of
 * ranks; one on the stages whose ranks are processes. */
#define WEIRT_STAGE_SUITE(Suite)       \
    class Suite : public StageTest {}; \
    INSTANTIATE_TEST_SUITE_P(Stages, Suite, ::testing::Values(0, 1, 2, 3), weirt_stage_name)
#define WEIRT_STAGE_DATA_SUITE(Suite)      \
    class Suite : public StageDataTest {}; \
    INSTANTIATE_TEST_SUITE_P(Stages, Suite, ::testing::Values(0, 1, 2, 3), weirt_stage_name)
#define WEIRT_STAGE_RANKS_SUITE(Suite, ...)                                                                         \
    class Suite : public StageRanksTest {};                                                                         \
    INSTANTIATE_TEST_SUITE_P(Stages, Suite,                                                                         \
                             ::testing::Combine(::testing::Range(0, WEIRT_STAGES), ::testing::Values(__VA_ARGS__)), \
                             weirt_stage_ranks_name)
#define WEIRT_PROCESS_SUITE(Suite)     \
    class Suite : public StageTest {}; \
    INSTANTIATE_TEST_SUITE_P(Stages, Suite, ::testing::Values(1, 3), weirt_stage_name)

#endif
