/* fake_cuda_call.h - how each call of the driver begins, for the files of fake_cuda. `call` is its name. */
#ifndef FAKE_CUDA_CALL_H
#define FAKE_CUDA_CALL_H

#include <cuda.h>

/* Counts a call of kind FAKE_CUDA_WORK. An error if it is the one that fails. */
CUresult fake_cuda_begin(const char *call);
/* The same for FAKE_CUDA_ENTER. */
CUresult fake_cuda_enter(const char *call);
/* Counts a call that never fails. */
void fake_cuda_count(void);

#endif
