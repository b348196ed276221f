/* weir_perf_common.c - starts the ranks of weir-perf, and times what they launch.
 *
 * Two ranks on this host. With two GPUs or more, and on the CPU, each is a process: this program again, with
 * --rank, and the unique id at which they meet in WEIR_UNIQUE_ID. With one GPU they are two threads on it. */
#include "weir_perf_common.h"

#include "weir_perf_output.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
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

weir_shape perf_shape(const perf_rank *rank, weir_shape wanted)
{
    if (rank->options->blocks != 0) {
        wanted.blocks = rank->options->blocks;
    }
    if (rank->options->threads != 0) {
        wanted.threads = rank->options->threads;
    }
    return weir_device_fit_shape(rank->device, wanted);
}

/* ---- data --------------------------------------------------------------------------------------------- */

static uint64_t random_word(uint64_t seed, uint64_t position)
{
    uint64_t x = (seed << 40 ^ position) + 0x632be59bd9b4e019u;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    return (x ^ x >> 32) | 1;
}

void perf_fill(uint64_t *words, uint64_t count, uint64_t seed)
{
    for (uint64_t i = 0; i < count; i++) {
        words[i] = random_word(seed, i);
    }
}

uint64_t perf_check(const uint64_t *words, uint64_t count, uint64_t seed)
{
    uint64_t i = 0;
    while (i < count && words[i] == random_word(seed, i)) {
        i++;
    }
    return i;
}

/* ---- timing ------------------------------------------------------------------------------------------- */

weir_status perf_record(perf_rank *rank, const perf_work *work, uint32_t nodes, void **graph)
{
    weir_launch_opts opts;
    memset(&opts, 0, sizeof opts);
    opts.size = sizeof opts;
    opts.cooperative = work->cooperative && !rank->options->plain;
    weir_status status = weir_graph_begin(rank->device, rank->stream);
    if (status != WEIR_OK) {
        return status;
    }
    for (uint32_t i = 1; i <= nodes && status == WEIR_OK; i++) {
        if (work->number != NULL) {
            *work->number = i;
        }
        status = weir_launch(rank->device, work->kernel, work->shape, work->args, &opts, rank->stream);
    }
    if (status != WEIR_OK) {
        /* The stream must leave the recording; the text of the failed launch is the one to keep. */
        void *unfinished = NULL;
        (void)perf_fail(rank, status, "launch of %s: %s", work->kernel->name, weir_last_error());
        if (weir_graph_end(rank->device, rank->stream, &unfinished) == WEIR_OK) {
            weir_graph_destroy(rank->device, unfinished);
        }
        return status;
    }
    return weir_graph_end(rank->device, rank->stream, graph);
}

/* Puts an untimed replay, the timed ones and the events around them on the stream. */
static weir_status replay(perf_rank *rank, void *graph, uint32_t replays)
{
    weir_status status = weir_graph_launch(rank->device, graph, rank->stream);
    if (status == WEIR_OK) {
        status = weir_event_record(rank->device, rank->from, rank->stream);
    }
    for (uint32_t i = 0; i < replays && status == WEIR_OK; i++) {
        status = weir_graph_launch(rank->device, graph, rank->stream);
    }
    if (status == WEIR_OK) {
        status = weir_event_record(rank->device, rank->to, rank->stream);
    }
    return status;
}

weir_status perf_time(perf_rank *rank, void *graph, uint32_t nodes, uint32_t replays, double *us)
{
    double ms[PERF_RANKS] = { 0 };
    weir_status status = weir_bootstrap_barrier(rank->bootstrap, NULL);
    if (status == WEIR_OK) {
        status = replay(rank, graph, replays);
    }
    if (status == WEIR_OK) {
        status = weir_stream_wait(rank->device, rank->stream, 0);
    }
    if (status == WEIR_OK) {
        status = weir_comm_status(rank->comm);
    }
    if (status == WEIR_OK) {
        status = weir_event_elapsed(rank->device, rank->from, rank->to, &ms[rank->rank]);
    }
    if (status == WEIR_OK) {
        status = weir_bootstrap_allgather(rank->bootstrap, NULL, ms, sizeof ms[0]);
    }
    if (status == WEIR_OK) {
        double longest = ms[0] > ms[1] ? ms[0] : ms[1];
        *us = longest * 1e3 / ((double)nodes * replays);
    }
    return status;
}

