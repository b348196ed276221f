/* beside.c - weir-perf gather --beside: what a gather and a computation on the same GPU cost each other.
 *
 * The gather runs on a stream of few multiprocessors (--sms), and the computation of compute.h on a stream of all the
 * others; or both run on ordinary streams. Each of the two is timed alone, the computation on all multiprocessors, and
 * again while the other one runs all the time. The third figure is the p99 of a kernel of about 20 us, one launch after
 * the other, alone and beside gathers. */
#include <string.h>

#include "tools/perf/compute.h"
#include "tools/perf/gather.h"

#define SMALL_MOST 1000u /* launches of the small kernel */

typedef struct beside {
    perf_rank *rank;
    gather_rows rows;
    void *stream; /* of the gather */
    void *others; /* of the computation beside it: a stream of the other multiprocessors, or rank->stream */
    perf_compute *compute;
    uint32_t blocks;
} beside;

static weir_status put_gather(void *context)
{
    const beside *b = (const beside *)context;
    const gather_rows *rows = &b->rows;
    weir_table_call_opts opts = WEIR_OPTS(weir_table_call_opts);
    opts.blocks = b->blocks;
    return weir_table_gather(rows->table, weir_memory_pointer(rows->ids), WEIR_IDS_I64, rows->count,
                             weir_memory_pointer(rows->out), &opts, b->stream);
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
    const uint32_t times = rank->gpu ? SMALL_MOST : 50;
    double us[SMALL_MOST];
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < gathers && status == WEIR_OK; i++) {
        status = gather.put(gather.context);
    }
    for (uint32_t i = 0; i < times && status == WEIR_OK; i++) {
        status = perf_time_side(rank, &small, 1, NULL, 0, &us[i]);
    }
    if (status == WEIR_OK) {
        perf_sort(us, times);
        *p99 = perf_percentile(us, times, 0.99);
    }
    return status == WEIR_OK ? weir_stream_wait(rank->device, b->stream, 0) : status;
}

/* ---- one case --------------------------------------------------------------------------------------------- */

typedef struct beside_times {
    double gather, gather_beside, compute, compute_beside, small, small_beside;
    uint64_t wrong;
} beside_times;

/* The gather, and the computation and the small kernel on all multiprocessors. */
static weir_status measure_alone(beside *b, uint32_t times, beside_times *t)
{
    perf_rank *rank = b->rank;
    const perf_side gather = gather_side(b);
    weir_status status = perf_compute_move(b->compute, rank->stream);
    const perf_side compute = perf_compute_side(b->compute);
    for (uint32_t round = 0; round < 2 && status == WEIR_OK; round++) { /* the first one warms up */
        status = perf_time_side(rank, &gather, times, NULL, 0, &t->gather);
        if (status == WEIR_OK) {
            status = perf_time_side(rank, &compute, times, NULL, 0, &t->compute);
        }
    }
    return status == WEIR_OK ? time_small(b, 0, &t->small) : status;
}

static weir_status measure_together(beside *b, uint32_t times, beside_times *t)
{
    perf_rank *rank = b->rank;
    const perf_side gather = gather_side(b);
    weir_status status = perf_compute_move(b->compute, b->others);
    const perf_side compute = perf_compute_side(b->compute);
    if (status == WEIR_OK) { /* warms up */
        status = perf_time_side(rank, &compute, 2, NULL, 0, &t->compute_beside);
    }
    if (status == WEIR_OK) {
        status = perf_time_side(rank, &gather, times, &compute, perf_fill_time(times * t->gather, t->compute),
                                &t->gather_beside);
    }
    if (status == WEIR_OK) {
        status = perf_time_side(rank, &compute, times, &gather, perf_fill_time(times * t->compute, t->gather),
                                &t->compute_beside);
    }
    return status == WEIR_OK ? time_small(b, perf_fill_time(SMALL_MOST * 100.0, t->gather), &t->small_beside) : status;
}

static weir_status measure(beside *b, beside_times *t)
{
    perf_rank *rank = b->rank;
    const uint32_t times = rank->options->iters != 0 ? rank->options->iters : rank->gpu ? 10 : 2;
    weir_status status =
        weir_device_fill(rank->device, weir_memory_pointer(b->rows.out), 0, b->rows.count * b->rows.row_bytes);
    if (status == WEIR_OK) {
        status = measure_alone(b, times, t);
    }
    if (status == WEIR_OK) {
        status = measure_together(b, times, t);
    }
    return status == WEIR_OK ? gather_rows_check(&b->rows, &t->wrong) : status;
}

