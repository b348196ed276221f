/* fake_kernel.h - kernels for a driver whose kernels do nothing. */
#ifndef WEIRT_FAKE_KERNEL_H
#define WEIRT_FAKE_KERNEL_H

#include "weir/device/kernel.h"

#define WEIRT_FAKE_ARGS 16u /* bytes of arguments */

/* The answer of the CUDA runtime for a kernel whose function does not matter. */
static inline int weirt_fake_function(void **function)
{
    static char a_function;
    *function = &a_function;
    return 0;
}

/* A kernel that has `gpu` for the CUDA runtime's part. */
static inline weir_kernel weirt_fake_kernel(int (*gpu)(void **function))
{
    weir_kernel kernel = { WEIR_DEV_VERSION, WEIRT_FAKE_ARGS, "of_a_test", NULL, gpu, { 0 } };
    return kernel;
}

#endif
