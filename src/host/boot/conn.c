/* conn.c - one connection of a bootstrap as a state machine: connect or accept, prove the key, read and write frames;
 * see boot/bootstrap.h.
 *
 * The client's first bytes name the purpose of the connection: the rendezvous, or a job and the rank at the other end.
 * Both ends prove the key for that purpose (auth.h). After that there are only frames: a sealed head, and a payload
 * whose hash is in the head. A head is opened before it is used. A payload is handled when it is complete and has that
 * hash. Payloads grow as bytes arrive, so a length alone allocates nothing. A callback reads a bounded amount and
 * leaves time for other connections. */
#define _GNU_SOURCE 1

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "src/host/base/alloc.h"
#include "src/host/base/clock.h"
#include "src/host/base/error.h"
#include "src/host/base/log.h"
#include "src/host/boot/bootstrap.h"

#define PAYLOAD_START 65536u
#define READ_AT_ONCE (1u << 20)
#define READ_BUFFER 4096u
#define FIRST_BYTE_NS 1000000000u
#define PROOF_NS 5000000000u

/* Ends a queued frame and reports its state to the thread that waits for it. */
static void settle(weir_bootstrap *boot, weiri_message *message, weiri_send_state state)
{
    if (message->waited) {
        message->send_state = state;
        weiri_boot_signal(boot);
    } else {
        weiri_message_free(message);
    }
}

weiri_conn *weiri_conn_create(weir_bootstrap *boot, uint32_t peer, const weiri_address *address)
{
    weiri_conn *conn = (weiri_conn *)weiri_alloc(1, sizeof *conn);
    if (conn == NULL) {
        return NULL;
    }
    conn->boot = boot;
    conn->fd = -1;
    conn->peer = peer;
    conn->initiated = true;
    conn->address = *address;
    conn->next = boot->conns.first;
    boot->conns.first = conn;
    weiri_conn_mark(conn);
    return conn;
}

void weiri_conn_mark(weiri_conn *conn)
{
    if (!conn->dirty && !conn->dead) {
        conn->dirty = true;
        conn->next_dirty = conn->boot->conns.dirty;
        conn->boot->conns.dirty = conn;
        weiri_boot_wake(conn->boot);
    }
}

bool weiri_conn_is_unproved(const weiri_conn *conn)
{
    return conn->state == WEIRI_CONN_AWAIT_HELLO || conn->state == WEIRI_CONN_AWAIT_PROOF;
}

bool weiri_conn_is_proving(const weiri_conn *conn)
{
    return weiri_conn_is_unproved(conn) || conn->state == WEIRI_CONN_AWAIT_FRAME;
}

/* Writes the purpose of this connection, which the other end must confirm. */
static void write_purpose(const weiri_conn *conn, uint8_t purpose[WEIRI_AUTH_PURPOSE_BYTES])
{
    static const uint8_t no_job[WEIRI_JOB_BYTES];
    weiri_writer w = weiri_writer_init(purpose, WEIRI_AUTH_PURPOSE_BYTES);
    weiri_write_u32(&w, conn->join ? WEIRI_FRAME_JOIN : WEIRI_FRAME_PEER);
    weiri_write_bytes(&w, conn->join ? no_job : conn->boot->job.id, WEIRI_JOB_BYTES);
    weiri_write_u32(&w, conn->boot->rank);
    weiri_write_u32(&w, conn->join ? 0 : conn->peer);
    weiri_write_u32(&w, conn->boot->timeout_ms);
}

static void set_state(weiri_conn *conn, weiri_conn_state state)
{
    weir_bootstrap *boot = conn->boot;
    const bool before = weiri_conn_is_unproved(conn);
    conn->state = state;
    const bool after = weiri_conn_is_unproved(conn);
    boot->listener.unproved += (uint32_t)after - (uint32_t)before;
    /* While ranks meet many connections change their state; a waiting thread is woken once. */
    if (boot->closing || (state == WEIRI_CONN_OPEN && !boot->join.complete && weiri_peer_is_surrounded(boot))) {
        weiri_boot_signal(boot);
    }
}

