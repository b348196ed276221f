/* rows.c - a table in host memory and the ids of distinct rows, for the commands that time gathers beside other work.
 */
#include <stdlib.h>
#include <string.h>

#include "tools/perf/gather.h"

static weir_status allocate(gather_rows *rows, uint64_t span)
{
    weir_comm *comm = rows->rank->comm;
    weir_memory_opts host = WEIR_OPTS(weir_memory_opts);
    host.kind = WEIR_MEMORY_HOST;
    weir_status status = weir_memory_allocate(comm, span, &host, &rows->memory);
    if (status == WEIR_OK) {
        status = weir_memory_allocate(comm, rows->count * rows->row_bytes, NULL, &rows->out);
    }
    if (status == WEIR_OK) {
        status = weir_memory_allocate(comm, rows->count * sizeof(int64_t), NULL, &rows->ids);
    }
    return status == WEIR_OK ? weir_memory_allocate(comm, sizeof(uint64_t), &host, &rows->wrong) : status;
}

/* Distinct ids, far from one to the next. */
static weir_status draw(gather_rows *rows, uint64_t all)
{
    const uint64_t step = gather_step(all);
    int64_t *ids = (int64_t *)malloc(rows->count * sizeof *ids);
    if (ids == NULL) {
        return perf_fail(rows->rank, WEIR_ERR_NOMEM, "gather: %llu ids", (unsigned long long)rows->count);
    }
    for (uint64_t i = 0; i < rows->count; i++) {
        ids[i] = (int64_t)(i * step % all);
    }
    const weir_status status =
        weir_device_copy(rows->rank->device, weir_memory_pointer(rows->ids), ids, rows->count * sizeof *ids);
    free(ids);
    return status;
}

static weir_status fill(const gather_rows *rows)
{
    perf_rank *rank = rows->rank;
    gather_args args;
    memset(&args, 0, sizeof args);
    args.table = (char *)weir_memory_pointer(rows->memory);
    args.count = weir_memory_bytes(rows->memory) / 4;
    const weir_shape shape = weir_device_fit_shape(rank->device, (weir_shape){ 64, 1024 });
    weir_status status = weir_launch(rank->device, gather_fill, shape, &args, NULL, rank->stream);
    return status == WEIR_OK ? weir_stream_wait(rank->device, rank->stream, 0) : status;
}

weir_status gather_rows_open(perf_rank *rank, uint64_t row_bytes, uint64_t cache_rows, gather_rows *rows)
{
    const perf_options *options = rank->options;
    const uint64_t span = options->spans.count != 0 ? options->spans.values[0] : rank->gpu ? 512u << 20 : 1u << 20;
    weir_table_part part;
    weir_table_opts opts = WEIR_OPTS(weir_table_opts);
    memset(rows, 0, sizeof *rows);
    memset(&part, 0, sizeof part);
    rows->rank = rank;
    rows->row_bytes = row_bytes;
    rows->count = options->rows != 0 ? options->rows : rank->gpu ? 400000 : 512;
    if (row_bytes == 0 || row_bytes % 4 != 0 || span / row_bytes < rows->count) {
        return perf_fail(
            rank, WEIR_ERR_INVALID,
            "gather: %llu rows of %llu bytes in %llu; rows are a multiple of 4 bytes and fit into the span",
            (unsigned long long)rows->count, (unsigned long long)row_bytes, (unsigned long long)span);
    }
    weir_status status = allocate(rows, span);
    if (status == WEIR_OK) {
        status = draw(rows, span / row_bytes);
    }
    if (status == WEIR_OK) {
        status = fill(rows);
    }
    part.memory = rows->memory;
    part.count = span / row_bytes;
    opts.cache_rows = cache_rows;
    opts.order_ids = cache_rows != 0 ? rows->count : 0;
    return status == WEIR_OK ? weir_table_create(rank->device, row_bytes, &part, 1, &opts, &rows->table) : status;
}

void gather_rows_close(gather_rows *rows)
{
    weir_table_destroy(rows->table);
    weir_memory_destroy(rows->wrong);
    weir_memory_destroy(rows->ids);
    weir_memory_destroy(rows->out);
    weir_memory_destroy(rows->memory);
}

weir_status gather_rows_check(const gather_rows *rows, uint64_t *wrong)
{
    perf_rank *rank = rows->rank;
    gather_args args;
    memset(&args, 0, sizeof args);
    args.out = (char *)weir_memory_pointer(rows->out);
    args.ids = (const int64_t *)weir_memory_pointer(rows->ids);
    args.wrong = (uint64_t *)weir_memory_pointer(rows->wrong);
    args.row_bytes = rows->row_bytes;
    args.count = rows->count;
    *(uint64_t *)weir_memory_host_pointer(rows->wrong) = 0;
    const weir_shape shape = weir_device_fit_shape(rank->device, (weir_shape){ 128, 1024 });
    weir_status status = weir_launch(rank->device, gather_compare, shape, &args, NULL, rank->stream);
    if (status == WEIR_OK) {
        status = weir_stream_wait(rank->device, rank->stream, 0);
    }
    *wrong = *(uint64_t *)weir_memory_host_pointer(rows->wrong);
    return status;
}
