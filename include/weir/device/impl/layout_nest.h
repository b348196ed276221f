/* weir/device/impl/layout_nest.h - where a packed byte of a layout lies; shared by host and kernels.
 *
 * The structs are in weir/device/types.h. A nest is a loop nest: dim[0] is the outermost loop, and its steps come last
 * in packed order. A layout is a nest around a run of bytes, or a nest around a piece list. */
#ifndef WEIR_DEVICE_IMPL_LAYOUT_NEST_H
#define WEIR_DEVICE_IMPL_LAYOUT_NEST_H

#include "weir/device/types.h"

#undef WEIR_DEV_USED_layout
#define WEIR_DEV_USED_layout weir_dev_version_layout

/* The offset of the run that has packed byte `at`, which is below nest->size. *into is the byte's place in the run:
 * without a piece list the byte lies there, and nest->run - *into contiguous bytes follow from it on. */
WEIR_FN int64_t weir_layout_nest_at(const weir_layout_nest *nest, uint64_t at, uint64_t *into)
{
    uint64_t run = at / nest->run;
    int64_t place = nest->offset;
    *into = at - run * nest->run;
    WEIR_ROLLED
    for (uint32_t i = nest->dims; i-- > 0;) {
        const uint64_t outer = run / nest->dim[i].count;
        place += (int64_t)(run - outer * nest->dim[i].count) * nest->dim[i].stride;
        run = outer;
    }
    return place;
}

/* ---- constants of a handle ------------------------------------------------------------------------------ */

/* divisor: 1 or more, below 2^31 */
WEIR_FN weir_layout_divisor weir_layout_divisor_of(uint64_t divisor)
{
    weir_layout_divisor by;
    uint32_t bits = 0;
    while ((uint64_t)1 << bits < divisor) {
        bits++;
    }
    by.shift = 31 + bits;
    by.multiplier = (uint32_t)((((uint64_t)1 << by.shift) + divisor - 1) / divisor);
    return by;
}

WEIR_FN uint32_t weir_layout_divide(uint32_t number, weir_layout_divisor by)
{
    return (uint32_t)((uint64_t)number * by.multiplier >> by.shift);
}

/* Sets the constants of a handle whose nest and pieces are set. */
WEIR_FN void weir_layout_prepare(weir_dev_layout *layout)
{
    const weir_layout_nest *nest = &layout->nest;
    uint64_t all = 16 | (uint64_t)nest->offset | nest->run;
    layout->small = nest->size != 0 && nest->size < (uint64_t)1 << 31;
    for (uint32_t i = 0; i < nest->dims; i++) {
        all |= (uint64_t)nest->dim[i].stride;
        if (layout->small) {
            layout->by_dim[i] = weir_layout_divisor_of(nest->dim[i].count);
        }
    }
    if (layout->small) {
        layout->by_run = weir_layout_divisor_of(nest->run);
    }
    layout->word = layout->pieces != NULL ? 1 : (uint32_t)(all & (0 - all));
}

/* The same as weir_layout_nest_at for the nest of a small layout. */
WEIR_FN int64_t weir_layout_small_at(const weir_dev_layout *layout, uint32_t at, uint32_t *into)
{
    const weir_layout_nest *nest = &layout->nest;
    uint32_t run = weir_layout_divide(at, layout->by_run);
    int64_t place = nest->offset;
    *into = at - run * (uint32_t)nest->run;
    WEIR_ROLLED
    for (uint32_t i = nest->dims; i-- > 1;) {
        const uint32_t outer = weir_layout_divide(run, layout->by_dim[i]);
        place += (int64_t)(run - outer * (uint32_t)nest->dim[i].count) * nest->dim[i].stride;
        run = outer;
    }
    return nest->dims != 0 ? place + (int64_t)run * nest->dim[0].stride : place;
}

/* ---- piece lists ---------------------------------------------------------------------------------------- */

/* The piece that has packed byte `at` of the list: the last one whose prefix is not above `at`. `count`: pieces of the
 * list, without the entry at its end. */
WEIR_FN uint32_t weir_layout_piece_of(const weir_layout_piece *pieces, uint32_t count, uint64_t at)
{
    uint32_t first = 0;
    while (count > 1) {
        const uint32_t half = count / 2;
        if (pieces[first + half].prefix <= at) {
            first += half;
            count -= half;
        } else {
            count = half;
        }
    }
    return first;
}

#endif
