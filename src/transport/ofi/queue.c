/* queue.c - opens, connects, polls and closes queues of the transport ofi; see ofi/queue.h.
 *
 * A queue writes its address at open, and connect takes the peer's. weiri_ofi_poll is what moves a queue: it reads
 * completions, which free operations and bring messages, copies arrived chunks, completes posts at the front of the
 * ring, carries out the peer's messages (message.c), acknowledges them, and issues posts (post.c). The first error
 * closes the endpoint. Its status and text stay, and every later call returns them. */
#include "src/transport/ofi/queue.h"

#include <sodium.h>
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/base/wire.h"

#define SLICE ((uint64_t)4 << 20) /* maximum bytes of one write */
#define BATCH 16                  /* completions read at once */
#define ROUNDS 8                  /* batches in one poll */
#define ADDRESS_VERSION 2
#define NAME_BYTES 64 /* maximum of an endpoint's address */

/* ---- failure --------------------------------------------------------------------------------------------- */

weir_status weiri_ofi_failed(weiri_ofi_queue *queue)
{
    weir_status status = __atomic_load_n(&queue->status, __ATOMIC_ACQUIRE);
    return status == WEIR_OK ? WEIR_OK : weiri_fail(status, "%s", queue->text);
}

weir_status weiri_ofi_fail_queue(weiri_ofi_queue *queue, weir_status status)
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

weir_status weiri_ofi_check(weiri_ofi_queue *queue, ssize_t error)
{
    if (error == 0 || error == -FI_EAGAIN) {
        return WEIR_OK;
    }
    weir_status status = weiri_ofi_fail((int)error, "ofi: queue: send to the peer");
    return weiri_ofi_fail_queue(queue, means_gone((int)-error) ? WEIR_ERR_REMOTE : status);
}

/* Reads the error of a failed operation and fails the queue. */
static weir_status fail_completion(weiri_ofi_queue *queue)
{
    struct fi_cq_err_entry entry;
    char detail[96] = "";
    memset(&entry, 0, sizeof entry);
    ssize_t read = fi_cq_readerr(queue->cq, &entry, 0);
    if (read <= 0) {
        return weiri_ofi_fail_queue(queue, weiri_ofi_fail((int)read, "ofi: queue: read an error"));
    }
    const char *text = fi_cq_strerror(queue->cq, entry.prov_errno, entry.err_data, detail, sizeof detail);
    weir_status status = means_gone(entry.err) ? WEIR_ERR_REMOTE : WEIR_ERR_SYSTEM;
    return weiri_ofi_fail_queue(
        queue, weiri_fail(status, "ofi: queue: the peer has ended, or its memory was deregistered: %s (%s)",
                          weiri_ofi.strerror(entry.err), text == NULL ? "no details" : text));
}

/* ---- copies of the device -------------------------------------------------------------------------------- */

weir_status weiri_ofi_begin_copy(weiri_ofi_queue *queue, uint32_t stream, const weiri_ofi_place *place,
                                 const weiri_ofi_pinned *pinned, uint64_t bytes, uint64_t *number)
{
    weir_status status = weiri_ofi_copy(queue->domain, stream, place, pinned, bytes, number);
    queue->last[stream] = status == WEIR_OK ? *number : queue->last[stream];
    return status;
}

weir_status weiri_ofi_has_ended(weiri_ofi_queue *queue, uint32_t stream, uint64_t copy, bool *ended)
{
    weir_status status = WEIR_OK;
    if (copy > queue->ended[stream]) {
        status = weiri_ofi_stream_ended(queue->domain, stream, &queue->ended[stream]);
    }
    *ended = status == WEIR_OK && copy <= queue->ended[stream];
    return status == WEIR_OK ? WEIR_OK : weiri_ofi_fail_queue(queue, status);
}

/* Whether copies of this queue may be under way. */
static bool is_copying(const weiri_ofi_queue *queue)
{
    return queue->last[WEIRI_OFI_OUT] > queue->ended[WEIRI_OFI_OUT] ||
           queue->last[WEIRI_OFI_IN] > queue->ended[WEIRI_OFI_IN];
}

/* ---- open and close -------------------------------------------------------------------------------------- */

