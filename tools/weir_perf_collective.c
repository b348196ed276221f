/* weir_perf_collective.c - weir-perf allreduce and its like: collectives, in the manner of nccl-tests, beside NCCL's.
 *
 * For each size the operation is measured out of place and in place, and with --compare nccl out of place by NCCL on
 * plain buffers and on symmetric windows. Each of these is called once with checked data before it is timed, checked
 * once more on the data of the timed calls (out of place), and called on new data after them: with --check six times
 * before and twelve times, from a replayed graph, after. Between such calls ranks do not wait for each other on the
 * host, so that what is written too early or too late is found as well. */

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "weir_perf_cuda.h"
#include "weir_perf_data.h"
#include "weir_perf_nccl.h"
#include "weir_perf_plot.h"

#define CHECKS 6u
#define REPLAYS 20u
#define NODES_MAX 200u
#define WARMUP 2u

/* ---- names ------------------------------------------------------------------------------------------------ */

typedef struct operation {
    const char *name;
    weir_collective_kind kind;
    bool reduces;
    bool parts; /* a size is that of all ranks' parts, of which the count is one */
    bool once;  /* has that form */
} operation;

static const operation operations[] = {
    { "allreduce", WEIR_ALLREDUCE, true, false, true },
    { "allgather", WEIR_ALLGATHER, false, true, false },
    { "reduce_scatter", WEIR_REDUCE_SCATTER, true, true, false },
    { "all_to_all", WEIR_ALL_TO_ALL, false, true, false },
    { "broadcast", WEIR_BROADCAST, false, false, false },
    { "reduce", WEIR_REDUCE, true, false, true },
};

static const char *const dtype_names[] = { "f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2",
                                           "i8",  "u8",  "i32", "u32",  "i64",    "u64" };
static const char *const op_names[] = { "sum", "prod", "min", "max", "avg" };
static const char *const form_names[] = { "auto", "once", "packets", "lines", "slots" };

/* The place of the name, of `length` characters, or `count`. */
static uint32_t find_name(const char *const *names, uint32_t count, const char *name, size_t length)
{
    uint32_t i = 0;
    while (i < count && (strlen(names[i]) != length || strncmp(names[i], name, length) != 0)) {
        i++;
    }
    return i;
}

static bool take_name(const char *option, const char *name, const char *const *names, uint32_t count, uint32_t *out)
{
    if (name == NULL) {
        return true;
    }
    *out = find_name(names, count, name, strlen(name));
    if (*out < count) {
        return true;
    }
    fprintf(stderr, "weir-perf: '%s' is no value for %s; there are", name, option);
    for (uint32_t i = 0; i < count; i++) {
        fprintf(stderr, "%s %s", i == 0 ? "" : ",", names[i]);
    }
    fprintf(stderr, "\n");
    return false;
}

/* What the options ask for. */
typedef struct wish {
    const operation *what;
    uint32_t dtype;
    uint32_t op;
    weir_collective_form forms[ROWS(form_names)];
    uint32_t form_count;
    bool all_forms; /* those that have room */
} wish;

static bool take_forms(const char *list, wish *out)
{
    out->forms[0] = WEIR_FORM_AUTO;
    out->form_count = 1;
    if (list == NULL) {
        return true;
    }
    out->form_count = 0;
    out->all_forms = strcmp(list, "all") == 0;
    for (uint32_t i = WEIR_FORM_ONCE; out->all_forms && i < ROWS(form_names); i++) {
        if (out->what->once || i != WEIR_FORM_ONCE) {
            out->forms[out->form_count++] = (weir_collective_form)i;
        }
    }
    while (!out->all_forms && *list != '\0') {
        const size_t length = strcspn(list, ",");
        const uint32_t form = find_name(form_names, ROWS(form_names), list, length);
        if (form == ROWS(form_names) || out->form_count == ROWS(out->forms)) {
            fprintf(stderr, "weir-perf: --form has '%.*s'; there are auto, once, packets, lines, slots, or all\n",
                    (int)length, list);
            return false;
        }
        out->forms[out->form_count++] = (weir_collective_form)form;
        list += length;
        list += *list == ',';
    }
    return out->form_count != 0;
}

