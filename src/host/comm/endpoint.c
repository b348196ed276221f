/* endpoint.c - see endpoint.h.
 *
 * A rank that takes a queue opens its end, sends the address to the peer, and waits for the address of the peer's end.
 * The message is the same in both directions: it is a question to a rank that has not opened its end, and an answer to
 * a rank that has. If both ranks take the queue at the same time, the two questions answer each other.
 *
 * A rank that is asked may never take the queue, for example because it only waits for signals. So the endpoint thread
 * of the communicator opens the end there, and a thread that takes the queue later finds it joined. The service thread
 * cannot do that: opening a queue may block, and the service thread runs the heartbeats. Over ofi, and for queues that
 * kernels post to, opening allocates pinned or device memory. A GPU's driver may delay that while kernels run; ranks
 * that make all their channels before they launch kernels do not meet the delay.
 *
 * The communicator's mutex guards everything below. No thread holds it while it opens or joins a queue; the queue is
 * marked busy meanwhile. */
#include "src/host/comm/endpoint.h"

#include <stdio.h>
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/clock.h"
#include "src/host/base/error.h"
#include "src/host/base/log.h"
#include "src/host/boot/boot.h"
#include "src/host/comm/comm.h"
#include "src/host/comm/domain.h"
#include "src/host/comm/fd_pass.h"
#include "src/host/comm/semaphore.h"

#define TEXT_BYTES 224 /* most of the cause of a refusal */
#define DESTROYED "its semaphore was destroyed"
#define SLICE_MS 100  /* how long a waiting thread may miss a kernel's error */
#define IDLE_MS 60000 /* how long the endpoint thread sleeps at a time */

struct weiri_endpoint_queue {
    weir_connection *connection; /* outlives it */
    uint64_t key;
    uint64_t peer_key;
    weiri_queue *queue; /* NULL before it is opened */
    bool joined;
    bool meets;          /* a thread of the caller opens or joins the queue, and waits for the peer */
    bool busy;           /* a thread opens or joins it */
    bool wanted;         /* the peer has asked, and the endpoint thread is to answer */
    weir_status refused; /* by the peer, or WEIR_OK */
    char refusal[TEXT_BYTES];
    uint8_t address[WEIRI_ADDRESS_MAX]; /* of the peer's end */
    uint16_t address_bytes;             /* 0: it is not known */
    weiri_endpoint_queue *next;         /* of the connection */
    weiri_endpoint_queue *next_wanted;
};

struct weiri_endpoints {
    pthread_t thread;
    pthread_cond_t asked;
    bool quit;
    weiri_endpoint_queue *wanted;
};

static const weiri_queue_ops *ops_of(const weiri_endpoint_queue *q) { return q->connection->transport->queue; }

/* ---- the list of a connection; with the mutex ----------------------------------------------------------- */

static weiri_endpoint_queue *find(const weir_connection *connection, uint64_t key)
{
    weiri_endpoint_queue *q = connection->queues;
    while (q != NULL && q->key != key) {
        q = q->next;
    }
    return q;
}

static weiri_endpoint_queue *find_or_add(weir_connection *connection, uint64_t key, uint64_t peer_key)
{
    weiri_endpoint_queue *q = find(connection, key);
    if (q == NULL) {
        q = (weiri_endpoint_queue *)weiri_alloc(1, sizeof *q);
        if (q == NULL) {
            (void)weiri_fail_nomem("queue");
            return NULL;
        }
        q->connection = connection;
        q->key = key;
        q->next = connection->queues;
        connection->queues = q;
    }
    q->peer_key = peer_key;
    return q;
}

static void unlist(weir_connection *connection, weiri_endpoint_queue *gone)
{
    weiri_endpoint_queue **link = &connection->queues;
    while (*link != gone) {
        link = &(*link)->next;
    }
    *link = gone->next;
    if (gone->wanted) {
        link = &connection->comm->endpoints->wanted;
        while (*link != gone) {
            link = &(*link)->next_wanted;
        }
        *link = gone->next_wanted;
    }
}

