/* weir/memory_channel.h - kernels read and write a peer's memory directly.
 *
 *     weir_memory_channel_create(semaphore, remote, local, NULL, &channel);
 *     weir_memory_channel_device(channel, &args.channel);             a plain struct for kernels
 *     ...                                                             weir/device/memory_channel.h
 *     weir_memory_channel_destroy(channel);
 *
 * A memory channel is a semaphore, a remote memory (dst) and a local one (src). For packets dst is the peer's
 * packet buffer, and opts.packets the local one, into which the peer's channel puts. A packet buffer starts zeroed
 * (weir_memory_allocate does that) and serves one channel: packets that an earlier channel left in it would be taken
 * for those of the new one.
 *
 * Threads:   one thread at a time per channel; distinct channels are independent.
 * Blocking:  never.
 * Ownership: keeps references on semaphore, dst, src and packets. Kernels must not use the handle after
 *            destroy.
 * Errors:    WEIR_ERR_INVALID (dst is not the memory of the semaphore's peer, src or packets not of this rank,
 *            packets not 16-byte aligned, a semaphore of a host end), WEIR_ERR_LIMIT, WEIR_ERR_NOMEM. */
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

WEIR_API WEIR_NODISCARD weir_status weir_memory_channel_create(weir_semaphore *semaphore, weir_memory *dst,
                                                               weir_memory *src, const weir_memory_channel_opts *opts,
                                                               weir_memory_channel **out);
WEIR_API void weir_memory_channel_destroy(weir_memory_channel *channel);
WEIR_API void weir_memory_channel_device(const weir_memory_channel *channel, weir_dev_memory_channel *out);

WEIR_END_DECLS

#endif
