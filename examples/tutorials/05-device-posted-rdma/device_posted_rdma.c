/* device_posted_rdma - two ranks send data to and fro by an RDMA NIC that their kernels post to: a thread of a running
 * kernel writes the NIC's work queue entries and rings its doorbell, and no CPU has a part in it.
 *
 *     device_posted_rdma                              both ranks, on this host
 *     device_posted_rdma <ip:port> <rank> <device>    one rank, 0 or 1, on gpu:N or cpu:N
 *     device_posted_rdma <rank> <device>              the same, met at the unique id in WEIR_UNIQUE_ID
 *
 * The kernel knows nothing of it: with WEIR_PORT_ENGINE=proxy a host thread posts the same transfers. Where there is no
 * NIC, WEIR_IB_VERBS_LIBRARY names a software one. Four parts: the kernel, how a rank is set up, how transfers are
 * checked and timed, how the ranks start. */
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

/* ---- the kernel: what runs on the devices ------------------------------------------------------------- */

typedef struct turn_args {
    weir_dev_port_channel channel;
    uint64_t bytes;  /* of each put */
    uint64_t puts;   /* in a turn */
    uint64_t rounds; /* each rank has one turn in each */
    uint64_t rank;
} turn_args;

/* Asks for this rank's part of the buffer, in pieces, to be written into the peer's memory, and for a signal. What was
 * put before a signal is there when the signal is. */
WEIR_FN weir_status send_part(const turn_args *args, weir_coop thread)
{
    uint64_t offset = args->rank * args->puts * args->bytes;
    weir_status status = WEIR_OK;
    for (uint64_t i = 1; i < args->puts && status == WEIR_OK; i++) {
        status = weir_dev_port_channel_put(&args->channel, offset, offset, args->bytes, thread, NULL);
        offset += args->bytes;
    }
    return status != WEIR_OK
               ? status
               : weir_dev_port_channel_put_signal(&args->channel, offset, offset, args->bytes, thread, NULL);
}

/* The ranks take turns, rank 0 first: one sends, the other waits for the signal. One thread is enough, since it moves
 * no data. The flush returns when the NIC needs the data here no longer.
 *
 * The host looks for errors (weir_port_channel_status, weir_comm_status): here one ends the loop. */
WEIR_KERNEL(take_turns, turn_args)
{
    weir_status status = WEIR_OK;
    for (uint64_t turn = 0; turn < 2 * args->rounds && status == WEIR_OK; turn++) {
        status = turn % 2 == args->rank ? send_part(args, weir_coop_thread(coop))
                                        : weir_dev_port_channel_wait(&args->channel);
    }
    if (status == WEIR_OK) {
        (void)weir_dev_port_channel_flush(&args->channel, NULL);
    }
}

typedef struct transfer {
    const char *label;
    uint64_t bytes;
    uint64_t puts;
} transfer;

static const transfer transfers[] = {
    { "Ping-pong", 8, 1 },         { "Ping-pong", 256, 1 },     { "Ping-pong", 4 << 10, 1 },
    { "Ping-pong", 64 << 10, 1 },  { "Ping-pong", 1 << 20, 1 }, { "Bandwidth", 4 << 10, 64 },
    { "Bandwidth", 64 << 10, 64 }, { "Bandwidth", 1 << 20, 4 },
};

enum { TRANSFERS = sizeof(transfers) / sizeof(transfers[0]), CHECKED_RUNS = 5, PART_BYTES = 4 << 20 };

/* ---- a rank and its objects --------------------------------------------------------------------------- */

