/* device.c - the registry of device backends and the public calls of weir/device.h and weir/stream.h.
 *
 * Each call checks its arguments, asks the fault hook, and calls the backend's op. Streams, events, graphs and blocks
 * keep a reference on their device here; backends do not count references. */
#include "src/device/device.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/clock.h"
#include "src/host/base/error.h"
#include "src/host/base/fault.h"
#include "src/host/base/log.h"
#include "src/host/base/process.h"

#define CPU_THREADS_MAX 1024u

/* Adds to a stream's default timeout: a wait in a kernel ends first, because its error says more. */
#define KERNEL_GRACE_MS 2000u

static const weiri_device_ops *const registry[] = { &weiri_cuda_ops, &weiri_cpu_ops };

#define REGISTRY_SIZE (sizeof(registry) / sizeof(registry[0]))

static weiri_fault fault;

uint64_t weiri_device_fail_nth(uint64_t n) { return weiri_fault_set(&fault, n); }

weir_status weiri_device_fault(const char *operation)
{
    return weiri_fault_due(&fault) ? weiri_fail(WEIR_ERR_DEVICE, "%s: fault of a test", operation) : WEIR_OK;
}

/* ---- allocations of this process -------------------------------------------------------------------------------- */

static pthread_mutex_t blocks_mutex = PTHREAD_MUTEX_INITIALIZER;
static weiri_block *allocations;
static weiri_block *imports;

static void list_block(weiri_block *block)
{
    static uint64_t listed;
    (void)pthread_mutex_lock(&blocks_mutex);
    block->uses = 1;
    block->number = ++listed;
    block->next = allocations;
    allocations = block;
    (void)pthread_mutex_unlock(&blocks_mutex);
}

static void list_import(weiri_block *block)
{
    (void)pthread_mutex_lock(&blocks_mutex);
    block->next = imports;
    imports = block;
    (void)pthread_mutex_unlock(&blocks_mutex);
}

/* Whether all of the range is memory of one peer that is mapped for this device. */
static bool is_imported(const weir_device *device, const void *pointer, uint64_t bytes)
{
    bool found = false;
    (void)pthread_mutex_lock(&blocks_mutex);
    for (const weiri_block *block = imports; block != NULL && !found; block = block->next) {
        const uint64_t offset = (uintptr_t)pointer - (uintptr_t)block->pointer;
        found = block->device->ops == device->ops && block->device->info.index == device->info.index &&
                offset < block->size && bytes <= block->size - offset;
    }
    (void)pthread_mutex_unlock(&blocks_mutex);
    return found;
}

bool weiri_device_identify(const weir_device *device, const void *pointer, weiri_allocation *out)
{
    bool found = false;
    (void)pthread_mutex_lock(&blocks_mutex);
    for (const weiri_block *block = allocations; block != NULL && !found; block = block->next) {
        const uint64_t offset = (uintptr_t)pointer - (uintptr_t)block->pointer;
        found = block->device->ops == device->ops && block->device->info.index == device->info.index &&
                offset < block->size;
        if (found) {
            out->id = block->number << 1;
            out->base = (char *)block->pointer;
            out->bytes = block->size;
        }
    }
    (void)pthread_mutex_unlock(&blocks_mutex);
    if (!found && device->ops->identify != NULL && device->ops->identify(device, pointer, out)) {
        out->id = out->id << 1 | 1;
        found = true;
    }
    return found;
}

/* The import of an allocation of this process uses the allocation: kernels of another rank may access it after its
 * owner has released it. */
static void use_whole(weiri_block *import, uint64_t base)
{
    (void)pthread_mutex_lock(&blocks_mutex);
    weiri_block *whole = allocations;
    while (whole != NULL && whole->export_.base != base) {
        whole = whole->next;
    }
    if (whole != NULL) {
        whole->uses++;
        weiri_device_get(whole->device);
    }
    import->whole = whole;
    (void)pthread_mutex_unlock(&blocks_mutex);
}

