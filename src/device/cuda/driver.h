/* driver.h - the CUDA driver for the files of the GPU backend: a table of its functions, the device's state, and
 * entering and leaving a device's context. Only src/device/cuda includes this or cuda.h.
 *
 * libweir does not link CUDA libraries. Functions are called as weiri_cuda.cuX(...). cuda.h maps cuX to the versioned
 * symbol, in the table's field and in the name that is looked up. test/cuda stands in for the driver and includes both,
 * too. */
#ifndef WEIRI_DEVICE_CUDA_DRIVER_H
#define WEIRI_DEVICE_CUDA_DRIVER_H

#include <cuda.h>
#include <pthread.h>

#include "src/device/device.h"
#include "src/device/kernels.h"

#if CUDA_VERSION < 12040
/* These CUDA headers are older than the function; the loaded driver may have it. */
CUresult CUDAAPI cuFuncLoad(CUfunction function);
#endif

#if CUDA_VERSION < 12050
/* These CUDA headers do not declare the functions for streams of few multiprocessors. */
#define WEIRI_CUDA_GREEN_FUNCTIONS(X)
#else
#define WEIRI_CUDA_GREEN_FUNCTIONS(X)     \
    X(cuDeviceGetDevResource, false)      \
    X(cuDevSmResourceSplitByCount, false) \
    X(cuDevResourceGenerateDesc, false)   \
    X(cuGreenCtxCreate, false)            \
    X(cuGreenCtxDestroy, false)           \
    X(cuGreenCtxStreamCreate, false)
#endif

/* cuda.h maps cuStreamGetCaptureInfo to versions with different parameters. */
CUresult CUDAAPI cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                           CUgraph *graph, const CUgraphNode **dependencies, size_t *count);

#define WEIRI_CUDA_TEXT(text) #text
/* The name of a function's symbol. cuda.h expands the argument first: cuMemAlloc becomes "cuMemAlloc_v2". */
#define WEIRI_CUDA_SYMBOL(function) WEIRI_CUDA_TEXT(function)

/* X(function, whether the backend requires it) */
#define WEIRI_CUDA_FUNCTIONS(X)                     \
    WEIRI_CUDA_GREEN_FUNCTIONS(X)                   \
    X(cuInit, true)                                 \
    X(cuDriverGetVersion, true)                     \
    X(cuGetErrorName, true)                         \
    X(cuGetErrorString, true)                       \
    X(cuDeviceGetCount, true)                       \
    X(cuDeviceGet, true)                            \
    X(cuDeviceGetName, true)                        \
    X(cuDeviceGetUuid_v2, true)                     \
    X(cuDeviceTotalMem, true)                       \
    X(cuDeviceGetAttribute, true)                   \
    X(cuDeviceCanAccessPeer, true)                  \
    X(cuDeviceGetP2PAttribute, true)                \
    X(cuDevicePrimaryCtxRetain, true)               \
    X(cuCtxGetCurrent, true)                        \
    X(cuCtxPushCurrent, true)                       \
    X(cuCtxGetLimit, true)                          \
    X(cuCtxPopCurrent, true)                        \
    X(cuCtxEnablePeerAccess, true)                  \
    X(cuThreadExchangeStreamCaptureMode, true)      \
    X(cuMemAlloc, true)                             \
    X(cuMemFree, true)                              \
    X(cuMemGetAddressRange, true)                   \
    X(cuMemGetAllocationGranularity, true)          \
    X(cuMemCreate, true)                            \
    X(cuMemRelease, true)                           \
    X(cuMemAddressReserve, true)                    \
    X(cuMemAddressFree, true)                       \
    X(cuMemMap, true)                               \
    X(cuMemUnmap, true)                             \
    X(cuMemSetAccess, true)                         \
    X(cuMemGetHandleForAddressRange, false)         \
    X(cuMemExportToShareableHandle, true)           \
    X(cuMemImportFromShareableHandle, true)         \
    X(cuMemRetainAllocationHandle, true)            \
    X(cuMemGetAllocationPropertiesFromHandle, true) \
    X(cuMemPoolSetAccess, true)                     \
    X(cuMemHostRegister, true)                      \
    X(cuMemHostUnregister, true)                    \
    X(cuMemHostGetDevicePointer, true)              \
    X(cuIpcGetMemHandle, true)                      \
    X(cuIpcOpenMemHandle, true)                     \
    X(cuIpcCloseMemHandle, true)                    \
    X(cuPointerGetAttributes, true)                 \
    X(cuMemcpyAsync, true)                          \
    X(cuMemsetD8Async, true)                        \
    X(cuStreamWriteValue64, false)                  \
    X(cuStreamCreate, true)                         \
    X(cuStreamDestroy, true)                        \
    X(cuStreamQuery, true)                          \
    X(cuStreamBeginCapture, true)                   \
    X(cuStreamEndCapture, true)                     \
    X(cuStreamGetCaptureInfo_v2, true)              \
    X(cuStreamWaitEvent, true)                      \
    X(cuEventCreate, true)                          \
    X(cuEventDestroy, true)                         \
    X(cuEventRecord, true)                          \
    X(cuEventRecordWithFlags, true)                 \
    X(cuEventQuery, true)                           \
    X(cuEventElapsedTime, true)                     \
    X(cuGraphInstantiate, true)                     \
    X(cuGraphDestroy, true)                         \
    X(cuGraphLaunch, true)                          \
    X(cuGraphExecDestroy, true)                     \
    X(cuModuleLoadData, true)                       \
    X(cuModuleGetFunction, true)                    \
    X(cuFuncGetAttribute, true)                     \
    X(cuFuncLoad, false)                            \
    X(cuLaunchKernelEx, true)                       \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor, true)

