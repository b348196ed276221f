/* cuda_foreign.h - memory and kernels of a CUDA program that does not use weir. It loads the driver itself and needs no
 * cuda.h. All calls use the primary context of GPU 0. */
#ifndef WEIRT_CUDA_FOREIGN_H
#define WEIRT_CUDA_FOREIGN_H

#include "weir/base.h"

WEIR_BEGIN_DECLS

typedef enum weirt_foreign_kind {
    WEIRT_FOREIGN_MALLOC,  /* as cudaMalloc */
    WEIRT_FOREIGN_POOL,    /* as cudaMallocAsync */
    WEIRT_FOREIGN_HOST,    /* as cudaHostAlloc */
    WEIRT_FOREIGN_CUMEM,   /* cuMemCreate, not exportable */
    WEIRT_FOREIGN_CUMEM_FD /* cuMemCreate with the POSIX descriptor handle type */
} weirt_foreign_kind;

/* Makes the context current on this thread; false if there is no driver or GPU. */
bool weirt_foreign_open(void);
void weirt_foreign_close(void);
/* The thread's current context. */
void *weirt_foreign_current(void);

/* NULL on failure. Bytes are rounded up to 2 MiB for cuMem. */
void *weirt_foreign_allocate(weirt_foreign_kind kind, uint64_t bytes);
void weirt_foreign_free(weirt_foreign_kind kind, void *pointer, uint64_t bytes);
/* Bytes of free memory of the GPU. */
uint64_t weirt_foreign_free_memory(void);

/* Captures a stream in the global mode, the strictest, as cudaStreamBeginCapture with cudaStreamCaptureModeGlobal does.
 * Returns the driver's error, 0 for success; end discards the graph. */
int weirt_foreign_begin_capture(void *stream);
int weirt_foreign_end_capture(void *stream);

/* Arguments of the kernels below. */
typedef struct weirt_foreign_args {
    uint32_t *words;
    uint32_t value;
} weirt_foreign_args;

/* Like weir_kernel.gpu. Thread i of the grid stores value + i to words[i]. */
int weirt_foreign_store(void **function);
/* Spins until words[0] is not 0, 5 s at most. */
int weirt_foreign_spin(void **function);
/* Adds 1 to words[m], where m is the number of the multiprocessor, for each thread. */
int weirt_foreign_count(void **function);
/* Needs 1,536 bytes of local memory for each thread. Stores value to words[0]; value is 0, 4, 8 and so on up to 1,532.
 */
int weirt_foreign_local(void **function);

WEIR_END_DECLS

#endif
