/* parts_inside.c - parts among the ranks of a host: divides them among launches, and describes each launch for its
 * kernel (include/weir/device/impl/collective_parts.h).
 *
 * A launch takes as many parts as its arguments have room for. Most rows are narrow: 32 bits for an offset and for a
 * place. Offsets from 4 Gi elements on, and more than 4 GiB of one rank in one launch, make the rows of a launch wide.
 *
 * Each launch carries the digest of all parts of the call, which the ranks compare. A launch of one extent alone is a
 * broadcast, or (by slots) a reduce.
 *
 * The longest extent of a part takes the longest: as a part it goes from its rank to each other one over the same link.
 * So the only part of a call is cut where its extents differ much (find_cut). The rest of each longer extent goes as a
 * broadcast or a reduce, of which all ranks pass on, or join, some. */
#include <string.h>

#include "src/host/collective/collective.h"

#define PARTS_NAMED_MOST 0xfffeu /* the word that ranks compare has 16 bits for the number of parts */

/* ---- parts ------------------------------------------------------------------------------------------------------- */

uint64_t weiri_parts_end(const weir_part *part, uint32_t ranks)
{
    uint64_t end = 0;
    for (uint32_t k = 0; k < ranks; k++) {
        const weir_extent extent = part->extents[k];
        end = extent.count != 0 && extent.at + extent.count > end ? extent.at + extent.count : end;
    }
    return end * weir_dtype_bytes(part->dtype);
}

weiri_call weiri_parts_call_of(const weiri_parts *call)
{
    const weiri_call of = { .kind = call->joins ? WEIRI_REDUCE_SCATTER_PARTS : WEIRI_ALLGATHER_PARTS,
                            .op = call->joins ? (uint32_t)call->op : WEIRI_NO_OP,
                            .root = call->all < PARTS_NAMED_MOST ? call->all : PARTS_NAMED_MOST };
    return of;
}

/* ---- launches -------------------------------------------------------------------------------------------------- */

/* Units of a sequence that `bytes` bytes of a part take; `data`: the bytes of data of a unit. */
static uint64_t units_of(uint64_t bytes, uint32_t data) { return (bytes + data - 1) / data; }

bool weiri_parts_is_empty(const weir_part *part, uint32_t ranks)
{
    uint64_t count = 0;
    for (uint32_t k = 0; k < ranks; k++) {
        count |= part->extents[k].count;
    }
    return count == 0;
}

/* True if a narrow row can describe the part behind those of *p. */
static bool is_narrow(const weir_collective_parts *p, const weir_part *part, uint32_t ranks, uint32_t unit)
{
    const uint32_t element = weir_dtype_bytes(part->dtype);
    const uint32_t data = weir_parts_data(unit);
    for (uint32_t k = 0; k < ranks; k++) {
        const weir_extent extent = part->extents[k];
        if (extent.count != 0 && (extent.at > UINT32_MAX || p->of[k].bytes > UINT32_MAX)) {
            return false;
        }
        if (p->of[k].bytes + units_of(extent.count * element, data) * unit > UINT32_MAX) {
            return false;
        }
    }
    return true;
}

static void add_row(weir_collective_parts *p, const weir_part *part, uint32_t ranks, uint32_t unit)
{
    const uint32_t element = weir_dtype_bytes(part->dtype);
    const uint32_t data = weir_parts_data(unit);
    uint64_t *row = p->words + (uint64_t)p->count * p->stride;
    row[0] = (uintptr_t)part->send;
    row[1] = (uintptr_t)part->recv;
    for (uint32_t k = 0; k < ranks; k++) {
        const weir_extent extent = part->extents[k];
        const uint64_t bytes = extent.count * element;
        const uint64_t units = units_of(bytes, data);
        const uint64_t at = extent.count != 0 ? extent.at : 0;
        const uint64_t place = p->of[k].bytes + (units * data - bytes);
        if (p->wide) {
            row[2 + 2 * k] = at;
            row[3 + 2 * k] = place;
        } else {
            row[2 + k] = at << 32 | place;
        }
        p->of[k].bytes += units * unit;
        p->most = p->of[k].bytes > p->most ? p->of[k].bytes : p->most;
    }
    p->dtype = p->count == 0 || p->dtype == part->dtype ? (uint32_t)part->dtype : WEIR_DTYPES;
    p->dtypes[p->count / 2] |= (uint8_t)((uint32_t)part->dtype << p->count % 2 * 4);
    p->count++;
}

