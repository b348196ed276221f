/* peer.c - frames between ranks after the rendezvous, and the ranks that are gone.
 *
 * A rank whose connection ends without a goodbye has died. The rank that sees it reports it to all its neighbours, and
 * each rank passes the news on once. The same holds for a rank that does not answer (boot/beat.c). A rank that leaves
 * says goodbye on all its connections. It has left when nothing more can come from it: when the connection that it
 * opened, if any, is at its end. */
#include <stdio.h>
#include <string.h>

#include "src/host/base/clock.h"
#include "src/host/base/log.h"
#include "src/host/boot/bootstrap.h"

#define RETRY_NS 50000000u
#define UNREACHABLE_NS 1000000000u
#define GOODBYE_NS 3000000000u

/* Reports to the other end that `rank` died or does not answer. */
static void report_gone(weiri_conn *conn, uint32_t rank)
{
    const bool silent = conn->boot->peers[rank].state == WEIRI_PEER_SILENT;
    weiri_conn_queue(conn,
                     weiri_message_create(silent ? WEIRI_FRAME_SILENT : WEIRI_FRAME_DEATH, rank, NULL, 0, NULL, 0));
}

/* A new connection begins with the news of deaths: the effects of a death on this rank must not overtake it. */
static void report_all_gone(weiri_conn *conn)
{
    const weir_bootstrap *boot = conn->boot;
    for (uint32_t i = 0; i < boot->gone.count; i++) {
        if (boot->peers[boot->gone.ranks[i]].state != WEIRI_PEER_LEFT) {
            report_gone(conn, boot->gone.ranks[i]);
        }
    }
}

weiri_conn *weiri_peer_connect(weir_bootstrap *boot, uint32_t rank)
{
    weiri_peer *peer = &boot->peers[rank];
    if (peer->out == NULL) {
        peer->out = weiri_conn_create(boot, rank, &boot->peers[rank].address);
        if (peer->out != NULL) {
            report_all_gone(peer->out);
        }
    }
    return peer->out;
}

static void say_goodbye(weiri_conn *conn)
{
    const bool more = !conn->initiated && conn->boot->peers[conn->peer].out != NULL;
    weiri_conn_queue(conn, weiri_message_create(WEIRI_FRAME_GOODBYE, more ? 1 : 0, NULL, 0, NULL, 0));
    conn->finish = true;
    weiri_conn_mark(conn);
}

void weiri_peer_accept(weiri_conn *conn)
{
    weir_bootstrap *boot = conn->boot;
    if (!boot->join.done) {
        weiri_conn_hold(conn);
        return;
    }
    weiri_peer *peer = &boot->peers[conn->held_rank];
    if (memcmp(conn->held_job, boot->job.id, sizeof boot->job.id) != 0) {
        weiri_conn_foreign(conn, "of another job");
        return;
    }
    if (conn->held_rank == boot->rank || peer->in != NULL || peer->state != WEIRI_PEER_ALIVE) {
        weiri_conn_close(conn);
        return;
    }
    conn->peer = conn->held_rank;
    peer->in = conn;
    weiri_conn_accepted(conn);
    report_all_gone(conn);
    if (boot->goodbyes_sent) {
        say_goodbye(conn);
    }
}

uint64_t weiri_peer_frame_max(uint32_t kind)
{
    switch (kind) {
    case WEIRI_FRAME_USER:
    case WEIRI_FRAME_COLLECTIVE:
    case WEIRI_FRAME_PORT:
        return WEIRI_MESSAGE_MAX;
    case WEIRI_FRAME_CREDIT:
        return 4;
    case WEIRI_FRAME_ASK:
        return 8;
    case WEIRI_FRAME_ANSWER:
        return 8 + 4;
    case WEIRI_FRAME_ABORT:
        return 8 + 4 + 2 + WEIRI_TEXT_BYTES;
    default:
        return 0;
    }
}

