/* weir_perf_probe.c - weir-perf probe: what the generic device API costs.
 *
 * Two ranks move data in the shape of the memory channel tutorial, once through weir's device API and once in
 * kernels of the same shape that are written by hand: raw pointers, PTX, waits that never end. Both run
 * interleaved, as replays of graphs of many launches; the median of three runs counts. Every run moves new
 * random data, and what was received is checked after it. A second table has the floors below such kernels:
 * an empty launch, the handshake, the grid barrier, and a signal from GPU to GPU.
 *
 * Kernels by hand exist where nvcc compiles this file; the C compiler's version has weir's alone, for the CPU. */
#include "weir_perf_common.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RUNS 3u
#define LARGE_BYTES ((uint64_t)4 << 20) /* from here on a run has fewer launches */

typedef struct probe_args {
    weir_dev_memory_channel channel;
    weir_dev_grid_barrier barrier;
    uint64_t bytes;
    uint32_t rank;
    uint32_t rounds; /* of a ping-pong */
    uint32_t flag;   /* of packets by hand: the number of the node */
    uint32_t reserved;
} probe_args;

/* ---- weir's kernels; they ignore statuses, since errors are sticky and the host looks after each run --------- */

/* Both ranks' kernels run: one thread exchanges signals with the peer, then the grid meets. */
WEIR_FN void start_together(const probe_args *args, weir_coop coop)
{
    if (coop.rank == 0) {
        weir_dev_memory_channel_signal_relaxed(&args->channel);
        (void)weir_dev_memory_channel_wait_relaxed(&args->channel);
    }
    (void)weir_coop_sync(coop);
}

WEIR_KERNEL(probe_put, probe_args)
{
    uint64_t mine = args->rank * args->bytes;
    coop.barrier = &args->barrier;
    start_together(args, coop);
    (void)weir_dev_memory_channel_put(&args->channel, mine, mine, args->bytes, coop);
    (void)weir_coop_sync(coop);
    if (coop.rank == 0) {
        weir_dev_memory_channel_signal(&args->channel);
        (void)weir_dev_memory_channel_wait(&args->channel);
    }
}

WEIR_KERNEL(probe_get, probe_args)
{
    uint64_t theirs = (args->rank ^ 1) * args->bytes;
    coop.barrier = &args->barrier;
    start_together(args, coop);
    (void)weir_dev_memory_channel_get(&args->channel, theirs, theirs, args->bytes, coop);
}

WEIR_KERNEL(probe_ll16, probe_args)
{
    uint64_t mine = args->rank * args->bytes;
    uint64_t theirs = (args->rank ^ 1) * args->bytes;
    coop.barrier = &args->barrier;
    start_together(args, coop);
    (void)weir_dev_memory_channel_put_ll16(&args->channel, 0, mine, args->bytes, coop);
    (void)weir_dev_memory_channel_unpack_ll16(&args->channel, 0, theirs, args->bytes, coop);
}

WEIR_KERNEL(probe_empty, probe_args)
{
    (void)args;
    (void)coop;
}

WEIR_KERNEL(probe_handshake, probe_args)
{
    if (coop.rank == 0) {
        weir_dev_memory_channel_signal_relaxed(&args->channel);
        (void)weir_dev_memory_channel_wait_relaxed(&args->channel);
    }
}

WEIR_KERNEL(probe_barrier, probe_args)
{
    coop.barrier = &args->barrier;
    start_together(args, coop);
}

/* Rank 0 signals first; one thread of each rank plays. */
WEIR_KERNEL(probe_ping_relaxed, probe_args)
{
    for (uint32_t i = 0; coop.rank == 0 && i < args->rounds; i++) {
        if (args->rank == 0) {
            weir_dev_memory_channel_signal_relaxed(&args->channel);
        }
        if (weir_dev_memory_channel_wait_relaxed(&args->channel) != WEIR_OK) {
            return;
        }
        if (args->rank != 0) {
            weir_dev_memory_channel_signal_relaxed(&args->channel);
        }
    }
}