/* Ends one use of the block; true if it was the last. Only allocations count their uses. */
static bool end_use(weiri_block *block)
{
    (void)pthread_mutex_lock(&blocks_mutex);
    weiri_block **link = block->uses != 0 ? &allocations : &imports; /* registered memory is in neither */
    const bool last = block->uses == 0 || --block->uses == 0;
    while (last && *link != NULL && *link != block) {
        link = &(*link)->next;
    }
    if (last && *link != NULL) {
        *link = block->next;
    }
    (void)pthread_mutex_unlock(&blocks_mutex);
    return last;
}

/* Releases the block, or its use of an allocation, without the reference on its device. */
static void drop_block(weiri_block *block)
{
    weiri_block *whole = block->whole;
    if (end_use(block)) {
        block->device->ops->release(block);
    }
    if (whole != NULL) {
        weir_device *device = whole->device;
        drop_block(whole);
        weiri_device_put(device);
    }
}

/* ---- open and close ----------------------------------------------------------------------------------- */

/* The ops of the device kind in the first `length` characters of `text`; NULL for an unknown kind. */
static const weiri_device_ops *find_ops(const char *text, size_t length)
{
    for (size_t i = 0; i < REGISTRY_SIZE; i++) {
        if (strlen(registry[i]->kind) == length && memcmp(registry[i]->kind, text, length) == 0) {
            return registry[i];
        }
    }
    return NULL;
}

/* Accepts decimal digits without leading zeros, of a value that fits 32 bits. */
static bool parse_number(const char *text, uint32_t *number)
{
    uint64_t value = 0;
    if (text[0] == '\0' || (text[0] == '0' && text[1] != '\0')) {
        return false;
    }
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9') {
            return false;
        }
        value = value * 10 + (uint64_t)(*text - '0');
        if (value > UINT32_MAX) {
            return false;
        }
    }
    *number = (uint32_t)value;
    return true;
}

static weir_status parse_name(const char *name, const weiri_device_ops **ops, uint32_t *index)
{
    if (name == NULL) {
        return weiri_fail_null("weir_device_open", "name");
    }
    const char *colon = strchr(name, ':');
    const weiri_device_ops *found = colon != NULL ? find_ops(name, (size_t)(colon - name)) : NULL;
    if (found == NULL || !parse_number(colon + 1, index)) {
        return weiri_fail(WEIR_ERR_INVALID, "weir_device_open: '%.64s' is not a device name such as gpu:0 or cpu:0",
                          name);
    }
    *ops = found;
    return WEIR_OK;
}

/* Refuses an index beyond the devices. */
static weir_status check_index(const weiri_device_ops *ops, uint32_t index)
{
    char reason[256] = "";
    uint32_t count = ops->count(reason);
    if (count == 0) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "weir_device_open: %s:%u: there is no %s here: %s", ops->kind, index,
                          ops->label, reason[0] != '\0' ? reason : "none was found");
    }
    uint32_t limit = ops->numbers > count ? ops->numbers : count;
    if (index >= limit) {
        return weiri_fail(WEIR_ERR_INVALID, "weir_device_open: %s:%u: the numbers here are 0 to %u", ops->kind, index,
                          limit - 1);
    }
    return WEIR_OK;
}

/* Applies opts and the environment. */
static weir_status configure(weir_device *device, const weir_device_opts *opts)
{
    weir_device_opts given;
    weiri_env env;
    if (!WEIRI_OPTS_OK(opts)) {
        return weiri_fail(WEIR_ERR_INVALID, "weir_device_open: %s", WEIRI_OPTS_ERROR(opts));
    }
    weiri_opts_copy(&given, sizeof(given), opts);
    weir_status status = weiri_env_read(&env);
    if (status != WEIR_OK) {
        return status;
    }
    if (given.cpu_threads > CPU_THREADS_MAX) {
        return weiri_fail(WEIR_ERR_LIMIT, "weir_device_open: opts.cpu_threads is %u, the limit is %u",
                          given.cpu_threads, CPU_THREADS_MAX);
    }
    bool use_opts = given.cpu_threads != 0 && !env.cpu_threads_set;
    device->cpu_threads = use_opts ? given.cpu_threads : (uint32_t)env.cpu_threads;
    device->timeout_ms = weiri_env_timeout(&env, 0);
    device->kernel_timeout_ms = weiri_env_kernel_timeout(&env, 0);
    return WEIR_OK;
}