/* A rank leaves and says goodbye on this connection. */
static void take_goodbye(weiri_conn *conn, uint64_t more)
{
    weir_bootstrap *boot = conn->boot;
    const uint32_t rank = conn->peer;
    weiri_peer *peer = &boot->peers[rank];
    if (peer->goodbye_ns == 0) {
        peer->goodbye_ns = weiri_now_ns();
        boot->gone.leaving++;
    }
    peer->last_seen = peer->last_seen || !conn->initiated || more == 0;
    weiri_conn_close(conn);
    if (peer->last_seen) {
        weiri_peer_gone(boot, rank, WEIRI_PEER_LEFT);
    }
}

static void take_death(weir_bootstrap *boot, uint64_t rank, uint32_t from, weiri_peer_state how)
{
    if (rank == boot->rank) {
        char text[WEIRI_TEXT_BYTES];
        const bool silent = how == WEIRI_PEER_SILENT;
        (void)snprintf(text, sizeof text, "bootstrap: rank %u gave up this rank, %u, which %s", from, boot->rank,
                       silent ? "did not answer (stopped, or its host was unreachable)" : "seemed dead");
        weiri_boot_fail(boot, WEIR_ERR_REMOTE, text);
    } else if (rank < boot->size) {
        weiri_peer_gone(boot, (uint32_t)rank, how);
    }
}

void weiri_peer_handled(weir_bootstrap *boot, const weiri_message *message)
{
    weiri_peer *peer = &boot->peers[message->peer];
    weiri_flow *flow = &peer->flows[message->kind - WEIRI_FRAME_USER];
    if (message->peer == boot->rank) {
        return;
    }
    flow->owed += message->bytes + WEIRI_MESSAGE_COST;
    if (flow->owed < WEIRI_AHEAD_MAX / 4 || peer->in == NULL) {
        return;
    }
    uint8_t kind[4];
    weiri_writer w = weiri_writer_init(kind, sizeof kind);
    weiri_write_u32(&w, message->kind);
    weiri_message *credit = weiri_message_create(WEIRI_FRAME_CREDIT, flow->owed, kind, sizeof kind, NULL, 0);
    if (credit != NULL) { /* if memory is short, the next message tries again */
        flow->held -= flow->owed;
        flow->owed = 0;
        weiri_conn_queue(peer->in, credit);
    }
}

static void take_credit(weiri_conn *conn, const weiri_message *message)
{
    weir_bootstrap *boot = conn->boot;
    weiri_reader r = weiri_reader_init(message->data, message->bytes);
    const uint32_t kind = weiri_read_u32(&r);
    weiri_flow *flow = weiri_flows(kind) ? &boot->peers[conn->peer].flows[kind - WEIRI_FRAME_USER] : NULL;
    if (!conn->initiated || !weiri_reader_done(&r) || flow == NULL || message->tag > flow->ahead) {
        weiri_conn_corrupt(conn);
        return;
    }
    const bool waited = flow->ahead >= WEIRI_AHEAD_MAX;
    flow->ahead -= message->tag;
    if (waited) {
        weiri_boot_signal(boot);
    }
}

