/* collective_measure.c - measures one operation of one size and checks its results.
 *
 * One checked call comes before the timed calls. Out of place, the data of the timed calls is checked too. A checked
 * call with new data follows. With --check, six checked calls come before and twelve, from a replayed graph, after.
 * Ranks do not synchronize on the host between checked calls, so writes that are too early or too late are also
 * found. Ranks of one GPU together put at most QUEUED_MAX launches of data on their streams, and then wait: a thread
 * that launches onto a full queue waits inside the driver, and the other ranks, on which the queue may depend, cannot
 * launch. */
#include "tools/perf/collective.h"
#include "tools/perf/data.h"

#include <string.h>

#define CHECKS 6u
#define REPLAYS 20u
#define NODES_MAX 200u
#define WARMUP 2u
#define QUEUED_MAX 512u

/* One operation as this rank calls it. */
typedef struct task {
    const perf_bench *bench;
    const perf_party *party;
    weir_collective_request request;
    bool in_place;
    bool eager;      /* launched, not recorded */
    uint32_t queued; /* launches on data since the last wait */
    uint64_t seed;
} task;

/* In place, the send buffer is a part of the receive buffer or the other way round. */
void perf_make_request(const perf_bench *b, const perf_party *by, uint64_t count, bool in_place,
                       weir_collective_request *out)
{
    const uint64_t part = count * weir_dtype_bytes(b->wish.dtype) * b->rank->rank;
    char *send = in_place ? by->recv : by->send;
    char *recv = by->recv;
    memset(out, 0, sizeof *out);
    if (in_place && b->parts != NULL) {
        recv = send; /* parts.c finds the rank's extents in it */
    } else if (in_place && (b->wish.what->kind == WEIR_ALLGATHER || b->wish.what->kind == WEIR_GATHER)) {
        send += part;
    } else if (in_place && (b->wish.what->kind == WEIR_REDUCE_SCATTER || b->wish.what->kind == WEIR_SCATTER)) {
        recv += part;
    }
    out->kind = b->wish.what->kind;
    out->dtype = (weir_dtype)b->wish.dtype;
    out->op = (weir_op)b->wish.op;
    out->count = count;
    out->send = send;
    out->recv = recv;
}

static weir_status wait_for(perf_rank *rank)
{
    weir_status status = weir_stream_wait(rank->device, rank->stream, 0);
    return status == WEIR_OK ? weir_comm_status(rank->comm) : status;
}

/* Launches the kernel for the data that `args` lists, and empties the list. */
static weir_status launch_data(perf_rank *rank, task *t, const weir_kernel *kernel, perf_data_args *args)
{
    const weir_shape gpu_shape = { 264, 512 };
    const weir_shape cpu_shape = { 1, 2 };
    const weir_collective_request *q = &t->request;
    perf_work work;
    if (args->n == 0) {
        return WEIR_OK;
    }
    memset(&work, 0, sizeof work);
    args->wrong = (uint64_t *)weir_memory_pointer(t->bench->wrong);
    args->dtype = q->dtype;
    args->op = q->op;
    args->rank = rank->rank;
    args->ranks = rank->ranks;
    work.kernel = kernel;
    work.shape = weir_device_fit_shape(rank->device, rank->gpu ? gpu_shape : cpu_shape);
    work.args = args;
    const bool full = t->queued >= QUEUED_MAX / rank->ranks;
    weir_status status = t->eager && rank->shared && full ? wait_for(rank) : WEIR_OK;
    t->queued = full ? 1 : t->queued + 1;
    status = status == WEIR_OK ? perf_launch(rank, &work) : status;
    args->n = 0;
    return status;
}

/* Adds the data of one operation. */
static weir_status put_data_of(perf_rank *rank, task *t, const weir_collective_request *q, const weir_kernel *kernel,
                               uint64_t seed, perf_data_args *args)
{
    const perf_data data = { (char *)(uintptr_t)q->send, (char *)q->recv, q->count, seed, q->kind, q->root };
    const weir_status status = args->n == PERF_DATA_MOST ? launch_data(rank, t, kernel, args) : WEIR_OK;
    args->data[args->n++] = data;
    return status;
}

/* Writes or checks all data of a call: of each transfer, of each extent of parts, or of the one operation. */
static weir_status put_data(perf_rank *rank, task *t, const weir_kernel *kernel, uint64_t seed)
{
    const perf_bench *b = t->bench;
    const bool transfers = b->wish.what->transfers;
    const uint32_t n = transfers ? perf_sendrecv_list(b, &t->request) : b->parts != NULL ? perf_parts_extents(b) : 1;
    weir_status status = WEIR_OK;
    perf_data_args args;
    memset(&args, 0, sizeof args);
    for (uint32_t i = 0; i < n && status == WEIR_OK; i++) {
        weir_collective_request data = t->request;
        uint64_t more = 0;
        if (transfers) {
            more = perf_sendrecv_data(b, &t->request, i, &data);
        } else if (b->parts != NULL) {
            perf_parts_extent(b, &t->request, i, &data);
            more = (uint64_t)(i + 1) << 32;
        }
        status = put_data_of(rank, t, &data, kernel, seed + more, &args);
    }
    return status == WEIR_OK ? launch_data(rank, t, kernel, &args) : status;
}

