/* memory.h - shared by cuda/memory.c (weir's own memory) and cuda/share.c (the user's and peers' memory). */
#ifndef WEIRI_DEVICE_CUDA_MEMORY_H
#define WEIRI_DEVICE_CUDA_MEMORY_H

#include "src/device/cuda/driver.h"

/* A file descriptor shared by blocks. */
typedef struct weiri_cuda_fd {
    weiri_refcount refs;
    int fd;
    /* For an allocation that the user made: a reference on its handle. 0 for weir's own allocations. Members of
     * weiri_cuda_list.foreign are linked by `next`. */
    CUmemGenericAllocationHandle handle;
    struct weiri_cuda_fd *next;
} weiri_cuda_fd;

/* How release undoes the mapping. */
typedef enum weiri_cuda_undo {
    WEIRI_CUDA_UNDO_NOTHING, /* wrapped memory, or memory of this process */
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

/* All living allocations of this backend, and the descriptors of the user's allocations. */
typedef struct weiri_cuda_list {
    pthread_mutex_t lock;
    weiri_cuda_block *first;
    weiri_cuda_fd *foreign;
} weiri_cuda_list;

extern weiri_cuda_list weiri_cuda_own;

static inline void *weiri_cuda_pointer(CUdeviceptr address) { return (void *)(uintptr_t)address; }

/* A block without memory, of size `bytes`. NULL with the error text set if memory ran out. weiri_cuda_release ends it
 * at every stage. */
weiri_cuda_block *weiri_cuda_block_create(weir_device *device, uint64_t bytes);

/* Read and write access of the device, for cuMemSetAccess and cuMemPoolSetAccess. */
CUmemAccessDesc weiri_cuda_access(const weir_device *device);

/* The following work in the entered context. */

/* Maps the first `bytes` of a cuMem allocation for the device: sets base, mapped and undo. WEIR_ERR_CORRUPT if the
 * allocation is shorter. */
weir_status weiri_cuda_map_handle(weiri_cuda_block *made, CUmemGenericAllocationHandle handle, uint64_t bytes);
/* Maps a memfd into this process and for the device: sets base, host, mapped and undo. `touch_threads` threads touch
 * the pages of a new one. */
weir_status weiri_cuda_map_memfd(weiri_cuda_block *made, int fd, uint64_t bytes, uint32_t touch_threads);
/* Exports one of weir's cuMem allocations as a descriptor, which the block owns: sets shared, export_.share and fd. */
weir_status weiri_cuda_export_handle(weiri_cuda_block *made, CUmemGenericAllocationHandle handle);
/* Exports an allocation that the user made. Blocks around parts of one allocation share one descriptor. Takes over the
 * caller's reference on `handle`. */
weir_status weiri_cuda_export_foreign(weiri_cuda_block *made, CUmemGenericAllocationHandle handle);

#endif
