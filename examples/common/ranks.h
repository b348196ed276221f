/* ranks.h - what the tutorials share: starting ranks, and what each rank opens first.
 *
 *     static bool run(const rank_start *start) { ... one rank ... }
 *
 *     int main(int argc, char **argv)
 *     {
 *         const ranks_program program = { run, &kernel, NULL, false };
 *         return ranks_main(argc, argv, &program);
 *     }
 *
 * ranks_main runs two ranks, in one of these ways:
 *
 *     program                              both ranks, on this host
 *     mpirun -n 2 program [<device>]       one rank in each process; srun and torchrun too
 *     program <ip:port> <rank> <device>    one rank, 0 or 1, on gpu:N or cpu:N
 *     program <rank> <device>              the same; the ranks meet at the unique id in WEIR_UNIQUE_ID
 *
 * Without arguments the ranks are processes on two GPUs, or on the CPU. With one GPU they are threads that share it:
 * two processes would take turns on it, and wait for each other in vain. */
#ifndef EXAMPLES_RANKS_H
#define EXAMPLES_RANKS_H

#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif

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

/* ---- a rank ------------------------------------------------------------------------------------------- */

/* The facts that a rank knows when it starts. */
typedef struct rank_start {
    const char *where;     /* address or unique id at which the ranks meet; NULL: the launcher knows it */
    const char *transport; /* NULL: weir chooses */
    char device[16];
    uint32_t rank;
    uint32_t ranks;
} rank_start;

/* The objects that a rank opens first. */
typedef struct rank_job {
    uint32_t rank;
    uint32_t ranks;
    weir_device *device;
    weir_bootstrap *bootstrap;
    weir_comm *comm;
    void *stream, *begin, *end; /* a stream, and two events to take the time */
    char label[16];             /* of the device, for people */
    bool on_cpu;
} rank_job;

/* Prints what went wrong. Calls are chained with &&, and the first error ends the chain. */
static inline bool rank_ok(uint32_t rank, weir_status status)
{
    if (status != WEIR_OK) {
        fprintf(stderr, "Rank %" PRIu32 ": %s: %s\n", rank, weir_status_name(status), weir_last_error());
    }
    return status == WEIR_OK;
}

static inline bool ok(const rank_job *job, weir_status status) { return rank_ok(job->rank, status); }

/* Opens the device, meets the other ranks and makes the communicator: tutorials 01 and 02. */
static inline bool job_open(const rank_start *start, rank_job *job)
{
    weir_device_info info;
    memset(job, 0, sizeof(*job));
    job->rank = start->rank;
    job->ranks = start->ranks;
    if (!ok(job, weir_device_open(start->device, NULL, &job->device))) {
        return false;
    }
    weir_device_get_info(job->device, &info, sizeof info);
    snprintf(job->label, sizeof(job->label), "%s", info.label);
    job->on_cpu = strcmp(info.kind, "cpu") == 0;
    weir_status met = start->where != NULL
                          ? weir_bootstrap_create(start->where, start->rank, start->ranks, NULL, &job->bootstrap)
                          : weir_bootstrap_create_launched(NULL, &job->bootstrap);
    return ok(job, met) && ok(job, weir_comm_create(job->bootstrap, job->device, NULL, &job->comm)) &&
           ok(job, weir_stream_create(job->device, &job->stream)) &&
           ok(job, weir_event_create(job->device, &job->begin)) && ok(job, weir_event_create(job->device, &job->end));
}

/* Returns when all ranks have called it. */
static inline bool job_meet(const rank_job *job) { return ok(job, weir_bootstrap_barrier(job->bootstrap, NULL)); }

static inline void job_close(rank_job *job)
{
    weir_event_destroy(job->device, job->end);
    weir_event_destroy(job->device, job->begin);
    weir_stream_destroy(job->device, job->stream);
    weir_comm_destroy(job->comm);
    weir_bootstrap_destroy(job->bootstrap);
    weir_device_close(job->device);
}

