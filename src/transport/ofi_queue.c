/* ofi_queue.c - the queues of the transport ofi.
 *
 * A post goes into a ring, and whoever holds the queue's mutex issues what is in the ring, in order: the poster at
 * once if it gets the mutex, else a poll. So a post waits for nobody, and what libfabric has no room for, or no
 * connection yet, waits in the ring.
 *
 * Puts are writes, in slices. They ask for completion upon delivery, which the peer's library acknowledges: without it
 * they would be complete when they have left this host's buffers, and be lost unnoticed when a provider makes a new
 * connection in place of a broken one. For the same reason, after libfabric has had no room, nothing is issued before
 * all completions have been read: the errors of what a broken connection took with it come first.
 *
 * Values and gets are letters to the peer's queue, which its polls carry out, in order. A value cannot be a write: TCP
 * may cut 8 bytes in two, and the peer would see one half; the poll stores it in one piece. A get is not a read, since
 * libfabric 1.17 crashes the process that is read from when the reader ends: the poll writes the data back. Messages
 * keep their order behind writes and messages (asked for as FI_ORDER_SAW and FI_ORDER_SAS), so a letter is carried out
 * after all that was posted before it, and its acknowledgement comes after the data that it asked for. A letter whose
 * memory does not exist is refused, which fails the poster's queue; none is carried out after it. The names that
 * letters carry are random, and a letter without the queue's own is a stranger's and ignored.
 *
 * Who waits for an acknowledgement alone would not learn of the peer's end, so an empty put probes it now and then.
 * A connection that was there, has nothing under way and still has no room is lost.
 *
 * A queue that fails closes its endpoint: nothing reads or writes its memory any more, and the peer's posts fail.
 * Connections are made by the first post; libfabric 1.17 leaves the socket of one open that it has accepted but not
 * finished when its endpoint is closed. */
#include <sodium.h>
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/clock.h"
#include "src/host/base/error.h"
#include "src/host/base/wire.h"
#include "src/transport/ofi_impl.h"

#define DEPTH 256u                /* posts of a queue that are not complete */
#define OPS 256u                  /* operations of libfabric that are not */
#define RECEIVES 32u              /* of them beside those, receives */
#define SLICE ((uint64_t)4 << 20) /* most bytes of one write */
#define BATCH 16                  /* completions that are read at once */
#define ROUNDS 8                  /* batches of one poll */
#define LETTER_BYTES 64u
#define LETTERS (DEPTH + RECEIVES + 1)
#define PROBE_NS 20000000u        /* without an acknowledgement, until the peer is probed */
#define LOST_NS 200000000u        /* without room, until the connection is lost */
#define ADDRESS_VERSION 1
#define NAME_BYTES 64             /* of an endpoint's address */

enum { LETTER_VALUE = 1, LETTER_GET, LETTER_DONE, LETTER_REFUSED };

typedef struct ofi_letter {
    uint64_t token;  /* of the queue that it goes to */
    uint64_t number; /* of a value or get, from 1; what is done or refused: of the last that is done */
    uint16_t kind;
    uint16_t bytes; /* of a value */
    uint32_t slot;  /* with id and offset, a place in the receiver's memory */
    uint64_t id;
    uint64_t offset;
    uint64_t value;   /* of a get, the bytes */
    uint64_t key;     /* with address, where the bytes go */
    uint64_t address;
} ofi_letter;

typedef struct ofi_op {
    struct fi_context2 context; /* first: libfabric's, in some modes */
    struct ofi_post *post;      /* that this is a part of; NULL for what no post waits for */
    bool tells;                 /* sends the acknowledgement */
    struct ofi_op *next;        /* free one */
} ofi_op;

typedef struct ofi_post {
    uint32_t waiting; /* operations that are not complete */
    bool more;        /* whether there is something to be issued: the letter, or `left` bytes */
    uint64_t number;  /* of the letter; 0: a put */
    uint8_t *local;
    void *desc;
    uint64_t address;
    uint64_t key;
    uint64_t left;
} ofi_post;

