/* order.c - the order in which a gather reads its rows, and whether it pays.
 *
 * Address translation reaches a span of about 512 MiB on H200. Beyond it each row of a random order costs a miss. In
 * groups of neighbouring rows, one after the other, each page misses once. One pass partitions the ids into groups: it
 * counts the ids of each group, sums the counts, and places each id. The order inside a group is any. Rows of one page
 * must follow each other, or they miss again while its first miss is under way. So a group is a page, up to a span of
 * 16 GiB. Spans of groups are summed by a block each, and follow each other in any order.
 *
 * UNIQUE needs no sort. A hash table finds the ids that are equal, the pass goes over one of them, and a last kernel
 * copies its row from there to the places of the others. A sort of equal ids would give the places of a frequent row to
 * one group of lanes; the copy spreads them over all.
 *
 * The model: a gather takes the longer of the time of its bytes on the link and the time of its misses. docs/tables.md
 * has the measurements. */
#include <inttypes.h>
#include <stdio.h>

#include "src/host/base/error.h"
#include "src/host/table/table.h"

#define PAGE_BYTES ((uint64_t)64 << 10) /* that misses once */
#define GROUPS_MOST ((uint64_t)1 << 18)
#define REACH_BYTES ((uint64_t)512 << 20)
#define MISS_NS 30u
#define LINK_BYTES_NS 51.4
#define PASS_NS 20000.0 /* of the three launches, */
#define PASS_ID_NS 0.04 /* and for each id: 21 us of 100,000 ids, 98 us of 2,000,000 */

/* ---- groups -------------------------------------------------------------------------------------------- */

void weiri_table_set_groups(weir_table *table, weir_dev_table_part *parts)
{
    uint64_t bytes = PAGE_BYTES;
    while (table->info.span_bytes / bytes > GROUPS_MOST) {
        bytes *= 2;
    }
    uint64_t groups = 0;
    for (uint32_t i = 0; i < table->part_count; i++) {
        parts[i].group = groups;
        groups += parts[i].count == 0 ? 0 : (parts[i].count - 1) * parts[i].pitch / bytes + 1;
    }
    table->handle.group_bytes = bytes;
    table->info.group_bytes = bytes;
    table->order.groups = groups != 0 ? groups : 1; /* ids without a row are in group 0 */
}

static uint64_t spans(const weir_table *table)
{
    return (table->order.groups + WEIRI_TABLE_SPAN - 1) / WEIRI_TABLE_SPAN;
}

/* Blocks of SUM. */
static uint32_t summers(const weir_table *table)
{
    return spans(table) < WEIRI_TABLE_SUMMERS ? (uint32_t)spans(table) : WEIRI_TABLE_SUMMERS;
}

/* A power of two, at least twice as large as the number of ids. */
static uint64_t slots_for(uint64_t ids)
{
    uint64_t slots = 2;
    while (slots < 2 * ids) {
        slots *= 2;
    }
    return slots;
}

/* Words of the room of SUM and SPLIT, which run at different times. */
static uint64_t room_of(const weir_table *table)
{
    const uint64_t sum = (uint64_t)WEIRI_TABLE_SUM_THREADS * summers(table);
    const uint64_t split = table->info.cache_rows != 0 ? (uint64_t)WEIRI_TABLE_SPLITTERS * 1024 : 0;
    return sum > split ? sum : split;
}

uint64_t weiri_table_order_bytes(const weir_table *table)
{
    const uint64_t words = 2 * table->order.groups + room_of(table) + 4 + slots_for(table->info.order_ids);
    return table->info.order_ids == 0 ? 0 : words * sizeof(uint64_t) + 2 * table->info.order_ids * sizeof(uint32_t);
}

void weiri_table_place_order(weir_table *table, char *room)
{
    weiri_table_order_args *order = &table->order;
    order->counts = (uint64_t *)(void *)room;
    order->cursors = order->counts + order->groups;
    order->room = order->cursors + order->groups;
    order->placed = order->room + room_of(table);
    order->splits = order->placed + 2;
    order->slots = order->splits + 2;
    order->order = (uint32_t *)(void *)(order->slots + slots_for(table->info.order_ids));
    order->heads = order->order + table->info.order_ids;
}

/* ---- the model ----------------------------------------------------------------------------------------- */

static double larger(double a, double b) { return a > b ? a : b; }

static double reach_of(const weir_table *table)
{
    return table->reach_bytes != 0 ? (double)table->reach_bytes : (double)REACH_BYTES;
}

/* Bytes of the table that a gather of planes reads from. Planes may overlap, as those inside a row. */
static double span_of(const weir_table *table, uint32_t planes, uint64_t plane)
{
    const uint64_t apart = plane < table->host_bytes ? plane : table->host_bytes;
    return (double)table->host_bytes + (double)(planes - 1) * (double)apart;
}

/* The same as weiri_table_grouping_pays for any number of ids. Of a table that has rows elsewhere as well, the rows in
 * host memory take the time. */
