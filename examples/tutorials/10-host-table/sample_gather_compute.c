/* sample_gather_compute - a training loop whose table lies in host memory: sample ids, gather their rows, compute.
 *
 *     sample_gather_compute [--streams [--multiprocessors <n>]] [--allocate]       ranks are threads of one process
 *     sample_gather_compute --processes [--mps <percent>] [--allocate]             ranks are processes
 *
 * Each GPU has two ranks: a trainer, which samples and computes, and a feeder, which gathers. All of them use one copy
 * of the table. While the trainer computes with batch b, the feeder gathers batch b + 1: there are two buffers of ids
 * and two of rows. The ranks put the kernels of all batches on their streams ahead of time. A kernel of one thread in
 * front of each batch waits for the other rank's semaphore, so the host takes no part in the loop.
 *
 * Read the kernels first, then train and feed. */
#include "../../common/ranks.h"

#include <time.h>

#include <weir/device/semaphore.h>
#include <weir/table.h>

enum { COLUMNS = 128, TAG = 1 };

#define ROW_BYTES (COLUMNS * sizeof(uint32_t))

static struct {
    bool processes;
    bool allocate;            /* another thread of the trainer's process allocates memory all the time */
    uint32_t multiprocessors; /* of the feeder's stream */
    uint32_t mps;             /* percent of the multiprocessors for the feeder; 0: without MPS */
    uint32_t gpus;
} settings;

/* ---- the kernels --------------------------------------------------------------------------------------- */

typedef struct loop_args {
    weir_dev_semaphore semaphore; /* between the trainer and the feeder */
    uint32_t *table;              /* of fill */
    int32_t *ids;
    const uint32_t *rows;
    uint64_t *wrong;  /* words; in host memory */
    float *results;   /* one for each thread of compute */
    uint64_t nodes;   /* rows of the table */
    uint32_t samples; /* of a batch */
    uint32_t batch;
    uint32_t work; /* multiplications for each word */
} loop_args;

/* Row `node` of the table has these words. */
WEIR_FN uint32_t word_of(uint64_t node, uint32_t column)
{
    return (uint32_t)((node * COLUMNS + column + 1) * 0x9e3779b97f4a7c15u >> 32);
}

WEIR_FN int32_t node_of(const loop_args *args, uint64_t i)
{
    return (int32_t)(((args->batch * (uint64_t)args->samples + i + 1) * 0xd1b54a32d192ed03u >> 20) % args->nodes);
}

WEIR_KERNEL(fill, loop_args)
{
    for (uint64_t i = coop.rank; i < args->nodes * COLUMNS; i += coop.size) {
        args->table[i] = word_of(i / COLUMNS, (uint32_t)(i % COLUMNS));
    }
}

/* Stands for a sampler of neighbours. */
WEIR_KERNEL(sample, loop_args)
{
    for (uint64_t i = coop.rank; i < args->samples; i += coop.size) {
        args->ids[i] = node_of(args, i);
    }
}

/* Stands for a model. Checks every word of every row, too. */
WEIR_KERNEL(compute, loop_args)
{
    uint64_t wrong = 0;
    float sum = 0;
    for (uint64_t i = coop.rank; i < (uint64_t)args->samples * COLUMNS; i += coop.size) {
        const uint32_t word = args->rows[i];
        wrong += word != word_of((uint64_t)node_of(args, i / COLUMNS), (uint32_t)(i % COLUMNS));
        float value = (float)(word & 0xff);
        for (uint32_t k = 0; k < args->work; k++) {
            value = value * 0.5f + 1.0f;
        }
        sum += value;
    }
    args->results[coop.rank] = sum;
    if (wrong != 0) {
        weir_arch_add_relaxed_sys_u64(args->wrong, wrong);
    }
}

/* A wait that fails leaves its error in the communicator, and weir_comm_wait returns it. */
WEIR_KERNEL(await, loop_args)
{
    if (coop.rank == 0) {
        (void)weir_dev_semaphore_wait(&args->semaphore);
    }
}

WEIR_KERNEL(announce, loop_args)
{
    if (coop.rank == 0) {
        weir_dev_semaphore_signal(&args->semaphore);
    }
}

