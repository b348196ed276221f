/* weir/device/impl/layout_move.h - moves the bytes of layouts: pack, unpack, and copies between two layouts.
 *
 * A thread moves 16 packed bytes at a time, a unit. If one side is packed, units are aligned there, and only the bytes
 * in front of the first unit and behind the last one move one by one. A unit is read and written by words of 2, 4, 8 or
 * 16 bytes if runs, strides and addresses allow it. Otherwise it is put together from pieces of runs: a piece is read
 * by aligned loads of 16 bytes and shifted, and written by the widest words that its address allows.
 *
 * Words below 16 bytes that go to strided places, or come from short runs, move one by one: neighbouring threads take
 * neighbouring words, so that the lanes of a warp access places next to each other. On H200 the stores of 4 bytes at
 * stride 64 are 2.8 times as fast as those of units, and those of 13 bytes at stride 53 5 times.
 *
 * Threads:   all threads of the group call with the same arguments. Memory must not overlap.
 * Order:     none; use a signal or a barrier afterwards. */
#ifndef WEIR_DEVICE_IMPL_LAYOUT_MOVE_H
#define WEIR_DEVICE_IMPL_LAYOUT_MOVE_H

#include "weir/device/coop.h"
#include "weir/device/impl/layout_nest.h"
#include "weir/device/impl/unit.h"

#define WEIR_LAYOUT_UNIT 16u
#define WEIR_LAYOUT_SHORT_RUN 8u /* up to this length of runs, words are read one by one */
#define WEIR_LAYOUT_LANES 32u

/* Where a packed byte lies, and how many bytes follow from there on, in packed order and in memory; at least 1. */
typedef struct weir_dev_layout_run {
    int64_t place;
    uint64_t bytes;
} weir_dev_layout_run;

/* ---- places ---------------------------------------------------------------------------------------------- */

/* The run of byte `into` of the piece list whose first byte lies at `place`. The entries of its tile bound the search:
 * on average a tile has few pieces. */
WEIR_FN_COLD weir_dev_layout_run weir_layout_find_piece(const weir_dev_layout *layout, int64_t place, uint64_t into)
{
    const uint32_t *tile = layout->tiles + (into >> layout->tile_shift);
    const uint32_t first = tile[0];
    const uint32_t i = first + weir_layout_piece_of(layout->pieces + first, tile[1] - first + 1, into);
    const weir_layout_piece *piece = layout->pieces + i;
    const uint64_t inside = into - piece->prefix;
    weir_dev_layout_run run;
    run.place = place + piece->place;
    if (layout->nest_of == NULL) {
        run.place += (int64_t)inside;
        run.bytes = piece[1].prefix - into;
    } else {
        const weir_layout_nest *nest = layout->nests + layout->nest_of[i];
        uint64_t past;
        run.place += weir_layout_nest_at(nest, inside, &past);
        run.place += (int64_t)past;
        run.bytes = nest->run - past;
    }
    return run;
}

/* `at` is below layout->nest.size. */
WEIR_FN weir_dev_layout_run weir_layout_find(const weir_dev_layout *layout, uint64_t at)
{
    weir_dev_layout_run run;
    uint64_t into = 0;
    if (layout->small) {
        uint32_t small_into;
        run.place = weir_layout_small_at(layout, (uint32_t)at, &small_into);
        into = small_into;
    } else {
        run.place = weir_layout_nest_at(&layout->nest, at, &into);
    }
    if (layout->pieces != NULL) {
        return weir_layout_find_piece(layout, run.place, into);
    }
    run.place += (int64_t)into;
    run.bytes = layout->nest.run - into;
    return run;
}

/* ---- units by words: of small layouts without a piece list ----------------------------------------------- */

/* The place of a packed byte, and how far it can move on without a division. */
typedef struct weir_layout_walk {
    int64_t place;
    uint32_t run;   /* bytes left in the run */
    uint32_t inner; /* steps left in the innermost dim */
} weir_layout_walk;

WEIR_FN weir_layout_walk weir_layout_walk_from(const weir_dev_layout *layout, uint32_t at)
{
    const weir_layout_nest *nest = &layout->nest;
    uint32_t step = weir_layout_divide(at, layout->by_run);
    const uint32_t into = at - step * (uint32_t)nest->run;
    weir_layout_walk walk;
    walk.place = nest->offset + into;
    walk.run = (uint32_t)nest->run - into;
    walk.inner = 1;
    if (nest->dims != 0) {
        walk.inner = (uint32_t)nest->dim[nest->dims - 1].count - step;
    }
    WEIR_ROLLED
    for (uint32_t i = nest->dims; i-- > 1;) {
        const uint32_t outer = weir_layout_divide(step, layout->by_dim[i]);
        const uint32_t index = step - outer * (uint32_t)nest->dim[i].count;
        walk.place += (int64_t)index * nest->dim[i].stride;
        if (i + 1 == nest->dims) {
            walk.inner = (uint32_t)nest->dim[i].count - index;
        }
        step = outer;
    }
    if (nest->dims != 0) {
        walk.place += (int64_t)step * nest->dim[0].stride;
    }
    return walk;
}

