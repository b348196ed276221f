/* layout.c - layouts: the constructors, their bounds, destroy and get_info.
 *
 * A create copies `of` and changes the copy step by step: repeat puts a dim around it, move adds to its offsets. The
 * bounds follow, and a step whose result leaves the range of numbers fails before the form is changed. */
#include "src/host/layout/layout.h"

#include <inttypes.h>
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"

/* ---- steps ----------------------------------------------------------------------------------------------- */

static weir_status beyond(const char *call)
{
    return weiri_fail(WEIR_ERR_RANGE, "%s: the layout reaches beyond 2^62 bytes", call);
}

static int64_t extent_of(const weir_layout *layout) { return layout->bounds.ub - layout->bounds.lb; }

bool weiri_layout_has_bounds(const weir_layout *layout) { return layout->resized || layout->form.nest.size != 0; }

static weir_status create_layout(const char *call, const weir_layout *of, weir_layout **out, weir_layout **made)
{
    if (of == NULL || out == NULL) {
        return weiri_fail_null(call, of == NULL ? "of" : "out");
    }
    weir_layout *layout = (weir_layout *)weiri_alloc(1, sizeof *layout);
    if (layout == NULL) {
        return weiri_fail_nomem("layout");
    }
    *layout = *of;
    layout->form = weiri_layout_form_copy(&of->form);
    *made = layout;
    return WEIR_OK;
}

/* Gives the layout to the caller, or destroys it if a step has failed. */
static weir_status finish(weir_status status, weir_layout *layout, weir_layout **out)
{
    if (status != WEIR_OK) {
        weir_layout_destroy(layout);
        return status;
    }
    *out = layout;
    return WEIR_OK;
}

/* Makes the layout `count` times itself, `stride` bytes apart. */
static weir_status repeat(const char *call, weir_layout *layout, uint64_t count, int64_t stride)
{
    if (count == 0) {
        weiri_layout_form_release(&layout->form);
        memset(layout, 0, sizeof *layout);
        return WEIR_OK;
    }
    if (!weiri_layout_has_bounds(layout)) {
        return WEIR_OK;
    }
    if (!weiri_layout_spread(&layout->bounds, count, stride) ||
        (layout->form.nest.size != 0 && !weiri_layout_spread(&layout->true_bounds, count, stride))) {
        return beyond(call);
    }
    return weiri_layout_form_repeat(call, &layout->form, count, stride);
}

/* Blocks of `length` items, each at a place in units of `unit` bytes. */
static weir_status repeat_blocks(const char *call, weir_layout *layout, uint64_t count, uint64_t length, int64_t stride,
                                 int64_t unit)
{
    int64_t bytes = 0;
    const weir_status status = repeat(call, layout, length, extent_of(layout));
    if (status != WEIR_OK) {
        return status;
    }
    return count < 2 || weiri_layout_scale(stride, unit, &bytes) ? repeat(call, layout, count, bytes) : beyond(call);
}

/* ---- constructors of dims -------------------------------------------------------------------------------- */

weir_status weir_layout_create_bytes(uint64_t bytes, weir_layout **out)
{
    static const char call[] = "weir_layout_create_bytes";
    if (out == NULL) {
        return weiri_fail_null(call, "out");
    }
    if (bytes > (uint64_t)WEIRI_LAYOUT_MOST) {
        return beyond(call);
    }
    weir_layout *layout = (weir_layout *)weiri_alloc(1, sizeof *layout);
    if (layout == NULL) {
        return weiri_fail_nomem("layout");
    }
    layout->form = weiri_layout_form_of_run(bytes);
    layout->bounds.ub = (int64_t)bytes;
    layout->true_bounds = layout->bounds;
    *out = layout;
    return WEIR_OK;
}

weir_status weir_layout_create_contiguous(uint64_t count, const weir_layout *of, weir_layout **out)
{
    static const char call[] = "weir_layout_create_contiguous";
    weir_layout *layout = NULL;
    const weir_status status = create_layout(call, of, out, &layout);
    return status != WEIR_OK ? status : finish(repeat(call, layout, count, extent_of(of)), layout, out);
}

weir_status weir_layout_create_dup(const weir_layout *of, weir_layout **out)
{
    weir_layout *layout = NULL;
    const weir_status status = create_layout("weir_layout_create_dup", of, out, &layout);
    return status != WEIR_OK ? status : finish(WEIR_OK, layout, out);
}

weir_status weir_layout_create_vector(uint64_t count, uint64_t length, int64_t stride, const weir_layout *of,
                                      weir_layout **out)
{
    static const char call[] = "weir_layout_create_vector";
    weir_layout *layout = NULL;
    const weir_status status = create_layout(call, of, out, &layout);
    return status != WEIR_OK ? status
                             : finish(repeat_blocks(call, layout, count, length, stride, extent_of(of)), layout, out);
}

