/* bidir_memory_channel - two ranks copy data to each other, both ways at once, in three ways: put, get, packets.
 *
 *     bidir_memory_channel                              both ranks, on this host
 *     mpirun -n 2 bidir_memory_channel [<device>]       one rank in each process; srun and torchrun too
 *     bidir_memory_channel <ip:port> <rank> <device>    one rank, 0 or 1, on gpu:N or cpu:N
 *     bidir_memory_channel <rank> <device>              the same, met at the unique id in WEIR_UNIQUE_ID
 *
 * Four parts: the kernels, how a rank is set up, how a transfer is checked and timed, how the ranks start. */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <weir/device/kernel.h>
#include <weir/weir.h>

/* ---- kernels: what runs on the devices ---------------------------------------------------------------- */

/* Rank r sends the part of the buffer at r * bytes, and receives the other. */
typedef struct transfer_args {
    weir_dev_memory_channel channel;
    weir_dev_grid_barrier barrier;
    uint64_t bytes;
    uint64_t rank;
} transfer_args;

/* Returns when the peer's kernel runs too. One thread of the grid asks, the barrier tells the others. The
 * relaxed forms are enough: this orders execution, not data.
 *
 * Kernels here do not look at statuses: after the first error of a communicator all its waits end at once, and
 * the host gets that error from weir_comm_wait. */
WEIR_FN void meet_peer(const transfer_args *args, weir_coop coop)
{
    if (coop.rank == 0) {
        weir_dev_memory_channel_signal_relaxed(&args->channel);
        (void)weir_dev_memory_channel_wait_relaxed(&args->channel);
    }
    (void)weir_coop_sync(coop);
}

/* Writes this rank's part into the peer's memory. When all threads have written (the barrier), the signal
 * makes that visible to the peer, and the wait returns when the peer's data is here. */
WEIR_KERNEL(bidir_put, transfer_args)
{
    uint64_t offset = args->rank * args->bytes;
    coop.barrier = &args->barrier;
    meet_peer(args, coop);
    (void)weir_dev_memory_channel_put(&args->channel, offset, offset, args->bytes, coop);
    (void)weir_coop_sync(coop);
    if (coop.rank == 0) {
        weir_dev_memory_channel_signal(&args->channel);
        (void)weir_dev_memory_channel_wait(&args->channel);
    }
}

/* Reads the peer's part. The data is here when the copy ends, so nothing follows it. */
WEIR_KERNEL(bidir_get, transfer_args)
{
    uint64_t offset = (args->rank ^ 1) * args->bytes;
    coop.barrier = &args->barrier;
    meet_peer(args, coop);
    (void)weir_dev_memory_channel_get(&args->channel, offset, offset, args->bytes, coop);
}

/* Sends this rank's part as packets, and unpacks the peer's as they come: each packet says itself that it is
 * complete, so neither a barrier nor a signal follows. */
WEIR_KERNEL(bidir_put_packets, transfer_args)
{
    coop.barrier = &args->barrier;
    meet_peer(args, coop);
    (void)weir_dev_memory_channel_put_ll16(&args->channel, 0, args->rank * args->bytes, args->bytes, coop);
    (void)weir_dev_memory_channel_unpack_ll16(&args->channel, 0, (args->rank ^ 1) * args->bytes, args->bytes, coop);
}

/* For checking: what is sent and what must be received, in words of 8 bytes. */
typedef struct data_args {
    uint64_t *sent;
    uint64_t *received;
    uint64_t words;
    uint64_t sent_seed; /* differs for each rank and each time that data is prepared */
    uint64_t received_seed;
    uint64_t *wrong; /* counts words that are not what they must be */
} data_args;

WEIR_FN uint64_t data_word(uint64_t seed, uint64_t index)
{
    uint64_t word = (index + 1) * 0x9e3779b97f4a7c15u + seed * 0xd1342543de82ef95u;
    word = (word ^ word >> 31) * 0xaf251af3b0f025b5u;
    return word ^ word >> 29;
}

/* New data to send, and every bit wrong where data must arrive. */
WEIR_KERNEL(prepare, data_args)
{
    for (uint64_t i = coop.rank; i < args->words; i += coop.size) {
        args->sent[i] = data_word(args->sent_seed, i);
        args->received[i] = ~data_word(args->received_seed, i);
    }
}

