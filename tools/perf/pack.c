/* pack.c - weir-perf pack and unpack: strided rows by weir, by kernels written by hand and by copies of
 * the CUDA driver.
 *
 * A case is a box (a configuration and a size) and whether the cache is cold. The graph of a cold case has a node for
 * each of several places, so that more than COLD_BYTES are touched before a place comes again; a warm case uses one
 * place. Each form is measured with several shapes, and the row of the case has the best median of each form. Every
 * form is checked: the destination is cleared, filled by one more call, and compared. With --check all places are also
 * cleared before the timed calls, and compared after them. A wrong form fails the command.
 *
 * With one rank, both sides lie in the memory of its device, or the packed side in host memory (--host). With two ranks
 * the destination lies in the peer's memory: the packed side of a pack, the strided side of an unpack. */
#include "tools/perf/pack.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/perf/commands.h"
#include "tools/perf/old_rows.h"

#define WARM_NODES 16u
#define SECTOR_BYTES 32u
#define COPY_BYTES_US 4.3e6 /* read and written by a copy on one H200, in a us */
#define DESTINATION_TAG 1u
#define CALL_REPLAYS 3u /* of peers whose calls cannot be recorded */

/* ---- memory ---------------------------------------------------------------------------------------------- */

typedef struct pack_bench {
    perf_rank *rank;
    bool unpack;
    weir_memory *wide;
    weir_memory *dense;
    weir_memory *to;     /* the destination: one of the two, or that of the peer */
    weir_memory *wrong;  /* a count, in host memory */
    pack_driver *driver; /* NULL on the CPU device */
    perf_old_rows with;  /* of --with; on rank 0 */
    uint32_t with_used;  /* rows of the run that have one there */
} pack_bench;

/* With two ranks, each receives the destination of the other. */
static weir_status share_destination(pack_bench *bench)
{
    perf_rank *rank = bench->rank;
    weir_memory *mine = bench->unpack ? bench->wide : bench->dense;
    bench->to = mine;
    if (rank->ranks == 1) {
        return WEIR_OK;
    }
    weir_status status = weir_memory_send(rank->comm, mine, rank->peer, DESTINATION_TAG);
    bench->to = NULL;
    return status == WEIR_OK ? weir_memory_recv(rank->comm, rank->peer, DESTINATION_TAG, &bench->to) : status;
}

static weir_status create_bench(perf_rank *rank, bool unpack, const pack_configs *configs, pack_bench *bench)
{
    weir_memory_opts host = WEIR_OPTS(weir_memory_opts);
    host.kind = WEIR_MEMORY_HOST;
    uint64_t wide = 0;
    uint64_t dense = 0;
    for (uint32_t i = 0; i < configs->count; i++) {
        pack_case c;
        pack_plan_case(rank, &configs->rows[i], true, &c);
        const uint64_t wide_bytes = (c.places - 1) * c.wide_step + c.span;
        const uint64_t dense_bytes = c.places * c.dense_step;
        wide = wide_bytes > wide ? wide_bytes : wide;
        dense = dense_bytes > dense ? dense_bytes : dense;
    }
    memset(bench, 0, sizeof *bench);
    bench->rank = rank;
    bench->unpack = unpack;
    weir_status status = WEIR_OK;
    if (rank->options->with != NULL && rank->rank == 0 && !perf_old_rows_read(rank->options->with, &bench->with)) {
        status = perf_fail(rank, WEIR_ERR_INVALID, "%s: --with %s cannot be read", rank->command, rank->options->with);
    }
    if (status == WEIR_OK) {
        status = weir_memory_allocate(rank->comm, pack_round_up(wide, 256), NULL, &bench->wide);
    }
    if (status == WEIR_OK) {
        status = weir_memory_allocate(rank->comm, dense, rank->options->host ? &host : NULL, &bench->dense);
    }
    if (status == WEIR_OK) {
        status = weir_memory_allocate(rank->comm, sizeof(uint64_t), &host, &bench->wrong);
    }
    if (status == WEIR_OK) {
        status = share_destination(bench);
    }
    if (status == WEIR_OK && rank->gpu) {
        status = pack_driver_open(rank, &bench->driver);
    }
    if (status == WEIR_OK) {
        pack_args args;
        memset(&args, 0, sizeof args);
        args.dense = (char *)weir_memory_pointer(unpack ? bench->dense : bench->wide);
        args.bytes = weir_memory_bytes(unpack ? bench->dense : bench->wide);
        status = perf_run(bench->rank, pack_fill, &args);
    }
    return status;
}

