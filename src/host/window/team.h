/* team.h - a team: ranks of a communicator that set something up together.
 *
 *     weiri_team_init(&team, comm, tag);                 no allocation, no messages
 *     weiri_team_add(&team, rank);                       each member, in the order of the team
 *     status = weiri_team_agree(&team, NULL, call, mine, false);
 *     status = weiri_team_connect(&team, call, NULL);    a connection to each other member
 *     status = weiri_team_agree(&team, NULL, call, status, true);
 *     status = weiri_team_share(&team, call, local, false, &memory);
 *     ...
 *     weiri_team_memory_close(&memory);
 *     weiri_team_close(&team);
 *
 * All members make the same calls in the same order. A step of a team is begun with every other member before any of
 * them is waited for. After each step the members agree: an error of one is the status of all.
 *
 * Threads:   one thread at a time for each team.
 * Blocking:  agree, tell, connect, share, each: with the communicator's timeout.
 * Ownership: the caller keeps the communicator, and each memory that it shares, until the team is closed.
 * Errors:    a text begins with the name of the call that the caller passes, and names the rank at fault. */
#ifndef WEIRI_WINDOW_TEAM_H
#define WEIRI_WINDOW_TEAM_H

#include "src/host/comm/comm.h"
#include "weir/bootstrap.h"
#include "weir/connection.h"
#include "weir/future.h"

#define WEIRI_TEAM_RANKS 64u
#define WEIRI_TEAM_WORDS 8u

typedef struct weiri_team {
    weir_comm *comm;
    uint64_t tag;                                   /* of the members' messages; used by one team at a time */
    uint32_t rank;                                  /* this rank's place among the members */
    uint32_t size;                                  /* number of members */
    uint32_t ranks[WEIRI_TEAM_RANKS];               /* of the members, in the communicator */
    weir_connection *connections[WEIRI_TEAM_RANKS]; /* to each other member, after weiri_team_connect */
    uint64_t words[WEIRI_TEAM_WORDS];               /* weiri_team_agree compares them: WEIR_ERR_MISMATCH */
    const char *names[WEIRI_TEAM_WORDS];            /* of the words, for the text if they differ; NULL: */
    const char *differ;                             /* text if words differ, for instance "was given other opts" */
    bool lines; /* every link between two members keeps 128-byte stores whole, as far as all members know */
} weiri_team;

/* A memory of each member. `remote` of this rank is NULL. */
typedef struct weiri_team_memory {
    weir_memory *local; /* the caller's */
    weir_memory *remote[WEIRI_TEAM_RANKS];
} weiri_team_memory;

/* ---- groups: ranks of the communicator, NULL for all --------------------------------------------------------- */

/* The communicator's rank of member `index` of the group. */
uint32_t weiri_group_rank(const weir_group *group, uint32_t index);
/* Checks a group of the caller's, and finds this rank's place in it and the number of its ranks. WEIR_ERR_INVALID: the
 * group is empty, not in ascending order, or without this rank. WEIR_ERR_LIMIT: more than `most` ranks. */
weir_status weiri_group_check(const weir_comm *comm, const weir_group *group, uint32_t most, const char *call,
                              uint32_t *rank, uint32_t *size);

/* ---- teams --------------------------------------------------------------------------------------------------- */

void weiri_team_init(weiri_team *team, weir_comm *comm, uint64_t tag);
/* The caller adds at most WEIRI_TEAM_RANKS ranks, its own among them. */
void weiri_team_add(weiri_team *team, uint32_t rank);
/* Closes the connections. */
void weiri_team_close(weiri_team *team);

/* Ends a step. `mine` is the outcome of this rank's part; its text is the thread's last error. Returns WEIR_OK on all
 * members, or an error on all of them: this rank's own, or that of the first member that failed, with its text. Also
 * compares `words`, and clears `lines` on all members if it is false on one.
 *
 * `across`, unless NULL, is a second team of this rank. Each member then passes the outcome on to its members. If every
 * rank is in one team of each kind, as in the rows and columns of a table, the error of one rank reaches all of them.
 *
 * A rank that knows of an error returns at once, unless `waits` is set. With `waits` it returns when all members have
 * ended the step. A step in which members map each other's memory must end with `waits`. */
weir_status weiri_team_agree(weiri_team *team, weiri_team *across, const char *call, weir_status mine, bool waits);

/* Sends `mine` to each other member, and receives theirs: told[k] has the words of member k, also of this rank. */
weir_status weiri_team_tell(weiri_team *team, const char *call, const uint64_t mine[WEIRI_TEAM_WORDS],
                            uint64_t told[][WEIRI_TEAM_WORDS]);

/* Connects to each other member, over the transport of `opts`. */
weir_status weiri_team_connect(weiri_team *team, const char *call, const weir_connection_opts *opts);

/* Sends `local` to each other member, and receives its memory, which must have the same size (WEIR_ERR_MISMATCH). The
 * memory is mapped here if a transport maps it (weir_memory_pointer), and otherwise a target of transfers by its key.
 * If all of them must be mapped, WEIR_ERR_UNSUPPORTED names a rank whose memory is not. The caller closes `memory`,
 * also after an error. */
weir_status weiri_team_share(weiri_team *team, const char *call, weir_memory *local, bool mapped,
                             weiri_team_memory *memory);
/* weiri_team_share of memories whose sizes may differ. */
weir_status weiri_team_share_any(weiri_team *team, const char *call, weir_memory *local, bool mapped,
                                 weiri_team_memory *memory);
/* The memory of member `index`. */
static inline weir_memory *weiri_team_memory_of(const weiri_team_memory *memory, uint32_t index)
{
    return memory->remote[index] != NULL ? memory->remote[index] : memory->local;
}
/* Destroys the memories of the other members. `local` stays the caller's. */
void weiri_team_memory_close(weiri_team_memory *memory);

/* For a step with a member that could not be begun, with `status`. If the member finds the same error, its wait ends.
 * After any other error the member would wait for a message that never comes, so the communicator fails. Returns the
 * error. */
weir_status weiri_team_fail_to_begin(weir_comm *comm, const char *call, weir_status status);
/* Begins an asynchronous step with member `index`, which is not this rank. */
typedef weir_status (*weiri_team_begin)(void *context, uint32_t index, weir_future **future);
/* Begins a step with each other member, even after one could not be begun, and waits for all. A member with which the
 * step could not be begun would wait forever. So the communicator fails, unless that member finds the same error. */
weir_status weiri_team_each(weiri_team *team, const char *call, weiri_team_begin begin, void *context);

#endif
