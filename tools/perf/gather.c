/* gather.c - weir-perf gather: rows of a table in host memory, gathered by weir and by kernels written by hand.
 *
 * Rank 0 allocates the table, of the largest span, and the other ranks map it. A case is a span, a size of rows, an
 * order of ids and a form of the kernel. Each rank draws its own ids, which are all distinct, or follow Zipf's law: the
 * k-th most frequent row has a frequency of 1 / k. Or all ranks take the ids of a file. Bandwidth counts each distinct
 * row once. `sorted` and `grouped` are ids that the host has brought into that order: by row, or by groups of 64 MiB in
 * which they keep the drawn order. The form `weir` is weir_table_gather; it gets the drawn ids, and reorders them
 * itself in the orders grouped, unique and auto. Row i of the output is the row of the i-th id that was drawn, whatever
 * the order. A row of weir has columns of what --peers names, and of the fastest kernel by hand.
 *
 * Times are medians of replays of a graph with one kernel. Every case is checked: the output is cleared, filled by one
 * more launch, and compared. With --check it is also cleared before the replays and compared after them. */
#include "tools/perf/gather_bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/perf/commands.h"

#define TABLE_TAG 1u

/* As measured on H200 (docs/tables.md): bytes in a us, and the time of a translation miss. */
#define LINK_BYTES_US 51400.0
#define MISS_US 0.030

static const char *const order_names[ORDERS] = { "given", "sorted", "grouped", "unique", "auto" };

#define FORM_WEIR GATHER_FORMS /* behind the forms by hand; behind it, weir's forms of other libraries */
#define FIELDS_MOST 32u

/* ---- setup --------------------------------------------------------------------------------------------- */

/* --peer: each rank reads device memory of the next one, or a rank alone its own. */
static weir_status share_peers(gather_bench *bench, uint64_t bytes)
{
    perf_rank *rank = bench->rank;
    const uint32_t next = (rank->rank + 1) % rank->ranks, last = (rank->rank + rank->ranks - 1) % rank->ranks;
    if (rank->ranks == 1) {
        return weir_memory_allocate(rank->comm, bytes, NULL, &bench->table);
    }
    weir_status status = weir_memory_allocate(rank->comm, bytes, NULL, &bench->own);
    if (status == WEIR_OK && rank->rank == 0) {
        status = weir_memory_send(rank->comm, bench->own, last, TABLE_TAG);
    }
    if (status == WEIR_OK) {
        status = weir_memory_recv(rank->comm, next, TABLE_TAG, &bench->table);
    }
    if (status == WEIR_OK && rank->rank != 0) {
        status = weir_memory_send(rank->comm, bench->own, last, TABLE_TAG);
    }
    return status;
}

static weir_status share_table(gather_bench *bench, uint64_t bytes)
{
    perf_rank *rank = bench->rank;
    if (rank->options->peer) {
        return share_peers(bench, bytes);
    }
    weir_memory_opts host = WEIR_OPTS(weir_memory_opts);
    host.kind = WEIR_MEMORY_HOST;
    weir_status status = WEIR_OK;
    uint64_t start = weir_cpu_clock_ns();
    if (rank->rank == 0) {
        status = weir_memory_allocate(rank->comm, bytes, &host, &bench->table);
        bench->table_s = (double)(weir_cpu_clock_ns() - start) / 1e9;
    }
    for (uint32_t i = 1; i < rank->ranks && rank->rank == 0 && status == WEIR_OK; i++) {
        status = weir_memory_send(rank->comm, bench->table, i, TABLE_TAG);
    }
    if (status == WEIR_OK) {
        status = weir_bootstrap_barrier(rank->bootstrap, NULL); /* the handle is there: recv only maps and locks */
    }
    if (rank->rank != 0 && status == WEIR_OK) {
        start = weir_cpu_clock_ns();
        status = weir_memory_recv(rank->comm, 0, TABLE_TAG, &bench->table);
        bench->table_s = (double)(weir_cpu_clock_ns() - start) / 1e9;
    }
    return status;
}