static void destroy_bench(pack_bench *bench)
{
    perf_old_rows_free(&bench->with);
    pack_driver_close(bench->driver);
    if (bench->rank->ranks > 1) {
        weir_memory_destroy(bench->to);
    }
    weir_memory_destroy(bench->wrong);
    weir_memory_destroy(bench->dense);
    weir_memory_destroy(bench->wide);
}

/* ---- forms ----------------------------------------------------------------------------------------------- */

pack_divisor pack_divisor_of(uint64_t number)
{
    uint32_t bits = 0;
    while ((uint64_t)1 << bits < number) {
        bits++;
    }
    const uint64_t power = (uint64_t)1 << (31 + bits);
    return (pack_divisor){ (uint32_t)((power + number - 1) / number), 31 + bits };
}

static pack_args args_of(const pack_bench *bench, const pack_case *c)
{
    const pack_box *box = &c->config->box;
    pack_args args;
    memset(&args, 0, sizeof args);
    args.box = *box;
    args.bytes = c->bytes;
    if (c->config->list != NULL) {
        pack_list_args(c->config->list, &args);
    } else {
        args.by_run = pack_divisor_of(box->run);
        args.by_inner = pack_divisor_of(box->counts[1]);
        args.gap = box->run < box->strides[1] && (box->counts[0] == 1 || box->run < box->strides[0]);
    }
    args.unpack = bench->unpack;
    args.never = UINT32_MAX;
    args.wide = (char *)weir_memory_pointer(bench->unpack ? bench->to : bench->wide);
    args.dense = (char *)weir_memory_pointer(bench->unpack ? bench->dense : bench->to);
    args.wrong = (uint64_t *)weir_memory_pointer(bench->wrong);
    return args;
}

/* One way to move the box: a kernel with a shape, weir's call, or a peer. */
typedef struct pack_form {
    const weir_kernel *kernel; /* NULL: weir's call or a peer */
    const weir_layout *layout; /* of weir's call */
    weir_shape shape;
    uint32_t lanes;
    pack_peer peer;
} pack_form;

typedef struct form_node {
    pack_bench *bench;
    const pack_case *c;
    const pack_form *form;
    pack_args args;
    double trimean; /* set by time_node */
} form_node;

/* Node `number` uses the place after that of the node before it. */
static weir_status put_form(perf_rank *rank, void *context, uint32_t number)
{
    const form_node *node = (const form_node *)context;
    const uint32_t place = (number - 1) % node->c->places;
    pack_args args = node->args;
    args.wide += place * node->c->wide_step;
    args.dense += place * node->c->dense_step;
    args.lanes = node->form->lanes;
    if (node->form->layout != NULL) {
        return args.unpack
                   ? weir_layout_unpack(rank->device, node->form->layout, 1, args.wide, args.dense, NULL, rank->stream)
                   : weir_layout_pack(rank->device, node->form->layout, 1, args.wide, args.dense, NULL, rank->stream);
    }
    if (node->form->kernel == NULL) {
        return pack_peer_put(node->bench->driver, node->form->peer, node->c->config, &args, rank->stream);
    }
    return weir_launch(rank->device, node->form->kernel, node->form->shape, &args, NULL, rank->stream);
}

