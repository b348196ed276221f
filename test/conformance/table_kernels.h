/* table_kernels.h - kernels that find rows of a host table by themselves. */
#ifndef WEIRT_TABLE_KERNELS_H
#define WEIRT_TABLE_KERNELS_H

#include "weir/device/kernel.h"
#include "weir/device/table.h"
#include "weir/weir.h"

WEIR_BEGIN_DECLS

typedef struct table_args {
    weir_dev_table table;
    const int32_t *ids;
    char *out; /* count rows of 64 bytes; of `inside` also their sum, and the numbers of ids skipped and out of range */
    uint64_t count;
} table_args;

/* The first group of this kind alone gathers rows from the table or, with `scatter`, stores to them. */
enum { TABLE_GRID, TABLE_BLOCK, TABLE_WARP, TABLE_THREAD, TABLE_GROUPS };

typedef struct table_group_args {
    weir_dev_table table;
    const void *ids;
    char *out;
    uint64_t count;
    uint64_t pitch;
    uint32_t type; /* weir_ids */
    uint32_t group;
    uint32_t scatter;
} table_group_args;

extern const weir_kernel *const table_nothing;
extern const weir_kernel *const table_inside;
extern const weir_kernel *const table_back;
extern const weir_kernel *const table_group;

WEIR_END_DECLS

#endif
