/* rdma.c - weir-perf rdma: the cost of posting to an RDMA NIC for a kernel.
 *
 * Threads write work queue entries into send queues in host memory and ring doorbells as fast as they can. There is no
 * NIC: nothing is carried out, a burst fits into its queue, and records and registers are words of host memory. Only
 * posting is measured, by the device's clock, from before the first entry of a block to after its last. The result is
 * the longest time of all blocks, divided by the writes of one block.
 *
 * Rank 0 measures, rank 1 does nothing. */
#include "tools/perf/commands.h"

#include <string.h>

#include "weir/device/rdma.h"

#define SAMPLES 20u
#define WARMUP 2u
#define QUEUE_BLOCKS 4096u /* entries of a send queue, and the maximum of a burst */
#define BLOCKS_MAX 132u
#define TIMES_BYTES 4096u
#define FIELDS_BYTES 64u
#define DOORBELL_BYTES 256u /* of each queue: record, register, completion record and a completion */

/* ---- kernel ------------------------------------------------------------------------------------------------ */

typedef struct rdma_args {
    weir_dev_rdma queue; /* of block 0; the other blocks' queues follow in memory */
    uint64_t *times;     /* ns, of each block */
    uint32_t writes;     /* of each block */
    uint32_t flags;      /* of every post; WEIR_RDMA_... */
    uint32_t batch;      /* entries that the first thread of a block reserves and publishes together */
    uint32_t together;   /* the threads of a block post together; otherwise only the first one */
    uint32_t one_queue;  /* all blocks post to the queue of block 0 */
    uint32_t counted;    /* the first thread keeps counts in registers */
    uint32_t fresh;      /* the fields of an entry are read again for each */
    uint32_t polls;      /* the completion queue is read after each post */
    uint32_t seldom;     /* only each 32nd post rings the doorbell */
    uint32_t reserved;
    const uint64_t *fields; /* remote and local address, and keys; device memory */
} rdma_args;

WEIR_FN weir_dev_rdma rdma_queue_of(const rdma_args *args, uint32_t block)
{
    weir_dev_rdma queue = args->queue;
    const uint32_t index = args->one_queue ? 0 : block;
    queue.state += index;
    queue.queue += (uint64_t)index * QUEUE_BLOCKS * WEIR_MLX5_BLOCK;
    queue.record += (uint64_t)index * DOORBELL_BYTES / sizeof *queue.record;
    queue.doorbell += (uint64_t)index * DOORBELL_BYTES / sizeof *queue.doorbell;
    queue.completion_record += (uint64_t)index * DOORBELL_BYTES / sizeof *queue.completion_record;
    queue.completions += (uint64_t)index * DOORBELL_BYTES;
    return queue;
}

WEIR_FN weir_dev_rdma_entry rdma_entry(uint32_t number)
{
    const weir_dev_rdma_memory remote = { 0x1000000, 0x0badcafe, 0 };
    const weir_dev_rdma_memory local = { 0x7f0000001000, 0x1234, 0 };
    const uint64_t offset = 4096 * (uint64_t)number;
    return weir_dev_rdma_transfer(WEIR_MLX5_WRITE, weir_dev_rdma_at(remote, offset), weir_dev_rdma_at(local, offset),
                                  4096);
}

/* The same with fields read from memory. */
WEIR_FN weir_dev_rdma_entry rdma_fresh_entry(const uint64_t *fields, uint32_t number)
{
    const uint64_t keys = weir_arch_load_relaxed_dev_u64(fields + 2);
    const weir_dev_rdma_memory remote = { weir_arch_load_relaxed_dev_u64(fields), (uint32_t)keys, 0 };
    const weir_dev_rdma_memory local = { weir_arch_load_relaxed_dev_u64(fields + 1), (uint32_t)(keys >> 32), 0 };
    const uint64_t offset = 4096 * (uint64_t)number;
    return weir_dev_rdma_transfer(WEIR_MLX5_WRITE, weir_dev_rdma_at(remote, offset), weir_dev_rdma_at(local, offset),
                                  4096);
}

/* Posts all entries one by one from one thread. */
WEIR_FN weir_status rdma_post_all(const rdma_args *args, const weir_dev_rdma *queue)
{
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < args->writes && status == WEIR_OK; i++) {
        const weir_dev_rdma_entry entry = rdma_entry(i);
        status = weir_dev_rdma_post(queue, &entry, args->flags, NULL);
    }
    return status;
}

