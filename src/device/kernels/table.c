/* table.c - see table.h. A kernel for each direction of the default form, and one for each of the other loops: fewer
 * registers than one kernel with all. */
#include "src/device/kernels/table.h"

/* Rows of the call. The count in memory may have been stored by a kernel in front of this one. */
WEIR_FN uint64_t weiri_table_count(const weir_table_call *call)
{
    const uint64_t most = call->count_at == NULL ? call->count : *call->count_at;
    return most < call->count ? most : call->count;
}

WEIR_KERNEL_FOR(weiri_table_gather, weir_table_call, 1024)
{
    weir_table_move_units(args, weiri_table_count(args), coop, 0);
}

WEIR_KERNEL_FOR(weiri_table_gather_short, weir_table_call, 1024)
{
    weir_table_gather_short(args, weiri_table_count(args), coop);
}

WEIR_KERNEL_FOR(weiri_table_scatter, weir_table_call, 1024)
{
    weir_table_move_units(args, weiri_table_count(args), coop, 1);
}

WEIR_KERNEL_FOR(weiri_table_lines, weir_table_call, 1024)
{
    weir_table_move_lines(args, weiri_table_count(args), coop);
}

WEIR_KERNEL_FOR(weiri_table_elements, weir_table_call, 1024)
{
    weir_table_move_elements(args, weiri_table_count(args), coop);
}

/* ---- order --------------------------------------------------------------------------------------------- */

WEIR_KERNEL_FOR(weiri_table_count_groups, weiri_table_order_args, 1024)
{
    const weir_table_call *call = &args->call;
    const uint64_t count = weiri_table_count(call);
    for (uint64_t i = coop.rank; i < count; i += coop.size) {
        const uint64_t group = weir_table_group_of(&call->table, weir_table_id(call->ids, call->wide, i));
        weir_arch_add_relaxed_dev_u64(args->counts + group, 1);
    }
}

/* One block turns the counts into the places where groups begin, and clears them for the next call. Each thread sums a
 * run of groups. Then the threads' sums are summed in two levels, 32 to a sum, so that a thread adds at most 62. */
WEIR_KERNEL_FOR(weiri_table_sum_groups, weiri_table_order_args, 1024)
{
    const weir_coop block = weir_coop_block(coop);
    const uint64_t run = (args->groups + block.size - 1) / block.size;
    const uint64_t first = block.rank * run < args->groups ? block.rank * run : args->groups;
    const uint64_t last = first + run < args->groups ? first + run : args->groups;
    uint64_t *sums = args->sums;
    uint64_t *upper = args->sums + 1024;
    uint64_t sum = 0;
    for (uint64_t i = first; i < last; i++) {
        sum += args->counts[i];
    }
    sums[block.rank] = sum;
    (void)weir_coop_sync(block);
    if (block.rank < 32) {
        sum = 0;
        for (uint32_t i = block.rank * 32; i < block.rank * 32 + 32 && i < block.size; i++) {
            sum += sums[i];
        }
        upper[block.rank] = sum;
    }
    (void)weir_coop_sync(block);
    sum = 0;
    for (uint32_t i = 0; i < block.rank / 32; i++) {
        sum += upper[i];
    }
    for (uint32_t i = block.rank / 32 * 32; i < block.rank; i++) {
        sum += sums[i];
    }
    for (uint64_t i = first; i < last; i++) {
        args->cursors[i] = sum;
        sum += args->counts[i];
        args->counts[i] = 0;
    }
}

WEIR_KERNEL_FOR(weiri_table_place_ids, weiri_table_order_args, 1024)
{
    const weir_table_call *call = &args->call;
    const uint64_t count = weiri_table_count(call);
    for (uint64_t i = coop.rank; i < count; i += coop.size) {
        const uint64_t group = weir_table_group_of(&call->table, weir_table_id(call->ids, call->wide, i));
        const uint64_t at = weir_arch_fetch_add_relaxed_dev_u64(args->cursors + group, 1);
        if (at < call->count) { /* always, unless ids or the count changed since they were counted */
            args->order[at] = (uint32_t)i;
        }
    }
}

const weir_kernel *const weiri_table_kernels[] = {
    &weiri_table_gather,     &weiri_table_gather_short, &weiri_table_scatter,
    &weiri_table_lines,      &weiri_table_elements,     &weiri_table_count_groups,
    &weiri_table_sum_groups, &weiri_table_place_ids,    NULL
};
