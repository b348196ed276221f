/* order.c - opts.order_streams: the kernels of a collective run one after the other, whatever streams they are on.
 *
 * Each kernel is followed by a record of the event `last` on its stream, and a kernel on another stream waits for it
 * first. In a graph both are operations outside of the graph: each launch of the graph waits for what the collective
 * did before, and later kernels wait for the launch. Inside a recording two streams are ordered by the event `inner`,
 * as in any graph. It is recorded behind each kernel, because the handle of the stream may mean another one by then:
 * cudaStreamPerThread is a stream of each thread. */
#include <pthread.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/collective/collective.h"

struct weiri_order {
    void *last;
    void *inner;
    void *stream;       /* of the latest kernel, */
    pthread_t thread;   /* and the thread that launched it */
    uint64_t recording; /* the graph that it is in, or 0 */
    bool used;          /* there was a kernel */
    bool recorded;      /* there was a kernel in a graph, which may be launched on any stream */
};

weir_status weiri_order_open(weir_collective *collective)
{
    weir_device *device = collective->comm->device;
    weiri_order *order = (weiri_order *)weiri_alloc(1, sizeof *order);
    if (order == NULL) {
        return weiri_fail_nomem("weir_collective_create");
    }
    collective->order = order;
    weir_status status = weir_event_create(device, &order->last);
    return status == WEIR_OK ? weir_event_create(device, &order->inner) : status;
}

void weiri_order_close(weir_collective *collective)
{
    if (collective->order != NULL) {
        weir_event_destroy(collective->comm->device, collective->order->last);
        weir_event_destroy(collective->comm->device, collective->order->inner);
        weiri_free(collective->order);
    }
}

weir_status weiri_order_begin(const weir_collective *collective, void *stream)
{
    weiri_order *order = collective->order;
    weir_device *device = collective->comm->device;
    uint64_t recording = 0;
    if (order == NULL) {
        return WEIR_OK;
    }
    weir_status status = weiri_stream_recording(device, stream, &recording);
    if (status != WEIR_OK) {
        return status;
    }
    const pthread_t thread = pthread_self();
    const bool same_stream = order->used && stream == order->stream && recording == order->recording &&
                             (!weiri_stream_is_default(stream) || pthread_equal(thread, order->thread) != 0);
    if (recording != 0 && order->used && recording == order->recording) {
        status = same_stream ? WEIR_OK : weir_stream_wait_event(device, stream, order->inner);
    } else if (!same_stream || order->recorded) {
        status = weiri_stream_wait_event_outside(device, stream, order->last);
    }
    order->stream = stream;
    order->thread = thread;
    order->recording = recording;
    order->recorded = order->recorded || recording != 0;
    return status;
}

weir_status weiri_order_end(const weir_collective *collective, void *stream)
{
    weiri_order *order = collective->order;
    weir_device *device = collective->comm->device;
    if (order == NULL) {
        return WEIR_OK;
    }
    order->used = true;
    const weir_status status = weiri_event_record_outside(device, order->last, stream);
    return status == WEIR_OK && order->recording != 0 ? weir_event_record(device, order->inner, stream) : status;
}