static int compare_values(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

double perf_median(double *values, uint32_t count)
{
    qsort(values, count, sizeof values[0], compare_values);
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* ---- one rank ----------------------------------------------------------------------------------------- */

/* The kernel driver's own version, which the device does not know. */
static void report_driver(perf_output *output)
{
    char line[256] = "";
    FILE *file = fopen("/proc/driver/nvidia/version", "r");
    if (file != NULL) {
        if (fgets(line, sizeof line, file) != NULL) {
            line[strcspn(line, "\n")] = '\0';
            perf_fact(output, "kernel driver", "%s", line);
        }
        (void)fclose(file);
    }
}

weir_status perf_report_machine(perf_rank *rank)
{
    weir_device_info infos[PERF_RANKS];
    memset(infos, 0, sizeof infos);
    infos[rank->rank] = rank->info;
    weir_status status = weir_bootstrap_allgather(rank->bootstrap, NULL, infos, sizeof infos[0]);
    if (status != WEIR_OK) {
        return status;
    }
    char date[64] = "";
    char host[256] = "";
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc) != NULL) {
        (void)strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", &utc);
    }
    (void)gethostname(host, sizeof host - 1);
    perf_fact(rank->output, "date", "%s", date);
    perf_fact(rank->output, "host", "%s", host);
    perf_fact(rank->output, "weir", "%s, headers %s", weir_version(), WEIR_VERSION_STRING);
    for (uint32_t i = 0; i < PERF_RANKS; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "rank %" PRIu32, i);
        perf_fact(rank->output, name, "%s, %s, %" PRIu64 " MiB", infos[i].label, infos[i].model,
                  infos[i].memory_bytes >> 20);
    }
    if (rank->gpu) {
        perf_fact(rank->output, "driver", "CUDA %" PRIu32 ".%" PRIu32, rank->info.driver_version / 1000,
                  rank->info.driver_version % 1000 / 10);
        report_driver(rank->output);
    }
    return WEIR_OK;
}

