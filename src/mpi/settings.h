/* settings.h - the settings of libweir-mpi, which are environment variables:
 *
 *     WEIR_MPI=off            every call goes straight to MPI
 *     WEIR_MPI=report         each rank prints a report at MPI_Finalize
 *     WEIR_MPI_DEVICE=cpu:0   all memory counts as this device's
 *     WEIR_MPI_RUN=100        for tests: a message of more than 100 bytes is one item of runs of 100 bytes
 *     WEIR_MPI_FAIL=alloc:3   for tests: the third allocation fails
 *
 * WEIR_MPI_FAIL=device:3 lets the third operation of a device fail, and open:3 the third opening of a device.
 * each-alloc:3 and so on count in each wrapped call.
 */
#ifndef WEIRI_MPI_SETTINGS_H
#define WEIRI_MPI_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "src/mpi/alloc.h"

#define WEIRI_MPI_SETTINGS 4

typedef struct weiri_mpi_settings {
    bool off;
    bool report;
    char device[16]; /* "": every pointer is located */
    weiri_mpi_fault fail_kind;
    bool fail_each;   /* `fail_at` counts in each wrapped call */
    uint64_t fail_at; /* 0: nothing fails */
    uint64_t run;     /* 2^30 at most, and without the variable */
    char wrong[96];   /* a value that is not understood and has no effect, with its variable; or "" */
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
