/* stripe.c - the queues of the transport ib, with one or several queue pairs.
 *
 * With one queue pair, the default, a queue is that of ib/queue.c and its posts go straight there. With several, or
 * with a device engine (ib/engine.c), a queue is a stripe over such queues: queue pair i belongs to NIC i % nic_count.
 * Both ends use the smaller of their two numbers of queue pairs. Puts and gets of STRIPE_BYTES or more are cut over all
 * queue pairs, at addresses of the peer that are multiples of 4 KiB. All else goes on queue pair 0.
 *
 * Queue pairs have no order among each other. So a value or an add is posted only when all earlier stripes are complete
 * on the other queue pairs. Until then it is held, and later values too; puts and gets go on. For each post under way
 * the stripe knows the post of each queue pair that completes it. It reports posts in order. */
#include <stdio.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/transport/ib/ib.h"

/* A signal after a stripe waits for a round trip of some microseconds. A fast NIC moves this much in that time. */
#define STRIPE_BYTES (UINT64_C(256) << 10)
#define CUT 4096u
#define POSTS 256u

/* A post under way. */
typedef struct record {
    uint64_t ends[WEIRI_IB_PAIRS_MAX]; /* complete with these posts of the queue pairs; UINT64_MAX: held */
    weiri_ib_word word;                /* if held */
} record;

typedef struct ib_stripe {
    weiri_queue base;
    weiri_queue *pairs[WEIRI_IB_PAIRS_MAX];
    uint32_t opened; /* open queue pairs */
    weiri_ib_engine engine;
    pthread_mutex_t lock; /* guards all below */
    uint32_t count;       /* queue pairs in use; 0 before the queue is connected */
    record *records;      /* [n % POSTS]: post n */
    uint64_t held;        /* number of the first held post, and how many are held */
    uint64_t held_count;
    weir_status failure;
    char text[320];
} ib_stripe;

static bool has_stripes(const ib_domain *domain) { return domain->pair_count > 1 || domain->has_engine; }

static bool is_stripe(const weiri_queue *queue) { return has_stripes((const ib_domain *)queue->domain); }

/* ---- open, connect, close ------------------------------------------------------------------------------- */

static void close_stripe(ib_stripe *s)
{
    weiri_ib_engine_close(&s->engine);
    for (uint32_t i = 0; i < s->opened; i++) {
        weiri_ib_queue_close(s->pairs[i]);
    }
    (void)pthread_mutex_destroy(&s->lock);
    weiri_free(s->records);
    weiri_free(s);
}

static weir_status open_stripe(weiri_domain *base, weiri_queue **out)
{
    ib_domain *domain = (ib_domain *)base;
    weiri_ib_queue_address own = { .count = domain->pair_count };
    ib_stripe *s = (ib_stripe *)weiri_alloc(1, sizeof *s);
    if (s == NULL) {
        return weiri_fail_nomem("ib: queue");
    }
    s->base.domain = base;
    (void)pthread_mutex_init(&s->lock, NULL);
    s->records = (record *)weiri_alloc(POSTS, sizeof *s->records);
    weir_status status = s->records != NULL ? WEIR_OK : weiri_fail_nomem("ib: queue");
    while (status == WEIR_OK && s->opened < domain->pair_count) {
        status = weiri_ib_queue_open(base, s->opened % domain->nic_count, &s->pairs[s->opened], &own.pairs[s->opened]);
        s->opened += status == WEIR_OK;
    }
    if (status != WEIR_OK) {
        close_stripe(s);
        return status;
    }
    if (domain->has_engine) {
        weiri_ib_engine_open(&domain->engine, &s->engine, &own.engine);
    }
    s->base.address_bytes = weiri_ib_address_write(&own, s->base.address);
    *out = &s->base;
    return WEIR_OK;
}

weir_status weiri_ib_stripe_open(weiri_domain *domain, weiri_queue **out)
{
    weiri_ib_queue_address own = { .count = 1 };
    if (has_stripes((const ib_domain *)domain)) {
        return open_stripe(domain, out);
    }
    weir_status status = weiri_ib_queue_open(domain, 0, out, &own.pairs[0]);
    if (status == WEIR_OK) {
        (*out)->address_bytes = weiri_ib_address_write(&own, (*out)->address);
    }
    return status;
}

static weir_status connect_stripe(ib_stripe *s, const weiri_ib_queue_address *peer)
{
    weir_status status = WEIR_OK;
    const uint32_t count = peer->count < s->opened ? peer->count : s->opened;
    for (uint32_t i = 0; i < count && status == WEIR_OK; i++) {
        status = weiri_ib_queue_connect(s->pairs[i], &peer->pairs[i]);
    }
    if (status == WEIR_OK) {
        weiri_ib_engine_connect(&s->engine, &peer->engine);
    }
    if (status == WEIR_OK) {
        (void)pthread_mutex_lock(&s->lock);
        s->count = count;
        (void)pthread_mutex_unlock(&s->lock);
    }
    return status;
}

