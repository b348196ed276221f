/* cache.c - copies of rows in device memory.
 *
 * A hash table in device memory has the ids that have copies. It has at least two slots for each, so that a kernel
 * finds or misses an id by one or two loads of 16 bytes. The gather itself fills the copies, from a handle that knows
 * no copies. */
#include <inttypes.h>

#include "src/host/base/error.h"
#include "src/host/table/table.h"

#define COPY_ALIGNMENT 16u

static uint64_t slots_of(const weir_table *table)
{
    uint64_t slots = 2;
    while (slots < 2 * table->info.cache_rows) {
        slots *= 2;
    }
    return slots;
}

static uint64_t pitch_of(const weir_table *table)
{
    return (table->info.row_bytes + COPY_ALIGNMENT - 1) / COPY_ALIGNMENT * COPY_ALIGNMENT;
}

uint64_t weiri_table_cache_bytes(const weir_table *table)
{
    return table->info.cache_rows == 0
               ? 0
               : slots_of(table) * 2 * sizeof(uint64_t) + table->info.cache_rows * pitch_of(table);
}

void weiri_table_place_cache(weir_table *table, char *room)
{
    weir_dev_table *handle = &table->handle;
    if (table->info.cache_rows != 0) {
        handle->slots = (uint64_t *)(void *)room;
        handle->mask = slots_of(table) - 1;
        handle->copies = room + slots_of(table) * 2 * sizeof(uint64_t);
        handle->copy_pitch = pitch_of(table);
        handle->copy_count = table->info.cache_rows;
    }
}

static weir_status launch(weir_table *table, uint32_t kernel, weiri_table_copies_args *args, void *stream)
{
    const weir_shape whole =
        weir_device_fit_shape(table->device, (weir_shape){ table->device->info.multiprocessors, 1024 });
    args->slots = table->handle.slots;
    args->mask = table->handle.mask;
    return weir_launch(table->device, weiri_table_kernels[kernel], whole, args, NULL, stream);
}

weir_status weiri_table_launch_clear(weir_table *table, void *stream)
{
    weiri_table_copies_args args = { .mask = 0 };
    return launch(table, WEIRI_TABLE_CLEAR_SLOTS, &args, stream);
}

weir_status weir_table_cache(weir_table *table, const void *ids, weir_ids type, uint64_t count, void *stream)
{
    weiri_table_copies_args args = { .mask = 0 };
    weir_table_call_opts opts = WEIR_OPTS(weir_table_call_opts);
    weir_status status = weiri_table_check_call("weir_table_cache", table, ids, type, count);
    if (status != WEIR_OK) {
        return status;
    }
    if (count > table->info.cache_rows) {
        return weiri_fail(WEIR_ERR_LIMIT,
                          "weir_table_cache: %" PRIu64 " rows, but opts.cache_rows of create was %" PRIu64, count,
                          table->info.cache_rows);
    }
    table->cached = false;
    status = table->info.cache_rows != 0 ? weiri_table_launch_clear(table, stream) : WEIR_OK;
    if (status != WEIR_OK || count == 0) {
        return status;
    }
    /* No row has a copy yet, so the gather reads the rows themselves. */
    opts.pitch = table->handle.copy_pitch;
    opts.order = WEIR_TABLE_ORDER_GIVEN;
    status = weir_table_gather(table, ids, type, count, table->handle.copies, &opts, stream);
    if (status != WEIR_OK) {
        return status;
    }
    args.call.table = table->handle;
    args.call.ids = ids;
    args.call.wide = type == WEIR_IDS_I64;
    args.call.count = count;
    table->cached = true;
    return launch(table, WEIRI_TABLE_FILL_SLOTS, &args, stream);
}
