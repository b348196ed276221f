/* data.c - packs and unpacks, by a kernel or through the host.
 *
 * Through the host: before a pack, all memory between the first and the last byte of the items is copied to the host,
 * and MPI packs it there. An unpack must not write between the items, where the program may work at the same time. MPI
 * unpacks into host memory, a second unpack shows which bytes belong to the items, and these are copied run by run. An
 * unpack is a receive from this process itself, because MPI_Unpack does not take a message that ends inside of an item.
 */
#include "src/mpi/data.h"

#include <limits.h>
#include <pthread.h>
#include <string.h>

#include "src/mpi/alloc.h"
#include "weir/error.h"
#include "weir/stream.h"

#define MOST_BYTES ((uint64_t)1 << 46) /* more than machines have */

/* ---- begin and end --------------------------------------------------------------------------------------- */

/* The memory `offset` bytes behind the buffer, which is NULL for absolute addresses. */
static void *place(const weiri_mpi_data *data, MPI_Count offset)
{
    return (void *)((uintptr_t)data->buffer + (uintptr_t)offset);
}

/* Finds the device whose memory the items are in. False if MPI must do the work, with *reason set. */
static bool find_device(weiri_mpi_data *data, weiri_mpi_reason *reason)
{
    MPI_Count size = 0, lb = 0, extent = 0;
    weiri_mpi_device *last = NULL;
    if (PMPI_Type_size_x(data->datatype, &size) != MPI_SUCCESS ||
        PMPI_Type_get_true_extent_x(data->datatype, &lb, &extent) != MPI_SUCCESS) {
        *reason = WEIRI_MPI_LEFT_TO_MPI;
        return false;
    }
    if (size <= 0) {
        *reason = WEIRI_MPI_NO_BYTES;
        return false;
    }
    if (__builtin_mul_overflow((uint64_t)data->count, (uint64_t)size, &data->bytes) || data->bytes > MOST_BYTES) {
        *reason = WEIRI_MPI_LEFT_TO_MPI;
        return false;
    }
    if (!weiri_mpi_device_find(place(data, lb), &data->device)) {
        *reason = WEIRI_MPI_REASONS; /* explained there */
        return false;
    }
    if (data->device == NULL) {
        *reason = WEIRI_MPI_HOST_MEMORY;
        return false;
    }
    /* Absolute addresses may point into different memories. */
    *reason = WEIRI_MPI_TYPE;
    return data->buffer != MPI_BOTTOM ||
           (weiri_mpi_device_find(place(data, lb + extent - 1), &last) && last == data->device);
}

/* Finds the entry of the datatype. False if MPI must do the work, with *reason set. */
static bool find_type(weiri_mpi_data *data, weiri_mpi_reason *reason)
{
    const weiri_mpi_type *type = data->type = weiri_mpi_type_get(data->datatype);
    if (type == NULL) {
        *reason = WEIRI_MPI_LEFT_TO_MPI;
        return false;
    }
    if (weiri_mpi_device_stages_there() && type->layout == NULL) {
        *reason = WEIRI_MPI_TYPE;
        return false;
    }
    *reason = WEIRI_MPI_TOO_LARGE;
    return data->bytes <= INT_MAX || type->layout != NULL;
}

bool weiri_mpi_data_begin(weiri_mpi_call call, const void *buffer, int count, MPI_Datatype datatype,
                          weiri_mpi_data *out)
{
    weiri_mpi_reason reason = count == 0 ? WEIRI_MPI_NO_BYTES : WEIRI_MPI_LEFT_TO_MPI;
    weiri_mpi_data data = { .call = call, .datatype = datatype, .buffer = (char *)(uintptr_t)buffer, .count = count };
    /* The device comes first: host memory is the ordinary case, and an entry is found under a lock. */
    if (count > 0 && datatype != MPI_DATATYPE_NULL && datatype != (MPI_Datatype)0 && find_device(&data, &reason) &&
        find_type(&data, &reason)) {
        *out = data;
        return true;
    }
    if (reason != WEIRI_MPI_REASONS) {
        weiri_mpi_explain(reason, NULL);
    }
    weiri_mpi_data_leave(&data);
    weiri_mpi_type_put(data.type);
    return false;
}

void weiri_mpi_data_end(weiri_mpi_data *data)
{
    if (data->kept) {
        weiri_mpi_type_release(data->type);
    }
    weiri_mpi_type_put(data->type);
    data->type = NULL;
}

