/* exchange.c - operations between two ranks, and their futures: the message of one rank meets the call of the other. */
#include "src/host/comm/exchange.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/host/base/alloc.h"
#include "src/host/base/clock.h"
#include "src/host/base/error.h"
#include "src/host/base/log.h"
#include "src/host/boot/boot.h"
#include "src/host/comm/comm.h"
#include "src/host/comm/endpoint.h"
#include "src/host/comm/fd_pass.h"
#include "src/host/comm/semaphore.h"

#define OP_HEADER_BYTES (1 + 1 + 8 + 2 + 2)
#define OP_MESSAGE_MAX (OP_HEADER_BYTES + WEIRI_PAYLOAD_MAX + WEIRI_HANDLES_MAX * (2 + WEIRI_HANDLE_BYTES))
#define CAUSE_BYTES 224
#define NEWS_MS 1000      /* longest wait for the news that explains a refused message */
#define SLICE_MS 100      /* how long a waiting thread may miss a kernel's error */
#define ASK_NS 200000000u /* how long a rank waits for a peer's operation before it asks the peer */

typedef struct arrival {
    struct arrival *next;
    size_t bytes;
    uint8_t data[];
} arrival;

struct weiri_sequence {
    weiri_sequence *next;
    uint32_t peer;
    uint64_t tag;
    uint64_t expected; /* operations that this side has begun to expect */
    bool poisoned;     /* one of them timed out */
    arrival *arrivals;
    weir_future *futures;
};

#define COLLECTIVE_CALL \
    "weir_collective_create, weir_collective_register or a call that grows the staging or maps buffers"
#define TRANSFER_CALL "weir_exchange, weir_send or weir_recv, by copies or recorded,"
#define EXCHANGE_CALL "weir_exchange, weir_send or weir_recv"
static const char *const sent_by[] = { "",
                                       "weir_memory_send",
                                       "weir_connection_create",
                                       "weir_semaphore_create",
                                       COLLECTIVE_CALL,
                                       "weir_memory_channel_connect",
                                       "weir_port_channel_connect",
                                       TRANSFER_CALL,
                                       EXCHANGE_CALL };
static const char *const expected_by[] = { "",
                                           "weir_memory_recv",
                                           "weir_connection_create",
                                           "weir_semaphore_create",
                                           COLLECTIVE_CALL,
                                           "weir_memory_channel_connect",
                                           "weir_port_channel_connect",
                                           TRANSFER_CALL,
                                           EXCHANGE_CALL,
                                           "weir_memory_import" };

/* The operation that an error concerns: one of the user's, or a part of a collective's or a halo's call. */
static void describe_place(weiri_op op, uint64_t number, uint64_t tag, char text[96])
{
    if (op == WEIRI_OP_TRANSFERS || op == WEIRI_OP_SLOTS || tag == WEIRI_TAG_COLLECTIVE || tag == WEIRI_TAG_RAILS) {
        snprintf(text, 96, "for a collective");
    } else if (tag == WEIRI_TAG_HALO) {
        snprintf(text, 96, "for a halo");
    } else {
        snprintf(text, 96, "operation %llu with tag %llu", (unsigned long long)number, (unsigned long long)tag);
    }
}

/* ---- sequences -------------------------------------------------------------------------------------- */

static weiri_sequence *find_sequence(weir_comm *comm, uint32_t peer, uint64_t tag)
{
    for (weiri_sequence *sequence = comm->exchange.sequences; sequence != NULL; sequence = sequence->next) {
        if (sequence->peer == peer && sequence->tag == tag) {
            return sequence;
        }
    }
    weiri_sequence *sequence = (weiri_sequence *)weiri_alloc(1, sizeof *sequence);
    if (sequence != NULL) {
        sequence->peer = peer;
        sequence->tag = tag;
        sequence->next = comm->exchange.sequences;
        comm->exchange.sequences = sequence;
    }
    return sequence;
}