/* Clears `count` places of the destination from place `first` on, on all ranks, once no rank writes there any more. */
static weir_status clear_places(const form_node *node, uint32_t first, uint32_t count)
{
    const pack_bench *bench = node->bench;
    const pack_case *c = node->c;
    char *to = (char *)weir_memory_pointer(bench->unpack ? bench->wide : bench->dense);
    const uint64_t step = bench->unpack ? c->wide_step : c->dense_step;
    const uint64_t bytes = (count - 1) * step + (bench->unpack ? c->span : c->bytes);
    weir_status status = weir_bootstrap_barrier(bench->rank->bootstrap, NULL);
    if (status == WEIR_OK) {
        status = weir_device_fill(bench->rank->device, to + first * step, PACK_POISON, bytes);
    }
    return status == WEIR_OK ? weir_bootstrap_barrier(bench->rank->bootstrap, NULL) : status;
}

/* Counts the wrong bytes of these places, once all ranks have written them. Where places lie between the rows of other
 * places, the byte behind a row may belong to one of those. */
static weir_status compare_places(const form_node *node, uint32_t first, uint32_t count)
{
    const pack_bench *bench = node->bench;
    const pack_case *c = node->c;
    weir_status status = weir_bootstrap_barrier(bench->rank->bootstrap, NULL);
    for (uint32_t place = first; place < first + count && status == WEIR_OK; place++) {
        pack_args args = args_of(bench, c);
        args.wide = (char *)weir_memory_pointer(bench->wide) + place * c->wide_step;
        args.dense = (char *)weir_memory_pointer(bench->dense) + place * c->dense_step;
        args.first = place * (bench->unpack ? c->dense_step : c->wide_step);
        args.gap = args.gap && (count == 1 || c->wide_step >= c->span);
        status = perf_run(bench->rank, c->config->list != NULL ? pack_list_compare : pack_compare, &args);
    }
    return status;
}

/* Moves the data of the last place once more and counts its wrong bytes. */
static weir_status check_form(form_node *node)
{
    perf_rank *rank = node->bench->rank;
    const uint32_t last = node->c->places - 1;
    weir_status status = clear_places(node, last, 1);
    if (status == WEIR_OK) {
        status = put_form(rank, node, last + 1);
    }
    if (status == WEIR_OK) {
        status = weir_stream_wait(rank->device, rank->stream, 0);
    }
    return status == WEIR_OK ? compare_places(node, last, 1) : status;
}

/* The ceiling and the bytes of `lone` are not a pack. */
static bool is_pack(const pack_form *form)
{
    return form->kernel == NULL ? form->layout != NULL || form->peer != PACK_PEER_CONTIGUOUS
                                : form->kernel != pack_lone && form->kernel != pack_lone_batch &&
                                      form->kernel != pack_list_lone && form->kernel != pack_list_lone_batch;
}

/* Sets *median to the median of the times of a node. */
static weir_status time_node(form_node *node, double *median)
{
    pack_bench *bench = node->bench;
    perf_rank *rank = bench->rank;
    const pack_case *c = node->c;
    const pack_form *form = node->form;
    const perf_options *options = rank->options;
    const bool recorded = form->kernel != NULL || form->layout != NULL || pack_peer_records(form->peer);
    const bool checked = is_pack(form);
    const uint32_t nodes = !recorded ? 1 : c->places > 1 ? c->places : rank->gpu ? WARM_NODES : 1;
    const uint32_t used = nodes < c->places ? nodes : c->places;
    const uint32_t wanted = !recorded ? CALL_REPLAYS : options->iters != 0 ? options->iters : rank->gpu ? 10 : 1;
    const uint32_t replays = wanted < PERF_REPLAYS_MAX ? wanted : PERF_REPLAYS_MAX;
    double us[PERF_REPLAYS_MAX];
    const perf_calls calls = { put_form, node };
    void *graph = NULL;
    weir_status status = recorded ? perf_record_calls(rank, &calls, nodes, &graph) : WEIR_OK;
    if (status == WEIR_OK && checked && options->check) {
        status = clear_places(node, 0, used);
    }
    if (status == WEIR_OK) {
        status = recorded ? perf_time(rank, graph, nodes, options->warmup, replays, us)
                          : perf_time_calls(rank, &calls, nodes, options->warmup, replays, us);
    }
    weir_graph_destroy(rank->device, graph);
    if (status == WEIR_OK) {
        node->trimean = pack_trimean(us, replays);
        perf_sort(us, replays);
        *median = perf_percentile(us, replays, 0.5);
        status = checked && options->check ? compare_places(node, 0, used) : WEIR_OK;
    }
    return status == WEIR_OK && checked ? check_form(node) : status;
}

