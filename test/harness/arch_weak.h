/* arch_weak.h - the CPU part of weir/device/arch.h in a simulated weak memory.
 *
 * A program that sets WEIR_ARCH_MODEL to this header's name runs weir's device headers in the memory of
 * test/harness/weak.h. Only arch.h includes it. */
#ifndef WEIRT_ARCH_WEAK_H
#define WEIRT_ARCH_WEAK_H

#include <stddef.h>
#include <stdint.h>

#if defined(__cplusplus)
extern "C" {
#endif

/* The strength of an access: ordinary, or atomic among the threads of one device or of all devices. */
enum { WEIRT_WEAK_PLAIN = 0, WEIRT_WEAK_DEV = 1, WEIRT_WEAK_SYS = 2 };

/* Atomic accesses of `bytes` (4 or 8) with an __ATOMIC_... order. */
uint64_t weirt_weak_load(const void *p, size_t bytes, int order, int scope);
void weirt_weak_store(void *p, size_t bytes, uint64_t v, int order, int scope);
/* Accesses of 8 bytes; they return the old value. */
uint64_t weirt_weak_fetch_add(void *p, uint64_t v, int order, int scope);
uint64_t weirt_weak_fetch_or(void *p, uint64_t v, int order, int scope);
uint64_t weirt_weak_compare_exchange(void *p, uint64_t expected, uint64_t v, int order, int scope);
/* A fence with an order of __ATOMIC_ACQUIRE or __ATOMIC_RELEASE, and atomic accesses whose order is that of the fence
 * behind or before them alone. */
void weirt_weak_fence(int order, int scope);
uint64_t weirt_weak_load_before_fence(const void *p, size_t bytes, int scope);
void weirt_weak_store_behind_fence(void *p, size_t bytes, uint64_t v, int scope);
/* Ordinary accesses of any size; each 8-byte word is one access. */
void weirt_weak_read(const void *p, void *v, size_t bytes);
void weirt_weak_write(void *p, const void *v, size_t bytes);

/* Replacements for libweir's functions of the CPU device: simulated time, turns and barriers. `block` is a
 * weirt_weak_block. */
void weirt_weak_relax(uint32_t reads);
uint64_t weirt_weak_clock_ns(void);
uint32_t weirt_weak_block_or(void *block, uint32_t value);
uint32_t weirt_weak_multiprocessor(void);

#if defined(__cplusplus)
}
#endif

#define weir_cpu_relax weirt_weak_relax
#define weir_cpu_clock_ns weirt_weak_clock_ns
#define weir_cpu_block_or weirt_weak_block_or
#define WEIR_CPU_LOAD(p, order, scope) weirt_weak_load(p, sizeof *(p), order, WEIRT_WEAK_##scope)
#define WEIR_CPU_STORE(p, v, order, scope) weirt_weak_store(p, sizeof *(p), v, order, WEIRT_WEAK_##scope)
#define WEIR_CPU_FETCH_ADD(p, v, order, scope) weirt_weak_fetch_add(p, v, order, WEIRT_WEAK_##scope)
#define WEIR_CPU_FETCH_OR(p, v, order, scope) weirt_weak_fetch_or(p, v, order, WEIRT_WEAK_##scope)
#define WEIR_CPU_COMPARE_EXCHANGE(p, expected, v, order, scope) \
    weirt_weak_compare_exchange(p, expected, v, order, WEIRT_WEAK_##scope)
#define WEIR_CPU_FENCE(order, scope) weirt_weak_fence(order, WEIRT_WEAK_##scope)
#define WEIR_CPU_LOAD_BEFORE_FENCE(p, scope) weirt_weak_load_before_fence(p, sizeof *(p), WEIRT_WEAK_##scope)
#define WEIR_CPU_STORE_BEHIND_FENCE(p, v, scope) weirt_weak_store_behind_fence(p, sizeof *(p), v, WEIRT_WEAK_##scope)
#define WEIR_CPU_READ(p, v) weirt_weak_read(p, &(v), sizeof *(p))
#define WEIR_CPU_WRITE(p, v) weirt_weak_write(p, &(v), sizeof *(p))
#define WEIR_CPU_MULTIPROCESSOR() weirt_weak_multiprocessor()

#endif
