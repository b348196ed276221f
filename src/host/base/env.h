/* env.h - the environment as one struct; env.c is the only caller of getenv. */
#ifndef WEIRI_ENV_H
#define WEIRI_ENV_H

#include "src/host/base/env_table.h"
#include "weir/env.h"
#include "weir/log.h"

typedef uint64_t weiri_env_u64;
typedef bool weiri_env_bool;
typedef const char *weiri_env_string;

/* The value of each row, and whether the variable is set (and so wins over opts). */
typedef struct weiri_env {
#define WEIRI_ENV_FIELD(NAME, type, field, fallback, help) \
    weiri_env_##type field;                                \
    bool field##_set;
    WEIRI_ENV_TABLE(WEIRI_ENV_FIELD)
#undef WEIRI_ENV_FIELD
} weiri_env;

/* Reads all rows; WEIR_ERR_ENV naming variable and value for a malformed or out-of-range one. Strings point
 * into the environment. */
weir_status weiri_env_read(weiri_env *out);

/* The timeout that results from environment and opts: the set variable, else `opts_ms` if not 0, else the
 * default. */
uint32_t weiri_env_timeout(const weiri_env *env, uint32_t opts_ms);

/* The level of WEIR_LOG alone; warn when it is malformed, which weiri_env_read reports. */
weir_log_level weiri_env_log_level(void);

#endif