WEIR_KERNEL(probe_ping, probe_args)
{
    for (uint32_t i = 0; coop.rank == 0 && i < args->rounds; i++) {
        if (args->rank == 0) {
            weir_dev_memory_channel_signal(&args->channel);
        }
        if (weir_dev_memory_channel_wait(&args->channel) != WEIR_OK) {
            return;
        }
        if (args->rank != 0) {
            weir_dev_memory_channel_signal(&args->channel);
        }
    }
}

/* ---- the same by hand ------------------------------------------------------------------------------------- */

#if defined(__CUDACC__)

#define RAW_BATCH 4 /* 16-byte loads in flight a thread */

/* A kernel for weir_launch that has no version for the CPU. */
#define RAW_KERNEL(kernel)                                                                           \
    extern "C" __global__ void kernel##_gpu(const __grid_constant__ probe_args args);                \
    static int kernel##_resolve(void **function)                                                     \
    {                                                                                                \
        return (int)cudaGetFuncBySymbol((cudaFunction_t *)function, (const void *)kernel##_gpu);     \
    }                                                                                                \
    static const weir_kernel kernel = { WEIR_DEV_VERSION, sizeof(probe_args), #kernel, NULL,         \
                                        kernel##_resolve };                                          \
    extern "C" __global__ void kernel##_gpu(const __grid_constant__ probe_args args)

#define RAW_FN static __device__ __forceinline__

RAW_FN bool raw_first_thread(void)
{
    return threadIdx.x == 0 && blockIdx.x == 0;
}

RAW_FN void raw_signal_relaxed(const weir_dev_semaphore *semaphore)
{
    asm volatile("red.relaxed.sys.global.add.u64 [%0], 1;" ::"l"(semaphore->outbound) : "memory");
}

RAW_FN void raw_signal(const weir_dev_semaphore *semaphore)
{
    asm volatile("red.release.sys.global.add.u64 [%0], 1;" ::"l"(semaphore->outbound) : "memory");
}

RAW_FN void raw_await_relaxed(const uint64_t *token, uint64_t least)
{
    uint64_t value;
    do {
        asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(token) : "memory");
    } while (value < least);
}

RAW_FN void raw_await(const uint64_t *token, uint64_t least)
{
    uint64_t value;
    do {
        asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(token) : "memory");
    } while (value < least);
}

RAW_FN void raw_handshake_once(const weir_dev_semaphore *semaphore)
{
    raw_signal_relaxed(semaphore);
    uint64_t next = *(volatile uint64_t *)semaphore->expected + 1;
    raw_await_relaxed(semaphore->inbound, next);
    *(volatile uint64_t *)semaphore->expected = next;
}

/* Block 0 adds what the single steps of the others leave missing to 2^31, so that the top bit flips. */
RAW_FN void raw_grid_sync(uint64_t *word)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t steps = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u;
        uint32_t before;
        asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(word), "r"(steps) : "memory");
        uint32_t now = before + steps;
        while (((before ^ now) & 0x80000000u) == 0) {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(word) : "memory");
        }
    }
    __syncthreads();
}

RAW_FN void raw_start_together(const probe_args *args)
{
    if (raw_first_thread()) {
        raw_handshake_once(&args->channel.semaphore);
    }
    raw_grid_sync(args->barrier.word);
}

RAW_FN void raw_copy(char *dst, const char *src, uint64_t bytes)
{
    ulonglong2 *to = (ulonglong2 *)dst;
    const ulonglong2 *from = (const ulonglong2 *)src;
    uint64_t count = bytes / 16;
    uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + (RAW_BATCH - 1) * stride < count; i += RAW_BATCH * stride) {
        ulonglong2 batch[RAW_BATCH];
#pragma unroll
        for (int k = 0; k < RAW_BATCH; k++) {
            batch[k] = from[i + k * stride];
        }
#pragma unroll
        for (int k = 0; k < RAW_BATCH; k++) {
            to[i + k * stride] = batch[k];
        }
    }
    for (; i < count; i += stride) {
        to[i] = from[i];
    }
}