static void report(const beside *b, const beside_times *t)
{
    weir_table_info info;
    const double bytes = (double)b->rows.count * (double)b->rows.row_bytes;
    weir_table_get_info(b->rows.table, &info);
    const perf_field fields[] = {
        perf_text("beside", perf_compute_name(b->compute)),
        perf_count("sms", weir_stream_multiprocessors(b->rank->device, b->stream)),
        perf_count("compute_sms", weir_stream_multiprocessors(b->rank->device, b->others)),
        perf_count("blocks", b->blocks != 0 ? b->blocks : info.blocks),
        perf_count("row_bytes", b->rows.row_bytes),
        perf_count("ids", b->rows.count),
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

/* Two streams that divide the multiprocessors, `sms` of them for the gather; 0: ordinary ones. */
static weir_status open_streams(beside *b, uint32_t sms)
{
    weir_device *device = b->rank->device;
    weir_stream_limits limits = WEIR_OPTS(weir_stream_limits);
    b->others = b->rank->stream;
    if (sms == 0) {
        return weir_stream_create(device, &b->stream);
    }
    limits.multiprocessors = sms;
    weir_status status = weir_stream_create_limited(device, &limits, &b->stream);
    const uint32_t taken = status == WEIR_OK ? weir_stream_multiprocessors(device, b->stream) : 0;
    if (status == WEIR_OK && taken < b->rank->info.multiprocessors) {
        limits.multiprocessors = b->rank->info.multiprocessors - taken;
        status = weir_stream_create_limited(device, &limits, &b->others);
    }
    return status;
}

static void close_streams(beside *b)
{
    if (b->others != b->rank->stream) {
        weir_stream_destroy(b->rank->device, b->others);
    }
    weir_stream_destroy(b->rank->device, b->stream);
    b->stream = NULL;
}

static weir_status measure_streams(beside *b, uint32_t sms)
{
    beside_times times;
    memset(&times, 0, sizeof times);
    weir_status status = open_streams(b, sms);
    if (status == WEIR_OK) {
        status = measure(b, &times);
    }
    if (status == WEIR_OK) {
        report(b, &times);
    }
    if (status == WEIR_OK && times.wrong != 0) {
        status = perf_fail(b->rank, WEIR_ERR_CORRUPT, "gather: %llu words are wrong", (unsigned long long)times.wrong);
    }
    close_streams(b);
    return status;
}

/* ---- the command ------------------------------------------------------------------------------------------- */

static weir_status measure_rows(perf_rank *rank, uint64_t row_bytes)
{
    const perf_list usual = { { 8 }, 1 };
    const perf_list sms = rank->options->sms.count != 0 ? rank->options->sms : usual;
    beside b;
    memset(&b, 0, sizeof b);
    b.rank = rank;
    b.blocks = rank->options->blocks.count != 0 ? (uint32_t)rank->options->blocks.values[0] : 0;
    weir_status status = gather_rows_open(rank, row_bytes, 0, &b.rows);
    if (status == WEIR_OK) {
        status = perf_compute_open(rank, rank->options->beside, rank->stream, &b.compute);
    }
    for (uint32_t i = 0; i <= sms.count && status == WEIR_OK; i++) {
        status = measure_streams(&b, i == 0 ? 0 : (uint32_t)sms.values[i - 1]);
    }
    if (status == WEIR_OK || !rank->gpu) {
        perf_compute_close(b.compute);
        gather_rows_close(&b.rows);
    }
    return status;
}

weir_status gather_beside(perf_rank *rank)
{
    const perf_options *options = rank->options;
    const perf_list usual = { { 128 }, 1 };
    const perf_list sizes = options->row_bytes.count != 0 ? options->row_bytes : usual;
    if (!perf_compute_knows(options->beside)) {
        return perf_fail(rank, WEIR_ERR_INVALID, "gather: --beside %s; compute or gemm", options->beside);
    }
    weir_status status = perf_report_machine(rank);
    perf_fact(rank->output, "time", "us, averages; slowdown: of the computation, and of the p99 of a small kernel");
    for (uint32_t i = 0; i < sizes.count && status == WEIR_OK; i++) {
        status = measure_rows(rank, sizes.values[i]);
    }
    return status;
}
