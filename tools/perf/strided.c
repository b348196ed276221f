/* strided.c - weir-perf strided: rows of one rank to rows of the other, or to packed bytes there, both ways at once.
 *
 * The forms put, get, packets and lines are calls of weir/device/layout_channel.h. The form port packs, puts with a
 * signal over a port channel, waits and unpacks, in chunks. Each form is checked: the destination is made wrong, filled
 * by one more transfer, and compared; with --check also by the timed transfers, and by several with new data each. The
 * column store_us is the time of plain stores of the same shape, as of a put written by hand: the faster of two
 * launches. */
#include "tools/perf/strided.h"

#include <math.h>
#include <string.h>

#include "tools/perf/commands.h"

#define THREADS 512u
#define CHUNK_BYTES ((uint64_t)1 << 20)
#define DATA_TAG 1u
#define PACKET_TAG 2u
#define STAGING_TAG 3u
#define PORT STRIDED_KERNELS
#define CHECKS 6u /* transfers of new data, with --check */

static const char *const form_names[] = { "put", "get", "packets", "lines", "port" };
static const char gpu_boxes[] = "4x1M@64,8x1M@64,16x1M@64,32x1M@64,16x256K@1K,32x256K@1K,64x256K@1K,128x256K@1K,"
                                "256x256K@1K";
static const char cpu_boxes[] = "4x64@64,8x64@64,64x16@1K";

typedef struct strided_bench {
    perf_rank *rank;
    const pack_config *config;
    uint64_t bytes; /* of the packed rows */
    uint64_t span;
    uint64_t to_offset;
    uint64_t packet_room; /* of packets or lines: two halves */
    weir_layout *rows;
    weir_memory *data;   /* rows that are sent, then the destination */
    weir_memory *buffer; /* of packets, then of lines; or the staging memory of a port channel */
    weir_memory *wrong;
    weir_memory_channel *channel;
    weir_memory_channel *packet;
    weir_proxy *proxy;
    weir_port_channel *port;
    uint32_t form;
    uint32_t round; /* of the data */
    bool dense;
    bool large_blocks;  /* stores by hand run with 1024 threads in each block */
    double store_us[2]; /* of stores by hand to rows, and to packed bytes; NaN: none */
} strided_bench;

static uint64_t round_up(uint64_t value) { return (value + 255) / 256 * 256; }

static weir_status create_bench(perf_rank *rank, const pack_config *config, strided_bench *bench)
{
    weir_memory_opts host = WEIR_OPTS(weir_memory_opts);
    weir_memory_channel_connect_opts opts = WEIR_OPTS(weir_memory_channel_connect_opts);
    const pack_box *box = &config->box;
    pack_costs costs;
    host.kind = WEIR_MEMORY_HOST;
    memset(bench, 0, sizeof *bench);
    bench->rank = rank;
    bench->config = config;
    bench->store_us[0] = NAN;
    bench->store_us[1] = NAN;
    bench->bytes = box->run * box->counts[0] * box->counts[1];
    bench->span = (box->counts[0] - 1) * box->strides[0] + (box->counts[1] - 1) * box->strides[1] + box->run;
    bench->to_offset = round_up(bench->span);
    bench->packet_room = round_up(4 * (bench->bytes + 256));
    weir_status status = pack_describe(rank, config, 1, &costs, &bench->rows);
    if (status == WEIR_OK) {
        status = weir_memory_allocate(rank->comm, 2 * bench->to_offset, NULL, &bench->data);
    }
    if (status == WEIR_OK) {
        status = weir_memory_allocate(rank->comm, 2 * bench->packet_room, NULL, &bench->buffer);
    }
    if (status == WEIR_OK) {
        status = weir_memory_allocate(rank->comm, sizeof(uint64_t), &host, &bench->wrong);
    }
    opts.semaphores = STRIDED_BLOCKS;
    if (status == WEIR_OK) {
        status = weir_memory_channel_connect(rank->comm, rank->peer, DATA_TAG, bench->data, &opts, &bench->channel);
    }
    opts.packets = bench->buffer;
    if (status == WEIR_OK) {
        status = weir_memory_channel_connect(rank->comm, rank->peer, PACKET_TAG, bench->data, &opts, &bench->packet);
    }
    if (status == WEIR_OK) {
        status = weir_proxy_create(rank->comm, NULL, &bench->proxy);
    }
    return status;
}

static weir_status destroy_bench(strided_bench *bench)
{
    const weir_status status = weir_bootstrap_barrier(bench->rank->bootstrap, NULL);
    weir_memory_channel_destroy(bench->packet);
    weir_memory_channel_destroy(bench->channel);
    weir_port_channel_destroy(bench->port);
    const weir_status met = status == WEIR_OK ? weir_bootstrap_barrier(bench->rank->bootstrap, NULL) : status;
    weir_proxy_destroy(bench->proxy);
    weir_memory_destroy(bench->wrong);
    weir_memory_destroy(bench->buffer);
    weir_memory_destroy(bench->data);
    weir_layout_destroy(bench->rows);
    return met;
}