/* Moves on by a word to packed byte `at`. */
WEIR_FN weir_layout_walk weir_layout_walk_on(const weir_dev_layout *layout, weir_layout_walk walk, uint32_t word,
                                             uint32_t at)
{
    const weir_layout_nest *nest = &layout->nest;
    walk.place += word;
    walk.run -= word;
    if (walk.run == 0) {
        if (--walk.inner == 0) {
            return weir_layout_walk_from(layout, at);
        }
        walk.run = (uint32_t)nest->run;
        walk.place += nest->dim[nest->dims - 1].stride - (int64_t)nest->run;
    }
    return walk;
}

/* `word`: 1, 2, 4 or 8, a constant */
WEIR_FN uint64_t weir_layout_load_word(const char *from, uint32_t word)
{
    return word == 8   ? weir_arch_load_u64((const weir_alias_u64 *)from)
           : word == 4 ? weir_arch_load_u32((const weir_alias_u32 *)from)
           : word == 2 ? weir_arch_load_u16((const weir_alias_u16 *)from)
                       : (unsigned char)weir_arch_load_byte(from);
}

WEIR_FN void weir_layout_store_word(char *to, uint64_t value, uint32_t word)
{
    if (word == 8) {
        weir_arch_store_u64((weir_alias_u64 *)to, value);
    } else if (word == 4) {
        weir_arch_store_u32((weir_alias_u32 *)to, (uint32_t)value);
    } else if (word == 2) {
        weir_arch_store_u16((weir_alias_u16 *)to, (uint16_t)value);
    } else {
        weir_arch_store_byte(to, (char)(unsigned char)value);
    }
}

/* `word` is a constant that divides `at`, all runs and all places. */
WEIR_FN weir_vec16 weir_layout_load_words(const weir_dev_layout *layout, const char *src, uint32_t at, uint32_t word)
{
    weir_layout_walk walk = weir_layout_walk_from(layout, at);
    uint64_t words[16];
    weir_vec16 unit;
    if (word == 16) {
        return weir_arch_load_vec16((const weir_vec16 *)(src + walk.place));
    }
    WEIR_UNROLL
    for (uint32_t k = 0; k < 16 / word; k++) {
        words[k] = weir_layout_load_word(src + walk.place, word);
        if (k + 1 < 16 / word) {
            walk = weir_layout_walk_on(layout, walk, word, at + (k + 1) * word);
        }
    }
    unit.lo = 0;
    unit.hi = 0;
    WEIR_UNROLL
    for (uint32_t k = 0; k < 8 / word; k++) {
        unit.lo |= words[k] << k * word * 8;
        unit.hi |= words[k + 8 / word] << k * word * 8;
    }
    return unit;
}

WEIR_FN void weir_layout_store_words(const weir_dev_layout *layout, char *dst, uint32_t at, weir_vec16 unit,
                                     uint32_t word)
{
    weir_layout_walk walk = weir_layout_walk_from(layout, at);
    if (word == 16) {
        weir_arch_store_vec16((weir_vec16 *)(dst + walk.place), unit);
        return;
    }
    WEIR_UNROLL
    for (uint32_t k = 0; k < 16; k += word) {
        weir_layout_store_word(dst + walk.place, (k < 8 ? unit.lo : unit.hi) >> k % 8 * 8, word);
        if (k + word < 16) {
            walk = weir_layout_walk_on(layout, walk, word, at + k + word);
        }
    }
}

/* ---- units by pieces of runs: of all layouts -------------------------------------------------------------- */

/* The unit shifted right by `bytes` (below 16) bytes; those of `next` follow. */
WEIR_FN weir_vec16 weir_layout_shift_down(weir_vec16 unit, weir_vec16 next, uint32_t bytes)
{
    const uint32_t bits = bytes % 8 * 8;
    const uint64_t words[3] = { bytes < 8 ? unit.lo : unit.hi, bytes < 8 ? unit.hi : next.lo,
                                bytes < 8 ? next.lo : next.hi };
    weir_vec16 out;
    /* In two steps, because a shift by 64 bits has no result. */
    out.lo = words[0] >> bits | words[1] << 1 << (63 - bits);
    out.hi = words[1] >> bits | words[2] << 1 << (63 - bits);
    return out;
}

