/* semaphore.h - the semaphore as channels and halos see it.
 *
 * Offers the struct behind weir_semaphore, whose handle the channels pass to their kernels; claims, so that channels of
 * two kinds do not share one; and the ways of a port channel's failure: into its own semaphore, and to the peer's. */
#ifndef WEIRI_COMM_SEMAPHORE_H
#define WEIRI_COMM_SEMAPHORE_H

#include "src/host/base/wire.h"
#include "src/host/comm/connection.h"
#include "weir/semaphore.h"

/* A semaphore has a cell in both slabs of each side, because a side learns only from the peer's message in which slab
 * its token lives. The token lives in device memory if kernels signal and kernels wait. Otherwise it lives in host
 * memory, which the CPU can store to and kernels can read. Over a transport that maps no memory it always lives in host
 * memory, which keeps the order of a NIC's writes. The first cache line of a cell has two tokens: the peer's kernels
 * and host count up one, and the peer's port channel stores to the other. The second cache line has this rank's counts
 * of consumed and of sent signals. */
struct weir_semaphore {
    weiri_refcount refs;
    weir_connection *connection;
    weir_semaphore_end end;
    uint64_t tag;
    uint64_t id;      /* number of this rank's semaphore; never used again, unlike cells */
    uint64_t peer_id; /* of the peer's semaphore at the other end */
    uint32_t count;   /* of the set: cells in a row */
    uint64_t device_cell;
    uint64_t host_cell;
    uint64_t peer_cell; /* offset of the peer's cell with our outbound token, in its host slab or its device slab */
    bool peer_in_host;
    uint32_t memory_channels;  /* memory channels that use it; guarded by comm's mutex */
    bool port_channel;         /* a port channel has used it, and no other channel may */
    bool retired;              /* the peer may hold a token in our cells: they are never used again */
    weir_dev_semaphore device; /* handle of a device end */
    uint64_t *inbound;         /* two tokens of a host end */
    uint64_t *outbound;        /* NULL when it is not mapped */
    uint64_t consumed;
    weir_semaphore *next, *prev;       /* in comm's list; guarded by comm's mutex, as all that follows */
    const weir_dev_progress *progress; /* of the port channel, NULL without one: what ends waits */
    int32_t *ended;                    /* the word of `progress` that kernels check */
    weir_status failed;                /* WEIR_OK, or the error that ends waits for signals: the port channel's own, */
    char failed_text[256];             /* or WEIR_ERR_REMOTE if the peer's port channel has failed */
    bool failed_here;
};

/* All that are not destroyed, for news of peers' port channels. The communicator's mutex guards this. */
typedef struct weiri_semaphores {
    weir_semaphore *first;
    uint64_t last_id;
} weiri_semaphores;

void weiri_semaphore_get(weir_semaphore *semaphore);

/* The connection of this rank's semaphore with that id, if it joins `peer`; otherwise NULL. Mutex held. */
weir_connection *weiri_semaphore_connection_locked(const weir_comm *comm, uint32_t peer, uint64_t id);

/* Before a channel uses it: WEIR_ERR_INVALID when a channel of the other kind does, or two port channels would. */
weir_status weiri_semaphore_claim(weir_semaphore *semaphore, bool port_channel, const char *call);
/* A memory channel no longer uses it, or the create of a port channel has failed. */
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