/* ---- kernels by hand ------------------------------------------------------------------------------------- */

typedef struct best_form {
    double us; /* NaN: none */
    pack_form form;
    char text[40];
} best_form;

static weir_status try_form(pack_bench *bench, const pack_case *c, const pack_form *form, const char *text,
                            best_form *best)
{
    double us = 0;
    form_node node = { bench, c, form, args_of(bench, c), 0 };
    const weir_status status = time_node(&node, &us);
    if (status == WEIR_OK && !(best->us <= us)) {
        best->us = us;
        best->form = *form;
        (void)snprintf(best->text, sizeof best->text, "%s %ux%u", text, form->shape.blocks, form->shape.threads);
    }
    return status;
}

/* A kernel for `threads` threads in all, with blocks of several sizes: as many blocks as that takes, and as many as are
 * resident at once. */
static weir_status try_shapes(pack_bench *bench, const pack_case *c, const weir_kernel *kernel, uint64_t threads,
                              uint32_t lanes, const char *text, best_form *best)
{
    static const uint32_t sizes[] = { 256, 512, 1024 };
    perf_rank *rank = bench->rank;
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < (rank->gpu ? ROWS(sizes) : 1) && status == WEIR_OK; i++) {
        const uint32_t size = rank->gpu ? sizes[i] : 4;
        const uint64_t blocks = (threads + size - 1) / size;
        const weir_shape all = { (uint32_t)pack_least(blocks, rank->gpu ? INT32_MAX : 2), size };
        const weir_shape resident = weir_device_fit_shape(rank->device, all);
        pack_form form = { kernel, NULL, all, lanes, PACK_PEERS };
        status = try_form(bench, c, &form, text, best);
        if (status == WEIR_OK && resident.blocks < all.blocks) {
            form.shape = resident;
            status = try_form(bench, c, &form, text, best);
        }
    }
    return status;
}

/* The log2 of the largest word of up to 16 bytes that divides runs and strides. Places are multiples of 128 bytes. */
static uint32_t word_bits(const pack_box *box, uint32_t most)
{
    const uint64_t all = box->run | (box->counts[0] > 1 ? box->strides[0] : 0) | box->strides[1];
    uint32_t bits = 0;
    while (bits < most && all % ((uint64_t)2 << bits) == 0) {
        bits++;
    }
    return bits;
}

static weir_status time_raw_list(pack_bench *bench, const pack_case *c, best_form *best)
{
    weir_status status = try_shapes(bench, c, pack_list_units, (c->bytes + 15) / 16, 0, "units", best);
    for (uint32_t lanes = bench->rank->gpu ? 4 : 1; lanes <= (bench->rank->gpu ? 32 : 1) && status == WEIR_OK;
         lanes *= 2) {
        char text[24];
        (void)snprintf(text, sizeof text, "blocks %u", lanes);
        status = try_shapes(bench, c, pack_list_blocks, c->rows * lanes, lanes, text, best);
    }
    return status;
}

