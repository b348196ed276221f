/* call.c - weir_table_gather and weir_table_scatter.
 *
 * A call checks its arguments, describes itself for kernels (weir_table_call), and chooses the kernel's loop and the
 * order. In the order GIVEN it launches one kernel. In another order the kernels of order.c write a new list of ids
 * first. Rows that have copies (cache.c) may get a launch of their own on the whole device, and the other rows one with
 * the few blocks for host memory. */
#include <inttypes.h>

#include "src/host/base/error.h"
#include "src/host/table/table.h"

static weir_status invalid(const char *call, const char *what)
{
    return weiri_fail(WEIR_ERR_INVALID, "%s: %s", call, what);
}

weir_status weiri_table_check_call(const char *call, const weir_table *table, const void *ids, weir_ids type,
                                   uint64_t count)
{
    if (table == NULL) {
        return weiri_fail_null(call, "table");
    }
    if (type != WEIR_IDS_I32 && type != WEIR_IDS_I64) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: unknown type of ids %d", call, (int)type);
    }
    if (count != 0 && ids == NULL) {
        return weiri_fail_null(call, "ids");
    }
    const uint64_t width = type == WEIR_IDS_I64 ? 8 : 4;
    return (uintptr_t)ids % width == 0 && count <= INT64_MAX / width
               ? WEIR_OK
               : weiri_fail(WEIR_ERR_INVALID, "%s: %" PRIu64 " ids of %" PRIu64 " bytes at %p, which must be aligned",
                            call, count, width, ids);
}

/* Kernels load ids and counts as whole words. */
static weir_status check_alignment(const char *call, weir_ids type, const weir_table_call_opts *opts)
{
    if ((uintptr_t)opts->out_ids % (type == WEIR_IDS_I64 ? 8 : 4) != 0) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: opts.out_ids at %p must be aligned", call, opts->out_ids);
    }
    return (uintptr_t)opts->count_at % 8 == 0 ? WEIR_OK
                                              : weiri_fail(WEIR_ERR_INVALID, "%s: opts.count_at at %p must be aligned",
                                                           call, (const void *)opts->count_at);
}

/* Checks the part of each row that moves, and puts it into `move`. */
static weir_status set_pieces(const char *call, const weir_table *table, const weir_table_call_opts *opts,
                              weir_table_call *move)
{
    const uint64_t row_bytes = table->info.row_bytes;
    uint64_t pieces; /* bytes from the first piece to the last one */
    move->planes = opts->planes != 0 ? opts->planes : 1;
    if (opts->column >= row_bytes || opts->bytes > row_bytes - opts->column) {
        return weiri_fail(WEIR_ERR_RANGE,
                          "%s: %" PRIu64 " bytes at column %" PRIu64 " leave a row of %" PRIu64 " bytes", call,
                          opts->bytes, opts->column, row_bytes);
    }
    move->column = opts->column;
    move->bytes = opts->bytes != 0 ? opts->bytes : row_bytes - opts->column;
    move->plane = opts->plane;
    move->out_plane = opts->out_plane;
    if (__builtin_mul_overflow(opts->plane, (uint64_t)move->planes - 1, &pieces) || pieces > table->reach ||
        move->column + move->bytes > table->reach - pieces) {
        return weiri_fail(WEIR_ERR_RANGE,
                          "%s: %u planes of %" PRIu64 " bytes at column %" PRIu64 ", %" PRIu64
                          " bytes apart, leave the memory of a part, which ends %" PRIu64
                          " bytes after the start of its last row",
                          call, move->planes, move->bytes, move->column, opts->plane, table->reach);
    }
    if (move->planes > 1 && opts->out_plane < move->bytes) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: planes of %" PRIu64 " bytes are %" PRIu64 " bytes apart in out", call,
                          move->bytes, opts->out_plane);
    }
    move->pitch = opts->pitch != 0 ? opts->pitch : move->bytes;
    return move->pitch >= move->bytes
               ? WEIR_OK
               : weiri_fail(WEIR_ERR_INVALID,
                            "%s: opts.pitch is %" PRIu64 " bytes, less than the row (%" PRIu64 " bytes)", call,
                            move->pitch, move->bytes);
}

/* Whether copies of rows have all pieces. */
static bool pieces_lie_in_row(const weir_table *table, const weir_table_call *move)
{
    return (move->planes - 1) * move->plane + move->column + move->bytes <= table->info.row_bytes;
}

