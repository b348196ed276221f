/* refcount.h - reference counts of objects that several threads may hold: init sets 1, and put returns true for the
 * last one, whose caller frees the object. */
#ifndef WEIRI_REFCOUNT_H
#define WEIRI_REFCOUNT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct weiri_refcount {
    int64_t count;
} weiri_refcount;

static inline void weiri_refcount_init(weiri_refcount *refs) { __atomic_store_n(&refs->count, 1, __ATOMIC_RELAXED); }

static inline void weiri_refcount_get(weiri_refcount *refs)
{
    (void)__atomic_fetch_add(&refs->count, 1, __ATOMIC_RELAXED);
}

/* True when this was the last reference: the caller then frees the object. */
static inline bool weiri_refcount_put(weiri_refcount *refs)
{
    return __atomic_fetch_sub(&refs->count, 1, __ATOMIC_ACQ_REL) == 1;
}

#endif
