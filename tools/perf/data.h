/* data.h - the data that ranks of a collective operation send, and the check of the data that they receive.
 *
 * Each element depends on rank, position and seed; each iteration has another seed. Data that is only moved is any
 * bits. Data that is reduced is small integers, in floats times 1, 2, 4 or 8, so results are exact in every order. They
 * are computed as integers and converted to the type here, without the library's reductions and conversions. */
#ifndef WEIR_PERF_DATA_H
#define WEIR_PERF_DATA_H

#include "weir/collective.h"
#include "weir/device/kernel.h"

WEIR_BEGIN_DECLS

/* The data of one operation as one rank calls it. */
typedef struct perf_data {
    char *send;
    char *recv;
    uint64_t count; /* the count argument of weir/collective.h */
    uint64_t seed;
    uint32_t kind; /* weir_collective_kind */
    uint32_t root;
} perf_data;

#define PERF_DATA_MOST 80u

/* The arguments of both kernels: the data of several operations, for calls of parts and of transfers. */
typedef struct perf_data_args {
    uint64_t *wrong; /* counts wrong elements */
    uint32_t dtype;
    uint32_t op;
    uint32_t rank;
    uint32_t ranks;
    uint64_t n;
    perf_data data[PERF_DATA_MOST];
} perf_data_args;

/* The factor of WEIR_SCALED_SUM. Sums are even, so results are exact. */
#define PERF_FACTOR 1.5

/* Writes the data to send, and wrong elements where data will be received. */
extern const weir_kernel *const perf_data_write;
/* Adds the number of wrong received elements. */
extern const weir_kernel *const perf_data_check;

WEIR_END_DECLS

#endif