WEIR_KERNEL(compare, data_args)
{
    uint64_t wrong = 0;
    for (uint64_t i = coop.rank; i < args->words; i += coop.size) {
        wrong += args->received[i] != data_word(args->received_seed, i);
    }
    if (wrong != 0) {
        weir_arch_add_relaxed_dev_u64(args->wrong, wrong);
    }
}

typedef struct transfer {
    const char *label;
    const weir_kernel *kernel;
    bool packets;
} transfer;

static const transfer transfers[] = {
    { "Bidir Put", &bidir_put, false },
    { "Bidir Get", &bidir_get, false },
    { "Bidir Put Packets", &bidir_put_packets, true },
};

enum { TRANSFERS = sizeof(transfers) / sizeof(transfers[0]), SIZES = 3, CHECKED_RUNS = 5 };

static const uint64_t gpu_sizes[SIZES] = { 1 << 10, 1 << 20, 128 << 20 };
static const uint64_t cpu_sizes[SIZES] = { 1 << 10, 64 << 10, 1 << 20 };

/* ---- a rank and its objects --------------------------------------------------------------------------- */

typedef struct rank_state {
    const char *where; /* address or unique id at which the ranks meet; NULL: the launcher knows */
    const char *device_name;
    uint32_t rank;

    char label[16];
    bool on_cpu;
    const uint64_t *sizes;
    weir_shape shape;
    uint64_t seed; /* advances in step on both ranks */

    weir_device *device;
    weir_bootstrap *bootstrap;
    weir_comm *comm;
    weir_connection *connection;
    weir_semaphore *semaphore;
    weir_grid_barrier *barrier;
    weir_memory *buffer, *packets, *wrong;       /* local */
    weir_memory *remote_buffer, *remote_packets; /* the peer's, mapped here */
    weir_memory_channel *channel, *packet_channel;
    void *stream, *begin, *end;
} rank_state;

/* Says what went wrong. All calls below are chained with &&, so that the first error ends the chain. */
static bool ok(const rank_state *r, weir_status status)
{
    if (status != WEIR_OK) {
        fprintf(stderr, "Rank %" PRIu32 ": %s: %s\n", r->rank, weir_status_name(status), weir_last_error());
    }
    return status == WEIR_OK;
}

/* The device, the other rank, and a connection to it. */
static bool join(rank_state *r)
{
    const weir_shape wanted = { 32, 1024 };
    weir_device_info info;
    if (!ok(r, weir_device_open(r->device_name, NULL, &r->device))) {
        return false;
    }
    weir_device_get_info(r->device, &info);
    snprintf(r->label, sizeof(r->label), "%s", info.label);
    r->on_cpu = strcmp(info.kind, "cpu") == 0;
    r->sizes = r->on_cpu ? cpu_sizes : gpu_sizes;
    r->shape = weir_device_fit_shape(r->device, wanted);
    printf("Rank %" PRIu32 " (%s): %s, %" PRIu32 " blocks of %" PRIu32 " threads\n", r->rank, r->label, info.model,
           r->shape.blocks, r->shape.threads);
    weir_status met = r->where != NULL ? weir_bootstrap_create(r->where, r->rank, 2, NULL, &r->bootstrap)
                                       : weir_bootstrap_create_launched(NULL, &r->bootstrap);
    return ok(r, met) && ok(r, weir_comm_create(r->bootstrap, r->device, NULL, &r->comm)) &&
           ok(r, weir_connection_create(r->comm, r->rank ^ 1, 0, NULL, &r->connection)) &&
           ok(r, weir_semaphore_create(r->connection, 0, NULL, &r->semaphore)) &&
           ok(r, weir_grid_barrier_create(r->comm, &r->barrier));
}

/* Memory for both parts, exchanged with the peer. LL16 packets take twice the bytes of their data. */
static bool exchange_memory(rank_state *r)
{
    uint64_t bytes = r->sizes[SIZES - 1];
    uint32_t peer = r->rank ^ 1;
    return ok(r, weir_memory_allocate(r->comm, 2 * bytes, NULL, &r->buffer)) &&
           ok(r, weir_memory_allocate(r->comm, 2 * bytes, NULL, &r->packets)) &&
           ok(r, weir_memory_allocate(r->comm, sizeof(uint64_t), NULL, &r->wrong)) &&
           ok(r, weir_memory_send(r->comm, r->buffer, peer, 0)) &&
           ok(r, weir_memory_send(r->comm, r->packets, peer, 0)) &&
           ok(r, weir_memory_recv(r->comm, peer, 0, &r->remote_buffer)) &&
           ok(r, weir_memory_recv(r->comm, peer, 0, &r->remote_packets));
}

