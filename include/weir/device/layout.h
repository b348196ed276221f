/* weir/device/layout.h - layouts (weir/layout.h) inside kernels.
 *
 *     weir_layout_device(box, device, 1, &args.box);                          on the host
 *     ...
 *     weir_dev_layout_pack(&args->box, packed, array, 0, args->box.nest.size, weir_coop_blocks(coop));
 *     weir_dev_layout_copy(&args->to, dst, &args->box, array, weir_coop_blocks(coop));
 *
 *     weir_dev_layout_run run;
 *     if (weir_dev_layout_at(&args->box, offset, &run) == WEIR_OK) {
 *         ...                                          run.bytes bytes at array + run.place, in packed order
 *     }
 *
 * The handle describes all items that weir_layout_device was given. A layout that is NULL stands for packed bytes.
 * Pointers may have any alignment. A pack reads aligned units of 16 bytes whole where they lie between the first and
 * the last byte of the items, so it may read bytes between them.
 *
 * Threads:   pack, unpack and copy: all threads of the group, with the same arguments. They divide the bytes among
 *            them, do not meet, and need no barrier. at: any thread.
 * Order:     none; use a signal or a barrier afterwards. Source and destination must not overlap. Where bytes overlap
 *            in the destination, each gets one of the values.
 * Errors:    WEIR_ERR_RANGE for bytes beyond the packed ones, WEIR_ERR_INVALID. All threads return the same status, and
 *            nothing was moved. */
#ifndef WEIR_DEVICE_LAYOUT_H
#define WEIR_DEVICE_LAYOUT_H

#include "weir/device/impl/layout_move.h"

/* Where packed byte `offset` lies, and how many bytes follow it there. */
WEIR_FN weir_status weir_dev_layout_at(const weir_dev_layout *layout, uint64_t offset, weir_dev_layout_run *run)
{
    if (layout == NULL) {
        return WEIR_ERR_INVALID;
    }
    if (offset >= layout->nest.size) {
        return WEIR_ERR_RANGE;
    }
    *run = weir_layout_find(layout, offset);
    return WEIR_OK;
}

/* Copies packed bytes [offset, offset + bytes) of the items around `src` to `packed`, where the first of them goes. */
WEIR_FN weir_status weir_dev_layout_pack(const weir_dev_layout *layout, void *packed, const void *src, uint64_t offset,
                                         uint64_t bytes, weir_coop coop)
{
    if (layout == NULL) {
        return WEIR_ERR_INVALID;
    }
    if (offset > layout->nest.size || bytes > layout->nest.size - offset) {
        return WEIR_ERR_RANGE;
    }
    weir_layout_move_range(weir_layout_packed(packed, offset), weir_layout_wide(layout, src), offset, bytes, coop);
    return WEIR_OK;
}

/* Copies `packed` to packed bytes [offset, offset + bytes) of the items around `dst`. */
WEIR_FN weir_status weir_dev_layout_unpack(const weir_dev_layout *layout, void *dst, const void *packed,
                                           uint64_t offset, uint64_t bytes, weir_coop coop)
{
    if (layout == NULL) {
        return WEIR_ERR_INVALID;
    }
    if (offset > layout->nest.size || bytes > layout->nest.size - offset) {
        return WEIR_ERR_RANGE;
    }
    weir_layout_move_range(weir_layout_wide(layout, dst), weir_layout_packed(packed, offset), offset, bytes, coop);
    return WEIR_OK;
}

/* Copies the items of `from` around `src` to those of `to` around `dst`, packed byte by packed byte. One of the two may
 * be NULL. WEIR_ERR_INVALID: both are, or they have different sizes. */
WEIR_FN weir_status weir_dev_layout_copy(const weir_dev_layout *to, void *dst, const weir_dev_layout *from,
                                         const void *src, weir_coop coop)
{
    if ((to == NULL && from == NULL) || (to != NULL && from != NULL && to->nest.size != from->nest.size)) {
        return WEIR_ERR_INVALID;
    }
    weir_layout_move_range(to != NULL ? weir_layout_wide(to, dst) : weir_layout_packed(dst, 0),
                           from != NULL ? weir_layout_wide(from, src) : weir_layout_packed(src, 0), 0,
                           to != NULL ? to->nest.size : from->nest.size, coop);
    return WEIR_OK;
}

#endif
