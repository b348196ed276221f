/* queue.c - a queue of one reliable queue pair with its completion queue.
 *
 * A post becomes one request of the queue pair, or several if it is longer than a message may be. The part that finds
 * no room waits in `rest` for the next poll; until then nothing else can be posted.
 *
 * Few requests are signalled, because each completion costs. A request is signalled while fewer than two signalled ones
 * are under way; otherwise each 16th one and the one that ends 64 KiB are. A completion stands for all requests before
 * it; `covers` says which posts are complete with it. If posts remain behind the last signalled request and nothing
 * else would complete, a signalled empty write follows them.
 *
 * A write to device memory is complete when a later read of that memory is (ib.c says why). Such a read precedes each
 * value, and replaces the empty write above. A value also waits for earlier gets and adds, which have happened only
 * when their answers have arrived. Adds behave as values, but do not wait for each other. The device limits how many
 * gets and adds are under way (max_rd_atomic).
 *
 * A software device may leave requests unprocessed until it is called again: in Soft-RoCE the task that finds a request
 * fenced races with the one that lifts the fence (wait_fence in Linux's rxe_req.c and rxe_comp.c). So if nothing has
 * completed for QUIET_NS, an empty write is posted, and another one after each further QUIET_NS. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/clock.h"
#include "src/host/base/error.h"
#include "src/transport/ib/ib.h"

#define DEPTH_MAX 256
#define MESSAGE_MAX (UINT64_C(1) << 30)
#define SIGNAL_EVERY 16
#define SIGNAL_BYTES 65536
#define BUSY_SIGNALS 2
#define INLINE_MOST 220
#define INLINE_LEAST 32
#define COMPLETIONS 16
#define POLLS_PER_LOOK 16
#define QUIET_NS UINT64_C(200000000)

typedef struct ib_queue {
    weiri_queue base;
    weiri_ib_nic *nic;
    uint32_t peer_nic;
    pthread_mutex_t lock; /* guards all below except `event` */
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    weiri_ib_address own;
    uint32_t depth, inline_most, peer_qpn;
    bool connected;
    uint64_t *covers;            /* [n % depth]: the last post that is complete with request n */
    uint64_t requests, done;     /* numbers of the last posted request, and of the last complete one */
    uint64_t last_get, last_add; /* numbers of the last such requests, or 0 */
    uint32_t signals;            /* signalled requests under way */
    uint32_t since;              /* requests after the last signalled one, */
    uint64_t since_bytes;        /* and their bytes */
    weiri_ib_transfer rest;      /* the part of a transfer that is still to be posted; bytes 0: nothing */
    bool flush_due;              /* writes to device memory follow post `flushed` without a read behind them */
    uint64_t flushed, flush_address;
    uint32_t flush_rkey;
    uint32_t idle;        /* polls that found nothing */
    uint64_t quiet_since; /* time of the first such poll since the last completion, or of the last call of the device;
                           * or 0 */
    weir_status failure;
    char text[320];
    const char *event; /* what the device has reported; atomic */
} ib_queue;

/* ---- open, connect, close ------------------------------------------------------------------------------- */

static weir_status create_pair(ib_queue *q)
{
    const weiri_ib_nic *nic = q->nic;
    q->depth = nic->limits.max_qp_wr < DEPTH_MAX ? (uint32_t)nic->limits.max_qp_wr : DEPTH_MAX;
    struct ibv_qp_init_attr attr = {
        .qp_context = &q->event,
        .send_cq = q->cq,
        .recv_cq = q->cq,
        .cap = { .max_send_wr = q->depth,
                 .max_recv_wr = 1,
                 .max_send_sge = 1,
                 .max_recv_sge = 1,
                 .max_inline_data = INLINE_MOST },
        .qp_type = IBV_QPT_RC,
    };
    q->qp = weiri_ib.f_create_qp(nic->pd, &attr);
    if (q->qp == NULL) {
        attr.cap.max_send_wr = q->depth;
        attr.cap.max_inline_data = INLINE_LEAST;
        q->qp = weiri_ib.f_create_qp(nic->pd, &attr);
    }
    if (q->qp == NULL) {
        return weiri_ib_fail(nic, errno, "create a queue pair");
    }
    q->inline_most = attr.cap.max_inline_data;
    return WEIR_OK;
}