weir_status weiri_ib_stripe_connect(weiri_queue *queue, const uint8_t *address, size_t bytes)
{
    weiri_ib_queue_address peer;
    weir_status status = weiri_ib_address_read(address, bytes, &peer);
    if (status != WEIR_OK) {
        return status;
    }
    return is_stripe(queue) ? connect_stripe((ib_stripe *)queue, &peer) : weiri_ib_queue_connect(queue, &peer.pairs[0]);
}

void weiri_ib_stripe_close(weiri_queue *queue)
{
    if (queue != NULL && is_stripe(queue)) {
        close_stripe((ib_stripe *)queue);
    } else {
        weiri_ib_queue_close(queue);
    }
}

/* ---- pieces of transfers ------------------------------------------------------------------------------- */

/* The keys for a queue pair. */
typedef struct keys {
    uint32_t lkey, rkey;
} keys;

static keys keys_of(const weiri_queue *pair, uint32_t index, const weiri_region *region, const weiri_remote *remote)
{
    const ib_domain *domain = (const ib_domain *)pair->domain;
    return (keys){ ((const ib_region *)region)->mrs[index % domain->nic_count]->lkey,
                   ((const ib_remote *)remote)->key.rkeys[weiri_ib_queue_peer_nic(pair)] };
}

/* Posts a piece of a transfer on a queue pair. */
static weir_status transfer_piece(weiri_queue *pair, uint32_t index, const weiri_ib_transfer *whole,
                                  const weiri_region *region, const weiri_remote *remote, uint64_t from, uint64_t to)
{
    const keys k = keys_of(pair, index, region, remote);
    weiri_ib_transfer piece = *whole;
    piece.host = whole->host != NULL ? whole->host + from : NULL;
    piece.local += from;
    piece.remote += from;
    piece.bytes = to - from;
    piece.lkey = k.lkey;
    piece.rkey = k.rkey;
    return weiri_ib_queue_transfer(pair, &piece);
}

/* ---- a stripe: posting ---------------------------------------------------------------------------------- */

static weir_status failed(const ib_stripe *s) { return weiri_fail(s->failure, "%s", s->text); }

/* Takes the error of a queue pair, with its text. */
static weir_status fail_stripe(ib_stripe *s, weir_status status)
{
    s->failure = status;
    snprintf(s->text, sizeof s->text, "%s", weir_last_error());
    return status;
}

static record *record_of(ib_stripe *s, uint64_t number) { return &s->records[number % POSTS]; }

static weir_status begin(ib_stripe *s)
{
    (void)pthread_mutex_lock(&s->lock);
    if (s->failure != WEIR_OK) {
        return failed(s);
    }
    if (s->count == 0) {
        return weiri_fail(WEIR_ERR_INVALID, "ib: queue: not connected");
    }
    /* The record before the first incomplete one stays. */
    return s->base.posted - s->base.completed < POSTS - 1 ? WEIR_OK : WEIR_ERR_BUSY;
}

/* Ends what begin began; the error of a queue pair becomes the stripe's. */
static weir_status end(ib_stripe *s, weir_status status)
{
    if (status < 0 && status != WEIR_ERR_BUSY && s->failure == WEIR_OK && s->count != 0) {
        (void)fail_stripe(s, status);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return status;
}

/* Numbers the post that was just passed to the queue pairs. Other threads may read the number. */
static record *count_post(ib_stripe *s)
{
    record *r = record_of(s, s->base.posted + 1);
    for (uint32_t i = 0; i < s->count; i++) {
        r->ends[i] = s->pairs[i]->posted;
    }
    __atomic_store_n(&s->base.posted, s->base.posted + 1, __ATOMIC_RELAXED);
    return r;
}

/* Posts to all queue pairs, or to none. */
static weir_status cut(const ib_stripe *s, const weiri_ib_transfer *t, const weiri_region *region,
                       const weiri_remote *remote)
{
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < s->count && status == WEIR_OK; i++) {
        status = weiri_ib_queue_ready(s->pairs[i]);
    }
    uint64_t from = 0;
    for (uint32_t i = 0; i < s->count && status == WEIR_OK; i++) {
        uint64_t to = t->bytes;
        if (i + 1 < s->count) {
            to = (t->remote + t->bytes / s->count * (i + 1)) / CUT * CUT - t->remote;
        }
        status = transfer_piece(s->pairs[i], i, t, region, remote, from, to);
        from = to;
    }
    return status;
}

