/* list.c - the canonical form of blocks: dims if their places are regular, otherwise a piece list.
 *
 * Equal blocks at regular places become dims at once, without memory. All other blocks become pieces one after the
 * other. Empty ones are dropped, and a piece that continues the one before it is joined to it. If the pieces are equal
 * and their places regular, the result is a nest after all. Otherwise it is the list.
 *
 * A piece takes 16 bytes if all pieces are runs, otherwise 20 and a table of the distinct nests. */
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/layout/layout.h"

/* A list of regular places has at most so many dims: each has two steps and more. */
#define DIMS_MOST 64u

typedef struct places_dims {
    uint32_t count;
    weir_layout_dim at[DIMS_MOST]; /* the innermost first */
} places_dims;

/* ---- regular places -------------------------------------------------------------------------------------- */

/* An array of structs that have a place, in units of `scale` bytes. */
typedef struct place_array {
    const char *at; /* the first place */
    size_t bytes;   /* from one to the next */
    int64_t scale;
} place_array;

static inline int64_t place_in(const place_array *places, uint64_t i)
{
    return *(const int64_t *)(const void *)(places->at + i * places->bytes) * places->scale;
}

/* Whether places 0 to count - 1 are a loop nest, and which. In a nest, the innermost dim is the longest arithmetic
 * beginning, and all further steps of this dim repeat it; the same holds for the places at which the dim begins. */
static bool find_dims(const place_array *places, uint64_t count, places_dims *out)
{
    uint64_t step = 1;
    out->count = 0;
    while (step < count) {
        const uint64_t rest = count / step;
        int64_t last = place_in(places, step);
        const int64_t stride = last - place_in(places, 0);
        uint64_t steps = 2;
        while (steps < rest && place_in(places, steps * step) - last == stride) {
            last += stride;
            steps++;
        }
        if (rest % steps != 0) {
            return false;
        }
        for (uint64_t i = steps; i < rest; i += steps) {
            last = place_in(places, i * step);
            for (uint64_t j = 1; j < steps; j++) {
                last += stride;
                if (place_in(places, (i + j) * step) != last) {
                    return false;
                }
            }
        }
        out->at[out->count++] = (weir_layout_dim){ .count = steps, .stride = stride };
        step *= steps;
    }
    return true;
}

static weir_status repeat_dims(const char *call, weiri_layout_form *form, const places_dims *dims)
{
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < dims->count && status == WEIR_OK; i++) {
        status = weiri_layout_form_repeat(call, form, dims->at[i].count, dims->at[i].stride);
    }
    return status;
}

/* ---- a list that grows ----------------------------------------------------------------------------------- */

/* The last piece is kept back until the next one is known, which may continue it. */
typedef struct builder {
    const char *call;
    weiri_layout_list *list;
    uint64_t room; /* pieces for which there is memory */
    int64_t first; /* place of the first piece */
    bool waiting;  /* a piece is kept back: a nest, or if its dims are 0 a run */
    int64_t place;
    weir_layout_nest nest;
    uint32_t nest_room;
    uint32_t *slots; /* hash table of nests: index + 1; 0: free */
    uint32_t slot_count;
} builder;

static weir_status begin_list(builder *b, const char *call, uint64_t room)
{
    memset(b, 0, sizeof *b);
    b->call = call;
    b->room = room;
    if (room > WEIR_LAYOUT_PIECES) {
        return weiri_fail(WEIR_ERR_LIMIT, "%s: the layout has more than 2^31 pieces", call);
    }
    b->list = (weiri_layout_list *)weiri_alloc(1, sizeof *b->list);
    if (b->list == NULL) {
        return weiri_fail_nomem("layout: piece list");
    }
    weiri_refcount_init(&b->list->refs);
    b->list->pieces = (weir_layout_piece *)weiri_alloc(room + 1, sizeof *b->list->pieces);
    return b->list->pieces != NULL ? WEIR_OK : weiri_fail_nomem("layout: piece list");
}