static void close_fds(weir_future *future)
{
    for (uint32_t i = 0; i < WEIRI_HANDLES_MAX; i++) {
        if (future->fds[i] >= 0) {
            close(future->fds[i]);
            future->fds[i] = -1;
        }
    }
}

static void set_ready(weir_future *future, weir_status status, const char *text)
{
    if (future->state >= WEIRI_FUTURE_READY) {
        return;
    }
    weiri_fd_pass_forget_locked(future);
    future->state = WEIRI_FUTURE_READY;
    future->status = status;
    snprintf(future->text, sizeof future->text, "%s", text);
    pthread_cond_broadcast(&future->comm->changed);
}

void weiri_exchange_resolved_locked(weir_future *future, uint32_t index, weir_status status, const char *text, int fd)
{
    if (status != WEIR_OK) {
        char full[256];
        snprintf(full, sizeof full, "memory of rank %u: %s", future->handles[index].rank, text);
        set_ready(future, status, full);
        return;
    }
    future->fds[index] = fd;
    if (--future->unresolved == 0) {
        set_ready(future, WEIR_OK, "");
    }
}

/* Asks the owners of the future's handles; it is ready when all have answered. */
static void resolve(weir_future *future)
{
    future->state = WEIRI_FUTURE_RESOLVING;
    future->unresolved = future->handle_count;
    if (future->unresolved == 0) {
        set_ready(future, WEIR_OK, "");
        return;
    }
    for (uint32_t i = 0; i < future->handle_count && future->state == WEIRI_FUTURE_RESOLVING; i++) {
        weir_status status = weiri_fd_pass_request_locked(future, i);
        if (status != WEIR_OK) {
            set_ready(future, status, weir_last_error());
        }
    }
}

/* Gives an operation's message to the future that expected it. */
static void match(weir_future *future, const arrival *message)
{
    char text[256];
    char place[96];
    weiri_reader r = weiri_reader_init(message->data, message->bytes);
    uint8_t op = weiri_read_u8(&r);
    future->payload_bytes = weiri_read_u16(&r);
    uint16_t handles = weiri_read_u16(&r);
    if (op < WEIRI_OP_MEMORY || op >= WEIRI_OP_IMPORT || future->payload_bytes > WEIRI_PAYLOAD_MAX ||
        handles > WEIRI_HANDLES_MAX) {
        set_ready(future, WEIR_ERR_CORRUPT, "communicator: malformed operation");
        return;
    }
    if (op != (uint8_t)future->op) {
        describe_place(future->op, future->number, future->tag, place);
        snprintf(text, sizeof text, "%s: rank %u called %s, rank %u called %s", place, future->comm->rank,
                 expected_by[future->op], future->peer, sent_by[op]);
        set_ready(future, WEIR_ERR_MISMATCH, text);
        return;
    }
    weiri_read_bytes(&r, future->payload, future->payload_bytes);
    for (uint32_t i = 0; i < handles; i++) {
        uint16_t bytes = weiri_read_u16(&r);
        if (bytes > r.size - r.at) {
            r.failed = true;
            break;
        }
        weir_status status = weiri_handle_read(future->comm, r.data + r.at, bytes, &future->handles[i]);
        if (status != WEIR_OK) {
            set_ready(future, status, weir_last_error());
            return;
        }
        r.at += bytes;
    }
    if (!weiri_reader_done(&r)) {
        set_ready(future, WEIR_ERR_CORRUPT, "communicator: malformed operation");
        return;
    }
    future->handle_count = handles;
    resolve(future);
}

static void free_future(weir_future *future)
{
    close_fds(future);
    weiri_free(future);
}

