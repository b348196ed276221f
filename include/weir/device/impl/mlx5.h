/* weir/device/impl/mlx5.h - the formats of an mlx5 NIC: requests (WQEs), doorbells and completions (CQEs).
 *
 * These are functions of values: they load and store nothing and order nothing. A request is a row of segments of 16
 * bytes, each a weir_vec16 as it goes to memory. NICs are big-endian, and the functions return big-endian values;
 * machines with such NICs and GPUs are little-endian. A send ring consists of blocks of four segments; the number of
 * blocks is a power of two. A request begins with a block. Its segments wrap around at the ring's end, and the NIC does
 * not read the rest of its last block. Blocks are numbered in 64 bits and never reduced; the NIC sees 16 bits.
 *
 *   operation        segments
 *   write, read      control, remote, data; no data segment for 0 bytes
 *   inline write     control, remote, one or more of inline data
 *   fetch-add        control, remote, atomic, data (8 bytes, which get the old value)
 *   nothing (NOP)    control
 *
 * A write with immediate has 32 bits in its control segment and completes a receive at the peer. An entry of a receive
 * ring is one data segment or more; for a write with immediate the list's end alone is enough.
 *
 * Formats: rdma-core, providers/mlx5/mlx5dv.h. test/swnic compares each with that header's own functions. */
#ifndef WEIR_DEVICE_IMPL_MLX5_H
#define WEIR_DEVICE_IMPL_MLX5_H

#include "weir/device/arch.h"
#include "weir/status.h"

#define WEIR_MLX5_SEGMENT 16u
#define WEIR_MLX5_BLOCK 64u
#define WEIR_MLX5_BLOCK_SEGMENTS 4u
#define WEIR_MLX5_SEGMENTS_MAX 63u      /* of a request */
#define WEIR_MLX5_BYTES_MAX 0x7fffffffu /* of a data segment, which must not have 0 */

/* Operations. */
#define WEIR_MLX5_NOP 0x00u
#define WEIR_MLX5_WRITE 0x08u
#define WEIR_MLX5_WRITE_IMMEDIATE 0x09u
#define WEIR_MLX5_READ 0x10u
#define WEIR_MLX5_FETCH_ADD 0x12u

/* Flags of a request. */
#define WEIR_MLX5_COMPLETE 0x08u /* makes a completion; without it only a failure makes one */
#define WEIR_MLX5_FENCE 0x80u    /* begins when all earlier requests are done, reads and atomics too */

/* Kinds of completions. */
#define WEIR_MLX5_DONE 0x0u
#define WEIR_MLX5_RECEIVED 0x1u /* a write with immediate */
#define WEIR_MLX5_FAILED 0xdu
#define WEIR_MLX5_RECEIVE_FAILED 0xeu
#define WEIR_MLX5_NONE 0xfu /* an entry that was never written */

/* Syndromes of failed requests: enum of mlx5dv.h. */
#define WEIR_MLX5_LOCAL_LENGTH 0x01u
#define WEIR_MLX5_LOCAL_OPERATION 0x02u
#define WEIR_MLX5_LOCAL_PROTECTION 0x04u
#define WEIR_MLX5_FLUSHED 0x05u /* after the failure of another request */
#define WEIR_MLX5_BAD_RESPONSE 0x10u
#define WEIR_MLX5_LOCAL_ACCESS 0x11u
#define WEIR_MLX5_REMOTE_REQUEST 0x12u
#define WEIR_MLX5_REMOTE_ACCESS 0x13u
#define WEIR_MLX5_REMOTE_OPERATION 0x14u
#define WEIR_MLX5_NO_ANSWER 0x15u
#define WEIR_MLX5_NOT_READY 0x16u
#define WEIR_MLX5_REMOTE_ABORT 0x22u

/* ---- requests --------------------------------------------------------------------------------------- */

WEIR_FN weir_vec16 weir_mlx5_words(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    weir_vec16 v;
    v.lo = (uint64_t)weir_arch_swap_u32(b) << 32 | weir_arch_swap_u32(a);
    v.hi = (uint64_t)weir_arch_swap_u32(d) << 32 | weir_arch_swap_u32(c);
    return v;
}

/* The control segment of a request that begins with block `index`, on queue pair `qpn`, of `segments` in all. */
WEIR_FN weir_vec16 weir_mlx5_control(uint32_t operation, uint64_t index, uint32_t qpn, uint32_t segments,
                                     uint32_t flags)
{
    return weir_mlx5_words((uint32_t)(index & 0xffff) << 8 | operation, qpn << 8 | segments, flags, 0);
}

/* The control segment of a write with immediate. */
WEIR_FN weir_vec16 weir_mlx5_with_immediate(weir_vec16 control, uint32_t immediate)
{
    control.hi |= (uint64_t)weir_arch_swap_u32(immediate) << 32;
    return control;
}

WEIR_FN weir_vec16 weir_mlx5_remote(uint64_t address, uint32_t rkey)
{
    return weir_mlx5_words((uint32_t)(address >> 32), (uint32_t)address, rkey, 0);
}

/* 1 to WEIR_MLX5_BYTES_MAX bytes. */
WEIR_FN weir_vec16 weir_mlx5_data(uint64_t address, uint32_t lkey, uint32_t bytes)
{
    return weir_mlx5_words(bytes, lkey, (uint32_t)(address >> 32), (uint32_t)address);
}

