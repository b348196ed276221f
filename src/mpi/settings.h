/* settings.h - the settings of libweir-mpi, which are environment variables:
 *
 *     WEIR_MPI=off            every call goes straight to MPI
 *     WEIR_MPI=report         each rank prints a report at MPI_Finalize
 *     WEIR_MPI_DEVICE=cpu:0   all memory counts as this device's
 *     WEIR_MPI_FAIL=alloc:3   for tests: the third allocation, or with device:3 the third operation of a device, fails
 */
#ifndef WEIRI_MPI_SETTINGS_H
#define WEIRI_MPI_SETTINGS_H

#include <stdbool.h>

#include "src/mpi/alloc.h"

#define WEIRI_MPI_SETTINGS 3

typedef struct weiri_mpi_settings {
    bool off;
    bool report;
    char device[16]; /* "": every pointer is located */
    weiri_mpi_fault fail_kind;
    unsigned long long fail_at; /* 0: nothing fails */
    char wrong[96];             /* a value that is not understood and has no effect, with its variable; or "" */
} weiri_mpi_settings;

/* Reads the environment at the first call. */
const weiri_mpi_settings *weiri_mpi_settings_get(void);

typedef struct weiri_mpi_setting {
    const char *name;
    const char *text; /* what it does */
} weiri_mpi_setting;

/* The table that the report prints. */
extern const weiri_mpi_setting weiri_mpi_setting_rows[WEIRI_MPI_SETTINGS];
/* The value in the environment; "" if it is not set. */
const char *weiri_mpi_setting_value(const char *name);

#endif
