/* port_kernels.h - kernels that move data over port channels; for port_channel_test.cc. */
#ifndef WEIRT_PORT_KERNELS_H
#define WEIRT_PORT_KERNELS_H

#include "test/harness/pattern.h"
#include "weir/device/kernel.h"
#include "weir/device/port_channel.h"

#if defined(__cplusplus)
extern "C" {
#endif

#define PORT_THREADS 10240
#define PORT_GUARD 16  /* bytes around received data that must not change */
#define PORT_SLACK 256 /* room that a half needs beyond the largest size */

enum {
    PORT_PUT_SIGNAL,
    PORT_PUT_THEN_SIGNAL,
    PORT_PUT_SIGNAL_FLUSH,
    PORT_GET,
    PORT_VALUES, /* 1 to 8 bytes each */
    PORT_PIECES, /* many puts of 16 bytes, and one signal */
    PORT_OPS
};
enum { PORT_THREAD, PORT_WARP, PORT_BLOCK, PORT_GRID, PORT_GROUPS };

typedef struct port_report {
    uint64_t iterations;
    uint64_t wrong; /* 1: some bytes are wrong */
    uint64_t wrong_bytes;
    uint64_t wrong_position;
    uint64_t value;
    int32_t status[PORT_THREADS];
} port_report;

/* Both ranks send `first`, `first + step`, ... up to `last` bytes to each other, `rounds` times each. */
typedef struct port_transfer_args {
    weir_dev_port_channel channel; /* local to remote memory; each has two halves: data to send and received data */
    weir_dev_grid_barrier barrier;
    port_report *report;
    char *local;
    uint64_t half;
    uint64_t first;
    uint64_t last;
    uint64_t step;
    uint32_t rounds;
    uint32_t op;
    uint32_t group;
    uint32_t misaligned; /* 1: offsets of both ends vary from round to round */
    uint32_t rank;
    uint32_t peer;
    uint32_t seed;
} port_transfer_args;

/* One thread makes one request, and waits for its ticket. */
typedef struct port_request_args {
    weir_dev_port_channel channel;
    port_report *report;
    weir_request request;
} port_request_args;

/* Each thread puts its words one by one, `pushes` times; then the first thread signals. */
typedef struct port_flood_args {
    weir_dev_port_channel channel;
    weir_dev_grid_barrier barrier;
    port_report *report;
    uint64_t pushes;
    uint32_t signals; /* 1: each thread signals after each push; no signal at the end */
} port_flood_args;

/* Waits for `waits` signals. */
typedef struct port_wait_args {
    weir_dev_port_channel channel;
    port_report *report;
    uint64_t waits;
} port_wait_args;

/* Two ranks send a word back and forth, each to its own place, and poll for the other's. Before anything is sent, the
 * rank that does not begin polls once without success and reports this in `value`. */
typedef struct port_poll_args {
    weir_dev_port_channel channel;
    port_report *report; /* status: of the loop, the first poll, a last poll; iterations: polls with WEIR_OK */
    uint64_t *words;     /* of the local memory: `rounds` words to send, and in its second half `rounds` received
                          * words */
    uint64_t half;
    uint32_t first;
    uint32_t rounds;
    uint32_t rank;
    uint32_t peer;
} port_poll_args;

WEIR_FN uint64_t port_poll_word(uint32_t rank, uint32_t round) { return (round + 1) * 0x9e3779b97f4a7c15u + rank; }

/* All blocks put together, and the first block signals; the others start only when the report's value is not 0. */
typedef struct port_blocks_args {
    weir_dev_port_channel channel;
    port_report *report;
    uint64_t remote_offset;
    uint64_t bytes;
} port_blocks_args;

/* A plain signal, or begin, on a semaphore whose peer is not mapped. */
typedef struct port_plain_args {
    weir_dev_semaphore semaphore;
    uint32_t counted;
} port_plain_args;

const weir_kernel *port_transfer_kernel(void);
const weir_kernel *port_request_kernel(void);
const weir_kernel *port_flood_kernel(void);
const weir_kernel *port_wait_kernel(void);
const weir_kernel *port_poll_kernel(void);
const weir_kernel *port_blocks_kernel(void);
const weir_kernel *port_plain_kernel(void);

#if defined(__cplusplus)
}
#endif

#endif
