/* share.c - memory that others allocated: wrap registers a user's memory, import maps a peer's.
 *
 * How memory can be shared depends on its allocator, which the driver reports for any pointer:
 *   weir's own allocations  their descriptor, shared with the allocation's block
 *   cudaMalloc              legacy IPC handle of the whole allocation
 *   cuMemCreate             POSIX descriptor, if it was created with that handle type
 *   pools, managed and pinned host memory: usable only in this process */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "src/device/cuda/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "src/host/base/error.h"

typedef unsigned long long ull;

/* The driver's answers about a pointer. The driver writes 1 to 8 bytes of each zeroed field. */
typedef struct pointer_facts {
    uint64_t type; /* CU_MEMORYTYPE_...; 0 if CUDA does not know the pointer */
    uint64_t ordinal;
    uint64_t device_pointer;
    uint64_t host_pointer;
    uint64_t range_start;
    uint64_t range_bytes;
    uint64_t managed;
    uint64_t legacy_ipc;
    uint64_t pool;
    uint64_t context;
} pointer_facts;

/* ---- wrap ------------------------------------------------------------------------------------------- */

static weir_status get_facts(const weir_device *device, CUdeviceptr pointer, pointer_facts *out)
{
    memset(out, 0, sizeof *out);
    CUpointer_attribute attributes[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER,   CU_POINTER_ATTRIBUTE_HOST_POINTER,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        CU_POINTER_ATTRIBUTE_IS_MANAGED,       CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,   CU_POINTER_ATTRIBUTE_CONTEXT,
    };
    void *values[] = {
        &out->type,        &out->ordinal, &out->device_pointer, &out->host_pointer, &out->range_start,
        &out->range_bytes, &out->managed, &out->legacy_ipc,     &out->pool,         &out->context,
    };
    CUresult result = weiri_cuda.cuPointerGetAttributes((unsigned)(sizeof attributes / sizeof attributes[0]),
                                                        attributes, values, pointer);
    if (result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_INVALID_VALUE) {
        /* Some drivers return these for a pointer that CUDA does not know; its type stays 0. */
        memset(out, 0, sizeof *out);
        return WEIR_OK;
    }
    return weiri_cuda_check(device, "cuPointerGetAttributes", result);
}

static weir_status fail_range(const weir_device *device, CUdeviceptr pointer, uint64_t bytes, uint64_t base,
                              uint64_t size)
{
    return weiri_fail(WEIR_ERR_RANGE,
                      "gpu:%u: register %llu bytes at 0x%llx: the allocation at 0x%llx has only %llu bytes",
                      device->info.index, (ull)bytes, (ull)pointer, (ull)base, (ull)size);
}

static weir_status fail_other_gpu(const weir_device *device, CUdeviceptr pointer, int64_t owner)
{
    return weiri_fail(WEIR_ERR_INVALID,
                      "gpu:%u: register memory at 0x%llx: it belongs to gpu:%lld; register it with that GPU",
                      device->info.index, (ull)pointer, (long long)owner);
}

/* Sets the reason why other processes cannot map the memory. */
static void not_shared(weiri_cuda_block *made, const char *reason)
{
    made->block.export_.share = WEIRI_SHARE_NONE;
    snprintf(made->block.reason, sizeof made->block.reason, "%s", reason);
}

static void not_shared_because(weiri_cuda_block *made, const char *call, CUresult result)
{
    char text[96];
    weiri_cuda_describe(result, text, sizeof text);
    made->block.export_.share = WEIRI_SHARE_NONE;
    snprintf(made->block.reason, sizeof made->block.reason, "%s: %s", call, text);
}

