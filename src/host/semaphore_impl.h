/* semaphore_impl.h - the semaphore as channels see it. */
#ifndef WEIRI_SEMAPHORE_IMPL_H
#define WEIRI_SEMAPHORE_IMPL_H

#include "src/host/connection_impl.h"
#include "weir/semaphore.h"

/* Each side has a cell in both slabs, since it learns only from the peer's message which one its token lives
 * in: device memory when kernels signal and kernels wait, host memory otherwise, which the CPU can store to
 * and kernels can read; always over a transport that maps nothing, since host memory keeps the order of what a NIC
 * writes. The first line of a cell is two tokens, which the peer's kernels and host count up, and the one that a port
 * channel of the peer's stores to; the second is our counts of consumed and of sent signals. */
struct weir_semaphore {
    weiri_refcount refs;
    weir_connection *connection;
    weir_semaphore_end end;
    uint32_t count; /* of the set: cells in a row */
    uint64_t device_cell;
    uint64_t host_cell;
    uint64_t peer_cell; /* offset of the peer's cell with our outbound token, in its host slab or its device slab */
    bool peer_in_host;
    weiri_queue *queue; /* joined to the peer's; NULL for a transport without, and once a port channel has taken it */
    uint32_t memory_channels; /* that use it; comm's mutex, as below */
    bool port_channel;        /* one has used it, and nothing else may */
    bool retired; /* the peer may hold a token in our cells: they are never used again */
    weir_dev_semaphore device; /* of a device end */
    uint64_t *inbound;         /* of a host end; two tokens */
    uint64_t *outbound; /* NULL when it is not mapped */
    uint64_t consumed;
};

void weiri_semaphore_get(weir_semaphore *semaphore);

/* Before a channel uses it: WEIR_ERR_INVALID when a channel of the other kind does, or two port channels would. */
weir_status weiri_semaphore_claim(weir_semaphore *semaphore, bool port_channel, const char *call);
/* A memory channel uses it no more, or a port channel was not made after all. */
void weiri_semaphore_unclaim(weir_semaphore *semaphore, bool port_channel);

/* The second token of a cell. */
#define WEIRI_STORED_OFFSET 8u

#endif
