/* common.h - shared by all commands of weir-perf: options, ranks, timing, results.
 *
 * A command is a row of the table in perf/main.c. Most commands have a function that each rank runs; there are two
 * ranks unless -g says otherwise. perf_start starts the ranks, or is one of the ranks that mpirun, srun or torchrun
 * started. Each rank gets a perf_rank: device, stream, bootstrap and communicator. The command makes its objects,
 * records launches as a graph and times replays. Rank 0 reports rows, which go to standard output and, on request, to
 * CSV and JSON files. A command that starts its ranks itself has `start` instead.
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

#define PERF_RANKS 2u /* ranks of commands that move data between two ranks */
#define PERF_RANKS_MAX 8u
#define PERF_LIST_MAX 64u
#define PERF_NO_RANK UINT32_MAX

typedef struct perf_list {
    uint64_t values[PERF_LIST_MAX];
    uint32_t count;
} perf_list;

/* A field of 0 or NULL selects a default that depends on command and device. */
typedef struct perf_options {
    const char *device; /* "gpu" or "cpu" */
    bool processes;     /* ranks are processes; otherwise threads */
    uint32_t rank;      /* run only this rank; PERF_NO_RANK: start all */
    perf_list ranks;    /* numbers of ranks */
    uint64_t least;     /* bytes: first size, last size, and the factor between sizes */
    uint64_t most;
    uint32_t factor;
    perf_list sizes; /* bytes; replaces these three */
    const char *shape;
    perf_list blocks; /* of a launch; combined with each number of threads */
    perf_list threads;
    perf_list window_ranks; /* of each device */
    uint32_t iters;         /* timed launches */
    uint32_t warmup;        /* launches before the timed ones */
    bool one_way;
    bool check;
    bool host;         /* host memory instead of device memory */
    bool plain;        /* no cooperative launches */
    const char *dtype; /* of collectives: type of elements */
    const char *op;    /* of collectives: reduction */
    const char *form;
    uint32_t rows; /* of gather: ids; of parts: rows of each rank */
    perf_list row_bytes;
    perf_list spans;       /* bytes of the table */
    bool calibrate;        /* of gather */
    bool counters;         /* of gather */
    bool peer;             /* of gather: rows in device memory of the next rank */
    perf_list cached;      /* of gather: rows in device memory */
    const char *beside;    /* of collectives and gather: a computation */
    perf_list sms;         /* of the gather's stream */
    uint32_t planes;       /* of pages: pieces of a page */
    const char *order;     /* of ids */
    const char *ids;       /* "uniform", "zipf" or a file; NULL: uniform */
    perf_list lanes;       /* that share a row */
    perf_list loads;       /* rows that a group of lanes has under way */
    const char *config;    /* of pack: boxes */
    uint32_t cube;         /* of pack: side */
    uint32_t size;         /* of halo: cells along each side */
    uint32_t radius;       /* of halo: ghosts on each side */
    const char *peers;     /* of pack, gather, scatter and pages */
    bool cold;             /* of pack: no warm cases */
    const char *with;      /* of pack: times of other programs */
    uint32_t l2_fetch;     /* of pack: bytes that the L2 fetches for a sector; 0: the device's */
    const char *compare;   /* "nccl", "nccl-zero", "nccl-pinned" or NULL */
    uint32_t nccl_ctas;    /* most blocks of NCCL's kernels; 0: NCCL's default */
    const char *nccl;      /* NCCL's library */
    bool match_nccl;       /* weir gets the blocks of NCCL's kernel */
    uint32_t parts;        /* of collectives of parts: their number */
    perf_list parts_bytes; /* of collectives of parts: bytes of a row of each part */
    const char *skew;      /* shares of the ranks; NULL: even */
    uint32_t transfers;    /* of sendrecv: to each partner; 0: one */
    const char *layout;    /* of pack: descriptions; of parts: "part" or "rank"; of sendrecv */
    uint32_t host_ranks;   /* treat each group of this many ranks as a host */
    bool graph;            /* replay graphs */
    bool registered;       /* register buffers with all ranks */
    bool map;              /* graphs map ordinary buffers */
    const char *tune;      /* tuning file to write */
    const char *csv;
    const char *json;
    const char *plot;    /* picture file; rows go to `json`, or to PLOT.json */
    const char *against; /* results of an earlier run to compare with */
} perf_options;

typedef struct perf_rank perf_rank;

typedef struct perf_command {
    const char *name;
    const char *summary;
    const char *takes; /* options of this command, separated by blanks, beside the common ones */
    weir_status (*run)(perf_rank *rank);
    /* For a command that starts its ranks itself, instead of run; returns the exit status of the process. */
    int (*start)(const perf_options *options, char **arguments);
} perf_command;

/* Runs the command on all ranks, or only on options->rank, and returns the exit status of the process. The number of
 * ranks is two or options->ranks.values[0]. If that is 0, it is the number of GPUs, or of ranks that a launcher
 * started. `arguments` is main's argv, for starting processes. */
