/* copies.c - copy engines move the data (WEIR_FORM_COPIES): kernels wait for other ranks, copies go into their
 * registered memory, and stores behind the copies say that they have ended.
 *
 * A kernel meets the other ranks before the copies, and another kernel waits for the stores of the others. A long part
 * that a rank sends to itself is copied on a stream aside. */
#include "src/device/device.h"
#include "src/host/base/error.h"
#include "src/host/collective/collective.h"

#define STORED 1u /* a kernel sets the word back to 0 */

/* From so many bytes on, a device with cores of its own copies a rank's own part beside the others. On H200 the events
 * cost 7 us in a graph. */
#define ASIDE_LEAST ((uint64_t)16 << 20)

/* ---- streams aside --------------------------------------------------------------------------------------- */

static weir_status open_aside(const weir_collective *collective, weiri_aside *aside)
{
    weir_device *device = collective->comm->device;
    weir_status status = aside->begins == NULL ? weir_event_create(device, &aside->begins) : WEIR_OK;
    if (status == WEIR_OK && aside->ends == NULL) {
        status = weir_event_create(device, &aside->ends);
    }
    if (status == WEIR_OK && aside->stream == NULL) {
        status = weir_stream_create(device, &aside->stream);
    }
    return status;
}

void weiri_copies_close(weir_collective *collective)
{
    weir_device *device = collective->comm->device;
    for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS; k++) {
        const weiri_aside *aside = &collective->aside[k];
        weir_event_destroy(device, aside->begins);
        weir_event_destroy(device, aside->ends);
        if (aside->stream != NULL) {
            weir_stream_destroy(device, aside->stream);
        }
    }
}

/* The stream aside goes on from here beside the caller's, unless it records another graph than that: then *begun is
 * false. */
static weir_status begin_aside(const weir_collective *collective, const weiri_aside *aside, void *stream, bool *begun)
{
    weir_device *device = collective->comm->device;
    uint64_t recording = 0;
    uint64_t other = 0;
    weir_status status = weiri_stream_recording(device, stream, &recording);
    if (status == WEIR_OK) {
        status = weiri_stream_recording(device, aside->stream, &other);
    }
    if (status != WEIR_OK || (other != 0 && other != recording)) {
        return status;
    }
    status = weir_event_record(device, aside->begins, stream);
    if (status == WEIR_OK) {
        status = weir_stream_wait_event(device, aside->stream, aside->begins);
    }
    *begun = status == WEIR_OK;
    return status;
}

/* The caller's stream waits for what the stream aside has. */
static weir_status end_aside(const weir_collective *collective, const weiri_aside *aside, void *stream)
{
    weir_device *device = collective->comm->device;
    const weir_status status = weir_event_record(device, aside->ends, aside->stream);
    return status == WEIR_OK ? weir_stream_wait_event(device, stream, aside->ends) : status;
}

/* Whether a copy of this rank to itself may go beside the others. */
static bool is_aside(const weir_collective *collective, uint64_t bytes)
{
    return bytes >= ASIDE_LEAST || !collective->comm->device->info.own_cores;
}

static weiri_aside *own_aside(weir_collective *collective) { return &collective->aside[collective->device.rank]; }

/* Makes the stream for a copy of this rank to itself, if it may be needed. Stores into words of the peers that nothing
 * reads, beside those that copies use. A device refuses such a store in the call. */
weir_status weiri_copies_check(weir_collective *collective, const char *name, uint64_t bytes, void *stream)
{
    const weir_dev_collective *c = collective->now;
    weir_device *device = collective->comm->device;
    uint64_t recording = 0;
    weir_status status = is_aside(collective, bytes) ? open_aside(collective, own_aside(collective)) : WEIR_OK;
    if (status == WEIR_OK) {
        status = weiri_stream_recording(device, stream, &recording);
    }
    bool *stores = &collective->stores[recording != 0];
    for (uint32_t k = 0; k + 1 < c->ranks && status == WEIR_OK && !*stores; k++) {
        const uint32_t peer = weir_collective_peer(c, k);
        status = device->ops->store_async(device, stream, weir_copies_word(c, c->rank, peer, WEIR_COPIES_UNREAD), 0);
    }
    *stores = *stores || status == WEIR_OK;
    return status == WEIR_OK ? WEIR_OK
                             : weiri_fail(status, "%s: WEIR_FORM_COPIES is forced, but %s", name, weir_last_error());
}