typedef struct ofi_queue {
    weiri_queue base;
    weiri_ofi_domain *domain;
    pthread_mutex_t mutex; /* of all that follows; the poster's fields, and slots of the ring, are handed over by
                            * base.posted and base.completed */
    struct fid_ep *ep;
    struct fid_cq *cq;
    struct fid_av *av;
    fi_addr_t peer;
    bool connected;   /* to an address */
    bool established; /* something has gone out over the connection */
    bool blocked;     /* libfabric had no room: not before the completions are read */
    bool telling;     /* an acknowledgement is under way */
    bool refused;     /* the letter after `handled` */
    bool refusal_told;
    uint32_t busy_ops;
    uint64_t issued;    /* posts that libfabric has all of */
    uint64_t sent;      /* letters of ours that were issued */
    uint64_t acked;     /* of them, acknowledged */
    uint64_t arrived;   /* letters of the peer */
    uint64_t handled;   /* of them, carried out */
    uint64_t served;    /* bytes that the get after `handled` has got */
    uint64_t told;      /* of them, acknowledged */
    uint64_t quiet_ns;  /* since when nothing but an acknowledgement is awaited; 0: it is not so */
    uint64_t no_room_ns; /* since when there is no room although nothing is under way; 0: it is not so */
    ofi_op *free_ops;
    uint64_t written; /* the poster's: letters that were posted */
    uint64_t slice;
    weir_status status; /* of the failed queue; after `text` */
    char text[160];
    uint64_t token;
    uint64_t peer_token;
    uint64_t peer_key; /* of memory of the peer's, for probes */
    uint64_t peer_address;
    struct fid_mr *mr; /* of `letters` */
    uint8_t *letters;  /* those of the posts, those that come in, the acknowledgement */
    ofi_op ops[OPS];
    ofi_op receives[RECEIVES];
    ofi_letter inbox[DEPTH];
    ofi_post ring[DEPTH];
} ofi_queue;

static uint8_t *letter_out(ofi_queue *queue, uint64_t number)
{
    return queue->letters + number % DEPTH * LETTER_BYTES;
}

static uint8_t *letter_in(ofi_queue *queue, size_t receive)
{
    return queue->letters + (DEPTH + receive) * LETTER_BYTES;
}

static uint8_t *letter_told(ofi_queue *queue)
{
    return queue->letters + (DEPTH + RECEIVES) * LETTER_BYTES;
}

static void write_letter(uint8_t *at, const ofi_letter *letter)
{
    weiri_writer w = weiri_writer_init(at, LETTER_BYTES);
    weiri_write_u64(&w, letter->token);
    weiri_write_u64(&w, letter->number);
    weiri_write_u16(&w, letter->kind);
    weiri_write_u16(&w, letter->bytes);
    weiri_write_u32(&w, letter->slot);
    weiri_write_u64(&w, letter->id);
    weiri_write_u64(&w, letter->offset);
    weiri_write_u64(&w, letter->value);
    weiri_write_u64(&w, letter->key);
    weiri_write_u64(&w, letter->address);
}

static bool read_letter(const uint8_t *at, size_t bytes, ofi_letter *letter)
{
    weiri_reader r = weiri_reader_init(at, bytes);
    letter->token = weiri_read_u64(&r);
    letter->number = weiri_read_u64(&r);
    letter->kind = weiri_read_u16(&r);
    letter->bytes = weiri_read_u16(&r);
    letter->slot = weiri_read_u32(&r);
    letter->id = weiri_read_u64(&r);
    letter->offset = weiri_read_u64(&r);
    letter->value = weiri_read_u64(&r);
    letter->key = weiri_read_u64(&r);
    letter->address = weiri_read_u64(&r);
    return weiri_reader_done(&r);
}

/* ---- failure --------------------------------------------------------------------------------------------- */

static weir_status failed_status(ofi_queue *queue)
{
    weir_status status = __atomic_load_n(&queue->status, __ATOMIC_ACQUIRE);
    return status == WEIR_OK ? WEIR_OK : weiri_fail(status, "%s", queue->text);
}

/* Fails the queue with the thread's last error; with the mutex. */
static weir_status fail_queue(ofi_queue *queue, weir_status status)
{
    strncpy(queue->text, weir_last_error(), sizeof queue->text - 1);
    if (queue->ep != NULL) {
        (void)fi_close(&queue->ep->fid);
        queue->ep = NULL;
    }
    __atomic_store_n(&queue->status, status, __ATOMIC_RELEASE);
    return status;
}

