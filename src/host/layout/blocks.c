/* blocks.c - layouts: the constructors of blocks, which are indexed ones and struct.
 *
 * The blocks are measured first: bounds, size, and whether all numbers are in range. list.c then makes the form. */
#include <inttypes.h>
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/layout/layout.h"

/* Results of the measurement so far. */
typedef struct measured {
    weir_layout *layout; /* gets bounds and size */
    bool bounds_known;
    bool true_bounds_known;
    /* of the last block, with its offsets counted from its place: the next one is often equal */
    const weir_layout *of;
    uint64_t length;
    uint64_t size;
    weiri_layout_bounds bounds;
    weiri_layout_bounds true_bounds;
} measured;

static weir_status beyond(const weiri_layout_blocks *blocks, uint64_t i)
{
    return weiri_fail(WEIR_ERR_RANGE, "%s: block %" PRIu64 " reaches beyond 2^62 bytes", blocks->call, i);
}

static void join(weiri_layout_bounds *all, bool *known, const weiri_layout_bounds *more)
{
    all->lb = !*known || more->lb < all->lb ? more->lb : all->lb;
    all->ub = !*known || more->ub > all->ub ? more->ub : all->ub;
    *known = true;
}

/* Measures one block at place 0. */
static bool measure_items(measured *m, const weir_layout *of, uint64_t length)
{
    const int64_t extent = of->bounds.ub - of->bounds.lb;
    const uint64_t size = of->form.nest.size;
    m->of = of;
    m->length = length;
    m->bounds = of->bounds;
    m->true_bounds = of->true_bounds;
    return !__builtin_mul_overflow(length, size, &m->size) && m->size <= (uint64_t)WEIRI_LAYOUT_MOST &&
           weiri_layout_spread(&m->bounds, length, extent) &&
           (size == 0 || weiri_layout_spread(&m->true_bounds, length, extent));
}

static bool measure_block(measured *m, const weir_layout *of, uint64_t length, int64_t place)
{
    weir_layout *layout = m->layout;
    uint64_t *size = &layout->form.nest.size;
    if ((of != m->of || length != m->length) && !measure_items(m, of, length)) {
        return false;
    }
    weiri_layout_bounds bounds = m->bounds;
    weiri_layout_bounds true_bounds = m->true_bounds;
    if (!weiri_layout_move(&bounds, place, place) || !weiri_layout_move(&true_bounds, place, place)) {
        return false;
    }
    if (of->resized && !layout->resized) {
        layout->resized = true;
        m->bounds_known = false;
    }
    if (of->resized == layout->resized) {
        join(&layout->bounds, &m->bounds_known, &bounds);
    }
    if (m->size != 0) {
        join(&layout->true_bounds, &m->true_bounds_known, &true_bounds);
    }
    *size += m->size;
    return *size <= (uint64_t)WEIRI_LAYOUT_MOST;
}

/* The same for blocks of one `of`, quickly: the places of the first and last items give all bounds. False: something
 * may be out of range. */
static bool measure_places(const weiri_layout_blocks *blocks, weir_layout *layout)
{
    const weir_layout *of = blocks->of;
    const int64_t extent = of->bounds.ub - of->bounds.lb;
    int64_t lowest = INT64_MAX;
    int64_t highest = INT64_MIN;
    uint64_t items = 0;
    bool beyond = false;
    for (uint64_t i = 0; i < blocks->count; i++) {
        const uint64_t length = blocks->lengths != NULL ? blocks->lengths[i] : blocks->length;
        int64_t place;
        int64_t last;
        if (length == 0) {
            continue;
        }
        beyond |= __builtin_mul_overflow(blocks->places[i], blocks->scale, &place);
        beyond |= __builtin_mul_overflow(length - 1, extent, &last);
        beyond |= __builtin_add_overflow(last, place, &last);
        beyond |= __builtin_add_overflow(items, length, &items);
        lowest = place < lowest ? place : lowest;
        lowest = last < lowest ? last : lowest;
        highest = place > highest ? place : highest;
        highest = last > highest ? last : highest;
    }
    uint64_t *size = &layout->form.nest.size;
    if (beyond || items == 0 || __builtin_mul_overflow(items, of->form.nest.size, size) ||
        *size > (uint64_t)WEIRI_LAYOUT_MOST || lowest < -WEIRI_LAYOUT_MOST || highest > WEIRI_LAYOUT_MOST) {
        return false;
    }
    layout->resized = of->resized;
    layout->bounds = of->bounds;
    layout->true_bounds = of->true_bounds;
    return weiri_layout_move(&layout->bounds, lowest, highest) &&
           (*size == 0 || weiri_layout_move(&layout->true_bounds, lowest, highest));
}

