/* plan.c - the steps of an operation: one inside the host, or several inside it and over the rails.
 *
 * Between hosts, rank i of a host exchanges data only with rank i of the others. So each byte leaves a host once, and
 * all rails carry the same amount. A reduction first joins the data of the host's ranks, then that of the hosts. Data
 * between two steps stays in the hold of the rails, a chunk at a time. */
#include <string.h>

#include "src/host/base/log.h"
#include "src/host/collective/collective.h"

/* Reductions use registered memory between two ranks, and among more by few blocks. By more, slots are faster. */
#define PULL_RANKS 2u
#define PULL_BLOCKS 32u
/* From these blocks and bytes on, such an allreduce among more than two ranks is two steps. One kernel that loads from
 * peers and stores to them takes longer: four H200, 24 blocks, 64 MiB took 329 us, and take 314. */
#define TWO_STEPS_BLOCKS 16u
#define TWO_STEPS_BYTES ((uint64_t)32 << 20)
#define TWO_STEPS_CPU ((uint64_t)1 << 10)
#define APART_LEAST ((uint64_t)128 << 10) /* of a block */
#define UNIT 128u                         /* parts and chunks are multiples of this */
/* Up to this many bytes, every host sends all its data to every other, and each joins all: one trip instead of two. */
#define ONCE_BYTES 8192u

static const char between_hosts[] = "copy engines carry nothing between hosts";

/* ---- what a request asks for ----------------------------------------------------------------------------------- */

const weiri_team_memory *weiri_plan_registered(const weir_collective *collective, const void *data, uint64_t bytes)
{
    for (uint32_t i = 0; i < collective->registered_count; i++) {
        const weiri_team_memory *memory = &collective->registered[i];
        const uint64_t size = weir_memory_bytes(memory->local);
        const uint64_t offset = (uintptr_t)data - (uintptr_t)weir_memory_pointer(memory->local);
        if (bytes != 0 && offset < size && bytes <= size - offset) {
            return memory;
        }
    }
    return NULL;
}

bool weiri_plan_reduces_registered(const weir_collective *collective, uint32_t kind)
{
    const uint32_t limit = weiri_choice_limit(collective);
    return kind != WEIR_REDUCE && (collective->device.ranks == PULL_RANKS ||
                                   (collective->device.ranks > PULL_RANKS && limit != 0 && limit <= PULL_BLOCKS));
}

static bool reduces(const weir_collective_request *q) { return q->kind <= WEIR_REDUCE_SCATTER; }

/* Bytes of one rank's part of `bytes`, rounded to the unit of `form`. */
static uint64_t part_of(uint64_t bytes, uint32_t ranks, weir_collective_form form)
{
    const uint64_t unit = form == WEIR_FORM_LINES ? WEIR_LINE_DATA : UNIT;
    return ((bytes + ranks - 1) / ranks + unit - 1) / unit * unit;
}

/* The longest part that any form needs. */
static uint64_t longest_part(uint64_t bytes, uint32_t ranks)
{
    const uint64_t lines = part_of(bytes, ranks, WEIR_FORM_LINES);
    const uint64_t others = part_of(bytes, ranks, WEIR_FORM_SLOTS);
    return lines > others ? lines : others;
}

/* Describes a request inside the host for a choice. Sets the registered memories of *step. */
static weiri_work work_of(const weir_collective *collective, const weir_collective_request *q, weiri_step *step)
{
    const uint32_t ranks = collective->device.ranks;
    const uint64_t own = q->count * weir_dtype_bytes(q->dtype);
    const bool one = q->kind == WEIR_ALLREDUCE || q->kind == WEIR_REDUCE || q->kind == WEIR_BROADCAST;
    weiri_work work = { .kind = q->kind, .bytes = one ? own : own * ranks, .piece = own };
    work.in_place = q->kind == WEIR_ALL_TO_ALL && q->send == q->recv;
    work.sums = reduces(q) && weiri_launch_has_sums(collective, q->dtype, q->op);
    memset(step, 0, sizeof *step);
    if (q->kind == WEIR_GATHER || q->kind == WEIR_SCATTER) {
        /* Other ranks than the root may give no place in registered memory. Only copies demand it. */
        const uint64_t bytes = q->kind == WEIR_GATHER ? work.bytes : own;
        step->recv = weiri_plan_registered(collective, q->recv, bytes);
        work.copies = step->recv != NULL || bytes == 0;
        step->recv = collective->form == WEIR_FORM_COPIES ? step->recv : NULL;
    } else if (!reduces(q)) {
        step->recv = weiri_plan_registered(collective, q->recv, work.bytes);
        work.zero_copy = step->recv != NULL;
        work.copies = (step->recv != NULL || work.bytes == 0) && !work.in_place;
    } else if (weiri_plan_reduces_registered(collective, q->kind)) {
        step->send = weiri_plan_registered(collective, q->send, work.bytes);
        step->recv = one ? weiri_plan_registered(collective, q->recv, work.bytes) : NULL;
        work.zero_copy = step->send != NULL && (!one || step->recv != NULL);
    }
    if (reduces(q) && one) {
        work.piece = longest_part(own, ranks);
    } else if (q->kind == WEIR_BROADCAST && ranks >= WEIRI_RELAY_RANKS && collective->rails.device.hosts <= 1) {
        work.piece = longest_part(own, ranks - 1);
    }
    if (q->kind == WEIR_ALLREDUCE && collective->form == WEIR_FORM_COPIES) {
        work.copies = work.bytes == 0 || weiri_plan_registered(collective, q->recv, work.bytes) != NULL;
    }
    return work;
}

