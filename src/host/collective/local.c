/* local.c - a step inside a host: completes its description (include/weir/device/collective.h) from the choices of the
 * plan. */
#include "src/host/collective/collective.h"

#define CHUNK_ROUNDS 4u
#define CHUNK_LONG ((uint64_t)512 << 10) /* a longer round is one of at least LONG_ROUNDS */
#define LONG_ROUNDS 8u
#define CHUNK_LEAST ((uint64_t)16 << 10)
#define DIRECT_MOST ((uint64_t)512 << 10) /* of registered memory that ranks pass on */
#define DIRECT_ROUNDS 16u                 /* the same, by many blocks */
#define MANY_BLOCKS 64u
#define PULL_BLOCKS 64u
#define FEW_BLOCKS 8u
#define SENDERS_MOST 16u
#define ONE_WAY_MOST ((uint64_t)64 << 20)

/* Data that goes directly between buffers: of 16 to 32 blocks warps draw chunks, if the call has enough data. Fewer
 * blocks do not fill the links, and more even out by their number. */
#define DRAW_BLOCKS_LEAST 16u
#define DRAW_BLOCKS_MOST 32u
#define DRAW_LOADS_BLOCKS 16u /* a reduction that stores to no peer draws by more */
#define DRAW_BYTES ((uint64_t)16 << 20)
#define DRAW_LEAST ((uint64_t)2 << 10) /* of a chunk */
#define DRAW_MOST ((uint64_t)16 << 10)
#define DRAWS 8u /* of each warp, where chunks are not shorter than DRAW_LEAST */
#define DRAW_CPU ((uint64_t)1 << 10)
#define WARP 32u

/* Bytes of about one of `rounds` rounds of a column's range, up to `most`. Rounds are short enough that sending and
 * taking overlap for little data too, and as long as possible for much data: a block spends about 3 us more on each. */
static uint64_t chunk_of(uint64_t most, uint64_t range, uint32_t rounds)
{
    const uint64_t chunk = (range / rounds + CHUNK_LEAST + 127) / 128 * 128;
    const uint64_t overlapping = range / LONG_ROUNDS < CHUNK_LONG ? CHUNK_LONG : range / LONG_ROUNDS / 128 * 128;
    const uint64_t longest = overlapping < most ? overlapping : most;
    return chunk < longest ? chunk : longest;
}

/* The same of a move. If pieces differ in size, a rank knows only its own largest, but all ranks must use the same
 * chunk. Registered memory that ranks pass on has no slots: by all blocks of four H200 256 MiB took 852, 824, 802 and
 * 799 us in 4, 8, 16 and 32 rounds, but by 16 blocks 966 in each. */
static uint64_t chunk_of_move(const weir_collective *collective, const weiri_step *step, const weir_collective_move *m,
                              uint64_t range)
{
    const uint64_t slot = collective->now->slot_bytes;
    const uint32_t blocks = step->call.blocks;
    if (m->counted) {
        return slot < CHUNK_LONG ? slot : CHUNK_LONG;
    }
    return m->relay != 0 && step->recv != NULL
               ? chunk_of(DIRECT_MOST, range, blocks < MANY_BLOCKS ? CHUNK_ROUNDS : DIRECT_ROUNDS)
               : chunk_of(slot, range, CHUNK_ROUNDS);
}

/* Divides the blocks of a step between the directions, for a rank that sends `out` bytes to the other one of two, and
 * receives `in` bytes from it. Returns `split` of the description (impl/collective_slots.h). Both ranks come to the
 * same division: they compute it for what the first one sends. Where joins do not take the time, more than
 * SENDERS_MOST blocks store no faster, and much data in one direction goes slower by all blocks (two H200, 2026-11-30,
 * docs/data/slots-split-2xh200.csv). */