/* ---- transfers ------------------------------------------------------------------------------------------- */

static weir_status open_port(strided_bench *bench)
{
    perf_rank *rank = bench->rank;
    const weir_status status =
        weir_port_channel_connect(bench->proxy, rank->peer, STAGING_TAG, bench->buffer, NULL, &bench->port);
    return status == WEIR_OK ? weir_proxy_start(bench->proxy) : status;
}

/* The staging memory has the bytes that are sent, and two places for those that arrive: the peer may be one transfer
 * ahead. */
static weir_status put_port(strided_bench *bench, uint32_t number)
{
    perf_rank *rank = bench->rank;
    char *data = (char *)weir_memory_pointer(bench->data);
    char *staging = (char *)weir_memory_pointer(bench->buffer);
    const uint64_t arrivals = (1 + number % 2) * round_up(bench->bytes);
    weir_layout_opts part = WEIR_OPTS(weir_layout_opts);
    weir_status status = weir_port_channel_flush_on_stream(bench->port, rank->stream);
    for (part.offset = 0; part.offset < bench->bytes && status == WEIR_OK; part.offset += CHUNK_BYTES) {
        part.bytes = pack_least(CHUNK_BYTES, bench->bytes - part.offset);
        status = weir_layout_pack(rank->device, bench->rows, 1, data, staging + part.offset, &part, rank->stream);
        if (status == WEIR_OK) {
            status = weir_port_channel_put_signal_on_stream(bench->port, arrivals + part.offset, part.offset,
                                                            part.bytes, rank->stream);
        }
    }
    for (part.offset = 0; part.offset < bench->bytes && status == WEIR_OK; part.offset += CHUNK_BYTES) {
        part.bytes = pack_least(CHUNK_BYTES, bench->bytes - part.offset);
        status = weir_port_channel_wait_on_stream(bench->port, rank->stream);
        if (status == WEIR_OK) {
            status = weir_layout_unpack(rank->device, bench->rows, 1, data + bench->to_offset,
                                        staging + arrivals + part.offset, &part, rank->stream);
        }
    }
    return status;
}

/* A thread for each packet, or eight for each line, in blocks of 256, as in weir-perf packets; blocks of 512 where
 * these would be more than `most`. */
static weir_shape packet_shape(const strided_bench *bench, uint32_t most)
{
    const uint64_t wanted = bench->form == STRIDED_LINES ? (bench->bytes + 119) / 120 * 8 : (bench->bytes + 7) / 8;
    const uint32_t threads = wanted > (uint64_t)most * (THREADS / 2) ? THREADS : THREADS / 2;
    weir_shape shape;
    shape.threads = (uint32_t)pack_least(threads, (wanted + 31) / 32 * 32);
    shape.blocks = (uint32_t)pack_least(most, (wanted + threads - 1) / threads);
    return shape;
}

static weir_status put_transfer(perf_rank *rank, void *context, uint32_t number)
{
    strided_bench *bench = (strided_bench *)context;
    strided_args args;
    weir_shape shape = { STRIDED_BLOCKS / (rank->shared ? 2 : 1), THREADS };
    if (bench->form == PORT) {
        return put_port(bench, number);
    }
    memset(&args, 0, sizeof args);
    const bool packets = bench->form == STRIDED_PACKETS || bench->form == STRIDED_LINES;
    weir_memory_channel_device(packets ? bench->packet : bench->channel, &args.channel);
    args.to_offset = bench->to_offset;
    args.packet_offset = bench->form == STRIDED_LINES ? bench->packet_room : 0;
    args.dense = bench->dense;
    const weir_status status = weir_layout_device(bench->rows, rank->device, 1, &args.rows);
    if (!rank->gpu) {
        const weir_shape small = { 2, 1 };
        shape = small;
    }
    const uint64_t units = bench->bytes / 16 / THREADS + 1;
    if (packets && rank->gpu) {
        shape = packet_shape(bench, shape.blocks);
    } else {
        shape.blocks = (uint32_t)pack_least(shape.blocks, units);
    }
    return status == WEIR_OK ? weir_launch(rank->device, strided_kernels[bench->form], shape, &args, NULL, rank->stream)
                             : status;
}

/* The largest word, as a power of two, that moves all rows. */
static uint32_t store_word(const strided_bench *bench)
{
    const pack_box *box = &bench->config->box;
    const uint64_t all = box->run | box->strides[0] | box->strides[1];
    uint32_t bits = 0;
    while (bits + 1 < PACK_WORDS && all % ((uint64_t)2 << bits) == 0) {
        bits++;
    }
    return bits;
}

