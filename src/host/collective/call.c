/* call.c - the operations: checks, what goes where, and one launch each. */
#include <string.h>

#include "src/device/kernels/collective.h"
#include "src/host/base/error.h"
#include "src/host/base/log.h"
#include "src/host/collective/collective.h"

#define BYTES_MOST ((uint64_t)1 << 56)
#define CHUNK_ROUNDS 4u
#define CHUNK_LEAST ((uint64_t)16 << 10)
#define PULL_MOST ((uint64_t)32 << 20)
#define PULL_BLOCKS 64u
#define DIRECT_RANKS 2u /* whose reductions use registered memory: among more, slots are faster */

/* ---- checks -------------------------------------------------------------------------------------------------- */

typedef struct span {
    const char *data;
    uint64_t bytes;
} span;

static bool apart(span a, span b)
{
    return a.bytes == 0 || b.bytes == 0 || (uintptr_t)a.data + a.bytes <= (uintptr_t)b.data ||
           (uintptr_t)b.data + b.bytes <= (uintptr_t)a.data;
}

static weir_status invalid(const char *name, const char *what)
{
    return weiri_fail(WEIR_ERR_INVALID, "%s: %s", name, what);
}

/* What all operations ask: the communicator, type and count. */
static weir_status check_call(const weir_collective *collective, const char *name, weir_dtype dtype, uint64_t count)
{
    weir_status status = weiri_comm_check(collective == NULL ? NULL : collective->comm, name);
    if (status != WEIR_OK) {
        return status;
    }
    if ((uint32_t)dtype >= WEIR_DTYPES) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: unknown type %d", name, (int)dtype);
    }
    if (count > BYTES_MOST / weir_dtype_bytes(dtype) / WEIR_COLLECTIVE_RANKS) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: %llu elements", name, (unsigned long long)count);
    }
    return WEIR_OK;
}

static weir_status check_op(const weir_collective *collective, const char *name, weir_dtype dtype, weir_op op)
{
    if ((uint32_t)op >= WEIR_OPS) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: unknown operation %d", name, (int)op);
    }
    if ((dtype == WEIR_F8E4M3 || dtype == WEIR_F8E5M2) && (op == WEIR_PROD || op == WEIR_AVG)) {
        return invalid(name, "there are no products and averages of F8");
    }
    if (op == WEIR_AVG && dtype > WEIR_F8E5M2 && collective->rails.device.hosts > 1 && collective->device.ranks > 1) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "%s: averages of integers between hosts of several ranks", name);
    }
    return WEIR_OK;
}

static weir_status check_rank(const weir_collective *collective, const char *name, uint32_t rank)
{
    if (rank >= collective->size) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: rank %u of %u", name, rank, collective->size);
    }
    return WEIR_OK;
}

/* Whether the device can access all of it, as a registration finds out. */
static weir_status check_access(const weir_collective *collective, const char *name, const char *which, span what)
{
    weiri_block *block = NULL;
    void *data = (void *)(uintptr_t)what.data;
    weir_status status = weiri_device_wrap(collective->comm->device, data, what.bytes, &block);
    if (status != WEIR_OK) {
        return weiri_fail(status, "%s: %s: %s", name, which, weir_last_error());
    }
    weiri_block_release(block);
    return WEIR_OK;
}

