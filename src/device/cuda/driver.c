/* driver.c - loads the CUDA driver by dlopen, once in a process, and converts its errors to weir's.
 *
 * A driver that cannot be used is not an error: the process then has no GPUs, and the reason is kept. */
#include "src/device/cuda/driver.h"

#include <dlfcn.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "src/host/base/clock.h"
#include "src/host/base/error.h"
#include "src/host/base/process.h"
#include "src/host/base/turn.h"

#define REASON_BYTES 256
#define POLL_YIELDS 200
#define POLL_SLEEP_MAX_NS 50000

weiri_cuda_table weiri_cuda;

typedef struct driver_row {
    const char *symbol;
    size_t offset;
    bool required;
} driver_row;

static const driver_row rows[] = {
#define DRIVER_ROW(function, needed) { WEIRI_CUDA_SYMBOL(function), offsetof(weiri_cuda_table, function), needed },
    WEIRI_CUDA_FUNCTIONS(DRIVER_ROW)
#undef DRIVER_ROW
};

static struct {
    pthread_mutex_t lock;
    bool tried;
    pid_t process; /* process that loaded the driver */
    uint32_t devices;
    char reason[REASON_BYTES];
} driver = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void *find_symbol(void *library, const char *symbol)
{
    void *address = dlsym(library, symbol);
    if (address == NULL && strcmp(symbol, "cuEventElapsedTime_v2") == 0) {
        /* Drivers before 12.8 have only the first version; its parameters are the same. */
        address = dlsym(library, "cuEventElapsedTime");
    }
    return address;
}

/* Fills the function table; false with driver.reason set if the library lacks a function. */
static bool resolve(void *library, const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        void *address = find_symbol(library, rows[i].symbol);
        if (address == NULL && rows[i].required) {
            snprintf(driver.reason, sizeof driver.reason, "%s: has no %s; the driver is too old", name, rows[i].symbol);
            return false;
        }
        memcpy((char *)&weiri_cuda + rows[i].offset, &address, sizeof address);
    }
    return true;
}

/* Initialises the loaded driver and counts its devices, into `driver`. */
static void initialise(const char *name)
{
    char text[REASON_BYTES / 2];
    CUresult result = weiri_cuda.cuInit(0);
    if (result == CUDA_ERROR_STUB_LIBRARY) {
        snprintf(driver.reason, sizeof driver.reason, "%s: cuInit: error %d: the toolkit's stub library, not a driver",
                 name, (int)result);
        return;
    }
    if (result != CUDA_SUCCESS) {
        weiri_cuda_describe(result, text, sizeof text);
        snprintf(driver.reason, sizeof driver.reason, "%s: cuInit: %s", name, text);
        return;
    }
    int count = 0;
    result = weiri_cuda.cuDeviceGetCount(&count);
    if (result != CUDA_SUCCESS) {
        weiri_cuda_describe(result, text, sizeof text);
        snprintf(driver.reason, sizeof driver.reason, "%s: cuDeviceGetCount: %s", name, text);
        return;
    }
    if (count <= 0) {
        snprintf(driver.reason, sizeof driver.reason, "%s: the driver sees no GPU (is CUDA_VISIBLE_DEVICES empty?)",
                 name);
        return;
    }
    driver.devices = (uint32_t)count;
}

static void load_once(const char *name)
{
    driver.tried = true;
    driver.process = weiri_process_id();
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *text = dlerror();
        snprintf(driver.reason, sizeof driver.reason, "%s", text == NULL ? name : text);
        return;
    }
    if (!resolve(library, name)) {
        memset(&weiri_cuda, 0, sizeof weiri_cuda);
        dlclose(library);
        return;
    }
    /* The library stays loaded from here on, because the driver has started threads. */
    initialise(name);
}

uint32_t weiri_cuda_load(char *reason)
{
    uint32_t devices = 0;
    pthread_mutex_lock(&driver.lock);
    if (!driver.tried) {
        weiri_env env;
        if (weiri_env_read(&env) != WEIR_OK) {
            /* Not cached: the next call may find a better environment. */
            snprintf(reason, REASON_BYTES, "%s", weir_last_error());
            goto unlock;
        }
        load_once(env.cuda_library);
    }
    if (driver.devices > 0 && driver.process != weiri_process_id()) {
        snprintf(reason, REASON_BYTES,
                 "the CUDA driver was started by the parent of this fork and does not work in the child");
        goto unlock;
    }
    devices = driver.devices;
    snprintf(reason, REASON_BYTES, "%s", driver.reason);
unlock:
    pthread_mutex_unlock(&driver.lock);
    return devices;
}

