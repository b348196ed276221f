/* send.c - messages between two ranks: queueing, and waiting for what comes.
 *
 * weiri_boot_queue hands a message to the connection of its peer (conn.c), or to this rank's own inbox. weiri_boot_wait
 * takes the first message of a kind and tag from a peer's inbox; weiri_boot_wait_room waits while the peer has too many
 * bytes of earlier messages to receive. Both also end with the error of the bootstrap or of the group, and at the
 * deadline. Collectives and ports use these calls, and weir_bootstrap_send and _recv consist of them. */
#include "src/host/boot/send.h"

#include <stdio.h>
#include <string.h>

#include "src/host/base/clock.h"
#include "src/host/base/error.h"
#include "src/host/boot/bootstrap.h"

/* How long a receiver waits for the sender to connect before it connects itself. */
#define CONNECT_NS 200000000u

void weiri_boot_fail(weir_bootstrap *boot, weir_status status, const char *text)
{
    if (boot->failure.status == WEIR_OK) {
        boot->failure.status = status;
        (void)snprintf(boot->failure.text, sizeof boot->failure.text, "%s", text);
        weiri_boot_signal(boot);
    }
}

weir_status weiri_boot_error(const weir_bootstrap *boot)
{
    const weiri_boot_failure *failure = &boot->failure;
    return failure->status == WEIR_OK ? WEIR_OK : weiri_fail(failure->status, "%s", failure->text);
}

/* A copy of head and data, for `peer`. The mutex need not be held. */
static weir_status make(const weir_bootstrap *boot, uint32_t peer, uint32_t kind, uint64_t tag,
                        const weiri_writer *head, const void *data, size_t bytes, weiri_message **out)
{
    if (bytes > WEIRI_MESSAGE_MAX - WEIRI_RAW_BYTES) {
        return weiri_fail(WEIR_ERR_LIMIT, "bootstrap: a message of %zu bytes to rank %u is too long", bytes, peer);
    }
    weiri_message *message =
        weiri_message_create(kind, tag, head == NULL ? NULL : head->data, head == NULL ? 0 : head->size, data, bytes);
    if (message == NULL) {
        return weiri_fail_nomem("bootstrap: message");
    }
    message->peer = boot->rank;
    *out = message;
    return WEIR_OK;
}

/* Queues `message`, which stays the caller's when this fails; *sent as for weiri_boot_queue. */
static weir_status queue(weir_bootstrap *boot, uint32_t peer, weiri_message *message, weiri_message **sent)
{
    const uint32_t kind = message->kind;
    const weiri_peer_state state = boot->peers[peer].state;
    const bool gone = state != WEIRI_PEER_ALIVE || boot->peers[peer].goodbye_ns != 0;
    if (gone && boot->failure.status != WEIR_OK) {
        return weiri_boot_error(boot); /* this may be why the peer left */
    }
    if (gone) {
        char text[WEIRI_TEXT_BYTES];
        weiri_peer_gone_text(peer, state, text);
        return weiri_fail(WEIR_ERR_REMOTE, "%s", text);
    }
    if (peer != boot->rank) {
        weiri_conn *conn = weiri_peer_connect(boot, peer);
        if (conn == NULL) {
            return weiri_fail_nomem("bootstrap: connection");
        }
        if (weiri_flows(kind)) {
            boot->peers[peer].flows[kind - WEIRI_FRAME_USER].ahead += message->bytes + WEIRI_MESSAGE_COST;
        }
        message->waited = sent != NULL;
        weiri_conn_queue(conn, message);
        if (sent != NULL) {
            *sent = message;
        }
        return WEIR_OK;
    }
    if (kind == WEIRI_FRAME_PORT) {
        if (weiri_port_push(boot, message) != WEIR_OK) {
            return weiri_fail_nomem("bootstrap: port");
        }
        weiri_boot_wake(boot);
    } else {
        weiri_message_queue_push(&boot->peers[peer].inbox, message);
        weiri_boot_signal(boot);
    }
    return WEIR_OK;
}

weir_status weiri_boot_queue(weir_bootstrap *boot, uint32_t peer, uint32_t kind, uint64_t tag, const weiri_writer *head,
                             const void *data, size_t bytes, weiri_message **sent)
{
    if (peer >= boot->size) {
        return weiri_fail(WEIR_ERR_INVALID, "bootstrap: rank %u of %u does not exist", peer, boot->size);
    }
    weiri_message *message = NULL;
    weir_status status = make(boot, peer, kind, tag, head, data, bytes, &message);
    if (status == WEIR_OK) {
        status = queue(boot, peer, message, sent);
        if (status != WEIR_OK) {
            weiri_message_free(message);
        }
    }
    return status;
}