static weir_status check_span(const weir_collective *collective, const char *name, const char *which, span what,
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

/* Both, which lie apart unless recv begins at `place`, where it may. */
static weir_status check_spans(const weir_collective *collective, const char *name, span send, span recv,
                               const char *place, uint32_t element)
{
    weir_status status = check_span(collective, name, "send", send, element);
    if (status == WEIR_OK) {
        status = check_span(collective, name, "recv", recv, element);
    }
    if (status == WEIR_OK && recv.data != place && !apart(send, recv)) {
        return invalid(name, "send and recv overlap");
    }
    return status;
}

/* ---- kernels -------------------------------------------------------------------------------------------------- */

/* The kernels of a type: for all operations, and for sums if there are any. */
typedef struct reductions {
    const weir_kernel *const *kernels;
    uint32_t any;
    uint32_t sum;
} reductions;

static const reductions reductions_of[WEIR_DTYPES] = {
    [WEIR_F64] = { weiri_collective_float_kernels, WEIRI_FLOAT_F64, WEIRI_FLOAT_F64 },
    [WEIR_F32] = { weiri_collective_float_kernels, WEIRI_FLOAT_F32, WEIRI_FLOAT_F32_SUM },
    [WEIR_F16] = { weiri_collective_half_kernels, WEIRI_HALF_F16, WEIRI_HALF_F16_SUM },
    [WEIR_BF16] = { weiri_collective_half_kernels, WEIRI_HALF_BF16, WEIRI_HALF_BF16_SUM },
    [WEIR_F8E4M3] = { weiri_collective_small_kernels, WEIRI_SMALL_F8E4M3, WEIRI_SMALL_F8E4M3 },
    [WEIR_F8E5M2] = { weiri_collective_small_kernels, WEIRI_SMALL_F8E5M2, WEIRI_SMALL_F8E5M2 },
    [WEIR_I8] = { weiri_collective_small_kernels, WEIRI_SMALL_I8, WEIRI_SMALL_I8 },
    [WEIR_U8] = { weiri_collective_small_kernels, WEIRI_SMALL_U8, WEIRI_SMALL_U8 },
    [WEIR_I32] = { weiri_collective_integer_kernels, WEIRI_INTEGER_I32, WEIRI_INTEGER_I32 },
    [WEIR_U32] = { weiri_collective_integer_kernels, WEIRI_INTEGER_U32, WEIRI_INTEGER_U32 },
    [WEIR_I64] = { weiri_collective_integer_kernels, WEIRI_INTEGER_I64, WEIRI_INTEGER_I64 },
    [WEIR_U64] = { weiri_collective_integer_kernels, WEIRI_INTEGER_U64, WEIRI_INTEGER_U64 },
};

static const weir_kernel *reduce_kernel(uint32_t dtype, uint32_t op, uint32_t form)
{
    const reductions *of = &reductions_of[dtype];
    return of->kernels[(op == WEIR_SUM ? of->sum : of->any) * WEIRI_REDUCE_FORMS + form];
}

/* What a kernel for the call is given: it knows for what it was launched, should it fail. */
static weir_dev_collective handle_for(const weir_collective *collective, const weir_collective_what *what)
{
    weir_dev_collective device = collective->device;
    device.call = what->call;
    device.count = what->count;
    return device;
}

static weir_status launch(const weir_collective *collective, const weir_kernel *kernel, weir_shape shape,
                          const void *args, void *stream)
{
    return weir_launch(collective->comm->device, kernel, shape, args, NULL, stream);
}

/* The registered memory that has all of [data, data + bytes), or NULL; without bytes there is none on any rank. */
static const weiri_team_memory *find_window(const weir_collective *collective, const void *data, uint64_t bytes)
{
    for (uint32_t i = 0; i < collective->registered_count; i++) {
        const weiri_team_memory *window = &collective->registered[i];
        const uint64_t size = weir_memory_bytes(window->local);
        const uint64_t offset = (uintptr_t)data - (uintptr_t)weir_memory_pointer(window->local);
        if (bytes != 0 && offset < size && bytes <= size - offset) {
            return window;
        }
    }
    return NULL;
}

/* Where the ranks' buffers that correspond to [data, data + bytes) are mapped here, when all have registered them.
 * `where` is what the ranks compare, 0 without. */
static uint64_t find_direct(const weir_collective *collective, const char *data, uint64_t bytes, char **direct)
{
    const weiri_team_memory *window = find_window(collective, data, bytes);
    if (window == NULL) {
        return 0;
    }
    const uint64_t offset = (uintptr_t)data - (uintptr_t)weir_memory_pointer(window->local);
    for (uint32_t k = 0; k < collective->device.ranks; k++) {
        weir_memory *memory = k == collective->device.rank ? window->local : window->remote[k];
        direct[k] = (char *)weir_memory_pointer(memory) + offset;
    }
    return (uint64_t)(window - collective->registered + 1) << 56 | offset;
}

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* Bytes of one rank's part, if all together have `bytes`, as `form` needs them. */
static uint64_t part_of(uint64_t bytes, uint32_t ranks, weir_collective_form form)
{
    return round_up((bytes + ranks - 1) / ranks, form == WEIR_FORM_LINES ? WEIR_LINE_DATA : 128);
}

/* Of all forms. */
static uint64_t longest_part(uint64_t bytes, uint32_t ranks)
{
    const uint64_t lines = part_of(bytes, ranks, WEIR_FORM_LINES);
    const uint64_t others = part_of(bytes, ranks, WEIR_FORM_SLOTS);
    return lines > others ? lines : others;
}

/* Bytes of a round of slots where each column has its range of `piece` bytes: so few that sending and taking overlap
 * also where there is little data. */
static uint64_t chunk_of(const weir_collective *collective, uint64_t piece, uint32_t blocks)
{
    const uint64_t range = weir_slots_range(piece, weir_slots_columns(blocks));
    const uint64_t chunk = round_up(range / CHUNK_ROUNDS + CHUNK_LEAST, 128);
    return chunk < collective->device.slot_bytes ? chunk : collective->device.slot_bytes;
}

/* Whether an algorithm of the user's takes the request; its status is in *status then. */
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

/* ---- reductions ----------------------------------------------------------------------------------------------- */

static weir_status check_reduction(const weir_collective *collective, const char *name,
                                   const weir_collective_request *q)
{
    weir_status status = check_op(collective, name, q->dtype, q->op);
    if (status == WEIR_OK && q->kind == WEIR_REDUCE) {
        status = check_rank(collective, name, q->root);
    }
    if (status != WEIR_OK) {
        return status;
    }
    const uint64_t bytes = q->count * weir_dtype_bytes(q->dtype);
    span send = { (const char *)q->send, bytes };
    span recv = { (const char *)q->recv, bytes };
    const char *place = send.data;
    if (q->kind == WEIR_REDUCE_SCATTER) {
        send.bytes *= collective->size;
        place = place == NULL ? NULL : place + bytes * collective->rank;
    } else if (q->kind == WEIR_REDUCE && q->root != collective->rank) {
        recv.bytes = 0;
    }
    return check_spans(collective, name, send, recv, place, weir_dtype_bytes(q->dtype));
}

static weiri_work work_of_reduction(const weir_collective *collective, const weir_collective_request *q)
{
    const uint32_t ranks = collective->device.ranks;
    const uint64_t own = q->count * weir_dtype_bytes(q->dtype);
    const bool scatters = q->kind == WEIR_REDUCE_SCATTER;
    weiri_work work = { .kind = q->kind,
                        .bytes = scatters ? own * ranks : own,
                        .piece = scatters ? own : longest_part(own, ranks) };
    work.direct = ranks == DIRECT_RANKS &&
                  (scatters || (q->kind == WEIR_ALLREDUCE && find_window(collective, q->recv, work.bytes) != NULL)) &&
                  find_window(collective, q->send, work.bytes) != NULL;
    return work;
}

/* Fills the description for *form, or the one that is chosen. */
static weir_status describe(weir_collective *collective, const char *name, const weir_collective_request *q, bool alone,
                            weir_collective_form *form, weir_collective_reduce *r, weir_shape *shape)
{
    const uint32_t ranks = collective->device.ranks;
    const bool scatters = q->kind == WEIR_REDUCE_SCATTER;
    weiri_work work = work_of_reduction(collective, q);
    work.alone = alone;
    weir_status status = weiri_collective_choose(collective, &work, name, form, shape);
    if (status != WEIR_OK) {
        return status;
    }
    if (!alone) {
        weiri_collective_log(collective, &work, name, *form, *shape);
    }
    const weiri_call call = weiri_call_of(q, *form, shape->blocks);
    memset(r, 0, sizeof *r);
    r->what.call = weiri_call_word(&call);
    r->what.count = q->count;
    r->send = (const char *)q->send;
    r->recv = (char *)q->recv;
    r->part = scatters ? work.piece : part_of(work.bytes, ranks, *form);
    r->length = r->part;
    r->bytes = work.bytes;
    r->chunk = chunk_of(collective, r->length, shape->blocks);
    if (!scatters) {
        r->to = q->kind == WEIR_REDUCE ? (uint32_t)1 << q->root : weir_collective_everyone(&collective->device);
    }
    if (*form == WEIR_FORM_SLOTS && q->kind == WEIR_ALLREDUCE && ranks == DIRECT_RANKS) {
        r->what.where = find_direct(collective, r->recv, work.bytes, r->direct);
    }
    return WEIR_OK;
}

/* Whether a reduction by slots reads the others' send directly, and then describes that. It is the slower way for much
 * data with many blocks, and among more ranks: loads reach 333 GB/s both ways on two H200, stores 365. */
static bool pulls(const weir_collective *collective, const weir_collective_request *q, weir_shape shape,
                  weir_collective_reduce *r)
{
    const bool scatters = q->kind == WEIR_REDUCE_SCATTER;
    if (collective->device.ranks != DIRECT_RANKS || (r->length >= PULL_MOST && shape.blocks >= PULL_BLOCKS) ||
        (!scatters && r->direct[0] == NULL)) {
        return false;
    }
    const uint64_t send = find_direct(collective, r->send, r->bytes, r->pull);
    /* One word for both: no two calls of a program are likely to share it. */
    r->what.where += send * 0x9e3779b97f4a7c15u;
    return send != 0;
}

static weir_status reduce(weir_collective *collective, const char *name, const weir_collective_request *q, void *stream)
{
    weiri_reduce_args args;
    weir_shape shape;
    weir_status status = check_call(collective, name, q->dtype, q->count);
    if (status == WEIR_OK) {
        status = check_reduction(collective, name, q);
    }
    if (status != WEIR_OK || delegate(collective, q, stream, &status)) {
        return status;
    }
    if (collective->rails.device.hosts > 1) {
        return weiri_hosts_call(collective, q, stream);
    }
    weir_collective_form form = collective->form;
    memset(&args, 0, sizeof args);
    status = describe(collective, name, q, false, &form, &args.reduce, &shape);
    if (status != WEIR_OK) {
        return status;
    }
    args.collective = handle_for(collective, &args.reduce.what);
    args.op = q->op;
    const uint32_t kernel = form == WEIR_FORM_SLOTS && pulls(collective, q, shape, &args.reduce)
                                ? WEIRI_REDUCE_DIRECT
                                : (uint32_t)form - WEIR_FORM_ONCE;
    return launch(collective, reduce_kernel(q->dtype, q->op, kernel), shape, &args, stream);
}

/* A form that is forced is that of such a step where it has room. */
static weir_status choose_step(weir_collective *collective, const weiri_work *work, weir_collective_form *form,
                               weir_shape *shape)
{
    *form = collective->form;
    weir_status status = weiri_collective_choose(collective, work, weiri_kind_names[work->kind], form, shape);
    if (status == WEIR_ERR_LIMIT) {
        *form = WEIR_FORM_SLOTS;
        status = weiri_collective_choose(collective, work, weiri_kind_names[work->kind], form, shape);
    }
    if (status == WEIR_OK) {
        weiri_collective_log(collective, work, weiri_kind_names[work->kind], *form, *shape);
    }
    return status;
}

weir_status weiri_collective_scatter(weir_collective *collective, const weir_collective_request *q,
                                     const weir_collective_reduce *pieces, void *stream)
{
    weiri_reduce_args args;
    weir_collective_form form;
    weir_shape shape;
    const weiri_work work = { .kind = WEIR_REDUCE_SCATTER, .bytes = pieces->bytes, .piece = pieces->length };
    weir_status status = choose_step(collective, &work, &form, &shape);
    if (status != WEIR_OK) {
        return status;
    }
    const weiri_call call = weiri_call_of(q, form, shape.blocks);
    memset(&args, 0, sizeof args);
    args.op = q->op;
    args.reduce = *pieces;
    args.reduce.what.call = weiri_call_word(&call);
    args.reduce.what.count = q->count;
    args.collective = handle_for(collective, &args.reduce.what);
    args.reduce.to = 0;
    args.reduce.chunk = chunk_of(collective, pieces->length, shape.blocks);
    return launch(collective, reduce_kernel(q->dtype, q->op, (uint32_t)form - WEIR_FORM_ONCE), shape, &args, stream);
}

weir_status weir_collective_describe(weir_collective *collective, const weir_collective_request *request,
                                     weir_collective_form form, weir_collective_reduce *out, weir_shape *shape)
{
    static const char name[] = "weir_collective_describe";
    if (request == NULL || out == NULL || shape == NULL) {
        return invalid(name, "NULL argument");
    }
    weir_status status = check_call(collective, name, request->dtype, request->count);
    if (status != WEIR_OK) {
        return status;
    }
    if (collective->rails.device.hosts > 1) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "%s: a kernel's reduction is one of a single host", name);
    }
    if ((uint32_t)request->kind > WEIR_REDUCE_SCATTER || form == WEIR_FORM_AUTO || (uint32_t)form > WEIR_FORM_SLOTS ||
        (form == WEIR_FORM_ONCE && request->kind == WEIR_REDUCE_SCATTER)) {
        return invalid(name, "not a reduction, or not a form of it");
    }
    status = check_reduction(collective, name, request);
    weir_collective_reduce reduction;
    weir_shape fit;
    if (status == WEIR_OK) {
        status = describe(collective, name, request, true, &form, &reduction, &fit);
    }
    if (status == WEIR_OK) {
        *out = reduction;
        *shape = fit;
    }
    return status;
}

