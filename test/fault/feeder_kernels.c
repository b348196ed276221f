/* feeder_kernels.c - see feeder_kernels.h. */
#include "feeder_kernels.h"

WEIR_KERNEL(feeder_sample, feeder_args)
{
    for (uint64_t i = coop.rank; i < FEEDER_SAMPLES; i += coop.size) {
        args->ids[i] = feeder_id(args->batch, (uint32_t)i);
    }
}

WEIR_KERNEL(feeder_await, feeder_args)
{
    if (coop.rank == 0) {
        weir_arch_store_relaxed_sys_u32(&args->report->began[args->batch], 1);
        args->report->status[args->batch] = (int32_t)weir_dev_semaphore_wait(&args->semaphore);
    }
}

WEIR_KERNEL(feeder_announce, feeder_args)
{
    if (coop.rank == 0) {
        weir_dev_semaphore_signal(&args->semaphore);
    }
}

const weir_kernel *feeder_sample_kernel(void) { return &feeder_sample; }
const weir_kernel *feeder_await_kernel(void) { return &feeder_await; }
const weir_kernel *feeder_announce_kernel(void) { return &feeder_announce; }
