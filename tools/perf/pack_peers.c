/* pack_peers.c - copies of strided rows by the CUDA driver, for weir-perf pack; with declarations of weir-perf. */
#include "tools/perf/pack.h"

#include <stdlib.h>
#include <string.h>

#include "tools/perf/cuda.h"

#define ROWS_MAX ((uint64_t)64 << 10) /* of peers that make a call for each row */
#define PITCH_MAX ((uint64_t)1 << 31)
#define MEMORY_UNIFIED 4
#define LIMIT_L2_FETCH 5 /* CU_LIMIT_MAX_L2_FETCH_GRANULARITY */

/* CUDA_MEMCPY2D_v2 */
typedef struct copy_2d {
    size_t src_x, src_y;
    unsigned src_type;
    const void *src_host;
    unsigned long long src_device;
    void *src_array;
    size_t src_pitch;
    size_t dst_x, dst_y;
    unsigned dst_type;
    void *dst_host;
    unsigned long long dst_device;
    void *dst_array;
    size_t dst_pitch;
    size_t width, height;
} copy_2d;

/* CUDA_MEMCPY3D_v2 */
typedef struct copy_3d {
    size_t src_x, src_y, src_z, src_level;
    unsigned src_type;
    const void *src_host;
    unsigned long long src_device;
    void *src_array;
    void *src_reserved;
    size_t src_pitch, src_height;
    size_t dst_x, dst_y, dst_z, dst_level;
    unsigned dst_type;
    void *dst_host;
    unsigned long long dst_device;
    void *dst_array;
    void *dst_reserved;
    size_t dst_pitch, dst_height;
    size_t width, height, depth;
} copy_3d;

/* CUmemcpyAttributes */
typedef struct copy_attributes {
    int order; /* 1: in the order of the stream */
    int locations[4];
    unsigned flags;
} copy_attributes;

struct pack_driver {
    perf_rank *rank;
    perf_cuda *cuda;
    int (*copy)(unsigned long long dst, unsigned long long src, size_t bytes, void *stream);
    int (*copy_2d)(const copy_2d *copy, void *stream);
    int (*copy_3d)(const copy_3d *copy, void *stream);
    int (*wait)(void *stream);
    int (*batch)(unsigned long long *dst, unsigned long long *src, size_t *sizes, size_t count,
                 copy_attributes *attributes, size_t *places, size_t attribute_count, void *stream); /* CUDA 13 */
    int (*batch_12)(unsigned long long *dst, unsigned long long *src, size_t *sizes, size_t count,
                    copy_attributes *attributes, size_t *places, size_t attribute_count, size_t *failed, void *stream);
    int (*get_limit)(size_t *value, int limit);
    int (*set_limit)(int limit, size_t value);
    size_t l2_fetch;         /* before --l2-fetch has set it */
    unsigned long long *dst; /* of the rows of a batch */
    unsigned long long *src;
    size_t *sizes;
};

const char *const pack_peer_names[PACK_PEERS] = { "contiguous", "memcpy3d", "memcpy2d", "rows", "rows-sync", "batch" };

/* The bytes that the L2 fetches from memory for a sector: the driver's choice, or what was asked for. */
static weir_status set_l2_fetch(pack_driver *driver)
{
    const uint32_t wanted = driver->rank->options->l2_fetch;
    size_t now = 0;
    if (driver->get_limit(&driver->l2_fetch, LIMIT_L2_FETCH) != 0 ||
        (wanted != 0 && driver->set_limit(LIMIT_L2_FETCH, wanted) != 0) ||
        driver->get_limit(&now, LIMIT_L2_FETCH) != 0 || (wanted != 0 && now != wanted)) {
        return perf_fail(driver->rank, WEIR_ERR_UNSUPPORTED, "the driver does not take --l2-fetch %u", wanted);
    }
    perf_fact(driver->rank->output, "L2 fetch", "%zu bytes for a sector", now);
    return WEIR_OK;
}