RAW_KERNEL(raw_put)
{
    uint64_t mine = args.rank * args.bytes;
    raw_start_together(&args);
    raw_copy(args.channel.dst + mine, args.channel.src + mine, args.bytes);
    raw_grid_sync(args.barrier.word);
    if (raw_first_thread()) {
        const weir_dev_semaphore *semaphore = &args.channel.semaphore;
        raw_signal(semaphore);
        uint64_t next = *(volatile uint64_t *)semaphore->expected + 1;
        raw_await(semaphore->inbound, next);
        *(volatile uint64_t *)semaphore->expected = next;
    }
}

RAW_KERNEL(raw_get)
{
    uint64_t theirs = (args.rank ^ 1) * args.bytes;
    raw_start_together(&args);
    raw_copy(args.channel.src + theirs, args.channel.dst + theirs, args.bytes);
}

/* The flag is an argument, as in the tutorial: two nodes that follow each other, also the last and the first
 * of a graph, must differ in it. */
RAW_KERNEL(raw_ll16)
{
    raw_start_together(&args);
    uint64_t count = args.bytes / 8;
    uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    uint64_t first = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const uint2 *from = (const uint2 *)(args.channel.src + args.rank * args.bytes);
    uint2 *to = (uint2 *)(args.channel.src + (args.rank ^ 1) * args.bytes);
    uint32_t flag = args.flag;
    for (uint64_t i = first; i < count; i += stride) {
        uint2 data = from[i];
        asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(args.channel.dst + 16 * i), "r"(data.x),
                     "r"(flag), "r"(data.y)
                     : "memory");
    }
    for (uint64_t i = first; i < count; i += stride) {
        uint2 data;
        uint32_t flag_x;
        uint32_t flag_y;
        do {
            asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(data.x), "=r"(flag_x), "=r"(data.y), "=r"(flag_y)
                         : "l"(args.channel.packets + 16 * i)
                         : "memory");
        } while (flag_x != flag || flag_y != flag);
        to[i] = data;
    }
}

RAW_KERNEL(raw_empty)
{
}

RAW_KERNEL(raw_handshake)
{
    if (raw_first_thread()) {
        raw_handshake_once(&args.channel.semaphore);
    }
}

RAW_KERNEL(raw_barrier)
{
    raw_start_together(&args);
}

/* Flags are stored, not added to, and counted in a register. They go on from the signals consumed, which at
 * the start of every kernel are as many as were sent, so that the semaphore stays right. */
RAW_KERNEL(raw_ping_relaxed)
{
    if (raw_first_thread()) {
        const weir_dev_semaphore *semaphore = &args.channel.semaphore;
        uint64_t value = *(volatile uint64_t *)semaphore->expected;
        for (uint32_t i = 0; i < args.rounds; i++) {
            value++;
            if (args.rank != 0) {
                raw_await_relaxed(semaphore->inbound, value);
            }
            asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(semaphore->outbound), "l"(value) : "memory");
            if (args.rank == 0) {
                raw_await_relaxed(semaphore->inbound, value);
            }
        }
        *(volatile uint64_t *)semaphore->expected = value;
    }
}

RAW_KERNEL(raw_ping)
{
    if (raw_first_thread()) {
        const weir_dev_semaphore *semaphore = &args.channel.semaphore;
        uint64_t value = *(volatile uint64_t *)semaphore->expected;
        for (uint32_t i = 0; i < args.rounds; i++) {
            value++;
            if (args.rank != 0) {
                raw_await(semaphore->inbound, value);
            }
            asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(semaphore->outbound), "l"(value) : "memory");
            if (args.rank == 0) {
                raw_await(semaphore->inbound, value);
            }
        }
        *(volatile uint64_t *)semaphore->expected = value;
    }
}

