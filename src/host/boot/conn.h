/* conn.h - one connection of a bootstrap. The mutex of the bootstrap is held and the caller is the service thread,
 * unless a function says otherwise. */
#ifndef WEIRI_BOOT_CONN_H
#define WEIRI_BOOT_CONN_H

#include "src/host/base/service.h"
#include "src/host/base/sock.h"
#include "src/host/boot/id.h"
#include "src/host/boot/message.h"

#define WEIRI_NO_RANK UINT32_MAX
#define WEIRI_RAW_BYTES 256

typedef enum weiri_conn_state {
    WEIRI_CONN_IDLE, /* to be opened, now or at retry_ns */
    WEIRI_CONN_CONNECTING,
    WEIRI_CONN_AWAIT_CHALLENGE, /* client: the server's nonce */
    WEIRI_CONN_AWAIT_ANSWER,    /* client: the server's proof */
    WEIRI_CONN_AWAIT_HELLO,     /* server: the client's first bytes */
    WEIRI_CONN_AWAIT_PROOF,     /* server: the client's proof */
    WEIRI_CONN_AWAIT_FRAME,     /* server: the address of the rank that joins */
    WEIRI_CONN_HELD,            /* server: until the table of ranks is here */
    WEIRI_CONN_OPEN
} weiri_conn_state;

typedef struct weiri_conn {
    struct weiri_conn *next;
    struct weiri_conn *next_dirty;
    weir_bootstrap *boot;
    weiri_watch *watch;
    weiri_conn_state state;
    int fd;
    uint32_t events;
    uint32_t peer;  /* rank, or WEIRI_NO_RANK */
    bool initiated; /* by this rank */
    bool join;      /* of the rendezvous */
    bool dirty;     /* the service thread has to flush or open it */
    bool finish;    /* takes no more frames: shut down when the queue is empty */
    bool shut;
    bool dead;
    uint64_t deadline_ns; /* server: of the proof */
    bool said;            /* something was written since the last tick */
    bool heard;           /* something was read since the last tick */
    bool unreachable;     /* the network lost the other end, which did not close the connection */
    uint64_t quiet_ns;    /* time without a write */
    uint64_t silent_ns;   /* time without a read in which this rank ran */
    uint64_t retry_ns;
    char cause[96];        /* why the last attempt to open it failed; "" before */
    weiri_address address; /* of the other end */
    weiri_auth auth;
    weiri_seal seal_out; /* once the key is proved */
    weiri_seal seal_in;
    weiri_hash hash; /* of the payload of `incoming` */
    uint8_t expected_hash[WEIRI_HASH_BYTES];
    uint8_t raw_in[WEIRI_RAW_BYTES]; /* proofs and frames, while incomplete */
    size_t raw_in_size;
    uint8_t raw_out[WEIRI_RAW_BYTES]; /* proofs and the first frame, before the queue */
    size_t raw_out_size;
    size_t raw_out_sent;
    uint8_t held_job[WEIRI_JOB_BYTES]; /* server: the job and the rank of the client, which has proved the key */
    uint32_t held_rank;
    uint32_t held_timeout_ms;
    weiri_message *incoming;
    weiri_message_queue queue;
} weiri_conn;

/* The connections of a bootstrap. */
typedef struct weiri_conns {
    weiri_conn *first;
    weiri_conn *graveyard; /* closed in the running callback, which frees them at its end */
    weiri_conn *dirty;     /* the service thread has to flush or open these */
} weiri_conns;

/* Any thread. */
weiri_conn *weiri_conn_create(weir_bootstrap *boot, uint32_t peer, const weiri_address *address);
void weiri_conn_open(weiri_conn *conn);
bool weiri_conn_is_unproved(const weiri_conn *conn); /* accepted, without a proof of the key */
bool weiri_conn_is_proving(const weiri_conn *conn);  /* that, or without the first frame of the rank */
/* Takes over the socket of a new connection from `from`; false, with nothing done, when memory is short. */
bool weiri_conn_adopt(weir_bootstrap *boot, int fd, const weiri_address *from);
void weiri_conn_expire(weiri_conn *conn, uint64_t now_ns); /* its deadline has passed */
void weiri_conn_flush(weiri_conn *conn);
void weiri_conn_close(weiri_conn *conn);    /* without a goodbye; queued messages fail */
void weiri_conn_bury(weir_bootstrap *boot); /* frees what was closed */
void weiri_conn_accepted(weiri_conn *conn); /* the other end is known: open */
void weiri_conn_corrupt(weiri_conn *conn);  /* a rank of this job sent an invalid message */
void weiri_conn_hold(weiri_conn *conn);
void weiri_conn_foreign(weiri_conn *conn, const char *why);      /* logged once, closed */
void weiri_conn_retry(weiri_conn *conn, uint64_t pause_ns);      /* back to idle */
void weiri_conn_queue(weiri_conn *conn, weiri_message *message); /* any thread; NULL is ignored */
void weiri_conn_mark(weiri_conn *conn);                          /* any thread; the service flushes it, or opens it */

#endif
