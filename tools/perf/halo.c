/* halo.c - weir-perf halo: the exchange of the 26 parts of a periodic 3-D field on two ranks.
 *
 * Each rank has n^3 cells of 8 bytes. The forms are those of weir_halo_opts, and `packed`: for each part of the other
 * rank a pack, a put with a signal over a port channel, a wait and an unpack. A graph has several exchanges. Each form
 * is checked: the ghosts are made wrong, one more exchange fills them, and all cells are compared. With --check that
 * happens also around the timed exchanges, and then around each of many exchanges of new data. */
#include "tools/perf/halo.h"

#include <string.h>

#include "tools/perf/commands.h"

#define PARTS 26u
#define DIRECTIONS 27u
#define DATA_TAG 1u
#define STAGING_TAG 2u
#define PACKED (WEIR_HALO_LINES + 1)
#define GPU_ROUNDS 50u /* exchanges of new data, with --check */
#define CPU_ROUNDS 10u

static const char *const form_names[] = { "auto", "stores", "packets", "lines", "packed" };
static const char *const axis_names[] = { "z", "y", "x" };

typedef struct halo_bench {
    perf_rank *rank;
    uint64_t n;
    uint64_t radius;
    uint32_t axis; /* along which the field is divided */
    uint64_t field_bytes;
    weir_memory *field;
    weir_memory *wrong; /* a count, in host memory */
    weir_memory_channel *channel;
    weir_layout *layouts[2 * PARTS];
    weir_halo_part parts[PARTS]; /* those to the other rank come first, by index */
    uint32_t far;                /* parts to the other rank */
    weir_halo *halo;
    /* of the form packed: the parts that are sent, and two places for those that arrive */
    weir_memory *staging;
    weir_proxy *proxy;
    weir_port_channel *port;
    uint64_t places[PARTS];
    uint64_t bytes[PARTS];
    uint64_t staging_bytes; /* of all parts to the other rank */
} halo_bench;

/* ---- parts ----------------------------------------------------------------------------------------------- */

/* The cells at the boundary in a direction, or the ghosts behind them. */
static weir_status make_region(const halo_bench *bench, const weir_layout *cell, const int direction[3], bool ghosts,
                               weir_layout **out)
{
    const uint64_t side = bench->n + 2 * bench->radius;
    const uint64_t sizes[3] = { side, side, side };
    uint64_t lengths[3];
    uint64_t starts[3];
    for (int i = 0; i < 3; i++) {
        const uint64_t low = ghosts ? 0 : bench->radius;
        const uint64_t high = ghosts ? bench->n + bench->radius : bench->n;
        lengths[i] = direction[i] == 0 ? bench->n : bench->radius;
        starts[i] = direction[i] == 0 ? bench->radius : direction[i] < 0 ? low : high;
    }
    return weir_layout_create_subarray(3, sizes, lengths, starts, WEIR_LAYOUT_C, cell, out);
}

/* The part of the direction that rank 0 sees as `index`. Both sides of a rank have the same neighbour. */
static weir_status add_part(halo_bench *bench, const weir_layout *cell, uint32_t index, uint32_t *count)
{
    const int sign = bench->rank->rank == 0 ? 1 : -1;
    const int direction[3] = { sign * ((int)index / 9 - 1), sign * ((int)index / 3 % 3 - 1),
                               sign * ((int)index % 3 - 1) };
    const int opposite[3] = { -direction[0], -direction[1], -direction[2] };
    const bool inside = direction[bench->axis] == 0;
    weir_halo_part *part = &bench->parts[*count];
    weir_layout **layouts = &bench->layouts[2 * *count];
    weir_status status = make_region(bench, cell, direction, false, &layouts[0]);
    if (status == WEIR_OK) {
        status = make_region(bench, cell, inside ? opposite : direction, true, &layouts[1]);
    }
    if (status == WEIR_OK) {
        weir_layout_info info;
        weir_layout_get_info(layouts[0], &info);
        part->channel = inside ? NULL : bench->channel;
        part->index = index;
        part->from = layouts[0];
        part->to = layouts[1];
        bench->bytes[*count] = info.size;
        bench->places[*count] = bench->staging_bytes;
        bench->staging_bytes += inside ? 0 : info.size;
        (*count)++;
    }
    return status;
}

