/* cuda.c - the GPU backend: implements weiri_device_ops with the CUDA driver API. Memory is in cuda/memory.c, loading
 * of the driver in cuda/driver.c, kernels in cuda/launch.c, streams of few multiprocessors in cuda/limited.c.
 *
 * A device works in the primary context, as the CUDA runtime does: streams, pointers and functions of both are the
 * same. Each op enters the context and leaves it, and the caller's current context stays unchanged. No op uses the
 * legacy stream, because it would wait for a user's kernels. */
#include "src/device/cuda/driver.h"

#include <stdio.h>
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/clock.h"
#include "src/host/base/error.h"
#include "src/host/base/process.h"

/* fit_shape promises residency for kernels with up to this many registers a thread: enough for any kernel of 1,024
 * threads. */
#define SAFE_REGISTERS 64

static uint32_t cuda_count(char *reason) { return weiri_cuda_load(reason); }

/* ---- open and close --------------------------------------------------------------------------------- */

static weir_status get_attribute(const weir_device *device, CUdevice_attribute attribute, uint32_t *out)
{
    int value = 0;
    CUresult result = weiri_cuda.cuDeviceGetAttribute(&value, attribute, weiri_cuda_native(device)->ordinal);
    if (result != CUDA_SUCCESS) {
        return weiri_cuda_check(device, "cuDeviceGetAttribute", result);
    }
    *out = value < 0 ? 0 : (uint32_t)value;
    return WEIR_OK;
}

/* Reads the limits of the device from its attributes. */
static weir_status read_limits(weir_device *device)
{
    weiri_cuda_device *native = weiri_cuda_native(device);
    uint32_t registers = 0, vmm = 0, descriptors = 0, cooperative = 0, rdma = 0, domain = 0, bus = 0, slot = 0;
    const struct {
        CUdevice_attribute attribute;
        uint32_t *value;
    } wanted[] = {
        { CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &device->info.multiprocessors },
        { CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &device->info.block_threads },
        { CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, &native->thread_limit },
        { CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, &native->block_limit },
        { CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, &registers },
        { CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, &cooperative },
        { CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, &vmm },
        { CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, &descriptors },
        { CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, &rdma },
        { CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, &domain },
        { CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, &bus },
        { CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, &slot },
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        weir_status status = get_attribute(device, wanted[i].attribute, wanted[i].value);
        if (status != WEIR_OK) {
            return status;
        }
    }
    native->cooperative = cooperative != 0;
    native->rdma = rdma != 0;
    native->shareable = vmm != 0 && descriptors != 0;
    native->safe_threads = registers / SAFE_REGISTERS;
    if (native->safe_threads > native->thread_limit) {
        native->safe_threads = native->thread_limit;
    }
    device->info.resident_threads = device->info.multiprocessors * native->thread_limit;
    device->info.warps = true;
    device->info.own_cores = true;
    device->info.stream_copies = true;
    snprintf(device->pci, sizeof device->pci, "%04x:%02x:%02x.0", domain & 0xffff, bus & 0xff, slot & 0x1f);
    return WEIR_OK;
}

static weir_status read_identity(weir_device *device)
{
    CUdevice ordinal = weiri_cuda_native(device)->ordinal;
    CUresult result = weiri_cuda.cuDeviceGetName(device->info.model, (int)sizeof device->info.model, ordinal);
    if (result != CUDA_SUCCESS) {
        return weiri_cuda_check(device, "cuDeviceGetName", result);
    }
    CUuuid uuid;
    result = weiri_cuda.cuDeviceGetUuid_v2(&uuid, ordinal);
    if (result != CUDA_SUCCESS) {
        return weiri_cuda_check(device, "cuDeviceGetUuid", result);
    }
    memcpy(device->info.uuid, uuid.bytes, sizeof device->info.uuid);
    size_t bytes = 0;
    result = weiri_cuda.cuDeviceTotalMem(&bytes, ordinal);
    if (result != CUDA_SUCCESS) {
        return weiri_cuda_check(device, "cuDeviceTotalMem", result);
    }
    device->info.memory_bytes = bytes;
    int version = 0;
    result = weiri_cuda.cuDriverGetVersion(&version);
    if (result != CUDA_SUCCESS) {
        return weiri_cuda_check(device, "cuDriverGetVersion", result);
    }
    device->info.driver_version = (uint32_t)version;
    return WEIR_OK;
}

