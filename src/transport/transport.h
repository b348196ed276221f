/* transport.h - one ops table per transport; transport.c has the registry.
 *
 * A transport joins two ends, each described by a weiri_end that the communicator exchanged when it was made. It can do
 * one of two things, or both: map the memory of one end for the device of the other, for memory channels; and carry out
 * transfers that are posted to a queue, for port channels. */
#ifndef WEIRI_TRANSPORT_H
#define WEIRI_TRANSPORT_H

#include "src/device/device.h"
#include "weir/transport.h"

#define WEIRI_TRANSPORTS_MAX 8

/* One rank, as its peers know it. */
typedef struct weiri_end {
    uint32_t rank;    /* does not travel */
    uint8_t host[16]; /* identity of the host (boot id) */
    uint64_t pid;
    uint64_t pid_space;  /* inode of the pid namespace */
    uint64_t net_space;  /* inode of the network namespace */
    uint8_t process[16]; /* identity of the process, drawn when it first made a communicator */
    uint8_t device_uuid[16];
    char device_kind[8];
    uint8_t socket[16]; /* abstract Unix socket that receives file descriptors: "weir-" and this in hex */
    uint8_t token[16];  /* begins each datagram to that socket */
    uint8_t order[WEIRI_TRANSPORTS_MAX]; /* transports that it may use, by preference: 1 + index; 0 past the last */
    uint8_t works; /* bit 1 << index: the transport may work there; all, before a rank has looked */
} weiri_end;

/* ---- queues ---------------------------------------------------------------------------------------------
 *
 * A domain is what a transport has open for one communicator: a NIC, say. A region is a block of this rank that is
 * registered with it, and a remote is a region of a peer, made from its key. A queue joins two ends. Transports begin
 * their own structs with these.
 *
 * The posts of a queue are numbered from 1 and complete in that order. A post is complete when its source may be reused
 * and its data is visible at its destination, to whoever learns of it by a value posted later or from the poster. A
 * queue that fails stays failed: its posts and polls return the error, and what was not complete never is. Others do
 * not notice. */

#define WEIRI_KEY_MAX 64      /* bytes of a region's key */
#define WEIRI_ADDRESS_MAX 288 /* bytes of a queue's address */

typedef struct weiri_transport_ops weiri_transport_ops;

typedef struct weiri_domain {
    const weiri_transport_ops *transport;
    weir_device *device; /* not a reference */
} weiri_domain;

typedef struct weiri_key {
    uint8_t bytes[WEIRI_KEY_MAX];
    uint32_t length; /* 0: there is none */
    uint64_t size;   /* of the block */
} weiri_key;

typedef struct weiri_region {
    weiri_domain *domain;
    const weiri_block *block; /* outlives the region */
    weiri_key key;            /* for peers */
} weiri_region;

typedef struct weiri_remote {
    weiri_domain *domain;
    uint64_t size;
} weiri_remote;

typedef struct weiri_queue {
    weiri_domain *domain;
    uint8_t address[WEIRI_ADDRESS_MAX]; /* for the peer's queue_connect */
    uint32_t address_bytes;
    uint64_t posted;    /* number of the last post */
    uint64_t completed; /* number of the last one that is complete; advanced by poll */
} weiri_queue;

/* For queues whose NIC kernels may drive by themselves (weir/device/rdma.h). Such a queue has a second line, which
 * kernels post to and which shares no order with the posts below. It is opened and connected with the queue, where
 * WEIR_PORT_ENGINE asks for it. */
