/* gather_kernels.c - gathers of rows written by hand, for weir-perf gather.
 *
 * They show what the link gives to kernels without range checks: rows and addresses are multiples of 4 bytes. `units`
 * reads the aligned 16-byte units that cover a row, with a group of lanes for each row and 1, 2 or 4 rows under way.
 * `flat`, `circular` and `lines` read words of 4 bytes, as the peers that docs/weir-perf.md names. `bulk-shared` reads
 * rows into shared memory by bulk copies of Hopper's. Kernels are compiled for 1,024 threads a block, so that none has
 * more than 64 registers. */
#include "tools/perf/gather.h"

#define LINE 128u
#define UNIT 16u

WEIR_FN const char *row_of(const gather_args *args, uint64_t i)
{
    return args->table + (uint64_t)args->ids[i] * args->row_bytes;
}

WEIR_FN uint64_t place_of(const gather_args *args, uint64_t i) { return args->places == NULL ? i : args->places[i]; }

WEIR_FN void move_word(char *to, const char *from)
{
    weir_arch_store_u32((weir_alias_u32 *)to, weir_arch_load_u32((const weir_alias_u32 *)from));
}

/* ---- units --------------------------------------------------------------------------------------------- */

/* Stores the part of the unit at `at` that lies in the row. `at` counts from the start of the row and may be negative.
 */
WEIR_FN void store_unit(char *out, int64_t at, int64_t bytes, weir_vec16 unit)
{
    char *to = out + at;
    if (at >= 0 && at + UNIT <= bytes && (uintptr_t)to % UNIT == 0) {
        weir_arch_store_vec16((weir_vec16 *)to, unit);
        return;
    }
    if (at >= 0 && at + UNIT <= bytes && (uintptr_t)to % 8 == 0) {
        weir_arch_store_u64((weir_alias_u64 *)to, unit.lo);
        weir_arch_store_u64((weir_alias_u64 *)to + 1, unit.hi);
        return;
    }
    WEIR_UNROLL
    for (int k = 0; k < 4; k++) {
        const uint64_t half = k < 2 ? unit.lo : unit.hi;
        if (at + 4 * k >= 0 && at + 4 * k < bytes) {
            weir_arch_store_u32((weir_alias_u32 *)to + k, (uint32_t)(half >> (k % 2 * 32)));
        }
    }
}

/* The first byte that a group of `lanes` reads, counted from the row: a row that one instruction covers begins at its
 * first unit, a longer one at a line. */
WEIR_FN int64_t start_of(const char *row, uint64_t bytes, uint32_t lanes)
{
    const uint64_t unit = (uintptr_t)row % UNIT;
    return -(int64_t)(unit + bytes <= lanes * UNIT ? unit : (uintptr_t)row % LINE);
}

/* `loads` is a constant: rows that the group has under way. */
WEIR_FN void move_units(const gather_args *args, weir_coop coop, uint32_t loads)
{
    const uint32_t lane = coop.rank % args->lanes;
    const uint64_t group = coop.rank / args->lanes;
    const uint64_t groups = coop.size / args->lanes;
    const int64_t bytes = (int64_t)args->row_bytes;
    for (uint64_t first = group; group < groups && first < args->count; first += groups * loads) {
        const char *rows[4];
        char *outs[4];
        int64_t at[4];
        weir_vec16 units[4];
        int more = 1;
        WEIR_UNROLL
        for (uint32_t k = 0; k < loads; k++) {
            const uint64_t i = first + k * groups;
            rows[k] = i < args->count ? row_of(args, i) : args->table;
            outs[k] = i < args->count ? args->out + place_of(args, i) * args->row_bytes : args->out;
            at[k] = i < args->count ? start_of(rows[k], args->row_bytes, args->lanes) + lane * UNIT : bytes;
        }
        while (more) {
            WEIR_UNROLL
            for (uint32_t k = 0; k < loads; k++) {
                units[k].lo = 0;
                units[k].hi = 0;
                if (at[k] + (int64_t)UNIT > 0 && at[k] < bytes) {
                    units[k] = weir_arch_load_vec16((const weir_vec16 *)(rows[k] + at[k]));
                }
            }
            more = 0;
            WEIR_UNROLL
            for (uint32_t k = 0; k < loads; k++) {
                if (at[k] + (int64_t)UNIT > 0 && at[k] < bytes) {
                    store_unit(outs[k], at[k], bytes, units[k]);
                }
                at[k] += args->lanes * UNIT;
                more |= at[k] < bytes;
            }
        }
    }
}