static bool means_gone(int error)
{
    switch (error) {
    case FI_ECONNRESET:
    case FI_ECONNABORTED:
    case FI_ECONNREFUSED:
    case FI_ENOTCONN:
    case FI_ESHUTDOWN:
    case FI_ETIMEDOUT:
    case FI_EHOSTUNREACH:
    case FI_EHOSTDOWN:
    case FI_ENETUNREACH:
    case FI_EIO:
    case FI_ECANCELED:
        return true;
    default:
        return false;
    }
}

/* An operation failed: what was it, and why. */
static weir_status fail_completion(ofi_queue *queue)
{
    struct fi_cq_err_entry entry;
    char detail[96] = "";
    memset(&entry, 0, sizeof entry);
    ssize_t read = fi_cq_readerr(queue->cq, &entry, 0);
    if (read <= 0) {
        return fail_queue(queue, weiri_ofi_fail((int)read, "ofi: queue: read an error"));
    }
    const char *text = fi_cq_strerror(queue->cq, entry.prov_errno, entry.err_data, detail, sizeof detail);
    weir_status status = means_gone(entry.err) ? WEIR_ERR_REMOTE : WEIR_ERR_SYSTEM;
    return fail_queue(queue, weiri_fail(status, "ofi: queue: the peer has ended, or its memory is not registered any "
                                        "more: %s (%s)", weiri_ofi.strerror(entry.err),
                                        text == NULL ? "no details" : text));
}

/* ---- open and close -------------------------------------------------------------------------------------- */

static weir_status open_endpoint(ofi_queue *queue)
{
    struct fid_domain *domain = queue->domain->domain;
    struct fi_info *info = queue->domain->info;
    struct fi_cq_attr cq_attr;
    struct fi_av_attr av_attr;
    memset(&cq_attr, 0, sizeof cq_attr);
    memset(&av_attr, 0, sizeof av_attr);
    cq_attr.format = FI_CQ_FORMAT_DATA;
    cq_attr.wait_obj = FI_WAIT_NONE;
    cq_attr.size = OPS + RECEIVES;
    av_attr.type = info->domain_attr->av_type;
    av_attr.count = 1;
    int error = fi_cq_open(domain, &cq_attr, &queue->cq, NULL);
    if (error != 0) {
        return weiri_ofi_fail(error, "ofi: open a completion queue");
    }
    error = fi_av_open(domain, &av_attr, &queue->av, NULL);
    if (error != 0) {
        return weiri_ofi_fail(error, "ofi: open an address vector");
    }
    error = fi_endpoint(domain, info, &queue->ep, NULL);
    if (error != 0) {
        return weiri_ofi_fail(error, "ofi: open an endpoint");
    }
    error = fi_ep_bind(queue->ep, &queue->cq->fid, FI_TRANSMIT | FI_RECV);
    if (error == 0) {
        error = fi_ep_bind(queue->ep, &queue->av->fid, 0);
    }
    if (error == 0) {
        error = fi_enable(queue->ep);
    }
    return error == 0 ? WEIR_OK : weiri_ofi_fail(error, "ofi: enable an endpoint");
}

static weir_status receive(ofi_queue *queue, size_t index)
{
    ssize_t error = fi_recv(queue->ep, letter_in(queue, index), LETTER_BYTES, fi_mr_desc(queue->mr), FI_ADDR_UNSPEC,
                            &queue->receives[index].context);
    return error == 0 ? WEIR_OK : weiri_ofi_fail((int)error, "ofi: queue: receive");
}

static weir_status write_address(ofi_queue *queue, uint64_t key)
{
    uint8_t name[NAME_BYTES];
    size_t bytes = sizeof name;
    int error = fi_getname(&queue->ep->fid, name, &bytes);
    if (error != 0 || bytes > sizeof name) {
        return weiri_ofi_fail(error, "ofi: address of an endpoint, %zu bytes", bytes);
    }
    weiri_writer w = weiri_writer_init(queue->base.address, sizeof queue->base.address);
    weiri_write_u8(&w, ADDRESS_VERSION);
    weiri_write_u8(&w, (uint8_t)bytes);
    weiri_write_u32(&w, queue->domain->info->addr_format);
    weiri_write_u64(&w, queue->token);
    weiri_write_u64(&w, key);
    weiri_write_u64(&w, weiri_ofi_base(queue->domain, queue->letters));
    weiri_write_bytes(&w, name, bytes);
    queue->base.address_bytes = (uint32_t)w.size;
    return WEIR_OK;
}

