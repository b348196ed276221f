/* weir/device/impl/layout_channel_run.h - the checks of layouts in a memory channel, and their packets and lines.
 *
 * The items of a layout lie in a memory if its first and its last byte do, around the offset of the call. A call that
 * is refused becomes the communicator's error, with a note of the call and its numbers. What is not inlined gets its
 * arguments by value, so that the caller keeps them in registers.
 *
 * Threads, Errors: as weir/device/layout_channel.h. */
#ifndef WEIR_DEVICE_IMPL_LAYOUT_CHANNEL_RUN_H
#define WEIR_DEVICE_IMPL_LAYOUT_CHANNEL_RUN_H

#include "weir/device/impl/channel_check.h"
#include "weir/device/impl/layout_packet.h"

/* Whether the items around `offset`, or `bytes` packed bytes without a layout, lie in a memory of `size` bytes. */
WEIR_FN int weir_dev_layout_in_range(const weir_dev_layout *layout, uint64_t offset, uint64_t bytes, uint64_t size)
{
    const int64_t first = layout != NULL ? layout->first : 0;
    const uint64_t span = layout != NULL ? (uint64_t)layout->last - (uint64_t)first : bytes;
    const uint64_t start = offset + (uint64_t)first;
    const int wraps = first < 0 ? start > offset : start < offset;
    return !wraps && weir_dev_in_range(start, span, size);
}

/* The packed size of two sides, one of which may be NULL; WEIR_UNKNOWN_BYTES if they do not match. */
WEIR_FN uint64_t weir_dev_layout_bytes_of(const weir_dev_layout *to, const weir_dev_layout *from)
{
    const weir_dev_layout *layout = to != NULL ? to : from;
    const int match = layout != NULL && (from == NULL || from->nest.size == layout->nest.size);
    return match ? layout->nest.size : WEIR_UNKNOWN_BYTES;
}

/* Fails a call for bytes that leave a memory of `size` bytes: the items around `offset`, or packed bytes. */
WEIR_FN weir_status weir_dev_layout_fail_range(weir_dev_control *control, weir_dev_note note, int local,
                                               const weir_dev_layout *layout, uint64_t offset, uint64_t bytes,
                                               uint64_t size)
{
    note.numbers[0] = offset + (layout != NULL ? (uint64_t)layout->first : 0);
    note.numbers[1] = layout != NULL ? (uint64_t)layout->last - (uint64_t)layout->first : bytes;
    note.numbers[2] = size;
    note.index = local ? WEIR_LOCAL_MEMORY : 0;
    return WEIR_SLOW(weir_dev_control_fail_in(control, WEIR_ERR_RANGE, note));
}

/* Fails a put or a get. Arguments are passed by value, as to all functions that are not inlined. */
WEIR_FN_COLD weir_status weir_dev_memory_channel_layouts_left(weir_dev_control *control, uint32_t peer, uint32_t doing,
                                                              const weir_dev_layout *remote, uint64_t remote_offset,
                                                              const weir_dev_layout *local, uint64_t local_offset,
                                                              uint64_t remote_bytes, uint64_t local_bytes)
{
    weir_arch_no_kernel();
    const uint64_t bytes = weir_dev_layout_bytes_of(remote, local);
    const weir_dev_note note = weir_dev_note_of(doing, peer, remote_offset, remote != NULL ? remote->nest.size : 0, 0);
    if (bytes == WEIR_UNKNOWN_BYTES) {
        return weir_dev_control_fail_in(control, WEIR_ERR_INVALID, note);
    }
    return weir_dev_layout_in_range(remote, remote_offset, bytes, remote_bytes)
               ? weir_dev_layout_fail_range(control, note, 1, local, local_offset, bytes, local_bytes)
               : weir_dev_layout_fail_range(control, note, 0, remote, remote_offset, bytes, remote_bytes);
}

