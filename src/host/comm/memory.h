/* memory.h - registered memory as the other nouns see it, and its description on the wire.
 *
 * Offers the struct behind weir_memory (channels, collectives and tables read its block, rank and size), references,
 * handles as bytes for messages, and the two ways to make a peer's memory of a handle: mapped, or described. Memories
 * are listed in their communicator while they exist, for peers that ask whether they still do. */
#ifndef WEIRI_COMM_MEMORY_H
#define WEIRI_COMM_MEMORY_H

#include "src/host/base/refcount.h"
#include "src/host/base/wire.h"
#include "src/host/comm/domain.h"

#define WEIRI_KEYS_MAX 2 /* that fit into a handle */

/* A memory's key in a domain of its rank. */
typedef struct weiri_named_key {
    char transport[8];
    weiri_key key;
} weiri_named_key;

typedef struct weiri_keys {
    uint32_t count;
    weiri_named_key at[WEIRI_KEYS_MAX];
} weiri_keys;

struct weir_memory {
    weiri_refcount refs;
    weir_comm *comm;
    bool holds_comm; /* false for the communicator's own slabs, which must not keep it alive */
    bool imported;
    weiri_block *block;                       /* NULL for a peer's memory that cannot be mapped here */
    uint32_t rank;                            /* that registered it */
    uint64_t id;                              /* of rank's memories; never used twice */
    weiri_export description;                 /* for peers; fd is the block's own, -1 when it is imported */
    char reason[160];                         /* why it cannot be shared, for WEIRI_SHARE_NONE, or has no key */
    weiri_keys keys;                          /* as exported, or received */
    weiri_region *regions[WEIRI_DOMAINS_MAX]; /* in comm->domains.at, when registered here; see domain.h */
    weir_memory *previous;                    /* in comm->memories.first when registered here */
    weir_memory *next;
};

/* The memories that are registered here, for requests of their descriptors. The communicator's mutex guards this. */
typedef struct weiri_memories {
    weir_memory *first;
    uint64_t last_id;
} weiri_memories;

/* A handle, parsed. */
typedef struct weiri_handle {
    uint32_t rank;
    uint64_t id;
    weiri_export block; /* fd is -1 */
    char reason[160];
    weiri_keys keys;
} weiri_handle;

/* Most bytes of a handle. */
#define WEIRI_HANDLE_BYTES WEIR_MEMORY_HANDLE_MAX

/* Writes the memory's handle, authenticated with the job's key, to handle[WEIRI_HANDLE_BYTES]. */
size_t weiri_handle_write(const weir_memory *memory, uint8_t *handle);
/* Checks and parses a handle; WEIR_ERR_CORRUPT, WEIR_ERR_VERSION, WEIR_ERR_AUTH, WEIR_ERR_INVALID. */
weir_status weiri_handle_read(weir_comm *comm, const uint8_t *data, size_t bytes, weiri_handle *out);
/* Whether mapping the handle's block here needs its file descriptor. */
bool weiri_handle_needs_fd(const weir_comm *comm, const weiri_handle *handle);

/* Makes a peer's memory without mapping it. */
weir_status weiri_memory_describe(weir_comm *comm, const weiri_handle *handle, bool holds_comm, weir_memory **out);
/* Maps a peer's memory, or just describes one that has keys and cannot be mapped; `fd` stays the caller's. */
weir_status weiri_memory_map(weir_comm *comm, const weiri_handle *handle, int fd, bool holds_comm, weir_memory **out);
/* Allocates and registers memory without a reference on comm, for its slabs. */
weir_status weiri_memory_allocate_slab(weir_comm *comm, weir_memory_kind kind, uint64_t bytes, weir_memory **out);
void weiri_memory_get(weir_memory *memory);

/* A memory registered here; NULL when it is gone. Comm's mutex held. */
const weir_memory *weiri_memory_find_locked(const weir_comm *comm, uint64_t id);

#endif