weir_status weiri_ofi_queue_open(weiri_domain *base, weiri_queue **out)
{
    uint64_t key = 0;
    ofi_queue *queue = (ofi_queue *)weiri_alloc(1, sizeof *queue);
    if (queue == NULL) {
        return weiri_fail_nomem("ofi: queue");
    }
    (void)pthread_mutex_init(&queue->mutex, NULL);
    queue->base.domain = base;
    queue->domain = (weiri_ofi_domain *)base;
    randombytes_buf(&queue->token, sizeof queue->token);
    uint64_t longest = queue->domain->info->ep_attr->max_msg_size;
    queue->slice = longest < SLICE ? longest : SLICE;
    for (uint32_t i = 0; i < OPS; i++) {
        queue->ops[i].next = queue->free_ops;
        queue->free_ops = &queue->ops[i];
    }
    queue->letters = (uint8_t *)weiri_alloc(LETTERS, LETTER_BYTES);
    weir_status status = queue->letters == NULL ? weiri_fail_nomem("ofi: letters of a queue") : WEIR_OK;
    if (status == WEIR_OK) {
        status = weiri_ofi_register(queue->domain, queue->letters, (uint64_t)LETTERS * LETTER_BYTES,
                                    FI_SEND | FI_RECV | FI_WRITE | FI_REMOTE_WRITE, &queue->mr, &key);
    }
    if (status == WEIR_OK) {
        status = open_endpoint(queue);
    }
    if (status == WEIR_OK) {
        status = write_address(queue, key);
    }
    for (size_t i = 0; i < RECEIVES && status == WEIR_OK; i++) {
        status = receive(queue, i);
    }
    if (status != WEIR_OK) {
        weiri_ofi_queue_close(&queue->base);
        return status;
    }
    *out = &queue->base;
    return WEIR_OK;
}

void weiri_ofi_queue_close(weiri_queue *base)
{
    ofi_queue *queue = (ofi_queue *)base;
    if (queue == NULL) {
        return;
    }
    if (queue->ep != NULL) {
        (void)fi_close(&queue->ep->fid);
    }
    if (queue->av != NULL) {
        (void)fi_close(&queue->av->fid);
    }
    if (queue->cq != NULL) {
        (void)fi_close(&queue->cq->fid);
    }
    if (queue->mr != NULL) {
        (void)fi_close(&queue->mr->fid);
    }
    (void)pthread_mutex_destroy(&queue->mutex);
    weiri_free(queue->letters);
    weiri_free(queue);
}

/* Whether the bytes are an address of the same kind as our own. */
static bool plausible(const ofi_queue *queue, const uint8_t *name, size_t bytes)
{
    uint8_t own[NAME_BYTES];
    size_t own_bytes = sizeof own;
    uint16_t family;
    uint16_t own_family;
    if (fi_getname(&queue->ep->fid, own, &own_bytes) != 0 || own_bytes != bytes) {
        return false;
    }
    if (queue->domain->info->addr_format != FI_SOCKADDR_IN && queue->domain->info->addr_format != FI_SOCKADDR_IN6) {
        return true;
    }
    memcpy(&family, name, sizeof family);
    memcpy(&own_family, own, sizeof own_family);
    return family == own_family;
}

