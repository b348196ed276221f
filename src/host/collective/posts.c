/* posts.c - both ends of transfers by copies, and of recorded ones that map their buffers, meet on the host.
 *
 * The rank that puts a copy on its stream must know the receiver's buffer, and a sender must map a buffer before its
 * kernel stores into it. So a call tells each peer of its transfers with it, and then waits until the peer has told of
 * the other end of each. The i-th send to a peer meets the i-th receive from this rank, however calls divide them: what
 * a peer has told beyond the call's transfers is kept for later calls. An error ends the communicator, because other
 * peers of the call may wait on their streams by then.
 *
 * The first message about a mapping to a rank has its handle, and ends with the transfer that uses it. */
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/base/wire.h"
#include "src/host/collective/collective.h"
#include "src/host/comm/exchange.h"

#define HEADER_BYTES (1 + 1 + 4)
#define POST_BYTES (4 + 8 + 1 + 8 + 2)
#define POSTS_MOST ((WEIRI_PAYLOAD_MAX - HEADER_BYTES) / POST_BYTES) /* in a message */

/* The posts of a peer in one direction that have not met a transfer of this rank. */
typedef struct queue {
    weiri_post *posts;
    uint64_t first;
    uint64_t end;
    uint64_t room;
} queue;

struct weiri_posts {
    queue queues[WEIR_COLLECTIVE_RANKS][2]; /* of each peer; the second index is weir_transfer.receive at the peer */
};

/* A call and its transfers, of which those of at least `least` bytes meet. */
typedef struct meeting {
    weir_collective *collective;
    const char *name;
    const weir_transfer *transfers;
    uint32_t n;
    uint64_t least;
    bool maps;
} meeting;

/* A transfer of a call with a peer in one direction. */
typedef struct cursor {
    uint32_t i;     /* its number, or the number of transfers: there are no more */
    uint32_t place; /* among all of them with the peer in this direction */
} cursor;

/* The first of these transfers that meets, from this one on. */
static cursor meet_from(const meeting *m, cursor at, uint32_t peer, bool receive)
{
    at.i = weiri_exchange_next(m->transfers, m->n, at.i, peer, receive);
    while (at.i < m->n && m->transfers[at.i].count * weir_dtype_bytes(m->transfers[at.i].dtype) < m->least) {
        at.i = weiri_exchange_next(m->transfers, m->n, at.i + 1, peer, receive);
        at.place++;
    }
    return at;
}

static cursor first_of(const meeting *m, uint32_t peer, bool receive)
{
    const cursor first = { 0, 0 };
    return meet_from(m, first, peer, receive);
}

static cursor next_of(const meeting *m, cursor at, uint32_t peer, bool receive)
{
    const cursor next = { at.i + 1, at.place + 1 };
    return meet_from(m, next, peer, receive);
}

/* ---- queues ------------------------------------------------------------------------------------------------------ */

static weir_status push(queue *q, const weiri_post *post)
{
    if (q->first == q->end) {
        q->first = 0;
        q->end = 0;
    }
    if (q->end == q->room) {
        const uint64_t room = q->room == 0 ? POSTS_MOST : 2 * q->room;
        weiri_post *posts = (weiri_post *)weiri_realloc(q->posts, (size_t)room * sizeof *posts);
        if (posts == NULL) {
            return weiri_fail_nomem("weir_exchange");
        }
        q->posts = posts;
        q->room = room;
    }
    q->posts[q->end++] = *post;
    return WEIR_OK;
}

static weir_status open_posts(weir_collective *collective)
{
    if (collective->posts == NULL) {
        collective->posts = (weiri_posts *)weiri_alloc(1, sizeof *collective->posts);
    }
    return collective->posts != NULL ? WEIR_OK : weiri_fail_nomem("weir_exchange");
}

void weiri_posts_close(weir_collective *collective)
{
    for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS && collective->posts != NULL; k++) {
        weiri_free(collective->posts->queues[k][0].posts);
        weiri_free(collective->posts->queues[k][1].posts);
    }
    weiri_free(collective->posts);
}

