/* ending_kernels.h - a kernel whose waits all succeed at once; for ending_test.cc. */
#ifndef WEIRT_ENDING_KERNELS_H
#define WEIRT_ENDING_KERNELS_H

#include "weir/device/collective.h"
#include "weir/device/halo.h"
#include "weir/device/kernel.h"
#include "weir/device/layout_channel.h"
#include "weir/device/window.h"

#if defined(__cplusplus)
extern "C" {
#endif

#define ENDING_DATA 64u /* bytes that an unpack takes */

typedef enum ending_wait {
    ENDING_WAIT,
    ENDING_WAIT_RELAXED,
    ENDING_COUNTED,
    ENDING_COUNTED_RELAXED,
    ENDING_LL16,
    ENDING_EXCHANGE_LL16,
    ENDING_LAYOUT,
    ENDING_PORT_PACKETS,
    ENDING_LINES,
    ENDING_BARRIER,
    ENDING_FIFO,
    ENDING_PROXY,
    ENDING_PORT,
    ENDING_PUSH,
    ENDING_TRY_PUSH,
    ENDING_CHANNEL_PUSH,
    ENDING_CHANNEL_TRY_PUSH,
    ENDING_COLLECTIVE, /* the wait of collectives by slots, */
    ENDING_EXCHANGE,   /* and of a block of an exchange that has one lane */
    ENDING_HALO,
    ENDING_WINDOW, /* the barrier with another device, */
    ENDING_NOTIFY, /* and the wait for a notification that the kernel itself has sent */
    ENDING_STATUS, /* no waits: signals, and a check of the communicator's status behind each 64th */
    ENDING_WAITS
} ending_wait;

/* The awaited value is written by the same thread or covers 2^40 waits, so the first read of each wait succeeds. */
typedef struct ending_args {
    weir_dev_semaphore semaphore;    /* its token is ahead; for ports the word beside the token is 0 */
    weir_dev_memory_channel channel; /* with a packet buffer; the kernel itself writes the packets */
    weir_dev_grid_barrier barrier;
    weir_dev_fifo fifo;            /* its tail is ahead */
    weir_dev_proxy_channel proxy;  /* its progress is ahead */
    weir_dev_port_channel port;    /* uses `semaphore` */
    weir_dev_proxy_channel pushed; /* for pushes: the kernel itself returns slots and credits */
    uint64_t *returned[2];         /* returned slots and credits of `pushed` */
    weir_dev_layout layout;        /* for unpacks */
    weir_dev_collective collective;
    weir_dev_halo halo;
    weir_dev_halo_share share;
    weir_dev_window window;
    weir_dev_window ring; /* of this device alone */
    uint64_t *rounds;     /* rounds so far; the status at the end; the host writes a nonzero value to end the kernel */
    uint32_t wait;        /* ending_wait */
} ending_args;

const weir_kernel *ending_kernel(void);

#if defined(__cplusplus)
}
#endif

#endif
