/* gather.c - weir_gather_v and weir_scatter_v: a gather and a scatter whose pieces differ in size. All ranks know all
 * extents, so they choose the same form. They compare a digest of the extents.
 *
 * Between hosts the piece of rank i of a host goes over rail i, to or from rank i of the root's host. The root's rail
 * ends in the root's buffer; on the other rails the pieces stay in the hold until they move inside the root's host, a
 * chunk at a time. A step over the rails has the pieces of all hosts, and a step inside the root's host those of one.
 * Ranks skip the steps without bytes, except the first step of a rail and the first one inside the root's host: these
 * compare the calls. */
#include <string.h>

#include "src/host/base/error.h"
#include "src/host/collective/collective.h"

#define UNIT 128u /* chunks are multiples of this */

typedef struct rooted_call {
    weir_collective *collective;
    const char *name;
    const weir_extent *extents; /* of recv (gather) or send (scatter) of the root */
    const char *send;
    char *recv;
    void *stream;
    weir_dtype dtype;
    uint32_t root;
    bool gathers;
} rooted_call;

static weiri_span piece_of(const rooted_call *c, const char *data, uint32_t rank)
{
    const uint32_t element = weir_dtype_bytes(c->dtype);
    const weir_extent extent = c->extents[rank];
    const weiri_span span = { (const char *)((uintptr_t)data + extent.at * element), extent.count * element };
    return span;
}

/* ---- checks ---------------------------------------------------------------------------------------------------- */

static weir_status check_extents(const rooted_call *c, uint64_t *end)
{
    const uint32_t element = weir_dtype_bytes(c->dtype);
    const uint64_t most = WEIRI_BYTES_MOST / element / WEIR_COLLECTIVE_RANKS;
    *end = 0;
    for (uint32_t k = 0; k < c->collective->size; k++) {
        if (c->extents[k].at > most || c->extents[k].count > most) {
            return weiri_fail(WEIR_ERR_INVALID, "%s: extents[%u] has %llu elements at %llu", c->name, k,
                              (unsigned long long)c->extents[k].count, (unsigned long long)c->extents[k].at);
        }
        const uint64_t last = c->extents[k].count != 0 ? (c->extents[k].at + c->extents[k].count) * element : 0;
        *end = last > *end ? last : *end;
        for (uint32_t other = 0; other < k; other++) {
            if (!weiri_extents_apart(c->extents[k], c->extents[other])) {
                return weiri_fail(WEIR_ERR_INVALID, "%s: extents[%u] and extents[%u] overlap", c->name, other, k);
            }
        }
    }
    return WEIR_OK;
}

/* The root has all extents at one end and its own piece at the other. Other ranks have only their own piece. */
static weir_status check_buffers(const rooted_call *c, uint64_t end)
{
    const weir_collective *collective = c->collective;
    const uint32_t element = weir_dtype_bytes(c->dtype);
    const uint32_t rank = collective->rank;
    const char *whole = c->gathers ? c->recv : c->send;
    const weiri_span all = { whole, rank == c->root ? end : 0 };
    const weiri_span own = { c->gathers ? c->send : c->recv, c->extents[rank].count * element };
    weir_status status = weiri_check_span(collective, c->name, c->gathers ? "send" : "recv", own, element);
    if (status == WEIR_OK) {
        status = weiri_check_span(collective, c->name, c->gathers ? "recv" : "send", all, element);
    }
    if (status == WEIR_OK && own.data != piece_of(c, whole, rank).data && !weiri_spans_apart(own, all)) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: send and recv overlap", c->name);
    }
    return status;
}

static weir_status check(const rooted_call *c)
{
    uint64_t end = 0;
    weir_status status = weiri_check_call(c->collective, c->name, c->dtype, 0);
    if (status != WEIR_OK) {
        return status;
    }
    if (c->extents == NULL || c->root >= c->collective->size) {
        return c->extents == NULL
                   ? weiri_fail(WEIR_ERR_INVALID, "%s: extents is NULL", c->name)
                   : weiri_fail(WEIR_ERR_INVALID, "%s: root %u does not exist; the collective has %u ranks", c->name,
                                c->root, c->collective->size);
    }
    status = check_extents(c, &end);
    if (status == WEIR_OK) {
        status = check_buffers(c, end);
    }
    return status == WEIR_OK
               ? weiri_refuse_copies(c->collective, c->name, "copy engines carry no pieces of different sizes")
               : status;
}

/* ---- launch ------------------------------------------------------------------------------------------------------ */

static uint64_t digest_of(const rooted_call *c)
{
    uint64_t digest = 0;
    for (uint32_t k = 0; k < c->collective->size; k++) {
        const weir_extent extent = c->extents[k];
        digest = weiri_mix(weiri_mix(digest, extent.count != 0 ? extent.at : 0), extent.count);
    }
    return digest;
}

