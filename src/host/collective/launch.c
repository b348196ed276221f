/* launch.c - finds the kernel of a step and launches it: the last file on the way of an operation.
 *
 * Callers (local.c, copies.c, rails.c, exchange.c, plan.c, parts_between.c) have filled the kernel's arguments, except
 * the collective's handle. The tables here name the kernel by type, operation and form. Every launch goes through
 * launch_ordered, which tells life.c of the stream and lets order.c put its events around the kernel. */
#include "src/host/collective/collective.h"

/* The kernels of a type: one for all operations, and one for sums if the type has it. */
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
    [WEIR_F8E4M3] = { weiri_collective_f8_kernels, WEIRI_F8E4M3, WEIRI_F8E4M3_SUM },
    [WEIR_F8E5M2] = { weiri_collective_f8_kernels, WEIRI_F8E5M2, WEIRI_F8E5M2_SUM },
    [WEIR_I8] = { weiri_collective_small_kernels, WEIRI_SMALL_I8, WEIRI_SMALL_I8 },
    [WEIR_U8] = { weiri_collective_small_kernels, WEIRI_SMALL_U8, WEIRI_SMALL_U8 },
    [WEIR_I32] = { weiri_collective_integer_kernels, WEIRI_INTEGER_I32, WEIRI_INTEGER_I32 },
    [WEIR_U32] = { weiri_collective_integer_kernels, WEIRI_INTEGER_U32, WEIRI_INTEGER_U32 },
    [WEIR_I64] = { weiri_collective_integer_kernels, WEIRI_INTEGER_I64, WEIRI_INTEGER_I64 },
    [WEIR_U64] = { weiri_collective_integer_kernels, WEIRI_INTEGER_U64, WEIRI_INTEGER_U64 },
};

/* Makes the kernel's handle from `from`. It holds the call, for the record of a failure. */
static void set_handle(const weir_collective *collective, const weir_dev_collective *from,
                       const weir_collective_what *what, weir_dev_collective *handle)
{
    *handle = *from;
    handle->generations = collective->device.generations;
    handle->factor = collective->device.factor;
    handle->call = what->call;
    handle->count = what->count;
}

/* The registrations that a step names, or all mappings, which its kernel checks. */
static uint64_t lives_named(const weir_collective *collective, const weiri_step *step)
{
    const uint64_t mappings = weiri_life_of_mappings(collective);
    const uint64_t send = step->send_shift.digest != 0 ? mappings : weiri_life_of(collective, step->send);
    const uint64_t recv = step->recv_shift.digest != 0 ? mappings : weiri_life_of(collective, step->recv);
    return send | recv << 32;
}

/* The same of a step that names them, but may not use them. */
static uint64_t lives_of(const weir_collective *collective, const weiri_step *step, const weir_collective_what *what)
{
    return what->where == 0 ? 0 : lives_named(collective, step);
}

weir_status weiri_launch_begin(const weir_collective *collective, void *stream)
{
    const weir_status status = weiri_life_use(collective, stream);
    return status == WEIR_OK ? weiri_order_begin(collective, stream) : status;
}

weir_status weiri_launch_end(const weir_collective *collective, void *stream)
{
    weiri_life_used(collective, stream);
    return weiri_order_end(collective, stream);
}

/* Launches the kernel in the order of the collective. */
static weir_status launch_ordered(const weir_collective *collective, const weir_kernel *kernel, weir_shape shape,
                                  const void *args, void *stream)
{
    weir_status status = weiri_launch_begin(collective, stream);
    if (status == WEIR_OK) {
        status = weir_launch(collective->comm->device, kernel, shape, args, NULL, stream);
    }
    return status == WEIR_OK ? weiri_launch_end(collective, stream) : status;
}

static weir_status launch(const weir_collective *collective, const weir_kernel *kernel, const weiri_step *step,
                          const void *args)
{
    const weir_shape shape = { step->call.blocks, step->threads };
    return launch_ordered(collective, kernel, shape, args, step->stream);
}

/* Launches a general kernel by lines, which may have fewer threads in a block than a kernel for two ranks. The ranks
 * then divide the lines among their blocks in different ways, so that all blocks of both must be resident at the same
 * time, as for slots. */
static weir_status launch_lines(const weir_collective *collective, const weir_kernel *kernel, const weiri_step *step,
                                const void *args)
{
    const uint32_t threads = step->threads < WEIRI_PACKET_THREADS ? step->threads : WEIRI_PACKET_THREADS;
    const weir_shape shape = { step->call.blocks, threads };
    return launch_ordered(collective, kernel, shape, args, step->stream);
}

/* Whether the kernel for two ranks can carry out a reduction by lines. The other rank may take the general one. */
static bool reduces_two(const weir_collective *collective, const weir_collective_reduce *r)
{
    return collective->device.ranks == 2 && r->to == 0 &&
           (((uintptr_t)r->send | (uintptr_t)r->recv | r->part | r->length | r->bytes) & 7) == 0;
}

