/* export.c - layouts as bytes, for another process or host.
 *
 *     u32 magic, u16 version, u8 flags
 *     with FLAG_RESIZED    u64 lb, u64 ub
 *     the nest             u64 offset, u64 run, u8 dims, and for each dim u64 count and u64 stride
 *     with FLAG_LIST       u32 pieces, u32 nests, and the nests, without an offset
 *                          for each piece u64 place, and u32 nest, or without nests u64 bytes
 *
 * With a list, the run of the nest is the size of the list. Import computes sizes and true bounds again and checks that
 * all are in range and that each nest is canonical. A layout has one encoding. Import allocates only memory for pieces
 * and nests whose bytes have arrived. */
#include <inttypes.h>
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/base/wire.h"
#include "src/host/layout/layout.h"

#define MAGIC 0x594c4557u
#define VERSION 1u
#define FLAG_RESIZED 1u
#define FLAG_LIST 2u

/* Least bytes of an encoded nest of a list, of a piece with a nest, and of one that is a run. */
#define NEST_BYTES 9u
#define NESTED_PIECE_BYTES 12u
#define RUN_PIECE_BYTES 16u

static const char import_call[] = "weir_layout_import";

/* ---- export ---------------------------------------------------------------------------------------------- */

static size_t nest_length(const weir_layout_nest *nest) { return NEST_BYTES + 16 * (size_t)nest->dims; }

static size_t encoded_length(const weir_layout *layout)
{
    const weiri_layout_list *list = layout->form.list;
    size_t length = 4 + 2 + 1 + (layout->resized ? 16u : 0u) + 8 + nest_length(&layout->form.nest);
    if (list != NULL) {
        length += 8 + (size_t)list->count * (list->nest_of != NULL ? NESTED_PIECE_BYTES : RUN_PIECE_BYTES);
        for (uint32_t i = 0; i < list->nest_count; i++) {
            length += nest_length(&list->nests[i]);
        }
    }
    return length;
}

static void write_nest(weiri_writer *w, const weir_layout_nest *nest)
{
    weiri_write_u64(w, nest->run);
    weiri_write_u8(w, (uint8_t)nest->dims);
    for (uint32_t i = 0; i < nest->dims; i++) {
        weiri_write_u64(w, nest->dim[i].count);
        weiri_write_u64(w, (uint64_t)nest->dim[i].stride);
    }
}

static void write_list(weiri_writer *w, const weiri_layout_list *list)
{
    weiri_write_u32(w, list->count);
    weiri_write_u32(w, list->nest_count);
    for (uint32_t i = 0; i < list->nest_count; i++) {
        write_nest(w, &list->nests[i]);
    }
    for (uint32_t i = 0; i < list->count; i++) {
        weiri_write_u64(w, (uint64_t)list->pieces[i].place);
        if (list->nest_of != NULL) {
            weiri_write_u32(w, list->nest_of[i]);
        } else {
            weiri_write_u64(w, list->pieces[i + 1].prefix - list->pieces[i].prefix);
        }
    }
}

weir_status weir_layout_export(const weir_layout *layout, void *bytes, size_t *length)
{
    static const char call[] = "weir_layout_export";
    if (layout == NULL || length == NULL) {
        return weiri_fail_null(call, layout == NULL ? "layout" : "length");
    }
    const size_t capacity = *length;
    *length = encoded_length(layout);
    if (*length > capacity) {
        return weiri_fail(WEIR_ERR_RANGE, "%s: %zu bytes needed, %zu given", call, *length, capacity);
    }
    if (bytes == NULL) {
        return weiri_fail_null(call, "bytes");
    }
    weiri_writer w = weiri_writer_init(bytes, capacity);
    weiri_write_u32(&w, MAGIC);
    weiri_write_u16(&w, VERSION);
    weiri_write_u8(&w, (uint8_t)((layout->resized ? FLAG_RESIZED : 0u) | (layout->form.list != NULL ? FLAG_LIST : 0u)));
    if (layout->resized) {
        weiri_write_u64(&w, (uint64_t)layout->bounds.lb);
        weiri_write_u64(&w, (uint64_t)layout->bounds.ub);
    }
    weiri_write_u64(&w, (uint64_t)layout->form.nest.offset);
    write_nest(&w, &layout->form.nest);
    if (layout->form.list != NULL) {
        write_list(&w, layout->form.list);
    }
    return WEIR_OK;
}

/* ---- import ---------------------------------------------------------------------------------------------- */

static weir_status corrupt(const char *cause)
{
    return weiri_fail(WEIR_ERR_CORRUPT, "%s: the bytes are no layout: %s", import_call, cause);
}

