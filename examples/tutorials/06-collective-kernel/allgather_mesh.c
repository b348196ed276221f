/* allgather_mesh - your own allgather, without a weir_collective: a kernel with a memory channel to each peer.
 *
 *     allgather_mesh [<ranks>]      2 to 8; default: one for each GPU, or 4 on the CPU
 *
 * The ranks are threads, with a device each. Read the kernel first, then open_mesh. */
#include "../../common/ranks.h"

enum { RANKS_MAX = 8, PEERS_MAX = RANKS_MAX - 1, ROUNDS = 20, SIZES = 3 };

static const uint64_t gpu_sizes[SIZES] = { 1 << 10, 1 << 20, 64 << 20 }; /* bytes of each rank */
static const uint64_t cpu_sizes[SIZES] = { 1 << 10, 64 << 10, 1 << 20 };

/* ---- the kernel --------------------------------------------------------------------------------------- */

typedef struct gather_args {
    const weir_dev_memory_channel *channels; /* in device memory, one for each peer */
    uint64_t bytes;                          /* of each rank */
    uint64_t rank;
} gather_args;

/* A block for each peer. The buffer has a part for each rank. This rank's part is there already, and each block puts it
 * into its peer's buffer. When all blocks have waited, all other parts have come. The kernel ignores statuses: after
 * the first error of a communicator all its waits end, and weir_comm_wait returns it. */
WEIR_KERNEL(allgather_mesh, gather_args)
{
    const weir_dev_memory_channel *channel = &args->channels[coop.block];
    const weir_coop block = weir_coop_block(coop);
    const uint64_t offset = args->rank * args->bytes;
    if (block.rank == 0) { /* the peer's kernel before this one has ended: its buffer may be written */
        weir_dev_memory_channel_signal_relaxed(channel);
        (void)weir_dev_memory_channel_wait_relaxed(channel);
    }
    (void)weir_coop_sync(block);
    (void)weir_dev_memory_channel_put(channel, offset, offset, args->bytes, block);
    (void)weir_coop_sync(block); /* all threads of the block have written */
    if (block.rank == 0) {
        weir_dev_memory_channel_signal(channel);
        (void)weir_dev_memory_channel_wait(channel);
    }
}

/* ---- a rank and its objects ---------------------------------------------------------------------------- */

typedef struct worker {
    rank_job job;
    const uint64_t *sizes;
    weir_memory *buffer;
    weir_memory *handles; /* what kernels need of the channels */
    weir_memory_channel *channels[PEERS_MAX];
} worker;

/* Makes a channel to each other rank, and puts the handles of the channels into device memory. Each call waits for the
 * peer's call. All ranks take their peers in ascending order, so no set of ranks waits for each other in a circle. */
static bool open_mesh(worker *w)
{
    const rank_job *job = &w->job;
    weir_dev_memory_channel handles[PEERS_MAX];
    uint32_t count = 0;
    for (uint32_t peer = 0; peer < job->ranks; peer++) {
        if (peer == job->rank) {
            continue;
        }
        if (!ok(job, weir_memory_channel_connect(job->comm, peer, 0, w->buffer, NULL, &w->channels[count]))) {
            return false;
        }
        weir_memory_channel_device(w->channels[count], &handles[count]);
        count++;
    }
    return ok(job, weir_memory_allocate(job->comm, sizeof handles, NULL, &w->handles)) &&
           ok(job, weir_device_copy(job->device, weir_memory_pointer(w->handles), handles, count * sizeof handles[0]));
}

static bool set_up(worker *w, const rank_start *start)
{
    const rank_job *job = &w->job;
    memset(w, 0, sizeof *w);
    if (!job_open(start, &w->job)) {
        return false;
    }
    w->sizes = job->on_cpu ? cpu_sizes : gpu_sizes;
    return ok(job, weir_memory_allocate(job->comm, job->ranks * w->sizes[SIZES - 1], NULL, &w->buffer)) &&
           open_mesh(w) && ok(job, weir_kernel_load(job->device, &allgather_mesh)) && job_meet(job);
}

/* Channels go first, because they map the peers' memory. After the barrier no peer maps this rank's buffer. */
static bool take_down(worker *w)
{
    for (uint32_t i = 0; i + 1 < w->job.ranks; i++) {
        weir_memory_channel_destroy(w->channels[i]);
    }
    if (!job_meet(&w->job)) {
        return false;
    }
    weir_memory_destroy(w->handles);
    weir_memory_destroy(w->buffer);
    job_close(&w->job);
    return true;
}

