/* port_channel.h - kernels of one thread that make a call of a port channel in the order of a stream. host/channel
 * launches them, and host/comm to try a NIC. */
#ifndef WEIRI_KERNELS_PORT_CHANNEL_H
#define WEIRI_KERNELS_PORT_CHANNEL_H

#include "weir/device/kernel.h"
#include "weir/device/port_channel.h"

#if defined(__cplusplus)
extern "C" {
#endif

/* A type of weiri_port_call_args.request that a proxy does not have: a wait for a signal. */
#define WEIRI_PORT_CALL_WAIT 0u

/* One thread makes the call for the request's type, with its offsets and sizes. */
typedef struct weiri_port_call_args {
    weir_dev_port_channel channel;
    weir_request request;
} weiri_port_call_args;

enum { WEIRI_PORT_CALL };
extern const weir_kernel *const weiri_port_channel_kernels[];

#if defined(__cplusplus)
}
#endif

#endif
