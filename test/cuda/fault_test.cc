// Each call of the driver fails once, over a driver whose kernels do nothing. weir's call then fails with a text,
// unless weir can do without the driver's. It frees everything that it made, and the thread is in the context and the
// capture mode that it was in before.
#include <gtest/gtest.h>

#include <climits>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "weir/weir.h"

#include "test/cuda/fake_cuda.h"
#include "test/cuda/fake_kernel.h"
#include "test/harness/checks.h"

namespace {

// libweir reads the variable when it first looks for GPUs.
const int fake_library = setenv("WEIR_CUDA_LIBRARY", WEIRT_FAKE_CUDA, 1);

// Ends at the first call that fails, whose text it keeps.
class Steps {
public:
    bool operator()(weir_status status)
    {
        if (status != WEIR_OK) {
            text = weir_last_error();
        }
        return status == WEIR_OK;
    }
    std::string text;
};

bool copies_and_fills(Steps *step, weir_device *device)
{
    char out[64] = "data that goes to the GPU and back";
    char in[64] = {};
    void *memory = nullptr;
    void *host = nullptr;
    bool fine = (*step)(weir_device_allocate(device, 4096, &memory)) &&
                (*step)(weir_device_allocate_host(device, 4096, &host)) &&
                (*step)(weir_device_fill(device, memory, 1, 4096)) &&
                (*step)(weir_device_copy(device, memory, out, sizeof out)) &&
                (*step)(weir_device_copy(device, in, memory, sizeof in));
    if (fine) {
        EXPECT_EQ(std::memcmp(in, out, sizeof in), 0);
    }
    weir_device_free(device, host);
    weir_device_free(device, memory);
    return fine;
}

// WEIR_OK without a stream if libweir was built with headers before CUDA 12.5.
weir_status limited_or_none(weir_device *device, const weir_stream_limits *limits, void **out)
{
    const weir_status status = weir_stream_create_limited(device, limits, out);
    return status == WEIR_ERR_UNSUPPORTED ? WEIR_OK : status;
}

bool streams(Steps *step, weir_device *device)
{
    static const weir_kernel of_a_test = weirt_fake_kernel(weirt_fake_function); // a closed device forgets it
    const weir_stream_limits limits = { sizeof limits, 20, 0 };
    const uint8_t args[WEIRT_FAKE_ARGS] = {};
    const weir_shape shape = { 1, 32 };
    weir_launch_opts together = {};
    together.size = sizeof together;
    together.cooperative = true;
    void *stream = nullptr;
    void *limited = nullptr;
    void *events[2] = {};
    void *graph = nullptr;
    uint32_t blocks = 0;
    double ms = 0;
    const bool fine =
        (*step)(weir_stream_create(device, &stream)) && (*step)(limited_or_none(device, &limits, &limited)) &&
        (*step)(weir_event_create(device, &events[0])) && (*step)(weir_event_create(device, &events[1])) &&
        (*step)(weir_kernel_load(device, &of_a_test)) && (*step)(weir_kernel_fit(device, &of_a_test, 32, &blocks)) &&
        (*step)(weir_event_record(device, events[0], stream)) &&
        (*step)(weir_launch(device, &of_a_test, shape, args, nullptr, stream)) &&
        (*step)(weir_launch(device, &of_a_test, shape, args, &together, limited)) &&
        (*step)(weir_event_record(device, events[1], stream)) &&
        (*step)(weir_stream_wait_event(device, limited, events[1])) && (*step)(weir_stream_wait(device, stream, 0)) &&
        (*step)(weir_event_elapsed(device, events[0], events[1], &ms)) && (*step)(weir_graph_begin(device, stream)) &&
        (*step)(weir_launch(device, &of_a_test, shape, args, nullptr, stream)) &&
        (*step)(weir_graph_end(device, stream, &graph)) && (*step)(weir_graph_launch(device, graph, stream));
    if (fine) {
        EXPECT_EQ(ms, 1);
        EXPECT_TRUE(limited == nullptr || weir_stream_multiprocessors(device, limited) == 24); // three groups of eight
    }
    weir_graph_destroy(device, graph);
    weir_event_destroy(device, events[1]);
    weir_event_destroy(device, events[0]);
    weir_stream_destroy(device, limited);
    weir_stream_destroy(device, stream);
    return fine;
}

bool registered_memory(Steps *step, weir_comm *comm)
{
    weir_memory_opts on_host = {};
    on_host.size = sizeof on_host;
    on_host.kind = WEIR_MEMORY_HOST;
    alignas(4096) static char foreign[4096]; // the driver says that it is the GPU's
    uint8_t handle[WEIR_MEMORY_HANDLE_MAX];
    size_t bytes = sizeof handle;
    weir_memory *all[4] = {};
    const bool fine = (*step)(weir_memory_allocate(comm, 4096, nullptr, &all[0])) &&
                      (*step)(weir_memory_allocate(comm, 4096, &on_host, &all[1])) &&
                      (*step)(weir_memory_register(comm, foreign, sizeof foreign, nullptr, &all[2])) &&
                      (*step)(weir_memory_export(all[0], handle, &bytes)) &&
                      (*step)(weir_memory_import(comm, handle, bytes, &all[3]));
    for (size_t i = 4; i > 0; i--) {
        weir_memory_destroy(all[i - 1]);
    }
    return fine;
}

bool communicator(Steps *step, weir_device *device)
{
    weir_unique_id id;
    weir_bootstrap *boot = nullptr;
    weir_comm *comm = nullptr;
    bool fine = (*step)(weir_unique_id_create(nullptr, &id)) &&
                (*step)(weir_bootstrap_create(id.text, 0, 1, nullptr, &boot)) &&
                (*step)(weir_comm_create(boot, device, nullptr, &comm)) && registered_memory(step, comm);
    weir_comm_destroy(comm);
    weir_bootstrap_destroy(boot);
    return fine;
}

// Everything that a program does on one GPU.
bool everything(Steps *step)
{
    weir_device *device = nullptr;
    const bool fine = (*step)(weir_device_open("gpu:0", nullptr, &device)) && copies_and_fills(step, device) &&
                      streams(step, device) && communicator(step, device);
    weir_device_close(device);
    return fine;
}

struct counts {
    int64_t allocations = weirt_count_allocations();
    uint32_t descriptors = weirt_count_descriptors();
    long alive = fake_cuda_alive();
};

// How often weir can do without a call, of those that one run makes. A GPU is used without weir's kernels if they do
// not load, a warning needs the limit, two streams are destroyed although the driver cannot say whether they are idle,
// and the one foreign memory serves this process alone if it cannot be exported.
const std::map<std::string, unsigned> optional = {
    { "cuModuleLoadData", UINT_MAX },
    { "cuModuleGetFunction", UINT_MAX },
    { "cuFuncLoad", UINT_MAX },
    { "cuFuncGetAttribute", UINT_MAX },
    { "cuCtxGetLimit", UINT_MAX },
    { "cuStreamQuery", 2 },
    { "cuMemRetainAllocationHandle", 1 },
    { "cuMemGetAllocationPropertiesFromHandle", 1 },
    { "cuMemExportToShareableHandle", 1 },
};

// Lets each call of the kind fail.
void fail_each(fake_cuda_kind kind)
{
    std::map<std::string, unsigned> absorbed;
    unsigned left = 0;
    Steps first;
    ASSERT_TRUE(everything(&first)) << first.text; // contexts and modules stay
    for (unsigned n = 1; left == 0; n++) {
        const counts before;
        Steps step;
        (void)fake_cuda_fail_nth(kind, n);
        const bool fine = everything(&step);
        left = fake_cuda_fail_nth(kind, 0);
        const counts after;
        const std::string call = left == 0 ? fake_cuda_failed() : "none";
        const std::string which = "call " + std::to_string(n) + ", " + call + ": " + step.text;
        if (kind == FAKE_CUDA_WORK) {
            EXPECT_EQ(after.alive, before.alive) << which;
            absorbed[call] += fine && left == 0;
        }
        EXPECT_TRUE(fine || (left == 0 && step.text.find("gpu:0") != std::string::npos)) << which;
        EXPECT_EQ(after.allocations, before.allocations) << which;
        EXPECT_EQ(after.descriptors, before.descriptors) << which;
        ASSERT_EQ(fake_cuda_inside(), 0u) << which;
        ASSERT_FALSE(::testing::Test::HasFailure()) << which;
    }
    for (const auto &[call, times] : absorbed) {
        EXPECT_LE(times, optional.count(call) != 0 ? optional.at(call) : 0) << call;
    }
}

TEST(Driver, EachCallMayFail) { fail_each(FAKE_CUDA_WORK); }

// Objects of the driver stay if the context cannot be entered to free them, but weir's memory does not.
TEST(Driver, EachEntryOfAContextMayFail) { fail_each(FAKE_CUDA_ENTER); }

} // namespace