weir_status weir_device_count(const char *kind, uint32_t *count)
{
    char reason[256];
    const weiri_device_ops *ops = kind != NULL ? find_ops(kind, strlen(kind)) : NULL;
    if (kind == NULL || count == NULL) {
        return weiri_fail_null(__func__, kind == NULL ? "kind" : "count");
    }
    if (ops == NULL) {
        return weiri_fail(WEIR_ERR_INVALID, "weir_device_count: kind '%.64s' is neither gpu nor cpu", kind);
    }
    *count = ops->count(reason);
    return WEIR_OK;
}

weir_status weir_device_open(const char *name, const weir_device_opts *opts, weir_device **out)
{
    const weiri_device_ops *ops = NULL;
    uint32_t index = 0;
    if (out == NULL) {
        return weiri_fail_null(__func__, "out");
    }
    weir_status status = parse_name(name, &ops, &index);
    if (status != WEIR_OK) {
        return status;
    }
    weir_device *device = (weir_device *)weiri_alloc(1, sizeof(*device));
    if (device == NULL) {
        return weiri_fail_nomem(__func__);
    }
    weiri_refcount_init(&device->refs);
    device->ops = ops;
    device->pid = (int)weiri_process_id();
    device->info.index = index;
    (void)snprintf(device->info.kind, sizeof(device->info.kind), "%s", ops->kind);
    (void)snprintf(device->info.label, sizeof(device->info.label), "%s %u", ops->label, index);
    status = configure(device, opts);
    if (status == WEIR_OK) {
        status = check_index(ops, index);
    }
    if (status == WEIR_OK) {
        status = weiri_device_fault(__func__);
    }
    if (status == WEIR_OK) {
        status = weiri_fail_in(__func__, ops->open(device));
    }
    if (status != WEIR_OK) {
        weiri_free(device);
        return status;
    }
    *out = device;
    return WEIR_OK;
}

void weir_device_close(weir_device *device)
{
    if (device != NULL) {
        weiri_device_put(device);
    }
}

void weiri_device_get(weir_device *device) { weiri_refcount_get(&device->refs); }

void weiri_device_put(weir_device *device)
{
    if (weiri_refcount_put(&device->refs)) {
        while (device->kept != NULL) {
            weiri_block *block = device->kept;
            device->kept = block->next_kept;
            drop_block(block);
        }
        device->ops->close(device);
        weiri_free(device);
    }
}

void weir_device_get_info(const weir_device *device, weir_device_info *info, size_t bytes)
{
    if (info == NULL) {
        return;
    }
    memset(info, 0, bytes);
    if (device != NULL) {
        memcpy(info, &device->info, bytes < sizeof device->info ? bytes : sizeof device->info);
    }
}

weir_shape weir_device_fit_shape(const weir_device *device, weir_shape wanted)
{
    wanted.blocks = wanted.blocks != 0 ? wanted.blocks : 1;
    wanted.threads = wanted.threads != 0 ? wanted.threads : 1;
    return device != NULL ? device->ops->fit_shape(device, wanted) : wanted;
}

/* ---- checks of all calls --------------------------------------------------------------------------------- */

/* WEIR_OK if `call` may run on the device. Asks the fault hook last. `argument`, whose name is `name`, must not be NULL
 * either. */
static weir_status begin(const weir_device *device, const char *call, const char *name, const void *argument)
{
    if (device == NULL || argument == NULL) {
        return weiri_fail_null(call, device == NULL ? "device" : name);
    }
    if (device->pid != (int)weiri_process_id()) {
        return weiri_fail(WEIR_ERR_FORKED, "%s: %s belongs to process %d", call, device->info.label, device->pid);
    }
    return weiri_device_fault(call);
}

weir_status weir_device_reaches(weir_device *device, const weir_device *peer)
{
    weir_status status = begin(device, __func__, "peer", peer);
    return status != WEIR_OK ? status
                             : weiri_fail_in(__func__, device->ops->reach(device, peer->info.kind, peer->info.uuid));
}

