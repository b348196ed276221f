/* weir/device/impl/run.h - moves one run of bytes between two places of any alignment, by a group of lanes.
 *
 * A link carries one request for each aligned 128-byte line that an instruction of a warp touches. So the far end of a
 * run is accessed in aligned 16-byte units, neighbours by neighbouring lanes. A run that the lanes cover at once begins
 * at its first unit, a longer one at a line. weir_run_move reads the far end, weir_run_put writes it; the near end lies
 * in local memory, which hides accesses of any size.
 *
 * Threads:   lanes 0 to lanes - 1 of a group call with the same run; the number of lanes is a power of two up to 32.
 *            The runs must not overlap.
 * Order:     none; use a signal or a barrier afterwards. */
#ifndef WEIR_DEVICE_IMPL_RUN_H
#define WEIR_DEVICE_IMPL_RUN_H

#include "weir/device/arch.h"

#define WEIR_RUN_LINE 128u
#define WEIR_RUN_UNIT 16u
#define WEIR_RUN_BATCH 4 /* loads under way of each lane */

/* Where the first lane begins, counted from the run; at most 0. */
WEIR_FN int64_t weir_run_start(const char *far, uint64_t bytes, uint32_t lanes)
{
    const uint64_t unit = (uintptr_t)far % WEIR_RUN_UNIT;
    return -(int64_t)(unit + bytes <= lanes * WEIR_RUN_UNIT ? unit : (uintptr_t)far % WEIR_RUN_LINE);
}

/* Byte i of the unit. */
WEIR_FN char weir_run_byte(weir_vec16 unit, int64_t i)
{
    const uint64_t half = i < 8 ? unit.lo : unit.hi;
    return (char)(unsigned char)(half >> (i % 8 * 8));
}

/* The unit at src + at, of which bytes [from, to) belong to the run. Bytes outside [first, last) are not read. */
WEIR_FN weir_vec16 weir_run_load(const char *src, int64_t at, int64_t from, int64_t to, const char *first,
                                 const char *last)
{
    const uintptr_t unit = (uintptr_t)src + (uintptr_t)at;
    weir_vec16 value;
    value.lo = 0;
    value.hi = 0;
    if (unit >= (uintptr_t)first && unit + WEIR_RUN_UNIT <= (uintptr_t)last) {
        return weir_arch_load_vec16((const weir_vec16 *)(src + at));
    }
    WEIR_ROLLED
    for (int64_t i = from; i < to; i++) {
        const uint64_t byte = (unsigned char)weir_arch_load_byte(src + at + i);
        value.lo |= i < 8 ? byte << (i * 8) : 0;
        value.hi |= i < 8 ? 0 : byte << ((i - 8) * 8);
    }
    return value;
}

/* Stores bytes [from, to) of the unit to dst + at, by the widest words that fit. */
WEIR_FN void weir_run_store(char *dst, int64_t at, int64_t from, int64_t to, weir_vec16 unit)
{
    const uintptr_t place = (uintptr_t)dst + (uintptr_t)at;
    const int whole = to - from == WEIR_RUN_UNIT;
    if (whole && place % 16 == 0) {
        weir_arch_store_vec16((weir_vec16 *)(dst + at), unit);
    } else if (whole && place % 8 == 0) {
        weir_arch_store_u64((weir_alias_u64 *)(dst + at), unit.lo);
        weir_arch_store_u64((weir_alias_u64 *)(dst + at) + 1, unit.hi);
    } else if (((uintptr_t)from | (uintptr_t)to | place) % 4 == 0) {
        WEIR_UNROLL
        for (int k = 0; k < 4; k++) {
            if (4 * k >= from && 4 * k < to) {
                weir_arch_store_u32((weir_alias_u32 *)(dst + at + 4 * k),
                                    (uint32_t)((k < 2 ? unit.lo : unit.hi) >> (k % 2 * 32)));
            }
        }
    } else if (((uintptr_t)from | (uintptr_t)to | place) % 2 == 0) {
        WEIR_ROLLED
        for (int64_t i = from; i < to; i += 2) {
            weir_arch_store_u16((weir_alias_u16 *)(dst + at + i),
                                (uint16_t)((i < 8 ? unit.lo : unit.hi) >> (i % 8 * 8)));
        }
    } else {
        WEIR_ROLLED
        for (int64_t i = from; i < to; i++) {
            weir_arch_store_byte(dst + at + i, weir_run_byte(unit, i));
        }
    }
}

