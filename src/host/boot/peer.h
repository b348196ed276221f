/* peer.h - the other ranks: their frames, flow control between two ranks, and ranks that are gone. The mutex of the
 * bootstrap is held. */
#ifndef WEIRI_BOOT_PEER_H
#define WEIRI_BOOT_PEER_H

#include "src/host/boot/conn.h"

/* Most bytes of each kind of message that a rank may send before the peer has handled them. A message counts its bytes
 * and a fixed cost. The last message may exceed the limit. */
#define WEIRI_AHEAD_MAX ((uint64_t)64 << 20)
#define WEIRI_MESSAGE_COST 256u

typedef enum weiri_peer_state {
    WEIRI_PEER_ALIVE,
    WEIRI_PEER_LEFT,
    WEIRI_PEER_DIED,  /* a connection ended without a goodbye */
    WEIRI_PEER_SILENT /* it does not answer */
} weiri_peer_state;

/* Flow control between two ranks for messages of one kind. */
typedef struct weiri_flow {
    uint64_t ahead; /* bytes that this rank has sent without credit back */
    uint64_t held;  /* bytes that the peer has sent and this rank has not credited */
    uint64_t owed;  /* the part of them that was handled */
} weiri_flow;

#define WEIRI_FLOWS 3 /* one each for WEIRI_FRAME_USER and the two kinds after it */

typedef struct weiri_peer {
    weiri_address address; /* of its listener; family 0 before it is known */
    weiri_conn *out;
    weiri_conn *in;
    weiri_message_queue inbox;
    weiri_flow flows[WEIRI_FLOWS];
    uint32_t waiters;        /* users' threads that wait for a message of this peer */
    uint64_t unreachable_ns; /* time since when it refuses connections; 0 if it does not */
    bool answered;           /* this peer has answered the last question; `answer` is valid */
    uint32_t answer;
    uint64_t goodbye_ns; /* time of its goodbye; 0 before */
    weiri_peer_state state;
    bool last_seen; /* the connection that the peer opened has ended */
} weiri_peer;

/* Ranks that are gone, or going. */
typedef struct weiri_gone {
    uint32_t *ranks; /* gone ranks, in this order */
    uint32_t count;
    uint32_t leaving; /* peers that said goodbye and whose last message has not arrived */
} weiri_gone;

/* True for messages that need credit. */
static inline bool weiri_flows(uint32_t kind)
{
    return kind >= WEIRI_FRAME_USER && kind < WEIRI_FRAME_USER + WEIRI_FLOWS;
}

weiri_conn *weiri_peer_connect(weir_bootstrap *boot, uint32_t rank); /* any thread; NULL: out of memory */
void weiri_peer_accept(weiri_conn *conn);
void weiri_peer_frame(weiri_conn *conn, weiri_message *message); /* takes the message */
/* `there`: the peer is alive, as far as this rank knows. */
void weiri_peer_lost(weiri_conn *conn, const char *cause, bool there);
/* A received message was handled: its sender gets credit. */
void weiri_peer_handled(weir_bootstrap *boot, const weiri_message *message);
void weiri_peer_gone(weir_bootstrap *boot, uint32_t rank, weiri_peer_state how);
void weiri_peer_gone_text(uint32_t rank, weiri_peer_state how, char text[WEIRI_TEXT_BYTES]);
void weiri_peer_tick(weir_bootstrap *boot, uint64_t now_ns);
void weiri_peer_goodbyes(weir_bootstrap *boot);
uint64_t weiri_peer_frame_max(uint32_t kind);
/* The first rank that this one watches and has no connection to; WEIRI_NO_RANK when all are connected. */
uint32_t weiri_peer_find_unconnected(const weir_bootstrap *boot);
bool weiri_peer_is_surrounded(const weir_bootstrap *boot); /* all ranks that this one watches are connected */

/* beat.c: heartbeats, and ranks that do not answer. */
void weiri_beat_tick(weir_bootstrap *boot, uint64_t now_ns);

#endif
