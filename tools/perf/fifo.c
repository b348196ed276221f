/* fifo.c - weir-perf fifo: the cost of a request to a host thread.
 *
 * In a trip, one thread pushes a request and waits for its ticket: through a fifo that this rank's thread polls, and
 * through a channel of a proxy with an empty handler. Beside it is the same by hand, with two flags in host memory. In
 * a flood, many threads push as fast as they can; each waits for its last ticket. A sample is the time of one launch by
 * events, divided by its trips or requests; it includes the time of the launch.
 *
 * A drain is only the host's part: the proxy's thread starts when all requests are in its queue. Under callgrind its
 * instructions can be counted (docs/weir-perf.md).
 *
 * Rank 0 measures, rank 1 does nothing. */
#include "tools/perf/commands.h"
#include "weir/device/proxy.h"

#include <inttypes.h>
#include <string.h>

#define SAMPLES 20u
#define WARMUP 2u
#define CREDITS 1024u
#define DRAINED 32768u /* requests, credits and slots */
#define FLAG_BYTES 128u
#define SERVE_NS 20000000000u /* maximum time that a host thread serves one launch */

/* ---- kernels ---------------------------------------------------------------------------------------------- */

typedef struct fifo_args {
    weir_dev_fifo fifo;
    weir_dev_proxy_channel channel;
    uint64_t *to_host; /* flags */
    uint64_t *to_device;
    uint64_t first;  /* value of the first flag */
    uint32_t rounds; /* of each thread */
    uint32_t reserved;
} fifo_args;

WEIR_FN weir_request fifo_request(const weir_coop coop, uint32_t round)
{
    weir_request request;
    request.type = WEIR_REQUEST_USER;
    request.reserved = 0;
    request.channel = 0;
    request.remote = coop.rank;
    request.local = round;
    request.remote_offset = 0;
    request.local_offset = 0;
    request.bytes = 0;
    request.value = 0;
    return request;
}

WEIR_KERNEL(fifo_flag_trip, fifo_args)
{
    for (uint64_t i = args->first; coop.rank == 0 && i < args->first + args->rounds; i++) {
        weir_arch_store_release_sys_u64(args->to_host, i);
        for (uint32_t reads = 1; weir_arch_load_acquire_sys_u64(args->to_device) < i; reads++) {
            weir_arch_relax(reads);
        }
    }
}

WEIR_KERNEL(fifo_trip, fifo_args)
{
    uint64_t ticket = 0;
    for (uint32_t i = 0; coop.rank == 0 && i < args->rounds; i++) {
        weir_request request = fifo_request(coop, i);
        (void)weir_dev_fifo_push(&args->fifo, &request, &ticket);
        (void)weir_dev_fifo_wait(&args->fifo, ticket);
    }
}

WEIR_KERNEL(fifo_proxy_trip, fifo_args)
{
    uint64_t ticket = 0;
    for (uint32_t i = 0; coop.rank == 0 && i < args->rounds; i++) {
        weir_request request = fifo_request(coop, i);
        (void)weir_dev_proxy_channel_push(&args->channel, &request, &ticket);
        (void)weir_dev_proxy_channel_wait(&args->channel, ticket);
    }
}

WEIR_KERNEL(fifo_flood, fifo_args)
{
    uint64_t ticket = 0;
    for (uint32_t i = 0; i < args->rounds; i++) {
        weir_request request = fifo_request(coop, i);
        (void)weir_dev_fifo_push(&args->fifo, &request, &ticket);
    }
    (void)weir_dev_fifo_wait(&args->fifo, ticket);
}

WEIR_KERNEL(fifo_proxy_flood, fifo_args)
{
    uint64_t ticket = 0;
    for (uint32_t i = 0; i < args->rounds; i++) {
        weir_request request = fifo_request(coop, i);
        (void)weir_dev_proxy_channel_push(&args->channel, &request, &ticket);
    }
    (void)weir_dev_proxy_channel_wait(&args->channel, ticket);
}

/* ---- the host's side --------------------------------------------------------------------------------------- */

typedef struct fifo_bench {
    perf_rank *rank;
    weir_fifo *fifo;
    weir_proxy *proxy;
    weir_proxy_channel *channel;
    weir_memory *flags;
    uint64_t flag; /* last echoed value */
    fifo_args args;
} fifo_bench;

static weir_status do_nothing(void *context, const weir_request *request)
{
    (void)context;
    (void)request;
    return WEIR_OK;
}

