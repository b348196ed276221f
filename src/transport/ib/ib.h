/* ib.h - what the files of the transport ib share.
 *
 *   ib.c           ops table, domains, regions, remotes
 *   ib/nic.c       an open NIC: its limits, its errors, its events
 *   ib/stripe.c    queues of several rails, and the posts of all queues
 *   ib/queue.c     queues of one rail, that is one queue pair: posting, completion, failure
 *   ib/engine.c    queue pairs that kernels post to
 *   ib/devx.c      those that are made by DevX
 *   ib/prm.c       its commands
 *   ib/pair.c      the states of a queue pair
 *   ib/wire.c      keys and addresses
 *   ib/device.c    choice of NICs, ports and GIDs
 *   ib/topology.c  how far NICs are
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

/* An open NIC, of one domain. */
typedef struct weiri_ib_nic {
    weiri_ib_port port;
    weiri_ib_gid gid;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_device_attr limits;
    struct ibv_port_attr link;
    int access;          /* of the memory that is registered with it */
    uint8_t timeout;     /* as of WEIR_IB_TIMEOUT */
    uint64_t scratch[8]; /* where reads that only flush, and adds, put what they get */
    struct ibv_mr *scratch_mr;
    pthread_mutex_t events; /* one thread reads the device's events */
    uint64_t looked_ns;     /* when it last did */
    bool broken;            /* the device is gone; atomic */
} weiri_ib_nic;

/* What a NIC has for queues of kernels. */
typedef struct weiri_ib_chunk weiri_ib_chunk;
typedef struct weiri_ib_page weiri_ib_page;
typedef struct weiri_ib_slab weiri_ib_slab;

/* For queues by DevX. */
typedef struct weiri_ib_devx_nic {
    bool ready; /* the numbers are known */
    uint32_t pd;
    uint32_t events;
    uint32_t ts_format;
    weiri_ib_slab *slabs;
} weiri_ib_devx_nic;

typedef struct weiri_ib_engine_nic {
    weiri_ib_nic *nic;
    weir_device *device;
    weiri_queues queues;  /* as of WEIR_IB_QUEUES */
    pthread_mutex_t lock; /* all below */
    weiri_ib_mlx5 mlx5;   /* is_supported is NULL until the first queue is opened */
    weiri_ib_devx_nic devx;
    struct ibv_td *thread;
    struct ibv_pd *parent; /* NULL until the first queue is made by verbs */
    weiri_ib_chunk *chunks;
    weiri_ib_page *pages;
} weiri_ib_engine_nic;

typedef struct ib_domain {
    weiri_domain base;
    weiri_ib_nic nics[WEIRI_IB_NICS_MAX];
    uint32_t nic_count;
    uint32_t pair_count; /* of a queue: rail i is a queue pair of NIC i % nic_count */
    bool has_engine;     /* kernels are to post by themselves, to the first NIC */
    weiri_ib_engine_nic engine;
} ib_domain;

typedef struct ib_region {
    weiri_region base;
    struct ibv_mr *mrs[WEIRI_IB_NICS_MAX];
    uint64_t address; /* of the block, as NICs count */
} ib_region;

typedef struct ib_remote {
    weiri_remote base;
    weiri_ib_key key;
} ib_remote;

/* ---- ib/nic.c ------------------------------------------------------------------------------------------- */

/* Opens the device of a port, in place. */
weir_status weiri_ib_nic_open(weiri_ib_nic *nic, const weiri_ib_port *port, const weiri_env *env);
void weiri_ib_nic_close(weiri_ib_nic *nic);

/* The error of a verb, with the remedy when it may come from the limit of locked memory. */
weir_status weiri_ib_fail(const weiri_ib_nic *nic, int error, const char *what);

/* Reads what the device has reported, without blocking; at most every few milliseconds, however often it is called.
 * The context of a queue pair and of a completion queue is a `const char *`, atomic, which gets a static text when that
 * has become unusable. */
void weiri_ib_look(weiri_ib_nic *nic);

/* ---- ib/pair.c ------------------------------------------------------------------------------------------ */

/* What the peer of a queue pair of the domain's NIC `number` must know of it. */
weir_status weiri_ib_pair_describe(const weiri_ib_nic *nic, uint32_t number, uint32_t qpn, weiri_ib_address *own);
/* What both ends then know: all attributes of a connection but its states. WEIR_ERR_UNSUPPORTED when they can never
 * meet. */
weir_status weiri_ib_pair_agree(const weiri_ib_nic *nic, const weiri_ib_address *own, const weiri_ib_address *peer,
                                struct ibv_qp_attr *out);