static bool take_wish(const char *command, const perf_options *options, wish *out)
{
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < ROWS(operations); i++) {
        if (strcmp(operations[i].name, command) == 0) {
            out->what = &operations[i];
        }
    }
    out->dtype = WEIR_F16;
    out->op = WEIR_SUM;
    if (!take_name("-d", options->dtype, dtype_names, ROWS(dtype_names), &out->dtype) ||
        !take_name("-o", options->op, op_names, ROWS(op_names), &out->op) || !take_forms(options->form, out)) {
        return false;
    }
    const char *refused = NULL;
    if (options->op != NULL && !out->what->reduces) {
        refused = "-o is for operations that reduce";
    } else if (options->compare != NULL && strcmp(options->compare, "nccl") != 0) {
        refused = "--compare knows only nccl";
    } else if (options->nccl != NULL && options->compare == NULL) {
        refused = "--nccl needs --compare nccl";
    } else if (options->ranks.count > 1 || options->threads.count > 1) {
        refused = "-g and --threads take one number";
    } else if (options->plot != NULL && (out->form_count > 1 || options->blocks.count > 1)) {
        refused = "--plot needs one form and one number of blocks";
    }
    if (refused != NULL) {
        fprintf(stderr, "weir-perf: %s: %s\n", command, refused);
    }
    return refused == NULL;
}

/* ---- what a rank holds ------------------------------------------------------------------------------------ */

/* What is measured, and where its data is. */
typedef struct party {
    weir_status (*call)(void *context, const weir_collective_request *request, void *stream);
    void *context;
    char *send;
    char *recv;
} party;

typedef struct bench {
    perf_rank *rank;
    wish wish;
    char title[96];
    weir_collective *collective;
    weir_memory *send;
    weir_memory *recv;
    weir_memory *wrong; /* a count */
    perf_cuda *cuda;
    perf_nccl *nccl;
    void *plain[2]; /* send and recv of NCCL */
    perf_nccl_windows windows;
    perf_plot plot;
    double limit; /* of the link, in GB/s */
    uint64_t seed;
    uint32_t rows;
    uint32_t wrong_rows;
} bench;

static weir_status call_weir(void *context, const weir_collective_request *q, void *stream)
{
    weir_collective *collective = (weir_collective *)context;
    switch (q->kind) {
    case WEIR_ALLREDUCE:
        return weir_allreduce(collective, q->send, q->recv, q->count, q->dtype, q->op, stream);
    case WEIR_REDUCE:
        return weir_reduce(collective, q->send, q->recv, q->count, q->dtype, q->op, q->root, stream);
    case WEIR_REDUCE_SCATTER:
        return weir_reduce_scatter(collective, q->send, q->recv, q->count, q->dtype, q->op, stream);
    case WEIR_ALLGATHER:
        return weir_allgather(collective, q->send, q->recv, q->count, q->dtype, stream);
    case WEIR_BROADCAST:
        return weir_broadcast(collective, q->send, q->recv, q->count, q->dtype, q->root, stream);
    default:
        return weir_all_to_all(collective, q->send, q->recv, q->count, q->dtype, stream);
    }
}

static weir_status call_nccl(void *context, const weir_collective_request *q, void *stream)
{
    return perf_nccl_call((perf_nccl *)context, q, stream);
}

static weir_status create_collective(bench *b)
{
    const perf_rank *rank = b->rank;
    const perf_list *blocks = &rank->options->blocks;
    const perf_list *threads = &rank->options->threads;
    const uint64_t most = perf_largest(blocks);
    weir_collective_opts opts;
    memset(&opts, 0, sizeof opts);
    opts.size = sizeof opts;
    if (most > UINT32_MAX || (threads->count != 0 && threads->values[0] > UINT32_MAX)) {
        return perf_fail(b->rank, WEIR_ERR_INVALID, "too many blocks or threads");
    }
    opts.blocks = blocks->count != 0 ? (uint32_t)most : rank->shared ? rank->info.multiprocessors / rank->ranks : 0;
    opts.threads = threads->count != 0 ? (uint32_t)threads->values[0] : 0;
    return weir_collective_create(rank->comm, &opts, &b->collective);
}

