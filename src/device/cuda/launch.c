/* launch.c - kernels on GPUs: users' kernels, known to the CUDA runtime of their program, and weir's own kernels, whose
 * modules libweir carries. A device has a table of the loaded kernels with the driver's function of each. Each launch
 * finds its kernel there by the address: weir alone has more than a hundred. */
#include "src/device/cuda/driver.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "src/device/kernels.h"
#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/base/log.h"

#define KERNELS_LEAST 512u /* rows of the first table */

/* ---- the table ------------------------------------------------------------------------------------------ */

/* Where the kernel is in `rows`, or the free row where it belongs. At most half of the rows are in use. */
static weiri_cuda_kernel *row_of(weiri_cuda_kernel *rows, size_t capacity, const weir_kernel *kernel)
{
    size_t at = (size_t)((uintptr_t)kernel / 8 * 0x9e3779b97f4a7c15u >> 32) & (capacity - 1);
    while (rows[at].kernel != NULL && rows[at].kernel != kernel) {
        at = (at + 1) & (capacity - 1);
    }
    return &rows[at];
}

static bool find_locked(const weiri_cuda_device *native, const weir_kernel *kernel, weiri_cuda_kernel *out)
{
    if (native->kernel_capacity == 0) {
        return false;
    }
    *out = *row_of(native->kernels, native->kernel_capacity, kernel);
    return out->kernel != NULL;
}

static bool find_kernel(weiri_cuda_device *native, const weir_kernel *kernel, weiri_cuda_kernel *out)
{
    pthread_mutex_lock(&native->kernels_lock);
    const bool found = find_locked(native, kernel, out);
    pthread_mutex_unlock(&native->kernels_lock);
    return found;
}

static weir_status grow_table(weiri_cuda_device *native)
{
    const size_t capacity = native->kernel_capacity == 0 ? KERNELS_LEAST : native->kernel_capacity * 2;
    weiri_cuda_kernel *rows = (weiri_cuda_kernel *)weiri_alloc(capacity, sizeof *rows);
    if (rows == NULL) {
        return weiri_fail_nomem("gpu: kernel table");
    }
    for (size_t i = 0; i < native->kernel_capacity; i++) {
        if (native->kernels[i].kernel != NULL) {
            *row_of(rows, capacity, native->kernels[i].kernel) = native->kernels[i];
        }
    }
    weiri_free(native->kernels);
    native->kernels = rows;
    native->kernel_capacity = capacity;
    return WEIR_OK;
}

static weir_status remember_kernel(weiri_cuda_device *native, const weiri_cuda_kernel *loaded)
{
    weiri_cuda_kernel known;
    weir_status status = WEIR_OK;
    pthread_mutex_lock(&native->kernels_lock);
    const bool added = !find_locked(native, loaded->kernel, &known);
    if (added && 2 * (native->kernel_count + 1) > native->kernel_capacity) {
        status = grow_table(native);
    }
    if (status == WEIR_OK) {
        *row_of(native->kernels, native->kernel_capacity, loaded->kernel) = *loaded;
        native->kernel_count += added;
    }
    pthread_mutex_unlock(&native->kernels_lock);
    return status;
}

/* A kernel that needs more local memory than the context has: its first launch waits until all kernels of the context
 * have ended. */
static void warn_of_local_memory(const weir_device *device, const weir_kernel *kernel, CUfunction function)
{
    int bytes = 0;
    size_t limit = 0;
    if (weiri_cuda.cuFuncGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function) == CUDA_SUCCESS &&
        weiri_cuda.cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE) == CUDA_SUCCESS && bytes > 0 && (size_t)bytes > limit) {
        weiri_log(
            WEIR_LOG_WARN,
            "gpu:%u: kernel %s needs %d bytes of local memory a thread, and the context has %zu: its first launch "
            "waits for all kernels of this process (cudaDeviceSetLimit(cudaLimitStackSize, %d) prevents that)",
            device->info.index, kernel->name, bytes, limit, bytes);
    }
}

/* Loads a function, in the entered context, and adds it to the table. The table is not locked while the function loads:
 * launches of loaded kernels go on. Two threads may load the same kernel at once; the row of the second replaces an
 * equal one. */
static weir_status add_kernel(weir_device *device, const weir_kernel *kernel, CUfunction function,
                              weiri_cuda_kernel *out)
{
    weiri_cuda_kernel loaded = { .kernel = kernel, .function = function, .block_threads = 0 };
    if (weiri_cuda.cuFuncLoad != NULL) {
        CUresult result = weiri_cuda.cuFuncLoad(loaded.function);
        if (result != CUDA_SUCCESS) {
            return weiri_cuda_check(device, "cuFuncLoad", result);
        }
    }
    int threads = 0;
    CUresult result = weiri_cuda.cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, loaded.function);
    if (result != CUDA_SUCCESS) {
        return weiri_cuda_check(device, "cuFuncGetAttribute", result);
    }
    loaded.block_threads = threads < 0 ? 0 : (uint32_t)threads;
    warn_of_local_memory(device, kernel, loaded.function);
    weir_status status = remember_kernel(weiri_cuda_native(device), &loaded);
    if (status == WEIR_OK) {
        *out = loaded;
    }
    return status;
}

