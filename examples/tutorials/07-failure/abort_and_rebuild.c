/* abort_and_rebuild - three ranks, one of which gives up; the two others go on as a job of two.
 *
 *     abort_and_rebuild             ranks on cpu:0, cpu:1, cpu:2
 *     abort_and_rebuild gpu:0       all three on that GPU, which processes use in turns
 *
 * Read work and run_rank first: the rest is set-up as in tutorial 02. docs/failure.md says which errors end which
 * calls. */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <weir/device/kernel.h>
#include <weir/weir.h>

enum { RANKS = 3, ROUNDS = 100 };

typedef struct relay_args {
    weir_dev_semaphore from_previous;
    weir_dev_semaphore to_next;
    uint32_t starts;
    int32_t *result;
} relay_args;

/* A token goes round. Every wait has a deadline, ends when the communicator fails, and returns how it ended. */
WEIR_KERNEL(relay, relay_args)
{
    weir_status status = WEIR_OK;
    if (coop.rank != 0) {
        return;
    }
    for (int round = 0; round < ROUNDS && status == WEIR_OK; round++) {
        if (args->starts) {
            weir_dev_semaphore_signal(&args->to_next);
        }
        status = weir_dev_semaphore_wait(&args->from_previous);
        if (!args->starts && status == WEIR_OK) {
            weir_dev_semaphore_signal(&args->to_next);
        }
    }
    *args->result = status;
}

/* A rank's objects of one job. */
typedef struct job {
    uint32_t rank;
    uint32_t size;
    weir_device *device;
    weir_bootstrap *boot;
    weir_comm *comm;
    weir_memory *result;
    weir_connection *connections[2]; /* to the next rank, from the previous one */
    weir_semaphore *semaphores[2];
    void *stream;
} job;

/* Memory through which the processes pass unique ids, one for each job. A launcher or a file would do, too. */
typedef struct notice {
    weir_unique_id id;
    uint32_t ready;
} notice;

static bool ok(uint32_t rank, weir_status status)
{
    if (status != WEIR_OK) {
        printf("Rank %" PRIu32 ": %s: %s\n", rank, weir_status_name(status), weir_last_error());
    }
    return status == WEIR_OK;
}

/* Destroys what exists of a job, in the reverse order. It works at any time, after any error. First this rank's kernels
 * must end. Where ranks are threads of one process, the kernels of all ranks must end: they may store into its memory.
 */
static void close_job(job *j)
{
    if (j->stream != NULL) {
        (void)!weir_comm_wait(j->comm, j->stream, 0);
    }
    if (j->comm != NULL && weir_comm_quiesce(j->comm, 0) != WEIR_OK) {
        printf("Rank %" PRIu32 ": %s\n", j->rank, weir_last_error());
        return; /* a rank that hangs may still store here, so the rest is left to the end of the process */
    }
    weir_stream_destroy(j->device, j->stream);
    for (int i = 0; i < 2; i++) {
        weir_semaphore_destroy(j->semaphores[i]);
        weir_connection_destroy(j->connections[i]);
    }
    weir_memory_destroy(j->result);
    weir_comm_destroy(j->comm);
    weir_bootstrap_destroy(j->boot);
    weir_device_close(j->device);
}

/* Waits for an operation that was begun. */
static weir_status complete(weir_future *future)
{
    weir_status status = weir_future_wait(future, 0);
    weir_future_destroy(future);
    return status;
}

/* Both neighbours do this at the same time, so a rank begins both operations before it waits for one. Connections and
 * semaphores have the tag of the rank that signals over them. */
static bool join_neighbours(job *j)
{
    const uint32_t peers[2] = { (j->rank + 1) % j->size, (j->rank + j->size - 1) % j->size };
    const uint64_t tags[2] = { j->rank, peers[1] };
    weir_future *futures[2];
    for (int i = 0; i < 2; i++) {
        if (!ok(j->rank,
                weir_connection_create_async(j->comm, peers[i], tags[i], NULL, &j->connections[i], &futures[i]))) {
            return false;
        }
    }
    if (!ok(j->rank, complete(futures[0])) || !ok(j->rank, complete(futures[1]))) {
        return false;
    }
    for (int i = 0; i < 2; i++) {
        if (!ok(j->rank, weir_semaphore_create_async(j->connections[i], RANKS + tags[i], NULL, &j->semaphores[i],
                                                     &futures[i]))) {
            return false;
        }
    }
    return ok(j->rank, complete(futures[0])) && ok(j->rank, complete(futures[1]));
}