weir_status weir_allreduce(weir_collective *collective, const void *send, void *recv, uint64_t count, weir_dtype dtype,
                           weir_op op, void *stream)
{
    const weir_collective_request q = { WEIR_ALLREDUCE, dtype, op, 0, count, send, recv };
    return reduce(collective, "weir_allreduce", &q, stream);
}

weir_status weir_reduce(weir_collective *collective, const void *send, void *recv, uint64_t count, weir_dtype dtype,
                        weir_op op, uint32_t root, void *stream)
{
    const weir_collective_request q = { WEIR_REDUCE, dtype, op, root, count, send, recv };
    return reduce(collective, "weir_reduce", &q, stream);
}

weir_status weir_reduce_scatter(weir_collective *collective, const void *send, void *recv, uint64_t count,
                                weir_dtype dtype, weir_op op, void *stream)
{
    const weir_collective_request q = { WEIR_REDUCE_SCATTER, dtype, op, 0, count, send, recv };
    return reduce(collective, "weir_reduce_scatter", &q, stream);
}

/* ---- moves ---------------------------------------------------------------------------------------------------- */

static weir_status check_move(const weir_collective *collective, const char *name, const weir_collective_request *q)
{
    const uint64_t bytes = q->count * weir_dtype_bytes(q->dtype);
    span send = { (const char *)q->send, bytes };
    span recv = { (const char *)q->recv, bytes };
    const char *place = send.data; /* where recv may be */
    if (q->kind == WEIR_BROADCAST) {
        weir_status status = check_rank(collective, name, q->root);
        if (status != WEIR_OK) {
            return status;
        }
        send.bytes = q->root == collective->rank ? bytes : 0;
    } else {
        recv.bytes *= collective->size;
    }
    if (q->kind == WEIR_ALL_TO_ALL) {
        send.bytes *= collective->size;
    } else if (q->kind == WEIR_ALLGATHER) {
        place = recv.data != NULL && send.data == recv.data + bytes * collective->rank ? recv.data : NULL;
    }
    return check_spans(collective, name, send, recv, place, weir_dtype_bytes(q->dtype));
}