/* ---- weir's own kernels ---------------------------------------------------------------------------------- */

/* The module of a family in the context of a GPU. It is loaded once and stays until the process ends, as the context
 * does: unloading it might wait for a user's kernels. */
static weir_status find_module(weir_device *device, uint32_t family, CUmodule *out)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static CUmodule modules[WEIRI_CUDA_GPUS_MAX][WEIRI_FAMILIES];
    CUmodule *module = &modules[weiri_cuda_native(device)->ordinal][family];
    weir_status status = WEIR_OK;
    const unsigned char *bytes = weiri_kernel_families[family].module;
    if (bytes[0] == 0) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "%s", (const char *)bytes + 1);
    }
    pthread_mutex_lock(&lock);
    if (*module == NULL) {
        status = weiri_cuda_check(device, "cuModuleLoadData", weiri_cuda.cuModuleLoadData(module, bytes));
    }
    *out = *module;
    pthread_mutex_unlock(&lock);
    return status;
}

static weir_status load_family(weir_device *device, uint32_t family)
{
    CUmodule module = NULL;
    weir_status status = find_module(device, family, &module);
    for (const weir_kernel *const *at = weiri_kernel_families[family].kernels; *at != NULL && status == WEIR_OK; at++) {
        char name[128];
        weiri_cuda_kernel loaded;
        CUfunction function = NULL;
        snprintf(name, sizeof name, "%s_gpu", (*at)->name); /* WEIR_KERNEL makes this name */
        status =
            weiri_cuda_check(device, "cuModuleGetFunction", weiri_cuda.cuModuleGetFunction(&function, module, name));
        if (status == WEIR_OK) {
            status = add_kernel(device, *at, function, &loaded);
        }
    }
    return status;
}

weir_status weiri_cuda_load_families(weir_device *device)
{
    weiri_cuda_device *native = weiri_cuda_native(device);
    for (uint32_t family = 0; family < WEIRI_FAMILIES; family++) {
        weir_status status = load_family(device, family);
        if (status == WEIR_ERR_NOMEM) {
            return status;
        }
        if (status != WEIR_OK) {
            snprintf(native->families_reason[family], sizeof native->families_reason[family], "%s", weir_last_error());
        }
    }
    return WEIR_OK;
}

/* Why a kernel that is not loaded cannot be loaded. */
static const char *missing_reason(const weiri_cuda_device *native, const weir_kernel *kernel)
{
    for (uint32_t family = 0; family < WEIRI_FAMILIES; family++) {
        for (const weir_kernel *const *at = weiri_kernel_families[family].kernels; *at != NULL; at++) {
            if (*at == kernel) {
                return native->families_reason[family];
            }
        }
    }
    return "it was compiled without nvcc, for the CPU alone";
}

/* ---- loading and launching ------------------------------------------------------------------------------ */

/* Finds the kernel, in the entered context. Loads it if it is a user's kernel. */
static weir_status resolve_kernel(weir_device *device, const weir_kernel *kernel, weiri_cuda_kernel *out)
{
    weiri_cuda_device *native = weiri_cuda_native(device);
    if (find_kernel(native, kernel, out)) {
        return WEIR_OK;
    }
    if (kernel->gpu == NULL) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "gpu:%u: kernel %s: %s", device->info.index, kernel->name,
                          missing_reason(native, kernel));
    }
    void *function = NULL;
    int error = kernel->gpu(&function);
    if (error != 0 || function == NULL) {
        return weiri_fail(WEIR_ERR_DEVICE, "gpu:%u: kernel %s: CUDA runtime error %d", device->info.index, kernel->name,
                          error);
    }
    return add_kernel(device, kernel, function, out);
}

weir_status weiri_cuda_kernel_load(weir_device *device, const weir_kernel *kernel)
{
    CUstreamCaptureMode mode;
    weir_status status = weiri_cuda_enter(device, &mode);
    if (status != WEIR_OK) {
        return status;
    }
    weiri_cuda_kernel loaded;
    status = resolve_kernel(device, kernel, &loaded);
    weiri_cuda_leave(mode);
    return status;
}

static weir_status check_threads(const weir_device *device, const weiri_cuda_kernel *loaded, uint32_t threads)
{
    uint32_t limit =
        device->info.block_threads < loaded->block_threads ? device->info.block_threads : loaded->block_threads;
    if (threads > limit) {
        return weiri_fail(WEIR_ERR_LIMIT, "gpu:%u: kernel %s: %u threads a block, but at most %u are possible",
                          device->info.index, loaded->kernel->name, threads, limit);
    }
    return WEIR_OK;
}

