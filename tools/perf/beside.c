/* beside.c - weir-perf gather --beside: what a gather and a computation on the same GPU cost each other.
 *
 * The gather runs on a stream of few multiprocessors (--sms), or on an ordinary one, and the computation of compute.h
 * on another stream. Each of the two is timed alone, and again while the other one runs all the time. The third figure
 * is the p99 of a kernel of about 20 us, one launch after the other, alone and beside gathers. */
#include <string.h>

#include "tools/perf/compute.h"
#include "tools/perf/gather.h"

#define SMALL 200u /* launches of the small kernel */

typedef struct beside {
    perf_rank *rank;
    weir_memory *memory; /* of the table */
    weir_memory *out;
    weir_memory *ids;
    weir_memory *wrong;
    weir_table *table;
    void *stream;          /* of the gather */
    perf_compute *compute; /* on rank->stream */
    uint64_t row_bytes;
    uint64_t count;
    uint32_t blocks;
} beside;

static weir_status put_gather(void *context)
{
    const beside *b = (const beside *)context;
    weir_table_call_opts opts = WEIR_OPTS(weir_table_call_opts);
    opts.blocks = b->blocks;
    return weir_table_gather(b->table, weir_memory_pointer(b->ids), WEIR_IDS_I64, b->count, weir_memory_pointer(b->out),
                             &opts, b->stream);
}

static perf_side gather_side(beside *b)
{
    const perf_side side = { put_gather, b, b->stream };
    return side;
}

/* The p99 of the small kernel, beside `gathers` gathers. */
static weir_status time_small(beside *b, uint32_t gathers, double *p99)
{
    perf_rank *rank = b->rank;
    const perf_side gather = gather_side(b);
    const perf_side small = perf_compute_small_side(b->compute);
    double us[SMALL];
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < gathers && status == WEIR_OK; i++) {
        status = gather.put(gather.context);
    }
    for (uint32_t i = 0; i < SMALL && status == WEIR_OK; i++) {
        status = perf_time_side(rank, &small, 1, NULL, 0, &us[i]);
    }
    if (status == WEIR_OK) {
        perf_sort(us, SMALL);
        *p99 = perf_percentile(us, SMALL, 0.99);
    }
    return status == WEIR_OK ? weir_stream_wait(rank->device, b->stream, 0) : status;
}

/* ---- one case --------------------------------------------------------------------------------------------- */

typedef struct beside_times {
    double gather, gather_beside, compute, compute_beside, small, small_beside;
    uint64_t wrong;
} beside_times;

static weir_status check(const beside *b, uint64_t *wrong)
{
    perf_rank *rank = b->rank;
    gather_args args;
    memset(&args, 0, sizeof args);
    args.out = (char *)weir_memory_pointer(b->out);
    args.ids = (const int64_t *)weir_memory_pointer(b->ids);
    args.wrong = (uint64_t *)weir_memory_pointer(b->wrong);
    args.row_bytes = b->row_bytes;
    args.count = b->count;
    *(uint64_t *)weir_memory_host_pointer(b->wrong) = 0;
    const weir_shape shape = weir_device_fit_shape(rank->device, (weir_shape){ 128, 1024 });
    weir_status status = weir_launch(rank->device, gather_compare, shape, &args, NULL, rank->stream);
    if (status == WEIR_OK) {
        status = weir_stream_wait(rank->device, rank->stream, 0);
    }
    *wrong = *(uint64_t *)weir_memory_host_pointer(b->wrong);
    return status;
}

static weir_status measure(beside *b, beside_times *t)
{
    perf_rank *rank = b->rank;
    const uint32_t times = rank->options->iters != 0 ? rank->options->iters : rank->gpu ? 10 : 2;
    const perf_side gather = gather_side(b);
    const perf_side compute = perf_compute_side(b->compute);
    weir_status status = weir_device_fill(rank->device, weir_memory_pointer(b->out), 0, b->count * b->row_bytes);
    for (uint32_t round = 0; round < 2 && status == WEIR_OK; round++) { /* the first one warms up */
        status = perf_time_side(rank, &gather, times, NULL, 0, &t->gather);
        if (status == WEIR_OK) {
            status = perf_time_side(rank, &compute, times, NULL, 0, &t->compute);
        }
    }
    if (status == WEIR_OK) {
        status = perf_time_side(rank, &gather, times, &compute, perf_fill_time(times * t->gather, t->compute),
                                &t->gather_beside);
    }
    if (status == WEIR_OK) {
        status = perf_time_side(rank, &compute, times, &gather, perf_fill_time(times * t->compute, t->gather),
                                &t->compute_beside);
    }
    if (status == WEIR_OK) {
        status = time_small(b, 0, &t->small);
    }
    if (status == WEIR_OK) {
        status = time_small(b, perf_fill_time(SMALL * 100.0, t->gather), &t->small_beside);
    }
    return status == WEIR_OK ? check(b, &t->wrong) : status;
}

static void report(const beside *b, const beside_times *t)
{
    const double bytes = (double)b->count * (double)b->row_bytes;
    const perf_field fields[] = {
        perf_text("beside", perf_compute_name(b->compute)),
        perf_count("sms", weir_stream_multiprocessors(b->rank->device, b->stream)),
        perf_count("blocks", b->blocks),
        perf_count("row_bytes", b->row_bytes),
        perf_count("ids", b->count),
        perf_as(perf_real("time_us", t->gather, 2), PERF_LATENCY),
        perf_real("beside_us", t->gather_beside, 2),
        perf_as(perf_real("gbytes_s", bytes / t->gather / 1e3, 2), PERF_BANDWIDTH),
        perf_real("beside_gbytes_s", bytes / t->gather_beside / 1e3, 2),
        perf_real("compute_us", t->compute, 2),
        perf_real("slowdown", t->compute_beside / t->compute, 3),
        perf_real("small_p99_us", t->small, 2),
        perf_real("small_slowdown", t->small_beside / t->small, 3),
        perf_count("wrong", t->wrong),
    };
    perf_row(b->rank->output, "beside", fields, ROWS(fields));
}

