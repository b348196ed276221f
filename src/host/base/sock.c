/* sock.c - TCP sockets, and addresses as texts, on the wire and for the system; see sock.h.
 *
 * Calls make sockets and never wait on them: connect and accept return errno values, and the owner of a socket learns
 * from the service thread (service.h) when it is ready. fork must not keep a peer's connection open. So `own` has a bit
 * for each socket that ends with this process, and the child of a fork closes all of these. */
#define _GNU_SOURCE 1

#include "src/host/base/sock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/host/base/error.h"

#define BACKLOG 4096

typedef union sock_name {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_storage storage;
} sock_name;

/* ---- sockets that end with this process ------------------------------------------------------------- */

/* A bit for each descriptor that ends with this process. A thread holds the mutex from the creation of a socket until
 * its bit is set; fork takes it too. */
#define OWN_MAX (1 << 20)
static pthread_mutex_t own_mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t own[OWN_MAX / 64];
static int own_end; /* no descriptor from here on is set */
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static int fork_error;

static void before_fork(void) { (void)pthread_mutex_lock(&own_mutex); }

static void after_fork(void) { (void)pthread_mutex_unlock(&own_mutex); }

static void after_fork_in_child(void)
{
    for (int fd = 0; fd < own_end; fd++) {
        if ((own[fd / 64] >> (fd % 64) & 1) != 0) {
            (void)close(fd);
        }
    }
    memset(own, 0, (size_t)(own_end + 63) / 64 * sizeof own[0]);
    own_end = 0;
    (void)pthread_mutex_unlock(&own_mutex);
}

static void watch_forks(void) { fork_error = pthread_atfork(before_fork, after_fork, after_fork_in_child); }

/* 0 with the mutex held, or an errno value. */
static int begin_own(void)
{
    (void)pthread_once(&fork_once, watch_forks);
    if (fork_error == 0) {
        (void)pthread_mutex_lock(&own_mutex);
    }
    return fork_error;
}

/* Releases the mutex. `fd` is the new descriptor, or -1 with errno. *out is set on success. */
static int end_own(int fd, int *out)
{
    int error = fd < 0 ? errno : fd >= OWN_MAX ? EMFILE : 0;
    if (error == 0) {
        own[fd / 64] |= (uint64_t)1 << (fd % 64);
        own_end = fd < own_end ? own_end : fd + 1;
        *out = fd;
    } else if (fd >= 0) {
        (void)close(fd);
    }
    (void)pthread_mutex_unlock(&own_mutex);
    return error;
}

void weiri_sock_close(int fd)
{
    (void)pthread_mutex_lock(&own_mutex);
    if (fd < OWN_MAX) { /* a listener without weiri_sock_own may be beyond */
        own[fd / 64] &= ~((uint64_t)1 << (fd % 64));
    }
    (void)close(fd);
    (void)pthread_mutex_unlock(&own_mutex);
}

/* ---- addresses -------------------------------------------------------------------------------------- */

static socklen_t to_name(const weiri_address *address, sock_name *name)
{
    memset(name, 0, sizeof *name);
    if (address->family == 4) {
        name->v4.sin_family = AF_INET;
        name->v4.sin_port = htons(address->port);
        memcpy(&name->v4.sin_addr, address->ip, 4);
        return sizeof name->v4;
    }
    name->v6.sin6_family = AF_INET6;
    name->v6.sin6_port = htons(address->port);
    name->v6.sin6_scope_id = address->scope;
    memcpy(&name->v6.sin6_addr, address->ip, 16);
    return sizeof name->v6;
}

static void from_name(const sock_name *name, weiri_address *address)
{
    memset(address, 0, sizeof *address);
    if (name->any.sa_family == AF_INET) {
        address->family = 4;
        address->port = ntohs(name->v4.sin_port);
        memcpy(address->ip, &name->v4.sin_addr, 4);
    } else if (name->any.sa_family == AF_INET6) {
        address->family = 6;
        address->port = ntohs(name->v6.sin6_port);
        address->scope = name->v6.sin6_scope_id;
        memcpy(address->ip, &name->v6.sin6_addr, 16);
    }
}

const char *weiri_address_format(const weiri_address *address, char text[WEIRI_ADDRESS_TEXT_BYTES])
{
    char ip[INET6_ADDRSTRLEN] = "";
    (void)inet_ntop(address->family == 4 ? AF_INET : AF_INET6, address->ip, ip, sizeof ip);
    (void)snprintf(text, WEIRI_ADDRESS_TEXT_BYTES, address->family == 4 ? "%s:%u" : "[%s]:%u", ip, address->port);
    return text;
}

