/* cpu/copy.c - copies and stores in the order of a stream: kernels of one thread, so that graphs record them too. */
#include <string.h>

#include "src/device/cpu/cpu.h"
#include "weir/device/kernel.h"

typedef struct copy_args {
    void *dst;
    const void *src;
    uint64_t bytes;
} copy_args;

typedef struct store_args {
    uint64_t *dst;
    uint64_t value;
} store_args;

static void run_copy(const void *args, weir_coop coop)
{
    const copy_args *copy = (const copy_args *)args;
    weir_copy(copy->dst, copy->src, copy->bytes, weir_coop_thread(coop));
}

static void run_store(const void *args, weir_coop coop)
{
    const store_args *store = (const store_args *)args;
    (void)coop;
    weir_arch_store_release_sys_u64(store->dst, store->value);
}

static const weir_kernel copy_kernel = { WEIR_DEV_VERSION, sizeof(copy_args), "weiri_cpu_copy", run_copy, NULL,
                                         WEIR_DEV_USED };
static const weir_kernel store_kernel = { WEIR_DEV_VERSION, sizeof(store_args), "weiri_cpu_store", run_store, NULL,
                                          WEIR_DEV_USED };
static const weir_shape one_thread = { 1, 1 };

weir_status weiri_cpu_copy_async(weir_device *device, void *stream, void *dst, const void *src, uint64_t bytes)
{
    const copy_args args = { dst, src, bytes };
    return weiri_cpu_launch(device, &copy_kernel, one_thread, &args, false, stream);
}

weir_status weiri_cpu_store_async(weir_device *device, void *stream, void *dst, uint64_t value)
{
    const store_args args = { (uint64_t *)dst, value };
    return weiri_cpu_launch(device, &store_kernel, one_thread, &args, false, stream);
}