int perf_start(const perf_command *command, const perf_options *options, char **arguments);

/* ---- one rank ----------------------------------------------------------------------------------------- */

#define PERF_REPLAYS_MAX 100u

typedef struct perf_output perf_output;

struct perf_rank {
    const perf_options *options;
    const char *command;
    uint32_t rank;
    uint32_t ranks;
    uint32_t peer; /* the other of two ranks */
    bool gpu;
    bool shared; /* all ranks use one GPU */
    weir_device *device;
    weir_device_info info;
    weir_bootstrap *bootstrap;
    weir_comm *comm;
    void *stream;
    void *events[PERF_REPLAYS_MAX + 1]; /* around the timed replays */
    perf_output *output;                /* NULL except on rank 0 */
    char error[256];                    /* failed operation, if weir_last_error does not name it */
};

/* Notes the failed operation and returns `status`. */
weir_status perf_fail(perf_rank *rank, weir_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds the ranks' values to *sum. All ranks call it. */
weir_status perf_add_up(perf_rank *rank, uint64_t mine, uint64_t *sum);

/* The requested sizes; by default up to gpu_most on a GPU. */
weir_status perf_choose_sizes(perf_rank *rank, uint64_t gpu_most, perf_list *sizes);
uint64_t perf_largest(const perf_list *sizes);

/* Reports versions, devices, settings and the date in front of the first row. All ranks call it. */
weir_status perf_report_machine(perf_rank *rank);
/* Bandwidth of all NVLinks of the GPU in one direction, in GB/s; NaN if nvidia-smi does not report it. */
double perf_link_limit(const weir_device_info *info);

/* ---- timing ------------------------------------------------------------------------------------------- */

/* The launch of one node of a graph. */
typedef struct perf_work {
    const weir_kernel *kernel;
    weir_shape shape;
    bool cooperative;
    const void *args;
    uint32_t *number; /* a field of args that gets the number of the node, from 1; or NULL */
} perf_work;

/* Puts one node on the stream. */
weir_status perf_launch(perf_rank *rank, const perf_work *work);

/* Runs a kernel on the whole device and waits for it; for data, not for measurements. */
weir_status perf_run(perf_rank *rank, const weir_kernel *kernel, const void *args);

weir_status perf_record(perf_rank *rank, const perf_work *work, uint32_t nodes, void **graph);

/* A function that puts one node of any kind on rank->stream; numbers begin at 1. */
typedef struct perf_calls {
    weir_status (*put)(perf_rank *rank, void *context, uint32_t number);
    void *context;
} perf_calls;

weir_status perf_record_calls(perf_rank *rank, const perf_calls *calls, uint32_t nodes, void **graph);

/* Times `replays` replays after `warmup` ones. There is at least one of the latter: it hides the host's part and aligns
 * the ranks. us[i] is the time of one node in the i-th replay, in us, the longest of all ranks. All ranks call it
 * together. */
weir_status perf_time(perf_rank *rank, void *graph, uint32_t nodes, uint32_t warmup, uint32_t replays, double *us);
/* The same for nodes that are put on the stream one by one. */
weir_status perf_time_calls(perf_rank *rank, const perf_calls *calls, uint32_t nodes, uint32_t warmup, uint32_t replays,
                            double *us);

void perf_sort(double *values, uint32_t count);
/* The percentile `part` (0 to 1) of sorted values, interpolated between neighbours. */
double perf_percentile(const double *values, uint32_t count, double part);

/* ---- results; all ignore a NULL output -------------------------------------------------------------------- */

/* Adds a fact of the machine, in front of the first row. */
void perf_fact(perf_output *output, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));

typedef enum perf_kind { PERF_TEXT, PERF_COUNT, PERF_REAL } perf_kind;

/* The role of a value in a comparison with an earlier run (--against). */
typedef enum perf_role {
    PERF_NAMES,    /* names the measurement; texts and counts */
    PERF_APART,    /* not compared; other numbers */
    PERF_LATENCY,  /* a time; may be up to 15 % longer */
    PERF_BANDWIDTH /* may be up to 5 % less */
} perf_role;

/* One value of a row. */
typedef struct perf_field {
    const char *name; /* name of the column, also in CSV and JSON */
    perf_kind kind;
    perf_role role;
    const char *text;
    uint64_t count;
    double real; /* NaN: no value */
    int decimals;
    int width; /* of the column; negative: left-aligned; 0: only in the files */
} perf_field;

perf_field perf_text(const char *name, const char *text);
perf_field perf_count(const char *name, uint64_t count);
perf_field perf_real(const char *name, double real, int decimals);
/* The same in another role. */
perf_field perf_as(perf_field field, perf_role role);
/* The same in a column of another width. */
perf_field perf_wide(perf_field field, int width);

/* Adds a row. Rows of one table follow each other and have the same columns. */
void perf_row(perf_output *output, const char *table, const perf_field *fields, uint32_t count);

WEIR_END_DECLS

#endif
