/* pages.h - the pages of host memory: their size, their first touch, and the limit of locked ones.
 *
 * Threads:   any.
 * Blocking:  touch, until all pages exist.
 * Ownership: the descriptor of weiri_pages_create is the caller's.
 * Errors:    WEIR_ERR_SYSTEM, WEIR_ERR_NOMEM. */
#ifndef WEIRI_PAGES_H
#define WEIRI_PAGES_H

#include "weir/base.h"

/* Most threads of weiri_pages_touch. */
#define WEIRI_TOUCH_THREADS_MAX 64u

/* As weiri_memfd_create; rounds *bytes up to whole pages. With `huge` the pages have 2 MiB if the system has enough of
 * them, and a log line says which pages the file has got. */
weir_status weiri_pages_create(const char *text, bool huge, uint64_t *bytes, int seals, int *out);

/* Writes zeros to each page of a new mapping, by `threads` threads at once; 0 does nothing. */
weir_status weiri_pages_touch(const char *text, void *map, uint64_t bytes, uint32_t threads);

#define WEIRI_LOCK_LIMIT_BYTES 256

/* Writes "; RLIMIT_MEMLOCK allows N KiB ...", the end of an error's text, or "" for a process without that limit. */
void weiri_pages_lock_limit(char *text, size_t size);

#endif
