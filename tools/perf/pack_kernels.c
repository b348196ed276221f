/* pack_kernels.c - packs and unpacks of strided rows written by hand, for weir-perf pack and unpack.
 *
 * They take a box of two dimensions around a run, without checks. All have a fast division by constants of the box.
 * `units` builds 16 bytes of the dense side in a thread, from words of a size that divides everything. `runs` gives
 * each row to a group of lanes. `seed` moves one word in a thread, with a block whose sides are powers of two. `lone`
 * shows what the rows cost: it reads one byte of each. */
#include "tools/perf/pack.h"

/* ---- index --------------------------------------------------------------------------------------------- */

/* A place of the box: a row by its two indices, and a byte of it. */
typedef struct spot {
    uint32_t outer;
    uint32_t inner;
    uint32_t column;
} spot;

WEIR_FN spot spot_of(const pack_args *args, uint32_t packed)
{
    const uint32_t row = pack_divide(packed, args->by_run);
    spot at;
    at.column = packed - row * (uint32_t)args->box.run;
    at.outer = pack_divide(row, args->by_inner);
    at.inner = row - at.outer * (uint32_t)args->box.counts[1];
    return at;
}

WEIR_FN uint64_t offset_of(const pack_args *args, spot at)
{
    return at.outer * args->box.strides[0] + at.inner * args->box.strides[1] + at.column;
}

WEIR_FN spot next_word(const pack_args *args, spot at, uint32_t word)
{
    at.column += word;
    if (at.column == (uint32_t)args->box.run) {
        at.column = 0;
        at.inner++;
        if (at.inner == (uint32_t)args->box.counts[1]) {
            at.inner = 0;
            at.outer++;
        }
    }
    return at;
}

/* ---- units --------------------------------------------------------------------------------------------- */

/* 16 bytes of the box from packed byte `packed` on. `word` is a constant. */
WEIR_FN weir_vec16 load_wide(const pack_args *args, uint32_t packed, uint32_t word)
{
    spot at = spot_of(args, packed);
    weir_vec16 unit;
    unit.lo = 0;
    unit.hi = 0;
    if (word == 16) {
        return weir_arch_load_vec16((const weir_vec16 *)(args->wide + offset_of(args, at)));
    }
    WEIR_UNROLL
    for (uint32_t k = 0; k < 16; k += word) {
        const uint64_t value = pack_load_word(args->wide + offset_of(args, at), word);
        unit.lo |= k < 8 ? value << k % 8 * 8 : 0;
        unit.hi |= k < 8 ? 0 : value << k % 8 * 8;
        at = next_word(args, at, word);
    }
    return unit;
}

WEIR_FN void store_wide(const pack_args *args, uint32_t packed, weir_vec16 unit, uint32_t word)
{
    spot at = spot_of(args, packed);
    if (word == 16) {
        weir_arch_store_vec16((weir_vec16 *)(args->wide + offset_of(args, at)), unit);
        return;
    }
    WEIR_UNROLL
    for (uint32_t k = 0; k < 16; k += word) {
        pack_store_word(args->wide + offset_of(args, at), (k < 8 ? unit.lo : unit.hi) >> k % 8 * 8, word);
        at = next_word(args, at, word);
    }
}

/* `word` and `batch` are constants: bytes of a word, and units that a thread has under way. */
WEIR_FN void move_units(const pack_args *args, weir_coop coop, uint32_t word, uint32_t batch)
{
    const uint32_t units = (uint32_t)(args->bytes / 16);
    for (uint32_t first = coop.rank; first < units; first += coop.size * batch) {
        weir_vec16 unit[4];
        WEIR_PARTLY_SET(unit);
        WEIR_UNROLL
        for (uint32_t k = 0; k < batch; k++) {
            const uint32_t packed = (first + k * coop.size) * 16;
            if (first + k * coop.size < units) {
                unit[k] = args->unpack ? weir_arch_load_vec16((const weir_vec16 *)(args->dense + packed))
                                       : load_wide(args, packed, word);
            }
        }
        WEIR_UNROLL
        for (uint32_t k = 0; k < batch; k++) {
            const uint32_t packed = (first + k * coop.size) * 16;
            if (first + k * coop.size < units && args->unpack) {
                store_wide(args, packed, unit[k], word);
            } else if (first + k * coop.size < units) {
                weir_arch_store_vec16((weir_vec16 *)(args->dense + packed), unit[k]);
            }
        }
    }
    for (uint32_t packed = units * 16 + coop.rank; packed < args->bytes; packed += coop.size) { /* the tail */
        char *wide = args->wide + offset_of(args, spot_of(args, packed));
        char *dense = args->dense + packed;
        weir_arch_store_byte(args->unpack ? wide : dense, weir_arch_load_byte(args->unpack ? dense : wide));
    }
}

