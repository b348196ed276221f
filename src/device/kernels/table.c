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

#define WEIRI_TABLE_IDS 4 /* of a thread whose loads are under way at the same time */

/* Loads the ids at i, i + step and so on; -1 for those from `count` on. */
WEIR_FN void weiri_table_load_ids(const weir_table_call *call, uint64_t i, uint64_t step, uint64_t count, int64_t *ids)
{
    WEIR_UNROLL
    for (int k = 0; k < WEIRI_TABLE_IDS; k++) {
        ids[k] = i + (uint64_t)k * step < count ? weir_table_id(call->ids, call->wide, i + (uint64_t)k * step) : -1;
    }
}

/* Whether the row of the id has a copy in device memory. */
WEIR_FN int weiri_table_has_copy(const weir_table_call *call, int64_t id)
{
    return id >= 0 && (uint64_t)id < call->table.rows && weir_table_copy_of(&call->table, (uint64_t)id) != NULL;
}

/* Whether the id gets no place in the order, because an earlier launch gathers the copy of its row. */
WEIR_FN int weiri_table_is_left_out(const weir_table_call *call, int64_t id)
{
    return call->table.slots != NULL && weiri_table_has_copy(call, id);
}

/* Whether id `i` counts: it is the head of its equals. */
WEIR_FN int weiri_table_is_head(const weiri_table_order_args *args, uint64_t i, int64_t id)
{
    if (args->slots == NULL) {
        return 1;
    }
    const uint64_t head = weiri_table_head(args, i, id);
    args->heads[i] = (uint32_t)head;
    return head == i;
}

WEIR_KERNEL_FOR(weiri_table_count_groups, weiri_table_order_args, 1024)
{
    const weir_table_call *call = &args->call;
    const uint64_t count = weiri_table_count(call);
    if (coop.rank == 0) {
        *args->placed = 0;
    }
    for (uint64_t i = coop.rank; i < count; i += WEIRI_TABLE_IDS * coop.size) {
        int64_t ids[WEIRI_TABLE_IDS];
        weiri_table_load_ids(call, i, coop.size, count, ids);
        WEIR_UNROLL
        for (int k = 0; k < WEIRI_TABLE_IDS; k++) {
            const uint64_t at = i + (uint64_t)k * coop.size;
            if (at < count && !weiri_table_is_left_out(call, ids[k]) && weiri_table_is_head(args, at, ids[k])) {
                weir_arch_add_relaxed_dev_u64(args->counts + weir_table_group_of(&call->table, ids[k]), 1);
            }
        }
    }
}

#define WEIRI_TABLE_RUN 8 /* counts of a thread that are loaded at the same time */

/* Loads the counts of groups `first` to `first` + WEIRI_TABLE_RUN; 0 for those from `last` on. Returns their sum. */
WEIR_FN uint64_t weiri_table_load_counts(const weiri_table_order_args *args, uint64_t first, uint64_t last,
                                         uint64_t *counts)
{
    uint64_t sum = 0;
    WEIR_UNROLL
    for (int k = 0; k < WEIRI_TABLE_RUN; k++) {
        counts[k] = first + (uint64_t)k < last ? args->counts[first + (uint64_t)k] : 0;
    }
    WEIR_UNROLL
    for (int k = 0; k < WEIRI_TABLE_RUN; k++) {
        sum += counts[k];
    }
    return sum;
}

/* A block turns the counts of a span into the places where its groups begin, and clears them. Each thread has a run of
 * groups. Spans follow each other in any order: the places of a span begin where those of the span before it end, and
 * an atomic addition says where that is. */
WEIR_FN void weiri_table_sum_span(const weiri_table_order_args *args, weir_coop block, uint64_t span, uint64_t *room)
{
    const uint64_t begin = span * WEIRI_TABLE_SPAN;
    const uint64_t end = begin + WEIRI_TABLE_SPAN < args->groups ? begin + WEIRI_TABLE_SPAN : args->groups;
    const uint64_t run = (WEIRI_TABLE_SPAN + block.size - 1) / block.size;
    const uint64_t first = begin + block.rank * run < end ? begin + block.rank * run : end;
    const uint64_t last = first + run < end ? first + run : end;
    uint64_t counts[WEIRI_TABLE_RUN];
    uint64_t sum = 0;
    uint64_t total;
    uint64_t base = 0;
    for (uint64_t i = first; i < last; i += WEIRI_TABLE_RUN) {
        sum += weiri_table_load_counts(args, i, last, counts);
    }
    sum = weir_arch_block_sum(block.host, room, (uint32_t)block.rank, (uint32_t)block.size, sum, &total);
    if (block.rank == 0) {
        base = weir_arch_fetch_add_relaxed_dev_u64(args->placed, total);
    }
    (void)weir_arch_block_sum(block.host, room, (uint32_t)block.rank, (uint32_t)block.size, base, &base);
    sum += base;
    for (uint64_t i = first; i < last; i += WEIRI_TABLE_RUN) {
        (void)weiri_table_load_counts(args, i, last, counts);
        WEIR_UNROLL
        for (int k = 0; k < WEIRI_TABLE_RUN; k++) {
            if (i + (uint64_t)k < last) {
                args->cursors[i + (uint64_t)k] = sum;
                args->counts[i + (uint64_t)k] = 0;
                sum += counts[k];
            }
        }
    }
}

