/* call.c - the public operations: each checks its arguments and makes a request, which plan.c carries out. */
#include <string.h>

#include "src/host/base/error.h"
#include "src/host/collective/collective.h"

/* ---- checks -------------------------------------------------------------------------------------------------- */

bool weiri_spans_apart(weiri_span a, weiri_span b)
{
    return a.bytes == 0 || b.bytes == 0 || (uintptr_t)a.data + a.bytes <= (uintptr_t)b.data ||
           (uintptr_t)b.data + b.bytes <= (uintptr_t)a.data;
}

static weir_status invalid(const char *name, const char *what)
{
    return weiri_fail(WEIR_ERR_INVALID, "%s: %s", name, what);
}

weir_status weiri_check_collective(const weir_collective *collective, const char *name)
{
    return weiri_comm_check("collective", collective == NULL ? NULL : collective->comm, name);
}

weir_status weiri_check_elements(const char *name, weir_dtype dtype, uint64_t count)
{
    if ((uint32_t)dtype >= WEIR_DTYPES) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: unknown type %d", name, (int)dtype);
    }
    const uint64_t most = WEIRI_BYTES_MOST / weir_dtype_bytes(dtype) / WEIR_COLLECTIVE_RANKS;
    if (count > most) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: count is %llu; the limit is %llu", name, (unsigned long long)count,
                          (unsigned long long)most);
    }
    return WEIR_OK;
}

weir_status weiri_check_call(const weir_collective *collective, const char *name, weir_dtype dtype, uint64_t count)
{
    const weir_status status = weiri_check_collective(collective, name);
    return status == WEIR_OK ? weiri_check_elements(name, dtype, count) : status;
}

bool weiri_op_scales(uint32_t dtype) { return dtype <= WEIR_BF16; }

weir_status weiri_check_op(const weir_collective *collective, const char *name, weir_dtype dtype, weir_op op)
{
    if ((uint32_t)op >= WEIR_OPS) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: unknown operation %d", name, (int)op);
    }
    if (op == WEIR_SCALED_SUM && !weiri_op_scales((uint32_t)dtype)) {
        return invalid(name, "SCALED_SUM is only for F64, F32, F16 and BF16");
    }
    if (op == WEIR_SCALED_SUM && !collective->has_factor) {
        return invalid(name, "SCALED_SUM without a factor: call weir_collective_set_factor first");
    }
    return WEIR_OK;
}

weir_status weiri_refuse_copies(const weir_collective *collective, const char *name, const char *why)
{
    return collective->form != WEIR_FORM_COPIES || collective->size == 1
               ? WEIR_OK
               : weiri_fail(WEIR_ERR_UNSUPPORTED, "%s: WEIR_FORM_COPIES is forced, but %s", name, why);
}

static weir_status check_rank(const weir_collective *collective, const char *name, uint32_t rank)
{
    if (rank >= collective->size) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: root %u does not exist; the collective has %u ranks", name, rank,
                          collective->size);
    }
    return WEIR_OK;
}

/* Checks that the device can access all of it. */
static weir_status check_access(const weir_collective *collective, const char *name, const char *which, weiri_span what)
{
    void *data = (void *)(uintptr_t)what.data;
    const weir_status status = weiri_device_check_access(collective->comm->device, data, what.bytes);
    return status == WEIR_OK ? WEIR_OK : weiri_fail(status, "%s: %s: %s", name, which, weir_last_error());
}

weir_status weiri_check_span(const weir_collective *collective, const char *name, const char *which, weiri_span what,
                             uint32_t element)
{
    if (what.bytes == 0) {
        return WEIR_OK;
    }
    if (what.data == NULL || what.bytes > UINTPTR_MAX - (uintptr_t)what.data) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: %s is %s", name, which,
                          what.data == NULL ? "NULL" : "a range that wraps around");
    }
    if ((uintptr_t)what.data % element != 0) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: %s is not aligned to its elements of %u bytes", name, which, element);
    }
    return collective->check_pointers ? check_access(collective, name, which, what) : WEIR_OK;
}

