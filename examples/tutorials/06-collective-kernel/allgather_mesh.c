/* allgather_mesh - an allgather of one's own, without a weir_collective: a kernel with a memory channel to each peer.
 *
 *     allgather_mesh [<ranks>]      2 to 8; default: one for each GPU, or 4 on the CPU
 *
 * The ranks are threads, with a device each. Read the kernel first, then make_mesh. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/device/kernel.h>
#include <weir/weir.h>

enum { RANKS_MAX = 8, PEERS_MAX = RANKS_MAX - 1, ROUNDS = 20, SIZES = 3 };

static const uint64_t gpu_sizes[SIZES] = { 1 << 10, 1 << 20, 64 << 20 }; /* bytes of each rank */
static const uint64_t cpu_sizes[SIZES] = { 1 << 10, 64 << 10, 1 << 20 };

/* ---- the kernel --------------------------------------------------------------------------------------- */

typedef struct gather_args {
    const weir_dev_memory_channel *channels; /* in device memory, one for each peer */
    uint64_t bytes;                          /* of each rank */
    uint64_t rank;
} gather_args;

/* A block for each peer. The buffer has a part for each rank; this rank's own is there already, and each block puts it
 * into its peer's buffer. When all blocks have waited, all other parts have come. Errors need no look: after the first
 * one of a communicator all its waits end, and weir_comm_wait returns it. */
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

typedef struct link_to {
    weir_connection *connection;
    weir_semaphore *semaphore;
    weir_memory *remote; /* the peer's buffer */
    weir_memory_channel *channel;
} link_to;

typedef struct worker {
    const char *id;
    char device_name[16];
    uint32_t rank;
    uint32_t ranks;
    const uint64_t *sizes;

    weir_device *device;
    weir_bootstrap *bootstrap;
    weir_comm *comm;
    weir_memory *buffer;
    weir_memory *handles; /* what kernels need of the channels */
    link_to links[PEERS_MAX];
    void *stream, *begin, *end;
} worker;

static bool ok(const worker *w, weir_status status)
{
    if (status != WEIR_OK) {
        fprintf(stderr, "Rank %" PRIu32 ": %s: %s\n", w->rank, weir_status_name(status), weir_last_error());
    }
    return status == WEIR_OK;
}

/* Joins this rank to one peer. */
static bool make_link(worker *w, uint32_t peer, link_to *l)
{
    return ok(w, weir_memory_send(w->comm, w->buffer, peer, 0)) &&
           ok(w, weir_memory_recv(w->comm, peer, 0, &l->remote)) &&
           ok(w, weir_connection_create(w->comm, peer, 0, NULL, &l->connection)) &&
           ok(w, weir_semaphore_create(l->connection, 0, NULL, &l->semaphore)) &&
           ok(w, weir_memory_channel_create(l->semaphore, l->remote, w->buffer, NULL, &l->channel));
}

/* Joins this rank to all others, and puts the handles of the channels into device memory. The calls wait for the peer:
 * since all ranks take their peers in ascending order, no circle of ranks waits for each other. */
static bool make_mesh(worker *w)
{
    weir_dev_memory_channel handles[PEERS_MAX];
    uint32_t count = 0;
    for (uint32_t peer = 0; peer < w->ranks; peer++) {
        if (peer == w->rank) {
            continue;
        }
        if (!make_link(w, peer, &w->links[count])) {
            return false;
        }
        weir_memory_channel_device(w->links[count].channel, &handles[count]);
        count++;
    }
    return ok(w, weir_memory_allocate(w->comm, sizeof handles, NULL, &w->handles)) &&
           ok(w, weir_device_copy(w->device, weir_memory_pointer(w->handles), handles, count * sizeof handles[0]));
}

static bool set_up(worker *w)
{
    const uint64_t bytes = w->ranks * w->sizes[SIZES - 1];
    return ok(w, weir_device_open(w->device_name, NULL, &w->device)) &&
           ok(w, weir_bootstrap_create(w->id, w->rank, w->ranks, NULL, &w->bootstrap)) &&
           ok(w, weir_comm_create(w->bootstrap, w->device, NULL, &w->comm)) &&
           ok(w, weir_memory_allocate(w->comm, bytes, NULL, &w->buffer)) && make_mesh(w) &&
           ok(w, weir_stream_create(w->device, &w->stream)) && ok(w, weir_event_create(w->device, &w->begin)) &&
           ok(w, weir_event_create(w->device, &w->end)) && ok(w, weir_kernel_load(w->device, &allgather_mesh)) &&
           ok(w, weir_bootstrap_barrier(w->bootstrap, NULL));
}

