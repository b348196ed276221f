/* halo.h - the kernel of halos; its argument is a weir_dev_halo. host/halo launches it. */
#ifndef WEIRI_KERNELS_HALO_H
#define WEIRI_KERNELS_HALO_H

#include "weir/device/halo.h"
#include "weir/device/kernel.h"

#if defined(__cplusplus)
extern "C" {
#endif

extern const weir_kernel *const weiri_halo_kernels[];

#if defined(__cplusplus)
}
#endif

#endif
