/* stream.c - streams, events and graphs of the CPU device.
 *
 * A stream is a queue of operations and a thread that runs them in order, each to its end. While a graph is recorded,
 * operations go to the recording instead. A graph's launch is one operation that runs the recorded ones, one after the
 * other, also those that other streams have added. Operations keep references on their events and graphs, which may be
 * destroyed at any time. An operation is accepted only when its threads are reserved: nothing fails later. */
#include "src/device/cpu/cpu.h"

#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/clock.h"
#include "src/host/base/error.h"

typedef struct cpu_recording cpu_recording;

typedef struct cpu_event {
    weiri_refcount refs;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* passed has grown */
    uint64_t submitted;     /* records put on streams */
    uint64_t passed;        /* records that a stream reached */
    uint64_t time_ns;       /* of the latest record */
    cpu_recording *part_of; /* the recording that has the latest record; NULL if a stream has it */
} cpu_event;

typedef struct cpu_op cpu_op;

typedef struct op_list {
    cpu_op *first;
    cpu_op *last;
    uint32_t threads; /* threads of the largest launch that was ever in the list */
    uint32_t waits;   /* waits for events that were ever in the list */
} op_list;

/* A graph while it is recorded. Its events and the streams that record into it keep references. */
struct cpu_recording {
    weiri_refcount refs;
    uint64_t id;
    const void *origin; /* the stream that began it and ends it */
    bool ended;
    op_list ops;
};

/* Guards all recordings. */
static pthread_mutex_t recordings_mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t recordings_begun;

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
    bool waits;      /* waits for the event; otherwise records it */
    uint64_t target; /* of a wait on a stream: the number of records that must have passed */
    cpu_graph *graph;
    weir_vec16 args[]; /* the kernel's, aligned; for a graph the target of each of its waits */
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
    cpu_recording *recording; /* NULL while operations run */
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
    list->waits += op->waits;
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

static void list_free_recorded(op_list *list);

static void recording_put(cpu_recording *recording)
{
    if (recording != NULL && weiri_refcount_put(&recording->refs)) {
        list_free_recorded(&recording->ops);
        weiri_free(recording);
    }
}

