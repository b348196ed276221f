/* fd_pass.h - file descriptors between processes of a host.
 *
 * A rank that wants to map a peer's memory sends its owner a request over the bootstrap. The request has a number, and
 * asks whether the memory still exists and, where one is needed, for its descriptor. The owner answers over the
 * bootstrap if the memory is gone or no descriptor is needed. Otherwise it sends one datagram to the abstract Unix
 * socket of the asking communicator: the number, a proof with the job's key, and the descriptor (SCM_RIGHTS, unix(7)).
 * Any other datagram is closed and ignored, and the first one is logged.
 *
 * Two ranks in different network namespaces have different abstract sockets. There the owner sends the number of a
 * duplicate, and the asking rank takes it with pidfd_getfd(2), if the kernel allows that. The owner then confirms that
 * the number still meant the same descriptor. */
#ifndef WEIRI_COMM_FD_PASS_H
#define WEIRI_COMM_FD_PASS_H

#include "src/host/base/service.h"
#include "src/host/base/wire.h"
#include "weir/comm.h"
#include "weir/future.h"

/* A request of this rank. */
typedef struct weiri_fd_request {
    uint64_t number;
    weir_future *future;
    uint32_t index;
    bool fd_wanted;
    int fd; /* taken from the owner's process, until the owner says that it was the right one; else -1 */
    struct weiri_fd_request *next;
} weiri_fd_request;

/* A datagram that the receiver's full queue refused. */
typedef struct weiri_fd_send {
    uint32_t peer;
    uint64_t number;
    uint64_t memory;
    struct weiri_fd_send *next;
} weiri_fd_send;

/* A duplicate of a descriptor, for one request, which the asking rank takes by its number. */
typedef struct weiri_fd_loan {
    uint32_t peer;
    uint64_t number;
    int fd;
    struct weiri_fd_loan *next;
} weiri_fd_loan;

/* The state of a communicator. Its mutex guards this. */
typedef struct weiri_fd_pass {
    int socket; /* receives descriptors */
    weiri_watch *socket_watch;
    weiri_watch *resend_watch;
    weiri_fd_request *requests;
    weiri_fd_send *sends;
    weiri_fd_loan *loans;
    uint64_t next_request;
    bool foreign_logged;
} weiri_fd_pass;

/* Makes the socket with its name and token, comm->end.socket and .token; started when the port is open. */
weir_status weiri_fd_pass_open(weir_comm *comm);
weir_status weiri_fd_pass_start(weir_comm *comm);
void weiri_fd_pass_stop(weir_comm *comm);
void weiri_fd_pass_close(weir_comm *comm);

/* Asks the owner of handle `index` of a future for it. Mutex held. */
weir_status weiri_fd_pass_request_locked(weir_future *future, uint32_t index);
/* A future that has a request to `peer`, the owner of the memory, or, if `all`, to any rank; NULL if there is none.
 * Mutex held. */
weir_future *weiri_fd_pass_find_locked(weir_comm *comm, bool all, uint32_t peer);
/* `peer` needs nothing any more. Mutex held. */
void weiri_fd_pass_gone_locked(weir_comm *comm, uint32_t peer);
/* Forgets the requests of a future. Mutex held. */
void weiri_fd_pass_forget_locked(weir_future *future);

/* The port messages of this protocol, WEIRI_PORT_MEMORY_WANTED to WEIRI_PORT_FD_TAKEN. One that is malformed fails
 * the communicator. Service thread, mutex held. */
void weiri_fd_pass_message_locked(weir_comm *comm, uint32_t peer, uint8_t kind, weiri_reader *reader);

/* First byte of port messages. */
enum {
    WEIRI_PORT_OP = 1,
    WEIRI_PORT_ABORT = 2,
    WEIRI_PORT_MEMORY_WANTED = 3,
    WEIRI_PORT_MEMORY_THERE = 4,
    WEIRI_PORT_MEMORY_REFUSED = 5,
    WEIRI_PORT_FD_AT = 6,
    WEIRI_PORT_FD_TAKEN = 7,
    WEIRI_PORT_MISMATCH = 8,        /* as WEIRI_PORT_ABORT: ranks called different operations */
    WEIRI_PORT_WAITS = 9,           /* the sender waits for an operation, and asks whether it can still come */
    WEIRI_PORT_CHANNEL_FAILED = 10, /* a port channel of the sender: which, and why; see semaphore.c */
    WEIRI_PORT_QUEUE = 11,          /* the sender has opened its end of a queue; see endpoint.c */
    WEIRI_PORT_QUEUE_REFUSED = 12,  /* the sender could not open its end */
    WEIRI_PORT_LOSS = 13            /* as WEIRI_PORT_ABORT: a kernel of the sender reports WEIR_ERR_REMOTE */
};

#endif
