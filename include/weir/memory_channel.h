/* weir/memory_channel.h - kernels read and write a peer's memory directly.
 *
 *     weir_memory_channel_connect(comm, peer, tag, local, NULL, &channel);    on both ranks
 *     weir_memory_channel_device(channel, &args.channel);             a plain struct for kernels
 *     ...                                                             weir/device/memory_channel.h
 *     weir_memory_channel_destroy(channel);
 *
 * A memory channel is a semaphore, a memory of the peer (`remote`) and one of this rank (`local`). For packets `remote`
 * is the peer's packet buffer, and opts.packets the local one, into which the peer's channel puts. A packet buffer
 * starts zeroed (weir_memory_allocate does that) and serves one channel: packets that an earlier channel left in it
 * would be taken for those of the new one.
 *
 * weir_memory_channel_connect makes everything that a channel needs, and weir_memory_channel_create takes parts that
 * the caller has made: weir_connection_create, weir_semaphore_create, weir_memory_send and weir_memory_recv.
 *
 * Threads:   one thread at a time per channel; distinct channels are independent.
 * Blocking:  connect, until the peer has called it. The other calls never block.
 * Ownership: keeps references on semaphore, `remote`, `local` and packets. Kernels must not use the handle after
 *            destroy.
 * Errors:    WEIR_ERR_INVALID (`remote` is not memory of the semaphore's peer, `local` or packets not of this rank,
 *            packets not 16-byte aligned, a semaphore of a host end), WEIR_ERR_UNSUPPORTED (`remote` is not mapped
 *            here), WEIR_ERR_LIMIT, WEIR_ERR_NOMEM; of connect also those of weir_connection_create,
 *            weir_semaphore_create and weir_memory_recv, and WEIR_ERR_MISMATCH. */
#ifndef WEIR_MEMORY_CHANNEL_H
#define WEIR_MEMORY_CHANNEL_H

#include "weir/memory.h"
#include "weir/semaphore.h"

WEIR_BEGIN_DECLS

typedef struct weir_memory_channel weir_memory_channel;

typedef struct weir_memory_channel_opts {
    size_t size;
    weir_memory *packets; /* local packet buffer; NULL for a channel without packets */
} weir_memory_channel_opts;

WEIR_API WEIR_NODISCARD weir_status weir_memory_channel_create(weir_semaphore *semaphore, weir_memory *remote,
                                                               weir_memory *local, const weir_memory_channel_opts *opts,
                                                               weir_memory_channel **out);

typedef struct weir_memory_channel_connect_opts {
    size_t size;
    weir_connection *connection; /* to the peer, given by both ranks; NULL: a new one */
    uint32_t semaphores;         /* of the channel's set, the same on both ranks; 0: one */
    weir_memory *packets;        /* packet buffer of this rank, of the same size as the peer's; NULL: no packets */
} weir_memory_channel_connect_opts;

/* Makes a channel to `peer`, which makes the same call with this rank as its peer, and the same tag. The
 * channel's remote memory is what the peer gives as `local`; the two may have different sizes. With opts->packets it is
 * the peer's packet buffer instead.
 *
 * The connection, the semaphores and the mapping of the remote memory belong to the channel and end with it. The
 * getters below return them. A rank may connect to itself: one call makes both ends.
 *
 * A rank that makes channels to several peers takes the peers in ascending order, and the channels to one peer in the
 * same order of tags as that peer does. Then no set of ranks waits for each other in a circle:
 *
 *     for (uint32_t peer = 0; peer < weir_comm_size(comm) && status == WEIR_OK; peer++) {
 *         if (peer != weir_comm_rank(comm)) {
 *             status = weir_memory_channel_connect(comm, peer, 0, local, NULL, &channels[peer]);
 *         }
 *     }
 *
 * The call waits for the peer, in all for the communicator's timeout at most. WEIR_ERR_MISMATCH: the peer has made
 * another call with this tag, or one of the two ranks gives a connection, a number of semaphores or a size of packets
 * that the other does not. A call that fails on one rank may have succeeded on the other. */
WEIR_API WEIR_NODISCARD weir_status weir_memory_channel_connect(weir_comm *comm, uint32_t peer, uint64_t tag,
                                                                weir_memory *local,
                                                                const weir_memory_channel_connect_opts *opts,
                                                                weir_memory_channel **out);

WEIR_API void weir_memory_channel_destroy(weir_memory_channel *channel);
WEIR_API void weir_memory_channel_device(const weir_memory_channel *channel, weir_dev_memory_channel *out);

/* Objects to which the channel keeps references: valid until its end. weir_semaphore_connection has the connection. */
WEIR_API weir_semaphore *weir_memory_channel_semaphore(const weir_memory_channel *channel);
WEIR_API weir_memory *weir_memory_channel_remote(const weir_memory_channel *channel);
WEIR_API weir_memory *weir_memory_channel_local(const weir_memory_channel *channel);
/* NULL for a channel without packets. */
WEIR_API weir_memory *weir_memory_channel_packets(const weir_memory_channel *channel);

WEIR_END_DECLS

#endif
