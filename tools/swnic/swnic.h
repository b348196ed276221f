/* swnic.h - shared by the files of the software NIC; see README.md.
 *
 *   swnic_verbs.c    the library's functions: devices, contexts, domains, regions, events
 *   swnic_queue.c    completion queues and queue pairs: their memory, their states
 *   swnic_post.c     what a driver does in user space: writes requests, rings, reads completions
 *   swnic_mlx5dv.c   hands out the rings
 *   swnic_devx.c     queues that are made by commands of the firmware
 *   swnic_nic.c      the NIC's thread: doorbells, links, time
 *   swnic_wqe.c      reads and checks requests
 *   swnic_send.c     carries them out: the requester of a connection, and completions
 *   swnic_serve.c    the responder of a connection
 *   swnic_receive.c  its receive queue
 *   swnic_link.c     packets between contexts
 *   swnic_fault.c    faults on demand
 *   swnic_trace.c    what was done, as text
 *
 * The driver's half (verbs, queue, post, mlx5dv) and the NIC's half (the rest) communicate as on a machine: through
 * rings, doorbell records and doorbell registers. `lock` guards all other state of the NIC. The NIC's thread holds it
 * while it works, and releases it between rounds if another thread asks. */
#ifndef SWNIC_H
#define SWNIC_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SWNIC_EXPORT __attribute__((visibility("default")))

/* A queue pair's number consists of the slot of its context and an index. */
#define SWNIC_SLOTS 1024u
#define SWNIC_QP_BITS 14u
#define SWNIC_QPS (1u << SWNIC_QP_BITS)

#define SWNIC_DEVICES_MAX 8u
#define SWNIC_MTU 4096u
#define SWNIC_BLOCK 64u       /* bytes of a WQEBB, and of a CQE */
#define SWNIC_WQE_MAX 1008u   /* 63 segments of 16 bytes */
#define SWNIC_INLINE_MAX 512u /* maximum that the driver writes; the NIC takes any length that fits */
#define SWNIC_PIECES 8u
#define SWNIC_READS 16u /* concurrent reads and atomics of a connection */
#define SWNIC_BLOCKS_MAX 32768u
#define SWNIC_SEGMENT 16u
#define SWNIC_LIST_END 0x100u /* lkey of a data segment that ends the list */
#define SWNIC_REGISTER 0x800u /* offset of the first doorbell register in a page */
#define SWNIC_REGISTERS 2u    /* doorbell registers of a queue pair, rung in turn */
#define SWNIC_REGISTER_BYTES 256u
#define SWNIC_NEVER UINT64_MAX

typedef struct swnic_nic swnic_nic;
typedef struct swnic_qp swnic_qp;
typedef struct swnic_umem swnic_umem;
typedef struct swnic_uar swnic_uar;

/* ---- objects of the driver ------------------------------------------------------------------------------ */

typedef struct swnic_pd {
    struct ibv_pd ibv;
    struct swnic_pd *base; /* itself, or the domain below a parent domain */
    struct ibv_parent_domain_init_attr allocator;
    struct swnic_pd *next; /* next of the context */
    uint32_t number;
} swnic_pd;

typedef struct swnic_mr {
    struct ibv_mr ibv;
    int access;
} swnic_mr;

typedef struct swnic_cq {
    struct ibv_cq_ex ex;
    swnic_pd *pd; /* its allocator made the memory; may be NULL */
    uint32_t number, count;
    uint8_t *ring;
    uint32_t *record;
    pthread_mutex_t lock; /* guards `taken` */
    uint32_t taken;
    /* fields of the NIC */
    uint32_t made;
    bool overrun_allowed, broken;
    bool devx;      /* made by a command: memory and consumer index belong to the caller */
    bool collapsed; /* each completion overwrites the one before, in entry 0 */
} swnic_cq;