static weir_status create_buffers(bench *b, uint64_t bytes)
{
    perf_rank *rank = b->rank;
    weir_memory **const memories[] = { &b->send, &b->recv };
    weir_status status = weir_memory_allocate(rank->comm, sizeof(uint64_t), NULL, &b->wrong);
    if (status == WEIR_OK) { /* what a fill needs is loaded before any kernel spins */
        status = weir_device_fill(rank->device, weir_memory_pointer(b->wrong), 0, sizeof(uint64_t));
    }
    for (uint32_t i = 0; i < 2 && status == WEIR_OK; i++) {
        status = weir_memory_allocate(rank->comm, bytes, NULL, memories[i]);
        if (status == WEIR_OK && rank->options->registered) {
            status = weir_collective_register(b->collective, *memories[i]);
        }
    }
    if (status == WEIR_OK) {
        status = weir_kernel_load(rank->device, perf_data_write);
    }
    return status == WEIR_OK ? weir_kernel_load(rank->device, perf_data_check) : status;
}

static weir_status open_nccl(bench *b, uint64_t bytes)
{
    perf_rank *rank = b->rank;
    if (rank->options->compare == NULL) {
        return WEIR_OK;
    }
    if (!rank->gpu) {
        return perf_fail(rank, WEIR_ERR_UNSUPPORTED, "--compare nccl needs GPUs");
    }
    if (rank->shared) {
        return perf_fail(rank, WEIR_ERR_UNSUPPORTED, "--compare nccl needs a GPU for each rank");
    }
    weir_status status = perf_cuda_open(rank, &b->cuda);
    if (status == WEIR_OK) {
        status = perf_nccl_open(rank, rank->options->nccl, &b->nccl);
    }
    for (uint32_t i = 0; i < 2 && status == WEIR_OK; i++) {
        status = perf_cuda_allocate(b->cuda, bytes, &b->plain[i]);
    }
    return status == WEIR_OK ? perf_nccl_open_windows(b->nccl, bytes, &b->windows) : status;
}

static void report_facts(bench *b)
{
    const perf_rank *rank = b->rank;
    const perf_options *options = rank->options;
    const bool reduces = b->wish.what->reduces;
    perf_fact(rank->output, "ranks", "%" PRIu32 "%s", rank->ranks, rank->shared ? ", on one GPU" : "");
    perf_fact(rank->output, "collective", "%.1f MiB of its own on each rank",
              (double)weir_collective_bytes(b->collective) / (1 << 20));
    perf_fact(rank->output, "time", "us, %s, longest of the ranks; median, least and 95th percentile",
              options->graph ? "a node of replayed graphs" : "calls put on a stream");
    perf_fact(rank->output, "bandwidth", "GB/s; busbw: what each rank sends, at least");
    b->limit = rank->gpu && rank->output != NULL ? perf_link_limit(&rank->info) : NAN;
    if (!isnan(b->limit)) {
        perf_fact(rank->output, "link", "%.0f GB/s each way, all NVLinks of rank 0", b->limit);
    }
    (void)snprintf(b->title, sizeof b->title, "%s, %s%s%s, %" PRIu32 " %s, %s, %s buffers%s", rank->command,
                   dtype_names[b->wish.dtype], reduces ? " " : "", reduces ? op_names[b->wish.op] : "", rank->ranks,
                   rank->gpu ? "GPUs" : "CPU ranks", options->graph ? "graphs" : "stream",
                   options->registered ? "registered" : "ordinary", rank->gpu ? ", NVLS off" : "");
}

static weir_status create_bench(perf_rank *rank, uint64_t largest, bench *b)
{
    const uint64_t bytes = (largest + 255) / 256 * 256;
    memset(b, 0, sizeof *b);
    b->rank = rank;
    if (!take_wish(rank->command, rank->options, &b->wish)) {
        return perf_fail(rank, WEIR_ERR_INVALID, "options");
    }
    weir_status status = create_collective(b);
    if (status == WEIR_OK) {
        status = create_buffers(b, bytes);
    }
    if (status == WEIR_OK) {
        status = perf_report_machine(rank);
    }
    if (status == WEIR_OK) {
        report_facts(b);
        status = open_nccl(b, bytes);
    }
    return status;
}

static void destroy_bench(bench *b)
{
    if (b->nccl != NULL) {
        perf_nccl_close_windows(b->nccl, &b->windows);
        perf_nccl_close(b->nccl);
        perf_cuda_free(b->cuda, b->plain[0]);
        perf_cuda_free(b->cuda, b->plain[1]);
    }
    perf_cuda_close(b->cuda);
    weir_collective_destroy(b->collective);
    weir_memory_destroy(b->wrong);
    weir_memory_destroy(b->recv);
    weir_memory_destroy(b->send);
}

/* ---- one measurement -------------------------------------------------------------------------------------- */