static weir_status time_raw(pack_bench *bench, const pack_case *c, best_form *best)
{
    const pack_box *box = &c->config->box;
    const uint32_t bits = word_bits(box, PACK_WORDS - 1);
    weir_status status = WEIR_OK;
    best->us = NAN;
    if (c->config->list != NULL) {
        return time_raw_list(bench, c, best);
    }
    for (uint32_t word = bench->rank->gpu ? bits : 0; word <= bits && status == WEIR_OK; word++) {
        for (uint32_t i = 0; i < 2 && status == WEIR_OK; i++) {
            const pack_units_form *form = &pack_units[word][i];
            char text[24];
            (void)snprintf(text, sizeof text, "units %u/%u", 1u << word, form->batch);
            if (form->kernel != NULL) {
                status = try_shapes(bench, c, form->kernel, (c->bytes / 16 + form->batch) / form->batch, 0, text, best);
            }
        }
    }
    if (bits == 4 && status == WEIR_OK) {
        uint32_t lanes = 1;
        while (bench->rank->gpu && lanes < 32 && lanes * 32 <= box->run) {
            lanes *= 2;
        }
        status = try_shapes(bench, c, pack_runs, (c->rows * lanes + PACK_RUNS_BATCH - 1) / PACK_RUNS_BATCH, lanes,
                            "runs", best);
    }
    return status;
}

static weir_status time_lone(pack_bench *bench, const pack_case *c, double *us)
{
    best_form best;
    const bool listed = c->config->list != NULL;
    best.us = NAN;
    weir_status status = WEIR_OK;
    if (!bench->unpack || bench->rank->ranks == 1) { /* the rows lie here */
        status = try_shapes(bench, c, listed ? pack_list_lone : pack_lone, c->rows, 0, "lone", &best);
        if (status == WEIR_OK) {
            status = try_shapes(bench, c, listed ? pack_list_lone_batch : pack_lone_batch,
                                (c->rows + PACK_LONE_BATCH - 1) / PACK_LONE_BATCH, 0, "lone", &best);
        }
    }
    *us = best.us;
    return status;
}

/* A block of up to 512 threads: x covers the words of a row, y rows, z groups of rows, each a power of two. */
static weir_status time_seed(pack_bench *bench, const pack_case *c, double *us)
{
    const pack_box *box = &c->config->box;
    pack_form form = { pack_seed, NULL, { 0, 0 }, 0, PACK_PEERS };
    form_node node = { bench, c, &form, args_of(bench, c), 0 };
    const uint32_t word = 1u << word_bits(box, 3);
    const uint64_t sizes[3] = { box->run / word, box->counts[1], box->counts[0] };
    uint32_t left = 9;
    uint64_t blocks = 1;
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t bits = 0;
        while (bits < left && (uint64_t)1 << bits < sizes[i]) {
            bits++;
        }
        left -= bits;
        node.args.seed_bits[i] = bits;
        blocks *= (sizes[i] + ((uint64_t)1 << bits) - 1) >> bits;
    }
    node.args.word = word;
    form.shape.threads = 512u >> left;
    form.shape.blocks = (uint32_t)pack_least(blocks, INT32_MAX);
    if (!bench->rank->gpu) {
        form.shape = weir_device_fit_shape(bench->rank->device, form.shape);
    }
    return time_node(&node, us);
}

/* ---- a case ---------------------------------------------------------------------------------------------- */

/* Sectors that a pack reads and writes, in us of a copy. Rows begin at every phase that their stride allows. */
static double sector_time(const pack_case *c)
{
    const pack_box *box = &c->config->box;
    if (c->config->list != NULL) {
        return (double)(pack_least(c->config->list->sectors * SECTOR_BYTES, c->span) + c->bytes) / COPY_BYTES_US;
    }
    uint64_t step = SECTOR_BYTES;
    while (box->strides[1] % step != 0) {
        step /= 2;
    }
    uint64_t sectors = 0;
    for (uint64_t phase = 0; phase < SECTOR_BYTES; phase += step) {
        sectors += (phase + box->run + SECTOR_BYTES - 1) / SECTOR_BYTES;
    }
    const double average = (double)sectors * (double)step / SECTOR_BYTES;
    return (fmin((double)c->rows * average * SECTOR_BYTES, (double)c->span) + (double)c->bytes) / COPY_BYTES_US;
}

