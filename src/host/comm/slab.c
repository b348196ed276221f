/* slab.c - hands out the cells of a communicator's slabs; see slab.h.
 *
 * A call takes the lowest run of cells that are not in use. Cells of a new slab are zero. Cells that were used before
 * are filled with zeros by the device before they are given out again. */
#include "src/host/comm/slab.h"

#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/comm/memory.h"

enum { CELL_FRESH = 0, CELL_USED = 1, CELL_FREE = 2 };

weir_status weiri_slab_open(weir_comm *comm, weiri_slab *slab, weir_memory_kind kind, uint64_t first)
{
    slab->first = first;
    slab->states = (uint8_t *)weiri_alloc(WEIRI_CELLS, 1);
    if (slab->states == NULL) {
        return weiri_fail_nomem("weir_comm_create: slab");
    }
    return weiri_memory_allocate_slab(comm, kind, first + (uint64_t)WEIRI_CELLS * WEIR_CELL_BYTES, &slab->memory);
}

void weiri_slab_close(weiri_slab *slab, bool keeps)
{
    if (keeps) {
        weiri_block_keep(slab->memory->block);
        slab->memory->block = NULL;
    }
    weir_memory_destroy(slab->memory);
    weiri_free(slab->states);
}

/* The first of `count` cells in a row that are not in use; WEIRI_CELLS when there are none. */
static uint32_t find_cells(const weiri_slab *slab, uint32_t count)
{
    uint32_t run = 0;
    for (uint32_t cell = slab->lowest; cell < WEIRI_CELLS; cell++) {
        run = slab->states[cell] == CELL_USED ? 0 : run + 1;
        if (run == count) {
            return cell + 1 - count;
        }
    }
    return WEIRI_CELLS;
}

weir_status weiri_cells_allocate(weir_comm *comm, weiri_slab *slab, uint32_t count, uint64_t *offset)
{
    bool fresh = true;
    pthread_mutex_lock(&comm->mutex);
    uint32_t first = find_cells(slab, count);
    for (uint32_t cell = first; first < WEIRI_CELLS && cell < first + count; cell++) {
        fresh = fresh && slab->states[cell] == CELL_FRESH;
        slab->states[cell] = CELL_USED;
    }
    if (first == slab->lowest) {
        slab->lowest = first + count;
    }
    pthread_mutex_unlock(&comm->mutex);
    if (first == WEIRI_CELLS) {
        return weiri_fail(WEIR_ERR_LIMIT, "communicator: no room for %u more of %u semaphores, channels and barriers",
                          count, WEIRI_CELLS);
    }
    uint64_t at = slab->first + (uint64_t)first * WEIR_CELL_BYTES;
    if (!fresh) {
        weir_status status =
            weir_device_fill(comm->device, weiri_slab_device(slab->memory, at), 0, (uint64_t)count * WEIR_CELL_BYTES);
        if (status != WEIR_OK) {
            weiri_cells_free(comm, slab, count, at);
            return status;
        }
    }
    *offset = at;
    return WEIR_OK;
}

void weiri_cells_free(weir_comm *comm, weiri_slab *slab, uint32_t count, uint64_t offset)
{
    uint32_t first = (uint32_t)((offset - slab->first) / WEIR_CELL_BYTES);
    pthread_mutex_lock(&comm->mutex);
    memset(slab->states + first, CELL_FREE, count);
    slab->lowest = first < slab->lowest ? first : slab->lowest;
    pthread_mutex_unlock(&comm->mutex);
}

void *weiri_slab_device(const weir_memory *slab, uint64_t offset) { return (char *)weir_memory_pointer(slab) + offset; }

void *weiri_slab_host(const weir_memory *slab, uint64_t offset)
{
    return (char *)weir_memory_host_pointer(slab) + offset;
}
