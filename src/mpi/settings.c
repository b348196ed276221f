/* settings.c - reads the settings. The only file of the library that reads the environment. */
#include "src/mpi/settings.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static weiri_mpi_settings settings;
static pthread_once_t once = PTHREAD_ONCE_INIT;

const weiri_mpi_setting weiri_mpi_setting_rows[WEIRI_MPI_SETTINGS] = {
    { "WEIR_MPI", "off: every call goes straight to MPI; report: print a report at MPI_Finalize" },
    { "WEIR_MPI_DEVICE", "the device whose memory all memory is taken for, for tests" },
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

static bool read_fail(const char *value)
{
    static const char *const kinds[WEIRI_MPI_FAULTS] = { "alloc:", "device:", "open:" };
    const bool each = strncmp(value, "each-", 5) == 0;
    value += each ? 5 : 0;
    for (int kind = 0; kind < WEIRI_MPI_FAULTS; kind++) {
        char *end = NULL;
        const char *number = value + strlen(kinds[kind]);
        if (strncmp(value, kinds[kind], strlen(kinds[kind])) != 0) {
            continue;
        }
        errno = 0;
        const unsigned long long at = strtoull(number, &end, 10);
        if (end == number || *end != '\0' || errno != 0) {
            return false;
        }
        settings.fail_kind = (weiri_mpi_fault)kind;
        settings.fail_each = each;
        settings.fail_at = at;
        return true;
    }
    return false;
}

static void read_settings(void)
{
    const char *mode = weiri_mpi_setting_value("WEIR_MPI");
    const char *device = weiri_mpi_setting_value("WEIR_MPI_DEVICE");
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
    if (fail[0] != '\0' && !read_fail(fail)) {
        set_wrong("WEIR_MPI_FAIL", fail);
    }
}

const weiri_mpi_settings *weiri_mpi_settings_get(void)
{
    (void)pthread_once(&once, read_settings);
    return &settings;
}
