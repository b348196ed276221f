/* window_port_kernels.h - kernels for window_port_test.cc: ranks of devices whose memory is not mapped. */
#ifndef WEIRT_WINDOW_PORT_KERNELS_H
#define WEIRT_WINDOW_PORT_KERNELS_H

#include "weir/device/kernel.h"
#include "weir/device/window.h"

#if defined(__cplusplus)
extern "C" {
#endif

#define WINDOW_PORT_RANKS 8 /* of one device, at most */

enum {
    /* Rounds of an exchange between all ranks: puts, gets, waits, flushes, barriers. */
    WINDOW_PORT_EXCHANGE,
    /* Rank 0 of each device sends a rank 1 of the next one `rounds` notifications, which that one takes in order. */
    WINDOW_PORT_FLOOD,
    /* Each rank waits for a notification that nobody sends. */
    WINDOW_PORT_WAIT,
    /* Rank 0 of device 0 puts once to rank 0 of device 1 and notifies it. Then each rank waits as above. */
    WINDOW_PORT_ONE,
    /* Each rank sends `rounds` notifications to rank 0 of the last device. */
    WINDOW_PORT_SEND,
    /* Each rank puts to rank 0 of the last device and flushes, until the flush fails. */
    WINDOW_PORT_FLUSH,
    /* The first three ranks wait, send and flush, each in a block of its own. */
    WINDOW_PORT_EACH,
    /* The blocks meet those of all devices. status[i] is that of block i. */
    WINDOW_PORT_BARRIER
};

typedef struct window_port_report {
    uint64_t wrong;  /* wrong bytes or notifications */
    uint64_t rounds; /* that all ranks of the device have done */
    int32_t status[WINDOW_PORT_RANKS];
} window_port_report;

/* A rank's part of memory `arrived` has a slot for each rank of the window, and one for data that it gets. Its part of
 * memory `leaves` has one slot. */
typedef struct window_port_args {
    weir_dev_window window;
    window_port_report *report;
    uint64_t slot;  /* bytes of a slot, */
    uint64_t bytes; /* of which so many are sent, from an odd address */
    uint32_t arrived;
    uint32_t leaves;
    uint32_t rounds;
    uint32_t op;
} window_port_args;

const weir_kernel *window_port_kernel(void);
/* Without the port's part of windows: rank 0 of the device waits for one notification more than WINDOW_PORT_SEND sends.
 * With other ops it notifies rank 0 of device 1 (WINDOW_PORT_ONE), or itself. */
const weir_kernel *window_near_kernel(void);

#if defined(__cplusplus)
}
#endif

#endif
