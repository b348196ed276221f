/* gpu_ping_pong_mp - the ping-pong of tutorial 01 between two processes, and the bootstrap that joins them.
 *
 *     gpu_ping_pong_mp                              rank 0, which starts rank 1 as another process
 *     mpirun -n 2 gpu_ping_pong_mp [<device>]       one rank in each process; srun and torchrun too
 *     gpu_ping_pong_mp <ip:port> <rank> <device>    one rank, 0 or 1, on gpu:N or cpu:N
 *     gpu_ping_pong_mp <rank> <device>              the same; the ranks meet at the unique id in WEIR_UNIQUE_ID
 *
 * Read use_send_recv, use_collectives and use_barrier first: they show each operation, and check its result. */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <weir/weir.h>

#include "../../common/ping_pong.h"

enum { ROUNDS = 1000 };

/* ---- the bootstrap ------------------------------------------------------------------------------------ */

/* Prints what went wrong. Calls are chained with &&, and the first error ends the chain. */
static bool ok(uint32_t rank, weir_status status)
{
    if (status != WEIR_OK) {
        fprintf(stderr, "Rank %" PRIu32 ": %s: %s\n", rank, weir_status_name(status), weir_last_error());
    }
    return status == WEIR_OK;
}

static bool expect(uint32_t rank, const char *operation, bool right)
{
    printf("Rank %" PRIu32 ": %s %s\n", rank, operation, right ? "is right" : "brought wrong values");
    return right;
}

/* Each rank sends two messages, which the other receives in the reverse order: tags are independent. */
static bool use_send_recv(weir_bootstrap *bootstrap)
{
    uint32_t rank = weir_bootstrap_rank(bootstrap);
    uint32_t peer = rank ^ 1;
    uint64_t numbers[2] = { 100 + rank, 200 + rank };
    uint64_t received[2] = { 0, 0 };
    return ok(rank, weir_bootstrap_send(bootstrap, &numbers[0], sizeof(uint64_t), peer, 7)) &&
           ok(rank, weir_bootstrap_send(bootstrap, &numbers[1], sizeof(uint64_t), peer, 8)) &&
           ok(rank, weir_bootstrap_recv(bootstrap, &received[1], sizeof(uint64_t), peer, 8)) &&
           ok(rank, weir_bootstrap_recv(bootstrap, &received[0], sizeof(uint64_t), peer, 7)) &&
           expect(rank, "send and recv", received[0] == 100 + peer && received[1] == 200 + peer);
}

/* Collective operations: every rank makes the same call. */
static bool use_collectives(weir_bootstrap *bootstrap)
{
    uint32_t rank = weir_bootstrap_rank(bootstrap);
    uint64_t table[2] = { 0, 0 };
    char greeting[32] = "";
    table[rank] = 300 + rank; /* this rank's entry is sent, the others are filled in */
    if (rank == 0) {
        snprintf(greeting, sizeof(greeting), "from rank 0 to all");
    }
    return ok(rank, weir_bootstrap_allgather(bootstrap, NULL, table, sizeof(table[0]))) &&
           expect(rank, "allgather", table[0] == 300 && table[1] == 301) &&
           ok(rank, weir_bootstrap_broadcast(bootstrap, NULL, greeting, sizeof(greeting), 0)) &&
           expect(rank, "broadcast", strcmp(greeting, "from rank 0 to all") == 0);
}

/* A barrier returns when every rank has called it, so rank 1's message has been sent when rank 0 receives. */
static bool use_barrier(weir_bootstrap *bootstrap)
{
    uint32_t rank = weir_bootstrap_rank(bootstrap);
    uint64_t number = rank == 1 ? 400 : 0;
    bool good = rank == 0 || ok(rank, weir_bootstrap_send(bootstrap, &number, sizeof(number), 0, 9));
    good = good && ok(rank, weir_bootstrap_barrier(bootstrap, NULL));
    good = good && (rank == 1 || ok(rank, weir_bootstrap_recv(bootstrap, &number, sizeof(number), 1, 9)));
    return good && expect(rank, "barrier", number == 400);
}

