/* transfers.h - checks and times transfers between two ranks, for tutorials 03 to 05.
 *
 * Each rank has a buffer of two parts. Rank r sends the part at r * bytes, and the other part arrives from the peer. A
 * checked run writes new data, which depends on position, run and rank, and makes every bit wrong where data must
 * arrive. After the transfer a kernel compares every word. */
#ifndef EXAMPLES_TRANSFERS_H
#define EXAMPLES_TRANSFERS_H

#include "ranks.h"

/* ---- data --------------------------------------------------------------------------------------------- */

typedef struct data_args {
    uint64_t *sent; /* words of 8 bytes */
    uint64_t *received;
    uint64_t words;
    uint64_t sent_seed; /* differs for each rank and each run */
    uint64_t received_seed;
    uint64_t *wrong; /* counts words that are not what they must be */
} data_args;

WEIR_FN uint64_t data_word(uint64_t seed, uint64_t index)
{
    uint64_t word = (index + 1) * 0x9e3779b97f4a7c15u + seed * 0xd1342543de82ef95u;
    word = (word ^ word >> 31) * 0xaf251af3b0f025b5u;
    return word ^ word >> 29;
}

/* New data to send, and every bit wrong where data must arrive. */
WEIR_KERNEL(prepare, data_args)
{
    for (uint64_t i = coop.rank; i < args->words; i += coop.size) {
        args->sent[i] = data_word(args->sent_seed, i);
        args->received[i] = ~data_word(args->received_seed, i);
    }
}

WEIR_KERNEL(compare, data_args)
{
    uint64_t wrong = 0;
    for (uint64_t i = coop.rank; i < args->words; i += coop.size) {
        wrong += args->received[i] != data_word(args->received_seed, i);
    }
    if (wrong != 0) {
        weir_arch_add_relaxed_dev_u64(args->wrong, wrong);
    }
}

/* ---- transfers ---------------------------------------------------------------------------------------- */

typedef struct transfer {
    const char *label;
    const weir_kernel *kernel;
} transfer;

typedef struct transfer_bench {
    rank_job *job;
    weir_shape shape;
    weir_memory *buffer;
    weir_memory *wrong;
    uint64_t seed; /* advances in step on both ranks */
    /* Launches a transfer of `bytes` each way. */
    bool (*launch)(void *context, const transfer *t, uint64_t bytes);
    /* Returns when what this rank has asked for is done; NULL when that is so once its kernels have ended. */
    bool (*settle)(void *context);
    void *context;
} transfer_bench;

enum { TRANSFER_SIZES = 3, TRANSFER_CHECKED_RUNS = 5 };

static inline uint64_t transfer_size(const rank_job *job, int i)
{
    static const uint64_t gpu_sizes[TRANSFER_SIZES] = { 1 << 10, 1 << 20, 128 << 20 };
    static const uint64_t cpu_sizes[TRANSFER_SIZES] = { 1 << 10, 64 << 10, 1 << 20 };
    return job->on_cpu ? cpu_sizes[i] : gpu_sizes[i];
}

/* Makes what the checks need. `part` is the largest number of bytes of a part. The caller sets
 * launch, settle and context. */
static inline bool transfers_open(transfer_bench *b, rank_job *job, uint64_t part, const weir_memory_opts *opts)
{
    const weir_shape wanted = { 32, 1024 };
    memset(b, 0, sizeof(*b));
    b->job = job;
    b->shape = weir_device_fit_shape(job->device, wanted);
    return ok(job, weir_memory_allocate(job->comm, 2 * part, opts, &b->buffer)) &&
           ok(job, weir_memory_allocate(job->comm, sizeof(uint64_t), NULL, &b->wrong));
}

/* Loads the kernels. Loading code while a kernel waits for its peer may block both, so no rank goes on before all have
 * loaded theirs. */
static inline bool transfers_load(const transfer_bench *b, const transfer *transfers, int count)
{
    bool good = ok(b->job, weir_kernel_load(b->job->device, &prepare)) &&
                ok(b->job, weir_kernel_load(b->job->device, &compare));
    for (int i = 0; good && i < count; i++) {
        good = ok(b->job, weir_kernel_load(b->job->device, transfers[i].kernel));
    }
    return good && job_meet(b->job);
}

static inline void transfers_close(transfer_bench *b)
{
    weir_memory_destroy(b->wrong);
    weir_memory_destroy(b->buffer);
}

