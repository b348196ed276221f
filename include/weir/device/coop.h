/* weir/device/coop.h - a group of threads that make one call together.
 *
 * Device functions that move data take a weir_coop. It says which thread of the group is calling, how many threads the
 * group has, and how they meet. A kernel gets the coop of its whole grid and derives the others:
 *
 *     weir_coop block = weir_coop_block(coop);      the calling thread's block
 *     weir_coop warp = weir_coop_warp(coop);        its warp (on the CPU: the thread itself)
 *     weir_coop self = weir_coop_thread(coop);      the thread alone
 *     weir_coop blocks = weir_coop_blocks(coop);    the grid; each of its blocks meets by itself
 *     weir_coop half = weir_coop_part(rank, size);  any other grouping, without a barrier
 *
 * The fastest kernels use weir_coop_blocks, with a channel of a set for each block (weir_dev_memory_channel_at): the
 * threads of the grid divide the data among them, but no block waits for another block of its grid.
 *
 * Threads:   all threads of a group make the same calls in the same order.
 * Blocking:  weir_coop_sync is a barrier. A grid meets at the barrier in `barrier` (weir/grid_barrier.h),
 *            which has a deadline. Blocks and warps meet in hardware, as with __syncthreads.
 * Errors:    WEIR_ERR_INVALID for a barrier of a group that has none. */
#ifndef WEIR_DEVICE_COOP_H
#define WEIR_DEVICE_COOP_H

#include "weir/device/grid_barrier.h"

enum {
    WEIR_COOP_PART = 0,
    WEIR_COOP_THREAD = 1,
    WEIR_COOP_WARP = 2,
    WEIR_COOP_BLOCK = 3,
    WEIR_COOP_GRID = 4,
    WEIR_COOP_BLOCKS = 5
};

typedef struct weir_coop {
    uint32_t rank;       /* the calling thread's rank in the group */
    uint32_t size;       /* threads in the group */
    uint32_t block_rank; /* the calling thread's rank in its block */
    uint32_t block_size;
    uint32_t block; /* the calling thread's block in its grid */
    uint32_t blocks;
    uint32_t scope; /* WEIR_COOP_... */
    uint32_t reserved;
    const weir_dev_grid_barrier *barrier; /* for scope GRID; may be NULL */
    void *host;                           /* the CPU device's block; NULL on a GPU */
} weir_coop;

WEIR_STATIC_ASSERT(sizeof(weir_coop) == 48, "layout of weir_coop");
WEIR_STATIC_ASSERT(offsetof(weir_coop, scope) == 24, "layout of weir_coop");
WEIR_STATIC_ASSERT(offsetof(weir_coop, barrier) == 32, "layout of weir_coop");

/* All threads of a running grid, for kernels written without WEIR_KERNEL; only on a GPU. */
WEIR_FN weir_coop weir_coop_grid(const weir_dev_grid_barrier *barrier)
{
    weir_coop coop;
    coop.block_rank = weir_arch_thread();
    coop.block_size = weir_arch_threads();
    coop.block = weir_arch_block();
    coop.blocks = weir_arch_blocks();
    coop.rank = coop.block * coop.block_size + coop.block_rank;
    coop.size = coop.blocks * coop.block_size;
    coop.scope = WEIR_COOP_GRID;
    coop.reserved = 0;
    coop.barrier = barrier;
    coop.host = NULL;
    return coop;
}

/* The block of the calling thread. */
WEIR_FN weir_coop weir_coop_block(weir_coop coop)
{
    coop.rank = coop.block_rank;
    coop.size = coop.block_size;
    coop.scope = WEIR_COOP_BLOCK;
    return coop;
}

/* The grid as one group for data, but each block by itself for barriers: weir_coop_sync and all calls that meet concern
 * only the calling thread's block. */
WEIR_FN weir_coop weir_coop_blocks(weir_coop coop)
{
    coop.rank = coop.block * coop.block_size + coop.block_rank;
    coop.size = coop.blocks * coop.block_size;
    coop.scope = WEIR_COOP_BLOCKS;
    return coop;
}