static weir_status add_parts(halo_bench *bench)
{
    weir_layout *cell = NULL;
    uint32_t count = 0;
    weir_status status = weir_layout_create_bytes(sizeof(double), &cell);
    for (uint32_t i = 0; i < 2 * DIRECTIONS && status == WEIR_OK; i++) {
        const uint32_t index = i % DIRECTIONS;
        const uint32_t steps[3] = { index / 9, index / 3 % 3, index % 3 };
        const bool inside = steps[bench->axis] == 1;
        if (index != DIRECTIONS / 2 && inside == (i >= DIRECTIONS)) {
            status = add_part(bench, cell, index, &count);
            bench->far = inside ? bench->far : count;
        }
    }
    weir_layout_destroy(cell);
    return status;
}

/* ---- a bench --------------------------------------------------------------------------------------------- */

static weir_status create_bench(perf_rank *rank, uint32_t axis, halo_bench *bench)
{
    weir_memory_opts host = WEIR_OPTS(weir_memory_opts);
    host.kind = WEIR_MEMORY_HOST;
    memset(bench, 0, sizeof *bench);
    bench->rank = rank;
    bench->axis = axis;
    bench->radius = rank->options->radius != 0 ? rank->options->radius : 1;
    bench->n = rank->options->size != 0 ? rank->options->size : rank->gpu ? 256 : 8;
    const uint64_t side = bench->n + 2 * bench->radius;
    bench->field_bytes = side * side * side * sizeof(double);
    if (bench->radius > bench->n) {
        return perf_fail(rank, WEIR_ERR_INVALID, "halo: --radius is larger than --size");
    }
    weir_status status = weir_memory_allocate(rank->comm, bench->field_bytes, NULL, &bench->field);
    if (status == WEIR_OK) {
        status = weir_memory_allocate(rank->comm, sizeof(uint64_t), &host, &bench->wrong);
    }
    if (status == WEIR_OK) {
        status = weir_memory_channel_connect(rank->comm, rank->peer, DATA_TAG, bench->field, NULL, &bench->channel);
    }
    return status == WEIR_OK ? add_parts(bench) : status;
}

/* What the form needs beside the parts. */
static weir_status open_form(halo_bench *bench, uint32_t form)
{
    perf_rank *rank = bench->rank;
    weir_halo_opts opts = WEIR_OPTS(weir_halo_opts);
    if (form != PACKED) {
        opts.form = (weir_halo_form)form;
        opts.array = weir_memory_pointer(bench->field);
        opts.blocks = rank->shared ? rank->info.multiprocessors : 0;
        return weir_halo_create(rank->comm, bench->parts, PARTS, &opts, &bench->halo);
    }
    weir_status status = weir_memory_allocate(rank->comm, 3 * bench->staging_bytes, NULL, &bench->staging);
    if (status == WEIR_OK) {
        status = weir_proxy_create(rank->comm, NULL, &bench->proxy);
    }
    if (status == WEIR_OK) {
        status = weir_port_channel_connect(bench->proxy, rank->peer, STAGING_TAG, bench->staging, NULL, &bench->port);
    }
    return status == WEIR_OK ? weir_proxy_start(bench->proxy) : status;
}

static weir_status close_form(halo_bench *bench)
{
    const weir_status status = weir_bootstrap_barrier(bench->rank->bootstrap, NULL);
    weir_halo_destroy(bench->halo);
    weir_port_channel_destroy(bench->port);
    bench->halo = NULL;
    bench->port = NULL;
    const weir_status met = status == WEIR_OK ? weir_bootstrap_barrier(bench->rank->bootstrap, NULL) : status;
    weir_proxy_destroy(bench->proxy);
    weir_memory_destroy(bench->staging);
    bench->proxy = NULL;
    bench->staging = NULL;
    return met;
}

static void destroy_bench(halo_bench *bench)
{
    for (uint32_t i = 0; i < 2 * PARTS; i++) {
        weir_layout_destroy(bench->layouts[i]);
    }
    weir_memory_channel_destroy(bench->channel);
    weir_memory_destroy(bench->wrong);
    weir_memory_destroy(bench->field);
}

/* ---- exchanges ------------------------------------------------------------------------------------------- */

/* Puts an exchange by packed sends on the stream. Exchanges use the two places for arrivals in turn, because the other
 * rank may be one exchange ahead. */
