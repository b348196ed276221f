/* table.h - a host table: what create makes and calls use. */
#ifndef WEIRI_TABLE_H
#define WEIRI_TABLE_H

#include "src/device/device.h"
#include "src/device/kernels/table.h"
#include "weir/table.h"

WEIR_BEGIN_DECLS

/* One device allocation has everything that the kernels of a table need, because one takes at least 2 MiB on a GPU. */
struct weir_table {
    weir_device *device;
    weir_memory *memories[WEIR_TABLE_PARTS]; /* NULL for parts without one */
    weiri_block *room;
    weiri_block *faults; /* in host memory */
    weir_dev_table handle;
    weir_table_info info;
    uint32_t part_count;
    uint64_t host_rows;  /* rows in host memory, */
    uint64_t host_bytes; /* and the bytes of their parts, from the first row to the last */
    uint64_t reach_bytes;
    uint32_t miss_ns;
    bool cached;                  /* rows have copies in device memory */
    bool order_failed;            /* a launch failed while counts of groups were not 0 */
    weiri_table_order_args order; /* where reordering works; without a call */
    uint64_t reach;               /* bytes from the start of each row that lie in its part's memory, at least */
    uint32_t alignment;           /* the bits of all addresses of rows and of all pitches, combined */
};

/* ---- call.c -------------------------------------------------------------------------------------------- */

/* Checks what all calls take. */
weir_status weiri_table_check_call(const char *call, const weir_table *table, const void *ids, weir_ids type,
                                   uint64_t count);

/* ---- cache.c ------------------------------------------------------------------------------------------- */

/* Bytes of room that copies take, and where they lie in it. */
uint64_t weiri_table_cache_bytes(const weir_table *table);
void weiri_table_place_cache(weir_table *table, char *room);
/* Puts a kernel on the stream behind which there are no copies. */
weir_status weiri_table_launch_clear(weir_table *table, void *stream);

/* ---- order.c ------------------------------------------------------------------------------------------- */

/* Numbers the groups of the parts, and sets what info says of them. */
void weiri_table_set_groups(weir_table *table, weir_dev_table_part *parts);
/* Sets from how many ids on AUTO groups, and why. */
void weiri_table_set_choice(weir_table *table);
/* Bytes of room that reordering takes; `at` is their offset in the room. Sets where things lie once there is a room. */
uint64_t weiri_table_order_bytes(const weir_table *table);
void weiri_table_place_order(weir_table *table, char *room);
/* Whether a gather of `count` rows, each of `bytes` bytes in all in `planes` pieces that lie `plane` bytes apart, takes
 * less time in groups. */
bool weiri_table_grouping_pays(const weir_table *table, uint64_t count, uint64_t bytes, uint32_t planes,
                               uint64_t plane);
/* Puts the kernels that order the ids of `move` on the stream, and sets move->order and move->count_at. `unique`: one
 * of equal ids stands for all of them. `misses`: only ids whose rows have no copies. */
weir_status weiri_table_launch_order(weir_table *table, bool unique, bool misses, weir_table_call *move, void *stream);
/* Behind the gather of a unique order: copies rows to the places of the other equal ids. `move` is that of before. */
weir_status weiri_table_launch_copy(weir_table *table, const weir_table_call *move, void *stream);
/* Puts the kernel that divides the ids of `move` on the stream: *hits is the gather of those whose rows have copies in
 * device memory, and *misses that of the others. */
weir_status weiri_table_launch_split(weir_table *table, const weir_table_call *move, weir_table_call *hits,
                                     weir_table_call *misses, void *stream);

WEIR_END_DECLS

#endif
