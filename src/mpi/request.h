/* request.h - requests of MPI whose message is in a stage. A request is found by its handle, which the program has. MPI
 * may use a handle again as soon as it has freed it, before the library has taken the request off the table. So the
 * newest request of a handle is found, and a call keeps the requests that it found by pointer. */
#ifndef WEIRI_MPI_REQUEST_H
#define WEIRI_MPI_REQUEST_H

#include <mpi.h>

#include "src/mpi/message.h"

typedef struct weiri_mpi_request {
    MPI_Request handle;
    weiri_mpi_message message;
    bool receives;
    bool persistent;
    bool active;    /* MPI works on it; a persistent request only between its start and its completion */
    bool delivered; /* the data is unpacked, but the program has not completed the request */
    bool busy;      /* a call has it */
    int index;      /* in the array of that call */
    MPI_Status status;
    struct weiri_mpi_request *batch; /* the next request of that call */
    struct weiri_mpi_request *next;
} weiri_mpi_request;

/* Whether there is any request to find or to poll. */
bool weiri_mpi_request_any(void);

/* A request for the message, which it takes over; NULL without memory: the caller keeps the message. It keeps
 * its parts of the program's datatype. */
weiri_mpi_request *weiri_mpi_request_create(const weiri_mpi_message *message, bool receives, bool persistent);
/* Enters it under the handle that MPI gave. */
void weiri_mpi_request_add(weiri_mpi_request *request, MPI_Request handle);
/* Ends a request that is not in the table. */
void weiri_mpi_request_destroy(weiri_mpi_request *request);

/* The request of the handle, which is busy then; NULL if the library has none, or if another call has it. */
weiri_mpi_request *weiri_mpi_request_find(MPI_Request handle);
/* The call did not complete it. */
void weiri_mpi_request_idle(weiri_mpi_request *request);
/* After a call that may have completed it: `now` is the program's handle after the call, `error` the result for this
 * request. Unpacks what was received. Returns `error`, or the error of the unpack. That one is raised on
 * MPI_COMM_WORLD, because the program may have freed the communicator. */
int weiri_mpi_request_settle(weiri_mpi_request *request, MPI_Request now, int error, const MPI_Status *status);

/* For MPI_Request_free: MPI completes the request, and no call of the program does. */
void weiri_mpi_request_abandon(weiri_mpi_request *request);
/* Ends abandoned requests that MPI has completed. */
void weiri_mpi_request_poll(void);

/* Before and after PMPI_Finalize. */
void weiri_mpi_request_stop(void);
void weiri_mpi_request_end(void);

#endif
