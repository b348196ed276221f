/* cuda_memory.c - memory of GPUs: allocate, wrap, import, release, copy and fill.
 *
 * What is allocated here is a cuMem allocation, exported once as a POSIX descriptor (or cudaMalloc memory with
 * a legacy IPC handle where the GPU cannot export), and for the host a memfd registered with the driver. Own
 * allocations stand in a process-wide list, so that a pointer into one is registered with its descriptor.
 * A descriptor is shared by the allocation and the blocks wrapped around parts of it, and closed with the last
 * of them, so that its number never comes to mean another file while somebody may send it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "src/device/cuda_driver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/host/base/alloc.h"
#include "src/host/base/clock.h"
#include "src/host/base/error.h"

typedef unsigned long long ull;

/* A file descriptor shared by blocks. */
typedef struct descriptor {
    weiri_refcount refs;
    int fd;
} descriptor;

/* What release has to undo. */
typedef enum undo {
    UNDO_NOTHING, /* wrapped, or of this process */
    UNDO_CUMEM,   /* unmap and free the addresses */
    UNDO_CUMALLOC,
    UNDO_HOST, /* unregister and unmap */
    UNDO_IPC   /* close the handle */
} undo;

typedef struct cuda_block {
    weiri_block block; /* first: every block of this backend is a cuda_block */
    undo undo;
    CUdeviceptr base;
    void *host;
    uint64_t mapped; /* bytes at base and host */
    descriptor *shared;
    struct cuda_block *next; /* in the list of own allocations */
} cuda_block;

