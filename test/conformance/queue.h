// Set-up of tests of fifos and proxies: a communicator, shared memory for reports, a stream, and the accounting of
// requests.
#ifndef WEIRT_QUEUE_H
#define WEIRT_QUEUE_H

#include <cstring>

#include "test/harness/checks.h"
#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

#include "queue_kernels.h"

constexpr uint32_t QUEUE_SHORT_MS = 150;

struct queue_bench {
    weirt_comm comm;
    weir_memory *shared;
    queue_report *report;
    void *stream;
    weir_shape shape; // the maximum of pushing threads of a case
    uint32_t threads;
};

// These cases need no peer; several ranks share the allowed number of threads.
inline bool queue_open(weirt_rank *rank, uint32_t timeout_ms, queue_bench *bench)
{
    std::memset(static_cast<void *>(bench), 0, sizeof *bench);
    weir_memory_opts host = { sizeof host, WEIR_MEMORY_HOST, false, 0 };
    if (!weirt_comm_open(rank, timeout_ms, &bench->comm) ||
        !WEIRT_OK(rank, weir_memory_allocate(bench->comm.comm, sizeof(queue_report), &host, &bench->shared)) ||
        !WEIRT_OK(rank, weir_kernel_load(bench->comm.device, queue_push_kernel())) ||
        !WEIRT_OK(rank, weir_stream_create(bench->comm.device, &bench->stream))) {
        return false;
    }
    weir_shape wanted = { 8, 128 };
    if (std::strcmp(rank->stage->kind, "cpu") == 0) {
        wanted = { 1, (std::strcmp(weirt_sanitizer(), "thread") == 0 ? 15u : 63u) / rank->size };
    }
    bench->report = static_cast<queue_report *>(weir_memory_host_pointer(bench->shared));
    bench->shape = weir_device_fit_shape(bench->comm.device, wanted);
    if (std::strcmp(rank->stage->kind, "cpu") == 0) {
        bench->shape = wanted; // without a barrier the blocks need not be resident together
    }
    bench->threads = bench->shape.blocks * bench->shape.threads;
    return WEIRT_EXPECT(rank, bench->report != nullptr);
}

inline void queue_close(queue_bench *bench)
{
    if (bench->stream != nullptr) {
        weir_stream_destroy(bench->comm.device, bench->stream);
    }
    weir_memory_destroy(bench->shared);
    weirt_comm_close(&bench->comm);
}

inline queue_args queue_args_of(const queue_bench *bench)
{
    queue_args args;
    std::memset(static_cast<void *>(&args), 0, sizeof args);
    args.report = static_cast<queue_report *>(weir_memory_pointer(bench->shared));
    args.type = WEIR_REQUEST_USER;
    args.pushes = 1;
    return args;
}

inline bool queue_launch(weirt_rank *rank, const queue_bench *bench, const queue_args *args, weir_shape shape)
{
    std::memset(static_cast<void *>(bench->report), 0, sizeof *bench->report);
    return WEIRT_OK(rank, weir_launch(bench->comm.device, queue_push_kernel(), shape, args, nullptr, bench->stream));
}

inline bool queue_finish(weirt_rank *rank, const queue_bench *bench)
{
    return WEIRT_OK(rank, weir_stream_wait(bench->comm.device, bench->stream, weirt_timeout_ms()));
}

// Whether the first `threads` threads all pushed and waited with these statuses.
inline bool queue_statuses(weirt_rank *rank, const queue_bench *bench, uint32_t threads, weir_status push,
                           weir_status wait)
{
    for (uint32_t i = 0; i < threads; i++) {
        if (bench->report->push[i] != push || bench->report->wait[i] != wait) {
            weirt_fail(rank, __FILE__, __LINE__, "thread %u: push %s, wait %s; expected %s, %s", i,
                       weir_status_name(static_cast<weir_status>(bench->report->push[i])),
                       weir_status_name(static_cast<weir_status>(bench->report->wait[i])), weir_status_name(push),
                       weir_status_name(wait));
            return false;
        }
    }
    return true;
}

// Checks that each thread's requests arrive once, in order and whole.
struct queue_account {
    uint64_t next[QUEUE_THREADS] = {};
    uint64_t total = 0;
    uint64_t wrong = 0;

    // `channel` is the channel id that the request must have.
    void take(const weir_request *request, const uint32_t *channel)
    {
        weir_request right;
        uint32_t thread = static_cast<uint32_t>(request->value >> 40);
        uint64_t i = request->value & ((uint64_t{ 1 } << 40) - 1);
        total++;
        if (thread >= QUEUE_THREADS || next[thread] != i) {
            wrong++;
            return;
        }
        queue_request(thread, i, request->type, &right);
        right.channel = channel != nullptr ? *channel : right.channel;
        wrong += std::memcmp(&right, request, sizeof right) != 0;
        next[thread]++;
    }
};

// The longest failing call. All waiting calls end by the deadline of the first.
inline uint64_t queue_longest_ms(const queue_bench *bench, uint32_t threads)
{
    uint64_t longest = 0;
    for (uint32_t i = 0; i < threads; i++) {
        longest = bench->report->elapsed_ns[i] > longest ? bench->report->elapsed_ns[i] : longest;
    }
    return (longest + 999999) / 1000000;
}

inline bool queue_late_enough(uint64_t elapsed_ms)
{
    return elapsed_ms >= QUEUE_SHORT_MS && elapsed_ms < QUEUE_SHORT_MS + 5000 * weirt_slow();
}

#endif
