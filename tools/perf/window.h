/* window.h - the kernels of weir-perf window: each with weir's window, for mapped devices and for port channels, and by
 * hand. */
#ifndef WEIR_PERF_WINDOW_H
#define WEIR_PERF_WINDOW_H

#include "weir/device/kernel.h"
#include "weir/device/window.h"
#include "weir/weir.h"
#include "weir/window.h"

WEIR_BEGIN_DECLS

typedef enum window_work { WINDOW_NO_WORK, WINDOW_NEWTON, WINDOW_COPY } window_work;

#define WINDOW_FLAGS_BYTES 1024u           /* of a rank, for kernels by hand */
#define WINDOW_COPIED ((uint64_t)64 << 10) /* bytes that a rank's copy reads, and writes, again and again */
#define WINDOW_REGIONS 5u                  /* data to send; received from two sides, of even and odd rounds */

/* Arguments of all kernels. A rank's part of the data is WINDOW_REGIONS regions, and 2 * WINDOW_COPIED bytes that the
 * copy works on. */
typedef struct window_args {
    weir_dev_window window;
    weir_dev_grid_barrier grid; /* of the barrier by hand */
    uint64_t region;            /* bytes */
    uint64_t bytes;             /* of a message */
    uint64_t amount;            /* of work in a step: iterations, or bytes */
    uint64_t *wrong;            /* counts wrong words of 8 bytes */
    uint32_t data;              /* memory of the window */
    uint32_t flags;             /* the same, for kernels by hand */
    uint32_t first;             /* number of this device's first rank */
    uint32_t all;               /* ranks of all devices */
    uint32_t rounds;
    uint32_t batch;    /* messages of a rank in a round */
    uint32_t one_way;  /* the ranks of the first half send */
    uint32_t check;    /* data is new in each round, and compared */
    uint32_t work;     /* window_work */
    uint32_t exchange; /* whether neighbours exchange messages */
} window_args;

typedef struct window_shape {
    const char *name;
    const weir_kernel *weir;
    const weir_kernel *by_hand;
    uint32_t batch;
    uint32_t gpu_rounds; /* in a launch */
    const char *help;
} window_shape;

enum { WINDOW_LATENCY, WINDOW_BANDWIDTH, WINDOW_RATE, WINDOW_BARRIER, WINDOW_OVERLAP, WINDOW_SHAPES };
extern const window_shape window_shapes[WINDOW_SHAPES];
/* Of the same shapes, for devices that are not mapped. */
extern const weir_kernel *const window_port_kernels[WINDOW_SHAPES];

WEIR_END_DECLS

#endif
