/* table.h - the kernels of host tables. */
#ifndef WEIRI_KERNELS_TABLE_H
#define WEIRI_KERNELS_TABLE_H

#include "weir/device/kernel.h"
#include "weir/device/table.h"

#if defined(__cplusplus)
extern "C" {
#endif

/* Three launches fill call.order with the positions of the ids, by groups of neighbouring rows: COUNT, SUM, PLACE. */
typedef struct weiri_table_order_args {
    weir_table_call call;
    uint32_t *order;   /* what the gather then has as call.order */
    uint64_t *counts;  /* ids of each group; 0 between calls */
    uint64_t *cursors; /* where the next id of each group goes */
    uint64_t *sums;    /* WEIRI_TABLE_SUMS words for SUM */
    uint64_t groups;
} weiri_table_order_args;

#define WEIRI_TABLE_SUMS (1024u + 32u)

enum {
    WEIRI_TABLE_GATHER,
    WEIRI_TABLE_GATHER_SHORT,
    WEIRI_TABLE_SCATTER,
    WEIRI_TABLE_LINES,
    WEIRI_TABLE_ELEMENTS,
    WEIRI_TABLE_COUNT,
    WEIRI_TABLE_SUM,
    WEIRI_TABLE_PLACE
};
/* Blocks have up to 1,024 threads. The first five take a weir_table_call; GATHER, GATHER_SHORT (items of up to
 * WEIR_TABLE_SHORT bytes) and SCATTER have the default form. The others take weiri_table_order_args, and SUM one block.
 */
extern const weir_kernel *const weiri_table_kernels[];

#if defined(__cplusplus)
}
#endif

#endif
