// The rows of weir-perf's collectives beside NCCL's, which need GPUs to be measured.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <unistd.h>

#include "tools/perf/collective.h"
#include "tools/perf/output.h"

// Replaces a function of another file of weir-perf.
bool perf_compute_knows(const char *) { return true; }

namespace {

// What the terminal shows of a row of 132 SMs with `blocks` blocks, beside 16 and 4 blocks of NCCL.
std::string shown(uint32_t blocks)
{
    const perf_choice chosen = { WEIR_FORM_SLOTS, { blocks, 512 } };
    perf_options options = {};
    perf_rank rank = {};
    perf_bench bench = {};
    perf_result results[PERF_RESULTS] = {};
    results[PERF_OUT].us = 20;
    results[PERF_IN].us = NAN;
    results[PERF_PLAIN].us = 40;
    results[PERF_WINDOWS].us = 25;
    results[PERF_PLAIN].launched.blocks = 16;
    results[PERF_WINDOWS].launched.blocks = 4;
    rank.options = &options;
    rank.ranks = 2;
    rank.info.multiprocessors = 132;
    bench.rank = &rank;
    bench.nccl = reinterpret_cast<perf_nccl *>(&bench); // not used
    (void)snprintf(bench.title, sizeof bench.title, "title");
    EXPECT_TRUE(perf_take_wish("allreduce", &options, &bench.wish));
    testing::internal::CaptureStdout();
    rank.output = perf_output_open(&options);
    perf_report_row(&bench, 512, 1024, &chosen, results);
    EXPECT_TRUE(perf_output_close(rank.output));
    return testing::internal::GetCapturedStdout();
}

// The words of a line of the text.
std::string words(const std::string &text, unsigned number)
{
    size_t at = 0;
    while (number-- != 0) {
        at = text.find('\n', at) + 1;
    }
    std::string found;
    for (const char c : text.substr(at, text.find('\n', at) - at)) {
        if (c != ' ' || (!found.empty() && found.back() != ' ')) {
            found += c;
        }
    }
    return found;
}

TEST(WeirPerfReport, TheTerminalShowsMultiprocessorsAndTheBlocksOfNccl)
{
    const std::string text = shown(16);
    EXPECT_EQ(words(text, 2), "bytes count type redop form blocks sms time_us min_us p95_us algbw busbw wrong in_us "
                              "in_algbw in_busbw in_wrong nccl_us sym_us ratio nccl_blocks sym_blocks");
    EXPECT_EQ(words(text, 3),
              "1024 512 f16 sum slots 16 16 20.00 0.00 0.00 0.05 0.05 0 - - - 0 40.00 25.00 0.800 16 4");
}

TEST(WeirPerfReport, BlocksShareTheMultiprocessorsThatThereAre)
{
    EXPECT_NE(words(shown(264), 3).find(" slots 264 132 "), std::string::npos);
}

} // namespace
