/* weir_perf_common.c - starts the ranks of weir-perf, and times what they launch.
 *
 * Two ranks on this host: threads of this process, or with --processes this program again, with --rank and the
 * unique id at which they meet in WEIR_UNIQUE_ID. Each has a GPU of its own where there are two. */
#include "weir_perf_common.h"

#include "weir_perf_cases.h"
#include "weir_perf_output.h"

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

/* ---- timing ------------------------------------------------------------------------------------------- */

weir_status perf_launch(perf_rank *rank, const perf_work *work)
{
    weir_launch_opts opts;
    memset(&opts, 0, sizeof opts);
    opts.size = sizeof opts;
    opts.cooperative = work->cooperative && !rank->options->plain;
    weir_status status = weir_launch(rank->device, work->kernel, work->shape, work->args, &opts, rank->stream);
    if (status != WEIR_OK) {
        return perf_fail(rank, status, "launch of %s: %s", work->kernel->name, weir_last_error());
    }
    return WEIR_OK;
}

weir_status perf_record(perf_rank *rank, const perf_work *work, uint32_t nodes, void **graph)
{
    weir_status status = weir_graph_begin(rank->device, rank->stream);
    if (status != WEIR_OK) {
        return status;
    }
    for (uint32_t i = 1; i <= nodes && status == WEIR_OK; i++) {
        if (work->number != NULL) {
            *work->number = i;
        }
        status = perf_launch(rank, work);
    }
    if (status != WEIR_OK) {
        /* The stream must leave the recording. */
        void *unfinished = NULL;
        if (weir_graph_end(rank->device, rank->stream, &unfinished) == WEIR_OK) {
            weir_graph_destroy(rank->device, unfinished);
        }
        return status;
    }
    return weir_graph_end(rank->device, rank->stream, graph);
}

/* Puts the untimed replays and the timed ones on the stream, with events around each of these. */
static weir_status replay(perf_rank *rank, void *graph, uint32_t warmup, uint32_t replays)
{
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < warmup && status == WEIR_OK; i++) {
        status = weir_graph_launch(rank->device, graph, rank->stream);
    }
    if (status == WEIR_OK) {
        status = weir_event_record(rank->device, rank->events[0], rank->stream);
    }
    for (uint32_t i = 1; i <= replays && status == WEIR_OK; i++) {
        status = weir_graph_launch(rank->device, graph, rank->stream);
        if (status == WEIR_OK) {
            status = weir_event_record(rank->device, rank->events[i], rank->stream);
        }
    }
    return status;
}

weir_status perf_time(perf_rank *rank, void *graph, uint32_t nodes, uint32_t warmup, uint32_t replays, double *us)
{
    double ms[PERF_RANKS][PERF_REPLAYS_MAX];
    memset(ms, 0, sizeof ms);
    weir_status status = weir_bootstrap_barrier(rank->bootstrap, NULL);
    if (status == WEIR_OK) {
        status = replay(rank, graph, warmup != 0 ? warmup : 1, replays);
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
        double longest = ms[0][i] > ms[1][i] ? ms[0][i] : ms[1][i];
        us[i] = longest * 1e3 / nodes;
    }
    return status;
}