/* ---- the ping-pong, as in tutorial 01 ----------------------------------------------------------------- */

typedef struct player {
    weir_device *device;
    weir_comm *comm;
    weir_connection *connection;
    weir_semaphore *semaphore;
    weir_memory *result;
    void *stream;
} player;

static bool set_up(player *p, weir_bootstrap *bootstrap, const char *device_name)
{
    uint32_t rank = weir_bootstrap_rank(bootstrap);
    return ok(rank, weir_device_open(device_name, NULL, &p->device)) &&
           ok(rank, weir_comm_create(bootstrap, p->device, NULL, &p->comm)) &&
           ok(rank, weir_connection_create(p->comm, rank ^ 1, 0, NULL, &p->connection)) &&
           ok(rank, weir_semaphore_create(p->connection, 0, NULL, &p->semaphore)) &&
           ok(rank, weir_memory_allocate(p->comm, sizeof(score), NULL, &p->result)) &&
           ok(rank, weir_stream_create(p->device, &p->stream)) && ok(rank, weir_kernel_load(p->device, &ping_pong)) &&
           ok(rank, weir_bootstrap_barrier(bootstrap, NULL));
}

static bool play(player *p, weir_bootstrap *bootstrap)
{
    const weir_shape shape = { 1, 1 };
    uint32_t rank = weir_bootstrap_rank(bootstrap);
    weir_device_info info;
    ping_pong_args args;
    score result;
    args.rank = rank;
    args.rounds = ROUNDS;
    args.result = (score *)weir_memory_pointer(p->result);
    if (!ok(rank, weir_semaphore_device(p->semaphore, &args.semaphore)) ||
        !ok(rank, weir_launch(p->device, &ping_pong, shape, &args, NULL, p->stream)) ||
        !ok(rank, weir_comm_wait(p->comm, p->stream, 0)) ||
        !ok(rank, weir_device_copy(p->device, &result, weir_memory_pointer(p->result), sizeof(result)))) {
        return false;
    }
    weir_device_get_info(p->device, &info, sizeof info);
    printf("Rank %" PRIu32 " (%s): %" PRIu64 " rounds, %" PRIu64 " signals out of turn\n", rank, info.label,
           result.rounds, result.out_of_turn);
    return expect(rank, "ping-pong", result.rounds == ROUNDS && result.out_of_turn == 0) &&
           ok(rank, weir_bootstrap_barrier(bootstrap, NULL));
}

static void take_down(player *p)
{
    weir_stream_destroy(p->device, p->stream);
    weir_memory_destroy(p->result);
    weir_semaphore_destroy(p->semaphore);
    weir_connection_destroy(p->connection);
    weir_comm_destroy(p->comm);
    weir_device_close(p->device);
}

/* A rank that fails leaves, and the other rank receives the error. `where` is NULL when a launcher started the ranks:
 * it knows where they meet. */
static bool run_rank(const char *where, uint32_t rank, const char *device_name)
{
    weir_bootstrap *bootstrap = NULL;
    player p;
    memset(&p, 0, sizeof(p));
    weir_status met = where != NULL ? weir_bootstrap_create(where, rank, 2, NULL, &bootstrap)
                                    : weir_bootstrap_create_launched(NULL, &bootstrap);
    bool good = ok(rank, met) && use_send_recv(bootstrap) && use_collectives(bootstrap) && use_barrier(bootstrap) &&
                set_up(&p, bootstrap, device_name) && play(&p, bootstrap);
    if (!good && p.comm != NULL) {
        weir_comm_abort(p.comm);
    }
    take_down(&p);
    weir_bootstrap_destroy(bootstrap);
    return good;
}

/* ---- starting the ranks ------------------------------------------------------------------------------- */

/* This program again, so that the child starts with a fresh driver. */
static pid_t start_rank_1(const char *device_name)
{
    char self[] = "gpu_ping_pong_mp";
    char rank[] = "1";
    char device[16];
    snprintf(device, sizeof(device), "%s", device_name);
    char *arguments[] = { self, rank, device, NULL };
    pid_t pid = fork();
    if (pid == 0) {
        execv("/proc/self/exe", arguments);
        _exit(127);
    }
    return pid;
}