/* Which piece of each operation is where. */
static void take_pieces(const weir_dev_collective *device, const weir_collective_request *q, weir_collective_move *m)
{
    const uint64_t piece = q->count * weir_dtype_bytes(q->dtype);
    const bool one_sends = q->kind == WEIR_BROADCAST;
    m->send = (const char *)q->send;
    m->recv = (char *)q->recv;
    m->most = piece;
    m->direct_at = one_sends ? 0 : piece * device->rank;
    for (uint32_t k = 0; k < device->ranks; k++) {
        m->send_at[k] = q->kind == WEIR_ALL_TO_ALL ? piece * k : 0;
        m->send_bytes[k] = one_sends && q->root != device->rank ? 0 : piece;
        m->recv_at[k] = one_sends ? 0 : piece * k;
        m->recv_bytes[k] = one_sends && q->root != k ? 0 : piece;
    }
}

/* The form is known, and all of the arguments but the handle and what is compared. */
static weir_status launch_move(const weir_collective *collective, weiri_call *call, weir_shape shape, uint64_t count,
                               weiri_move_args *args, void *stream)
{
    static const uint32_t kernels[] = { [WEIR_FORM_PACKETS] = WEIRI_MOVE_PACKETS,
                                        [WEIR_FORM_LINES] = WEIRI_MOVE_LINES,
                                        [WEIR_FORM_SLOTS] = WEIRI_MOVE_SLOTS };
    call->blocks = shape.blocks;
    const uint32_t columns = weir_slots_columns(shape.blocks);
    for (uint32_t k = 0; k < collective->device.ranks; k++) {
        args->move.send_range[k] = weir_slots_range(args->move.send_bytes[k], columns);
        args->move.recv_range[k] = weir_slots_range(args->move.recv_bytes[k], columns);
    }
    /* What there is most of, where pieces are of different sizes, only the rank itself knows. */
    args->move.chunk =
        args->move.counted ? collective->device.slot_bytes : chunk_of(collective, args->move.most, shape.blocks);
    args->move.what.call = weiri_call_word(call);
    args->move.what.count = count;
    args->collective = handle_for(collective, &args->move.what);
    return launch(collective, weiri_collective_kernels[kernels[call->form]], shape, args, stream);
}