static void event_put(cpu_event *event)
{
    if (event != NULL && weiri_refcount_put(&event->refs)) {
        recording_put(event->part_of);
        (void)pthread_cond_destroy(&event->changed);
        (void)pthread_mutex_destroy(&event->mutex);
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

/* A record or a wait takes its place among the records of its event. */
static void note_submitted(const cpu_op *op, uint64_t *target)
{
    if (op->waits) {
        *target = __atomic_load_n(&op->event->submitted, __ATOMIC_RELAXED);
    } else if (op->event != NULL) {
        (void)__atomic_fetch_add(&op->event->submitted, 1, __ATOMIC_RELAXED);
    }
}

/* Its events are pending from here on, until a stream has reached their records. */
static void note_all_submitted(cpu_op *op)
{
    if (op->graph == NULL) {
        note_submitted(op, &op->target);
        return;
    }
    uint64_t *target = (uint64_t *)op->args;
    for (const cpu_op *inner = op->graph->ops.first; inner != NULL; inner = inner->next) {
        note_submitted(inner, target);
        target += inner->waits;
    }
}

static void event_pass(cpu_event *event)
{
    __atomic_store_n(&event->time_ns, weiri_now_ns(), __ATOMIC_RELAXED);
    (void)pthread_mutex_lock(&event->mutex);
    (void)__atomic_fetch_add(&event->passed, 1, __ATOMIC_RELEASE);
    (void)pthread_cond_broadcast(&event->changed);
    (void)pthread_mutex_unlock(&event->mutex);
}

static void event_await(cpu_event *event, uint64_t target)
{
    (void)pthread_mutex_lock(&event->mutex);
    while (__atomic_load_n(&event->passed, __ATOMIC_ACQUIRE) < target) {
        (void)pthread_cond_wait(&event->changed, &event->mutex);
    }
    (void)pthread_mutex_unlock(&event->mutex);
}

static void op_run_simple(cpu_stream *stream, const cpu_op *op, uint64_t target)
{
    if (op->kernel != NULL) {
        weiri_cpu_crew_run(&stream->crew, op->kernel, op->args, op->shape);
    } else if (op->waits) {
        event_await(op->event, target);
    } else {
        event_pass(op->event);
    }
}

static void op_run(cpu_stream *stream, const cpu_op *op)
{
    if (op->graph == NULL) {
        op_run_simple(stream, op, op->target);
        return;
    }
    const uint64_t *target = (const uint64_t *)op->args;
    for (const cpu_op *inner = op->graph->ops.first; inner != NULL; inner = inner->next) {
        op_run_simple(stream, inner, inner->waits ? *target : 0);
        target += inner->waits;
    }
}

static weir_status check_device(const weir_device *device, const weir_device *owner, const char *what)
{
    if (device != owner) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: the %s belongs to %s", device->info.label, what, owner->info.label);
    }
    return WEIR_OK;
}

/* The stream of a handle. NULL and the two streams that CUDA has in each thread or process are the device's default
 * stream, which is made at its first use. */
static weir_status find_stream(weir_device *device, void *handle, cpu_stream **out)
{
    weiri_cpu_pool *pool = (weiri_cpu_pool *)device->native;
    weir_status status = WEIR_OK;
    if (!weiri_stream_is_default(handle)) {
        *out = (cpu_stream *)handle;
        return check_device(device, (*out)->device, "stream");
    }
    (void)pthread_mutex_lock(&pool->streams_mutex);
    if (pool->default_stream == NULL) {
        status = weiri_cpu_stream_create(device, &pool->default_stream);
    }
    *out = (cpu_stream *)pool->default_stream;
    (void)pthread_mutex_unlock(&pool->streams_mutex);
    return status;
}

/* The recording of the stream, whose mutex the caller holds, or NULL. A stream that joined a recording leaves it when
 * it has ended. */
static cpu_recording *recording_of(cpu_stream *stream)
{
    cpu_recording *recording = stream->recording;
    if (recording == NULL) {
        return NULL;
    }
    (void)pthread_mutex_lock(&recordings_mutex);
    const bool ended = recording->ended;
    (void)pthread_mutex_unlock(&recordings_mutex);
    if (ended) {
        stream->recording = NULL;
        recording_put(recording);
        return NULL;
    }
    return recording;
}

/* Ends the recording and takes its operations. Their events refer to the recording: it would never be freed with
 * them. */
static op_list recording_take(cpu_recording *recording)
{
    (void)pthread_mutex_lock(&recordings_mutex);
    const op_list ops = recording->ops;
    recording->ended = true;
    memset(&recording->ops, 0, sizeof(recording->ops));
    (void)pthread_mutex_unlock(&recordings_mutex);
    return ops;
}

/* The event's latest record is on a stream, or in a recording. */
static void event_place(cpu_event *event, cpu_recording *recording)
{
    (void)pthread_mutex_lock(&recordings_mutex);
    cpu_recording *before = event->part_of;
    event->part_of = recording;
    if (recording != NULL) {
        weiri_refcount_get(&recording->refs);
    }
    (void)pthread_mutex_unlock(&recordings_mutex);
    recording_put(before);
}

static weir_status record(cpu_recording *recording, cpu_op *op, uint32_t threads)
{
    if (op->graph != NULL) {
        return weiri_fail(WEIR_ERR_INVALID, "the stream is recording a graph, which cannot contain another one");
    }
    (void)pthread_mutex_lock(&recordings_mutex);
    list_append(&recording->ops, op, threads);
    (void)pthread_mutex_unlock(&recordings_mutex);
    return WEIR_OK;
}

/* With the stream's mutex. */
static weir_status enqueue(cpu_stream *stream, cpu_op *op, uint32_t threads)
{
    weir_status status = weiri_cpu_crew_reserve(&stream->crew, (weiri_cpu_pool *)stream->device->native, threads);
    if (status == WEIR_OK) {
        note_all_submitted(op);
        list_append(&stream->queue, op, threads);
        stream->submitted++;
        (void)pthread_cond_signal(&stream->queued);
    }
    return status;
}

/* Puts the operation on the stream, or into its recording; frees it on failure. */
static weir_status submit(cpu_stream *stream, cpu_op *op, uint32_t threads)
{
    (void)pthread_mutex_lock(&stream->mutex);
    cpu_recording *recording = recording_of(stream);
    weir_status status = recording != NULL ? record(recording, op, threads) : enqueue(stream, op, threads);
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
    if (stream->recording != NULL && !foreign && stream->recording->origin == stream) {
        op_list recorded = recording_take(stream->recording);
        list_free_recorded(&recorded);
    }
    recording_put(stream->recording);
    while (stream->queue.first != NULL) {
        op_free(list_pop(&stream->queue));
    }
    weiri_free(stream);
}

weir_status weiri_cpu_stream_wait(weir_device *device, void *handle, uint64_t deadline_ns)
{
    cpu_stream *stream = NULL;
    weir_status status = find_stream(device, handle, &stream);
    if (status != WEIR_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&stream->mutex);
    uint64_t target = stream->submitted;
    if (recording_of(stream) != NULL) {
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
    cpu_stream *stream = NULL;
    uint64_t threads = (uint64_t)shape.blocks * shape.threads;
    weir_status status = find_stream(device, handle, &stream);
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
    if (weiri_cond_init(&event->changed) != 0) {
        weiri_free(event);
        return weiri_fail_nomem("event");
    }
    (void)pthread_mutex_init(&event->mutex, NULL);
    weiri_refcount_init(&event->refs);
    *out = event;
    return WEIR_OK;
}

void weiri_cpu_event_destroy(weir_device *device, void *event)
{
    (void)device;
    event_put((cpu_event *)event);
}

/* An operation that records the event, or waits for it. */
static weir_status event_op(cpu_event *event, bool waits, cpu_op **out)
{
    cpu_op *op = op_create(NULL, 0);
    if (op == NULL) {
        return weiri_fail_nomem(waits ? "wait for an event" : "event record");
    }
    op->event = event;
    op->waits = waits;
    weiri_refcount_get(&event->refs);
    *out = op;
    return WEIR_OK;
}

weir_status weiri_cpu_event_record(weir_device *device, void *handle, void *stream_handle, bool outside)
{
    cpu_event *event = (cpu_event *)handle;
    cpu_stream *stream = NULL;
    cpu_op *op = NULL;
    weir_status status = find_stream(device, stream_handle, &stream);
    if (status == WEIR_OK) {
        status = event_op(event, false, &op);
    }
    if (status != WEIR_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&stream->mutex);
    cpu_recording *recording = recording_of(stream);
    status = recording != NULL ? record(recording, op, 0) : enqueue(stream, op, 0);
    if (status == WEIR_OK && !outside) {
        event_place(event, recording);
    }
    (void)pthread_mutex_unlock(&stream->mutex);
    if (status != WEIR_OK) {
        op_free(op);
    }
    return status;
}

/* The recording that has the event's latest record, with a reference, or NULL. */
static cpu_recording *recording_with(const cpu_event *event)
{
    (void)pthread_mutex_lock(&recordings_mutex);
    cpu_recording *recording = event->part_of != NULL && !event->part_of->ended ? event->part_of : NULL;
    if (recording != NULL) {
        weiri_refcount_get(&recording->refs);
    }
    (void)pthread_mutex_unlock(&recordings_mutex);
    return recording;
}

/* The stream records into the same graph as the event's stream from here on. The operations of a recording run one
 * after the other, so that a wait inside it needs no operation. Takes over the reference on `joined`. */
static weir_status join_recording(cpu_stream *stream, cpu_recording *joined)
{
    weir_status status = WEIR_OK;
    (void)pthread_mutex_lock(&stream->mutex);
    const cpu_recording *mine = recording_of(stream);
    if (mine == NULL) {
        stream->recording = joined;
    } else {
        status = mine == joined
                     ? WEIR_OK
                     : weiri_fail(WEIR_ERR_INVALID, "the stream and the event are parts of different graphs");
    }
    (void)pthread_mutex_unlock(&stream->mutex);
    if (mine != NULL) {
        recording_put(joined);
    }
    return status;
}

weir_status weiri_cpu_stream_wait_event(weir_device *device, void *stream_handle, void *handle, bool outside)
{
    cpu_event *event = (cpu_event *)handle;
    cpu_stream *stream = NULL;
    cpu_op *op = NULL;
    weir_status status = find_stream(device, stream_handle, &stream);
    cpu_recording *joined = status == WEIR_OK && !outside ? recording_with(event) : NULL;
    if (joined != NULL) {
        return join_recording(stream, joined);
    }
    if (status == WEIR_OK && !outside) {
        uint64_t id = 0;
        status = weiri_cpu_stream_recording(device, stream_handle, &id);
        if (status == WEIR_OK && id != 0) {
            status = weiri_fail(WEIR_ERR_INVALID, "the stream is recording a graph, and the event is not a part of it");
        }
    }
    if (status == WEIR_OK) {
        status = event_op(event, true, &op);
    }
    return status == WEIR_OK ? submit(stream, op, 0) : status;
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
    cpu_stream *stream = NULL;
    weir_status status = find_stream(device, handle, &stream);
    cpu_recording *made = status == WEIR_OK ? (cpu_recording *)weiri_alloc(1, sizeof(*made)) : NULL;
    if (made == NULL) {
        return status == WEIR_OK ? weiri_fail_nomem("graph") : status;
    }
    weiri_refcount_init(&made->refs);
    made->origin = stream;
    made->id = __atomic_add_fetch(&recordings_begun, 1, __ATOMIC_RELAXED);
    (void)pthread_mutex_lock(&stream->mutex);
    if (recording_of(stream) != NULL) {
        status = weiri_fail(WEIR_ERR_INVALID, "the stream is already recording a graph");
    } else {
        stream->recording = made;
    }
    (void)pthread_mutex_unlock(&stream->mutex);
    if (status != WEIR_OK) {
        recording_put(made);
    }
    return status;
}

weir_status weiri_cpu_stream_recording(weir_device *device, void *handle, uint64_t *id)
{
    cpu_stream *stream = NULL;
    weir_status status = find_stream(device, handle, &stream);
    if (status == WEIR_OK) {
        (void)pthread_mutex_lock(&stream->mutex);
        const cpu_recording *recording = recording_of(stream);
        *id = recording != NULL ? recording->id : 0;
        (void)pthread_mutex_unlock(&stream->mutex);
    }
    return status;
}

/* Ends the stream's recording, with the stream's mutex. The graph gets the operations. */
static weir_status end_recording(cpu_stream *stream, cpu_graph *graph)
{
    cpu_recording *recording = recording_of(stream);
    if (recording == NULL || recording->origin != stream) {
        return weiri_fail(WEIR_ERR_INVALID, "the stream %s",
                          recording == NULL ? "is not recording a graph" : "did not begin the graph that it records");
    }
    op_list ops = recording_take(recording);
    stream->recording = NULL;
    recording_put(recording);
    if (graph == NULL) {
        list_free_recorded(&ops);
        return weiri_fail_nomem("graph");
    }
    weiri_refcount_init(&graph->refs);
    graph->ops = ops;
    return WEIR_OK;
}

weir_status weiri_cpu_graph_end(weir_device *device, void *handle, void **out)
{
    cpu_stream *stream = NULL;
    weir_status status = find_stream(device, handle, &stream);
    if (status != WEIR_OK) {
        return status;
    }
    cpu_graph *graph = (cpu_graph *)weiri_alloc(1, sizeof(*graph));
    (void)pthread_mutex_lock(&stream->mutex);
    status = end_recording(stream, graph);
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
    cpu_graph *graph = (cpu_graph *)handle;
    cpu_stream *stream = NULL;
    weir_status status = find_stream(device, stream_handle, &stream);
    if (status != WEIR_OK) {
        return status;
    }
    cpu_op *op = (cpu_op *)weiri_alloc(1, sizeof(*op) + graph->ops.waits * sizeof(uint64_t));
    if (op == NULL) {
        return weiri_fail_nomem("graph launch");
    }
    op->graph = graph;
    weiri_refcount_get(&graph->refs);
    return submit(stream, op, graph->ops.threads);
}

void weiri_cpu_graph_destroy(weir_device *device, void *graph)
{
    (void)device;
    graph_put((cpu_graph *)graph);
}
