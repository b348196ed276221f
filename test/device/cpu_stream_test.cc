// Streams of the CPU device that wait for events, its default stream, and its memory for programs.
#include <gtest/gtest.h>

#include <string>
#include <vector>

extern "C" {
#include "src/device/device.h"
}
#include "test/harness/checks.h"
#include "weir/error.h"

namespace {

struct note_args {
    uint64_t *gate; // the kernel ends when it is not 0; NULL: at once
    uint64_t *clock;
    uint64_t *time; // when the kernel ended
};

WEIR_KERNEL(note, note_args)
{
    uint32_t reads = 0;
    while (args->gate != nullptr && weir_arch_load_acquire_sys_u64(args->gate) == 0) {
        weir_cpu_relax(++reads);
    }
    *args->time = __atomic_add_fetch(args->clock, 1, __ATOMIC_RELAXED);
    (void)coop;
}

class CpuStream : public ::testing::Test {
protected:
    void SetUp() override
    {
        ASSERT_EQ(weir_device_open("cpu:0", nullptr, &device), WEIR_OK);
        for (int i = 0; i < 2; i++) {
            ASSERT_EQ(weir_stream_create(device, &streams[i]), WEIR_OK);
            ASSERT_EQ(weir_event_create(device, &events[i]), WEIR_OK);
        }
    }
    void TearDown() override
    {
        for (int i = 0; i < 2; i++) {
            weir_stream_destroy(device, streams[i]);
            weir_event_destroy(device, events[i]);
        }
        weir_device_close(device);
    }
    void put(uint64_t *time, void *stream, bool waits = false)
    {
        const note_args args = { waits ? &gate : nullptr, &clock, time };
        ASSERT_EQ(weir_launch(device, &note, { 1, 1 }, &args, nullptr, stream), WEIR_OK) << weir_last_error();
    }
    void record(int event, void *stream) { ASSERT_EQ(weir_event_record(device, events[event], stream), WEIR_OK); }
    void wait(int event, void *stream) { ASSERT_EQ(weir_stream_wait_event(device, stream, events[event]), WEIR_OK); }
    void finish(void *stream) { ASSERT_EQ(weir_stream_wait(device, stream, 0), WEIR_OK) << weir_last_error(); }
    void open_gate() { __atomic_store_n(&gate, 1, __ATOMIC_RELEASE); }

