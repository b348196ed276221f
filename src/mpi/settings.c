/* settings.c - reads the settings. The only file of the library that reads the environment. */
#include "src/mpi/settings.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_RUN ((uint64_t)1 << 30) /* of the runs of long messages: a count of bytes that an int holds */

static weiri_mpi_settings settings;
static pthread_once_t once = PTHREAD_ONCE_INIT;

const weiri_mpi_setting weiri_mpi_setting_rows[WEIRI_MPI_SETTINGS] = {
    { "WEIR_MPI", "off: every call goes straight to MPI; report: print a report at MPI_Finalize" },
    { "WEIR_MPI_DEVICE", "the device whose memory all memory is taken for, for tests" },
    { "WEIR_MPI_RUN", "the most bytes of a message that is not cut into runs, for tests" },
    { "WEIR_MPI_FAIL", "alloc:N, device:N or open:N, or each-alloc:N and so on: the N-th one fails, for tests" },
};

const char *weiri_mpi_setting_value(const char *name)
{
    const char *value = getenv(name);
    return value != NULL ? value : "";
}

static void set_wrong(const char *name, const char *value)
{
    (void)snprintf(settings.wrong, sizeof settings.wrong, "%s=%.40s is not understood and has no effect", name, value);
}

static bool read_number(const char *text, uint64_t *out)
{
    char *end = NULL;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0) {
        return false;
    }
    *out = value;
    return true;
}

static bool read_run(const char *value)
{
    uint64_t run = 0;
    if (!read_number(value, &run) || run == 0 || run > MOST_RUN) {
        return false;
    }
    settings.run = run;
    return true;
}

static bool read_fail(const char *value)
{
    static const char *const kinds[WEIRI_MPI_FAULTS] = { "alloc:", "device:", "open:" };
    const bool each = strncmp(value, "each-", 5) == 0;
    value += each ? 5 : 0;
    for (int kind = 0; kind < WEIRI_MPI_FAULTS; kind++) {
        const size_t length = strlen(kinds[kind]);
        if (strncmp(value, kinds[kind], length) == 0) {
            settings.fail_kind = (weiri_mpi_fault)kind;
            settings.fail_each = each;
            return read_number(value + length, &settings.fail_at);
        }
    }
    return false;
}

static void read_settings(void)
{
    const char *mode = weiri_mpi_setting_value("WEIR_MPI");
    const char *device = weiri_mpi_setting_value("WEIR_MPI_DEVICE");
    const char *run = weiri_mpi_setting_value("WEIR_MPI_RUN");
    const char *fail = weiri_mpi_setting_value("WEIR_MPI_FAIL");
    settings.off = strcmp(mode, "off") == 0;
    settings.report = strcmp(mode, "report") == 0;
    if (!settings.off && !settings.report && mode[0] != '\0') {
        set_wrong("WEIR_MPI", mode);
    }
    if (strlen(device) < sizeof settings.device) {
        memcpy(settings.device, device, strlen(device) + 1);
    } else {
        set_wrong("WEIR_MPI_DEVICE", device);
    }
    settings.run = MOST_RUN;
    if (run[0] != '\0' && !read_run(run)) {
        set_wrong("WEIR_MPI_RUN", run);
    }
    if (fail[0] != '\0' && !read_fail(fail)) {
        set_wrong("WEIR_MPI_FAIL", fail);
    }
}

const weiri_mpi_settings *weiri_mpi_settings_get(void)
{
    (void)pthread_once(&once, read_settings);
    return &settings;
}
