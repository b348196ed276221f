/* equal.c - whether two layouts are the same bytes in the same order.
 *
 * Two nests are the same bytes only if they are equal (form.c). With a piece list there are several forms of the same
 * bytes. Equal outermost dims and equal lists are then compared as they are, and otherwise the runs of both, one after
 * the other. Pieces that are equal nests at the same place are compared as a whole. */
#include <string.h>

#include "src/host/layout/layout.h"

/* The steps of a nest, in packed order. */
typedef struct nest_loop {
    const weir_layout_nest *nest;
    uint64_t index[WEIR_LAYOUT_DIMS + 1];
    int64_t place; /* of this step */
} nest_loop;

/* The runs of a layout, in packed order. */
typedef struct run_walk {
    const weiri_layout_list *list; /* NULL: the layout is one piece */
    nest_loop outer;               /* of the layout's nest, if it has a list */
    uint32_t piece;
    weir_layout_nest run; /* of a piece that is a run */
    nest_loop inner;      /* of the piece */
    bool whole;           /* no byte of the piece has been passed */
    bool ended;
    int64_t place; /* the next byte, */
    uint64_t left; /* and how many follow in its run */
} run_walk;

static void begin_loop(nest_loop *l, const weir_layout_nest *nest, int64_t place)
{
    l->nest = nest;
    l->place = place;
    memset(l->index, 0, sizeof l->index);
}

/* False if there is no further step. */
static bool next_step(nest_loop *l)
{
    for (uint32_t i = l->nest->dims; i-- > 0;) {
        const weir_layout_dim *dim = &l->nest->dim[i];
        l->index[i]++;
        if (l->index[i] < dim->count) {
            l->place += dim->stride;
            return true;
        }
        l->place -= (int64_t)(dim->count - 1) * dim->stride;
        l->index[i] = 0;
    }
    return false;
}

static void begin_piece(run_walk *w)
{
    const weiri_layout_list *list = w->list;
    if (list != NULL) {
        const weir_layout_piece *piece = &list->pieces[w->piece];
        const weir_layout_nest *nest = &w->run;
        w->run.run = piece[1].prefix - piece[0].prefix;
        if (list->nest_of != NULL) {
            nest = &list->nests[list->nest_of[w->piece]];
        }
        begin_loop(&w->inner, nest, w->outer.place + piece->place);
    }
    w->whole = true;
    w->place = w->inner.place;
    w->left = w->inner.nest->run;
}

static void begin_walk(run_walk *w, const weiri_layout_form *form)
{
    memset(w, 0, sizeof *w);
    w->list = form->list;
    begin_loop(form->list != NULL ? &w->outer : &w->inner, &form->nest, form->nest.offset);
    begin_piece(w);
}

static void next_piece(run_walk *w)
{
    w->piece++;
    if (w->list == NULL || w->piece == w->list->count) {
        w->piece = 0;
        w->ended = w->list == NULL || !next_step(&w->outer);
    }
    if (!w->ended) {
        begin_piece(w);
    }
}

static void pass(run_walk *w, uint64_t bytes)
{
    w->whole = false;
    w->place += (int64_t)bytes;
    w->left -= bytes;
    if (w->left != 0) {
        return;
    }
    if (next_step(&w->inner)) {
        w->place = w->inner.place;
        w->left = w->inner.nest->run;
    } else {
        next_piece(w);
    }
}

static bool runs_are_equal(const weiri_layout_form *a, const weiri_layout_form *b)
{
    run_walk wa;
    run_walk wb;
    begin_walk(&wa, a);
    begin_walk(&wb, b);
    while (!wa.ended && !wb.ended) {
        if (wa.place != wb.place) {
            return false;
        }
        if (wa.whole && wb.whole && weiri_layout_nest_same(wa.inner.nest, wb.inner.nest)) {
            next_piece(&wa);
            next_piece(&wb);
            continue;
        }
        const uint64_t bytes = wa.left < wb.left ? wa.left : wb.left;
        pass(&wa, bytes);
        pass(&wb, bytes);
    }
    return true; /* the sizes are equal, so both have ended */
}

static bool lists_are_equal(const weiri_layout_list *a, const weiri_layout_list *b)
{
    if (a == b) {
        return true;
    }
    if (a->count != b->count || a->nest_count != b->nest_count ||
        memcmp(a->pieces, b->pieces, ((size_t)a->count + 1) * sizeof *a->pieces) != 0) {
        return false;
    }
    bool equal = a->nest_count == 0 || memcmp(a->nest_of, b->nest_of, (size_t)a->count * sizeof *a->nest_of) == 0;
    for (uint32_t i = 0; i < a->nest_count && equal; i++) {
        equal = weiri_layout_nest_same(&a->nests[i], &b->nests[i]);
    }
    return equal;
}

static void drop_outermost(weir_layout_nest *nest)
{
    nest->dims--;
    nest->size /= nest->dim[0].count;
    memmove(&nest->dim[0], &nest->dim[1], nest->dims * sizeof nest->dim[0]);
}

/* Outermost dims that both have decide nothing: the inner parts are equal, or the layouts are not. */
static void drop_common_dims(weir_layout_nest *a, weir_layout_nest *b)
{
    while (a->dims != 0 && b->dims != 0 && memcmp(&a->dim[0], &b->dim[0], sizeof a->dim[0]) == 0) {
        drop_outermost(a);
        drop_outermost(b);
    }
}

bool weir_layout_equal(const weir_layout *a, const weir_layout *b)
{
    if (a == NULL || b == NULL || a->form.nest.size != b->form.nest.size) {
        return false;
    }
    weiri_layout_form fa = a->form;
    weiri_layout_form fb = b->form;
    if (fa.nest.size == 0) {
        return true;
    }
    if (fa.nest.offset != fb.nest.offset) {
        return false;
    }
    if (fa.list == NULL && fb.list == NULL) {
        return weiri_layout_nest_same(&fa.nest, &fb.nest);
    }
    drop_common_dims(&fa.nest, &fb.nest);
    if (fa.list != NULL && fb.list != NULL && weiri_layout_nest_same(&fa.nest, &fb.nest) &&
        lists_are_equal(fa.list, fb.list)) {
        return true;
    }
    return runs_are_equal(&fa, &fb);
}
