/* window_resident_kernels.c - see window_resident_kernels.h. */
#include "window_resident_kernels.h"

WEIR_KERNEL(window_resident, window_resident_args)
{
    const weir_coop block = weir_coop_block(coop);
    const weir_dev_window_rank self = weir_dev_window_at(&args->window, coop.block);
    weir_status status = WEIR_OK;
    if (coop.block == 0) {
        status = weir_dev_window_wait(&self, WEIR_ANY_RANK, 1, coop.blocks - 1, block);
        for (uint32_t i = 1; i < coop.blocks && status == WEIR_OK; i++) {
            status = weir_dev_window_notify(&self, i, 2, block);
        }
    } else {
        status = weir_dev_window_notify(&self, 0, 1, block);
        status = status == WEIR_OK ? weir_dev_window_wait(&self, 0, 2, 1, block) : status;
    }
    if (block.rank == 0) {
        args->status[coop.block] = (int32_t)status;
    }
}

const weir_kernel *window_resident_kernel(void) { return &window_resident; }
