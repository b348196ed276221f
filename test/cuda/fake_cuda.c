/* fake_cuda.c - the functions of the driver that do something; fake_cuda_rest.c has the others. */
#define _GNU_SOURCE
#include "test/cuda/fake_cuda.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/device/cuda/driver.h"
#include "test/cuda/fake_cuda_call.h"

#define GPUS 2
#define GRANULARITY ((size_t)2 << 20)
#define MULTIPROCESSORS 132u
#define GROUP 8u    /* multiprocessors of a group */
#define CONTEXTS 8u /* that a thread can have entered */

static _Thread_local unsigned launches;
static _Thread_local const void *launched;
static _Thread_local unsigned depth;
static _Thread_local CUcontext contexts[CONTEXTS]; /* the current one last */
static _Thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
static atomic_long alive;
static atomic_uintptr_t last_object = 4096; /* streams, events, functions: numbers that nobody dereferences */

unsigned fake_cuda_launches(void) { return launches; }

const void *fake_cuda_launched(void) { return launched; }

long fake_cuda_alive(void) { return atomic_load(&alive); }

unsigned fake_cuda_inside(void) { return depth + (mode != CU_STREAM_CAPTURE_MODE_GLOBAL); }

static void *new_object(void) { return (void *)(atomic_fetch_add(&last_object, 16) + 16); }

/* The object belongs to the caller, who ends it by a call. */
static void *new_owned(void)
{
    atomic_fetch_add(&alive, 1);
    return new_object();
}

static CUresult end_owned(void)
{
    fake_cuda_count();
    atomic_fetch_sub(&alive, 1);
    return CUDA_SUCCESS;
}

/* ---- devices ------------------------------------------------------------------------------------------------- */

CUresult cuDriverGetVersion(int *version)
{
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        *version = CUDA_VERSION;
    }
    return result;
}

CUresult cuGetErrorName(CUresult error, const char **name)
{
    fake_cuda_count();
    *name = error == CUDA_SUCCESS ? "CUDA_SUCCESS" : "CUDA_ERROR_OF_A_TEST";
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    fake_cuda_count();
    *text = error == CUDA_SUCCESS ? "no error" : "an error of a test";
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        *count = GPUS;
    }
    return result;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        *device = ordinal;
    }
    return result;
}

CUresult cuDeviceGetName(char *name, int bytes, CUdevice device)
{
    (void)device;
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        strncpy(name, "fake GPU", (size_t)bytes);
    }
    return result;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        memset(uuid, 0, sizeof *uuid);
        uuid->bytes[0] = (char)(device + 1);
    }
    return result;
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    (void)device;
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        *bytes = (size_t)1 << 36;
    }
    return result;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        switch (attribute) {
        case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
            *value = MULTIPROCESSORS;
            break;
        case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
            *value = 1024;
            break;
        case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
            *value = 2048;
            break;
        case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
            *value = 32;
            break;
        case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
            *value = 65536;
            break;
        case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
            *value = device;
            break;
        case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
            *value = 0;
            break;
        default:
            *value = 1;
        }
    }
    return result;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    (void)device;
    (void)peer;
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        *can = 1;
    }
    return result;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to)
{
    (void)attribute;
    (void)from;
    (void)to;
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        *value = 1;
    }
    return result;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    (void)device;
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        *context = (CUcontext)new_object();
    }
    return result;
}

CUresult cuCtxPushCurrent(CUcontext context)
{
    const CUresult result = depth < CONTEXTS ? fake_cuda_enter(__func__) : CUDA_ERROR_UNKNOWN;
    if (result == CUDA_SUCCESS) {
        contexts[depth++] = context;
    }
    return result;
}

CUresult cuCtxPopCurrent(CUcontext *context)
{
    fake_cuda_count();
    *context = contexts[--depth];
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    fake_cuda_count();
    *context = depth > 0 ? contexts[depth - 1] : NULL;
    return CUDA_SUCCESS;
}

void fake_cuda_replace_context(void) { contexts[depth - 1] = (CUcontext)new_object(); }

