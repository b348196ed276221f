/* store.c - see store.h. */
#include "src/transport/store.h"

#include <stdbool.h>

/* The rest of the word may lie outside the caller's memory, which the address sanitizer would report. */
static __attribute__((no_sanitize("address"))) void store_part(char *at, uint64_t value, uint32_t bytes)
{
    const uint32_t shift = (uint32_t)((uintptr_t)at % 8) * 8;
    const uint64_t mask = (bytes == 8 ? UINT64_MAX : ((uint64_t)1 << 8 * bytes) - 1) << shift;
    uint64_t *word = (uint64_t *)(void *)(at - (uintptr_t)at % 8);
    if ((uintptr_t)at % 8 + bytes > 8) {
        for (uint32_t i = 0; i < bytes; i++) {
            __atomic_store_n(at + i, (char)(value >> 8 * i), __ATOMIC_RELEASE);
        }
        return;
    }
    uint64_t old = __atomic_load_n(word, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(word, &old, (old & ~mask) | (value << shift & mask), false, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED)) {
    }
}

void weiri_store_value(void *at, uint64_t value, uint32_t bytes)
{
    const bool aligned = (uintptr_t)at % bytes == 0;
    if (aligned && bytes == 8) {
        __atomic_store_n((uint64_t *)at, value, __ATOMIC_RELEASE);
    } else if (aligned && bytes == 4) {
        __atomic_store_n((uint32_t *)at, (uint32_t)value, __ATOMIC_RELEASE);
    } else if (aligned && bytes == 2) {
        __atomic_store_n((uint16_t *)at, (uint16_t)value, __ATOMIC_RELEASE);
    } else if (bytes == 1) {
        __atomic_store_n((uint8_t *)at, (uint8_t)value, __ATOMIC_RELEASE);
    } else {
        store_part((char *)at, value, bytes);
    }
}
