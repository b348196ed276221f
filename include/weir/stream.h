/* weir/stream.h - launch kernels in order, time them, and replay them as graphs, on any device.
 *
 *     weir_stream_create(device, &stream);
 *     weir_launch(device, &kernel, shape, &args, NULL, stream);
 *     weir_stream_wait(device, stream, 0);
 *
 * A stream, event or graph is the device's own object as a void pointer: on a GPU a CUstream, CUevent and
 * CUgraphExec, so that streams of the CUDA runtime can be used as they are. NULL, cudaStreamLegacy and
 * cudaStreamPerThread are streams too, with their meaning in CUDA; on the CPU all three are the device's default
 * stream. Two ranks of one process that share a device share its default stream, so that a kernel of one waits behind a
 * kernel of the other. Users of the CUDA runtime may equally launch their kernels themselves.
 *
 * Threads:   all calls may be made by several threads at once; work is ordered within a stream.
 * Blocking:  weir_stream_wait, and the destroy calls until the work has ended.
 * Ownership: the caller destroys what it created. Kernel arguments are copied at the call.
 * Errors:    WEIR_ERR_INVALID, WEIR_ERR_LIMIT (more threads or multiprocessors than the device has; a cooperative
 *            launch that cannot be resident as a whole), WEIR_ERR_VERSION (kernel compiled with other headers),
 *            WEIR_ERR_UNSUPPORTED (kernel not compiled for this device; a driver without streams of few
 *            multiprocessors), WEIR_ERR_TIMEOUT, WEIR_ERR_DEVICE. */
#ifndef WEIR_STREAM_H
#define WEIR_STREAM_H

#include "weir/device.h"

WEIR_BEGIN_DECLS

struct weir_kernel; /* weir/device/kernel.h */

typedef struct weir_launch_opts {
    size_t size;
    /* The blocks wait for each other, for example at a grid barrier: all must be resident, or the launch is refused
     * (weir_kernel_fit says how many blocks fit). Kernels that do without are launched plainly, which is faster (0.2 to
     * 0.8 us a kernel in replayed graphs, on H200). */
    bool cooperative;
} weir_launch_opts;

WEIR_API WEIR_NODISCARD weir_status weir_stream_create(weir_device *device, void **out);
/* Destroys either kind of stream. */
WEIR_API void weir_stream_destroy(weir_device *device, void *stream);

typedef struct weir_stream_limits {
    size_t size;
    uint32_t multiprocessors; /* 1 to the number of the device; a GPU rounds up to whole groups: 15 of 8 and one of 12
                                 on H200 */
    int32_t priority;         /* a lower number goes first; a GPU clamps it to its range; default: 0, the lowest */
} weir_stream_limits;

/* A stream whose kernels leave the other multiprocessors free. Every call takes it. Limited streams get different
 * multiprocessors while the device has unused ones, then they share. Kernels of ordinary streams run on all
 * multiprocessors. To keep two kernels apart, limit both: one to 8, for example, and the other to the remaining 124.
 * Blocks that wait for each other must fit on the multiprocessors of the stream: a cooperative launch checks that, and
 * opts.blocks of a collective limits its own. On the CPU it is an ordinary stream. WEIR_ERR_LIMIT: the GPU has fewer
 * multiprocessors. WEIR_ERR_UNSUPPORTED: the driver has no green contexts (CUDA 12.5 and later), or libweir was built
 * without them. */
WEIR_API WEIR_NODISCARD weir_status weir_stream_create_limited(weir_device *device, const weir_stream_limits *limits,
                                                               void **out);
/* How many multiprocessors the stream's kernels may use: those of the device, or after rounding those of the limit. */
WEIR_API uint32_t weir_stream_multiprocessors(weir_device *device, void *stream);

/* Waits until everything that was put on the stream is done. timeout_ms: 0 is the second number of WEIR_TIMEOUT_MS, ten
 * minutes without it, and two seconds more, so that a kernel whose wait passes its deadline ends first. WEIR_OK says
 * that the work has ended, not that it went well: weir_comm_wait (weir/comm.h) asks the communicator, too. */
WEIR_API WEIR_NODISCARD weir_status weir_stream_wait(weir_device *device, void *stream, uint32_t timeout_ms);

/* Makes the kernel ready, so that its first launch does not load code while another kernel spins. */
WEIR_API WEIR_NODISCARD weir_status weir_kernel_load(weir_device *device, const struct weir_kernel *kernel);

/* How many blocks of `threads` threads the kernel can have resident at once on an otherwise idle device: weir_launch
 * accepts a cooperative launch of up to *blocks blocks. Blocks that wait for each other must all be resident. On the
 * CPU all threads of a launch run at the same time, so *blocks is the limit of any launch. Loads the kernel.
 * WEIR_ERR_LIMIT: the kernel cannot have blocks of that many threads. */
WEIR_API WEIR_NODISCARD weir_status weir_kernel_fit(weir_device *device, const struct weir_kernel *kernel,
                                                    uint32_t threads, uint32_t *blocks);

/* Runs `kernel` on the shape's blocks and threads with a copy of *args, which is of the kernel's args_type. */
WEIR_API WEIR_NODISCARD weir_status weir_launch(weir_device *device, const struct weir_kernel *kernel, weir_shape shape,
                                                const void *args, const weir_launch_opts *opts, void *stream);

WEIR_API WEIR_NODISCARD weir_status weir_event_create(weir_device *device, void **out);
WEIR_API void weir_event_destroy(weir_device *device, void *event);
WEIR_API WEIR_NODISCARD weir_status weir_event_record(weir_device *device, void *event, void *stream);
/* Later work on the stream waits until the event's latest record before this call has passed; the host does not wait.
 * An event that was never recorded has passed. If the event was recorded on a stream that records a graph, the waiting
 * stream records into the same graph, until weir_graph_end of the stream that began it. A stream that records a graph
 * waits for events of that graph only. */
WEIR_API WEIR_NODISCARD weir_status weir_stream_wait_event(weir_device *device, void *stream, void *event);
/* Milliseconds between two recorded events that have passed; WEIR_PENDING before that. */
WEIR_API WEIR_NODISCARD weir_status weir_event_elapsed(weir_device *device, void *from, void *to, double *ms);

/* Between begin and end, launches on the stream are recorded into a graph instead of being run. WEIR_ERR_INVALID for
 * NULL and cudaStreamLegacy, on which CUDA does not record. On the CPU the operations of a graph run one after the
 * other, in the order of the calls. */
WEIR_API WEIR_NODISCARD weir_status weir_graph_begin(weir_device *device, void *stream);
WEIR_API WEIR_NODISCARD weir_status weir_graph_end(weir_device *device, void *stream, void **out);
WEIR_API WEIR_NODISCARD weir_status weir_graph_launch(weir_device *device, void *graph, void *stream);
WEIR_API void weir_graph_destroy(weir_device *device, void *graph);

WEIR_END_DECLS

#endif
