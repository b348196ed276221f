/* env.c - parses the variables that environ.c reads.
 *
 * The table generates the struct, the list for weir-info, and the parser of each row. The type of a row names its
 * parser (parse_u64 and so on). Ranges and words follow below. */
#include "src/host/base/env.h"

#include <string.h>

#include "src/host/base/environ.h"
#include "src/host/base/error.h"
#include "src/host/base/log.h"

#define TIMEOUT_MOST_MS 86400000u
#define VALUE_SHOWN 80 /* of a value in an error text; the cause must fit behind it */

static const weir_env_row rows[] = {
#define ENV_ROW(NAME, type, field, fallback, help) { #NAME, #type, fallback, help, NULL },
    WEIRI_ENV_TABLE(ENV_ROW)
#undef ENV_ROW
};
#define ROW_COUNT (sizeof rows / sizeof rows[0])

/* clang-format off */
static const struct {
    const char *name;
    uint64_t least;
    uint64_t most;
} ranges[] = {
    { "WEIR_CPU_THREADS", 1, 1024 },
    { "WEIR_RANK", 0, WEIR_RANKS_MAX - 1 },
    { "WEIR_SIZE", 1, WEIR_RANKS_MAX },
    { "WEIR_PORT", 1, 65535 },
    { "WEIR_STAGING", WEIRI_STAGING_LEAST, WEIRI_STAGING_MOST },
    { "WEIR_IB_GID_INDEX", 0, 255 },
    { "WEIR_IB_TIMEOUT", 1, 31 },
};
/* clang-format on */

static const char *const launch_names[] = {
#define LAUNCH_NAME(NAME) #NAME,
    WEIRI_LAUNCH_TABLE(LAUNCH_NAME)
#undef LAUNCH_NAME
};

static const char *const engines[] = { "proxy", "device", "device-only" };
static const char *const queues[] = { "verbs", "devx", "devx-only" };

/* Strings with a fixed set of words. */
static const struct {
    const char *name;
    const char *const *words;
    size_t count;
    const char *text;
} choices[] = {
    { "WEIR_LOG", weiri_log_names, WEIRI_LOG_NAMES, "error, warn, info, debug" },
    { "WEIR_PORT_ENGINE", engines, sizeof engines / sizeof engines[0], "proxy, device, device-only" },
    { "WEIR_IB_QUEUES", queues, sizeof queues / sizeof queues[0], "verbs, devx, devx-only" },
};

weir_status weir_env_get(uint32_t index, weir_env_row *row)
{
    if (row == NULL) {
        return weiri_fail_null(__func__, "row");
    }
    if (index >= ROW_COUNT) {
        return weiri_fail(WEIR_ERR_RANGE, "%s: row %u of %zu does not exist", __func__, index, ROW_COUNT);
    }
    *row = rows[index];
    row->value = weiri_environ_text(row->name);
    if (row->value != NULL && (strcmp(row->name, "WEIR_KEY") == 0 || strcmp(row->name, "WEIR_UNIQUE_ID") == 0)) {
        row->value = "(secret)";
    }
    return WEIR_OK;
}

/* Index of `text` among the words, or -1. */
static int find_word(const char *const *words, size_t count, const char *text)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(text, words[i]) == 0) {
            return (int)i;
        }
    }
    return -1;
}

/* Decimal digits up to `end`: no sign, no space, no overflow. *rest is set behind them. */
static bool is_u64(const char *text, char end, uint64_t *out, const char **rest)
{
    uint64_t v = 0;
    const char *c = text;
    for (; *c >= '0' && *c <= '9'; c++) {
        if (__builtin_mul_overflow(v, 10u, &v) || __builtin_add_overflow(v, (uint64_t)(*c - '0'), &v)) {
            return false;
        }
    }
    *out = v;
    *rest = c + 1;
    return c != text && *c == end;
}

static weir_status parse_number(const char *name, const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
    uint64_t v;
    const char *rest;
    if (!is_u64(text, '\0', &v, &rest) || v < least || v > most) {
        return weiri_fail(WEIR_ERR_ENV, "environment: %s=%.*s: not a number from %llu to %llu", name, VALUE_SHOWN, text,
                          (unsigned long long)least, (unsigned long long)most);
    }
    *out = v;
    return WEIR_OK;
}

static weir_status parse_u64(const char *name, const char *text, uint64_t *out)
{
    uint64_t least = 0;
    uint64_t most = UINT64_MAX;
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        if (strcmp(name, ranges[i].name) == 0) {
            least = ranges[i].least;
            most = ranges[i].most;
        }
    }
    if (text[0] == '\0') { /* the default of a row without one */
        *out = 0;
        return WEIR_OK;
    }
    return parse_number(name, text, least, most, out);
}

