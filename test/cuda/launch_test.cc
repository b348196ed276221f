// Kernels of the GPU backend, over a driver whose kernels do nothing: which function a launch names, what a fork
// leaves alone, how many calls of the driver an operation makes, and threads that stay in a context. Needs no GPU.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "weir/collective.h"
#include "weir/device/request.h"
#include "weir/weir.h"

#include "test/cuda/fake_cuda.h"
#include "test/cuda/fake_kernel.h"

extern "C" {
#include "src/device/device.h"
#include "src/host/base/alloc.h"
}

namespace {

// libweir reads the variable when it first looks for GPUs.
const int fake_library = setenv("WEIR_CUDA_LIBRARY", WEIRT_FAKE_CUDA, 1);

constexpr weir_shape shape = { 1, 32 };
constexpr uint8_t args[WEIRT_FAKE_ARGS] = {};

// The answer of the CUDA runtime about the kernel that is loaded next.
thread_local void *next_function;
thread_local int next_error;

int give(void **function)
{
    *function = next_function;
    return next_error;
}

void *function_of(size_t i) { return reinterpret_cast<void *>(static_cast<uintptr_t>(0x100000 + 16 * i)); }

struct kernels {
    explicit kernels(size_t count) : all(count, weirt_fake_kernel(give)) {}
    std::vector<weir_kernel> all;
};

class Gpu : public ::testing::Test {
protected:
    void SetUp() override { ASSERT_EQ(weir_device_open("gpu:0", nullptr, &device), WEIR_OK) << weir_last_error(); }
    void TearDown() override { weir_device_close(device); }

    void load(const weir_kernel &kernel, size_t number)
    {
        next_function = function_of(number);
        next_error = 0;
        ASSERT_EQ(weir_kernel_load(device, &kernel), WEIR_OK) << weir_last_error();
    }
    void expect_launch(const weir_kernel &kernel, size_t number)
    {
        ASSERT_EQ(weir_launch(device, &kernel, shape, args, nullptr, nullptr), WEIR_OK) << weir_last_error();
        ASSERT_EQ(fake_cuda_launched(), function_of(number));
    }