static weir_status read_granularity(weir_device *device)
{
    weiri_cuda_device *native = weiri_cuda_native(device);
    if (!native->shareable) {
        return WEIR_OK;
    }
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = native->ordinal;
    size_t granularity = 0;
    CUresult result = weiri_cuda.cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (result != CUDA_SUCCESS) {
        return weiri_cuda_check(device, "cuMemGetAllocationGranularity", result);
    }
    if (granularity == 0) {
        return weiri_fail(WEIR_ERR_DEVICE, "gpu:%u: cuMemGetAllocationGranularity: returned 0", device->info.index);
    }
    native->granularity = granularity;
    return WEIR_OK;
}

/* Reads the device's properties and creates its stream, in the entered context. */
static weir_status start(weir_device *device)
{
    weir_status status = read_identity(device);
    if (status == WEIR_OK) {
        status = read_limits(device);
    }
    if (status == WEIR_OK) {
        status = read_granularity(device);
    }
    if (status == WEIR_OK) {
        status =
            weiri_cuda_check(device, "cuStreamCreate",
                             weiri_cuda.cuStreamCreate(&weiri_cuda_native(device)->stream, CU_STREAM_NON_BLOCKING));
    }
    return status;
}

/* The GPU's primary context. It is retained once and stays until the process ends. The CUDA runtime of the user's
 * program keeps state in it and breaks if another thread destroys it. Starting a context takes a quarter of a
 * second. */
static weir_status find_context(const weir_device *device, CUdevice ordinal, CUcontext *out)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static CUcontext contexts[WEIRI_CUDA_GPUS_MAX];
    if (ordinal < 0 || ordinal >= WEIRI_CUDA_GPUS_MAX) {
        return weiri_fail(WEIR_ERR_LIMIT, "gpu:%d: a process uses at most %d GPUs", (int)ordinal, WEIRI_CUDA_GPUS_MAX);
    }
    weir_status status = WEIR_OK;
    pthread_mutex_lock(&lock);
    if (contexts[ordinal] == NULL) {
        status = weiri_cuda_check(device, "cuDevicePrimaryCtxRetain",
                                  weiri_cuda.cuDevicePrimaryCtxRetain(&contexts[ordinal], ordinal));
    }
    *out = contexts[ordinal];
    pthread_mutex_unlock(&lock);
    return status;
}

static void cuda_close(weir_device *device)
{
    weiri_cuda_device *native = weiri_cuda_native(device);
    CUstreamCaptureMode mode;
    if (weiri_cuda_enter(device, &mode) == WEIR_OK) {
        (void)weiri_cuda.cuStreamDestroy(native->stream);
        weiri_cuda_leave(mode);
    }
    pthread_mutex_destroy(&native->stream_lock);
    pthread_mutex_destroy(&native->kernels_lock);
    weiri_free(native->kernels);
    weiri_free(native);
    device->native = NULL;
}

static weir_status cuda_open(weir_device *device)
{
    char reason[256] = "";
    uint32_t devices = weiri_cuda_load(reason);
    if (devices == 0) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "gpu:%u: no GPU: %s", device->info.index, reason);
    }
    if (device->info.index >= devices) {
        return weiri_fail(WEIR_ERR_INVALID, "gpu:%u: there are only %u GPUs", device->info.index, devices);
    }
    weiri_cuda_device *native = weiri_alloc(1, sizeof *native);
    if (native == NULL) {
        return weiri_fail_nomem("gpu");
    }
    CUstreamCaptureMode mode;
    weir_status status =
        weiri_cuda_check(device, "cuDeviceGet", weiri_cuda.cuDeviceGet(&native->ordinal, (int)device->info.index));
    if (status != WEIR_OK) {
        goto free_native;
    }
    status = find_context(device, native->ordinal, &native->context);
    if (status != WEIR_OK) {
        goto free_native;
    }
    device->native = native;
    status = weiri_cuda_enter(device, &mode);
    if (status != WEIR_OK) {
        goto free_native;
    }
    status = start(device);
    if (status != WEIR_OK) {
        goto leave;
    }
    pthread_mutex_init(&native->stream_lock, NULL);
    pthread_mutex_init(&native->kernels_lock, NULL);
    status = weiri_cuda_load_families(device);
    weiri_cuda_leave(mode);
    if (status != WEIR_OK) {
        cuda_close(device);
    }
    return status;

leave:
    weiri_cuda_leave(mode);
free_native:
    device->native = NULL;
    weiri_free(native);
    return status;
}

/* ---- reach and shapes ------------------------------------------------------------------------------- */

