/* halo.c - see halo.h. Each block makes its shares of the exchange by itself. */
#include "src/device/kernels/halo.h"

WEIR_KERNEL_FOR(weiri_halo_exchange, weir_dev_halo, 256)
{
    const weir_coop blocks = weir_coop_blocks(coop);
    if (weir_dev_halo_put(args, blocks) == WEIR_OK) {
        (void)weir_dev_halo_wait(args, blocks); /* the communicator has the error */
    }
}

const weir_kernel *const weiri_halo_kernels[] = { &weiri_halo_exchange, NULL };