#define BY_HAND(kernel) (&kernel)
#define HAVE_GPU true
#else
#define BY_HAND(kernel) NULL
#define HAVE_GPU false
#endif

/* ---- what is measured --------------------------------------------------------------------------------------- */

typedef struct probe_case {
    const char *name;
    const weir_kernel *weir;
    const weir_kernel *raw;
    bool cooperative;
    bool packets;   /* over the channel of packets */
    bool ping_pong; /* one block, many rounds a launch */
} probe_case;

static const probe_case transfers[] = {
    { "put", &probe_put, BY_HAND(raw_put), true, false, false },
    { "get", &probe_get, BY_HAND(raw_get), true, false, false },
    { "ll16", &probe_ll16, BY_HAND(raw_ll16), true, true, false },
};

static const probe_case floors[] = {
    { "empty kernel", &probe_empty, BY_HAND(raw_empty), true, false, false },
    { "empty, not cooperative", &probe_empty, BY_HAND(raw_empty), false, false, false },
    { "handshake", &probe_handshake, BY_HAND(raw_handshake), true, false, false },
    { "handshake, barrier", &probe_barrier, BY_HAND(raw_barrier), true, false, false },
    { "signal relaxed", &probe_ping_relaxed, BY_HAND(raw_ping_relaxed), false, false, true },
    { "signal release-acquire", &probe_ping, BY_HAND(raw_ping), false, false, true },
};

#define ROWS(table) (sizeof(table) / sizeof(table)[0])

/* All that a rank holds. */
typedef struct probe {
    perf_rank *rank;
    perf_sizes sizes;
    weir_shape shape;
    weir_memory *buffer; /* two regions of a size: the rank's own data at rank * bytes, and what it receives */
    weir_memory *peer_buffer;
    weir_memory *packets;
    weir_memory *peer_packets;
    weir_connection *connection;
    weir_semaphore *semaphore;
    weir_memory_channel *bulk;
    weir_memory_channel *packet;
    weir_grid_barrier *barrier;
    weir_grid_barrier *raw_barrier; /* counts in its own way */
    uint64_t *host;                 /* data to fill and check with */
    uint64_t seed;                  /* of the current run; the same on both ranks */
} probe;

/* One kernel of a case, recorded. */
typedef struct variant {
    probe_args args;
    perf_work work;
    void *graph;
    double us[RUNS];
} variant;

static uint64_t data_seed(const probe *p, uint32_t rank)
{
    return p->seed * PERF_RANKS + rank;
}

static weir_status refill(probe *p, uint64_t bytes)
{
    char *buffer = (char *)weir_memory_pointer(p->buffer);
    p->seed++;
    perf_fill(p->host, bytes / 8, data_seed(p, p->rank->rank));
    weir_status status = weir_device_copy(p->rank->device, buffer + p->rank->rank * bytes, p->host, bytes);
    if (status == WEIR_OK) {
        status = weir_device_fill(p->rank->device, buffer + p->rank->peer * bytes, 0, bytes);
    }
    return status;
}

static weir_status check(probe *p, const probe_case *test, uint64_t bytes)
{
    const char *received = (const char *)weir_memory_pointer(p->buffer) + p->rank->peer * bytes;
    weir_status status = weir_device_copy(p->rank->device, p->host, received, bytes);
    if (status != WEIR_OK) {
        return status;
    }
    uint64_t good = perf_check(p->host, bytes / 8, data_seed(p, p->rank->peer));
    if (good != bytes / 8) {
        return perf_fail(p->rank, WEIR_ERR_CORRUPT, "%s of %" PRIu64 " bytes: wrong data from byte %" PRIu64 " on",
                         test->name, bytes, good * 8);
    }
    return WEIR_OK;
}