uint32_t weiri_endpoint_queues(const weir_connection *connection)
{
    uint32_t count = 0;
    pthread_mutex_lock(&connection->comm->mutex);
    for (const weiri_endpoint_queue *q = connection->queues; q != NULL; q = q->next) {
        count += q->queue != NULL;
    }
    pthread_mutex_unlock(&connection->comm->mutex);
    return count;
}

/* ---- opening and joining -------------------------------------------------------------------------------- */

/* The next two functions are called with the mutex held. They release it while they work, and mark the queue busy. */

static void begin_work(weiri_endpoint_queue *q)
{
    q->busy = true;
    pthread_mutex_unlock(&q->connection->comm->mutex);
}

static void end_work(weiri_endpoint_queue *q)
{
    pthread_mutex_lock(&q->connection->comm->mutex);
    q->busy = false;
    pthread_cond_broadcast(&q->connection->comm->changed);
}

/* Opens the queue. The service thread polls it from here on if its transport asks for that. */
static weir_status open_locked(weiri_endpoint_queue *q)
{
    weiri_queue *made = NULL;
    begin_work(q);
    weir_status status = weiri_transport_fault(q->connection->transport, "open queue");
    if (status == WEIR_OK) {
        status = ops_of(q)->queue_open(q->connection->domain, &made);
    }
    if (status == WEIR_OK) {
        status = weiri_passive_add(q->connection->comm, made);
    }
    if (status != WEIR_OK) {
        ops_of(q)->queue_close(made);
        made = NULL;
    }
    end_work(q);
    q->queue = made;
    return status;
}

/* Joins the open queue to the peer's, whose address is known. */
static weir_status join_locked(weiri_endpoint_queue *q)
{
    uint8_t address[WEIRI_ADDRESS_MAX];
    const uint16_t bytes = q->address_bytes;
    memcpy(address, q->address, bytes);
    begin_work(q);
    weir_status status = weiri_transport_fault(q->connection->transport, "connect queue");
    if (status == WEIR_OK) {
        status = ops_of(q)->queue_connect(q->queue, address, bytes);
    }
    end_work(q);
    q->joined = status == WEIR_OK;
    return status;
}

/* ---- messages ------------------------------------------------------------------------------------------- */

/* Sends the address of this rank's end. */
static weir_status send_address(const weiri_endpoint_queue *q)
{
    const weir_comm *comm = q->connection->comm;
    uint8_t message[WEIRI_ADDRESS_MAX + 32];
    weiri_writer w = weiri_writer_init(message, sizeof message);
    weiri_write_u8(&w, WEIRI_PORT_QUEUE);
    weiri_write_u64(&w, q->peer_key);
    weiri_write_u64(&w, q->key);
    weiri_write_u16(&w, (uint16_t)q->queue->address_bytes);
    weiri_write_bytes(&w, q->queue->address, q->queue->address_bytes);
    return weiri_bootstrap_post(comm->bootstrap, q->connection->peer, comm->port, message, w.size);
}

/* A peer that is gone needs no answer. */
static void send_refusal(const weir_comm *comm, uint32_t peer, uint64_t peer_key, weir_status status, const char *text)
{
    uint8_t message[TEXT_BYTES + 32];
    char cut[TEXT_BYTES];
    weiri_writer w = weiri_writer_init(message, sizeof message);
    snprintf(cut, sizeof cut, "%s", text);
    weiri_write_u8(&w, WEIRI_PORT_QUEUE_REFUSED);
    weiri_write_u64(&w, peer_key);
    weiri_write_u32(&w, (uint32_t)status);
    weiri_write_string(&w, cut);
    (void)weiri_bootstrap_post(comm->bootstrap, peer, comm->port, message, w.size);
}

/* ---- the endpoint thread -------------------------------------------------------------------------------- */

/* Answers the peer's question. Mutex held. */
static void answer_locked(weiri_endpoint_queue *q)
{
    const weir_comm *comm = q->connection->comm;
    weir_status status = q->queue == NULL ? open_locked(q) : WEIR_OK;
    if (status == WEIR_OK) {
        status = join_locked(q);
    }
    if (status == WEIR_OK) {
        status = send_address(q);
    }
    if (status != WEIR_OK) {
        q->address_bytes = 0; /* a second question is answered anew */
        send_refusal(comm, q->connection->peer, q->peer_key, status, weir_last_error());
    }
}

