/* queue.h - the queues of the transport ofi: what their files share, and how they work.
 *
 * ofi/queue.c opens, polls and closes them, ofi/post.c has what this rank posts, ofi/message.c what the peer asks for.
 *
 * A post goes into a ring, and whoever holds the queue's mutex issues what is in the ring, in order: the poster at
 * once if it gets the mutex, else a poll. So a post waits for nobody, and what libfabric has no room for, or no
 * connection yet, waits in the ring.
 *
 * Puts are writes, in slices. They ask for completion upon delivery, which the peer's library acknowledges: without it
 * they would be complete when they have left this host's buffers, and be lost unnoticed when a provider makes a new
 * connection in place of a broken one. A large write that asks for that by itself has a quarter of the throughput at
 * 64 KiB (libfabric 1.17), so that an empty one behind a group of them does: while much is under way, what is posted
 * waits for the next poll, which issues all of it. All of a group is issued, or all again: in between, no connection is
 * made. For the same reason, after libfabric has had no room, nothing is issued before all completions have been read:
 * the errors of what a broken connection took with it come first.
 *
 * Values, adds and gets are messages to the peer's queue, which its polls carry out, in order. A value cannot be a
 * write: TCP may cut 8 bytes in two, and the peer would see one half; the poll stores it in one piece. An add is one of
 * the peer's CPU, atomic to adds of all queues and to what its CPUs add; to what a GPU adds in memory of the host only
 * where its link carries atomics. A get is not a read, since libfabric 1.17 crashes the process that is read from when
 * the reader ends: the poll writes the data back. Messages keep their order behind writes and messages (asked for as
 * FI_ORDER_SAW and FI_ORDER_SAS), so a message is carried out after all that was posted before it, and its
 * acknowledgement comes after the data that it asked for. Each message acknowledges those of the other side; a poll
 * that finds nothing else to do sends one that does no more. A message whose memory does not exist is refused, which
 * fails the poster's queue; none is carried out after it. The names that messages carry are random, and a message
 * without the queue's own is a stranger's and ignored. Messages are injected: none has a completion.
 *
 * Staged memory (ofi/ofi.h) is cut into chunks. What is put from it is copied into a chunk of ours and written from
 * there, while the next is copied. What is put into it is written into a chunk of the peer's landing zone, and a
 * message behind it has the peer copy it on; the message's acknowledgement gives the chunk back. What is got into it
 * comes by a message for each chunk of ours, and what is got from it goes by chunks that only this uses: so what the
 * peer asks for never waits for what we have posted, and the two cannot wait for each other. Messages behind a landing
 * wait until it is copied, but for other landings.
 *
 * Who waits for an acknowledgement alone would not learn of the peer's end, so an empty put probes it now and then.
 * A connection that was there, has nothing under way and still has no room is lost.
 *
 * A queue that fails closes its endpoint: nothing reads or writes its memory any more, and the peer's posts fail.
 * Connections are made by the first post; libfabric 1.17 leaves the socket of one open that it has accepted but not
 * finished when its endpoint is closed. */
#ifndef WEIRI_OFI_QUEUE_H
#define WEIRI_OFI_QUEUE_H

#include "src/transport/ofi/ofi.h"

#define WEIRI_OFI_DEPTH 256u   /* posts of a queue that are not complete */
#define WEIRI_OFI_OPS 256u     /* operations of libfabric that are not */
#define WEIRI_OFI_RECEIVES 32u /* of them beside those, receives */
#define WEIRI_OFI_CHUNK ((uint64_t)512 << 10)
#define WEIRI_OFI_LANDINGS 4u /* chunks of the landing zone */
#define WEIRI_OFI_CHUNKS 4u   /* of our posts */
#define WEIRI_OFI_SERVES 2u   /* of gets of the peer's */

enum { WEIRI_OFI_VALUE = 1, WEIRI_OFI_ADD, WEIRI_OFI_GET, WEIRI_OFI_LAND, WEIRI_OFI_DONE, WEIRI_OFI_REFUSED };

