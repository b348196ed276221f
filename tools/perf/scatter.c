/* scatter.c - weir-perf scatter and pages: rows written to a table in host memory, and pages of a KV cache that move
 * between a table in host memory and a GPU, in both directions.
 *
 * A page has a piece of --row-bytes bytes in each of --planes planes (the layers of a model), and its places in the
 * table and in the GPU's memory have nothing to do with each other. A scatter is pages of one plane that lie in order
 * in the GPU's memory. Ids are distinct, and far from their neighbours. With several ranks all of them use one table,
 * each with its own ids. Every case is checked: the pieces are cleared, moved once more, and compared by the host. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/perf/commands.h"
#include "tools/perf/copies.h"
#include "tools/perf/gather.h"

#define TABLE_TAG 1u
#define BYTES_MOST ((uint64_t)256 << 20) /* of a case */

/* weir; weir with places in order at both ends; one copy of all bytes; a copy for each piece, in a batch or one by one;
 * weir's forms of other libraries. */
enum { WAY_WEIR, WAY_LINEAR, WAY_BULK, WAY_BATCH, WAY_EACH, WAY_FLAT, WAY_CIRCULAR, WAY_LINES, WAYS };
static const char *const way_names[WAYS] = { "weir", "linear", "bulk", "batch", "each", "flat", "circular", "lines" };

typedef struct move_bench {
    perf_rank *rank;
    bool pages;           /* scattered at both ends; otherwise a scatter */
    weir_memory *memory;  /* of the table */
    weir_memory *rows;    /* of the device */
    weir_memory *numbers; /* int32_t: ids, places, and numbers in order */
    int32_t *ids;         /* of the host */
    int32_t *places;
    char *host_rows;
    perf_copies copies; /* of the driver */
    uint64_t pieces;    /* most of a case */
} move_bench;

typedef struct move_case {
    move_bench *bench;
    weir_table *table;
    bool save; /* to the table; otherwise from it */
    uint32_t way;
    uint32_t blocks;
    uint32_t planes;
    uint64_t piece; /* bytes */
    uint64_t count; /* pages */
    uint64_t table_pages;
    uint64_t device_pages;
} move_case;

static uint64_t bytes_of(const move_case *c) { return c->count * c->planes * c->piece; }

static bool is_weir(const move_case *c) { return c->way <= WAY_LINEAR || c->way >= WAY_FLAT; }

/* ---- places ----------------------------------------------------------------------------------------------- */

static uint64_t divisor(uint64_t a, uint64_t b) { return b == 0 ? a : divisor(b, a % b); }

uint64_t gather_step(uint64_t limit)
{
    uint64_t step = (uint64_t)((double)limit * 0.6180339887) | 1;
    while (divisor(step, limit) != 1) {
        step++;
    }
    return step;
}

/* `count` distinct numbers below `limit`, from the `first`-th one of a sequence that visits all of them. */
static void spread(int32_t *out, uint64_t count, uint64_t limit, uint64_t first)
{
    const uint64_t step = gather_step(limit);
    for (uint64_t i = 0; i < count; i++) {
        out[i] = (int32_t)((first + i) * step % limit);
    }
}

static weir_status set_places(move_case *c)
{
    move_bench *bench = c->bench;
    perf_rank *rank = bench->rank;
    int32_t *numbers = (int32_t *)weir_memory_pointer(bench->numbers);
    spread(bench->ids, c->count, c->table_pages, rank->rank * c->count);
    spread(bench->places, c->count, c->device_pages, 1);
    for (uint64_t i = 0; i < c->count && (!bench->pages || c->way == WAY_LINEAR); i++) {
        bench->places[i] = (int32_t)i;
    }
    for (uint64_t i = 0; i < c->count && c->way == WAY_LINEAR; i++) {
        bench->ids[i] = (int32_t)(rank->rank * c->count + i);
    }
    weir_status status = weir_device_copy(rank->device, numbers, bench->ids, c->count * sizeof *numbers);
    return status != WEIR_OK
               ? status
               : weir_device_copy(rank->device, numbers + bench->pieces, bench->places, c->count * sizeof *numbers);
}