static struct {
    pthread_mutex_t lock;
    cuda_block *first;
} own = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* What the driver says about a pointer. The driver writes 1 to 8 bytes of each zeroed field. */
typedef struct pointer_facts {
    uint64_t type; /* CU_MEMORYTYPE_...; 0 when CUDA does not know the pointer */
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

static weir_status check(const weir_device *device, const char *call, CUresult result)
{
    return weiri_cuda_status(device->info.index, call, result);
}

static void *as_pointer(CUdeviceptr address)
{
    return (void *)(uintptr_t)address; /* NOLINT: a driver address is a pointer */
}

/* Rounds up to a multiple of `unit`; false when that overflows. */
static bool round_up(uint64_t bytes, uint64_t unit, uint64_t *out)
{
    uint64_t rest = bytes % unit;
    uint64_t more = rest == 0 ? 0 : unit - rest;
    *out = bytes + more;
    return bytes <= UINT64_MAX - more;
}

static descriptor *descriptor_create(int fd)
{
    descriptor *shared = weiri_alloc(1, sizeof *shared);
    if (shared != NULL) {
        weiri_refcount_init(&shared->refs);
        shared->fd = fd;
    }
    return shared;
}

static void descriptor_put(descriptor *shared)
{
    if (shared != NULL && weiri_refcount_put(&shared->refs)) {
        close(shared->fd);
        weiri_free(shared);
    }
}

static cuda_block *block_create(weir_device *device, uint64_t bytes)
{
    cuda_block *made = weiri_alloc(1, sizeof *made);
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

static void own_insert(cuda_block *made)
{
    pthread_mutex_lock(&own.lock);
    made->next = own.first;
    own.first = made;
    pthread_mutex_unlock(&own.lock);
}

/* Removes a block from the list; blocks that are not in it are fine. */
static void own_remove(const cuda_block *gone)
{
    pthread_mutex_lock(&own.lock);
    for (cuda_block **link = &own.first; *link != NULL; link = &(*link)->next) {
        if (*link == gone) {
            *link = gone->next;
            break;
        }
    }
    pthread_mutex_unlock(&own.lock);
}

/* ---- mapping ---------------------------------------------------------------------------------------- */

static weir_status grant_access(const weir_device *device, CUdeviceptr base, uint64_t bytes)
{
    CUmemAccessDesc access;
    memset(&access, 0, sizeof access);
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = weiri_cuda_native(device)->ordinal;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return check(device, "cuMemSetAccess", weiri_cuda.cuMemSetAccess(base, bytes, &access, 1));
}

/* Maps the first `bytes` of a cuMem allocation for this device. */
static weir_status map_handle(const weir_device *device, CUmemGenericAllocationHandle handle, uint64_t bytes, CUdeviceptr *out)
{
    CUdeviceptr base = 0;
    CUresult result = weiri_cuda.cuMemAddressReserve(&base, bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS) {
        return check(device, "cuMemAddressReserve", result);
    }
    weir_status status;
    result = weiri_cuda.cuMemMap(base, bytes, 0, handle, 0);
    if (result == CUDA_ERROR_INVALID_VALUE) {
        status = weiri_fail(WEIR_ERR_CORRUPT, "gpu:%u: cuMemMap: the allocation is shorter than the %llu bytes it should have",
                            device->info.index, (ull)bytes);
        goto free_addresses;
    }
    if (result != CUDA_SUCCESS) {
        status = check(device, "cuMemMap", result);
        goto free_addresses;
    }
    status = grant_access(device, base, bytes);
    if (status != WEIR_OK) {
        goto unmap;
    }
    *out = base;
    return WEIR_OK;

unmap:
    (void)weiri_cuda.cuMemUnmap(base, bytes);
free_addresses:
    (void)weiri_cuda.cuMemAddressFree(base, bytes);
    return status;
}

/* Maps a memfd into this process and for the device; fills base, host and mapped. */
static weir_status map_memfd(const weir_device *device, cuda_block *made, int fd, uint64_t bytes)
{
    void *host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (host == MAP_FAILED) {
        return weiri_fail_errno(errno, "gpu:%u: mmap of %llu bytes of host memory", device->info.index, (ull)bytes);
    }
    weir_status status = check(device, "cuMemHostRegister",
                               weiri_cuda.cuMemHostRegister(host, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
    if (status != WEIR_OK) {
        goto unmap;
    }
    CUdeviceptr base = 0;
    status = check(device, "cuMemHostGetDevicePointer", weiri_cuda.cuMemHostGetDevicePointer(&base, host, 0));
    if (status != WEIR_OK) {
        goto unregister;
    }
    made->base = base;
    made->host = host;
    made->mapped = bytes;
    made->undo = UNDO_HOST;
    return WEIR_OK;

unregister:
    (void)weiri_cuda.cuMemHostUnregister(host);
unmap:
    munmap(host, bytes);
    return status;
}

/* Gives back what the block maps, in the entered context. */
static void undo_mapping(const cuda_block *gone)
{
    switch (gone->undo) {
    case UNDO_CUMEM:
        (void)weiri_cuda.cuMemUnmap(gone->base, gone->mapped);
        (void)weiri_cuda.cuMemAddressFree(gone->base, gone->mapped);
        break;
    case UNDO_CUMALLOC:
        (void)weiri_cuda.cuMemFree(gone->base);
        break;
    case UNDO_HOST:
        (void)weiri_cuda.cuMemHostUnregister(gone->host);
        munmap(gone->host, gone->mapped);
        break;
    case UNDO_IPC:
        (void)weiri_cuda.cuIpcCloseMemHandle(gone->base);
        break;
    case UNDO_NOTHING:
        break;
    }
}

void weiri_cuda_release(weiri_block *block)
{
    if (block == NULL) {
        return;
    }
    cuda_block *gone = block->native;
    own_remove(gone);
    CUstreamCaptureMode mode;
    if (gone->undo != UNDO_NOTHING && weiri_cuda_enter(block->device, &mode) == WEIR_OK) {
        undo_mapping(gone);
        weiri_cuda_leave(mode);
    }
    descriptor_put(gone->shared);
    weiri_free(gone);
}

/* ---- allocate --------------------------------------------------------------------------------------- */

/* Exports the allocation as a descriptor of the block. */
static weir_status export_handle(const weir_device *device, cuda_block *made, CUmemGenericAllocationHandle handle)
{
    int fd = -1;
    CUresult result =
        weiri_cuda.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result != CUDA_SUCCESS) {
        return check(device, "cuMemExportToShareableHandle", result);
    }
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    made->shared = descriptor_create(fd);
    if (made->shared == NULL) {
        close(fd);
        return weiri_fail_nomem("gpu: descriptor");
    }
    made->block.export_.share = WEIRI_SHARE_CUMEM_FD;
    made->block.export_.fd = fd;
    return WEIR_OK;
}

static weir_status zero(const weir_device *device, CUdeviceptr base, uint64_t bytes)
{
    CUstream stream = weiri_cuda_native(device)->stream;
    CUresult result = weiri_cuda.cuMemsetD8Async(base, 0, bytes, stream);
    if (result != CUDA_SUCCESS) {
        return check(device, "cuMemsetD8Async", result);
    }
    return weiri_cuda_poll(device, "allocate", stream, weiri_deadline(device->timeout_ms));
}

static weir_status allocate_cumem(const weir_device *device, cuda_block *made)
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
    CUmemGenericAllocationHandle handle;
    weir_status status = check(device, "cuMemCreate", weiri_cuda.cuMemCreate(&handle, bytes, &prop, 0));
    if (status != WEIR_OK) {
        return status;
    }
    status = map_handle(device, handle, bytes, &made->base);
    if (status == WEIR_OK) {
        made->mapped = bytes;
        made->undo = UNDO_CUMEM;
        status = export_handle(device, made, handle);
    }
    /* The mapping and the descriptor keep the memory. */
    (void)weiri_cuda.cuMemRelease(handle);
    return status;
}

static weir_status allocate_legacy(const weir_device *device, cuda_block *made)
{
    weir_status status = check(device, "cuMemAlloc", weiri_cuda.cuMemAlloc(&made->base, made->block.size));
    if (status != WEIR_OK) {
        return status;
    }
    made->mapped = made->block.size;
    made->undo = UNDO_CUMALLOC;
    CUipcMemHandle handle;
    status = check(device, "cuIpcGetMemHandle", weiri_cuda.cuIpcGetMemHandle(&handle, made->base));
    if (status == WEIR_OK) {
        made->block.export_.share = WEIRI_SHARE_CUDA_IPC;
        memcpy(made->block.export_.bytes, handle.reserved, sizeof made->block.export_.bytes);
    }
    return status;
}

static weir_status allocate_device(const weir_device *device, cuda_block *made)
{
    weir_status status =
        weiri_cuda_native(device)->shareable ? allocate_cumem(device, made) : allocate_legacy(device, made);
    if (status == WEIR_OK) {
        status = zero(device, made->base, made->mapped);
    }
    return status;
}

static weir_status allocate_host(const weir_device *device, cuda_block *made)
{
    uint64_t bytes;
    if (!round_up(made->block.size, (uint64_t)sysconf(_SC_PAGESIZE), &bytes) || bytes > INT64_MAX) {
        return weiri_fail(WEIR_ERR_NOMEM, "gpu:%u: allocate: %llu bytes are too many", device->info.index,
                          (ull)made->block.size);
    }
    int fd = memfd_create("weir", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return weiri_fail_errno(errno, "gpu:%u: allocate: memfd_create", device->info.index);
    }
    if (ftruncate(fd, (off_t)bytes) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
        weir_status status = weiri_fail_errno(errno, "gpu:%u: allocate: memfd of %llu bytes", device->info.index, (ull)bytes);
        close(fd);
        return status;
    }
    made->shared = descriptor_create(fd);
    if (made->shared == NULL) {
        close(fd);
        return weiri_fail_nomem("gpu: descriptor");
    }
    made->block.export_.share = WEIRI_SHARE_MEMFD;
    made->block.export_.fd = fd;
    return map_memfd(device, made, fd, bytes);
}

weir_status weiri_cuda_allocate(weir_device *device, weir_memory_kind kind, uint64_t bytes, weiri_block **out)
{
    if (bytes == 0) {
        return weiri_fail(WEIR_ERR_INVALID, "gpu:%u: allocate: 0 bytes", device->info.index);
    }
    cuda_block *made = block_create(device, bytes);
    if (made == NULL) {
        return WEIR_ERR_NOMEM;
    }
    CUstreamCaptureMode mode;
    weir_status status = weiri_cuda_enter(device, &mode);
    if (status == WEIR_OK) {
        status = kind == WEIR_MEMORY_HOST ? allocate_host(device, made) : allocate_device(device, made);
        weiri_cuda_leave(mode);
    }
    if (status != WEIR_OK) {
        weiri_cuda_release(&made->block);
        return status;
    }
    made->block.pointer = as_pointer(made->base);
    made->block.host_pointer = made->host;
    made->block.allocated = made->mapped;
    made->block.export_.kind = (uint32_t)kind;
    made->block.export_.base = made->host != NULL ? (uint64_t)(uintptr_t)made->host : made->base;
    made->block.export_.base_bytes = made->mapped;
    own_insert(made);
    *out = &made->block;
    return WEIR_OK;
}

/* ---- wrap ------------------------------------------------------------------------------------------- */

static weir_status get_facts(const weir_device *device, CUdeviceptr pointer, pointer_facts *out)
{
    memset(out, 0, sizeof *out);
    CUpointer_attribute attributes[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        CU_POINTER_ATTRIBUTE_HOST_POINTER,   CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        CU_POINTER_ATTRIBUTE_IS_MANAGED,     CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, CU_POINTER_ATTRIBUTE_CONTEXT,
    };
    void *values[] = {
        &out->type,        &out->ordinal,     &out->device_pointer, &out->host_pointer, &out->range_start,
        &out->range_bytes, &out->managed,     &out->legacy_ipc,     &out->pool,         &out->context,
    };
    CUresult result =
        weiri_cuda.cuPointerGetAttributes((unsigned)(sizeof attributes / sizeof attributes[0]), attributes, values, pointer);
    if (result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_INVALID_VALUE) {
        /* What some drivers answer for a pointer that is not theirs; it stays of type 0. */
        memset(out, 0, sizeof *out);
        return WEIR_OK;
    }
    return check(device, "cuPointerGetAttributes", result);
}

static weir_status fail_range(const weir_device *device, CUdeviceptr pointer, uint64_t bytes, uint64_t base, uint64_t size)
{
    return weiri_fail(WEIR_ERR_RANGE, "gpu:%u: register %llu bytes at 0x%llx: the allocation at 0x%llx has only %llu bytes",
                      device->info.index, (ull)bytes, (ull)pointer, (ull)base, (ull)size);
}

static weir_status fail_other_gpu(const weir_device *device, CUdeviceptr pointer, int64_t owner)
{
    return weiri_fail(WEIR_ERR_INVALID, "gpu:%u: register memory at 0x%llx: it belongs to gpu:%lld; register it with that GPU",
                      device->info.index, (ull)pointer, (long long)owner);
}

/* Sets why the memory cannot be given to other processes. */
static void not_shared(cuda_block *made, const char *reason)
{
    made->block.export_.share = WEIRI_SHARE_NONE;
    snprintf(made->block.reason, sizeof made->block.reason, "%s", reason);
}

static void not_shared_because(cuda_block *made, const char *call, CUresult result)
{
    char text[96];
    weiri_cuda_describe(result, text, sizeof text);
    made->block.export_.share = WEIRI_SHARE_NONE;
    snprintf(made->block.reason, sizeof made->block.reason, "%s: %s", call, text);
}

/* Wraps a part of an own allocation; *found says whether it is one. */
static weir_status wrap_own(weir_device *device, cuda_block *made, CUdeviceptr pointer, bool *found)
{
    weir_status status = WEIR_OK;
    uint64_t bytes = made->block.size;
    pthread_mutex_lock(&own.lock);
    for (const cuda_block *whole = own.first; whole != NULL && !*found; whole = whole->next) {
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
            made->block.pointer = as_pointer(whole->base + offset);
            made->block.host_pointer = whole->host == NULL ? NULL : (char *)whole->host + offset;
            made->shared = whole->shared;
            if (made->shared != NULL) {
                weiri_refcount_get(&made->shared->refs);
            }
        }
    }
    pthread_mutex_unlock(&own.lock);
    return status;
}

/* Host memory that somebody pinned. */
static weir_status wrap_host(const weir_device *device, cuda_block *made, CUdeviceptr pointer, const pointer_facts *facts)
{
    uint64_t offset = pointer - facts->range_start;
    uint64_t bytes = made->block.size;
    if (facts->device_pointer == 0) {
        return weiri_fail(WEIR_ERR_INVALID, "gpu:%u: register memory at 0x%llx: pinned host memory that this GPU cannot access; "
                                            "use cudaHostAllocPortable | cudaHostAllocMapped",
                          device->info.index, (ull)pointer);
    }
    bool known = facts->range_bytes != 0 && offset < facts->range_bytes;
    if (known && bytes > facts->range_bytes - offset) {
        return fail_range(device, pointer, bytes, facts->range_start, facts->range_bytes);
    }
    made->block.pointer = as_pointer(facts->device_pointer);
    made->block.host_pointer = as_pointer(facts->host_pointer);
    made->block.export_.kind = WEIR_MEMORY_HOST;
    made->block.export_.base = known ? facts->range_start : pointer;
    made->block.export_.base_bytes = known ? facts->range_bytes : bytes;
    made->block.export_.offset = known ? offset : 0;
    not_shared(made, "pinned host memory of the caller's own; use weir_memory_allocate with WEIR_MEMORY_HOST");
    return WEIR_OK;
}

/* Shares memory of cuMemCreate that somebody else made, if it was made to be exported. */
static void share_cumem(const weir_device *device, cuda_block *made, CUmemGenericAllocationHandle handle)
{
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof prop);
    CUresult result = weiri_cuda.cuMemGetAllocationPropertiesFromHandle(&prop, handle);
    if (result != CUDA_SUCCESS) {
        not_shared_because(made, "cuMemGetAllocationPropertiesFromHandle", result);
        return;
    }
    if (((unsigned)prop.requestedHandleTypes & (unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0) {
        not_shared(made, "cuMem memory that cannot be exported; create it with requestedHandleTypes = "
                         "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR");
        return;
    }
    if (export_handle(device, made, handle) != WEIR_OK) {
        not_shared(made, weir_last_error());
    }
}

/* The smallest aligned range around the block, for memory whose allocations are many or unknown. */
static void set_loose_base(cuda_block *made, CUdeviceptr pointer)
{
    made->block.export_.base = pointer;
    made->block.export_.base_bytes = made->block.size;
    made->block.export_.offset = 0;
}

static weir_status wrap_cumem(const weir_device *device, cuda_block *made, CUdeviceptr pointer, const pointer_facts *facts,
                              CUmemGenericAllocationHandle handle)
{
    uint64_t bytes = made->block.size;
    uint64_t before = pointer - made->block.export_.base;
    if (bytes <= made->block.export_.base_bytes - before) {
        share_cumem(device, made, handle);
        return WEIR_OK;
    }
    /* Beyond the one mapping; neighbours in the same reservation may continue it. */
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
    not_shared(made, "the range spans several cuMem allocations; register each of them by itself");
    return WEIR_OK;
}

static void share_legacy(cuda_block *made)
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

/* Memory of a GPU that somebody else allocated. */
static weir_status wrap_device(const weir_device *device, cuda_block *made, CUdeviceptr pointer, const pointer_facts *facts)
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
    made->block.pointer = as_pointer(pointer);
    made->block.export_.kind = WEIR_MEMORY_DEVICE;
    made->block.export_.base = base;
    made->block.export_.base_bytes = size;
    made->block.export_.offset = pointer - base;
    CUmemGenericAllocationHandle handle;
    if (facts->pool == 0 && facts->managed == 0 &&
        weiri_cuda.cuMemRetainAllocationHandle(&handle, as_pointer(pointer)) == CUDA_SUCCESS) {
        weir_status status = wrap_cumem(device, made, pointer, facts, handle);
        (void)weiri_cuda.cuMemRelease(handle);
        return status;
    }
    if (bytes > size - (pointer - base)) {
        return fail_range(device, pointer, bytes, base, size);
    }
    if (facts->managed != 0) {
        not_shared(made, "managed memory cannot be mapped by other processes; use cudaMalloc or weir_memory_allocate");
    } else if (facts->pool != 0) {
        not_shared(made, "stream-ordered pool memory (cudaMallocAsync) is not mapped by other processes; use cudaMalloc or "
                         "weir_memory_allocate");
    } else if (facts->legacy_ipc == 0) {
        not_shared(made, "this kind of CUDA memory has no IPC handle; use cudaMalloc or weir_memory_allocate");
    } else {
        share_legacy(made);
    }
    return WEIR_OK;
}

/* In the entered context. */
static weir_status wrap(weir_device *device, cuda_block *made, CUdeviceptr pointer)
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
    if (pointer == NULL || bytes == 0) {
        return weiri_fail(WEIR_ERR_INVALID, "gpu:%u: register %llu bytes at 0x%llx", device->info.index, (ull)bytes,
                          (ull)address);
    }
    if (bytes > UINT64_MAX - address) {
        return weiri_fail(WEIR_ERR_RANGE, "gpu:%u: register %llu bytes at 0x%llx: beyond the end of the address space",
                          device->info.index, (ull)bytes, (ull)address);
    }
    cuda_block *made = block_create(device, bytes);
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

/* ---- import ----------------------------------------------------------------------------------------- */

/* Lets this device access memory that another GPU of the process owns. */
static weir_status open_to_device(const weir_device *device, CUdeviceptr pointer, uint64_t bytes, const pointer_facts *facts)
{
    if (facts->pool != 0) {
        CUmemAccessDesc access;
        memset(&access, 0, sizeof access);
        access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access.location.id = weiri_cuda_native(device)->ordinal;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        return check(device, "cuMemPoolSetAccess",
                     weiri_cuda.cuMemPoolSetAccess((CUmemoryPool)as_pointer(facts->pool), &access, 1));
    }
    CUmemGenericAllocationHandle handle;
    if (weiri_cuda.cuMemRetainAllocationHandle(&handle, as_pointer(pointer)) != CUDA_SUCCESS) {
        CUresult result = weiri_cuda.cuCtxEnablePeerAccess((CUcontext)as_pointer(facts->context), 0);
        return result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED ? WEIR_OK : check(device, "cuCtxEnablePeerAccess", result);
    }
    (void)weiri_cuda.cuMemRelease(handle);
    for (uint64_t done = 0; done < bytes;) {
        CUdeviceptr base = 0;
        size_t size = 0;
        CUresult result = weiri_cuda.cuMemGetAddressRange(&base, &size, pointer + done);
        if (result != CUDA_SUCCESS) {
            return check(device, "cuMemGetAddressRange", result);
        }
        if (pointer + done - base >= size) {
            return weiri_fail(WEIR_ERR_DEVICE, "gpu:%u: cuMemGetAddressRange: an empty range at 0x%llx", device->info.index,
                              (ull)(pointer + done));
        }
        weir_status status = grant_access(device, base, size);
        if (status != WEIR_OK) {
            return status;
        }
        done = base + size - pointer;
    }
    return WEIR_OK;
}

static weir_status import_own_process(const weir_device *device, cuda_block *made, const weiri_export *peer)
{
    CUdeviceptr pointer = peer->base + peer->offset;
    pointer_facts facts;
    weir_status status = get_facts(device, pointer, &facts);
    if (status != WEIR_OK) {
        return status;
    }
    if (facts.type == 0) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "gpu:%u: import memory at 0x%llx of this process: CUDA does not know it",
                          device->info.index, (ull)pointer);
    }
    if (facts.type == CU_MEMORYTYPE_HOST && facts.managed == 0) {
        if (facts.device_pointer == 0) {
            return weiri_fail(WEIR_ERR_UNSUPPORTED, "gpu:%u: import host memory at 0x%llx: it is not pinned for this GPU",
                              device->info.index, (ull)pointer);
        }
        made->block.pointer = as_pointer(facts.device_pointer);
        made->block.host_pointer = as_pointer(facts.host_pointer);
        return WEIR_OK;
    }
    made->block.pointer = as_pointer(pointer);
    if (facts.managed != 0 || (int32_t)(uint32_t)facts.ordinal == weiri_cuda_native(device)->ordinal) {
        return WEIR_OK;
    }
    return open_to_device(device, pointer, peer->size, &facts);
}