static weir_status put_stores(perf_rank *rank, void *context, uint32_t number)
{
    const strided_bench *bench = (const strided_bench *)context;
    const pack_box *box = &bench->config->box;
    const uint32_t bits = store_word(bench);
    const uint64_t units = bench->bytes / 16 / THREADS + 1;
    const uint32_t most = STRIDED_BLOCKS / (rank->shared ? 2 : 1);
    weir_shape shape = { bench->large_blocks ? most : (uint32_t)pack_least(most, units),
                         bench->large_blocks ? 1024 : THREADS };
    strided_store_args args;
    (void)number;
    memset(&args, 0, sizeof args);
    weir_memory_channel_device(bench->channel, &args.channel);
    args.box = *box;
    args.by_row = pack_divisor_of(box->run >> bits);
    args.by_inner = pack_divisor_of(box->counts[1]);
    args.to_offset = bench->to_offset;
    args.words = (uint32_t)(bench->bytes >> bits);
    args.dense = bench->dense;
    if (!rank->gpu) {
        const weir_shape small = { 2, 1 };
        shape = small;
    }
    return weir_launch(rank->device, strided_stores[bits], shape, &args, NULL, rank->stream);
}

/* ---- data ------------------------------------------------------------------------------------------------ */

static weir_status run_data(strided_bench *bench, const weir_kernel *kernel)
{
    perf_rank *rank = bench->rank;
    strided_data_args args;
    memset(&args, 0, sizeof args);
    args.source = (char *)weir_memory_pointer(bench->data);
    args.destination = args.source + bench->to_offset;
    args.box = bench->config->box;
    args.span = bench->span;
    args.bytes = bench->bytes;
    args.rank = rank->rank;
    args.peer = rank->peer;
    args.round = bench->round;
    args.dense = bench->dense;
    args.wrong = (uint64_t *)weir_memory_pointer(bench->wrong);
    return perf_run(rank, kernel, &args);
}

/* Fills the data of the next round. A get reads the peer's source, so the ranks meet. */
static weir_status begin_check(strided_bench *bench)
{
    bench->round++;
    const weir_status status = run_data(bench, strided_fill);
    return status == WEIR_OK ? weir_bootstrap_barrier(bench->rank->bootstrap, NULL) : status;
}

/* Adds the wrong bytes of both ranks to *wrong. */
static weir_status end_check(strided_bench *bench, uint64_t *wrong)
{
    uint64_t *count = (uint64_t *)weir_memory_host_pointer(bench->wrong);
    *count = 0;
    const weir_status status = run_data(bench, strided_compare);
    return status == WEIR_OK ? perf_add_up(bench->rank, *count, wrong) : status;
}

static weir_status check_transfer(strided_bench *bench, const perf_calls *calls, uint64_t *wrong)
{
    weir_status status = begin_check(bench);
    if (status == WEIR_OK) {
        status = calls->put(bench->rank, calls->context, 1);
    }
    return status == WEIR_OK ? end_check(bench, wrong) : status;
}

/* ---- the command ----------------------------------------------------------------------------------------- */

/* The median time of a transfer, and the wrong bytes of all that are checked. */
static weir_status time_transfer(strided_bench *bench, const perf_calls *calls, double *median, uint64_t *wrong)
{
    perf_rank *rank = bench->rank;
    const uint32_t nodes = rank->gpu ? 10 : 2;
    const uint32_t wanted = rank->options->iters != 0 ? rank->options->iters : rank->gpu ? 20 : 2;
    const uint32_t replays = wanted < PERF_REPLAYS_MAX ? wanted : PERF_REPLAYS_MAX;
    double us[PERF_REPLAYS_MAX];
    const bool check = rank->options->check;
    void *graph = NULL;
    *wrong = 0;
    weir_status status = perf_record_calls(rank, calls, nodes, &graph);
    if (status == WEIR_OK && check) {
        status = begin_check(bench);
    }
    if (status == WEIR_OK) {
        status = perf_time(rank, graph, nodes, rank->options->warmup, replays, us);
    }
    if (status == WEIR_OK && check) {
        status = end_check(bench, wrong);
    }
    for (uint32_t i = 0; i < (check ? CHECKS : 1) && status == WEIR_OK; i++) {
        status = check_transfer(bench, calls, wrong);
    }
    weir_graph_destroy(rank->device, graph);
    if (status == WEIR_OK) {
        perf_sort(us, replays);
        *median = perf_percentile(us, replays, 0.5);
    }
    return status;
}

