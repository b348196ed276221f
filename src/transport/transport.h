/* transport.h - one table of operations for each transport; transport.c has the registry.
 *
 * A transport joins two ends, each described by a weiri_end. Ranks exchange these when they make a communicator. A
 * transport can map the memory of one end for the device of the other (memory channels), carry out transfers that are
 * posted to a queue (port channels), or both. */
#ifndef WEIRI_TRANSPORT_H
#define WEIRI_TRANSPORT_H

#include "src/device/device.h"
#include "weir/transport.h"

#define WEIRI_TRANSPORTS_MAX 8

/* A rank as its peers know it. */
typedef struct weiri_end {
    uint32_t rank;    /* not sent */
    uint8_t host[16]; /* identity of the host (boot id) */
    uint64_t pid;
    uint64_t pid_space;  /* inode of the pid namespace */
    uint64_t net_space;  /* inode of the network namespace */
    uint8_t process[16]; /* random identity of the process, made with its first communicator */
    uint8_t device_uuid[16];
    char device_kind[8];
    uint8_t socket[16]; /* abstract Unix socket that receives file descriptors: "weir-" and this in hex */
    uint8_t token[16];  /* begins each datagram to that socket */
    uint8_t order[WEIRI_TRANSPORTS_MAX]; /* transports that the rank may use, by preference: 1 + index; 0 past the
                                          * last */
    uint8_t works; /* bit 1 << index: the transport may work there; all bits before the rank has checked */
} weiri_end;

/* ---- queues ---------------------------------------------------------------------------------------------
 *
 * A domain is what a transport holds open for one communicator, for example a NIC. A region is a block of this rank
 * that is registered with the domain. A remote is a region of a peer, made from its key. A queue joins two ends. Each
 * transport's own structs begin with these.
 *
 * The posts of a queue are numbered from 1 and complete in that order. A post is complete when its source may be reused
 * and its data is visible at its destination. A reader there sees the data after it has seen a value posted later, or
 * after the poster has reported completion. A failed queue stays failed: its posts and polls return the error, and its
 * incomplete posts never complete. Other queues go on. */

#define WEIRI_KEY_MAX 64      /* bytes of a region's key */
#define WEIRI_ADDRESS_MAX 288 /* bytes of a queue's address */

typedef struct weiri_transport_ops weiri_transport_ops;

typedef struct weiri_domain {
    const weiri_transport_ops *transport;
    weir_device *device; /* not a reference */
} weiri_domain;

typedef struct weiri_key {
    uint8_t bytes[WEIRI_KEY_MAX];
    uint32_t length; /* 0: no key */
    uint64_t size;   /* bytes of the block */
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
    uint64_t completed; /* number of the last complete post; advanced by poll */
} weiri_queue;

/* The device engine of a queue: kernels post to the NIC themselves (weir/device/rdma.h). Such a queue has a second
 * queue pair for kernels. Its posts have no order with the posts below. It is opened and connected with the queue if
 * WEIR_PORT_ENGINE asks for it. */
typedef struct weiri_engine_ops {
    /* Takes a connected queue and fills *out, except control and state. WEIR_ERR_UNSUPPORTED if the queue has no device
     * engine; the text has the step that failed, the cause and the remedy. */
    weir_status (*view)(weiri_queue *queue, weir_dev_rdma *out);
    /* Describes the device engine in words; "" if the queue has none. */
    const char *(*describe)(const weiri_queue *queue);
    /* Memory as NIC requests name it. `remote` sets *flush if writes are visible there only after a read of that
     * memory, and *adds if it supports adds. */
    weir_dev_rdma_memory (*local)(const weiri_queue *queue, const weiri_region *region);
    weir_dev_rdma_memory (*remote)(const weiri_queue *queue, const weiri_remote *remote, bool *flush, bool *adds);
    /* Eight bytes of this rank, which reads and adds may overwrite at any time. */
    weir_dev_rdma_memory (*scratch)(const weiri_queue *queue);
    /* WEIR_OK, or the error that has ended the kernels' queue pair, even if no kernel has noticed it. */
    weir_status (*check)(weiri_queue *queue);
} weiri_engine_ops;

