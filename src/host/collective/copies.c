/* copies.c - moves by copy engines (WEIR_FORM_COPIES): a kernel that meets the other ranks, copies into their
 * registered memory, each with a store behind it, and a kernel that waits for the stores of the others. */
#include "src/device/device.h"
#include "src/host/base/error.h"
#include "src/host/collective/collective.h"

#define DONE 1u /* a kernel sets the word back to 0 */

static weir_status copy(const weir_collective *collective, void *stream, char *to, const char *from, uint64_t bytes)
{
    weir_device *device = collective->comm->device;
    return to == from ? WEIR_OK : device->ops->copy_async(device, stream, to, from, bytes);
}

/* Each rank begins with the rank after it, so that the copies at a time go to different ranks. */
static weir_status copy_all(const weir_collective *collective, const weiri_step *step, const weir_collective_move *m)
{
    const weir_dev_collective *c = collective->now;
    weir_device *device = collective->comm->device;
    weir_status status = WEIR_OK;
    for (uint32_t k = 0; k + 1 < c->ranks && status == WEIR_OK; k++) {
        const uint32_t peer = weir_collective_peer(c, k);
        if (m->send_bytes[peer] == 0) {
            continue;
        }
        status = copy(collective, step->stream, m->peer_recv[peer] + m->peer_recv_at, m->send + m->send_at[peer],
                      m->send_bytes[peer]);
        if (status == WEIR_OK) {
            status = device->ops->store_async(device, step->stream, weir_copies_word(c, c->rank, peer), DONE);
        }
    }
    if (status != WEIR_OK || m->recv_bytes[c->rank] == 0) { /* without bytes, send and recv may be NULL */
        return status;
    }
    return copy(collective, step->stream, m->recv + m->recv_at[c->rank], m->send + m->send_at[c->rank],
                m->recv_bytes[c->rank]);
}

/* Stores into words of the peers that nothing reads, beside those that copies use. A device refuses such a store in the
 * call. */
weir_status weiri_copies_check(weir_collective *collective, const char *name, void *stream)
{
    const weir_dev_collective *c = collective->now;
    weir_device *device = collective->comm->device;
    uint64_t recording = 0;
    weir_status status = weiri_stream_recording(device, stream, &recording);
    bool *stores = &collective->stores[recording != 0];
    for (uint32_t k = 0; k + 1 < c->ranks && status == WEIR_OK && !*stores; k++) {
        uint64_t *unused = weir_copies_word(c, c->rank, weir_collective_peer(c, k)) + 1;
        status = device->ops->store_async(device, stream, unused, 0);
    }
    *stores = *stores || status == WEIR_OK;
    return status == WEIR_OK ? WEIR_OK
                             : weiri_fail(status, "%s: WEIR_FORM_COPIES is forced, but %s", name, weir_last_error());
}

weir_status weiri_copies_move(const weir_collective *collective, const weiri_step *step, weiri_move_args *args)
{
    weir_status status = weiri_launch_copies(collective, step, WEIRI_COPIES_MEET, args);
    if (status == WEIR_OK) {
        status = copy_all(collective, step, &args->move);
    }
    return status == WEIR_OK ? weiri_launch_copies(collective, step, WEIRI_COPIES_WAIT, args) : status;
}
