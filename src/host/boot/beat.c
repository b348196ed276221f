/* beat.c - heartbeats. A rank whose process is stopped, or whose host is unreachable, closes no connection; only its
 * silence shows the failure.
 *
 * A rank sends a frame on its connections to the ranks 1, 2, 4, ... after it when it has sent nothing else there for a
 * while. It watches the connections that it accepted from the ranks 1, 2, 4, ... before it. Any byte shows that the
 * sender runs. A sender that stays silent too long counts as dead, and the news spreads like that of a death. Both ends
 * of a connection take the longer of their two timeouts.
 *
 * The limit of silence is three quarters of the timeout: the result must be known before the waits for the silent rank
 * reach their own deadlines. Silence is counted in ticks of this rank. A rank that was stopped, or had no CPU for a
 * while, therefore does not take the others for silent. */
#include "src/host/boot/bootstrap.h"

#define NS_PER_MS 1000000u
#define SILENCE_LEAST_MS 2000u /* on a busy machine a thread may wait that long for a CPU */
#define BEATS 6u               /* heartbeats in the time after which silence counts */
#define STEP_MOST_NS 1000000000u

static uint64_t silence_ns(uint32_t timeout_ms)
{
    const uint64_t ms = (uint64_t)timeout_ms * 3 / 4;
    return (ms > SILENCE_LEAST_MS ? ms : SILENCE_LEAST_MS) * NS_PER_MS;
}

/* Whether `from` sends heartbeats to `to`. */
static bool is_watched(const weir_bootstrap *boot, uint32_t from, uint32_t to)
{
    const uint32_t distance = (uint32_t)(((uint64_t)to + boot->size - from) % boot->size);
    return distance != 0 && (distance & (distance - 1)) == 0;
}

static void send_beat(weiri_conn *conn, uint64_t step_ns)
{
    const weir_bootstrap *boot = conn->boot;
    conn->quiet_ns = conn->said ? 0 : conn->quiet_ns + step_ns;
    conn->said = false;
    /* A queued frame serves as the heartbeat once the other end reads again. */
    if (conn->quiet_ns >= silence_ns(boot->timeout_ms) / BEATS && conn->queue.head == NULL) {
        weiri_conn_queue(conn, weiri_message_create(WEIRI_FRAME_BEAT, 0, NULL, 0, NULL, 0));
        conn->quiet_ns = 0;
        conn->said = false;
    }
}

/* Whether the other end has been silent for too long. */
static bool is_silent(weiri_conn *conn, uint64_t step_ns)
{
    const uint32_t own = conn->boot->timeout_ms;
    const uint32_t longer = conn->held_timeout_ms > own ? conn->held_timeout_ms : own;
    conn->silent_ns = conn->heard ? 0 : conn->silent_ns + (step_ns < STEP_MOST_NS ? step_ns : STEP_MOST_NS);
    conn->heard = false;
    return conn->silent_ns >= silence_ns(longer);
}

void weiri_beat_tick(weir_bootstrap *boot, uint64_t now_ns)
{
    const uint64_t step_ns = boot->beat_ns == 0 ? 0 : now_ns - boot->beat_ns;
    boot->beat_ns = now_ns;
    for (weiri_conn *conn = boot->conns.first; conn != NULL && !boot->closing;) {
        weiri_conn *next = conn->next;
        const bool open = conn->state == WEIRI_CONN_OPEN && !conn->join;
        if (open && conn->initiated && is_watched(boot, boot->rank, conn->peer)) {
            send_beat(conn, step_ns);
        } else if (open && !conn->initiated && is_watched(boot, conn->peer, boot->rank) &&
                   boot->peers[conn->peer].goodbye_ns == 0 && is_silent(conn, step_ns)) {
            weiri_peer_gone(boot, conn->peer, WEIRI_PEER_SILENT);
            return; /* this closed connections and changed the list; the first silent rank counts */
        }
        conn = next;
    }
}
