/* limited.c - streams of few multiprocessors: streams of green contexts, which share the memory and the modules of the
 * primary context.
 *
 * The first such stream of a GPU has the driver split the multiprocessors into the smallest groups that it can make.
 * Those that the driver leaves over are the last group: 15 groups of 8 and one of 12 on H200. A stream takes the groups
 * that the fewest streams of the process use, whichever weir_device they were created with. */
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

void weiri_cuda_stream_forget(const weir_device *device, CUstream stream)
{
    (void)device;
    (void)stream;
}

#else

#define GROUPS_MAX 128u

typedef struct limited_stream {
    struct limited_stream *next;
    CUstream stream;
    CUgreenCtx context;
    uint32_t multiprocessors;
    bool takes[GROUPS_MAX];
} limited_stream;

/* How a GPU is split. Exists while it has limited streams. */
typedef struct cuda_limits {
    struct cuda_limits *next;
    CUdevice ordinal;
    uint32_t groups;
    uint32_t multiprocessors; /* of all groups */
    CUdevResource group[GROUPS_MAX];
    uint32_t streams[GROUPS_MAX]; /* that use the group */
    limited_stream *first;
} cuda_limits;

static struct {
    pthread_mutex_t lock;
    cuda_limits *first;
} limits_list = { PTHREAD_MUTEX_INITIALIZER, NULL };

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
static weir_status split(const weir_device *device, cuda_limits *limits)
{
    CUdevResource all, rest;
    unsigned groups = GROUPS_MAX - 1;
    memset(&all, 0, sizeof all);
    memset(&rest, 0, sizeof rest);
    weir_status status =
        check(device, "cuDeviceGetDevResource",
              weiri_cuda.cuDeviceGetDevResource(weiri_cuda_native(device)->ordinal, &all, CU_DEV_RESOURCE_TYPE_SM));
    if (status == WEIR_OK) {
        status = check(device, "cuDevSmResourceSplitByCount",
                       weiri_cuda.cuDevSmResourceSplitByCount(limits->group, &groups, &all, &rest, 0, 1));
    }
    if (status != WEIR_OK) {
        return status;
    }
    if (groups == 0 || limits->group[0].sm.smCount == 0) {
        return fail_driver(device, "the driver split the multiprocessors into no groups");
    }
    if (rest.type == CU_DEV_RESOURCE_TYPE_SM && rest.sm.smCount != 0) {
        limits->group[groups++] = rest;
    }
    limits->groups = groups;
    for (uint32_t i = 0; i < groups; i++) {
        limits->multiprocessors += limits->group[i].sm.smCount;
    }
    return WEIR_OK;
}

/* Where the list points to the limits of the device's GPU, or its end. With the lock. */
static cuda_limits **find_limits(const weir_device *device)
{
    cuda_limits **link = &limits_list.first;
    while (*link != NULL && (*link)->ordinal != weiri_cuda_native(device)->ordinal) {
        link = &(*link)->next;
    }
    return link;
}

/* Removes the limits if no stream uses them. With the lock. */
static void drop_limits(cuda_limits **link)
{
    cuda_limits *limits = *link;
    if (limits->first == NULL) {
        *link = limits->next;
        weiri_free(limits);
    }
}

/* The limits of the device's GPU, made if there are none. With the lock, in the entered context. */
static weir_status get_limits(const weir_device *device, cuda_limits **out)
{
    cuda_limits **link = find_limits(device);
    *out = *link;
    if (*out != NULL) {
        return WEIR_OK;
    }
    weir_status status = check_driver(device);
    if (status != WEIR_OK) {
        return status;
    }
    cuda_limits *limits = weiri_alloc(1, sizeof *limits);
    if (limits == NULL) {
        return weiri_fail_nomem("gpu: limited streams");
    }
    status = split(device, limits);
    if (status != WEIR_OK) {
        weiri_free(limits);
        return status;
    }
    limits->ordinal = weiri_cuda_native(device)->ordinal;
    *link = *out = limits;
    return WEIR_OK;
}

/* Marks and copies the groups that the fewest streams use, until they have at least `wanted` multiprocessors. Returns
 * the number of groups. */