/* A rank that fails ends its process, because the other ranks may be waiting for it, or be using its memory. They
 * receive the error. */
static inline bool job_end(const rank_job *job, bool good)
{
    if (!good) {
        weir_comm_abort(job->comm); /* kernels that still wait end now */
        _Exit(1);
    }
    return good;
}

/* ---- starting ranks ----------------------------------------------------------------------------------- */

typedef bool (*rank_function)(const rank_start *start);

typedef struct ranks_program {
    rank_function run;         /* one rank, from beginning to end; false when it has failed */
    const weir_kernel *kernel; /* one of the program's kernels; NULL for a program without kernels */
    const char *more;          /* what the usage line shows behind <device>: " [<transport>]"; NULL: nothing */
    bool any_size;             /* a launcher may start any number of ranks, instead of 2 */
} ranks_program;

/* How many GPUs the program can use. A C compiler builds its kernels for the CPU alone. */
static inline bool ranks_count_gpus(const weir_kernel *kernel, uint32_t *gpus)
{
    if (!rank_ok(0, weir_device_count("gpu", gpus))) {
        return false;
    }
    if (kernel != NULL && kernel->gpu == NULL) {
        *gpus = 0;
    }
    return true;
}

static inline void ranks_choose_device(rank_start *start, uint32_t gpus)
{
    snprintf(start->device, sizeof(start->device), "%s:%" PRIu32, gpus != 0 ? "gpu" : "cpu",
             gpus != 0 ? start->rank % gpus : start->rank);
}

typedef struct rank_thread {
    rank_function run;
    rank_start start;
    pthread_t thread;
    bool good;
} rank_thread;

static inline void *rank_thread_run(void *context)
{
    rank_thread *t = (rank_thread *)context;
    t->good = t->run(&t->start);
    return NULL;
}

/* Runs `ranks` ranks as threads of this process, one for each GPU in turn. */
static inline bool ranks_run_threads(uint32_t ranks, uint32_t gpus, rank_function run)
{
    rank_thread *threads = (rank_thread *)calloc(ranks, sizeof(*threads));
    weir_unique_id id;
    bool good = threads != NULL && rank_ok(0, weir_unique_id_create("127.0.0.1", &id));
    uint32_t begun = 0;
    for (; good && begun < ranks; begun++) {
        rank_thread *t = &threads[begun];
        t->run = run;
        t->start.where = id.text;
        t->start.rank = begun;
        t->start.ranks = ranks;
        ranks_choose_device(&t->start, gpus);
        if (pthread_create(&t->thread, NULL, rank_thread_run, t) != 0) {
            perror("starting a thread");
            _Exit(1); /* the ranks that have begun wait for this one */
        }
    }
    for (uint32_t i = 0; i < begun; i++) {
        pthread_join(threads[i].thread, NULL);
        good = threads[i].good && good;
    }
    free(threads);
    return good;
}

/* Starts a rank as a process: this program again, so that the child begins with a fresh driver. The unique id comes to
 * it in the environment: it holds the key of the job, and other users can read arguments. */
static inline pid_t ranks_start_process(char *program, const rank_start *start)
{
    char rank[16];
    char device[16];
    snprintf(rank, sizeof(rank), "%" PRIu32, start->rank);
    snprintf(device, sizeof(device), "%s", start->device);
    char *arguments[] = { program, rank, device, NULL };
    pid_t pid = fork();
    if (pid == 0) {
        execv("/proc/self/exe", arguments);
        _exit(127);
    }
    return pid;
}

