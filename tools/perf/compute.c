/* compute.c - a computation beside the work of a command: multiplications, or cuBLAS's product of two matrices. */
#include "tools/perf/compute.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "tools/perf/cuda.h"

#define SIDE 8192u
#define BF16 14 /* CUDA_R_16BF */
#define MULTIPLY_BYTES ((uint64_t)64 << 20)

struct perf_compute {
    perf_rank *rank;
    void *stream;
    weir_memory *data;
    perf_cuda *cuda;
    void *handle; /* of cuBLAS */
    int (*set_stream)(void *handle, void *stream);
    int (*set_multiprocessors)(void *handle, int count); /* NULL: cuBLAS 11 and older */
    /* NULL: the kernel of multiplications */
    int (*gemm_ex)(void *handle, int, int, int m, int n, int k, const void *alpha, const void *a, int, int,
                   const void *b, int, int, const void *beta, void *c, int, int, int, int);
};

/* ---- what runs ---------------------------------------------------------------------------------------------- */

static weir_status put_multiply(const perf_compute *c, uint32_t blocks, uint32_t work)
{
    const weir_shape wanted = { blocks, 256 };
    const weir_shape shape = c->rank->gpu ? wanted : weir_device_fit_shape(c->rank->device, wanted);
    const compute_args args = { (float *)weir_memory_pointer(c->data), work };
    return weir_launch(c->rank->device, compute_multiply, shape, &args, NULL, c->stream);
}

static weir_status put_compute(void *context)
{
    const perf_compute *c = (const perf_compute *)context;
    const float one = 1, zero = 0;
    char *data = (char *)weir_memory_pointer(c->data);
    const uint64_t bytes = (uint64_t)SIDE * SIDE * 2;
    if (c->gemm_ex == NULL) {
        /* Many short blocks: with fewer multiprocessors they take longer by just these. */
        return put_multiply(c, c->rank->info.multiprocessors * (c->rank->gpu ? 256 : 8), c->rank->gpu ? 6250 : 20000);
    }
    /* CUBLAS_COMPUTE_32F is 68, CUBLAS_GEMM_DEFAULT -1. */
    const int error = c->gemm_ex(c->handle, 0, 0, SIDE, SIDE, SIDE, &one, data, BF16, SIDE, data + bytes, BF16, SIDE,
                                 &zero, data + 2 * bytes, BF16, SIDE, 68, -1);
    return error == 0 ? WEIR_OK : perf_fail(c->rank, WEIR_ERR_DEVICE, "cublasGemmEx: error %d", error);
}

static weir_status put_small(void *context)
{
    const perf_compute *c = (const perf_compute *)context;
    return put_multiply(c, weir_stream_multiprocessors(c->rank->device, c->stream), c->rank->gpu ? 4000 : 1000);
}

perf_side perf_compute_side(perf_compute *compute)
{
    const perf_side side = { put_compute, compute, compute->stream };
    return side;
}

perf_side perf_compute_small_side(perf_compute *compute)
{
    const perf_side side = { put_small, compute, compute->stream };
    return side;
}

/* ---- open and close ----------------------------------------------------------------------------------------- */

bool perf_compute_knows(const char *what) { return strcmp(what, "compute") == 0 || strcmp(what, "gemm") == 0; }