static uint32_t choose_groups(const cuda_limits *limits, uint32_t wanted, limited_stream *made, CUdevResource *out)
{
    uint32_t count = 0;
    while (made->multiprocessors < wanted) {
        uint32_t best = GROUPS_MAX;
        for (uint32_t i = 0; i < limits->groups; i++) {
            if (!made->takes[i] && (best == GROUPS_MAX || limits->streams[i] < limits->streams[best])) {
                best = i;
            }
        }
        made->takes[best] = true;
        made->multiprocessors += limits->group[best].sm.smCount;
        out[count++] = limits->group[best];
    }
    return count;
}

/* Makes the green context and the stream of `made`, which the caller frees, in the entered context. */
static weir_status open_stream(const weir_device *device, const cuda_limits *shared, const weir_stream_limits *limits,
                               limited_stream *made)
{
    const weiri_cuda_device *native = weiri_cuda_native(device);
    CUdevResource chosen[GROUPS_MAX];
    CUdevResourceDesc description = NULL;
    const uint32_t groups = choose_groups(shared, limits->multiprocessors, made, chosen);
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
    status = check(
        device, "cuGreenCtxStreamCreate",
        weiri_cuda.cuGreenCtxStreamCreate(&made->stream, made->context, CU_STREAM_NON_BLOCKING, limits->priority));
    if (status != WEIR_OK) {
        (void)weiri_cuda.cuGreenCtxDestroy(made->context);
    }
    return status;
}

/* With the lock, in the entered context. */
static weir_status create(const weir_device *device, cuda_limits *shared, const weir_stream_limits *limits, void **out)
{
    if (limits->multiprocessors > shared->multiprocessors) {
        return weiri_fail(WEIR_ERR_LIMIT, "gpu:%u: limits.multiprocessors is %u: the GPU has %u", device->info.index,
                          limits->multiprocessors, shared->multiprocessors);
    }
    limited_stream *made = weiri_alloc(1, sizeof *made);
    if (made == NULL) {
        return weiri_fail_nomem("gpu: limited stream");
    }
    weir_status status = open_stream(device, shared, limits, made);
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
    CUstreamCaptureMode mode;
    cuda_limits *shared = NULL;
    weir_status status = weiri_cuda_enter(device, &mode);
    if (status != WEIR_OK) {
        return status;
    }
    pthread_mutex_lock(&limits_list.lock);
    status = get_limits(device, &shared);
    if (status == WEIR_OK) {
        status = create(device, shared, limits, out);
        drop_limits(find_limits(device));
    }
    pthread_mutex_unlock(&limits_list.lock);
    weiri_cuda_leave(mode);
    return status;
}

/* Where the list points to the stream, or its end. With the lock. */
static limited_stream **find_stream(cuda_limits *limits, const void *stream)
{
    static limited_stream *nothing;
    limited_stream **link = limits != NULL ? &limits->first : &nothing;
    while (*link != NULL && (*link)->stream != stream) {
        link = &(*link)->next;
    }
    return link;
}

uint32_t weiri_cuda_stream_multiprocessors(weir_device *device, void *stream)
{
    pthread_mutex_lock(&limits_list.lock);
    const limited_stream *found = *find_stream(*find_limits(device), stream);
    const uint32_t multiprocessors = found != NULL ? found->multiprocessors : 0;
    pthread_mutex_unlock(&limits_list.lock);
    return multiprocessors;
}

/* Takes the stream off the list; NULL if it is not a limited one. The caller frees it. */
static limited_stream *take_stream(const weir_device *device, const void *stream)
{
    pthread_mutex_lock(&limits_list.lock);
    cuda_limits **limits = find_limits(device);
    limited_stream **link = find_stream(*limits, stream);
    limited_stream *gone = *link;
    if (gone != NULL) {
        *link = gone->next;
        for (uint32_t i = 0; i < (*limits)->groups; i++) {
            (*limits)->streams[i] -= gone->takes[i];
        }
        drop_limits(limits);
    }
    pthread_mutex_unlock(&limits_list.lock);
    return gone;
}

void weiri_cuda_stream_end(weir_device *device, CUstream stream)
{
    limited_stream *gone = take_stream(device, stream);
    (void)weiri_cuda.cuStreamDestroy(stream);
    if (gone != NULL) {
        (void)weiri_cuda.cuGreenCtxDestroy(gone->context);
        weiri_free(gone);
    }
}

void weiri_cuda_stream_forget(const weir_device *device, CUstream stream) { weiri_free(take_stream(device, stream)); }

#endif
