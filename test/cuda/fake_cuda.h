/* fake_cuda.h - a CUDA driver for machines without a GPU: libfake_cuda.so, as WEIR_CUDA_LIBRARY. It has two GPUs. Their
 * memory is the host's, copies and fills happen at once, and kernels do nothing. It counts the calls of each thread. */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#ifdef __cplusplus
extern "C" {
#endif

/* The calls of the driver that this thread has made, and those among them that launched kernels. */
unsigned fake_cuda_calls(void);
unsigned fake_cuda_launches(void);
/* The function of this thread's latest launch. */
const void *fake_cuda_launched(void);

#ifdef __cplusplus
}
#endif

#endif