static uint32_t split_of(const weir_collective *collective, const weiri_step *step, bool joins, uint64_t out,
                         uint64_t in)
{
    const uint64_t blocks = step->call.blocks;
    const bool one_way = out == 0 || in == 0;
    if (collective->device.ranks != 2 || blocks < 2 || blocks >= MANY_BLOCKS || out == in) {
        return 0;
    }
    if (!joins && (blocks >= 2 * SENDERS_MOST || (one_way && blocks > FEW_BLOCKS && out + in > ONE_WAY_MOST))) {
        return 0;
    }
    if (one_way) {
        return 1 + (out != 0 ? (uint32_t)blocks : 0);
    }
    const bool first = collective->device.rank == 0;
    const uint64_t each = (out + in - 1) / blocks + 1;
    const uint64_t wanted = ((first ? out : in) + each / 2) / each;
    const uint64_t least = joins || blocks <= SENDERS_MOST ? 1 : blocks - SENDERS_MOST;
    const uint64_t sent = wanted < least ? least : wanted > blocks - least ? blocks - least : wanted;
    return 1 + (uint32_t)(first ? sent : blocks - sent);
}

/* The columns of what a rank sends or receives; 1 of nothing. */
static uint32_t columns_of(const weiri_step *step, uint32_t split, bool sends)
{
    const uint32_t sending = split - 1;
    const uint32_t columns = split == 0 ? weir_slots_columns(step->call.blocks)
                             : sends    ? sending
                                        : step->call.blocks - sending;
    return columns == 0 ? 1 : columns;
}

/* The bytes that a warp draws at once of the `bytes` bytes that this rank moves or joins, of `all` bytes of the call.
 * 0: each block has its range instead. On the CPU device odd ranks draw from little data on, and even ranks never do,
 * so tests have both ways. */
static uint64_t draw_of(const weir_collective *collective, const weiri_step *step, uint64_t bytes, uint64_t all)
{
    const uint32_t blocks = step->call.blocks;
    if (!collective->warps) {
        const bool all_send = weir_slots_columns(blocks) < WEIR_ZERO_COPY_MANY; /* also without draws */
        return all_send && collective->device.rank % 2 != 0 && all >= DRAW_CPU ? DRAW_CPU / 4 : 0;
    }
    if (blocks < DRAW_BLOCKS_LEAST || blocks > DRAW_BLOCKS_MOST || all < DRAW_BYTES) {
        return 0;
    }
    const uint64_t each = bytes / (blocks * (step->threads / WARP)) / DRAWS / DRAW_LEAST * DRAW_LEAST;
    return each < DRAW_LEAST ? DRAW_LEAST : each > DRAW_MOST ? DRAW_MOST : each;
}

/* Finds the buffers of all ranks that correspond to `data`, in memory that all ranks have registered or mapped. Returns
 * the word that the ranks compare, which is not 0. */
static uint64_t find_peers(const weir_collective *collective, const weiri_team_memory *memory, const weiri_shift *shift,
                           const char *data, char **peers)
{
    const uint64_t offset = (uintptr_t)data - (uintptr_t)weir_memory_pointer(memory->local);
    for (uint32_t k = 0; k < collective->device.ranks; k++) {
        peers[k] = (char *)weir_memory_pointer(weiri_team_memory_of(memory, k)) + (offset + shift->bytes[k]);
    }
    return shift->digest != 0 ? shift->digest : (uint64_t)(memory - collective->registered + 1) << 56 | offset;
}

static void set_what(const weiri_step *step, weir_collective_what *what)
{
    what->call = weiri_call_word(&step->call);
    what->count = step->count;
}

/* ---- reductions ------------------------------------------------------------------------------------------------ */

void weiri_local_describe(const weir_collective *collective, const weir_dev_collective *device, const weiri_step *step,
                          weir_collective_reduce *r)
{
    set_what(step, &r->what);
    const uint64_t range = weir_slots_range(r->length, weir_reduce_columns(device, step->call.blocks));
    r->chunk = chunk_of(device->slot_bytes, range, CHUNK_ROUNDS);
    if (step->call.form == WEIR_FORM_SLOTS && step->recv != NULL) {
        r->what.where = find_peers(collective, step->recv, &step->recv_shift, r->recv, r->peer_recv);
    }
}