/* ---- the move -------------------------------------------------------------------------------------------- */

/* Each rank begins with the rank after it, so that the copies at a time go to different ranks. */
static weir_status copy_to_others(const weir_collective *collective, const weiri_step *step,
                                  const weir_collective_move *m)
{
    const weir_dev_collective *c = collective->now;
    weir_device *device = collective->comm->device;
    weir_status status = WEIR_OK;
    for (uint32_t k = 0; k + 1 < c->ranks && status == WEIR_OK; k++) {
        const uint32_t peer = weir_collective_peer(c, k);
        if (m->send_bytes[peer] == 0) {
            continue;
        }
        status = device->ops->copy_async(device, step->stream, m->peer_recv[peer] + m->peer_recv_at,
                                         m->send + m->send_at[peer], m->send_bytes[peer]);
        if (status == WEIR_OK) {
            status = device->ops->store_async(device, step->stream,
                                              weir_copies_word(c, c->rank, peer, WEIR_COPIES_MOVED), STORED);
        }
    }
    return status;
}

static bool moves_own(const weir_collective *collective, const weir_collective_move *m)
{
    const uint32_t own = collective->now->rank;
    return m->recv_bytes[own] != 0 && m->recv + m->recv_at[own] != m->send + m->send_at[own];
}

static weir_status copy_own(const weir_collective *collective, const weir_collective_move *m, void *stream)
{
    const uint32_t own = collective->now->rank;
    weir_device *device = collective->comm->device;
    return device->ops->copy_async(device, stream, m->recv + m->recv_at[own], m->send + m->send_at[own],
                                   m->recv_bytes[own]);
}

/* Copies a long own part on a stream aside. Else *begun stays false. */
static weir_status begin_own(const weir_collective *collective, const weiri_step *step, const weir_collective_move *m,
                             bool *begun)
{
    const weiri_aside *aside = &collective->aside[collective->now->rank];
    if (!is_aside(collective, m->recv_bytes[collective->now->rank])) {
        return WEIR_OK;
    }
    const weir_status status = begin_aside(collective, aside, step->stream, begun);
    return *begun ? copy_own(collective, m, aside->stream) : status;
}

static weir_status end_own(const weir_collective *collective, const weiri_step *step, const weir_collective_move *m,
                           bool begun)
{
    return begun ? end_aside(collective, &collective->aside[collective->now->rank], step->stream)
                 : copy_own(collective, m, step->stream);
}

/* Waits for the copies of all ranks that send to this one. */
static weir_status wait_for_others(const weir_collective *collective, const weiri_step *step,
                                   const weir_collective_move *m)
{
    const weir_dev_collective *c = collective->now;
    uint32_t ranks = 0;
    for (uint32_t k = 0; k < c->ranks; k++) {
        ranks |= (uint32_t)(k != c->rank && m->recv_bytes[k] != 0) << k;
    }
    return weiri_launch_wait(collective, step, &m->what, ranks);
}

weir_status weiri_copies_move(const weir_collective *collective, const weiri_step *step, weiri_move_args *args)
{
    const bool moves = moves_own(collective, &args->move);
    bool begun = false;
    weir_status status = weiri_launch_meet(collective, step, args);
    if (status == WEIR_OK && moves) {
        status = begin_own(collective, step, &args->move, &begun);
    }
    if (status == WEIR_OK) {
        status = copy_to_others(collective, step, &args->move);
    }
    /* After an error, too, the caller's stream waits for what runs on the stream aside. */
    if (begun || (status == WEIR_OK && moves)) {
        const weir_status ended = end_own(collective, step, &args->move, begun);
        status = status == WEIR_OK ? ended : status;
    }
    return status == WEIR_OK ? wait_for_others(collective, step, &args->move) : status;
}
