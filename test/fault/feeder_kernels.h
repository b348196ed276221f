/* feeder_kernels.h - what a trainer and a feeder put on their streams around each batch; for feeder_test.cc. */
#ifndef WEIRT_FEEDER_KERNELS_H
#define WEIRT_FEEDER_KERNELS_H

#include "weir/device/kernel.h"

#if defined(__cplusplus)
extern "C" {
#endif

#define FEEDER_BATCHES 5
#define FEEDER_SAMPLES 96
#define FEEDER_ROWS 700

/* In memory that host and device share; a member for each wait of this rank. */
typedef struct feeder_report {
    uint32_t began[FEEDER_BATCHES]; /* 1: the kernel is about to wait */
    int32_t status[FEEDER_BATCHES];
} feeder_report;

typedef struct feeder_args {
    weir_dev_semaphore semaphore;
    feeder_report *report;
    int32_t *ids; /* of the batch */
    uint32_t batch;
} feeder_args;

/* The i-th id of a batch. */
WEIR_FN int32_t feeder_id(uint32_t batch, uint32_t i) { return (int32_t)((batch * 131u + i * 7u) % FEEDER_ROWS); }

const weir_kernel *feeder_sample_kernel(void);   /* writes the ids */
const weir_kernel *feeder_await_kernel(void);    /* one thread waits for the other rank */
const weir_kernel *feeder_announce_kernel(void); /* one thread signals it */

#if defined(__cplusplus)
}
#endif

#endif
