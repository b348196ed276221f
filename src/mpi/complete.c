/* complete.c - the calls that start, complete and free requests: MPI_Start, MPI_Startall, MPI_Wait..., MPI_Test...,
 * MPI_Request_get_status and MPI_Request_free.
 *
 * A call first finds the requests of the library among its handles, because MPI sets the handles of completed requests
 * to MPI_REQUEST_NULL. The library needs the statuses of these requests, also where the program ignores them. */
#include <mpi.h>
#include <stddef.h>

#include "src/mpi/alloc.h"
#include "src/mpi/init.h"
#include "src/mpi/request.h"

/* Whether the library may have requests of this call. */
static bool may_have(void)
{
    if (!weiri_mpi_active() || !weiri_mpi_request_any()) {
        return false;
    }
    weiri_mpi_fault_restart();
    weiri_mpi_request_poll();
    return true;
}

/* The list of the library's requests among the handles, in their order; NULL without one. */
static weiri_mpi_request *find_all(int count, const MPI_Request *handles)
{
    weiri_mpi_request *first = NULL;
    weiri_mpi_request **end = &first;
    if (handles == NULL || !may_have()) {
        return NULL;
    }
    for (int i = 0; i < count; i++) {
        weiri_mpi_request *request = weiri_mpi_request_find(handles[i]);
        if (request != NULL) {
            request->index = i;
            *end = request;
            end = &request->batch;
        }
    }
    return first;
}

static void idle_all(weiri_mpi_request *batch)
{
    for (weiri_mpi_request *next; batch != NULL; batch = next) {
        next = batch->batch;
        weiri_mpi_request_idle(batch);
    }
}

/* ---- start ----------------------------------------------------------------------------------------------- */

/* Packs the data of a persistent send. */
static bool prepare(weiri_mpi_request *request)
{
    const bool good = request->receives || weiri_mpi_message_pack(&request->message);
    request->active = good;
    weiri_mpi_request_idle(request);
    return good;
}

int MPI_Start(MPI_Request *request)
{
    weiri_mpi_request *found = request != NULL && may_have() ? weiri_mpi_request_find(*request) : NULL;
    if (found != NULL && !prepare(found)) {
        return weiri_mpi_message_fail(MPI_COMM_WORLD);
    }
    const int result = PMPI_Start(request);
    if (found != NULL && result != MPI_SUCCESS) {
        found->active = false;
    }
    return result;
}

int MPI_Startall(int count, MPI_Request requests[])
{
    bool good = true;
    for (weiri_mpi_request *found = find_all(count, requests), *next; found != NULL; found = next) {
        next = found->batch;
        good = prepare(found) && good;
    }
    return good ? PMPI_Startall(count, requests) : weiri_mpi_message_fail(MPI_COMM_WORLD);
}

/* ---- one request ----------------------------------------------------------------------------------------- */

static int wait_one(weiri_mpi_request *found, MPI_Request *request, MPI_Status *status)
{
    MPI_Status own;
    status = status != MPI_STATUS_IGNORE ? status : &own;
    const int result = PMPI_Wait(request, status);
    return weiri_mpi_request_settle(found, *request, result, status);
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    weiri_mpi_request *found = request != NULL && may_have() ? weiri_mpi_request_find(*request) : NULL;
    return found != NULL ? wait_one(found, request, status) : PMPI_Wait(request, status);
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    MPI_Status own;
    weiri_mpi_request *found = request != NULL && may_have() ? weiri_mpi_request_find(*request) : NULL;
    if (found == NULL) {
        return PMPI_Test(request, flag, status);
    }
    status = status != MPI_STATUS_IGNORE ? status : &own;
    const int result = PMPI_Test(request, flag, status);
    if (result == MPI_SUCCESS && !*flag) {
        weiri_mpi_request_idle(found);
        return result;
    }
    return weiri_mpi_request_settle(found, *request, result, status);
}

int MPI_Request_get_status(MPI_Request request, int *flag, MPI_Status *status)
{
    MPI_Status own;
    weiri_mpi_request *found = may_have() ? weiri_mpi_request_find(request) : NULL;
    if (found == NULL) {
        return PMPI_Request_get_status(request, flag, status);
    }
    status = status != MPI_STATUS_IGNORE ? status : &own;
    int result = PMPI_Request_get_status(request, flag, status);
    if (result == MPI_SUCCESS && *flag && found->receives && found->active && !found->delivered) {
        result = weiri_mpi_message_deliver(&found->message, status, MPI_COMM_WORLD);
        found->delivered = true;
    }
    weiri_mpi_request_idle(found);
    return result;
}