static void *answer_all(void *context)
{
    weir_comm *comm = (weir_comm *)context;
    struct weiri_endpoints *endpoints = comm->endpoints;
    pthread_mutex_lock(&comm->mutex);
    while (!endpoints->quit) {
        weiri_endpoint_queue *q = endpoints->wanted;
        if (q == NULL) {
            (void)weiri_cond_wait(&endpoints->asked, &comm->mutex, weiri_deadline(IDLE_MS));
            continue;
        }
        endpoints->wanted = q->next_wanted;
        q->wanted = false;
        /* A thread that takes the queue answers by itself. */
        if (!q->meets && !q->joined) {
            answer_locked(q);
        }
    }
    pthread_mutex_unlock(&comm->mutex);
    return NULL;
}

/* Starts the thread at the first question. Mutex held. */
static weir_status start_locked(weir_comm *comm)
{
    if (comm->endpoints != NULL) {
        return WEIR_OK;
    }
    struct weiri_endpoints *endpoints = (struct weiri_endpoints *)weiri_alloc(1, sizeof *endpoints);
    if (endpoints == NULL) {
        return weiri_fail_nomem("queue");
    }
    int error = weiri_cond_init(&endpoints->asked);
    if (error == 0) {
        comm->endpoints = endpoints;
        error = weiri_thread_create(&endpoints->thread, "weir-endpoint", answer_all, comm);
        if (error != 0) {
            comm->endpoints = NULL;
            pthread_cond_destroy(&endpoints->asked);
        }
    }
    if (error != 0) {
        weiri_free(endpoints);
        return weiri_fail_errno(error, "queue: start the endpoint thread");
    }
    return WEIR_OK;
}

/* Passes the queue, whose peer's address is known, to the endpoint thread. Mutex held. */
static void want_locked(weiri_endpoint_queue *q)
{
    weir_comm *comm = q->connection->comm;
    if (q->wanted) {
        return;
    }
    weir_status status = start_locked(comm);
    if (status != WEIR_OK) {
        q->address_bytes = 0;
        send_refusal(comm, q->connection->peer, q->peer_key, status, weir_last_error());
        return;
    }
    q->wanted = true;
    q->next_wanted = comm->endpoints->wanted;
    comm->endpoints->wanted = q;
    pthread_cond_signal(&comm->endpoints->asked);
}

void weiri_endpoint_stop(weir_comm *comm)
{
    struct weiri_endpoints *endpoints = comm->endpoints;
    if (endpoints == NULL) {
        return;
    }
    pthread_mutex_lock(&comm->mutex);
    endpoints->quit = true;
    pthread_cond_signal(&endpoints->asked);
    pthread_mutex_unlock(&comm->mutex);
    (void)pthread_join(endpoints->thread, NULL);
    pthread_cond_destroy(&endpoints->asked);
    weiri_free(endpoints);
    comm->endpoints = NULL;
}

/* ---- what the peer sends; service thread, mutex held ---------------------------------------------------- */

/* Sends the address once more. If that fails, neither rank waits for the other. Mutex held. */
static void send_again(weiri_endpoint_queue *q)
{
    const weir_status status = send_address(q);
    if (status != WEIR_OK) {
        q->address_bytes = 0;
        q->refused = status;
        snprintf(q->refusal, sizeof q->refusal, "%s", weir_last_error());
        send_refusal(q->connection->comm, q->connection->peer, q->peer_key, status, q->refusal);
    }
}

static void take_address(weir_connection *connection, uint64_t key, uint64_t peer_key, const uint8_t *address,
                         uint16_t bytes)
{
    weir_comm *comm = connection->comm;
    weiri_endpoint_queue *q = NULL;
    if (connection->domain == NULL || connection->transport->queue->alone) {
        send_refusal(comm, connection->peer, peer_key, WEIR_ERR_MISMATCH, "its transport joins no queues");
        return;
    }
    q = find_or_add(connection, key, peer_key);
    if (q == NULL) {
        send_refusal(comm, connection->peer, peer_key, WEIR_ERR_NOMEM, weir_last_error());
        return;
    }
    if (q->joined || q->address_bytes != 0) {
        return; /* the other half of two questions that answer each other */
    }
    /* The peer could not answer this rank's question, and then asked by itself: it has dropped this rank's address. */
    const bool dropped = q->meets && q->refused != WEIR_OK;
    memcpy(q->address, address, bytes);
    q->address_bytes = bytes;
    q->refused = WEIR_OK;
    if (!q->meets) {
        want_locked(q);
    } else if (dropped) {
        send_again(q);
    }
    pthread_cond_broadcast(&comm->changed);
}

