/* weir/device/impl/collective_exchange_places.h - an exchange of one launch: its lanes and transfers, their pieces, the
 * places of messages, counts and calls in the memories of the ranks, and the counts of lanes in this rank's own cells;
 * see impl/collective_exchange.h. */
#ifndef WEIR_DEVICE_IMPL_COLLECTIVE_EXCHANGE_PLACES_H
#define WEIR_DEVICE_IMPL_COLLECTIVE_EXCHANGE_PLACES_H

#include "weir/device/impl/collective_rails.h"

#define WEIR_EXCHANGE_LANES_INSIDE (2u * (WEIR_COLLECTIVE_RANKS - 1)) /* of a launch inside a host */
#define WEIR_EXCHANGE_LANES (2u * WEIR_COLLECTIVE_RANKS)              /* of any launch */
#define WEIR_EXCHANGE_TRANSFERS 190u                                  /* of a launch */
#define WEIR_EXCHANGE_PIECE ((uint64_t)7560)                          /* the lines of a slot of 8 KiB */
#define WEIR_LINED_MESSAGES 8u
#define WEIR_EXCHANGE_MEMORIES 8u                /* of receives of a launch */
#define WEIR_EXCHANGE_MET 0x80u                  /* in `notes` */
#define WEIR_OFFER_SHIFT 48                      /* of the row in an offer, in front of the place in its memory */
#define WEIR_MESSAGE_LEAST 8192u                 /* data of a message by a signal, if the slot has the room */
#define WEIR_EXCHANGE_DIRECT ((uint64_t)1 << 62) /* in the sender's call: the piece is in the receiver's buffer */
#define WEIR_EXCHANGE_EARLY ((uint64_t)1 << 31)  /* in its second word: no message has come with it */
#define WEIR_EXCHANGE_RING UINT32_MAX            /* stands for the ring where a column is meant */
#define WEIR_RING_HEAD 128u /* bytes of a slot before its packets or lines: the sender's call, as packets */

typedef struct weir_exchange_transfer {
    char *data;
    uint64_t count; /* of elements, and their type in the highest 8 bits */
} weir_exchange_transfer;

typedef struct weir_exchange_lane {
    uint8_t peer; /* its place on its host */
    uint8_t host; /* its host; not used inside a host */
    uint8_t receives;
    uint8_t far;   /* the peer is on another host */
    uint8_t first; /* of its transfers */
    uint8_t count;
    uint16_t most;  /* pieces of the transfer that has the most of them */
    uint32_t index; /* of the first one, among the transfers of the call between the two ranks in this direction */
    char *slots;    /* the receiver's long slots, mapped here; NULL: not known at the launch */
} weir_exchange_lane;

WEIR_STATIC_ASSERT(WEIR_EXCHANGE_TRANSFERS <= UINT8_MAX, "a lane counts transfers in 8 bits");

/* The differences of a collective: of each rank of the host, of each host, and then of each rank of all hosts. */
#define WEIR_DIFFERENCES_FAR (WEIR_COLLECTIVE_RANKS + WEIR_COLLECTIVE_HOSTS)

/* The state of lanes between hosts, in device memory. `places` is where each rank's memory of the rails has its
 * cells, for each kind, peer and column, and the slots behind them. Peers are the ranks of all hosts. */
typedef struct weir_exchange_rails {
    weir_dev_rails rails;
    char *memory[WEIR_COLLECTIVE_RANKS]; /* of the rails, of each rank of this host, mapped here */
    const uint32_t *peers;               /* ranks of the communicator */
    uint64_t places;
    uint64_t bytes; /* of a message's data */
    uint32_t columns;
    uint32_t size; /* ranks of all hosts */
} weir_exchange_rails;

/* An exchange of one launch. The first `rings` blocks of the grid divide the rings of the lanes. Then each column has
 * `sides` blocks: one for all lanes, or one for the lanes that receive and one for those that send. With `only` the one
 * lane has one piece, and one block. In a launch in which each block serves one lane at a time, each lane has `posts`
 * blocks for its columns instead. */