/* Words of 4 bytes where all addresses and sizes allow it. */
static uint32_t choose_element(const weir_table *table, const weir_table_call *move)
{
    const uint64_t bits = table->alignment | (uintptr_t)move->out | move->pitch | move->column | move->bytes |
                          move->plane | move->out_plane;
    return bits % 4 == 0 ? 4 : 1;
}

/* One instruction reads a row of up to a line, so its lanes must cover all units that it can lie in. */
static uint32_t choose_lanes(const weir_table *table, const weir_table_call *move, uint32_t warp)
{
    const uint64_t bits = table->alignment | move->column | move->plane;
    const uint64_t covered = bits % WEIR_RUN_UNIT == 0 ? move->bytes : move->bytes + WEIR_RUN_UNIT - 1;
    return weir_table_lanes(covered, warp);
}

static weir_status choose_form(const char *call, const weir_table *table, weir_table_form form, weir_table_call *move,
                               const weir_kernel **kernel)
{
    static const uint32_t forms[] = { WEIR_TABLE_UNITS, WEIR_TABLE_FLAT, WEIR_TABLE_CIRCULAR, WEIR_TABLE_LINES };
    const uint32_t warp = table->device->info.warps ? 32 : 1;
    if ((unsigned)form >= sizeof forms / sizeof forms[0]) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: unknown form %d", call, (int)form);
    }
    move->form = forms[form];
    move->element = choose_element(table, move);
    move->lanes = form == WEIR_TABLE_FORM_AUTO ? choose_lanes(table, move, warp) : warp;
    *kernel = weiri_table_kernels[form == WEIR_TABLE_FORM_LINES     ? WEIRI_TABLE_LINES
                                  : form != WEIR_TABLE_FORM_AUTO    ? WEIRI_TABLE_ELEMENTS
                                  : move->scatter                   ? WEIRI_TABLE_SCATTER
                                  : move->bytes <= WEIR_TABLE_SHORT ? WEIRI_TABLE_GATHER_SHORT
                                                                    : WEIRI_TABLE_GATHER];
    return WEIR_OK;
}

/* Puts what AUTO chooses in the place of AUTO. */
static weir_status choose_order(const char *call, const weir_table *table, const weir_table_call *move,
                                weir_table_order *order)
{
    const uint64_t most = table->info.order_ids;
    if ((unsigned)*order > WEIR_TABLE_ORDER_UNIQUE || (move->scatter && *order > WEIR_TABLE_ORDER_GIVEN)) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: %s order %d", call, move->scatter ? "a scatter takes no" : "unknown",
                          (int)*order);
    }
    if (*order > WEIR_TABLE_ORDER_GIVEN && move->count > most) {
        return weiri_fail(WEIR_ERR_LIMIT, "%s: %" PRIu64 " ids to reorder, but opts.order_ids of create was %" PRIu64,
                          call, move->count, most);
    }
    if (*order == WEIR_TABLE_ORDER_AUTO) {
        *order = !move->scatter && weiri_table_grouping_pays(table, move->count, move->bytes * move->planes,
                                                             move->planes, move->plane)
                     ? WEIR_TABLE_ORDER_GROUPED
                     : WEIR_TABLE_ORDER_GIVEN;
    }
    return WEIR_OK;
}

#define SPLIT_IDS 4096u /* fewer ids take less time than the launches */

/* Whether rows that have copies are gathered by a launch of their own, on the whole device: the few blocks that read
 * host memory would wait for each of them. `asked`: the order of the call's options. Lists of ids take memory that all
 * calls share, which calls in the order GIVEN do not use. */
static bool splits(const weir_table *table, const weir_table_call *move, weir_table_order asked)
{
    return table->cached && table->host_rows != 0 && move->table.slots != NULL && !move->scatter &&
           (asked == WEIR_TABLE_ORDER_AUTO || asked == WEIR_TABLE_ORDER_GROUPED) && move->form == WEIR_TABLE_UNITS &&
           move->count >= SPLIT_IDS && move->count <= table->info.order_ids;
}

