/* alloc.h - the only callers of malloc, so that tests can make the n-th allocation fail. */
#ifndef WEIRI_ALLOC_H
#define WEIRI_ALLOC_H

#include <stddef.h>
#include <stdint.h>

/* Zeroed memory, or NULL. count * size may not overflow. */
void *weiri_alloc(size_t count, size_t size);
/* As realloc; what is new is not zeroed. NULL leaves `p` as it was. */
void *weiri_realloc(void *p, size_t size);
char *weiri_strdup(const char *text);
void weiri_free(void *p);
/* Frees what another library has allocated with malloc for its caller to free. */
void weiri_free_foreign(void *p);

/* For tests: lets the n-th allocation from now fail once (1 is the next); 0 turns it off. Returns how many were
 * left until the one that was to fail: 0 when it did. */
uint64_t weiri_alloc_fail_nth(uint64_t n);
/* Allocations that are alive. */
int64_t weiri_alloc_alive(void);

#endif