typedef struct rank_state {
    const char *where; /* address or unique id at which the ranks meet */
    const char *device_name;
    uint32_t rank;

    char label[16];
    bool on_cpu;
    uint64_t seed; /* advances in step on both ranks */

    weir_device *device;
    weir_bootstrap *bootstrap;
    weir_comm *comm;
    weir_connection *connection;
    weir_semaphore *semaphore;
    weir_proxy *proxy;
    weir_memory *buffer;        /* a part for each rank */
    weir_memory *remote_buffer; /* the peer's, known by the NIC's key */
    weir_port_channel *channel;
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

/* The device, the other rank, and a connection to it by NICs, before which WEIR_PORT_ENGINE must be set. */
static bool join(rank_state *r)
{
    weir_connection_opts opts = WEIR_OPTS(weir_connection_opts);
    weir_device_info info;
    opts.transport = "ib";
    if (!ok(r, weir_device_open(r->device_name, NULL, &r->device))) {
        return false;
    }
    weir_device_get_info(r->device, &info);
    snprintf(r->label, sizeof(r->label), "%s", info.label);
    r->on_cpu = strcmp(info.kind, "cpu") == 0;
    return ok(r, weir_bootstrap_create(r->where, r->rank, 2, NULL, &r->bootstrap)) &&
           ok(r, weir_comm_create(r->bootstrap, r->device, NULL, &r->comm)) &&
           ok(r, weir_connection_create(r->comm, r->rank ^ 1, 0, &opts, &r->connection)) &&
           ok(r, weir_semaphore_create(r->connection, 0, NULL, &r->semaphore));
}

/* Memory of the host, which any NIC reaches, exchanged with the peer: after the connection exists, so that the NIC
 * knows it. */
static bool exchange_memory(rank_state *r)
{
    weir_memory_opts opts = WEIR_OPTS(weir_memory_opts);
    uint32_t peer = r->rank ^ 1;
    opts.kind = WEIR_MEMORY_HOST;
    return ok(r, weir_memory_allocate(r->comm, 2 * PART_BYTES, &opts, &r->buffer)) &&
           ok(r, weir_memory_send(r->comm, r->buffer, peer, 0)) &&
           ok(r, weir_memory_recv(r->comm, peer, 0, &r->remote_buffer));
}

/* The channel, and who posts for it. Only a proxy that does needs its thread. */
static bool make_channel(rank_state *r)
{
    weir_port_channel_info info;
    if (!ok(r, weir_proxy_create(r->comm, NULL, &r->proxy)) ||
        !ok(r, weir_port_channel_create(r->proxy, r->semaphore, r->remote_buffer, r->buffer, NULL, &r->channel))) {
        return false;
    }
    weir_port_channel_get_info(r->channel, &info);
    printf("Rank %" PRIu32 " (%s): transport %s, engine %s%s%s\n", r->rank, r->label, info.transport, info.engine,
           info.reason[0] != '\0' ? ": " : "", info.reason);
    return ok(r, weir_stream_create(r->device, &r->stream)) && ok(r, weir_event_create(r->device, &r->begin)) &&
           ok(r, weir_event_create(r->device, &r->end)) && ok(r, weir_kernel_load(r->device, &take_turns)) &&
           (strcmp(info.engine, "device") == 0 || ok(r, weir_proxy_start(r->proxy)));
}

static void destroy_all(rank_state *r)
{
    weir_event_destroy(r->device, r->end);
    weir_event_destroy(r->device, r->begin);
    weir_stream_destroy(r->device, r->stream);
    weir_memory_destroy(r->buffer);
    weir_proxy_destroy(r->proxy);
    weir_semaphore_destroy(r->semaphore);
    weir_connection_destroy(r->connection);
    weir_comm_destroy(r->comm);
    weir_bootstrap_destroy(r->bootstrap);
    weir_device_close(r->device);
}

/* What is the peer's goes first; the barrier says that the peer has let go of ours. */
static bool leave(rank_state *r)
{
    weir_port_channel_destroy(r->channel);
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

static uint64_t data_word(uint64_t seed, uint64_t index)
{
    uint64_t word = (index + 1) * 0x9e3779b97f4a7c15u + seed * 0xd1342543de82ef95u;
    word = (word ^ word >> 31) * 0xaf251af3b0f025b5u;
    return word ^ word >> 29;
}

/* The part that `rank` sends. */
static uint64_t *find_part(const rank_state *r, const transfer *t, uint32_t rank)
{
    return (uint64_t *)weir_memory_host_pointer(r->buffer) + rank * (t->puts * t->bytes / sizeof(uint64_t));
}

/* New data on both ranks, and every bit wrong where data must arrive, while no kernel runs. Neither starts before the
 * other's data is in place. */
static bool prepare_data(rank_state *r, const transfer *t)
{
    uint64_t words = t->puts * t->bytes / sizeof(uint64_t);
    uint64_t *sent = find_part(r, t, r->rank), *received = find_part(r, t, r->rank ^ 1);
    r->seed++;
    for (uint64_t i = 0; i < words; i++) {
        sent[i] = data_word(2 * r->seed + r->rank, i);
        received[i] = ~data_word(2 * r->seed + (r->rank ^ 1), i);
    }
    return meet_host(r);
}

static bool launch(rank_state *r, const transfer *t, uint64_t rounds)
{
    const weir_shape one_thread = { 1, 1 };
    turn_args args;
    args.bytes = t->bytes;
    args.puts = t->puts;
    args.rounds = rounds;
    args.rank = r->rank;
    return ok(r, weir_port_channel_device(r->channel, &args.channel)) &&
           ok(r, weir_launch(r->device, &take_turns, one_thread, &args, NULL, r->stream));
}

/* Compares every received byte, when all that was launched has ended. Neither rank changes its data before the
 * other has read it. */
static bool check_data(rank_state *r, const transfer *t)
{
    uint64_t words = t->puts * t->bytes / sizeof(uint64_t), wrong = 0;
    const uint64_t *received = find_part(r, t, r->rank ^ 1);
    if (!ok(r, weir_comm_wait(r->comm, r->stream, 0)) || !ok(r, weir_port_channel_status(r->channel))) {
        return false;
    }
    for (uint64_t i = 0; i < words; i++) {
        wrong += received[i] != data_word(2 * r->seed + (r->rank ^ 1), i);
    }
    if (wrong != 0) {
        fprintf(stderr, "Rank %" PRIu32 " (%s): [%s] %" PRIu64 " x %" PRIu64 " bytes: %" PRIu64 " words are wrong\n",
                r->rank, r->label, t->label, t->puts, t->bytes, wrong);
        return false;
    }
    return meet_host(r);
}

/* One kernel of many rounds, between two events. A round before the first event brings the ranks together. */
static bool time_transfer(rank_state *r, const transfer *t)
{
    const uint64_t bytes = t->puts * t->bytes, most = r->on_cpu ? 25 : 1000;
    const uint64_t fit = (r->on_cpu ? 1 : 64) * (uint64_t)PART_BYTES / bytes, rounds = fit < most ? fit : most;
    double ms = 0;
    if (!prepare_data(r, t) || !launch(r, t, 1) || !ok(r, weir_event_record(r->device, r->begin, r->stream)) ||
        !launch(r, t, rounds) || !ok(r, weir_event_record(r->device, r->end, r->stream)) || !check_data(r, t) ||
        !ok(r, weir_event_elapsed(r->device, r->begin, r->end, &ms))) {
        return false;
    }
    double us = ms * 1000 / (double)(2 * rounds);
    if (r->rank == 0) {
        printf("Rank 0 (%s): [%s] %" PRIu64 " x %" PRIu64 " bytes, half of a round trip %.2f us, BW %.3g GB/s\n",
               r->label, t->label, t->puts, t->bytes, us, (double)bytes / us / 1e3);
    }
    return true;
}

static bool run_transfer(rank_state *r, const transfer *t)
{
    for (int i = 0; i < CHECKED_RUNS; i++) {
        if (!prepare_data(r, t) || !launch(r, t, 1) || !check_data(r, t)) {
            return false;
        }
    }
    return time_transfer(r, t);
}

/* A rank that fails ends its process: the other may be waiting for it, or be using its memory, and is told. */
static void *run_rank(void *context)
{
    rank_state *r = (rank_state *)context;
    bool good = join(r) && exchange_memory(r) && make_channel(r);
    for (int i = 0; good && i < TRANSFERS; i++) {
        good = run_transfer(r, &transfers[i]);
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
    char self[] = "device_posted_rdma";
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
    if (take_turns.gpu == NULL) {
        gpus = 0; /* built by a C compiler: the kernel runs on the CPU alone */
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

/* What a user may type: <rank> <device>, or <ip:port> <rank> <device>. */
static bool run_one(int count, char **arguments)
{
    rank_state r;
    memset(&r, 0, sizeof(r));
    const char *number = arguments[count - 2];
    r.where = count == 2 ? getenv("WEIR_UNIQUE_ID") : arguments[0];
    r.device_name = arguments[count - 1];
    r.rank = strcmp(number, "1") == 0;
    if (r.where == NULL || (r.rank == 0 && strcmp(number, "0") != 0)) {
        fprintf(stderr, r.where == NULL ? "WEIR_UNIQUE_ID is not set\n" : "The rank must be 0 or 1\n");
        return false;
    }
    run_rank(&r);
    return true;
}

/* Whether there is a NIC; says how to have one where there is none. */
static bool find_nic(void)
{
    weir_transport_info info;
    const char *reason = "this libweir was built without it";
    for (uint32_t i = 0; weir_transport_get(i, &info) == WEIR_OK; i++) {
        if (strcmp(info.name, "ib") == 0 && info.works) {
            return true;
        }
        if (strcmp(info.name, "ib") == 0) {
            reason = info.reason;
            break;
        }
    }
    fprintf(stderr,
            "Transport ib: %s\nWithout an RDMA NIC, weir has one in software: set WEIR_IB_VERBS_LIBRARY to "
            "tools/swnic/libswnic.so of the build folder\n",
            reason);
    return false;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 2 || argc > 4) {
        fprintf(stderr, "usage: %s [<ip:port> <rank> <device>]\n", argv[0]);
        return 2;
    }
    /* Asked for before the first connection; what the user has set stays. */
    if (setenv("WEIR_PORT_ENGINE", "device", 0) != 0 || !find_nic()) {
        return 1;
    }
    bool good = argc == 1 ? run_both() : run_one(argc - 1, argv + 1);
    /* Of ranks that were started one by one, rank 0 says it; of others, who started them. */
    if (good && (argc == 1 || (argc == 4 && strcmp(argv[2], "0") == 0))) {
        printf("Succeed!\n");
    }
    return good ? 0 : 1;
}