/* Prepares a new queue pair, and describes it. */
weir_status weiri_ib_pair_init(const weiri_ib_nic *nic, uint32_t number, struct ibv_qp *qp, weiri_ib_address *own);
/* Joins it to its peer; errors as of weiri_ib_pair_agree. */
weir_status weiri_ib_pair_connect(const weiri_ib_nic *nic, struct ibv_qp *qp, const weiri_ib_address *own,
                                  const weiri_ib_address *peer);

/* ---- ib/stripe.c ---------------------------------------------------------------------------------------- */

/* The ops of all queues. */
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

/* Queues by DevX. */
typedef struct weiri_ib_devx {
    weiri_ib_slab *slab;
    uint32_t slot;
    struct mlx5dv_devx_uar *uar;
    struct mlx5dv_devx_obj *cq;
    struct mlx5dv_devx_obj *qp; /* NULL: it was made by verbs, or not at all */
    uint32_t cqn, qpn;
} weiri_ib_devx;

/* A queue pair of kernels. */
typedef struct weiri_ib_engine {
    weiri_ib_engine_nic *shared; /* NULL: nobody asked for it */
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    weiri_ib_devx devx;
    weiri_ib_page *page;
    const uint8_t *completions; /* by verbs */
    weir_dev_rdma view;         /* all but control and state */
    weiri_ib_address own;       /* qpn 0 when it could not be made */
    uint32_t peer_nic, peer_qpn;
    const char *event; /* what the device has reported; atomic */
    char missing[320]; /* why kernels cannot post; "" when they can */
    char about[512];   /* what was made, and how registers are mapped */
} weiri_ib_engine;

void weiri_ib_engine_nic_init(weiri_ib_engine_nic *d, weiri_ib_nic *nic, weir_device *device);
/* After all queues. */
void weiri_ib_engine_nic_close(weiri_ib_engine_nic *d);

/* What goes wrong is told by weiri_ib_engine_view. `own` keeps qpn 0 then. */
void weiri_ib_engine_open(weiri_ib_engine_nic *d, weiri_ib_engine *q, weiri_ib_address *own);
void weiri_ib_engine_connect(weiri_ib_engine *q, const weiri_ib_address *peer);
void weiri_ib_engine_close(weiri_ib_engine *q);
/* As weiri_engine_ops. */
weir_status weiri_ib_engine_view(const weiri_ib_engine *q, weir_dev_rdma *out);
weir_status weiri_ib_engine_check(weiri_ib_engine *q);

/* ---- ib/devx.c ------------------------------------------------------------------------------------------ */

/* Open and close with the lock. Makes the queues, up to the state INIT, and describes them in q->view, but for the
 * doorbell, whose register is q->devx.uar's, and in q->own and q->about. WEIR_ERR_UNSUPPORTED with the step that
 * failed, the firmware's answer and the remedy; what is there then is to be closed. */
weir_status weiri_ib_devx_open(weiri_ib_engine *q);
weir_status weiri_ib_devx_connect(weiri_ib_engine *q, const weiri_ib_address *peer);
void weiri_ib_devx_close(weiri_ib_engine *q);
/* The word at byte 52 of the completion of a request that has failed; 0 when none has. *in_error when the NIC has ended
 * the queue pair, whether a request of ours tells of it or not. */
weir_status weiri_ib_devx_look(const weiri_ib_engine *q, uint32_t *error, bool *in_error);

/* ---- ib/queue.c ----------------------------------------------------------------------------------------- */

/* A put or a get. */
typedef struct weiri_ib_transfer {
    enum ibv_wr_opcode opcode;
    const uint8_t *host; /* where the CPU reads the source of a put; NULL when it cannot */
    uint64_t local, remote, bytes;
    uint32_t lkey, rkey;
    bool flush; /* as in the key */
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

/* A queue of one rail. `own` gets what its peer must know of it. */
weir_status weiri_ib_queue_open(weiri_domain *domain, uint32_t nic, weiri_queue **out, weiri_ib_address *own);
weir_status weiri_ib_queue_connect(weiri_queue *queue, const weiri_ib_address *peer);
void weiri_ib_queue_close(weiri_queue *queue);
/* The NIC of its peer; 0 before it is connected. */
uint32_t weiri_ib_queue_peer_nic(const weiri_queue *queue);
/* As the ops of queues; weiri_ib_queue_ready tells what the next put or get would return, and posts nothing. */
weir_status weiri_ib_queue_ready(weiri_queue *queue);
weir_status weiri_ib_queue_transfer(weiri_queue *queue, const weiri_ib_transfer *transfer);
weir_status weiri_ib_queue_word(weiri_queue *queue, const weiri_ib_word *word);
weir_status weiri_ib_queue_poll(weiri_queue *queue);
#endif
