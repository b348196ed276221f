/* datagram.h - what owners of memory send to the descriptor socket of a communicator, right or wrong, and how far the
 * passing of descriptors has come. */
#ifndef WEIRT_DATAGRAM_H
#define WEIRT_DATAGRAM_H

#include "weir/weir.h"

WEIR_BEGIN_DECLS

#define WEIRT_DATAGRAM_BYTES 60 /* of a right one */

/* The communicator's socket. */
int weirt_datagrams_socket(weir_comm *comm);

/* A request of this rank that its owner has not answered. */
typedef struct weirt_request {
    uint32_t owner;
    uint64_t number;
    uint64_t bytes; /* of the file that is asked for */
} weirt_request;

/* Waits for one, as long as the harness is patient. */
bool weirt_request_wait(weir_comm *comm, weirt_request *out);

/* A datagram. All zero but `owner`, `number` and `fds`, it is a right answer; the other fields say what is wrong. */
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

/* Sends it to the communicator's own socket. 0 or an errno value. */
int weirt_datagram_send(weir_comm *comm, const weirt_datagram *datagram);

/* Between the two, the communicator takes no datagrams, which then wait in its socket's queue. */
void weirt_datagrams_hold(weir_comm *comm);
void weirt_datagrams_release(weir_comm *comm);

/* Between the two, the calling thread has the communicator's mutex: messages of peers are not answered. */
void weirt_comm_hold(weir_comm *comm);
void weirt_comm_release(weir_comm *comm);

/* Answers that the peer's full queue has refused, and that are to be sent again. */
uint32_t weirt_count_refused(weir_comm *comm);
/* Makes `peer` one of another network namespace, in the eyes of this rank: descriptors are lent to it. */
void weirt_move_away(weir_comm *comm, uint32_t peer);
/* The number of a descriptor that is lent now; -1 without. */
int weirt_lent(weir_comm *comm);

/* From now on recvmsg of the communicator's socket fails with `error`; 0 ends that. The call returns how many have
 * failed so. Only in programs that are linked with --wrap=recvmsg: test/fault. */
uint32_t weirt_datagrams_fail(weir_comm *comm, int error);

WEIR_END_DECLS

#endif
