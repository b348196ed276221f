/* report.h - counts what the library does, logs each reason for a fallback once, and prints the report. */
#ifndef WEIRI_MPI_REPORT_H
#define WEIRI_MPI_REPORT_H

#include <stdbool.h>
#include <stdint.h>

/* The wrapped calls that have data. */
typedef enum weiri_mpi_call {
    WEIRI_MPI_PACK,
    WEIRI_MPI_UNPACK,
    WEIRI_MPI_SEND,
    WEIRI_MPI_SSEND,
    WEIRI_MPI_ISEND,
    WEIRI_MPI_RECV,
    WEIRI_MPI_IRECV,
    WEIRI_MPI_SENDRECV,
    WEIRI_MPI_SEND_INIT,
    WEIRI_MPI_RECV_INIT,
    WEIRI_MPI_CALLS
} weiri_mpi_call;

/* How the data of a buffer went. */
typedef enum weiri_mpi_carry {
    WEIRI_MPI_ONE_SHOT,  /* a kernel that reads or writes host memory */
    WEIRI_MPI_ON_DEVICE, /* a kernel whose both sides are the device's memory */
    WEIRI_MPI_BY_HOST,   /* copied to the host and handled by MPI there */
    WEIRI_MPI_BY_MPI,    /* MPI did it with the buffer of the program */
    WEIRI_MPI_CARRIES
} weiri_mpi_carry;

/* Why a buffer went otherwise than by a kernel. */
typedef enum weiri_mpi_reason {
    WEIRI_MPI_HOST_MEMORY, /* the ordinary case of programs without GPUs: not logged, as the next two */
    WEIRI_MPI_NO_BYTES,
    WEIRI_MPI_LEFT_TO_MPI, /* arguments that MPI refuses or ignores */
    WEIRI_MPI_TYPE,
    WEIRI_MPI_NO_DEVICE,
    WEIRI_MPI_NO_MEMORY,
    WEIRI_MPI_NO_KERNEL,
    WEIRI_MPI_TOO_LARGE,
    WEIRI_MPI_NO_COPY,
    WEIRI_MPI_SETTING,
    WEIRI_MPI_REASONS
} weiri_mpi_reason;

/* Calls and bytes are counted only if a report is printed at the end. */
void weiri_mpi_count_call(weiri_mpi_call call);
void weiri_mpi_count(weiri_mpi_call call, weiri_mpi_carry carry, uint64_t bytes);
/* `detail` is added to the line of the log; NULL: nothing. */
void weiri_mpi_explain(weiri_mpi_reason reason, const char *detail);
/* Before all others; `rank` is for the lines of the log. */
void weiri_mpi_report_start(int rank);
void weiri_mpi_report_print(void);
/* The last line of the report, when the library has freed its memory. */
void weiri_mpi_report_end(void);

#endif