typedef struct weir_collective_exchange {
    uint64_t call;       /* that both ends compare, without the type */
    uint64_t least_long; /* inside the host transfers of so many bytes or more take long slots; UINT64_MAX: none does */
    uint32_t lanes;
    uint32_t rings;
    uint32_t posts;
    uint32_t columns;  /* of lanes inside the host, */
    uint32_t far;      /* and between hosts */
    uint32_t small;    /* inside the host transfers of fewer bytes take the ring */
    uint32_t together; /* the most small transfers that a block with one ring passes at once */
    uint32_t step;     /* columns from the first one of a transfer to that of the lane's next one */
    weir_exchange_lane lane[WEIR_EXCHANGE_LANES]; /* first those that receive */
    weir_exchange_transfer transfers[WEIR_EXCHANGE_TRANSFERS];
    const uint64_t
        *bases; /* rows, from 1 on, of the memories of WEIR_COLLECTIVE_RANKS ranks that are mapped here: registrations,
                   and mappings of receives; 0 for one that is not, or no longer. NULL: there are no rows */
    uint32_t inverse; /* 2^16 divided by `step`, rounded up */
    uint32_t sides;
    uint32_t only;
    uint32_t copies;                        /* of this rank to itself: two transfers each, source and target, */
    uint32_t copy;                          /* from this one on */
    uint32_t long_bytes;                    /* of a long slot, */
    uint32_t long_lined;                    /* of which so many are for lines; 0: none */
    uint32_t lined;                         /* bytes of a slot of the collective's memory that are for lines; 0: none */
    uint16_t rows[WEIR_EXCHANGE_MEMORIES];  /* of `bases`: the memories of the launch's receives */
    uint8_t notes[WEIR_EXCHANGE_TRANSFERS]; /* Of a receive: the place in `rows` of the memory that has its buffer,
                                               from 1 on; 0: none. Of both ends WEIR_EXCHANGE_MET is added if they
                                               met on the host, and the receiver's memory has a row: then they
                                               agree on the way of pieces that would otherwise go as lines. Of a
                                               small transfer in place of all this: the units of the small ones
                                               before it in its lane, modulo 256 */
} weir_collective_exchange;

WEIR_STATIC_ASSERT(offsetof(weir_collective_exchange, lane) == WEIR_ARGS_HEAD, "the head of weir_collective_exchange");

WEIR_FN uint64_t weir_exchange_count(const weir_exchange_transfer *t) { return t->count & UINT64_MAX >> 8; }

WEIR_FN uint32_t weir_exchange_dtype(const weir_exchange_transfer *t) { return (uint32_t)(t->count >> 56); }

WEIR_FN uint64_t weir_exchange_bytes(const weir_exchange_transfer *t)
{
    return weir_exchange_count(t) * weir_dtype_bytes(weir_exchange_dtype(t));
}

/* Whether the transfer of a lane takes the ring. */
WEIR_FN int weir_exchange_is_small(const weir_collective_exchange *x, uint32_t lane, uint64_t bytes)
{
    return x->lane[lane].far == 0 && bytes < x->small;
}

WEIR_FN uint32_t weir_exchange_columns(const weir_collective_exchange *x, uint32_t lane)
{
    return x->lane[lane].far ? x->far : x->columns;
}

/* Whether a transfer inside the host takes long slots. */
WEIR_FN int weir_exchange_is_long(const weir_collective_exchange *x, uint64_t bytes) { return bytes >= x->least_long; }

/* The bytes of a slot that are for lines. */
WEIR_FN uint32_t weir_lined_of(const weir_collective_exchange *x, int is_long)
{
    return is_long ? x->long_lined : x->lined;
}

/* The bytes of data that a message carries as lines. */
WEIR_FN uint32_t weir_lined_room(const weir_collective_exchange *x, int is_long)
{
    return (weir_lined_of(x, is_long) - WEIR_RING_HEAD) / WEIR_LINE_BYTES * WEIR_LINE_DATA;
}