static bool in_range(int64_t value) { return value <= WEIRI_LAYOUT_MOST && value >= -WEIRI_LAYOUT_MOST; }

/* Adds the dim to the inside of what has been read, and checks that the dims can be a canonical nest. The run is
 * checked against the innermost dim later. */
static bool add_dim(weir_layout_nest *nest, uint64_t count, int64_t stride)
{
    int64_t whole;
    if (count < 2 || !in_range(stride) || __builtin_mul_overflow(nest->size, count, &nest->size) ||
        nest->size > (uint64_t)WEIRI_LAYOUT_MOST) {
        return false;
    }
    if (nest->dims != 0 && weiri_layout_multiply(count, stride, &whole) && whole == nest->dim[nest->dims - 1].stride) {
        return false;
    }
    nest->dim[nest->dims++] = (weir_layout_dim){ .count = count, .stride = stride };
    return true;
}

/* Reads run and dims. `listed`: the run is a piece list. */
static weir_status read_nest(weiri_reader *r, weir_layout_nest *nest, bool listed)
{
    nest->run = weiri_read_u64(r);
    nest->size = nest->run;
    const uint8_t dims = weiri_read_u8(r);
    if (r->failed || nest->run > (uint64_t)WEIRI_LAYOUT_MOST || dims > WEIR_LAYOUT_DIMS ||
        (nest->run == 0 && (dims != 0 || listed))) {
        return corrupt("a run of a wrong size");
    }
    for (uint8_t i = 0; i < dims; i++) {
        const uint64_t count = weiri_read_u64(r);
        const int64_t stride = (int64_t)weiri_read_u64(r);
        if (r->failed || !add_dim(nest, count, stride)) {
            return corrupt("wrong dims");
        }
    }
    if (dims != 0 && !listed && nest->dim[dims - 1].stride == (int64_t)nest->run) {
        return corrupt("wrong dims");
    }
    return WEIR_OK;
}

/* Puts the nest's dims around the bounds of its run, and moves them to its offset. */
static bool spread_nest(const weir_layout_nest *nest, int64_t offset, weiri_layout_bounds *bounds)
{
    bool fits = in_range(offset) && weiri_layout_move(bounds, offset, offset);
    for (uint32_t i = nest->dims; i-- > 0 && fits;) {
        fits = weiri_layout_spread(bounds, nest->dim[i].count, nest->dim[i].stride);
    }
    return fits;
}

static bool join(weiri_layout_bounds *all, bool first, const weiri_layout_bounds *more)
{
    int64_t extent;
    all->lb = first || more->lb < all->lb ? more->lb : all->lb;
    all->ub = first || more->ub > all->ub ? more->ub : all->ub;
    return weiri_layout_add(all->ub, -all->lb, &extent);
}

/* Reads piece i, whose bytes come behind list->size. */
static weir_status read_piece(weiri_reader *r, weiri_layout_list *list, uint32_t i, weiri_layout_bounds *bounds)
{
    weiri_layout_form run;
    const weir_layout_nest *nest = &run.nest;
    list->pieces[i].place = (int64_t)weiri_read_u64(r);
    list->pieces[i].prefix = list->size;
    if (list->nest_of != NULL) {
        list->nest_of[i] = weiri_read_u32(r);
        if (r->failed || list->nest_of[i] >= list->nest_count) {
            return corrupt("a piece without a nest");
        }
        nest = &list->nests[list->nest_of[i]];
    } else {
        run = weiri_layout_form_of_run(weiri_read_u64(r));
    }
    weiri_layout_bounds piece = { .lb = 0, .ub = (int64_t)nest->run };
    if (r->failed || nest->run == 0 || nest->run > (uint64_t)WEIRI_LAYOUT_MOST ||
        (i == 0 && list->pieces[0].place != 0) || !spread_nest(nest, list->pieces[i].place, &piece) ||
        !join(bounds, i == 0, &piece)) {
        return corrupt("a piece at a wrong place");
    }
    list->size += nest->size;
    list->runs += nest->size / nest->run;
    return list->size <= (uint64_t)WEIRI_LAYOUT_MOST ? WEIR_OK : corrupt("too many bytes");
}

static weir_status read_pieces(weiri_reader *r, weiri_layout_list *list, weiri_layout_bounds *bounds)
{
    for (uint32_t i = 0; i < list->nest_count; i++) {
        const weir_status status = read_nest(r, &list->nests[i], false);
        if (status != WEIR_OK) {
            return status;
        }
        if (list->nests[i].run == 0) {
            return corrupt("a nest without bytes");
        }
    }
    for (uint32_t i = 0; i < list->count; i++) {
        const weir_status status = read_piece(r, list, i, bounds);
        if (status != WEIR_OK) {
            return status;
        }
    }
    list->pieces[list->count].prefix = list->size;
    return WEIR_OK;
}

