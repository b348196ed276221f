/* window.c - weir-perf window: notified windows, beside the same by hand.
 *
 * A rank is a block of a resident kernel. latency, bandwidth and rate: ranks of the first and of the second half of all
 * ranks are pairs. barrier: all ranks of all devices. overlap: steps of work, then 1 KiB to each of two neighbours; the
 * times are those of a step without messages (tc), without work (tx), and with both (tb); `hidden` is the part of the
 * shorter of tc and tx that tb hides. Neighbours share a multiprocessor (weir_dev_window_index). Times are medians of
 * replays of a graph with one kernel, which has many rounds; weir's kernel and the kernel by hand take turns. --check
 * runs each kernel once more, with new data in each round, which the receiver compares. */
#include "tools/perf/window.h"

#include <math.h>
#include <string.h>

#include "tools/perf/commands.h"

#define TURNS 3u
#define CPU_ROUNDS 3u
#define CHECK_ROUNDS 6u
#define OVERLAP_BYTES 1024u
#define VARIANTS_MAX 5u
#define SAMPLES_MAX (TURNS * PERF_REPLAYS_MAX)

typedef struct window_bench {
    perf_rank *rank;
    uint32_t ranks; /* of this device */
    uint32_t threads;
    weir_window *window;
    weir_memory *data;
    weir_memory *flags;
    weir_memory *wrong; /* a count, in host memory */
    weir_grid_barrier *grid;
    window_args args;
    const char *way; /* to the ranks of the next device, or of the own one */
    bool mapped;     /* all devices are: kernels by hand need that */
} window_bench;

/* ---- setup --------------------------------------------------------------------------------------------- */

static weir_status add_memory(window_bench *bench, uint64_t part, weir_memory **memory, uint32_t *id)
{
    weir_status status = weir_memory_allocate(bench->rank->comm, bench->ranks * part, NULL, memory);
    return status == WEIR_OK ? weir_window_register(bench->window, *memory, part, part, id) : status;
}

/* A window for `ranks` ranks of this device, with messages of `bytes` bytes in each of `batch` places. */
static weir_status create_bench(perf_rank *rank, const window_shape *shape, uint32_t ranks, uint64_t bytes,
                                window_bench *bench)
{
    weir_window_opts opts = WEIR_OPTS(weir_window_opts);
    weir_memory_opts host = WEIR_OPTS(weir_memory_opts);
    weir_window_info info;
    memset(bench, 0, sizeof *bench);
    bench->rank = rank;
    bench->ranks = ranks;
    opts.ranks = ranks;
    host.kind = WEIR_MEMORY_HOST;
    window_args *args = &bench->args;
    args->region = (shape->batch * bytes + 255) / 256 * 256;
    weir_status status = weir_window_create(rank->comm, &opts, &bench->window);
    if (status == WEIR_OK) {
        status = add_memory(bench, WINDOW_REGIONS * args->region + 2 * WINDOW_COPIED, &bench->data, &args->data);
    }
    if (status == WEIR_OK) {
        status = add_memory(bench, WINDOW_FLAGS_BYTES, &bench->flags, &args->flags);
    }
    if (status == WEIR_OK) {
        status = weir_memory_allocate(rank->comm, sizeof(uint64_t), &host, &bench->wrong);
    }
    if (status == WEIR_OK) {
        status = weir_grid_barrier_create(rank->comm, &bench->grid);
    }
    bench->mapped = true;
    for (uint32_t i = 0; i < rank->ranks && status == WEIR_OK; i++) {
        status = weir_window_get_info(bench->window, i, &info);
        if (status == WEIR_OK && i == (rank->rank + 1) % rank->ranks) {
            bench->way = info.way;
        }
        bench->mapped = bench->mapped && status == WEIR_OK && strcmp(info.way, "port") != 0;
    }
    if (status != WEIR_OK) {
        return status;
    }
    weir_window_device(bench->window, &args->window);
    weir_grid_barrier_device(bench->grid, &args->grid);
    args->first = weir_window_first(bench->window);
    args->all = weir_window_ranks(bench->window);
    args->bytes = bytes;
    args->batch = shape->batch;
    args->rounds = rank->gpu ? shape->gpu_rounds : CPU_ROUNDS;
    args->one_way = rank->options->one_way;
    args->wrong = (uint64_t *)weir_memory_pointer(bench->wrong);
    return WEIR_OK;
}

static void destroy_bench(window_bench *bench)
{
    weir_grid_barrier_destroy(bench->grid);
    weir_window_destroy(bench->window);
    weir_memory_destroy(bench->wrong);
    weir_memory_destroy(bench->flags);
    weir_memory_destroy(bench->data);
}