/* Sets bounds and form.nest.size of the layout. */
static weir_status measure(const weiri_layout_blocks *blocks, weir_layout *layout)
{
    measured m;
    if (blocks->of != NULL && weiri_layout_has_bounds(blocks->of) && measure_places(blocks, layout)) {
        return WEIR_OK;
    }
    memset(layout, 0, sizeof *layout);
    memset(&m, 0, sizeof m);
    m.layout = layout;
    for (uint64_t i = 0; i < blocks->count; i++) {
        const weir_layout *of = blocks->ofs != NULL ? blocks->ofs[i] : blocks->of;
        const uint64_t length = blocks->lengths != NULL ? blocks->lengths[i] : blocks->length;
        int64_t place;
        if (of == NULL) {
            return weiri_fail(WEIR_ERR_INVALID, "%s: of[%" PRIu64 "] is NULL", blocks->call, i);
        }
        if (length == 0 || !weiri_layout_has_bounds(of)) {
            continue;
        }
        if (!weiri_layout_scale(blocks->places[i], blocks->scale, &place) || !measure_block(&m, of, length, place)) {
            return beyond(blocks, i);
        }
    }
    int64_t extent;
    const bool fits = weiri_layout_add(layout->bounds.ub, -layout->bounds.lb, &extent) &&
                      weiri_layout_add(layout->true_bounds.ub, -layout->true_bounds.lb, &extent);
    return fits ? WEIR_OK : weiri_fail(WEIR_ERR_RANGE, "%s: the blocks are more than 2^62 bytes apart", blocks->call);
}

static weir_status create_blocks(const weiri_layout_blocks *blocks, weir_layout **out)
{
    weir_layout *layout = (weir_layout *)weiri_alloc(1, sizeof *layout);
    if (layout == NULL) {
        return weiri_fail_nomem("layout");
    }
    weir_status status = measure(blocks, layout);
    if (status == WEIR_OK && layout->form.nest.size != 0) {
        status = weiri_layout_form_of_blocks(blocks, &layout->form);
    }
    if (status != WEIR_OK) {
        weir_layout_destroy(layout);
        return status;
    }
    *out = layout;
    return WEIR_OK;
}

/* The name of the first missing argument; NULL if all are there. */
static const char *missing(const weiri_layout_blocks *blocks, const weir_layout *of, bool with_lengths,
                           const char *places, weir_layout **out)
{
    if (of == NULL || out == NULL) {
        return of == NULL ? "of" : "out";
    }
    if (blocks->count != 0 && with_lengths && blocks->lengths == NULL) {
        return "lengths";
    }
    return blocks->count != 0 && blocks->places == NULL ? places : NULL;
}

/* The four indexed constructors. `bytes`: places are in bytes. */
static weir_status create_indexed(weiri_layout_blocks *blocks, const weir_layout *of, bool with_lengths, bool bytes,
                                  weir_layout **out)
{
    const char *argument = missing(blocks, of, with_lengths, bytes ? "places_bytes" : "places", out);
    if (argument != NULL) {
        return weiri_fail_null(blocks->call, argument);
    }
    blocks->of = of;
    blocks->scale = bytes ? 1 : of->bounds.ub - of->bounds.lb;
    return create_blocks(blocks, out);
}

weir_status weir_layout_create_indexed(uint64_t count, const uint64_t *lengths, const int64_t *places,
                                       const weir_layout *of, weir_layout **out)
{
    weiri_layout_blocks blocks = {
        .call = "weir_layout_create_indexed", .count = count, .lengths = lengths, .places = places
    };
    return create_indexed(&blocks, of, true, false, out);
}

weir_status weir_layout_create_hindexed(uint64_t count, const uint64_t *lengths, const int64_t *places_bytes,
                                        const weir_layout *of, weir_layout **out)
{
    weiri_layout_blocks blocks = {
        .call = "weir_layout_create_hindexed", .count = count, .lengths = lengths, .places = places_bytes
    };
    return create_indexed(&blocks, of, true, true, out);
}

weir_status weir_layout_create_indexed_block(uint64_t count, uint64_t length, const int64_t *places,
                                             const weir_layout *of, weir_layout **out)
{
    weiri_layout_blocks blocks = {
        .call = "weir_layout_create_indexed_block", .count = count, .length = length, .places = places
    };
    return create_indexed(&blocks, of, false, false, out);
}

weir_status weir_layout_create_hindexed_block(uint64_t count, uint64_t length, const int64_t *places_bytes,
                                              const weir_layout *of, weir_layout **out)
{
    weiri_layout_blocks blocks = {
        .call = "weir_layout_create_hindexed_block", .count = count, .length = length, .places = places_bytes
    };
    return create_indexed(&blocks, of, false, true, out);
}

weir_status weir_layout_create_struct(uint64_t count, const uint64_t *lengths, const int64_t *places_bytes,
                                      const weir_layout *const *of, weir_layout **out)
{
    const weiri_layout_blocks blocks = { .call = "weir_layout_create_struct",
                                         .count = count,
                                         .lengths = lengths,
                                         .places = places_bytes,
                                         .ofs = of,
                                         .scale = 1 };
    if (out == NULL) {
        return weiri_fail_null(blocks.call, "out");
    }
    if (count != 0 && (lengths == NULL || places_bytes == NULL || of == NULL)) {
        return weiri_fail_null(blocks.call, lengths == NULL ? "lengths" : places_bytes == NULL ? "places_bytes" : "of");
    }
    return create_blocks(&blocks, out);
}