/* Gives the first arrivals of a sequence to its first futures. */
static void advance(weiri_sequence *sequence)
{
    while (sequence->arrivals != NULL && sequence->futures != NULL) {
        arrival *message = sequence->arrivals;
        weir_future *future = sequence->futures;
        sequence->arrivals = message->next;
        sequence->futures = future->next;
        future->next = NULL;
        future->in_sequence = false;
        if (future->abandoned) {
            free_future(future);
        } else if (future->state == WEIRI_FUTURE_WAITING) {
            match(future, message);
        }
        weiri_free(message);
    }
}

/* ---- sending and expecting -------------------------------------------------------------------------- */

/* The bootstrap says that `peer` is gone. The service thread is about to tell the communicator, after all that the peer
 * had sent: its death, or the error because of which it left. This thread waits for that news, so that the communicator
 * has failed when the call fails. */
static weir_status report_gone(weir_comm *comm, uint32_t peer, const char *call)
{
    char text[256];
    snprintf(text, sizeof text, "%s", weir_last_error());
    const uint64_t deadline = weiri_deadline(NEWS_MS);
    pthread_mutex_lock(&comm->mutex);
    while (comm->failure.status == WEIR_OK && !comm->peers[peer].gone &&
           weiri_cond_wait(&comm->changed, &comm->mutex, deadline)) {
    }
    pthread_mutex_unlock(&comm->mutex);
    const weir_status known = weiri_comm_error(comm);
    return known != WEIR_OK ? known : weiri_fail(WEIR_ERR_REMOTE, "%s: %s", call, text);
}

weir_status weiri_exchange_send(weir_comm *comm, uint32_t peer, uint64_t tag, const weiri_op_message *message)
{
    uint8_t data[OP_MESSAGE_MAX];
    uint8_t handle[WEIRI_HANDLE_BYTES];
    weiri_writer w = weiri_writer_init(data, sizeof data);
    weiri_write_u8(&w, WEIRI_PORT_OP);
    weiri_write_u64(&w, tag);
    weiri_write_u8(&w, (uint8_t)message->op);
    weiri_write_u16(&w, (uint16_t)message->payload_bytes);
    weiri_write_u16(&w, (uint16_t)message->handle_count);
    weiri_write_bytes(&w, message->payload, message->payload_bytes);
    for (uint32_t i = 0; i < message->handle_count; i++) {
        size_t bytes = weiri_handle_write(message->handles[i], handle);
        weiri_write_u16(&w, (uint16_t)bytes);
        weiri_write_bytes(&w, handle, bytes);
    }
    if (w.failed) {
        return weiri_fail(WEIR_ERR_LIMIT, "%s: message of more than %zu bytes", sent_by[message->op], sizeof data);
    }
    const weir_status status = weiri_bootstrap_post(comm->bootstrap, peer, comm->port, data, w.size);
    return status == WEIR_ERR_REMOTE ? report_gone(comm, peer, sent_by[message->op]) : status;
}

static weir_future *new_future(weir_comm *comm, weiri_op op, uint32_t peer, uint64_t tag)
{
    weir_future *future = (weir_future *)weiri_alloc(1, sizeof *future);
    if (future == NULL) {
        return NULL;
    }
    future->comm = comm;
    future->op = op;
    future->peer = peer;
    future->tag = tag;
    future->made_ns = weiri_now_ns();
    for (uint32_t i = 0; i < WEIRI_HANDLES_MAX; i++) {
        future->fds[i] = -1;
    }
    weiri_comm_get(comm);
    return future;
}