/* Whether a put or a get may go on. */
WEIR_FN weir_status weir_dev_memory_channel_check_layouts(const weir_dev_memory_channel *channel, uint32_t doing,
                                                          const weir_dev_layout *remote, uint64_t remote_offset,
                                                          const weir_dev_layout *local, uint64_t local_offset)
{
    const uint64_t bytes = weir_dev_layout_bytes_of(remote, local);
    if (WEIR_UNLIKELY(bytes == WEIR_UNKNOWN_BYTES ||
                      !weir_dev_layout_in_range(remote, remote_offset, bytes, channel->remote_bytes) ||
                      !weir_dev_layout_in_range(local, local_offset, bytes, channel->local_bytes))) {
        return WEIR_SLOW(weir_dev_memory_channel_layouts_left(channel->semaphore.control, channel->semaphore.peer,
                                                              doing, remote, remote_offset, local, local_offset,
                                                              channel->remote_bytes, channel->local_bytes));
    }
    return WEIR_OK;
}

/* The bytes that `halves` packet buffers take, each of `bytes` data in packets, or lines, of `packet` bytes. A layout
 * has up to 2^62 bytes, also in a small memory if its items overlap: twice that many packets may not fit in 64 bits. */
WEIR_FN uint64_t weir_dev_layout_packets_bytes(uint64_t bytes, uint32_t packet, int halves)
{
    const uint64_t half = packet == WEIR_LINE_BYTES ? weir_line_count(bytes) * WEIR_LINE_BYTES : (bytes + 7) / 8 * 16;
    return halves == 2 && half >> 63 == 0 ? 2 * half : half;
}

/* Fails a call with packets. The channel's cell lies behind `epochs`. */
WEIR_FN_COLD weir_status weir_dev_memory_channel_layouts_refused(weir_dev_control *control, const uint64_t *epochs,
                                                                 uint32_t doing, uint32_t packet,
                                                                 uint64_t packet_offset, const weir_dev_layout *from,
                                                                 uint64_t put_offset, const weir_dev_layout *to,
                                                                 uint64_t unpack_offset)
{
    weir_arch_no_kernel();
    const weir_dev_channel_cell *cell = (const weir_dev_channel_cell *)epochs;
    const int put = doing != WEIR_DOING_UNPACK;
    const int unpack = doing != WEIR_DOING_PUT_PACKETS;
    const uint64_t bytes = weir_dev_layout_bytes_of(to, from);
    const uint64_t needed = weir_dev_layout_packets_bytes(bytes, packet, put + unpack);
    const weir_dev_note note = weir_dev_note_of(doing, (uint32_t)cell->peer, packet_offset, needed, 0);
    if (bytes == WEIR_UNKNOWN_BYTES) {
        return weir_dev_control_fail_in(control, WEIR_ERR_INVALID, note);
    }
    if (put && !weir_dev_layout_in_range(from, put_offset, bytes, cell->local_bytes)) {
        return weir_dev_layout_fail_range(control, note, 1, from, put_offset, bytes, cell->local_bytes);
    }
    if (unpack && !weir_dev_layout_in_range(to, unpack_offset, bytes, cell->local_bytes)) {
        return weir_dev_layout_fail_range(control, note, 1, to, unpack_offset, bytes, cell->local_bytes);
    }
    if (put && !weir_dev_in_range(packet_offset, needed, cell->remote_bytes)) {
        return weir_dev_layout_fail_range(control, note, 0, NULL, packet_offset, needed, cell->remote_bytes);
    }
    if (unpack && !weir_dev_in_range(packet_offset, needed, cell->packets_bytes)) {
        return weir_dev_layout_fail_range(control, note, 1, NULL, packet_offset, needed, cell->packets_bytes);
    }
    return weir_dev_control_fail_in(control, WEIR_ERR_INVALID, note);
}

/* One direction, or both. `put` and `unpack` are constants, and so is `packet`: 16, or WEIR_LINE_BYTES for lines. The
 * layout of a direction that is left out is NULL. */
