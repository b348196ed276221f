/* ib.h - what the files of the transport ib share:
 *
 *   ib.c           ops table, domains, regions, remotes
 *   ib/nic.c       an open NIC: its limits, its errors, its events
 *   ib/stripe.c    queues of several queue pairs, and the posts of all queues
 *   ib/queue.c     queues of one queue pair: posting, completion, failure
 *   ib/engine.c    queue pairs of the device engine
 *   ib/devx.c      the same, made by DevX
 *   ib/prm.c       commands of DevX
 *   ib/pair.c      the states of a queue pair
 *   ib/wire.c      keys and addresses
 *   ib/device.c    choice of NICs, ports and GIDs
 *   ib/topology.c  distances of NICs
 *   ib/verbs.c     the library */
#ifndef WEIRI_IB_IB_H
#define WEIRI_IB_IB_H

#include <pthread.h>

#include "src/host/base/env.h"
#include "src/transport/ib/device.h"
#include "src/transport/ib/verbs.h"
#include "src/transport/ib/wire.h"
#include "src/transport/transport.h"
#include "weir/device/impl/mlx5.h"

/* An open NIC of one domain. */
typedef struct weiri_ib_nic {
    weiri_ib_port port;
    weiri_ib_gid gid;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_device_attr limits;
    struct ibv_port_attr link;
    int access;          /* rights of memory registered with this NIC */
    uint8_t timeout;     /* WEIR_IB_TIMEOUT */
    uint64_t scratch[8]; /* results of adds and of reads that only flush */
    struct ibv_mr *scratch_mr;
    pthread_mutex_t events; /* held by the one thread that reads the device's events */
    uint64_t looked_ns;     /* when a thread last read them */
    bool broken;            /* the device is gone; atomic */
} weiri_ib_nic;

/* State of a NIC for its device engine. */
typedef struct weiri_ib_chunk weiri_ib_chunk;
typedef struct weiri_ib_page weiri_ib_page;
typedef struct weiri_ib_slab weiri_ib_slab;

/* The same, for queues made by DevX. */
typedef struct weiri_ib_devx_nic {
    bool ready; /* `prepare` has succeeded */
    uint32_t pd;
    uint32_t events;
    uint32_t ts_format;
    weiri_ib_slab *slabs;
} weiri_ib_devx_nic;

typedef struct weiri_ib_engine_nic {
    weiri_ib_nic *nic;
    weir_device *device;
    weiri_queues queues;  /* WEIR_IB_QUEUES */
    pthread_mutex_t lock; /* guards all below */
    weiri_ib_mlx5 mlx5;   /* is_supported is NULL before the first queue is opened */
    weiri_ib_devx_nic devx;
    struct ibv_td *thread;
    struct ibv_pd *parent; /* NULL before verbs make the first queue */
    weiri_ib_chunk *chunks;
    weiri_ib_page *pages;
} weiri_ib_engine_nic;

typedef struct ib_domain {
    weiri_domain base;
    weiri_ib_nic nics[WEIRI_IB_NICS_MAX];
    uint32_t nic_count;
    uint32_t pair_count; /* of a queue: queue pair i belongs to NIC i % nic_count */
    bool has_engine;     /* kernels are to post to the first NIC */
    weiri_ib_engine_nic engine;
} ib_domain;

typedef struct ib_region {
    weiri_region base;
    struct ibv_mr *mrs[WEIRI_IB_NICS_MAX];
    uint64_t address; /* of the block, as the NICs see it */
} ib_region;

typedef struct ib_remote {
    weiri_remote base;
    weiri_ib_key key;
} ib_remote;

/* ---- ib/nic.c ------------------------------------------------------------------------------------------- */

/* Opens the device of a port, in place. */
weir_status weiri_ib_nic_open(weiri_ib_nic *nic, const weiri_ib_port *port, const weiri_env *env);
void weiri_ib_nic_close(weiri_ib_nic *nic);

/* Fails with the error of a verb, and with the remedy if the limit of locked memory may be the cause. */
weir_status weiri_ib_fail(const weiri_ib_nic *nic, int error, const char *what);

/* Reads the device's events without blocking, at most once in a few milliseconds. The context of a queue pair or
 * completion queue is an atomic `const char *`; it gets a static text if the queue becomes unusable. */
void weiri_ib_look(weiri_ib_nic *nic);

/* ---- ib/pair.c ------------------------------------------------------------------------------------------ */

/* Writes what the peer must know of a queue pair on the domain's NIC `number`. */
weir_status weiri_ib_pair_describe(const weiri_ib_nic *nic, uint32_t number, uint32_t qpn, weiri_ib_address *own);
/* Computes all attributes of a connection except its states from both descriptions. WEIR_ERR_UNSUPPORTED if the ends
 * can never connect. */
weir_status weiri_ib_pair_agree(const weiri_ib_nic *nic, const weiri_ib_address *own, const weiri_ib_address *peer,
                                struct ibv_qp_attr *out);
/* Prepares a new queue pair and describes it. */
weir_status weiri_ib_pair_init(const weiri_ib_nic *nic, uint32_t number, struct ibv_qp *qp, weiri_ib_address *own);
/* Connects a queue pair to its peer; errors of weiri_ib_pair_agree. */
weir_status weiri_ib_pair_connect(const weiri_ib_nic *nic, struct ibv_qp *qp, const weiri_ib_address *own,
                                  const weiri_ib_address *peer);

/* ---- ib/stripe.c ---------------------------------------------------------------------------------------- */