weir_status pack_driver_open(perf_rank *rank, pack_driver **out)
{
    *out = NULL;
    pack_driver *driver = (pack_driver *)calloc(1, sizeof *driver);
    if (driver == NULL) {
        return WEIR_ERR_NOMEM;
    }
    driver->rank = rank;
    driver->dst = (unsigned long long *)malloc(ROWS_MAX * sizeof driver->dst[0]);
    driver->src = (unsigned long long *)malloc(ROWS_MAX * sizeof driver->src[0]);
    driver->sizes = (size_t *)malloc(ROWS_MAX * sizeof driver->sizes[0]);
    weir_status status = driver->dst == NULL || driver->src == NULL || driver->sizes == NULL ? WEIR_ERR_NOMEM : WEIR_OK;
    if (status == WEIR_OK) {
        status = perf_cuda_open(rank, &driver->cuda);
    }
    if (status == WEIR_OK) {
        const perf_cuda_function functions[] = {
            { "cuMemcpyAsync", &driver->copy, true },           { "cuMemcpy2DAsync_v2", &driver->copy_2d, true },
            { "cuMemcpy3DAsync_v2", &driver->copy_3d, true },   { "cuStreamSynchronize", &driver->wait, true },
            { "cuMemcpyBatchAsync_v2", &driver->batch, false }, { "cuMemcpyBatchAsync", &driver->batch_12, false },
            { "cuCtxGetLimit", &driver->get_limit, true },      { "cuCtxSetLimit", &driver->set_limit, true },
        };
        status = perf_cuda_find(driver->cuda, functions, ROWS(functions));
    }
    if (status == WEIR_OK) {
        status = set_l2_fetch(driver);
    }
    if (status != WEIR_OK) {
        pack_driver_close(driver);
        return status;
    }
    *out = driver;
    return WEIR_OK;
}

void pack_driver_close(pack_driver *driver)
{
    if (driver != NULL) {
        if (driver->l2_fetch != 0 && driver->rank->options->l2_fetch != 0) {
            (void)driver->set_limit(LIMIT_L2_FETCH, driver->l2_fetch);
        }
        perf_cuda_close(driver->cuda);
        free(driver->sizes);
        free(driver->src);
        free(driver->dst);
        free(driver);
    }
}

/* Whether the groups of rows are the planes of a 3-D copy. */
static bool has_planes(const pack_box *box)
{
    const uint64_t pitch = box->strides[1];
    return box->run <= pitch && pitch < PITCH_MAX &&
           (box->counts[0] == 1 || (box->strides[0] % pitch == 0 && box->strides[0] >= pitch * box->counts[1]));
}

bool pack_peer_takes(const pack_driver *driver, pack_peer peer, const pack_config *config)
{
    const pack_box *box = &config->box;
    const uint64_t rows = config->list != NULL ? config->list->count : box->counts[0] * box->counts[1];
    switch (peer) {
    case PACK_PEER_3D:
        return config->list == NULL && has_planes(box);
    case PACK_PEER_2D:
        return config->list == NULL && box->run <= box->strides[1] && box->strides[1] < PITCH_MAX &&
               box->counts[0] <= 1024;
    case PACK_PEER_ROWS:
    case PACK_PEER_ROWS_SYNC:
        return rows <= ROWS_MAX;
    case PACK_PEER_BATCH:
        return rows <= ROWS_MAX && (driver->batch != NULL || driver->batch_12 != NULL);
    default:
        return true;
    }
}

bool pack_peer_records(pack_peer peer)
{
    return peer == PACK_PEER_CONTIGUOUS || peer == PACK_PEER_3D || peer == PACK_PEER_2D;
}

static unsigned long long address(const char *pointer, uint64_t offset)
{
    return (unsigned long long)(uintptr_t)pointer + offset;
}

static int put_3d(pack_driver *driver, const pack_args *args, void *stream)
{
    const pack_box *box = &args->box;
    copy_3d copy;
    memset(&copy, 0, sizeof copy);
    copy.width = box->run;
    copy.height = box->counts[1];
    copy.depth = box->counts[0];
    copy.src_type = MEMORY_UNIFIED;
    copy.dst_type = MEMORY_UNIFIED;
    copy.src_device = address(args->unpack ? args->dense : args->wide, 0);
    copy.dst_device = address(args->unpack ? args->wide : args->dense, 0);
    const size_t height = box->counts[0] == 1 ? box->counts[1] : box->strides[0] / box->strides[1];
    copy.src_pitch = args->unpack ? box->run : box->strides[1];
    copy.src_height = args->unpack ? box->counts[1] : height;
    copy.dst_pitch = args->unpack ? box->strides[1] : box->run;
    copy.dst_height = args->unpack ? height : box->counts[1];
    return driver->copy_3d(&copy, stream);
}