/* Closes the socket and drops incomplete input. */
static void close_socket(weiri_conn *conn)
{
    weiri_service_unwatch(conn->boot->work.service, conn->watch);
    conn->watch = NULL;
    conn->events = 0;
    if (conn->fd >= 0) {
        weiri_sock_close(conn->fd);
        conn->fd = -1;
    }
    weiri_message_free(conn->incoming);
    conn->incoming = NULL;
    weiri_auth_wipe(&conn->auth, sizeof conn->auth);
    weiri_auth_wipe(&conn->seal_out, sizeof conn->seal_out);
    weiri_auth_wipe(&conn->seal_in, sizeof conn->seal_in);
    conn->raw_in_size = 0;
    conn->raw_out_size = 0;
    conn->raw_out_sent = 0;
}

void weiri_conn_close(weiri_conn *conn)
{
    weir_bootstrap *boot = conn->boot;
    if (conn->dead) {
        return;
    }
    boot->listener.foreign += weiri_conn_is_unproved(conn) ? 1 : 0;
    close_socket(conn);
    set_state(conn, WEIRI_CONN_IDLE);
    weiri_message *message;
    while ((message = weiri_message_queue_pop(&conn->queue)) != NULL) {
        settle(boot, message, WEIRI_SEND_FAILED);
    }
    if (conn->peer != WEIRI_NO_RANK) {
        weiri_peer *peer = &boot->peers[conn->peer];
        peer->out = peer->out == conn ? NULL : peer->out;
        peer->in = peer->in == conn ? NULL : peer->in;
    }
    if (boot->join.conn == conn) {
        boot->join.conn = NULL;
    }
    weiri_conn **link = &boot->conns.first;
    while (*link != conn) {
        link = &(*link)->next;
    }
    *link = conn->next;
    if (conn->dirty) {
        for (link = &boot->conns.dirty; *link != conn; link = &(*link)->next_dirty) {
        }
        *link = conn->next_dirty;
        conn->dirty = false;
    }
    conn->dead = true;
    conn->next = boot->conns.graveyard;
    boot->conns.graveyard = conn;
    if (conn->peer != WEIRI_NO_RANK || boot->closing) {
        weiri_boot_signal(boot);
    }
}

void weiri_conn_bury(weir_bootstrap *boot)
{
    while (boot->conns.graveyard != NULL) {
        weiri_conn *conn = boot->conns.graveyard;
        boot->conns.graveyard = conn->next;
        weiri_free(conn);
    }
}

void weiri_conn_foreign(weiri_conn *conn, const char *why)
{
    weir_bootstrap *boot = conn->boot;
    if (!boot->listener.foreign_logged && !boot->closing) {
        char text[WEIRI_ADDRESS_TEXT_BYTES];
        boot->listener.foreign_logged = true;
        weiri_log(WEIR_LOG_WARN, "bootstrap: foreign connection from %s, ignored: %s; further ones are not logged",
                  weiri_address_format(&conn->address, text), why);
    }
    weiri_conn_close(conn);
}

void weiri_conn_retry(weiri_conn *conn, uint64_t pause_ns)
{
    close_socket(conn);
    conn->unreachable = false;
    conn->retry_ns = weiri_now_ns() + pause_ns;
    set_state(conn, WEIRI_CONN_IDLE);
    weiri_boot_hurry(conn->boot);
}

/* The connection ended, or cannot be opened. */
static void lost(weiri_conn *conn, const char *cause)
{
    if (conn->join) {
        weiri_join_lost(conn, cause);
    } else if (conn->initiated || conn->state == WEIRI_CONN_OPEN) {
        /* A peer that accepted the connection is alive, even if it dropped it, perhaps because of too many
         * unauthenticated connections. */
        const bool taken = conn->state == WEIRI_CONN_AWAIT_CHALLENGE || conn->state == WEIRI_CONN_AWAIT_ANSWER;
        weiri_peer_lost(conn, cause, taken);
    } else if (conn->state == WEIRI_CONN_AWAIT_PROOF || conn->raw_in_size > 0) {
        weiri_conn_foreign(conn, "closed before it proved the key");
    } else {
        weiri_conn_close(conn);
    }
}

/* The same for an error of the socket. If the other end is unreachable, it has not closed the connection, and its
 * process may live. */
static void lost_by(weiri_conn *conn, int error)
{
    conn->unreachable = error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH;
    lost(conn, strerrordesc_np(error));
}