/* Wraps a part of one of weir's own allocations; *found says whether the pointer lies in one. */
static weir_status wrap_own(weir_device *device, weiri_cuda_block *made, CUdeviceptr pointer, bool *found)
{
    weir_status status = WEIR_OK;
    uint64_t bytes = made->block.size;
    pthread_mutex_lock(&weiri_cuda_own.lock);
    for (const weiri_cuda_block *whole = weiri_cuda_own.first; whole != NULL && !*found; whole = whole->next) {
        uint64_t host = (uint64_t)(uintptr_t)whole->host;
        uint64_t offset = pointer - whole->base;
        if (offset >= whole->mapped && whole->host != NULL) {
            offset = pointer - host;
        }
        if (offset >= whole->mapped) {
            continue;
        }
        *found = true;
        if (whole->host == NULL && whole->block.device->info.index != device->info.index) {
            status = fail_other_gpu(device, pointer, whole->block.device->info.index);
        } else if (offset > whole->block.size || bytes > whole->block.size - offset) {
            status = fail_range(device, pointer, bytes, whole->base, whole->block.size);
        } else {
            made->block.export_ = whole->block.export_;
            made->block.export_.offset = offset;
            made->block.export_.size = bytes;
            made->block.pointer = weiri_cuda_pointer(whole->base + offset);
            made->block.host_pointer = whole->host == NULL ? NULL : (char *)whole->host + offset;
            made->shared = whole->shared;
            if (made->shared != NULL) {
                weiri_refcount_get(&made->shared->refs);
            }
        }
    }
    pthread_mutex_unlock(&weiri_cuda_own.lock);
    return status;
}

/* Wraps pinned host memory. */
static weir_status wrap_host(const weir_device *device, weiri_cuda_block *made, CUdeviceptr pointer,
                             const pointer_facts *facts)
{
    uint64_t offset = pointer - facts->range_start;
    uint64_t bytes = made->block.size;
    if (facts->device_pointer == 0) {
        return weiri_fail(WEIR_ERR_INVALID,
                          "gpu:%u: register memory at 0x%llx: pinned host memory that this GPU cannot access; "
                          "use cudaHostAllocPortable | cudaHostAllocMapped",
                          device->info.index, (ull)pointer);
    }
    bool known = facts->range_bytes != 0 && offset < facts->range_bytes;
    if (known && bytes > facts->range_bytes - offset) {
        return fail_range(device, pointer, bytes, facts->range_start, facts->range_bytes);
    }
    made->block.pointer = weiri_cuda_pointer(facts->device_pointer);
    made->block.host_pointer = weiri_cuda_pointer(facts->host_pointer);
    made->block.export_.kind = WEIR_MEMORY_HOST;
    made->block.export_.base = known ? facts->range_start : pointer;
    made->block.export_.base_bytes = known ? facts->range_bytes : bytes;
    made->block.export_.offset = known ? offset : 0;
    not_shared(made, "pinned host memory of the caller's own; use weir_memory_allocate with WEIR_MEMORY_HOST");
    return WEIR_OK;
}