static bool is_full(const weir_collective_parts *p)
{
    return p->count == WEIR_PARTS_MOST || (p->count + 1) * p->stride > WEIR_PARTS_WORDS;
}

/* Lets kernels guess the part of a byte where guesses are at most one part off, as among parts of equal size. */
static void set_density(weir_collective_parts *p, uint32_t ranks, uint32_t unit)
{
    for (uint32_t k = 0; k < ranks; k++) {
        const uint64_t bytes = p->of[k].bytes;
        p->of[k].density = bytes != 0 && !p->wide ? (float)p->count / (float)(bytes / unit) : 0;
        for (uint32_t i = 0; i < p->count; i++) {
            const uint64_t end = i + 1 < p->count ? weir_parts_begin(p, i + 1, k, unit) : bytes;
            const uint32_t least = weir_parts_guess(p, k, weir_parts_begin(p, i, k, unit), unit);
            const uint32_t most = end != 0 ? weir_parts_guess(p, k, end - 1, unit) : 0;
            if (least + 1 < i || most > i + 1) {
                p->of[k].density = 0;
                break;
            }
        }
    }
}

/* Describes the parts from `first` on, as many as fit, in sequences of this unit. Returns the first part that does not
 * fit. */
static uint32_t fill(const weiri_parts *call, uint32_t first, bool wide, uint32_t unit, weir_collective_parts *p)
{
    const uint32_t ranks = call->collective->device.ranks;
    memset(p, 0, sizeof *p);
    p->wide = wide;
    p->stride = 2 + ranks * (wide ? 2 : 1);
    p->op = (uint32_t)call->op;
    uint32_t i = first;
    for (; i < call->n; i++) {
        const weir_part *part = &call->parts[i];
        if (weiri_parts_is_empty(part, ranks)) {
            continue;
        }
        if (is_full(p) || (!wide && !is_narrow(p, part, ranks, unit))) {
            break;
        }
        add_row(p, part, ranks, unit);
    }
    set_density(p, ranks, unit);
    return i;
}

/* The registered memory that receives all parts of an allgather from `first` to `end`, or NULL. Sets *where to a digest
 * of the places. */
static const weiri_team_memory *find_memory(const weiri_parts *call, uint32_t first, uint32_t end, uint64_t *where)
{
    const weiri_team_memory *all = NULL;
    for (uint32_t i = first; i < end; i++) {
        const weir_part *part = &call->parts[i];
        const uint32_t element = weir_dtype_bytes(part->dtype);
        for (uint32_t k = 0; k < call->collective->device.ranks; k++) {
            const weir_extent extent = part->extents[k];
            if (extent.count == 0) {
                continue;
            }
            const char *data = (const char *)part->recv + extent.at * element;
            const weiri_team_memory *memory = weiri_plan_registered(call->collective, data, extent.count * element);
            if (memory == NULL || (all != NULL && memory != all)) {
                return NULL;
            }
            all = memory;
            *where = weiri_mix(*where, (uintptr_t)data - (uintptr_t)weir_memory_pointer(memory->local));
        }
    }
    return all;
}

/* The only part with elements of a launch that begins with part `first`, or NULL. */
static const weir_part *only_part(const weiri_parts *call, uint32_t first, const weir_collective_parts *p)
{
    if (p->count != 1) {
        return NULL;
    }
    while (weiri_parts_is_empty(&call->parts[first], call->collective->device.ranks)) {
        first++;
    }
    return &call->parts[first];
}

/* Whether places and sizes of all extents with elements are multiples of `unit` bytes: all ranks answer the same. */
static bool is_aligned(const weir_part *part, uint32_t ranks, uint32_t unit)
{
    uint64_t places = 0;
    for (uint32_t k = 0; k < ranks; k++) {
        const weir_extent extent = part->extents[k];
        places |= extent.count != 0 ? extent.at | extent.count : 0;
    }
    return places * weir_dtype_bytes(part->dtype) % unit == 0;
}

/* Finds the registered memory of a launch whose only part, if it is not NULL, is `only`. Joins of misaligned data are
 * slow, so such a part goes through slots, where the sending rank aligns it. Between hosts all parts are staged. */
static void find_registered(const weiri_parts *call, uint32_t first, uint32_t end, const weir_part *only,
                            weiri_step *step, uint64_t *where)
{
    if (call->between) {
        return;
    }
    if (!call->joins) {
        step->recv = find_memory(call, first, end, where);
    } else if (only != NULL && is_aligned(only, call->collective->device.ranks, WEIR_PARTS_UNIT) &&
               weiri_plan_reduces_registered(call->collective, WEIR_REDUCE_SCATTER)) {
        step->send =
            weiri_plan_registered(call->collective, only->send, weiri_parts_end(only, call->collective->device.ranks));
    }
}