/* Whether a recorded call could go directly between ordinary buffers, and would then be by slots. The same on all
 * ranks. Without an SM limit reductions gain little, and some take longer. So do broadcasts that ranks pass on: four
 * H200, 24 blocks, 1 GiB took 3,805 us directly and 3,511 through slots. */
static bool gains_by_mapping(const weir_collective *collective, const char *name, const weir_collective_request *q,
                             const weiri_work *work)
{
    const uint32_t ranks = collective->device.ranks;
    const bool moves = q->kind == WEIR_ALLGATHER || (q->kind == WEIR_ALL_TO_ALL && !work->in_place) ||
                       (q->kind == WEIR_BROADCAST && ranks < WEIRI_RELAY_RANKS);
    const bool can = moves || (reduces(q) && weiri_choice_limit(collective) != 0 &&
                               weiri_plan_reduces_registered(collective, q->kind));
    weiri_work direct = *work;
    weir_collective_form form = collective->form;
    weir_shape shape;
    direct.zero_copy = true;
    return can && !work->zero_copy && work->bytes != 0 && ranks > 1 && form != WEIR_FORM_COPIES &&
           weiri_choose(collective, &direct, name, &form, &shape) == WEIR_OK && form == WEIR_FORM_SLOTS;
}

/* Lets a recorded call map its buffers. */
static weir_status map_recorded(weir_collective *collective, const char *name, const weir_collective_request *q,
                                weiri_work *work, weiri_step *step, void *stream)
{
    uint64_t recording = 0;
    weir_status status = weiri_stream_recording(collective->comm->device, stream, &recording);
    if (status == WEIR_OK && recording != 0 && gains_by_mapping(collective, name, q, work)) {
        status = weiri_map_buffers(collective, name, q, work->bytes, step);
        work->zero_copy = (!reduces(q) || step->send != NULL) && (q->kind == WEIR_REDUCE_SCATTER || step->recv != NULL);
    }
    return status;
}

static void fill_step(weiri_step *step, const weir_collective_request *q, weir_collective_form form, weir_shape shape,
                      void *stream)
{
    step->call = weiri_call_of(q, form, shape.blocks);
    step->count = q->count;
    step->dtype = (uint32_t)q->dtype;
    step->op = (uint32_t)q->op;
    step->threads = shape.threads;
    step->stream = stream;
}

/* Sets what the ranks compare. The step has its form and its blocks. */
static void set_call(weiri_step *step, const weiri_call *call, uint64_t count)
{
    const uint32_t form = step->call.form;
    const uint32_t blocks = step->call.blocks;
    step->call = *call;
    step->call.form = form;
    step->call.blocks = blocks;
    step->count = count;
}

/* Fills in the reduction of a request inside the host. The form is known. */
static void fill_reduce(const weir_collective *collective, const weir_collective_request *q, const weiri_work *work,
                        weir_collective_form form, weir_collective_reduce *r)
{
    const weir_dev_collective *device = &collective->device;
    r->send = (const char *)q->send;
    r->recv = (char *)q->recv;
    r->bytes = work->bytes;
    r->part = work->piece;
    if (q->kind != WEIR_REDUCE_SCATTER) {
        r->part = part_of(work->bytes, device->ranks, form);
        r->to = q->kind == WEIR_REDUCE ? (uint32_t)1 << q->root : weir_collective_everyone(device);
    }
    if (form == WEIR_FORM_LINES && weiri_choice_at_once(collective, work)) {
        r->part = 0;
        r->to = 0;
    }
    r->length = r->part != 0 ? r->part : work->bytes;
}

/* Fills in the pieces of a request inside the host, each of `piece` bytes. */
static void fill_move(const weir_collective *collective, const weir_collective_request *q, uint64_t piece,
                      weir_collective_move *m)
{
    const weir_dev_collective *device = &collective->device;
    const bool one_sends = q->kind == WEIR_BROADCAST || q->kind == WEIR_SCATTER;
    const bool one_receives = q->kind == WEIR_GATHER;
    const bool each_its_own = q->kind == WEIR_ALL_TO_ALL || q->kind == WEIR_SCATTER;
    m->send = (const char *)q->send;
    m->recv = (char *)q->recv;
    m->most = piece;
    m->peer_recv_at = one_sends ? 0 : piece * device->rank;
    m->in_place = q->kind == WEIR_ALL_TO_ALL && q->send == q->recv;
    for (uint32_t k = 0; k < device->ranks; k++) {
        m->pieces[k].send.at = each_its_own ? piece * k : 0;
        m->pieces[k].send.bytes = (one_sends && q->root != device->rank) || (one_receives && q->root != k) ? 0 : piece;
        m->pieces[k].recv.at = one_sends ? 0 : piece * k;
        m->pieces[k].recv.bytes = (one_sends && q->root != k) || (one_receives && q->root != device->rank) ? 0 : piece;
    }
}

/* Fills in the parts of a broadcast, which the ranks behind the root pass on. */
static void fill_relay(const weir_collective *collective, const weir_collective_request *q, weir_collective_form form,
                       uint64_t bytes, weir_collective_move *m)
{
    const uint32_t ranks = collective->device.ranks;
    m->send = (const char *)q->send;
    m->recv = (char *)q->recv;
    m->relay = 1 + q->root;
    m->most = part_of(bytes, ranks - 1, form);
    for (uint32_t k = 0; k < ranks; k++) {
        const uint64_t at = m->most * (k < q->root ? k : k - 1);
        const uint64_t left = at < bytes ? bytes - at : 0;
        m->pieces[k].recv.at = k == q->root ? 0 : at;
        m->pieces[k].recv.bytes = k == q->root ? bytes : left < m->most ? left : m->most;
        m->pieces[k].send.at = m->pieces[k].recv.at;
        m->pieces[k].send.bytes = m->pieces[k].recv.bytes;
    }
}