/* Whether lines carry so many bytes in up to `messages` messages of each column. */
WEIR_FN int weir_exchange_fits_lines(const weir_collective_exchange *x, uint64_t bytes, uint32_t messages)
{
    return x->lined != 0 &&
           bytes <= (uint64_t)x->columns * messages * weir_lined_room(x, weir_exchange_is_long(x, bytes));
}

/* Whether transfer `i` of the launch, inside the host, goes as lines. */
WEIR_FN int weir_exchange_is_lined(const weir_collective_exchange *x, uint32_t i)
{
    return (x->notes[i] & WEIR_EXCHANGE_MET) == 0 &&
           weir_exchange_fits_lines(x, weir_exchange_bytes(&x->transfers[i]), WEIR_LINED_MESSAGES);
}

/* Pieces of a transfer of `bytes` bytes. Shorter ones than `columns` pieces fit 32 bits, whose division takes less
 * time: there are at most some hundred columns. */
WEIR_FN uint32_t weir_exchange_pieces(uint64_t bytes, uint32_t columns)
{
    if (bytes > (columns - 1) * WEIR_EXCHANGE_PIECE) {
        return columns;
    }
    return bytes == 0 ? 1 : ((uint32_t)bytes - 1) / (uint32_t)WEIR_EXCHANGE_PIECE + 1;
}

/* The first column of a transfer. It follows from the transfer's number among all of the lane. */
typedef struct weir_exchange_start {
    uint32_t number; /* modulo 2^32 the steps of all transfers before it */
    uint32_t column;
} weir_exchange_start;

WEIR_FN weir_exchange_start weir_exchange_start_of(const weir_dev_collective *c, const weir_collective_exchange *x,
                                                   uint32_t lane, uint32_t number)
{
    const uint32_t peer = x->lane[lane].peer;
    const uint32_t from = x->lane[lane].receives ? peer : c->rank;
    const uint32_t to = x->lane[lane].receives ? c->rank : peer;
    weir_exchange_start start;
    start.number = number * x->step + from * c->ranks + to;
    start.column = start.number % weir_exchange_columns(x, lane);
    return start;
}

/* The first column of a later transfer of the lane, `steps` columns further on, without a division. */
WEIR_FN weir_exchange_start weir_exchange_start_after(weir_exchange_start start, uint32_t steps, uint32_t columns)
{
    start.number += steps;
    start.column += steps;
    if (WEIR_UNLIKELY(start.number < steps)) { /* the number began again */
        start.column = start.number % columns;
    }
    WEIR_ROLLED
    while (start.column >= columns) {
        start.column -= columns;
    }
    return start;
}

/* ---- places ------------------------------------------------------------------------------------------------- */

/* The slot of message `number` of a column from `from`, among those of `to`. */
WEIR_FN uint64_t weir_message_index(const weir_dev_collective *c, uint32_t from, uint32_t to, uint64_t number,
                                    uint32_t column)
{
    const uint32_t place = from - (from > to); /* among the senders */
    return ((number % 2) * c->message_blocks + column) * (c->ranks - 1) + place;
}

/* That slot in the collective's memory. */
WEIR_FN char *weir_message_slot(const weir_dev_collective *c, uint32_t from, uint32_t to, uint64_t number,
                                uint32_t column)
{
    return c->memory[to] + c->messages + weir_message_index(c, from, to, number, column) * c->message_bytes;
}

/* The word in this rank's memory that says where the long slots of `of` are mapped here; 0: not known. The host writes
 * this rank's own, and kernels write those of others. */
WEIR_FN uint64_t *weir_message_long(const weir_dev_collective *c, uint32_t of)
{
    return (uint64_t *)(c->memory[c->rank] + weir_collective_cell(c, WEIR_CELL_MESSAGE, 0, of) + 96);
}

/* Where the host writes the same, in host memory, while kernels wait: its copy to device memory might queue up behind
 * such a kernel. */
