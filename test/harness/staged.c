/* staged.c - see staged.h. Copies and stores are kernels on the stream. */
#include "test/harness/staged.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "src/device/device.h"
#include "src/host/base/error.h"

typedef struct copy_args {
    void *dst;
    const void *src;
    uint64_t bytes;
    uint64_t value; /* if src is NULL */
} copy_args;

static void copy_kernel(const void *context, weir_coop coop)
{
    const copy_args *args = (const copy_args *)context;
    (void)coop;
    if (args->src != NULL) {
        memcpy(args->dst, args->src, args->bytes);
    } else {
        __atomic_store_n((uint64_t *)args->dst, args->value, __ATOMIC_RELEASE);
    }
}

static const weir_kernel copy = { WEIR_DEV_VERSION, sizeof(copy_args), "copy", copy_kernel, NULL, WEIR_DEV_USED };

static weir_status put_on_stream(weir_device *device, void *stream, const copy_args *args)
{
    const weir_shape one = { 1, 1 };
    weir_status status = weiri_device_fault("copy on a stream");
    return status != WEIR_OK ? status : device->ops->launch(device, &copy, one, args, false, stream);
}

static weir_status copy_async(weir_device *device, void *stream, void *dst, const void *src, uint64_t bytes)
{
    const copy_args args = { dst, src, bytes, 0 };
    return bytes == 0 ? WEIR_OK : put_on_stream(device, stream, &args);
}

static weir_status store_async(weir_device *device, void *stream, void *dst, uint64_t value)
{
    const copy_args args = { dst, NULL, 0, value };
    return put_on_stream(device, stream, &args);
}

static weir_status refuse_store(weir_device *device, void *stream, void *dst, uint64_t value)
{
    (void)device;
    (void)stream;
    (void)dst;
    (void)value;
    return weiri_fail(WEIR_ERR_UNSUPPORTED, "a device of a test stores nothing");
}

static weir_status allocate(weir_device *device, const weir_memory_opts *opts, uint64_t bytes, weiri_block **out)
{
    weir_status status = weiri_cpu_ops.allocate(device, opts, bytes, out);
    if (status == WEIR_OK && opts->kind == WEIR_MEMORY_DEVICE) {
        (*out)->host_pointer = NULL;
    }
    return status;
}

static bool copies_held;
static uint32_t copies_begun;

static void held_kernel(const void *context, weir_coop coop)
{
    (void)__atomic_fetch_add(&copies_begun, 1, __ATOMIC_RELAXED);
    while (__atomic_load_n(&copies_held, __ATOMIC_ACQUIRE)) {
        (void)sched_yield();
    }
    copy_kernel(context, coop);
}

static const weir_kernel held = { WEIR_DEV_VERSION, sizeof(copy_args), "held", held_kernel, NULL, WEIR_DEV_USED };

static weir_status hold_copy(weir_device *device, void *stream, void *dst, const void *src, uint64_t bytes)
{
    const weir_shape one = { 1, 1 };
    const copy_args args = { dst, src, bytes, 0 };
    return device->ops->launch(device, &held, one, &args, false, stream);
}

static weiri_device_ops staged_ops[2]; /* one refuses stores */
static weiri_device_ops refusing_ops;
static weiri_device_ops holding_ops;

static void make_ops(void)
{
    for (uint32_t i = 0; i < 2; i++) {
        staged_ops[i] = weiri_cpu_ops;
        staged_ops[i].allocate = allocate;
        staged_ops[i].copy_async = copy_async;
        staged_ops[i].store_async = i == 0 ? refuse_store : store_async;
    }
    refusing_ops = weiri_cpu_ops;
    refusing_ops.store_async = refuse_store;
    holding_ops = weiri_cpu_ops;
    holding_ops.copy_async = hold_copy;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

void weirt_refuse_stores(weir_device *device, bool refuses)
{
    (void)pthread_once(&once, make_ops);
    device->ops = refuses ? &refusing_ops : &weiri_cpu_ops;
}

void weirt_hold_copies(weir_device *device)
{
    (void)pthread_once(&once, make_ops);
    __atomic_store_n(&copies_begun, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&copies_held, true, __ATOMIC_RELAXED);
    device->ops = &holding_ops;
}

void weirt_release_copies(void) { __atomic_store_n(&copies_held, false, __ATOMIC_RELEASE); }

uint32_t weirt_copies_begun(void) { return __atomic_load_n(&copies_begun, __ATOMIC_RELAXED); }

void weirt_stage_memory(weir_device *device, bool stores)
{
    (void)pthread_once(&once, make_ops);
    device->ops = &staged_ops[stores];
    device->info.stream_copies = true;
    device->info.atomic_to_host = false;
}