/* ---- what a rank has ------------------------------------------------------------------------------------ */

typedef struct loop {
    rank_job job;
    uint32_t partner;    /* the feeder of this trainer, or the trainer of this feeder */
    weir_memory *memory; /* of the table: of rank 0, mapped by the others */
    weir_memory *ids;    /* two buffers each; the trainer's, mapped by the feeder */
    weir_memory *rows;
    weir_memory *wrong;
    weir_memory *results;
    weir_connection *connection;
    weir_semaphore *semaphore;
    weir_table *table; /* of the feeder */
    weir_shape shape;
    weir_shape compute; /* of the kernel of that name */
    uint32_t batches;
    loop_args args;
} loop;

static bool launch(const loop *l, const weir_kernel *kernel, weir_shape shape)
{
    return ok(&l->job, weir_launch(l->job.device, kernel, shape, &l->args, NULL, l->job.stream));
}

static bool launch_one(const loop *l, const weir_kernel *kernel)
{
    const weir_shape one = { 1, 1 };
    return launch(l, kernel, one);
}

static bool finish(const loop *l) { return ok(&l->job, weir_comm_wait(l->job.comm, l->job.stream, 0)); }

/* Rank 0 allocates the table, and all others map that one copy. */
static bool share_table(loop *l)
{
    const rank_job *job = &l->job;
    weir_memory_opts host = WEIR_OPTS(weir_memory_opts);
    host.kind = WEIR_MEMORY_HOST;
    host.huge_pages = true;
    host.touch_threads = 4;
    if (job->rank != 0) {
        return ok(job, weir_memory_recv(job->comm, 0, TAG, &l->memory)) && job_meet(job);
    }
    bool good = ok(job, weir_memory_allocate(job->comm, l->args.nodes * ROW_BYTES, &host, &l->memory));
    for (uint32_t i = 1; good && i < job->ranks; i++) {
        good = ok(job, weir_memory_send(job->comm, l->memory, i, TAG));
    }
    if (good) {
        l->args.table = (uint32_t *)weir_memory_pointer(l->memory);
    }
    return good && launch(l, &fill, l->shape) && finish(l) && job_meet(job);
}

/* The trainer has the buffers, and the feeder maps them. */
static bool share_buffers(loop *l)
{
    const rank_job *job = &l->job;
    weir_memory_opts host = WEIR_OPTS(weir_memory_opts);
    host.kind = WEIR_MEMORY_HOST;
    const uint64_t samples = l->args.samples;
    if (job->rank % 2 == 1) {
        return ok(job, weir_memory_recv(job->comm, l->partner, TAG + 1, &l->ids)) &&
               ok(job, weir_memory_recv(job->comm, l->partner, TAG + 2, &l->rows));
    }
    const uint64_t threads = (uint64_t)l->compute.blocks * l->compute.threads;
    return ok(job, weir_memory_allocate(job->comm, 2 * samples * sizeof(int32_t), NULL, &l->ids)) &&
           ok(job, weir_memory_allocate(job->comm, 2 * samples * ROW_BYTES, NULL, &l->rows)) &&
           ok(job, weir_memory_allocate(job->comm, sizeof(uint64_t), &host, &l->wrong)) &&
           ok(job, weir_memory_allocate(job->comm, threads * sizeof(float), NULL, &l->results)) &&
           ok(job, weir_memory_send(job->comm, l->ids, l->partner, TAG + 1)) &&
           ok(job, weir_memory_send(job->comm, l->rows, l->partner, TAG + 2));
}

/* A stream of few multiprocessors, in place of the ordinary one. */
static bool limit_stream(loop *l, uint32_t multiprocessors)
{
    weir_stream_limits limits = WEIR_OPTS(weir_stream_limits);
    void *limited = NULL;
    limits.multiprocessors = multiprocessors;
    weir_status status = weir_stream_create_limited(l->job.device, &limits, &limited);
    if (status == WEIR_ERR_UNSUPPORTED) {
        printf("Rank %" PRIu32 " has an ordinary stream: %s\n", l->job.rank, weir_last_error());
        return true;
    }
    if (ok(&l->job, status)) {
        weir_stream_destroy(l->job.device, l->job.stream);
        l->job.stream = limited;
    }
    return status == WEIR_OK;
}