WEIR_FN const uint64_t *weir_message_mapped(const weir_dev_collective *c, uint32_t of)
{
    return &c->differences[of].first;
}

/* The long slots of the lane, or NULL: the sender waits for them. */
WEIR_FN char *weir_message_long_slots(const weir_dev_collective *c, const weir_exchange_lane *lane)
{
    const uint32_t of = lane->receives != 0 ? c->rank : lane->peer;
    return lane->slots != NULL ? lane->slots
                               : (char *)(uintptr_t)weir_arch_load_relaxed_sys_u64(weir_message_long(c, of));
}

/* Whether the lane sends a piece into long slots that are not mapped here yet. */
WEIR_FN int weir_exchange_lacks_slots(const weir_dev_collective *c, const weir_collective_exchange *x, uint32_t lane,
                                      int is_long)
{
    const weir_exchange_lane *l = &x->lane[lane];
    return is_long && l->receives == 0 && l->slots == NULL &&
           weir_arch_load_acquire_sys_u64(weir_message_long(c, l->peer)) == 0;
}

/* The slot for the data of a message. */
WEIR_FN char *weir_message_place(const weir_dev_collective *c, const weir_collective_exchange *x, uint32_t lane,
                                 int is_long, uint64_t number, uint32_t column)
{
    const weir_exchange_lane *l = &x->lane[lane];
    const uint32_t from = l->receives != 0 ? l->peer : c->rank;
    const uint32_t to = l->receives != 0 ? c->rank : l->peer;
    return is_long ? weir_message_long_slots(c, l) +
                         weir_message_index(c, from, to, number, column) * (uint64_t)x->long_bytes
                   : weir_message_slot(c, from, to, number, column);
}

/* The sender's call, in the cell of the column's semaphore. */
WEIR_FN uint64_t *weir_message_head(const weir_dev_collective *c, uint32_t from, uint32_t to, uint64_t number,
                                    uint32_t column)
{
    return (uint64_t *)(c->memory[to] + weir_collective_cell(c, WEIR_CELL_MESSAGE, column, from) + 8 +
                        24 * (number % 2));
}

/* Where the receiver of a piece tells the sender the place of its data: two packets. */
WEIR_FN char *weir_message_offer(const weir_dev_collective *c, uint32_t from, uint32_t to, uint32_t column)
{
    return c->memory[from] + weir_collective_cell(c, WEIR_CELL_MESSAGE_TAKEN, column, to) + 16;
}

/* Where the blocks that help to send a piece count themselves, in the sender's memory; 0 between pieces. */
WEIR_FN uint64_t *weir_message_helped(const weir_dev_collective *c, uint32_t to, uint32_t column)
{
    return (uint64_t *)(c->memory[c->rank] + weir_collective_cell(c, WEIR_CELL_MESSAGE_TAKEN, column, to) + 64);
}

/* A small transfer takes up to a quarter of the units of its lane's ring, and a block passes up to half of them at
 * once.
 */
WEIR_FN uint32_t weir_ring_most(uint32_t units) { return units / 4; }
WEIR_FN uint32_t weir_ring_turn(uint32_t units) { return units / 2; }

/* Bytes of a unit. */
WEIR_FN uint32_t weir_ring_unit_bytes(uint32_t shift) { return WEIR_RING_HEAD + (2u << shift); }

/* Bytes of a ring. A transfer that begins at one of the last units ends behind them. */
WEIR_FN uint32_t weir_ring_total(uint32_t units, uint32_t shift)
{
    return (units + weir_ring_most(units)) * weir_ring_unit_bytes(shift);
}

/* Units of a small transfer of `bytes` bytes. */
WEIR_FN uint32_t weir_ring_units(const weir_dev_collective *c, uint64_t bytes)
{
    return bytes == 0 ? 1 : (((uint32_t)bytes - 1) >> c->ring_shift) + 1;
}

/* The slot of a small transfer from `from` to `to` that begins at unit `number`. The rings of all senders lie before
 * the receiver's message slots. */
