/* weir/device/memory_channel.h - move data to and from a peer's memory, inside a kernel.
 *
 *     weir_dev_memory_channel_put(&args->channel, offset, offset, bytes, coop);   my memory -> the peer's
 *     weir_coop_sync(coop);                                                        all threads have written
 *     if (coop.rank == 0) {
 *         weir_dev_memory_channel_signal(&args->channel);
 *         status = weir_dev_memory_channel_wait(&args->channel);
 *     }
 *
 * Offsets and sizes are bytes, of any value and alignment. An access that would leave the memory does
 * nothing, returns WEIR_ERR_RANGE, and makes that the communicator's sticky error.
 *
 * Threads:   put, get and the packet calls are made by all threads of a coop with the same arguments;
 *            signal, wait, poll, read and write by one thread.
 * Blocking:  wait and unpack have the communicator's deadline; nothing else blocks.
 * Order:     put and get are ordinary accesses, ordered by the signal and the barriers around them. Packets
 *            carry their own order. read and write are relaxed at system scope.
 * Errors:    WEIR_ERR_RANGE (no packet buffer too), WEIR_ERR_INVALID (misaligned packet or value), and
 *            what ends a wait: WEIR_ERR_TIMEOUT or the communicator's sticky error. */
#ifndef WEIR_DEVICE_MEMORY_CHANNEL_H
#define WEIR_DEVICE_MEMORY_CHANNEL_H

#include "weir/device/packet.h"
#include "weir/device/semaphore.h"

/* Whether `bytes` at `offset` lie within `size`, without overflow. Memories are smaller than 2^62 bytes. */
WEIR_FN int weir_dev_in_range(uint64_t offset, uint64_t bytes, uint64_t size)
{
    return bytes <= size && offset <= size - bytes;
}

/* Copies `bytes` of the local memory at `src_offset` into the remote memory at `dst_offset`. */
WEIR_FN weir_status weir_dev_memory_channel_put(const weir_dev_memory_channel *channel, uint64_t dst_offset,
                                                uint64_t src_offset, uint64_t bytes, weir_coop coop)
{
    if (WEIR_UNLIKELY(!weir_dev_in_range(dst_offset, bytes, channel->dst_bytes) ||
                      !weir_dev_in_range(src_offset, bytes, channel->src_bytes))) {
        return weir_dev_control_fail(channel->semaphore.control, WEIR_ERR_RANGE);
    }
    weir_copy(channel->dst + dst_offset, channel->src + src_offset, bytes, coop);
    return WEIR_OK;
}

/* Copies `bytes` of the remote memory at `dst_offset` into the local memory at `src_offset`: as in the peer
 * library, dst is always the remote side of a channel. */
WEIR_FN weir_status weir_dev_memory_channel_get(const weir_dev_memory_channel *channel, uint64_t dst_offset,
                                                uint64_t src_offset, uint64_t bytes, weir_coop coop)
{
    if (WEIR_UNLIKELY(!weir_dev_in_range(dst_offset, bytes, channel->dst_bytes) ||
                      !weir_dev_in_range(src_offset, bytes, channel->src_bytes))) {
        return weir_dev_control_fail(channel->semaphore.control, WEIR_ERR_RANGE);
    }
    weir_copy(channel->src + src_offset, channel->dst + dst_offset, bytes, coop);
    return WEIR_OK;
}

WEIR_FN weir_status weir_dev_memory_channel_check_packets(const weir_dev_memory_channel *channel, const char *packets,
                                                          uint64_t packets_bytes, uint64_t packet_offset,
                                                          uint64_t src_offset, uint64_t bytes, uint32_t packet)
{
    uint64_t unit = packet / 2;
    if (WEIR_UNLIKELY(!weir_dev_in_range(src_offset, bytes, channel->src_bytes) ||
                      !weir_dev_in_range(packet_offset, (bytes + unit - 1) / unit * packet, packets_bytes))) {
        return weir_dev_control_fail(channel->semaphore.control, WEIR_ERR_RANGE);
    }
    if (WEIR_UNLIKELY(((uintptr_t)packets + packet_offset) % packet != 0)) {
        return weir_dev_control_fail(channel->semaphore.control, WEIR_ERR_INVALID);
    }
    return WEIR_OK;
}

/* Sends `bytes` of the local memory at `src_offset` as LL16 packets to the peer's packet buffer, which is
 * this channel's dst, at `packet_offset` bytes, a multiple of 16. Takes 16 bytes there for 8 of data. */
WEIR_FN weir_status weir_dev_memory_channel_put_ll16(const weir_dev_memory_channel *channel, uint64_t packet_offset,
                                                     uint64_t src_offset, uint64_t bytes, weir_coop coop)
{
    weir_status status = weir_dev_memory_channel_check_packets(channel, channel->dst, channel->dst_bytes, packet_offset,
                                                               src_offset, bytes, 16);
    if (status != WEIR_OK) {
        return status;
    }
    weir_ll16_put(channel->dst + packet_offset, channel->src + src_offset, bytes, channel->put_epoch, coop);
    return WEIR_OK;
}

/* Waits for the LL16 packets of the peer's matching put at `packet_offset` of the local packet buffer, and
 * stores exactly `bytes` of data to the local memory at `src_offset`. The status is the calling thread's;
 * weir_coop_agree makes it the group's. */