/* ---- checked and timed --------------------------------------------------------------------------------- */

static uint64_t word_of(uint64_t rank, uint64_t bytes, uint64_t index)
{
    uint64_t word = (index + 1) * 0x9e3779b97f4a7c15u + rank * 0xd1342543de82ef95u + bytes;
    return word ^ word >> 29;
}

/* This rank's part is new, and the others are wrong in every bit. */
static bool prepare(worker *w, uint64_t *words, uint64_t bytes)
{
    const rank_job *job = &w->job;
    const uint64_t count = bytes / 8;
    for (uint64_t rank = 0; rank < job->ranks; rank++) {
        for (uint64_t i = 0; i < count; i++) {
            const uint64_t word = word_of(rank, bytes, i);
            words[rank * count + i] = rank == job->rank ? word : ~word;
        }
    }
    return ok(job, weir_device_copy(job->device, weir_memory_pointer(w->buffer), words, job->ranks * bytes)) &&
           job_meet(job);
}

static bool compare(worker *w, uint64_t *words, uint64_t bytes)
{
    const rank_job *job = &w->job;
    const uint64_t count = bytes / 8;
    uint64_t wrong = 0;
    if (!ok(job, weir_device_copy(job->device, words, weir_memory_pointer(w->buffer), job->ranks * bytes))) {
        return false;
    }
    for (uint64_t i = 0; i < job->ranks * count; i++) {
        wrong += words[i] != word_of(i / count, bytes, i % count);
    }
    if (wrong != 0) {
        fprintf(stderr, "Rank %" PRIu32 ": %" PRIu64 " of %" PRIu64 " words are wrong\n", job->rank, wrong,
                job->ranks * count);
    }
    return wrong == 0;
}

static bool gather(worker *w, uint64_t *words, uint64_t bytes)
{
    /* A block for each peer; all of them run at the same time, on the CPU too. */
    const rank_job *job = &w->job;
    const weir_shape shape = { job->ranks - 1, job->on_cpu ? 2u : 1024u };
    const gather_args args = { (const weir_dev_memory_channel *)weir_memory_pointer(w->handles), bytes, job->rank };
    double ms = 0;
    bool fine = prepare(w, words, bytes) && ok(job, weir_event_record(job->device, job->begin, job->stream));
    for (int i = 0; i < ROUNDS && fine; i++) {
        fine = ok(job, weir_launch(job->device, &allgather_mesh, shape, &args, NULL, job->stream));
    }
    fine = fine && ok(job, weir_event_record(job->device, job->end, job->stream)) &&
           ok(job, weir_comm_wait(job->comm, job->stream, 0)) &&
           ok(job, weir_event_elapsed(job->device, job->begin, job->end, &ms));
    if (fine && compare(w, words, bytes)) {
        printf("Rank %" PRIu32 " (%s): %" PRIu64 " bytes of each of %" PRIu32 " ranks, %.2f us\n", job->rank,
               job->label, bytes, job->ranks, 1000 * ms / ROUNDS);
        return true;
    }
    return false;
}

static bool run_rank(const rank_start *start)
{
    worker w;
    bool good = set_up(&w, start);
    uint64_t *words = good ? (uint64_t *)malloc(w.job.ranks * w.sizes[SIZES - 1]) : NULL;
    good = words != NULL;
    for (int i = 0; i < SIZES && good; i++) {
        good = gather(&w, words, w.sizes[i]);
    }
    free(words);
    return job_end(&w.job, good && take_down(&w));
}

int main(int argc, char **argv)
{
    uint32_t gpus = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!ranks_count_gpus(&allgather_mesh, &gpus)) {
        return 1;
    }
    const uint32_t usual = gpus < 2 ? 4 : gpus < RANKS_MAX ? gpus : (uint32_t)RANKS_MAX;
    const unsigned long ranks = argc > 1 ? strtoul(argv[1], NULL, 10) : usual;
    if (argc > 2 || ranks < 2 || ranks > RANKS_MAX) {
        fprintf(stderr, "usage: allgather_mesh [<ranks>], 2 to %d\n", RANKS_MAX);
        return 2;
    }
    if (!ranks_run_threads((uint32_t)ranks, gpus, run_rank)) {
        return 1;
    }
    printf("Succeed!\n");
    return 0;
}
