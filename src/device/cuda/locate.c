/* locate.c - which GPU's memory a pointer is in.
 *
 * Memory of a GPU exists only in a process that has loaded the driver, and a driver that is not initialised knows no
 * pointer. So the driver is asked only if the process has loaded it already, and nothing is loaded or initialised here.
 * A process without the driver must not pay for a search on every call: libraries are searched again only after the
 * count of libraries loaded so far has changed. */
#define _GNU_SOURCE 1
#include "src/device/cuda/driver.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#define DRIVER "libcuda.so.1"

static __typeof__(&cuPointerGetAttributes) known_function;
static unsigned long long searched; /* the count of loaded libraries when the driver was not among them */

static int read_count(struct dl_phdr_info *info, size_t size, void *out)
{
    (void)size;
    *(unsigned long long *)out = info->dlpi_adds;
    return 1; /* the first library is enough: all report the same count */
}

/* cuPointerGetAttributes of the driver that the process has loaded; NULL without one. */
static __typeof__(&cuPointerGetAttributes) find_function(void)
{
    __typeof__(&cuPointerGetAttributes) function = __atomic_load_n(&known_function, __ATOMIC_ACQUIRE);
    unsigned long long count = 0;
    if (function != NULL) {
        return function;
    }
    (void)dl_iterate_phdr(read_count, &count);
    if (count == __atomic_load_n(&searched, __ATOMIC_RELAXED)) {
        return NULL;
    }
    /* The handle stays open: the driver cannot be unloaded, because it has threads. */
    void *driver = dlopen(DRIVER, RTLD_NOW | RTLD_NOLOAD);
    void *symbol = driver != NULL ? dlsym(driver, "cuPointerGetAttributes") : NULL;
    if (symbol == NULL) {
        __atomic_store_n(&searched, count, __ATOMIC_RELAXED);
        return NULL;
    }
    memcpy(&function, &symbol, sizeof function);
    __atomic_store_n(&known_function, function, __ATOMIC_RELEASE);
    return function;
}

bool weiri_cuda_locate(const void *pointer, weir_device_place *out)
{
    /* The driver writes 4 bytes of each. */
    uint64_t type = 0;
    uint64_t ordinal = 0;
    CUpointer_attribute attributes[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL };
    void *values[] = { &type, &ordinal };
    const __typeof__(&cuPointerGetAttributes) function = find_function();
    /* An error says that the driver is not initialised or does not know the pointer. */
    if (function == NULL || function(2, attributes, values, (CUdeviceptr)(uintptr_t)pointer) != CUDA_SUCCESS) {
        return false;
    }
    if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE) {
        return false;
    }
    (void)snprintf(out->device, sizeof out->device, "gpu:%u", (unsigned)ordinal);
    out->kind = type == CU_MEMORYTYPE_HOST ? WEIR_MEMORY_HOST : WEIR_MEMORY_DEVICE;
    return true;
}
