/* link.c - measures one case: weir's kernel and the kernel by hand in turn, on the same buffers.
 *
 * Each kernel is recorded as a graph of many launches and replayed several times in each of three rounds. A sample is
 * the time of one replay. Both ranks make new data before each round, and check the received data after it. --check
 * adds launches that each have new data and a check. A ping-pong has one sample in each of 16 places of its tokens. */
#include "tools/perf/link.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define ROUNDS 3u
#define PLACES 16u      /* of the tokens of a ping-pong: its time depends on their place in the L2 */
#define PLACE_CELLS 31u /* from one place to the next */
WEIR_STATIC_ASSERT((PLACES - 1) * PLACE_CELLS < PERF_BLOCKS_MAX, "the places are semaphores of the set");
#define ROUND_REPLAYS 10u /* replays of a graph in a round, unless there are too few launches */
#define NODES_MAX 200u
#define NODES_MIN 4u /* must be even: see perf_args.number */
#define SAMPLES_MAX (ROUNDS * PERF_REPLAYS_MAX)
#define CHECKS 6u                       /* even */
#define LARGE_BYTES ((uint64_t)4 << 20) /* larger sizes have fewer launches */

/* ---- setup ------------------------------------------------------------------------------------------------ */

/* Sends the local memory to the peer and receives the peer's. Each direction has its own tag. */
static weir_status exchange(perf_link *link, weir_memory *local, uint64_t number, weir_memory **peer)
{
    perf_rank *rank = link->rank;
    weir_status status = weir_memory_send(rank->comm, local, rank->peer, number * PERF_RANKS + rank->rank);
    if (status == WEIR_OK) {
        status = weir_memory_recv(rank->comm, rank->peer, number * PERF_RANKS + rank->peer, peer);
    }
    return status;
}

/* Allocates the memory and gets the peer's. */
static weir_status create_memory(perf_link *link, uint64_t bytes, uint64_t number, weir_memory **local,
                                 weir_memory **peer)
{
    weir_status status = weir_memory_allocate(link->rank->comm, bytes, NULL, local);
    return status == WEIR_OK ? exchange(link, *local, number, peer) : status;
}

static weir_status create_memories(perf_link *link)
{
    uint64_t flags = PERF_BLOCKS_MAX * PERF_FLAGS * sizeof(uint64_t);
    weir_status status = create_memory(link, PERF_RANKS * link->region, 0, &link->buffer, &link->peer_buffer);
    if (status == WEIR_OK) {
        /* Half of a packet is data. */
        status = create_memory(link, 2 * 2 * link->region, 1, &link->packets, &link->peer_packets);
    }
    if (status == WEIR_OK) {
        status = create_memory(link, flags, 2, &link->flags, &link->peer_flags);
    }
    if (status == WEIR_OK) {
        status = weir_memory_allocate(link->rank->comm, sizeof(uint64_t), NULL, &link->wrong);
    }
    return status;
}

static weir_status create_channels(perf_link *link)
{
    weir_comm *comm = link->rank->comm;
    weir_memory_channel_opts opts;
    weir_semaphore_opts set;
    memset(&opts, 0, sizeof opts);
    memset(&set, 0, sizeof set);
    opts.size = sizeof opts;
    opts.packets = link->packets;
    set.size = sizeof set;
    set.count = PERF_BLOCKS_MAX; /* blocks that each synchronize with the peer */
    weir_status status = weir_connection_create(comm, link->rank->peer, 100, NULL, &link->connection);
    if (status == WEIR_OK) {
        status = weir_semaphore_create(link->connection, 101, &set, &link->semaphore);
    }
    if (status == WEIR_OK) {
        status = weir_semaphore_create(link->connection, 102, &set, &link->by_hand);
    }
    if (status == WEIR_OK) {
        status = weir_memory_channel_create(link->semaphore, link->peer_buffer, link->buffer, NULL, &link->bulk);
    }
    if (status == WEIR_OK) {
        status = weir_memory_channel_create(link->semaphore, link->peer_packets, link->buffer, &opts, &link->packet);
    }
    if (status == WEIR_OK) {
        status = weir_grid_barrier_create(comm, &link->barrier);
    }
    if (status == WEIR_OK) {
        status = weir_grid_barrier_create(comm, &link->raw_barrier);
    }
    return status;
}

