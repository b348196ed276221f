/* weir/device/layout_channel.h - move the items of layouts (weir/layout.h) through a memory channel, inside a kernel.
 *
 *     weir_dev_memory_channel_put_layout(&args->channel, &args->to, remote_offset, &args->from, local_offset, coop);
 *     weir_coop_sync(coop);
 *     if (coop.rank == 0) {
 *         weir_dev_memory_channel_signal(&args->channel);               as after a plain put
 *     }
 *
 *     weir_dev_memory_channel_exchange_layout_ll16(&args->packets, 0, &args->face, put_offset, &args->ghost,
 *                                                  unpack_offset, coop);       without signals
 *
 * A layout lies around an offset of the channel's memory: byte `place` of an item is at `offset + place`. A layout that
 * is NULL stands for packed bytes from the offset on. Packed byte i of one side goes to packed byte i of the other.
 *
 * put_layout stores straight into the peer's memory. Runs of a few bytes there use a small part of the link: packets,
 * or a put to packed bytes that the peer unpacks, are faster then.
 *
 * Threads, Blocking, Order: as the call of the same name without layouts (weir/device/memory_channel.h). The layouts of
 *            a call are those of weir_layout_device on the calling rank, also the layout of the peer's memory.
 * Errors:    the same, and WEIR_ERR_INVALID for sides of different sizes or without any layout. WEIR_ERR_RANGE: an item
 *            would leave the memory. Both are the communicator's sticky error, and nothing was moved. Texts count from
 *            the first byte of the items. */
#ifndef WEIR_DEVICE_LAYOUT_CHANNEL_H
#define WEIR_DEVICE_LAYOUT_CHANNEL_H

#include "weir/device/impl/layout_packet.h"
#include "weir/device/layout.h"
#include "weir/device/memory_channel.h"

/* Whether the items around `offset`, or `bytes` packed bytes without a layout, lie in a memory of `size` bytes. The
 * memory is the peer's unless `local`. */
WEIR_FN weir_status weir_dev_memory_channel_check_layout(const weir_dev_memory_channel *channel, uint32_t doing,
                                                         int local, const weir_dev_layout *layout, uint64_t offset,
                                                         uint64_t bytes, uint64_t size)
{
    const int64_t first = layout != NULL ? layout->first : 0;
    const uint64_t span = layout != NULL ? (uint64_t)layout->last - (uint64_t)layout->first : bytes;
    const uint64_t start = offset + (uint64_t)first;
    const int wraps = first < 0 ? start > offset : start < offset;
    if (WEIR_UNLIKELY(wraps || !weir_dev_in_range(start, span, size))) {
        return weir_dev_control_fail_in(channel->semaphore.control, WEIR_ERR_RANGE,
                                        weir_dev_memory_channel_note(channel, doing, local, start, span, size));
    }
    return WEIR_OK;
}

/* Sets *bytes to the packed size of `to` and `from`. One of the two may be NULL. */
WEIR_FN weir_status weir_dev_memory_channel_check_sizes(const weir_dev_memory_channel *channel, uint32_t doing,
                                                        const weir_dev_layout *to, const weir_dev_layout *from,
                                                        uint64_t offset, uint64_t *bytes)
{
    const weir_dev_layout *layout = to != NULL ? to : from;
    *bytes = layout != NULL ? layout->nest.size : 0;
    if (WEIR_UNLIKELY(layout == NULL || (from != NULL && from->nest.size != *bytes))) {
        return weir_dev_control_fail_in(channel->semaphore.control, WEIR_ERR_INVALID,
                                        weir_dev_memory_channel_note(channel, doing, 0, offset, *bytes, 0));
    }
    return WEIR_OK;
}

