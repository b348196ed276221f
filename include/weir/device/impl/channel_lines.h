/* weir/device/impl/channel_lines.h - lines of a memory channel: sends, receives, or both.
 *
 * Order, Threads, Blocking, Errors: as weir/device/memory_channel.h. */
#ifndef WEIR_DEVICE_IMPL_CHANNEL_LINES_H
#define WEIR_DEVICE_IMPL_CHANNEL_LINES_H

#include "weir/device/impl/channel_check.h"

/* weir_dev_memory_channel_run_lines, with the flags of the call. `alone`: each line has lanes of its own. If the call
 * puts, it is a constant. The epochs are loaded during the checks, and advance behind the first lines. Lanes that come
 * to the first store apart would send a line in several parts, so their warp sends line by line. */
WEIR_FN weir_status weir_dev_memory_channel_run_lines_as(const weir_dev_memory_channel *channel, int put, int unpack,
                                                         uint64_t line_offset, uint64_t put_offset,
                                                         uint64_t unpack_offset, uint64_t bytes, uint32_t halves,
                                                         uint32_t put_flag, uint32_t unpack_flag, int alone,
                                                         weir_coop coop)
{
    const uint64_t half = weir_line_count(bytes) * WEIR_LINE_BYTES;
    const int fits = weir_dev_memory_channel_fits(channel, put, unpack, put_offset, unpack_offset, bytes, line_offset,
                                                  halves * half, WEIR_LINE_BYTES, coop);
    const int lines = (channel->lines != 0) & weir_line_fits(coop);
    const char *src = channel->local + (fits ? put_offset : 0);
    char *dst = channel->local + (fits ? unpack_offset : 0);
    const int whole = (((uintptr_t)src | (uintptr_t)dst | bytes) & 7) == 0;
    const uint32_t line = coop.rank / WEIR_ARCH_LINE_LANES;
    const uint32_t lane = coop.rank % WEIR_ARCH_LINE_LANES;
    const uint32_t stride = coop.size / WEIR_ARCH_LINE_LANES;
    const int32_t left = fits & lines & whole ? weir_line_left(bytes / 8, line) : 0;
    weir_vec16 parts[WEIR_LINE_BATCH][WEIR_ARCH_LINE_PARTS];
    WEIR_PARTLY_SET(parts);
    if (put) {
        weir_line_load_batch(parts, src + line * WEIR_LINE_DATA, left, stride, alone ? 1 : WEIR_LINE_BATCH, lane);
    }
    if (WEIR_UNLIKELY(!fits)) {
        return weir_dev_memory_channel_refuse(channel, put, unpack, put_offset, unpack_offset, bytes, line_offset,
                                              WEIR_LINE_BYTES, coop);
    }
    if (WEIR_UNLIKELY(!lines)) {
        return WEIR_SLOW(weir_dev_control_fail_in(
            channel->semaphore.control, WEIR_ERR_INVALID,
            weir_dev_memory_channel_note(channel, weir_dev_memory_channel_doing(put, unpack), unpack && !put,
                                         line_offset, bytes, WEIR_UNKNOWN_BYTES)));
    }
    char *out = put ? channel->remote + line_offset + (halves == 2 && put_flag % 2 != 0 ? half : 0) : NULL;
    char *in = unpack ? channel->packets + line_offset + (halves == 2 && unpack_flag % 2 != 0 ? half : 0) : NULL;
    int joined = 1;
    if (put) {
        weir_arch_warp_converge();
        joined = WEIR_ARCH_WARP_JOINED();
    }
    if (put && joined && whole && alone) {
        weir_line_put_alone(out, parts[0], weir_line_flag(put_flag), bytes, coop.rank);
    } else if (put && joined && whole) {
        weir_line_store_batch(out + line * WEIR_LINE_BYTES, parts, left, weir_line_flag(put_flag), stride,
                              WEIR_LINE_BATCH, lane);
    }
    weir_packet_advance(channel->epochs, put ? WEIR_EPOCH_PUT : WEIR_EPOCH_UNPACK,
                        unpack ? WEIR_EPOCH_UNPACK : WEIR_EPOCH_PUT, coop);
    weir_status status = WEIR_OK;
    if (WEIR_UNLIKELY(!(whole & joined))) {
        status = weir_line_run_any(out, src, put_flag, dst, in, unpack_flag, bytes, coop.rank, coop.size,
                                   channel->semaphore.control);
    } else if (!alone) {
        status = weir_line_run_batches(out, src, weir_line_flag(put_flag), 1, dst, in, weir_line_flag(unpack_flag),
                                       bytes, coop.rank, coop.size, channel->semaphore.control);
    } else if (unpack) {
        status =
            weir_line_unpack_alone(dst, in, weir_line_flag(unpack_flag), bytes, coop.rank, channel->semaphore.control);
    }
    /* Last: a branch on the flag in front of the transfer would hold up the first loads of the data. */
    if (unpack && status == WEIR_OK) {
        status = weir_line_look(unpack_flag, channel->semaphore.control);
    }
    return weir_dev_memory_channel_end_packets(channel, weir_dev_memory_channel_doing(put, unpack), line_offset, bytes,
                                               0, status);
}

/* One direction of lines, or both. Uses `halves` of the line buffers in turn: 1 or 2. */
WEIR_FN weir_status weir_dev_memory_channel_run_lines(const weir_dev_memory_channel *channel, int put, int unpack,
                                                      uint64_t line_offset, uint64_t put_offset, uint64_t unpack_offset,
                                                      uint64_t bytes, uint32_t halves, weir_coop coop)
{
    const uint32_t put_flag = put ? weir_packet_flag(channel->epochs + WEIR_EPOCH_PUT) : 0;
    const uint32_t unpack_flag = unpack ? weir_packet_flag(channel->epochs + WEIR_EPOCH_UNPACK) : 0;
    const int alone = weir_line_count(bytes) <= coop.size / WEIR_ARCH_LINE_LANES;
    if (put && alone) {
        return weir_dev_memory_channel_run_lines_as(channel, put, unpack, line_offset, put_offset, unpack_offset, bytes,
                                                    halves, put_flag, unpack_flag, 1, coop);
    }
    return weir_dev_memory_channel_run_lines_as(channel, put, unpack, line_offset, put_offset, unpack_offset, bytes,
                                                halves, put_flag, unpack_flag, put ? 0 : alone, coop);
}

#endif
