/* ports.h - the port channels of a window, to the devices whose memory is not mapped here.
 *
 *     ports.to[k] = true;                                       each such device
 *     status = weiri_window_ports_check(&ports, team, call, transport);
 *     status = weiri_window_ports_connect(&ports, team, call, transport);
 *     status = weiri_window_ports_meet(&ports, team, call);     a semaphore for each channel
 *     status = weiri_window_ports_open(&ports, team, call, &rings, ranks, handles);
 *     status = weiri_window_ports_attach(&ports, team, call, &memory, places);
 *     weiri_window_ports_close(&ports);
 *
 * The caller zeroes the struct, and agrees with the team after each step. One proxy serves all channels. Memory 0 of a
 * channel is the other device's shared part, memory 1 that of this device. A channel that fails breaks the
 * communicator, because kernels wait for notifications and not for its signals.
 *
 * Threads:   one thread at a time.
 * Blocking:  connect, meet, open: with the communicator's timeout.
 * Ownership: keeps references on the memories until close. Connections stay the team's.
 * Errors:    those of weir_port_channel_create and weir_port_channel_attach, with `call` and the device before them. */
#ifndef WEIRI_WINDOW_PORTS_H
#define WEIRI_WINDOW_PORTS_H

#include "src/host/window/team.h"
#include "weir/port_channel.h"

typedef struct weiri_window_ports {
    bool to[WEIRI_TEAM_RANKS]; /* the device has a port channel */
    weir_semaphore *semaphores[WEIRI_TEAM_RANKS];
    weir_port_channel *channels[WEIRI_TEAM_RANKS];
    weir_proxy *proxy; /* NULL if no device has a channel */
} weiri_window_ports;

/* Whether a transport joins this device to each that has a channel: `transport`, or any if it is NULL. No messages are
 * sent, so the others can still learn of an error. */
weir_status weiri_window_ports_check(const weiri_window_ports *ports, const weiri_team *team, const char *call,
                                     const char *transport);
/* Connects to each other device: over `transport`, or the default if it is NULL, where there is to be a channel. */
weir_status weiri_window_ports_connect(weiri_window_ports *ports, weiri_team *team, const char *call,
                                       const char *transport);
weir_status weiri_window_ports_meet(weiri_window_ports *ports, weiri_team *team, const char *call);
/* Makes the channels between the shared parts in `rings`. Stores the handle for device k at handles + k * its size, in
 * device memory. `ranks`: of this device; they are served with four requests each. */
weir_status weiri_window_ports_open(weiri_window_ports *ports, const weiri_team *team, const char *call,
                                    const weiri_team_memory *rings, uint32_t ranks, char *handles);
/* Attaches a registered memory to each channel, and fills its rows of places. The channels keep a memory that was
 * attached before an error until they are closed. */
weir_status weiri_window_ports_attach(const weiri_window_ports *ports, const weiri_team *team, const char *call,
                                      const weiri_team_memory *memory, weir_dev_window_place *places);
void weiri_window_ports_close(weiri_window_ports *ports);

#endif