static const weir_kernel *kernel_of(const window_bench *bench, const window_shape *shape)
{
    return bench->mapped ? shape->weir : window_port_kernels[shape - window_shapes];
}

/* All ranks of all devices that share this one must be resident. */
static weir_status check_fit(const window_bench *bench, const weir_kernel *kernel)
{
    perf_rank *rank = bench->rank;
    uint32_t fit = 0;
    const weir_status status = weir_kernel_fit(rank->device, kernel, bench->threads, &fit);
    if (status == WEIR_OK && (rank->shared ? fit / rank->ranks : fit) < bench->ranks) {
        return perf_fail(rank, WEIR_ERR_LIMIT, "window: %u ranks of %u threads, but only %u fit on the device%s",
                         bench->ranks, bench->threads, rank->shared ? fit / rank->ranks : fit,
                         rank->shared ? ", which ranks share" : "");
    }
    return status;
}

/* ---- timing -------------------------------------------------------------------------------------------- */

typedef struct variant {
    window_args args;
    perf_work work;
    void *graph;
    double us[SAMPLES_MAX];
    uint32_t count;
    uint64_t wrong;
    double median; /* of a round */
} variant;

static weir_status set_variant(const window_bench *bench, const weir_kernel *kernel, variant *v)
{
    memset(v, 0, sizeof *v);
    v->args = bench->args;
    v->work.kernel = kernel;
    v->work.shape.blocks = bench->ranks;
    v->work.shape.threads = bench->threads;
    v->work.cooperative = true;
    v->work.args = &v->args;
    return check_fit(bench, kernel);
}

/* One launch with new data in each round. */
static weir_status check_variant(const window_bench *bench, variant *v)
{
    perf_rank *rank = bench->rank;
    uint64_t *wrong = (uint64_t *)weir_memory_host_pointer(bench->wrong);
    window_args args = v->args;
    perf_work work = v->work;
    args.check = 1;
    args.rounds = CHECK_ROUNDS;
    work.args = &args;
    *wrong = 0;
    weir_status status = perf_launch(rank, &work);
    if (status == WEIR_OK) {
        status = weir_comm_wait(rank->comm, rank->stream, 0);
    }
    return status == WEIR_OK ? perf_add_up(rank, *wrong, &v->wrong) : status;
}

/* Times the variants in turns. */
static weir_status time_variants(const window_bench *bench, variant *variants, uint32_t count)
{
    perf_rank *rank = bench->rank;
    const uint32_t wanted = rank->options->iters != 0 ? rank->options->iters : rank->gpu ? 10 : 2;
    const uint32_t replays = wanted < PERF_REPLAYS_MAX ? wanted : PERF_REPLAYS_MAX;
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < count && status == WEIR_OK; i++) {
        if (rank->options->check) {
            status = check_variant(bench, &variants[i]);
        }
        if (status == WEIR_OK) {
            status = perf_record(rank, &variants[i].work, 1, &variants[i].graph);
        }
    }
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        for (uint32_t i = 0; i < count && status == WEIR_OK; i++) {
            variant *v = &variants[i];
            status = perf_time(rank, v->graph, 1, rank->options->warmup, replays, v->us + v->count);
            v->count += replays;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        variant *v = &variants[i];
        weir_graph_destroy(rank->device, v->graph);
        for (uint32_t k = 0; k < v->count; k++) {
            v->us[k] /= v->args.rounds;
        }
        if (status == WEIR_OK) {
            perf_sort(v->us, v->count);
            v->median = perf_percentile(v->us, v->count, 0.5);
        }
    }
    return status == WEIR_OK ? weir_comm_status(rank->comm) : status;
}

/* ---- latency, bandwidth, rate, barrier ----------------------------------------------------------------- */

