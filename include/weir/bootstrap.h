/* weir/bootstrap.h - ranks find each other over TCP and exchange small data.
 *
 *     weir_unique_id id;
 *     weir_unique_id_create(NULL, &id);                          in one process; id.text goes to the others
 *     weir_bootstrap_create(id.text, rank, size, NULL, &boot);   in every process (or thread)
 *     weir_bootstrap_allgather(boot, NULL, table, sizeof table[0]);
 *     weir_bootstrap_destroy(boot);
 *
 * Programs that mpirun, srun or torchrun starts need none of that: weir_bootstrap_create_launched(NULL, &boot).
 *
 * Ranks meet at rank 0, in one of four ways: at a unique id (which carries rank 0's address and a random
 * key), at "ip:port" or "interface:ip:port" ("127.0.0.1:5000", "[::1]:5000", "eth0:10.0.0.1:5000"), through a file,
 * "file:/path", or through a broadcast function of the caller, such as MPI_Bcast. The last two carry a unique id.
 *
 * A rendezvous file is on a file system that all ranks share. Rank 0 makes it, with mode 0600, replaces one that an
 * earlier job left, and removes it when all have joined. The others wait for it until their deadline, and do not use
 * one that is not a regular file of their own user or that others can open. One path serves one job at a time.
 *
 * Both ends of every connection prove that they know the job's key and what the connection is for. They use no data
 * before that. All that follows is sealed. A stranger on the path can read it. A rank notices what a
 * stranger has altered, replayed, reordered or put in, and its calls fail with WEIR_ERR_AUTH. Foreign connections are
 * dropped and logged once. Rendezvous by address needs a key, WEIR_KEY or opts.key. It is random bytes and not a
 * password, because a stranger who holds the meeting address may try passwords:
 * `head -c 32 /dev/urandom | base64` makes one. On the loopback the ranks of one user need none: they share a key in
 * /tmp/weir-UID, which weir makes with mode 0600. With WEIR_ALLOW_NO_KEY=1 any process that can connect may join.
 *
 * A service thread of the bootstrap does all socket work: a rank that dies is known to all within a second,
 * and every pending and later call of every rank returns WEIR_ERR_REMOTE with that rank in its text. Heartbeats of the
 * service threads find a rank that does not answer, because its process is stopped or its host cannot be reached: after
 * three quarters of the timeout, but at least two seconds, without a byte from it, it counts as dead ("rank 1 does not
 * answer"). A rank whose own threads compute, sleep or wait does answer. A rank that called weir_bootstrap_destroy has
 * left: only calls that need it fail.
 *
 * Threads:   all calls on a bootstrap may be made by several threads at once, except destroy; collective
 *            calls of one group must be made in the same order by all its ranks.
 * Blocking:  create, recv and the collectives block until done, error or timeout; send until the data has
 *            been handed over to the socket. A rank may be 64 MiB ahead of another with its sends, and as much
 *            with collectives; beyond that it waits until the other has received some of it.
 * Ownership: data buffers belong to the caller and are free for use when a call returns.
 * Errors:    WEIR_ERR_TIMEOUT (naming the missing ranks), WEIR_ERR_REMOTE, WEIR_ERR_MISMATCH (naming both calls),
 *            WEIR_ERR_AUTH, WEIR_ERR_VERSION, WEIR_ERR_INVALID, WEIR_ERR_LIMIT (a message of more than 1 TiB),
 *            WEIR_ERR_CORRUPT (a malformed rendezvous file or message), WEIR_ERR_NOMEM, WEIR_ERR_SYSTEM, WEIR_ERR_ENV,
 *            WEIR_ERR_FORKED. */
#ifndef WEIR_BOOTSTRAP_H
#define WEIR_BOOTSTRAP_H

#include "weir/base.h"

WEIR_BEGIN_DECLS

typedef struct weir_bootstrap weir_bootstrap;

#define WEIR_UNIQUE_ID_BYTES 256

/* Printable, NUL-terminated, fits an environment variable (WEIR_UNIQUE_ID). A secret: it carries the key. */
typedef struct weir_unique_id {
    char text[WEIR_UNIQUE_ID_BYTES];
} weir_unique_id;

typedef struct weir_bootstrap_opts {
    size_t size;
    uint32_t timeout_ms;   /* of create, and the default of every later call and of communicators, whose kernels'
                              waits take it, too; 0: 30 s, and ten minutes in kernels. WEIR_TIMEOUT_MS wins */
    const char *key;       /* secret shared by all ranks, for rendezvous by address; WEIR_KEY wins */
    const char *interface; /* name of the network interface to listen on; WEIR_INTERFACE wins; default: the
                              one that reaches rank 0 */
} weir_bootstrap_opts;

/* A broadcast among the ranks that the caller provides: `bytes` of rank `root`'s `data` reach everyone's.
 * Returns 0 on success; anything else fails the create with WEIR_ERR_SYSTEM and that number in the text. */
