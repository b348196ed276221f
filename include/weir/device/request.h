/* weir/device/request.h - the type of a request to a port channel: a verb and modifiers.
 *
 * The type of a request is one verb or none, and any modifiers. WEIR_REQUEST_PUT | WEIR_REQUEST_SIGNAL is a put
 * followed by a signal. The two tables below define all of them. A new verb or modifier is a new row, and two bodies of
 * its name: one for the proxy (src/host/channel/port_channel.c), one for kernels that post
 * (weir/device/impl/port_rdma.h).
 *
 * The table in weir/device/port_channel.h says what each request guarantees, and when.
 *
 * Threads:   any. Nothing here blocks or changes memory. */
#ifndef WEIR_DEVICE_REQUEST_H
#define WEIR_DEVICE_REQUEST_H

#include "weir/device/arch.h"
#include "weir/device/types.h"

/* Verbs: X(name, text, check), at most 14. Errors show `text`. `check` is the condition on the fields:
 *
 *   MOVE   `bytes` from offset to offset, within remote and local
 *   VALUE  `bytes`, 1 to 8, at remote_offset, within remote and not over an 8-byte boundary
 *   ADD    8 bytes at remote_offset, a multiple of 8, within a remote memory that supports adds */
#define WEIR_REQUEST_VERBS(X)                                                                  \
    X(PUT, "put", MOVE)      /* `bytes` from local + local_offset to remote + remote_offset */ \
    X(GET, "get", MOVE)      /* `bytes` from remote + remote_offset to local + local_offset */ \
    X(VALUE, "value", VALUE) /* the low `bytes` of `value` to remote + remote_offset */        \
    X(ADD, "add", ADD)       /* `value` to the 8-byte word at remote + remote_offset */

/* Modifiers, in the order in which they follow the verb: X(name, text), at most 8. */
#define WEIR_REQUEST_MODIFIERS(X)                  \
    X(SIGNAL, "signal") /* a signal to the peer */ \
    X(FLUSH, "flush")   /* the ticket covers all earlier requests, too */

#define WEIR_REQUEST_VERB 15u /* the bits of a type that hold its verb */

/* The ids of a port channel's own memories, for the fields `remote` and `local` of a request. */
#define WEIR_PORT_REMOTE 0u
#define WEIR_PORT_LOCAL 1u

/* The ticket of a call that made no request: it is done. */
#define WEIR_TICKET_DONE UINT64_MAX

/* Positions of modifiers in their table. */
enum {
#define WEIR_REQUEST_ROW(name, text) WEIR_REQUEST_INDEX_##name,
    WEIR_REQUEST_MODIFIERS(WEIR_REQUEST_ROW)
#undef WEIR_REQUEST_ROW
        WEIR_REQUEST_MODIFIER_COUNT
};

enum {
    WEIR_REQUEST_NONE = 0, /* no verb */
#define WEIR_REQUEST_ROW(name, text, check) WEIR_REQUEST_##name,
    WEIR_REQUEST_VERBS(WEIR_REQUEST_ROW)
#undef WEIR_REQUEST_ROW
        WEIR_REQUEST_VERBS_END,
#define WEIR_REQUEST_ROW(name, text) WEIR_REQUEST_##name = 16 << WEIR_REQUEST_INDEX_##name,
    WEIR_REQUEST_MODIFIERS(WEIR_REQUEST_ROW)
#undef WEIR_REQUEST_ROW
        WEIR_REQUEST_PUT_SIGNAL = WEIR_REQUEST_PUT | WEIR_REQUEST_SIGNAL,
    WEIR_REQUEST_PUT_SIGNAL_FLUSH = WEIR_REQUEST_PUT_SIGNAL | WEIR_REQUEST_FLUSH,
    WEIR_REQUEST_TYPES = 16 << WEIR_REQUEST_MODIFIER_COUNT, /* types from here to WEIR_REQUEST_USER are errors */
    WEIR_REQUEST_USER = 4096 /* this type and all above it are the user's; so are the request's fields */
};

WEIR_STATIC_ASSERT(WEIR_REQUEST_VERBS_END <= 16 && WEIR_REQUEST_TYPES <= WEIR_REQUEST_USER, "too many requests");

#endif