weir_status weiri_ofi_queue_connect(weiri_queue *base, const uint8_t *address, size_t bytes)
{
    ofi_queue *queue = (ofi_queue *)base;
    uint8_t name[NAME_BYTES] = { 0 };
    weir_status status = WEIR_OK;
    weiri_reader r = weiri_reader_init(address, bytes);
    uint8_t version = weiri_read_u8(&r);
    uint8_t name_bytes = weiri_read_u8(&r);
    uint32_t format = weiri_read_u32(&r);
    uint64_t token = weiri_read_u64(&r);
    uint64_t key = weiri_read_u64(&r);
    uint64_t base_address = weiri_read_u64(&r);
    bool fits = name_bytes > 0 && name_bytes <= sizeof name;
    weiri_read_bytes(&r, name, fits ? name_bytes : 0);
    if (!weiri_reader_done(&r) || version != ADDRESS_VERSION || !fits) {
        return weiri_fail(WEIR_ERR_CORRUPT, "ofi: malformed address of a peer's queue, %zu bytes", bytes);
    }
    pthread_mutex_lock(&queue->mutex);
    if (queue->ep == NULL) {
        status = failed_status(queue);
        goto unlock;
    }
    if (format != queue->domain->info->addr_format) {
        status = weiri_fail(WEIR_ERR_UNSUPPORTED, "ofi: the peer's addresses are of format %u, ours of %u: one has "
                            "IPv4 and the other IPv6, or another provider; set WEIR_INTERFACE or WEIR_OFI_PROVIDER",
                            format, queue->domain->info->addr_format);
        goto unlock;
    }
    if (!plausible(queue, name, name_bytes)) {
        status = weiri_fail(WEIR_ERR_CORRUPT, "ofi: malformed address of a peer's endpoint, %u bytes", name_bytes);
        goto unlock;
    }
    int added = fi_av_insert(queue->av, name, 1, &queue->peer, 0, NULL);
    if (added != 1) {
        status = weiri_fail(WEIR_ERR_CORRUPT, "ofi: provider %s takes no such address of a peer's endpoint",
                            queue->domain->info->fabric_attr->prov_name);
        goto unlock;
    }
    queue->peer_token = token;
    queue->peer_key = key;
    queue->peer_address = base_address;
    queue->connected = true;
unlock:
    pthread_mutex_unlock(&queue->mutex);
    return status;
}

/* ---- issuing; with the mutex ----------------------------------------------------------------------------- */

/* Takes note of how libfabric took an operation. */
static ssize_t took(ofi_queue *queue, ofi_op *op, ofi_post *post, ssize_t error)
{
    if (error == 0) {
        queue->free_ops = op->next;
        queue->busy_ops++;
        queue->quiet_ns = 0;
        queue->no_room_ns = 0;
        op->post = post;
        op->tells = false;
        if (post != NULL) {
            post->waiting++;
        }
    } else if (error == -FI_EAGAIN) {
        queue->blocked = true;
    }
    return error;
}

/* Writes to the peer's memory for `post`, or for nobody. -FI_EAGAIN: no room now. */
static ssize_t write_out(ofi_queue *queue, ofi_post *post, void *from, void *desc, uint64_t bytes, uint64_t address,
                         uint64_t key)
{
    ofi_op *op = queue->free_ops;
    if (op == NULL) {
        queue->blocked = true;
        return -FI_EAGAIN;
    }
    struct iovec local = { .iov_base = from, .iov_len = bytes };
    struct fi_rma_iov remote = { .addr = address, .len = bytes, .key = key };
    struct fi_msg_rma message = {
        .msg_iov = &local,
        .desc = &desc,
        .iov_count = 1,
        .addr = queue->peer,
        .rma_iov = &remote,
        .rma_iov_count = 1,
        .context = &op->context,
    };
    return took(queue, op, post, fi_writemsg(queue->ep, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE));
}

/* Sends a letter, which stays where it is until it is sent. -FI_EAGAIN: no room now. */
static ssize_t send_out(ofi_queue *queue, ofi_post *post, uint8_t *letter)
{
    ofi_op *op = queue->free_ops;
    if (op == NULL) {
        queue->blocked = true;
        return -FI_EAGAIN;
    }
    ssize_t error = fi_send(queue->ep, letter, LETTER_BYTES, fi_mr_desc(queue->mr), queue->peer, &op->context);
    error = took(queue, op, post, error);
    if (error == 0 && post == NULL) {
        op->tells = true;
        queue->telling = true;
    }
    return error;
}

static bool has_room(const ofi_queue *queue)
{
    return queue->connected && !queue->blocked;
}

/* WEIR_OK for what was taken, or has to wait. */
static weir_status check(ofi_queue *queue, ssize_t error)
{
    return error == 0 || error == -FI_EAGAIN ? WEIR_OK
                                             : fail_queue(queue, weiri_ofi_fail((int)error, "ofi: queue: send"));
}

