/* weir/device/memory_channel.h - move data to and from a peer's memory, inside a kernel.
 *
 *     weir_dev_memory_channel_put(&args->channel, offset, offset, bytes, coop);   my memory -> the peer's
 *     weir_coop_sync(coop);                                                        all threads have written
 *     if (coop.rank == 0) {
 *         weir_dev_memory_channel_signal(&args->channel);
 *         status = weir_dev_memory_channel_wait(&args->channel);
 *     }
 *
 * A faster form needs semaphores that were created with `count` at least the number of blocks. No block then waits for
 * another block of its grid:
 *
 *     weir_coop blocks = weir_coop_blocks(coop);
 *     weir_dev_memory_channel channel = weir_dev_memory_channel_at(&args->channel, coop.block);
 *     weir_dev_memory_channel_put(&channel, offset, offset, bytes, blocks);
 *     weir_coop_sync(blocks);
 *     if (weir_coop_leads(blocks)) {
 *         weir_dev_memory_channel_signal(&channel);
 *         status = weir_dev_memory_channel_wait(&channel);
 *     }
 *
 * Offsets and sizes are bytes, of any value and alignment. An access that would leave the memory does nothing, returns
 * WEIR_ERR_RANGE, and makes that the communicator's sticky error.
 *
 * Threads:   all threads of a coop call put, get and the packet calls with the same arguments. One thread calls signal,
 *            wait, poll, read and write.
 * Blocking:  wait, unpack and exchange have the communicator's deadline; nothing else blocks.
 * Ownership: weir_memory_channel_device gives the handle. Kernels must not use it after weir_memory_channel_destroy.
 * Order:     put and get are ordinary accesses, ordered by the signal and the barriers around them. Packets carry their
 *            own order. A group that has written the local memory meets before it sends it. read and write are
 *            relaxed at system scope.
 * Errors:    WEIR_ERR_RANGE (also without a packet buffer), WEIR_ERR_INVALID (a misaligned packet or value, or lines
 *            on a link without lines), and the errors of waits: WEIR_ERR_TIMEOUT or the communicator's sticky error. */
#ifndef WEIR_DEVICE_MEMORY_CHANNEL_H
#define WEIR_DEVICE_MEMORY_CHANNEL_H

#include "weir/device/impl/channel_lines.h"

#undef WEIR_DEV_USED_memory_channel
#define WEIR_DEV_USED_memory_channel weir_dev_version_memory_channel

/* The error with which waits of the communicator end, or WEIR_OK; see weir_dev_semaphore_status. */
WEIR_FN weir_status weir_dev_memory_channel_status(const weir_dev_memory_channel *channel)
{
    return weir_dev_semaphore_status(&channel->semaphore);
}

/* Copies `bytes` of the local memory at `local_offset` into the remote memory at `remote_offset`. The remote offset,
 * the destination, comes first. */
WEIR_FN weir_status weir_dev_memory_channel_put(const weir_dev_memory_channel *channel, uint64_t remote_offset,
                                                uint64_t local_offset, uint64_t bytes, weir_coop coop)
{
    if (WEIR_UNLIKELY(!weir_dev_in_range(remote_offset, bytes, channel->remote_bytes) ||
                      !weir_dev_in_range(local_offset, bytes, channel->local_bytes))) {
        return weir_dev_memory_channel_leave(channel, WEIR_DOING_PUT, remote_offset, local_offset, bytes);
    }
    weir_copy_to_peer(channel->remote + remote_offset, channel->local + local_offset, bytes, coop);
    return WEIR_OK;
}

/* Copies `bytes` of the remote memory at `remote_offset` into the local memory at `local_offset`. The remote offset
 * comes first, as in put, where it is the destination; here it is the source. */
WEIR_FN weir_status weir_dev_memory_channel_get(const weir_dev_memory_channel *channel, uint64_t remote_offset,
                                                uint64_t local_offset, uint64_t bytes, weir_coop coop)
{
    if (WEIR_UNLIKELY(!weir_dev_in_range(remote_offset, bytes, channel->remote_bytes) ||
                      !weir_dev_in_range(local_offset, bytes, channel->local_bytes))) {
        return weir_dev_memory_channel_leave(channel, WEIR_DOING_GET, remote_offset, local_offset, bytes);
    }
    weir_copy(channel->local + local_offset, channel->remote + remote_offset, bytes, coop);
    return WEIR_OK;
}

/* Sends `bytes` of the local memory at `local_offset` as LL16 packets to the peer's packet buffer, which is this
 * channel's remote memory, at `packet_offset` bytes, a multiple of 16. 8 bytes of data take 16 bytes there. */
