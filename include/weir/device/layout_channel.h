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
 * lines, or a put to packed bytes that the peer unpacks, are faster then.
 *
 * Threads, Blocking, Order: as the call of the same name without layouts (weir/device/memory_channel.h). The layouts of
 *            a call are those of weir_layout_device on the calling rank, also the layout of the peer's memory.
 * Errors:    the same, and WEIR_ERR_INVALID for sides of different sizes or without any layout. WEIR_ERR_RANGE: an item
 *            would leave the memory. Both are the communicator's sticky error, and nothing was moved. Texts count from
 *            the first byte of the items. */
#ifndef WEIR_DEVICE_LAYOUT_CHANNEL_H
#define WEIR_DEVICE_LAYOUT_CHANNEL_H

#include "weir/device/impl/layout_channel_run.h"
#include "weir/device/layout.h"
#include "weir/device/memory_channel.h"

/* Copies the items of `from` in the local memory to those of `to` in the remote memory. */
WEIR_FN weir_status weir_dev_memory_channel_put_layout(const weir_dev_memory_channel *channel,
                                                       const weir_dev_layout *to, uint64_t remote_offset,
                                                       const weir_dev_layout *from, uint64_t local_offset,
                                                       weir_coop coop)
{
    const weir_status status =
        weir_dev_memory_channel_check_layouts(channel, WEIR_DOING_PUT, to, remote_offset, from, local_offset);
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
        weir_dev_memory_channel_check_layouts(channel, WEIR_DOING_GET, from, remote_offset, to, local_offset);
    return status != WEIR_OK
               ? status
               : weir_dev_layout_copy(to, channel->local + local_offset, from, channel->remote + remote_offset, coop);
}

/* Sends the items of `from` in the local memory as LL16 packets: as put_ll16, whose data is their packed bytes. `from`
 * is not NULL. The peer may take the packets by unpack_ll16 as well. */
WEIR_FN weir_status weir_dev_memory_channel_put_layout_ll16(const weir_dev_memory_channel *channel,
                                                            uint64_t packet_offset, const weir_dev_layout *from,
                                                            uint64_t local_offset, weir_coop coop)
{
    return weir_dev_memory_channel_run_layouts(channel, 1, 0, 16, packet_offset, from, local_offset, NULL, 0, coop);
}

/* Waits for LL16 packets and stores their data to the items of `to`: as unpack_ll16. `to` is not NULL. */
WEIR_FN weir_status weir_dev_memory_channel_unpack_layout_ll16(const weir_dev_memory_channel *channel,
                                                               uint64_t packet_offset, const weir_dev_layout *to,
                                                               uint64_t local_offset, weir_coop coop)
{
    return weir_dev_memory_channel_run_layouts(channel, 0, 1, 16, packet_offset, NULL, 0, to, local_offset, coop);
}

/* Sends the items of `from`, and receives those of `to`, of the same size: as exchange_ll16. Either may be NULL. */
WEIR_FN weir_status weir_dev_memory_channel_exchange_layout_ll16(const weir_dev_memory_channel *channel,
                                                                 uint64_t packet_offset, const weir_dev_layout *from,
                                                                 uint64_t put_offset, const weir_dev_layout *to,
                                                                 uint64_t unpack_offset, weir_coop coop)
{
    return weir_dev_memory_channel_run_layouts(channel, 1, 1, 16, packet_offset, from, put_offset, to, unpack_offset,
                                               coop);
}

/* The three with lines, as put_lines, unpack_lines and exchange_lines: 120 packed bytes take 128 bytes of the buffers,
 * line_offset is a multiple of 128, and the group consists of whole warps. Lines suit large parts with runs of a few
 * bytes: 15 of 16 bytes that cross the link are data, whatever the runs. */
WEIR_FN weir_status weir_dev_memory_channel_put_layout_lines(const weir_dev_memory_channel *channel,
                                                             uint64_t line_offset, const weir_dev_layout *from,
                                                             uint64_t local_offset, weir_coop coop)
{
    return weir_dev_memory_channel_run_layouts(channel, 1, 0, WEIR_LINE_BYTES, line_offset, from, local_offset, NULL, 0,
                                               coop);
}

WEIR_FN weir_status weir_dev_memory_channel_unpack_layout_lines(const weir_dev_memory_channel *channel,
                                                                uint64_t line_offset, const weir_dev_layout *to,
                                                                uint64_t local_offset, weir_coop coop)
{
    return weir_dev_memory_channel_run_layouts(channel, 0, 1, WEIR_LINE_BYTES, line_offset, NULL, 0, to, local_offset,
                                               coop);
}

WEIR_FN weir_status weir_dev_memory_channel_exchange_layout_lines(const weir_dev_memory_channel *channel,
                                                                  uint64_t line_offset, const weir_dev_layout *from,
                                                                  uint64_t put_offset, const weir_dev_layout *to,
                                                                  uint64_t unpack_offset, weir_coop coop)
{
    return weir_dev_memory_channel_run_layouts(channel, 1, 1, WEIR_LINE_BYTES, line_offset, from, put_offset, to,
                                               unpack_offset, coop);
}

#endif