static weir_status time_peers(pack_bench *bench, const pack_case *c, double *us)
{
    const char *wanted = bench->rank->options->peers != NULL ? bench->rank->options->peers : "contiguous,memcpy3d,seed";
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i <= PACK_PEERS; i++) {
        us[i] = NAN;
    }
    for (uint32_t i = 0; i < PACK_PEERS && bench->driver != NULL && status == WEIR_OK; i++) {
        const pack_form form = { NULL, NULL, { 0, 0 }, 0, (pack_peer)i };
        form_node node = { bench, c, &form, args_of(bench, c), 0 };
        if (pack_selects(wanted, pack_peer_names[i]) && pack_peer_takes(bench->driver, (pack_peer)i, c->config)) {
            status = time_node(&node, &us[i]);
        }
    }
    const bool seed = c->config->list == NULL && pack_selects(wanted, "seed");
    return status == WEIR_OK && seed ? time_seed(bench, c, &us[PACK_PEERS]) : status;
}

/* One description of the box. */
typedef struct weir_times {
    double us; /* NaN: the box cannot be described so */
    double trimean;
    pack_costs costs;
} weir_times;

/* The time that the host takes for a call, with calls behind each other. */
static weir_status time_host(form_node *node, double *us)
{
    const uint32_t calls = node->bench->rank->gpu ? 20 : 2;
    perf_rank *rank = node->bench->rank;
    weir_status status = weir_bootstrap_barrier(rank->bootstrap, NULL); /* no rank compares its destination any more */
    const double begin = pack_now_us();
    for (uint32_t i = 1; i <= calls && status == WEIR_OK; i++) {
        status = put_form(rank, node, i);
    }
    *us = (pack_now_us() - begin) / calls;
    return status == WEIR_OK ? weir_stream_wait(rank->device, rank->stream, 0) : status;
}

/* The same for a launch of a kernel that does nothing. */
static weir_status time_launch(pack_bench *bench, const pack_case *c, double *us)
{
    const pack_form form = { pack_fill, NULL, { 1, 32 }, 0, PACK_PEERS };
    form_node node = { bench, c, &form, args_of(bench, c), 0 };
    node.args.bytes = 0;
    return time_host(&node, us);
}

static weir_status time_weir(pack_bench *bench, const pack_case *c, uint32_t description, weir_times *times)
{
    weir_layout *layout = NULL;
    times->us = NAN;
    weir_status status = pack_describe(bench->rank, c->config, description, &times->costs, &layout);
    if (status == WEIR_OK && layout != NULL) {
        const pack_form form = { NULL, layout, { 0, 0 }, 0, PACK_PEERS };
        form_node node = { bench, c, &form, args_of(bench, c), 0 };
        status = time_node(&node, &times->us);
        times->trimean = node.trimean;
        if (status == WEIR_OK) {
            status = time_host(&node, &times->costs.call);
        }
    }
    weir_layout_destroy(layout);
    return status;
}

/* What a case has beside weir's own times. */
typedef struct case_times {
    best_form raw;
    double lone;
    double launch;
    double peers[PACK_PEERS + 1];
} case_times;

/* The columns of --with, and those that name a row of the file: the description of the data is not among them. */
static const char *const with_columns[] = { "torch_us", "torch64_us", "cupy_us" };
static const char *const with_names[] = { "config", "cache", "memory", "run", "rows", "bytes" };

static bool is_with_name(const char *name)
{
    bool is = false;
    for (uint32_t i = 0; i < ROWS(with_names); i++) {
        is = is || strcmp(name, with_names[i]) == 0;
    }
    return is;
}

