/* strided.h - what perf/strided.c and perf/strided_kernels.c share. */
#ifndef WEIR_PERF_STRIDED_H
#define WEIR_PERF_STRIDED_H

#include "tools/perf/pack.h"

WEIR_BEGIN_DECLS

#define STRIDED_BLOCKS 132u /* most blocks, each with a semaphore */

/* A transfer from the rows at the start of one rank's memory to rows, or packed bytes, at `to_offset` of the other's.
 */
typedef struct strided_args {
    weir_dev_memory_channel channel;
    weir_dev_layout rows;
    uint64_t to_offset;
    uint64_t packet_offset;
    uint32_t dense; /* the destination is packed bytes */
    uint32_t reserved;
} strided_args;

typedef struct strided_data_args {
    char *source;
    char *destination;
    pack_box box;
    uint64_t span; /* of the rows */
    uint64_t bytes;
    uint32_t rank;
    uint32_t peer;
    uint32_t dense;
    uint32_t round; /* each has other data */
    uint64_t *wrong;
} strided_data_args;

/* The same transfer by plain stores: a lane moves a word at a time, which divides runs, strides and offsets. */
typedef struct strided_store_args {
    weir_dev_memory_channel channel;
    pack_box box;
    pack_divisor by_row;   /* words of a row */
    pack_divisor by_inner; /* counts[1] */
    uint64_t to_offset;
    uint32_t words; /* below 2^31 */
    uint32_t dense;
} strided_store_args;

/* Row i has words of 2^i bytes. */
extern const weir_kernel *const strided_stores[PACK_WORDS];

enum { STRIDED_PUT, STRIDED_GET, STRIDED_PACKETS, STRIDED_LINES, STRIDED_KERNELS };
extern const weir_kernel *const strided_kernels[STRIDED_KERNELS];
/* Fills the source with the data of the round, and makes the destination wrong. Counts wrong bytes of the destination.
 */
extern const weir_kernel *const strided_fill;
extern const weir_kernel *const strided_compare;

WEIR_END_DECLS

#endif
