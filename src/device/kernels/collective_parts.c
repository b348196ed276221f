/* collective_parts.c - allgather and reduce_scatter of many parts; see collective.h. The parts of a launch may differ
 * in type. Sums of halves and floats, which training needs most, have kernels by lines and slots for parts of one type,
 * and others by slots for misaligned parts of one type, without and with a factor. */
#include "src/device/kernels/collective.h"

/* With one block on a multiprocessor. Without the second number the compiler leaves a thread of the kernel of all types
 * half of the registers. */
#define SLOT_BOUNDS WEIRI_SLOT_THREADS, 1

WEIRI_PACKET_KERNEL(weiri_parts_gather_packets, weiri_parts_args)
{
    (void)weir_collective_parts_packets(&args->collective, &args->parts, 0, coop);
}

WEIRI_PACKET_KERNEL(weiri_parts_gather_lines, weiri_parts_args)
{
    (void)weir_collective_parts_lines(&args->collective, &args->parts, 0, WEIR_PARTS_ANY_TYPE, 0, coop);
}

WEIR_KERNEL_FOR(weiri_parts_gather_slots, weiri_parts_args, SLOT_BOUNDS)
{
    (void)weir_collective_gather_parts_slots(&args->collective, &args->parts, coop);
}

WEIRI_PACKET_KERNEL(weiri_parts_reduce_packets, weiri_parts_args)
{
    (void)weir_collective_parts_packets(&args->collective, &args->parts, 1, coop);
}

WEIRI_PACKET_KERNEL(weiri_parts_reduce_lines, weiri_parts_args)
{
    (void)weir_collective_parts_lines(&args->collective, &args->parts, 1, WEIR_PARTS_ANY_TYPE, args->parts.op, coop);
}

WEIR_KERNEL_FOR(weiri_parts_reduce_slots, weiri_parts_args, SLOT_BOUNDS)
{
    (void)weir_collective_reduce_parts_slots(&args->collective, &args->parts, WEIR_PARTS_ANY_TYPE, args->parts.op, 0,
                                             coop);
}

WEIR_KERNEL_FOR(weiri_parts_sum_f16, weiri_parts_args, SLOT_BOUNDS)
{
    (void)weir_collective_reduce_parts_slots(&args->collective, &args->parts, WEIR_F16, WEIR_SUM, 0, coop);
}

WEIR_KERNEL_FOR(weiri_parts_sum_bf16, weiri_parts_args, SLOT_BOUNDS)
{
    (void)weir_collective_reduce_parts_slots(&args->collective, &args->parts, WEIR_BF16, WEIR_SUM, 0, coop);
}

WEIR_KERNEL_FOR(weiri_parts_sum_f32, weiri_parts_args, SLOT_BOUNDS)
{
    (void)weir_collective_reduce_parts_slots(&args->collective, &args->parts, WEIR_F32, WEIR_SUM, 0, coop);
}

WEIR_KERNEL_FOR(weiri_parts_align_f16, weiri_parts_args, SLOT_BOUNDS)
{
    (void)weir_collective_reduce_parts_slots(&args->collective, &args->parts, WEIR_F16, WEIR_SUM, 1, coop);
}

WEIR_KERNEL_FOR(weiri_parts_align_bf16, weiri_parts_args, SLOT_BOUNDS)
{
    (void)weir_collective_reduce_parts_slots(&args->collective, &args->parts, WEIR_BF16, WEIR_SUM, 1, coop);
}

WEIR_KERNEL_FOR(weiri_parts_align_f32, weiri_parts_args, SLOT_BOUNDS)
{
    (void)weir_collective_reduce_parts_slots(&args->collective, &args->parts, WEIR_F32, WEIR_SUM, 1, coop);
}

WEIR_KERNEL_FOR(weiri_parts_scaled_f16, weiri_parts_args, SLOT_BOUNDS)
{
    (void)weir_collective_reduce_parts_slots(&args->collective, &args->parts, WEIR_F16, WEIR_SCALED_SUM, 0, coop);
}

WEIR_KERNEL_FOR(weiri_parts_scaled_bf16, weiri_parts_args, SLOT_BOUNDS)
{
    (void)weir_collective_reduce_parts_slots(&args->collective, &args->parts, WEIR_BF16, WEIR_SCALED_SUM, 0, coop);
}