weir_status weir_device_locate(const void *pointer, weir_device_place *out)
{
    if (out == NULL) {
        return weiri_fail_null(__func__, "out");
    }
    memset(out, 0, sizeof *out);
    out->kind = WEIR_MEMORY_HOST;
    for (size_t i = 0; i < REGISTRY_SIZE; i++) {
        if (registry[i]->locate != NULL && registry[i]->locate(pointer, out)) {
            break;
        }
    }
    return WEIR_OK;
}

/* ---- copies --------------------------------------------------------------------------------------------- */

weir_status weir_device_copy(weir_device *device, void *dst, const void *src, uint64_t bytes)
{
    const void *argument = bytes == 0 ? (const void *)device : dst == NULL ? dst : src;
    weir_status status = begin(device, __func__, dst == NULL ? "dst" : "src", argument);
    return status != WEIR_OK || bytes == 0 ? status
                                           : weiri_fail_in(__func__, device->ops->copy(device, dst, src, bytes));
}

weir_status weir_device_fill(weir_device *device, void *dst, uint8_t value, uint64_t bytes)
{
    weir_status status = begin(device, __func__, "dst", bytes == 0 ? (const void *)device : dst);
    return status != WEIR_OK || bytes == 0 ? status
                                           : weiri_fail_in(__func__, device->ops->fill(device, dst, value, bytes));
}

/* ---- streams -------------------------------------------------------------------------------------------- */

/* Gives a new child of the device a reference on it. */
static weir_status adopt(weir_device *device, weir_status status)
{
    if (status == WEIR_OK) {
        weiri_device_get(device);
    }
    return status;
}

typedef struct weiri_made_stream {
    void *stream;
    struct weiri_made_stream *next;
} weiri_made_stream;

/* Guards the lists of all devices. */
static pthread_mutex_t made_mutex = PTHREAD_MUTEX_INITIALIZER;

/* Creates a stream and lists it. `limits` is NULL for an ordinary stream. */
static weir_status make_stream(weir_device *device, const weir_stream_limits *limits, void **out)
{
    weiri_made_stream *made = (weiri_made_stream *)weiri_alloc(1, sizeof *made);
    if (made == NULL) {
        return weiri_fail_nomem("stream");
    }
    const bool ordinary = limits == NULL || device->ops->stream_create_limited == NULL;
    weir_status status = ordinary ? device->ops->stream_create(device, &made->stream)
                                  : device->ops->stream_create_limited(device, limits, &made->stream);
    if (status != WEIR_OK) {
        weiri_free(made);
        return status;
    }
    *out = made->stream;
    (void)pthread_mutex_lock(&made_mutex);
    made->next = device->made;
    device->made = made;
    (void)pthread_mutex_unlock(&made_mutex);
    return WEIR_OK;
}

/* Where the list of the device points to the stream, or its end. With the lock. */
static weiri_made_stream **find_made(weiri_made_stream **link, const void *stream)
{
    while (*link != NULL && (*link)->stream != stream) {
        link = &(*link)->next;
    }
    return link;
}

bool weiri_stream_is_ours(const weir_device *device, const void *stream)
{
    (void)pthread_mutex_lock(&made_mutex);
    weiri_made_stream *first = device->made;
    const bool found = *find_made(&first, stream) != NULL;
    (void)pthread_mutex_unlock(&made_mutex);
    return found;
}

static void forget_made(weir_device *device, const void *stream)
{
    (void)pthread_mutex_lock(&made_mutex);
    weiri_made_stream **link = find_made(&device->made, stream);
    weiri_made_stream *found = *link;
    if (found != NULL) {
        *link = found->next;
    }
    (void)pthread_mutex_unlock(&made_mutex);
    weiri_free(found);
}

weir_status weir_stream_create(weir_device *device, void **out)
{
    weir_status status = begin(device, __func__, "out", out);
    return status != WEIR_OK ? status : adopt(device, weiri_fail_in(__func__, make_stream(device, NULL, out)));
}

weir_status weir_stream_create_limited(weir_device *device, const weir_stream_limits *limits, void **out)
{
    weir_stream_limits given;
    weir_status status =
        begin(device, __func__, limits == NULL ? "limits" : "out", limits == NULL ? NULL : (const void *)out);
    if (status != WEIR_OK) {
        return status;
    }
    if (!WEIRI_OPTS_OK(limits)) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: %s: limits: %s", __func__, device->info.label,
                          WEIRI_OPTS_ERROR(limits));
    }
    weiri_opts_copy(&given, sizeof given, limits);
    if (given.multiprocessors == 0) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: %s: limits.multiprocessors is 0", __func__, device->info.label);
    }
    return adopt(device, weiri_fail_in(__func__, make_stream(device, &given, out)));
}

