/* halo.h - what perf/halo.c and perf/halo_kernels.c share. */
#ifndef WEIR_PERF_HALO_H
#define WEIR_PERF_HALO_H

#include "tools/perf/common.h"

WEIR_BEGIN_DECLS

/* A rank's box of n^3 cells with `radius` ghosts on each side. The whole field is periodic; the ranks divide it along
 * dimension `axis`: 0 is z, 2 is x, the fastest. */
typedef struct halo_field_args {
    double *cells;
    uint64_t n;
    uint64_t radius;
    uint32_t axis;
    uint32_t rank;
    uint32_t ranks;
    uint32_t round; /* each has other values */
    uint64_t *wrong;
} halo_field_args;

/* Gives each cell of the box its value of the round, and each ghost a wrong one. Counts the cells with a wrong value.
 */
extern const weir_kernel *const halo_fill;
extern const weir_kernel *const halo_compare;

WEIR_END_DECLS

#endif
