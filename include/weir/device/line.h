/* weir/device/line.h - 128-byte lines: 120 bytes of data and the flag that says they are there.
 *
 * As packets, lines need no signal, but 15 of 16 bytes that cross the link are data. They need a link that keeps a
 * 128-byte store whole (agreed when the connection is made, weir_connection_keeps_lines) and groups of whole warps:
 * eight lanes of a GPU write a line with one instruction. On a CPU one thread does, the flag last.
 *
 * A line is 16 words of 8 bytes. Lane l holds word l of its data and word l + 8, so that the lanes read and write
 * data without gaps; lane 7's second word is the flag, whose halves both are the packet flag of the call's epoch
 * (weir/device/packet.h). */
#ifndef WEIR_DEVICE_LINE_H
#define WEIR_DEVICE_LINE_H

#include "weir/device/packet.h"

#define WEIR_LINE_BYTES 128u
#define WEIR_LINE_DATA 120u
#define WEIR_LINE_WORDS 15u
#define WEIR_LINE_BATCH 4u /* lines that a lane has in flight */

/* Whether the group consists of whole warps. */
WEIR_FN int weir_line_fits(weir_coop coop)
{
    return coop.scope != WEIR_COOP_PART && coop.size % weir_arch_warp_size() == 0 &&
           coop.block_size % weir_arch_warp_size() == 0;
}

WEIR_FN uint64_t weir_line_count(uint64_t bytes)
{
    return (bytes + WEIR_LINE_DATA - 1) / WEIR_LINE_DATA;
}

WEIR_FN uint64_t weir_line_flag(uint32_t flag)
{
    return (uint64_t)flag << 32 | flag;
}

/* Whether the lane finds no flag that is not the right one: all lanes but the last have none. */
WEIR_FN int weir_line_there(const weir_vec16 *parts, uint32_t lane, uint64_t flag)
{
    return lane != WEIR_ARCH_LINE_LANES - 1 || parts[WEIR_ARCH_LINE_PARTS - 1].hi == flag;
}

/* The calling lane's part of a line whose data is all there and aligned to 8 bytes. */
WEIR_FN void weir_line_read(weir_vec16 *parts, const char *data, uint32_t lane, uint64_t flag)
{
    const weir_alias_u64 *words = (const weir_alias_u64 *)data + lane * WEIR_ARCH_LINE_PARTS;
    WEIR_UNROLL
    for (uint32_t p = 0; p < WEIR_ARCH_LINE_PARTS; p++) {
        parts[p].lo = weir_arch_load_u64(words + p);
        parts[p].hi = lane * WEIR_ARCH_LINE_PARTS + p == 7 ? flag : weir_arch_load_u64(words + p + 8);
    }
}

WEIR_FN void weir_line_write(char *data, uint32_t lane, const weir_vec16 *parts)
{
    weir_alias_u64 *words = (weir_alias_u64 *)data + lane * WEIR_ARCH_LINE_PARTS;
    WEIR_UNROLL
    for (uint32_t p = 0; p < WEIR_ARCH_LINE_PARTS; p++) {
        weir_arch_store_u64(words + p, parts[p].lo);
        if (lane * WEIR_ARCH_LINE_PARTS + p != 7) {
            weir_arch_store_u64(words + p + 8, parts[p].hi);
        }
    }
}

/* Word `word` of `left` bytes of data, zero beyond their end. Data that is `whole` is aligned to 8 bytes, and so is its
 * size. */
WEIR_FN uint64_t weir_line_read_word(const char *data, uint64_t left, uint32_t word, int whole)
{
    if (8 * word >= left) {
        return 0;
    }
    return whole ? weir_arch_load_u64((const weir_alias_u64 *)data + word)
                 : weir_packet_gather(data + 8 * word, left - 8 * word, 8);
}

WEIR_FN void weir_line_write_word(char *data, uint64_t left, uint32_t word, int whole, uint64_t value)
{
    if (8 * word >= left) {
        return;
    }
    if (whole) {
        weir_arch_store_u64((weir_alias_u64 *)data + word, value);
    } else {
        weir_packet_scatter(data + 8 * word, left - 8 * word, 8, value);
    }
}