uint32_t weir_stream_multiprocessors(weir_device *device, void *stream)
{
    if (device == NULL) {
        return 0;
    }
    const uint32_t limited =
        device->ops->stream_multiprocessors != NULL ? device->ops->stream_multiprocessors(device, stream) : 0;
    return limited != 0 ? limited : device->info.multiprocessors;
}

void weir_stream_destroy(weir_device *device, void *stream)
{
    if (device != NULL && !weiri_stream_is_default(stream)) {
        device->ops->stream_destroy(device, stream);
        if (device->pid == (int)weiri_process_id()) {
            forget_made(device, stream);
        }
        weiri_device_put(device);
    }
}

weir_status weir_stream_wait(weir_device *device, void *stream, uint32_t timeout_ms)
{
    weir_status status = begin(device, __func__, "device", device);
    if (status != WEIR_OK) {
        return status;
    }
    uint32_t longest = timeout_ms != 0 ? timeout_ms : device->kernel_timeout_ms + KERNEL_GRACE_MS;
    return weiri_fail_in(__func__, device->ops->stream_wait(device, stream, weiri_deadline(longest)));
}

/* ---- events --------------------------------------------------------------------------------------------- */

weir_status weir_event_create(weir_device *device, void **out)
{
    weir_status status = begin(device, __func__, "out", out);
    return status != WEIR_OK ? status : adopt(device, weiri_fail_in(__func__, device->ops->event_create(device, out)));
}

void weir_event_destroy(weir_device *device, void *event)
{
    if (device != NULL && event != NULL) {
        device->ops->event_destroy(device, event);
        weiri_device_put(device);
    }
}

weir_status weir_event_record(weir_device *device, void *event, void *stream)
{
    weir_status status = begin(device, __func__, "event", event);
    return status != WEIR_OK ? status
                             : weiri_fail_in(__func__, device->ops->event_record(device, event, stream, false));
}

weir_status weir_stream_wait_event(weir_device *device, void *stream, void *event)
{
    weir_status status = begin(device, __func__, "event", event);
    return status != WEIR_OK ? status
                             : weiri_fail_in(__func__, device->ops->stream_wait_event(device, stream, event, false));
}

weir_status weiri_event_record_outside(weir_device *device, void *event, void *stream)
{
    weir_status status = begin(device, "device: record an event", "event", event);
    return status != WEIR_OK ? status : device->ops->event_record(device, event, stream, true);
}

weir_status weiri_stream_wait_event_outside(weir_device *device, void *stream, void *event)
{
    weir_status status = begin(device, "device: wait for an event", "event", event);
    return status != WEIR_OK ? status : device->ops->stream_wait_event(device, stream, event, true);
}

weir_status weiri_stream_recording(weir_device *device, void *stream, uint64_t *id)
{
    weir_status status = begin(device, "device: ask a stream for its graph", "id", id);
    return status != WEIR_OK ? status : device->ops->stream_recording(device, stream, id);
}

weir_status weir_event_elapsed(weir_device *device, void *from, void *to, double *ms)
{
    const void *argument = from == NULL ? from : to == NULL ? to : (const void *)ms;
    weir_status status = begin(device, __func__, from == NULL ? "from" : to == NULL ? "to" : "ms", argument);
    return status != WEIR_OK ? status : weiri_fail_in(__func__, device->ops->event_elapsed(device, from, to, ms));
}

/* ---- graphs --------------------------------------------------------------------------------------------- */

weir_status weir_graph_begin(weir_device *device, void *stream)
{
    weir_status status = begin(device, __func__, "device", device);
    if (status == WEIR_OK && (uintptr_t)stream <= 1) {
        status = weiri_fail(WEIR_ERR_INVALID, "%s: %s: the legacy default stream cannot record a graph", __func__,
                            device->info.label);
    }
    return status != WEIR_OK ? status : weiri_fail_in(__func__, device->ops->graph_begin(device, stream));
}