/* Loads the kernels before any kernel spins. */
static weir_status load_kernels(const perf_link *link)
{
    weir_status status = weir_kernel_load(link->rank->device, perf_prepare);
    if (status == WEIR_OK) {
        status = weir_kernel_load(link->rank->device, perf_compare);
    }
    for (uint32_t i = 0; i < perf_case_count && status == WEIR_OK; i++) {
        status = weir_kernel_load(link->rank->device, perf_cases[i].weir);
        if (status == WEIR_OK && link->rank->gpu && perf_cases[i].raw != NULL) {
            status = weir_kernel_load(link->rank->device, perf_cases[i].raw);
        }
    }
    return status;
}

static void report_link(const perf_link *link)
{
    const char *transport = weir_connection_transport(link->connection);
    weir_transport_info info;
    for (uint32_t i = 0; weir_transport_get(i, &info) == WEIR_OK; i++) {
        if (strcmp(info.name, transport) == 0) {
            perf_fact(link->rank->output, "link", "%s: %s", transport, info.reason);
        }
    }
    perf_fact(link->rank->output, "launches", "%s",
              link->rank->options->plain ? "plain" : "cooperative for kernels with a grid barrier, otherwise plain");
    perf_fact(link->rank->output, "time",
              "us for a launch in replayed graphs, longest of the ranks; median of replays");
}

weir_status perf_link_create(perf_rank *rank, uint64_t largest, perf_link *link)
{
    memset(link, 0, sizeof *link);
    link->rank = rank;
    link->region = (largest + 255) / 256 * 256;
    weir_status status = create_memories(link);
    if (status == WEIR_OK) {
        status = create_channels(link);
    }
    if (status == WEIR_OK) {
        status = load_kernels(link);
    }
    if (status == WEIR_OK) {
        status = perf_report_machine(rank);
    }
    if (status == WEIR_OK) {
        report_link(link);
    }
    return status;
}

void perf_link_destroy(perf_link *link)
{
    weir_grid_barrier_destroy(link->raw_barrier);
    weir_grid_barrier_destroy(link->barrier);
    weir_memory_channel_destroy(link->packet);
    weir_memory_channel_destroy(link->bulk);
    weir_semaphore_destroy(link->by_hand);
    weir_semaphore_destroy(link->semaphore);
    weir_connection_destroy(link->connection);
    weir_memory_destroy(link->wrong);
    weir_memory_destroy(link->peer_flags);
    weir_memory_destroy(link->flags);
    weir_memory_destroy(link->peer_packets);
    weir_memory_destroy(link->packets);
    weir_memory_destroy(link->peer_buffer);
    weir_memory_destroy(link->buffer);
}

/* ---- data ------------------------------------------------------------------------------------------------- */

/* A kernel of a case with its arguments. */
typedef struct variant {
    perf_args args;
    perf_work work;
    void *graph;
    double us[SAMPLES_MAX];
    uint32_t count;
    uint64_t wrong; /* wrong bytes */
} variant;

static void set_data_args(const perf_link *link, const perf_args *moved, perf_data_args *args)
{
    char *buffer = (char *)weir_memory_pointer(link->buffer);
    memset(args, 0, sizeof *args);
    args->sent = buffer + moved->mine;
    args->received = buffer + moved->theirs;
    args->sent_bytes = moved->out_bytes;
    args->received_bytes = moved->in_bytes;
    args->sent_seed = link->seed * PERF_RANKS + link->rank->rank;
    args->received_seed = link->seed * PERF_RANKS + link->rank->peer;
    args->wrong = (uint64_t *)weir_memory_pointer(link->wrong);
}

static weir_status launch_and_wait(perf_link *link, const weir_kernel *kernel, const void *args)
{
    weir_shape gpu_shape = { 264, 512 };
    weir_shape cpu_shape = { 1, 2 };
    perf_work work;
    memset(&work, 0, sizeof work);
    work.kernel = kernel;
    work.shape = weir_device_fit_shape(link->rank->device, link->rank->gpu ? gpu_shape : cpu_shape);
    work.args = args;
    weir_status status = perf_launch(link->rank, &work);
    return status == WEIR_OK ? weir_stream_wait(link->rank->device, link->rank->stream, 0) : status;
}

