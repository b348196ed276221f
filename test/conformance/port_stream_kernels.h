/* port_stream_kernels.h - kernels between the calls of a stream; for port_stream_test.cc. */
#ifndef WEIRT_PORT_STREAM_KERNELS_H
#define WEIRT_PORT_STREAM_KERNELS_H

#include "port_kernels.h"

#if defined(__cplusplus)
extern "C" {
#endif

/* Offsets of a round's data, in the half to send and in the half that receives. */
enum {
    STREAM_PUT = 19, /* by puts and put_signals, larger than a thread's own copies */
    STREAM_PUT_BYTES = 5001,
    STREAM_SMALL = 8192, /* by smaller puts */
    STREAM_SMALL_BYTES = 100,
    STREAM_KERNEL = 12288, /* by a put of the kernel that prepares the round */
    STREAM_KERNEL_BYTES = 3000,
    STREAM_GET = 16384,
    STREAM_GET_BYTES = 1700,
    STREAM_VALUE = 20480,
    STREAM_WORD = 24576,  /* target of adds */
    STREAM_ROUND = 28672, /* number of the round, counted by the kernels because a graph cannot */
    STREAM_HALF = 32768
};

#define STREAM_VALUE_NUMBER 0x8123456789abcdefu
#define STREAM_ADDEND 0x9000000000000001u

/* One thread prepares a round, or checks its received data and counts. */
typedef struct port_round_args {
    weir_dev_port_channel channel;
    port_report *report;
    char *local;
    uint32_t compare;
    uint32_t adds; /* 1: the round has an add */
    uint32_t rank;
    uint32_t peer;
} port_round_args;

const weir_kernel *port_round_kernel(void);

#if defined(__cplusplus)
}
#endif

#endif