/* The same with counts in registers. */
WEIR_FN weir_status rdma_post_counted(const rdma_args *args, const weir_dev_rdma *queue)
{
    weir_dev_rdma_counts counts = weir_dev_rdma_begin(queue);
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < args->writes && status == WEIR_OK; i++) {
        const weir_dev_rdma_entry entry = rdma_entry(i);
        const uint32_t flags = args->seldom && (i & 31) != 31 ? 0 : args->flags;
        status = weir_dev_rdma_post_counted(queue, &counts, &entry, flags, NULL);
    }
    weir_dev_rdma_end(queue, &counts);
    return status;
}

/* The same without savings: reads completions after each post and, if `fresh`, reads the fields of each entry again. */
WEIR_FN weir_status rdma_post_unsaved(const rdma_args *args, const weir_dev_rdma *queue)
{
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < args->writes && status == WEIR_OK; i++) {
        const weir_dev_rdma_entry entry = args->fresh ? rdma_fresh_entry(args->fields, i) : rdma_entry(i);
        status = weir_dev_rdma_post(queue, &entry, args->flags, NULL);
        weir_dev_rdma_poll(queue);
    }
    return status;
}

WEIR_KERNEL(rdma_reset, rdma_args)
{
    uint64_t *words = (uint64_t *)args->queue.state;
    for (uint32_t i = coop.rank; i < BLOCKS_MAX * sizeof(weir_dev_rdma_state) / sizeof *words; i += coop.size) {
        words[i] = 0;
    }
}

WEIR_KERNEL(rdma_burst, rdma_args)
{
    const weir_dev_rdma queue = rdma_queue_of(args, coop.block);
    const weir_coop block = coop.block_size == weir_arch_warp_size() ? weir_coop_warp(coop) : weir_coop_block(coop);
    const uint64_t start = weir_arch_clock_ns();
    weir_status status = WEIR_OK;
    if (args->together) {
        for (uint32_t i = 0; i < args->writes / block.size && status == WEIR_OK; i++) {
            const weir_dev_rdma_entry entry = rdma_entry(i * block.size + block.rank);
            status = weir_dev_rdma_post_each(&queue, &entry, args->flags, block, NULL);
        }
    } else if (block.rank == 0 && args->batch == 1) {
        status = args->polls     ? rdma_post_unsaved(args, &queue)
                 : args->counted ? rdma_post_counted(args, &queue)
                                 : rdma_post_all(args, &queue);
    } else if (block.rank == 0) {
        for (uint32_t i = 0; i < args->writes && status == WEIR_OK; i += args->batch) {
            weir_dev_rdma_span span;
            status = weir_dev_rdma_reserve(&queue, args->batch, &span);
            for (uint32_t k = 0; k < args->batch && status == WEIR_OK; k++) {
                const weir_dev_rdma_entry entry = rdma_entry(i + k);
                weir_dev_rdma_write(&queue, &span, k, &entry, 0);
            }
            status = status == WEIR_OK ? weir_dev_rdma_finish(&queue, &span, args->flags, NULL) : status;
        }
    }
    if (block.rank == 0) {
        args->times[coop.block] = weir_arch_clock_ns() - start;
    }
}

/* ---- cases --------------------------------------------------------------------------------------------------- */

typedef struct rdma_case {
    const char *queue; /* "own": one for each block; "shared": one for all */
    const char *by;    /* posting threads: the first "thread" of each block, the same with "counts" in registers, or a
                        * whole "warp" or "block" together */
    const char *ring;  /* "never", "each" post, or each "32nd" */
    uint32_t blocks;
    uint32_t threads;
    uint32_t batch; /* entries that a thread reserves and publishes together */
    uint32_t writes;
    const char *besides; /* extra work for each post: "entry": fields are read again; "poll": completions are read */
} rdma_case;

