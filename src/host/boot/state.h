/* state.h - the inside of a bootstrap, shared by the bootstrap_*.c files alone.
 *
 *     bootstrap.c           create, destroy
 *     boot/id.c        unique ids, and where ranks meet
 *     boot/file.c      ranks that meet through a file
 *     boot/user.c      the key of ranks of one user on one host
 *     boot/join.c      the rendezvous at rank 0
 *     boot/listener.c      the listener, and how many connections may not have proved the key
 *     boot/conn.c      one connection: connect, prove, read and write frames
 *     boot/message.c   messages and queues of them
 *     boot/peer.c      frames between ranks, ranks that die and leave
 *     boot/beat.c      heartbeats: ranks that do not answer
 *     boot/send.c      send, receive, waiting
 *     boot/group.c     collectives
 *     boot/port.c      ports
 *
 * One mutex guards everything. Sockets are opened, read and closed by callbacks of the service thread, which hold the
 * mutex except while a port's handler runs; calls of users write frames, as far as the socket takes them at once, and
 * wait on the condition variable. A connection that ends is closed at once but freed when the callback ends, so that
 * pointers stay good.
 *
 * Connections have a direction: a rank sends its messages on connections that it opened and receives on those
 * that it accepted. News of deaths and departures go both ways. Who receives gives credit back on the same connection;
 * who has none left waits before it sends, so that news and collectives are never stuck behind messages that nobody
 * wants. */
#ifndef WEIRI_BOOT_STATE_H
#define WEIRI_BOOT_STATE_H

#include <pthread.h>
#include <sys/types.h>

#include "src/host/base/auth.h"
#include "src/host/base/refcount.h"
#include "src/host/base/sock.h"
#include "src/host/base/wire.h"
#include "src/host/boot/boot.h"

#define WEIRI_NO_RANK UINT32_MAX
#define WEIRI_JOB_BYTES 16
#define WEIRI_TEXT_BYTES 512
/* A frame begins with {kind u32, tag u64, bytes u64, hash of its payload}, which is sealed, and the seal. */
#define WEIRI_FRAME_HEAD_BYTES (20 + WEIRI_HASH_BYTES)
#define WEIRI_FRAME_BYTES (WEIRI_FRAME_HEAD_BYTES + WEIRI_SEAL_BYTES)
#define WEIRI_MESSAGE_MAX ((uint64_t)1 << 40)
#define WEIRI_RAW_BYTES 256
/* Of each kind of message a rank may be this far ahead of each peer, which holds what it has not handled yet; a message
 * counts its bytes and what it takes beside them. The last one may go beyond. */
#define WEIRI_AHEAD_MAX ((uint64_t)64 << 20)
#define WEIRI_MESSAGE_COST 256u

enum {
    WEIRI_FRAME_JOIN = 1,   /* a rank introduces itself to rank 0 */
    WEIRI_FRAME_WELCOME,    /* rank 0 has taken notice of it */
    WEIRI_FRAME_TABLE,      /* job, and addresses of the ranks that the receiver is to connect to */
    WEIRI_FRAME_REFUSE,     /* status and text with which everyone's create ends */
    WEIRI_FRAME_PEER,       /* no frame: what a connection between ranks is for */
    WEIRI_FRAME_USER,       /* tag */
    WEIRI_FRAME_COLLECTIVE, /* tag: hash of the group; begins with a description of the operation */
    WEIRI_FRAME_PORT,       /* tag: port */
    WEIRI_FRAME_ABORT,      /* tag: hash of the group; operation, status, text */
    WEIRI_FRAME_DEATH,      /* tag: rank */
    WEIRI_FRAME_GOODBYE,    /* tag: 1 when the leaving rank also has a connection of its own to the receiver */
    WEIRI_FRAME_CREDIT,     /* tag: how much of the receiver's messages has been handled; their kind */
    WEIRI_FRAME_BEAT,       /* the sender runs */
    WEIRI_FRAME_SILENT,     /* tag: rank that does not answer */
    WEIRI_FRAME_ASK,        /* tag: hash of the group; operation of which the receiver's part is missing */
    WEIRI_FRAME_ANSWER      /* tag: hash of the group; operation, and for which rank the sender waits in it */
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
    uint32_t gone_before; /* of a port: how many ranks were gone when it came */
    bool waited;          /* a user's thread waits for `send_state`, and frees the message */
    bool sealed;          /* for its place on its connection: it is the next to be sent, or partly sent */
    weiri_send_state send_state;
    uint8_t frame[WEIRI_FRAME_BYTES];
} weiri_message;