weir_status weir_graph_end(weir_device *device, void *stream, void **out)
{
    weir_status status = begin(device, __func__, "out", out);
    return status != WEIR_OK ? status
                             : adopt(device, weiri_fail_in(__func__, device->ops->graph_end(device, stream, out)));
}

weir_status weir_graph_launch(weir_device *device, void *graph, void *stream)
{
    weir_status status = begin(device, __func__, "graph", graph);
    return status != WEIR_OK ? status : weiri_fail_in(__func__, device->ops->graph_launch(device, graph, stream));
}

void weir_graph_destroy(weir_device *device, void *graph)
{
    if (device != NULL && graph != NULL) {
        device->ops->graph_destroy(device, graph);
        weiri_device_put(device);
    }
}

/* ---- kernels -------------------------------------------------------------------------------------------- */

static const uint8_t noun_versions[WEIR_DEV_NOUNS_MAX] = {
#define NOUN(number, noun, version) [number] = version,
    WEIR_DEV_NOUNS(NOUN)
#undef NOUN
};

/* Whether the kernel has this libweir's version of each noun that it uses. Eight nouns at a time: each launch asks. */
static bool has_our_nouns(const weir_kernel *kernel)
{
    const uint64_t low = 0x7f7f7f7f7f7f7f7fu;
    uint64_t differs = 0;
    for (uint32_t i = 0; i < WEIR_DEV_NOUNS_MAX; i += sizeof(uint64_t)) {
        uint64_t theirs;
        uint64_t ours;
        memcpy(&theirs, kernel->nouns + i, sizeof theirs);
        memcpy(&ours, noun_versions + i, sizeof ours);
        const uint64_t used = (((theirs & low) + low) | theirs) & ~low; /* 0x80 in each byte that is not 0 */
        differs |= (theirs ^ ours) & ((used >> 7) * 0xff);
    }
    return differs == 0;
}

/* A kernel reads handles by the layouts of the headers that it was compiled with. The check is here and not in kernels,
 * where it would cost a load for each call. It goes by the headers that the kernel's file includes, because the host
 * does not know which handles are among its arguments. */
static weir_status check_nouns(const char *call, const weir_kernel *kernel)
{
    static const char *const names[WEIR_DEV_NOUNS_MAX] = {
#define NOUN(number, noun, version) [number] = #noun,
        WEIR_DEV_NOUNS(NOUN)
#undef NOUN
    };
    if (has_our_nouns(kernel)) {
        return WEIR_OK;
    }
    uint32_t i = 0;
    while (kernel->nouns[i] == 0 || kernel->nouns[i] == noun_versions[i]) {
        i++;
    }
    if (names[i] == NULL) {
        return weiri_fail(WEIR_ERR_VERSION, "%s: kernel %s: compiled with newer device headers, of nouns unknown here",
                          call, kernel->name);
    }
    return weiri_fail(WEIR_ERR_VERSION, "%s: kernel %s: compiled with version %u of weir_dev_%s, not %u", call,
                      kernel->name, kernel->nouns[i], names[i], noun_versions[i]);
}

static weir_status check_kernel(const char *call, const weir_kernel *kernel)
{
    if (kernel->version != WEIR_DEV_VERSION) {
        return weiri_fail(WEIR_ERR_VERSION, "%s: kernel: compiled with device headers of version %u, not %u", call,
                          kernel->version, WEIR_DEV_VERSION);
    }
    if (kernel->name == NULL || kernel->args_bytes > WEIR_KERNEL_ARGS_MAX) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: kernel: not defined by WEIR_KERNEL", call);
    }
    return check_nouns(call, kernel);
}

weir_status weir_kernel_load(weir_device *device, const weir_kernel *kernel)
{
    weir_status status = begin(device, __func__, "kernel", kernel);
    if (status == WEIR_OK) {
        status = check_kernel(__func__, kernel);
    }
    return status != WEIR_OK ? status : weiri_fail_in(__func__, device->ops->kernel_load(device, kernel));
}

