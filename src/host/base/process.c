/* process.c - the id lies in a page that a fork wipes (MADV_WIPEONFORK, Linux 4.14). The child finds 0 there and asks
 * the kernel, however it was forked: handlers of pthread_atfork do not run for every fork. A collective call needs the
 * id twice, and getpid takes about 0.1 us. */
#define _GNU_SOURCE
#include "src/host/base/process.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

static pid_t *kept; /* the page; NULL until the first call, and where the kernel wipes no pages */
static bool refused;

/* NULL if the kernel refuses. */
static pid_t *map_page(void)
{
    const size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        return NULL;
    }
    pid_t *before = NULL;
    /* Emulators of Linux may accept any advice and ignore it. */
    const bool wipes = madvise(page, bytes, -1) != 0 && madvise(page, bytes, MADV_WIPEONFORK) == 0;
    if (wipes &&
        __atomic_compare_exchange_n(&kept, &before, (pid_t *)page, false, __ATOMIC_RELEASE, __ATOMIC_ACQUIRE)) {
        return (pid_t *)page;
    }
    (void)munmap(page, bytes);
    return before; /* another thread's */
}

static pid_t ask(pid_t *page)
{
    const int error = errno;
    if (page == NULL && !__atomic_load_n(&refused, __ATOMIC_RELAXED)) {
        page = map_page();
        __atomic_store_n(&refused, page == NULL, __ATOMIC_RELAXED);
    }
    pid_t id = getpid();
    if (page != NULL) {
        __atomic_store_n(page, id, __ATOMIC_RELAXED);
        while (id != getpid()) { /* a signal's handler has forked before the store */
            id = getpid();
            __atomic_store_n(page, id, __ATOMIC_RELAXED);
        }
    }
    errno = error;
    return id;
}

pid_t weiri_process_id(void)
{
    pid_t *page = __atomic_load_n(&kept, __ATOMIC_ACQUIRE);
    const pid_t id = page != NULL ? __atomic_load_n(page, __ATOMIC_RELAXED) : 0;
    return id != 0 ? id : ask(page);
}
