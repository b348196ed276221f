/* call.c - pack, unpack and copy: checks of the arguments, and the launch.
 *
 * A call describes the move to a kernel by value: the handles of its layouts, the pointers and the part. So it
 * allocates nothing, and a graph can record it. */
#include <inttypes.h>
#include <string.h>

#include "src/device/device.h"
#include "src/device/kernels/layout.h"
#include "src/host/base/error.h"
#include "src/host/layout/layout.h"

#define BLOCK_THREADS 256u
#define CPU_UNITS 512u /* of 16 bytes: a second thread pays from there on */
/* Most threads of a grid: kernels count them in 32 bits. A thread moves several units if there are more. */
#define GRID_THREADS ((uint64_t)1 << 30)
#define COPY_WORD 4u /* the least word of the kernels of copies between layouts */

/* One side of a move: items of a layout around a pointer, or with layout NULL the packed bytes. */
typedef struct side {
    const weir_layout *layout;
    uint64_t count;
    void *memory;
    const char *name; /* of the pointer, for texts */
} side;

typedef struct move {
    const char *call;
    weir_device *device;
    side to;
    side from;
    const weir_layout_opts *opts;
    void *stream;
} move;

/* ---- checks ---------------------------------------------------------------------------------------------- */

static weir_status check_arguments(const move *m)
{
    const bool no_layout = m->to.layout == NULL && m->from.layout == NULL;
    if (m->device == NULL || no_layout) {
        return weiri_fail_null(m->call, m->device == NULL ? "device" : "layout");
    }
    return WEIRI_OPTS_OK(m->opts) ? WEIR_OK
                                  : weiri_fail(WEIR_ERR_INVALID, "%s: %s", m->call, WEIRI_OPTS_ERROR(m->opts));
}

/* The part that opts select of `size` packed bytes. */
static weir_status choose_part(const move *m, const weir_layout_opts *opts, uint64_t size, weiri_layout_args *args)
{
    if (opts->offset > size || opts->bytes > size - opts->offset) {
        return weiri_fail(WEIR_ERR_RANGE, "%s: %" PRIu64 " bytes from %" PRIu64 " on, of %" PRIu64 " packed bytes",
                          m->call, opts->bytes, opts->offset, size);
    }
    args->at = opts->offset;
    args->bytes = opts->bytes != 0 ? opts->bytes : size - opts->offset;
    return WEIR_OK;
}

/* Checks that the device can access the memory of the side. */
static weir_status check_access(const move *m, const side *s, const weir_dev_layout *handle, uint64_t bytes)
{
    const int64_t first = s->layout != NULL ? handle->first : 0;
    const uint64_t length = s->layout != NULL ? (uint64_t)(handle->last - handle->first) : bytes;
    const weir_status status = weiri_device_check_access(m->device, (char *)s->memory + first, length);
    return status == WEIR_OK ? WEIR_OK : weiri_fail(status, "%s: %s: %s", m->call, s->name, weir_last_error());
}

static weir_status check_memory(const move *m, const weir_layout_opts *opts, const weiri_layout_args *args)
{
    if (m->to.memory == NULL || m->from.memory == NULL) {
        return weiri_fail_null(m->call, m->to.memory == NULL ? m->to.name : m->from.name);
    }
    if (!opts->check_pointers) {
        return WEIR_OK;
    }
    const weir_status status = check_access(m, &m->to, &args->to, args->bytes);
    return status == WEIR_OK ? check_access(m, &m->from, &args->from, args->bytes) : status;
}

/* ---- launch ---------------------------------------------------------------------------------------------- */

static weir_layout_side side_of(const side *s, const weir_dev_layout *handle, uint64_t at)
{
    return s->layout != NULL ? weir_layout_wide(handle, s->memory) : weir_layout_packed(s->memory, at);
}

static bool is_list_of_runs(const weir_dev_layout *layout)
{
    return layout != NULL && layout->pieces != NULL && layout->nest_of == NULL;
}

/* Copies by words of 1 and 2 bytes have no kernels, and go by pieces. Only kernels of the library go by runs: a device
 * function with one more way would need more registers. */
static uint32_t choose_word(weir_layout_side to, weir_layout_side from, const weiri_layout_args *args)
{
    const uint32_t word = weir_layout_choose_word(to, from, args->at, args->bytes);
    if (to.layout != NULL && from.layout != NULL) {
        return word < COPY_WORD ? WEIR_LAYOUT_BY_PIECES : word;
    }
    return is_list_of_runs(to.layout) || is_list_of_runs(from.layout) ? WEIR_LAYOUT_BY_RUNS : word;
}

static const weir_kernel *choose_kernel(const move *m, uint32_t word)
{
    const uint32_t direction = m->from.layout == NULL ? WEIRI_LAYOUT_UNPACK
                               : m->to.layout == NULL ? WEIRI_LAYOUT_PACK
                                                      : WEIRI_LAYOUT_COPY;
    const uint32_t index = word == WEIR_LAYOUT_BY_PIECES ? WEIRI_LAYOUT_PIECES : (uint32_t)__builtin_ctz(word);
    return weiri_layout_kernels[direction * WEIRI_LAYOUT_WORDS + index];
}

