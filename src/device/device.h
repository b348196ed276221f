/* device.h - one ops table for each kind of device; device.c has the registry and the public calls.
 *
 * The comment above each op says whether it may block, what it owns, and which errors it returns. Any thread may call
 * any op. A failing op sets weir_last_error (weiri_fail). Outputs are set only on success. */
#ifndef WEIRI_DEVICE_H
#define WEIRI_DEVICE_H

#include "src/host/base/env.h"
#include "src/host/base/refcount.h"
#include "weir/device/kernel.h"
#include "weir/memory.h"
#include "weir/stream.h"

/* How another process, or another device of this process, gets access to a block. */
typedef enum weiri_share {
    WEIRI_SHARE_NONE = 0,     /* pointer of this process only; `reason` says why, and the remedy */
    WEIRI_SHARE_MEMFD = 1,    /* memfd, mapped by mmap */
    WEIRI_SHARE_CUMEM_FD = 2, /* cuMem allocation as a POSIX descriptor */
    WEIRI_SHARE_CUDA_IPC = 3  /* legacy CUDA IPC handle in `bytes` */
} weiri_share;

/* Description of a block for a peer. All fields but `fd` travel over the wire (src/host/comm/memory.c). */
typedef struct weiri_export {
    uint32_t share;      /* weiri_share */
    uint32_t kind;       /* weir_memory_kind */
    uint64_t base;       /* address of the whole allocation in the owner's process */
    uint64_t base_bytes; /* of the whole allocation, as it must be mapped */
    uint64_t offset;     /* of the block in it */
    uint64_t size;       /* of the block */
    uint8_t bytes[64];   /* CUDA IPC handle */
    int fd;              /* owned by the block, or -1; the owner sends it to peers that map the block */
} weiri_export;

/* Memory that a device can access: allocated, registered (a part of a foreign allocation), or imported. */
typedef struct weiri_block {
    weir_device *device;
    void *pointer;      /* for kernels and copies */
    void *host_pointer; /* for the CPU; NULL if the CPU cannot access it */
    uint64_t size;      /* as requested */
    uint64_t allocated; /* bytes that this block itself takes; 0 for registered and imported ones */
    weiri_export export_;
    char reason[160]; /* for WEIRI_SHARE_NONE, or how registers are mapped */
    void *native;     /* belongs to the backend */
    /* Of device.c. An allocation that this process has imported too is freed after the last of these blocks. */
    uint32_t uses;             /* of an allocation: itself, and the imports */
    uint64_t number;           /* of an allocation: how many this process had made */
    struct weiri_block *whole; /* of an import: the allocation of this process, or NULL */
    struct weiri_block *next;  /* in the list of allocations, or of imports */
    struct weiri_block *next_kept;
} weiri_block;

/* A whole allocation of this process. */
typedef struct weiri_allocation {
    uint64_t id; /* never used twice in this process */
    char *base;
    uint64_t bytes;
} weiri_allocation;

