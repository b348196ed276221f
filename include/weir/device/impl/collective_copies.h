/* weir/device/impl/collective_copies.h - what kernels do where copy engines move the data.
 *
 * Before the copies of a move, a kernel meets the other ranks: their memory is then free to be written. Behind each
 * copy the stream of the sender stores 1 into a word of the receiver. After the copies, a kernel waits for these words
 * and sets them to 0. The sender stores into them again only after it has met the receiver again. So the value can be
 * constant, as a graph needs it.
 *
 * The ranks of an exchange do not all meet. There the stream of a receiver stores 1 into a word of each sender, for
 * which a kernel of the sender waits before its copies.
 *
 * The kernels have one block of at most one warp. */
#ifndef WEIR_DEVICE_IMPL_COLLECTIVE_COPIES_H
#define WEIR_DEVICE_IMPL_COLLECTIVE_COPIES_H

#include "weir/device/impl/collective_slots.h"

/* The words that a rank has in the memory of another. */
enum {
    WEIR_COPIES_MOVED = 0,    /* the copy of a move has ended */
    WEIR_COPIES_UNREAD = 1,   /* nothing reads it */
    WEIR_COPIES_READY = 2,    /* the buffers of an exchange's receives may be written */
    WEIR_COPIES_RECEIVED = 3, /* the copies to these buffers have ended */
    WEIR_COPIES_WORDS = 4
};

WEIR_STATIC_ASSERT(WEIR_COPIES_WORDS * sizeof(uint64_t) <= WEIR_CELL_BYTES, "words of copies");

/* The word of rank `from` in the memory of rank `to`. */
WEIR_FN uint64_t *weir_copies_word(const weir_dev_collective *c, uint32_t from, uint32_t to, uint32_t word)
{
    return (uint64_t *)(c->memory[to] + weir_collective_cell(c, WEIR_CELL_COPIED, 0, from)) + word;
}

/* The ranks compare their calls, which orders what earlier kernels did with this memory before the copies of the
 * others. */
WEIR_FN weir_status weir_copies_meet(const weir_dev_collective *c, const weir_collective_move *m, weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    return weir_slots_end(c, weir_slots_meet(c, &m->what, NULL, 1, coop));
}

/* Returns when each rank of `ranks`, one bit for each, has stored into its word in this rank's memory. */
WEIR_FN weir_status weir_copies_wait(const weir_dev_collective *c, uint32_t ranks, uint32_t word, weir_coop coop)
{
    coop = weir_coop_blocks(coop);
    weir_status status = weir_slots_begin(c, coop);
    for (uint32_t peer = coop.block_rank; peer < c->ranks && status == WEIR_OK; peer += coop.block_size) {
        uint64_t *stored = weir_copies_word(c, peer, c->rank, word);
        if ((ranks >> peer & 1) != 0) {
            status = WEIR_SLOW(weir_spin_above(stored, 0, 1, c->control, weir_collective_note(c, peer)));
            if (status == WEIR_OK) {
                weir_arch_store_relaxed_sys_u64(stored, 0);
            }
        }
    }
    return weir_slots_end(c, weir_coop_agree(weir_coop_block(coop), c->control, status));
}

#endif
