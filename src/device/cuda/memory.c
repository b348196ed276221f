/* memory.c - memory of GPUs: allocate, map, release, copy and fill; wrap and import are in cuda/share.c.
 *
 * GPU memory is a cuMem allocation, exported once as a POSIX descriptor. On a GPU that cannot export it is cudaMalloc
 * memory with a legacy IPC handle. Host memory is a memfd registered with the driver. A process-wide list has weir's
 * own allocations: a pointer into one is registered with its descriptor. The allocation and the blocks around parts of
 * it share a descriptor. The last of them closes it: its number cannot come to mean another file while a thread may
 * still send it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "src/device/cuda/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/host/base/alloc.h"
#include "src/host/base/clock.h"
#include "src/host/base/error.h"
#include "src/host/base/pages.h"

typedef unsigned long long ull;

weiri_cuda_list weiri_cuda_own = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Rounds up to a multiple of `unit`; false on overflow. */
static bool round_up(uint64_t bytes, uint64_t unit, uint64_t *out)
{
    uint64_t rest = bytes % unit;
    uint64_t more = rest == 0 ? 0 : unit - rest;
    *out = bytes + more;
    return bytes <= UINT64_MAX - more;
}

static weiri_cuda_fd *descriptor_create(int fd)
{
    weiri_cuda_fd *shared = weiri_alloc(1, sizeof *shared);
    if (shared != NULL) {
        weiri_refcount_init(&shared->refs);
        shared->fd = fd;
    }
    return shared;
}

static void descriptor_put(weiri_cuda_fd *shared)
{
    if (shared == NULL) {
        return;
    }
    /* With the lock: no other thread finds an allocation that is ending. */
    pthread_mutex_lock(&weiri_cuda_own.lock);
    bool last = weiri_refcount_put(&shared->refs);
    if (last && shared->handle != 0) {
        weiri_cuda_fd **link = &weiri_cuda_own.foreign;
        while (*link != shared) {
            link = &(*link)->next;
        }
        *link = shared->next;
    }
    pthread_mutex_unlock(&weiri_cuda_own.lock);
    if (last) {
        close(shared->fd);
        if (shared->handle != 0) {
            (void)weiri_cuda.cuMemRelease(shared->handle);
        }
        weiri_free(shared);
    }
}

weiri_cuda_block *weiri_cuda_block_create(weir_device *device, uint64_t bytes)
{
    weiri_cuda_block *made = weiri_alloc(1, sizeof *made);
    if (made == NULL) {
        (void)weiri_fail_nomem("gpu: block");
        return NULL;
    }
    made->block.device = device;
    made->block.size = bytes;
    made->block.native = made;
    made->block.export_.size = bytes;
    made->block.export_.fd = -1;
    return made;
}

static void own_insert(weiri_cuda_block *made)
{
    pthread_mutex_lock(&weiri_cuda_own.lock);
    made->next = weiri_cuda_own.first;
    weiri_cuda_own.first = made;
    pthread_mutex_unlock(&weiri_cuda_own.lock);
}

/* Removes a block from the list, which the caller has locked. Ignores blocks that are not in it. */
static void own_remove(const weiri_cuda_block *gone)
{
    for (weiri_cuda_block **link = &weiri_cuda_own.first; *link != NULL; link = &(*link)->next) {
        if (*link == gone) {
            *link = gone->next;
            break;
        }
    }
}

/* ---- mapping ---------------------------------------------------------------------------------------- */

CUmemAccessDesc weiri_cuda_access(const weir_device *device)
{
    CUmemAccessDesc access;
    memset(&access, 0, sizeof access);
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = weiri_cuda_native(device)->ordinal;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return access;
}

