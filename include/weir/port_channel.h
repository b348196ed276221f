/* weir/port_channel.h - transfers that something other than the calling threads carries out.
 *
 *     weir_proxy_create(comm, NULL, &proxy);                          on both ranks
 *     weir_port_channel_connect(proxy, peer, tag, local, NULL, &channel);
 *     weir_port_channel_device(channel, &args.channel);               a plain struct for kernels
 *     weir_proxy_start(proxy);
 *     ...                                                             weir/device/port_channel.h
 *     weir_proxy_stop(proxy);
 *     weir_port_channel_destroy(channel); weir_proxy_destroy(proxy);
 *
 * A request moves data between two memories of the channel, or signals the peer. Kernels and host threads post
 * requests; the table in weir/device/port_channel.h says what each call promises to both. A thread of the proxy carries
 * them out, or a NIC that kernels post to themselves (docs/rdma.md). WEIR_PORT_ENGINE chooses, and must be the same on
 * both ranks before their first connection; weir_port_channel_get_info says who posts, and why.
 *
 * Memories have ids: 0 is `remote`, of the peer, and 1 is `local`. Attached memories get the next ids. The peer exports
 * or sends its memories after its rank has a connection over the transport.
 *
 * A channel must be the only user of its semaphore. The peer's signals end weir_dev_port_channel_wait in kernels, or
 * weir_semaphore_wait if the semaphore's end is on the host.
 *
 * Threads:   any, at the same time, except destroy.
 * Blocking:  connect, until the peer has called it; create, until the peer's communicator has opened its end of the
 *            queue, which needs no call of the peer; requests, while the channel has no credit; wait; with a timeout in
 *            milliseconds, 0 is the communicator's. Until the proxy is started, waits return WEIR_ERR_INVALID at once,
 *            unless kernels post to the NIC themselves. destroy of a channel over copy engines waits for all kernels of
 *            this process that run on the GPU, and so forever for a kernel that waits for later work.
 * Ownership: keeps references on proxy, semaphore and memories. Kernels must not use the handle after destroy.
 * Errors:    WEIR_ERR_INVALID, WEIR_ERR_UNSUPPORTED (a transport without queues; memory that it cannot reach, saying
 *            what to do), WEIR_ERR_LIMIT, WEIR_ERR_NOMEM, WEIR_ERR_DEVICE, WEIR_ERR_SYSTEM, WEIR_ERR_TIMEOUT; of
 *            tickets, the channel's: WEIR_ERR_RANGE, WEIR_ERR_REMOTE, WEIR_ERR_ABORTED (proxy stopped) and those of
 *            the transport.
 *            A failed request ends its channel alone: a range beyond the memory, an operation that the transport lacks,
 *            or an error of the transport. Waits that find no signal then end with the channel's error here, and with
 *            WEIR_ERR_REMOTE on the peer, whose own requests go on; signals that arrived before still count. If both
 *            ends fail, a rank may see WEIR_ERR_REMOTE before its own error. Requests of the host go on after posts of
 *            kernels to the NIC have failed. */
#ifndef WEIR_PORT_CHANNEL_H
#define WEIR_PORT_CHANNEL_H

#include "weir/memory.h"
#include "weir/proxy.h"
#include "weir/semaphore.h"

WEIR_BEGIN_DECLS

typedef struct weir_port_channel weir_port_channel;

#define WEIR_PORT_DIRECT_NEVER UINT64_MAX

typedef struct weir_port_channel_opts {
    size_t size;
    /* Up to this many bytes, the calling threads move data between `remote` and `local` by their own stores, if the
     * peer's memory is mapped and nothing of the channel is queued; default 4,096. WEIR_PORT_DIRECT_NEVER: they never
     * do. Two ranks on one device move all data that way. */
    uint64_t direct_bytes;
    uint32_t credits; /* as weir_proxy_channel_opts */
    uint32_t thread;
    /* Packet buffers for weir_dev_port_channel_put_packets, of this rank and of the peer: of the same size, zeroed, at
     * multiples of 16, and of no other channel. A buffer has room for a quarter of its size, less 64, in bytes of data.
     * NULL: without packets. */
    weir_memory *packets;
    weir_memory *peer_packets;
} weir_port_channel_opts;