typedef struct weiri_message_queue {
    weiri_message *head;
    weiri_message *tail;
} weiri_message_queue;

typedef enum weiri_conn_state {
    WEIRI_CONN_IDLE, /* to be opened, now or at retry_ns */
    WEIRI_CONN_CONNECTING,
    WEIRI_CONN_AWAIT_CHALLENGE, /* client: the server's nonce */
    WEIRI_CONN_AWAIT_ANSWER,    /* client: the server's proof */
    WEIRI_CONN_AWAIT_HELLO,     /* server: the client's first bytes */
    WEIRI_CONN_AWAIT_PROOF,     /* server: the client's proof */
    WEIRI_CONN_AWAIT_FRAME,     /* server: where the rank that joins can be reached */
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
    bool dirty;     /* among the connections that the service has to look at */
    bool finish;    /* no frame is queued any more: shut down when the queue is empty */
    bool shut;
    bool dead;
    uint64_t deadline_ns; /* server: of the proof */
    bool said;            /* something was written since the last tick */
    bool heard;           /* something was read since the last tick */
    bool unreachable;     /* the network lost the other end, which has not closed the connection */
    uint64_t quiet_ns;    /* for how long nothing was written */
    uint64_t silent_ns;   /* for how long nothing was read while this rank ran */
    uint64_t retry_ns;
    char cause[96];        /* why it could not be opened last; "" while nothing is known */
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

typedef enum weiri_peer_state {
    WEIRI_PEER_ALIVE,
    WEIRI_PEER_LEFT,
    WEIRI_PEER_DIED,  /* a connection ended without a goodbye */
    WEIRI_PEER_SILENT /* it does not answer */
} weiri_peer_state;

/* How far one of two ranks is ahead of the other with messages of one kind. */
typedef struct weiri_flow {
    uint64_t ahead; /* what this rank has sent and has no credit for */
    uint64_t held;  /* what the peer has sent and has no credit for */
    uint64_t owed;  /* of that: what has been handled */
} weiri_flow;

#define WEIRI_FLOWS 3 /* of WEIRI_FRAME_USER and the two after it */

typedef struct weiri_peer {
    weiri_conn *out;
    weiri_conn *in;
    weiri_message_queue inbox;
    weiri_flow flows[WEIRI_FLOWS];
    uint32_t waiters;        /* users' threads that wait for a message of it */
    uint64_t unreachable_ns; /* since when it refuses connections; 0 while it does not, or that is not known */
    bool answered;           /* to the last frame that asked it; with what follows */
    uint32_t answer;
    uint64_t goodbye_ns; /* when it said that it leaves; 0 before */
    weiri_peer_state state;
    bool last_seen; /* nothing more comes on a connection that it opened */
} weiri_peer;

/* What a rank called. */
typedef struct weiri_group_call {
    uint32_t op;
    uint32_t root;
    uint64_t sequence;
    uint64_t bytes;
} weiri_group_call;

typedef struct weiri_group_state {
    struct weiri_group_state *next;
    uint64_t hash;
    uint64_t sequence;     /* operations begun */
    weiri_group_call last; /* the last of them */
    uint32_t waits_for;    /* rank of which the last one needs a message now, or WEIRI_NO_RANK */
    uint32_t running;      /* operations begun and not ended */
    uint64_t failed_at;    /* first operation that failed, when failed_status is not WEIR_OK */
    weir_status failed_status;
    char failed_text[WEIRI_TEXT_BYTES];
} weiri_group_state;

typedef struct weiri_port {
    struct weiri_port *next;
    weiri_port_handler handler;
    weiri_message_queue queue;
    uint32_t number;
    uint32_t told; /* how many of the ranks that are gone the handler knows */
    bool open;
    bool closed;
    bool running;
} weiri_port;

/* The rendezvous. */
typedef struct weiri_join {
    bool done;          /* the table is complete */
    bool over;          /* done, or failed and everyone has been told */
    bool welcomed;      /* rank 0 knows this rank */
    weir_status failed; /* WEIR_OK, or why create ends */
    char text[WEIRI_TEXT_BYTES];
    char cause[128];      /* why rank 0 could not be reached last */
    char taken[256];      /* rank 0: why it cannot listen; it then joins who does, and learns if it is the second */
    bool in_use;          /* because the address is in use, perhaps not for long */
    weiri_conn *conn;     /* to rank 0 */
    uint64_t deadline_ns; /* of this rank's create; on rank 0 the earliest of all that came */
    uint64_t pause_ns;    /* before the next attempt to reach rank 0 */
    uint64_t linger_ns;   /* rank 0, after a mismatch: until when later ranks are told */
    uint32_t expected;    /* rank 0: the largest size that anyone named */
    uint32_t came;        /* rank 0: ranks that came, duplicates too */
    uint32_t present;     /* rank 0: different ranks */
} weiri_join;

struct weir_bootstrap {
    weiri_refcount refs;
    pid_t pid;
    uint32_t rank;
    uint32_t size;
    uint32_t timeout_ms;
    uint32_t kernel_timeout_ms; /* what communicators take */
    uint8_t key[WEIRI_AUTH_KEY_BYTES];
    bool user_key; /* it is that of weiri_user_key */
    uint8_t job[WEIRI_JOB_BYTES];
    weiri_service *service;
    weiri_watch *listener_watch;
    weiri_watch *tick_watch;
    weiri_watch *hurry_watch; /* a quicker tick, while something is to be done soon */
    int listener;
    weiri_address root; /* where rank 0 listens */
    weiri_address own;

    pthread_mutex_t mutex;
    pthread_cond_t cond; /* anything that a user's thread may wait for */
    bool woken;          /* a run of the service is posted */
    bool signalled;      /* the callback that runs has changed what users' threads wait for */
    bool joined;         /* create is complete */
    bool closing;        /* this rank leaves */
    bool goodbyes_sent;
    bool stopped; /* callbacks do nothing any more */
    bool foreign_logged;
    bool listener_paused;
    weir_status failed; /* WEIR_OK, or what ends every call */
    char failed_text[WEIRI_TEXT_BYTES];

    weir_bootstrap_usage usage; /* but for `connections` */

    weiri_conn *conns;
    weiri_conn *graveyard;
    weiri_conn *dirty;
    uint32_t unproved;  /* accepted connections that have not proved the key yet */
    uint32_t room;      /* for these, beside those of ranks that are still to join */
    uint64_t strangers; /* connections that ended without having proved the key */
    weiri_join join;
    weiri_address *addresses;
    weiri_peer *peers;
    uint32_t *gone; /* ranks that are gone, in this order */
    uint32_t gone_count;
    uint32_t leaving; /* peers that said goodbye but whose last message is not here yet */
    uint64_t beat_ns; /* last run of weiri_beat_tick */
    weiri_group_state *groups;
    weiri_port *ports;
    uint32_t next_port;
    uint32_t ports_closed; /* all numbers below are closed */
};

/* boot/id.c: splits `where`, and takes the socket of an id of this process, or -1. */
typedef struct weiri_where {
    weiri_address root;
    bool has_key;
    uint8_t key[WEIRI_AUTH_KEY_BYTES];
    char interface[WEIRI_INTERFACE_BYTES];
} weiri_where;
weir_status weiri_where_parse(const char *text, weiri_where *out);
int weiri_unique_id_take(const char *text);

/* boot/file.c; `opts` are complete. */
weir_status weiri_bootstrap_create_file(const char *path, uint64_t deadline_ns, uint32_t rank, uint32_t size,
                                        const weir_bootstrap_opts *opts, weir_bootstrap **out);

/* All that follow are called with the mutex held, unless they say otherwise. */

/* bootstrap.c */
void weiri_boot_wake(weir_bootstrap *boot);  /* has the service look at queues and ports soon */
void weiri_boot_hurry(weir_bootstrap *boot); /* something is to be done within milliseconds */
/* The first of the ranks that this one watches and has no connection to; WEIRI_NO_RANK: there is none. */
uint32_t weiri_boot_find_unconnected(const weir_bootstrap *boot);
bool weiri_boot_is_surrounded(const weir_bootstrap *boot); /* all ranks that this one watches are connected */
void weiri_boot_fail(weir_bootstrap *boot, weir_status status, const char *text); /* the first one counts */

/* boot/send.c */
/* Waits for a message of (kind, tag) from `peer`; `group` is a collective's. `what` names the call. */
weir_status weiri_boot_wait(weir_bootstrap *boot, uint32_t peer, uint32_t kind, uint64_t tag,
                            const weiri_group_state *group, uint64_t sequence, const char *what, uint64_t deadline_ns,
                            weiri_message **out);
/* Whether messages of this kind flow, that is, need credit. */
static inline bool weiri_flows(uint32_t kind)
{
    return kind >= WEIRI_FRAME_USER && kind < WEIRI_FRAME_USER + WEIRI_FLOWS;
}
/* Waits until `peer` has room for a message of `kind`; the rest as for weiri_boot_wait. */
weir_status weiri_boot_wait_room(weir_bootstrap *boot, uint32_t peer, uint32_t kind, const weiri_group_state *group,
                                 uint64_t sequence, const char *what, uint64_t deadline_ns);
/* Queues a copy of head and data to `peer`, which may be this rank. *sent, unless NULL, gets the message to wait
 * for; it stays NULL when there is nothing to wait for. */
weir_status weiri_boot_queue(weir_bootstrap *boot, uint32_t peer, uint32_t kind, uint64_t tag, const weiri_writer *head,
                             const void *data, size_t bytes, weiri_message **sent);

/* boot/message.c */
/* Writes the head of a frame. The seal follows it. */
void weiri_frame_write(weiri_writer *w, uint32_t kind, uint64_t tag, const void *payload, uint64_t bytes);
weiri_message *weiri_message_create(uint32_t kind, uint64_t tag, const void *head, size_t head_bytes, const void *data,
                                    size_t bytes);
void weiri_message_free(weiri_message *message); /* NULL is ignored */
void weiri_message_queue_push(weiri_message_queue *queue, weiri_message *message);
weiri_message *weiri_message_queue_pop(weiri_message_queue *queue);
/* Takes out `message`, which follows `before` (NULL: the first). */
void weiri_message_queue_unlink(weiri_message_queue *queue, weiri_message *before, weiri_message *message);
void weiri_message_queue_clear(weiri_message_queue *queue);

/* boot/conn.c */
void weiri_boot_signal(weir_bootstrap *boot); /* wakes users' threads that wait for the condition variable */
void weiri_boot_enter(weir_bootstrap *boot);  /* without the mutex; the beginning and end of every callback */
void weiri_boot_leave(weir_bootstrap *boot);
weiri_conn *weiri_conn_create(weir_bootstrap *boot, uint32_t peer, const weiri_address *address);
void weiri_conn_open(weiri_conn *conn);              /* service thread alone, like all below */
bool weiri_conn_is_unproved(const weiri_conn *conn); /* accepted, and without a proof of the key */
bool weiri_conn_is_proving(const weiri_conn *conn);  /* that, or without the first frame that a rank sends */
/* Takes over the socket of a new connection from `from`; false, and nothing done, without memory. */
bool weiri_conn_adopt(weir_bootstrap *boot, int fd, const weiri_address *from);
void weiri_conn_expire(weiri_conn *conn, uint64_t now_ns); /* its deadline has passed */
void weiri_conn_flush(weiri_conn *conn);
void weiri_conn_close(weiri_conn *conn);    /* without a word; what is queued fails */
void weiri_conn_accepted(weiri_conn *conn); /* the other end is known: open */
void weiri_conn_corrupt(weiri_conn *conn);  /* a rank of ours sent what none of them should send */
void weiri_conn_hold(weiri_conn *conn);
void weiri_conn_foreign(weiri_conn *conn, const char *why);      /* logged once, closed */
void weiri_conn_retry(weiri_conn *conn, uint64_t pause_ns);      /* back to idle */
void weiri_conn_queue(weiri_conn *conn, weiri_message *message); /* any thread; NULL is ignored */
void weiri_conn_mark(weiri_conn *conn);                          /* any thread; the service has to look at it */

/* boot/user.c */
/* The key that this user's processes on this host share. WEIR_ERR_AUTH for what others may have made or can read. */
weir_status weiri_user_key(uint8_t key[WEIRI_KEY_BYTES]);
/* Whether a file or a folder is this user's, and nobody else can open it; WEIR_ERR_AUTH otherwise. */
weir_status weiri_user_check_file(const char *what, int fd);

/* boot/listener.c */
uint32_t weiri_door_room(void);
void weiri_boot_accept(void *context, uint32_t events); /* without the mutex; callback of the listener */
void weiri_door_resume(weir_bootstrap *boot);

/* boot/join.c */
void weiri_join_start(weir_bootstrap *boot);
void weiri_join_tick(weir_bootstrap *boot, uint64_t now_ns);
/* Waits, as user's thread, until the rendezvous is over. WEIR_PENDING: the meeting has moved. */
weir_status weiri_join_wait(weir_bootstrap *boot, const weiri_meeting *meeting);
weir_status weiri_join_exchange(weir_bootstrap *boot, uint64_t deadline_ns); /* without the mutex */
size_t weiri_join_hello(weiri_conn *conn, uint8_t *frame, size_t capacity);  /* sealed */
void weiri_join_frame(weiri_conn *conn, weiri_message *message);             /* takes the message */
void weiri_join_lost(weiri_conn *conn, const char *cause);
void weiri_join_stop(weiri_conn *conn, weir_status status); /* the server's proof or version is wrong */
uint64_t weiri_join_frame_max(uint32_t kind);

/* boot/peer.c */
weiri_conn *weiri_peer_connect(weir_bootstrap *boot, uint32_t rank); /* any thread; NULL: out of memory */
void weiri_peer_accept(weiri_conn *conn);
void weiri_peer_frame(weiri_conn *conn, weiri_message *message); /* takes the message */
/* `there`: the peer is there all the same, as far as this rank can tell. */
void weiri_peer_lost(weiri_conn *conn, const char *cause, bool there);
/* A message that came is no longer held here: its sender gets credit. */
void weiri_peer_handled(weir_bootstrap *boot, const weiri_message *message);
void weiri_peer_gone(weir_bootstrap *boot, uint32_t rank, weiri_peer_state how);
void weiri_peer_gone_text(uint32_t rank, weiri_peer_state how, char text[WEIRI_TEXT_BYTES]);
void weiri_peer_tick(weir_bootstrap *boot, uint64_t now_ns);
void weiri_peer_goodbyes(weir_bootstrap *boot);
uint64_t weiri_peer_frame_max(uint32_t kind);

/* boot/beat.c */
void weiri_beat_tick(weir_bootstrap *boot, uint64_t now_ns);

/* boot/group.c */
/* A message of a collective came: it is an error when nobody will ask for it. */
void weiri_group_arrived(weir_bootstrap *boot, const weiri_message *message);
void weiri_group_abort(weir_bootstrap *boot, weiri_message *message); /* from a peer; takes the message */
/* A peer wants to know for whom this rank waits, or says for whom it waits. False: malformed. */
bool weiri_group_asked(weiri_conn *conn, const weiri_message *message);
bool weiri_group_answered(weir_bootstrap *boot, const weiri_message *message);
/* WEIR_OK, or why a collective of all ranks has failed. */
weir_status weiri_group_failure(const weir_bootstrap *boot);
/* The allgather in create; without the mutex. */
weir_status weiri_group_join(weir_bootstrap *boot, uint8_t *data, uint64_t bytes, uint64_t deadline_ns);

/* boot/port.c */
weir_status weiri_port_push(weir_bootstrap *boot, weiri_message *message); /* takes the message unless it fails */
void weiri_port_deliver(weir_bootstrap *boot);                             /* service thread */
void weiri_port_free_all(weir_bootstrap *boot);

#endif