/* One channel to copy from buffer to buffer, and one whose remote side is the peer's packet buffer. Kernels are
 * loaded before any of them runs: loading code while a kernel waits for its peer may block both. */
static bool make_channels(rank_state *r)
{
    weir_memory_channel_opts opts = WEIR_OPTS(weir_memory_channel_opts);
    opts.packets = r->packets;
    bool good =
        ok(r, weir_memory_channel_create(r->semaphore, r->remote_buffer, r->buffer, NULL, &r->channel)) &&
        ok(r, weir_memory_channel_create(r->semaphore, r->remote_packets, r->buffer, &opts, &r->packet_channel)) &&
        ok(r, weir_stream_create(r->device, &r->stream)) && ok(r, weir_event_create(r->device, &r->begin)) &&
        ok(r, weir_event_create(r->device, &r->end)) && ok(r, weir_kernel_load(r->device, &prepare)) &&
        ok(r, weir_kernel_load(r->device, &compare));
    for (int i = 0; good && i < TRANSFERS; i++) {
        good = ok(r, weir_kernel_load(r->device, transfers[i].kernel));
    }
    return good;
}

static void destroy_all(rank_state *r)
{
    weir_event_destroy(r->device, r->end);
    weir_event_destroy(r->device, r->begin);
    weir_stream_destroy(r->device, r->stream);
    weir_memory_destroy(r->wrong);
    weir_memory_destroy(r->packets);
    weir_memory_destroy(r->buffer);
    weir_grid_barrier_destroy(r->barrier);
    weir_semaphore_destroy(r->semaphore);
    weir_connection_destroy(r->connection);
    weir_comm_destroy(r->comm);
    weir_bootstrap_destroy(r->bootstrap);
    weir_device_close(r->device);
}

/* What is mapped from the peer goes first; the barrier says that the peer has let go of ours. */
static bool leave(rank_state *r)
{
    weir_memory_channel_destroy(r->packet_channel);
    weir_memory_channel_destroy(r->channel);
    weir_memory_destroy(r->remote_packets);
    weir_memory_destroy(r->remote_buffer);
    if (!ok(r, weir_bootstrap_barrier(r->bootstrap, NULL))) {
        return false;
    }
    destroy_all(r);
    return true;
}

/* ---- transfers: checked, then timed ------------------------------------------------------------------- */

static bool meet_host(rank_state *r)
{
    return ok(r, weir_bootstrap_barrier(r->bootstrap, NULL));
}

static bool launch_data_kernel(rank_state *r, const weir_kernel *kernel, uint64_t bytes)
{
    char *buffer = (char *)weir_memory_pointer(r->buffer);
    data_args args;
    args.sent = (uint64_t *)(buffer + r->rank * bytes);
    args.received = (uint64_t *)(buffer + (r->rank ^ 1) * bytes);
    args.words = bytes / sizeof(uint64_t);
    args.sent_seed = 2 * r->seed + r->rank;
    args.received_seed = 2 * r->seed + (r->rank ^ 1);
    args.wrong = (uint64_t *)weir_memory_pointer(r->wrong);
    return ok(r, weir_launch(r->device, kernel, r->shape, &args, NULL, r->stream));
}

/* The blocks of a transfer meet at the grid barrier, which is what a cooperative launch is for. */
static bool launch_transfer(rank_state *r, const transfer *t, uint64_t bytes)
{
    weir_launch_opts opts = WEIR_OPTS(weir_launch_opts);
    transfer_args args;
    weir_memory_channel_device(t->packets ? r->packet_channel : r->channel, &args.channel);
    weir_grid_barrier_device(r->barrier, &args.barrier);
    args.bytes = bytes;
    args.rank = r->rank;
    opts.cooperative = true;
    return ok(r, weir_launch(r->device, t->kernel, r->shape, &args, &opts, r->stream));
}

/* New data on both ranks. Neither starts a transfer before the other's data is in place. */
static bool prepare_data(rank_state *r, uint64_t bytes)
{
    r->seed++;
    return launch_data_kernel(r, &prepare, bytes) && ok(r, weir_comm_wait(r->comm, r->stream, 0)) && meet_host(r);
}

/* Compares every received byte, when all that was launched has ended. Neither rank changes its data before the
 * other has read it. */