typedef struct weiri_device_ops {
    const char *kind;  /* "gpu" */
    const char *label; /* "GPU" */
    uint32_t numbers;  /* for kinds whose numbers all name the same device: how many numbers exist; otherwise 0 */

    /* The number of devices of this kind; 0 if there are none. Never fails, never blocks long. `reason` (256 bytes)
     * gets the cause of a 0, or "". */
    uint32_t (*count)(char *reason);

    /* Opens device `info.index` (below count, or numbers) into `device`. The caller has set all fields except `native`,
     * `pci` and the rest of info (kind, index and label are set); open sets those. May block. WEIR_ERR_DEVICE,
     * WEIR_ERR_NOMEM, WEIR_ERR_INVALID. */
    weir_status (*open)(weir_device *device);
    void (*close)(weir_device *device);

    /* Zeroed memory that peers can map; opts has only valid values. May block. WEIR_ERR_NOMEM, WEIR_ERR_DEVICE. */
    weir_status (*allocate)(weir_device *device, const weir_memory_opts *opts, uint64_t bytes, weiri_block **out);
    /* A block over the caller's memory, which the device can access. The caller keeps the memory. WEIR_ERR_INVALID (not
     * accessible), WEIR_ERR_RANGE (beyond its allocation). Memory that other processes cannot map is valid: its share
     * is NONE, with a reason. */
    weir_status (*wrap)(weir_device *device, void *pointer, uint64_t bytes, weiri_block **out);
    /* Maps a peer's block. `same_process`: base is a pointer of this process; it is made accessible and nothing is
     * mapped. `fd` belongs to the caller and stays open; -1 for a share without a descriptor. WEIR_ERR_UNSUPPORTED,
     * WEIR_ERR_DEVICE, WEIR_ERR_CORRUPT (offset + size beyond base_bytes, or an fd shorter than base_bytes). */
    weir_status (*import)(weir_device *device, const weiri_export *peer, bool same_process, int fd, weiri_block **out);
    /* Frees, unmaps or forgets any block. No kernel may be using it. NULL is ignored. */
    void (*release)(weiri_block *block);

    /* Gets a descriptor of the block's memory for another device's driver, and the block's offset in it. The caller
     * closes the descriptor. NULL for devices whose memory is the CPU's. WEIR_ERR_UNSUPPORTED, WEIR_ERR_DEVICE. */
    weir_status (*dmabuf)(weir_device *device, const weiri_block *block, int *fd, uint64_t *offset);

    /* Lets kernels store to a NIC's registers, mapped in this process at `registers`, in whole pages. out->reason gets
     * the method. NULL for devices whose kernels run on the CPU. WEIR_ERR_UNSUPPORTED with the remedy. */
    weir_status (*map_registers)(weir_device *device, void *registers, uint64_t bytes, weiri_block **out);

    /* Whether this device can access memory of the peer device with `kind` and `uuid` on the same host.
     * WEIR_ERR_UNSUPPORTED with the reason if not. */
    weir_status (*reach)(weir_device *device, const char *kind, const uint8_t uuid[16]);
    /* Whether a 128-byte line arrives whole in memory of that device: one warp of a GPU stores it with one instruction,
     * one thread of a CPU stores it flag last (weir/device/impl/line.h). */
    bool (*keeps_lines)(weir_device *device, const uint8_t uuid[16]);

    /* For a thread of weir that makes many calls of one device. Between the two the thread may stay in the device's
     * context, so that each op is faster. They cannot fail: a thread that cannot stay there enters in each op. NULL for
     * a kind without contexts. */
    void (*thread_enter)(weir_device *device);
    void (*thread_leave)(weir_device *device);

    /* Whether the pointer is in memory of this kind of device; sets *out if it is. Opens nothing, loads nothing, never
     * fails. NULL for a kind without devices. */
    bool (*locate)(const void *pointer, weir_device_place *out);

    /* Finds the allocation of the user, in this device's memory, that has the pointer. False if other processes cannot
     * map it, or the driver has no id for it. NULL for a kind whose allocations have no ids. */
    bool (*identify)(const weir_device *device, const void *pointer, weiri_allocation *out);

    /* Blocking. */
    weir_status (*copy)(weir_device *device, void *dst, const void *src, uint64_t bytes);
    weir_status (*fill)(weir_device *device, void *dst, uint8_t value, uint64_t bytes);

    /* Both run in the order of the stream and do not wait. A graph records them. Either end may be imported memory. */
    weir_status (*copy_async)(weir_device *device, void *stream, void *dst, const void *src, uint64_t bytes);
    /* Stores a count at `dst`, a device address and a multiple of 8. WEIR_ERR_UNSUPPORTED if the device cannot store
     * there. */
    weir_status (*store_async)(weir_device *device, void *stream, void *dst, uint64_t value);

    /* Same contracts as the public calls of weir/stream.h. The callers have checked arguments for NULL. A stream may be
     * one of weiri_stream_is_default, except in create and destroy. */
    weir_status (*stream_create)(weir_device *device, void **out);
    /* NULL for devices without multiprocessors to choose from: their streams are all of one kind. */
    weir_status (*stream_create_limited)(weir_device *device, const weir_stream_limits *limits, void **out);
    /* Of a stream of stream_create_limited; 0 for other streams. NULL as above. */
    uint32_t (*stream_multiprocessors)(weir_device *device, void *stream);
    void (*stream_destroy)(weir_device *device, void *stream);
    weir_status (*stream_wait)(weir_device *device, void *stream, uint64_t deadline_ns);
    weir_status (*event_create)(weir_device *device, void **out);
    void (*event_destroy)(weir_device *device, void *event);
    /* With `outside`, on a stream that records a graph: each launch of the graph records the event, or waits for its
     * latest record, as an operation outside of the graph would. */
    weir_status (*event_record)(weir_device *device, void *event, void *stream, bool outside);
    weir_status (*stream_wait_event)(weir_device *device, void *stream, void *event, bool outside);
    /* Sets *id to a number of the graph that the stream records, or 0 if it records none. */
    weir_status (*stream_recording)(weir_device *device, void *stream, uint64_t *id);
    weir_status (*event_elapsed)(weir_device *device, void *from, void *to, double *ms);
    weir_status (*graph_begin)(weir_device *device, void *stream);
    weir_status (*graph_end)(weir_device *device, void *stream, void **out);
    weir_status (*graph_launch)(weir_device *device, void *graph, void *stream);
    void (*graph_destroy)(weir_device *device, void *graph);
    weir_status (*kernel_load)(weir_device *device, const weir_kernel *kernel);
    /* As weir_kernel_fit, with at least 1 thread; may set *blocks to 0, which the caller refuses. */
    weir_status (*kernel_fit)(weir_device *device, const weir_kernel *kernel, uint32_t threads, uint32_t *blocks);
    weir_status (*launch)(weir_device *device, const weir_kernel *kernel, weir_shape shape, const void *args,
                          bool cooperative, void *stream);

    weir_shape (*fit_shape)(const weir_device *device, weir_shape wanted);
} weiri_device_ops;

