// The test programs' main, and failures of ranks as failures of the running test.
#include <gtest/gtest.h>

#include "test/harness/ranks.h"

extern "C" void weirt_report_failure(const char *file, int line, const char *text)
{
    ADD_FAILURE_AT(file, line) << text;
}

int main(int argc, char **argv)
{
    int status = weirt_rank_main(argc, argv);
    if (status >= 0) {
        return status;
    }
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
