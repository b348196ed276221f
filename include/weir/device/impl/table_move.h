/* weir/device/impl/table_move.h - finds the rows of a host table, and moves them to or from packed rows.
 *
 * A call is divided into items: a row, or a piece of a row in each plane, and long ones are divided again into chunks
 * that begin at a line. A group of lanes moves an item; there are as many lanes as the item has 16-byte units, up
 * to 16. So a warp has several short rows under way, and each is read by one instruction.
 *
 * The forms `flat`, `circular` and `lines` are those of other libraries. They move words of 4 bytes, or bytes where an
 * address or a size is no multiple of 4. */
#ifndef WEIR_DEVICE_IMPL_TABLE_MOVE_H
#define WEIR_DEVICE_IMPL_TABLE_MOVE_H

#include "weir/device/coop.h"
#include "weir/device/impl/run.h"

#undef WEIR_DEV_USED_table
#define WEIR_DEV_USED_table weir_dev_version_table

#define WEIR_TABLE_CHUNK 16384u /* bytes of a long row that a group moves at once; a multiple of WEIR_RUN_LINE */

enum { WEIR_TABLE_UNITS, WEIR_TABLE_FLAT, WEIR_TABLE_CIRCULAR, WEIR_TABLE_LINES };

typedef struct weir_table_call {
    weir_dev_table table;
    const void *ids;
    const void *out_ids;      /* places of the rows in out; NULL: row i is at place i */
    const uint64_t *count_at; /* NULL: count */
    const uint32_t *order;    /* the i-th row that is moved is that of ids[order[i]]; NULL: of ids[i] */
    char *out;                /* or the rows of a scatter */
    uint64_t count;
    uint64_t pitch; /* of out */
    uint64_t column;
    uint64_t bytes; /* of each piece */
    uint64_t plane; /* distance of the pieces, in the table and in out */
    uint64_t out_plane;
    uint32_t planes;
    uint32_t wide; /* ids are int64_t */
    uint32_t scatter;
    uint32_t form;
    uint32_t lanes;   /* that share an item */
    uint32_t element; /* bytes that a thread of the other forms moves: 1 or 4 */
    uint32_t zero_skipped;
    uint32_t reserved;
} weir_table_call;

/* ---- rows ---------------------------------------------------------------------------------------------- */

WEIR_FN uint64_t weir_table_load_id(const void *ids, uint32_t wide, uint64_t i)
{
    return wide ? weir_arch_load_u64((const weir_alias_u64 *)ids + i)
                : weir_arch_load_u32((const weir_alias_u32 *)ids + i);
}

WEIR_FN int64_t weir_table_signed(uint64_t id, uint32_t wide) { return wide ? (int64_t)id : (int32_t)(uint32_t)id; }

WEIR_FN int64_t weir_table_id(const void *ids, uint32_t wide, uint64_t i)
{
    return weir_table_signed(weir_table_load_id(ids, wide, i), wide);
}

