/* liveness_kernels.c - see liveness_kernels.h. */
#include "liveness_kernels.h"

WEIR_FN void pause_for(uint64_t ns)
{
    const uint64_t begun = weir_arch_clock_ns();
    while (weir_arch_clock_ns() - begun < ns) {
    }
}

WEIR_KERNEL(liveness, liveness_args)
{
    weir_status status = WEIR_OK;
    uint64_t trips = 0;
    if (coop.rank != 0) {
        return;
    }
    while (status == WEIR_OK) {
        if (args->pause_ns != 0) {
            pause_for(args->pause_ns);
        }
        weir_dev_semaphore_signal(&args->semaphore);
        status = weir_dev_semaphore_wait(&args->semaphore);
        weir_arch_store_relaxed_sys_u64(&args->report->trips, ++trips);
    }
    args->report->status = (int32_t)status;
    args->report->ended = 1;
}

const weir_kernel *liveness_kernel(void) { return &liveness; }