WEIR_FN weir_status weir_dev_memory_channel_put_ll16(const weir_dev_memory_channel *channel, uint64_t packet_offset,
                                                     uint64_t local_offset, uint64_t bytes, weir_coop coop)
{
    const uint32_t flag = weir_packet_flag(channel->epochs + WEIR_EPOCH_PUT);
    const int fits = weir_dev_memory_channel_fits(channel, 1, 0, local_offset, 0, bytes, packet_offset,
                                                  (bytes + 7) / 8 * 16, 16, coop);
    const char *src = channel->local + (fits ? local_offset : 0);
    const uint64_t first = weir_ll16_begin(src, fits ? bytes : 0, coop);
    if (WEIR_UNLIKELY(!fits)) {
        return weir_dev_memory_channel_refuse(channel, 1, 0, local_offset, 0, bytes, packet_offset, 16, coop);
    }
    weir_ll16_put_begun(channel->remote + packet_offset, src, bytes, flag, first, coop);
    weir_packet_advance(channel->epochs, WEIR_EPOCH_PUT, WEIR_EPOCH_PUT, coop);
    return WEIR_OK;
}

/* Waits for the LL16 packets of the peer's matching put at `packet_offset` of the local packet buffer, and
 * stores exactly `bytes` of data to the local memory at `local_offset`. The status is the calling thread's;
 * weir_coop_agree makes it the group's. A call of 0 bytes waits for nothing, and does not look
 * for the communicator's error. */
WEIR_FN weir_status weir_dev_memory_channel_unpack_ll16(const weir_dev_memory_channel *channel, uint64_t packet_offset,
                                                        uint64_t local_offset, uint64_t bytes, weir_coop coop)
{
    const int fits = weir_dev_memory_channel_fits(channel, 0, 1, 0, local_offset, bytes, packet_offset,
                                                  (bytes + 7) / 8 * 16, 16, coop);
    /* The place of the epoch depends on the checks, so ptxas does not load it among their own loads. A refused call
     * does not use the flag. */
    const uint32_t begun = weir_packet_begin_flag(channel->epochs + (fits ? WEIR_EPOCH_UNPACK : WEIR_EPOCH_PUT),
                                                  coop.rank < (bytes + 7) / 8);
    if (WEIR_UNLIKELY(!fits)) {
        return weir_dev_memory_channel_refuse(channel, 0, 1, 0, local_offset, bytes, packet_offset, 16, coop);
    }
    weir_packet_advance(channel->epochs, WEIR_EPOCH_UNPACK, WEIR_EPOCH_UNPACK, coop);
    const uint32_t flag = weir_packet_end_flag(begun);
    weir_status status = weir_ll16_unpack(channel->local + local_offset, channel->packets + packet_offset, bytes, flag,
                                          coop, channel->semaphore.control);
    return weir_dev_memory_channel_end_packets(channel, WEIR_DOING_UNPACK, packet_offset, bytes, flag, status);
}

/* Sends `bytes` of the local memory at `put_offset`, and receives `bytes` at `unpack_offset`, while the peer does the
 * same. Needs neither signal nor wait. The calls use two halves of the packet buffers in turn, at `packet_offset` of
 * both; 8 bytes of data take 2 * 16 bytes. A rank that got the peer's packets knows that the peer has taken those of
 * the call before. A rank may be one exchange ahead of the other, even if a kernel ends in between. So both sides call
 * with groups of one shape and with the same `bytes`. They may change these only after they have met in another way, by
 * signals or on the host: halves of another size would overlap packets that the peer has not taken yet. */
WEIR_FN weir_status weir_dev_memory_channel_exchange_ll16(const weir_dev_memory_channel *channel,
                                                          uint64_t packet_offset, uint64_t put_offset,
                                                          uint64_t unpack_offset, uint64_t bytes, weir_coop coop)
{
    const uint32_t put_flag = weir_packet_flag(channel->epochs + WEIR_EPOCH_PUT);
    const uint32_t unpack_flag = weir_packet_flag(channel->epochs + WEIR_EPOCH_UNPACK);
    const uint64_t half = (bytes + 7) / 8 * 16;
    const int fits = weir_dev_memory_channel_fits(channel, 1, 1, put_offset, unpack_offset, bytes, packet_offset,
                                                  2 * half, 16, coop);
    const char *src = channel->local + (fits ? put_offset : 0);
    const uint64_t first = weir_ll16_begin(src, fits ? bytes : 0, coop);
    if (WEIR_UNLIKELY(!fits)) {
        return weir_dev_memory_channel_refuse(channel, 1, 1, put_offset, unpack_offset, bytes, packet_offset, 16, coop);
    }
    weir_ll16_put_begun(channel->remote + packet_offset + (put_flag % 2 != 0 ? half : 0), src, bytes, put_flag, first,
                        coop);
    weir_packet_advance(channel->epochs, WEIR_EPOCH_PUT, WEIR_EPOCH_UNPACK, coop);
    weir_status status = weir_ll16_unpack(channel->local + unpack_offset,
                                          channel->packets + packet_offset + (unpack_flag % 2 != 0 ? half : 0), bytes,
                                          unpack_flag, coop, channel->semaphore.control);
    return weir_dev_memory_channel_end_packets(channel, WEIR_DOING_EXCHANGE, packet_offset, bytes, unpack_flag, status);
}

