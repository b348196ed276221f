/* fault.h - a countdown to one fault, which a test sets: in alloc.c, device.c and transport.c. */
#ifndef WEIRI_FAULT_H
#define WEIRI_FAULT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct weiri_fault {
    uint64_t left; /* operations until the one that fails; 0: no operation fails */
} weiri_fault;

/* Lets the n-th operation from now fail (1 is the next); 0 turns it off. Returns how many were left until the one that
 * was to fail: 0 when it did. */
static inline uint64_t weiri_fault_set(weiri_fault *fault, uint64_t n)
{
    return __atomic_exchange_n(&fault->left, n, __ATOMIC_RELAXED);
}

/* Counts one operation; whether it is the one. */
static inline bool weiri_fault_due(weiri_fault *fault)
{
    uint64_t left = __atomic_load_n(&fault->left, __ATOMIC_RELAXED);
    while (left != 0) {
        if (__atomic_compare_exchange_n(&fault->left, &left, left - 1, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
            break;
        }
    }
    return left == 1;
}

#endif