/* Runs two ranks as processes. When one of them fails, the other one is ended. */
static inline bool ranks_run_processes(char *program, uint32_t gpus)
{
    weir_unique_id id;
    pid_t pids[2];
    if (!rank_ok(0, weir_unique_id_create("127.0.0.1", &id))) {
        return false;
    }
    weir_unique_id_discard(&id); /* rank 0 opens the port again, in its process */
    bool good = setenv("WEIR_UNIQUE_ID", id.text, 1) == 0;
    for (uint32_t i = 0; i < 2; i++) {
        rank_start start;
        memset(&start, 0, sizeof(start));
        start.rank = i;
        ranks_choose_device(&start, gpus);
        pids[i] = good ? ranks_start_process(program, &start) : -1;
        good = pids[i] > 0;
    }
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

/* Runs the rank that a launcher started. Each rank takes the GPU of its place on this host. All ranks take the CPU when
 * there are too few GPUs. */
static inline bool ranks_run_launched(const ranks_program *program, const weir_launcher_info *launcher,
                                      const char *device)
{
    rank_start start;
    uint32_t gpus = 0;
    memset(&start, 0, sizeof(start));
    start.rank = launcher->rank;
    start.ranks = launcher->size;
    if (launcher->size != 2 && !program->any_size) {
        fprintf(stderr, "This program has 2 ranks; %s started %" PRIu32 "\n", launcher->source, launcher->size);
        return false;
    }
    if (!ranks_count_gpus(program->kernel, &gpus)) {
        return false;
    }
    bool on_gpu = gpus >= (launcher->local_size != 0 ? launcher->local_size : launcher->size);
    snprintf(start.device, sizeof(start.device), "%s:%" PRIu32, on_gpu ? "gpu" : "cpu", launcher->local_rank);
    if (device != NULL) {
        snprintf(start.device, sizeof(start.device), "%s", device);
    }
    return program->run(&start);
}

/* Runs the rank that the arguments name: <rank> <device>, or <ip:port> <rank> <device> and what follows. */
static inline bool ranks_run_named(const ranks_program *program, int count, char **arguments)
{
    rank_start start;
    const char *rank = arguments[count == 2 ? 0 : 1];
    memset(&start, 0, sizeof(start));
    start.where = count == 2 ? getenv("WEIR_UNIQUE_ID") : arguments[0];
    start.transport = count == 4 ? arguments[3] : NULL;
    start.rank = strcmp(rank, "1") == 0;
    start.ranks = 2;
    snprintf(start.device, sizeof(start.device), "%s", arguments[count == 2 ? 1 : 2]);
    if (start.where == NULL || (start.rank == 0 && strcmp(rank, "0") != 0)) {
        fprintf(stderr, start.where == NULL ? "WEIR_UNIQUE_ID is not set\n" : "The rank must be 0 or 1\n");
        return false;
    }
    return program->run(&start);
}

/* For a program of two ranks. Returns the exit status. */
static inline int ranks_main(int argc, char **argv, const ranks_program *program)
{
    const char *more = program->more != NULL ? program->more : "";
    weir_launcher_info launcher;
    uint32_t gpus = 0;
    bool good;
    memset(&launcher, 0, sizeof(launcher));
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc <= 2 && weir_launcher_get(&launcher) != WEIR_OK) {
        fprintf(stderr, "%s\n", weir_last_error());
        return 1;
    }
    if (argc > (more[0] != '\0' ? 5 : 4) || (argc == 2 && launcher.size == 0)) {
        fprintf(stderr, "usage: %s [[<ip:port>] <rank> <device>%s]\n       mpirun -n 2 %s [<device>]\n", argv[0], more,
                argv[0]);
        return 2;
    }
    if (launcher.size > 0) {
        good = ranks_run_launched(program, &launcher, argv[1]);
    } else if (argc > 1) {
        good = ranks_run_named(program, argc - 1, argv + 1);
    } else {
        good = ranks_count_gpus(program->kernel, &gpus) &&
               (gpus == 1 ? ranks_run_threads(2, gpus, program->run) : ranks_run_processes(argv[0], gpus));
    }
    /* Of ranks that were started one by one, rank 0 prints it; otherwise the process that started them does. */
    if (good && (launcher.size > 0 ? launcher.rank == 0 : argc == 1 || (argc >= 4 && strcmp(argv[2], "0") == 0))) {
        printf("Succeed!\n");
    }
    return good ? 0 : 1;
}

#endif
