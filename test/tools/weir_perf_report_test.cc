// Parts of weir-perf's collectives without a measurement: rows beside NCCL's, which need GPUs, and lists of transfers.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <set>
#include <string>
#include <unistd.h>

#include "tools/perf/collective.h"
#include "tools/perf/output.h"

// Replaces a function of another file of weir-perf.
extern "C" bool perf_compute_knows(const char *) { return true; }

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

// The transfers of a fan, two to each partner, on rank 0: each has its own data and place.
TEST(WeirPerfSendrecv, TransfersToAPartnerLieBehindEachOtherAndDiffer)
{
    perf_options options = {};
    perf_rank rank = {};
    perf_bench bench = {};
    uint16_t buffers[2][20];
    weir_collective_request request = {};
    weir_transfer sent[8];
    options.layout = "fan";
    options.transfers = 2;
    rank.options = &options;
    rank.ranks = 3;
    bench.rank = &rank;
    bench.transfers = sent;
    request.dtype = WEIR_F16;
    request.count = 5;
    request.send = buffers[0];
    request.recv = buffers[1];
    ASSERT_EQ(perf_sendrecv_parts(&bench), 4u);
    ASSERT_EQ(perf_sendrecv_list(&bench, &request), 8u);
    std::set<uint64_t> seeds;
    for (uint32_t i = 0; i < 8; i++) {
        weir_collective_request data;
        EXPECT_EQ(sent[i].receive, i % 2 == 1) << i;
        EXPECT_EQ(sent[i].peer, 1 + i / 4) << i;
        EXPECT_EQ(sent[i].count, 5u) << i;
        EXPECT_EQ(sent[i].buffer, &buffers[i % 2][5 * (i / 2)]) << i;
        seeds.insert(perf_sendrecv_data(&bench, &request, i, &data));
    }
    EXPECT_EQ(seeds.size(), 8u);
}

} // namespace
