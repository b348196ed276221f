/* exchange.h - operations between two ranks of a communicator: sequences, messages and futures.
 *
 * Each (peer, tag) has a sequence: the messages that arrived and the futures that expect one, each in order. The i-th
 * message belongs to the i-th future. The service thread gives the message to its future, asks the owners of the
 * handles in the message (fd_pass.h), and makes the future ready. The caller's thread then finishes it, since that maps
 * memory. */
#ifndef WEIRI_COMM_EXCHANGE_H
#define WEIRI_COMM_EXCHANGE_H

#include "src/host/comm/memory.h"
#include "weir/future.h"

typedef enum weiri_op {
    WEIRI_OP_MEMORY = 1,
    WEIRI_OP_CONNECTION = 2,
    WEIRI_OP_SEMAPHORE = 3,
    WEIRI_OP_TEAM = 4,
    WEIRI_OP_MEMORY_CHANNEL = 5,
    WEIRI_OP_PORT_CHANNEL = 6,
    WEIRI_OP_TRANSFERS = 7,
    WEIRI_OP_SLOTS = 8,
    WEIRI_OP_IMPORT = 9 /* without a message */
} weiri_op;

/* The create and register calls of collectives, windows and halos, and transfers that meet, consist of operations
 * between two ranks, with these tags. */
#define WEIRI_TAG_COLLECTIVE 0x636f6c6c65637469u
#define WEIRI_TAG_RAILS 0x7261696c73u
#define WEIRI_TAG_WINDOW 0x77696e646f77u
#define WEIRI_TAG_HALO 0x68616c6fu
/* Of one collective: they differ by its memory. */
#define WEIRI_TAG_TRANSFERS 0x7472616e73666572u
#define WEIRI_TAG_SLOTS 0x736c6f7473u

#define WEIRI_PAYLOAD_MAX 328 /* of an operation's own fields, beside its handles */
#define WEIRI_HANDLES_MAX 2

typedef enum weiri_future_state {
    WEIRI_FUTURE_WAITING = 0,   /* for the peer's message */
    WEIRI_FUTURE_RESOLVING = 1, /* for the owners of the handles that came with it */
    WEIRI_FUTURE_READY = 2,     /* to be finished by the caller */
    WEIRI_FUTURE_DONE = 3
} weiri_future_state;

typedef struct weiri_sequence weiri_sequence;

/* The state of a communicator. Its mutex guards this. */
typedef struct weiri_exchange_state {
    bool open; /* the port */
    weiri_sequence *sequences;
} weiri_exchange_state;

struct weir_future {
    weir_comm *comm; /* a reference, while the caller owns the future */
    weiri_op op;
    uint32_t peer;
    uint64_t tag;
    uint64_t number; /* in its sequence */
    weiri_future_state state;
    bool abandoned; /* destroyed by the caller; kept for its place in the sequence */
    bool in_sequence;
    bool asked;         /* the peer knows that this rank waits */
    uint64_t made_ns;   /* when the future was made */
    weir_status status; /* when READY or DONE */
    char text[256];
    uint8_t payload[WEIRI_PAYLOAD_MAX];
    size_t payload_bytes;
    weiri_handle handles[WEIRI_HANDLES_MAX];
    int fds[WEIRI_HANDLES_MAX];
    uint32_t handle_count;
    uint32_t unresolved; /* handles whose owner has not answered */
    /* Makes the result of a future that is ready with WEIR_OK and sets the caller's output; takes over
     * `context` when it succeeds. Caller's thread, mutex not held. */
    weir_status (*finish)(weir_future *future);
    /* Destroys `context` of a future that will not be finished. Caller's thread, mutex not held. */
    void (*discard)(void *context);
    void *context;
    void *out;
    weir_future *next; /* in its sequence */
};

/* The message of an operation. */
typedef struct weiri_op_message {
    weiri_op op;
    const uint8_t *payload;
    size_t payload_bytes;
    weir_memory *handles[WEIRI_HANDLES_MAX];
    uint32_t handle_count;
} weiri_op_message;

/* Sends `message` as the next of (peer, tag). Waits only if the peer is gone: up to a second for the news of why. */
weir_status weiri_exchange_send(weir_comm *comm, uint32_t peer, uint64_t tag, const weiri_op_message *message);
/* Expects the next message of (peer, tag), of kind `op`. On failure `context` stays the caller's. */
weir_status weiri_exchange_expect(weir_comm *comm, uint32_t peer, uint64_t tag, weiri_op op,
                                  weir_status (*finish)(weir_future *), void (*discard)(void *), void *context,
                                  void *out, weir_future **future);
/* A future for one handle that is here already. */
weir_status weiri_exchange_import(weir_comm *comm, const weiri_handle *handle, weir_status (*finish)(weir_future *),
                                  void *out, weir_future **future);
/* The blocking form of any ..._async call: waits for `future` with the communicator's timeout, destroys it. */
weir_status weiri_exchange_complete(weir_future *future);

/* Opens the communicator's port. The service thread handles its messages until close. Close also reports the end to
 * ranks that may still wait for this one. */
weir_status weiri_exchange_open(weir_comm *comm);
void weiri_exchange_close(weir_comm *comm);
/* Ends the communicator on all other ranks; see weiri_comm_break_locked. */
void weiri_exchange_abort(weir_comm *comm, weir_status status, const char *cause);

/* Fails all futures that wait: of all peers, or of `peer` alone. Mutex held. */
void weiri_exchange_fail_locked(weir_comm *comm, bool all, uint32_t peer, weir_status status, const char *text);
/* Frees the sequences, with the futures that were abandoned in them. No callback runs any more. */
void weiri_exchange_free(weir_comm *comm);

/* The answer of the owner of handle `index` of a future that resolves; `fd`, -1 without one, is taken over. Mutex
 * held. */
void weiri_exchange_resolved_locked(weir_future *future, uint32_t index, weir_status status, const char *text, int fd);

#endif