static void drop_list(builder *b)
{
    weiri_layout_list_release(b->list);
    weiri_free(b->slots);
    b->list = NULL;
    b->slots = NULL;
}

/* A hash of what weiri_layout_nest_same compares. */
static uint64_t hash_of(const weir_layout_nest *nest)
{
    uint64_t hash = nest->run;
    for (uint32_t i = 0; i < nest->dims; i++) {
        hash = (hash ^ nest->dim[i].count) * 0x9e3779b97f4a7c15u;
        hash = ((hash >> 29) ^ hash ^ (uint64_t)nest->dim[i].stride) * 0xbf58476d1ce4e5b9u;
    }
    hash *= 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 32);
}

static void put_slot(builder *b, uint32_t index)
{
    uint32_t at = (uint32_t)hash_of(&b->list->nests[index]) & (b->slot_count - 1);
    while (b->slots[at] != 0) {
        at = (at + 1) & (b->slot_count - 1);
    }
    b->slots[at] = index + 1;
}

/* Makes room for one more nest. The hash table is at most half full. */
static weir_status grow_nests(builder *b)
{
    weiri_layout_list *list = b->list;
    if (list->nest_count < b->nest_room) {
        return WEIR_OK;
    }
    const uint32_t room = b->nest_room == 0 ? 8 : 2 * b->nest_room;
    weir_layout_nest *nests = (weir_layout_nest *)weiri_realloc(list->nests, room * sizeof *nests);
    if (nests == NULL) {
        return weiri_fail_nomem("layout: nests of a piece list");
    }
    list->nests = nests;
    uint32_t *slots = (uint32_t *)weiri_alloc(2 * (size_t)room, sizeof *slots);
    if (slots == NULL) {
        return weiri_fail_nomem("layout: nests of a piece list");
    }
    weiri_free(b->slots);
    b->slots = slots;
    b->slot_count = 2 * room;
    b->nest_room = room;
    for (uint32_t i = 0; i < list->nest_count; i++) {
        put_slot(b, i);
    }
    return WEIR_OK;
}

/* Sets the nest of a piece to an equal one of the table, which gets it if it has none. */
static weir_status set_nest(builder *b, uint32_t piece, const weir_layout_nest *nest)
{
    weiri_layout_list *list = b->list;
    if (piece > 0 && weiri_layout_nest_same(&list->nests[list->nest_of[piece - 1]], nest)) {
        list->nest_of[piece] = list->nest_of[piece - 1];
        return WEIR_OK;
    }
    const weir_status status = grow_nests(b);
    if (status != WEIR_OK) {
        return status;
    }
    uint32_t at = (uint32_t)hash_of(nest) & (b->slot_count - 1);
    while (b->slots[at] != 0 && !weiri_layout_nest_same(&list->nests[b->slots[at] - 1], nest)) {
        at = (at + 1) & (b->slot_count - 1);
    }
    if (b->slots[at] == 0) {
        weir_layout_nest *added = &list->nests[list->nest_count++];
        *added = *nest;
        added->offset = 0;
        b->slots[at] = list->nest_count;
    }
    list->nest_of[piece] = b->slots[at] - 1;
    return WEIR_OK;
}

/* The first piece that is not a run: from here on each piece has a nest. */
static weir_status begin_nests(builder *b)
{
    weiri_layout_list *list = b->list;
    list->nest_of = (uint32_t *)weiri_alloc(b->room, sizeof *list->nest_of);
    if (list->nest_of == NULL) {
        return weiri_fail_nomem("layout: piece list");
    }
    for (uint32_t i = 0; i < list->count; i++) {
        const uint64_t end = i + 1 < list->count ? list->pieces[i + 1].prefix : list->size;
        const weiri_layout_form run = weiri_layout_form_of_run(end - list->pieces[i].prefix);
        const weir_status status = set_nest(b, i, &run.nest);
        if (status != WEIR_OK) {
            return status;
        }
    }
    return WEIR_OK;
}

