/* weir/device/impl/layout_packet.h - LL16 packets (impl/packet.h) and lines (impl/line.h) from and to the items of a
 * layout.
 *
 * A call moves `bytes` packed bytes from packed byte `at` on, a multiple of 8. Packet i carries 8 of them, and line i
 * 120, the last one padded with zeros. If runs, strides and addresses allow it, 8 bytes are read and written by words
 * of 4 or 8 bytes, otherwise by pieces of runs.
 *
 * Threads:   all threads of the group call with the same arguments. Lines need groups of whole warps. */
#ifndef WEIR_DEVICE_IMPL_LAYOUT_PACKET_H
#define WEIR_DEVICE_IMPL_LAYOUT_PACKET_H

#include "weir/device/impl/layout_move.h"
#include "weir/device/impl/line.h"

/* 8 or 4: the side can be read and written by words of this size. 0: it cannot. */
WEIR_FN uint32_t weir_layout_packet_word(weir_layout_side side)
{
    const uint32_t word = side.layout != NULL ? weir_layout_word_of(side, 0) : (uintptr_t)side.memory % 8 == 0 ? 8 : 0;
    return word >= 8 ? 8 : word == 4 ? 4 : 0;
}

/* The `left` bytes from packed byte `at` on, 8 at most, padded with zeros. */
WEIR_FN uint64_t weir_layout_packet_gather(weir_layout_side side, uint64_t at, uint64_t left, uint32_t word)
{
    const weir_dev_layout *layout = side.layout;
    const uint32_t bytes = left < 8 ? (uint32_t)left : 8;
    uint64_t data = 0;
    if (word == 8 && bytes == 8) {
        return weir_arch_load_u64((const weir_alias_u64 *)weir_layout_byte_of(side, at, 1));
    }
    if (word == 4 && bytes == 8) {
        data = weir_arch_load_u32((const weir_alias_u32 *)weir_layout_byte_of(side, at + 4, 1));
        return data << 32 | weir_arch_load_u32((const weir_alias_u32 *)weir_layout_byte_of(side, at, 1));
    }
    if (layout == NULL) {
        return weir_packet_gather(side.memory + at, bytes, 8);
    }
    WEIR_ROLLED
    for (uint32_t got = 0; got < bytes;) {
        const weir_dev_layout_run run = weir_layout_find(layout, at + got);
        const uint32_t part = run.bytes < bytes - got ? (uint32_t)run.bytes : bytes - got;
        data |= weir_layout_load_piece(side.memory + run.place, part, side.memory + layout->first,
                                       side.memory + layout->last)
                    .lo
                << got * 8;
        got += part;
    }
    return data;
}

WEIR_FN void weir_layout_packet_scatter(weir_layout_side side, uint64_t at, uint64_t left, uint32_t word, uint64_t data)
{
    const uint32_t bytes = left < 8 ? (uint32_t)left : 8;
    if (word == 8 && bytes == 8) {
        weir_arch_store_u64((weir_alias_u64 *)weir_layout_byte_of(side, at, 1), data);
        return;
    }
    if (word == 4 && bytes == 8) {
        weir_arch_store_u32((weir_alias_u32 *)weir_layout_byte_of(side, at, 1), (uint32_t)data);
        weir_arch_store_u32((weir_alias_u32 *)weir_layout_byte_of(side, at + 4, 1), (uint32_t)(data >> 32));
        return;
    }
    if (side.layout == NULL) {
        weir_packet_scatter(side.memory + at, bytes, 8, data);
        return;
    }
    WEIR_ROLLED
    for (uint32_t done = 0; done < bytes;) {
        const weir_dev_layout_run run = weir_layout_find(side.layout, at + done);
        const uint32_t part = run.bytes < bytes - done ? (uint32_t)run.bytes : bytes - done;
        const weir_vec16 unit = { data >> done * 8, 0 };
        weir_layout_store_piece(side.memory + run.place, unit, part);
        done += part;
    }
}