static weir_status put_packed(halo_bench *bench, uint32_t number)
{
    perf_rank *rank = bench->rank;
    void *field = weir_memory_pointer(bench->field);
    char *staging = (char *)weir_memory_pointer(bench->staging);
    const uint64_t arrivals = (1 + number % 2) * bench->staging_bytes;
    weir_status status = weir_port_channel_flush_on_stream(bench->port, rank->stream);
    for (uint32_t i = 0; i < bench->far && status == WEIR_OK; i++) {
        const uint64_t place = bench->places[i];
        status = weir_layout_pack(rank->device, bench->parts[i].from, 1, field, staging + place, NULL, rank->stream);
        if (status == WEIR_OK) {
            status = weir_port_channel_put_signal_on_stream(bench->port, arrivals + place, place, bench->bytes[i],
                                                            rank->stream);
        }
    }
    for (uint32_t i = bench->far; i < PARTS && status == WEIR_OK; i++) {
        status = weir_layout_copy(rank->device, bench->parts[i].to, 1, field, bench->parts[i].from, 1, field, NULL,
                                  rank->stream);
    }
    for (uint32_t i = 0; i < bench->far && status == WEIR_OK; i++) {
        status = weir_port_channel_wait_on_stream(bench->port, rank->stream);
        if (status == WEIR_OK) {
            status = weir_layout_unpack(rank->device, bench->parts[i].to, 1, field,
                                        staging + arrivals + bench->places[i], NULL, rank->stream);
        }
    }
    return status;
}

static weir_status put_exchange(perf_rank *rank, void *context, uint32_t number)
{
    halo_bench *bench = (halo_bench *)context;
    return bench->halo != NULL ? weir_halo_exchange(bench->halo, rank->stream) : put_packed(bench, number);
}

/* Puts a kernel for the data of a round on the stream. */
static weir_status put_kernel(halo_bench *bench, const weir_kernel *kernel, uint32_t round)
{
    perf_rank *rank = bench->rank;
    const weir_shape shape = weir_device_fit_shape(rank->device, (weir_shape){ 264, 1024 });
    halo_field_args args;
    memset(&args, 0, sizeof args);
    args.cells = (double *)weir_memory_pointer(bench->field);
    args.n = bench->n;
    args.radius = bench->radius;
    args.axis = bench->axis;
    args.rank = rank->rank;
    args.ranks = rank->ranks;
    args.round = round;
    args.wrong = (uint64_t *)weir_memory_pointer(bench->wrong);
    return weir_launch(rank->device, kernel, shape, &args, NULL, rank->stream);
}

/* Puts an exchange of new data on the stream, and compares all cells behind it. The host does not wait in between: the
 * neighbour may begin its next exchange while this rank compares. */
static weir_status put_round(perf_rank *rank, void *context, uint32_t number)
{
    halo_bench *bench = (halo_bench *)context;
    weir_status status = put_kernel(bench, halo_fill, number);
    if (status == WEIR_OK) {
        status = put_exchange(rank, bench, number);
    }
    return status == WEIR_OK ? put_kernel(bench, halo_compare, number) : status;
}

static weir_status check_rounds(halo_bench *bench)
{
    perf_rank *rank = bench->rank;
    const perf_calls calls = { put_round, bench };
    const uint32_t rounds = !rank->options->check ? 1 : rank->gpu ? GPU_ROUNDS : CPU_ROUNDS;
    void *graph = NULL;
    weir_status status = perf_record_calls(rank, &calls, rounds, &graph);
    if (status == WEIR_OK) {
        status = weir_graph_launch(rank->device, graph, rank->stream);
    }
    if (status == WEIR_OK) {
        status = weir_comm_wait(rank->comm, rank->stream, 0);
    }
    weir_graph_destroy(rank->device, graph);
    return status;
}

/* Times the exchanges and counts the wrong cells of both ranks. */
static weir_status time_form(halo_bench *bench, void *graph, uint32_t nodes, uint32_t replays, double *us,
                             uint64_t *wrong)
{
    perf_rank *rank = bench->rank;
    const bool check = rank->options->check;
    uint64_t *count = (uint64_t *)weir_memory_host_pointer(bench->wrong);
    *count = 0;
    *wrong = 0;
    weir_status status = check ? put_kernel(bench, halo_fill, 0) : WEIR_OK;
    if (status == WEIR_OK) {
        status = perf_time(rank, graph, nodes, rank->options->warmup, replays, us);
    }
    if (status == WEIR_OK && check) {
        status = put_kernel(bench, halo_compare, 0);
    }
    if (status == WEIR_OK) {
        status = check_rounds(bench);
    }
    return status == WEIR_OK ? perf_add_up(rank, *count, wrong) : status;
}

