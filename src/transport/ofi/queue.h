/* queue.h - the queues of the transport ofi: how they work, and what their files share.
 *
 * ofi/queue.c opens, polls and closes queues. ofi/post.c issues the posts of this rank. ofi/message.c carries out the
 * peer's requests.
 *
 * A post goes into a ring. The thread that holds the queue's mutex issues the ring's posts in order: the posting thread
 * at once if it gets the mutex, otherwise the next poll. So a post never blocks. Posts stay in the ring while libfabric
 * has no room or no connection for them.
 *
 * Puts are writes, cut into slices. They ask for completion upon delivery, which the peer's library acknowledges.
 * Without it a write completes when it has left this host's buffers, and gets lost silently if the provider replaces a
 * broken connection. Large writes that each ask for delivery have a quarter of the throughput at 64 KiB (libfabric
 * 1.17). So large writes form groups, and an empty write behind each group asks for delivery. To form groups, posts
 * wait for the next poll while many operations are under way. A group is issued as a whole. If room runs out within it,
 * all of it is issued again, since the connection may be a new one. For the same reason nothing is issued after
 * libfabric has had no room until all completions are read: the errors of a broken connection come first.
 *
 * Values, adds and gets are messages to the peer's queue. Its polls carry them out in order. A value cannot be a write:
 * TCP may cut 8 bytes in two, and the peer would see one half. The peer's poll stores the value in one piece. The
 * peer's CPU does an add; it is atomic with the adds of all queues and of that host's CPUs, and with a GPU's adds to
 * host memory only if the GPU's link carries atomics. A get is not a read, because libfabric 1.17 crashes the process
 * that is read if the reader ends. Instead the peer's poll writes the data back. Messages stay in order behind writes
 * and messages (FI_ORDER_SAW and FI_ORDER_SAS). So a message is carried out after all earlier posts, and its
 * acknowledgement arrives after the data that it asked for. Each message acknowledges messages of the other side; an
 * idle poll sends a message that only acknowledges. The peer refuses a message that names unknown memory. This fails
 * the poster's queue, and later messages are not carried out. Queues and regions have random names; a queue ignores
 * messages without its own name. Messages are injected and have no completions.
 *
 * Transfers of staged memory (ofi/ofi.h) are cut into chunks. A put from staged memory is copied into a local chunk and
 * written from there while the next chunk is copied. A put into staged memory is written into a chunk of the peer's
 * landing zone; a message behind it asks the peer to copy the chunk to its place, and the acknowledgement frees the
 * chunk. A get into staged memory sends one message for each local chunk. A get from staged memory uses chunks that
 * nothing else uses. So the peer's gets never wait for local posts, and two ranks cannot wait for each other. Messages
 * behind a landing wait until it is copied, except other landings.
 *
 * A queue that waits only for an acknowledgement would not notice that the peer has ended. So an empty put probes the
 * peer from time to time. A connection that was established, has nothing under way and still has no room is lost.
 *
 * A queue that fails closes its endpoint: nothing reads or writes its memory any more, and the peer's posts fail. The
 * first post makes the connection. libfabric 1.17 leaks the socket of a connection that it has accepted but not
 * completed when the endpoint closes. */
#ifndef WEIRI_OFI_QUEUE_H
#define WEIRI_OFI_QUEUE_H

#include "src/transport/ofi/ofi.h"

#define WEIRI_OFI_DEPTH 256u   /* incomplete posts of a queue */
#define WEIRI_OFI_OPS 256u     /* incomplete operations of libfabric */
#define WEIRI_OFI_RECEIVES 32u /* receives, beside those */
#define WEIRI_OFI_CHUNK ((uint64_t)512 << 10)
#define WEIRI_OFI_LANDINGS 4u /* chunks of the landing zone */
#define WEIRI_OFI_CHUNKS 4u   /* for local posts */
#define WEIRI_OFI_SERVES 2u   /* for the peer's gets */

enum { WEIRI_OFI_VALUE = 1, WEIRI_OFI_ADD, WEIRI_OFI_GET, WEIRI_OFI_LAND, WEIRI_OFI_DONE, WEIRI_OFI_REFUSED };