void weiri_cuda_describe(CUresult result, char *text, size_t size)
{
    const char *name = NULL;
    const char *meaning = NULL;
    if (weiri_cuda.cuGetErrorName(result, &name) != CUDA_SUCCESS || name == NULL ||
        weiri_cuda.cuGetErrorString(result, &meaning) != CUDA_SUCCESS || meaning == NULL) {
        snprintf(text, size, "CUDA error %d", (int)result);
        return;
    }
    snprintf(text, size, "%s: %s", name, meaning);
}

weir_status weiri_cuda_check(const weir_device *device, const char *call, CUresult result)
{
    if (result == CUDA_SUCCESS) {
        return WEIR_OK;
    }
    char text[256];
    weiri_cuda_describe(result, text, sizeof text);
    weir_status status = result == CUDA_ERROR_OUT_OF_MEMORY ? WEIR_ERR_NOMEM : WEIR_ERR_DEVICE;
    return weiri_fail(status, "gpu:%u: %s: %s", device->info.index, call, text);
}

static _Thread_local CUcontext stays_in; /* between thread_enter and thread_leave */

#define STAYS ((CUstreamCaptureMode)-1) /* not a mode: the thread was in the context before it entered */

/* A callback of the user, which runs on weir's thread, may have made another context current. */
static bool is_inside(const weir_device *device)
{
    CUcontext current = NULL;
    return stays_in != NULL && stays_in == weiri_cuda_native(device)->context &&
           weiri_cuda.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == stays_in;
}

weir_status weiri_cuda_enter(const weir_device *device, CUstreamCaptureMode *mode)
{
    if (is_inside(device)) {
        *mode = STAYS;
        return WEIR_OK;
    }
    *mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult result = weiri_cuda.cuThreadExchangeStreamCaptureMode(mode);
    if (result != CUDA_SUCCESS) {
        return weiri_cuda_check(device, "cuThreadExchangeStreamCaptureMode", result);
    }
    result = weiri_cuda.cuCtxPushCurrent(weiri_cuda_native(device)->context);
    if (result != CUDA_SUCCESS) {
        (void)weiri_cuda.cuThreadExchangeStreamCaptureMode(mode);
        return weiri_cuda_check(device, "cuCtxPushCurrent", result);
    }
    return WEIR_OK;
}

void weiri_cuda_leave(CUstreamCaptureMode mode)
{
    CUcontext popped;
    if (mode != STAYS) {
        (void)weiri_cuda.cuCtxPopCurrent(&popped);
        (void)weiri_cuda.cuThreadExchangeStreamCaptureMode(&mode);
    }
}

void weiri_cuda_thread_enter(weir_device *device)
{
    CUstreamCaptureMode mode;
    if (weiri_cuda_enter(device, &mode) == WEIR_OK) {
        stays_in = weiri_cuda_native(device)->context;
    }
}

void weiri_cuda_thread_leave(weir_device *device)
{
    if (stays_in == weiri_cuda_native(device)->context) {
        stays_in = NULL;
        weiri_cuda_leave(CU_STREAM_CAPTURE_MODE_GLOBAL);
    }
}

/* When two threads put work on idle streams of a context at the same moment, the driver can give both streams one
 * hardware queue. A kernel that waits for a kernel behind it in that queue waits until its deadline. Seen with driver
 * 580.159 on H200: with 8 threads that launch on new streams, in most rounds. In turn it did not happen in 50,000
 * rounds, whatever CUDA_DEVICE_MAX_CONNECTIONS was. A launch blocks while the stream has 1,024 kernels queued, perhaps
 * behind a kernel that waits for another thread's, so a thread does not wait long for its turn. */
static weiri_turn turns[WEIRI_CUDA_GPUS_MAX];

bool weiri_cuda_submit_begin(const weir_device *device)
{
    return weiri_turn_begin(&turns[weiri_cuda_native(device)->ordinal]);
}

void weiri_cuda_submit_end(const weir_device *device, bool taken)
{
    weiri_turn_end(&turns[weiri_cuda_native(device)->ordinal], taken);
}

weir_status weiri_cuda_poll(const weir_device *device, const char *operation, CUstream stream, uint64_t deadline_ns)
{
    long sleep_ns = 1000;
    for (uint32_t tries = 0;; tries++) {
        CUresult result = weiri_cuda.cuStreamQuery(stream);
        if (result != CUDA_ERROR_NOT_READY) {
            return weiri_cuda_check(device, "cuStreamQuery", result);
        }
        if (weiri_now_ns() >= deadline_ns) {
            return weiri_fail(WEIR_ERR_TIMEOUT, "gpu:%u: %s: the work on the stream was not done by the deadline",
                              device->info.index, operation);
        }
        if (tries < POLL_YIELDS) {
            sched_yield();
        } else {
            const struct timespec pause = { .tv_sec = 0, .tv_nsec = sleep_ns };
            nanosleep(&pause, NULL);
            sleep_ns = sleep_ns * 2 < POLL_SLEEP_MAX_NS ? sleep_ns * 2 : POLL_SLEEP_MAX_NS;
        }
    }
}