/* Removes and returns the first message of (kind, tag), or NULL. */
static weiri_message *take(weiri_message_queue *queue, uint32_t kind, uint64_t tag)
{
    weiri_message *before = NULL;
    weiri_message *message = queue->head;
    while (message != NULL && (message->kind != kind || message->tag != tag)) {
        before = message;
        message = message->next;
    }
    if (message != NULL) {
        weiri_message_queue_unlink(queue, before, message);
    }
    return message;
}

weir_status weiri_boot_wait(weir_bootstrap *boot, uint32_t peer, uint32_t kind, uint64_t tag,
                            const weiri_group_state *group, uint64_t sequence, const char *what, uint64_t deadline_ns,
                            weiri_message **out)
{
    weiri_peer *p = &boot->peers[peer];
    uint64_t connect_ns = weiri_now_ns() + CONNECT_NS;
    for (uint64_t now = 0;;) {
        if (boot->failure.status != WEIR_OK) {
            return weiri_boot_error(boot);
        }
        if (group != NULL && group->failed_status != WEIR_OK && group->failed_at <= sequence) {
            return weiri_fail(group->failed_status, "%s", group->failed_text);
        }
        weiri_message *message = take(&p->inbox, kind, tag);
        if (message != NULL) {
            weiri_peer_handled(boot, message);
            *out = message;
            return WEIR_OK;
        }
        if (p->state != WEIRI_PEER_ALIVE) {
            return weiri_fail(WEIR_ERR_REMOTE, "%s: rank %u left", what, peer);
        }
        if (now >= deadline_ns) {
            return weiri_fail(WEIR_ERR_TIMEOUT, "%s: timeout: nothing came from rank %u", what, peer);
        }
        /* Without a connection this rank would not notice that the peer leaves. */
        bool alone = peer != boot->rank && p->in == NULL && p->out == NULL && boot->join.complete;
        if (alone && now >= connect_ns) {
            if (weiri_peer_connect(boot, peer) == NULL) {
                return weiri_fail_nomem("bootstrap: connection");
            }
            connect_ns = now + CONNECT_NS; /* a connection that ends at once is not retried at once */
            alone = false;
        }
        p->waiters++;
        (void)weiri_cond_wait(&boot->cond, &boot->mutex, alone && connect_ns < deadline_ns ? connect_ns : deadline_ns);
        p->waiters--;
        now = weiri_now_ns();
    }
}

weir_status weiri_boot_wait_room(weir_bootstrap *boot, uint32_t peer, uint32_t kind, const weiri_group_state *group,
                                 uint64_t sequence, const char *what, uint64_t deadline_ns)
{
    const weiri_peer *p = &boot->peers[peer];
    const weiri_flow *flow = &p->flows[kind - WEIRI_FRAME_USER];
    bool expired = false;
    for (;;) {
        if (boot->failure.status != WEIR_OK) {
            return weiri_boot_error(boot);
        }
        if (group != NULL && group->failed_status != WEIR_OK && group->failed_at <= sequence) {
            return weiri_fail(group->failed_status, "%s", group->failed_text);
        }
        if (flow->ahead < WEIRI_AHEAD_MAX || p->state != WEIRI_PEER_ALIVE || p->goodbye_ns != 0) {
            return WEIR_OK;
        }
        if (expired) {
            return weiri_fail(WEIR_ERR_TIMEOUT, "%s: timeout: rank %u has not received %llu MiB of earlier messages",
                              what, peer, (unsigned long long)(flow->ahead >> 20));
        }
        expired = !weiri_cond_wait(&boot->cond, &boot->mutex, deadline_ns);
    }
}