typedef struct weiri_ofi_message {
    uint64_t token;  /* of the queue that it goes to */
    uint64_t number; /* of those that ask for something, from 1; else 0 */
    uint64_t done;   /* number of the last of the receiver's messages that is carried out */
    uint16_t kind;
    uint16_t bytes;        /* of a value */
    weiri_ofi_place place; /* in the receiver's memory */
    uint64_t value;        /* of a get or landing, the bytes */
    uint64_t key;          /* with address, where those of a get go */
    uint64_t address;      /* of a landing, the chunk */
    uint64_t copy;         /* the receiver's own: of a landing, or value into staged memory, that is under way */
} weiri_ofi_message;

typedef struct weiri_ofi_post {
    uint32_t waiting;          /* operations, and chunks of a get, that are not complete */
    bool more;                 /* whether there is something to be issued */
    bool staged;               /* our side */
    bool written;              /* of the next piece of a put into staged memory, the bytes; its message is not sent */
    uint64_t number;           /* of its last message; 0 before */
    weiri_ofi_message message; /* kind 0: of a put into memory that is not staged there is none */
    weiri_ofi_place source;    /* or destination of a get; when staged */
    uint8_t *local;            /* when not */
    void *desc;
    uint64_t address;
    uint64_t key;
    uint64_t left;  /* bytes that are not issued */
    uint64_t uncut; /* and those that have no chunk, of a staged post */
} weiri_ofi_post;

/* Of ours, and those of the peer's gets. They are used in turn. */
typedef struct weiri_ofi_chunk {
    weiri_ofi_pinned memory;
    bool busy;
    uint64_t copy; /* that fills or empties it; 0: not begun */
    uint64_t bytes;
    weiri_ofi_post *get;   /* that fills it */
    uint64_t number;       /* of the get's message */
    weiri_ofi_place place; /* where its bytes go */
} weiri_ofi_chunk;

typedef struct weiri_ofi_op {
    struct fi_context2 context; /* first: libfabric's, in some modes */
    uint64_t first, last;       /* the posts that wait for it; 0: none does */
    weiri_ofi_chunk *chunk;     /* that it empties, or NULL */
    struct weiri_ofi_op *next;  /* free one */
} weiri_ofi_op;

typedef struct weiri_ofi_queue {
    weiri_queue base;
    weiri_ofi_domain *domain;
    pthread_mutex_t mutex; /* of all that follows; the poster's fields, and slots of the ring, are handed over by
                            * base.posted and base.completed */
    struct fid_ep *ep;
    struct fid_cq *cq;
    struct fid_av *av;
    fi_addr_t peer;
    bool connected;   /* to an address */
    bool established; /* something has gone out over the connection */
    bool blocked;     /* libfabric had no room: not before the completions are read */
    bool refused;     /* the message after `begun` */
    bool refusal_sent;
    uint32_t busy_ops;
    uint64_t issued;     /* posts that libfabric has all of */
    uint64_t group;      /* the first post of the group that is being issued; 0: there is none */
    uint32_t group_size; /* writes of it */
    uint32_t group_most;
    uint64_t sent;       /* messages of ours */
    uint64_t acked;      /* of them, acknowledged */
    uint64_t arrived;    /* messages of the peer */
    uint64_t begun;      /* of them, those whose carrying out has begun */
    uint64_t handled;    /* of them, carried out */
    uint64_t reported;   /* of them, acknowledged */
    uint64_t served;     /* bytes that the get after `begun` has got */
    uint64_t loaded;     /* and those that have a chunk */
    uint64_t quiet_ns;   /* since when nothing but an acknowledgement is awaited; 0: it is not so */
    uint64_t no_room_ns; /* since when there is no room although nothing is under way; 0: it is not so */
    weiri_ofi_op *free_ops;
    uint64_t slice;
    weir_status status; /* of the failed queue; after `text` */
    char text[160];
    uint64_t token;
    uint64_t peer_token;
    uint64_t peer_key; /* of memory of the peer's: its landing zone, and for probes */
    uint64_t peer_address;
    bool peer_lands; /* has a landing zone */
    weiri_block
        *memory;       /* pinned: the landing zone, chunks and a word, where there are streams; messages that come in */
    struct fid_mr *mr; /* of it */
    uint64_t mr_key;
    uint64_t landed;                       /* chunks of the peer's landing zone that were written so far */
    uint64_t landings[WEIRI_OFI_LANDINGS]; /* messages that gave them to the peer last */
    uint64_t ended[WEIRI_OFI_STREAMS];     /* copies, as far as known */
    uint64_t last[WEIRI_OFI_STREAMS];      /* the last copy of this queue's */
    uint64_t cutting;                      /* the next post that may need chunks */
    uint64_t cut;                          /* chunks of ours that were taken so far */
    uint64_t used;                         /* of them, those that were issued */
    uint64_t loads;                        /* the same, of the peer's gets */
    uint64_t unloads;
    weiri_ofi_chunk chunks[WEIRI_OFI_CHUNKS];
    weiri_ofi_chunk serves[WEIRI_OFI_SERVES];
    weiri_ofi_pinned landing; /* the zone's first byte */
    weiri_ofi_pinned word;    /* of the value that is stored in staged memory */
    uint8_t *messages;        /* those that come in */
    weiri_ofi_op ops[WEIRI_OFI_OPS];
    weiri_ofi_op receives[WEIRI_OFI_RECEIVES];
    weiri_ofi_message inbox[WEIRI_OFI_DEPTH];
    weiri_ofi_post ring[WEIRI_OFI_DEPTH];
} weiri_ofi_queue;