static weir_status launch_once(gather_bench *bench, const weir_kernel *kernel, weir_shape shape,
                               const gather_args *args)
{
    perf_rank *rank = bench->rank;
    const weir_status status = weir_launch(rank->device, kernel, shape, args, NULL, rank->stream);
    return status == WEIR_OK ? weir_stream_wait(rank->device, rank->stream, 0) : status;
}

/* Bandwidth of one bulk copy of up to 256 MiB out of the table, the best of three. */
static weir_status time_copy(gather_bench *bench)
{
    uint64_t bytes = weir_memory_bytes(bench->table);
    bytes = bytes < weir_memory_bytes(bench->out) ? bytes : weir_memory_bytes(bench->out);
    bytes = bytes < (uint64_t)256 << 20 ? bytes : (uint64_t)256 << 20;
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < 3 && status == WEIR_OK; i++) {
        const uint64_t start = weir_cpu_clock_ns();
        status = weir_device_copy(bench->rank->device, weir_memory_pointer(bench->out),
                                  weir_memory_pointer(bench->table), bytes);
        const double gbytes_s = (double)bytes / (double)(weir_cpu_clock_ns() - start);
        bench->copy_gbytes_s = gbytes_s > bench->copy_gbytes_s ? gbytes_s : bench->copy_gbytes_s;
    }
    return status;
}

static weir_status fill_table(gather_bench *bench)
{
    perf_rank *rank = bench->rank;
    const weir_shape shape = weir_device_fit_shape(rank->device, (weir_shape){ 64, 1024 });
    gather_args args;
    memset(&args, 0, sizeof args);
    args.table = (char *)weir_memory_pointer(bench->own != NULL ? bench->own : bench->table);
    args.count = weir_memory_bytes(bench->table) / 4;
    weir_status status =
        rank->rank == 0 || bench->own != NULL ? launch_once(bench, gather_fill, shape, &args) : WEIR_OK;
    if (status == WEIR_OK) {
        status = weir_bootstrap_barrier(rank->bootstrap, NULL); /* all tables are filled */
    }
    return status == WEIR_OK ? time_copy(bench) : status;
}

/* A table of `span` bytes, and room for `rows` rows of up to `row_bytes` bytes. */
static weir_status create_bench(perf_rank *rank, uint64_t span, uint64_t rows, uint64_t row_bytes, gather_bench *bench)
{
    weir_memory_opts host = WEIR_OPTS(weir_memory_opts);
    host.kind = WEIR_MEMORY_HOST;
    memset(bench, 0, sizeof *bench);
    bench->rank = rank;
    bench->most = rows;
    bench->drawn = (int64_t *)malloc(rows * sizeof bench->drawn[0]);
    bench->host_ids = (int64_t *)malloc(rows * sizeof bench->host_ids[0]);
    bench->host_places = (uint32_t *)malloc(rows * sizeof bench->host_places[0]);
    if (bench->drawn == NULL || bench->host_ids == NULL || bench->host_places == NULL) {
        return perf_fail(rank, WEIR_ERR_NOMEM, "gather: no memory for %llu ids", (unsigned long long)rows);
    }
    weir_status status = share_table(bench, span);
    if (status == WEIR_OK) {
        status = weir_memory_allocate(rank->comm, rows * row_bytes, NULL, &bench->out);
    }
    if (status == WEIR_OK) {
        status = weir_memory_allocate(rank->comm, rows * sizeof(int64_t), NULL, &bench->ids);
    }
    if (status == WEIR_OK) {
        status = weir_memory_allocate(rank->comm, rows * sizeof(uint32_t), NULL, &bench->places);
    }
    if (status == WEIR_OK) {
        status = weir_memory_allocate(rank->comm, sizeof(uint64_t), &host, &bench->wrong);
    }
    if (status == WEIR_OK) {
        status = perf_copies_open(rank, rows, &bench->copies);
    }
    return status == WEIR_OK ? fill_table(bench) : status;
}

