/* common.h - what all commands of weir-perf share: options, ranks, timing, results.
 *
 * A command is a row of the table in perf/main.c. Most have a function that each of the ranks runs, two of them unless
 * -g says otherwise: perf_start starts the ranks, or is one of those that mpirun, srun or torchrun has started, and
 * gives each a perf_rank: device, stream, bootstrap and communicator, ready to use. The
 * command makes what it measures, records launches as a graph, times replays of it, and rank 0 reports rows,
 * which go to standard output and, on request, to CSV and JSON files. A command that starts its ranks itself has
 * `start` instead.
 *
 * Commands are compiled by a C compiler or by nvcc as CUDA C++, so they stay in the common subset of both. */
#ifndef WEIR_PERF_COMMON_H
#define WEIR_PERF_COMMON_H

#include <stdio.h>

#include "weir/device/kernel.h"
#include "weir/weir.h"

WEIR_BEGIN_DECLS

#define ROWS(table) (sizeof(table) / sizeof(table)[0])

/* ---- commands and options ----------------------------------------------------------------------------- */

#define PERF_RANKS 2u /* of commands that move data from one to another */
#define PERF_RANKS_MAX 8u
#define PERF_LIST_MAX 64u
#define PERF_NO_RANK UINT32_MAX

typedef struct perf_list {
    uint64_t values[PERF_LIST_MAX];
    uint32_t count;
} perf_list;

/* A zero or NULL field is a default that depends on the command and the device. */
typedef struct perf_options {
    const char *device; /* "gpu" or "cpu" */
    bool processes;     /* each rank is a process; otherwise a thread of this one */
    uint32_t rank;      /* the one rank that this process is; PERF_NO_RANK: start all */
    perf_list ranks;    /* numbers of ranks */
    uint64_t least;     /* bytes: the first size, the last one, and the factor from one to the next */
    uint64_t most;
    uint32_t factor;
    perf_list sizes; /* bytes, instead of these three */
    const char *shape;
    perf_list blocks; /* of a launch; each with each number of threads */
    perf_list threads;
    uint32_t iters;  /* timed launches */
    uint32_t warmup; /* launches before them */
    bool one_way;
    bool check;
    bool host;         /* memory of the host in place of the device's */
    bool plain;        /* launch without checking that the grid is resident as a whole */
    const char *dtype; /* of collectives: of elements, and */
    const char *op;    /* how they are joined */
    const char *form;
    const char *compare; /* with "nccl" */
    const char *nccl;    /* its library */
    uint32_t host_ranks; /* hosts of so many ranks, made of this one's */
    bool graph;          /* launches are replays of graphs */
    bool registered;     /* buffers are known to all ranks */
    const char *tune;    /* the table that gets the fastest */
    const char *csv;
    const char *json;
    const char *plot;    /* the picture; its rows go to `json`, or to PLOT.json */
    const char *against; /* results of an earlier run, which this one is compared with */
} perf_options;

typedef struct perf_rank perf_rank;

typedef struct perf_command {
    const char *name;
    const char *summary;
    const char *takes; /* its options, separated by blanks, beside those that all commands have */
    weir_status (*run)(perf_rank *rank);
    /* For a command that starts its ranks itself, instead of run; returns the exit status of the process. */
    int (*start)(const perf_options *options, char **arguments);
} perf_command;

/* Runs the command on all ranks (or on options->rank alone) and returns the exit status of the process. There are two,
 * or options->ranks.values[0]; if that is 0, as many as GPUs, or as a launcher has started.
 * arguments: main's argv, with which the processes of the ranks are started. */
int perf_start(const perf_command *command, const perf_options *options, char **arguments);

/* ---- one rank ----------------------------------------------------------------------------------------- */

#define PERF_REPLAYS_MAX 100u

typedef struct perf_output perf_output;