static weir_status add_waiting(builder *b)
{
    weiri_layout_list *list = b->list;
    weir_status status = WEIR_OK;
    if (!b->waiting) {
        return WEIR_OK;
    }
    if (b->nest.dims != 0 && list->nest_of == NULL) {
        status = begin_nests(b);
    }
    if (status == WEIR_OK && list->nest_of != NULL) {
        status = set_nest(b, list->count, &b->nest);
    }
    if (status != WEIR_OK) {
        return status;
    }
    b->first = list->count == 0 ? b->place : b->first;
    list->pieces[list->count++] = (weir_layout_piece){ .place = b->place - b->first, .prefix = list->size };
    list->size += b->nest.size;
    list->runs += b->nest.size / b->nest.run;
    b->waiting = false;
    return WEIR_OK;
}

/* Whether dims `from_a` of a and `from_b` of b to the innermost are equal. */
static bool same_inside(const weir_layout_nest *a, uint32_t from_a, const weir_layout_nest *b, uint32_t from_b)
{
    return a->run == b->run && a->dims - from_a == b->dims - from_b &&
           memcmp(&a->dim[from_a], &b->dim[from_b], (a->dims - from_a) * sizeof a->dim[0]) == 0;
}

/* Joins the nest to the piece that is kept back if it is the next step, or the next steps, of that piece's outermost
 * dim, or if that piece is the step in front of the nest's outermost dim. */
static bool join_nest(builder *b, int64_t distance, const weir_layout_nest *nest)
{
    weir_layout_nest *last = &b->nest;
    const uint64_t steps = last->dims != 0 ? last->dim[0].count : 0;
    const bool follows = last->dims != 0 && distance == last->dim[0].stride * (int64_t)steps;
    if (last->dims == 0 && nest->dims == 0 && distance == (int64_t)last->run) {
        last->run += nest->run;
    } else if (follows && nest->dims != 0 && nest->dim[0].stride == last->dim[0].stride &&
               same_inside(last, 1, nest, 1)) {
        last->dim[0].count += nest->dim[0].count;
    } else if (follows && same_inside(last, 1, nest, 0)) {
        last->dim[0].count++;
    } else if (nest->dims != 0 && distance == nest->dim[0].stride && same_inside(last, 0, nest, 1)) {
        const uint64_t size = last->size;
        *last = *nest;
        last->dim[0].count++;
        last->size = size;
    } else {
        return false;
    }
    last->size += nest->size;
    return true;
}

/* Joins earlier pieces to the one that is kept back if they are the steps in front of its outermost dim: two pieces
 * alone are no dim, and the third one shows it. */
static void join_earlier(builder *b)
{
    weiri_layout_list *list = b->list;
    while (list->count != 0 && b->nest.dims != 0) {
        const weir_layout_piece *earlier = &list->pieces[list->count - 1];
        weir_layout_nest nest = weiri_layout_form_of_run(list->size - earlier->prefix).nest;
        if (list->nest_of != NULL) {
            nest = list->nests[list->nest_of[list->count - 1]];
        }
        const int64_t distance = b->place - (earlier->place + b->first);
        if (distance != b->nest.dim[0].stride || !same_inside(&nest, 0, &b->nest, 1)) {
            return;
        }
        b->place -= distance;
        b->nest.dim[0].count++;
        b->nest.size += nest.size;
        list->size -= nest.size;
        list->runs -= nest.size / nest.run;
        list->count--;
    }
}

static weir_status add_nest(builder *b, int64_t place, const weir_layout_nest *nest)
{
    if (b->waiting && join_nest(b, place - b->place, nest)) {
        join_earlier(b);
        return WEIR_OK;
    }
    const weir_status status = add_waiting(b);
    b->waiting = true;
    b->place = place;
    b->nest = *nest;
    return status;
}

static weir_status add_run(builder *b, int64_t place, uint64_t bytes)
{
    const weiri_layout_form run = weiri_layout_form_of_run(bytes);
    return add_nest(b, place, &run.nest);
}

