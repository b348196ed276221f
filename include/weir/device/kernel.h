/* weir/device/kernel.h - write a kernel once, run it on a GPU and on the CPU.
 *
 *     typedef struct put_args { weir_dev_memory_channel channel; uint64_t bytes; } put_args;
 *
 *     WEIR_KERNEL(put, put_args)
 *     {
 *         weir_dev_memory_channel_put(&args->channel, 0, 0, args->bytes, coop);
 *     }
 *     ...
 *     weir_launch(device, &put, shape, &args, NULL, stream);
 *
 * WEIR_KERNEL defines a `const weir_kernel name` for weir_launch. The body sees `args`, a pointer to its copy of the
 * argument struct, and `coop`, the grid. A C compiler compiles it for the CPU device. nvcc (-x cu, the same file)
 * compiles it for GPUs and for the CPU device. Bodies stay in the common subset of C11 and CUDA C++: no compound
 * literals, designated initialisers, variable-length arrays or implicit conversions from void pointers. The argument
 * struct has at most WEIR_KERNEL_ARGS_MAX bytes.
 *
 * This header brings memory channels. A kernel that uses another noun includes that noun's header above it:
 * port_channel.h, fifo.h, proxy.h, rdma.h, collective.h, window.h, table.h, layout.h or halo.h in weir/device. The
 * kernel records the versions of the nouns whose headers it includes. A libweir with another version of one of them
 * refuses to launch it: WEIR_ERR_VERSION. A kernel that does not include a noun's header ignores changes of that noun.
 *
 * Kernels of different files may have the same name. In a cubin or fatbin the driver finds kernels by name: compile
 * such a file with WEIR_KERNEL_MODULE defined, and its kernel for GPUs is extern "C" put_gpu.
 *
 * When a kernel begins, it stores its name for the texts of errors, which takes a short one up to 0.2 us. A file that
 * defines WEIR_LATE_NAMES in front of weir's headers (nvcc -DWEIR_LATE_NAMES) saves that: its kernels store their names
 * when a wait has become long, or when something fails. All device code of such a file that calls weir is then a
 * WEIR_KERNEL, or is inlined into one. Otherwise ptxas says "Unknown symbol 'WEIR_LATE_NAMES_outside_WEIR_KERNEL'", and
 * so it does with flags that keep nvcc from inlining (-G, --Ofast-compile).
 *
 * Write a kernel with large blocks with WEIR_KERNEL_FOR(put, put_args, 1024): the compiler then limits its registers so
 * that blocks of that many threads fit. */
#ifndef WEIR_DEVICE_KERNEL_H
#define WEIR_DEVICE_KERNEL_H

#include "weir/device/memory_channel.h"

#define WEIR_KERNEL_ARGS_MAX 4000

typedef struct weir_kernel {
    uint32_t version; /* WEIR_DEV_VERSION of the headers it was compiled with */
    uint32_t args_bytes;
    const char *name;
    void (*cpu)(const void *args, weir_coop coop);
    /* Sets *function to the kernel's CUfunction in the current context; returns the CUDA runtime's error code. NULL if
     * the kernel was compiled only for the CPU. */
    int (*gpu)(void **function);
    uint8_t nouns[WEIR_DEV_NOUNS_MAX]; /* version of each noun that it uses; otherwise 0 */
} weir_kernel;

WEIR_STATIC_ASSERT(sizeof(weir_kernel) == 64, "layout of weir_kernel");
WEIR_STATIC_ASSERT(offsetof(weir_kernel, cpu) == 16, "layout of weir_kernel");
WEIR_STATIC_ASSERT(offsetof(weir_kernel, nouns) == 32, "layout of weir_kernel");

/* The initializer of weir_kernel.nouns: it depends on the headers that are included above the kernel. */
#define WEIR_DEV_USED                                                                                                \
    {                                                                                                                \
        WEIR_DEV_USED_semaphore, WEIR_DEV_USED_grid_barrier, WEIR_DEV_USED_memory_channel, WEIR_DEV_USED_fifo,       \
            WEIR_DEV_USED_proxy, WEIR_DEV_USED_rdma, WEIR_DEV_USED_port_channel, WEIR_DEV_USED_collective,           \
            WEIR_DEV_USED_rails, WEIR_DEV_USED_window, WEIR_DEV_USED_table, WEIR_DEV_USED_layout, WEIR_DEV_USED_halo \
    }

#if defined(__CUDACC__)

#if defined(WEIR_KERNEL_MODULE)
#define WEIR_KERNEL_LINKAGE extern "C"
#else
#define WEIR_KERNEL_LINKAGE static
#endif

#define WEIR_KERNEL(kernel, args_type) WEIR_KERNEL_BOUNDED(kernel, args_type, )
#define WEIR_KERNEL_FOR(kernel, args_type, threads) WEIR_KERNEL_BOUNDED(kernel, args_type, __launch_bounds__(threads))

#define WEIR_KERNEL_BOUNDED(kernel, args_type, bounds)                                                    \
    WEIR_STATIC_ASSERT(sizeof(args_type) <= WEIR_KERNEL_ARGS_MAX, "kernel arguments are too large");      \
    static __host__ __device__ __forceinline__ void kernel##_body(const args_type *args, weir_coop coop); \
    WEIR_KERNEL_LINKAGE __global__ void bounds kernel##_gpu(const __grid_constant__ args_type args)       \
    {                                                                                                     \
        weir_arch_name_kernel(#kernel);                                                                   \
        kernel##_body(&args, weir_coop_grid(NULL));                                                       \
    }                                                                                                     \
    static void kernel##_cpu(const void *args, weir_coop coop)                                            \
    {                                                                                                     \
        weir_arch_name_kernel(#kernel);                                                                   \
        kernel##_body((const args_type *)args, coop);                                                     \
        weir_arch_name_kernel(NULL);                                                                      \
    }                                                                                                     \
    static int kernel##_resolve(void **function)                                                          \
    {                                                                                                     \
        return (int)cudaGetFuncBySymbol((cudaFunction_t *)function, (const void *)kernel##_gpu);          \
    }                                                                                                     \
    static const weir_kernel kernel = { WEIR_DEV_VERSION, sizeof(args_type), #kernel,                     \
                                        kernel##_cpu,     kernel##_resolve,  WEIR_DEV_USED };             \
    static __host__ __device__ __forceinline__ void kernel##_body(const args_type *args, weir_coop coop)

#else

#define WEIR_KERNEL_FOR(kernel, args_type, threads) WEIR_KERNEL(kernel, args_type)
#define WEIR_KERNEL(kernel, args_type)                                                               \
    WEIR_STATIC_ASSERT(sizeof(args_type) <= WEIR_KERNEL_ARGS_MAX, "kernel arguments are too large"); \
    static inline void kernel##_body(const args_type *args, weir_coop coop);                         \
    static void kernel##_cpu(const void *args, weir_coop coop)                                       \
    {                                                                                                \
        weir_arch_name_kernel(#kernel);                                                              \
        kernel##_body((const args_type *)args, coop);                                                \
        weir_arch_name_kernel(NULL);                                                                 \
    }                                                                                                \
    static const weir_kernel kernel = {                                                              \
        WEIR_DEV_VERSION, sizeof(args_type), #kernel, kernel##_cpu, NULL, WEIR_DEV_USED              \
    };                                                                                               \
    static inline void kernel##_body(const args_type *args, weir_coop coop)

#endif

#endif