/* The same of a move. */
static bool moves_two(const weir_collective *collective, const weir_collective_move *m)
{
    uint64_t places = (uintptr_t)m->send | (uintptr_t)m->recv;
    for (uint32_t k = 0; k < 2; k++) {
        const weir_collective_pieces *p = &m->pieces[k];
        places |= p->send.at | p->send.bytes | p->recv.at | p->recv.bytes;
    }
    return collective->device.ranks == 2 && (places & 7) == 0;
}

/* A type's place in the tables of kernels for sums, or WEIRI_SUM_TYPES if it has none. */
static uint32_t sum_type(uint32_t dtype)
{
    return dtype == WEIR_F32    ? WEIRI_SUM_F32
           : dtype == WEIR_F16  ? WEIRI_SUM_F16
           : dtype == WEIR_BF16 ? WEIRI_SUM_BF16
                                : WEIRI_SUM_TYPES;
}

/* Whether the kernels for sums with a factor carry the operation out. An average of 2, 4 or 8 ranks, or of one, is the
 * sum times a power of two, which has the bits of the quotient. */
static bool scales(const weir_collective *collective, uint32_t dtype, uint32_t op)
{
    const uint32_t ranks = collective->device.ranks;
    return sum_type(dtype) < WEIRI_SUM_TYPES &&
           (op == WEIR_SCALED_SUM || (op == WEIR_AVG && (ranks & (ranks - 1)) == 0));
}

bool weiri_launch_has_sums(const weir_collective *collective, uint32_t dtype, uint32_t op)
{
    return sum_type(dtype) < WEIRI_SUM_TYPES && (op == WEIR_SUM || scales(collective, dtype, op));
}

/* The place of a sum in tables that have the types without a factor, and then the same with one. */
static uint32_t sum_place(const weir_collective *collective, uint32_t dtype, uint32_t op)
{
    return (scales(collective, dtype, op) ? WEIRI_SUM_TYPES : 0) + sum_type(dtype);
}

/* Sets the factor of an average for kernels for sums with a factor. */
static void set_share(uint32_t op, weir_dev_collective *handle)
{
    if (op == WEIR_AVG) {
        const weir_dev_factor share = { .value = 1.0 / handle->ranks };
        handle->factor = share;
    }
}

/* The kernel for a sum of two ranks directly between buffers of users, or NULL if the general one carries the reduction
 * out. The other rank may take the other one. */
static const weir_kernel *summing_kernel(const weir_collective *collective, const weiri_step *step,
                                         const weir_collective_reduce *r)
{
    uint64_t places = (uintptr_t)r->recv | r->part;
    for (uint32_t k = 0; k < 2; k++) {
        places |= (uintptr_t)r->peer_send[k] | (uintptr_t)r->peer_recv[k];
    }
    if (collective->device.ranks != 2 || !weiri_launch_has_sums(collective, step->dtype, step->op) || r->chunk != 0 ||
        places % 16 != 0) {
        return NULL;
    }
    return weiri_collective_sums_kernels[sum_place(collective, step->dtype, step->op)];
}

/* The kernel of a form. */
static const weir_kernel *reducing_kernel(const weir_collective *collective, const weiri_step *step, uint32_t form)
{
    const reductions *of = &reductions_of[step->dtype];
    if (scales(collective, step->dtype, step->op)) {
        return weiri_collective_scaled_kernels[sum_type(step->dtype) * WEIRI_REDUCE_FORMS + form];
    }
    return of->kernels[(step->op == WEIR_SUM ? of->sum : of->any) * WEIRI_REDUCE_FORMS + form];
}

weir_status weiri_launch_reduce(const weir_collective *collective, const weiri_step *step, uint32_t kernel,
                                weiri_reduce_args *args)
{
    set_handle(collective, collective->now, &args->reduce.what, &args->collective);
    args->collective.lives = lives_of(collective, step, &args->reduce.what);
    args->op = step->op;
    set_share(step->op, &args->collective);
    const weir_kernel *sums = kernel == WEIRI_REDUCE_ZERO_COPY ? summing_kernel(collective, step, &args->reduce) : NULL;
    if (sums != NULL) {
        return launch(collective, sums, step, args);
    }
    if (kernel != WEIRI_REDUCE_LINES) {
        return launch(collective, reducing_kernel(collective, step, kernel), step, args);
    }
    return reduces_two(collective, &args->reduce)
               ? launch(collective, reducing_kernel(collective, step, WEIRI_REDUCE_TWO), step, args)
               : launch_lines(collective, reducing_kernel(collective, step, kernel), step, args);
}

