/* fake_cuda_call.h - how each call of the driver begins, for the files of fake_cuda. */
#ifndef FAKE_CUDA_CALL_H
#define FAKE_CUDA_CALL_H

#include <cuda.h>

/* Count a call of the kind. An error if it is the one that fails. */
CUresult fake_cuda_begin(void);
CUresult fake_cuda_enter(void);
/* Counts a call that does not fail. */
void fake_cuda_count(void);

#endif