/* Gathers the rows that have copies, and then the others, in groups or in the given order. */
static weir_status launch_split(weir_table *table, const weir_kernel *kernel, const weir_table_call *move, bool grouped,
                                weir_shape shape, void *stream)
{
    const weir_shape wanted = { 2 * table->device->info.multiprocessors, table->info.threads };
    weir_table_call hits;
    weir_table_call misses;
    weir_status status = weiri_table_launch_split(table, move, &hits, &misses, stream);
    if (status == WEIR_OK) {
        status = weir_launch(table->device, kernel, weir_device_fit_shape(table->device, wanted), &hits, NULL, stream);
    }
    if (status == WEIR_OK && grouped) {
        misses = *move;
        status = weiri_table_launch_order(table, false, true, &misses, stream);
        misses.table.slots = NULL;
    }
    return status == WEIR_OK ? weir_launch(table->device, kernel, shape, &misses, NULL, stream) : status;
}

static weir_status launch(weir_table *table, const weir_kernel *kernel, const weir_table_call *move,
                          weir_table_order order, weir_shape shape, void *stream)
{
    const bool unique = order == WEIR_TABLE_ORDER_UNIQUE;
    weir_table_call ordered = *move;
    weir_status status =
        order == WEIR_TABLE_ORDER_GIVEN ? WEIR_OK : weiri_table_launch_order(table, unique, false, &ordered, stream);
    if (status == WEIR_OK) {
        status = weir_launch(table->device, kernel, shape, &ordered, NULL, stream);
    }
    return status == WEIR_OK && unique ? weiri_table_launch_copy(table, move, stream) : status;
}

static weir_status run(const char *call, weir_table *table, const void *ids, weir_ids type, uint64_t count, char *out,
                       bool scatter, const weir_table_call_opts *opts, void *stream)
{
    weir_table_call_opts given;
    weir_table_call move = { .table = { 0 } };
    const weir_kernel *kernel = NULL;
    weir_status status = weiri_table_check_call(call, table, ids, type, count);
    if (status != WEIR_OK) {
        return status;
    }
    if (count != 0 && out == NULL) {
        return weiri_fail_null(call, scatter ? "rows" : "out");
    }
    if (!WEIRI_OPTS_OK(opts)) {
        return invalid(call, WEIRI_OPTS_ERROR(opts));
    }
    weiri_opts_copy(&given, sizeof given, opts);
    move.table = table->handle;
    move.ids = ids;
    move.out_ids = given.out_ids;
    move.count_at = given.count_at;
    move.out = out;
    move.count = count;
    move.wide = type == WEIR_IDS_I64;
    move.scatter = scatter;
    move.zero_skipped = given.zero_skipped;
    if (scatter && given.zero_skipped) {
        return invalid(call, "opts.zero_skipped is for a gather");
    }
    status = check_alignment(call, type, &given);
    if (status == WEIR_OK) {
        status = set_pieces(call, table, &given, &move);
    }
    if (status == WEIR_OK) {
        status = choose_form(call, table, given.form, &move, &kernel);
    }
    const weir_table_order asked = given.order;
    if (status == WEIR_OK) {
        status = choose_order(call, table, &move, &given.order);
    }
    if (status != WEIR_OK || count == 0) {
        return status;
    }
    const bool in_row = pieces_lie_in_row(table, &move);
    if (!in_row) {
        move.table.slots = NULL;
    }
    const weir_shape wanted = { given.blocks != 0 ? given.blocks : table->info.blocks, table->info.threads };
    const weir_shape shape = weir_device_fit_shape(table->device, wanted);
    status = splits(table, &move, asked)
                 ? launch_split(table, kernel, &move, given.order == WEIR_TABLE_ORDER_GROUPED, shape, stream)
                 : launch(table, kernel, &move, given.order, shape, stream);
    /* Pieces outside the row may be those of other rows, whose copies this scatter does not know. */
    return status == WEIR_OK && scatter && !in_row && table->info.cache_rows != 0
               ? weiri_table_launch_clear(table, stream)
               : status;
}

weir_status weir_table_gather(weir_table *table, const void *ids, weir_ids type, uint64_t count, void *out,
                              const weir_table_call_opts *opts, void *stream)
{
    return run("weir_table_gather", table, ids, type, count, (char *)out, false, opts, stream);
}

weir_status weir_table_scatter(weir_table *table, const void *ids, weir_ids type, uint64_t count, const void *rows,
                               const weir_table_call_opts *opts, void *stream)
{
    return run("weir_table_scatter", table, ids, type, count, (char *)(uintptr_t)rows, true, opts, stream);
}
