/* consumer.h - shared by the two source files of the test of an installed weir. */
#ifndef CONSUMER_H
#define CONSUMER_H

#include <weir/device/kernel.h>
#include <weir/weir.h>

#define COUNT 1000u

typedef struct combine_args {
    const uint32_t *a;
    const uint32_t *b;
    uint32_t *result;
} combine_args;

/* The kernel `combine` of other.c: differences. The one of consumer.c makes sums. */
const weir_kernel *other_combine(void);

#endif
