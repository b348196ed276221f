/* other.c - a second source file of the user's program; its kernel has the same name as the kernel in consumer.c. */
#include "consumer.h"

WEIR_KERNEL(combine, combine_args)
{
    for (uint32_t i = coop.rank; i < COUNT; i += coop.size) {
        args->result[i] = args->a[i] - args->b[i];
    }
}

const weir_kernel *other_combine(void) { return &combine; }
