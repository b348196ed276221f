/* engine_kernels.h - a kernel that is built for only one engine of port channels; for port_device_test.cc. */
#ifndef WEIRT_ENGINE_KERNELS_H
#define WEIRT_ENGINE_KERNELS_H

#include "weir/device/kernel.h"
#include "weir/device/port_channel.h"
#include "weir/device/types.h"

#if defined(__cplusplus)
extern "C" {
#endif

/* Puts `bytes` from the start of the local memory to the start of the remote one, and flushes. */
typedef struct engine_args {
    weir_dev_port_channel channel;
    int32_t *status; /* of both calls */
    uint64_t bytes;
} engine_args;

const weir_kernel *engine_kernel(void); /* for the proxy */

#if defined(__cplusplus)
}
#endif

#endif