/* `remote` is memory of the semaphore's peer, `local` of this rank. Each may be NULL: its id is then never valid. */
WEIR_API WEIR_NODISCARD weir_status weir_port_channel_create(weir_proxy *proxy, weir_semaphore *semaphore,
                                                             weir_memory *remote, weir_memory *local,
                                                             const weir_port_channel_opts *opts,
                                                             weir_port_channel **out);

typedef struct weir_port_channel_connect_opts {
    size_t size;
    weir_connection *connection; /* to the peer, given by both ranks; NULL: a new one */
    const char *transport;       /* of a new connection, as in weir_connection_opts */
    weir_semaphore_end end;      /* of this rank: whether its kernels or its host wait for the peer's signals */
    /* As for weir_port_channel_create; NULL: the defaults. Its peer_packets must be NULL: when packets is set, the call
     * receives the peer's buffer, which has the same size. */
    const weir_port_channel_opts *channel;
} weir_port_channel_connect_opts;

/* Makes a channel of `proxy` to `peer`, which makes the same call with this rank as its peer, and the same tag. The
 * channel's remote memory is what the peer gives as `local`; the two may have different sizes.
 *
 * Everything that weir/memory_channel.h says of weir_memory_channel_connect holds here: what belongs to the channel,
 * the order of peers, and when it is WEIR_ERR_MISMATCH. Blocks until the peer has called it; a callback of the proxy
 * must not call it (WEIR_ERR_INVALID). Errors are those of weir_port_channel_create, weir_connection_create,
 * weir_semaphore_create and weir_memory_recv. */
WEIR_API WEIR_NODISCARD weir_status weir_port_channel_connect(weir_proxy *proxy, uint32_t peer, uint64_t tag,
                                                              weir_memory *local,
                                                              const weir_port_channel_connect_opts *opts,
                                                              weir_port_channel **out);

/* Drops requests that are not completed. */
WEIR_API void weir_port_channel_destroy(weir_port_channel *channel);

/* The handle for kernels; WEIR_ERR_INVALID when the semaphore's end is on the host. */
WEIR_API WEIR_NODISCARD weir_status weir_port_channel_device(const weir_port_channel *channel,
                                                             weir_dev_port_channel *out);

/* Objects to which the channel keeps references: valid until its end. weir_semaphore_connection has the connection. */
WEIR_API weir_semaphore *weir_port_channel_semaphore(const weir_port_channel *channel);
/* The memory with this id: 0 is the remote one, 1 the local one. NULL if no memory has this id. */
WEIR_API weir_memory *weir_port_channel_memory(weir_port_channel *channel, uint32_t id);

typedef struct weir_port_channel_info {
    const char *transport;
    const char *engine; /* poster of kernels' requests: "proxy", or "device", the kernels themselves */
    char reason[320];   /* why it is not the engine that WEIR_PORT_ENGINE asks for, or "". With a semaphore whose end is
                           on the host kernels have no handle: the engine is "proxy", and the reason "" */
} weir_port_channel_info;

WEIR_API void weir_port_channel_get_info(const weir_port_channel *channel, weir_port_channel_info *info);

/* One more memory, of this rank or the peer, for weir_port_channel_post and its form for kernels. */
WEIR_API WEIR_NODISCARD weir_status weir_port_channel_attach(weir_port_channel *channel, weir_memory *memory,
                                                             uint32_t *id);

/* WEIR_OK, or the channel's error; WEIR_ERR_REMOTE when only the peer's channel has failed; WEIR_ERR_INVALID when waits
 * end because the proxy was not started. weir_last_error has the text. */
WEIR_API WEIR_NODISCARD weir_status weir_port_channel_status(weir_port_channel *channel);