/* Checks both. They must not overlap, unless recv begins at `place`, where the operation allows it. */
static weir_status check_spans(const weir_collective *collective, const char *name, weiri_span send, weiri_span recv,
                               const char *place, uint32_t element)
{
    weir_status status = weiri_check_span(collective, name, "send", send, element);
    if (status == WEIR_OK) {
        status = weiri_check_span(collective, name, "recv", recv, element);
    }
    if (status == WEIR_OK && recv.data != place && !weiri_spans_apart(send, recv)) {
        return invalid(name, "send and recv overlap");
    }
    return status;
}

static weir_status check_reduction(const weir_collective *collective, const char *name,
                                   const weir_collective_request *q)
{
    weir_status status = weiri_check_op(collective, name, q->dtype, q->op);
    if (status == WEIR_OK && q->kind == WEIR_REDUCE) {
        status = check_rank(collective, name, q->root);
    }
    if (status != WEIR_OK) {
        return status;
    }
    const uint64_t bytes = q->count * weir_dtype_bytes(q->dtype);
    weiri_span send = { (const char *)q->send, bytes };
    weiri_span recv = { (const char *)q->recv, bytes };
    const char *place = send.data;
    if (q->kind == WEIR_REDUCE_SCATTER) {
        send.bytes *= collective->size;
        place = place == NULL ? NULL : place + bytes * collective->rank;
    } else if (q->kind == WEIR_REDUCE && q->root != collective->rank) {
        recv.bytes = 0;
    }
    return check_spans(collective, name, send, recv, place, weir_dtype_bytes(q->dtype));
}

static weir_status check_move(const weir_collective *collective, const char *name, const weir_collective_request *q)
{
    const uint64_t bytes = q->count * weir_dtype_bytes(q->dtype);
    weiri_span send = { (const char *)q->send, bytes };
    weiri_span recv = { (const char *)q->recv, bytes };
    const char *place = send.data; /* where recv may begin in place */
    const bool rooted = q->kind == WEIR_BROADCAST || q->kind == WEIR_GATHER || q->kind == WEIR_SCATTER;
    const bool is_root = q->root == collective->rank;
    weir_status status = rooted ? check_rank(collective, name, q->root) : WEIR_OK;
    if (status != WEIR_OK) {
        return status;
    }
    if (q->kind == WEIR_BROADCAST) {
        send.bytes = is_root ? bytes : 0;
    } else if (q->kind == WEIR_SCATTER) {
        send.bytes = is_root ? bytes * collective->size : 0;
        place = is_root && place != NULL ? place + bytes * collective->rank : place;
    } else {
        recv.bytes = q->kind == WEIR_GATHER && !is_root ? 0 : bytes * collective->size;
    }
    if (q->kind == WEIR_ALL_TO_ALL) {
        send.bytes *= collective->size;
    } else if (q->kind == WEIR_ALLGATHER || q->kind == WEIR_GATHER) {
        place = recv.data != NULL && send.data == recv.data + bytes * collective->rank ? recv.data : NULL;
    }
    return check_spans(collective, name, send, recv, place, weir_dtype_bytes(q->dtype));
}

/* True if an algorithm of the user takes the request; *status is then its status. */
static bool delegate(weir_collective *collective, const weir_collective_request *q, void *stream, weir_status *status)
{
    for (uint32_t i = collective->algorithm_count; i > 0; i--) {
        const weir_collective_algorithm *algorithm = &collective->algorithms[i - 1];
        if (algorithm->fits(algorithm->context, q)) {
            *status = algorithm->run(algorithm->context, collective, q, stream);
            return true;
        }
    }
    return false;
}

/* ---- operations ------------------------------------------------------------------------------------------------ */

static weir_status run(weir_collective *collective, const char *name, const weir_collective_request *q, void *stream)
{
    weir_status status = weiri_check_call(collective, name, q->dtype, q->count);
    if (status == WEIR_OK) {
        status =
            q->kind <= WEIR_REDUCE_SCATTER ? check_reduction(collective, name, q) : check_move(collective, name, q);
    }
    return status != WEIR_OK || delegate(collective, q, stream, &status)
               ? status
               : weiri_plan_run(collective, name, q, NULL, 0, stream);
}

weir_status weir_allreduce(weir_collective *collective, const void *send, void *recv, uint64_t count, weir_dtype dtype,
                           weir_op op, void *stream)
{
    const weir_collective_request q = { WEIR_ALLREDUCE, dtype, op, 0, count, send, recv };
    return run(collective, "weir_allreduce", &q, stream);
}