/* The feeder takes a few multiprocessors, and the trainer all others. A GPU rounds the feeder's number up, so the
 * feeder says how many it has. */
static bool divide_gpu(loop *l, uint32_t total)
{
    const rank_job *job = &l->job;
    uint32_t taken = 0;
    if (settings.processes) {
        return true;
    }
    if (job->rank % 2 == 1) {
        const bool good = limit_stream(l, settings.multiprocessors);
        taken = weir_stream_multiprocessors(job->device, job->stream);
        return good && ok(job, weir_bootstrap_send(job->bootstrap, &taken, sizeof taken, l->partner, TAG));
    }
    return ok(job, weir_bootstrap_recv(job->bootstrap, &taken, sizeof taken, l->partner, TAG)) &&
           (taken >= total || limit_stream(l, total - taken));
}

static bool make_table(loop *l)
{
    weir_table_part part;
    memset(&part, 0, sizeof part);
    part.memory = l->memory;
    part.count = l->args.nodes;
    return ok(&l->job, weir_table_create(l->job.device, ROW_BYTES, &part, 1, NULL, &l->table));
}

static bool set_up(loop *l)
{
    const rank_job *job = &l->job;
    weir_device_info info;
    weir_device_get_info(job->device, &info, sizeof info);
    l->partner = job->rank ^ 1;
    if (!divide_gpu(l, info.multiprocessors)) {
        return false;
    }
    const weir_shape gpu = { weir_stream_multiprocessors(job->device, job->stream), 512 };
    const weir_shape cpu = { 2, 2 };
    l->shape = weir_device_fit_shape(job->device, job->on_cpu ? cpu : gpu);
    /* Many short blocks. Under MPS the feeder's blocks may have multiprocessors of the trainer's share. If there was a
     * block for each, those that found none would go to others, two to one, and the kernel would take twice as long. */
    const weir_shape many = { 32 * gpu.blocks, 256 };
    l->compute = job->on_cpu ? l->shape : many;
    l->args.nodes = job->on_cpu ? 4096 : 1 << 20;
    l->args.samples = job->on_cpu ? 500 : 100000;
    l->args.work = job->on_cpu ? 16 : 2500;
    l->batches = job->on_cpu ? 20 : 100;
    const weir_kernel *const kernels[] = { &fill, &sample, &compute, &await, &announce };
    for (uint32_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        /* A first launch would load the kernel's code, which may wait for a kernel that spins. */
        if (!ok(job, weir_kernel_load(job->device, kernels[i]))) {
            return false;
        }
    }
    if (!share_table(l) || !share_buffers(l) || (job->rank % 2 == 1 && !make_table(l)) ||
        !ok(job, weir_connection_create(job->comm, l->partner, TAG, NULL, &l->connection)) ||
        !ok(job, weir_semaphore_create(l->connection, TAG, NULL, &l->semaphore)) ||
        !ok(job, weir_semaphore_device(l->semaphore, &l->args.semaphore))) {
        return false;
    }
    l->args.wrong = (uint64_t *)weir_memory_pointer(l->wrong);
    l->args.results = (float *)weir_memory_pointer(l->results);
    return true;
}

static void tear_down(loop *l)
{
    weir_table_destroy(l->table);
    weir_semaphore_destroy(l->semaphore);
    weir_connection_destroy(l->connection);
    weir_memory_destroy(l->results);
    weir_memory_destroy(l->wrong);
    /* The memories that a rank maps end before those of their owner. */
    for (uint32_t owner = 0; owner < 2; owner++) {
        if ((l->job.rank % 2 == 0) == (owner == 1)) {
            weir_memory_destroy(l->rows);
            weir_memory_destroy(l->ids);
        }
        if ((l->job.rank == 0) == (owner == 1)) {
            weir_memory_destroy(l->memory);
        }
        (void)job_meet(&l->job);
    }
    job_close(&l->job);
}

/* ---- the loop ------------------------------------------------------------------------------------------- */

