/* common.h - what the applications of this folder share: options, devices as threads, checks and times.
 *
 *     static const form_app app = { "particles", &particles_resident, &particles_step, prepare, put_steps, compare };
 *
 *     form_open(&state->run, start, &app, &options, gpus);        each device
 *     form_measure(&state->run, &app);
 *
 *     form_main(argc, argv, &app, &options, sizes, 2, &gpus, run_device);
 *
 * An application has one computing body and several forms, which differ in how devices exchange data. README.md says
 * what the forms are. Each form runs in three ways: steps without exchange, steps without computing, and both. T_c, T_x
 * and T_b are the times of a step: the median of all repetitions, and the longest of the devices. */
#ifndef EXAMPLES_WINDOWS_COMMON_H
#define EXAMPLES_WINDOWS_COMMON_H

#include "../common/ranks.h"

#include <dlfcn.h>

/* The ranks are on one machine. Without the part for port channels a kernel needs half of the registers, and twice
 * the number of blocks is resident. Remove this line to run between machines. */
#define WEIR_WINDOW_NO_PORT
#include <weir/device/window.h>

typedef enum form_kind { FORM_WINDOW, FORM_STEPS, FORM_HAND, FORM_SPLIT, FORM_GRAPH, FORM_HOST, FORMS } form_kind;

static const char *const form_names[FORMS] = { "window", "steps", "hand", "split", "graph", "host" };

/* Form `window`: the first rank of a block is that of the block's number, or the one that weir_dev_window_index gives
 * it, which puts neighbouring ranks on one multiprocessor. */
typedef enum form_number { NUMBER_BLOCK, NUMBER_MULTIPROCESSOR, NUMBERS } form_number;

static const char *const number_names[NUMBERS] = { "block", "multiprocessor" };

/* Form `window`: whether steps without exchange keep what the multiprocessor's L1 holds, or empty it where the others
 * wait, as the acquire of a wait does. */
typedef enum form_cache { CACHE_KEPT, CACHE_EMPTIED, CACHES } form_cache;

static const char *const cache_names[CACHES] = { "kept", "emptied" };

enum { FORM_DEVICES_MAX = 8, FORM_REPEATS_MAX = 101, FORM_THREADS_MAX = 1024 };

typedef struct form_options {
    uint32_t form; /* form_kind */
    bool check;
    uint32_t devices;
    uint32_t ranks; /* of each device; 0: one for each multiprocessor, 4 on the CPU */
    uint32_t threads;
    uint32_t steps;
    uint32_t repeats;
    uint32_t number; /* form_number */
    uint32_t cache;  /* form_cache */
} form_options;

/* A size of an application, for the command line. */
typedef struct form_size {
    const char *option; /* "--width" */
    uint32_t *value;
    uint32_t least, most;
} form_size;

/* The actions of a step. */
typedef enum form_part { FORM_COMPUTES = 1, FORM_EXCHANGES = 2, FORM_BOTH = 3 } form_part;

/* A second stream of a GPU, with a high priority, beside the job's. Libweir makes no such streams: calls of the CUDA
 * driver do. */
typedef struct form_fork {
    void *library;
    void *stream;
    void *begin, *end; /* events */
    int (*destroy)(void *stream);
} form_fork;

/* A device's share of the run. It is the first member of an application's state. */
typedef struct form_run {
    rank_job job;
    const form_options *options;
    uint32_t ranks;      /* of this device */
    weir_shape resident; /* for a kernel whose blocks wait for each other */
    weir_shape step;     /* for a kernel of one step */
    form_fork fork;      /* of the form `split` */
} form_run;

typedef struct form_app {
    const char *name;
    const weir_kernel *resident, *step;
    /* Brings the state before the first step to this device. */
    bool (*prepare)(form_run *run);
    /* Puts all steps on the stream; in the form `host` it may wait for them. `parts` are of form_part. */
    bool (*put_steps)(form_run *run, uint32_t parts);
    /* Compares this device's result of FORM_BOTH with a serial one and prints what is wrong. */
    bool (*compare)(form_run *run);
} form_app;

/* ---- options --------------------------------------------------------------------------------------------------- */

/* Takes a word of a list as its place there. */
static inline bool form_word(const char *text, const char *const *words, uint32_t count, uint32_t *value)
{
    for (uint32_t i = 0; i < count && text != NULL; i++) {
        if (strcmp(text, words[i]) == 0) {
            *value = i;
            return true;
        }
    }
    return false;
}

static inline bool form_count(const char *text, uint32_t least, uint32_t most, uint32_t *value)
{
    char *end = NULL;
    const unsigned long number = text != NULL ? strtoul(text, &end, 10) : 0;
    if (text == NULL || *text < '0' || *text > '9' || *end != '\0' || number < least || number > most) {
        return false;
    }
    *value = (uint32_t)number;
    return true;
}