typedef struct weiri_ofi_message {
    uint64_t token;  /* of the receiving queue */
    uint64_t number; /* from 1, of a message that asks for something; else 0 */
    uint64_t done;   /* number of the receiver's last message that is carried out */
    uint16_t kind;
    uint16_t bytes;        /* bytes of a value */
    weiri_ofi_place place; /* in the receiver's memory */
    uint64_t value;        /* of a get or landing: its bytes */
    uint64_t key;          /* with address: the destination of a get */
    uint64_t address;      /* of a landing: the chunk */
    uint64_t copy;         /* not sent: the receiver's copy for a landing, or for a value into staged memory */
} weiri_ofi_message;

typedef struct weiri_ofi_post {
    uint32_t waiting;          /* incomplete operations, and incomplete chunks of a get */
    bool more;                 /* something is left to issue */
    bool staged;               /* the local memory is staged */
    bool written;              /* the bytes of the next piece of a put into staged memory are written; its message is
                                * not sent */
    uint64_t number;           /* of the post's last message; 0 before */
    weiri_ofi_message message; /* kind 0: a put into memory that is not staged sends none */
    weiri_ofi_place source;    /* or destination of a get; if staged */
    uint8_t *local;            /* if not staged */
    void *desc;
    uint64_t address;
    uint64_t key;
    uint64_t left;  /* bytes not issued */
    uint64_t uncut; /* of a staged post: bytes without a chunk */
} weiri_ofi_post;

/* A piece of pinned memory, for local posts or for the peer's gets. Chunks are used in turn. */
typedef struct weiri_ofi_chunk {
    weiri_ofi_pinned memory;
    bool busy;
    uint64_t copy; /* number of the copy that fills or empties the chunk; 0: not begun */
    uint64_t bytes;
    weiri_ofi_post *get;   /* that fills the chunk */
    uint64_t number;       /* number of the get's message */
    weiri_ofi_place place; /* where its bytes go */
} weiri_ofi_chunk;

typedef struct weiri_ofi_op {
    struct fi_context2 context; /* first: libfabric's, in some modes */
    uint64_t first, last;       /* the posts that wait for the operation; 0: no posts */
    weiri_ofi_chunk *chunk;     /* that the operation empties, or NULL */
    struct weiri_ofi_op *next;  /* next free operation */
} weiri_ofi_op;

typedef struct weiri_ofi_queue {
    weiri_queue base;
    weiri_ofi_domain *domain;
    pthread_mutex_t mutex; /* guards all that follows; base.posted and base.completed hand over the poster's fields and
                            * the slots of the ring */
    struct fid_ep *ep;
    struct fid_cq *cq;
    struct fid_av *av;
    fi_addr_t peer;
    bool connected;   /* has the peer's address */
    bool established; /* something was sent over the connection */
    bool blocked;     /* libfabric had no room: issue nothing before the completions are read */
    bool refused;     /* the message after `begun` is refused */
    bool refusal_sent;
    uint32_t busy_ops;
    uint64_t issued;     /* posts that were passed to libfabric as a whole */
    uint64_t group;      /* the first post of the open group; 0: no group */
    uint32_t group_size; /* writes of the group */
    uint32_t group_most;
    uint64_t sent;       /* messages sent */
    uint64_t acked;      /* of them, acknowledged by the peer */
    uint64_t arrived;    /* messages received from the peer */
    uint64_t begun;      /* of them, begun */
    uint64_t handled;    /* of them, carried out */
    uint64_t reported;   /* of them, acknowledged by this rank */
    uint64_t served;     /* bytes written for the get after `begun` */
    uint64_t loaded;     /* bytes of it that have a chunk */
    uint64_t quiet_ns;   /* since when the queue waits only for an acknowledgement; 0: it does not */
    uint64_t no_room_ns; /* since when there is no room although nothing is under way; 0: there is room */
    weiri_ofi_op *free_ops;
    uint64_t slice;
    weir_status status; /* of the failed queue; written after `text` */
    char text[160];
    uint64_t token;
    uint64_t peer_token;
    uint64_t peer_key; /* of the peer's queue memory: its landing zone, and the target of probes */
    uint64_t peer_address;
    bool peer_lands;     /* the peer has a landing zone */
    weiri_block *memory; /* pinned: incoming messages; with staged memory also the landing zone, chunks and a word */
    struct fid_mr *mr;   /* registration of `memory` */
    uint64_t mr_key;
    uint64_t landed;                       /* chunks written so far in the peer's landing zone */
    uint64_t landings[WEIRI_OFI_LANDINGS]; /* for each of its chunks, the last message about it */
    uint64_t ended[WEIRI_OFI_STREAMS];     /* copies known to have ended */
    uint64_t last[WEIRI_OFI_STREAMS];      /* this queue's last copy */
    uint64_t cutting;                      /* next post that may need chunks */
    uint64_t cut;                          /* local chunks taken so far */
    uint64_t used;                         /* of them, issued */
    uint64_t loads;                        /* chunks filled for the peer's gets */
    uint64_t unloads;                      /* of them, written */
    weiri_ofi_chunk chunks[WEIRI_OFI_CHUNKS];
    weiri_ofi_chunk serves[WEIRI_OFI_SERVES];
    weiri_ofi_pinned landing; /* the zone's first byte */
    weiri_ofi_pinned word;    /* for a value that is stored in staged memory */
    uint8_t *messages;        /* incoming messages */
    weiri_ofi_op ops[WEIRI_OFI_OPS];
    weiri_ofi_op receives[WEIRI_OFI_RECEIVES];
    weiri_ofi_message inbox[WEIRI_OFI_DEPTH];
    weiri_ofi_post ring[WEIRI_OFI_DEPTH];
} weiri_ofi_queue;

