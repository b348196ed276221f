/* weir/device/impl/halo_share.h - one block's share of a part of a halo.
 *
 * The host divides each part into shares by its bytes alone, so the shares of a rank match those of its neighbour. One
 * block makes a share, whatever the grids of both ranks are. The receiver chooses the form of a part:
 *
 *   stores:  the sender waits until the receiver is ready, stores to the receiver's items, and reports that it is done
 *   packets: the sender stores packets, and the receiver unpacks them
 *   lines:   the same with lines
 *
 * Packets and lines use two halves of a buffer in turn. A rank that has the neighbour's exchange k knows that the
 * neighbour has taken exchange k - 1, so that half is free for k + 1. This holds if the share has bytes in both
 * directions. Otherwise the sender waits until the receiver is ready, as with stores: `asks`.
 *
 * A rank is ready for exchange k when its own put of exchange k begins: its kernels have read the ghosts of k - 1.
 * Words count exchanges, and are stored by one block of the neighbour. Nothing is reset, so that graphs replay. */
#ifndef WEIR_DEVICE_IMPL_HALO_SHARE_H
#define WEIR_DEVICE_IMPL_HALO_SHARE_H

#include "weir/device/impl/layout_packet.h"

#undef WEIR_DEV_USED_halo
#define WEIR_DEV_USED_halo weir_dev_version_halo

/* The part whose share it is. */
WEIR_FN const weir_dev_halo_part *weir_halo_part_of(const weir_dev_halo *halo, const weir_dev_halo_share *share)
{
    return halo->parts + share->part;
}

WEIR_FN weir_dev_note weir_halo_note(const weir_dev_halo *halo, const weir_dev_halo_share *share, uint32_t doing)
{
    const weir_dev_halo_part *part = weir_halo_part_of(halo, share);
    return weir_dev_note_of(doing, part->peer, part->index, 0, 0);
}

/* Returns when the neighbour has stored more than `number` to the word. By one thread. */
WEIR_FN weir_status weir_halo_await(const weir_dev_halo *halo, const weir_dev_halo_share *share, uint32_t doing,
                                    const uint64_t *word, uint64_t number)
{
    uint32_t reads = WEIR_ARCH_FAST_READS;
    int is_long = weir_spin_is_due(number);
    WEIR_ROLLED
    while ((weir_arch_load_relaxed_sys_u64(word) <= number) & !is_long) {
        is_long = weir_spin_is_long(&reads);
    }
    weir_arch_acquire_loaded_sys_u64(word);
    return WEIR_UNLIKELY(is_long)
               ? WEIR_SLOW(weir_spin_above(word, number, 1, halo->control, weir_halo_note(halo, share, doing)))
               : WEIR_OK;
}

/* Tells the neighbour that this rank's ghosts may be overwritten. By one thread, behind a barrier of all that read
 * them. */
WEIR_FN void weir_halo_answer(const weir_dev_halo *halo, const weir_dev_halo_share *share)
{
    if (weir_halo_part_of(halo, share)->answers) {
        weir_arch_store_release_sys_u64(&share->there->ready, weir_arch_load_relaxed_dev_u64(&share->counts->puts) + 1);
    }
}

/* Sends the share. The block has met since its parts were written. */
WEIR_FN weir_status weir_halo_put_share(const weir_dev_halo *halo, const weir_dev_halo_share *share, weir_coop block)
{
    const weir_dev_halo_part *part = weir_halo_part_of(halo, share);
    const weir_layout_side from = weir_layout_wide(&part->from, part->from_memory);
    const uint64_t number = weir_arch_load_relaxed_dev_u64(&share->counts->puts);
    const uint32_t flag = (uint32_t)number | 0x80000000u;
    char *out = share->out + (number % 2 != 0 ? share->out_half : 0);
    weir_status status = WEIR_OK;
    if (part->asks && share->put_bytes != 0) {
        if (block.rank == 0) {
            status = weir_halo_await(halo, share, WEIR_DOING_HALO_PUT, &share->here->ready, number);
        }
        status = weir_coop_agree(block, halo->control, status);
        if (status != WEIR_OK) {
            return status;
        }
    }
    if (part->put_form == WEIR_HALO_LINES) {
        weir_layout_line_put(out, from, share->put_at, share->put_bytes, flag, block.rank, block.size);
    } else if (part->put_form == WEIR_HALO_PACKETS) {
        weir_layout_ll16_put(out, from, share->put_at, share->put_bytes, flag, block.rank, block.size);
    } else {
        weir_layout_move_any(weir_layout_wide(&part->there, part->there_memory), from, share->put_at, share->put_bytes,
                             block);
    }
    (void)weir_coop_sync(block);
    if (block.rank == 0) {
        if (part->put_form == WEIR_HALO_STORES && share->there != NULL) {
            weir_arch_store_release_sys_u64(&share->there->done, number + 1);
        }
        weir_arch_store_relaxed_dev_u64(&share->counts->puts, number + 1);
    }
    return WEIR_OK;
}

/* Waits for the share. All threads of the block return the same status, and may read it. */
WEIR_FN weir_status weir_halo_wait_share(const weir_dev_halo *halo, const weir_dev_halo_share *share, weir_coop block)
{
    const weir_dev_halo_part *part = weir_halo_part_of(halo, share);
    const weir_layout_side to = weir_layout_wide(&part->to, part->to_memory);
    const uint64_t number = weir_arch_load_relaxed_dev_u64(&share->counts->waits);
    const uint32_t flag = (uint32_t)number | 0x80000000u;
    const char *in = share->in + (number % 2 != 0 ? share->in_half : 0);
    weir_status status = WEIR_OK;
    if (part->wait_form == WEIR_HALO_LINES) {
        status = weir_layout_line_unpack(to, in, share->wait_at, share->wait_bytes, flag, block.rank, block.size,
                                         halo->control);
    } else if (part->wait_form == WEIR_HALO_PACKETS) {
        status = weir_layout_ll16_unpack(to, in, share->wait_at, share->wait_bytes, flag, block.rank, block.size,
                                         halo->control);
    } else if (share->here != NULL && share->wait_bytes != 0 && block.rank == 0) {
        status = weir_halo_await(halo, share, WEIR_DOING_HALO_WAIT, &share->here->done, number);
    }
    if (WEIR_UNLIKELY(status != WEIR_OK)) {
        status = WEIR_SLOW(
            weir_dev_control_end_wait(halo->control, status, weir_halo_note(halo, share, WEIR_DOING_HALO_WAIT)));
    } else if (block.rank == 0) {
        status = weir_packet_look(flag, halo->control);
    }
    status = weir_coop_agree(block, halo->control, status);
    if (block.rank == 0) {
        weir_arch_store_relaxed_dev_u64(&share->counts->waits, number + 1);
    }
    return status;
}

/* Whether the group can make the calls of a halo. */
WEIR_FN int weir_dev_halo_is_group(weir_coop coop)
{
    return coop.scope == WEIR_COOP_BLOCK || coop.scope == WEIR_COOP_BLOCKS ||
           (coop.scope == WEIR_COOP_GRID && coop.barrier != NULL);
}

#endif
