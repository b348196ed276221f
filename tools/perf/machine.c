/* machine.c - the facts in front of every result: versions, machine and settings. */
#include "tools/perf/cases.h"
#include "tools/perf/common.h"
#include "weir_perf_commit.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Reads the first text line of a file or of a command's output; empty if there is none. */
static void read_line(FILE *file, char *line, size_t size)
{
    line[0] = '\0';
    if (file != NULL && fgets(line, (int)size, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
    }
}

/* Formats the first `count` bytes of a UUID as nvidia-smi does. */
static void format_uuid(const uint8_t *uuid, size_t count, char *text, size_t size)
{
    size_t length = 0;
    for (size_t i = 0; i < count; i++) {
        const char *dash = i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
        length += (size_t)snprintf(text + length, size - length, "%s%02x", dash, uuid[i]);
    }
}

static void report_clocks(perf_output *output, const weir_device_info *info)
{
    char uuid[40];
    char command[160];
    char line[160];
    format_uuid(info->uuid, sizeof info->uuid, uuid, sizeof uuid);
    (void)snprintf(command, sizeof command,
                   "nvidia-smi -i GPU-%s --format=csv,noheader"
                   " --query-gpu=clocks.sm,clocks.max.sm,clocks.mem,power.limit 2>/dev/null",
                   uuid);
    FILE *pipe = popen(command, "r");
    read_line(pipe, line, sizeof line);
    if (pipe != NULL && pclose(pipe) == 0 && line[0] != '\0') {
        perf_fact(output, "clocks", "%s (SM now, SM at most, memory, power limit)", line);
    }
}

static void report_driver(perf_output *output, const weir_device_info *info)
{
    char line[256];
    perf_fact(output, "driver", "CUDA %" PRIu32 ".%" PRIu32, info->driver_version / 1000,
              info->driver_version % 1000 / 10);
    FILE *file = fopen("/proc/driver/nvidia/version", "r");
    read_line(file, line, sizeof line);
    if (line[0] != '\0') {
        perf_fact(output, "kernel driver", "%s", line);
    }
    if (file != NULL) {
        (void)fclose(file);
    }
}

static void report_versions(perf_output *output)
{
    char date[64] = "";
    char host[256] = "";
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc) != NULL) {
        (void)strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", &utc);
    }
    (void)gethostname(host, sizeof host - 1);
    perf_fact(output, "date", "%s", date);
    perf_fact(output, "host", "%s", host);
    perf_fact(output, "weir", "%s, headers %s, commit %s", weir_version(), WEIR_VERSION_STRING, PERF_COMMIT);
    perf_fact(output, "compiler", "%s", perf_kernel_compiler());
    perf_fact(output, "waits", "%s", perf_checked_waits() ? "with deadline" : "unchecked (WEIR_UNCHECKED_WAITS)");
}

/* Reports the variables of weir that are set, and always the deadline. */
static void report_settings(perf_output *output)
{
    weir_env_row row;
    for (uint32_t i = 0; weir_env_get(i, &row) == WEIR_OK; i++) {
        bool deadline = strcmp(row.name, "WEIR_TIMEOUT_MS") == 0;
        if (deadline || (row.value != NULL && strcmp(row.name, "WEIR_UNIQUE_ID") != 0)) {
            perf_fact(output, row.name, "%s", row.value != NULL ? row.value : row.fallback);
        }
    }
}

weir_status perf_report_machine(perf_rank *rank)
{
    weir_device_info infos[PERF_RANKS_MAX];
    memset(infos, 0, sizeof infos);
    infos[rank->rank] = rank->info;
    weir_status status = weir_bootstrap_allgather(rank->bootstrap, NULL, infos, sizeof infos[0]);
    if (status != WEIR_OK || rank->output == NULL) {
        return status;
    }
    report_versions(rank->output);
    for (uint32_t i = 0; i < rank->ranks; i++) {
        char name[16];
        char uuid[16];
        (void)snprintf(name, sizeof name, "rank %" PRIu32, i);
        format_uuid(infos[i].uuid, 4, uuid, sizeof uuid);
        perf_fact(rank->output, name, "%s, %s, %s, %" PRIu64 " MiB, %s", infos[i].label, infos[i].model, uuid,
                  infos[i].memory_bytes >> 20, rank->options->processes ? "a process" : "a thread");
    }
    if (rank->gpu) {
        report_driver(rank->output, &rank->info);
        report_clocks(rank->output, &rank->info);
    }
    report_settings(rank->output);
    return WEIR_OK;
}

double perf_link_limit(const weir_device_info *info)
{
    char uuid[40];
    char command[120];
    char line[160];
    double limit = 0;
    format_uuid(info->uuid, sizeof info->uuid, uuid, sizeof uuid);
    (void)snprintf(command, sizeof command, "nvidia-smi nvlink -s -i GPU-%s 2>/dev/null", uuid);
    FILE *pipe = popen(command, "r");
    while (pipe != NULL && fgets(line, sizeof line, pipe) != NULL) { /* "Link 0: 26.562 GB/s" */
        double speed = 0;
        if (sscanf(line, " Link %*u: %lf GB/s", &speed) == 1) {
            limit += speed;
        }
    }
    if (pipe != NULL) {
        (void)pclose(pipe);
    }
    return limit > 0 ? limit : NAN;
}
