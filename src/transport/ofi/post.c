/* post.c - the posts of this rank, from the ring to libfabric; ofi/queue.h says why it works this way.
 *
 * weiri_ofi_put, _get, _value and _add describe a post, and `publish` puts it into the ring. weiri_ofi_issue takes
 * posts from the ring in order: a put becomes writes, alone or in a group behind which one empty write asks for
 * delivery; a value, an add and a get become messages (message.c). Posts of staged memory are cut into chunks first;
 * weiri_ofi_unload copies chunks that gets have filled to their place. weiri_ofi_watch probes the peer while this rank
 * waits for nothing but an acknowledgement. */
#include "src/host/base/clock.h"
#include "src/host/base/error.h"
#include "src/transport/ofi/queue.h"

#define SMALL_BYTES 16384u /* of a write that asks for delivery itself */
#define GROUP_MOST 8u      /* larger writes in a group, for which one empty write asks for delivery */
#define BUSY_OPS 6u        /* with this many under way, posts wait for a poll */
#define PROBE_NS 20000000u /* without an acknowledgement until the peer is probed */
#define LOST_NS 200000000u /* without room until the connection counts as lost */

/* ---- issuing; the caller holds the mutex ----------------------------------------------------------------- */

bool weiri_ofi_has_room(const weiri_ofi_queue *queue) { return queue->connected && !queue->blocked; }

/* One write of libfabric, for the posts and the chunk of `what`. -FI_EAGAIN: no room now. */
static ssize_t write_once(weiri_ofi_queue *queue, const weiri_ofi_op *what, struct iovec local, void *desc,
                          struct fi_rma_iov remote, uint64_t flags)
{
    weiri_ofi_op *op = queue->free_ops;
    if (op == NULL) {
        queue->blocked = true;
        return -FI_EAGAIN;
    }
    struct fi_msg_rma write = {
        .msg_iov = &local,
        .desc = &desc,
        .iov_count = 1,
        .addr = queue->peer,
        .rma_iov = &remote,
        .rma_iov_count = 1,
        .context = &op->context,
    };
    ssize_t error = fi_writemsg(queue->ep, &write, FI_COMPLETION | flags);
    if (error == 0) {
        queue->free_ops = op->next;
        queue->busy_ops++;
        queue->quiet_ns = 0;
        queue->no_room_ns = 0;
        op->first = what->first;
        op->last = what->last;
        op->chunk = what->chunk;
        for (uint64_t number = op->first; number != 0 && number <= op->last; number++) {
            queue->ring[number % WEIRI_OFI_DEPTH].waiting++;
        }
    } else if (error == -FI_EAGAIN) {
        queue->blocked = true;
    }
    return error;
}

ssize_t weiri_ofi_write_out(weiri_ofi_queue *queue, const weiri_ofi_op *what, void *from, void *desc, uint64_t bytes,
                            uint64_t address, uint64_t key)
{
    static const weiri_ofi_op nobody;
    struct iovec local = { .iov_base = from, .iov_len = bytes };
    struct fi_rma_iov remote = { .addr = address, .len = bytes, .key = key };
    if (bytes > SMALL_BYTES) {
        if (queue->free_ops == NULL || queue->free_ops->next == NULL) {
            queue->blocked = true;
            return -FI_EAGAIN; /* without room for both writes the data might go out repeatedly */
        }
        ssize_t error = write_once(queue, &nobody, local, desc, remote, 0);
        if (error != 0) {
            return error;
        }
        local.iov_len = 0;
        remote.len = 0;
    }
    return write_once(queue, what, local, desc, remote, FI_DELIVERY_COMPLETE);
}

/* Fails the queue because a post's copy from or into memory of this rank could not begin. */
static weir_status fail_copy(weiri_ofi_queue *queue, weir_status status)
{
    if (status == WEIR_ERR_RANGE) {
        status =
            weiri_fail(WEIR_ERR_INVALID, "ofi: queue: memory of this rank was deregistered while a transfer used it");
    }
    return weiri_ofi_fail_queue(queue, status);
}

