// The rows that weir-perf --tune writes to a tuning file.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <unistd.h>

#include "tools/perf/collective.h"

namespace {

void add(perf_tune *tune, uint64_t bytes, weir_collective_form form, weir_shape shape, uint32_t most, double us)
{
    const perf_choice chosen = { form, shape };
    perf_tune_add(tune, bytes, &chosen, most, us);
}

// Writes `tune` over a file with this text and returns the new text.
std::string write(const perf_tune *tune, const char *text)
{
    char path[] = "/tmp/weir-perf-tune-XXXXXX";
    const int fd = mkstemp(path);
    EXPECT_GE(fd, 0);
    close(fd);
    std::ofstream(path) << text;
    perf_rank rank = {};
    rank.command = "allreduce";
    rank.ranks = 2;
    (void)snprintf(rank.info.model, sizeof rank.info.model, "Model A");
    EXPECT_TRUE(perf_tune_write(tune, path, &rank, "title"));
    std::stringstream read;
    read << std::ifstream(path).rdbuf();
    unlink(path);
    return read.str();
}

std::string head()
{
    return std::string("device Model A\n# tuned allreduce 2 by weir-perf ") + weir_version() + ": title\n";
}

TEST(WeirPerfTune, ARowIsTheFastestOfItsSize)
{
    perf_tune tune = {};
    add(&tune, 4096, WEIR_FORM_LINES, { 16, 256 }, 16, 5.0);
    add(&tune, 1024, WEIR_FORM_ONCE, { 16, 256 }, 16, 4.0);
    add(&tune, 1024, WEIR_FORM_PACKETS, { 16, 256 }, 16, 4.0);
    add(&tune, 4096, WEIR_FORM_SLOTS, { 16, 256 }, 16, 6.0);
    add(&tune, 4096, WEIR_FORM_PACKETS, { 8, 128 }, 8, 4.5);
    add(&tune, 0, WEIR_FORM_PACKETS, { 8, 128 }, 8, 1.0);
    EXPECT_EQ(write(&tune, ""), head() + "allreduce 2 1024 once 16 256\nallreduce 2 4096 packets 8 128\n");
}

TEST(WeirPerfTune, WhatTheLibraryDoesByItselfIsARowWithoutAShape)
{
    perf_tune tune = {};
    add(&tune, 1024, WEIR_FORM_SLOTS, { 528, 256 }, 0, 3.0);
    add(&tune, 4096, WEIR_FORM_SLOTS, { 132, 512 }, 0, 4.0);
    EXPECT_EQ(write(&tune, ""), head() + "allreduce 2 4096 slots 0 0\n");
}

TEST(WeirPerfTune, NeighboursWithTheSameChoiceAreOneRow)
{
    perf_tune tune = {};
    add(&tune, 256, WEIR_FORM_ONCE, { 1, 256 }, 16, 3.0); // fewer blocks than allowed
    add(&tune, 1024, WEIR_FORM_ONCE, { 4, 256 }, 33, 3.0);
    add(&tune, 4096, WEIR_FORM_ONCE, { 16, 256 }, 16, 3.0);
    add(&tune, 16384, WEIR_FORM_LINES, { 16, 256 }, 16, 3.0);
    add(&tune, 65536, WEIR_FORM_LINES, { 16, 512 }, 16, 3.0);
    EXPECT_EQ(write(&tune, ""), head() + "allreduce 2 1024 once 0 256\nallreduce 2 4096 once 16 256\n"
                                         "allreduce 2 16384 lines 16 256\nallreduce 2 65536 lines 16 512\n");
}

TEST(WeirPerfTune, ALimitIsPartOfARow)
{
    perf_tune tune = {};
    tune.limit = 8;
    add(&tune, 256, WEIR_FORM_SLOTS, { 8, 512 }, 8, 3.0);
    const std::string mine = std::string("device Model A\n# tuned allreduce 2 8 by weir-perf ") + weir_version() +
                             ": title\nallreduce 2 256 slots 8 512 8\n";
    const std::string others = "allreduce 2 256 once 0 0\nallreduce 2 256 once 0 0 16\n";
    const std::string old = "# tuned allreduce 2 8 by weir-perf 0: old\nallreduce 2 9 lines 8 0 8\n";
    EXPECT_EQ(write(&tune, ("device Model A\n" + old + others).c_str()), mine + others);
    tune.limit = 0;
    EXPECT_EQ(write(&tune, mine.c_str()), head() + "allreduce 2 256 slots 8 512\n" + mine.substr(mine.find('#')));
}

TEST(WeirPerfTune, OthersRowsStayBehindTheNewOnes)
{
    perf_tune tune = {};
    add(&tune, 256, WEIR_FORM_SLOTS, { 2, 32 }, 2, 3.0);
    const std::string mine = head() + "allreduce 2 256 slots 2 32\n";
    const std::string any = "allreduce 2 0 lines 1 0\n# tuned allreduce 2 elsewhere\n";
    const std::string other = "device Model B\n\nallreduce 2 0 once 1 0\n";
    EXPECT_EQ(write(&tune, (any + "device None\n" + other).c_str()), mine + "device *\n" + any + other);
    EXPECT_EQ(write(&tune, (other + "device Model A\nallreduce 22 0 once 1 0\nallreduce 2 9 once 1 0\n").c_str()),
              mine + other + "device Model A\nallreduce 22 0 once 1 0\n");
    EXPECT_EQ(write(&tune, (mine + "reduce 2 0 once 1 0\n" + other).c_str()), mine + "reduce 2 0 once 1 0\n" + other);
}

} // namespace