WEIR_FN weir_status weir_dev_memory_channel_run_layouts(const weir_dev_memory_channel *channel, int put, int unpack,
                                                        uint32_t packet, uint64_t packet_offset,
                                                        const weir_dev_layout *from, uint64_t put_offset,
                                                        const weir_dev_layout *to, uint64_t unpack_offset,
                                                        weir_coop coop)
{
    const int lines = packet == WEIR_LINE_BYTES;
    const uint32_t doing = weir_dev_memory_channel_doing(put, unpack);
    const uint64_t bytes = weir_dev_layout_bytes_of(to, from);
    const uint64_t half = weir_dev_layout_packets_bytes(bytes, packet, 1);
    const uint64_t needed = weir_dev_layout_packets_bytes(bytes, packet, put + unpack);
    const uintptr_t ends = (put ? (uintptr_t)channel->remote + packet_offset : 0) |
                           (unpack ? (uintptr_t)channel->packets + packet_offset : 0);
    if (WEIR_UNLIKELY(bytes == WEIR_UNKNOWN_BYTES ||
                      (put && (!weir_dev_layout_in_range(from, put_offset, bytes, channel->local_bytes) ||
                               !weir_dev_in_range(packet_offset, needed, channel->remote_bytes))) ||
                      (unpack && (!weir_dev_layout_in_range(to, unpack_offset, bytes, channel->local_bytes) ||
                                  !weir_dev_in_range(packet_offset, needed, channel->packets_bytes))) ||
                      ends % packet != 0 || (channel->indexed && weir_packet_spans(coop)) ||
                      (lines && (!channel->lines || !weir_line_fits(coop))))) {
        return WEIR_SLOW(weir_dev_memory_channel_layouts_refused(channel->semaphore.control, channel->epochs, doing,
                                                                 packet, packet_offset, from, put_offset, to,
                                                                 unpack_offset));
    }
    const uint32_t put_flag = put ? weir_packet_flag(channel->epochs + WEIR_EPOCH_PUT) : 0;
    const uint32_t unpack_flag = unpack ? weir_packet_flag(channel->epochs + WEIR_EPOCH_UNPACK) : 0;
    const int halves = put && unpack;
    if (put) {
        const weir_layout_side side = { from, channel->local + put_offset, 0 };
        char *out = channel->remote + packet_offset + (halves && put_flag % 2 != 0 ? half : 0);
        if (lines) {
            weir_layout_line_put(out, side, 0, bytes, put_flag, coop.rank, coop.size);
        } else if (weir_layout_packet_each(side, bytes, coop.size)) {
            weir_layout_ll16_put_each(out, side, bytes, put_flag, coop.rank);
        } else {
            weir_layout_ll16_put(out, side, 0, bytes, put_flag, coop.rank, coop.size);
        }
    }
    weir_packet_advance(channel->epochs, put ? WEIR_EPOCH_PUT : WEIR_EPOCH_UNPACK,
                        unpack ? WEIR_EPOCH_UNPACK : WEIR_EPOCH_PUT, coop);
    if (!unpack) {
        return WEIR_OK;
    }
    const weir_layout_side side = { to, channel->local + unpack_offset, 0 };
    const char *in = channel->packets + packet_offset + (halves && unpack_flag % 2 != 0 ? half : 0);
    weir_dev_control *control = channel->semaphore.control;
    if (!lines) {
        const weir_status status =
            weir_layout_packet_each(side, bytes, coop.size)
                ? weir_layout_ll16_unpack_each(side, in, bytes, unpack_flag, coop.rank, control)
                : weir_layout_ll16_unpack(side, in, 0, bytes, unpack_flag, coop.rank, coop.size, control);
        return weir_dev_memory_channel_end_packets(channel, doing, packet_offset, bytes, unpack_flag, status);
    }
    weir_status status = weir_layout_line_unpack(side, in, 0, bytes, unpack_flag, coop.rank, coop.size, control);
    if (status == WEIR_OK) {
        status = weir_line_look(unpack_flag, control);
    }
    return weir_dev_memory_channel_end_packets(channel, doing, packet_offset, bytes, 0, status);
}

#endif
