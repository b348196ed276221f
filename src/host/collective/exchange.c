/* exchange.c - weir_exchange, weir_send and weir_recv: transfers between pairs of ranks.
 *
 * A launch takes a fixed number of transfers of each lane, which is all that a rank sends to one peer, or receives from
 * it. Both ends of a transfer put it into the launch of the same number, and launches of that number wait only for each
 * other. So calls with any number of transfers, in any order, come to an end.
 *
 * Between hosts, the launches of a call go by distance. At distance d a rank sends to the host d places after its own,
 * and receives from the host d places before it. With up to four ranks on a host, a launch takes two distances, and
 * else one, in the same order on all ranks, beginning with 0, the host itself. So both ends of a transfer have it in
 * launches of the same distances. */
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/base/log.h"
#include "src/host/collective/collective.h"

#define WARP 32u
#define DIVIDED_SLOT ((uint64_t)32 << 10)
#define DIVIDED_SLOT_OF_MANY ((uint64_t)128 << 10)
#define LINED_MOST ((uint64_t)256 << 10)
#define MANY_BLOCKS 64u
#define FIRST_STEP 8u
#define SENDERS_ENOUGH 8u /* blocks that fill the links of an H200: one copies 42 GB/s */

/* A call, and the progress of its lanes. The second index is weir_transfer.receive. */
typedef struct exchange {
    weir_collective *collective;
    const char *name;
    const weir_transfer *transfers;
    uint32_t n;
    uint32_t distance;                                                 /* the first of the launch */
    uint32_t next[WEIR_COLLECTIVE_RANKS * WEIR_COLLECTIVE_HOSTS][2];   /* the transfer at which the lane continues */
    uint32_t passed[WEIR_COLLECTIVE_RANKS * WEIR_COLLECTIVE_HOSTS][2]; /* transfers of the lane before it */
    const weiri_team_memory *memories[2]; /* registered ones that the launch uses, or &all_mappings */
    bool meets;                           /* the ends of long transfers have met on the host, */
    bool met;                             /* of which the call has some */
    char *slots[WEIR_COLLECTIVE_RANKS];   /* the long slots of the ranks of the host, as far as they are known */
} exchange;

static const weiri_team_memory all_mappings;

/* ---- checks ---------------------------------------------------------------------------------------------------- */

static uint32_t hosts_of(const exchange *e) { return e->collective->rails.device.hosts; }

static weiri_span span_of(const weir_transfer *t)
{
    const weiri_span span = { (const char *)t->buffer, t->count * weir_dtype_bytes(t->dtype) };
    return span;
}

static bool by_copies(const weir_collective *collective)
{
    return collective->form == WEIR_FORM_COPIES && collective->size > 1;
}

static weir_status check_copies(const exchange *e, const weir_transfer *t)
{
    const weiri_span span = span_of(t);
    if (hosts_of(e) > 1) {
        return weiri_refuse_copies(e->collective, e->name, "copy engines carry nothing between hosts");
    }
    return t->receive && span.bytes != 0 && weiri_plan_registered(e->collective, span.data, span.bytes) == NULL
               ? weiri_refuse_copies(e->collective, e->name, "copies need the buffer of a receive in registered memory")
               : WEIR_OK;
}

static weir_status check_transfer(const exchange *e, const weir_transfer *t, const char *which)
{
    const weir_collective *collective = e->collective;
    weir_status status = weiri_check_elements(e->name, t->dtype, t->count);
    if (status != WEIR_OK) {
        return status;
    }
    if (t->peer >= collective->size) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: peer %u does not exist; there are %u ranks", e->name, t->peer,
                          collective->size);
    }
    status = weiri_check_span(collective, e->name, which, span_of(t), weir_dtype_bytes(t->dtype));
    return status == WEIR_OK && by_copies(collective) ? check_copies(e, t) : status;
}

/* The next transfer of this rank with itself in this direction, from transfer `i` on, or n. */
static uint32_t next_own(const exchange *e, uint32_t i, bool receive)
{
    return weiri_exchange_next(e->transfers, e->n, i, e->collective->rank, receive);
}

/* Checks that this rank sends to itself what it receives from itself. */
static weir_status check_own(const exchange *e)
{
    uint32_t send = next_own(e, 0, false);
    uint32_t receive = next_own(e, 0, true);
    for (; send < e->n && receive < e->n;
         send = next_own(e, send + 1, false), receive = next_own(e, receive + 1, true)) {
        const weir_transfer *from = &e->transfers[send];
        const weir_transfer *to = &e->transfers[receive];
        if (from->count != to->count || from->dtype != to->dtype) {
            return weiri_fail(
                WEIR_ERR_INVALID,
                "%s: rank %u sends itself %llu elements in transfer %u, but receives %llu in transfer %u%s", e->name,
                to->peer, (unsigned long long)from->count, send, (unsigned long long)to->count, receive,
                from->count == to->count ? ", of another type" : "");
        }
        if (from->buffer != to->buffer && !weiri_spans_apart(span_of(from), span_of(to))) {
            return weiri_fail(WEIR_ERR_INVALID,
                              "%s: the buffers of transfers %u and %u, of this rank to itself, overlap", e->name, send,
                              receive);
        }
    }
    if (send < e->n || receive < e->n) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: rank %u %s itself transfer %u, which it does not %s", e->name,
                          e->collective->rank, send < e->n ? "sends" : "receives from", send < e->n ? send : receive,
                          send < e->n ? "receive" : "send");
    }
    return WEIR_OK;
}

