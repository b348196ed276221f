/* grid_barrier.c - grid barriers: a cell of the device slab, and the handle that kernels get. */
#include "weir/grid_barrier.h"

#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/comm/comm.h"

struct weir_grid_barrier {
    weir_comm *comm;
    uint64_t cell;
    weir_dev_grid_barrier device;
};

weir_status weir_grid_barrier_create(weir_comm *comm, weir_grid_barrier **out)
{
    weir_status status = weiri_comm_check("comm", comm, "weir_grid_barrier_create");
    if (status != WEIR_OK) {
        return status;
    }
    if (out == NULL) {
        return weiri_fail_null("weir_grid_barrier_create", "out");
    }
    weir_grid_barrier *barrier = (weir_grid_barrier *)weiri_alloc(1, sizeof *barrier);
    if (barrier == NULL) {
        return weiri_fail_nomem("weir_grid_barrier_create");
    }
    status = weiri_cells_allocate(comm, &comm->slabs.device, 1, &barrier->cell);
    if (status != WEIR_OK) {
        weiri_free(barrier);
        return status;
    }
    barrier->comm = comm;
    barrier->device.control = comm->slabs.control_device;
    barrier->device.word = (uint64_t *)weiri_slab_device(comm->slabs.device.memory, barrier->cell);
    weiri_comm_get(comm);
    *out = barrier;
    return WEIR_OK;
}

void weir_grid_barrier_destroy(weir_grid_barrier *barrier)
{
    if (barrier == NULL || weiri_comm_forked(barrier->comm)) {
        return;
    }
    weiri_cells_free(barrier->comm, &barrier->comm->slabs.device, 1, barrier->cell);
    weiri_comm_put(barrier->comm);
    weiri_free(barrier);
}

void weir_grid_barrier_device(const weir_grid_barrier *barrier, weir_dev_grid_barrier *out)
{
    if (out == NULL) {
        return;
    }
    memset(out, 0, sizeof *out);
    if (barrier != NULL) {
        *out = barrier->device;
    }
}