static void report(const window_bench *bench, const window_shape *shape, const variant *ours, const variant *hand)
{
    const window_args *args = &bench->args;
    const uint32_t senders = args->one_way ? args->all / 2 : args->all;
    const double messages = (double)senders * args->batch;
    /* One way, the devices of the other half send nothing. */
    const double of_device = (double)(senders < bench->ranks ? senders : bench->ranks) * args->batch;
    const bool latency = shape == &window_shapes[WINDOW_LATENCY];
    const bool barrier = shape == &window_shapes[WINDOW_BARRIER];
    const double part = latency ? 0.5 : 1; /* of a round */
    const double us = ours->median * part;
    const double by_hand = hand->median * part;
    char table[64];
    (void)snprintf(table, sizeof table, "window %s", shape->name);
    const perf_field fields[] = {
        perf_text("way", bench->way),
        perf_count("devices", bench->rank->ranks),
        perf_count("ranks", bench->ranks),
        perf_count("threads", bench->threads),
        perf_count("bytes", args->bytes),
        perf_as(perf_real("time_us", us, 3), PERF_LATENCY),
        perf_real("min_us", ours->us[0] * part, 3),
        perf_real("p95_us", perf_percentile(ours->us, ours->count, 0.95) * part, 3),
        perf_real("hand_us", by_hand, 3),
        perf_real("ratio", us / by_hand, 3),
        perf_real("gbytes_s", latency || barrier ? NAN : of_device * (double)args->bytes / us / 1e3, 2),
        perf_real("mmsg_s", latency || barrier ? NAN : messages / us, 3),
        perf_real("hand_mmsg_s", latency || barrier ? NAN : messages / by_hand, 3),
        perf_count("wrong", ours->wrong + hand->wrong),
    };
    perf_row(bench->rank->output, table, fields, ROWS(fields));
}

static weir_status check_wrong(perf_rank *rank, const window_shape *shape, const variant *variants, uint32_t count)
{
    uint64_t wrong = 0;
    for (uint32_t i = 0; i < count; i++) {
        wrong += variants[i].wrong;
    }
    return wrong == 0 ? WEIR_OK
                      : perf_fail(rank, WEIR_ERR_CORRUPT, "window %s: %llu words are wrong", shape->name,
                                  (unsigned long long)wrong);
}

static uint32_t choose_threads(const perf_rank *rank, const window_shape *shape, uint32_t ranks, uint64_t bytes)
{
    if (rank->options->threads.count != 0) {
        return (uint32_t)rank->options->threads.values[0];
    }
    if (!rank->gpu) {
        return 2;
    }
    if (shape == &window_shapes[WINDOW_RATE]) {
        return 32;
    }
    if (shape == &window_shapes[WINDOW_OVERLAP]) {
        /* Four warps use all parts of a multiprocessor, but the registers of 16 such blocks do not fit. */
        return ranks <= 8 * rank->info.multiprocessors ? 128 : 64;
    }
    return bytes >= 1 << 20 ? 512 : bytes >= 16384 ? 1024 : 256;
}

static weir_status measure(perf_rank *rank, const window_shape *shape, uint32_t ranks, uint64_t bytes)
{
    static _Thread_local variant variants[2];
    window_bench bench;
    weir_status status = create_bench(rank, shape, ranks, bytes, &bench);
    if (status == WEIR_OK && bench.args.all % 2 != 0) {
        status = perf_fail(rank, WEIR_ERR_INVALID, "window: %u ranks in all, but ranks are pairs", bench.args.all);
    }
    bench.threads = choose_threads(rank, shape, ranks, bytes);
    if (status == WEIR_OK) {
        status = set_variant(&bench, kernel_of(&bench, shape), &variants[0]);
    }
    if (status == WEIR_OK) {
        status = set_variant(&bench, shape->by_hand, &variants[1]);
    }
    variants[1].median = NAN;
    if (status == WEIR_OK) {
        status = time_variants(&bench, variants, bench.mapped ? 2 : 1);
    }
    if (status == WEIR_OK) {
        report(&bench, shape, &variants[0], &variants[1]);
        status = check_wrong(rank, shape, variants, 2);
    }
    if (status == WEIR_OK) {
        status = weir_bootstrap_barrier(rank->bootstrap, NULL); /* no rank uses this one's memory any more */
    }
    if (status == WEIR_OK || !rank->gpu) {
        destroy_bench(&bench);
    }
    return status;
}

/* ---- overlap ------------------------------------------------------------------------------------------- */

enum { ONLY_WORK, ONLY_MESSAGES, BOTH, ONLY_MESSAGES_BY_HAND, BOTH_BY_HAND };

static double hidden(double tc, double tx, double tb) { return (tc + tx - tb) / (tc < tx ? tc : tx); }