typedef struct weir_bootstrap_callbacks {
    int (*broadcast)(void *context, void *data, size_t bytes, uint32_t root);
    void *context;
} weir_bootstrap_callbacks;

/* A set of ranks, in ascending order, that contains the caller; NULL where a group is asked for means all. */
typedef struct weir_group {
    const uint32_t *ranks;
    uint32_t count;
} weir_group;

/* Draws a key and a port of this host. `where` is "ip", "interface", or NULL (the interface that WEIR_INTERFACE
 * names, else the first that is up and not the loopback, else the loopback). The port stays open in this
 * process until the rank 0 of the id has been created here or the id is discarded; a rank 0 in another
 * process binds it anew. */
WEIR_API WEIR_NODISCARD weir_status weir_unique_id_create(const char *where, weir_unique_id *out);

/* Gives up an id that no rank 0 of this process will use. NULL and ids already used are ignored. */
WEIR_API void weir_unique_id_discard(const weir_unique_id *id);

/* Joins `size` ranks as `rank` at `where`: a unique id's text, an address, or a file. Returns when all have joined. */
WEIR_API WEIR_NODISCARD weir_status weir_bootstrap_create(const char *where, uint32_t rank, uint32_t size,
                                                          const weir_bootstrap_opts *opts, weir_bootstrap **out);

/* The same over the caller's broadcast: rank 0 creates a unique id and broadcasts it. */
WEIR_API WEIR_NODISCARD weir_status weir_bootstrap_create_callbacks(const weir_bootstrap_callbacks *callbacks,
                                                                    uint32_t rank, uint32_t size,
                                                                    const weir_bootstrap_opts *opts,
                                                                    weir_bootstrap **out);

/* The same with rank and size from the launcher of this process (weir/launcher.h). The ranks meet at WEIR_UNIQUE_ID,
 * else through the file at WEIR_RENDEZVOUS_FILE, else at a unique id that PMIx carries, else at MASTER_ADDR and
 * WEIR_PORT (default MASTER_PORT + 1), which needs WEIR_KEY unless all ranks are of one user and MASTER_ADDR is the
 * loopback. Under PMIx every rank of the job makes this call the same number of times. WEIR_ERR_ENV without a launcher;
 * the text lists what was looked for. */
WEIR_API WEIR_NODISCARD weir_status weir_bootstrap_create_launched(const weir_bootstrap_opts *opts,
                                                                   weir_bootstrap **out);

/* Leaves. Data that was sent is delivered first, within two seconds. */
WEIR_API void weir_bootstrap_destroy(weir_bootstrap *bootstrap);

WEIR_API uint32_t weir_bootstrap_rank(const weir_bootstrap *bootstrap);
WEIR_API uint32_t weir_bootstrap_size(const weir_bootstrap *bootstrap);

/* Traffic and resources of this rank's bootstrap. */
typedef struct weir_bootstrap_usage {
    uint64_t rounds;      /* steps of collectives in which it sent or received, including those of create */
    uint64_t messages;    /* messages that it has written to sockets, of all kinds */
    uint64_t bytes;       /* of these messages */
    uint64_t connections; /* open now */
    uint64_t beats;       /* heartbeats sent, which are not counted as messages */
} weir_bootstrap_usage;

WEIR_API void weir_bootstrap_get_usage(weir_bootstrap *bootstrap, weir_bootstrap_usage *usage);

/* Sends `bytes` (0 too) to `peer` (itself too). Messages of one (peer, tag) arrive in order; tags are
 * independent and may be received in any order. */
WEIR_API WEIR_NODISCARD weir_status weir_bootstrap_send(weir_bootstrap *bootstrap, const void *data, size_t bytes,
                                                        uint32_t peer, uint64_t tag);

/* Receives the next message of (peer, tag). Unless it has `bytes` bytes, it is dropped, and the call returns
 * WEIR_ERR_MISMATCH. */
WEIR_API WEIR_NODISCARD weir_status weir_bootstrap_recv(weir_bootstrap *bootstrap, void *data, size_t bytes,
                                                        uint32_t peer, uint64_t tag);

/* Every rank of the group contributes `bytes`. Its own contribution is at `data` + position in the group * bytes; the
 * others' are filled in. Takes ceil(log2 n) steps. */
WEIR_API WEIR_NODISCARD weir_status weir_bootstrap_allgather(weir_bootstrap *bootstrap, const weir_group *group,
                                                             void *data, size_t bytes);

/* `bytes` of rank `root`'s `data` reach every rank of the group. In ceil(log2 n) steps. */
WEIR_API WEIR_NODISCARD weir_status weir_bootstrap_broadcast(weir_bootstrap *bootstrap, const weir_group *group,
                                                             void *data, size_t bytes, uint32_t root);

/* Returns when every rank of the group has called it. In ceil(log2 n) steps. */
WEIR_API WEIR_NODISCARD weir_status weir_bootstrap_barrier(weir_bootstrap *bootstrap, const weir_group *group);

WEIR_END_DECLS

#endif
