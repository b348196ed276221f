/* limited.c - streams of few multiprocessors: streams of green contexts, which share the memory and the modules of the
 * primary context.
 *
 * The first such stream of a device has the driver split the multiprocessors into the smallest groups that it can make.
 * A stream takes the groups that the fewest streams use. */
#include "src/device/cuda/driver.h"

#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"

#if CUDA_VERSION < 12050

weir_status weiri_cuda_stream_create_limited(weir_device *device, const weir_stream_limits *limits, void **out)
{
    (void)limits;
    (void)out;
    return weiri_fail(WEIR_ERR_UNSUPPORTED,
                      "gpu:%u: libweir was built with headers of CUDA %d.%d; streams of few multiprocessors need 12.5",
                      device->info.index, CUDA_VERSION / 1000, CUDA_VERSION / 10 % 100);
}

uint32_t weiri_cuda_stream_multiprocessors(weir_device *device, void *stream)
{
    (void)device;
    (void)stream;
    return 0;
}

void weiri_cuda_stream_end(weir_device *device, CUstream stream)
{
    (void)device;
    (void)weiri_cuda.cuStreamDestroy(stream);
}

void weiri_cuda_limits_free(weiri_cuda_device *native) { (void)native; }

#else

#define GROUPS_MAX 128u

typedef struct limited_stream {
    struct limited_stream *next;
    CUstream stream;
    CUgreenCtx context;
    uint32_t multiprocessors;
    bool takes[GROUPS_MAX];
} limited_stream;

typedef struct weiri_cuda_limits {
    uint32_t groups;
    uint32_t group_multiprocessors;
    CUdevResource group[GROUPS_MAX];
    uint32_t streams[GROUPS_MAX]; /* that use the group */
    limited_stream *first;
} weiri_cuda_limits;

static weir_status fail_driver(const weir_device *device, const char *what)
{
    return weiri_fail(WEIR_ERR_UNSUPPORTED, "gpu:%u: streams of few multiprocessors: %s", device->info.index, what);
}

/* As weiri_cuda_check; a GPU that cannot be split is WEIR_ERR_UNSUPPORTED. */
static weir_status check(const weir_device *device, const char *call, CUresult result)
{
    weir_status status = weiri_cuda_check(device, call, result);
    const bool cannot = result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_INVALID_RESOURCE_TYPE ||
                        result == CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    return cannot ? WEIR_ERR_UNSUPPORTED : status;
}

static weir_status check_driver(const weir_device *device)
{
    if (weiri_cuda.cuDeviceGetDevResource == NULL || weiri_cuda.cuDevSmResourceSplitByCount == NULL ||
        weiri_cuda.cuDevResourceGenerateDesc == NULL || weiri_cuda.cuGreenCtxCreate == NULL ||
        weiri_cuda.cuGreenCtxDestroy == NULL || weiri_cuda.cuGreenCtxStreamCreate == NULL) {
        return fail_driver(device, "the driver has no green contexts; it must be of CUDA 12.5 or later");
    }
    return WEIR_OK;
}

/* Splits the GPU, in the entered context. */
static weir_status split(const weir_device *device, weiri_cuda_limits *limits)
{
    CUdevResource all;
    unsigned groups = GROUPS_MAX;
    memset(&all, 0, sizeof all);
    weir_status status =
        check(device, "cuDeviceGetDevResource",
              weiri_cuda.cuDeviceGetDevResource(weiri_cuda_native(device)->ordinal, &all, CU_DEV_RESOURCE_TYPE_SM));
    if (status == WEIR_OK) {
        status = check(device, "cuDevSmResourceSplitByCount",
                       weiri_cuda.cuDevSmResourceSplitByCount(limits->group, &groups, &all, NULL, 0, 1));
    }
    if (status == WEIR_OK && (groups == 0 || limits->group[0].sm.smCount == 0)) {
        status = fail_driver(device, "the driver split the multiprocessors into no groups");
    }
    limits->groups = groups;
    limits->group_multiprocessors = limits->group[0].sm.smCount;
    return status;
}

/* Makes native->limits, with the lock, in the entered context. */
static weir_status make_limits(const weir_device *device)
{
    weiri_cuda_device *native = weiri_cuda_native(device);
    if (native->limits != NULL) {
        return WEIR_OK;
    }
    weir_status status = check_driver(device);
    if (status != WEIR_OK) {
        return status;
    }
    weiri_cuda_limits *limits = weiri_alloc(1, sizeof *limits);
    if (limits == NULL) {
        return weiri_fail_nomem("gpu: limited streams");
    }
    status = split(device, limits);
    if (status != WEIR_OK) {
        weiri_free(limits);
        return status;
    }
    native->limits = limits;
    return WEIR_OK;
}

/* Marks the `count` groups that the fewest streams use, and copies them. */
static void choose_groups(const weiri_cuda_limits *limits, uint32_t count, limited_stream *made, CUdevResource *out)
{
    for (uint32_t n = 0; n < count; n++) {
        uint32_t best = GROUPS_MAX;
        for (uint32_t i = 0; i < limits->groups; i++) {
            if (!made->takes[i] && (best == GROUPS_MAX || limits->streams[i] < limits->streams[best])) {
                best = i;
            }
        }
        made->takes[best] = true;
        made->multiprocessors += limits->group[best].sm.smCount;
        out[n] = limits->group[best];
    }
}