/* How a run of launches that move `bytes` is cut into replays of a graph. By hand packets need two nodes. */
static void plan(const probe *p, uint64_t bytes, uint32_t *nodes, uint32_t *replays)
{
    uint32_t launches = p->rank->options->iters != 0 ? p->rank->options->iters : p->rank->gpu ? 1000u : 20u;
    uint32_t most = 250;
    if (bytes > LARGE_BYTES) {
        launches /= 25;
        most = 20;
    }
    launches = launches < 2 ? 2 : launches;
    *nodes = launches < most ? launches : most;
    *replays = launches / *nodes;
}

static void set_variant(const probe *p, const probe_case *test, bool raw, uint64_t bytes, uint32_t rounds, variant *v)
{
    memset(v, 0, sizeof *v);
    weir_memory_channel_device(test->packets ? p->packet : p->bulk, &v->args.channel);
    weir_grid_barrier_device(raw ? p->raw_barrier : p->barrier, &v->args.barrier);
    v->args.bytes = bytes;
    v->args.rank = p->rank->rank;
    v->args.rounds = rounds;
    v->work.kernel = raw ? test->raw : test->weir;
    v->work.cooperative = test->cooperative;
    v->work.args = &v->args;
    v->work.number = &v->args.flag;
    v->work.shape = p->shape;
    if (test->ping_pong) {
        v->work.shape.blocks = 1;
        v->work.shape.threads = p->rank->gpu ? 32 : 1;
    }
}

/* One run of one variant, on new data when it moves any. */
static weir_status run_once(probe *p, const probe_case *test, variant *v, uint32_t nodes, uint32_t replays,
                            uint32_t run)
{
    uint64_t bytes = v->args.bytes;
    weir_status status = bytes != 0 ? refill(p, bytes) : WEIR_OK;
    if (status == WEIR_OK) {
        status = perf_time(p->rank, v->graph, nodes, replays, &v->us[run]);
    }
    if (status == WEIR_OK && bytes != 0) {
        status = check(p, test, bytes);
    }
    return status;
}

/* Measures weir's kernel, and on a GPU the one by hand, and reports the row. */
static weir_status measure(probe *p, const char *table, const probe_case *test, uint64_t bytes)
{
    uint32_t count = p->rank->gpu ? 2 : 1;
    uint32_t rounds = !test->ping_pong ? 0 : p->rank->gpu ? 1000 : 50;
    uint32_t nodes = 2;
    uint32_t replays = 1;
    variant variants[2];
    weir_status status = WEIR_OK;
    if (!test->ping_pong) {
        plan(p, bytes, &nodes, &replays);
    }
    for (uint32_t i = 0; i < 2; i++) {
        set_variant(p, test, i == 1, bytes, rounds, &variants[i]);
    }
    for (uint32_t i = 0; i < count && status == WEIR_OK; i++) {
        status = perf_record(p->rank, &variants[i].work, nodes, &variants[i].graph);
    }
    for (uint32_t run = 0; run < RUNS; run++) {
        for (uint32_t i = count; i-- > 0 && status == WEIR_OK;) {
            status = run_once(p, test, &variants[i], nodes, replays, run);
        }
    }
    for (uint32_t i = 0; i < 2; i++) {
        if (variants[i].graph != NULL) {
            weir_graph_destroy(p->rank->device, variants[i].graph);
        }
    }
    if (status != WEIR_OK) {
        return status;
    }
    double parts = rounds != 0 ? 2.0 * rounds : 1.0; /* signals one after another in a launch */
    double weir_us = perf_median(variants[0].us, RUNS) / parts;
    double raw_us = count == 2 ? perf_median(variants[1].us, RUNS) / parts : NAN;
    perf_field fields[] = {
        perf_text("op", test->name),
        perf_count("bytes", bytes),
        perf_real("raw_us", raw_us, 3),
        perf_real("weir_us", weir_us, 3),
        perf_real("ratio", weir_us / raw_us, 3),
        perf_real("weir_gbps", bytes != 0 ? (double)bytes / weir_us / 1e3 : NAN, 3),
    };
    perf_row(p->rank->output, table, fields, ROWS(fields));
    return WEIR_OK;
}