/* Issues what is posted, as long as there is room. */
static weir_status issue(ofi_queue *queue)
{
    uint64_t posted = __atomic_load_n(&queue->base.posted, __ATOMIC_ACQUIRE);
    weir_status status = WEIR_OK;
    while (status == WEIR_OK && has_room(queue) && queue->issued < posted) {
        ofi_post *post = &queue->ring[(queue->issued + 1) % DEPTH];
        uint64_t bytes = post->left < queue->slice ? post->left : queue->slice;
        ssize_t error = 0;
        if (post->number != 0) {
            error = send_out(queue, post, post->local);
        } else if (post->more) {
            error = write_out(queue, post, post->local, post->desc, bytes, post->address, post->key);
        }
        if (error == 0) {
            post->local += bytes;
            post->address += bytes;
            post->left -= bytes;
            post->more = post->left != 0;
            queue->issued += !post->more;
            queue->sent = post->number != 0 ? post->number : queue->sent;
        }
        status = check(queue, error);
    }
    return status;
}

/* Writes what a letter asks for into the peer's memory, as far as there is room. */
static weir_status serve(ofi_queue *queue, const ofi_letter *letter)
{
    weir_status status = WEIR_OK;
    do {
        uint64_t left = letter->value - queue->served;
        uint64_t bytes = left < queue->slice ? left : queue->slice;
        void *desc;
        uint8_t *from = weiri_ofi_place(queue->domain, letter->slot, letter->id, letter->offset + queue->served, bytes,
                                        &desc);
        if (from == NULL || letter->value > UINT64_MAX - letter->offset) {
            queue->refused = true;
            return WEIR_OK;
        }
        ssize_t error = bytes == 0 ? 0
                                   : write_out(queue, NULL, from, desc, bytes, letter->address + queue->served,
                                               letter->key);
        queue->served += error == 0 ? bytes : 0;
        status = check(queue, error);
    } while (status == WEIR_OK && has_room(queue) && queue->served < letter->value);
    if (queue->served == letter->value) {
        queue->served = 0;
        queue->handled++;
    }
    return status;
}

/* Carries out the peer's letters, in order. */
static weir_status handle(ofi_queue *queue)
{
    weir_status status = WEIR_OK;
    while (status == WEIR_OK && !queue->refused && queue->handled < queue->arrived) {
        const ofi_letter *letter = &queue->inbox[(queue->handled + 1) % DEPTH];
        if (letter->kind == LETTER_GET) {
            if (!has_room(queue)) {
                break;
            }
            status = serve(queue, letter);
        } else if (weiri_ofi_store(queue->domain, letter->slot, letter->id, letter->offset, letter->value,
                                   letter->bytes)) {
            queue->handled++;
        } else {
            queue->refused = true;
        }
    }
    return status;
}

/* Tells the peer which of its letters were carried out; later when there is no room, or while it is being told. */
static weir_status acknowledge(ofi_queue *queue)
{
    bool refuse = queue->refused && !queue->refusal_told;
    if (!has_room(queue) || queue->telling || (queue->told == queue->handled && !refuse)) {
        return WEIR_OK;
    }
    ofi_letter letter = {
        .token = queue->peer_token,
        .number = queue->handled,
        .kind = refuse ? LETTER_REFUSED : LETTER_DONE,
    };
    write_letter(letter_told(queue), &letter);
    ssize_t error = send_out(queue, NULL, letter_told(queue));
    if (error == 0) {
        queue->told = letter.number;
        queue->refusal_told = refuse;
    }
    return check(queue, error);
}

/* Whether `since` is `limit` ago; 0 becomes now. */
static bool has_passed(uint64_t *since, uint64_t limit)
{
    uint64_t now = weiri_now_ns();
    *since = *since == 0 ? now : *since;
    return now - *since > limit;
}

/* Finds out whether the peer is still there, when nothing that is under way would tell. */
static weir_status watch(ofi_queue *queue)
{
    if (!queue->established || queue->busy_ops != 0) {
        return WEIR_OK;
    }
    if (queue->blocked) {
        return !has_passed(&queue->no_room_ns, LOST_NS)
                   ? WEIR_OK
                   : fail_queue(queue, weiri_fail(WEIR_ERR_REMOTE, "ofi: queue: the connection to the peer is lost"));
    }
    if (queue->acked == queue->sent || !has_passed(&queue->quiet_ns, PROBE_NS)) {
        return WEIR_OK;
    }
    return check(queue, write_out(queue, NULL, queue->letters, fi_mr_desc(queue->mr), 0, queue->peer_address,
                                  queue->peer_key));
}

/* ---- completions; with the mutex ------------------------------------------------------------------------- */