static inline bool form_usage(const char *program, const char *option, const char *value, const form_size *sizes,
                              uint32_t count)
{
    fprintf(stderr, "%s %s: not an option with this value\n", option, value != NULL ? value : "");
    fprintf(stderr,
            "usage: %s [--form window|steps|hand|split|graph|host] [--check] [--devices N] [--ranks N] [--threads N]\n"
            "       [--steps N] [--repeats N] [--number block|multiprocessor] [--cache kept|emptied]",
            program);
    for (uint32_t i = 0; i < count; i++) {
        fprintf(stderr, " [%s %" PRIu32 "..%" PRIu32 "]", sizes[i].option, sizes[i].least, sizes[i].most);
    }
    fprintf(stderr, "\n");
    return false;
}

/* Prints the usage and returns false if an option is wrong. `options` begins with the defaults. */
static inline bool form_parse(int argc, char **argv, form_options *options, const form_size *sizes, uint32_t count)
{
    const form_size own[] = { { "--devices", &options->devices, 1, FORM_DEVICES_MAX },
                              { "--ranks", &options->ranks, 1, 1 << 16 },
                              { "--threads", &options->threads, 1, FORM_THREADS_MAX },
                              { "--steps", &options->steps, 1, 1 << 20 },
                              { "--repeats", &options->repeats, 1, FORM_REPEATS_MAX } };
    const uint32_t own_count = sizeof own / sizeof own[0];
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        bool good = false;
        if (strcmp(argv[i], "--check") == 0) {
            options->check = true;
            continue;
        }
        if (strcmp(argv[i], "--form") == 0) {
            good = form_word(value, form_names, FORMS, &options->form);
        }
        if (strcmp(argv[i], "--number") == 0) {
            good = form_word(value, number_names, NUMBERS, &options->number);
        }
        if (strcmp(argv[i], "--cache") == 0) {
            good = form_word(value, cache_names, CACHES, &options->cache);
        }
        for (uint32_t k = 0; k < own_count + count; k++) {
            const form_size *size = k < own_count ? &own[k] : &sizes[k - own_count];
            if (strcmp(argv[i], size->option) == 0) {
                good = form_count(value, size->least, size->most, size->value);
            }
        }
        if (!good) {
            return form_usage(argv[0], argv[i], value, sizes, count);
        }
        i++;
    }
    return true;
}

/* ---- a device ---------------------------------------------------------------------------------------------------- */

/* Memory of the host, filled with zeros. Without any it prints an error and returns NULL. */
static inline void *form_allocate(uint64_t count, size_t size)
{
    void *memory = calloc(count != 0 ? count : 1, size);
    if (memory == NULL) {
        fprintf(stderr, "The host has no memory for %" PRIu64 " values of %zu bytes\n", count, size);
    }
    return memory;
}

/* Opens the device and finds the shapes. Devices that share a GPU share what is resident on it. */
static inline bool form_open(form_run *run, const rank_start *start, const form_app *app, const form_options *options,
                             uint32_t gpus)
{
    weir_device_info info;
    run->options = options;
    if (!job_open(start, &run->job)) {
        return false;
    }
    weir_device_get_info(run->job.device, &info, sizeof info);
    run->ranks = options->ranks != 0 ? options->ranks : run->job.on_cpu ? 4 : info.multiprocessors;
    run->resident.threads = run->job.on_cpu ? 2 : options->threads;
    if (!ok(&run->job, weir_kernel_load(run->job.device, app->step)) ||
        !ok(&run->job, weir_kernel_fit(run->job.device, app->resident, run->resident.threads, &run->resident.blocks))) {
        return false;
    }
    const uint32_t sharing = run->job.on_cpu ? 1 : (run->job.ranks + gpus - 1) / gpus;
    run->resident.blocks = run->resident.blocks > sharing ? run->resident.blocks / sharing : 1;
    run->resident.blocks = run->resident.blocks < run->ranks ? run->resident.blocks : run->ranks;
    run->step.blocks = run->ranks;
    run->step.threads = run->resident.threads;
    if (run->job.on_cpu) {
        run->step = weir_device_fit_shape(run->job.device, run->step);
    }
    return true;
}

/* The first rank that a block of a resident kernel serves. Every coop.blocks-th rank from there on is its own too. */
WEIR_FN weir_status form_first_rank(const weir_dev_window *window, uint32_t number, uint32_t *first, weir_coop block)
{
    *first = block.block;
    return number == NUMBER_MULTIPROCESSOR ? weir_dev_window_index(window, first, block) : WEIR_OK;
}

