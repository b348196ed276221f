/* weir/device/impl/line.h - 128-byte lines: 120 bytes of data and a flag that marks their arrival.
 *
 * Lines need no signal, like packets, but 15 of 16 bytes that cross the link are data. They need a link that keeps a
 * 128-byte store whole (agreed when the connection is made, weir_connection_keeps_lines) and groups of whole warps:
 * eight lanes of a GPU write a line with one instruction. On a CPU one thread writes the line, the flag last.
 *
 * A line is 16 words of 8 bytes. Lane l holds words l and l + 8 of its data: the lanes read and write data without
 * gaps. Lane 7's second word is the flag. Both its halves are the packet flag of the call's epoch
 * (weir/device/impl/packet.h). */
#ifndef WEIR_DEVICE_IMPL_LINE_H
#define WEIR_DEVICE_IMPL_LINE_H

#include "weir/device/impl/packet.h"

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

WEIR_FN uint64_t weir_line_count(uint64_t bytes) { return (bytes + WEIR_LINE_DATA - 1) / WEIR_LINE_DATA; }

WEIR_FN uint64_t weir_line_flag(uint32_t flag) { return (uint64_t)flag << 32 | flag; }

/* Like weir_packet_look; all lanes of the warp return together. */
WEIR_FN_COLD weir_status weir_line_look_once(weir_dev_control *control)
{
    const weir_status status = weir_dev_control_status(control);
    return weir_arch_warp_or(status != WEIR_OK) == 0 ? WEIR_OK
           : status != WEIR_OK                       ? status
                                                     : weir_dev_control_error(control);
}

WEIR_FN weir_status weir_line_look(uint32_t flag, weir_dev_control *control)
{
    return WEIR_UNLIKELY(weir_spin_is_due(flag)) ? weir_line_look_once(control) : WEIR_OK;
}

/* Stores a line whose data the lanes have gathered by branches of their own. The lanes may still be apart then, in
 * spite of weir_arch_warp_converge, and store one after the other: the receiver could find the flag before the data. So
 * apart lanes store the data first, and the flag behind a fence. All lanes of the warp call; `mine`: the lane has a
 * line. */
WEIR_FN void weir_line_store_gathered(char *line, uint32_t lane, const weir_vec16 *parts, int mine)
{
    const int flags = lane == WEIR_ARCH_LINE_LANES - 1;
    weir_arch_warp_converge();
    const int joined = WEIR_ARCH_WARP_JOINED();
    if (mine && (joined || !flags)) {
        weir_arch_store_line(line, lane, parts);
    }
    if (joined) {
        return;
    }
    weir_arch_fence_sys();
    weir_arch_warp_converge();
    if (mine && flags) {
        weir_arch_store_line(line, lane, parts);
    }
}

/* Whether the lane finds no wrong flag. Only the last lane of a line holds a flag. */
WEIR_FN int weir_line_there(const weir_vec16 *parts, uint32_t lane, uint64_t flag)
{
    return lane != WEIR_ARCH_LINE_LANES - 1 || parts[WEIR_ARCH_LINE_PARTS - 1].hi == flag;
}

/* Word `word` of `left` bytes of data at any address, zero beyond their end. */
WEIR_FN uint64_t weir_line_gather(const char *data, uint64_t left, uint32_t word)
{
    return 8 * word < left ? weir_packet_gather(data + 8 * word, left - 8 * word, 8) : 0;
}

WEIR_FN void weir_line_scatter(char *data, uint64_t left, uint32_t word, uint64_t value)
{
    if (8 * word < left) {
        weir_packet_scatter(data + 8 * word, left - 8 * word, 8, value);
    }
}

/* The number of data words from line `line` on, out of `words`, limited to 31 bits: more than a batch takes. */
WEIR_FN int32_t weir_line_left(uint64_t words, uint64_t line)
{
    int64_t left = (int64_t)words - (int64_t)(line * WEIR_LINE_WORDS);
    return left < 0x7fffffff ? (int32_t)left : 0x7fffffff;
}