/* ---- setup and the command ------------------------------------------------------------------------------------ */

/* Sends the local memory to the peer and receives the peer's. Each direction has a tag of its own. */
static weir_status exchange(probe *p, weir_memory *local, uint64_t tag, weir_memory **peer)
{
    weir_status status = weir_memory_send(p->rank->comm, local, p->rank->peer, tag + p->rank->rank);
    if (status == WEIR_OK) {
        status = weir_memory_recv(p->rank->comm, p->rank->peer, tag + p->rank->peer, peer);
    }
    return status;
}

static weir_status create_memories(probe *p, uint64_t largest)
{
    weir_comm *comm = p->rank->comm;
    weir_status status = weir_memory_allocate(comm, PERF_RANKS * largest, NULL, &p->buffer);
    if (status == WEIR_OK) {
        status = weir_memory_allocate(comm, 2 * largest, NULL, &p->packets); /* half of a packet is data */
    }
    if (status == WEIR_OK) {
        status = exchange(p, p->buffer, 0, &p->peer_buffer);
    }
    if (status == WEIR_OK) {
        status = exchange(p, p->packets, PERF_RANKS, &p->peer_packets);
    }
    return status;
}

static weir_status create_channels(probe *p)
{
    weir_comm *comm = p->rank->comm;
    weir_memory_channel_opts opts;
    memset(&opts, 0, sizeof opts);
    opts.size = sizeof opts;
    opts.packets = p->packets;
    weir_status status = weir_connection_create(comm, p->rank->peer, 2 * PERF_RANKS, NULL, &p->connection);
    if (status == WEIR_OK) {
        status = weir_semaphore_create(p->connection, 2 * PERF_RANKS, NULL, &p->semaphore);
    }
    if (status == WEIR_OK) {
        status = weir_memory_channel_create(p->semaphore, p->peer_buffer, p->buffer, NULL, &p->bulk);
    }
    if (status == WEIR_OK) {
        status = weir_memory_channel_create(p->semaphore, p->peer_packets, p->buffer, &opts, &p->packet);
    }
    if (status == WEIR_OK) {
        status = weir_grid_barrier_create(comm, &p->barrier);
    }
    if (status == WEIR_OK) {
        status = weir_grid_barrier_create(comm, &p->raw_barrier);
    }
    return status;
}

static weir_status load_kernels(const probe *p, const probe_case *tests, size_t count)
{
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < count && status == WEIR_OK; i++) {
        status = weir_kernel_load(p->rank->device, tests[i].weir);
        if (status == WEIR_OK && p->rank->gpu) {
            status = weir_kernel_load(p->rank->device, tests[i].raw);
        }
    }
    return status;
}

static weir_status choose_sizes(probe *p, uint64_t *largest)
{
    static const uint64_t gpu_sizes[] = { 1024, 1 << 20, 128 << 20 };
    static const uint64_t cpu_sizes[] = { 1024, 64 << 10, 1 << 20 };
    p->sizes = p->rank->options->sizes;
    if (p->sizes.count == 0) {
        memcpy(p->sizes.bytes, p->rank->gpu ? gpu_sizes : cpu_sizes, sizeof gpu_sizes);
        p->sizes.count = ROWS(gpu_sizes);
    }
    *largest = 0;
    for (uint32_t i = 0; i < p->sizes.count; i++) {
        if (p->sizes.bytes[i] % 16 != 0) {
            return perf_fail(p->rank, WEIR_ERR_INVALID, "sizes of the probe are multiples of 16, not %" PRIu64,
                             p->sizes.bytes[i]);
        }
        *largest = p->sizes.bytes[i] > *largest ? p->sizes.bytes[i] : *largest;
    }
    return WEIR_OK;
}