WEIR_KERNEL_FOR(weiri_table_sum_groups, weiri_table_order_args, WEIRI_TABLE_SUM_THREADS)
{
    const weir_coop block = weir_coop_block(coop);
    uint64_t *room = args->room + coop.block * WEIRI_TABLE_SUM_THREADS;
    for (uint64_t span = coop.block; span * WEIRI_TABLE_SPAN < args->groups; span += coop.blocks) {
        weiri_table_sum_span(args, block, span, room);
    }
}

WEIR_KERNEL_FOR(weiri_table_place_ids, weiri_table_order_args, 1024)
{
    const weir_table_call *call = &args->call;
    const uint64_t count = weiri_table_count(call);
    for (uint64_t i = coop.rank; args->slots != NULL && i <= args->mask; i += coop.size) {
        args->slots[i] = 0;
    }
    for (uint64_t i = coop.rank; i < count; i += WEIRI_TABLE_IDS * coop.size) {
        int64_t ids[WEIRI_TABLE_IDS];
        uint64_t places[WEIRI_TABLE_IDS];
        weiri_table_load_ids(call, i, coop.size, count, ids);
        WEIR_UNROLL
        for (int k = 0; k < WEIRI_TABLE_IDS; k++) {
            const uint64_t at = i + (uint64_t)k * coop.size;
            places[k] = UINT64_MAX;
            if (at < count && !weiri_table_is_left_out(call, ids[k]) &&
                (args->slots == NULL || args->heads[at] == at)) {
                uint64_t *cursor = args->cursors + weir_table_group_of(&call->table, ids[k]);
                places[k] = weir_arch_fetch_add_relaxed_dev_u64(cursor, 1);
            }
        }
        WEIR_UNROLL
        for (int k = 0; k < WEIRI_TABLE_IDS; k++) {
            if (places[k] < call->count) { /* all heads, unless ids or the count changed since they were counted */
                args->order[places[k]] = (uint32_t)(i + (uint64_t)k * coop.size);
            }
        }
    }
}

/* The block's positions join the lists. All threads of the block have the same number of turns. */
WEIR_KERNEL_FOR(weiri_table_split_ids, weiri_table_order_args, 1024)
{
    const weir_table_call *call = &args->call;
    const weir_coop block = weir_coop_block(coop);
    uint64_t *room = args->room + coop.block * block.size;
    const uint64_t count = weiri_table_count(call);
    for (uint64_t first = 0; first < count; first += coop.size) {
        const uint64_t i = first + coop.rank;
        const int there = i < count;
        const int hit = there && weiri_table_has_copy(call, weir_table_id(call->ids, call->wide, i));
        uint64_t total;
        uint64_t base = 0;
        /* Two sums in one word: a list has less than 2^32 positions. */
        const uint64_t before = weir_arch_block_sum(block.host, room, (uint32_t)block.rank, (uint32_t)block.size,
                                                    (uint64_t)hit << 32 | (uint32_t)(there && !hit), &total);
        if (block.rank == 0) {
            base = weir_arch_fetch_add_relaxed_dev_u64(args->splits, total);
        }
        (void)weir_arch_block_sum(block.host, room, (uint32_t)block.rank, (uint32_t)block.size, base, &base);
        if (hit) {
            args->heads[(base >> 32) + (before >> 32)] = (uint32_t)i;
        } else if (there) {
            args->order[(uint32_t)base + (uint32_t)before] = (uint32_t)i;
        }
    }
    if (block.rank == 0 && weir_arch_fetch_add_acq_rel_dev_u64(args->splits + 1, 1) + 1 == coop.blocks) {
        const uint64_t all = weir_arch_load_relaxed_dev_u64(args->splits);
        args->placed[0] = (uint32_t)all;
        args->placed[1] = all >> 32;
        args->splits[0] = 0;
        args->splits[1] = 0;
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

const weir_kernel *const weiri_table_kernels[] = { &weiri_table_gather,
                                                   &weiri_table_gather_short,
                                                   &weiri_table_scatter,
                                                   &weiri_table_lines,
                                                   &weiri_table_elements,
                                                   &weiri_table_count_groups,
                                                   &weiri_table_sum_groups,
                                                   &weiri_table_place_ids,
                                                   &weiri_table_copy_equal,
                                                   &weiri_table_split_ids,
                                                   &weiri_table_clear_slots,
                                                   &weiri_table_fill_slots,
                                                   NULL };