/* Operations of all queues. */
weir_status weiri_ib_stripe_open(weiri_domain *domain, weiri_queue **out);
weir_status weiri_ib_stripe_connect(weiri_queue *queue, const uint8_t *address, size_t bytes);
void weiri_ib_stripe_close(weiri_queue *queue);
weir_status weiri_ib_stripe_put(weiri_queue *queue, weiri_remote *dst, uint64_t dst_offset, const weiri_region *src,
                                uint64_t src_offset, uint64_t bytes);
weir_status weiri_ib_stripe_get(weiri_queue *queue, const weiri_region *dst, uint64_t dst_offset, weiri_remote *src,
                                uint64_t src_offset, uint64_t bytes);
weir_status weiri_ib_stripe_value(weiri_queue *queue, weiri_remote *dst, uint64_t dst_offset, uint64_t value,
                                  uint32_t bytes);
weir_status weiri_ib_stripe_add(weiri_queue *queue, weiri_remote *dst, uint64_t dst_offset, uint64_t value);
weir_status weiri_ib_stripe_poll(weiri_queue *queue);

extern const weiri_engine_ops weiri_ib_stripe_engine;

/* ---- ib/engine.c ---------------------------------------------------------------------------------------- */

/* A queue made by DevX. */
typedef struct weiri_ib_devx {
    weiri_ib_slab *slab;
    uint32_t slot;
    struct mlx5dv_devx_uar *uar;
    struct mlx5dv_devx_obj *cq;
    struct mlx5dv_devx_obj *qp; /* NULL: made by verbs, or not made */
    uint32_t cqn, qpn;
} weiri_ib_devx;

/* A queue pair of the device engine. */
typedef struct weiri_ib_engine {
    weiri_ib_engine_nic *shared; /* NULL: not requested */
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    weiri_ib_devx devx;
    weiri_ib_page *page;
    const uint8_t *completions; /* of a queue made by verbs */
    weir_dev_rdma view;         /* complete except control and state */
    weiri_ib_address own;       /* qpn 0: no queue pair */
    uint32_t peer_nic, peer_qpn;
    const char *event; /* error reported by the device; atomic */
    char missing[320]; /* why kernels cannot post, or "" */
    char about[512];   /* how the queue was made and its registers are mapped */
} weiri_ib_engine;

void weiri_ib_engine_nic_init(weiri_ib_engine_nic *d, weiri_ib_nic *nic, weir_device *device);
/* Called after all queues are closed. */
void weiri_ib_engine_nic_close(weiri_ib_engine_nic *d);

/* A failure is returned by weiri_ib_engine_view; `own` keeps qpn 0 then. */
void weiri_ib_engine_open(weiri_ib_engine_nic *d, weiri_ib_engine *q, weiri_ib_address *own);
void weiri_ib_engine_connect(weiri_ib_engine *q, const weiri_ib_address *peer);
void weiri_ib_engine_close(weiri_ib_engine *q);
/* Operations of weiri_engine_ops. */
weir_status weiri_ib_engine_view(const weiri_ib_engine *q, weir_dev_rdma *out);
weir_status weiri_ib_engine_check(weiri_ib_engine *q);

/* ---- ib/devx.c ------------------------------------------------------------------------------------------ */

/* The caller of open and close holds the lock. Open makes the queues, up to the state INIT, and describes them in
 * q->view, q->own and q->about. It leaves the doorbell to the caller, whose register is that of q->devx.uar.
 * WEIR_ERR_UNSUPPORTED, with the step that failed, the firmware's answer and the remedy; the caller then closes what
 * was made. */
weir_status weiri_ib_devx_open(weiri_ib_engine *q);
weir_status weiri_ib_devx_connect(weiri_ib_engine *q, const weiri_ib_address *peer);
void weiri_ib_devx_close(weiri_ib_engine *q);
/* *error gets the word at byte 52 of the completion of a failed request, or 0. *in_error is true if the NIC has put the
 * queue pair into the error state, with or without a failed request of this rank. */
weir_status weiri_ib_devx_look(const weiri_ib_engine *q, uint32_t *error, bool *in_error);

/* ---- ib/queue.c ----------------------------------------------------------------------------------------- */

/* A put or a get. */
typedef struct weiri_ib_transfer {
    enum ibv_wr_opcode opcode;
    const uint8_t *host; /* the CPU's address of the source of a put; NULL if it has none */
    uint64_t local, remote, bytes;
    uint32_t lkey, rkey;
    bool flush; /* weiri_ib_key.flush */
} weiri_ib_transfer;

/* A value or an add. */
typedef struct weiri_ib_word {
    enum ibv_wr_opcode opcode;
    uint64_t value;
    uint64_t remote;
    uint32_t bytes;
    uint32_t rkey;
    bool flush;
} weiri_ib_word;

/* Opens a queue of one queue pair. `own` gets what its peer must know of it. */
weir_status weiri_ib_queue_open(weiri_domain *domain, uint32_t nic, weiri_queue **out, weiri_ib_address *own);
weir_status weiri_ib_queue_connect(weiri_queue *queue, const weiri_ib_address *peer);
void weiri_ib_queue_close(weiri_queue *queue);
/* The peer's NIC; 0 before the queue is connected. */
uint32_t weiri_ib_queue_peer_nic(const weiri_queue *queue);
/* Operations of weiri_queue_ops. weiri_ib_queue_ready posts nothing and returns what the next put or get would
 * return. */
weir_status weiri_ib_queue_ready(weiri_queue *queue);
weir_status weiri_ib_queue_transfer(weiri_queue *queue, const weiri_ib_transfer *transfer);
weir_status weiri_ib_queue_word(weiri_queue *queue, const weiri_ib_word *word);
weir_status weiri_ib_queue_poll(weiri_queue *queue);
#endif