/* Measures the stores by hand once for each kind of destination. Their words are numbered with 31 bits. */
static weir_status measure_stores(strided_bench *bench)
{
    perf_rank *rank = bench->rank;
    const perf_calls calls = { put_stores, bench };
    double *least = &bench->store_us[bench->dense];
    weir_status status = WEIR_OK;
    if (!isnan(*least) || bench->bytes >> store_word(bench) >> 31 != 0) {
        return WEIR_OK;
    }
    for (uint32_t i = 0; i < (rank->gpu ? 2u : 1u) && status == WEIR_OK; i++) {
        double us = 0;
        uint64_t wrong = 0;
        bench->large_blocks = i != 0;
        status = time_transfer(bench, &calls, &us, &wrong);
        if (status == WEIR_OK && wrong != 0) {
            status = perf_fail(rank, WEIR_ERR_CORRUPT, "strided %s store: %llu bytes are wrong", bench->config->name,
                               (unsigned long long)wrong);
        }
        *least = i == 0 || us < *least ? us : *least;
    }
    return status;
}

static weir_status measure(strided_bench *bench)
{
    perf_rank *rank = bench->rank;
    const pack_box *box = &bench->config->box;
    const perf_calls calls = { put_transfer, bench };
    double median = 0;
    uint64_t wrong = 0;
    weir_status status = measure_stores(bench);
    if (status == WEIR_OK) {
        status = time_transfer(bench, &calls, &median, &wrong);
    }
    if (status != WEIR_OK) {
        return status;
    }
    const perf_field fields[] = {
        perf_wide(perf_text("config", bench->config->name), -16),
        perf_text("form", form_names[bench->form]),
        perf_text("to", bench->dense ? "packed" : "rows"),
        perf_count("run", box->run),
        perf_count("stride", box->strides[1]),
        perf_count("rows", box->counts[0] * box->counts[1]),
        perf_count("bytes", bench->bytes),
        perf_real("store_us", bench->store_us[bench->dense], 2),
        perf_real("time_us", median, 2),
        perf_as(perf_real("gbytes_s", (double)bench->bytes / median / 1e3, 1), PERF_BANDWIDTH),
        perf_count("wrong", wrong),
    };
    perf_row(rank->output, rank->command, fields, ROWS(fields));
    return wrong == 0 ? WEIR_OK
                      : perf_fail(rank, WEIR_ERR_CORRUPT, "strided %s %s: %llu bytes are wrong", bench->config->name,
                                  form_names[bench->form], (unsigned long long)wrong);
}

static bool keeps_lines(const strided_bench *bench)
{
    return weir_connection_keeps_lines(weir_semaphore_connection(weir_memory_channel_semaphore(bench->packet)));
}

/* The staging memory of a port channel is that of packets and lines, so its form comes last. */
static weir_status measure_config(perf_rank *rank, const pack_config *config, const char *forms)
{
    strided_bench bench;
    weir_status status = create_bench(rank, config, &bench);
    for (uint32_t i = 0; i <= PORT && status == WEIR_OK; i++) {
        bench.form = i;
        if (!pack_selects(forms, form_names[i]) || (i == STRIDED_LINES && !keeps_lines(&bench))) {
            continue;
        }
        bench.dense = false;
        status = i == PORT ? open_port(&bench) : WEIR_OK;
        if (status == WEIR_OK) {
            status = measure(&bench);
        }
        if (status == WEIR_OK && i != PORT) {
            bench.dense = true;
            status = measure(&bench);
        }
    }
    return status == WEIR_OK ? destroy_bench(&bench) : status;
}

static weir_status run_strided(perf_rank *rank)
{
    const char *forms = rank->options->form != NULL ? rank->options->form : "all";
    const perf_options *given = rank->options;
    perf_options options = *given;
    pack_configs configs;
    if (rank->ranks != PERF_RANKS) {
        return perf_fail(rank, WEIR_ERR_INVALID, "strided: two ranks, not %u", rank->ranks);
    }
    options.config = given->config != NULL ? given->config : rank->gpu ? gpu_boxes : cpu_boxes;
    rank->options = &options;
    weir_status status = pack_list_configs(rank, &configs);
    rank->options = given;
    if (status == WEIR_OK) {
        status = perf_report_machine(rank);
    }
    if (status == WEIR_OK) {
        perf_fact(rank->output, "time", "us of a transfer both ways, longer of the two ranks; median of replays");
    }
    for (uint32_t i = 0; i < configs.count && status == WEIR_OK; i++) {
        status = configs.rows[i].list == NULL
                     ? measure_config(rank, &configs.rows[i], forms)
                     : perf_fail(rank, WEIR_ERR_INVALID, "strided: %s is not a box", configs.rows[i].name);
    }
    if (status == WEIR_OK || !rank->gpu) {
        pack_free_configs(&configs);
    }
    return status;
}

const perf_command perf_strided = { "strided",
                                    "rows into rows or packed bytes of a peer: put, get, packets, lines, port",
                                    "-g --config --cube --sizes --form --check -n -w", run_strided, NULL };