/* Offsets of a piece in the table and in the memory of the device. */
static uint64_t table_offset(const move_case *c, uint64_t page, uint32_t plane)
{
    return (plane * c->table_pages + (uint64_t)c->bench->ids[page]) * c->piece;
}

static uint64_t device_offset(const move_case *c, uint64_t page, uint32_t plane)
{
    return (plane * c->device_pages + (uint64_t)c->bench->places[page]) * c->piece;
}

/* ---- ways ------------------------------------------------------------------------------------------------- */

static weir_status put_weir(const move_case *c)
{
    const move_bench *bench = c->bench;
    const int32_t *ids = (const int32_t *)weir_memory_pointer(bench->numbers);
    void *rows = weir_memory_pointer(bench->rows);
    weir_table_call_opts opts = WEIR_OPTS(weir_table_call_opts);
    opts.blocks = c->blocks;
    opts.form = c->way < WAY_FLAT ? WEIR_TABLE_FORM_AUTO : (weir_table_form)(c->way - WAY_FLAT + WEIR_TABLE_FORM_FLAT);
    if (bench->pages) {
        opts.out_ids = ids + bench->pieces;
        opts.planes = c->planes;
        opts.plane = c->table_pages * c->piece;
        opts.out_plane = c->device_pages * c->piece;
    }
    return c->save ? weir_table_scatter(c->table, ids, WEIR_IDS_I32, c->count, rows, &opts, bench->rank->stream)
                   : weir_table_gather(c->table, ids, WEIR_IDS_I32, c->count, rows, &opts, bench->rank->stream);
}

/* Lists the copies of all pieces. */
static void list_copies(const move_case *c)
{
    const move_bench *bench = c->bench;
    const unsigned long long table = (unsigned long long)(uintptr_t)weir_memory_pointer(bench->memory);
    const unsigned long long rows = (unsigned long long)(uintptr_t)weir_memory_pointer(bench->rows);
    for (uint64_t i = 0; i < c->count * c->planes; i++) {
        const unsigned long long here = rows + device_offset(c, i / c->planes, (uint32_t)(i % c->planes));
        const unsigned long long there = table + table_offset(c, i / c->planes, (uint32_t)(i % c->planes));
        bench->copies.to[i] = c->save ? there : here;
        bench->copies.from[i] = c->save ? here : there;
        bench->copies.sizes[i] = c->piece;
    }
}

static weir_status put_copies(const move_case *c)
{
    const perf_copies *copies = &c->bench->copies;
    if (c->way == WAY_BULK) {
        /* Each rank has a part of the table. */
        char *table = (char *)weir_memory_pointer(c->bench->memory) + c->bench->rank->rank * bytes_of(c);
        char *rows = (char *)weir_memory_pointer(c->bench->rows);
        return perf_copies_bulk(copies, c->save ? table : rows, c->save ? rows : table, bytes_of(c));
    }
    return perf_copies_put(copies, c->way == WAY_BATCH ? PERF_COPY_BATCH : PERF_COPY_EACH, c->count * c->planes);
}

static weir_status put(perf_rank *rank, void *context, uint32_t number)
{
    const move_case *c = (const move_case *)context;
    (void)rank;
    (void)number;
    return is_weir(c) ? put_weir(c) : put_copies(c);
}

/* ---- one case --------------------------------------------------------------------------------------------- */

static weir_status fill(perf_rank *rank, const weir_memory *memory)
{
    gather_args args;
    memset(&args, 0, sizeof args);
    args.table = (char *)weir_memory_pointer(memory);
    args.count = weir_memory_bytes(memory) / 4;
    const weir_shape shape = weir_device_fit_shape(rank->device, (weir_shape){ 64, 1024 });
    const weir_status status = weir_launch(rank->device, gather_fill, shape, &args, NULL, rank->stream);
    return status == WEIR_OK ? weir_stream_wait(rank->device, rank->stream, 0) : status;
}