/* Sets the values of the last `columns` fields of a row from that row of the file which has its names. */
static void add_with(pack_bench *bench, perf_field *fields, uint32_t count, uint32_t columns)
{
    const perf_old_row *found = NULL;
    for (uint32_t i = 0; i < bench->with.count && found == NULL; i++) {
        const char *table = perf_old_row_find(&bench->with.rows[i], "table");
        bool same = table != NULL && strcmp(table, bench->rank->command) == 0;
        for (uint32_t k = 0; k < count && same; k++) {
            same = !is_with_name(fields[k].name) || perf_old_row_matches(&bench->with.rows[i], &fields[k]);
        }
        found = same ? &bench->with.rows[i] : NULL;
    }
    bench->with_used += found != NULL;
    for (uint32_t i = 0; i < columns && found != NULL; i++) {
        const char *value = perf_old_row_find(found, fields[count - columns + i].name);
        fields[count - columns + i].real = value != NULL && value[0] != '\0' ? strtod(value, NULL) : NAN;
    }
}

static weir_status report(pack_bench *bench, const pack_case *c, const case_times *others, const char *description,
                          const weir_times *weir)
{
    perf_rank *rank = bench->rank;
    const uint64_t wrong = *(uint64_t *)weir_memory_host_pointer(bench->wrong);
    const double *peers = others->peers;
    const uint32_t with = rank->options->with != NULL ? ROWS(with_columns) : 0;
    perf_field fields[] = {
        perf_wide(perf_text("config", c->config->name), -14),
        perf_text("cache", c->cold ? "cold" : "warm"),
        perf_text("memory", rank->ranks > 1       ? "peer"
                            : rank->options->host ? "host"
                                                  : "device"),
        perf_text("layout", description),
        perf_count("run", c->config->box.run),
        perf_count("rows", c->rows),
        perf_count("bytes", c->bytes),
        perf_count("places", c->places),
        perf_real("floor_us", fmax(others->lone, sector_time(c)), 2),
        perf_real("lone_us", others->lone, 2),
        perf_as(perf_real("raw_us", others->raw.us, 2), PERF_LATENCY),
        perf_wide(perf_text("raw_form", others->raw.text), -24),
        perf_as(perf_real("weir_us", weir->us, 2), PERF_LATENCY),
        perf_real("trimean_us", weir->trimean, 2),
        perf_real("host_us", weir->costs.call, 2),
        perf_real("launch_us", others->launch, 2),
        perf_real("create_us", weir->costs.create, 2),
        perf_real("commit_us", weir->costs.commit, 2),
        perf_real("contiguous_us", peers[PACK_PEER_CONTIGUOUS], 2),
        perf_real("memcpy3d_us", peers[PACK_PEER_3D], 2),
        perf_real("memcpy2d_us", peers[PACK_PEER_2D], 2),
        perf_real("rows_us", peers[PACK_PEER_ROWS], 2),
        perf_real("rows_sync_us", peers[PACK_PEER_ROWS_SYNC], 2),
        perf_real("batch_us", peers[PACK_PEER_BATCH], 2),
        perf_real("seed_us", peers[PACK_PEERS], 2),
        perf_real("raw_gbytes_s", (double)c->bytes / others->raw.us / 1e3, 1),
        perf_count("wrong", wrong),
        perf_real(with_columns[0], NAN, 2),
        perf_real(with_columns[1], NAN, 2),
        perf_real(with_columns[2], NAN, 2),
    };
    const uint32_t columns = ROWS(fields) - ROWS(with_columns) + with;
    add_with(bench, fields, columns, with);
    perf_row(rank->output, rank->command, fields, columns);
    return wrong == 0 ? WEIR_OK
                      : perf_fail(rank, WEIR_ERR_CORRUPT, "%s %s, run %llu: %llu bytes are wrong", rank->command,
                                  c->config->name, (unsigned long long)c->config->box.run, (unsigned long long)wrong);
}

