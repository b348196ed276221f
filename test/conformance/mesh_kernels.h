/* mesh_kernels.h - a kernel with a channel to each peer: arrays of handles in device memory; for mesh_test.cc. */
#ifndef WEIRT_MESH_KERNELS_H
#define WEIRT_MESH_KERNELS_H

#include "test/harness/pattern.h"
#include "weir/device/kernel.h"
#include "weir/device/port_channel.h"

#if defined(__cplusplus)
extern "C" {
#endif

#define MESH_RANKS 8
#define MESH_PEERS (MESH_RANKS - 1)
#define MESH_THREADS 1024

/* Ways to send each peer its bytes. Lines come last, because a packet buffer that held lines cannot hold other
 * packets. */
enum {
    MESH_PUT,        /* the whole grid puts to the peers in turn; then threads signal and wait for all */
    MESH_PUT_BLOCKS, /* each block has its own peers */
    MESH_GET,
    MESH_LL16,
    MESH_LINES,
    MESH_MEMORY_OPS,
    MESH_PORT_THREADS = MESH_MEMORY_OPS, /* a thread for each peer: put_signal, wait, flush */
    MESH_PORT_BLOCKS,                    /* a block for each peer: put by all its threads, signal, wait, flush */
    MESH_PORT_GET,
    MESH_OPS
};

typedef struct mesh_report {
    uint64_t rounds; /* successful rounds */
    uint64_t wrong;  /* wrong bytes; the last of them: */
    uint64_t wrong_peer;
    uint64_t wrong_position;
    int32_t status[MESH_THREADS];
} mesh_report;

/* Element i of each array is for peer i, or for peer i + 1 if i is this rank or above. */
typedef struct mesh_args {
    const weir_dev_memory_channel *data;    /* this rank's memory and the peer's */
    const weir_dev_memory_channel *packets; /* this rank's memory and the peer's packet buffer */
    const weir_dev_semaphore *semaphores;   /* separate from the channels' semaphores */
    const weir_dev_port_channel *ports;     /* of the same memories as `data` */
    weir_dev_grid_barrier barrier;
    mesh_report *report;
    char *local;   /* a slot for the data from each rank, then one for the data to each rank */
    uint64_t slot; /* bytes of a slot; those behind `bytes` must not change */
    uint64_t packet_slot;
    uint64_t bytes;
    uint32_t rank;
    uint32_t ranks;
    uint32_t rounds;
    uint32_t op;
    uint32_t seed; /* of the data; another one for each launch */
} mesh_args;

/* The sender in the pattern of data from rank `from` to rank `to`. */
WEIR_FN uint32_t mesh_sender(uint32_t from, uint32_t to) { return from * MESH_RANKS + to; }

#define MESH_GUARD 0x5a

const weir_kernel *mesh_kernel(void);

#if defined(__cplusplus)
}
#endif

#endif