typedef struct weiri_direct_ops {
    /* Of a connected queue: fills all of *out but control and state. WEIR_ERR_UNSUPPORTED when there is no such line,
     * with the step that failed, the cause and the remedy. */
    weir_status (*view)(weiri_queue *queue, weir_dev_rdma *out);
    /* How that was done, in words; "" when it was not. */
    const char *(*describe)(const weiri_queue *queue);
    /* Memory as entries name it. `remote` sets *flush when writes are visible there only after a read of it, and *adds
     * when it can be added to. */
    weir_dev_rdma_memory (*local)(const weiri_queue *queue, const weiri_region *region);
    weir_dev_rdma_memory (*remote)(const weiri_queue *queue, const weiri_remote *remote, bool *flush, bool *adds);
    /* Eight bytes of this rank that reads and adds may overwrite at any time. */
    weir_dev_rdma_memory (*scratch)(const weiri_queue *queue);
    /* WEIR_OK, or what has ended the line, whether a kernel has noticed or not. */
    weir_status (*check)(weiri_queue *queue);
} weiri_direct_ops;

/* All of them, or none, are there in an ops table. Offsets and sizes lie within region and remote: the caller has
 * checked. Zero bytes are a post like any other. */
typedef struct weiri_queue_ops {
    /* Open and close may block, but not for a peer. WEIR_ERR_UNSUPPORTED, WEIR_ERR_SYSTEM, WEIR_ERR_DEVICE,
     * WEIR_ERR_NOMEM. */
    weir_status (*domain_open)(weir_device *device, weiri_domain **out);
    void (*domain_close)(weiri_domain *domain); /* after all that was opened in it; NULL is ignored, here and below */
    /* WEIR_ERR_UNSUPPORTED for memory that the transport cannot reach, with the remedy. */
    weir_status (*region_open)(weiri_domain *domain, const weiri_block *block, weiri_region **out);
    void (*region_close)(weiri_region *region);
    /* `mapped` is the peer's block as mapped here; NULL when it is not. WEIR_ERR_CORRUPT for a malformed key. */
    weir_status (*remote_open)(weiri_domain *domain, const weiri_key *key, const weiri_block *mapped,
                               weiri_remote **out);
    void (*remote_close)(weiri_remote *remote);
    weir_status (*queue_open)(weiri_domain *domain, weiri_queue **out);
    /* Once, with the address of the peer's queue, and before either end posts both are connected. WEIR_ERR_CORRUPT for
     * a malformed address; WEIR_ERR_UNSUPPORTED, with the reason, when the two ends cannot meet. */
    weir_status (*queue_connect)(weiri_queue *queue, const uint8_t *address, size_t bytes);
    void (*queue_close)(weiri_queue *queue); /* drops what is not complete; does not wait for the peer */

    /* Never block. One thread at a time posts to a queue. WEIR_OK: posted. WEIR_ERR_BUSY: no room now, nothing
     * happened; poll makes some. Anything else: the queue has failed. */
    weir_status (*put)(weiri_queue *queue, weiri_remote *dst, uint64_t dst_offset, const weiri_region *src,
                       uint64_t src_offset, uint64_t bytes);
    weir_status (*get)(weiri_queue *queue, const weiri_region *dst, uint64_t dst_offset, weiri_remote *src,
                       uint64_t src_offset, uint64_t bytes);
    /* The `bytes` (1 to 8, not over an 8-byte boundary) low bytes of `value`, in one piece; visible only after all
     * puts and values posted before it on this queue. */
    weir_status (*value)(weiri_queue *queue, weiri_remote *dst, uint64_t dst_offset, uint64_t value, uint32_t bytes);
    /* Adds `value` to the 8-byte word at dst_offset, a multiple of 8; atomic to other adds of this transport's queues;
     * ordered as a value. WEIR_ERR_UNSUPPORTED, with the reason, where the transport, the NIC or the memory cannot; the
     * queue has then not failed. NULL: the transport never can. */
    weir_status (*add)(weiri_queue *queue, weiri_remote *dst, uint64_t dst_offset, uint64_t value);
    /* Advances queue->completed, also in the call that finds the queue failed. WEIR_OK: something completed or went on,
     * WEIR_PENDING: nothing did; otherwise the queue has failed. By any thread, also while another posts or polls, and
     * may then find nothing; a queue that stands alone (`alone`) is posted to and polled by one thread at a time. */
    weir_status (*poll)(weiri_queue *queue);
    const weiri_direct_ops *direct; /* NULL: kernels never post by themselves */
    bool alone;        /* a queue does not know the peer's: addresses are empty; keys too, the block must be mapped */
    bool keeps_words;  /* aligned words of 8 bytes of a put arrive whole, also for who reads while they arrive */
    bool passive_poll; /* a queue that only receives must be polled too, or the peer's posts do not go on */
} weiri_queue_ops;