weir_status weiri_exchange_expect(weir_comm *comm, uint32_t peer, uint64_t tag, weiri_op op,
                                  weir_status (*finish)(weir_future *), void (*discard)(void *), void *context,
                                  void *out, weir_future **result)
{
    weir_future *future = new_future(comm, op, peer, tag);
    if (future == NULL) {
        return weiri_fail_nomem(expected_by[op]);
    }
    weir_status status = WEIR_OK;
    pthread_mutex_lock(&comm->mutex);
    weiri_sequence *sequence = find_sequence(comm, peer, tag);
    if (sequence == NULL) {
        status = weiri_fail_nomem(expected_by[op]);
    } else if (comm->failure.status != WEIR_OK) {
        /* Checked before the peer, which may be gone because of this error. */
        status = weiri_fail(comm->failure.status, "%s", comm->failure.text);
    } else if (sequence->poisoned) {
        char place[96];
        describe_place(op, sequence->expected - 1, tag, place);
        status = weiri_fail(WEIR_ERR_TIMEOUT, "%s: %s, or one before it, with rank %u timed out", expected_by[op],
                            place, peer);
    } else if (comm->peers[peer].gone && sequence->arrivals == NULL) {
        status = weiri_fail(WEIR_ERR_REMOTE, "%s: %s", expected_by[op], comm->peers[peer].gone_text);
    }
    if (status == WEIR_OK) {
        future->finish = finish;
        future->discard = discard;
        future->context = context;
        future->out = out;
        future->number = sequence->expected++;
        future->in_sequence = true;
        weir_future **end = &sequence->futures;
        while (*end != NULL) {
            end = &(*end)->next;
        }
        *end = future;
        advance(sequence);
    }
    pthread_mutex_unlock(&comm->mutex);
    if (status != WEIR_OK) {
        weiri_free(future);
        weiri_comm_put(comm);
        return status;
    }
    *result = future;
    return WEIR_OK;
}

weir_status weiri_exchange_import(weir_comm *comm, const weiri_handle *handle, weir_status (*finish)(weir_future *),
                                  void *out, weir_future **result)
{
    weir_future *future = new_future(comm, WEIRI_OP_IMPORT, handle->rank, 0);
    if (future == NULL) {
        return weiri_fail_nomem(expected_by[WEIRI_OP_IMPORT]);
    }
    future->finish = finish;
    future->out = out;
    future->handles[0] = *handle;
    future->handle_count = 1;
    pthread_mutex_lock(&comm->mutex);
    resolve(future);
    pthread_mutex_unlock(&comm->mutex);
    *result = future;
    return WEIR_OK;
}

weir_status weiri_exchange_complete(weir_future *future)
{
    weir_status status = weir_future_wait(future, 0);
    weir_future_destroy(future);
    return status;
}

/* ---- arrivals --------------------------------------------------------------------------------------- */

static void store_arrival(weir_comm *comm, uint32_t peer, weiri_reader *r)
{
    uint64_t tag = weiri_read_u64(r);
    size_t bytes = r->size - r->at;
    if (r->failed) {
        char cause[64];
        snprintf(cause, sizeof cause, "malformed message of rank %u", peer);
        weiri_comm_break_locked(comm, WEIR_ERR_CORRUPT, cause);
        return;
    }
    weiri_sequence *sequence = find_sequence(comm, peer, tag);
    arrival *message = sequence == NULL ? NULL : (arrival *)weiri_alloc(1, sizeof *message + bytes);
    if (message == NULL) {
        weiri_comm_break_locked(comm, WEIR_ERR_NOMEM, "out of memory for a peer's message");
        return;
    }
    message->bytes = bytes;
    memcpy(message->data, r->data + r->at, bytes);
    arrival **end = &sequence->arrivals;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = message;
    advance(sequence);
}

/* The peer cannot answer any more. */
static void lose_peer(weir_comm *comm, uint32_t rank, bool died, const char *text)
{
    weiri_comm_peer *peer = &comm->peers[rank];
    peer->gone = true;
    snprintf(peer->gone_text, sizeof peer->gone_text, "%s", text);
    weiri_fd_pass_gone_locked(comm, rank);
    if (died) {
        weiri_comm_fail_locked(comm, WEIR_ERR_REMOTE, text);
    } else {
        weiri_exchange_fail_locked(comm, false, rank, WEIR_ERR_REMOTE, text);
        pthread_cond_broadcast(&comm->changed);
    }
}