/* The calls of kernels, for host threads. Their requests and those of kernels are not ordered among each other. They
 * block only for a credit; `ticket` may be NULL. */

/* Copies `bytes` of `local` at local_offset to `remote` at remote_offset. The remote offset comes first, in put and in
 * get. */
WEIR_API WEIR_NODISCARD weir_status weir_port_channel_put(weir_port_channel *channel, uint64_t remote_offset,
                                                          uint64_t local_offset, uint64_t bytes, uint64_t *ticket);
/* Copies `bytes` of `remote` at remote_offset to `local` at local_offset. */
WEIR_API WEIR_NODISCARD weir_status weir_port_channel_get(weir_port_channel *channel, uint64_t remote_offset,
                                                          uint64_t local_offset, uint64_t bytes, uint64_t *ticket);
WEIR_API WEIR_NODISCARD weir_status weir_port_channel_signal(weir_port_channel *channel, uint64_t *ticket);
WEIR_API WEIR_NODISCARD weir_status weir_port_channel_put_signal(weir_port_channel *channel, uint64_t remote_offset,
                                                                 uint64_t local_offset, uint64_t bytes,
                                                                 uint64_t *ticket);
/* Waits until both are done; the communicator's timeout is that of the whole call. */
WEIR_API WEIR_NODISCARD weir_status weir_port_channel_put_signal_flush(weir_port_channel *channel,
                                                                       uint64_t remote_offset, uint64_t local_offset,
                                                                       uint64_t bytes);
/* Stores the `bytes` (1 to 8, not over an 8-byte boundary) low bytes of `value` to `remote` at remote_offset, in one
 * piece where `remote` begins at a multiple of 8. */
WEIR_API WEIR_NODISCARD weir_status weir_port_channel_value(weir_port_channel *channel, uint64_t remote_offset,
                                                            uint64_t value, uint32_t bytes, uint64_t *ticket);
/* Adds `value` to the 8-byte word of `remote` at remote_offset, a multiple of 8. */
WEIR_API WEIR_NODISCARD weir_status weir_port_channel_add(weir_port_channel *channel, uint64_t remote_offset,
                                                          uint64_t value, uint64_t *ticket);
/* Waits until all of the host's requests before it are done; the communicator's timeout is that of the whole call. */
WEIR_API WEIR_NODISCARD weir_status weir_port_channel_flush(weir_port_channel *channel);

/* Posts any request (weir/device/request.h), between any memories of the channel by their ids; its `channel` is
 * ignored. */
WEIR_API WEIR_NODISCARD weir_status weir_port_channel_post(weir_port_channel *channel, const weir_request *request,
                                                           uint32_t timeout_ms, uint64_t *ticket);

/* The same calls without blocking. They return WEIR_PENDING and post nothing if the channel has no credit or the
 * proxy's queue no room. Handlers and progress callbacks of proxies may make them, even over channels of the same
 * thread of the proxy, which carries out the requests in a later round:
 *
 *     for (; state->next < state->peers; state->next++) {
 *         status = weir_port_channel_try_put_signal(state->channels[state->next], to, from, bytes, NULL);
 *         if (status != WEIR_OK) {
 *             return status == WEIR_PENDING ? WEIR_ERR_BUSY : status;     offered again, and goes on here
 *         }
 *     }
 *     state->next = 0;
 *     return WEIR_OK;
 */
WEIR_API WEIR_NODISCARD weir_status weir_port_channel_try_put(weir_port_channel *channel, uint64_t remote_offset,
                                                              uint64_t local_offset, uint64_t bytes, uint64_t *ticket);
WEIR_API WEIR_NODISCARD weir_status weir_port_channel_try_get(weir_port_channel *channel, uint64_t remote_offset,
                                                              uint64_t local_offset, uint64_t bytes, uint64_t *ticket);
WEIR_API WEIR_NODISCARD weir_status weir_port_channel_try_signal(weir_port_channel *channel, uint64_t *ticket);
WEIR_API WEIR_NODISCARD weir_status weir_port_channel_try_put_signal(weir_port_channel *channel, uint64_t remote_offset,
                                                                     uint64_t local_offset, uint64_t bytes,
                                                                     uint64_t *ticket);
