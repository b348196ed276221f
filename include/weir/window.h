/* weir/window.h - notified windows: ranks inside kernels that put data into each other's memory and notify each other.
 *
 *     weir_window_create(comm, NULL, &window);                        on all devices
 *     weir_window_register(window, memory, stride, bytes, &id);       on all devices, once for each memory
 *     weir_window_device(window, &args.window);                       a plain struct for kernels
 *     ...                                                             weir/device/window.h
 *     weir_window_destroy(window);
 *
 * Here a device is a rank of the communicator, and a rank is a rank of the window: a group of threads of a kernel. Each
 * device has the same number of ranks. Numbers count from 0 across all devices: device i of the group has the ranks
 * from i * opts.ranks on. docs/windows.md explains what a wait promises, how many notifications fit, and which kernels
 * must be resident.
 *
 * A device reaches the ranks of another one in one of three ways, found at creation: "own" (the same device), "mapped"
 * (kernels store into the other device's memory), or "port" (a port channel carries requests out).
 *
 * Threads:   one thread at a time for each window; distinct windows are independent.
 * Blocking:  create, register: until all devices of the group have called it, with the communicator's timeout.
 * Ownership: keeps references on comm and on registered memories. Destroy a window when no kernel of any device uses it
 *            any more, and all that its kernels have sent has arrived: over port channels, kernels end with a flush of
 *            all targets. Kernels must not use a handle after that.
 * Errors:    WEIR_ERR_INVALID, WEIR_ERR_LIMIT, WEIR_ERR_RANGE, WEIR_ERR_MISMATCH (another device gave other values),
 *            WEIR_ERR_UNSUPPORTED (a device that cannot be reached, with the reason), WEIR_ERR_NOMEM, WEIR_ERR_DEVICE,
 *            WEIR_ERR_TIMEOUT, the communicator's error. */
#ifndef WEIR_WINDOW_H
#define WEIR_WINDOW_H

#include "weir/bootstrap.h"
#include "weir/device/types.h"
#include "weir/memory.h"

WEIR_BEGIN_DECLS

typedef struct weir_window weir_window;

typedef struct weir_window_opts {
    size_t size;
    const weir_group *group; /* of the communicator's ranks, with this one; NULL: all. At most 64 */
    uint32_t ranks;          /* of each device, the same on all; default: a GPU's number of multiprocessors, 2 on the
                                CPU */
    uint32_t notifications;  /* from one device to one rank, not taken yet, that always fit; default 128, at most 2^20,
                                the same on all devices; rounded up to a power of two */
    weir_memory_kind kind;   /* of the memory of notifications, the same on all devices; WEIR_MEMORY_HOST if the NIC
                                cannot reach memory of the device */
    uint32_t host_ranks;     /* to test on one host: divides the devices, which must map each other's memory, into
                                hosts of this many with port channels between them; 0: mapped devices are one host */
    const char *transport;   /* of the port channels, as weir_connection_opts.transport */
} weir_window_opts;

typedef struct weir_window_info {
    const char *way;       /* "own", "mapped" or "port" */
    const char *transport; /* of the connection to the device, for example "ipc"; "" for the own device */
    const char *engine;    /* of a port channel, as weir_port_channel_info.engine; "" otherwise */
    char reason[320];      /* why the device is not mapped, or why its port channel has this engine; may be "" */
} weir_window_info;

/* All devices of the group call it, and create their windows in the same order. An error of one device becomes the
 * error of all at once, and the text names that device. Some errors stay with the device that makes them, and the
 * others wait for it until their timeout: comm is NULL or has failed, opts.size is 0, or the group is empty, unsorted,
 * too large, or without this rank.
 *
 * WEIR_ERR_LIMIT: the group has more than 64 ranks, or the window needs more memory than the device has; the text has
 * the bytes. WEIR_ERR_MISMATCH: devices differ in ranks, notifications, kind or host_ranks. */
WEIR_API WEIR_NODISCARD weir_status weir_window_create(weir_comm *comm, const weir_window_opts *opts,
                                                       weir_window **out);
WEIR_API void weir_window_destroy(weir_window *window);

/* Adds a memory of this device, for which the kernels of all devices use the same id; ids count from 0. Bytes
 * [i * stride, i * stride + bytes) of each device's memory are the part of its rank i. Parts may overlap; with stride 0
 * each rank has the same part. All devices of the group call it in the same order, with memories of the same size and
 * the same parts; an error of one device becomes the error of all. Kernels may use older handles meanwhile. These do
 * not know the new id.
 *
 * WEIR_ERR_LIMIT: 64 memories are registered. WEIR_ERR_RANGE: a part exceeds the memory. WEIR_ERR_INVALID: bytes is 0,
 * id is NULL, or the memory belongs to another rank or communicator. */
WEIR_API WEIR_NODISCARD weir_status weir_window_register(weir_window *window, weir_memory *memory, uint64_t stride,
                                                         uint64_t bytes, uint32_t *id);

/* The handle for kernels, with the memories that are registered so far. */
WEIR_API void weir_window_device(const weir_window *window, weir_dev_window *out);
/* How this device reaches the ranks of `device`, a rank of the communicator. WEIR_ERR_INVALID if the group does not
 * have it. */
WEIR_API WEIR_NODISCARD weir_status weir_window_get_info(weir_window *window, uint32_t device, weir_window_info *info);

/* The number of ranks of all devices. */
WEIR_API uint32_t weir_window_ranks(const weir_window *window);
/* The number of this device's first rank. */
WEIR_API uint32_t weir_window_first(const weir_window *window);
/* The bytes of memory that the window has allocated on this device. */
WEIR_API uint64_t weir_window_bytes(const weir_window *window);

WEIR_END_DECLS

#endif
