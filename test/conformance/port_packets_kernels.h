/* port_packets_kernels.h - a kernel that sends packets over a port channel, both ways; for port_packets_test.cc. */
#ifndef WEIRT_PORT_PACKETS_KERNELS_H
#define WEIRT_PORT_PACKETS_KERNELS_H

#include "port_kernels.h"

#if defined(__cplusplus)
extern "C" {
#endif

#define PORT_PACKETS_SIZES 6u
/* Bytes of the largest message, of a packet buffer (rounds use two in turn), and of each half of a rank's memory: data
 * to send, and received data. */
#define PORT_PACKETS_MOST 2051u
#define PORT_PACKETS_REGION ((PORT_PACKETS_MOST + 7u) / 8u * 16u)
#define PORT_PACKETS_HALF 4096u

typedef struct port_packets_report {
    int32_t status;
    int32_t polled; /* result of a last poll: no signal is left */
    uint64_t rounds;
    uint64_t wrong;
} port_packets_report;

/* Both ranks send each size to each other, `rounds` times, with offsets of any alignment. */
typedef struct port_packets_args {
    weir_dev_port_channel channel;
    weir_dev_grid_barrier barrier;
    port_packets_report *report;
    char *local;
    uint64_t sizes[PORT_PACKETS_SIZES];
    uint64_t rounds;
    uint64_t first; /* number of the first round; later kernels continue */
    uint32_t group; /* PORT_THREAD, PORT_BLOCK or PORT_GRID */
    uint32_t rank;
    uint32_t peer;
} port_packets_args;

/* One invalid call by one thread. */
typedef struct port_packets_wrong_args {
    weir_dev_port_channel channel;
    int32_t *status;
    uint64_t packet_offset;
    uint64_t local_offset;
    uint64_t bytes;
    uint32_t unpack;
} port_packets_wrong_args;

const weir_kernel *port_packets_kernel(void);
const weir_kernel *port_packets_wrong_kernel(void);

#if defined(__cplusplus)
}
#endif

#endif
