/* data.h - what the ranks of a collective operation send, and whether what they receive is right.
 *
 * Each element depends on its rank, its place and the seed, which is another for each iteration. What is only moved is
 * any bits. What is reduced is small integers, floats of them times 1, 2, 4 or 8, so that results are exact in every
 * order; they are computed as integers and written as bits of the type here, without the library's reductions and
 * conversions. */
#ifndef WEIR_PERF_DATA_H
#define WEIR_PERF_DATA_H

#include "weir/collective.h"
#include "weir/device/kernel.h"

WEIR_BEGIN_DECLS

/* An operation, as one rank calls it. */
typedef struct perf_data {
    char *send;
    char *recv;
    uint64_t *wrong; /* counts elements that are */
    uint64_t count;  /* as weir/collective.h counts */
    uint64_t seed;
    uint32_t kind; /* weir_collective_kind, dtype, op */
    uint32_t dtype;
    uint32_t op;
    uint32_t root;
    uint32_t rank;
    uint32_t ranks;
} perf_data;

/* Writes what is sent, and makes every element wrong where data will be received. */
extern const weir_kernel *const perf_data_write;
/* Adds the received elements that are wrong. */
extern const weir_kernel *const perf_data_check;

WEIR_END_DECLS

#endif
