/* blame_kernels.h - a kernel that makes one call that fails; for blame_test.cc. */
#ifndef WEIRT_BLAME_KERNELS_H
#define WEIRT_BLAME_KERNELS_H

#include "weir/device/collective.h"
#include "weir/device/halo.h"
#include "weir/device/kernel.h"
#include "weir/device/port_channel.h"
#include "weir/device/rdma_notice.h"
#include "weir/device/window.h"

#if defined(__cplusplus)
extern "C" {
#endif

typedef enum blame_call {
    BLAME_SIGNAL,
    BLAME_WAIT,
    BLAME_AT,           /* [index] */
    BLAME_BARRIER,      /* of two blocks, of which one comes */
    BLAME_FIFO_PUSH,    /* until there is no room */
    BLAME_FIFO_WAIT,    /* [ticket] */
    BLAME_CHANNEL_PUSH, /* until there is no room */
    BLAME_CHANNEL_WAIT, /* [ticket] */
    BLAME_PORT_WAIT,
    BLAME_PUT_PACKETS,    /* of a port channel: [packet offset, local offset, bytes] */
    BLAME_UNPACK_PACKETS, /* the same */
    BLAME_PUT_LINES,      /* of a memory channel: the same */
    BLAME_NIC_POST,       /* until there is no room */
    BLAME_NIC_WAIT,       /* [ticket] */
    BLAME_NIC_NOTICE,
    BLAME_COLLECTIVE, /* waits for its rank 1 */
    BLAME_ABANDONED,
    BLAME_DEREGISTERED,
    BLAME_WINDOW_AT,      /* [index] */
    BLAME_WINDOW_PUT,     /* from memory 0 to memory 1: [target, remote offset, local offset, bytes] */
    BLAME_WINDOW_GET,     /* the same */
    BLAME_WINDOW_OVERLAP, /* a put from and to memory 0: the same */
    BLAME_WINDOW_MEMORY,  /* a put from memory 0: [target, remote memory] */
    BLAME_WINDOW_NOTIFY,  /* until there is no room: [target, tag] */
    BLAME_WINDOW_WAIT,    /* [source, tag] */
    BLAME_WINDOW_BARRIER,
    BLAME_HALO_PUT,
    BLAME_HALO_WAIT,
    BLAME_OTHER /* an error without a note */
} blame_call;

typedef struct blame_args {
    weir_dev_semaphore semaphore;
    weir_dev_grid_barrier barrier;
    weir_dev_memory_channel memory;
    weir_dev_port_channel port; /* its queue also serves calls of fifos and of channels of a proxy */
    weir_dev_rdma nic;
    weir_dev_rdma_inbox inbox;
    weir_dev_collective collective;
    weir_dev_window window;
    weir_dev_halo halo;
    weir_dev_halo_share share;
    uint64_t numbers[4];
    uint32_t call; /* blame_call */
    int32_t *status;
} blame_args;

const weir_kernel *blame_kernel(void);
/* The same kernel, but it sets no name, like a kernel that is written without WEIR_KERNEL. It runs on CPU devices. */
const weir_kernel *blame_nameless_kernel(void);

#if defined(__cplusplus)
}
#endif

#endif
