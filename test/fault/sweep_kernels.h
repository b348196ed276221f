/* sweep_kernels.h - a kernel that uses port channels once; for sweep_test.cc. */
#ifndef WEIRT_SWEEP_KERNELS_H
#define WEIRT_SWEEP_KERNELS_H

#include "weir/device/kernel.h"
#include "weir/device/port_channel.h"

#if defined(__cplusplus)
extern "C" {
#endif

/* Puts 64 bytes and signals over `out`, waits until they are sent, and waits for a signal of `in`. */
typedef struct sweep_args {
    weir_dev_port_channel out;
    weir_dev_port_channel in; /* may be the same channel */
    int32_t *report;          /* status */
} sweep_args;

const weir_kernel *sweep_kernel(void);

#if defined(__cplusplus)
}
#endif

#endif
