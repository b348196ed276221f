/* weir/env.h - the environment variables that weir reads: one table.
 *
 *     weir_env_row row;
 *     for (uint32_t i = 0; weir_env_get(i, &row) == WEIR_OK; i++)
 *         printf("%s=%s (%s)\n", row.name, row.value, row.help);
 *
 * A set variable takes precedence over the opts field with the same meaning. Calls that create objects
 * read all variables. A malformed value fails each of them with WEIR_ERR_ENV, and the text names variable and value.
 *
 * Threads:   any, as long as no thread changes the environment.
 * Blocking:  never.
 * Ownership: strings belong to weir and the environment.
 * Errors:    WEIR_ERR_RANGE past the last row. */
#ifndef WEIR_ENV_H
#define WEIR_ENV_H

#include "weir/base.h"

WEIR_BEGIN_DECLS

typedef struct weir_env_row {
    const char *name;     /* "WEIR_TIMEOUT_MS" */
    const char *type;     /* "u64", "timeouts", "bool", "string" */
    const char *fallback; /* the default, as text */
    const char *help;
    const char *value; /* what is set, or NULL; "(secret)" in place of a key */
} weir_env_row;

WEIR_API WEIR_NODISCARD weir_status weir_env_get(uint32_t index, weir_env_row *row);

WEIR_END_DECLS

#endif