static inline bool launch_data_kernel(const transfer_bench *b, const weir_kernel *kernel, uint64_t bytes)
{
    const rank_job *job = b->job;
    char *buffer = (char *)weir_memory_pointer(b->buffer);
    data_args args;
    args.sent = (uint64_t *)(buffer + job->rank * bytes);
    args.received = (uint64_t *)(buffer + (job->rank ^ 1) * bytes);
    args.words = bytes / sizeof(uint64_t);
    args.sent_seed = 2 * b->seed + job->rank;
    args.received_seed = 2 * b->seed + (job->rank ^ 1);
    args.wrong = (uint64_t *)weir_memory_pointer(b->wrong);
    return ok(job, weir_launch(job->device, kernel, b->shape, &args, NULL, job->stream));
}

static inline bool settle(const transfer_bench *b) { return b->settle == NULL || b->settle(b->context); }

/* Writes new data on both ranks. Neither starts a transfer before the other's data is in place. */
static inline bool transfer_prepare(transfer_bench *b, uint64_t bytes)
{
    b->seed++;
    return settle(b) && launch_data_kernel(b, &prepare, bytes) &&
           ok(b->job, weir_comm_wait(b->job->comm, b->job->stream, 0)) && job_meet(b->job);
}

/* Compares every received byte, when all that was launched has ended. Neither rank changes its data before the other
 * has read it. */
static inline bool transfer_check(const transfer_bench *b, const transfer *t, uint64_t bytes)
{
    const rank_job *job = b->job;
    uint64_t wrong = 0;
    if (!settle(b) || !launch_data_kernel(b, &compare, bytes) || !ok(job, weir_comm_wait(job->comm, job->stream, 0)) ||
        !ok(job, weir_device_copy(job->device, &wrong, weir_memory_pointer(b->wrong), sizeof(wrong)))) {
        return false;
    }
    if (wrong != 0) {
        fprintf(stderr, "Rank %" PRIu32 " (%s): [%s] bytes %" PRIu64 ": %" PRIu64 " of %" PRIu64 " words are wrong\n",
                job->rank, job->label, t->label, bytes, wrong, bytes / sizeof(uint64_t));
        return false;
    }
    return job_meet(job);
}

/* Replays a graph of launches between two events. One launch before the first event brings the ranks together, so that
 * the time does not include a wait for the slower rank to start. */
static inline bool transfer_time(transfer_bench *b, const transfer *t, uint64_t bytes)
{
    const rank_job *job = b->job;
    int launches = job->on_cpu ? 10 : bytes > 16 << 20 ? 10 : 100;
    int replays = job->on_cpu ? 3 : 10;
    void *graph = NULL;
    double ms = 0;
    bool good = ok(job, weir_graph_begin(job->device, job->stream));
    for (int i = 0; good && i < launches; i++) {
        good = b->launch(b->context, t, bytes);
    }
    good = good && ok(job, weir_graph_end(job->device, job->stream, &graph)) &&
           ok(job, weir_graph_launch(job->device, graph, job->stream)) &&
           ok(job, weir_comm_wait(job->comm, job->stream, 0)) && job_meet(job) && transfer_prepare(b, bytes) &&
           b->launch(b->context, t, bytes) && ok(job, weir_event_record(job->device, job->begin, job->stream));
    for (int i = 0; good && i < replays; i++) {
        good = ok(job, weir_graph_launch(job->device, graph, job->stream));
    }
    if (!good || !ok(job, weir_event_record(job->device, job->end, job->stream)) || !transfer_check(b, t, bytes) ||
        !ok(job, weir_event_elapsed(job->device, job->begin, job->end, &ms))) {
        return false;
    }
    weir_graph_destroy(job->device, graph);
    ms /= launches * replays;
    printf("Rank %" PRIu32 " (%s): [%s] bytes %" PRIu64 ", elapsed %.5f ms/iter, BW %.3f GB/s\n", job->rank, job->label,
           t->label, bytes, ms, (double)bytes / ms / 1e6);
    return true;
}

/* Each transfer in all sizes: checked, then timed. */
static inline bool transfers_run(transfer_bench *b, const transfer *transfers, int count)
{
    weir_device_info info;
    bool good = true;
    weir_device_get_info(b->job->device, &info, sizeof info);
    printf("Rank %" PRIu32 " (%s): %s, %" PRIu32 " blocks of %" PRIu32 " threads\n", b->job->rank, b->job->label,
           info.model, b->shape.blocks, b->shape.threads);
    for (int i = 0; good && i < count * TRANSFER_SIZES; i++) {
        const transfer *t = &transfers[i / TRANSFER_SIZES];
        const uint64_t bytes = transfer_size(b->job, i % TRANSFER_SIZES);
        for (int run = 0; good && run < TRANSFER_CHECKED_RUNS; run++) {
            good = transfer_prepare(b, bytes) && b->launch(b->context, t, bytes) && transfer_check(b, t, bytes);
        }
        good = good && transfer_time(b, t, bytes);
    }
    return good;
}

#endif
