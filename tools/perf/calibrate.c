/* calibrate.c - weir-perf gather --calibrate: what weir_table_opts.reach_bytes and miss_ns are on this machine.
 *
 * Rows of 128 bytes are gathered from a table in host memory in an order that address translation cannot foresee, with
 * the span doubled from case to case. The reach is the largest span at which a row takes at most a quarter longer than
 * at the smallest one. The time of a row at the largest span is the time of a miss. */
#include <string.h>

#include "tools/perf/gather.h"

#define ROW_BYTES 128u

typedef struct calibration {
    perf_rank *rank;
    weir_memory *memory;
    weir_memory *ids; /* int64_t, which the host reaches too */
    weir_memory *out;
    weir_table *table; /* of the current span */
    uint64_t count;
} calibration;

static weir_status put(perf_rank *rank, void *context, uint32_t number)
{
    const calibration *c = (const calibration *)context;
    weir_table_call_opts opts = WEIR_OPTS(weir_table_call_opts);
    opts.order = WEIR_TABLE_ORDER_GIVEN;
    (void)number;
    return weir_table_gather(c->table, weir_memory_pointer(c->ids), WEIR_IDS_I64, c->count, weir_memory_pointer(c->out),
                             &opts, rank->stream);
}

/* ns of a row in a table of `span` bytes. */
static weir_status measure_span(calibration *c, uint64_t span, double *ns)
{
    perf_rank *rank = c->rank;
    const uint32_t replays = rank->gpu ? 10 : 2;
    const uint64_t rows = span / ROW_BYTES, step = gather_step(rows);
    const perf_calls calls = { put, c };
    double us[PERF_REPLAYS_MAX];
    void *graph = NULL;
    int64_t *ids = (int64_t *)weir_memory_host_pointer(c->ids);
    weir_table_part part;
    memset(&part, 0, sizeof part);
    part.memory = c->memory;
    part.count = rows;
    for (uint64_t i = 0; i < c->count; i++) {
        ids[i] = (int64_t)(i * step % rows);
    }
    weir_status status = weir_table_create(rank->device, ROW_BYTES, &part, 1, NULL, &c->table);
    if (status == WEIR_OK) {
        status = perf_record_calls(rank, &calls, 1, &graph);
    }
    if (status == WEIR_OK) {
        status = perf_time(rank, graph, 1, rank->options->warmup, replays, us);
    }
    weir_graph_destroy(rank->device, graph);
    weir_table_destroy(c->table);
    c->table = NULL;
    if (status != WEIR_OK) {
        return status;
    }
    perf_sort(us, replays);
    const double median = perf_percentile(us, replays, 0.5);
    *ns = median * 1e3 / (double)c->count;
    const perf_field fields[] = {
        perf_count("span", span),    perf_count("row_bytes", ROW_BYTES),
        perf_count("ids", c->count), perf_as(perf_real("time_us", median, 2), PERF_LATENCY),
        perf_real("row_ns", *ns, 2), perf_as(perf_real("gbytes_s", ROW_BYTES / *ns, 2), PERF_BANDWIDTH),
    };
    perf_row(rank->output, "calibrate", fields, ROWS(fields));
    return WEIR_OK;
}

static weir_status measure(calibration *c, uint64_t least, uint64_t most)
{
    double first = 0, ns = 0;
    uint64_t reach = least;
    weir_status status = WEIR_OK;
    for (uint64_t span = least; span <= most && status == WEIR_OK; span *= 2) {
        status = measure_span(c, span, &ns);
        first = span == least ? ns : first;
        reach = ns <= 1.25 * first && reach * 2 >= span ? span : reach;
    }
    if (status != WEIR_OK) {
        return status;
    }
    const perf_field fields[] = {
        perf_count("reach_bytes", reach),
        perf_count("miss_ns", (uint64_t)(ns + 0.5)),
        perf_text("reached", reach * 2 > most ? "the whole span: take a larger one" : "yes"),
    };
    perf_row(c->rank->output, "weir_table_opts", fields, ROWS(fields));
    return WEIR_OK;
}

weir_status gather_calibrate(perf_rank *rank)
{
    const perf_options *options = rank->options;
    const uint64_t least = rank->gpu ? 128u << 20 : 64u << 10;
    const uint64_t most = options->spans.count != 0 ? options->spans.values[0]
                          : rank->gpu               ? (uint64_t)16 << 30
                                                    : 1u << 20;
    weir_memory_opts host = WEIR_OPTS(weir_memory_opts);
    calibration c;
    host.kind = WEIR_MEMORY_HOST;
    memset(&c, 0, sizeof c);
    c.rank = rank;
    c.count = options->rows != 0 ? options->rows : rank->gpu ? 400000 : 512;
    if (most < least || c.count > least / ROW_BYTES) {
        return perf_fail(rank, WEIR_ERR_INVALID,
                         "gather: --calibrate with %llu ids and a span of %llu bytes; at most %llu ids, and at least "
                         "%llu bytes",
                         (unsigned long long)c.count, (unsigned long long)most, (unsigned long long)(least / ROW_BYTES),
                         (unsigned long long)least);
    }
    weir_status status = perf_report_machine(rank);
    if (status == WEIR_OK) {
        status = weir_memory_allocate(rank->comm, c.count * sizeof(int64_t), &host, &c.ids);
    }
    if (status == WEIR_OK) {
        status = weir_memory_allocate(rank->comm, c.count * ROW_BYTES, NULL, &c.out);
    }
    host.touch_threads = 8;
    if (status == WEIR_OK) {
        status = weir_memory_allocate(rank->comm, most, &host, &c.memory);
    }
    if (status == WEIR_OK) {
        status = measure(&c, least, most);
    }
    if (status == WEIR_OK || !rank->gpu) {
        weir_memory_destroy(c.memory);
        weir_memory_destroy(c.out);
        weir_memory_destroy(c.ids);
    }
    return status;
}