/* Whether the kernel for two ranks can carry out a reduce_scatter of one part by lines. The other rank may take the
 * general one. */
static bool reduces_two_extents(const weir_collective *collective, const weiri_uneven_args *args)
{
    uint64_t places = (uintptr_t)args->reduce.send | (uintptr_t)args->reduce.recv;
    for (uint32_t k = 0; k < 2; k++) {
        places |= args->extents[k].at | args->extents[k].bytes;
    }
    return collective->device.ranks == 2 && (places & 7) == 0;
}

weir_status weiri_launch_uneven(const weir_collective *collective, const weiri_step *step, weiri_uneven_args *args)
{
    const weir_kernel *const *kernels =
        weiri_collective_uneven_kernels + sum_place(collective, step->dtype, step->op) * WEIRI_UNEVEN_FORMS;
    set_handle(collective, collective->now, &args->reduce.what, &args->collective);
    set_share(step->op, &args->collective);
    if (step->call.form == WEIR_FORM_PACKETS) {
        return launch(collective, kernels[WEIRI_UNEVEN_PACKETS], step, args);
    }
    return reduces_two_extents(collective, args) ? launch(collective, kernels[WEIRI_UNEVEN_TWO], step, args)
                                                 : launch_lines(collective, kernels[WEIRI_UNEVEN_LINES], step, args);
}

/* Whether few blocks move the same bytes to all ranks, into registered memory: their kernel has many registers. */
static bool spreads(const weiri_step *step, const weiri_move_args *args)
{
    const weir_collective_move *m = &args->move;
    return step->call.form == WEIR_FORM_SLOTS && m->peer_recv[args->collective.rank] != NULL && !m->counted &&
           weir_slots_columns(step->call.blocks) < WEIR_ZERO_COPY_MANY && step->threads <= WEIRI_FEW_THREADS &&
           weir_zero_copy_spreads(&args->collective, m);
}

weir_status weiri_launch_move(const weir_collective *collective, const weiri_step *step, weiri_move_args *args)
{
    static const uint32_t kernels[] = { [WEIR_FORM_PACKETS] = WEIRI_MOVE_PACKETS,
                                        [WEIR_FORM_LINES] = WEIRI_MOVE_LINES,
                                        [WEIR_FORM_SLOTS] = WEIRI_MOVE_SLOTS };
    set_handle(collective, collective->now, &args->move.what, &args->collective);
    args->collective.lives = lives_of(collective, step, &args->move.what);
    const uint32_t kernel = args->move.relay != 0
                                ? (step->call.form == WEIR_FORM_LINES ? WEIRI_RELAY_LINES : WEIRI_RELAY_SLOTS)
                            : spreads(step, args) ? WEIRI_SPREAD
                                                  : kernels[step->call.form];
    if (kernel != WEIRI_MOVE_LINES) {
        return launch(collective, weiri_collective_kernels[kernel], step, args);
    }
    return moves_two(collective, &args->move) ? launch(collective, weiri_collective_kernels[WEIRI_MOVE_TWO], step, args)
                                              : launch_lines(collective, weiri_collective_kernels[kernel], step, args);
}

weir_status weiri_launch_meet(const weir_collective *collective, const weiri_step *step, weiri_move_args *args)
{
    set_handle(collective, collective->now, &args->move.what, &args->collective);
    args->collective.lives = lives_of(collective, step, &args->move.what);
    return launch(collective, weiri_collective_kernels[WEIRI_COPIES_MEET], step, args);
}

weir_status weiri_launch_wait(const weir_collective *collective, const weiri_step *step,
                              const weir_collective_what *what, uint32_t ranks)
{
    weiri_copies_args args = { .ranks = ranks, .word = WEIR_COPIES_MOVED };
    set_handle(collective, collective->now, what, &args.collective);
    args.collective.lives = lives_of(collective, step, what);
    return launch(collective, weiri_collective_kernels[WEIRI_COPIES_WAIT], step, &args);
}

weir_status weiri_launch_wait_in(const weir_collective *collective, const weiri_step *step, uint32_t ranks,
                                 uint32_t word, void *stream)
{
    const weir_collective_what what = { weiri_call_word(&step->call), step->count, 0 };
    const weir_shape shape = { 1, collective->warps ? 32 : 1 };
    weiri_copies_args args = { .ranks = ranks, .word = word };
    set_handle(collective, &collective->device, &what, &args.collective);
    return weir_launch(collective->comm->device, weiri_collective_kernels[WEIRI_COPIES_WAIT], shape, &args, NULL,
                       stream);
}

weir_status weiri_launch_exchange(const weir_collective *collective, const weiri_step *step, uint32_t kernel,
                                  weiri_exchange_args *args)
{
    const weir_collective_what what = { weiri_call_word(&step->call), step->count, 0 };
    set_handle(collective, &collective->device, &what, &args->collective);
    args->collective.lives = lives_named(collective, step);
    return launch(collective, weiri_collective_exchange_kernels[kernel], step, args);
}