static void destroy_bench(gather_bench *bench)
{
    perf_copies_close(&bench->copies);
    weir_memory_destroy(bench->wrong);
    weir_memory_destroy(bench->places);
    weir_memory_destroy(bench->ids);
    weir_memory_destroy(bench->out);
    weir_memory_destroy(bench->table);
    if (bench->own != NULL) {
        const weir_status status = weir_bootstrap_barrier(bench->rank->bootstrap, NULL); /* the last rank unmaps it */
        (void)status;
        weir_memory_destroy(bench->own);
    }
    free(bench->host_places);
    free(bench->host_ids);
    free(bench->drawn);
}

/* ---- one case -------------------------------------------------------------------------------------------- */

typedef struct gather_case {
    uint64_t span;
    uint64_t row_bytes;
    uint64_t pages;
    uint64_t distinct; /* ids */
    uint32_t order;
    uint32_t form;
    uint32_t loads; /* index in gather_form.kernels */
    uint32_t lanes;
    weir_shape shape;
    uint64_t wrong; /* words of 4 bytes */
} gather_case;

static const char *form_name(const gather_case *c)
{
    static const char *const own[] = { "weir", "weir's flat", "weir's circular", "weir's lines" };
    return c->form >= FORM_WEIR ? own[c->form - FORM_WEIR] : gather_forms[c->form].name;
}

/* ---- weir's gather --------------------------------------------------------------------------------------- */

typedef struct own_gather {
    weir_table *table;
    const gather_args *args;
    weir_table_call_opts opts;
} own_gather;

static weir_status put_gather(perf_rank *rank, void *context, uint32_t number)
{
    const own_gather *gather = (const own_gather *)context;
    (void)number;
    return weir_table_gather(gather->table, gather->args->ids, WEIR_IDS_I64, gather->args->count, gather->args->out,
                             &gather->opts, rank->stream);
}

static weir_status create_gather(const gather_bench *bench, const gather_case *c, const gather_args *args,
                                 own_gather *gather)
{
    static const weir_table_order orders[ORDERS] = { WEIR_TABLE_ORDER_GIVEN, WEIR_TABLE_ORDER_GIVEN,
                                                     WEIR_TABLE_ORDER_GROUPED, WEIR_TABLE_ORDER_UNIQUE,
                                                     WEIR_TABLE_ORDER_AUTO };
    weir_table_opts opts = WEIR_OPTS(weir_table_opts);
    weir_table_part part;
    memset(&part, 0, sizeof part);
    memset(gather, 0, sizeof *gather);
    part.memory = bench->table;
    part.count = c->span / c->row_bytes;
    opts.order_ids = bench->most;
    gather->args = args;
    gather->opts.size = sizeof gather->opts;
    gather->opts.order = orders[c->order];
    gather->opts.form = (weir_table_form)(c->form - FORM_WEIR);
    gather->opts.blocks = bench->rank->options->blocks.count != 0 ? c->shape.blocks : 0;
    return weir_table_create(bench->rank->device, c->row_bytes, &part, 1, &opts, &gather->table);
}

/* ---- measuring a case ------------------------------------------------------------------------------------ */

/* Adds the wrong words of the output to c->wrong. */
static weir_status compare(gather_bench *bench, gather_case *c, const gather_args *args)
{
    uint64_t *wrong = (uint64_t *)weir_memory_host_pointer(bench->wrong);
    const weir_shape shape = weir_device_fit_shape(bench->rank->device, (weir_shape){ 128, 1024 });
    *wrong = 0;
    const weir_status status = launch_once(bench, gather_compare, shape, args);
    c->wrong += *wrong;
    return status;
}

static weir_status clear(const gather_bench *bench, const gather_case *c)
{
    return weir_device_fill(bench->rank->device, weir_memory_pointer(bench->out), 0, bench->count * c->row_bytes);
}

