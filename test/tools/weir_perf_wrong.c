/* weir_perf_wrong.c - an allreduce that gives its result only to rank 0. */
#include "weir/collective.h"

weir_status weir_allreduce(weir_collective *collective, const void *send, void *recv, uint64_t count, weir_dtype dtype,
                           weir_op op, void *stream)
{
    return weir_reduce(collective, send, recv, count, dtype, op, 0, stream);
}