/* The call that ranks compare, without form and blocks. */
static weiri_call call_of(const rooted_call *c)
{
    const weiri_call call = {
        .kind = c->gathers ? WEIRI_GATHER_V : WEIRI_SCATTER_V, .dtype = c->dtype, .op = WEIRI_NO_OP, .root = c->root
    };
    return call;
}

static void fill(const rooted_call *c, weir_collective_move *m)
{
    const weir_dev_collective *device = &c->collective->device;
    const bool is_root = c->root == device->rank;
    const uint64_t own = piece_of(c, NULL, device->rank).bytes;
    m->send = c->send;
    m->recv = c->recv;
    for (uint32_t k = 0; k < device->ranks; k++) {
        const weiri_span piece = piece_of(c, NULL, k);
        const uint64_t at = (uint64_t)(uintptr_t)piece.data;
        m->most = piece.bytes > m->most ? piece.bytes : m->most;
        if (c->gathers) {
            m->pieces[k].send.bytes = k == c->root ? own : 0;
            m->pieces[k].recv.at = is_root ? at : 0;
            m->pieces[k].recv.bytes = is_root ? piece.bytes : 0;
        } else {
            m->pieces[k].send.at = is_root ? at : 0;
            m->pieces[k].send.bytes = is_root ? piece.bytes : 0;
            m->pieces[k].recv.bytes = k == c->root ? own : 0;
        }
    }
}

/* Launches a move inside the host, whose places and bytes are filled in. */
static weir_status launch_move(const rooted_call *c, weiri_move_args *args, bool part_of_many)
{
    weir_collective_form form;
    weir_shape shape;
    const weiri_work work = { .kind = c->gathers ? WEIR_GATHER : WEIR_SCATTER,
                              .bytes = args->move.most * c->collective->device.ranks,
                              .piece = args->move.most };
    weir_status status = part_of_many ? WEIR_OK : weiri_grow_for(c->collective, c->name, &work, c->stream);
    if (status == WEIR_OK) {
        status = weiri_choose_step(c->collective, &work, c->name, part_of_many, &form, &shape);
    }
    if (status != WEIR_OK) {
        return status;
    }
    weiri_step step = { .call = call_of(c), .count = digest_of(c), .threads = shape.threads, .stream = c->stream };
    step.call.form = form;
    step.call.blocks = shape.blocks;
    return weiri_local_move(c->collective, &step, args);
}

static weir_status run_inside(const rooted_call *c)
{
    weiri_move_args args;
    memset(&args, 0, sizeof args);
    fill(c, &args.move);
    return launch_move(c, &args, false);
}

/* ---- between hosts --------------------------------------------------------------------------------------------- */

/* Bytes `at` to `at` + `bytes` of each piece. */
typedef struct rooted_chunk {
    uint64_t at;
    uint64_t bytes;
} rooted_chunk;

static uint64_t left_of(const rooted_call *c, uint32_t rank, const rooted_chunk *k)
{
    const uint64_t bytes = piece_of(c, NULL, rank).bytes;
    const uint64_t left = bytes > k->at ? bytes - k->at : 0;
    return left < k->bytes ? left : k->bytes;
}

static uint32_t root_host(const rooted_call *c) { return c->root / c->collective->device.ranks; }

/* Where this rank of the root's host keeps the chunk of its rail's piece of `host`. */
static char *held(const rooted_call *c, uint32_t host, const rooted_chunk *k)
{
    return c->collective->rails.hold + host * k->bytes;
}

/* Moves the chunk of each rail's pieces between the other hosts and the root's host. */
static weir_status over_rails(const rooted_call *c, const rooted_chunk *k, bool compares)
{
    const weir_collective *collective = c->collective;
    const bool is_root = collective->rank == c->root;
    const uint32_t own = collective->rails.device.host;
    const uint64_t root_bit = (uint64_t)1 << root_host(c);
    uint64_t others = 0;
    weir_rail_step s;
    memset(&s, 0, sizeof s);
    for (uint32_t host = 0; host < collective->rails.device.hosts; host++) {
        const uint32_t rank = host * collective->device.ranks + collective->device.rank;
        const uint64_t bytes = host != root_host(c) ? left_of(c, rank, k) : 0;
        const uint64_t place = !is_root     ? host * k->bytes
                               : bytes != 0 ? (uintptr_t)piece_of(c, NULL, rank).data + k->at
                                            : 0;
        const weir_rail_piece piece = { c->gathers ? 0 : place, c->gathers ? place : 0, bytes };
        s.pieces[host] = piece;
        s.part = bytes > s.part ? bytes : s.part;
        others |= (uint64_t)(bytes != 0) << host;
    }
    if (s.part == 0 && !compares) {
        return WEIR_OK;
    }
    s.send = is_root && !c->gathers ? c->send : collective->rails.hold;
    s.recv = is_root && c->gathers ? c->recv : collective->rails.hold;
    if (s.pieces[own].bytes != 0) {
        s.send = c->gathers ? c->send + k->at : s.send;
        s.recv = c->gathers ? s.recv : c->recv + k->at;
    }
    s.from = c->gathers ? others : root_bit;
    s.to = c->gathers ? root_bit : others;
    s.scatter = !c->gathers;
    return weiri_rails_run(collective, call_of(c), digest_of(c), &s, c->stream);
}

