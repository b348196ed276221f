// Comparison by weir-perf --against, with rows written by weir-perf's output and read again.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <unistd.h>

#include "tools/perf/output.h"

namespace {

struct Row {
    const char *shape;
    uint64_t bytes;
    double us;
    double gbps;
};

class Against : public ::testing::TestWithParam<const char *> {
protected:
    void SetUp() override
    {
        char name[] = "/tmp/weir-against-XXXXXX";
        const int fd = mkstemp(name);
        ASSERT_GE(fd, 0);
        close(fd);
        path_ = name;
    }

    void TearDown() override { unlink(path_.c_str()); }

    // Rows of a run that writes the file or is compared with it.
    bool run(bool record, std::initializer_list<Row> rows, std::string *text = nullptr)
    {
        perf_options options;
        memset(&options, 0, sizeof options);
        const bool json = strcmp(GetParam(), "json") == 0;
        options.json = record && json ? path_.c_str() : nullptr;
        options.csv = record && !json ? path_.c_str() : nullptr;
        options.against = record ? nullptr : path_.c_str();
        testing::internal::CaptureStdout();
        perf_output *output = perf_output_open(&options);
        EXPECT_NE(output, nullptr);
        perf_fact(output, "a \"fact\"", "with, all \\ of it");
        for (const Row &row : rows) {
            const perf_field fields[] = {
                perf_text("shape", row.shape),
                perf_count("bytes", row.bytes),
                perf_as(perf_count("blocks", row.bytes + (record ? 1 : 2)), PERF_APART),
                perf_as(perf_real("time_us", row.us, 3), PERF_LATENCY),
                perf_as(perf_real("gbps", row.gbps, 3), PERF_BANDWIDTH),
                perf_real("p95_us", record ? 1 : 1000, 3),
            };
            perf_row(output, "put, both \"ways\"", fields, sizeof fields / sizeof fields[0]);
        }
        const bool good = perf_output_close(output);
        const std::string all = testing::internal::GetCapturedStdout();
        if (text != nullptr) {
            *text = all;
        }
        return good;
    }

    size_t lines(const std::string &text, const std::string &what)
    {
        size_t count = 0;
        for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
            count++;
        }
        return count;
    }

    const std::string &path() const { return path_; }

private:
    std::string path_;
};

constexpr uint64_t MiB = 1 << 20;

TEST_P(Against, TimesMayBe15PercentLonger)
{
    std::string text;
    ASSERT_TRUE(run(true, { { "grid", 1024, 100, 10 }, { "grid", MiB - 1, 200, 10 } }));
    EXPECT_TRUE(run(false, { { "grid", 1024, 114.9, 1 }, { "grid", MiB - 1, 229, 1 } }, &text)) << text;
    EXPECT_EQ(lines(text, "2 values compared, 0 worse; 0 rows are not in it"), 1u) << text;
    EXPECT_TRUE(run(false, { { "grid", 1024, 1, 1 } })) << "faster, and fewer sizes";
    EXPECT_FALSE(run(false, { { "grid", 1024, 115.1, 10 }, { "grid", MiB - 1, 229, 10 } }, &text));
    EXPECT_EQ(lines(text, "against " + path() +
                              ": shape grid, bytes 1024: time_us 100.000 before, 115.100 now "
                              "(+15.1 %)\n"),
              1u)
        << text;
    EXPECT_EQ(lines(text, "2 values compared, 1 worse; 0 rows are not in it"), 1u) << text;
    EXPECT_FALSE(run(false, { { "grid", 1024, 200, 10 }, { "grid", MiB - 1, 300, 10 } }, &text));
    EXPECT_EQ(lines(text, " before, "), 2u) << text;
}