/* put, unpack and exchange with 128-byte lines (impl/line.h): 120 bytes of data take 128 bytes, at addresses that are
 * multiples of 128 at both ends. They need a connection that keeps lines whole, and groups of whole warps;
 * WEIR_ERR_INVALID otherwise. exchange_lines has the same requirements on both sides as exchange_ll16. Bytes of a
 * packet buffer that have held lines cannot hold packets any more: data of a line may look like any flag. */
WEIR_FN weir_status weir_dev_memory_channel_put_lines(const weir_dev_memory_channel *channel, uint64_t line_offset,
                                                      uint64_t local_offset, uint64_t bytes, weir_coop coop)
{
    return weir_dev_memory_channel_run_lines(channel, 1, 0, line_offset, local_offset, local_offset, bytes, 1, coop);
}

WEIR_FN weir_status weir_dev_memory_channel_unpack_lines(const weir_dev_memory_channel *channel, uint64_t line_offset,
                                                         uint64_t local_offset, uint64_t bytes, weir_coop coop)
{
    return weir_dev_memory_channel_run_lines(channel, 0, 1, line_offset, local_offset, local_offset, bytes, 1, coop);
}

WEIR_FN weir_status weir_dev_memory_channel_exchange_lines(const weir_dev_memory_channel *channel, uint64_t line_offset,
                                                           uint64_t put_offset, uint64_t unpack_offset, uint64_t bytes,
                                                           weir_coop coop)
{
    return weir_dev_memory_channel_run_lines(channel, 1, 1, line_offset, put_offset, unpack_offset, bytes, 2, coop);
}

/* read and write: one value of the remote memory, element `index` of an array of that type at its start. */
WEIR_FN weir_status weir_dev_memory_channel_read_u32(const weir_dev_memory_channel *channel, uint64_t index,
                                                     uint32_t *value)
{
    weir_status status = weir_dev_memory_channel_check_index(channel, WEIR_DOING_READ, index, 4);
    if (status == WEIR_OK) {
        *value = weir_arch_load_relaxed_sys_u32((const uint32_t *)channel->remote + index);
    }
    return status;
}

WEIR_FN weir_status weir_dev_memory_channel_read_u64(const weir_dev_memory_channel *channel, uint64_t index,
                                                     uint64_t *value)
{
    weir_status status = weir_dev_memory_channel_check_index(channel, WEIR_DOING_READ, index, 8);
    if (status == WEIR_OK) {
        *value = weir_arch_load_relaxed_sys_u64((const uint64_t *)channel->remote + index);
    }
    return status;
}

WEIR_FN weir_status weir_dev_memory_channel_write_u32(const weir_dev_memory_channel *channel, uint64_t index,
                                                      uint32_t value)
{
    weir_status status = weir_dev_memory_channel_check_index(channel, WEIR_DOING_WRITE, index, 4);
    if (status == WEIR_OK) {
        weir_arch_store_relaxed_sys_u32((uint32_t *)channel->remote + index, value);
    }
    return status;
}

WEIR_FN weir_status weir_dev_memory_channel_write_u64(const weir_dev_memory_channel *channel, uint64_t index,
                                                      uint64_t value)
{
    weir_status status = weir_dev_memory_channel_check_index(channel, WEIR_DOING_WRITE, index, 8);
    if (status == WEIR_OK) {
        weir_arch_store_relaxed_sys_u64((uint64_t *)channel->remote + index, value);
    }
    return status;
}

/* The channel's semaphore; see weir/device/semaphore.h. Kernels with many rounds keep the counts in registers and take
 * the handle's member: weir_dev_semaphore_begin(&channel->semaphore). */
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

/* Channel `index` of a set: the same memories and packet buffer, with its own semaphore and packet epochs. Blocks that
 * use one index each need not wait for each other. Index 0 shares its semaphore and epochs with the un-indexed channel;
 * never use both at once. Bytes of a packet buffer serve one index, and a group within a block. A larger group gets
 * WEIR_ERR_INVALID: it uses the un-indexed channel, which divides packets among blocks. Errors as
 * weir_dev_semaphore_at. */
WEIR_FN weir_dev_memory_channel weir_dev_memory_channel_at(const weir_dev_memory_channel *channel, uint32_t index)
{
    weir_dev_memory_channel at = *channel;
    at.semaphore = weir_dev_semaphore_at(&channel->semaphore, index);
    at.indexed = 1;
    if (index < channel->semaphore.count) {
        at.epochs = (uint64_t *)((char *)at.epochs + (uint64_t)index * WEIR_CELL_BYTES);
    }
    return at;
}

WEIR_FN weir_status weir_dev_memory_channel_wait_coop(const weir_dev_memory_channel *channel, weir_coop coop)
{
    return weir_dev_semaphore_wait_coop(&channel->semaphore, coop);
}

#endif