weir_status weir_layout_create_hvector(uint64_t count, uint64_t length, int64_t stride_bytes, const weir_layout *of,
                                       weir_layout **out)
{
    static const char call[] = "weir_layout_create_hvector";
    weir_layout *layout = NULL;
    const weir_status status = create_layout(call, of, out, &layout);
    return status != WEIR_OK ? status
                             : finish(repeat_blocks(call, layout, count, length, stride_bytes, 1), layout, out);
}

/* Puts the dimensions around the layout, the fastest first, and moves it to the starts. */
static weir_status repeat_box(const char *call, weir_layout *layout, uint32_t dims, const uint64_t *sizes,
                              const uint64_t *parts, const uint64_t *starts, bool last_is_fastest)
{
    int64_t stride = extent_of(layout);
    int64_t offset = 0;
    for (uint32_t i = 0; i < dims; i++) {
        const uint32_t d = last_is_fastest ? dims - 1 - i : i;
        int64_t start;
        const weir_status status = repeat(call, layout, parts[d], stride);
        if (status != WEIR_OK) {
            return status;
        }
        if (!weiri_layout_multiply(starts[d], stride, &start) || !weiri_layout_add(offset, start, &offset) ||
            !weiri_layout_multiply(sizes[d], stride, &stride)) {
            return beyond(call);
        }
    }
    if (layout->form.nest.size != 0) {
        if (!weiri_layout_move(&layout->true_bounds, offset, offset)) {
            return beyond(call);
        }
        layout->form.nest.offset += offset; /* between the bounds */
    }
    layout->bounds = (weiri_layout_bounds){ .lb = 0, .ub = stride };
    layout->resized = true;
    return WEIR_OK;
}

weir_status weir_layout_create_subarray(uint32_t dims, const uint64_t *sizes, const uint64_t *parts,
                                        const uint64_t *starts, weir_layout_order order, const weir_layout *of,
                                        weir_layout **out)
{
    static const char call[] = "weir_layout_create_subarray";
    weir_layout *layout = NULL;
    if (sizes == NULL || parts == NULL || starts == NULL) {
        return weiri_fail_null(call, sizes == NULL ? "sizes" : parts == NULL ? "parts" : "starts");
    }
    if (dims == 0) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: dims is 0", call);
    }
    if (order != WEIR_LAYOUT_C && order != WEIR_LAYOUT_FORTRAN) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: unknown order %d", call, (int)order);
    }
    for (uint32_t i = 0; i < dims; i++) {
        if (parts[i] > sizes[i] || starts[i] > sizes[i] - parts[i]) {
            return weiri_fail(WEIR_ERR_INVALID,
                              "%s: dimension %" PRIu32 ": %" PRIu64 " items from %" PRIu64
                              " on leave the size of %" PRIu64,
                              call, i, parts[i], starts[i], sizes[i]);
        }
    }
    const weir_status status = create_layout(call, of, out, &layout);
    return status != WEIR_OK
               ? status
               : finish(repeat_box(call, layout, dims, sizes, parts, starts, order == WEIR_LAYOUT_C), layout, out);
}

weir_status weir_layout_create_resized(int64_t lb, int64_t extent, const weir_layout *of, weir_layout **out)
{
    static const char call[] = "weir_layout_create_resized";
    weir_layout *layout = NULL;
    int64_t same;
    int64_t ub;
    const weir_status status = create_layout(call, of, out, &layout);
    if (status != WEIR_OK) {
        return status;
    }
    const bool fits =
        weiri_layout_add(lb, 0, &same) && weiri_layout_add(extent, 0, &same) && weiri_layout_add(lb, extent, &ub);
    if (fits) {
        layout->bounds = (weiri_layout_bounds){ .lb = lb, .ub = ub };
        layout->resized = true;
    }
    return finish(fits ? WEIR_OK : beyond(call), layout, out);
}

/* ---- destroy and get_info -------------------------------------------------------------------------------- */

void weir_layout_destroy(weir_layout *layout)
{
    if (layout != NULL) {
        weiri_layout_form_release(&layout->form);
        weiri_free(layout);
    }
}

void weir_layout_get_info(const weir_layout *layout, weir_layout_info *out)
{
    if (out == NULL) {
        return;
    }
    memset(out, 0, sizeof *out);
    if (layout == NULL) {
        return;
    }
    const weir_layout_nest *nest = &layout->form.nest;
    const weiri_layout_list *list = layout->form.list;
    out->size = nest->size;
    out->lb = layout->bounds.lb;
    out->extent = extent_of(layout);
    out->true_lb = layout->true_bounds.lb;
    out->true_extent = (uint64_t)(layout->true_bounds.ub - layout->true_bounds.lb);
    out->offset = nest->offset;
    out->run = nest->run;
    out->runs = nest->run == 0 ? 0 : nest->size / nest->run * (list != NULL ? list->runs : 1);
    out->pieces = list != NULL ? list->count : 0;
    out->dims = nest->dims;
    memcpy(out->dim, nest->dim, nest->dims * sizeof nest->dim[0]);
}
