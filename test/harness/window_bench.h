// Windows of a rank of a test, with two memories each, and what runs the kernels of window_kernels.h on them.
#ifndef WEIRT_WINDOW_BENCH_H
#define WEIRT_WINDOW_BENCH_H

#include <cstring>
#include <vector>

#include "test/harness/comm.h"
#include "test/harness/window_kernels.h"

namespace windows {

// A way to reach other devices; weir_window_opts.
struct Way {
    const char *name;
    uint32_t host_ranks;
    const char *transport;
};

// The calls of a device's ranks, a list for each rank.
using Script = std::vector<std::vector<weirt_window_step>>;

inline weirt_window_step step_of(uint32_t call, uint32_t peer, uint32_t tag)
{
    weirt_window_step step = {};
    step.call = call;
    step.peer = peer;
    step.tag = tag;
    step.count = 1;
    return step;
}

inline weirt_window_step notify(uint32_t target, uint32_t tag, uint32_t times = 1)
{
    weirt_window_step step = step_of(WEIRT_CALL_NOTIFY, target, tag);
    step.times = times;
    return step;
}

inline weirt_window_step wait(uint32_t source, uint32_t tag, uint64_t count = 1)
{
    weirt_window_step step = step_of(WEIRT_CALL_WAIT, source, tag);
    step.count = count;
    return step;
}

// The first of `times` takes must get tag `first`, and each later one a tag that is one more.
inline weirt_window_step take(uint32_t source, uint32_t tag, uint32_t first, uint32_t times = 1)
{
    weirt_window_step step = step_of(WEIRT_CALL_TAKE, source, tag);
    step.first = first;
    step.times = times;
    return step;
}

inline weirt_window_step poll(uint32_t source, uint32_t tag, uint64_t count = 1)
{
    weirt_window_step step = step_of(WEIRT_CALL_POLL, source, tag);
    step.count = count;
    return step;
}

inline weirt_window_step put_notify(uint32_t target, uint32_t tag, uint64_t remote_offset, uint64_t local_offset,
                                    uint64_t bytes)
{
    weirt_window_step step = step_of(WEIRT_CALL_PUT_NOTIFY, target, tag);
    step.remote_memory = 1;
    step.remote_offset = remote_offset;
    step.local_offset = local_offset;
    step.bytes = bytes;
    return step;
}

struct Bench {
    weirt_comm c = {};
    weir_window *windows[2] = {};
    weir_memory *memories[2] = {};
    weir_memory *shared = nullptr; // steps and results, or a report
    char *host = nullptr;
    weir_grid_barrier *grid = nullptr;
    void *stream = nullptr;
    uint32_t ranks = 0;                          // of the device
    weir_memory_kind rings = WEIR_MEMORY_DEVICE; // set before open

    // Joins a communicator. timeout_ms 0: weirt_timeout_ms; otherwise a deadline of kernels alone.
    bool join(weirt_rank *rank, uint32_t timeout_ms)
    {
        return timeout_ms == 0 ? weirt_comm_open(rank, 0, &c) : weirt_comm_open_kernels(rank, timeout_ms, &c);
    }
    // Makes `count` windows over memories whose parts have `bytes` and lie `stride` bytes apart.
    bool open(weirt_rank *rank, const Way &way, uint32_t device_ranks, uint32_t notifications, uint64_t stride,
              uint64_t bytes, uint32_t count, const weir_group *group = nullptr)
    {
        const weir_memory_opts host_opts = { sizeof host_opts, WEIR_MEMORY_HOST, false, 0 };
        weir_window_opts opts = {};
        opts.size = sizeof opts;
        opts.group = group;
        opts.ranks = device_ranks;
        opts.notifications = notifications;
        opts.kind = rings;
        opts.host_ranks = way.host_ranks;
        opts.transport = way.transport;
        ranks = device_ranks;
        const uint64_t room = sizeof(weirt_window_report) +
                              ranks * WEIRT_WINDOW_STEPS * (sizeof(weirt_window_step) + sizeof(weirt_window_result));
        bool fine = WEIRT_OK(rank, weir_memory_allocate(c.comm, room, &host_opts, &shared)) &&
                    WEIRT_OK(rank, weir_kernel_load(c.device, weirt_window_exchange_kernel())) &&
                    WEIRT_OK(rank, weir_kernel_load(c.device, weirt_window_script_kernel())) &&
                    WEIRT_OK(rank, weir_grid_barrier_create(c.comm, &grid)) &&
                    WEIRT_OK(rank, weir_stream_create(c.device, &stream));
        for (weir_memory *&memory : memories) {
            fine = fine && WEIRT_OK(rank, weir_memory_allocate(c.comm, stride * (ranks - 1) + bytes, nullptr, &memory));
        }
        for (uint32_t i = 0; i < count && fine; i++) {
            fine = WEIRT_OK(rank, weir_window_create(c.comm, &opts, &windows[i]));
            for (uint32_t m = 0; m < 2 && fine; m++) {
                uint32_t id = 77;
                fine = WEIRT_OK(rank, weir_window_register(windows[i], memories[m], stride, bytes, &id)) &&
                       WEIRT_EXPECT(rank, id == m);
            }
        }
        if (fine) {
            host = static_cast<char *>(weir_memory_host_pointer(shared));
        }
        return fine;
    }
    void close()
    {
        if (stream != nullptr) {
            weir_stream_destroy(c.device, stream);
        }
        for (weir_window *window : windows) {
            weir_window_destroy(window);
        }
        for (weir_memory *memory : memories) {
            weir_memory_destroy(memory);
        }
        weir_memory_destroy(shared);
        weir_grid_barrier_destroy(grid);
        weirt_comm_close(&c);
    }
    weir_shape shape(const weirt_rank *rank, uint32_t blocks) const
    {
        const bool gpu = std::strcmp(rank->stage->kind, "gpu") == 0;
        return { blocks, gpu ? 64u : 2u };
    }
    weir_status finish() { return weir_stream_wait(c.device, stream, weirt_timeout_ms()); }