/* Called after an empty poll: yields, because a kernel on the CPU device needs the processor. Returns whether to
 * continue. */
static bool pause_serving(const fifo_bench *bench, uint32_t idle, uint64_t end)
{
    if (!bench->rank->gpu) {
        weir_cpu_relax(idle);
    }
    return idle % 4096 != 0 || weir_cpu_clock_ns() < end;
}

static void echo_flags(fifo_bench *bench, uint64_t count)
{
    uint64_t *to_host = (uint64_t *)weir_memory_host_pointer(bench->flags);
    uint64_t *to_device = to_host + FLAG_BYTES / sizeof(uint64_t);
    const uint64_t last = bench->flag + count;
    const uint64_t end = weir_cpu_clock_ns() + SERVE_NS;
    for (uint32_t idle = 0; bench->flag < last && pause_serving(bench, idle, end);) {
        uint64_t flag = weir_arch_load_acquire_sys_u64(to_host);
        idle++;
        if (flag > bench->flag) {
            bench->flag = flag;
            weir_arch_store_release_sys_u64(to_device, flag);
            idle = 0;
        }
    }
}

static void serve_fifo(fifo_bench *bench, uint64_t count)
{
    weir_request request;
    const uint64_t end = weir_cpu_clock_ns() + SERVE_NS;
    uint32_t open = 0;
    for (uint32_t idle = 0; count != 0 && pause_serving(bench, idle, end);) {
        bool found = weir_fifo_poll(bench->fifo, &request) == WEIR_OK;
        open += found;
        count -= found;
        idle = found ? 0 : idle + 1;
        if (open == 32 || (open != 0 && !found)) {
            weir_fifo_complete(bench->fifo);
            open = 0;
        }
    }
    weir_fifo_complete(bench->fifo);
}

/* ---- cases -------------------------------------------------------------------------------------------------- */

typedef struct fifo_case {
    const char *what;
    const char *via;
    const weir_kernel *kernel;
    void (*serve)(fifo_bench *bench, uint64_t count); /* NULL: the proxy serves */
    bool flood;
} fifo_case;

/* clang-format off */
static const fifo_case cases[] = {
    { "trip", "flag", &fifo_flag_trip, echo_flags, false },
    { "trip", "fifo", &fifo_trip, serve_fifo, false },
    { "trip", "proxy", &fifo_proxy_trip, NULL, false },
    { "flood", "fifo", &fifo_flood, serve_fifo, true },
    { "flood", "proxy", &fifo_proxy_flood, NULL, true },
};
/* clang-format on */

static weir_status create_bench(perf_rank *rank, fifo_bench *bench)
{
    weir_memory_opts host;
    weir_proxy_handler handler;
    weir_proxy_channel_opts opts;
    memset(&host, 0, sizeof host);
    memset(&handler, 0, sizeof handler);
    memset(&opts, 0, sizeof opts);
    host.size = sizeof host;
    host.kind = WEIR_MEMORY_HOST;
    handler.request = do_nothing;
    opts.size = sizeof opts;
    opts.credits = CREDITS;
    weir_status status = weir_memory_allocate(rank->comm, 2 * FLAG_BYTES, &host, &bench->flags);
    if (status == WEIR_OK) {
        bench->args.to_host = (uint64_t *)weir_memory_pointer(bench->flags);
        bench->args.to_device = bench->args.to_host + FLAG_BYTES / sizeof(uint64_t);
        status = weir_fifo_create(rank->comm, NULL, &bench->fifo);
    }
    if (status == WEIR_OK) {
        status = weir_fifo_device(bench->fifo, &bench->args.fifo);
    }
    if (status == WEIR_OK) {
        status = weir_proxy_create(rank->comm, NULL, &bench->proxy);
    }
    if (status == WEIR_OK) {
        status = weir_proxy_channel_create(bench->proxy, &handler, &opts, &bench->channel);
    }
    if (status == WEIR_OK) {
        status = weir_proxy_channel_device(bench->channel, &bench->args.channel);
    }
    for (uint32_t i = 0; i < ROWS(cases) && status == WEIR_OK; i++) {
        status = weir_kernel_load(rank->device, cases[i].kernel);
    }
    return status == WEIR_OK ? weir_proxy_start(bench->proxy) : status;
}

static void destroy_bench(fifo_bench *bench)
{
    weir_proxy_channel_destroy(bench->channel);
    weir_proxy_destroy(bench->proxy);
    weir_fifo_destroy(bench->fifo);
    weir_memory_destroy(bench->flags);
}