/* Loads the calling lane's parts of a line of `left` aligned words of data. Without a flag: weir_line_set_flag. */
WEIR_FN void weir_line_load(weir_vec16 *parts, const char *src, int32_t left, uint32_t lane)
{
    const weir_alias_u64 *words = (const weir_alias_u64 *)src;
    WEIR_UNROLL
    for (uint32_t p = 0; p < WEIR_ARCH_LINE_PARTS; p++) {
        int32_t word = (int32_t)(lane * WEIR_ARCH_LINE_PARTS + p);
        parts[p].lo = word < left ? weir_arch_load_u64(words + word) : 0;
        parts[p].hi = word != 7 && word + 8 < left ? weir_arch_load_u64(words + word + 8) : 0;
    }
}

WEIR_FN void weir_line_set_flag(weir_vec16 *parts, uint64_t flag, uint32_t lane)
{
    WEIR_UNROLL
    for (uint32_t p = 0; p < WEIR_ARCH_LINE_PARTS; p++) {
        parts[p].hi = lane * WEIR_ARCH_LINE_PARTS + p == 7 ? flag : parts[p].hi;
    }
}

/* Loads the data of up to `batch` lines, `stride` apart, of `left` aligned words. `batch` is a constant,
 * WEIR_LINE_BATCH at most. */
WEIR_FN void weir_line_load_batch(weir_vec16 (*parts)[WEIR_ARCH_LINE_PARTS], const char *src, int32_t left,
                                  uint32_t stride, uint32_t batch, uint32_t lane)
{
    WEIR_UNROLL
    for (uint32_t k = 0; k < batch; k++) {
        weir_line_load(parts[k], src, left, lane);
        src += stride * WEIR_LINE_DATA;
        left -= (int32_t)(stride * WEIR_LINE_WORDS);
    }
}

/* Sends the lines whose data weir_line_load_batch has loaded. The last line is padded with zeros. */
WEIR_FN void weir_line_store_batch(char *lines, weir_vec16 (*parts)[WEIR_ARCH_LINE_PARTS], int32_t left, uint64_t flag,
                                   uint32_t stride, uint32_t batch, uint32_t lane)
{
    WEIR_UNROLL
    for (uint32_t k = 0; k < batch; k++) {
        weir_line_set_flag(parts[k], flag, lane);
    }
    weir_arch_warp_converge();
    WEIR_UNROLL
    for (uint32_t k = 0; k < batch; k++) {
        if (left > 0) {
            weir_arch_store_line(lines, lane, parts[k]);
        }
        lines += stride * WEIR_LINE_BYTES;
        left -= (int32_t)(stride * WEIR_LINE_WORDS);
    }
}

/* Loads and sends a batch. */
WEIR_FN void weir_line_put_batch(char *lines, const char *src, int32_t left, uint64_t flag, uint32_t stride,
                                 uint32_t batch, uint32_t lane)
{
    weir_vec16 parts[WEIR_LINE_BATCH][WEIR_ARCH_LINE_PARTS];
    weir_line_load_batch(parts, src, left, stride, batch, lane);
    weir_line_store_batch(lines, parts, left, flag, stride, batch, lane);
}

/* Sends line `line` of `bytes` of data at any address. `line` may be the last line, or beyond it. */
WEIR_FN void weir_line_put_any(char *lines, const char *src, uint64_t bytes, uint64_t flag, uint64_t line,
                               uint32_t lane)
{
    weir_vec16 parts[WEIR_ARCH_LINE_PARTS];
    uint64_t at = line * WEIR_LINE_DATA;
    uint64_t left = at < bytes ? bytes - at : 0;
    WEIR_UNROLL
    for (uint32_t p = 0; p < WEIR_ARCH_LINE_PARTS; p++) {
        uint32_t word = lane * WEIR_ARCH_LINE_PARTS + p;
        parts[p].lo = weir_line_gather(src + at, left, word);
        parts[p].hi = word == 7 ? flag : weir_line_gather(src + at, left, word + 8);
    }
    weir_line_store_gathered(lines + line * WEIR_LINE_BYTES, lane, parts, left != 0);
}