static weir_status measure_form(halo_bench *bench, uint32_t form)
{
    perf_rank *rank = bench->rank;
    const uint32_t nodes = !rank->gpu ? 2 : form == PACKED ? 4 : 50;
    const uint32_t wanted = rank->options->iters != 0 ? rank->options->iters : rank->gpu ? 30 : 2;
    const uint32_t replays = wanted < PERF_REPLAYS_MAX ? wanted : PERF_REPLAYS_MAX;
    const perf_calls calls = { put_exchange, bench };
    double us[PERF_REPLAYS_MAX];
    void *graph = NULL;
    uint64_t wrong = 0;
    weir_status status = open_form(bench, form);
    if (status == WEIR_OK) {
        status = perf_record_calls(rank, &calls, nodes, &graph);
    }
    if (status == WEIR_OK) {
        status = time_form(bench, graph, nodes, replays, us, &wrong);
    }
    weir_graph_destroy(rank->device, graph);
    if (status != WEIR_OK) {
        return status;
    }
    perf_sort(us, replays);
    const perf_field fields[] = {
        perf_text("split", axis_names[bench->axis]),
        perf_count("size", bench->n),
        perf_count("radius", bench->radius),
        perf_text("form", form_names[form]),
        perf_count("parts", PARTS),
        perf_count("peer_bytes", bench->staging_bytes),
        perf_as(perf_real("time_us", perf_percentile(us, replays, 0.5), 2), PERF_LATENCY),
        perf_real("min_us", us[0], 2),
        perf_real("p95_us", perf_percentile(us, replays, 0.95), 2),
        perf_count("wrong", wrong),
    };
    perf_row(rank->output, rank->command, fields, ROWS(fields));
    status = close_form(bench);
    return wrong == 0 || status != WEIR_OK
               ? status
               : perf_fail(rank, WEIR_ERR_CORRUPT, "halo %s %s: %llu cells are wrong", axis_names[bench->axis],
                           form_names[form], (unsigned long long)wrong);
}

/* ---- the command ----------------------------------------------------------------------------------------- */

/* Whether `name` is one of a list of names with commas between them, or the list is "all". */
static bool selects(const char *list, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = list; at != NULL; at = strchr(at, ',') != NULL ? strchr(at, ',') + 1 : NULL) {
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0')) {
            return true;
        }
    }
    return strcmp(list, "all") == 0;
}

static bool keeps_lines(const halo_bench *bench)
{
    return weir_connection_keeps_lines(weir_semaphore_connection(weir_memory_channel_semaphore(bench->channel)));
}

static weir_status run_halo(perf_rank *rank)
{
    const char *axes = rank->options->config != NULL ? rank->options->config : "z,x";
    const char *forms = rank->options->form != NULL ? rank->options->form : "all";
    bool any = false;
    if (rank->ranks != PERF_RANKS) {
        return perf_fail(rank, WEIR_ERR_INVALID, "halo: two ranks, not %u", rank->ranks);
    }
    weir_status status = perf_report_machine(rank);
    if (status == WEIR_OK) {
        perf_fact(rank->output, "time", "us of an exchange, longer of the two ranks; median of replays of a graph");
    }
    for (uint32_t axis = 0; axis < 3 && status == WEIR_OK; axis++) {
        halo_bench bench;
        if (!selects(axes, axis_names[axis])) {
            continue;
        }
        status = create_bench(rank, axis, &bench);
        for (uint32_t form = 0; form <= PACKED && status == WEIR_OK; form++) {
            if (selects(forms, form_names[form]) && (form != WEIR_HALO_LINES || keeps_lines(&bench))) {
                status = measure_form(&bench, form);
                any = true;
            }
        }
        if (status == WEIR_OK) {
            destroy_bench(&bench);
        }
    }
    return status != WEIR_OK || any
               ? status
               : perf_fail(rank, WEIR_ERR_INVALID,
                           "halo: --config is z, y, x; --form is auto, stores, packets, lines, packed; all");
}

const perf_command perf_halo = { "halo", "all 26 parts of a 3-D halo between two ranks, in one launch and packed",
                                 "-g --size --radius --config --form --check -n -w", run_halo, NULL };