static weir_status put_call(perf_rank *rank, void *context, uint32_t number)
{
    const task *t = (const task *)context;
    (void)number;
    return t->party->call(t->party->context, &t->request, rank->stream);
}

/* Puts new data, the call, and the check of its results on the stream. */
static weir_status put_checked(perf_rank *rank, void *context, uint32_t number)
{
    task *t = (task *)context;
    weir_status status = put_data(rank, t, perf_data_write, t->seed + number);
    if (status == WEIR_OK) {
        status = put_call(rank, context, number);
    }
    return status == WEIR_OK ? put_data(rank, t, perf_data_check, t->seed + number) : status;
}

/* Runs checked calls; *wrong on the device counts wrong elements. */
static weir_status run_checked(perf_bench *b, task *t, uint32_t calls, uint32_t replays)
{
    perf_rank *rank = b->rank;
    const perf_calls checked = { put_checked, t };
    void *graph = NULL;
    weir_status status = WEIR_OK;
    t->seed = b->seed;
    t->eager = replays == 0;
    b->seed += calls;
    if (replays != 0) {
        status = perf_record_calls(rank, &checked, calls, &graph);
    }
    for (uint32_t i = 0; i < replays && status == WEIR_OK; i++) {
        status = weir_graph_launch(rank->device, graph, rank->stream);
    }
    for (uint32_t i = 1; i <= calls && replays == 0 && status == WEIR_OK; i++) {
        status = put_checked(rank, t, i);
    }
    if (status == WEIR_OK) {
        status = wait_for(rank);
    }
    if (graph != NULL) {
        weir_graph_destroy(rank->device, graph);
    }
    return status;
}

static uint32_t clamp(uint64_t value, uint32_t least, uint32_t most)
{
    return value < least ? least : value > most ? most : (uint32_t)value;
}

/* The default number of timed calls. */
static uint64_t default_calls(const perf_rank *rank, uint64_t bytes)
{
    if (!rank->gpu) {
        return 40;
    }
    const uint64_t mib = bytes >> 20;
    return mib <= 1 ? 4000 : mib <= 16 ? 400 : mib <= 256 ? 100 : 40;
}

static weir_status run_timed(perf_bench *b, task *t, uint64_t bytes, perf_result *out)
{
    perf_rank *rank = b->rank;
    const perf_options *options = rank->options;
    const uint64_t wanted = options->iters != 0 ? options->iters : default_calls(rank, bytes);
    const uint32_t replays = clamp(wanted, 1, REPLAYS);
    const uint32_t nodes = clamp(wanted / replays, 1, NODES_MAX);
    const uint32_t warmup = options->warmup != 0 ? (options->warmup + nodes - 1) / nodes : WARMUP;
    const perf_calls calls = { put_call, t };
    double us[PERF_REPLAYS_MAX];
    void *graph = NULL;
    weir_status status = put_data(rank, t, perf_data_write, ++b->seed);
    if (status == WEIR_OK) {
        status = t->party->cuda != NULL ? perf_cuda_look(t->party->cuda, &calls, &out->launched) : WEIR_OK;
    }
    if (status == WEIR_OK && options->graph) {
        status = perf_record_calls(rank, &calls, nodes, &graph);
    }
    if (status == WEIR_OK) {
        status = options->graph ? perf_time(rank, graph, nodes, warmup, replays, us)
                                : perf_time_calls(rank, &calls, nodes, warmup, replays, us);
    }
    if (status == WEIR_OK && !t->in_place) { /* in place, each call changes the data that the next one sends */
        status = put_data(rank, t, perf_data_check, b->seed);
    }
    if (status == WEIR_OK) {
        status = wait_for(rank);
    }
    if (graph != NULL) {
        weir_graph_destroy(rank->device, graph);
    }
    if (status == WEIR_OK) {
        perf_sort(us, replays);
        out->us = perf_percentile(us, replays, 0.5);
        out->min_us = us[0];
        out->p95_us = perf_percentile(us, replays, 0.95);
    }
    return status;
}

static weir_status add_wrong(perf_bench *b, perf_result *out)
{
    uint64_t mine = 0;
    const weir_status status = weir_device_copy(b->rank->device, &mine, weir_memory_pointer(b->wrong), sizeof mine);
    return status == WEIR_OK ? perf_add_up(b->rank, mine, &out->wrong) : status;
}

weir_status perf_measure(perf_bench *b, const perf_party *by, uint64_t count, uint64_t bytes, bool in_place,
                         perf_result *out)
{
    perf_rank *rank = b->rank;
    const bool check = rank->options->check;
    task t = { .bench = b, .party = by, .in_place = in_place };
    perf_make_request(b, by, count, in_place, &t.request);
    weir_status status = weir_device_fill(rank->device, weir_memory_pointer(b->wrong), 0, sizeof(uint64_t));
    if (status == WEIR_OK) {
        status = run_checked(b, &t, check ? CHECKS : 1, 0);
    }
    if (status == WEIR_OK) {
        status = run_timed(b, &t, bytes, out);
    }
    if (status == WEIR_OK) {
        status = run_checked(b, &t, check ? CHECKS : 1, check ? 2 : 0);
    }
    return status == WEIR_OK ? add_wrong(b, out) : status;
}
