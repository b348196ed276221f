/* weir/device/impl/channel_check.h - the checks of a memory channel's calls, and how the calls end.
 *
 * A call that would leave a memory or a packet buffer, or that is invalid otherwise, becomes the communicator's error,
 * with a note of the call and its numbers. So does a wait for packets that reaches its deadline. What is not inlined
 * gets its arguments by value, so that the caller keeps them in registers.
 *
 * Threads, Errors: as weir/device/memory_channel.h. */
#ifndef WEIR_DEVICE_IMPL_CHANNEL_CHECK_H
#define WEIR_DEVICE_IMPL_CHANNEL_CHECK_H

#include "weir/device/impl/line.h"
#include "weir/device/semaphore.h"

/* Whether `bytes` at `offset` lie within `size`, without overflow. Memories are smaller than 2^62 bytes. Here and in
 * weir_dev_memory_channel_fits & joins conditions: && would put branches in front of a call's first loads. */
WEIR_FN int weir_dev_in_range(uint64_t offset, uint64_t bytes, uint64_t size)
{
    return (bytes <= size) & (offset <= size - bytes);
}

/* The note of a failing access to `bytes` at `offset` of memory of `size` bytes. The memory is the peer's unless
 * `local`. */
WEIR_FN weir_dev_note weir_dev_memory_channel_note(const weir_dev_memory_channel *channel, uint32_t doing, int local,
                                                   uint64_t offset, uint64_t bytes, uint64_t size)
{
    weir_dev_note note = weir_dev_note_of(doing, channel->semaphore.peer, offset, bytes, size);
    note.index = local ? WEIR_LOCAL_MEMORY : 0;
    return note;
}

/* Fails a put or get that would leave one of the memories. Arguments are passed by value, as to all functions that are
 * not inlined. */
WEIR_FN_COLD weir_status weir_dev_memory_channel_left(weir_dev_control *control, uint32_t peer, uint32_t doing,
                                                      uint64_t remote_offset, uint64_t local_offset, uint64_t bytes,
                                                      uint64_t remote_bytes, uint64_t local_bytes)
{
    const int local = weir_dev_in_range(remote_offset, bytes, remote_bytes);
    weir_dev_note note =
        weir_dev_note_of(doing, peer, local ? local_offset : remote_offset, bytes, local ? local_bytes : remote_bytes);
    note.index = local ? WEIR_LOCAL_MEMORY : 0;
    return weir_dev_control_fail_in(control, WEIR_ERR_RANGE, note);
}

WEIR_FN weir_status weir_dev_memory_channel_leave(const weir_dev_memory_channel *channel, uint32_t doing,
                                                  uint64_t remote_offset, uint64_t local_offset, uint64_t bytes)
{
    return WEIR_SLOW(weir_dev_memory_channel_left(channel->semaphore.control, channel->semaphore.peer, doing,
                                                  remote_offset, local_offset, bytes, channel->remote_bytes,
                                                  channel->local_bytes));
}

/* The activity of a call with packets: WEIR_DOING_.... */
WEIR_FN uint32_t weir_dev_memory_channel_doing(int put, int unpack)
{
    return put && unpack ? WEIR_DOING_EXCHANGE : put ? WEIR_DOING_PUT_PACKETS : WEIR_DOING_UNPACK;
}

/* Ends a call that waited for packets. */
WEIR_FN_COLD weir_status weir_dev_memory_channel_ended(weir_dev_control *control, const uint64_t *epochs,
                                                       uint32_t doing, uint64_t packet_offset, uint64_t bytes,
                                                       weir_status status)
{
    const weir_dev_channel_cell *cell = (const weir_dev_channel_cell *)epochs;
    return status == WEIR_OK
               ? weir_dev_control_status(control)
               : weir_dev_control_end_wait(control, status,
                                           weir_dev_note_of(doing, (uint32_t)cell->peer, packet_offset, bytes, 0));
}

/* `flag`: of the packets that the calling thread has waited for. */
WEIR_FN weir_status weir_dev_memory_channel_end_packets(const weir_dev_memory_channel *channel, uint32_t doing,
                                                        uint64_t packet_offset, uint64_t bytes, uint32_t flag,
                                                        weir_status status)
{
    return WEIR_UNLIKELY((status != WEIR_OK) | weir_spin_is_due(flag))
               ? WEIR_SLOW(weir_dev_memory_channel_ended(channel->semaphore.control, channel->epochs, doing,
                                                         packet_offset, bytes, status))
               : WEIR_OK;
}

