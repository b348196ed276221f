/* copies.c - copy engines move the data (WEIR_FORM_COPIES): kernels wait for other ranks, copies go into their
 * registered memory, and stores behind the copies say that they have ended.
 *
 * In a move of all ranks, a kernel meets the other ranks before the copies, and another kernel waits for the stores of
 * the others. In an exchange a receiver's stream stores that its buffers may be written, and a kernel of the sender
 * waits for that. Each rank to which it sends has a stream aside, because the ranks may begin in any order. A long part
 * that a rank sends to itself is copied on a stream aside, too. */
#include "src/device/device.h"
#include "src/host/base/error.h"
#include "src/host/base/log.h"
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
    weiri_posts_close(collective);
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
        if (m->pieces[peer].send.bytes == 0) {
            continue;
        }
        status = device->ops->copy_async(device, step->stream, m->peer_recv[peer] + m->peer_recv_at,
                                         m->send + m->pieces[peer].send.at, m->pieces[peer].send.bytes);
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
    return m->pieces[own].recv.bytes != 0 && m->recv + m->pieces[own].recv.at != m->send + m->pieces[own].send.at;
}

static weir_status copy_own(const weir_collective *collective, const weir_collective_move *m, void *stream)
{
    const uint32_t own = collective->now->rank;
    weir_device *device = collective->comm->device;
    return device->ops->copy_async(device, stream, m->recv + m->pieces[own].recv.at, m->send + m->pieces[own].send.at,
                                   m->pieces[own].recv.bytes);
}

