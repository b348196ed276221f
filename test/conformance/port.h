// Set-up of tests of port channels: two ranks joined by one transport, and a case for each stage and transport.
#ifndef WEIRT_PORT_H
#define WEIRT_PORT_H

#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <tuple>

#include "test/harness/checks.h"
#include "test/harness/comm.h"
#include "test/harness/software_nic.h"
#include "test/harness/stage_test.h"

#include "port_kernels.h"
#include "script_kernels.h"

// Transports, in variants.
enum port_variant : uint32_t {
    PORT_IPC,
    PORT_IB,
    PORT_OFI,
    PORT_STAGED,        // ofi; the host cannot reach the memory, as on a GPU
    PORT_DEVICE,        // ib; the device engine
    PORT_DEVICE_STAGED, // the same, and the host cannot reach the memory
    PORT_IB_STAGED,
    PORT_DEVX,       // ib; the device engine with queues made by DevX
    PORT_DEVX_STAGED // the same, and the host cannot reach the memory, nor that of the queues
};
inline const char *const port_transports[] = { "ipc", "ib", "ofi", "ofi", "ib", "ib", "ib", "ib", "ib" };
inline const char *const port_suffixes[] = { "",        "",        "",
                                             "_staged", "_device", "_device_staged",
                                             "_staged", "_devx",   "_devx_staged" };

// Settings of a case's ranks.
struct port_case {
    uint32_t transport;
    uint64_t direct_bytes;
    uint32_t op;
    uint32_t group;
    uint32_t credits; // 0: the default
};

class PortTest : public ::testing::TestWithParam<std::tuple<int, uint32_t>> {
protected:
    void SetUp() override
    {
        const char *missing = weirt_stage_missing(stage());
        if (missing != nullptr) {
            GTEST_SKIP() << missing;
        }
        const uint32_t variant = std::get<1>(GetParam());
        if (std::strstr(port_suffixes[variant], "staged") != nullptr && std::strcmp(stage()->kind, "cpu") != 0) {
            GTEST_SKIP() << "only a CPU device can have memory out of the host's reach";
        }
        const bool devx = variant == PORT_DEVX || variant == PORT_DEVX_STAGED;
        const bool device = variant == PORT_DEVICE || variant == PORT_DEVICE_STAGED || devx;
        const bool ib = std::strcmp(name(), "ib") == 0;
        const bool ours = variant == PORT_IPC || (ib && weirt_use_software_nic());
        setenv("WEIR_PORT_ENGINE", device ? "device-only" : "proxy", 1);
        setenv("WEIR_IB_QUEUES", devx ? "devx-only" : "verbs", 1);
        if ((device || variant == PORT_IB_STAGED) && !ours) {
            GTEST_SKIP() << "needs the software NIC, which is not used on a host with RDMA devices";
        }
        const bool checked = std::strcmp(weirt_sanitizer(), "thread") == 0;
        if (checked && !ours) {
            GTEST_SKIP() << "the library of transport " << name() << " is not built with the thread sanitizer";
        }
        if (checked && variant == PORT_DEVX_STAGED) {
            GTEST_SKIP() << "the thread sanitizer takes a device's copy of a completion for a race with the NIC";
        }
        if (checked && variant != PORT_IPC && stage()->processes) {
            GTEST_SKIP() << "the thread sanitizer does not see that another process orders this one's accesses";
        }
        weir_transport_info info;
        for (uint32_t i = 0; weir_transport_get(i, &info) == WEIR_OK; i++) {
            if (std::strcmp(info.name, name()) == 0 && info.works) {
                return;
            }
            if (std::strcmp(info.name, name()) == 0) {
                GTEST_SKIP() << name() << ": " << info.reason;
            }
        }
        GTEST_SKIP() << "this build has no transport " << name();
    }
    void TearDown() override
    {
        unsetenv("WEIR_PORT_ENGINE");
        unsetenv("WEIR_IB_QUEUES");
    }
    const weirt_stage *stage() const { return &weirt_stages[std::get<0>(GetParam())]; }
    const char *name() const { return port_transports[std::get<1>(GetParam())]; }
    bool gpu() const { return std::strcmp(stage()->kind, "gpu") == 0; }
    port_case plan() const { return { std::get<1>(GetParam()), 0, PORT_PUT_SIGNAL, PORT_BLOCK, 0 }; }
    void run(weirt_rank_fn body, const port_case &plan) const { weirt_ranks_run(stage(), 2, body, &plan, sizeof plan); }
    void run_unless(bool left_out, const char *reason, weirt_rank_fn body) const
    {
        if (left_out) {
            GTEST_SKIP() << reason;
        }
        run(body, plan());
    }
};

