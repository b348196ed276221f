/* cached.c - weir-perf gather --cached: what a gather costs whose rows lie in device memory in part.
 *
 * Of distinct ids, --cached have copies in device memory (weir_table_cache), spread evenly over the gather. Three
 * gathers are timed: all ids without copies, all ids with them, and the ids without a copy alone. */
#include <stdlib.h>
#include <string.h>

#include "tools/perf/compute.h"
#include "tools/perf/gather.h"

typedef struct cached {
    perf_rank *rank;
    gather_rows rows;
    weir_memory *hits;   /* ids that have copies */
    weir_memory *misses; /* the others */
    uint64_t hit_count;
    const weir_memory *ids; /* of the next gathers */
    uint64_t count;
} cached;

static weir_status put_gather(void *context)
{
    const cached *c = (const cached *)context;
    weir_table_call_opts opts = WEIR_OPTS(weir_table_call_opts);
    opts.blocks = c->rank->options->blocks.count != 0 ? (uint32_t)c->rank->options->blocks.values[0] : 0;
    return weir_table_gather(c->rows.table, weir_memory_pointer(c->ids), WEIR_IDS_I64, c->count,
                             weir_memory_pointer(c->rows.out), &opts, c->rank->stream);
}

static weir_status time_gathers(cached *c, const weir_memory *ids, uint64_t count, double *us)
{
    perf_rank *rank = c->rank;
    const uint32_t times = rank->options->iters != 0 ? rank->options->iters : rank->gpu ? 20 : 2;
    const perf_side side = { put_gather, c, rank->stream };
    c->ids = ids;
    c->count = count;
    const weir_status status = perf_time_side(rank, &side, 2, NULL, 0, us); /* warms up */
    return status == WEIR_OK ? perf_time_side(rank, &side, times, NULL, 0, us) : status;
}

/* Divides the ids: those at every place whose multiple of a step is below hit_count have copies. */
static weir_status divide(cached *c)
{
    weir_device *device = c->rank->device;
    const uint64_t count = c->rows.count, bytes = count * sizeof(int64_t), step = gather_step(count);
    int64_t *ids = (int64_t *)malloc(3 * bytes);
    if (ids == NULL) {
        return perf_fail(c->rank, WEIR_ERR_NOMEM, "gather: %llu ids", (unsigned long long)count);
    }
    int64_t *hits = ids + count, *misses = hits + count;
    weir_status status = weir_device_copy(device, ids, weir_memory_pointer(c->rows.ids), bytes);
    for (uint64_t i = 0, hit = 0, miss = 0; i < count; i++) {
        if (i * step % count < c->hit_count) {
            hits[hit++] = ids[i];
        } else {
            misses[miss++] = ids[i];
        }
    }
    if (status == WEIR_OK) {
        status = weir_device_copy(device, weir_memory_pointer(c->hits), hits, bytes);
    }
    if (status == WEIR_OK) {
        status = weir_device_copy(device, weir_memory_pointer(c->misses), misses, bytes);
    }
    free(ids);
    return status;
}

static void report(const cached *c, double none, double all, double missed, uint64_t wrong)
{
    const perf_field fields[] = {
        perf_count("span", weir_memory_bytes(c->rows.memory)),
        perf_count("row_bytes", c->rows.row_bytes),
        perf_count("ids", c->rows.count),
        perf_count("cached", c->hit_count),
        perf_real("uncached_us", none, 2),
        perf_as(perf_real("time_us", all, 2), PERF_LATENCY),
        perf_real("missed_us", missed, 2),
        perf_real("ratio", all / (missed + 3), 3), /* the aim is 1.1 */
        perf_count("wrong", wrong),
    };
    perf_row(c->rank->output, "cached", fields, ROWS(fields));
}

static weir_status measure(cached *c)
{
    perf_rank *rank = c->rank;
    const uint64_t misses = c->rows.count - c->hit_count;
    double none = 0, all = 0, missed = 0;
    uint64_t wrong = 0;
    weir_status status = time_gathers(c, c->rows.ids, c->rows.count, &none);
    if (status == WEIR_OK) {
        status = time_gathers(c, c->misses, misses, &missed);
    }
    if (status == WEIR_OK) {
        status =
            weir_table_cache(c->rows.table, weir_memory_pointer(c->hits), WEIR_IDS_I64, c->hit_count, rank->stream);
    }
    if (status == WEIR_OK) {
        status = weir_stream_wait(rank->device, rank->stream, 0);
    }
    if (status == WEIR_OK) {
        status = weir_device_fill(rank->device, weir_memory_pointer(c->rows.out), 0, weir_memory_bytes(c->rows.out));
    }
    if (status == WEIR_OK) {
        status = time_gathers(c, c->rows.ids, c->rows.count, &all);
    }
    if (status == WEIR_OK) {
        status = gather_rows_check(&c->rows, &wrong);
    }
    if (status == WEIR_OK) {
        report(c, none, all, missed, wrong);
    }
    return status == WEIR_OK && wrong != 0
               ? perf_fail(rank, WEIR_ERR_CORRUPT, "gather: %llu words are wrong", (unsigned long long)wrong)
               : status;
}

static weir_status measure_rows(perf_rank *rank, uint64_t row_bytes, uint64_t hits)
{
    cached c;
    memset(&c, 0, sizeof c);
    c.rank = rank;
    c.hit_count = hits;
    weir_status status = gather_rows_open(rank, row_bytes, hits, &c.rows);
    if (status == WEIR_OK && hits > c.rows.count) {
        status = perf_fail(rank, WEIR_ERR_INVALID, "gather: --cached %llu of %llu ids", (unsigned long long)hits,
                           (unsigned long long)c.rows.count);
    }
    if (status == WEIR_OK) {
        status = weir_memory_allocate(rank->comm, c.rows.count * sizeof(int64_t), NULL, &c.hits);
    }
    if (status == WEIR_OK) {
        status = weir_memory_allocate(rank->comm, c.rows.count * sizeof(int64_t), NULL, &c.misses);
    }
    if (status == WEIR_OK) {
        status = divide(&c);
    }
    if (status == WEIR_OK) {
        status = measure(&c);
    }
    if (status == WEIR_OK || !rank->gpu) {
        weir_memory_destroy(c.misses);
        weir_memory_destroy(c.hits);
        gather_rows_close(&c.rows);
    }
    return status;
}

weir_status gather_cached(perf_rank *rank)
{
    const perf_options *options = rank->options;
    const perf_list usual = { { 128 }, 1 };
    const perf_list sizes = options->row_bytes.count != 0 ? options->row_bytes : usual;
    weir_status status = perf_report_machine(rank);
    perf_fact(rank->output, "time", "us, averages; ratio: time / (time of the rows without a copy + 3 us)");
    for (uint32_t i = 0; i < sizes.count; i++) {
        for (uint32_t k = 0; k < options->cached.count && status == WEIR_OK; k++) {
            status = measure_rows(rank, sizes.values[i], options->cached.values[k]);
        }
    }
    return status;
}