/* Makes the green context and the stream of `made`, which the caller frees, in the entered context. */
static weir_status open_stream(const weir_device *device, uint32_t groups, int32_t priority, limited_stream *made)
{
    const weiri_cuda_device *native = weiri_cuda_native(device);
    CUdevResource chosen[GROUPS_MAX];
    CUdevResourceDesc description = NULL;
    choose_groups(native->limits, groups, made, chosen);
    weir_status status =
        check(device, "cuDevResourceGenerateDesc", weiri_cuda.cuDevResourceGenerateDesc(&description, chosen, groups));
    if (status == WEIR_OK) {
        status = check(
            device, "cuGreenCtxCreate",
            weiri_cuda.cuGreenCtxCreate(&made->context, description, native->ordinal, CU_GREEN_CTX_DEFAULT_STREAM));
    }
    if (status != WEIR_OK) {
        return status;
    }
    status = check(device, "cuGreenCtxStreamCreate",
                   weiri_cuda.cuGreenCtxStreamCreate(&made->stream, made->context, CU_STREAM_NON_BLOCKING, priority));
    if (status != WEIR_OK) {
        (void)weiri_cuda.cuGreenCtxDestroy(made->context);
    }
    return status;
}

/* With the lock, in the entered context. */
static weir_status create(weir_device *device, const weir_stream_limits *limits, void **out)
{
    weiri_cuda_device *native = weiri_cuda_native(device);
    weir_status status = make_limits(device);
    if (status != WEIR_OK) {
        return status;
    }
    weiri_cuda_limits *shared = native->limits;
    const uint32_t unit = shared->group_multiprocessors;
    const uint32_t groups = limits->multiprocessors / unit + (limits->multiprocessors % unit != 0);
    if (groups > shared->groups) {
        return weiri_fail(WEIR_ERR_LIMIT,
                          "gpu:%u: limits.multiprocessors is %u: a limited stream has at most %u here, in multiples of "
                          "%u",
                          device->info.index, limits->multiprocessors, shared->groups * unit, unit);
    }
    limited_stream *made = weiri_alloc(1, sizeof *made);
    if (made == NULL) {
        return weiri_fail_nomem("gpu: limited stream");
    }
    status = open_stream(device, groups, limits->priority, made);
    if (status != WEIR_OK) {
        weiri_free(made);
        return status;
    }
    for (uint32_t i = 0; i < shared->groups; i++) {
        shared->streams[i] += made->takes[i];
    }
    made->next = shared->first;
    shared->first = made;
    *out = made->stream;
    return WEIR_OK;
}

weir_status weiri_cuda_stream_create_limited(weir_device *device, const weir_stream_limits *limits, void **out)
{
    weiri_cuda_device *native = weiri_cuda_native(device);
    CUstreamCaptureMode mode;
    weir_status status = weiri_cuda_enter(device, &mode);
    if (status != WEIR_OK) {
        return status;
    }
    pthread_mutex_lock(&native->limited_lock);
    status = create(device, limits, out);
    pthread_mutex_unlock(&native->limited_lock);
    weiri_cuda_leave(mode);
    return status;
}

/* Where the list points to the stream, or its end. With the lock. */
static limited_stream **find(weiri_cuda_device *native, const void *stream)
{
    static limited_stream *nothing;
    limited_stream **link = native->limits != NULL ? &native->limits->first : &nothing;
    while (*link != NULL && (*link)->stream != stream) {
        link = &(*link)->next;
    }
    return link;
}

uint32_t weiri_cuda_stream_multiprocessors(weir_device *device, void *stream)
{
    weiri_cuda_device *native = weiri_cuda_native(device);
    pthread_mutex_lock(&native->limited_lock);
    const limited_stream *found = *find(native, stream);
    const uint32_t multiprocessors = found != NULL ? found->multiprocessors : 0;
    pthread_mutex_unlock(&native->limited_lock);
    return multiprocessors;
}

void weiri_cuda_stream_end(weir_device *device, CUstream stream)
{
    weiri_cuda_device *native = weiri_cuda_native(device);
    pthread_mutex_lock(&native->limited_lock);
    limited_stream **link = find(native, stream);
    limited_stream *gone = *link;
    if (gone != NULL) {
        *link = gone->next;
        for (uint32_t i = 0; i < native->limits->groups; i++) {
            native->limits->streams[i] -= gone->takes[i];
        }
    }
    pthread_mutex_unlock(&native->limited_lock);
    (void)weiri_cuda.cuStreamDestroy(stream);
    if (gone != NULL) {
        (void)weiri_cuda.cuGreenCtxDestroy(gone->context);
        weiri_free(gone);
    }
}

void weiri_cuda_limits_free(weiri_cuda_device *native) { weiri_free(native->limits); }

#endif
