/* stream.c - streams, events and graphs of the CPU device.
 *
 * A stream is a queue of operations and a thread that runs them in order, each to its end. While a graph is recorded,
 * operations go to the recording instead. A graph's launch is one operation that runs the recorded ones. Operations
 * keep references on their events and graphs, which may be destroyed at any time. An operation is accepted only when
 * its threads are reserved: nothing fails later. */
#include "src/device/cpu/cpu.h"

#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/clock.h"
#include "src/host/base/error.h"

typedef struct cpu_event {
    weiri_refcount refs;
    uint64_t submitted; /* records put on streams */
    uint64_t passed;    /* records that a stream reached */
    uint64_t time_ns;   /* of the latest record */
} cpu_event;

typedef struct cpu_op cpu_op;

typedef struct op_list {
    cpu_op *first;
    cpu_op *last;
    uint32_t threads; /* threads of the largest launch that was ever in the list */
} op_list;

typedef struct cpu_graph {
    weiri_refcount refs;
    op_list ops;
} cpu_graph;

/* Exactly one of kernel, event and graph is set. */
struct cpu_op {
    cpu_op *next;
    weiri_cpu_kernel kernel;
    weir_shape shape;
    cpu_event *event;
    cpu_graph *graph;
    weir_vec16 args[]; /* the kernel's, aligned */
};

typedef struct cpu_stream {
    weir_device *device;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t queued; /* for the stream's thread: an operation is queued, or quit is set */
    pthread_cond_t ended;  /* for waiting callers: an operation has ended */
    op_list queue;
    uint64_t submitted; /* operations ever put on the stream */
    uint64_t completed;
    bool quit;
    bool recording;
    op_list recorded;
    weiri_cpu_crew crew;
} cpu_stream;

/* ---- operations ----------------------------------------------------------------------------------------- */

static void list_append(op_list *list, cpu_op *op, uint32_t threads)
{
    if (list->last != NULL) {
        list->last->next = op;
    } else {
        list->first = op;
    }
    list->last = op;
    list->threads = list->threads > threads ? list->threads : threads;
}

static cpu_op *list_pop(op_list *list)
{
    cpu_op *op = list->first;
    list->first = op->next;
    if (list->first == NULL) {
        list->last = NULL;
    }
    op->next = NULL;
    return op;
}

static void event_put(cpu_event *event)
{
    if (event != NULL && weiri_refcount_put(&event->refs)) {
        weiri_free(event);
    }
}

/* Frees the operations of a list that hold no graph. */
static void list_free_recorded(op_list *list)
{
    while (list->first != NULL) {
        cpu_op *op = list_pop(list);
        event_put(op->event);
        weiri_free(op);
    }
}

static void graph_put(cpu_graph *graph)
{
    if (graph != NULL && weiri_refcount_put(&graph->refs)) {
        list_free_recorded(&graph->ops);
        weiri_free(graph);
    }
}

static void op_free(cpu_op *op)
{
    event_put(op->event);
    graph_put(op->graph);
    weiri_free(op);
}

static cpu_op *op_create(const void *args, uint32_t args_bytes)
{
    cpu_op *op = (cpu_op *)weiri_alloc(1, sizeof(*op) + args_bytes);
    if (op != NULL && args_bytes != 0) {
        memcpy(op->args, args, args_bytes);
    }
    return op;
}

/* The event is pending from here on, until a stream has reached the record. */
static void note_submitted(const cpu_op *op)
{
    if (op->event != NULL) {
        (void)__atomic_fetch_add(&op->event->submitted, 1, __ATOMIC_RELAXED);
    } else if (op->graph != NULL) {
        for (const cpu_op *inner = op->graph->ops.first; inner != NULL; inner = inner->next) {
            note_submitted(inner);
        }
    }
}