static weir_status check_case(gather_bench *bench, gather_case *c, const gather_args *args, own_gather *gather)
{
    weir_status status = clear(bench, c);
    if (status == WEIR_OK && c->form >= FORM_WEIR) {
        status = put_gather(bench->rank, gather, 1); /* the next kernel is on the same stream */
    } else if (status == WEIR_OK) {
        status = launch_once(bench, gather_forms[c->form].kernels[c->loads], c->shape, args);
    }
    return status == WEIR_OK ? compare(bench, c, args) : status;
}

static weir_status fail_wrong(const gather_bench *bench, const gather_case *c)
{
    return c->wrong == 0
               ? WEIR_OK
               : perf_fail(bench->rank, WEIR_ERR_CORRUPT, "gather %s %s, rows of %llu bytes: %llu words are wrong",
                           form_name(c), order_names[c->order], (unsigned long long)c->row_bytes,
                           (unsigned long long)c->wrong);
}

/* us[] gets a time of each of *replays replays, sorted, and c the number of wrong words; of weir, also its own shape.
 */
static weir_status time_case(gather_bench *bench, gather_case *c, double *us, uint32_t *replays)
{
    perf_rank *rank = bench->rank;
    const uint32_t wanted = rank->options->iters != 0 ? rank->options->iters : rank->gpu ? 10 : 2;
    void *graph = NULL;
    gather_args args;
    memset(&args, 0, sizeof args);
    c->wrong = 0;
    *replays = wanted < PERF_REPLAYS_MAX ? wanted : PERF_REPLAYS_MAX;
    args.table = (char *)weir_memory_pointer(bench->table);
    args.out = (char *)weir_memory_pointer(bench->out);
    args.ids = (const int64_t *)weir_memory_pointer(bench->ids);
    args.places =
        c->order == ORDER_GIVEN || c->form >= FORM_WEIR ? NULL : (const uint32_t *)weir_memory_pointer(bench->places);
    args.wrong = (uint64_t *)weir_memory_pointer(bench->wrong);
    args.row_bytes = c->row_bytes;
    args.count = bench->count;
    args.lanes = c->lanes;
    own_gather gather;
    memset(&gather, 0, sizeof gather);
    const perf_calls calls = { put_gather, &gather };
    perf_work work;
    memset(&work, 0, sizeof work);
    weir_status status = WEIR_OK;
    if (c->form >= FORM_WEIR) {
        status = create_gather(bench, c, &args, &gather);
    } else {
        work.kernel = gather_forms[c->form].kernels[c->loads];
        work.shape = c->shape;
        work.args = &args;
    }
    if (status == WEIR_OK) {
        status =
            c->form >= FORM_WEIR ? perf_record_calls(rank, &calls, 1, &graph) : perf_record(rank, &work, 1, &graph);
    }
    if (status == WEIR_OK && rank->options->check) {
        status = clear(bench, c);
    }
    if (status == WEIR_OK) {
        status = perf_time(rank, graph, 1, rank->options->warmup, *replays, us);
    }
    weir_graph_destroy(rank->device, graph);
    if (status == WEIR_OK && rank->options->check) {
        status = compare(bench, c, &args);
    }
    if (status == WEIR_OK) {
        status = check_case(bench, c, &args, &gather);
    }
    if (gather.table != NULL) {
        weir_table_info info;
        weir_table_get_info(gather.table, &info);
        c->shape.blocks = gather.opts.blocks != 0 ? gather.opts.blocks : info.blocks;
        c->shape.threads = info.threads;
    }
    weir_table_destroy(gather.table);
    if (status == WEIR_OK) {
        perf_sort(us, *replays);
    }
    return status;
}

/* weir chooses lanes and loads itself. */
static perf_field by_hand(const gather_case *c, const char *name, uint64_t count)
{
    return c->form >= FORM_WEIR ? perf_real(name, NAN, 0) : perf_count(name, count);
}

