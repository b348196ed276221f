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
    for (uint32_t i = nest->dims; i-- > 0;) {
        const uint64_t outer = run / nest->dim[i].count;
        place += (int64_t)(run - outer * nest->dim[i].count) * nest->dim[i].stride;
        run = outer;
    }
    return place;
}

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