static void op_run(cpu_stream *stream, const cpu_op *op)
{
    if (op->kernel != NULL) {
        weiri_cpu_crew_run(&stream->crew, op->kernel, op->args, op->shape);
    } else if (op->event != NULL) {
        __atomic_store_n(&op->event->time_ns, weiri_now_ns(), __ATOMIC_RELAXED);
        (void)__atomic_fetch_add(&op->event->passed, 1, __ATOMIC_RELEASE);
    } else {
        for (const cpu_op *inner = op->graph->ops.first; inner != NULL; inner = inner->next) {
            op_run(stream, inner);
        }
    }
}

static weir_status check_device(const weir_device *device, const weir_device *owner, const char *what)
{
    if (device != owner) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: the %s belongs to %s", device->info.label, what, owner->info.label);
    }
    return WEIR_OK;
}

/* Puts the operation on the stream, or into its recording; frees it on failure. */
static weir_status submit(cpu_stream *stream, cpu_op *op, uint32_t threads)
{
    weir_status status = WEIR_OK;
    (void)pthread_mutex_lock(&stream->mutex);
    if (stream->recording && op->graph != NULL) {
        status = weiri_fail(WEIR_ERR_INVALID, "the stream is recording a graph, which cannot contain another one");
    } else if (stream->recording) {
        list_append(&stream->recorded, op, threads);
    } else {
        status = weiri_cpu_crew_reserve(&stream->crew, (weiri_cpu_pool *)stream->device->native, threads);
        if (status == WEIR_OK) {
            note_submitted(op);
            list_append(&stream->queue, op, threads);
            stream->submitted++;
            (void)pthread_cond_signal(&stream->queued);
        }
    }
    (void)pthread_mutex_unlock(&stream->mutex);
    if (status != WEIR_OK) {
        op_free(op);
    }
    return status;
}

/* ---- streams -------------------------------------------------------------------------------------------- */

static void *dispatch(void *context)
{
    cpu_stream *stream = (cpu_stream *)context;
    (void)pthread_mutex_lock(&stream->mutex);
    for (;;) {
        while (stream->queue.first == NULL && !stream->quit) {
            (void)pthread_cond_wait(&stream->queued, &stream->mutex);
        }
        if (stream->queue.first == NULL) {
            break;
        }
        cpu_op *op = list_pop(&stream->queue);
        (void)pthread_mutex_unlock(&stream->mutex);
        op_run(stream, op);
        op_free(op);
        (void)pthread_mutex_lock(&stream->mutex);
        stream->completed++;
        (void)pthread_cond_broadcast(&stream->ended);
    }
    (void)pthread_mutex_unlock(&stream->mutex);
    return NULL;
}

weir_status weiri_cpu_stream_create(weir_device *device, void **out)
{
    cpu_stream *stream = (cpu_stream *)weiri_alloc(1, sizeof(*stream));
    if (stream == NULL) {
        return weiri_fail_nomem("stream");
    }
    stream->device = device;
    weir_status status = weiri_cpu_crew_init(&stream->crew);
    if (status != WEIR_OK) {
        goto free_stream;
    }
    int error = pthread_mutex_init(&stream->mutex, NULL);
    if (error != 0) {
        goto deinit_crew;
    }
    error = weiri_cond_init(&stream->queued);
    if (error != 0) {
        goto destroy_mutex;
    }
    error = weiri_cond_init(&stream->ended);
    if (error != 0) {
        goto destroy_queued;
    }
    error = weiri_thread_create(&stream->thread, "weir-stream", dispatch, stream);
    if (error != 0) {
        goto destroy_ended;
    }
    *out = stream;
    return WEIR_OK;
destroy_ended:
    (void)pthread_cond_destroy(&stream->ended);
destroy_queued:
    (void)pthread_cond_destroy(&stream->queued);
destroy_mutex:
    (void)pthread_mutex_destroy(&stream->mutex);
deinit_crew:
    weiri_cpu_crew_deinit(&stream->crew, (weiri_cpu_pool *)device->native, false);
    status = weiri_fail_errno(error, "stream: create its thread");
free_stream:
    weiri_free(stream);
    return status;
}

