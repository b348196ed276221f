/* weir/device/arch.h - differences between a GPU and a CPU. Only this header, impl/arch_name.h and impl/arch_numbers.h
 * test for the compiler.
 *
 * A memory access whose order or atomicity matters to another thread goes through a function of this header. A name
 * gives operation, order, scope and width: weir_arch_load_acquire_sys_u64. Scope `dev` orders among the threads of one
 * device, `sys` among all devices and the host. On the CPU both are the same. Orders and scopes are those of the PTX
 * ISA's memory consistency model (PTX ISA 9.0, chapter 8) and of C11.
 *
 * Orders belong to operations, because the thread sanitizer understands those. Fences occur only in front of a NIC's
 * doorbell, and between the accesses of a notification.
 *
 * On the CPU everything is built on the WEIR_CPU_ macros below. A test of memory orders replaces them, because a
 * CPU's own memory hides most errors: it sets WEIR_ARCH_MODEL to the name of a header that defines them for a simulated
 * memory. */
#ifndef WEIR_DEVICE_ARCH_H
#define WEIR_DEVICE_ARCH_H

#include <stddef.h>
#include <stdint.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "weir's kernels need a GPU of compute capability 8.0 or higher: give nvcc -arch=sm_80 (or sm_90, and so on)"
#endif

#if defined(__CUDA_ARCH__)
#define WEIR_FN static __host__ __device__ __forceinline__
#define WEIR_FN_COLD static __host__ __device__ __noinline__ __attribute__((unused))
#define WEIR_FN_FLAT WEIR_FN_COLD
#elif defined(__CUDACC__)
/* For the host, nvcc's compiler decides about inlining, as a C compiler does. Inlining everything there takes ten times
 * as long. */
#define WEIR_FN static __host__ __device__ inline __attribute__((unused))
#define WEIR_FN_COLD static __host__ __device__ __noinline__ __attribute__((unused))
#define WEIR_FN_FLAT WEIR_FN_COLD
#else
#define WEIR_FN static inline __attribute__((unused))
#define WEIR_FN_COLD static __attribute__((noinline, unused))
#define WEIR_FN_FLAT static __attribute__((noinline, unused, flatten)) /* inlines every function that it calls */
#endif

#if defined(__cplusplus)
#define WEIR_STATIC_ASSERT(condition, text) static_assert(condition, text)
#else
#define WEIR_STATIC_ASSERT(condition, text) _Static_assert(condition, text)
#endif

/* WEIR_FN_APART is `function` for a call through the pointer that WEIR_FN_POINTER defines. ptxas adds the registers of
 * a function that it can see to those of all functions on the way to it. Behind the pointer it has registers for
 * itself. */
#if defined(__CUDACC__)
#define WEIR_FN_POINTER(type, name, function) static __device__ type *volatile name##_pointer = function
#else
#define WEIR_FN_POINTER(type, name, function) WEIR_STATIC_ASSERT(sizeof(type *) != 0, "no pointer is needed")
#endif
#if defined(__CUDA_ARCH__)
#define WEIR_FN_APART(name, function) (*name##_pointer)
#else
#define WEIR_FN_APART(name, function) (function)
#endif

/* Only for GPU code: nvcc's host compiler does not know the pragma. */
#if defined(__CUDA_ARCH__)
#define WEIR_UNROLL _Pragma("unroll")
#define WEIR_ROLLED _Pragma("unroll 1")
#define WEIR_PARTLY_SET(array)
#else
#define WEIR_UNROLL
#define WEIR_ROLLED
/* The elements that a mask leaves out are neither set nor read. gcc does not see that, and would warn. */
#define WEIR_PARTLY_SET(array) __asm__("" : "=m"(array))
#endif

/* Marks conditions of error paths and slow paths. Their code then lies behind the fast path: a large part of a small
 * kernel's time goes into fetching its instructions. */
#define WEIR_UNLIKELY(condition) __builtin_expect((condition) != 0, 0)

/* Functions of libweir that the CPU device uses. Kernels on a GPU never call them. */
#if defined(__cplusplus)
extern "C" {
#endif
/* Yields the processor between two reads of a spin. `reads` counts the failed reads so far. The first 16 calls spin,
 * later ones yield. Once a spin has lasted 10 ms, each call sleeps for a 64th of that time, at most 0.5 ms. */
void weir_cpu_relax(uint32_t reads);
/* Monotonic time in ns. */
uint64_t weir_cpu_clock_ns(void);
/* Barrier of the threads of one block; returns the OR of `value` over them. `block` is weir_coop.host. */
uint32_t weir_cpu_block_or(void *block, uint32_t value);
#if defined(__cplusplus)
}
#endif

/* 16 bytes, moved by one instruction: the unit of bulk copies. This type and the three after it may alias the user's
 * types. */