/* Whether a put or a get may go on. */
WEIR_FN weir_status weir_dev_memory_channel_check_sides(const weir_dev_memory_channel *channel, uint32_t doing,
                                                        const weir_dev_layout *remote, uint64_t remote_offset,
                                                        const weir_dev_layout *local, uint64_t local_offset)
{
    uint64_t bytes;
    weir_status status = weir_dev_memory_channel_check_sizes(channel, doing, remote, local, remote_offset, &bytes);
    if (status == WEIR_OK) {
        status = weir_dev_memory_channel_check_layout(channel, doing, 0, remote, remote_offset, bytes,
                                                      channel->remote_bytes);
    }
    return status != WEIR_OK ? status
                             : weir_dev_memory_channel_check_layout(channel, doing, 1, local, local_offset, bytes,
                                                                    channel->local_bytes);
}

/* Copies the items of `from` in the local memory to those of `to` in the remote memory. */
WEIR_FN weir_status weir_dev_memory_channel_put_layout(const weir_dev_memory_channel *channel,
                                                       const weir_dev_layout *to, uint64_t remote_offset,
                                                       const weir_dev_layout *from, uint64_t local_offset,
                                                       weir_coop coop)
{
    const weir_status status =
        weir_dev_memory_channel_check_sides(channel, WEIR_DOING_PUT, to, remote_offset, from, local_offset);
    return status != WEIR_OK
               ? status
               : weir_dev_layout_copy(to, channel->remote + remote_offset, from, channel->local + local_offset, coop);
}

/* Copies the items of `from` in the remote memory to those of `to` in the local memory. The remote side comes first, as
 * in put_layout, where it is the destination; here it is the source. */
WEIR_FN weir_status weir_dev_memory_channel_get_layout(const weir_dev_memory_channel *channel,
                                                       const weir_dev_layout *from, uint64_t remote_offset,
                                                       const weir_dev_layout *to, uint64_t local_offset, weir_coop coop)
{
    const weir_status status =
        weir_dev_memory_channel_check_sides(channel, WEIR_DOING_GET, from, remote_offset, to, local_offset);
    return status != WEIR_OK
               ? status
               : weir_dev_layout_copy(to, channel->local + local_offset, from, channel->remote + remote_offset, coop);
}

/* Whether a call with packets may go on. It uses `needed` bytes of packet buffers at packet_offset. */
WEIR_FN weir_status weir_dev_memory_channel_check_packets(const weir_dev_memory_channel *channel, int put, int unpack,
                                                          uint64_t packet_offset, uint64_t needed, weir_coop coop)
{
    const uint32_t doing = weir_dev_memory_channel_doing(put, unpack);
    const uintptr_t ends = (put ? (uintptr_t)channel->remote + packet_offset : 0) |
                           (unpack ? (uintptr_t)channel->packets + packet_offset : 0);
    weir_status status = WEIR_OK;
    if (put) {
        status =
            weir_dev_memory_channel_check_layout(channel, doing, 0, NULL, packet_offset, needed, channel->remote_bytes);
    }
    if (unpack && status == WEIR_OK) {
        status = weir_dev_memory_channel_check_layout(channel, doing, 1, NULL, packet_offset, needed,
                                                      channel->packets_bytes);
    }
    if (status == WEIR_OK && WEIR_UNLIKELY(ends % 16 != 0 || (channel->indexed && weir_packet_spans(coop)))) {
        return weir_dev_control_fail_in(
            channel->semaphore.control, WEIR_ERR_INVALID,
            weir_dev_memory_channel_note(channel, doing, unpack && !put, packet_offset, needed, 0));
    }
    return status;
}

/* One direction of packets, or both. `put` and `unpack` are constants; the layout of a direction that is left out is
 * NULL. */
