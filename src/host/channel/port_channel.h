/* port_channel.h - the port channel as the other files of this folder, notified windows and collectives see it.
 *
 * Offers the public calls with the caller's name in front of their texts, the communicator, failures that break the
 * communicator, and the description of memories for kernels that post to a NIC by themselves. No other header of this
 * folder is for other folders: these make channels, fifos and proxies by the public calls. */
#ifndef WEIRI_CHANNEL_PORT_CHANNEL_H
#define WEIRI_CHANNEL_PORT_CHANNEL_H

#include "src/host/comm/comm.h"
#include "weir/device/port_channel.h"
#include "weir/port_channel.h"

weir_comm *weiri_port_channel_comm(const weir_port_channel *channel);

/* The public calls weir_port_channel_device, _post, _try_post and _wait; error texts begin with `call`. */
weir_status weiri_port_channel_handle(const weir_port_channel *channel, const char *call, weir_dev_port_channel *out);
weir_status weiri_port_channel_post(weir_port_channel *channel, const char *call, const weir_request *request,
                                    uint32_t timeout_ms, uint64_t *ticket);
weir_status weiri_port_channel_try_post(weir_port_channel *channel, const char *call, const weir_request *request,
                                        uint64_t *ticket);
weir_status weiri_port_channel_wait(weir_port_channel *channel, const char *call, uint64_t ticket, uint32_t timeout_ms);

/* Makes a failure of the channel fail the communicator within a second, for channels whose kernels wait for puts and
 * not for signals. Call it once, before the first request. */
weir_status weiri_port_channel_make_vital(weir_port_channel *channel);

/* Describes memory `remote` of the peer and memory `local` of this rank for kernels that post to the NIC by themselves.
 * Zeros if they do not. */
void weiri_port_channel_describe(weir_port_channel *channel, uint32_t remote, uint32_t local,
                                 weir_dev_port_memory *out);

#endif