/* clang-format off */
static const rdma_case cases[] = {
    /* The effect of three savings: prepared entries, few reads of completions, one doorbell for several posts. */
    { "own", "thread", "each", 1, 32, 1, 512, "entry, poll" },
    { "own", "thread", "each", 1, 32, 1, 512, "poll" },
    { "own", "counts", "each", 1, 32, 1, 512, NULL },
    { "own", "counts", "32nd", 1, 32, 1, 2048, NULL },
    { "own", "counts", "never", 1, 32, 1, 2048, NULL },
    { "own", "thread", "never", 1, 32, 1, 2048, NULL },
    { "own", "thread", "never", 1, 32, 32, 2048, NULL },
    { "own", "thread", "each", 1, 32, 1, 512, NULL },
    { "own", "thread", "each", 1, 32, 32, 2048, NULL },
    { "shared", "thread", "never", 1, 32, 1, 2048, NULL },
    { "shared", "thread", "never", 1, 32, 32, 2048, NULL },
    { "shared", "thread", "each", 1, 32, 1, 512, NULL },
    { "shared", "thread", "each", 1, 32, 32, 2048, NULL },
    { "shared", "thread", "never", 8, 32, 1, 256, NULL },
    { "own", "warp", "never", 1, 32, 1, 4096, NULL },
    { "own", "warp", "each", 1, 32, 1, 4096, NULL },
    { "shared", "warp", "never", 1, 32, 1, 4096, NULL },
    { "shared", "warp", "each", 1, 32, 1, 4096, NULL },
    { "own", "block", "never", 1, 512, 1, 4096, NULL },
    { "own", "block", "each", 1, 512, 1, 4096, NULL },
    { "shared", "block", "each", 1, 512, 1, 4096, NULL },
    { "own", "thread", "never", 8, 32, 1, 2048, NULL },
    { "own", "thread", "never", 32, 32, 1, 2048, NULL },
    { "own", "thread", "never", 132, 32, 1, 2048, NULL },
    { "own", "thread", "each", 8, 32, 1, 512, NULL },
    { "own", "thread", "each", 32, 32, 1, 512, NULL },
    { "own", "thread", "each", 132, 32, 1, 512, NULL },
    { "own", "block", "each", 8, 512, 1, 4096, NULL },
    { "own", "block", "each", 32, 512, 1, 4096, NULL },
    { "own", "block", "each", 132, 512, 1, 4096, NULL },
};
/* clang-format on */

typedef struct rdma_bench {
    perf_rank *rank;
    weir_grid_barrier *barrier; /* gives kernels the communicator's control block */
    weir_memory *states;
    weir_memory *queues;
    weir_memory *doorbells;
    weir_memory *times;
    weir_memory *fields;
    rdma_args args;
} rdma_bench;

static weir_status create_bench(perf_rank *rank, rdma_bench *bench)
{
    weir_memory_opts host = WEIR_OPTS(weir_memory_opts);
    weir_dev_grid_barrier barrier;
    host.kind = WEIR_MEMORY_HOST;
    weir_status status =
        weir_memory_allocate(rank->comm, BLOCKS_MAX * sizeof(weir_dev_rdma_state), NULL, &bench->states);
    if (status == WEIR_OK) {
        status = weir_memory_allocate(rank->comm, (uint64_t)BLOCKS_MAX * QUEUE_BLOCKS * WEIR_MLX5_BLOCK, &host,
                                      &bench->queues);
    }
    if (status == WEIR_OK) {
        status = weir_memory_allocate(rank->comm, BLOCKS_MAX * DOORBELL_BYTES, &host, &bench->doorbells);
    }
    if (status == WEIR_OK) {
        status = weir_memory_allocate(rank->comm, TIMES_BYTES, &host, &bench->times);
    }
    if (status == WEIR_OK) {
        status = weir_memory_allocate(rank->comm, FIELDS_BYTES, NULL, &bench->fields);
    }
    if (status == WEIR_OK) {
        status = weir_grid_barrier_create(rank->comm, &bench->barrier);
    }
    if (status == WEIR_OK) {
        status = weir_kernel_load(rank->device, &rdma_reset);
    }
    if (status == WEIR_OK) {
        status = weir_kernel_load(rank->device, &rdma_burst);
    }
    if (status != WEIR_OK) {
        return status;
    }
    char *doorbells = (char *)weir_memory_pointer(bench->doorbells);
    weir_dev_rdma *queue = &bench->args.queue;
    weir_grid_barrier_device(bench->barrier, &barrier);
    queue->control = barrier.control;
    queue->state = (weir_dev_rdma_state *)weir_memory_pointer(bench->states);
    queue->queue = (char *)weir_memory_pointer(bench->queues);
    queue->record = (uint32_t *)doorbells;
    queue->doorbell = (uint64_t *)(doorbells + 64);
    queue->completions = doorbells + 192; /* the first completion is never written, and kernels read no other */
    queue->completion_record = (uint32_t *)(doorbells + 128);
    queue->count = QUEUE_BLOCKS;
    queue->completion_count = QUEUE_BLOCKS;
    queue->qpn = 0xabcdef;
    for (uint32_t i = 0; i < BLOCKS_MAX; i++) {
        memset((char *)weir_memory_host_pointer(bench->doorbells) + i * DOORBELL_BYTES + 192, 0xff, WEIR_MLX5_BLOCK);
    }
    bench->args.fields = (const uint64_t *)weir_memory_pointer(bench->fields);
    bench->args.times = (uint64_t *)weir_memory_pointer(bench->times);
    return WEIR_OK;
}

