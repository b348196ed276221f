/* queue.c - transfers inside a host, between blocks that are mapped here.
 *
 * If the CPU copies the device's memory, the thread that posts and polls copies, at most SLICE bytes in a call. So a
 * large transfer does not hold up the thread's other queues. A post that fits into one slice and has no other before it
 * is complete when it returns.
 *
 * If the device has copy engines, each queue has a stream. A post is a copy on the stream. A value is a store of the
 * device or, if the driver refuses such stores, a copy from a ring of pinned words. Completion is one more store: the
 * number of the last post goes into a pinned word, which poll reads without a call of the driver. One such store covers
 * all posts since the last one. Poll puts it on the stream, where it delays no signal. */
#include "src/transport/ipc/queue.h"

#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/transport/store.h"

#define SLICE ((uint64_t)1 << 20)
#define POSTS 64u         /* of a queue without a stream */
#define RING 256u         /* posts of a queue with a stream, each with a pinned word */
#define LOOK_POLLS 16384u /* polls without a completion between two queries of the stream */

typedef struct copy_remote {
    weiri_remote base;
    const weiri_block *block;
} copy_remote;

/* A transfer with `left` bytes to copy, a value, or an add. */
typedef struct copy_post {
    char *dst;
    const char *src;
    uint64_t left;
    uint64_t value;
    uint32_t value_bytes; /* 0: not a value */
    bool add;
} copy_post;

typedef struct copy_queue {
    weiri_queue base;
    copy_post posts[POSTS]; /* by number; posts above `completed` are not done */
    void *stream;           /* NULL: the CPU copies */
    weiri_block *words;     /* pinned; see below */
    uint64_t marked;        /* last post with a completion store behind it */
    uint32_t idle_polls;
    bool values_refused; /* the driver refuses stores of values to their destinations */
    bool marks_refused;  /* the driver refuses stores to pinned memory */
} copy_queue;

/* Pinned words: the number of the last complete post, the source of copies to it, and the ring. */
enum { WORD_DONE = 0, WORD_MARK = 1, WORD_RING = 2 };

/* ---- domains, regions, remotes -------------------------------------------------------------------------- */

static weir_status domain_open(weir_device *device, weiri_domain **out)
{
    weiri_domain *domain = (weiri_domain *)weiri_alloc(1, sizeof *domain);
    if (domain == NULL) {
        return weiri_fail_nomem("transport ipc");
    }
    domain->transport = &weiri_ipc_ops;
    domain->device = device;
    *out = domain;
    return WEIR_OK;
}

static void domain_close(weiri_domain *domain) { weiri_free(domain); }

static weir_status region_open(weiri_domain *domain, const weiri_block *block, weiri_region **out)
{
    weiri_region *region = (weiri_region *)weiri_alloc(1, sizeof *region);
    if (region == NULL) {
        return weiri_fail_nomem("transport ipc: region");
    }
    region->domain = domain;
    region->block = block;
    region->key.size = block->size;
    *out = region;
    return WEIR_OK;
}

static void region_close(weiri_region *region) { weiri_free(region); }

static weir_status remote_open(weiri_domain *domain, const weiri_key *key, const weiri_block *mapped,
                               weiri_remote **out)
{
    (void)key;
    if (mapped == NULL) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "transport ipc: the peer's memory is not mapped here");
    }
    copy_remote *remote = (copy_remote *)weiri_alloc(1, sizeof *remote);
    if (remote == NULL) {
        return weiri_fail_nomem("transport ipc: remote");
    }
    remote->base.domain = domain;
    remote->base.size = mapped->size;
    remote->block = mapped;
    *out = &remote->base;
    return WEIR_OK;
}

static void remote_close(weiri_remote *remote) { weiri_free(remote); }

/* ---- queues --------------------------------------------------------------------------------------------- */

static void queue_close(weiri_queue *base)
{
    copy_queue *queue = (copy_queue *)base;
    if (queue != NULL) {
        weir_stream_destroy(queue->base.domain->device, queue->stream); /* waits for the copies that are under way */
        weiri_block_release(queue->words);
        weiri_free(queue);
    }
}

static weir_status open_stream(copy_queue *queue)
{
    weir_device *device = queue->base.domain->device;
    weir_status status =
        weiri_device_allocate(device, WEIR_MEMORY_HOST, (WORD_RING + RING) * sizeof(uint64_t), &queue->words);
    return status != WEIR_OK ? status : weir_stream_create(device, &queue->stream);
}

