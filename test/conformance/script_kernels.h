/* script_kernels.h - a kernel that makes any sequence of calls of a port channel; for port_trouble_test.cc. */
#ifndef WEIRT_SCRIPT_KERNELS_H
#define WEIRT_SCRIPT_KERNELS_H

#include "weir/device/kernel.h"
#include "weir/device/port_channel.h"

#if defined(__cplusplus)
extern "C" {
#endif

#define SCRIPT_STEPS 8

typedef enum script_call {
    SCRIPT_PUT,
    SCRIPT_GET,
    SCRIPT_PUT_SIGNAL,
    SCRIPT_PUT_SIGNAL_FLUSH, /* returns with a ticket */
    SCRIPT_SIGNAL,
    SCRIPT_VALUE,
    SCRIPT_FLUSH, /* waits */
    SCRIPT_WAIT,
    SCRIPT_POLL,
    SCRIPT_STATUS,
    SCRIPT_TEST_TICKET, /* of step `of` */
    SCRIPT_WAIT_TICKET
} script_call;

/* Repeats `count` times (0: once) while it succeeds, at offsets that grow by `bytes` each time. */
typedef struct script_step {
    uint32_t call; /* script_call */
    uint32_t of;
    uint64_t remote_offset;
    uint64_t local_offset;
    uint64_t bytes;
    uint64_t count;
} script_step;

typedef struct script_report {
    int32_t status[SCRIPT_STEPS];
    uint64_t ticket[SCRIPT_STEPS]; /* of the last repetition */
} script_report;

/* Runs in one thread. A failed step does not end the script. */
typedef struct script_args {
    weir_dev_port_channel channel;
    script_report *report;
    script_step steps[SCRIPT_STEPS];
    uint32_t count;
} script_args;

const weir_kernel *script_kernel(void);

#if defined(__cplusplus)
}
#endif

#endif
