/* fake_kernel.h - kernels for a driver whose kernels do nothing. */
#ifndef WEIRT_FAKE_KERNEL_H
#define WEIRT_FAKE_KERNEL_H

#include "weir/device/kernel.h"

#define WEIRT_FAKE_ARGS 16u /* bytes of arguments */

/* A kernel that has `gpu` for the CUDA runtime's part. */
static inline weir_kernel weirt_fake_kernel(int (*gpu)(void **function))
{
    weir_kernel kernel = { WEIR_DEV_VERSION, WEIRT_FAKE_ARGS, "of_a_test", NULL, gpu, { 0 } };
    return kernel;
}

#endif
