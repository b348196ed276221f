/* compute.h - a computation that runs beside the work of a command (--beside), and the times of both. */
#ifndef WEIR_PERF_COMPUTE_H
#define WEIR_PERF_COMPUTE_H

#include "tools/perf/common.h"

WEIR_BEGIN_DECLS

typedef struct perf_compute perf_compute;

/* Whether `what` names a computation: compute, gemm. */
bool perf_compute_knows(const char *what);
/* A computation on `stream`. `compute` is a kernel of multiplications on all multiprocessors. `gemm` is cuBLAS's
 * product of two 8192^2 matrices of bf16, or the kernel of multiplications where cuBLAS is missing. */
weir_status perf_compute_open(perf_rank *rank, const char *what, void *stream, perf_compute **out);
void perf_compute_close(perf_compute *compute);
/* Moves the computation to another stream, perhaps one of few multiprocessors. */
weir_status perf_compute_move(perf_compute *compute, void *stream);
/* "gemm" or "compute": what runs. */
const char *perf_compute_name(const perf_compute *compute);

/* Work that is put on a stream. */
typedef struct perf_side {
    weir_status (*put)(void *context);
    void *context;
    void *stream;
} perf_side;

perf_side perf_compute_side(perf_compute *compute);
/* A kernel of about 20 us on the computation's stream. */
perf_side perf_compute_small_side(perf_compute *compute);

/* us of one `side`: an average of `times`, while `other` (NULL: nothing) was put `others` times before. */
weir_status perf_time_side(perf_rank *rank, const perf_side *side, uint32_t times, const perf_side *other,
                           uint32_t others, double *us);
/* us of one `side` and one `other` at the same time: an average of `times`, until both have ended. */
weir_status perf_time_both(perf_rank *rank, const perf_side *side, const perf_side *other, uint32_t times, double *us);
/* How often `one` us fit into `all` us, with room to spare. */
uint32_t perf_fill_time(double all, double one);

/* ---- the kernel, in perf/compute_kernels.c ------------------------------------------------------------------ */

typedef struct compute_args {
    float *out; /* one for each thread */
    uint32_t work;
} compute_args;
extern const weir_kernel *const compute_multiply;

WEIR_END_DECLS

#endif