/* A row for each description that was asked for. */
static weir_status measure_case(pack_bench *bench, const pack_case *c)
{
    const char *wanted = bench->rank->options->layout != NULL ? bench->rank->options->layout : "v_hv";
    case_times others;
    *(uint64_t *)weir_memory_host_pointer(bench->wrong) = 0;
    weir_status status = time_launch(bench, c, &others.launch);
    if (status == WEIR_OK) {
        status = time_lone(bench, c, &others.lone);
    }
    if (status == WEIR_OK) {
        status = time_raw(bench, c, &others.raw);
    }
    if (status == WEIR_OK) {
        status = time_peers(bench, c, others.peers);
    }
    for (uint32_t i = 0; i < PACK_LAYOUTS && status == WEIR_OK; i++) {
        weir_times weir;
        if (c->config->list != NULL ? i == PACK_HINDEXED : pack_selects(wanted, pack_layout_names[i])) {
            status = time_weir(bench, c, i, &weir);
            if (status == WEIR_OK && !isnan(weir.us)) {
                status = report(bench, c, &others, pack_layout_names[i], &weir);
            }
        }
    }
    return status;
}

/* ---- the commands ---------------------------------------------------------------------------------------- */

static weir_status run_box(perf_rank *rank, bool unpack)
{
    pack_configs configs;
    pack_bench bench;
    const uint32_t fetch = rank->options->l2_fetch;
    if (fetch != 0 && fetch != 32 && fetch != 64 && fetch != 128) {
        return perf_fail(rank, WEIR_ERR_INVALID, "--l2-fetch is 32, 64 or 128");
    }
    if (fetch != 0 && !rank->gpu) {
        return perf_fail(rank, WEIR_ERR_INVALID, "--l2-fetch needs GPUs");
    }
    weir_status status = pack_list_configs(rank, &configs);
    if (status == WEIR_OK) {
        status = perf_report_machine(rank);
    }
    if (status != WEIR_OK) {
        pack_free_configs(&configs);
        return status;
    }
    perf_fact(rank->output, "time", "us of a call, longest of the ranks; median of replays of the fastest shape");
    status = create_bench(rank, unpack, &configs, &bench);
    for (uint32_t i = 0; i < 2 * configs.count && status == WEIR_OK; i++) {
        pack_case c;
        pack_plan_case(rank, &configs.rows[i / 2], i % 2 == 0, &c);
        if (!(i % 2 == 1 && (rank->options->cold || !rank->gpu))) {
            status = measure_case(&bench, &c);
        }
    }
    if (status == WEIR_OK && bench.with.count != 0 && bench.with_used == 0) {
        status = perf_fail(rank, WEIR_ERR_INVALID, "%s: --with %s: no row of it is for these configurations",
                           rank->command, rank->options->with);
    }
    if (status == WEIR_OK) {
        status = weir_bootstrap_barrier(rank->bootstrap, NULL); /* no rank uses the memory of the other any more */
    }
    if (status == WEIR_OK || !rank->gpu) {
        destroy_bench(&bench);
        pack_free_configs(&configs);
    }
    return status;
}

static weir_status run_pack(perf_rank *rank) { return run_box(rank, false); }

static weir_status run_unpack(perf_rank *rank) { return run_box(rank, true); }

#define PACK_OPTIONS "-g --config --cube --sizes --layout --peers --host --cold --l2-fetch --with --check -n -w"

static int start_box(const perf_options *options, char **arguments)
{
    perf_options mine = *options;
    if (mine.ranks.count == 0) {
        mine.ranks.count = 1;
        mine.ranks.values[0] = 1;
    }
    return perf_start(strcmp(arguments[1], perf_pack.name) == 0 ? &perf_pack : &perf_unpack, &mine, arguments);
}

const perf_command perf_pack = { "pack", "strided rows into packed bytes, by weir, by hand and by the CUDA driver",
                                 PACK_OPTIONS, run_pack, start_box };
const perf_command perf_unpack = { "unpack", "packed bytes into strided rows, by weir, by hand and by the CUDA driver",
                                   PACK_OPTIONS, run_unpack, start_box };
