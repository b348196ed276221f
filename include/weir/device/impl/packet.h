/* weir/device/impl/packet.h - packets: data and a flag that marks its arrival, written as one.
 *
 * A receiver that finds the flag has the data, without a signal or a second trip over the link. An LL16 packet is two
 * 8-byte words {4 bytes of data, 4 bytes of flag}, moved by one 16-byte access of two 8-byte elements. Only the 8-byte
 * words need to be atomic. Half of the bytes that cross the link are data.
 *
 * The flag comes from an epoch in device memory that advances by one with each call: a kernel can be replayed from a
 * graph. The epoch is the upper half of a 64-bit word. The whole call, or each block of a grid, or each single thread,
 * is a group of threads that can meet cheaply. Each of these groups adds its share of 2^32 to the word after all its
 * threads have read it. The shares of a call sum to 2^32: a thread whose group has not added its share cannot see the
 * upper half advance. Flags have their top bit set, so memory that was never written holds no packet. They repeat after
 * 2^31 calls. */
#ifndef WEIR_DEVICE_IMPL_PACKET_H
#define WEIR_DEVICE_IMPL_PACKET_H

#include "weir/device/impl/copy.h"

#define WEIR_PACKET_BATCH 4 /* packets that one thread reads at once, while it has enough left */
#define WEIR_EPOCH_ONE ((uint64_t)1 << 32)

/* A channel's epochs. */
enum { WEIR_EPOCH_PUT = 0, WEIR_EPOCH_UNPACK = 1 };

WEIR_FN uint32_t weir_packet_flag_of(uint64_t epoch) { return (uint32_t)(epoch >> 32) | 0x80000000u; }

WEIR_FN uint32_t weir_packet_flag(const uint64_t *epoch)
{
    return weir_packet_flag_of(weir_arch_load_relaxed_dev_u64(epoch));
}

/* The flag of a call that only unpacks, in two steps: nothing waits for the first one before the second one. A thread
 * that waits for no packet loads no epoch, for the loads of many warps delay each other; with its flag no look is due.
 */
WEIR_FN uint32_t weir_packet_begin_flag(const uint64_t *epoch, int waits)
{
    return waits ? (uint32_t)(weir_arch_load_relaxed_dev_u64(epoch) >> 32) : 0;
}

WEIR_FN uint32_t weir_packet_end_flag(uint32_t begun) { return begun | weir_arch_top_bit(); }

/* The check of a wait for the packets of the call with this flag: the communicator's error, or WEIR_OK. WEIR_OK if the
 * call is not due to check the control block. Each thread of the call calls it for itself. */
WEIR_FN weir_status weir_packet_look(uint32_t flag, weir_dev_control *control)
{
    return WEIR_UNLIKELY(weir_spin_is_due(flag)) ? weir_spin_look_once(control) : WEIR_OK;
}

/* Whether a count of puts has reached the put with `flag`. `last` is the flag of the last put counted. */
WEIR_FN int weir_packet_has_come(uint32_t last, uint32_t flag)
{
    return (last & 0x80000000u) != 0 && ((last - flag) & 0x7fffffffu) < 0x40000000u;
}

/* Whether the coop consists of several groups that meet cheaply, each of which adds a share. */
WEIR_FN int weir_packet_spans(weir_coop coop)
{
    return coop.scope == WEIR_COOP_GRID || coop.scope == WEIR_COOP_BLOCKS || coop.scope == WEIR_COOP_PART;
}

/* Advances epochs `first` to `last` by the share of the calling thread's group. All threads of the coop call it after
 * they have read the flags of this call, and before they wait for packets: there it costs no time. A grid or a part
 * must meet, or the kernel must end, before the next call with the same epoch. */
WEIR_FN void weir_packet_advance(uint64_t *epochs, uint32_t first, uint32_t last, weir_coop coop)
{
    uint32_t part = coop.scope == WEIR_COOP_PART ? coop.rank : coop.block;
    uint32_t parts = coop.scope == WEIR_COOP_PART ? coop.size : coop.blocks;
    int leads = coop.scope == WEIR_COOP_PART || coop.block_rank == 0;
    if (weir_packet_spans(coop)) {
        /* Group 0 adds the rest. Equal shares would take a division: 25 instructions in front of the first read. */
        const uint64_t share = part != 0 ? 1 : WEIR_EPOCH_ONE - (parts - 1);
        if (coop.scope != WEIR_COOP_PART) {
            weir_arch_block_sync(coop.host);
        }
        for (uint32_t i = first; leads && i <= last; i++) {
            weir_arch_add_relaxed_dev_u64(epochs + i, share);
        }
        return;
    }
    (void)weir_coop_sync(coop);
    for (uint32_t i = first; coop.rank == 0 && i <= last; i++) {
        weir_arch_add_relaxed_dev_u64(epochs + i, WEIR_EPOCH_ONE);
    }
    (void)weir_coop_sync(coop);
}

