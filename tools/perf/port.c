/* port.c - weir-perf port: transfers of port channels.
 *
 * put_signal: both ranks put and signal, and wait for the other's signal; this is one node of a graph. get: both ranks
 * read and wait for the ticket. trip: half the time of a put and signal in each direction; its post_us is the time of
 * the posting call by the device's clock. packets: the same by packets instead of a put and a signal. trip_apart: the
 * same by two requests. trip_signal: signals alone. The column `via` says who moves the data: `proxy` (copy engines of
 * GPUs, or a NIC; between CPU devices the proxy's thread copies), `device` (the device engine: WEIR_TRANSPORT=ib,
 * WEIR_PORT_ENGINE=device), or `direct` (the kernel's own stores: up to the size for which weir uses them; packets
 * always where the peer's memory is mapped). Bytes are checked once after each case. */
#include "tools/perf/commands.h"
#include "weir/device/port_channel.h"

#include <stdlib.h>
#include <string.h>

#define TAG 21u
#define THREADS 64u
#define REPLAYS 20u
#define WARMUP 3u
#define TRIPS 20u /* round trips in a node */
#define DIRECT_MOST 4096u
#define CHECKED 65536u /* checked bytes at each end of a transfer */
#define PACKETS_MOST 65536u
#define PACKETS_ROOM(bytes) (4 * ((bytes) + 64)) /* of a packet buffer for `bytes` of data */

/* ---- kernels -------------------------------------------------------------------------------------------------- */

/* The local memory has two halves: data to send and received data. */
typedef struct port_args {
    weir_dev_port_channel channel;
    uint64_t half;
    uint64_t bytes;
    uint64_t *posts; /* of a trip: ns in all posting calls; host memory */
    uint32_t first;  /* of a trip: this rank begins */
    uint32_t rounds;
} port_args;

WEIR_KERNEL(port_put_signal, port_args)
{
    weir_coop block = weir_coop_block(coop);
    (void)weir_dev_port_channel_put_signal(&args->channel, args->half, 0, args->bytes, block, NULL);
    if (coop.rank == 0) {
        (void)weir_dev_port_channel_wait(&args->channel);
    }
}

WEIR_KERNEL(port_get, port_args)
{
    weir_coop block = weir_coop_block(coop);
    uint64_t ticket = WEIR_TICKET_DONE;
    (void)weir_dev_port_channel_get(&args->channel, 0, args->half, args->bytes, block, &ticket);
    if (coop.rank == 0) {
        (void)weir_dev_port_channel_wait_ticket(&args->channel, ticket);
    }
}

/* A trip posts put and signal as one request or as two, or signals alone, or packets. */
typedef enum port_post { PORT_ONE, PORT_TWO, PORT_SIGNAL, PORT_PACKETS } port_post;

WEIR_FN void port_send(const port_args *args, weir_coop block, port_post post)
{
    const weir_dev_port_channel *channel = &args->channel;
    if (post == PORT_PACKETS) {
        (void)weir_dev_port_channel_put_packets(channel, 0, 0, args->bytes, block, NULL);
    } else if (post == PORT_ONE) {
        (void)weir_dev_port_channel_put_signal(channel, args->half, 0, args->bytes, block, NULL);
    } else if (post == PORT_TWO) {
        (void)weir_dev_port_channel_put(channel, args->half, 0, args->bytes, block, NULL);
    }
    if ((post == PORT_TWO || post == PORT_SIGNAL) && block.rank == 0) {
        (void)weir_dev_port_channel_signal(channel, NULL);
    }
}

WEIR_FN void port_receive(const port_args *args, weir_coop block, port_post post)
{
    const weir_dev_port_channel *channel = &args->channel;
    if (post != PORT_PACKETS) {
        (void)weir_dev_port_channel_wait_coop(channel, block);
        return;
    }
    const weir_status status = weir_dev_port_channel_unpack_packets(channel, 0, args->half, args->bytes, block);
    /* The threads meet: the peer's next packets take the same place. */
    (void)weir_coop_agree(block, channel->semaphore.control, status);
}

WEIR_FN void port_rounds(const port_args *args, weir_coop coop, port_post post)
{
    weir_coop block = weir_coop_block(coop);
    uint64_t posts = 0;
    for (uint32_t i = 0; i < args->rounds; i++) {
        if (!args->first) {
            port_receive(args, block, post);
        }
        const uint64_t start = weir_arch_clock_ns();
        port_send(args, block, post);
        posts += weir_arch_clock_ns() - start;
        if (args->first) {
            port_receive(args, block, post);
        }
    }
    if (coop.rank == 0) {
        *args->posts = posts;
    }
}