static weir_status queue_open(weiri_domain *domain, weiri_queue **out)
{
    copy_queue *queue = (copy_queue *)weiri_alloc(1, sizeof *queue);
    if (queue == NULL) {
        return weiri_fail_nomem("transport ipc: queue");
    }
    queue->base.domain = domain;
    weir_status status = domain->device->info.stream_copies ? open_stream(queue) : WEIR_OK;
    if (status != WEIR_OK) {
        queue_close(&queue->base);
        return status;
    }
    *out = &queue->base;
    return WEIR_OK;
}

static weir_status queue_connect(weiri_queue *queue, const uint8_t *address, size_t bytes)
{
    (void)queue;
    (void)address;
    return bytes == 0 ? WEIR_OK : weiri_fail(WEIR_ERR_CORRUPT, "transport ipc: unexpected address of a peer's queue");
}

/* ---- copies by the CPU ------------------------------------------------------------------------------------ */

/* Continues a post by up to *most bytes; returns whether it is done. */
static bool carry_on(copy_post *post, uint64_t *most)
{
    const uint64_t now = post->left < *most ? post->left : *most;
    if (post->add) {
        (void)__atomic_fetch_add((uint64_t *)(void *)post->dst, post->value, __ATOMIC_RELEASE);
        return true;
    }
    if (post->value_bytes != 0) {
        weiri_store_value(post->dst, post->value, post->value_bytes);
        return true;
    }
    if (now != 0) {
        memcpy(post->dst, post->src, now);
    }
    post->dst += now;
    post->src += now;
    post->left -= now;
    *most -= now;
    return post->left == 0;
}

/* Continues the queue's posts by one slice. */
static weir_status copy_slice(copy_queue *queue)
{
    weiri_queue *base = &queue->base;
    uint64_t most = SLICE;
    if (base->completed == base->posted) {
        return WEIR_PENDING;
    }
    while (base->completed != base->posted && carry_on(&queue->posts[(base->completed + 1) % POSTS], &most)) {
        base->completed++;
    }
    return WEIR_OK;
}

static weir_status post_copy(copy_queue *queue, const copy_post *post)
{
    weiri_queue *base = &queue->base;
    if (base->posted - base->completed == POSTS) {
        return WEIR_ERR_BUSY;
    }
    const bool first = base->posted == base->completed;
    queue->posts[++base->posted % POSTS] = *post;
    if (first && post->left <= SLICE) {
        (void)copy_slice(queue);
    }
    return WEIR_OK;
}

/* ---- copies by engines ------------------------------------------------------------------------------------ */

/* Puts a store of the `bytes` low bytes of `value` on the stream. It may use pinned word `word`, which must be free. */
static weir_status stream_store(copy_queue *queue, char *dst, uint64_t value, uint32_t bytes, uint64_t word,
                                bool *refused)
{
    weir_device *device = queue->base.domain->device;
    if (bytes == 8 && (uintptr_t)dst % 8 == 0 && !*refused) {
        weir_status status = device->ops->store_async(device, queue->stream, dst, value);
        if (status != WEIR_ERR_UNSUPPORTED) {
            return status;
        }
        *refused = true;
    }
    ((uint64_t *)queue->words->host_pointer)[word] = value;
    return device->ops->copy_async(device, queue->stream, dst, (uint64_t *)queue->words->pointer + word, bytes);
}

static bool stream_is_full(const copy_queue *queue) { return queue->base.posted - queue->base.completed == RING; }

static weir_status stream_copy(copy_queue *queue, void *dst, const void *src, uint64_t bytes)
{
    weir_device *device = queue->base.domain->device;
    if (stream_is_full(queue)) {
        return WEIR_ERR_BUSY;
    }
    weir_status status = device->ops->copy_async(device, queue->stream, dst, src, bytes);
    if (status == WEIR_OK) {
        queue->base.posted++;
    }
    return status;
}