/* In place of a wait that no message ends: with CACHE_EMPTIED it leaves the L1 as a wait does. */
WEIR_FN weir_status form_no_wait(uint32_t cache, weir_coop block)
{
    if (cache == CACHE_EMPTIED && weir_coop_leads(block)) {
        weir_arch_fence_acquire_sys();
    }
    return cache == CACHE_EMPTIED ? weir_coop_sync(block) : WEIR_OK;
}

/* ---- a second stream --------------------------------------------------------------------------------------------- */

static inline bool form_driver(const form_run *run, const char *call, int result)
{
    if (result != 0) {
        fprintf(stderr, "Device %" PRIu32 ": %s: CUDA error %d\n", run->job.rank, call, result);
    }
    return result == 0;
}

static inline bool form_symbol(const form_run *run, const char *name, void *function)
{
    void *symbol = dlsym(run->fork.library, name);
    if (symbol == NULL) {
        fprintf(stderr, "Device %" PRIu32 ": the CUDA driver has no %s\n", run->job.rank, name);
    }
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

static inline bool form_fork_open(form_run *run)
{
    const char *library = getenv("WEIR_CUDA_LIBRARY"); /* as weir does */
    const rank_job *job = &run->job;
    int (*get_context)(void *stream, void **context);
    int (*set_context)(void *context);
    int (*get_priorities)(int *least, int *greatest);
    int (*create)(void **stream, unsigned flags, int priority);
    void *context = NULL;
    int least = 0;
    int greatest = 0;
    const unsigned non_blocking = 1;
    run->fork.library = dlopen(library != NULL && *library != '\0' ? library : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (run->fork.library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return false;
    }
    return form_symbol(run, "cuStreamGetCtx", &get_context) && form_symbol(run, "cuCtxSetCurrent", &set_context) &&
           form_symbol(run, "cuCtxGetStreamPriorityRange", &get_priorities) &&
           form_symbol(run, "cuStreamCreateWithPriority", &create) &&
           form_symbol(run, "cuStreamDestroy_v2", &run->fork.destroy) &&
           form_driver(run, "cuStreamGetCtx", get_context(job->stream, &context)) &&
           form_driver(run, "cuCtxSetCurrent", set_context(context)) &&
           form_driver(run, "cuCtxGetStreamPriorityRange", get_priorities(&least, &greatest)) &&
           form_driver(run, "cuStreamCreateWithPriority", create(&run->fork.stream, non_blocking, greatest)) &&
           ok(job, weir_event_create(job->device, &run->fork.begin)) &&
           ok(job, weir_event_create(job->device, &run->fork.end));
}

static inline void form_fork_close(form_run *run)
{
    if (run->fork.stream != NULL) {
        weir_event_destroy(run->job.device, run->fork.end);
        weir_event_destroy(run->job.device, run->fork.begin);
        (void)run->fork.destroy(run->fork.stream);
    }
    if (run->fork.library != NULL) {
        (void)dlclose(run->fork.library);
    }
}

/* Later work of the second stream follows the work that is on the job's stream now. */
static inline bool form_fork_begin(const form_run *run)
{
    return ok(&run->job, weir_event_record(run->job.device, run->fork.begin, run->job.stream)) &&
           ok(&run->job, weir_stream_wait_event(run->job.device, run->fork.stream, run->fork.begin));
}

/* Later work of the job's stream follows the work that is on the second stream now. */
static inline bool form_fork_end(const form_run *run)
{
    return ok(&run->job, weir_event_record(run->job.device, run->fork.end, run->fork.stream)) &&
           ok(&run->job, weir_stream_wait_event(run->job.device, run->job.stream, run->fork.end));
}

/* ---- checks and times -------------------------------------------------------------------------------------------- */

/* Forms whose steps are recorded once and replayed. */
static inline bool form_is_graph(const form_run *run)
{
    return run->options->form == FORM_GRAPH || run->options->form == FORM_SPLIT;
}

/* Runs all steps once. `graph` is NULL for forms without one. Before the run all devices are prepared. After it all
 * have waited for what was sent to them, so that no transfer still reads this device's memory. */
static inline bool form_run_once(form_run *run, const form_app *app, uint32_t parts, void *graph, double *us)
{
    const rank_job *job = &run->job;
    double ms = 0;
    const bool good =
        app->prepare(run) && job_meet(job) && ok(job, weir_event_record(job->device, job->begin, job->stream)) &&
        (graph != NULL ? ok(job, weir_graph_launch(job->device, graph, job->stream)) : app->put_steps(run, parts)) &&
        ok(job, weir_event_record(job->device, job->end, job->stream)) &&
        ok(job, weir_comm_wait(job->comm, job->stream, 0)) &&
        ok(job, weir_event_elapsed(job->device, job->begin, job->end, &ms)) && job_meet(job);
    *us = 1000 * ms / run->options->steps;
    return good;
}

static inline int form_compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Prints the line of the form from the medians of all devices, which begin with this device's own. */
static inline bool form_report(const form_run *run, const form_app *app, const double *own)
{
    double all[FORM_DEVICES_MAX][3];
    double most[3] = { 0, 0, 0 };
    double sum = 0;
    memcpy(all[run->job.rank], own, sizeof all[0]);
    if (!ok(&run->job, weir_bootstrap_allgather(run->job.bootstrap, NULL, all, sizeof all[0]))) {
        return false;
    }
    for (uint32_t i = 0; i < run->job.ranks; i++) {
        for (int k = 0; k < 3; k++) {
            most[k] = all[i][k] > most[k] ? all[i][k] : most[k];
        }
        sum += all[i][0];
    }
    if (run->job.rank == 0) {
        const double less = most[0] < most[1] ? most[0] : most[1];
        printf(
            "%s --form %s%s%s: %" PRIu32 " devices of %" PRIu32 " ranks, us a step: T_c %.2f T_x %.2f T_b %.2f hidden "
            "%.3f imbalance %.3f\n",
            app->name, form_names[run->options->form],
            run->options->number == NUMBER_BLOCK ? "" : " --number multiprocessor",
            run->options->cache == CACHE_KEPT ? "" : " --cache emptied", run->job.ranks, run->ranks, most[0], most[1],
            most[2], less > 0 ? (most[0] + most[1] - most[2]) / less : 0, sum > 0 ? most[0] * run->job.ranks / sum : 0);
    }
    return true;
}

/* Checks the form if the options ask for it, then times it in all three ways, in turns. */
static inline bool form_measure(form_run *run, const form_app *app)
{
    static const uint32_t ways[3] = { FORM_COMPUTES, FORM_EXCHANGES, FORM_BOTH };
    const rank_job *job = &run->job;
    void *graphs[3] = { NULL, NULL, NULL };
    double times[3][FORM_REPEATS_MAX];
    double medians[3];
    double us;
    bool good = true;
    for (int k = 0; k < 3 && good && form_is_graph(run); k++) {
        good = ok(job, weir_graph_begin(job->device, job->stream)) && app->put_steps(run, ways[k]) &&
               ok(job, weir_graph_end(job->device, job->stream, &graphs[k]));
    }
    /* The first run of both parts also writes the messages that runs without computing send. */
    good = good && form_run_once(run, app, FORM_BOTH, graphs[2], &us) && (!run->options->check || app->compare(run));
    for (uint32_t i = 0; i < run->options->repeats && good; i++) {
        for (int k = 0; k < 3 && good; k++) {
            good = form_run_once(run, app, ways[k], graphs[k], &times[k][i]);
        }
    }
    for (int k = 0; k < 3 && good; k++) {
        qsort(times[k], run->options->repeats, sizeof times[k][0], form_compare_doubles);
        medians[k] = times[k][run->options->repeats / 2];
    }
    good = good && (!run->options->check || (form_run_once(run, app, FORM_BOTH, graphs[2], &us) && app->compare(run)));
    good = good && form_report(run, app, medians);
    for (int k = 0; k < 3 && good; k++) {
        if (graphs[k] != NULL) {
            weir_graph_destroy(job->device, graphs[k]);
        }
    }
    return good;
}

/* The program: options, and a device for each GPU. With one GPU, or on the CPU, two devices share it. */
static inline int form_main(int argc, char **argv, const form_app *app, form_options *options, const form_size *sizes,
                            uint32_t count, uint32_t *gpus, rank_function run_device)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!form_parse(argc, argv, options, sizes, count)) {
        return 2;
    }
    if (!ranks_count_gpus(app->step, gpus)) {
        return 1;
    }
    if (options->number != NUMBER_BLOCK && options->form != FORM_WINDOW) {
        fprintf(stderr, "%s: --number %s is only for --form window\n", app->name, number_names[options->number]);
        return 2;
    }
    if (options->cache != CACHE_KEPT && options->form != FORM_WINDOW) {
        fprintf(stderr, "%s: --cache %s is only for --form window\n", app->name, cache_names[options->cache]);
        return 2;
    }
    if (options->form == FORM_SPLIT && *gpus == 0) {
        fprintf(stderr, "%s: --form split needs a GPU: its two streams have priorities\n", app->name);
        return 2;
    }
    if (options->devices == 0) {
        options->devices = *gpus < 2 ? 2 : *gpus < FORM_DEVICES_MAX ? *gpus : (uint32_t)FORM_DEVICES_MAX;
    }
    return ranks_run_threads(options->devices, *gpus, run_device) ? 0 : 1;
}

#endif