/* Clears the pieces at the end to which they move, moves them once more, and counts the wrong ones. */
static weir_status check(move_case *c, uint64_t *wrong)
{
    move_bench *bench = c->bench;
    perf_rank *rank = bench->rank;
    char *table = (char *)weir_memory_host_pointer(bench->memory);
    const uint64_t bytes = weir_memory_bytes(bench->rows);
    weir_status status = WEIR_OK;
    for (uint64_t i = 0; i < c->count * c->planes && c->save; i++) {
        memset(table + table_offset(c, i / c->planes, (uint32_t)(i % c->planes)), 0, c->piece);
    }
    status =
        c->save ? fill(rank, bench->rows) : weir_device_fill(rank->device, weir_memory_pointer(bench->rows), 0, bytes);
    if (status == WEIR_OK) {
        status = put(rank, c, 1);
    }
    if (status == WEIR_OK) {
        status = weir_stream_wait(rank->device, rank->stream, 0);
    }
    if (status == WEIR_OK) {
        status = weir_device_copy(rank->device, bench->host_rows, weir_memory_pointer(bench->rows), bytes);
    }
    *wrong = 0;
    for (uint64_t i = 0; i < c->count * c->planes && status == WEIR_OK; i++) {
        *wrong += memcmp(bench->host_rows + device_offset(c, i / c->planes, (uint32_t)(i % c->planes)),
                         table + table_offset(c, i / c->planes, (uint32_t)(i % c->planes)), c->piece) != 0;
    }
    return status;
}

static void report(const move_case *c, double *us, uint32_t replays, uint64_t wrong)
{
    const uint32_t all = c->bench->rank->info.multiprocessors;
    weir_table_info info;
    weir_table_get_info(c->table, &info);
    const uint32_t blocks = c->blocks != 0 ? c->blocks : info.blocks;
    const double sms = is_weir(c) ? (blocks < all ? blocks : all) : NAN;
    perf_sort(us, replays);
    const double median = perf_percentile(us, replays, 0.5);
    const perf_field fields[] = {
        perf_text("to", c->save ? "host" : "device"),
        perf_text("way", way_names[c->way]),
        perf_count("devices", c->bench->rank->ranks),
        perf_count("span", c->table_pages * c->planes * c->piece),
        perf_count("row_bytes", c->piece),
        perf_count("planes", c->planes),
        perf_count("ids", c->count),
        perf_count("blocks", c->blocks),
        perf_real("sms", sms, 0),
        perf_as(perf_real("time_us", median, 2), PERF_LATENCY),
        perf_real("min_us", us[0], 2),
        perf_real("p95_us", perf_percentile(us, replays, 0.95), 2),
        perf_as(perf_real("gbytes_s", (double)bytes_of(c) / median / 1e3, 2), PERF_BANDWIDTH), /* of one device */
        perf_count("wrong", wrong),
    };
    perf_row(c->bench->rank->output, c->bench->rank->command, fields, ROWS(fields));
}

static weir_status measure(move_case *c)
{
    perf_rank *rank = c->bench->rank;
    const uint32_t wanted = rank->options->iters != 0 ? rank->options->iters : rank->gpu ? 10 : 2;
    const uint32_t replays = wanted < PERF_REPLAYS_MAX ? wanted : PERF_REPLAYS_MAX;
    const bool recorded = is_weir(c);
    const perf_calls calls = { put, c };
    double us[PERF_REPLAYS_MAX];
    uint64_t wrong = 0;
    void *graph = NULL;
    weir_status status = set_places(c);
    if (status == WEIR_OK && (c->way == WAY_BATCH || c->way == WAY_EACH)) {
        list_copies(c);
    }
    if (status == WEIR_OK && recorded) {
        status = perf_record_calls(rank, &calls, 1, &graph);
    }
    if (status == WEIR_OK) {
        status = recorded ? perf_time(rank, graph, 1, rank->options->warmup, replays, us)
                          : perf_time_calls(rank, &calls, 1, rank->options->warmup, replays, us);
    }
    weir_graph_destroy(rank->device, graph);
    if (status == WEIR_OK && c->way != WAY_BULK) { /* its bytes have other places */
        status = check(c, &wrong);
    }
    if (status != WEIR_OK) {
        return status;
    }
    report(c, us, replays, wrong);
    return wrong == 0 ? WEIR_OK
                      : perf_fail(rank, WEIR_ERR_CORRUPT, "%s %s of %llu bytes: %llu pieces are wrong", rank->command,
                                  way_names[c->way], (unsigned long long)c->piece, (unsigned long long)wrong);
}