static bool takes_less(const weir_table *table, uint64_t count, uint64_t bytes, uint32_t planes, uint64_t plane)
{
    const double reach = reach_of(table);
    const double span = span_of(table, planes, plane);
    if (table->host_rows == 0 || span <= reach) {
        return false;
    }
    const double rows = (double)count * ((double)table->host_rows / (double)table->info.rows);
    const double miss = (table->miss_ns != 0 ? table->miss_ns : MISS_NS) * (1 - reach / span);
    const double reads = rows * planes;
    const double all = span / (double)PAGE_BYTES;
    const double drawn = reads / (1 + reads / (2 * all)); /* close to all * (1 - exp(-reads / all)) */
    const double pages = drawn < all ? drawn : all;
    const double link = rows * (double)bytes / LINK_BYTES_NS;
    return PASS_NS + PASS_ID_NS * (double)count + larger(link, pages * miss) < larger(link, reads * miss);
}

bool weiri_table_grouping_pays(const weir_table *table, uint64_t count, uint64_t bytes, uint32_t planes, uint64_t plane)
{
    return !table->order_failed && count <= table->info.order_ids && takes_less(table, count, bytes, planes, plane);
}

void weiri_table_set_choice(weir_table *table)
{
    weir_table_info *info = &table->info;
    char *reason = info->reason;
    uint64_t from = 1;
    while (from <= UINT32_MAX && !takes_less(table, from, info->row_bytes, 1, 0)) {
        from += from / 4 + 1; /* the number is right to within a quarter */
    }
    const bool never = from > UINT32_MAX;
    if (from > info->order_ids && takes_less(table, info->order_ids, info->row_bytes, 1, 0)) {
        from = info->order_ids;
    }
    info->grouped_from = from <= info->order_ids ? from : 0;
    if (info->order_ids == 0 || table->host_rows == 0) {
        (void)snprintf(reason, sizeof info->reason, "%s",
                       info->order_ids == 0 ? "opts.order_ids is 0" : "no rows lie in host memory");
    } else if (info->grouped_from != 0) {
        (void)snprintf(reason, sizeof info->reason,
                       "from there on a miss for each page and the pass cost less than a miss for each row");
    } else if (!never) {
        (void)snprintf(reason, sizeof info->reason,
                       "groups pay from about %" PRIu64 " ids on, but opts.order_ids is %" PRIu64, from,
                       info->order_ids);
    } else {
        (void)snprintf(reason, sizeof info->reason, "%s",
                       span_of(table, 1, 0) <= reach_of(table)
                           ? "the span is within reach of address translation"
                           : "misses of address translation take less time than the link or the pass");
    }
}

/* ---- launches ------------------------------------------------------------------------------------------ */

/* Passes and copies are short and work in device memory, so they take the whole device. */
static weir_shape whole(const weir_device *device)
{
    return weir_device_fit_shape(device, (weir_shape){ device->info.multiprocessors, 1024 });
}

weir_status weiri_table_launch_order(weir_table *table, bool unique, bool misses, weir_table_call *move, void *stream)
{
    weir_device *device = table->device;
    weiri_table_order_args args = table->order;
    const weir_shape summing = weir_device_fit_shape(device, (weir_shape){ summers(table), WEIRI_TABLE_SUM_THREADS });
    args.call = *move;
    args.call.table.slots = misses ? move->table.slots : NULL;
    args.slots = unique ? args.slots : NULL;
    args.mask = slots_for(move->count) - 1;
    if (table->order_failed) {
        return weiri_fail(WEIR_ERR_DEVICE, "table on %s: an earlier launch failed, so that its ids cannot be reordered",
                          device->info.label);
    }
    table->order_failed = true; /* until SUM clears the counts */
    weir_status status =
        weir_launch(device, weiri_table_kernels[WEIRI_TABLE_COUNT], whole(device), &args, NULL, stream);
    if (status == WEIR_OK) {
        status = weir_launch(device, weiri_table_kernels[WEIRI_TABLE_SUM], summing, &args, NULL, stream);
    }
    if (status == WEIR_OK) {
        status = weir_launch(device, weiri_table_kernels[WEIRI_TABLE_PLACE], whole(device), &args, NULL, stream);
    }
    table->order_failed = status != WEIR_OK;
    move->order = args.order;
    move->count_at = args.placed;
    return status;
}

weir_status weiri_table_launch_copy(weir_table *table, const weir_table_call *move, void *stream)
{
    weiri_table_order_args args = table->order;
    args.call = *move;
    return weir_launch(table->device, weiri_table_kernels[WEIRI_TABLE_COPY], whole(table->device), &args, NULL, stream);
}

weir_status weiri_table_launch_split(weir_table *table, const weir_table_call *move, weir_table_call *hits,
                                     weir_table_call *misses, void *stream)
{
    weir_device *device = table->device;
    weiri_table_order_args args = table->order;
    const weir_shape wanted = { device->info.multiprocessors, 1024 };
    const weir_shape fits = weir_device_fit_shape(device, wanted);
    const weir_shape shape = { fits.blocks < WEIRI_TABLE_SPLITTERS ? fits.blocks : WEIRI_TABLE_SPLITTERS,
                               fits.threads };
    args.call = *move;
    *hits = *misses = *move;
    hits->order = args.heads;
    hits->count_at = args.placed + 1;
    misses->order = args.order;
    misses->count_at = args.placed;
    misses->table.slots = NULL;
    return weir_launch(device, weiri_table_kernels[WEIRI_TABLE_SPLIT], shape, &args, NULL, stream);
}
