/* gather_bench.h - the state of weir-perf gather, shared by its files. */
#ifndef WEIR_PERF_GATHER_BENCH_H
#define WEIR_PERF_GATHER_BENCH_H

#include "tools/perf/copies.h"
#include "tools/perf/gather.h"

WEIR_BEGIN_DECLS

enum { ORDER_GIVEN, ORDER_SORTED, ORDER_GROUPED, ORDER_UNIQUE, ORDER_AUTO, ORDERS };

/* What --peers names: copies of the driver, and weir's gather in the forms of other libraries. */
enum { PEER_BULK, PEER_BATCH, PEER_EACH, PEER_FLAT, PEER_CIRCULAR, PEER_LINES, PEERS };

/* The fastest kernel by hand in an order. */
typedef struct gather_raw {
    double us; /* NaN: none was measured */
    char form[40];
} gather_raw;

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
    double table_s; /* this rank's time to allocate the table's host memory, or to map it */
    perf_copies copies;
    gather_raw raw[ORDERS];  /* of the current span and size */
    double copied_us[PEERS]; /* the same, of the driver's copies; NaN: not measured */
} gather_bench;

/* ---- copies of the driver, in perf/gather_copies.c -------------------------------------------------------------- */

/* Whether --peers names this peer, an index of PEER_. Without --peers no peer is measured. */
bool gather_wants_peer(const perf_options *options, uint32_t peer);
extern const char *const gather_peer_names[PEERS];
/* WEIR_ERR_INVALID if --peers has an unknown name. */
weir_status gather_check_peers(perf_rank *rank);
/* Times and checks the copies that --peers names, for the ids in the drawn order, which are on the device. */
weir_status gather_time_copies(gather_bench *bench, uint64_t row_bytes);

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
