/* liveness_kernels.h - a kernel that runs until its communicator fails; for liveness_test.cc. */
#ifndef WEIRT_LIVENESS_KERNELS_H
#define WEIRT_LIVENESS_KERNELS_H

#include "weir/device/kernel.h"

#if defined(__cplusplus)
extern "C" {
#endif

typedef struct liveness_report {
    uint64_t trips; /* signals sent and waited for so far */
    int32_t status; /* of the last wait */
    uint32_t ended; /* 1: the kernel has left its loop */
} liveness_report;

/* Two ranks pass a signal back and forth. Each wait finds its signal at once, and nothing else checks for errors. */
typedef struct liveness_args {
    weir_dev_semaphore semaphore;
    liveness_report *report;
    uint64_t pause_ns; /* before each signal */
} liveness_args;

const weir_kernel *liveness_kernel(void);

#if defined(__cplusplus)
}
#endif

#endif