static weiri_work work_of_move(const weir_collective *collective, const weir_collective_request *q)
{
    const uint64_t piece = q->count * weir_dtype_bytes(q->dtype);
    weiri_work work = { .kind = q->kind,
                        .piece = piece,
                        .bytes = piece * (q->kind == WEIR_BROADCAST ? 1 : collective->device.ranks) };
    work.direct = find_window(collective, q->recv, work.bytes) != NULL;
    return work;
}

static weir_status move(weir_collective *collective, const char *name, const weir_collective_request *q, void *stream)
{
    weiri_move_args args;
    weir_status status = check_call(collective, name, q->dtype, q->count);
    if (status == WEIR_OK) {
        status = check_move(collective, name, q);
    }
    if (status != WEIR_OK || delegate(collective, q, stream, &status)) {
        return status;
    }
    if (collective->rails.device.hosts > 1) {
        return weiri_hosts_call(collective, q, stream);
    }
    memset(&args, 0, sizeof args);
    take_pieces(&collective->device, q, &args.move);
    const weiri_work work = work_of_move(collective, q);
    weir_collective_form form = collective->form;
    weir_shape shape;
    status = weiri_collective_choose(collective, &work, name, &form, &shape);
    if (status != WEIR_OK) {
        return status;
    }
    weiri_collective_log(collective, &work, name, form, shape);
    weiri_call call = weiri_call_of(q, form, shape.blocks);
    /* There peers would overwrite what this rank has yet to send. */
    args.move.in_place = q->kind == WEIR_ALL_TO_ALL && q->send == q->recv;
    if (form == WEIR_FORM_SLOTS && !args.move.in_place && collective->device.ranks > 1) {
        args.move.what.where = find_direct(collective, args.move.recv, work.bytes, args.move.direct);
    }
    return launch_move(collective, &call, shape, q->count, &args, stream);
}

