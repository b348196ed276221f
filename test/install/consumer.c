/* consumer.c - a user's program against an installed weir, in C and, compiled as C++, in C++: adds two arrays in
 * a kernel of its own on the CPU device. */
#include <stdio.h>

#include <weir/device/kernel.h>
#include <weir/weir.h>

#define COUNT 1000u

typedef struct add_args {
    const uint32_t *a;
    const uint32_t *b;
    uint32_t *sum;
} add_args;

WEIR_KERNEL(add, add_args)
{
    for (uint32_t i = coop.rank; i < COUNT; i += coop.size) {
        args->sum[i] = args->a[i] + args->b[i];
    }
}

static int check(weir_status status, const char *what)
{
    if (status != WEIR_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, weir_status_name(status), weir_last_error());
    }
    return status == WEIR_OK;
}

int main(void)
{
    static uint32_t a[COUNT];
    static uint32_t b[COUNT];
    static uint32_t sum[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        a[i] = i * 3u;
        b[i] = i * i;
    }

    weir_device *device = NULL;
    void *stream = NULL;
    add_args args = { a, b, sum };
    weir_shape shape = { 2, 4 };
    if (!check(weir_device_open("cpu:0", NULL, &device), "open") ||
        !check(weir_stream_create(device, &stream), "create a stream") ||
        !check(weir_launch(device, &add, shape, &args, NULL, stream), "launch") ||
        !check(weir_stream_wait(device, stream, 0), "wait")) {
        return 1;
    }
    weir_stream_destroy(device, stream);
    weir_device_close(device);

    for (uint32_t i = 0; i < COUNT; i++) {
        if (sum[i] != i * 3u + i * i) {
            fprintf(stderr, "sum[%u] is %u\n", i, sum[i]);
            return 1;
        }
    }
    printf("weir %s: %u sums are right\n", weir_version(), COUNT);
    return 0;
}