/* Reads a piece list and the bounds of its bytes. */
static weir_status read_list(weiri_reader *r, weiri_layout_bounds *bounds, weiri_layout_list **out)
{
    const uint64_t count = weiri_read_u32(r);
    const uint64_t nests = weiri_read_u32(r);
    const uint64_t bytes = nests * NEST_BYTES + count * (nests != 0 ? NESTED_PIECE_BYTES : RUN_PIECE_BYTES);
    if (r->failed || count == 0 || count > WEIR_LAYOUT_PIECES || bytes > r->size - r->at) {
        return corrupt("a piece list of a wrong size");
    }
    weiri_layout_list *list = (weiri_layout_list *)weiri_alloc(1, sizeof *list);
    if (list == NULL) {
        return weiri_fail_nomem("layout: piece list");
    }
    weiri_refcount_init(&list->refs);
    list->count = (uint32_t)count;
    list->nest_count = (uint32_t)nests;
    list->pieces = (weir_layout_piece *)weiri_alloc(count + 1, sizeof *list->pieces);
    if (nests != 0) {
        list->nest_of = (uint32_t *)weiri_alloc(count, sizeof *list->nest_of);
        list->nests = (weir_layout_nest *)weiri_alloc(nests, sizeof *list->nests);
    }
    const bool short_of_memory = list->pieces == NULL || (nests != 0 && (list->nest_of == NULL || list->nests == NULL));
    const weir_status status = short_of_memory ? weiri_fail_nomem("layout: piece list") : read_pieces(r, list, bounds);
    if (status != WEIR_OK) {
        weiri_layout_list_release(list);
        return status;
    }
    *out = list;
    return WEIR_OK;
}

/* Reads what follows the version. */
static weir_status read_layout(weiri_reader *r, weir_layout *layout)
{
    weir_layout_nest *nest = &layout->form.nest;
    const uint8_t flags = weiri_read_u8(r);
    const bool listed = (flags & FLAG_LIST) != 0;
    int64_t extent = 0;
    layout->resized = (flags & FLAG_RESIZED) != 0;
    if (layout->resized) {
        layout->bounds.lb = (int64_t)weiri_read_u64(r);
        layout->bounds.ub = (int64_t)weiri_read_u64(r);
    }
    if (flags > (FLAG_RESIZED | FLAG_LIST) || !in_range(layout->bounds.lb) || !in_range(layout->bounds.ub) ||
        !weiri_layout_add(layout->bounds.ub, -layout->bounds.lb, &extent)) {
        return corrupt("wrong bounds");
    }
    nest->offset = (int64_t)weiri_read_u64(r);
    weir_status status = read_nest(r, nest, listed);
    layout->true_bounds.ub = (int64_t)nest->run;
    if (status == WEIR_OK && listed) {
        status = read_list(r, &layout->true_bounds, &layout->form.list);
    }
    if (status != WEIR_OK) {
        return status;
    }
    if (listed && layout->form.list->size != nest->run) {
        return corrupt("a piece list of a wrong size");
    }
    if (nest->run == 0 ? nest->offset != 0 : !spread_nest(nest, nest->offset, &layout->true_bounds)) {
        return corrupt("a run at a wrong place");
    }
    layout->bounds = layout->resized ? layout->bounds : layout->true_bounds;
    return weiri_reader_done(r) ? WEIR_OK : corrupt("bytes are missing or left");
}

weir_status weir_layout_import(const void *bytes, size_t length, weir_layout **out)
{
    if (bytes == NULL || out == NULL) {
        return weiri_fail_null(import_call, bytes == NULL ? "bytes" : "out");
    }
    weiri_reader r = weiri_reader_init(bytes, length);
    if (weiri_read_u32(&r) != MAGIC) {
        return corrupt("they begin otherwise");
    }
    const uint16_t version = weiri_read_u16(&r);
    if (!r.failed && version != VERSION) {
        return weiri_fail(WEIR_ERR_VERSION, "%s: version %u of the bytes; this libweir has %u", import_call, version,
                          VERSION);
    }
    weir_layout *layout = (weir_layout *)weiri_alloc(1, sizeof *layout);
    if (layout == NULL) {
        return weiri_fail_nomem("layout");
    }
    const weir_status status = read_layout(&r, layout);
    if (status != WEIR_OK) {
        weir_layout_destroy(layout);
        return status;
    }
    *out = layout;
    return WEIR_OK;
}
