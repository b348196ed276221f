// Device names, counts, settings, and the checks that weir/device.h and weir/stream.h make before any backend.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

extern "C" {
#include "src/device/device.h"
#include "src/host/base/alloc.h"
}
#include "weir/error.h"

namespace {

struct none_args {
    uint64_t value;
};

WEIR_KERNEL(nothing, none_args)
{
    (void)args;
    (void)coop;
}

bool says(const char *part) { return strstr(weir_last_error(), part) != nullptr; }

class Device : public ::testing::Test {
protected:
    void SetUp() override
    {
        alive = weiri_alloc_alive();
        ASSERT_EQ(weir_device_open("cpu:0", nullptr, &device), WEIR_OK) << weir_last_error();
        ASSERT_EQ(weir_stream_create(device, &stream), WEIR_OK) << weir_last_error();
    }

    void TearDown() override
    {
        weiri_device_fail_nth(0);
        weir_stream_destroy(device, stream);
        weir_device_close(device);
        EXPECT_EQ(weiri_alloc_alive(), alive);
    }

    int64_t alive = 0;
    weir_device *device = nullptr;
    void *stream = nullptr;
    none_args args = { 0 };
};

TEST(DeviceName, OnlyWholeNamesAreDevices)
{
    weir_device *device = nullptr;
    const char *const wrong[] = {
        "",       "cpu",    "cpu:",  ":0",      "cpu:-1",   "cpu:+1",         "cpu: 1",
        "cpu:1 ", "cpu:0x", "CPU:0", "cpu:00",  "cpus:0",   "cpu:0:0",        "cp:0",
        "tpu:0",  "gpu",    "0",     "gpu:one", "cpu:1024", "cpu:4294967296", "cpu:18446744073709551616"
    };
    for (const char *name : wrong) {
        EXPECT_EQ(weir_device_open(name, nullptr, &device), WEIR_ERR_INVALID) << name;
        EXPECT_EQ(device, nullptr) << name;
    }
    EXPECT_EQ(weir_device_open(nullptr, nullptr, &device), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_device_open("cpu:0", nullptr, nullptr), WEIR_ERR_INVALID);
    for (const char *name : { "cpu:0", "cpu:7", "cpu:1023" }) {
        ASSERT_EQ(weir_device_open(name, nullptr, &device), WEIR_OK) << weir_last_error();
        weir_device_info info;
        weir_device_get_info(device, &info, sizeof info);
        EXPECT_EQ(info.index, static_cast<uint32_t>(atoi(name + 4)));
        EXPECT_STREQ(info.kind, "cpu");
        EXPECT_EQ("CPU " + std::string(name + 4), info.label);
        weir_device_close(device);
    }
    weir_device_close(nullptr);
}

TEST(DeviceName, GpusThatAreNotThereAreUnsupportedWithAReason)
{
    uint32_t count = 77;
    weir_device *device = nullptr;
    ASSERT_EQ(weir_device_count("gpu", &count), WEIR_OK);
    if (count != 0) {
        GTEST_SKIP() << "there are GPUs";
    }
    EXPECT_EQ(weir_device_open("gpu:0", nullptr, &device), WEIR_ERR_UNSUPPORTED);
    EXPECT_TRUE(says("gpu:0")) << weir_last_error();
}

TEST(DeviceName, Counts)
{
    uint32_t count = 0;
    EXPECT_EQ(weir_device_count("cpu", &count), WEIR_OK);
    EXPECT_EQ(count, 1u);
    EXPECT_EQ(weir_device_count("cpux", &count), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_device_count("", &count), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_device_count(nullptr, &count), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_device_count("cpu", nullptr), WEIR_ERR_INVALID);
}

TEST(DeviceName, OptsOfOtherVersions)
{
    struct {
        weir_device_opts known;
        uint64_t unknown;
    } newer = { WEIR_OPTS(weir_device_opts), 0 };
    weir_device *device = nullptr;
    weir_device_info info;
    auto threads = [&]() -> uint32_t {
        EXPECT_EQ(weir_device_open("cpu:0", &newer.known, &device), WEIR_OK) << weir_last_error();
        weir_device_get_info(device, &info, sizeof info);
        weir_device_close(device);
        return info.resident_threads;
    };
    EXPECT_EQ(newer.known.size, sizeof(weir_device_opts));
    EXPECT_EQ(threads(), 64u);
    newer.known.cpu_threads = 3;
    EXPECT_EQ(threads(), 3u);
    newer.known.size = offsetof(weir_device_opts, cpu_threads); // of an older version, without the field
    EXPECT_EQ(threads(), 64u);
    newer.known.size = sizeof(newer);
    EXPECT_EQ(threads(), 3u);
    newer.unknown = 1;
    device = nullptr;
    EXPECT_EQ(weir_device_open("cpu:0", &newer.known, &device), WEIR_ERR_INVALID);
    EXPECT_EQ(device, nullptr);
    EXPECT_STREQ(weir_last_error(),
                 "weir_device_open: opts has a field that this libweir does not know, and it is not zero");
}

TEST(DeviceName, ThreadsOfOptsAndEnvironment)
{
    weir_device *device = nullptr;
    weir_device_info info;
    weir_device_opts opts = {};
    auto threads = [&]() -> uint32_t {
        EXPECT_EQ(weir_device_open("cpu:0", &opts, &device), WEIR_OK) << weir_last_error();
        weir_device_get_info(device, &info, sizeof info);
        weir_device_close(device);
        EXPECT_EQ(info.block_threads, info.resident_threads);
        return info.resident_threads;
    };
    EXPECT_EQ(weir_device_open("cpu:0", &opts, &device), WEIR_ERR_INVALID);
    opts.size = sizeof(opts);
    EXPECT_EQ(threads(), 64u);
    opts.cpu_threads = 3;
    EXPECT_EQ(threads(), 3u);
    opts.cpu_threads = 1024;
    EXPECT_EQ(threads(), 1024u);
    opts.cpu_threads = 1025;
    EXPECT_EQ(weir_device_open("cpu:0", &opts, &device), WEIR_ERR_LIMIT);
    opts.cpu_threads = 3;
    ASSERT_EQ(setenv("WEIR_CPU_THREADS", "17", 1), 0);
    EXPECT_EQ(threads(), 17u);
    for (const char *value : { "0", "1025", "x" }) {
        ASSERT_EQ(setenv("WEIR_CPU_THREADS", value, 1), 0);
        EXPECT_EQ(weir_device_open("cpu:0", &opts, &device), WEIR_ERR_ENV) << value;
        EXPECT_TRUE(says("WEIR_CPU_THREADS")) << weir_last_error();
    }
    ASSERT_EQ(unsetenv("WEIR_CPU_THREADS"), 0);
}

TEST_F(Device, InfoOfTheCpu)
{
    weir_device_info info;
    weir_device_info second;
    weir_device *other = nullptr;
    weir_device_get_info(device, &info, sizeof info);
    EXPECT_STREQ(info.kind, "cpu");
    EXPECT_NE(info.model[0], '\0');
    EXPECT_GT(info.memory_bytes, uint64_t(1) << 26);
    EXPECT_EQ(info.multiprocessors, 1u);
    EXPECT_FALSE(info.warps);
    EXPECT_FALSE(info.own_cores);
    EXPECT_FALSE(info.stream_copies);
    EXPECT_TRUE(info.atomic_to_host);
    EXPECT_EQ(info.driver_version, 0u);
    ASSERT_EQ(weir_device_open("cpu:9", nullptr, &other), WEIR_OK);
    weir_device_get_info(other, &second, sizeof second);
    EXPECT_EQ(memcmp(info.uuid, second.uuid, 16), 0);
    uint8_t zero[16] = {};
    EXPECT_NE(memcmp(info.uuid, zero, 16), 0);
    weir_device_close(other);
}

// A program that was compiled with an older or a newer weir/device.h.
TEST_F(Device, InfoFitsTheCallersStruct)
{
    weir_device_info all;
    struct {
        weir_device_info info;
        char newer[8];
    } given;
    const char *bytes = reinterpret_cast<const char *>(&given);
    weir_device_get_info(device, &all, sizeof all);
    for (size_t size : { offsetof(weir_device_info, model), sizeof all, sizeof given }) {
        const size_t known = size < sizeof all ? size : sizeof all;
        memset(&given, 0x5a, sizeof given);
        weir_device_get_info(device, &given.info, size);
        EXPECT_EQ(memcmp(bytes, &all, known), 0) << size;
        for (size_t i = known; i < sizeof given; i++) {
            EXPECT_EQ(bytes[i], i < size ? 0 : 0x5a) << size << ", byte " << i;
        }
    }
}

TEST_F(Device, NullArgumentsAreRefused)
{
    void *out = nullptr;
    double ms = 0;
    char byte = 0;
    weir_shape one = { 1, 1 };
    EXPECT_EQ(weir_stream_create(nullptr, &out), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_stream_create(device, nullptr), WEIR_ERR_INVALID);
    const weir_stream_limits limits = { sizeof limits, 1, 0 };
    EXPECT_EQ(weir_stream_create_limited(nullptr, &limits, &out), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_stream_create_limited(device, nullptr, &out), WEIR_ERR_INVALID);
    EXPECT_TRUE(says("weir_stream_create_limited: limits is NULL")) << weir_last_error();
    EXPECT_EQ(weir_stream_create_limited(device, &limits, nullptr), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_stream_wait(nullptr, stream, 0), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_stream_wait(nullptr, stream, 0), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_event_create(device, nullptr), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_event_record(device, nullptr, stream), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_event_record(nullptr, &byte, nullptr), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_stream_wait_event(device, stream, nullptr), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_event_elapsed(device, nullptr, &byte, &ms), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_event_elapsed(device, &byte, nullptr, &ms), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_event_elapsed(device, &byte, &byte, nullptr), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_graph_begin(device, nullptr), WEIR_ERR_INVALID);
    EXPECT_TRUE(says("legacy default stream")) << weir_last_error();
    EXPECT_EQ(weir_graph_end(device, stream, nullptr), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_graph_launch(device, nullptr, stream), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_kernel_load(device, nullptr), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_launch(nullptr, &nothing, one, &args, nullptr, stream), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_launch(device, nullptr, one, &args, nullptr, stream), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_launch(device, &nothing, one, nullptr, nullptr, stream), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_device_copy(device, nullptr, &byte, 1), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_device_copy(device, &byte, nullptr, 1), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_device_fill(device, nullptr, 0, 1), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_device_copy(device, nullptr, nullptr, 0), WEIR_OK);
    EXPECT_EQ(weir_device_fill(device, nullptr, 0, 0), WEIR_OK);
    EXPECT_EQ(weir_device_copy(nullptr, &byte, &byte, 1), WEIR_ERR_INVALID);
    weir_stream_destroy(device, nullptr);
    weir_event_destroy(device, nullptr);
    weir_graph_destroy(device, nullptr);
    weiri_block_release(nullptr);
}

TEST_F(Device, LimitedStreamsOfTheCpuAreOrdinary)
{
    void *limited = nullptr;
    weir_stream_limits limits = { sizeof limits, 1000000, -5 };
    ASSERT_EQ(weir_stream_create_limited(device, &limits, &limited), WEIR_OK) << weir_last_error();
    EXPECT_EQ(weir_stream_multiprocessors(device, limited), 1u);
    EXPECT_EQ(weir_stream_multiprocessors(device, stream), 1u);
    EXPECT_EQ(weir_launch(device, &nothing, { 2, 4 }, &args, nullptr, limited), WEIR_OK) << weir_last_error();
    EXPECT_EQ(weir_stream_wait(device, limited, 0), WEIR_OK) << weir_last_error();
    weir_stream_destroy(device, limited);
    limited = nullptr;
    limits.multiprocessors = 0;
    EXPECT_EQ(weir_stream_create_limited(device, &limits, &limited), WEIR_ERR_INVALID);
    EXPECT_TRUE(says("CPU 0: limits.multiprocessors is 0")) << weir_last_error();
    limits = { 0, 8, 0 };
    EXPECT_EQ(weir_stream_create_limited(device, &limits, &limited), WEIR_ERR_INVALID);
    EXPECT_TRUE(says("limits: opts.size")) << weir_last_error();
    EXPECT_EQ(limited, nullptr);
}

TEST_F(Device, LaunchesThatAreRefused)
{
    weir_launch_opts opts = {};
    for (weir_shape shape : { weir_shape{ 0, 1 }, weir_shape{ 1, 0 }, weir_shape{ 0, 0 } }) {
        EXPECT_EQ(weir_launch(device, &nothing, shape, &args, nullptr, stream), WEIR_ERR_INVALID);
    }
    EXPECT_EQ(weir_launch(device, &nothing, { 1, 1 }, &args, &opts, stream), WEIR_ERR_INVALID);
    weir_kernel kernel = nothing;
    kernel.version = WEIR_DEV_VERSION + 1;
    EXPECT_EQ(weir_launch(device, &kernel, { 1, 1 }, &args, nullptr, stream), WEIR_ERR_VERSION);
    EXPECT_EQ(weir_kernel_load(device, &kernel), WEIR_ERR_VERSION);
    // Another version of a noun that the kernel uses; of a noun that it does not use; an unknown noun.
    kernel = nothing;
    kernel.nouns[weir_dev_noun_memory_channel]++;
    EXPECT_EQ(weir_launch(device, &kernel, { 1, 1 }, &args, nullptr, stream), WEIR_ERR_VERSION);
    EXPECT_TRUE(says("kernel nothing: compiled with version 2 of weir_dev_memory_channel, not 1")) << weir_last_error();
    EXPECT_EQ(weir_kernel_load(device, &kernel), WEIR_ERR_VERSION);
    EXPECT_EQ(nothing.nouns[weir_dev_noun_memory_channel], weir_dev_version_memory_channel);
    EXPECT_EQ(nothing.nouns[weir_dev_noun_semaphore], weir_dev_version_semaphore);
    EXPECT_EQ(nothing.nouns[weir_dev_noun_port_channel], 0);
    EXPECT_EQ(nothing.nouns[weir_dev_noun_rails], 0);
    kernel = nothing;
    kernel.nouns[weir_dev_noun_rails] = weir_dev_version_rails + 1;
    EXPECT_EQ(weir_launch(device, &kernel, { 1, 1 }, &args, nullptr, stream), WEIR_ERR_VERSION);
    const std::string next = std::to_string(weir_dev_version_rails + 1);
    EXPECT_TRUE(says(("version " + next + " of weir_dev_rails").c_str())) << weir_last_error();
    EXPECT_EQ(weir_launch(device, &nothing, { 1, 1 }, &args, nullptr, stream), WEIR_OK);
    kernel = nothing;
    kernel.nouns[WEIR_DEV_NOUNS_MAX - 1] = 1;
    EXPECT_EQ(weir_launch(device, &kernel, { 1, 1 }, &args, nullptr, stream), WEIR_ERR_VERSION);
    kernel = nothing;
    kernel.args_bytes = WEIR_KERNEL_ARGS_MAX + 1;
    EXPECT_EQ(weir_launch(device, &kernel, { 1, 1 }, &args, nullptr, stream), WEIR_ERR_INVALID);
    kernel = nothing;
    kernel.cpu = nullptr;
    EXPECT_EQ(weir_launch(device, &kernel, { 1, 1 }, &args, nullptr, stream), WEIR_ERR_UNSUPPORTED);
    EXPECT_EQ(weir_kernel_load(device, &kernel), WEIR_ERR_UNSUPPORTED);
    EXPECT_TRUE(says("nothing")) << weir_last_error();
    EXPECT_EQ(weir_kernel_load(device, &nothing), WEIR_OK);
    EXPECT_EQ(weir_stream_wait(device, stream, 0), WEIR_OK);
}

TEST_F(Device, EveryOperationAsksTheFaultHook)
{
    char bytes[8] = {};
    void *out = nullptr;
    weiri_block *block = nullptr;
    weir_device *second = nullptr;
    auto fails = [&](weir_status status) { return status == WEIR_ERR_DEVICE && says("fault of a test"); };
    auto arm = []() { weiri_device_fail_nth(1); };
    arm();
    EXPECT_TRUE(fails(weir_device_open("cpu:0", nullptr, &second)));
    arm();
    EXPECT_TRUE(fails(weir_stream_create(device, &out)));
    arm();
    const weir_stream_limits limits = { sizeof limits, 1, 0 };
    EXPECT_TRUE(fails(weir_stream_create_limited(device, &limits, &out)));
    arm();
    EXPECT_TRUE(fails(weir_stream_wait(device, stream, 0)));
    arm();
    EXPECT_TRUE(fails(weir_event_create(device, &out)));
    arm();
    EXPECT_TRUE(fails(weir_event_record(device, bytes, stream)));
    arm();
    EXPECT_TRUE(fails(weir_graph_begin(device, stream)));
    arm();
    EXPECT_TRUE(fails(weir_graph_end(device, stream, &out)));
    arm();
    EXPECT_TRUE(fails(weir_graph_launch(device, bytes, stream)));
    arm();
    EXPECT_TRUE(fails(weir_kernel_load(device, &nothing)));
    arm();
    EXPECT_TRUE(fails(weir_launch(device, &nothing, { 1, 1 }, &args, nullptr, stream)));
    arm();
    EXPECT_TRUE(fails(weir_device_copy(device, bytes, bytes, 8)));
    arm();
    EXPECT_TRUE(fails(weir_device_fill(device, bytes, 1, 8)));
    EXPECT_EQ(bytes[0], 0);
    arm();
    EXPECT_TRUE(fails(weiri_device_allocate(device, WEIR_MEMORY_DEVICE, 8, &block)));
    arm();
    EXPECT_TRUE(fails(weiri_device_wrap(device, bytes, 8, &block)));
    EXPECT_EQ(block, nullptr);
    EXPECT_EQ(second, nullptr);
    weiri_device_fail_nth(3);
    EXPECT_EQ(weir_device_fill(device, bytes, 1, 8), WEIR_OK);
    EXPECT_EQ(weir_device_fill(device, bytes, 2, 8), WEIR_OK);
    EXPECT_TRUE(fails(weir_device_fill(device, bytes, 3, 8)));
    EXPECT_EQ(weir_device_fill(device, bytes, 4, 8), WEIR_OK);
    EXPECT_EQ(bytes[7], 4);
}

TEST_F(Device, ChildrenKeepTheDeviceAlive)
{
    weir_device *second = nullptr;
    void *own = nullptr;
    void *event = nullptr;
    weiri_block *block = nullptr;
    ASSERT_EQ(weir_device_open("cpu:1", nullptr, &second), WEIR_OK);
    ASSERT_EQ(weir_stream_create(second, &own), WEIR_OK);
    ASSERT_EQ(weir_event_create(second, &event), WEIR_OK);
    ASSERT_EQ(weiri_device_allocate(second, WEIR_MEMORY_DEVICE, 100, &block), WEIR_OK);
    weir_device_close(second);
    ASSERT_EQ(weir_launch(second, &nothing, { 1, 2 }, &args, nullptr, own), WEIR_OK);
    ASSERT_EQ(weir_event_record(second, event, own), WEIR_OK);
    weir_event_destroy(second, event);
    weiri_block_release(block);
    weir_stream_destroy(second, own);
}

TEST_F(Device, FailedAllocationsLeaveNothing)
{
    uint32_t failures = 0;
    for (uint64_t n = 1; n < 40; n++) {
        weir_device *second = nullptr;
        void *own = nullptr;
        weiri_block *block = nullptr;
        weiri_alloc_fail_nth(n);
        weir_status status = weir_device_open("cpu:2", nullptr, &second);
        if (status == WEIR_OK) {
            status = weir_stream_create(second, &own);
        }
        if (status == WEIR_OK) {
            status = weiri_device_allocate(second, WEIR_MEMORY_DEVICE, 100, &block);
        }
        if (status == WEIR_OK) {
            status = weir_launch(second, &nothing, { 2, 2 }, &args, nullptr, own);
        }
        weiri_alloc_fail_nth(0);
        if (own != nullptr) {
            EXPECT_EQ(weir_stream_wait(second, own, 0), WEIR_OK);
        }
        weiri_block_release(block);
        weir_stream_destroy(second, own);
        weir_device_close(second);
        if (status == WEIR_OK) {
            break;
        }
        ASSERT_EQ(status, WEIR_ERR_NOMEM) << n << ": " << weir_last_error();
        failures++;
    }
    EXPECT_GE(failures, 8u);
    EXPECT_LT(failures, 30u);
}

TEST_F(Device, ForkedChildrenAreRefusedAndMayDestroy)
{
    void *event = nullptr;
    weiri_block *block = nullptr;
    ASSERT_EQ(weir_event_create(device, &event), WEIR_OK);
    ASSERT_EQ(weiri_device_allocate(device, WEIR_MEMORY_DEVICE, 100, &block), WEIR_OK);
    ASSERT_EQ(weir_launch(device, &nothing, { 2, 4 }, &args, nullptr, stream), WEIR_OK);
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        int wrong = weir_launch(device, &nothing, { 1, 1 }, &args, nullptr, stream) != WEIR_ERR_FORKED;
        wrong |= weir_stream_wait(device, stream, 0) != WEIR_ERR_FORKED;
        wrong |= weir_event_record(device, event, stream) != WEIR_ERR_FORKED;
        wrong |= weiri_device_wrap(device, &args, 8, &block) != WEIR_ERR_FORKED;
        weiri_block_release(block);
        weir_event_destroy(device, event);
        weir_stream_destroy(device, stream);
        weir_device_close(device);
        _exit(wrong);
    }
    int state = 0;
    uint32_t waited_ms = 0;
    while (waitpid(child, &state, WNOHANG) == 0 && waited_ms < 30000) {
        usleep(10000);
        waited_ms += 10;
    }
    EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0) << state << " after " << waited_ms << " ms";
    EXPECT_EQ(weir_stream_wait(device, stream, 0), WEIR_OK);
    weiri_block_release(block);
    weir_event_destroy(device, event);
}

} // namespace
