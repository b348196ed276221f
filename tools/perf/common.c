/* common.c - starts the ranks of weir-perf and times their launches.
 *
 * Ranks are threads of this process. With --processes they are processes of this program, started with --rank and with
 * the unique id in WEIR_UNIQUE_ID. A launcher may have started them too. Each rank has its own GPU; if there is only
 * one GPU, threads share it. */
#include "tools/perf/common.h"

#include "tools/perf/cases.h"
#include "tools/perf/output.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define UNIQUE_ID "WEIR_UNIQUE_ID"
#define ARGUMENTS_MAX 64

extern char **environ;

weir_status perf_fail(perf_rank *rank, weir_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    (void)vsnprintf(rank->error, sizeof rank->error, format, list);
    va_end(list);
    return status;
}

weir_status perf_add_up(perf_rank *rank, uint64_t mine, uint64_t *sum)
{
    uint64_t all[PERF_RANKS_MAX] = { 0 };
    all[rank->rank] = mine;
    const weir_status status = weir_bootstrap_allgather(rank->bootstrap, NULL, all, sizeof all[0]);
    for (uint32_t i = 0; i < rank->ranks; i++) {
        *sum += all[i];
    }
    return status;
}

weir_status perf_choose_sizes(perf_rank *rank, uint64_t gpu_most, perf_list *sizes)
{
    const perf_options *options = rank->options;
    uint64_t least = options->least != 0 ? options->least : 1024;
    uint64_t most = options->most != 0 ? options->most : rank->gpu ? gpu_most : (uint64_t)1 << 20;
    uint64_t factor = options->factor != 0 ? options->factor : 4;
    *sizes = options->sizes;
    if (sizes->count != 0) {
        return WEIR_OK;
    }
    most = options->most == 0 && most < least ? least : most;
    if (factor < 2 || most < least) {
        return perf_fail(rank, WEIR_ERR_INVALID, "-f must be at least 2, and -e at least -b");
    }
    for (uint64_t bytes = least; bytes <= most; bytes *= factor) {
        if (sizes->count == PERF_LIST_MAX) {
            return perf_fail(rank, WEIR_ERR_LIMIT, "more than %u sizes", PERF_LIST_MAX);
        }
        sizes->values[sizes->count++] = bytes;
    }
    return WEIR_OK;
}

uint64_t perf_largest(const perf_list *sizes)
{
    uint64_t largest = 0;
    for (uint32_t i = 0; i < sizes->count; i++) {
        largest = sizes->values[i] > largest ? sizes->values[i] : largest;
    }
    return largest;
}

/* ---- timing ------------------------------------------------------------------------------------------- */

weir_status perf_launch(perf_rank *rank, const perf_work *work)
{
    weir_launch_opts opts = WEIR_OPTS(weir_launch_opts);
    opts.cooperative = work->cooperative && !rank->options->plain;
    weir_status status = weir_launch(rank->device, work->kernel, work->shape, work->args, &opts, rank->stream);
    if (status != WEIR_OK) {
        return perf_fail(rank, status, "launch of %s: %s", work->kernel->name, weir_last_error());
    }
    return WEIR_OK;
}

weir_status perf_run(perf_rank *rank, const weir_kernel *kernel, const void *args)
{
    const weir_shape shape = weir_device_fit_shape(rank->device, (weir_shape){ 264, 1024 });
    const weir_status status = weir_launch(rank->device, kernel, shape, args, NULL, rank->stream);
    return status == WEIR_OK ? weir_comm_wait(rank->comm, rank->stream, 0) : status;
}

weir_status perf_record_calls(perf_rank *rank, const perf_calls *calls, uint32_t nodes, void **graph)
{
    weir_status status = weir_graph_begin(rank->device, rank->stream);
    if (status != WEIR_OK) {
        return status;
    }
    for (uint32_t i = 1; i <= nodes && status == WEIR_OK; i++) {
        status = calls->put(rank, calls->context, i);
    }
    if (status != WEIR_OK) {
        /* End the recording of the stream. */
        void *unfinished = NULL;
        if (weir_graph_end(rank->device, rank->stream, &unfinished) == WEIR_OK) {
            weir_graph_destroy(rank->device, unfinished);
        }
        return status;
    }
    return weir_graph_end(rank->device, rank->stream, graph);
}

