/* collective_parts.c - allgather and reduce_scatter of many parts; see collective.h. One kernel joins parts of all
 * types, because the parts of a launch may differ in type. */
#include "src/device/kernels/collective.h"

WEIR_KERNEL(weiri_parts_gather_packets, weiri_parts_args)
{
    (void)weir_collective_parts_packets(&args->collective, &args->parts, 0, coop);
}

WEIR_KERNEL_FOR(weiri_parts_gather_slots, weiri_parts_args, WEIRI_SLOT_THREADS)
{
    (void)weir_collective_parts_slots(&args->collective, &args->parts, 0, coop);
}

WEIR_KERNEL(weiri_parts_reduce_packets, weiri_parts_args)
{
    (void)weir_collective_parts_packets(&args->collective, &args->parts, 1, coop);
}

WEIR_KERNEL_FOR(weiri_parts_reduce_slots, weiri_parts_args, WEIRI_SLOT_THREADS)
{
    (void)weir_collective_parts_slots(&args->collective, &args->parts, 1, coop);
}

const weir_kernel *const weiri_collective_parts_kernels[] = { &weiri_parts_gather_packets, &weiri_parts_gather_slots,
                                                              &weiri_parts_reduce_packets, &weiri_parts_reduce_slots,
                                                              NULL };