WEIR_FN char *weir_ring_slot(const weir_dev_collective *c, uint32_t from, uint32_t to, uint64_t number)
{
    const uint32_t before = (c->ranks - from) * c->ring_lines * WEIR_LINE_BYTES;
    const uint32_t unit = (uint32_t)number & (c->ring_units - 1u);
    return c->memory[to] + c->messages - before + unit * weir_ring_unit_bytes(c->ring_shift);
}

WEIR_FN uint32_t weir_ring_flag(uint64_t number) { return (uint32_t)number | 0x80000000u; }

/* Where the receiver `to` tells the sender `from` how many units it has taken. */
WEIR_FN uint64_t *weir_ring_taken(const weir_dev_collective *c, uint32_t from, uint32_t to)
{
    return (uint64_t *)(c->memory[from] + weir_collective_cell(c, WEIR_CELL_MESSAGE_TAKEN, 0, to) + 8);
}

/* ---- places between hosts ----------------------------------------------------------------------------------- */

/* Cells in the rails' memory of a rank. Others write the first two, for a rank of this host to read. */
enum {
    WEIR_FAR_ARRIVED = 0, /* messages that have arrived from the peer */
    WEIR_FAR_TAKEN = 1,   /* messages that the peer has taken */
    WEIR_FAR_OWN = 2,     /* messages that this rank has sent and taken; in column 0 also its transfers */
    WEIR_FAR_KINDS = 3
};

WEIR_FN int weir_exchange_is_far(const weir_exchange_rails *r, const weir_exchange_lane *lane)
{
    return r != NULL && lane->far != 0;
}

WEIR_FN uint64_t weir_far_cell(const weir_exchange_rails *r, uint32_t kind, uint32_t peer, uint32_t column)
{
    return r->places + (((uint64_t)kind * r->size + peer) * r->columns + column) * WEIR_CELL_BYTES;
}

/* The slot of a message that comes, or (`out`) goes. */
WEIR_FN uint64_t weir_far_slot(const weir_exchange_rails *r, uint32_t out, uint32_t peer, uint64_t number,
                               uint32_t column)
{
    const uint64_t index = (((uint64_t)out * r->size + peer) * r->columns + column) * 2 + number % 2;
    return weir_far_cell(r, WEIR_FAR_KINDS, 0, 0) + index * (WEIR_RAIL_HEAD + r->bytes);
}

/* This rank's place in the memory of this host's rank that has the peer's place, among the ranks of the peer's host. */
WEIR_FN uint32_t weir_far_here(const weir_dev_collective *c, const weir_exchange_lane *lane)
{
    return (uint32_t)lane->host * c->ranks + c->rank;
}

/* The peer's place in the memory of the rank on its host that has this rank's place. */
WEIR_FN uint32_t weir_far_there(const weir_dev_collective *c, const weir_exchange_rails *r,
                                const weir_exchange_lane *lane)
{
    return r->rails.host * c->ranks + lane->peer;
}

/* The peer among the ranks of all hosts. */
WEIR_FN uint32_t weir_far_peer(const weir_dev_collective *c, const weir_exchange_lane *lane)
{
    return (uint32_t)lane->host * c->ranks + lane->peer;
}

/* The message that arrives next, with the sender's call before its data. */
WEIR_FN char *weir_far_message(const weir_dev_collective *c, const weir_exchange_rails *r,
                               const weir_exchange_lane *lane, uint64_t number, uint32_t column)
{
    return r->memory[lane->peer] + weir_far_slot(r, 0, weir_far_here(c, lane), number, column);
}

/* This rank's own counts of a lane. */
WEIR_FN uint64_t *weir_far_own(const weir_dev_collective *c, const weir_exchange_rails *r,
                               const weir_exchange_lane *lane, uint32_t column)
{
    return (uint64_t *)(r->rails.memory + weir_far_cell(r, WEIR_FAR_OWN, weir_far_peer(c, lane), column)) +
           (lane->receives ? 1 : 0);
}

/* ---- places of a lane ------------------------------------------------------------------------------------------- */