weir_status weir_reduce(weir_collective *collective, const void *send, void *recv, uint64_t count, weir_dtype dtype,
                        weir_op op, uint32_t root, void *stream)
{
    const weir_collective_request q = { WEIR_REDUCE, dtype, op, root, count, send, recv };
    return run(collective, "weir_reduce", &q, stream);
}

weir_status weir_reduce_scatter(weir_collective *collective, const void *send, void *recv, uint64_t count,
                                weir_dtype dtype, weir_op op, void *stream)
{
    const weir_collective_request q = { WEIR_REDUCE_SCATTER, dtype, op, 0, count, send, recv };
    return run(collective, "weir_reduce_scatter", &q, stream);
}

weir_status weir_allgather(weir_collective *collective, const void *send, void *recv, uint64_t count, weir_dtype dtype,
                           void *stream)
{
    const weir_collective_request q = { WEIR_ALLGATHER, dtype, WEIR_SUM, 0, count, send, recv };
    return run(collective, "weir_allgather", &q, stream);
}

weir_status weir_broadcast(weir_collective *collective, const void *send, void *recv, uint64_t count, weir_dtype dtype,
                           uint32_t root, void *stream)
{
    const weir_collective_request q = { WEIR_BROADCAST, dtype, WEIR_SUM, root, count, send, recv };
    return run(collective, "weir_broadcast", &q, stream);
}

weir_status weir_all_to_all(weir_collective *collective, const void *send, void *recv, uint64_t count, weir_dtype dtype,
                            void *stream)
{
    const weir_collective_request q = { WEIR_ALL_TO_ALL, dtype, WEIR_SUM, 0, count, send, recv };
    return run(collective, "weir_all_to_all", &q, stream);
}

weir_status weir_gather(weir_collective *collective, const void *send, void *recv, uint64_t count, weir_dtype dtype,
                        uint32_t root, void *stream)
{
    const weir_collective_request q = { WEIR_GATHER, dtype, WEIR_SUM, root, count, send, recv };
    return run(collective, "weir_gather", &q, stream);
}

weir_status weir_scatter(weir_collective *collective, const void *send, void *recv, uint64_t count, weir_dtype dtype,
                         uint32_t root, void *stream)
{
    const weir_collective_request q = { WEIR_SCATTER, dtype, WEIR_SUM, root, count, send, recv };
    return run(collective, "weir_scatter", &q, stream);
}

/* ---- choice, and kernels of users ---------------------------------------------------------------------------------
 */

weir_status weir_collective_choose(weir_collective *collective, const weir_collective_request *request,
                                   weir_collective_form *form, weir_shape *shape)
{
    static const char name[] = "weir_collective_choose";
    if (request == NULL || form == NULL || shape == NULL) {
        return invalid(name, request == NULL ? "request is NULL" : form == NULL ? "form is NULL" : "shape is NULL");
    }
    weir_status status = weiri_check_call(collective, name, request->dtype, request->count);
    if (status != WEIR_OK) {
        return status;
    }
    if ((uint32_t)request->kind > WEIR_SCATTER) {
        return invalid(name, "unknown operation");
    }
    return weiri_plan_choose(collective, name, request, form, shape);
}

weir_status weir_collective_describe(weir_collective *collective, const weir_collective_request *request,
                                     weir_collective_form form, weir_collective_reduce *out, size_t bytes,
                                     weir_shape *shape)
{
    static const char name[] = "weir_collective_describe";
    if (request == NULL || out == NULL || shape == NULL) {
        return invalid(name, request == NULL ? "request is NULL" : out == NULL ? "out is NULL" : "shape is NULL");
    }
    if (bytes != sizeof *out) {
        return weiri_fail(
            WEIR_ERR_INVALID,
            "%s: bytes is %llu, but this library's weir_collective_reduce has %llu: compiled with other headers", name,
            (unsigned long long)bytes, (unsigned long long)sizeof *out);
    }
    weir_status status = weiri_check_call(collective, name, request->dtype, request->count);
    if (status != WEIR_OK) {
        return status;
    }
    if (collective->rails.device.hosts > 1) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "%s: not supported between hosts", name);
    }
    if ((uint32_t)request->kind > WEIR_REDUCE_SCATTER || form == WEIR_FORM_AUTO || (uint32_t)form > WEIR_FORM_SLOTS ||
        (form == WEIR_FORM_ONCE && request->kind == WEIR_REDUCE_SCATTER)) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: kind %d is not a reduction, or form %d does not support it", name,
                          (int)request->kind, (int)form);
    }
    status = check_reduction(collective, name, request);
    return status == WEIR_OK ? weiri_plan_describe(collective, name, request, form, out, shape) : status;
}

