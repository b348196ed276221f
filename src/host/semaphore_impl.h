/* semaphore_impl.h - the semaphore as memory channels see it. */
#ifndef WEIRI_SEMAPHORE_IMPL_H
#define WEIRI_SEMAPHORE_IMPL_H

#include "src/host/connection_impl.h"
#include "weir/semaphore.h"

/* Each side has a cell in both slabs, since it learns only from the peer's message which one its token lives
 * in: device memory when kernels signal and kernels wait, host memory otherwise, which the CPU can store to
 * and kernels can read. The first line of a cell is the token, the second our counts of consumed and of sent signals.
 */
struct weir_semaphore {
    weiri_refcount refs;
    weir_connection *connection;
    weir_semaphore_end end;
    uint32_t count; /* of the set: cells in a row */
    uint64_t device_cell;
    uint64_t host_cell;
    bool retired; /* the peer may hold a token in our cells: they are never used again */
    weir_dev_semaphore device; /* of a device end */
    uint64_t *inbound;         /* of a host end */
    uint64_t *outbound;
    uint64_t consumed;
};

void weiri_semaphore_get(weir_semaphore *semaphore);

#endif