typedef struct weiri_cuda_table {
#define WEIRI_CUDA_FIELD(function, required) __typeof__(&function) function;
    WEIRI_CUDA_FUNCTIONS(WEIRI_CUDA_FIELD)
#undef WEIRI_CUDA_FIELD
} weiri_cuda_table;

/* Filled once by weiri_cuda_load; constant afterwards. */
extern weiri_cuda_table weiri_cuda;

typedef struct weiri_cuda_kernel {
    const weir_kernel *kernel;
    CUfunction function;
    uint32_t block_threads; /* most threads of a block, with this kernel's registers */
} weiri_cuda_kernel;

#define WEIRI_CUDA_GPUS_MAX 64 /* of a process */

/* weir_device.native */
typedef struct weiri_cuda_device {
    CUdevice ordinal;
    CUcontext context;           /* primary context, shared with the CUDA runtime */
    CUstream stream;             /* non-blocking; for weir's own copies and fills */
    pthread_mutex_t stream_lock; /* held by the thread that waits for the stream */
    uint64_t granularity;        /* of cuMem allocations */
    bool shareable;              /* cuMem allocations can be exported as POSIX descriptors */
    bool rdma;                   /* NICs can be given access to cuMem allocations */
    bool cooperative;            /* cooperative launches are supported */
    uint32_t block_limit;        /* most blocks of a multiprocessor */
    uint32_t thread_limit;       /* most threads of a multiprocessor */
    uint32_t safe_threads;       /* most threads of a multiprocessor for a kernel of 64 registers a thread */
    pthread_mutex_t kernels_lock;
    weiri_cuda_kernel *kernels;
    size_t kernel_count;
    size_t kernel_capacity;
    char families_reason[WEIRI_FAMILIES][160]; /* why a family of weir's kernels is missing; "" if it is loaded */
} weiri_cuda_device;

static inline weiri_cuda_device *weiri_cuda_native(const weir_device *device) { return device->native; }

/* The number of GPUs. 0 with the reason (256 bytes) if there is no GPU or no driver. Loads the driver at the first call
 * of the process. */
uint32_t weiri_cuda_load(char *reason);

/* WEIR_OK for CUDA_SUCCESS. Otherwise sets the error text "gpu:N: <call>: <error name>: <error text>" and returns
 * WEIR_ERR_NOMEM if memory ran out, else WEIR_ERR_DEVICE. */