    // ---- exchanges ----
    const weirt_window_report *report() const { return reinterpret_cast<const weirt_window_report *>(host); }
    weirt_window_exchange_args exchange(uint64_t slot, uint64_t bytes, uint32_t rounds, uint32_t form)
    {
        weirt_window_exchange_args args = {};
        weir_window_device(windows[0], &args.window);
        args.report = static_cast<weirt_window_report *>(weir_memory_pointer(shared));
        args.slot = slot;
        args.bytes = bytes;
        args.rounds = rounds;
        args.form = form;
        return args;
    }
    weir_status launch_exchange(const weirt_rank *rank, const weirt_window_exchange_args &args, uint32_t blocks)
    {
        const weir_launch_opts opts = { sizeof opts, true };
        return weir_launch(c.device, weirt_window_exchange_kernel(), shape(rank, blocks), &args, &opts, stream);
    }

    // ---- scripts ----
    const weirt_window_result &result(uint32_t index, uint32_t step) const
    {
        const uint64_t steps = uint64_t{ ranks } * WEIRT_WINDOW_STEPS * sizeof(weirt_window_step);
        return reinterpret_cast<const weirt_window_result *>(host + steps)[index * WEIRT_WINDOW_STEPS + step];
    }
    weir_status launch_script(const weirt_rank *rank, const Script &script)
    {
        const weir_launch_opts opts = { sizeof opts, true };
        const uint64_t steps = uint64_t{ ranks } * WEIRT_WINDOW_STEPS * sizeof(weirt_window_step);
        weirt_window_script_args args = {};
        char *shared_here = static_cast<char *>(weir_memory_pointer(shared));
        for (uint32_t i = 0; i < 2; i++) {
            weir_window_device(windows[i], &args.windows[i]);
        }
        weir_grid_barrier_device(grid, &args.grid);
        args.steps = reinterpret_cast<weirt_window_step *>(shared_here);
        args.results = reinterpret_cast<weirt_window_result *>(shared_here + steps);
        args.ranks = ranks;
        std::memset(host + steps, 0, uint64_t{ ranks } * WEIRT_WINDOW_STEPS * sizeof(weirt_window_result));
        for (uint32_t i = 0; i < script.size(); i++) {
            args.counts[i] = static_cast<uint32_t>(script[i].size());
            std::memcpy(host + i * WEIRT_WINDOW_STEPS * sizeof(weirt_window_step), script[i].data(),
                        script[i].size() * sizeof(weirt_window_step));
        }
        return weir_launch(c.device, weirt_window_script_kernel(), shape(rank, ranks), &args, &opts, stream);
    }
    // Runs the script. Every call must end with WEIR_OK at all threads, and each take with its tag.
    bool run(weirt_rank *rank, const Script &script)
    {
        bool fine = WEIRT_OK(rank, launch_script(rank, script)) && WEIRT_OK(rank, finish());
        for (uint32_t i = 0; i < script.size(); i++) {
            for (uint32_t k = 0; k < script[i].size(); k++) {
                const weirt_window_result &got = result(i, k);
                const bool right = got.status[0] == WEIR_OK && got.status[1] == WEIR_OK && got.wrong == 0;
                if (fine && !right) {
                    weirt_fail(rank, __FILE__, __LINE__, "rank %u, call %u: %s and %s after %u, %u wrong", i, k,
                               weir_status_name(static_cast<weir_status>(got.status[0])),
                               weir_status_name(static_cast<weir_status>(got.status[1])), got.done, got.wrong);
                    fine = false;
                }
            }
        }
        return fine;
    }
};

} // namespace windows

#endif