/* Whether the results of a launch are aligned if those of each part lie behind those of the one before: all ranks
 * answer the same. */
static bool are_aligned(const weir_collective_parts *p, uint32_t ranks)
{
    bool aligned = true;
    for (uint32_t i = 0; i < p->count; i++) {
        for (uint32_t k = 0; k < ranks; k++) {
            aligned = aligned && weir_parts_place(p, i, k) % WEIR_PARTS_UNIT == 0; /* no bytes up to the next part */
        }
    }
    return aligned;
}

/* Whether one part by packets or lines has a kernel that looks no part up. */
static bool has_own_kernel(const weiri_parts *call, const weir_part *part)
{
    return !call->joins || weiri_launch_has_sums(call->collective, part->dtype, call->op);
}

/* The kind of a launch for its choice. */
static uint32_t kind_of(const weiri_parts *call, const weir_collective_parts *p, const weir_part *only)
{
    const uint32_t ranks = call->collective->device.ranks;
    if (only != NULL && has_own_kernel(call, only)) {
        return is_aligned(only, ranks, 8) ? WEIRI_PARTS_NONE : WEIRI_PARTS_ONE_MISALIGNED;
    }
    return call->joins && !are_aligned(p, ranks) ? WEIRI_PARTS_MISALIGNED : WEIRI_PARTS_MANY;
}

/* Chooses form and shape as for the even operation whose parts are all as long as the longest sequence, with the bounds
 * of this kind of parts. Lets the staging grow before. */
static weir_status choose(const weiri_parts *call, const weir_collective_parts *p, const weir_part *only,
                          const weiri_step *step, weir_collective_form *form, weir_shape *shape)
{
    weir_collective *collective = call->collective;
    const weiri_work work = {
        .kind = call->joins ? WEIR_REDUCE_SCATTER : WEIR_ALLGATHER,
        .bytes = p->most * collective->device.ranks,
        .piece = p->most,
        .padding = p->count > 1 ? (uint64_t)p->count * WEIR_LINE_DATA : 0,
        .zero_copy = step->send != NULL || step->recv != NULL,
        .sums = call->joins && only != NULL && has_own_kernel(call, only),
        .parts = kind_of(call, p, only),
    };
    const weir_status grown = call->between ? WEIR_OK : weiri_grow_for(collective, call->name, &work, call->stream);
    return grown == WEIR_OK ? weiri_choose_step(collective, &work, call->name, true, form, shape) : grown;
}

/* The only part from `first` to `end` that has elements, if they are of one rank; otherwise NULL. Sets *root to the
 * rank. */
static const weir_part *only_extent(const weiri_parts *call, uint32_t first, uint32_t end, uint32_t *root)
{
    const weir_part *only = NULL;
    for (uint32_t i = first; i < end; i++) {
        for (uint32_t k = 0; k < call->collective->device.ranks; k++) {
            if (call->parts[i].extents[k].count != 0) {
                if (only != NULL) {
                    return NULL;
                }
                only = &call->parts[i];
                *root = k;
            }
        }
    }
    return only;
}

/* In a broadcast or a reduce all ranks pass elements on, or join some of them. As parts, the rank would send all of
 * them to each other one, or receive them from each. */
weir_status weiri_parts_extent(const weiri_parts *call, const weir_part *part, uint32_t root)
{
    const bool is_root = root == call->collective->rank;
    const uint64_t at = part->extents[root].at * weir_dtype_bytes(part->dtype);
    const weiri_call as = weiri_parts_call_of(call);
    weir_collective_request q = { .kind = call->joins ? WEIR_REDUCE : WEIR_BROADCAST,
                                  .dtype = part->dtype,
                                  .op = call->op,
                                  .root = root,
                                  .count = part->extents[root].count };
    q.send = call->joins ? (const char *)part->send + at : is_root ? part->send : NULL;
    q.recv = !call->joins ? (char *)part->recv + at : is_root ? part->recv : NULL;
    return weiri_plan_run(call->collective, call->name, &q, &as, call->digest, call->stream);
}

/* ---- launches of one part -------------------------------------------------------------------------------------- */

static weir_collective_piece piece_of(const weir_part *part, uint32_t rank)
{
    const uint32_t element = weir_dtype_bytes(part->dtype);
    const weir_extent extent = part->extents[rank];
    const weir_collective_piece piece = { extent.count != 0 ? extent.at * element : 0, extent.count * element };
    return piece;
}

