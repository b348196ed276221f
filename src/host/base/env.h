/* env.h - the environment variables as one struct; see environ.h for their texts. */
#ifndef WEIRI_ENV_H
#define WEIRI_ENV_H

#include "src/host/base/env_table.h"
#include "weir/env.h"
#include "weir/log.h"

/* Fewest and most bytes of a collective's staging, in WEIR_STAGING and in opts. */
#define WEIRI_STAGING_LEAST ((uint64_t)128 << 10)
#define WEIRI_STAGING_MOST ((uint64_t)64 << 30)

typedef uint64_t weiri_env_u64;
typedef bool weiri_env_bool;
typedef const char *weiri_env_string;

typedef struct weiri_env_timeouts {
    uint32_t host_ms;   /* of set-up and of waits of the host */
    uint32_t kernel_ms; /* of waits in kernels, and of streams */
} weiri_env_timeouts;

/* The value of each row, and whether the variable is set and therefore wins over opts. An empty variable counts as
 * unset. */
typedef struct weiri_env {
#define WEIRI_ENV_FIELD(NAME, type, field, fallback, help) \
    weiri_env_##type field;                                \
    bool field##_set;
    WEIRI_ENV_TABLE(WEIRI_ENV_FIELD)
#undef WEIRI_ENV_FIELD
} weiri_env;

/* The words of WEIR_PORT_ENGINE, which chooses the engine that posts the transfers of kernels. */
typedef enum weiri_engine {
    WEIRI_ENGINE_PROXY,
    WEIRI_ENGINE_DEVICE,     /* the kernels where they can, otherwise the proxy */
    WEIRI_ENGINE_DEVICE_ONLY /* an error where they cannot */
} weiri_engine;

/* The words of WEIR_IB_QUEUES, which chooses how the queues that kernels post to are made. */
typedef enum weiri_queues {
    WEIRI_QUEUES_VERBS,
    WEIRI_QUEUES_DEVX,     /* commands of the firmware where that works, otherwise verbs */
    WEIRI_QUEUES_DEVX_ONLY /* no queues where it does not */
} weiri_queues;

/* The variables of launchers. */
typedef enum weiri_launch_variable {
#define WEIRI_LAUNCH_VARIABLE(NAME) WEIRI_LAUNCH_##NAME,
    WEIRI_LAUNCH_TABLE(WEIRI_LAUNCH_VARIABLE)
#undef WEIRI_LAUNCH_VARIABLE
        WEIRI_LAUNCH_COUNT
} weiri_launch_variable;

const char *weiri_env_launch_name(weiri_launch_variable variable);
/* The text of the variable; NULL when it is unset or empty. */
const char *weiri_env_launch_text(weiri_launch_variable variable);
/* The number in the variable, `least` to `most`. WEIR_ERR_ENV, naming variable and value, also when it is unset. */
weir_status weiri_env_launch_number(weiri_launch_variable variable, uint64_t least, uint64_t most, uint64_t *out);

/* Reads all rows. WEIR_ERR_ENV, naming variable and value, when one is malformed or out of range. Strings point into
 * the environment. */
weir_status weiri_env_read(weiri_env *out);

weiri_engine weiri_env_engine(const weiri_env *env);
weiri_queues weiri_env_queues(const weiri_env *env);

/* The timeout of waits on the host, and of waits in kernels: the variable if it is set, else `opts_ms` if not 0, else
 * the default. */
uint32_t weiri_env_timeout(const weiri_env *env, uint32_t opts_ms);
uint32_t weiri_env_kernel_timeout(const weiri_env *env, uint32_t opts_ms);
/* The interface of the bootstrap: WEIR_INTERFACE, else `opts_name`, which may be NULL, else "". */
const char *weiri_env_interface(const weiri_env *env, const char *opts_name);

#endif