/* Fails only for a thread that enters. */
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *with)
{
    CUresult result = CUDA_SUCCESS;
    if (*with == CU_STREAM_CAPTURE_MODE_RELAXED) {
        result = fake_cuda_enter(__func__);
    } else {
        fake_cuda_count();
    }
    if (result == CUDA_SUCCESS) {
        const CUstreamCaptureMode before = mode;
        mode = *with;
        *with = before;
    }
    return result;
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
    (void)limit;
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        *value = 1024;
    }
    return result;
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option)
{
    (void)prop;
    (void)option;
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        *bytes = GRANULARITY;
    }
    return result;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
                     unsigned long long flags)
{
    (void)bytes;
    (void)prop;
    (void)flags;
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        *handle = (CUmemGenericAllocationHandle)(uintptr_t)new_owned();
    }
    return result;
}

/* weir then uses cuMemCreate alone. */
CUresult cuMemAlloc(CUdeviceptr *pointer, size_t bytes)
{
    (void)pointer;
    (void)bytes;
    fake_cuda_count();
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned flags)
{
    (void)pointer;
    (void)handle;
    (void)flags;
    fake_cuda_count();
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *pointer)
{
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        (void)new_owned();
        *handle = (CUmemGenericAllocationHandle)(uintptr_t)pointer;
    }
    return result;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    (void)handle;
    return end_owned();
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
    (void)handle;
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        memset(prop, 0, sizeof *prop);
        prop->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        prop->requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    }
    return result;
}

/* Each address is the beginning of an allocation. */
CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer)
{
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        *base = pointer;
        *bytes = GRANULARITY;
    }
    return result;
}

CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment, CUdeviceptr wished,
                             unsigned long long flags)
{
    (void)alignment;
    (void)wished;
    (void)flags;
    const CUresult result = fake_cuda_begin(__func__);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    (void)new_owned();
    *pointer = (CUdeviceptr)(uintptr_t)memory;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes)
{
    (void)munmap((void *)(uintptr_t)pointer, bytes);
    return end_owned();
}

CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    (void)pointer;
    (void)bytes;
    (void)offset;
    (void)handle;
    (void)flags;
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        (void)new_owned();
    }
    return result;
}

CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes)
{
    (void)pointer;
    (void)bytes;
    return end_owned();
}

CUresult cuMemExportToShareableHandle(void *handle, CUmemGenericAllocationHandle memory, CUmemAllocationHandleType type,
                                      unsigned long long flags)
{
    (void)memory;
    (void)type;
    (void)flags;
    const CUresult result = fake_cuda_begin(__func__);
    const int fd = result == CUDA_SUCCESS ? memfd_create("fake_cuda", MFD_CLOEXEC) : -1;
    if (fd >= 0) {
        memcpy(handle, &fd, sizeof fd);
    }
    return result == CUDA_SUCCESS && fd < 0 ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

CUresult cuMemHostRegister(void *host, size_t bytes, unsigned flags)
{
    (void)host;
    (void)bytes;
    (void)flags;
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        (void)new_owned();
    }
    return result;
}

CUresult cuMemHostUnregister(void *host)
{
    (void)host;
    return end_owned();
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr *pointer, void *host, unsigned flags)
{
    (void)flags;
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        *pointer = (CUdeviceptr)(uintptr_t)host;
    }
    return result;
}