/* Ends a list of data segments in an entry of a receive ring that has room for more. */
WEIR_FN weir_vec16 weir_mlx5_data_end(void) { return weir_mlx5_words(0, 0x100, 0, 0); }

WEIR_FN weir_vec16 weir_mlx5_atomic(uint64_t add)
{
    return weir_mlx5_words((uint32_t)(add >> 32), (uint32_t)add, 0, 0);
}

/* The `bytes` (1 to 8) low bytes of a value. They arrive in this machine's byte order. */
WEIR_FN weir_vec16 weir_mlx5_inline_value(uint64_t value, uint32_t bytes)
{
    weir_vec16 v;
    uint64_t low = bytes >= 8 ? value : value & (((uint64_t)1 << 8 * bytes) - 1);
    v.lo = low << 32 | weir_arch_swap_u32(0x80000000u | bytes);
    v.hi = low >> 32;
    return v;
}

/* Segments of a write of `bytes` inline bytes, at least one. */
WEIR_FN uint32_t weir_mlx5_inline_segments(uint32_t bytes)
{
    return 2 + (bytes + 4 + WEIR_MLX5_SEGMENT - 1) / WEIR_MLX5_SEGMENT;
}

/* The `part`-th segment, from 0, of inline data. */
WEIR_FN weir_vec16 weir_mlx5_inline_data(const uint8_t *data, uint32_t bytes, uint32_t part)
{
    weir_vec16 v = { 0, 0 };
    uint32_t begin = part == 0 ? 4 : 0;
    if (part == 0) {
        v.lo = weir_arch_swap_u32(0x80000000u | bytes);
    }
    for (uint32_t i = begin; i < WEIR_MLX5_SEGMENT && WEIR_MLX5_SEGMENT * part + i - 4 < bytes; i++) {
        uint64_t byte = (uint64_t)data[WEIR_MLX5_SEGMENT * part + i - 4] << 8 * (i % 8);
        v.lo |= i < 8 ? byte : 0;
        v.hi |= i < 8 ? 0 : byte;
    }
    return v;
}

/* ---- rings and doorbells ---------------------------------------------------------------------------- */

/* Blocks of a request. */
WEIR_FN uint32_t weir_mlx5_blocks(uint32_t segments)
{
    return (segments + WEIR_MLX5_BLOCK_SEGMENTS - 1) / WEIR_MLX5_BLOCK_SEGMENTS;
}

/* The place of segment `segment` of a request that begins with block `index` in a ring of `blocks`, in segments. */
WEIR_FN uint64_t weir_mlx5_place(uint64_t index, uint32_t segment, uint32_t blocks)
{
    return (index * WEIR_MLX5_BLOCK_SEGMENTS + segment) & ((uint64_t)blocks * WEIR_MLX5_BLOCK_SEGMENTS - 1);
}

/* The doorbell record's word when all blocks, or all entries of a receive ring, before `next` are ready. */
WEIR_FN uint32_t weir_mlx5_record(uint64_t next) { return weir_arch_swap_u32((uint32_t)(next & 0xffff)); }

/* The doorbell for the same. The first 8 bytes of the last request's control segment serve as well. */
WEIR_FN uint64_t weir_mlx5_doorbell(uint64_t next, uint32_t qpn)
{
    return weir_mlx5_words((uint32_t)(next & 0xffff) << 8, qpn << 8, 0, 0).lo;
}

/* ---- completions: `tail` is the word at byte 60 of an entry, `error` the one at byte 52 -------------- */

WEIR_FN uint32_t weir_mlx5_kind(uint32_t tail) { return tail >> 28; }

/* Whether entry number `number` of a queue of `count`, a power of two, has been written in this pass. */
WEIR_FN uint32_t weir_mlx5_is_new(uint32_t tail, uint64_t number, uint32_t count)
{
    return weir_mlx5_kind(tail) != WEIR_MLX5_NONE && (tail >> 24 & 1) == ((number & count) != 0);
}

/* The first block of the completed request; `oldest` is the first block that is not complete. */
WEIR_FN uint64_t weir_mlx5_completed(uint32_t tail, uint64_t oldest)
{
    uint32_t counter = (tail & 0xff) << 8 | (tail >> 8 & 0xff);
    return oldest + ((counter - (uint32_t)oldest) & 0xffff);
}

/* The queue pair of a receive; `queue` is the word at byte 56. The immediate is at byte 36, the byte count at byte 44,
 * both swapped. */
WEIR_FN uint32_t weir_mlx5_receiver(uint32_t queue) { return weir_arch_swap_u32(queue) & 0xffffff; }

WEIR_FN uint32_t weir_mlx5_syndrome(uint32_t error) { return error >> 24; }

WEIR_FN uint32_t weir_mlx5_vendor(uint32_t error) { return error >> 16 & 0xff; }

/* The status for a syndrome: it shows which side is at fault. */
WEIR_FN weir_status weir_mlx5_status(uint32_t syndrome)
{
    switch (syndrome) {
    case WEIR_MLX5_LOCAL_PROTECTION:
    case WEIR_MLX5_LOCAL_ACCESS:
        return WEIR_ERR_INVALID;
    case WEIR_MLX5_LOCAL_LENGTH:
    case WEIR_MLX5_LOCAL_OPERATION:
    case WEIR_MLX5_BAD_RESPONSE:
        return WEIR_ERR_DEVICE;
    default:
        return WEIR_ERR_REMOTE;
    }
}

#endif