static void set_batch(loop *l, uint32_t batch)
{
    const uint64_t samples = l->args.samples;
    l->args.batch = batch;
    l->args.ids = (int32_t *)weir_memory_pointer(l->ids) + batch % 2 * samples;
    l->args.rows = (const uint32_t *)weir_memory_pointer(l->rows) + batch % 2 * samples * COLUMNS;
}

static bool put_sample(loop *l, uint32_t batch)
{
    set_batch(l, batch);
    return launch(l, &sample, l->shape) && launch_one(l, &announce);
}

/* The trainer. If it samples batch b + 1 before it computes with batch b, the feeder gathers b + 1 meanwhile. Sampling
 * b + 1 also says that both buffers of b + 1 are free: batch b - 1 was gathered and computed before. */
static bool train(loop *l, bool overlapped)
{
    bool good = !overlapped || put_sample(l, 0);
    for (uint32_t b = 0; good && b < l->batches; b++) {
        good = overlapped ? b + 1 == l->batches || put_sample(l, b + 1) : put_sample(l, b);
        good = good && launch_one(l, &await);
        set_batch(l, b);
        good = good && launch(l, &compute, l->compute);
    }
    return good;
}

static bool gather(loop *l)
{
    return ok(&l->job, weir_table_gather(l->table, l->args.ids, WEIR_IDS_I32, l->args.samples, (void *)l->args.rows,
                                         NULL, l->job.stream));
}

/* The feeder is the same in both cases. */
static bool feed(loop *l)
{
    bool good = true;
    for (uint32_t b = 0; good && b < l->batches; b++) {
        set_batch(l, b);
        good = launch_one(l, &await) && gather(l) && launch_one(l, &announce);
    }
    return good;
}

/* ---- times ---------------------------------------------------------------------------------------------- */

static bool begin(const loop *l) { return ok(&l->job, weir_event_record(l->job.device, l->job.begin, l->job.stream)); }

static bool end(const loop *l) { return ok(&l->job, weir_event_record(l->job.device, l->job.end, l->job.stream)); }

/* Waits; milliseconds from begin to end, for each batch. */
static bool elapsed(const loop *l, double *ms)
{
    *ms = 0;
    if (!finish(l) || !ok(&l->job, weir_event_elapsed(l->job.device, l->job.begin, l->job.end, ms))) {
        return false;
    }
    *ms /= l->batches;
    return true;
}

/* A rank's own part of the loop, without the other rank. */
static bool time_alone(loop *l, double *ms)
{
    bool good = begin(l);
    set_batch(l, l->batches - 1); /* its ids and rows are there */
    for (uint32_t b = 0; good && b < l->batches; b++) {
        good = l->job.rank % 2 == 0 ? launch(l, &compute, l->compute) : gather(l);
    }
    return good && end(l) && elapsed(l, ms);
}

