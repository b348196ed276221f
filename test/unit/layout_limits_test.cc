// What the creates of layouts refuse: arguments that are NULL, each named, and numbers beyond 2^62.
#include <gtest/gtest.h>

#include <string>

#include "test/harness/layout_golden.h"

extern "C" {
#include "weir/error.h"
}

namespace {

void expect_refused(weir_status status, weir_status want, const std::string &text)
{
    EXPECT_EQ(status, want) << text;
    EXPECT_NE(std::string(weir_last_error()).find(text), std::string::npos) << weir_last_error();
}

// Every create names the argument that is NULL.
TEST(LayoutLimits, MissingArgumentsAreNamed)
{
    const weirt_layout item = weirt_build(weirt_bytes(8));
    const weir_layout *of = item.get();
    weir_layout *out = nullptr;
    const uint64_t n[] = { 2, 2 }; // lengths, sizes and parts
    const uint64_t starts[] = { 0, 0 };
    const int64_t places[] = { 0, 20 };
    const weir_layout *const ofs[] = { of, of };
    const auto missing = [&](weir_status status, const char *text) {
        expect_refused(status, WEIR_ERR_INVALID, text);
        EXPECT_EQ(out, nullptr) << text;
    };
    missing(weir_layout_create_bytes(8, nullptr), "create_bytes: out is NULL");
    missing(weir_layout_create_contiguous(2, nullptr, &out), "create_contiguous: of is NULL");
    missing(weir_layout_create_contiguous(2, of, nullptr), "create_contiguous: out is NULL");
    missing(weir_layout_create_dup(nullptr, &out), "create_dup: of is NULL");
    missing(weir_layout_create_vector(2, 1, 3, nullptr, &out), "create_vector: of is NULL");
    missing(weir_layout_create_hvector(2, 1, 30, nullptr, &out), "create_hvector: of is NULL");
    missing(weir_layout_create_indexed(2, nullptr, places, of, &out), "create_indexed: lengths is NULL");
    missing(weir_layout_create_indexed(2, n, nullptr, of, &out), "create_indexed: places is NULL");
    missing(weir_layout_create_indexed(2, n, places, nullptr, &out), "create_indexed: of is NULL");
    missing(weir_layout_create_hindexed(2, nullptr, places, of, &out), "create_hindexed: lengths is NULL");
    missing(weir_layout_create_hindexed(2, n, nullptr, of, &out), "create_hindexed: places_bytes is NULL");
    missing(weir_layout_create_hindexed(2, n, places, nullptr, &out), "create_hindexed: of is NULL");
    missing(weir_layout_create_indexed_block(2, 1, nullptr, of, &out), "create_indexed_block: places is NULL");
    missing(weir_layout_create_indexed_block(2, 1, places, nullptr, &out), "create_indexed_block: of is NULL");
    missing(weir_layout_create_hindexed_block(2, 1, nullptr, of, &out), "create_hindexed_block: places_bytes is NULL");
    missing(weir_layout_create_hindexed_block(2, 1, places, nullptr, &out), "create_hindexed_block: of is NULL");
    missing(weir_layout_create_struct(2, nullptr, places, ofs, &out), "create_struct: lengths is NULL");
    missing(weir_layout_create_struct(2, n, nullptr, ofs, &out), "create_struct: places_bytes is NULL");
    missing(weir_layout_create_struct(2, n, places, nullptr, &out), "create_struct: of is NULL");
    missing(weir_layout_create_struct(2, n, places, ofs, nullptr), "create_struct: out is NULL");
    missing(weir_layout_create_subarray(2, nullptr, n, starts, WEIR_LAYOUT_C, of, &out),
            "create_subarray: sizes is NULL");
    missing(weir_layout_create_subarray(2, n, nullptr, starts, WEIR_LAYOUT_C, of, &out),
            "create_subarray: parts is NULL");
    missing(weir_layout_create_subarray(2, n, n, nullptr, WEIR_LAYOUT_C, of, &out), "create_subarray: starts is NULL");
    missing(weir_layout_create_subarray(2, n, n, starts, WEIR_LAYOUT_C, nullptr, &out), "create_subarray: of is NULL");
    missing(weir_layout_create_resized(0, 9, nullptr, &out), "create_resized: of is NULL");
}

// Sizes, places and bounds that reach 2^62 are accepted, and one byte more is not.
TEST(LayoutLimits, EveryCreateIsLimited)
{
    const int64_t most = static_cast<int64_t>(1) << 62;
    const uint64_t all = static_cast<uint64_t>(most);
    const weirt_layout item = weirt_build(weirt_bytes(1));
    const weirt_layout words = weirt_build(weirt_bytes(8));
    const weir_layout *of = item.get();
    const weir_layout *word = words.get();
    const uint64_t one[] = { 1 };
    const uint64_t eight[] = { 8 };
    const uint64_t start[] = { 0 };
    const weir_layout *const ofs[] = { of };
    weir_layout *out = nullptr;
    const auto fits = [&](weir_status status, uint64_t reach) {
        EXPECT_EQ(status, WEIR_OK) << weir_last_error();
        weir_layout_info info;
        weir_layout_get_info(out, &info);
        EXPECT_EQ(static_cast<uint64_t>(info.lb + info.extent), reach);
        weir_layout_destroy(out);
        out = nullptr;
    };
    const auto refused = [&](weir_status status, const char *call) {
        expect_refused(status, WEIR_ERR_RANGE, call);
        expect_refused(status, WEIR_ERR_RANGE, "2^62");
        EXPECT_EQ(out, nullptr) << call;
    };
    fits(weir_layout_create_bytes(all, &out), all);
    refused(weir_layout_create_bytes(all + 1, &out), "weir_layout_create_bytes");
    fits(weir_layout_create_contiguous(all / 8, word, &out), all);
    refused(weir_layout_create_contiguous(all / 8 + 1, word, &out), "weir_layout_create_contiguous");
    fits(weir_layout_create_vector(2, 1, most - 1, of, &out), all);
    refused(weir_layout_create_vector(2, 1, most, of, &out), "weir_layout_create_vector");
    fits(weir_layout_create_hvector(2, 1, most - 8, word, &out), all);
    refused(weir_layout_create_hvector(2, 1, most - 7, word, &out), "weir_layout_create_hvector");
    for (const int64_t place : { most - 8, most - 7 }) {
        const bool good = place == most - 8;
        const auto check = [&](weir_status status, const char *call) {
            good ? fits(status, all) : refused(status, call);
        };
        check(weir_layout_create_indexed(1, eight, &place, of, &out), "weir_layout_create_indexed");
        check(weir_layout_create_hindexed(1, eight, &place, of, &out), "weir_layout_create_hindexed");
        check(weir_layout_create_indexed_block(1, 8, &place, of, &out), "weir_layout_create_indexed_block");
        check(weir_layout_create_hindexed_block(1, 8, &place, of, &out), "weir_layout_create_hindexed_block");
        check(weir_layout_create_struct(1, eight, &place, ofs, &out), "weir_layout_create_struct");
    }
    for (const uint64_t size : { all / 8, all / 8 + 1 }) {
        const weir_status status = weir_layout_create_subarray(1, &size, one, start, WEIR_LAYOUT_C, word, &out);
        size == all / 8 ? fits(status, all) : refused(status, "weir_layout_create_subarray");
    }
    fits(weir_layout_create_resized(-most, most, of, &out), 0);
    refused(weir_layout_create_resized(1, most, of, &out), "weir_layout_create_resized");
    refused(weir_layout_create_resized(-most - 1, 0, of, &out), "weir_layout_create_resized");
    const weirt_layout wide = weirt_build(weirt_resized(0, most, weirt_bytes(1)));
    fits(weir_layout_create_dup(wide.get(), &out), all);
}

} // namespace
