/* halo.h - a halo, its parts, and the memory that it shares with neighbours.
 *
 * halo.c creates, launches and destroys. parts.c checks the caller's parts and divides them into shares. meet.c has the
 * table with which neighbours find each other's parts. */
#ifndef WEIRI_HALO_H
#define WEIRI_HALO_H

#include "src/host/window/team.h"
#include "weir/halo.h"

WEIR_BEGIN_DECLS

/* The bytes of a part decide on its shares: of about 8 KiB, at most 64, but up to 16 of 4 KiB where these are more.
 * Neighbours must agree on all of this. */
#define WEIRI_HALO_SHARE_BYTES 8192u
#define WEIRI_HALO_SHARES 64u
#define WEIRI_HALO_SMALL_SHARE_BYTES 4096u
#define WEIRI_HALO_SMALL_SHARES 16u

/* One direction of a part. */
typedef struct weiri_halo_way {
    uint64_t bytes;
    weir_halo_form form; /* not AUTO */
    uint64_t buffer;     /* place of the receiver's packets or lines in its shared memory */
    uint64_t words;      /* place of the words that the other rank stores, a cell for each share */
} weiri_halo_way;

typedef struct weiri_halo_part {
    uint32_t number; /* in the caller's array */
    uint32_t index;
    uint32_t member; /* of the team: the neighbour; the own place for a part within this rank */
    uint32_t peer;   /* rank */
    bool inside;     /* within this rank */
    bool lines;      /* the link keeps lines whole */
    uint64_t id;     /* of the channel: the tag of its semaphore, the same on both ranks */
    weir_layout *from;
    weir_layout *to;
    weir_layout *there; /* the neighbour's `to`, with stores; otherwise NULL */
    uint64_t to_offset;
    char *from_memory;
    char *to_memory;
    char *there_memory;
    char *remote; /* the neighbour's array */
    uint64_t remote_bytes;
    uint32_t shares;
    uint32_t first_share;
    weiri_halo_way put;
    weiri_halo_way wait;
    char *exported; /* `to` as bytes for the neighbour, if it stores to it */
    size_t export_bytes;
} weiri_halo_part;

struct weir_halo {
    weir_comm *comm;
    weiri_team team;          /* this rank and its neighbours */
    weiri_team_memory shared; /* words and buffers of each */
    weir_memory *own;         /* parts, shares and counts, for this rank's kernels */
    weiri_halo_part *parts;
    uint32_t count;
    uint32_t share_count;
    uint32_t blocks; /* most of a launch, on all multiprocessors */
    uint32_t blocks_of_multiprocessor;
    uint64_t bytes; /* of the shared memory */
    weir_dev_halo device;
};

/* ---- parts.c ---------------------------------------------------------------------------------------------- */

/* The form in which neighbours send a part to this rank. `runs`: contiguous runs of the layout `to`. */
weir_halo_form weiri_halo_choose(weir_halo_form form, uint64_t bytes, uint64_t runs, bool lines);
/* Checks the caller's parts, and sets those of the halo, with shares and places. The team is known. */
weir_status weiri_halo_plan(weir_halo *halo, const weir_halo_part *parts, const weir_halo_opts *opts);
/* Bytes [*at, *at + *bytes) of a way are those of share `i`. */
void weiri_halo_share_range(const weiri_halo_way *way, uint32_t shares, uint32_t i, uint64_t *at, uint64_t *bytes);
/* Bytes of a half of a share's buffer. */
uint64_t weiri_halo_half(const weiri_halo_way *way, uint32_t shares);

/* ---- meet.c ----------------------------------------------------------------------------------------------- */

/* Sends a table to each neighbour, receives theirs, finds the counterpart of each part, and sets what it says.
 * Neighbours whose tables say that they have failed are left out: the next agreement brings their error. `mine`: the
 * outcome of this rank's part so far, which is returned if it is an error. WEIR_ERR_MISMATCH, WEIR_ERR_CORRUPT. */
weir_status weiri_halo_meet(weir_halo *halo, weir_status mine);

WEIR_END_DECLS

#endif
