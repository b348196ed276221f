/* gather.c - weir_gather_v and weir_scatter_v: a gather and a scatter whose pieces differ in size. All ranks know all
 * extents, so they choose the same form. They compare a digest of the extents. */
#include <string.h>

#include "src/host/base/error.h"
#include "src/host/collective/collective.h"

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
            if (!weiri_spans_apart(piece_of(c, NULL, k), piece_of(c, NULL, other))) {
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
    if (c->collective->rails.device.hosts > 1) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "%s: not supported between hosts", c->name);
    }
    if (c->extents == NULL || c->root >= c->collective->size) {
        return c->extents == NULL
                   ? weiri_fail(WEIR_ERR_INVALID, "%s: extents is NULL", c->name)
                   : weiri_fail(WEIR_ERR_INVALID, "%s: rank %u of %u", c->name, c->root, c->collective->size);
    }
    status = check_extents(c, &end);
    return status == WEIR_OK ? check_buffers(c, end) : status;
}

/* ---- launch ------------------------------------------------------------------------------------------------------ */

static uint64_t digest_of(const rooted_call *c)
{
    uint64_t digest = 0;
    for (uint32_t k = 0; k < c->collective->size; k++) {
        const uint64_t words[] = { c->extents[k].count != 0 ? c->extents[k].at : 0, c->extents[k].count };
        for (uint32_t i = 0; i < 2; i++) {
            digest = (digest ^ words[i]) * 0x9e3779b97f4a7c15u;
            digest ^= digest >> 29;
        }
    }
    return digest;
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
            m->send_bytes[k] = k == c->root ? own : 0;
            m->recv_at[k] = is_root ? at : 0;
            m->recv_bytes[k] = is_root ? piece.bytes : 0;
        } else {
            m->send_at[k] = is_root ? at : 0;
            m->send_bytes[k] = is_root ? piece.bytes : 0;
            m->recv_bytes[k] = k == c->root ? own : 0;
        }
    }
}

static weir_status run(const rooted_call *c)
{
    weiri_move_args args;
    weir_collective_form form;
    weir_shape shape;
    weir_status status = check(c);
    if (status != WEIR_OK) {
        return status;
    }
    memset(&args, 0, sizeof args);
    fill(c, &args.move);
    const weiri_work work = { .kind = c->gathers ? WEIR_GATHER : WEIR_SCATTER,
                              .bytes = args.move.most * c->collective->device.ranks,
                              .piece = args.move.most };
    status = weiri_choose_step(c->collective, &work, c->name, false, &form, &shape);
    if (status != WEIR_OK) {
        return status;
    }
    const weiri_step step = { .call = { .kind = c->gathers ? WEIRI_GATHER_V : WEIRI_SCATTER_V,
                                        .dtype = c->dtype,
                                        .op = WEIRI_NO_OP,
                                        .root = c->root,
                                        .form = form,
                                        .blocks = shape.blocks },
                              .count = digest_of(c),
                              .threads = shape.threads,
                              .stream = c->stream };
    return weiri_local_move(c->collective, &step, &args);
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
