/* parts.c - weir_allgather_parts and weir_reduce_scatter_parts: the public calls. Checks the parts, and makes the
 * digest that the ranks compare. All ranks know all extents, so no counts travel. The launches are in parts_inside.c,
 * and for several hosts in parts_between.c. */
#include <stdio.h>
#include <string.h>

#include "src/host/base/error.h"
#include "src/host/collective/collective.h"

/* ---- checks ---------------------------------------------------------------------------------------------------- */

static weiri_span span_of(const void *data, weir_extent extent, uint32_t element)
{
    const weiri_span span = { (const char *)((uintptr_t)data + extent.at * element), extent.count * element };
    return span;
}

static weir_status check_extents(const weiri_parts *call, const weir_part *part, const char *name)
{
    const uint32_t element = weir_dtype_bytes(part->dtype);
    const uint64_t most = WEIRI_BYTES_MOST / element / WEIR_COLLECTIVE_RANKS;
    if (part->extents == NULL) {
        return weiri_fail_null(name, "extents");
    }
    for (uint32_t k = 0; k < call->collective->size; k++) {
        const weir_extent extent = part->extents[k];
        if (extent.at > most || extent.count > most) {
            return weiri_fail(WEIR_ERR_INVALID, "%s: the extent of rank %u has %llu elements at %llu", name, k,
                              (unsigned long long)extent.count, (unsigned long long)extent.at);
        }
        for (uint32_t i = 0; i < k; i++) {
            if (!weiri_extents_apart(extent, part->extents[i])) {
                return weiri_fail(WEIR_ERR_INVALID, "%s: the extents of ranks %u and %u overlap", name, i, k);
            }
        }
    }
    return WEIR_OK;
}

/* Checks a part. `name` is the call, with the index of the part if there are several. */
static weir_status check_part(const weiri_parts *call, const weir_part *part, const char *name)
{
    const weir_collective *collective = call->collective;
    weir_status status = weiri_check_elements(name, part->dtype, 0);
    if (status == WEIR_OK && call->joins) {
        status = weiri_check_op(collective, name, part->dtype, call->op);
    }
    if (status == WEIR_OK) {
        status = check_extents(call, part, name);
    }
    if (status != WEIR_OK) {
        return status;
    }
    /* The buffer of all extents, and the one of this rank's elements alone. */
    const uint32_t element = weir_dtype_bytes(part->dtype);
    const weir_extent own = part->extents[collective->rank];
    const weiri_span all = { (const char *)(call->joins ? part->send : part->recv),
                             weiri_parts_end(part, collective->size) };
    const weiri_span one = { (const char *)(call->joins ? part->recv : part->send), own.count * element };
    status = weiri_check_span(collective, name, "send", call->joins ? all : one, element);
    if (status == WEIR_OK) {
        status = weiri_check_span(collective, name, "recv", call->joins ? one : all, element);
    }
    for (uint32_t k = 0; k < collective->size && status == WEIR_OK; k++) {
        const weiri_span extent = span_of(all.data, part->extents[k], element);
        const bool in_place = k == collective->rank && extent.data == one.data;
        if (!in_place && !weiri_spans_apart(extent, one)) {
            status = weiri_fail(WEIR_ERR_INVALID, "%s: send and recv overlap in the extent of rank %u", name, k);
        }
    }
    return status;
}

static weir_status check_parts(const weiri_parts *call)
{
    if (call->parts == NULL && call->n != 0) {
        return weiri_fail_null(call->name, "parts");
    }
    for (uint32_t i = 0; i < call->n; i++) {
        char name[64];
        const weir_status status = check_part(call, &call->parts[i], call->name);
        if (status != WEIR_OK && call->n > 1) {
            (void)snprintf(name, sizeof name, "%s: part %u", call->name, i);
            return check_part(call, &call->parts[i], name);
        }
        if (status != WEIR_OK) {
            return status;
        }
    }
    return WEIR_OK;
}

/* The digest of number, types and extents of the parts. */
static uint64_t digest_of(const weiri_parts *call)
{
    uint64_t digest = weiri_mix(0, call->n);
    for (uint32_t i = 0; i < call->n; i++) {
        digest = weiri_mix(digest, (uint64_t)call->parts[i].dtype);
        for (uint32_t k = 0; k < call->collective->size; k++) {
            const weir_extent extent = call->parts[i].extents[k];
            digest = weiri_mix(weiri_mix(digest, extent.count != 0 ? extent.at : 0), extent.count);
        }
    }
    return digest;
}

/* ---- operations ------------------------------------------------------------------------------------------------ */

static weir_status run(weiri_parts *call)
{
    weir_status status = weiri_check_collective(call->collective, call->name);
    if (status == WEIR_OK && call->joins) {
        status = weiri_check_op(call->collective, call->name, WEIR_F32, call->op);
    }
    if (status == WEIR_OK) {
        status = check_parts(call);
    }
    if (status == WEIR_OK) {
        status = weiri_refuse_copies(call->collective, call->name, "copy engines carry no parts");
    }
    if (status != WEIR_OK) {
        return status;
    }
    call->digest = digest_of(call);
    return call->collective->rails.device.hosts > 1 ? weiri_parts_between(call) : weiri_parts_inside(call);
}

weir_status weir_allgather_parts(weir_collective *collective, const weir_part *parts, uint32_t n, void *stream)
{
    weiri_parts call = {
        .collective = collective, .name = "weir_allgather_parts", .parts = parts, .n = n, .all = n, .stream = stream
    };
    return run(&call);
}

weir_status weir_reduce_scatter_parts(weir_collective *collective, const weir_part *parts, uint32_t n, weir_op op,
                                      void *stream)
{
    weiri_parts call = { .collective = collective,
                         .name = "weir_reduce_scatter_parts",
                         .parts = parts,
                         .n = n,
                         .all = n,
                         .joins = true,
                         .op = op,
                         .stream = stream };
    return run(&call);
}

weir_status weir_allgather_v(weir_collective *collective, const void *send, void *recv, const weir_extent *extents,
                             weir_dtype dtype, void *stream)
{
    const weir_part part = { send, recv, extents, dtype };
    weiri_parts call = {
        .collective = collective, .name = "weir_allgather_v", .parts = &part, .n = 1, .all = 1, .stream = stream
    };
    return run(&call);
}

weir_status weir_reduce_scatter_v(weir_collective *collective, const void *send, void *recv, const weir_extent *extents,
                                  weir_dtype dtype, weir_op op, void *stream)
{
    const weir_part part = { send, recv, extents, dtype };
    weiri_parts call = { .collective = collective,
                         .name = "weir_reduce_scatter_v",
                         .parts = &part,
                         .n = 1,
                         .all = 1,
                         .joins = true,
                         .op = op,
                         .stream = stream };
    return run(&call);
}