bool weiri_mpi_data_keep(weiri_mpi_data *data)
{
    if (!weiri_mpi_type_keep(data->type, data->datatype)) {
        return false;
    }
    data->datatype = data->type->kept;
    data->kept = true;
    return true;
}

void weiri_mpi_data_leave(const weiri_mpi_data *data) { weiri_mpi_count(data->call, WEIRI_MPI_BY_MPI, data->bytes); }

/* ---- by a kernel ----------------------------------------------------------------------------------------- */

static bool commit(const weiri_mpi_data *data)
{
    weiri_mpi_type *type = data->type;
    const uint64_t bit = (uint64_t)1 << data->device->index;
    if ((__atomic_load_n(&type->committed, __ATOMIC_ACQUIRE) & bit) != 0) {
        return true;
    }
    if (weiri_mpi_fault_due(WEIRI_MPI_FAULT_DEVICE) ||
        weir_layout_commit(type->layout, data->device->device) != WEIR_OK) {
        return false;
    }
    (void)__atomic_or_fetch(&type->committed, bit, __ATOMIC_RELEASE);
    return true;
}

static bool launch(const weiri_mpi_data *data, void *to, const void *from, uint64_t bytes, void *stream)
{
    weir_device *device = data->device->device;
    const weir_layout *layout = data->type->layout;
    weir_layout_opts opts = WEIR_OPTS(weir_layout_opts);
    const uint64_t count = (uint64_t)data->count;
    opts.bytes = bytes;
    return !weiri_mpi_fault_due(WEIRI_MPI_FAULT_DEVICE) &&
           (from == NULL ? weir_layout_pack(device, layout, count, data->buffer, to, NULL, stream)
                         : weir_layout_unpack(device, layout, count, data->buffer, from, &opts, stream)) == WEIR_OK;
}

/* Packs to `to`, or with `from` unpacks its bytes. */
static bool run_kernel(const weiri_mpi_data *data, void *to, const void *from, uint64_t bytes)
{
    weiri_mpi_stream *stream = commit(data) ? weiri_mpi_stream_take(data->device) : NULL;
    bool good = stream != NULL;
    if (good) {
        good = launch(data, to, from, bytes, stream->stream);
        good = weiri_mpi_stream_finish(stream) && good;
    }
    if (!good) {
        weiri_mpi_explain(WEIRI_MPI_NO_KERNEL, weir_last_error());
    }
    return good;
}

/* ---- through the host ------------------------------------------------------------------------------------ */

/* Host memory for all memory between the first and the last byte of the items. */
typedef struct span {
    char *memory;
    char *device; /* where it is on the device */
    uint64_t bytes;
} span;

static bool span_begin(const weiri_mpi_data *data, span *out)
{
    const weiri_mpi_type *type = data->type;
    const int64_t last = (data->count - 1) * type->extent;
    const int64_t least = type->true_lb + (last < 0 ? last : 0);
    out->bytes = (uint64_t)type->true_extent + (uint64_t)(last < 0 ? -last : last);
    out->device = data->buffer + least;
    out->memory = weiri_mpi_alloc(1, out->bytes);
    if (out->memory == NULL) {
        weiri_mpi_explain(WEIRI_MPI_NO_MEMORY, "a copy on the host");
    }
    return out->memory != NULL;
}

/* The buffer to call MPI with. It may lie outside of the span. */
static void *span_buffer(const weiri_mpi_data *data, const span *s)
{
    return (void *)((uintptr_t)s->memory + ((uintptr_t)data->buffer - (uintptr_t)s->device));
}

static bool pack_by_host(const weiri_mpi_data *data, void *packed)
{
    span s;
    int position = 0;
    if (data->bytes > INT_MAX || !span_begin(data, &s)) {
        return false;
    }
    const bool good = weiri_mpi_device_copy(data->device, s.memory, s.device, s.bytes) &&
                      PMPI_Pack(span_buffer(data, &s), data->count, data->datatype, packed, (int)data->bytes, &position,
                                weiri_mpi_type_self()) == MPI_SUCCESS;
    weiri_mpi_free(s.memory);
    return good;
}