/* An operation of one party, as this rank calls it. */
typedef struct task {
    const bench *bench;
    const party *party;
    weir_collective_request request;
    bool in_place;
    uint64_t seed;
} task;

typedef struct result {
    double us; /* median; NaN: not measured */
    double min_us;
    double p95_us;
    uint64_t wrong; /* elements, of all ranks */
    perf_launched launched; /* of NCCL's */
} result;

/* In place what is sent, or received, is a part of the other. */
static void make_task(bench *b, const party *by, uint64_t count, bool in_place, task *out)
{
    const uint64_t part = count * weir_dtype_bytes(b->wish.dtype) * b->rank->rank;
    char *send = in_place ? by->recv : by->send;
    char *recv = by->recv;
    memset(out, 0, sizeof *out);
    if (in_place && b->wish.what->kind == WEIR_ALLGATHER) {
        send += part;
    } else if (in_place && b->wish.what->kind == WEIR_REDUCE_SCATTER) {
        recv += part;
    }
    out->bench = b;
    out->party = by;
    out->in_place = in_place;
    out->request.kind = b->wish.what->kind;
    out->request.dtype = (weir_dtype)b->wish.dtype;
    out->request.op = (weir_op)b->wish.op;
    out->request.count = count;
    out->request.send = send;
    out->request.recv = recv;
}

static weir_status put_data(perf_rank *rank, const task *t, const weir_kernel *kernel, uint64_t seed)
{
    const weir_shape gpu_shape = { 264, 512 };
    const weir_shape cpu_shape = { 1, 2 };
    perf_data args;
    perf_work work;
    memset(&args, 0, sizeof args);
    memset(&work, 0, sizeof work);
    args.send = (char *)(uintptr_t)t->request.send;
    args.recv = (char *)t->request.recv;
    args.wrong = (uint64_t *)weir_memory_pointer(t->bench->wrong);
    args.count = t->request.count;
    args.seed = seed;
    args.kind = t->request.kind;
    args.dtype = t->request.dtype;
    args.op = t->request.op;
    args.root = t->request.root;
    args.rank = rank->rank;
    args.ranks = rank->ranks;
    work.kernel = kernel;
    work.shape = weir_device_fit_shape(rank->device, rank->gpu ? gpu_shape : cpu_shape);
    work.args = &args;
    return perf_launch(rank, &work);
}

static weir_status put_call(perf_rank *rank, void *context, uint32_t number)
{
    const task *t = (const task *)context;
    (void)number;
    return t->party->call(t->party->context, &t->request, rank->stream);
}

/* New data, the call, and a look at what came out. */
static weir_status put_checked(perf_rank *rank, void *context, uint32_t number)
{
    const task *t = (const task *)context;
    weir_status status = put_data(rank, t, perf_data_write, t->seed + number);
    if (status == WEIR_OK) {
        status = put_call(rank, context, number);
    }
    return status == WEIR_OK ? put_data(rank, t, perf_data_check, t->seed + number) : status;
}

static weir_status wait_for(perf_rank *rank)
{
    weir_status status = weir_stream_wait(rank->device, rank->stream, 0);
    return status == WEIR_OK ? weir_comm_status(rank->comm) : status;
}