weir_status weiri_cuda_map_handle(weiri_cuda_block *made, CUmemGenericAllocationHandle handle, uint64_t bytes)
{
    const weir_device *device = made->block.device;
    CUmemAccessDesc access = weiri_cuda_access(device);
    CUdeviceptr base = 0;
    CUresult result = weiri_cuda.cuMemAddressReserve(&base, bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS) {
        return weiri_cuda_check(device, "cuMemAddressReserve", result);
    }
    weir_status status;
    result = weiri_cuda.cuMemMap(base, bytes, 0, handle, 0);
    /* Drivers return these if the mapping is longer than the allocation. */
    if (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_SUPPORTED) {
        status = weiri_fail(WEIR_ERR_CORRUPT, "gpu:%u: cuMemMap: the allocation is shorter than %llu bytes",
                            device->info.index, (ull)bytes);
        goto free_addresses;
    }
    if (result != CUDA_SUCCESS) {
        status = weiri_cuda_check(device, "cuMemMap", result);
        goto free_addresses;
    }
    status = weiri_cuda_check(device, "cuMemSetAccess", weiri_cuda.cuMemSetAccess(base, bytes, &access, 1));
    if (status != WEIR_OK) {
        goto unmap;
    }
    made->base = base;
    made->mapped = bytes;
    made->undo = WEIRI_CUDA_UNDO_CUMEM;
    return WEIR_OK;

unmap:
    (void)weiri_cuda.cuMemUnmap(base, bytes);
free_addresses:
    (void)weiri_cuda.cuMemAddressFree(base, bytes);
    return status;
}

/* Pins host memory, in whole. */
static weir_status lock_memory(const weir_device *device, void *host, uint64_t bytes)
{
    const unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    const CUresult result = weiri_cuda.cuMemHostRegister(host, bytes, flags);
    if (result == CUDA_SUCCESS) {
        return WEIR_OK;
    }
    char cause[160];
    char limit[WEIRI_LOCK_LIMIT_BYTES];
    weiri_cuda_describe(result, cause, sizeof cause);
    weiri_pages_lock_limit(limit, sizeof limit);
    return weiri_fail(result == CUDA_ERROR_OUT_OF_MEMORY ? WEIR_ERR_NOMEM : WEIR_ERR_DEVICE,
                      "gpu:%u: cuMemHostRegister: lock %llu bytes of host memory: %s%s", device->info.index, (ull)bytes,
                      cause, limit);
}

weir_status weiri_cuda_map_memfd(weiri_cuda_block *made, int fd, uint64_t bytes, uint32_t touch_threads)
{
    const weir_device *device = made->block.device;
    void *host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (host == MAP_FAILED) {
        return weiri_fail_errno(errno, "gpu:%u: mmap of %llu bytes of host memory", device->info.index, (ull)bytes);
    }
    CUdeviceptr base = 0;
    char text[64];
    snprintf(text, sizeof text, "gpu:%u: %llu bytes of host memory", device->info.index, (ull)bytes);
    weir_status status = weiri_pages_touch(text, host, bytes, touch_threads);
    if (status == WEIR_OK) {
        status = lock_memory(device, host, bytes);
    }
    if (status != WEIR_OK) {
        goto unmap;
    }
    status =
        weiri_cuda_check(device, "cuMemHostGetDevicePointer", weiri_cuda.cuMemHostGetDevicePointer(&base, host, 0));
    if (status != WEIR_OK) {
        goto unregister;
    }
    made->base = base;
    made->host = host;
    made->mapped = bytes;
    made->undo = WEIRI_CUDA_UNDO_HOST;
    return WEIR_OK;

unregister:
    (void)weiri_cuda.cuMemHostUnregister(host);
unmap:
    munmap(host, bytes);
    return status;
}