/* Moves the chunk of the pieces of `host` inside the root's host, to or from the root. */
static weir_status inside(const rooted_call *c, uint32_t host, const rooted_chunk *k, bool compares)
{
    const weir_dev_collective *device = &c->collective->device;
    const uint32_t root = c->root % device->ranks;
    const bool own = host == root_host(c);
    const bool is_root = c->collective->rank == c->root;
    weiri_move_args args;
    weir_collective_move *m = &args.move;
    memset(&args, 0, sizeof args);
    m->send = !c->gathers ? c->send : own ? weiri_offset(c->send, k->at) : held(c, host, k);
    m->recv = c->gathers ? c->recv : own ? weiri_offset(c->recv, k->at) : held(c, host, k);
    for (uint32_t i = 0; i < device->ranks; i++) {
        const uint32_t rank = host * device->ranks + i;
        const uint64_t bytes = !own && i == root ? 0 : left_of(c, rank, k);
        const uint64_t at = is_root && bytes != 0 ? (uintptr_t)piece_of(c, NULL, rank).data + k->at : 0;
        m->most = bytes > m->most ? bytes : m->most;
        if (c->gathers) {
            m->pieces[root].send.bytes = i == device->rank ? bytes : m->pieces[root].send.bytes;
            m->pieces[i].recv.at = at;
            m->pieces[i].recv.bytes = is_root ? bytes : 0;
        } else {
            m->pieces[i].send.at = at;
            m->pieces[i].send.bytes = is_root ? bytes : 0;
            m->pieces[root].recv.bytes = i == device->rank ? bytes : m->pieces[root].recv.bytes;
        }
    }
    return m->most != 0 || compares ? launch_move(c, &args, true) : WEIR_OK;
}

/* The root's host comes last, so a gather begins with a step over the rails. That step ends also where ranks differ in
 * the root. */
static weir_status run_chunk(const rooted_call *c, const rooted_chunk *k)
{
    const weiri_rails *rails = &c->collective->rails;
    const uint32_t hosts = rails->device.hosts;
    const bool moves = rails->device.host == root_host(c);
    weir_status status = c->gathers ? over_rails(c, k, k->at == 0) : WEIR_OK;
    for (uint32_t i = 1; i < hosts && moves && status == WEIR_OK; i++) {
        status = inside(c, (root_host(c) + i) % hosts, k, false);
    }
    if (status == WEIR_OK && !c->gathers) {
        status = over_rails(c, k, k->at == 0);
    }
    return moves && status == WEIR_OK ? inside(c, root_host(c), k, k->at == 0) : status;
}

static weir_status run_between(const rooted_call *c)
{
    const weir_collective *collective = c->collective;
    const uint64_t room = collective->rails.hold_bytes / collective->rails.device.hosts / UNIT * UNIT;
    uint64_t most = 0;
    for (uint32_t rank = 0; rank < collective->size; rank++) {
        const uint64_t bytes = piece_of(c, NULL, rank).bytes;
        most = bytes > most ? bytes : most;
    }
    rooted_chunk k = { 0, collective->device.ranks == 1 ? WEIRI_BYTES_MOST : room };
    weir_status status = weiri_grow_between(c->collective, c->name, most, c->stream);
    if (status != WEIR_OK) {
        return status;
    }
    do {
        status = run_chunk(c, &k);
        k.at += k.bytes;
    } while (status == WEIR_OK && k.at < most);
    return status;
}

/* ---- operations ------------------------------------------------------------------------------------------------ */

static weir_status run(const rooted_call *c)
{
    const weir_status status = check(c);
    if (status != WEIR_OK) {
        return status;
    }
    return c->collective->rails.device.hosts > 1 ? run_between(c) : run_inside(c);
}

weir_status weir_gather_v(weir_collective *collective, const void *send, void *recv, const weir_extent *extents,
                          weir_dtype dtype, uint32_t root, void *stream)
{
    const rooted_call c = { collective, "weir_gather_v", extents, (const char *)send, (char *)recv, stream, dtype, root,
                            true };
    return run(&c);
}

weir_status weir_scatter_v(weir_collective *collective, const void *send, void *recv, const weir_extent *extents,
                           weir_dtype dtype, uint32_t root, void *stream)
{
    const rooted_call c = { collective,   "weir_scatter_v", extents, (const char *)send,
                            (char *)recv, stream,           dtype,   root,
                            false };
    return run(&c);
}
