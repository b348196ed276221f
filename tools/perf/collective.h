/* collective.h - what the files of weir-perf's commands for collectives share: what is asked for, what a rank
 * holds, one measurement, and tables of what was the fastest. */
#ifndef WEIR_PERF_COLLECTIVE_H
#define WEIR_PERF_COLLECTIVE_H

#include "tools/perf/cuda.h"
#include "tools/perf/nccl.h"

WEIR_BEGIN_DECLS

/* ---- what the options ask for ----------------------------------------------------------------------------- */

#define PERF_FORMS 5u /* weir_collective_form */

extern const char *const perf_dtype_names[WEIR_DTYPES];
extern const char *const perf_redop_names[WEIR_OPS];
extern const char *const perf_form_names[PERF_FORMS];

typedef struct perf_operation {
    const char *name; /* of the command */
    weir_collective_kind kind;
    bool reduces;
    bool parts; /* a size is that of all ranks' parts, of which the count is one */
    bool once;  /* has that form */
} perf_operation;

typedef struct perf_wish {
    const perf_operation *what;
    uint32_t dtype;
    uint32_t op;
    weir_collective_form forms[PERF_FORMS];
    uint32_t form_count;
    bool all_forms; /* those that have room */
} perf_wish;

/* False, having said why on standard error, when the options do not fit. */
bool perf_take_wish(const char *command, const perf_options *options, perf_wish *out);

/* ---- what was the fastest --------------------------------------------------------------------------------- */

/* How weir does it. */
typedef struct perf_choice {
    weir_collective_form form;
    weir_shape shape;
} perf_choice;

/* A row of a table. */
typedef struct perf_best {
    uint64_t bytes;
    weir_collective_form form;
    uint32_t blocks; /* 0: as many as have something to do */
    uint32_t threads;
    double us;
} perf_best;

/* The fastest of each size, smallest first. */
typedef struct perf_tune {
    perf_best rows[PERF_LIST_MAX];
    uint32_t count;
} perf_tune;

/* Takes `chosen`, which may have had up to `most` blocks (0: has the library's own shape), if it is the fastest so
 * far. */
void perf_tune_add(perf_tune *tune, uint64_t bytes, const perf_choice *chosen, uint32_t most, double us);
/* Before any rank, while there is one thread: whether the file can be written. What it has is read, and checked, by
 * every collective that is made. */
bool perf_tune_prepare(const char *path);
/* Puts rows in front of what the file has, less those of the same device, operation and number of ranks; `title` says
 * what was measured. Says on standard output what it has done; false, with errno, when the file cannot be written. */
bool perf_tune_write(const perf_tune *tune, const char *path, const perf_rank *rank, const char *title);

/* ---- what a rank holds ------------------------------------------------------------------------------------ */

typedef struct perf_bench {
    perf_rank *rank;
    perf_wish wish;
    char title[96];
    weir_collective *collective;
    weir_memory *send;
    weir_memory *recv;
    weir_memory *wrong; /* a count */
    perf_cuda *cuda;
    perf_nccl *nccl;
    void *plain[2]; /* send and recv of NCCL */
    perf_nccl_windows windows;
    uint32_t threads; /* of a block, at most; 0: the collective's own number */
    perf_tune tune;
    double limit; /* of the link, in GB/s */
    uint64_t seed;
    uint32_t rows;
    uint32_t wrong_rows;
} perf_bench;

/* ---- one measurement -------------------------------------------------------------------------------------- */

/* What is measured, and where its data is. */
typedef struct perf_party {
    weir_status (*call)(void *context, const weir_collective_request *request, void *stream);
    void *context;
    char *send;
    char *recv;
    perf_cuda *cuda; /* looks at what a call launches; NULL: that is known */
} perf_party;

typedef struct perf_result {
    double us; /* median; NaN: not measured */
    double min_us;
    double p95_us;
    uint64_t wrong;         /* elements, of all ranks */
    perf_launched launched; /* of NCCL's */
} perf_result;

/* Checked calls, timed ones, and checked ones again, of `count` as weir/collective.h counts, `bytes` in all. */
weir_status perf_measure(perf_bench *b, const perf_party *by, uint64_t count, uint64_t bytes, bool in_place,
                         perf_result *out);

WEIR_END_DECLS

#endif
