/* alloc.c - malloc with a count of live allocations, and a fault that tests can set. */
#include "src/host/base/alloc.h"

#include <errno.h>
#include <stdlib.h>

#include "src/host/base/fault.h"

static int64_t alive;
static weiri_fault fault;

void *weiri_alloc(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        bytes = SIZE_MAX;
    }
    if (weiri_fault_due(&fault) || bytes > PTRDIFF_MAX) {
        errno = ENOMEM;
        return NULL;
    }
    void *p = calloc(1, bytes == 0 ? 1 : bytes);
    if (p != NULL) {
        (void)__atomic_fetch_add(&alive, 1, __ATOMIC_RELAXED);
    }
    return p;
}

/* realloc itself would free `p` for size 0. */
void *weiri_realloc(void *p, size_t size)
{
    if (weiri_fault_due(&fault) || size > PTRDIFF_MAX) {
        errno = ENOMEM;
        return NULL;
    }
    void *q = realloc(p, size == 0 ? 1 : size);
    if (q != NULL && p == NULL) {
        (void)__atomic_fetch_add(&alive, 1, __ATOMIC_RELAXED);
    }
    return q;
}

void weiri_free(void *p)
{
    if (p != NULL) {
        (void)__atomic_fetch_sub(&alive, 1, __ATOMIC_RELAXED);
        free(p);
    }
}

void weiri_free_foreign(void *p) { free(p); }

uint64_t weiri_alloc_fail_nth(uint64_t n) { return weiri_fault_set(&fault, n); }

int64_t weiri_alloc_alive(void) { return __atomic_load_n(&alive, __ATOMIC_RELAXED); }