static weir_status import_cumem(const weir_device *device, cuda_block *made, const weiri_export *peer, int fd)
{
    const weiri_cuda_device *native = weiri_cuda_native(device);
    if (!native->shareable) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "gpu:%u: import: this GPU cannot map memory given as a file descriptor",
                          device->info.index);
    }
    if (peer->base_bytes % native->granularity != 0) {
        return weiri_fail(WEIR_ERR_CORRUPT, "gpu:%u: import: an allocation of %llu bytes is no multiple of %llu",
                          device->info.index, (ull)peer->base_bytes, (ull)native->granularity);
    }
    CUmemGenericAllocationHandle handle;
    weir_status status = check(device, "cuMemImportFromShareableHandle",
                               weiri_cuda.cuMemImportFromShareableHandle(&handle, as_pointer((CUdeviceptr)fd),
                                                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    if (status != WEIR_OK) {
        return status;
    }
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof prop);
    status = check(device, "cuMemGetAllocationPropertiesFromHandle",
                   weiri_cuda.cuMemGetAllocationPropertiesFromHandle(&prop, handle));
    if (status == WEIR_OK && prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        status = weiri_fail(WEIR_ERR_CORRUPT, "gpu:%u: import: the descriptor is not of a GPU's memory", device->info.index);
    }
    if (status == WEIR_OK) {
        status = map_handle(device, handle, peer->base_bytes, &made->base);
    }
    (void)weiri_cuda.cuMemRelease(handle);
    if (status == WEIR_OK) {
        made->mapped = peer->base_bytes;
        made->undo = UNDO_CUMEM;
        made->block.pointer = as_pointer(made->base + peer->offset);
    }
    return status;
}