weir_status weiri_ib_queue_open(weiri_domain *domain, uint32_t number, weiri_queue **out, weiri_ib_address *own)
{
    weiri_ib_nic *nic = &((ib_domain *)domain)->nics[number];
    ib_queue *q = (ib_queue *)weiri_alloc(1, sizeof *q);
    if (q == NULL) {
        return weiri_fail_nomem("ib: queue");
    }
    weir_status status;
    q->base.domain = domain;
    q->nic = nic;
    q->covers = (uint64_t *)weiri_alloc(DEPTH_MAX, sizeof *q->covers);
    if (q->covers == NULL) {
        status = weiri_fail_nomem("ib: queue");
        goto free_queue;
    }
    q->cq = weiri_ib.f_create_cq(nic->context, DEPTH_MAX, &q->event, NULL, 0);
    if (q->cq == NULL) {
        status = weiri_ib_fail(nic, errno, "create a completion queue");
        goto free_covers;
    }
    status = create_pair(q);
    if (status != WEIR_OK) {
        goto destroy_cq;
    }
    status = weiri_ib_pair_init(nic, number, q->qp, &q->own);
    if (status != WEIR_OK) {
        goto destroy_qp;
    }
    (void)pthread_mutex_init(&q->lock, NULL);
    *own = q->own;
    *out = &q->base;
    return WEIR_OK;

destroy_qp:
    (void)weiri_ib.f_destroy_qp(q->qp);
destroy_cq:
    (void)weiri_ib.f_destroy_cq(q->cq);
free_covers:
    weiri_free(q->covers);
free_queue:
    weiri_free(q);
    return status;
}

void weiri_ib_queue_close(weiri_queue *queue)
{
    ib_queue *q = (ib_queue *)queue;
    if (q == NULL) {
        return;
    }
    (void)weiri_ib.f_destroy_qp(q->qp);
    (void)weiri_ib.f_destroy_cq(q->cq);
    (void)pthread_mutex_destroy(&q->lock);
    weiri_free(q->covers);
    weiri_free(q);
}

weir_status weiri_ib_queue_connect(weiri_queue *queue, const weiri_ib_address *peer)
{
    ib_queue *q = (ib_queue *)queue;
    weir_status status = WEIR_OK;
    (void)pthread_mutex_lock(&q->lock);
    if (q->connected) {
        status = weiri_fail(WEIR_ERR_INVALID, "ib: queue: connect: the queue is already connected");
    }
    if (status == WEIR_OK) {
        status = weiri_ib_pair_connect(q->nic, q->qp, &q->own, peer);
    }
    if (status == WEIR_OK) {
        q->peer_qpn = peer->qpn;
        q->peer_nic = peer->nic;
        q->connected = true;
    }
    (void)pthread_mutex_unlock(&q->lock);
    return status;
}

uint32_t weiri_ib_queue_peer_nic(const weiri_queue *queue) { return ((const ib_queue *)queue)->peer_nic; }

/* ---- failure -------------------------------------------------------------------------------------------- */

static weir_status failed(const ib_queue *q) { return weiri_fail(q->failure, "%s", q->text); }

static weir_status fail_queue(ib_queue *q, weir_status status, const char *cause)
{
    const weiri_ib_nic *nic = q->nic;
    q->failure = status;
    snprintf(q->text, sizeof q->text, "ib: %s port %u, queue %u to %u: %s", nic->port.device, nic->port.port,
             q->qp->qp_num, q->peer_qpn, cause);
    return failed(q);
}