/* Whether a launch of one part that is staged has a kernel that looks no part up. By slots the kernels of parts are
 * faster among more than two ranks: among four H200 an allgather of 256 MiB, whose extents grow with the rank, took 977
 * us, and 1,079 as a move. */
static bool looks_nothing_up(const weiri_parts *call, const weir_part *part, weir_collective_form form)
{
    return form == WEIR_FORM_SLOTS ? !call->joins && call->collective->device.ranks == 2 : has_own_kernel(call, part);
}

/* The part of an allgather as a move. */
static weir_status move_one(const weiri_parts *call, const weir_part *part, const weiri_step *step)
{
    weir_collective *collective = call->collective;
    const weir_dev_collective *device = &collective->device;
    weiri_move_args args;
    weir_collective_move *m = &args.move;
    memset(&args, 0, sizeof args);
    m->send = part->send;
    m->recv = part->recv;
    for (uint32_t k = 0; k < device->ranks; k++) {
        m->pieces[k].send.bytes = piece_of(part, device->rank).bytes;
        m->pieces[k].recv = piece_of(part, k);
        m->most = m->pieces[k].recv.bytes > m->most ? m->pieces[k].recv.bytes : m->most;
    }
    m->peer_recv_at = m->pieces[device->rank].recv.at;
    return weiri_local_move(collective, step, &args);
}

/* The part of a reduce_scatter by packets or lines. */
static weir_status reduce_one(const weiri_parts *call, const weir_part *part, const weiri_step *step)
{
    weir_collective *collective = call->collective;
    weiri_uneven_args args;
    memset(&args, 0, sizeof args);
    args.reduce.send = part->send;
    args.reduce.recv = part->recv;
    for (uint32_t k = 0; k < collective->device.ranks; k++) {
        args.extents[k] = piece_of(part, k);
    }
    return weiri_local_uneven(collective, step, &args);
}

/* The same directly out of the ranks' memory. */
static weir_status pull_one(const weiri_parts *call, const weir_part *part, const weiri_step *step)
{
    const weir_collective_piece own = piece_of(part, call->collective->device.rank);
    weiri_reduce_args args;
    memset(&args, 0, sizeof args);
    args.reduce.recv = part->recv;
    return weiri_local_pull(call->collective, step, part->send, &own, &args);
}

/* Launches the only part of a launch. */
static weir_status run_one(const weiri_parts *call, const weir_part *part, weiri_step *step)
{
    step->dtype = (uint32_t)part->dtype;
    step->op = (uint32_t)call->op;
    return !call->joins         ? move_one(call, part, step)
           : step->send != NULL ? pull_one(call, part, step)
                                : reduce_one(call, part, step);
}

/* Launches the parts from `first` on; sets *end to the first part that is left. */
static weir_status launch(const weiri_parts *call, uint32_t first, uint32_t *end)
{
    weiri_parts_args args;
    weir_collective_form form;
    weir_shape shape;
    weiri_step step = { .call = weiri_parts_call_of(call), .count = call->digest, .stream = call->stream };
    uint64_t where = 0;
    uint32_t root = 0;
    *end = fill(call, first, false, WEIR_PARTS_UNIT, &args.parts);
    if (*end < call->n && !is_full(&args.parts)) {
        const uint32_t narrow = *end;
        *end = fill(call, first, true, WEIR_PARTS_UNIT, &args.parts);
        if (*end < narrow) {
            *end = fill(call, first, false, WEIR_PARTS_UNIT, &args.parts);
        }
    }
    const weir_part *only = only_part(call, first, &args.parts);
    find_registered(call, first, *end, only, &step, &where);
    const weir_status status = choose(call, &args.parts, only, &step, &form, &shape);
    if (status != WEIR_OK) {
        return status;
    }
    if ((!call->joins || form == WEIR_FORM_SLOTS) && call->collective->device.ranks >= WEIRI_RELAY_RANKS &&
        !call->between) {
        const weir_part *extent = only_extent(call, first, *end, &root);
        if (extent != NULL) {
            return weiri_parts_extent(call, extent, root);
        }
    }
    step.threads = shape.threads;
    step.call.form = (uint32_t)form;
    step.call.blocks = shape.blocks;
    if (form != WEIR_FORM_SLOTS || call->collective->device.ranks == 1) {
        step.recv = NULL;
    }
    if (!weiri_local_pulls(&step, args.parts.most)) {
        step.send = NULL;
    }
    if (only != NULL && (step.send != NULL || looks_nothing_up(call, only, form))) {
        return run_one(call, only, &step);
    }
    if (form == WEIR_FORM_LINES) { /* lines have room for far less data than narrow rows describe: the same parts fit */
        (void)fill(call, first, args.parts.wide != 0, WEIR_LINE_BYTES, &args.parts);
    }
    args.parts.what.where = where;
    return weiri_local_parts(call->collective, &step, &args);
}