static weir_status import_ipc(const weir_device *device, cuda_block *made, const weiri_export *peer)
{
    CUipcMemHandle handle;
    memcpy(handle.reserved, peer->bytes, sizeof handle.reserved);
    /* The driver counts how often a context opened the same handle, so that each block closes its own. */
    weir_status status =
        check(device, "cuIpcOpenMemHandle",
              weiri_cuda.cuIpcOpenMemHandle(&made->base, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    if (status != WEIR_OK) {
        return status;
    }
    made->undo = UNDO_IPC;
    CUdeviceptr base = 0;
    size_t size = 0;
    status = check(device, "cuMemGetAddressRange", weiri_cuda.cuMemGetAddressRange(&base, &size, made->base));
    if (status != WEIR_OK) {
        return status;
    }
    uint64_t before = made->base - base;
    if (before > size || peer->base_bytes > size - before) {
        return weiri_fail(WEIR_ERR_CORRUPT, "gpu:%u: import: the IPC handle is of %llu bytes, not %llu", device->info.index,
                          (ull)size, (ull)peer->base_bytes);
    }
    made->mapped = peer->base_bytes;
    made->block.pointer = as_pointer(made->base + peer->offset);
    return WEIR_OK;
}

static weir_status import_memfd(const weir_device *device, cuda_block *made, const weiri_export *peer, int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
        return weiri_fail(WEIR_ERR_CORRUPT, "gpu:%u: import: the descriptor is no memfd sealed against shrinking",
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
    weir_status status = map_memfd(device, made, fd, peer->base_bytes);
    if (status == WEIR_OK) {
        made->block.pointer = as_pointer(made->base + peer->offset);
        made->block.host_pointer = (char *)made->host + peer->offset;
    }
    return status;
}

/* In the entered context. */
static weir_status import(const weir_device *device, cuda_block *made, const weiri_export *peer, bool same_process, int fd)
{
    if (same_process) {
        return import_own_process(device, made, peer);
    }
    if (fd < 0 && (peer->share == WEIRI_SHARE_CUMEM_FD || peer->share == WEIRI_SHARE_MEMFD)) {
        return weiri_fail(WEIR_ERR_INVALID, "gpu:%u: import: the memory's file descriptor is missing", device->info.index);
    }
    switch (peer->share) {
    case WEIRI_SHARE_CUMEM_FD:
        return import_cumem(device, made, peer, fd);
    case WEIRI_SHARE_CUDA_IPC:
        return import_ipc(device, made, peer);
    case WEIRI_SHARE_MEMFD:
        return import_memfd(device, made, peer, fd);
    default:
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "gpu:%u: import: the memory is not shared with other processes (share %u)",
                          device->info.index, peer->share);
    }
}

weir_status weiri_cuda_import(weir_device *device, const weiri_export *peer, bool same_process, int fd, weiri_block **out)
{
    if (peer->size == 0 || peer->offset > peer->base_bytes || peer->size > peer->base_bytes - peer->offset ||
        peer->base_bytes > UINT64_MAX - peer->base) {
        return weiri_fail(WEIR_ERR_CORRUPT, "gpu:%u: import: %llu bytes at offset %llu of an allocation of %llu bytes",
                          device->info.index, (ull)peer->size, (ull)peer->offset, (ull)peer->base_bytes);
    }
    cuda_block *made = block_create(device, peer->size);
    if (made == NULL) {
        return WEIR_ERR_NOMEM;
    }
    made->block.export_.kind = peer->kind;
    not_shared(made, "imported memory is shared by its owner alone");
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

/* ---- copy and fill ---------------------------------------------------------------------------------- */

/* Threads may share the stream: each waits until it is idle, which its own work is part of. */
static weir_status finish(const weir_device *device, const char *operation, const char *call, CUresult result)
{
    if (result != CUDA_SUCCESS) {
        return check(device, call, result);
    }
    return weiri_cuda_poll(device, operation, weiri_cuda_native(device)->stream, weiri_deadline(device->timeout_ms));
}

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
    CUresult result = weiri_cuda.cuMemcpyAsync((CUdeviceptr)(uintptr_t)dst, (CUdeviceptr)(uintptr_t)src, bytes,
                                               weiri_cuda_native(device)->stream);
    status = finish(device, "copy", "cuMemcpyAsync", result);
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
    CUresult result =
        weiri_cuda.cuMemsetD8Async((CUdeviceptr)(uintptr_t)dst, value, bytes, weiri_cuda_native(device)->stream);
    status = finish(device, "fill", "cuMemsetD8Async", result);
    weiri_cuda_leave(mode);
    return status;
}