/* Unmaps the block's memory, in the entered context. */
static void undo_mapping(const weiri_cuda_block *gone)
{
    switch (gone->undo) {
    case WEIRI_CUDA_UNDO_CUMEM:
        (void)weiri_cuda.cuMemUnmap(gone->base, gone->mapped);
        (void)weiri_cuda.cuMemAddressFree(gone->base, gone->mapped);
        break;
    case WEIRI_CUDA_UNDO_ALLOC:
        (void)weiri_cuda.cuMemFree(gone->base);
        break;
    case WEIRI_CUDA_UNDO_HOST:
        (void)weiri_cuda.cuMemHostUnregister(gone->host);
        munmap(gone->host, gone->mapped);
        break;
    case WEIRI_CUDA_UNDO_MAPPING:
        (void)weiri_cuda.cuMemHostUnregister(gone->host);
        break;
    case WEIRI_CUDA_UNDO_IPC:
        (void)weiri_cuda.cuIpcCloseMemHandle(gone->base);
        break;
    case WEIRI_CUDA_UNDO_NOTHING:
        break;
    }
}

void weiri_cuda_release(weiri_block *block)
{
    if (block == NULL) {
        return;
    }
    weiri_cuda_block *gone = block->native;
    CUstreamCaptureMode mode;
    pthread_mutex_lock(&weiri_cuda_own.lock);
    own_remove(gone);
    if (gone->undo != WEIRI_CUDA_UNDO_NOTHING && weiri_cuda_enter(block->device, &mode) == WEIR_OK) {
        undo_mapping(gone);
        weiri_cuda_leave(mode);
    }
    pthread_mutex_unlock(&weiri_cuda_own.lock);
    descriptor_put(gone->shared);
    weiri_free(gone);
}

/* Waits for the operation just put on the device's own stream. */
static weir_status finish(const weir_device *device, const char *operation, const char *call, CUresult result)
{
    if (result != CUDA_SUCCESS) {
        return weiri_cuda_check(device, call, result);
    }
    return weiri_cuda_poll(device, operation, weiri_cuda_native(device)->stream, weiri_deadline(device->timeout_ms));
}

/* Fills on the device's own stream, in the entered context. */
static weir_status fill(const weir_device *device, CUdeviceptr base, uint8_t value, uint64_t bytes)
{
    weiri_cuda_device *native = weiri_cuda_native(device);
    pthread_mutex_lock(&native->stream_lock);
    const bool turn = weiri_cuda_submit_begin(device);
    CUresult result = weiri_cuda.cuMemsetD8Async(base, value, bytes, native->stream);
    weiri_cuda_submit_end(device, turn);
    weir_status status = finish(device, "fill", "cuMemsetD8Async", result);
    pthread_mutex_unlock(&native->stream_lock);
    return status;
}

/* ---- allocate --------------------------------------------------------------------------------------- */

static void set_descriptor(weiri_cuda_block *made, weiri_cuda_fd *shared)
{
    made->shared = shared;
    made->block.export_.share = WEIRI_SHARE_CUMEM_FD;
    made->block.export_.fd = shared->fd;
}

weir_status weiri_cuda_export_handle(weiri_cuda_block *made, CUmemGenericAllocationHandle handle)
{
    int fd = -1;
    CUresult result = weiri_cuda.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result != CUDA_SUCCESS) {
        return weiri_cuda_check(made->block.device, "cuMemExportToShareableHandle", result);
    }
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    weiri_cuda_fd *shared = descriptor_create(fd);
    if (shared == NULL) {
        close(fd);
        return weiri_fail_nomem("gpu: descriptor");
    }
    set_descriptor(made, shared);
    return WEIR_OK;
}

/* The driver returns the same handle for the same allocation as long as anything holds one. */
weir_status weiri_cuda_export_foreign(weiri_cuda_block *made, CUmemGenericAllocationHandle handle)
{
    weir_status status = WEIR_OK;
    pthread_mutex_lock(&weiri_cuda_own.lock);
    weiri_cuda_fd *known = weiri_cuda_own.foreign;
    while (known != NULL && known->handle != handle) {
        known = known->next;
    }
    if (known != NULL) {
        weiri_refcount_get(&known->refs);
        set_descriptor(made, known);
    } else {
        status = weiri_cuda_export_handle(made, handle);
        if (status == WEIR_OK) {
            made->shared->handle = handle;
            made->shared->next = weiri_cuda_own.foreign;
            weiri_cuda_own.foreign = made->shared;
        }
    }
    pthread_mutex_unlock(&weiri_cuda_own.lock);
    if (known != NULL || status != WEIR_OK) {
        (void)weiri_cuda.cuMemRelease(handle);
    }
    return status;
}