/* For much data with many blocks loads from the peers' memory are slower: they reach 333 GB/s both ways on two H200,
 * stores 365. */
bool weiri_local_pulls(const weiri_step *step, uint64_t longest)
{
    return step->call.form == WEIR_FORM_SLOTS && step->send != NULL &&
           !(longest >= WEIRI_PULL_MOST && step->call.blocks >= PULL_BLOCKS);
}

/* Finds the ranks' memory that corresponds to `send`, for a reduction that loads from it. One word covers both places:
 * two calls of a program are unlikely to share it. */
static void find_sources(const weir_collective *collective, const weiri_step *step, const char *send,
                         weir_collective_reduce *r)
{
    r->what.where += find_peers(collective, step->send, &step->send_shift, send, r->peer_send) * 0x9e3779b97f4a7c15u;
}

weir_status weiri_local_reduce(const weir_collective *collective, const weiri_step *step, weiri_reduce_args *args)
{
    weir_collective_reduce *r = &args->reduce;
    uint32_t kernel = step->call.form - WEIR_FORM_ONCE;
    weiri_local_describe(collective, collective->now, step, r);
    if (weiri_local_pulls(step, r->length) && (r->to == 0 || step->recv != NULL)) {
        find_sources(collective, step, r->send, r);
        kernel = WEIRI_REDUCE_ZERO_COPY;
        /* A reduce_scatter only loads from peers: two H200, 16 blocks, 16 MiB took 33.6 us by ranges and 35.1 by draws,
         * but four, 24 blocks, 50.8 and 48.9. */
        const bool draws = r->to != 0 || step->call.blocks > DRAW_LOADS_BLOCKS;
        r->chunk = draws ? draw_of(collective, step, r->length, r->bytes) : 0;
    }
    return weiri_launch_reduce(collective, step, kernel, args);
}

weir_status weiri_local_pull(const weir_collective *collective, const weiri_step *step, const char *send,
                             const weir_collective_piece *own, weiri_reduce_args *args)
{
    weir_collective_reduce *r = &args->reduce;
    set_what(step, &r->what);
    find_sources(collective, step, send, r);
    for (uint32_t k = 0; k < collective->device.ranks; k++) {
        r->peer_send[k] += own->at;
    }
    r->send = send + own->at;
    r->length = own->bytes;
    r->bytes = own->bytes;
    if (step->call.blocks > DRAW_LOADS_BLOCKS) {
        r->chunk = draw_of(collective, step, own->bytes, own->bytes * collective->device.ranks);
    }
    return weiri_launch_reduce(collective, step, WEIRI_REDUCE_ZERO_COPY, args);
}

weir_status weiri_local_uneven(const weir_collective *collective, const weiri_step *step, weiri_uneven_args *args)
{
    weir_collective_reduce *r = &args->reduce;
    set_what(step, &r->what);
    for (uint32_t k = 0; k < collective->device.ranks; k++) {
        r->length = args->extents[k].bytes > r->length ? args->extents[k].bytes : r->length;
    }
    return weiri_launch_uneven(collective, step, args);
}

/* ---- moves ---------------------------------------------------------------------------------------- */

/* Sets what kernels by slots need to know. */
static void describe_slots(const weir_collective *collective, const weiri_step *step, weir_collective_move *m)
{
    const weir_collective_pieces *other = &m->pieces[1 - collective->device.rank % 2];
    m->split = m->in_place ? 0 : split_of(collective, step, false, other->send.bytes, other->recv.bytes);
    const uint32_t sending = columns_of(step, m->split, true);
    const uint32_t receiving = columns_of(step, m->split, false);
    for (uint32_t k = 0; k < collective->device.ranks; k++) {
        m->send_range[k] = weir_slots_range(m->pieces[k].send.bytes, sending);
        m->recv_range[k] = weir_slots_range(m->pieces[k].recv.bytes, receiving);
    }
    uint64_t range = weir_slots_range(m->most, sending);
    if (m->split != 0) {
        const uint32_t k = 1 - collective->device.rank;
        range = m->send_range[k] > m->recv_range[k] ? m->send_range[k] : m->recv_range[k];
    }
    m->chunk = chunk_of_move(collective, step, m, range);
}