/* The fastest kernel by hand in the order of the case; for orders that only weir has, in any order. */
static gather_raw raw_of(const gather_bench *bench, const gather_case *c)
{
    gather_raw best = bench->raw[c->order];
    for (uint32_t i = 0; i < ORDERS && c->order >= ORDER_UNIQUE; i++) {
        best = isnan(best.us) || bench->raw[i].us < best.us ? bench->raw[i] : best;
    }
    return best;
}

/* peers: of weir, the times of what --peers names. */
static void report(const gather_bench *bench, const gather_case *c, const double *us, uint32_t replays,
                   const double *peers)
{
    static const char *const peer_columns[PEERS] = { "bulk_us", "batch_us",    "each_us",
                                                     "flat_us", "circular_us", "lines_us" };
    const double bytes = (double)c->distinct * (double)c->row_bytes;
    const double misses = c->order == ORDER_GIVEN ? (double)c->distinct : (double)c->pages;
    const double link = bytes / LINK_BYTES_US;
    const double bound = link > misses * MISS_US ? link : misses * MISS_US;
    const double median = perf_percentile(us, replays, 0.5);
    const uint32_t sms = bench->rank->info.multiprocessors;
    const gather_raw none = { NAN, "" };
    const gather_raw raw = c->form >= FORM_WEIR ? raw_of(bench, c) : none;
    const perf_field first[] = {
        perf_text("form", form_name(c)),
        perf_text("order", order_names[c->order]),
        perf_count("devices", bench->rank->ranks),
        perf_count("span", c->span),
        perf_count("row_bytes", c->row_bytes),
        perf_count("ids", bench->count),
        perf_count("distinct", c->distinct),
        perf_count("pages", c->pages),
        perf_count("blocks", c->shape.blocks),
        perf_as(perf_count("sms", c->shape.blocks < sms ? c->shape.blocks : sms), PERF_APART),
        perf_count("threads", c->shape.threads),
        by_hand(c, "lanes", c->lanes),
        by_hand(c, "loads", (uint64_t)1 << c->loads),
        perf_as(perf_real("time_us", median, 2), PERF_LATENCY),
        perf_real("min_us", us[0], 2),
        perf_real("p95_us", perf_percentile(us, replays, 0.95), 2),
        perf_as(perf_real("gbytes_s", bytes / median / 1e3, 2), PERF_BANDWIDTH), /* of one device */
        perf_real("copy_pct", 100 * bytes / median / 1e3 / bench->copy_gbytes_s, 1),
        perf_real("bound_us", bound, 2),
        perf_real("raw_us", raw.us, 2),
        perf_wide(perf_as(perf_text("raw_form", raw.form), PERF_APART), -23),
    };
    perf_field fields[FIELDS_MOST];
    uint32_t count = ROWS(first);
    memcpy(fields, first, sizeof first);
    for (uint32_t i = 0; i < PEERS; i++) {
        if (gather_wants_peer(bench->rank->options, i)) {
            fields[count++] = perf_real(peer_columns[i], peers != NULL ? peers[i] : NAN, 2);
        }
    }
    fields[count++] = perf_count("wrong", c->wrong);
    perf_row(bench->rank->output, "gather", fields, count);
}

/* ---- the command --------------------------------------------------------------------------------------- */

static perf_list list_or(perf_list list, uint64_t value)
{
    if (list.count == 0) {
        list.values[list.count++] = value;
    }
    return list;
}

/* Whether the text of an option, a list separated by commas, selects `name`. */
static bool selects(const char *list, const char *name, bool by_default)
{
    const size_t length = strlen(name);
    if (list == NULL) {
        return by_default;
    }
    if (strcmp(list, "all") == 0) {
        return true;
    }
    for (const char *at = list; at != NULL; at = strchr(at, ',') == NULL ? NULL : strchr(at, ',') + 1) {
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0')) {
            return true;
        }
    }
    return false;
}

