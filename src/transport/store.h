/* store.h - how a CPU thread stores a value that another device or a peer has sent. */
#ifndef WEIRI_STORE_H
#define WEIRI_STORE_H

#include <stdint.h>

/* Stores the `bytes` (1 to 8) low bytes of `value` at `at`, with release order. The store is one piece if they lie in
 * one aligned 8-byte word; the other bytes of that word keep their values. */
void weiri_store_value(void *at, uint64_t value, uint32_t bytes);

#endif