/* The unit shifted left by `bytes` (below 16) bytes. */
WEIR_FN weir_vec16 weir_layout_shift_up(weir_vec16 unit, uint32_t bytes)
{
    const uint32_t bits = bytes % 8 * 8;
    weir_vec16 out;
    out.lo = unit.lo << bits;
    out.hi = unit.hi << bits | unit.lo >> 1 >> (63 - bits);
    if (bytes >= 8) {
        out.hi = out.lo;
        out.lo = 0;
    }
    return out;
}

/* The low `bytes` (1 to 16) bytes of the unit. */
WEIR_FN weir_vec16 weir_layout_low_bytes(weir_vec16 unit, uint32_t bytes)
{
    weir_vec16 out;
    out.lo = bytes < 8 ? unit.lo & (((uint64_t)1 << bytes * 8) - 1) : unit.lo;
    out.hi = bytes <= 8 ? 0 : unit.hi & ~(uint64_t)0 >> (16 - bytes) * 8;
    return out;
}

/* `bytes` (1 to 16) bytes from `src` on. Aligned units that contain them are read whole if they lie in [first, last).
 */
WEIR_FN weir_vec16 weir_layout_load_piece(const char *src, uint32_t bytes, const char *first, const char *last)
{
    const uint32_t skew = (uint32_t)((uintptr_t)src % WEIR_LAYOUT_UNIT);
    const char *unit = src - skew;
    const uint32_t more = skew + bytes > WEIR_LAYOUT_UNIT;
    weir_vec16 low;
    weir_vec16 high;
    high.lo = 0;
    high.hi = 0;
    if (WEIR_ARCH_READS_UNITS && (uintptr_t)unit >= (uintptr_t)first &&
        (uintptr_t)unit + WEIR_LAYOUT_UNIT * (1 + more) <= (uintptr_t)last) {
        low = weir_arch_load_vec16((const weir_vec16 *)unit);
        if (more) {
            high = weir_arch_load_vec16((const weir_vec16 *)(unit + WEIR_LAYOUT_UNIT));
        }
        return weir_layout_low_bytes(weir_layout_shift_down(low, high, skew), bytes);
    }
    low = high;
    WEIR_ROLLED
    for (uint32_t i = 0; i < bytes; i++) {
        const uint64_t byte = (unsigned char)weir_arch_load_byte(src + i);
        low.lo |= i < 8 ? byte << i * 8 : 0;
        low.hi |= i < 8 ? 0 : byte << (i - 8) * 8;
    }
    return low;
}

/* The low `bytes` (1 to 16) bytes of the unit, by the widest words that `dst` allows. */
WEIR_FN void weir_layout_store_piece(char *dst, weir_vec16 unit, uint32_t bytes)
{
    const weir_vec16 none = { 0, 0 };
    if (bytes == WEIR_LAYOUT_UNIT && (uintptr_t)dst % WEIR_LAYOUT_UNIT == 0) {
        weir_arch_store_vec16((weir_vec16 *)dst, unit);
        return;
    }
    WEIR_ROLLED
    while (bytes != 0) {
        const uint32_t address = (uint32_t)(uintptr_t)dst;
        const uint32_t word = address % 8 == 0 && bytes >= 8   ? 8
                              : address % 4 == 0 && bytes >= 4 ? 4
                              : address % 2 == 0 && bytes >= 2 ? 2
                                                               : 1;
        if (word == 8) {
            weir_arch_store_u64((weir_alias_u64 *)dst, unit.lo);
        } else if (word == 4) {
            weir_arch_store_u32((weir_alias_u32 *)dst, (uint32_t)unit.lo);
        } else if (word == 2) {
            weir_arch_store_u16((weir_alias_u16 *)dst, (uint16_t)unit.lo);
        } else {
            weir_arch_store_byte(dst, (char)(unsigned char)unit.lo);
        }
        unit = weir_layout_shift_down(unit, none, word);
        dst += word;
        bytes -= word;
    }
}

WEIR_FN weir_vec16 weir_layout_load_pieces(const weir_dev_layout *layout, const char *src, uint64_t at)
{
    weir_vec16 unit;
    unit.lo = 0;
    unit.hi = 0;
    WEIR_ROLLED
    for (uint32_t got = 0; got < WEIR_LAYOUT_UNIT;) {
        const weir_dev_layout_run run = weir_layout_find(layout, at + got);
        const uint32_t left = WEIR_LAYOUT_UNIT - got;
        const uint32_t bytes = run.bytes < left ? (uint32_t)run.bytes : left;
        const weir_vec16 piece = weir_layout_shift_up(
            weir_layout_load_piece(src + run.place, bytes, src + layout->first, src + layout->last), got);
        unit.lo |= piece.lo;
        unit.hi |= piece.hi;
        got += bytes;
    }
    return unit;
}