static weir_status open_endpoint(weiri_ofi_queue *queue)
{
    struct fid_domain *domain = queue->domain->domain;
    struct fi_info *info = queue->domain->info;
    struct fi_cq_attr cq_attr;
    struct fi_av_attr av_attr;
    memset(&cq_attr, 0, sizeof cq_attr);
    memset(&av_attr, 0, sizeof av_attr);
    cq_attr.format = FI_CQ_FORMAT_DATA;
    cq_attr.wait_obj = FI_WAIT_NONE;
    cq_attr.size = WEIRI_OFI_OPS + WEIRI_OFI_RECEIVES;
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

static weiri_ofi_pinned pinned_at(const weiri_block *memory, uint64_t at)
{
    return (weiri_ofi_pinned){ (uint8_t *)memory->host_pointer + at, (char *)memory->pointer + at };
}

/* Allocates the queue's pinned memory: incoming messages; with staged memory also the landing zone, chunks and the
 * word. */
static weir_status open_memory(weiri_ofi_queue *queue)
{
    const bool stages = queue->domain->marks != NULL;
    const uint64_t chunks = stages ? WEIRI_OFI_LANDINGS + WEIRI_OFI_CHUNKS + WEIRI_OFI_SERVES : 0;
    const uint64_t words = chunks * WEIRI_OFI_CHUNK;
    const uint64_t messages = words + sizeof(uint64_t);
    const uint64_t bytes = messages + (uint64_t)WEIRI_OFI_RECEIVES * WEIRI_OFI_MESSAGE_BYTES;
    weir_status status = weiri_device_allocate(queue->base.domain->device, WEIR_MEMORY_HOST, bytes, &queue->memory);
    if (status != WEIR_OK) {
        return status;
    }
    queue->word = pinned_at(queue->memory, words);
    queue->messages = pinned_at(queue->memory, messages).host;
    uint64_t at = WEIRI_OFI_LANDINGS * WEIRI_OFI_CHUNK;
    if (stages) {
        queue->landing = pinned_at(queue->memory, 0);
    }
    for (uint32_t i = 0; stages && i < WEIRI_OFI_CHUNKS; i++, at += WEIRI_OFI_CHUNK) {
        queue->chunks[i].memory = pinned_at(queue->memory, at);
    }
    for (uint32_t i = 0; stages && i < WEIRI_OFI_SERVES; i++, at += WEIRI_OFI_CHUNK) {
        queue->serves[i].memory = pinned_at(queue->memory, at);
    }
    return weiri_ofi_register(queue->domain, queue->memory->host_pointer, bytes,
                              FI_SEND | FI_RECV | FI_WRITE | FI_REMOTE_WRITE, &queue->mr, &queue->mr_key);
}

static weir_status write_address(weiri_ofi_queue *queue)
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
    weiri_write_u64(&w, queue->mr_key);
    weiri_write_u64(&w, weiri_ofi_base(queue->domain, queue->memory->host_pointer));
    weiri_write_u8(&w, queue->landing.host != NULL);
    weiri_write_bytes(&w, name, bytes);
    queue->base.address_bytes = (uint32_t)w.size;
    return WEIR_OK;
}

weir_status weiri_ofi_queue_open(weiri_domain *base, weiri_queue **out)
{
    weiri_ofi_queue *queue = (weiri_ofi_queue *)weiri_alloc(1, sizeof *queue);
    if (queue == NULL) {
        return weiri_fail_nomem("ofi: queue");
    }
    (void)pthread_mutex_init(&queue->mutex, NULL);
    queue->base.domain = base;
    queue->domain = (weiri_ofi_domain *)base;
    queue->cutting = 1;
    randombytes_buf(&queue->token, sizeof queue->token);
    uint64_t longest = queue->domain->info->ep_attr->max_msg_size;
    queue->slice = longest < SLICE ? longest : SLICE;
    for (uint32_t i = 0; i < WEIRI_OFI_OPS; i++) {
        queue->ops[i].next = queue->free_ops;
        queue->free_ops = &queue->ops[i];
    }
    weir_status status = open_memory(queue);
    if (status == WEIR_OK) {
        status = open_endpoint(queue);
    }
    if (status == WEIR_OK) {
        status = write_address(queue);
    }
    for (size_t i = 0; i < WEIRI_OFI_RECEIVES && status == WEIR_OK; i++) {
        status = weiri_ofi_receive(queue, i);
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
    weiri_ofi_queue *queue = (weiri_ofi_queue *)base;
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
    weiri_ofi_streams_settle(queue->domain);
    weiri_block_release(queue->memory);
    (void)pthread_mutex_destroy(&queue->mutex);
    weiri_free(queue);
}

/* Whether the bytes look like an address of the same kind as the local one. */
static bool plausible(const weiri_ofi_queue *queue, const uint8_t *name, size_t bytes)
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
    weiri_ofi_queue *queue = (weiri_ofi_queue *)base;
    uint8_t name[NAME_BYTES] = { 0 };
    weir_status status = WEIR_OK;
    weiri_reader r = weiri_reader_init(address, bytes);
    uint8_t version = weiri_read_u8(&r);
    uint8_t name_bytes = weiri_read_u8(&r);
    uint32_t format = weiri_read_u32(&r);
    uint64_t token = weiri_read_u64(&r);
    uint64_t key = weiri_read_u64(&r);
    uint64_t base_address = weiri_read_u64(&r);
    uint8_t lands = weiri_read_u8(&r);
    bool fits = name_bytes > 0 && name_bytes <= sizeof name;
    weiri_read_bytes(&r, name, fits ? name_bytes : 0);
    if (!weiri_reader_done(&r) || version != ADDRESS_VERSION || !fits) {
        return weiri_fail(WEIR_ERR_CORRUPT, "ofi: malformed address of a peer's queue, %zu bytes", bytes);
    }
    pthread_mutex_lock(&queue->mutex);
    if (queue->ep == NULL) {
        status = weiri_ofi_failed(queue);
        goto unlock;
    }
    if (format != queue->domain->info->addr_format) {
        status = weiri_fail(WEIR_ERR_UNSUPPORTED,
                            "ofi: the peer's addresses have format %u, the local ones %u: IPv4 and IPv6, or different "
                            "providers; set WEIR_INTERFACE or WEIR_OFI_PROVIDER",
                            format, queue->domain->info->addr_format);
        goto unlock;
    }
    if (!plausible(queue, name, name_bytes)) {
        status = weiri_fail(WEIR_ERR_CORRUPT, "ofi: malformed address of a peer's endpoint, %u bytes", name_bytes);
        goto unlock;
    }
    int added = fi_av_insert(queue->av, name, 1, &queue->peer, 0, NULL);
    if (added != 1) {
        status = weiri_fail(WEIR_ERR_CORRUPT, "ofi: provider %s refuses the address of the peer's endpoint",
                            queue->domain->info->fabric_attr->prov_name);
        goto unlock;
    }
    queue->peer_token = token;
    queue->peer_key = key;
    queue->peer_address = base_address;
    queue->peer_lands = lands != 0;
    queue->connected = true;
unlock:
    pthread_mutex_unlock(&queue->mutex);
    return status;
}

