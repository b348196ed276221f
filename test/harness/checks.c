/* checks.c - log capture and leak counts; see checks.h. */
#include "test/harness/checks.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/device/device.h"
#include "src/host/base/alloc.h"
#include "src/host/comm/leave.h"
#include "src/transport/transport.h"

#define LEAVE_MS 10000 /* for abandoned objects to end */
#define LINES_MAX 64
#define LINE_BYTES 256
#define ALLOWED_MAX 16

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char lines[LINES_MAX][LINE_BYTES];
static uint32_t line_count;
static char allowed[ALLOWED_MAX][LINE_BYTES];
static uint32_t allowed_count;
static uint32_t allowed_descriptors;

static void capture(void *context, weir_log_level level, const char *text)
{
    (void)context;
    if (level > WEIR_LOG_WARN) {
        return;
    }
    pthread_mutex_lock(&lock);
    if (line_count < LINES_MAX) {
        snprintf(lines[line_count++], LINE_BYTES, "%s", text);
    }
    pthread_mutex_unlock(&lock);
}

void weirt_log_allow(const char *part)
{
    pthread_mutex_lock(&lock);
    bool known = false;
    for (uint32_t i = 0; i < allowed_count; i++) {
        known = known || strcmp(allowed[i], part) == 0;
    }
    if (!known && allowed_count < ALLOWED_MAX) {
        snprintf(allowed[allowed_count++], LINE_BYTES, "%s", part);
    }
    pthread_mutex_unlock(&lock);
}

void weirt_descriptors_allow(uint32_t more) { __atomic_store_n(&allowed_descriptors, more, __ATOMIC_RELAXED); }

uint32_t weirt_log_count(const char *part)
{
    uint32_t count = 0;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < line_count; i++) {
        count += strstr(lines[i], part) != NULL;
    }
    pthread_mutex_unlock(&lock);
    return count;
}

uint32_t weirt_count_descriptors(void)
{
    uint32_t count = 0;
    DIR *dir = opendir("/proc/self/fd");
    if (dir == NULL) {
        return 0;
    }
    while (readdir(dir) != NULL) {
        count++;
    }
    closedir(dir);
    return count;
}

/* Appends what each open descriptor is: " 3 socket:[123]". */
static void describe_descriptors(char *text, size_t bytes)
{
    struct dirent *entry;
    DIR *dir = opendir("/proc/self/fd");
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        char target[256];
        const ssize_t length = readlinkat(dirfd(dir), entry->d_name, target, sizeof target);
        const size_t used = strlen(text);
        if (length > 0) {
            (void)snprintf(text + used, bytes - used, " %s %.*s", entry->d_name, (int)length, target);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

uint32_t weirt_count_mappings(bool shared_only)
{
    uint32_t count = 0;
    char line[1024];
    FILE *maps = fopen("/proc/self/maps", "re");
    if (maps == NULL) {
        return 0;
    }
    while (fgets(line, sizeof line, maps) != NULL) {
        const char *mode = strchr(line, ' ');
        count += !shared_only || (mode != NULL && strlen(mode) > 5 && mode[4] == 's');
    }
    fclose(maps);
    return count;
}

/* The number after `name` in /proc/self/status; 0 if it is missing. */
static uint64_t read_status(const char *name)
{
    char line[256];
    uint64_t value = 0;
    FILE *file = fopen("/proc/self/status", "re");
    if (file == NULL) {
        return 0;
    }
    while (value == 0 && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, name, strlen(name)) == 0) {
            value = strtoull(line + strlen(name), NULL, 10);
        }
    }
    fclose(file);
    return value;
}

uint32_t weirt_count_threads(void) { return (uint32_t)read_status("Threads:"); }

uint64_t weirt_resident_bytes(void) { return read_status("VmRSS:") * 1024; }

int64_t weirt_count_allocations(void) { return weiri_alloc_alive(); }

uint64_t weirt_fail_allocation(uint64_t n) { return weiri_alloc_fail_nth(n); }

uint64_t weirt_fail_device(uint64_t n) { return weiri_device_fail_nth(n); }

uint64_t weirt_fail_transport(uint64_t n) { return weiri_transport_fail_nth(n); }

void weirt_checks_begin(weirt_checks *checks)
{
    pthread_mutex_lock(&lock);
    line_count = 0;
    allowed_count = 0;
    weirt_descriptors_allow(0);
    pthread_mutex_unlock(&lock);
    weir_log_set_sink(capture, NULL);
    checks->allocations = weirt_count_allocations();
    checks->descriptors = weirt_count_descriptors();
    checks->mappings = weirt_count_mappings(true);
}

static void check_log(weirt_complain complain, void *context)
{
    char text[LINE_BYTES + 64];
    for (uint32_t i = 0; i < line_count; i++) {
        bool fine = false;
        for (uint32_t k = 0; k < allowed_count; k++) {
            fine = fine || strstr(lines[i], allowed[k]) != NULL;
        }
        if (!fine) {
            snprintf(text, sizeof text, "unexpected line in the log: %s", lines[i]);
            complain(context, text);
        }
    }
}

void weirt_checks_end(const weirt_checks *checks, bool device_state, weirt_complain complain, void *context)
{
    char text[1024];
    for (uint32_t waited = 0; !weiri_leave_is_done() && waited < LEAVE_MS; waited++) {
        usleep(1000);
    }
    weir_log_set_sink(NULL, NULL);
    pthread_mutex_lock(&lock);
    check_log(complain, context);
    pthread_mutex_unlock(&lock);
    int64_t allocations = weirt_count_allocations();
    if (allocations != checks->allocations) {
        snprintf(text, sizeof text, "allocations alive: %lld before, %lld after", (long long)checks->allocations,
                 (long long)allocations);
        complain(context, text);
    }
    uint32_t descriptors = weirt_count_descriptors();
    const uint32_t most = checks->descriptors + __atomic_load_n(&allowed_descriptors, __ATOMIC_RELAXED);
    if (!device_state && (descriptors < checks->descriptors || descriptors > most)) {
        snprintf(text, sizeof text, "open descriptors: %u before, %u after:", checks->descriptors, descriptors);
        describe_descriptors(text, sizeof text);
        complain(context, text);
    }
    uint32_t mappings = weirt_count_mappings(true);
    if (!device_state && mappings != checks->mappings) {
        snprintf(text, sizeof text, "shared mappings: %u before, %u after", checks->mappings, mappings);
        complain(context, text);
    }
}
