/* none.c - built instead of the CUDA backend if cuda.h is missing: a device kind without devices. Only `count` is ever
 * called, because a device that does not exist cannot be opened. */
#include <stdio.h>

#include "src/device/device.h"
#include "src/host/base/error.h"

#define REASON_BYTES 256
#define REASON "built without CUDA"

static uint32_t none_count(char *reason)
{
    snprintf(reason, REASON_BYTES, REASON);
    return 0;
}

static weir_status none_open(weir_device *device)
{
    return weiri_fail(WEIR_ERR_UNSUPPORTED, "gpu:%u: " REASON, device->info.index);
}

const weiri_device_ops weiri_cuda_ops = {
    .kind = "gpu",
    .label = "GPU",
    .count = none_count,
    .open = none_open,
};