weiri_post weiri_posts_take(weir_collective *collective, uint32_t peer)
{
    queue *q = &collective->posts->queues[peer][true];
    return q->posts[q->first++];
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static void write_post(weiri_writer *w, cursor at, const weir_transfer *t, const weiri_place *where)
{
    weiri_write_u32(w, at.place);
    weiri_write_u64(w, t->count);
    weiri_write_u8(w, (uint8_t)t->dtype);
    weiri_write_u64(w, where->offset);
    weiri_write_u16(w, (uint16_t)where->row);
}

/* `mapping`: one whose handle the peer has not got, or NULL. */
static weir_status send_message(const weir_collective *collective, uint32_t peer, uint8_t *payload, size_t bytes,
                                uint32_t posts, weiri_mapping *mapping)
{
    weir_memory *handle = mapping != NULL ? mapping->memory.local : NULL;
    const weiri_op_message message = { WEIRI_OP_TRANSFERS, payload, bytes, { handle, NULL }, handle != NULL };
    payload[1] = (uint8_t)posts;
    const weir_status status = weiri_exchange_send(collective->comm, collective->host.ranks[peer],
                                                   weiri_collective_tag(collective, WEIRI_TAG_TRANSFERS), &message);
    if (mapping != NULL && status == WEIR_OK) {
        mapping->told |= (uint32_t)1 << peer;
    }
    return status;
}

/* The number of transfers that meet. */
static uint32_t count_of(const meeting *m, uint32_t peer, bool receive)
{
    uint32_t count = 0;
    for (cursor at = first_of(m, peer, receive); at.i < m->n; at = next_of(m, at, peer, receive)) {
        count++;
    }
    return count;
}

/* The number of all transfers, of which some may be too short to meet. */
static uint32_t total_of(const meeting *m, uint32_t peer, bool receive)
{
    meeting all = *m;
    all.least = 0;
    return count_of(&all, peer, receive);
}

/* Tells the peer of the call's sends to it, or of the receives from it. */
static weir_status tell(const meeting *m, uint32_t peer, bool receive)
{
    uint8_t payload[WEIRI_PAYLOAD_MAX];
    const uint32_t total = total_of(m, peer, receive);
    weiri_writer w = weiri_writer_init(payload, sizeof payload);
    weir_status status = WEIR_OK;
    uint32_t posts = 0; /* in this message */
    cursor next;
    for (cursor at = first_of(m, peer, receive); at.i < m->n && status == WEIR_OK; at = next) {
        if (posts == 0) {
            w = weiri_writer_init(payload, sizeof payload);
            weiri_write_u8(&w, receive);
            weiri_write_u8(&w, 0);
            weiri_write_u32(&w, total);
        }
        const weir_transfer *t = &m->transfers[at.i];
        const weiri_place nowhere = { 0 };
        const weiri_place where =
            receive ? weiri_map_place(m->collective, t->buffer, t->count * weir_dtype_bytes(t->dtype), m->maps)
                    : nowhere;
        const bool untold = where.row != 0 && where.mapping != NULL && (where.mapping->told >> peer & 1) == 0;
        write_post(&w, at, t, &where);
        next = next_of(m, at, peer, receive);
        if (++posts == POSTS_MOST || next.i == m->n || untold) {
            status = send_message(m->collective, peer, payload, w.size, posts, untold ? where.mapping : NULL);
            posts = 0;
        }
    }
    return status;
}

/* The place of a receive is checked here, so that no copy leaves the memory. Kernels can do without a place. */
static bool is_inside(const meeting *m, uint32_t peer, const weiri_post *post)
{
    const uint64_t bytes = post->count * weir_dtype_bytes(post->dtype);
    const weir_memory *memory = weiri_map_row(m->collective, peer, post->row);
    return memory == NULL
               ? m->maps
               : post->offset <= weir_memory_bytes(memory) && bytes <= weir_memory_bytes(memory) - post->offset;
}

typedef struct hearing {
    const meeting *meeting;
    uint32_t peer;
} hearing;

static weir_status read_message(weir_future *future)
{
    const hearing *h = (const hearing *)future->out;
    weiri_reader r = weiri_reader_init(future->payload, future->payload_bytes);
    const uint8_t receive = weiri_read_u8(&r);
    const uint32_t posts = weiri_read_u8(&r);
    const uint32_t total = weiri_read_u32(&r);
    const bool maps = h->meeting->maps && receive != 0;
    bool fine = receive <= 1 && posts != 0 && future->handle_count <= (maps ? 1 : 0) &&
                future->payload_bytes == HEADER_BYTES + (size_t)posts * POST_BYTES;
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < posts && fine && status == WEIR_OK; i++) {
        weiri_post post = { .total = total };
        post.place = weiri_read_u32(&r);
        post.count = weiri_read_u64(&r);
        post.dtype = weiri_read_u8(&r);
        post.offset = weiri_read_u64(&r);
        post.row = weiri_read_u16(&r);
        fine = post.place < total && post.dtype < WEIR_DTYPES && post.count <= WEIRI_BYTES_MOST;
        if (fine && i + 1 == posts && future->handle_count == 1) {
            status = weiri_map_remote(h->meeting->collective, h->peer, post.row, &future->handles[0], future->fds[0]);
        }
        fine = fine && (receive == 0 || post.count == 0 || is_inside(h->meeting, h->peer, &post));
        if (fine && status == WEIR_OK) {
            status = push(&h->meeting->collective->posts->queues[h->peer][receive], &post);
        }
    }
    return fine ? status : weiri_fail(WEIR_ERR_CORRUPT, "malformed transfers of rank %u", future->peer);
}