static int put_2d(pack_driver *driver, const pack_args *args, void *stream)
{
    const pack_box *box = &args->box;
    int result = 0;
    for (uint64_t group = 0; group < box->counts[0] && result == 0; group++) {
        const unsigned long long wide = address(args->wide, group * box->strides[0]);
        const unsigned long long dense = address(args->dense, group * box->counts[1] * box->run);
        copy_2d copy;
        memset(&copy, 0, sizeof copy);
        copy.width = box->run;
        copy.height = box->counts[1];
        copy.src_type = MEMORY_UNIFIED;
        copy.dst_type = MEMORY_UNIFIED;
        copy.src_device = args->unpack ? dense : wide;
        copy.dst_device = args->unpack ? wide : dense;
        copy.src_pitch = args->unpack ? box->run : box->strides[1];
        copy.dst_pitch = args->unpack ? box->strides[1] : box->run;
        result = driver->copy_2d(&copy, stream);
    }
    return result;
}

static void list_row(pack_driver *driver, const pack_args *args, size_t row, uint64_t place, uint64_t at, size_t bytes)
{
    const unsigned long long wide = address(args->wide, place);
    const unsigned long long dense = address(args->dense, at);
    driver->src[row] = args->unpack ? dense : wide;
    driver->dst[row] = args->unpack ? wide : dense;
    driver->sizes[row] = bytes;
}

/* Fills the lists of a batch; returns the number of rows. */
static size_t list_rows(pack_driver *driver, const pack_config *config, const pack_args *args)
{
    const pack_box *box = &config->box;
    const pack_list *list = config->list;
    const size_t rows = list != NULL ? list->count : box->counts[0] * box->counts[1];
    uint64_t at = 0;
    for (size_t row = 0; row < rows; row++) {
        const size_t bytes = list != NULL ? list->lengths[row] : box->run;
        const uint64_t place = list != NULL
                                   ? (uint64_t)list->places[row]
                                   : row / box->counts[1] * box->strides[0] + row % box->counts[1] * box->strides[1];
        list_row(driver, args, row, place, at, bytes);
        at += bytes;
    }
    return rows;
}

static int put_rows(pack_driver *driver, size_t rows, bool synchronous, void *stream)
{
    int result = 0;
    for (size_t row = 0; row < rows && result == 0; row++) {
        result = driver->copy(driver->dst[row], driver->src[row], driver->sizes[row], stream);
        if (synchronous && result == 0) {
            result = driver->wait(stream);
        }
    }
    return result;
}

static int put_batch(pack_driver *driver, size_t rows, void *stream)
{
    copy_attributes attributes;
    size_t place = 0;
    size_t failed = 0;
    memset(&attributes, 0, sizeof attributes);
    attributes.order = 1;
    return driver->batch != NULL
               ? driver->batch(driver->dst, driver->src, driver->sizes, rows, &attributes, &place, 1, stream)
               : driver->batch_12(driver->dst, driver->src, driver->sizes, rows, &attributes, &place, 1, &failed,
                                  stream);
}

static int put_each(pack_driver *driver, pack_peer peer, const pack_config *config, const pack_args *args, void *stream)
{
    const size_t rows = list_rows(driver, config, args);
    return peer == PACK_PEER_BATCH ? put_batch(driver, rows, stream)
                                   : put_rows(driver, rows, peer == PACK_PEER_ROWS_SYNC, stream);
}

weir_status pack_peer_put(pack_driver *driver, pack_peer peer, const pack_config *config, const pack_args *args,
                          void *stream)
{
    const int result = peer == PACK_PEER_3D   ? put_3d(driver, args, stream)
                       : peer == PACK_PEER_2D ? put_2d(driver, args, stream)
                       : peer == PACK_PEER_CONTIGUOUS
                           ? driver->copy(address(args->unpack ? args->wide : args->dense, 0),
                                          address(args->unpack ? args->dense : args->wide, 0), args->bytes, stream)
                           : put_each(driver, peer, config, args, stream);
    return result == 0
               ? WEIR_OK
               : perf_fail(driver->rank, WEIR_ERR_DEVICE, "pack %s: CUDA error %d", pack_peer_names[peer], result);
}