/* A send queue as the driver sees it. */
typedef struct swnic_sq {
    pthread_mutex_t lock; /* guards all but `taken` */
    uint8_t *ring;
    uint32_t *record;  /* two words; the send queue uses the second */
    uint8_t *page;     /* page of the doorbell registers */
    uint32_t count;    /* blocks, a power of two */
    uint32_t requests; /* requests of any length that fit */
    uint32_t inline_most;
    uint32_t block;    /* number of the next block */
    uint32_t posted;   /* posted requests */
    uint32_t taken;    /* of them, known to be complete; atomic */
    uint32_t reg;      /* register to ring next */
    uint64_t *ids;     /* id of the request that begins in a block */
    uint32_t *numbers; /* number of that request */
    bool signal_all;
} swnic_sq;

/* A receive queue as the driver sees it. Its doorbell record is the first word of the send queue's record. */
typedef struct swnic_rq {
    pthread_mutex_t lock; /* guards all but `taken` */
    uint8_t *ring;
    uint32_t count;  /* entries: a power of two, or 0 */
    uint32_t stride; /* bytes of an entry, a power of two */
    uint32_t posted; /* number of the next entry */
    uint32_t taken;  /* number of the next entry to complete, as far as known; atomic */
    uint64_t *ids;
} swnic_rq;

/* ---- the NIC -------------------------------------------------------------------------------------------- */

/* A request read from the ring. */
typedef struct swnic_wqe {
    uint8_t opcode, flags, segments;
    bool inlined;
    uint16_t index;
    uint32_t blocks;
    uint32_t pieces;
    uint32_t rkey;
    uint64_t remote, bytes;
    uint64_t operand, compare; /* an immediate is an operand too */
    struct {
        uint64_t address;
        uint32_t lkey, bytes;
    } piece[SWNIC_PIECES];
    uint8_t data[SWNIC_WQE_MAX];
} swnic_wqe;

enum {
    SWNIC_NOP = 0x00,
    SWNIC_WRITE = 0x08,
    SWNIC_WRITE_IMMEDIATE = 0x09,
    SWNIC_READ = 0x10,
    SWNIC_SWAP = 0x11,
    SWNIC_ADD = 0x12,
};

/* Kinds of completions. */
enum {
    SWNIC_DONE = 0x0,
    SWNIC_RECEIVED = 0x1, /* a write with immediate */
    SWNIC_FAILED = 0xd,
    SWNIC_RECEIVE_FAILED = 0xe,
    SWNIC_NEVER_WRITTEN = 0xf,
};

/* Syndromes of completions. */
enum {
    SWNIC_LOCAL_QP = 0x02,
    SWNIC_LOCAL_PROTECTION = 0x04,
    SWNIC_FLUSHED = 0x05,
    SWNIC_BAD_RESPONSE = 0x10,
    SWNIC_REMOTE_INVALID = 0x12,
    SWNIC_REMOTE_ACCESS = 0x13,
    SWNIC_REMOTE_OPERATION = 0x14,
    SWNIC_NO_ANSWER = 0x15,
    SWNIC_NOT_READY = 0x16,
};

/* Reasons to refuse a request or a doorbell; the vendor's part of a completion's syndrome. */
typedef enum swnic_refusal {
    SWNIC_FINE,
    SWNIC_BAD_INDEX,
    SWNIC_BAD_NUMBER,
    SWNIC_BAD_LENGTH,
    SWNIC_BAD_OPCODE,
    SWNIC_BAD_SEGMENTS,
    SWNIC_BAD_INLINE,
    SWNIC_BAD_ATOMIC,
    SWNIC_BAD_FLAGS,
    SWNIC_BAD_DOORBELL,
    SWNIC_TOO_FAR,
    SWNIC_EARLY,
    SWNIC_TORN,
    SWNIC_AHEAD,
    SWNIC_REUSED,
    SWNIC_BAD_RECEIVE,
    SWNIC_TOO_MANY,
    SWNIC_REFUSALS
} swnic_refusal;

