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

/* Whose lines the calling lane works on: `first`, and every `stride`-th. `warp_first` is the first of its warp, whose
 * lanes go round together. */
typedef struct weir_line_place {
    uint64_t first;
    uint64_t warp_first;
    uint64_t stride;
    uint32_t lane;
} weir_line_place;

WEIR_FN weir_line_place weir_line_place_of(weir_coop coop)
{
    weir_line_place place;
    place.first = coop.rank / WEIR_ARCH_LINE_LANES;
    place.warp_first = coop.rank / weir_arch_warp_size() * weir_arch_warp_size() / WEIR_ARCH_LINE_LANES;
    place.stride = coop.size / WEIR_ARCH_LINE_LANES;
    place.lane = coop.rank % WEIR_ARCH_LINE_LANES;
    return place;
}

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

/* Word `word` of the data, zero beyond its end. Data that is `whole` is aligned to 8 bytes, and so is its size. */
WEIR_FN uint64_t weir_line_read_word(const char *src, uint64_t bytes, uint64_t word, int whole)
{
    if (8 * word >= bytes) {
        return 0;
    }
    return whole ? weir_arch_load_u64((const weir_alias_u64 *)src + word)
                 : weir_packet_gather(src + 8 * word, bytes - 8 * word, 8);
}

WEIR_FN void weir_line_write_word(char *dst, uint64_t bytes, uint64_t word, int whole, uint64_t data)
{
    if (8 * word >= bytes) {
        return;
    }
    if (whole) {
        weir_arch_store_u64((weir_alias_u64 *)dst + word, data);
    } else {
        weir_packet_scatter(dst + 8 * word, bytes - 8 * word, 8, data);
    }
}

/* The calling lane's part of a line. */
WEIR_FN void weir_line_read(weir_vec16 *parts, const char *src, uint64_t bytes, uint64_t line, uint32_t lane,
                            uint64_t flag, int whole)
{
    WEIR_UNROLL
    for (uint32_t p = 0; p < WEIR_ARCH_LINE_PARTS; p++) {
        uint32_t unit = lane * WEIR_ARCH_LINE_PARTS + p;
        uint64_t word = line * WEIR_LINE_WORDS + unit;
        parts[p].lo = weir_line_read_word(src, bytes, word, whole);
        parts[p].hi = unit == 7 ? flag : weir_line_read_word(src, bytes, word + 8, whole);
    }
}

WEIR_FN void weir_line_write(char *dst, uint64_t bytes, uint64_t line, uint32_t lane, const weir_vec16 *parts,
                             int whole)
{
    WEIR_UNROLL
    for (uint32_t p = 0; p < WEIR_ARCH_LINE_PARTS; p++) {
        uint32_t unit = lane * WEIR_ARCH_LINE_PARTS + p;
        uint64_t word = line * WEIR_LINE_WORDS + unit;
        weir_line_write_word(dst, bytes, word, whole, parts[p].lo);
        if (unit != 7) {
            weir_line_write_word(dst, bytes, word + 8, whole, parts[p].hi);
        }
    }
}

/* Whether the lane finds no flag that is not the right one: seven lanes have none. */
WEIR_FN int weir_line_there(const weir_vec16 *parts, uint32_t lane, uint64_t flag)
{
    return lane != WEIR_ARCH_LINE_LANES - 1 || parts[WEIR_ARCH_LINE_PARTS - 1].hi == flag;
}

/* Sends WEIR_LINE_BATCH lines from `line` on, as far as there are. */
WEIR_FN void weir_line_put_batch(char *lines, const char *src, uint64_t bytes, uint64_t flag, weir_line_place place,
                                 uint64_t line, int whole)
{
    weir_vec16 parts[WEIR_LINE_BATCH][WEIR_ARCH_LINE_PARTS];
    uint64_t count = weir_line_count(bytes);
    WEIR_UNROLL
    for (uint32_t k = 0; k < WEIR_LINE_BATCH; k++) {
        weir_line_read(parts[k], src, bytes, line + k * place.stride, place.lane, flag, whole);
    }
    WEIR_UNROLL
    for (uint32_t k = 0; k < WEIR_LINE_BATCH; k++) {
        uint64_t at = line + k * place.stride;
        if (at < count) {
            weir_arch_store_line(lines + at * WEIR_LINE_BYTES, place.lane, parts[k]);
        }
    }
}

