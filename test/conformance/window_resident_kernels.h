/* window_resident_kernels.h - a kernel for window_resident_test.cc: a grid in which all blocks wait for all others. */
#ifndef WEIRT_WINDOW_RESIDENT_KERNELS_H
#define WEIRT_WINDOW_RESIDENT_KERNELS_H

#include "weir/device/kernel.h"
#include "weir/device/window.h"

#if defined(__cplusplus)
extern "C" {
#endif

/* Each block is a rank of one device. Rank 0 waits for a notification of every other one, and then notifies them. */
typedef struct window_resident_args {
    weir_dev_window window;
    int32_t *status; /* of each block */
} window_resident_args;

const weir_kernel *window_resident_kernel(void);

#if defined(__cplusplus)
}
#endif

#endif