// Cases whose ranks call the same code whether they are threads or processes.
class PortDataTest : public PortTest {
protected:
    void SetUp() override
    {
        // Ranks in two networks (test/launch/port_test.cc) are always processes.
        const bool apart = std::getenv("WEIR_TEST_NETWORK_1") != nullptr;
        const bool checked = std::strcmp(weirt_sanitizer(), "address") == 0 && !apart;
        if (checked && std::get<1>(GetParam()) != PORT_IPC && stage()->processes) {
            GTEST_SKIP() << "the address sanitizer checks the same accesses in the stage of threads";
        }
        PortTest::SetUp();
    }
};

// Faults of the software NIC on both ranks.
class port_fault {
public:
    explicit port_fault(const char *script) { setenv("SWNIC_FAULT", script, 1); }
    ~port_fault() { unsetenv("SWNIC_FAULT"); }
    port_fault(const port_fault &) = delete;
    port_fault &operator=(const port_fault &) = delete;
};

inline std::string port_case_name(const ::testing::TestParamInfo<std::tuple<int, uint32_t>> &info)
{
    return std::string(weirt_stages[std::get<0>(info.param)].name) + "_" + port_transports[std::get<1>(info.param)] +
           port_suffixes[std::get<1>(info.param)];
}

#define PORT_SUITE(Suite, ...)        \
    class Suite : public PortTest {}; \
    PORT_CASES(Suite, __VA_ARGS__)
#define PORT_DATA_SUITE(Suite, ...)       \
    class Suite : public PortDataTest {}; \
    PORT_CASES(Suite, __VA_ARGS__)
#define PORT_CASES(Suite, ...)                                                                                  \
    INSTANTIATE_TEST_SUITE_P(Transports, Suite,                                                                 \
                             ::testing::Combine(::testing::Values(0, 1, 2, 3), ::testing::Values(__VA_ARGS__)), \
                             port_case_name)

inline weir_request port_request(uint32_t type, uint64_t remote_offset, uint64_t local_offset, uint64_t bytes)
{
    weir_request request = {};
    request.type = static_cast<uint16_t>(type);
    request.remote_offset = remote_offset;
    request.local_offset = local_offset;
    request.bytes = bytes;
    request.remote = WEIR_PORT_REMOTE;
    request.local = WEIR_PORT_LOCAL;
    return request;
}

inline uint64_t port_word(uint32_t rank, uint64_t i) { return (i + 1) * 0x9e3779b97f4a7c15u + rank; }

// Two ranks with a memory of two halves each, one channel between them, and a proxy that runs.
struct port_bench {
    weirt_comm comm = {};
    bool to_itself = false;         // set before open: this rank's peer is itself,
    uint32_t kernel_timeout_ms = 0; // a deadline of kernels' waits only
    uint32_t peer = 0;
    uint64_t half = 0;
    weir_connection *connection = nullptr;
    weir_semaphore *semaphore = nullptr;
    weir_memory *local = nullptr;
    weir_memory *remote = nullptr;
    weir_memory *shared = nullptr;
    port_report *report = nullptr;
    weir_grid_barrier *barrier = nullptr;
    weir_proxy *proxy = nullptr;
    weir_port_channel *channel = nullptr;
    weir_dev_port_channel device = {};
    void *stream = nullptr;
    port_case plan = {};
    weir_memory_opts data = { sizeof data, WEIR_MEMORY_DEVICE, false,
                              0 }; // kind of the memory; swnic cannot reach GPU memory