/* ---- ofi/queue.c ----------------------------------------------------------------------------------------- */

/* WEIR_OK, or the queue's error. */
weir_status weiri_ofi_failed(weiri_ofi_queue *queue);
/* The caller of all that follows holds the mutex. Each returns the error that it fails the queue with.
 * weiri_ofi_fail_queue fails the queue with the thread's last error. */
weir_status weiri_ofi_fail_queue(weiri_ofi_queue *queue, weir_status status);
/* WEIR_OK if libfabric took the operation, or has no room now. */
weir_status weiri_ofi_check(weiri_ofi_queue *queue, ssize_t error);
/* weiri_ofi_copy, for this queue. */
weir_status weiri_ofi_begin_copy(weiri_ofi_queue *queue, uint32_t stream, const weiri_ofi_place *place,
                                 const weiri_ofi_pinned *pinned, uint64_t bytes, uint64_t *number);
/* Whether a copy has ended. */
weir_status weiri_ofi_has_ended(weiri_ofi_queue *queue, uint32_t stream, uint64_t copy, bool *ended);

/* ---- ofi/post.c: local posts --------------------------------------------------------------------------- */

bool weiri_ofi_has_room(const weiri_ofi_queue *queue);
/* Writes to the peer's memory; `what` says for which posts, and from which chunk, if any. -FI_EAGAIN: no room now. */
ssize_t weiri_ofi_write_out(weiri_ofi_queue *queue, const weiri_ofi_op *what, void *from, void *desc, uint64_t bytes,
                            uint64_t address, uint64_t key);
/* Issues posts while there is room. */
weir_status weiri_ofi_issue(weiri_ofi_queue *queue);
/* Copies arrived chunks of gets to their place in staged memory. */
weir_status weiri_ofi_unload(weiri_ofi_queue *queue);
/* Probes the peer if no operation under way would notice its end. */
weir_status weiri_ofi_watch(weiri_ofi_queue *queue);

/* ---- ofi/message.c: messages, and what comes in ------------------------------------------------------------- */

/* Sets token and numbers of a message and sends it. -FI_EAGAIN: no room now. */
ssize_t weiri_ofi_send(weiri_ofi_queue *queue, weiri_ofi_message *message);
weir_status weiri_ofi_receive(weiri_ofi_queue *queue, size_t index);
/* Takes the message that receive `index` got. */
weir_status weiri_ofi_take_message(weiri_ofi_queue *queue, size_t index, size_t bytes);
/* Carries out the peer's messages in order. */
weir_status weiri_ofi_handle(weiri_ofi_queue *queue);
/* Acknowledges the peer's messages if more of them were carried out; a later call does so if there is no room now. */
weir_status weiri_ofi_acknowledge(weiri_ofi_queue *queue);

#endif