WEIR_KERNEL_FOR(pack_units_1, pack_args, 1024) { move_units(args, coop, 1, 1); }
WEIR_KERNEL_FOR(pack_units_2, pack_args, 1024) { move_units(args, coop, 2, 1); }
WEIR_KERNEL_FOR(pack_units_4, pack_args, 1024) { move_units(args, coop, 4, 1); }
WEIR_KERNEL_FOR(pack_units_4_by_2, pack_args, 1024) { move_units(args, coop, 4, 2); }
WEIR_KERNEL_FOR(pack_units_8, pack_args, 1024) { move_units(args, coop, 8, 1); }
WEIR_KERNEL_FOR(pack_units_8_by_4, pack_args, 1024) { move_units(args, coop, 8, 4); }
WEIR_KERNEL_FOR(pack_units_16, pack_args, 1024) { move_units(args, coop, 16, 1); }
WEIR_KERNEL_FOR(pack_units_16_by_4, pack_args, 1024) { move_units(args, coop, 16, 4); }

/* ---- runs ---------------------------------------------------------------------------------------------- */

/* Groups of lanes move rows whose length, strides and addresses are multiples of 16 bytes. A lane has 4 units under
 * way: of one row, or of neighbouring rows where the group covers a row at once. */
WEIR_KERNEL_FOR(pack_runs_16, pack_args, 1024)
{
    const uint32_t lanes = args->lanes;
    const uint32_t lane = coop.rank % lanes;
    const uint32_t group = coop.rank / lanes;
    const uint32_t groups = coop.size / lanes;
    const uint32_t per_row = (uint32_t)(args->box.run / 16);
    const uint32_t rounds = (per_row + lanes - 1) / lanes; /* of the group, for a row */
    const uint32_t rows = (uint32_t)(args->box.counts[0] * args->box.counts[1]);
    const uint32_t at_once = rounds >= PACK_RUNS_BATCH ? 1 : PACK_RUNS_BATCH; /* rows */
    for (uint32_t first = group; group < groups && first < rows; first += groups * at_once) {
        for (uint32_t round = 0; round < rounds; round += PACK_RUNS_BATCH / at_once) {
            weir_vec16 unit[PACK_RUNS_BATCH];
            WEIR_PARTLY_SET(unit);
            uint64_t wide[PACK_RUNS_BATCH];
            uint64_t dense[PACK_RUNS_BATCH];
            uint32_t valid = 0;
            WEIR_UNROLL
            for (uint32_t k = 0; k < PACK_RUNS_BATCH; k++) {
                const uint32_t row = at_once == 1 ? first : first + k * groups;
                const uint32_t column = (round + (at_once == 1 ? k : 0)) * lanes + lane;
                const uint32_t outer = pack_divide(row, args->by_inner);
                const uint32_t inner = row - outer * (uint32_t)args->box.counts[1];
                valid |= (uint32_t)(row < rows && column < per_row) << k;
                wide[k] = outer * args->box.strides[0] + inner * args->box.strides[1] + column * 16;
                dense[k] = row * args->box.run + column * 16;
                if (valid >> k & 1) {
                    unit[k] = weir_arch_load_vec16(
                        (const weir_vec16 *)(args->unpack ? args->dense + dense[k] : args->wide + wide[k]));
                }
            }
            WEIR_UNROLL
            for (uint32_t k = 0; k < PACK_RUNS_BATCH; k++) {
                if (valid >> k & 1) {
                    weir_arch_store_vec16((weir_vec16 *)(args->unpack ? args->wide + wide[k] : args->dense + dense[k]),
                                          unit[k]);
                }
            }
        }
    }
}

/* ---- seed ---------------------------------------------------------------------------------------------- */

/* One word of up to 8 bytes in a thread. Sides of a block, in words, rows and groups of rows, are powers of two; the
 * grid covers the box. */