int MPI_Request_free(MPI_Request *request)
{
    weiri_mpi_request *found = request != NULL && may_have() ? weiri_mpi_request_find(*request) : NULL;
    if (found == NULL) {
        return PMPI_Request_free(request);
    }
    *request = MPI_REQUEST_NULL;
    weiri_mpi_request_abandon(found);
    weiri_mpi_request_poll();
    return MPI_SUCCESS;
}

/* ---- all requests ---------------------------------------------------------------------------------------- */

/* Settles all after a call that completed all. `statuses` has one for each handle; NULL: those of the requests. */
static int settle_all(weiri_mpi_request *batch, MPI_Request *requests, int result, MPI_Status *statuses)
{
    for (weiri_mpi_request *next; batch != NULL; batch = next) {
        next = batch->batch;
        const int index = batch->index;
        MPI_Status own = batch->status;
        MPI_Status *status = statuses != NULL ? &statuses[index] : &own;
        const int before = result == MPI_ERR_IN_STATUS ? status->MPI_ERROR : result;
        const int after = weiri_mpi_request_settle(batch, requests[index], before, status);
        if (before == MPI_SUCCESS && after != MPI_SUCCESS) {
            status->MPI_ERROR = after;
            result = MPI_ERR_IN_STATUS;
        }
    }
    return result;
}

int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[])
{
    int result = MPI_SUCCESS;
    weiri_mpi_request *batch = find_all(count, requests);
    if (batch == NULL) {
        return PMPI_Waitall(count, requests, statuses);
    }
    if (statuses != MPI_STATUSES_IGNORE) {
        for (weiri_mpi_request *one = batch; one != NULL; one = one->batch) {
            statuses[one->index].MPI_ERROR = MPI_SUCCESS;
        }
        result = PMPI_Waitall(count, requests, statuses);
        return settle_all(batch, requests, result, statuses);
    }
    /* One by one, so that the status of each is known. */
    for (weiri_mpi_request *next; batch != NULL; batch = next) {
        next = batch->batch;
        if (wait_one(batch, &requests[batch->index], MPI_STATUS_IGNORE) != MPI_SUCCESS) {
            result = MPI_ERR_IN_STATUS;
        }
    }
    const int others = PMPI_Waitall(count, requests, statuses);
    return others != MPI_SUCCESS ? others : result;
}

/* Whether MPI has completed all of the library's requests; sets their statuses. */
static bool have_completed(weiri_mpi_request *batch)
{
    int done = 1;
    for (; batch != NULL && done; batch = batch->batch) {
        batch->status.MPI_ERROR = MPI_SUCCESS;
        if (PMPI_Request_get_status(batch->handle, &done, &batch->status) != MPI_SUCCESS) {
            return true; /* the test reports the error */
        }
    }
    return done;
}

int MPI_Testall(int count, MPI_Request requests[], int *flag, MPI_Status statuses[])
{
    weiri_mpi_request *batch = find_all(count, requests);
    if (batch == NULL) {
        return PMPI_Testall(count, requests, flag, statuses);
    }
    const bool ignored = statuses == MPI_STATUSES_IGNORE;
    if (ignored && !have_completed(batch)) {
        *flag = 0;
        idle_all(batch);
        return MPI_SUCCESS;
    }
    const int result = PMPI_Testall(count, requests, flag, statuses);
    if (result == MPI_SUCCESS && !*flag) {
        idle_all(batch);
        return result;
    }
    return settle_all(batch, requests, result, ignored ? NULL : statuses);
}

/* ---- any request ----------------------------------------------------------------------------------------- */

/* Settles the request of the index, and the call did not complete the others. */
static int settle_one(weiri_mpi_request *batch, MPI_Request *requests, int index, int result, const MPI_Status *status)
{
    for (weiri_mpi_request *next; batch != NULL; batch = next) {
        next = batch->batch;
        if (batch->index == index) {
            result = weiri_mpi_request_settle(batch, requests[index], result, status);
        } else {
            weiri_mpi_request_idle(batch);
        }
    }
    return result;
}