/* The data of one packet: `unit` bytes, or fewer at the end, padded with zeros. Loads of a whole word are under way at
 * once. */
WEIR_FN uint64_t weir_packet_gather(const char *src, uint64_t bytes, uint32_t unit)
{
    uint64_t data = 0;
    if (unit == 8 && bytes >= 8 && (uintptr_t)src % 4 == 0) {
        return (uint64_t)weir_arch_load_u32((const weir_alias_u32 *)(src + 4)) << 32 |
               weir_arch_load_u32((const weir_alias_u32 *)src);
    }
    if (unit == 8 && bytes >= 8 && (uintptr_t)src % 2 == 0) {
        WEIR_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            data |= (uint64_t)weir_arch_load_u16((const weir_alias_u16 *)(src + 2 * i)) << (16 * i);
        }
        return data;
    }
    for (uint32_t i = 0; i < unit && i < bytes; i++) {
        data |= (uint64_t)(unsigned char)weir_arch_load_byte(src + i) << (8 * i);
    }
    return data;
}

WEIR_FN void weir_packet_scatter(char *dst, uint64_t bytes, uint32_t unit, uint64_t data)
{
    const uint32_t address = (uint32_t)(uintptr_t)dst;
    const uint32_t step = bytes < unit || address % 2 != 0 ? 1 : address % 4 == 0 ? 4 : 2;
    WEIR_ROLLED
    for (uint32_t i = 0; i < unit && i < bytes; i += step) {
        if (step == 4) {
            weir_arch_store_u32((weir_alias_u32 *)(dst + i), (uint32_t)(data >> (8 * i)));
        } else if (step == 2) {
            weir_arch_store_u16((weir_alias_u16 *)(dst + i), (uint16_t)(data >> (8 * i)));
        } else {
            weir_arch_store_byte(dst + i, (char)(data >> (8 * i)));
        }
    }
}

WEIR_FN void weir_ll16_store(char *packet, uint64_t data, uint32_t flag)
{
    uint64_t high = (uint64_t)flag << 32;
    weir_arch_store_relaxed_sys_pair(packet, (data & 0xffffffffu) | high, (data >> 32) | high);
}

/* The same, a release: a thread that acquires the packet's first word sees earlier writes. */
WEIR_FN void weir_ll16_store_release(char *packet, uint64_t data, uint32_t flag)
{
    uint64_t high = (uint64_t)flag << 32;
    weir_arch_store_release_sys_pair(packet, (data & 0xffffffffu) | high, (data >> 32) | high);
}

WEIR_FN int weir_ll16_there(weir_vec16 words, uint32_t flag)
{
    return (uint32_t)(words.lo >> 32) == flag && (uint32_t)(words.hi >> 32) == flag;
}

WEIR_FN uint64_t weir_ll16_data(weir_vec16 words) { return (words.lo & 0xffffffffu) | words.hi << 32; }

/* ---- waits for packets end as weir_spin_step does; their callers make the note and report -------------------- */

/* The slow part of a wait for `count` LL16 packets, `stride` bytes apart. */
WEIR_FN_COLD weir_status weir_ll16_spin(const char *packets, uint64_t stride, uint32_t count, uint32_t flag,
                                        weir_dev_control *control)
{
    weir_spin spin = weir_spin_begin();
    for (uint32_t i = 0; i < count; i++) {
        while (!weir_ll16_there(weir_arch_load_relaxed_sys_pair(packets + i * stride), flag)) {
            weir_status status = weir_spin_step(&spin, control);
            if (status != WEIR_OK) {
                return status;
            }
        }
    }
    return WEIR_OK;
}

WEIR_FN weir_status weir_ll16_load(const char *packet, uint32_t flag, weir_dev_control *control, uint64_t *data)
{
    uint32_t reads = WEIR_ARCH_FAST_READS;
    weir_vec16 words = weir_arch_load_relaxed_sys_pair(packet);
    WEIR_ROLLED
    while (!weir_ll16_there(words, flag)) {
        if (weir_spin_is_long(&reads)) {
            weir_status status = weir_ll16_spin(packet, 0, 1, flag, control);
            if (status != WEIR_OK) {
                return status;
            }
            reads = WEIR_ARCH_FAST_READS;
        }
        words = weir_arch_load_relaxed_sys_pair(packet);
    }
    *data = (words.lo & 0xffffffffu) | words.hi << 32;
    return WEIR_OK;
}

