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

/* Bytes of about one of `rounds` rounds, up to `most`; each column has its range of `piece` bytes. Rounds are short
 * enough that sending and taking overlap for little data too, and as long as possible for much data: a block spends
 * about 3 us more on each. */
static uint64_t chunk_of(uint64_t most, uint64_t piece, uint32_t columns, uint32_t rounds)
{
    const uint64_t range = weir_slots_range(piece, columns);
    const uint64_t chunk = (range / rounds + CHUNK_LEAST + 127) / 128 * 128;
    const uint64_t overlapping = range / LONG_ROUNDS < CHUNK_LONG ? CHUNK_LONG : range / LONG_ROUNDS / 128 * 128;
    const uint64_t longest = overlapping < most ? overlapping : most;
    return chunk < longest ? chunk : longest;
}

/* The same of a move. If pieces differ in size, a rank knows only its own largest, but all ranks must use the same
 * chunk. Registered memory that ranks pass on has no slots: by all blocks of four H200 256 MiB took 852, 824, 802 and
 * 799 us in 4, 8, 16 and 32 rounds, but by 16 blocks 966 in each. */
static uint64_t chunk_of_move(const weir_collective *collective, const weiri_step *step, const weir_collective_move *m)
{
    const uint64_t slot = collective->now->slot_bytes;
    const uint32_t blocks = step->call.blocks;
    const uint32_t columns = weir_slots_columns(blocks);
    if (m->counted) {
        return slot < CHUNK_LONG ? slot : CHUNK_LONG;
    }
    return m->relay != 0 && step->recv != NULL
               ? chunk_of(DIRECT_MOST, m->most, columns, blocks < MANY_BLOCKS ? CHUNK_ROUNDS : DIRECT_ROUNDS)
               : chunk_of(slot, m->most, columns, CHUNK_ROUNDS);
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
    r->chunk = chunk_of(device->slot_bytes, r->length, weir_reduce_columns(device, step->call.blocks), CHUNK_ROUNDS);
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

weir_status weiri_local_move(const weir_collective *collective, const weiri_step *step, weiri_move_args *args)
{
    weir_collective_move *m = &args->move;
    set_what(step, &m->what);
    if (step->call.form == WEIR_FORM_SLOTS) {
        const uint32_t columns = weir_slots_columns(step->call.blocks);
        for (uint32_t k = 0; k < collective->device.ranks; k++) {
            m->send_range[k] = weir_slots_range(m->pieces[k].send.bytes, columns);
            m->recv_range[k] = weir_slots_range(m->pieces[k].recv.bytes, columns);
        }
    }
    m->chunk = chunk_of_move(collective, step, m);
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

weir_status weiri_local_parts(const weir_collective *collective, const weiri_step *step, weiri_parts_args *args)
{
    weir_collective_parts *p = &args->parts;
    const uint64_t places = p->what.where;
    set_what(step, &p->what);
    p->what.where = 0;
    const uint32_t columns = step->call.kind == WEIRI_REDUCE_SCATTER_PARTS
                                 ? weir_reduce_columns(collective->now, step->call.blocks)
                                 : weir_slots_columns(step->call.blocks);
    p->chunk = chunk_of(collective->now->slot_bytes, p->most, columns, CHUNK_ROUNDS);
    for (uint32_t k = 0; k < collective->device.ranks; k++) {
        p->range[k] = weir_slots_range(p->of[k].bytes, columns);
    }
    if (step->recv != NULL) {
        p->base = (char *)weir_memory_pointer(step->recv->local);
        p->what.where = find_peers(collective, step->recv, &step->recv_shift, p->base, p->peer_recv) | places >> 8;
    }
    return weiri_launch_parts(collective, step, args);
}