static weir_status transfer(weiri_queue *queue, const weiri_ib_transfer *t, const weiri_region *region,
                            const weiri_remote *remote)
{
    if (!is_stripe(queue)) {
        return transfer_piece(queue, 0, t, region, remote, 0, t->bytes);
    }
    ib_stripe *s = (ib_stripe *)queue;
    weir_status status = begin(s);
    if (status == WEIR_OK) {
        status = s->count > 1 && t->bytes >= STRIPE_BYTES
                     ? cut(s, t, region, remote)
                     : transfer_piece(s->pairs[0], 0, t, region, remote, 0, t->bytes);
    }
    if (status == WEIR_OK) {
        (void)count_post(s);
    }
    return end(s, status);
}

/* Whether all posts before `number` are complete on the queue pairs after the first. */
static bool stripes_done(ib_stripe *s, uint64_t number)
{
    const record *before = record_of(s, number - 1);
    for (uint32_t i = 1; i < s->count; i++) {
        if (s->pairs[i]->completed < before->ends[i]) {
            return false;
        }
    }
    return true;
}

static weir_status word(weiri_queue *queue, const weiri_ib_word *w)
{
    if (!is_stripe(queue)) {
        return weiri_ib_queue_word(queue, w);
    }
    ib_stripe *s = (ib_stripe *)queue;
    weir_status status = begin(s);
    if (status == WEIR_OK && s->held_count == 0 && stripes_done(s, s->base.posted + 1)) {
        status = weiri_ib_queue_word(s->pairs[0], w);
        if (status == WEIR_OK) {
            (void)count_post(s);
        }
    } else if (status == WEIR_OK) {
        record *r = count_post(s);
        r->ends[0] = UINT64_MAX;
        r->word = *w;
        s->held = s->held_count == 0 ? s->base.posted : s->held;
        s->held_count++;
    }
    return end(s, status);
}

/* ---- operations -------------------------------------------------------------------------------------------- */

weir_status weiri_ib_stripe_put(weiri_queue *queue, weiri_remote *dst, uint64_t dst_offset, const weiri_region *src,
                                uint64_t src_offset, uint64_t bytes)
{
    const uint8_t *host = (const uint8_t *)src->block->host_pointer;
    const weiri_ib_key *key = &((const ib_remote *)dst)->key;
    weiri_ib_transfer t = {
        .opcode = IBV_WR_RDMA_WRITE,
        .host = host != NULL ? host + src_offset : NULL,
        .local = ((const ib_region *)src)->address + src_offset,
        .remote = key->address + dst_offset,
        .bytes = bytes,
        .flush = key->flush,
    };
    return transfer(queue, &t, src, dst);
}

weir_status weiri_ib_stripe_get(weiri_queue *queue, const weiri_region *dst, uint64_t dst_offset, weiri_remote *src,
                                uint64_t src_offset, uint64_t bytes)
{
    weiri_ib_transfer t = {
        .opcode = IBV_WR_RDMA_READ,
        .local = ((const ib_region *)dst)->address + dst_offset,
        .remote = ((const ib_remote *)src)->key.address + src_offset,
        .bytes = bytes,
    };
    return transfer(queue, &t, dst, src);
}

static const weiri_queue *first_pair(const weiri_queue *queue)
{
    return is_stripe(queue) ? ((const ib_stripe *)queue)->pairs[0] : queue;
}

static weiri_ib_word word_for(const weiri_queue *queue, const weiri_remote *dst, uint64_t offset, uint64_t value,
                              uint32_t bytes)
{
    const weiri_ib_key *key = &((const ib_remote *)dst)->key;
    return (weiri_ib_word){
        .opcode = IBV_WR_RDMA_WRITE,
        .value = value,
        .remote = key->address + offset,
        .bytes = bytes,
        .rkey = key->rkeys[weiri_ib_queue_peer_nic(first_pair(queue))],
        .flush = key->flush,
    };
}

weir_status weiri_ib_stripe_value(weiri_queue *queue, weiri_remote *dst, uint64_t dst_offset, uint64_t value,
                                  uint32_t bytes)
{
    const weiri_ib_word w = word_for(queue, dst, dst_offset, value, bytes);
    return word(queue, &w);
}

weir_status weiri_ib_stripe_add(weiri_queue *queue, weiri_remote *dst, uint64_t dst_offset, uint64_t value)
{
    const weiri_ib_nic *nic = &((const ib_domain *)queue->domain)->nics[0];
    if (nic->limits.atomic_cap == IBV_ATOMIC_NONE) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "ib: %s cannot add: it has no atomic operations", nic->port.device);
    }
    if (!((const ib_remote *)dst)->key.atomic) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "ib: %s can add, but the peer's NIC has no atomic operations",
                          nic->port.device);
    }
    weiri_ib_word w = word_for(queue, dst, dst_offset, value, sizeof value);
    w.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    return word(queue, &w);
}

