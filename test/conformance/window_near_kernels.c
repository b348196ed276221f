/* window_near_kernels.c - a kernel without the port's part of windows. */
#define WEIR_WINDOW_NO_PORT
#include "window_port_kernels.h"

WEIR_KERNEL(window_near, window_port_args)
{
    const weir_coop block = weir_coop_block(coop);
    const weir_dev_window_rank self = weir_dev_window_at(&args->window, 0);
    const uint32_t target = args->op == WINDOW_PORT_ONE ? args->window.ranks : self.number;
    if (coop.block == 0) {
        weir_status status = WEIR_OK;
        if (args->op == WINDOW_PORT_SEND) {
            for (uint32_t i = 0; i < args->rounds + 1 && status == WEIR_OK; i++) {
                status = weir_dev_window_wait(&self, 0, WEIR_ANY_TAG, 1, block);
            }
        } else {
            status = weir_dev_window_notify(&self, target, 1, block);
        }
        if (block.rank == 0) {
            args->report->status[0] = (int32_t)status;
        }
    }
}

const weir_kernel *window_near_kernel(void) { return &window_near; }