/* Times a kernel by hand, and reports a row if it is wanted. */
static weir_status measure_by_hand(gather_bench *bench, const gather_case *c, bool shown)
{
    double us[PERF_REPLAYS_MAX];
    uint32_t replays = 0;
    gather_case timed = *c;
    gather_raw *raw = &bench->raw[c->order];
    const weir_status status = time_case(bench, &timed, us, &replays);
    if (status != WEIR_OK) {
        return status;
    }
    const double median = perf_percentile(us, replays, 0.5);
    if (isnan(raw->us) || median < raw->us) {
        raw->us = median;
        (void)snprintf(raw->form, sizeof raw->form, "%s %ux%u, %s", form_name(c), c->lanes, 1u << c->loads,
                       order_names[c->order]);
    }
    if (shown) {
        report(bench, &timed, us, replays, NULL);
    }
    return fail_wrong(bench, &timed);
}

/* All lanes and loads of a form by hand with one shape. With --peers, all those that may be the fastest. */
static weir_status measure_shape(gather_bench *bench, gather_case *c, bool shown)
{
    static const perf_list all_lanes = { { 8, 16, 32 }, 3 };
    static const perf_list all_loads = { { 1, 2, 4 }, 3 };
    const perf_options *options = bench->rank->options;
    const bool all = options->peers != NULL && bench->rank->gpu;
    const perf_list lanes =
        all && options->lanes.count == 0 ? all_lanes : list_or(options->lanes, bench->rank->gpu ? 32 : 1);
    const perf_list loads = all && options->loads.count == 0 ? all_loads : list_or(options->loads, 1);
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < lanes.count; i++) {
        for (uint32_t k = 0; k < loads.count && status == WEIR_OK; k++) {
            c->lanes = (uint32_t)lanes.values[i];
            c->loads = loads.values[k] == 4 ? 2 : (uint32_t)loads.values[k] - 1;
            if (gather_forms[c->form].kernels[c->loads] != NULL) {
                status = measure_by_hand(bench, c, shown);
            }
        }
    }
    return status;
}

/* weir's row: its own form, and beside it the forms of other libraries in the same order. */
static weir_status measure_weir(gather_bench *bench, const gather_case *c)
{
    double us[PERF_REPLAYS_MAX];
    double others[PERF_REPLAYS_MAX];
    double peers[PEERS];
    uint32_t replays = 0;
    gather_case timed = *c;
    weir_status status = time_case(bench, &timed, us, &replays);
    memcpy(peers, bench->copied_us, sizeof peers);
    for (uint32_t i = PEER_FLAT; i < PEERS && status == WEIR_OK; i++) {
        gather_case other = *c;
        uint32_t times = 0;
        other.form = FORM_WEIR + 1 + i - PEER_FLAT;
        peers[i] = NAN;
        if (gather_wants_peer(bench->rank->options, i)) {
            status = time_case(bench, &other, others, &times);
            status = status == WEIR_OK ? fail_wrong(bench, &other) : status;
            peers[i] = status == WEIR_OK ? perf_percentile(others, times, 0.5) : NAN;
        }
    }
    if (status == WEIR_OK) {
        report(bench, &timed, us, replays, peers);
    }
    return status == WEIR_OK ? fail_wrong(bench, &timed) : status;
}