/* Whether most of this rank's data for its own sequence is misaligned, and aligning it pays: the blocks that align it
 * send less than that to the others. A split call has too few blocks that send. */
static bool aligns(const weir_collective_parts *p, uint32_t rank, uint32_t ranks)
{
    uint64_t misaligned = 0;
    uint64_t others = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        const weir_parts_piece piece = weir_parts_piece_of(p, i, rank, 1, WEIR_PARTS_UNIT);
        const bool sends = ((uintptr_t)piece.send & (WEIR_PARTS_UNIT - 1)) == 0;
        const bool receives = ((uintptr_t)piece.recv & (WEIR_PARTS_UNIT - 1)) == 0;
        misaligned += !sends && receives ? piece.bytes : 0;
    }
    for (uint32_t k = 0; k < ranks; k++) {
        others += k != rank ? p->of[k].bytes : 0;
    }
    return ranks > 1 && p->split == 0 && misaligned > p->of[rank].bytes / 2 && others < p->of[rank].bytes;
}

/* The kernel that joins the parts by lines or slots. */
static uint32_t joining_kernel(const weir_collective *collective, const weir_collective_parts *p, uint32_t form)
{
    static const uint32_t offset_of[] = { [WEIRI_SUM_F32] = WEIRI_PARTS_SUM_F32 - WEIRI_PARTS_SUM_F16,
                                          [WEIRI_SUM_F16] = 0,
                                          [WEIRI_SUM_BF16] = WEIRI_PARTS_SUM_BF16 - WEIRI_PARTS_SUM_F16 };
    const bool scaled = scales(collective, p->dtype, p->op);
    if (form == WEIR_FORM_PACKETS || !weiri_launch_has_sums(collective, p->dtype, p->op)) {
        return form == WEIR_FORM_PACKETS ? WEIRI_PARTS_REDUCE_PACKETS
               : form == WEIR_FORM_LINES ? WEIRI_PARTS_REDUCE_LINES
                                         : WEIRI_PARTS_REDUCE_SLOTS;
    }
    if (form == WEIR_FORM_LINES) {
        return offset_of[sum_type(p->dtype)] + (scaled ? WEIRI_PARTS_SCALED_LINES_F16 : WEIRI_PARTS_LINES_F16);
    }
    const bool misaligned = aligns(p, collective->device.rank, collective->device.ranks);
    return offset_of[sum_type(p->dtype)] + (misaligned ? WEIRI_PARTS_ALIGN_F16 : WEIRI_PARTS_SUM_F16) +
           (scaled ? WEIRI_PARTS_SCALED_F16 - WEIRI_PARTS_SUM_F16 : 0);
}

weir_status weiri_launch_parts(const weir_collective *collective, const weiri_step *step, weiri_parts_args *args)
{
    static const uint32_t gathers[] = { [WEIR_FORM_PACKETS] = WEIRI_PARTS_GATHER_PACKETS,
                                        [WEIR_FORM_LINES] = WEIRI_PARTS_GATHER_LINES,
                                        [WEIR_FORM_SLOTS] = WEIRI_PARTS_GATHER_SLOTS };
    const bool joins = step->call.kind == WEIRI_REDUCE_SCATTER_PARTS;
    const uint32_t kernel =
        joins ? joining_kernel(collective, &args->parts, step->call.form) : gathers[step->call.form];
    set_handle(collective, collective->now, &args->parts.what, &args->collective);
    args->collective.lives = lives_of(collective, step, &args->parts.what);
    set_share(args->parts.op, &args->collective);
    return launch(collective, weiri_collective_parts_kernels[kernel], step, args);
}

weir_status weiri_launch_rails(const weir_collective *collective, weir_shape shape, const weir_rail_step *step,
                               void *stream)
{
    const weiri_rail_args args = { collective->rails.device, *step };
    return launch_ordered(collective, weiri_collective_rails_kernels[WEIRI_RAIL], shape, &args, stream);
}

weir_status weiri_launch_average(const weir_collective *collective, weir_shape shape, weiri_average_args *args,
                                 void *stream)
{
    args->control = collective->rails.device.control;
    args->abandoned = collective->rails.device.abandoned;
    return launch_ordered(collective, weiri_collective_rails_kernels[WEIRI_AVERAGE], shape, args, stream);
}

weir_status weiri_launch_copy(const weir_collective *collective, weir_shape shape, weiri_copy_args *args, void *stream)
{
    args->control = collective->rails.device.control;
    args->abandoned = collective->rails.device.abandoned;
    return launch_ordered(collective, weiri_collective_rails_kernels[WEIRI_COPY], shape, args, stream);
}
