/* gather_bench.h - the state of weir-perf gather, shared by its files. */
#ifndef WEIR_PERF_GATHER_BENCH_H
#define WEIR_PERF_GATHER_BENCH_H

#include "tools/perf/gather.h"

WEIR_BEGIN_DECLS

enum { ORDER_GIVEN, ORDER_SORTED, ORDER_GROUPED, ORDER_UNIQUE, ORDER_AUTO, ORDERS };

typedef struct gather_bench {
    perf_rank *rank;
    weir_memory *table;
    weir_memory *own; /* --peer: the table of the last rank; NULL: none */
    weir_memory *out;
    weir_memory *ids;    /* int64_t, in the order of the case */
    weir_memory *places; /* uint32_t */
    weir_memory *wrong;  /* a count, in host memory */
    int64_t *drawn;      /* ids as drawn, of the current span and size */
    int64_t *host_ids;
    uint32_t *host_places;
    uint64_t most;  /* ids */
    uint64_t count; /* of the current span and size */
    double copy_gbytes_s;
} gather_bench;

/* ---- ids, in perf/gather_ids.c --------------------------------------------------------------------------------- */

/* Takes the ids of the file that --ids names, up to bench->most: decimal numbers below `rows`, with white space between
 * them. */
weir_status gather_read_ids(gather_bench *bench, uint64_t rows);
/* Draws `count` ids below `rows`. Uniform ones are the values of a permutation, and so distinct. */
void gather_draw_ids(gather_bench *bench, uint64_t rows, uint64_t count);
/* Puts the drawn ids and their positions into the order, on the host and on the device. */
weir_status gather_set_order(gather_bench *bench, uint32_t order, uint64_t row_bytes);
/* The pages that the ids touch, and the number of distinct ids. */
uint64_t gather_count_pages(gather_bench *bench, uint64_t row_bytes, uint64_t *distinct);

WEIR_END_DECLS

#endif