weir_status weiri_collective_pass(weir_collective *collective, const weir_collective_request *q,
                                  const weir_collective_move *pieces, void *stream)
{
    weiri_move_args args;
    weir_collective_form form;
    weir_shape shape;
    const weiri_work work = { .kind = WEIR_ALLGATHER,
                              .bytes = pieces->most * collective->device.ranks,
                              .piece = pieces->most };
    weir_status status = choose_step(collective, &work, &form, &shape);
    if (status != WEIR_OK) {
        return status;
    }
    weiri_call call = weiri_call_of(q, form, shape.blocks);
    memset(&args, 0, sizeof args);
    args.move = *pieces;
    return launch_move(collective, &call, shape, q->count, &args, stream);
}

weir_status weir_allgather(weir_collective *collective, const void *send, void *recv, uint64_t count, weir_dtype dtype,
                           void *stream)
{
    const weir_collective_request q = { WEIR_ALLGATHER, dtype, WEIR_SUM, 0, count, send, recv };
    return move(collective, "weir_allgather", &q, stream);
}

weir_status weir_broadcast(weir_collective *collective, const void *send, void *recv, uint64_t count, weir_dtype dtype,
                           uint32_t root, void *stream)
{
    const weir_collective_request q = { WEIR_BROADCAST, dtype, WEIR_SUM, root, count, send, recv };
    return move(collective, "weir_broadcast", &q, stream);
}