/* Shares the user's cuMemCreate memory if it was created for export. Takes over the reference on `handle`. */
static void share_cumem(weiri_cuda_block *made, CUmemGenericAllocationHandle handle)
{
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof prop);
    CUresult result = weiri_cuda.cuMemGetAllocationPropertiesFromHandle(&prop, handle);
    if (result != CUDA_SUCCESS) {
        not_shared_because(made, "cuMemGetAllocationPropertiesFromHandle", result);
        (void)weiri_cuda.cuMemRelease(handle);
        return;
    }
    if (((unsigned)prop.requestedHandleTypes & (unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0) {
        not_shared(made, "cuMem memory that cannot be exported; create it with requestedHandleTypes = "
                         "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR");
        (void)weiri_cuda.cuMemRelease(handle);
        return;
    }
    if (weiri_cuda_export_foreign(made, handle) != WEIR_OK) {
        not_shared(made, weir_last_error());
    }
}

/* Sets the smallest aligned range around the block, for memory with many or unknown allocations. */
static void set_loose_base(weiri_cuda_block *made, CUdeviceptr pointer)
{
    made->block.export_.base = pointer;
    made->block.export_.base_bytes = made->block.size;
    made->block.export_.offset = 0;
}

/* Takes over the reference on `handle`. */
static weir_status wrap_cumem(const weir_device *device, weiri_cuda_block *made, CUdeviceptr pointer,
                              const pointer_facts *facts, CUmemGenericAllocationHandle handle)
{
    uint64_t bytes = made->block.size;
    uint64_t before = pointer - made->block.export_.base;
    if (bytes <= made->block.export_.base_bytes - before) {
        share_cumem(made, handle);
        return WEIR_OK;
    }
    (void)weiri_cuda.cuMemRelease(handle);
    /* The block goes beyond this mapping; the next one in the same reservation may continue it. */
    uint64_t reserved = pointer - facts->range_start;
    if (facts->range_bytes == 0 || reserved >= facts->range_bytes || bytes > facts->range_bytes - reserved) {
        return fail_range(device, pointer, bytes, made->block.export_.base, made->block.export_.base_bytes);
    }
    for (uint64_t done = made->block.export_.base_bytes - before; done < bytes;) {
        CUdeviceptr base = 0;
        size_t size = 0;
        CUresult result = weiri_cuda.cuMemGetAddressRange(&base, &size, pointer + done);
        if (result != CUDA_SUCCESS || size == 0) {
            return fail_range(device, pointer, bytes, pointer, done);
        }
        done = base + size - pointer;
    }
    set_loose_base(made, pointer);
    not_shared(made, "the range spans several cuMem allocations; register each of them separately");
    return WEIR_OK;
}

static void share_legacy(weiri_cuda_block *made)
{
    CUipcMemHandle handle;
    CUresult result = weiri_cuda.cuIpcGetMemHandle(&handle, made->block.export_.base);
    if (result != CUDA_SUCCESS) {
        not_shared_because(made, "cuIpcGetMemHandle", result);
        return;
    }
    made->block.export_.share = WEIRI_SHARE_CUDA_IPC;
    memcpy(made->block.export_.bytes, handle.reserved, sizeof made->block.export_.bytes);
}

/* Wraps GPU memory that weir did not allocate. */
static weir_status wrap_device(const weir_device *device, weiri_cuda_block *made, CUdeviceptr pointer,
                               const pointer_facts *facts)
{
    uint64_t bytes = made->block.size;
    int64_t owner = (int32_t)(uint32_t)facts->ordinal;
    if (facts->managed == 0 && owner != weiri_cuda_native(device)->ordinal) {
        return fail_other_gpu(device, pointer, owner);
    }
    CUdeviceptr base = 0;
    size_t size = 0;
    CUresult result = weiri_cuda.cuMemGetAddressRange(&base, &size, pointer);
    if (result != CUDA_SUCCESS || pointer - base >= size) {
        return weiri_fail(WEIR_ERR_INVALID, "gpu:%u: register memory at 0x%llx: no memory is mapped at this address",
                          device->info.index, (ull)pointer);
    }
    made->block.pointer = weiri_cuda_pointer(pointer);
    made->block.export_.kind = WEIR_MEMORY_DEVICE;
    made->block.export_.base = base;
    made->block.export_.base_bytes = size;
    made->block.export_.offset = pointer - base;
    CUmemGenericAllocationHandle handle;
    if (facts->pool == 0 && facts->managed == 0 &&
        weiri_cuda.cuMemRetainAllocationHandle(&handle, weiri_cuda_pointer(pointer)) == CUDA_SUCCESS) {
        return wrap_cumem(device, made, pointer, facts, handle);
    }
    if (bytes > size - (pointer - base)) {
        return fail_range(device, pointer, bytes, base, size);
    }
    if (facts->managed != 0) {
        not_shared(made, "managed memory cannot be mapped by other processes; use cudaMalloc or weir_memory_allocate");
    } else if (facts->pool != 0) {
        not_shared(made,
                   "stream-ordered pool memory (cudaMallocAsync) is not mapped by other processes; use cudaMalloc or "
                   "weir_memory_allocate");
    } else if (facts->legacy_ipc == 0) {
        not_shared(made, "this kind of CUDA memory has no IPC handle; use cudaMalloc or weir_memory_allocate");
    } else {
        share_legacy(made);
    }
    return WEIR_OK;
}

/* In the entered context. */
static weir_status wrap(weir_device *device, weiri_cuda_block *made, CUdeviceptr pointer)
{
    bool found = false;
    weir_status status = wrap_own(device, made, pointer, &found);
    if (found) {
        return status;
    }
    pointer_facts facts;
    status = get_facts(device, pointer, &facts);
    if (status != WEIR_OK) {
        return status;
    }
    if (facts.type == CU_MEMORYTYPE_HOST && facts.managed == 0) {
        return wrap_host(device, made, pointer, &facts);
    }
    if (facts.type == CU_MEMORYTYPE_DEVICE || facts.managed != 0) {
        return wrap_device(device, made, pointer, &facts);
    }
    return weiri_fail(WEIR_ERR_INVALID,
                      "gpu:%u: register memory at 0x%llx: CUDA does not know it; use cudaMalloc, cudaHostAlloc, "
                      "cudaHostRegister or weir_memory_allocate",
                      device->info.index, (ull)pointer);
}

weir_status weiri_cuda_wrap(weir_device *device, void *pointer, uint64_t bytes, weiri_block **out)
{
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)pointer;
    weiri_cuda_block *made = weiri_cuda_block_create(device, bytes);
    if (made == NULL) {
        return WEIR_ERR_NOMEM;
    }
    CUstreamCaptureMode mode;
    weir_status status = weiri_cuda_enter(device, &mode);
    if (status == WEIR_OK) {
        status = wrap(device, made, address);
        weiri_cuda_leave(mode);
    }
    if (status != WEIR_OK) {
        weiri_cuda_release(&made->block);
        return status;
    }
    *out = &made->block;
    return WEIR_OK;
}