/* A request under way. */
typedef struct swnic_flight {
    swnic_wqe wqe;
    uint32_t sequence; /* of 24 bits; only of requests that are sent */
    bool answered;     /* the read, atomic or NOP is carried out */
    uint8_t error;     /* syndrome, or 0 */
    uint8_t vendor;
    uint64_t got; /* bytes received of a read, or acknowledged of a write */
} swnic_flight;

struct swnic_qp {
    struct ibv_qp ibv;
    uint8_t *rings; /* ring of receives, and behind it that of requests */
    swnic_sq sq;
    swnic_rq rq;
    bool devx; /* made by a command: memory belongs to the caller */
    /* fields of the NIC */
    swnic_nic *nic;
    swnic_qp *next; /* of the context */
    swnic_pd *pd;   /* domain of regions */
    enum ibv_qp_state state;
    int access;
    struct ibv_qp_attr attr;
    uint16_t lid;
    uint64_t seen[SWNIC_REGISTERS];
    uint64_t seen_since[SWNIC_REGISTERS]; /* for delayed doorbells */
    uint32_t known;                       /* number of the block behind the last doorbell */
    uint32_t fetched;                     /* number of the block behind those in `flights` */
    uint32_t freed;                       /* number of the block behind the complete ones */
    swnic_flight *flights;                /* [n % count]: request n */
    uint32_t done, sent, got;             /* numbers of the next request to complete, to send, to fetch */
    uint64_t offset;                      /* bytes sent of request `sent` */
    uint32_t reads;                       /* reads and atomics sent and not answered */
    uint32_t sequence;                    /* sequence of the next request */
    uint32_t acknowledged;
    uint32_t highest;   /* highest sequence whose packets were sent */
    uint64_t moved_ns;  /* when the peer last answered, or the oldest waiting request was sent */
    uint64_t resume_ns; /* earliest time to send again after "receiver not ready" */
    uint32_t retries, not_ready;
    uint64_t held_ns;   /* since when the next completion is held back, or 0 */
    uint32_t held_made; /* completions of its completion queue at that time */
    /* fields of the responder */
    uint32_t expected;
    uint64_t expected_offset;
    uint32_t received; /* number of the next entry of the receive queue */
    bool owes;         /* an acknowledgement is due */
    bool reported;     /* the loss of an earlier packet was reported to the peer */
    swnic_qp *next_owing;
    struct {
        uint32_t sequence;
        uint64_t value;
        bool used;
    } atomics[SWNIC_READS];
    uint32_t atomic;
};

/* ---- packets -------------------------------------------------------------------------------------------- */

enum { SWNIC_REQUESTS, SWNIC_RESPONSES, SWNIC_RINGS };

/* Requests have the opcodes of WQEs. In an acknowledgement, `offset` has the received bytes of the next request, and
 * `syndrome` says whether an earlier packet is missing. */
enum { SWNIC_ACK = 0x40, SWNIC_NAK = 0x41, SWNIC_DATA = 0x42, SWNIC_VALUE = 0x43 };

typedef struct swnic_packet {
    uint8_t type;
    uint8_t syndrome; /* of a NAK */
    uint16_t lid;     /* LID of the receiving port */
    uint32_t to, from;
    uint32_t sequence;
    uint32_t bytes; /* bytes of the data behind the packet */
    uint32_t rkey;
    uint64_t offset, total;
    uint64_t remote;
    uint64_t operand, compare;
} swnic_packet;

typedef struct swnic_wire swnic_wire;

/* The link to another context or to this one. */
typedef struct swnic_out {
    int socket;
    swnic_wire *wire; /* NULL while no context is there */
    uint64_t written[SWNIC_RINGS];
    uint64_t tried_ns;
} swnic_out;

typedef struct swnic_in {
    struct swnic_in *next;
    int socket;
    swnic_wire *wire; /* NULL before the peer's hello */
    uint32_t slot;
    uint64_t read[SWNIC_RINGS];
    /* the read that is being answered, and its remaining bytes */
    swnic_packet reading;
    uint64_t reading_left;
} swnic_in;