void weiri_peer_frame(weiri_conn *conn, weiri_message *message)
{
    weir_bootstrap *boot = conn->boot;
    const uint32_t kind = message->kind;
    const bool data = weiri_flows(kind);
    if (data && !conn->initiated) {
        boot->peers[conn->peer].flows[kind - WEIRI_FRAME_USER].held += message->bytes + WEIRI_MESSAGE_COST;
    }
    if (kind == WEIRI_FRAME_GOODBYE) {
        take_goodbye(conn, message->tag);
    } else if (kind == WEIRI_FRAME_DEATH) {
        take_death(boot, message->tag, conn->peer, WEIRI_PEER_DIED);
    } else if (kind == WEIRI_FRAME_SILENT) {
        take_death(boot, message->tag, conn->peer, WEIRI_PEER_SILENT);
    } else if (kind == WEIRI_FRAME_CREDIT) {
        take_credit(conn, message);
    } else if (kind == WEIRI_FRAME_ANSWER) {
        if (!weiri_group_answered(boot, message)) {
            weiri_conn_corrupt(conn);
        }
    } else if (kind == WEIRI_FRAME_ASK) {
        if (!weiri_group_asked(conn, message)) {
            weiri_conn_corrupt(conn);
        }
    } else if (conn->initiated || !(data || kind == WEIRI_FRAME_ABORT || kind == WEIRI_FRAME_BEAT)) {
        weiri_conn_corrupt(conn);
    } else if (kind == WEIRI_FRAME_BEAT) {
        /* Its arrival is all its content. */
    } else if (kind == WEIRI_FRAME_ABORT) {
        weiri_group_abort(boot, message);
        return;
    } else if (boot->closing) {
        /* No call will take it. */
    } else if (kind != WEIRI_FRAME_PORT) {
        weiri_peer *peer = &boot->peers[conn->peer];
        if (kind == WEIRI_FRAME_COLLECTIVE) {
            weiri_group_arrived(boot, message);
        }
        weiri_message_queue_push(&peer->inbox, message);
        if (peer->waiters > 0) {
            weiri_boot_signal(boot);
        }
        return;
    } else if (message->tag > UINT32_MAX) {
        weiri_conn_corrupt(conn);
    } else if (weiri_port_push(boot, message) == WEIR_OK) {
        return;
    } else {
        weiri_boot_fail(boot, WEIR_ERR_NOMEM, "bootstrap: out of memory for a message");
    }
    weiri_message_free(message);
}

void weiri_peer_lost(weiri_conn *conn, const char *cause, bool there)
{
    weir_bootstrap *boot = conn->boot;
    const uint32_t rank = conn->peer;
    weiri_peer *peer = &boot->peers[rank];
    const bool open = conn->state == WEIRI_CONN_OPEN;
    if (!open && !boot->closing && peer->state == WEIRI_PEER_ALIVE && peer->goodbye_ns == 0) {
        /* Its listener is gone; news of its death may be on the way. If this rank lacks descriptors or memory, a later
         * attempt may succeed. */
        peer->unreachable_ns = there ? 0 : peer->unreachable_ns == 0 ? weiri_now_ns() : peer->unreachable_ns;
        (void)snprintf(conn->cause, sizeof conn->cause, "%s", cause);
        weiri_conn_retry(conn, RETRY_NS);
        return;
    }
    const bool from_peer = !conn->initiated;
    const weiri_peer_state how = conn->unreachable ? WEIRI_PEER_SILENT : WEIRI_PEER_DIED;
    weiri_conn_close(conn);
    if (boot->closing || !open) {
        return;
    }
    if (peer->goodbye_ns == 0) {
        weiri_peer_gone(boot, rank, how);
    } else if (from_peer) {
        weiri_peer_gone(boot, rank, WEIRI_PEER_LEFT);
    }
}

void weiri_peer_gone_text(uint32_t rank, weiri_peer_state how, char text[WEIRI_TEXT_BYTES])
{
    (void)snprintf(text, WEIRI_TEXT_BYTES, "bootstrap: rank %u %s", rank,
                   how == WEIRI_PEER_SILENT ? "does not answer (stopped, or its host is unreachable)"
                   : how == WEIRI_PEER_DIED ? "died"
                                            : "left");
}

