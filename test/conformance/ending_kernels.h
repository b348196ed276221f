/* ending_kernels.h - a kernel whose waits all find at once what they wait for; for ending_test.cc. */
#ifndef WEIRT_ENDING_KERNELS_H
#define WEIRT_ENDING_KERNELS_H

#include "weir/device/kernel.h"
#include "weir/device/port_channel.h"

#if defined(__cplusplus)
extern "C" {
#endif

typedef enum ending_wait {
    ENDING_WAIT,
    ENDING_WAIT_RELAXED,
    ENDING_COUNTED,
    ENDING_COUNTED_RELAXED,
    ENDING_LL16,
    ENDING_EXCHANGE_LL16,
    ENDING_LINES,
    ENDING_BARRIER,
    ENDING_FIFO,
    ENDING_PROXY,
    ENDING_PORT,
    ENDING_PUSH,
    ENDING_TRY_PUSH,
    ENDING_CHANNEL_PUSH,
    ENDING_CHANNEL_TRY_PUSH,
    ENDING_STATUS, /* no wait at all: signals, and a look at the communicator's status behind each 64th */
    ENDING_WAITS
} ending_wait;

/* What is awaited is made by the same thread, or is there for 2^40 waits: the first read of a wait finds it. */
typedef struct ending_args {
    weir_dev_semaphore semaphore;    /* whose token is ahead; for ports the one beside it is 0 */
    weir_dev_memory_channel channel; /* with a packet buffer, into which the kernel itself writes packets */
    weir_dev_grid_barrier barrier;
    weir_dev_fifo fifo;            /* whose tail is ahead */
    weir_dev_proxy_channel proxy;  /* whose progress is ahead */
    weir_dev_port_channel port;    /* with `semaphore` */
    weir_dev_proxy_channel pushed; /* for pushes: the kernel itself gives back slots and credits */
    uint64_t *returned[2];         /* of `pushed`: slots, credits */
    uint64_t *rounds; /* made so far, in thousands; the status at the end; from the host, to end when it is not 0 */
    uint32_t wait;    /* ending_wait */
} ending_args;

const weir_kernel *ending_kernel(void);

#if defined(__cplusplus)
}
#endif

#endif