WEIR_FN weir_status weir_dev_memory_channel_run_layout_ll16(const weir_dev_memory_channel *channel, int put, int unpack,
                                                            uint64_t packet_offset, const weir_dev_layout *from,
                                                            uint64_t put_offset, const weir_dev_layout *to,
                                                            uint64_t unpack_offset, weir_coop coop)
{
    const uint32_t doing = weir_dev_memory_channel_doing(put, unpack);
    uint64_t bytes;
    weir_status status = weir_dev_memory_channel_check_sizes(channel, doing, to, from, packet_offset, &bytes);
    if (put && status == WEIR_OK) {
        status = weir_dev_memory_channel_check_layout(channel, doing, 1, from, put_offset, bytes, channel->local_bytes);
    }
    if (unpack && status == WEIR_OK) {
        status =
            weir_dev_memory_channel_check_layout(channel, doing, 1, to, unpack_offset, bytes, channel->local_bytes);
    }
    /* A layout has up to 2^62 bytes, also in a small memory if its items overlap: twice `half` may not fit. */
    const uint64_t half = (bytes + 7) / 8 * 16;
    const uint64_t needed = put && unpack && half >> 63 == 0 ? 2 * half : half;
    if (status == WEIR_OK) {
        status = weir_dev_memory_channel_check_packets(channel, put, unpack, packet_offset, needed, coop);
    }
    if (status != WEIR_OK) {
        return status;
    }
    const uint32_t put_flag = put ? weir_packet_flag(channel->epochs + WEIR_EPOCH_PUT) : 0;
    const uint32_t unpack_flag = unpack ? weir_packet_flag(channel->epochs + WEIR_EPOCH_UNPACK) : 0;
    const int halves = put && unpack;
    if (put) {
        weir_layout_side side = { from, channel->local + put_offset, 0 };
        weir_layout_ll16_put(channel->remote + packet_offset + (halves && put_flag % 2 != 0 ? half : 0), side, bytes,
                             put_flag, coop.rank, coop.size);
    }
    weir_packet_advance(channel->epochs, put ? WEIR_EPOCH_PUT : WEIR_EPOCH_UNPACK,
                        unpack ? WEIR_EPOCH_UNPACK : WEIR_EPOCH_PUT, coop);
    if (!unpack) {
        return WEIR_OK;
    }
    weir_layout_side side = { to, channel->local + unpack_offset, 0 };
    status =
        weir_layout_ll16_unpack(side, channel->packets + packet_offset + (halves && unpack_flag % 2 != 0 ? half : 0),
                                bytes, unpack_flag, coop.rank, coop.size, channel->semaphore.control);
    return weir_dev_memory_channel_end_packets(channel, doing, packet_offset, bytes, unpack_flag, status);
}

/* Sends the items of `from` in the local memory as LL16 packets: as put_ll16, whose data is their packed bytes. `from`
 * is not NULL. The peer may take the packets by unpack_ll16 as well. */
WEIR_FN weir_status weir_dev_memory_channel_put_layout_ll16(const weir_dev_memory_channel *channel,
                                                            uint64_t packet_offset, const weir_dev_layout *from,
                                                            uint64_t local_offset, weir_coop coop)
{
    return weir_dev_memory_channel_run_layout_ll16(channel, 1, 0, packet_offset, from, local_offset, NULL, 0, coop);
}

/* Waits for LL16 packets and stores their data to the items of `to`: as unpack_ll16. `to` is not NULL. */
WEIR_FN weir_status weir_dev_memory_channel_unpack_layout_ll16(const weir_dev_memory_channel *channel,
                                                               uint64_t packet_offset, const weir_dev_layout *to,
                                                               uint64_t local_offset, weir_coop coop)
{
    return weir_dev_memory_channel_run_layout_ll16(channel, 0, 1, packet_offset, NULL, 0, to, local_offset, coop);
}

/* Sends the items of `from`, and receives those of `to`, of the same size: as exchange_ll16. Either may be NULL. */
WEIR_FN weir_status weir_dev_memory_channel_exchange_layout_ll16(const weir_dev_memory_channel *channel,
                                                                 uint64_t packet_offset, const weir_dev_layout *from,
                                                                 uint64_t put_offset, const weir_dev_layout *to,
                                                                 uint64_t unpack_offset, weir_coop coop)
{
    return weir_dev_memory_channel_run_layout_ll16(channel, 1, 1, packet_offset, from, put_offset, to, unpack_offset,
                                                   coop);
}

#endif
