/* form.c - canonical nests.
 *
 * A dim is put around a nest from the inside out. It merges with the outermost dim if its stride is that dim's count
 * times that dim's stride, and with the run if its stride is the run. A dim of count 1 is dropped: the offset of the
 * nest has its place already. Nests are never sorted, because the packed order is theirs. Of two nests made in this way
 * with the same bytes in the same order, both are equal: the run is the longest contiguous beginning, the innermost
 * dim the longest arithmetic beginning of the runs, and so on outwards. */
#include <string.h>

#include "src/host/base/error.h"
#include "src/host/layout/layout.h"

bool weiri_layout_add(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_add_overflow(a, b, out) && *out <= WEIRI_LAYOUT_MOST && *out >= -WEIRI_LAYOUT_MOST;
}

bool weiri_layout_multiply(uint64_t count, int64_t stride, int64_t *out)
{
    return !__builtin_mul_overflow(count, stride, out) && *out <= WEIRI_LAYOUT_MOST && *out >= -WEIRI_LAYOUT_MOST;
}

bool weiri_layout_scale(int64_t place, int64_t unit, int64_t *out)
{
    return !__builtin_mul_overflow(place, unit, out) && *out <= WEIRI_LAYOUT_MOST && *out >= -WEIRI_LAYOUT_MOST;
}

bool weiri_layout_move(weiri_layout_bounds *bounds, int64_t lb, int64_t ub)
{
    int64_t extent;
    return weiri_layout_add(bounds->lb, lb, &bounds->lb) && weiri_layout_add(bounds->ub, ub, &bounds->ub) &&
           weiri_layout_add(bounds->ub, -bounds->lb, &extent);
}

bool weiri_layout_spread(weiri_layout_bounds *bounds, uint64_t count, int64_t stride)
{
    int64_t span = 0;
    return (count < 2 || weiri_layout_multiply(count - 1, stride, &span)) &&
           weiri_layout_move(bounds, span < 0 ? span : 0, span > 0 ? span : 0);
}

weiri_layout_form weiri_layout_form_of_run(uint64_t bytes)
{
    weiri_layout_form form;
    memset(&form, 0, sizeof form);
    form.nest.run = bytes;
    form.nest.size = bytes;
    return form;
}

weiri_layout_form weiri_layout_form_copy(const weiri_layout_form *form)
{
    if (form->list != NULL) {
        weiri_refcount_get(&form->list->refs);
    }
    return *form;
}

void weiri_layout_form_release(weiri_layout_form *form)
{
    weiri_layout_list_release(form->list);
    memset(form, 0, sizeof *form);
}

bool weiri_layout_nest_same(const weir_layout_nest *a, const weir_layout_nest *b)
{
    return a->run == b->run && a->dims == b->dims && memcmp(a->dim, b->dim, a->dims * sizeof a->dim[0]) == 0;
}

/* Whether `count` times the nest at this stride is the nest with a longer outermost dim, or with a longer run. */
static bool merge(weir_layout_nest *nest, bool listed, uint64_t count, int64_t stride)
{
    int64_t whole;
    if (nest->dims != 0) {
        weir_layout_dim *outer = &nest->dim[0];
        if (!weiri_layout_multiply(outer->count, outer->stride, &whole) || whole != stride) {
            return false;
        }
        outer->count *= count; /* below the size, which is in range */
        return true;
    }
    if (listed || stride < 0 || (uint64_t)stride != nest->run) {
        return false;
    }
    nest->run *= count;
    return true;
}

bool weiri_layout_nest_repeat(weir_layout_nest *nest, bool listed, uint64_t count, int64_t stride, uint32_t room)
{
    if (count == 1) {
        return true;
    }
    if (!merge(nest, listed, count, stride)) {
        if (nest->dims == room) {
            return false;
        }
        memmove(&nest->dim[1], &nest->dim[0], nest->dims * sizeof nest->dim[0]);
        nest->dim[0] = (weir_layout_dim){ .count = count, .stride = stride };
        nest->dims++;
    }
    nest->size *= count;
    return true;
}

weir_status weiri_layout_form_repeat(const char *call, weiri_layout_form *form, uint64_t count, int64_t stride)
{
    weir_layout_nest *nest = &form->nest;
    uint64_t size;
    if (count == 0 || nest->size == 0) {
        weiri_layout_form_release(form);
        return WEIR_OK;
    }
    if (__builtin_mul_overflow(nest->size, count, &size) || size > (uint64_t)WEIRI_LAYOUT_MOST) {
        return weiri_fail(WEIR_ERR_RANGE, "%s: one item has more than 2^62 bytes", call);
    }
    while (!weiri_layout_nest_repeat(nest, form->list != NULL, count, stride, WEIR_LAYOUT_DIMS)) {
        const weir_status status = weiri_layout_list_fold(call, form);
        if (status != WEIR_OK) {
            return status;
        }
    }
    return WEIR_OK;
}