weir_status weir_kernel_fit(weir_device *device, const weir_kernel *kernel, uint32_t threads, uint32_t *blocks)
{
    uint32_t fit = 0;
    weir_status status =
        begin(device, __func__, kernel != NULL ? "blocks" : "kernel", kernel != NULL ? (const void *)blocks : NULL);
    if (status == WEIR_OK) {
        status = check_kernel(__func__, kernel);
    }
    if (status == WEIR_OK && threads == 0) {
        status = weiri_fail(WEIR_ERR_INVALID, "%s: %s: kernel %s: 0 threads a block", __func__, device->info.label,
                            kernel->name);
    }
    if (status == WEIR_OK) {
        status = weiri_fail_in(__func__, device->ops->kernel_fit(device, kernel, threads, &fit));
    }
    if (status != WEIR_OK) {
        return status;
    }
    if (fit == 0) {
        return weiri_fail(WEIR_ERR_LIMIT, "%s: %s: kernel %s: %u threads a block, but at most %u are possible",
                          __func__, device->info.label, kernel->name, threads, device->info.block_threads);
    }
    *blocks = fit;
    return WEIR_OK;
}

weir_status weir_launch(weir_device *device, const weir_kernel *kernel, weir_shape shape, const void *args,
                        const weir_launch_opts *opts, void *stream)
{
    weir_launch_opts given;
    weir_status status = begin(device, __func__, kernel != NULL ? "args" : "kernel", kernel != NULL ? args : NULL);
    if (status == WEIR_OK) {
        status = check_kernel(__func__, kernel);
    }
    if (status != WEIR_OK) {
        return status;
    }
    if (shape.blocks == 0 || shape.threads == 0) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: %s: kernel %s: a shape of %u blocks of %u threads", __func__,
                          device->info.label, kernel->name, shape.blocks, shape.threads);
    }
    if (!WEIRI_OPTS_OK(opts)) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: %s: kernel %s: %s", __func__, device->info.label, kernel->name,
                          WEIRI_OPTS_ERROR(opts));
    }
    weiri_opts_copy(&given, sizeof(given), opts);
    return weiri_fail_in(__func__, device->ops->launch(device, kernel, shape, args, given.cooperative, stream));
}

/* ---- memory of programs ------------------------------------------------------------------------------------ */

typedef struct weiri_held {
    weiri_block *block;
    struct weiri_held *next;
} weiri_held;

/* Guards the lists of all devices. */
static pthread_mutex_t held_mutex = PTHREAD_MUTEX_INITIALIZER;

static weir_status hold(const char *call, weir_device *device, weir_memory_kind kind, uint64_t bytes, void **out)
{
    weir_status status = begin(device, call, "out", out);
    if (status != WEIR_OK) {
        return status;
    }
    weiri_held *held = (weiri_held *)weiri_alloc(1, sizeof *held);
    if (held == NULL) {
        return weiri_fail_nomem(call);
    }
    status = weiri_fail_in(call, weiri_device_allocate(device, kind, bytes, &held->block));
    if (status == WEIR_OK && kind == WEIR_MEMORY_HOST && held->block->host_pointer != held->block->pointer) {
        status = weiri_fail(WEIR_ERR_UNSUPPORTED, "%s: %s: the GPU needs another address of host memory than the CPU",
                            call, device->info.label);
        weiri_block_release(held->block);
    }
    if (status != WEIR_OK) {
        weiri_free(held);
        return status;
    }
    (void)pthread_mutex_lock(&held_mutex);
    held->next = device->held;
    device->held = held;
    (void)pthread_mutex_unlock(&held_mutex);
    *out = held->block->pointer;
    return WEIR_OK;
}

weir_status weir_device_allocate(weir_device *device, uint64_t bytes, void **out)
{
    return hold(__func__, device, WEIR_MEMORY_DEVICE, bytes, out);
}

weir_status weir_device_allocate_host(weir_device *device, uint64_t bytes, void **out)
{
    return hold(__func__, device, WEIR_MEMORY_HOST, bytes, out);
}

