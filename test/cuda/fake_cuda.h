/* fake_cuda.h - a CUDA driver for machines without a GPU: libfake_cuda.so, as WEIR_CUDA_LIBRARY. It has two GPUs. Their
 * memory is the host's, copies and fills happen at once, and kernels do nothing. In the child of a fork calls fail, but
 * for those that free or leave something. */
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

typedef enum fake_cuda_kind {
    FAKE_CUDA_WORK, /* calls that make or do something */
    FAKE_CUDA_ENTER /* calls that enter a context */
} fake_cuda_kind;

/* Lets the n-th call of the kind fail, of any thread from now on (1 is the next); 0: none. Calls that free or leave
 * something never fail. Returns how many were left until the one that was to fail: 0 when it did. */
unsigned fake_cuda_fail_nth(fake_cuda_kind kind, unsigned n);
/* The name of the call that failed, or NULL. */
const char *fake_cuda_failed(void);
/* The number of objects that calls have made and no call has freed: memory, addresses, mappings, streams, events,
 * graphs. Contexts and modules do not count, because weir keeps them. */
long fake_cuda_alive(void);
/* Contexts that this thread has entered and not left, plus 1 if its capture mode is not the global one. */
unsigned fake_cuda_inside(void);
/* Puts a foreign context in the place of the thread's current one, as cudaSetDevice does. */
void fake_cuda_replace_context(void);

#ifdef __cplusplus
}
#endif

#endif