/* A transport with queues has all of these. The caller has checked that offsets and sizes lie within region and remote.
 * A post of zero bytes is valid. */
typedef struct weiri_queue_ops {
    /* Open and close may block, but not for a peer. WEIR_ERR_UNSUPPORTED, WEIR_ERR_SYSTEM, WEIR_ERR_DEVICE,
     * WEIR_ERR_NOMEM. */
    weir_status (*domain_open)(weir_device *device, weiri_domain **out);
    void (*domain_close)(weiri_domain *domain); /* after closing all that was opened in it; NULL is ignored, here and
                                                 * below */
    /* WEIR_ERR_UNSUPPORTED, with the remedy, for memory that the transport cannot reach. */
    weir_status (*region_open)(weiri_domain *domain, const weiri_block *block, weiri_region **out);
    void (*region_close)(weiri_region *region);
    /* `mapped` is the peer's block as mapped here, or NULL. WEIR_ERR_CORRUPT for a malformed key. */
    weir_status (*remote_open)(weiri_domain *domain, const weiri_key *key, const weiri_block *mapped,
                               weiri_remote **out);
    void (*remote_close)(weiri_remote *remote);
    weir_status (*queue_open)(weiri_domain *domain, weiri_queue **out);
    /* Called once, with the address of the peer's queue. Both ends are connected before either posts. WEIR_ERR_CORRUPT
     * for a malformed address; WEIR_ERR_UNSUPPORTED, with the reason, if the two ends cannot connect. */
    weir_status (*queue_connect)(weiri_queue *queue, const uint8_t *address, size_t bytes);
    void (*queue_close)(weiri_queue *queue); /* drops incomplete posts; does not wait for the peer */

    /* Posts never block. One thread at a time posts to a queue. WEIR_OK: posted. WEIR_ERR_BUSY: nothing happened
     * because there is no room now; poll makes room. Any other status: the queue has failed. */
    weir_status (*put)(weiri_queue *queue, weiri_remote *dst, uint64_t dst_offset, const weiri_region *src,
                       uint64_t src_offset, uint64_t bytes);
    weir_status (*get)(weiri_queue *queue, const weiri_region *dst, uint64_t dst_offset, weiri_remote *src,
                       uint64_t src_offset, uint64_t bytes);
    /* Stores the `bytes` (1 to 8, not across an 8-byte boundary) low bytes of `value` in one piece. The value is
     * visible only after all puts and values posted before it on this queue. */
    weir_status (*value)(weiri_queue *queue, weiri_remote *dst, uint64_t dst_offset, uint64_t value, uint32_t bytes);
    /* Adds `value` to the 8-byte word at dst_offset, a multiple of 8. The add is atomic with other adds of this
     * transport's queues, and ordered as a value. WEIR_ERR_UNSUPPORTED, with the reason, if the transport, the NIC or
     * the memory cannot add; the queue has not failed then. NULL: the transport has no adds. */
    weir_status (*add)(weiri_queue *queue, weiri_remote *dst, uint64_t dst_offset, uint64_t value);
    /* Advances queue->completed, also in the call that finds the queue failed. WEIR_OK: something completed or made
     * progress. WEIR_PENDING: nothing did. Any other status: the queue has failed. Any thread may poll while another
     * posts or polls; such a poll may find nothing. One thread at a time posts to and polls a queue that stands alone
     * (`alone`). */
    weir_status (*poll)(weiri_queue *queue);
    const weiri_engine_ops *engine; /* NULL: no device engine */
    bool alone;                     /* queues have no addresses and regions no keys; the peer's block must be mapped */
    bool keeps_words;  /* aligned 8-byte words of a put arrive whole, also for a thread that reads during the put */
    bool passive_poll; /* the peer's posts need polls of this end's queue too */
} weiri_queue_ops;