int MPI_Waitany(int count, MPI_Request requests[], int *index, MPI_Status *status)
{
    MPI_Status own;
    weiri_mpi_request *batch = find_all(count, requests);
    if (batch == NULL) {
        return PMPI_Waitany(count, requests, index, status);
    }
    status = status != MPI_STATUS_IGNORE ? status : &own;
    const int result = PMPI_Waitany(count, requests, index, status);
    return settle_one(batch, requests, *index, result, status);
}

int MPI_Testany(int count, MPI_Request requests[], int *index, int *flag, MPI_Status *status)
{
    MPI_Status own;
    weiri_mpi_request *batch = find_all(count, requests);
    if (batch == NULL) {
        return PMPI_Testany(count, requests, index, flag, status);
    }
    status = status != MPI_STATUS_IGNORE ? status : &own;
    const int result = PMPI_Testany(count, requests, index, flag, status);
    if (result == MPI_SUCCESS && !*flag) {
        idle_all(batch);
        return result;
    }
    return settle_one(batch, requests, *index, result, status);
}

/* ---- some requests --------------------------------------------------------------------------------------- */

/* Settles the requests of the indices. MPI gives them in the order of the handles as a rule, so the search for one
 * begins behind the one before. */
static int settle_some(weiri_mpi_request *batch, MPI_Request *requests, int completed, const int *indices, int result,
                       MPI_Status *statuses)
{
    weiri_mpi_request **at = &batch;
    for (int k = 0; k < completed; k++) {
        for (int rounds = 0; rounds < 2 && (*at == NULL || (*at)->index != indices[k]);) {
            at = *at == NULL ? &batch : &(*at)->batch;
            rounds += *at == NULL;
        }
        weiri_mpi_request *found = *at;
        if (found == NULL || found->index != indices[k]) {
            continue; /* a request of MPI alone */
        }
        *at = found->batch;
        const int before = result == MPI_ERR_IN_STATUS ? statuses[k].MPI_ERROR : result;
        const int after = weiri_mpi_request_settle(found, requests[indices[k]], before, &statuses[k]);
        if (before == MPI_SUCCESS && after != MPI_SUCCESS) {
            statuses[k].MPI_ERROR = after;
            result = MPI_ERR_IN_STATUS;
        }
    }
    idle_all(batch);
    return result;
}

/* Without memory for statuses: completes one request at most, which both calls may do. */
static int some_as_any(bool waits, int count, MPI_Request *requests, int *completed, int *indices)
{
    int found = 1;
    const int result = waits ? MPI_Waitany(count, requests, indices, MPI_STATUS_IGNORE)
                             : MPI_Testany(count, requests, indices, &found, MPI_STATUS_IGNORE);
    *completed = !found ? 0 : indices[0] == MPI_UNDEFINED ? MPI_UNDEFINED : 1;
    return result;
}

typedef int (*some_function)(int, MPI_Request *, int *, int *, MPI_Status *);

static int some(some_function function, int count, MPI_Request *requests, int *completed, int *indices,
                MPI_Status *statuses)
{
    weiri_mpi_request *batch = find_all(count, requests);
    if (batch == NULL) {
        return function(count, requests, completed, indices, statuses);
    }
    MPI_Status *own = NULL;
    if (statuses == MPI_STATUSES_IGNORE) {
        own = weiri_mpi_alloc((size_t)count, sizeof *own);
        if (own == NULL) {
            idle_all(batch);
            return some_as_any(function == PMPI_Waitsome, count, requests, completed, indices);
        }
        statuses = own;
    }
    for (int i = 0; i < count; i++) {
        statuses[i].MPI_ERROR = MPI_SUCCESS;
    }
    int result = function(count, requests, completed, indices, statuses);
    result = settle_some(batch, requests, *completed, indices, result, statuses);
    weiri_mpi_free(own);
    return result;
}

int MPI_Waitsome(int incount, MPI_Request requests[], int *outcount, int indices[], MPI_Status statuses[])
{
    return some(PMPI_Waitsome, incount, requests, outcount, indices, statuses);
}

int MPI_Testsome(int incount, MPI_Request requests[], int *outcount, int indices[], MPI_Status statuses[])
{
    return some(PMPI_Testsome, incount, requests, outcount, indices, statuses);
}
