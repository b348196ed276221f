/* table.h - the kernels of host tables: gathers, scatters, the pass that orders ids, and the hash of copies, with their
 * arguments. host/table launches them. */
#ifndef WEIRI_KERNELS_TABLE_H
#define WEIRI_KERNELS_TABLE_H

#include "weir/device/kernel.h"
#include "weir/device/table.h"

#if defined(__cplusplus)
extern "C" {
#endif

/* Three launches fill `order` with the positions of the ids, by groups of neighbouring rows: COUNT, SUM, PLACE. Where
 * there are slots, equal ids count as one: order has the position of one of them, their head, and COPY then copies its
 * row to the places of the others. Where call.table has slots, ids that have copies do not count. SUM and PLACE clear
 * what must be 0 between calls.
 *
 * Where rows have copies in device memory, SPLIT fills `heads` with the positions of the ids that have one, and `order`
 * with those of the others. */
typedef struct weiri_table_order_args {
    weir_table_call call;
    uint32_t *order;   /* what the gather then has as call.order */
    uint64_t *counts;  /* ids of each group; 0 between calls */
    uint64_t *cursors; /* where the next id of each group goes */
    uint64_t *room;    /* of SUM and SPLIT, a word for each thread */
    uint64_t *placed;  /* positions in order; and of SPLIT in heads */
    uint64_t *splits;  /* two words of SPLIT; 0 between calls */
    uint64_t *slots;   /* NULL: all ids count. A hash table of ids: 1 + the head's position; 0 between calls */
    uint64_t mask;     /* slots - 1; at least two slots for each id */
    uint32_t *heads;   /* of each position the head's */
    uint64_t groups;
} weiri_table_order_args;

/* CLEAR_SLOTS and FILL_SLOTS make the ids of the call those that have copies. */
typedef struct weiri_table_copies_args {
    weir_table_call call;
    uint64_t *slots; /* as in weir_dev_table */
    uint64_t mask;   /* at least two slots for each id */
} weiri_table_copies_args;

#define WEIRI_TABLE_SPAN 2048u   /* groups that a block of SUM takes at a time */
#define WEIRI_TABLE_SUMMERS 128u /* most blocks of SUM: one for each span of a table of the most groups */
#define WEIRI_TABLE_SUM_THREADS 256u
#define WEIRI_TABLE_SPLITTERS 132u /* most blocks of SPLIT, of up to 1,024 threads */

enum {
    WEIRI_TABLE_GATHER,
    WEIRI_TABLE_GATHER_SHORT,
    WEIRI_TABLE_SCATTER,
    WEIRI_TABLE_LINES,
    WEIRI_TABLE_ELEMENTS,
    WEIRI_TABLE_COUNT,
    WEIRI_TABLE_SUM,
    WEIRI_TABLE_PLACE,
    WEIRI_TABLE_COPY,
    WEIRI_TABLE_SPLIT,
    WEIRI_TABLE_CLEAR_SLOTS,
    WEIRI_TABLE_FILL_SLOTS
};
/* Blocks have up to 1,024 threads, those of SUM up to WEIRI_TABLE_SUM_THREADS. The first five take a weir_table_call;
 * GATHER, GATHER_SHORT (items of up to WEIR_TABLE_SHORT bytes) and SCATTER have the default form. The next five take
 * weiri_table_order_args, the last two weiri_table_copies_args. */
extern const weir_kernel *const weiri_table_kernels[];

#if defined(__cplusplus)
}
#endif

#endif