/* MPI copies `bytes` from `packed` into the items around `buffer`. */
static bool receive_from_self(const weiri_mpi_data *data, void *buffer, const void *packed, int bytes)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* messages of two threads would mix */
    (void)pthread_mutex_lock(&mutex);
    const int result = PMPI_Sendrecv(packed, bytes, MPI_BYTE, 0, 0, buffer, data->count, data->datatype, 0, 0,
                                     weiri_mpi_type_self(), MPI_STATUS_IGNORE);
    (void)pthread_mutex_unlock(&mutex);
    return result == MPI_SUCCESS;
}

/* Copies the runs of bytes whose byte of the mask is not zero. */
static bool copy_runs(const weiri_mpi_data *data, const span *from, const char *mask)
{
    for (uint64_t start = 0, end; start < from->bytes; start = end) {
        for (end = start + 1; end < from->bytes && (mask[end] != 0) == (mask[start] != 0); end++) {
        }
        if (mask[start] != 0 &&
            !weiri_mpi_device_copy(data->device, from->device + start, from->memory + start, end - start)) {
            return false;
        }
    }
    return true;
}

/* Receives the bytes into `values`, and the same number of non-zero bytes into `mask`. */
static bool unpack_to_spans(const weiri_mpi_data *data, const void *packed, uint64_t bytes, const span *values,
                            const span *mask)
{
    char *ones = weiri_mpi_alloc(1, bytes);
    if (ones == NULL) {
        weiri_mpi_explain(WEIRI_MPI_NO_MEMORY, "a copy on the host");
        return false;
    }
    memset(ones, 1, bytes);
    const bool good = receive_from_self(data, span_buffer(data, values), packed, (int)bytes) &&
                      receive_from_self(data, span_buffer(data, mask), ones, (int)bytes);
    weiri_mpi_free(ones);
    return good;
}

static bool unpack_by_host(const weiri_mpi_data *data, const void *packed, uint64_t bytes)
{
    span values = { 0 };
    span mask = { 0 };
    if (bytes > INT_MAX) {
        return false;
    }
    if (weiri_mpi_device_stages_there()) {
        return receive_from_self(data, data->buffer, packed, (int)bytes); /* MPI takes the device's memory */
    }
    const bool good = span_begin(data, &values) && span_begin(data, &mask) &&
                      unpack_to_spans(data, packed, bytes, &values, &mask) && copy_runs(data, &values, mask.memory);
    weiri_mpi_free(values.memory);
    weiri_mpi_free(mask.memory);
    return good;
}

/* The same for packed bytes in the device's memory, by a copy on the host. */
static bool move_by_host(const weiri_mpi_data *data, void *to, const void *from, uint64_t bytes, bool there)
{
    if (!there || (from != NULL && weiri_mpi_device_stages_there())) {
        return from == NULL ? pack_by_host(data, to) : unpack_by_host(data, from, bytes);
    }
    void *copy = weiri_mpi_alloc(1, bytes);
    if (copy == NULL) {
        weiri_mpi_explain(WEIRI_MPI_NO_MEMORY, "a copy on the host");
        return false;
    }
    const bool good = from == NULL
                          ? pack_by_host(data, copy) && weiri_mpi_device_copy(data->device, to, copy, bytes)
                          : weiri_mpi_device_copy(data->device, copy, from, bytes) && unpack_by_host(data, copy, bytes);
    weiri_mpi_free(copy);
    return good;
}

/* ---- pack and unpack ------------------------------------------------------------------------------------- */

static bool move(const weiri_mpi_data *data, void *to, const void *from, uint64_t bytes, bool there)
{
    if (data->type->layout != NULL && run_kernel(data, to, from, bytes)) {
        weiri_mpi_count(data->call, there ? WEIRI_MPI_ON_DEVICE : WEIRI_MPI_ONE_SHOT, bytes);
        return true;
    }
    if (data->type->layout == NULL) {
        weiri_mpi_explain(WEIRI_MPI_TYPE, data->type->reason);
    }
    /* A second try, because nobody else can do it: a message that has arrived would be lost. */
    if (!move_by_host(data, to, from, bytes, there) && !move_by_host(data, to, from, bytes, there)) {
        return false;
    }
    weiri_mpi_count(data->call, WEIRI_MPI_BY_HOST, bytes);
    return true;
}

bool weiri_mpi_data_pack(const weiri_mpi_data *data, void *packed, bool there)
{
    return move(data, packed, NULL, data->bytes, there);
}

bool weiri_mpi_data_unpack(const weiri_mpi_data *data, const void *packed, uint64_t bytes, bool there)
{
    return bytes == 0 || move(data, NULL, packed, bytes, there);
}