static bool check_data(rank_state *r, const transfer *t, uint64_t bytes)
{
    uint64_t wrong = 0;
    if (!launch_data_kernel(r, &compare, bytes) || !ok(r, weir_comm_wait(r->comm, r->stream, 0)) ||
        !ok(r, weir_device_copy(r->device, &wrong, weir_memory_pointer(r->wrong), sizeof(wrong)))) {
        return false;
    }
    if (wrong != 0) {
        fprintf(stderr, "Rank %" PRIu32 " (%s): [%s] bytes %" PRIu64 ": %" PRIu64 " of %" PRIu64 " words are wrong\n",
                r->rank, r->label, t->label, bytes, wrong, bytes / sizeof(uint64_t));
        return false;
    }
    return meet_host(r);
}

/* Replays a graph of launches between two events. One launch before the first event brings the ranks together,
 * so that the time does not hold a wait for the slower one to start. */
static bool time_transfer(rank_state *r, const transfer *t, uint64_t bytes)
{
    int launches = r->on_cpu ? 10 : bytes > 16 << 20 ? 10 : 100;
    int replays = r->on_cpu ? 3 : 10;
    void *graph = NULL;
    double ms = 0;
    bool good = ok(r, weir_graph_begin(r->device, r->stream));
    for (int i = 0; good && i < launches; i++) {
        good = launch_transfer(r, t, bytes);
    }
    good = good && ok(r, weir_graph_end(r->device, r->stream, &graph)) &&
           ok(r, weir_graph_launch(r->device, graph, r->stream)) && ok(r, weir_comm_wait(r->comm, r->stream, 0)) &&
           meet_host(r) && prepare_data(r, bytes) && launch_transfer(r, t, bytes) &&
           ok(r, weir_event_record(r->device, r->begin, r->stream));
    for (int i = 0; good && i < replays; i++) {
        good = ok(r, weir_graph_launch(r->device, graph, r->stream));
    }
    if (!good || !ok(r, weir_event_record(r->device, r->end, r->stream)) || !check_data(r, t, bytes) ||
        !ok(r, weir_event_elapsed(r->device, r->begin, r->end, &ms))) {
        return false;
    }
    weir_graph_destroy(r->device, graph);
    ms /= launches * replays;
    printf("Rank %" PRIu32 " (%s): [%s] bytes %" PRIu64 ", elapsed %.5f ms/iter, BW %.3f GB/s\n", r->rank, r->label,
           t->label, bytes, ms, (double)bytes / ms / 1e6);
    return true;
}

static bool run_transfer(rank_state *r, const transfer *t, uint64_t bytes)
{
    for (int i = 0; i < CHECKED_RUNS; i++) {
        if (!prepare_data(r, bytes) || !launch_transfer(r, t, bytes) || !check_data(r, t, bytes)) {
            return false;
        }
    }
    return time_transfer(r, t, bytes);
}

/* A rank that fails ends its process: the other may be waiting for it, or be using its memory, and is told. */
static void *run_rank(void *context)
{
    rank_state *r = (rank_state *)context;
    bool good = join(r) && exchange_memory(r) && make_channels(r);
    for (int i = 0; good && i < TRANSFERS * SIZES; i++) {
        good = run_transfer(r, &transfers[i / SIZES], r->sizes[i % SIZES]);
    }
    if (!good || !leave(r)) {
        if (r->comm != NULL) {
            weir_comm_abort(r->comm); /* kernels that still wait end now */
        }
        _Exit(1);
    }
    return NULL;
}

/* ---- starting the ranks ------------------------------------------------------------------------------- */

/* Both ranks as threads on one GPU: two processes would take turns on it, and wait for each other in vain. */
static bool run_threads(rank_state *ranks)
{
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        if (pthread_create(&threads[i], NULL, run_rank, &ranks[i]) != 0) {
            perror("starting a thread");
            return false;
        }
    }
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    return true;
}

/* A rank as a process: this program again, so that the child starts with a fresh driver. */
static pid_t start_process(const rank_state *r)
{
    char self[] = "bidir_memory_channel";
    char number[] = { (char)('0' + r->rank), '\0' };
    char device[16];
    snprintf(device, sizeof(device), "%s", r->device_name);
    char *arguments[] = { self, number, device, NULL };
    pid_t pid = fork();
    if (pid == 0) {
        execv("/proc/self/exe", arguments);
        _exit(127);
    }
    return pid;
}

