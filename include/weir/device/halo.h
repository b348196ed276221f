/* weir/device/halo.h - exchanges of a halo (weir/halo.h) inside a kernel, with work between the sends and the waits.
 *
 *     weir_halo_device(halo, &args.halo);                                      on the host
 *     ...
 *     coop.barrier = &args->barrier;
 *     status = weir_dev_halo_put(&args->halo, coop);     sends this rank's parts
 *     ...                                                the interior: neither parts that are sent nor ghosts
 *     if (status == WEIR_OK) {
 *         status = weir_dev_halo_wait(&args->halo, coop);    the neighbours' parts are here
 *     }
 *
 * A put and the wait after it are one exchange. From the put to the wait the neighbours may write this rank's ghosts,
 * which are the items of all `to`.
 *
 * Groups:    a grid with a barrier: put sends what all its threads have written before, and after wait all of them may
 *            read the ghosts. weir_coop_blocks: each block meets only itself. Then the parts were written before the
 *            kernel began, and the ghosts are read after it has ended. One block: it makes the whole exchange, while
 *            other blocks do other work. A kernel uses one of these for all its exchanges of a halo.
 * Threads:   all threads of the group, with the same arguments. All blocks of the group must be resident, because they
 *            wait for blocks of the neighbours. Halos with lines (WEIR_HALO_LINES, WEIR_HALO_AUTO) need blocks of whole
 *            warps.
 * Blocking:  wait, and put of parts with stores, have the communicator's deadline.
 * Ownership: weir_halo_device gives the handle. Kernels must not use it after weir_halo_destroy.
 * Errors:    WEIR_ERR_INVALID (another group; a block that is not whole warps, which is sticky), and the errors of
 *            waits: WEIR_ERR_TIMEOUT or the communicator's sticky error. */
#ifndef WEIR_DEVICE_HALO_H
#define WEIR_DEVICE_HALO_H

#include "weir/device/impl/halo_share.h"

/* Sends this rank's part to each neighbour. */
WEIR_FN weir_status weir_dev_halo_put(const weir_dev_halo *halo, weir_coop coop)
{
    const weir_coop block = weir_coop_block(coop);
    const uint32_t first = coop.scope == WEIR_COOP_BLOCK ? 0 : coop.block;
    const uint32_t step = coop.scope == WEIR_COOP_BLOCK ? 1 : coop.blocks;
    if (!weir_dev_halo_is_group(coop)) {
        return WEIR_ERR_INVALID;
    }
    weir_status status = weir_coop_agree(coop, halo->control, WEIR_OK);
    if (status == WEIR_OK && halo->lines && !weir_line_fits(block)) {
        return WEIR_SLOW(
            weir_dev_control_fail_in(halo->control, WEIR_ERR_INVALID,
                                     weir_dev_note_of(WEIR_DOING_HALO_GROUP, WEIR_NO_PEER, block.block_size, 0, 0)));
    }
    /* All answers first: a block that waits in a put then has no neighbour that waits for its answer. */
    for (uint32_t i = first; i < halo->share_count && status == WEIR_OK && block.rank == 0; i += step) {
        weir_halo_answer(halo, halo->shares + i);
    }
    for (uint32_t i = first; i < halo->share_count && status == WEIR_OK; i += step) {
        status = weir_halo_put_share(halo, halo->shares + i, block);
    }
    return status;
}

/* Waits for the part of each neighbour. */
WEIR_FN weir_status weir_dev_halo_wait(const weir_dev_halo *halo, weir_coop coop)
{
    const weir_coop block = weir_coop_block(coop);
    const uint32_t first = coop.scope == WEIR_COOP_BLOCK ? 0 : coop.block;
    const uint32_t step = coop.scope == WEIR_COOP_BLOCK ? 1 : coop.blocks;
    weir_status status = WEIR_OK;
    if (!weir_dev_halo_is_group(coop)) {
        return WEIR_ERR_INVALID;
    }
    for (uint32_t i = first; i < halo->share_count && status == WEIR_OK; i += step) {
        status = weir_halo_wait_share(halo, halo->shares + i, block);
    }
    return coop.scope == WEIR_COOP_GRID ? weir_coop_agree(coop, halo->control, status) : status;
}

#endif
