/* send.c - MPI_Send, MPI_Ssend, MPI_Recv, MPI_Sendrecv, MPI_Isend, MPI_Irecv, MPI_Send_init and MPI_Recv_init. Each
 * replaces a buffer in a device's memory by its stage, and calls MPI with the other arguments as they are. */
#include <mpi.h>

#include "src/mpi/alloc.h"
#include "src/mpi/init.h"
#include "src/mpi/request.h"

/* Counts the call, and ends freed requests whose stages may be used again. */
static void begin(weiri_mpi_call call)
{
    weiri_mpi_fault_restart();
    weiri_mpi_count_call(call);
    if (weiri_mpi_request_any()) {
        weiri_mpi_request_poll();
    }
}

/* ---- blocking calls -------------------------------------------------------------------------------------- */

typedef int (*send_function)(const void *, int, MPI_Datatype, int, int, MPI_Comm);

static int send(weiri_mpi_call call, send_function function, const void *buf, int count, MPI_Datatype datatype,
                int dest, int tag, MPI_Comm comm)
{
    weiri_mpi_message m;
    begin(call);
    if (!weiri_mpi_message_begin(call, buf, count, datatype, dest, WEIRI_MPI_PACKS, &m)) {
        return function(buf, count, datatype, dest, tag, comm);
    }
    const int result = function(m.stage->memory, m.count, m.datatype, dest, tag, comm);
    weiri_mpi_message_end(&m);
    return result;
}

int MPI_Send(const void *buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm)
{
    return weiri_mpi_active() ? send(WEIRI_MPI_SEND, PMPI_Send, buf, count, datatype, dest, tag, comm)
                              : PMPI_Send(buf, count, datatype, dest, tag, comm);
}

int MPI_Ssend(const void *buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm)
{
    return weiri_mpi_active() ? send(WEIRI_MPI_SSEND, PMPI_Ssend, buf, count, datatype, dest, tag, comm)
                              : PMPI_Ssend(buf, count, datatype, dest, tag, comm);
}

int MPI_Recv(void *buf, int count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm, MPI_Status *status)
{
    weiri_mpi_message m;
    MPI_Status own;
    if (!weiri_mpi_active()) {
        return PMPI_Recv(buf, count, datatype, source, tag, comm, status);
    }
    begin(WEIRI_MPI_RECV);
    if (!weiri_mpi_message_begin(WEIRI_MPI_RECV, buf, count, datatype, source, WEIRI_MPI_RECEIVES, &m)) {
        return PMPI_Recv(buf, count, datatype, source, tag, comm, status);
    }
    status = status != MPI_STATUS_IGNORE ? status : &own;
    int result = PMPI_Recv(m.stage->memory, m.count, m.datatype, source, tag, comm, status);
    if (result == MPI_SUCCESS) {
        result = weiri_mpi_message_deliver(&m, status, comm);
    }
    weiri_mpi_message_end(&m);
    return result;
}

int MPI_Sendrecv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, int dest, int sendtag, void *recvbuf,
                 int recvcount, MPI_Datatype recvtype, int source, int recvtag, MPI_Comm comm, MPI_Status *status)
{
    weiri_mpi_message out, in;
    MPI_Status own;
    if (!weiri_mpi_active()) {
        return PMPI_Sendrecv(sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, recvtype, source, recvtag,
                             comm, status);
    }
    begin(WEIRI_MPI_SENDRECV);
    const bool sends =
        weiri_mpi_message_begin(WEIRI_MPI_SENDRECV, sendbuf, sendcount, sendtype, dest, WEIRI_MPI_PACKS, &out);
    const bool receives =
        weiri_mpi_message_begin(WEIRI_MPI_SENDRECV, recvbuf, recvcount, recvtype, source, WEIRI_MPI_RECEIVES, &in);
    status = status != MPI_STATUS_IGNORE ? status : &own;
    int result = PMPI_Sendrecv(sends ? out.stage->memory : sendbuf, sends ? out.count : sendcount,
                               sends ? out.datatype : sendtype, dest, sendtag, receives ? in.stage->memory : recvbuf,
                               receives ? in.count : recvcount, receives ? in.datatype : recvtype, source, recvtag,
                               comm, status);
    if (receives) {
        result = result == MPI_SUCCESS ? weiri_mpi_message_deliver(&in, status, comm) : result;
        weiri_mpi_message_end(&in);
    }
    if (sends) {
        weiri_mpi_message_end(&out);
    }
    return result;
}

