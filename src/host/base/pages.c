/* pages.c - huge pages come from the pool of the system (vm.nr_hugepages), not from transparent huge pages: only the
 * pool says at once whether there are enough. */
#define _GNU_SOURCE 1
#include "src/host/base/pages.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "src/host/base/clock.h"
#include "src/host/base/error.h"
#include "src/host/base/file.h"
#include "src/host/base/log.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

#define HUGE_BYTES (UINT64_C(2) << 20)

static uint64_t page_bytes(void) { return (uint64_t)sysconf(_SC_PAGESIZE); }

static uint64_t rounded(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

weir_status weiri_pages_create(const char *text, bool huge, uint64_t *bytes, int seals, int *out)
{
    if (*bytes > (uint64_t)INT64_MAX - HUGE_BYTES) {
        return weiri_fail(WEIR_ERR_NOMEM, "%s: a file cannot have that many bytes", text);
    }
    if (huge) {
        const uint64_t whole = rounded(*bytes, HUGE_BYTES);
        if (weiri_memfd_create_huge(text, whole, seals, out) == WEIR_OK) {
            weiri_log(WEIR_LOG_INFO, "%s: %llu pages of 2 MiB", text, (unsigned long long)(whole / HUGE_BYTES));
            *bytes = whole;
            return WEIR_OK;
        }
        weiri_log(WEIR_LOG_INFO, "%s: pages of %llu bytes; no pages of 2 MiB: %s", text,
                  (unsigned long long)page_bytes(), weir_last_error());
    }
    *bytes = rounded(*bytes, page_bytes());
    return weiri_memfd_create(text, *bytes, seals, out);
}

/* ---- first touch ----------------------------------------------------------------------------------------- */

typedef struct touch {
    pthread_t thread;
    bool started;
    char *at;
    uint64_t bytes;
    int error;
} touch;

static void *touch_part(void *context)
{
    touch *part = (touch *)context;
    part->error = madvise(part->at, part->bytes, MADV_POPULATE_WRITE) == 0 ? 0 : errno;
    if (part->error == EINVAL) { /* an older kernel */
        part->error = 0;
        for (uint64_t i = 0; i < part->bytes; i += page_bytes()) {
            *(volatile char *)(part->at + i) = 0;
        }
    }
    return NULL;
}

weir_status weiri_pages_touch(const char *text, void *map, uint64_t bytes, uint32_t threads)
{
    touch parts[WEIRI_TOUCH_THREADS_MAX];
    if (threads == 0) {
        return WEIR_OK;
    }
    /* Whole huge pages each. */
    const uint64_t share = rounded(bytes / threads + 1, HUGE_BYTES);
    uint32_t count = 0;
    int error = 0;
    for (uint64_t at = 0; at < bytes; at += share, count++) {
        touch *part = &parts[count];
        part->at = (char *)map + at;
        part->bytes = bytes - at < share ? bytes - at : share;
        part->started = weiri_thread_create(&part->thread, "weir-touch", touch_part, part) == 0;
        if (!part->started) {
            (void)touch_part(part); /* in this thread */
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        if (parts[i].started) {
            (void)pthread_join(parts[i].thread, NULL);
        }
        error = error != 0 ? error : parts[i].error;
    }
    return error == 0 ? WEIR_OK : weiri_fail_errno(error, "%s: touch its pages", text);
}

void weiri_pages_lock_limit(char *text, size_t size)
{
    struct rlimit limit;
    text[0] = '\0';
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        (void)snprintf(
            text, size,
            "; RLIMIT_MEMLOCK allows %llu KiB of locked memory: raise it by `ulimit -l unlimited`, memlock in "
            "/etc/security/limits.conf, LimitMEMLOCK=infinity of a systemd unit, or docker's --ulimit "
            "memlock=-1",
            (unsigned long long)limit.rlim_cur / 1024);
    }
}