/* ---- identify --------------------------------------------------------------------------------------- */

/* In the entered context. */
static bool identify(const weir_device *device, CUdeviceptr pointer, weiri_allocation *out)
{
    /* The driver writes 1 to 8 bytes of each. */
    uint64_t type = 0;
    uint64_t ordinal = 0;
    uint64_t legacy_ipc = 0;
    uint64_t managed = 0;
    uint64_t pool = 0;
    uint64_t id = 0;
    CUpointer_attribute attributes[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                         CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                         CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                         CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                         CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
                                         CU_POINTER_ATTRIBUTE_BUFFER_ID };
    void *values[] = { &type, &ordinal, &legacy_ipc, &managed, &pool, &id };
    CUdeviceptr base = 0;
    size_t bytes = 0;
    if (weiri_cuda.cuPointerGetAttributes((unsigned)(sizeof attributes / sizeof attributes[0]), attributes, values,
                                          pointer) != CUDA_SUCCESS ||
        type != CU_MEMORYTYPE_DEVICE || (int32_t)(uint32_t)ordinal != weiri_cuda_native(device)->ordinal ||
        legacy_ipc == 0 || managed != 0 || pool != 0 || id == 0 ||
        weiri_cuda.cuMemGetAddressRange(&base, &bytes, pointer) != CUDA_SUCCESS || pointer - base >= bytes) {
        return false;
    }
    out->id = id;
    out->base = weiri_cuda_pointer(base);
    out->bytes = bytes;
    return true;
}

bool weiri_cuda_identify(const weir_device *device, const void *pointer, weiri_allocation *out)
{
    CUstreamCaptureMode mode;
    if (weiri_cuda_enter(device, &mode) != WEIR_OK) {
        return false;
    }
    const bool found = identify(device, (CUdeviceptr)(uintptr_t)pointer, out);
    weiri_cuda_leave(mode);
    return found;
}

/* ---- import ----------------------------------------------------------------------------------------- */

/* Gives this device access to memory of another GPU of the process. cuMem memory is opened as a whole. */
static weir_status open_to_device(const weir_device *device, CUdeviceptr pointer, const weiri_export *peer,
                                  const pointer_facts *facts)
{
    CUmemAccessDesc access = weiri_cuda_access(device);
    if (facts->pool != 0) {
        CUmemoryPool pool = weiri_cuda_pointer(facts->pool);
        return weiri_cuda_check(device, "cuMemPoolSetAccess", weiri_cuda.cuMemPoolSetAccess(pool, &access, 1));
    }
    CUmemGenericAllocationHandle handle;
    if (weiri_cuda.cuMemRetainAllocationHandle(&handle, weiri_cuda_pointer(pointer)) != CUDA_SUCCESS) {
        CUresult result = weiri_cuda.cuCtxEnablePeerAccess((CUcontext)weiri_cuda_pointer(facts->context), 0);
        return result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
                   ? WEIR_OK
                   : weiri_cuda_check(device, "cuCtxEnablePeerAccess", result);
    }
    (void)weiri_cuda.cuMemRelease(handle);
    return weiri_cuda_check(device, "cuMemSetAccess",
                            weiri_cuda.cuMemSetAccess(peer->base, peer->base_bytes, &access, 1));
}

