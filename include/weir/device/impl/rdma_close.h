/* weir/device/impl/rdma_close.h - the end of a shared queue on purpose: a last entry, and nothing behind it.
 *
 * A port channel whose kernels post ends its queue so for a request that cannot be carried out.
 *
 * Threads, Blocking, Errors: as weir/device/rdma.h. */
#ifndef WEIR_DEVICE_IMPL_RDMA_CLOSE_H
#define WEIR_DEVICE_IMPL_RDMA_CLOSE_H

#include "weir/device/rdma.h"

/* Reserves the last entry of a shared queue: nothing is posted behind it any more, and earlier entries go on. After
 * WEIR_OK no other thread gets as far. The caller then closes the queue by weir_dev_rdma_refuse. */
WEIR_FN weir_status weir_dev_rdma_reserve_last(const weir_dev_rdma *queue, uint64_t *position)
{
    weir_dev_rdma_span span;
    weir_status status = weir_dev_rdma_reserve(queue, 1, &span);
    if (status == WEIR_OK && !span.is_next) {
        status = WEIR_SLOW(weir_dev_rdma_await_turn(queue, span.first));
    }
    if (status == WEIR_OK) {
        *position = span.first;
    }
    return status;
}

WEIR_FN void weir_dev_rdma_refuse(const weir_dev_rdma *queue, uint64_t position)
{
    weir_arch_store_release_dev_u64(&queue->state->refused, position + 1);
}

#endif