WEIR_KERNEL_FOR(pack_seed_words, pack_args, 1024)
{
    const uint32_t word = args->word;
    const uint32_t sizes[3] = { (uint32_t)args->box.run / word, (uint32_t)args->box.counts[1],
                                (uint32_t)args->box.counts[0] };
    const uint32_t *bits = args->seed_bits;
    const uint32_t blocks_x = (sizes[0] + (1u << bits[0]) - 1) >> bits[0];
    const uint32_t blocks_y = (sizes[1] + (1u << bits[1]) - 1) >> bits[1];
    const uint32_t blocks_z = (sizes[2] + (1u << bits[2]) - 1) >> bits[2];
    for (uint64_t i = coop.rank; i < (uint64_t)blocks_x * blocks_y * blocks_z << (bits[0] + bits[1] + bits[2]);
         i += coop.size) {
        const uint32_t thread = (uint32_t)i & ((1u << (bits[0] + bits[1] + bits[2])) - 1);
        const uint32_t block = (uint32_t)(i >> (bits[0] + bits[1] + bits[2]));
        const uint32_t x = (block % blocks_x << bits[0]) + (thread & ((1u << bits[0]) - 1));
        const uint32_t y = (block / blocks_x % blocks_y << bits[1]) + (thread >> bits[0] & ((1u << bits[1]) - 1));
        const uint32_t z = (block / blocks_x / blocks_y << bits[2]) + (thread >> (bits[0] + bits[1]));
        if (x < sizes[0] && y < sizes[1] && z < sizes[2]) {
            char *wide = args->wide + z * args->box.strides[0] + y * args->box.strides[1] + x * word;
            char *dense = args->dense + ((uint64_t)z * sizes[1] + y) * args->box.run + x * word;
            pack_store_word(args->unpack ? wide : dense, pack_load_word(args->unpack ? dense : wide, word), word);
        }
    }
}

/* ---- lone ---------------------------------------------------------------------------------------------- */

/* The sum keeps the loads alive: no byte is stored, because `never` is above each sum. */
WEIR_FN void read_lone(const pack_args *args, weir_coop coop, uint32_t batch)
{
    const uint32_t rows = (uint32_t)(args->box.counts[0] * args->box.counts[1]);
    for (uint32_t first = coop.rank; first < rows; first += coop.size * batch) {
        uint32_t sum = 0;
        WEIR_UNROLL
        for (uint32_t k = 0; k < batch; k++) {
            const uint32_t row = first + k * coop.size;
            const uint32_t outer = pack_divide(row, args->by_inner);
            const uint32_t inner = row - outer * (uint32_t)args->box.counts[1];
            if (row < rows) {
                sum += (unsigned char)weir_arch_load_byte(args->wide + outer * args->box.strides[0] +
                                                          inner * args->box.strides[1]);
            }
        }
        if (sum == args->never) {
            weir_arch_store_byte(args->dense, (char)sum);
        }
    }
}

WEIR_KERNEL_FOR(pack_lone_1, pack_args, 1024) { read_lone(args, coop, 1); }
WEIR_KERNEL_FOR(pack_lone_8, pack_args, 1024) { read_lone(args, coop, PACK_LONE_BATCH); }

/* ---- data ---------------------------------------------------------------------------------------------- */

WEIR_KERNEL_FOR(fill_pattern, pack_args, 1024)
{
    for (uint64_t i = coop.rank; i < args->bytes / 8; i += coop.size) {
        weir_arch_store_u64((weir_alias_u64 *)args->dense + i, pack_pattern_word(i));
    }
}

WEIR_KERNEL_FOR(compare_bytes, pack_args, 1024)
{
    uint64_t wrong = 0;
    for (uint64_t i = coop.rank; i < args->bytes; i += coop.size) {
        const uint64_t row = i / args->box.run;
        const uint64_t column = i % args->box.run;
        const uint64_t at = row / args->box.counts[1] * args->box.strides[0] +
                            row % args->box.counts[1] * args->box.strides[1] + column;
        if (args->unpack) {
            wrong += (unsigned char)weir_arch_load_byte(args->wide + at) != pack_pattern_byte(args->first + i);
            if (args->gap && column + 1 == args->box.run && i + 1 < args->bytes) {
                wrong += (unsigned char)weir_arch_load_byte(args->wide + at + 1) != PACK_POISON;
            }
        } else {
            wrong += (unsigned char)weir_arch_load_byte(args->dense + i) != pack_pattern_byte(args->first + at);
        }
    }
    if (wrong != 0) {
        weir_arch_add_relaxed_sys_u64(args->wrong, wrong);
    }
}

const pack_units_form pack_units[PACK_WORDS][2] = { { { &pack_units_1, 1 }, { NULL, 0 } },
                                                    { { &pack_units_2, 1 }, { NULL, 0 } },
                                                    { { &pack_units_4, 1 }, { &pack_units_4_by_2, 2 } },
                                                    { { &pack_units_8, 1 }, { &pack_units_8_by_4, 4 } },
                                                    { { &pack_units_16, 1 }, { &pack_units_16_by_4, 4 } } };
const weir_kernel *const pack_runs = &pack_runs_16;
const weir_kernel *const pack_lone = &pack_lone_1;
const weir_kernel *const pack_lone_batch = &pack_lone_8;
const weir_kernel *const pack_seed = &pack_seed_words;
const weir_kernel *const pack_fill = &fill_pattern;
const weir_kernel *const pack_compare = &compare_bytes;
