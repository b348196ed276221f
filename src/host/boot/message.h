/* message.h - frames with their payloads, and queues of them. The mutex of the bootstrap is held. */
#ifndef WEIRI_BOOT_MESSAGE_H
#define WEIRI_BOOT_MESSAGE_H

#include "src/host/base/auth.h"
#include "src/host/base/wire.h"
#include "weir/bootstrap.h"

/* A frame begins with a sealed head {kind u32, tag u64, bytes u64, hash of the payload}, and the seal. */
#define WEIRI_FRAME_HEAD_BYTES (20 + WEIRI_HASH_BYTES)
#define WEIRI_FRAME_BYTES (WEIRI_FRAME_HEAD_BYTES + WEIRI_SEAL_BYTES)
#define WEIRI_MESSAGE_MAX ((uint64_t)1 << 40)
#define WEIRI_TEXT_BYTES 512 /* of an error text */

enum {
    WEIRI_FRAME_JOIN = 1,   /* a rank introduces itself to rank 0 */
    WEIRI_FRAME_WELCOME,    /* rank 0 knows the rank */
    WEIRI_FRAME_TABLE,      /* job, and addresses of the ranks to connect to */
    WEIRI_FRAME_REFUSE,     /* status and text that end the create of all ranks */
    WEIRI_FRAME_PEER,       /* no frame: the purpose of a connection between ranks */
    WEIRI_FRAME_USER,       /* tag */
    WEIRI_FRAME_COLLECTIVE, /* tag: hash of the group; begins with a description of the operation */
    WEIRI_FRAME_PORT,       /* tag: port */
    WEIRI_FRAME_ABORT,      /* tag: hash of the group; operation, status, text */
    WEIRI_FRAME_DEATH,      /* tag: rank */
    WEIRI_FRAME_GOODBYE,    /* tag: 1 when the leaving rank also opened a connection to the receiver */
    WEIRI_FRAME_CREDIT,     /* tag: bytes of the receiver's messages that were handled; payload: their kind */
    WEIRI_FRAME_BEAT,       /* the sender runs */
    WEIRI_FRAME_SILENT,     /* tag: rank that does not answer */
    WEIRI_FRAME_ASK,        /* tag: hash of the group; operation for which the sender waits */
    WEIRI_FRAME_ANSWER      /* tag: hash of the group; operation, and the rank that the sender waits for */
};

typedef enum weiri_send_state { WEIRI_SEND_QUEUED, WEIRI_SEND_DONE, WEIRI_SEND_FAILED } weiri_send_state;

/* A frame with its payload, received or to be sent. */
typedef struct weiri_message {
    struct weiri_message *next;
    uint8_t *data;
    uint64_t bytes;
    uint64_t capacity; /* bytes allocated so far */
    uint64_t done;     /* bytes received so far; or sent, of frame and payload */
    uint64_t tag;
    uint32_t kind;
    uint32_t peer;
    uint32_t gone_before; /* of a port: number of ranks that were gone when it came */
    bool waited;          /* a user's thread waits for `send_state` and frees the message */
    bool sealed;          /* for its place on its connection: it is next or partly sent */
    weiri_send_state send_state;
    uint8_t frame[WEIRI_FRAME_BYTES];
} weiri_message;

typedef struct weiri_message_queue {
    weiri_message *head;
    weiri_message *tail;
} weiri_message_queue;

/* Writes the head of a frame. The seal follows it. */
void weiri_frame_write(weiri_writer *w, uint32_t kind, uint64_t tag, const void *payload, uint64_t bytes);
weiri_message *weiri_message_create(uint32_t kind, uint64_t tag, const void *head, size_t head_bytes, const void *data,
                                    size_t bytes);
void weiri_message_free(weiri_message *message); /* NULL is ignored */
void weiri_message_queue_push(weiri_message_queue *queue, weiri_message *message);
weiri_message *weiri_message_queue_pop(weiri_message_queue *queue);
/* Removes `message`, which follows `before` (NULL: it is the first). */
void weiri_message_queue_unlink(weiri_message_queue *queue, weiri_message *before, weiri_message *message);
void weiri_message_queue_clear(weiri_message_queue *queue);

#endif
