/* fake_cuda_rest.c - which call fails, and a function that only counts for each one that weir looks up. They are weak:
 * the linker takes those of fake_cuda.c where it has them. The ABI lets callers pass arguments that a function ignores.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "src/device/cuda/driver.h"
#include "src/host/base/fault.h"
#include "test/cuda/fake_cuda.h"
#include "test/cuda/fake_cuda_call.h"

static _Thread_local unsigned calls;
static weiri_fault faults[2]; /* of each kind */
static const char *_Atomic failed;

static atomic_bool forked; /* in a child of the process that loaded the driver */

static void forked_child(void) { atomic_store(&forked, true); }

__attribute__((constructor)) static void watch_forks(void) { (void)pthread_atfork(NULL, NULL, forked_child); }

unsigned fake_cuda_calls(void) { return calls; }

unsigned fake_cuda_fail_nth(fake_cuda_kind kind, unsigned n)
{
    failed = n != 0 ? NULL : failed;
    return (unsigned)weiri_fault_set(&faults[kind], n);
}

const char *fake_cuda_failed(void) { return failed; }

void fake_cuda_count(void) { calls++; }

static CUresult begin(fake_cuda_kind kind, const char *call)
{
    fake_cuda_count();
    if (atomic_load(&forked)) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    if (!weiri_fault_due(&faults[kind])) {
        return CUDA_SUCCESS;
    }
    failed = call;
    return CUDA_ERROR_UNKNOWN;
}

CUresult fake_cuda_begin(const char *call) { return begin(FAKE_CUDA_WORK, call); }

CUresult fake_cuda_enter(const char *call) { return begin(FAKE_CUDA_ENTER, call); }

#define COUNTED(function, needed)                                                                 \
    CUresult counted_##function(void) __asm__(WEIRI_CUDA_SYMBOL(function)) __attribute__((weak)); \
    CUresult counted_##function(void) { return fake_cuda_begin(WEIRI_CUDA_SYMBOL(function)); }

WEIRI_CUDA_FUNCTIONS(COUNTED)