bool weiri_endpoint_message_locked(weir_comm *comm, uint32_t peer, uint8_t kind, weiri_reader *message)
{
    uint8_t address[WEIRI_ADDRESS_MAX];
    char text[TEXT_BYTES];
    const uint64_t key = weiri_read_u64(message);
    if (kind == WEIRI_PORT_QUEUE) {
        const uint64_t peer_key = weiri_read_u64(message);
        const uint16_t bytes = weiri_read_u16(message);
        weiri_read_bytes(message, address, bytes <= sizeof address ? bytes : 0);
        if (!weiri_reader_done(message) || bytes == 0) {
            return false;
        }
        weir_connection *connection = weiri_semaphore_connection_locked(comm, peer, key);
        if (connection != NULL) {
            take_address(connection, key, peer_key, address, bytes);
        } else {
            send_refusal(comm, peer, peer_key, WEIR_ERR_REMOTE, DESTROYED);
        }
        return true;
    }
    const weir_status status = (weir_status)(int32_t)weiri_read_u32(message);
    weiri_read_string(message, text, sizeof text);
    if (!weiri_reader_done(message) || status >= WEIR_OK || weir_status_text(status) == NULL) {
        return false;
    }
    weir_connection *connection = weiri_semaphore_connection_locked(comm, peer, key);
    weiri_endpoint_queue *q = connection != NULL ? find(connection, key) : NULL;
    if (q != NULL && !q->joined) {
        q->refused = status;
        snprintf(q->refusal, sizeof q->refusal, "%s", text);
        pthread_cond_broadcast(&comm->changed);
    }
    return true;
}

/* ---- taking --------------------------------------------------------------------------------------------- */

/* The error that ends a wait for the peer; WEIR_OK while the wait must go on. Mutex held. */
static weir_status cannot_wait(const weiri_endpoint_queue *q, uint64_t deadline, const char *call)
{
    const weir_comm *comm = q->connection->comm;
    const uint32_t peer = q->connection->peer;
    if (comm->failure.status != WEIR_OK) {
        return weiri_fail(comm->failure.status, "%s", comm->failure.text);
    }
    if (q->refused != WEIR_OK) {
        return weiri_fail(q->refused, "%s: rank %u: %s", call, peer, q->refusal);
    }
    if (comm->peers[peer].gone) {
        return weiri_fail(WEIR_ERR_REMOTE, "%s: %s", call, comm->peers[peer].gone_text);
    }
    return weiri_left_ms(deadline) != 0
               ? WEIR_OK
               : weiri_fail(WEIR_ERR_TIMEOUT, "%s: rank %u did not open its end of the queue", call, peer);
}

/* Waits until the endpoint thread, which may be opening or joining the queue, is done with it. Mutex held. */
static weir_status await_idle_locked(const weiri_endpoint_queue *q, uint64_t deadline, const char *call)
{
    weir_comm *comm = q->connection->comm;
    while (q->busy) {
        const uint64_t slice = weiri_deadline(SLICE_MS);
        if (comm->failure.status != WEIR_OK) {
            return weiri_fail(comm->failure.status, "%s", comm->failure.text);
        }
        if (weiri_left_ms(deadline) == 0) {
            return weiri_fail(WEIR_ERR_TIMEOUT, "%s: this rank's end of the queue to rank %u is still being opened",
                              call, q->connection->peer);
        }
        (void)weiri_cond_wait(&comm->changed, &comm->mutex, slice < deadline ? slice : deadline);
    }
    return WEIR_OK;
}