/* The slow part of a wait for a batch; all lanes of the warp return together. */
WEIR_FN_COLD weir_status weir_line_spin(const char *lines, uint64_t count, uint64_t flag, weir_line_place place,
                                        uint64_t line, weir_dev_control *control)
{
    weir_spin spin = weir_spin_begin();
    for (;;) {
        int there = 1;
        for (uint32_t k = 0; k < WEIR_LINE_BATCH && line + k * place.stride < count; k++) {
            weir_vec16 parts[WEIR_ARCH_LINE_PARTS];
            weir_arch_load_line(lines + (line + k * place.stride) * WEIR_LINE_BYTES, place.lane, parts);
            there &= weir_line_there(parts, place.lane, flag);
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

/* Waits for WEIR_LINE_BATCH lines from `line` on, as far as there are, and stores their data. */
WEIR_FN weir_status weir_line_unpack_batch(char *dst, const char *lines, uint64_t bytes, uint64_t flag,
                                           weir_line_place place, uint64_t line, int whole, weir_dev_control *control)
{
    weir_vec16 parts[WEIR_LINE_BATCH][WEIR_ARCH_LINE_PARTS];
    uint64_t count = weir_line_count(bytes);
    uint32_t reads = WEIR_ARCH_FAST_READS;
    WEIR_ROLLED
    for (;;) {
        int there = 1;
        WEIR_UNROLL
        for (uint32_t k = 0; k < WEIR_LINE_BATCH; k++) {
            uint64_t at = line + k * place.stride;
            if (at < count) {
                weir_arch_load_line(lines + at * WEIR_LINE_BYTES, place.lane, parts[k]);
            }
        }
        WEIR_UNROLL
        for (uint32_t k = 0; k < WEIR_LINE_BATCH; k++) {
            there &= line + k * place.stride >= count || weir_line_there(parts[k], place.lane, flag);
        }
        if (weir_arch_warp_all(there)) {
            break;
        }
        if (weir_spin_is_long(&reads)) {
            weir_status status = weir_line_spin(lines, count, flag, place, line, control);
            if (status != WEIR_OK) {
                return status;
            }
            reads = WEIR_ARCH_FAST_READS;
        }
    }
    WEIR_UNROLL
    for (uint32_t k = 0; k < WEIR_LINE_BATCH; k++) {
        uint64_t at = line + k * place.stride;
        if (at < count) {
            weir_line_write(dst, bytes, at, place.lane, parts[k], whole);
        }
    }
    return WEIR_OK;
}

/* What one group sends and receives: `src` as lines to `out`, from lines at `in` to `dst`, `bytes` each way; either
 * way is left out where its lines are NULL. Each batch is sent before the one before it is waited for, so that both
 * directions of the link are busy. */
WEIR_FN weir_status weir_line_run(char *out, const char *src, uint64_t out_flag, char *dst, const char *in,
                                  uint64_t in_flag, uint64_t bytes, weir_coop coop, int whole,
                                  weir_dev_control *control)
{
    weir_line_place place = weir_line_place_of(coop);
    uint64_t count = weir_line_count(bytes);
    uint64_t batch = WEIR_LINE_BATCH * place.stride;
    uint64_t ahead = in != NULL ? batch : 0;
    uint64_t in_warp = place.first - place.warp_first;
    for (uint64_t next = place.warp_first; next < count + ahead; next += batch) {
        if (out != NULL && next < count) {
            weir_line_put_batch(out, src, bytes, out_flag, place, next + in_warp, whole);
        }
        if (in != NULL && next >= place.warp_first + batch) {
            weir_status status = weir_line_unpack_batch(dst, in, bytes, in_flag, place, next - batch + in_warp, whole,
                                                        control);
            if (status != WEIR_OK) {
                return status;
            }
        }
    }
    return WEIR_OK;
}

/* The same for data of any size and alignment. */
WEIR_FN_COLD weir_status weir_line_run_any(char *out, const char *src, uint64_t out_flag, char *dst, const char *in,
                                           uint64_t in_flag, uint64_t bytes, const weir_coop *coop,
                                           weir_dev_control *control)
{
    return weir_line_run(out, src, out_flag, dst, in, in_flag, bytes, *coop, 0, control);
}

#endif