/* Gives chunks to posts up to number `posted`, and begins to fill the chunks of puts. */
static weir_status cut(weiri_ofi_queue *queue, uint64_t posted)
{
    weir_status status = WEIR_OK;
    while (status == WEIR_OK && queue->cutting <= posted) {
        weiri_ofi_post *post = &queue->ring[queue->cutting % WEIRI_OFI_DEPTH];
        weiri_ofi_chunk *chunk = &queue->chunks[queue->cut % WEIRI_OFI_CHUNKS];
        if (post->uncut == 0) {
            queue->cutting++;
            continue;
        }
        if (chunk->busy) {
            break;
        }
        chunk->bytes = post->uncut < WEIRI_OFI_CHUNK ? post->uncut : WEIRI_OFI_CHUNK;
        chunk->place = post->source;
        chunk->copy = 0;
        if (post->message.kind != WEIRI_OFI_GET) {
            status =
                weiri_ofi_begin_copy(queue, WEIRI_OFI_OUT, &chunk->place, &chunk->memory, chunk->bytes, &chunk->copy);
        }
        chunk->busy = true;
        queue->cut++;
        post->source.offset += chunk->bytes;
        post->uncut -= chunk->bytes;
    }
    return status == WEIR_OK ? WEIR_OK : fail_copy(queue, status);
}

/* The next local chunk; NULL if it is not ready. */
static weir_status next_chunk(weiri_ofi_queue *queue, weiri_ofi_chunk **out)
{
    weiri_ofi_chunk *chunk = &queue->chunks[queue->used % WEIRI_OFI_CHUNKS];
    bool ended = false;
    weir_status status =
        queue->used == queue->cut ? WEIR_OK : weiri_ofi_has_ended(queue, WEIRI_OFI_OUT, chunk->copy, &ended);
    *out = ended ? chunk : NULL;
    return status;
}

/* Writes the next piece of a put, unless it is written already. */
static weir_status write_piece(weiri_ofi_queue *queue, weiri_ofi_post *post, uint64_t bytes)
{
    const bool lands = post->message.kind == WEIRI_OFI_LAND;
    const uint64_t landing = queue->landed % WEIRI_OFI_LANDINGS;
    weiri_ofi_op what = { .first = queue->issued + 1, .last = queue->issued + 1 };
    uint8_t *from = post->local;
    void *desc = post->desc;
    if (post->written || (lands && queue->landings[landing] > queue->acked)) {
        return WEIR_OK;
    }
    if (post->staged) {
        weir_status status = next_chunk(queue, &what.chunk);
        if (status != WEIR_OK || what.chunk == NULL) {
            return status;
        }
        from = what.chunk->memory.host;
        desc = fi_mr_desc(queue->mr);
    }
    ssize_t error = weiri_ofi_write_out(queue, &what, from, desc, bytes,
                                        lands ? queue->peer_address + landing * WEIRI_OFI_CHUNK : post->address,
                                        lands ? queue->peer_key : post->key);
    post->written = error == 0;
    queue->used += error == 0 && post->staged;
    return weiri_ofi_check(queue, error);
}

/* Sends the message behind a piece in the peer's landing zone. */
static weir_status send_landing(weiri_ofi_queue *queue, weiri_ofi_post *post, uint64_t bytes, bool *sent)
{
    const uint64_t landing = queue->landed % WEIRI_OFI_LANDINGS;
    post->message.value = bytes;
    post->message.address = landing;
    ssize_t error = weiri_ofi_send(queue, &post->message);
    *sent = error == 0;
    if (*sent) {
        post->message.place.offset += bytes;
        post->number = queue->sent;
        queue->landings[landing] = queue->sent;
        queue->landed++;
    }
    return weiri_ofi_check(queue, error);
}

/* Whether the rest of a put is one large write without staged memory. */
static bool is_grouped(const weiri_ofi_queue *queue, const weiri_ofi_post *post)
{
    return post->message.kind == 0 && !post->staged && post->left > SMALL_BYTES && post->left <= queue->slice;
}

/* There is no room for the whole group: its issued posts will be issued again. */
static void undo_group(weiri_ofi_queue *queue)
{
    for (uint64_t number = queue->group; number <= queue->issued; number++) {
        weiri_ofi_post *post = &queue->ring[number % WEIRI_OFI_DEPTH];
        post->more = post->left != 0;
    }
    queue->issued = queue->group - 1;
    queue->group = 0;
    queue->group_most = 1; /* the smallest group needs the least room */
}