weir_status weiri_local_move(const weir_collective *collective, const weiri_step *step, weiri_move_args *args)
{
    weir_collective_move *m = &args->move;
    set_what(step, &m->what);
    if (step->call.form == WEIR_FORM_SLOTS) {
        describe_slots(collective, step, m);
    }
    /* In place, peers would overwrite data that this rank has not sent yet. */
    const bool direct = step->call.form == WEIR_FORM_SLOTS || step->call.form == WEIR_FORM_COPIES;
    if (direct && step->recv != NULL && !m->in_place && collective->device.ranks > 1) {
        const uint64_t all = m->most * collective->device.ranks;
        const bool same = step->call.kind != WEIR_ALL_TO_ALL;
        m->what.where = find_peers(collective, step->recv, &step->recv_shift, m->recv, m->peer_recv);
        m->chunk = m->relay != 0 ? m->chunk : draw_of(collective, step, same ? m->most : all, all);
    }
    if (step->call.form == WEIR_FORM_COPIES) {
        return weiri_copies_move(collective, step, args);
    }
    return weiri_launch_move(collective, step, args);
}

/* Whether extents of parts begin or end within units of 16 bytes. All ranks answer the same, because they do not look
 * at pointers. */
static bool are_misaligned(const weir_collective_parts *p, uint32_t ranks)
{
    uint64_t places = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        const uint64_t element = weir_dtype_bytes(weir_parts_dtype(p, i));
        for (uint32_t k = 0; k < ranks; k++) {
            places |= weir_parts_place(p, i, k) | weir_parts_first(p, i, k) * element;
        }
    }
    return places % WEIR_PARTS_UNIT != 0;
}

/* Sets what kernels of parts by slots need to know. Parts that go directly are not split, nor are joins of extents that
 * are misaligned: the blocks that send align the data for those that join (launch.c). */
static void describe_parts(const weir_collective *collective, const weiri_step *step, weir_collective_parts *p)
{
    const weir_dev_collective *device = collective->now;
    const uint32_t own = device->rank;
    const uint32_t other = 1 - own % 2;
    const bool joins = step->call.kind == WEIRI_REDUCE_SCATTER_PARTS;
    uint32_t columns = joins ? weir_reduce_columns(device, step->call.blocks) : weir_slots_columns(step->call.blocks);
    const bool halves = columns < step->call.blocks;
    if (device->ranks == 2 && halves && step->recv == NULL && !(joins && are_misaligned(p, device->ranks))) {
        p->split =
            split_of(collective, step, joins, p->of[joins ? other : own].bytes, p->of[joins ? own : other].bytes);
    }
    uint64_t range = 0;
    for (uint32_t k = 0; k < device->ranks; k++) {
        columns = p->split != 0 ? columns_of(step, p->split, (k == own) != joins) : columns;
        p->range[k] = weir_slots_range(p->of[k].bytes, columns);
        range = p->range[k] > range ? p->range[k] : range;
    }
    p->chunk = chunk_of(device->slot_bytes, range, CHUNK_ROUNDS);
}

weir_status weiri_local_parts(const weir_collective *collective, const weiri_step *step, weiri_parts_args *args)
{
    weir_collective_parts *p = &args->parts;
    const uint64_t places = p->what.where;
    set_what(step, &p->what);
    p->what.where = 0;
    if (step->call.form == WEIR_FORM_SLOTS) {
        describe_parts(collective, step, p);
    }
    if (step->recv != NULL) {
        p->base = (char *)weir_memory_pointer(step->recv->local);
        p->what.where = find_peers(collective, step->recv, &step->recv_shift, p->base, p->peer_recv) | places >> 8;
    }
    return weiri_launch_parts(collective, step, args);
}