static weir_status add_list(builder *b, int64_t place, const weiri_layout_list *list)
{
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < list->count && status == WEIR_OK; i++) {
        const weir_layout_piece *piece = &list->pieces[i];
        status = list->nest_of != NULL ? add_nest(b, place + piece->place, &list->nests[list->nest_of[i]])
                                       : add_run(b, place + piece->place, list->pieces[i + 1].prefix - piece->prefix);
    }
    return status;
}

/* The form with its offset counted from `place`. */
static weir_status add_form(builder *b, int64_t place, const weiri_layout_form *form)
{
    const weir_layout_nest *nest = &form->nest;
    weir_status status = WEIR_OK;
    uint64_t into;
    if (form->list == NULL) {
        return add_nest(b, place + nest->offset, nest);
    }
    for (uint64_t at = 0; at < nest->size && status == WEIR_OK; at += nest->run) {
        status = add_list(b, place + weir_layout_nest_at(nest, at, &into), form->list);
    }
    return status;
}

/* Pieces that the form becomes, more than WEIR_LAYOUT_PIECES counted as one more than these. */
static uint64_t pieces_of(const weiri_layout_form *form)
{
    uint64_t pieces = 1;
    if (form->list != NULL && __builtin_mul_overflow(form->nest.size / form->nest.run, form->list->count, &pieces)) {
        return WEIR_LAYOUT_PIECES + 1;
    }
    return pieces <= WEIR_LAYOUT_PIECES ? pieces : WEIR_LAYOUT_PIECES + 1;
}

static bool pieces_are_equal(const weiri_layout_list *list)
{
    const uint64_t run = list->pieces[1].prefix;
    bool equal = true;
    for (uint32_t i = 1; i < list->count && equal; i++) {
        equal = list->nest_of != NULL ? list->nest_of[i] == list->nest_of[0]
                                      : list->pieces[i + 1].prefix - list->pieces[i].prefix == run;
    }
    return equal;
}

/* Gives memory back that joined pieces did not need. */
static void trim(builder *b)
{
    weiri_layout_list *list = b->list;
    void *smaller = weiri_realloc(list->pieces, ((size_t)list->count + 1) * sizeof *list->pieces);
    list->pieces = smaller != NULL ? (weir_layout_piece *)smaller : list->pieces;
    if (list->nest_of != NULL) {
        smaller = weiri_realloc(list->nest_of, (size_t)list->count * sizeof *list->nest_of);
        list->nest_of = smaller != NULL ? (uint32_t *)smaller : list->nest_of;
        smaller = weiri_realloc(list->nests, (size_t)list->nest_count * sizeof *list->nests);
        list->nests = smaller != NULL ? (weir_layout_nest *)smaller : list->nests;
    }
}

/* Ends the list. The form is a nest if the pieces are regular. */
static weir_status end_list(builder *b, weiri_layout_form *out)
{
    weiri_layout_list *list = b->list;
    const place_array places = { .at = (const char *)&list->pieces[0].place,
                                 .bytes = sizeof *list->pieces,
                                 .scale = 1 };
    places_dims dims;
    const weir_status status = add_waiting(b);
    if (status != WEIR_OK) {
        drop_list(b);
        return status;
    }
    list->pieces[list->count].prefix = list->size;
    weiri_layout_form form = weiri_layout_form_of_run(list->size);
    form.nest.offset = b->first;
    if (pieces_are_equal(list) && find_dims(&places, list->count, &dims)) {
        if (list->nest_of != NULL) {
            form.nest = list->nests[list->nest_of[0]];
            form.nest.offset = b->first;
        } else {
            form.nest.run = list->pieces[1].prefix;
            form.nest.size = form.nest.run;
        }
        drop_list(b);
        const weir_status repeated = repeat_dims(b->call, &form, &dims);
        if (repeated != WEIR_OK) {
            weiri_layout_form_release(&form);
            return repeated;
        }
    } else {
        trim(b);
        form.list = list;
        b->list = NULL;
        drop_list(b);
    }
    *out = form;
    return WEIR_OK;
}