/* The error of a lane whose wait ends because another lane's wait has ended: the communicator's error, or
 * WEIR_SPIN_LATE. */
WEIR_FN_COLD weir_status weir_line_end(weir_dev_control *control)
{
    const weir_status status = weir_dev_control_status(control);
    return status != WEIR_OK ? status : WEIR_SPIN_LATE;
}

/* Waits for up to `batch` lines, `stride` apart, of `left` words of data. All lanes of the warp return together. If one
 * lane's deadline has passed, all return WEIR_SPIN_LATE, as weir_spin_step does. */
WEIR_FN weir_status weir_line_await(const char *lines, uint32_t stride, uint32_t batch, int32_t left, uint64_t flag,
                                    uint32_t lane, weir_dev_control *control)
{
    weir_spin spin = weir_spin_begin();
    for (;;) {
        int there = 1;
        for (uint32_t k = 0; k < batch && (int32_t)(k * stride * WEIR_LINE_WORDS) < left; k++) {
            weir_vec16 parts[WEIR_ARCH_LINE_PARTS];
            weir_arch_load_line(lines + k * stride * WEIR_LINE_BYTES, lane, parts);
            there &= weir_line_there(parts, lane, flag);
        }
        if (weir_arch_warp_all(there)) {
            return WEIR_OK;
        }
        weir_status status = weir_spin_step(&spin, control);
        if (weir_arch_warp_or(status != WEIR_OK) != 0) {
            return status != WEIR_OK ? status : weir_line_end(control);
        }
    }
}

/* The slow part of a wait for a batch. `flag` is the packets' flag, half of a line's flag: it takes a register less. */
WEIR_FN_COLD weir_status weir_line_spin(const char *lines, uint32_t stride, uint32_t batch, int32_t left, uint32_t flag,
                                        uint32_t lane, weir_dev_control *control)
{
    return weir_line_await(lines, stride, batch, left, weir_line_flag(flag), lane, control);
}

/* Waits for up to `batch` lines, `stride` apart, and stores their part of `left` aligned words of data. */
WEIR_FN weir_status weir_line_unpack_batch(char *dst, const char *lines, int32_t left, uint64_t flag, uint32_t stride,
                                           uint32_t batch, uint32_t lane, weir_dev_control *control)
{
    weir_vec16 parts[WEIR_LINE_BATCH][WEIR_ARCH_LINE_PARTS];
    uint32_t reads = WEIR_ARCH_FAST_READS;
    weir_arch_warp_converge();
    WEIR_ROLLED
    for (;;) {
        int there = 1;
        int32_t rest = left;
        const char *at = lines;
        WEIR_UNROLL
        for (uint32_t k = 0; k < batch; k++) {
            if (rest > 0) {
                weir_arch_load_line(at, lane, parts[k]);
                there &= weir_line_there(parts[k], lane, flag);
            }
            at += stride * WEIR_LINE_BYTES;
            rest -= (int32_t)(stride * WEIR_LINE_WORDS);
        }
        if (weir_arch_warp_all(there)) {
            break;
        }
        if (weir_spin_is_long(&reads)) {
            weir_status status = weir_line_spin(lines, stride, batch, left, (uint32_t)flag, lane, control);
            if (status != WEIR_OK) {
                return status;
            }
            reads = WEIR_ARCH_FAST_READS;
        }
    }
    WEIR_UNROLL
    for (uint32_t k = 0; k < batch; k++) {
        weir_alias_u64 *words = (weir_alias_u64 *)dst;
        WEIR_UNROLL
        for (uint32_t p = 0; p < WEIR_ARCH_LINE_PARTS; p++) {
            int32_t word = (int32_t)(lane * WEIR_ARCH_LINE_PARTS + p);
            if (word < left) {
                weir_arch_store_u64(words + word, parts[k][p].lo);
            }
            if (word != 7 && word + 8 < left) {
                weir_arch_store_u64(words + word + 8, parts[k][p].hi);
            }
        }
        dst += stride * WEIR_LINE_DATA;
        left -= (int32_t)(stride * WEIR_LINE_WORDS);
    }
    return WEIR_OK;
}

