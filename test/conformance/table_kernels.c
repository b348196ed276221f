/* table_kernels.c - kernels that find rows of a host table by themselves: see table_kernels.h. */
#include "weir/device/table.h"

#include "test/conformance/table_kernels.h"

WEIR_KERNEL(nothing, table_args)
{
    (void)args;
    (void)coop;
}

WEIR_KERNEL(inside, table_args)
{
    uint32_t *sum = (uint32_t *)(void *)(args->out + args->count * 64);
    weir_dev_table_gather(&args->table, args->ids, WEIR_IDS_I32, args->count, args->out, 64, weir_coop_blocks(coop));
    if (coop.rank != 0) {
        return;
    }
    for (uint64_t i = 0; i < args->count; i++) {
        weir_dev_row row;
        const uint32_t found = weir_dev_table_row(&args->table, args->ids[i], &row);
        for (uint32_t k = 0; k < 16 && found == WEIR_TABLE_THERE; k++) {
            sum[k] += ((const uint32_t *)(const void *)row.bytes)[k];
        }
        sum[16] += found == WEIR_TABLE_SKIPPED;
        sum[17] += found == WEIR_TABLE_OUTSIDE;
    }
}

WEIR_KERNEL(back, table_args)
{
    weir_dev_table_scatter(&args->table, args->ids, WEIR_IDS_I32, args->count, args->out, 64, weir_coop_blocks(coop));
}

WEIR_FN weir_coop table_group_of(uint32_t group, weir_coop coop)
{
    switch (group) {
    case TABLE_GRID:
        return coop;
    case TABLE_BLOCK:
        return weir_coop_block(coop);
    case TABLE_WARP:
        return weir_coop_warp(coop);
    default:
        return weir_coop_thread(coop);
    }
}

WEIR_KERNEL(first_group, table_group_args)
{
    const weir_coop group = table_group_of(args->group, coop);
    if (coop.rank >= group.size) {
        return;
    }
    if (args->scatter) {
        weir_dev_table_scatter(&args->table, args->ids, args->type, args->count, args->out, args->pitch, group);
    } else {
        weir_dev_table_gather(&args->table, args->ids, args->type, args->count, args->out, args->pitch, group);
    }
}

const weir_kernel *const table_nothing = &nothing;
const weir_kernel *const table_inside = &inside;
const weir_kernel *const table_back = &back;
const weir_kernel *const table_group = &first_group;
