/* bootstrap.h - the bootstrap itself. The state of each part has its type in the part's header:
 *
 *     bootstrap.c   create, destroy
 *     id.h          id.c: unique ids, and where ranks meet
 *                   file.c: ranks that meet through a file
 *                   user.c: the key of ranks of one user on one host
 *     work.h        the service thread: callbacks, ticks, wakeups
 *     join.h        the rendezvous at rank 0
 *     listener.h    the listener, and how many connections may not have proved the key
 *     conn.h        one connection: connect, prove, read and write frames
 *     message.h     messages and queues of them
 *     peer.h        peer.c: the addresses of ranks, frames between them, ranks that die and leave
 *                   beat.c: heartbeats, and ranks that do not answer
 *     send.h        send, receive, waiting, and the error that ends every wait
 *     group.h       collectives
 *     port.h        ports
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
#ifndef WEIRI_BOOT_BOOTSTRAP_H
#define WEIRI_BOOT_BOOTSTRAP_H

#include <pthread.h>
#include <sys/types.h>

#include "src/host/base/refcount.h"
#include "src/host/boot/boot.h"
#include "src/host/boot/conn.h"
#include "src/host/boot/group.h"
#include "src/host/boot/id.h"
#include "src/host/boot/join.h"
#include "src/host/boot/listener.h"
#include "src/host/boot/peer.h"
#include "src/host/boot/port.h"
#include "src/host/boot/send.h"
#include "src/host/boot/work.h"

struct weir_bootstrap {
    weiri_refcount refs;
    pid_t pid;
    uint32_t rank;
    uint32_t size;
    uint32_t timeout_ms;
    uint32_t kernel_timeout_ms; /* the default of communicators */

    pthread_mutex_t mutex;
    pthread_cond_t cond; /* everything that users' threads wait for */
    weiri_job job;
    weiri_boot_work work;
    weiri_listener listener;
    weiri_join join;
    weiri_conns conns;
    weiri_peer *peers; /* one for each rank */
    weiri_gone gone;
    uint64_t beat_ns;   /* last run of weiri_beat_tick */
    bool closing;       /* this rank leaves */
    bool goodbyes_sent; /* see weiri_peer_goodbyes */
    weiri_boot_failure failure;
    weiri_group_state *groups;
    weiri_ports ports;
    weir_bootstrap_usage usage; /* except `connections` */
};

#endif
