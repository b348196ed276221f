// Cases of several hosts, simulated by ranks of this host, over each transport with port channels.
#ifndef WEIRT_COLLECTIVE_HOSTS_H
#define WEIRT_COLLECTIVE_HOSTS_H

#include <cstdlib>
#include <tuple>

#include "test/collective/operations.h"
#include "test/harness/software_nic.h"
#include "test/harness/stage_test.h"

constexpr const char *transports[] = { "ipc", "ofi", "ib" };

// Settings of a case's ranks.
struct Setting {
    uint32_t transport;
    uint32_t host_ranks;
    uint32_t blocks; // of a CPU rank's launch
    uint32_t threads;
    uint32_t what;
};

class HostsTest : public ::testing::TestWithParam<std::tuple<int, uint32_t>> {
protected:
    void SetUp() override
    {
        const char *missing = weirt_stage_missing(stage());
        if (missing != nullptr) {
            GTEST_SKIP() << missing;
        }
        if (std::strcmp(name(), "ib") == 0 && std::strcmp(stage()->kind, "gpu") == 0) {
            GTEST_SKIP() << "the software NIC cannot reach GPU memory";
        }
        const bool ours = std::strcmp(name(), "ib") == 0 ? weirt_use_software_nic() : std::strcmp(name(), "ipc") == 0;
        const bool checked = std::strcmp(weirt_sanitizer(), "thread") == 0;
        if (checked && !ours) {
            GTEST_SKIP() << "the library of transport " << name() << " is not built with the thread sanitizer";
        }
        if (checked && stage()->processes) { // between processes, messages say when slots are free
            GTEST_SKIP() << "the thread sanitizer does not see that another process orders this one's accesses";
        }
        weir_transport_info info;
        for (uint32_t i = 0; weir_transport_get(i, &info) == WEIR_OK; i++) {
            if (std::strcmp(info.name, name()) == 0 && info.works) {
                return;
            }
        }
        GTEST_SKIP() << "no transport " << name() << " here";
    }
    const weirt_stage *stage() const { return &weirt_stages[std::get<0>(GetParam())]; }
    const char *name() const { return transports[std::get<1>(GetParam())]; }
    // Runs `hosts` hosts of `host_ranks` ranks each.
    void run(weirt_rank_fn body, uint32_t hosts, uint32_t host_ranks, uint32_t blocks, uint32_t threads,
             uint32_t what = 0) const
    {
        const Setting setting = { std::get<1>(GetParam()), host_ranks, blocks, threads, what };
        weirt_ranks_run(stage(), hosts * host_ranks, body, &setting, sizeof setting);
    }
};

inline std::string case_name(const ::testing::TestParamInfo<std::tuple<int, uint32_t>> &info)
{
    return std::string(weirt_stages[std::get<0>(info.param)].name) + "_" + transports[std::get<1>(info.param)];
}

#define HOSTS_SUITE(Suite, stages, transports) \
    class Suite : public HostsTest {};         \
    INSTANTIATE_TEST_SUITE_P(Transports, Suite, ::testing::Combine(stages, transports), case_name)

inline weir_collective_opts opts_of(const weirt_rank *rank)
{
    const Setting *setting = static_cast<const Setting *>(rank->arg);
    weir_collective_opts opts = {};
    opts.size = sizeof opts;
    opts.staging_bytes = 128 << 10; // little, for several rounds and chunks
    // With a transport that maps nothing, each rank is a host.
    opts.host_ranks = std::getenv("WEIR_TRANSPORT") != nullptr ? 0 : setting->host_ranks;
    opts.transport = transports[setting->transport];
    if (std::strcmp(rank->stage->kind, "cpu") == 0) {
        opts.blocks = setting->blocks;
        opts.threads = setting->threads;
    } else {
        fit_together(rank, &opts);
    }
    return opts;
}

#endif