/* Sends line `line` of `bytes` of data, which may be the last one, or beyond it. */
WEIR_FN void weir_line_put_one(char *lines, const char *src, uint64_t bytes, uint64_t flag, uint64_t line,
                               uint32_t lane, int whole)
{
    weir_vec16 parts[WEIR_ARCH_LINE_PARTS];
    uint64_t at = line * WEIR_LINE_DATA;
    uint64_t left = at < bytes ? bytes - at : 0;
    WEIR_UNROLL
    for (uint32_t p = 0; p < WEIR_ARCH_LINE_PARTS; p++) {
        uint32_t word = lane * WEIR_ARCH_LINE_PARTS + p;
        parts[p].lo = weir_line_read_word(src + at, left, word, whole);
        parts[p].hi = word == 7 ? flag : weir_line_read_word(src + at, left, word + 8, whole);
    }
    weir_arch_warp_converge();
    if (left != 0) {
        weir_arch_store_line(lines + line * WEIR_LINE_BYTES, lane, parts);
    }
}

/* Sends WEIR_LINE_BATCH lines, `stride` apart, all of them full. */
WEIR_FN void weir_line_put_batch(char *lines, const char *src, uint64_t flag, uint64_t line, uint32_t stride,
                                 uint32_t lane)
{
    weir_vec16 parts[WEIR_LINE_BATCH][WEIR_ARCH_LINE_PARTS];
    WEIR_UNROLL
    for (uint32_t k = 0; k < WEIR_LINE_BATCH; k++) {
        weir_line_read(parts[k], src + (line + (uint64_t)k * stride) * WEIR_LINE_DATA, lane, flag);
    }
    weir_arch_warp_converge();
    WEIR_UNROLL
    for (uint32_t k = 0; k < WEIR_LINE_BATCH; k++) {
        weir_arch_store_line(lines + (line + (uint64_t)k * stride) * WEIR_LINE_BYTES, lane, parts[k]);
    }
}

/* The slow part of a wait for `count` lines, `stride` apart, of which each lane's group waits while `wanted`; all lanes
 * of the warp return together. */
WEIR_FN_COLD weir_status weir_line_spin(const char *lines, uint64_t stride, uint32_t count, uint64_t flag,
                                        uint32_t lane, int wanted, weir_dev_control *control)
{
    weir_spin spin = weir_spin_begin();
    for (;;) {
        int there = 1;
        for (uint32_t k = 0; wanted && k < count; k++) {
            weir_vec16 parts[WEIR_ARCH_LINE_PARTS];
            weir_arch_load_line(lines + k * stride, lane, parts);
            there &= weir_line_there(parts, lane, flag);
        }
        if (weir_arch_warp_all(there)) {
            return WEIR_OK;
        }
        weir_status status = weir_spin_next(&spin, control);
        if (weir_arch_warp_or(status != WEIR_OK) != 0) {
            return status != WEIR_OK ? status : weir_dev_control_error(control);
        }
    }
}

/* Waits for line `line`, which may be the last one, or beyond it, and stores its data. */
WEIR_FN weir_status weir_line_unpack_one(char *dst, const char *lines, uint64_t bytes, uint64_t flag, uint64_t line,
                                         uint32_t lane, int whole, weir_dev_control *control)
{
    weir_vec16 parts[WEIR_ARCH_LINE_PARTS];
    uint64_t at = line * WEIR_LINE_DATA;
    int wanted = at < bytes;
    uint32_t reads = WEIR_ARCH_FAST_READS;
    lines += line * WEIR_LINE_BYTES;
    weir_arch_warp_converge();
    WEIR_ROLLED
    for (;;) {
        int there = 1;
        if (wanted) {
            weir_arch_load_line(lines, lane, parts);
            there = weir_line_there(parts, lane, flag);
        }
        if (weir_arch_warp_all(there)) {
            break;
        }
        if (weir_spin_is_long(&reads)) {
            weir_status status = weir_line_spin(lines, 0, 1, flag, lane, wanted, control);
            if (status != WEIR_OK) {
                return status;
            }
            reads = WEIR_ARCH_FAST_READS;
        }
    }
    WEIR_UNROLL
    for (uint32_t p = 0; wanted && p < WEIR_ARCH_LINE_PARTS; p++) {
        uint32_t word = lane * WEIR_ARCH_LINE_PARTS + p;
        weir_line_write_word(dst + at, bytes - at, word, whole, parts[p].lo);
        if (word != 7) {
            weir_line_write_word(dst + at, bytes - at, word + 8, whole, parts[p].hi);
        }
    }
    return WEIR_OK;
}

