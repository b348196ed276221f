/* env_fuzz.c - values of environment variables: every row of the table, alone and together.
 *
 * What is accepted must be what the text says, read here in another way; what is refused must be named. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/host/base/env.h"
#include "test/fuzz/fuzz.h"

#define TEXT_MAX 128
#define SETS_MAX 4

static bool reads_u64(const char *text, uint64_t *value)
{
    if (text[0] == '\0' || strspn(text, "0123456789") != strlen(text)) {
        return false;
    }
    errno = 0;
    *value = strtoull(text, NULL, 10);
    return errno == 0;
}

static void check_u64(const char *name, uint64_t value)
{
    const char *text = getenv(name);
    uint64_t expected = 0;
    if (text != NULL && text[0] != '\0') {
        FUZZ_CHECK(reads_u64(text, &expected) && expected == value);
    }
}

static void check_bool(const char *name, bool value)
{
    const char *text = getenv(name);
    FUZZ_CHECK(text == NULL || text[0] == '\0' || strcmp(text, value ? "1" : "0") == 0);
}

static void check_string(const char *name, const char *value)
{
    const char *text = getenv(name);
    FUZZ_CHECK(value != NULL && (text == NULL || text[0] == '\0' || strcmp(text, value) == 0));
}

static void check_accepted(const weiri_env *env)
{
#define CHECK_ROW(NAME, type, field, fallback, help) check_##type(#NAME, env->field);
    WEIRI_ENV_TABLE(CHECK_ROW)
#undef CHECK_ROW
    FUZZ_CHECK(env->timeout_ms >= 1 && env->timeout_ms <= 86400000);
    FUZZ_CHECK(env->cpu_threads >= 1 && env->cpu_threads <= 1024);
    FUZZ_CHECK(weiri_env_timeout(env, 7) == (env->timeout_ms_set ? env->timeout_ms : 7));
}

/* The text of a refusal names a variable that is set. */
static void check_refused(uint32_t rows)
{
    bool named = false;
    for (uint32_t i = 0; i < rows; i++) {
        weir_env_row row;
        FUZZ_CHECK(weir_env_get(i, &row) == WEIR_OK);
        named = named || (row.value != NULL && strstr(weir_last_error(), row.name) != NULL);
    }
    FUZZ_CHECK(named);
}

static uint32_t count_rows(void)
{
    weir_env_row row;
    uint32_t rows = 0;
    while (weir_env_get(rows, &row) == WEIR_OK) {
        rows++;
    }
    return rows;
}

void fuzz_one(fuzz_input *in)
{
    const uint32_t rows = count_rows();
    weir_env_row row;
    for (int i = 0; i < SETS_MAX && !fuzz_end(in); i++) {
        char text[TEXT_MAX];
        FUZZ_CHECK(weir_env_get(fuzz_u8(in) % rows, &row) == WEIR_OK);
        fuzz_text(in, text, sizeof text);
        FUZZ_CHECK(setenv(row.name, text, 1) == 0);
        FUZZ_CHECK(weiri_env_log_level() <= WEIR_LOG_DEBUG);
        FUZZ_CHECK(weir_env_get(0, &row) == WEIR_OK);
    }
    weiri_env env;
    memset(&env, 0x5a, sizeof env);
    const weiri_env before = env;
    const weir_status status = weiri_env_read(&env);
    fuzz_check_status(status);
    if (status == WEIR_OK) {
        check_accepted(&env);
    } else {
        FUZZ_CHECK(status == WEIR_ERR_ENV);
        FUZZ_CHECK(memcmp(&env, &before, sizeof env) == 0);
        check_refused(rows);
    }
    for (uint32_t i = 0; i < rows; i++) {
        FUZZ_CHECK(weir_env_get(i, &row) == WEIR_OK);
        FUZZ_CHECK(unsetenv(row.name) == 0);
    }
}

void fuzz_seeds(void)
{
    static const char *const values[] = { "30000", "1", "0", "warn", "", "18446744073709551616", "a,b" };
    const uint32_t rows = count_rows();
    for (uint32_t i = 0; i < rows; i++) {
        char seed[64];
        const char *value = values[i % (sizeof values / sizeof values[0])];
        const int size = snprintf(seed, sizeof seed, "%c%s", (int)i, value);
        fuzz_seed(seed, (size_t)size + 1);
    }
}