typedef struct weir_vec16 {
    uint64_t lo;
    uint64_t hi;
} __attribute__((aligned(16), may_alias)) weir_vec16;
typedef uint64_t __attribute__((may_alias)) weir_alias_u64;
typedef uint32_t __attribute__((may_alias)) weir_alias_u32;
typedef uint16_t __attribute__((may_alias)) weir_alias_u16;

#if defined(WEIR_ARCH_MODEL) && !defined(__CUDA_ARCH__)
#include WEIR_ARCH_MODEL
#else
/* Accesses of 4 or 8 bytes. `order` is a constant __ATOMIC_..., `scope` is DEV or SYS; a CPU treats both scopes the
 * same. */
#define WEIR_CPU_LOAD(p, order, scope) __atomic_load_n(p, order)
#define WEIR_CPU_STORE(p, v, order, scope) __atomic_store_n(p, v, order)
#define WEIR_CPU_FETCH_ADD(p, v, order, scope) __atomic_fetch_add(p, v, order)
#define WEIR_CPU_FETCH_OR(p, v, order, scope) __atomic_fetch_or(p, v, order)
#define WEIR_CPU_COMPARE_EXCHANGE(p, expected, v, order, scope) weir_cpu_compare_exchange(p, expected, v, order)
WEIR_FN uint64_t weir_cpu_compare_exchange(uint64_t *p, uint64_t expected, uint64_t v, int order)
{
    (void)__atomic_compare_exchange_n(p, &expected, v, 0, order, __ATOMIC_RELAXED);
    return expected;
}
/* A fence of a GPU, with the loads before it or the stores behind it. On a CPU these carry its order. */
#define WEIR_CPU_FENCE(order, scope) ((void)0)
#define WEIR_CPU_LOAD_BEFORE_FENCE(p, scope) __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define WEIR_CPU_STORE_BEHIND_FENCE(p, v, scope) __atomic_store_n(p, v, __ATOMIC_RELEASE)
/* Ordinary accesses of the type of `*p`. A GPU uses these two as well. */
#define WEIR_CPU_READ(p, v) ((v) = *(p))
#define WEIR_CPU_WRITE(p, v) (*(p) = (v))
#define WEIR_CPU_MULTIPROCESSOR() 0u
#endif

/* ---- loads ------------------------------------------------------------------------------------------ */

WEIR_FN uint64_t weir_arch_load_relaxed_dev_u64(const uint64_t *p)
{
#if defined(__CUDA_ARCH__)
    uint64_t v;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
#else
    return WEIR_CPU_LOAD(p, __ATOMIC_RELAXED, DEV);
#endif
}

WEIR_FN uint64_t weir_arch_load_acquire_dev_u64(const uint64_t *p)
{
#if defined(__CUDA_ARCH__)
    uint64_t v;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
#else
    return WEIR_CPU_LOAD(p, __ATOMIC_ACQUIRE, DEV);
#endif
}

WEIR_FN uint32_t weir_arch_load_relaxed_sys_u32(const uint32_t *p)
{
#if defined(__CUDA_ARCH__)
    uint32_t v;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
#else
    return WEIR_CPU_LOAD(p, __ATOMIC_RELAXED, SYS);
#endif
}

WEIR_FN uint64_t weir_arch_load_relaxed_sys_u64(const uint64_t *p)
{
#if defined(__CUDA_ARCH__)
    uint64_t v;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
#else
    return WEIR_CPU_LOAD(p, __ATOMIC_RELAXED, SYS);
#endif
}

WEIR_FN uint64_t weir_arch_load_acquire_sys_u64(const uint64_t *p)
{
#if defined(__CUDA_ARCH__)
    uint64_t v;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
#else
    return WEIR_CPU_LOAD(p, __ATOMIC_ACQUIRE, SYS);
#endif
}

WEIR_FN uint32_t weir_arch_load_acquire_sys_u32(const uint32_t *p)
{
#if defined(__CUDA_ARCH__)
    uint32_t v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
#else
    return WEIR_CPU_LOAD(p, __ATOMIC_ACQUIRE, SYS);
#endif
}

/* ---- stores ----------------------------------------------------------------------------------------- */

WEIR_FN void weir_arch_store_relaxed_dev_u64(uint64_t *p, uint64_t v)
{
#if defined(__CUDA_ARCH__)
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
#else
    WEIR_CPU_STORE(p, v, __ATOMIC_RELAXED, DEV);
#endif
}

WEIR_FN void weir_arch_store_release_dev_u64(uint64_t *p, uint64_t v)
{
#if defined(__CUDA_ARCH__)
    asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
#else
    WEIR_CPU_STORE(p, v, __ATOMIC_RELEASE, DEV);
#endif
}

WEIR_FN void weir_arch_store_release_sys_u64(uint64_t *p, uint64_t v)
{
#if defined(__CUDA_ARCH__)
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
#else
    WEIR_CPU_STORE(p, v, __ATOMIC_RELEASE, SYS);
#endif
}