/* Waits for WEIR_LINE_BATCH lines, `stride` apart, all of them full, and stores their data. */
WEIR_FN weir_status weir_line_unpack_batch(char *dst, const char *lines, uint64_t flag, uint64_t line, uint32_t stride,
                                           uint32_t lane, weir_dev_control *control)
{
    weir_vec16 parts[WEIR_LINE_BATCH][WEIR_ARCH_LINE_PARTS];
    uint32_t reads = WEIR_ARCH_FAST_READS;
    uint64_t apart = (uint64_t)stride * WEIR_LINE_BYTES;
    lines += line * WEIR_LINE_BYTES;
    weir_arch_warp_converge();
    WEIR_ROLLED
    for (;;) {
        int there = 1;
        WEIR_UNROLL
        for (uint32_t k = 0; k < WEIR_LINE_BATCH; k++) {
            weir_arch_load_line(lines + k * apart, lane, parts[k]);
        }
        WEIR_UNROLL
        for (uint32_t k = 0; k < WEIR_LINE_BATCH; k++) {
            there &= weir_line_there(parts[k], lane, flag);
        }
        if (weir_arch_warp_all(there)) {
            break;
        }
        if (weir_spin_is_long(&reads)) {
            weir_status status = weir_line_spin(lines, apart, WEIR_LINE_BATCH, flag, lane, 1, control);
            if (status != WEIR_OK) {
                return status;
            }
            reads = WEIR_ARCH_FAST_READS;
        }
    }
    WEIR_UNROLL
    for (uint32_t k = 0; k < WEIR_LINE_BATCH; k++) {
        weir_line_write(dst + (line + (uint64_t)k * stride) * WEIR_LINE_DATA, lane, parts[k]);
    }
    return WEIR_OK;
}

/* What one thread of `size` sends and receives: `src` as lines to `out`, and from lines at `in` to `dst`, `bytes` each
 * way; either way is left out where its lines are NULL. What comes is unpacked one batch behind what is sent, so that
 * both directions of the link are busy. Batches are of full lines; the rest goes line by line. */
WEIR_FN weir_status weir_line_run(char *out, const char *src, uint64_t out_flag, char *dst, const char *in,
                                  uint64_t in_flag, uint64_t bytes, uint32_t rank, uint32_t size, int whole,
                                  weir_dev_control *control)
{
    uint32_t lane = rank % WEIR_ARCH_LINE_LANES;
    uint32_t stride = size / WEIR_ARCH_LINE_LANES;
    uint32_t in_warp = weir_arch_warp_size() / WEIR_ARCH_LINE_LANES;
    uint32_t batch = WEIR_LINE_BATCH * stride;
    /* The warp's first line decides what its lanes do, so that they do the same. */
    uint32_t first = rank / weir_arch_warp_size() * in_warp;
    uint32_t mine = rank / WEIR_ARCH_LINE_LANES - first;
    uint64_t count = weir_line_count(bytes);
    /* From here on a warp's batch has lines that are not full. */
    int64_t full = whole ? (int64_t)(bytes / WEIR_LINE_DATA) - (int64_t)(batch - stride + in_warp) : -1;
    uint64_t sent = out != NULL ? first : count;
    uint64_t received = in != NULL ? first : count;
    while (sent < count || received < count) {
        if (sent < count) {
            if ((int64_t)sent <= full) {
                weir_line_put_batch(out, src, out_flag, sent + mine, stride, lane);
                sent += batch;
            } else {
                weir_line_put_one(out, src, bytes, out_flag, sent + mine, lane, whole);
                sent += stride;
            }
        }
        if (received < count && (sent >= count || sent - received > batch)) {
            weir_status status;
            if ((int64_t)received <= full) {
                status = weir_line_unpack_batch(dst, in, in_flag, received + mine, stride, lane, control);
                received += batch;
            } else {
                status = weir_line_unpack_one(dst, in, bytes, in_flag, received + mine, lane, whole, control);
                received += stride;
            }
            if (status != WEIR_OK) {
                return status;
            }
        }
    }
    return WEIR_OK;
}

/* The same for data of any size and alignment. */
WEIR_FN_COLD weir_status weir_line_run_any(char *out, const char *src, uint64_t out_flag, char *dst, const char *in,
                                           uint64_t in_flag, uint64_t bytes, uint32_t rank, uint32_t size,
                                           weir_dev_control *control)
{
    return weir_line_run(out, src, out_flag, dst, in, in_flag, bytes, rank, size, 0, control);
}

#endif