static weir_status poll_stream(copy_queue *queue)
{
    weiri_queue *base = &queue->base;
    weir_device *device = base->domain->device;
    if (base->posted == base->completed) {
        return WEIR_PENDING;
    }
    const uint64_t done = __atomic_load_n((const uint64_t *)queue->words->host_pointer, __ATOMIC_ACQUIRE);
    if (queue->marked != base->posted && (!queue->marks_refused || queue->marked == done)) {
        weir_status status =
            stream_store(queue, (char *)queue->words->pointer, base->posted, 8, WORD_MARK, &queue->marks_refused);
        if (status != WEIR_OK) {
            return status;
        }
        queue->marked = base->posted;
    }
    if (done != base->completed) {
        base->completed = done;
        queue->idle_polls = 0;
        return WEIR_OK;
    }
    if (++queue->idle_polls % LOOK_POLLS == 0) {
        /* Nothing completes on a failed stream. */
        weir_status status = device->ops->stream_wait(device, queue->stream, 0);
        return status == WEIR_ERR_TIMEOUT || status == WEIR_OK ? WEIR_PENDING : status;
    }
    return WEIR_PENDING;
}

/* ---- posts ------------------------------------------------------------------------------------------------ */

/* The address of a block for the CPU or the device, whichever copies. */
static char *address(const copy_queue *queue, const weiri_block *block, uint64_t offset)
{
    return (char *)(queue->stream != NULL ? block->pointer : block->host_pointer) + offset;
}

static weir_status transfer(copy_queue *queue, char *dst, const char *src, uint64_t bytes)
{
    const copy_post post = { dst, src, bytes, 0, 0, false };
    return queue->stream != NULL ? stream_copy(queue, dst, src, bytes) : post_copy(queue, &post);
}

static weir_status put(weiri_queue *base, weiri_remote *dst, uint64_t dst_offset, const weiri_region *src,
                       uint64_t src_offset, uint64_t bytes)
{
    copy_queue *queue = (copy_queue *)base;
    return transfer(queue, address(queue, ((copy_remote *)dst)->block, dst_offset),
                    address(queue, src->block, src_offset), bytes);
}

static weir_status get(weiri_queue *base, const weiri_region *dst, uint64_t dst_offset, weiri_remote *src,
                       uint64_t src_offset, uint64_t bytes)
{
    copy_queue *queue = (copy_queue *)base;
    return transfer(queue, address(queue, dst->block, dst_offset),
                    address(queue, ((copy_remote *)src)->block, src_offset), bytes);
}

static weir_status value(weiri_queue *base, weiri_remote *dst, uint64_t dst_offset, uint64_t number, uint32_t bytes)
{
    copy_queue *queue = (copy_queue *)base;
    char *at = address(queue, ((copy_remote *)dst)->block, dst_offset);
    if (queue->stream == NULL) {
        const copy_post post = { at, NULL, 0, number, bytes, false };
        return post_copy(queue, &post);
    }
    if (stream_is_full(queue)) {
        return WEIR_ERR_BUSY;
    }
    weir_status status =
        stream_store(queue, at, number, bytes, WORD_RING + base->posted % RING, &queue->values_refused);
    if (status == WEIR_OK) {
        base->posted++;
    }
    return status;
}

static weir_status add(weiri_queue *base, weiri_remote *dst, uint64_t dst_offset, uint64_t number)
{
    copy_queue *queue = (copy_queue *)base;
    char *at = address(queue, ((copy_remote *)dst)->block, dst_offset);
    if (queue->stream != NULL) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "transport ipc: copy engines cannot add; kernels add to memory of the "
                                                "peer's GPU unless direct_bytes is WEIR_PORT_DIRECT_NEVER");
    }
    if ((uintptr_t)at % 8 != 0) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "transport ipc: add: the memory does not begin at a multiple of 8");
    }
    const copy_post post = { at, NULL, 0, number, 0, true };
    return post_copy(queue, &post);
}

static weir_status poll(weiri_queue *base)
{
    copy_queue *queue = (copy_queue *)base;
    return queue->stream != NULL ? poll_stream(queue) : copy_slice(queue);
}

const weiri_queue_ops weiri_ipc_queue_ops = {
    .domain_open = domain_open,
    .domain_close = domain_close,
    .region_open = region_open,
    .region_close = region_close,
    .remote_open = remote_open,
    .remote_close = remote_close,
    .queue_open = queue_open,
    .queue_connect = queue_connect,
    .queue_close = queue_close,
    .put = put,
    .get = get,
    .value = value,
    .add = add,
    .poll = poll,
    .alone = true,
};