/* ---- the commands ----------------------------------------------------------------------------------------- */

static bool takes(const move_case *c)
{
    const char *list = c->bench->rank->options->peers;
    const char *name = way_names[c->way];
    if (c->way == WAY_BATCH && !perf_copies_can(&c->bench->copies, PERF_COPY_BATCH)) {
        return false;
    }
    const char *found = list != NULL ? strstr(list, name) : NULL;
    return c->way <= WAY_BULK || (list != NULL && strcmp(list, "all") == 0) ||
           (found != NULL && (found[strlen(name)] == ',' || found[strlen(name)] == '\0'));
}

static weir_status measure_size(move_bench *bench, uint64_t span, uint64_t piece, uint32_t planes, uint32_t blocks)
{
    move_case c;
    weir_table_part part;
    weir_table_opts opts = WEIR_OPTS(weir_table_opts);
    memset(&c, 0, sizeof c);
    memset(&part, 0, sizeof part);
    c.bench = bench;
    c.piece = piece;
    c.planes = planes;
    c.blocks = blocks;
    c.table_pages = span / piece / planes;
    const uint64_t most[] = { bench->pieces / planes, BYTES_MOST / piece / planes, c.table_pages / bench->rank->ranks,
                              (uint64_t)INT32_MAX };
    c.count = most[0];
    for (uint32_t i = 1; i < ROWS(most); i++) {
        c.count = most[i] < c.count ? most[i] : c.count;
    }
    c.device_pages = bench->pages ? 2 * c.count : c.count;
    if (c.count == 0) {
        return perf_fail(bench->rank, WEIR_ERR_INVALID, "%s: no page of %u pieces of %llu bytes", bench->rank->command,
                         planes, (unsigned long long)piece);
    }
    part.memory = bench->memory;
    part.count = c.table_pages;
    opts.order_ids = bench->pages ? c.count : 0;
    weir_status status = weir_table_create(bench->rank->device, piece, &part, 1, &opts, &c.table);
    for (uint32_t save = bench->pages ? 0 : 1; save < 2; save++) {
        for (c.way = 0; c.way < WAYS && status == WEIR_OK; c.way++) {
            c.save = save != 0;
            status = takes(&c) ? measure(&c) : WEIR_OK;
        }
    }
    weir_table_destroy(c.table);
    return status;
}

static weir_status create(move_bench *bench, uint64_t span)
{
    perf_rank *rank = bench->rank;
    weir_memory_opts host = WEIR_OPTS(weir_memory_opts);
    const uint64_t rows = 2 * BYTES_MOST;
    host.kind = WEIR_MEMORY_HOST;
    host.touch_threads = rank->gpu ? 8 : 0;
    bench->ids = (int32_t *)malloc(bench->pieces * sizeof *bench->ids);
    bench->places = (int32_t *)malloc(bench->pieces * sizeof *bench->places);
    bench->host_rows = (char *)malloc(rank->gpu ? rows : 2 * span);
    if (bench->ids == NULL || bench->places == NULL || bench->host_rows == NULL) {
        return perf_fail(rank, WEIR_ERR_NOMEM, "%s: no memory for %llu pieces", rank->command,
                         (unsigned long long)bench->pieces);
    }
    weir_status status = rank->rank != 0 ? weir_memory_recv(rank->comm, 0, TABLE_TAG, &bench->memory)
                                         : weir_memory_allocate(rank->comm, span, &host, &bench->memory);
    for (uint32_t i = 1; i < rank->ranks && rank->rank == 0 && status == WEIR_OK; i++) {
        status = weir_memory_send(rank->comm, bench->memory, i, TABLE_TAG);
    }
    if (status == WEIR_OK) {
        status = weir_memory_allocate(rank->comm, rank->gpu ? rows : 2 * span, NULL, &bench->rows);
    }
    if (status == WEIR_OK) {
        status = weir_memory_allocate(rank->comm, 2 * bench->pieces * sizeof(int32_t), NULL, &bench->numbers);
    }
    if (status == WEIR_OK) {
        status = fill(rank, bench->rows);
    }
    if (status == WEIR_OK && rank->rank == 0) {
        status = fill(rank, bench->memory);
    }
    if (status == WEIR_OK) {
        status = weir_bootstrap_barrier(rank->bootstrap, NULL);
    }
    return status == WEIR_OK ? perf_copies_open(rank, bench->pieces, &bench->copies) : status;
}