static weir_status fail_completion(ib_queue *q, const struct ibv_wc *wc)
{
    char cause[256];
    snprintf(cause, sizeof cause, "%s (status %d, vendor's %#x)", weiri_ib_syndrome(wc->status), (int)wc->status,
             wc->vendor_err);
    switch (wc->status) {
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
    case IBV_WC_REM_ABORT_ERR:
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
    case IBV_WC_WR_FLUSH_ERR:
        return fail_queue(q, WEIR_ERR_REMOTE, cause);
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
        return fail_queue(q, WEIR_ERR_INVALID, cause);
    default:
        return fail_queue(q, WEIR_ERR_DEVICE, cause);
    }
}

/* WEIR_OK, or the error of the queue. */
static weir_status check_health(ib_queue *q)
{
    if (q->failure != WEIR_OK) {
        return failed(q);
    }
    if (!q->connected) {
        return weiri_fail(WEIR_ERR_INVALID, "ib: queue: not connected");
    }
    const char *event = __atomic_load_n(&q->event, __ATOMIC_ACQUIRE);
    if (event != NULL) {
        return fail_queue(q, WEIR_ERR_REMOTE, event);
    }
    if (__atomic_load_n(&q->nic->broken, __ATOMIC_RELAXED)) {
        return fail_queue(q, WEIR_ERR_DEVICE, "the device has failed");
    }
    return WEIR_OK;
}

/* ---- requests ------------------------------------------------------------------------------------------- */

static uint32_t room(const ib_queue *q) { return q->depth - (uint32_t)(q->requests - q->done); }

/* Posts one request; `covers` is the last post that is complete with it. */
static weir_status push(ib_queue *q, struct ibv_send_wr *wr, uint64_t bytes, uint64_t covers, bool signal)
{
    struct ibv_send_wr *bad;
    uint64_t number = q->requests + 1;
    q->since++;
    q->since_bytes += bytes;
    if (signal || q->signals < BUSY_SIGNALS || q->since >= SIGNAL_EVERY || q->since_bytes >= SIGNAL_BYTES) {
        wr->send_flags |= IBV_SEND_SIGNALED;
        q->signals++;
        q->since = 0;
        q->since_bytes = 0;
    }
    wr->wr_id = number;
    q->covers[number % q->depth] = covers;
    int error = ibv_post_send(q->qp, wr, &bad);
    if (error != 0) {
        char cause[128];
        snprintf(cause, sizeof cause, "the device refuses a request: %s", strerror(error));
        return fail_queue(q, WEIR_ERR_DEVICE, cause);
    }
    q->requests = number;
    return WEIR_OK;
}

/* The last post whose requests are all posted. */
static uint64_t whole(const ib_queue *q) { return q->rest.bytes == 0 ? q->base.posted : q->base.posted - 1; }

/* Reads a few bytes of the device memory that was written last. */
static weir_status push_flush(ib_queue *q)
{
    const weiri_ib_nic *nic = q->nic;
    struct ibv_sge piece = { .addr = (uint64_t)(uintptr_t)nic->scratch, .length = 1, .lkey = nic->scratch_mr->lkey };
    struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_READ, .sg_list = &piece, .num_sge = 1 };
    wr.wr.rdma.remote_addr = q->flush_address;
    wr.wr.rdma.rkey = q->flush_rkey;
    weir_status status = push(q, &wr, 0, whole(q), true);
    if (status == WEIR_OK) {
        q->flush_due = q->rest.bytes != 0;
        q->flushed = whole(q);
        q->last_get = q->requests;
    }
    return status;
}

/* The specification exempts empty requests from the check of address and key. */
static weir_status push_empty(ib_queue *q)
{
    struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE };
    return push(q, &wr, 0, q->flush_due ? q->flushed : whole(q), true);
}