/* Issues the empty write that the posts of the group wait for. */
static weir_status close_group(weiri_ofi_queue *queue)
{
    if (queue->group == 0) {
        return WEIR_OK;
    }
    const weiri_ofi_post *post = &queue->ring[queue->issued % WEIRI_OFI_DEPTH];
    const weiri_ofi_op what = { .first = queue->group, .last = queue->issued };
    const struct iovec local = { .iov_base = post->local, .iov_len = 0 };
    const struct fi_rma_iov remote = { .addr = post->address, .len = 0, .key = post->key };
    ssize_t error = write_once(queue, &what, local, post->desc, remote, FI_DELIVERY_COMPLETE);
    if (error == -FI_EAGAIN) {
        undo_group(queue);
        return WEIR_OK;
    }
    queue->group = 0;
    queue->group_most = GROUP_MOST;
    return weiri_ofi_check(queue, error);
}

static weir_status issue_grouped(weiri_ofi_queue *queue, weiri_ofi_post *post)
{
    static const weiri_ofi_op nobody;
    const struct iovec local = { .iov_base = post->local, .iov_len = post->left };
    const struct fi_rma_iov remote = { .addr = post->address, .len = post->left, .key = post->key };
    if (queue->free_ops == NULL || queue->free_ops->next == NULL) {
        queue->blocked = true; /* without room for both writes the data might go out repeatedly */
        return close_group(queue);
    }
    ssize_t error = write_once(queue, &nobody, local, post->desc, remote, 0);
    if (error == 0) {
        queue->group_size = queue->group == 0 ? 1 : queue->group_size + 1;
        queue->group = queue->group == 0 ? queue->issued + 1 : queue->group;
        post->more = false;
    } else if (error == -FI_EAGAIN && queue->group != 0) {
        undo_group(queue);
    }
    return weiri_ofi_check(queue, error);
}

static weir_status issue_put(weiri_ofi_queue *queue, weiri_ofi_post *post)
{
    const bool lands = post->message.kind == WEIRI_OFI_LAND;
    const uint64_t most = lands || post->staged ? WEIRI_OFI_CHUNK : queue->slice;
    const uint64_t bytes = post->left < most ? post->left : most;
    if (lands && !queue->peer_lands) {
        return weiri_ofi_fail_queue(
            queue,
            weiri_fail(WEIR_ERR_CORRUPT, "ofi: queue: the peer's memory is staged, but its queue has no landing zone"));
    }
    weir_status status = write_piece(queue, post, bytes);
    bool out = status == WEIR_OK && post->written;
    if (out && lands) {
        status = send_landing(queue, post, bytes, &out);
    }
    if (out) {
        post->written = false;
        if (!post->staged) {
            post->local += bytes;
        }
        post->address += bytes;
        post->left -= bytes;
        post->more = post->left != 0;
    }
    return status;
}

/* Sends the message for the next piece of a get into staged memory. */
static weir_status issue_get(weiri_ofi_queue *queue, weiri_ofi_post *post)
{
    weiri_ofi_chunk *chunk = NULL;
    weir_status status = next_chunk(queue, &chunk);
    if (status != WEIR_OK || chunk == NULL) {
        return status;
    }
    const uint8_t *memory = (const uint8_t *)queue->memory->host_pointer;
    post->message.value = chunk->bytes;
    post->message.key = queue->mr_key;
    post->message.address = weiri_ofi_base(queue->domain, memory) + (uint64_t)(chunk->memory.host - memory);
    ssize_t error = weiri_ofi_send(queue, &post->message);
    if (error == 0) {
        queue->used++;
        chunk->get = post;
        chunk->number = queue->sent;
        post->waiting++;
        post->number = queue->sent;
        post->message.place.offset += chunk->bytes;
        post->left -= chunk->bytes;
        post->more = post->left != 0;
    }
    return weiri_ofi_check(queue, error);
}

static weir_status issue_message(weiri_ofi_queue *queue, weiri_ofi_post *post)
{
    ssize_t error = weiri_ofi_send(queue, &post->message);
    if (error == 0) {
        post->number = queue->sent;
        post->more = false;
    }
    return weiri_ofi_check(queue, error);
}