/* The library stays until the process ends. NULL if there is none. */
static void *find_library(void)
{
    static const char *const names[] = { "libcublas.so.13", "libcublas.so.12", "libcublas.so" };
    void *library = NULL;
    for (uint32_t i = 0; i < ROWS(names) && library == NULL; i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    return library;
}

weir_status perf_compute_move(perf_compute *compute, void *stream)
{
    perf_rank *rank = compute->rank;
    const uint32_t multiprocessors = weir_stream_multiprocessors(rank->device, stream);
    compute->stream = stream;
    if (compute->gemm_ex == NULL) {
        return WEIR_OK;
    }
    /* cuBLAS makes its grids for all multiprocessors, unless told otherwise. */
    const int target = multiprocessors < rank->info.multiprocessors ? (int)multiprocessors : 0;
    return compute->set_stream(compute->handle, stream) == 0 &&
                   (compute->set_multiprocessors == NULL || compute->set_multiprocessors(compute->handle, target) == 0)
               ? WEIR_OK
               : perf_fail(rank, WEIR_ERR_DEVICE, "--beside gemm: cuBLAS does not take a stream of %u multiprocessors",
                           multiprocessors);
}

static weir_status open_gemm(perf_compute *c)
{
    perf_rank *rank = c->rank;
    int (*create)(void **handle) = NULL;
    void *library = rank->gpu ? find_library() : NULL;
    if (library == NULL) {
        perf_fact(rank->output, "gemm", "no cuBLAS%s: a kernel of multiplications takes its place",
                  rank->gpu ? " found" : " on the CPU device");
        return WEIR_OK;
    }
    *(void **)&create = dlsym(library, "cublasCreate_v2");
    *(void **)&c->set_stream = dlsym(library, "cublasSetStream_v2");
    *(void **)&c->set_multiprocessors = dlsym(library, "cublasSetSmCountTarget");
    *(void **)&c->gemm_ex = dlsym(library, "cublasGemmEx");
    const weir_status status = perf_cuda_open(rank, &c->cuda); /* cuBLAS works in the current context */
    if (status != WEIR_OK) {
        return status;
    }
    return create != NULL && c->set_stream != NULL && c->gemm_ex != NULL && create(&c->handle) == 0
               ? perf_compute_move(c, c->stream)
               : perf_fail(rank, WEIR_ERR_DEVICE, "--beside gemm: cuBLAS does not start");
}

weir_status perf_compute_open(perf_rank *rank, const char *what, void *stream, perf_compute **out)
{
    perf_compute *c = (perf_compute *)calloc(1, sizeof *c);
    *out = c;
    if (c == NULL) {
        return perf_fail(rank, WEIR_ERR_NOMEM, "--beside %s", what);
    }
    c->rank = rank;
    c->stream = stream;
    weir_status status = strcmp(what, "gemm") == 0 ? open_gemm(c) : WEIR_OK;
    if (status == WEIR_OK) {
        status = weir_memory_allocate(rank->comm, c->gemm_ex != NULL ? (uint64_t)SIDE * SIDE * 6 : MULTIPLY_BYTES, NULL,
                                      &c->data);
    }
    return status == WEIR_OK ? weir_kernel_load(rank->device, compute_multiply) : status;
}

void perf_compute_close(perf_compute *compute)
{
    if (compute != NULL) {
        perf_cuda_close(compute->cuda); /* cuBLAS stays until the process ends */
        weir_memory_destroy(compute->data);
        free(compute);
    }
}

const char *perf_compute_name(const perf_compute *compute) { return compute->gemm_ex != NULL ? "gemm" : "compute"; }

/* ---- times -------------------------------------------------------------------------------------------------- */

static weir_status put_times(const perf_side *side, uint32_t times)
{
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < times && status == WEIR_OK; i++) {
        status = side->put(side->context);
    }
    return status;
}

/* Waits for the stream, and reads the time between the two events. */
static weir_status read_time(perf_rank *rank, void *stream, uint32_t times, double *us)
{
    double ms = 0;
    weir_status status = weir_stream_wait(rank->device, stream, 0);
    if (status == WEIR_OK) {
        status = weir_event_elapsed(rank->device, rank->events[0], rank->events[1], &ms);
    }
    *us = ms * 1e3 / times;
    return status;
}

weir_status perf_time_side(perf_rank *rank, const perf_side *side, uint32_t times, const perf_side *other,
                           uint32_t others, double *us)
{
    weir_status status = other != NULL ? put_times(other, others) : WEIR_OK;
    if (status == WEIR_OK) {
        status = weir_event_record(rank->device, rank->events[0], side->stream);
    }
    if (status == WEIR_OK) {
        status = put_times(side, times);
    }
    if (status == WEIR_OK) {
        status = weir_event_record(rank->device, rank->events[1], side->stream);
    }
    if (status == WEIR_OK) {
        status = read_time(rank, side->stream, times, us);
    }
    return status == WEIR_OK && other != NULL ? weir_stream_wait(rank->device, other->stream, 0) : status;
}

weir_status perf_time_both(perf_rank *rank, const perf_side *side, const perf_side *other, uint32_t times, double *us)
{
    weir_status status = weir_event_record(rank->device, rank->events[0], side->stream);
    if (status == WEIR_OK) {
        status = weir_stream_wait_event(rank->device, other->stream, rank->events[0]);
    }
    for (uint32_t i = 0; i < times && status == WEIR_OK; i++) {
        status = side->put(side->context);
        if (status == WEIR_OK) {
            status = other->put(other->context);
        }
    }
    if (status == WEIR_OK) {
        status = weir_event_record(rank->device, rank->events[2], other->stream);
    }
    if (status == WEIR_OK) {
        status = weir_stream_wait_event(rank->device, side->stream, rank->events[2]);
    }
    if (status == WEIR_OK) {
        status = weir_event_record(rank->device, rank->events[1], side->stream);
    }
    return status == WEIR_OK ? read_time(rank, side->stream, times, us) : status;
}

uint32_t perf_fill_time(double all, double one)
{
    const double times = 2 * all / (one > 0.1 ? one : 0.1) + 2;
    return times < 1000 ? (uint32_t)times : 1000;
}