typedef enum swnic_fault_name {
    SWNIC_FAULT_REMOTE_ACCESS,
    SWNIC_FAULT_LOST_REQUEST,
    SWNIC_FAULT_LOST_RESPONSE,
    SWNIC_FAULT_NOT_READY,
    SWNIC_FAULT_FLAG_FIRST,
    SWNIC_FAULT_TORN,
    SWNIC_FAULT_LATE_COMPLETION,
    SWNIC_FAULT_ERROR,
    SWNIC_FAULT_LOST_DOORBELL,
    SWNIC_FAULT_SLOW_DOORBELL,
    SWNIC_FAULT_LINK_DOWN,
    SWNIC_FAULT_SHAPE,
    SWNIC_FAULT_COUNTERS,
    SWNIC_FAULT_NO_ATOMICS,
    SWNIC_FAULT_DEVICE,
    SWNIC_FAULT_NO_DEVX,
    SWNIC_FAULT_NO_UMEM,
    SWNIC_FAULT_NO_UAR,
    SWNIC_FAULT_COMMAND,
    SWNIC_FAULTS
} swnic_fault_name;

#define SWNIC_FAULT_NUMBERS 4u

typedef struct swnic_fault {
    bool set;
    uint64_t arg[SWNIC_FAULT_NUMBERS];
    uint64_t count; /* events that it could have hit */
    uint64_t since_ns;
} swnic_fault;

/* A packet of a write that is acknowledged but not yet in memory. */
typedef struct swnic_late {
    swnic_qp *qp; /* NULL: unused */
    uint64_t since_ns;
    swnic_packet packet;
    uint8_t data[SWNIC_MTU];
} swnic_late;

typedef struct swnic_event {
    struct swnic_event *next;
    struct ibv_async_event ibv;
} swnic_event;

struct swnic_nic {
    struct verbs_context verbs;
    uint32_t device;
    int trace;            /* file descriptor or -1 */
    pthread_mutex_t lock; /* guards all below */
    uint32_t asking;      /* threads that want the lock; atomic */
    pthread_t thread;
    bool running, stop;
    uint32_t slot;
    int listener;
    swnic_mr **mrs;
    uint8_t *variants; /* low bytes of keys */
    uint32_t mr_count, mr_next;
    swnic_qp *qps[SWNIC_QPS]; /* entries are atomic */
    uint32_t qp_next, cq_next, pd_next, umem_next, uar_next;
    swnic_pd *pds;
    swnic_umem *umems;
    swnic_uar *uars;
    struct mlx5dv_devx_obj *objects;
    swnic_qp *first;
    swnic_out *outs[SWNIC_SLOTS];
    swnic_in *ins;
    swnic_qp *owing;
    uint64_t now_ns, kept_ns;
    bool link_up;
    bool fatal;
    swnic_late late;
    uint64_t line_ns; /* when the last packet leaves, with the fault `shape` */
    uint32_t random;
    swnic_fault faults[SWNIC_FAULTS];
    pthread_mutex_t event_lock;
    pthread_cond_t event_acked;
    swnic_event *events;
    uint32_t unacked;
};

static inline swnic_nic *swnic_of(struct ibv_context *context)
{
    return (swnic_nic *)((char *)context - offsetof(swnic_nic, verbs.context));
}

/* ---- bytes ---------------------------------------------------------------------------------------------- */

static inline uint32_t swnic_get32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static inline uint64_t swnic_get64(const uint8_t *p) { return (uint64_t)swnic_get32(p) << 32 | swnic_get32(p + 4); }

static inline void swnic_put32(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)(v >> 24);
    p[1] = (uint8_t)(v >> 16);
    p[2] = (uint8_t)(v >> 8);
    p[3] = (uint8_t)v;
}

static inline void swnic_put64(uint8_t *p, uint64_t v)
{
    swnic_put32(p, (uint32_t)(v >> 32));
    swnic_put32(p + 4, (uint32_t)v);
}

/* Copies memory that a NIC sends. Aligned 8-byte words are read whole, as over PCIe. A kernel with its peer's answer in
 * packets stores new packets over the sent ones, and no acquire orders these stores behind this read. */