/* Makes new data on both ranks. */
static weir_status prepare(perf_link *link, const perf_args *moved)
{
    perf_data_args args;
    link->seed++;
    set_data_args(link, moved, &args);
    return launch_and_wait(link, perf_prepare, &args);
}

/* Adds the wrong bytes that either rank has received. */
static weir_status compare(perf_link *link, const perf_args *moved, uint64_t *wrong)
{
    perf_rank *rank = link->rank;
    uint64_t mine = 0;
    perf_data_args args;
    set_data_args(link, moved, &args);
    weir_status status = weir_device_fill(rank->device, args.wrong, 0, sizeof *args.wrong);
    if (status == WEIR_OK) {
        status = launch_and_wait(link, perf_compare, &args);
    }
    if (status == WEIR_OK) {
        status = weir_device_copy(rank->device, &mine, args.wrong, sizeof mine);
    }
    return status == WEIR_OK ? perf_add_up(rank, mine, wrong) : status;
}

/* ---- a measurement ---------------------------------------------------------------------------------------- */

static uint32_t clamp(uint64_t value, uint32_t least, uint32_t most)
{
    return value < least ? least : value > most ? most : (uint32_t)value;
}

/* The grid of a case: that of its row or of the options, cut to what can be resident on the device. */
static weir_shape choose_shape(const perf_link *link, const perf_case *test, uint64_t bytes)
{
    const perf_rank *rank = link->rank;
    weir_shape shape = { 2, 4 };
    if ((test->flags & PERF_SERIAL) != 0) {
        shape.blocks = 1;
        shape.threads = rank->gpu ? test->threads : 1;
        return shape;
    }
    if (rank->gpu) {
        shape.blocks = test->blocks;
        shape.threads = test->threads;
        if (test->block_bytes != 0) {
            shape.blocks = clamp((bytes + test->block_bytes - 1) / test->block_bytes, 1, test->blocks);
            uint64_t threads = (bytes / shape.blocks + test->thread_bytes - 1) / test->thread_bytes;
            shape.threads = clamp((threads + 31) / 32 * 32, 32, test->threads);
        }
    }
    shape.blocks = link->blocks != 0 ? link->blocks : shape.blocks;
    shape.threads = link->threads != 0 ? link->threads : shape.threads;
    shape.blocks = clamp(shape.blocks, 1, rank->shared ? rank->info.multiprocessors / 2 : PERF_BLOCKS_MAX);
    if (rank->gpu && (test->flags & PERF_LINES) != 0) {
        shape.threads = shape.threads < 32 ? 32 : shape.threads / 32 * 32;
    }
    return weir_device_fit_shape(rank->device, shape);
}

/* The division of timed launches into rounds, replays and nodes. */
typedef struct plan {
    uint32_t rounds;
    uint32_t replays;
    uint32_t nodes;
} plan;

static plan make_plan(const perf_rank *rank, const perf_case *test, uint64_t bytes)
{
    plan p;
    uint64_t launches = rank->options->iters != 0 ? rank->options->iters : rank->gpu ? 6000 : 120;
    if ((test->flags & PERF_SERIAL) != 0) {
        launches = NODES_MIN; /* each has many signals */
    } else if (bytes > LARGE_BYTES) {
        launches /= 10;
    }
    p.rounds = clamp(launches / NODES_MIN, 1, ROUNDS);
    p.nodes = clamp(launches / p.rounds / ROUND_REPLAYS / 2 * 2, NODES_MIN, NODES_MAX);
    p.replays = clamp(launches / p.rounds / p.nodes, 1, PERF_REPLAYS_MAX);
    return p;
}