/* Divides `bytes` among ranks or hosts into parts of `length`. The last parts may be shorter or empty. */
typedef struct division {
    uint64_t bytes;
    uint64_t length;
} division;

static division divide(uint64_t bytes, uint32_t parts)
{
    const division d = { bytes, ((bytes + parts - 1) / parts + UNIT - 1) / UNIT * UNIT };
    return d;
}

static uint64_t part_bytes(const division *d, uint32_t part)
{
    const uint64_t at = part * d->length;
    const uint64_t left = at < d->bytes ? d->bytes - at : 0;
    return left < d->length ? left : d->length;
}

/* ---- inside one host ------------------------------------------------------------------------------------------- */

/* Joins this rank's part of the data into recv. *found has the registered memory of send, or none. In place, the second
 * step overwrites this part of the others' data. By slots the others' signals show that they have read it, and from
 * registered memory only this rank reads it; packets and lines have no signals. */
static weir_status join_part(const weir_collective *collective, const char *name, const weir_collective_request *q,
                             const division *parts, const weiri_step *found, void *stream)
{
    const weiri_work work = {
        .kind = WEIR_REDUCE_SCATTER, .bytes = parts->bytes, .piece = parts->length, .zero_copy = found->send != NULL
    };
    weir_collective_form form = WEIR_FORM_SLOTS;
    weir_shape shape;
    weiri_step step = { .send = found->send, .send_shift = found->send_shift };
    weiri_reduce_args args;
    const weir_status status = weiri_choose(collective, &work, name, &form, &shape);
    if (status != WEIR_OK) {
        return status;
    }
    fill_step(&step, q, form, shape, stream);
    memset(&args, 0, sizeof args);
    args.reduce.send = (const char *)q->send;
    args.reduce.recv = (char *)q->recv + collective->device.rank * parts->length;
    args.reduce.part = parts->length;
    args.reduce.length = parts->length;
    args.reduce.bytes = parts->bytes;
    return weiri_local_reduce(collective, &step, &args);
}

/* Gathers the parts that the ranks have joined. *found has the registered memory of recv. */
static weir_status gather_parts(const weir_collective *collective, const weir_collective_request *q,
                                const division *parts, const weiri_step *found, weir_collective_form form,
                                weir_shape shape, void *stream)
{
    const uint32_t rank = collective->device.rank;
    weiri_step step = { .recv = found->recv, .recv_shift = found->recv_shift };
    weiri_move_args args;
    weir_collective_move *m = &args.move;
    fill_step(&step, q, form, shape, stream);
    memset(&args, 0, sizeof args);
    m->recv = (char *)q->recv;
    m->send = m->recv + rank * parts->length;
    m->most = parts->length;
    m->peer_recv_at = rank * parts->length;
    for (uint32_t k = 0; k < collective->device.ranks; k++) {
        m->pieces[k].send.bytes = part_bytes(parts, rank);
        m->pieces[k].recv.at = k * parts->length;
        m->pieces[k].recv.bytes = part_bytes(parts, k);
    }
    return weiri_local_move(collective, &step, &args);
}

/* An allreduce by copies: kernels join each rank's part, and copies gather the parts. */
static weir_status allreduce_by_copies(const weir_collective *collective, const char *name,
                                       const weir_collective_request *q, weir_shape shape, void *stream)
{
    const division parts = divide(q->count * weir_dtype_bytes(q->dtype), collective->device.ranks);
    const weiri_step found = { .recv = weiri_plan_registered(collective, q->recv, parts.bytes) };
    const weir_status status = join_part(collective, name, q, &parts, &found, stream);
    return status != WEIR_OK ? status : gather_parts(collective, q, &parts, &found, WEIR_FORM_COPIES, shape, stream);
}

/* Whether an allreduce directly between buffers is two steps. */
static bool takes_two_steps(const weir_collective *collective, const weiri_work *work, weir_collective_form form,
                            uint32_t blocks)
{
    const bool much =
        collective->warps ? work->bytes >= TWO_STEPS_BYTES && blocks >= TWO_STEPS_BLOCKS : work->bytes >= TWO_STEPS_CPU;
    return work->kind == WEIR_ALLREDUCE && work->zero_copy && form == WEIR_FORM_SLOTS &&
           collective->device.ranks > PULL_RANKS && much;
}

/* Carries out such an allreduce. *found has the registered memories of send and recv. */
static weir_status allreduce_in_two(const weir_collective *collective, const char *name,
                                    const weir_collective_request *q, const weiri_step *found, void *stream)
{
    const division parts = divide(q->count * weir_dtype_bytes(q->dtype), collective->device.ranks);
    const weiri_work work = { .kind = WEIR_ALLGATHER,
                              .bytes = parts.length * collective->device.ranks,
                              .piece = parts.length,
                              .zero_copy = true };
    weir_collective_form form = WEIR_FORM_SLOTS;
    weir_shape shape;
    weir_status status = weiri_choose(collective, &work, name, &form, &shape);
    if (status == WEIR_OK) {
        status = join_part(collective, name, q, &parts, found, stream);
    }
    return status != WEIR_OK ? status : gather_parts(collective, q, &parts, found, form, shape, stream);
}

/* Whether the root of a reduce joins no part. Then it receives each byte of the result once, but the others join more,
 * and what they join takes longer to come. Four H200, 528 blocks: 16, 64 and 256 MiB took 77, 292 and 1,108 us with the
 * root, and 99, 303 and 904 without. By 16 to 32 blocks up to 1 GiB took at most 4 % less without, or longer. */