/* ---- requests -------------------------------------------------------------------------------------------- */

typedef int (*send_request_function)(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
typedef int (*receive_request_function)(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

/* A request for a buffer that the library carries; NULL if MPI does it. */
static weiri_mpi_request *prepare(weiri_mpi_call call, const void *buf, int count, MPI_Datatype datatype, int peer,
                                  weiri_mpi_use use, bool receives)
{
    weiri_mpi_message m;
    const bool persistent = call == WEIRI_MPI_SEND_INIT || call == WEIRI_MPI_RECV_INIT;
    begin(call);
    if (!weiri_mpi_message_begin(call, buf, count, datatype, peer, use, &m)) {
        return NULL;
    }
    weiri_mpi_request *request = weiri_mpi_request_create(&m, receives, persistent);
    if (request == NULL) {
        weiri_mpi_data_leave(&m.data);
        weiri_mpi_message_end(&m);
    }
    return request;
}

/* Enters the request that MPI has made. Ends it if MPI has made none, and also if a send is complete: MPI then needs
 * the stage no more, and Open MPI gives all such sends one handle. */
static int finish(weiri_mpi_request *prepared, int result, const MPI_Request *handle)
{
    int done = 0;
    if (result == MPI_SUCCESS && !prepared->receives && !prepared->persistent) {
        (void)PMPI_Request_get_status(*handle, &done, MPI_STATUS_IGNORE);
    }
    if (result == MPI_SUCCESS && !done) {
        weiri_mpi_request_add(prepared, *handle);
    } else {
        weiri_mpi_request_destroy(prepared);
    }
    return result;
}

static int send_request(weiri_mpi_call call, send_request_function function, const void *buf, int count,
                        MPI_Datatype datatype, int dest, int tag, MPI_Comm comm, MPI_Request *request)
{
    const weiri_mpi_use use = call == WEIRI_MPI_ISEND ? WEIRI_MPI_PACKS : WEIRI_MPI_LATER;
    weiri_mpi_request *made = prepare(call, buf, count, datatype, dest, use, false);
    if (made == NULL) {
        return function(buf, count, datatype, dest, tag, comm, request);
    }
    const weiri_mpi_message *m = &made->message;
    return finish(made, function(m->stage->memory, m->count, m->datatype, dest, tag, comm, request), request);
}

static int receive_request(weiri_mpi_call call, receive_request_function function, void *buf, int count,
                           MPI_Datatype datatype, int source, int tag, MPI_Comm comm, MPI_Request *request)
{
    weiri_mpi_request *made = prepare(call, buf, count, datatype, source, WEIRI_MPI_RECEIVES, true);
    if (made == NULL) {
        return function(buf, count, datatype, source, tag, comm, request);
    }
    const weiri_mpi_message *m = &made->message;
    return finish(made, function(m->stage->memory, m->count, m->datatype, source, tag, comm, request), request);
}

int MPI_Isend(const void *buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm, MPI_Request *request)
{
    return weiri_mpi_active()
               ? send_request(WEIRI_MPI_ISEND, PMPI_Isend, buf, count, datatype, dest, tag, comm, request)
               : PMPI_Isend(buf, count, datatype, dest, tag, comm, request);
}

int MPI_Irecv(void *buf, int count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm, MPI_Request *request)
{
    return weiri_mpi_active()
               ? receive_request(WEIRI_MPI_IRECV, PMPI_Irecv, buf, count, datatype, source, tag, comm, request)
               : PMPI_Irecv(buf, count, datatype, source, tag, comm, request);
}

int MPI_Send_init(const void *buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm,
                  MPI_Request *request)
{
    return weiri_mpi_active()
               ? send_request(WEIRI_MPI_SEND_INIT, PMPI_Send_init, buf, count, datatype, dest, tag, comm, request)
               : PMPI_Send_init(buf, count, datatype, dest, tag, comm, request);
}

int MPI_Recv_init(void *buf, int count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm, MPI_Request *request)
{
    return weiri_mpi_active()
               ? receive_request(WEIRI_MPI_RECV_INIT, PMPI_Recv_init, buf, count, datatype, source, tag, comm, request)
               : PMPI_Recv_init(buf, count, datatype, source, tag, comm, request);
}
