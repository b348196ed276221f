/* cpu.h - the parts of the CPU device that its files share.
 *
 *   cpu.c         ops table, open and close, limits
 *   cpu/memory.c  memory: memfd allocations, registered and imported memory
 *   cpu/stream.c  streams, events and graphs: the order of operations
 *   cpu/copy.c    copies and stores in the order of a stream
 *   cpu/launch.c  worker threads, launches, and the functions that kernels call */
#ifndef WEIRI_DEVICE_CPU_CPU_H
#define WEIRI_DEVICE_CPU_CPU_H

#include <pthread.h>

#include "src/device/device.h"

/* Whether the calling process is a child of the process that opened the device: the device's threads do not exist
 * there, and its locks may be held forever. */
bool weiri_cpu_is_foreign(const weir_device *device);

/* ---- cpu/memory.c: the ops of these names --------------------------------------------------------------- */

weir_status weiri_cpu_allocate(weir_device *device, const weir_memory_opts *opts, uint64_t bytes, weiri_block **out);
weir_status weiri_cpu_wrap(weir_device *device, void *pointer, uint64_t bytes, weiri_block **out);
weir_status weiri_cpu_import(weir_device *device, const weiri_export *peer, bool same_process, int fd,
                             weiri_block **out);
void weiri_cpu_release(weiri_block *block);
bool weiri_cpu_locate(const void *pointer, weir_device_place *out);

/* ---- cpu/stream.c: the ops of these names --------------------------------------------------------------- */

weir_status weiri_cpu_stream_create(weir_device *device, void **out);
void weiri_cpu_stream_destroy(weir_device *device, void *stream);
weir_status weiri_cpu_stream_wait(weir_device *device, void *stream, uint64_t deadline_ns);
weir_status weiri_cpu_event_create(weir_device *device, void **out);
void weiri_cpu_event_destroy(weir_device *device, void *event);
weir_status weiri_cpu_event_record(weir_device *device, void *event, void *stream, bool outside);
weir_status weiri_cpu_stream_wait_event(weir_device *device, void *stream, void *event, bool outside);
weir_status weiri_cpu_stream_recording(weir_device *device, void *stream, uint64_t *id);
weir_status weiri_cpu_event_elapsed(weir_device *device, void *from, void *to, double *ms);
weir_status weiri_cpu_graph_begin(weir_device *device, void *stream);
weir_status weiri_cpu_graph_end(weir_device *device, void *stream, void **out);
weir_status weiri_cpu_graph_launch(weir_device *device, void *graph, void *stream);
void weiri_cpu_graph_destroy(weir_device *device, void *graph);
weir_status weiri_cpu_launch(weir_device *device, const weir_kernel *kernel, weir_shape shape, const void *args,
                             bool cooperative, void *stream);

/* ---- cpu/copy.c: the ops of these names ----------------------------------------------------------------- */

weir_status weiri_cpu_copy_async(weir_device *device, void *stream, void *dst, const void *src, uint64_t bytes);
weir_status weiri_cpu_store_async(weir_device *device, void *stream, void *dst, uint64_t value);

/* How many blocks of `threads` threads, at least 1, a launch may have: all of its threads run at the same time. */
static inline uint32_t weiri_cpu_resident_blocks(const weir_device *device, uint32_t threads)
{
    return device->cpu_threads / threads;
}

/* ---- cpu/launch.c --------------------------------------------------------------------------------------- */

typedef void (*weiri_cpu_kernel)(const void *args, weir_coop coop);

typedef struct weiri_cpu_worker weiri_cpu_worker;

/* The device's idle workers, and its default stream. */
typedef struct weiri_cpu_pool {
    pthread_mutex_t mutex;
    weiri_cpu_worker *idle;
    pthread_mutex_t streams_mutex;
    void *default_stream; /* NULL before its first use */
} weiri_cpu_pool;

/* The workers of a stream. Launches of different streams never wait for each other's threads. */
typedef struct weiri_cpu_crew {
    pthread_mutex_t mutex;
    pthread_cond_t done; /* running became 0 */
    weiri_cpu_worker *workers;
    uint32_t size;
    uint32_t running; /* workers that still run the launch */
} weiri_cpu_crew;

weir_status weiri_cpu_pool_create(weiri_cpu_pool **out);
/* Ends all workers; no crew may hold one. With `foreign` (see above) only frees. */
void weiri_cpu_pool_destroy(weiri_cpu_pool *pool, bool foreign);

weir_status weiri_cpu_crew_init(weiri_cpu_crew *crew);
/* Returns the workers to the pool; none may be running. */
void weiri_cpu_crew_deinit(weiri_cpu_crew *crew, weiri_cpu_pool *pool, bool foreign);
/* Takes or starts workers until the crew has `size` of them. WEIR_ERR_SYSTEM, WEIR_ERR_NOMEM. */
weir_status weiri_cpu_crew_reserve(weiri_cpu_crew *crew, weiri_cpu_pool *pool, uint32_t size);
/* Runs a kernel and returns when all its threads have ended. One launch at a time. The crew must have enough
 * workers. */
void weiri_cpu_crew_run(weiri_cpu_crew *crew, weiri_cpu_kernel kernel, const void *args, weir_shape shape);

#endif
