/* group.h - collectives of all ranks or a group. The mutex of the bootstrap is held, unless a function says otherwise.
 */
#ifndef WEIRI_BOOT_GROUP_H
#define WEIRI_BOOT_GROUP_H

#include "src/host/boot/peer.h"

/* An operation that a rank called. */
typedef struct weiri_group_call {
    uint32_t op;
    uint32_t root;
    uint64_t sequence;
    uint64_t bytes;
} weiri_group_call;

typedef struct weiri_group_state {
    struct weiri_group_state *next;
    uint64_t hash;
    uint64_t sequence;     /* operations begun */
    weiri_group_call last; /* the last of them */
    uint32_t waits_for;    /* the rank whose message the last one needs now, or WEIRI_NO_RANK */
    uint32_t running;      /* operations begun and not ended */
    uint64_t failed_at;    /* first operation that failed, when failed_status is not WEIR_OK */
    weir_status failed_status;
    char failed_text[WEIRI_TEXT_BYTES];
} weiri_group_state;

/* A message of a collective has arrived. It is an error if no operation will take it. */
void weiri_group_arrived(weir_bootstrap *boot, const weiri_message *message);
void weiri_group_abort(weir_bootstrap *boot, weiri_message *message); /* from a peer; frees the message */
/* A peer asks which rank this one waits for, or answers that question. False: malformed. */
bool weiri_group_asked(weiri_conn *conn, const weiri_message *message);
bool weiri_group_answered(weir_bootstrap *boot, const weiri_message *message);
/* WEIR_OK, or why a collective of all ranks has failed. */
weir_status weiri_group_failure(const weir_bootstrap *boot);
/* The allgather in create; without the mutex. */
weir_status weiri_group_join(weir_bootstrap *boot, uint8_t *data, uint64_t bytes, uint64_t deadline_ns);

#endif