WEIR_KERNEL_FOR(gather_units_1, gather_args, 1024) { move_units(args, coop, 1); }
WEIR_KERNEL_FOR(gather_units_2, gather_args, 1024) { move_units(args, coop, 2); }
WEIR_KERNEL_FOR(gather_units_4, gather_args, 1024) { move_units(args, coop, 4); }

/* ---- words --------------------------------------------------------------------------------------------- */

/* A thread moves one word of the output. */
WEIR_KERNEL_FOR(gather_flat, gather_args, 1024)
{
    const uint64_t words = args->row_bytes / 4;
    for (uint64_t i = coop.rank; i < args->count * words; i += coop.size) {
        const uint64_t row = i / words;
        const uint64_t column = i % words * 4;
        move_word(args->out + place_of(args, row) * args->row_bytes + column, row_of(args, row) + column);
    }
}

/* The same, with the words of a row shifted so that the threads of a warp read one line. Words that the shift moves
 * past an end of the row wrap to its other end. */
WEIR_KERNEL_FOR(gather_circular, gather_args, 1024)
{
    const int64_t bytes = (int64_t)args->row_bytes;
    const uint64_t words = args->row_bytes / 4;
    for (uint64_t i = coop.rank; i < args->count * words; i += coop.size) {
        const uint64_t row = i / words;
        const int64_t place = (int64_t)place_of(args, row) * bytes;
        int64_t column = (int64_t)(i % words * 4);
        if (bytes > (int64_t)LINE && bytes % LINE != 0) {
            column += (place - args->ids[row] * bytes) % (int64_t)LINE;
            column += column < 0 ? bytes : column >= bytes ? -bytes : 0;
        }
        move_word(args->out + place + column, row_of(args, row) + column);
    }
}

/* A group of lanes moves a row from the line in which it begins. */
WEIR_KERNEL_FOR(gather_lines, gather_args, 1024)
{
    const uint64_t groups = coop.size / args->lanes;
    const uint64_t group = coop.rank / args->lanes;
    for (uint64_t i = group; group < groups && i < args->count; i += groups) {
        const char *row = row_of(args, i);
        char *to = args->out + place_of(args, i) * args->row_bytes;
        int64_t at = (int64_t)(coop.rank % args->lanes * 4) - (int64_t)((uintptr_t)row % LINE);
        for (; at < (int64_t)args->row_bytes; at += args->lanes * 4) {
            if (at >= 0) {
                move_word(to + at, row + at);
            }
        }
    }
}

/* ---- bulk copies through shared memory --------------------------------------------------------------------- */

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

#define BULK_WARPS 32u
#define BULK_WARP_BYTES 1520u /* of a warp's shared memory: 48 KiB, less the barriers, among 32 warps */
#define BULK_PIECE 1488u      /* most of a row at once: with its first and last unit it fits whatever its alignment */

static __device__ __forceinline__ uint32_t bulk_shared_address(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

/* Orders the accesses of threads to shared memory before bulk copies. */
static __device__ __forceinline__ void bulk_fence(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* One of 32 arrivals; the phase ends when all have come, and all announced bytes too. */
static __device__ __forceinline__ void bulk_arrive(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

static __device__ __forceinline__ void bulk_wait(uint32_t barrier, uint32_t phase)
{
    uint32_t done = 0;
    while (done == 0) {
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n"
                     "}"
                     : "=r"(done)
                     : "r"(barrier), "r"(phase)
                     : "memory");
    }
}

/* Aligned to 16 bytes; `bytes` is a multiple of 16. */
static __device__ __forceinline__ void bulk_copy(uint32_t to, const char *from, uint32_t bytes, uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier)
                 : "memory");
}