static void destroy_bench(rdma_bench *bench)
{
    weir_memory_destroy(bench->fields);
    weir_memory_destroy(bench->times);
    weir_memory_destroy(bench->doorbells);
    weir_memory_destroy(bench->queues);
    weir_memory_destroy(bench->states);
    weir_grid_barrier_destroy(bench->barrier);
}

/* Runs one burst; *ns gets the longest time of a block for one write. */
static weir_status run_burst(rdma_bench *bench, const rdma_case *test, double *ns)
{
    perf_rank *rank = bench->rank;
    const weir_shape reset = { 1, 32 };
    const weir_shape shape = { test->blocks, test->threads };
    const uint64_t *times = (const uint64_t *)weir_memory_host_pointer(bench->times);
    uint64_t longest = 0;
    bench->args.writes = test->writes;
    bench->args.batch = test->batch;
    bench->args.counted = strcmp(test->by, "counts") == 0;
    bench->args.together = strcmp(test->by, "thread") != 0 && !bench->args.counted;
    bench->args.polls = test->besides != NULL;
    bench->args.fresh = test->besides != NULL && strcmp(test->besides, "poll") != 0;
    bench->args.flags = strcmp(test->ring, "never") != 0 ? WEIR_RDMA_RING : 0;
    bench->args.seldom = strcmp(test->ring, "32nd") == 0;
    bench->args.one_queue = strcmp(test->queue, "shared") == 0;
    bench->args.queue.exclusive = !bench->args.one_queue;
    weir_status status = weir_launch(rank->device, &rdma_reset, reset, &bench->args, NULL, rank->stream);
    if (status == WEIR_OK) {
        status = weir_launch(rank->device, &rdma_burst, shape, &bench->args, NULL, rank->stream);
    }
    if (status == WEIR_OK) {
        status = weir_stream_wait(rank->device, rank->stream, 0);
    }
    if (status == WEIR_OK) {
        status = weir_comm_status(rank->comm);
    }
    for (uint32_t i = 0; i < test->blocks; i++) {
        longest = times[i] > longest ? times[i] : longest;
    }
    *ns = (double)longest / test->writes;
    return status;
}

static weir_status measure(rdma_bench *bench, const rdma_case *test)
{
    double ns[SAMPLES];
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < WARMUP + SAMPLES && status == WEIR_OK; i++) {
        status = run_burst(bench, test, &ns[i < WARMUP ? 0 : i - WARMUP]);
    }
    if (status != WEIR_OK) {
        return status;
    }
    perf_sort(ns, SAMPLES);
    const double median = perf_percentile(ns, SAMPLES, 0.5);
    const perf_field fields[] = {
        perf_text("queue", test->queue),
        perf_text("by", test->by),
        perf_text("ring", test->ring),
        perf_text("besides", test->besides != NULL ? test->besides : "-"),
        perf_count("blocks", test->blocks),
        perf_count("threads", test->threads),
        perf_count("batch", test->batch),
        perf_count("writes", test->writes),
        perf_as(perf_real("write_ns", median, 1), PERF_LATENCY),
        perf_real("min_ns", ns[0], 1),
        perf_real("p95_ns", perf_percentile(ns, SAMPLES, 0.95), 1),
        perf_real("mwrite_s", 1e3 * test->blocks / median, 2),
    };
    perf_row(bench->rank->output, "rdma", fields, ROWS(fields));
    return WEIR_OK;
}

static weir_status run_rdma(perf_rank *rank)
{
    rdma_bench bench;
    memset(&bench, 0, sizeof bench);
    bench.rank = rank;
    weir_status status = perf_report_machine(rank);
    if (status == WEIR_OK && rank->rank == 0) {
        perf_fact(rank->output, "time", "ns of a block for one write, by the device's clock; median of %u", SAMPLES);
        status = create_bench(rank, &bench);
    }
    for (uint32_t i = 0; i < ROWS(cases) && status == WEIR_OK; i++) {
        const uint64_t threads = (uint64_t)cases[i].blocks * cases[i].threads;
        const bool possible = threads <= rank->info.resident_threads && (rank->gpu || strcmp(cases[i].by, "warp") != 0);
        if (rank->rank == 0 && possible) {
            status = measure(&bench, &cases[i]);
        }
        /* Rank 1 waits for each row separately, so no wait is long. */
        if (status == WEIR_OK) {
            status = weir_bootstrap_barrier(rank->bootstrap, NULL);
        }
    }
    destroy_bench(&bench);
    return status;
}

const perf_command perf_rdma = { "rdma", "cost of posting to an RDMA NIC for a kernel; needs no NIC", "", run_rdma,
                                 NULL };
