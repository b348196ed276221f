/* join.h - the rendezvous at rank 0. The mutex of the bootstrap is held, unless a function says otherwise. */
#ifndef WEIRI_BOOT_JOIN_H
#define WEIRI_BOOT_JOIN_H

#include "src/host/boot/boot.h"
#include "src/host/boot/peer.h"

/* The rendezvous. */
typedef struct weiri_join {
    weiri_address root; /* where rank 0 listens */
    bool complete;      /* create is complete */
    bool done;          /* the table is complete */
    bool over;          /* done, or failed and reported to all ranks */
    bool welcomed;      /* rank 0 knows this rank */
    weir_status failed; /* WEIR_OK, or why create ends */
    char text[WEIRI_TEXT_BYTES];
    char cause[128];      /* why the last attempt to reach rank 0 failed */
    char taken[256];      /* rank 0: why it cannot listen; it then joins the rank that does, which may report more */
    bool in_use;          /* the address is in use, perhaps not for long */
    weiri_conn *conn;     /* to rank 0 */
    uint64_t deadline_ns; /* of the create of this rank; on rank 0 the earliest of all ranks */
    uint64_t pause_ns;    /* before the next attempt to reach rank 0 */
    uint64_t linger_ns;   /* rank 0: until when ranks that come later receive the error */
    uint32_t expected;    /* rank 0: the largest size that a rank named */
    uint32_t came;        /* rank 0: ranks that came, duplicates too */
    uint32_t present;     /* rank 0: different ranks */
} weiri_join;

void weiri_join_start(weir_bootstrap *boot);
void weiri_join_tick(weir_bootstrap *boot, uint64_t now_ns);
/* On the user's thread: waits until the rendezvous is over. WEIR_PENDING: the meeting has moved. */
weir_status weiri_join_wait(weir_bootstrap *boot, const weiri_meeting *meeting);
weir_status weiri_join_exchange(weir_bootstrap *boot, uint64_t deadline_ns); /* without the mutex */
size_t weiri_join_hello(weiri_conn *conn, uint8_t *frame, size_t capacity);  /* sealed */
void weiri_join_frame(weiri_conn *conn, weiri_message *message);             /* takes the message */
void weiri_join_lost(weiri_conn *conn, const char *cause);
void weiri_join_stop(weiri_conn *conn, weir_status status); /* the server's proof or version is wrong */
uint64_t weiri_join_frame_max(uint32_t kind);

#endif