void weiri_cpu_stream_destroy(weir_device *device, void *handle)
{
    cpu_stream *stream = (cpu_stream *)handle;
    bool foreign = weiri_cpu_is_foreign(device);
    if (!foreign) {
        (void)pthread_mutex_lock(&stream->mutex);
        stream->quit = true;
        (void)pthread_cond_signal(&stream->queued);
        (void)pthread_mutex_unlock(&stream->mutex);
        (void)pthread_join(stream->thread, NULL);
        (void)pthread_cond_destroy(&stream->ended);
        (void)pthread_cond_destroy(&stream->queued);
        (void)pthread_mutex_destroy(&stream->mutex);
    }
    weiri_cpu_crew_deinit(&stream->crew, (weiri_cpu_pool *)device->native, foreign);
    list_free_recorded(&stream->recorded);
    while (stream->queue.first != NULL) {
        op_free(list_pop(&stream->queue));
    }
    weiri_free(stream);
}

weir_status weiri_cpu_stream_wait(weir_device *device, void *handle, uint64_t deadline_ns)
{
    cpu_stream *stream = (cpu_stream *)handle;
    weir_status status = check_device(device, stream->device, "stream");
    if (status != WEIR_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&stream->mutex);
    uint64_t target = stream->submitted;
    if (stream->recording) {
        status = weiri_fail(WEIR_ERR_INVALID, "the stream is recording a graph");
    }
    while (status == WEIR_OK && stream->completed < target) {
        if (!weiri_cond_wait(&stream->ended, &stream->mutex, deadline_ns) && stream->completed < target) {
            status = weiri_fail(WEIR_ERR_TIMEOUT, "the deadline passed before the last %llu operations ended",
                                (unsigned long long)(target - stream->completed));
        }
    }
    (void)pthread_mutex_unlock(&stream->mutex);
    return status;
}

weir_status weiri_cpu_launch(weir_device *device, const weir_kernel *kernel, weir_shape shape, const void *args,
                             bool cooperative, void *handle)
{
    (void)cooperative; /* all threads of a launch always run */
    cpu_stream *stream = (cpu_stream *)handle;
    uint64_t threads = (uint64_t)shape.blocks * shape.threads;
    weir_status status = check_device(device, stream->device, "stream");
    if (status != WEIR_OK) {
        return status;
    }
    if (kernel->cpu == NULL) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "%s: kernel %s: not compiled for the CPU", device->info.label,
                          kernel->name);
    }
    if (shape.blocks > weiri_cpu_resident_blocks(device, shape.threads)) {
        return weiri_fail(WEIR_ERR_LIMIT,
                          "%s: kernel %s: %u blocks of %u threads, the limit is %u threads in all; set "
                          "WEIR_CPU_THREADS (at most 1024) or ask weir_device_fit_shape",
                          device->info.label, kernel->name, shape.blocks, shape.threads, device->cpu_threads);
    }
    cpu_op *op = op_create(args, kernel->args_bytes);
    if (op == NULL) {
        return weiri_fail_nomem("launch");
    }
    op->kernel = kernel->cpu;
    op->shape = shape;
    return submit(stream, op, (uint32_t)threads);
}

/* ---- events --------------------------------------------------------------------------------------------- */

weir_status weiri_cpu_event_create(weir_device *device, void **out)
{
    (void)device;
    cpu_event *event = (cpu_event *)weiri_alloc(1, sizeof(*event));
    if (event == NULL) {
        return weiri_fail_nomem("event");
    }
    weiri_refcount_init(&event->refs);
    *out = event;
    return WEIR_OK;
}

void weiri_cpu_event_destroy(weir_device *device, void *event)
{
    (void)device;
    event_put((cpu_event *)event);
}