static weir_status take_letter(ofi_queue *queue, const ofi_letter *letter)
{
    if (letter->kind == LETTER_VALUE || letter->kind == LETTER_GET) {
        if (letter->number != queue->arrived + 1 || queue->arrived - queue->handled >= DEPTH) {
            return fail_queue(queue, weiri_fail(WEIR_ERR_REMOTE, "ofi: queue: what the peer has posted was lost with "
                                                "its connection"));
        }
        queue->arrived++;
        queue->inbox[letter->number % DEPTH] = *letter;
        return WEIR_OK;
    }
    if (letter->number < queue->acked || letter->number > queue->sent) {
        return fail_queue(queue, weiri_fail(WEIR_ERR_CORRUPT, "ofi: queue: the peer acknowledges what was not posted"));
    }
    queue->acked = letter->number;
    queue->quiet_ns = 0;
    return letter->kind == LETTER_DONE
               ? WEIR_OK
               : fail_queue(queue, weiri_fail(WEIR_ERR_REMOTE, "ofi: queue: the peer refused a value or get: it is "
                                              "beyond its memory, or that is not registered any more"));
}

static weir_status take(ofi_queue *queue, const struct fi_cq_data_entry *entry)
{
    ofi_op *op = (ofi_op *)entry->op_context;
    ofi_letter letter;
    if ((entry->flags & FI_RECV) == 0) {
        queue->established = true;
        queue->busy_ops--;
        queue->telling = queue->telling && !op->tells;
        if (op->post != NULL) {
            op->post->waiting--;
        }
        op->next = queue->free_ops;
        queue->free_ops = op;
        return WEIR_OK;
    }
    size_t index = (size_t)(op - queue->receives);
    bool ours = read_letter(letter_in(queue, index), entry->len <= LETTER_BYTES ? entry->len : 0, &letter) &&
                letter.token == queue->token && letter.kind >= LETTER_VALUE && letter.kind <= LETTER_REFUSED;
    weir_status status = receive(queue, index);
    if (status != WEIR_OK) {
        return fail_queue(queue, status);
    }
    return ours ? take_letter(queue, &letter) : WEIR_OK;
}

/* Reads completions, and with them lets the provider go on. */
static weir_status drain(ofi_queue *queue, bool *some)
{
    struct fi_cq_data_entry entries[BATCH];
    for (uint32_t round = 0; round < ROUNDS; round++) {
        ssize_t count = fi_cq_read(queue->cq, entries, BATCH);
        if (count == -FI_EAGAIN) {
            queue->blocked = false;
            return WEIR_OK;
        }
        if (count == -FI_EAVAIL) {
            return fail_completion(queue);
        }
        if (count < 0) {
            return fail_queue(queue, weiri_ofi_fail((int)count, "ofi: queue: read completions"));
        }
        *some = true;
        for (ssize_t i = 0; i < count; i++) {
            weir_status status = take(queue, &entries[i]);
            if (status != WEIR_OK) {
                return status;
            }
        }
    }
    return WEIR_OK;
}

/* Completes the posts at the front of the ring. */
static void advance(ofi_queue *queue)
{
    uint64_t completed = __atomic_load_n(&queue->base.completed, __ATOMIC_RELAXED);
    uint64_t before = completed;
    while (completed < queue->issued) {
        const ofi_post *post = &queue->ring[(completed + 1) % DEPTH];
        if (post->waiting != 0 || post->number > queue->acked) {
            break;
        }
        completed++;
    }
    if (completed != before) {
        __atomic_store_n(&queue->base.completed, completed, __ATOMIC_RELEASE);
    }
}

weir_status weiri_ofi_poll(weiri_queue *base)
{
    ofi_queue *queue = (ofi_queue *)base;
    bool some = false;
    weir_status status = failed_status(queue);
    if (status != WEIR_OK || pthread_mutex_trylock(&queue->mutex) != 0) {
        return status != WEIR_OK ? status : WEIR_PENDING;
    }
    status = failed_status(queue); /* another thread may have failed it */
    if (status != WEIR_OK) {
        goto unlock;
    }
    uint64_t issued = queue->issued;
    status = drain(queue, &some);
    if (status == WEIR_OK) {
        advance(queue);
        status = handle(queue);
    }
    /* Not before the answer to what has just come. */
    if (status == WEIR_OK && (!some || queue->handled - queue->told >= DEPTH / 4)) {
        status = acknowledge(queue);
    }
    if (status == WEIR_OK) {
        status = issue(queue);
    }
    if (status == WEIR_OK) {
        advance(queue);
        status = watch(queue);
    }
    if (status == WEIR_OK && !some && queue->issued == issued) {
        status = WEIR_PENDING;
    }
unlock:
    pthread_mutex_unlock(&queue->mutex);
    return status;
}