/* ---- pieces of different sizes --------------------------------------------------------------------------------- */

/* Checks the extents of one side, and finds the end of the last one in bytes. */
static weir_status check_extents(const char *name, const char *which, const weir_extent *extents, uint32_t ranks,
                                 uint32_t element, uint64_t *end)
{
    const uint64_t most = WEIRI_BYTES_MOST / element / WEIR_COLLECTIVE_RANKS;
    if (extents == NULL) {
        return weiri_fail_null(name, which);
    }
    for (uint32_t k = 0; k < ranks; k++) {
        const uint64_t last = (extents[k].at + extents[k].count) * element;
        if (extents[k].at > most || extents[k].count > most) {
            return weiri_fail(WEIR_ERR_INVALID, "%s: %s[%u]: at %llu, count %llu exceed the limit %llu", name, which, k,
                              (unsigned long long)extents[k].at, (unsigned long long)extents[k].count,
                              (unsigned long long)most);
        }
        *end = extents[k].count != 0 && last > *end ? last : *end;
    }
    return WEIR_OK;
}

static weir_status check_received(const char *name, const weir_extent *recvs, uint32_t ranks)
{
    for (uint32_t k = 0; k < ranks; k++) {
        for (uint32_t other = 0; other < k; other++) {
            if (!weiri_extents_apart(recvs[k], recvs[other])) {
                return weiri_fail(WEIR_ERR_INVALID, "%s: recvs[%u] and recvs[%u] overlap", name, other, k);
            }
        }
    }
    return WEIR_OK;
}

static weir_collective_piece piece_of(weir_extent extent, uint32_t element)
{
    const weir_collective_piece piece = { extent.at * element, extent.count * element };
    return piece;
}

weir_status weir_all_to_all_v(weir_collective *collective, const void *send, const weir_extent *sends, void *recv,
                              const weir_extent *recvs, weir_dtype dtype, void *stream)
{
    static const char name[] = "weir_all_to_all_v";
    weiri_span in = { (const char *)send, 0 };
    weiri_span out = { (const char *)recv, 0 };
    weir_status status = weiri_check_call(collective, name, dtype, 0);
    if (status != WEIR_OK) {
        return status;
    }
    const uint32_t ranks = collective->size;
    const uint32_t rank = collective->rank;
    const uint32_t element = weir_dtype_bytes(dtype);
    status = check_extents(name, "sends", sends, ranks, element, &in.bytes);
    if (status == WEIR_OK) {
        status = check_extents(name, "recvs", recvs, ranks, element, &out.bytes);
    }
    if (status == WEIR_OK) {
        status = check_spans(collective, name, in, out, NULL, element);
    }
    if (status == WEIR_OK && sends[rank].count != recvs[rank].count) {
        status =
            weiri_fail(WEIR_ERR_INVALID, "%s: sends[%u].count is %llu, but recvs[%u].count is %llu, both for this rank",
                       name, rank, (unsigned long long)sends[rank].count, rank, (unsigned long long)recvs[rank].count);
    }
    if (status == WEIR_OK) {
        status = check_received(name, recvs, ranks);
    }
    if (status != WEIR_OK) {
        return status;
    }
    if (collective->rails.device.hosts > 1) {
        return weiri_exchange_pieces(collective, name, send, sends, recv, recvs, dtype, stream);
    }
    weiri_move_args args;
    weir_collective_move *what = &args.move;
    memset(&args, 0, sizeof args);
    for (uint32_t k = 0; k < ranks; k++) {
        what->pieces[k].send = piece_of(sends[k], element);
        what->pieces[k].recv = piece_of(recvs[k], element);
        what->most = what->pieces[k].send.bytes > what->most ? what->pieces[k].send.bytes : what->most;
        what->most = what->pieces[k].recv.bytes > what->most ? what->pieces[k].recv.bytes : what->most;
    }
    what->send = in.data;
    what->recv = (char *)recv;
    what->counted = 1;
    return weiri_plan_all_to_all_v(collective, &args, dtype, stream);
}