/* ---- ofi/queue.c ----------------------------------------------------------------------------------------- */

/* WEIR_OK, or what the queue has failed with. */
weir_status weiri_ofi_failed(weiri_ofi_queue *queue);
/* All that follows is called with the mutex, and returns what the queue fails with. Fails the queue with the thread's
 * last error. */
weir_status weiri_ofi_fail_queue(weiri_ofi_queue *queue, weir_status status);
/* WEIR_OK for what libfabric took, or has to wait. */
weir_status weiri_ofi_check(weiri_ofi_queue *queue, ssize_t error);
/* As weiri_ofi_copy, for this queue. */
weir_status weiri_ofi_begin_copy(weiri_ofi_queue *queue, uint32_t stream, const weiri_ofi_place *place,
                                 const weiri_ofi_pinned *pinned, uint64_t bytes, uint64_t *number);
/* Whether a copy has ended. */
weir_status weiri_ofi_has_ended(weiri_ofi_queue *queue, uint32_t stream, uint64_t copy, bool *ended);

/* ---- ofi/post.c: what goes out --------------------------------------------------------------------------- */

bool weiri_ofi_has_room(const weiri_ofi_queue *queue);
/* Writes to the peer's memory, for a post or nobody, from a chunk or elsewhere. -FI_EAGAIN: no room now. */
ssize_t weiri_ofi_write_out(weiri_ofi_queue *queue, const weiri_ofi_op *what, void *from, void *desc, uint64_t bytes,
                            uint64_t address, uint64_t key);
/* Issues what is posted, as long as there is room. */
weir_status weiri_ofi_issue(weiri_ofi_queue *queue);
/* Copies what gets have brought into staged memory. */
weir_status weiri_ofi_unload(weiri_ofi_queue *queue);
/* Finds out whether the peer is still there, when nothing that is under way would tell. */
weir_status weiri_ofi_watch(weiri_ofi_queue *queue);

/* ---- ofi/message.c: messages, and what comes in ------------------------------------------------------------- */

/* Sends a message, whose token and numbers are set here. -FI_EAGAIN: no room now. */
ssize_t weiri_ofi_send(weiri_ofi_queue *queue, weiri_ofi_message *message);
weir_status weiri_ofi_receive(weiri_ofi_queue *queue, size_t index);
/* A message has come. */
weir_status weiri_ofi_take_message(weiri_ofi_queue *queue, size_t index, size_t bytes);
/* Carries out the peer's messages, in order. */
weir_status weiri_ofi_handle(weiri_ofi_queue *queue);
/* Tells the peer which of its messages were carried out, if that is news; later when there is no room. */
weir_status weiri_ofi_acknowledge(weiri_ofi_queue *queue);

#endif
