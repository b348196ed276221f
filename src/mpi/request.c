/* request.c - the table of requests, and those that the program has freed before their completion. One mutex guards
 * both; it is never held in a call of MPI. */
#include "src/mpi/request.h"

#include <pthread.h>

#include "src/mpi/alloc.h"

#define BUCKETS 1024u

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static weiri_mpi_request *table[BUCKETS];
static weiri_mpi_request *abandoned;
static uint64_t total; /* in the table or abandoned */

bool weiri_mpi_request_any(void) { return __atomic_load_n(&total, __ATOMIC_ACQUIRE) != 0; }

static weiri_mpi_request **bucket_of(MPI_Request handle)
{
    return &table[((uintptr_t)handle >> 4) * 2654435761u / 64 % BUCKETS];
}

/* ---- create and destroy ---------------------------------------------------------------------------------- */

weiri_mpi_request *weiri_mpi_request_create(const weiri_mpi_message *message, bool receives, bool persistent)
{
    weiri_mpi_request *request = weiri_mpi_alloc(1, sizeof *request);
    if (request == NULL) {
        weiri_mpi_explain(WEIRI_MPI_NO_MEMORY, "a request");
        return NULL;
    }
    request->message = *message;
    request->receives = receives;
    request->persistent = persistent;
    request->active = !persistent;
    /* The program may free its datatype before the data is packed or unpacked. */
    if ((receives || persistent) && !weiri_mpi_data_keep(&request->message.data)) {
        weiri_mpi_free(request);
        return NULL;
    }
    return request;
}

void weiri_mpi_request_destroy(weiri_mpi_request *request)
{
    weiri_mpi_message_end(&request->message);
    weiri_mpi_free(request);
}

/* ---- table ----------------------------------------------------------------------------------------------- */

/* Takes the request off its list. The caller holds the mutex. */
static void unlink_request(weiri_mpi_request **list, const weiri_mpi_request *request)
{
    while (*list != request) {
        list = &(*list)->next;
    }
    *list = request->next;
}

/* The newest request of the handle. The caller holds the mutex. */
static weiri_mpi_request *lookup(MPI_Request handle)
{
    weiri_mpi_request *request = *bucket_of(handle);
    while (request != NULL && request->handle != handle) {
        request = request->next;
    }
    return request;
}

void weiri_mpi_request_add(weiri_mpi_request *request, MPI_Request handle)
{
    request->handle = handle;
    (void)pthread_mutex_lock(&mutex);
    /* A request of this handle that no call has was completed by a call that the library does not see. */
    weiri_mpi_request *old = lookup(handle);
    if (old != NULL && !old->busy) {
        unlink_request(bucket_of(handle), old);
    } else {
        old = NULL;
        (void)__atomic_add_fetch(&total, 1, __ATOMIC_RELEASE);
    }
    weiri_mpi_request **bucket = bucket_of(handle);
    request->next = *bucket;
    *bucket = request;
    (void)pthread_mutex_unlock(&mutex);
    if (old != NULL) {
        weiri_mpi_request_destroy(old);
    }
}

weiri_mpi_request *weiri_mpi_request_find(MPI_Request handle)
{
    if (handle == MPI_REQUEST_NULL) {
        return NULL;
    }
    (void)pthread_mutex_lock(&mutex);
    weiri_mpi_request *request = lookup(handle);
    if (request != NULL && request->busy) {
        request = NULL; /* a program error: two calls, or two elements of an array, have one request */
    }
    if (request != NULL) {
        request->busy = true;
        request->batch = NULL;
    }
    (void)pthread_mutex_unlock(&mutex);
    return request;
}

void weiri_mpi_request_idle(weiri_mpi_request *request)
{
    (void)pthread_mutex_lock(&mutex);
    request->busy = false;
    (void)pthread_mutex_unlock(&mutex);
}

static void remove_request(weiri_mpi_request *request)
{
    (void)pthread_mutex_lock(&mutex);
    unlink_request(bucket_of(request->handle), request);
    (void)__atomic_sub_fetch(&total, 1, __ATOMIC_RELEASE);
    (void)pthread_mutex_unlock(&mutex);
    weiri_mpi_request_destroy(request);
}

int weiri_mpi_request_settle(weiri_mpi_request *request, MPI_Request now, int error, const MPI_Status *status)
{
    const bool completed = request->persistent ? error == MPI_SUCCESS : now == MPI_REQUEST_NULL;
    if (!completed) {
        weiri_mpi_request_idle(request);
        return error;
    }
    if (error == MPI_SUCCESS && request->receives && request->active && !request->delivered) {
        error = weiri_mpi_message_deliver(&request->message, status, MPI_COMM_WORLD);
    }
    if (!request->persistent) {
        remove_request(request);
        return error;
    }
    request->active = false;
    request->delivered = false;
    weiri_mpi_request_idle(request);
    return error;
}

/* ---- abandoned requests ---------------------------------------------------------------------------------- */

void weiri_mpi_request_abandon(weiri_mpi_request *request)
{
    (void)pthread_mutex_lock(&mutex);
    unlink_request(bucket_of(request->handle), request);
    request->next = abandoned;
    abandoned = request;
    (void)pthread_mutex_unlock(&mutex);
}

/* Whether MPI has completed it; MPI's own request is freed then. */
static bool has_ended(weiri_mpi_request *request)
{
    int done = 1;
    MPI_Status status;
    if (request->active) {
        const int error = PMPI_Test(&request->handle, &done, &status);
        if (error == MPI_SUCCESS && done && request->receives && !request->delivered) {
            (void)weiri_mpi_message_deliver(&request->message, &status, MPI_COMM_WORLD);
        }
        done = error != MPI_SUCCESS || done;
    }
    if (done && request->handle != MPI_REQUEST_NULL) {
        (void)PMPI_Request_free(&request->handle);
    }
    return done;
}

void weiri_mpi_request_poll(void)
{
    (void)pthread_mutex_lock(&mutex);
    weiri_mpi_request *list = abandoned;
    abandoned = NULL;
    (void)pthread_mutex_unlock(&mutex);
    while (list != NULL) {
        weiri_mpi_request *request = list;
        list = request->next;
        const bool ended = has_ended(request);
        (void)pthread_mutex_lock(&mutex);
        if (ended) {
            (void)__atomic_sub_fetch(&total, 1, __ATOMIC_RELEASE);
        } else {
            request->next = abandoned;
            abandoned = request;
        }
        (void)pthread_mutex_unlock(&mutex);
        if (ended) {
            weiri_mpi_request_destroy(request);
        }
    }
}

/* ---- end ------------------------------------------------------------------------------------------------- */

void weiri_mpi_request_stop(void)
{
    weiri_mpi_request_poll();
    for (weiri_mpi_request *request = abandoned; request != NULL; request = request->next) {
        (void)PMPI_Request_free(&request->handle);
    }
}

/* The stages and the datatypes are freed with all others. */
static void free_list(weiri_mpi_request *list)
{
    while (list != NULL) {
        weiri_mpi_request *next = list->next;
        weiri_mpi_free(list);
        list = next;
    }
}

void weiri_mpi_request_end(void)
{
    for (uint32_t i = 0; i < BUCKETS; i++) {
        free_list(table[i]);
        table[i] = NULL;
    }
    free_list(abandoned);
    abandoned = NULL;
    __atomic_store_n(&total, 0, __ATOMIC_RELEASE);
}