WEIR_FN void weir_layout_store_pieces(const weir_dev_layout *layout, char *dst, uint64_t at, weir_vec16 unit)
{
    const weir_vec16 none = { 0, 0 };
    WEIR_ROLLED
    for (uint32_t done = 0; done < WEIR_LAYOUT_UNIT;) {
        const weir_dev_layout_run run = weir_layout_find(layout, at + done);
        const uint32_t left = WEIR_LAYOUT_UNIT - done;
        const uint32_t bytes = run.bytes < left ? (uint32_t)run.bytes : left;
        weir_layout_store_piece(dst + run.place, unit, bytes);
        if (bytes < left) {
            unit = weir_layout_shift_down(unit, none, bytes);
        }
        done += bytes;
    }
}

/* ---- units by runs: of piece lists without nests ------------------------------------------------------------ */

/* The place of the piece list that has packed byte `at`, and the place of this byte in its packed bytes. */
WEIR_FN int64_t weir_layout_list_at(const weir_dev_layout *layout, uint64_t at, uint64_t *into)
{
    if (layout->small) {
        uint32_t small_into;
        const int64_t place = weir_layout_small_at(layout, (uint32_t)at, &small_into);
        *into = small_into;
        return place;
    }
    return weir_layout_nest_at(&layout->nest, at, into);
}

/* The number of the piece that has byte `into` of the piece list. The entries of its tile bound the search, and a
 * tile's first byte needs none. */
WEIR_FN uint32_t weir_layout_list_piece(const weir_dev_layout *layout, uint64_t into)
{
    const uint32_t *tile = layout->tiles + (into >> layout->tile_shift);
    const uint32_t first = tile[0];
    return into >> layout->tile_shift << layout->tile_shift == into
               ? first
               : first + weir_layout_piece_of(layout->pieces + first, tile[1] - first + 1, into);
}

/* Bytes [begin, end) of `unit` replaced by those at the same distances from `place` on; those behind become anything.
 * Aligned units are read whole, but not near the ends of the items. */
WEIR_FN weir_vec16 weir_layout_load_run(const weir_dev_layout *layout, weir_vec16 unit, const char *memory,
                                        int64_t place, uint32_t begin, uint32_t end)
{
    const char *src = memory + place;
    const uint32_t skew = (uint32_t)((uintptr_t)src % WEIR_LAYOUT_UNIT);
    const uint64_t kept = ((uint64_t)1 << begin % 8 * 8) - 1;
    weir_vec16 low = { 0, 0 };
    weir_vec16 high = { 0, 0 };
    if (WEIR_ARCH_READS_UNITS && place - (int64_t)WEIR_LAYOUT_UNIT >= layout->first &&
        place + 2 * (int64_t)WEIR_LAYOUT_UNIT <= layout->last) {
        const weir_vec16 *units = (const weir_vec16 *)(src - skew);
        if (skew + begin < WEIR_LAYOUT_UNIT) {
            low = weir_arch_load_vec16(units);
        }
        if (skew + end > WEIR_LAYOUT_UNIT) {
            high = weir_arch_load_vec16(units + 1);
        }
        low = weir_unit_between(low, high, skew);
    } else {
        WEIR_ROLLED
        for (uint32_t i = begin; i < end; i++) {
            const uint64_t byte = (unsigned char)weir_arch_load_byte(src + i);
            low.lo |= i < 8 ? byte << i * 8 : 0;
            low.hi |= i < 8 ? 0 : byte << (i - 8) * 8;
        }
    }
    unit.lo = begin < 8 ? (unit.lo & kept) | (low.lo & ~kept) : unit.lo;
    unit.hi = begin < 8 ? low.hi : (unit.hi & kept) | (low.hi & ~kept);
    return unit;
}

/* The unit from packed byte `at` on. One search finds the first of its runs; the others follow in the list. */
WEIR_FN weir_vec16 weir_layout_load_runs(const weir_dev_layout *layout, const char *src, uint64_t at)
{
    weir_vec16 unit = { 0, 0 };
    uint32_t got = 0;
    WEIR_ROLLED
    while (got < WEIR_LAYOUT_UNIT) { /* items that have bytes of the unit */
        uint64_t into = 0;
        const int64_t list = weir_layout_list_at(layout, at + got, &into);
        const weir_layout_piece *piece = layout->pieces + weir_layout_list_piece(layout, into);
        into -= got; /* the place of the unit in the list */
        WEIR_ROLLED
        for (; got < WEIR_LAYOUT_UNIT && piece != layout->pieces + layout->piece_count; piece++) {
            const uint64_t behind = piece[1].prefix - into;
            const uint32_t end = behind < WEIR_LAYOUT_UNIT ? (uint32_t)behind : WEIR_LAYOUT_UNIT;
            const int64_t place = list + piece->place + (int64_t)(into - piece->prefix);
            unit = weir_layout_load_run(layout, unit, src, place, got, end);
            got = end;
        }
    }
    return unit;
}