static void report_overlap(const window_bench *bench, const char *what, const variant *v)
{
    const double tc = v[ONLY_WORK].median;
    const double tx = v[ONLY_MESSAGES].median;
    const double tb = v[BOTH].median;
    uint64_t wrong = 0;
    for (uint32_t i = 0; i < VARIANTS_MAX; i++) {
        wrong += v[i].wrong;
    }
    const perf_field fields[] = {
        perf_text("way", bench->way),
        perf_text("work", what),
        perf_count("devices", bench->rank->ranks),
        perf_count("ranks", bench->ranks),
        perf_count("threads", bench->threads),
        perf_count("bytes", bench->args.bytes),
        perf_as(perf_count("amount", v[BOTH].args.amount), PERF_APART),
        perf_as(perf_real("tc_us", tc, 3), PERF_APART),
        perf_real("tx_us", tx, 3),
        perf_as(perf_real("tb_us", tb, 3), PERF_APART),
        perf_real("hidden", hidden(tc, tx, tb), 3),
        perf_real("bound", (tc > tx ? tc : tx) / tb, 3),
        perf_real("hand_tx_us", v[ONLY_MESSAGES_BY_HAND].median, 3),
        perf_real("hand_tb_us", v[BOTH_BY_HAND].median, 3),
        perf_real("hand_hidden", hidden(tc, v[ONLY_MESSAGES_BY_HAND].median, v[BOTH_BY_HAND].median), 3),
        perf_count("wrong", wrong),
    };
    perf_row(bench->rank->output, "window overlap", fields, ROWS(fields));
}

static weir_status set_steps(const window_bench *bench, bool by_hand, window_work work, uint64_t amount, bool exchange,
                             variant *v)
{
    const window_shape *shape = &window_shapes[WINDOW_OVERLAP];
    const weir_status status = set_variant(bench, by_hand ? shape->by_hand : kernel_of(bench, shape), v);
    v->args.work = work;
    v->args.amount = amount;
    v->args.exchange = exchange;
    return status;
}

/* Measures one point of the curve: `amount` of work in a step. */
static weir_status measure_point(window_bench *bench, window_work kind, const char *what, uint64_t amount,
                                 variant *variants)
{
    weir_status status = set_steps(bench, false, kind, amount, false, &variants[ONLY_WORK]);
    if (status == WEIR_OK) {
        status = set_steps(bench, false, WINDOW_NO_WORK, 0, true, &variants[ONLY_MESSAGES]);
    }
    if (status == WEIR_OK) {
        status = set_steps(bench, false, kind, amount, true, &variants[BOTH]);
    }
    if (status == WEIR_OK) {
        status = set_steps(bench, true, WINDOW_NO_WORK, 0, true, &variants[ONLY_MESSAGES_BY_HAND]);
    }
    if (status == WEIR_OK) {
        status = set_steps(bench, true, kind, amount, true, &variants[BOTH_BY_HAND]);
    }
    if (status == WEIR_OK) {
        status = time_variants(bench, variants, VARIANTS_MAX);
    }
    if (status == WEIR_OK) {
        report_overlap(bench, what, variants);
        status = check_wrong(bench->rank, &window_shapes[WINDOW_OVERLAP], variants, VARIANTS_MAX);
    }
    return status;
}

/* The curve of one kind of work. Two trials with different amounts give the time of a unit of work. */
static weir_status measure_curve(window_bench *bench, window_work kind, const char *what)
{
    static const double factors[] = { 0.25, 0.5, 1, 2, 4, 8 };
    static _Thread_local variant variants[VARIANTS_MAX];
    const uint64_t trial = kind == WINDOW_COPY ? WINDOW_COPIED / 2 : bench->rank->gpu ? 500 : 5000;
    weir_status status = set_steps(bench, false, kind, trial, false, &variants[0]);
    if (status == WEIR_OK) {
        status = set_steps(bench, false, kind, 2 * trial, false, &variants[1]);
    }
    if (status == WEIR_OK) {
        status = set_steps(bench, false, WINDOW_NO_WORK, 0, true, &variants[2]);
    }
    if (status == WEIR_OK) {
        status = time_variants(bench, variants, 3);
    }
    const double grown = variants[1].median - variants[0].median;
    const double least = variants[1].median / 4; /* on a busy CPU the trials may differ by less than their spread */
    const double unit = (grown > least ? grown : least) / (double)trial;
    const double messages = variants[2].median;
    for (uint32_t i = 0; i < ROWS(factors) && status == WEIR_OK; i++) {
        const double amount = factors[i] * messages / unit;
        status = measure_point(bench, kind, what, amount < 16 ? 16 : (uint64_t)amount / 16 * 16, variants);
    }
    return status;
}