weir_status weir_all_to_all(weir_collective *collective, const void *send, void *recv, uint64_t count, weir_dtype dtype,
                            void *stream)
{
    const weir_collective_request q = { WEIR_ALL_TO_ALL, dtype, WEIR_SUM, 0, count, send, recv };
    return move(collective, "weir_all_to_all", &q, stream);
}

weir_status weir_collective_choose(weir_collective *collective, const weir_collective_request *request,
                                   weir_collective_form *form, weir_shape *shape)
{
    static const char name[] = "weir_collective_choose";
    if (request == NULL || form == NULL || shape == NULL) {
        return invalid(name, "NULL argument");
    }
    weir_status status = check_call(collective, name, request->dtype, request->count);
    if (status != WEIR_OK) {
        return status;
    }
    if ((uint32_t)request->kind > WEIR_ALL_TO_ALL) {
        return invalid(name, "unknown operation");
    }
    const bool reduces = request->kind <= WEIR_REDUCE_SCATTER;
    const weiri_work work = reduces ? work_of_reduction(collective, request) : work_of_move(collective, request);
    weir_collective_form chosen = collective->form;
    status = weiri_collective_choose(collective, &work, name, &chosen, shape);
    if (status == WEIR_OK) {
        *form = chosen;
    }
    return status;
}

/* Extents of one side as bytes, and where the last of them ends. */
static weir_status take_extents(const char *name, const weir_extent *extents, uint32_t ranks, uint32_t element,
                                uint64_t *at, uint64_t *bytes, uint64_t *end)
{
    const uint64_t most = BYTES_MOST / element / WEIR_COLLECTIVE_RANKS;
    if (extents == NULL) {
        return invalid(name, "no extents");
    }
    for (uint32_t k = 0; k < ranks; k++) {
        if (extents[k].at > most || extents[k].count > most) {
            return weiri_fail(WEIR_ERR_INVALID, "%s: %llu elements at %llu", name, (unsigned long long)extents[k].count,
                              (unsigned long long)extents[k].at);
        }
        at[k] = extents[k].at * element;
        bytes[k] = extents[k].count * element;
        *end = bytes[k] != 0 && at[k] + bytes[k] > *end ? at[k] + bytes[k] : *end;
    }
    return WEIR_OK;
}

weir_status weir_all_to_all_v(weir_collective *collective, const void *send, const weir_extent *sends, void *recv,
                              const weir_extent *recvs, weir_dtype dtype, void *stream)
{
    weiri_move_args args;
    memset(&args, 0, sizeof args);
    weir_collective_move *what = &args.move;
    span in = { (const char *)send, 0 };
    span out = { (const char *)recv, 0 };
    weir_status status = check_call(collective, "weir_all_to_all_v", dtype, 0);
    if (status != WEIR_OK) {
        return status;
    }
    if (collective->rails.device.hosts > 1) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "weir_all_to_all_v: between hosts there is none");
    }
    const weir_dev_collective *device = &collective->device;
    const uint32_t element = weir_dtype_bytes(dtype);
    status =
        take_extents("weir_all_to_all_v", sends, device->ranks, element, what->send_at, what->send_bytes, &in.bytes);
    if (status == WEIR_OK) {
        status = take_extents("weir_all_to_all_v", recvs, device->ranks, element, what->recv_at, what->recv_bytes,
                              &out.bytes);
    }
    if (status == WEIR_OK) {
        status = check_spans(collective, "weir_all_to_all_v", in, out, NULL, element);
    }
    if (status != WEIR_OK) {
        return status;
    }
    if (what->send_bytes[device->rank] != what->recv_bytes[device->rank]) {
        return invalid("weir_all_to_all_v", "this rank sends itself another count than it receives");
    }
    for (uint32_t k = 0; k < device->ranks; k++) {
        const span mine = { out.data + what->recv_at[k], what->recv_bytes[k] };
        for (uint32_t other = 0; other < k; other++) {
            const span theirs = { out.data + what->recv_at[other], what->recv_bytes[other] };
            if (!apart(mine, theirs)) {
                return weiri_fail(WEIR_ERR_INVALID, "weir_all_to_all_v: what ranks %u and %u send overlaps", other, k);
            }
        }
        what->most = what->send_bytes[k] > what->most ? what->send_bytes[k] : what->most;
        what->most = what->recv_bytes[k] > what->most ? what->recv_bytes[k] : what->most;
    }
    what->send = in.data;
    what->recv = (char *)recv;
    what->counted = 1;
    /* No rank knows what the others have to do: the form that needs no agreement, and all blocks. */
    weiri_call call = {
        .kind = WEIRI_ALL_TO_ALL_V, .dtype = dtype, .op = WEIRI_NO_OP, .root = WEIRI_NO_ROOT, .form = WEIR_FORM_SLOTS
    };
    const weiri_work work = { .kind = WEIR_ALL_TO_ALL };
    const uint32_t blocks = weiri_collective_most_blocks(collective, &work, WEIR_FORM_SLOTS);
    const weir_shape shape = { blocks, weiri_collective_threads(collective, WEIR_FORM_SLOTS, blocks) };
    if (collective->logged[WEIRI_ALL_TO_ALL_V] == 0) {
        collective->logged[WEIRI_ALL_TO_ALL_V] = 1u << WEIR_FORM_SLOTS;
        weiri_log(WEIR_LOG_INFO,
                  "weir_all_to_all_v of rank %u, %u ranks: form slots, %u blocks of %u threads: no other form works "
                  "where each rank knows its own counts alone",
                  collective->comm->rank, device->ranks, shape.blocks, shape.threads);
    }
    return launch_move(collective, &call, shape, 0, &args, stream);
}