/* What is mapped from the peers goes first; after the barrier no peer maps this rank's buffer. */
static bool take_down(worker *w)
{
    for (uint32_t i = 0; i + 1 < w->ranks; i++) {
        weir_memory_channel_destroy(w->links[i].channel);
        weir_semaphore_destroy(w->links[i].semaphore);
        weir_connection_destroy(w->links[i].connection);
        weir_memory_destroy(w->links[i].remote);
    }
    const bool fine = ok(w, weir_bootstrap_barrier(w->bootstrap, NULL));
    weir_event_destroy(w->device, w->end);
    weir_event_destroy(w->device, w->begin);
    weir_stream_destroy(w->device, w->stream);
    weir_memory_destroy(w->handles);
    weir_memory_destroy(w->buffer);
    weir_comm_destroy(w->comm);
    weir_bootstrap_destroy(w->bootstrap);
    weir_device_close(w->device);
    return fine;
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
    const uint64_t count = bytes / 8;
    for (uint64_t rank = 0; rank < w->ranks; rank++) {
        for (uint64_t i = 0; i < count; i++) {
            const uint64_t word = word_of(rank, bytes, i);
            words[rank * count + i] = rank == w->rank ? word : ~word;
        }
    }
    return ok(w, weir_device_copy(w->device, weir_memory_pointer(w->buffer), words, w->ranks * bytes)) &&
           ok(w, weir_bootstrap_barrier(w->bootstrap, NULL));
}

static bool compare(worker *w, uint64_t *words, uint64_t bytes)
{
    const uint64_t count = bytes / 8;
    uint64_t wrong = 0;
    if (!ok(w, weir_device_copy(w->device, words, weir_memory_pointer(w->buffer), w->ranks * bytes))) {
        return false;
    }
    for (uint64_t i = 0; i < w->ranks * count; i++) {
        wrong += words[i] != word_of(i / count, bytes, i % count);
    }
    if (wrong != 0) {
        fprintf(stderr, "Rank %" PRIu32 ": %" PRIu64 " of %" PRIu64 " words are wrong\n", w->rank, wrong,
                w->ranks * count);
    }
    return wrong == 0;
}

static bool gather(worker *w, uint64_t *words, uint64_t bytes)
{
    /* A block for each peer; all of them run at the same time, on the CPU too. */
    const weir_shape shape = { w->ranks - 1, w->sizes == gpu_sizes ? 1024u : 2u };
    const gather_args args = { (const weir_dev_memory_channel *)weir_memory_pointer(w->handles), bytes, w->rank };
    double ms = 0;
    bool fine = prepare(w, words, bytes) && ok(w, weir_event_record(w->device, w->begin, w->stream));
    for (int i = 0; i < ROUNDS && fine; i++) {
        fine = ok(w, weir_launch(w->device, &allgather_mesh, shape, &args, NULL, w->stream));
    }
    fine = fine && ok(w, weir_event_record(w->device, w->end, w->stream)) &&
           ok(w, weir_comm_wait(w->comm, w->stream, 0)) && ok(w, weir_event_elapsed(w->device, w->begin, w->end, &ms));
    if (fine && compare(w, words, bytes)) {
        printf("Rank %" PRIu32 " on %s: %" PRIu64 " bytes of each of %" PRIu32 " ranks, %.2f us\n", w->rank,
               w->device_name, bytes, w->ranks, 1000 * ms / ROUNDS);
        return true;
    }
    return false;
}

/* A rank that fails ends the process: others may be waiting for it, or be using its memory. */
static void *run_rank(void *context)
{
    worker *w = (worker *)context;
    uint64_t *words = (uint64_t *)malloc(w->ranks * w->sizes[SIZES - 1]);
    bool fine = words != NULL && set_up(w);
    for (int i = 0; i < SIZES && fine; i++) {
        fine = gather(w, words, w->sizes[i]);
    }
    if (!fine || !take_down(w)) {
        if (w->comm != NULL) {
            weir_comm_abort(w->comm);
        }
        _Exit(1);
    }
    free(words);
    return NULL;
}

int main(int argc, char **argv)
{
    worker workers[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    weir_unique_id id;
    uint32_t gpus = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    memset(workers, 0, sizeof workers);
    if (!ok(workers, weir_device_count("gpu", &gpus)) || !ok(workers, weir_unique_id_create("127.0.0.1", &id))) {
        return 1;
    }
    if (allgather_mesh.gpu == NULL) {
        gpus = 0; /* built by a C compiler: this kernel runs on the CPU alone */
    }
    const uint32_t usual = gpus < 2 ? 4 : gpus < RANKS_MAX ? gpus : (uint32_t)RANKS_MAX;
    const unsigned long ranks = argc > 1 ? strtoul(argv[1], NULL, 10) : usual;
    if (argc > 2 || ranks < 2 || ranks > RANKS_MAX) {
        fprintf(stderr, "usage: allgather_mesh [<ranks>], 2 to %d\n", RANKS_MAX);
        return 2;
    }
    for (uint32_t i = 0; i < ranks; i++) {
        workers[i].id = id.text;
        workers[i].rank = i;
        workers[i].ranks = (uint32_t)ranks;
        workers[i].sizes = gpus != 0 ? gpu_sizes : cpu_sizes;
        snprintf(workers[i].device_name, sizeof workers[i].device_name, "%s:%" PRIu32, gpus != 0 ? "gpu" : "cpu",
                 gpus != 0 ? i % gpus : i);
    }
    for (uint32_t i = 0; i < ranks; i++) {
        if (pthread_create(&threads[i], NULL, run_rank, &workers[i]) != 0) {
            perror("starting a thread");
            return 1;
        }
    }
    for (uint32_t i = 0; i < ranks; i++) {
        pthread_join(threads[i], NULL);
    }
    printf("Succeed!\n");
    return 0;
}