static bool leaves_root_out(const weir_collective *collective, const weiri_work *work, weir_collective_form form,
                            uint32_t blocks)
{
    return form == WEIR_FORM_SLOTS && collective->device.ranks >= WEIRI_RELAY_RANKS &&
           weiri_choice_limit(collective) == 0 && work->bytes > blocks * APART_LEAST;
}

/* `as` is NULL, or the call of which the operation is a part: the ranks then compare it, with the count `digest`. */
static weir_status run_inside(weir_collective *collective, const char *name, const weir_collective_request *q,
                              const weiri_call *as, uint64_t digest, void *stream)
{
    weiri_step step;
    weir_collective_form form;
    weir_shape shape;
    weiri_work work = work_of(collective, q, &step);
    weir_status status = collective->map.at != NULL ? map_recorded(collective, name, q, &work, &step, stream) : WEIR_OK;
    if (status == WEIR_OK) {
        status = weiri_grow_for(collective, name, &work, stream);
    }
    if (status == WEIR_OK) {
        status = weiri_choose_step(collective, &work, name, as != NULL, &form, &shape);
    }
    if (status != WEIR_OK) {
        return status;
    }
    status = form == WEIR_FORM_COPIES ? weiri_copies_check(collective, name, work.bytes, stream) : WEIR_OK;
    if (status != WEIR_OK) {
        return status;
    }
    if (reduces(q) && form == WEIR_FORM_COPIES) {
        return allreduce_by_copies(collective, name, q, shape, stream);
    }
    if (takes_two_steps(collective, &work, form, shape.blocks)) {
        return allreduce_in_two(collective, name, q, &step, stream);
    }
    fill_step(&step, q, form, shape, stream);
    if (as != NULL) {
        set_call(&step, as, digest);
    }
    if (reduces(q)) {
        weiri_reduce_args args;
        memset(&args, 0, sizeof args);
        fill_reduce(collective, q, &work, form, &args.reduce);
        if (q->kind == WEIR_REDUCE && leaves_root_out(collective, &work, form, shape.blocks)) {
            args.reduce.part = part_of(work.bytes, collective->device.ranks - 1, form);
            args.reduce.length = args.reduce.part;
            args.reduce.apart = 1 + q->root;
        }
        return weiri_local_reduce(collective, &step, &args);
    }
    weiri_move_args args;
    memset(&args, 0, sizeof args);
    const bool stages = form == WEIR_FORM_LINES || form == WEIR_FORM_SLOTS;
    if (q->kind == WEIR_BROADCAST && stages && collective->device.ranks >= WEIRI_RELAY_RANKS) {
        fill_relay(collective, q, form, work.bytes, &args.move);
    } else {
        fill_move(collective, q, q->count * weir_dtype_bytes(q->dtype), &args.move);
    }
    return weiri_local_move(collective, &step, &args);
}

weir_status weiri_plan_choose(const weir_collective *collective, const char *name, const weir_collective_request *q,
                              weir_collective_form *form, weir_shape *shape)
{
    weiri_step step;
    weiri_work work = work_of(collective, q, &step);
    work.device = collective->growth.possible ? &collective->growth.device : NULL;
    weir_collective_form chosen = collective->form;
    weir_status status =
        collective->rails.device.hosts > 1 ? weiri_refuse_copies(collective, name, between_hosts) : WEIR_OK;
    if (status == WEIR_OK) {
        status = weiri_choose(collective, &work, name, &chosen, shape);
    }
    if (status == WEIR_OK) {
        *form = chosen;
    }
    return status;
}

weir_status weiri_plan_describe(const weir_collective *collective, const char *name, const weir_collective_request *q,
                                weir_collective_form form, weir_collective_reduce *out, weir_shape *shape)
{
    weiri_step step;
    weir_shape fit;
    weiri_work work = work_of(collective, q, &step);
    work.alone = true;
    work.device = &collective->device;
    const weir_status status = weiri_choose(collective, &work, name, &form, &fit);
    if (status == WEIR_OK) {
        memset(out, 0, sizeof *out);
        fill_step(&step, q, form, fit, NULL);
        fill_reduce(collective, q, &work, form, out);
        weiri_local_describe(collective, &collective->device, &step, out);
        *shape = fit;
    }
    return status;
}

weir_status weiri_plan_all_to_all_v(weir_collective *collective, weiri_move_args *args, weir_dtype dtype, void *stream)
{
    static const char name[] = "weir_all_to_all_v";
    /* No rank knows how much the others exchange. So this takes the form that needs no agreement, and all blocks. */
    weir_status status = weiri_refuse_copies(collective, name, "copy engines carry no pieces of different sizes");
    if (status == WEIR_OK) {
        status = weiri_grow(collective, name, stream);
    }
    if (status != WEIR_OK) {
        return status;
    }
    const weiri_work work = { .kind = WEIR_ALL_TO_ALL };
    const uint32_t blocks = weiri_choice_most_blocks(collective, &work, WEIR_FORM_SLOTS);
    const weiri_step step = { .call = { .kind = WEIRI_ALL_TO_ALL_V,
                                        .dtype = dtype,
                                        .op = WEIRI_NO_OP,
                                        .root = WEIRI_NO_ROOT,
                                        .form = WEIR_FORM_SLOTS,
                                        .blocks = blocks },
                              .threads = weiri_choice_threads(collective, WEIR_FORM_SLOTS, blocks),
                              .stream = stream };
    if (collective->logged[WEIRI_ALL_TO_ALL_V] == 0) {
        collective->logged[WEIRI_ALL_TO_ALL_V] = 1u << WEIR_FORM_SLOTS;
        weiri_log(WEIR_LOG_INFO,
                  "weir_all_to_all_v of rank %u, %u ranks: form slots, %u blocks of %u threads: no other form works "
                  "where each rank knows only its own counts",
                  collective->comm->rank, collective->device.ranks, blocks, step.threads);
    }
    return weiri_local_move(collective, &step, args);
}