WEIR_FN weir_status weir_dev_memory_channel_unpack_ll16(const weir_dev_memory_channel *channel, uint64_t packet_offset,
                                                        uint64_t src_offset, uint64_t bytes, weir_coop coop)
{
    weir_status status = weir_dev_memory_channel_check_packets(channel, channel->packets, channel->packets_bytes,
                                                               packet_offset, src_offset, bytes, 16);
    if (status != WEIR_OK) {
        return status;
    }
    return weir_ll16_unpack(channel->src + src_offset, channel->packets + packet_offset, bytes, channel->unpack_epoch,
                            coop, channel->semaphore.control);
}

/* The same with LL8 packets: 8 bytes for 4 of data, offsets multiples of 8. */
WEIR_FN weir_status weir_dev_memory_channel_put_ll8(const weir_dev_memory_channel *channel, uint64_t packet_offset,
                                                    uint64_t src_offset, uint64_t bytes, weir_coop coop)
{
    weir_status status = weir_dev_memory_channel_check_packets(channel, channel->dst, channel->dst_bytes, packet_offset,
                                                               src_offset, bytes, 8);
    if (status != WEIR_OK) {
        return status;
    }
    weir_ll8_put(channel->dst + packet_offset, channel->src + src_offset, bytes, channel->put_epoch, coop);
    return WEIR_OK;
}

WEIR_FN weir_status weir_dev_memory_channel_unpack_ll8(const weir_dev_memory_channel *channel, uint64_t packet_offset,
                                                       uint64_t src_offset, uint64_t bytes, weir_coop coop)
{
    weir_status status = weir_dev_memory_channel_check_packets(channel, channel->packets, channel->packets_bytes,
                                                               packet_offset, src_offset, bytes, 8);
    if (status != WEIR_OK) {
        return status;
    }
    return weir_ll8_unpack(channel->src + src_offset, channel->packets + packet_offset, bytes, channel->unpack_epoch,
                           coop, channel->semaphore.control);
}

/* One value of the remote memory: element `index` of an array of that type at its start. */
WEIR_FN weir_status weir_dev_memory_channel_check_index(const weir_dev_memory_channel *channel, uint64_t index,
                                                        uint32_t width)
{
    if (index >= channel->dst_bytes / width) {
        return weir_dev_control_fail(channel->semaphore.control, WEIR_ERR_RANGE);
    }
    if ((uintptr_t)channel->dst % width != 0) {
        return weir_dev_control_fail(channel->semaphore.control, WEIR_ERR_INVALID);
    }
    return WEIR_OK;
}

WEIR_FN weir_status weir_dev_memory_channel_read_u32(const weir_dev_memory_channel *channel, uint64_t index,
                                                     uint32_t *value)
{
    weir_status status = weir_dev_memory_channel_check_index(channel, index, 4);
    if (status == WEIR_OK) {
        *value = weir_arch_load_relaxed_sys_u32((const uint32_t *)channel->dst + index);
    }
    return status;
}

WEIR_FN weir_status weir_dev_memory_channel_read_u64(const weir_dev_memory_channel *channel, uint64_t index,
                                                     uint64_t *value)
{
    weir_status status = weir_dev_memory_channel_check_index(channel, index, 8);
    if (status == WEIR_OK) {
        *value = weir_arch_load_relaxed_sys_u64((const uint64_t *)channel->dst + index);
    }
    return status;
}

WEIR_FN weir_status weir_dev_memory_channel_write_u32(const weir_dev_memory_channel *channel, uint64_t index,
                                                      uint32_t value)
{
    weir_status status = weir_dev_memory_channel_check_index(channel, index, 4);
    if (status == WEIR_OK) {
        weir_arch_store_relaxed_sys_u32((uint32_t *)channel->dst + index, value);
    }
    return status;
}

WEIR_FN weir_status weir_dev_memory_channel_write_u64(const weir_dev_memory_channel *channel, uint64_t index,
                                                      uint64_t value)
{
    weir_status status = weir_dev_memory_channel_check_index(channel, index, 8);
    if (status == WEIR_OK) {
        weir_arch_store_relaxed_sys_u64((uint64_t *)channel->dst + index, value);
    }
    return status;
}

/* The channel's semaphore; see weir/device/semaphore.h. */
WEIR_FN void weir_dev_memory_channel_signal(const weir_dev_memory_channel *channel)
{
    weir_dev_semaphore_signal(&channel->semaphore);
}

WEIR_FN void weir_dev_memory_channel_signal_relaxed(const weir_dev_memory_channel *channel)
{
    weir_dev_semaphore_signal_relaxed(&channel->semaphore);
}

WEIR_FN weir_status weir_dev_memory_channel_wait(const weir_dev_memory_channel *channel)
{
    return weir_dev_semaphore_wait(&channel->semaphore);
}

WEIR_FN weir_status weir_dev_memory_channel_wait_relaxed(const weir_dev_memory_channel *channel)
{
    return weir_dev_semaphore_wait_relaxed(&channel->semaphore);
}

WEIR_FN weir_status weir_dev_memory_channel_poll(const weir_dev_memory_channel *channel)
{
    return weir_dev_semaphore_poll(&channel->semaphore);
}

WEIR_FN weir_status weir_dev_memory_channel_wait_coop(const weir_dev_memory_channel *channel, weir_coop coop)
{
    return weir_dev_semaphore_wait_coop(&channel->semaphore, coop);
}

#endif
