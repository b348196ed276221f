/* order.c - opts.order_streams: the kernels of a collective run one after the other, whatever streams they are on.
 *
 * Each kernel is followed by a record of the event `last` on its stream, and a kernel on another stream waits for it
 * first. In a graph both are operations outside of the graph: each launch of the graph waits for what the collective
 * did before, and later kernels wait for the launch. Inside a recording two streams are ordered by the event `inner`,
 * as in any graph. */
#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/collective/collective.h"

struct weiri_order {
    void *last;
    void *inner;
    void *stream;       /* of the latest kernel */
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
    const bool same_stream = order->used && stream == order->stream && recording == order->recording;
    if (recording != 0 && order->used && recording == order->recording) {
        if (!same_stream) {
            status = weir_event_record(device, order->inner, order->stream);
            status = status == WEIR_OK ? weir_stream_wait_event(device, stream, order->inner) : status;
        }
    } else if (!same_stream || order->recorded) {
        status = weiri_stream_wait_event_outside(device, stream, order->last);
    }
    order->stream = stream;
    order->recording = recording;
    order->recorded = order->recorded || recording != 0;
    return status;
}

weir_status weiri_order_end(const weir_collective *collective, void *stream)
{
    weiri_order *order = collective->order;
    if (order == NULL) {
        return WEIR_OK;
    }
    order->used = true;
    return weiri_event_record_outside(collective->comm->device, order->last, stream);
}