/* The caller has locked the list of weir's own allocations: none is released meanwhile. */
static weir_status import_own_process_locked(const weir_device *device, weiri_cuda_block *made,
                                             const weiri_export *peer)
{
    CUdeviceptr pointer = peer->base + peer->offset;
    pointer_facts facts;
    weir_status status = get_facts(device, pointer, &facts);
    if (status != WEIR_OK) {
        return status;
    }
    if (facts.type == 0) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED,
                          "gpu:%u: import memory at 0x%llx of this process: CUDA does not know it", device->info.index,
                          (ull)pointer);
    }
    if (facts.type == CU_MEMORYTYPE_HOST && facts.managed == 0) {
        if (facts.device_pointer == 0) {
            return weiri_fail(WEIR_ERR_UNSUPPORTED,
                              "gpu:%u: import host memory at 0x%llx: it is not pinned for this GPU", device->info.index,
                              (ull)pointer);
        }
        made->block.pointer = weiri_cuda_pointer(facts.device_pointer);
        made->block.host_pointer = weiri_cuda_pointer(facts.host_pointer);
        return WEIR_OK;
    }
    made->block.pointer = weiri_cuda_pointer(pointer);
    if (facts.managed != 0 || (int32_t)(uint32_t)facts.ordinal == weiri_cuda_native(device)->ordinal) {
        return WEIR_OK;
    }
    return open_to_device(device, pointer, peer, &facts);
}

static weir_status import_own_process(const weir_device *device, weiri_cuda_block *made, const weiri_export *peer)
{
    pthread_mutex_lock(&weiri_cuda_own.lock);
    weir_status status = import_own_process_locked(device, made, peer);
    pthread_mutex_unlock(&weiri_cuda_own.lock);
    return status;
}

static weir_status import_cumem(const weir_device *device, weiri_cuda_block *made, const weiri_export *peer, int fd)
{
    const weiri_cuda_device *native = weiri_cuda_native(device);
    if (!native->shareable) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "gpu:%u: import: this GPU cannot map memory given as a file descriptor",
                          device->info.index);
    }
    if (peer->base_bytes % native->granularity != 0) {
        return weiri_fail(WEIR_ERR_CORRUPT, "gpu:%u: import: an allocation of %llu bytes is not a multiple of %llu",
                          device->info.index, (ull)peer->base_bytes, (ull)native->granularity);
    }
    CUmemGenericAllocationHandle handle;
    weir_status status =
        weiri_cuda_check(device, "cuMemImportFromShareableHandle",
                         weiri_cuda.cuMemImportFromShareableHandle(&handle, weiri_cuda_pointer((CUdeviceptr)fd),
                                                                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    if (status != WEIR_OK) {
        return status;
    }
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof prop);
    status = weiri_cuda_check(device, "cuMemGetAllocationPropertiesFromHandle",
                              weiri_cuda.cuMemGetAllocationPropertiesFromHandle(&prop, handle));
    if (status == WEIR_OK && prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        status =
            weiri_fail(WEIR_ERR_CORRUPT, "gpu:%u: import: the descriptor is not of a GPU's memory", device->info.index);
    }
    if (status == WEIR_OK) {
        status = weiri_cuda_map_handle(made, handle, peer->base_bytes);
    }
    (void)weiri_cuda.cuMemRelease(handle);
    if (status == WEIR_OK) {
        made->block.pointer = weiri_cuda_pointer(made->base + peer->offset);
    }
    return status;
}