WEIR_FN void weir_layout_store_runs(const weir_dev_layout *layout, char *dst, uint64_t at, weir_vec16 unit)
{
    const weir_vec16 none = { 0, 0 };
    uint32_t done = 0;
    WEIR_ROLLED
    while (done < WEIR_LAYOUT_UNIT) {
        uint64_t into = 0;
        char *list = dst + weir_layout_list_at(layout, at + done, &into);
        WEIR_ROLLED
        for (uint32_t i = weir_layout_list_piece(layout, into); done < WEIR_LAYOUT_UNIT && i < layout->piece_count;
             i++) {
            const weir_layout_piece *piece = layout->pieces + i;
            const uint64_t left = piece[1].prefix - into;
            const uint32_t bytes = left < WEIR_LAYOUT_UNIT - done ? (uint32_t)left : WEIR_LAYOUT_UNIT - done;
            weir_layout_store_piece(list + (piece->place + (int64_t)(into - piece->prefix)), unit, bytes);
            unit = weir_layout_shift_down(unit, none, bytes % WEIR_LAYOUT_UNIT);
            into += bytes;
            done += bytes;
        }
    }
}

/* ---- loops ----------------------------------------------------------------------------------------------- */

/* One side of a move: a layout around `memory`, or, with layout NULL, packed bytes, of which byte `start` is at
 * `memory`. */
typedef struct weir_layout_side {
    const weir_dev_layout *layout;
    char *memory;
    uint64_t start;
} weir_layout_side;

WEIR_FN weir_layout_side weir_layout_wide(const weir_dev_layout *layout, const void *memory)
{
    const weir_layout_side side = { layout, (char *)(uintptr_t)memory, 0 };
    return side;
}

WEIR_FN weir_layout_side weir_layout_packed(const void *memory, uint64_t start)
{
    const weir_layout_side side = { NULL, (char *)(uintptr_t)memory, start };
    return side;
}

/* `small`: a constant; the layout is small and has no piece list. */
WEIR_FN char *weir_layout_byte_of(weir_layout_side side, uint64_t at, int small)
{
    return side.memory + (side.layout == NULL ? (int64_t)(at - side.start)
                          : small             ? weir_layout_walk_from(side.layout, (uint32_t)at).place
                                              : weir_layout_find(side.layout, at).place);
}

/* The bytes in front of the units, which begin at packed byte `body`, and those behind them. */
WEIR_FN void weir_layout_move_edges(weir_layout_side to, weir_layout_side from, uint64_t body, uint64_t units,
                                    uint64_t head, uint64_t tail, int small, weir_coop coop)
{
    WEIR_ROLLED
    for (uint64_t i = coop.rank; i < head + tail; i += coop.size) {
        const uint64_t at = i < head ? body - head + i : body + units * WEIR_LAYOUT_UNIT + (i - head);
        weir_arch_store_byte(weir_layout_byte_of(to, at, small),
                             weir_arch_load_byte(weir_layout_byte_of(from, at, small)));
    }
}

/* A transpose has neighbouring runs in the steps of its outermost dim. There a warp takes a tile of 8 such steps by 4
 * units, so that its lanes access neighbouring bytes on both sides. Returns the number of tiles in 8 steps of a small
 * layout; 0: the layout is no transpose, or its sides do not divide. All of its units move. */
#define WEIR_LAYOUT_TILE_STEPS 8u
#define WEIR_LAYOUT_TILE_UNITS 4u

WEIR_FN uint32_t weir_layout_tiles(const weir_dev_layout *layout, uint32_t at, uint32_t units)
{
    const weir_layout_nest *nest = &layout->nest;
    const uint32_t width = WEIR_LAYOUT_TILE_UNITS * WEIR_LAYOUT_UNIT;
    if (nest->dims < 2 || nest->dim[0].stride != (int64_t)nest->run || at != 0 ||
        units * (uint64_t)WEIR_LAYOUT_UNIT != nest->size || nest->dim[0].count % WEIR_LAYOUT_TILE_STEPS != 0) {
        return 0;
    }
    const uint32_t step = (uint32_t)nest->size / (uint32_t)nest->dim[0].count;
    return step % width == 0 ? step / width : 0;
}

/* The i-th unit in the order of tiles. */
WEIR_FN uint32_t weir_layout_tiled_unit(uint32_t i, uint32_t tiles)
{
    const uint32_t tile = i / (WEIR_LAYOUT_TILE_STEPS * WEIR_LAYOUT_TILE_UNITS);
    const uint32_t lane = i % (WEIR_LAYOUT_TILE_STEPS * WEIR_LAYOUT_TILE_UNITS);
    const uint32_t strip = tile / tiles;
    const uint32_t step = strip * WEIR_LAYOUT_TILE_STEPS + lane % WEIR_LAYOUT_TILE_STEPS;
    return (step * tiles + (tile - strip * tiles)) * WEIR_LAYOUT_TILE_UNITS + lane / WEIR_LAYOUT_TILE_STEPS;
}