static weir_status report_facts(probe *p)
{
    perf_output *output = p->rank->output;
    const char *transport = weir_connection_transport(p->connection);
    weir_status status = perf_report_machine(p->rank);
    if (status != WEIR_OK) {
        return status;
    }
    weir_transport_info info;
    for (uint32_t i = 0; weir_transport_get(i, &info) == WEIR_OK; i++) {
        if (strcmp(info.name, transport) == 0) {
            perf_fact(output, "link", "%s: %s", transport, info.reason);
        }
    }
#if defined(__CUDACC__)
    perf_fact(output, "compiler", "nvcc %d.%d", __CUDACC_VER_MAJOR__, __CUDACC_VER_MINOR__);
#else
    perf_fact(output, "compiler", "C compiler %s", __VERSION__);
#endif
#if defined(WEIR_UNCHECKED_WAITS)
    perf_fact(output, "waits", "unchecked (built with WEIR_UNCHECKED_WAITS)");
#else
    perf_fact(output, "waits", "with deadline");
#endif
    perf_fact(output, "shape", "%" PRIu32 " blocks of %" PRIu32 " threads%s", p->shape.blocks, p->shape.threads,
              p->rank->options->plain ? "" : ", cooperative launches");
    perf_fact(output, "time", "us a launch in replayed graphs, longest of the ranks, median of %u runs", RUNS);
    return WEIR_OK;
}

static weir_status measure_all(probe *p)
{
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < ROWS(transfers); i++) {
        for (uint32_t k = 0; k < p->sizes.count && status == WEIR_OK; k++) {
            status = measure(p, "transfers, both ways at once", &transfers[i], p->sizes.bytes[k]);
        }
    }
    for (size_t i = 0; i < ROWS(floors) && status == WEIR_OK; i++) {
        status = measure(p, "floors (a signal: half a round trip)", &floors[i], 0);
    }
    return status;
}

static weir_status create_probe(probe *p)
{
    uint64_t largest = 0;
    weir_shape gpu_shape = { 32, 1024 };
    weir_shape cpu_shape = { 2, 4 };
    p->shape = perf_shape(p->rank, p->rank->gpu ? gpu_shape : cpu_shape);
    weir_status status = choose_sizes(p, &largest);
    if (status == WEIR_OK) {
        p->host = (uint64_t *)malloc(largest);
        if (p->host == NULL) {
            status = perf_fail(p->rank, WEIR_ERR_NOMEM, "no memory for %" PRIu64 " bytes", largest);
        }
    }
    if (status == WEIR_OK) {
        status = create_memories(p, largest);
    }
    if (status == WEIR_OK) {
        status = create_channels(p);
    }
    if (status == WEIR_OK) {
        status = load_kernels(p, transfers, ROWS(transfers));
    }
    if (status == WEIR_OK) {
        status = load_kernels(p, floors, ROWS(floors));
    }
    return status;
}

static void destroy_probe(probe *p)
{
    weir_grid_barrier_destroy(p->raw_barrier);
    weir_grid_barrier_destroy(p->barrier);
    weir_memory_channel_destroy(p->packet);
    weir_memory_channel_destroy(p->bulk);
    weir_semaphore_destroy(p->semaphore);
    weir_connection_destroy(p->connection);
    weir_memory_destroy(p->peer_packets);
    weir_memory_destroy(p->peer_buffer);
    weir_memory_destroy(p->packets);
    weir_memory_destroy(p->buffer);
    free(p->host);
}

static weir_status run_probe(perf_rank *rank)
{
    probe p;
    memset(&p, 0, sizeof p);
    p.rank = rank;
    weir_status status = create_probe(&p);
    if (status == WEIR_OK) {
        status = report_facts(&p);
    }
    if (status == WEIR_OK) {
        status = measure_all(&p);
    }
    if (status == WEIR_OK) {
        status = weir_bootstrap_barrier(rank->bootstrap, NULL); /* nobody frees what the other still uses */
    }
    destroy_probe(&p);
    return status;
}

const perf_command perf_probe = {
    "probe",
    "the generic device API against kernels written by hand",
    HAVE_GPU,
    run_probe,
};