/* One packet of 8 bytes for each thread, whose side has words of 8 bytes. Inlined, so that a kernel that has the layout
 * among its arguments reads it from there and not through a pointer. */
WEIR_FN int weir_layout_packet_each(weir_layout_side side, uint64_t bytes, uint32_t size)
{
    return weir_layout_packet_word(side) == 8 && bytes <= (uint64_t)size * 8 && bytes % 8 == 0;
}

WEIR_FN void weir_layout_ll16_put_each(char *packets, weir_layout_side from, uint64_t bytes, uint32_t flag,
                                       uint32_t rank)
{
    if (rank < bytes / 8) {
        const uint64_t data =
            weir_arch_load_u64((const weir_alias_u64 *)weir_layout_byte_of(from, (uint64_t)rank * 8, 1));
        weir_ll16_store(packets + (uint64_t)rank * 16, data, flag);
    }
}

WEIR_FN weir_status weir_layout_ll16_unpack_each(weir_layout_side to, const char *packets, uint64_t bytes,
                                                 uint32_t flag, uint32_t rank, weir_dev_control *control)
{
    uint64_t data = 0;
    if (rank >= bytes / 8) {
        return WEIR_OK;
    }
    char *place = weir_layout_byte_of(to, (uint64_t)rank * 8, 1); /* before the wait */
    const weir_status status = weir_ll16_load(packets + (uint64_t)rank * 16, flag, control, &data);
    if (status == WEIR_OK) {
        weir_arch_store_u64((weir_alias_u64 *)place, data);
    }
    return status;
}

WEIR_FN_COLD void weir_layout_ll16_put(char *packets, weir_layout_side from, uint64_t at, uint64_t bytes, uint32_t flag,
                                       uint32_t rank, uint32_t size)
{
    const uint32_t word = weir_layout_packet_word(from);
    WEIR_ROLLED
    for (uint64_t i = rank; i * 8 < bytes; i += size) {
        weir_ll16_store(packets + i * 16, weir_layout_packet_gather(from, at + i * 8, bytes - i * 8, word), flag);
    }
}

/* Waits for the packets and stores their data to `to`. Ends as weir_spin_step does. */
WEIR_FN_COLD weir_status weir_layout_ll16_unpack(weir_layout_side to, const char *packets, uint64_t at, uint64_t bytes,
                                                 uint32_t flag, uint32_t rank, uint32_t size, weir_dev_control *control)
{
    const uint32_t word = weir_layout_packet_word(to);
    WEIR_ROLLED
    for (uint64_t i = rank; i * 8 < bytes; i += size) {
        uint64_t data = 0;
        const weir_status status = weir_ll16_load(packets + i * 16, flag, control, &data);
        if (status != WEIR_OK) {
            return status;
        }
        weir_layout_packet_scatter(to, at + i * 8, bytes - i * 8, word, data);
    }
    return WEIR_OK;
}

/* ---- lines: lane l of a line holds the words l and l + 8 of its data, as in impl/line.h ------------------- */

/* Word `number` of a line with `left` bytes of data from packed byte `at` on; zero beyond their end. */
WEIR_FN uint64_t weir_layout_line_gather(weir_layout_side from, uint64_t at, uint64_t left, uint32_t number,
                                         uint32_t word)
{
    return 8 * number < left ? weir_layout_packet_gather(from, at + 8 * number, left - 8 * number, word) : 0;
}

/* The data bytes of line `line`, out of `bytes`; 0 for a line beyond the last one. */
WEIR_FN uint64_t weir_layout_line_left(uint64_t line, uint64_t bytes)
{
    const uint64_t before = line * WEIR_LINE_DATA;
    return before < bytes ? bytes - before : 0;
}

/* The lines of a thread. All lanes of a warp take the same steps, so loops count by the warp's first line. */
typedef struct weir_layout_turn {
    uint32_t lane;   /* of the line */
    uint32_t first;  /* line of the warp */
    uint32_t mine;   /* this thread's line, counted from the warp's first one */
    uint32_t stride; /* lines between two steps */
} weir_layout_turn;

