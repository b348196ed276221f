/* store.h - how a thread of the CPU stores a value that another device, or a peer, has sent. */
#ifndef WEIRI_STORE_H
#define WEIRI_STORE_H

#include <stdint.h>

/* The `bytes` (1 to 8) low bytes of `value` to `at`, with release: in one piece if they lie in one aligned word, whose
 * other bytes stay what they are. */
void weiri_store_value(void *at, uint64_t value, uint32_t bytes);

#endif
