/* table.c - host tables: create, destroy and what they report.
 *
 * Create checks the parts and writes their descriptions into device memory, where kernels find them. A part has bounds
 * of the memory around its rows. Kernels may read whole 16-byte units inside these bounds, even where a row covers only
 * a part of a unit. For rows given by a pointer the bounds are the rows. */
#include "src/host/table/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/comm/comm.h"
#include "src/host/comm/memory.h"

#define ROW_BYTES_MOST ((uint64_t)1 << 30)
#define THREADS 1024u

/* Places in the table's room. */
#define CLAIMED_AT 0u
#define PARTS_AT 64u
#define ORDER_AT (PARTS_AT + WEIR_TABLE_PARTS * sizeof(weir_dev_table_part))

static const char call[] = "weir_table_create";

/* ---- parts --------------------------------------------------------------------------------------------- */

/* Bytes from the first row to the end of the last one; UINT64_MAX if they do not fit. */
static uint64_t bytes_of(uint64_t count, uint64_t pitch, uint64_t row_bytes)
{
    uint64_t bytes;
    if (count == 0) {
        return 0;
    }
    return __builtin_mul_overflow(count - 1, pitch, &bytes) || __builtin_add_overflow(bytes, row_bytes, &bytes)
               ? UINT64_MAX
               : bytes;
}

/* Two handles of one device of the machine count as the same device. */
static bool same_device(const weir_device *a, const weir_device *b)
{
    return a == b || (strcmp(a->info.kind, b->info.kind) == 0 && memcmp(a->info.uuid, b->info.uuid, 16) == 0);
}

/* Where the part's memory begins, and its bytes. */
static weir_status find_memory(const weir_table *table, uint32_t index, const weir_table_part *part, uint64_t bytes,
                               char **base, uint64_t *size)
{
    const weir_memory *memory = part->memory;
    if (memory == NULL) {
        *base = (char *)(uintptr_t)part->rows;
        *size = bytes == UINT64_MAX || part->offset > UINT64_MAX - bytes ? UINT64_MAX : part->offset + bytes;
        return part->rows != NULL || (part->count == 0 && part->offset == 0)
                   ? WEIR_OK
                   : weiri_fail(WEIR_ERR_INVALID, "%s: part %u has neither memory nor rows", call, index);
    }
    if (memory->block == NULL) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "%s: part %u is memory of rank %u, which is not mapped here", call,
                          index, memory->rank);
    }
    if (!same_device(memory->comm->device, table->device)) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: part %u is memory of %s, but the table is of %s", call, index,
                          memory->comm->device->info.label, table->device->info.label);
    }
    *base = (char *)memory->block->pointer;
    *size = memory->block->size;
    return WEIR_OK;
}

/* Whether the part lies in host memory. A pointer may lead to memory of the device that weir has not allocated. */
static bool lies_in_host_memory(const weir_table *table, const weir_table_part *part, const char *rows)
{
    const char *kind = table->device->info.kind;
    weir_device_place place;
    if (part->memory != NULL) {
        return part->memory->block->host_pointer != NULL;
    }
    return weir_device_locate(rows, &place) != WEIR_OK || place.kind != WEIR_MEMORY_DEVICE ||
           strncmp(place.device, kind, strlen(kind)) != 0;
}

/* Checks part `index` and describes it for kernels. */
static weir_status add_part(weir_table *table, uint32_t index, const weir_table_part *part, weir_dev_table_part *out)
{
    const uint64_t row_bytes = table->info.row_bytes;
    const uint64_t pitch = part->pitch != 0 ? part->pitch : row_bytes;
    const uint64_t bytes = bytes_of(part->count, pitch, row_bytes);
    char *base = NULL;
    uint64_t size = 0;
    if (pitch < row_bytes) {
        return weiri_fail(WEIR_ERR_INVALID,
                          "%s: parts[%u].pitch is %" PRIu64 " bytes, less than the row (%" PRIu64 " bytes)", call,
                          index, pitch, row_bytes);
    }
    const weir_status status = find_memory(table, index, part, bytes, &base, &size);
    if (status != WEIR_OK) {
        return status;
    }
    if (bytes == UINT64_MAX || part->offset > size || bytes > size - part->offset ||
        (uintptr_t)base > UINTPTR_MAX - size) {
        return weiri_fail(WEIR_ERR_RANGE,
                          "%s: part %u has %" PRIu64 " rows of %" PRIu64 " bytes, %" PRIu64 " apart, at offset %" PRIu64
                          " of a memory of %" PRIu64 " bytes",
                          call, index, part->count, row_bytes, pitch, part->offset, size);
    }
    /* Nothing is added to the NULL of an empty part. */
    out->rows = part->offset != 0 ? base + part->offset : base;
    out->pitch = pitch;
    out->start = table->info.rows;
    out->count = part->count;
    out->first = part->memory != NULL ? base : out->rows;
    out->last = size != 0 ? base + size : base;
    if (part->count != 0) {
        const uint64_t rest = size - part->offset - (bytes - row_bytes);
        table->reach = rest < table->reach ? rest : table->reach;
        table->alignment |= (uint32_t)((uintptr_t)out->rows | pitch);
        table->info.span_bytes += bytes;
        const bool host = lies_in_host_memory(table, part, out->rows);
        table->host_rows += host ? part->count : 0;
        table->host_bytes += host ? bytes : 0;
    }
    table->info.rows += part->count;
    return WEIR_OK;
}