void weiri_peer_gone(weir_bootstrap *boot, uint32_t rank, weiri_peer_state how)
{
    weiri_peer *peer = &boot->peers[rank];
    if (peer->state != WEIRI_PEER_ALIVE) {
        return;
    }
    peer->state = how;
    boot->gone.ranks[boot->gone.count++] = rank;
    boot->gone.leaving -= peer->goodbye_ns != 0 ? 1 : 0;
    /* When a stopped rank continues, it reads why its connections are closed. */
    weiri_conn *const ends[] = { peer->out, peer->in };
    for (int i = 0; i < 2; i++) {
        if (ends[i] != NULL && how == WEIRI_PEER_SILENT) {
            report_gone(ends[i], rank);
        }
        if (ends[i] != NULL) {
            weiri_conn_close(ends[i]);
        }
    }
    if (how != WEIRI_PEER_LEFT && !boot->closing) {
        char text[WEIRI_TEXT_BYTES];
        weiri_peer_gone_text(rank, how, text);
        weiri_log(WEIR_LOG_INFO, "%s", text);
        weiri_boot_fail(boot, WEIR_ERR_REMOTE, text);
        for (weiri_conn *conn = boot->conns.first; conn != NULL; conn = conn->next) {
            if (!conn->join && (conn->initiated || conn->state == WEIRI_CONN_OPEN)) {
                report_gone(conn, rank);
            }
        }
    }
    weiri_boot_signal(boot);
}

void weiri_peer_tick(weir_bootstrap *boot, uint64_t now_ns)
{
    for (weiri_conn *conn = boot->conns.first; conn != NULL;) {
        weiri_conn *next = conn->next;
        const weiri_peer *peer = conn->initiated && !conn->join ? &boot->peers[conn->peer] : NULL;
        /* A peer that has connected to this rank is alive, even if this rank cannot connect to it. */
        if (peer != NULL && peer->in == NULL && peer->unreachable_ns != 0 &&
            now_ns - peer->unreachable_ns > UNREACHABLE_NS) {
            weiri_peer_gone(boot, conn->peer, boot->join.complete ? WEIRI_PEER_LEFT : WEIRI_PEER_DIED);
            next = boot->conns.first;
        }
        conn = next;
    }
    for (uint32_t rank = 0; rank < boot->size && boot->gone.leaving > 0; rank++) {
        const weiri_peer *peer = &boot->peers[rank];
        if (peer->state == WEIRI_PEER_ALIVE && peer->goodbye_ns != 0 && now_ns - peer->goodbye_ns > GOODBYE_NS) {
            weiri_peer_gone(boot, rank, WEIRI_PEER_LEFT);
        }
    }
}

uint32_t weiri_peer_find_unconnected(const weir_bootstrap *boot)
{
    for (uint64_t step = 1; step < boot->size; step *= 2) {
        const uint32_t rank = (uint32_t)((boot->rank + step) % boot->size);
        const weiri_conn *out = boot->peers[rank].out;
        if (out == NULL || out->state != WEIRI_CONN_OPEN) {
            return rank;
        }
    }
    return WEIRI_NO_RANK;
}

bool weiri_peer_is_surrounded(const weir_bootstrap *boot) { return weiri_peer_find_unconnected(boot) == WEIRI_NO_RANK; }

/* True when a connection has nothing more to send before this rank leaves. */
static bool is_idle(const weir_bootstrap *boot, const weiri_conn *conn)
{
    switch (conn->state) {
    case WEIRI_CONN_OPEN:
        return conn->join && conn->initiated;
    case WEIRI_CONN_AWAIT_ANSWER: /* the server has the proof and may have accepted it */
        return conn->join;
    case WEIRI_CONN_AWAIT_PROOF:
    case WEIRI_CONN_AWAIT_FRAME:
        return false; /* the rank there takes the connection for open and needs the goodbye */
    default:
        return !conn->initiated || conn->join || conn->queue.head == NULL || !boot->join.complete;
    }
}

void weiri_peer_goodbyes(weir_bootstrap *boot)
{
    boot->goodbyes_sent = true;
    weiri_boot_signal(boot);
    weiri_listener_stop(boot);
    for (weiri_conn *conn = boot->conns.first; conn != NULL;) {
        weiri_conn *next = conn->next;
        if (is_idle(boot, conn)) {
            weiri_conn_close(conn);
        }
        conn = next;
    }
    for (weiri_conn *conn = boot->conns.first; conn != NULL; conn = conn->next) {
        if (conn->join) {
            conn->finish = true;
            weiri_conn_mark(conn);
        } else if (conn->peer != WEIRI_NO_RANK) {
            say_goodbye(conn);
        }
    }
}
