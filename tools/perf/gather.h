/* gather.h - the kernels of weir-perf gather, in perf/gather_kernels.c: gathers of rows written by hand. */
#ifndef WEIR_PERF_GATHER_H
#define WEIR_PERF_GATHER_H

#include "tools/perf/common.h"

WEIR_BEGIN_DECLS

/* Row i of the output is row ids[i] of the table, or goes to places[i] where places are given. */
typedef struct gather_args {
    char *table;
    char *out;
    const int64_t *ids;
    const uint32_t *places; /* NULL: row i goes to place i */
    uint64_t *wrong;        /* counts wrong words of 4 bytes */
    uint64_t row_bytes;     /* a multiple of 4 */
    uint64_t count;         /* ids; of gather_fill: words of 4 bytes */
    uint32_t lanes;         /* that share a row: a power of two up to 32 */
} gather_args;

#define GATHER_LOADS 3u /* numbers of rows that a group of lanes has under way: 1, 2, 4 */

typedef struct gather_form {
    const char *name;
    const weir_kernel *kernels[GATHER_LOADS]; /* by rows under way; NULL where the form has one row under way */
} gather_form;

enum { GATHER_UNITS, GATHER_FLAT, GATHER_CIRCULAR, GATHER_LINES, GATHER_BULK_SHARED, GATHER_FORMS };
extern const gather_form gather_forms[GATHER_FORMS];

/* Stores the data of the table, and counts the wrong words of a gather. */
extern const weir_kernel *const gather_fill;
extern const weir_kernel *const gather_compare;

/* A step that visits all numbers below `limit`, modulo it, far from one to the next; in perf/scatter.c. */
uint64_t gather_step(uint64_t limit);

/* ---- a table of distinct rows, in perf/rows.c ---------------------------------------------------------------- */

/* A table in host memory, ids in the device's memory that lie far apart, and room for their rows. */
typedef struct gather_rows {
    perf_rank *rank;
    weir_memory *memory; /* of the table */
    weir_memory *out;
    weir_memory *ids;
    weir_memory *wrong;
    weir_table *table;
    uint64_t row_bytes;
    uint64_t count;
} gather_rows;

/* Of the options --span, --row-bytes, --rows; `row_bytes` comes in place of the list. cache_rows: of the table.
 * WEIR_ERR_INVALID: the rows do not fit into the span. gather_rows_close after an error, too. */
weir_status gather_rows_open(perf_rank *rank, uint64_t row_bytes, uint64_t cache_rows, gather_rows *rows);
void gather_rows_close(gather_rows *rows);
/* How many words of `out` are not those of the rows. Waits. */
weir_status gather_rows_check(const gather_rows *rows, uint64_t *wrong);

/* ---- commands ---------------------------------------------------------------------------------------------- */

/* weir-perf gather --beside (perf/beside.c), --cached (perf/cached.c) and --calibrate (perf/calibrate.c). */
weir_status gather_beside(perf_rank *rank);
weir_status gather_cached(perf_rank *rank);
weir_status gather_calibrate(perf_rank *rank);

WEIR_END_DECLS

#endif