static weir_status put_work(perf_rank *rank, void *context, uint32_t number)
{
    const perf_work *work = (const perf_work *)context;
    if (work->number != NULL) {
        *work->number = number;
    }
    return perf_launch(rank, work);
}

weir_status perf_record(perf_rank *rank, const perf_work *work, uint32_t nodes, void **graph)
{
    perf_work copy = *work;
    const perf_calls calls = { put_work, &copy };
    return perf_record_calls(rank, &calls, nodes, graph);
}

/* A unit of timing: one replay of a graph, or the same number of single calls. */
typedef struct batch {
    void *graph;
    const perf_calls *calls;
    uint32_t nodes;
} batch;

static weir_status put_batch(perf_rank *rank, const batch *what)
{
    weir_status status = WEIR_OK;
    if (what->graph != NULL) {
        return weir_graph_launch(rank->device, what->graph, rank->stream);
    }
    for (uint32_t i = 1; i <= what->nodes && status == WEIR_OK; i++) {
        status = what->calls->put(rank, what->calls->context, i);
    }
    return status;
}

/* Puts the untimed and the timed batches on the stream, with events around each timed one. */
static weir_status put_batches(perf_rank *rank, const batch *what, uint32_t warmup, uint32_t replays)
{
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < warmup && status == WEIR_OK; i++) {
        status = put_batch(rank, what);
    }
    if (status == WEIR_OK) {
        status = weir_event_record(rank->device, rank->events[0], rank->stream);
    }
    for (uint32_t i = 1; i <= replays && status == WEIR_OK; i++) {
        status = put_batch(rank, what);
        if (status == WEIR_OK) {
            status = weir_event_record(rank->device, rank->events[i], rank->stream);
        }
    }
    return status;
}

static weir_status time_batches(perf_rank *rank, const batch *what, uint32_t warmup, uint32_t replays, double *us)
{
    double ms[PERF_RANKS_MAX][PERF_REPLAYS_MAX];
    memset(ms, 0, sizeof ms);
    weir_status status = weir_bootstrap_barrier(rank->bootstrap, NULL);
    if (status == WEIR_OK) {
        status = put_batches(rank, what, warmup != 0 ? warmup : 1, replays);
    }
    if (status == WEIR_OK) {
        status = weir_stream_wait(rank->device, rank->stream, 0);
    }
    if (status == WEIR_OK) {
        status = weir_comm_status(rank->comm);
    }
    for (uint32_t i = 0; i < replays && status == WEIR_OK; i++) {
        status = weir_event_elapsed(rank->device, rank->events[i], rank->events[i + 1], &ms[rank->rank][i]);
    }
    if (status == WEIR_OK) {
        status = weir_bootstrap_allgather(rank->bootstrap, NULL, ms, sizeof ms[0]);
    }
    for (uint32_t i = 0; i < replays && status == WEIR_OK; i++) {
        double longest = 0;
        for (uint32_t k = 0; k < rank->ranks; k++) {
            longest = ms[k][i] > longest ? ms[k][i] : longest;
        }
        us[i] = longest * 1e3 / what->nodes;
    }
    return status;
}

weir_status perf_time(perf_rank *rank, void *graph, uint32_t nodes, uint32_t warmup, uint32_t replays, double *us)
{
    const batch what = { graph, NULL, nodes };
    return time_batches(rank, &what, warmup, replays, us);
}

weir_status perf_time_calls(perf_rank *rank, const perf_calls *calls, uint32_t nodes, uint32_t warmup, uint32_t replays,
                            double *us)
{
    const batch what = { NULL, calls, nodes };
    return time_batches(rank, &what, warmup, replays, us);
}