    weir_device *device = nullptr;
};

TEST_F(Gpu, EachKernelLaunchesItsOwnFunction)
{
    const kernels k(3000); // the table grows several times
    for (size_t i = 0; i < k.all.size(); i++) {
        load(k.all[i], i);
        expect_launch(k.all[i / 2], i / 2);
    }
    for (size_t i = 0; i < k.all.size(); i++) {
        const size_t at = i * 1009 % k.all.size();
        expect_launch(k.all[at], at);
    }
}

TEST_F(Gpu, KernelsLoadWhileOthersAreLaunched)
{
    const kernels k(2000);
    const size_t before = 100;
    for (size_t i = 0; i < before; i++) {
        load(k.all[i], i);
    }
    std::thread loader([&] {
        for (size_t i = before; i < k.all.size(); i++) {
            load(k.all[i], i);
            expect_launch(k.all[i], i);
        }
    });
    for (size_t i = 0; i < 20000; i++) {
        expect_launch(k.all[i % before], i % before);
    }
    loader.join();
}

// Each kernel still launches its function.
TEST_F(Gpu, TwoThreadsMayLoadTheSameKernel)
{
    const kernels k(500);
    std::array<std::thread, 2> threads;
    for (std::thread &thread : threads) {
        thread = std::thread([&] {
            for (size_t i = 0; i < k.all.size(); i++) {
                load(k.all[i], i);
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    for (size_t i = 0; i < k.all.size(); i++) {
        expect_launch(k.all[i], i);
    }
}

TEST_F(Gpu, AKernelThatCannotBeLoadedIsTriedAgain)
{
    const kernels k(1);
    next_error = 98;
    next_function = nullptr;
    EXPECT_EQ(weir_kernel_load(device, k.all.data()), WEIR_ERR_DEVICE);
    EXPECT_STREQ(weir_last_error(), "weir_kernel_load: gpu:0: kernel of_a_test: CUDA runtime error 98");
    EXPECT_EQ(weir_launch(device, k.all.data(), shape, args, nullptr, nullptr), WEIR_ERR_DEVICE);
    load(k.all[0], 7);
    expect_launch(k.all[0], 7);
}

// A load that needs a longer table fails without memory. Earlier kernels still launch, and a later load succeeds.
TEST_F(Gpu, ATableThatCannotGrowStaysAsItIs)
{
    const kernels k(3000);
    size_t failed = 0;
    for (size_t i = 0; i < k.all.size(); i++) {
        next_function = function_of(i);
        next_error = 0;
        (void)weiri_alloc_fail_nth(1);
        const weir_status status = weir_kernel_load(device, &k.all[i]);
        (void)weiri_alloc_fail_nth(0);
        if (status != WEIR_OK) {
            failed++;
            ASSERT_EQ(status, WEIR_ERR_NOMEM) << weir_last_error();
            if (i > 0) {
                expect_launch(k.all[i / 2], i / 2);
            }
            load(k.all[i], i);
        }
        expect_launch(k.all[i], i);
    }
    EXPECT_GT(failed, 0u);
    EXPECT_LT(failed, 8u);
}

// The child's destroy makes no call of the driver that frees the parent's streams.
TEST_F(Gpu, StreamsOutliveTheirDestroyInAFork)
{
    const weir_stream_limits limits = { sizeof limits, 8, 0 };
    void *streams[2] = {};
    ASSERT_EQ(weir_stream_create(device, &streams[0]), WEIR_OK) << weir_last_error();
    const weir_status cut = weir_stream_create_limited(device, &limits, &streams[1]);
    ASSERT_TRUE(cut == WEIR_OK || cut == WEIR_ERR_UNSUPPORTED) << weir_last_error();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        const long alive = fake_cuda_alive();
        weir_stream_destroy(device, streams[1]);
        weir_stream_destroy(device, streams[0]);
        weir_device_close(device);
        _exit(fake_cuda_alive() == alive ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT_TRUE(cut != WEIR_OK || weir_stream_multiprocessors(device, streams[1]) == 8);
    weir_stream_destroy(device, streams[1]);
    weir_stream_destroy(device, streams[0]);
}

// The calls of the driver that a copy on a stream makes, or 0 if it fails.
unsigned calls_of_a_copy(weir_device *device, void *stream)
{
    const char from[16] = "copied";
    char to[16] = "";
    const unsigned before = fake_cuda_calls();
    const weir_status status = device->ops->copy_async(device, stream, to, from, sizeof to);
    const unsigned calls = fake_cuda_calls() - before;
    return status == WEIR_OK && std::string(to) == from ? calls : 0;
}

constexpr unsigned INSIDE = 2;  // the copy, and which context is current
constexpr unsigned OUTSIDE = 5; // the copy, and two calls each that enter and leave

TEST_F(Gpu, AThreadThatStaysInAContextMakesTwoCallsForACopy)
{
    EXPECT_EQ(calls_of_a_copy(device, nullptr), OUTSIDE);
    device->ops->thread_enter(device);
    EXPECT_EQ(calls_of_a_copy(device, nullptr), INSIDE);
    EXPECT_EQ(calls_of_a_copy(device, nullptr), INSIDE);
    device->ops->thread_leave(device);
    EXPECT_EQ(fake_cuda_inside(), 0u);
    EXPECT_EQ(calls_of_a_copy(device, nullptr), OUTSIDE);
}

TEST_F(Gpu, AThreadThatStaysInAContextEntersAnotherDevices)
{
    weir_device *other = nullptr;
    ASSERT_EQ(weir_device_open("gpu:1", nullptr, &other), WEIR_OK) << weir_last_error();
    device->ops->thread_enter(device);
    EXPECT_EQ(calls_of_a_copy(other, nullptr), OUTSIDE);
    EXPECT_EQ(calls_of_a_copy(device, nullptr), INSIDE);
    device->ops->thread_leave(device);
    EXPECT_EQ(fake_cuda_inside(), 0u);
    weir_device_close(other);
}

// A callback of the user may call cudaSetDevice on a proxy's thread.
TEST_F(Gpu, AThreadWhoseContextWasReplacedEntersInEachCall)
{
    device->ops->thread_enter(device);
    fake_cuda_replace_context();
    EXPECT_EQ(calls_of_a_copy(device, nullptr), OUTSIDE + 1);
    device->ops->thread_leave(device);
    EXPECT_EQ(fake_cuda_inside(), 0u);
}

TEST_F(Gpu, AThreadThatCannotStayInAContextEntersInEachCall)
{
    for (unsigned n = 1; n <= 2; n++) {
        (void)fake_cuda_fail_nth(FAKE_CUDA_ENTER, n);
        device->ops->thread_enter(device);
        EXPECT_EQ(fake_cuda_fail_nth(FAKE_CUDA_ENTER, 0), 0u);
        EXPECT_EQ(calls_of_a_copy(device, nullptr), OUTSIDE);
        device->ops->thread_leave(device);
        EXPECT_EQ(fake_cuda_inside(), 0u);
    }
}

// What a handler sees on the proxy's thread.
struct seen {
    weir_device *device;
    unsigned calls;
};

weir_status copy_in_handler(void *context, const weir_request *)
{
    seen *s = static_cast<seen *>(context);
    s->calls = calls_of_a_copy(s->device, nullptr);
    return WEIR_OK;
}

TEST_F(Gpu, AProxyStaysInItsDevicesContext)
{
    weir_unique_id id;
    weir_bootstrap *boot = nullptr;
    weir_comm *comm = nullptr;
    weir_proxy *proxy = nullptr;
    weir_proxy_channel *channel = nullptr;
    seen s = { device, 0 };
    const weir_proxy_handler handler = { copy_in_handler, &s, nullptr, nullptr };
    weir_request request = {};
    request.type = WEIR_REQUEST_USER;
    EXPECT_TRUE(weir_unique_id_create(nullptr, &id) == WEIR_OK &&
                weir_bootstrap_create(id.text, 0, 1, nullptr, &boot) == WEIR_OK &&
                weir_comm_create(boot, device, nullptr, &comm) == WEIR_OK &&
                weir_proxy_create(comm, nullptr, &proxy) == WEIR_OK &&
                weir_proxy_channel_create(proxy, &handler, nullptr, &channel) == WEIR_OK &&
                weir_proxy_start(proxy) == WEIR_OK &&
                weir_proxy_channel_push(channel, &request, 0, nullptr) == WEIR_OK &&
                weir_proxy_drain(proxy, 0) == WEIR_OK && weir_proxy_stop(proxy) == WEIR_OK)
        << weir_last_error();
    EXPECT_EQ(s.calls, INSIDE);
    weir_proxy_channel_destroy(channel);
    weir_proxy_destroy(proxy);
    weir_comm_destroy(comm);
    weir_bootstrap_destroy(boot);
}

#if defined(WEIRT_NVCC)

struct rank {
    weir_bootstrap *boot = nullptr;
    weir_device *device = nullptr;
    weir_comm *comm = nullptr;
    weir_collective *collective = nullptr;
    void *stream = nullptr;
    std::string error;
};

bool open(rank *r, const char *id, uint32_t number)
{
    char name[16];
    std::snprintf(name, sizeof name, "gpu:%u", number);
    const bool fine = weir_bootstrap_create(id, number, 2, nullptr, &r->boot) == WEIR_OK &&
                      weir_device_open(name, nullptr, &r->device) == WEIR_OK &&
                      weir_comm_create(r->boot, r->device, nullptr, &r->comm) == WEIR_OK &&
                      weir_collective_create(r->comm, nullptr, &r->collective) == WEIR_OK &&
                      weir_stream_create(r->device, &r->stream) == WEIR_OK;
    r->error = fine ? "" : weir_last_error();
    return fine;
}

void close(rank *r)
{
    weir_collective_destroy(r->collective);
    weir_stream_destroy(r->device, r->stream);
    weir_comm_destroy(r->comm);
    weir_device_close(r->device);
    weir_bootstrap_destroy(r->boot);
}

constexpr size_t OPERATIONS = 7;

weir_status exchange(const rank *r, uint32_t peer, void *send, void *recv)
{
    const weir_transfer both[] = { { send, 512, WEIR_F16, peer, false }, { recv, 512, WEIR_F16, peer, true } };
    return weir_exchange(r->collective, both, 2, r->stream);
}

weir_status gather_parts(const rank *r, void *send, void *recv)
{
    const weir_extent extents[] = { { 0, 128 }, { 128, 128 } };
    const weir_part both[] = { { send, recv, extents, WEIR_F16 },
                               { send, static_cast<char *>(recv) + 512, extents, WEIR_F16 } };
    return weir_allgather_parts(r->collective, both, 2, r->stream);
}

weir_status call(const rank *r, uint32_t peer, size_t operation, void *send, void *recv)
{
    switch (operation) {
    case 0:
        return weir_allreduce(r->collective, send, recv, 512, WEIR_F16, WEIR_SUM, r->stream);
    case 1:
        return weir_allgather(r->collective, send, recv, 256, WEIR_F16, r->stream);
    case 2:
        return weir_reduce_scatter(r->collective, send, recv, 256, WEIR_F16, WEIR_SUM, r->stream);
    case 3:
        return weir_all_to_all(r->collective, send, recv, 256, WEIR_F16, r->stream);
    case 4:
        return weir_broadcast(r->collective, send, recv, 512, WEIR_F16, 0, r->stream);
    case 5:
        return exchange(r, peer, send, recv);
    default:
        return gather_parts(r, send, recv);
    }
}

// A small eager call enters the context, launches and leaves it: five calls of the driver. Nothing asks a stream or an
// event.
TEST(Calls, ASmallCollectiveMakesFiveCallsOfTheDriver)
{
    weir_unique_id id;
    ASSERT_EQ(weir_unique_id_create(nullptr, &id), WEIR_OK) << weir_last_error();
    std::array<rank, 2> ranks;
    std::array<std::thread, 2> threads;
    std::array<std::array<unsigned, 2 * OPERATIONS>, 2> counts = {};
    for (uint32_t i = 0; i < 2; i++) {
        threads[i] = std::thread([&, i] {
            alignas(16) char data[2][1024] = {};
            bool fine = open(&ranks[i], id.text, i);
            for (size_t operation = 0; operation < OPERATIONS && fine; operation++) {
                fine = call(&ranks[i], 1 - i, operation, data[0], data[1]) == WEIR_OK;
                const unsigned calls = fake_cuda_calls();
                const unsigned launches = fake_cuda_launches();
                fine = fine && call(&ranks[i], 1 - i, operation, data[0], data[1]) == WEIR_OK;
                counts[i][2 * operation] = fake_cuda_calls() - calls;
                counts[i][2 * operation + 1] = fake_cuda_launches() - launches;
            }
            ranks[i].error = fine ? "" : weir_last_error();
            close(&ranks[i]);
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    for (uint32_t i = 0; i < 2; i++) {
        EXPECT_EQ(ranks[i].error, "");
        for (size_t operation = 0; operation < OPERATIONS; operation++) {
            EXPECT_EQ(counts[i][2 * operation], 5u) << "operation " << operation;
            EXPECT_EQ(counts[i][2 * operation + 1], 1u) << "operation " << operation;
        }
    }
}

#endif

} // namespace
