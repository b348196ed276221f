/* collective_uneven.h - the reduce_scatters of one part, whose extents may differ in size, of one type and operation.
 * Each includes it once, with
 *
 *   UNEVEN_NAME(form)   the kernel's name
 *   UNEVEN_DTYPE        the type, a constant
 *   UNEVEN_OP           the operation, a constant
 *
 * Therefore it has no include guard. */
#include "src/device/kernels/collective.h"

WEIRI_PACKET_KERNEL(UNEVEN_NAME(packets), weiri_uneven_args)
{
    (void)weir_reduce_by_packets(&args->collective, &args->reduce, args->extents, UNEVEN_DTYPE, UNEVEN_OP, coop);
}

WEIRI_PACKET_KERNEL(UNEVEN_NAME(lines), weiri_uneven_args)
{
    (void)weir_reduce_by_lines(&args->collective, &args->reduce, args->extents, UNEVEN_DTYPE, UNEVEN_OP, coop);
}

WEIR_KERNEL_FOR(UNEVEN_NAME(two), weiri_uneven_args, WEIRI_TWO_THREADS)
{
    (void)weir_reduce_lines_two(&args->collective, &args->reduce, args->extents, UNEVEN_DTYPE, UNEVEN_OP, coop);
}

#undef UNEVEN_NAME
#undef UNEVEN_DTYPE
#undef UNEVEN_OP