WEIR_KERNEL(port_trip, port_args) { port_rounds(args, coop, PORT_ONE); }
WEIR_KERNEL(port_trip_apart, port_args) { port_rounds(args, coop, PORT_TWO); }
WEIR_KERNEL(port_trip_signal, port_args) { port_rounds(args, coop, PORT_SIGNAL); }
WEIR_KERNEL(port_packets, port_args) { port_rounds(args, coop, PORT_PACKETS); }

/* ---- setup ------------------------------------------------------------------------------------------------------ */

typedef struct port_bench {
    perf_rank *rank;
    weir_connection *connection;
    weir_semaphore *semaphores[2]; /* of the engine's channel and of the direct channel */
    weir_memory *local;
    weir_memory *remote;
    weir_memory *packets[2]; /* of this rank and of the peer, for the engine's channel */
    weir_memory *posts;
    weir_proxy *proxy;
    weir_port_channel *channels[2];
    weir_port_channel_info info; /* of the engine's channel */
    bool has_direct;             /* kernels may store to the peer's memory */
    bool stores_packets;         /* kernels store packets to the peer's memory */
    uint64_t half;
    port_args args;
} port_bench;

typedef struct port_case {
    const char *what;
    const weir_kernel *kernel;
    uint32_t transfers; /* of one rank in a node, in sequence */
    bool packets;
} port_case;

static const port_case cases[] = {
    { "put_signal", &port_put_signal, 1, false },
    { "get", &port_get, 1, false },
    { "trip", &port_trip, 2 * TRIPS, false },
    { "packets", &port_packets, 2 * TRIPS, true },
    { "trip_apart", &port_trip_apart, 2 * TRIPS, false },
};

static const port_case signals = { "trip_signal", &port_trip_signal, 2 * TRIPS, false };

static weir_status create_channel(port_bench *bench, uint32_t index)
{
    weir_port_channel_opts opts = WEIR_OPTS(weir_port_channel_opts);
    opts.direct_bytes = index == 0 ? WEIR_PORT_DIRECT_NEVER : DIRECT_MOST;
    opts.packets = index == 0 ? bench->packets[0] : NULL;
    opts.peer_packets = index == 0 ? bench->packets[1] : NULL;
    weir_status status = weir_semaphore_create(bench->connection, TAG, NULL, &bench->semaphores[index]);
    return status != WEIR_OK ? status
                             : weir_port_channel_create(bench->proxy, bench->semaphores[index], bench->remote,
                                                        bench->local, &opts, &bench->channels[index]);
}

/* Allocates memory for the channels and exchanges it with the peer. */
static weir_status share(port_bench *bench, uint64_t bytes, const weir_memory_opts *opts, weir_memory **mine,
                         weir_memory **peers)
{
    const perf_rank *rank = bench->rank;
    weir_status status = weir_memory_allocate(rank->comm, bytes, opts, mine);
    if (status == WEIR_OK) {
        status = weir_memory_send(rank->comm, *mine, rank->peer, TAG);
    }
    return status != WEIR_OK ? status : weir_memory_recv(rank->comm, rank->peer, TAG, peers);
}