static void destroy(move_bench *bench)
{
    perf_copies_close(&bench->copies);
    weir_memory_destroy(bench->numbers);
    weir_memory_destroy(bench->rows);
    weir_memory_destroy(bench->memory);
    free(bench->host_rows);
    free(bench->places);
    free(bench->ids);
}

static weir_status check_sizes(perf_rank *rank, const perf_list *sizes)
{
    for (uint32_t i = 0; i < sizes->count; i++) {
        if (sizes->values[i] == 0 || sizes->values[i] % 4 != 0) {
            return perf_fail(rank, WEIR_ERR_INVALID, "%s: rows of %llu bytes; a multiple of 4", rank->command,
                             (unsigned long long)sizes->values[i]);
        }
    }
    return WEIR_OK;
}

static perf_list list_or(perf_list list, uint64_t value)
{
    if (list.count == 0) {
        list.values[list.count++] = value;
    }
    return list;
}

static weir_status run_moves(perf_rank *rank, bool pages)
{
    const perf_options *options = rank->options;
    const perf_list spans = list_or(options->spans, rank->gpu ? (uint64_t)512 << 20 : 1 << 20);
    const perf_list sizes = list_or(options->row_bytes, pages ? 4096 : 128);
    const perf_list blocks = list_or(options->blocks, 0);
    move_bench bench;
    memset(&bench, 0, sizeof bench);
    bench.rank = rank;
    bench.pages = pages;
    bench.pieces = options->rows != 0 ? options->rows : rank->gpu ? 400000 : 512;
    weir_status status = check_sizes(rank, &sizes);
    if (status == WEIR_OK) {
        status = perf_report_machine(rank);
    }
    if (status == WEIR_OK) {
        status = create(&bench, perf_largest(&spans));
        perf_fact(rank->output, "time", "us of a call, longest of the devices; median; distinct ids");
    }
    for (uint32_t i = 0; i < spans.count * sizes.count * blocks.count && status == WEIR_OK; i++) {
        const uint32_t planes = pages && options->planes != 0 ? options->planes : 1;
        status = measure_size(&bench, spans.values[i / blocks.count / sizes.count],
                              sizes.values[i / blocks.count % sizes.count], planes,
                              (uint32_t)blocks.values[i % blocks.count]);
    }
    if (status == WEIR_OK) {
        status = weir_bootstrap_barrier(rank->bootstrap, NULL); /* no rank uses the table any more */
    }
    if (status == WEIR_OK || !rank->gpu) {
        destroy(&bench);
    }
    return status;
}

static weir_status run_scatter(perf_rank *rank) { return run_moves(rank, false); }

static weir_status run_pages(perf_rank *rank) { return run_moves(rank, true); }

const perf_command perf_scatter = { "scatter", "rows scattered to a table in host memory",
                                    "-g --rows --row-bytes --span --blocks --peers -n -w", run_scatter, NULL };

const perf_command perf_pages = { "pages", "pages of a KV cache from host memory to a GPU, and back",
                                  "-g --rows --row-bytes --span --planes --blocks --peers -n -w", run_pages, NULL };