/* Allocates and frees memory while `data` is true, as a framework's allocator does beside the loop. */
static void *allocate_all_the_time(void *data)
{
    const bool *on = (const bool *)data;
    const struct timespec pause = { 0, 100000 };
    while (__atomic_load_n(on, __ATOMIC_RELAXED)) {
#if defined(__CUDACC__)
        void *memory = NULL;
        if (settings.gpus != 0 && cudaMalloc(&memory, 1 << 20) == cudaSuccess) {
            (void)cudaFree(memory);
        }
#endif
        void *more = malloc(1 << 20);
        free(more);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static bool run_loop(loop *l, bool overlapped, double *ms)
{
    const rank_job *job = &l->job;
    const bool trainer = job->rank % 2 == 0;
    bool on = true;
    pthread_t allocator;
    bool good = job_meet(job) && begin(l) && (trainer ? train(l, overlapped) : feed(l)) && end(l);
    /* cudaFree waits for the kernels of its process, and a launch waits for cudaFree. So all kernels are on the streams
     * before it begins. */
    good = job_meet(job) && good;
    const bool allocates =
        trainer && settings.allocate && pthread_create(&allocator, NULL, allocate_all_the_time, &on) == 0;
    good = good && elapsed(l, ms);
    if (allocates) {
        __atomic_store_n(&on, false, __ATOMIC_RELAXED);
        pthread_join(allocator, NULL);
    }
    return good;
}

static bool check(const loop *l)
{
    const uint64_t wrong = *(const uint64_t *)weir_memory_host_pointer(l->wrong);
    if (wrong != 0) {
        fprintf(stderr, "Rank %" PRIu32 ": %" PRIu64 " words of the gathered rows are wrong\n", l->job.rank, wrong);
    }
    return wrong == 0;
}

static bool run(const rank_start *start)
{
    loop l;
    double sequential = 0, overlapped = 0, alone = 0;
    memset(&l, 0, sizeof l);
    if (!job_open(start, &l.job)) {
        return job_end(&l.job, false);
    }
    const bool trainer = l.job.rank % 2 == 0;
    bool good = set_up(&l) && run_loop(&l, false, &sequential) && run_loop(&l, true, &overlapped) && job_meet(&l.job) &&
                (!trainer || time_alone(&l, &alone)) && job_meet(&l.job) && (trainer || time_alone(&l, &alone)) &&
                job_meet(&l.job) && (!trainer || check(&l));
    if (good && trainer) {
        printf(
            "Trainer (%s): %.3f ms a batch one after the other, %.3f ms overlapped; compute alone %.3f ms, on %" PRIu32
            " multiprocessors\n",
            l.job.label, sequential, overlapped, alone, weir_stream_multiprocessors(l.job.device, l.job.stream));
    } else if (good) {
        printf("Feeder (%s): gather alone %.3f ms, %.1f GB/s, on %" PRIu32 " multiprocessors\n", l.job.label, alone,
               (double)l.args.samples * ROW_BYTES / alone / 1e6,
               weir_stream_multiprocessors(l.job.device, l.job.stream));
    }
    good = job_end(&l.job, good && job_meet(&l.job)); /* a rank that failed ends here */
    tear_down(&l);
    return good;
}

/* ---- MPS ------------------------------------------------------------------------------------------------ */

/* Removes the folder of the daemon, and what named it. */
static void mps_remove(const char *folder)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    (void)!system(command);
    unsetenv("CUDA_MPS_PIPE_DIRECTORY");
    unsetenv("CUDA_MPS_LOG_DIRECTORY");
}

/* Starts a daemon for this program alone, in a new folder. Without MPS the processes take turns on the GPU. */
static bool mps_start(char *folder)
{
    const bool made = settings.gpus != 0 && mkdtemp(folder) != NULL;
    if (made && setenv("CUDA_MPS_PIPE_DIRECTORY", folder, 1) == 0 && setenv("CUDA_MPS_LOG_DIRECTORY", folder, 1) == 0 &&
        system("nvidia-cuda-mps-control -d >/dev/null 2>&1") == 0) {
        return true;
    }
    printf("There is no MPS here: the ranks run without it\n");
    if (made) {
        mps_remove(folder);
    }
    return false;
}

static void mps_stop(const char *folder)
{
    if (system("echo quit | nvidia-cuda-mps-control >/dev/null 2>&1") != 0) {
        fprintf(stderr, "nvidia-cuda-mps-control quit: failed\n");
    }
    mps_remove(folder);
}

/* ---- starting the ranks --------------------------------------------------------------------------------- */

/* Both ranks of a pair use the same GPU. */
static void set_start(rank_start *start, const char *where, uint32_t rank)
{
    memset(start, 0, sizeof *start);
    start->where = where;
    start->rank = rank;
    start->ranks = settings.gpus > 1 ? 4 : 2;
    snprintf(start->device, sizeof start->device, "%s:%" PRIu32, settings.gpus != 0 ? "gpu" : "cpu",
             settings.gpus != 0 ? rank / 2 : rank);
}

static void *run_thread(void *context)
{
    rank_thread *thread = (rank_thread *)context;
    thread->good = run(&thread->start);
    return NULL;
}

static bool run_threads(uint32_t ranks)
{
    rank_thread threads[4];
    weir_unique_id id;
    bool good = rank_ok(0, weir_unique_id_create("127.0.0.1", &id));
    for (uint32_t i = 0; good && i < ranks; i++) {
        set_start(&threads[i].start, id.text, i);
        if (pthread_create(&threads[i].thread, NULL, run_thread, &threads[i]) != 0) {
            perror("starting a thread");
            _Exit(1); /* the ranks that have begun wait for this one */
        }
    }
    for (uint32_t i = 0; good && i < ranks; i++) {
        pthread_join(threads[i].thread, NULL);
    }
    for (uint32_t i = 0; good && i < ranks; i++) {
        good = threads[i].good;
    }
    return good;
}

/* Starts this program again for one rank. MPS reads the share of a process from its environment. */
static pid_t start_process(uint32_t rank, char **arguments, bool mps)
{
    char number[16];
    char share[16];
    snprintf(number, sizeof number, "%" PRIu32, rank);
    snprintf(share, sizeof share, "%" PRIu32, rank % 2 == 1 ? settings.mps : 100 - settings.mps);
    pid_t pid = fork();
    if (pid == 0) {
        if (setenv("SAMPLE_GATHER_COMPUTE_RANK", number, 1) == 0 &&
            (!mps || setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", share, 1) == 0)) {
            execv("/proc/self/exe", arguments);
        }
        _exit(127);
    }
    return pid;
}

/* When a rank fails, the others receive its error and end, too. */
static bool run_processes(uint32_t ranks, char **arguments)
{
    char folder[] = "/tmp/weir-mps-XXXXXX";
    weir_unique_id id;
    if (!rank_ok(0, weir_unique_id_create("127.0.0.1", &id))) {
        return false;
    }
    weir_unique_id_discard(&id); /* rank 0 opens the port again, in its process */
    const bool mps = settings.mps != 0 && mps_start(folder);
    bool good = setenv("WEIR_UNIQUE_ID", id.text, 1) == 0;
    uint32_t begun = 0;
    for (; good && begun < ranks; begun++) {
        good = start_process(begun, arguments, mps) > 0;
    }
    for (uint32_t i = 0; i < begun; i++) {
        int status = 0;
        (void)wait(&status);
        good = status == 0 && good;
    }
    if (mps) {
        mps_stop(folder);
    }
    return good;
}

static bool parse(int count, char **arguments)
{
    bool good = true;
    settings.multiprocessors = 8;
    for (int i = 1; i < count; i++) {
        const bool has_value = i + 1 < count && atoi(arguments[i + 1]) > 0;
        if (strcmp(arguments[i], "--processes") == 0) {
            settings.processes = true;
        } else if (strcmp(arguments[i], "--allocate") == 0) {
            settings.allocate = true;
        } else if (strcmp(arguments[i], "--multiprocessors") == 0 && has_value) {
            settings.multiprocessors = (uint32_t)atoi(arguments[++i]);
        } else if (strcmp(arguments[i], "--mps") == 0 && has_value) {
            settings.mps = (uint32_t)atoi(arguments[++i]);
        } else {
            good = good && strcmp(arguments[i], "--streams") == 0;
        }
    }
    good = good && settings.mps < 100 && (settings.processes || settings.mps == 0);
    if (!good) {
        fprintf(stderr,
                "usage: %s [--streams [--multiprocessors <n>]] [--allocate]\n"
                "       %s --processes [--mps <percent>] [--allocate]\n",
                arguments[0], arguments[0]);
    }
    return good;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!parse(argc, argv)) {
        return 2;
    }
    if (!ranks_count_gpus(&fill, &settings.gpus)) {
        return 1;
    }
    const char *rank = getenv("SAMPLE_GATHER_COMPUTE_RANK");
    if (settings.processes && rank != NULL) {
        rank_start start;
        set_start(&start, getenv("WEIR_UNIQUE_ID"), (uint32_t)atoi(rank));
        return run(&start) ? 0 : 1;
    }
    const uint32_t ranks = settings.gpus > 1 ? 4 : 2;
    const bool good = settings.processes ? run_processes(ranks, argv) : run_threads(ranks);
    if (good) {
        printf("Succeed!\n");
    }
    return good ? 0 : 1;
}
