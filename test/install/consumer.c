/* consumer.c - a user's program with an installed weir, in C, in C++ and, if nvcc is installed, in CUDA C++: combines
 * two arrays on the CPU device by its own kernel and by the kernel of the same name in other.c. */
#include <stdio.h>

#include "consumer.h"

WEIR_KERNEL(combine, combine_args)
{
    for (uint32_t i = coop.rank; i < COUNT; i += coop.size) {
        args->result[i] = args->a[i] + args->b[i];
    }
}

static int check(weir_status status, const char *what)
{
    if (status != WEIR_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, weir_status_name(status), weir_last_error());
    }
    return status == WEIR_OK;
}

static int run(weir_device *device, const weir_kernel *kernel, const combine_args *args)
{
    const weir_shape shape = { 2, 4 };
    void *stream = NULL;
    if (!check(weir_stream_create(device, &stream), "create a stream")) {
        return 0;
    }
    int good = check(weir_launch(device, kernel, shape, args, NULL, stream), "launch") &&
               check(weir_stream_wait(device, stream, 0), "wait");
    weir_stream_destroy(device, stream);
    return good;
}

int main(void)
{
    static uint32_t a[COUNT];
    static uint32_t b[COUNT];
    static uint32_t sum[COUNT];
    static uint32_t difference[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        a[i] = i * 3u;
        b[i] = i * i;
    }

    weir_device *device = NULL;
    combine_args add = { a, b, sum };
    combine_args subtract = { a, b, difference };
    if (!check(weir_device_open("cpu:0", NULL, &device), "open") || !run(device, &combine, &add) ||
        !run(device, other_combine(), &subtract)) {
        return 1;
    }
    weir_device_close(device);

    for (uint32_t i = 0; i < COUNT; i++) {
        if (sum[i] != a[i] + b[i] || difference[i] != a[i] - b[i]) {
            fprintf(stderr, "element %u: the sum is %u, the difference is %u\n", i, sum[i], difference[i]);
            return 1;
        }
    }
    printf("weir %s: %u sums and differences are right\n", weir_version(), COUNT);
    return 0;
}
