/* listener.c - the listener of a bootstrap, and the limit of connections that have not proved the key.
 *
 * Any process may connect. So connections without a proof of the key may hold only a small part of the descriptors of
 * this process; rank 0 also has room for each rank that is still to join. When the room is used up, each new connection
 * replaces the oldest one of the source that has the most. A rank whose connection is dropped connects again. The
 * listener pauses only while the process has no descriptor or no memory at all. */
#include "src/host/boot/listener.h"

#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "src/host/base/error.h"
#include "src/host/boot/bootstrap.h"

#define ACCEPT_AT_ONCE 64
#define PART_OF_DESCRIPTORS 32u
#define ROOM_LEAST 8u
#define ROOM_MOST 256u
#define SOURCES 1024u

static uint32_t choose_room(void)
{
    struct rlimit limit;
    const uint64_t part = getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur / PART_OF_DESCRIPTORS : 0;
    return part < ROOM_LEAST ? ROOM_LEAST : part > ROOM_MOST ? ROOM_MOST : (uint32_t)part;
}

void weiri_listener_init(weiri_listener *listener)
{
    listener->fd = -1;
    listener->room = choose_room();
}

/* Opens the listener of this rank: rank 0 at the meeting point, the others at the named interface or at the one that
 * reaches rank 0. */
weir_status weiri_listener_open(weir_bootstrap *boot, const char *where, const char *interface)
{
    weiri_address at = boot->join.root;
    weir_status status = WEIR_OK;
    if (interface[0] != '\0') {
        status = weiri_sock_interface(interface, boot->join.root.family, &at);
    } else if (boot->rank != 0) {
        status = weiri_sock_route(&boot->join.root, &at);
    }
    if (status != WEIR_OK) {
        return status;
    }
    if (boot->rank != 0) {
        return weiri_sock_listen(&at, &boot->listener.fd, &boot->peers[boot->rank].address);
    }
    boot->peers[boot->rank].address = boot->join.root;
    boot->listener.fd = weiri_unique_id_take(where);
    if (boot->size == 1 && boot->listener.fd >= 0) {
        weiri_sock_close(boot->listener.fd);
        boot->listener.fd = -1;
    }
    if (boot->size == 1 || boot->listener.fd >= 0) {
        return WEIR_OK;
    }
    status = weiri_sock_listen(&boot->join.root, &boot->listener.fd, &boot->peers[boot->rank].address);
    if (status != WEIR_OK) {
        /* If another process is rank 0 already, that one reports this to all ranks. */
        boot->join.in_use = errno == EADDRINUSE;
        (void)snprintf(boot->join.taken, sizeof boot->join.taken, "%s", weir_last_error());
    }
    return WEIR_OK;
}

/* The network that a connection comes from: an IPv4 address, or 64 bits of an IPv6 address. */
static uint32_t source(const weiri_address *address)
{
    const size_t bytes = address->family == 4 ? 4 : 8;
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ address->ip[i]) * 16777619u;
    }
    return (hash ^ hash >> 16) % SOURCES;
}

/* Drops one connection without a proof of the key; false when there is none. */
static bool drop_one(weir_bootstrap *boot)
{
    uint32_t counts[SOURCES] = { 0 };
    uint32_t most = 0;
    weiri_conn *oldest = NULL;
    for (const weiri_conn *conn = boot->conns.first; conn != NULL; conn = conn->next) {
        if (weiri_conn_is_unproved(conn)) {
            const uint32_t count = ++counts[source(&conn->address)];
            most = count > most ? count : most;
        }
    }
    /* New connections are at the front of the list. */
    for (weiri_conn *conn = boot->conns.first; conn != NULL; conn = conn->next) {
        if (weiri_conn_is_unproved(conn) && counts[source(&conn->address)] == most) {
            oldest = conn;
        }
    }
    if (oldest != NULL) {
        weiri_conn_foreign(oldest, "too many connections have not proved the key");
    }
    return oldest != NULL;
}

/* Accepts one waiting connection; false when there is none, or no descriptor or memory for it. */
static bool accept_one(weir_bootstrap *boot)
{
    const uint32_t missing = boot->rank == 0 && !boot->join.over ? boot->size - boot->join.present : 0;
    int fd = -1;
    weiri_address from;
    const int error = weiri_sock_accept(boot->listener.fd, &fd, &from);
    if (error == EINTR || error == ECONNABORTED) {
        return true;
    }
    if (error == EAGAIN) {
        return false;
    }
    if (error != 0) {
        /* Without descriptors or memory the listener stays ready: tries again, or pauses. */
        boot->listener.paused = !drop_one(boot);
        return !boot->listener.paused;
    }
    if (boot->listener.unproved >= boot->listener.room + missing) {
        (void)drop_one(boot);
    }
    if (!weiri_conn_adopt(boot, fd, &from)) {
        weiri_sock_close(fd);
        boot->listener.paused = true;
        return false;
    }
    return true;
}

static void accept_all(void *context, uint32_t events)
{
    weir_bootstrap *boot = (weir_bootstrap *)context;
    (void)events;
    weiri_boot_enter(boot);
    boot->listener.paused = false;
    for (int i = 0; i < ACCEPT_AT_ONCE && !boot->work.stopped && boot->listener.fd >= 0; i++) {
        if (!accept_one(boot)) {
            break;
        }
    }
    if (boot->listener.paused && boot->listener.watch != NULL) {
        (void)weiri_service_set_events(boot->work.service, boot->listener.watch, 0);
        weiri_boot_hurry(boot);
    }
    weiri_boot_leave(boot);
}

weir_status weiri_listener_start(weir_bootstrap *boot)
{
    weiri_listener *listener = &boot->listener;
    return listener->fd < 0
               ? WEIR_OK
               : weiri_service_watch_fd(boot->work.service, listener->fd, EPOLLIN, accept_all, boot, &listener->watch);
}

void weiri_listener_stop(weir_bootstrap *boot)
{
    weiri_listener *listener = &boot->listener;
    weiri_service_unwatch(boot->work.service, listener->watch);
    listener->watch = NULL;
    if (listener->fd >= 0) {
        /* Forked children that inherited a unique id have the socket too; shutdown closes it for all. */
        (void)shutdown(listener->fd, SHUT_RDWR);
        weiri_sock_close(listener->fd);
        listener->fd = -1;
    }
}

void weiri_listener_resume(weir_bootstrap *boot)
{
    if (boot->listener.paused && boot->listener.watch != NULL) {
        boot->listener.paused = false;
        (void)weiri_service_set_events(boot->work.service, boot->listener.watch, EPOLLIN);
    }
}