weir_status weiri_cuda_check(const weir_device *device, const char *call, CUresult result);
/* "CUDA_ERROR_INVALID_VALUE: invalid argument" into text[size]. */
void weiri_cuda_describe(CUresult result, char *text, size_t size);

/* Makes the device's context current and sets the thread's capture mode to relaxed: weir's calls are then allowed while
 * the user captures, and stay out of the graph. *mode keeps the thread's own mode for leave. */
weir_status weiri_cuda_enter(const weir_device *device, CUstreamCaptureMode *mode);
void weiri_cuda_leave(CUstreamCaptureMode mode);
/* The ops of these names. */
void weiri_cuda_thread_enter(weir_device *device);
void weiri_cuda_thread_leave(weir_device *device);

/* Threads submit work to the streams of a GPU in turn; the reason is in driver.c. Every call of the driver that puts
 * something on a stream is between these two, in the entered context. */
bool weiri_cuda_submit_begin(const weir_device *device);
void weiri_cuda_submit_end(const weir_device *device, bool taken);

/* Waits in the entered context until the stream is idle. WEIR_ERR_TIMEOUT naming `operation` at the deadline. */
weir_status weiri_cuda_poll(const weir_device *device, const char *operation, CUstream stream, uint64_t deadline_ns);

/* Loads weir's own kernels, in the entered context. A GPU that cannot load them is used without them. WEIR_ERR_NOMEM.
 * This function and the next three are in cuda/launch.c. */
weir_status weiri_cuda_load_families(weir_device *device);
weir_status weiri_cuda_kernel_load(weir_device *device, const weir_kernel *kernel);
weir_status weiri_cuda_kernel_fit(weir_device *device, const weir_kernel *kernel, uint32_t threads, uint32_t *blocks);
weir_status weiri_cuda_launch(weir_device *device, const weir_kernel *kernel, weir_shape shape, const void *args,
                              bool cooperative, void *stream);

/* Streams of few multiprocessors, in cuda/limited.c; contracts in device.h. */
weir_status weiri_cuda_stream_create_limited(weir_device *device, const weir_stream_limits *limits, void **out);
uint32_t weiri_cuda_stream_multiprocessors(weir_device *device, void *stream);
/* Destroys an idle stream of any kind, in the entered context. */
void weiri_cuda_stream_end(weir_device *device, CUstream stream);
/* Forgets a stream that cannot be destroyed, because its context cannot be entered. */
void weiri_cuda_stream_forget(const weir_device *device, CUstream stream);

/* Memory ops, in cuda/memory.c and cuda/share.c; contracts in device.h. */
weir_status weiri_cuda_allocate(weir_device *device, const weir_memory_opts *opts, uint64_t bytes, weiri_block **out);
weir_status weiri_cuda_wrap(weir_device *device, void *pointer, uint64_t bytes, weiri_block **out);
weir_status weiri_cuda_import(weir_device *device, const weiri_export *peer, bool same_process, int fd,
                              weiri_block **out);
void weiri_cuda_release(weiri_block *block);
/* The op of this name: cuda/locate.c. */
bool weiri_cuda_locate(const void *pointer, weir_device_place *out);
bool weiri_cuda_identify(const weir_device *device, const void *pointer, weiri_allocation *out);
weir_status weiri_cuda_dmabuf(weir_device *device, const weiri_block *block, int *fd, uint64_t *offset);
weir_status weiri_cuda_map_registers(weir_device *device, void *registers, uint64_t bytes, weiri_block **out);
weir_status weiri_cuda_copy(weir_device *device, void *dst, const void *src, uint64_t bytes);
weir_status weiri_cuda_fill(weir_device *device, void *dst, uint8_t value, uint64_t bytes);
weir_status weiri_cuda_copy_async(weir_device *device, void *stream, void *dst, const void *src, uint64_t bytes);
weir_status weiri_cuda_store_async(weir_device *device, void *stream, void *dst, uint64_t value);

#endif
