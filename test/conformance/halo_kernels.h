/* halo_kernels.h - a kernel that makes exchanges of a halo by itself. */
#ifndef WEIRT_HALO_KERNELS_H
#define WEIRT_HALO_KERNELS_H

#include "weir/device/halo.h"
#include "weir/device/kernel.h"
#include "weir/weir.h"

WEIR_BEGIN_DECLS

typedef enum halo_group { HALO_GRID, HALO_BLOCK, HALO_WARP } halo_group;

/* Marks the ghosts of halo_kernel_args.expected. */
#define HALO_GHOST ((uint64_t)1 << 63)

/* `rounds` exchanges. In each the cells of the box get their expected value plus the number of the round, and all cells
 * are compared after the exchange. HALO_BLOCK: block 0 does all of it. */
typedef struct halo_kernel_args {
    weir_dev_halo halo;
    weir_dev_grid_barrier barrier;
    uint64_t *cells;          /* the array, */
    const uint64_t *expected; /* and its values after the first exchange */
    uint64_t count;           /* cells */
    uint32_t rounds;
    halo_group group;
    uint64_t *wrong;
    int32_t *status;
} halo_kernel_args;

extern const weir_kernel *const halo_kernel;

WEIR_END_DECLS

#endif
