/* commit.c - piece lists in the memory of devices, and the handles of layouts for kernels.
 *
 * An allocation takes at least 2 MiB on a GPU, and most lists are small. Lists therefore share chunks of 2 MiB and
 * more; a list gets the first gap that is large enough. A chunk is freed with its last list.
 *
 * The copies of a list are a linked list that only grows until the piece list is freed. weiri_layout_handle reads it
 * without a lock. */
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "src/device/device.h"
#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/layout/layout.h"

#define CHUNK_BYTES ((uint64_t)2 << 20)
#define ALIGNMENT ((uint64_t)256)
#define TILE_SHIFT 4u /* 16 bytes: what a thread moves at once */

typedef struct chunk {
    struct chunk *next;
    weir_device *device; /* a reference */
    weiri_block *block;
    weiri_layout_copy *first; /* by offset */
} chunk;

/* A list in the memory of a device: pieces, nests, the index of each piece's nest, and tiles. */
struct weiri_layout_copy {
    weiri_layout_copy *next; /* of the same list */
    chunk *chunk;
    weiri_layout_copy *behind; /* in the chunk */
    uint64_t offset;           /* in the chunk */
    uint64_t bytes;
    uint64_t tiles; /* in the chunk */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards the chunks, and adding copies */
static chunk *chunks;

/* Two handles of one device of the machine count as the same device. */
static bool same_device(const weir_device *a, const weir_device *b)
{
    return a == b || (strcmp(a->info.kind, b->info.kind) == 0 && memcmp(a->info.uuid, b->info.uuid, 16) == 0);
}

static const weiri_layout_copy *find_copy(const weiri_layout_list *list, const weir_device *device)
{
    const weiri_layout_copy *copy = __atomic_load_n(&list->copies, __ATOMIC_ACQUIRE);
    while (copy != NULL && !same_device(copy->chunk->device, device)) {
        copy = copy->next;
    }
    return copy;
}

/* ---- chunks ---------------------------------------------------------------------------------------------- */

/* The link behind which the copy has room in the chunk; sets its offset. NULL: there is no room. */
static weiri_layout_copy **find_gap(chunk *in, weiri_layout_copy *copy)
{
    weiri_layout_copy **link = &in->first;
    copy->offset = 0;
    while (*link != NULL && (*link)->offset - copy->offset < copy->bytes) {
        copy->offset = (*link)->offset + (*link)->bytes;
        link = &(*link)->behind;
    }
    return *link != NULL || in->block->size - copy->offset >= copy->bytes ? link : NULL;
}

static weir_status add_chunk(weir_device *device, uint64_t bytes)
{
    chunk *added = (chunk *)weiri_alloc(1, sizeof *added);
    if (added == NULL) {
        return weiri_fail_nomem("layout: memory of a device");
    }
    const weir_status status = weiri_device_allocate(
        device, WEIR_MEMORY_DEVICE, (bytes + CHUNK_BYTES - 1) / CHUNK_BYTES * CHUNK_BYTES, &added->block);
    if (status != WEIR_OK) {
        weiri_free(added);
        return status;
    }
    weiri_device_get(device);
    added->device = device;
    added->next = chunks;
    chunks = added;
    return WEIR_OK;
}

/* Frees chunks without copies. */
static void free_empty_chunks(void)
{
    chunk **link = &chunks;
    while (*link != NULL) {
        chunk *at = *link;
        if (at->first != NULL) {
            link = &at->next;
            continue;
        }
        *link = at->next;
        weiri_block_release(at->block);
        weiri_device_put(at->device);
        weiri_free(at);
    }
}

/* Gives the copy a place on the device. */
static weir_status place_copy(weir_device *device, weiri_layout_copy *copy)
{
    weiri_layout_copy **link = NULL;
    for (chunk *at = chunks; at != NULL && link == NULL; at = at->next) {
        link = same_device(at->device, device) ? find_gap(at, copy) : NULL;
        copy->chunk = at;
    }
    if (link == NULL) {
        const weir_status status = add_chunk(device, copy->bytes);
        if (status != WEIR_OK) {
            return status;
        }
        copy->chunk = chunks;
        link = find_gap(chunks, copy);
    }
    copy->behind = *link;
    *link = copy;
    return WEIR_OK;
}

static void remove_copy(weiri_layout_copy *copy)
{
    weiri_layout_copy **link = &copy->chunk->first;
    while (*link != copy) {
        link = &(*link)->behind;
    }
    *link = copy->behind;
    weiri_free(copy);
    free_empty_chunks();
}

/* ---- copies ---------------------------------------------------------------------------------------------- */

static uint64_t piece_bytes(const weiri_layout_list *list)
{
    return ((uint64_t)list->count + 1) * sizeof *list->pieces;
}

static uint64_t nest_bytes(const weiri_layout_list *list) { return (uint64_t)list->nest_count * sizeof *list->nests; }

static uint64_t index_bytes(const weiri_layout_list *list)
{
    return list->nest_of != NULL ? (uint64_t)list->count * sizeof *list->nest_of : 0;
}

/* A kernel finds the piece of a byte through its tile: 16 bytes, or more for lists of long pieces, so that there are at
 * most four tiles for each piece. */
static uint32_t tile_shift(const weiri_layout_list *list)
{
    uint32_t shift = TILE_SHIFT;
    while (list->size >> shift > 4 * (uint64_t)list->count) {
        shift++;
    }
    return shift;
}

static uint64_t tile_count(const weiri_layout_list *list) { return ((list->size - 1) >> tile_shift(list)) + 2; }

static weir_status write_tiles(weir_device *device, const weiri_layout_list *list, char *to)
{
    const uint64_t count = tile_count(list);
    const uint32_t shift = tile_shift(list);
    uint32_t piece = 0;
    uint32_t *tiles = (uint32_t *)weiri_alloc(count, sizeof *tiles);
    if (tiles == NULL) {
        return weiri_fail_nomem("layout: tiles of a piece list");
    }
    for (uint64_t i = 0; i + 1 < count; i++) {
        while (list->pieces[piece + 1].prefix <= i << shift) {
            piece++;
        }
        tiles[i] = piece;
    }
    tiles[count - 1] = list->count - 1;
    const weir_status status = weir_device_copy(device, to, tiles, count * sizeof *tiles);
    weiri_free(tiles);
    return status;
}

static weir_status write_copy(weir_device *device, const weiri_layout_list *list, const weiri_layout_copy *copy)
{
    char *at = (char *)copy->chunk->block->pointer + copy->offset;
    weir_status status = weir_device_copy(device, at, list->pieces, piece_bytes(list));
    if (status == WEIR_OK && list->nest_of != NULL) {
        at += piece_bytes(list);
        status = weir_device_copy(device, at, list->nests, nest_bytes(list));
    }
    if (status == WEIR_OK && list->nest_of != NULL) {
        at += nest_bytes(list);
        status = weir_device_copy(device, at, list->nest_of, index_bytes(list));
    }
    return status == WEIR_OK ? write_tiles(device, list, (char *)copy->chunk->block->pointer + copy->tiles) : status;
}

/* With the mutex. */
static weir_status add_copy(weiri_layout_list *list, weir_device *device)
{
    if (find_copy(list, device) != NULL) {
        return WEIR_OK;
    }
    weiri_layout_copy *copy = (weiri_layout_copy *)weiri_alloc(1, sizeof *copy);
    if (copy == NULL) {
        return weiri_fail_nomem("layout: memory of a device");
    }
    const uint64_t tiles_at = piece_bytes(list) + nest_bytes(list) + index_bytes(list);
    copy->bytes = (tiles_at + tile_count(list) * sizeof(uint32_t) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    weir_status status = place_copy(device, copy);
    if (status != WEIR_OK) {
        weiri_free(copy);
        return status;
    }
    copy->tiles = copy->offset + tiles_at;
    status = write_copy(device, list, copy);
    if (status != WEIR_OK) {
        remove_copy(copy);
        return status;
    }
    copy->next = list->copies;
    __atomic_store_n(&list->copies, copy, __ATOMIC_RELEASE);
    return WEIR_OK;
}

weir_status weir_layout_commit(weir_layout *layout, weir_device *device)
{
    static const char call[] = "weir_layout_commit";
    if (layout == NULL || device == NULL) {
        return weiri_fail_null(call, layout == NULL ? "layout" : "device");
    }
    if (layout->form.list == NULL) {
        return WEIR_OK;
    }
    (void)pthread_mutex_lock(&mutex);
    const weir_status status = add_copy(layout->form.list, device);
    (void)pthread_mutex_unlock(&mutex);
    return weiri_fail_in(call, status);
}

void weiri_layout_copies_release(weiri_layout_list *list)
{
    if (list->copies == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&mutex);
    while (list->copies != NULL) {
        weiri_layout_copy *copy = list->copies;
        list->copies = copy->next;
        remove_copy(copy);
    }
    (void)pthread_mutex_unlock(&mutex);
}

/* ---- handles --------------------------------------------------------------------------------------------- */

weir_status weiri_layout_handle(const char *call, const weir_layout *layout, const weir_device *device, uint64_t count,
                                weir_dev_layout *out)
{
    const weiri_layout_list *list = layout->form.list;
    const int64_t extent = layout->bounds.ub - layout->bounds.lb;
    weiri_layout_bounds bounds = layout->true_bounds;
    uint64_t size;
    memset(out, 0, sizeof *out);
    if (count == 0 || layout->form.nest.size == 0) {
        return WEIR_OK;
    }
    if (__builtin_mul_overflow(layout->form.nest.size, count, &size) || size > (uint64_t)WEIRI_LAYOUT_MOST ||
        !weiri_layout_spread(&bounds, count, extent)) {
        return weiri_fail(WEIR_ERR_RANGE, "%s: %" PRIu64 " items of the layout reach beyond 2^62 bytes", call, count);
    }
    const weiri_layout_copy *copy = list != NULL ? find_copy(list, device) : NULL;
    if (list != NULL && copy == NULL) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: the layout has a piece list that is not committed to %s", call,
                          device->info.label);
    }
    out->nest = layout->form.nest;
    (void)weiri_layout_nest_repeat(&out->nest, list != NULL, count, extent, WEIR_LAYOUT_DIMS + 1);
    out->first = bounds.lb;
    out->last = bounds.ub;
    if (copy != NULL) {
        const char *at = (const char *)copy->chunk->block->pointer + copy->offset;
        out->pieces = (const weir_layout_piece *)(const void *)at;
        out->piece_count = list->count;
        out->nest_count = list->nest_count;
        out->tiles = (const uint32_t *)(const void *)((const char *)copy->chunk->block->pointer + copy->tiles);
        out->tile_shift = tile_shift(list);
        if (list->nest_of != NULL) {
            out->nests = (const weir_layout_nest *)(const void *)(at + piece_bytes(list));
            out->nest_of = (const uint32_t *)(const void *)(at + piece_bytes(list) + nest_bytes(list));
        }
    }
    weir_layout_prepare(out);
    return WEIR_OK;
}

weir_status weir_layout_device(const weir_layout *layout, const weir_device *device, uint64_t count,
                               weir_dev_layout *out)
{
    static const char call[] = "weir_layout_device";
    weir_dev_layout made;
    if (layout == NULL || device == NULL || out == NULL) {
        return weiri_fail_null(call, layout == NULL ? "layout" : device == NULL ? "device" : "out");
    }
    const weir_status status = weiri_layout_handle(call, layout, device, count, &made);
    if (status == WEIR_OK) {
        *out = made;
    }
    return status;
}