/* Waits until the socket has the whole frame, and frees it. */
static weir_status wait_sent(weir_bootstrap *boot, uint32_t peer, weiri_message *message, uint64_t deadline_ns)
{
    bool expired = false;
    while (message->send_state == WEIRI_SEND_QUEUED && boot->failure.status == WEIR_OK && !expired) {
        expired = !weiri_cond_wait(&boot->cond, &boot->mutex, deadline_ns);
    }
    const weiri_send_state state = message->send_state;
    /* A peer for which a message is queued has a connection. */
    const char *cause = state == WEIRI_SEND_QUEUED ? boot->peers[peer].out->cause : "";
    if (state != WEIRI_SEND_QUEUED) {
        weiri_message_free(message);
    } else if (!message->sealed) {
        /* Not begun: it can be removed from the queue. */
        weiri_message_queue *queue = &boot->peers[peer].out->queue;
        weiri_message *before = NULL;
        for (weiri_message *m = queue->head; m != message; m = m->next) {
            before = m;
        }
        weiri_message_queue_unlink(queue, before, message);
        boot->peers[peer].flows[message->kind - WEIRI_FRAME_USER].ahead -= message->bytes + WEIRI_MESSAGE_COST;
        weiri_message_free(message);
    } else {
        message->waited = false; /* the service thread frees it when the rest is written */
    }
    if (state == WEIRI_SEND_DONE) {
        return WEIR_OK;
    }
    if (boot->failure.status != WEIR_OK) {
        return weiri_boot_error(boot);
    }
    if (state == WEIRI_SEND_FAILED) {
        return weiri_fail(WEIR_ERR_REMOTE, "weir_bootstrap_send: rank %u left", peer);
    }
    return weiri_fail(WEIR_ERR_TIMEOUT, "weir_bootstrap_send: timeout: rank %u does not receive%s%s", peer,
                      cause[0] == '\0' ? "" : ": ", cause);
}

/* The arguments of send and recv. */
static weir_status check_call(weir_bootstrap *boot, const char *call, const void *data, size_t bytes, uint32_t peer)
{
    const weir_status status = weiri_boot_check(boot, call);
    if (status != WEIR_OK) {
        return status;
    }
    if (data == NULL && bytes > 0) {
        return weiri_fail_null(call, "data");
    }
    return peer < boot->size ? WEIR_OK
                             : weiri_fail(WEIR_ERR_INVALID, "%s: rank %u of %u does not exist", call, peer, boot->size);
}

weir_status weir_bootstrap_send(weir_bootstrap *boot, const void *data, size_t bytes, uint32_t peer, uint64_t tag)
{
    weir_status status = check_call(boot, __func__, data, bytes, peer);
    if (status != WEIR_OK) {
        return status;
    }
    const uint64_t deadline = weiri_deadline(boot->timeout_ms);
    /* Before the mutex is taken: the service thread must not wait while a long message is copied. */
    weiri_message *message = NULL;
    weiri_message *sent = NULL;
    status = make(boot, peer, WEIRI_FRAME_USER, tag, NULL, data, bytes, &message);
    if (status != WEIR_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&boot->mutex);
    status = weiri_boot_wait_room(boot, peer, WEIRI_FRAME_USER, NULL, 0, __func__, deadline);
    if (status == WEIR_OK) {
        status = queue(boot, peer, message, &sent);
    }
    const bool queued = status == WEIR_OK;
    if (sent != NULL) {
        status = wait_sent(boot, peer, sent, deadline);
    }
    (void)pthread_mutex_unlock(&boot->mutex);
    if (!queued) {
        weiri_message_free(message);
    }
    return status;
}

weir_status weir_bootstrap_recv(weir_bootstrap *boot, void *data, size_t bytes, uint32_t peer, uint64_t tag)
{
    weir_status status = check_call(boot, __func__, data, bytes, peer);
    if (status != WEIR_OK) {
        return status;
    }
    char what[64];
    (void)snprintf(what, sizeof what, "weir_bootstrap_recv: tag %llu", (unsigned long long)tag);
    weiri_message *message = NULL;
    (void)pthread_mutex_lock(&boot->mutex);
    status =
        weiri_boot_wait(boot, peer, WEIRI_FRAME_USER, tag, NULL, 0, what, weiri_deadline(boot->timeout_ms), &message);
    (void)pthread_mutex_unlock(&boot->mutex);
    if (status != WEIR_OK) {
        return status;
    }
    if (message->bytes != bytes) {
        status = weiri_fail(WEIR_ERR_MISMATCH, "%s: rank %u sent %llu bytes, rank %u expects %zu", what, peer,
                            (unsigned long long)message->bytes, boot->rank, bytes);
    } else if (bytes > 0) {
        memcpy(data, message->data, bytes);
    }
    weiri_message_free(message);
    return status;
}