/* On a stream of `sms` multiprocessors; 0: an ordinary one. */
static weir_status measure_stream(beside *b, uint32_t sms)
{
    beside_times times;
    weir_stream_limits limits = WEIR_OPTS(weir_stream_limits);
    memset(&times, 0, sizeof times);
    limits.multiprocessors = sms;
    weir_status status = sms != 0 ? weir_stream_create_limited(b->rank->device, &limits, &b->stream)
                                  : weir_stream_create(b->rank->device, &b->stream);
    if (status == WEIR_OK) {
        status = measure(b, &times);
    }
    if (status == WEIR_OK) {
        report(b, &times);
    }
    if (status == WEIR_OK && times.wrong != 0) {
        status = perf_fail(b->rank, WEIR_ERR_CORRUPT, "gather: %llu words are wrong", (unsigned long long)times.wrong);
    }
    weir_stream_destroy(b->rank->device, b->stream);
    b->stream = NULL;
    return status;
}

/* ---- setup ------------------------------------------------------------------------------------------------- */

static weir_status create(beside *b, uint64_t span)
{
    perf_rank *rank = b->rank;
    weir_memory_opts host = WEIR_OPTS(weir_memory_opts);
    weir_table_part part;
    gather_args fill;
    host.kind = WEIR_MEMORY_HOST;
    memset(&part, 0, sizeof part);
    memset(&fill, 0, sizeof fill);
    weir_status status = weir_memory_allocate(rank->comm, span, &host, &b->memory);
    if (status == WEIR_OK) {
        status = weir_memory_allocate(rank->comm, b->count * b->row_bytes, NULL, &b->out);
    }
    if (status == WEIR_OK) {
        status = weir_memory_allocate(rank->comm, b->count * sizeof(int64_t), &host, &b->ids);
    }
    if (status == WEIR_OK) {
        status = weir_memory_allocate(rank->comm, sizeof(uint64_t), &host, &b->wrong);
    }
    if (status != WEIR_OK) {
        return status;
    }
    const uint64_t rows = span / b->row_bytes, step = gather_step(rows);
    int64_t *ids = (int64_t *)weir_memory_host_pointer(b->ids);
    for (uint64_t i = 0; i < b->count; i++) {
        ids[i] = (int64_t)(i * step % rows);
    }
    fill.table = (char *)weir_memory_pointer(b->memory);
    fill.count = span / 4;
    part.memory = b->memory;
    part.count = rows;
    status = weir_table_create(rank->device, b->row_bytes, &part, 1, NULL, &b->table);
    if (status == WEIR_OK) {
        status = weir_launch(rank->device, gather_fill, weir_device_fit_shape(rank->device, (weir_shape){ 64, 1024 }),
                             &fill, NULL, rank->stream);
    }
    if (status == WEIR_OK) {
        status = weir_stream_wait(rank->device, rank->stream, 0);
    }
    return status == WEIR_OK ? perf_compute_open(rank, rank->options->beside, rank->stream, &b->compute) : status;
}

static void destroy(beside *b)
{
    perf_compute_close(b->compute);
    weir_table_destroy(b->table);
    weir_memory_destroy(b->wrong);
    weir_memory_destroy(b->ids);
    weir_memory_destroy(b->out);
    weir_memory_destroy(b->memory);
}

weir_status gather_beside(perf_rank *rank)
{
    const perf_options *options = rank->options;
    const uint64_t span = options->spans.count != 0 ? options->spans.values[0] : rank->gpu ? 512u << 20 : 1u << 20;
    const perf_list usual = { { 8 }, 1 };
    const perf_list sms = options->sms.count != 0 ? options->sms : usual;
    beside b;
    memset(&b, 0, sizeof b);
    b.rank = rank;
    b.row_bytes = options->row_bytes.count != 0 ? options->row_bytes.values[0] : 128;
    b.count = options->rows != 0 ? options->rows : rank->gpu ? 400000 : 512;
    b.blocks = options->blocks.count != 0 ? (uint32_t)options->blocks.values[0] : rank->gpu ? 8 : 1;
    if (!perf_compute_knows(options->beside) || b.row_bytes % 4 != 0 || b.row_bytes == 0 ||
        span / b.row_bytes < b.count) {
        return perf_fail(
            rank, WEIR_ERR_INVALID,
            "gather: --beside %s, %llu rows of %llu bytes; compute or gemm, a multiple of 4, and rows that "
            "fit into the span",
            options->beside, (unsigned long long)b.count, (unsigned long long)b.row_bytes);
    }
    weir_status status = perf_report_machine(rank);
    if (status == WEIR_OK) {
        status = create(&b, span);
    }
    perf_fact(rank->output, "time", "us, averages; slowdown: of the computation, and of the p99 of a small kernel");
    for (uint32_t i = 0; i <= sms.count && status == WEIR_OK; i++) {
        status = measure_stream(&b, i == 0 ? 0 : (uint32_t)sms.values[i - 1]);
    }
    if (status == WEIR_OK || !rank->gpu) {
        destroy(&b);
    }
    return status;
}
