/* pack_list_kernels.c - packs and unpacks of blocks at irregular places written by hand, for weir-perf pack and unpack.
 *
 * They get tables that the host made: where each block lies and begins in the packed form, and the block of the first
 * byte of each 16 packed bytes. So nothing searches. `units` moves 16 packed bytes in a thread: a pack joins the parts
 * of the blocks from aligned loads of 16 bytes, an unpack stores bytes. `blocks` gives each block to a group of lanes.
 */
#include "tools/perf/pack.h"

#define UNIT_BYTES 16u

/* ---- 16 bytes ------------------------------------------------------------------------------------------- */

/* The bytes of `low` from `bytes` on, then those of `high`. bytes: up to 15 */
WEIR_FN weir_vec16 join(weir_vec16 low, weir_vec16 high, uint32_t bytes)
{
    const uint64_t first = bytes < 8 ? low.lo : low.hi;
    const uint64_t second = bytes < 8 ? low.hi : high.lo;
    const uint64_t third = bytes < 8 ? high.lo : high.hi;
    const uint32_t bits = bytes % 8 * 8;
    weir_vec16 joined;
    joined.lo = bits == 0 ? first : first >> bits | second << (64 - bits);
    joined.hi = bits == 0 ? second : second >> bits | third << (64 - bits);
    return joined;
}

/* `count` bytes at any address, up to 16, and anything behind them. Reads only aligned units that have some of them. */
WEIR_FN weir_vec16 load_bytes(const char *from, uint32_t count)
{
    const uint32_t skipped = (uint32_t)((uintptr_t)from % UNIT_BYTES);
    const weir_vec16 low = weir_arch_load_vec16((const weir_vec16 *)(from - skipped));
    weir_vec16 high = low;
    if (skipped + count > UNIT_BYTES) {
        high = weir_arch_load_vec16((const weir_vec16 *)(from - skipped + UNIT_BYTES));
    }
    return join(low, high, skipped);
}

/* `unit` with bytes `at` and following of it replaced by those of `part`. at: up to 15 */
WEIR_FN weir_vec16 put_bytes(weir_vec16 unit, weir_vec16 part, uint32_t at)
{
    const uint32_t bits = at % 8 * 8;
    const uint64_t keep = ((uint64_t)1 << bits) - 1;
    if (at < 8) {
        unit.lo = (unit.lo & keep) | part.lo << bits;
        unit.hi = bits == 0 ? part.hi : part.hi << bits | part.lo >> (64 - bits);
    } else {
        unit.hi = (unit.hi & keep) | part.lo << bits;
    }
    return unit;
}

WEIR_FN void store_byte_of(char *to, weir_vec16 unit, uint32_t at)
{
    weir_arch_store_byte(to, (char)(unsigned char)((at < 8 ? unit.lo : unit.hi) >> at % 8 * 8));
}

/* ---- units ---------------------------------------------------------------------------------------------- */

WEIR_KERNEL_FOR(pack_list_by_units, pack_args, 1024)
{
    const uint32_t bytes = (uint32_t)args->bytes;
    for (uint32_t packed = coop.rank * UNIT_BYTES; packed < bytes; packed += coop.size * UNIT_BYTES) {
        const uint32_t end = bytes - packed < UNIT_BYTES ? bytes : packed + UNIT_BYTES;
        uint32_t block = args->firsts[packed / UNIT_BYTES];
        weir_vec16 unit;
        unit.lo = 0;
        unit.hi = 0;
        if (args->unpack) {
            unit = weir_arch_load_vec16((const weir_vec16 *)(args->dense + packed));
        }
        for (uint32_t at = packed; at < end; block++) {
            const uint32_t behind = args->begins[block + 1];
            const uint32_t count = (behind < end ? behind : end) - at;
            char *wide = args->wide + args->places[block] + (at - args->begins[block]);
            if (!args->unpack) {
                unit = put_bytes(unit, load_bytes(wide, count), at - packed);
            }
            for (uint32_t i = 0; i < count && args->unpack; i++) {
                store_byte_of(wide + i, unit, at - packed + i);
            }
            at += count;
        }
        if (!args->unpack && end - packed == UNIT_BYTES) {
            weir_arch_store_vec16((weir_vec16 *)(args->dense + packed), unit);
        }
        for (uint32_t i = 0; i < end - packed && end - packed < UNIT_BYTES && !args->unpack; i++) {
            store_byte_of(args->dense + packed + i, unit, i);
        }
    }
}

/* ---- blocks --------------------------------------------------------------------------------------------- */

WEIR_KERNEL_FOR(pack_list_by_blocks, pack_args, 1024)
{
    const uint32_t lane = coop.rank % args->lanes;
    const uint32_t groups = coop.size / args->lanes;
    for (uint32_t block = coop.rank / args->lanes; block < args->blocks; block += groups) {
        const uint32_t begin = args->begins[block];
        const uint32_t length = args->begins[block + 1] - begin;
        char *wide = args->wide + args->places[block];
        char *dense = args->dense + begin;
        for (uint32_t i = lane; i < length; i += args->lanes) {
            weir_arch_store_byte((args->unpack ? wide : dense) + i,
                                 weir_arch_load_byte((args->unpack ? dense : wide) + i));
        }
    }
}

/* ---- lone ------------------------------------------------------------------------------------------------ */

/* As read_lone in perf/pack_kernels.c. */
WEIR_FN void read_blocks(const pack_args *args, weir_coop coop, uint32_t batch)
{
    for (uint32_t first = coop.rank; first < args->blocks; first += coop.size * batch) {
        uint32_t sum = 0;
        WEIR_UNROLL
        for (uint32_t k = 0; k < batch; k++) {
            const uint32_t block = first + k * coop.size;
            if (block < args->blocks) {
                sum += (unsigned char)weir_arch_load_byte(args->wide + args->places[block]);
            }
        }
        if (sum == args->never) {
            weir_arch_store_byte(args->dense, (char)sum);
        }
    }
}

WEIR_KERNEL_FOR(pack_list_lone_1, pack_args, 1024) { read_blocks(args, coop, 1); }
WEIR_KERNEL_FOR(pack_list_lone_8, pack_args, 1024) { read_blocks(args, coop, PACK_LONE_BATCH); }

/* ---- data ------------------------------------------------------------------------------------------------ */

WEIR_KERNEL_FOR(compare_blocks, pack_args, 1024)
{
    uint64_t wrong = 0;
    for (uint32_t block = coop.rank; block < args->blocks; block += coop.size) {
        const uint32_t begin = args->begins[block];
        const uint32_t length = args->begins[block + 1] - begin;
        const char *wide = args->wide + args->places[block];
        for (uint32_t i = 0; i < length; i++) {
            const char *byte = args->unpack ? wide + i : args->dense + begin + i;
            const uint64_t source = args->first + (args->unpack ? begin : args->places[block]) + i;
            wrong += (unsigned char)weir_arch_load_byte(byte) != pack_pattern_byte(source);
        }
        wrong += args->unpack && args->gap && (unsigned char)weir_arch_load_byte(wide + length) != PACK_POISON;
    }
    if (wrong != 0) {
        weir_arch_add_relaxed_sys_u64(args->wrong, wrong);
    }
}

const weir_kernel *const pack_list_units = &pack_list_by_units;
const weir_kernel *const pack_list_blocks = &pack_list_by_blocks;
const weir_kernel *const pack_list_lone = &pack_list_lone_1;
const weir_kernel *const pack_list_lone_batch = &pack_list_lone_8;
const weir_kernel *const pack_list_compare = &compare_blocks;