static weir_status create_bench(perf_rank *rank, uint64_t half, port_bench *bench)
{
    weir_memory_opts host, data;
    memset(bench, 0, sizeof *bench);
    memset(&host, 0, sizeof host);
    host.size = sizeof host;
    host.kind = WEIR_MEMORY_HOST;
    data = host;
    data.kind = rank->options->host ? WEIR_MEMORY_HOST : WEIR_MEMORY_DEVICE;
    bench->rank = rank;
    bench->half = half;
    weir_status status = weir_connection_create(rank->comm, rank->peer, TAG, NULL, &bench->connection);
    if (status == WEIR_OK) {
        status = share(bench, 2 * half, &data, &bench->local, &bench->remote);
    }
    if (status == WEIR_OK) {
        status = share(bench, PACKETS_ROOM(half < PACKETS_MOST ? half : PACKETS_MOST), &data, &bench->packets[0],
                       &bench->packets[1]);
    }
    if (status == WEIR_OK) {
        status = weir_memory_allocate(rank->comm, sizeof(uint64_t), &host, &bench->posts);
    }
    if (status == WEIR_OK) {
        status = weir_device_fill(rank->device, weir_memory_pointer(bench->local), (uint8_t)(0x31 + rank->rank), half);
    }
    if (status == WEIR_OK) {
        status = weir_proxy_create(rank->comm, NULL, &bench->proxy);
    }
    for (uint32_t i = 0; i < 2 && status == WEIR_OK; i++) {
        status = create_channel(bench, i);
    }
    for (uint32_t i = 0; i < ROWS(cases) && status == WEIR_OK; i++) {
        status = weir_kernel_load(rank->device, cases[i].kernel);
    }
    if (status == WEIR_OK) {
        status = weir_kernel_load(rank->device, signals.kernel);
    }
    if (status == WEIR_OK) {
        status = weir_port_channel_device(bench->channels[0], &bench->args.channel);
    }
    if (status == WEIR_OK) {
        bench->stores_packets = bench->args.channel.peer_packets != NULL;
        status = weir_port_channel_device(bench->channels[1], &bench->args.channel);
    }
    if (status == WEIR_OK) {
        bench->has_direct = bench->args.channel.direct_bytes != 0;
        bench->args.posts = (uint64_t *)weir_memory_pointer(bench->posts);
        weir_port_channel_get_info(bench->channels[0], &bench->info);
        perf_fact(rank->output, "channel", "transport %s, kernels' transfers are posted by the %s%s%s",
                  bench->info.transport, bench->info.engine, bench->info.reason[0] != '\0' ? ": " : "",
                  bench->info.reason);
        status = weir_proxy_start(bench->proxy);
    }
    return status;
}

static void destroy_bench(port_bench *bench)
{
    for (uint32_t i = 0; i < 2; i++) {
        weir_port_channel_destroy(bench->channels[i]);
        weir_semaphore_destroy(bench->semaphores[i]);
    }
    weir_proxy_destroy(bench->proxy);
    weir_memory_destroy(bench->posts);
    weir_memory_destroy(bench->packets[1]);
    weir_memory_destroy(bench->packets[0]);
    weir_memory_destroy(bench->remote);
    weir_memory_destroy(bench->local);
    weir_connection_destroy(bench->connection);
}

/* ---- measuring -------------------------------------------------------------------------------------------- */

/* Checks that the `bytes` at `offset` are the peer's; of large transfers only both ends. */
static weir_status check_bytes(port_bench *bench, uint64_t offset, uint64_t bytes)
{
    perf_rank *rank = bench->rank;
    const uint64_t part = bytes < CHECKED ? bytes : CHECKED;
    char *data = (char *)malloc(part);
    weir_status status = data == NULL ? WEIR_ERR_NOMEM : WEIR_OK;
    for (uint32_t end = 0; end < 2 && status == WEIR_OK; end++) {
        const char *from = (const char *)weir_memory_pointer(bench->local) + offset + (end != 0 ? bytes - part : 0);
        status = weir_device_copy(rank->device, data, from, part);
        for (uint64_t i = 0; i < part && status == WEIR_OK; i++) {
            if (data[i] != (char)(0x31 + rank->peer)) {
                status = perf_fail(rank, WEIR_ERR_CORRUPT, "port: byte %llu of %llu is wrong", (unsigned long long)i,
                                   (unsigned long long)bytes);
            }
        }
    }
    free(data);
    return status;
}

static void report_row(const port_bench *bench, const port_case *test, const char *via, uint64_t bytes, double *us,
                       uint32_t replays, double post_us)
{
    perf_sort(us, replays);
    const double median = perf_percentile(us, replays, 0.5);
    const perf_field fields[] = {
        perf_text("what", test->what),
        perf_text("via", via),
        perf_count("bytes", bytes),
        perf_as(perf_real("time_us", median, 3), PERF_LATENCY),
        perf_real("min_us", us[0], 3),
        perf_real("p95_us", perf_percentile(us, replays, 0.95), 3),
        perf_as(perf_real("gbytes_s", (double)bytes / median / 1e3, 2), PERF_BANDWIDTH),
        perf_real("post_us", post_us, 3),
    };
    perf_row(bench->rank->output, "port", fields, ROWS(fields));
}

