/* fake_cuda_rest.c - which call fails, and all functions that weir looks up, as names of one that only counts. They are
 * weak: the linker takes those of fake_cuda.c where it has them. */
#include <stdatomic.h>

#include "src/device/cuda/driver.h"
#include "test/cuda/fake_cuda.h"
#include "test/cuda/fake_cuda_call.h"

static _Thread_local unsigned calls;
static atomic_uint left[2]; /* calls of the kind until the one that fails; 0: none does */

unsigned fake_cuda_calls(void) { return calls; }

unsigned fake_cuda_fail_nth(fake_cuda_kind kind, unsigned n) { return atomic_exchange(&left[kind], n); }

void fake_cuda_count(void) { calls++; }

static CUresult begin(fake_cuda_kind kind)
{
    unsigned now = atomic_load(&left[kind]);
    fake_cuda_count();
    while (now != 0 && !atomic_compare_exchange_weak(&left[kind], &now, now - 1)) {
    }
    return now == 1 ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

CUresult fake_cuda_begin(void) { return begin(FAKE_CUDA_WORK); }

CUresult fake_cuda_enter(void) { return begin(FAKE_CUDA_ENTER); }

#define STRING(text) #text
/* Expands the argument before it becomes text: cuMemAlloc becomes "cuMemAlloc_v2". */
#define SYMBOL(function) STRING(function)
#define NAME(function, needed) __asm__(".weak " SYMBOL(function) "\n.set " SYMBOL(function) ", fake_cuda_begin");

WEIRI_CUDA_FUNCTIONS(NAME)
