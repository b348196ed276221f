/* engine_kernels.c - see engine_kernels.h. */
#define WEIR_PORT_ENGINE WEIR_PORT_BY_PROXY

#include "engine_kernels.h"

WEIR_KERNEL(engine_put, engine_args)
{
    if (coop.rank == 0) {
        args->status[0] =
            (int32_t)weir_dev_port_channel_put(&args->channel, 0, 0, args->bytes, weir_coop_thread(coop), NULL);
        args->status[1] = (int32_t)weir_dev_port_channel_flush(&args->channel, NULL);
    }
}

const weir_kernel *engine_kernel(void) { return &engine_put; }