/* Data of any size and alignment; the last packet is padded with zeros. */
WEIR_FN_COLD void weir_ll16_put_any(char *packets, const char *src, uint64_t bytes, uint32_t flag, uint32_t rank,
                                    uint32_t size)
{
    for (uint64_t i = rank; i * 8 < bytes; i += size) {
        weir_ll16_store(packets + i * 16, weir_packet_gather(src + i * 8, bytes - i * 8, 8), flag);
    }
}

WEIR_FN_COLD weir_status weir_ll16_unpack_any(char *dst, const char *packets, uint64_t bytes, uint32_t flag,
                                              uint32_t rank, uint32_t size, weir_dev_control *control)
{
    for (uint64_t i = rank; i * 8 < bytes; i += size) {
        uint64_t data = 0;
        weir_status status = weir_ll16_load(packets + i * 16, flag, control, &data);
        if (status != WEIR_OK) {
            return status;
        }
        weir_packet_scatter(dst + i * 8, bytes - i * 8, 8, data);
    }
    return WEIR_OK;
}

/* The data of the calling thread's first packet of a put, which it may load before it has the flag. */
WEIR_FN uint64_t weir_ll16_begin(const char *src, uint64_t bytes, weir_coop coop)
{
    const int whole = (((uintptr_t)src | bytes) & 7) == 0;
    return whole && coop.rank < bytes / 8 ? weir_arch_load_u64((const weir_alias_u64 *)src + coop.rank) : 0;
}

/* Puts, with the `data` of weir_ll16_begin. */
WEIR_FN void weir_ll16_put_begun(char *packets, const char *src, uint64_t bytes, uint32_t flag, uint64_t data,
                                 weir_coop coop)
{
    const uint64_t count = bytes / 8;
    if (WEIR_UNLIKELY((((uintptr_t)src | bytes) & 7) != 0)) {
        weir_ll16_put_any(packets, src, bytes, flag, coop.rank, coop.size);
        return;
    }
    uint64_t i = coop.rank;
    while (i < count) {
        weir_ll16_store(packets + 16 * i, data, flag);
        i += coop.size;
        if (i < count) {
            data = weir_arch_load_u64((const weir_alias_u64 *)src + i);
        }
    }
}

WEIR_FN void weir_ll16_put(char *packets, const char *src, uint64_t bytes, uint32_t flag, weir_coop coop)
{
    weir_ll16_put_begun(packets, src, bytes, flag, weir_ll16_begin(src, bytes, coop), coop);
}

WEIR_FN weir_status weir_ll16_unpack(char *dst, const char *packets, uint64_t bytes, uint32_t flag, weir_coop coop,
                                     weir_dev_control *control)
{
    if (WEIR_UNLIKELY((((uintptr_t)dst | bytes) & 7) != 0)) {
        return weir_ll16_unpack_any(dst, packets, bytes, flag, coop.rank, coop.size, control);
    }
    uint64_t count = bytes / 8;
    uint64_t stride = coop.size;
    uint64_t i = coop.rank;
    for (; i + (WEIR_PACKET_BATCH - 1) * stride < count; i += WEIR_PACKET_BATCH * stride) {
        weir_vec16 words[WEIR_PACKET_BATCH];
        uint32_t reads = WEIR_ARCH_FAST_READS;
        WEIR_ROLLED
        for (;;) {
            int there = 1;
            WEIR_UNROLL
            for (int k = 0; k < WEIR_PACKET_BATCH; k++) {
                words[k] = weir_arch_load_relaxed_sys_pair(packets + 16 * (i + k * stride));
            }
            WEIR_UNROLL
            for (int k = 0; k < WEIR_PACKET_BATCH; k++) {
                there &= weir_ll16_there(words[k], flag);
            }
            if (there) {
                break;
            }
            if (weir_spin_is_long(&reads)) {
                weir_status status = weir_ll16_spin(packets + 16 * i, 16 * stride, WEIR_PACKET_BATCH, flag, control);
                if (status != WEIR_OK) {
                    return status;
                }
                reads = WEIR_ARCH_FAST_READS;
            }
        }
        WEIR_UNROLL
        for (int k = 0; k < WEIR_PACKET_BATCH; k++) {
            weir_arch_store_u64((weir_alias_u64 *)dst + i + k * stride,
                                (words[k].lo & 0xffffffffu) | words[k].hi << 32);
        }
    }
    for (; i < count; i += stride) {
        uint64_t data = 0;
        weir_status status = weir_ll16_load(packets + 16 * i, flag, control, &data);
        if (WEIR_UNLIKELY(status != WEIR_OK)) {
            return status;
        }
        weir_arch_store_u64((weir_alias_u64 *)dst + i, data);
    }
    return WEIR_OK;
}

#endif