/* Waits for the peer's address. Mutex held. */
static weir_status await_locked(const weiri_endpoint_queue *q, uint64_t deadline, const char *call)
{
    weir_comm *comm = q->connection->comm;
    weir_status status = WEIR_OK;
    while (status == WEIR_OK && q->address_bytes == 0) {
        const uint64_t slice = weiri_deadline(SLICE_MS);
        (void)weiri_cond_wait(&comm->changed, &comm->mutex, slice < deadline ? slice : deadline);
        pthread_mutex_unlock(&comm->mutex);
        status = weiri_comm_error(comm); /* an error of a kernel, too */
        pthread_mutex_lock(&comm->mutex);
        if (status == WEIR_OK && q->address_bytes == 0) {
            status = cannot_wait(q, deadline, call);
        }
    }
    return status;
}

/* Opens the queue, unless that was done, and joins it. Mutex held. */
static weir_status meet_locked(weiri_endpoint_queue *q, const char *call)
{
    const weir_connection *connection = q->connection;
    const uint64_t deadline = weiri_deadline(connection->comm->timeout_ms);
    weir_status status = await_idle_locked(q, deadline, call);
    if (status != WEIR_OK || q->joined) {
        return status;
    }
    if (q->queue == NULL) {
        status = open_locked(q);
    }
    if (status != WEIR_OK || ops_of(q)->alone) {
        return status == WEIR_OK ? join_locked(q) : status;
    }
    if (connection->peer == connection->comm->rank) {
        q->address_bytes = (uint16_t)q->queue->address_bytes;
        memcpy(q->address, q->queue->address, q->address_bytes);
    } else {
        q->refused = WEIR_OK;
        status = send_address(q);
    }
    if (status == WEIR_OK) {
        status = await_locked(q, deadline, call);
    }
    return status == WEIR_OK ? join_locked(q) : status;
}

weir_status weiri_endpoint_take(weir_connection *connection, uint64_t key, uint64_t peer_key, const char *call,
                                weiri_queue **out)
{
    weir_comm *comm = connection->comm;
    weir_status status = WEIR_ERR_NOMEM;
    pthread_mutex_lock(&comm->mutex);
    weiri_endpoint_queue *q = find_or_add(connection, key, peer_key);
    if (q != NULL) {
        q->meets = true;
        status = meet_locked(q, call);
        q->meets = false;
        if (status == WEIR_OK) {
            *out = q->queue;
        } else if (q->address_bytes != 0 && !q->joined) {
            want_locked(q); /* the peer still waits for an answer */
        }
    }
    pthread_mutex_unlock(&comm->mutex);
    return status;
}

/* The endpoint thread may be in a driver that does not return. When the driver returns, the thread uses the queue, the
 * connection and the communicator, so a reference that is never dropped keeps them. Releases the mutex. */
static void leave_to_thread(weiri_endpoint_queue *q)
{
    weir_comm *comm = q->connection->comm;
    weiri_connection_get(q->connection);
    pthread_mutex_unlock(&comm->mutex);
    weiri_log(
        WEIR_LOG_ERROR,
        "communicator: rank %u: the queue to rank %u is still being opened after %u ms; it is not closed, and its "
        "memory, the connection and the communicator are never freed",
        comm->rank, q->connection->peer, comm->timeout_ms);
}

void weiri_endpoint_close(weir_connection *connection, uint64_t key)
{
    weir_comm *comm = connection->comm;
    const uint64_t deadline = weiri_deadline(comm->timeout_ms);
    pthread_mutex_lock(&comm->mutex);
    weiri_endpoint_queue *q = find(connection, key);
    while (q != NULL && q->busy && weiri_left_ms(deadline) != 0) {
        (void)weiri_cond_wait(&comm->changed, &comm->mutex, deadline);
    }
    if (q != NULL && q->busy) {
        leave_to_thread(q);
        return;
    }
    if (q != NULL) {
        unlist(connection, q);
        if (q->address_bytes != 0 && !q->joined) {
            send_refusal(comm, connection->peer, q->peer_key, WEIR_ERR_REMOTE, DESTROYED);
        }
    }
    pthread_mutex_unlock(&comm->mutex);
    if (q != NULL && q->queue != NULL) {
        weiri_passive_remove(comm, q->queue);
        ops_of(q)->queue_close(q->queue);
    }
    weiri_free(q);
}
