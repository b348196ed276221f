/* semaphore.h - the semaphore as channels see it. */
#ifndef WEIRI_COMM_SEMAPHORE_H
#define WEIRI_COMM_SEMAPHORE_H

#include "src/host/base/wire.h"
#include "src/host/comm/connection.h"
#include "weir/semaphore.h"

/* Each side has a cell in both slabs, since it learns only from the peer's message which one its token lives
 * in: device memory when kernels signal and kernels wait, host memory otherwise, which the CPU can store to
 * and kernels can read; always over a transport that maps nothing, since host memory keeps the order of what a NIC
 * writes. The first line of a cell is two tokens, which the peer's kernels and host count up, and the one that a port
 * channel of the peer's stores to; the second is our counts of consumed and of sent signals. */
struct weir_semaphore {
    weiri_refcount refs;
    weir_connection *connection;
    weir_semaphore_end end;
    uint64_t tag;
    uint64_t id;      /* of this rank's semaphores; never used again, as cells are */
    uint64_t peer_id; /* of the peer's semaphore at the other end */
    uint32_t count;   /* of the set: cells in a row */
    uint64_t device_cell;
    uint64_t host_cell;
    uint64_t peer_cell; /* offset of the peer's cell with our outbound token, in its host slab or its device slab */
    bool peer_in_host;
    uint32_t memory_channels;  /* that use it; comm's mutex, as below */
    bool port_channel;         /* one has used it, and nothing else may */
    bool retired;              /* the peer may hold a token in our cells: they are never used again */
    weir_dev_semaphore device; /* of a device end */
    uint64_t *inbound;         /* of a host end; two tokens */
    uint64_t *outbound;        /* NULL when it is not mapped */
    uint64_t consumed;
    weir_semaphore *next, *prev;       /* in comm's list; comm's mutex, as below */
    const weir_dev_progress *progress; /* of its port channel, while there is one: what ends waits; */
    int32_t *ended;                    /* the word of it that kernels check */
    weir_status failed;                /* 0, or the error with which waits for signals end: the port channel's, */
    char failed_text[256];             /* or WEIR_ERR_REMOTE when that of the peer has failed */
    bool failed_here;
};

void weiri_semaphore_get(weir_semaphore *semaphore);

/* The connection of this rank's semaphore with that id, if it joins `peer`; otherwise NULL. Mutex held. */
weir_connection *weiri_semaphore_connection_locked(const weir_comm *comm, uint32_t peer, uint64_t id);

/* Before a channel uses it: WEIR_ERR_INVALID when a channel of the other kind does, or two port channels would. */
weir_status weiri_semaphore_claim(weir_semaphore *semaphore, bool port_channel, const char *call);
/* A memory channel uses it no more, or a port channel was not made after all. */
void weiri_semaphore_unclaim(weir_semaphore *semaphore, bool port_channel);

/* A port channel uses it: waits for signals end with errors of the channel. NULL: the channel is destroyed. */
void weiri_semaphore_join_channel(weir_semaphore *semaphore, weir_dev_progress *progress);
/* This rank's port channel has failed: ends all waits for signals, those of kernels too, with `status`. */
void weiri_semaphore_fail(weir_semaphore *semaphore, weir_status status, const char *text);
/* Reports to the peer that this rank's port channel has failed: the peer's waits for signals end with WEIR_ERR_REMOTE,
 * this rank's number and `text`. Never blocks. */
void weiri_semaphore_report(weir_semaphore *semaphore, const char *text);
/* Takes the peer's report. Comm's mutex held. False: the message is malformed. */
bool weiri_semaphore_reported_locked(weir_comm *comm, uint32_t peer, weiri_reader *message);
/* WEIR_OK, or the error with which waits for signals end, with its text. Those that block (`blocks`) end also while the
 * channel's proxy is not started. */
weir_status weiri_semaphore_error(weir_semaphore *semaphore, bool blocks);

/* The second token of a cell. */
#define WEIRI_STORED_OFFSET 8u

#endif
