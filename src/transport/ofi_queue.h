/* ofi_queue.h - the queues of the transport ofi: what their files share, and how they work.
 *
 * ofi_queue.c opens, polls and closes them, ofi_post.c has what this rank posts, ofi_letter.c what the peer asks for.
 *
 * A post goes into a ring, and whoever holds the queue's mutex issues what is in the ring, in order: the poster at
 * once if it gets the mutex, else a poll. So a post waits for nobody, and what libfabric has no room for, or no
 * connection yet, waits in the ring.
 *
 * Puts are writes, in slices. They ask for completion upon delivery, which the peer's library acknowledges: without it
 * they would be complete when they have left this host's buffers, and be lost unnoticed when a provider makes a new
 * connection in place of a broken one. For the same reason, after libfabric has had no room, nothing is issued before
 * all completions have been read: the errors of what a broken connection took with it come first.
 *
 * Values and gets are letters to the peer's queue, which its polls carry out, in order. A value cannot be a write: TCP
 * may cut 8 bytes in two, and the peer would see one half; the poll stores it in one piece. A get is not a read, since
 * libfabric 1.17 crashes the process that is read from when the reader ends: the poll writes the data back. Messages
 * keep their order behind writes and messages (asked for as FI_ORDER_SAW and FI_ORDER_SAS), so a letter is carried out
 * after all that was posted before it, and its acknowledgement comes after the data that it asked for. A letter whose
 * memory does not exist is refused, which fails the poster's queue; none is carried out after it. The names that
 * letters carry are random, and a letter without the queue's own is a stranger's and ignored.
 *
 * Who waits for an acknowledgement alone would not learn of the peer's end, so an empty put probes it now and then.
 * A connection that was there, has nothing under way and still has no room is lost.
 *
 * A queue that fails closes its endpoint: nothing reads or writes its memory any more, and the peer's posts fail.
 * Connections are made by the first post; libfabric 1.17 leaves the socket of one open that it has accepted but not
 * finished when its endpoint is closed. */
#ifndef WEIRI_OFI_QUEUE_H
#define WEIRI_OFI_QUEUE_H

#include "src/transport/ofi_impl.h"

#define WEIRI_OFI_DEPTH 256u   /* posts of a queue that are not complete */
#define WEIRI_OFI_OPS 256u     /* operations of libfabric that are not */
#define WEIRI_OFI_RECEIVES 32u /* of them beside those, receives */
#define WEIRI_OFI_LETTER_BYTES 64u
#define WEIRI_OFI_LETTERS (WEIRI_OFI_DEPTH + WEIRI_OFI_RECEIVES + 1)

enum { WEIRI_OFI_VALUE = 1, WEIRI_OFI_GET, WEIRI_OFI_DONE, WEIRI_OFI_REFUSED };

typedef struct weiri_ofi_letter {
    uint64_t token;  /* of the queue that it goes to */
    uint64_t number; /* of a value or get, from 1; what is done or refused: of the last that is done */
    uint16_t kind;
    uint16_t bytes; /* of a value */
    uint32_t slot;  /* with id and offset, a place in the receiver's memory */
    uint64_t id;
    uint64_t offset;
    uint64_t value; /* of a get, the bytes */
    uint64_t key;   /* with address, where the bytes go */
    uint64_t address;
} weiri_ofi_letter;

typedef struct weiri_ofi_op {
    struct fi_context2 context;  /* first: libfabric's, in some modes */
    struct weiri_ofi_post *post; /* that this is a part of; NULL for what no post waits for */
    bool tells;                  /* sends the acknowledgement */
    struct weiri_ofi_op *next;   /* free one */
} weiri_ofi_op;

