/* sweep_kernels.c - see sweep_kernels.h. */
#include "sweep_kernels.h"

WEIR_KERNEL(sweep_put, sweep_args)
{
    const weir_coop alone = weir_coop_thread(coop);
    weir_status status = weir_dev_port_channel_put_signal_flush(&args->out, 0, 64, 64, alone, NULL);
    if (status == WEIR_OK) {
        status = weir_dev_port_channel_wait(&args->in);
    }
    *args->report = (int32_t)status;
}

const weir_kernel *sweep_kernel(void) { return &sweep_put; }