/* A rank that learns of a loss by this message gets the same status as by the bootstrap's news of a death, since either
 * may come first. */
static uint8_t abort_kind(weir_status status)
{
    return status == WEIR_ERR_MISMATCH ? WEIRI_PORT_MISMATCH
           : status == WEIR_ERR_REMOTE ? WEIRI_PORT_LOSS
                                       : WEIRI_PORT_ABORT;
}

static void take_abort(weir_comm *comm, uint32_t peer, uint8_t kind, weiri_reader *r)
{
    const weir_status status = kind == WEIRI_PORT_MISMATCH ? WEIR_ERR_MISMATCH
                               : kind == WEIRI_PORT_LOSS   ? WEIR_ERR_REMOTE
                                                           : WEIR_ERR_ABORTED;
    char cause[CAUSE_BYTES];
    char text[CAUSE_BYTES + 32];
    weiri_read_string(r, cause, sizeof cause);
    bool fine = weiri_reader_done(r);
    snprintf(text, sizeof text, "communicator: rank %u: %s", peer, fine ? cause : "malformed abort");
    weiri_comm_fail_locked(comm, status, text);
}

static void take_message(void *context, uint32_t peer, const uint8_t *data, size_t bytes)
{
    weir_comm *comm = (weir_comm *)context;
    weiri_reader r = weiri_reader_init(data, bytes);
    uint8_t kind = weiri_read_u8(&r);
    pthread_mutex_lock(&comm->mutex);
    if (peer >= comm->size) {
        weiri_log(WEIR_LOG_WARN, "communicator: message of rank %u of %u, ignored", peer, comm->size);
    } else if (bytes == 0) {
        char text[96];
        snprintf(text, sizeof text, "communicator: rank %u has destroyed its communicator", peer);
        lose_peer(comm, peer, false, text);
    } else if (kind == WEIRI_PORT_WAITS) {
        comm->peers[peer].heard = true;
    } else if (kind == WEIRI_PORT_OP) {
        comm->peers[peer].heard = true;
        store_arrival(comm, peer, &r);
    } else if (kind == WEIRI_PORT_ABORT || kind == WEIRI_PORT_MISMATCH || kind == WEIRI_PORT_LOSS) {
        take_abort(comm, peer, kind, &r);
    } else if (kind == WEIRI_PORT_CHANNEL_FAILED) {
        if (!weiri_semaphore_reported_locked(comm, peer, &r)) {
            char cause[64];
            snprintf(cause, sizeof cause, "malformed message of rank %u", peer);
            weiri_comm_break_locked(comm, WEIR_ERR_CORRUPT, cause);
        }
    } else if (kind == WEIRI_PORT_QUEUE || kind == WEIRI_PORT_QUEUE_REFUSED) {
        if (!weiri_endpoint_message_locked(comm, peer, kind, &r)) {
            char cause[64];
            snprintf(cause, sizeof cause, "malformed message of rank %u", peer);
            weiri_comm_break_locked(comm, WEIR_ERR_CORRUPT, cause);
        }
    } else if (kind >= WEIRI_PORT_MEMORY_WANTED && kind <= WEIRI_PORT_FD_TAKEN) {
        weiri_fd_pass_message_locked(comm, peer, kind, &r);
    } else {
        weiri_log(WEIR_LOG_WARN, "communicator: unknown message %u of rank %u, ignored", kind, peer);
    }
    pthread_mutex_unlock(&comm->mutex);
}

void weiri_exchange_abort(weir_comm *comm, weir_status status, const char *cause)
{
    uint8_t message[CAUSE_BYTES + 8];
    char cut[CAUSE_BYTES];
    weiri_writer w = weiri_writer_init(message, sizeof message);
    snprintf(cut, sizeof cut, "%s", cause);
    weiri_write_u8(&w, abort_kind(status));
    weiri_write_string(&w, cut);
    for (uint32_t rank = 0; rank < comm->size; rank++) {
        if (rank != comm->rank) {
            /* A peer that is gone needs no news. */
            (void)weiri_bootstrap_post(comm->bootstrap, rank, comm->port, message, w.size);
        }
    }
}