static weir_status set_variant(const perf_link *link, const perf_case *test, bool raw, uint64_t bytes, uint32_t place,
                               variant *v)
{
    const perf_rank *rank = link->rank;
    /* A one-way get moves data to rank 0; all other one-way cases move it from rank 0. */
    uint32_t source = test->op == PERF_GET ? 1 : 0;
    bool both = !rank->options->one_way;
    memset(&v->args, 0, sizeof v->args);
    memset(&v->work, 0, sizeof v->work);
    weir_memory_channel_device(test->op == PERF_PACKETS ? link->packet : link->bulk, &v->args.channel);
    weir_grid_barrier_device(raw ? link->raw_barrier : link->barrier, &v->args.barrier);
    v->args.flags = (uint64_t *)weir_memory_pointer(link->flags);
    v->args.peer_flags = (uint64_t *)weir_memory_pointer(link->peer_flags);
    v->args.mine = rank->rank * link->region;
    v->args.theirs = rank->peer * link->region;
    v->args.out_bytes = both || rank->rank == source ? bytes : 0;
    v->args.in_bytes = both || rank->rank != source ? bytes : 0;
    v->args.slot = 2 * link->region;
    v->args.rank = rank->rank;
    v->args.rounds = (test->flags & PERF_SERIAL) == 0 ? 0 : rank->gpu ? 1000 : 20;
    v->work.kernel = raw ? test->raw : test->weir;
    v->work.cooperative = (test->flags & PERF_COOPERATIVE) != 0;
    v->work.args = &v->args;
    v->work.number = &v->args.number;
    v->work.shape = choose_shape(link, test, bytes);
    weir_status status = weir_semaphore_device(link->by_hand, &v->args.by_hand);
    if (status == WEIR_OK) {
        v->args.by_hand = weir_dev_semaphore_at(&v->args.by_hand, place * PLACE_CELLS);
        v->args.channel.semaphore = weir_dev_semaphore_at(&v->args.channel.semaphore, place * PLACE_CELLS);
    }
    return status;
}

/* Runs one round of one variant. */
static weir_status run_round(perf_link *link, variant *v, const plan *p, uint64_t *wrong)
{
    uint32_t warmup = (link->rank->options->warmup + p->nodes - 1) / p->nodes;
    bool moves = v->args.out_bytes + v->args.in_bytes != 0;
    weir_status status = moves ? prepare(link, &v->args) : WEIR_OK;
    if (status == WEIR_OK) {
        status = perf_time(link->rank, v->graph, p->nodes, warmup, p->replays, v->us + v->count);
        v->count += p->replays;
    }
    if (status == WEIR_OK && moves) {
        status = compare(link, &v->args, wrong);
    }
    return status;
}

/* Runs launches one by one, each with new data. */
static weir_status check_launches(perf_link *link, variant *v, uint64_t *wrong)
{
    perf_rank *rank = link->rank;
    weir_status status = WEIR_OK;
    for (uint32_t i = 1; i <= CHECKS && status == WEIR_OK; i++) {
        v->args.number = i;
        status = prepare(link, &v->args);
        if (status == WEIR_OK) {
            status = weir_bootstrap_barrier(rank->bootstrap, NULL); /* from here on the peer may write */
        }
        if (status == WEIR_OK) {
            status = perf_launch(rank, &v->work);
        }
        if (status == WEIR_OK) {
            status = weir_stream_wait(rank->device, rank->stream, 0);
        }
        if (status == WEIR_OK) {
            status = weir_comm_status(rank->comm);
        }
        if (status == WEIR_OK) {
            status = compare(link, &v->args, wrong);
        }
    }
    return status;
}

