/* refine.c - the order in which a copy between two nests moves its bytes.
 *
 * Both nests are refined to one list of {count, dst stride, src stride} around a run that both have: the steps of one
 * side divide the packed bytes of a step of the other. A copy has no packed side, so its loops may come in any order.
 * They are sorted by the destination's strides, the smallest innermost, so that neighbouring threads write neighbouring
 * bytes, and a loop that goes down in the destination goes up instead. Each side then gets its canonical nest in the
 * new order: two transposed descriptions of rows become runs again. */
#include "src/host/layout/layout.h"

/* Each nest has a boundary for its run and one for each dim. */
#define LEVELS_MOST (2u * (WEIR_LAYOUT_DIMS + 2u))

typedef struct copy_level {
    uint64_t count;
    int64_t to;
    int64_t from;
} copy_level;

/* Packed bytes of the run, and of each dim with all that is inside it. */
typedef struct boundaries {
    uint32_t count;
    uint64_t at[LEVELS_MOST]; /* ascending */
} boundaries;

static void add_boundary(boundaries *all, uint64_t bytes)
{
    uint32_t i = all->count;
    while (i > 0 && all->at[i - 1] > bytes) {
        i--;
    }
    if (i > 0 && all->at[i - 1] == bytes) {
        return;
    }
    for (uint32_t j = all->count; j > i; j--) {
        all->at[j] = all->at[j - 1];
    }
    all->at[i] = bytes;
    all->count++;
}

static void add_boundaries(boundaries *all, const weir_layout_nest *nest)
{
    uint64_t bytes = nest->run;
    add_boundary(all, bytes);
    for (uint32_t i = nest->dims; i-- > 0;) {
        bytes *= nest->dim[i].count;
        add_boundary(all, bytes);
    }
}

/* The distance of packed bytes 0 and `step`, which is below the size and divides the boundaries above it. */
static int64_t stride_of(const weir_layout_nest *nest, uint64_t step)
{
    uint64_t inner = nest->run;
    if (step < inner) {
        return (int64_t)step;
    }
    uint32_t i = nest->dims - 1;
    while (step >= inner * nest->dim[i].count) {
        inner *= nest->dim[i].count;
        i--;
    }
    return nest->dim[i].stride * (int64_t)(step / inner);
}

static int64_t absolute(int64_t value) { return value < 0 ? -value : value; }

static bool comes_inside(const copy_level *a, const copy_level *b)
{
    const int64_t to_a = absolute(a->to);
    const int64_t to_b = absolute(b->to);
    return to_a != to_b ? to_a < to_b : absolute(a->from) < absolute(b->from);
}

/* Sorts the levels, the innermost first. */
static void sort_levels(copy_level *levels, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        const copy_level level = levels[i];
        uint32_t j = i;
        for (; j > 0 && comes_inside(&level, &levels[j - 1]); j--) {
            levels[j] = levels[j - 1];
        }
        levels[j] = level;
    }
}

bool weiri_layout_refine(weir_layout_nest *to, weir_layout_nest *from)
{
    boundaries all = { .count = 0 };
    copy_level levels[LEVELS_MOST];
    add_boundaries(&all, to);
    add_boundaries(&all, from);
    for (uint32_t i = 0; i + 1 < all.count; i++) {
        if (all.at[i + 1] % all.at[i] != 0) {
            return false;
        }
        levels[i] = (copy_level){ .count = all.at[i + 1] / all.at[i],
                                  .to = stride_of(to, all.at[i]),
                                  .from = stride_of(from, all.at[i]) };
    }
    sort_levels(levels, all.count - 1);
    weir_layout_nest new_to = weiri_layout_form_of_run(all.at[0]).nest;
    weir_layout_nest new_from = new_to;
    new_to.offset = to->offset;
    new_from.offset = from->offset;
    for (uint32_t i = 0; i + 1 < all.count; i++) {
        copy_level *level = &levels[i];
        if (level->to < 0) {
            new_to.offset += (int64_t)(level->count - 1) * level->to;
            new_from.offset += (int64_t)(level->count - 1) * level->from;
            level->to = -level->to;
            level->from = -level->from;
        }
        if (!weiri_layout_nest_repeat(&new_to, false, level->count, level->to, WEIR_LAYOUT_DIMS + 1) ||
            !weiri_layout_nest_repeat(&new_from, false, level->count, level->from, WEIR_LAYOUT_DIMS + 1)) {
            return false;
        }
    }
    *to = new_to;
    *from = new_from;
    return true;
}
