/* alloc.c - malloc, counted, with a fault that tests can set. */
#include "src/host/base/alloc.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static int64_t alive;
static uint64_t fail_in; /* allocations until the one that fails; 0: none does */

static bool fault(void)
{
    uint64_t left = __atomic_load_n(&fail_in, __ATOMIC_RELAXED);
    while (left != 0) {
        if (__atomic_compare_exchange_n(&fail_in, &left, left - 1, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
            break;
        }
    }
    return left == 1;
}

void *weiri_alloc(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        bytes = SIZE_MAX;
    }
    if (fault() || bytes > PTRDIFF_MAX) {
        errno = ENOMEM;
        return NULL;
    }
    void *p = calloc(1, bytes == 0 ? 1 : bytes);
    if (p != NULL) {
        (void)__atomic_fetch_add(&alive, 1, __ATOMIC_RELAXED);
    }
    return p;
}

/* Size 0 is a size like any other; realloc itself would free `p`. */
void *weiri_realloc(void *p, size_t size)
{
    if (fault() || size > PTRDIFF_MAX) {
        errno = ENOMEM;
        return NULL;
    }
    void *q = realloc(p, size == 0 ? 1 : size);
    if (q != NULL && p == NULL) {
        (void)__atomic_fetch_add(&alive, 1, __ATOMIC_RELAXED);
    }
    return q;
}

char *weiri_strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = (char *)weiri_realloc(NULL, bytes);
    if (copy != NULL) {
        memcpy(copy, text, bytes);
    }
    return copy;
}

void weiri_free(void *p)
{
    if (p != NULL) {
        (void)__atomic_fetch_sub(&alive, 1, __ATOMIC_RELAXED);
        free(p);
    }
}

void weiri_free_foreign(void *p)
{
    free(p);
}

uint64_t weiri_alloc_fail_nth(uint64_t n)
{
    return __atomic_exchange_n(&fail_in, n, __ATOMIC_RELAXED);
}

int64_t weiri_alloc_alive(void)
{
    return __atomic_load_n(&alive, __ATOMIC_RELAXED);
}
