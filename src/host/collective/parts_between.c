/* parts_between.c - parts between hosts.
 *
 * Rank i of each host exchanges data with rank i of the others alone, as in plan.c. In an allgather its elements of
 * several parts go over the rails as one piece; then the ranks of each host give each other what came from all hosts.
 * In a reduce_scatter the ranks of a host first join their data for the ranks of each host; then the hosts join it.
 * Inside a host the data of several hosts is several parts (parts.c). So a step over the rails has few launches,
 * whatever the number of its parts. Meanwhile the hold of the rails has a row for each host.
 *
 * A single part needs no rows in an allgather, and none between hosts of one rank: the rails read and write the
 * buffers. A part with a long extent is a step by itself, in as many turns as its rows need. If its extents differ
 * much, its rails would carry very different amounts. So each extent is a broadcast or a reduce, which all rails carry.
 *
 * A launch over the rails compares the digests of rank i of all hosts, and a launch inside a host those of its ranks.
 * Ranks that pass other parts to the same call may take other launches. None waits for another in vain, because all
 * begin with the same two kinds: over the rails and then inside the host, or in a reduce_scatter the other way round. A
 * call that has no elements, or begins with broadcasts or reduces, or may wait for the staging to grow, makes two such
 * launches without data first. */
#include <string.h>

#include "src/host/collective/collective.h"

#define UNIT 128u /* rows of the hold begin at multiples of this */
#define WARP 32u
/* A part with a longer extent is a step by itself. It takes a NIC of 50 GB/s 20 us. A step of 64 KiB between two ranks
 * of one H200 took 40 us over `ipc`. */
#define LONG_BYTES ((uint64_t)1 << 20)
#define LONG_BYTES_CPU ((uint64_t)8 << 10)

/* Consecutive parts that one step carries. */
typedef struct parts_step {
    const weiri_parts *call;
    weir_collective *collective;
    const weir_part *parts;
    uint32_t n;
    const weir_part *only; /* the only part with elements, or NULL */
    weir_dtype dtype;      /* of all parts of a reduction */
    uint64_t longest;      /* bytes of the longest sequence of any rank */
    uint64_t row;          /* bytes from one row to the next */
    uint32_t ranks;        /* of a host */
    uint32_t hosts;
    uint64_t bytes[WEIR_COLLECTIVE_HOSTS]; /* of the sequence of each rank of this rank's rail */
} parts_step;

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static uint64_t bytes_of(const weir_part *part, uint32_t rank)
{
    return part->extents[rank].count * weir_dtype_bytes(part->dtype);
}

static uint64_t place_of(const weir_part *part, uint32_t rank)
{
    return part->extents[rank].count != 0 ? part->extents[rank].at * weir_dtype_bytes(part->dtype) : 0;
}

/* Bytes that the elements of a rank take in its sequence. */
static uint64_t taken_by(const weir_part *part, uint32_t rank)
{
    return (bytes_of(part, rank) + WEIR_PARTS_UNIT - 1) / WEIR_PARTS_UNIT * WEIR_PARTS_UNIT;
}

static uint64_t longest_of(const weir_part *part, uint32_t ranks)
{
    uint64_t longest = 0;
    for (uint32_t k = 0; k < ranks; k++) {
        const uint64_t bytes = bytes_of(part, k);
        longest = bytes > longest ? bytes : longest;
    }
    return longest;
}

static bool is_long(const weir_collective *collective, const weir_part *part)
{
    return longest_of(part, collective->size) > (collective->warps ? LONG_BYTES : LONG_BYTES_CPU);
}

/* Whether each extent of a part is a broadcast or a reduce. The longest extent goes over one rail. As a broadcast or a
 * reduce all extents of a host go over all its rails, but each takes launches of its own. So they must save a third of
 * the longest extent's time on its rail, which is a guess. A partial average of integers does not fit their type, and
 * reduces have a way around that. */