/* ---- two ranks alone ------------------------------------------------------------------------------------------ */

static weir_status letter(weir_collective *collective, const char *name, const void *data, uint64_t count,
                          weir_dtype dtype, uint32_t peer, uint32_t kernel, void *stream)
{
    weiri_letter_args args;
    weir_status status = check_call(collective, name, dtype, count);
    if (status == WEIR_OK) {
        status = check_rank(collective, name, peer);
    }
    if (status != WEIR_OK) {
        return status;
    }
    const uint32_t first = collective->rank - collective->device.rank; /* of this host */
    if (peer == collective->rank) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: rank %u is this one", name, peer);
    }
    if (peer < first || peer >= first + collective->device.ranks) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "%s: rank %u is on another host", name, peer);
    }
    const span what = { (const char *)data, count * weir_dtype_bytes(dtype) };
    const char *which = kernel == WEIRI_LETTER_SEND ? "send" : "recv";
    status = check_span(collective, name, which, what, weir_dtype_bytes(dtype));
    if (status != WEIR_OK) {
        return status;
    }
    uint64_t blocks = (what.bytes + collective->device.letter_bytes - 1) / collective->device.letter_bytes;
    const uint32_t forced = collective->forced;
    const uint32_t room = collective->device.letter_blocks;
    const uint32_t most = forced != 0 && forced < room ? forced : room;
    blocks = blocks == 0 ? 1 : blocks < most ? blocks : most;
    weiri_call call = { .kind = WEIRI_LETTER, .dtype = dtype, .op = WEIRI_NO_OP, .root = WEIRI_NO_ROOT };
    call.blocks = (uint32_t)blocks;
    memset(&args, 0, sizeof args);
    args.letter.what.call = weiri_call_word(&call);
    args.letter.what.count = count;
    args.collective = handle_for(collective, &args.letter.what);
    args.letter.data = (char *)(uintptr_t)what.data;
    args.letter.bytes = what.bytes;
    args.letter.peer = peer - first;
    const weir_shape shape = { call.blocks, weiri_collective_threads(collective, WEIR_FORM_SLOTS, call.blocks) };
    return launch(collective, weiri_collective_kernels[kernel], shape, &args, stream);
}

weir_status weir_send(weir_collective *collective, const void *send, uint64_t count, weir_dtype dtype, uint32_t peer,
                      void *stream)
{
    return letter(collective, "weir_send", send, count, dtype, peer, WEIRI_LETTER_SEND, stream);
}

weir_status weir_recv(weir_collective *collective, void *recv, uint64_t count, weir_dtype dtype, uint32_t peer,
                      void *stream)
{
    return letter(collective, "weir_recv", recv, count, dtype, peer, WEIRI_LETTER_RECEIVE, stream);
}
