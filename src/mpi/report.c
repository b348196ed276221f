/* report.c - the only file of the library that writes, and it writes to stderr. The counters are atomic; a line of the
 * log is one write, so that lines of several ranks do not mix. */
#include "src/mpi/report.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "src/mpi/alloc.h"
#include "src/mpi/settings.h"

static const char *const call_names[WEIRI_MPI_CALLS] = {
    "MPI_Pack", "MPI_Unpack", "MPI_Send",     "MPI_Ssend",     "MPI_Isend",
    "MPI_Recv", "MPI_Irecv",  "MPI_Sendrecv", "MPI_Send_init", "MPI_Recv_init",
};

static const struct {
    bool logged;
    const char *text;
} reasons[WEIRI_MPI_REASONS] = {
    [WEIRI_MPI_HOST_MEMORY] = { false, "the buffer is host memory" },
    [WEIRI_MPI_NO_BYTES] = { false, "there are no bytes" },
    [WEIRI_MPI_LEFT_TO_MPI] = { false, "MPI_PROC_NULL, or arguments that MPI must refuse" },
    [WEIRI_MPI_TYPE] = { true, "weir does not know the datatype" },
    [WEIRI_MPI_NO_DEVICE] = { true, "the device cannot be used" },
    [WEIRI_MPI_NO_MEMORY] = { true, "no memory to pack into" },
    [WEIRI_MPI_NO_KERNEL] = { true, "the kernel did not run" },
    [WEIRI_MPI_TOO_LARGE] = { true, "2 GiB or more of a datatype that weir does not know" },
    [WEIRI_MPI_NO_COPY] = { true, "the data could not be brought to the host or back" },
    [WEIRI_MPI_SETTING] = { true, "a setting has no effect" },
};

static struct {
    uint64_t calls;
    uint64_t bytes;
    uint64_t carried[WEIRI_MPI_CARRIES];
} counts[WEIRI_MPI_CALLS];
static uint64_t explained[WEIRI_MPI_REASONS];
static int own_rank = -1;
static bool reporting;

void weiri_mpi_report_start(int rank)
{
    own_rank = rank;
    reporting = weiri_mpi_settings_get()->report;
}

void weiri_mpi_count_call(weiri_mpi_call call)
{
    if (reporting) {
        (void)__atomic_add_fetch(&counts[call].calls, 1, __ATOMIC_RELAXED);
    }
}

void weiri_mpi_count(weiri_mpi_call call, weiri_mpi_carry carry, uint64_t bytes)
{
    if (reporting) {
        (void)__atomic_add_fetch(&counts[call].bytes, bytes, __ATOMIC_RELAXED);
        (void)__atomic_add_fetch(&counts[call].carried[carry], 1, __ATOMIC_RELAXED);
    }
}

__attribute__((format(printf, 1, 2))) static void write_line(const char *format, ...)
{
    char line[512];
    va_list list;
    int length = snprintf(line, sizeof line - 1, "weir-mpi: rank %d: ", own_rank);
    va_start(list, format);
    length += vsnprintf(line + length, sizeof line - 1 - (size_t)length, format, list);
    va_end(list);
    if ((size_t)length > sizeof line - 2) {
        length = (int)sizeof line - 2;
    }
    line[length++] = '\n';
    const ssize_t written = write(STDERR_FILENO, line, (size_t)length);
    (void)written; /* a program without stderr runs on */
}

void weiri_mpi_explain(weiri_mpi_reason reason, const char *detail)
{
    if ((reporting || reasons[reason].logged) && __atomic_fetch_add(&explained[reason], 1, __ATOMIC_RELAXED) == 0 &&
        reasons[reason].logged) {
        write_line("%s%s%s", reasons[reason].text, detail != NULL ? ": " : "", detail != NULL ? detail : "");
    }
}

void weiri_mpi_report_print(void)
{
    for (int i = 0; i < WEIRI_MPI_SETTINGS; i++) {
        const weiri_mpi_setting *row = &weiri_mpi_setting_rows[i];
        write_line("setting %s=%s (%s)", row->name, weiri_mpi_setting_value(row->name), row->text);
    }
    if (weiri_mpi_settings_get()->fail_at != 0) {
        write_line("operations that failed for WEIR_MPI_FAIL: %llu", (unsigned long long)weiri_mpi_fault_happened());
    }
    write_line("%-14s %10s %16s %16s %16s %16s %10s", "call", "calls", "bytes", "kernel one-shot", "kernel on device",
               "through the host", "real MPI");
    for (int i = 0; i < WEIRI_MPI_CALLS; i++) {
        if (counts[i].calls != 0) {
            const uint64_t *carried = counts[i].carried;
            write_line("%-14s %10llu %16llu %16llu %16llu %16llu %10llu", call_names[i],
                       (unsigned long long)counts[i].calls, (unsigned long long)counts[i].bytes,
                       (unsigned long long)carried[WEIRI_MPI_ONE_SHOT],
                       (unsigned long long)carried[WEIRI_MPI_ON_DEVICE], (unsigned long long)carried[WEIRI_MPI_BY_HOST],
                       (unsigned long long)carried[WEIRI_MPI_BY_MPI]);
        }
    }
    for (int i = 0; i < WEIRI_MPI_REASONS; i++) {
        if (explained[i] != 0) {
            write_line("reason: %llu x %s", (unsigned long long)explained[i], reasons[i].text);
        }
    }
}

void weiri_mpi_report_end(void)
{
    if (reporting) {
        write_line("allocations left: %llu", (unsigned long long)weiri_mpi_alloc_alive());
    }
}
