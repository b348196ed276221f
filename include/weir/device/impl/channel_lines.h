/* weir/device/impl/channel_lines.h - lines of a memory channel: sends, receives, or both.
 *
 * Order, Threads, Blocking, Errors: as weir/device/memory_channel.h. */
#ifndef WEIR_DEVICE_IMPL_CHANNEL_LINES_H
#define WEIR_DEVICE_IMPL_CHANNEL_LINES_H

#include "weir/device/impl/channel_check.h"

/* One direction of lines, or both. Uses `halves` of the line buffers in turn: 1 or 2. */
WEIR_FN weir_status weir_dev_memory_channel_run_lines(const weir_dev_memory_channel *channel, int put, int unpack,
                                                      uint64_t line_offset, uint64_t put_offset, uint64_t unpack_offset,
                                                      uint64_t bytes, uint32_t halves, weir_coop coop)
{
    uint64_t half = weir_line_count(bytes) * WEIR_LINE_BYTES;
    weir_status status = weir_dev_memory_channel_check(channel, put, unpack, put_offset, unpack_offset, bytes,
                                                       line_offset, halves * half, WEIR_LINE_BYTES, coop);
    if (status != WEIR_OK) {
        return status;
    }
    if (WEIR_UNLIKELY(!channel->lines || !weir_line_fits(coop))) {
        return WEIR_SLOW(weir_dev_control_fail_in(
            channel->semaphore.control, WEIR_ERR_INVALID,
            weir_dev_memory_channel_note(channel, weir_dev_memory_channel_doing(put, unpack), unpack && !put,
                                         line_offset, bytes, WEIR_UNKNOWN_BYTES)));
    }
    uint32_t put_flag = put ? weir_packet_flag(channel->epochs + WEIR_EPOCH_PUT) : 0;
    uint32_t unpack_flag = unpack ? weir_packet_flag(channel->epochs + WEIR_EPOCH_UNPACK) : 0;
    char *out = put ? channel->remote + line_offset + (halves == 2 && put_flag % 2 != 0 ? half : 0) : NULL;
    char *in = unpack ? channel->packets + line_offset + (halves == 2 && unpack_flag % 2 != 0 ? half : 0) : NULL;
    const char *src = channel->local + put_offset;
    char *dst = channel->local + unpack_offset;
    /* If each line has lanes of its own, they load the data while the epochs are on their way. */
    const int whole = (((uintptr_t)src | (uintptr_t)dst | bytes) & 7) == 0;
    const int alone = whole && weir_line_count(bytes) <= coop.size / WEIR_ARCH_LINE_LANES;
    const uint32_t line = coop.rank / WEIR_ARCH_LINE_LANES;
    weir_vec16 parts[WEIR_ARCH_LINE_PARTS];
    WEIR_PARTLY_SET(parts);
    if (alone && put) {
        weir_line_load(parts, src + line * WEIR_LINE_DATA, weir_line_left(bytes / 8, line),
                       coop.rank % WEIR_ARCH_LINE_LANES);
    }
    weir_packet_advance(channel->epochs, put ? WEIR_EPOCH_PUT : WEIR_EPOCH_UNPACK,
                        unpack ? WEIR_EPOCH_UNPACK : WEIR_EPOCH_PUT, coop);
    if (alone) {
        status = weir_line_run_alone(out, parts, weir_line_flag(put_flag), dst, in, weir_line_flag(unpack_flag), bytes,
                                     coop.rank, channel->semaphore.control);
    } else if (WEIR_UNLIKELY(!whole)) {
        status = weir_line_run_any(out, src, put_flag, dst, in, unpack_flag, bytes, coop.rank, coop.size,
                                   channel->semaphore.control);
    } else {
        status = weir_line_run(out, src, weir_line_flag(put_flag), dst, in, weir_line_flag(unpack_flag), bytes,
                               coop.rank, coop.size, channel->semaphore.control);
    }
    /* Last: a branch on the flag in front of the transfer would hold up the first loads of the data. */
    if (unpack && status == WEIR_OK) {
        status = weir_line_look(unpack_flag, channel->semaphore.control);
    }
    return weir_dev_memory_channel_end_packets(channel, weir_dev_memory_channel_doing(put, unpack), line_offset, bytes,
                                               0, status);
}

#endif