    bool connect(weirt_rank *rank, uint64_t tag, weir_connection **out)
    {
        weir_future *future = nullptr;
        weir_connection_opts opts = { sizeof opts, port_transports[plan.transport] };
        return WEIRT_OK(rank, weir_connection_create_async(comm.comm, peer, tag, &opts, out, &future)) &&
               weirt_complete(rank, future);
    }

    bool exchange(weirt_rank *rank, weir_memory *mine, uint64_t tag, weir_memory **theirs)
    {
        return WEIRT_OK(rank, weir_memory_send(comm.comm, mine, peer, tag)) &&
               weirt_receive(rank, comm.comm, peer, tag, theirs);
    }

    // Opens everything except the channel.
    bool open_ends(weirt_rank *rank, uint32_t timeout_ms, uint64_t half_bytes, weir_semaphore_end end)
    {
        weir_memory_opts host = { sizeof host, WEIR_MEMORY_HOST, false, 0 };
        plan = *static_cast<const port_case *>(rank->arg);
        peer = to_itself ? rank->rank : 1 - rank->rank;
        half = half_bytes;
        rank->staged = std::strstr(port_suffixes[plan.transport], "staged") != nullptr;
        if (std::strcmp(rank->stage->kind, "gpu") == 0 && std::strcmp(port_transports[plan.transport], "ib") == 0 &&
            weirt_use_software_nic()) {
            data.kind = WEIR_MEMORY_HOST;
        }
        if (!(kernel_timeout_ms != 0 ? weirt_comm_open_kernels(rank, kernel_timeout_ms, &comm)
                                     : weirt_comm_open(rank, timeout_ms, &comm)) ||
            !connect(rank, 1, &connection) || !weirt_semaphore(rank, connection, 2, end, &semaphore) ||
            !WEIRT_OK(rank, weir_memory_allocate(comm.comm, 2 * half, &data, &local)) ||
            !exchange(rank, local, 3, &remote) ||
            !WEIRT_OK(rank, weir_memory_allocate(comm.comm, sizeof(port_report), &host, &shared)) ||
            !WEIRT_OK(rank, weir_grid_barrier_create(comm.comm, &barrier)) ||
            !WEIRT_OK(rank, weir_stream_create(comm.device, &stream)) ||
            !WEIRT_OK(rank, weir_proxy_create(comm.comm, nullptr, &proxy))) {
            return false;
        }
        const weir_kernel *kernels[] = { port_transfer_kernel(), port_request_kernel(), port_flood_kernel(),
                                         port_wait_kernel(),     port_blocks_kernel(),  port_plain_kernel(),
                                         script_kernel() };
        for (const weir_kernel *kernel : kernels) {
            if (!WEIRT_OK(rank, weir_kernel_load(comm.device, kernel))) {
                return false;
            }
        }
        report = static_cast<port_report *>(weir_memory_host_pointer(shared));
        return WEIRT_EXPECT(rank, report != nullptr);
    }

    bool open(weirt_rank *rank, uint32_t timeout_ms, uint64_t half_bytes)
    {
        weir_port_channel_opts opts = WEIR_OPTS(weir_port_channel_opts);
        opts.direct_bytes = plan_of(rank)->direct_bytes;
        opts.credits = plan_of(rank)->credits;
        return open_ends(rank, timeout_ms, half_bytes, WEIR_SEMAPHORE_DEVICE) &&
               WEIRT_OK(rank, weir_port_channel_create(proxy, semaphore, remote, local, &opts, &channel)) &&
               WEIRT_OK(rank, weir_port_channel_device(channel, &device)) && WEIRT_OK(rank, weir_proxy_start(proxy)) &&
               all_ready(rank);
    }