/* ---- between hosts --------------------------------------------------------------------------------------------- */

typedef struct hosts_call {
    weir_collective *collective;
    const weir_collective_request *q;
    weiri_call call; /* what the ranks compare, with the form and the blocks of each step */
    uint64_t count;  /* with this number, that of the elements or a digest */
    void *stream;
    const char *send;
    char *recv;
    uint64_t bytes; /* of q->count elements */
    uint32_t rank;  /* this rank's place on the host, of `ranks` */
    uint32_t ranks;
    uint32_t host; /* this host's place, of `hosts` */
    uint32_t hosts;
    weir_dtype dtype; /* what a reduction joins */
    weir_op op;
    char *hold; /* memory for data between two steps */
    uint64_t hold_bytes;
} hosts_call;

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* The longest chunk of which the hold has room for `parts`. */
static uint64_t chunk_bytes(const hosts_call *h, uint32_t parts) { return h->hold_bytes / parts / UNIT * UNIT; }

/* Calls `chunk` for at most `most` bytes of the data at a time, and once if there is no data. */
static weir_status in_chunks(const hosts_call *h, uint64_t most,
                             weir_status (*chunk)(const hosts_call *h, uint64_t at, uint64_t bytes))
{
    uint64_t at = 0;
    weir_status status;
    do {
        status = chunk(h, at, least(most, h->bytes - at));
        at += most;
    } while (status == WEIR_OK && at < h->bytes);
    return status;
}

static uint64_t all_hosts(const hosts_call *h) { return UINT64_MAX >> (WEIR_COLLECTIVE_HOSTS - h->hosts); }

/* ---- steps -------------------------------------------------------------------------------------------------- */

/* A step of all hosts with pieces of `part` bytes, which lie `send_step` apart in send and `recv_step` in recv. */
static weir_rail_step equal_pieces(const hosts_call *h, const char *send, uint64_t send_step, char *recv,
                                   uint64_t recv_step, uint64_t part)
{
    weir_rail_step s;
    memset(&s, 0, sizeof s);
    s.send = send;
    s.recv = recv;
    s.part = part;
    s.from = all_hosts(h);
    s.to = s.from;
    for (uint32_t k = 0; k < h->hosts; k++) {
        const weir_rail_piece piece = { k * send_step, k * recv_step, part };
        s.pieces[k] = piece;
    }
    return s;
}

/* The step inside the host has multiplied by the factor, if the host has several ranks. */
static weir_status over_rails(const hosts_call *h, weir_rail_step *s)
{
    s->dtype = h->dtype;
    s->op = h->op == WEIR_SCALED_SUM && h->ranks > 1 ? WEIR_SUM : h->op;
    return weiri_rails_run(h->collective, h->call, h->count, s, h->stream);
}

/* Chooses the form of a step inside the host that is one of several steps. */
static weir_status choose_inside(const hosts_call *h, uint32_t kind, uint64_t bytes, uint64_t piece, weiri_step *step)
{
    const weiri_work work = { .kind = kind, .bytes = bytes, .piece = piece };
    weir_collective_form form;
    weir_shape shape;
    weir_status status = weiri_choose_step(h->collective, &work, weiri_kind_names[kind], true, &form, &shape);
    if (status == WEIR_OK) {
        fill_step(step, h->q, form, shape, h->stream);
        set_call(step, &h->call, h->count);
        step->dtype = (uint32_t)h->dtype;
        step->op = (uint32_t)h->op;
    }
    return status;
}

/* Moves pieces from each rank of the host to each. */
static weir_status exchange_inside(const hosts_call *h, weiri_move_args *args)
{
    weiri_step step = { .send = NULL };
    const weir_status status = choose_inside(h, WEIR_ALLGATHER, args->move.most * h->ranks, args->move.most, &step);
    return status == WEIR_OK ? weiri_local_move(h->collective, &step, args) : status;
}

/* Joins `bytes` at `from` of all hosts. Each host joins its part, and the hosts in `spread` get all parts at `into`.
 * Other hosts have room at `into` for their part. */
static weir_status join_hosts(const hosts_call *h, const char *from, char *into, uint64_t bytes, uint64_t spread)
{
    const division parts = divide(bytes, h->hosts);
    const bool once = spread == all_hosts(h) && bytes <= ONCE_BYTES;
    const uint64_t step = once ? 0 : parts.length;
    weir_rail_step s = equal_pieces(h, from, step, into, step, once ? bytes : parts.length);
    s.scatter = 1;
    s.joins = 1;
    if (!once) {
        s.spread = spread;
        for (uint32_t k = 0; k < h->hosts; k++) {
            s.pieces[k].bytes = part_bytes(&parts, k);
        }
    }
    return over_rails(h, &s);
}

/* Joins `bytes` at `from` of all ranks of the host, in parts of `length` that lie `step_bytes` apart. Each rank joins
 * its own part. */
static weir_status scatter_inside(const hosts_call *h, const char *from, char *into, uint64_t step_bytes,
                                  uint64_t length, uint64_t bytes)
{
    weiri_step step = { .send = NULL };
    weiri_reduce_args args;
    weir_status status = choose_inside(h, WEIR_REDUCE_SCATTER, bytes, length, &step);
    if (status != WEIR_OK) {
        return status;
    }
    memset(&args, 0, sizeof args);
    args.reduce.send = from;
    args.reduce.recv = into;
    args.reduce.part = step_bytes;
    args.reduce.length = length;
    args.reduce.bytes = bytes;
    return weiri_local_reduce(h->collective, &step, &args);
}