WEIR_API WEIR_NODISCARD weir_status weir_port_channel_try_value(weir_port_channel *channel, uint64_t remote_offset,
                                                                uint64_t value, uint32_t bytes, uint64_t *ticket);
WEIR_API WEIR_NODISCARD weir_status weir_port_channel_try_add(weir_port_channel *channel, uint64_t remote_offset,
                                                              uint64_t value, uint64_t *ticket);
WEIR_API WEIR_NODISCARD weir_status weir_port_channel_try_post(weir_port_channel *channel, const weir_request *request,
                                                               uint64_t *ticket);

/* WEIR_OK when the request is completed: its source may be reused and its data is at its destination. Callbacks of
 * proxies may call test. */
WEIR_API WEIR_NODISCARD weir_status weir_port_channel_test(weir_port_channel *channel, uint64_t ticket);
WEIR_API WEIR_NODISCARD weir_status weir_port_channel_wait(weir_port_channel *channel, uint64_t ticket,
                                                           uint32_t timeout_ms);

/* The calls of kernels in the order of a stream (weir/stream.h): each launches one of weir's kernels, whose single
 * thread makes the call. It is ordered with calls of other kernels as those are among themselves. Graphs can record the
 * calls with their arguments.
 *
 * The status is only that of the launch. As in kernels, a request that fails is its channel's error, and a wait or
 * flush that passes its deadline the communicator's. A wait for the peer's signal that ends because a channel has
 * failed fails the communicator, so that later work on the stream does not use data that never arrived. The thread
 * copies up to 512 bytes itself, where direct_bytes allows it. WEIR_ERR_INVALID when the semaphore's end is on the
 * host; on GPUs WEIR_ERR_UNSUPPORTED when libweir was built without nvcc, or not for this GPU. */

WEIR_API WEIR_NODISCARD weir_status weir_port_channel_put_on_stream(weir_port_channel *channel, uint64_t remote_offset,
                                                                    uint64_t local_offset, uint64_t bytes,
                                                                    void *stream);
WEIR_API WEIR_NODISCARD weir_status weir_port_channel_get_on_stream(weir_port_channel *channel, uint64_t remote_offset,
                                                                    uint64_t local_offset, uint64_t bytes,
                                                                    void *stream);
WEIR_API WEIR_NODISCARD weir_status weir_port_channel_signal_on_stream(weir_port_channel *channel, void *stream);
WEIR_API WEIR_NODISCARD weir_status weir_port_channel_put_signal_on_stream(weir_port_channel *channel,
                                                                           uint64_t remote_offset,
                                                                           uint64_t local_offset, uint64_t bytes,
                                                                           void *stream);
WEIR_API WEIR_NODISCARD weir_status weir_port_channel_put_signal_flush_on_stream(weir_port_channel *channel,
                                                                                 uint64_t remote_offset,
                                                                                 uint64_t local_offset, uint64_t bytes,
                                                                                 void *stream);
WEIR_API WEIR_NODISCARD weir_status weir_port_channel_value_on_stream(weir_port_channel *channel,
                                                                      uint64_t remote_offset, uint64_t value,
                                                                      uint32_t bytes, void *stream);
WEIR_API WEIR_NODISCARD weir_status weir_port_channel_add_on_stream(weir_port_channel *channel, uint64_t remote_offset,
                                                                    uint64_t value, void *stream);
/* Later work on the stream finds all requests before it done. */
WEIR_API WEIR_NODISCARD weir_status weir_port_channel_flush_on_stream(weir_port_channel *channel, void *stream);
/* Later work on the stream finds a signal of the peer consumed, and the data that the peer sent before it. */
WEIR_API WEIR_NODISCARD weir_status weir_port_channel_wait_on_stream(weir_port_channel *channel, void *stream);

WEIR_END_DECLS

#endif
