/* cpu.c - the CPU as a device: its ops table, names and limits.
 *
 * All numbers name the same CPU. A device has a pool of worker threads (cpu/launch.c), on which its streams
 * (cpu/stream.c) run launches. Memory for other processes is memfd (cpu/memory.c). */
#include "src/device/cpu/cpu.h"

#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>

#include "src/host/base/error.h"
#include "src/host/base/process.h"

#define NUMBERS 1024u  /* cpu:0 to cpu:1023 */
#define CUT_THREADS 8u /* threads of a shape that was too large: a grid of blocks on any machine */
#define CUT_BLOCKS 2u

bool weiri_cpu_is_foreign(const weir_device *device) { return device->pid != (int)weiri_process_id(); }

static uint32_t count(char *reason)
{
    reason[0] = '\0';
    return 1;
}

/* The first line of `path` that starts with `key`, without the key, blanks and a colon; "" if there is no such line. */
static void read_value(const char *path, const char *key, char *value, size_t capacity)
{
    char line[512];
    value[0] = '\0';
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return;
    }
    while (value[0] == '\0' && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0) {
            const char *text = line + strlen(key);
            text += strspn(text, " \t:");
            (void)snprintf(value, capacity, "%.*s", (int)strcspn(text, "\n"), text);
        }
    }
    (void)fclose(file);
}

/* The UUID is the same for all CPU devices of a host and of its containers. It changes with a reboot. */
static void fill_uuid(uint8_t uuid[16])
{
    char boot[64];
    uint32_t digits = 0;
    read_value("/proc/sys/kernel/random/boot_id", "", boot, sizeof(boot));
    memset(uuid, 0, 16);
    for (const char *c = boot; *c != '\0' && digits < 32; c++) {
        const char *found = strchr("0123456789abcdef", *c);
        if (found != NULL) {
            uint32_t nibble = (uint32_t)(found - "0123456789abcdef");
            uuid[digits / 2] |= (uint8_t)(nibble << (digits % 2 == 0 ? 4 : 0));
            digits++;
        }
    }
    uuid[0] ^= (uint8_t)'c';
    uuid[1] ^= (uint8_t)'p';
    uuid[2] ^= (uint8_t)'u';
}

static weir_status open_device(weir_device *device)
{
    weiri_cpu_pool *pool = NULL;
    struct sysinfo system;
    weir_status status = weiri_cpu_pool_create(&pool);
    if (status != WEIR_OK) {
        return status;
    }
    device->native = pool;
    weir_device_info *info = &device->info;
    read_value("/proc/cpuinfo", "model name", info->model, sizeof(info->model));
    if (info->model[0] == '\0') {
        (void)snprintf(info->model, sizeof(info->model), "CPU");
    }
    fill_uuid(info->uuid);
    info->memory_bytes = sysinfo(&system) == 0 ? (uint64_t)system.totalram * system.mem_unit : 0;
    info->block_threads = device->cpu_threads;
    info->resident_threads = device->cpu_threads;
    info->multiprocessors = 1;
    info->driver_version = 0;
    info->atomic_to_host = true;
    return WEIR_OK;
}

static void close_device(weir_device *device)
{
    weiri_cpu_pool *pool = (weiri_cpu_pool *)device->native;
    if (pool->default_stream != NULL) {
        weiri_cpu_stream_destroy(device, pool->default_stream);
    }
    weiri_cpu_pool_destroy(pool, weiri_cpu_is_foreign(device));
    device->native = NULL;
}

/* A thread writes a line in order, its flag last. */
static bool keeps_lines(weir_device *device, const uint8_t uuid[16])
{
    (void)device;
    (void)uuid;
    return true;
}

static weir_status reach(weir_device *device, const char *kind, const uint8_t uuid[16])
{
    (void)uuid;
    if (strcmp(kind, device->info.kind) != 0) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "%s: device of kind '%.8s': a CPU device cannot map GPU memory",
                          device->info.label, kind);
    }
    return WEIR_OK;
}

static weir_status copy(weir_device *device, void *dst, const void *src, uint64_t bytes)
{
    (void)device;
    if (bytes == sizeof(uint64_t) && ((uintptr_t)dst | (uintptr_t)src) % sizeof(uint64_t) == 0) {
        /* Kernels may poll the word meanwhile. */
        __atomic_store_n((uint64_t *)dst, __atomic_load_n((const uint64_t *)src, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
    } else {
        memmove(dst, src, bytes);
    }
    return WEIR_OK;
}

static weir_status fill(weir_device *device, void *dst, uint8_t value, uint64_t bytes)
{
    (void)device;
    memset(dst, value, bytes);
    return WEIR_OK;
}

static weir_status kernel_load(weir_device *device, const weir_kernel *kernel)
{
    if (kernel->cpu == NULL) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "%s: kernel %s: not compiled for the CPU", device->info.label,
                          kernel->name);
    }
    return WEIR_OK;
}

static weir_status kernel_fit(weir_device *device, const weir_kernel *kernel, uint32_t threads, uint32_t *blocks)
{
    weir_status status = kernel_load(device, kernel);
    if (status == WEIR_OK) {
        *blocks = weiri_cpu_resident_blocks(device, threads);
    }
    return status;
}

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* Keeps a shape that can be launched. A shape beyond the limit was meant for a GPU. It is cut to a few threads, because
 * the limit is far above the cores of most machines: two blocks, or more if each has few threads. */
static weir_shape fit_shape(const weir_device *device, weir_shape wanted)
{
    if ((uint64_t)wanted.blocks * wanted.threads <= device->info.resident_threads) {
        return wanted;
    }
    uint32_t limit = least(CUT_THREADS, device->info.resident_threads);
    weir_shape shape;
    shape.blocks = least(least(wanted.blocks, CUT_BLOCKS), limit);
    shape.threads = least(wanted.threads, limit / shape.blocks);
    shape.blocks = least(wanted.blocks, limit / shape.threads);
    return shape;
}

const weiri_device_ops weiri_cpu_ops = {
    .kind = "cpu",
    .label = "CPU",
    .numbers = NUMBERS,
    .count = count,
    .open = open_device,
    .close = close_device,
    .allocate = weiri_cpu_allocate,
    .wrap = weiri_cpu_wrap,
    .import = weiri_cpu_import,
    .release = weiri_cpu_release,
    .reach = reach,
    .keeps_lines = keeps_lines,
    .locate = weiri_cpu_locate,
    .copy = copy,
    .fill = fill,
    .copy_async = weiri_cpu_copy_async,
    .store_async = weiri_cpu_store_async,
    .stream_create = weiri_cpu_stream_create,
    .stream_destroy = weiri_cpu_stream_destroy,
    .stream_wait = weiri_cpu_stream_wait,
    .event_create = weiri_cpu_event_create,
    .event_destroy = weiri_cpu_event_destroy,
    .event_record = weiri_cpu_event_record,
    .stream_wait_event = weiri_cpu_stream_wait_event,
    .stream_recording = weiri_cpu_stream_recording,
    .event_elapsed = weiri_cpu_event_elapsed,
    .graph_begin = weiri_cpu_graph_begin,
    .graph_end = weiri_cpu_graph_end,
    .graph_launch = weiri_cpu_graph_launch,
    .graph_destroy = weiri_cpu_graph_destroy,
    .kernel_load = kernel_load,
    .kernel_fit = kernel_fit,
    .launch = weiri_cpu_launch,
    .fit_shape = fit_shape,
};