    // The last step of a set-up: open calls it, and a case with more set-up calls it again. Set-up on a GPU waits until
    // earlier kernels of the process have ended there. A kernel that waits for a peer whose set-up waits for that
    // kernel would never end. So no rank launches before both ranks are ready.
    static bool all_ready(weirt_rank *rank) { return weirt_barrier(rank); }

    // Makes another channel like the first.
    bool add(weirt_rank *rank, uint64_t tag, weir_semaphore_end end, weir_semaphore **second, weir_port_channel **out)
    {
        weir_port_channel_opts opts = { sizeof opts, plan.direct_bytes, plan.credits, 0, nullptr, nullptr };
        return weirt_semaphore(rank, connection, tag, end, second) &&
               WEIRT_OK(rank, weir_port_channel_create(proxy, *second, remote, local, &opts, out));
    }

    void close(weirt_rank *rank, bool together)
    {
        if (together) {
            (void)weirt_barrier(rank); // after closing its queue, this rank does not poll for the peer any more
        }
        if (stream != nullptr) {
            weir_stream_destroy(comm.device, stream);
        }
        weir_port_channel_destroy(channel);
        weir_proxy_destroy(proxy);
        weir_grid_barrier_destroy(barrier);
        weir_semaphore_destroy(semaphore);
        weir_connection_destroy(connection);
        weir_memory_destroy(remote);
        if (together) {
            (void)weirt_barrier(rank);
        }
        weir_memory_destroy(shared);
        weir_memory_destroy(local);
        weirt_comm_close(&comm);
    }

    static const port_case *plan_of(const weirt_rank *rank) { return static_cast<const port_case *>(rank->arg); }

    port_report *device_report() const { return static_cast<port_report *>(weir_memory_pointer(shared)); }

    template <class Args>
    bool launch(weirt_rank *rank, const weir_kernel *kernel, weir_shape shape, const Args *args, bool cooperative)
    {
        weir_launch_opts opts = { sizeof opts, cooperative };
        return WEIRT_OK(rank, weir_launch(comm.device, kernel, shape, args, &opts, stream));
    }
    bool finish(weirt_rank *rank) { return WEIRT_OK(rank, weir_stream_wait(comm.device, stream, weirt_timeout_ms())); }

    // Makes these calls in sequence in a kernel. script() has their results.
    bool call(weirt_rank *rank, const weir_dev_port_channel &on, std::initializer_list<script_step> steps)
    {
        script_args args = {};
        args.channel = on;
        args.report = static_cast<script_report *>(weir_memory_pointer(shared));
        for (const script_step &step : steps) {
            args.steps[args.count++] = step;
        }
        return launch(rank, script_kernel(), weir_shape{ 1, 1 }, &args, false) && finish(rank);
    }
    const script_report *script() const { return static_cast<const script_report *>(weir_memory_host_pointer(shared)); }
    // Whether the script's steps ended with these statuses.
    bool ended(weirt_rank *rank, std::initializer_list<weir_status> expected) const
    {
        uint32_t i = 0;
        bool right = true;
        for (weir_status status : expected) {
            weir_status got = static_cast<weir_status>(script()->status[i]);
            if (got != status) {
                weirt_fail(rank, __FILE__, __LINE__, "step %u: %s, expected %s", i, weir_status_name(got),
                           weir_status_name(status));
                right = false;
            }
            i++;
        }
        return right;
    }

    // The calling thread accesses memory of this rank.
    bool write(weirt_rank *rank, uint64_t offset, const void *data, uint64_t bytes)
    {
        return WEIRT_OK(
            rank, weir_device_copy(comm.device, static_cast<char *>(weir_memory_pointer(local)) + offset, data, bytes));
    }
    bool read(weirt_rank *rank, uint64_t offset, void *data, uint64_t bytes)
    {
        return WEIRT_OK(
            rank, weir_device_copy(comm.device, data, static_cast<char *>(weir_memory_pointer(local)) + offset, bytes));
    }
};

#endif