typedef struct weiri_ofi_post {
    uint32_t waiting; /* operations that are not complete */
    bool more;        /* whether there is something to be issued: the letter, or `left` bytes */
    uint64_t number;  /* of the letter; 0: a put */
    uint8_t *local;
    void *desc;
    uint64_t address;
    uint64_t key;
    uint64_t left;
} weiri_ofi_post;

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
    bool telling;     /* an acknowledgement is under way */
    bool refused;     /* the letter after `handled` */
    bool refusal_told;
    uint32_t busy_ops;
    uint64_t issued;     /* posts that libfabric has all of */
    uint64_t sent;       /* letters of ours that were issued */
    uint64_t acked;      /* of them, acknowledged */
    uint64_t arrived;    /* letters of the peer */
    uint64_t handled;    /* of them, carried out */
    uint64_t served;     /* bytes that the get after `handled` has got */
    uint64_t told;       /* of them, acknowledged */
    uint64_t quiet_ns;   /* since when nothing but an acknowledgement is awaited; 0: it is not so */
    uint64_t no_room_ns; /* since when there is no room although nothing is under way; 0: it is not so */
    weiri_ofi_op *free_ops;
    uint64_t written; /* the poster's: letters that were posted */
    uint64_t slice;
    weir_status status; /* of the failed queue; after `text` */
    char text[160];
    uint64_t token;
    uint64_t peer_token;
    uint64_t peer_key; /* of memory of the peer's, for probes */
    uint64_t peer_address;
    struct fid_mr *mr; /* of `letters` */
    uint8_t *letters;  /* those of the posts, those that come in, the acknowledgement */
    weiri_ofi_op ops[WEIRI_OFI_OPS];
    weiri_ofi_op receives[WEIRI_OFI_RECEIVES];
    weiri_ofi_letter inbox[WEIRI_OFI_DEPTH];
    weiri_ofi_post ring[WEIRI_OFI_DEPTH];
} weiri_ofi_queue;

/* ---- ofi_queue.c ----------------------------------------------------------------------------------------- */

/* WEIR_OK, or what the queue has failed with. */
weir_status weiri_ofi_failed(weiri_ofi_queue *queue);
/* All that follows is called with the mutex, and returns what the queue fails with. Fails the queue with the thread's
 * last error. */
weir_status weiri_ofi_fail_queue(weiri_ofi_queue *queue, weir_status status);

/* ---- ofi_post.c: what goes out --------------------------------------------------------------------------- */

bool weiri_ofi_has_room(const weiri_ofi_queue *queue);
/* Writes to the peer's memory for `post`, or for nobody. -FI_EAGAIN: no room now. */
ssize_t weiri_ofi_write_out(weiri_ofi_queue *queue, weiri_ofi_post *post, void *from, void *desc, uint64_t bytes,
                            uint64_t address, uint64_t key);
/* Sends a letter, which stays where it is until it is sent. -FI_EAGAIN: no room now. */
ssize_t weiri_ofi_send_out(weiri_ofi_queue *queue, weiri_ofi_post *post, uint8_t *letter);
/* WEIR_OK for what was taken, or has to wait. */
weir_status weiri_ofi_check(weiri_ofi_queue *queue, ssize_t error);
/* Issues what is posted, as long as there is room. */
weir_status weiri_ofi_issue(weiri_ofi_queue *queue);
/* Finds out whether the peer is still there, when nothing that is under way would tell. */
weir_status weiri_ofi_watch(weiri_ofi_queue *queue);

/* ---- ofi_letter.c: what comes in ------------------------------------------------------------------------- */

uint8_t *weiri_ofi_letter_out(weiri_ofi_queue *queue, uint64_t number);
void weiri_ofi_write_letter(uint8_t *at, const weiri_ofi_letter *letter);
weir_status weiri_ofi_receive(weiri_ofi_queue *queue, size_t index);
/* A message has come. */
weir_status weiri_ofi_take_letter(weiri_ofi_queue *queue, size_t index, size_t bytes);
/* Carries out the peer's letters, in order. */
weir_status weiri_ofi_handle(weiri_ofi_queue *queue);
/* Tells the peer which of its letters were carried out; later when there is no room, or while it is being told. */
weir_status weiri_ofi_acknowledge(weiri_ofi_queue *queue);

#endif