/* ---- completions; the caller holds the mutex ------------------------------------------------------------- */

static weir_status take(weiri_ofi_queue *queue, const struct fi_cq_data_entry *entry)
{
    weiri_ofi_op *op = (weiri_ofi_op *)entry->op_context;
    if ((entry->flags & FI_RECV) == 0) {
        queue->established = true;
        queue->busy_ops--;
        for (uint64_t number = op->first; number != 0 && number <= op->last; number++) {
            queue->ring[number % WEIRI_OFI_DEPTH].waiting--;
        }
        if (op->chunk != NULL) {
            op->chunk->busy = false;
        }
        op->next = queue->free_ops;
        queue->free_ops = op;
        return WEIR_OK;
    }
    return weiri_ofi_take_message(queue, (size_t)(op - queue->receives), entry->len);
}

/* Reads completions, which also drives the provider. */
static weir_status drain(weiri_ofi_queue *queue, bool *some)
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
            return weiri_ofi_fail_queue(queue, weiri_ofi_fail((int)count, "ofi: queue: read completions"));
        }
        *some = true;
        for (ssize_t i = 0; i < count; i++) {
            weir_status status = take(queue, &entries[i]);
            if (status != WEIR_OK) {
                return status;
            }
        }
        if (count < BATCH && !queue->blocked) {
            return WEIR_OK; /* another read would be a system call, and delay the completions at hand */
        }
    }
    return WEIR_OK;
}

/* Completes posts at the front of the ring. */
static void advance(weiri_ofi_queue *queue)
{
    uint64_t completed = __atomic_load_n(&queue->base.completed, __ATOMIC_RELAXED);
    uint64_t before = completed;
    while (completed < queue->issued) {
        const weiri_ofi_post *post = &queue->ring[(completed + 1) % WEIRI_OFI_DEPTH];
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
    weiri_ofi_queue *queue = (weiri_ofi_queue *)base;
    bool some = false;
    weir_status status = weiri_ofi_failed(queue);
    if (status != WEIR_OK || pthread_mutex_trylock(&queue->mutex) != 0) {
        return status != WEIR_OK ? status : WEIR_PENDING;
    }
    status = weiri_ofi_failed(queue); /* another thread may have failed it */
    if (status != WEIR_OK) {
        goto unlock;
    }
    uint64_t issued = queue->issued;
    status = drain(queue, &some);
    if (status == WEIR_OK) {
        status = weiri_ofi_unload(queue);
    }
    advance(queue); /* also if the queue has failed: posts that completed before are complete */
    if (status == WEIR_OK) {
        status = weiri_ofi_handle(queue);
    }
    /* A message that answers what has just arrived acknowledges it too, so acknowledge alone only when idle. */
    if (status == WEIR_OK && (!some || queue->handled - queue->reported >= WEIRI_OFI_DEPTH / 4)) {
        status = weiri_ofi_acknowledge(queue);
    }
    if (status == WEIR_OK) {
        status = weiri_ofi_issue(queue);
    }
    if (status == WEIR_OK) {
        advance(queue);
        status = weiri_ofi_watch(queue);
    }
    if (status == WEIR_OK && !some && queue->issued == issued && !is_copying(queue)) {
        status = WEIR_PENDING;
    }
unlock:
    pthread_mutex_unlock(&queue->mutex);
    return status;
}