/* ---- posts ----------------------------------------------------------------------------------------------- */

/* The slot of the next post; NULL: there is none. */
static ofi_post *next_post(ofi_queue *queue)
{
    uint64_t completed = __atomic_load_n(&queue->base.completed, __ATOMIC_ACQUIRE);
    return queue->base.posted - completed >= DEPTH ? NULL : &queue->ring[(queue->base.posted + 1) % DEPTH];
}

/* Publishes the slot, and issues it if nobody else does. */
static weir_status publish(ofi_queue *queue)
{
    weir_status status = WEIR_OK;
    __atomic_store_n(&queue->base.posted, queue->base.posted + 1, __ATOMIC_RELEASE);
    if (pthread_mutex_trylock(&queue->mutex) == 0) {
        status = failed_status(queue);
        if (status == WEIR_OK) {
            status = issue(queue);
        }
        pthread_mutex_unlock(&queue->mutex);
    }
    return status;
}

weir_status weiri_ofi_put(weiri_queue *base, weiri_remote *dst, uint64_t dst_offset, const weiri_region *src,
                          uint64_t src_offset, uint64_t bytes)
{
    ofi_queue *queue = (ofi_queue *)base;
    const weiri_ofi_remote *remote = (const weiri_ofi_remote *)dst;
    weir_status status = failed_status(queue);
    ofi_post *post = status == WEIR_OK ? next_post(queue) : NULL;
    if (post == NULL) {
        return status != WEIR_OK ? status : WEIR_ERR_BUSY;
    }
    *post = (ofi_post){
        .more = bytes != 0,
        .local = (uint8_t *)src->block->host_pointer + src_offset,
        .desc = fi_mr_desc(((const weiri_ofi_region *)src)->mr),
        .address = remote->address + dst_offset,
        .key = remote->key,
        .left = bytes,
    };
    return publish(queue);
}

/* Posts a letter, whose token and number are set here. */
static weir_status post_letter(ofi_queue *queue, ofi_letter letter)
{
    weir_status status = failed_status(queue);
    ofi_post *post = status == WEIR_OK ? next_post(queue) : NULL;
    if (post == NULL) {
        return status != WEIR_OK ? status : WEIR_ERR_BUSY;
    }
    /* Its place is free: the letter that had it, DEPTH letters ago, is complete. */
    letter.token = queue->peer_token;
    letter.number = ++queue->written;
    write_letter(letter_out(queue, letter.number), &letter);
    *post = (ofi_post){ .number = letter.number, .local = letter_out(queue, letter.number) };
    return publish(queue);
}

weir_status weiri_ofi_get(weiri_queue *base, const weiri_region *dst, uint64_t dst_offset, weiri_remote *src,
                          uint64_t src_offset, uint64_t bytes)
{
    const weiri_ofi_remote *remote = (const weiri_ofi_remote *)src;
    const weiri_ofi_region *region = (const weiri_ofi_region *)dst;
    ofi_letter letter = {
        .kind = LETTER_GET,
        .slot = remote->slot,
        .id = remote->id,
        .offset = src_offset,
        .value = bytes,
        .key = region->mr_key,
        .address = weiri_ofi_base((weiri_ofi_domain *)base->domain, dst->block->host_pointer) + dst_offset,
    };
    return post_letter((ofi_queue *)base, letter);
}

weir_status weiri_ofi_value(weiri_queue *base, weiri_remote *dst, uint64_t dst_offset, uint64_t value, uint32_t bytes)
{
    const weiri_ofi_remote *remote = (const weiri_ofi_remote *)dst;
    ofi_letter letter = {
        .kind = LETTER_VALUE,
        .bytes = (uint16_t)bytes,
        .slot = remote->slot,
        .id = remote->id,
        .offset = dst_offset,
        .value = value,
    };
    return post_letter((ofi_queue *)base, letter);
}