/* Words that a thread has under way where they move one by one; at most 4. */
WEIR_FN uint32_t weir_layout_spread_words(uint32_t word) { return word == 1 ? 4 : 2; }

/* True if words move one by one. A transpose has its tiles instead. */
WEIR_FN int weir_layout_spreads(weir_layout_side to, weir_layout_side from, uint32_t tiles, uint32_t word)
{
    return word < WEIR_LAYOUT_UNIT && tiles == 0 &&
           (to.layout != NULL || from.layout->nest.run <= WEIR_LAYOUT_SHORT_RUN);
}

/* Words from packed byte `at` on. A thread has several words under way, a warp's width apart. `word` is a constant. */
WEIR_FN void weir_layout_move_spread(weir_layout_side to, weir_layout_side from, uint32_t at, uint32_t words,
                                     uint32_t word, weir_coop coop)
{
    const uint32_t many = weir_layout_spread_words(word);
    WEIR_ROLLED
    for (uint32_t i = coop.rank; i / WEIR_LAYOUT_LANES * WEIR_LAYOUT_LANES * many < words; i += coop.size) {
        const uint32_t first = i / WEIR_LAYOUT_LANES * WEIR_LAYOUT_LANES * many + i % WEIR_LAYOUT_LANES;
        uint64_t values[4];
        WEIR_UNROLL
        for (uint32_t k = 0; k < many; k++) {
            const uint32_t j = first + k * WEIR_LAYOUT_LANES;
            if (j < words) {
                values[k] = weir_layout_load_word(weir_layout_byte_of(from, at + j * word, 1), word);
            }
        }
        WEIR_UNROLL
        for (uint32_t k = 0; k < many; k++) {
            const uint32_t j = first + k * WEIR_LAYOUT_LANES;
            if (j < words) {
                weir_layout_store_word(weir_layout_byte_of(to, at + j * word, 1), values[k], word);
            }
        }
    }
}

/* Units from packed byte `at` on. `word` is a constant. */
WEIR_FN void weir_layout_move_words(weir_layout_side to, weir_layout_side from, uint32_t at, uint32_t units,
                                    uint32_t word, weir_coop coop)
{
    const uint32_t tiles = weir_layout_tiles(from.layout != NULL ? from.layout : to.layout, at, units);
    if (weir_layout_spreads(to, from, tiles, word)) {
        weir_layout_move_spread(to, from, at, units * (WEIR_LAYOUT_UNIT / word), word, coop);
        return;
    }
    for (uint32_t i = coop.rank; i < units; i += coop.size) {
        const uint32_t place = at + (tiles == 0 ? i : weir_layout_tiled_unit(i, tiles)) * WEIR_LAYOUT_UNIT;
        const weir_vec16 unit = from.layout != NULL
                                    ? weir_layout_load_words(from.layout, from.memory, place, word)
                                    : weir_arch_load_vec16((const weir_vec16 *)(from.memory + (place - from.start)));
        if (to.layout != NULL) {
            weir_layout_store_words(to.layout, to.memory, place, unit, word);
        } else {
            weir_arch_store_vec16((weir_vec16 *)(to.memory + (place - to.start)), unit);
        }
    }
}

WEIR_FN void weir_layout_move_pieces(weir_layout_side to, weir_layout_side from, uint64_t at, uint64_t units,
                                     weir_coop coop)
{
    WEIR_ROLLED
    for (uint64_t i = coop.rank; i < units; i += coop.size) {
        const uint64_t place = at + i * WEIR_LAYOUT_UNIT;
        const weir_vec16 unit = from.layout != NULL
                                    ? weir_layout_load_pieces(from.layout, from.memory, place)
                                    : weir_arch_load_vec16((const weir_vec16 *)(from.memory + (place - from.start)));
        if (to.layout != NULL) {
            weir_layout_store_pieces(to.layout, to.memory, place, unit);
        } else {
            weir_arch_store_vec16((weir_vec16 *)(to.memory + (place - to.start)), unit);
        }
    }
}