/* The counts of a lane inside the host, in this rank's own cells. */
enum {
    WEIR_LANE_TRANSFERS = 0,
    WEIR_LANE_UNITS = 1, /* units of the ring that the small ones have taken */
    WEIR_LANE_TAKEN = 2  /* a value that the word of weir_ring_taken has had */
};

WEIR_FN uint64_t *weir_exchange_counts(const weir_dev_collective *c, const weir_exchange_lane *lane)
{
    const uint32_t index = 2u * lane->peer + (lane->receives ? 1 : 0);
    return c->epoch + WEIR_COLLECTIVE_LANES_AT + index * WEIR_COLLECTIVE_LANE_WORDS;
}

/* The number of transfers of a lane so far. */
WEIR_FN uint64_t *weir_exchange_number(const weir_dev_collective *c, const weir_exchange_rails *r,
                                       const weir_exchange_lane *lane)
{
    if (weir_exchange_is_far(r, lane)) {
        return weir_far_own(c, r, lane, 0) + 2;
    }
    return weir_exchange_counts(c, lane) + WEIR_LANE_TRANSFERS;
}

/* The number of messages of a lane in a column so far; of units in the ring. */
WEIR_FN uint64_t *weir_exchange_messages(const weir_dev_collective *c, const weir_exchange_rails *r,
                                         const weir_exchange_lane *lane, uint32_t column)
{
    if (column == WEIR_EXCHANGE_RING) {
        return weir_exchange_counts(c, lane) + WEIR_LANE_UNITS;
    }
    if (weir_exchange_is_far(r, lane)) {
        return weir_far_own(c, r, lane, column);
    }
    const weir_dev_semaphore data = weir_collective_semaphore(c, WEIR_CELL_MESSAGE, column, lane->peer);
    return lane->receives ? data.expected : data.sent;
}

/* The word in which a peer counts: messages that have arrived, or (of a lane that sends) that it has taken. */
WEIR_FN const uint64_t *weir_exchange_word(const weir_dev_collective *c, const weir_exchange_rails *r,
                                           const weir_exchange_lane *lane, uint32_t column)
{
    if (weir_exchange_is_far(r, lane)) {
        const uint32_t kind = lane->receives ? WEIR_FAR_ARRIVED : WEIR_FAR_TAKEN;
        return (const uint64_t *)(r->memory[lane->peer] + weir_far_cell(r, kind, weir_far_here(c, lane), column));
    }
    const uint32_t kind = lane->receives ? WEIR_CELL_MESSAGE : WEIR_CELL_MESSAGE_TAKEN;
    return (const uint64_t *)(c->memory[c->rank] + weir_collective_cell(c, kind, column, lane->peer));
}

/* ---- pieces of a lane in one column ----------------------------------------------------------------------------- */

/* A thread keeps those of all lanes in local memory. CUDA gives a context 1,024 bytes of it for each thread. The launch
 * of a kernel that needs more waits until all kernels of the context have ended, and these may wait for that launch. */
typedef struct weir_exchange_state {
    uint64_t messages; /* of the column so far, or units of the ring */
    char *data;        /* the rest of the piece: `left` bytes */
    int64_t left;
    uint32_t number; /* of transfers before those of the launch */
    uint32_t room;   /* for the data of one of the piece's messages */
    uint16_t next;   /* transfer of the lane whose piece this is */
    uint8_t begun;   /* the piece's first message has passed */
    uint8_t opened;  /* the calling thread has opened the piece */
    uint8_t direct;  /* the piece goes into the receiver's buffer, */
    uint8_t lined;   /* or through slots as lines, */
    uint8_t is_long; /* and the slots are long */
} weir_exchange_state;

/* A transfer of a lane whose turn it is. Passed by value: taking the state's address would keep it out of registers. */
typedef struct weir_exchange_turn {
    uint32_t number; /* among all transfers of the lane */
    uint32_t next;   /* among those of the launch */
} weir_exchange_turn;