/* All forms in one order with all shapes; the ids are in this order. */
static weir_status measure_order(gather_bench *bench, gather_case *c)
{
    const perf_options *options = bench->rank->options;
    const perf_list blocks = list_or(options->blocks, bench->rank->gpu ? 8 : 2); /* weir: its own */
    const perf_list threads = list_or(options->threads, bench->rank->gpu ? 1024 : 4);
    weir_status status = WEIR_OK;
    for (c->form = 0; c->form <= FORM_WEIR && status == WEIR_OK; c->form++) {
        const bool own = c->form == FORM_WEIR;
        const bool shown =
            selects(options->form, form_name(c), own || (c->form == GATHER_UNITS && options->peers == NULL));
        if ((own ? c->order == ORDER_SORTED : c->order >= ORDER_UNIQUE) ||
            (!shown && (own || options->peers == NULL))) {
            continue;
        }
        if (own) {
            status = gather_set_order(bench, ORDER_GIVEN, c->row_bytes);
        }
        for (uint32_t i = 0; i < blocks.count * threads.count && status == WEIR_OK; i++) {
            c->shape.blocks = (uint32_t)blocks.values[i / threads.count];
            c->shape.threads = (uint32_t)threads.values[i % threads.count];
            if (!own) {
                status = measure_shape(bench, c, shown);
            } else if (i % threads.count == 0) {
                status = measure_weir(bench, c);
            }
        }
    }
    return status;
}

static weir_status measure_rows(gather_bench *bench, gather_case *c)
{
    const perf_options *options = bench->rank->options;
    const uint64_t rows = c->span / c->row_bytes;
    weir_status status = WEIR_OK;
    if (options->ids == NULL || strcmp(options->ids, "uniform") == 0 || strcmp(options->ids, "zipf") == 0) {
        gather_draw_ids(bench, rows, rows < bench->most ? rows : bench->most);
    } else {
        status = gather_read_ids(bench, rows);
    }
    if (status != WEIR_OK) {
        return status;
    }
    c->pages = gather_count_pages(bench, c->row_bytes, &c->distinct);
    for (uint32_t i = 0; i < ORDERS; i++) {
        bench->raw[i].us = NAN;
    }
    status = gather_set_order(bench, ORDER_GIVEN, c->row_bytes);
    if (status == WEIR_OK) {
        status = gather_time_copies(bench, c->row_bytes);
    }
    for (c->order = 0; c->order < ORDERS && status == WEIR_OK; c->order++) {
        if (selects(options->order, order_names[c->order], c->order == ORDER_GIVEN)) {
            status = gather_set_order(bench, c->order, c->row_bytes);
            status = status == WEIR_OK ? measure_order(bench, c) : status;
        }
    }
    return status;
}

static weir_status check_options(perf_rank *rank, const perf_list *spans, const perf_list *sizes)
{
    const perf_options *options = rank->options;
    for (uint32_t i = 0; i < sizes->count; i++) {
        for (uint32_t k = 0; k < spans->count; k++) {
            if (sizes->values[i] % 4 != 0 || sizes->values[i] > spans->values[k]) {
                return perf_fail(
                    rank, WEIR_ERR_INVALID,
                    "gather: rows of %llu bytes in %llu; rows are a multiple of 4 bytes and lie in the span",
                    (unsigned long long)sizes->values[i], (unsigned long long)spans->values[k]);
            }
        }
    }
    for (uint32_t i = 0; i < options->lanes.count; i++) {
        const uint64_t lanes = options->lanes.values[i];
        if (lanes > 32 || (lanes & (lanes - 1)) != 0) {
            return perf_fail(rank, WEIR_ERR_INVALID, "gather: %llu lanes; a power of two up to 32",
                             (unsigned long long)lanes);
        }
    }
    for (uint32_t i = 0; i < options->loads.count; i++) {
        const uint64_t loads = options->loads.values[i];
        if (loads != 1 && loads != 2 && loads != 4) {
            return perf_fail(rank, WEIR_ERR_INVALID, "gather: %llu loads; 1, 2 or 4", (unsigned long long)loads);
        }
    }
    return gather_check_peers(rank);
}

static weir_status measure_all(gather_bench *bench, const perf_list *spans, const perf_list *sizes)
{
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < spans->count; i++) {
        for (uint32_t k = 0; k < sizes->count && status == WEIR_OK; k++) {
            gather_case c;
            memset(&c, 0, sizeof c);
            c.span = spans->values[i];
            c.row_bytes = sizes->values[k];
            status = measure_rows(bench, &c);
        }
    }
    return status;
}