static bool goes_by_extents(const weiri_parts *call, const weir_part *part)
{
    const weir_collective *collective = call->collective;
    const uint32_t ranks = collective->device.ranks;
    uint64_t busiest = 0; /* bytes of the host that has most */
    if (ranks == 1) {
        return false;
    }
    if (call->joins && call->op == WEIR_AVG && part->dtype > WEIR_F8E5M2) {
        return true;
    }
    for (uint32_t first = 0; first < collective->size; first += ranks) {
        uint64_t bytes = 0;
        for (uint32_t k = first; k < first + ranks; k++) {
            bytes += bytes_of(part, k);
        }
        busiest = bytes > busiest ? bytes : busiest;
    }
    return is_long(collective, part) && longest_of(part, collective->size) > busiest / ranks / 2 * 3;
}

/* Bytes of a row for which the hold has room. */
static uint64_t room_of(const weir_collective *collective)
{
    return collective->rails.hold_bytes / collective->rails.device.hosts / UNIT * UNIT;
}

/* The rank of this rank's rail on a host, among all ranks. */
static uint32_t rail_rank(const parts_step *s, uint32_t host) { return host * s->ranks + s->collective->device.rank; }

/* Describes a step with the parts from `first` on, as many as it can carry. */
static void fill(const weiri_parts *call, uint32_t first, parts_step *s)
{
    const weir_collective *collective = call->collective;
    uint64_t lengths[WEIR_COLLECTIVE_RANKS * WEIR_COLLECTIVE_HOSTS] = { 0 };
    uint32_t filled = 0;
    uint32_t i = first;
    memset(s, 0, sizeof *s);
    s->call = call;
    s->collective = call->collective;
    s->ranks = collective->device.ranks;
    s->hosts = collective->rails.device.hosts;
    s->parts = call->parts + first;
    for (; i < call->n; i++) {
        const weir_part *part = &call->parts[i];
        uint64_t longest = 0;
        if (weiri_parts_is_empty(part, collective->size)) {
            continue;
        }
        for (uint32_t k = 0; k < collective->size; k++) {
            const uint64_t length = lengths[k] + taken_by(part, k);
            longest = length > longest ? length : longest;
        }
        const bool same = filled == 0 || !call->joins || part->dtype == s->dtype;
        if (filled != 0 && (!same || longest > room_of(collective) || is_long(collective, part))) {
            break;
        }
        for (uint32_t k = 0; k < collective->size; k++) {
            lengths[k] += taken_by(part, k);
        }
        s->longest = longest;
        s->only = part;
        s->dtype = part->dtype;
        filled++;
        if (is_long(collective, part)) {
            i++;
            break;
        }
    }
    s->n = i - first;
    s->only = filled == 1 ? s->only : NULL;
    for (uint32_t k = 0; k < s->hosts; k++) {
        const uint32_t rank = rail_rank(s, k);
        s->bytes[k] = s->only != NULL ? bytes_of(s->only, rank) : lengths[rank];
        s->row = s->bytes[k] > s->row ? s->bytes[k] : s->row;
    }
    s->row = (s->row + UNIT - 1) / UNIT * UNIT;
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* Copies of a step, in as few launches as possible. */
typedef struct copies {
    const parts_step *s;
    uint64_t chunks;
    weir_status status;
    weiri_copy_args args;
} copies;

static void begin_copies(copies *c, const parts_step *s)
{
    const weiri_call call = weiri_parts_call_of(s->call);
    c->s = s;
    c->chunks = 0;
    c->status = WEIR_OK;
    c->args.count = 0;
    c->args.what.call = weiri_call_word(&call);
    c->args.what.count = s->call->digest;
}

static void launch_copies(copies *c)
{
    const weir_collective *collective = c->s->collective;
    const weiri_rails *rails = &collective->rails;
    const uint32_t warps = collective->warps ? (rails->threads + WARP - 1) / WARP : 1;
    const uint64_t needed = (c->chunks + warps - 1) / warps;
    const weir_shape shape = { needed < rails->device.blocks ? (uint32_t)needed : rails->device.blocks,
                               rails->threads };
    if (c->status == WEIR_OK && c->args.count != 0) {
        c->status = weiri_launch_copy(collective, shape, &c->args, c->s->call->stream);
    }
    c->chunks = 0;
    c->args.count = 0;
}

static void copy(copies *c, const void *from, void *to, uint64_t bytes)
{
    const weiri_copy_piece piece = { (const char *)from, (char *)to, bytes };
    if (bytes == 0) {
        return;
    }
    if (c->args.count == WEIRI_COPY_PIECES) {
        launch_copies(c);
    }
    c->args.pieces[c->args.count++] = piece;
    c->chunks += (bytes + WEIRI_COPY_CHUNK - 1) / WEIRI_COPY_CHUNK;
}

static weir_status end_copies(copies *c)
{
    launch_copies(c);
    return c->status;
}

static char *row_of(const parts_step *s, uint32_t host) { return s->collective->rails.hold + host * s->row; }

/* Copies this rank's own elements of several parts into its row, or its results out of it. Those of one part go over
 * the rails without it. */
static weir_status copy_own(const parts_step *s)
{
    const uint32_t rank = s->collective->rank;
    char *at = row_of(s, s->collective->rails.device.host);
    copies c;
    if (s->only != NULL) {
        return WEIR_OK;
    }
    begin_copies(&c, s);
    for (uint32_t i = 0; i < s->n; i++) {
        const weir_part *part = &s->parts[i];
        if (s->call->joins) {
            copy(&c, at, part->recv, bytes_of(part, rank));
        } else {
            copy(&c, part->send, at, bytes_of(part, rank));
        }
        at += taken_by(part, rank);
    }
    return end_copies(&c);
}

/* Where each rank is a host: copies its data for all ranks into the rows, or the data of all out of them. */
static weir_status copy_all(const parts_step *s)
{
    const bool joins = s->call->joins;
    copies c;
    begin_copies(&c, s);
    for (uint32_t k = 0; k < s->hosts; k++) {
        char *at = row_of(s, k);
        for (uint32_t i = 0; i < s->n; i++) {
            const weir_part *part = &s->parts[i];
            char *buffer = weiri_offset(joins ? part->send : part->recv, place_of(part, k));
            copy(&c, joins ? buffer : at, joins ? at : buffer, bytes_of(part, k));
            at += taken_by(part, k);
        }
    }
    return end_copies(&c);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* Most parts of a launch inside a host, unless offsets are very long. */
static uint32_t parts_of_launch(uint32_t ranks)
{
    const uint32_t parts = WEIR_PARTS_WORDS / (2 + ranks);
    return parts < WEIR_PARTS_MOST ? parts : WEIR_PARTS_MOST;
}

/* The ranks of the host give each other what has come over the rails, or join into their rows what goes to each host.
 * The data of a host is a part for each of the step's. */
static weir_status run_inside(const parts_step *s)
{
    weir_part parts[WEIR_PARTS_MOST];
    weiri_parts inside = *s->call;
    weir_status status = WEIR_OK;
    inside.parts = parts;
    inside.n = 0;
    inside.between = true;
    for (uint32_t k = 0; k < s->hosts; k++) {
        char *at = row_of(s, k);
        for (uint32_t i = 0; i < s->n && status == WEIR_OK; i++) {
            const uint32_t rank = rail_rank(s, k);
            weir_part part = s->parts[i];
            if (s->call->joins) {
                part.recv = at;
            } else { /* the rails have brought the only part to its places */
                part.send = s->only == NULL ? at : weiri_offset(part.recv, place_of(&part, rank));
            }
            at += taken_by(&part, rank);
            part.extents += k * s->ranks;
            if (!weiri_parts_is_empty(&part, s->ranks)) {
                parts[inside.n++] = part;
            }
            if (inside.n == parts_of_launch(s->ranks)) {
                status = weiri_parts_inside(&inside);
                inside.n = 0;
            }
        }
    }
    return status == WEIR_OK && inside.n != 0 ? weiri_parts_inside(&inside) : status;
}

/* Moves or joins data between the rows and the buffers of the host's ranks. */
static weir_status serve_host(const parts_step *s)
{
    return s->ranks > 1 ? run_inside(s) : s->only == NULL ? copy_all(s) : WEIR_OK;
}

/* Exchanges the sequences. Those of the only part come from its buffer, or go into it, where they need no rows. */
static weir_status run_rails(const parts_step *s)
{
    const weiri_parts *call = s->call;
    const weiri_rails *rails = &s->collective->rails;
    const weir_part *only = s->only;
    const bool direct = only != NULL && (s->ranks == 1 || !call->joins);
    char *own = row_of(s, rails->device.host);
    weir_rail_step r;
    memset(&r, 0, sizeof r);
    r.to = UINT64_MAX >> (WEIR_COLLECTIVE_HOSTS - s->hosts);
    for (uint32_t k = 0; k < s->hosts; k++) {
        const uint64_t at = direct ? place_of(only, rail_rank(s, k)) : k * s->row;
        const weir_rail_piece piece = { call->joins ? at : 0, call->joins ? 0 : at, s->bytes[k] };
        r.pieces[k] = piece;
        r.part = piece.bytes > r.part ? piece.bytes : r.part;
        r.from |= (uint64_t)(piece.bytes != 0) << k;
    }
    if (call->joins) {
        r.send = direct ? (const char *)only->send : rails->hold;
        r.recv = only != NULL ? (char *)only->recv : own;
        r.from = r.to;
        r.scatter = 1;
        r.joins = 1;
        r.dtype = (uint32_t)s->dtype;
        /* The step inside the host has multiplied by the factor. */
        r.op = (uint32_t)(call->op == WEIR_SCALED_SUM && s->ranks > 1 ? WEIR_SUM : call->op);
    } else {
        r.send = only != NULL ? (const char *)only->send : own;
        r.recv = direct ? (char *)only->recv : rails->hold;
    }
    return weiri_rails_run(s->collective, weiri_parts_call_of(call), call->digest, &r, call->stream);
}

/* An allgather copies its own elements before the rails and serves the host behind them. A reduce_scatter serves the
 * host first. */
static weir_status run_step(const parts_step *s)
{
    const bool joins = s->call->joins;
    weir_status status = joins ? serve_host(s) : copy_own(s);
    if (status == WEIR_OK) {
        status = run_rails(s);
    }
    return status != WEIR_OK ? status : joins ? copy_own(s) : serve_host(s);
}

/* Runs a reduce_scatter of one part whose rows do not fit the hold: as much of each extent at a time as they have room
 * for. */
static weir_status run_turns(const weiri_parts *call, const weir_part *whole)
{
    const weir_collective *collective = call->collective;
    const uint32_t element = weir_dtype_bytes(whole->dtype);
    const uint64_t most = room_of(collective) / element;
    const uint64_t longest = longest_of(whole, collective->size) / element;
    weir_extent extents[WEIR_COLLECTIVE_RANKS * WEIR_COLLECTIVE_HOSTS];
    weir_part part = *whole;
    weiri_parts turn = *call;
    weir_status status = WEIR_OK;
    turn.parts = &part;
    turn.n = 1;
    part.extents = extents;
    for (uint64_t at = 0; at < longest && status == WEIR_OK; at += most) {
        parts_step s;
        for (uint32_t k = 0; k < collective->size; k++) {
            const weir_extent extent = whole->extents[k];
            const uint64_t left = extent.count > at ? extent.count - at : 0;
            extents[k].at = extent.at + at;
            extents[k].count = left < most ? left : most;
        }
        fill(&turn, 0, &s);
        status = run_step(&s);
        part.recv = weiri_offset(part.recv, most * element);
    }
    return status;
}

/* Runs a part as a broadcast or a reduce of each extent. */
static weir_status run_extents(const weiri_parts *call, const weir_part *part)
{
    weir_status status = WEIR_OK;
    for (uint32_t k = 0; k < call->collective->size && status == WEIR_OK; k++) {
        status = part->extents[k].count != 0 ? weiri_parts_extent(call, part, k) : WEIR_OK;
    }
    return status;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* Compares the calls of the ranks of each rail. */
static weir_status compare_rails(const weiri_parts *call)
{
    const weir_collective *collective = call->collective;
    weir_rail_step r;
    memset(&r, 0, sizeof r);
    return weiri_rails_run(collective, weiri_parts_call_of(call), call->digest, &r, call->stream);
}

/* Compares those of the ranks of this host. */
static weir_status compare_inside(const weiri_parts *call)
{
    weir_collective *collective = call->collective;
    const weiri_work work = { .kind = WEIR_ALLGATHER };
    weir_collective_form form = WEIR_FORM_PACKETS;
    weir_shape shape;
    weiri_move_args args;
    if (collective->device.ranks == 1) {
        return WEIR_OK;
    }
    memset(&args, 0, sizeof args);
    const weir_status status = weiri_choose(collective, &work, call->name, &form, &shape);
    weiri_step inside = {
        .call = weiri_parts_call_of(call), .count = call->digest, .threads = shape.threads, .stream = call->stream
    };
    inside.call.form = (uint32_t)form;
    inside.call.blocks = shape.blocks;
    return status == WEIR_OK ? weiri_local_move(collective, &inside, &args) : status;
}

static weir_status compare(const weiri_parts *call)
{
    weir_status status = call->joins ? compare_inside(call) : compare_rails(call);
    if (status == WEIR_OK) {
        status = call->joins ? compare_rails(call) : compare_inside(call);
    }
    return status;
}

/* The most bytes between two ranks of a host in a step: the sequence of a rank has the data of all hosts. */
static uint64_t most_inside(const parts_step *s) { return s->hosts * s->longest; }

/* Runs the parts from part `i` on that one step carries, and sets *next to the first part behind them. With `begins`
 * they are the first of the call: it compares before launches of another order, and before it waits for the staging to
 * grow. */
static weir_status run_next(const weiri_parts *call, uint32_t i, bool begins, uint32_t *next)
{
    weir_collective *collective = call->collective;
    const weir_part *part = &call->parts[i];
    weir_status status = WEIR_OK;
    parts_step s;
    *next = i + 1;
    if (goes_by_extents(call, part)) {
        status = begins ? compare(call) : WEIR_OK;
        return status == WEIR_OK ? run_extents(call, part) : status;
    }
    fill(call, i, &s);
    *next = i + s.n;
    if (begins && weiri_grow_may(collective, most_inside(&s))) {
        status = compare(call);
    }
    if (status == WEIR_OK) {
        status = weiri_grow_between(collective, call->name, most_inside(&s), call->stream);
    }
    if (status != WEIR_OK) {
        return status;
    }
    return call->joins && s.ranks > 1 && s.longest > room_of(collective) ? run_turns(call, part) : run_step(&s);
}

static uint32_t skip_empty(const weiri_parts *call, uint32_t i)
{
    while (i < call->n && weiri_parts_is_empty(&call->parts[i], call->collective->size)) {
        i++;
    }
    return i;
}

weir_status weiri_parts_between(const weiri_parts *call)
{
    const weiri_call as = weiri_parts_call_of(call);
    const uint32_t first = skip_empty(call, 0);
    weiri_rails_log(call->collective, as.kind);
    weir_status status = first == call->n ? compare(call) : WEIR_OK;
    for (uint32_t i = first; i < call->n && status == WEIR_OK;) {
        uint32_t next = i;
        status = run_next(call, i, i == first, &next);
        i = skip_empty(call, next);
    }
    return status;
}