static void close_rank(perf_rank *rank)
{
    if (rank->device != NULL) {
        if (rank->to != NULL) {
            weir_event_destroy(rank->device, rank->to);
        }
        if (rank->from != NULL) {
            weir_event_destroy(rank->device, rank->from);
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
    if (status == WEIR_OK) {
        status = weir_event_create(rank->device, &rank->from);
    }
    if (status == WEIR_OK) {
        status = weir_event_create(rank->device, &rank->to);
    }
    return status;
}

/* All of one rank, from its device to its results. Returns whether it went well. */
static bool run_rank(const perf_command *command, const perf_options *options, uint32_t number, const char *device,
                     const char *where)
{
    perf_rank rank;
    memset(&rank, 0, sizeof rank);
    rank.options = options;
    rank.rank = number;
    rank.peer = number ^ 1u;
    if (number == 0) {
        const char *failed = NULL;
        rank.output = perf_output_open(options->csv, options->json, &failed);
        if (rank.output == NULL) {
            fprintf(stderr, "weir-perf: %s: %s\n", failed, strerror(errno));
            return false;
        }
    }
    weir_status status = open_rank(&rank, device, where);
    if (status == WEIR_OK) {
        status = command->run(&rank);
    }
    if (status != WEIR_OK) {
        const char *text = rank.error[0] != '\0' ? rank.error : weir_last_error();
        fprintf(stderr, "weir-perf: rank %" PRIu32 " on %s: %s: %s\n", number, device, weir_status_name(status), text);
    }
    bool written = perf_output_close(rank.output);
    if (!written) {
        fprintf(stderr, "weir-perf: the result files could not be written: %s\n", strerror(errno));
    }
    if (status != WEIR_OK && rank.gpu) {
        (void)fflush(NULL);
        _exit(EXIT_FAILURE); /* a kernel by hand may spin on for ever; only the end of the process ends it */
    }
    close_rank(&rank);
    return status == WEIR_OK && written;
}

/* ---- starting ranks ----------------------------------------------------------------------------------- */

typedef struct rank_thread {
    const perf_command *command;
    const perf_options *options;
    uint32_t rank;
    const char *where;
    bool good;
} rank_thread;

static void *run_thread(void *context)
{
    rank_thread *thread = (rank_thread *)context;
    thread->good = run_rank(thread->command, thread->options, thread->rank, "gpu:0", thread->where);
    return NULL;
}

/* Both ranks as threads of this process, on its only GPU. */
static bool start_threads(const perf_command *command, const perf_options *options, const char *where)
{
    rank_thread ranks[PERF_RANKS];
    pthread_t second;
    for (uint32_t i = 0; i < PERF_RANKS; i++) {
        ranks[i].command = command;
        ranks[i].options = options;
        ranks[i].rank = i;
        ranks[i].where = where;
        ranks[i].good = false;
    }
    int error = pthread_create(&second, NULL, run_thread, &ranks[1]);
    if (error != 0) {
        fprintf(stderr, "weir-perf: no thread for rank 1: %s\n", strerror(error));
        return false;
    }
    (void)run_thread(&ranks[0]);
    (void)pthread_join(second, NULL);
    return ranks[0].good && ranks[1].good;
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

/* The kind of device to use, "gpu" or "cpu", and how many GPUs there are. */
static bool choose_kind(const perf_command *command, const perf_options *options, const char **kind, uint32_t *gpus)
{
    *gpus = 0;
    *kind = "cpu";
    if (options->device != NULL && strcmp(options->device, "cpu") == 0) {
        return true;
    }
    if (weir_device_count("gpu", gpus) != WEIR_OK) {
        fprintf(stderr, "weir-perf: %s\n", weir_last_error());
        return false;
    }
    if (*gpus != 0 && command->gpu) {
        *kind = "gpu";
        return true;
    }
    const char *reason = *gpus == 0 ? "no GPU here" : "built without nvcc";
    if (options->device != NULL) {
        fprintf(stderr, "weir-perf: %s\n", reason);
        return false;
    }
    printf("%s: on the CPU, with small shapes\n", reason);
    (void)fflush(stdout);
    return true;
}

int perf_start(const perf_command *command, const perf_options *options, char **arguments)
{
    const char *kind = NULL;
    uint32_t gpus = 0;
    if (!choose_kind(command, options, &kind, &gpus)) {
        return EXIT_FAILURE;
    }
    bool good = false;
    if (options->rank != PERF_NO_RANK) {
        const char *where = getenv(UNIQUE_ID);
        if (where == NULL) {
            fprintf(stderr, "weir-perf: --rank needs " UNIQUE_ID "\n");
            return EXIT_FAILURE;
        }
        char device[16];
        (void)snprintf(device, sizeof device, "%s:%" PRIu32, kind, gpus == 1 ? 0 : options->rank);
        good = run_rank(command, options, options->rank, device, where);
        return good ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    weir_unique_id id;
    if (weir_unique_id_create("127.0.0.1", &id) != WEIR_OK) {
        fprintf(stderr, "weir-perf: %s\n", weir_last_error());
        return EXIT_FAILURE;
    }
    if (gpus == 1 && strcmp(kind, "gpu") == 0) {
        good = start_threads(command, options, id.text);
    } else {
        weir_unique_id_discard(&id); /* rank 0 is another process, which binds the port itself */
        good = start_processes(arguments, kind, id.text);
    }
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