/* Runs one launch; *us gets its time. */
static weir_status run_launch(fifo_bench *bench, const fifo_case *test, weir_shape shape, double *us)
{
    perf_rank *rank = bench->rank;
    double ms = 0;
    const uint64_t threads = test->flood ? (uint64_t)shape.blocks * shape.threads : 1;
    bench->args.first = bench->flag + 1;
    weir_status status = weir_event_record(rank->device, rank->events[0], rank->stream);
    if (status == WEIR_OK) {
        status = weir_launch(rank->device, test->kernel, shape, &bench->args, NULL, rank->stream);
    }
    if (status == WEIR_OK) {
        status = weir_event_record(rank->device, rank->events[1], rank->stream);
    }
    if (status == WEIR_OK) {
        if (test->serve != NULL) {
            test->serve(bench, threads * bench->args.rounds);
        }
        status = weir_stream_wait(rank->device, rank->stream, 0);
    }
    if (status == WEIR_OK) {
        status = weir_comm_status(rank->comm);
    }
    if (status == WEIR_OK) {
        status = weir_event_elapsed(rank->device, rank->events[0], rank->events[1], &ms);
    }
    *us = ms * 1e3;
    return status;
}

static void report_row(const fifo_bench *bench, const char *what, const char *via, uint32_t pushers, uint64_t requests,
                       double *us)
{
    perf_sort(us, SAMPLES);
    const double median = perf_percentile(us, SAMPLES, 0.5);
    const perf_field fields[] = {
        perf_text("what", what),
        perf_text("via", via),
        perf_count("pushers", pushers),
        perf_count("requests", requests),
        perf_as(perf_real("time_us", median, 3), PERF_LATENCY),
        perf_real("min_us", us[0], 3),
        perf_real("p95_us", perf_percentile(us, SAMPLES, 0.95), 3),
        perf_real("mreq_s", 1 / median, 3),
    };
    perf_row(bench->rank->output, "fifo", fields, ROWS(fields));
}

static weir_status measure(fifo_bench *bench, const fifo_case *test, weir_shape shape)
{
    perf_rank *rank = bench->rank;
    double us[SAMPLES];
    const uint32_t pushers = shape.blocks * shape.threads;
    /* Takes some milliseconds. */
    const uint32_t requests = rank->options->iters != 0 ? rank->options->iters
                              : !test->flood            ? (rank->gpu ? 2000u : 500u)
                                                        : (rank->gpu ? 200000u : 20000u);
    weir_status status = WEIR_OK;
    bench->args.rounds = (requests + pushers - 1) / pushers;
    for (uint32_t i = 0; i < WARMUP + SAMPLES && status == WEIR_OK; i++) {
        double elapsed = 0;
        status = run_launch(bench, test, shape, &elapsed);
        us[i < WARMUP ? 0 : i - WARMUP] = elapsed / ((double)pushers * bench->args.rounds);
    }
    if (status == WEIR_OK) {
        report_row(bench, test->what, test->via, pushers, (uint64_t)pushers * bench->args.rounds, us);
    }
    return status;
}

/* Times one proxy with a full queue, from its start until all requests are complete. */
static weir_status run_drain(perf_rank *rank, double *us)
{
    weir_proxy *proxy = NULL;
    weir_proxy_channel *channel = NULL;
    weir_proxy_opts opts;
    weir_proxy_handler handler;
    weir_proxy_channel_opts channel_opts;
    uint64_t ticket = 0;
    memset(&opts, 0, sizeof opts);
    memset(&handler, 0, sizeof handler);
    memset(&channel_opts, 0, sizeof channel_opts);
    opts.size = sizeof opts;
    opts.slots = DRAINED;
    handler.request = do_nothing;
    channel_opts.size = sizeof channel_opts;
    channel_opts.credits = DRAINED;
    weir_status status = weir_proxy_create(rank->comm, &opts, &proxy);
    if (status == WEIR_OK) {
        status = weir_proxy_channel_create(proxy, &handler, &channel_opts, &channel);
    }
    for (uint32_t i = 0; i < DRAINED && status == WEIR_OK; i++) {
        weir_request request = fifo_request(weir_coop_part(0, 1), i);
        status = weir_proxy_channel_push(channel, &request, 0, &ticket);
    }
    const uint64_t start = weir_cpu_clock_ns();
    if (status == WEIR_OK) {
        status = weir_proxy_start(proxy);
    }
    if (status == WEIR_OK) {
        status = weir_proxy_channel_wait(channel, ticket, 0);
    }
    *us = (double)(weir_cpu_clock_ns() - start) / 1e3;
    weir_proxy_channel_destroy(channel);
    weir_proxy_destroy(proxy);
    return status;
}