/* ---- one part whose extents differ much ------------------------------------------------------------------------- */

/* A broadcast or a reduce takes longer than one link needs for its bytes: by slots 64 MiB take 248 us among four H200,
 * and 256 MiB 820 us. The model adds these bytes, and a sixteenth of the operation's. */
#define REST_FIXED ((uint64_t)10 << 20)

/* The bytes that one link carries, one after the other, if at most `cut` bytes of each extent go as a part. */
static uint64_t cost_of_cut(const uint64_t *bytes, uint32_t ranks, uint64_t cut)
{
    uint64_t cost = 0;
    for (uint32_t k = 0; k < ranks; k++) {
        const uint64_t rest = bytes[k] > cut ? bytes[k] - cut : 0;
        cost += rest != 0 ? rest + rest / 16 + REST_FIXED : 0;
    }
    return cost + (ranks - 1) * cut;
}

/* The most elements of an extent that go as a part: UINT64_MAX, or where the cost is least. That is at 0 or at the
 * length of an extent, because the cost is linear in between. The rest of an extent begins at a multiple of 16 bytes if
 * the extent does. */
static uint64_t find_cut(const weiri_parts *call)
{
    const uint32_t ranks = call->collective->device.ranks;
    const uint32_t element = weir_dtype_bytes(call->parts->dtype);
    uint64_t bytes[WEIR_COLLECTIVE_RANKS];
    uint64_t longest = 0;
    for (uint32_t k = 0; k < ranks; k++) {
        bytes[k] = units_of(call->parts->extents[k].count * element, WEIR_PARTS_UNIT) * WEIR_PARTS_UNIT;
        longest = bytes[k] > longest ? bytes[k] : longest;
    }
    uint64_t cut = longest;
    uint64_t least = cost_of_cut(bytes, ranks, longest);
    for (uint32_t k = 0; k <= ranks; k++) {
        const uint64_t tried = k < ranks ? bytes[k] : 0;
        const uint64_t cost = cost_of_cut(bytes, ranks, tried);
        if (cost < least) {
            least = cost;
            cut = tried;
        }
    }
    return cut < longest ? cut / element : UINT64_MAX;
}

/* Runs a call of one part: at most `cut` elements of each extent as a part, and the others as broadcasts or reduces. */
static weir_status run_cut(const weiri_parts *call, uint64_t cut)
{
    weir_extent extents[WEIR_COLLECTIVE_RANKS];
    weir_part part = *call->parts;
    weiri_parts shorter = *call;
    uint32_t end = 0;
    shorter.parts = &part;
    part.extents = extents;
    for (uint32_t k = 0; k < call->collective->size; k++) {
        extents[k] = call->parts->extents[k];
        extents[k].count = extents[k].count < cut ? extents[k].count : cut;
    }
    weir_status status = cut != 0 ? launch(&shorter, 0, &end) : WEIR_OK;
    /* The buffer of this rank's elements alone begins behind the cut, too. */
    const uint64_t own = cut * weir_dtype_bytes(part.dtype);
    part.recv = call->joins ? (char *)part.recv + own : part.recv;
    part.send = call->joins ? part.send : (const char *)part.send + own;
    for (uint32_t k = 0; k < call->collective->size && status == WEIR_OK; k++) {
        const weir_extent whole = call->parts->extents[k];
        if (whole.count > cut) {
            extents[k].at = whole.at + cut;
            extents[k].count = whole.count - cut;
            status = weiri_parts_extent(&shorter, &part, k);
        }
    }
    return status;
}

weir_status weiri_parts_inside(const weiri_parts *call)
{
    const bool whole = call->n != 1 || call->between || call->collective->device.ranks < WEIRI_RELAY_RANKS;
    const uint64_t cut = whole ? UINT64_MAX : find_cut(call);
    weir_status status = WEIR_OK;
    uint32_t next = 0;
    if (cut != UINT64_MAX) {
        return run_cut(call, cut);
    }
    do {
        status = launch(call, next, &next);
    } while (status == WEIR_OK && next < call->n);
    return status;
}