/* The same for a connection that cannot be opened because this rank lacks descriptors or memory. */
static void lost_here(weiri_conn *conn, const char *cause)
{
    if (conn->join) {
        weiri_join_lost(conn, cause);
    } else {
        weiri_peer_lost(conn, cause, true);
    }
}

void weiri_conn_corrupt(weiri_conn *conn)
{
    char text[WEIRI_ADDRESS_TEXT_BYTES];
    weiri_log(WEIR_LOG_WARN, "bootstrap: malformed message from %s: connection closed",
              weiri_address_format(&conn->address, text));
    lost(conn, "malformed message");
}

/* The received bytes differ from those that the other end sent. */
static void forged(weiri_conn *conn)
{
    char text[WEIRI_TEXT_BYTES];
    char address[WEIRI_ADDRESS_TEXT_BYTES];
    if (conn->join && conn->initiated) {
        weiri_join_stop(conn, weiri_fail(WEIR_ERR_AUTH, "what it sent was altered or replayed on the way"));
    } else if (conn->join) {
        lost(conn, "altered on the way");
    } else if (conn->peer == WEIRI_NO_RANK) {
        weiri_conn_foreign(conn, "what it sent was altered or replayed on the way");
    } else {
        (void)snprintf(text, sizeof text, "bootstrap: what rank %u sent from %s was altered or replayed on the way",
                       conn->peer, weiri_address_format(&conn->address, address));
        weiri_log(WEIR_LOG_WARN, "%s", text);
        weiri_boot_fail(conn->boot, WEIR_ERR_AUTH, text);
        lost(conn, "altered on the way");
    }
}

static void watch(weiri_conn *conn, uint32_t events)
{
    if (conn->watch != NULL && events != conn->events) {
        conn->events = events;
        if (weiri_service_set_events(conn->boot->work.service, conn->watch, events) != WEIR_OK) {
            lost(conn, weir_last_error());
        }
    }
}

static void push_raw(weiri_conn *conn, const void *data, size_t bytes)
{
    memcpy(conn->raw_out + conn->raw_out_size, data, bytes);
    conn->raw_out_size += bytes;
}

/* Writes raw bytes, then frames. Returns 0 when everything is written, EAGAIN, or the error. */
static int write_all(weiri_conn *conn)
{
    while (conn->raw_out_sent < conn->raw_out_size) {
        const ssize_t n =
            send(conn->fd, conn->raw_out + conn->raw_out_sent, conn->raw_out_size - conn->raw_out_sent, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR) {
            return errno;
        }
        conn->raw_out_sent += n > 0 ? (size_t)n : 0;
    }
    while (conn->state == WEIRI_CONN_OPEN && conn->queue.head != NULL) {
        weiri_message *m = conn->queue.head;
        if (!m->sealed) {
            m->sealed = true;
            weiri_seal_close(&conn->seal_out, m->frame, WEIRI_FRAME_HEAD_BYTES, m->frame + WEIRI_FRAME_HEAD_BYTES);
        }
        struct iovec parts[2];
        struct msghdr header;
        memset(&header, 0, sizeof header);
        header.msg_iov = parts;
        if (m->done < sizeof m->frame) {
            parts[header.msg_iovlen++] = (struct iovec){ m->frame + m->done, sizeof m->frame - m->done };
        }
        const uint64_t body = m->done < sizeof m->frame ? 0 : m->done - sizeof m->frame;
        if (body < m->bytes) {
            parts[header.msg_iovlen++] = (struct iovec){ m->data + body, m->bytes - body };
        }
        const ssize_t n = sendmsg(conn->fd, &header, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR) {
            return errno;
        }
        m->done += n > 0 ? (uint64_t)n : 0;
        conn->said = conn->said || n > 0;
        if (m->done == sizeof m->frame + m->bytes) {
            settle(conn->boot, weiri_message_queue_pop(&conn->queue), WEIRI_SEND_DONE);
        }
    }
    return 0;
}