/* Each rank of the host sends its part to the ranks in `to`, which then have all parts at `into`. */
static weir_status gather_inside(const hosts_call *h, const char *from, char *into, const division *parts, uint32_t to)
{
    weiri_move_args args;
    memset(&args, 0, sizeof args);
    args.move.send = from;
    args.move.recv = into;
    args.move.most = parts->length;
    for (uint32_t k = 0; k < h->ranks; k++) {
        args.move.pieces[k].send.bytes = (to >> k & 1) != 0 ? part_bytes(parts, h->rank) : 0;
        args.move.pieces[k].recv.at = k * parts->length;
        args.move.pieces[k].recv.bytes = (to >> h->rank & 1) != 0 ? part_bytes(parts, k) : 0;
    }
    return exchange_inside(h, &args);
}

static uint32_t all_ranks(const hosts_call *h) { return ((uint32_t)1 << h->ranks) - 1; }

/* ---- operations --------------------------------------------------------------------------------------------- */

static weir_status allreduce(const hosts_call *h)
{
    if (h->ranks == 1) {
        return join_hosts(h, h->send, h->recv, h->bytes, all_hosts(h));
    }
    const division parts = divide(h->bytes, h->ranks);
    char *mine = h->recv + h->rank * parts.length;
    weir_status status = scatter_inside(h, h->send, mine, parts.length, parts.length, h->bytes);
    if (status == WEIR_OK) {
        status = join_hosts(h, mine, mine, part_bytes(&parts, h->rank), all_hosts(h));
    }
    return status == WEIR_OK ? gather_inside(h, mine, h->recv, &parts, all_ranks(h)) : status;
}

/* Reduces the chunk of `bytes` at offset `at`. */
static weir_status reduce_chunk(const hosts_call *h, uint64_t at, uint64_t bytes)
{
    char *hold = h->hold;
    const uint32_t root = h->q->root % h->ranks;
    const uint32_t root_host = h->q->root / h->ranks;
    const uint64_t spread = (uint64_t)1 << root_host;
    if (h->ranks == 1) {
        return join_hosts(h, h->send + at, h->host == root_host ? h->recv + at : hold, bytes, spread);
    }
    const division parts = divide(bytes, h->ranks);
    weir_status status = scatter_inside(h, h->send + at, hold, parts.length, parts.length, bytes);
    if (status == WEIR_OK) {
        status = join_hosts(h, hold, hold, part_bytes(&parts, h->rank), spread);
    }
    return status == WEIR_OK && h->host == root_host
               ? gather_inside(h, hold, h->rank == root ? h->recv + at : hold, &parts, (uint32_t)1 << root)
               : status;
}

static weir_status reduce(const hosts_call *h) { return in_chunks(h, chunk_bytes(h, 1) * h->ranks, reduce_chunk); }

static weir_status reduce_scatter_chunk(const hosts_call *h, uint64_t at, uint64_t bytes)
{
    char *hold = h->hold;
    const uint64_t host_bytes = h->bytes * h->ranks;
    const uint64_t step = (bytes + UNIT - 1) / UNIT * UNIT;
    weir_rail_step s = equal_pieces(h, hold, step, h->recv + at, 0, bytes);
    weir_status status = WEIR_OK;
    for (uint32_t k = 0; k < h->hosts && status == WEIR_OK; k++) {
        status = scatter_inside(h, h->send + k * host_bytes + at, hold + k * step, h->bytes, bytes, host_bytes - at);
    }
    s.scatter = 1;
    s.joins = 1;
    return status == WEIR_OK ? over_rails(h, &s) : status;
}

static weir_status reduce_scatter(const hosts_call *h)
{
    if (h->ranks == 1) {
        weir_rail_step s = equal_pieces(h, h->send, h->bytes, h->recv, 0, h->bytes);
        s.scatter = 1;
        s.joins = 1;
        return over_rails(h, &s);
    }
    return in_chunks(h, chunk_bytes(h, h->hosts), reduce_scatter_chunk);
}

/* ---- averages of integers -------------------------------------------------------------------------------------- */

static weir_status run_average(const hosts_call *h, weiri_average_args *args)
{
    const weiri_rails *rails = &h->collective->rails;
    const uint64_t needed = (args->count + rails->threads - 1) / rails->threads;
    const weir_shape shape = { (uint32_t)least(needed, rails->device.blocks), rails->threads };
    weiri_call call = h->call;
    call.blocks = shape.blocks;
    args->what.call = weiri_call_word(&call);
    args->what.count = h->count;
    args->dtype = (uint32_t)h->q->dtype;
    return args->count == 0 ? WEIR_OK : weiri_launch_average(h->collective, shape, args, h->stream);
}

static weir_status sum_of_kind(const hosts_call *h)
{
    return h->q->kind == WEIR_ALLREDUCE ? allreduce(h) : h->q->kind == WEIR_REDUCE ? reduce(h) : reduce_scatter(h);
}

/* A partial sum may not fit the type. So the elements become words of 64 bits in the first half of the hold, are added
 * there, and the sum is divided once, as inside a host. */