static weir_status issue_alone(weiri_ofi_queue *queue, weiri_ofi_post *post)
{
    if (post->message.kind == 0 || post->message.kind == WEIRI_OFI_LAND) {
        return issue_put(queue, post);
    }
    return post->staged ? issue_get(queue, post) : issue_message(queue, post);
}

weir_status weiri_ofi_issue(weiri_ofi_queue *queue)
{
    const uint64_t posted = __atomic_load_n(&queue->base.posted, __ATOMIC_ACQUIRE);
    weir_status status = queue->domain->marks != NULL ? cut(queue, posted) : WEIR_OK;
    while (status == WEIR_OK && queue->issued < posted) {
        weiri_ofi_post *post = &queue->ring[(queue->issued + 1) % WEIRI_OFI_DEPTH];
        const uint64_t left = post->left;
        const bool grouped = is_grouped(queue, post);
        if (queue->group != 0 && (!grouped || queue->group_size >= queue->group_most)) {
            status = close_group(queue);
            continue;
        }
        if (post->more && weiri_ofi_has_room(queue)) {
            status = grouped ? issue_grouped(queue, post) : issue_alone(queue, post);
        }
        if (post->more && post->left == left) {
            break;
        }
        queue->issued += !post->more;
    }
    return status == WEIR_OK ? close_group(queue) : status;
}

weir_status weiri_ofi_unload(weiri_ofi_queue *queue)
{
    weir_status status = WEIR_OK;
    bool ended = false;
    for (uint32_t i = 0; i < WEIRI_OFI_CHUNKS && status == WEIR_OK; i++) {
        weiri_ofi_chunk *chunk = &queue->chunks[i];
        if (chunk->get == NULL || chunk->number > queue->acked) {
            continue;
        }
        if (chunk->copy == 0) {
            status =
                weiri_ofi_begin_copy(queue, WEIRI_OFI_IN, &chunk->place, &chunk->memory, chunk->bytes, &chunk->copy);
            status = status == WEIR_OK ? WEIR_OK : fail_copy(queue, status);
            continue;
        }
        status = weiri_ofi_has_ended(queue, WEIRI_OFI_IN, chunk->copy, &ended);
        if (ended) {
            chunk->get->waiting--;
            chunk->get = NULL;
            chunk->busy = false;
        }
    }
    return status;
}

/* Whether more than `limit` has passed since *since; a *since of 0 becomes now. */
static bool has_passed(uint64_t *since, uint64_t limit)
{
    uint64_t now = weiri_now_ns();
    *since = *since == 0 ? now : *since;
    return now - *since > limit;
}

weir_status weiri_ofi_watch(weiri_ofi_queue *queue)
{
    static const weiri_ofi_op what;
    if (!queue->established || queue->busy_ops != 0) {
        return WEIR_OK;
    }
    if (!queue->blocked) {
        if (queue->acked == queue->sent || !has_passed(&queue->quiet_ns, PROBE_NS)) {
            return WEIR_OK;
        }
        ssize_t error = weiri_ofi_write_out(queue, &what, queue->memory->host_pointer, fi_mr_desc(queue->mr), 0,
                                            queue->peer_address, queue->peer_key);
        if (error != -FI_EAGAIN) {
            return weiri_ofi_check(queue, error);
        }
    }
    return !has_passed(&queue->no_room_ns, LOST_NS)
               ? WEIR_OK
               : weiri_ofi_fail_queue(queue,
                                      weiri_fail(WEIR_ERR_REMOTE, "ofi: queue: the connection to the peer is lost"));
}

/* ---- posts ----------------------------------------------------------------------------------------------- */