/* The calls that are checked; *wrong on the device counts. */
static weir_status run_checked(bench *b, task *t, uint32_t calls, uint32_t replays)
{
    perf_rank *rank = b->rank;
    const perf_calls checked = { put_checked, t };
    void *graph = NULL;
    weir_status status = WEIR_OK;
    t->seed = b->seed;
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

/* Timed calls of a rank, unless told otherwise. */
static uint64_t default_calls(const perf_rank *rank, uint64_t bytes)
{
    if (!rank->gpu) {
        return 40;
    }
    const uint64_t mib = bytes >> 20;
    return mib <= 1 ? 4000 : mib <= 16 ? 400 : mib <= 256 ? 100 : 40;
}

static weir_status run_timed(bench *b, task *t, uint64_t bytes, result *out)
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
        status = t->party->call == call_nccl ? perf_cuda_look(b->cuda, &calls, &out->launched) : WEIR_OK;
    }
    if (status == WEIR_OK && options->graph) {
        status = perf_record_calls(rank, &calls, nodes, &graph);
    }
    if (status == WEIR_OK) {
        status = options->graph ? perf_time(rank, graph, nodes, warmup, replays, us)
                                : perf_time_calls(rank, &calls, nodes, warmup, replays, us);
    }
    if (status == WEIR_OK && !t->in_place) { /* in place each call has changed what the next one sends */
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

static weir_status add_wrong(bench *b, result *out)
{
    uint64_t counts[PERF_RANKS_MAX] = { 0 };
    perf_rank *rank = b->rank;
    weir_status status = weir_device_copy(rank->device, &counts[rank->rank], weir_memory_pointer(b->wrong),
                                          sizeof counts[0]);
    if (status == WEIR_OK) {
        status = weir_bootstrap_allgather(rank->bootstrap, NULL, counts, sizeof counts[0]);
    }
    for (uint32_t i = 0; i < rank->ranks; i++) {
        out->wrong += counts[i];
    }
    return status;
}

static weir_status measure(bench *b, const party *by, uint64_t count, uint64_t bytes, bool in_place, result *out)
{
    perf_rank *rank = b->rank;
    const bool check = rank->options->check;
    task t;
    make_task(b, by, count, in_place, &t);
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

/* ---- rows ------------------------------------------------------------------------------------------------- */

enum { OUT, IN, PLAIN, WINDOWS, RESULTS };

/* How weir does it. */
typedef struct choice {
    weir_collective_form form;
    weir_shape shape;
} choice;

/* Bytes that each rank sends at least, of those that a size counts. */
static double bus_factor(const bench *b)
{
    const double ranks = b->rank->ranks;
    const double factor = b->wish.what->kind == WEIR_ALLREDUCE ? 2 : b->wish.what->parts ? 1 : 0;
    return factor != 0 ? factor * (ranks - 1) / ranks : 1;
}

static double bandwidth(uint64_t bytes, const result *r)
{
    return (double)bytes / r->us / 1e3;
}

static void add_point(bench *b, uint64_t bytes, const result *results)
{
    perf_plot_point point;
    point.bytes = bytes;
    for (uint32_t i = 0; i < RESULTS; i++) {
        point.us[i] = results[i].us;
        point.gbps[i] = bandwidth(bytes, &results[i]) * bus_factor(b);
    }
    perf_plot_add(&b->plot, &point);
}

static void report_row(bench *b, uint64_t count, uint64_t bytes, const choice *chosen, const result *results)
{
    const result *out = &results[OUT];
    const result *in = &results[IN];
    const result *plain = &results[PLAIN];
    const result *windows = &results[WINDOWS];
    const double factor = bus_factor(b);
    const double best = isnan(windows->us) || plain->us < windows->us ? plain->us : windows->us;
    const perf_field fields[] = {
        perf_count("bytes", bytes),
        perf_wide(perf_count("count", count), 11),
        perf_wide(perf_text("type", dtype_names[b->wish.dtype]), 7),
        perf_wide(perf_text("redop", b->wish.what->reduces ? op_names[b->wish.op] : "none"), 6),
        perf_wide(perf_text("form", form_names[chosen->form]), 8),
        perf_wide(perf_count("blocks", chosen->shape.blocks), 7),
        perf_wide(perf_count("threads", chosen->shape.threads), 0),
        perf_wide(perf_real("time_us", out->us, 2), 10),
        perf_wide(perf_real("min_us", out->min_us, 2), 10),
        perf_wide(perf_real("p95_us", out->p95_us, 2), 10),
        perf_wide(perf_real("algbw", bandwidth(bytes, out), 2), 8),
        perf_wide(perf_real("busbw", bandwidth(bytes, out) * factor, 2), 8),
        perf_wide(perf_count("wrong", out->wrong), 6),
        perf_wide(perf_real("in_us", in->us, 2), 10),
        perf_wide(perf_real("in_min_us", in->min_us, 2), 0),
        perf_wide(perf_real("in_p95_us", in->p95_us, 2), 0),
        perf_wide(perf_real("in_algbw", bandwidth(bytes, in), 2), 9),
        perf_wide(perf_real("in_busbw", bandwidth(bytes, in) * factor, 2), 9),
        perf_wide(perf_count("in_wrong", in->wrong), 9),
        perf_wide(perf_real("nccl_us", plain->us, 2), 10), /* from here on with --compare */
        perf_wide(perf_real("sym_us", windows->us, 2), 10),
        perf_wide(perf_real("ratio", out->us / best, 3), 7),
        perf_wide(perf_count("nccl_blocks", plain->launched.blocks), 0),
        perf_wide(perf_text("nccl_kernel", plain->launched.kernel), 0),
        perf_wide(perf_count("nccl_wrong", plain->wrong), 0),
        perf_wide(perf_count("sym_blocks", windows->launched.blocks), 0),
        perf_wide(perf_text("sym_kernel", windows->launched.kernel), 0),
        perf_wide(perf_count("sym_wrong", windows->wrong), 0),
    };
    perf_row(b->rank->output, b->title, fields, b->nccl != NULL ? ROWS(fields) : ROWS(fields) - 9);
}

/* What is being measured, on a terminal. */
static void show_progress(const bench *b, uint64_t bytes, const char *what)
{
    if (b->rank->output != NULL && isatty(STDERR_FILENO) && isatty(STDOUT_FILENO)) {
        fprintf(stderr, "\r\033[K");
        if (what != NULL) {
            fprintf(stderr, "%s of %" PRIu64 " bytes, %s", b->rank->command, bytes, what);
        }
        (void)fflush(stderr);
    }
}

static weir_status measure_parties(bench *b, uint64_t count, uint64_t bytes, result *results)
{
    const party ours = { call_weir, b->collective, (char *)weir_memory_pointer(b->send),
                         (char *)weir_memory_pointer(b->recv) };
    const party plain = { call_nccl, b->nccl, (char *)b->plain[0], (char *)b->plain[1] };
    const party windows = { call_nccl, b->nccl, (char *)b->windows.send, (char *)b->windows.recv };
    show_progress(b, bytes, "out of place");
    weir_status status = measure(b, &ours, count, bytes, false, &results[OUT]);
    if (status == WEIR_OK) {
        show_progress(b, bytes, "in place");
        status = measure(b, &ours, count, bytes, true, &results[IN]);
    }
    if (status == WEIR_OK && b->nccl != NULL) {
        show_progress(b, bytes, "NCCL");
        status = measure(b, &plain, count, bytes, false, &results[PLAIN]);
    }
    if (status == WEIR_OK && b->nccl != NULL && windows.send != NULL) {
        show_progress(b, bytes, "NCCL with symmetric windows");
        status = measure(b, &windows, count, bytes, false, &results[WINDOWS]);
    }
    show_progress(b, bytes, NULL);
    return status;
}

static weir_status measure_row(bench *b, uint64_t size, weir_collective_form form, uint32_t blocks)
{
    const uint32_t parts = b->wish.what->parts ? b->rank->ranks : 1;
    const uint64_t count = size / weir_dtype_bytes(b->wish.dtype) / parts;
    const uint64_t bytes = count * weir_dtype_bytes(b->wish.dtype) * parts;
    result results[RESULTS];
    memset(results, 0, sizeof results);
    for (uint32_t i = 0; i < RESULTS; i++) {
        results[i].us = NAN;
        results[i].min_us = NAN;
        results[i].p95_us = NAN;
    }
    choice chosen = { form, { 0, 0 } };
    weir_collective_request request;
    memset(&request, 0, sizeof request);
    request.kind = b->wish.what->kind;
    request.dtype = (weir_dtype)b->wish.dtype;
    request.op = (weir_op)b->wish.op;
    request.count = count;
    weir_status status = weir_collective_force(b->collective, form, blocks);
    if (status == WEIR_OK) {
        status = weir_collective_choose(b->collective, &request, &chosen.form, &chosen.shape);
    }
    if (status == WEIR_ERR_LIMIT && b->wish.all_forms) {
        return WEIR_OK; /* the form has no room for so much, on any rank */
    }
    if (status == WEIR_OK) {
        status = measure_parties(b, count, bytes, results);
    }
    if (status == WEIR_OK) {
        report_row(b, count, bytes, &chosen, results);
        add_point(b, bytes, results);
        b->rows++;
        b->wrong_rows += results[OUT].wrong + results[IN].wrong != 0 ? 1 : 0;
    }
    return status;
}

static weir_status measure_sizes(bench *b, const perf_list *sizes)
{
    const perf_list *blocks = &b->rank->options->blocks;
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < sizes->count; i++) {
        for (uint32_t form = 0; form < b->wish.form_count; form++) {
            for (uint32_t k = 0; (k == 0 || k < blocks->count) && status == WEIR_OK; k++) {
                status = measure_row(b, sizes->values[i], b->wish.forms[form],
                                     blocks->count != 0 ? (uint32_t)blocks->values[k] : 0);
            }
        }
    }
    if (status == WEIR_OK && b->wrong_rows != 0) {
        status = perf_fail(b->rank, WEIR_ERR_CORRUPT, "%s: %" PRIu32 " of %" PRIu32 " rows have wrong elements",
                           b->rank->command, b->wrong_rows, b->rows);
    }
    return status;
}

/* Ends what create_bench has begun, when no rank's kernels use it any more. */
static weir_status end_bench(bench *b, weir_status status)
{
    perf_rank *rank = b->rank;
    const char *plot = rank->options->plot;
    if (status == WEIR_OK && plot != NULL && rank->output != NULL &&
        !perf_plot_write(&b->plot, plot, b->title, b->limit)) {
        status = perf_fail(rank, WEIR_ERR_SYSTEM, "%s: %s", plot, strerror(errno));
    }
    if (status != WEIR_OK && rank->error[0] == '\0') {
        (void)perf_fail(rank, status, "%s", weir_last_error());
    }
    if (status != WEIR_OK && rank->gpu) {
        return status;
    }
    if (status != WEIR_OK) {
        weir_comm_abort(rank->comm); /* kernels that wait end */
    }
    weir_status ended = weir_stream_wait(rank->device, rank->stream, 0);
    if (ended == WEIR_OK) {
        ended = weir_bootstrap_barrier(rank->bootstrap, NULL);
    }
    if (ended == WEIR_OK) {
        destroy_bench(b);
    }
    return status == WEIR_OK ? ended : status;
}

static weir_status run_collective(perf_rank *rank)
{
    bench b;
    perf_list sizes;
    weir_status status = perf_choose_sizes(rank, (uint64_t)1 << 30, &sizes);
    if (status != WEIR_OK) {
        return status;
    }
    status = create_bench(rank, perf_largest(&sizes), &b);
    if (status == WEIR_OK) {
        status = measure_sizes(&b, &sizes);
    }
    return end_bench(&b, status);
}

/* ---- commands --------------------------------------------------------------------------------------------- */

static int start_collective(const perf_options *options, char **arguments);

#define OPTIONS "-b -e -f --sizes -g -d -o -n -w --graph --check --register --compare --nccl --blocks --threads" \
                " --form --plot"

const perf_command perf_allreduce = { "allreduce", "all ranks get the sum, or the like, of all", OPTIONS,
                                      run_collective, start_collective };
const perf_command perf_allgather = { "allgather", "all ranks get what each has", OPTIONS, run_collective,
                                      start_collective };
const perf_command perf_reduce_scatter = { "reduce_scatter", "each rank gets its part of the sum", OPTIONS,
                                           run_collective, start_collective };
const perf_command perf_all_to_all = { "all_to_all", "each rank gets a part of what each has", OPTIONS,
                                       run_collective, start_collective };
const perf_command perf_broadcast = { "broadcast", "all ranks get what rank 0 has", OPTIONS, run_collective,
                                      start_collective };
const perf_command perf_reduce = { "reduce", "rank 0 gets the sum of all", OPTIONS, run_collective, start_collective };

static int start_collective(const perf_options *options, char **arguments)
{
    static const perf_command *const commands[] = { &perf_allreduce, &perf_allgather, &perf_reduce_scatter,
                                                    &perf_all_to_all, &perf_broadcast, &perf_reduce };
    perf_options mine = *options;
    wish asked;
    if (!take_wish(arguments[1], options, &asked)) {
        return 1;
    }
    if (mine.ranks.count == 0) {
        mine.ranks.count = 1; /* of 0: as many as there can be */
        mine.ranks.values[0] = 0;
    }
    FILE *plot = mine.plot != NULL ? fopen(mine.plot, "a") : NULL; /* whether it can be written */
    if (mine.plot != NULL && (plot == NULL || fclose(plot) != 0)) {
        fprintf(stderr, "weir-perf: %s: %s\n", mine.plot, strerror(errno));
        return 1;
    }
    if (mine.compare != NULL && !perf_nccl_prepare()) {
        fprintf(stderr, "weir-perf: no memory for the environment\n");
        return 1;
    }
    for (size_t i = 0; i < ROWS(commands); i++) {
        if (strcmp(commands[i]->name, arguments[1]) == 0) {
            return perf_start(commands[i], &mine, arguments);
        }
    }
    return 1;
}