static weir_status allocate_cumem(const weir_device *device, weiri_cuda_block *made)
{
    const weiri_cuda_device *native = weiri_cuda_native(device);
    uint64_t bytes;
    if (!round_up(made->block.size, native->granularity, &bytes)) {
        return weiri_fail(WEIR_ERR_NOMEM, "gpu:%u: allocate: %llu bytes are too many", device->info.index,
                          (ull)made->block.size);
    }
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = native->ordinal;
    prop.allocFlags.gpuDirectRDMACapable = native->rdma;
    CUmemGenericAllocationHandle handle;
    weir_status status = weiri_cuda_check(device, "cuMemCreate", weiri_cuda.cuMemCreate(&handle, bytes, &prop, 0));
    if (status != WEIR_OK) {
        return status;
    }
    status = weiri_cuda_map_handle(made, handle, bytes);
    if (status == WEIR_OK) {
        status = weiri_cuda_export_handle(made, handle);
    }
    /* The mapping and the descriptor keep the memory alive. */
    (void)weiri_cuda.cuMemRelease(handle);
    return status;
}

static weir_status allocate_legacy(const weir_device *device, weiri_cuda_block *made)
{
    weir_status status = weiri_cuda_check(device, "cuMemAlloc", weiri_cuda.cuMemAlloc(&made->base, made->block.size));
    if (status != WEIR_OK) {
        return status;
    }
    made->mapped = made->block.size;
    made->undo = WEIRI_CUDA_UNDO_ALLOC;
    CUipcMemHandle handle;
    status = weiri_cuda_check(device, "cuIpcGetMemHandle", weiri_cuda.cuIpcGetMemHandle(&handle, made->base));
    if (status == WEIR_OK) {
        made->block.export_.share = WEIRI_SHARE_CUDA_IPC;
        memcpy(made->block.export_.bytes, handle.reserved, sizeof made->block.export_.bytes);
    }
    return status;
}

static weir_status allocate_device(const weir_device *device, weiri_cuda_block *made)
{
    weir_status status =
        weiri_cuda_native(device)->shareable ? allocate_cumem(device, made) : allocate_legacy(device, made);
    if (status == WEIR_OK) {
        status = fill(device, made->base, 0, made->mapped);
    }
    return status;
}

static weir_status allocate_host(const weir_device *device, const weir_memory_opts *opts, weiri_cuda_block *made)
{
    uint64_t bytes = made->block.size;
    int fd;
    char text[96];
    snprintf(text, sizeof text, "gpu:%u: allocate %llu bytes of host memory", device->info.index, (ull)bytes);
    weir_status status = weiri_pages_create(text, opts->huge_pages, &bytes, F_SEAL_SHRINK, &fd);
    if (status != WEIR_OK) {
        return status;
    }
    made->shared = descriptor_create(fd);
    if (made->shared == NULL) {
        close(fd);
        return weiri_fail_nomem("gpu: descriptor");
    }
    made->block.export_.share = WEIRI_SHARE_MEMFD;
    made->block.export_.fd = fd;
    return weiri_cuda_map_memfd(made, fd, bytes, opts->touch_threads);
}