struct weir_device {
    const weiri_device_ops *ops;
    weiri_refcount refs;
    weir_device_info info;
    uint32_t timeout_ms;        /* for operations that weir itself puts on streams */
    uint32_t kernel_timeout_ms; /* for streams with kernels */
    uint32_t cpu_threads;
    char pci[16]; /* PCI address, as "0000:1b:00.0"; "" for a device that runs on the CPU */
    int pid;      /* process that opened it; in others calls return WEIR_ERR_FORKED, and destroys join no threads */
    struct weiri_held *held;        /* memory of weir_device_allocate(_host) */
    struct weiri_made_stream *made; /* streams of weir_stream_create and weir_stream_create_limited */
    weiri_block *kept;              /* of weiri_block_keep */
    void *native;
};

/* The streams that every CUDA process has: NULL, cudaStreamLegacy and cudaStreamPerThread. The CPU device has one
 * stream for all three. */
static inline bool weiri_stream_is_default(const void *stream) { return (uintptr_t)stream <= 2; }

void weiri_device_get(weir_device *device);
void weiri_device_put(weir_device *device);

/* For tests: the n-th call from now of an op that can fail fails with WEIR_ERR_DEVICE. 0 turns it off. Returns the
 * calls that were left: 0 if one has failed. Every dispatch in device.c asks weiri_device_fault(operation) first. */
uint64_t weiri_device_fail_nth(uint64_t n);
weir_status weiri_device_fault(const char *operation);

extern const weiri_device_ops weiri_cpu_ops;
extern const weiri_device_ops weiri_cuda_ops;

/* Ops with the fault hook, for the nouns. */
weir_status weiri_device_allocate(weir_device *device, weir_memory_kind kind, uint64_t bytes, weiri_block **out);
weir_status weiri_device_allocate_opts(weir_device *device, const weir_memory_opts *opts, uint64_t bytes,
                                       weiri_block **out);
weir_status weiri_device_wrap(weir_device *device, void *pointer, uint64_t bytes, weiri_block **out);
weir_status weiri_device_import(weir_device *device, const weiri_export *peer, bool same_process, int fd,
                                weiri_block **out);
/* Whether the device can access all of the range: it is mapped memory of a peer, or it could be registered. */
weir_status weiri_device_check_access(weir_device *device, void *pointer, uint64_t bytes);
/* Finds the allocation that has the pointer: weir's own, or one for which the device's driver has an id. */
bool weiri_device_identify(const weir_device *device, const void *pointer, weiri_allocation *out);
/* As the ops of these names, whose `outside` is set. */
weir_status weiri_event_record_outside(weir_device *device, void *event, void *stream);
weir_status weiri_stream_wait_event_outside(weir_device *device, void *stream, void *event);
weir_status weiri_stream_recording(weir_device *device, void *stream, uint64_t *id);
/* Whether the stream was made by this device and not destroyed. Other streams cannot be asked whether they exist. */
bool weiri_stream_is_ours(const weir_device *device, const void *stream);
/* *out is NULL if kernels use the CPU's addresses. */
weir_status weiri_device_map_registers(weir_device *device, void *registers, uint64_t bytes, weiri_block **out);
void weiri_block_release(weiri_block *block);
/* In place of release, for memory that a graph may still access: the block is released when the device closes, and so
 * after the last graph. */
void weiri_block_keep(weiri_block *block);

#endif