static inline void swnic_load_words(uint8_t *to, const uint8_t *from, size_t bytes)
{
    size_t at = (size_t)(-(uintptr_t)from % 8);
    at = at < bytes ? at : bytes;
    memcpy(to, from, at);
    for (; bytes - at >= 8; at += 8) {
        const uint64_t word = __atomic_load_n((const uint64_t *)(const void *)(from + at), __ATOMIC_RELAXED);
        memcpy(to + at, &word, sizeof word);
    }
    memcpy(to + at, from + at, bytes - at);
}

/* The last value stored to a doorbell register. */
static inline uint64_t swnic_register(const swnic_qp *qp, uint32_t index)
{
    const uint8_t *at = qp->sq.page + SWNIC_REGISTER + index * SWNIC_REGISTER_BYTES;
    return __atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_ACQUIRE);
}

/* Difference of two 24-bit numbers. */
static inline int32_t swnic_after(uint32_t a, uint32_t b) { return (int32_t)((a - b) << 8) >> 8; }

/* ---- swnic_verbs.c -------------------------------------------------------------------------------------- */

void swnic_report(swnic_nic *nic, enum ibv_event_type type, void *element);
/* Adds faults to a context, as SWNIC_FAULT does to all contexts; for tests. Returns 0 or an errno. */
int swnic_inject(struct ibv_context *context, const char *script);
/* Whether the CPU can read the memory; it cannot read that of a GPU. */
bool swnic_is_host_memory(const uint8_t *at, size_t bytes);
/* Drops the events of an object that is destroyed, and waits until taken events are acknowledged. */
void swnic_forget(swnic_nic *nic, const void *element);

/* ---- swnic_queue.c -------------------------------------------------------------------------------------- */

struct ibv_cq_ex *swnic_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
/* The caller of the next three holds the lock. They return 0 or an errno. Gives a queue pair its number and its place
 * in the tables. */
int swnic_qp_add(swnic_qp *qp);
int swnic_qp_modify(swnic_qp *qp, const struct ibv_qp_attr *attr, int mask);
void swnic_qp_remove(swnic_qp *qp);

/* ---- swnic_post.c --------------------------------------------------------------------------------------- */

int swnic_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int swnic_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int swnic_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc);

/* ---- swnic_nic.c ---------------------------------------------------------------------------------------- */

/* Called around changes of the NIC's objects by any thread except the NIC's. */
void swnic_enter(swnic_nic *nic);
void swnic_leave(swnic_nic *nic);
/* Returns 0 or an errno. */
int swnic_start(swnic_nic *nic);
void swnic_end(swnic_nic *nic);
uint64_t swnic_now(void);

/* ---- swnic_wqe.c ---------------------------------------------------------------------------------------- */

/* Reads the request that begins in block `block` of a ring of `count` blocks; `known` blocks are valid. A nonzero
 * `torn` selects a segment that counts as not yet written. */
swnic_refusal swnic_wqe_read(uint8_t *ring, uint32_t count, uint32_t block, uint32_t known, uint32_t qpn, uint32_t torn,
                             swnic_wqe *out);
/* Marks blocks as read. A program writes each request whole. So a mark that is still there at the doorbell shows a
 * missing part, and a mark that is gone before the completion shows an early overwrite. */
void swnic_wqe_mark(uint8_t *ring, uint32_t count, uint32_t block, uint32_t blocks);
bool swnic_wqe_is_marked(uint8_t *ring, uint32_t count, uint32_t block, uint32_t blocks);
const char *swnic_refusal_text(swnic_refusal refusal);

/* ---- swnic_send.c --------------------------------------------------------------------------------------- */

/* Takes doorbells and sends requests. True if there was something to do. */
bool swnic_qp_step(swnic_qp *qp);
/* Handles timeouts and delays. */
void swnic_qp_timer(swnic_qp *qp);
void swnic_take_response(swnic_nic *nic, const swnic_packet *packet, const uint8_t *data);
/* Puts the queue pair into the error state and completes all its requests. */
void swnic_qp_fail(swnic_qp *qp);
/* Adds an entry to a completion queue of the queue pair, and sets its kind and owner. False if the queue is full, which
 * puts both into the error state. */
