/* slab.c - hands out the cells of a communicator's slabs; see slab.h.
 *
 * A call takes the lowest run of cells that are not in use. Cells of a new slab are zero. Cells that were used before
 * are filled with zeros by the device before they are given out again. */
#include "src/host/comm/slab.h"

#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/comm/comm.h"

#define CONTROL_BYTES 4096u /* at the start of each slab, before its cells */
#define RELAY_NS 4000000u   /* the longest delay until the looks of a GPU see an error */
WEIR_STATIC_ASSERT(sizeof(weir_dev_control) <= CONTROL_BYTES, "the control block fits");

enum { CELL_FRESH = 0, CELL_USED = 1, CELL_FREE = 2 };

static weir_status open_slab(weir_comm *comm, weiri_slab *slab, weir_memory_kind kind)
{
    slab->first = CONTROL_BYTES;
    slab->states = (uint8_t *)weiri_alloc(WEIRI_CELLS, 1);
    if (slab->states == NULL) {
        return weiri_fail_nomem("weir_comm_create: slab");
    }
    return weiri_memory_allocate_slab(comm, kind, CONTROL_BYTES + (uint64_t)WEIRI_CELLS * WEIR_CELL_BYTES,
                                      &slab->memory);
}

/* Makes both control blocks ready. */
static weir_status begin_control(weir_comm *comm)
{
    const weir_memory *device = comm->slabs.device.memory, *host = comm->slabs.host.memory;
    const uint64_t timeout_ns = (uint64_t)comm->kernel_timeout_ms * 1000000u;
    const uint32_t relay_ns = weir_memory_host_pointer(device) != NULL ? 0 : RELAY_NS;
    weir_dev_control relay = { 0 };
    comm->slabs.control = (weir_dev_control *)weiri_slab_host(host, 0);
    comm->slabs.control_device = (weir_dev_control *)weiri_slab_device(device, 0);
    weir_dev_control_begin(comm->slabs.control, timeout_ns);
    weir_dev_control_begin_relay(&relay, timeout_ns, (weir_dev_control *)weiri_slab_device(host, 0), relay_ns);
    return weir_device_copy(comm->device, comm->slabs.control_device, &relay, sizeof relay);
}

weir_status weiri_slabs_open(weir_comm *comm)
{
    weir_status status = open_slab(comm, &comm->slabs.device, WEIR_MEMORY_DEVICE);
    if (status == WEIR_OK) {
        status = open_slab(comm, &comm->slabs.host, WEIR_MEMORY_HOST);
    }
    return status != WEIR_OK ? status : begin_control(comm);
}

void weiri_slabs_keep(weir_comm *comm) { __atomic_store_n(&comm->slabs.kept, true, __ATOMIC_RELAXED); }

static void close_slab(weiri_slab *slab, bool keeps)
{
    if (keeps) {
        weiri_block_keep(slab->memory->block);
        slab->memory->block = NULL;
    }
    weir_memory_destroy(slab->memory);
    weiri_free(slab->states);
}

void weiri_slabs_close(weir_comm *comm)
{
    close_slab(&comm->slabs.device, comm->slabs.kept);
    close_slab(&comm->slabs.host, comm->slabs.kept);
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
