/* collective.h - kernels of collectives: moves of data of any type, reductions by type, parts, and the exchange
 * between hosts. */
#ifndef WEIRI_KERNELS_COLLECTIVE_H
#define WEIRI_KERNELS_COLLECTIVE_H

#include "weir/device/collective.h"
#include "weir/device/impl/collective_copies.h"
#include "weir/device/impl/collective_exchange_shared.h"
#include "weir/device/impl/collective_parts_lines.h"
#include "weir/device/impl/collective_rails.h"
#include "weir/device/impl/collective_two.h"
#include "weir/device/kernel.h"

#if defined(__cplusplus)
extern "C" {
#endif

/* Most threads of a block. With 384 a thread has 168 registers, which is enough for the kernels by packets and lines on
 * sm_90. With 512 threads, and 128 registers, most of them keep some in memory. Without the second number of the
 * bounds, one block on a multiprocessor, the compiler leaves some kernels half of the registers. Kernels by slots need
 * the most loads in flight. */
#define WEIRI_PACKET_THREADS 384
#define WEIRI_PACKET_BOUNDS WEIRI_PACKET_THREADS, 1
#define WEIRI_SLOT_THREADS 1024
#define WEIRI_TWO_THREADS 1024 /* of the kernels by lines for two ranks */
#define WEIRI_FEW_THREADS 512  /* of kernels whose threads have 128 registers */

/* A kernel by packets or lines. */
#define WEIRI_PACKET_KERNEL(name, args_type) WEIR_KERNEL_FOR(name, args_type, WEIRI_PACKET_BOUNDS)

/* Arguments of kernels that are each one call of weir/device/collective.h. */
typedef struct weiri_reduce_args {
    weir_dev_collective collective;
    weir_collective_reduce reduce;
    uint32_t op; /* for kernels without a constant operation */
    uint32_t reserved;
} weiri_reduce_args;

/* A reduce_scatter of one part, whose extents may differ in size. */
typedef struct weiri_uneven_args {
    weir_dev_collective collective;
    weir_collective_reduce reduce;
    weir_collective_piece extents[WEIR_COLLECTIVE_RANKS];
} weiri_uneven_args;

typedef struct weiri_move_args {
    weir_dev_collective collective;
    weir_collective_move move;
} weiri_move_args;

/* Of the kernel that waits for copies. */
typedef struct weiri_copies_args {
    weir_dev_collective collective;
    uint32_t ranks; /* one bit for each rank whose word it waits for */
    uint32_t word;  /* WEIR_COPIES_MOVED, WEIR_COPIES_READY or WEIR_COPIES_RECEIVED */
} weiri_copies_args;

typedef struct weiri_exchange_args {
    weir_dev_collective collective;
    weir_collective_exchange exchange;
    const weir_exchange_rails *rails; /* NULL: inside a host */
} weiri_exchange_args;

typedef struct weiri_parts_args {
    weir_dev_collective collective;
    weir_collective_parts parts;
} weiri_parts_args;

typedef struct weiri_rail_args {
    weir_dev_rails rails;
    weir_rail_step step;
} weiri_rail_args;

/* An average of integers between hosts is a sum of words of 64 bits that is divided once. With divisor 0 the kernel
 * widens elements to words; otherwise it divides words and cuts the quotients to elements. */
typedef struct weiri_average_args {
    weir_dev_control *control;
    const uint64_t *abandoned; /* 1 once the collective is abandoned */
    weir_collective_what what;
    const char *from;
    char *to;
    uint64_t from_step; /* bytes from one row to the next */
    uint64_t to_step;
    uint64_t rows;
    uint64_t count; /* elements of a row */
    uint32_t dtype; /* of the elements: integers */
    uint32_t divisor;
} weiri_average_args;

/* Copies between the hold of the rails and the buffers of parts, in chunks. */
#define WEIRI_COPY_PIECES 128u
#define WEIRI_COPY_CHUNK 4096u

typedef struct weiri_copy_piece {
    const char *from;
    char *to;
    uint64_t bytes;
} weiri_copy_piece;

typedef struct weiri_copy_args {
    weir_dev_control *control;
    const uint64_t *abandoned; /* as for averages */
    weir_collective_what what;
    uint64_t count;
    weiri_copy_piece pieces[WEIRI_COPY_PIECES];
} weiri_copy_args;

enum {
    WEIRI_MOVE_PACKETS,
    WEIRI_MOVE_LINES,
    WEIRI_MOVE_SLOTS,
    WEIRI_COPIES_MEET,
    WEIRI_COPIES_WAIT,
    WEIRI_SPREAD,
    WEIRI_RELAY_LINES,
    WEIRI_RELAY_SLOTS,
    WEIRI_MOVE_TWO /* by lines, between two ranks */
};
extern const weir_kernel *const weiri_collective_kernels[];

/* Parts: without and with a reduction, each by packets, lines and slots; sums of one type by slots, of data that is
 * aligned, and that is not, without and with a factor; and the same by lines. The types have the same order in all
 * groups. */
enum {
    WEIRI_PARTS_GATHER_PACKETS,
    WEIRI_PARTS_GATHER_LINES,
    WEIRI_PARTS_GATHER_SLOTS,
    WEIRI_PARTS_REDUCE_PACKETS,
    WEIRI_PARTS_REDUCE_LINES,
    WEIRI_PARTS_REDUCE_SLOTS,
    WEIRI_PARTS_SUM_F16,
    WEIRI_PARTS_SUM_BF16,
    WEIRI_PARTS_SUM_F32,
    WEIRI_PARTS_ALIGN_F16,
    WEIRI_PARTS_ALIGN_BF16,
    WEIRI_PARTS_ALIGN_F32,
    WEIRI_PARTS_SCALED_F16,
    WEIRI_PARTS_SCALED_BF16,
    WEIRI_PARTS_SCALED_F32,
    WEIRI_PARTS_SCALED_ALIGN_F16,
    WEIRI_PARTS_SCALED_ALIGN_BF16,
    WEIRI_PARTS_SCALED_ALIGN_F32,
    WEIRI_PARTS_LINES_F16,
    WEIRI_PARTS_LINES_BF16,
    WEIRI_PARTS_LINES_F32,
    WEIRI_PARTS_SCALED_LINES_F16,
    WEIRI_PARTS_SCALED_LINES_BF16,
    WEIRI_PARTS_SCALED_LINES_F32
};
extern const weir_kernel *const weiri_collective_parts_kernels[];

enum {
    WEIRI_EXCHANGE_INSIDE,
    WEIRI_EXCHANGE_ALONE,
    WEIRI_EXCHANGE_TOGETHER,
    WEIRI_EXCHANGE_BRIEF,
    WEIRI_EXCHANGE_SHARED,
    WEIRI_EXCHANGE_FAR
};
extern const weir_kernel *const weiri_collective_exchange_kernels[];
enum { WEIRI_RAIL, WEIRI_AVERAGE, WEIRI_COPY };
extern const weir_kernel *const weiri_collective_rails_kernels[];

/* Reductions: WEIRI_REDUCE_FORMS kernels for each type, or each type and operation, as listed here. */
enum {
    WEIRI_REDUCE_ONCE,
    WEIRI_REDUCE_PACKETS,
    WEIRI_REDUCE_LINES,
    WEIRI_REDUCE_SLOTS,
    WEIRI_REDUCE_ZERO_COPY,
    WEIRI_REDUCE_TWO, /* by lines, between two ranks */
    WEIRI_REDUCE_FORMS
};
enum { WEIRI_FLOAT_F32_SUM, WEIRI_FLOAT_F32, WEIRI_FLOAT_F64 };
enum { WEIRI_HALF_F16_SUM, WEIRI_HALF_F16, WEIRI_HALF_BF16_SUM, WEIRI_HALF_BF16 };
enum { WEIRI_F8E4M3_SUM, WEIRI_F8E4M3, WEIRI_F8E5M2_SUM, WEIRI_F8E5M2 };
enum { WEIRI_SMALL_I8, WEIRI_SMALL_U8 };
enum { WEIRI_INTEGER_I32, WEIRI_INTEGER_U32, WEIRI_INTEGER_I64, WEIRI_INTEGER_U64 };
extern const weir_kernel *const weiri_collective_float_kernels[];
extern const weir_kernel *const weiri_collective_half_kernels[];
extern const weir_kernel *const weiri_collective_f8_kernels[];
extern const weir_kernel *const weiri_collective_small_kernels[];
extern const weir_kernel *const weiri_collective_integer_kernels[];
/* Sums with a factor: WEIRI_REDUCE_FORMS kernels for each of these types. */
enum { WEIRI_SUM_F32, WEIRI_SUM_F16, WEIRI_SUM_BF16, WEIRI_SUM_TYPES };
extern const weir_kernel *const weiri_collective_scaled_kernels[];

/* Sums of two ranks directly between buffers of users, of each of these types, and the same with a factor. */
extern const weir_kernel *const weiri_collective_sums_kernels[];

/* Reduce_scatters of one part: WEIRI_UNEVEN_FORMS kernels for sums of each of these types, and for sums with a factor.
 */
enum {
    WEIRI_UNEVEN_PACKETS,
    WEIRI_UNEVEN_LINES,
    WEIRI_UNEVEN_TWO, /* by lines, between two ranks */
    WEIRI_UNEVEN_FORMS
};
extern const weir_kernel *const weiri_collective_uneven_kernels[];

#if defined(__cplusplus)
}
#endif

#endif
