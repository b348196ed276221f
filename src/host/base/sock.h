/* sock.h - TCP addresses and nonblocking sockets.
 *
 * A connection ends with the process that made it: fork closes its socket in the child.
 *
 * Threads:   any.
 * Blocking:  never. Sockets are nonblocking and close-on-exec.
 * Ownership: returned descriptors belong to the caller and are closed with weiri_sock_close.
 * Errors:    WEIR_ERR_INVALID for text that is no address, WEIR_ERR_SYSTEM. */
#ifndef WEIRI_SOCK_H
#define WEIRI_SOCK_H

#include "weir/base.h"

/* An IP address and port; also the form on the wire. */
typedef struct weiri_address {
    uint8_t ip[16];
    uint32_t scope; /* interface index of a link-local IPv6 address, valid on this host alone */
    uint16_t port;
    uint8_t family; /* 4, 6, or 0 for none */
} weiri_address;

#define WEIRI_ADDRESS_TEXT_BYTES 64
#define WEIRI_INTERFACE_BYTES 16

/* "10.0.0.1:5000", "[::1]:5000". Returns `text`. */
const char *weiri_address_format(const weiri_address *address, char text[WEIRI_ADDRESS_TEXT_BYTES]);
/* Parses an IP address without a port; the port becomes 0. False for anything else. */
bool weiri_address_parse_ip(const char *text, weiri_address *out);
/* "ip:port" or "interface:ip:port", IPv6 in brackets; `interface` becomes "" without one. */
weir_status weiri_address_parse(const char *text, char interface[WEIRI_INTERFACE_BYTES], weiri_address *out);
bool weiri_address_is_loopback(const weiri_address *address);

/* The first address of an interface, of `family` unless 0. A NULL name means the first interface that is up and not the
 * loopback, else the loopback. */
weir_status weiri_sock_interface(const char *name, uint8_t family, weiri_address *out);
/* The local address from which `to` is reached. */
weir_status weiri_sock_route(const weiri_address *to, weiri_address *out);

/* Listens at `at` (port 0: any) with a backlog of at least 1,024. *bound gets the address with its port. The socket
 * stays open in the children of a fork until weiri_sock_own. After an error errno has the cause. */
weir_status weiri_sock_listen(const weiri_address *at, int *fd, weiri_address *bound);
/* From now on the listener ends with this process, and the connections that it accepts find an unreachable peer
 * within `timeout_ms`. 0 or an errno value. */
int weiri_sock_own(int listener, uint32_t timeout_ms);
/* Takes a waiting connection. 0 or an errno value. */
int weiri_sock_accept(int listener, int *fd, weiri_address *from);
/* Starts to connect; *fd is set for 0 and EINPROGRESS, otherwise the errno value says what failed. */
int weiri_sock_connect(const weiri_address *to, uint32_t timeout_ms, int *fd);
/* Closes a descriptor from own, accept or connect, in the process that called them. */
void weiri_sock_close(int fd);
/* The result of a pending connect: 0 or an errno value; ECONNREFUSED also when the socket is connected to itself. */
int weiri_sock_error(int fd);

#endif