static weir_status measure(port_bench *bench, const port_case *test, uint32_t channel, uint64_t bytes)
{
    perf_rank *rank = bench->rank;
    void *graph = NULL;
    double us[PERF_REPLAYS_MAX];
    const uint32_t nodes = test->transfers > 1 ? 1 : bytes <= 1 << 20 ? 50 : 16;
    const uint32_t wanted = rank->options->iters != 0 ? rank->options->iters : REPLAYS;
    const uint32_t replays = wanted < PERF_REPLAYS_MAX ? wanted : PERF_REPLAYS_MAX;
    const uint32_t warmup = rank->options->warmup != 0 ? rank->options->warmup : WARMUP;
    perf_work work;
    memset(&work, 0, sizeof work);
    work.kernel = test->kernel;
    work.shape.blocks = 1;
    work.shape.threads = rank->gpu ? THREADS : 2;
    work.args = &bench->args;
    bench->args.half = bench->half;
    bench->args.bytes = bytes;
    bench->args.first = rank->rank == 0;
    bench->args.rounds = TRIPS;
    /* Clear the receiving half, so only arriving data can be right. */
    weir_status status =
        weir_device_fill(rank->device, (char *)weir_memory_pointer(bench->local) + bench->half, 0, bytes);
    if (status == WEIR_OK) {
        status = weir_port_channel_device(bench->channels[channel], &bench->args.channel);
    }
    if (status == WEIR_OK) {
        status = perf_record(rank, &work, nodes, &graph);
    }
    if (status == WEIR_OK) {
        status = weir_bootstrap_barrier(rank->bootstrap, NULL);
    }
    if (status == WEIR_OK) {
        status = perf_time(rank, graph, nodes, warmup, replays, us);
    }
    if (status == WEIR_OK) {
        status = weir_port_channel_status(bench->channels[channel]);
    }
    if (status == WEIR_OK && bytes != 0) {
        status = check_bytes(bench, bench->half, bytes);
    }
    weir_graph_destroy(rank->device, graph);
    for (uint32_t i = 0; i < replays && status == WEIR_OK; i++) {
        us[i] /= test->transfers;
    }
    if (status == WEIR_OK) {
        const uint64_t *posts = (const uint64_t *)weir_memory_host_pointer(bench->posts);
        const bool direct = test->packets ? bench->stores_packets : channel != 0;
        report_row(bench, test, direct ? "direct" : bench->info.engine, bytes, us, replays,
                   test->transfers > 1 ? (double)*posts / TRIPS / 1e3 : 0);
    }
    return status;
}

static weir_status run_port(perf_rank *rank)
{
    static const uint64_t gpu_sizes[] = { 1024, 4096, 65536, 1 << 20, 16 << 20, 128 << 20 };
    static const uint64_t cpu_sizes[] = { 1024, 65536, 1 << 20 };
    perf_list sizes = rank->options->sizes;
    uint64_t largest = 1;
    port_bench bench;
    if (sizes.count == 0) {
        sizes.count = rank->gpu ? ROWS(gpu_sizes) : ROWS(cpu_sizes);
        memcpy(sizes.values, rank->gpu ? gpu_sizes : cpu_sizes, sizes.count * sizeof sizes.values[0]);
    }
    for (uint32_t i = 0; i < sizes.count; i++) {
        largest = sizes.values[i] > largest ? sizes.values[i] : largest;
    }
    weir_status status = create_bench(rank, (largest + 255) / 256 * 256, &bench);
    for (uint32_t k = 0; k < ROWS(cases); k++) {
        for (uint32_t i = 0; i < sizes.count && status == WEIR_OK; i++) {
            const bool direct = bench.has_direct && (sizes.values[i] <= DIRECT_MOST || rank->shared);
            if (!cases[k].packets || sizes.values[i] <= PACKETS_MOST) {
                status = measure(&bench, &cases[k], 0, sizes.values[i]);
            }
            if (status == WEIR_OK && direct && !cases[k].packets) {
                status = measure(&bench, &cases[k], 1, sizes.values[i]);
            }
        }
    }
    if (status == WEIR_OK) {
        status = measure(&bench, &signals, 0, 0);
    }
    if (status == WEIR_OK) {
        /* The peer may still use this rank's memory before this barrier. */
        status = weir_bootstrap_barrier(rank->bootstrap, NULL);
    }
    if (status == WEIR_OK || !rank->gpu) {
        destroy_bench(&bench);
    }
    return status;
}

const perf_command perf_port = { "port", "transfers of port channels, by a proxy or a NIC", "--sizes -n -w --host",
                                 run_port, NULL };