/* Waits for both. When one fails the other is ended. */
static bool run_processes(const rank_state *ranks)
{
    pid_t pids[2] = { start_process(&ranks[0]), start_process(&ranks[1]) };
    bool good = pids[0] > 0 && pids[1] > 0;
    for (int left = 2; good && left > 0; left--) {
        int status = 0;
        int i = wait(&status) == pids[1];
        pids[i] = -1;
        good = status == 0;
        if (!good) {
            fprintf(stderr, "Rank %d ended with %s %d\n", i, WIFSIGNALED(status) ? "signal" : "exit status",
                    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        }
    }
    for (int i = 0; i < 2; i++) {
        if (pids[i] > 0) {
            kill(pids[i], SIGKILL);
            waitpid(pids[i], NULL, 0);
        }
    }
    return good;
}

/* Both ranks of this host meet at a new unique id, on two GPUs, one, or the CPU. */
static bool run_both(void)
{
    static const char *const devices[3][2] = { { "cpu:0", "cpu:1" }, { "gpu:0", "gpu:0" }, { "gpu:0", "gpu:1" } };
    rank_state ranks[2];
    weir_unique_id id;
    uint32_t gpus = 0;
    memset(ranks, 0, sizeof(ranks));
    if (!ok(ranks, weir_device_count("gpu", &gpus)) || !ok(ranks, weir_unique_id_create("127.0.0.1", &id))) {
        return false;
    }
    if (bidir_put.gpu == NULL) {
        gpus = 0; /* built by a C compiler: these kernels run on the CPU alone */
    }
    for (uint32_t i = 0; i < 2; i++) {
        ranks[i].where = id.text;
        ranks[i].rank = i;
        ranks[i].device_name = devices[gpus < 2 ? gpus : 2][i];
    }
    if (gpus == 1) {
        return run_threads(ranks);
    }
    weir_unique_id_discard(&id); /* rank 0 opens the port again, in its process */
    return setenv("WEIR_UNIQUE_ID", id.text, 1) == 0 && run_processes(ranks);
}

/* A rank that a launcher started. Each takes the GPU of its place on this host; the CPU when there are too few. */
static bool run_launched(const weir_launcher_info *launcher, const char *device_name)
{
    char device[16];
    rank_state r;
    uint32_t gpus = 0;
    memset(&r, 0, sizeof(r));
    r.rank = launcher->rank;
    if (launcher->size != 2) {
        fprintf(stderr, "This program has 2 ranks; %s started %" PRIu32 "\n", launcher->source, launcher->size);
        return false;
    }
    if (!ok(&r, weir_device_count("gpu", &gpus))) {
        return false;
    }
    bool on_gpu = bidir_put.gpu != NULL && gpus >= (launcher->local_size != 0 ? launcher->local_size : 2);
    snprintf(device, sizeof(device), "%s:%" PRIu32, on_gpu ? "gpu" : "cpu", launcher->local_rank);
    r.device_name = device_name != NULL ? device_name : device;
    run_rank(&r);
    return true;
}

/* What a user may type: [<ip:port>] <rank> <device>. */
static bool run_one(int count, char **arguments)
{
    rank_state r;
    memset(&r, 0, sizeof(r));
    r.where = count == 3 ? arguments[0] : getenv("WEIR_UNIQUE_ID");
    r.device_name = arguments[count - 1];
    r.rank = strcmp(arguments[count - 2], "1") == 0;
    if (r.where == NULL || (r.rank == 0 && strcmp(arguments[count - 2], "0") != 0)) {
        fprintf(stderr, r.where == NULL ? "WEIR_UNIQUE_ID is not set\n" : "The rank must be 0 or 1\n");
        return false;
    }
    run_rank(&r);
    return true;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    weir_launcher_info launcher;
    memset(&launcher, 0, sizeof(launcher));
    if (argc <= 2 && weir_launcher_get(&launcher) != WEIR_OK) {
        fprintf(stderr, "%s\n", weir_last_error());
        return 1;
    }
    if (argc > 4 || (argc == 2 && launcher.size == 0)) {
        fprintf(stderr, "usage: %s [[<ip:port>] <rank> <device>]\n       mpirun -n 2 %s [<device>]\n", argv[0],
                argv[0]);
        return 2;
    }
    bool launched = launcher.size > 0;
    bool good = launched ? run_launched(&launcher, argv[1]) : argc == 1 ? run_both() : run_one(argc - 1, argv + 1);
    /* Of ranks that were started one by one, rank 0 says it; of others, who started them. */
    if (good && (launched ? launcher.rank == 0 : argc == 1 || (argc == 4 && strcmp(argv[2], "0") == 0))) {
        printf("Succeed!\n");
    }
    return good ? 0 : 1;
}