/* "30000,600000", or one number for both. */
static weir_status parse_timeouts(const char *name, const char *text, weiri_env_timeouts *out)
{
    uint64_t host = 0;
    uint64_t kernel = 0;
    const char *rest;
    const bool one = is_u64(text, '\0', &host, &rest);
    const bool two = !one && is_u64(text, ',', &host, &rest) && is_u64(rest, '\0', &kernel, &rest);
    kernel = one ? host : kernel;
    if (!(one || two) || host < 1 || host > TIMEOUT_MOST_MS || kernel < 1 || kernel > TIMEOUT_MOST_MS) {
        return weiri_fail(WEIR_ERR_ENV, "environment: %s=%.*s: not one or two numbers from 1 to %u, as in 30000,600000",
                          name, VALUE_SHOWN, text, TIMEOUT_MOST_MS);
    }
    *out = (weiri_env_timeouts){ (uint32_t)host, (uint32_t)kernel };
    return WEIR_OK;
}

static weir_status parse_bool(const char *name, const char *text, bool *out)
{
    if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0) {
        return weiri_fail(WEIR_ERR_ENV, "environment: %s=%.*s: not 0 or 1", name, VALUE_SHOWN, text);
    }
    *out = text[0] == '1';
    return WEIR_OK;
}

static weir_status parse_string(const char *name, const char *text, const char **out)
{
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        if (strcmp(name, choices[i].name) == 0 && find_word(choices[i].words, choices[i].count, text) < 0) {
            return weiri_fail(WEIR_ERR_ENV, "environment: %s=%.*s: not one of %s", name, VALUE_SHOWN, text,
                              choices[i].text);
        }
    }
    *out = text;
    return WEIR_OK;
}

/* WEIR_TEST_... belongs to the tests, WEIR_MPI and WEIR_MPI_... to libweir-mpi. */
static bool is_known(const char *entry)
{
    size_t length = strcspn(entry, "=");
    if (strncmp(entry, "WEIR_", 5) != 0 || strncmp(entry, "WEIR_TEST_", 10) == 0 ||
        strncmp(entry, "WEIR_MPI=", 9) == 0 || strncmp(entry, "WEIR_MPI_", 9) == 0) {
        return true;
    }
    for (size_t i = 0; i < ROW_COUNT; i++) {
        if (strlen(rows[i].name) == length && strncmp(entry, rows[i].name, length) == 0) {
            return true;
        }
    }
    return false;
}

/* Warns once a process: a misspelt name would otherwise be ignored. */
static void warn_unknown(void)
{
    static bool warned;
    if (__atomic_exchange_n(&warned, true, __ATOMIC_RELAXED)) {
        return;
    }
    const char *entry;
    for (uint32_t i = 0; (entry = weiri_environ_at(i)) != NULL; i++) {
        if (!is_known(entry)) {
            weiri_log(WEIR_LOG_WARN, "environment: %.*s is set, but weir has no such variable",
                      (int)strcspn(entry, "="), entry);
        }
    }
}

weir_status weiri_env_read(weiri_env *out)
{
    weiri_env env = { 0 };
    weir_status status = WEIR_OK;
    warn_unknown();
#define ENV_READ(NAME, type, field, fallback, help)                               \
    if (status == WEIR_OK) {                                                      \
        const char *text = weiri_environ_text(#NAME);                             \
        env.field##_set = text != NULL;                                           \
        status = parse_##type(#NAME, text != NULL ? text : fallback, &env.field); \
    }
    WEIRI_ENV_TABLE(ENV_READ)
#undef ENV_READ
    if (status != WEIR_OK) {
        return status;
    }
    *out = env;
    return WEIR_OK;
}

const char *weiri_env_launch_name(weiri_launch_variable variable) { return launch_names[variable]; }

const char *weiri_env_launch_text(weiri_launch_variable variable) { return weiri_environ_text(launch_names[variable]); }

weir_status weiri_env_launch_number(weiri_launch_variable variable, uint64_t least, uint64_t most, uint64_t *out)
{
    const char *text = weiri_env_launch_text(variable);
    if (text == NULL) {
        return weiri_fail(WEIR_ERR_ENV, "environment: %s is not set", launch_names[variable]);
    }
    return parse_number(launch_names[variable], text, least, most, out);
}

weiri_engine weiri_env_engine(const weiri_env *env)
{
    return (weiri_engine)find_word(engines, sizeof engines / sizeof engines[0], env->port_engine);
}

weiri_queues weiri_env_queues(const weiri_env *env)
{
    return (weiri_queues)find_word(queues, sizeof queues / sizeof queues[0], env->ib_queues);
}

uint32_t weiri_env_timeout(const weiri_env *env, uint32_t opts_ms)
{
    return !env->timeouts_set && opts_ms != 0 ? opts_ms : env->timeouts.host_ms;
}

uint32_t weiri_env_kernel_timeout(const weiri_env *env, uint32_t opts_ms)
{
    return !env->timeouts_set && opts_ms != 0 ? opts_ms : env->timeouts.kernel_ms;
}

const char *weiri_env_interface(const weiri_env *env, const char *opts_name)
{
    return env->interface[0] != '\0' ? env->interface : opts_name != NULL ? opts_name : "";
}
