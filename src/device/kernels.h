/* kernels.h - weir's own kernels.
 *
 * A file of src/device/kernels is a family, written with WEIR_KERNEL as users do. The C compiler builds it for the CPU.
 * nvcc, if present, builds it into a module for GPUs. libweir carries the module as bytes (cmake/weir_module.cmake) and
 * passes it to the driver when a GPU is opened: no first launch loads code while a kernel spins, and libweir does not
 * link the CUDA runtime. weir_launch takes these kernels like any other. */
#ifndef WEIRI_KERNELS_H
#define WEIRI_KERNELS_H

#include "weir/device/kernel.h"

enum {
    WEIRI_FAMILY_PORT_CHANNEL,
    WEIRI_FAMILY_COLLECTIVE,
    WEIRI_FAMILY_COLLECTIVE_FLOAT,
    WEIRI_FAMILY_COLLECTIVE_HALF,
    WEIRI_FAMILY_COLLECTIVE_F8,
    WEIRI_FAMILY_COLLECTIVE_SMALL,
    WEIRI_FAMILY_COLLECTIVE_INTEGER,
    WEIRI_FAMILY_COLLECTIVE_SCALED,
    WEIRI_FAMILY_COLLECTIVE_SUMS,
    WEIRI_FAMILY_COLLECTIVE_UNEVEN,
    WEIRI_FAMILY_COLLECTIVE_PARTS,
    WEIRI_FAMILY_COLLECTIVE_EXCHANGE,
    WEIRI_FAMILY_COLLECTIVE_RAILS,
    WEIRI_FAMILY_TABLE,
    WEIRI_FAMILY_LAYOUT,
    WEIRI_FAMILY_HALO,
    WEIRI_FAMILIES
};

typedef struct weiri_kernel_family {
    const unsigned char *module;       /* begins with 0 if it was not built; the text behind the 0 says why */
    const weir_kernel *const *kernels; /* NULL past the last */
} weiri_kernel_family;

extern const weiri_kernel_family weiri_kernel_families[WEIRI_FAMILIES];

#endif
