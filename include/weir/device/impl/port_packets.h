/* weir/device/impl/port_packets.h - packets of a port channel: checks, the request that moves them, and slow waits.
 *
 * Order, Threads, Blocking, Errors: as weir/device/port_channel.h. */
#ifndef WEIR_DEVICE_IMPL_PORT_PACKETS_H
#define WEIR_DEVICE_IMPL_PORT_PACKETS_H

#include "weir/device/impl/channel_check.h"
#include "weir/device/impl/port_wait.h"

/* The room of a buffer in bytes of packets. */
WEIR_FN uint64_t weir_dev_port_channel_packets_room(const weir_dev_port_channel *channel)
{
    return channel->packets != NULL ? channel->packets_half - WEIR_PORT_PACKETS_TAIL : 0;
}

/* `doing` is WEIR_DOING_PUT_PACKETS or WEIR_DOING_UNPACK. */
WEIR_FN weir_status weir_dev_port_channel_check_packets(const weir_dev_port_channel *channel, uint32_t doing,
                                                        uint64_t packet_offset, uint64_t local_offset, uint64_t bytes)
{
    const uint64_t needed = (bytes + 7) / 8 * 16;
    const uint64_t room = weir_dev_port_channel_packets_room(channel);
    const int fits = bytes <= channel->local_bytes && weir_dev_in_range(packet_offset, needed, room);
    if (WEIR_UNLIKELY(!fits || !weir_dev_in_range(local_offset, bytes, channel->local_bytes))) {
        weir_dev_note note = weir_dev_note_of(doing, channel->semaphore.peer, fits ? local_offset : packet_offset,
                                              fits ? bytes : needed, fits ? channel->local_bytes : room);
        note.index = fits || doing == WEIR_DOING_UNPACK ? WEIR_LOCAL_MEMORY : 0;
        return WEIR_SLOW(weir_dev_control_fail_in(channel->semaphore.control, WEIR_ERR_RANGE, note));
    }
    return WEIR_UNLIKELY(packet_offset % 16 != 0)
               ? WEIR_SLOW(weir_dev_control_fail_in(
                     channel->semaphore.control, WEIR_ERR_INVALID,
                     weir_dev_note_of(doing, channel->semaphore.peer, packet_offset, bytes, 0)))
               : WEIR_OK;
}

/* Requests the move of the packets in this rank's buffer into the peer's. `count` is the number of the put. */
WEIR_FN weir_status weir_dev_port_channel_move_packets(const weir_dev_port_channel *channel, uint64_t packet_offset,
                                                       uint64_t bytes, uint32_t count, uint64_t *ticket)
{
    weir_request request;
    request.remote_offset = packet_offset;
    request.local_offset = channel->packets_half + packet_offset;
    request.bytes = bytes;
    request.value = 0;
    request.remote = WEIR_PORT_PACKETS_REMOTE;
    request.local = WEIR_PORT_PACKETS_LOCAL;
    request.channel = 0;
    request.type = WEIR_REQUEST_PUT;
    request.reserved = 0;
    if (channel->packets_whole) {
        return weir_dev_port_channel_post(channel, &request, ticket);
    }
    weir_status status = weir_dev_port_channel_post(channel, &request, NULL);
    request.remote_offset = channel->packets_half - WEIR_PORT_PACKETS_TAIL;
    request.bytes = sizeof(uint64_t);
    request.value = count;
    request.type = WEIR_REQUEST_VALUE;
    return status == WEIR_OK ? weir_dev_port_channel_post(channel, &request, ticket) : status;
}

/* The slow part of a wait for a packet, or (`packet` NULL) for the value of the put whose packets have this flag. */
WEIR_FN_COLD weir_status weir_dev_port_channel_await_packet(const weir_dev_port_channel *channel, const char *packet,
                                                            uint32_t flag)
{
    const uint64_t *count = (const uint64_t *)(channel->packets + channel->packets_half - WEIR_PORT_PACKETS_TAIL);
    weir_spin spin = weir_spin_begin();
    weir_status status = WEIR_OK;
    weir_status ended = WEIR_OK;
    while (status == WEIR_OK &&
           (packet != NULL ? !weir_ll16_there(weir_arch_load_relaxed_sys_pair(packet), flag)
                           : !weir_packet_has_come((uint32_t)weir_arch_load_acquire_sys_u64(count), flag))) {
        if (ended != WEIR_OK) {
            return ended;
        }
        status = weir_spin_step(&spin, channel->semaphore.control);
        if (spin.reads % WEIR_ARCH_SPIN_READS == 0) {
            ended = weir_dev_port_channel_ended(channel);
        }
    }
    return status;
}

#endif
