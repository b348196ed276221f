/* alloc.h - the allocator of all of weir. Only alloc.c calls malloc, so that tests can make the n-th allocation
 * fail and count what is left. Any thread may call it. */
#ifndef WEIRI_ALLOC_H
#define WEIRI_ALLOC_H

#include <stddef.h>
#include <stdint.h>

/* Zeroed memory. NULL when memory is short or count * size overflows. */
void *weiri_alloc(size_t count, size_t size);
/* As realloc. Added bytes are not zeroed. After NULL `p` is unchanged. */
void *weiri_realloc(void *p, size_t size);
void weiri_free(void *p);
/* Frees memory that another library allocated with malloc. */
void weiri_free_foreign(void *p);

/* For tests: the n-th allocation from now fails once (1 is the next); 0 turns it off. Returns the number of allocations
 * that were left before the fault: 0 when it has happened. */
uint64_t weiri_alloc_fail_nth(uint64_t n);
/* Allocations that are alive. */
int64_t weiri_alloc_alive(void);

#endif
