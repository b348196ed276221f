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

/* The place of row `number` in out; negative: none. */
WEIR_FN int64_t weiri_table_place(const weir_table_call *call, uint64_t number)
{
    return call->out_ids == NULL ? (int64_t)number : weir_table_id(call->out_ids, call->wide, number);
}

/* The position that stands for all that have the id: the first that gets a slot. Ids that move nothing stand for
 * themselves. */
WEIR_FN uint64_t weiri_table_head(const weiri_table_order_args *args, uint64_t number, int64_t id)
{
    const weir_table_call *call = &args->call;
    uint64_t slot = weir_table_hash((uint64_t)id, args->mask);
    if (id < 0 || (uint64_t)id >= call->table.rows || weiri_table_place(call, number) < 0) {
        return number;
    }
    for (;;) {
        uint64_t found = weir_arch_load_relaxed_dev_u64(args->slots + slot);
        if (found == 0) {
            found = weir_arch_compare_exchange_relaxed_dev_u64(args->slots + slot, 0, number + 1);
        }
        if (found == 0) {
            return number;
        }
        if (weir_table_id(call->ids, call->wide, found - 1) == id) {
            return found - 1;
        }
        slot = (slot + 1) & args->mask;
    }
}

WEIR_KERNEL_FOR(weiri_table_count_groups, weiri_table_order_args, 1024)
{
    const weir_table_call *call = &args->call;
    const uint64_t count = weiri_table_count(call);
    for (uint64_t i = coop.rank; i < count; i += coop.size) {
        const int64_t id = weir_table_id(call->ids, call->wide, i);
        if (args->slots != NULL) {
            const uint64_t head = weiri_table_head(args, i, id);
            args->heads[i] = (uint32_t)head;
            if (head != i) {
                continue;
            }
        }
        const uint64_t group = weir_table_group_of(&call->table, id);
        weir_arch_add_relaxed_dev_u64(args->counts + group, 1);
        weir_arch_add_relaxed_dev_u64(
            args->spans + group / WEIRI_TABLE_SPAN * WEIRI_TABLE_COPIES + coop.rank % WEIRI_TABLE_COPIES, 1);
    }
}

/* The sum of 32 words from `first` on, at most to `end`. */
WEIR_FN uint64_t weiri_table_sum_32(const uint64_t *words, uint64_t first, uint64_t end)
{
    uint64_t sum = 0;
    for (uint64_t i = first; i < first + 32 && i < end; i++) {
        sum += words[i];
    }
    return sum;
}

/* A block turns the counts of a span into the places where its groups begin, and clears them. Each thread sums a run of
 * groups and a part of the spans in front. The threads' sums are then summed in two levels, 32 to a sum. */
WEIR_FN void weiri_table_sum_span(const weiri_table_order_args *args, weir_coop block, uint64_t span, uint64_t *scratch)
{
    const uint64_t begin = span * WEIRI_TABLE_SPAN;
    const uint64_t end = begin + WEIRI_TABLE_SPAN < args->groups ? begin + WEIRI_TABLE_SPAN : args->groups;
    const uint64_t run = (WEIRI_TABLE_SPAN + block.size - 1) / block.size;
    const uint64_t first = begin + block.rank * run < end ? begin + block.rank * run : end;
    const uint64_t last = first + run < end ? first + run : end;
    uint64_t *sums = scratch;
    uint64_t *in_front = scratch + 1024;
    uint64_t *upper = scratch + 2048;
    uint64_t sum = 0;
    for (uint64_t i = first; i < last; i++) {
        sum += args->counts[i];
    }
    sums[block.rank] = sum;
    sum = 0;
    for (uint64_t i = block.rank; i < span * WEIRI_TABLE_COPIES; i += block.size) {
        sum += args->spans[i];
    }
    in_front[block.rank] = sum;
    (void)weir_coop_sync(block);
    if (block.rank < 32) {
        upper[block.rank] = weiri_table_sum_32(sums, block.rank * 32, block.size);
        upper[32 + block.rank] = weiri_table_sum_32(in_front, block.rank * 32, block.size);
    }
    (void)weir_coop_sync(block);
    sum = weiri_table_sum_32(upper, 32, 32 + (block.size + 31) / 32) + weiri_table_sum_32(upper, 0, block.rank / 32) +
          weiri_table_sum_32(sums, block.rank / 32 * 32, block.rank);
    for (uint64_t i = first; i < last; i++) {
        args->cursors[i] = sum;
        sum += args->counts[i];
        args->counts[i] = 0;
    }
    if (first < last && last == args->groups) {
        *args->placed = sum;
    }
    (void)weir_coop_sync(block); /* the next span uses the scratch */
}

