/* weir/log.h - events that weir reports outside of return values.
 *
 * A failure is returned to the caller with its text in weir_last_error and is not logged. The log has events that no
 * call returns: a peer that died, a foreign connection, a fallback that was taken. It goes to standard error,
 * one line an event ("weir: warn: ..."), or to a sink of the user's. The level comes from WEIR_LOG.
 *
 * At level info weir also logs what it has chosen, and why, once for each choice: for a pair of ranks the transport
 * of their first connection and the engine of their first port channel; for an operation of all ranks the form, blocks
 * and threads of its first call in each form.
 *
 * Threads:   any. A sink is called by any thread, one call at a time, and must not call weir.
 * Blocking:  no longer than the sink.
 * Ownership: `text` is valid only during the call.
 * Errors:    none. */
#ifndef WEIR_LOG_H
#define WEIR_LOG_H

#include "weir/base.h"

WEIR_BEGIN_DECLS

typedef enum weir_log_level {
    WEIR_LOG_ERROR = 0,
    WEIR_LOG_WARN = 1,
    WEIR_LOG_INFO = 2,
    WEIR_LOG_DEBUG = 3
} weir_log_level;

typedef void (*weir_log_sink)(void *context, weir_log_level level, const char *text);

/* Sends log lines to `sink`; NULL restores standard error. */
WEIR_API void weir_log_set_sink(weir_log_sink sink, void *context);

WEIR_END_DECLS

#endif