/* Ids 0 to rows - 1 must all have a row. */
static weir_status check_round_robin(const weir_table *table, const weir_dev_table_part *parts)
{
    const uint64_t count = table->part_count;
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t wanted = table->info.rows / count + (i < table->info.rows % count);
        if (parts[i].count != wanted) {
            return weiri_fail(WEIR_ERR_INVALID,
                              "%s: part %u has %" PRIu64 " rows; a round-robin split of %" PRIu64
                              " rows needs %" PRIu64,
                              call, i, parts[i].count, table->info.rows, wanted);
        }
    }
    return WEIR_OK;
}

static weir_status add_parts(weir_table *table, const weir_table_part *parts, weir_table_split split,
                             weir_dev_table_part *out)
{
    table->reach = UINT64_MAX;
    for (uint32_t i = 0; i < table->part_count; i++) {
        if (parts[i].count > (uint64_t)INT64_MAX - table->info.rows) {
            return weiri_fail(WEIR_ERR_INVALID, "%s: part %u has %" PRIu64 " rows; a table has less than 2^63", call, i,
                              parts[i].count);
        }
        const weir_status status = add_part(table, i, &parts[i], &out[i]);
        if (status != WEIR_OK) {
            return status;
        }
    }
    return split == WEIR_SPLIT_ROUND_ROBIN ? check_round_robin(table, out) : WEIR_OK;
}

/* ---- create -------------------------------------------------------------------------------------------- */

static weir_status check_arguments(const weir_device *device, uint64_t row_bytes, const weir_table_part *parts,
                                   uint32_t count, const weir_table_opts *opts, weir_table **out)
{
    if (device == NULL || out == NULL) {
        return weiri_fail_null(call, device == NULL ? "device" : "out");
    }
    if (!WEIRI_OPTS_OK(opts)) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: %s", call, WEIRI_OPTS_ERROR(opts));
    }
    if (row_bytes == 0 || row_bytes > ROW_BYTES_MOST) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: rows of %" PRIu64 " bytes; 1 to 2^30 are possible", call, row_bytes);
    }
    if (parts == NULL || count == 0) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: there are no parts", call);
    }
    return count <= WEIR_TABLE_PARTS
               ? WEIR_OK
               : weiri_fail(WEIR_ERR_LIMIT, "%s: %u parts, but at most %u are possible", call, count, WEIR_TABLE_PARTS);
}

static weir_status check_opts(const weir_table_opts *opts)
{
    if (opts->order_ids > UINT32_MAX) {
        return weiri_fail(WEIR_ERR_LIMIT, "%s: opts.order_ids is %" PRIu64 "; less than 2^32 are possible", call,
                          opts->order_ids);
    }
    if (opts->cache_rows > UINT32_MAX) {
        return weiri_fail(WEIR_ERR_LIMIT, "%s: opts.cache_rows is %" PRIu64 "; less than 2^32 are possible", call,
                          opts->cache_rows);
    }
    if (opts->split != WEIR_SPLIT_RANGES && opts->split != WEIR_SPLIT_ROUND_ROBIN) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: unknown split %d", call, (int)opts->split);
    }
    return WEIR_OK;
}

/* The fewest blocks that read rows of host memory at the speed of the link. More have more bytes under way, which the
 * launches of other kernels wait for, because these are read over the same link. */
static uint32_t host_blocks(const weir_table *table)
{
    const uint64_t bytes = table->info.row_bytes;
    const bool lines = (bytes | table->alignment) % WEIR_RUN_LINE == 0;
    return bytes <= 256 ? 8 : !lines ? 5 : bytes <= 512 ? 4 : 3;
}

/* The device's own memory and that of peers need all multiprocessors. A table that has rows in host memory as well gets
 * the few blocks of host memory: with more, the bytes under way on the host's link slow down all that runs beside. */
static void set_info(weir_table *table, const weir_table_opts *opts)
{
    weir_table_info *info = &table->info;
    info->parts = table->part_count;
    info->threads = THREADS;
    info->blocks = opts->blocks != 0       ? opts->blocks
                   : table->host_rows != 0 ? host_blocks(table)
                                           : 2 * table->device->info.multiprocessors;
    info->order_ids = opts->order_ids;
    table->reach_bytes = opts->reach_bytes;
    table->miss_ns = opts->miss_ns;
    weiri_table_set_choice(table);
}