/* The last part that starts at the id or in front of it. Empty parts lie in front of the part that has the id. */
WEIR_FN uint32_t weir_table_part_at(const weir_dev_table *table, uint64_t id)
{
    uint32_t low = 0;
    uint32_t high = table->count;
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (table->parts[middle].start <= id) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The part of row `id`, which the table has. */
WEIR_FN const weir_dev_table_part *weir_table_part_of(const weir_dev_table *table, uint64_t id)
{
    return table->parts + (table->count == 1    ? 0
                           : table->round_robin ? (uint32_t)(id % table->count)
                                                : weir_table_part_at(table, id));
}

/* The index of row `id` in its part. */
WEIR_FN uint64_t weir_table_index_of(const weir_dev_table *table, const weir_dev_table_part *part, uint64_t id)
{
    return table->round_robin ? id / table->count : id - part->start;
}

/* The group of row `id`; 0 for ids without a row. */
WEIR_FN uint64_t weir_table_group_of(const weir_dev_table *table, int64_t id)
{
    if (id < 0 || (uint64_t)id >= table->rows) {
        return 0;
    }
    const weir_dev_table_part *part = weir_table_part_of(table, (uint64_t)id);
    return part->group + weir_table_index_of(table, part, (uint64_t)id) * part->pitch / table->group_bytes;
}

/* See weir/device/table.h. */
WEIR_FN uint32_t weir_dev_table_row(const weir_dev_table *table, int64_t id, weir_dev_row *row)
{
    const uint64_t number = (uint64_t)id;
    if (id < 0) {
        return WEIR_TABLE_SKIPPED;
    }
    if (number >= table->rows) {
        return WEIR_TABLE_OUTSIDE;
    }
    const weir_dev_table_part *part = weir_table_part_of(table, number);
    row->bytes = part->rows + weir_table_index_of(table, part, number) * part->pitch;
    row->first = part->first;
    row->last = part->last;
    return WEIR_TABLE_THERE;
}

/* The slot in which the search for an id begins. */
WEIR_FN uint64_t weir_table_hash(uint64_t id, uint64_t mask) { return (id * 0x9e3779b97f4a7c15u >> 20) & mask; }

/* The copy of row `id` in device memory; NULL: none. */
WEIR_FN char *weir_table_copy_of(const weir_dev_table *table, uint64_t id)
{
    for (uint64_t slot = weir_table_hash(id, table->mask);; slot = (slot + 1) & table->mask) {
        const weir_vec16 found = weir_arch_load_vec16((const weir_vec16 *)(const void *)(table->slots + 2 * slot));
        if (found.lo == id + 1) {
            return table->copies + found.hi * table->copy_pitch;
        }
        if (found.lo == 0) {
            return NULL;
        }
    }
}

/* See weir/device/table.h. */
WEIR_FN_COLD void weir_dev_table_fault(const weir_dev_table *table, int64_t id, uint64_t position)
{
    weir_dev_table_faults *faults = table->faults;
    uint64_t count = weir_arch_fetch_add_acq_rel_dev_u64(table->claimed, 1) + 1;
    uint64_t shown;
    if (count == 1) {
        weir_arch_store_relaxed_sys_u64(&faults->id, (uint64_t)id);
        weir_arch_store_relaxed_sys_u64(&faults->position, position);
        weir_arch_store_release_sys_u64(&faults->known, 1);
    }
    /* Not every GPU has atomics in host memory. So the count lies in device memory. The thread that raises it shows it
     * to the host, and again if another thread has raised it meanwhile: the last store has the last count. */
    do {
        shown = count;
        weir_arch_store_relaxed_sys_u64(&faults->count, shown);
        count = weir_arch_fetch_add_acq_rel_dev_u64(table->claimed, 0);
    } while (count != shown);
}

/* ---- items --------------------------------------------------------------------------------------------- */

/* An item as memory describes it: ids without their sign, so that a thread does not wait for a load that it has just
 * begun. */
typedef struct weir_table_turn {
    uint64_t position; /* of the id */
    uint64_t id;
    uint64_t place; /* in out; negative: nothing happens */
} weir_table_turn;

/* A piece of a row, and its place in out. */
typedef struct weir_table_item {
    uint32_t kind;    /* WEIR_TABLE_THERE, WEIR_TABLE_SKIPPED or WEIR_TABLE_OUTSIDE */
    weir_dev_row row; /* of a gather its copy, if there is one */
    char *copy;       /* of a scatter; NULL: none */
    char *near;       /* NULL: the place is negative, and nothing happens */
} weir_table_item;

/* Item `i` is plane i % planes of a row. */
WEIR_FN uint64_t weir_table_plane(const weir_table_call *call, uint64_t i)
{
    return call->planes == 1 ? 0 : i % call->planes;
}

/* Reads the id of item `i`. */
WEIR_FN weir_table_turn weir_table_turn_at(const weir_table_call *call, uint64_t i)
{
    const uint64_t number = call->planes == 1 ? i : i / call->planes;
    weir_table_turn turn;
    turn.position = call->order == NULL ? number : call->order[number];
    turn.id = weir_table_load_id(call->ids, call->wide, turn.position);
    turn.place = call->out_ids == NULL ? turn.position : weir_table_load_id(call->out_ids, call->wide, turn.position);
    return turn;
}

/* Puts the copy of the row into the item. */
WEIR_FN void weir_table_find_copy(const weir_table_call *call, uint64_t id, uint64_t plane, weir_table_item *item)
{
    char *copy = weir_table_copy_of(&call->table, id);
    if (copy != NULL && call->scatter) {
        item->copy = copy + call->column + plane * call->plane;
    } else if (copy != NULL) {
        item->row.bytes = copy;
        item->row.first = call->table.copies;
        item->row.last = call->table.copies + call->table.copy_count * call->table.copy_pitch;
    }
}

/* Finds item `i`. `leads`: the caller counts an id that is out of range. */
WEIR_FN weir_table_item weir_table_item_of(const weir_table_call *call, uint64_t i, const weir_table_turn *turn,
                                           int leads)
{
    const uint64_t plane = weir_table_plane(call, i);
    const int64_t id = weir_table_signed(turn->id, call->wide);
    const int64_t place = call->out_ids == NULL ? (int64_t)turn->place : weir_table_signed(turn->place, call->wide);
    weir_table_item item;
    item.row.bytes = NULL;
    item.row.first = NULL;
    item.row.last = NULL;
    item.copy = NULL;
    item.kind = weir_dev_table_row(&call->table, id, &item.row);
    item.near = place < 0 ? NULL : call->out + (uint64_t)place * call->pitch + plane * call->out_plane;
    if (item.kind == WEIR_TABLE_THERE && call->table.slots != NULL) {
        weir_table_find_copy(call, (uint64_t)id, plane, &item);
    }
    if (item.kind == WEIR_TABLE_THERE) {
        item.row.bytes += call->column + plane * call->plane;
    } else if (WEIR_UNLIKELY(item.kind == WEIR_TABLE_OUTSIDE) && leads && plane == 0) {
        weir_dev_table_fault(&call->table, id, turn->position);
    }
    return item;
}

WEIR_FN weir_table_item weir_table_item_at(const weir_table_call *call, uint64_t i, int leads)
{
    const weir_table_turn turn = weir_table_turn_at(call, i);
    return weir_table_item_of(call, i, &turn, leads);
}

/* Whether the call zeroes the item. */
WEIR_FN int weir_table_zeroes(const weir_table_call *call, const weir_table_item *item)
{
    return item->kind == WEIR_TABLE_SKIPPED && call->zero_skipped && !call->scatter && item->near != NULL;
}

WEIR_FN_COLD void weir_table_zero(char *out, uint64_t bytes, uint32_t lane, uint32_t lanes)
{
    for (uint64_t i = lane; i < bytes; i += lanes) {
        weir_arch_store_byte(out + i, 0);
    }
}

/* ---- the default form ------------------------------------------------------------------------------------ */

#define WEIR_TABLE_LANES 16u

/* Lanes for items of `bytes` bytes: a power of two, at most `most` and WEIR_TABLE_LANES. A lane has several units under
 * way, and groups of more lanes idle more where rows are no multiple of theirs: on H200, 32 lanes read rows of 400
 * bytes at 45.8 GB/s, 8 lanes at 47.1. */
WEIR_FN uint32_t weir_table_lanes(uint64_t bytes, uint32_t most)
{
    uint32_t lanes = 1;
    while (lanes * 2 <= most && lanes < WEIR_TABLE_LANES && lanes * WEIR_RUN_UNIT < bytes) {
        lanes *= 2;
    }
    return lanes;
}

/* Chunks of an item: one, or those of a long row, which begin at multiples of WEIR_TABLE_CHUNK from its line. */
WEIR_FN uint64_t weir_table_chunks(uint64_t bytes)
{
    return bytes <= WEIR_TABLE_CHUNK ? 1 : (bytes + WEIR_RUN_LINE - 1 + WEIR_TABLE_CHUNK - 1) / WEIR_TABLE_CHUNK;
}

/* `scatter` is a constant in kernels of one direction. */
WEIR_FN void weir_table_move_chunk(const weir_table_call *call, const weir_table_item *item, uint64_t chunk,
                                   uint64_t chunks, uint32_t lane, uint32_t scatter)
{
    const uint64_t line = (uintptr_t)item->row.bytes % WEIR_RUN_LINE;
    const uint64_t begin = chunk == 0 ? 0 : chunk * WEIR_TABLE_CHUNK - line;
    const uint64_t end = chunks == 1 ? call->bytes : (chunk + 1) * WEIR_TABLE_CHUNK - line;
    const uint64_t to = end < call->bytes ? end : call->bytes;
    if (begin >= to) {
        return;
    }
    if (scatter) {
        weir_run_put(item->row.bytes + begin, item->near + begin, to - begin, lane, call->lanes);
        if (item->copy != NULL) {
            weir_run_put(item->copy + begin, item->near + begin, to - begin, lane, call->lanes);
        }
    } else {
        weir_run_move(item->near + begin, item->row.bytes + begin, to - begin, item->row.first, item->row.last, lane,
                      call->lanes);
    }
}

WEIR_FN void weir_table_move_units(const weir_table_call *call, uint64_t count, weir_coop coop, uint32_t scatter)
{
    const uint32_t lane = coop.rank % call->lanes;
    const uint64_t group = coop.rank / call->lanes;
    const uint64_t groups = coop.size / call->lanes;
    const uint64_t chunks = weir_table_chunks(call->bytes);
    if (group >= groups) {
        return;
    }
    for (uint64_t i = group; i < count * call->planes * chunks; i += groups) {
        const uint64_t chunk = chunks == 1 ? 0 : i % chunks;
        const weir_table_item item = weir_table_item_at(call, chunks == 1 ? i : i / chunks, lane == 0 && chunk == 0);
        if (item.kind == WEIR_TABLE_THERE && item.near != NULL) {
            weir_table_move_chunk(call, &item, chunk, chunks, lane, scatter);
        } else if (WEIR_UNLIKELY(weir_table_zeroes(call, &item)) && chunk == 0) {
            weir_table_zero(item.near, call->bytes, lane, call->lanes);
        }
    }
}

/* ---- short rows -------------------------------------------------------------------------------------------
 * The time of a short row is that of its id and then that of the link. So a group of lanes has two rows under way, and
 * reads the next ids before the rows arrive. */

#define WEIR_TABLE_SHORT 512u /* most bytes of an item */
#define WEIR_TABLE_PAIR 2
#define WEIR_TABLE_NOTHING (1 << 30)

/* A row under way, as a lane sees it. */
typedef struct weir_table_run {
    char *near;
    const char *far;
    int32_t at; /* of the lane's next unit, from the start of the row; WEIR_TABLE_NOTHING: nothing to move */
    int units;  /* whole units may be read */
} weir_table_run;

WEIR_FN weir_table_run weir_table_run_of(const weir_table_call *call, uint64_t i, const weir_table_turn *turn,
                                         uint32_t lane)
{
    const weir_table_item item = weir_table_item_of(call, i, turn, lane == 0);
    const uintptr_t far = (uintptr_t)item.row.bytes;
    weir_table_run run;
    run.near = item.near;
    run.far = item.row.bytes;
    run.at = WEIR_TABLE_NOTHING;
    run.units = 0;
    if (item.kind == WEIR_TABLE_THERE && item.near != NULL) {
        run.at = (int32_t)weir_run_start(run.far, call->bytes, call->lanes) + (int32_t)(lane * WEIR_RUN_UNIT);
        run.units = WEIR_ARCH_READS_UNITS && far - (uintptr_t)item.row.first >= WEIR_RUN_UNIT &&
                    (uintptr_t)item.row.last - far >= call->bytes + WEIR_RUN_UNIT;
    } else if (WEIR_UNLIKELY(weir_table_zeroes(call, &item))) {
        weir_table_zero(item.near, call->bytes, lane, call->lanes);
    }
    return run;
}

/* The unit at `at` of a row at an end of its memory, of which exactly the row is read. */
WEIR_FN_COLD weir_vec16 weir_table_load_edge(const char *far, int32_t at, int32_t bytes)
{
    return weir_run_load(far, at, weir_run_from(at), weir_run_to(at, bytes), far, far + bytes);
}

/* Loads the unit at `at`, if the row of `bytes` bytes has a byte of it. */
WEIR_FN weir_vec16 weir_table_load(const weir_table_run *run, int32_t at, int32_t bytes)
{
    weir_vec16 unit;
    unit.lo = 0;
    unit.hi = 0;
    if (at > -(int32_t)WEIR_RUN_UNIT && at < bytes) {
        unit = run->units ? weir_arch_load_vec16((const weir_vec16 *)(run->far + at))
                          : weir_table_load_edge(run->far, at, bytes);
    }
    return unit;
}

WEIR_FN void weir_table_store(const weir_table_run *run, int32_t at, int32_t bytes, weir_vec16 unit)
{
    if (at >= 0 && at + (int32_t)WEIR_RUN_UNIT <= bytes && ((uintptr_t)run->near + (uint32_t)at) % 16 == 0) {
        weir_arch_store_vec16((weir_vec16 *)(run->near + at), unit);
    } else if (at > -(int32_t)WEIR_RUN_UNIT && at < bytes) {
        weir_run_store(run->near, at, weir_run_from(at), weir_run_to(at, bytes), unit);
    }
}

/* Reads the ids of items i and i + groups; behind the last item there is nothing to move. */
WEIR_FN void weir_table_read_turns(const weir_table_call *call, uint64_t i, uint64_t groups, uint64_t items,
                                   weir_table_turn *turns)
{
    WEIR_UNROLL
    for (int k = 0; k < WEIR_TABLE_PAIR; k++) {
        turns[k].id = UINT64_MAX;
        turns[k].place = UINT64_MAX;
        turns[k].position = 0;
        if (i + k * groups < items) {
            turns[k] = weir_table_turn_at(call, i + k * groups);
        }
    }
}

/* A gather whose items have up to WEIR_TABLE_SHORT bytes. */
WEIR_FN void weir_table_gather_short(const weir_table_call *call, uint64_t count, weir_coop coop)
{
    const uint32_t lane = coop.rank % call->lanes;
    const int32_t stride = (int32_t)(call->lanes * WEIR_RUN_UNIT);
    const uint64_t group = coop.rank / call->lanes;
    const uint64_t groups = coop.size / call->lanes;
    const uint64_t items = count * call->planes;
    const int32_t bytes = (int32_t)call->bytes;
    weir_table_turn turns[WEIR_TABLE_PAIR];
    if (group >= groups) {
        return;
    }
    weir_table_read_turns(call, group, groups, items, turns);
    for (uint64_t i = group; i < items; i += WEIR_TABLE_PAIR * groups) {
        weir_table_run runs[WEIR_TABLE_PAIR];
        int more = 1;
        WEIR_UNROLL
        for (int k = 0; k < WEIR_TABLE_PAIR; k++) {
            runs[k] = weir_table_run_of(call, i + k * groups, &turns[k], lane);
        }
        for (int turn = 0; more; turn++) {
            weir_vec16 units[2 * WEIR_TABLE_PAIR];
            WEIR_UNROLL
            for (int k = 0; k < 2 * WEIR_TABLE_PAIR; k++) {
                units[k] = weir_table_load(&runs[k / 2], runs[k / 2].at + k % 2 * stride, bytes);
            }
            if (turn == 0) {
                weir_table_read_turns(call, i + WEIR_TABLE_PAIR * groups, groups, items, turns);
            }
            more = 0;
            WEIR_UNROLL
            for (int k = 0; k < 2 * WEIR_TABLE_PAIR; k++) {
                weir_table_store(&runs[k / 2], runs[k / 2].at + k % 2 * stride, bytes, units[k]);
            }
            WEIR_UNROLL
            for (int k = 0; k < WEIR_TABLE_PAIR; k++) {
                runs[k].at += 2 * stride;
                more |= runs[k].at < bytes;
            }
        }
    }
}

/* ---- the other forms ------------------------------------------------------------------------------------- */

/* Moves the element at `column` of the item to or from the row or its copy. */
WEIR_FN void weir_table_move_one(const weir_table_call *call, const weir_table_item *item, char *far, uint64_t column)
{
    char *to = call->scatter ? far + column : item->near + column;
    const char *from = call->scatter ? item->near + column : far + column;
    if (item->kind == WEIR_TABLE_SKIPPED && call->element == 4) {
        weir_arch_store_u32((weir_alias_u32 *)to, 0);
    } else if (item->kind == WEIR_TABLE_SKIPPED) {
        weir_arch_store_byte(to, 0);
    } else if (call->element == 4) {
        weir_arch_store_u32((weir_alias_u32 *)to, weir_arch_load_u32((const weir_alias_u32 *)from));
    } else {
        weir_arch_store_byte(to, weir_arch_load_byte(from));
    }
}

WEIR_FN void weir_table_move_element(const weir_table_call *call, const weir_table_item *item, uint64_t column)
{
    if (item->near == NULL || (item->kind != WEIR_TABLE_THERE && !weir_table_zeroes(call, item))) {
        return;
    }
    weir_table_move_one(call, item, item->row.bytes, column);
    if (call->scatter && item->copy != NULL) {
        weir_table_move_one(call, item, item->copy, column);
    }
}

/* Where the circular shift moves the element at `column` of item i: the thread then reads an address that equals the
 * number of its byte modulo a line, so that a warp reads one line. Bytes beyond one end of the row wrap to the other:
 * at which end they do is decided by the sign of C's remainder, with addresses counted from the line in which the
 * memory begins. */
WEIR_FN uint64_t weir_table_shift(const weir_table_call *call, const weir_table_item *item, uint64_t i, uint64_t column)
{
    const int64_t bytes = (int64_t)call->bytes;
    if (item->kind != WEIR_TABLE_THERE || bytes <= (int64_t)WEIR_RUN_LINE || bytes % WEIR_RUN_LINE == 0) {
        return column;
    }
    const uintptr_t line = (uintptr_t)item->row.first / WEIR_RUN_LINE * WEIR_RUN_LINE;
    const int64_t far = (int64_t)((uintptr_t)item->row.bytes - line);
    const int64_t difference = ((int64_t)(i * call->bytes) - far) % (int64_t)WEIR_RUN_LINE;
    const int64_t shifted = (int64_t)column + difference;
    return (uint64_t)(shifted < 0 ? shifted + bytes : shifted >= bytes ? shifted - bytes : shifted);
}

/* A thread moves one element: flat and circular. */
WEIR_FN void weir_table_move_elements(const weir_table_call *call, uint64_t count, weir_coop coop)
{
    const uint64_t elements = call->bytes / call->element;
    for (uint64_t i = coop.rank; i < count * call->planes * elements; i += coop.size) {
        const uint64_t column = i % elements * call->element;
        const weir_table_item item = weir_table_item_at(call, i / elements, column == 0);
        weir_table_move_element(call, &item,
                                call->form == WEIR_TABLE_CIRCULAR ? weir_table_shift(call, &item, i / elements, column)
                                                                  : column);
    }
}

/* A group of lanes moves an item from the line in which it begins. */
WEIR_FN void weir_table_move_lines(const weir_table_call *call, uint64_t count, weir_coop coop)
{
    const uint64_t lane = coop.rank % call->lanes;
    const uint64_t groups = coop.size / call->lanes;
    for (uint64_t i = coop.rank / call->lanes; i < count * call->planes && coop.rank / call->lanes < groups;
         i += groups) {
        const weir_table_item item = weir_table_item_at(call, i, lane == 0);
        int64_t at = (int64_t)(lane * call->element) - (int64_t)((uintptr_t)item.row.bytes % WEIR_RUN_LINE);
        for (; at < (int64_t)call->bytes; at += (int64_t)call->lanes * call->element) {
            if (at >= 0) {
                weir_table_move_element(call, &item, (uint64_t)at);
            }
        }
    }
}

/* ---- a call ---------------------------------------------------------------------------------------------- */

/* A call of the default form for whole rows. */
WEIR_FN weir_table_call weir_table_call_of(const weir_dev_table *table, const void *ids, uint32_t wide, uint64_t count,
                                           char *out, uint64_t pitch, uint32_t scatter, weir_coop coop)
{
    const uint32_t warp = weir_arch_warp_size();
    weir_table_call call;
    call.table = *table;
    call.ids = ids;
    call.out_ids = NULL;
    call.count_at = NULL;
    call.order = NULL;
    call.out = out;
    call.count = count;
    call.pitch = pitch;
    call.column = 0;
    call.bytes = table->row_bytes;
    call.plane = 0;
    call.out_plane = 0;
    call.planes = 1;
    call.wide = wide;
    call.scatter = scatter;
    call.form = WEIR_TABLE_UNITS;
    call.lanes = weir_table_lanes(table->row_bytes, coop.size < warp ? coop.size : warp);
    call.element = 1;
    call.zero_skipped = 0;
    call.reserved = 0;
    return call;
}

#endif
