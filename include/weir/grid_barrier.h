/* weir/grid_barrier.h - a barrier for the blocks of a grid, with the communicator's deadline.
 *
 *     weir_grid_barrier_create(comm, &barrier);
 *     weir_grid_barrier_device(barrier, &args.barrier);
 *     ...                                       coop.barrier = &args->barrier; weir_coop_sync(coop);
 *     weir_grid_barrier_destroy(barrier);
 *
 * One barrier serves one running kernel at a time. Kernels that use it are launched with opts.cooperative.
 *
 * Threads:   one thread at a time per barrier.
 * Blocking:  never.
 * Ownership: keeps a reference on comm. Kernels must not use the handle after destroy.
 * Errors:    WEIR_ERR_INVALID, WEIR_ERR_LIMIT, WEIR_ERR_NOMEM, WEIR_ERR_DEVICE. */
#ifndef WEIR_GRID_BARRIER_H
#define WEIR_GRID_BARRIER_H

#include "weir/comm.h"
#include "weir/device/types.h"

WEIR_BEGIN_DECLS

typedef struct weir_grid_barrier weir_grid_barrier;

WEIR_API WEIR_NODISCARD weir_status weir_grid_barrier_create(weir_comm *comm, weir_grid_barrier **out);
WEIR_API void weir_grid_barrier_destroy(weir_grid_barrier *barrier);
WEIR_API void weir_grid_barrier_device(const weir_grid_barrier *barrier, weir_dev_grid_barrier *out);

WEIR_END_DECLS

#endif