WEIR_FN weir_layout_turn weir_layout_turn_of(uint32_t rank, uint32_t size)
{
    weir_layout_turn turn;
    turn.lane = rank % WEIR_ARCH_LINE_LANES;
    turn.first = rank / weir_arch_warp_size() * (weir_arch_warp_size() / WEIR_ARCH_LINE_LANES);
    turn.mine = rank / WEIR_ARCH_LINE_LANES - turn.first;
    turn.stride = size / WEIR_ARCH_LINE_LANES;
    return turn;
}

WEIR_FN_COLD void weir_layout_line_put(char *lines, weir_layout_side from, uint64_t at, uint64_t bytes, uint32_t flag,
                                       uint32_t rank, uint32_t size)
{
    const weir_layout_turn turn = weir_layout_turn_of(rank, size);
    const uint32_t word = weir_layout_packet_word(from);
    WEIR_ROLLED
    for (uint64_t base = turn.first; base * WEIR_LINE_DATA < bytes; base += turn.stride) {
        const uint64_t line = base + turn.mine;
        const uint64_t left = weir_layout_line_left(line, bytes);
        weir_vec16 parts[WEIR_ARCH_LINE_PARTS];
        WEIR_UNROLL
        for (uint32_t p = 0; p < WEIR_ARCH_LINE_PARTS; p++) {
            const uint32_t number = turn.lane * WEIR_ARCH_LINE_PARTS + p;
            parts[p].lo = 0;
            parts[p].hi = weir_line_flag(flag);
            WEIR_ROLLED
            for (uint32_t k = number; k < WEIR_LINE_WORDS; k += 8) {
                const uint64_t data = weir_layout_line_gather(from, at + line * WEIR_LINE_DATA, left, k, word);
                parts[p].lo = k == number ? data : parts[p].lo;
                parts[p].hi = k == number ? parts[p].hi : data;
            }
        }
        weir_line_store_gathered(lines + line * WEIR_LINE_BYTES, turn.lane, parts, left != 0);
    }
}

/* Waits for the lines and stores their data to `to`. Ends as weir_spin_step does, for all lanes of a warp together. */
WEIR_FN_COLD weir_status weir_layout_line_unpack(weir_layout_side to, const char *lines, uint64_t at, uint64_t bytes,
                                                 uint32_t flag, uint32_t rank, uint32_t size, weir_dev_control *control)
{
    const weir_layout_turn turn = weir_layout_turn_of(rank, size);
    const uint32_t word = weir_layout_packet_word(to);
    WEIR_ROLLED
    for (uint64_t base = turn.first; base * WEIR_LINE_DATA < bytes; base += turn.stride) {
        const uint64_t line = base + turn.mine;
        const uint64_t left = weir_layout_line_left(line, bytes);
        const char *from = lines + line * WEIR_LINE_BYTES;
        weir_vec16 parts[WEIR_ARCH_LINE_PARTS];
        const weir_status status = weir_line_await(from, 0, 1, left != 0, weir_line_flag(flag), turn.lane, control);
        if (status != WEIR_OK) {
            return status;
        }
        if (left != 0) {
            weir_arch_load_line(from, turn.lane, parts);
        }
        WEIR_UNROLL
        for (uint32_t p = 0; p < WEIR_ARCH_LINE_PARTS && left != 0; p++) {
            const uint32_t number = turn.lane * WEIR_ARCH_LINE_PARTS + p;
            WEIR_ROLLED
            for (uint32_t k = number; k < WEIR_LINE_WORDS && 8 * k < left; k += 8) {
                weir_layout_packet_scatter(to, at + line * WEIR_LINE_DATA + 8 * k, left - 8 * k, word,
                                           k == number ? parts[p].lo : parts[p].hi);
            }
        }
        weir_arch_warp_converge();
    }
    return WEIR_OK;
}

#endif