bool weiri_address_parse_ip(const char *text, weiri_address *out)
{
    weiri_address a = { { 0 }, 0, 0, 0 };
    if (inet_pton(AF_INET, text, a.ip) == 1) {
        a.family = 4;
    } else if (inet_pton(AF_INET6, text, a.ip) == 1) {
        a.family = 6;
    } else {
        return false;
    }
    *out = a;
    return true;
}

/* Copies text[0, size) as a string; false when it does not fit. */
static bool cut(const char *text, size_t size, char *to, size_t capacity)
{
    if (size >= capacity) {
        return false;
    }
    memcpy(to, text, size);
    to[size] = '\0';
    return true;
}

static bool parse_port(const char *text, uint16_t *port)
{
    uint32_t value = 0;
    const size_t digits = strlen(text);
    if (digits == 0 || digits > 5) {
        return false;
    }
    for (size_t i = 0; i < digits; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return false;
        }
        value = value * 10 + (uint32_t)(text[i] - '0');
    }
    if (value == 0 || value > 65535) {
        return false;
    }
    *port = (uint16_t)value;
    return true;
}

/* Splits "interface:ip" or "interface:[ip]"; "interface:" is optional. */
static bool parse_host(const char *text, size_t size, char interface[WEIRI_INTERFACE_BYTES], weiri_address *out)
{
    char host[128];
    if (!cut(text, size, host, sizeof host)) {
        return false;
    }
    char *ip = host;
    char *bracket = strchr(host, '[');
    char *colon = strrchr(host, ':');
    if (bracket != NULL) {
        const size_t end = strlen(bracket) - 1;
        if (end == 0 || bracket[end] != ']' || (bracket != host && bracket[-1] != ':')) {
            return false;
        }
        bracket[end] = '\0';
        ip = bracket + 1;
        colon = bracket == host ? NULL : bracket - 1;
    } else if (colon != NULL) {
        ip = colon + 1;
    }
    interface[0] = '\0';
    if (colon != NULL && (colon == host || !cut(host, (size_t)(colon - host), interface, WEIRI_INTERFACE_BYTES))) {
        return false;
    }
    return weiri_address_parse_ip(ip, out) && (out->family == 6) == (bracket != NULL);
}

weir_status weiri_address_parse(const char *text, char interface[WEIRI_INTERFACE_BYTES], weiri_address *out)
{
    weiri_address a;
    const char *colon = strrchr(text, ':');
    uint16_t port = 0;
    if (colon == NULL || !parse_host(text, (size_t)(colon - text), interface, &a) || !parse_port(colon + 1, &port)) {
        return weiri_fail(WEIR_ERR_INVALID,
                          "address \"%.100s\": not of the form ip:port, [ip]:port or interface:ip:port with a port "
                          "of 1 to 65535",
                          text);
    }
    a.port = port;
    if (a.family == 6 && interface[0] != '\0' && a.ip[0] == 0xfe && (a.ip[1] & 0xc0) == 0x80) {
        a.scope = if_nametoindex(interface);
    }
    *out = a;
    return WEIR_OK;
}

bool weiri_address_is_loopback(const weiri_address *address)
{
    static const uint8_t v6[16] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 };
    return address->family == 4 ? address->ip[0] == 127 : memcmp(address->ip, v6, sizeof v6) == 0;
}

/* How suitable an address is: 0 not at all; IPv4 before global IPv6 before link-local IPv6. Without a name the loopback
 * comes last. */
static int grade(const struct ifaddrs *i, const char *name, uint8_t family, weiri_address *out)
{
    if (i->ifa_addr == NULL || (i->ifa_flags & IFF_UP) == 0 || (name != NULL && strcmp(name, i->ifa_name) != 0)) {
        return 0;
    }
    sock_name at;
    memset(&at, 0, sizeof at);
    if (i->ifa_addr->sa_family == AF_INET) {
        memcpy(&at.v4, i->ifa_addr, sizeof at.v4);
    } else if (i->ifa_addr->sa_family == AF_INET6) {
        memcpy(&at.v6, i->ifa_addr, sizeof at.v6);
    }
    from_name(&at, out);
    if (out->family == 0 || (family != 0 && family != out->family)) {
        return 0;
    }
    const int off_loopback = (i->ifa_flags & IFF_LOOPBACK) == 0 ? 4 : 0;
    return off_loopback + (out->family == 4 ? 3 : out->scope == 0 ? 2 : 1);
}

weir_status weiri_sock_interface(const char *name, uint8_t family, weiri_address *out)
{
    struct ifaddrs *list = NULL;
    if (getifaddrs(&list) != 0) {
        return weiri_fail_errno(errno, "network interfaces: listing them");
    }
    int best = 0;
    for (const struct ifaddrs *i = list; i != NULL; i = i->ifa_next) {
        weiri_address a;
        const int g = grade(i, name, family, &a);
        if (g > best) {
            best = g;
            *out = a;
            out->port = 0;
        }
    }
    freeifaddrs(list);
    if (best == 0) {
        return weiri_fail(WEIR_ERR_INVALID, "network interface \"%s\": no such interface is up with an %s address",
                          name == NULL ? "(any)" : name,
                          family == 4   ? "IPv4"
                          : family == 6 ? "IPv6"
                                        : "IP");
    }
    return WEIR_OK;
}

