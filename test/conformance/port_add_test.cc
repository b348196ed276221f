// Adds of port channels: concurrent adds are not lost, and no add overtakes earlier data.
#include <thread>
#include <vector>

#include "port.h"
#include "port_add_kernels.h"

namespace {

class PortAdd : public PortTest {
protected:
    void SetUp() override
    {
        PortTest::SetUp();
        weir_transport_info info = {};
        for (uint32_t i = 0; std::strcmp(info.name, name()) != 0; i++) {
            if (IsSkipped() || weir_transport_get(i, &info) != WEIR_OK) {
                return;
            }
        }
        if (!info.adds) {
            GTEST_SKIP() << name() << " has no adds";
        }
        if (gpu() && std::strcmp(name(), "ofi") == 0) {
            GTEST_SKIP() << "ofi cannot add to GPU memory";
        }
    }
};
INSTANTIATE_TEST_SUITE_P(Transports, PortAdd,
                         ::testing::Combine(::testing::Values(0, 1, 2, 3),
                                            ::testing::Values(PORT_IPC, PORT_IB, PORT_OFI, PORT_DEVICE)),
                         port_case_name);

// Copy engines cannot add, so kernels must.
bool by_engines(const weirt_rank *rank)
{
    return std::strcmp(rank->stage->kind, "gpu") == 0 && port_bench::plan_of(rank)->transport == PORT_IPC;
}

// Threads of both ranks at the same time, and over ipc the device with the words.
void sums(weirt_rank *rank)
{
    constexpr uint64_t at = 4096;
    const bool gpu = std::strcmp(rank->stage->kind, "gpu") == 0;
    const weir_shape shape = gpu ? weir_shape{ 4, 128 } : weir_shape{ 1, weirt_sanitizer()[0] == 't' ? 4u : 12u };
    port_bench b;
    if (b.open(rank, 0, 4096) && WEIRT_OK(rank, weir_kernel_load(b.comm.device, port_add_kernel())) &&
        weirt_barrier(rank)) {
        port_add_args args = {};
        args.channel = b.device;
        args.report = b.device_report();
        args.words = static_cast<char *>(weir_memory_pointer(b.local));
        args.at = at;
        args.adds = 50;
        args.rank = rank->rank;
        args.local = b.plan.transport == PORT_IPC;
        b.launch(rank, port_add_kernel(), shape, &args, false);
        b.finish(rank);
        weirt_barrier(rank);
        uint64_t expected[PORT_ADD_WORDS] = {};
        uint64_t words[PORT_ADD_WORDS] = {};
        for (uint32_t thread = 0; thread < shape.blocks * shape.threads; thread++) {
            WEIRT_EXPECT(rank, b.report->status[thread] == WEIR_OK);
            for (uint64_t i = 0; i < args.adds; i++) {
                expected[port_add_word(thread, i)] += port_add_value(b.peer, thread, i);
                expected[port_add_word(thread, i)] += args.local ? port_add_value(rank->rank, thread, i) : 0;
            }
        }
        WEIRT_EXPECT(rank, b.read(rank, at, words, sizeof words) && std::memcmp(words, expected, sizeof words) == 0);
        WEIRT_OK(rank, weir_port_channel_status(b.channel));
    }
    b.close(rank, true);
}

TEST_P(PortAdd, NoneIsLost) { run(sums, plan()); }

TEST_P(PortAdd, NoneIsLostWhenAllAreQueued)
{
    if (gpu() && plan().transport == PORT_IPC) {
        GTEST_SKIP() << "copy engines have no adds";
    }
    port_case what = plan();
    what.direct_bytes = WEIR_PORT_DIRECT_NEVER;
    run(sums, what);
}

// The data, queued or not, is there when the word has grown.
void counts(weirt_rank *rank)
{
    port_bench b;
    const uint64_t half = 1 << 16;
    if (b.open(rank, 0, half) && WEIRT_OK(rank, weir_kernel_load(b.comm.device, port_count_kernel())) &&
        weirt_barrier(rank)) {
        port_count_args args = {};
        args.channel = b.device;
        args.report = b.device_report();
        args.local = static_cast<char *>(weir_memory_pointer(b.local));
        args.half = half - 64;
        args.bytes = port_bench::plan_of(rank)->op;
        args.rounds = 20;
        args.rank = rank->rank;
        args.peer = b.peer;
        b.launch(rank, port_count_kernel(), weir_shape{ 1, 1 }, &args, false);
        b.finish(rank);
        WEIRT_EXPECT(rank, b.report->status[0] == WEIR_OK && b.report->wrong == 0 && b.report->iterations == 20);
    }
    b.close(rank, true);
}

TEST_P(PortAdd, FollowsTheDataBeforeIt)
{
    for (uint32_t bytes : { 64u, 9001u }) {
        port_case what = plan();
        what.op = bytes;
        what.direct_bytes = gpu() || bytes == 64 ? 100 : WEIR_PORT_DIRECT_NEVER;
        run(counts, what);
    }
}

// Two threads of the host at each end.
void host_sums(weirt_rank *rank)
{
    constexpr uint64_t adds = 200;
    port_bench b;
    if (b.open_ends(rank, 0, 4096, WEIR_SEMAPHORE_HOST) &&
        WEIRT_OK(rank, weir_port_channel_create(b.proxy, b.semaphore, b.remote, b.local, nullptr, &b.channel)) &&
        WEIRT_OK(rank, weir_proxy_start(b.proxy)) && weirt_barrier(rank)) {
        uint64_t words[PORT_ADD_WORDS] = {};
        uint64_t expected[PORT_ADD_WORDS] = {};
        auto add = [&](uint32_t thread) {
            for (uint64_t i = 0; i < adds; i++) {
                if (!WEIRT_OK(rank, weir_port_channel_add(b.channel, 8 * port_add_word(thread, i),
                                                          port_add_value(rank->rank, thread, i), nullptr))) {
                    break;
                }
            }
        };
        std::thread second(add, 1);
        add(0);
        second.join();
        WEIRT_OK(rank, weir_port_channel_flush(b.channel));
        weirt_barrier(rank);
        for (uint32_t thread = 0; thread < 2; thread++) {
            for (uint64_t i = 0; i < adds; i++) {
                expected[port_add_word(thread, i)] += port_add_value(b.peer, thread, i);
            }
        }
        WEIRT_EXPECT(rank, b.read(rank, 0, words, sizeof words) && std::memcmp(words, expected, sizeof words) == 0);
    }
    b.close(rank, true);
}

TEST_P(PortAdd, HostThreadsAdd)
{
    run_unless(gpu() && plan().transport == PORT_IPC, "copy engines have no adds", host_sums);
}

// An add that is out of range, or not supported, ends the channel with the reason, and adds nothing.
void refused(weirt_rank *rank)
{
    const uint64_t offsets[] = { 4, 8192, 8192 - 4, UINT64_MAX - 7, 0 };
    port_bench b;
    weirt_log_allow(" failed: ");
    bool open = b.open(rank, 0, 4096);
    uint64_t tag = 10;
    for (uint64_t offset : offsets) {
        weir_semaphore *semaphore = nullptr;
        weir_port_channel *channel = nullptr;
        uint64_t ticket = 0;
        const weir_status expected = offset != 0 ? WEIR_ERR_RANGE : by_engines(rank) ? WEIR_ERR_UNSUPPORTED : WEIR_OK;
        open = open && b.add(rank, tag++, WEIR_SEMAPHORE_DEVICE, &semaphore, &channel) &&
               WEIRT_OK(rank, weir_port_channel_add(channel, offset, 0, &ticket)) &&
               WEIRT_STATUS(rank, expected, weir_port_channel_wait(channel, ticket, weirt_timeout_ms())) &&
               WEIRT_STATUS(rank, expected, weir_port_channel_status(channel)) &&
               (expected == WEIR_OK || WEIRT_TEXT(rank, offset == 0       ? "copy engines"
                                                        : offset % 8 != 0 ? "multiple of 8"
                                                                          : "remote"));
        weirt_barrier(rank);
        weir_port_channel_destroy(channel);
        weir_semaphore_destroy(semaphore);
    }
    if (open) {
        std::vector<char> bytes(8192), zero(8192);
        WEIRT_EXPECT(rank, b.read(rank, 0, bytes.data(), 8192) && bytes == zero);
        WEIRT_OK(rank, weir_comm_status(b.comm.comm));
    }
    b.close(rank, true);
}

TEST_P(PortAdd, WhatCannotBeAddedFailsTheChannel) { run(refused, plan()); }

} // namespace