struct weiri_transport_ops {
    const char *name;
    /* Whether the transport works on this host at all; `reason` (of 256 bytes) gets what it uses or what is
     * missing. Never blocks, logs nothing. */
    bool (*probe)(char *reason);
    /* Whether it joins these two ends; WEIR_ERR_UNSUPPORTED with the reason in weir_last_error otherwise. */
    weir_status (*reach)(weir_device *device, const weiri_end *local, const weiri_end *peer);
    /* The next two are NULL for a transport that maps nothing.
     * Whether 128-byte stores into the peer's memory arrive whole; for ends that `reach` has joined. */
    bool (*keeps_lines)(weir_device *device, const weiri_end *local, const weiri_end *peer);
    /* Maps a peer's block for the local device; `fd` stays the caller's. Errors of weiri_device_ops.import. */
    weir_status (*map)(weir_device *device, const weiri_end *local, const weiri_end *peer, const weiri_export *block,
                       int fd, weiri_block **out);
    const weiri_queue_ops *queue; /* NULL for a transport that has no queues */
};

#define WEIRI_REASONS_BYTES 384u

/* Transports in the order of preference; NULL past the last. */
const weiri_transport_ops *weiri_transport_at(uint32_t index);

/* weiri_end.order of this rank, as WEIR_TRANSPORT has it. WEIR_ERR_ENV for a name that does not exist. */
weir_status weiri_transport_order(const weiri_env *env, uint8_t order[WEIRI_TRANSPORTS_MAX]);
/* Whether an order that came from elsewhere is one. */
bool weiri_transport_order_ok(const uint8_t order[WEIRI_TRANSPORTS_MAX]);
/* weiri_end.works of this rank: looks at the transports of its order, which may load libraries. */
uint8_t weiri_transport_look(weir_device *device, const weiri_end *local);

/* The first transport, in the order of the end with the lower rank, that both may use and that joins them: both ends
 * find the same. `only` (NULL: none) is a list of names to be tried instead. WEIR_ERR_UNSUPPORTED, with each one's
 * reason, when there is none; WEIR_ERR_INVALID for a name that does not exist. `reasons` (of WEIRI_REASONS_BYTES, or
 * NULL) gets why it is not one of those before it, "" where there are none. */
weir_status weiri_transport_choose(weir_device *device, const weiri_end *local, const weiri_end *peer, const char *only,
                                   const weiri_transport_ops **out, char *reasons);

/* The first transport in the local order that can map memory of the peer; NULL when there is none. */
const weiri_transport_ops *weiri_transport_mapper(weir_device *device, const weiri_end *local, const weiri_end *peer);

/* The op of this name. */
weir_status weiri_transport_map(const weiri_transport_ops *transport, weir_device *device, const weiri_end *local,
                                const weiri_end *peer, const weiri_export *block, int fd, weiri_block **out);

/* WEIR_OK, or the fault of a test: before `operation` of a transport's queues. */
weir_status weiri_transport_fault(const weiri_transport_ops *transport, const char *operation);

/* For tests: lets the n-th operation from now (choose, map, and those of queues that open something) fail with
 * WEIR_ERR_SYSTEM; 0 turns it off. Returns how many were left until then: 0 when it did fail. */
uint64_t weiri_transport_fail_nth(uint64_t n);

extern const weiri_transport_ops weiri_ipc_ops;
extern const weiri_transport_ops weiri_ib_ops;
extern const weiri_transport_ops weiri_ofi_ops;

#endif