void weiri_conn_accepted(weiri_conn *conn)
{
    set_state(conn, WEIRI_CONN_OPEN);
    watch(conn, conn->raw_out_sent < conn->raw_out_size ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void weiri_conn_hold(weiri_conn *conn)
{
    /* Sends the answer. The rest follows when the connection is accepted. */
    (void)write_all(conn);
    set_state(conn, WEIRI_CONN_HELD);
    watch(conn, 0);
}

void weiri_conn_queue(weiri_conn *conn, weiri_message *message)
{
    if (message == NULL) {
        return;
    }
    weir_bootstrap *boot = conn->boot;
    if (message->kind == WEIRI_FRAME_BEAT) {
        boot->usage.beats++;
    } else {
        boot->usage.messages++;
        boot->usage.bytes += sizeof message->frame + message->bytes;
    }
    weiri_message_queue_push(&conn->queue, message);
    /* Writes the frame here if nothing precedes it. The service thread writes what does not fit, and handles errors. */
    const bool first = conn->state == WEIRI_CONN_OPEN && !conn->dirty && !conn->shut && conn->queue.head == message;
    if (!first || write_all(conn) != 0) {
        weiri_conn_mark(conn);
    }
}

static void read_all(weiri_conn *conn);

void weiri_conn_flush(weiri_conn *conn)
{
    if (conn->dead || conn->fd < 0 || conn->state == WEIRI_CONN_CONNECTING || conn->state == WEIRI_CONN_HELD) {
        return;
    }
    const int error = conn->shut ? 0 : write_all(conn);
    if (error != 0 && error != EAGAIN) {
        /* The last bytes of the other end may hold the cause. */
        read_all(conn);
        if (!conn->dead && conn->fd >= 0) {
            lost_by(conn, error);
        }
        return;
    }
    if (error == 0 && conn->finish && !conn->shut && conn->state == WEIRI_CONN_OPEN) {
        conn->shut = true;
        (void)shutdown(conn->fd, SHUT_WR);
    }
    watch(conn, error == EAGAIN ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

static void ready(void *context, uint32_t events)
{
    weiri_conn *conn = (weiri_conn *)context;
    weir_bootstrap *boot = conn->boot;
    weiri_boot_enter(boot);
    if (!boot->work.stopped && !conn->dead) {
        if (conn->state == WEIRI_CONN_CONNECTING) {
            const int error = weiri_sock_error(conn->fd);
            if (error != 0) {
                lost(conn, strerrordesc_np(error));
            } else {
                set_state(conn, WEIRI_CONN_AWAIT_CHALLENGE);
                weiri_conn_flush(conn);
            }
        } else if (conn->state == WEIRI_CONN_HELD) {
            weiri_conn_close(conn);
        } else {
            if ((events & ~(uint32_t)EPOLLOUT) != 0) {
                read_all(conn);
            }
            weiri_conn_flush(conn);
        }
    }
    weiri_boot_leave(boot);
}

/* True when a connect failed because this rank lacks descriptors, ports or memory. */
static bool is_own(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS || error == EADDRNOTAVAIL;
}

void weiri_conn_open(weiri_conn *conn)
{
    uint8_t purpose[WEIRI_AUTH_PURPOSE_BYTES];
    uint8_t hello[WEIRI_AUTH_HELLO_BYTES];
    int error = weiri_sock_connect(&conn->address, conn->boot->timeout_ms, &conn->fd);
    conn->cause[0] = '\0';
    if (error != 0 && error != EINPROGRESS) {
        (is_own(error) ? lost_here : lost)(conn, strerrordesc_np(error));
        return;
    }
    /* A connect to a near host is often complete already, which saves an event. */
    write_purpose(conn, purpose);
    weiri_auth_begin(&conn->auth, purpose, hello);
    push_raw(conn, hello, sizeof hello);
    set_state(conn, WEIRI_CONN_CONNECTING);
    error = write_all(conn);
    if (error == 0) {
        error = weiri_sock_error(conn->fd);
    }
    if (error == 0) {
        set_state(conn, WEIRI_CONN_AWAIT_CHALLENGE);
    } else if (error != EAGAIN) {
        lost(conn, strerrordesc_np(error));
        return;
    }
    conn->events = error == EAGAIN ? EPOLLIN | EPOLLOUT : EPOLLIN;
    if (weiri_service_watch_fd(conn->boot->work.service, conn->fd, conn->events, ready, conn, &conn->watch) !=
        WEIR_OK) {
        lost_here(conn, weir_last_error());
    }
}

bool weiri_conn_adopt(weir_bootstrap *boot, int fd, const weiri_address *from)
{
    weiri_conn *conn = weiri_conn_create(boot, WEIRI_NO_RANK, from);
    if (conn == NULL) {
        return false;
    }
    conn->fd = fd;
    conn->initiated = false;
    conn->deadline_ns = weiri_now_ns() + FIRST_BYTE_NS;
    conn->events = EPOLLIN;
    set_state(conn, WEIRI_CONN_AWAIT_HELLO);
    if (weiri_service_watch_fd(boot->work.service, fd, conn->events, ready, conn, &conn->watch) != WEIR_OK) {
        weiri_conn_close(conn);
    } else {
        read_all(conn); /* its first bytes are often here already */
        weiri_conn_flush(conn);
    }
    return true;
}

void weiri_conn_expire(weiri_conn *conn, uint64_t now_ns)
{
    read_all(conn); /* if this rank is late, the peer's bytes are already here */
    weiri_conn_flush(conn);
    if (!conn->dead && weiri_conn_is_proving(conn) && conn->deadline_ns <= now_ns) {
        weiri_conn_foreign(conn, "stays silent");
    }
}

/* The other end violates the protocol or has a different key. */
static void distrust(weiri_conn *conn, weir_status status)
{
    if (conn->join) {
        weiri_join_stop(conn, status);
    } else {
        lost(conn, weir_last_error());
    }
}

/* Client: proves the key. A joining rank sends its first frame with the proof. */
static void prove(weiri_conn *conn)
{
    uint8_t out[WEIRI_RAW_BYTES];
    const weir_status status = weiri_auth_prove(&conn->auth, conn->boot->job.key, conn->raw_in, out);
    if (status != WEIR_OK) {
        distrust(conn, status);
        return;
    }
    size_t size = WEIRI_AUTH_PROOF_BYTES;
    weiri_auth_seals(&conn->auth, conn->boot->job.key, &conn->seal_out, &conn->seal_in);
    size += conn->join ? weiri_join_hello(conn, out + size, sizeof out - size) : 0;
    conn->raw_out_size = 0;
    conn->raw_out_sent = 0;
    push_raw(conn, out, size);
    set_state(conn, WEIRI_CONN_AWAIT_ANSWER);
}

/* Client: the server has proved the key. Nothing is sent to it before that. */
static void trust(weiri_conn *conn)
{
    const weir_status status = weiri_auth_check_answer(&conn->auth, conn->boot->job.key, conn->raw_in);
    if (status != WEIR_OK) {
        distrust(conn, status);
        return;
    }
    set_state(conn, WEIRI_CONN_OPEN);
    if (!conn->join) {
        conn->boot->peers[conn->peer].unreachable_ns = 0;
    }
}

static void challenge(weiri_conn *conn)
{
    uint8_t out[WEIRI_AUTH_CHALLENGE_BYTES];
    const weir_status status = weiri_auth_challenge(&conn->auth, conn->raw_in, out);
    if (status == WEIR_ERR_AUTH) {
        weiri_conn_foreign(conn, "does not speak weir's protocol");
        return;
    }
    push_raw(conn, out, sizeof out);
    set_state(conn, WEIRI_CONN_AWAIT_PROOF);
    weiri_conn_flush(conn);
    if (status != WEIR_OK && !conn->dead) {
        weiri_conn_foreign(conn, weir_last_error());
    }
}

/* Server: the client has proved the key for the purpose that it named. */
static void admit(weiri_conn *conn)
{
    weir_bootstrap *boot = conn->boot;
    weiri_reader r = weiri_reader_init(conn->auth.purpose, sizeof conn->auth.purpose);
    const uint32_t kind = weiri_read_u32(&r);
    weiri_read_bytes(&r, conn->held_job, sizeof conn->held_job);
    conn->held_rank = weiri_read_u32(&r);
    const uint32_t server = weiri_read_u32(&r);
    conn->held_timeout_ms = weiri_read_u32(&r);
    if (kind == WEIRI_FRAME_JOIN && server == 0) {
        set_state(conn, WEIRI_CONN_AWAIT_FRAME);
    } else if (kind == WEIRI_FRAME_PEER && server == boot->rank && conn->held_rank < boot->size) {
        weiri_peer_accept(conn);
    } else {
        weiri_conn_foreign(conn, "meant for another rank");
    }
}

/* Server: checks the client's proof. A client without the key learns only that. */
static void check(weiri_conn *conn)
{
    uint8_t out[WEIRI_AUTH_PROOF_BYTES];
    const weir_status status = weiri_auth_check(&conn->auth, conn->boot->job.key, conn->raw_in, out);
    push_raw(conn, out, sizeof out);
    if (status == WEIR_OK) {
        weiri_auth_seals(&conn->auth, conn->boot->job.key, &conn->seal_in, &conn->seal_out);
        admit(conn);
        return;
    }
    weiri_conn_flush(conn);
    if (!conn->dead) {
        weiri_conn_foreign(conn, "different key");
    }
}

static uint64_t frame_max(const weiri_conn *conn, uint32_t kind)
{
    if (conn->state == WEIRI_CONN_AWAIT_FRAME) {
        return kind == WEIRI_FRAME_JOIN ? WEIRI_RAW_BYTES : 0;
    }
    return conn->join ? weiri_join_frame_max(kind) : weiri_peer_frame_max(kind);
}

/* The head of a frame is complete. */
static void begin_message(weiri_conn *conn)
{
    weiri_reader r = weiri_reader_init(conn->raw_in, WEIRI_FRAME_HEAD_BYTES);
    if (!weiri_seal_open(&conn->seal_in, conn->raw_in, WEIRI_FRAME_HEAD_BYTES, conn->raw_in + WEIRI_FRAME_HEAD_BYTES)) {
        forged(conn);
        return;
    }
    const uint32_t kind = weiri_read_u32(&r);
    const uint64_t tag = weiri_read_u64(&r);
    const uint64_t bytes = weiri_read_u64(&r);
    weiri_read_bytes(&r, conn->expected_hash, sizeof conn->expected_hash);
    const bool flows = conn->state == WEIRI_CONN_OPEN && !conn->join && weiri_flows(kind);
    const uint64_t held = flows ? conn->boot->peers[conn->peer].flows[kind - WEIRI_FRAME_USER].held : 0;
    if (bytes > frame_max(conn, kind) || held >= WEIRI_AHEAD_MAX) {
        weiri_conn_corrupt(conn);
        return;
    }
    conn->incoming = (weiri_message *)weiri_alloc(1, sizeof *conn->incoming);
    if (conn->incoming == NULL) {
        weiri_boot_fail(conn->boot, WEIR_ERR_NOMEM, "bootstrap: out of memory for a message");
        lost(conn, "out of memory");
        return;
    }
    weiri_hash_begin(&conn->hash);
    conn->incoming->kind = kind;
    conn->incoming->tag = tag;
    conn->incoming->bytes = bytes;
    conn->incoming->peer = conn->peer;
}

/* A frame is complete. */
static void end_message(weiri_conn *conn)
{
    if (!weiri_hash_is(&conn->hash, conn->expected_hash)) {
        forged(conn);
        return;
    }
    weiri_message *message = conn->incoming;
    conn->incoming = NULL;
    message->done = 0;
    if (conn->join || conn->state == WEIRI_CONN_AWAIT_FRAME) {
        weiri_join_frame(conn, message);
    } else {
        weiri_peer_frame(conn, message);
    }
}

/* Makes room for more payload: twice as much as has arrived. */
static bool grow(weiri_message *message)
{
    uint64_t capacity = message->capacity == 0 ? PAYLOAD_START : 2 * message->capacity;
    capacity = capacity < message->bytes ? capacity : message->bytes;
    uint8_t *data = (uint8_t *)weiri_realloc(message->data, capacity);
    if (data == NULL) {
        return false;
    }
    message->data = data;
    message->capacity = capacity;
    return true;
}

/* Returns the number of the next bytes, and sets *to to their place; 0 if there is no memory. */
static size_t wanted(weiri_conn *conn, uint8_t **to)
{
    weiri_message *m = conn->incoming;
    if (m != NULL) {
        if (m->done == m->capacity && !grow(m)) {
            return 0;
        }
        *to = m->data + m->done;
        return m->capacity - m->done;
    }
    const size_t size = conn->state == WEIRI_CONN_AWAIT_HELLO       ? WEIRI_AUTH_HELLO_BYTES
                        : conn->state == WEIRI_CONN_AWAIT_CHALLENGE ? WEIRI_AUTH_CHALLENGE_BYTES
                        : conn->state == WEIRI_CONN_AWAIT_PROOF     ? WEIRI_AUTH_PROOF_BYTES
                        : conn->state == WEIRI_CONN_AWAIT_ANSWER    ? WEIRI_AUTH_PROOF_BYTES
                                                                    : WEIRI_FRAME_BYTES;
    *to = conn->raw_in + conn->raw_in_size;
    return size - conn->raw_in_size;
}

/* All bytes that were wanted have arrived. */
static void take(weiri_conn *conn)
{
    if (conn->incoming != NULL) {
        if (conn->incoming->done == conn->incoming->bytes) {
            end_message(conn);
        }
        return;
    }
    conn->raw_in_size = 0;
    switch (conn->state) {
    case WEIRI_CONN_AWAIT_HELLO:
        challenge(conn);
        return;
    case WEIRI_CONN_AWAIT_CHALLENGE:
        prove(conn);
        return;
    case WEIRI_CONN_AWAIT_ANSWER:
        trust(conn);
        return;
    case WEIRI_CONN_AWAIT_PROOF:
        check(conn);
        return;
    default:
        begin_message(conn);
        if (conn->incoming != NULL && conn->incoming->bytes == 0) {
            end_message(conn);
        }
    }
}

/* Makes room for the wanted bytes. False, with the connection closed, when memory is short. */
static bool prepare(weiri_conn *conn, uint8_t **to, size_t *size)
{
    *size = wanted(conn, to);
    if (*size == 0) {
        weiri_boot_fail(conn->boot, WEIR_ERR_NOMEM, "bootstrap: out of memory for a message");
        lost(conn, "out of memory");
    }
    return *size > 0;
}

static void advance(weiri_conn *conn, size_t bytes, bool all)
{
    if (conn->incoming != NULL) {
        weiri_hash_add(&conn->hash, conn->incoming->data + conn->incoming->done, bytes);
        conn->incoming->done += bytes;
    } else {
        if (conn->state == WEIRI_CONN_AWAIT_HELLO && conn->raw_in_size == 0) {
            conn->deadline_ns = weiri_now_ns() + PROOF_NS;
        }
        conn->raw_in_size += bytes;
    }
    if (all) {
        take(conn);
    }
}

/* Handles bytes that were read from an open connection; bytes after its end are dropped. */
static void feed(weiri_conn *conn, const uint8_t *data, size_t bytes)
{
    while (bytes > 0 && !conn->dead && conn->fd >= 0) {
        uint8_t *to = NULL;
        size_t size = 0;
        if (!prepare(conn, &to, &size)) {
            return;
        }
        const size_t n = size < bytes ? size : bytes;
        memcpy(to, data, n);
        data += n;
        bytes -= n;
        advance(conn, n, n == size);
    }
}

/* Reads and handles received bytes, up to a limit. Frames of open connections are read several at once, long payloads
 * directly into their place. Proofs and the first frame are read exactly. */
static void read_all(weiri_conn *conn)
{
    uint8_t buffer[READ_BUFFER];
    size_t left = READ_AT_ONCE;
    while (left > 0 && !conn->dead && conn->fd >= 0 && conn->state != WEIRI_CONN_HELD) {
        uint8_t *to = NULL;
        size_t size = 0;
        if (!prepare(conn, &to, &size)) {
            return;
        }
        const bool direct = conn->state != WEIRI_CONN_OPEN || size >= sizeof buffer;
        const size_t room = direct ? size : sizeof buffer;
        const ssize_t n = recv(conn->fd, direct ? to : buffer, room, 0);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            return;
        }
        if (n <= 0) {
            if (n == 0) {
                lost(conn, "connection closed");
            } else {
                lost_by(conn, errno);
            }
            return;
        }
        conn->heard = true;
        left -= (size_t)n < left ? (size_t)n : left;
        if (direct) {
            advance(conn, (size_t)n, (size_t)n == size);
        } else {
            feed(conn, buffer, (size_t)n);
        }
        if ((size_t)n < room && conn->state == WEIRI_CONN_OPEN) {
            return; /* nothing more to read */
        }
    }
}