weir_status weiri_cuda_allocate(weir_device *device, const weir_memory_opts *opts, uint64_t bytes, weiri_block **out)
{
    weiri_cuda_block *made = weiri_cuda_block_create(device, bytes);
    if (made == NULL) {
        return WEIR_ERR_NOMEM;
    }
    CUstreamCaptureMode mode;
    weir_status status = weiri_cuda_enter(device, &mode);
    if (status == WEIR_OK) {
        status = opts->kind == WEIR_MEMORY_HOST ? allocate_host(device, opts, made) : allocate_device(device, made);
        weiri_cuda_leave(mode);
    }
    if (status != WEIR_OK) {
        weiri_cuda_release(&made->block);
        return status;
    }
    made->block.pointer = weiri_cuda_pointer(made->base);
    made->block.host_pointer = made->host;
    made->block.allocated = made->mapped;
    made->block.export_.kind = (uint32_t)opts->kind;
    made->block.export_.base = made->host != NULL ? (uint64_t)(uintptr_t)made->host : made->base;
    made->block.export_.base_bytes = made->mapped;
    own_insert(made);
    *out = &made->block;
    return WEIR_OK;
}

/* ---- for drivers of other devices --------------------------------------------------------------------- */

weir_status weiri_cuda_dmabuf(weir_device *device, const weiri_block *block, int *fd, uint64_t *offset)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), address = (uint64_t)(uintptr_t)block->pointer;
    const uint64_t start = address / page * page;
    uint64_t end;
    if (weiri_cuda.cuMemGetHandleForAddressRange == NULL) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "gpu:%u: dmabuf: the driver is older than CUDA 11.7",
                          device->info.index);
    }
    if (!round_up(address + block->size, page, &end)) {
        return weiri_fail(WEIR_ERR_RANGE, "gpu:%u: dmabuf: %llu bytes are too many", device->info.index,
                          (ull)block->size);
    }
    CUstreamCaptureMode mode;
    weir_status status = weiri_cuda_enter(device, &mode);
    if (status != WEIR_OK) {
        return status;
    }
    int made = -1;
    status = weiri_cuda_check(
        device, "cuMemGetHandleForAddressRange",
        weiri_cuda.cuMemGetHandleForAddressRange(&made, start, end - start, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    weiri_cuda_leave(mode);
    if (status == WEIR_OK) {
        (void)fcntl(made, F_SETFD, FD_CLOEXEC);
        *fd = made;
        *offset = address - start;
    }
    return status;
}

/* In the entered context. Registers of a device are I/O memory; those of the software NIC are not. */
static weir_status map_registers(weiri_cuda_block *made, void *registers, uint64_t bytes)
{
    const weir_device *device = made->block.device;
    const unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    CUresult first = weiri_cuda.cuMemHostRegister(registers, bytes, flags | CU_MEMHOSTREGISTER_IOMEMORY);
    CUresult second = first == CUDA_SUCCESS ? first : weiri_cuda.cuMemHostRegister(registers, bytes, flags);
    if (second != CUDA_SUCCESS) {
        char io[128], plain[128];
        weiri_cuda_describe(first, io, sizeof io);
        weiri_cuda_describe(second, plain, sizeof plain);
        return weiri_fail(WEIR_ERR_UNSUPPORTED,
                          "gpu:%u: map a NIC's registers: as I/O memory: %s; as plain memory: %s; the module nvidia "
                          "may need NVreg_RegistryDwords=\"PeerMappingOverride=1;\"",
                          device->info.index, io, plain);
    }
    made->host = registers;
    made->mapped = bytes;
    made->undo = WEIRI_CUDA_UNDO_MAPPING;
    snprintf(made->block.reason, sizeof made->block.reason, "%s memory", first == CUDA_SUCCESS ? "I/O" : "plain");
    return weiri_cuda_check(device, "cuMemHostGetDevicePointer",
                            weiri_cuda.cuMemHostGetDevicePointer(&made->base, registers, 0));
}

weir_status weiri_cuda_map_registers(weir_device *device, void *registers, uint64_t bytes, weiri_block **out)
{
    weiri_cuda_block *made = weiri_cuda_block_create(device, bytes);
    if (made == NULL) {
        return WEIR_ERR_NOMEM;
    }
    CUstreamCaptureMode mode;
    weir_status status = weiri_cuda_enter(device, &mode);
    if (status == WEIR_OK) {
        status = map_registers(made, registers, bytes);
        weiri_cuda_leave(mode);
    }
    if (status != WEIR_OK) {
        weiri_cuda_release(&made->block);
        return status;
    }
    made->block.pointer = weiri_cuda_pointer(made->base);
    *out = &made->block;
    return WEIR_OK;
}

/* ---- copy and fill ---------------------------------------------------------------------------------- */

weir_status weiri_cuda_copy(weir_device *device, void *dst, const void *src, uint64_t bytes)
{
    if (bytes == 0) {
        return WEIR_OK;
    }
    CUstreamCaptureMode mode;
    weir_status status = weiri_cuda_enter(device, &mode);
    if (status != WEIR_OK) {
        return status;
    }
    weiri_cuda_device *native = weiri_cuda_native(device);
    pthread_mutex_lock(&native->stream_lock);
    const bool turn = weiri_cuda_submit_begin(device);
    CUresult result =
        weiri_cuda.cuMemcpyAsync((CUdeviceptr)(uintptr_t)dst, (CUdeviceptr)(uintptr_t)src, bytes, native->stream);
    weiri_cuda_submit_end(device, turn);
    status = finish(device, "copy", "cuMemcpyAsync", result);
    pthread_mutex_unlock(&native->stream_lock);
    weiri_cuda_leave(mode);
    return status;
}

weir_status weiri_cuda_fill(weir_device *device, void *dst, uint8_t value, uint64_t bytes)
{
    if (bytes == 0) {
        return WEIR_OK;
    }
    CUstreamCaptureMode mode;
    weir_status status = weiri_cuda_enter(device, &mode);
    if (status != WEIR_OK) {
        return status;
    }
    status = fill(device, (CUdeviceptr)(uintptr_t)dst, value, bytes);
    weiri_cuda_leave(mode);
    return status;
}

weir_status weiri_cuda_copy_async(weir_device *device, void *stream, void *dst, const void *src, uint64_t bytes)
{
    CUstreamCaptureMode mode;
    weir_status status = bytes == 0 ? WEIR_OK : weiri_cuda_enter(device, &mode);
    if (status != WEIR_OK || bytes == 0) {
        return status;
    }
    const bool turn = weiri_cuda_submit_begin(device);
    CUresult result = weiri_cuda.cuMemcpyAsync((CUdeviceptr)(uintptr_t)dst, (CUdeviceptr)(uintptr_t)src, bytes, stream);
    weiri_cuda_submit_end(device, turn);
    weiri_cuda_leave(mode);
    return weiri_cuda_check(device, "cuMemcpyAsync", result);
}

/* The store is ordered after the stream's earlier operations, for other devices too. */
weir_status weiri_cuda_store_async(weir_device *device, void *stream, void *dst, uint64_t value)
{
    CUstreamCaptureMode mode;
    if (weiri_cuda.cuStreamWriteValue64 == NULL) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "gpu:%u: the driver has no cuStreamWriteValue64", device->info.index);
    }
    weir_status status = weiri_cuda_enter(device, &mode);
    if (status != WEIR_OK) {
        return status;
    }
    const bool turn = weiri_cuda_submit_begin(device);
    CUresult result =
        weiri_cuda.cuStreamWriteValue64(stream, (CUdeviceptr)(uintptr_t)dst, value, CU_STREAM_WRITE_VALUE_DEFAULT);
    weiri_cuda_submit_end(device, turn);
    weiri_cuda_leave(mode);
    if (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_SUPPORTED) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "gpu:%u: cuStreamWriteValue64: refused for this address",
                          device->info.index);
    }
    return weiri_cuda_check(device, "cuStreamWriteValue64", result);
}
