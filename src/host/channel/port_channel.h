/* port_channel.h - the port channel as port_channel_stream.c and collectives see it. */
#ifndef WEIRI_CHANNEL_PORT_CHANNEL_H
#define WEIRI_CHANNEL_PORT_CHANNEL_H

#include "src/host/comm/comm.h"
#include "weir/device/port_channel.h"
#include "weir/port_channel.h"

weir_comm *weiri_port_channel_comm(const weir_port_channel *channel);
/* A failure of the channel is the communicator's within a second: kernels wait for its puts, not for signals. Once,
 * before the first request. */
weir_status weiri_port_channel_make_vital(weir_port_channel *channel);

#endif