/* Returns when all ranks are ready. */
static bool open_job(job *j, const char *where, const char *device, uint32_t rank, uint32_t size)
{
    weir_memory_opts host = WEIR_OPTS(weir_memory_opts);
    host.kind = WEIR_MEMORY_HOST;
    memset(j, 0, sizeof *j);
    j->rank = rank;
    j->size = size;
    return ok(rank, weir_device_open(device, NULL, &j->device)) &&
           ok(rank, weir_bootstrap_create(where, rank, size, NULL, &j->boot)) &&
           ok(rank, weir_comm_create(j->boot, j->device, NULL, &j->comm)) &&
           ok(rank, weir_memory_allocate(j->comm, sizeof(int32_t), &host, &j->result)) && join_neighbours(j) &&
           ok(rank, weir_kernel_load(j->device, &relay)) && ok(rank, weir_stream_create(j->device, &j->stream)) &&
           ok(rank, weir_bootstrap_barrier(j->boot, NULL));
}

/* Runs the relay: WEIR_OK, or how its waits ended. */
static weir_status work(job *j)
{
    relay_args args;
    memset(&args, 0, sizeof args);
    args.starts = j->rank == 0;
    args.result = (int32_t *)weir_memory_pointer(j->result);
    weir_status status = weir_semaphore_device(j->semaphores[0], &args.to_next);
    if (status == WEIR_OK) {
        status = weir_semaphore_device(j->semaphores[1], &args.from_previous);
    }
    const weir_shape one = { 1, 1 };
    if (status == WEIR_OK) {
        status = weir_launch(j->device, &relay, one, &args, NULL, j->stream);
    }
    if (status == WEIR_OK) {
        /* The text of the communicator's error names the rank and the cause. */
        status = weir_comm_wait(j->comm, j->stream, 0);
    }
    const int32_t *result = (const int32_t *)weir_memory_host_pointer(j->result);
    return status == WEIR_OK ? (weir_status)*result : status;
}

/* Each job needs a new unique id, which its rank 0 makes. */
static bool agree(notice *n, uint32_t rank)
{
    const struct timespec pause = { 0, 1000000 };
    if (rank == 0) {
        if (!ok(rank, weir_unique_id_create("127.0.0.1", &n->id))) {
            return false;
        }
        __atomic_store_n(&n->ready, 1, __ATOMIC_RELEASE);
    }
    for (int ms = 0; ms < 30000 && !__atomic_load_n(&n->ready, __ATOMIC_ACQUIRE); ms++) {
        nanosleep(&pause, NULL);
    }
    return __atomic_load_n(&n->ready, __ATOMIC_ACQUIRE) != 0;
}

static bool run_rank(notice *notices, const char *device, uint32_t rank)
{
    job j;
    weir_status status = WEIR_ERR_INVALID;
    memset(&j, 0, sizeof j);
    if (agree(&notices[0], rank) && open_job(&j, notices[0].id.text, device, rank, RANKS)) {
        if (rank == RANKS - 1) {
            printf("Rank %" PRIu32 ": gives up\n", rank);
            weir_comm_abort(j.comm);
            close_job(&j);
            return true;
        }
        status = work(&j);
        (void)ok(rank, status);
    }
    close_job(&j);
    if (status != WEIR_ERR_ABORTED || !agree(&notices[1], rank)) {
        return false;
    }
    bool works = open_job(&j, notices[1].id.text, device, rank, RANKS - 1) && ok(rank, work(&j));
    printf("Rank %" PRIu32 ": %d rounds with %" PRIu32 " ranks are %s\n", rank, (int)ROUNDS, j.size,
           works ? "right" : "wrong");
    /* No rank leaves before all ranks have their last signal. */
    works = works && ok(rank, weir_bootstrap_barrier(j.boot, NULL));
    close_job(&j);
    return works;
}

int main(int argc, char **argv)
{
    void *shared = mmap(NULL, 2 * sizeof(notice), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    pid_t pids[RANKS];
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        fflush(stdout);
        pids[rank] = fork();
        if (pids[rank] == 0) {
            char device[16];
            snprintf(device, sizeof device, "cpu:%" PRIu32, rank);
            bool right = run_rank((notice *)shared, argc > 1 ? argv[1] : device, rank);
            fflush(stdout);
            _exit(right ? 0 : 1);
        }
    }
    bool right = true;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        int status = 1;
        right = pids[rank] > 0 && waitpid(pids[rank], &status, 0) == pids[rank] && status == 0 && right;
    }
    if (!right) {
        fprintf(stderr, "Failed\n");
        return 1;
    }
    printf("Succeed!\n");
    return 0;
}