/* Allocates what kernels need, and writes the parts there. */
static weir_status make_room(weir_table *table, const weir_dev_table_part *parts)
{
    weir_device *device = table->device;
    const uint64_t order_bytes = (weiri_table_order_bytes(table) + 15) / 16 * 16;
    weir_status status = weiri_device_allocate(device, WEIR_MEMORY_DEVICE,
                                               ORDER_AT + order_bytes + weiri_table_cache_bytes(table), &table->room);
    if (status == WEIR_OK) {
        status = weiri_device_allocate(device, WEIR_MEMORY_HOST, sizeof(weir_dev_table_faults), &table->faults);
    }
    if (status != WEIR_OK) {
        return status;
    }
    char *room = (char *)table->room->pointer;
    table->handle.parts = (const weir_dev_table_part *)(void *)(room + PARTS_AT);
    table->handle.claimed = (uint64_t *)(void *)(room + CLAIMED_AT);
    table->handle.faults = (weir_dev_table_faults *)table->faults->pointer;
    weiri_table_place_order(table, room + ORDER_AT);
    weiri_table_place_cache(table, room + ORDER_AT + order_bytes);
    return weir_device_copy(device, room + PARTS_AT, parts, table->part_count * sizeof *parts);
}

weir_status weir_table_create(weir_device *device, uint64_t row_bytes, const weir_table_part *parts, uint32_t count,
                              const weir_table_opts *opts, weir_table **out)
{
    weir_dev_table_part described[WEIR_TABLE_PARTS];
    weir_table_opts given;
    weir_status status = check_arguments(device, row_bytes, parts, count, opts, out);
    if (status != WEIR_OK) {
        return status;
    }
    weiri_opts_copy(&given, sizeof given, opts);
    status = check_opts(&given);
    if (status != WEIR_OK) {
        return status;
    }
    weir_table *table = (weir_table *)weiri_alloc(1, sizeof *table);
    if (table == NULL) {
        return weiri_fail_nomem("table");
    }
    weiri_device_get(device);
    table->device = device;
    table->part_count = count;
    table->info.row_bytes = row_bytes;
    table->info.cache_rows = given.cache_rows;
    status = add_parts(table, parts, given.split, described);
    if (status != WEIR_OK) {
        goto destroy;
    }
    weiri_table_set_groups(table, described);
    set_info(table, &given);
    table->handle.rows = table->info.rows;
    table->handle.row_bytes = row_bytes;
    table->handle.count = count;
    table->handle.round_robin = given.split == WEIR_SPLIT_ROUND_ROBIN;
    status = make_room(table, described);
    if (status != WEIR_OK) {
        goto destroy;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (parts[i].memory != NULL) {
            table->memories[i] = (weir_memory *)(uintptr_t)parts[i].memory;
            weiri_memory_get(table->memories[i]);
        }
    }
    *out = table;
    return WEIR_OK;
destroy:
    weir_table_destroy(table);
    return status;
}

void weir_table_destroy(weir_table *table)
{
    if (table == NULL) {
        return;
    }
    weiri_block_release(table->faults);
    weiri_block_release(table->room);
    for (uint32_t i = 0; i < table->part_count; i++) {
        weir_memory_destroy(table->memories[i]);
    }
    weiri_device_put(table->device);
    weiri_free(table);
}

/* ---- reports ------------------------------------------------------------------------------------------- */

void weir_table_get_faults(const weir_table *table, weir_table_faults *out)
{
    if (out == NULL) {
        return;
    }
    memset(out, 0, sizeof *out);
    if (table != NULL) {
        const weir_dev_table_faults *faults = (const weir_dev_table_faults *)table->faults->host_pointer;
        /* While a kernel runs, another thread may store the count before the first one stores its id, or after. Nothing
         * is reported until the id is known, and then at least one. */
        if (__atomic_load_n(&faults->known, __ATOMIC_ACQUIRE) != 0) {
            const uint64_t count = __atomic_load_n(&faults->count, __ATOMIC_RELAXED);
            out->count = count != 0 ? count : 1;
            out->id = __atomic_load_n(&faults->id, __ATOMIC_RELAXED);
            out->position = __atomic_load_n(&faults->position, __ATOMIC_RELAXED);
        }
    }
}

weir_status weir_table_status(const weir_table *table)
{
    weir_table_faults faults;
    if (table == NULL) {
        return weiri_fail_null("weir_table_status", "table");
    }
    weir_table_get_faults(table, &faults);
    return faults.count == 0
               ? WEIR_OK
               : weiri_fail(WEIR_ERR_RANGE,
                            "table on %s: id %" PRIu64 " at position %" PRIu64
                            " is out of range: the table has %" PRIu64 " rows; %" PRIu64
                            " ids were out of range so far",
                            table->device->info.label, faults.id, faults.position, table->info.rows, faults.count);
}

void weir_table_get_info(const weir_table *table, weir_table_info *out)
{
    if (out != NULL && table != NULL) {
        *out = table->info;
    } else if (out != NULL) {
        memset(out, 0, sizeof *out);
    }
}

void weir_table_device(const weir_table *table, weir_dev_table *out)
{
    if (out != NULL && table != NULL) {
        *out = table->handle;
    } else if (out != NULL) {
        memset(out, 0, sizeof *out);
    }
}