/* A warp has one piece of a row for each lane under way, as many as its shared memory holds. */
static __device__ __forceinline__ void move_bulk(const gather_args *args)
{
    __shared__ __align__(128) char room[BULK_WARPS][BULK_WARP_BYTES];
    __shared__ uint64_t barriers[BULK_WARPS];
    const uint32_t warp = threadIdx.x / 32;
    const uint32_t lane = threadIdx.x % 32;
    const uint64_t warps = (uint64_t)gridDim.x * (blockDim.x / 32);
    const uint32_t barrier = bulk_shared_address(&barriers[warp]);
    const uint32_t most = args->row_bytes < BULK_PIECE ? (uint32_t)args->row_bytes : BULK_PIECE;
    const uint32_t slot = (most + 2 * UNIT - 1) / UNIT * UNIT;
    const uint32_t rows = BULK_WARP_BYTES / slot < 32 ? BULK_WARP_BYTES / slot : 32;
    uint32_t phase = 0;
    if (warp >= blockDim.x / 32) {
        return; /* a part of a warp */
    }
    if (lane == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 32;" ::"r"(barrier) : "memory");
        bulk_fence();
    }
    __syncwarp();
    for (uint64_t first = ((uint64_t)blockIdx.x * (blockDim.x / 32) + warp) * rows; first < args->count;
         first += warps * rows) {
        const uint32_t here = args->count - first < rows ? (uint32_t)(args->count - first) : rows;
        for (uint64_t at = 0; at < args->row_bytes; at += BULK_PIECE) {
            const uint32_t bytes = args->row_bytes - at < BULK_PIECE ? (uint32_t)(args->row_bytes - at) : BULK_PIECE;
            uint32_t head = 0; /* bytes in front of the row in its first unit */
            uint64_t place = 0;
            if (lane < here) {
                const char *from = row_of(args, first + lane) + at;
                head = (uint32_t)((uintptr_t)from % UNIT);
                place = place_of(args, first + lane);
                const uint32_t covered = (head + bytes + UNIT - 1) / UNIT * UNIT;
                bulk_arrive(barrier, covered);
                bulk_copy(bulk_shared_address(&room[warp][lane * slot]), from - head, covered, barrier);
            } else {
                bulk_arrive(barrier, 0);
            }
            bulk_wait(barrier, phase);
            phase ^= 1;
            for (uint32_t k = 0; k < here; k++) {
                const char *from = &room[warp][k * slot] + __shfl_sync(0xffffffffu, head, (int)k);
                char *to = args->out + __shfl_sync(0xffffffffu, place, (int)k) * args->row_bytes + at;
                for (uint32_t i = lane * 4; i < bytes; i += 128) {
                    *(weir_alias_u32 *)(to + i) = *(const weir_alias_u32 *)(from + i);
                }
            }
            bulk_fence();
            __syncwarp(); /* all lanes have read */
        }
    }
}

#endif

/* Devices without bulk copies move words. */
WEIR_KERNEL_FOR(gather_bulk, gather_args, 1024)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    (void)coop;
    move_bulk(args);
#else
    const uint64_t words = args->row_bytes / 4;
    for (uint64_t i = coop.rank; i < args->count * words; i += coop.size) {
        const uint64_t row = i / words;
        const uint64_t column = i % words * 4;
        move_word(args->out + place_of(args, row) * args->row_bytes + column, row_of(args, row) + column);
    }
#endif
}

/* ---- data ---------------------------------------------------------------------------------------------- */

WEIR_FN uint32_t word_of(uint64_t index) { return (uint32_t)((index + 1) * 0x9e3779b97f4a7c15u >> 32); }

WEIR_KERNEL_FOR(fill_table, gather_args, 1024)
{
    for (uint64_t i = coop.rank; i < args->count; i += coop.size) {
        weir_arch_store_u32((weir_alias_u32 *)args->table + i, word_of(i));
    }
}

WEIR_KERNEL_FOR(compare_rows, gather_args, 1024)
{
    const uint64_t words = args->row_bytes / 4;
    uint64_t wrong = 0;
    for (uint64_t i = coop.rank; i < args->count * words; i += coop.size) {
        const uint64_t row = i / words;
        const weir_alias_u32 *out = (const weir_alias_u32 *)args->out + place_of(args, row) * words + i % words;
        wrong += weir_arch_load_u32(out) != word_of((uint64_t)args->ids[row] * words + i % words);
    }
    if (wrong != 0) {
        weir_arch_add_relaxed_sys_u64(args->wrong, wrong);
    }
}

const gather_form gather_forms[GATHER_FORMS] = {
    { "units", { &gather_units_1, &gather_units_2, &gather_units_4 } },
    { "flat", { &gather_flat, NULL, NULL } },
    { "circular", { &gather_circular, NULL, NULL } },
    { "lines", { &gather_lines, NULL, NULL } },
    { "bulk-shared", { &gather_bulk, NULL, NULL } },
};
const weir_kernel *const gather_fill = &fill_table;
const weir_kernel *const gather_compare = &compare_rows;