/* Posts `rest` as far as there is room; one request stays free for push_flush or push_empty. */
static weir_status push_rest(ib_queue *q, bool *went)
{
    const weiri_ib_nic *nic = q->nic;
    weiri_ib_transfer *t = &q->rest;
    uint64_t most = nic->link.max_msg_sz < MESSAGE_MAX ? nic->link.max_msg_sz : MESSAGE_MAX;
    while (t->bytes != 0 && room(q) > 1) {
        uint64_t bytes = t->bytes < most ? t->bytes : most;
        struct ibv_sge piece = { .addr = t->local, .length = (uint32_t)bytes, .lkey = t->lkey };
        struct ibv_send_wr wr = { .opcode = t->opcode, .sg_list = &piece, .num_sge = 1 };
        wr.wr.rdma.remote_addr = t->remote;
        wr.wr.rdma.rkey = t->rkey;
        if (t->host != NULL && bytes <= q->inline_most) {
            piece.addr = (uint64_t)(uintptr_t)t->host;
            wr.send_flags |= IBV_SEND_INLINE;
        }
        uint64_t ends = bytes == t->bytes ? q->base.posted : q->base.posted - 1;
        weir_status status = push(q, &wr, bytes, q->flush_due ? q->flushed : ends, false);
        if (status != WEIR_OK) {
            return status;
        }
        *went = true;
        t->local += bytes;
        t->remote += bytes;
        t->host = t->host != NULL ? t->host + bytes : NULL;
        t->bytes -= bytes;
        if (t->opcode == IBV_WR_RDMA_READ) {
            q->last_get = q->requests;
        }
    }
    return WEIR_OK;
}

/* Other threads may read the count. */
static void count_post(ib_queue *q) { __atomic_store_n(&q->base.posted, q->base.posted + 1, __ATOMIC_RELAXED); }

static weir_status start(ib_queue *q, const weiri_ib_transfer *t)
{
    bool went;
    count_post(q);
    if (t->bytes == 0) {
        return push_empty(q);
    }
    if (t->flush && !q->flush_due) {
        q->flush_due = true;
        q->flushed = q->base.posted - 1;
    }
    if (t->flush) {
        q->flush_address = t->remote;
        q->flush_rkey = t->rkey;
    }
    q->rest = *t;
    return push_rest(q, &went);
}

/* Checks that `requests` can be posted now. */
static weir_status begin(ib_queue *q, uint32_t requests)
{
    (void)pthread_mutex_lock(&q->lock);
    weir_status status = check_health(q);
    if (status == WEIR_OK && (q->rest.bytes != 0 || room(q) <= requests)) {
        status = WEIR_ERR_BUSY;
    }
    return status;
}

weir_status weiri_ib_queue_ready(weiri_queue *queue)
{
    ib_queue *q = (ib_queue *)queue;
    weir_status status = begin(q, 1);
    (void)pthread_mutex_unlock(&q->lock);
    return status;
}

weir_status weiri_ib_queue_transfer(weiri_queue *queue, const weiri_ib_transfer *transfer)
{
    ib_queue *q = (ib_queue *)queue;
    weir_status status = begin(q, 1);
    if (status == WEIR_OK) {
        status = start(q, transfer);
    }
    (void)pthread_mutex_unlock(&q->lock);
    return status;
}

static struct ibv_send_wr write_request(const weiri_ib_word *word, struct ibv_sge *piece)
{
    /* Inline: this reads the first bytes of `value`, which are the low ones on every machine with CUDA. */
    struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_INLINE };
    *piece = (struct ibv_sge){ .addr = (uint64_t)(uintptr_t)&word->value, .length = word->bytes };
    wr.wr.rdma.remote_addr = word->remote;
    wr.wr.rdma.rkey = word->rkey;
    return wr;
}

static struct ibv_send_wr add_request(const ib_queue *q, const weiri_ib_word *word, struct ibv_sge *piece)
{
    const weiri_ib_nic *nic = q->nic;
    struct ibv_send_wr wr = { .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD };
    *piece = (struct ibv_sge){ .addr = (uint64_t)(uintptr_t)nic->scratch,
                               .length = sizeof(uint64_t),
                               .lkey = nic->scratch_mr->lkey };
    wr.wr.atomic.remote_addr = word->remote;
    wr.wr.atomic.compare_add = word->value;
    wr.wr.atomic.rkey = word->rkey;
    return wr;
}