static weir_status import_ipc(const weir_device *device, weiri_cuda_block *made, const weiri_export *peer)
{
    CUipcMemHandle handle;
    memcpy(handle.reserved, peer->bytes, sizeof handle.reserved);
    /* The driver counts how often a context opened the same handle: each block closes its own. */
    weir_status status =
        weiri_cuda_check(device, "cuIpcOpenMemHandle",
                         weiri_cuda.cuIpcOpenMemHandle(&made->base, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    if (status != WEIR_OK) {
        return status;
    }
    made->undo = WEIRI_CUDA_UNDO_IPC;
    CUdeviceptr base = 0;
    size_t size = 0;
    status =
        weiri_cuda_check(device, "cuMemGetAddressRange", weiri_cuda.cuMemGetAddressRange(&base, &size, made->base));
    if (status != WEIR_OK) {
        return status;
    }
    uint64_t before = made->base - base;
    if (before > size || peer->base_bytes > size - before) {
        return weiri_fail(WEIR_ERR_CORRUPT, "gpu:%u: import: the IPC handle is of %llu bytes, not %llu",
                          device->info.index, (ull)size, (ull)peer->base_bytes);
    }
    made->mapped = peer->base_bytes;
    made->block.pointer = weiri_cuda_pointer(made->base + peer->offset);
    return WEIR_OK;
}

static weir_status import_memfd(const weir_device *device, weiri_cuda_block *made, const weiri_export *peer, int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
        return weiri_fail(WEIR_ERR_CORRUPT, "gpu:%u: import: the descriptor is not a memfd sealed against shrinking",
                          device->info.index);
    }
    struct stat state;
    if (fstat(fd, &state) != 0) {
        return weiri_fail_errno(errno, "gpu:%u: import: fstat", device->info.index);
    }
    if (state.st_size < 0 || (uint64_t)state.st_size < peer->base_bytes) {
        return weiri_fail(WEIR_ERR_CORRUPT, "gpu:%u: import: the memfd has %lld bytes, not %llu", device->info.index,
                          (long long)state.st_size, (ull)peer->base_bytes);
    }
    weir_status status = weiri_cuda_map_memfd(made, fd, peer->base_bytes, 0);
    if (status == WEIR_OK) {
        made->block.pointer = weiri_cuda_pointer(made->base + peer->offset);
        made->block.host_pointer = (char *)made->host + peer->offset;
    }
    return status;
}

/* In the entered context. */
static weir_status import(const weir_device *device, weiri_cuda_block *made, const weiri_export *peer,
                          bool same_process, int fd)
{
    if (same_process) {
        return import_own_process(device, made, peer);
    }
    if (fd < 0 && (peer->share == WEIRI_SHARE_CUMEM_FD || peer->share == WEIRI_SHARE_MEMFD)) {
        return weiri_fail(WEIR_ERR_INVALID, "gpu:%u: import: the memory's file descriptor is missing",
                          device->info.index);
    }
    switch (peer->share) {
    case WEIRI_SHARE_CUMEM_FD:
        return import_cumem(device, made, peer, fd);
    case WEIRI_SHARE_CUDA_IPC:
        return import_ipc(device, made, peer);
    case WEIRI_SHARE_MEMFD:
        return import_memfd(device, made, peer, fd);
    default:
        return weiri_fail(WEIR_ERR_UNSUPPORTED,
                          "gpu:%u: import: the memory is not shared with other processes (share %u)",
                          device->info.index, peer->share);
    }
}

weir_status weiri_cuda_import(weir_device *device, const weiri_export *peer, bool same_process, int fd,
                              weiri_block **out)
{
    if (peer->size == 0 || peer->offset > peer->base_bytes || peer->size > peer->base_bytes - peer->offset ||
        peer->base_bytes > UINT64_MAX - peer->base) {
        return weiri_fail(WEIR_ERR_CORRUPT, "gpu:%u: import: %llu bytes at offset %llu of an allocation of %llu bytes",
                          device->info.index, (ull)peer->size, (ull)peer->offset, (ull)peer->base_bytes);
    }
    weiri_cuda_block *made = weiri_cuda_block_create(device, peer->size);
    if (made == NULL) {
        return WEIR_ERR_NOMEM;
    }
    made->block.export_.kind = peer->kind;
    not_shared(made, "only the owner can share imported memory");
    CUstreamCaptureMode mode;
    weir_status status = weiri_cuda_enter(device, &mode);
    if (status == WEIR_OK) {
        status = import(device, made, peer, same_process, fd);
        weiri_cuda_leave(mode);
    }
    if (status != WEIR_OK) {
        weiri_cuda_release(&made->block);
        return status;
    }
    *out = &made->block;
    return WEIR_OK;
}
