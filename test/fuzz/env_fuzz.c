/* env_fuzz.c - values of environment variables: every row of the table and every variable of a launcher, alone and
 * together.
 *
 * An accepted value must match a second parser here; a refusal must name its variable. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/host/base/env.h"
#include "src/host/base/log.h"
#include "test/fuzz/fuzz.h"
#include "weir/launcher.h"

#define TEXT_MAX 128
#define SETS_MAX 6

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

static void check_timeouts(const char *name, weiri_env_timeouts value)
{
    const char *text = getenv(name);
    unsigned long long host = 0;
    unsigned long long kernel = 0;
    if (text != NULL && text[0] != '\0') {
        const int count = sscanf(text, "%llu,%llu", &host, &kernel);
        FUZZ_CHECK(count >= 1 && host == value.host_ms && (count == 1 ? host : kernel) == value.kernel_ms);
        FUZZ_CHECK(strspn(text, "0123456789,") == strlen(text));
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
    FUZZ_CHECK(env->timeouts.host_ms >= 1 && env->timeouts.host_ms <= 86400000);
    FUZZ_CHECK(env->timeouts.kernel_ms >= 1 && env->timeouts.kernel_ms <= 86400000);
    FUZZ_CHECK(env->cpu_threads >= 1 && env->cpu_threads <= 1024);
    FUZZ_CHECK(weiri_env_timeout(env, 7) == (env->timeouts_set ? env->timeouts.host_ms : 7));
    FUZZ_CHECK(weiri_env_kernel_timeout(env, 7) == (env->timeouts_set ? env->timeouts.kernel_ms : 7));
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

/* Row `index` of the table, or of the launchers' variables after it. */
static const char *name_of(uint32_t index, uint32_t rows)
{
    weir_env_row row;
    if (index < rows) {
        FUZZ_CHECK(weir_env_get(index, &row) == WEIR_OK);
        return row.name;
    }
    return weiri_env_launch_name((weiri_launch_variable)(index - rows));
}

static void check_launcher(void)
{
    weir_launcher_info info;
    const weir_status status = weir_launcher_get(&info);
    fuzz_check_status(status);
    if (status == WEIR_OK) {
        const uint32_t local_most = info.local_size != 0 ? info.local_size : info.size;
        FUZZ_CHECK(memchr(info.source, '\0', sizeof info.source) != NULL && info.source[0] != '\0');
        FUZZ_CHECK(info.size == 0 || (info.size <= WEIR_RANKS_MAX && info.rank < info.size));
        FUZZ_CHECK(info.local_size <= info.size && (info.size == 0 || info.local_rank < local_most));
    } else {
        FUZZ_CHECK(status == WEIR_ERR_ENV);
    }
}

void fuzz_one(fuzz_input *in)
{
    const uint32_t rows = count_rows();
    const uint32_t names = rows + WEIRI_LAUNCH_COUNT;
    for (int i = 0; i < SETS_MAX && !fuzz_end(in); i++) {
        char text[TEXT_MAX];
        const uint32_t index = fuzz_u8(in) % names;
        fuzz_text(in, text, sizeof text);
        /* With both variables of PMIx, a thread would query a launcher's server. */
        if (index != rows + WEIRI_LAUNCH_PMIX_NAMESPACE) {
            FUZZ_CHECK(setenv(name_of(index, rows), text, 1) == 0);
        }
    }
    FUZZ_CHECK(weiri_log_read_level() <= WEIR_LOG_DEBUG);
    check_launcher();
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
    for (uint32_t i = 0; i < names; i++) {
        FUZZ_CHECK(unsetenv(name_of(i, rows)) == 0);
    }
}

/* Adds `name=value` to a seed. */
static size_t add(char *seed, size_t at, uint32_t index, const char *value)
{
    seed[at] = (char)index;
    memcpy(seed + at + 1, value, strlen(value) + 1);
    return at + 1 + strlen(value) + 1;
}

void fuzz_seeds(void)
{
    static const char *const values[] = { "30000", "1", "0", "warn", "", "18446744073709551616", "a,b" };
    static const weiri_launch_variable launchers[][4] = {
        { WEIRI_LAUNCH_MASTER_ADDR, WEIRI_LAUNCH_WORLD_SIZE, WEIRI_LAUNCH_RANK, WEIRI_LAUNCH_LOCAL_RANK },
        { WEIRI_LAUNCH_OMPI_COMM_WORLD_LOCAL_SIZE, WEIRI_LAUNCH_OMPI_COMM_WORLD_SIZE, WEIRI_LAUNCH_OMPI_COMM_WORLD_RANK,
          WEIRI_LAUNCH_OMPI_COMM_WORLD_LOCAL_RANK },
        { WEIRI_LAUNCH_SLURM_LOCALID, WEIRI_LAUNCH_SLURM_STEP_NUM_TASKS, WEIRI_LAUNCH_SLURM_PROCID, WEIRI_LAUNCH_RANK },
    };
    const uint32_t rows = count_rows();
    char seed[256];
    for (uint32_t i = 0; i < rows; i++) {
        fuzz_seed(seed, add(seed, 0, i, values[i % (sizeof values / sizeof values[0])]));
    }
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
        size_t at = 0;
        for (int k = 0; k < 4; k++) {
            at = add(seed, at, rows + launchers[i][k], k == 0 ? "1" : k == 1 ? "4" : "2");
        }
        fuzz_seed(seed, at);
    }
}