static weir_status measure_drain(fifo_bench *bench)
{
    double us[SAMPLES];
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < SAMPLES && status == WEIR_OK; i++) {
        double elapsed = 0;
        status = run_drain(bench->rank, &elapsed);
        us[i] = elapsed / DRAINED;
    }
    if (status == WEIR_OK) {
        report_row(bench, "drain", "proxy", 1, DRAINED, us);
    }
    return status;
}

/* The grids of floods. */
static uint32_t list_shapes(const perf_rank *rank, weir_shape *shapes)
{
    static const weir_shape on_gpu[] = { { 1, 1 }, { 1, 32 }, { 8, 128 }, { 40, 256 } };
    static const weir_shape on_cpu[] = { { 1, 1 }, { 1, 4 }, { 1, 32 } };
    if (rank->options->threads.count == 0) {
        memcpy(shapes, rank->gpu ? on_gpu : on_cpu, rank->gpu ? sizeof on_gpu : sizeof on_cpu);
        return (uint32_t)(rank->gpu ? ROWS(on_gpu) : ROWS(on_cpu));
    }
    for (uint32_t i = 0; i < rank->options->threads.count; i++) {
        const uint64_t threads = rank->options->threads.values[i];
        shapes[i].threads = threads < 1u << 16 ? (uint32_t)threads : 1u << 16;
        shapes[i].blocks = 1;
        if (rank->gpu && shapes[i].threads > 256) {
            shapes[i].blocks = (shapes[i].threads + 255) / 256;
            shapes[i].threads = 256;
        }
    }
    return rank->options->threads.count;
}

/* Whether --shape names `what`, or is absent. */
static bool is_asked_for(const perf_rank *rank, const char *what)
{
    const char *shape = rank->options->shape;
    return shape == NULL || strcmp(shape, what) == 0;
}

static weir_status measure_all(fifo_bench *bench)
{
    weir_shape shapes[PERF_LIST_MAX];
    const weir_shape one = { 1, 1 };
    const uint32_t count = list_shapes(bench->rank, shapes);
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < ROWS(cases); i++) {
        const uint32_t times = !is_asked_for(bench->rank, cases[i].what) ? 0 : cases[i].flood ? count : 1;
        for (uint32_t k = 0; k < times && status == WEIR_OK; k++) {
            if (bench->rank->rank == 0) {
                status = measure(bench, &cases[i], cases[i].flood ? shapes[k] : one);
            }
            /* Rank 1 waits for each row separately, so no wait is long. */
            if (status == WEIR_OK) {
                status = weir_bootstrap_barrier(bench->rank->bootstrap, NULL);
            }
        }
    }
    if (status == WEIR_OK && bench->rank->rank == 0 && is_asked_for(bench->rank, "drain")) {
        status = measure_drain(bench);
    }
    return status == WEIR_OK ? weir_bootstrap_barrier(bench->rank->bootstrap, NULL) : status;
}

static weir_status run_fifo(perf_rank *rank)
{
    fifo_bench bench;
    const char *shape = rank->options->shape;
    memset(&bench, 0, sizeof bench);
    bench.rank = rank;
    if (shape != NULL && strcmp(shape, "trip") != 0 && strcmp(shape, "flood") != 0 && strcmp(shape, "drain") != 0) {
        return perf_fail(rank, WEIR_ERR_INVALID, "fifo has no shape '%s'; shapes are trip, flood, drain", shape);
    }
    weir_status status = perf_report_machine(rank);
    if (status == WEIR_OK) {
        perf_fact(rank->output, "time",
                  "us for a trip or a request of a flood, by events around a launch; median of %u", SAMPLES);
        status = rank->rank == 0 ? create_bench(rank, &bench) : WEIR_OK;
    }
    if (status == WEIR_OK) {
        status = measure_all(&bench);
    }
    destroy_bench(&bench);
    return status;
}

const perf_command perf_fifo = { "fifo", "requests of kernels to a host thread: round trips and floods",
                                 "--shape -n --threads", run_fifo, NULL };