/* A thread for each unit, or for two words: on a GPU that is faster than fewer threads with more of them each. */
static weir_shape choose_shape(const weir_device *device, uint64_t threads, uint32_t limit)
{
    if (!device->info.warps) {
        const weir_shape cpu = { 1, threads < CPU_UNITS ? 1 : 2 };
        return weir_device_fit_shape(device, cpu);
    }
    const uint32_t all = (uint32_t)(threads < GRID_THREADS ? threads : GRID_THREADS);
    weir_shape shape = { (all + BLOCK_THREADS - 1) / BLOCK_THREADS, BLOCK_THREADS };
    if (limit != 0 && limit < shape.blocks) {
        const uint32_t wide = (all + 1023) / 1024;
        shape.threads = 1024;
        shape.blocks = wide < limit ? wide : limit;
    }
    return shape;
}

/* A whole copy between strided layouts moves its bytes in the order of the destination. A part of the packed form is
 * known in packed order alone. */
static void refine(weiri_layout_args *args)
{
    weir_dev_layout *to = &args->to;
    weir_dev_layout *from = &args->from;
    if (args->bytes == to->nest.size && args->bytes == from->nest.size && to->pieces == NULL && from->pieces == NULL &&
        weiri_layout_refine(&to->nest, &from->nest)) {
        weir_layout_prepare(to);
        weir_layout_prepare(from);
    }
}

static weir_status run(const move *m)
{
    weir_layout_opts opts;
    weiri_layout_args args;
    weir_status status = check_arguments(m);
    if (status != WEIR_OK) {
        return status;
    }
    weiri_opts_copy(&opts, sizeof opts, m->opts);
    memset(&args, 0, sizeof args);
    args.dst = (char *)m->to.memory;
    args.src = (char *)m->from.memory;
    if (m->to.layout != NULL) {
        status = weiri_layout_handle(m->call, m->to.layout, m->device, m->to.count, &args.to);
    }
    if (status == WEIR_OK && m->from.layout != NULL) {
        status = weiri_layout_handle(m->call, m->from.layout, m->device, m->from.count, &args.from);
    }
    if (status != WEIR_OK) {
        return status;
    }
    const uint64_t size = m->to.layout != NULL ? args.to.nest.size : args.from.nest.size;
    if (m->from.layout != NULL && m->to.layout != NULL && args.from.nest.size != size) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: to has %" PRIu64 " packed bytes, but from has %" PRIu64, m->call, size,
                          args.from.nest.size);
    }
    status = choose_part(m, &opts, size, &args);
    if (status != WEIR_OK || args.bytes == 0) {
        return status;
    }
    status = check_memory(m, &opts, &args);
    if (status != WEIR_OK) {
        return status;
    }
    refine(&args);
    const weir_layout_side to = side_of(&m->to, &args.to, args.at);
    const weir_layout_side from = side_of(&m->from, &args.from, args.at);
    const uint32_t word = choose_word(to, from, &args);
    const uint64_t threads = weir_layout_threads(to, from, args.at, args.bytes, word);
    return weir_launch(m->device, choose_kernel(m, word), choose_shape(m->device, threads, opts.blocks), &args, NULL,
                       m->stream);
}

weir_status weir_layout_pack(weir_device *device, const weir_layout *layout, uint64_t count, const void *src,
                             void *packed, const weir_layout_opts *opts, void *stream)
{
    const move m = { .call = "weir_layout_pack",
                     .device = device,
                     .to = { NULL, 0, packed, "packed" },
                     .from = { layout, count, (void *)(uintptr_t)src, "src" },
                     .opts = opts,
                     .stream = stream };
    return run(&m);
}

weir_status weir_layout_unpack(weir_device *device, const weir_layout *layout, uint64_t count, void *dst,
                               const void *packed, const weir_layout_opts *opts, void *stream)
{
    const move m = { .call = "weir_layout_unpack",
                     .device = device,
                     .to = { layout, count, dst, "dst" },
                     .from = { NULL, 0, (void *)(uintptr_t)packed, "packed" },
                     .opts = opts,
                     .stream = stream };
    return run(&m);
}

weir_status weir_layout_copy(weir_device *device, const weir_layout *to, uint64_t to_count, void *dst,
                             const weir_layout *from, uint64_t from_count, const void *src,
                             const weir_layout_opts *opts, void *stream)
{
    static const char call[] = "weir_layout_copy";
    if (to == NULL || from == NULL) {
        return weiri_fail_null(call, to == NULL ? "to" : "from");
    }
    const move m = { .call = call,
                     .device = device,
                     .to = { to, to_count, dst, "dst" },
                     .from = { from, from_count, (void *)(uintptr_t)src, "src" },
                     .opts = opts,
                     .stream = stream };
    return run(&m);
}