bool swnic_cq_add(swnic_qp *qp, swnic_cq *cq, uint8_t kind, uint8_t entry[SWNIC_BLOCK]);
/* Memory of a region, or NULL if the key does not allow the access. */
uint8_t *swnic_reach(swnic_nic *nic, const swnic_pd *pd, uint32_t key, uint64_t address, uint64_t bytes, int access);

/* ---- swnic_serve.c -------------------------------------------------------------------------------------- */

/* Takes and answers requests of a link. True if there was something to do. */
bool swnic_serve(swnic_nic *nic, swnic_in *in);
/* Sends due acknowledgements. */
void swnic_acknowledge(swnic_nic *nic);
void swnic_unowe(swnic_qp *qp);
/* Writes delayed packets to memory. */
void swnic_store_late(swnic_nic *nic);

/* ---- swnic_receive.c ------------------------------------------------------------------------------------ */

bool swnic_receive_is_posted(const swnic_qp *qp);
/* Whether the next posted entry is valid; an invalid one completes with an error. */
bool swnic_receive_check(swnic_qp *qp);
/* Completes the next entry with an immediate and a length. */
void swnic_receive_take(swnic_qp *qp, uint32_t immediate, uint64_t bytes);
/* Completes all entries of a queue pair in error. */
void swnic_receive_flush(swnic_qp *qp);

/* ---- swnic_link.c --------------------------------------------------------------------------------------- */

/* Takes a free slot and listens there. Returns 0 or an errno. */
int swnic_listen(swnic_nic *nic);
/* The link to a context, made if necessary. NULL while no context is there. */
swnic_out *swnic_out_to(swnic_nic *nic, uint32_t slot);
/* Accepts new links and removes ended ones. */
void swnic_links_keep(swnic_nic *nic);
void swnic_links_close(swnic_nic *nic);
/* Number of packets with room now. */
uint32_t swnic_out_room(const swnic_out *out, int ring);
/* The place of the next packet's data; there must be room. */
uint8_t *swnic_out_data(const swnic_out *out, int ring);
void swnic_out_send(swnic_nic *nic, swnic_out *out, int ring, const swnic_packet *packet);
/* Gets the next packet, or returns false; its data stays until swnic_in_taken. */
bool swnic_in_next(swnic_in *in, int ring, swnic_packet *packet, const uint8_t **data);
void swnic_in_taken(swnic_in *in, int ring);

/* ---- swnic_fault.c -------------------------------------------------------------------------------------- */

/* Adds the faults of a script. Returns 0, or an errno if it is malformed. */
int swnic_fault_read(swnic_nic *nic, const char *script);
/* Counts an event; true if the fault hits it. */
bool swnic_fault_hits(swnic_nic *nic, swnic_fault_name name);
/* A random number of 24 bits. */
uint32_t swnic_random(swnic_nic *nic);
/* Updates the link's state for the current time, and reports changes. */
void swnic_fault_time(swnic_nic *nic);

/* ---- swnic_trace.c -------------------------------------------------------------------------------------- */

/* Returns a file descriptor or -1. */
int swnic_trace_open(void);
__attribute__((format(printf, 2, 3))) void swnic_trace(const swnic_nic *nic, const char *format, ...);
void swnic_trace_wqe(const swnic_qp *qp, const swnic_wqe *wqe);
void swnic_trace_receive(const swnic_qp *qp, uint32_t immediate, uint64_t bytes, uint8_t syndrome);
void swnic_trace_completion(const swnic_qp *qp, uint16_t index, uint8_t syndrome, uint8_t vendor);
/* Reports a refused request, receive or doorbell. */
void swnic_complain(const swnic_qp *qp, swnic_refusal refusal, uint32_t block);

#endif