static weir_status report(perf_link *link, const perf_case *test, uint64_t bytes, variant *variants)
{
    variant *ours = &variants[0];
    variant *raw = &variants[1];
    /* The signals of a ping-pong follow each other. */
    double parts = ours->args.rounds != 0 ? 2.0 * ours->args.rounds : 1.0;
    perf_sort(ours->us, ours->count);
    perf_sort(raw->us, raw->count);
    double us = perf_percentile(ours->us, ours->count, 0.5) / parts;
    double raw_us = raw->count != 0 ? perf_percentile(raw->us, raw->count, 0.5) / parts : NAN;
    char table[64];
    (void)snprintf(table, sizeof table, "%s%s", perf_op_names[test->op],
                   test->op == PERF_SEMAPHORE     ? ", half a round trip"
                   : test->op == PERF_FLOOR       ? ", moves no data"
                   : link->rank->options->one_way ? ", one way"
                                                  : ", both ways at once");
    perf_field fields[] = {
        perf_text("shape", test->shape),
        perf_count("bytes", bytes),
        perf_as(perf_count("blocks", ours->work.shape.blocks),
                link->rank->options->blocks.count != 0 ? PERF_NAMES : PERF_APART),
        perf_as(perf_count("threads", ours->work.shape.threads),
                link->rank->options->threads.count != 0 ? PERF_NAMES : PERF_APART),
        perf_as(perf_real("time_us", us, 3), PERF_LATENCY),
        perf_real("min_us", ours->us[0] / parts, 3),
        perf_real("p95_us", perf_percentile(ours->us, ours->count, 0.95) / parts, 3),
        perf_as(perf_real("gbps", bytes != 0 ? (double)bytes / us / 1e3 : NAN, 3), PERF_BANDWIDTH),
        perf_real("raw_us", raw_us, 3),
        perf_real("raw_gbps", bytes != 0 ? (double)bytes / raw_us / 1e3 : NAN, 3),
        perf_real("ratio", us / raw_us, 3),
        perf_real("wrong", bytes != 0 ? (double)ours->wrong : NAN, 0),
    };
    perf_row(link->rank->output, table, fields, ROWS(fields));
    if (ours->wrong != 0) {
        return perf_fail(link->rank, WEIR_ERR_CORRUPT, "%s %s of %" PRIu64 " bytes: %" PRIu64 " wrong bytes",
                         link->rank->command, test->shape, bytes, ours->wrong);
    }
    return WEIR_OK;
}

/* Clears packets and lines of earlier cases and grids, which this case could take for its own. No kernel is running,
 * and the peer's next one starts after a barrier. */
static weir_status forget_packets(perf_link *link)
{
    return weir_device_fill(link->rank->device, weir_memory_pointer(link->packets), 0,
                            weir_memory_bytes(link->packets));
}

static weir_status run_rounds(perf_link *link, const perf_case *test, uint32_t count, variant *variants, const plan *p)
{
    uint64_t bytes = variants[0].args.out_bytes + variants[0].args.in_bytes;
    uint64_t wrong[2] = { 0, 0 };
    weir_status status = WEIR_OK;
    for (uint32_t round = 0; round < p->rounds; round++) {
        for (uint32_t i = count; i-- > 0 && status == WEIR_OK;) {
            status = run_round(link, &variants[i], p, &wrong[i]);
        }
    }
    if (status == WEIR_OK && link->rank->options->check && bytes != 0) {
        status = check_launches(link, &variants[0], &wrong[0]);
    }
    if (status == WEIR_OK && wrong[1] != 0) {
        status = perf_fail(link->rank, WEIR_ERR_CORRUPT, "%s by hand: %" PRIu64 " wrong bytes", test->shape, wrong[1]);
    }
    variants[0].wrong = wrong[0];
    return status;
}

/* Measures both variants in one place of their tokens. */
static weir_status measure_in(perf_link *link, const perf_case *test, uint64_t bytes, uint32_t place, variant *variants)
{
    uint32_t count = link->rank->gpu && test->raw != NULL && bytes % 16 == 0 ? 2 : 1;
    plan p = make_plan(link->rank, test, bytes);
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < 2 && status == WEIR_OK; i++) {
        status = set_variant(link, test, i == 1, bytes, place, &variants[i]);
    }
    for (uint32_t i = 0; i < count && status == WEIR_OK; i++) {
        status = perf_record(link->rank, &variants[i].work, p.nodes, &variants[i].graph);
    }
    if (status == WEIR_OK) {
        status = run_rounds(link, test, count, variants, &p);
    }
    for (uint32_t i = 0; i < 2; i++) {
        if (variants[i].graph != NULL) {
            weir_graph_destroy(link->rank->device, variants[i].graph);
            variants[i].graph = NULL;
        }
    }
    return status;
}

weir_status perf_link_measure(perf_link *link, const perf_case *test, uint64_t bytes)
{
    variant variants[2];
    const uint32_t places = (test->flags & PERF_SERIAL) != 0 && link->rank->gpu ? PLACES : 1;
    weir_status status = WEIR_OK;
    memset(variants, 0, sizeof variants);
    if (test->op == PERF_PACKETS) {
        status = forget_packets(link);
    }
    for (uint32_t place = 0; place < places && status == WEIR_OK; place++) {
        status = measure_in(link, test, bytes, place, variants);
    }
    return status == WEIR_OK ? report(link, test, bytes, variants) : status;
}
