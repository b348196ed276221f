/* kernels.h - kernels of our own.
 *
 * A file of src/device/kernels is a family, written with WEIR_KERNEL as users do. The C compiler builds it for the CPU.
 * nvcc, where it is, builds it into a module for GPUs, which libweir carries as bytes (cmake/weir_module.cmake) and
 * hands to the driver when a GPU is opened: no first launch loads code while a kernel spins, and nothing of the CUDA
 * runtime is linked. weir_launch takes the kernels like any other. */
#ifndef WEIRI_KERNELS_H
#define WEIRI_KERNELS_H

#include "weir/device/kernel.h"

enum {
    WEIRI_FAMILY_PORT_CHANNEL,
    WEIRI_FAMILY_COLLECTIVE,
    WEIRI_FAMILY_COLLECTIVE_FLOAT,
    WEIRI_FAMILY_COLLECTIVE_HALF,
    WEIRI_FAMILY_COLLECTIVE_SMALL,
    WEIRI_FAMILY_COLLECTIVE_INTEGER,
    WEIRI_FAMILY_COLLECTIVE_RAILS,
    WEIRI_FAMILIES
};

typedef struct weiri_kernel_family {
    const unsigned char *module;       /* begins with 0 where it was not built; the text behind says why */
    const weir_kernel *const *kernels; /* NULL past the last */
} weiri_kernel_family;

extern const weiri_kernel_family weiri_kernel_families[WEIRI_FAMILIES];

#endif
