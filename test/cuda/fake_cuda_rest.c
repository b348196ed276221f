/* fake_cuda_rest.c - all functions that weir looks up, as names of one that counts the call and succeeds. They are
 * weak: the linker takes those of fake_cuda.c where it has them. */
#include "src/device/cuda/driver.h"
#include "test/cuda/fake_cuda.h"

CUresult fake_cuda_success(void);

static _Thread_local unsigned calls;

unsigned fake_cuda_calls(void) { return calls; }

CUresult fake_cuda_success(void)
{
    calls++;
    return CUDA_SUCCESS;
}

#define STRING(text) #text
/* Expands the argument before it becomes text: cuMemAlloc becomes "cuMemAlloc_v2". */
#define SYMBOL(function) STRING(function)
#define NAME(function, needed) __asm__(".weak " SYMBOL(function) "\n.set " SYMBOL(function) ", fake_cuda_success");

WEIRI_CUDA_FUNCTIONS(NAME)
