/* memory.h - what cuda/memory.c (memory of ours) and cuda/share.c (memory of others) have in common. */
#ifndef WEIRI_DEVICE_CUDA_MEMORY_H
#define WEIRI_DEVICE_CUDA_MEMORY_H

#include "src/device/cuda/driver.h"

/* A file descriptor shared by blocks. */
typedef struct weiri_cuda_fd {
    weiri_refcount refs;
    int fd;
    /* Of an allocation that the user made: its handle, of which this is a reference, and the next in
     * weiri_cuda_list.foreign. 0 for an allocation of ours. */
    CUmemGenericAllocationHandle handle;
    struct weiri_cuda_fd *next;
} weiri_cuda_fd;

/* What release has to undo. */
typedef enum weiri_cuda_undo {
    WEIRI_CUDA_UNDO_NOTHING, /* wrapped, or of this process */
    WEIRI_CUDA_UNDO_CUMEM,   /* unmap, free the addresses */
    WEIRI_CUDA_UNDO_ALLOC,   /* cuMemFree */
    WEIRI_CUDA_UNDO_HOST,    /* unregister, munmap */
    WEIRI_CUDA_UNDO_MAPPING, /* unregister */
    WEIRI_CUDA_UNDO_IPC      /* close the handle */
} weiri_cuda_undo;

typedef struct weiri_cuda_block {
    weiri_block block; /* block.native points back to this struct */
    weiri_cuda_undo undo;
    CUdeviceptr base;
    void *host;
    uint64_t mapped; /* bytes at base, and at host if not NULL */
    weiri_cuda_fd *shared;
    struct weiri_cuda_block *next; /* in weiri_cuda_own */
} weiri_cuda_block;

/* All allocations of this backend that are alive, and descriptors of those of the user. */
typedef struct weiri_cuda_list {
    pthread_mutex_t lock;
    weiri_cuda_block *first;
    weiri_cuda_fd *foreign;
} weiri_cuda_list;

extern weiri_cuda_list weiri_cuda_own;

static inline void *weiri_cuda_pointer(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

/* An empty block that wants `bytes`; NULL, with the error text set, when memory ran out. Ended by
 * weiri_cuda_release at every stage. */
weiri_cuda_block *weiri_cuda_block_create(weir_device *device, uint64_t bytes);

/* Read and write access of the device, for cuMemSetAccess and cuMemPoolSetAccess. */
CUmemAccessDesc weiri_cuda_access(const weir_device *device);

/* The following work in the entered context. */

/* Maps the first `bytes` of a cuMem allocation for the device: fills base, mapped and undo. WEIR_ERR_CORRUPT
 * when the allocation is shorter. */
weir_status weiri_cuda_map_handle(weiri_cuda_block *made, CUmemGenericAllocationHandle handle, uint64_t bytes);
/* Maps a memfd into this process and for the device: fills base, host, mapped and undo. */
weir_status weiri_cuda_map_memfd(weiri_cuda_block *made, int fd, uint64_t bytes);
/* Exports a cuMem allocation of ours as a descriptor that the block then owns: fills shared, export_.share and fd. */
weir_status weiri_cuda_export_handle(weiri_cuda_block *made, CUmemGenericAllocationHandle handle);
/* The same for an allocation that the user made, of which there is one descriptor however many blocks wrap parts of it.
 * Takes over the caller's reference of `handle`. */
weir_status weiri_cuda_export_foreign(weiri_cuda_block *made, CUmemGenericAllocationHandle handle);

#endif