struct weiri_transport_ops {
    const char *name;
    /* Whether the transport works on this host at all; `reason` (of 256 bytes) gets what it uses or what is missing.
     * Never blocks; logs nothing. */
    bool (*probe)(char *reason);
    /* WEIR_OK if the transport joins these two ends; otherwise WEIR_ERR_UNSUPPORTED, with the reason in
     * weir_last_error. */
    weir_status (*reach)(weir_device *device, const weiri_end *local, const weiri_end *peer);
    /* NULL, as `map`, for a transport that maps nothing. Whether 128-byte stores into the peer's memory arrive whole;
     * for ends that `reach` has joined. */
    bool (*keeps_lines)(weir_device *device, const weiri_end *local, const weiri_end *peer);
    /* Maps a peer's block for the local device; `fd` stays the caller's. Errors of weiri_device_ops.import. */
    weir_status (*map)(weir_device *device, const weiri_end *local, const weiri_end *peer, const weiri_export *block,
                       int fd, weiri_block **out);
    const weiri_queue_ops *queue; /* NULL: the transport has no queues */
};

#define WEIRI_REASONS_BYTES 384u

/* Transports in order of preference; NULL past the last. */
const weiri_transport_ops *weiri_transport_at(uint32_t index);

/* WEIR_ERR_INVALID if `names`, divided by commas, has an unknown transport. NULL and "" name all transports. */
weir_status weiri_transport_check_names(const char *names);

/* Writes weiri_end.order of this rank, from WEIR_TRANSPORT. WEIR_ERR_ENV for an unknown name. */
weir_status weiri_transport_order(const weiri_env *env, uint8_t order[WEIRI_TRANSPORTS_MAX]);
/* Whether an order received from a peer is valid. */
bool weiri_transport_order_ok(const uint8_t order[WEIRI_TRANSPORTS_MAX]);
/* Returns weiri_end.works of this rank: probes the transports of its order. This may load libraries. */
uint8_t weiri_transport_look(weir_device *device, const weiri_end *local);

/* Finds the first transport, in the order of the end with the lower rank, that both ends may use and that joins them.
 * Both ends find the same one. `only`, unless NULL or "", is a list of names to try instead. WEIR_ERR_UNSUPPORTED, with
 * the reason for each transport, if none joins the ends; WEIR_ERR_INVALID for an unknown name. `reasons` (of
 * WEIRI_REASONS_BYTES, or NULL) gets why the transports before *out were not chosen, or "". */
weir_status weiri_transport_choose(weir_device *device, const weiri_end *local, const weiri_end *peer, const char *only,
                                   const weiri_transport_ops **out, char *reasons);

/* The first transport in the local order that can map memory of the peer, or NULL. */
const weiri_transport_ops *weiri_transport_mapper(weir_device *device, const weiri_end *local, const weiri_end *peer);

/* Calls transport->map. */
weir_status weiri_transport_map(const weiri_transport_ops *transport, weir_device *device, const weiri_end *local,
                                const weiri_end *peer, const weiri_export *block, int fd, weiri_block **out);

/* WEIR_OK, or the fault that a test has injected; called before `operation` of a transport's queues. */
weir_status weiri_transport_fault(const weiri_transport_ops *transport, const char *operation);

/* For tests: the n-th operation from now (choose, map, and queue operations that open something) fails with
 * WEIR_ERR_SYSTEM. 0 turns the fault off. Returns how many operations were left before the fault: 0 if it has
 * happened. */
uint64_t weiri_transport_fail_nth(uint64_t n);

extern const weiri_transport_ops weiri_ipc_ops;
extern const weiri_transport_ops weiri_ib_ops;
extern const weiri_transport_ops weiri_ofi_ops;

#endif
