/* slab.h - shared memory of a communicator, divided into small cells.
 *
 * A communicator makes two slabs with itself: one in device memory (tokens that kernels wait on, counters, packet
 * epochs, grid barriers) and one in host memory that the device can access (tokens of host ends). A control block is at
 * the start of each.
 * Other nouns take cells of them instead of shared memory for themselves. Peers map both slabs when the first
 * connection is made. The communicator's mutex guards the states of the cells. */
#ifndef WEIRI_COMM_SLAB_H
#define WEIRI_COMM_SLAB_H

#include "weir/comm.h"
#include "weir/device/types.h"
#include "weir/memory.h"

#define WEIRI_CELLS 16352u /* of a slab: 2 MiB with its control block */

typedef struct weiri_slab {
    weir_memory *memory;
    uint64_t first;  /* offset of cell 0 */
    uint32_t lowest; /* no cell before this one is free */
    uint8_t *states; /* of each cell: never used and zero, in use, or free again */
} weiri_slab;

/* The slabs of a communicator, and their control blocks. */
typedef struct weiri_slabs {
    weiri_slab device;
    weiri_slab host;
    weir_dev_control *control;        /* in the host slab: for the CPU */
    weir_dev_control *control_device; /* in the device slab: for kernels */
    bool kept;                        /* graphs may still name them: they end with the device */
} weiri_slabs;

/* Allocates both, and begins the control blocks. After a failure they are closed like open ones. */
weir_status weiri_slabs_open(weir_comm *comm);
/* Their memory is to stay until the device is closed. Any thread. */
void weiri_slabs_keep(weir_comm *comm);
void weiri_slabs_close(weir_comm *comm);

/* Takes `count` zeroed cells in a row; *offset is that of the first in the slab's memory. WEIR_ERR_LIMIT,
 * WEIR_ERR_DEVICE. */
weir_status weiri_cells_allocate(weir_comm *comm, weiri_slab *slab, uint32_t count, uint64_t *offset);
void weiri_cells_free(weir_comm *comm, weiri_slab *slab, uint32_t count, uint64_t offset);
/* Address of a byte of a slab for kernels, and for the CPU. */
void *weiri_slab_device(const weir_memory *slab, uint64_t offset);
void *weiri_slab_host(const weir_memory *slab, uint64_t offset);

#endif