/* Waits until the peer has told of `count` sends to this rank, or receives from it. */
static weir_status hear(const meeting *m, uint32_t peer, bool receive, uint64_t count)
{
    weir_collective *collective = m->collective;
    const queue *q = &collective->posts->queues[peer][receive];
    hearing h = { m, peer };
    weir_status status = WEIR_OK;
    while (q->end - q->first < count && status == WEIR_OK) {
        weir_future *future = NULL;
        status = weiri_exchange_expect(collective->comm, collective->host.ranks[peer],
                                       weiri_collective_tag(collective, WEIRI_TAG_TRANSFERS), WEIRI_OP_TRANSFERS,
                                       read_message, NULL, NULL, &h, &future);
        status = status == WEIR_OK ? weiri_exchange_complete(future) : status;
    }
    return status;
}

/* ---- both ends --------------------------------------------------------------------------------------------------- */

/* Compares the call's sends to the peer, or receives from it, with the other ends, which are known. */
static weir_status compare(const meeting *m, uint32_t peer, bool receive)
{
    const weir_collective *collective = m->collective;
    const queue *q = &collective->posts->queues[peer][!receive];
    uint64_t number = q->first;
    for (cursor at = first_of(m, peer, receive); at.i < m->n; at = next_of(m, at, peer, receive)) {
        const weir_transfer *t = &m->transfers[at.i];
        const weiri_post *other = &q->posts[number++];
        const weiri_post own = { .count = t->count, .dtype = t->dtype, .place = at.place };
        if (other->count != own.count || other->dtype != own.dtype) {
            char text[256];
            weiri_transfer_differ(&own, other, receive, collective->host.ranks[peer], text, sizeof text);
            return weiri_fail(WEIR_ERR_MISMATCH, "%s: %s", m->name, text);
        }
    }
    return WEIR_OK;
}

/* Tells the peer of the call's transfers with it. */
static weir_status tell_peer(const meeting *m, uint32_t peer)
{
    const weir_status status = tell(m, peer, false);
    return status == WEIR_OK ? tell(m, peer, true) : status;
}

/* Waits for the other ends of the call's transfers with the peer. Those of receives are done with then. */
static weir_status hear_peer(const meeting *m, uint32_t peer)
{
    const uint32_t receives = count_of(m, peer, true);
    weir_status status = hear(m, peer, true, count_of(m, peer, false));
    status = status == WEIR_OK ? hear(m, peer, false, receives) : status;
    status = status == WEIR_OK ? compare(m, peer, false) : status;
    status = status == WEIR_OK ? compare(m, peer, true) : status;
    m->collective->posts->queues[peer][false].first += status == WEIR_OK ? receives : 0;
    return status;
}

weir_status weiri_posts_meet(weir_collective *collective, const char *name, const weir_transfer *transfers, uint32_t n,
                             uint64_t least, bool maps)
{
    const meeting m = { collective, name, transfers, n, least, maps };
    const weir_dev_collective *c = &collective->device;
    weir_status status = open_posts(collective);
    for (uint32_t k = 0; k + 1 < c->ranks && status == WEIR_OK; k++) {
        status = tell_peer(&m, weir_collective_peer(c, k));
    }
    for (uint32_t k = 0; k + 1 < c->ranks && status == WEIR_OK; k++) {
        status = hear_peer(&m, weir_collective_peer(c, k));
    }
    return status == WEIR_OK ? WEIR_OK : weiri_comm_break(collective->comm, status, weir_last_error());
}