WEIR_FN weir_exchange_turn weir_exchange_turn_of(const weir_exchange_state *s)
{
    const weir_exchange_turn turn = { s->number + s->next, s->next };
    return turn;
}

/* Begins piece `piece` of a transfer of `bytes` bytes in up to `columns` pieces. Returns 0 if the transfer has no such
 * piece, before the division. */
WEIR_FN uint32_t weir_exchange_cut(const weir_collective_exchange *x, const weir_exchange_transfer *t, uint64_t bytes,
                                   uint32_t piece, uint32_t columns, weir_exchange_state *s)
{
    const uint32_t pieces = weir_exchange_pieces(bytes, columns);
    if (piece >= pieces) {
        return 0;
    }
    const uint64_t range = weir_slots_range(bytes, pieces);
    s->data = t->data + piece * range;
    s->left = weir_least((int64_t)range, weir_left(bytes, piece * range));
    s->is_long = (uint8_t)weir_exchange_is_long(x, bytes);
    return s->left > 0 || piece == 0;
}

WEIR_FN uint32_t weir_exchange_find_small(const weir_collective_exchange *x, uint32_t lane, weir_exchange_state *s)
{
    WEIR_ROLLED
    for (; s->next < x->lane[lane].count; s->next++) {
        const weir_exchange_transfer *t = &x->transfers[x->lane[lane].first + s->next];
        const uint64_t bytes = weir_exchange_bytes(t);
        if (weir_exchange_is_small(x, lane, bytes)) {
            s->data = t->data;
            s->left = (int64_t)bytes;
            return 1;
        }
    }
    return 0;
}

/* Finds the next piece of the column, from transfer `next` on, which begins at *start. Returns 0 at the end. A column
 * has no piece of most of many short transfers, and passes over them without reading them. */
WEIR_FN uint32_t weir_exchange_find_in_column(const weir_collective_exchange *x, uint32_t lane, uint32_t column,
                                              weir_exchange_start *start, weir_exchange_state *s)
{
    const weir_exchange_lane *l = &x->lane[lane];
    const uint32_t columns = weir_exchange_columns(x, lane);
    const uint32_t step = x->step;
    const uint32_t inverse = x->inverse;
    const uint32_t count = l->count;
    const uint32_t most = l->most;
    const weir_exchange_transfer *transfers = x->transfers + l->first;
    uint32_t next = s->next;
    uint32_t found = 0;
    WEIR_ROLLED
    while (next < count && !found) {
        const uint32_t first = start->column;
        const uint32_t piece = column >= first ? column - first : column + columns - first;
        uint32_t passed = 0;
        if (piece < most) {
            const uint64_t bytes = weir_exchange_bytes(&transfers[next]);
            found = !weir_exchange_is_small(x, lane, bytes) &&
                    weir_exchange_cut(x, &transfers[next], bytes, piece, columns, s);
            passed = !found;
        } else { /* the next one that may have a piece here */
            passed = ((piece - most) * inverse >> 16) + 1;
            passed = WEIR_UNLIKELY(start->number + passed * step < start->number) ? 1 : passed;
        }
        if (!found) {
            *start = weir_exchange_start_after(*start, passed * step, columns);
            next += passed;
        }
    }
    s->next = (uint16_t)next;
    return found;
}

/* Finds the next piece of the column, or the next small transfer, from transfer `next` on. Returns 0 at the end. */
WEIR_FN uint32_t weir_exchange_find(const weir_dev_collective *c, const weir_collective_exchange *x, uint32_t lane,
                                    uint32_t column, weir_exchange_state *s)
{
    s->begun = 0;
    s->opened = 0;
    s->is_long = 0;
    if (column == WEIR_EXCHANGE_RING) {
        return weir_exchange_find_small(x, lane, s);
    }
    if (column >= weir_exchange_columns(x, lane) || s->next >= x->lane[lane].count) {
        return 0;
    }
    weir_exchange_start start = weir_exchange_start_of(c, x, lane, s->number + s->next);
    return weir_exchange_find_in_column(x, lane, column, &start, s);
}

#endif