/* ---- completion ----------------------------------------------------------------------------------------- */

/* Posts held words that need not wait any more. */
static weir_status release(ib_stripe *s, bool *went)
{
    while (s->held_count != 0 && stripes_done(s, s->held)) {
        record *r = record_of(s, s->held);
        weir_status status = weiri_ib_queue_word(s->pairs[0], &r->word);
        if (status != WEIR_OK) {
            return status == WEIR_ERR_BUSY ? WEIR_OK : fail_stripe(s, status);
        }
        *went = true;
        r->ends[0] = s->pairs[0]->posted;
        s->held_count--;
        while (s->held_count != 0 && record_of(s, ++s->held)->ends[0] != UINT64_MAX) {
        }
    }
    return WEIR_OK;
}

static bool is_complete(ib_stripe *s, uint64_t number)
{
    const record *r = record_of(s, number);
    for (uint32_t i = 0; i < s->count; i++) {
        if (s->pairs[i]->completed < r->ends[i]) {
            return false;
        }
    }
    return true;
}

static weir_status poll_pairs(ib_stripe *s, bool *went)
{
    for (uint32_t i = 0; i < s->count; i++) {
        weir_status status = weiri_ib_queue_poll(s->pairs[i]);
        if (status < 0) {
            return fail_stripe(s, status);
        }
        *went = *went || status == WEIR_OK;
    }
    return WEIR_OK;
}

static weir_status advance(ib_stripe *s)
{
    bool went = false;
    if (s->failure != WEIR_OK) {
        return failed(s);
    }
    weir_status status = poll_pairs(s, &went);
    if (status == WEIR_OK) {
        status = release(s, &went);
    }
    /* Also if a queue pair has failed: posts that completed before are complete. */
    uint64_t completed = s->base.completed;
    while (completed < s->base.posted && is_complete(s, completed + 1)) {
        completed++;
    }
    if (completed != s->base.completed) {
        __atomic_store_n(&s->base.completed, completed, __ATOMIC_RELEASE);
    }
    return status != WEIR_OK || went ? status : WEIR_PENDING;
}

weir_status weiri_ib_stripe_poll(weiri_queue *queue)
{
    if (!is_stripe(queue)) {
        return weiri_ib_queue_poll(queue);
    }
    ib_stripe *s = (ib_stripe *)queue;
    if (pthread_mutex_trylock(&s->lock) != 0) {
        return WEIR_PENDING;
    }
    weir_status status = advance(s);
    (void)pthread_mutex_unlock(&s->lock);
    return status;
}

/* ---- device engine ---------------------------------------------------------------------------------- */

static weir_status engine_view(weiri_queue *queue, weir_dev_rdma *out)
{
    return is_stripe(queue) ? weiri_ib_engine_view(&((ib_stripe *)queue)->engine, out)
                            : weiri_fail(WEIR_ERR_UNSUPPORTED, "ib: WEIR_PORT_ENGINE was not set when the "
                                                               "communicator's first connection was made");
}

static const char *engine_describe(const weiri_queue *queue)
{
    return is_stripe(queue) ? ((const ib_stripe *)queue)->engine.about : "";
}

static weir_dev_rdma_memory engine_local(const weiri_queue *queue, const weiri_region *region)
{
    const ib_region *r = (const ib_region *)region;
    (void)queue;
    return (weir_dev_rdma_memory){ .address = r->address, .key = r->mrs[0]->lkey };
}

static weir_dev_rdma_memory engine_remote(const weiri_queue *queue, const weiri_remote *remote, bool *flush, bool *adds)
{
    const weiri_ib_key *key = &((const ib_remote *)remote)->key;
    const weiri_ib_nic *nic = &((const ib_domain *)queue->domain)->nics[0];
    *flush = key->flush;
    *adds = key->atomic && nic->limits.atomic_cap != IBV_ATOMIC_NONE;
    return (weir_dev_rdma_memory){ .address = key->address,
                                   .key = key->rkeys[((const ib_stripe *)queue)->engine.peer_nic] };
}

static weir_dev_rdma_memory engine_scratch(const weiri_queue *queue)
{
    const weiri_ib_nic *nic = &((const ib_domain *)queue->domain)->nics[0];
    return (weir_dev_rdma_memory){ .address = (uint64_t)(uintptr_t)&nic->scratch[1], .key = nic->scratch_mr->lkey };
}

static weir_status engine_check(weiri_queue *queue) { return weiri_ib_engine_check(&((ib_stripe *)queue)->engine); }

const weiri_engine_ops weiri_ib_stripe_engine = {
    .view = engine_view,
    .describe = engine_describe,
    .local = engine_local,
    .remote = engine_remote,
    .scratch = engine_scratch,
    .check = engine_check,
};