/* ---- a launch ---------------------------------------------------------------------------------------------------- */

/* The distances of a launch: two, if their lanes fit. */
static uint32_t distances_of(const exchange *e)
{
    return hosts_of(e) > 1 && 4 * e->collective->device.ranks <= WEIR_EXCHANGE_LANES ? 2 : 1;
}

/* Transfers of each lane that a launch takes: the same on all ranks. Inside a host no lane leads to this rank itself;
 * its copies take the room that the lanes leave. */
static uint32_t window_of(const exchange *e)
{
    const uint32_t ranks = e->collective->device.ranks;
    const uint32_t lanes = hosts_of(e) > 1 ? 2 * distances_of(e) * ranks : 2 * (ranks - 1);
    return lanes == 0 ? 0 : WEIR_EXCHANGE_TRANSFERS / lanes;
}

/* The next transfer of the lane, or NULL. */
static const weir_transfer *take(exchange *e, uint32_t peer, bool receive)
{
    uint32_t *next = &e->next[peer][receive];
    const uint32_t i = weiri_exchange_next(e->transfers, e->n, *next, peer, receive);
    if (i == e->n) {
        *next = i;
        return NULL;
    }
    *next = i + 1;
    e->passed[peer][receive]++;
    return &e->transfers[i];
}

static void put(weir_exchange_transfer *to, const weir_transfer *t)
{
    to->data = (char *)t->buffer;
    to->count = t->count | (uint64_t)t->dtype << 56;
}

/* The bytes of a message as lines of a transfer that takes several. */
static uint32_t room_of_long(const weir_collective_exchange *x)
{
    return weir_lined_room(x, x->least_long != UINT64_MAX);
}

#define FEW_COLUMNS 8u
#define FEW_MESSAGES 2u

/* The least bytes of a transfer whose ends meet on the host, if the call meets. Both ends find the same. Shorter ones
 * go as lines. By few columns lines take longer than the receiver's offer and a copy: four H200, a ring of 2, 4 and 8
 * MiB by 8 blocks took 23.5, 40.6 and 77.3 us as lines, and 20.0, 26.0 and 37.8 directly. By 16 blocks 8 MiB took 40.7
 * and 35.0, but by 24 blocks 33.4 and 35.0. Where links keep no lines there are no offers, and so no meetings. */
static uint64_t least_met(const weir_collective_exchange *x)
{
    const uint32_t messages = x->columns <= FEW_COLUMNS ? FEW_MESSAGES : WEIR_LINED_MESSAGES;
    const uint64_t lines = x->lined != 0 ? (uint64_t)x->columns * messages * room_of_long(x) : 0;
    return x->lined == 0 ? UINT64_MAX : lines + 1 > x->small ? lines + 1 : x->small;
}

/* Lets the launch use a memory, if it can. Its kernel checks two: registrations, or all mappings at once. */
static bool take_memory(exchange *e, const weiri_place *place)
{
    const weiri_team_memory *memory = place->memory != NULL ? place->memory : &all_mappings;
    for (uint32_t i = 0; i < 2; i++) {
        if (e->memories[i] == NULL || e->memories[i] == memory) {
            e->memories[i] = memory;
            return true;
        }
    }
    return false;
}

/* The memory of a receive, among those of the launch, from 1 on, or 0. */
static uint32_t memory_of(exchange *e, weir_collective_exchange *x, const weiri_place *place)
{
    uint32_t i = 0;
    while (i < WEIR_EXCHANGE_MEMORIES && x->rows[i] != 0 && x->rows[i] != place->row) {
        i++;
    }
    if (place->row == 0 || i == WEIR_EXCHANGE_MEMORIES || !take_memory(e, place)) {
        return 0;
    }
    x->rows[i] = (uint16_t)place->row;
    return i + 1;
}

