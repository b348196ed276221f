/* table.h - a host table: what create makes and calls use. */
#ifndef WEIRI_TABLE_H
#define WEIRI_TABLE_H

#include "src/device/device.h"
#include "weir/table.h"

/* One device allocation has everything that the kernels of a table need, because one takes at least 2 MiB on a GPU. */
struct weir_table {
    weir_device *device;
    weir_memory *memories[WEIR_TABLE_PARTS]; /* NULL for parts without one */
    weiri_block *room;
    weiri_block *faults; /* in host memory */
    weir_dev_table handle;
    weir_table_info info;
    uint32_t part_count;
    uint64_t reach;     /* bytes from the start of each row that lie in its part's memory, at least */
    uint32_t alignment; /* the bits of all addresses of rows and of all pitches, combined */
};

#endif