/* The ordinal of the visible GPU with this UUID; -1 if there is none. */
static int find_ordinal(const uint8_t uuid[16])
{
    int count = 0;
    if (weiri_cuda.cuDeviceGetCount(&count) != CUDA_SUCCESS) {
        return -1;
    }
    for (int i = 0; i < count; i++) {
        CUdevice ordinal;
        CUuuid found;
        if (weiri_cuda.cuDeviceGet(&ordinal, i) == CUDA_SUCCESS &&
            weiri_cuda.cuDeviceGetUuid_v2(&found, ordinal) == CUDA_SUCCESS && memcmp(found.bytes, uuid, 16) == 0) {
            return i;
        }
    }
    return -1;
}

static weir_status cuda_reach(weir_device *device, const char *kind, const uint8_t uuid[16])
{
    if (strcmp(kind, "gpu") != 0) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED,
                          "gpu:%u: a GPU and a device of kind \"%s\" do not map each other's memory",
                          device->info.index, kind);
    }
    if (memcmp(uuid, device->info.uuid, sizeof device->info.uuid) == 0) {
        return WEIR_OK;
    }
    int index = find_ordinal(uuid);
    if (index < 0) {
        /* CUDA_VISIBLE_DEVICES hides the peer. The driver may still be able to map its memory; import finds out. */
        return WEIR_OK;
    }
    CUdevice peer;
    int can = 0;
    CUresult result = weiri_cuda.cuDeviceGet(&peer, index);
    if (result != CUDA_SUCCESS) {
        return weiri_cuda_check(device, "cuDeviceGet", result);
    }
    result = weiri_cuda.cuDeviceCanAccessPeer(&can, weiri_cuda_native(device)->ordinal, peer);
    if (result != CUDA_SUCCESS) {
        return weiri_cuda_check(device, "cuDeviceCanAccessPeer", result);
    }
    if (can == 0) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "gpu:%u: gpu:%u and gpu:%d have no peer access", device->info.index,
                          device->info.index, index);
    }
    return WEIR_OK;
}

/* NVLink keeps lines whole; PCIe may split a transfer anywhere. A link with atomics is NVLink. The driver cannot be
 * asked about a peer that CUDA_VISIBLE_DEVICES hides. */
static bool cuda_keeps_lines(weir_device *device, const uint8_t uuid[16])
{
    if (memcmp(uuid, device->info.uuid, sizeof device->info.uuid) == 0) {
        return true;
    }
    CUdevice peer;
    int atomics = 0;
    int index = find_ordinal(uuid);
    return index >= 0 && weiri_cuda.cuDeviceGet(&peer, index) == CUDA_SUCCESS &&
           weiri_cuda.cuDeviceGetP2PAttribute(&atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED,
                                              weiri_cuda_native(device)->ordinal, peer) == CUDA_SUCCESS &&
           atomics != 0;
}

static uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }

static uint32_t max_u32(uint32_t a, uint32_t b) { return a > b ? a : b; }

static weir_shape cuda_fit_shape(const weir_device *device, weir_shape wanted)
{
    const weiri_cuda_device *native = weiri_cuda_native(device);
    weir_shape shape;
    shape.threads = max_u32(1, min_u32(wanted.threads, device->info.block_threads));
    uint32_t per_multiprocessor = max_u32(1, min_u32(native->safe_threads / shape.threads, native->block_limit));
    shape.blocks = max_u32(1, min_u32(wanted.blocks, device->info.multiprocessors * per_multiprocessor));
    return shape;
}

/* ---- streams, events and graphs --------------------------------------------------------------------- */