static weir_status average_chunk(const hosts_call *h, uint64_t at, uint64_t bytes)
{
    const uint32_t element = weir_dtype_bytes(h->q->dtype);
    const uint64_t half = h->hold_bytes / 2 / UNIT * UNIT;
    const bool scatters = h->q->kind == WEIR_REDUCE_SCATTER;
    const uint64_t count = bytes / element;
    const uint64_t row = count * 8;
    hosts_call sum = *h;
    weiri_average_args args;
    sum.send = h->hold;
    sum.recv = h->hold + (scatters ? h->collective->rank * row : 0);
    sum.bytes = row;
    sum.dtype = WEIR_I64;
    sum.op = WEIR_SUM;
    sum.hold += half;
    sum.hold_bytes = half;
    memset(&args, 0, sizeof args);
    args.from = h->send + at;
    args.to = h->hold;
    args.from_step = h->bytes;
    args.to_step = row;
    args.rows = scatters ? h->collective->size : 1;
    args.count = count;
    weir_status status = run_average(h, &args);
    if (status == WEIR_OK) {
        status = sum_of_kind(&sum);
    }
    if (status != WEIR_OK || (h->q->kind == WEIR_REDUCE && h->q->root != h->collective->rank)) {
        return status;
    }
    args.from = sum.recv;
    args.to = h->recv + at;
    args.rows = 1;
    args.divisor = h->collective->size;
    return run_average(h, &args);
}

static weir_status average(const hosts_call *h)
{
    const uint64_t words = h->hold_bytes / 2 / UNIT * UNIT / 8;
    const uint64_t rows = h->q->kind == WEIR_REDUCE_SCATTER ? h->collective->size : 1;
    return in_chunks(h, words / rows * weir_dtype_bytes(h->q->dtype), average_chunk);
}

/* ---- moves ------------------------------------------------------------------------------------------------------ */

static weir_status allgather(const hosts_call *h)
{
    const uint64_t host_bytes = h->bytes * h->ranks;
    const division parts = { host_bytes, h->bytes };
    weir_rail_step s = equal_pieces(h, h->send, 0, h->recv + h->rank * h->bytes, host_bytes, h->bytes);
    weir_status status = over_rails(h, &s);
    for (uint32_t k = 0; k < h->hosts && h->ranks > 1 && status == WEIR_OK; k++) {
        char *of_host = h->recv + k * host_bytes;
        status = gather_inside(h, of_host + h->rank * h->bytes, of_host, &parts, all_ranks(h));
    }
    return status;
}

static weir_status broadcast(const hosts_call *h)
{
    const uint32_t root = h->q->root % h->ranks;
    const uint32_t root_host = h->q->root / h->ranks;
    const division parts = divide(h->bytes, h->ranks);
    const uint64_t at = h->rank * parts.length;
    const char *from = h->recv + at;
    weir_status status = WEIR_OK;
    if (h->ranks == 1) {
        from = h->host == root_host ? h->send : h->recv;
    } else if (h->host == root_host) {
        weiri_move_args args;
        memset(&args, 0, sizeof args);
        args.move.send = h->send;
        args.move.recv = h->recv;
        args.move.most = h->bytes;
        for (uint32_t k = 0; k < h->ranks; k++) {
            args.move.pieces[k].send.bytes = h->rank == root ? h->bytes : 0;
            args.move.pieces[k].recv.bytes = k == root ? h->bytes : 0;
        }
        status = exchange_inside(h, &args);
    }
    weir_rail_step s = equal_pieces(h, from, 0, h->recv + at, 0, part_bytes(&parts, h->rank));
    s.from = (uint64_t)1 << root_host;
    status = status == WEIR_OK ? over_rails(h, &s) : status;
    return status == WEIR_OK && h->ranks > 1 && h->host != root_host
               ? gather_inside(h, h->recv + at, h->recv, &parts, all_ranks(h))
               : status;
}

/* Moves what came over the rails to its places in recv, in pieces of `bytes` between the host's ranks. */
static weir_status swap_inside(const hosts_call *h, const char *from, char *into, uint64_t bytes)
{
    weiri_move_args args;
    memset(&args, 0, sizeof args);
    args.move.send = from;
    args.move.recv = into;
    args.move.most = bytes;
    for (uint32_t k = 0; k < h->ranks; k++) {
        args.move.pieces[k].send.at = k * bytes;
        args.move.pieces[k].send.bytes = bytes;
        args.move.pieces[k].recv.at = k * h->bytes;
        args.move.pieces[k].recv.bytes = bytes;
    }
    return exchange_inside(h, &args);
}

/* The rails come first: an operation in place would otherwise overwrite data that is not sent yet. */
static weir_status all_to_all_chunk(const hosts_call *h, uint64_t at, uint64_t bytes)
{
    char *hold = h->hold;
    const uint64_t host_bytes = h->bytes * h->ranks;
    const uint64_t held = bytes * h->ranks;                 /* bytes of one host in the hold */
    const uint32_t rows = bytes == h->bytes ? 1 : h->ranks; /* whole pieces of a host lie one after the other */
    weir_status status = WEIR_OK;
    for (uint32_t k = 0; k < rows && status == WEIR_OK; k++) {
        weir_rail_step s =
            equal_pieces(h, h->send + k * h->bytes + at, host_bytes, hold + k * bytes, held, held / rows);
        s.scatter = 1;
        status = over_rails(h, &s);
    }
    for (uint32_t k = 0; k < h->hosts && status == WEIR_OK; k++) {
        status = swap_inside(h, hold + k * held, h->recv + k * host_bytes + at, bytes);
    }
    return status;
}

static weir_status all_to_all(const hosts_call *h)
{
    if (h->ranks == 1) {
        weir_rail_step s = equal_pieces(h, h->send, h->bytes, h->recv, h->bytes, h->bytes);
        s.scatter = 1;
        return over_rails(h, &s);
    }
    return in_chunks(h, chunk_bytes(h, h->hosts * h->ranks), all_to_all_chunk);
}

/* Gathers the chunk of `bytes` at offset `at` of each rank's data: rank i of each host sends it to rank i of the root's
 * host. */