void weiri_exchange_fail_locked(weir_comm *comm, bool all, uint32_t peer, weir_status status, const char *text)
{
    for (weiri_sequence *sequence = comm->exchange.sequences; sequence != NULL; sequence = sequence->next) {
        for (weir_future *future = sequence->futures; future != NULL; future = future->next) {
            if (all || future->peer == peer) {
                set_ready(future, status, text);
            }
        }
    }
    for (;;) {
        weir_future *future = weiri_fd_pass_find_locked(comm, all, peer);
        if (future == NULL) {
            return;
        }
        set_ready(future, status, text); /* this takes its requests off the list */
    }
}

static void take_gone(void *context, uint32_t rank, bool died, const char *text)
{
    weir_comm *comm = (weir_comm *)context;
    pthread_mutex_lock(&comm->mutex);
    if (rank < comm->size) {
        lose_peer(comm, rank, died, text);
    }
    pthread_mutex_unlock(&comm->mutex);
}

weir_status weiri_exchange_open(weir_comm *comm)
{
    const weiri_port_handler handler = { take_message, take_gone, comm };
    const weir_status status = weiri_bootstrap_open_port(comm->bootstrap, comm->port, &handler);
    comm->exchange.open = status == WEIR_OK;
    return status;
}

/* A rank that has asked this one for something may still wait for it. The empty message follows all earlier ones. */
static void report_end(const weir_comm *comm)
{
    for (uint32_t rank = 0; comm->peers != NULL && rank < comm->size; rank++) {
        if (rank != comm->rank && comm->peers[rank].heard) {
            (void)weiri_bootstrap_post(comm->bootstrap, rank, comm->port, NULL, 0);
        }
    }
}

void weiri_exchange_close(weir_comm *comm)
{
    pthread_mutex_lock(&comm->mutex);
    comm->exchange.open = false;
    pthread_mutex_unlock(&comm->mutex);
    weiri_bootstrap_close_port(comm->bootstrap, comm->port);
    report_end(comm);
}

void weiri_exchange_free(weir_comm *comm)
{
    while (comm->exchange.sequences != NULL) {
        weiri_sequence *sequence = comm->exchange.sequences;
        comm->exchange.sequences = sequence->next;
        while (sequence->arrivals != NULL) {
            arrival *message = sequence->arrivals;
            sequence->arrivals = message->next;
            weiri_free(message);
        }
        while (sequence->futures != NULL) {
            weir_future *future = sequence->futures;
            sequence->futures = future->next;
            free_future(future);
        }
        weiri_free(sequence);
    }
}

/* ---- futures ---------------------------------------------------------------------------------------- */

/* Ends a future with what set_ready left in it; the mutex is not held. */
static void finish_future(weir_future *future)
{
    if (future->status == WEIR_OK) {
        future->status = future->finish(future);
        if (future->status == WEIR_OK) {
            future->context = NULL;
        } else {
            snprintf(future->text, sizeof future->text, "%s", weir_last_error());
        }
    }
    close_fds(future);
    if (future->context != NULL) {
        future->discard(future->context);
        future->context = NULL;
    }
}

/* Asks the peer to report the end of its communicator, or that it has ended. Mutex held. */
static void ask(weir_future *future)
{
    const uint8_t kind = WEIRI_PORT_WAITS;
    const weir_comm *comm = future->comm;
    if (future->state == WEIRI_FUTURE_WAITING && !future->asked && future->peer != comm->rank &&
        weiri_now_ns() - future->made_ns > ASK_NS) {
        future->asked = weiri_bootstrap_post(comm->bootstrap, future->peer, comm->port, &kind, sizeof kind) == WEIR_OK;
    }
}

