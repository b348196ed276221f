/* weir/device/impl/arch_name.h - the name of the kernel that the calling thread runs, for error texts.
 *
 * WEIR_KERNEL names the kernel when it begins. On a CPU the name is a variable of the thread, and NULL again when the
 * kernel ends. On a GPU the functions that record an error are not inlined, and find the first 24 characters in shared
 * memory. A kernel that stores no name may find the name of an earlier kernel there, so the number of the launch is
 * mixed into a word beside it.
 *
 * To store the name when a kernel begins costs a get of 1 KiB inside a GPU 8 % of its time
 * (docs/notes/2026-11-29-kernel-names.md). With WEIR_LATE_NAMES, WEIR_KERNEL only sets registers, to constants, and
 * WEIR_SLOW stores the name in front of a call that may record an error:
 *
 *     return WEIR_UNLIKELY(failed) ? WEIR_SLOW(weir_dev_control_fail(control, WEIR_ERR_RANGE)) : WEIR_OK;
 *
 * The registers belong to the PTX of the kernel. Code that is inlined into the kernel names them in an asm statement,
 * and ptxas knows no such symbol elsewhere. Functions of weir that are not inlined, but into which such code is
 * inlined, therefore begin with weir_arch_no_kernel, which makes the same registers for them: nothing is stored then.
 */
#ifndef WEIR_DEVICE_IMPL_ARCH_NAME_H
#define WEIR_DEVICE_IMPL_ARCH_NAME_H

#include "weir/device/arch.h"

#define WEIR_ARCH_NAME_WORDS 3
#define WEIR_ARCH_KERNEL_CHECK 0x77656972206b6e6cu

/* A call, from a function that is inlined, of one that is not and may record an error. */
#define WEIR_SLOW(call) (weir_arch_show_kernel(), (call))

#if defined(__CUDA_ARCH__)
/* The first one is 1 in a kernel and 0 in a function. ptxas prints its name where it is not declared. */
#define WEIR_ARCH_NAME_REGISTERS \
    ".reg .b64 WEIR_LATE_NAMES_outside_WEIR_KERNEL, weir_name_0, weir_name_1, weir_name_2;\n\t"

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
#if defined(WEIR_LATE_NAMES)
    asm volatile(WEIR_ARCH_NAME_REGISTERS "mov.b64 WEIR_LATE_NAMES_outside_WEIR_KERNEL, 1;\n\t"
                                          "mov.b64 weir_name_0, %0;\n\t"
                                          "mov.b64 weir_name_1, %1;\n\t"
                                          "mov.b64 weir_name_2, %2;" ::"l"(words[0]),
                 "l"(words[1]), "l"(words[2]));
#else
    weir_arch_kernel *kernel = weir_arch_this_kernel();
    if (threadIdx.x < 32) { /* one warp is enough: 32 warps would store one after the other */
        kernel->name[0] = words[0];
        kernel->name[1] = words[1];
        kernel->name[2] = words[2];
        kernel->check = weir_arch_kernel_check(words[0] ^ words[1] ^ words[2]);
    }
#endif
#else
    *weir_arch_this_kernel() = name;
#endif
}

/* Begins a function that is not inlined, and into which code with WEIR_SLOW is inlined. */
WEIR_FN void weir_arch_no_kernel(void)
{
#if defined(__CUDA_ARCH__) && defined(WEIR_LATE_NAMES)
    asm volatile(WEIR_ARCH_NAME_REGISTERS "mov.b64 WEIR_LATE_NAMES_outside_WEIR_KERNEL, 0;\n\t"
                                          "mov.b64 weir_name_0, 0;\n\t"
                                          "mov.b64 weir_name_1, 0;\n\t"
                                          "mov.b64 weir_name_2, 0;");
#endif
}

/* Lets functions that are not inlined find the name. */
WEIR_FN void weir_arch_show_kernel(void)
{
#if defined(__CUDA_ARCH__) && defined(WEIR_LATE_NAMES)
    /* One word after the other, in few registers. */
    asm volatile("{\n\t.reg .pred inside;\n\t.reg .b64 word, check;\n\t"
                 "setp.eq.b64 inside, WEIR_LATE_NAMES_outside_WEIR_KERNEL, 1;\n\t"
                 "@inside st.shared.b64 [%0], weir_name_0;\n\t"
                 "@inside st.shared.b64 [%0 + 8], weir_name_1;\n\t"
                 "@inside st.shared.b64 [%0 + 16], weir_name_2;\n\t"
                 "xor.b64 check, weir_name_0, %1;\n\t"
                 "xor.b64 check, check, weir_name_1;\n\t"
                 "xor.b64 check, check, weir_name_2;\n\t"
                 "mov.b64 word, %%gridid;\n\t"
                 "xor.b64 check, check, word;\n\t"
                 "@inside st.shared.b64 [%0 + 24], check;\n\t}" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(weir_arch_this_kernel())),
                 "n"(WEIR_ARCH_KERNEL_CHECK)
                 : "memory");
#endif
}

/* Before the name is read. Where kernels store it when they begin, another warp may still have to do so, which takes it
 * less than 2 us. No loop, since its registers would be those of every kernel that waits. */
WEIR_FN void weir_arch_await_kernel_name(void)
{
#if defined(__CUDA_ARCH__) && !defined(WEIR_LATE_NAMES)
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
