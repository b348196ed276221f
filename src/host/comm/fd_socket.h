/* fd_socket.h - the abstract Unix socket at which a communicator receives file descriptors, and its datagrams.
 *
 * Any process of the host can send to an abstract socket, and closing the last descriptor of a file may block: that of
 * a TCP socket as long as its SO_LINGER says. So each datagram begins with a token that only the ranks know. A socket
 * filter compares the token in the kernel and drops datagrams of foreign processes before they are queued. The thread
 * that sent such a datagram closes its descriptors.
 *
 * Threads:   any.
 * Blocking:  never.
 * Ownership: the descriptors that a datagram brings are the receiver's.
 * Errors:    WEIR_ERR_SYSTEM from open, errno values from the others. */
#ifndef WEIRI_COMM_FD_SOCKET_H
#define WEIRI_COMM_FD_SOCKET_H

#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "weir/base.h"

#define WEIRI_FD_NAME_BYTES 16
#define WEIRI_FD_TOKEN_BYTES 16
#define WEIRI_FD_PROOF_BYTES 32
#define WEIRI_FD_DATAGRAM_BYTES (WEIRI_FD_TOKEN_BYTES + 4 + 8 + WEIRI_FD_PROOF_BYTES)
#define WEIRI_FD_MAX 253 /* descriptors of one datagram: the kernel's limit */

/* Identifies the request that a datagram answers, and proves the answer. */
typedef struct weiri_fd_answer {
    uint32_t owner;
    uint64_t number;
    uint8_t proof[WEIRI_FD_PROOF_BYTES];
} weiri_fd_answer;

typedef struct weiri_fd_datagram {
    weiri_fd_answer answer; /* zeroes for a datagram of another length */
    bool cut;               /* descriptors were lost, because this process may open no more */
    int fds[WEIRI_FD_MAX];
    uint32_t count;
} weiri_fd_datagram;

/* Opens a socket of this name that accepts only datagrams of WEIRI_FD_DATAGRAM_BYTES that begin with `token`. */
weir_status weiri_fd_socket_open(const uint8_t name[WEIRI_FD_NAME_BYTES], const uint8_t token[WEIRI_FD_TOKEN_BYTES],
                                 int *out);

/* Sends `answer` and a duplicate of `fd` from `from`, a socket of open, to the socket of this name and token. 0;
 * EAGAIN when the receiver's queue is full; another errno value. */
int weiri_fd_socket_send(int from, const uint8_t name[WEIRI_FD_NAME_BYTES], const uint8_t token[WEIRI_FD_TOKEN_BYTES],
                         const weiri_fd_answer *answer, int fd);

/* Takes the next datagram. 0; EAGAIN when there is none; another errno value when the socket has failed for good. */
int weiri_fd_socket_receive(int from, weiri_fd_datagram *out);

/* Closes descriptors of a foreign process in a new thread, since that may block. False when no thread can be made, or
 * too many of them wait already: the descriptors then stay open. */
bool weiri_fd_dispose(const int *fds, uint32_t count);

#endif