static weir_status measure_overlap(perf_rank *rank, uint32_t ranks)
{
    window_bench bench;
    weir_status status = create_bench(rank, &window_shapes[WINDOW_OVERLAP], ranks, OVERLAP_BYTES, &bench);
    bench.threads = choose_threads(rank, &window_shapes[WINDOW_OVERLAP], ranks, OVERLAP_BYTES);
    if (status == WEIR_OK && !bench.mapped) {
        status = perf_fail(rank, WEIR_ERR_UNSUPPORTED, "window overlap: the devices are not mapped");
    }
    if (status == WEIR_OK) {
        status = measure_curve(&bench, WINDOW_NEWTON, "newton");
    }
    if (status == WEIR_OK) {
        status = measure_curve(&bench, WINDOW_COPY, "copy");
    }
    if (status == WEIR_OK) {
        status = weir_bootstrap_barrier(rank->bootstrap, NULL); /* no rank uses this one's memory any more */
    }
    if (status == WEIR_OK || !rank->gpu) {
        destroy_bench(&bench);
    }
    return status;
}

/* ---- the command --------------------------------------------------------------------------------------- */

/* Numbers of ranks of a device: those of --ranks, or the shape's own. */
static perf_list list_ranks(const perf_rank *rank, uint32_t shape)
{
    perf_list list = rank->options->window_ranks;
    const uint32_t sms = rank->info.multiprocessors;
    if (list.count != 0) {
        return list;
    }
    list.count = 1;
    list.values[0] = 2;
    if (shape == WINDOW_LATENCY) {
        list.values[0] = rank->ranks == 1 ? 2 : 1;
    } else if (rank->gpu && shape == WINDOW_OVERLAP) {
        for (list.count = 0; list.count < 5; list.count++) {
            list.values[list.count] = (uint64_t)sms << list.count;
        }
    } else if (rank->gpu) {
        list.values[0] = rank->shared ? sms / rank->ranks : sms;
        if (shape == WINDOW_RATE && !rank->shared) {
            list.values[list.count++] = 8 * (uint64_t)sms;
        }
    }
    return list;
}

/* Sizes of messages: those of --sizes, or the shape's own. */
static perf_list list_sizes(const perf_rank *rank, uint32_t shape)
{
    perf_list list = rank->options->sizes;
    if (list.count != 0 && (shape == WINDOW_LATENCY || shape == WINDOW_BANDWIDTH)) {
        return list;
    }
    list.count = 1;
    list.values[0] = shape == WINDOW_BANDWIDTH ? rank->gpu ? 1 << 20 : 65536 : shape == WINDOW_RATE ? 8 : 0;
    if (shape == WINDOW_LATENCY) {
        list.values[list.count++] = 1024;
        list.values[list.count++] = 16384;
    }
    return list;
}

static weir_status measure_shape(perf_rank *rank, uint32_t shape)
{
    const perf_list ranks = list_ranks(rank, shape);
    const perf_list sizes = list_sizes(rank, shape);
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < ranks.count; i++) {
        if (shape == WINDOW_OVERLAP && status == WEIR_OK) {
            status = measure_overlap(rank, (uint32_t)ranks.values[i]);
            continue;
        }
        for (uint32_t k = 0; k < sizes.count && status == WEIR_OK; k++) {
            status = measure(rank, &window_shapes[shape], (uint32_t)ranks.values[i], sizes.values[k]);
        }
    }
    return status;
}

static weir_status run_window(perf_rank *rank)
{
    const char *wanted = rank->options->shape;
    bool found = false;
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < WINDOW_SHAPES && status == WEIR_OK; i++) {
        status = weir_kernel_load(rank->device, window_shapes[i].weir);
        if (status == WEIR_OK) {
            status = weir_kernel_load(rank->device, window_shapes[i].by_hand);
        }
        if (status == WEIR_OK) {
            status = weir_kernel_load(rank->device, window_port_kernels[i]);
        }
    }
    if (status == WEIR_OK) {
        status = perf_report_machine(rank);
    }
    if (status == WEIR_OK) {
        perf_fact(rank->output, "time",
                  "us of a round in a resident kernel, longest of the devices; median of replays");
    }
    for (uint32_t i = 0; i < WINDOW_SHAPES && status == WEIR_OK; i++) {
        if (wanted == NULL || strcmp(wanted, "all") == 0 || strcmp(wanted, window_shapes[i].name) == 0) {
            found = true;
            status = measure_shape(rank, i);
        }
    }
    if (status == WEIR_OK && !found) {
        status = perf_fail(rank, WEIR_ERR_INVALID,
                           "window has no shape '%s'; shapes are latency, bandwidth, rate, barrier, overlap", wanted);
    }
    return status;
}

const perf_command perf_window = { "window", "notified windows: put_notify and wait, barrier, overlap",
                                   "-g --shape --ranks --threads --sizes --one-way -n -w --check", run_window, NULL };