/* The part of the unit at `at` that belongs to a run of `bytes` bytes. */
WEIR_FN int64_t weir_run_from(int64_t at) { return at < 0 ? -at : 0; }

WEIR_FN int64_t weir_run_to(int64_t at, int64_t bytes)
{
    return bytes - at < (int64_t)WEIR_RUN_UNIT ? bytes - at : (int64_t)WEIR_RUN_UNIT;
}

/* Whether a run of `bytes` bytes has a byte of the unit at `at`. A lane without one idles: if it went on to its next
 * unit, the lanes that share a line would read it in two requests. */
WEIR_FN int weir_run_has(int64_t at, int64_t bytes) { return at > -(int64_t)WEIR_RUN_UNIT && at < bytes; }

/* Copies `bytes` bytes from src to dst. It reads whole units of src where they lie in [first, last), and no byte
 * outside; it writes exactly the run. */
WEIR_FN void weir_run_move_units(char *dst, const char *src, uint64_t bytes, const char *first, const char *last,
                                 uint32_t lane, uint32_t lanes)
{
    const int64_t size = (int64_t)bytes;
    const int64_t stride = (int64_t)lanes * WEIR_RUN_UNIT;
    int64_t at = weir_run_start(src, bytes, lanes) + (int64_t)lane * WEIR_RUN_UNIT;
    for (; at < size; at += WEIR_RUN_BATCH * stride) {
        weir_vec16 units[WEIR_RUN_BATCH];
        WEIR_UNROLL
        for (int k = 0; k < WEIR_RUN_BATCH; k++) {
            const int64_t unit = at + k * stride;
            units[k].lo = 0;
            units[k].hi = 0;
            if (weir_run_has(unit, size)) {
                units[k] = weir_run_load(src, unit, weir_run_from(unit), weir_run_to(unit, size), first, last);
            }
        }
        WEIR_UNROLL
        for (int k = 0; k < WEIR_RUN_BATCH; k++) {
            const int64_t unit = at + k * stride;
            if (weir_run_has(unit, size)) {
                weir_run_store(dst, unit, weir_run_from(unit), weir_run_to(unit, size), units[k]);
            }
        }
    }
}

/* The same as weir_run_move_units on a GPU. On a CPU it reads only the run. */
WEIR_FN void weir_run_move(char *dst, const char *src, uint64_t bytes, const char *first, const char *last,
                           uint32_t lane, uint32_t lanes)
{
    weir_run_move_units(dst, src, bytes, WEIR_ARCH_READS_UNITS ? first : src,
                        WEIR_ARCH_READS_UNITS ? last : src + bytes, lane, lanes);
}

/* Copies `bytes` bytes from src to dst, and stores each whole aligned unit of dst by one instruction. It reads and
 * writes exactly the run. */
WEIR_FN void weir_run_put(char *dst, const char *src, uint64_t bytes, uint32_t lane, uint32_t lanes)
{
    const int64_t size = (int64_t)bytes;
    const int64_t stride = (int64_t)lanes * WEIR_RUN_UNIT;
    for (int64_t at = weir_run_start(dst, bytes, lanes) + (int64_t)lane * WEIR_RUN_UNIT; at < size; at += stride) {
        const uintptr_t place = (uintptr_t)src + (uintptr_t)at;
        const int64_t from = weir_run_from(at);
        const int64_t to = weir_run_to(at, size);
        weir_vec16 unit;
        if (from >= (int64_t)WEIR_RUN_UNIT) {
            continue;
        }
        if (to - from == WEIR_RUN_UNIT && place % 16 != 0 && place % 4 == 0) {
            const weir_alias_u32 *words = (const weir_alias_u32 *)(src + at);
            unit.lo = (uint64_t)weir_arch_load_u32(words + 1) << 32 | weir_arch_load_u32(words);
            unit.hi = (uint64_t)weir_arch_load_u32(words + 3) << 32 | weir_arch_load_u32(words + 2);
        } else {
            const int whole = to - from == WEIR_RUN_UNIT && place % 16 == 0;
            unit = weir_run_load(src, at, from, to, whole ? src + at : src, whole ? src + at + WEIR_RUN_UNIT : src);
        }
        weir_run_store(dst, at, from, to, unit);
    }
}

#endif
