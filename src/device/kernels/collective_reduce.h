/* collective_reduce.h - the reductions of one type. Each type includes it once, with
 *
 *   REDUCE_NAME(form)   the kernel's name
 *   REDUCE_DTYPE        the type, a constant
 *   REDUCE_OP           the operation: a constant, or args->op
 *
 * Therefore it has no include guard. */
#include "src/device/kernels/collective.h"

#define REDUCE_KERNEL(name, args_type) WEIRI_PACKET_KERNEL(name, args_type)
#define REDUCE_LARGE_KERNEL(name, args_type) WEIR_KERNEL_FOR(name, args_type, WEIRI_SLOT_THREADS)

REDUCE_KERNEL(REDUCE_NAME(once), weiri_reduce_args)
{
    (void)weir_collective_reduce_once(&args->collective, &args->reduce, REDUCE_DTYPE, REDUCE_OP, coop);
}

REDUCE_KERNEL(REDUCE_NAME(packets), weiri_reduce_args)
{
    (void)weir_collective_reduce_packets(&args->collective, &args->reduce, REDUCE_DTYPE, REDUCE_OP, coop);
}

REDUCE_KERNEL(REDUCE_NAME(lines), weiri_reduce_args)
{
    (void)weir_collective_reduce_lines(&args->collective, &args->reduce, REDUCE_DTYPE, REDUCE_OP, coop);
}

REDUCE_LARGE_KERNEL(REDUCE_NAME(slots), weiri_reduce_args)
{
    (void)weir_collective_reduce_slots(&args->collective, &args->reduce, REDUCE_DTYPE, REDUCE_OP, coop);
}

REDUCE_LARGE_KERNEL(REDUCE_NAME(zero_copy), weiri_reduce_args)
{
    (void)weir_collective_reduce_zero_copy(&args->collective, &args->reduce, REDUCE_DTYPE, REDUCE_OP, coop);
}

WEIR_KERNEL_FOR(REDUCE_NAME(two), weiri_reduce_args, WEIRI_TWO_THREADS)
{
    (void)weir_reduce_lines_two(&args->collective, &args->reduce, NULL, REDUCE_DTYPE, REDUCE_OP, coop);
}

#undef REDUCE_KERNEL
#undef REDUCE_LARGE_KERNEL
#undef REDUCE_NAME
#undef REDUCE_DTYPE
#undef REDUCE_OP