struct perf_rank {
    const perf_options *options;
    const char *command;
    uint32_t rank;
    uint32_t ranks;
    uint32_t peer; /* of two */
    bool gpu;
    bool shared; /* all ranks use one GPU */
    weir_device *device;
    weir_device_info info;
    weir_bootstrap *bootstrap;
    weir_comm *comm;
    void *stream;
    void *events[PERF_REPLAYS_MAX + 1]; /* around the replays that are timed */
    perf_output *output;                /* NULL on all ranks but 0 */
    char error[256];                    /* what failed, where weir_last_error does not say it */
};

/* Notes what failed and returns `status`. */
weir_status perf_fail(perf_rank *rank, weir_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The sizes that were asked for; on a GPU by default up to gpu_most. */
weir_status perf_choose_sizes(perf_rank *rank, uint64_t gpu_most, perf_list *sizes);
uint64_t perf_largest(const perf_list *sizes);

/* Facts of versions, devices, settings and the date, in front of the first row. All ranks call it. */
weir_status perf_report_machine(perf_rank *rank);
/* What all NVLinks of the GPU carry in one direction, in GB/s; NaN where nvidia-smi does not tell. */
double perf_link_limit(const weir_device_info *info);

/* ---- timing ------------------------------------------------------------------------------------------- */

/* What one node of a graph launches. */
typedef struct perf_work {
    const weir_kernel *kernel;
    weir_shape shape;
    bool cooperative;
    const void *args;
    uint32_t *number; /* a field of args that is set to the number of the node, from 1; or NULL */
} perf_work;

/* Puts one node on the stream. */
weir_status perf_launch(perf_rank *rank, const perf_work *work);

weir_status perf_record(perf_rank *rank, const perf_work *work, uint32_t nodes, void **graph);

/* What puts one node on rank->stream, of any kind; numbers are from 1. */
typedef struct perf_calls {
    weir_status (*put)(perf_rank *rank, void *context, uint32_t number);
    void *context;
} perf_calls;

weir_status perf_record_calls(perf_rank *rank, const perf_calls *calls, uint32_t nodes, void **graph);

/* Times `replays` replays that follow `warmup` ones (at least one, which hides the host's part and lines the ranks
 * up). us[i] is the time of one node in the i-th, in us, the longest of all ranks. All ranks call it together. */
weir_status perf_time(perf_rank *rank, void *graph, uint32_t nodes, uint32_t warmup, uint32_t replays, double *us);
/* The same of as many nodes put on the stream one by one. */
weir_status perf_time_calls(perf_rank *rank, const perf_calls *calls, uint32_t nodes, uint32_t warmup, uint32_t replays,
                            double *us);

void perf_sort(double *values, uint32_t count);
/* Of sorted values: the one below which `part` of them are, between two neighbours if need be. */
double perf_percentile(const double *values, uint32_t count, double part);

/* ---- results; all ignore a NULL output -------------------------------------------------------------------- */

/* Facts of the machine, in front of the first row. */
void perf_fact(perf_output *output, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));

typedef enum perf_kind { PERF_TEXT, PERF_COUNT, PERF_REAL } perf_kind;

/* What a value is for a comparison with an earlier run (--against). */
typedef enum perf_role {
    PERF_NAMES,    /* tells what was measured; texts and counts */
    PERF_APART,    /* is not compared; other numbers */
    PERF_LATENCY,  /* a time, which may be 15 % longer */
    PERF_BANDWIDTH /* may be 5 % less */
} perf_role;

/* One value of a row. */
typedef struct perf_field {
    const char *name; /* column; as it stands in CSV and JSON */
    perf_kind kind;
    perf_role role;
    const char *text;
    uint64_t count;
    double real; /* NaN: there is none */
    int decimals;
    int width; /* of the column; negative: text begins at its left; 0: the value is in the files alone */
} perf_field;

perf_field perf_text(const char *name, const char *text);
perf_field perf_count(const char *name, uint64_t count);
perf_field perf_real(const char *name, double real, int decimals);
/* The same in another role. */
perf_field perf_as(perf_field field, perf_role role);
/* The same in a column of another width. */
perf_field perf_wide(perf_field field, int width);

/* Rows of one table follow each other and have the same columns. */
void perf_row(perf_output *output, const char *table, const perf_field *fields, uint32_t count);

WEIR_END_DECLS

#endif