WEIR_KERNEL_FOR(weiri_table_sum_groups, weiri_table_order_args, 1024)
{
    const weir_coop block = weir_coop_block(coop);
    uint64_t *scratch = args->scratch + coop.block * WEIRI_TABLE_SCRATCH;
    for (uint64_t span = coop.block; span * WEIRI_TABLE_SPAN < args->groups; span += coop.blocks) {
        weiri_table_sum_span(args, block, span, scratch);
    }
}

WEIR_KERNEL_FOR(weiri_table_place_ids, weiri_table_order_args, 1024)
{
    const weir_table_call *call = &args->call;
    const uint64_t count = weiri_table_count(call);
    const uint64_t spans = (args->groups + WEIRI_TABLE_SPAN - 1) / WEIRI_TABLE_SPAN;
    for (uint64_t i = coop.rank; i < spans * WEIRI_TABLE_COPIES; i += coop.size) {
        args->spans[i] = 0;
    }
    for (uint64_t i = coop.rank; args->slots != NULL && i <= args->mask; i += coop.size) {
        args->slots[i] = 0;
    }
    for (uint64_t i = coop.rank; i < count; i += coop.size) {
        if (args->slots != NULL && args->heads[i] != i) {
            continue;
        }
        const uint64_t group = weir_table_group_of(&call->table, weir_table_id(call->ids, call->wide, i));
        const uint64_t at = weir_arch_fetch_add_relaxed_dev_u64(args->cursors + group, 1);
        if (at < call->count) { /* always, unless ids or the count changed since they were counted */
            args->order[at] = (uint32_t)i;
        }
    }
}

/* Copies the row of a head to the place of another position. */
WEIR_FN void weiri_table_copy_row(const weir_table_call *call, uint64_t head, uint64_t number, uint32_t lane)
{
    const char *from = call->out + (uint64_t)weiri_table_place(call, head) * call->pitch;
    char *to = call->out + (uint64_t)weiri_table_place(call, number) * call->pitch;
    for (uint32_t plane = 0; plane < call->planes; plane++) {
        weir_run_move(to, from, call->bytes, from, from + call->bytes, lane, call->lanes);
        from += call->out_plane;
        to += call->out_plane;
    }
}

#define WEIRI_TABLE_HEADS 4 /* loads under way: most positions are often heads, which need no copy */

/* The heads' rows are in out. */
WEIR_KERNEL_FOR(weiri_table_copy_equal, weiri_table_order_args, 1024)
{
    const weir_table_call *call = &args->call;
    const uint64_t groups = coop.size / call->lanes;
    const uint64_t group = coop.rank / call->lanes;
    const uint64_t count = weiri_table_count(call);
    for (uint64_t i = group; group < groups && i < count; i += WEIRI_TABLE_HEADS * groups) {
        uint32_t heads[WEIRI_TABLE_HEADS];
        WEIR_UNROLL
        for (int k = 0; k < WEIRI_TABLE_HEADS; k++) {
            heads[k] = i + k * groups < count ? args->heads[i + k * groups] : (uint32_t)(i + k * groups);
        }
        WEIR_UNROLL
        for (int k = 0; k < WEIRI_TABLE_HEADS; k++) {
            const uint64_t number = i + k * groups;
            if (heads[k] != (uint32_t)number) {
                weiri_table_copy_row(call, heads[k], number, coop.rank % call->lanes);
            }
        }
    }
}

/* ---- copies of rows in device memory ------------------------------------------------------------------- */

WEIR_KERNEL_FOR(weiri_table_clear_slots, weiri_table_copies_args, 1024)
{
    for (uint64_t i = coop.rank; i < 2 * (args->mask + 1); i += coop.size) {
        args->slots[i] = 0;
    }
}

/* Of equal ids the first that gets a slot has the copy. */
WEIR_KERNEL_FOR(weiri_table_fill_slots, weiri_table_copies_args, 1024)
{
    const weir_table_call *call = &args->call;
    for (uint64_t i = coop.rank; i < call->count; i += coop.size) {
        const int64_t id = weir_table_id(call->ids, call->wide, i);
        uint64_t slot = weir_table_hash((uint64_t)id, args->mask);
        uint64_t found = id < 0 || (uint64_t)id >= call->table.rows ? (uint64_t)id + 1 : 0;
        while (found != (uint64_t)id + 1) {
            found = weir_arch_compare_exchange_relaxed_dev_u64(args->slots + 2 * slot, 0, (uint64_t)id + 1);
            if (found == 0) {
                args->slots[2 * slot + 1] = i;
                break;
            }
            slot = (slot + 1) & args->mask;
        }
    }
}

const weir_kernel *const weiri_table_kernels[] = {
    &weiri_table_gather,     &weiri_table_gather_short, &weiri_table_scatter,    &weiri_table_lines,
    &weiri_table_elements,   &weiri_table_count_groups, &weiri_table_sum_groups, &weiri_table_place_ids,
    &weiri_table_copy_equal, &weiri_table_clear_slots,  &weiri_table_fill_slots, NULL
};