static weir_status gather_chunk(const hosts_call *h, uint64_t at, uint64_t bytes)
{
    char *hold = h->hold;
    const uint32_t root = h->q->root % h->ranks;
    const uint32_t root_host = h->q->root / h->ranks;
    const uint64_t held = (bytes + UNIT - 1) / UNIT * UNIT;
    weir_rail_step s = equal_pieces(h, h->send + at, 0, hold, held, bytes);
    s.to = (uint64_t)1 << root_host;
    weir_status status = over_rails(h, &s);
    for (uint32_t k = 0; k < h->hosts && h->host == root_host && status == WEIR_OK; k++) {
        weiri_move_args args;
        memset(&args, 0, sizeof args);
        args.move.send = hold + k * held;
        args.move.recv = weiri_offset(h->recv, k * h->ranks * h->bytes + at); /* of the root */
        args.move.most = bytes;
        args.move.pieces[root].send.bytes = bytes;
        for (uint32_t from = 0; from < h->ranks; from++) {
            args.move.pieces[from].recv.at = from * h->bytes;
            args.move.pieces[from].recv.bytes = h->rank == root ? bytes : 0;
        }
        status = exchange_inside(h, &args);
    }
    return status;
}

static weir_status gather(const hosts_call *h)
{
    if (h->ranks == 1) {
        weir_rail_step s = equal_pieces(h, h->send, 0, h->recv, h->bytes, h->bytes);
        s.to = (uint64_t)1 << h->q->root;
        return over_rails(h, &s);
    }
    return in_chunks(h, chunk_bytes(h, h->hosts), gather_chunk);
}

/* Scatters the chunk of `bytes` at offset `at` of each rank's data: rank i of the root's host sends it to rank i of
 * each host. */
static weir_status scatter_chunk(const hosts_call *h, uint64_t at, uint64_t bytes)
{
    char *hold = h->hold;
    const uint32_t root = h->q->root % h->ranks;
    const uint32_t root_host = h->q->root / h->ranks;
    const uint64_t held = (bytes + UNIT - 1) / UNIT * UNIT;
    weir_status status = WEIR_OK;
    for (uint32_t k = 0; k < h->hosts && h->host == root_host && status == WEIR_OK; k++) {
        weiri_move_args args;
        memset(&args, 0, sizeof args);
        args.move.send = weiri_offset(h->send, k * h->ranks * h->bytes + at); /* of the root */
        args.move.recv = hold + k * held;
        args.move.most = bytes;
        args.move.pieces[root].recv.bytes = bytes;
        for (uint32_t to = 0; to < h->ranks; to++) {
            args.move.pieces[to].send.at = to * h->bytes;
            args.move.pieces[to].send.bytes = h->rank == root ? bytes : 0;
        }
        status = exchange_inside(h, &args);
    }
    weir_rail_step s = equal_pieces(h, hold, held, h->recv + at, 0, bytes);
    s.scatter = 1;
    s.from = (uint64_t)1 << root_host;
    return status == WEIR_OK ? over_rails(h, &s) : status;
}

static weir_status scatter(const hosts_call *h)
{
    if (h->ranks == 1) {
        weir_rail_step s = equal_pieces(h, h->send, h->bytes, h->recv, 0, h->bytes);
        s.scatter = 1;
        s.from = (uint64_t)1 << h->q->root;
        return over_rails(h, &s);
    }
    return in_chunks(h, chunk_bytes(h, h->hosts), scatter_chunk);
}

/* `as` as for run_inside. */
static weir_status run_between(weir_collective *collective, const char *name, const weir_collective_request *q,
                               const weiri_call *as, uint64_t digest, void *stream)
{
    weiri_step step;
    const weir_status refused = weiri_refuse_copies(collective, name, between_hosts);
    if (refused != WEIR_OK) {
        return refused;
    }
    const weiri_work work = work_of(collective, q, &step);
    const bool averages = reduces(q) && q->op == WEIR_AVG && q->dtype > WEIR_F8E5M2 && collective->device.ranks > 1;
    const uint64_t widened = averages ? 8 / weir_dtype_bytes(q->dtype) : 1; /* see average_chunk */
    const weir_status grown = weiri_grow_between(collective, name, work.piece * widened, stream);
    if (grown != WEIR_OK) {
        return grown;
    }
    const hosts_call h = {
        .collective = collective,
        .q = q,
        .call = as != NULL ? *as : weiri_call_of(q, WEIR_FORM_AUTO, 0),
        .count = as != NULL ? digest : q->count,
        .stream = stream,
        .send = (const char *)q->send,
        .recv = (char *)q->recv,
        .bytes = q->count * weir_dtype_bytes(q->dtype),
        .rank = collective->device.rank,
        .ranks = collective->device.ranks,
        .host = collective->rails.device.host,
        .hosts = collective->rails.device.hosts,
        .dtype = q->dtype,
        .op = q->op,
        .hold = collective->rails.hold,
        .hold_bytes = collective->rails.hold_bytes,
    };
    weiri_rails_log(collective, as != NULL ? as->kind : q->kind);
    if (averages) {
        return average(&h);
    }
    switch (q->kind) {
    case WEIR_ALLREDUCE:
        return allreduce(&h);
    case WEIR_REDUCE:
        return reduce(&h);
    case WEIR_REDUCE_SCATTER:
        return reduce_scatter(&h);
    case WEIR_ALLGATHER:
        return allgather(&h);
    case WEIR_BROADCAST:
        return broadcast(&h);
    case WEIR_GATHER:
        return gather(&h);
    case WEIR_SCATTER:
        return scatter(&h);
    default:
        return all_to_all(&h);
    }
}

weir_status weiri_plan_run(weir_collective *collective, const char *name, const weir_collective_request *q,
                           const weiri_call *as, uint64_t digest, void *stream)
{
    return collective->rails.device.hosts > 1 ? run_between(collective, name, q, as, digest, stream)
                                              : run_inside(collective, name, q, as, digest, stream);
}