/* The warp of the calling thread; its lanes must be converged. */
WEIR_FN weir_coop weir_coop_warp(weir_coop coop)
{
    uint32_t width = weir_arch_warp_size();
    uint32_t first = coop.block_rank / width * width;
    coop.rank = coop.block_rank - first;
    coop.size = coop.block_size - first < width ? coop.block_size - first : width;
    coop.scope = WEIR_COOP_WARP;
    return coop;
}

/* The calling thread alone. */
WEIR_FN weir_coop weir_coop_thread(weir_coop coop)
{
    coop.rank = 0;
    coop.size = 1;
    coop.scope = WEIR_COOP_THREAD;
    return coop;
}

/* Threads that the caller chooses: thread `rank` of `size`. Such a group cannot meet. */
WEIR_FN weir_coop weir_coop_part(uint32_t rank, uint32_t size)
{
    weir_coop coop = weir_coop_grid(NULL);
    coop.rank = rank;
    coop.size = size;
    coop.scope = WEIR_COOP_PART;
    return coop;
}

/* Whether the calling thread acts for the threads that it meets: it is the first of the group, or of its block. */
WEIR_FN int weir_coop_leads(weir_coop coop)
{
    return (coop.scope == WEIR_COOP_BLOCKS ? coop.block_rank : coop.rank) == 0;
}

/* Whether the group has a barrier. */
WEIR_FN int weir_coop_can_meet(weir_coop coop)
{
    return coop.scope != WEIR_COOP_PART && (coop.scope != WEIR_COOP_GRID || coop.barrier != NULL);
}

/* Barrier of the group; orders the memory accesses of its threads. The status is the calling thread's. WEIR_ERR_INVALID
 * for a group that cannot meet. In a grid only the first thread of each block returns an error, which is also sticky:
 * use weir_coop_agree where all threads must know. */
WEIR_FN weir_status weir_coop_sync(weir_coop coop)
{
    weir_status status = WEIR_OK;
    switch (coop.scope) {
    case WEIR_COOP_THREAD:
        break;
    case WEIR_COOP_WARP:
        (void)weir_arch_warp_or(0);
        break;
    case WEIR_COOP_BLOCK:
    case WEIR_COOP_BLOCKS:
        weir_arch_block_sync(coop.host);
        break;
    case WEIR_COOP_GRID:
        if (WEIR_UNLIKELY(coop.barrier == NULL)) {
            return WEIR_ERR_INVALID;
        }
        status = weir_grid_barrier_meet(coop.barrier, coop.host, coop.block_rank, coop.block, coop.blocks);
        weir_arch_block_sync(coop.host);
        break;
    default:
        status = WEIR_ERR_INVALID;
    }
    return status;
}

/* A barrier that returns one thread's error to all: WEIR_OK to all threads if every thread passed WEIR_OK, and an error
 * to all otherwise. The communicator must know the error; it knows every error that a device function returns. Costs a
 * little more than weir_coop_sync. */
WEIR_FN weir_status weir_coop_agree(weir_coop coop, weir_dev_control *control, weir_status status)
{
    uint32_t failed = status != WEIR_OK;
    switch (coop.scope) {
    case WEIR_COOP_THREAD:
        return status;
    case WEIR_COOP_WARP:
        failed = weir_arch_warp_or(failed);
        break;
    case WEIR_COOP_BLOCK:
    case WEIR_COOP_BLOCKS:
        failed = weir_arch_block_or(coop.host, failed);
        break;
    case WEIR_COOP_GRID:
        if (WEIR_UNLIKELY(coop.barrier == NULL)) {
            return WEIR_ERR_INVALID;
        }
        if (WEIR_UNLIKELY(failed)) {
            weir_arch_or_release_dev_u64(coop.barrier->word, WEIR_GRID_BARRIER_POISON);
        }
        failed |= weir_grid_barrier_meet(coop.barrier, coop.host, coop.block_rank, coop.block, coop.blocks) != WEIR_OK;
        failed = weir_arch_block_or(coop.host, failed);
        break;
    default:
        return WEIR_ERR_INVALID;
    }
    return WEIR_UNLIKELY(failed) ? weir_dev_control_error(control) : WEIR_OK;
}

#endif