WEIR_FN void weir_arch_store_relaxed_sys_u32(uint32_t *p, uint32_t v)
{
#if defined(__CUDA_ARCH__)
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
#else
    WEIR_CPU_STORE(p, v, __ATOMIC_RELAXED, SYS);
#endif
}

WEIR_FN void weir_arch_store_relaxed_sys_u64(uint64_t *p, uint64_t v)
{
#if defined(__CUDA_ARCH__)
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
#else
    WEIR_CPU_STORE(p, v, __ATOMIC_RELAXED, SYS);
#endif
}

/* ---- read-modify-writes ----------------------------------------------------------------------------- */

WEIR_FN void weir_arch_add_relaxed_sys_u64(uint64_t *p, uint64_t v)
{
#if defined(__CUDA_ARCH__)
    asm volatile("red.relaxed.sys.global.add.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
#else
    (void)WEIR_CPU_FETCH_ADD(p, v, __ATOMIC_RELAXED, SYS);
#endif
}

WEIR_FN void weir_arch_add_release_sys_u64(uint64_t *p, uint64_t v)
{
#if defined(__CUDA_ARCH__)
    asm volatile("red.release.sys.global.add.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
#else
    (void)WEIR_CPU_FETCH_ADD(p, v, __ATOMIC_RELEASE, SYS);
#endif
}

WEIR_FN void weir_arch_add_relaxed_dev_u64(uint64_t *p, uint64_t v)
{
#if defined(__CUDA_ARCH__)
    asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
#else
    (void)WEIR_CPU_FETCH_ADD(p, v, __ATOMIC_RELAXED, DEV);
#endif
}

WEIR_FN uint64_t weir_arch_fetch_add_relaxed_dev_u64(uint64_t *p, uint64_t v)
{
#if defined(__CUDA_ARCH__)
    uint64_t old;
    asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;" : "=l"(old) : "l"(p), "l"(v) : "memory");
    return old;
#else
    return WEIR_CPU_FETCH_ADD(p, v, __ATOMIC_RELAXED, DEV);
#endif
}

/* Stores v where p has `expected`; returns what p had. */
WEIR_FN uint64_t weir_arch_compare_exchange_relaxed_dev_u64(uint64_t *p, uint64_t expected, uint64_t v)
{
#if defined(__CUDA_ARCH__)
    uint64_t old;
    asm volatile("atom.relaxed.gpu.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(old)
                 : "l"(p), "l"(expected), "l"(v)
                 : "memory");
    return old;
#else
    return WEIR_CPU_COMPARE_EXCHANGE(p, expected, v, __ATOMIC_RELAXED, DEV);
#endif
}

WEIR_FN uint32_t weir_arch_compare_exchange_relaxed_dev_u32(uint32_t *p, uint32_t expected, uint32_t v)
{
#if defined(__CUDA_ARCH__)
    uint32_t old;
    asm volatile("atom.relaxed.gpu.global.cas.b32 %0, [%1], %2, %3;"
                 : "=r"(old)
                 : "l"(p), "r"(expected), "r"(v)
                 : "memory");
    return old;
#else
    (void)__atomic_compare_exchange_n(p, &expected, v, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
#endif
}

WEIR_FN uint64_t weir_arch_compare_exchange_release_sys_u64(uint64_t *p, uint64_t expected, uint64_t v)
{
#if defined(__CUDA_ARCH__)
    uint64_t old;
    asm volatile("atom.release.sys.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(old)
                 : "l"(p), "l"(expected), "l"(v)
                 : "memory");
    return old;
#else
    return WEIR_CPU_COMPARE_EXCHANGE(p, expected, v, __ATOMIC_RELEASE, SYS);
#endif
}

WEIR_FN uint64_t weir_arch_fetch_add_acq_rel_dev_u64(uint64_t *p, uint64_t v)
{
#if defined(__CUDA_ARCH__)
    uint64_t old;
    asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;" : "=l"(old) : "l"(p), "l"(v) : "memory");
    return old;
#else
    return WEIR_CPU_FETCH_ADD(p, v, __ATOMIC_ACQ_REL, DEV);
#endif
}

WEIR_FN uint64_t weir_arch_fetch_or_acquire_dev_u64(uint64_t *p, uint64_t v)
{
#if defined(__CUDA_ARCH__)
    uint64_t old;
    asm volatile("atom.acquire.gpu.global.or.b64 %0, [%1], %2;" : "=l"(old) : "l"(p), "l"(v) : "memory");
    return old;
#else
    return WEIR_CPU_FETCH_OR(p, v, __ATOMIC_ACQUIRE, DEV);
#endif
}

WEIR_FN void weir_arch_or_release_dev_u64(uint64_t *p, uint64_t v)
{
#if defined(__CUDA_ARCH__)
    asm volatile("red.release.gpu.global.or.b64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
#else
    (void)WEIR_CPU_FETCH_OR(p, v, __ATOMIC_RELEASE, DEV);
#endif
}

/* ---- doorbells: how a kernel notifies a NIC --------------------------------------------------------------- */

/* Stores a word in host memory that a NIC reads; a release. */
WEIR_FN void weir_arch_store_release_sys_u32(uint32_t *p, uint32_t v)
{
#if defined(__CUDA_ARCH__)
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
#else
    WEIR_CPU_STORE(p, v, __ATOMIC_RELEASE, SYS);
#endif
}

/* A release to the system. Its fence also orders the stores that this thread then makes by
 * weir_arch_store_behind_sys_u32. */
WEIR_FN void weir_arch_store_fenced_sys_u64(uint64_t *p, uint64_t v)
{
#if defined(__CUDA_ARCH__)
    asm volatile("fence.acq_rel.sys;\n\tst.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
#else
    WEIR_CPU_STORE(p, v, __ATOMIC_RELEASE, SYS);
#endif
}

WEIR_FN void weir_arch_store_behind_sys_u32(uint32_t *p, uint32_t v)
{
#if defined(__CUDA_ARCH__)
    weir_arch_store_relaxed_sys_u32(p, v);
#else
    weir_arch_store_release_sys_u32(p, v);
#endif
}

/* Whether fences with one direction exist: fence.acquire and fence.release (PTX ISA 8.6). They are a CCTL.IVALL and a
 * MEMBAR; fence.acq_rel is both. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && \
    (__CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 8))
#define WEIR_ARCH_FENCE_RELEASE "fence.release"
#define WEIR_ARCH_FENCE_ACQUIRE "fence.acquire"
#define WEIR_ARCH_HAS_FENCE_ACQUIRE 1
#else
#define WEIR_ARCH_FENCE_RELEASE "fence.acq_rel"
#define WEIR_ARCH_FENCE_ACQUIRE "fence.acq_rel"
#define WEIR_ARCH_HAS_FENCE_ACQUIRE 0
#endif

/* Makes this thread's last relaxed load of *p an acquire. So a wait can poll by relaxed loads: each acquire empties the
 * first-level cache of the multiprocessor. */
WEIR_FN void weir_arch_acquire_loaded_sys_u64(const uint64_t *p)
{
#if defined(__CUDA_ARCH__) && WEIR_ARCH_HAS_FENCE_ACQUIRE
    (void)p;
    asm volatile("fence.acquire.sys;" ::: "memory");
#else
    (void)weir_arch_load_acquire_sys_u64(p);
#endif
}

WEIR_FN void weir_arch_acquire_loaded_dev_u64(const uint64_t *p)
{
#if defined(__CUDA_ARCH__) && WEIR_ARCH_HAS_FENCE_ACQUIRE
    (void)p;
    asm volatile("fence.acquire.gpu;" ::: "memory");
#else
    (void)weir_arch_load_acquire_dev_u64(p);
#endif
}

/* Loads and then a fence of one thread, which makes all of the loads acquires. On a CPU the loads carry the order. */
WEIR_FN uint64_t weir_arch_load_before_acquire_sys_u64(const uint64_t *p)
{
#if defined(__CUDA_ARCH__)
    return weir_arch_load_relaxed_sys_u64(p);
#else
    return WEIR_CPU_LOAD_BEFORE_FENCE(p, SYS);
#endif
}

#if defined(__CUDA_ARCH__)
#define WEIR_ARCH_FENCE(instruction, order, scope) asm volatile(instruction ";" ::: "memory")
#else
#define WEIR_ARCH_FENCE(instruction, order, scope) WEIR_CPU_FENCE(order, scope)
#endif
WEIR_FN void weir_arch_fence_acquire_sys(void)
{
    WEIR_ARCH_FENCE(WEIR_ARCH_FENCE_ACQUIRE ".sys", __ATOMIC_ACQUIRE, SYS);
}

/* A load, a fence and a store of one thread, in this order. The store is a release, and follows the load: a GPU's fence
 * also waits for loads. It runs while the load, and other accesses before it, are still under way. On a CPU the load
 * and the store carry the orders. */
WEIR_FN uint64_t weir_arch_load_before_fence_u64(const uint64_t *p)
{
#if defined(__CUDA_ARCH__)
    return weir_arch_load_relaxed_sys_u64(p);
#else
    return WEIR_CPU_LOAD(p, __ATOMIC_ACQUIRE, SYS);
#endif
}

WEIR_FN void weir_arch_fence_dev(void) { WEIR_ARCH_FENCE(WEIR_ARCH_FENCE_RELEASE ".gpu", __ATOMIC_RELEASE, DEV); }
WEIR_FN void weir_arch_fence_sys(void) { WEIR_ARCH_FENCE(WEIR_ARCH_FENCE_RELEASE ".sys", __ATOMIC_RELEASE, SYS); }

/* Keeps the instructions behind it there. Otherwise ptxas moves comparisons of values that are still being loaded
 * before a fence, and the fence begins only when the loads have ended. */
WEIR_FN void weir_arch_keep_behind(void)
{
#if defined(__CUDA_ARCH__)
    asm volatile("{\n\t.reg .b32 self;\n\tmov.u32 self, %lanemask_eq;\n\tbar.warp.sync self;\n\t}" ::: "memory");
#endif
}

WEIR_FN void weir_arch_store_behind_fence_dev_u64(uint64_t *p, uint64_t v)
{
#if defined(__CUDA_ARCH__)
    weir_arch_store_relaxed_dev_u64(p, v);
#else
    WEIR_CPU_STORE_BEHIND_FENCE(p, v, DEV);
#endif
}

WEIR_FN void weir_arch_store_behind_fence_sys_u64(uint64_t *p, uint64_t v)
{
#if defined(__CUDA_ARCH__)
    weir_arch_store_relaxed_sys_u64(p, v);
#else
    WEIR_CPU_STORE_BEHIND_FENCE(p, v, SYS);
#endif
}

/* On x86, stores to the pages of a NIC may be combined and reordered until this call. */
WEIR_FN void weir_arch_drain_stores(void)
{
#if defined(__x86_64__) && !defined(__CUDA_ARCH__)
    __builtin_ia32_sfence();
#endif
}

/* Stores to a register of a NIC, or to a word that stands for one; a release. */
WEIR_FN void weir_arch_store_register(uint64_t *p, uint64_t v)
{
#if defined(__CUDA_ARCH__)
    asm volatile("fence.acq_rel.sys;\n\tst.mmio.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
#else
    weir_arch_drain_stores();
    WEIR_CPU_STORE(p, v, __ATOMIC_RELEASE, SYS);
    weir_arch_drain_stores();
#endif
}

/* ---- pairs of 8-byte words: each half is atomic; the halves are not ordered with each other --------------- */

WEIR_FN void weir_arch_store_relaxed_sys_pair(void *p, uint64_t a, uint64_t b)
{
#if defined(__CUDA_ARCH__)
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(a), "l"(b) : "memory");
#else
    WEIR_CPU_STORE((uint64_t *)p, a, __ATOMIC_RELAXED, SYS);
    WEIR_CPU_STORE((uint64_t *)p + 1, b, __ATOMIC_RELAXED, SYS);
#endif
}

/* `a` is the release: a thread that acquires `a` sees earlier writes. Acquiring `b` orders nothing. */
WEIR_FN void weir_arch_store_release_sys_pair(void *p, uint64_t a, uint64_t b)
{
#if defined(__CUDA_ARCH__)
    asm volatile("st.release.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(a), "l"(b) : "memory");
#else
    WEIR_CPU_STORE((uint64_t *)p, a, __ATOMIC_RELEASE, SYS);
    WEIR_CPU_STORE((uint64_t *)p + 1, b, __ATOMIC_RELAXED, SYS);
#endif
}

/* Both halves acquire. */
WEIR_FN weir_vec16 weir_arch_load_acquire_dev_pair(const void *p)
{
    weir_vec16 v;
#if defined(__CUDA_ARCH__)
    asm volatile("ld.acquire.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(v.lo), "=l"(v.hi) : "l"(p) : "memory");
#else
    v.lo = WEIR_CPU_LOAD((const uint64_t *)p, __ATOMIC_ACQUIRE, DEV);
    v.hi = WEIR_CPU_LOAD((const uint64_t *)p + 1, __ATOMIC_ACQUIRE, DEV);
#endif
    return v;
}

WEIR_FN weir_vec16 weir_arch_load_relaxed_sys_pair(const void *p)
{
    weir_vec16 v;
#if defined(__CUDA_ARCH__)
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(v.lo), "=l"(v.hi) : "l"(p) : "memory");
#else
    v.lo = WEIR_CPU_LOAD((const uint64_t *)p, __ATOMIC_RELAXED, SYS);
    v.hi = WEIR_CPU_LOAD((const uint64_t *)p + 1, __ATOMIC_RELAXED, SYS);
#endif
    return v;
}

/* ---- data: ordinary accesses, ordered by the signals around them -------------------------------------- */

WEIR_FN weir_vec16 weir_arch_load_vec16(const weir_vec16 *p)
{
#if defined(__CUDA_ARCH__)
    weir_vec16 v;
    asm volatile("ld.global.v2.u64 {%0, %1}, [%2];" : "=l"(v.lo), "=l"(v.hi) : "l"(p) : "memory");
    return v;
#else
    weir_vec16 v;
    WEIR_CPU_READ(p, v);
    return v;
#endif
}

/* Returns `value`. The compiler does not move what is computed from it out of a loop, where it would keep registers. */
WEIR_FN uint32_t weir_arch_fresh(uint32_t value)
{
#if defined(__CUDA_ARCH__)
    asm volatile("" : "+r"(value));
#endif
    return value;
}

/* Begins to fetch the cache line at `p` into the nearest cache. The memory may have been freed: PTX names no error of a
 * prefetch, and CPUs ignore such addresses. */
WEIR_FN void weir_arch_prefetch(const void *p)
{
#if defined(__CUDA_ARCH__)
    asm volatile("prefetch.global.L1 [%0];" ::"l"(p));
#else
    __builtin_prefetch(p);
#endif
}

WEIR_FN void weir_arch_store_vec16(weir_vec16 *p, weir_vec16 v)
{
#if defined(__CUDA_ARCH__)
    asm volatile("st.global.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(v.lo), "l"(v.hi) : "memory");
#else
    WEIR_CPU_WRITE(p, v);
#endif
}

/* Stores to memory that only such stores touch. Unlike the others it does not make the compiler reload other memory. */
WEIR_FN void weir_arch_store_apart_vec16(weir_vec16 *p, weir_vec16 v)
{
#if defined(__CUDA_ARCH__)
    asm volatile("st.global.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(v.lo), "l"(v.hi));
#else
    WEIR_CPU_WRITE(p, v);
#endif
}

WEIR_FN uint64_t weir_arch_load_u64(const weir_alias_u64 *p)
{
    uint64_t v;
    WEIR_CPU_READ(p, v);
    return v;
}

WEIR_FN void weir_arch_store_u64(weir_alias_u64 *p, uint64_t v) { WEIR_CPU_WRITE(p, v); }

WEIR_FN uint32_t weir_arch_load_u32(const weir_alias_u32 *p)
{
    uint32_t v;
    WEIR_CPU_READ(p, v);
    return v;
}

WEIR_FN void weir_arch_store_u32(weir_alias_u32 *p, uint32_t v) { WEIR_CPU_WRITE(p, v); }

WEIR_FN uint16_t weir_arch_load_u16(const weir_alias_u16 *p)
{
    uint16_t v;
    WEIR_CPU_READ(p, v);
    return v;
}

WEIR_FN void weir_arch_store_u16(weir_alias_u16 *p, uint16_t v) { WEIR_CPU_WRITE(p, v); }

WEIR_FN char weir_arch_load_byte(const char *p)
{
    char v;
    WEIR_CPU_READ(p, v);
    return v;
}

WEIR_FN void weir_arch_store_byte(char *p, char v) { WEIR_CPU_WRITE(p, v); }

/* Whether a copy may read a whole 16-byte unit of which it needs a part, inside the same memory. A CPU reads only the
 * bytes that it needs, because sanitizers check each access. */
#if defined(__CUDA_ARCH__)
#define WEIR_ARCH_READS_UNITS 1
#else
#define WEIR_ARCH_READS_UNITS 0
#endif

/* ---- byte order: reverses the bytes of `v` ---------------------------------------------------------------- */

WEIR_FN uint32_t weir_arch_swap_u32(uint32_t v)
{
#if defined(__CUDA_ARCH__)
    return __byte_perm(v, 0, 0x0123);
#else
    return __builtin_bswap32(v);
#endif
}

WEIR_FN uint64_t weir_arch_swap_u64(uint64_t v)
{
    return (uint64_t)weir_arch_swap_u32((uint32_t)v) << 32 | weir_arch_swap_u32((uint32_t)(v >> 32));
}

/* ---- 128-byte lines: 16 words that arrive together; the last is the flag -------------------------------- */

/* The number of lanes that share a line, and the number of 16-byte parts that each of them holds. */
#if defined(__CUDA_ARCH__)
#define WEIR_ARCH_LINE_LANES 8u
#define WEIR_ARCH_WARP_JOINED() (__activemask() == 0xffffffffu) /* all lanes execute this together */
#define WEIR_ARCH_LINE_PARTS 1u
#else
#define WEIR_ARCH_LINE_LANES 1u
#define WEIR_ARCH_WARP_JOINED() 1
#define WEIR_ARCH_LINE_PARTS 8u
#endif

/* On a GPU all lanes of a line call it in one instruction. The link keeps the 128 bytes of that instruction whole. */
WEIR_FN void weir_arch_store_line(char *line, uint32_t lane, const weir_vec16 *parts)
{
#if defined(__CUDA_ARCH__)
    weir_arch_store_relaxed_sys_pair(line + 16 * lane, parts[0].lo, parts[0].hi);
#else
    (void)lane;
    for (int i = 0; i < 7; i++) {
        weir_arch_store_relaxed_sys_pair(line + 16 * i, parts[i].lo, parts[i].hi);
    }
    weir_arch_store_relaxed_sys_u64((uint64_t *)line + 14, parts[7].lo);
    weir_arch_store_release_sys_u64((uint64_t *)line + 15, parts[7].hi);
#endif
}

WEIR_FN void weir_arch_load_line(const char *line, uint32_t lane, weir_vec16 *parts)
{
#if defined(__CUDA_ARCH__)
    parts[0] = weir_arch_load_relaxed_sys_pair(line + 16 * lane);
#else
    (void)lane;
    parts[7].hi = weir_arch_load_acquire_sys_u64((const uint64_t *)line + 15);
    parts[7].lo = weir_arch_load_relaxed_sys_u64((const uint64_t *)line + 14);
    for (int i = 0; i < 7; i++) {
        parts[i] = weir_arch_load_relaxed_sys_pair(line + 16 * i);
    }
#endif
}

/* ---- time, threads and barriers ----------------------------------------------------------------------- */

/* Reads of a spin before its slow part begins, and failed reads between two checks of the control block after that. On
 * a GPU 1,024 reads of local memory take about 0.5 ms. */
#if defined(__CUDA_ARCH__)
#define WEIR_ARCH_FAST_READS 256u
#define WEIR_ARCH_SPIN_READS 512u
#else
#define WEIR_ARCH_FAST_READS 16u
#define WEIR_ARCH_SPIN_READS 32u
#endif

/* One in this many short waits checks the control block; a power of two. A loop of such waits ends after at most this
 * many of them: within a second if it makes one every 15 ms or more often. On a CPU a short wait may take many
 * milliseconds on a machine with other work. */
#if !defined(WEIR_ARCH_LOOK_WAITS)
#if defined(__CUDA_ARCH__)
#define WEIR_ARCH_LOOK_WAITS 64u
#else
#define WEIR_ARCH_LOOK_WAITS 16u
#endif
#endif

/* The same for waits and pushes that go by tickets, which single threads make. */
#define WEIR_ARCH_LOOK_TICKETS WEIR_ARCH_LOOK_WAITS

/* The bytes that a block stores to one of several peers before it turns to the next peer (weir_slots_turn). The CPU has
 * a small value, so that the rounds of tests have several pieces. */
#if defined(__CUDA_ARCH__)
#define WEIR_ARCH_PEER_PIECE ((uint64_t)64 << 10)
#else
#define WEIR_ARCH_PEER_PIECE ((uint64_t)1 << 10)
#endif

/* The multiprocessor of the calling thread; 0 on the CPU. */
WEIR_FN uint32_t weir_arch_multiprocessor(void)
{
#if defined(__CUDA_ARCH__)
    uint32_t number;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(number));
    return number;
#else
    return WEIR_CPU_MULTIPROCESSOR();
#endif
}

#define WEIR_ARCH_HOST_ANSWER_NS 340u /* measured on H200 */

WEIR_FN uint64_t weir_arch_clock_ns(void)
{
#if defined(__CUDA_ARCH__)
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
#else
    return weir_cpu_clock_ns();
#endif
}

/* The lower half of weir_arch_clock_ns. */
WEIR_FN uint32_t weir_arch_clock_low_ns(void)
{
#if defined(__CUDA_ARCH__)
    uint32_t t;
    asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(t));
    return t;
#else
    return (uint32_t)weir_cpu_clock_ns();
#endif
}

/* Called before the first read of a word that a host thread is about to write. On a GPU it lets the time of a host's
 * fastest answer pass: a read of host memory takes 1.1 us on H200, and a read that comes too early costs as much
 * again. */
WEIR_FN void weir_arch_pause_for_host(void)
{
#if defined(__CUDA_ARCH__)
    const uint64_t start = weir_arch_clock_ns();
    while (weir_arch_clock_ns() - start < WEIR_ARCH_HOST_ANSWER_NS) {
    }
#endif
}

WEIR_FN void weir_arch_relax(uint32_t reads)
{
#if defined(__CUDA_ARCH__)
    (void)reads;
#else
    weir_cpu_relax(reads);
#endif
}

/* 0x80000000. On a GPU it is the top bit of %lanemask_ge, so ptxas takes it for different in each lane. A value that is
 * loaded, and equal in all lanes, would be copied to a uniform register in front of the next branch, and the lanes
 * would wait for it there. */
WEIR_FN uint32_t weir_arch_top_bit(void)
{
#if defined(__CUDA_ARCH__)
    uint32_t mask;
    asm volatile("mov.u32 %0, %%lanemask_ge;" : "=r"(mask)::"memory"); /* stays behind the barriers in front of it */
    return mask & 0x80000000u;
#else
    return 0x80000000u;
#endif
}

/* Position of the calling thread in a one-dimensional grid. On the CPU the launcher passes the position instead. */
WEIR_FN uint32_t weir_arch_thread(void)
{
#if defined(__CUDA_ARCH__)
    return threadIdx.x;
#else
    return 0;
#endif
}

WEIR_FN uint32_t weir_arch_threads(void)
{
#if defined(__CUDA_ARCH__)
    return blockDim.x;
#else
    return 1;
#endif
}

WEIR_FN uint32_t weir_arch_block(void)
{
#if defined(__CUDA_ARCH__)
    return blockIdx.x;
#else
    return 0;
#endif
}

WEIR_FN uint32_t weir_arch_blocks(void)
{
#if defined(__CUDA_ARCH__)
    return gridDim.x;
#else
    return 1;
#endif
}

/* Threads that run in step: 32 on a GPU, 1 on the CPU. */
WEIR_FN uint32_t weir_arch_warp_size(void)
{
#if defined(__CUDA_ARCH__)
    return 32;
#else
    return 1;
#endif
}

/* Barrier of the warp; returns the OR of `value` over its lanes. It orders the lanes' memory accesses, which a
 * reduction alone does not. */
WEIR_FN uint32_t weir_arch_warp_or(uint32_t value)
{
#if defined(__CUDA_ARCH__)
    __syncwarp();
    return __reduce_or_sync(0xffffffffu, value);
#else
    return value;
#endif
}

/* Waits for the lanes of the warp. Lanes that came apart in a branch may stay apart behind it, so their next access is
 * several instructions (docs/notes/2026-11-25-two-h100.md): WEIR_ARCH_WARP_JOINED says so. A barrier of the block joins
 * them. */
WEIR_FN void weir_arch_warp_converge(void)
{
#if defined(__CUDA_ARCH__)
    __syncwarp();
#endif
}

/* Whether `value` is non-zero in all lanes of the warp. Orders no memory accesses. */
WEIR_FN int weir_arch_warp_all(int value)
{
#if defined(__CUDA_ARCH__)
    return __all_sync(0xffffffffu, value);
#else
    return value;
#endif
}

/* Whether the calling lane is the first of those that call it together. */
WEIR_FN int weir_arch_leads_active(void)
{
#if defined(__CUDA_ARCH__)
    uint32_t before;
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(before));
    return (__activemask() & before) == 0;
#else
    return 1;
#endif
}

/* Whether `value` is non-zero in any of the lanes that call it together. Orders no memory accesses. */
WEIR_FN int weir_arch_active_any(int value)
{
#if defined(__CUDA_ARCH__)
    return __any_sync(__activemask(), value);
#else
    return value;
#endif
}

/* Barrier of the block that orders its threads' memory accesses. Returns non-zero if `value` is non-zero in any
 * thread. */
WEIR_FN uint32_t weir_arch_block_or(void *host, uint32_t value)
{
#if defined(__CUDA_ARCH__)
    (void)host;
    return (uint32_t)__syncthreads_or((int)value);
#else
    return host == NULL ? value : weir_cpu_block_or(host, value);
#endif
}

WEIR_FN void weir_arch_block_sync(void *host)
{
#if defined(__CUDA_ARCH__)
    (void)host;
    __syncthreads();
#else
    if (host != NULL) {
        (void)weir_cpu_block_or(host, 0);
    }
#endif
}

/* Returns the sum of `value` over the threads of the block in front of this one, and sets *total to the sum over all.
 * All threads of the block call it; rank and size are theirs in the block. room: `size` words, which a GPU does not
 * use. Has a barrier at its end. */
WEIR_FN uint64_t weir_arch_block_sum(void *host, uint64_t *room, uint32_t rank, uint32_t size, uint64_t value,
                                     uint64_t *total)
{
#if defined(__CUDA_ARCH__)
    __shared__ uint64_t sums[32];                 /* of each warp */
    uint64_t upto = value;                        /* of the warp's threads up to this one */
    const uint32_t lanes = size - rank / 32 * 32; /* from this warp on */
    uint64_t before = 0;
    (void)host;
    (void)room;
    for (uint32_t step = 1; step < 32; step *= 2) {
        const uint64_t other =
            __shfl_up_sync(lanes < 32 ? (1u << lanes) - 1 : 0xffffffff, (unsigned long long)upto, step);
        upto += rank % 32 >= step ? other : 0;
    }
    if (rank % 32 == 31 || rank + 1 == size) {
        sums[rank / 32] = upto;
    }
    __syncthreads();
    *total = 0;
    for (uint32_t warp = 0; warp < (size + 31) / 32; warp++) {
        before += warp < rank / 32 ? sums[warp] : 0;
        *total += sums[warp];
    }
    __syncthreads();
    return before + upto - value;
#else
    uint64_t before = 0;
    room[rank] = value;
    weir_arch_block_sync(host);
    *total = 0;
    for (uint32_t i = 0; i < size; i++) {
        before += i < rank ? room[i] : 0;
        *total += room[i];
    }
    weir_arch_block_sync(host);
    return before;
#endif
}

#endif