/* The entry in weir_collective_exchange.notes of a transfer that is not small. */
static uint8_t note_of(exchange *e, weir_collective_exchange *x, const weir_transfer *t)
{
    const weiri_span span = span_of(t);
    const bool met = e->meets && t->peer != e->collective->rank && span.bytes >= least_met(x);
    const bool agrees = x->lined != 0 && !weir_exchange_fits_lines(x, span.bytes, WEIR_LINED_MESSAGES);
    e->met |= met;
    if (!t->receive) {
        return met && weiri_posts_take(e->collective, t->peer).row != 0 ? WEIR_EXCHANGE_MET : 0;
    }
    if (!met && !agrees) {
        return 0;
    }
    const weiri_place place = weiri_map_place(e->collective, span.data, span.bytes, met);
    return (uint8_t)(memory_of(e, x, &place) | (met && place.row != 0 ? WEIR_EXCHANGE_MET : 0));
}

/* Adds the next transfers of a lane, from transfer `*used` of the launch on. */
static void add_lane(exchange *e, weir_collective_exchange *x, uint32_t peer, bool receive, uint32_t *used)
{
    const uint32_t ranks = e->collective->device.ranks;
    weir_exchange_lane *lane = &x->lane[x->lanes];
    const weir_transfer *t = NULL;
    memset(lane, 0, sizeof *lane);
    lane->peer = (uint8_t)(peer % ranks);
    lane->host = (uint8_t)(peer / ranks);
    lane->far = hosts_of(e) > 1 && lane->host != e->collective->rails.device.host;
    lane->receives = receive;
    lane->slots = lane->far ? NULL : e->slots[receive ? e->collective->device.rank : lane->peer];
    lane->first = (uint8_t)*used;
    lane->index = e->passed[peer][receive];
    uint32_t units = 0;
    while (lane->count < window_of(e) && (t = take(e, peer, receive)) != NULL) {
        const uint64_t bytes = span_of(t).bytes;
        if (weir_exchange_is_small(x, x->lanes, bytes)) {
            x->notes[*used] = (uint8_t)units;
            units += weir_ring_units(&e->collective->device, bytes);
        } else {
            const uint32_t pieces = weir_exchange_pieces(bytes, weir_exchange_columns(x, x->lanes));
            lane->most = pieces > lane->most ? (uint16_t)pieces : lane->most;
            x->notes[*used] = note_of(e, x, t);
        }
        put(&x->transfers[(*used)++], t);
        lane->count++;
    }
    x->lanes += lane->count != 0;
}

/* Adds the next transfers with all ranks at the distance, in one direction. */
static void add_lanes(exchange *e, weir_collective_exchange *x, uint32_t distance, bool receive, uint32_t *used)
{
    const uint32_t ranks = e->collective->device.ranks;
    const uint32_t hosts = hosts_of(e);
    const uint32_t own = e->collective->rails.device.host;
    const uint32_t host = (receive ? own + hosts - distance : own + distance) % hosts;
    for (uint32_t k = 0; k < ranks && distance < hosts; k++) {
        const uint32_t peer = host * ranks + k;
        if (peer != e->collective->rank) {
            add_lane(e, x, peer, receive, used);
        }
    }
}