/* Takes the entry of the pointer off the list; NULL if there is none. */
static weiri_held *take_held(weir_device *device, const void *pointer)
{
    (void)pthread_mutex_lock(&held_mutex);
    weiri_held **link = &device->held;
    while (*link != NULL && (*link)->block->pointer != pointer) {
        link = &(*link)->next;
    }
    weiri_held *found = *link;
    if (found != NULL) {
        *link = found->next;
    }
    (void)pthread_mutex_unlock(&held_mutex);
    return found;
}

void weir_device_free(weir_device *device, void *pointer)
{
    if (device == NULL || pointer == NULL || device->pid != (int)weiri_process_id()) {
        return;
    }
    weiri_held *held = take_held(device, pointer);
    if (held == NULL) {
        weiri_log(WEIR_LOG_ERROR, "weir_device_free: %s: %p is not memory of weir_device_allocate", device->info.label,
                  pointer);
        return;
    }
    weiri_block_release(held->block);
    weiri_free(held);
}

/* ---- memory, for the nouns ------------------------------------------------------------------------------ */

weir_status weiri_device_allocate(weir_device *device, weir_memory_kind kind, uint64_t bytes, weiri_block **out)
{
    weir_memory_opts opts = WEIR_OPTS(weir_memory_opts);
    opts.kind = kind;
    return weiri_device_allocate_opts(device, &opts, bytes, out);
}

weir_status weiri_device_allocate_opts(weir_device *device, const weir_memory_opts *opts, uint64_t bytes,
                                       weiri_block **out)
{
    weir_status status = begin(device, "device: allocate", "out", out);
    if (status != WEIR_OK) {
        return status;
    }
    if (bytes == 0 || (opts->kind != WEIR_MEMORY_DEVICE && opts->kind != WEIR_MEMORY_HOST)) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: allocate: %s", device->info.label,
                          bytes == 0 ? "0 bytes" : "no such kind of memory");
    }
    status = adopt(device, device->ops->allocate(device, opts, bytes, out));
    if (status == WEIR_OK) {
        list_block(*out);
    }
    return status;
}

weir_status weiri_device_wrap(weir_device *device, void *pointer, uint64_t bytes, weiri_block **out)
{
    weir_status status = begin(device, "device: register memory", "pointer", pointer);
    if (status != WEIR_OK) {
        return status;
    }
    if (bytes == 0 || bytes > UINTPTR_MAX - (uintptr_t)pointer) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: register memory: %llu bytes at %p", device->info.label,
                          (unsigned long long)bytes, pointer);
    }
    return adopt(device, device->ops->wrap(device, pointer, bytes, out));
}

weir_status weiri_device_check_access(weir_device *device, void *pointer, uint64_t bytes)
{
    weiri_block *block = NULL;
    if (device != NULL && is_imported(device, pointer, bytes)) {
        return WEIR_OK;
    }
    const weir_status status = weiri_device_wrap(device, pointer, bytes, &block);
    weiri_block_release(block);
    return status;
}

weir_status weiri_device_map_registers(weir_device *device, void *registers, uint64_t bytes, weiri_block **out)
{
    weir_status status = begin(device, "device: map registers", "registers", registers);
    if (status != WEIR_OK) {
        return status;
    }
    if (device->ops->map_registers == NULL) {
        *out = NULL;
        return WEIR_OK;
    }
    return adopt(device, device->ops->map_registers(device, registers, bytes, out));
}

weir_status weiri_device_import(weir_device *device, const weiri_export *peer, bool same_process, int fd,
                                weiri_block **out)
{
    weir_status status = begin(device, "device: import memory", "peer", peer);
    if (status == WEIR_OK) {
        status = adopt(device, device->ops->import(device, peer, same_process, fd, out));
    }
    if (status == WEIR_OK) {
        list_import(*out);
    }
    if (status == WEIR_OK && same_process) {
        use_whole(*out, peer->base);
    }
    return status;
}

void weiri_block_release(weiri_block *block)
{
    if (block != NULL) {
        weir_device *device = block->device;
        drop_block(block);
        weiri_device_put(device);
    }
}

void weiri_block_keep(weiri_block *block)
{
    weir_device *device = block->device;
    (void)pthread_mutex_lock(&blocks_mutex);
    block->next_kept = device->kept;
    device->kept = block;
    (void)pthread_mutex_unlock(&blocks_mutex);
    weiri_device_put(device);
}