static weir_status push_word(ib_queue *q, const weiri_ib_word *word)
{
    const bool add = word->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    if (q->flush_due) {
        weir_status status = push_flush(q);
        if (status != WEIR_OK) {
            return status;
        }
    }
    struct ibv_sge piece;
    struct ibv_send_wr wr = add ? add_request(q, word, &piece) : write_request(word, &piece);
    wr.sg_list = &piece;
    wr.num_sge = 1;
    if (q->last_get > q->done || (!add && q->last_add > q->done)) {
        wr.send_flags |= IBV_SEND_FENCE;
    }
    count_post(q);
    if (word->flush) {
        q->flush_due = true;
        q->flushed = q->base.posted - 1;
        q->flush_address = word->remote;
        q->flush_rkey = word->rkey;
    }
    weir_status status = push(q, &wr, word->bytes, q->flush_due ? q->flushed : q->base.posted, false);
    if (status == WEIR_OK && add) {
        q->last_add = q->requests;
    }
    return status;
}

weir_status weiri_ib_queue_word(weiri_queue *queue, const weiri_ib_word *word)
{
    ib_queue *q = (ib_queue *)queue;
    weir_status status = begin(q, 2);
    if (status == WEIR_OK) {
        status = push_word(q, word);
    }
    (void)pthread_mutex_unlock(&q->lock);
    return status;
}

/* ---- completion ----------------------------------------------------------------------------------------- */

static weir_status take_completions(ib_queue *q, bool *went)
{
    struct ibv_wc wc[COMPLETIONS];
    int count = ibv_poll_cq(q->cq, COMPLETIONS, wc);
    if (count < 0) {
        return fail_queue(q, WEIR_ERR_DEVICE, "the completion queue cannot be read");
    }
    for (int i = 0; i < count; i++) {
        if (wc[i].status != IBV_WC_SUCCESS) {
            return fail_completion(q, &wc[i]);
        }
        uint64_t covers = q->covers[wc[i].wr_id % q->depth];
        q->quiet_since = 0;
        q->done = wc[i].wr_id;
        q->signals--;
        if (covers > q->base.completed) {
            __atomic_store_n(&q->base.completed, covers, __ATOMIC_RELEASE);
        }
        *went = true;
    }
    return WEIR_OK;
}

/* Calls a quiet device again after each QUIET_NS while there is room. It may use the last room: without a signalled
 * request under way, fewer than SIGNAL_EVERY others are. */
static weir_status call_again(ib_queue *q)
{
    const uint64_t now = weiri_now_ns();
    if (q->signals == 0 || q->quiet_since == 0) {
        q->quiet_since = q->signals == 0 ? 0 : now;
        return WEIR_OK;
    }
    if (now - q->quiet_since < QUIET_NS || room(q) == 0) {
        return WEIR_OK;
    }
    q->quiet_since = now;
    return push_empty(q);
}

static weir_status advance(ib_queue *q)
{
    bool went = false;
    if (q->failure != WEIR_OK) {
        return failed(q);
    }
    if (!q->connected) {
        return WEIR_PENDING;
    }
    /* A completion says more about a failure than the device's event. */
    weir_status status = take_completions(q, &went);
    if (status == WEIR_OK) {
        status = check_health(q);
    }
    if (status == WEIR_OK) {
        status = push_rest(q, &went);
    }
    if (status == WEIR_OK && q->signals == 0 && q->base.completed < q->base.posted) {
        status = q->flush_due ? push_flush(q) : push_empty(q);
    }
    if (status == WEIR_OK && !went && ++q->idle % POLLS_PER_LOOK == 0) {
        weiri_ib_look(q->nic);
        status = call_again(q);
    }
    return status != WEIR_OK || went ? status : WEIR_PENDING;
}

weir_status weiri_ib_queue_poll(weiri_queue *queue)
{
    ib_queue *q = (ib_queue *)queue;
    if (pthread_mutex_trylock(&q->lock) != 0) {
        return WEIR_PENDING;
    }
    weir_status status = advance(q);
    (void)pthread_mutex_unlock(&q->lock);
    return status;
}