/* Fails a call with LL16 packets that would leave one of the memories, or is otherwise invalid. */
WEIR_FN_COLD weir_status weir_dev_memory_channel_refused(weir_dev_control *control, const uint64_t *epochs,
                                                         uint32_t doing, uint64_t bytes, uint64_t put_offset,
                                                         uint64_t unpack_offset, uint64_t packet_offset)
{
    const weir_dev_channel_cell *cell = (const weir_dev_channel_cell *)epochs;
    const uint64_t needed = (bytes + 7) / 8 * (doing == WEIR_DOING_EXCHANGE ? 32 : 16);
    const int put = doing != WEIR_DOING_UNPACK;
    const int unpack = doing != WEIR_DOING_PUT_PACKETS;
    const int far = put && !weir_dev_in_range(packet_offset, needed, cell->remote_bytes);
    const int near = unpack && !weir_dev_in_range(packet_offset, needed, cell->packets_bytes);
    const int sent = put && !weir_dev_in_range(put_offset, bytes, cell->local_bytes);
    const int received = unpack && !weir_dev_in_range(unpack_offset, bytes, cell->local_bytes);
    weir_dev_note note = weir_dev_note_of(doing, (uint32_t)cell->peer, packet_offset, bytes, 0);
    if (!far && !near && !sent && !received) {
        note.index = put ? 0 : WEIR_LOCAL_MEMORY;
        return weir_dev_control_fail_in(control, WEIR_ERR_INVALID, note);
    }
    note.numbers[0] = far || near ? packet_offset : sent ? put_offset : unpack_offset;
    note.numbers[1] = far || near ? needed : bytes;
    note.numbers[2] = far ? cell->remote_bytes : near ? cell->packets_bytes : cell->local_bytes;
    note.index = far ? 0 : WEIR_LOCAL_MEMORY;
    return weir_dev_control_fail_in(control, WEIR_ERR_RANGE, note);
}

/* Whether a call with packets stays within its memories and is valid. It sends the data at put_offset (`put`), receives
 * to unpack_offset (`unpack`), or does both. It uses `needed` bytes of packet buffers at packet_offset, in units of
 * `packet`. */
WEIR_FN int weir_dev_memory_channel_fits(const weir_dev_memory_channel *channel, int put, int unpack,
                                         uint64_t put_offset, uint64_t unpack_offset, uint64_t bytes,
                                         uint64_t packet_offset, uint64_t needed, uint32_t packet, weir_coop coop)
{
    const uintptr_t ends = (put ? (uintptr_t)channel->remote + packet_offset : 0) |
                           (unpack ? (uintptr_t)channel->packets + packet_offset : 0);
    const int put_fits = weir_dev_in_range(put_offset, bytes, channel->local_bytes) &
                         weir_dev_in_range(packet_offset, needed, channel->remote_bytes);
    const int unpack_fits = weir_dev_in_range(unpack_offset, bytes, channel->local_bytes) &
                            weir_dev_in_range(packet_offset, needed, channel->packets_bytes);
    return (put ? put_fits : 1) & (unpack ? unpack_fits : 1) & (ends % packet == 0) &
           ((channel->indexed == 0) | (weir_packet_spans(coop) == 0));
}

/* Fails a call with packets that does not fit. */
WEIR_FN weir_status weir_dev_memory_channel_refuse(const weir_dev_memory_channel *channel, int put, int unpack,
                                                   uint64_t put_offset, uint64_t unpack_offset, uint64_t bytes,
                                                   uint64_t packet_offset, uint32_t packet, weir_coop coop)
{
    const uint32_t doing = weir_dev_memory_channel_doing(put, unpack);
    /* Fewer arguments for lines: with all of them exchange_lines takes 76 registers in place of 64. */
    if (packet == WEIR_LINE_BYTES) {
        const uintptr_t ends = (put ? (uintptr_t)channel->remote + packet_offset : 0) |
                               (unpack ? (uintptr_t)channel->packets + packet_offset : 0);
        return WEIR_SLOW(weir_dev_control_fail_in(
            channel->semaphore.control,
            ends % packet == 0 && !(channel->indexed && weir_packet_spans(coop)) ? WEIR_ERR_RANGE : WEIR_ERR_INVALID,
            weir_dev_memory_channel_note(channel, doing, unpack && !put, packet_offset, bytes, WEIR_UNKNOWN_BYTES)));
    }
    return WEIR_SLOW(weir_dev_memory_channel_refused(channel->semaphore.control, channel->epochs, doing, bytes,
                                                     put_offset, unpack_offset, packet_offset));
}

/* Whether the remote memory has element `index` of an array of values of `width` bytes. */
WEIR_FN weir_status weir_dev_memory_channel_check_index(const weir_dev_memory_channel *channel, uint32_t doing,
                                                        uint64_t index, uint32_t width)
{
    const int beyond = index >= channel->remote_bytes / width;
    if (WEIR_UNLIKELY(beyond || (uintptr_t)channel->remote % width != 0)) {
        return WEIR_SLOW(weir_dev_control_fail_in(
            channel->semaphore.control, beyond ? WEIR_ERR_RANGE : WEIR_ERR_INVALID,
            weir_dev_memory_channel_note(channel, doing, 0, index * width, width, channel->remote_bytes)));
    }
    return WEIR_OK;
}

#endif
