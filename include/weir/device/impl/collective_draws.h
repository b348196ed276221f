/* weir/device/impl/collective_draws.h - chunks of data that the warps of a grid take as they come free.
 *
 * Some blocks of a GPU store to peers at nearly twice the speed of others. If each block has a range, the fast ones end
 * early, and the links wait for the slow ones. So warps draw the numbers of chunks from a counter. Figures and a likely
 * cause are in docs/notes/2026-11-27-draws.md.
 *
 * A warp begins with its own place among the warps of the grid. It draws its next number when it begins a chunk, so
 * the draw is under way while the warp copies. There is one draw for each chunk, and the last one sets the counter back
 * for the next call. After an error the counter keeps its value: no later call of the collective uses it. */
#ifndef WEIR_DEVICE_IMPL_COLLECTIVE_DRAWS_H
#define WEIR_DEVICE_IMPL_COLLECTIVE_DRAWS_H

#include "weir/device/impl/collective_call.h"

/* The counter is this word behind the epoch; 0 between calls. */
#define WEIR_DRAWS_COUNTER 4u

/* The chunks of the calling thread's warp. */
typedef struct weir_draws {
    uint64_t next;  /* in the first lane */
    uint64_t count; /* of all chunks */
    uint32_t warps; /* of the grid */
} weir_draws;

/* The threads of the calling warp, for functions that divide data among the threads of a block. */
WEIR_FN weir_coop weir_draws_warp(weir_coop coop)
{
    weir_coop warp = weir_coop_warp(coop);
    warp.block_rank = warp.rank;
    warp.block_size = warp.size;
    return warp;
}

/* For `bytes` bytes in chunks of `chunk` bytes. Blocks are whole warps, and all warps of the grid go through the chunks
 * to the end. */
WEIR_FN weir_draws weir_draws_begin(uint64_t bytes, uint64_t chunk, weir_coop coop)
{
    const uint32_t width = weir_arch_warp_size();
    const uint32_t warps = coop.block_size / width;
    weir_draws draws;
    draws.next = coop.block * warps + coop.block_rank / width;
    draws.count = (bytes + chunk - 1) / chunk;
    draws.warps = coop.blocks * warps;
    return draws;
}

/* Sets *number to the number of the warp's next chunk; chunks count from 0. Returns 0 when no chunk is left. */
WEIR_FN int weir_draws_next(const weir_dev_collective *c, weir_draws *draws, weir_coop coop, uint64_t *number)
{
    const int leads = weir_coop_warp(coop).rank == 0;
    const uint32_t high = weir_arch_warp_or(leads ? (uint32_t)(draws->next >> 32) : 0);
    const uint64_t next = (uint64_t)high << 32 | weir_arch_warp_or(leads ? (uint32_t)draws->next : 0);
    *number = next;
    if (next < draws->count) {
        draws->next = leads ? draws->warps + weir_arch_fetch_add_relaxed_dev_u64(c->epoch + WEIR_DRAWS_COUNTER, 1) : 0;
        return 1;
    }
    if (leads && next + 1 == draws->count + draws->warps) {
        weir_arch_store_relaxed_dev_u64(c->epoch + WEIR_DRAWS_COUNTER, 0);
    }
    return 0;
}

#endif