TEST_P(Against, BandwidthMayBe5PercentLess)
{
    std::string text;
    ASSERT_TRUE(run(true, { { "grid", MiB, 100, 200 } }));
    EXPECT_TRUE(run(false, { { "grid", MiB, 1000, 190.1 } }, &text)) << text;
    EXPECT_FALSE(run(false, { { "grid", MiB, 1, 189.8 } }, &text));
    EXPECT_EQ(lines(text, "bytes 1048576: gbps 200.000 before, 189.800 now (-5.1 %)\n"), 1u) << text;
    // Without a bandwidth the time is compared.
    ASSERT_TRUE(run(true, { { "grid", MiB, 100, NAN } }));
    EXPECT_TRUE(run(false, { { "grid", MiB, 114, NAN } }));
    EXPECT_FALSE(run(false, { { "grid", MiB, 116, NAN } }));
}

TEST_P(Against, RowsAreFoundByWhatTheyAre)
{
    std::string text;
    ASSERT_TRUE(run(true, { { "grid, \"a\" \\ b", 8, 10, NAN }, { "blocks", 8, 20, NAN }, { "blocks", 8, 30, NAN } }));
    EXPECT_TRUE(run(false, { { "blocks", 8, 20, NAN }, { "grid, \"a\" \\ b", 8, 10, NAN }, { "blocks", 8, 30, NAN } }));
    // Equal rows are each taken once, in the order of the file.
    EXPECT_FALSE(run(false, { { "blocks", 8, 30, NAN }, { "blocks", 8, 30, NAN } }, &text));
    EXPECT_EQ(lines(text, "shape blocks, bytes 8: time_us 20.000 before, 30.000 now (+50.0 %)\n"), 1u) << text;
    EXPECT_FALSE(run(false, { { "blocks", 8, 1, NAN }, { "blocks", 8, 1, NAN }, { "blocks", 8, 1, NAN } }, &text));
    EXPECT_EQ(lines(text, "it does not have shape blocks, bytes 8\n"), 1u) << text;
    EXPECT_FALSE(run(false, { { "blocks", 9, 1, NAN } }, &text));
    EXPECT_EQ(lines(text, "it does not have shape blocks, bytes 9\n"), 1u) << text;
    EXPECT_EQ(lines(text, "0 values compared, 0 worse; 1 rows are not in it"), 1u) << text;
    EXPECT_FALSE(run(false, {})) << "nothing was compared";
}

TEST_P(Against, FilesThatAreNoneAreRefused)
{
    ASSERT_TRUE(run(true, { { "grid", 8, 10, 1 }, { "grid", 9, 10, 1 } }));
    std::ifstream in(path());
    const std::string whole((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    // A truncated file is refused unless it ends between two rows of CSV or behind the last row of JSON.
    for (size_t length = 0; length < whole.size(); length++) {
        std::ofstream(path(), std::ios::trunc) << whole.substr(0, length);
        testing::internal::CaptureStderr();
        testing::internal::CaptureStdout();
        perf_options options;
        memset(&options, 0, sizeof options);
        options.against = path().c_str();
        perf_output *output = perf_output_open(&options);
        if (output != nullptr) {
            EXPECT_TRUE(strcmp(GetParam(), "csv") == 0 || length > whole.rfind(']')) << length;
            EXPECT_FALSE(perf_output_close(output)) << "no row was compared";
        }
        (void)testing::internal::GetCapturedStdout();
        const std::string text = testing::internal::GetCapturedStderr();
        EXPECT_EQ(text.empty(), output != nullptr) << length << ": " << text;
        if (output == nullptr) {
            EXPECT_NE(text.find("no rows of weir-perf in this file, or row "), std::string::npos)
                << length << ": " << text;
        }
    }
    perf_options options;
    memset(&options, 0, sizeof options);
    options.against = "/nonexistent/rows";
    testing::internal::CaptureStderr();
    EXPECT_EQ(perf_output_open(&options), nullptr);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "weir-perf: /nonexistent/rows: No such file or directory\n");
}

INSTANTIATE_TEST_SUITE_P(Files, Against, ::testing::Values("json", "csv"),
                         [](const auto &info) { return std::string(info.param); });

} // namespace