/* One side is packed, the other a piece list without nests. */
WEIR_FN void weir_layout_move_runs(weir_layout_side to, weir_layout_side from, uint64_t at, uint64_t units,
                                   weir_coop coop)
{
    const uint64_t end = at + units * WEIR_LAYOUT_UNIT;
    WEIR_ROLLED
    for (uint64_t place = at + (uint64_t)coop.rank * WEIR_LAYOUT_UNIT; place < end;
         place += (uint64_t)coop.size * WEIR_LAYOUT_UNIT) {
        if (to.layout == NULL) {
            weir_arch_store_vec16((weir_vec16 *)(to.memory + (place - to.start)),
                                  weir_layout_load_runs(from.layout, from.memory, place));
        } else {
            weir_layout_store_runs(to.layout, to.memory, place,
                                   weir_arch_load_vec16((const weir_vec16 *)(from.memory + (place - from.start))));
        }
    }
}

/* weir_layout_byte_of for a piece list without nests, or packed bytes; in line. */
WEIR_FN char *weir_layout_run_byte_of(weir_layout_side side, uint64_t at)
{
    uint64_t into = 0;
    if (side.layout == NULL) {
        return side.memory + (at - side.start);
    }
    const int64_t list = weir_layout_list_at(side.layout, at, &into);
    const weir_layout_piece *piece = side.layout->pieces + weir_layout_list_piece(side.layout, into);
    return side.memory + (list + piece->place + (int64_t)(into - piece->prefix));
}

/* The bytes in front of the units of weir_layout_move_runs, and those behind them. */
WEIR_FN void weir_layout_move_run_edges(weir_layout_side to, weir_layout_side from, uint64_t body, uint64_t units,
                                        uint64_t head, uint64_t tail, weir_coop coop)
{
    WEIR_ROLLED
    for (uint64_t i = coop.rank; i < head + tail; i += coop.size) {
        const uint64_t at = i < head ? body - head + i : body + units * WEIR_LAYOUT_UNIT + (i - head);
        weir_arch_store_byte(weir_layout_run_byte_of(to, at), weir_arch_load_byte(weir_layout_run_byte_of(from, at)));
    }
}

/* From this length of runs on, a warp needs at most two pieces for most units, which then cost less than words of 1 or
 * 2 bytes. */
#define WEIR_LAYOUT_LONG_RUN 1024u

/* In place of a word: units by pieces, and units by runs of a piece list without nests. */
#define WEIR_LAYOUT_BY_PIECES 0u
#define WEIR_LAYOUT_BY_RUNS 32u

/* The word for units from `at` on, or WEIR_LAYOUT_BY_PIECES. */
WEIR_FN uint32_t weir_layout_word_of(weir_layout_side side, uint64_t at)
{
    if (side.layout == NULL) {
        return 16;
    }
    const uint64_t all = side.layout->word | (uintptr_t)side.memory | at;
    const uint32_t word = (uint32_t)(all & (0 - all));
    const int pieces = side.layout->pieces != NULL || !side.layout->small ||
                       (word <= 2 && side.layout->nest.run >= WEIR_LAYOUT_LONG_RUN);
    return pieces ? WEIR_LAYOUT_BY_PIECES : word;
}

/* The bytes in front of the first unit of a move of packed bytes [at, at + bytes): units are aligned on the packed
 * side.
 */
WEIR_FN uint64_t weir_layout_head(weir_layout_side to, weir_layout_side from, uint64_t at, uint64_t bytes)
{
    const uintptr_t packed = to.layout == NULL     ? (uintptr_t)to.memory + (at - to.start)
                             : from.layout == NULL ? (uintptr_t)from.memory + (at - from.start)
                                                   : 0;
    const uint64_t head = (0 - packed) % WEIR_LAYOUT_UNIT;
    return head < bytes ? head : bytes;
}

/* The word for the units of a move of packed bytes [at, at + bytes), or WEIR_LAYOUT_BY_PIECES. */
WEIR_FN uint32_t weir_layout_choose_word(weir_layout_side to, weir_layout_side from, uint64_t at, uint64_t bytes)
{
    const uint64_t body = at + weir_layout_head(to, from, at, bytes);
    const uint32_t word_to = weir_layout_word_of(to, body);
    const uint32_t word_from = weir_layout_word_of(from, body);
    return word_to < word_from ? word_to : word_from;
}

/* The number of threads that share a move of packed bytes [at, at + bytes) best. */
WEIR_FN uint64_t weir_layout_threads(weir_layout_side to, weir_layout_side from, uint64_t at, uint64_t bytes,
                                     uint32_t word)
{
    const uint64_t head = weir_layout_head(to, from, at, bytes);
    const uint64_t units = (bytes - head) / WEIR_LAYOUT_UNIT;
    if (word == WEIR_LAYOUT_BY_PIECES || word == WEIR_LAYOUT_BY_RUNS) {
        return units + 1;
    }
    const uint32_t tiles =
        weir_layout_tiles(from.layout != NULL ? from.layout : to.layout, (uint32_t)(at + head), (uint32_t)units);
    return (weir_layout_spreads(to, from, tiles, word)
                ? units * (WEIR_LAYOUT_UNIT / word / weir_layout_spread_words(word))
                : units) +
           1;
}