weir_status weiri_sock_route(const weiri_address *to, weiri_address *out)
{
    char text[WEIRI_ADDRESS_TEXT_BYTES];
    sock_name name;
    socklen_t size = to_name(to, &name);
    const int fd = socket(name.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return weiri_fail_errno(errno, "socket for %s", weiri_address_format(to, text));
    }
    /* Connecting a datagram socket sends nothing, but chooses the route. */
    int error = connect(fd, &name.any, size) != 0 ? errno : 0;
    size = sizeof name;
    if (error == 0 && getsockname(fd, &name.any, &size) != 0) {
        error = errno;
    }
    (void)close(fd);
    if (error != 0) {
        return weiri_fail_errno(error, "route to %s", weiri_address_format(to, text));
    }
    from_name(&name, out);
    out->port = 0;
    return WEIR_OK;
}

weir_status weiri_sock_listen(const weiri_address *at, int *fd, weiri_address *bound)
{
    char text[WEIRI_ADDRESS_TEXT_BYTES];
    sock_name name;
    socklen_t size = to_name(at, &name);
    const int one = 1;
    const char *what = "socket";
    const int s = socket(name.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s < 0) {
        goto fail;
    }
    what = "bind";
    if (setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 || bind(s, &name.any, size) != 0) {
        goto close_socket;
    }
    /* Accepted sockets inherit it, also before weiri_sock_own. */
    (void)setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    /* The kernel holds back a silent connection for about a second. */
    (void)setsockopt(s, IPPROTO_TCP, TCP_DEFER_ACCEPT, &one, sizeof one);
    what = "listen";
    size = sizeof name;
    if (listen(s, BACKLOG) != 0 || getsockname(s, &name.any, &size) != 0) {
        goto close_socket;
    }
    from_name(&name, bound);
    *fd = s;
    return WEIR_OK;

    int error;
close_socket:
    error = errno;
    (void)close(s);
    errno = error;
fail:
    return weiri_fail_errno(errno, "%s at %s", what, weiri_address_format(at, text));
}

/* Small messages leave at once, and an unreachable peer is found within the timeout. Errors are ignored: the socket
 * works without these options. */
static void set_options(int fd, uint32_t timeout_ms)
{
    const int one = 1;
    const int probes = 3;
    const int seconds = timeout_ms < 8000 ? 1 : timeout_ms / 4000 > 7200 ? 7200 : (int)(timeout_ms / 4000);
    const unsigned limit = timeout_ms < 1000 ? 1000 : timeout_ms;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, sizeof limit);
}

int weiri_sock_own(int listener, uint32_t timeout_ms)
{
    int fd = -1;
    if (listener >= OWN_MAX) {
        return EMFILE; /* the caller still closes it */
    }
    set_options(listener, timeout_ms); /* accepted sockets inherit them */
    const int error = begin_own();
    return error != 0 ? error : end_own(listener, &fd);
}

int weiri_sock_accept(int listener, int *fd, weiri_address *from)
{
    sock_name name;
    socklen_t size = sizeof name;
    int error = begin_own();
    if (error != 0) {
        return error;
    }
    error = end_own(accept4(listener, &name.any, &size, SOCK_NONBLOCK | SOCK_CLOEXEC), fd);
    if (error == 0) {
        from_name(&name, from);
    }
    return error;
}

int weiri_sock_connect(const weiri_address *to, uint32_t timeout_ms, int *fd)
{
    sock_name name;
    const socklen_t size = to_name(to, &name);
    int s = -1;
    int error = begin_own();
    if (error == 0) {
        error = end_own(socket(name.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), &s);
    }
    if (error != 0) {
        return error;
    }
    set_options(s, timeout_ms);
    error = connect(s, &name.any, size) == 0 ? 0 : errno;
    if (error != 0 && error != EINPROGRESS) {
        weiri_sock_close(s);
        return error;
    }
    *fd = s;
    return error;
}

int weiri_sock_error(int fd)
{
    sock_name here;
    sock_name there;
    socklen_t here_size = sizeof here;
    socklen_t there_size = sizeof there;
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
        return errno;
    }
    /* Without a listener at a port in the ephemeral range the kernel may give the connecting socket that very port; the
     * socket is then connected to itself. */
    if (error == 0 && getsockname(fd, &here.any, &here_size) == 0 && getpeername(fd, &there.any, &there_size) == 0 &&
        here_size == there_size && memcmp(&here, &there, here_size) == 0) {
        return ECONNREFUSED;
    }
    return error;
}
