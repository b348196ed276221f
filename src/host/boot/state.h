/* state.h - the bootstrap itself, and the functions of its smaller files. Each other file of this folder has a
 * separate header.
 *
 *     bootstrap.c   create, destroy
 *     id.c          unique ids, and where ranks meet
 *     file.c        ranks that meet through a file
 *     user.c        the key of ranks of one user on one host
 *     join.c        the rendezvous at rank 0
 *     listener.c    the listener, and how many connections may not have proved the key
 *     conn.c        one connection: connect, prove, read and write frames
 *     message.c     messages and queues of them
 *     peer.c        frames between ranks, ranks that die and leave
 *     beat.c        heartbeats: ranks that do not answer
 *     send.c        send, receive, waiting
 *     group.c       collectives
 *     port.c        ports
 *
 * One mutex guards everything. Callbacks of the service thread open, read and close sockets, and hold the mutex except
 * while the handler of a port runs. Calls of users write frames, as far as the socket takes them at once, and wait on
 * the condition variable. A connection that ends is closed at once and freed when the callback ends: pointers stay
 * valid until then.
 *
 * Connections have a direction: a rank sends its messages on connections that it opened, and receives on connections
 * that it accepted. News of deaths and departures go both ways. The receiver of a message gives credit back on the same
 * connection. A sender without credit waits. Messages that nobody receives therefore hold up no news and no
 * collectives. */
#ifndef WEIRI_BOOT_STATE_H
#define WEIRI_BOOT_STATE_H

#include <pthread.h>
#include <sys/types.h>

#include "src/host/base/auth.h"
#include "src/host/base/refcount.h"
#include "src/host/boot/boot.h"
#include "src/host/boot/conn.h"
#include "src/host/boot/group.h"
#include "src/host/boot/join.h"
#include "src/host/boot/peer.h"
#include "src/host/boot/port.h"

struct weir_bootstrap {
    weiri_refcount refs;
    pid_t pid;
    uint32_t rank;
    uint32_t size;
    uint32_t timeout_ms;
    uint32_t kernel_timeout_ms; /* the default of communicators */
    uint8_t key[WEIRI_AUTH_KEY_BYTES];
    bool user_key; /* `key` is the key of weiri_user_key */
    uint8_t job[WEIRI_JOB_BYTES];
    weiri_service *service;
    weiri_watch *listener_watch;
    weiri_watch *tick_watch;
    weiri_watch *hurry_watch; /* a faster tick, while work is due soon */
    int listener;
    weiri_address root; /* where rank 0 listens */
    weiri_address own;

    pthread_mutex_t mutex;
    pthread_cond_t cond; /* everything that users' threads wait for */
    bool woken;          /* a run of the service is posted */
    bool signalled;      /* the running callback has changed a condition that users' threads wait for */
    bool joined;         /* create is complete */
    bool closing;        /* this rank leaves */
    bool goodbyes_sent;
    bool stopped; /* callbacks do nothing any more */
    bool foreign_logged;
    bool listener_paused;
    weir_status failed; /* WEIR_OK, or the error that ends every call */
    char failed_text[WEIRI_TEXT_BYTES];

    weir_bootstrap_usage usage; /* except `connections` */

    weiri_conn *conns;
    weiri_conn *graveyard;
    weiri_conn *dirty;
    uint32_t unproved; /* accepted connections that have not proved the key yet */
    uint32_t room;     /* limit of `unproved`; ranks that are still to join have room in addition */
    uint64_t foreign;  /* connections that ended without a proof of the key */
    weiri_join join;
    weiri_address *addresses;
    weiri_peer *peers;
    uint32_t *gone; /* gone ranks, in this order */
    uint32_t gone_count;
    uint32_t leaving; /* peers that said goodbye and whose last message has not arrived */
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

/* All functions below need the mutex, unless they say otherwise. */

/* bootstrap.c */
void weiri_boot_wake(weir_bootstrap *boot);  /* makes the service thread check queues and ports soon */
void weiri_boot_hurry(weir_bootstrap *boot); /* work is due within milliseconds */
/* The first rank that this one watches and has no connection to; WEIRI_NO_RANK when all are connected. */
uint32_t weiri_boot_find_unconnected(const weir_bootstrap *boot);
bool weiri_boot_is_surrounded(const weir_bootstrap *boot); /* all ranks that this one watches are connected */
void weiri_boot_fail(weir_bootstrap *boot, weir_status status, const char *text); /* the first one counts */
void weiri_boot_signal(weir_bootstrap *boot); /* wakes users' threads that wait for the condition variable */
void weiri_boot_enter(weir_bootstrap *boot);  /* without the mutex; the beginning and end of every callback */
void weiri_boot_leave(weir_bootstrap *boot);

/* boot/send.c */
/* Waits for a message of (kind, tag) from `peer`; `group` is a collective's. error texts begin with `what`. */
weir_status weiri_boot_wait(weir_bootstrap *boot, uint32_t peer, uint32_t kind, uint64_t tag,
                            const weiri_group_state *group, uint64_t sequence, const char *what, uint64_t deadline_ns,
                            weiri_message **out);
/* Waits until `peer` has room for a message of `kind`; the rest as for weiri_boot_wait. */
weir_status weiri_boot_wait_room(weir_bootstrap *boot, uint32_t peer, uint32_t kind, const weiri_group_state *group,
                                 uint64_t sequence, const char *what, uint64_t deadline_ns);
/* Queues a copy of head and data to `peer`, which may be this rank. *sent, unless `sent` is NULL, gets the message to
 * wait for, or NULL when there is no need to wait. */
weir_status weiri_boot_queue(weir_bootstrap *boot, uint32_t peer, uint32_t kind, uint64_t tag, const weiri_writer *head,
                             const void *data, size_t bytes, weiri_message **sent);

/* boot/user.c */
/* The key that this user's processes on this host share. WEIR_ERR_AUTH if another user may have made its file or can
 * read it. */
weir_status weiri_user_key(uint8_t key[WEIRI_KEY_BYTES]);
/* WEIR_OK if a file or folder belongs to this user and no other user can open it; otherwise WEIR_ERR_AUTH. */
weir_status weiri_user_check_file(const char *what, int fd);

/* boot/listener.c */
uint32_t weiri_listener_room(void);
void weiri_boot_accept(void *context, uint32_t events); /* without the mutex; callback of the listener */
void weiri_listener_resume(weir_bootstrap *boot);

/* boot/beat.c */
void weiri_beat_tick(weir_bootstrap *boot, uint64_t now_ns);

#endif
