/* weir/device/impl/arch_name.h - the name of the kernel that the calling thread runs, for error texts.
 *
 * WEIR_KERNEL sets the name when the kernel begins; on a CPU it sets NULL when the kernel ends. On a GPU the first 24
 * characters lie in shared memory. A kernel that sets no name may find the name of an earlier kernel there, so the
 * number of the launch is stored beside it. The characters are constants in the code: a pointer to them would be read
 * from memory, which costs a short kernel 0.06 us. */
#ifndef WEIR_DEVICE_IMPL_ARCH_NAME_H
#define WEIR_DEVICE_IMPL_ARCH_NAME_H

#include "weir/device/arch.h"

#define WEIR_ARCH_NAME_WORDS 3
#define WEIR_ARCH_KERNEL_CHECK 0x77656972206b6e6cu

#if defined(__CUDA_ARCH__)
typedef struct weir_arch_kernel {
    uint64_t name[WEIR_ARCH_NAME_WORDS];
    uint64_t check;
} weir_arch_kernel;

WEIR_FN weir_arch_kernel *weir_arch_this_kernel(void)
{
    __shared__ weir_arch_kernel kernel;
    return &kernel;
}

WEIR_FN uint64_t weir_arch_kernel_check(uint64_t names)
{
    uint64_t launch;
    asm("mov.u64 %0, %%gridid;" : "=l"(launch));
    return launch ^ names ^ WEIR_ARCH_KERNEL_CHECK;
}
#else
WEIR_FN const char **weir_arch_this_kernel(void)
{
    static __thread const char *name;
    return &name;
}
#endif

WEIR_FN void weir_arch_name_kernel(const char *name)
{
#if defined(__CUDA_ARCH__)
    uint64_t words[WEIR_ARCH_NAME_WORDS] = { 0, 0, 0 };
    bool more = true;
    WEIR_UNROLL
    for (int i = 0; i < 8 * WEIR_ARCH_NAME_WORDS; i++) {
        more = more && name[i] != 0;
        words[i / 8] |= more ? (uint64_t)(unsigned char)name[i] << (i % 8 * 8) : 0;
    }
    weir_arch_kernel *kernel = weir_arch_this_kernel();
    if (threadIdx.x >= 32) {
        return; /* one warp is enough: 32 warps would store one after the other */
    }
    kernel->name[0] = words[0];
    kernel->name[1] = words[1];
    kernel->name[2] = words[2];
    kernel->check = weir_arch_kernel_check(words[0] ^ words[1] ^ words[2]);
#else
    *weir_arch_this_kernel() = name;
#endif
}

/* Before the kernel's name is read: another warp may still have to store it, which takes it less than 2 us. No loop,
 * since its registers would be those of every kernel that waits. */
WEIR_FN void weir_arch_await_kernel_name(void)
{
#if defined(__CUDA_ARCH__)
    __nanosleep(4000); /* at least half of it */
    __threadfence_block();
#endif
}

WEIR_FN int weir_arch_kernel_has_name(void)
{
#if defined(__CUDA_ARCH__)
    const weir_arch_kernel *kernel = weir_arch_this_kernel();
    return kernel->check == weir_arch_kernel_check(kernel->name[0] ^ kernel->name[1] ^ kernel->name[2]);
#else
    return *weir_arch_this_kernel() != NULL;
#endif
}

/* Characters 8 * i and up of the name of a kernel that has one, the first one lowest; 0 behind its end. */
WEIR_FN uint64_t weir_arch_kernel_name(uint32_t i)
{
#if defined(__CUDA_ARCH__)
    return i < WEIR_ARCH_NAME_WORDS ? weir_arch_this_kernel()->name[i] : 0;
#else
    const char *name = *weir_arch_this_kernel();
    uint64_t word = 0;
    for (uint32_t at = 0; at < 8 * i + 8 && name[at] != '\0'; at++) {
        word |= at >= 8 * i ? (uint64_t)(unsigned char)name[at] << (at % 8 * 8) : 0;
    }
    return word;
#endif
}

#endif