void weiri_layout_list_release(weiri_layout_list *list)
{
    if (list != NULL && weiri_refcount_put(&list->refs)) {
        weiri_layout_copies_release(list);
        weiri_free(list->pieces);
        weiri_free(list->nest_of);
        weiri_free(list->nests);
        weiri_free(list);
    }
}

weir_status weiri_layout_list_fold(const char *call, weiri_layout_form *form)
{
    weiri_layout_form inner = *form;
    builder b;
    /* The part that becomes the list: the whole nest, or if it has a list already, that list in the innermost dim. */
    const uint32_t kept = form->list == NULL ? 0 : form->nest.dims - 1;
    inner.nest.dims = form->nest.dims - kept;
    inner.nest.offset = 0;
    memmove(&inner.nest.dim[0], &form->nest.dim[kept], inner.nest.dims * sizeof inner.nest.dim[0]);
    inner.nest.size = inner.nest.run;
    for (uint32_t i = 0; i < inner.nest.dims; i++) {
        inner.nest.size *= inner.nest.dim[i].count;
    }
    weir_status status = begin_list(&b, call, pieces_of(&inner));
    if (status == WEIR_OK) {
        status = add_form(&b, 0, &inner);
    }
    if (status == WEIR_OK) {
        status = add_waiting(&b);
    }
    if (status != WEIR_OK) {
        drop_list(&b);
        return status;
    }
    b.list->pieces[b.list->count].prefix = b.list->size;
    trim(&b);
    weiri_layout_list_release(form->list);
    form->list = b.list;
    form->nest.dims = kept;
    form->nest.run = b.list->size;
    b.list = NULL;
    drop_list(&b);
    return WEIR_OK;
}

/* ---- blocks ----------------------------------------------------------------------------------------------- */

static int64_t place_of_block(const weiri_layout_blocks *blocks, uint64_t i)
{
    return blocks->places[i] * blocks->scale;
}

static const weir_layout *layout_of(const weiri_layout_blocks *blocks, uint64_t i)
{
    return blocks->ofs != NULL ? blocks->ofs[i] : blocks->of;
}

static uint64_t length_of(const weiri_layout_blocks *blocks, uint64_t i)
{
    return blocks->lengths != NULL ? blocks->lengths[i] : blocks->length;
}

/* Whether all blocks have the same items. */
static bool blocks_are_equal(const weiri_layout_blocks *blocks)
{
    bool equal = true;
    for (uint64_t i = 1; i < blocks->count && equal && blocks->lengths != NULL; i++) {
        equal = blocks->lengths[i] == blocks->lengths[0];
    }
    for (uint64_t i = 1; i < blocks->count && equal && blocks->ofs != NULL; i++) {
        equal = blocks->ofs[i] == blocks->ofs[0];
    }
    return equal;
}

/* The form of block i, with its offset counted from the block's place. *form is that of the block before, or zero. */
static weir_status form_of_block(const weiri_layout_blocks *blocks, uint64_t i, weiri_layout_form *form)
{
    const weir_layout *of = layout_of(blocks, i);
    const uint64_t length = length_of(blocks, i);
    if (form->nest.size != 0 && length_of(blocks, i - 1) == length && layout_of(blocks, i - 1) == of) {
        return WEIR_OK;
    }
    weiri_layout_form_release(form);
    *form = weiri_layout_form_copy(&of->form);
    return weiri_layout_form_repeat(blocks->call, form, length, of->bounds.ub - of->bounds.lb);
}

/* Whether items of the layout are one run. */
static bool is_contiguous(const weir_layout *of)
{
    return of->form.nest.dims == 0 && of->form.list == NULL &&
           of->bounds.ub - of->bounds.lb == (int64_t)of->form.nest.run;
}

/* The bytes of block i if it is a run; otherwise 0. */
static uint64_t run_of_block(const weiri_layout_blocks *blocks, uint64_t i)
{
    const weir_layout *of = layout_of(blocks, i);
    return is_contiguous(of) ? length_of(blocks, i) * of->form.nest.run : 0;
}

