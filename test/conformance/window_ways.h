// The tests of windows over communicators share this header: the ways to reach other devices, and scripts of calls. A
// case runs once a stage and a way.
#ifndef WEIRT_WINDOW_WAYS_H
#define WEIRT_WINDOW_WAYS_H

#include <cstdlib>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "test/harness/checks.h"
#include "test/harness/software_nic.h"
#include "test/harness/stage_test.h"
#include "test/harness/window_bench.h"

namespace windows {

inline const Way ways[] = { { "mapped", 0, nullptr },
                            { "port_ipc", 1, "ipc" },
                            { "port_ofi", 1, "ofi" },
                            { "port_ib", 1, "ib" },
                            { "port_ib_device", 1, "ib" } }; // kernels post to the NIC themselves
constexpr uint32_t WAYS = sizeof ways / sizeof ways[0];
constexpr uint32_t ANY = WEIR_ANY_RANK;

struct Plan {
    uint32_t way;
    uint32_t form;
    uint32_t ranks; // of each device
    uint32_t blocks;
    uint32_t notifications;
};

inline const Plan *plan_of(const weirt_rank *rank) { return static_cast<const Plan *>(rank->arg); }

class WindowTest : public ::testing::TestWithParam<std::tuple<int, uint32_t>> {
protected:
    void SetUp() override
    {
        weirt_require_data_stage(stage());
        if (!IsSkipped() && uses("ofi")) {
            require_ofi();
        }
        if (!IsSkipped() && uses("ib")) {
            require_ib();
        }
        setenv("WEIR_PORT_ENGINE", std::strcmp(way().name, "port_ib_device") == 0 ? "device-only" : "proxy", 1);
    }
    void TearDown() override { unsetenv("WEIR_PORT_ENGINE"); }
    bool uses(const char *transport) const
    {
        return way().transport != nullptr && std::strcmp(way().transport, transport) == 0;
    }
    static bool works(const char *transport)
    {
        weir_transport_info info;
        for (uint32_t i = 0; weir_transport_get(i, &info) == WEIR_OK; i++) {
            if (std::strcmp(info.name, transport) == 0 && info.works) {
                return true;
            }
        }
        return false;
    }
    static void require_ofi()
    {
        if (std::strcmp(weirt_sanitizer(), "thread") == 0) {
            GTEST_SKIP() << "the library of transport ofi is not built with the thread sanitizer";
        }
        if (!works("ofi")) {
            GTEST_SKIP() << "no transport ofi";
        }
    }
    void require_ib() const
    {
        if (std::strcmp(stage()->kind, "cpu") != 0) {
            GTEST_SKIP() << "the software NIC reaches no memory of a GPU";
        }
        if (!weirt_use_software_nic() || !works("ib")) {
            GTEST_SKIP() << "needs the software NIC, which is not used on a host with RDMA devices";
        }
    }
    const Way &way() const { return ways[std::get<1>(GetParam())]; }
    const weirt_stage *stage() const { return &weirt_stages[std::get<0>(GetParam())]; }
    void run(uint32_t devices, weirt_rank_fn body, uint32_t ranks, uint32_t notifications) const
    {
        run(devices, body, { std::get<1>(GetParam()), 0, ranks, ranks, notifications });
    }
    void run(uint32_t devices, weirt_rank_fn body, const Plan &plan) const
    {
        weirt_ranks_run(stage(), devices, body, &plan, sizeof plan);
    }
    Plan exchange(uint32_t form, uint32_t ranks, uint32_t blocks) const
    {
        return { std::get<1>(GetParam()), form, ranks, blocks, 0 };
    }
};

inline std::string case_name(const ::testing::TestParamInfo<std::tuple<int, uint32_t>> &info)
{
    return std::string(weirt_stages[std::get<0>(info.param)].name) + "_" + ways[std::get<1>(info.param)].name;
}

constexpr uint64_t PART = 256;

inline bool open_script(weirt_rank *rank, Bench *bench, uint32_t windows, uint32_t timeout_ms = 0)
{
    const Plan *plan = plan_of(rank);
    return bench->join(rank, timeout_ms) &&
           bench->open(rank, ways[plan->way], plan->ranks, plan->notifications, PART, PART, windows) &&
           weirt_barrier(rank);
}

// Ends a case that must leave the communicator without an error.
inline void close_script(weirt_rank *rank, Bench *bench)
{
    if (bench->c.comm != nullptr) {
        WEIRT_OK(rank, weir_comm_status(bench->c.comm));
    }
    (void)weirt_barrier(rank);
    bench->close();
}

} // namespace windows

#define WEIRT_WINDOW_SUITE(Suite)                                                                                \
    class Suite : public windows::WindowTest {};                                                                 \
    INSTANTIATE_TEST_SUITE_P(                                                                                    \
        Ways, Suite, ::testing::Combine(::testing::Range(0, WEIRT_STAGES), ::testing::Range(0u, windows::WAYS)), \
        windows::case_name)

#endif