/* Moves packed bytes [at, at + bytes). At most one side is packed. `word` is a constant: that of
 * weir_layout_choose_word, or a divisor of it, or WEIR_LAYOUT_BY_PIECES; or WEIR_LAYOUT_BY_RUNS, if one side is packed
 * and the other a piece list without nests. */
WEIR_FN void weir_layout_move(weir_layout_side to, weir_layout_side from, uint64_t at, uint64_t bytes, uint32_t word,
                              weir_coop coop)
{
    const uint64_t head = weir_layout_head(to, from, at, bytes);
    const uint64_t units = (bytes - head) / WEIR_LAYOUT_UNIT;
    const uint64_t tail = (bytes - head) % WEIR_LAYOUT_UNIT;
    if (word == WEIR_LAYOUT_BY_RUNS) {
        weir_layout_move_run_edges(to, from, at + head, units, head, tail, coop);
        weir_layout_move_runs(to, from, at + head, units, coop);
        return;
    }
    if (word == WEIR_LAYOUT_BY_PIECES) {
        weir_layout_move_pieces(to, from, at + head, units, coop);
    } else {
        weir_layout_move_words(to, from, (uint32_t)(at + head), (uint32_t)units, word, coop);
    }
    weir_layout_move_edges(to, from, at + head, units, head, tail, word != WEIR_LAYOUT_BY_PIECES, coop);
}

/* The same with the word of weir_layout_choose_word. */
WEIR_FN_COLD void weir_layout_move_any(weir_layout_side to, weir_layout_side from, uint64_t at, uint64_t bytes,
                                       weir_coop coop)
{
    switch (weir_layout_choose_word(to, from, at, bytes)) {
    case 16:
        weir_layout_move(to, from, at, bytes, 16, coop);
        break;
    case 8:
        weir_layout_move(to, from, at, bytes, 8, coop);
        break;
    case 4:
        weir_layout_move(to, from, at, bytes, 4, coop);
        break;
    case 2:
        weir_layout_move(to, from, at, bytes, 2, coop);
        break;
    case 1:
        weir_layout_move(to, from, at, bytes, 1, coop);
        break;
    default:
        weir_layout_move(to, from, at, bytes, WEIR_LAYOUT_BY_PIECES, coop);
    }
}

/* The word of a move of which each of `size` threads takes at most two words: 4, 8 or 16. 0 for all other moves. */
WEIR_FN uint32_t weir_layout_few_word(weir_layout_side to, weir_layout_side from, uint64_t at, uint64_t bytes,
                                      uint32_t size)
{
    const uint64_t packed = to.layout == NULL     ? (uintptr_t)to.memory + (at - to.start)
                            : from.layout == NULL ? (uintptr_t)from.memory + (at - from.start)
                                                  : 0;
    const uint32_t word_to = weir_layout_word_of(to, at);
    const uint32_t word_from = weir_layout_word_of(from, at);
    const uint32_t word = word_to < word_from ? word_to : word_from;
    return word >= 4 && (packed | bytes) % word == 0 && bytes <= (uint64_t)size * word * 2 ? word : 0;
}

WEIR_FN void weir_layout_move_few(weir_layout_side to, weir_layout_side from, uint64_t at, uint64_t bytes,
                                  uint32_t word, weir_coop coop)
{
    WEIR_ROLLED
    for (uint64_t i = (uint64_t)coop.rank * word; i < bytes; i += (uint64_t)coop.size * word) {
        const char *src = weir_layout_byte_of(from, at + i, 1);
        char *dst = weir_layout_byte_of(to, at + i, 1);
        if (word == 16) {
            weir_arch_store_vec16((weir_vec16 *)dst, weir_arch_load_vec16((const weir_vec16 *)src));
        } else if (word == 8) {
            weir_layout_store_word(dst, weir_layout_load_word(src, 8), 8);
        } else {
            weir_layout_store_word(dst, weir_layout_load_word(src, 4), 4);
        }
    }
}

/* Moves packed bytes [at, at + bytes). A few words move in line, so that a kernel that has the layouts among its
 * arguments reads them from there and not through a pointer. On H200 that saves 1 us of a copy of 1 KiB. */
WEIR_FN void weir_layout_move_range(weir_layout_side to, weir_layout_side from, uint64_t at, uint64_t bytes,
                                    weir_coop coop)
{
    const uint32_t word = weir_layout_few_word(to, from, at, bytes, coop.size);
    if (word != 0) {
        weir_layout_move_few(to, from, at, bytes, word, coop);
    } else {
        weir_layout_move_any(to, from, at, bytes, coop);
    }
}

#endif