static weir_status cuda_stream_create(weir_device *device, void **out)
{
    CUstreamCaptureMode mode;
    weir_status status = weiri_cuda_enter(device, &mode);
    if (status != WEIR_OK) {
        return status;
    }
    CUstream stream = NULL;
    status = weiri_cuda_check(device, "cuStreamCreate", weiri_cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    weiri_cuda_leave(mode);
    if (status == WEIR_OK) {
        *out = stream;
    }
    return status;
}

static weir_status cuda_stream_wait(weir_device *device, void *stream, uint64_t deadline_ns)
{
    CUstreamCaptureMode mode;
    weir_status status = weiri_cuda_enter(device, &mode);
    if (status != WEIR_OK) {
        return status;
    }
    status = weiri_cuda_poll(device, "stream_wait", stream, deadline_ns);
    weiri_cuda_leave(mode);
    return status;
}

static void cuda_stream_destroy(weir_device *device, void *stream)
{
    CUstreamCaptureMode mode;
    if (weiri_cuda_enter(device, &mode) == WEIR_OK) {
        (void)weiri_cuda_poll(device, "stream_destroy", stream, weiri_deadline(device->kernel_timeout_ms));
        weiri_cuda_stream_end(device, stream);
        weiri_cuda_leave(mode);
    } else if (device->pid == (int)weiri_process_id()) {
        weiri_cuda_stream_forget(device, stream);
    }
}

static weir_status cuda_event_create(weir_device *device, void **out)
{
    CUstreamCaptureMode mode;
    weir_status status = weiri_cuda_enter(device, &mode);
    if (status != WEIR_OK) {
        return status;
    }
    CUevent event = NULL;
    status = weiri_cuda_check(device, "cuEventCreate", weiri_cuda.cuEventCreate(&event, CU_EVENT_DEFAULT));
    weiri_cuda_leave(mode);
    if (status == WEIR_OK) {
        *out = event;
    }
    return status;
}

static void cuda_event_destroy(weir_device *device, void *event)
{
    CUstreamCaptureMode mode;
    if (weiri_cuda_enter(device, &mode) == WEIR_OK) {
        (void)weiri_cuda.cuEventDestroy(event);
        weiri_cuda_leave(mode);
    }
}

/* In the entered context. *id is 0 if the stream captures nothing. While another stream captures, the legacy stream
 * cannot be asked, and nothing can be put on it. */
static weir_status find_capture(const weir_device *device, CUstream stream, cuuint64_t *id)
{
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t found = 0;
    const CUresult result = weiri_cuda.cuStreamGetCaptureInfo_v2(stream, &capture, &found, NULL, NULL, NULL);
    *id = capture == CU_STREAM_CAPTURE_STATUS_ACTIVE ? found : 0;
    return weiri_cuda_check(device, "cuStreamGetCaptureInfo", result);
}

static weir_status cuda_stream_recording(weir_device *device, void *stream, uint64_t *id)
{
    CUstreamCaptureMode mode;
    cuuint64_t found = 0;
    weir_status status = weiri_cuda_enter(device, &mode);
    if (status != WEIR_OK) {
        return status;
    }
    status = find_capture(device, stream, &found);
    weiri_cuda_leave(mode);
    *id = found;
    return status;
}

/* The driver accepts the flags for nodes of events only where a stream captures. */
static weir_status cuda_event_record(weir_device *device, void *event, void *stream, bool outside)
{
    CUstreamCaptureMode mode;
    cuuint64_t capture = 0;
    weir_status status = weiri_cuda_enter(device, &mode);
    if (status != WEIR_OK) {
        return status;
    }
    status = outside ? find_capture(device, stream, &capture) : WEIR_OK;
    const bool turn = weiri_cuda_submit_begin(device);
    if (status == WEIR_OK && capture != 0) {
        status = weiri_cuda_check(device, "cuEventRecordWithFlags",
                                  weiri_cuda.cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL));
    } else if (status == WEIR_OK) {
        status = weiri_cuda_check(device, "cuEventRecord", weiri_cuda.cuEventRecord(event, stream));
    }
    weiri_cuda_submit_end(device, turn);
    weiri_cuda_leave(mode);
    return status;
}

static weir_status cuda_stream_wait_event(weir_device *device, void *stream, void *event, bool outside)
{
    CUstreamCaptureMode mode;
    cuuint64_t capture = 0;
    weir_status status = weiri_cuda_enter(device, &mode);
    if (status != WEIR_OK) {
        return status;
    }
    status = outside ? find_capture(device, stream, &capture) : WEIR_OK;
    if (status == WEIR_OK) {
        const unsigned flags = capture != 0 ? CU_EVENT_WAIT_EXTERNAL : CU_EVENT_WAIT_DEFAULT;
        const bool turn = weiri_cuda_submit_begin(device);
        status = weiri_cuda_check(device, "cuStreamWaitEvent", weiri_cuda.cuStreamWaitEvent(stream, event, flags));
        weiri_cuda_submit_end(device, turn);
    }
    weiri_cuda_leave(mode);
    return status;
}

/* In the entered context. */
static weir_status elapsed(weir_device *device, CUevent from, CUevent to, double *ms)
{
    const CUevent events[] = { from, to };
    for (size_t i = 0; i < 2; i++) {
        CUresult result = weiri_cuda.cuEventQuery(events[i]);
        if (result == CUDA_ERROR_NOT_READY) {
            return WEIR_PENDING;
        }
        if (result != CUDA_SUCCESS) {
            return weiri_cuda_check(device, "cuEventQuery", result);
        }
    }
    float value = 0;
    CUresult result = weiri_cuda.cuEventElapsedTime(&value, from, to);
    if (result == CUDA_ERROR_NOT_READY) {
        return WEIR_PENDING;
    }
    if (result == CUDA_ERROR_INVALID_HANDLE) {
        return weiri_fail(WEIR_ERR_INVALID, "gpu:%u: an event was never recorded", device->info.index);
    }
    if (result != CUDA_SUCCESS) {
        return weiri_cuda_check(device, "cuEventElapsedTime", result);
    }
    *ms = (double)value;
    return WEIR_OK;
}

