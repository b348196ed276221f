/* datagram.h - right and wrong datagrams to the descriptor socket of a communicator, as owners of memory send them, and
 * the progress of descriptor passing. */
#ifndef WEIRT_DATAGRAM_H
#define WEIRT_DATAGRAM_H

#include "weir/weir.h"

WEIR_BEGIN_DECLS

#define WEIRT_DATAGRAM_BYTES 60 /* of a right datagram */

/* The communicator's socket. */
int weirt_datagrams_socket(weir_comm *comm);

/* A request of this rank that the memory's owner has not answered. */
typedef struct weirt_request {
    uint32_t owner;
    uint64_t number;
    uint64_t bytes; /* of the requested file */
} weirt_request;

/* Waits for such a request, with the harness's timeout. */
bool weirt_request_wait(weir_comm *comm, weirt_request *out);

/* A datagram. With only `owner`, `number` and `fds` set, it is a right answer. The other fields each make it wrong. */
typedef struct weirt_datagram {
    uint32_t owner;
    uint64_t number;
    int fds[2];
    uint32_t fd_count;
    bool token_wrong;
    bool proof_wrong;
    bool proves_job;    /* the proof is for another job, ... */
    bool proves_port;   /* another communicator of this job, */
    bool proves_owner;  /* an answer of another rank, */
    bool proves_asker;  /* to another rank, */
    bool proves_socket; /* to another socket, */
    bool proves_number; /* to another request */
    bool longer;
    bool shorter;
} weirt_datagram;

/* Sends it to the communicator's own socket. Returns 0 or an errno value. */
int weirt_datagram_send(weir_comm *comm, const weirt_datagram *datagram);

/* Between the two calls the communicator takes no datagrams; they wait in its socket's queue. False if the service
 * thread did not come to rest within the test's timeout. */
bool weirt_datagrams_hold(weir_comm *comm);
void weirt_datagrams_release(weir_comm *comm);

/* Between the two calls the calling thread holds the communicator's mutex: peers get no answers. */
void weirt_comm_hold(weir_comm *comm);
void weirt_comm_release(weir_comm *comm);

/* The number of answers that the peer's full queue has refused and that will be sent again. */
uint32_t weirt_count_refused(weir_comm *comm);
/* Makes this rank treat `peer` as one in another network namespace: descriptors are lent to it. */
void weirt_move_away(weir_comm *comm, uint32_t peer);
/* The number of a descriptor that is lent now; -1 if none is. */
int weirt_lent(weir_comm *comm);

/* Makes recvmsg of the communicator's socket fail with `error` from now on; 0 ends that. Returns the calls that have
 * failed. Works only in programs linked with --wrap=recvmsg: test/fault. */
uint32_t weirt_datagrams_fail(weir_comm *comm, int error);

WEIR_END_DECLS

#endif
