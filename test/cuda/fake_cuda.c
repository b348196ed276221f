/* fake_cuda.c - the functions that do something; fake_cuda_rest.c has the others. */
#define _GNU_SOURCE
#include "test/cuda/fake_cuda.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/device/cuda/driver.h"

#define GPUS 2
#define GRANULARITY ((size_t)2 << 20)

static _Thread_local unsigned launches;
static _Thread_local const void *launched;
static atomic_uintptr_t last_object = 4096; /* streams, events, functions: numbers that nobody dereferences */

CUresult fake_cuda_success(void); /* in fake_cuda_rest.c */

unsigned fake_cuda_launches(void) { return launches; }

const void *fake_cuda_launched(void) { return launched; }

static void *new_object(void) { return (void *)(atomic_fetch_add(&last_object, 16) + 16); }

/* ---- devices ------------------------------------------------------------------------------------------------- */

CUresult cuDriverGetVersion(int *version)
{
    *version = CUDA_VERSION;
    return fake_cuda_success();
}

CUresult cuGetErrorName(CUresult error, const char **name)
{
    *name = error == CUDA_SUCCESS ? "CUDA_SUCCESS" : "CUDA_ERROR_OF_A_TEST";
    return fake_cuda_success();
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    *text = error == CUDA_SUCCESS ? "no error" : "an error of a test";
    return fake_cuda_success();
}

CUresult cuDeviceGetCount(int *count)
{
    *count = GPUS;
    return fake_cuda_success();
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return fake_cuda_success();
}

CUresult cuDeviceGetName(char *name, int bytes, CUdevice device)
{
    (void)device;
    strncpy(name, "fake GPU", (size_t)bytes);
    return fake_cuda_success();
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    memset(uuid, 0, sizeof *uuid);
    uuid->bytes[0] = (char)(device + 1);
    return fake_cuda_success();
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    (void)device;
    *bytes = (size_t)1 << 36;
    return fake_cuda_success();
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *value = 132;
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
    return fake_cuda_success();
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    (void)device;
    (void)peer;
    *can = 1;
    return fake_cuda_success();
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to)
{
    (void)attribute;
    (void)from;
    (void)to;
    *value = 1;
    return fake_cuda_success();
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    (void)device;
    *context = (CUcontext)new_object();
    return fake_cuda_success();
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
    (void)limit;
    *value = 1024;
    return fake_cuda_success();
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option)
{
    (void)prop;
    (void)option;
    *bytes = GRANULARITY;
    return fake_cuda_success();
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
                     unsigned long long flags)
{
    (void)prop;
    (void)flags;
    *handle = bytes;
    return fake_cuda_success();
}

CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment, CUdeviceptr wished,
                             unsigned long long flags)
{
    (void)alignment;
    (void)wished;
    (void)flags;
    (void)fake_cuda_success();
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *pointer = (CUdeviceptr)(uintptr_t)memory;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes)
{
    (void)munmap((void *)(uintptr_t)pointer, bytes);
    return fake_cuda_success();
}

CUresult cuMemExportToShareableHandle(void *handle, CUmemGenericAllocationHandle memory, CUmemAllocationHandleType type,
                                      unsigned long long flags)
{
    (void)memory;
    (void)type;
    (void)flags;
    (void)fake_cuda_success();
    const int fd = memfd_create("fake_cuda", MFD_CLOEXEC);
    memcpy(handle, &fd, sizeof fd);
    return fd < 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr *pointer, void *host, unsigned flags)
{
    (void)flags;
    *pointer = (CUdeviceptr)(uintptr_t)host;
    return fake_cuda_success();
}

/* All memory is the GPU's own. */
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **values, CUdeviceptr pointer)
{
    for (unsigned i = 0; i < count; i++) {
        const uint64_t word = attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ? (uint64_t)CU_MEMORYTYPE_DEVICE
                              : attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_POINTER ||
                                      attributes[i] == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR ||
                                      attributes[i] == CU_POINTER_ATTRIBUTE_BUFFER_ID
                                  ? (uint64_t)pointer
                              : attributes[i] == CU_POINTER_ATTRIBUTE_RANGE_SIZE ? (uint64_t)1 << 30
                                                                                 : 0;
        const bool narrow = attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ||
                            attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ||
                            attributes[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED ||
                            attributes[i] == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE;
        memcpy(values[i], &word, narrow ? sizeof(uint32_t) : sizeof word);
    }
    return fake_cuda_success();
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    (void)stream;
    memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    return fake_cuda_success();
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream)
{
    (void)stream;
    memset((void *)(uintptr_t)to, value, bytes);
    return fake_cuda_success();
}

/* ---- streams and kernels --------------------------------------------------------------------------------------- */

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    (void)flags;
    *stream = (CUstream)new_object();
    return fake_cuda_success();
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                   const CUgraphNode **dependencies, size_t *count)
{
    (void)stream;
    (void)id;
    (void)graph;
    (void)dependencies;
    (void)count;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return fake_cuda_success();
}

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    (void)flags;
    *event = (CUevent)new_object();
    return fake_cuda_success();
}

CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to)
{
    (void)from;
    (void)to;
    *ms = 0;
    return fake_cuda_success();
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    (void)image;
    *module = (CUmodule)new_object();
    return fake_cuda_success();
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    (void)module;
    (void)name;
    *function = (CUfunction)new_object();
    return fake_cuda_success();
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    (void)function;
    *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
    return fake_cuda_success();
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads, size_t bytes)
{
    (void)function;
    (void)threads;
    (void)bytes;
    *blocks = 1;
    return fake_cuda_success();
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
    (void)config;
    (void)params;
    (void)extra;
    launches++;
    launched = (const void *)function;
    return fake_cuda_success();
}
