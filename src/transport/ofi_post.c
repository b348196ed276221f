/* ofi_post.c - queues of the transport ofi: what this rank posts, and what becomes of it; see ofi_queue.h. */
#include "src/transport/ofi_queue.h"

#include "src/host/base/clock.h"
#include "src/host/base/error.h"

#define PROBE_NS 20000000u /* without an acknowledgement, until the peer is probed */
#define LOST_NS 200000000u /* without room, until the connection is lost */

/* ---- issuing; with the mutex ----------------------------------------------------------------------------- */

/* Takes note of how libfabric took an operation. */
static ssize_t took(weiri_ofi_queue *queue, weiri_ofi_op *op, weiri_ofi_post *post, ssize_t error)
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

ssize_t weiri_ofi_write_out(weiri_ofi_queue *queue, weiri_ofi_post *post, void *from, void *desc, uint64_t bytes,
                            uint64_t address, uint64_t key)
{
    weiri_ofi_op *op = queue->free_ops;
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

ssize_t weiri_ofi_send_out(weiri_ofi_queue *queue, weiri_ofi_post *post, uint8_t *letter)
{
    weiri_ofi_op *op = queue->free_ops;
    if (op == NULL) {
        queue->blocked = true;
        return -FI_EAGAIN;
    }
    ssize_t error =
        fi_send(queue->ep, letter, WEIRI_OFI_LETTER_BYTES, fi_mr_desc(queue->mr), queue->peer, &op->context);
    error = took(queue, op, post, error);
    if (error == 0 && post == NULL) {
        op->tells = true;
        queue->telling = true;
    }
    return error;
}

bool weiri_ofi_has_room(const weiri_ofi_queue *queue)
{
    return queue->connected && !queue->blocked;
}

weir_status weiri_ofi_check(weiri_ofi_queue *queue, ssize_t error)
{
    return error == 0 || error == -FI_EAGAIN
               ? WEIR_OK
               : weiri_ofi_fail_queue(queue, weiri_ofi_fail((int)error, "ofi: queue: send"));
}

weir_status weiri_ofi_issue(weiri_ofi_queue *queue)
{
    uint64_t posted = __atomic_load_n(&queue->base.posted, __ATOMIC_ACQUIRE);
    weir_status status = WEIR_OK;
    while (status == WEIR_OK && weiri_ofi_has_room(queue) && queue->issued < posted) {
        weiri_ofi_post *post = &queue->ring[(queue->issued + 1) % WEIRI_OFI_DEPTH];
        uint64_t bytes = post->left < queue->slice ? post->left : queue->slice;
        ssize_t error = 0;
        if (post->number != 0) {
            error = weiri_ofi_send_out(queue, post, post->local);
        } else if (post->more) {
            error = weiri_ofi_write_out(queue, post, post->local, post->desc, bytes, post->address, post->key);
        }
        if (error == 0) {
            post->local += bytes;
            post->address += bytes;
            post->left -= bytes;
            post->more = post->left != 0;
            queue->issued += !post->more;
            queue->sent = post->number != 0 ? post->number : queue->sent;
        }
        status = weiri_ofi_check(queue, error);
    }
    return status;
}

/* Whether `since` is `limit` ago; 0 becomes now. */
static bool has_passed(uint64_t *since, uint64_t limit)
{
    uint64_t now = weiri_now_ns();
    *since = *since == 0 ? now : *since;
    return now - *since > limit;
}

weir_status weiri_ofi_watch(weiri_ofi_queue *queue)
{
    if (!queue->established || queue->busy_ops != 0) {
        return WEIR_OK;
    }
    if (queue->blocked) {
        return !has_passed(&queue->no_room_ns, LOST_NS)
                   ? WEIR_OK
                   : weiri_ofi_fail_queue(
                         queue, weiri_fail(WEIR_ERR_REMOTE, "ofi: queue: the connection to the peer is lost"));
    }
    if (queue->acked == queue->sent || !has_passed(&queue->quiet_ns, PROBE_NS)) {
        return WEIR_OK;
    }
    return weiri_ofi_check(queue, weiri_ofi_write_out(queue, NULL, queue->letters, fi_mr_desc(queue->mr), 0,
                                                      queue->peer_address, queue->peer_key));
}

/* ---- posts ----------------------------------------------------------------------------------------------- */

/* The slot of the next post; NULL: there is none. */
static weiri_ofi_post *next_post(weiri_ofi_queue *queue)
{
    uint64_t completed = __atomic_load_n(&queue->base.completed, __ATOMIC_ACQUIRE);
    return queue->base.posted - completed >= WEIRI_OFI_DEPTH ? NULL
                                                             : &queue->ring[(queue->base.posted + 1) % WEIRI_OFI_DEPTH];
}

/* Publishes the slot, and issues it if nobody else does. */
static weir_status publish(weiri_ofi_queue *queue)
{
    weir_status status = WEIR_OK;
    __atomic_store_n(&queue->base.posted, queue->base.posted + 1, __ATOMIC_RELEASE);
    if (pthread_mutex_trylock(&queue->mutex) == 0) {
        status = weiri_ofi_failed(queue);
        if (status == WEIR_OK) {
            status = weiri_ofi_issue(queue);
        }
        pthread_mutex_unlock(&queue->mutex);
    }
    return status;
}

weir_status weiri_ofi_put(weiri_queue *base, weiri_remote *dst, uint64_t dst_offset, const weiri_region *src,
                          uint64_t src_offset, uint64_t bytes)
{
    weiri_ofi_queue *queue = (weiri_ofi_queue *)base;
    const weiri_ofi_remote *remote = (const weiri_ofi_remote *)dst;
    weir_status status = weiri_ofi_failed(queue);
    weiri_ofi_post *post = status == WEIR_OK ? next_post(queue) : NULL;
    if (post == NULL) {
        return status != WEIR_OK ? status : WEIR_ERR_BUSY;
    }
    *post = (weiri_ofi_post){
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
static weir_status post_letter(weiri_ofi_queue *queue, weiri_ofi_letter letter)
{
    weir_status status = weiri_ofi_failed(queue);
    weiri_ofi_post *post = status == WEIR_OK ? next_post(queue) : NULL;
    if (post == NULL) {
        return status != WEIR_OK ? status : WEIR_ERR_BUSY;
    }
    /* Its place is free: the letter that had it, WEIRI_OFI_DEPTH letters ago, is complete. */
    letter.token = queue->peer_token;
    letter.number = ++queue->written;
    weiri_ofi_write_letter(weiri_ofi_letter_out(queue, letter.number), &letter);
    *post = (weiri_ofi_post){ .number = letter.number, .local = weiri_ofi_letter_out(queue, letter.number) };
    return publish(queue);
}

weir_status weiri_ofi_get(weiri_queue *base, const weiri_region *dst, uint64_t dst_offset, weiri_remote *src,
                          uint64_t src_offset, uint64_t bytes)
{
    const weiri_ofi_remote *remote = (const weiri_ofi_remote *)src;
    const weiri_ofi_region *region = (const weiri_ofi_region *)dst;
    weiri_ofi_letter letter = {
        .kind = WEIRI_OFI_GET,
        .slot = remote->slot,
        .id = remote->id,
        .offset = src_offset,
        .value = bytes,
        .key = region->mr_key,
        .address = weiri_ofi_base((weiri_ofi_domain *)base->domain, dst->block->host_pointer) + dst_offset,
    };
    return post_letter((weiri_ofi_queue *)base, letter);
}

weir_status weiri_ofi_value(weiri_queue *base, weiri_remote *dst, uint64_t dst_offset, uint64_t value, uint32_t bytes)
{
    const weiri_ofi_remote *remote = (const weiri_ofi_remote *)dst;
    weiri_ofi_letter letter = {
        .kind = WEIRI_OFI_VALUE,
        .bytes = (uint16_t)bytes,
        .slot = remote->slot,
        .id = remote->id,
        .offset = dst_offset,
        .value = value,
    };
    return post_letter((weiri_ofi_queue *)base, letter);
}