/* Whether the thread's warp has lines if each line has lanes of its own. The warp's first line decides for all its
 * lanes: they take the same branches. */
WEIR_FN int weir_line_takes_part(uint64_t bytes, uint32_t rank)
{
    return rank / weir_arch_warp_size() * (weir_arch_warp_size() / WEIR_ARCH_LINE_LANES) < weir_line_count(bytes);
}

/* Sends the thread's line. Its lanes have loaded its data: `parts`. */
WEIR_FN void weir_line_put_alone(char *lines, weir_vec16 *parts, uint64_t flag, uint64_t bytes, uint32_t rank)
{
    const uint32_t lane = rank % WEIR_ARCH_LINE_LANES;
    const uint32_t line = rank / WEIR_ARCH_LINE_LANES;
    if (weir_line_takes_part(bytes, rank)) {
        weir_line_set_flag(parts, flag, lane);
        weir_arch_warp_converge();
        if (weir_line_left(bytes / 8, line) > 0) {
            weir_arch_store_line(lines + line * WEIR_LINE_BYTES, lane, parts);
        }
    }
}

/* Waits for the thread's line and stores its data. */
WEIR_FN weir_status weir_line_unpack_alone(char *dst, const char *lines, uint64_t flag, uint64_t bytes, uint32_t rank,
                                           weir_dev_control *control)
{
    const uint32_t line = rank / WEIR_ARCH_LINE_LANES;
    if (!weir_line_takes_part(bytes, rank)) {
        return WEIR_OK;
    }
    return weir_line_unpack_batch(dst + line * WEIR_LINE_DATA, lines + line * WEIR_LINE_BYTES,
                                  weir_line_left(bytes / 8, line), flag, 0, 1, rank % WEIR_ARCH_LINE_LANES, control);
}

/* Waits for line `line` and stores its data at any address. `line` may be the last line, or beyond it. */
WEIR_FN weir_status weir_line_unpack_any(char *dst, const char *lines, uint64_t bytes, uint64_t flag, uint64_t line,
                                         uint32_t lane, weir_dev_control *control)
{
    weir_vec16 parts[WEIR_ARCH_LINE_PARTS];
    uint64_t at = line * WEIR_LINE_DATA;
    lines += line * WEIR_LINE_BYTES;
    weir_status status = weir_line_await(lines, 0, 1, at < bytes, flag, lane, control);
    if (status != WEIR_OK || at >= bytes) {
        return status;
    }
    weir_arch_load_line(lines, lane, parts);
    WEIR_UNROLL
    for (uint32_t p = 0; p < WEIR_ARCH_LINE_PARTS; p++) {
        uint32_t word = lane * WEIR_ARCH_LINE_PARTS + p;
        weir_line_scatter(dst + at, bytes - at, word, parts[p].lo);
        if (word != 7) {
            weir_line_scatter(dst + at, bytes - at, word + 8, parts[p].hi);
        }
    }
    return WEIR_OK;
}

/* weir_line_run in batches, for lanes that have several lines. The caller has sent the first `begun` batches: 0 or 1.
 * Unpacking runs one batch behind sending: both directions of the link are busy. */