WEIR_KERNEL_FOR(weiri_parts_scaled_f32, weiri_parts_args, SLOT_BOUNDS)
{
    (void)weir_collective_reduce_parts_slots(&args->collective, &args->parts, WEIR_F32, WEIR_SCALED_SUM, 0, coop);
}

WEIR_KERNEL_FOR(weiri_parts_scaled_align_f16, weiri_parts_args, SLOT_BOUNDS)
{
    (void)weir_collective_reduce_parts_slots(&args->collective, &args->parts, WEIR_F16, WEIR_SCALED_SUM, 1, coop);
}

WEIR_KERNEL_FOR(weiri_parts_scaled_align_bf16, weiri_parts_args, SLOT_BOUNDS)
{
    (void)weir_collective_reduce_parts_slots(&args->collective, &args->parts, WEIR_BF16, WEIR_SCALED_SUM, 1, coop);
}

WEIR_KERNEL_FOR(weiri_parts_scaled_align_f32, weiri_parts_args, SLOT_BOUNDS)
{
    (void)weir_collective_reduce_parts_slots(&args->collective, &args->parts, WEIR_F32, WEIR_SCALED_SUM, 1, coop);
}

WEIRI_PACKET_KERNEL(weiri_parts_lines_f16, weiri_parts_args)
{
    (void)weir_collective_parts_lines(&args->collective, &args->parts, 1, WEIR_F16, WEIR_SUM, coop);
}

WEIRI_PACKET_KERNEL(weiri_parts_lines_bf16, weiri_parts_args)
{
    (void)weir_collective_parts_lines(&args->collective, &args->parts, 1, WEIR_BF16, WEIR_SUM, coop);
}

WEIRI_PACKET_KERNEL(weiri_parts_lines_f32, weiri_parts_args)
{
    (void)weir_collective_parts_lines(&args->collective, &args->parts, 1, WEIR_F32, WEIR_SUM, coop);
}

WEIRI_PACKET_KERNEL(weiri_parts_scaled_lines_f16, weiri_parts_args)
{
    (void)weir_collective_parts_lines(&args->collective, &args->parts, 1, WEIR_F16, WEIR_SCALED_SUM, coop);
}

WEIRI_PACKET_KERNEL(weiri_parts_scaled_lines_bf16, weiri_parts_args)
{
    (void)weir_collective_parts_lines(&args->collective, &args->parts, 1, WEIR_BF16, WEIR_SCALED_SUM, coop);
}

WEIRI_PACKET_KERNEL(weiri_parts_scaled_lines_f32, weiri_parts_args)
{
    (void)weir_collective_parts_lines(&args->collective, &args->parts, 1, WEIR_F32, WEIR_SCALED_SUM, coop);
}

const weir_kernel *const weiri_collective_parts_kernels[] = { &weiri_parts_gather_packets,
                                                              &weiri_parts_gather_lines,
                                                              &weiri_parts_gather_slots,
                                                              &weiri_parts_reduce_packets,
                                                              &weiri_parts_reduce_lines,
                                                              &weiri_parts_reduce_slots,
                                                              &weiri_parts_sum_f16,
                                                              &weiri_parts_sum_bf16,
                                                              &weiri_parts_sum_f32,
                                                              &weiri_parts_align_f16,
                                                              &weiri_parts_align_bf16,
                                                              &weiri_parts_align_f32,
                                                              &weiri_parts_scaled_f16,
                                                              &weiri_parts_scaled_bf16,
                                                              &weiri_parts_scaled_f32,
                                                              &weiri_parts_scaled_align_f16,
                                                              &weiri_parts_scaled_align_bf16,
                                                              &weiri_parts_scaled_align_f32,
                                                              &weiri_parts_lines_f16,
                                                              &weiri_parts_lines_bf16,
                                                              &weiri_parts_lines_f32,
                                                              &weiri_parts_scaled_lines_f16,
                                                              &weiri_parts_scaled_lines_bf16,
                                                              &weiri_parts_scaled_lines_f32,
                                                              NULL };