static weir_status cuda_event_elapsed(weir_device *device, void *from, void *to, double *ms)
{
    CUstreamCaptureMode mode;
    weir_status status = weiri_cuda_enter(device, &mode);
    if (status != WEIR_OK) {
        return status;
    }
    status = elapsed(device, from, to, ms);
    weiri_cuda_leave(mode);
    return status;
}

static weir_status cuda_graph_begin(weir_device *device, void *stream)
{
    CUstreamCaptureMode mode;
    weir_status status = weiri_cuda_enter(device, &mode);
    if (status != WEIR_OK) {
        return status;
    }
    status = weiri_cuda_check(device, "cuStreamBeginCapture",
                              weiri_cuda.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    weiri_cuda_leave(mode);
    return status;
}

/* In the entered context. */
static weir_status end_capture(weir_device *device, CUstream stream, CUgraphExec *out)
{
    CUgraph graph = NULL;
    CUresult result = weiri_cuda.cuStreamEndCapture(stream, &graph);
    if (result != CUDA_SUCCESS) {
        return weiri_cuda_check(device, "cuStreamEndCapture", result);
    }
    result = weiri_cuda.cuGraphInstantiate(out, graph, 0);
    (void)weiri_cuda.cuGraphDestroy(graph);
    return weiri_cuda_check(device, "cuGraphInstantiate", result);
}

static weir_status cuda_graph_end(weir_device *device, void *stream, void **out)
{
    CUstreamCaptureMode mode;
    weir_status status = weiri_cuda_enter(device, &mode);
    if (status != WEIR_OK) {
        return status;
    }
    CUgraphExec graph = NULL;
    status = end_capture(device, stream, &graph);
    weiri_cuda_leave(mode);
    if (status == WEIR_OK) {
        *out = graph;
    }
    return status;
}

static weir_status cuda_graph_launch(weir_device *device, void *graph, void *stream)
{
    CUstreamCaptureMode mode;
    weir_status status = weiri_cuda_enter(device, &mode);
    if (status != WEIR_OK) {
        return status;
    }
    const bool turn = weiri_cuda_submit_begin(device);
    status = weiri_cuda_check(device, "cuGraphLaunch", weiri_cuda.cuGraphLaunch(graph, stream));
    weiri_cuda_submit_end(device, turn);
    weiri_cuda_leave(mode);
    return status;
}

static void cuda_graph_destroy(weir_device *device, void *graph)
{
    CUstreamCaptureMode mode;
    if (weiri_cuda_enter(device, &mode) == WEIR_OK) {
        (void)weiri_cuda.cuGraphExecDestroy(graph);
        weiri_cuda_leave(mode);
    }
}

const weiri_device_ops weiri_cuda_ops = {
    .kind = "gpu",
    .label = "GPU",
    .count = cuda_count,
    .open = cuda_open,
    .close = cuda_close,
    .allocate = weiri_cuda_allocate,
    .wrap = weiri_cuda_wrap,
    .import = weiri_cuda_import,
    .release = weiri_cuda_release,
    .dmabuf = weiri_cuda_dmabuf,
    .map_registers = weiri_cuda_map_registers,
    .reach = cuda_reach,
    .keeps_lines = cuda_keeps_lines,
    .thread_enter = weiri_cuda_thread_enter,
    .thread_leave = weiri_cuda_thread_leave,
    .locate = weiri_cuda_locate,
    .identify = weiri_cuda_identify,
    .copy = weiri_cuda_copy,
    .fill = weiri_cuda_fill,
    .copy_async = weiri_cuda_copy_async,
    .store_async = weiri_cuda_store_async,
    .stream_create = cuda_stream_create,
    .stream_create_limited = weiri_cuda_stream_create_limited,
    .stream_multiprocessors = weiri_cuda_stream_multiprocessors,
    .stream_destroy = cuda_stream_destroy,
    .stream_wait = cuda_stream_wait,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .stream_wait_event = cuda_stream_wait_event,
    .stream_recording = cuda_stream_recording,
    .event_elapsed = cuda_event_elapsed,
    .graph_begin = cuda_graph_begin,
    .graph_end = cuda_graph_end,
    .graph_launch = cuda_graph_launch,
    .graph_destroy = cuda_graph_destroy,
    .kernel_load = weiri_cuda_kernel_load,
    .kernel_fit = weiri_cuda_kernel_fit,
    .launch = weiri_cuda_launch,
    .fit_shape = cuda_fit_shape,
};
