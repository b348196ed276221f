/* weir/device/table.h - rows of a host table (weir/table.h) inside kernels.
 *
 *     weir_table_device(table, &args.table);                                   on the host
 *     ...
 *     weir_dev_row row;
 *     if (weir_dev_table_row(&args->table, id, &row) == WEIR_TABLE_THERE) {
 *         ...                                                  row.bytes; a kernel that pools or converts reads them
 *     }
 *     weir_dev_table_gather(&args->table, ids, WEIR_IDS_I32, count, out, pitch, weir_coop_blocks(coop));
 *
 * Gather reads the copies of weir_table_cache, and scatter stores to them as well. weir_dev_table_row finds the row
 * itself: a program that stores there calls weir_table_cache afterwards.
 *
 * Threads:   row: any thread. gather and scatter: all threads of the group, with the same arguments. They divide the
 *            rows among them, do not meet, and need no barrier.
 * Order:     none; use a signal or a barrier afterwards. Of equal ids in a scatter, one row is there afterwards, whole
 *            in each aligned 16 bytes.
 * Errors:    none. A negative id is skipped. An id beyond the rows reads and writes nothing. gather and scatter count
 *            it (weir_table_get_faults); row leaves that to the caller (weir_dev_table_fault). */
#ifndef WEIR_DEVICE_TABLE_H
#define WEIR_DEVICE_TABLE_H

#include "weir/device/types.h"

/* Finds row `id`. WEIR_TABLE_THERE sets *row; WEIR_TABLE_SKIPPED: the id is negative; WEIR_TABLE_OUTSIDE: the table has
 * no such row. */
WEIR_FN uint32_t weir_dev_table_row(const weir_dev_table *table, int64_t id, weir_dev_row *row);

/* Counts an id that is out of range. `position`: its index among the ids of the call. */
WEIR_FN_COLD void weir_dev_table_fault(const weir_dev_table *table, int64_t id, uint64_t position);

#include "weir/device/impl/table_move.h"

/* Copies row ids[i] to out + i * pitch, for each i below count. `wide`: ids are int64_t (WEIR_IDS_I64); otherwise
 * int32_t. pitch: bytes; at least the table's row_bytes. */
WEIR_FN void weir_dev_table_gather(const weir_dev_table *table, const void *ids, uint32_t wide, uint64_t count,
                                   void *out, uint64_t pitch, weir_coop coop)
{
    const weir_table_call call = weir_table_call_of(table, ids, wide, count, (char *)out, pitch, 0, coop);
    weir_table_move_units(&call, count, coop, 0);
}

/* Copies rows + i * pitch to row ids[i]. */
WEIR_FN void weir_dev_table_scatter(const weir_dev_table *table, const void *ids, uint32_t wide, uint64_t count,
                                    const void *rows, uint64_t pitch, weir_coop coop)
{
    const weir_table_call call = weir_table_call_of(table, ids, wide, count, (char *)(uintptr_t)rows, pitch, 1, coop);
    weir_table_move_units(&call, count, coop, 1);
}

#endif