static int compare_values(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

void perf_sort(double *values, uint32_t count)
{
    qsort(values, count, sizeof values[0], compare_values);
}

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

static weir_status open_rank(perf_rank *rank, const char *device, const char *where)
{
    weir_status status = weir_device_open(device, NULL, &rank->device);
    if (status != WEIR_OK) {
        return status;
    }
    weir_device_get_info(rank->device, &rank->info);
    rank->gpu = strcmp(rank->info.kind, "gpu") == 0;
    status = weir_bootstrap_create(where, rank->rank, PERF_RANKS, NULL, &rank->bootstrap);
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

/* All of one rank, from its device to its results. Returns whether it went well. After a failure on a GPU a kernel
 * by hand may spin on for ever, so that nothing can be closed. */
static bool run_rank(const perf_command *command, const perf_options *options, uint32_t number, const char *device,
                     bool shared, const char *where, perf_output *output)
{
    perf_rank rank;
    memset(&rank, 0, sizeof rank);
    rank.options = options;
    rank.command = command->name;
    rank.rank = number;
    rank.peer = number ^ 1u;
    rank.shared = shared;
    rank.output = output;
    weir_status status = open_rank(&rank, device, where);
    if (status == WEIR_OK) {
        status = command->run(&rank);
    }
    if (status != WEIR_OK) {
        const char *text = rank.error[0] != '\0' ? rank.error : weir_last_error();
        fprintf(stderr, "weir-perf: rank %" PRIu32 " on %s: %s: %s\n", number, device, weir_status_name(status), text);
        if (rank.comm != NULL) {
            weir_comm_abort(rank.comm); /* the other rank need not wait for its deadline */
        }
    }
    if (status == WEIR_OK || !rank.gpu) {
        close_rank(&rank);
    }
    return status == WEIR_OK;
}

static bool open_output(const perf_options *options, perf_output **output)
{
    const char *failed = NULL;
    *output = perf_output_open(options->csv, options->json, &failed);
    if (*output == NULL) {
        fprintf(stderr, "weir-perf: %s: %s\n", failed, strerror(errno));
    }
    return *output != NULL;
}

static bool close_output(perf_output *output)
{
    bool written = perf_output_close(output);
    if (!written) {
        fprintf(stderr, "weir-perf: the result files could not be written: %s\n", strerror(errno));
    }
    return written;
}

/* ---- starting ranks ----------------------------------------------------------------------------------- */

/* What there is to run on. */
typedef struct machine {
    const char *kind; /* of device: "gpu" or "cpu" */
    uint32_t gpus;
} machine;

/* The one rank that this process is, or with `output` a rank that is a thread of it. */
static bool run_on(const perf_command *command, const perf_options *options, const machine *here, uint32_t number,
                   const char *where, perf_output *output)
{
    char device[16];
    (void)snprintf(device, sizeof device, "%s:%" PRIu32, here->kind, here->gpus == 1 ? 0 : number);
    return run_rank(command, options, number, device, here->gpus == 1, where, output);
}

typedef struct rank_thread {
    const perf_command *command;
    const perf_options *options;
    const machine *here;
    const char *where;
    bool good;
} rank_thread;

static void *run_second(void *context)
{
    rank_thread *thread = (rank_thread *)context;
    thread->good = run_on(thread->command, thread->options, thread->here, 1, thread->where, NULL);
    return NULL;
}

/* Both ranks as threads of this process; this one is rank 0. */
static bool start_threads(const perf_command *command, const perf_options *options, const machine *here,
                          const char *where)
{
    perf_output *output = NULL;
    rank_thread second = { command, options, here, where, false };
    pthread_t thread;
    if (!open_output(options, &output)) {
        return false;
    }
    int error = pthread_create(&thread, NULL, run_second, &second);
    if (error != 0) {
        fprintf(stderr, "weir-perf: no thread for rank 1: %s\n", strerror(error));
        (void)close_output(output);
        return false;
    }
    bool good = run_on(command, options, here, 0, where, output);
    (void)pthread_join(thread, NULL);
    return close_output(output) && good && second.good;
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

/* Each rank as a process: this program with its own arguments, the kind of device and the rank. A rank that
 * fails is noticed by the other, which then ends as well. */
static bool start_processes(char **arguments, const char *kind, const char *where)
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
    (void)snprintf(options[1], sizeof options[1], "%s", kind);
    for (size_t i = 0; i < 4; i++) {
        child[count + i] = options[i];
    }
    child[count + 4] = NULL;
    pid_t processes[PERF_RANKS];
    uint32_t started = 0;
    bool good = true;
    for (; started < PERF_RANKS; started++) {
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

/* The one rank of another process, or of a user who starts the ranks. */
static bool start_one(const perf_command *command, const perf_options *options, const machine *here)
{
    perf_output *output = NULL;
    const char *where = getenv(UNIQUE_ID);
    if (where == NULL) {
        fprintf(stderr, "weir-perf: --rank needs " UNIQUE_ID "\n");
        return false;
    }
    if (options->rank == 0 && !open_output(options, &output)) {
        return false;
    }
    bool good = run_on(command, options, here, options->rank, where, output);
    return close_output(output) && good;
}

int perf_start(const perf_command *command, const perf_options *options, char **arguments)
{
    machine here;
    weir_unique_id id;
    bool good = false;
    if (!choose_machine(options, &here)) {
        return EXIT_FAILURE;
    }
    if (options->rank != PERF_NO_RANK) {
        good = start_one(command, options, &here);
    } else if (options->processes && here.gpus == 1) {
        fprintf(stderr, "weir-perf: kernels of two processes do not run at the same time on one GPU; without"
                        " --processes ranks are threads\n");
    } else if (weir_unique_id_create("127.0.0.1", &id) != WEIR_OK) {
        fprintf(stderr, "weir-perf: %s\n", weir_last_error());
    } else if (options->processes) {
        weir_unique_id_discard(&id); /* rank 0 is another process, which binds the port itself */
        good = start_processes(arguments, here.kind, id.text);
    } else {
        good = start_threads(command, options, &here, id.text);
    }
    if (!good && strcmp(here.kind, "gpu") == 0) {
        (void)fflush(NULL);
        _exit(EXIT_FAILURE); /* only the end of the process ends a kernel that spins for ever */
    }
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