/* The process of rank 0 makes the id, and the child gets it in its environment. The id holds the key of the job, so it
 * must not be an argument, which other users can read. Two processes use one GPU only in turns, and would wait for each
 * other in vain, so with fewer than two GPUs both ranks run on the CPU. */
static bool run_both(void)
{
    weir_unique_id id;
    uint32_t gpus = 0;
    int status = 1;
    if (!ok(0, weir_device_count("gpu", &gpus)) || !ok(0, weir_unique_id_create("127.0.0.1", &id))) {
        return false;
    }
    if (ping_pong.gpu == NULL) {
        gpus = 0; /* a C compiler built these kernels for the CPU alone */
    }
    printf("%" PRIu32 " GPUs to use: ranks on %s\n", gpus, gpus >= 2 ? "gpu:0 and gpu:1" : "cpu:0 and cpu:1");
    pid_t child = setenv("WEIR_UNIQUE_ID", id.text, 1) == 0 ? start_rank_1(gpus >= 2 ? "gpu:1" : "cpu:1") : -1;
    if (child < 0) {
        perror("starting rank 1");
        return false;
    }
    bool good = run_rank(id.text, 0, gpus >= 2 ? "gpu:0" : "cpu:0");
    if (!good) {
        kill(child, SIGKILL);
    }
    if (waitpid(child, &status, 0) != child || status != 0) {
        fprintf(stderr, "Rank 1 failed\n");
        good = false;
    }
    return good;
}

/* Runs the rank that a launcher started. Each rank takes the GPU of its place on this host. All ranks take the CPU when
 * there are too few GPUs. */
static bool run_launched(const weir_launcher_info *launcher, const char *device_name)
{
    char device[16];
    uint32_t gpus = 0;
    if (launcher->size != 2) {
        fprintf(stderr, "This program has 2 ranks; %s started %" PRIu32 "\n", launcher->source, launcher->size);
        return false;
    }
    if (!ok(launcher->rank, weir_device_count("gpu", &gpus))) {
        return false;
    }
    bool on_gpu = ping_pong.gpu != NULL && gpus >= (launcher->local_size != 0 ? launcher->local_size : 2);
    snprintf(device, sizeof(device), "%s:%" PRIu32, on_gpu ? "gpu" : "cpu", launcher->local_rank);
    return run_rank(NULL, launcher->rank, device_name != NULL ? device_name : device);
}

int main(int argc, char **argv)
{
    weir_launcher_info launcher;
    memset(&launcher, 0, sizeof(launcher));
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc <= 2 && weir_launcher_get(&launcher) != WEIR_OK) {
        fprintf(stderr, "%s\n", weir_last_error());
        return 1;
    }
    if (launcher.size > 0) {
        if (!run_launched(&launcher, argv[1])) {
            return 1;
        }
        if (launcher.rank == 0) {
            printf("Succeed!\n");
        }
        return 0;
    }
    if (argc == 1) {
        if (!run_both()) {
            return 1;
        }
        printf("Succeed!\n");
        return 0;
    }
    const char *where = argc == 4 ? argv[1] : getenv("WEIR_UNIQUE_ID");
    const char *rank = argc >= 3 ? argv[argc - 2] : "";
    if (argc < 3 || argc > 4 || where == NULL || (strcmp(rank, "0") != 0 && strcmp(rank, "1") != 0)) {
        fprintf(stderr,
                "usage: %s [[<ip:port>] <rank> <device>]\n       mpirun -n 2 %s [<device>]\n"
                "The rank is 0 or 1; without an address WEIR_UNIQUE_ID must be set.\n",
                argv[0], argv[0]);
        return 2;
    }
    if (!run_rank(where, rank[0] == '1', argv[argc - 1])) {
        return 1;
    }
    if (argc == 4 && rank[0] == '0') {
        printf("Succeed!\n");
    }
    return 0;
}