weir_status weir_future_test(weir_future *future)
{
    if (future == NULL) {
        return weiri_fail_null("weir_future_test", "future");
    }
    if (weiri_comm_forked(future->comm)) {
        return weiri_fail(WEIR_ERR_FORKED, "weir_future_test: the communicator belongs to the parent process");
    }
    weir_status error = weiri_comm_error(future->comm);
    pthread_mutex_lock(&future->comm->mutex);
    if (error != WEIR_OK) {
        set_ready(future, error, weir_last_error());
    }
    ask(future);
    /* Changed with the mutex: the service thread reads the states of all futures in a sequence. */
    weiri_future_state state = future->state;
    if (state == WEIRI_FUTURE_READY) {
        future->state = WEIRI_FUTURE_DONE;
    }
    pthread_mutex_unlock(&future->comm->mutex);
    if (state < WEIRI_FUTURE_READY) {
        return WEIR_PENDING;
    }
    if (state == WEIRI_FUTURE_READY) {
        finish_future(future);
    }
    return future->status == WEIR_OK ? WEIR_OK : weiri_fail(future->status, "%s", future->text);
}

static void time_out(weir_future *future, uint32_t timeout_ms)
{
    char text[256];
    if (future->state == WEIRI_FUTURE_WAITING) {
        char place[96];
        describe_place(future->op, future->number, future->tag, place);
        snprintf(text, sizeof text, "%s: rank %u did not call %s within %u ms (%s)", expected_by[future->op],
                 future->peer, sent_by[future->op], timeout_ms, place);
    } else {
        snprintf(text, sizeof text, "%s: rank %u did not answer for its memory within %u ms", expected_by[future->op],
                 future->peer, timeout_ms);
    }
    if (future->op != WEIRI_OP_IMPORT) {
        weiri_sequence *sequence = find_sequence(future->comm, future->peer, future->tag);
        if (sequence != NULL) {
            sequence->poisoned = true;
        }
    }
    set_ready(future, WEIR_ERR_TIMEOUT, text);
}

weir_status weir_future_wait(weir_future *future, uint32_t timeout_ms)
{
    if (future == NULL) {
        return weiri_fail_null("weir_future_wait", "future");
    }
    weir_comm *comm = future->comm;
    if (timeout_ms == 0) {
        timeout_ms = comm->timeout_ms;
    }
    uint64_t deadline = weiri_deadline(timeout_ms);
    for (;;) {
        weir_status status = weir_future_test(future);
        if (status != WEIR_PENDING) {
            return status;
        }
        pthread_mutex_lock(&comm->mutex);
        uint64_t slice = weiri_deadline(SLICE_MS);
        if (future->state < WEIRI_FUTURE_READY) {
            if (weiri_left_ms(deadline) == 0) {
                time_out(future, timeout_ms);
            } else {
                (void)weiri_cond_wait(&comm->changed, &comm->mutex, slice < deadline ? slice : deadline);
            }
        }
        pthread_mutex_unlock(&comm->mutex);
    }
}

void weir_future_destroy(weir_future *future)
{
    if (future == NULL || weiri_comm_forked(future->comm)) {
        return;
    }
    weir_comm *comm = future->comm;
    void *context = future->context;
    void (*discard)(void *) = future->discard;
    pthread_mutex_lock(&comm->mutex);
    weiri_fd_pass_forget_locked(future);
    close_fds(future);
    future->context = NULL;
    /* Its message may still come, even if the future has failed, and must not meet the next future. The service thread
     * frees a future that is kept for it, so this thread no longer touches it after the mutex. */
    bool kept = future->in_sequence;
    future->abandoned = kept;
    pthread_mutex_unlock(&comm->mutex);
    if (!kept) {
        weiri_free(future);
    }
    if (context != NULL) {
        discard(context);
    }
    weiri_comm_put(comm);
}
