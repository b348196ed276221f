/* halo_kernels.c - see halo_kernels.h. */
#include "test/conformance/halo_kernels.h"

WEIR_KERNEL(halo_rounds, halo_kernel_args)
{
    coop.barrier = &args->barrier;
    const weir_coop all = args->group == HALO_GRID    ? coop
                          : args->group == HALO_BLOCK ? weir_coop_block(coop)
                                                      : weir_coop_warp(coop);
    weir_status status = WEIR_OK;
    if (args->group == HALO_BLOCK && coop.block != 0) {
        return;
    }
    for (uint32_t round = 0; round < args->rounds && status == WEIR_OK; round++) {
        for (uint64_t i = all.rank; i < args->count && args->group != HALO_WARP; i += all.size) {
            if ((args->expected[i] & HALO_GHOST) == 0) {
                args->cells[i] = args->expected[i] + round;
            }
        }
        status = weir_dev_halo_put(&args->halo, all);
        if (status == WEIR_OK) {
            status = weir_dev_halo_wait(&args->halo, all);
        }
        for (uint64_t i = all.rank; i < args->count && status == WEIR_OK; i += all.size) {
            if (args->cells[i] != (args->expected[i] & ~HALO_GHOST) + round) {
                weir_arch_add_relaxed_sys_u64(args->wrong, 1);
            }
        }
    }
    if (status != WEIR_OK) {
        weir_arch_store_relaxed_sys_u32((uint32_t *)args->status, (uint32_t)status); /* by several threads */
    }
}

const weir_kernel *const halo_kernel = &halo_rounds;