static weir_status count_pieces(const weiri_layout_blocks *blocks, uint64_t *pieces)
{
    weiri_layout_form form = weiri_layout_form_of_run(0);
    weir_status status = WEIR_OK;
    *pieces = 0;
    for (uint64_t i = 0; i < blocks->count && *pieces <= WEIR_LAYOUT_PIECES && status == WEIR_OK; i++) {
        const weiri_layout_form *of = &layout_of(blocks, i)->form;
        if (of->list == NULL && of->nest.dims < WEIR_LAYOUT_DIMS) {
            *pieces += 1;
        } else {
            status = form_of_block(blocks, i, &form);
            *pieces += status == WEIR_OK && form.nest.size != 0 ? pieces_of(&form) : 0;
        }
    }
    weiri_layout_form_release(&form);
    return status;
}

/* Blocks of contiguous items, as most are: each block is a run. */
static void add_runs(builder *b, const weiri_layout_blocks *blocks)
{
    weiri_layout_list *list = b->list;
    const weir_layout_nest *nest = &blocks->of->form.nest;
    int64_t end = 0;
    for (uint64_t i = 0; i < blocks->count; i++) {
        const uint64_t bytes = length_of(blocks, i) * nest->run;
        if (bytes == 0) {
            continue;
        }
        const int64_t place = place_of_block(blocks, i) + nest->offset;
        if (list->count == 0 || place != end) {
            b->first = list->count == 0 ? place : b->first;
            list->pieces[list->count++] = (weir_layout_piece){ .place = place - b->first, .prefix = list->size };
        }
        end = place + (int64_t)bytes;
        list->size += bytes;
    }
    list->runs = list->count;
}

static weir_status add_blocks(builder *b, const weiri_layout_blocks *blocks)
{
    weiri_layout_form form = weiri_layout_form_of_run(0);
    weir_status status = WEIR_OK;
    for (uint64_t i = 0; i < blocks->count && status == WEIR_OK; i++) {
        const uint64_t run = run_of_block(blocks, i);
        if (run != 0) {
            weiri_layout_form_release(&form);
            status = add_run(b, place_of_block(blocks, i) + layout_of(blocks, i)->form.nest.offset, run);
        } else {
            status = form_of_block(blocks, i, &form);
            if (status == WEIR_OK && form.nest.size != 0) {
                status = add_form(b, place_of_block(blocks, i), &form);
            }
        }
    }
    weiri_layout_form_release(&form);
    return status;
}

/* The form of equal blocks at regular places. */
static weir_status form_of_dims(const weiri_layout_blocks *blocks, const places_dims *dims, weiri_layout_form *out)
{
    weiri_layout_form form = weiri_layout_form_of_run(0);
    weir_status status = form_of_block(blocks, 0, &form);
    form.nest.offset += place_of_block(blocks, 0);
    if (status == WEIR_OK) {
        status = repeat_dims(blocks->call, &form, dims);
    }
    if (status != WEIR_OK) {
        weiri_layout_form_release(&form);
        return status;
    }
    *out = form;
    return WEIR_OK;
}

weir_status weiri_layout_form_of_blocks(const weiri_layout_blocks *blocks, weiri_layout_form *out)
{
    const place_array places = { .at = (const char *)blocks->places,
                                 .bytes = sizeof *blocks->places,
                                 .scale = blocks->scale };
    uint64_t pieces;
    builder b;
    places_dims dims;
    if (blocks_are_equal(blocks) && find_dims(&places, blocks->count, &dims)) {
        return form_of_dims(blocks, &dims, out);
    }
    weir_status status = count_pieces(blocks, &pieces);
    if (status != WEIR_OK) {
        return status;
    }
    status = begin_list(&b, blocks->call, pieces);
    if (status == WEIR_OK && blocks->ofs == NULL && is_contiguous(blocks->of)) {
        add_runs(&b, blocks);
    } else if (status == WEIR_OK) {
        status = add_blocks(&b, blocks);
    }
    if (status != WEIR_OK) {
        drop_list(&b);
        return status;
    }
    return end_list(&b, out);
}