/* Fills the slot of the next post and issues it, unless another thread holds the mutex. */
static weir_status publish(weiri_ofi_queue *queue, const weiri_ofi_post *post)
{
    weir_status status = weiri_ofi_failed(queue);
    const uint64_t completed = __atomic_load_n(&queue->base.completed, __ATOMIC_ACQUIRE);
    if (status != WEIR_OK || queue->base.posted - completed >= WEIRI_OFI_DEPTH) {
        return status != WEIR_OK ? status : WEIR_ERR_BUSY;
    }
    queue->ring[(queue->base.posted + 1) % WEIRI_OFI_DEPTH] = *post;
    __atomic_store_n(&queue->base.posted, queue->base.posted + 1, __ATOMIC_RELEASE);
    if (pthread_mutex_trylock(&queue->mutex) == 0) {
        status = weiri_ofi_failed(queue);
        if (status == WEIR_OK && queue->busy_ops < BUSY_OPS) {
            status = weiri_ofi_issue(queue);
        }
        pthread_mutex_unlock(&queue->mutex);
    }
    return status;
}

static weiri_ofi_place place_of(const weiri_ofi_remote *remote, uint64_t offset)
{
    return (weiri_ofi_place){ .id = remote->id, .offset = offset, .slot = remote->slot };
}

static weiri_ofi_place own_place(const weiri_ofi_region *region, uint64_t offset)
{
    return (weiri_ofi_place){ .id = region->id, .offset = offset, .slot = region->slot };
}

weir_status weiri_ofi_put(weiri_queue *base, weiri_remote *dst, uint64_t dst_offset, const weiri_region *src,
                          uint64_t src_offset, uint64_t bytes)
{
    const weiri_ofi_remote *remote = (const weiri_ofi_remote *)dst;
    const weiri_ofi_region *region = (const weiri_ofi_region *)src;
    weiri_ofi_post post = { .more = bytes != 0, .staged = region->staged, .left = bytes };
    if (region->staged) {
        post.source = own_place(region, src_offset);
        post.uncut = bytes;
    } else {
        post.local = (uint8_t *)src->block->host_pointer + src_offset;
        post.desc = fi_mr_desc(region->mr);
    }
    if (remote->staged) {
        post.message.kind = WEIRI_OFI_LAND;
        post.message.place = place_of(remote, dst_offset);
    } else {
        post.address = remote->address + dst_offset;
        post.key = remote->key;
    }
    return publish((weiri_ofi_queue *)base, &post);
}

weir_status weiri_ofi_get(weiri_queue *base, const weiri_region *dst, uint64_t dst_offset, weiri_remote *src,
                          uint64_t src_offset, uint64_t bytes)
{
    const weiri_ofi_region *region = (const weiri_ofi_region *)dst;
    weiri_ofi_post post = { .more = true, .staged = region->staged && bytes != 0 };
    post.message.kind = WEIRI_OFI_GET;
    post.message.place = place_of((const weiri_ofi_remote *)src, src_offset);
    if (post.staged) {
        post.source = own_place(region, dst_offset);
        post.left = bytes;
        post.uncut = bytes;
    } else {
        post.message.value = bytes;
        post.message.key = region->mr_key;
        post.message.address = weiri_ofi_base((weiri_ofi_domain *)base->domain, dst->block->host_pointer) + dst_offset;
    }
    return publish((weiri_ofi_queue *)base, &post);
}

weir_status weiri_ofi_value(weiri_queue *base, weiri_remote *dst, uint64_t dst_offset, uint64_t value, uint32_t bytes)
{
    weiri_ofi_post post = { .more = true };
    post.message.kind = WEIRI_OFI_VALUE;
    post.message.bytes = (uint16_t)bytes;
    post.message.place = place_of((const weiri_ofi_remote *)dst, dst_offset);
    post.message.value = value;
    return publish((weiri_ofi_queue *)base, &post);
}

weir_status weiri_ofi_add(weiri_queue *base, weiri_remote *dst, uint64_t dst_offset, uint64_t value)
{
    const weiri_ofi_remote *remote = (const weiri_ofi_remote *)dst;
    if (remote->staged || remote->odd) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "ofi: add: the peer's memory %s",
                          remote->staged
                              ? "belongs to a GPU, and its CPU cannot add there; allocate it as WEIR_MEMORY_HOST"
                              : "was registered at an address that is not a multiple of 8");
    }
    weiri_ofi_post post = { .more = true };
    post.message.kind = WEIRI_OFI_ADD;
    post.message.place = place_of(remote, dst_offset);
    post.message.value = value;
    return publish((weiri_ofi_queue *)base, &post);
}