/* The command that counts requests by Nsight Compute. On H200, pcie__read_bytes is 32 bytes for each sector that is
 * read and 12 for each request. */
static void print_counters(const perf_options *options, const perf_list *spans, const perf_list *sizes)
{
    for (uint32_t i = 0; i < sizes->count; i++) {
        printf("ncu --csv --kernel-name 'regex:weiri_table|gather_' \\\n"
               "    --metrics pcie__read_bytes.sum,lts__t_sectors_aperture_sysmem.sum \\\n"
               "    weir-perf gather -g 1 --span %llu --row-bytes %llu --rows %u --order given --form all -n 1 -w 0\n",
               (unsigned long long)spans->values[0], (unsigned long long)sizes->values[i],
               options->rows != 0 ? options->rows : 100000);
    }
    printf("requests a row = (pcie__read_bytes / rows - 32 * sectors of a row) / 12\n");
}

/* Reports how long the ranks took to have the table's host memory: rank 0 allocates it, the others map it. */
static weir_status report_memory(const gather_bench *bench)
{
    double all[PERF_RANKS_MAX] = { 0 };
    double mapped = 0;
    all[bench->rank->rank] = bench->table_s;
    const weir_status status = weir_bootstrap_allgather(bench->rank->bootstrap, NULL, all, sizeof all[0]);
    for (uint32_t i = 1; i < bench->rank->ranks; i++) {
        mapped = all[i] > mapped ? all[i] : mapped;
    }
    const unsigned long long bytes = weir_memory_bytes(bench->table);
    if (bench->rank->ranks == 1) {
        perf_fact(bench->rank->output, "table memory", "%llu bytes, allocated in %.3f s", bytes, all[0]);
    } else {
        perf_fact(bench->rank->output, "table memory",
                  "%llu bytes, allocated in %.3f s, mapped by the others in %.3f s", bytes, all[0], mapped);
    }
    return status;
}

static weir_status run_gather(perf_rank *rank)
{
    const perf_options *options = rank->options;
    const perf_list spans = list_or(options->spans, rank->gpu ? (uint64_t)512 << 20 : 1 << 20);
    const perf_list sizes = list_or(options->row_bytes, 128);
    const uint64_t rows = options->rows != 0 ? options->rows : rank->gpu ? 400000 : 512;
    gather_bench bench;
    if (options->calibrate) {
        return gather_calibrate(rank);
    }
    if (options->beside != NULL) {
        return gather_beside(rank);
    }
    if (options->cached.count != 0) {
        return gather_cached(rank);
    }
    if (options->counters) {
        if (rank->rank == 0) {
            print_counters(options, &spans, &sizes);
        }
        return WEIR_OK;
    }
    weir_status status = check_options(rank, &spans, &sizes);
    if (status == WEIR_OK) {
        status = perf_report_machine(rank);
    }
    if (status != WEIR_OK) {
        return status;
    }
    status = create_bench(rank, perf_largest(&spans), rows, perf_largest(&sizes), &bench);
    if (status == WEIR_OK) {
        perf_fact(rank->output, "time", "us of a gather, longest of the devices; median of replays");
        perf_fact(rank->output, "bulk copy", "%.2f GB/s", bench.copy_gbytes_s);
        status = options->peer ? WEIR_OK : report_memory(&bench);
    }
    if (status == WEIR_OK) {
        status = measure_all(&bench, &spans, &sizes);
    }
    if (status == WEIR_OK) {
        status = weir_bootstrap_barrier(rank->bootstrap, NULL); /* no rank reads the table any more */
    }
    if (status == WEIR_OK || !rank->gpu) {
        destroy_bench(&bench);
    }
    return status;
}

const perf_command perf_gather = {
    "gather", "rows of a table in host memory, by weir and by hand",
    "-g --rows --row-bytes --span --order --ids --form --blocks --threads --lanes "
    "--loads --peers --check --peer --beside --sms --cached --calibrate --counters -n -w",
    run_gather, NULL
};
