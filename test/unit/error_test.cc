// Statuses as text, and the calling thread's error text.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <string>
#include <thread>

#include <weir/error.h>

extern "C" {
#include "src/host/base/error.h"
}

namespace {

const weir_status all[] = {
#define STATUS(name, value, text) WEIR_##name,
    WEIR_STATUS_MAP(STATUS)
#undef STATUS
};

TEST(Error, EveryStatusHasItsOwnNameAndText)
{
    std::set<std::string> names;
    std::set<std::string> texts;
    for (weir_status status : all) {
        names.insert(weir_status_name(status));
        texts.insert(weir_status_text(status));
        EXPECT_EQ(std::string(weir_status_name(status)).rfind("WEIR_", 0), 0u);
        EXPECT_NE(weir_status_text(status)[0], '\0');
    }
    EXPECT_EQ(names.size(), sizeof all / sizeof all[0]);
    EXPECT_EQ(texts.size(), sizeof all / sizeof all[0]);
    EXPECT_EQ(names.count("WEIR_UNKNOWN"), 0u);
    EXPECT_EQ(texts.count("unknown status"), 0u);
}

TEST(Error, NamesAndTextsAreThoseOfTheHeader)
{
    EXPECT_STREQ(weir_status_name(WEIR_OK), "WEIR_OK");
    EXPECT_STREQ(weir_status_name(WEIR_PENDING), "WEIR_PENDING");
    EXPECT_STREQ(weir_status_name(WEIR_ERR_TIMEOUT), "WEIR_ERR_TIMEOUT");
    EXPECT_STREQ(weir_status_text(WEIR_ERR_TIMEOUT), "the deadline passed");
    EXPECT_STREQ(weir_status_text(WEIR_ERR_MISMATCH), "ranks differ in their calls or in their values");
}

TEST(Error, OkIsZeroPendingIsTheOnlyPositive)
{
    for (weir_status status : all) {
        EXPECT_EQ(status > 0, status == WEIR_PENDING);
        EXPECT_EQ(status == 0, status == WEIR_OK);
        EXPECT_GT(static_cast<int>(status), static_cast<int>(WEIR_STATUS_FIRST_UNUSED));
    }
}

TEST(Error, ValuesThatAreNoStatusAreUnknown)
{
    for (int value : { 2, 7, 31, static_cast<int>(WEIR_STATUS_FIRST_UNUSED), -31 }) {
        EXPECT_STREQ(weir_status_name(static_cast<weir_status>(value)), "WEIR_UNKNOWN");
        EXPECT_STREQ(weir_status_text(static_cast<weir_status>(value)), "unknown status");
    }
}

TEST(Error, VersionIsThatOfTheHeaders)
{
    EXPECT_STREQ(weir_version(), WEIR_VERSION_STRING);
    EXPECT_EQ(std::string(weir_version()), std::to_string(WEIR_VERSION_MAJOR) + "." +
                                               std::to_string(WEIR_VERSION_MINOR) + "." +
                                               std::to_string(WEIR_VERSION_PATCH));
}

TEST(Error, FailSetsTextReturnsStatusAndKeepsErrno)
{
    errno = EXDEV;
    EXPECT_EQ(weiri_fail(WEIR_ERR_RANGE, "memory: offset %d beyond %d", 9, 8), WEIR_ERR_RANGE);
    EXPECT_EQ(errno, EXDEV);
    EXPECT_STREQ(weir_last_error(), "memory: offset 9 beyond 8");
    EXPECT_EQ(weiri_fail(WEIR_ERR_BUSY, "next"), WEIR_ERR_BUSY);
    EXPECT_STREQ(weir_last_error(), "next");
}

TEST(Error, ErrnoTextIsAppended)
{
    errno = EXDEV;
    EXPECT_EQ(weiri_fail_errno(ENOENT, "file %s: open", "a"), WEIR_ERR_SYSTEM);
    EXPECT_EQ(errno, EXDEV);
    EXPECT_EQ(std::string(weir_last_error()), std::string("file a: open: ") + std::strerror(ENOENT));
    EXPECT_EQ(weiri_fail_errno(ENOMEM, "file %s: map", "a"), WEIR_ERR_NOMEM);
    EXPECT_EQ(std::string(weir_last_error()), std::string("file a: map: ") + std::strerror(ENOMEM));
    EXPECT_EQ(weiri_fail_errno(99999, "x"), WEIR_ERR_SYSTEM);
    EXPECT_NE(std::string(weir_last_error()).find("99999"), std::string::npos);
}

TEST(Error, NomemNamesTheObject)
{
    EXPECT_EQ(weiri_fail_nomem("service"), WEIR_ERR_NOMEM);
    EXPECT_STREQ(weir_last_error(), "service: out of memory");
}

TEST(Error, LongTextIsCutWithDots)
{
    const std::string fits(511, 'x');
    weir_status status = weiri_fail(WEIR_ERR_INVALID, "%s", fits.c_str());
    EXPECT_EQ(status, WEIR_ERR_INVALID);
    EXPECT_EQ(std::string(weir_last_error()), fits);

    const std::string cut = std::string(508, 'x') + "...";
    for (size_t length : { 512u, 513u, 5000u }) {
        status = weiri_fail(WEIR_ERR_INVALID, "%s", std::string(length, 'x').c_str());
        EXPECT_EQ(std::string(weir_last_error()), cut);
    }
    /* Only the errno text may be too long. */
    for (size_t length = 480; length < 515; length++) {
        const std::string prefix(length, 'x');
        status = weiri_fail_errno(ENOENT, "%s", prefix.c_str());
        std::string expected = prefix + ": " + std::strerror(ENOENT);
        if (expected.size() > 511) {
            expected = expected.substr(0, 508) + "...";
        }
        EXPECT_EQ(std::string(weir_last_error()), expected);
    }
}

TEST(Error, OldTextMayBePartOfTheNew)
{
    weir_status status = weiri_fail(WEIR_ERR_REMOTE, "rank 1: gone");
    status = weiri_fail(status, "connect: %s", weir_last_error());
    EXPECT_EQ(status, WEIR_ERR_REMOTE);
    EXPECT_STREQ(weir_last_error(), "connect: rank 1: gone");
}

TEST(Error, TextIsTheThreadsOwn)
{
    weir_status status = weiri_fail(WEIR_ERR_INVALID, "of the first thread");
    EXPECT_EQ(status, WEIR_ERR_INVALID);
    std::string before;
    std::string after;
    std::thread other([&] {
        before = weir_last_error();
        weir_status failed = weiri_fail(WEIR_ERR_INVALID, "of the second thread");
        (void)failed;
        after = weir_last_error();
    });
    other.join();
    EXPECT_EQ(before, "");
    EXPECT_EQ(after, "of the second thread");
    EXPECT_STREQ(weir_last_error(), "of the first thread");
}

struct small_opts {
    size_t size;
    uint32_t a;
    uint32_t b;
};
struct large_opts {
    size_t size;
    uint32_t a;
    uint32_t b;
    uint64_t c;
};

TEST(Error, OptsCopyTakesWhatBothKnow)
{
    large_opts ours;
    std::memset(&ours, 0xff, sizeof ours);
    weiri_opts_copy(&ours, sizeof ours, nullptr);
    EXPECT_EQ(ours.size + ours.a + ours.b + ours.c, 0u);

    const small_opts older = { sizeof older, 1, 2 };
    std::memset(&ours, 0xff, sizeof ours);
    weiri_opts_copy(&ours, sizeof ours, &older);
    EXPECT_EQ(ours.a, 1u);
    EXPECT_EQ(ours.b, 2u);
    EXPECT_EQ(ours.c, 0u);

    struct {
        small_opts opts;
        uint32_t guard;
    } to = { { 0, 0, 0 }, 77 };
    const large_opts newer = { sizeof newer, 3, 4, 5 };
    weiri_opts_copy(&to.opts, sizeof to.opts, &newer);
    EXPECT_EQ(to.opts.a, 3u);
    EXPECT_EQ(to.opts.b, 4u);
    EXPECT_EQ(to.guard, 77u);
}

TEST(Error, OptsThatCannotBeReadAreRefused)
{
    const small_opts none = { 0, 1, 2 };
    const small_opts partial = { sizeof(size_t) - 1, 1, 2 };
    const small_opts least = { sizeof(size_t), 1, 2 };
    const small_opts endless = { WEIR_OPTS_MAX + 1, 1, 2 };
    const small_opts *null = nullptr;
    EXPECT_STREQ(WEIRI_OPTS_ERROR(&none), "opts.size is not set");
    EXPECT_STREQ(WEIRI_OPTS_ERROR(&partial), "opts.size is not set");
    EXPECT_STREQ(WEIRI_OPTS_ERROR(&endless), "opts.size is too large");
    EXPECT_TRUE(WEIRI_OPTS_OK(&least));
    EXPECT_TRUE(WEIRI_OPTS_OK(null));

    small_opts ours;
    weiri_opts_copy(&ours, sizeof ours, &least);
    EXPECT_EQ(ours.a, 0u);
    EXPECT_EQ(ours.b, 0u);
}

TEST(Error, LongerOptsAreReadWhileTheirUnknownBytesAreZero)
{
    struct {
        small_opts known;
        unsigned char rest[WEIR_OPTS_MAX - sizeof(small_opts)];
    } longer = {};
    for (size_t size : { sizeof(small_opts) + 1, sizeof(small_opts) + 8, size_t(WEIR_OPTS_MAX) }) {
        longer.known = { size, 1, 2 };
        EXPECT_TRUE(WEIRI_OPTS_OK(&longer.known)) << size;
        const size_t last = size - sizeof(small_opts) - 1;
        longer.rest[last] = 1;
        EXPECT_STREQ(WEIRI_OPTS_ERROR(&longer.known),
                     "opts has a field that this libweir does not know, and it is not zero")
            << size;
        longer.known.size = size - 1;
        EXPECT_TRUE(WEIRI_OPTS_OK(&longer.known)) << "a byte behind " << size - 1;
        longer.rest[last] = 0;
    }
}

} // namespace