/* Copies a long own part on a stream aside. Else *begun stays false. */
static weir_status begin_own(const weir_collective *collective, const weiri_step *step, const weir_collective_move *m,
                             bool *begun)
{
    const weiri_aside *aside = &collective->aside[collective->now->rank];
    if (!is_aside(collective, m->pieces[collective->now->rank].recv.bytes)) {
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
        ranks |= (uint32_t)(k != c->rank && m->pieces[k].recv.bytes != 0) << k;
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

/* ---- the exchange ---------------------------------------------------------------------------------------- */

typedef struct copied_exchange {
    weir_collective *collective;
    const weiri_step *step;
    const weir_transfer *transfers;
    uint32_t n;
    uint32_t sends;    /* one bit for each other rank to which this one sends, */
    uint32_t receives; /* and from which it receives */
    uint64_t own;      /* bytes of this rank to itself */
} copied_exchange;

static copied_exchange describe(weir_collective *collective, const weiri_step *step, const weir_transfer *transfers,
                                uint32_t n)
{
    copied_exchange e = { .collective = collective, .step = step, .transfers = transfers, .n = n };
    for (uint32_t i = 0; i < n; i++) {
        const weir_transfer *t = &transfers[i];
        const bool own = t->peer == collective->rank;
        e.sends |= (uint32_t)(!own && !t->receive) << t->peer;
        e.receives |= (uint32_t)(!own && t->receive) << t->peer;
        e.own += own && t->receive ? t->count * weir_dtype_bytes(t->dtype) : 0;
    }
    return e;
}

static weir_status store(const copied_exchange *e, uint32_t peer, uint32_t word, void *stream)
{
    const weir_dev_collective *c = &e->collective->device;
    weir_device *device = e->collective->comm->device;
    return device->ops->store_async(device, stream, weir_copies_word(c, c->rank, peer, word), STORED);
}

/* Tells the senders that the call's buffers may be written. */
static weir_status begin_receives(const copied_exchange *e)
{
    weir_status status = WEIR_OK;
    for (uint32_t peer = 0; peer < e->collective->size && status == WEIR_OK; peer++) {
        status = (e->receives >> peer & 1) != 0 ? store(e, peer, WEIR_COPIES_READY, e->step->stream) : WEIR_OK;
    }
    return status;
}

/* Copies one send to the place that its receiver has told. The receiver's call has one store in front of its first
 * copy, and one behind its last. */
static weir_status send_one(const copied_exchange *e, const weir_transfer *t, void *stream)
{
    weir_collective *collective = e->collective;
    weir_device *device = collective->comm->device;
    const weiri_post post = weiri_posts_take(collective, t->peer);
    weir_status status = WEIR_OK;
    if (post.place == 0) {
        status = weiri_launch_wait_in(collective, e->step, (uint32_t)1 << t->peer, WEIR_COPIES_READY, stream);
    }
    if (status == WEIR_OK && t->count != 0) {
        const weir_memory *memory = weiri_map_row(collective, t->peer, post.row);
        status = device->ops->copy_async(device, stream, (char *)weir_memory_pointer(memory) + post.offset, t->buffer,
                                         t->count * weir_dtype_bytes(t->dtype));
    }
    return status == WEIR_OK && post.place + 1 == post.total ? store(e, t->peer, WEIR_COPIES_RECEIVED, stream) : status;
}

/* The first transfer with the peer in this direction from `i` on, or n. */
static uint32_t next_of(const copied_exchange *e, uint32_t i, uint32_t peer, bool receive)
{
    return weiri_exchange_next(e->transfers, e->n, i, peer, receive);
}

static weir_status send_to(const copied_exchange *e, uint32_t peer, void *stream)
{
    weir_status status = WEIR_OK;
    for (uint32_t i = next_of(e, 0, peer, false); i < e->n && status == WEIR_OK; i = next_of(e, i + 1, peer, false)) {
        status = send_one(e, &e->transfers[i], stream);
    }
    return status;
}

/* The call has been checked: each send of this rank to itself has its receive. */
static weir_status send_own(const copied_exchange *e, void *stream)
{
    const uint32_t own = e->collective->rank;
    weir_device *device = e->collective->comm->device;
    uint32_t send = next_of(e, 0, own, false);
    uint32_t receive = next_of(e, 0, own, true);
    weir_status status = WEIR_OK;
    for (; receive < e->n && status == WEIR_OK;
         send = next_of(e, send + 1, own, false), receive = next_of(e, receive + 1, own, true)) {
        const weir_transfer *from = &e->transfers[send];
        const weir_transfer *to = &e->transfers[receive];
        if (from->count != 0 && from->buffer != to->buffer) {
            status = device->ops->copy_async(device, stream, to->buffer, from->buffer,
                                             from->count * weir_dtype_bytes(from->dtype));
        }
    }
    return status;
}

static weir_status send_any(const copied_exchange *e, uint32_t peer, void *stream)
{
    return peer == e->collective->rank ? send_own(e, stream) : send_to(e, peer, stream);
}

/* The ranks whose copies have a stream aside: all but the first after this one, and this one itself if it is worth it.
 */
static uint32_t ranks_aside(const copied_exchange *e)
{
    const weir_dev_collective *c = &e->collective->device;
    uint32_t aside = e->own != 0 && is_aside(e->collective, e->own) ? (uint32_t)1 << c->rank : 0;
    bool first = true;
    for (uint32_t k = 0; k + 1 < c->ranks; k++) {
        const uint32_t peer = weir_collective_peer(c, k);
        if ((e->sends >> peer & 1) != 0) {
            aside |= first ? 0 : (uint32_t)1 << peer;
            first = false;
        }
    }
    return aside;
}

static weir_status open_streams(const copied_exchange *e, uint32_t aside)
{
    weir_status status = WEIR_OK;
    for (uint32_t k = 0; k < e->collective->size && status == WEIR_OK; k++) {
        status = (aside >> k & 1) != 0 ? open_aside(e->collective, &e->collective->aside[k]) : WEIR_OK;
    }
    return status;
}

/* Sends to the ranks of `aside`, each on its stream. One whose stream records another graph takes the caller's. *begun
 * gets a bit for each of the others. */
static weir_status send_aside(const copied_exchange *e, uint32_t aside, uint32_t *begun)
{
    const weir_dev_collective *c = &e->collective->device;
    weir_status status = WEIR_OK;
    for (uint32_t k = 0; k < c->ranks && status == WEIR_OK; k++) {
        const uint32_t peer = (c->rank + k) % c->ranks;
        const weiri_aside *stream = &e->collective->aside[peer];
        bool alone = false;
        if ((aside >> peer & 1) != 0) {
            status = begin_aside(e->collective, stream, e->step->stream, &alone);
            *begun |= (uint32_t)alone << peer;
            status = status == WEIR_OK ? send_any(e, peer, alone ? stream->stream : e->step->stream) : status;
        }
    }
    return status;
}

/* Puts the copies on the streams, and lets the caller's wait for those of the others. */
static weir_status put_copies(const copied_exchange *e, uint32_t aside)
{
    const uint32_t here = (e->sends | (e->own != 0 ? (uint32_t)1 << e->collective->rank : 0)) & ~aside;
    uint32_t begun = 0;
    weir_status status = begin_receives(e);
    status = status == WEIR_OK ? send_aside(e, aside, &begun) : status;
    for (uint32_t k = 0; k < e->collective->size && status == WEIR_OK; k++) {
        status = (here >> k & 1) != 0 ? send_any(e, k, e->step->stream) : WEIR_OK;
    }
    /* After an error, too, the caller's stream waits for what runs on the streams aside. */
    for (uint32_t k = 0; k < e->collective->size; k++) {
        if ((begun >> k & 1) != 0) {
            const weir_status ended = end_aside(e->collective, &e->collective->aside[k], e->step->stream);
            status = status == WEIR_OK ? ended : status;
        }
    }
    return status == WEIR_OK && e->receives != 0
               ? weiri_launch_wait_in(e->collective, e->step, e->receives, WEIR_COPIES_RECEIVED, e->step->stream)
               : status;
}

weir_status weiri_copies_exchange(weir_collective *collective, const char *name, const weiri_step *step,
                                  const weir_transfer *transfers, uint32_t n)
{
    const copied_exchange e = describe(collective, step, transfers, n);
    const uint32_t aside = ranks_aside(&e);
    if (n == 0) {
        return WEIR_OK;
    }
    weir_status status = weiri_copies_check(collective, name, e.own, step->stream);
    status = status == WEIR_OK ? open_streams(&e, aside) : status;
    status = status == WEIR_OK ? weiri_posts_meet(collective, name, transfers, n, 0, false) : status;
    status = status == WEIR_OK ? weiri_launch_begin(collective, step->stream) : status;
    if (status != WEIR_OK) {
        return status;
    }
    status = put_copies(&e, aside);
    const weir_status ended = weiri_launch_end(collective, step->stream);
    return status == WEIR_OK ? ended : status;
}
