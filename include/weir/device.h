/* weir/device.h - a processor that runs kernels and owns memory: a GPU, or the CPU.
 *
 *     weir_device *device;
 *     weir_device_open("gpu:0", NULL, &device);      or "cpu:0"
 *     ...
 *     weir_device_close(device);
 *
 * The CPU is a device like any other: kernels run on threads that it starts, so that everything works, and can be
 * tested and debugged, without a GPU. "cpu:0" to "cpu:1023" all name the same CPU.
 * GPUs are numbered as the process sees them (CUDA_VISIBLE_DEVICES) and identified by UUID.
 *
 * Threads:   all calls on a device may be made by several threads at once, except close.
 * Blocking:  open (driver and context start), copy and fill.
 * Ownership: the caller closes what it opened; communicators keep a reference. The first open of a GPU starts its
 *            primary context, which stays until the process ends.
 * Errors:    WEIR_ERR_UNSUPPORTED (no such kind here: no driver, no GPU), WEIR_ERR_INVALID (no such name or
 *            number), WEIR_ERR_DEVICE (with the driver's own error), WEIR_ERR_LIMIT, WEIR_ERR_NOMEM. */
#ifndef WEIR_DEVICE_H
#define WEIR_DEVICE_H

#include "weir/base.h"

WEIR_BEGIN_DECLS

typedef struct weir_device weir_device;

typedef struct weir_device_opts {
    size_t size;
    uint32_t cpu_threads; /* most threads of one launch on the CPU; default 64, at most 1,024; WEIR_CPU_THREADS wins */
} weir_device_opts;

typedef struct weir_device_info {
    char kind[8];   /* "gpu" or "cpu" */
    uint32_t index; /* the N of "gpu:N" */
    char label[16]; /* "GPU 0", for people */
    char model[96]; /* "NVIDIA H200" */
    uint8_t uuid[16];
    uint64_t memory_bytes;
    uint32_t block_threads;    /* most threads of a block */
    uint32_t resident_threads; /* most threads that run at the same time; on the CPU those of one launch */
    uint32_t multiprocessors;  /* 1 for the CPU */
    uint32_t driver_version;   /* as the driver counts, 13000 is 13.0; 0 for the CPU */
    /* Differences between devices; all false for the CPU but atomic_to_host. */
    bool warps;          /* threads run in warps of 32, and many blocks side by side */
    bool own_cores;      /* kernels take no time of the host's cores */
    bool stream_copies;  /* copies between memories go through streams; otherwise the CPU copies */
    bool atomic_to_host; /* its atomic operations on host memory are atomic to those of the host */
} weir_device_info;

typedef enum weir_memory_kind {
    WEIR_MEMORY_DEVICE = 0, /* the device's own memory */
    WEIR_MEMORY_HOST = 1    /* host memory that the device can access; on the CPU device the same as DEVICE */
} weir_memory_kind;

/* Where memory is. */
typedef struct weir_device_place {
    char device[16];       /* "gpu:0", the name for weir_device_open; "" for plain host memory */
    weir_memory_kind kind; /* WEIR_MEMORY_HOST for plain host memory */
} weir_device_place;

/* Blocks of a launch and threads of each block; one-dimensional. */
typedef struct weir_shape {
    uint32_t blocks;
    uint32_t threads;
} weir_shape;

/* How many devices of `kind` ("gpu" or "cpu") this process may open; 0 GPUs where there is no driver. The CPU
 * counts as one. */
WEIR_API WEIR_NODISCARD weir_status weir_device_count(const char *kind, uint32_t *count);

WEIR_API WEIR_NODISCARD weir_status weir_device_open(const char *name, const weir_device_opts *opts, weir_device **out);
WEIR_API void weir_device_close(weir_device *device);
/* bytes: sizeof *info. Only the first `bytes` bytes of *info are written; fields that this libweir does not know become
 * zero. */
WEIR_API void weir_device_get_info(const weir_device *device, weir_device_info *info, size_t bytes);

/* WEIR_OK when kernels of `device` can load from and store to memory of `peer`, both on this host;
 * WEIR_ERR_UNSUPPORTED, with the reason, when they cannot. */
WEIR_API WEIR_NODISCARD weir_status weir_device_reaches(weir_device *device, const weir_device *peer);

/* Returns `wanted` if the device can keep all of it resident, so that a cooperative launch of it is accepted: on the
 * CPU up to info.resident_threads, on a GPU as many threads as fit for a kernel of 64 registers each. Otherwise returns
 * a smaller resident shape: on a GPU the largest, on the CPU at most 8 threads, which suffice to run a grid that was
 * meant for a GPU. Both fields of the result are at least 1. */
WEIR_API weir_shape weir_device_fit_shape(const weir_device *device, weir_shape wanted);

/* Copies between host memory and the device's memory, in any direction. Returns when the copy is done. It is not
 * ordered with work on streams. */
WEIR_API WEIR_NODISCARD weir_status weir_device_copy(weir_device *device, void *dst, const void *src, uint64_t bytes);
WEIR_API WEIR_NODISCARD weir_status weir_device_fill(weir_device *device, void *dst, uint8_t value, uint64_t bytes);

/* Allocates `bytes` (at least 1) of zeroed memory of the device. It belongs to no communicator: any communicator on the
 * device, also a later one, can register it (weir_memory_register), and other processes can map it then. Free it
 * after every registration of it is destroyed and no kernel uses it. The device stays open until all is freed. */
WEIR_API WEIR_NODISCARD weir_status weir_device_allocate(weir_device *device, uint64_t bytes, void **out);
/* NULL is ignored, and so is any other pointer that weir_device_allocate did not return, with an error in the log. */
WEIR_API void weir_device_free(weir_device *device, void *pointer);
/* The same for host memory that the device can access, pinned on a GPU. The CPU and kernels use the same pointer. Free
 * it with weir_device_free. WEIR_ERR_UNSUPPORTED: the GPU needs another address than the CPU. */
WEIR_API WEIR_NODISCARD weir_status weir_device_allocate_host(weir_device *device, uint64_t bytes, void **out);

/* Says which memory `pointer` points into: memory of a GPU, also of cudaMalloc and cudaMallocManaged; host memory that
 * is pinned for a GPU; memory that a CPU device of this process has allocated; or plain host memory. Any other address
 * counts as plain host memory, mapped or not. The call opens no device, loads no driver and starts no context: memory
 * of a GPU exists only in a process that has done so before. It costs one call of the driver at most. */
WEIR_API WEIR_NODISCARD weir_status weir_device_locate(const void *pointer, weir_device_place *out);

WEIR_END_DECLS

#endif