WEIR_FN weir_status weir_line_run_batches(char *out, const char *src, uint64_t out_flag, uint32_t begun, char *dst,
                                          const char *in, uint64_t in_flag, uint64_t bytes, uint32_t rank,
                                          uint32_t size, weir_dev_control *control)
{
    uint32_t lane = rank % WEIR_ARCH_LINE_LANES;
    uint32_t stride = size / WEIR_ARCH_LINE_LANES;
    uint32_t batch = WEIR_LINE_BATCH * stride;
    /* The warp's first line decides for all its lanes: they take the same branches. */
    uint32_t first = rank / weir_arch_warp_size() * (weir_arch_warp_size() / WEIR_ARCH_LINE_LANES);
    uint32_t mine = rank / WEIR_ARCH_LINE_LANES - first;
    uint64_t count = weir_line_count(bytes);
    uint64_t sent = out != NULL ? first + (uint64_t)begun * batch : count;
    uint64_t received = in != NULL ? first : count;
    while (sent < count || received < count) {
        if (sent < count) {
            uint64_t line = sent + mine;
            weir_line_put_batch(out + line * WEIR_LINE_BYTES, src + line * WEIR_LINE_DATA,
                                weir_line_left(bytes / 8, line), out_flag, stride, WEIR_LINE_BATCH, lane);
            sent += batch;
        }
        if (received < count && (sent >= count || sent - received > batch)) {
            uint64_t line = received + mine;
            weir_status status = weir_line_unpack_batch(dst + line * WEIR_LINE_DATA, in + line * WEIR_LINE_BYTES,
                                                        weir_line_left(bytes / 8, line), in_flag, stride,
                                                        WEIR_LINE_BATCH, lane, control);
            if (status != WEIR_OK) {
                return status;
            }
            received += batch;
        }
    }
    return WEIR_OK;
}

/* The share of one thread out of `size` in an exchange: sends `src` as lines to `out`, and stores the data of the lines
 * at `in` to `dst`. Each direction has `bytes` bytes, and all addresses are multiples of 8. A direction whose lines are
 * NULL is left out. */
WEIR_FN weir_status weir_line_run(char *out, const char *src, uint64_t out_flag, char *dst, const char *in,
                                  uint64_t in_flag, uint64_t bytes, uint32_t rank, uint32_t size,
                                  weir_dev_control *control)
{
    const uint32_t line = rank / WEIR_ARCH_LINE_LANES;
    if (weir_line_count(bytes) <= size / WEIR_ARCH_LINE_LANES) { /* the fewest instructions before the first store */
        if (out != NULL) {
            weir_vec16 parts[WEIR_ARCH_LINE_PARTS];
            weir_line_load(parts, src + line * WEIR_LINE_DATA, weir_line_left(bytes / 8, line),
                           rank % WEIR_ARCH_LINE_LANES);
            weir_line_put_alone(out, parts, out_flag, bytes, rank);
        }
        return in == NULL ? WEIR_OK : weir_line_unpack_alone(dst, in, in_flag, bytes, rank, control);
    }
    return weir_line_run_batches(out, src, out_flag, 0, dst, in, in_flag, bytes, rank, size, control);
}

/* weir_line_run for data of any size and alignment, line by line, with the flags of packets. */
WEIR_FN_COLD weir_status weir_line_run_any(char *out, const char *src, uint32_t out_flag, char *dst, const char *in,
                                           uint32_t in_flag, uint64_t bytes, uint32_t rank, uint32_t size,
                                           weir_dev_control *control)
{
    uint32_t lane = rank % WEIR_ARCH_LINE_LANES;
    uint32_t stride = size / WEIR_ARCH_LINE_LANES;
    uint32_t first = rank / weir_arch_warp_size() * (weir_arch_warp_size() / WEIR_ARCH_LINE_LANES);
    uint32_t mine = rank / WEIR_ARCH_LINE_LANES - first;
    for (uint64_t line = first; line < weir_line_count(bytes); line += stride) {
        if (out != NULL) {
            weir_line_put_any(out, src, bytes, weir_line_flag(out_flag), line + mine, lane);
        }
        if (in != NULL) {
            weir_status status =
                weir_line_unpack_any(dst, in, bytes, weir_line_flag(in_flag), line + mine, lane, control);
            if (status != WEIR_OK) {
                return status;
            }
        }
    }
    return WEIR_OK;
}

#endif