    weir_device *device = nullptr;
    void *streams[2] = {};
    void *events[2] = {};
    uint64_t gate = 0;
    uint64_t clock = 0;
    uint64_t times[4] = {};
};

TEST_F(CpuStream, WaitsForTheLatestRecordBeforeTheCall)
{
    wait(0, streams[1]); // never recorded
    put(&times[0], streams[1]);
    finish(streams[1]);
    put(&times[1], streams[0], true);
    record(0, streams[0]);
    wait(0, streams[1]);
    put(&times[2], streams[1]);
    EXPECT_EQ(weir_stream_wait(device, streams[1], 100), WEIR_ERR_TIMEOUT);
    EXPECT_EQ(__atomic_load_n(&times[2], __ATOMIC_RELAXED), 0u);
    // A later record does not count.
    open_gate();
    finish(streams[1]);
    EXPECT_EQ(times[0], 1u);
    EXPECT_EQ(times[1], 2u);
    EXPECT_EQ(times[2], 3u);
    gate = 0;
    put(&times[3], streams[0]);
    finish(streams[0]);
    wait(0, streams[1]);
    put(&times[1], streams[0], true);
    record(0, streams[0]);
    finish(streams[1]);
    open_gate();
}

// Each launch of a graph waits for the record before the launch, and its own records count for later waits.
TEST_F(CpuStream, OperationsOutsideOfAGraph)
{
    void *graph = nullptr;
    uint64_t id = 0;
    ASSERT_EQ(weiri_stream_recording(device, streams[0], &id), WEIR_OK);
    EXPECT_EQ(id, 0u);
    ASSERT_EQ(weir_graph_begin(device, streams[0]), WEIR_OK);
    ASSERT_EQ(weiri_stream_recording(device, streams[0], &id), WEIR_OK);
    EXPECT_NE(id, 0u);
    ASSERT_EQ(weiri_stream_wait_event_outside(device, streams[0], events[0]), WEIR_OK);
    put(&times[1], streams[0]);
    ASSERT_EQ(weiri_event_record_outside(device, events[0], streams[0]), WEIR_OK);
    ASSERT_EQ(weir_graph_end(device, streams[0], &graph), WEIR_OK);
    put(&times[0], streams[1], true);
    record(0, streams[1]);
    ASSERT_EQ(weir_graph_launch(device, graph, streams[0]), WEIR_OK);
    wait(0, streams[1]);
    put(&times[2], streams[1]);
    EXPECT_EQ(weir_stream_wait(device, streams[0], 100), WEIR_ERR_TIMEOUT);
    open_gate();
    finish(streams[1]);
    EXPECT_EQ(times[0], 1u);
    EXPECT_EQ(times[1], 2u);
    EXPECT_EQ(times[2], 3u);
    ASSERT_EQ(weir_graph_launch(device, graph, streams[0]), WEIR_OK);
    ASSERT_EQ(weir_graph_launch(device, graph, streams[0]), WEIR_OK);
    weir_graph_destroy(device, graph);
    finish(streams[0]);
    EXPECT_EQ(times[1], 5u);
}

TEST_F(CpuStream, MisuseOfRecordings)
{
    void *graph = nullptr;
    record(0, streams[0]);
    ASSERT_EQ(weir_graph_begin(device, streams[1]), WEIR_OK);
    EXPECT_EQ(weir_stream_wait_event(device, streams[1], events[0]), WEIR_ERR_INVALID);
    EXPECT_NE(std::string(weir_last_error()).find("the event is not a part of it"), std::string::npos);
    record(1, streams[1]);
    wait(1, streams[0]);
    EXPECT_EQ(weir_graph_end(device, streams[0], &graph), WEIR_ERR_INVALID);
    EXPECT_NE(std::string(weir_last_error()).find("did not begin the graph"), std::string::npos);
    EXPECT_EQ(weir_graph_begin(device, streams[0]), WEIR_ERR_INVALID);
    wait(1, streams[0]); // again
    put(&times[0], streams[0]);
    void *third = nullptr;
    ASSERT_EQ(weir_stream_create(device, &third), WEIR_OK);
    ASSERT_EQ(weir_graph_begin(device, third), WEIR_OK);
    EXPECT_EQ(weir_stream_wait_event(device, third, events[1]), WEIR_ERR_INVALID);
    EXPECT_NE(std::string(weir_last_error()).find("different graphs"), std::string::npos);
    weir_stream_destroy(device, third);
    ASSERT_EQ(weir_graph_end(device, streams[1], &graph), WEIR_OK);
    EXPECT_EQ(times[0], 0u);
    ASSERT_EQ(weir_graph_launch(device, graph, streams[0]), WEIR_OK);
    finish(streams[0]);
    EXPECT_EQ(times[0], 1u);
    weir_graph_destroy(device, graph);
}

// All three handles are one stream, which is the device's own.
TEST_F(CpuStream, DefaultStreamIsOne)
{
    put(&times[0], nullptr, true);
    put(&times[1], reinterpret_cast<void *>(1));
    put(&times[2], reinterpret_cast<void *>(2));
    EXPECT_EQ(weir_stream_wait(device, nullptr, 100), WEIR_ERR_TIMEOUT);
    EXPECT_NE(std::string(weir_last_error()).find("3 operations"), std::string::npos) << weir_last_error();
    weir_stream_destroy(device, nullptr);
    weir_stream_destroy(device, reinterpret_cast<void *>(1));
    weir_stream_destroy(device, reinterpret_cast<void *>(2));
    open_gate();
    finish(reinterpret_cast<void *>(2));
    EXPECT_EQ(times[0], 1u);
    EXPECT_EQ(times[1], 2u);
    EXPECT_EQ(times[2], 3u);
    EXPECT_EQ(weir_graph_begin(device, nullptr), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_graph_begin(device, reinterpret_cast<void *>(1)), WEIR_ERR_INVALID);
    void *graph = nullptr;
    ASSERT_EQ(weir_graph_begin(device, reinterpret_cast<void *>(2)), WEIR_OK);
    ASSERT_EQ(weir_graph_end(device, reinterpret_cast<void *>(2), &graph), WEIR_OK);
    weir_graph_destroy(device, graph);
}

TEST_F(CpuStream, MemoryForPrograms)
{
    void *out = nullptr;
    for (uint64_t n = 1;; n++) { // the n-th allocation fails
        weirt_fail_allocation(n);
        const weir_status status = weir_device_allocate(device, 5000, &out);
        const bool unused = weirt_fail_allocation(0) != 0;
        if (status == WEIR_OK) {
            EXPECT_TRUE(unused);
            break;
        }
        EXPECT_EQ(status, WEIR_ERR_NOMEM);
        EXPECT_EQ(out, nullptr);
    }
    for (int i = 0; i < 5000; i++) {
        ASSERT_EQ(static_cast<char *>(out)[i], 0);
    }
    void *second = nullptr;
    weirt_fail_device(2);
    EXPECT_EQ(weir_device_allocate(device, 5000, &second), WEIR_ERR_DEVICE);
    weirt_fail_device(0);
    ASSERT_EQ(weir_device_allocate(device, 1, &second), WEIR_OK);
    EXPECT_NE(second, out);
    weir_device_free(device, out);
    ASSERT_EQ(weir_device_allocate_host(device, 100, &out), WEIR_OK);
    EXPECT_EQ(static_cast<char *>(out)[99], 0);
    weir_device_free(device, out);
    EXPECT_EQ(weir_device_allocate_host(device, 0, &out), WEIR_ERR_INVALID);
    weirt_checks checks;
    weirt_checks_begin(&checks);
    weirt_log_allow("is not memory of weir_device_allocate");
    weir_device_free(device, static_cast<char *>(second) + 1);
    EXPECT_EQ(weirt_log_count("is not memory of weir_device_allocate"), 1u);
    weirt_checks_end(
        &checks, false, [](void *, const char *text) { ADD_FAILURE() << text; }, nullptr);
    weir_device_free(device, nullptr);
    weir_device_free(device, second);
}

TEST_F(CpuStream, LocateMemory)
{
    weir_device_place place;
    weir_device *other = nullptr;
    void *mine = nullptr;
    void *host = nullptr;
    ASSERT_EQ(weir_device_open("cpu:17", nullptr, &other), WEIR_OK);
    ASSERT_EQ(weir_device_allocate(other, 5000, &mine), WEIR_OK);
    ASSERT_EQ(weir_device_allocate_host(device, 5000, &host), WEIR_OK);
    for (uint64_t offset : { 0u, 1u, 4999u }) {
        ASSERT_EQ(weir_device_locate(static_cast<char *>(mine) + offset, &place), WEIR_OK);
        EXPECT_STREQ(place.device, "cpu:17");
        EXPECT_EQ(place.kind, WEIR_MEMORY_DEVICE);
        ASSERT_EQ(weir_device_locate(static_cast<char *>(host) + offset, &place), WEIR_OK);
        EXPECT_STREQ(place.device, "cpu:0");
        EXPECT_EQ(place.kind, WEIR_MEMORY_HOST);
    }
    std::vector<char> plain(100);
    const void *const others[] = { plain.data(), &place,
                                   nullptr,      reinterpret_cast<void *>(UINTPTR_MAX),
                                   "text",       static_cast<char *>(mine) - 1 };
    for (const void *pointer : others) {
        ASSERT_EQ(weir_device_locate(pointer, &place), WEIR_OK);
        EXPECT_NE(place.device, std::string("cpu:17"));
        if (pointer != others[5]) { // the byte before may belong to the other allocation
            EXPECT_STREQ(place.device, "");
            EXPECT_EQ(place.kind, WEIR_MEMORY_HOST);
        }
    }
    weir_device_free(other, mine);
    ASSERT_EQ(weir_device_locate(mine, &place), WEIR_OK);
    EXPECT_STREQ(place.device, "") << "freed memory";
    weir_device_free(device, host);
    weir_device_close(other);
    EXPECT_EQ(weir_device_locate(mine, nullptr), WEIR_ERR_INVALID);
}

} // namespace