static weir_status check_shape(const weir_device *device, const weiri_cuda_kernel *loaded, weir_shape shape)
{
    const char *name = loaded->kernel->name;
    if (shape.blocks == 0 || shape.threads == 0) {
        return weiri_fail(WEIR_ERR_INVALID, "gpu:%u: kernel %s: shape of %u blocks x %u threads", device->info.index,
                          name, shape.blocks, shape.threads);
    }
    if (shape.blocks > INT_MAX) {
        return weiri_fail(WEIR_ERR_LIMIT, "gpu:%u: kernel %s: %u blocks, but at most %d are possible",
                          device->info.index, name, shape.blocks, INT_MAX);
    }
    return check_threads(device, loaded, shape.threads);
}

/* How many blocks of `threads` threads can be resident on so many multiprocessors at once. */
static weir_status resident_blocks(const weir_device *device, const weiri_cuda_kernel *loaded, uint32_t threads,
                                   uint32_t multiprocessors, uint32_t *out)
{
    int blocks = 0;
    CUresult result =
        weiri_cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, loaded->function, (int)threads, 0);
    if (result != CUDA_SUCCESS) {
        return weiri_cuda_check(device, "cuOccupancyMaxActiveBlocksPerMultiprocessor", result);
    }
    *out = (uint32_t)(blocks < 0 ? 0 : blocks) * multiprocessors;
    return WEIR_OK;
}

/* Whether all blocks can be resident at once on the multiprocessors of the stream. */
static weir_status check_resident(weir_device *device, const weiri_cuda_kernel *loaded, weir_shape shape,
                                  CUstream stream)
{
    if (!weiri_cuda_native(device)->cooperative) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "gpu:%u: kernel %s: the GPU has no cooperative launch",
                          device->info.index, loaded->kernel->name);
    }
    uint32_t resident = 0;
    const uint32_t multiprocessors = weir_stream_multiprocessors(device, stream);
    weir_status status = resident_blocks(device, loaded, shape.threads, multiprocessors, &resident);
    if (status != WEIR_OK) {
        return status;
    }
    if (resident < shape.blocks) {
        return weiri_fail(
            WEIR_ERR_LIMIT,
            "gpu:%u: kernel %s: cooperative launch of %u blocks x %u threads, but only %u blocks can be resident on %u "
            "multiprocessors",
            device->info.index, loaded->kernel->name, shape.blocks, shape.threads, resident, multiprocessors);
    }
    return WEIR_OK;
}

weir_status weiri_cuda_kernel_fit(weir_device *device, const weir_kernel *kernel, uint32_t threads, uint32_t *blocks)
{
    CUstreamCaptureMode mode;
    weir_status status = weiri_cuda_enter(device, &mode);
    if (status != WEIR_OK) {
        return status;
    }
    weiri_cuda_kernel loaded;
    status = resolve_kernel(device, kernel, &loaded);
    if (status == WEIR_OK) {
        status = check_threads(device, &loaded, threads);
    }
    if (status == WEIR_OK) {
        status = resident_blocks(device, &loaded, threads, device->info.multiprocessors, blocks);
    }
    weiri_cuda_leave(mode);
    return status;
}

/* In the entered context. */
static weir_status launch(weir_device *device, const weir_kernel *kernel, weir_shape shape, const void *args,
                          bool cooperative, CUstream stream)
{
    weiri_cuda_kernel loaded;
    weir_status status = resolve_kernel(device, kernel, &loaded);
    if (status == WEIR_OK) {
        status = check_shape(device, &loaded, shape);
    }
    if (status == WEIR_OK && cooperative) {
        status = check_resident(device, &loaded, shape, stream);
    }
    if (status != WEIR_OK) {
        return status;
    }
    CUlaunchAttribute attribute;
    memset(&attribute, 0, sizeof attribute);
    attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attribute.value.cooperative = 1;
    CUlaunchConfig config;
    memset(&config, 0, sizeof config);
    config.gridDimX = shape.blocks;
    config.gridDimY = 1;
    config.gridDimZ = 1;
    config.blockDimX = shape.threads;
    config.blockDimY = 1;
    config.blockDimZ = 1;
    config.hStream = stream;
    config.attrs = &attribute;
    config.numAttrs = cooperative ? 1 : 0;
    /* The driver copies the arguments before the call returns and does not write to them. */
    void *params[] = { (void *)(uintptr_t)args };
    const bool turn = weiri_cuda_submit_begin(device);
    CUresult result = weiri_cuda.cuLaunchKernelEx(&config, loaded.function, params, NULL);
    weiri_cuda_submit_end(device, turn);
    if (result == CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE) {
        return weiri_fail(WEIR_ERR_LIMIT, "gpu:%u: kernel %s: %u blocks x %u threads cannot be resident at once",
                          device->info.index, kernel->name, shape.blocks, shape.threads);
    }
    return weiri_cuda_check(device, "cuLaunchKernelEx", result);
}

weir_status weiri_cuda_launch(weir_device *device, const weir_kernel *kernel, weir_shape shape, const void *args,
                              bool cooperative, void *stream)
{
    CUstreamCaptureMode mode;
    weir_status status = weiri_cuda_enter(device, &mode);
    if (status != WEIR_OK) {
        return status;
    }
    status = launch(device, kernel, shape, args, cooperative, stream);
    weiri_cuda_leave(mode);
    return status;
}