static int compare_values(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

void perf_sort(double *values, uint32_t count) { qsort(values, count, sizeof values[0], compare_values); }

double perf_percentile(const double *values, uint32_t count, double part)
{
    double place = part * (double)(count - 1);
    uint32_t below = (uint32_t)place;
    uint32_t above = below + 1 < count ? below + 1 : below;
    return values[below] + (values[above] - values[below]) * (place - (double)below);
}

/* ---- one rank ----------------------------------------------------------------------------------------- */

static void close_rank(perf_rank *rank)
{
    if (rank->device != NULL) {
        for (uint32_t i = 0; i < ROWS(rank->events) && rank->events[i] != NULL; i++) {
            weir_event_destroy(rank->device, rank->events[i]);
        }
        if (rank->stream != NULL) {
            weir_stream_destroy(rank->device, rank->stream);
        }
    }
    weir_comm_destroy(rank->comm);
    weir_bootstrap_destroy(rank->bootstrap);
    weir_device_close(rank->device);
}

/* Opens a rank. `where` NULL: the ranks of a launcher. */
static weir_status open_rank(perf_rank *rank, const char *device, const char *where)
{
    weir_status status = weir_device_open(device, NULL, &rank->device);
    if (status != WEIR_OK) {
        return status;
    }
    weir_device_get_info(rank->device, &rank->info, sizeof rank->info);
    rank->gpu = strcmp(rank->info.kind, "gpu") == 0;
    status = where != NULL ? weir_bootstrap_create(where, rank->rank, rank->ranks, NULL, &rank->bootstrap)
                           : weir_bootstrap_create_launched(NULL, &rank->bootstrap);
    if (status == WEIR_OK) {
        status = weir_comm_create(rank->bootstrap, rank->device, NULL, &rank->comm);
    }
    if (status == WEIR_OK) {
        status = weir_stream_create(rank->device, &rank->stream);
    }
    for (uint32_t i = 0; i < ROWS(rank->events) && status == WEIR_OK; i++) {
        status = weir_event_create(rank->device, &rank->events[i]);
    }
    return status;
}

/* The devices and ranks to run on. */
typedef struct machine {
    const char *kind; /* of device: "gpu" or "cpu" */
    uint32_t gpus;
    uint32_t ranks;
    weir_launcher_info launcher; /* size 0: no launcher */
} machine;

/* Runs one rank, from its device to its results. Returns whether it succeeded. After a failure on a GPU a kernel by
 * hand may spin forever, so nothing is closed. */
static bool run_rank(const perf_command *command, const perf_options *options, const machine *here, uint32_t number,
                     const char *where, perf_output *output)
{
    const uint32_t index = here->launcher.size != 0 ? here->launcher.local_rank : number;
    char device[16];
    perf_rank rank;
    (void)snprintf(device, sizeof device, "%s:%" PRIu32, here->kind, here->gpus != 0 ? index % here->gpus : index);
    memset(&rank, 0, sizeof rank);
    rank.options = options;
    rank.command = command->name;
    rank.rank = number;
    rank.ranks = here->ranks;
    rank.peer = number ^ 1u;
    rank.shared = here->gpus == 1 && here->launcher.size == 0 && here->ranks > 1;
    rank.output = output;
    weir_status status = open_rank(&rank, device, where);
    if (status == WEIR_OK) {
        status = command->run(&rank);
    }
    if (status != WEIR_OK) {
        const char *text = rank.error[0] != '\0' ? rank.error : weir_last_error();
        fprintf(stderr, "weir-perf: rank %" PRIu32 " on %s: %s: %s\n", number, device, weir_status_name(status), text);
        if (rank.comm != NULL) {
            weir_comm_abort(rank.comm); /* end the other ranks before their deadlines */
        }
    }
    if (status == WEIR_OK || !rank.gpu) {
        close_rank(&rank);
    }
    return status == WEIR_OK;
}

/* ---- starting ranks ----------------------------------------------------------------------------------- */

typedef struct rank_thread {
    pthread_t thread;
    const perf_command *command;
    const perf_options *options;
    const machine *here;
    uint32_t number;
    const char *where;
    bool good;
} rank_thread;

static void *run_thread(void *context)
{
    rank_thread *thread = (rank_thread *)context;
    thread->good = run_rank(thread->command, thread->options, thread->here, thread->number, thread->where, NULL);
    return NULL;
}

/* Starts all ranks as threads; the calling thread is rank 0. */
static bool start_threads(const perf_command *command, const perf_options *options, const machine *here,
                          const char *where)
{
    rank_thread threads[PERF_RANKS_MAX];
    perf_output *output = perf_output_open(options);
    if (output == NULL) {
        return false;
    }
    uint32_t started = 1;
    for (; started < here->ranks; started++) {
        rank_thread *thread = &threads[started];
        memset(thread, 0, sizeof *thread);
        thread->command = command;
        thread->options = options;
        thread->here = here;
        thread->number = started;
        thread->where = where;
        int error = pthread_create(&thread->thread, NULL, run_thread, thread);
        if (error != 0) {
            fprintf(stderr, "weir-perf: no thread for rank %" PRIu32 ": %s\n", started, strerror(error));
            break;
        }
    }
    bool good = started == here->ranks && run_rank(command, options, here, 0, where, output);
    for (uint32_t i = 1; i < started; i++) {
        (void)pthread_join(threads[i].thread, NULL);
        good = threads[i].good && good;
    }
    return perf_output_close(output) && good;
}

static bool wait_for_process(pid_t process)
{
    int result = 0;
    pid_t ended = 0;
    do {
        ended = waitpid(process, &result, 0);
    } while (ended < 0 && errno == EINTR);
    return ended == process && WIFEXITED(result) && WEXITSTATUS(result) == EXIT_SUCCESS;
}

/* Starts each rank as a process of this program with the same arguments, the device kind and the rank. If a rank fails,
 * the others notice it and end. */
static bool start_processes(char **arguments, const machine *here, const char *where)
{
    char *child[ARGUMENTS_MAX];
    size_t count = 0;
    for (; arguments[count] != NULL; count++) {
        if (count + 5 >= ARGUMENTS_MAX) {
            fprintf(stderr, "weir-perf: too many arguments\n");
            return false;
        }
        child[count] = arguments[count];
    }
    if (setenv(UNIQUE_ID, where, 1) != 0) {
        fprintf(stderr, "weir-perf: setenv: %s\n", strerror(errno));
        return false;
    }
    char options[4][16] = { "--device", "", "--rank", "" };
    (void)snprintf(options[1], sizeof options[1], "%s", here->kind);
    for (size_t i = 0; i < 4; i++) {
        child[count + i] = options[i];
    }
    child[count + 4] = NULL;
    pid_t processes[PERF_RANKS_MAX];
    uint32_t started = 0;
    bool good = true;
    for (; started < here->ranks; started++) {
        (void)snprintf(options[3], sizeof options[3], "%" PRIu32, started);
        int error = posix_spawn(&processes[started], "/proc/self/exe", NULL, NULL, child, environ);
        if (error != 0) {
            fprintf(stderr, "weir-perf: no process for rank %" PRIu32 ": %s\n", started, strerror(error));
            good = false;
            break;
        }
    }
    for (uint32_t i = 0; i < started; i++) {
        good = wait_for_process(processes[i]) && good;
    }
    return good;
}

static bool choose_machine(const perf_options *options, machine *out)
{
    out->gpus = 0;
    out->kind = "cpu";
    if (options->device != NULL && strcmp(options->device, "cpu") == 0) {
        return true;
    }
    if (weir_device_count("gpu", &out->gpus) != WEIR_OK) {
        fprintf(stderr, "weir-perf: %s\n", weir_last_error());
        return false;
    }
    if (out->gpus != 0 && perf_has_gpu_kernels()) {
        out->kind = "gpu";
        return true;
    }
    const char *reason = out->gpus == 0 ? "no GPU here" : "built without nvcc";
    out->gpus = 0;
    if (options->device != NULL) {
        fprintf(stderr, "weir-perf: %s\n", reason);
        return false;
    }
    printf("%s: on the CPU, with small shapes\n", reason);
    (void)fflush(stdout);
    return true;
}

/* Chooses the number of ranks and finds out whether a launcher has started them. A rank that a launcher started alone,
 * as in an interactive job, starts the others. */
static bool choose_ranks(const perf_options *options, machine *out)
{
    memset(&out->launcher, 0, sizeof out->launcher);
    if (options->rank == PERF_NO_RANK && !options->processes && weir_launcher_get(&out->launcher) != WEIR_OK) {
        fprintf(stderr, "weir-perf: %s\n", weir_last_error());
        return false;
    }
    if (out->launcher.size == 1) {
        out->launcher.size = 0;
    }
    uint64_t ranks = options->ranks.count != 0 ? options->ranks.values[0] : PERF_RANKS;
    if (ranks == 0) {
        ranks = out->launcher.size != 0 ? out->launcher.size : out->gpus > 1 ? out->gpus : PERF_RANKS;
        ranks = ranks < PERF_RANKS_MAX || out->launcher.size != 0 ? ranks : PERF_RANKS_MAX;
    }
    if (ranks > PERF_RANKS_MAX || (out->gpus > 1 && ranks > out->gpus && out->launcher.size == 0)) {
        fprintf(stderr, "weir-perf: %" PRIu64 " ranks, but at most %" PRIu32 " are possible here\n", ranks,
                out->gpus > 1 && out->gpus < PERF_RANKS_MAX ? out->gpus : PERF_RANKS_MAX);
        return false;
    }
    if (out->launcher.size != 0 && out->launcher.size != ranks) {
        fprintf(stderr, "weir-perf: %" PRIu64 " ranks are needed, but %s has started %" PRIu32 "\n", ranks,
                out->launcher.source, out->launcher.size);
        return false;
    }
    out->ranks = (uint32_t)ranks;
    return true;
}

/* Runs the one rank of this process; `where` is NULL under a launcher. */
static bool start_one(const perf_command *command, const perf_options *options, const machine *here, uint32_t number,
                      const char *where)
{
    perf_output *output = number == 0 ? perf_output_open(options) : NULL;
    if (number == 0 && output == NULL) {
        return false;
    }
    bool good = run_rank(command, options, here, number, where, output);
    return perf_output_close(output) && good;
}

/* Runs the rank that --rank gives. */
static bool start_told(const perf_command *command, const perf_options *options, const machine *here)
{
    const char *where = getenv(UNIQUE_ID);
    if (options->rank >= here->ranks) {
        fprintf(stderr, "weir-perf: ranks are 0 to %" PRIu32 "\n", here->ranks - 1);
        return false;
    }
    if (where == NULL) {
        fprintf(stderr, "weir-perf: --rank needs " UNIQUE_ID "\n");
        return false;
    }
    return start_one(command, options, here, options->rank, where);
}

int perf_start(const perf_command *command, const perf_options *options, char **arguments)
{
    machine here;
    weir_unique_id id;
    bool good = false;
    if (!choose_machine(options, &here) || !choose_ranks(options, &here)) {
        return EXIT_FAILURE;
    }
    if (options->rank != PERF_NO_RANK) {
        good = start_told(command, options, &here);
    } else if (here.launcher.size != 0) {
        perf_options mine = *options;
        mine.processes = true;
        good = start_one(command, &mine, &here, here.launcher.rank, NULL);
    } else if (options->processes && here.gpus == 1) {
        fprintf(stderr, "weir-perf: kernels of several processes do not run at the same time on one GPU; without"
                        " --processes ranks are threads\n");
    } else if (weir_unique_id_create("127.0.0.1", &id) != WEIR_OK) {
        fprintf(stderr, "weir-perf: %s\n", weir_last_error());
    } else if (options->processes) {
        weir_unique_id_discard(&id); /* rank 0 is another process and binds the port */
        good = start_processes(arguments, &here, id.text);
    } else {
        good = start_threads(command, options, &here, id.text);
    }
    if (!good && strcmp(here.kind, "gpu") == 0) {
        (void)fflush(NULL);
        _exit(EXIT_FAILURE); /* only the end of the process ends a kernel that spins forever */
    }
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
