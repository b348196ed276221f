/* order.c - the order in which a gather reads its rows, and whether it pays.
 *
 * Address translation reaches a span of about 512 MiB on H200. Beyond it each row of a random order costs a miss. In
 * groups of neighbouring rows, one after the other, each page misses once. One pass partitions the ids into groups: it
 * counts the ids of each group, sums the counts, and places each id. The order inside a group is any. Smaller groups
 * are closer to a sort, which reads neighbouring pages one after the other and so makes the misses themselves cheaper.
 *
 * The model: a gather takes the longer of the time of its bytes on the link and the time of its misses. docs/tables.md
 * has the measurements. */
#include "src/host/base/error.h"
#include "src/host/table/table.h"

#define GROUP_LEAST ((uint64_t)1 << 20)
#define GROUPS_MOST 16384u
#define PAGE_BYTES ((uint64_t)64 << 10) /* that misses once */
#define REACH_BYTES ((uint64_t)512 << 20)
#define MISS_NS 30u
#define LINK_BYTES_NS 51.4
#define PASS_NS 22000.0 /* of the three launches, */
#define PASS_ID_NS 0.03 /* and for each id; an estimate */

/* ---- groups -------------------------------------------------------------------------------------------- */

void weiri_table_set_groups(weir_table *table, weir_dev_table_part *parts)
{
    uint64_t bytes = GROUP_LEAST;
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

uint64_t weiri_table_order_bytes(const weir_table *table)
{
    return table->info.order_ids == 0 ? 0
                                      : (2 * table->order.groups + WEIRI_TABLE_SUMS) * sizeof(uint64_t) +
                                            table->info.order_ids * sizeof(uint32_t);
}

void weiri_table_place_order(weir_table *table, char *room)
{
    weiri_table_order_args *order = &table->order;
    order->counts = (uint64_t *)(void *)room;
    order->cursors = order->counts + order->groups;
    order->sums = order->cursors + order->groups;
    order->order = (uint32_t *)(void *)(order->sums + WEIRI_TABLE_SUMS);
}

/* ---- the model ----------------------------------------------------------------------------------------- */

static double larger(double a, double b) { return a > b ? a : b; }

bool weiri_table_grouping_pays(const weir_table *table, uint64_t count, uint64_t bytes, uint64_t pieces)
{
    const double reach = table->reach_bytes != 0 ? (double)table->reach_bytes : (double)REACH_BYTES;
    const double span = (double)table->info.span_bytes;
    const double miss = (table->miss_ns != 0 ? table->miss_ns : MISS_NS) * (1 - reach / span);
    const double reads = (double)count * (double)pieces;
    const double all = span / (double)PAGE_BYTES;
    const double drawn = reads / (1 + reads / (2 * all)); /* close to all * (1 - exp(-reads / all)) */
    const double pages = drawn < all ? drawn : all;
    const double link = (double)count * (double)bytes / LINK_BYTES_NS;
    if (!table->host || table->order_failed || count > table->info.order_ids || span <= reach) {
        return false;
    }
    return PASS_NS + PASS_ID_NS * (double)count + larger(link, pages * miss) < larger(link, reads * miss);
}

/* ---- launches ------------------------------------------------------------------------------------------ */

weir_status weiri_table_launch_order(weir_table *table, weir_table_call *move, void *stream)
{
    weir_device *device = table->device;
    weiri_table_order_args args = table->order;
    /* The pass is short and works in device memory, so it takes the whole device. */
    const weir_shape all = weir_device_fit_shape(device, (weir_shape){ device->info.multiprocessors, 1024 });
    const weir_shape one = weir_device_fit_shape(device, (weir_shape){ 1, 1024 });
    args.call = *move;
    if (table->order_failed) {
        return weiri_fail(WEIR_ERR_DEVICE, "table on %s: an earlier launch failed, so that its ids cannot be reordered",
                          device->info.label);
    }
    table->order_failed = true; /* until SUM clears the counts */
    weir_status status = weir_launch(device, weiri_table_kernels[WEIRI_TABLE_COUNT], all, &args, NULL, stream);
    if (status == WEIR_OK) {
        status = weir_launch(device, weiri_table_kernels[WEIRI_TABLE_SUM], (weir_shape){ 1, one.threads }, &args, NULL,
                             stream);
    }
    if (status == WEIR_OK) {
        table->order_failed = false;
        status = weir_launch(device, weiri_table_kernels[WEIRI_TABLE_PLACE], all, &args, NULL, stream);
    }
    move->order = args.order;
    return status;
}