/* Adds the next transfers of this rank to itself. */
static void add_copies(exchange *e, weir_collective_exchange *x, uint32_t used)
{
    const uint32_t own = e->collective->rank;
    const weir_transfer *from = NULL;
    x->copy = used;
    while (e->distance == 0 && used + 2 <= WEIR_EXCHANGE_TRANSFERS && (from = take(e, own, false)) != NULL) {
        const weir_transfer *to = take(e, own, true);
        put(&x->transfers[used++], from);
        put(&x->transfers[used++], to);
        x->copies++;
    }
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Blocks for rings under an SM limit: one for each lane, or a quarter of a small limit. A block serves either rings or
 * a column, so with a limit of one block a launch of small and long transfers has two. */
static uint32_t ring_blocks(uint32_t limit, uint32_t ranks)
{
    const uint64_t blocks = least(2 * ((uint64_t)ranks - 1), limit / 4);
    return blocks == 0 ? 1 : (uint32_t)blocks;
}

uint32_t weiri_exchange_columns(uint32_t limit, uint32_t ranks)
{
    /* The blocks for rings would be too large a part of a small limit. */
    const uint32_t rest = limit < MANY_BLOCKS ? limit : limit - ring_blocks(limit, ranks);
    return rest < 2 ? 1 : rest / 2;
}

/* Whether a number greater than 1 divides both. */
static bool divides_both(uint32_t a, uint32_t b)
{
    while (b != 0) {
        const uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a > 1;
}

/* By how many columns the first one of a transfer lies behind that of the transfer before: the longest step up to
 * FIRST_STEP in which each column comes first at some time, of lanes inside the host and between hosts. So the pieces
 * of short transfers that follow each other lie in different columns. Inside a host whole rounds of all columns are
 * left out, because a kernel goes through them. */
static uint32_t step_of(uint32_t columns, uint32_t far)
{
    uint32_t step = FIRST_STEP;
    while (divides_both(step, columns) || (far != 0 && divides_both(step, far))) {
        step--;
    }
    return far == 0 ? step % columns : step;
}

/* The transfers in the lanes of a launch. */
typedef struct lane_contents {
    uint64_t pieces;      /* of transfers that take columns, */
    uint32_t most;        /* and of one of them */
    bool single;          /* no lane has more than one transfer */
    bool sends, receives; /* such pieces */
    bool brief;           /* all go as packets or lines */
    uint64_t range;       /* bytes of the longest piece */
    uint64_t misaligned;  /* bytes of such transfers of a lane whose data does not begin at a multiple of 8 */
    uint32_t small;       /* the most small transfers of a lane; of a lane that has long ones too, 1 */
    uint64_t longest;     /* bytes of the longest small one */
    uint64_t copied;      /* bytes of this rank to itself */
} lane_contents;

static lane_contents contents_of(const weir_collective_exchange *x)
{
    lane_contents all = { .single = true, .brief = true };
    for (uint32_t lane = 0; lane < x->lanes; lane++) {
        const weir_exchange_lane *l = &x->lane[lane];
        uint64_t misaligned = 0;
        uint32_t small = 0;
        all.single &= l->count == 1;
        for (uint32_t i = 0; i < l->count; i++) {
            const weir_exchange_transfer *t = &x->transfers[l->first + i];
            const uint64_t bytes = weir_exchange_bytes(t);
            if (weir_exchange_is_small(x, lane, bytes)) {
                small++;
                all.longest = bytes > all.longest ? bytes : all.longest;
                continue;
            }
            all.sends |= l->receives == 0;
            all.receives |= l->receives != 0;
            all.brief &= weir_exchange_is_lined(x, l->first + i) != 0;
            misaligned += (uintptr_t)t->data % 8 != 0 ? bytes : 0;
            const uint32_t pieces = weir_exchange_pieces(bytes, weir_exchange_columns(x, lane));
            all.pieces += pieces;
            all.most = pieces > all.most ? pieces : all.most;
            all.range = bytes / pieces > all.range ? bytes / pieces : all.range;
        }
        all.misaligned = misaligned > all.misaligned ? misaligned : all.misaligned;
        small = l->most == 0 || small == 0 ? small : 1;
        all.small = small > all.small ? small : all.small;
    }
    for (uint32_t i = 0; i < x->copies; i++) {
        all.copied += weir_exchange_bytes(&x->transfers[x->copy + 2 * i]);
    }
    return all;
}

/* The small transfers that a block with a lane's ring passes at once: the same number of threads for each. */
static uint32_t together_of(const weir_collective *collective, const lane_contents *all)
{
    const uint32_t turn = weir_ring_turn(collective->device.ring_units);
    return all->small == 0 ? 1 : (uint32_t)least(all->small, turn / weir_ring_units(&collective->device, all->longest));
}

/* Threads for packets: one for each, and the same number for the sender's call beside them. If a block passes one
 * transfer at a time, the thread with the call and the one that counts the launch have a warp each: up to 256 bytes
 * between two ranks on one H200 took 3.60, 3.60 and 3.53 us by 2, 4 and 6 warps. */
#define SINGLE_WARPS 6u

static uint32_t ring_threads(const weir_collective_exchange *x, uint64_t bytes, uint32_t most)
{
    const uint64_t warps = 2 * (bytes / (8 * WARP) + 1);
    if (x->together > 1) {
        return (uint32_t)least(x->together * warps * WARP, most);
    }
    return (uint32_t)least((warps < SINGLE_WARPS ? SINGLE_WARPS : warps) * WARP, most);
}

/* Threads for lines: so many that together they have the longest message under way. More of them slow down the work
 * that each warp does for a message. Two warps of a block move no lines. By many blocks the links are the limit. Two
 * H200, us by 192, 256, 384 and 512 threads: 132 blocks, 256 KiB 6.1, 6.1, 6.3 and 6.7, 1 MiB 9.0, 9.0, 8.8 and 9.3, 4
 * MiB 18.6, 18.4, 18.5 and 19.0; 16 blocks, 64 KiB 5.8, 5.5, 5.6 and 5.8, 1 MiB 13.4, 11.2, 9.9 and 9.6. */
#define LINES_OF_WARP (WARP / 8 * WEIR_LINE_BATCH)
#define LINE_THREADS_LEAST 192u
#define LINE_THREADS_OF_MANY 384u

static uint32_t line_threads(const weir_collective_exchange *x, const lane_contents *all, uint32_t most)
{
    const uint32_t room = room_of_long(x) > weir_lined_room(x, 0) ? room_of_long(x) : weir_lined_room(x, 0);
    const uint64_t warps = weir_line_count(least(all->range, room)) / LINES_OF_WARP + 3;
    const uint64_t threads = warps * WARP < LINE_THREADS_LEAST ? LINE_THREADS_LEAST : warps * WARP;
    const uint32_t bound = x->columns < WEIRI_MANY_COLUMNS ? most : (uint32_t)least(most, LINE_THREADS_OF_MANY);
    return (uint32_t)least(threads, bound);
}

/* Misaligned data goes as lines one at a time, so it takes many threads. Where a lane has few blocks for it, those that
 * serve all lanes, of twice the threads, are faster: four H200, 24 blocks, all ranks to all others, 1.4 MB to each 56
 * us and 78, 22 MB to each 735 and 578; by all SMs 299 and 296. */
#define MISALIGNED_MOST ((uint64_t)768 << 10) /* for each block of a lane */

/* The lanes that send, of a launch whose blocks may all send: each lane has one transfer, which neither is small nor
 * goes as lines, and the memory of all receives is registered or mapped. Otherwise 0. */
static uint32_t sharing_lanes(const weir_collective_exchange *x)
{
    uint32_t lanes = 0;
    for (uint32_t lane = 0; lane < x->lanes; lane++) {
        const weir_exchange_lane *l = &x->lane[lane];
        const uint64_t bytes = weir_exchange_bytes(&x->transfers[l->first]);
        const uint32_t memory = x->notes[l->first] & ~WEIR_EXCHANGE_MET;
        if (x->lined == 0 || l->count != 1 || (l->receives != 0 && memory == 0) ||
            weir_exchange_is_small(x, lane, bytes) || weir_exchange_is_lined(x, l->first)) {
            return 0;
        }
        lanes += l->receives == 0;
    }
    return lanes;
}

/* A copy within the L2 of a GPU is faster by few threads. One H200, 132 blocks of 256, 512 and 1,024 threads, us: 2.70,
 * 3.28 and 3.28 for 1 MiB, 7.24, 7.86 and 7.90 for 16, 42.5, 37.9 and 38.0 for 64. */
#define CACHED_MOST ((uint64_t)16 << 20)
#define CACHED_THREADS 256u

/* Divides the lanes among blocks, sets *kernel and returns the shape of the launch. If the limit allows it, each block
 * has one lane at a time: its ring, or some of its columns. */
static weir_shape divide(const weir_collective *collective, weir_collective_exchange *x, uint32_t limit,
                         uint32_t *kernel)
{
    const lane_contents all = contents_of(x);
    const uint32_t columns = x->columns > x->far ? x->columns : x->far;
    const uint32_t copying = (uint32_t)least(limit, (all.copied + WEIR_EXCHANGE_PIECE - 1) / WEIR_EXCHANGE_PIECE);
    const uint32_t pieces = all.pieces == 0 ? 0 : all.single ? all.most : columns;
    const uint32_t lanes = pieces == 0 && all.single ? (uint32_t)least(x->lanes, limit) : x->lanes;
    const uint32_t rings = all.small != 0 ? lanes : 0;
    const uint32_t room = x->lanes != 0 && limit > rings ? (limit - rings) / x->lanes : 0;
    uint32_t moving;
    x->together = 1;
    const bool in_turn = room != 0 && all.misaligned <= room * MISALIGNED_MOST;
    if (*kernel == WEIRI_EXCHANGE_INSIDE && rings <= limit && (pieces <= room || in_turn)) {
        x->rings = rings;
        x->together = lanes == x->lanes ? together_of(collective, &all) : 1; /* or a block has the rings of several */
        *kernel = x->together > 1                                    ? WEIRI_EXCHANGE_TOGETHER
                  : all.brief && pieces <= room && lanes == x->lanes ? WEIRI_EXCHANGE_BRIEF
                                                                     : WEIRI_EXCHANGE_ALONE;
        x->posts = pieces == 0 ? 1 : (uint32_t)least(pieces, room);
        moving = rings + (pieces == 0 ? 0 : x->lanes * x->posts);
        const uint32_t senders = sharing_lanes(x) * x->posts;
        if (senders != 0 && senders < least(limit, SENDERS_ENOUGH)) {
            *kernel = WEIRI_EXCHANGE_SHARED;
            moving = limit;
        }
    } else {
        x->rings = all.small != 0 ? (uint32_t)least(x->lanes, ring_blocks(limit, collective->device.ranks)) : 0;
        x->sides = all.sends && all.receives && x->rings + 2 * columns <= limit ? 2 : 1;
        x->only = x->lanes == 1 && all.single && all.pieces == 1;
        moving = x->rings + (x->only != 0 ? 1 : all.pieces != 0 ? x->sides * columns : 0);
    }
    weir_shape shape = { moving > copying ? moving : copying, 0 };
    shape.blocks = shape.blocks == 0 ? 1 : shape.blocks;
    shape.threads = weiri_choice_threads(collective, WEIR_FORM_SLOTS, shape.blocks);
    if (*kernel != WEIRI_EXCHANGE_INSIDE && *kernel != WEIRI_EXCHANGE_FAR) {
        shape.threads = (uint32_t)least(shape.threads, WEIRI_FEW_THREADS);
    }
    if (collective->warps && all.pieces != 0 && all.brief && all.misaligned == 0 && copying == 0 &&
        *kernel != WEIRI_EXCHANGE_INSIDE) {
        shape.threads = line_threads(x, &all, shape.threads);
    }
    if (collective->warps && all.pieces == 0 && copying == 0) {
        shape.threads = ring_threads(x, all.longest, shape.threads);
    }
    if (collective->warps && x->lanes == 0 && all.copied <= CACHED_MOST) {
        shape.threads = (uint32_t)least(shape.threads, CACHED_THREADS);
    }
    return shape;
}

/* The bytes of a slot that are for lines. The rest of a large slot is for messages by signals. Of a line 15 bytes in 16
 * are data, and it costs more instructions; a signal costs a block 3 us, so its messages are long. Many columns hide
 * what lines cost: by 132 blocks of two H200, 256 MiB took 828 us as lines, 891 by signals in 46 KiB, and 756 in 124.
 */
static uint32_t lined_of(uint64_t slot, uint32_t columns)
{
    const uint64_t half = least(slot / 2, LINED_MOST) / WEIR_LINE_BYTES * WEIR_LINE_BYTES;
    return (uint32_t)(slot >= (columns < WEIRI_MANY_COLUMNS ? DIVIDED_SLOT : DIVIDED_SLOT_OF_MANY) ? half : slot);
}

/* The most bytes of a transfer that takes a ring; 0: there are no rings. */
static uint32_t most_small(const weir_collective *collective)
{
    return weir_ring_most(collective->device.ring_units) << collective->device.ring_shift;
}

/* Where several columns carry lines, transfers of more bytes go through columns. Two ranks on one H200, us by the ring
 * and as lines: of 8 KiB, 64 transfers took 78 and 12, 8 took 13.2 and 5.3, and one 4.36 and 4.40; of 4 KiB 46 and 9,
 * 9.2 and 5.3, and 4.04 and 4.34. */
#define SMALL_BESIDE_LINES (4u << 10)
#define COLUMNS_OF_LINES 4u

/* A transfer of fewer bytes takes a ring; 0: none does. */
static uint32_t small_of(const weir_collective *collective, const weir_collective_exchange *x)
{
    const uint32_t most = most_small(collective);
    const bool lines = x->lined != 0 && x->columns >= COLUMNS_OF_LINES;
    return most == 0 ? 0 : (lines && most > SMALL_BESIDE_LINES ? SMALL_BESIDE_LINES : most) + 1;
}

/* Sets the columns of the launches of a call, and which transfers go as packets and lines. */
static void set_columns(const exchange *e, weir_collective_exchange *x)
{
    const weir_collective *collective = e->collective;
    const uint32_t limit = collective->forced != 0 ? collective->forced : collective->sm_limit;
    const uint32_t ranks = collective->device.ranks;
    const uint32_t columns = weiri_exchange_columns(limit, ranks);
    x->columns = ranks > 1 ? (uint32_t)least(collective->device.message_blocks, columns) : 1;
    const uint64_t slot = collective->device.message_bytes;
    const bool lines = hosts_of(e) == 1 && collective->host.lines && slot >= WEIR_RING_HEAD + WEIR_LINE_BYTES;
    /* Beside long slots, short ones carry nothing else. */
    x->lined = !lines ? 0 : collective->slots != NULL ? (uint32_t)slot : lined_of(slot, x->columns);
    x->least_long = UINT64_MAX;
    x->far = hosts_of(e) > 1 ? (uint32_t)least(collective->rails.exchange.columns, columns) : 0;
    x->step = step_of(x->columns, x->far);
    x->inverse = x->step == 0 ? 0 : ((1u << 16) + x->step - 1) / x->step;
    x->small = small_of(collective, x);
    if (collective->slots != NULL) {
        /* As lines each piece of a short one is one message: pieces are cut at multiples of 128 bytes. */
        const uint64_t room = (lines ? weir_lined_room(x, 0) : slot) / 128 * 128;
        const uint64_t most = room >= WEIR_EXCHANGE_PIECE ? x->columns * room : room;
        x->least_long = (most >= x->small ? most : x->small - 1) + 1;
        x->long_bytes = (uint32_t)collective->long_bytes;
        x->long_lined = lines ? lined_of(collective->long_bytes, x->columns) : 0;
    }
}

/* Finds the call's transfers that take long slots, and prepares these. */
static weir_status prepare_slots(exchange *e, const weir_collective_exchange *x)
{
    const weir_collective *collective = e->collective;
    const uint32_t ranks = collective->device.ranks;
    uint32_t peers[2] = { 0, 0 }; /* the index is weir_transfer.receive */
    for (uint32_t i = 0; i < e->n && collective->slots != NULL; i++) {
        const weir_transfer *t = &e->transfers[i];
        if (weir_exchange_is_long(x, span_of(t).bytes) && t->peer != collective->rank &&
            t->peer / ranks == collective->rank / ranks) {
            peers[t->receive] |= (uint32_t)1 << t->peer % ranks;
        }
    }
    if ((peers[0] | peers[1]) == 0) {
        return WEIR_OK;
    }
    const weir_status status = weiri_slots_prepare(e->collective, e->name, peers[0], peers[1]);
    weiri_slots_places(collective, e->slots);
    return status;
}

/* Names one of e->memories for the launch. */
static void name_memory(const weiri_team_memory *memory, const weiri_team_memory **out, weiri_shift *shift)
{
    *out = memory == &all_mappings ? NULL : memory;
    shift->digest = memory == &all_mappings;
}

/* Launches the next transfers of all lanes at the distances of the launch. Sets *more if there were any. */
static weir_status launch_next(exchange *e, weiri_exchange_args *args, const weiri_step *call, bool *more)
{
    const weir_collective *collective = e->collective;
    weir_collective_exchange *x = &args->exchange;
    const uint32_t limit = collective->forced != 0 ? collective->forced : collective->sm_limit;
    const weiri_call word = { .kind = WEIRI_MESSAGE, .op = WEIRI_NO_OP, .root = WEIRI_NO_ROOT };
    uint32_t used = 0;
    args->rails = collective->rails.far;
    x->call = weiri_call_word(&word);
    x->bases = weiri_life_bases(collective);
    x->lanes = 0;
    x->copies = 0;
    memset(e->memories, 0, sizeof e->memories);
    memset(x->rows, 0, sizeof x->rows);
    for (uint32_t k = 0; k < 2 * distances_of(e); k++) {
        add_lanes(e, x, e->distance + k % distances_of(e), k < distances_of(e), &used);
    }
    add_copies(e, x, used);
    *more = x->lanes != 0 || x->copies != 0;
    if (!*more) {
        return WEIR_OK;
    }
    weiri_step step = *call;
    name_memory(e->memories[0], &step.send, &step.send_shift);
    name_memory(e->memories[1], &step.recv, &step.recv_shift);
    uint32_t kernel = args->rails != NULL ? WEIRI_EXCHANGE_FAR : WEIRI_EXCHANGE_INSIDE;
    const weir_shape shape = divide(collective, x, limit, &kernel);
    step.call.blocks = shape.blocks;
    step.threads = shape.threads;
    return weiri_launch_exchange(collective, &step, kernel, args);
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* For opts.map_recorded: lets the ends of a recorded call's long transfers meet, so that the senders map the buffers.
 */
static weir_status meet_recorded(exchange *e, const weir_collective_exchange *x, void *stream)
{
    uint64_t recording = 0;
    weir_status status = weiri_stream_recording(e->collective->comm->device, stream, &recording);
    if (status == WEIR_OK && recording != 0) {
        status = weiri_posts_meet(e->collective, e->name, e->transfers, e->n, least_met(x), true);
        e->meets = status == WEIR_OK;
    }
    return status;
}

/* Carries out the transfers, which have been checked. *call describes the call for the text of an error. */
static weir_status run(exchange *e, const weiri_step *call)
{
    weiri_exchange_args args;
    weir_status status = WEIR_OK;
    if (by_copies(e->collective)) {
        return weiri_copies_exchange(e->collective, e->name, call, e->transfers, e->n);
    }
    memset(&args, 0, sizeof args);
    set_columns(e, &args.exchange);
    status = prepare_slots(e, &args.exchange);
    if (status == WEIR_OK && e->collective->map.at != NULL && hosts_of(e) == 1) {
        status = meet_recorded(e, &args.exchange, call->stream);
    }
    for (; e->distance < hosts_of(e) && status == WEIR_OK; e->distance += distances_of(e)) {
        bool more = true;
        while (more && status == WEIR_OK) {
            status = launch_next(e, &args, call, &more);
        }
    }
    /* Of transfers that have met, other ranks have recorded the other ends. */
    return status == WEIR_OK || !e->met ? status : weiri_comm_break(e->collective->comm, status, weir_last_error());
}

static void begin(exchange *e, weir_collective *collective, const char *name, const weir_transfer *transfers,
                  uint32_t n)
{
    e->collective = collective;
    e->name = name;
    e->transfers = transfers;
    e->n = n;
    e->distance = 0;
    e->meets = false;
    e->met = false;
    memset(e->next, 0, collective->size * sizeof e->next[0]);
    memset(e->passed, 0, collective->size * sizeof e->passed[0]);
    memset(e->slots, 0, sizeof e->slots);
}

static void log_first(const exchange *e)
{
    weir_collective *collective = e->collective;
    if (by_copies(collective)) {
        if ((collective->logged[WEIRI_EXCHANGE] & 1u << WEIR_FORM_COPIES) == 0) {
            collective->logged[WEIRI_EXCHANGE] |= 1u << WEIR_FORM_COPIES;
            weiri_log(WEIR_LOG_INFO, "weir_exchange of rank %u, %u transfers: by copies", collective->comm->rank, e->n);
        }
    } else if (collective->logged[WEIRI_EXCHANGE] == 0) {
        weir_collective_exchange x;
        set_columns(e, &x);
        collective->logged[WEIRI_EXCHANGE] = 1u << WEIR_FORM_SLOTS;
        weiri_log(WEIR_LOG_INFO,
                  "weir_exchange of rank %u, %u transfers: up to %u bytes as packets, else %u columns of two slots of "
                  "%llu bytes for each peer",
                  collective->comm->rank, e->n, x.small == 0 ? 0 : x.small - 1, collective->device.message_blocks,
                  (unsigned long long)collective->device.message_bytes);
    }
}

weir_status weir_exchange(weir_collective *collective, const weir_transfer *transfers, uint32_t n, void *stream)
{
    static const char name[] = "weir_exchange";
    weir_status status = weiri_check_collective(collective, name);
    if (status != WEIR_OK) {
        return status;
    }
    if (transfers == NULL && n != 0) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: transfers is NULL", name);
    }
    exchange e;
    begin(&e, collective, name, transfers, n);
    for (uint32_t i = 0; i < n && status == WEIR_OK; i++) {
        status = check_transfer(&e, &transfers[i], "buffer");
        if (status != WEIR_OK) {
            return weiri_fail(status, "%s (transfer %u of %u)", weir_last_error(), i, n);
        }
    }
    status = check_own(&e);
    if (status != WEIR_OK) {
        return status;
    }
    log_first(&e);
    const weiri_step call = { .call = { .kind = WEIRI_EXCHANGE, .op = WEIRI_NO_OP, .root = WEIRI_NO_ROOT },
                              .count = n,
                              .stream = stream };
    return run(&e, &call);
}

weir_status weiri_exchange_pieces(weir_collective *collective, const char *name, const void *send,
                                  const weir_extent *sends, void *recv, const weir_extent *recvs, weir_dtype dtype,
                                  void *stream)
{
    const uint32_t n = 2 * collective->size;
    const uint32_t element = weir_dtype_bytes(dtype);
    const weiri_step call = {
        .call = { .kind = WEIRI_ALL_TO_ALL_V, .dtype = dtype, .op = WEIRI_NO_OP, .root = WEIRI_NO_ROOT },
        .stream = stream
    };
    weir_status status = weiri_refuse_copies(collective, name, "copy engines carry nothing between hosts");
    weir_transfer *transfers = NULL;
    exchange e;
    if (status != WEIR_OK) {
        return status;
    }
    transfers = (weir_transfer *)weiri_alloc(n, sizeof *transfers);
    if (transfers == NULL) {
        return weiri_fail_nomem(name);
    }
    for (uint32_t k = 0; k < collective->size; k++) {
        const weir_transfer sent = { (void *)((uintptr_t)send + sends[k].at * element), sends[k].count, dtype, k,
                                     false };
        const weir_transfer received = { (void *)((uintptr_t)recv + recvs[k].at * element), recvs[k].count, dtype, k,
                                         true };
        transfers[2 * k] = sent;
        transfers[2 * k + 1] = received;
    }
    begin(&e, collective, name, transfers, n);
    log_first(&e);
    status = run(&e, &call);
    weiri_free(transfers);
    return status;
}

static weir_status message(weir_collective *collective, const char *name, const weir_transfer *t, void *stream)
{
    weir_status status = weiri_check_collective(collective, name);
    if (status != WEIR_OK) {
        return status;
    }
    exchange e;
    begin(&e, collective, name, t, 1);
    status = check_transfer(&e, t, t->receive ? "recv" : "send");
    if (status != WEIR_OK) {
        return status;
    }
    if (t->peer == collective->rank) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: rank %u is this one: send and receive in one weir_exchange", name,
                          t->peer);
    }
    const weiri_step call = {
        .call = { .kind = WEIRI_MESSAGE, .dtype = t->dtype, .op = WEIRI_NO_OP, .root = WEIRI_NO_ROOT },
        .count = t->count,
        .stream = stream
    };
    return run(&e, &call);
}

weir_status weir_send(weir_collective *collective, const void *send, uint64_t count, weir_dtype dtype, uint32_t peer,
                      void *stream)
{
    const weir_transfer t = { (void *)(uintptr_t)send, count, dtype, peer, false };
    return message(collective, "weir_send", &t, stream);
}

weir_status weir_recv(weir_collective *collective, void *recv, uint64_t count, weir_dtype dtype, uint32_t peer,
                      void *stream)
{
    const weir_transfer t = { recv, count, dtype, peer, true };
    return message(collective, "weir_recv", &t, stream);
}