weir_status weiri_cpu_event_record(weir_device *device, void *handle, void *stream_handle)
{
    cpu_stream *stream = (cpu_stream *)stream_handle;
    weir_status status = check_device(device, stream->device, "stream");
    if (status != WEIR_OK) {
        return status;
    }
    cpu_op *op = op_create(NULL, 0);
    if (op == NULL) {
        return weiri_fail_nomem("event record");
    }
    op->event = (cpu_event *)handle;
    weiri_refcount_get(&op->event->refs);
    return submit(stream, op, 0);
}

/* The time of the latest record. */
static weir_status event_time(const cpu_event *event, uint64_t *time_ns)
{
    uint64_t passed = __atomic_load_n(&event->passed, __ATOMIC_ACQUIRE);
    uint64_t submitted = __atomic_load_n(&event->submitted, __ATOMIC_RELAXED);
    if (submitted == 0) {
        return weiri_fail(WEIR_ERR_INVALID, "an event was never recorded");
    }
    *time_ns = __atomic_load_n(&event->time_ns, __ATOMIC_RELAXED);
    return passed < submitted ? WEIR_PENDING : WEIR_OK;
}

weir_status weiri_cpu_event_elapsed(weir_device *device, void *from, void *to, double *ms)
{
    (void)device;
    uint64_t begin_ns = 0;
    uint64_t end_ns = 0;
    weir_status begin = event_time((const cpu_event *)from, &begin_ns);
    weir_status end = event_time((const cpu_event *)to, &end_ns);
    if (begin != WEIR_OK || end != WEIR_OK) {
        return begin < 0 || end == WEIR_OK ? begin : end;
    }
    *ms = (double)(int64_t)(end_ns - begin_ns) / 1e6;
    return WEIR_OK;
}

/* ---- graphs --------------------------------------------------------------------------------------------- */

weir_status weiri_cpu_graph_begin(weir_device *device, void *handle)
{
    cpu_stream *stream = (cpu_stream *)handle;
    weir_status status = check_device(device, stream->device, "stream");
    if (status != WEIR_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&stream->mutex);
    if (stream->recording) {
        status = weiri_fail(WEIR_ERR_INVALID, "the stream is already recording a graph");
    }
    stream->recording = true;
    (void)pthread_mutex_unlock(&stream->mutex);
    return status;
}

weir_status weiri_cpu_graph_end(weir_device *device, void *handle, void **out)
{
    cpu_stream *stream = (cpu_stream *)handle;
    weir_status status = check_device(device, stream->device, "stream");
    if (status != WEIR_OK) {
        return status;
    }
    cpu_graph *graph = (cpu_graph *)weiri_alloc(1, sizeof(*graph));
    (void)pthread_mutex_lock(&stream->mutex);
    if (!stream->recording) {
        status = weiri_fail(WEIR_ERR_INVALID, "the stream is not recording a graph");
    } else if (graph == NULL) {
        status = weiri_fail_nomem("graph");
        list_free_recorded(&stream->recorded);
    } else {
        weiri_refcount_init(&graph->refs);
        graph->ops = stream->recorded;
    }
    if (status != WEIR_ERR_INVALID) {
        memset(&stream->recorded, 0, sizeof(stream->recorded));
        stream->recording = false;
    }
    (void)pthread_mutex_unlock(&stream->mutex);
    if (status != WEIR_OK) {
        weiri_free(graph);
        return status;
    }
    *out = graph;
    return WEIR_OK;
}

weir_status weiri_cpu_graph_launch(weir_device *device, void *handle, void *stream_handle)
{
    cpu_stream *stream = (cpu_stream *)stream_handle;
    weir_status status = check_device(device, stream->device, "stream");
    if (status != WEIR_OK) {
        return status;
    }
    cpu_op *op = op_create(NULL, 0);
    if (op == NULL) {
        return weiri_fail_nomem("graph launch");
    }
    op->graph = (cpu_graph *)handle;
    weiri_refcount_get(&op->graph->refs);
    return submit(stream, op, op->graph->ops.threads);
}

void weiri_cpu_graph_destroy(weir_device *device, void *graph)
{
    (void)device;
    graph_put((cpu_graph *)graph);
}