/* All memory is that of GPU 0. */
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **values, CUdeviceptr pointer)
{
    const CUresult result = fake_cuda_begin(__func__);
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++) {
        const CUpointer_attribute which = attributes[i];
        const bool address = which == CU_POINTER_ATTRIBUTE_DEVICE_POINTER ||
                             which == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR || which == CU_POINTER_ATTRIBUTE_BUFFER_ID;
        const uint64_t word = which == CU_POINTER_ATTRIBUTE_MEMORY_TYPE  ? (uint64_t)CU_MEMORYTYPE_DEVICE
                              : which == CU_POINTER_ATTRIBUTE_RANGE_SIZE ? (uint64_t)1 << 30
                              : address                                  ? (uint64_t)pointer
                                                                         : 0;
        const bool narrow = which == CU_POINTER_ATTRIBUTE_MEMORY_TYPE || which == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ||
                            which == CU_POINTER_ATTRIBUTE_IS_MANAGED ||
                            which == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE;
        memcpy(values[i], &word, narrow ? sizeof(uint32_t) : sizeof word);
    }
    return result;
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    (void)stream;
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    }
    return result;
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream)
{
    (void)stream;
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        memset((void *)(uintptr_t)to, value, bytes);
    }
    return result;
}

/* ---- streams and kernels --------------------------------------------------------------------------------------- */

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    (void)flags;
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        *stream = (CUstream)new_owned();
    }
    return result;
}

CUresult cuStreamDestroy(CUstream stream)
{
    (void)stream;
    return end_owned();
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                   const CUgraphNode **dependencies, size_t *count)
{
    (void)stream;
    (void)id;
    (void)graph;
    (void)dependencies;
    (void)count;
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        *status = CU_STREAM_CAPTURE_STATUS_NONE;
    }
    return result;
}

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    (void)flags;
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        *event = (CUevent)new_owned();
    }
    return result;
}

CUresult cuEventDestroy(CUevent event)
{
    (void)event;
    return end_owned();
}

CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to)
{
    (void)from;
    (void)to;
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        *ms = 1;
    }
    return result;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    (void)stream;
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        *graph = (CUgraph)new_owned();
    }
    return result;
}

CUresult cuGraphDestroy(CUgraph graph)
{
    (void)graph;
    return end_owned();
}

CUresult cuGraphInstantiate(CUgraphExec *made, CUgraph graph, unsigned long long flags)
{
    (void)graph;
    (void)flags;
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        *made = (CUgraphExec)new_owned();
    }
    return result;
}

CUresult cuGraphExecDestroy(CUgraphExec graph)
{
    (void)graph;
    return end_owned();
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    (void)image;
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        *module = (CUmodule)new_object();
    }
    return result;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    (void)module;
    (void)name;
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        *function = (CUfunction)new_object();
    }
    return result;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    (void)function;
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
    }
    return result;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads, size_t bytes)
{
    (void)function;
    (void)threads;
    (void)bytes;
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        *blocks = 1;
    }
    return result;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
    (void)config;
    (void)params;
    (void)extra;
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        launches++;
        launched = (const void *)function;
    }
    return result;
}

#if CUDA_VERSION >= 12050

/* ---- streams of few multiprocessors ---------------------------------------------------------------------------- */

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
    (void)device;
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        memset(resource, 0, sizeof *resource);
        resource->type = type;
        resource->sm.smCount = MULTIPROCESSORS;
    }
    return result;
}

CUresult cuDevSmResourceSplitByCount(CUdevResource *groups, unsigned *count, const CUdevResource *input,
                                     CUdevResource *rest, unsigned flags, unsigned least)
{
    (void)flags;
    (void)least;
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        *count = MULTIPROCESSORS / GROUP;
        for (unsigned i = 0; i < *count; i++) {
            groups[i] = *input;
            groups[i].sm.smCount = GROUP;
        }
        *rest = *input;
        rest->sm.smCount = MULTIPROCESSORS % GROUP;
    }
    return result;
}

CUresult cuGreenCtxCreate(CUgreenCtx *context, CUdevResourceDesc description, CUdevice device, unsigned flags)
{
    (void)description;
    (void)device;
    (void)flags;
    const CUresult result = fake_cuda_begin(__func__);
    if (result == CUDA_SUCCESS) {
        *context = (CUgreenCtx)new_owned();
    }
    return result;
}

CUresult cuGreenCtxDestroy(CUgreenCtx context)
{
    (void)context;
    return end_owned();
}

CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx context, unsigned flags, int priority)
{
    (void)context;
    (void)priority;
    return cuStreamCreate(stream, flags);
}

#endif
